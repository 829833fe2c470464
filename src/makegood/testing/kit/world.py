"""The world of a user's test: ``world.submit``, ``world.service``, ``world.run_to_rest``, ``world.kill`` and
the rest.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from makegood.base import ids
from makegood.base.did_you_mean import did_you_mean
from makegood.base.durations import Duration, seconds
from makegood.client.client import Client
from makegood.declare.signal import Signal
from makegood.errors import ConfigError, KeyConflict, SignalRefused, TaskNotFoundError
from makegood.model.lane import Lane
from makegood.model.messages import Answer
from makegood.model.plan import Plan
from makegood.model.states import AT_REST
from makegood.testing.checker import timeline
from makegood.testing.kit.services import FakeService
from makegood.testing.kit.stage import DAY, NotAtRestError, Stage
from makegood.testing.simulator.customers import Order
from makegood.testing.simulator.quiescence import Listening
from makegood.workflow.workflow import Workflow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """A task that the test submitted.

    task = await world.submit(place_order, order)
    await world.run_to_rest()
    task.assert_processed_or_undone()
    """

    number: int
    key: str
    returns: Any
    _stage: Stage

    @property
    def id(self) -> str:
        """The task's id: 13 letters and digits."""
        return ids.show(self.number)

    @property
    def state(self) -> str:
        """Its current state in the store, such as pending, queued, sleeping, processing or processed."""
        return self._stage.task_at_rest(self.number).state

    @property
    def cause(self) -> str:
        """Why it was undone or held; "" while nothing has gone wrong."""
        return self._stage.task_at_rest(self.number).cause or ""

    @property
    def steps(self) -> dict[str, str]:
        """The states of its steps, by name. An unknown name raises ``TaskNotFoundError``, which lists the
        existing ones.
        """
        rows = self._stage.task_at_rest(self.number).steps
        return Steps(self.id, {name: state for name, state, _, kind in rows if kind == "action"})

    async def result(self) -> Any:
        """Wait for its end and return its result. Raises ``mg.TaskUndone`` or ``mg.TaskInError``."""
        return await self._stage.in_office(lambda client: client.task(self.number, self.returns).result())

    def assert_processed_or_undone(self) -> None:
        """Fail unless everything was done or everything was undone."""
        self._assert(("processed", "undone"))

    def assert_processed(self) -> None:
        """Fail unless everything was done."""
        self._assert(("processed",))

    def assert_undone(self) -> None:
        """Fail unless everything was undone."""
        self._assert(("undone",))

    def assert_whole(self) -> None:
        """Fail unless it was processed, undone, or handed to an operator: for workflows that may end in an
        operator's hands.

        The operator's alert, and its list of the effects still in place, are checked in any case.
        """
        self._assert(tuple(sorted(AT_REST)))

    def timeline(self) -> str:
        """Return what happened to the task, a line per event."""
        return timeline(self._stage.history, self.number)

    def _assert(self, states: tuple[str, ...]) -> None:
        task_at_rest = self._stage.task_at_rest(self.number)
        if task_at_rest.state not in states:
            steps = ", ".join(f"{name} {state}" for name, state in self.steps.items())
            cause = f" ({task_at_rest.cause})" if task_at_rest.cause else ""
            raise AssertionError(
                f"task {self.id} is {task_at_rest.state}{cause}, not {' or '.join(states)}; its steps: {steps}"
            )


class Steps(dict[str, str]):
    """The states of a task's steps, by name."""

    def __init__(self, task: str, states: Mapping[str, str]) -> None:
        super().__init__(states)
        self._task = task

    def __missing__(self, name: str) -> str:
        """Raise an error that lists the existing names."""
        raise TaskNotFoundError(
            f"task {self._task} has no step {name!r}; it has {', '.join(self) or 'none'}: {did_you_mean(name, self) or 'name one of them'}",
            task_id=self._task,
        )


@dataclass(frozen=True, slots=True)
class Operator:
    """What an operator can do about a task: see ``makegood task --help``. A refused command raises
    ``mg.ActRefusedError``.
    """

    _stage: Stage

    async def cancel(self, task: Task, *, why: str = "") -> Answer:
        """Stop the task and undo what was done."""
        return await self._act(task, "cancel", why=why)

    async def undo(self, task: Task, *, why: str = "") -> Answer:
        """Undo a task in error, or one that was processed."""
        return await self._act(task, "undo", why=why)

    async def resubmit(self, task: Task, *, why: str = "") -> Answer:
        """Start a task in error, or an undone one, again."""
        return await self._act(task, "resubmit", why=why)

    async def settle(
        self, task: Task, step: str, *, outcome: str = "done", value: Any = None, why: str = ""
    ) -> Answer:
        """State the outcome of a step of a task in error: "done" with its result, "failed" or "undone"."""
        return await self._act(task, "settle", step=step, outcome=outcome, value=value, why=why)

    async def release_lane(self, task: Task, *, why: str = "") -> Answer:
        """Take the lanes of a task in error away, so that the tasks that wait for them continue."""
        return await self._act(task, "release_lane", why=why)

    async def _act(self, task: Task, kind: str, **options: Any) -> Answer:
        async def act(client: Client) -> Answer:
            answer: Answer = await getattr(client.task(task.number), kind)(**options, who="operator")
            return answer

        return await self._stage.in_office(act)


