"""A world: the real engine and the real SQLite store in one thread, on virtual time, from one seed.

Its life has phases: *draw* the options, *start* the processes, *submit*, *faults* for a while, *heal* (all
faults off, clocks agree, dead processes restarted, stopped ones resumed), *converge* within bounded virtual
time, *rest*. ``history`` holds what happened; ``findings`` what is wrong.

    outcome = StormWorld(7, app=storm_app(), services=SERVICES_OF_STORM, orders=orders).run()
"""

import asyncio
import random
import signal
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

from makegood.base.sqlite_log import PAGES
from makegood.node.signals import SAME
from makegood.testing.checker import RULES, Report, check
from makegood.testing.checker.rule import Rule
from makegood.testing.history import History
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.customers import Customers
from makegood.testing.simulator.faults import Faults, Plan
from makegood.testing.simulator.loop import DeadlockError, SimulatedProcess, WorldLoop, current_process
from makegood.testing.simulator.members import FleetMember
from makegood.testing.simulator.quiescence import Eye, TaskAtRest, WorldAtRest
from makegood.testing.simulator.recorder import Recorder
from makegood.testing.simulator.services import Service
from makegood.testing.simulator.stores import InlineLine, WorldWakeSocket
from makegood.testing.simulator.swarm import SPELLS, Swarm
from makegood.testing.simulator.world_files import Grounds
from makegood.workflow.app import App


@dataclass(slots=True)
class Outcome:
    """How a world ended."""

    seed: int
    swarm: Swarm
    history: History
    findings: list[str]
    """What is wrong; empty if nothing is."""
    ends: dict[str, int]
    """Tasks by their last state."""
    faults: dict[str, int]
    """Injected faults, by kind."""
    points: int
    """Fault points reached."""
    virtual: float
    """Virtual seconds."""
    steps: int
    """Steps of the loop."""
    at_rest: dict[int, TaskAtRest] = field(default_factory=dict)
    report: Report = field(default_factory=Report)


