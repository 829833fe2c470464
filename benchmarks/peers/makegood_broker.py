"""makegood as a reader from a broker: an inbox that writes a row, in the transaction that settles its message.

``python -m benchmarks.peers.makegood_broker``; what it reads is published by the rig of the tests.
"""

import asyncio
import os
from typing import Any

import makegood as mg
from makegood.brokers.redis import RedisSource
from makegood.options import Options

RedisSource.idle = float(os.environ["BENCH_AGAIN"])  # by default a minute
app = mg.App("bench")


@app.inbox(os.environ["BENCH_SOURCE"], lease=float(os.environ["BENCH_AGAIN"]), concurrency=50)
async def accept(order: dict[str, Any], tx: mg.Transaction) -> None:
    """Make a message durable."""
    await tx.execute_async("insert into made (n) values (?)", (order["n"],))


async def main() -> None:
    """Be one process."""
    options = Options(brokers={"main": os.environ["BENCH_URL"]})
    async with mg.Node(app, os.environ["BENCH_STORE"], roles=("inbox",), options=options):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
