"""absurd under measurement: tasks are spawned from here, one process works them off; who waits looks into its table."""

import asyncio
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import absurd_sdk
import absurdctl
import psycopg

from benchmarks import driving
from benchmarks.peers import helping

_QUEUE = "bench"
_ENDED = f"select task_id from absurd.t_{_QUEUE} where task_id = any(%s) and state = 'completed'"
_CLIENTS = 4


async def nothing() -> int:
    """Do nothing."""
    return 0


async def fail() -> int:
    """Fail for good."""
    raise ValueError("as it should")


async def process(cell: driving.Cell) -> None:
    """Work tasks off, 100 at a time, looking for new ones every 10 ms (its own default is 250 ms), until killed."""
    app = absurd_sdk.AsyncAbsurd(cell.store, queue_name=_QUEUE)

    @app.register_task(name="chain")
    async def chain(params: dict[str, int], context: Any) -> int:
        for number in range(params["steps"]):
            await context.step(f"step {number}", nothing)
        return params["steps"]

    @app.register_task(name="failing")
    async def failing(params: dict[str, int], context: Any) -> int:
        for number in range(params["steps"] - 1):
            await context.step(f"step {number}", nothing)
        try:
            await context.step("the last", fail)
        except ValueError:
            for number in reversed(range(params["steps"] - 1)):
                await context.step(f"undo {number}", nothing)
        return params["steps"]

    print("ready", flush=True)
    await app.start_worker(concurrency=100, poll_interval=0.01)


class Absurd(driving.Subject):
    """absurd."""

    durable = (
        "each step's result before the next begins, on PostgreSQL with fsync; actions in another process"
    )
    places = ("here", "elsewhere")

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        self._process: asyncio.subprocess.Process | None = None
        self._clients: list[Any] = []
        self._turn = 0
        self._watcher: helping.Watcher | None = None

    def version(self) -> str:
        """Return the version of the package."""
        return metadata.version("absurd-sdk")

    async def open(self) -> None:
        """Make its tables and start its process."""
        store = self.cell.store
        connection = await psycopg.AsyncConnection.connect(store, autocommit=True)
        await connection.execute(absurdctl.BUNDLED_SCHEMA_SQL)
        self._clients = [absurd_sdk.AsyncAbsurd(store, queue_name=_QUEUE) for _ in range(_CLIENTS)]
        await self._clients[0].create_queue(_QUEUE)
        self._watcher = helping.Watcher(connection, _ENDED)
        log = Path(self.cell.folder) / "absurd.log"
        command = [sys.executable, "-m", "benchmarks.peers.absurd", driving.text_of(self.cell), "process"]
        self._process = await helping.started(command, log)
        await helping.said(log, "ready")

    async def close(self) -> None:
        """Kill its process."""
        await helping.ended(self._process)
        if self._watcher is not None:
            await self._watcher.close()

    async def task(self, steps: int) -> None:
        """Spawn a task and wait for its end."""
        await self._spawned("chain", steps)

    async def undone(self, steps: int) -> None:
        """As ``task``, with the compensating one."""
        await self._spawned("failing", steps)

    async def _spawned(self, name: str, steps: int) -> None:
        assert self._watcher is not None
        self._turn += 1
        client = self._clients[self._turn % _CLIENTS]
        handle = await client.spawn(name, {"steps": steps}, queue=_QUEUE)
        await self._watcher.end_of(handle["task_id"])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        asyncio.run(process(driving.given()))
    driving.main(Absurd)
