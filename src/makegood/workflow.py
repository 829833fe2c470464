"""Apps, workflows, and what a workflow function may call besides actions.

``App`` is a value that users hold; it knows its agents, actions and workflows. A workflow is an ordinary ``def`` that is run
once, with real inputs, when a task is submitted: it yields a ``Plan``. Nothing is replayed later.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar, TypeVarTuple, cast, overload

import msgspec

from makegood.breaker import Breaker
from makegood.codec import PAYLOAD_LIMIT, canonical, check_fits, decode, encode
from makegood.declaration import RECORDER, Action, Agent, Shared
from makegood.durations import Duration, seconds
from makegood.errors import (
    DefinitionError,
    DuplicateNameError,
    PayloadError,
    PromiseError,
    UnknownActionError,
)
from makegood.following import NO_TRAIL, literals
from makegood.ids import checked_name
from makegood.keeping import refuse_hidden
from makegood.parameters import certain, hints, names_around, signature
from makegood.planning import Planning
from makegood.policy import Retry
from makegood.promise import Promise, all_of, any_of, not_
from makegood.receiving import TRIES, Accepts, Inbox
from makegood.recording import Recording
from makegood.source import check_source, say_where
from makegood.task import OnFailure, Plan
from makegood.terms import checked_limit, former_names

__all__ = ["App", "Workflow", "all_of", "any_of", "branches", "each", "not_", "parallel", "when"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")
T6 = TypeVar("T6")
Ts = TypeVarTuple("Ts")

_IMMUTABLE = (str, int, float, bool, bytes, type(None))
_ORDERED = frozenset(_IMMUTABLE)
"""Types whose JSON is the same however often it is written: it needs no sorting."""


# -- what a workflow function may call ------------------------------------------------------------------------------------


def _planning(what: str) -> Planning:
    planning = RECORDER.get()
    if not isinstance(planning, Planning):
        raise DefinitionError(
            f"{what} belongs into a @app.workflow function, which runs when a task is submitted: no plan is being built here"
        )
    return planning


def _recording(what: str) -> Recording:
    return _planning(what).recording(what)


def parallel(*steps: *Ts) -> tuple[*Ts]:
    """Let steps run at the same time: ``tracking, _ = mg.parallel(ship(order), email(order))``. Returns their promises.

    The calls are written inside the parentheses; what follows waits for all of them. Calls nested in the first one's arguments
    come before all. Raises ``PromiseError`` when the steps were not just recorded, or need each other.
    """
    _planning("mg.parallel").parallel(steps)
    return steps


@overload
def branches(a: Callable[[], T1], b: Callable[[], T2], /) -> tuple[T1, T2]: ...
@overload
def branches(a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], /) -> tuple[T1, T2, T3]: ...
@overload
def branches(
    a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], /
) -> tuple[T1, T2, T3, T4]: ...
@overload
def branches(
    a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], e: Callable[[], T5], /
) -> tuple[T1, T2, T3, T4, T5]: ...
@overload
def branches(
    a: Callable[[], T1], b: Callable[[], T2], c: Callable[[], T3], d: Callable[[], T4], e: Callable[[], T5],
    f: Callable[[], T6], /,
) -> tuple[T1, T2, T3, T4, T5, T6]: ...  # fmt: skip
@overload
def branches(*functions: Callable[[], T]) -> tuple[T, ...]: ...
def branches(*functions: Callable[[], Any]) -> tuple[Any, ...]:
    """Let sequences run at the same time: each function records one. Returns what they return, in order.

    Promises do not leave their branch but by being returned. Raises ``DefinitionError`` for what is no function.
    """
    return _recording("mg.branches").branches(functions)


@overload
def when(condition: bool, *, then: Callable[[], T], otherwise: Callable[[], U]) -> T | U: ...  # noqa: FBT001
@overload
def when(condition: bool, *, then: Callable[[], T]) -> T | None: ...  # noqa: FBT001
def when(
    condition: bool,  # noqa: FBT001 - a condition, not a flag
    *,
    then: Callable[[], Any],
    otherwise: Callable[[], Any] | None = None,
) -> Any:
    """Decide on a result: ``mg.when(risk == "high", then=lambda: review(order), otherwise=lambda: accept(order))``.

    ``condition``: ``promise == x``, ``promise != x``, a promise of a bool, or these in ``mg.all_of``, ``mg.any_of``,
    ``mg.not_``. Both functions run now and record their steps; only one side's will run. Returns the promise of what that
    side returns (None without ``otherwise``), which other actions take as an argument. A bool that is known now decides now. Raises ``PromiseError``.
    """
    return _recording("mg.when").when(condition, then, otherwise)


def each(
    items: Iterable[T], body: Callable[[T], R], *, limit: int = 1000, at_once: int | None = None
) -> list[R]:
    """Do something for every element of a result: ``mg.each(parts(order), lambda part: reserve(part))``.

    ``body`` runs once now, with a promise of an item, and records what is to be done with each. Returns the promise of a list:
    what ``body`` returns for each item, in their order. Other actions take it as an argument; it cannot be iterated over. Items do not wait for each other, except that ``at_once`` at most are under way. A list of more than
    ``limit`` items fails the step. Of a list that is known now, ``body`` runs for each element. Raises ``PromiseError``.
    """
    return cast("list[R]", _recording("mg.each").each(items, body, limit, at_once))


_MAKERS: Mapping[object, str] = {when: "when", each: "each", parallel: "parallel"}


# -- workflows ------------------------------------------------------------------------------------------------------------


class Workflow(Generic[P, R]):
    """A workflow of an app: see ``App.workflow``. Submit it with ``client.submit(workflow, *inputs)``."""

    def __init__(
        self,
        fn: Callable[P, R],
        shared: Shared,
        *,
        name: str,
        formerly: tuple[str, ...],
        within: float | None,
        undo_within: float | None,
        on_failure: OnFailure,
    ) -> None:
        self.name = name
        self.formerly = formerly
        self.address = f"{shared.app}.{name}"
        self.within = within
        self.undo_within = undo_within
        self.on_failure: OnFailure = on_failure
        self._fn = fn
        self._shared = shared
        self._named = msgspec.json.encode([shared.app, name])
        self._signature = signature(fn, self.address)
        found = self._signature.parameters.values()
        self._plain = len(found) if all(p.kind is p.POSITIONAL_OR_KEYWORD for p in found) else -1
        self._named_all = not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found)
        self._inputs = tuple((p.name, f"the input {p.name} of {self.address}") for p in found)
        self._trail = NO_TRAIL
        if inspect.iscoroutinefunction(fn):
            raise DefinitionError(
                f"{self.address} is an async def: a workflow function is a plain def; it calls actions without await, and its inputs "
                f"are fetched before it is submitted"
            )
        check_source(fn, _MAKERS, self.address)
        self._names = names_around()
        self._hints: dict[str, Any] | None = None
        self._refuse_unkept()
        self._sure: dict[tuple[int, type], bool] = {}
        functools.update_wrapper(self, fn, updated=())

    def __repr__(self) -> str:
        return f"<workflow {self.address}>"

    def _refuse_unkept(self) -> None:
        """Raise ``DefinitionError`` for annotations whose JSON does not keep what they hold, as far as they can be evaluated by now."""
        try:
            self._annotation("return")
        except DefinitionError:  # it names what is defined further down: values decide
            return
        for name, annotation in (self._hints or {}).items():
            refuse_hidden(
                annotation, f"the {'result' if name == 'return' else f'input {name}'} of {self.address}"
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside another workflow: record its steps there, under that one's options. Anywhere else: raise ``DefinitionError``."""
        planning = RECORDER.get()
        if not isinstance(planning, Planning):
            raise DefinitionError(
                f"{self.address} was called outside a workflow: submit it with client.submit({self.name}, ...), or look at its steps "
                f"with {self.name}.plan(...)"
            )
        planning.enter(self.address)
        return self._fn(*args, **kwargs)

    @property
    def fn(self) -> Callable[P, R]:
        """The function that was decorated."""
        return self._fn

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Plan[R]:
        """Run the workflow function with these inputs and return its plan; nothing is submitted.

        Raises ``DefinitionError`` or ``PromiseError`` for what a plan cannot hold, ``PayloadError`` for inputs that cannot be kept
        or are too large, and whatever the function itself raises.
        """
        __tracebackhide__ = True  # pytest shows the line that called it, which is the one to mend
        by_name: dict[str, Any] = {}
        try:
            if kwargs or len(args) != self._plain:
                args, by_name = self._bound(args, kwargs)  # type: ignore[assignment]  # as its function takes them
            inputs = [*args, *by_name.values()]
            encoded = tuple(map(self._encoded, range(len(inputs)), inputs))
        except (DefinitionError, PayloadError) as wrong:
            say_where(wrong, self._fn, self.address)
            raise
        fingerprint = self._fingerprint(inputs, encoded)
        planning = Planning(self._shared, self.address, inputs, self._trail, self._literals)
        reset = RECORDER.set(planning)
        self._shared.plans.add(planning)
        try:
            value = self._fn(*args, **by_name)
            if inspect.iscoroutine(value):
                value.close()
                raise DefinitionError(
                    f"{self.address} returned a coroutine: a workflow function is a plain def, without await"
                )
            returns = planning.returned(value)
            trail = self._trail = planning.trail(returns, self._held)
        finally:
            planning.close()
            self._shared.plans.discard(planning)
            RECORDER.reset(reset)
        for demand in trail.demands:
            check_fits(encoded[demand.place], demand.annotation, inputs[demand.place], demand.what)
        for n in planning.referred():
            if type(inputs[n]) not in _IMMUTABLE and self._encoded(n, inputs[n]) != encoded[n]:
                raise DefinitionError(
                    f"{self.address} changed its input {self._input(n)[0]} and passed it on: make a copy and pass that, inputs are "
                    f"kept as they were submitted"
                )
        return Plan(
            self._shared.app, self.name, trail.steps, encoded, returns, fingerprint, self.within, self.undo_within, self.on_failure,
            returns_type=self._returned(),
        )  # fmt: skip

    def plan_from(self, inputs: Sequence[Any]) -> Plan[R]:
        """Return the plan for all inputs in order, as JSON has them (``task show --json`` lists those of a task): each is decoded to
        its annotation.

        Raises ``PayloadError`` for inputs that do not fit, and what ``plan`` raises.
        """
        found = self._signature.parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in found):
            raise DefinitionError(
                f"{self.address}{self._signature} takes any names, and a task keeps its inputs without them: write each parameter out"
            )
        many = [p.name for p in found if p.kind is p.VAR_POSITIONAL]
        last = [p.name for p in found if p.kind is p.KEYWORD_ONLY]
        names = [p.name for p in found if p.name not in (*many, *last)]
        left = len(inputs) - len(names) - len(last)
        whole = [*names, *(many * left), *last]
        values = [self._decoded(name, value) for name, value in zip(whole, inputs, strict=False)]
        if len(whole) != len(inputs):
            least = len(names) + len(last)
            few = f"{least} input{'' if least == 1 else 's'}{' or more' if many else ''}"
            raise PayloadError(f"{self.address}{self._signature} takes {few}, not {len(inputs)}")
        cut = len(values) - len(last)
        make: Callable[..., Plan[R]] = self.plan
        return make(*values[:cut], **dict(zip(last, values[cut:], strict=True)))

    def _decoded(self, name: str, value: object) -> Any:
        what = f"the input {name}"
        return decode(
            encode(value, limit=self._shared.payload_limit, what=what), self._annotation(name), what
        )

    def find_action(self, agent: str, name: str) -> Action[..., Any] | None:
        """Return the action of its app that has or had this name, None when there is none."""
        return self._shared.find(agent, name)

    @functools.cached_property
    def _literals(self) -> Container[int]:
        return literals(self._fn)

    def _bound(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the inputs by position and by name, defaults filled in."""
        __tracebackhide__ = True
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as wrong:
            named = [p.name for p in self._signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
            how = (
                f"; what is after the * goes by name: submit({self.name}.plan({named[0]}=...))"
                if named
                else ""
            )
            raise DefinitionError(f"{self.address}{self._signature}: {wrong}{how}") from None
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def _encoded(self, n: int, value: object) -> bytes:
        __tracebackhide__ = True
        if isinstance(value, Promise):
            raise PromiseError(
                f"{self._input(n)[1]} is a promise: call {self.name}(...) itself to make its steps part of this plan"
            )
        name, what = self._input(n)
        data = encode(value, limit=self._shared.payload_limit, what=what)
        sure = (
            self._sure.get((n, type(value))) if self._named_all else True
        )  # of *args nobody knows which is which
        if sure is None:
            sure = self._sure[n, type(value)] = certain(self._annotation(name), type(value))
        if not sure:
            check_fits(data, self._annotation(name), value, what)
        return data

    def _held(self, n: int) -> Any:
        """Return what an input has been held to."""
        return self._annotation(self._input(n)[0]) if self._named_all else Any

    def _input(self, n: int) -> tuple[str, str]:
        """Return an input's name, and what it is called in messages."""
        return self._inputs[n] if n < len(self._inputs) else (str(n), f"the input {n} of {self.address}")

    def _fingerprint(self, inputs: list[object], encoded: tuple[bytes, ...]) -> bytes:
        """Return what stands for the workflow and its inputs, whatever the order of dicts and sets in them."""
        parts = [self._named]
        for n, data in enumerate(encoded):
            parts.append(data if type(inputs[n]) in _ORDERED else canonical(inputs[n]))
        return hashlib.blake2b(b",".join(parts), digest_size=16).digest()

    def _returned(self) -> Any:
        """Return the annotation that the result is decoded to, ``Any`` without one."""
        return self._annotation("return")

    def _annotation(self, name: str) -> Any:
        """Return the annotation of an input or of the result ("return"), ``Any`` without one."""
        if self._hints is None:
            self._hints = hints(self._fn, self._names, self.address)
            self._names = {}
        return self._hints.get(name, Any)


# -- apps -----------------------------------------------------------------------------------------------------------------


class App:
    """A set of agents and workflows: ``shop = mg.App("shop")``.

    ``payload_limit``: bytes that an input, the arguments of a step or a result may have as JSON. ``step_limit``: steps of a plan.
    ``agents``, ``workflows`` and ``inboxes`` are known by name. Raises ``DefinitionError`` for a name that is not allowed.
    """

    def __init__(self, name: str, *, payload_limit: int = PAYLOAD_LIMIT, step_limit: int = 10_000) -> None:
        self.name = checked_name(name, "app")
        for option, value in (("payload_limit", payload_limit), ("step_limit", step_limit)):
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise DefinitionError(f"App({name!r}, {option}={value!r}): a whole number from 1")
        self._shared = Shared(name, payload_limit=payload_limit, step_limit=step_limit)
        self.agents: dict[str, Agent] = self._shared.agents
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.inboxes: dict[str, Inbox[Any]] = {}

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
        """Declare an agent: what wraps one remote service.

        - ``concurrency``: calls at once in one process that runs it.
        - ``rate``: calls in a length of time over all its processes together, such as "20/s", "100/m"; a number is per second.
        - ``breaker``: when each process stops calling a service that does not answer (``mg.Breaker``); None: never.

        Raises ``DuplicateNameError`` when the app has one of this name, ``ConfigError`` or ``DefinitionError`` for what cannot be meant.

            payments = shop.agent("payments", concurrency=20, rate="20/s", breaker=mg.Breaker(failures=5, reset="30s"))
        """
        if name in self.agents:
            raise DuplicateNameError(
                f"app {self.name} has an agent {name!r} already: use that one, or name this one otherwise"
            )
        made = Agent(name, self._shared, concurrency=concurrency, rate=rate, breaker=breaker)
        agent = self.agents[name] = made
        return agent

    @overload
    def workflow(self, fn: Callable[P, R], /) -> Workflow[P, R]: ...
    @overload
    def workflow(
        self,
        *,
        complete_within: Duration | None = None,
        on_failure: Literal["undo", "hold"] = "undo",
        undo_within: Duration | None = None,
        name: str | None = None,
        formerly: Iterable[str] = (),
    ) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
    def workflow(
        self,
        fn: Any = None,
        *,
        complete_within: Duration | None = None,
        on_failure: Any = "undo",
        undo_within: Duration | None = None,
        name: str | None = None,
        formerly: Iterable[str] = (),
    ) -> Any:
        """Declare a workflow: ``@shop.workflow(complete_within="2h")`` above a ``def``.

        - ``complete_within``: from the first claim to the task's complete-by, after which it is undone or held; None: no limit.
        - ``on_failure``: when a step fails for good: "undo" the task, or "hold" it for an operator.
        - ``undo_within``: an undo that takes longer raises an alert.
        - ``name``: instead of the function's; ``formerly``: names it had.

        They are those of a task: called inside another workflow, its steps run under that one's. Raises ``DefinitionError``, saying what to write instead.
        """

        def declare(fn: Any) -> Any:
            called = name if name is not None else getattr(fn, "__name__", "")
            where = f"{self.name}.{called}"
            if isinstance(fn, Workflow | Action):
                raise DefinitionError(
                    f"{where} is declared already: one function is one action or one workflow"
                )
            if on_failure not in ("undo", "hold"):
                raise DefinitionError(f'{where}: on_failure={on_failure!r}: "undo" or "hold"')
            workflow: Workflow[..., Any] = Workflow(
                fn,
                self._shared,
                name=checked_name(called, "workflow"),
                formerly=former_names(formerly),
                within=checked_limit(complete_within, "complete_within", where),
                undo_within=checked_limit(undo_within, "undo_within", where),
                on_failure=on_failure,
            )
            for known in (workflow.name, *workflow.formerly):
                if self.find_workflow(known) is not None:
                    raise DuplicateNameError(
                        f'app {self.name} has two workflows named {known!r}: rename one, or pass name="..."'
                    )
            self.workflows[workflow.name] = workflow
            return workflow

        return declare if fn is None else declare(fn)

    def inbox(
        self, queue: str, *, concurrency: int = 4, retry: Retry = TRIES, lease: Duration = "1m"
    ) -> Callable[[Accepts[T]], Inbox[T]]:
        """Declare the submission process of a queue: ``@shop.inbox("orders")`` above a ``def`` or ``async def``.

        The function takes a message's payload, decoded as its annotation says, and the transaction in which the message is
        acknowledged; it returns the plan of the task to be submitted in it, None for none. ``concurrency``: messages at once in
        one process; ``retry``: deliveries of a message, and the waits between, before it goes to the dead letters; ``lease``: how long
        it may take. Raises ``DefinitionError``, ``DuplicateNameError``.

        >>> @shop.inbox("orders")  # doctest: +SKIP
        ... def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
        ...     tx.execute("insert into orders (id) values (?)", (order.id,))
        ...     return place_order.plan(order).with_(key=order.id)
        """
        if queue in self.inboxes:
            raise DuplicateNameError(
                f"app {self.name} has an inbox for the queue {queue!r} already: one queue, one inbox"
            )
        names = names_around()

        def declare(fn: Accepts[T]) -> Inbox[T]:
            limit = seconds(lease, name="lease", least=1.0)
            found = Inbox(
                queue, fn, app=self.name, concurrency=concurrency, retry=retry, lease=limit, names=names
            )
            self.inboxes[queue] = found
            return found

        return declare

    def find_workflow(self, name: str) -> Workflow[..., Any] | None:
        """Return the workflow that has or had this name, None when there is none."""
        found = self.workflows.get(name)
        return found or next((w for w in self.workflows.values() if name in w.formerly), None)

    def find_action(self, agent: str, name: str) -> Action[..., Any]:
        """Return the action that has or had this name. Raises ``UnknownActionError``."""
        found = self._shared.find(agent, name)
        if found is None:
            raise UnknownActionError(
                f"app {self.name} declares no action {agent}/{name}: declare it again, or pass formerly=({name!r},) to the action that "
                f"took its place"
            )
        return found

    def addresses(self) -> dict[str, Action[..., Any]]:
        """Return every action by its address, "app/agent/action", former names included: what waiting steps may ask for."""
        return {
            f"{self.name}/{agent.name}/{name}": action
            for agent in self.agents.values()
            for action in agent.actions.values()
            for name in (action.name, *action.formerly)
        }
