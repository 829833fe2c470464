"""Kills and stops processes while orders are under way, and measures how long it takes until nobody misses them.

What is to come is a list of *blows*, drawn from a seed before the start. Who is hit is decided when the moment has come:
whoever runs then, or leads.
"""

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from makegood import Client
from makegood.errors import BrokerUnavailableError, StoreUnavailableError
from makegood.store.views import Filter, NodeView

from .private_servers import PrivateServer
from .processes import REGISTERED, Place, ProcessError, State, Wall
from .world import Services, ServicesError

LEASE: Final = "makegood/supervisor"
WORLD: Final = "services"
BROKER: Final = "broker"
MUSTS: Final = ("agent", "scheduler", "leader", "services")
"""Hit at least once each, as far as the number of kills allows."""
OTHERS: Final = (
    "agent",
    "agent",
    "agent",
    "scheduler",
    "scheduler",
    "leader",
    "supervisor",
    "inbox",
    "shop",
    "approver",
)
LEADER: Final = "leading supervisor"
LEADERLESS: Final = 5.0
SETTLED: Final = 1.5
"""Seconds for which a process has run when it is worth a blow: it holds something then."""
ANSWERED: Final = 1.0
"""Seconds after a kill within which nobody can have taken over what was held: what is gone was answered before."""
LONGEST_HEAL: Final = 45.0
"""Seconds after which nothing is waited for any more; what is lost then shows in the books."""

MOST_DEATHS: Final = 10
"""Processes that may end of themselves and are replaced; beyond that something is wrong that no new process mends."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One thing to come: at a share of the placing time (0 to 1) somebody of ``role`` is killed, or stopped.

    ``away``: seconds until a new process takes its place, or the stopped one goes on.
    """

    at: float
    role: str
    away: float
    stop: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: killed, started, stopped, resumed, healed or died (of itself) on the wall; turned, approved,
    refused or settled besides, where no process is meant (``pid`` 0).
    """

    kind: str
    who: str
    pid: int
    text: str
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Whom it is about, with the process that is meant."""
        return f"{self.who} ({self.pid})" if self.pid else self.who


@dataclass(slots=True)
class Score:
    """What was survived so far."""

    kills: dict[str, int] = field(default_factory=dict)
    stops: int = 0
    died: int = 0
    heals: list[float] = field(default_factory=list)

    @property
    def survived(self) -> int:
        """How many processes were killed."""
        return sum(self.kills.values())


