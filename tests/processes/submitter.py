"""Submits tasks until it is killed, and writes the id of each acknowledged one.

``python -m tests.processes.submitter URL PAGES AT_ONCE [slow]``. ``PAGES``: the length of SQLite's log at which this
process merges it. ``AT_ONCE``: tasks submitted together. ``slow``: a merge waits before its lock, and in the moment in which the WAL-reset bug strikes.
"""

import asyncio
import itertools
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import makegood as mg
from makegood.base import sqlite_log
from proofs.powercut.disk import Tape
from proofs.powercut.listening import listening

app = mg.App("submitter")
service = app.agent("service")

CHECKPOINT_LOCK = 1


@service.action(complete_within="30s", undo=mg.NOTHING)
def call(number: int) -> None:
    """Nobody runs it."""


@app.workflow(complete_within="1h")
def order(number: int) -> None:
    """One step."""
    call(number)


async def submit(url: str, at_once: int) -> None:
    """Submit on and on."""
    async with mg.Client(url) as client:
        for number in itertools.count():
            tasks = await asyncio.gather(*(client.submit(order, number) for _ in range(at_once)))
            sys.stdout.write("".join(f"task {task.id}\n" for task in tasks))
            sys.stdout.flush()


class SlowCheckpoints(Tape):
    """Makes checkpoints wait in the moment in which the WAL-reset bug strikes."""

    def checkpointing(self, name: str) -> None:
        """Wait for a commit or two of the others."""
        del name
        self.entries.clear()
        time.sleep(random.random() * 0.01)

    def locking(self, name: str, lock: int) -> None:
        """Wait before the lock of checkpoints, so that another process may merge the log first."""
        if lock == CHECKPOINT_LOCK:
            time.sleep(random.random() * 0.01)


def main() -> None:
    """Submit."""
    url, pages, at_once, *how = sys.argv[1:]
    sqlite_log.PAGES = int(pages)  # type: ignore[misc]
    with ExitStack() as stack:
        if how:
            sqlite_log._PAUSE = 0.0
            stack.enter_context(listening(Path(url.removeprefix("sqlite:///")).parent, SlowCheckpoints()))
        asyncio.run(submit(url, int(at_once)))


if __name__ == "__main__":
    main()
