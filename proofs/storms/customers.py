"""The customers of a storm: they submit at random moments and wait for the end, or send orders as
messages.
"""

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from makegood.base.ids import parse
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.errors import (
    LaneTakenError,
    MakegoodError,
    SignalRefused,
    StoreUnavailableError,
    TaskNotFoundError,
)
from makegood.testing.simulator.customers import Customers, CustomerWorld, Order
from makegood.testing.simulator.faults import Faults
from makegood.testing.simulator.members import FleetMember
from proofs.memory_broker import MemoryBroker
from proofs.storms.broker_receiver import NOTICES
from proofs.storms.shop import CONSENT
from proofs.storms.surroundings import ORDERS, QUEUE, RECEIVERS, SENDING, Around
from proofs.storms.swarm import StormSwarm

_PATIENCE = 3.0
_AIMING, _LOOKS = 0.3, 10
"""The share of signals that aim at a timeout, and how often their senders look for one."""


class Market(CustomerWorld, Protocol):
    """The parts of a storm's world that its customers need."""

    faults: Faults
    swarm: StormSwarm
    broker: MemoryBroker

    def strike(self, name: str, able: tuple[str, ...]) -> str | None:
        """Report that a fault point is reached; returns what struck there."""
        ...


class RandomCustomers(Customers):
    """Submit ``orders`` at random moments. ``sent``: the keys of orders whose message was accepted;
    ``refused``: of those whose lane was taken.
    """

    _world: Market

    def __init__(self, world: Market, orders: Sequence[Order]) -> None:
        super().__init__(world)
        self._orders = addressed(orders, world.swarm.around, random.Random(f"{world.seed} addresses"))
        self._orders = delayed(self._orders, world.swarm.delayed, random.Random(f"{world.seed} starts"))
        self._rng = random.Random(f"{world.seed} customers")
        self.sent: set[str] = set()
        self.refused: set[str] = set()

    async def run(self, within: float) -> None:
        """Submit all orders within ``within`` seconds; ends when every customer has an answer."""
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
        while not any(order.key in answers for answers in (self.acks, self.sent, self.refused)):
            door = self._door()
            if door is not None and door.client is not None:
                action = (self._send if order.is_message else self._submit)(door, door.client, order)
                self._world.loop.create_task(action, context=door.process.context.copy())
                await asyncio.sleep(_PATIENCE)
            await asyncio.sleep(self._rng.uniform(0.0, 0.5))
        if order.signals and order.key not in self.refused:
            await self._signal_all(order, random.Random(f"{self._world.seed} signals {order.key}"))

    async def _signal_all(self, order: Order, rng: random.Random) -> None:
        """Send signals to an order's task: soon or late, some twice, each again until it is answered."""
        for n in range(order.signals):
            if rng.random() < _AIMING:
                await self._nearly_too_late(order, rng)
            else:
                await asyncio.sleep(rng.choice((0.0, 0.5, 2.0, 2.99, 3.0, 6.0)) * rng.uniform(0.9, 1.1))
            by_key, id_ = rng.random() < 0.3, f"click-{n}"
            for _ in range(rng.choice((1, 1, 2))):
                answer = asyncio.Event()
                while not answer.is_set():
                    door = self._door()
                    if door is not None and door.client is not None:
                        sending = self._signal(door, door.client, order, id_, answer, by_key=by_key)
                        self._world.loop.create_task(sending, context=door.process.context.copy())
                        with suppress(TimeoutError):
                            await asyncio.wait_for(answer.wait(), _PATIENCE)
                    await asyncio.sleep(rng.uniform(0.0, 0.2))

    async def _nearly_too_late(self, order: Order, rng: random.Random) -> None:
        """Wait for the moment at which the task's wait times out, or for some seconds if it has none."""
        for _ in range(_LOOKS):
            task, now = self.acks.get(order.key), self._world.loop.now
            waits = [event for event in self._world.history.of("timeout") if event.task == task]
            length = waits[-1].at + waits[-1]["due"] - waits[-1]["now"] - now if waits else 0.0
            if length > 0.0:
                await asyncio.sleep(max(0.0, length + rng.uniform(-0.06, 0.03)))
                return
            await asyncio.sleep(0.5)

    async def _signal(
        self,
        door: FleetMember,
        client: Client,
        order: Order,
        id_: str,
        answer: asyncio.Event,
        *,
        by_key: bool,
    ) -> None:
        """Send one signal in a process of the world."""
        try:
            if by_key or order.key not in self.acks:
                receipt = await client.signal(order.workflow, CONSENT, "yes", key=order.key, id=id_)
            else:
                receipt = await client.signal(client.task(self.acks[order.key]), CONSENT, "yes", id=id_)
        except (SignalRefused, TaskNotFoundError):
            answer.set()
        except StoreUnavailableError:
            return
        else:
            self._world.history.note(
                "acknowledged",
                door.name,
                parse(receipt.task),
                name=CONSENT,
                id=receipt.id,
                created=receipt.created,
            )
            answer.set()

    def _door(self) -> FleetMember | None:
        doors = [
            m for m in self._world.members.values() if m.client is not None and m.up and m.name != "operator"
        ]
        return self._rng.choice(doors) if doors else None

    async def _submit(self, door: FleetMember, client: Client, order: Order) -> None:
        """Submit, and wait for the end; runs in a process of the world."""
        try:
            handle = await self.ask(door, client, order)
        except LaneTakenError as error:
            self.refused.add(order.key)
            self._world.history.note("lane refused", door.name, parse(error.task_id), key=order.key)
            return
        if handle is not None:
            await self._wait(door, handle)

    async def _send(self, door: FleetMember, client: Client, order: Order) -> None:
        """Send the order as a message, sometimes twice: the queue recognizes it by its id."""
        body = {"workflow": order.workflow.name, "order": order.inputs[0]}
        if order.is_brokered:
            self._publish(door, order, body)
            return
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

    def _publish(self, door: FleetMember, order: Order, body: dict[str, Any]) -> None:
        """Send the order to the broker, sometimes twice; an absent broker takes nothing."""
        broker = self._world.broker
        if broker.away:
            return
        for _ in range(2):
            broker.put(msgspec.json.encode(body), order.key)
            if self._world.strike("send", SENDING) is None:
                break
        self._world.history.note("posted", door.name, queue=ORDERS, id=order.key)
        self.sent.add(order.key)

    async def _wait(self, door: FleetMember, handle: TaskHandle[Any]) -> None:
        try:
            view = await handle.wait()
        except TaskNotFoundError as error:
            if not any(event.task == handle.number for event in self._world.history.of("removed")):
                self.findings.append(f"an acknowledged task is gone: {error}")
        except (MakegoodError, asyncio.CancelledError):
            return
        else:
            self._world.history.note("told", door.name, handle.number, state=view.state)


