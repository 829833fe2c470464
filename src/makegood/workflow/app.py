"""An App: the agents, actions, workflows and inboxes of one application."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration, seconds
from makegood.base.ids import checked_name
from makegood.base.service_keys import MOST_STEPS
from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.brokers import KINDS, Delivery, address_of
from makegood.declare.action import Action, Agent, Shared
from makegood.declare.around import Hook
from makegood.declare.inbox import TRIES, Accepts, Inbox
from makegood.declare.parameters import names_around
from makegood.declare.setup import Setup
from makegood.declare.signal import Signal
from makegood.declare.terms import check_limit, former_names
from makegood.errors import ConfigError, DefinitionError, DuplicateNameError, UnknownActionError
from makegood.model.breaker import Breaker
from makegood.model.lane import Lane, check_terms
from makegood.model.policy import Retry
from makegood.model.schedule import ScheduleOptions, spec_of
from makegood.payload.envelopes import Codec, is_codec
from makegood.workflow.lane_of import LaneOf
from makegood.workflow.schedule import Schedule
from makegood.workflow.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound=Hook)
S = TypeVar("S", bound=Callable[..., Any])
Ts = TypeVarTuple("Ts")


# -- apps ----------------------------------------------------------------------------------------------------


@judge_calls(DefinitionError)
class App:
    """A set of agents and workflows: ``shop = mg.App("shop")``.

    ``payload_limit``: bytes of an input, the arguments of a step or a result as JSON. ``step_limit``: steps
    of a task. ``codec``: encodes payloads before they are stored, such as ``mg.codecs.Encrypted(keys)``.
    ``agents``, ``workflows``, ``inboxes``, ``schedules``, ``signals`` and ``setups`` are found by name.
    Raises ``DefinitionError`` for a name that is not allowed.
    """

    def __init__(
        self,
        name: str,
        *,
        payload_limit: int = PAYLOAD_LIMIT,
        step_limit: int = 10_000,
        codec: Codec | None = None,
    ) -> None:
        self.name = checked_name(name, "app")
        for option, value in (("payload_limit", payload_limit), ("step_limit", step_limit)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DefinitionError(f"App({name!r}, {option}={value!r}): a whole number from 1")
        if step_limit > MOST_STEPS:
            raise DefinitionError(
                f"App({name!r}, step_limit={step_limit}): a task has at most {MOST_STEPS:,} steps"
            )
        if codec is not None and not is_codec(codec):
            raise DefinitionError(
                f"App({name!r}, codec={codec!r:.60}): a codec has encode(data, context) and decode(data, context), as mg.codecs.Encrypted(keys) has"
            )
        self.codec = codec
        self._registry = Shared(name, payload_limit=payload_limit, step_limit=step_limit, codec=codec)
        self.agents: dict[str, Agent] = self._registry.agents
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.inboxes: dict[str, Inbox[Any]] = {}
        self.signals: dict[str, Signal[Any]] = self._registry.signals
        self.schedules: dict[str, Schedule] = {}
        self.setups: dict[str, Setup] = self._registry.setups

    def __repr__(self) -> str:
        return f"<app {self.name}>"

    def agent(
        self,
        name: str,
        *,
        concurrency: int = 10,
        rate: str | float | None = None,
        breaker: Breaker | None = None,
    ) -> Agent:
        """Declare an agent, which wraps one remote service.

        - ``concurrency``: calls at once in one process that runs it.
        - ``rate``: calls per length of time over all its processes together, such as "20/s", "100/m"; a
          number is per second.
        - ``breaker``: when each process stops calling a service that does not answer (``mg.Breaker``); None:
          never.

        Raises ``DuplicateNameError`` if the app has an agent of this name, and ``ConfigError`` or
        ``DefinitionError`` for options that make no sense.

            breaker = mg.Breaker(failures=5, reset="30s")
            payments = shop.agent("payments", concurrency=20, rate="20/s", breaker=breaker)
        """
        if name in self.agents:
            raise DuplicateNameError(
                f"app {self.name} has an agent {name!r} already: use that one, or name this one otherwise"
            )
        agent = Agent(name, self._registry, concurrency=concurrency, rate=rate, breaker=breaker)
        self.agents[name] = agent
        return agent

    @overload
    def workflow(self, fn: Callable[P, R], /) -> Workflow[P, R]: ...
    @overload
    def workflow(
        self,
        /,
        *,
        complete_within: Duration | None = None,
        on_failure: Literal["undo", "hold"] = "undo",
        undo_within: Duration | None = None,
        lane: Callable[..., Lane | None] | Lane | None = None,
        at_once: int = 1,
        when_taken: Literal["wait", "refuse", "cancel"] = "wait",
        name: str | None = None,
        formerly: Iterable[str] = (),
    ) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
    def workflow(
        self,
        fn: Any = None,
        /,
        *,
        complete_within: Duration | None = None,
        on_failure: Any = "undo",
        undo_within: Duration | None = None,
        lane: Any = None,
        at_once: int = 1,
        when_taken: Any = "wait",
        name: str | None = None,
        formerly: Iterable[str] = (),
    ) -> Any:
        """Declare a workflow: ``@shop.workflow(complete_within="2h")`` above a ``def``.

        - ``complete_within``: from the first claim to the task's deadline, after which it is undone or held;
          None: no limit.
        - ``on_failure``: when a step fails for good: "undo" the task, or "hold" it for an operator.
        - ``undo_within``: an undo that takes longer raises an alert.
        - ``lane``: a function of the workflow's inputs that returns a key, or several. Of the app's tasks
          that name a key, ``at_once`` go at a time, in order of submission, and each keeps it until it has
          ended. It may be the key itself; None: no lane.
        - ``when_taken``: if a lane is taken, a task may "wait", "refuse" (``LaneTakenError``, or it ends
          undone), or "cancel" those before it and wait for their end.
        - ``name``: replaces the function's name; ``formerly``: names it had.

        These options belong to a task: if the workflow is called inside another one, its steps run under that
        one's. Raises ``DefinitionError`` that says what to write instead.
        """

        def declare(fn: Any) -> Any:
            title = name if name is not None else getattr(fn, "__name__", "")
            where = f"{self.name}.{title}"
            if isinstance(fn, Workflow | Action):
                raise DefinitionError(
                    f"{where} is declared already: one function is one action or one workflow"
                )
            if on_failure not in ("undo", "hold"):
                raise DefinitionError(f'{where}: on_failure={on_failure!r}: "undo" or "hold"')
            try:
                check_terms(at_once, when_taken, where)
                lane_of = LaneOf(lane, at_once, when_taken)
            except ConfigError as wrong:
                raise DefinitionError(
                    f"{where}: {wrong}" if where not in str(wrong) else str(wrong)
                ) from None
            workflow: Workflow[..., Any] = Workflow(
                fn,
                self._registry,
                name=checked_name(title, "workflow"),
                formerly=former_names(formerly),
                within=check_limit(complete_within, "complete_within", where),
                undo_within=check_limit(undo_within, "undo_within", where),
                on_failure=on_failure,
                lane_of=lane_of,
            )
            for alias in (workflow.name, *workflow.formerly):
                if self._find_workflow(alias) is not None:
                    raise DuplicateNameError(
                        f'app {self.name} has two workflows named {alias!r}: rename one, or pass name="..."'
                    )
            self.workflows[workflow.name] = workflow
            return workflow

        return declare if fn is None else declare(fn)

    @overload
    def signal(self, name: str, of: type[T], *, readable: bool = False) -> Signal[T]: ...
    @overload
    def signal(self, name: str, of: Any, *, readable: bool = False) -> Signal[Any]: ...
    def signal(self, name: str, of: Any, *, readable: bool = False) -> Signal[Any]:
        """Declare a signal, for both ends: ``approval = shop.signal("approval", Approval)``.

        A workflow waits for it with ``mg.wait_for(approval)``, and whoever knows sends it:
        ``client.signal(task, approval, Approval(...))``. ``of``: the type of its values. To type checkers a
        type that is not a class, such as a union, is ``Any``. ``readable``: where the app has a codec, its
        values are not encoded, so that ``mg.when`` may compare them. The same name and type again: the same
        signal.
        Raises ``DefinitionError`` for a name that is not allowed and for a type that JSON cannot be decoded
        to, and ``DuplicateNameError`` if the app has a signal of this name with another type.
        """
        return self._registry.signal(name, of, readable=readable)

    def inbox(
        self,
        queue: str,
        *,
        concurrency: int = 4,
        retry: Retry = TRIES,
        lease: Duration = "1m",
        id: Callable[[Delivery], str | None] | None = None,  # noqa: A002 - what it is
    ) -> Callable[[Accepts[T]], Inbox[T]]:
        """Declare the inbox of a queue: ``@shop.inbox("orders")`` above a ``def`` or ``async def``.

        ``queue``: a queue of the store, or a place at a broker, such as "amqp:main/orders", of which the
        operator's settings say where *main* is. From there messages are relayed into a queue of the store,
        each once, under the broker's id. That queue is "amqp-main-orders", or the one of
        "amqp:main/orders?queue=orders". ``id``: returns the id of a delivery of the broker in place of the
        broker's own.

        The function takes a message's payload, decoded according to its annotation, and the transaction that
        acknowledges the message. It returns the plan of the task to submit in that transaction, or None for
        no task. ``concurrency``: messages at once in one process. ``retry``: deliveries of a message, and the
        waits between, before it becomes a dead letter. ``lease``: how long a delivery may take, and
        how long the messages of a killed process wait. Raises ``DefinitionError``, ``DuplicateNameError``.

        >>> import makegood as mg
        >>> shop = mg.App("shop")
        >>> @shop.inbox("orders")
        ... def accept(order: dict[str, str], tx: mg.Transaction) -> mg.Plan[str]:
        ...     tx.execute("insert into orders (id) values (?)", (order["id"],))
        ...     return place_order.plan(order).with_(key=order["id"])
        """
        source = None
        if isinstance(queue, str) and ":" in queue:
            try:
                source = address_of(queue, KINDS)
            except ConfigError as wrong:
                raise DefinitionError(f"{self.name}'s inbox: {wrong}") from None
            queue = source.queue
        if id is not None and source is None:
            raise DefinitionError(
                f"{self.name}'s inbox {queue}: id= is for messages of a broker; a queue of the store has the ids that senders say"
            )
        if queue in self.inboxes:
            raise DuplicateNameError(
                f"app {self.name} has an inbox for the queue {queue!r} already: one queue, one inbox"
            )
        names = names_around()

        def declare(fn: Accepts[T]) -> Inbox[T]:
            limit = seconds(lease, name="lease", least=1.0)
            inbox = Inbox(
                queue,
                fn,
                registry=self._registry,
                concurrency=concurrency,
                retry=retry,
                lease=limit,
                names=names,
                source=source,
                identify=id,
            )
            self.inboxes[queue] = inbox
            return inbox

        return declare

    @overload
    def schedule(
        self,
        /,
        *,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[Workflow[P, R]], Workflow[P, R]]: ...
    @overload
    def schedule(
        self,
        name: str,
        workflow: Callable[[Unpack[Ts]], Any],
        /,
        *inputs: *Ts,
        **options: Unpack[ScheduleOptions],
    ) -> None: ...
    def schedule(  # type: ignore[misc]  # mypy takes *Ts and *Any for different
        self,
        title: str | None = None,
        workflow: Any = None,
        /,
        *inputs: Any,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str = "UTC",
        overlap: Any = "skip",
        catch_up: Duration = "1d",
        coalesce: bool = True,
        jitter: Duration = 0,
        start: datetime | None = None,
        end: datetime | None = None,
        name: str | None = None,
    ) -> Any:
        """Declare that a workflow runs at moments of the calendar: ``@shop.schedule(cron="0 9 * * MON-FRI",
        timezone="Europe/Berlin")`` above ``@shop.workflow``, or ``shop.schedule("nightly", report, "eu",
        mg.MOMENT, every="1d")`` for a workflow with inputs.

        Every process that starts with the app writes the schedule to the store; the leading Supervisor fires
        it. At each moment a task is submitted, at most once, under the key "NAME@MOMENT".

        - ``cron``: five fields, or six with the seconds first; or ``every``: a length of time, counted from
          1970 in UTC.
        - ``timezone``: of ``cron``, an IANA name.
        - ``overlap``: while the last task has not ended, "skip" the moment, "allow" another task, "buffer"
          one moment until then, or "cancel" that task and buffer.
        - ``catch_up``: a moment that nobody could fire for longer is missed. ``coalesce``: of several that
          are late, only the latest is fired; False: all.
        - ``jitter``: chance delays each moment by less than this.
        - ``start``, ``end``: aware datetimes; no moment is before or after.
        - ``name``: replaces the workflow's name; of one schedule in an app.

        Above a workflow: one that takes no input, or the moment, an aware ``datetime``. The workflow function
        runs once, when the schedule is written, so it cannot branch on its moment. Raises ``ConfigError``,
        ``DefinitionError`` or ``PromiseError`` that say what to write instead.
        """
        options: dict[str, Any] = {
            "cron": cron, "every": every, "timezone": timezone, "overlap": overlap, "catch_up": catch_up,
            "coalesce": coalesce, "jitter": jitter, "start": start, "end": end,
        }  # fmt: skip

        def declare(target: Any) -> Any:
            label = title if title is not None else name
            self._add_schedule(label, target, inputs if title is not None else None, options)
            return target

        if title is None:
            return declare
        declare(workflow)
        return None

    def _add_schedule(
        self, name: str | None, workflow: Any, inputs: tuple[Any, ...] | None, options: Mapping[str, Any]
    ) -> None:
        if not isinstance(workflow, Workflow):
            raise DefinitionError(
                f"{self.name}.schedule takes a workflow, not {type(workflow).__name__}: write @{self.name}.schedule(...) above "
                f"@{self.name}.workflow, or {self.name}.schedule(name, workflow, *inputs, ...)"
            )
        title = workflow.name if name is None else name
        if self.workflows.get(workflow.name) is not workflow:
            raise DefinitionError(f"schedule {title!r}: {workflow.address} is a workflow of another app")
        if title in self.schedules:
            raise DuplicateNameError(f'app {self.name} has a schedule {title!r} already: pass name="..."')
        spec = spec_of(self.name, title, **options, is_declared=True)
        values = workflow._moment_inputs(title) if inputs is None else inputs  # noqa: SLF001 - for its app
        self.schedules[title] = Schedule(spec, workflow, values)

    def around(self, hook: H, /) -> H:
        """Declare what runs around each call of the app's functions: actions, undos, probes and inboxes.

        ``hook`` makes a context manager for each call, such as a function under ``@contextmanager``. One that
        blocks runs around ``def`` functions, in their thread; one that is awaited (``@asynccontextmanager``)
        runs around ``async def`` functions. Of several the first is the outermost. What a hook raises counts
        as raised by the function; it cannot swallow what the function raises. Returns ``hook``. Raises
        ``DefinitionError`` for anything else.

        >>> from contextlib import contextmanager
        >>> shop = App("shop")
        >>> @shop.around
        ... @contextmanager
        ... def own_session():
        ...     try:
        ...         yield
        ...     finally:
        ...         Session.remove()
        """
        self._registry.around.add(hook, f"{self.name}.around")
        return hook

    @overload
    def setup(self, fn: S, /) -> S: ...
    @overload
    def setup(self, /) -> Callable[[S], S]: ...
    def setup(self, fn: Any = None, /) -> Any:
        """Declare what each process opens once for its actions, such as a pool of connections:
        ``@shop.setup``.

        ``fn``: a function that yields once, ``def`` or ``async def``, or that makes a context manager. Its
        name is the setup's. A process with an agent that needs it opens it before the agent's first call, and
        closes it at the drain, in reverse order. Actions, undos, probes and other setups take it by name: a
        keyword-only parameter whose default is ``mg.SETUP``. A ``def`` runs in a thread. If it raises, the
        agents that need it begin no calls; the process logs the error and tries again. Returns ``fn``. Raises
        ``DefinitionError`` for anything else, and for setups that need each other.

        >>> shop = App("shop")
        >>> @shop.setup
        ... async def db():
        ...     async with create_pool() as pool:
        ...         yield pool
        """
        if fn is None:  # @shop.setup(), as @shop.workflow() is written
            return self.setup
        self._registry.setups.add(fn)
        return fn

    def _find_workflow(self, name: str) -> Workflow[..., Any] | None:
        """Return the workflow that has or had this name; None if there is none."""
        workflow = self.workflows.get(name)
        return workflow or next((w for w in self.workflows.values() if name in w.formerly), None)

    def _find_action(self, agent: str, name: str) -> Action[..., Any]:
        """Return the action that has or had this name. Raises ``UnknownActionError``."""
        action = self._registry.find(agent, name)
        if action is None:
            raise UnknownActionError(
                f"app {self.name} declares no action {agent}/{name}: declare it again, or pass formerly=({name!r},) to the action that "
                f"took its place"
            )
        return action
