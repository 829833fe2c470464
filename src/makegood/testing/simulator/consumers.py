"""Consumers: processes of submitters that receive from a queue how their orders are getting on.

They are processes of the world like others: killed and stopped also between receiving a message and acknowledging it.
"""

import asyncio
import random
from dataclasses import dataclass

from makegood.client.client import Client
from makegood.errors import StoreUnavailableError
from makegood.store import Store
from makegood.testing.simulator.members import FleetMember
from makegood.testing.simulator.peers import QUEUE
from makegood.testing.simulator.webhook_receivers import note

LEASE = 4.0
"""Seconds for which a consumer has a message."""

_PATIENCE = 1000


@dataclass(slots=True, eq=False)
class Consumer(FleetMember):
    """A submitter's process: it receives what its tasks' states are, notes it, and acknowledges."""

    async def _serve(self, store: Store, rng: random.Random) -> None:
        client = Client(store, poll=1.0, clock=self.clock, rng=rng)
        await client.open()
        queue = client.queue(QUEUE, lease=LEASE, tries=_PATIENCE)
        while True:
            try:
                for message in await queue.receive(rng.choice((1, 3)), timeout=2.0):
                    note(self.world.recorder.history, self.name, QUEUE, message.body)
                    await self.world.point("between receiving and acknowledging", "kill", "stop")
                    await queue.acknowledge(message)
            except StoreUnavailableError:
                await asyncio.sleep(rng.uniform(0.1, 1.0))
