"""Messages from a broker made durable, beside Celery and FastStream: how many a second, and what each loses or does twice when it is killed.

    .venv/bin/python -m benchmarks.broker_peers
    .venv/bin/python -m benchmarks.broker_peers --only makegood,celery --brokers rabbitmq --messages 1000 --kills 5

Each reader writes a row for each message (500 bytes) into a table of SQLite, in a transaction that is synced to the disk; each has the
settings that its documents advise against loss, which are in ``benchmarks/peers/*_broker.py``. The brokers are private, real servers
on this machine, as the tests start them: RabbitMQ with classic durable queues, Redis that syncs each command, NATS with a stream in files.

*Rate*: all messages are at the broker before the reader starts, and the clock runs from its first row to its last.
*Kills*: before each, a part of the messages is published and the reader is started; it gets SIGKILL at a random moment of the time that its
rate allows for this part. After the last it is started once more, until all rows are there, or none has come for a minute and a half. *Lost*: messages
without a row. *Twice*: rows beyond the first of a message. What a dead reader had taken comes again after ``AGAIN`` seconds where a clock decides.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import makegood as mg
from benchmarks.brokers import written
from benchmarks.environments import ROOT, MissingError, interpreter
from benchmarks.peers.books import PATH, TABLE
from tests.brokers.rig import Draft, Rig
from tests.brokers.rigs import nats, open_rig
from tests.brokers.rigs.nats import NatsRig
from tests.brokers.rigs.rabbitmq import RabbitRig

BYTES = 500
AGAIN = 5.0
"""Seconds after which Redis, NATS and makegood's own queue return what a dead reader had taken."""
PATIENCE = 120.0
QUIET = 90.0
_LOOK = 0.005


@dataclass(frozen=True)
class Cell:
    """A reader and a broker. ``rig``: the broker's name among those of the tests; ``environment``: where the reader's packages are."""

    peer: str
    broker: str
    rig: str
    environment: str


CELLS = (
    Cell("makegood", "RabbitMQ", "rabbitmq-classic", "makegood"),
    Cell("celery", "RabbitMQ", "rabbitmq-classic", "celery-broker"),
    Cell("faststream", "RabbitMQ", "rabbitmq-classic", "faststream"),
    Cell("makegood", "Redis", "redis", "makegood"),
    Cell("celery", "Redis", "redis", "celery-broker"),
    Cell("faststream", "Redis", "redis", "faststream"),
    Cell("makegood", "NATS", "nats-2.9", "makegood"),
    Cell("faststream", "NATS", "nats-2.9", "faststream"),
)


