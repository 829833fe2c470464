"""What tasks cost that only wait: many of them asleep in the store, beside a Node that works.

    python -m benchmarks.sleeping sqlite:///sleeping.db 100000
    python -m benchmarks.sleeping postgresql://postgres@127.0.0.1/sleeping 100000 --others 5000

One process runs all roles. A service asks each task to come back at one moment, the same for all; ``--after`` says in how many
seconds that is, and must be long enough for all of them to fall asleep. It prints, line by line:

``alone``    tasks of one step per second, before any task sleeps
``beside``   the same beside those that sleep
``memory``   what those that sleep add to the memory of the process, in bytes for each
``drained``  how many of them end per second once their moment has come, from the moment to the end of the last one
"""

import argparse
import asyncio
import gc
import time
from pathlib import Path
from typing import Any, Final

import makegood as mg
from makegood.node.node import Node
from makegood.options import Options
from makegood.store import open_store
from makegood.store.views import Filter

ROLES: Final = ("scheduler", "agent", "supervisor")
BATCH: Final = 5_000


def memory() -> int:
    """Return the bytes of memory that the process has."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


class Shop:
    """An app whose service is closed until ``opens``, by the machine's clock, and a step that always runs."""

    def __init__(self) -> None:
        self.opens = 0.0
        self.app = app = mg.App("sleeping")
        desk = app.agent("desk", concurrency=1000)

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def closed(order: str) -> str:
            if (left := self.opens - time.time()) > 0:
                raise mg.Later(left)
            return order

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def step(order: str) -> str:
            return order

        @app.workflow()
        def sleeper(order: str) -> str:
            return closed(order)

        @app.workflow()
        def other(order: str) -> str:
            return step(order)

        self.sleeper, self.other = sleeper, other


async def moment_of(node: Node, state: Any, workflow: str, count: int) -> float:
    """Wait until so many tasks of a workflow are in a state; return when, by the local clock."""
    condition = Filter(states=(state,), workflow=workflow)
    while await node.client.count(condition) < count:
        await asyncio.sleep(0.25)
    return time.monotonic()


async def rate(node: Node, shop: Shop, count: int, before: int) -> float:
    """Return how many tasks of one step end per second; ``before``: how many ended before these."""
    began = time.monotonic()
    for first in range(0, count, BATCH):
        orders = [f"{n}" for n in range(first, min(first + BATCH, count))]
        await node.client.submit_many(shop.other, orders)
    return count / (await moment_of(node, "processed", "other", before + count) - began)


async def run(url: str, count: int, others: int, after: float) -> None:
    """Print the figures."""
    shop, store = Shop(), open_store(url)
    await store.open(migrate=True)
    async with Node(shop.app, store, roles=ROLES, options=Options(cleanup_every="1h")) as node:
        await rate(node, shop, others, 0)  # to warm up
        print(f"alone    {await rate(node, shop, others, others):,.0f} tasks/s", flush=True)
        empty = memory()
        shop.opens = time.time() + after
        for first in range(0, count, BATCH):
            await node.client.submit_many(
                shop.sleeper, [f"{n}" for n in range(first, min(first + BATCH, count))]
            )
        await moment_of(node, "sleeping", "sleeper", count)
        print(f"asleep   {count:,} after {after - (shop.opens - time.time()):.1f} s", flush=True)
        print(f"memory   {(memory() - empty) / count:,.0f} bytes for each", flush=True)
        print(f"beside   {await rate(node, shop, others, 2 * others):,.0f} tasks/s", flush=True)
        await asyncio.sleep(max(0.0, shop.opens - time.time()))
        began = time.monotonic()
        print(
            f"drained  {count / (await moment_of(node, 'processed', 'sleeper', count) - began):,.0f} tasks/s",
            flush=True,
        )


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sleeping")
    parser.add_argument("store")
    parser.add_argument("count", type=int)
    parser.add_argument("--others", type=int, default=5_000)
    parser.add_argument(
        "--after", type=float, default=0.0, help="seconds; default: 20, and 1 for each 500 tasks"
    )
    arguments = parser.parse_args()
    asyncio.run(
        run(arguments.store, arguments.count, arguments.others, arguments.after or 20 + arguments.count / 500)
    )


if __name__ == "__main__":
    main()
