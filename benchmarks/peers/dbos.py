"""DBOS under measurement: in this process, with threads or with asyncio, or through its queue with a process that works it off."""

import asyncio
import os
import sqlite3
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSClient

from benchmarks import driving


@DBOS.step()
def step(number: int) -> int:
    """Do nothing."""
    return number


@DBOS.step()
async def step_async(number: int) -> int:
    """Do nothing."""
    return number


@DBOS.step()
def fail() -> None:
    """Fail for good."""
    raise ValueError("as it should")


@DBOS.step()
async def fail_async() -> None:
    """Fail for good."""
    raise ValueError("as it should")


@DBOS.workflow()
def chain(steps: int) -> int:
    """Steps in sequence."""
    for number in range(steps):
        step(number)
    return steps


@DBOS.workflow()
async def chain_async(steps: int) -> int:
    """Steps in sequence."""
    for number in range(steps):
        await step_async(number)
    return steps


@DBOS.workflow()
def failing(steps: int) -> int:
    """The last step fails; those before are compensated by hand, each by a step of its own."""
    for number in range(steps - 1):
        step(number)
    try:
        fail()
    except ValueError:
        for number in reversed(range(steps - 1)):
            step(number)
    return steps


@DBOS.workflow()
async def failing_async(steps: int) -> int:
    """As ``failing``."""
    for number in range(steps - 1):
        await step_async(number)
    try:
        await fail_async()
    except ValueError:
        for number in reversed(range(steps - 1)):
            await step_async(number)
    return steps


def url_of(cell: driving.Cell) -> str:
    """Return the store's URL as SQLAlchemy wants it."""
    return cell.store.replace("postgresql://", "postgresql+psycopg://", 1)


def launch(cell: driving.Cell) -> None:
    """Start DBOS in this process."""
    DBOS(
        config={
            "name": "bench", "system_database_url": url_of(cell), "log_level": "CRITICAL", "console_log_level": "CRITICAL",
            "application_version": "bench", "executor_id": "bench",
        }
    )  # fmt: skip
    DBOS.launch()


class Dbos(driving.Subject):
    """DBOS. ``variant``: ``async`` for its asyncio interface, else threads."""

    durable = "each step's result before the next begins, not its start; PostgreSQL fsync, SQLite with a rollback journal"
    places = ("here", "elsewhere")
    most = 500

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        self._other: asyncio.subprocess.Process | None = None
        self._client: Any = None

    def version(self) -> str:
        """Return the version of the package."""
        return metadata.version("dbos")

    async def open(self) -> None:
        """Launch it here, or in another process."""
        if self.cell.place == "here":
            launch(self.cell)
            return
        self._other = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.peers.dbos", driving.text_of(self.cell), "process",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert self._other.stdout is not None
        async with asyncio.timeout(60):
            while line := await self._other.stdout.readline():
                if line.strip() == b"ready":
                    break
            else:
                raise driving.UnableError("its other process did not start")
        self.roles["agent"] = self._other.pid
        self._client = DBOSClient(system_database_url=url_of(self.cell))

    async def close(self) -> None:
        """End the other process; this one is left to its own end, for DBOS waits for its threads."""
        if self._other is not None and self._other.returncode is None:
            self._other.kill()
            await self._other.wait()

    async def task(self, steps: int) -> None:
        """Start a workflow and wait for its end."""
        if self._client is not None:
            handle = await self._client.enqueue_async(
                {"queue_name": "bench", "workflow_name": "chain_async", "app_version": "bench"}, steps
            )
            await handle.get_result(polling_interval_sec=0.05)
        elif self.cell.variant == "async":
            await (await DBOS.start_workflow_async(chain_async, steps)).get_result()
        else:
            await self._threaded(chain, steps)

    async def undone(self, steps: int) -> None:
        """Start a workflow that compensates, and wait for its end."""
        if self.cell.variant == "async":
            await (await DBOS.start_workflow_async(failing_async, steps)).get_result()
        else:
            await self._threaded(failing, steps)

    async def _threaded(self, workflow: Any, steps: int) -> None:
        handle: Any = await asyncio.to_thread(DBOS.start_workflow, workflow, steps)
        await asyncio.wrap_future(handle.future)

    async def ended(self, count: int) -> None:
        """Multiply a workflow that has ended, with its steps."""
        await asyncio.to_thread(multiply, self.cell, count)


_POSTGRES = """
select column_name from information_schema.columns
where table_schema = 'dbos' and table_name = '{}' and is_generated = 'NEVER' and is_identity = 'NO'
"""
_SQLITE_NUMBERS = (
    "(with recursive n (n) as (select 1 union all select n + 1 from n where n < ?) select n from n) n"
)


def multiply(cell: driving.Cell, count: int) -> None:
    """Insert ``count`` copies of an ended workflow and its steps."""
    lite = cell.store.startswith("sqlite")
    connection: Any
    if lite:
        connection = sqlite3.connect(cell.store.removeprefix("sqlite:///"), timeout=60)
        prefix, names, mark, numbers = "", "select name from pragma_table_info('{}')", "?", _SQLITE_NUMBERS
    else:
        import psycopg  # noqa: PLC0415 - comes with DBOS

        connection = psycopg.connect(cell.store)
        prefix, names, mark, numbers = "dbos.", _POSTGRES, "%s", "generate_series(1, %s) n (n)"
    cursor = connection.execute(
        f"select workflow_uuid from {prefix}workflow_status where status = 'SUCCESS' limit 1"
    )
    (template,) = cursor.fetchone()
    for table in ("workflow_status", "operation_outputs"):
        column_names = [name for (name,) in connection.execute(names.format(table)).fetchall()]
        columns = ", ".join(f'"{name}"' for name in column_names if name != "workflow_uuid")
        connection.execute(
            f"insert into {prefix}{table} (workflow_uuid, {columns}) select 'copy-' || n.n, {columns} "
            f"from {numbers}, {prefix}{table} where workflow_uuid = {mark}",
            (count, template),
        )
    connection.execute("analyze")
    connection.commit()
    connection.close()


def process(cell: driving.Cell) -> None:
    """Work the queue off, until killed."""
    launch(cell)
    DBOS.register_queue("bench", worker_concurrency=100, polling_interval_sec=0.02)
    print("ready", flush=True)
    while Path(cell.folder).exists():
        time.sleep(1)
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        process(driving.given())
    driving.main(Dbos)
