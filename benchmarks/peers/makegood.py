"""makegood under measurement: scheduler, agent and supervisor in this process, or the agents in another one."""

import asyncio
import os
import signal
import sqlite3
import sys
import time
from importlib import metadata
from typing import Any

import asyncpg

import makegood as mg
from benchmarks import driving
from makegood.cli import event_loop

_LIFE, _BEAT = 2.0, 0.2
_EVER = 3600.0
_SERVICE = ("agent", "scheduler", "supervisor")


class Gate:
    """Where the actions of a task stand until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.arrived = 0


def app_of(steps: int, gate: Gate | None = None) -> tuple[mg.App, Any, Any, Any]:
    """Return an app and three workflows of ``steps`` steps: one that works, one whose last step fails, one that stands."""
    app = mg.App("bench")
    desk, standing = app.agent("desk", concurrency=2000), app.agent("standing", concurrency=20_000)

    @desk.action(complete_within="5m", undo=mg.NOTHING)
    async def step(order: str) -> str:
        return order

    @desk.action(complete_within="5m")
    async def effect(order: str) -> str:
        return order

    @effect.undo
    async def take_back(order: str, *, result: str | None) -> None:
        pass

    @desk.action(complete_within="5m", undo=mg.NOTHING)
    async def fail(order: str) -> str:
        raise mg.Permanent("as it should")

    @standing.action(complete_within="1h", undo=mg.NOTHING)
    async def stand(order: str) -> str:
        if gate is not None:
            gate.arrived += 1
            await gate.open.wait()
        return order

    @app.workflow()
    def chain(order: str) -> str:
        for _ in range(steps):
            order = step(order)
        return order

    @app.workflow()
    def failing(order: str) -> str:
        for _ in range(steps - 1):
            order = effect(order)
        return fail(order)

    @app.workflow()
    def still(order: str) -> str:
        return step(stand(order))

    return app, chain, failing, still


class Makegood(driving.Subject):
    """makegood itself."""

    durable = "a step's start with its complete-by before it runs, its result before the next begins; fsync"
    places = ("here", "elsewhere")

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        self.app, self.chain, self.failing, self.still = app_of(cell.steps)
        here = tuple(r for r in _SERVICE if r != "agent" or cell.place == "here")
        self.node = mg.Node(self.app, cell.store, roles=here)
        self.agent: asyncio.subprocess.Process | None = None

    def version(self) -> str:
        """Return the version of the package."""
        return metadata.version("makegood")

    async def open(self) -> None:
        """Start the roles."""
        if self.cell.workload != "takeover":
            await self.node.start()
        if self.cell.place == "elsewhere":
            self.agent = await spawned("agent", self.cell)
            self.roles["agent"] = self.agent.pid

    async def close(self) -> None:
        """Drain, and let the agents go."""
        await self.node.stop()
        if self.agent is not None and self.agent.returncode is None:
            self.agent.terminate()
            await self.agent.wait()

    async def task(self, steps: int) -> None:
        """Submit, and wait for the result."""
        await (await self.node.client.submit(self.chain, "an order of thirty-two characters")).result()

    async def undone(self, steps: int) -> None:
        """Submit, and wait until it is undone."""
        try:
            await (await self.node.client.submit(self.failing, "an order of thirty-two characters")).result()
        except mg.TaskUndone:
            return
        raise AssertionError("the task was not undone")

    async def ended(self, count: int) -> None:
        """Multiply a task that has ended, with its steps and its history."""
        if self.cell.store.startswith("sqlite"):
            multiply_sqlite(self.cell.store.removeprefix("sqlite:///"), count)
        else:
            await multiply_postgres(self.cell.store, count)

    async def waiting(self, count: int) -> None:
        """Submit tasks for an agent that no process runs."""
        other = mg.App("elsewhere")
        away = other.agent("away")

        @away.action(complete_within="5m", undo=mg.NOTHING)
        async def step(order: str) -> str:
            return order

        @other.workflow()
        def chain(order: str) -> str:
            return step(step(step(order)))

        async for _ in self.node.client.submit_many(chain, (f"order {n}" for n in range(count))):
            pass

    async def takeover(self, count: int) -> dict[str, float]:
        """Kill the only Scheduler; another one, already running, goes on with its tasks. The agent lives on."""
        gate = Gate()
        app, *_ = app_of(self.cell.steps, gate)
        options = mg.Options(dead_after=_LIFE, heartbeat=_BEAT, supervise_every=0.5, max_tasks=count + 100)
        async with mg.Node(app, self.cell.store, roles=("agent", "supervisor"), options=options):
            victim = await spawned("scheduler", self.cell)
            async with asyncio.timeout(120):
                while gate.arrived < count:
                    await asyncio.sleep(0.05)
            async with mg.Node(app, self.cell.store, roles=("scheduler",), options=options) as heir:
                assert heir._scheduler is not None
                victim.send_signal(signal.SIGKILL)
                kill = time.perf_counter()
                async with asyncio.timeout(120):
                    while heir._scheduler.count() < count:
                        await asyncio.sleep(0.01)
                    lease_seconds = time.perf_counter() - kill
                    gate.open.set()
                    while heir._scheduler.count():
                        await asyncio.sleep(0.01)
                end_seconds = time.perf_counter() - kill
                await victim.wait()
        return {
            "takeover_seconds": lease_seconds,
            "after_lease_seconds": max(0.0, lease_seconds - _LIFE),
            "ended_seconds": end_seconds,
        }


async def spawned(role: str, cell: driving.Cell) -> asyncio.subprocess.Process:
    """Start this module as a process of one role and wait until it says that it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.peers.makegood", driving.text_of(cell), role,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(120):
        while line := await process.stdout.readline():
            if line.strip() == b"ready":
                return process
    raise driving.UnableError(f"the process of the {role} ended with {await process.wait()}")