class Reader:
    """A reader of one broker's queue in a process of its own, with its table in ``folder``."""

    def __init__(self, cell: Cell, rig: Rig, folder: Path, queue: str) -> None:
        self._cell, self._rig, self._folder = cell, rig, folder
        self._queue = queue
        self._python = interpreter(cell.environment)
        self._own = cell.peer == "makegood"
        self._process: subprocess.Popen[bytes] | None = None
        self._books = folder / ("store.db" if self._own else "books.db")
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
            PATH: str(self._books),
            "BENCH_AGAIN": str(AGAIN),
            "BENCH_BYTES": str(BYTES - 30),
            "BENCH_QUEUE": queue,
            "BENCH_STORE": f"sqlite:///{self._books}",
            "BENCH_URL": rig.target.url if self._own else administrator(rig),
        }

    async def prepare(self) -> None:
        """Make the table, and for makegood the queue: its peers declare theirs."""
        if self._own:
            async with mg.Client(self._environment["BENCH_STORE"], migrate=True):
                address = await self._rig.declare(self._queue)
                self._environment["BENCH_SOURCE"] = written(address)
        with contextlib.closing(sqlite3.connect(self._books)) as books:
            books.execute("pragma journal_mode = wal")
            books.execute(TABLE)

    async def publish(self, first: int, count: int) -> None:
        """Publish messages with rising numbers, and wait until the broker keeps them."""
        if self._own:
            text = "x" * (BYTES - 30)
            await self._rig.publish(
                self._queue,
                [
                    Draft(f'{{"n": {n}, "text": "{text}"}}'.encode(), f"m{n}")
                    for n in range(first, first + count)
                ],
            )
            return
        module = f"benchmarks.peers.{self._cell.peer}_broker"
        words = [] if self._cell.peer == "celery" else ["publish"]
        command = [str(self._python), "-m", module, *words, str(first), str(count)]
        with (self._folder / "published.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=self._environment, stdout=log, stderr=log
            )
        if await process.wait():
            raise MissingError(f"{module} did not publish: {self._last_words('published.log')}")

    def start(self) -> None:
        """Start it."""
        module = f"benchmarks.peers.{self._cell.peer}_broker"
        words = {
            "makegood": ["-m", module],
            "faststream": ["-m", module, "work"],
            "celery": [
                "-m", "celery", "-A", module, "worker", "-c", "2", "-P", "prefork", "-l", "WARNING", "--without-gossip", "--without-mingle",
            ],
        }  # fmt: skip
        with (self._folder / "read.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._python, *words[self._cell.peer]], cwd=ROOT, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )  # fmt: skip

    def kill(self) -> None:
        """Kill it, and its children."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @contextlib.contextmanager
    def rows(self) -> Iterator[sqlite3.Connection]:
        """A connection to the table."""
        with contextlib.closing(sqlite3.connect(self._books, timeout=60)) as books:
            yield books

    async def beyond(self, count: int, patience: float = PATIENCE) -> int:
        """Wait until there are more rows than this; return how many. Raises ``MissingError`` after ``patience`` seconds."""
        deadline = time.monotonic() + patience
        with self.rows() as books:
            while True:
                (rows,) = books.execute("select coalesce(max(row), 0) from made").fetchone()
                if rows > count:
                    return int(rows)
                if self._process is not None and self._process.poll() is not None:
                    raise MissingError(f"{self._cell.peer} ended: {self._last_words('read.log')}")
                if time.monotonic() > deadline:
                    raise MissingError(f"{self._cell.peer} wrote nothing: {self._last_words('read.log')}")
                await asyncio.sleep(_LOOK)

    def counted(self) -> tuple[int, int]:
        """Return the rows, and of how many messages they are."""
        with self.rows() as books:
            rows, messages = books.execute("select count(*), count(distinct n) from made").fetchone()
        return int(rows), int(messages)

    def _last_words(self, log: str) -> str:
        path = self._folder / log
        lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
        return lines[-1][:200] if lines else "it said nothing"


def administrator(rig: Rig) -> str:
    """Return the URL of a broker for somebody who may declare what a peer needs."""
    if isinstance(rig, RabbitRig):
        return rig.url(rig.server.user, rig.server.password).partition("?")[0]
    if isinstance(rig, NatsRig):
        return f"nats://admin:{nats.ADMIN}@127.0.0.1:{rig.server.port}"
    port = rig.target.url.rpartition(":")[2].partition("/")[0]
    return f"redis://127.0.0.1:{port}/0"


async def rate_of(reader: Reader, count: int) -> float:
    """Return how many messages a second a reader makes durable."""
    await reader.prepare()
    await reader.publish(0, count)
    reader.start()
    try:
        first = last = await reader.beyond(0)
        begun = time.perf_counter()
        while last < count:
            last = await reader.beyond(last)
        return (last - first) / (time.perf_counter() - begun) if last > first else float("inf")
    finally:
        reader.kill()


async def killed(reader: Reader, count: int, kills: int, rate: float, rng: random.Random) -> tuple[int, int]:
    """Return how many messages a reader lost, and how many rows it wrote too many."""
    await reader.prepare()
    part = count // kills
    try:
        for n in range(kills):
            await reader.publish(n * part, part)
            rows, _ = reader.counted()
            reader.start()
            await reader.beyond(rows)
            await asyncio.sleep(rng.uniform(0, part / rate))
            reader.kill()
        reader.start()
        rows, messages = reader.counted()
        while messages < part * kills:
            with contextlib.suppress(MissingError):
                await reader.beyond(rows, QUIET)
            before, (rows, messages) = rows, reader.counted()
            if rows == before:
                break
        await asyncio.sleep(AGAIN + 2)  # what is still to come is a repetition
        rows, messages = reader.counted()
    finally:
        reader.kill()
    return part * kills - messages, rows - messages


async def measured(cell: Cell, plan: argparse.Namespace) -> str:
    """Return what a reader does, as a part of its line in the table."""
    rig = open_rig(cell.rig)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="makegood-") as one,
            tempfile.TemporaryDirectory(prefix="makegood-") as two,
        ):
            rate = await rate_of(Reader(cell, rig, Path(one), f"orders-{cell.peer}-rate"), plan.messages)
            reader = Reader(cell, rig, Path(two), f"orders-{cell.peer}-kills")
            lost, twice = await killed(reader, plan.passing, plan.kills, rate, random.Random(plan.seed))
        return f"{rate:>10,.0f} {lost:>6} {twice:>6}"
    except MissingError as reason:
        return f"not measured: {reason}"
    finally:
        rig.close()


async def main(plan: argparse.Namespace) -> None:
    """Print the table."""
    print(
        f"{'':<12} {'':<10} {'messages/s':>10} {'lost':>6} {'twice':>6}   ({plan.kills} kills while {plan.passing} messages pass)"
    )
    for cell in CELLS:
        if cell.peer in plan.only.split(",") and cell.broker.lower() in plan.brokers.split(","):
            line = await measured(cell, plan)
            print(f"{cell.peer:<12} {cell.broker:<10} {line}   load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="makegood,celery,faststream", help="which readers")
    parser.add_argument("--brokers", default="rabbitmq,redis,nats", help="which brokers")
    parser.add_argument("--messages", type=int, default=3000, help="messages of the rate")
    parser.add_argument("--passing", type=int, default=1000, help="messages that pass while it is killed")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(main(parser.parse_args()))
