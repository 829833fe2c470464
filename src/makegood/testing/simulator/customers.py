"""The customers of a world: they submit an order through any process, again under the same key until it is
acknowledged.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.errors import StoreUnavailableError
from makegood.testing.history import History
from makegood.testing.simulator.loop import WorldLoop
from makegood.testing.simulator.members import FleetMember


class Order(NamedTuple):
    """One submission."""

    workflow: Any
    inputs: tuple[Any, ...]
    key: str
    priority: int = 0
    reply_to: str | None = None
    """Where its submitter receives notices."""
    attributes: Mapping[str, str] | None = None
    is_message: bool = False
    """Whether it is sent as a message."""
    is_brokered: bool = False
    """Whether that message is sent to a broker."""
    delay: float = 0.0
    """Seconds after which its task begins; 0: at once."""
    signals: int = 0
    """How many signals its customer sends."""
    lanes: tuple[str, ...] = ()
    """The lanes of its task; empty: those that its workflow names."""
    is_dated: bool = False
    """Whether its task begins at the moment, by the calendar, that is so far away."""


class CustomerWorld(Protocol):
    """The parts of a world that its customers need."""

    seed: int
    loop: WorldLoop
    history: History
    members: dict[str, FleetMember]


class Customers:
    """Submit orders. ``acks``: the task of each acknowledged order, by key."""

    def __init__(self, world: CustomerWorld) -> None:
        self._world = world
        self.acks: dict[str, int] = {}
        self.findings: list[str] = []

    async def ask(self, door: FleetMember, client: Client, order: Order) -> TaskHandle[Any] | None:
        """Submit in a process of the world; returns the handle, None if the store is away."""
        plan = order.workflow.plan(*order.inputs)
        try:
            delay = order.delay if order.delay and not order.is_dated else None
            wall = door.clock.wall() - door.clock.skew  # an hour off, the task would outlive the world
            at = datetime.fromtimestamp(wall + order.delay, UTC) if order.is_dated else None
            handle = await client.submit(
                plan.with_(
                    key=order.key,
                    priority=order.priority,
                    reply_to=order.reply_to,
                    delay=delay,
                    at=at,
                    attributes=order.attributes,
                    lane=order.lanes or None,
                )
            )
        except StoreUnavailableError:
            return None
        if order.key not in self.acks:
            steps = [step.name for step in plan.steps]
            no_return = any(step.policy is not None and step.policy.no_return for step in plan.steps)
            self._world.history.note(
                "submitted", door.name, handle.number, key=order.key, steps=steps, no_return=no_return,
                on_failure=plan.on_failure, created=handle.created, reply_to=order.reply_to,
            )  # fmt: skip
        number = self.acks.setdefault(order.key, handle.number)
        if number != handle.number:
            self.findings.append(f"order {order.key} has two tasks: {number} and {handle.number}")
        return handle
