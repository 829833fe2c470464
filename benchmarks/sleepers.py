"""A store full of sleepers, and processes that run Nodes on it: what ``benchmarks.waiting`` measures by the million.

A million tasks that fall asleep by themselves would take minutes. So the engine lets ten of each kind fall asleep, of ten
priorities, and SQL copies their rows: those of ``task``, ``step``, ``request`` (the timer) and ``event``.

    python -m benchmarks.sleepers STORE    # a Node that obeys lines from standard input, see ``serve``
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, Final, Literal

import asyncpg

import makegood as mg
from benchmarks.environments import ROOT
from benchmarks.meters import memory_of
from benchmarks.peers.makegood import _EVER
from makegood.cli import event_loop
from makegood.options import Options
from makegood.store import open_store
from makegood.store.signals import OutgoingSignal
from makegood.store.views import Filter

Kind = Literal["slept", "asked"]

PRIORITIES: Final = 10
FAR: Final = 10 * 3600.0
"""Seconds that the ten sleep."""
_ROLES: Final = ("scheduler", "agent", "supervisor")
_TABLES: Final = (("task", "id"), ("step", "task"), ("request", "task"), ("event", "task"))


class Shop:
    """An app whose tasks sleep, or wait for an answer, and then have one step."""

    def __init__(self) -> None:
        self.count, self.overtaken = 0, 0
        """How many steps have run; the most tasks of higher priorities that a step has overtaken."""
        self.left = [0] * PRIORITIES
        """By priority, the tasks whose step has not run yet."""
        self.app = app = mg.App("sleepers")
        desk = app.agent("desk", concurrency=1000)

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def step(priority: int) -> int:
            self.count += 1
            self.left[priority] -= 1
            if (higher := sum(self.left[priority + 1 :])) > self.overtaken:
                self.overtaken = higher
            return priority

        @app.workflow()
        def slept(priority: int) -> int:
            mg.sleep(FAR)
            return step(priority)

        @app.workflow()
        def asked(priority: int) -> int:
            mg.wait_for("answer", str)
            return step(priority)

        @app.workflow()
        def plain(priority: int) -> int:
            return step(priority)

        self.workflows = {"slept": slept, "asked": asked, "plain": plain}


async def fill(url: str, kind: Kind, count: int) -> None:
    """Fill an empty store with ``count`` tasks that sleep, ten of them made by the engine."""
    shop = Shop()
    store = open_store(url)
    await store.open(migrate=True)
    await store.close()
    async with mg.Node(shop.app, url, roles=_ROLES, options=Options(linger=0.1)) as node:
        for priority in range(PRIORITIES):
            await node.client.submit(shop.workflows[kind], priority, priority=priority)
        while await node.client.count(Filter(states=("sleeping",))) < PRIORITIES:
            await asyncio.sleep(0.05)
    copies = max(0, count - PRIORITIES)
    if url.startswith("sqlite"):
        await asyncio.to_thread(_copy_sqlite, url.removeprefix("sqlite:///"), copies)
    else:
        await _copy_postgres(url, copies)


def _copy_sqlite(path: str, count: int) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        with connection:
            connection.execute("begin immediate")
            connection.execute("create temp table origin as select id, priority from makegood_task")
            for table, key in _TABLES:
                names = [row[1] for row in connection.execute(f"pragma table_info(makegood_{table})")]
                columns = ", ".join(f"t.{name}" for name in names if name not in (key, "seq"))
                connection.execute(
                    "with recursive n (n) as (select 1 union all select n + 1 from n where n < ?) "
                    f"insert into makegood_{table} ({key}, {columns.replace('t.', '')}) select n.n, {columns} "
                    f"from n join origin o on o.priority = n.n % {PRIORITIES} join makegood_{table} t on t.{key} = o.id where n.n <= ?",
                    (max(1, count), count),
                )
        connection.execute("analyze")
        connection.execute("pragma wal_checkpoint(truncate)")


async def _copy_postgres(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("create temp table origin as select id, priority from makegood.task")
        for table, key in _TABLES:
            names = await connection.fetch(
                "select column_name from information_schema.columns where table_schema = 'makegood' and table_name = $1",
                table,
            )
            columns = ", ".join(f"t.{name}" for (name,) in names if name not in (key, "seq"))
            await connection.execute(
                f"insert into makegood.{table} ({key}, {columns.replace('t.', '')}) select n, {columns} "
                f"from generate_series(1, $1::bigint) n join origin o on o.priority = n % {PRIORITIES} "
                f"join makegood.{table} t on t.{key} = o.id",
                count, timeout=_EVER,
            )  # fmt: skip
        for table, _ in _TABLES:
            await connection.execute(f"vacuum analyze makegood.{table}", timeout=_EVER)
        await connection.execute("checkpoint", timeout=_EVER)
    finally:
        await connection.close()


async def execute(url: str, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """Execute statements in one transaction; ``{}`` stands for what comes before a table's name, ``$n`` for a value."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as connection, connection:
            for sql, values in statements:
                connection.execute(sql.replace("{}", "makegood_").replace("$", "?"), values)
        return
    server = await asyncpg.connect(url)
    try:
        async with server.transaction():
            for sql, values in statements:
                await server.execute(sql.replace("{}", "makegood."), *values, timeout=_EVER)
        for table in ("task", "request", "inbox", "signal"):
            await server.execute(f"vacuum analyze makegood.{table}", timeout=_EVER)
    finally:
        await server.close()


