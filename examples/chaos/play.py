"""One run: start everything, let it storm, heal, wait until all is at rest, read the ends, check."""

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.orders.demo import first
from examples.orders.processes import REGISTERED, Post, ProcessError, Wall
from examples.orders.remote import SERVICES_VARIABLE
from examples.orders.shop import shop
from examples.orders.world import Services, ServicesError
from makegood import Client, StoreUnavailableError

from . import approver, broker, ends, waits
from .broker import INBOX_MODULE, Broker
from .checker import BOOKS, count_ends, examine
from .customers import Customer, Ledger
from .kinds import LIFE, kinds_of, plan
from .network import Proxy
from .operators import Operators
from .orders import FORGETS, MODULE
from .publishers import Publisher
from .report import Report
from .screen import Scene, Screen
from .stores import UnderFire, under_fire
from .strikes import Ground, Strikes

SETTINGS: Final = {
    "supervise_every": "400ms", "lease": "1500ms", "late_after": "200ms", "heartbeat": "300ms", "dead_after": f"{LIFE}s", "poll_every": "400ms",
    "drain": "3s", "starved_after": "5s", "linger": "500ms", "log_level": "info",
}  # fmt: skip
"""Short, so that a minute contains many recoveries."""
SCHEDULERS, AGENTS, SUPERVISORS, INBOXES = 2, 3, 2, 2
LOOK_FOR_LANES: Final = 2.0
"""Seconds between two looks for orders in error whose lanes others wait for, once no fault strikes any more."""
CUSTOMERS: Final = 3
APPROVERS: Final = 2
"""Customers in processes of their own, who consent to orders."""
READY_WITHIN: Final = 45.0
"""Seconds without a further process that has started."""
ENDS_WITHIN: Final = 20.0
"""A drain may take its limit, 3 s, and 5 s more for the last commits, on connections that may just have been lost; where they stay
silent, as some do after a black hole, the store takes 7 s to give them up."""
REST_WITHIN: Final = 120.0
"""Seconds after the last fault in which everything must come to rest."""
DRAW_EVERY: Final = 0.25
COUNT_EVERY: Final = 2.0
"""Seconds between two counts of what waits."""
SERVED: Final = ("stock", "payments", "carrier")
SIGNS: Final = ("Traceback (most recent call last)", "was never retrieved", "was never awaited")
"""What no process may write, whatever happens to it."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a run is asked for. ``rate``: orders a second, of all customers together."""

    store: str
    seconds: float
    seed: int
    rate: float
    broker: str = ""
    """Through which broker some of them come, "" for none."""


def posts(store: UnderFire, folder: Path, *, inboxes: int = 0) -> list[Post]:
    """Return the places to be filled with processes, each with the login for its role. Each agent's process serves all three services."""
    roles = [("scheduler", SCHEDULERS), ("supervisor", SUPERVISORS)]
    crew = [
        Post(f"{role}-{n}", role, (role, "--store", store.url_as(role)))
        for role, count in roles
        for n in range(1, count + 1)
    ]
    options = ("agent", f"{MODULE}:shop", *SERVED, "--store", store.url_as("agents"))
    crew += [Post(f"agent-{n}", "agent", options) for n in range(1, AGENTS + 1)]
    reads = ("inbox", f"{INBOX_MODULE}:shop", "--store", store.url_as("inbox"))
    crew += [Post(f"inbox-{n}", "inbox", reads) for n in range(1, inboxes + 1)]
    asks = ("--store", store.url_as("submitter"), "--folder", str(folder), "--of", str(APPROVERS))
    return crew + [
        Post(f"customer-{n}", "customer", (*asks, "--number", str(n)), approver.__name__)
        for n in range(APPROVERS)
    ]


