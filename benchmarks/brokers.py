"""Orders from users' brokers: how fast messages become tasks, beside the store's own queue, and what a relay at rest costs.

    .venv/bin/python -m benchmarks.brokers                                   # every broker that can be started here
    .venv/bin/python -m benchmarks.brokers --rigs rabbitmq-quorum --messages 2000

Each broker is a private, real server, as the tests start it. First the messages (500 bytes each) are all there, in the store's own queue or
at the broker; then one process with the role "inbox" begins, and the clock runs from its start to the last task. A task is counted once it is
submitted; nothing executes it. ``take`` is the relay alone: from its start until the queue has all messages. ``rest``: the share of a core that a
process takes with nothing to do, above that of the same process without a source.

The table goes to stdout, rates in messages a second. The store is SQLite, on the disk of the temporary folder.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import makegood as mg
from makegood.brokers import BrokerAddress
from makegood.options import Options
from makegood.store.views import Filter
from tests.brokers.rig import Draft, Rig
from tests.brokers.rigs import RIGS, open_rig

BYTES = 500
QUEUE = "orders"
_LOOK = 0.02


def app_for(queue: str) -> mg.App:
    """Return an app whose inbox reads a queue, or a place at a broker."""
    app = mg.App("bench")

    @app.workflow
    def place(order: dict[str, Any]) -> dict[str, Any]:
        return order

    @app.inbox(queue, concurrency=50)
    async def accept(order: dict[str, Any], tx: mg.Transaction) -> mg.Plan[dict[str, Any]]:
        return place.plan(order)

    return app


def messages(count: int) -> list[Draft]:
    """Return so many different messages."""
    return [Draft(f'{{"n": {n}, "text": "{"x" * (BYTES - 30)}"}}'.encode(), f"m{n}") for n in range(count)]


@asynccontextmanager
async def a_store() -> AsyncIterator[tuple[str, mg.Client]]:
    """An empty store, and a client of it."""
    with tempfile.TemporaryDirectory(prefix="makegood-") as folder:
        url = f"sqlite:///{folder}/store.db"
        async with mg.Client(url, migrate=True) as client:
            yield url, client


async def reached(client: mg.Client, count: int, *, tasks: bool) -> None:
    """Wait until there are so many tasks, or messages in queues and tasks."""
    while True:
        done = await client.count(Filter())
        if not tasks:
            done += sum(view.waiting + view.taken + view.delayed for view in await client.queues())
        if done >= count:
            return
        await asyncio.sleep(_LOOK)


async def timed(
    queue: str, url: str, client: mg.Client, count: int, options: Options, *, tasks: bool
) -> float:
    """Return the rate at which a process with an inbox makes tasks; or a process that only relays fills the queue."""
    parts: dict[str, Any] = {"roles": ("inbox",)} if tasks else {"roles": ("relay",), "outbox": queue}
    began = time.perf_counter()
    async with mg.Node(app_for(queue) if tasks else None, url, options=options, **parts):
        await reached(client, count, tasks=tasks)
        return count / (time.perf_counter() - began)


async def own_queue(drafts: Sequence[Draft]) -> float:
    """Return the rate of the store's own queue."""
    async with a_store() as (url, client):
        for n in range(0, len(drafts), 200):
            await asyncio.gather(
                *(
                    client.send(QUEUE, {"text": draft.body.decode()}, id=draft.id)
                    for draft in drafts[n : n + 200]
                )
            )
        return await timed(QUEUE, url, client, len(drafts), Options(), tasks=True)


def written(address: BrokerAddress) -> str:
    """Return an address with its parameters."""
    parameters = "&".join(f"{name}={value}" for name, value in address.parameters.items())
    return f"{address}?{parameters}" if parameters else str(address)


async def of_broker(rig: Rig, drafts: Sequence[Draft], name: str, *, tasks: bool) -> float:
    """Return the rate of a broker."""
    address = await rig.declare(name)
    for n in range(0, len(drafts), 500):
        await rig.publish(address.place, drafts[n : n + 500])
    async with a_store() as (url, client):
        options = Options(brokers={address.name: rig.target.url})
        return await timed(written(address), url, client, len(drafts), options, tasks=tasks)


async def at_rest(queue: str, options: Options, seconds: float) -> float:
    """Return the share of a core that a process takes with nothing to do."""
    async with a_store() as (url, _), mg.Node(app_for(queue), url, roles=("inbox",), options=options):
        await asyncio.sleep(2.0)
        before, began = sum(os.times()[:2]), time.perf_counter()
        await asyncio.sleep(seconds)
        return (sum(os.times()[:2]) - before) / (time.perf_counter() - began)


async def main(names: Sequence[str], count: int, seconds: float) -> None:
    """Print the table."""
    drafts = messages(count)
    own, idle = await own_queue(drafts), await at_rest(QUEUE, Options(), seconds)
    print(f"{'':<18} {'tasks/s':>9} {'of own':>7} {'take/s':>9} {'rest':>7}")
    print(f"{'own queue':<18} {own:>9,.0f} {1:>7.2f} {'':>9} {idle:>7.2%}", flush=True)
    for number, name in enumerate(names):
        rig = open_rig(name)
        try:
            rate = await of_broker(rig, drafts, f"tasks{number}", tasks=True)
            take = await of_broker(rig, drafts, f"take{number}", tasks=False)
            address = await rig.declare(f"rest{number}")
            rest = await at_rest(written(address), Options(brokers={address.name: rig.target.url}), seconds)
        finally:
            rig.close()
        print(
            f"{name:<18} {rate:>9,.0f} {rate / own:>7.2f} {take:>9,.0f} {max(0.0, rest - idle):>7.2%}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rigs", nargs="*", default=list(RIGS), choices=list(RIGS))
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a process at rest is watched")
    arguments = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    asyncio.run(main(arguments.rigs, arguments.messages, arguments.seconds))
