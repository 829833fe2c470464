"""Celery with Redis under measurement: a chain of tasks, worked off by two processes; ends are heard by Redis's own messages.

``variant`` durable: Redis syncs each write (``appendfsync always``) and tasks are acknowledged late: what it takes not to lose work.
Else the defaults of both.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

from celery import chain
from redis.asyncio import Redis

from benchmarks import driving
from benchmarks.peers import helping

_META = "celery-task-meta-"


class Celery(driving.Subject):
    """Celery."""

    durable = "nothing to speak of: Redis as it comes, tasks acknowledged before they run; actions in other processes"
    places = ("here", "elsewhere")

    def __init__(self, cell: driving.Cell) -> None:
        super().__init__(cell)
        if cell.variant == "durable":
            self.durable = "each message and result (Redis syncs every write), tasks acknowledged late; actions in other processes"
        self._processes: list[asyncio.subprocess.Process] = []
        self._wanted: dict[str, asyncio.Future[None]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._app: Any = None

    def version(self) -> str:
        """Return the version of the package."""
        return metadata.version("celery")

    async def open(self) -> None:
        """Start Redis and the processes, and listen for results."""
        port, folder = helping.free_port(), Path(self.cell.folder)
        late = self.cell.variant == "durable"
        os.environ |= {"BENCH_REDIS_PORT": str(port), "BENCH_LATE": "1" if late else "0"}
        program = shutil.which("redis-server")
        assert program is not None
        redis = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        redis += ["--appendonly", "yes", "--appendfsync", "always"] if late else []
        self._processes.append(await helping.started(redis, folder / "redis.log", port))
        from benchmarks.peers import celery_app  # noqa: PLC0415 - reads the port from the environment

        self._app = celery_app
        command = [
            sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery_app", "worker", "-c", "2", "-P", "prefork",
            "-l", "INFO", "--without-gossip", "--without-mingle",
        ]  # fmt: skip
        self._processes.append(await helping.started(command, folder / "celery.log"))
        await helping.said(folder / "celery.log", "ready.")
        messages = Redis(port=port, db=1).pubsub()
        await messages.psubscribe(f"{_META}*")
        self._listening = asyncio.create_task(self._listen(messages))

    async def _listen(self, messages: Any) -> None:
        async for message in messages.listen():
            if message["type"] == "pmessage":
                future = self._wanted.pop(message["channel"].decode().removeprefix(_META), None)
                if future is not None and not future.done():
                    status = json.loads(message["data"])["status"]
                    if status == "SUCCESS":
                        future.set_result(None)
                    else:
                        future.set_exception(driving.UnableError(f"a task ended as {status}"))

    async def close(self) -> None:
        """Kill them."""
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening
        await helping.ended(*self._processes)

    async def task(self, steps: int) -> None:
        """Send a chain and wait for its last task."""
        last = str(uuid.uuid4())
        step = self._app.step
        parts = [step.si(number) for number in range(steps - 1)] + [step.si(steps).set(task_id=last)]
        await self._sent(chain(*parts) if steps > 1 else parts[0], last)

    async def undone(self, steps: int) -> None:
        """Send a chain whose last task fails, and wait for the last of the tasks that compensate."""
        last = str(uuid.uuid4())
        failing = self._app.fail.si().on_error(self._app.compensate.si(steps - 1, last))
        await self._sent(chain(*(self._app.step.si(number) for number in range(steps - 1)), failing), last)

    async def _sent(self, work: Any, last: str) -> None:
        future = self._wanted[last] = asyncio.get_running_loop().create_future()
        await asyncio.to_thread(work.apply_async)
        await future


if __name__ == "__main__":
    driving.main(Celery)
