"""A broker as the receiver of notices in some storms: it goes away while they are sent, and comes back.

Each notice that fails waits for its next try longer than a storm lasts. So the world comes to rest only if
whoever sends finds out that the broker is back, and sends what waits for it.
"""

from typing import Any, Final, Protocol

from makegood.brokers import BrokerAddress, OutgoingEvent, Target, UnsentError
from makegood.errors import DeliveryError
from makegood.messaging.broker_poster import BrokerPoster
from makegood.messaging.hosts import Hosts
from makegood.messaging.notifier import Patience
from makegood.messaging.poster import Poster
from makegood.testing.simulator.loop import current_process
from proofs.memory_broker import MemorySender
from proofs.storms.webhook_receivers import TIMEOUT, ReceiverWorld, note

NOTICES: Final = BrokerAddress("amqp", "main", "notices")
URL: Final = "amqp://127.0.0.1:9"
PATIENCE: Final = Patience(wait=3600.0)
"""Longer than a world has to come to rest."""


class BrokerWorld(ReceiverWorld, Protocol):
    """The parts of a world that its broker needs as a receiver."""

    broker: Any
    loop: Any


class _StormSender(MemorySender):
    """Sends to the broker of a storm."""

    def __init__(self, world: BrokerWorld) -> None:
        super().__init__(world.broker)
        self._world = world

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Deliver a notice, unless the broker goes away; sometimes the sender does not hear of it."""
        world = self._world
        trouble = await world.point(
            "send to the broker", "kill", "stop", "broker away", "acknowledgement lost"
        )
        if trouble == "broker away":
            world.loop.create_task(world.broker.leave(world.draw() * 60.0))
            raise UnsentError("the broker has gone")
        await super().send(place, event, timeout)
        process = current_process()
        note(world.history, process.name if process else "", NOTICES.broker, event.body)
        if trouble == "acknowledgement lost":
            raise DeliveryError("the confirmation did not arrive")


def poster(world: BrokerWorld, hosts: Hosts, other: Poster) -> BrokerPoster:
    """Return what posts a process's notices. ``other``: posts those to webhooks."""
    target = Target(NOTICES.kind, NOTICES.name, URL)
    return BrokerPoster(
        {NOTICES.name: target}, hosts, other, cause="name", timeout=TIMEOUT, opener=lambda _: _StormSender(world),
        checker=world.broker.checked,
    )  # fmt: skip
