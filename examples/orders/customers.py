"""The shop's customers: what they order, how their orders are submitted, and how each one ended.

What is kept here is what the shop was *told*: that a submission was acknowledged, and the outcome that the client
reported. The auditor compares it with the services' books.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from makegood import Client, StoreUnavailableError, TaskHandle, TaskInError, TaskUndone
from makegood.store.views import Filter

from .auditor import Told
from .shop import Order, place_order

SOLD_OUT: Final = 0.05
"""The share of orders for what is sold out."""
DECLINED: Final = 0.06
"""The share of orders with a card that is declined."""
SKUS: Final = ("pen", "ink", "paper", "lamp", "chair")
AT_REST: Final = ("processed", "undone", "error")
PATIENCE: Final = 30.0
"""Seconds for which an order is offered again to a store that is away."""


def wanted(count: int, rng: random.Random, prefix: str = "o-") -> list[Order]:
    """Draw what the customers order: ids are ``prefix`` and a number."""
    orders = []
    for number in range(1, count + 1):
        sku = "sold-out" if rng.random() < SOLD_OUT else rng.choice(SKUS)
        card = "declined" if rng.random() < DECLINED else "good"
        orders.append(Order(f"{prefix}{number:03d}", sku, rng.randrange(300, 30_000), card))
    return orders


class Customers:
    """Place orders and wait for their ends. By order id: ``told`` is what they know, ``causes`` why orders are in error."""

    def __init__(self, client: Client, *, at_once: int = 8) -> None:
        self.told: dict[str, Told] = {}
        self.causes: dict[str, str] = {}
        self.handles: dict[str, TaskHandle[str]] = {}
        self._client = client
        self._gate = asyncio.Semaphore(at_once)
        self._following: set[asyncio.Task[None]] = set()

    async def place(self, orders: Sequence[Order], span: float, rng: random.Random) -> None:
        """Place the orders over ``span`` seconds, at random distances; return when each was acknowledged.

        Raises what the client raises when the store stays away.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        moments = sorted(rng.uniform(0, span) for _ in orders)
        async with asyncio.TaskGroup() as group:
            for moment, order in zip(moments, orders, strict=True):
                await asyncio.sleep(max(0.0, begun + moment - loop.time()))
                group.create_task(self._place(order))

    async def _place(self, order: Order) -> None:
        async with self._gate:
            handle = await self._submit(order)
        self.handles[order.id] = handle
        self.told[order.id] = Told(order.id, cents=order.cents)
        following = asyncio.get_running_loop().create_task(self._follow(order.id, handle), name=order.id)
        self._following.add(following)

    async def _submit(self, order: Order) -> TaskHandle[str]:
        """Submit an order, again and again while the store is away: the key makes sure that it becomes one task."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await self._client.submit(place_order, order, key=order.id)
            except StoreUnavailableError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.3)

    async def _follow(self, order: str, handle: TaskHandle[str]) -> None:
        while True:
            try:
                outcome, standing, cause = await ending(handle)
            except StoreUnavailableError:
                await asyncio.sleep(0.3)
                continue
            if outcome == "error":
                self.causes[order] = cause
            self.told[order] = replace(self.told[order], outcome=outcome, standing=frozenset(standing))
            return

    async def all_told(self, timeout: float) -> list[str]:
        """Wait until every placed order's end is known; return the ids of those that are open after ``timeout`` seconds.

        Raises what a waiting raised.
        """
        done, open_ = (
            await asyncio.wait(self._following, timeout=timeout) if self._following else (set(), set())
        )
        for following in done:
            following.result()
        return sorted(following.get_name() for following in open_)

    async def leave(self) -> None:
        """Wait for nothing more."""
        for following in self._following:
            following.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    async def states(self) -> Counter[str]:
        """How many placed orders are in which state: at rest as they were told, the others as the store has them."""
        counts = Counter(told.outcome for told in self.told.values() if told.outcome)
        numbers = [self.handles[order].number for order, told in self.told.items() if not told.outcome]
        for start in range(0, len(numbers), 500):
            some = tuple(numbers[start : start + 500])
            counts.update(view.state for view in await self._client.find(Filter(ids=some, limit=len(some))))
        return counts

    async def where(self, orders: Iterable[str]) -> list[str]:
        """Say of open orders where they stand: state, and the steps that are neither done nor waiting."""
        lines = []
        for order in orders:
            detail = await self.handles[order].status()
            steps = [
                f"{s.name} {s.state}" for s in detail.steps if s.state not in ("waiting", "done", "skipped")
            ]
            lines.append(
                f"{order}: {detail.task.state}, {', '.join(steps) or 'no step under way'} (task {self.handles[order].id})"
            )
        return lines

    async def without_alert(self) -> list[str]:
        """The orders in error of which no operator was told."""
        missing = []
        for order, told in sorted(self.told.items()):
            if told.outcome == "error" and not await self._client.store.alerts.views(
                1, self.handles[order].number
            ):
                missing.append(order)
        return missing

    def notes(self) -> tuple[str, ...]:
        """A sentence about each order in error, for an operator."""
        return tuple(
            f"order {order} is in error: {cause}; listed as standing: {', '.join(sorted(self.told[order].standing)) or 'nothing'}"
            for order, cause in sorted(self.causes.items())
        )

    def write(self, file: Path) -> None:
        """Write what was told as the auditor reads it: a JSON object per line."""
        file.write_text("".join(json.dumps(_line(told)) + "\n" for told in self.told.values()))


async def ending(handle: TaskHandle[Any]) -> tuple[str, Sequence[str], str]:
    """Wait for a task's end; return the outcome, the names of the steps that stand after all, and why."""
    try:
        await handle.result()
    except TaskUndone as undone:
        return "undone", undone.standing, undone.cause
    except TaskInError as error:
        return "error", error.standing, error.cause
    return "processed", (), ""


def _line(told: Told) -> dict[str, object]:
    return {
        "order": told.order,
        "cents": told.cents,
        "outcome": told.outcome,
        "standing": sorted(told.standing),
    }
