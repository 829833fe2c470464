"""A world in which candidates contend for one lease, on virtual time, under every fault that a seed picks.

The real ``Election`` runs, unchanged. A network lies between each candidate and the lease store, and between
each leader and the resource that it writes to. It delays, loses, repeats and reorders messages, is cut one
way, or swallows everything. Candidates are stopped (SIGSTOP), suspended (their timers stop, time does not),
killed and restarted, and paused at any await, above all between their last check of the clock and their
write. Clocks run too fast or too slow, the store's too.

The world checks: no two believe at once; epochs rise; no lease is released before the work has stopped; the
resource, which refuses a lower epoch than it has seen, had something to refuse; and once the faults stop,
somebody leads in time.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from makegood.base.clock import Clock
from makegood.election.election import Election
from makegood.election.preference import Bully, LowestId, MemoryNetwork, Message, Ring
from makegood.election.preference.member import ElectionMember
from makegood.election.preference.protocol import TURN
from makegood.election.protocol import Grant, LeaseStore, LeaseView, PastTerm
from makegood.election.stores.memory import MemoryLeases
from makegood.election.term import Term
from makegood.errors import StoreUnavailableError
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.loop import DeadlockError, SimulatedProcess, WorldLoop

T = TypeVar("T")

TTL, RENEW, RETRY, TIMEOUT, WIND_DOWN = 3.0, 1.0, 1.0, 1.0, 0.3
DRIFT = 0.01
FAULTY, CALM = 40.0, 4.0
LATENCY = 0.02
"""Longest time, in seconds, that a message takes once the faults have stopped."""
NAME = "lead"
CANDIDATES = 3
PREFERENCES: dict[str, type[LowestId | Bully | Ring]] = {"lowest": LowestId, "bully": Bully, "ring": Ring}
INTERVAL = 0.5
"""Seconds between two signs of life of a member of a preference."""


@dataclass(slots=True)
class Weather:
    """The faults that a seed has switched on."""

    loss: float = 0.0
    """The share of messages that are lost."""
    repeat: float = 0.0
    """The share of messages that are repeated."""
    delay: float = 0.01
    """Seconds."""
    pause: float = 0.0
    drift: float = 0.0
    prefers: str = ""
    """The preference of the candidates."""
    events: dict[str, int] = field(default_factory=dict)
    """How often each event happens in the faulty time."""

    @classmethod
    def of(cls, rng: random.Random) -> "Weather":
        """Draw: each fault is on in about half of the seeds, so that each is also met without the others."""

        def often(*counts: int) -> int:
            return rng.choice((0, 0, *counts))

        return cls(
            loss=rng.choice((0.0, 0.0, 0.03, 0.2)),
            repeat=rng.choice((0.0, 0.0, 0.1, 0.4)),
            delay=rng.choice((0.005, 0.05, 0.3, 0.9)),
            pause=rng.choice((0.0, 0.0, 0.004, 0.015)),
            drift=rng.choice((0.0, DRIFT / 2, DRIFT)),
            prefers=rng.choice(("", "", "", *PREFERENCES)),
            events={
                "stop": often(2, 6), "suspend": often(2, 6), "kill": often(1, 4), "hole": often(2, 5), "deaf": often(2, 5),
                "mute": often(2, 5), "outage": often(1, 3), "step down": often(1, 3), "wall": often(2, 4), "raise": often(1, 2),
            },
        )  # fmt: skip


@dataclass(slots=True)
class ElectionOutcome:
    """How a world ended."""

    seed: int
    findings: list[str]
    """What was wrong."""
    happened: dict[str, int]
    """Counts of the events."""
    virtual: float
    steps: int
    leaderless: float


def instantly(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("it waited")


class SimulatedCandidate:
    """One candidate: a process, its clock and its links to the network. ``deaf``, ``mute``: cut one way;
    both: a black hole.
    """

    def __init__(self, world: "ElectionWorld", number: int) -> None:
        self.world = world
        self.name = "abcdefgh"[number]
        rng = world.rng
        self.drift = rng.choice((-1, 1)) * rng.uniform(0.8, 1.0) * world.weather.drift
        self.deaf = self.mute = False
        self.asleep = self.wakes = 0.0
        self.process = SimulatedProcess(self.name)
        self.clock: Clock = world.clock_of(self)
        self.election: Election | None = None
        self.preference: ElectionMember | None = None
        self.fails = False

    def start(self) -> None:
        """Start as a new process."""
        self.process = SimulatedProcess(self.name)
        self.deaf = self.mute = self.fails = False
        self.world.loop.create_task(self.live(), context=self.process.context)

    async def live(self) -> None:
        """Contend forever, also after the work failed."""
        prefers = PREFERENCES.get(self.world.weather.prefers)
        if prefers is not None:
            self.preference = prefers(
                self.world.network.transport(self.name), interval=INTERVAL, clock=self.clock,
                rng=random.Random(self.world.rng.random()),
            )  # fmt: skip
        self.election = Election(
            NAME, self.world.store_for(self), me=self.name, ttl=TTL, renew=RENEW, retry=RETRY, timeout=TIMEOUT, wind_down=WIND_DOWN,
            drift=DRIFT, clock=self.clock, rng=random.Random(self.world.rng.random()), preference=self.preference,
        )  # fmt: skip
        while True:
            try:
                await self.election.run(partial(self.lead), signals=False)
            except ArithmeticError:
                self.world.count("work that raised")
            else:
                return

    async def lead(self, term: Term) -> None:
        """Write to the resource, each write under the epoch; wind down for a while once stopped."""
        world = self.world
        world.begins(self, term)
        try:
            while True:
                if self.fails:
                    self.fails = False
                    raise ArithmeticError
                term.check()
                term.beat()
                await asyncio.sleep(0)  # It may be paused here: the write is then late.
                world.write(self, term)
                await asyncio.sleep(world.rng.uniform(0.1, 0.4))
        finally:
            try:
                if world.rng.random() < 0.5:
                    await asyncio.sleep(world.rng.random() * WIND_DOWN * 0.9)
            finally:
                world.ends(term)


class WorldNetwork(MemoryNetwork):
    """The network among the candidates, for their preference."""

    def __init__(self, world: "ElectionWorld") -> None:
        super().__init__([who.name for who in world.candidates])
        self._world = world

    def carry(self, sender: str, to: str, message: Message) -> None:
        """Carry a message as the weather has it."""
        self._world.count(f"{message.kind} message")
        self._world.between(sender, to, partial(self.deliver, sender, to, message))


class NetworkedLeases:
    """The lease store as a candidate sees it: through the network."""

    def __init__(self, world: "ElectionWorld", mine: SimulatedCandidate) -> None:
        self._world = world
        self._mine = mine

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take the lease."""
        return await self._ask(lambda store: store.acquire(name, holder, nonce, ttl))

    async def renew(self, grant: Grant) -> bool:
        """Extend the lease."""
        return await self._ask(lambda store: store.renew(grant))

    async def release(self, grant: Grant) -> None:
        """Free the lease."""
        await self._ask(lambda store: self._world.released(store, grant))

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds the lease."""
        return await self._ask(lambda store: store.read(name))

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return past terms."""
        return await self._ask(lambda store: store.past_terms(name, limit))

    async def _ask(self, call: Callable[[LeaseStore], Coroutine[Any, Any, T]]) -> T:
        world, mine = self._world, self._mine
        answer: asyncio.Future[T] = world.loop.create_future()

        def deliver(value: T | None, error: Exception | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)  # type: ignore[arg-type]  # the result of the call

        def arrive() -> None:
            if world.outage:
                world.carry(
                    mine, partial(deliver, None, StoreUnavailableError("the store is down")), up=False
                )
            else:
                value = instantly(call(world.leases))
                world.carry(mine, partial(deliver, value, None), up=False)

        world.carry(mine, arrive, up=True)
        return await answer


