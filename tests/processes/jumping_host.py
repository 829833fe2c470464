"""A process that runs every role, on a machine whose clock on the wall is set forward and back, and the workflows that wait there.

``python -m tests.processes.jumping_host --store URL --name NAME --options JSON --jump FILE``; FILE has the seconds by which the
clock is ahead now.
"""

import argparse
import asyncio
import json
import logging
import sys
from datetime import datetime
from pathlib import Path

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.options import Options
from tests.processes.zone_host import opened

app = mg.App("waits")
answer = app.signal("answer", str)


@app.workflow
def nap() -> str:
    """Sleep for three seconds."""
    mg.sleep("3s")
    return "rested"


@app.workflow
def asked() -> str:
    """Wait three seconds for an answer that nobody gives."""
    return mg.wait_for(answer, timeout="3s", otherwise="nobody")


@app.workflow
def begun() -> str:
    """End at once."""
    return "begun"


@app.workflow
def until(moment: datetime) -> str:
    """Sleep until a moment of the calendar."""
    mg.sleep_until(moment)
    return "come"


class JumpingClock(SystemClock):
    """The machine's clocks, of which the one on the wall is ahead by what a file says."""

    def __init__(self, jump: Path) -> None:
        super().__init__()
        self._jump = jump

    def wall(self) -> float:
        """Seconds since 1970."""
        return super().wall() + float(self._jump.read_text(encoding="utf-8"))


async def live(arguments: argparse.Namespace) -> None:
    """Run until told to stop."""
    clock, options = JumpingClock(arguments.jump), Options(**arguments.options)
    async with opened(arguments.store, clock) as store:
        node = mg.Node(app, store, name=arguments.name, options=options, clock=clock)
        await node.run(lambda: print("started", node.number, flush=True))


def main() -> None:
    """Begin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--options", type=json.loads, required=True)
    parser.add_argument("--jump", type=Path, required=True)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    asyncio.run(live(parser.parse_args()))


if __name__ == "__main__":
    main()