def multiply_sqlite(path: str, count: int) -> None:
    """Insert ``count`` copies of an ended task, in one transaction."""
    connection = sqlite3.connect(path, timeout=60)
    with connection:
        connection.execute("begin immediate")
        (template,) = connection.execute(
            "select id from makegood_task where state = 'processed' limit 1"
        ).fetchone()
        for table, key in (("task", "id"), ("step", "task"), ("event", "task")):
            names = [row[1] for row in connection.execute(f"pragma table_info(makegood_{table})")]
            names = [name for name in names if name not in (key, "seq")]
            columns = ", ".join(names)
            connection.execute(
                f"with recursive n (n) as (select 1 union all select n + 1 from n where n < ?) "
                f"insert into makegood_{table} ({key}, {columns}) select n.n, {columns} from n, makegood_{table} "
                f"where makegood_{table}.{key} = ?",
                (count, template),
            )
    connection.execute("pragma wal_checkpoint(truncate)")
    connection.close()


async def multiply_postgres(url: str, count: int) -> None:
    """Insert ``count`` copies of an ended task, and let the server look at its tables."""
    connection = await asyncpg.connect(url)
    template = await connection.fetchval("select id from makegood.task where state = 'processed' limit 1")
    for table, key in (("task", "id"), ("step", "task"), ("event", "task")):
        rows = await connection.fetch(
            "select column_name from information_schema.columns where table_schema = 'makegood' and table_name = $1",
            table,
        )
        columns = ", ".join(f'"{name}"' for (name,) in rows if name not in (key, "seq"))
        await connection.execute(
            f"insert into makegood.{table} ({key}, {columns}) select n, {columns} "
            f"from generate_series(1, $1::bigint) n, makegood.{table} where makegood.{table}.{key} = $2",
            count,
            template,
            timeout=_EVER,
        )
    for table in ("task", "step", "event"):
        await connection.execute(f"vacuum analyze makegood.{table}", timeout=_EVER)
    await connection.execute("checkpoint", timeout=_EVER)
    await connection.close()


async def agents(cell: driving.Cell) -> None:
    """Run the agents, for a Scheduler in another process."""
    await mg.Node(app_of(cell.steps)[0], cell.store, roles=("agent",)).run(lambda: print("ready", flush=True))


async def scheduler(cell: driving.Cell) -> None:
    """Run a Scheduler that holds ``amount`` tasks which are with the agents, until it is killed."""
    app, _, _, still = app_of(cell.steps)
    options = mg.Options(dead_after=_LIFE, heartbeat=_BEAT, max_tasks=cell.amount + 100)
    async with mg.Node(app, cell.store, roles=("scheduler",), options=options) as node:
        async for _ in node.client.submit_many(still, (f"order {n}" for n in range(cell.amount))):
            pass
        print("ready", flush=True)
        await asyncio.sleep(_EVER)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        the_cell = driving.given()
        event_loop.run({"agent": agents, "scheduler": scheduler}[sys.argv[2]](the_cell))
        os._exit(0)
    driving.main(Makegood, event_loop.run)
