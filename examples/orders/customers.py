"""The shop's customers: what they order, and how their orders ended, as the shop was told.

They write to the shop's file of wishes and read what the shop notes (``storefront.py``): that an order was accepted, the
states that it was notified of, and somebody's answer to a large one. The auditor compares that with the services' books.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from makegood import Client
from makegood.store.views import Filter, TaskView

from .auditor import OPEN_AGAIN, OUTCOMES, Told
from .chaos import Event
from .report import Passage
from .shop import LIMIT, Order
from .storefront import TOLD, WANTED, Lines, append

SOLD_OUT: Final = 0.05
"""The share of orders for what is sold out."""
DECLINED: Final = 0.06
"""The share of orders with a card that is declined."""
LARGE: Final = 0.1
"""The share of orders that need somebody's approval."""
SKUS: Final = ("pen", "ink", "paper", "lamp", "chair")
OPEN: Final = ("pending", "sleeping", "processing", "undoing")
HEAR_EVERY: Final = 0.1


def drawn(name: str, rng: random.Random) -> Order:
    """Draw what a customer orders."""
    sku = "sold-out" if rng.random() < SOLD_OUT else rng.choice(SKUS)
    card = "declined" if rng.random() < DECLINED else "good"
    cents = rng.randrange(300, LIMIT)
    return Order(name, sku, cents + LIMIT if rng.random() < LARGE else cents, card)


def wanted(count: int, rng: random.Random, prefix: str = "o-") -> list[Order]:
    """Draw what the customers order: ids are ``prefix`` and a number."""
    return [drawn(f"{prefix}{number:03d}", rng) for number in range(1, count + 1)]


@dataclass(slots=True)
class Said:
    """An order as its customer knows it. ``at``: when they ordered, in seconds of the event loop's clock."""

    order: Order
    at: float
    state: str = ""
    """Empty until the shop has accepted the order."""
    task: str = ""
    cause: str = ""
    result: str = ""
    told: Told = field(default_factory=lambda: Told(""))
    notices: set[int] = field(default_factory=set)
    """The numbers of the notices that came of it."""
    ended: float = 0.0


