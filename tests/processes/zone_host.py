"""A Supervisor on a host with zone rules of its own, and a calendar that may run fast.

``python -m tests.processes.zone_host RULES --store URL --name NAME --options JSON [--calendar START,BEGIN,DAY]``

What looks at the rules on disk each minute does so many times a second here, as all that lasts seconds in earnest.
"""

import argparse
import asyncio
import json
import logging
import sys
import time
import zoneinfo
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from makegood import App, Node
from makegood.base.clock import SystemClock
from makegood.node import heartbeat
from makegood.options import Options
from makegood.store import Store, open_store
from makegood.store.sqlite import SQLiteStore
from makegood.supervisor import firings

OFTEN = 0.2
"""Seconds between two looks."""


class FastCalendar(SystemClock):
    """The machine's clocks, except that the one on the wall shows ``start`` (seconds since 1970) at the instant ``begin`` of the
    other one, and a day in each ``day`` seconds.
    """

    def __init__(self, start: float, begin: float, day: float) -> None:
        super().__init__()
        self.start, self.begin, self.day = start, begin, day

    def wall(self) -> float:
        """Seconds since 1970."""
        return self.start + (time.monotonic() - self.begin) * 86_400 / self.day

    def __str__(self) -> str:
        """Return it as an argument of the command line."""
        return f"{self.start},{self.begin},{self.day}"


@asynccontextmanager
async def opened(url: str, clock: SystemClock | None) -> AsyncIterator[Store]:
    """Open the store of ``url``; ``clock``: of this machine, which is the calendar of a SQLite file."""
    path = url.removeprefix("sqlite:///")
    store = open_store(url) if clock is None or path == url else SQLiteStore(Path(path), clock=clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def live(arguments: argparse.Namespace) -> None:
    """Run until told to stop."""
    calendar = arguments.calendar and FastCalendar(*map(float, arguments.calendar.split(",")))
    options = Options(**arguments.options)
    async with opened(arguments.store, calendar) as store:
        node = Node(App("hosts"), store, roles=("supervisor",), name=arguments.name, options=options)
        await node.run(lambda: print("started", node.number, flush=True))


def main() -> None:
    """Begin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rules")
    parser.add_argument("--store", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--options", type=json.loads, required=True)
    parser.add_argument("--calendar")
    arguments = parser.parse_args()
    zoneinfo.reset_tzpath([arguments.rules])
    firings.POLL = firings.RULES_EVERY = heartbeat.ZONES_EVERY = OFTEN
    logging.basicConfig(
        level=logging.DEBUG, stream=sys.stdout, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    asyncio.run(live(arguments))


if __name__ == "__main__":
    main()