@dataclass(frozen=True, slots=True)
class Role:
    """The processes of one role: ``world.scheduler``, ``world.agent``, ``world.supervisor``."""

    name: str
    _stage: Stage

    def kill(self) -> None:
        """Kill one process, as SIGKILL does."""
        self._stage.kill_role(self.name)

    def stop(self, length: Duration = "10s") -> None:
        """Stop one process for ``length``, as SIGSTOP does."""
        self._stage.stop_role(self.name, seconds(length, name="length"))

    def resume(self) -> None:
        """Resume the stopped processes."""
        self._stage.resume_role(self.name)

    @property
    def up(self) -> bool:
        """Whether one is alive and not stopped."""
        return any(m.up and not m.process.is_stopped for m in self._stage.of_role(self.name))


class World:
    """What a test under ``@crash_everywhere`` or ``@simulate`` gets: one simulated world, on virtual time::

        @crash_everywhere
        async def test_order(world: World) -> None:
            bank = world.service("payments")
            task = await world.submit(place_order, Order("7", 990))
            await world.run_to_rest()
            task.assert_processed_or_undone()

    When the test ends, the books of every service are checked against the record, and nothing may be lost or
    left over. You need not ask for it.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._submit_count = self._signal_count = 0
        self._tasks: dict[int, Task] = {}
        self._plans: dict[str, Plan[Any]] = {}
        self.operator = Operator(stage)
        self.scheduler = Role("scheduler", stage)
        self.agent = Role("agent", stage)
        self.supervisor = Role("supervisor", stage)

    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self._stage.loop.now

    @property
    def seed(self) -> int:
        """The seed that decides everything here: ``random.Random(world.seed)`` is replayable chance."""
        return self._stage.seed

    def service(
        self,
        name: str,
        do: Callable[..., Any] | None = None,
        undo: Callable[[Any], Any] | None = None,
        *,
        keys: bool = True,
        token: bool = True,
        needed: bool = True,
    ) -> FakeService:
        """Return a remote service for the actions to call instead of the real one.

        - ``do``, ``undo``: plain functions of your fake; ``undo`` gets what ``do`` returned. Without them the
          service answers "NAME-1" and still keeps its books.
        - ``keys``: whether it honours idempotency keys.
        - ``token``: whether it refuses tokens older than the highest it has seen. Use both, keys alone, or
          neither.
        - ``needed``: the test fails if no world calls it, because then it proves nothing about it.

        Raises ``ConfigError`` for a token without keys.

            bank = world.service("payments", do=fake.charge, undo=fake.refund, keys=True, token=False)
        """
        if token and not keys:
            raise ConfigError(
                f"world.service({name!r}, keys=False): a service without keys compares no tokens either: add token=False"
            )
        if name in self._stage.services:
            raise ConfigError(f"this world has a service {name!r} already: give each its own name")
        fake = FakeService(self._stage, name, keys=keys, tokens=token, does=do, undoes=undo, needed=needed)
        self._stage.services[name] = fake
        return fake

    def setup(self, **fakes: Any) -> None:
        """Give the actions these values in place of the app's setups: ``world.setup(db=fake)``.

        Call it before the first ``submit``. A world has no network and no other threads, so each setup that
        opens something outside needs a fake. Raises ``ConfigError`` once the processes have started.
        """
        if self._stage.began is not None:
            raise ConfigError(
                "world.setup(...): the processes of this world have started: call it before the first world.submit"
            )
        self._stage.setups = {**self._stage.setups, **fakes}

    async def submit(
        self, workflow: Workflow[..., Any], *inputs: Any, key: str | None = None, lane: Lane | None = None
    ) -> Task:
        """Submit a task and return it once the submission is acknowledged.

        ``key``: its key; by default "test-1" and so on. ``lane``: its lanes, in place of those that the
        workflow names; as in ``client.submit``. The first submission starts the processes. Raises what
        ``client.submit`` raises.
        """
        if not isinstance(workflow, Workflow):
            raise ConfigError(f"world.submit({workflow!r}): a workflow first, then its inputs")
        plan = workflow.plan(*inputs).with_(lane=lane)
        await self._stage.begin(workflow)
        self._submit_count += 1
        task_key = key or f"test-{self._submit_count}"
        lanes = None if lane is None else plan.lanes.names
        first_plan = self._plans.setdefault(task_key, plan)
        if first_plan.fingerprint != plan.fingerprint:
            differences = plan.comparison.differences(first_plan.inputs, plan.inputs)
            raise KeyConflict(
                f"a task of {first_plan.app}.{first_plan.workflow} has the key {task_key!r} with other inputs ({differences}): use another key, or "
                f"submit the same inputs",
                key=task_key,
            )
        self._stage.longest = max(self._stage.longest, 4 * (workflow.within or DAY / 4))
        number = await self._stage.shoppers.place(Order(workflow, inputs, task_key, lanes=lanes))
        return self._tasks.setdefault(number, Task(number, task_key, plan.returns_type, self._stage))

    async def signal(
        self,
        task: Task,
        signal: Signal[T] | str,
        value: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - as the client names it
        until: Any = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Send a signal to a task: ``await world.signal(task, approval, Approval(yes=True))``.

        ``id``: by default "test-1" and so on. Returns ``Signalled``, or with ``until`` the answer. Raises
        what ``client.signal`` raises.
        """
        self._signal_count += 1
        name = id or f"test-{self._signal_count}"

        async def send(client: Client) -> Any:
            handle: Any = client.task(task.number)  # which overload it is, the caller knows
            return await handle.signal(signal, value, id=name, until=until, timeout=timeout)

        return await self._stage.in_office(send)

    def on_wait(self, signal: Signal[T], answer: Callable[[Task], T]) -> None:
        """Send a signal to each step that waits for it, whenever there is one.

        ``answer`` is called with the task, once in each round of the step, and returns the value.

            world.on_wait(approval, lambda task: Approval(yes=True))

        Raises ``ConfigError`` for anything but a signal, such as its name.
        """
        if not isinstance(signal, Signal):
            raise ConfigError(
                f"world.on_wait takes a signal, as app.signal(...) returns it, not {signal!r:.60}: its values are of the signal's type"
            )

        async def send(waiting: Listening) -> bool:
            task = self._tasks.get(waiting.task)
            if task is None:  # its submission is not acknowledged yet
                return False
            value, name = answer(task), f"{waiting.step}/{waiting.round}"
            with suppress(SignalRefused):  # the task has turned meanwhile
                await self._stage.in_office(
                    lambda client: client.signal(
                        client.task(task.number), signal, value, id=name, step=waiting.step
                    )
                )

            return True

        self._stage.on_wait(signal.name, send)

    async def advance(self, length: Duration) -> None:
        """Let ``length`` of virtual time pass: ``await world.advance("7d")``.

        While nothing happens it leaps to shortly before the next due moment, so a year takes no longer than
        what is done in it.
        """
        span = seconds(length, name="length")
        self._stage.longest += span
        await self._stage.advance(span)

    async def run_to_rest(self) -> None:
        """Wait until every task has ended and nothing is in flight. In a storm, the storm passes first.

        Fails if the world does not come to rest, and soon if tasks wait for signals that nobody sends, or for
        lanes that a task in error holds.
        """
        await self._stage.run_to_rest()

    async def until(self, condition: Callable[[], bool], *, within: Duration = "1h") -> None:
        """Let time pass until a condition holds: ``await world.until(lambda: task.steps["charge"] ==
        "running")``.

        Fails if it does not hold within this virtual time.
        """
        end, pause = self.now + seconds(within, name="within"), 0.002
        while not condition():
            if self.now >= end:
                raise NotAtRestError(
                    f"world.until(...): it was not so within {seconds(within):g} virtual seconds; {self._stage.describe_tasks()}"
                )
            await asyncio.sleep(pause)
            pause = min(pause * 1.05, self._stage.look)

    def kill(self, role: str) -> None:
        """Kill a process as SIGKILL does: "scheduler", "agent" or "supervisor". It restarts seconds later."""
        self._stage.kill_role(role)

    def stop(self, role: str, length: Duration = "10s") -> None:
        """Stop a process as SIGSTOP does: it resumes after ``length``, or when ``resume`` is called."""
        self._stage.stop_role(role, seconds(length, name="length"))

    def resume(self, role: str) -> None:
        """Resume the stopped processes of a role."""
        self._stage.resume_role(role)

    def at(self, moment: Duration, act: Callable[..., object], *args: Any) -> None:
        """Call ``act`` at a moment, counted from now: ``world.at("90s", world.kill, "agent")``."""
        self._stage.loop.call_later(seconds(moment, name="moment"), partial(act, *args))

    def timeline(self) -> str:
        """Return all that happened so far, a line per event."""
        return timeline(self._stage.history)