class Customers:
    """Place orders and read what becomes of them. ``orders``: what each customer knows, by order id; ``tell`` hears of each
    answer to a large order.
    """

    def __init__(self, client: Client, folder: Path, tell: Callable[[Event], None] = lambda _: None) -> None:
        self.orders: dict[str, Said] = {}
        self._client = client
        self._tell = tell
        self._wanted = folder / WANTED
        self._lines = Lines(folder / TOLD)

    @property
    def told(self) -> dict[str, Told]:
        """What the shop was told of each order that it has accepted, by order id."""
        return {name: order.told for name, order in self.orders.items() if order.told.order}

    def want(self, order: Order) -> None:
        """Order something."""
        self.orders[order.id] = Said(order, _now())
        append(self._wanted, asdict(order))

    async def place(self, orders: Sequence[Order], span: float, rng: random.Random) -> None:
        """Place the orders over ``span`` seconds, at random distances."""
        start = _now()
        for moment, order in zip(sorted(rng.uniform(0, span) for _ in orders), orders, strict=True):
            await asyncio.sleep(max(0.0, start + moment - _now()))
            self.want(order)

    def hear(self) -> None:
        """Read what the shop has noted since the last time."""
        for line in self._lines:
            order = self.orders[line["order"]]
            if not order.told.order:
                order.told, order.state = Told(line["order"], cents=order.order.cents), "accepted"
            if "state" in line:
                self._note(order, line)
            if by := line.get("approved_by") or line.get("refused_by"):
                self._note_answer(order, by, line)

    def _note_answer(self, order: Said, by: str, line: Mapping[str, Any]) -> None:
        outcome, yes = order.told, "approved_by" in line
        if by in (outcome.approvers if yes else outcome.refusers):
            return  # noted again by a new process, which sends it again
        order.told = (
            replace(outcome, approvers=outcome.approvers | {by})
            if yes
            else replace(outcome, refusers=outcome.refusers | {by})
        )
        text = f"{line['order']}, {order.order.cents / 100:,.2f}: {line['why']}"
        self._tell(Event("approved" if yes else "refused", by, 0, text))

    @staticmethod
    def _note(order: Said, line: Mapping[str, Any]) -> None:
        order.state, order.task = line["state"], line["task"]
        order.notices.add(line["sequence"])
        outcome = line.get("outcome", "")
        if outcome in OUTCOMES:
            order.told = replace(order.told, outcome=outcome, standing=frozenset(line["standing"]))
            order.cause, order.ended = line["cause"], _now()
            order.result = str(line["result"] or "")
        elif outcome == OPEN_AGAIN:
            order.told = replace(order.told, outcome="", standing=frozenset())
            order.ended = 0.0

    def open(self) -> list[str]:
        """The orders whose end is not known."""
        return sorted(name for name, order in self.orders.items() if not order.told.outcome)

    async def all_told(self, timeout: float) -> list[str]:
        """Wait until every placed order's end is known; return the ids of those that are open after ``timeout`` seconds."""
        deadline = _now() + timeout
        while True:
            self.hear()
            if not (left := self.open()) or _now() > deadline:
                return left
            await asyncio.sleep(HEAR_EVERY)

    async def states(self) -> Counter[str]:
        """How many placed orders are in which state: at rest as the shop was told, the others as the store has them."""
        counts = Counter(outcome.outcome for outcome in self.told.values() if outcome.outcome)
        counts.update(view.state for view in await self.under_way())
        return counts

    async def under_way(self) -> list[TaskView]:
        """The tasks of orders whose end is not known, newest first."""
        views = await self._client.find(Filter(states=OPEN, workflow="place_order", limit=1000))
        mine = self.orders
        return [view for view in views if view.key in mine and not mine[view.key].told.outcome]

    async def view(self, order: str) -> TaskView | None:
        """The task of an order, None if there is none yet."""
        views = await self._client.find(Filter(workflow="place_order", key=order, limit=1))
        return views[0] if views else None

    async def where(self, orders: Iterable[str]) -> list[str]:
        """Say of open orders where they stand: state, and the steps that are neither done nor waiting."""
        lines = []
        for order in orders:
            view = await self.view(order)
            detail = await self._client.store.tasks.detail(view.id) if view else None
            if view is None or detail is None:
                lines.append(f"{order}: no task was made of it")
                continue
            steps = [
                f"{s.name} {s.state}" for s in detail.steps if s.state not in ("waiting", "done", "skipped")
            ]
            lines.append(f"{order}: {view.state}, {', '.join(steps) or 'no step under way'}")
        return lines

    async def without_alert(self) -> list[str]:
        """The orders in error of which no operator was told."""
        missing = []
        for order, outcome in sorted(self.told.items()):
            if outcome.outcome == "error":
                view = await self.view(order)
                if view is None or not await self._client.store.alerts.views(1, view.id):
                    missing.append(order)
        return missing

    async def passage(self, title: str) -> Passage:
        """Count the tasks and the notices of each placed order, all of which came through a broker."""
        tasks = Counter[str]()
        condition = Filter(workflow="place_order", limit=1000)
        while views := await self._client.find(condition):
            tasks.update(view.key or "" for view in views)
            condition = replace(condition, before=views[-1].id)
        return Passage(
            title,
            {name: tasks[name] for name in self.told},
            {name: order.notices for name, order in self.orders.items() if order.told.order},
        )

    def notes(self) -> tuple[str, ...]:
        """A sentence about each order in error, for an operator."""
        return tuple(
            f"order {name} is in error: {order.cause}; listed as in place: {', '.join(sorted(order.told.standing)) or 'nothing'}"
            for name, order in sorted(self.orders.items())
            if order.told.outcome == "error"
        )

    def write(self, file: Path) -> None:
        """Write what was told as the auditor reads it: a JSON object per line."""
        file.write_text("".join(json.dumps(_line(outcome)) + "\n" for outcome in self.told.values()))


def _line(outcome: Told) -> dict[str, object]:
    return {
        "order": outcome.order,
        "cents": outcome.cents,
        "outcome": outcome.outcome,
        "standing": sorted(outcome.standing),
        "approved_by": sorted(outcome.approvers),
        "refused_by": sorted(outcome.refusers),
    }


def _now() -> float:
    return asyncio.get_running_loop().time()
