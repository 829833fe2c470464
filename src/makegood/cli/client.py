"""A client for a command: the store that the settings name, opened and closed around the command."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from makegood.base import ids
from makegood.cli import exits
from makegood.cli.context import Cli
from makegood.cli.logs_and_telemetry import traces_of
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.errors import TaskNotFoundError
from makegood.messaging.hosts import Hosts
from makegood.store import open_store
from makegood.store.views import Exact, Filter

MOST_NAMED = 5
"""Tasks of one key that are named, at most."""

T = TypeVar("T")


def connect(cli: Cli) -> Client:
    """Return a client of the store that the settings name.

    If the settings list hosts, the client refuses a ``reply_to`` that no process would serve.
    """
    options = cli.settings.options
    client = Client(
        cli.settings.store,
        poll_every=options._poll_seconds or 1.0,
        queue_limit=options.queue_limit,
        queue_bytes=options.queue_bytes,
        telemetry=traces_of(cli),
        codec=cli.codec,
    )
    hosts = Hosts.of(options)
    if hosts.entries or hosts.places:
        client.submitter.only_to(hosts.check)
    return client


@contextlib.asynccontextmanager
async def looking(cli: Cli) -> AsyncIterator[Client]:
    """Give a client for a command that only reads: it works on a store that cannot be written now."""
    store = open_store(cli.settings.store)
    try:
        await store.open(looking=True)
        poll = cli.settings.options._poll_seconds or 1.0
        async with Client(store, poll_every=poll, codec=cli.codec) as client:
            yield client
    finally:
        await store.close()


def run_read(cli: Cli, read: Callable[[Client], Awaitable[T]]) -> T:
    """Return what ``read`` finds on a store that may be impossible to write now."""
    return asyncio.run(_within(looking(cli), read))


def run_work(cli: Cli, work: Callable[[Client], Awaitable[T]]) -> T:
    """Do some work with a client; return its result."""
    return asyncio.run(_within(connect(cli), work))


async def task_named(client: Client, text: str) -> TaskHandle[Any]:
    """Return a handle to the task of this id, of this key of a step, or of this key of its own.

    Raises ``TaskNotFoundError`` if there is none, or if tasks of several workflows have the key.
    """
    task = None
    with contextlib.suppress(TaskNotFoundError):
        task = client.task(text)
    if task is not None and await client.find(Filter(ids=(task.number,), limit=1)):
        return task
    tasks = await client.find(Filter(key=Exact(text), limit=MOST_NAMED + 1))
    if len(tasks) == 1:
        return client.task(tasks[0].id)
    if tasks:
        names = ", ".join(f"{ids.show(view.id)} ({view.app}.{view.workflow})" for view in tasks[:MOST_NAMED])
        raise TaskNotFoundError(
            f"several tasks have the key {text!r}: {names}; name one by its id", task_id=text
        )
    if task is None:
        raise TaskNotFoundError(
            f"no task has the id or the key {text!r}: `makegood task list` shows the tasks", task_id=text
        )
    return task


def report_sent(cli: Cli, shape: Mapping[str, Any], knows: str) -> int:
    """Report what became of a message or signal, ``knows`` if its id was known; return the exit code."""
    is_conflict = shape["conflict"]
    if not shape["created"]:
        difference = ", with another value" if is_conflict else ""
        cli.note(f"makegood: {knows} already{difference}: nothing was sent")
    cli.out.result(shape, *(() if is_conflict else (shape["id"],)))
    return exits.REFUSED if is_conflict else exits.DONE


async def _within(
    context: contextlib.AbstractAsyncContextManager[Client], work: Callable[[Client], Awaitable[T]]
) -> T:
    async with context as client:
        return await work(client)
