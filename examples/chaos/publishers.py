"""Customers who order through a broker. They publish an order under its id until the broker confirms it, and some once more.

What they learn of its end is what the store says; the notices are left at the broker, in its order, and read when all is at rest.
"""

import asyncio
import random
import time
from dataclasses import asdict
from typing import Any, Final

from examples.orders.shop import Order
from makegood import Client, StoreUnavailableError, TaskHandle
from makegood.store.views import Filter

from .broker import Broker
from .customers import PAUSE, Customer, Ledger, Placed
from .orders import wanted

SHARES: Final = (5, 2, 2, 3, 2, 0, 0, 0)
"""How often each workflow is ordered through a broker: not those that ask a customer for consent, who has no key to answer by."""


class Publisher(Customer):
    """One of them. ``client`` looks for the tasks that its orders have become."""

    def __init__(
        self, number: int, client: Client, ledger: Ledger, rng: random.Random, broker: Broker
    ) -> None:
        super().__init__(number, client, ledger, rng)
        self._wanted = wanted(number, rng, SHARES)
        self._broker = broker

    async def _place(self, workflow: Any, order: Order, delay: float, *, again: bool) -> None:  # noqa: ARG002 - a message begins at once
        begin = time.time()
        body = {"workflow": workflow.name, "order": asdict(order)}
        try:
            while not await self._broker.publish(order.id, body):
                self._ledger.counts["publications not confirmed"] += 1
                await asyncio.sleep(PAUSE)
            if again and await self._broker.publish(order.id, body):
                self._ledger.counts["published twice"] += 1
        finally:
            self._gate.release()
        handle = await self._arrival(order)
        self._enter(Placed(order, handle, workflow.name, submit_time=begin))

    async def _arrival(self, order: Order) -> TaskHandle[str]:
        """Wait until an order is a task."""
        while True:
            try:
                if views := await self._client.find(Filter(correlation_id=order.id)):
                    return self._client.task(views[0].id)
            except StoreUnavailableError:
                pass
            await asyncio.sleep(PAUSE)
