"""A world: the real engine and the real SQLite store in one thread, on virtual time, from one seed.

Its life has phases: *draw* the options, *start* the processes, *submit*, *faults* for a while, *heal* (all faults off, clocks
agree, dead processes restarted, stopped ones resumed), *converge* within bounded virtual time, *rest*. What happened is in
``history``; what is wrong is in ``findings``.

    outcome = World(7, app=storm_app(), services=SERVICES_OF_STORM, orders=orders).run()
"""

import asyncio
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial

from makegood.node.signals import SAME
from makegood.testing.checker import Report, check
from makegood.testing.history import History
from makegood.testing.simulator import peers
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.consumers import Consumer
from makegood.testing.simulator.customers import Customers
from makegood.testing.simulator.faults import Faults, Plan
from makegood.testing.simulator.loop import DeadlockError, SimulatedProcess, WorldLoop, current_process
from makegood.testing.simulator.members import FleetMember
from makegood.testing.simulator.operator import RandomOperator
from makegood.testing.simulator.quiescence import Eye, TaskAtRest, WorldAtRest
from makegood.testing.simulator.recorder import Recorder
from makegood.testing.simulator.services import Kind, Service
from makegood.testing.simulator.stores import InlineLine, WorldBell
from makegood.testing.simulator.storm import Order
from makegood.testing.simulator.swarm import SPELLS, Swarm, draw
from makegood.testing.simulator.world_files import Grounds
from makegood.workflow.app import App

_LOOK = 0.5

Orders = Callable[[App, random.Random, int], Sequence[Order]]


@dataclass(slots=True)
class Outcome:
    """How a world ended. ``findings``: what is wrong, empty when all is well. ``ends``: tasks by their last state;
    ``faults``: what was injected, by kind; ``points``: fault points reached; ``virtual``: seconds; ``steps`` of the loop.
    """

    seed: int
    swarm: Swarm
    history: History
    findings: list[str]
    ends: dict[str, int]
    faults: dict[str, int]
    points: int
    virtual: float
    steps: int
    at_rest: dict[int, TaskAtRest] = field(default_factory=dict)
    report: Report = field(default_factory=Report)


def drawn(seed: int) -> Swarm:
    """Draw the options of a seed, and what lies around its engine."""
    return replace(draw(random.Random(f"{seed} swarm")), around=peers.draw(seed))