def plan(kills: int, rng: random.Random, *, life: float, broker: bool = False) -> list[Blow]:
    """Draw the blows, in order of time. ``life``: seconds without a heartbeat after which a process counts as dead; who
    is stopped is stopped for longer than that. ``broker``: whether there is one to be hit.
    """
    musts = (BROKER, *MUSTS) if broker else MUSTS
    roles = [*musts[:kills], *(rng.choice(OTHERS) for _ in range(kills - len(musts)))]
    blows = [Blow(0.0, role, rng.uniform(0.3, 1.2)) for role in roles]
    stoppable = ("leader", "scheduler", "agent")
    blows += [Blow(0.0, stoppable[n % 3], life + rng.uniform(0.5, 1.5), stop=True) for n in range(kills // 4)]
    rng.shuffle(blows)
    # one in each slice of the time, so that a heal has room and no stretch is left in peace
    return [
        Blow(0.05 + 0.9 * (n + rng.random()) / len(blows), blow.role, blow.away, blow.stop)
        for n, blow in enumerate(blows)
    ]


@dataclass(frozen=True, slots=True)
class Wound:
    """A process that was killed, at this moment of ``time.monotonic``. ``role`` is what it was called then."""

    place: Place
    pid: int
    role: str
    at: float
    node: int | None = None
    """Its number in the store, as far as that was known before."""
    held: frozenset[int] = frozenset()
    """The tasks in its hands just before."""


class Chaos:
    """Strikes processes and has them replaced. ``tell`` hears of every event; ``score`` sums up.

    Processes are started on the event loop's thread, which must be the main one: see ``tether.py``.
    """

    def __init__(
        self,
        wall: Wall,
        services: Services,
        client: Client,
        rng: random.Random,
        tell: Callable[[Event], None],
        *,
        broker: PrivateServer | None = None,
    ) -> None:
        self.score = Score()
        self._outside: dict[str, Services | PrivateServer] = {WORLD: services}
        """What no post of the wall fills."""
        self.broker = broker
        if broker is not None:
            self._outside[BROKER] = broker
        places = {
            name: Place(name, name, one.pid, State.RUNNING, time.monotonic(), starts=1)
            for name, one in self._outside.items()
        }
        self.world = places[WORLD]
        self.places = {**places, **wall.places}
        self._wall = wall
        self._client = client
        self._rng = rng
        self._tell = tell

    async def run(self, blows: Sequence[Blow], span: float) -> None:
        """Carry out the blows over ``span`` seconds; return when every victim is replaced and every heal is measured."""
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for blow in blows:
                await asyncio.sleep(max(0.0, start + blow.at * span - time.monotonic()))
                group.create_task(self.strike(blow))

    async def strike(self, blow: Blow) -> None:
        """Carry out one blow; return when its victim is replaced and its heal is measured."""
        place, role = await self._victim(blow.role)
        if not blow.stop:
            node, work = await self.in_hands(place)
            while place.state is not State.RUNNING:  # another blow hit it meanwhile
                place, role = await self._victim(blow.role)
                node, work = await self.in_hands(place)
            await self.recover(self.kill(place.name, role, node, work), blow.away)
            return
        self.stop(place.name, f"{role} stopped for {blow.away:.1f} s")
        await asyncio.sleep(blow.away)
        await self.start(place.name)

    async def mend(self, *, replace: bool = True) -> None:
        """Start new processes for those that ended of themselves. Raises ``ProcessError`` when that goes on and on.

        Whoever was killed by somebody else, such as a visitor in a terminal, counts as killed; it is replaced unless
        ``replace`` is False.
        """
        exits = self._wall.ended()
        for name, one in self._outside.items():
            if self.places[name].state is State.RUNNING and not one.running:
                exits.append((self.places[name], -signal.SIGKILL))
        for place, code in exits:
            if code == -signal.SIGKILL:
                place.kills += 1
                place.turn(State.KILLED)
                self._count(place.role)
                self._tell(Event("killed", place.name, place.pid, "killed by somebody else"))
                if not replace:
                    continue
            else:
                self.score.died += 1
                if self.score.died > MOST_DEATHS:
                    words = self._wall.last_words(place.name)
                    raise ProcessError(
                        f"{self.score.died} processes ended of themselves, {place.name} last:\n{words}"
                    )
                text = f"ended of itself with code {code}, see its log"
                self._tell(Event("died", place.name, place.pid, text))
            await self.start(place.name)

    # -- one process ---------------------------------------------------------------------------------------------------

    def kill(
        self, name: str, role: str = "", node: int | None = None, work: frozenset[int] = frozenset()
    ) -> Wound:
        """Kill the process in a place with SIGKILL. ``role``: what to call it; ``node``, ``work``: see ``in_hands``."""
        place = self.places[name]
        wound = Wound(place, place.pid, role or place.role, time.monotonic(), node, work)
        if name in self._outside:
            self._outside[name].kill()
            place.kills += 1
            place.turn(State.KILLED)
        else:
            self._wall.kill(name)
        self._count(place.role)
        text = "the remote services were killed" if place is self.world else f"the {wound.role} was killed"
        self._tell(Event("killed", name, wound.pid, text))
        return wound

    def stop(self, name: str, text: str) -> None:
        """Stop the process in a place with SIGSTOP."""
        place = self.places[name]
        if place.state is not State.RUNNING:
            return
        if name in self._outside:
            self._outside[name].pause()
            place.stops += 1
            place.turn(State.STOPPED)
        else:
            self._wall.stop(name)
        self.score.stops += 1
        self._tell(Event("stopped", name, place.pid, text))

    async def start(self, name: str) -> None:
        """Have a stopped process go on, and fill an empty place; what runs is left alone."""
        place = self.places[name]
        if place.state is State.STOPPED:
            if name in self._outside:
                self._outside[name].resume()
                place.turn(State.RUNNING)
            else:
                self._wall.resume(name)
            self._tell(Event("resumed", name, place.pid, "continues, unaware"))
        elif place.state is not State.RUNNING and name in self._outside:
            await self._start_outside(place, self._outside[name])
        elif place.state is not State.RUNNING:
            pid = self._wall.start(name)
            self._tell(Event("started", name, pid, "a new process takes its place"))

    async def _start_outside(self, place: Place, one: Services | PrivateServer) -> None:
        since = place.since
        one.launch()
        place.turn(State.RUNNING)  # before anything else may start them
        place.starts += 1
        pid = place.pid = one.pid
        try:
            await asyncio.to_thread(one.ready)
        except (ServicesError, BrokerUnavailableError):
            if place.state is State.RUNNING and place.pid == pid:
                raise
            return  # killed again before they were ready
        away = time.monotonic() - since
        text = f"back after {away:.1f} s, with {'their books' if place is self.world else 'its queues'}"
        self._tell(Event("started", place.name, place.pid, text, away))

    async def recover(self, wound: Wound, away: float | None) -> None:
        """Fill a killed process's place after ``away`` seconds (None: leave it empty), and measure the heal."""
        # the store learns of it later: what it says now is how things stood
        (epoch, _), nodes = await asyncio.gather(self.term(), self.nodes())
        name, role, pid = wound.place.name, wound.place.role, wound.pid
        node = nodes.get(pid) if wound.node is None else wound.node
        async with asyncio.TaskGroup() as group:
            if away is not None:
                group.create_task(self._replace(wound, away))
            if wound.role == LEADER:
                group.create_task(self._next_term(name, pid, epoch, wound.at))
            elif role in ("scheduler", "agent") and node is not None:
                group.create_task(self._taken_over(wound, node))

    async def _replace(self, wound: Wound, after: float) -> None:
        await asyncio.sleep(after)
        if wound.place.state is State.KILLED and wound.place.pid == wound.pid:
            await self.start(wound.place.name)

    def _count(self, role: str) -> None:
        self.score.kills[role] = self.score.kills.get(role, 0) + 1

    def leader_of(self, holder: str) -> Place | None:
        """The supervisor's place whose process holds the lease, None when none of the wall's does."""
        running = self._wall.running("supervisor")
        return next((place for place in running if holder.endswith(f"-{place.pid}")), None)

    async def leader(self) -> int:
        """The process id of the supervisor that leads, 0 when none of the wall's does."""
        _, holder = await self.term()
        place = self.leader_of(holder)
        return place.pid if place else 0

    # -- looking -------------------------------------------------------------------------------------------------------

    async def _victim(self, role: str) -> tuple[Place, str]:
        """Whom to hit, and what to call him: anybody of that role who works, or the one who leads. Waits until there is one;
        when nobody has led for ``LEADERLESS`` seconds any supervisor will do.

        Who still starts is spared: on a busy machine that takes half a minute, and nobody would be left to do the work.
        """
        start = time.monotonic()
        while True:
            if role in self._outside:
                if self.places[role].state is State.RUNNING:
                    return self.places[role], role
            elif role == "leader":
                _, holder = await self.term()
                if leader := self.leader_of(holder):
                    return leader, LEADER
                running = await self._working("supervisor")
                if time.monotonic() - start > LEADERLESS and running:
                    return running[0], "supervisor"
            elif running := await self._working(role):
                steady = [place for place in running if time.monotonic() - place.since > SETTLED]
                return self._rng.choice(steady or running), role
            await asyncio.sleep(0.1)

    async def _working(self, role: str) -> list[Place]:
        """The places of a role whose process runs, and is known in the store if that role registers there."""
        running = self._wall.running(role)
        if role not in REGISTERED or not running:
            return running
        pids = await self.nodes()
        return [place for place in running if place.pid in pids]

    async def term(self) -> tuple[int, str]:
        """The epoch of the present or last term, and who leads; empty when nobody does."""
        try:
            lease = await self._client.store.leases.read(LEASE)
        except StoreUnavailableError:
            return 0, ""
        if lease is None:
            return 0, ""
        return lease.epoch, (lease.holder or "") if lease.remaining > 0 else ""

    async def views(self) -> list[NodeView]:
        """The processes that are known in the store. Raises ``StoreUnavailableError``."""
        return await self._client.store.nodes.views()

    async def nodes(self) -> dict[int, int]:
        """The numbers under which processes are known in the store, by process id; of several, the latest.

        Those of silent ones too: on a busy machine a process that works may be late with its heartbeat.
        """
        try:
            return {node.info.pid: node.id for node in sorted(await self.views(), key=lambda node: node.id)}
        except StoreUnavailableError:
            return {}

    # -- healing -------------------------------------------------------------------------------------------------------

    async def _next_term(self, who: str, pid: int, epoch: int, hit: float) -> None:
        """Wait until somebody else leads."""
        while time.monotonic() - hit < LONGEST_HEAL:
            present, holder = await self.term()
            if present > epoch and holder:
                self.healed(who, pid, "another leads", hit)
                return
            await asyncio.sleep(0.1)

    async def in_hands(self, place: Place) -> tuple[int | None, frozenset[int]]:
        """A process's number in the store, and the tasks in its hands."""
        node = (await self.nodes()).get(place.pid) if place.role in ("scheduler", "agent") else None
        return node, frozenset() if node is None else frozenset(await self._in_hand(place.role, node, None))

    async def _taken_over(self, wound: Wound, node: int) -> None:
        """Wait until nothing that the dead process had in its hands is still in them."""
        place, hit = wound.place, wound.at
        work = await self._in_hand(place.role, node, set(wound.held) or None)
        if time.monotonic() - hit > ANSWERED:  # this look came late: others may have it already
            work |= wound.held
        if not work:
            return
        one = "order" if place.role == "scheduler" else "request"
        what = f"{len(work)} {one}{'s' if len(work) > 1 else ''} that it held continued elsewhere"
        while work and time.monotonic() - hit < LONGEST_HEAL:
            await asyncio.sleep(0.1)
            work = await self._in_hand(place.role, node, work)
        if not work:
            self.healed(place.name, wound.pid, what, hit)

    async def _in_hand(self, role: str, node: int, among: set[int] | None) -> set[int]:
        """The tasks that a process holds the lock of, or in which it has taken a request."""
        store = self._client.store
        condition = Filter(ids=tuple(among or ()), states=("processing", "undoing"), limit=1000)
        try:
            tasks = await store.tasks.find(condition)
            if role == "scheduler":
                return {task.id for task in tasks if task.locked_by == node}
            ids = set()
            for task in tasks:
                detail = await store.tasks.detail(task.id)
                if detail is not None and any(step.taken_by == node for step in detail.steps):
                    ids.add(task.id)
        except StoreUnavailableError:
            return set(among or ())
        return ids

    def healed(self, who: str, pid: int, text: str, hit: float) -> None:
        """Note that nobody misses what was killed at ``hit`` (of ``time.monotonic``) any more."""
        took = time.monotonic() - hit
        self.score.heals.append(took)
        self._tell(Event("healed", who, pid, f"{text} after {took:.1f} s", took))
