"""Procrastinate under measurement: single jobs, put in from here, worked off by one process; who waits looks into its table."""

import asyncio
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector

from benchmarks import driving
from benchmarks.peers import helping

_ENDED = "select id from procrastinate_jobs where id = any(%s) and status = 'succeeded'"


def app_of(store: str) -> tuple[App, Any]:
    """Return an app and its one job."""
    app = App(connector=PsycopgConnector(conninfo=store, min_size=4, max_size=10))

    @app.task(name="nothing", queue="bench")
    async def nothing(number: int) -> int:
        return number

    return app, nothing


async def process(cell: driving.Cell) -> None:
    """Work jobs off, 100 at a time, until killed."""
    app, _ = app_of(cell.store)
    async with app.open_async():
        print("ready", flush=True)
        await app.run_worker_async(queues=["bench"], concurrency=100, install_signal_handlers=False)


class Procrastinate(driving.Subject):
    """Procrastinate."""

    durable = "each job and its end, on PostgreSQL with fsync; it has no tasks of several steps; actions in another process"
    places = ("here", "elsewhere")

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        if cell.steps != 1:
            raise driving.UnableError(
                "it has single jobs, no tasks of several steps: see the cell with 1 step"
            )
        self._app, self._job = app_of(cell.store)
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: helping.Watcher | None = None

    def version(self) -> str:
        """Return the version of the package."""
        return metadata.version("procrastinate")

    async def open(self) -> None:
        """Make its tables and start its process."""
        await self._app.open_async()
        await self._app.schema_manager.apply_schema_async()
        connection = await psycopg.AsyncConnection.connect(self.cell.store, autocommit=True)
        self._watcher = helping.Watcher(connection, _ENDED)
        log = Path(self.cell.folder) / "procrastinate.log"
        command = [
            sys.executable,
            "-m",
            "benchmarks.peers.procrastinate",
            driving.text_of(self.cell),
            "process",
        ]
        self._process = await helping.started(command, log)
        await helping.said(log, "ready")

    async def close(self) -> None:
        """Kill its process."""
        await helping.ended(self._process)
        if self._watcher is not None:
            await self._watcher.close()
        await self._app.close_async()

    async def task(self, steps: int) -> None:
        """Put a job in and wait for its end."""
        assert self._watcher is not None
        await self._watcher.end_of(await self._job.defer_async(number=steps))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(process(driving.given()))
    driving.main(Procrastinate)
