"""The stage of a user's test: a simulated world of the engine in which the test is one more coroutine.

The test belongs to the world, so no fault strikes it. The user's actions belong to the simulated processes,
so they can be killed midway. Processes start with the first submission. When the test is over, everything
recovers and must come to rest.
"""

import asyncio
import gc
import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, TypeVar

from makegood.base.did_you_mean import did_you_mean
from makegood.base.ids import show
from makegood.client.client import Client
from makegood.errors import ConfigError, DefinitionError, StoreUnavailableError
from makegood.model.states import AT_REST
from makegood.testing.kit.leaps import lead, leap
from makegood.testing.kit.services import FakeService
from makegood.testing.simulator import world as simulated
from makegood.testing.simulator.customers import Customers, Order
from makegood.testing.simulator.faults import Plan
from makegood.testing.simulator.loop import SimulatedProcess
from makegood.testing.simulator.members import FleetMember
from makegood.testing.simulator.quiescence import Eye, Failed, Listening, StepCalls, TaskAtRest
from makegood.testing.simulator.swarm import Swarm
from makegood.testing.simulator.world_files import Grounds
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow

T = TypeVar("T")

Script = Callable[["Stage"], Awaitable[object]]
"""A user's test, ready to be played on a stage."""

DAY: Final = 86_400.0
ATTEMPTS: Final = 10_000
"""The limit of attempts of one step in one world, after which the world is given up: ``attempts=`` of the
decorators.
"""
_HOUR: Final = 3_600.0
_MOMENT: Final = 0.05
_IN_VAIN: Final = 30.0
"""Seconds after which a test fails whose tasks wait for signals that nobody sends."""
_SEND: Final = "Send it with world.signal(task, ...), or say with world.on_wait(...) what is sent to each task that waits for it"
_RELEASE: Final = "A task in error holds its lanes: deal with it by world.operator.resubmit(task), undo, settle or release_lane"
_UNKNOWN: Final = TaskAtRest("unknown", "")


class NotAtRestError(AssertionError):
    """The tasks did not come to rest in time, or the test waits for something that never happens."""


class Shoppers(Customers):
    """Submits the test's tasks, each again under the same key until it is acknowledged. ``errors``: why a
    submission cannot succeed.
    """

    def __init__(self, stage: "Stage") -> None:
        super().__init__(stage)
        self._stage = stage
        self.errors: dict[str, Exception] = {}

    async def place(self, order: Order) -> int:
        """Return the task of an order. Raises the error of its plan or of the client."""
        order.workflow.plan(*order.inputs)
        while order.key not in self.acks:
            shop = self._stage.members["shop"]  # It submits as a shop does, from a process of its own.
            if not shop.up or shop.client is None:
                await asyncio.sleep(_MOMENT)
                continue
            submission = self._stage.loop.create_task(
                self._try(shop, shop.client, order), context=shop.process.context.copy()
            )
            wait = 0.0
            while not submission.done() and order.key not in self.acks and wait < 3.0:
                await asyncio.sleep(_MOMENT)
                wait += _MOMENT
            if order.key in self.errors:
                raise self.errors[order.key]
        return self.acks[order.key]

    async def _try(self, door: FleetMember, client: Client, order: Order) -> None:
        try:
            await self.ask(door, client, order)
        except Exception as wrong:  # noqa: BLE001 - it belongs to the test, which waits elsewhere
            self.errors[order.key] = wrong


