"""Carries the plan out: kills and stops processes, turns the services' dials, cuts the network, strikes the store.

Every fault is counted when it was *met*: a dial that no request ran into, a black hole that nobody fell into, a process that
was not there count for nothing.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from examples.orders.processes import Place, State, Wall
from examples.orders.world import Services, ServicesError
from makegood import Client, StoreUnavailableError

from .broker import Broker
from .kinds import ACTS, BREATH, LIFE, LONGEST_COMPLETE_BY, SERVICE_WORDS, Blow, Kind
from .network import Proxy
from .operators import Operators
from .server import ServerError
from .stores import UnderFire

LEASE: Final = "makegood/supervisor"
UNREACHABLE: Final = 8
"""The exit code of a process that found its store unreachable when it started."""
RESTART: Final = 0.4
"""Seconds after which a process that has ended of itself is started again."""
ROLES: Final = {
    Kind.KILL_SCHEDULER: "scheduler",
    Kind.KILL_AGENT: "agent",
    Kind.KILL_SUPERVISOR: "supervisor",
    Kind.KILL_CUSTOMER: "customer",
    Kind.STOP_SCHEDULER: "scheduler",
    Kind.STOP_AGENT: "agent",
    Kind.STOP_SUPERVISOR: "supervisor",
    Kind.KILL_INBOX: "inbox",
    Kind.STOP_INBOX: "inbox",
}
AGAIN: Final = 0.3
"""Seconds before a blow that met nobody is tried again."""
OVERTIME: Final = 30.0
"""Seconds for which the faults go on when somebody must still be met: on a slow machine, and not for ever."""
SETTLED: Final = 1.5
"""Seconds for which a process has run when it is worth a blow: it holds something then."""
SHARE: Final = 0.5
"""How many of the requests meet the fault that a service was told."""
UNDOS: Final = ("stock/release", "payments/refund", "stock/unpack", "carrier/cancel")
DOS: Final = ("stock/pack", "carrier/book")


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything that can be hit. ``looking`` is a client that no network fault meets."""

    wall: Wall
    services: Services
    road: Proxy
    store: UnderFire
    operators: Operators
    looking: Client
    broker: Broker | None = None