async def make_due(url: str, seconds: float) -> None:
    """Let all that sleep be due at one moment, in so many seconds."""
    store = open_store(url)
    await store.open()
    moment = await store.now() + seconds
    await store.close()
    await execute(
        url,
        ("update {}task set ready_seq = $1 where state = 'sleeping'", (round(moment * 1e6),)),
        ("update {}request set complete_by = $1 where kind = 'timer'", (moment,)),
    )


async def signal_all(url: str) -> None:
    """Leave each task that sleeps a signal, in one transaction: the rows that as many senders leave."""
    outgoing = OutgoingSignal(to=0, name="answer", id="answer-1", value=b'"yes"')
    asleep = "from {}task where state = 'sleeping'"
    await execute(
        url,
        (
            "insert into {}signal (task, name, id, at, digest) select id, 'answer', 'answer-1', created_at, $1 "
            + asleep,
            (outgoing.digest,),
        ),
        (
            "insert into {}inbox (task, kind, at, body) select id, 'signal', created_at, $1 " + asleep,
            (outgoing.message,),
        ),
    )


# -- a process with a Node -----------------------------------------------------------------------------------


async def serve(url: str) -> None:
    """Run a Node; obey lines of standard input, and answer each with a line of JSON:

    ``start``: starts the Node. ``count``: steps run, CPU seconds, the most tasks overtaken. ``expect N``: N tasks of each priority are to
    come. ``rate N``: runs N tasks of one step. ``memory``: MiB of this process. End of input: stops.
    """
    shop = Shop()
    node = mg.Node(shop.app, url, roles=_ROLES, options=Options(cleanup_every="1h"))
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )

    async def rate(count: int) -> dict[str, float]:
        end, begin, cpu = shop.count + count, time.perf_counter(), time.process_time()
        async for _ in node.client.submit_many(shop.workflows["plain"], [0] * count):
            pass
        while shop.count < end:
            await asyncio.sleep(0.002)
        seconds = time.perf_counter() - begin
        return {"rate": count / seconds, "cpu_us": (time.process_time() - cpu) / count * 1e6}

    is_started, idle_cpu = False, 0.0
    while line := (await reader.readline()).decode().split():
        answer: dict[str, Any] = {}
        if line[0] == "start":
            await node.start()
            is_started, idle_cpu = True, time.process_time()
        elif line[0] == "expect":
            shop.left = [int(line[1])] * PRIORITIES
        elif line[0] == "rate":
            answer = await rate(int(line[1]))
        elif line[0] == "memory":
            answer = {"mib": memory_of(os.getpid())}
        else:
            answer = {"count": shop.count, "cpu": time.process_time() - idle_cpu, "overtaken": shop.overtaken}
        print(json.dumps(answer), flush=True)
    if is_started:
        await node.stop()


class Process:
    """A process with a Node, from outside."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def on(cls, url: str) -> "Process":
        """Start it; its Node begins with ``start``."""
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.sleepers", url,
                cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )
        )  # fmt: skip

    async def ask(self, line: str) -> dict[str, float]:
        """Send a line and return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n".encode())
        answer: dict[str, float] = json.loads(await self._process.stdout.readline())
        return answer

    def pause(self) -> None:
        """Stop it where it is."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def close(self) -> None:
        """Let it end, or end it after a while."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(20):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


async def drained(
    url: str, count: int, processes: int, prepare: Callable[[str], Awaitable[None]]
) -> dict[str, float]:
    """Return how fast so many processes run the steps of ``count`` sleepers once ``prepare`` has woken them."""
    crew = [await Process.on(url) for _ in range(processes)]
    try:
        await prepare(url)
        for process in crew:
            await process.ask(f"expect {count // PRIORITIES}")
        await asyncio.gather(*(process.ask("start") for process in crew))
        begin = time.perf_counter()
        while True:
            answers = [await process.ask("count") for process in crew]
            if sum(answer["count"] for answer in answers) >= count:
                break
            await asyncio.sleep(0.05)
        seconds = time.perf_counter() - begin
    finally:
        await asyncio.gather(*(process.close() for process in crew))
    return {
        "rate": count / seconds,
        "cpu_us": sum(answer["cpu"] for answer in answers) / count * 1e6,
        "overtaken": max(answer["overtaken"] for answer in answers),
    }


if __name__ == "__main__":
    event_loop.run(serve(sys.argv[1]))
