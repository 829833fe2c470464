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

from celery import Celery, chain, signature
from redis.asyncio import Redis

from benchmarks import driving
from benchmarks.peers import helping

_META = "celery-task-meta-"
app = Celery("bench")


def configure(port: int, *, late: bool) -> None:
    """Say where Redis listens, and whether a task is acknowledged after it has run."""
    app.conf.update(
        broker_url=f"redis://127.0.0.1:{port}/0",
        result_backend=f"redis://127.0.0.1:{port}/1",
        worker_hijack_root_logger=False,
        task_acks_late=late,
        result_expires=3600,
        broker_connection_retry_on_startup=True,
    )


if "BENCH_REDIS_PORT" in os.environ:  # a worker, which imports this module
    configure(int(os.environ["BENCH_REDIS_PORT"]), late=os.environ["BENCH_LATE"] == "1")


@app.task(name="step")
def do_step(number: int) -> int:
    """Do nothing."""
    return number


@app.task(name="fail")
def fail() -> None:
    """Fail for good."""
    raise ValueError("as it should")


@app.task(name="compensate")
def compensate(count: int, last: str) -> None:
    """Undo so many steps in reverse order; the id of the last of these tasks was chosen by who waits for it."""
    undos = [signature("step", (number,), immutable=True, app=app) for number in range(1, count)]
    chain(*undos, signature("step", (0,), immutable=True, app=app).set(task_id=last)).apply_async()


class Peer(driving.Subject):
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
        configure(port, late=late)
        command = [
            sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery", "worker", "-c", "2", "-P", "prefork",
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
        parts = [do_step.si(number) for number in range(steps - 1)] + [do_step.si(steps).set(task_id=last)]
        await self._sent(chain(*parts) if steps > 1 else parts[0], last)

    async def undone(self, steps: int) -> None:
        """Send a chain whose last task fails, and wait for the last of the tasks that compensate."""
        last = str(uuid.uuid4())
        failing = fail.si().on_error(compensate.si(steps - 1, last))
        await self._sent(chain(*(do_step.si(number) for number in range(steps - 1)), failing), last)

    async def _sent(self, work: Any, last: str) -> None:
        future = self._wanted[last] = asyncio.get_running_loop().create_future()
        await asyncio.to_thread(work.apply_async)
        await future


if __name__ == "__main__":
    driving.main(Peer)
