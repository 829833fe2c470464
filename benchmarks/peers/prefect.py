"""Prefect under measurement: its local server on its own SQLite file, flows in this process."""

import asyncio
import os
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from benchmarks import driving
from benchmarks.peers import helping


class Prefect(driving.Subject):
    """Prefect."""

    durable = "states of flows and tasks by its server, on SQLite; results of tasks in files"
    most = 20

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        self._server: asyncio.subprocess.Process | None = None
        self._chain: Any = None
        self._failing: Any = None

    def version(self) -> str:
        """Return the version of the package."""
        return metadata.version("prefect")

    async def open(self) -> None:
        """Start its server, and declare the flows."""
        port, folder = helping.free_port(), Path(self.cell.folder)
        os.environ |= {
            "PREFECT_HOME": str(folder / "prefect"), "PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "DO_NOT_TRACK": "1",
            "PREFECT_LOGGING_LEVEL": "CRITICAL", "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_TO_API_ENABLED": "false", "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
            "PREFECT_LOCAL_STORAGE_PATH": str(folder / "storage"),
        }  # fmt: skip
        command: list[str | Path] = [
            Path(sys.executable).with_name("prefect"), "server", "start", "--host", "127.0.0.1", "--port", str(port)
        ]  # fmt: skip
        self._server = await helping.started(command, folder / "prefect.log", port)
        self._declare(import_module("prefect"))  # only now: it reads its settings when it is imported

    def _declare(self, prefect: Any) -> None:
        @prefect.task
        async def step(number: int) -> int:
            return number

        @prefect.task
        async def fail() -> None:
            raise ValueError("as it should")

        @prefect.flow
        async def chain(steps: int) -> int:
            for number in range(steps):
                await step(number)
            return steps

        @prefect.flow
        async def failing(steps: int) -> int:
            for number in range(steps - 1):
                await step(number)
            try:
                await fail()
            except ValueError:
                for number in reversed(range(steps - 1)):
                    await step(number)
            return steps

        self._chain, self._failing = chain, failing

    async def close(self) -> None:
        """Kill its server."""
        await helping.ended(self._server)

    async def task(self, steps: int) -> None:
        """Run a flow."""
        assert await self._chain(steps) == steps

    async def undone(self, steps: int) -> None:
        """Run the compensating flow."""
        assert await self._failing(steps) == steps


if __name__ == "__main__":
    driving.main(Prefect)
