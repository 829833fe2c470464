"""The stage of a user's test: a simulated world of the engine in which the test is one more coroutine.

The test belongs to the world: no fault strikes it. The user's actions belong to the simulated processes: they are killed in
their middle. Processes start with the first submission; when the test is over, everything heals and must come to rest.
"""

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

from makegood.base.ids import show
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.errors import ConfigError, DefinitionError, StoreUnavailableError
from makegood.testing.kit.services import FakeService
from makegood.testing.simulator import world as simulated
from makegood.testing.simulator.customers import Customers
from makegood.testing.simulator.did_you_mean import meant
from makegood.testing.simulator.faults import Plan
from makegood.testing.simulator.loop import SimulatedProcess
from makegood.testing.simulator.members import FleetMember
from makegood.testing.simulator.quiescence import Eye, Failed, StepCalls, TaskAtRest
from makegood.testing.simulator.storm import Order
from makegood.testing.simulator.swarm import Swarm
from makegood.testing.simulator.world_files import Grounds
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow

Script = Callable[["Stage"], Awaitable[object]]
"""A user's test, ready to be played on a stage."""

DAY: Final = 86_400.0
ATTEMPTS: Final = 10_000
"""Attempts of one step in one world, after which the world is given up: ``attempts=`` of the decorators."""
_HOUR: Final = 3_600.0
_MOMENT: Final = 0.05
_UNKNOWN: Final = TaskAtRest("unknown", "")
_MAKEGOOD: Final = Path(__file__).resolve().parents[1]


class NotAtRestError(AssertionError):
    """What was submitted did not come to rest in time, or the test waits for what never comes."""


class Shoppers(Customers):
    """Submits what the test submits, again under the same key until it was told. ``failed``: why a submission cannot succeed."""

    def __init__(self, stage: "Stage") -> None:
        super().__init__(stage, ())
        self._stage = stage
        self.failed: dict[str, Exception] = {}

    async def place(self, order: Order) -> int:
        """Return the task of an order. Raises what its plan or the client says against it."""
        order.workflow.plan(*order.inputs)
        while order.key not in self.told:
            door = self._door()
            if door is None or door.client is None:
                await asyncio.sleep(_MOMENT)
                continue
            asked = self._stage.loop.create_task(
                self._try(door, door.client, order), context=door.process.context.copy()
            )
            waited = 0.0
            while not asked.done() and order.key not in self.told and waited < 3.0:
                await asyncio.sleep(_MOMENT)
                waited += _MOMENT
            if order.key in self.failed:
                raise self.failed[order.key]
        return self.told[order.key]

    def _door(self) -> FleetMember | None:
        """Submit as a shop does, by a process of its own."""
        shop = self._stage.members["shop"]
        return shop if shop.up and shop.client is not None else None

    async def _try(self, door: FleetMember, client: Client, order: Order) -> None:
        try:
            await self._ask(door, client, order)
        except Exception as wrong:  # noqa: BLE001 - it belongs to the test, which waits elsewhere
            self.failed[order.key] = wrong

    async def _wait(self, door: FleetMember, handle: TaskHandle[Any]) -> None:
        """The test itself waits, with ``settle``: a client that looks every second would make hours long."""


