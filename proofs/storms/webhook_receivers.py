"""The receivers of webhooks: machines elsewhere that receive the states of their orders, or are in
trouble.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from makegood.base.ids import parse
from makegood.errors import DeliveryError
from makegood.messaging.hosts import Hosts
from makegood.messaging.notifier import Patience
from makegood.testing.history import History
from makegood.testing.simulator.loop import current_process
from proofs.storms.surroundings import RECEIVERS, RECEIVING

TIMEOUT = 2.0
"""Seconds that a Notifier waits for a receiver."""
TRIES = 4
"""Posts of a notice before it is given up."""


def patience(keep: float | None) -> Patience:
    """Return how often a Notifier tries: soon, because the whole world waits for it.

    Where a janitor removes old rows early (``keep``), tries are slower: it must leave what is not delivered.
    """
    return Patience(TRIES, wait=2.0) if keep is not None else Patience(TRIES, wait=1.0, factor=2.0)


def note(history: History, node: str, by: str, body: bytes) -> None:
    """Note that a notice has arrived. ``by``: the queue or the receiver."""
    data: dict[str, Any] = msgspec.json.decode(body)["data"]
    history.note(
        "notified", node, parse(data["task"]), sequence=data["sequence"], state="note" if "note" in data else data["state"],
        submission=data["submission"], by=by,
    )  # fmt: skip


def hosts() -> Hosts:
    """Return the hosts, and the places at brokers, to which a world's processes post."""
    return Hosts(RECEIVERS, ["amqp:main/notices"])


class ReceiverWorld(Protocol):
    """The parts of a world that receivers need."""

    history: History

    def strike(self, name: str, able: tuple[str, ...]) -> str | None:
        """Report that a fault point is reached; returns what struck there."""
        ...

    async def point(self, name: str, *able: str) -> str | None:
        """The same for code that can wait."""
        ...

    def draw(self) -> float:
        """Return a random number in [0, 1)."""
        ...


@dataclass(slots=True)
class Post:
    """Delivers notices to webhooks: the poster of a world's Notifiers."""

    world: ReceiverWorld

    async def close(self) -> None:
        """Do nothing."""

    async def post(self, url: str, message_id: str, body: bytes) -> None:  # noqa: ARG002 - known by task
        """Deliver a notice to its receiver. Raises ``DeliveryError`` if the receiver does not acknowledge
        it.
        """
        world, host = self.world, url.split("/")[2]
        await world.point("post", "kill", "stop")
        await asyncio.sleep(world.draw() * 0.05)
        if host == "dead.test":
            raise DeliveryError(f"{host} refuses the connection")
        trouble = world.strike(f"receiver {host}", RECEIVING) if host == "shaky.test" else None
        if trouble == "receiver hangs":
            await asyncio.sleep(TIMEOUT)
            raise DeliveryError(f"{host} does not answer")
        if trouble == "receiver fails":
            raise DeliveryError(f"{host}: 503")
        process = current_process()
        note(world.history, process.name if process else "", host, body)
        if trouble == "receiver takes it and fails":
            raise DeliveryError(f"{host}: 500")
        if trouble == "receiver slow":
            await asyncio.sleep(world.draw() * TIMEOUT)