class ElectionWorld:
    """The world of a seed. Override ``clock_of``, ``store_for`` or ``leases`` to plant a mutant."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(f"{seed} election")
        self.loop = WorldLoop(random.Random(f"{seed} order"))
        self.weather = Weather.of(self.rng)
        self.loop.resuming = self._perhaps_paused if self.weather.pause else None
        self.store_clock = SimulatedClock(lambda: self.loop.now, drift=self._drift())
        self.leases: MemoryLeases = MemoryLeases(self.store_clock)
        self.outage = False
        self.calm = False
        self.findings: list[str] = []
        self.happened: dict[str, int] = {}
        self.candidates = [SimulatedCandidate(self, number) for number in range(CANDIDATES)]
        self.network = WorldNetwork(self)
        self._working: dict[int, tuple[SimulatedCandidate, Term]] = {}
        self._last_epoch = 0
        self._fence = 0
        self._under_way = 0
        self._empty = Context()

    def _drift(self) -> float:
        return self.rng.choice((-1, 1)) * self.rng.uniform(0.8, 1.0) * self.weather.drift

    def clock_of(self, candidate: SimulatedCandidate) -> Clock:
        """Return a candidate's clock."""
        return SimulatedClock(lambda: self.loop.now, drift=candidate.drift)

    def store_for(self, candidate: SimulatedCandidate) -> LeaseStore:
        """Return the lease store as this candidate sees it."""
        return NetworkedLeases(self, candidate)

    def count(self, what: str) -> None:
        """Count something that happened."""
        self.happened[what] = self.happened.get(what, 0) + 1

    def wrong(self, text: str) -> None:
        """Note a finding."""
        self.findings.append(f"at {self.loop.now:.3f} s: {text}")

    # -- the network -------------------------------------------------------------------------------

    def carry(self, mine: SimulatedCandidate, deliver: Callable[[], None], *, up: bool) -> None:
        """Relay a message to the store (``up``) or from it: perhaps late, twice, or never."""
        self._send(mine, deliver, up=up)
        if not self.calm and self.rng.random() < self.weather.repeat:
            self.count("repeated message")
            self._send(mine, deliver, up=up)

    def _send(self, mine: SimulatedCandidate, deliver: Callable[[], None], *, up: bool) -> None:
        self._transmit(deliver, cut=mine.mute if up else mine.deaf)

    def between(self, sender: str, to: str, deliver: Callable[[], None]) -> None:
        """Relay a message from one candidate to another: perhaps late, twice, or never."""
        ends = {who.name: who for who in self.candidates}
        cut = ends[sender].mute or ends[to].deaf
        self._transmit(deliver, cut=cut)
        if not self.calm and self.rng.random() < self.weather.repeat:
            self._transmit(deliver, cut=cut)

    def _transmit(self, deliver: Callable[[], None], *, cut: bool) -> None:
        if cut or (not self.calm and self.rng.random() < self.weather.loss):
            self.count("lost message")
            return
        slow = self.weather.delay * self.rng.choice((0.1, 0.5, 1.0, 3.0))
        delay = self.rng.random() * (LATENCY if self.calm else slow)
        age = self._under_way

        def arrive() -> None:
            if age == self._under_way:
                deliver()

        self.loop.call_later(delay, arrive, context=self._empty.copy())

    # -- what is looked at -------------------------------------------------------------------------

    def believers(self) -> list[tuple[SimulatedCandidate, Term]]:
        """Return the candidates whose work continues in a term that their own clocks still believe in."""
        return [(who, term) for who, term in self._working.values() if term.remaining() > 0]

    def begins(self, who: SimulatedCandidate, term: Term) -> None:
        """Check the begin of a term's work."""
        self.count("term")
        if term.epoch <= self._last_epoch:
            self.wrong(f"{who.name} begins epoch {term.epoch} after epoch {self._last_epoch}")
        self._last_epoch = max(self._last_epoch, term.epoch)
        for other, old in self.believers():
            self.wrong(
                f"{who.name} begins epoch {term.epoch} while {other.name} believes in epoch {old.epoch} for {old.remaining():.3f} s more"
            )
        self._working[term.epoch] = (who, term)

    def ends(self, term: Term) -> None:
        """The work of a term has stopped."""
        self._working.pop(term.epoch, None)
        if self._last_epoch > term.epoch:
            self.count("work that stopped after its successor began")

    async def released(self, store: LeaseStore, grant: Grant) -> None:
        """Check a release as it reaches the store."""
        at_work = [t.epoch for _, t in self._working.values() if t.grant.nonce == grant.nonce]
        if at_work:
            self.wrong(f"{grant.holder} gives back epoch {at_work[0]} while its work goes on")
        await store.release(grant)

    def write(self, who: SimulatedCandidate, term: Term) -> None:
        """Send a write to the resource, which refuses an epoch lower than one that it has seen."""

        def arrive() -> None:
            if term.epoch >= self._fence:
                self._fence = term.epoch
                self.count("write accepted")
            else:
                self.count("stale write refused")

        self.carry(who, arrive, up=True)

    # -- faults ------------------------------------------------------------------------------------

    def stop(self, who: SimulatedCandidate, seconds: float) -> None:
        """SIGSTOP, and SIGCONT ``seconds`` later."""
        process = who.process
        if self.calm or process.is_stopped or process.dead:
            return
        process.is_stopped = True
        self.loop.call_later(seconds, self.loop.resume, process, context=self._empty.copy())

    def _perhaps_paused(self, process: SimulatedProcess) -> None:
        """Pause a process for long where it continues after an await: any one, by chance."""
        who = next((who for who in self.candidates if who.process is process), None)
        if who is not None and self.rng.random() < self.weather.pause:
            self.count("pause at an await")
            self.stop(who, self.rng.uniform(0.2, 2.5) * TTL)

    def strike(self, what: str) -> None:
        """Let a fault happen."""
        who = self.rng.choice(self.candidates)
        if self.rng.random() < 0.6 and (leading := self.believers()):
            who = leading[0][0]
        self.count(what)
        seconds = self.rng.uniform(0.2, 2.5) * TTL
        if what == "stop":
            self.stop(who, seconds)
        elif what == "suspend" and not who.process.is_stopped:
            who.asleep += seconds
            who.wakes = self.loop.now + seconds
            self.loop.postpone(who.process, seconds)
            self.stop(who, seconds)
        elif what == "kill":
            self._kill(who, seconds)
        elif what in ("hole", "deaf", "mute"):
            who.deaf = who.deaf or what in ("hole", "deaf")
            who.mute = who.mute or what in ("hole", "mute")
            self.loop.call_later(seconds, self._through, who, context=self._empty.copy())
        elif what == "outage":
            self.outage = True
            self.loop.call_later(seconds, self._mended, context=self._empty.copy())
        elif what == "step down" and who.election is not None and not who.process.is_stopped:
            self.loop.create_task(who.election.step_down(rest=seconds), context=who.process.context)
        elif what == "wall" and isinstance(who.clock, SimulatedClock):
            who.clock.jump(self.rng.uniform(-100, 100))
        elif what == "raise":
            who.fails = True

    def _kill(self, who: SimulatedCandidate, seconds: float) -> None:
        who.process.dead = True
        for epoch, (other, _) in list(self._working.items()):
            if other is who:
                del self._working[epoch]
        process = who.process

        def again() -> None:
            if who.process is process:
                who.start()

        self.loop.call_later(seconds, again, context=self._empty.copy())

    def _through(self, who: SimulatedCandidate) -> None:
        who.deaf = who.mute = False

    def _mended(self) -> None:
        self.outage = False

    def heal(self) -> None:
        """End all faults; messages under way are gone. Clocks keep their drift."""
        self.calm, self.loop.resuming = True, None
        self._under_way += 1
        self._mended()
        for who in self.candidates:
            self._through(who)
            who.fails = False
            if who.process.dead:
                who.start()
            elif who.process.is_stopped:
                self.loop.postpone(who.process, min(0.0, self.loop.now - who.wakes))
                self.loop.resume(who.process)

    # -- a run -------------------------------------------------------------------------------------

    def run(self) -> ElectionOutcome:
        """Run the world to its end."""
        try:
            self.loop.run_until_complete(self._story())
        except DeadlockError as deadlock:
            self.wrong(f"nothing can happen any more: {deadlock}")
        finally:
            steps, virtual = self.loop.steps, self.loop.now
            self.loop.dispose()
        return ElectionOutcome(self.seed, self.findings, self.happened, virtual, steps, self._leaderless)

    _leaderless = 0.0

    async def _story(self) -> None:
        for who in self.candidates:
            who.start()
        strikes = [
            (self.rng.random() * FAULTY, what)
            for what, times in self.weather.events.items()
            for _ in range(times)
        ]
        for at, what in sorted(strikes):
            await asyncio.sleep(max(0.0, at - self.loop.now))
            self.strike(what)
        await asyncio.sleep(max(0.0, FAULTY - self.loop.now))
        self.heal()
        await self._led_in_time()
        await asyncio.sleep(TTL)  # A leader that the last fault has hit may still lose its term.
        await self._led_in_time()  # Its successor has as long as any.
        epoch = self._last_epoch
        await asyncio.sleep(CALM)
        if self._last_epoch != epoch:
            self.wrong(f"without any fault the leader changed: epoch {epoch} became {self._last_epoch}")
        if not self.believers():
            self.wrong("without any fault the leader was lost")
        self._agreed()

    def _agreed(self) -> None:
        """Without faults, all that have a preference prefer the same candidate."""
        names = [who.name for who in self.candidates]
        best = min(names) if self.weather.prefers == "lowest" else max(names)
        for who in self.candidates:
            if who.preference is not None and who.preference.leader != best:
                self.wrong(
                    f"{who.name} prefers {who.preference.leader} and not {best}, by {self.weather.prefers}"
                )

    async def _led_in_time(self) -> None:
        """Once the faults have stopped: a leader within ttl + retry + latency, and the time for which all
        rest.

        A preference may hold back for its turns after reading the lease, and a newcomer listens first.
        """
        began = self.loop.now
        rest = min(who.election.resting() if who.election is not None else 0.0 for who in self.candidates)
        slowest = (1 + DRIFT) / (1 - DRIFT)
        held_back = (
            0.0 if not self.weather.prefers else (CANDIDATES - 1) * TURN * RETRY + TIMEOUT + 4 * INTERVAL
        )
        limit = (TTL + 1.5 * RETRY + TIMEOUT + rest + held_back) * slowest + 6 * LATENCY
        while not self.believers():
            if self.loop.now - began > limit:
                self.wrong(f"nobody leads {limit:.2f} s after the last fault")
                return
            await asyncio.sleep(0.02)
        self._leaderless = max(self._leaderless, self.loop.now - began)