class SimulatedWorld:
    """One simulated world. ``seed`` decides everything; ``swarm``: its options, drawn from the seed when not given.

    ``app``: what the agents run; ``services``: name and kind of the remote services, which actions find with
    ``testing.services.service(name)``; ``once``: agents (APP/AGENT) whose requests are never repeated; ``orders``: draws what is
    submitted. ``plan``: what strikes at which fault point, instead of chance. ``grounds``: lends it
    the place of its store.
    """

    line: type[InlineLine] = InlineLine
    """What does the work of a store's threads."""

    def __init__(
        self,
        seed: int,
        *,
        app: App,
        orders: Orders,
        services: Mapping[str, Kind] | None = None,
        once: frozenset[str] = frozenset(),
        swarm: Swarm | None = None,
        plan: Plan | None = None,
        grounds: Grounds | None = None,
    ) -> None:
        self.seed = seed
        self.app = app
        self.once = once
        self.swarm = swarm or drawn(seed)
        self.rng = random.Random(f"{seed} chance")
        self.draw = self.rng.random
        self.loop = WorldLoop(random.Random(f"{seed} order"))
        self.history = History(lambda: self.loop.now)
        self.store_id = f"{seed:016x}"
        self.recorder = Recorder(self.history, self.store_id)
        strengths = {**self.swarm.points, **self.swarm.messages, **self.swarm.services}
        if self.swarm.around is not None:
            strengths |= self.swarm.around.faults
        self.faults = Faults(random.Random(f"{seed} faults"), strengths, plan)
        self.true_clock = SimulatedClock(lambda: self.loop.now)
        self.services = {name: Service(self, name, kind) for name, kind in (services or {}).items()}
        self.bells: list[WorldBell] = []
        self.crashes: list[str] = []
        self.storming = False
        self._seen: WorldAtRest | None = None
        self.members: dict[str, FleetMember] = {}
        self._outages: dict[str, float] = {}
        self._grounds = grounds or Grounds()
        self._ground = self._grounds.lend()
        self.path, self.files = self._ground.path, self._ground.files
        self.customers = Customers(self, orders(app, random.Random(f"{seed} orders"), self.swarm.tasks))
        self.operator = RandomOperator(self, random.Random(f"{seed} operator"))

    # -- a whole life --------------------------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Live from the first phase to the last, and return how it ended."""
        findings: list[str] = []
        eye: Eye | None = None
        try:
            self._prepare()
            eye = Eye(self.path, self.swarm.around)
            try:
                self.loop.run_until_complete(self._live(eye))
            except DeadlockError as stuck:
                findings.append(f"deadlock: {stuck}")
            seen = self._seen or WorldAtRest.by(eye, self)
            at_rest = seen.tasks
            findings += self.loop.broken + self.crashes + self.operator.findings + seen.findings
            self._seen = seen
            report = self._judged(eye)
            findings += [str(found) for found in report.violations]
            ends: dict[str, int] = {}
            for found in at_rest.values():
                ends[found.state] = ends.get(found.state, 0) + 1
            return Outcome(
                self.seed, self.swarm, self.history, findings, ends, dict(self.faults.counts), self.faults.number,
                self.loop.now, self.loop.steps, at_rest, report,
            )  # fmt: skip
        finally:
            if eye is not None:
                eye.close()
            self.close()

    def _judged(self, eye: Eye) -> Report:
        """Return what the checker says of the whole history."""
        return check(self.history, eye.final() if self._seen is None else self._seen.final)

    def close(self) -> None:
        """Throw the world away."""
        self.loop.dispose()
        for member in self.members.values():
            member.bury()
        self._grounds.take_back(self._ground)

    def _prepare(self) -> None:
        self._ground.lay(self.store_id)
        for n, roles in enumerate(self.swarm.layout, 1):
            self._add(f"n{n}", roles)
        if self.swarm.client_apart or not any("scheduler" in roles for roles in self.swarm.layout):
            self._add("shop", ())
        self._add("operator", ())
        if (surrounded := self.swarm.around) is not None:
            for n in range(surrounded.consumers):
                self._clocked(f"web{n + 1}", (), Consumer)
            for n in range(surrounded.inboxes if surrounded.sent else 0):
                self._add(f"in{n + 1}", ("inbox",))

    def _add(self, name: str, roles: tuple[str, ...]) -> None:
        self._clocked(name, roles, FleetMember)

    def _clocked(self, name: str, roles: tuple[str, ...], kind: type[FleetMember]) -> None:
        draw, swarm = self.draw, self.swarm
        clock = SimulatedClock(
            lambda: self.loop.now, drift=(draw() * 2 - 1) * swarm.drift, skew=(draw() * 2 - 1) * swarm.skew
        )
        self.members[name] = kind(self, name, roles, clock)

    async def _live(self, eye: Eye) -> None:
        self.storming = self.swarm.storm > 0
        self.faults.on = self.storming
        for member in self.members.values():
            member.start()
        customers = self.loop.create_task(self.customers.run(self.swarm.storm * 0.7))
        drivers = [self.loop.create_task(self._drive(kind, rate)) for kind, rate in self.swarm.driven.items()]
        await asyncio.sleep(self.swarm.storm)
        for driver in drivers:
            driver.cancel()
        await asyncio.gather(*drivers, return_exceptions=True)
        self.heal()
        await self._come_to_rest(eye, customers)
        customers.cancel()
        lost = [slots for member in self.members.values() for slots in member.slots_lost()]
        self.history.note("rest", **eye.rest(), slots_lost=lost)
        if self.swarm.around is not None and self.swarm.around.keep is not None:
            self._seen = WorldAtRest.by(eye, self)
            if leader := eye.leader():  # the janitor is beside it
                self._leave_to({leader})
            await asyncio.sleep(self.swarm.around.keep + 3 * peers.SWEEP)
            self.history.note("swept", overdue=eye.overdue())

    async def _come_to_rest(self, eye: Eye, customers: asyncio.Task[None]) -> None:
        """Wait until nothing is to be done any more, for so long as a world may take; the operator goes through what is in error."""
        tidied = 0
        end = self.loop.now + self.swarm.calm_down
        while self.loop.now < end:
            await asyncio.sleep(_LOOK)
            if not (customers.done() and self.operator.idle) or eye.busy():
                continue
            landed, told = self._calls_have_landed(), eye.all_are_told()
            if tidied < self.swarm.tidying and eye.in_error():
                if landed:  # what a service says stands can change no more
                    tidied += 1
                    self.operator.tidy()
            elif landed and told:
                return
            elif self.swarm.around is None:
                self._leave_to(set())
            elif leader := eye.leader():
                tell = () if told else (name for name, member in self.members.items() if member.tells)
                self._leave_to({leader, *tell})

    def _leave_to(self, names: set[str]) -> None:
        """Let all rest but these: to wait with all the others for what only these do costs more than the storm did, and shows nothing."""
        for member in self.members.values():
            if member.name not in names:
                member.process.stopped = True

    def heal(self) -> None:
        """End all faults: what is dead is restarted, what is stopped goes on, clocks agree, the store is there."""
        self.storming = self.faults.on = False
        self._outages.clear()
        for service in self.services.values():
            service.spell_ends = 0.0
        for member in self.members.values():
            member.clock.mend()
            if not member.up:
                member.start()
            elif member.process.stopped:
                self.loop.resume(member.process)
        self.history.note("healed")

    def _calls_have_landed(self) -> bool:
        return not any(count for each in self.services.values() for count in each.under_way.values())

    # -- what happens to processes -------------------------------------------------------------------------------------

    def kill(self, name: str, point: str = "") -> None:
        """Kill a process as SIGKILL does; in a storm it is restarted after a while."""
        member = self.members[name]
        if not member.up:
            return
        self._fault("kill", point, name)
        self._end(member)

    def _end(self, member: FleetMember) -> None:
        member.process.dead = True
        member.client = None
        self.loop.call_soon(member.bury, context=Context())
        if self.storming or self.faults.plan is not None:
            self.loop.call_later(
                0.1 + self.draw() * 6.0, self._restart, member, member.incarnation, context=Context()
            )

    def _restart(self, member: FleetMember, incarnation: int) -> None:
        if not member.up and member.incarnation == incarnation:
            self._fault("restart", "", member.name)
            member.start()

    def left(self, member: FleetMember) -> None:
        """Hear that a process has ended by itself."""
        if member.up:
            self._end(member)
            if not self.storming:
                self.loop.call_later(1.0, self._restart, member, member.incarnation, context=Context())

    def stop(self, name: str, seconds: float, point: str = "") -> None:
        """Stop a process as SIGSTOP does, and let it go on after so many seconds."""
        member = self.members[name]
        if member.up and not member.process.stopped:
            self._fault("stop", point, name)
            member.process.stopped = True
            self.loop.call_later(seconds, self._resume, member.process, context=Context())

    def _resume(self, process: SimulatedProcess) -> None:
        if process.stopped and not process.dead:
            self._fault("resume", "", process.name)
            self.loop.resume(process)

    def terminate(self, name: str) -> None:
        """Tell a process to end in good order, as SIGTERM does; in a storm it is started again.

        Told a second time it would end itself, and the simulator with it, by a signal of the true system: it is killed here instead.
        """
        member = self.members[name]
        process = member.process
        if process.told is not None:
            if self.loop.now - process.told > SAME:
                self.kill(name)
        elif member.up and self.loop.signal(process, signal.SIGTERM):
            process.told = self.loop.now
            self._fault("orderly stop", "", name)

    def away(self, process: SimulatedProcess) -> bool:
        """Whether the store cannot be reached by this process now."""
        return bool(self._outages) and self.loop.now < max(
            self._outages.get("", 0.0), self._outages.get(process.name, 0.0)
        )

    def outage(self, seconds: float, name: str = "") -> None:
        """Take the store away for so long, from one process or (by default) from all."""
        self._fault("store down", "outage", name)
        self._outages[name] = self.loop.now + seconds

    async def _drive(self, kind: str, rate: float) -> None:
        """Let one kind of thing happen now and then."""
        rng = random.Random(f"{self.seed} {kind}")
        while True:
            await asyncio.sleep(rng.expovariate(rate))
            if not self.faults.happens(kind):
                continue
            if kind in ("operator", "spell"):
                (self.operator.act if kind == "operator" else partial(self._spell, rng))()
                continue
            member = rng.choice([m for m in self.members.values() if m.name != "operator"])
            if kind == "kill":
                self.kill(member.name)
            elif kind == "stop":
                self.stop(member.name, _long(rng))
            elif kind == "orderly stop":
                self.terminate(member.name)
            elif kind == "outage":
                self.outage(_long(rng), rng.choice(("", member.name)))
            else:
                self._fault("clock jump", "", member.name)
                member.clock.jump(
                    rng.uniform(-1, 1) * self.swarm.skew, rng.choice((0.0, 0.0, 1.0, 5.0)) * rng.random()
                )

    def _spell(self, rng: random.Random) -> None:
        """Let one service be in trouble for a while, whoever calls."""
        if self.services:
            service = rng.choice(list(self.services.values()))
            service.spell = rng.choice(SPELLS)
            service.spell_ends = self.loop.now + _long(rng)
            self._fault(service.spell, f"{service.name} for a while", "")

    # -- what strikes --------------------------------------------------------------------------------------------------

    def _fault(self, what: str, point: str, name: str) -> None:
        self.faults.struck(what)
        self.history.note("fault", name, what=what, point=point)

    def strike(self, name: str, able: tuple[str, ...], process: SimulatedProcess | None = None) -> str | None:
        """Say that a fault point is reached; returns what struck there. The world's own code has none."""
        process = process or current_process()
        if process is None or process.name == "operator" or process.dead:
            return None
        struck = self.faults.strikes(name, process.name, able)
        if struck == "kill":
            self.kill(process.name, name)
        elif struck == "stop":
            self.stop(process.name, _long(self.rng), name)
        elif struck is not None:
            self._fault(struck, name, process.name)
        return struck

    async def point(self, name: str, *able: str) -> str | None:
        """The same where one can wait: never comes back in a process that was killed here."""
        struck = self.strike(name, able)
        if struck is not None:
            await self.bear(struck)
        return struck

    async def bear(self, struck: str) -> None:
        """Let happen to the calling process what struck it: never comes back in one that was killed."""
        if struck == "kill":
            await self.loop.create_future()
        elif struck == "stop":
            await asyncio.sleep(0)

    def message(self, what: str, able: tuple[str, ...]) -> str | None:
        """Say what happens to a message."""
        return self.strike(what, able)

    def lateness(self) -> float:
        """Return for how many seconds a reply that is slow is under way."""
        drawn = self.draw()
        return drawn * (0.5 if drawn < 0.7 else 8.0)

    def trouble(self, able: tuple[str, ...]) -> str | None:
        """Say what goes wrong with a call of a service."""
        return self.strike("service", able)

    def ring(self, sender: WorldBell, topics: set[str]) -> None:
        """Carry a ring to the other processes; it may be lost."""
        kinds = {topic.partition(":")[0] for topic in topics}
        for bell in self.bells:
            if bell.process is sender.process or bell.process.dead or not bell.hears(kinds):
                continue
            if self.storming and self.draw() < self.swarm.bell_loss:
                continue
            self.loop.call_later(self.draw() * 0.003, bell.heard, set(topics), context=bell.process.context)


def _long(rng: random.Random) -> float:
    """Return how long something lasts: usually short, now and then longer than every lease and complete-by."""
    return rng.uniform(0.05, 1.0) if rng.random() < 0.4 else rng.uniform(1.0, 25.0)
