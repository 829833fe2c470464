"""Orders through a broker while relay, broker and everything else are killed: each is one task, each notice comes in order."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

import makegood as mg
from makegood.store.views import Filter
from tests.brokers.reading import drafts, fresh_place
from tests.brokers.rig import Draft, Rig
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
STATES = ["received", "processing", "processed"]
LONG = 300.0

pytestmark = pytest.mark.timeout(3 * LONG)


class Processes:
    """Processes of the shop, each with all roles."""

    def __init__(self, folder: Path, rig: Rig, source: str, notices: str) -> None:
        self.store = f"sqlite:///{folder}/store.db"
        self._log = folder / "log"
        name = rig.target.name
        self._env = {
            **os.environ,
            "MAKEGOOD_TEST_BOOKS": str(folder / "books.db"),
            "MAKEGOOD_TEST_SOURCE": source,
            "MAKEGOOD_TEST_NOTICES": notices,
            f"MAKEGOOD_BROKERS_{name.upper()}": rig.target.url,
            "MAKEGOOD_REPLY_TO_BROKERS": notices,
            "MAKEGOOD_WEBHOOK_TIMEOUT": "5s",
            "MAKEGOOD_DEAD_AFTER": "1m",
            "MAKEGOOD_HEARTBEAT": "0.5s",
            "MAKEGOOD_LEASE": "10s",
            "MAKEGOOD_SUPERVISE_EVERY": "1s",
        }
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start one more."""
        words = [
            sys.executable,
            "-m",
            "makegood",
            "run",
            "tests.brokers.order_app:shop",
            "--store",
            self.store,
        ]
        with self._log.open("ab") as log:
            self.running.append(
                subprocess.Popen(words, cwd=ROOT, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
            )  # fmt: skip

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill one."""
        self.running.remove(process)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def check(self) -> None:
        """Fail if one has ended by itself."""
        for process in self.running:
            if process.poll() is not None:
                pytest.fail(
                    f"a process ended with {process.returncode}:\n{self._log.read_text(errors='replace')[-3000:]}"
                )

    def close(self) -> None:
        """Kill all."""
        for process in list(self.running):
            self.kill(process)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="makegood-") as path:
        yield Path(path)


async def published(rig: Rig, place: str, batch: Sequence[Draft]) -> None:
    """Publish until the broker has confirmed it: again, with the same ids, while it is away."""
    while True:
        with suppress(Exception):
            async with asyncio.timeout(30):
                await rig.publish(place, batch)
                return
        await asyncio.sleep(0.3)


async def ordered(rig: Rig, processes: Processes, place: str, orders: Sequence[Draft]) -> None:
    """Publish orders, some twice, while the processes and the broker are killed."""
    rng = random.Random(1)
    for n in range(0, len(orders), 25):
        batch = orders[n : n + 25]
        await published(rig, place, batch)
        await published(rig, place, rng.sample(batch, 5))  # a publisher that did not hear
        await asyncio.sleep(1.0)
        processes.check()
        if n % 50 == 25:
            processes.kill(rng.choice(processes.running))
            processes.start()
        elif rig.keeps_over_restart and n == 100:
            rig.kill()
            await asyncio.sleep(1.0)
            rig.start()
        elif n:
            with suppress(Exception):  # it may have none
                await rig.disconnect(place)


async def settled(client: mg.Client, processes: Processes, count: int) -> list[str]:
    """Wait until so many tasks have ended and all notices are sent; return the states of all tasks."""

    async def ended() -> bool:
        processes.check()
        return await client.count(Filter(states=("processed", "undone", "error"))) >= count

    async def nothing_waits() -> bool:
        brokers = await client.brokers()
        waiting = [each.waiting for each in brokers.receivers] + [each.waiting for each in brokers.sources]
        return not any(waiting)

    await until(ended, "all orders to be tasks that have ended", LONG)
    await until(nothing_waits, "all notices to be sent, and the source to be empty", LONG)
    assert await client.messages(dead=True) == []
    return [task.state for task in await client.find(Filter(limit=1000))]


async def test_each_order_is_one_task_and_each_notice_comes_in_order(rig: Rig, folder: Path) -> None:
    if not rig.takes_ids:
        pytest.skip(f"{rig.kind}: no sender can say an id, so a publisher's own repetition is two messages")
    source, notices = await rig.declare(fresh_place()), await rig.declare(fresh_place())
    with closing(sqlite3.connect(folder / "books.db")) as books, books:
        books.execute("pragma journal_mode = wal")
        books.execute("create table hold (key text primary key, the_order text, stands int)")
    parameters = "&".join(f"{name}={value}" for name, value in source.parameters.items())
    processes = Processes(folder, rig, f"{source}?{parameters}" if parameters else str(source), str(notices))
    orders = drafts(200, "o")
    try:
        async with mg.Client(processes.store, migrate=True) as client:
            for _ in range(2):
                processes.start()
            await ordered(rig, processes, source.place, orders)
            states = await settled(client, processes, len(orders))
    finally:
        processes.close()
    assert states == ["processed"] * len(orders)
    with closing(sqlite3.connect(folder / "books.db")) as books:
        holds = books.execute(
            "select the_order, count(*) from hold where stands group by the_order"
        ).fetchall()
    assert sorted(holds) == sorted((f"o{n}", 1) for n in range(len(orders)))
    histories: dict[str, list[str]] = {}
    ids: set[str] = set()

    async def all_read() -> bool:
        for message in await rig.read(notices.place):
            event = json.loads(message.body)
            if event["id"] not in ids:
                ids.add(event["id"])
                histories.setdefault(event["data"]["correlation_id"], []).append(event["data"]["state"])
        return len(ids) >= len(STATES) * len(orders)

    await until(all_read, "all notices to be read", LONG)
    assert histories == {f"o{n}": STATES for n in range(len(orders))}
