"""What tasks cost that only wait: many of them asleep in the store, beside a Node that works.

    python -m benchmarks.sleeping sqlite:///sleeping.db 100000
    python -m benchmarks.sleeping postgresql://postgres@127.0.0.1/sleeping 100000 --others 5000
    python -m benchmarks.sleeping sqlite:///sleeping.db 30000 --only slept

One process runs all roles. It prints a line for each figure, rates with the CPU time of this process for each task:

``alone``    tasks of one step, before any task sleeps
``beside``   the same beside those that sleep, each of which its service has asked to come back at one moment
``memory``   what those that sleep add to the memory of the process, in bytes for each
``drained``  those that sleep, once their moment has come, from the moment to the step of the last one

Then that many tasks wait in a store where no Node works until all of them are due, and a new Node runs them, each to
the end of its one step: ``pending`` did not sleep at all, ``delayed`` were submitted with a delay, ``slept`` began
with mg.sleep, and ``timeout`` with mg.wait_for. They have ten priorities. ``--after`` says for how many seconds tasks
wait: long enough for all of them to fall asleep.
A figure ends when the last step has run: to count ended tasks beside a million others would cost more than the tasks.
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
KINDS: Final = ("pending", "delayed", "slept", "timeout")
BATCH: Final = 1_000


def memory() -> int:
    """Return the bytes of memory that the process has."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


class Shop:
    """An app whose service is closed until ``opens``, by the machine's clock, and a step that always runs."""

    def __init__(self) -> None:
        self.opens, self.count = 0.0, 0
        """When the service opens; how many steps have run."""
        self.app = app = mg.App("sleeping")
        desk = app.agent("desk", concurrency=1000)

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def closed(order: str) -> str:
            if (left := self.opens - time.time()) > 0:
                raise mg.Later(left)
            self.count += 1
            return order

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def step(order: str) -> str:
            self.count += 1
            return order

        @app.workflow()
        def sleeper(order: str) -> str:
            return closed(order)

        @app.workflow()
        def other(order: str) -> str:
            return step(order)

        @app.workflow()
        def slept(seconds: float) -> str:
            mg.sleep(seconds)
            return step("order")

        @app.workflow()
        def timeout(seconds: float) -> str:
            mg.wait_for("answer", str, timeout=seconds, otherwise="none")
            return step("order")

        self.sleeper, self.other, self.slept, self.timeout = sleeper, other, slept, timeout

    async def ran(self, count: int) -> None:
        """Wait until so many steps have run."""
        while self.count < count:
            await asyncio.sleep(0.01)


class Stopwatch:
    """Wall time, and CPU time of this process, since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def rate(self, count: int) -> str:
        """Return how fast ``count`` tasks ended since."""
        wall, cpu = time.monotonic() - self._wall, time.process_time() - self._cpu
        return f"{count / wall:,.0f} tasks/s, {cpu / count * 1e6:,.0f} µs of CPU for each"


async def asleep(node: Node, workflow: str, count: int) -> None:
    """Wait until so many tasks of a workflow sleep."""
    condition = Filter(states=("sleeping",), workflow=workflow)
    while await node.client.count(condition) < count:
        await asyncio.sleep(0.5)


async def submit(client: mg.Client, workflow: Any, count: int, value: Any, **terms: Any) -> None:
    """Submit tasks, a batch of each priority in turn."""
    for n, first in enumerate(range(0, count, BATCH)):
        values = [value] * min(BATCH, count - first)
        await client.submit_many(workflow, values, priority=n % 10, **terms)


async def rate(node: Node, shop: Shop, count: int) -> str:
    """Return how fast tasks of one step run."""
    stopwatch, last = Stopwatch(), shop.count + count
    await submit(node.client, shop.other, count, "order")
    await shop.ran(last)
    return stopwatch.rate(count)


async def beside(node: Node, shop: Shop, count: int, others: int, after: float) -> None:
    """Print the figures of a Node that works while tasks sleep."""
    await rate(node, shop, others)  # to warm up
    print(f"alone    {await rate(node, shop, others)}", flush=True)
    empty = memory()
    shop.opens = time.time() + after
    await submit(node.client, shop.sleeper, count, "order")
    await asleep(node, "sleeper", count)
    print(f"asleep   {count:,} after {after - (shop.opens - time.time()):.1f} s", flush=True)
    print(f"memory   {(memory() - empty) / count:,.0f} bytes for each", flush=True)
    print(f"beside   {await rate(node, shop, others)}", flush=True)
    await asyncio.sleep(max(0.0, shop.opens - time.time()))
    stopwatch = Stopwatch()
    await shop.ran(3 * others + count)
    print(f"drained  {stopwatch.rate(count)}", flush=True)


async def drain(url: str, shop: Shop, kind: str, count: int, after: float) -> None:
    """Print how fast a new Node ends tasks that wait, all of them due."""
    options, last = Options(cleanup_every="1h"), shop.count + count
    workflow = getattr(shop, kind, shop.other)
    async with Node(shop.app, url, roles=ROLES, options=options) as node:
        opens = time.time() + after
        if kind == "delayed":
            await submit(node.client, workflow, count, "order", delay=after)
        elif kind != "pending":
            await submit(node.client, workflow, count, after)
            await asleep(node, kind, count)
            opens = time.time() + after  # of the last one
    if kind == "pending":
        async with mg.Client(url) as client:
            await submit(client, workflow, count, "order")
    else:
        await asyncio.sleep(max(0.0, opens - time.time()))
    async with Node(shop.app, url, roles=ROLES, options=options) as node:
        stopwatch = Stopwatch()
        await shop.ran(last)
        print(f"{kind:8} {stopwatch.rate(count)}", flush=True)


async def run(url: str, count: int, others: int, after: float, only: str | None) -> None:
    """Print the figures."""
    shop = Shop()
    store = open_store(url)
    await store.open(migrate=True)
    await store.close()
    if only in (None, "beside"):
        async with Node(shop.app, url, roles=ROLES, options=Options(cleanup_every="1h")) as node:
            await beside(node, shop, count, others, after)
    for kind in KINDS:
        if only in (None, kind):
            await drain(url, shop, kind, count, after)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sleeping")
    parser.add_argument("store")
    parser.add_argument("count", type=int)
    parser.add_argument("--others", type=int, default=5_000)
    parser.add_argument(
        "--after", type=float, default=0.0, help="seconds; default: 20, and 1 for each 500 tasks"
    )
    parser.add_argument("--only", choices=("beside", *KINDS), help="only this part")
    arguments = parser.parse_args()
    after = arguments.after or 20 + arguments.count / 500
    asyncio.run(run(arguments.store, arguments.count, arguments.others, after, arguments.only))


if __name__ == "__main__":
    main()