class Play:
    """One run in ``folder``, seen on ``display``."""

    def __init__(self, wishes: Wishes, folder: Path, display: Screen) -> None:
        self._wishes = wishes
        self._folder = folder
        self._shown = display
        self._complaints: list[str] = []
        self._ledger = Ledger(folder / approver.QUESTIONS)
        self._scene = Scene(wishes.seconds, kinds_of(wishes.store, wishes.broker))

    async def run(self) -> Report:
        """Play; everything that was started has ended when this returns or raises."""
        start = time.monotonic()
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(
                under_fire(self._wishes.store, self._folder, self._rng("store"))
            )
            ground, customers = await self._ground(stack, store)
            strikes = Strikes(ground, self._tell, self._rng("strikes"))
            self._scene.wall = [strikes.world, *ground.wall.places.values()]
            await self._ready(ground)
            try:
                async with asyncio.TaskGroup() as group:
                    watching = group.create_task(self._watch(strikes, ground.looking))
                    await self._storm(strikes, customers)
                    heal_seconds = await self._heal(strikes, ground, customers)
                    watching.cancel()
            except ExceptionGroup as several:
                raise first(several) from None
            finally:
                for customer in customers:
                    await customer.leave()
            return await self._told(strikes, ground, time.monotonic() - start, heal_seconds)

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self._wishes.seed} {what}")

    # -- phases ---------------------------------------------------------------------------------------------------------

    async def _ground(self, stack: AsyncExitStack, store: UnderFire) -> tuple[Ground, list[Customer]]:
        """Start the services, the roads to them and the processes; open the customers' connections."""
        services = stack.enter_context(
            Services(self._folder / BOOKS, seed=self._wishes.seed, forgets=FORGETS)
        )
        road = Proxy(self._rng("road"))
        await road.start(int(services.url.rpartition(":")[2]))
        stack.push_async_callback(road.stop)
        server = None
        if self._wishes.broker:
            server = await stack.enter_async_context(Broker(self._wishes.broker))
        looking = await stack.enter_async_context(Client(store.direct, migrate=True))
        await store.guard([f"{shop.name}/{agent}" for agent in SERVED])
        customers: list[Customer] = []
        for number in range(1, CUSTOMERS + 1):
            client = await stack.enter_async_context(Client(store.url_as("submitter")))
            customers.append(Customer(number, client, self._ledger, self._rng(f"customer {number}")))
        if server is not None:
            publisher = Publisher(CUSTOMERS + 1, looking, self._ledger, self._rng("publisher"), server)
            customers.append(publisher)
        await waits.begin_schedule(looking)
        wall = stack.enter_context(
            Wall(
                posts(store, self._folder, inboxes=INBOXES if server else 0),
                self._folder,
                settings=SETTINGS,
                more={
                    SERVICES_VARIABLE: f"http://127.0.0.1:{road.port}",
                    **(server.environment() if server else {}),
                },
            )
        )
        acting = await stack.enter_async_context(Client(store.url_as("operator", direct=True)))
        operators = Operators(acting, self._ledger, services.url, services.books, self._rng("operators"))
        for name in wall.places:
            wall.start(name)
        return Ground(wall, services, road, store, operators, looking, server), customers

    async def _ready(self, ground: Ground) -> None:
        """Wait until every process has registered.

        Raises ``ProcessError`` when one ends, or when for ``READY_WITHIN`` seconds none has registered.
        """
        deadline, before = time.monotonic() + READY_WITHIN, 0
        while True:
            if exits := ground.wall.ended():
                place, code = exits[0]
                raise ProcessError(
                    f"{place.name} ended with code {code}:\n{ground.wall.last_words(place.name)}"
                )
            here = {node.info.pid for node in await ground.looking.store.nodes.views() if node.remaining > 0}
            missing = [
                place.name
                for place in ground.wall.places.values()
                if place.role in REGISTERED and place.pid not in here
            ]
            if not missing:
                return
            if len(missing) != before:
                deadline, before = time.monotonic() + READY_WITHIN, len(missing)
            if time.monotonic() > deadline:
                raise ground.wall.late(missing, READY_WITHIN)
            self._shown.show(self._scene)
            await asyncio.sleep(0.1)

    async def _storm(self, strikes: Strikes, customers: list[Customer]) -> None:
        """Orders and faults, side by side."""
        wishes, scene = self._wishes, self._scene
        scene.phase, scene.begun = "storm", time.monotonic()
        blows = plan(scene.enabled, wishes.seconds, self._rng("blows"))
        async with asyncio.TaskGroup() as group:
            group.create_task(strikes.run(blows, wishes.seconds, self._lacking))
            for customer in customers:
                group.create_task(customer.shop(wishes.rate / len(customers), lambda: strikes.over))

    def _lacking(self) -> bool:
        """Whether there is an end that no customer was told yet, or no order that stays in error."""
        return not self._ledger.example or not {"processed", "undone"} <= self._ledger.ends().keys()

    async def _heal(self, strikes: Strikes, ground: Ground, customers: list[Customer]) -> float:
        """All faults have ended: wait, within bounds, until all is at rest; return how long that took."""
        self._scene.phase = "healing"
        start = time.monotonic()
        await strikes.dials.apply()
        deadline = start + REST_WITHIN
        for customer in customers:
            for order in await customer.acknowledged(deadline - time.monotonic()):
                self._complaints.append(f"order {order} could not be submitted after the last fault")
        await self._end_waits(ground, deadline)
        while True:
            # Looking briefly: what waits behind an order in error goes on once its lanes are released.
            patience = min(LOOK_FOR_LANES, deadline - time.monotonic())
            left = await ends.at_rest(ground.store, ground.looking, patience, ground.broker)
            if not left and all(placement.first for placement in self._ledger.orders.values()):
                break
            if time.monotonic() > deadline:
                self._complaints += [
                    f"not at rest {REST_WITHIN:g} s after the last fault: {it}" for it in left
                ]
                break
            await ground.operators.release_lanes()
            await asyncio.sleep(ends.LOOK_EVERY)
        return time.monotonic() - start

    async def _end_waits(self, ground: Ground, deadline: float) -> None:
        """Let the schedule fire no more, and every customer give the answers that are due."""
        while time.monotonic() < deadline:
            with suppress(StoreUnavailableError):
                await waits.end_schedule(ground.operators.client)
                break
            await asyncio.sleep(ends.LOOK_EVERY)
        while unsettled := self._unsettled():
            if time.monotonic() > deadline:
                self._complaints += [f"the customer of order {order} could not answer" for order in unsettled]
                break
            await asyncio.sleep(ends.LOOK_EVERY)

    def _unsettled(self) -> list[str]:
        """The orders whose customers have not given all their answers."""
        orders = {line["order"] for line in approver.read_lines(self._folder / approver.QUESTIONS)}
        return sorted(
            orders - {note["order"] for note in approver.notes(self._folder) if note["kind"] == "settled"}
        )

    async def _told(self, strikes: Strikes, ground: Ground, seconds: float, heal_seconds: float) -> Report:
        """Read the ends, stop the processes in good order, check."""
        self._scene.phase = "checking"
        self._shown.show(self._scene)
        fault_counts = await strikes.counted()
        ground.road.hang_up()
        if not await asyncio.to_thread(ground.services.quiet):
            self._complaints.append("the services were still at work 30 s after the last order's end")
        lines = await ends.read(self._ledger, ground.looking)
        ends.write(self._folder, lines)
        waits.write(self._folder, await waits.read(ground.store, ground.looking))
        if ground.broker is not None:
            broker.write(self._folder, await ground.broker.read(ground.looking))
        recoveries = await ends.recoveries(ground.store, lines)
        self._complaints += [
            f"the store's own check: {finding}" for finding in await ground.looking.store.admin.check()
        ]
        late = await asyncio.to_thread(ground.wall.end, ENDS_WITHIN)
        self._complaints += [f"{name} did not end within {ENDS_WITHIN:g} s of SIGTERM" for name in late]
        self._complaints += self._ledger.complaints + strikes.complaints + self._logged(ground.wall)
        counts: Counter[str] = self._ledger.counts + ground.operators.counts
        counts["starts refused for want of a store"] = strikes.refused_starts
        self._shown.close()
        verdict = await asyncio.to_thread(examine, self._folder)
        if verdict.findings or self._complaints:
            await ends.keep(ground.store, self._folder)
        return Report(
            self._wishes.store, self._wishes.seed, seconds, heal_seconds, self._scene.enabled, fault_counts, count_ends(lines),
            self._ledger.ends(), recoveries, counts, verdict, self._complaints, str(self._folder),
            self._wishes.broker,
        )  # fmt: skip

    def _logged(self, wall: Wall) -> list[str]:
        """What the processes wrote that no process may write."""
        complaints = []
        for name in wall.places:
            lines = wall.log(name).read_text(errors="replace").splitlines()
            hits = [n for n, line in enumerate(lines) if any(sign in line for sign in SIGNS)]
            if hits:
                around = " | ".join(lines[max(0, hits[0] - 1) : hits[0] + 1])
                complaints.append(
                    f"{name} wrote {len(hits)} tracebacks, the first at line {hits[0]}: {around}"
                )
        return complaints

    # -- beside ---------------------------------------------------------------------------------------------------------

    async def _watch(self, strikes: Strikes, looking: Client) -> None:
        """Draw, and replace processes that have ended of themselves."""
        counted_at = 0.0
        while True:
            strikes.mend()
            self._scene.leader = await strikes.leader()
            if time.monotonic() - counted_at > COUNT_EVERY:
                signals = sum(note["kind"] == "signal" for note in approver.notes(self._folder))
                self._scene.waits = await waits.live_counts(looking, signals) or self._scene.waits
                counted_at = time.monotonic()
            await self._draw(strikes)
            await asyncio.sleep(DRAW_EVERY)

    async def _draw(self, strikes: Strikes) -> None:
        scene = self._scene
        scene.placed, scene.ends = len(self._ledger.orders), self._ledger.ends()
        with suppress(StoreUnavailableError, ServicesError):
            scene.met = await strikes.counted()
        self._shown.show(scene)

    def _tell(self, kind: str, text: str) -> None:
        self._scene.events.append((self._scene.seconds, kind, text))
        self._shown.event(self._scene, kind, text)
