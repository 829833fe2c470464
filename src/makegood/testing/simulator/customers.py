"""The customers of a world: they submit through whatever process is there, again under the same key until they are told."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Protocol

from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.errors import MakegoodError, StoreUnavailableError, TaskNotFoundError
from makegood.testing.history import History
from makegood.testing.simulator.faults import Faults
from makegood.testing.simulator.loop import WorldLoop
from makegood.testing.simulator.members import FleetMember
from makegood.testing.simulator.peers import ORDERS, QUEUE, RECEIVERS, SENDING, Around
from makegood.testing.simulator.storm import Order
from makegood.testing.simulator.swarm import Swarm

_PATIENCE = 3.0


class CustomerWorld(Protocol):
    """What of a world its customers need."""

    seed: int
    loop: WorldLoop
    history: History
    members: dict[str, FleetMember]
    faults: Faults
    swarm: Swarm

    def strike(self, name: str, able: tuple[str, ...]) -> str | None:
        """Say that a fault point is reached; returns what struck there."""
        ...


class Customers:
    """Submit ``orders`` at random moments. ``told``: the task of each order, by key, once a customer was told; ``sent``: the keys of
    orders whose message was taken.
    """

    def __init__(self, world: CustomerWorld, orders: Sequence[Order]) -> None:
        self._world = world
        self._orders = addressed(orders, world.swarm.around, random.Random(f"{world.seed} addresses"))
        self._rng = random.Random(f"{world.seed} customers")
        self.told: dict[str, int] = {}
        self.sent: set[str] = set()
        self.findings: list[str] = []

    async def run(self, within: float) -> None:
        """Submit all orders within so many seconds; ends when every customer was told."""
        moments = [self._rng.uniform(0.0, within) if n else 0.0 for n in range(len(self._orders))]
        await asyncio.gather(
            *[
                self._order(order, at)
                for order, at in zip(self._orders, moments, strict=True)
                if self._world.faults.happens("order", order.key)
            ]
        )

    async def _order(self, order: Order, at: float) -> None:
        await asyncio.sleep(at)
        while order.key not in self.told and order.key not in self.sent:
            door = self._door()
            if door is not None and door.client is not None:
                asked = (self._send if order.sent else self._ask)(door, door.client, order)
                self._world.loop.create_task(asked, context=door.process.context.copy())
                await asyncio.sleep(_PATIENCE)
            await asyncio.sleep(self._rng.uniform(0.0, 0.5))

    def _door(self) -> FleetMember | None:
        doors = [
            m for m in self._world.members.values() if m.client is not None and m.up and m.name != "operator"
        ]
        return self._rng.choice(doors) if doors else None

    async def _ask(self, door: FleetMember, client: Client, order: Order) -> None:
        """Submit, and wait for the end: runs in a process of the world."""
        plan = order.workflow.plan(*order.inputs)
        try:
            handle = await client.submit(
                plan.with_(key=order.key, priority=order.priority, reply_to=order.reply_to)
            )
        except StoreUnavailableError:
            return
        if order.key not in self.told:
            steps = [step.name for step in plan.steps]
            no_return = any(step.policy is not None and step.policy.no_return for step in plan.steps)
            self._world.history.note(
                "submitted", door.name, handle.number, key=order.key, steps=steps, no_return=no_return,
                on_failure=plan.on_failure, created=handle.created, reply_to=order.reply_to,
            )  # fmt: skip
        known = self.told.setdefault(order.key, handle.number)
        if known != handle.number:
            self.findings.append(f"order {order.key} has two tasks: {known} and {handle.number}")
        await self._wait(door, handle)

    async def _send(self, door: FleetMember, client: Client, order: Order) -> None:
        """Send the order as a message, now and then once more: the queue knows it by its id."""
        body = {"workflow": order.workflow.name, "order": order.inputs[0]}
        try:
            for _ in range(2):
                await client.send(
                    ORDERS, body, id=order.key, correlation_id=order.key, reply_to=order.reply_to
                )
                if order.key not in self.sent:
                    self._world.history.note("posted", door.name, queue=ORDERS, id=order.key)
                    self.sent.add(order.key)
                if self._world.strike("send", SENDING) is None:
                    break
        except StoreUnavailableError:
            return

    async def _wait(self, door: FleetMember, handle: TaskHandle[Any]) -> None:
        try:
            view = await handle.wait()
        except TaskNotFoundError as lost:
            if not any(event.task == handle.number for event in self._world.history.of("removed")):
                self.findings.append(f"an acknowledged task is gone: {lost}")
        except (MakegoodError, asyncio.CancelledError):
            return
        else:
            self._world.history.note("told", door.name, handle.number, state=view.state)


def addressed(orders: Sequence[Order], around: Around | None, rng: random.Random) -> list[Order]:
    """Return the orders with the addresses of those who want to be told, and those marked that are sent as messages."""
    if around is None:
        return list(orders)
    found: list[Order] = []
    for order in orders:
        told, hook, host = rng.random() < around.told, rng.random() < around.hooks, rng.choice(RECEIVERS)
        to = f"https://{host}/orders" if hook else f"queue:{QUEUE}"
        sent = around.sent > 0 and rng.random() < around.sent
        found.append(order._replace(reply_to=to if told else None, sent=sent))
    return found