class Stage(simulated.SimulatedWorld):
    """A simulated world in which a script is played. ``raised``: what the script ended with; ``exposed``: whether faults may strike.

    ``began``: when the first task was submitted; ``over``: when the script had ended; ``asked``: the step that was asked most often;
    ``failed``: a task that did not succeed because of an action; ``undone``: whether the undo of each action was asked for; ``ends``: how all tasks
    are in the end, in words.
    ``piled``: the step that was asked most often, when the world was given up because of it: after so many ``attempts`` it does not come to an end.
    """

    def __init__(
        self,
        seed: int,
        script: Script,
        *,
        swarm: Swarm,
        plan: Plan | None = None,
        grounds: Grounds | None = None,
    ) -> None:
        super().__init__(seed, app=App("unknown"), orders=_no_orders, swarm=swarm, plan=plan, grounds=grounds)
        self.apps: dict[Workflow[..., Any], App] = {}
        self.shoppers = self.customers = Shoppers(self)
        self.raised: BaseException | None = None
        self.exposed = False
        self.began: float | None = None
        self.over = 0.0
        self.eye: Eye | None = None
        self.fakes: dict[str, FakeService] = {}
        self.longest = _HOUR
        self.attempts = ATTEMPTS
        self.piled: StepCalls | None = None
        self.asked: StepCalls | None = None
        self.failed: Failed | None = None
        self.undone: dict[tuple[str, str], bool] = {}
        self.ends = ""
        self._looked = 0
        self._given_up: asyncio.Future[None] | None = None
        self._script = script
        self._storm: asyncio.Task[None] | None = None

    @property
    def look(self) -> float:
        """How often the world is looked at, in seconds: more seldom where everything takes long."""
        return max(0.25, self.swarm.engine.number("heartbeat") / 2)

    def _add(self, name: str, roles: tuple[str, ...]) -> None:
        """Call a process by its role, if it has but one."""
        called = roles[0] if len(roles) == 1 else "node" if roles else name
        same = sum(member.partition("-")[0] == called for member in self.members)
        super()._add(f"{called}-{same + 1}" if same else called, roles)

    async def _live(self, eye: Eye) -> None:
        self.eye = eye
        self._given_up = self.loop.create_future()
        life = self.loop.create_task(self._whole())
        await asyncio.wait({life, self._given_up}, return_when=asyncio.FIRST_COMPLETED)
        self.asked, self.failed, self.undone = eye.most_asked(), eye.failed(), eye.undone()
        self.ends = self.said_of_tasks()
        if life.done():
            life.result()
            self._look_outside()
        else:
            life.cancel()
            self.exposed, self.piled = False, self.asked
        self.history.note("rest", **eye.rest())

    def strike(self, name: str, able: tuple[str, ...], process: SimulatedProcess | None = None) -> str | None:
        """See ``World``; and give the world up when the attempts of a step have piled up."""
        events = self.history.events
        if len(events) > self._looked:
            new, self._looked = events[self._looked :], len(events)
            if any(event.kind == "sent" and event["attempt"] >= self.attempts for event in new):
                assert self._given_up is not None
                if not self._given_up.done():
                    self._given_up.set_result(None)
        return super().strike(name, able, process)

    async def _whole(self) -> None:
        """Play the script, and wait until what it began is at rest."""
        played = self.loop.create_task(self._play())
        await asyncio.wait({played}, timeout=2 * DAY)
        if not played.done():
            played.cancel()
            self.raised = NotAtRestError(
                "the test did not end within two days of virtual time: it waits for something that never comes (there is no network "
                "and no file to wait for in this world: give your actions a fake)"
            )
        self.exposed = False
        self.over = self.loop.now
        if self._storm is not None:
            await self._end_storm()
        if self.began is not None:
            self.heal()
            try:
                await self.to_rest()
            except NotAtRestError as stuck:
                self.raised = self.raised or stuck

    async def _play(self) -> None:
        try:
            await self._script(self)
        except Exception as raised:  # noqa: BLE001 - it is the test's verdict
            self.raised = raised
        except BaseException as raised:  # pytest.skip and pytest.fail are of this kind
            if isinstance(raised, asyncio.CancelledError | GeneratorExit):
                raise
            self.raised = raised

    def _look_outside(self) -> None:
        """Let the test fail whose code asked for what no world has and let that through: whatever the workflow made of it, it proves nothing."""
        if self.raised is None or isinstance(self.raised, Exception):
            self.raised = next(filter(_let_through, self.loop.refused), self.raised)

    async def begin(self, workflow: Workflow[..., Any]) -> None:
        """Start the processes, with the app that the first task is of; in a world without a storm, wait until they are ready."""
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
        for member in self.members.values():
            member.start()
        if self.storming:
            self._storm = self.loop.create_task(self._rage())
        else:
            while any(member.client is None for member in self.members.values()):  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(_MOMENT)
        self.exposed = True

    async def _rage(self) -> None:
        drivers = [self.loop.create_task(self._drive(kind, rate)) for kind, rate in self.swarm.driven.items()]
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

    async def settle(self) -> None:
        """Let the storm pass, if there is one, and wait until everything is at rest."""
        if self.began is None:
            raise ConfigError("world.settle() before world.submit(...): there is nothing to wait for")
        if self._storm is not None:
            await asyncio.wait({self._storm})
            self._storm = None
        await self.to_rest()

    async def to_rest(self) -> None:
        """Wait until every task has ended, nothing is in flight, and nobody is dead or stopped. Raises ``NotAtRestError``."""
        assert self.eye is not None
        end = self.loop.now + self.longest
        while not self._rests(self.eye):
            if self.loop.now >= end:
                raise NotAtRestError(
                    f"not at rest {self.longest:.0f} virtual seconds after the last fault: {self.eye.rest()}; {self.said_of_tasks()}"
                )
            await asyncio.sleep(self.look)

    def _rests(self, eye: Eye) -> bool:
        return (
            all(m.up and not m.process.stopped for m in self.members.values())
            and self._calls_have_landed()
            and eye.at_rest()
        )

    def said_of_tasks(self) -> str:
        """Return how all tasks are now."""
        tasks = self.eye.tasks().items() if self.eye is not None else ()
        told = [
            f"task {show(task)} is {found.state}{found.cause and f' ({found.cause})'}"
            for task, found in tasks
        ]
        return "; ".join(told) or "there is no task"

    def found(self, task: int) -> TaskAtRest:
        """Return a task as the store has it now."""
        assert self.eye is not None
        return self.eye.tasks().get(task, _UNKNOWN)

    def of_role(self, role: str) -> list[FleetMember]:
        """Return the processes that have a role, or the one of this name. Raises ``ConfigError``."""
        found = [m for m in self.members.values() if role in m.roles or m.name == role]
        if not found:
            roles = sorted({r for m in self.members.values() for r in m.roles})
            question = meant(role, [*roles, *self.members])
            raise ConfigError(
                f"there is no {role!r} in this world: its roles are {', '.join(roles)}{question and ': '}{question}"
            )
        if self.began is None:
            raise ConfigError(f"no {role} runs yet: the processes start with the first world.submit(...)")
        return found

    def kill_role(self, role: str) -> None:
        """Kill the first living process of a role; it is started again a while later."""
        for member in self.of_role(role):
            if member.up:
                incarnation = member.incarnation
                self.kill(member.name, "by the test")
                self.loop.call_later(1.0 + self.draw() * 5.0, self._restart, member, incarnation)
                return

    def stop_role(self, role: str, length: float) -> None:
        """Stop the first running process of a role."""
        for member in self.of_role(role):
            if member.up and not member.process.stopped:
                self.stop(member.name, length, "by the test")
                return

    def resume_role(self, role: str) -> None:
        """Let the stopped processes of a role go on."""
        for member in self.of_role(role):
            if member.up:
                self._resume(member.process)

    async def in_office(self, act: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        """Return what an operator gets who does this with his client, in a process that no fault strikes."""
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


def _let_through(refused: Exception) -> bool:
    """Return whether makegood itself was the last to catch this: none of the user's code did."""
    caught = refused.__traceback__
    return caught is not None and Path(caught.tb_frame.f_code.co_filename).resolve().is_relative_to(_MAKEGOOD)


def _no_orders(_app: App, _rng: random.Random, _count: int) -> Sequence[Order]:
    return ()


def app_of(workflow: Workflow[..., Any]) -> App:
    """Return the app that a workflow was declared on. A workflow does not know it, so it is looked for among all living apps.

    Every object is looked at, so none is asked what it is: `isinstance` wakes the lazy ones, such as Django's settings.
    """
    for one in gc.get_objects():
        if issubclass(type(one), App):
            app: App = one
            if app.workflows.get(workflow.name) is workflow:
                return app
    raise DefinitionError(
        f"the app of {workflow!r} is gone: keep it in a variable for as long as the test runs"
    )