def delayed(orders: Sequence[Order], share: float, rng: random.Random) -> list[Order]:
    """Return the orders, a share of them with tasks that begin later."""
    return [
        order._replace(delay=rng.uniform(0.1, 30.0), is_dated=rng.random() < 0.5)
        if rng.random() < share
        else order
        for order in orders
    ]


def addressed(orders: Sequence[Order], around: Around | None, rng: random.Random) -> list[Order]:
    """Return the orders with the reply addresses of submitters that want notices; orders sent as messages are
    marked.
    """
    if around is None:
        return list(orders)
    addressees: list[Order] = []
    for order in orders:
        notifies, hook, host = rng.random() < around.told, rng.random() < around.hooks, rng.choice(RECEIVERS)
        to = f"https://{host}/orders" if hook else f"queue:{QUEUE}"
        by_message = around.sent > 0 and rng.random() < around.sent
        addressees.append(order._replace(reply_to=to if notifies else None, is_message=by_message))
    if around.posted:
        addressees = [
            order._replace(reply_to=str(NOTICES))
            if order.reply_to and rng.random() < around.posted
            else order
            for order in addressees
        ]
    if around.brokered:
        return [
            order._replace(reply_to=None, is_brokered=True)
            if order.is_message and rng.random() < around.brokered
            else order
            for order in addressees
        ]
    return addressees
