"""The worlds in which mutants must die: swarms, and what else a world has to bear."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from makegood.errors import Permanent, StoreUnavailableError
from makegood.model.states import TaskState
from makegood.options import Options
from makegood.store.views import Filter
from makegood.testing.simulator.faults import Faults
from makegood.testing.simulator.members import FleetMember
from makegood.testing.simulator.world import Outcome
from proofs.storms.services import Kind, StormService
from proofs.storms.shop import SERVICES_OF_STORM
from proofs.storms.swarm import StormSwarm
from proofs.storms.world import StormWorld

Twist = Callable[[StormWorld], None]
"""Gives a world, the mutant's and its twin's, something more to bear."""

EVERY = (("scheduler", "agent", "supervisor"), ("scheduler", "agent", "supervisor"))
APART = (("scheduler",), ("scheduler",), ("agent",), ("agent",), ("supervisor",))
SCHEDULERS = (("scheduler", "agent"), ("scheduler", "agent"), ("scheduler",), ("supervisor",))
SUPERVISORS = (("scheduler", "agent"), ("scheduler", "agent"), ("supervisor",), ("supervisor",))
QUICK = Options(
    heartbeat=1.0,
    dead_after=3.0,
    supervise_every=1.0,
    lease=5.0,
    late_after=0.5,
    starved_after=30.0,
    poll_every=1.0,
)
SLOW = Options(
    heartbeat=1.0,
    dead_after=3.0,
    supervise_every=5.0,
    lease=5.0,
    late_after=2.0,
    starved_after=30.0,
    poll_every=1.0,
)
EAGER = Options(
    heartbeat=1.0,
    dead_after=3.0,
    supervise_every=1.0,
    lease=5.0,
    late_after=0.0,
    starved_after=30.0,
    poll_every=1.0,
)

SLOW_SERVICES = {"service late": 0.3, "service does it and times out": 0.2, "service hangs": 0.05}
BAD_SERVICES = {**SLOW_SERVICES, "service called twice": 0.2, "service fails": 0.1, "service refuses": 0.05}
LOST = {"drop": 0.1, "duplicate": 0.2, "delay": 0.2}
FAULTS_OF_ALL_KINDS = StormSwarm(
    layout=EVERY,
    tasks=4,
    storm=15.0,
    points={"kill": 0.002, "stop": 0.001},
    messages=LOST,
    services=BAD_SERVICES,
    pace=0.2,
    engine=QUICK,
    calm_down=200.0,
)
"""Everything a little; most mutants die of something special. A sound world comes to rest long before 200 s; one that never does costs
more CPU than all its storm.
"""
UNDOING = replace(
    FAULTS_OF_ALL_KINDS,
    tasks=6,
    services={**BAD_SERVICES, "service refuses": 0.2},
    rates={"operator": 2.0},
    pace=1.0,
)
"""Many tasks that are undone, for all reasons there are."""
DOUBTFUL = replace(
    FAULTS_OF_ALL_KINDS,
    tasks=6,
    services={"service late": 0.5, "service hangs": 0.1},
    rates={"operator": 3.0},
)
"""Calls arrive long after their callers have given up, while an operator cancels."""


BARE: Mapping[str, Kind] = dict.fromkeys(SERVICES_OF_STORM, "bare")


KEYS_ALONE: Mapping[str, Kind] = {
    name: "keyed" if kind == "fenced" else kind for name, kind in SERVICES_OF_STORM.items()
}


# -- what worlds have to bear beside their swarm ---


class _Aimed(Faults):
    """Faults of which one kind strikes often at the points of one name."""

    name = ""
    kind = ""
    share = 0.0

    def strikes(self, name: str, process: str, able: tuple[str, ...]) -> str | None:
        """Strike as aimed, otherwise as chance has it."""
        kind = super().strikes(name, process, able)
        hit = self.on and self.kind in able and name.startswith(self.name) and self.rng.random() < self.share
        return self.kind if hit else kind


def aimed(kind: str, name: str, share: float) -> Twist:
    """Let a kind of fault strike at this share of the points whose name begins so."""

    def twist(world: StormWorld) -> None:
        faults = _Aimed(world.faults.rng, world.faults.strengths)
        faults.kind, faults.name, faults.share = kind, name, share
        world.faults = faults

    return twist


class _Gate(StormService):
    """A service with a gate in front: what the gate refuses never reaches the books, nor says anything of earlier calls. A call
    that the network delivers twice is refused twice: a refusal whose copy is let in would have been no refusal.
    """

    def __init__(self, world: StormWorld, name: str) -> None:
        super().__init__(world, name, kind="fenced")
        self.turned_away: set[int] = set()

    def carry_out(self, request: Any) -> Any:
        """Refuse at the gate, or do what arrived."""
        if request.doing == "do" and (request.call in self.turned_away or self.world.draw() < 0.3):
            self.turned_away.add(request.call)
            return Permanent(f"{self.name}: not today")
        return super().carry_out(request)


def gated(world: StormWorld) -> None:
    """Put a gate in front of the services that honour key and token."""
    for name, service in world.services.items():
        if service.kind == "fenced":
            world.services[name] = _Gate(world, name)


class _Distant(StormService):
    """A service to which most actions travel long; its probes and undos are quick."""

    def _send(self, request: Any, delay: float) -> None:
        far = request.doing == "do" and self.world.draw() < 0.8
        super()._send(request, 4.0 + self.world.draw() * 26.0 if far else delay)


def distant(world: StormWorld) -> None:
    """Let most actions arrive when nobody waits for them any more."""
    for name, service in world.services.items():
        world.services[name] = _Distant(world, name, kind=service.kind)


def distant_carrier(world: StormWorld) -> None:
    """The same of one service alone."""
    world.services["carrier"] = _Distant(world, "carrier", kind="fenced")


class _Stubborn(StormService):
    """A service that often says of an undo that it cannot be done, as long as the storm lasts."""

    def _undo(self, request: Any, entry: Any) -> Any:
        if self.world.storming and self.world.draw() < 0.5:  # type: ignore[attr-defined]  # it is a World
            self._note(request, 0, "refused")
            return Permanent(f"{self.name}: cannot be taken back")
        return super()._undo(request, entry)


def obstinate(world: StormWorld) -> None:
    """Let undos fail."""
    for name, service in world.services.items():
        world.services[name] = _Stubborn(world, name, kind=service.kind)


def stubborn(world: StormWorld) -> None:
    """Let undos fail, and the operator send what is stuck forward again."""
    obstinate(world)
    resubmitting(world)


def impatient(world: StormWorld) -> None:
    """Let customers lose patience within milliseconds, while their order is being written."""
    submit, rng = world.customers._submit, random.Random(f"{world.seed} impatience")

    async def briefly(*args: Any) -> None:
        try:
            async with asyncio.timeout(rng.uniform(0.0, 0.01) if rng.random() < 0.5 else None):
                await submit(*args)
        except TimeoutError:
            return

    world.customers._submit = briefly  # type: ignore[method-assign, assignment]  # of this one world


def resubmitting(world: StormWorld) -> None:
    """Let the operator do nothing but send tasks in error forward again, whatever is in doubt."""
    _do_nothing_but(world, {"error": "resubmit"})


def too_late(world: StormWorld) -> None:
    """Let the operator do nothing but cancel what has ended."""
    _do_nothing_but(world, {"processed": "cancel", "undone": "cancel"})


def _do_nothing_but(world: StormWorld, acts: Mapping[TaskState, str]) -> None:
    """Let the operator do the same to every task in one of these states."""
    operator = world.operator

    async def the_same(client: Any, *_: Any) -> None:
        with suppress(StoreUnavailableError):
            for view in await client.find(Filter(states=tuple(acts), limit=10)):
                await operator._do(client.task(view.id), acts[view.state])

    operator._one = the_same  # type: ignore[method-assign, assignment]  # of this one world


class _Sluggish(StormService):
    """A service to which many undos travel long."""

    def _send(self, request: Any, delay: float) -> None:
        far = request.doing == "undo" and self.world.draw() < 0.4
        super()._send(request, 3.0 + self.world.draw() * 15.0 if far else delay)


def sluggish(world: StormWorld) -> None:
    """Let many undos arrive late."""
    for name, service in world.services.items():
        world.services[name] = _Sluggish(world, name, kind=service.kind)


def wavering(world: StormWorld) -> None:
    """Let many undos arrive late, and the operator undo what is processed and send forward what is undone."""
    sluggish(world)
    _do_nothing_but(world, {"processed": "undo", "undone": "resubmit", "error": "undo"})


def approving(world: StormWorld) -> None:
    """Let all tasks wait for a signal without a timeout, after a quick step; it is sent about when they begin to wait."""
    customers, approval = world.customers, world.app._find_workflow("approval")
    rng = random.Random(f"{world.seed} approvals")
    customers._orders = [order._replace(workflow=approval, inputs=("oo",)) for order in customers._orders]
    order_ = customers._order

    async def approved(order: Any, at: float) -> None:
        signal = asyncio.ensure_future(sent_later(order, at))
        await order_(order, at)
        await signal

    async def sent_later(order: Any, at: float) -> None:
        await asyncio.sleep(at + rng.choice((2.0, 5.0)) * rng.random())
        await customers._signal_all(order._replace(signals=1), random.Random(rng.random()))

    async def at_once(*_: Any) -> None:
        """Send it now."""

    customers._order = approved  # type: ignore[method-assign]  # of this one world
    customers._nearly_too_late = at_once  # type: ignore[assignment, method-assign]  # of this one world


def approving_beside(world: StormWorld, *, is_held: bool = True) -> None:
    """Let signals be sent where a Scheduler holds the task, some twice, and some right after one that another process sent.

    ``is_held``: False to send them where a Scheduler does not hold it.
    """
    customers, members = world.customers, world.members.values()

    async def send(door: FleetMember, order: Any, id_: str) -> None:
        assert door.client is not None
        answer = asyncio.Event()
        sending = customers._signal(door, door.client, order, id_, answer, by_key=False)
        world.loop.create_task(sending, context=door.process.context.copy())
        with suppress(TimeoutError):
            await asyncio.wait_for(answer.wait(), 3.0)

    async def signal_all(order: Any, rng: random.Random) -> None:
        for n in range(60):
            await asyncio.sleep(rng.random())
            doors = [door for door in members if door.up and door.client is not None]
            for door in doors:
                near = door.client and door.client._opened_store.near
                if near and near.holds(customers.acks.get(order.key, 0)) == is_held:
                    if rng.random() < 0.3:
                        await send(rng.choice(doors), order, f"before-{n}")
                    for _ in range(rng.choice((1, 2))):
                        await send(door, order, f"beside-{n - rng.choice((0, 0, 0, 1))}")

    customers._signal_all = signal_all  # type: ignore[method-assign]  # of this one world


def called_after_complete_by(outcome: Outcome) -> list[str]:
    """Return the calls of actions that began after their complete-by in true time, which no agent knows."""
    within = {"reserve": 4.0, "charge": 3.0}
    starts = {
        (event.task, event["idx"], event["attempt"]): event.at
        for event in outcome.history.of("taken")
        if event["doing"] == "do"
    }
    names = {
        (event.task, n): name.partition(".")[0]
        for event in outcome.history.of("submitted")
        for n, name in enumerate(event["steps"])
    }
    began = {
        (task, idx, attempt, names[task, idx]): at
        for (task, idx, attempt), at in starts.items()
        if (task, idx) in names
    }
    late: list[str] = []
    for event in outcome.history.of("call"):
        for (task, _, attempt, name), at in began.items():
            same = event.task == task and event["attempt"] == attempt and event["doing"] == "do"
            if same and event["step"] == name and event.at > at + within[name] + 0.01:
                late.append(f"I11: {name} was called at {event.at:.3f} s, taken at {at:.3f} s")
    return late