class Stage(simulated.SimulatedWorld):
    """A simulated world in which a script is played."""

    services: dict[str, FakeService]

    def __init__(
        self,
        seed: int,
        script: Script,
        *,
        swarm: Swarm,
        plan: Plan | None = None,
        grounds: Grounds | None = None,
    ) -> None:
        super().__init__(seed, app=App("unknown"), swarm=swarm, plan=plan, grounds=grounds)
        self.apps: dict[Workflow[..., Any], App] = {}
        self.shoppers = self.customers = Shoppers(self)
        self.error: BaseException | None = None
        """What the script ended with."""
        self.is_exposed = False
        """Whether faults may strike."""
        self.began: float | None = None
        """When the first task was submitted."""
        self.over = 0.0
        """When the script ended, leaps aside."""
        self.eye: Eye | None = None
        self.services = {}
        self.longest = _HOUR
        self.leapt = 0.0
        """Virtual seconds that have passed in leaps."""
        self.leaps = 0
        self.attempts = ATTEMPTS
        self.pile_up: StepCalls | None = None
        """The step with too many ``attempts``, for which the world was given up."""
        self.busiest_step: StepCalls | None = None
        """The step with the most attempts."""
        self.failure: Failed | None = None
        """A task that did not succeed because of an action."""
        self.coverage: dict[tuple[str, str, str], int] = {}
        """How far undos and probes came: see ``Eye.coverage``."""
        self.ends = ""
        """How all tasks ended, in words."""
        self.answers: dict[str, Callable[[Listening], Awaitable[bool]]] = {}
        """What is sent to steps that wait, by the name of the signal; False: nothing yet."""
        self._position = 0
        self._given_up: asyncio.Future[None] | None = None
        self._script = script
        self._storm: asyncio.Task[None] | None = None
        self._answering: asyncio.Task[None] | None = None
        self._ticker: asyncio.TimerHandle | None = None

    @property
    def look(self) -> float:
        """Seconds between two checks of the world: longer where everything takes long."""
        return max(0.25, self.swarm.engine.number("heartbeat") / 2)

    @property
    def duration(self) -> float:
        """Virtual seconds from the first submission to the end of the script, without leaps and what lies
        between each and the next due moment.
        """
        return max(0.0, self.over - (self.began or 0.0) - self.leaps * lead(self.swarm.engine))

    def _add(self, name: str, roles: tuple[str, ...]) -> None:
        """Name a process after its role if it has only one."""
        prefix = roles[0] if len(roles) == 1 else "node" if roles else name
        count = sum(member.partition("-")[0] == prefix for member in self.members)
        super()._add(f"{prefix}-{count + 1}" if count else prefix, roles)

    async def _live(self, eye: Eye) -> None:
        self.eye = eye
        self._given_up = self.loop.create_future()
        life = self.loop.create_task(self._whole())
        await asyncio.wait({life, self._given_up}, return_when=asyncio.FIRST_COMPLETED)
        self.busiest_step, self.failure = eye.most_asked(), eye.first_failure()
        self.coverage = eye.coverage(self.history.events)
        self.ends = self.describe_tasks()
        if life.done():
            life.result()
            self._look_outside()
        else:
            life.cancel()
            self.is_exposed, self.pile_up = False, self.busiest_step
        self.history.note("rest", **eye.rest())

    def strike(self, name: str, able: tuple[str, ...], process: SimulatedProcess | None = None) -> str | None:
        """See ``World``. Gives the world up if the attempts of a step pile up."""
        events = self.history.events
        if len(events) > self._position:
            new, self._position = events[self._position :], len(events)
            if any(event.kind == "sent" and event["attempt"] >= self.attempts for event in new):
                assert self._given_up is not None
                if not self._given_up.done():
                    self._given_up.set_result(None)
        return super().strike(name, able, process)

    async def _whole(self) -> None:
        """Play the script, and wait until all that it started has settled."""
        script_task = self.loop.create_task(self._play())
        while not script_task.done() and (left := 2 * DAY + self.longest + self.leapt - self.loop.now) > 0:
            await asyncio.wait({script_task}, timeout=left)
        if not script_task.done():
            script_task.cancel()
            self.error = NotAtRestError(
                f"the test did not end within {self.loop.now / DAY:.0f} days of virtual time: it waits for something that never comes (there is no network "
                "and no file to wait for in this world: give your actions a fake)"
            )
        self.is_exposed = False
        self.over = self.loop.now - self.leapt
        if self._storm is not None:
            await self._end_storm()
        if self.began is not None:
            self.heal()
            try:
                await self.to_rest()
            except Exception as error:  # noqa: BLE001 - an answer of the test may raise anything
                self.error = self.error or error
        if self._answering is not None:
            self._answering.cancel()

    def on_wait(self, signal: str, send: Callable[[Listening], Awaitable[bool]]) -> None:
        """Let ``send`` be called for each step that waits for a signal."""
        self.answers[signal] = send
        if self._answering is None:
            self._answering = self.loop.create_task(self.answer())

    async def _play(self) -> None:
        try:
            await self._script(self)
        except Exception as error:  # noqa: BLE001 - it is the test's verdict
            self.error = error
        except BaseException as error:  # pytest.skip and pytest.fail are of this kind.
            if isinstance(error, asyncio.CancelledError | GeneratorExit):
                raise
            self.error = error

    def _look_outside(self) -> None:
        """Fail a test whose actions used something that no world offers: it proves nothing, whatever became
        of the error. The test itself may catch it.
        """
        if self.error is None or isinstance(self.error, Exception):
            self.error = next(iter(self.loop.refusals), self.error)

    async def begin(self, workflow: Workflow[..., Any]) -> None:
        """Start the processes with the app of the first task; without a storm, wait until they are ready."""
        app = self.apps.get(workflow)
        if app is None:
            app = self.apps[workflow] = app_of(workflow)
        if self.began is not None:
            if app is not self.app:
                raise ConfigError(
                    f"a world runs one app, this one {self.app.name}: submit tasks of {app.name} in a test of its own"
                )
            return
        self.began = self.loop.now
        self.app = app
        self.once = frozenset(
            f"{app.name}/{agent.name}"
            for agent in app.agents.values()
            if any(action.retry.never for action in agent.actions.values())
        )
        self.storming = self.faults.on = self.swarm.storm > 0
        # The test looks at its tasks, however long ago they ended.
        self.swarm = replace(self.swarm, engine=replace(self.swarm.engine, retention=None))
        for member in self.members.values():
            member.start()
        if self.storming:
            self._storm = self.loop.create_task(self._rage())
        else:
            while any(member.client is None for member in self.members.values()):  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(_MOMENT)
        self.is_exposed = True

    async def _rage(self) -> None:
        drivers = [self.loop.create_task(self._drive(kind, rate)) for kind, rate in self.swarm.rates.items()]
        try:
            await asyncio.sleep(self.swarm.storm)
        finally:
            for driver in drivers:
                driver.cancel()
        self.heal()

    async def _end_storm(self) -> None:
        storm, self._storm = self._storm, None
        if storm is not None and not storm.done():
            storm.cancel()
            await asyncio.wait({storm})

    async def run_to_rest(self) -> None:
        """Let the storm pass, if there is one, and wait until everything has settled."""
        if self.began is None:
            raise ConfigError("world.run_to_rest() before world.submit(...): there is nothing to wait for")
        if self._storm is not None:
            await asyncio.wait({self._storm})
            self._storm = None
        await self.to_rest()

    async def to_rest(self) -> None:
        """Wait until every task has ended, nothing is in flight, and no process is dead or stopped. Raises
        ``NotAtRestError``.
        """
        assert self.eye is not None
        end, waits = self.loop.now - self.leapt + self.longest, 0.0
        while not self._rests(self.eye):
            if self._answering is not None and self._answering.done():
                self._answering.result()  # raises what an answer of the test has raised
            remedy = self._remedy(self.eye)
            waits = waits + self.look if remedy else 0.0
            if waits > max(_IN_VAIN, self.look):
                raise NotAtRestError(f"nothing will happen any more: {self.describe_tasks()}. {remedy}")
            if self.loop.now - self.leapt >= end:
                raise NotAtRestError(
                    f"not at rest after {self.longest:.0f} virtual seconds of waiting: {self.eye.rest()}; {self.describe_tasks()}"
                )
            await self.advance(self.look, leaping=0.0 if remedy else math.inf)

    async def advance(self, span: float, *, leaping: float = 0.0) -> None:
        """Let ``span`` seconds pass, or up to ``leaping`` if nothing happens in them."""
        end = self.loop.now + span
        while (left := end - self.loop.now) > 0:
            most = max(left, leaping)
            leapt = 0.0 if self.eye is None else leap(self, self.eye, most, ticker=self._ticker)
            self.leapt += leapt
            self.leaps += leapt > 0
            if not leapt:
                await asyncio.sleep(left if self.began is None else min(left, self.look))

    def _remedy(self, eye: Eye) -> str:
        """Return what the test can do if all tasks that have not ended wait for signals that nobody sends,
        without a limit, or are queued for lanes that only the test can free; "" if something else moves them.
        """
        lone = {each.task: each for each in eye.listening() if each.is_lone}
        under_way = {n: task for n, task in eye.tasks().items() if task.state not in AT_REST}
        is_stuck = all(n in lone or task.state == "queued" for n, task in under_way.items())
        if not is_stuck or any(each.signal in self.answers for each in lone.values()):
            return ""
        if lone:
            return _SEND
        return _RELEASE if under_way and eye.blocked_tasks() else ""

    async def answer(self) -> None:
        """Send each step that waits for a signal of ``answers`` what is said there, once in each round."""
        assert self.eye is not None
        keys: set[tuple[int, str, int]] = set()
        count, pause, is_unsent = 0, _MOMENT, True
        while True:
            new, count = self.history.events[count:], len(self.history.events)
            if any(event.task for event in new):
                pause, is_unsent = _MOMENT, True
            if is_unsent:  # a step begins to wait by a commit
                is_unsent = False
                for each in self.eye.listening():
                    send = self.answers.get(each.signal)
                    if send is None or each[:3] in keys:
                        continue
                    if await send(each):
                        keys.add(each[:3])
                    else:
                        is_unsent = True
            tick = self.loop.create_future()
            self._ticker = self.loop.call_later(pause, tick.set_result, None)
            await tick
            pause = min(pause * 1.05, self.look)

    def _rests(self, eye: Eye) -> bool:
        return (
            all(m.up and not m.process.is_stopped for m in self.members.values())
            and self.calls_have_landed()
            and eye.at_rest()
        )

    def describe_tasks(self) -> str:
        """Return the current state of all tasks, as text."""
        tasks = self.eye.tasks().items() if self.eye is not None else ()
        listening = self.eye.listening() if self.eye is not None else ()
        waits = {each.task: f", and waits for {each.signal}, a signal" for each in listening}
        for each in self.eye.blocked_tasks() if self.eye is not None else ():
            waits[each.task] = f", and waits for lane {each.lane}, which {show(each.holder)} holds"
        lines = [
            f"task {show(task)} is {task_at_rest.state}{task_at_rest.cause and f' ({task_at_rest.cause})'}{waits.get(task, '')}"
            for task, task_at_rest in tasks
        ]
        return "; ".join(lines) or "there is no task"

    def task_at_rest(self, task: int) -> TaskAtRest:
        """Return a task as it is in the store now."""
        assert self.eye is not None
        return self.eye.tasks().get(task, _UNKNOWN)

    def of_role(self, role: str) -> list[FleetMember]:
        """Return the processes with this role or this name. Raises ``ConfigError``."""
        members = [m for m in self.members.values() if role in m.roles or m.name == role]
        if not members:
            roles = sorted({r for m in self.members.values() for r in m.roles})
            question = did_you_mean(role, [*roles, *self.members])
            raise ConfigError(
                f"there is no {role!r} in this world: its roles are {', '.join(roles)}{question and ': '}{question}"
            )
        if self.began is None:
            raise ConfigError(f"no {role} runs yet: the processes start with the first world.submit(...)")
        return members

    def kill_role(self, role: str) -> None:
        """Kill the first living process of a role; it restarts a while later."""
        for member in self.of_role(role):
            if member.up:
                incarnation = member.incarnation
                self.kill(member.name, "by the test")
                self.loop.call_later(1.0 + self.draw() * 5.0, self._restart, member, incarnation)
                return

    def stop_role(self, role: str, length: float) -> None:
        """Stop the first running process of a role."""
        for member in self.of_role(role):
            if member.up and not member.process.is_stopped:
                self.stop(member.name, length, "by the test")
                return

    def resume_role(self, role: str) -> None:
        """Resume the stopped processes of a role."""
        for member in self.of_role(role):
            if member.up:
                self._resume(member.process)

    async def in_office(self, act: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Return what ``act`` returns when an operator runs it with a client, in a process that no fault
        strikes.
        """
        if self.began is None:
            raise ConfigError("nothing was submitted yet: world.submit(...) comes first")
        member = self.members["operator"]
        while True:
            if member.client is None:
                await asyncio.sleep(_MOMENT)
                continue
            try:
                return await self.loop.create_task(act(member.client), context=member.process.context.copy())
            except StoreUnavailableError:
                await asyncio.sleep(_MOMENT * 10)


def app_of(workflow: Workflow[..., Any]) -> App:
    """Return the app that a workflow was declared on. A workflow does not know it, so this searches all
    living apps.

    It reads the type of every object and never calls `isinstance`, which wakes lazy objects such as Django's
    settings.
    """
    for candidate in gc.get_objects():
        if issubclass(type(candidate), App):
            app: App = candidate
            if app.workflows.get(workflow.name) is workflow:
                return app
    raise DefinitionError(
        f"the app of {workflow!r} is gone: keep it in a variable for as long as the test runs"
    )
