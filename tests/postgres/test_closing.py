"""After ``close``, or an ``open`` that failed, nothing of the store's goes on: no connection, no task, none of the driver's either.

A query that is cancelled makes the driver ask the server, in a task of its own, to cancel it. A loop that ends meanwhile leaves
that task pending, and it is told as destroyed.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from makegood.errors import StoreError, StoreUnavailableError
from makegood.store.postgres import PostgresStore
from makegood.store.postgres.connection import Connection
from makegood.store.postgres.writers import BackgroundTasks
from makegood.testing import Forwarder
from proofs.private_server import PrivateServer


@dataclass
class Wire:
    """Connections through a forwarder; from connection ``silent`` on no answer comes back."""

    way: Forwarder
    silent: int = 0
    made: list[Connection] = field(default_factory=list)
    hushed: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self, *where: Any, **how: Any) -> Connection:
        """Make a connection."""
        connection: Connection = await asyncpg.connect(*where, **how)
        self.made.append(connection)
        if len(self.made) == self.silent:
            self.hush()
        return connection

    def hush(self) -> None:
        """Let no answer come back from now on."""
        self.way.swallow = "replies"
        self.hushed.set()

    def store(self, url: str, server: PrivateServer) -> PostgresStore:
        """Return a store behind the forwarder."""
        return PostgresStore(url.replace(f":{server.port}/", f":{self.way.port}/"), driver=self.connect)

    def left(self) -> list[str]:
        """Return what goes on: tasks of the store and of its driver, open connections."""
        tasks = [repr(task) for task in asyncio.all_tasks() if _of_the_store(task)]
        return tasks + [repr(connection) for connection in self.made if not connection.is_closed()]


def _of_the_store(task: "asyncio.Task[Any]") -> bool:
    work = task.get_coro()
    assert isinstance(work, Coroutine)
    file: str = getattr(work, "cr_code").co_filename  # noqa: B009 - of coroutines that are written in Python
    return "makegood/store/" in file or "asyncpg/" in file


@pytest.mark.parametrize("silent", [1, 2], ids=["the first", "the second"])
async def test_an_open_that_is_cancelled_leaves_nothing(url: str, server: PrivateServer, silent: int) -> None:
    """The server stays silent on the connection for the schema, or on the one for wake-ups."""
    async with Forwarder(server.port) as way:
        wire = Wire(way, silent)
        opening = asyncio.create_task(wire.store(url, server).open())
        await wire.hushed.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert wire.left() == []


async def test_a_close_in_the_middle_of_everything_leaves_nothing(url: str, server: PrivateServer) -> None:
    """A read, a write and somebody's transaction wait for answers that never come; whoever waits is told."""

    async def nothing(caller: Any) -> None:
        await caller.execute("select 1")

    async with Forwarder(server.port) as way:
        wire = Wire(way)
        store = wire.store(url, server)
        await store.open()
        await asyncio.gather(store.now(), store.alerts.views(1), store.transact(nothing, waits=False))
        wire.hush()
        calls = [
            asyncio.create_task(work)
            for work in (store.now(), store.alerts.views(1), store.transact(nothing, waits=False))
        ]
        await asyncio.sleep(0)
        await store.close()
        assert wire.left() == []
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in results] == [StoreUnavailableError] * 3


@pytest.mark.parametrize(("writes", "error"), [(False, StoreUnavailableError), (True, StoreError)])
async def test_who_waits_for_work_that_the_close_ended_is_not_taken_for_cancelled(
    *, writes: bool, error: type[StoreError]
) -> None:
    """On a slow machine the close ends work by force. Only a caller that was cancelled sees a cancellation."""
    tasks = BackgroundTasks()
    begin = asyncio.Barrier(3)

    async def work() -> None:
        await begin.wait()
        await asyncio.Event().wait()

    waiting, leaving = (asyncio.create_task(tasks.run(work(), writes=writes)) for _ in range(2))
    await begin.wait()
    leaving.cancel()
    await tasks.cancel()
    results = await asyncio.gather(waiting, leaving, return_exceptions=True)
    assert [type(each) for each in results] == [error, asyncio.CancelledError]
