"""A process that reads from a broker, and says on its output how far it is: ``reader_process.py POINT`` with a JSON object on its input.

It takes all, "commits" (prints what it took), acknowledges up to its point, and waits to be killed.
"""

import asyncio
import json
import sys
from typing import Any

from makegood.brokers import BrokerAddress, Reader, Target, open_source


async def main(order: dict[str, Any]) -> None:
    """Read ``count`` messages and acknowledge the first ``acknowledge`` of them."""
    address = BrokerAddress(order["kind"], order["name"], order["place"], order["parameters"])
    target = Target(order["kind"], order["name"], order["url"])
    source = open_source(address, {target.name: target}, Reader(order["group"], "doomed", order["count"]))
    await source.open()
    deliveries: list[Any] = []
    while len(deliveries) < order["count"]:
        deliveries += await source.take(order["count"] - len(deliveries), 1.0)
    print(json.dumps([delivery.id for delivery in deliveries]), flush=True)
    await source.acknowledge(deliveries[: order["acknowledge"]])
    print("acknowledged", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.stdin.readline())))