class Dials:
    """The services' dials, set by several at once, and what their requests have met."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._set: list[dict[str, dict[str, float]]] = []
        self._met: Counter[str] = Counter()
        self._turn = asyncio.Lock()

    async def add(self, dial: dict[str, dict[str, float]]) -> None:
        """Set some dials beside the others."""
        self._set.append(dial)
        await self.apply()

    async def take(self, dial: dict[str, dict[str, float]]) -> None:
        """Take them back."""
        self._set.remove(dial)
        await self.apply()

    async def apply(self) -> None:
        """Bring the services to what is set; they may be away, and are told when they are back."""
        dials: dict[str, dict[str, float]] = {}
        for dial in self._set:
            for place, faults in dial.items():
                dials.setdefault(place, {}).update(faults)
        for faults in dials.values():
            total = sum(share for kind, share in faults.items() if kind != "slow_seconds")
            for kind in faults:
                if total > 1 and kind != "slow_seconds":
                    faults[kind] /= total
        async with self._turn:
            with suppress(ServicesError):
                await asyncio.to_thread(self._services.turn, dials)

    async def kill(self) -> None:
        """Kill the services; what their requests had met is kept."""
        async with self._turn:
            with suppress(ServicesError):
                self._met.update((await asyncio.to_thread(self._services.counts))[1])
            await asyncio.to_thread(self._services.kill)

    async def met(self) -> Counter[Kind]:
        """How many requests met which fault."""
        now: Mapping[str, int] = {}
        with suppress(ServicesError):
            _, now = await asyncio.to_thread(self._services.counts)
        counts: Counter[Kind] = Counter()
        for where in (self._met, now):
            for name, count in where.items():
                counts[SERVICE_WORDS[name.rpartition(" ")[2]]] += count
        return counts


class Strikes:
    """Carries out blows. ``met`` counts by kind; ``complaints`` are sentences about what should not have happened."""

    def __init__(self, ground: Ground, tell: Callable[[str, str], None], rng: random.Random) -> None:
        self.met: Counter[Kind] = Counter()
        self.refused_starts = 0
        self.complaints: list[str] = []
        self.dials = Dials(ground.services)
        self.world = Place(
            "services", "services", ground.services.pid, State.RUNNING, time.monotonic(), starts=1
        )
        self._ground = ground
        self._tell = tell
        self._rng = rng
        self._over = asyncio.Event()
        self._one_at_a_time = {name: asyncio.Lock() for name in ("store", "road", "services", "broker")}
        self._due: dict[str, float] = {}

    @property
    def over(self) -> bool:
        """Whether the faults have ended."""
        return self._over.is_set()

    async def run(self, blows: Sequence[Blow], seconds: float, lacking: Callable[[], bool]) -> None:
        """Carry out all blows; after ``seconds``, or as soon after as nothing that must be met is lacking, end all that last,
        and return when everything is healed.
        """
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for blow in blows:
                await asyncio.sleep(max(0.0, start + blow.at - time.monotonic()))
                group.create_task(self._strike(blow))
            while (now := time.monotonic() - start) < seconds + OVERTIME:
                if now >= seconds and not lacking() and not await self._unmet(blows):
                    break
                await asyncio.sleep(AGAIN)
            self._over.set()

    async def _unmet(self, blows: Sequence[Blow]) -> bool:
        counts = await self.counted()
        return any(blow.must and not counts[blow.kind] for blow in blows)

    async def counted(self) -> Counter[Kind]:
        """How often each kind was met so far."""
        return self.met + await self.dials.met()

    def mend(self) -> None:
        """Start anew, after a moment, whoever has ended of itself. That is right only for who found no store to begin with."""
        now = time.monotonic()
        for place, code in self._ground.wall.ended():
            self._due[place.name] = now + RESTART
            if code == UNREACHABLE:
                self.refused_starts += 1
                self._tell("refused", f"{place.name} found no store when it started, and ended")
            else:
                words = self._ground.wall.last_words(place.name)
                self.complaints.append(f"{place.name} ended of itself with code {code}: {words[-600:]}")
                self._tell("died", f"{place.name} ended of itself with code {code}")
        for name in [name for name, due in self._due.items() if due <= now]:
            del self._due[name]
            if self._ground.wall.places[name].state is State.ENDED:
                self._ground.wall.start(name)

    async def leader(self) -> int:
        """The process id of the supervisor that leads, 0 when none does or the store does not say."""
        try:
            lease = await self._ground.looking.store.leases.read(LEASE)
        except StoreUnavailableError:
            return 0
        holder = (lease.holder or "") if lease is not None and lease.remaining > 0 else ""
        return next(
            (p.pid for p in self._ground.wall.running("supervisor") if holder.endswith(f"-{p.pid}")), 0
        )

    # -- one blow -------------------------------------------------------------------------------------------------------

    async def _strike(self, blow: Blow) -> None:
        """Carry out a blow; one that must be, again until somebody has met its kind."""
        while not self._over.is_set():
            await self._once(blow)
            if not blow.must or (await self.counted())[blow.kind]:
                return
            await self._sleep(AGAIN)

    async def _once(self, blow: Blow) -> None:
        kind, rng = blow.kind, random.Random(blow.dice)
        if kind in ROLES:
            await (self._stop if "STOP" in kind.name else self._kill)(kind, blow.away, rng)
        elif kind is Kind.KILL_SERVICES:
            await self._kill_services(blow.away)
        elif kind in SERVICE_WORDS.values() or kind in (Kind.DO_FAILS, Kind.UNDO_FAILS):
            await self._mislead(kind, blow.away, rng)
        elif kind in (Kind.SERVICES_REFUSED, Kind.SERVICES_RESET, Kind.SERVICES_HOLE):
            await self._cut(kind, blow.away)
        elif kind in (Kind.KILL_BROKER, Kind.STOP_BROKER):
            await self._hit_broker(blow)
        elif kind in ACTS:
            self._note(kind, await self._ground.operators.act(kind, self._over.is_set))
        elif blow.must or not self._one_at_a_time["store"].locked():
            async with self._one_at_a_time["store"]:
                if not self._over.is_set():
                    self._tell("fault", f"{kind.value}, for {blow.away:.1f} s")
                    await self._hit_store(blow)
                    await self._sleep(BREATH)

    async def _hit_broker(self, blow: Blow) -> None:
        broker, turn = self._ground.broker, self._one_at_a_time["broker"]
        if broker is None or (turn.locked() and not blow.must):
            return
        async with turn:
            if self._over.is_set():
                return
            self._tell("fault", f"{blow.kind.value}, for {blow.away:.1f} s")
            self._note(blow.kind, await broker.strike(blow.kind, blow.away, self._sleep))
            await self._sleep(BREATH)

    async def _hit_store(self, blow: Blow) -> None:
        try:
            hit = await self._ground.store.strike(blow.kind, blow.away, self._sleep, self._restart)
        except ServerError as error:
            self.complaints.append(str(error))
        else:
            self._note(blow.kind, hit)

    async def _kill(self, kind: Kind, away: float, rng: random.Random) -> None:
        place = await self._victim(kind, rng, least=1, leader=0.7)
        if place is None:
            return
        self._ground.wall.kill(place.name)
        self._note(kind, 1)
        self._tell("killed", f"{place.name} killed")
        await self._sleep(away)
        if place.state is State.KILLED:
            self._ground.wall.start(place.name)

    async def _stop(self, kind: Kind, away: float, rng: random.Random) -> None:
        """Stop a process for longer than its heartbeat lasts and than any attempt may take; let it go on."""
        place = await self._victim(kind, rng, least=2, leader=1.0)  # the last one goes on, or nothing happens
        if place is None:
            return
        self._ground.wall.stop(place.name)
        began = time.monotonic()
        self._tell("stopped", f"{place.name} stopped for {away:.1f} s")
        await self._sleep(away)
        self._ground.wall.resume(place.name)
        self._note(kind, int(time.monotonic() - began > max(LIFE, LONGEST_COMPLETE_BY)))

    async def _victim(self, kind: Kind, rng: random.Random, *, least: int, leader: float) -> Place | None:
        """Whom to hit: of the supervisors, with the share ``leader``, the one that leads; None when fewer than ``least`` run."""
        role = ROLES[kind]
        pid = await self.leader() if role == "supervisor" and rng.random() < leader else 0
        running = self._ground.wall.running(role)
        if len(running) < least:
            return None
        steady = [place for place in running if time.monotonic() - place.since > SETTLED]
        return next((place for place in running if place.pid == pid), rng.choice(steady or running))

    async def _restart(self) -> int:
        """Kill an agent or a scheduler and start it again at once; return how many starts the store has refused since."""
        before = self.refused_starts
        running = self._ground.wall.running(self._rng.choice(("agent", "scheduler")))
        if running:
            place = running[-1]
            self._ground.wall.kill(place.name)
            self._ground.wall.start(place.name)
            for _ in range(300):
                if place.state is not State.RUNNING or self.refused_starts > before:
                    break
                await asyncio.sleep(0.05)
        return self.refused_starts - before

    async def _kill_services(self, away: float) -> None:
        async with self._one_at_a_time["services"]:
            if self._over.is_set():
                return
            await self.dials.kill()
            self.world.kills += 1
            self.world.turn(State.KILLED)
            self._note(Kind.KILL_SERVICES, 1)
            self._tell("killed", "the remote services killed")
            await self._sleep(away)
            await asyncio.to_thread(self._ground.services.start)
            self.world.pid = self._ground.services.pid
            self.world.turn(State.RUNNING)
            await self.dials.apply()

    async def _mislead(self, kind: Kind, away: float, rng: random.Random) -> None:
        """Tell the services to behave badly for a while. What the requests meet is counted by the services."""
        if kind is Kind.UNDO_FAILS:
            dial = {place: {"fail": 1.0} for place in UNDOS}
        elif kind is Kind.DO_FAILS:
            dial = {rng.choice(DOS): {"fail": 1.0}}
        else:
            word = next(word for word, meaning in SERVICE_WORDS.items() if meaning is kind)
            place = rng.choice(("stock", "payments", "carrier", "*"))
            dial = {place: {word: SHARE if kind is not Kind.REFUSE else SHARE / 4}}
            if kind is Kind.SLOW:
                dial[place]["slow_seconds"] = round(rng.uniform(0.3, LONGEST_COMPLETE_BY + 1), 2)
        self._tell("fault", f"{kind.value}: {', '.join(dial)}, for {away:.1f} s")
        await self.dials.add(dial)
        await self._sleep(away)
        await self.dials.take(dial)
        if kind in (Kind.UNDO_FAILS, Kind.DO_FAILS):
            self._note(kind, 1)

    async def _cut(self, kind: Kind, away: float) -> None:
        async with self._one_at_a_time["road"]:
            if self._over.is_set():
                return
            self._tell("fault", f"{kind.value}, for {away:.1f} s")
            road = self._ground.road
            acts = {
                Kind.SERVICES_REFUSED: road.refuse,
                Kind.SERVICES_RESET: road.reset,
                Kind.SERVICES_HOLE: road.hole,
            }
            self._note(kind, await acts[kind](away, self._sleep))

    def _note(self, kind: Kind, hit: int) -> None:
        """Count that a fault came to something, once, however many it met."""
        if hit:
            self.met[kind] += 1

    async def _sleep(self, seconds: float) -> None:
        """Wait, but not beyond the end of the storm."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()