class SimulatedWorld(ABC):
    """One simulated world.

    - ``seed``: decides everything.
    - ``swarm``: its options.
    - ``app``: what the agents run.
    - ``once``: agents (APP/AGENT) whose requests are never repeated.
    - ``plan``: chooses the fault at each fault point, instead of chance.
    - ``grounds``: lends it the place of its store.
    """

    line: type[InlineLine] = InlineLine
    """Does the work of a store's threads."""
    member: type[FleetMember] = FleetMember
    """A process of its fleet."""
    rules: Sequence[type[Rule]] = RULES
    """What its history is checked for."""

    def __init__(
        self,
        seed: int,
        *,
        app: App,
        once: frozenset[str] = frozenset(),
        swarm: Swarm,
        plan: Plan | None = None,
        grounds: Grounds | None = None,
    ) -> None:
        self.seed = seed
        self.app = app
        self.once = once
        self.swarm = swarm
        self.rng = random.Random(f"{seed} chance")
        self.draw = self.rng.random
        self.loop = WorldLoop(random.Random(f"{seed} order"))
        self.history = History(lambda: self.loop.now)
        self.store_id = f"{seed:016x}"
        self.recorder = Recorder(self.history, self.store_id)
        self.faults = Faults(random.Random(f"{seed} faults"), self._strengths(), plan)
        self.true_clock = SimulatedClock(lambda: self.loop.now)
        self.services: Mapping[str, Service] = {}
        self.setups: Mapping[str, object] = {}
        self.customers = Customers(self)
        self.wake_sockets: list[WorldWakeSocket] = []
        self.crashes: list[str] = []
        self.storming = False
        self._rest_view: WorldAtRest | None = None
        self.members: dict[str, FleetMember] = {}
        self._outages: dict[str, float] = {}
        self._grounds = grounds or Grounds()
        self._ground = self._grounds.lend()
        self.path, self.files = self._ground.path, self._ground.files
        self.log_pages = PAGES

    def _strengths(self) -> dict[str, float]:
        """Return the strength of each kind of fault."""
        return {**self.swarm.points, **self.swarm.messages, **self.swarm.services}

    # -- a whole life ------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Live from the first phase to the last, and return how it ended."""
        findings: list[str] = []
        eye: Eye | None = None
        try:
            self._prepare()
            eye = self._eye()
            try:
                self.loop.run_until_complete(self._live(eye))
            except DeadlockError as error:
                findings.append(f"deadlock: {error}")
            view = self._rest_view or self._at_rest(eye)
            at_rest = view.tasks
            findings += self.loop.defects + self.crashes + self._misdone() + view.findings
            self._rest_view = view
            report = self._judge(eye)
            findings += [str(violation) for violation in report.violations]
            ends = dict(Counter(task.state for task in at_rest.values()))
            return Outcome(
                self.seed, self.swarm, self.history, findings, ends, dict(self.faults.counts), self.faults.number,
                self.loop.now, self.loop.steps, at_rest, report,
            )  # fmt: skip
        finally:
            if eye is not None:
                eye.close()
            self.close()

    def _eye(self) -> Eye:
        return Eye(self.path)

    def _at_rest(self, eye: Eye) -> WorldAtRest:
        """Return what the eye sees now, and what is wrong beside what the checker reports."""
        return WorldAtRest(eye.tasks(), self.customers.findings, eye.final())

    def _misdone(self) -> list[str]:
        """Return what is wrong with what this world's own people did."""
        return []

    @abstractmethod
    async def _live(self, eye: Eye) -> None:
        """Live from the start of the processes until everything has settled."""

    def _judge(self, eye: Eye) -> Report:
        """Return the checker's report on the whole history."""
        final = eye.final() if self._rest_view is None else self._rest_view.final
        return check(self.history, final, rules=self.rules)

    def close(self) -> None:
        """Throw the world away."""
        self.loop.dispose()
        for member in self.members.values():
            member.bury()
        self._grounds.take_back(self._ground)

    def _prepare(self) -> None:
        self._ground.lay(self.store_id)
        self.recorder.linger = self.swarm.engine.number("linger")
        self.recorder.max_tasks = self.swarm.engine.max_tasks
        for n, roles in enumerate(self.swarm.layout, 1):
            self._add(f"n{n}", roles)
        if self.swarm.client_apart or not any("scheduler" in roles for roles in self.swarm.layout):
            self._add("shop", ())
        self._add("operator", ())

    def _add(self, name: str, roles: tuple[str, ...]) -> None:
        self._add_member(name, roles, self.member)

    def _add_member(self, name: str, roles: tuple[str, ...], kind: type[FleetMember]) -> None:
        draw, swarm = self.draw, self.swarm
        clock = SimulatedClock(
            lambda: self.loop.now, drift=(draw() * 2 - 1) * swarm.drift, skew=(draw() * 2 - 1) * swarm.skew
        )
        self.members[name] = kind(self, name, roles, clock)

    def heal(self) -> None:
        """End all faults: dead processes restart, stopped ones resume, clocks agree, the store is back."""
        self.storming = self.faults.on = False
        self._outages.clear()
        for service in self.services.values():
            service._spell_ends = 0.0
        for member in self.members.values():
            member.clock.mend()
            if not member.up:
                member.start()
            elif member.process.is_stopped:
                self.loop.resume(member.process)
        self.history.note("healed")

    def calls_have_landed(self) -> bool:
        """Whether no call is on its way to a service."""
        return not any(count for service in self.services.values() for count in service._under_way.values())

    # -- what happens to processes -----------------------------------------------------------------

    def kill(self, name: str, point: str = "") -> None:
        """Kill a process as SIGKILL does; in a storm it restarts after a while."""
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

    def handle_exit(self, member: FleetMember) -> None:
        """Handle the end of a process that ended by itself."""
        if member.up:
            self._end(member)
            if not self.storming:
                self.loop.call_later(1.0, self._restart, member, member.incarnation, context=Context())

    def stop(self, name: str, seconds: float, point: str = "") -> None:
        """Stop a process as SIGSTOP does, and resume it after ``seconds``."""
        member = self.members[name]
        if member.up and not member.process.is_stopped:
            self._fault("stop", point, name)
            process = member.process
            process.is_stopped = True
            self.loop.call_later(seconds, self._end_stop, process, process.resumptions, context=Context())

    def _end_stop(self, process: SimulatedProcess, resumptions: int) -> None:
        """Resume a process whose stop is over, unless it was resumed before: it may be stopped again."""
        if process.resumptions == resumptions:
            self._resume(process)

    def _resume(self, process: SimulatedProcess) -> None:
        if process.is_stopped and not process.dead:
            self._fault("resume", "", process.name)
            self.loop.resume(process)

    def terminate(self, name: str) -> None:
        """Ask a process to end in good order, as SIGTERM does; in a storm it starts again.

        A second signal would end it, and the simulator with it, by a signal of the real system: here it is
        killed instead.
        """
        member = self.members[name]
        process = member.process
        if process.end_request_at is not None:
            if self.loop.now - process.end_request_at > SAME:
                self.kill(name)
        elif member.up and self.loop.signal(process, signal.SIGTERM):
            process.end_request_at = self.loop.now
            self._fault("orderly stop", "", name)

    def away(self, process: SimulatedProcess) -> bool:
        """Whether this process cannot reach the store now."""
        return bool(self._outages) and self.loop.now < max(
            self._outages.get("", 0.0), self._outages.get(process.name, 0.0)
        )

    def outage(self, seconds: float, name: str = "") -> None:
        """Take the store away for ``seconds``, from one process or (by default) from all."""
        self._fault("store down", "outage", name)
        self._outages[name] = self.loop.now + seconds

    async def _drive(self, kind: str, rate: float) -> None:
        """Let one kind of fault happen now and then."""
        rng = random.Random(f"{self.seed} {kind}")
        while True:
            await asyncio.sleep(rng.expovariate(rate))
            if not self.faults.happens(kind):
                continue
            self._happen(kind, rng)

    def _happen(self, kind: str, rng: random.Random) -> None:
        """Let one kind of fault happen now."""
        if kind == "spell":
            self._spell(rng)
            return
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
            wall = rng.uniform(-1, 1) * self.swarm.skew
            seconds = rng.choice((0.0, 0.0, 1.0, 5.0)) * rng.random()
            self._fault("clock jump", "", member.name, seconds=seconds)
            member.clock.jump(wall, seconds)

    def _spell(self, rng: random.Random) -> None:
        """Let one service be in trouble for a while, for all callers."""
        if self.services:
            service = rng.choice(list(self.services.values()))
            service._spell = rng.choice(SPELLS)
            service._spell_ends = self.loop.now + _long(rng)
            self._fault(service._spell, f"{service.name} for a while", "")

    # -- what strikes ------------------------------------------------------------------------------

    def _fault(self, fault: str, point: str, name: str, **details: Any) -> None:
        self.faults.count_fault(fault)
        self.history.note("fault", name, what=fault, point=point, **details)

    def strike(self, name: str, able: tuple[str, ...], process: SimulatedProcess | None = None) -> str | None:
        """Report that a fault point is reached; returns what struck there. The world's own code has none."""
        process = process or current_process()
        if process is None or process.name == "operator" or process.dead:
            return None
        fault = self.faults.strikes(name, process.name, able)
        if fault == "kill":
            self.kill(process.name, name)
        elif fault == "stop":
            self.stop(process.name, _long(self.rng), name)
        elif fault is not None:
            self._fault(fault, name, process.name)
        return fault

    async def point(self, name: str, *able: str) -> str | None:
        """The same for code that can wait; never returns in a process that was killed here."""
        fault = self.strike(name, able)
        if fault is not None:
            await self.bear(fault)
        return fault

    async def bear(self, fault: str) -> None:
        """Apply a fault to the calling process; never returns in one that was killed."""
        if fault == "kill":
            await self.loop.create_future()
        elif fault == "stop":
            await asyncio.sleep(0)

    def lateness(self) -> float:
        """Return for how many seconds a slow reply is under way."""
        fraction = self.draw()
        return fraction * (0.5 if fraction < 0.7 else 8.0)

    def wake(self, sender: WorldWakeSocket, topics: set[str]) -> None:
        """Relay a wake-up to the other processes; it may be lost."""
        kinds = {topic.partition(":")[0] for topic in topics}
        for wake_socket in self.wake_sockets:
            if (
                wake_socket.process is sender.process
                or wake_socket.process.dead
                or not wake_socket.hears(kinds)
            ):
                continue
            if self.storming and self.draw() < self.swarm.wake_loss:
                continue
            self.loop.call_later(
                self.draw() * 0.003, wake_socket.on_wake, set(topics), context=wake_socket.process.context
            )


def _long(rng: random.Random) -> float:
    """Return a duration: usually short, sometimes longer than every lease and complete-by."""
    return rng.uniform(0.05, 1.0) if rng.random() < 0.4 else rng.uniform(1.0, 25.0)
