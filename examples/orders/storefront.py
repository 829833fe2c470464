"""The shop's own process: sends customers' orders to the submission process, and notes in its own book what it is told of them.

``python -m orders.storefront --folder DIR --queue shop-1``

Two files in the folder, a JSON object per line, and nothing else: ``wanted.jsonl`` is what customers ordered; they write it.
``answers.jsonl`` is what the shop was told, and what the auditor reads: a line when the queue has accepted an order, a line for
each state that arrives in the shop's private queue, and a line for each answer to a large order (``approver.py``). After SIGKILL a new process continues from the two: an order
is sent again until it is noted as accepted, and the queue takes the same one only once.

Where the shop's orders come from a broker (``shop.py``), it publishes them there, and reads its notices there.
"""

import argparse
import asyncio
import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from makegood import Client, QueueFullError, StoreUnavailableError
from makegood.brokers import KINDS, OutgoingEvent, Reader, address_of, open_sender, open_source, targets_of
from makegood.errors import BrokerUnavailableError, DeliveryError

from .auditor import OPEN_AGAIN, OUTCOMES
from .shop import NOTICES_VARIABLE, ORDERS_VARIABLE

WANTED: Final = "wanted.jsonl"
TOLD: Final = "answers.jsonl"
_LOOK_EVERY: Final = 0.05
_AGAIN_AFTER: Final = 0.3
_CONFIRMED_WITHIN: Final = 5.0
_WAIT: Final = 1.0
_AT_ONCE: Final = 100
"""Messages of the private queue that are noted and acknowledged together."""


class Lines:
    """A file that somebody appends lines to. Iterate over it for what is new."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Return what was written since the last time, whole lines only."""
        if not self._file.exists():
            return
        with self._file.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            yield json.loads(line)


def append(file: Path, line: Mapping[str, Any]) -> None:
    """Write a line at a file's end, in one write: whoever is killed has written all of it or nothing."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


class Storefront:
    """The shop at work. ``queue``: its private queue's name."""

    def __init__(self, folder: Path, client: Client, queue: str) -> None:
        self._told = folder / TOLD
        self._wanted = Lines(folder / WANTED)
        self._client = client
        self._queue = queue
        self._accepted: set[str] = set()
        self._newest: dict[str, int] = {}
        self._ended: set[str] = set()

    def remember(self) -> Self:
        """Read what an earlier process noted."""
        self._told.touch()
        for line in Lines(self._told):
            if "cents" not in line and "state" not in line:
                continue  # somebody's answer to a large order
            self._accepted.add(line["order"])
            self._newest[line["order"]] = max(line.get("sequence", 0), self._newest.get(line["order"], 0))
            self._ended |= {line["order"]} if line.get("outcome") else set()
        return self

    async def sell(self) -> None:
        """Send what customers order to the submission process, for ever."""
        while True:
            for order in self._wanted:
                if order["id"] not in self._accepted:
                    await self._send(order)
            await asyncio.sleep(_LOOK_EVERY)

    async def _send(self, order: dict[str, Any]) -> None:
        while True:
            try:
                await self._submit(order)
            except (StoreUnavailableError, QueueFullError, DeliveryError):
                await asyncio.sleep(_AGAIN_AFTER)
                continue
            self._accepted.add(order["id"])
            append(self._told, {"order": order["id"], "cents": order["cents"]})
            return

    async def _submit(self, order: dict[str, Any]) -> None:
        """Send an order, and return once it will not be lost."""
        await self._client.send("orders", order, id=order["id"], reply_to=f"queue:{self._queue}")

    async def listen(self) -> None:
        """Note what the private queue says of the orders, for ever; messages are acknowledged once they are noted.

        All that are there at once: one by one costs two commits each, and on a busy SQLite file the shop falls half a
        minute behind its orders.
        """
        queue = self._client.queue(self._queue, lease="3s")
        while True:
            messages = await queue.receive(_AT_ONCE)
            for message in messages:
                self.note(message.value["data"])
            await queue.acknowledge(*messages)

    def note(self, data: Mapping[str, Any]) -> None:
        """Note a state; one that was noted before changes nothing."""
        order, state = data["key"], data["state"]
        if data["sequence"] <= self._newest.get(order, 0):
            return
        line = {"order": order, "state": state, "sequence": data["sequence"], "task": data["task"]}
        if state in OUTCOMES:
            standing = sorted(step["step"] for step in data.get("standing", ()))
            line |= {"outcome": state, "standing": standing, "cause": data.get("cause") or ""}
            line |= {"result": data.get("result")}
            self._ended.add(order)
        elif order in self._ended:
            line["outcome"] = OPEN_AGAIN
        append(self._told, line)
        self._newest[order] = data["sequence"]


class BrokerStorefront(Storefront):
    """The shop at work through a broker, ``url``. It speaks to it as makegood does; any client of the broker would do."""

    def __init__(self, folder: Path, client: Client, url: str, orders: str, notices: str) -> None:
        super().__init__(folder, client, "")
        self._orders = address_of(orders, KINDS)
        start = self._orders.parameters.get("start")  # Kafka wants to know where a new group begins
        self._notices = address_of(f"{notices}?start={start}" if start else notices, KINDS)
        self._targets = targets_of({self._orders.name: url})
        self._sender = open_sender(self._targets[self._orders.name])

    async def _submit(self, order: dict[str, Any]) -> None:
        event = OutgoingEvent(order["id"], order["id"], msgspec.json.encode(order), "application/json")
        await self._sender.send(self._orders.place, event, _CONFIRMED_WITHIN)

    async def listen(self) -> None:
        """Note what the broker's notices say of the orders, for ever; they are acknowledged once they are noted."""
        source = open_source(self._notices, self._targets, Reader("shop", "shop", _AT_ONCE))
        while True:
            try:
                await source.open()
                deliveries = await source.take(_AT_ONCE, _WAIT)
                for delivery in deliveries:
                    self.note(msgspec.json.decode(delivery.body)["data"])
                await source.acknowledge(deliveries)
            except BrokerUnavailableError:
                await asyncio.sleep(_AGAIN_AFTER)


def storefront(folder: Path, client: Client, queue: str) -> Storefront:
    """Return the shop that the environment asks for: with a broker, or with the store's queues alone."""
    orders, notices = os.environ.get(ORDERS_VARIABLE), os.environ.get(NOTICES_VARIABLE)
    if not orders or not notices:
        return Storefront(folder, client, queue)
    return BrokerStorefront(folder, client, os.environ["MAKEGOOD_BROKERS_MAIN"], orders, notices)


async def keep_shop(folder: Path, queue: str) -> None:
    """Sell and listen until cancelled."""
    async with Client() as client, asyncio.TaskGroup() as group:
        shop = storefront(folder, client, queue).remember()
        group.create_task(shop.sell())
        group.create_task(shop.listen())


def main(arguments: list[str] | None = None) -> int:
    """Keep the shop until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="orders.storefront", description="The shop of the order example.")
    parser.add_argument("--folder", type=Path, required=True, help="where wanted.jsonl and answers.jsonl are")
    parser.add_argument("--queue", required=True, help="the shop's private queue")
    options = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(keep_shop(options.folder, options.queue))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
