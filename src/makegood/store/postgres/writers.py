"""Writers: deadlines, and the true outcome of commits whose answer was lost.

A *writer* is a connection with its own row in ``makegood.writer``. Each write carries the writer's next
number and writes it to that row in its own commit, provided that the row still has the previous number. If a
connection is lost after a commit was sent, one query of the row shows the outcome. The same query takes the
number out of use: a statement that reaches the server late finds another number and writes nothing. The query
waits for a transaction that is still under way (it holds the row), such as one that waits for its synchronous
standby.

A write runs in a task of the store's own and is never cancelled. The driver would cancel it at the server
too, and a cancelled wait for a standby makes a commit that is not replicated *look* done. If a write
takes longer than ``patience``, its connection is dropped, which cancels nothing, and its outcome is
resolved as above. So callers never see an ambiguous commit: they get the answer, or an error that says
that nothing was written.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from asyncpg import exceptions as pg

from makegood.base.contexts import HomeLoop
from makegood.base.pacing import Pauses, event_within
from makegood.base.postgres_hosts import answer_within
from makegood.errors import ClosedError, MakegoodError, StoreError, StoreUnavailableError
from makegood.store.postgres.connection import STANDBY, WAITS, Dialer, Link
from makegood.store.postgres.errors import AWAY, LOST, PASSING, cause, is_lost, is_row_held, translate
from makegood.store.postgres.transaction import Recover, Work, WriterGoneError, WriteTransaction
from makegood.store.rows import Interner

log = logging.getLogger("makegood.store")

T = TypeVar("T")

_TRIES = 5

_OPEN = """
insert into makegood.writer (id, number, at) values ($1, 0, extract(epoch from clock_timestamp())::float8)
"""
_CLOSE = "select makegood.close_writers($1::bigint[])"
_RESOLVE = """
update makegood.writer set number = case when number < $2 then $2 + 1 else number end where id = $1 returning number, outcome
"""
# A transaction that waits for its client would keep the row locked, and no client uses its connection any
# more. (A transaction that waits for its standby is left alone. If its COMMIT arrives at this very moment,
# _RESOLVE is later and waits for the standby as well.)
_END = """
select pg_terminate_backend(pid) from pg_stat_activity
where pid = $1 and backend_start = $2 and state like 'idle in transaction%'
"""
# A commit that notifies holds this lock while it waits for its standby, and others wait for it everywhere.
_NOTIFIER = """
select a.datname::text, a.pid from pg_locks l join pg_stat_activity a on a.pid = l.pid
where l.locktype = 'object' and l.classid = 'pg_database'::regclass and l.objid = 0 and l.granted and a.pid <> pg_backend_pid()
limit 1
"""
_CONFIRM = """
update makegood.writer set at = extract(epoch from clock_timestamp())::float8 where id = $1 and number = $2 returning 1
"""


@dataclass(slots=True)
class Writer:
    """A place for one connection."""

    link: Link | None = None
    id: int = 0
    """The writer's row; 0: it has none yet."""
    number: int = 0


class HeldUpError(Exception):
    """Another transaction holds a row that the write needs. Nothing was written."""


class BackgroundTasks:
    """The store's own asyncio tasks, which continue when the caller is cancelled."""

    def __init__(self) -> None:
        self.home = HomeLoop("this store")
        self._under_way: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``work`` in a task of its own.

        Raises ``ClosedError`` on an event loop other than that on which the store was opened.
        """
        try:
            self.home.check()
        except ClosedError:
            work.close()
            raise
        task = self.home.start(work)
        self._under_way.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def run(self, work: Coroutine[Any, Any, T], *, writes: bool) -> T:
        """Run ``work`` in a task of its own and wait for it. The work continues if the caller is cancelled.

        If the store is closed before the work ends, raises ``StoreError`` if it ``writes``, as it may have
        done so, else ``StoreUnavailableError``.
        """
        task = self.start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not task.cancelled() or (caller is not None and caller.cancelling()):
                raise
        if writes:
            raise StoreError(
                "the store was closed before makegood could find out whether the last write was committed"
            )
        raise StoreUnavailableError("the store was closed before it answered")

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller may be gone

    async def settle(self, limit: float) -> None:
        """Wait up to ``limit`` seconds for all of them."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=limit)

    async def cancel(self) -> None:
        """Cancel the remaining tasks and wait for them."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


def pauses_of(rng: random.Random) -> Pauses:
    """Return the pauses between requests to a server."""
    return Pauses(rng, first=0.02, longest=1.0)


class Writers:
    """The writing connections of a store.

    ``announce``: receives the topics of each commit. ``patience``: seconds that a write may take before its
    connection is dropped.
    """

    def __init__(
        self,
        dialer: Dialer,
        rng: random.Random,
        announce: Callable[[set[str]], None],
        *,
        size: int,
        patience: float,
    ) -> None:
        self.plans = Interner()
        self.tasks = BackgroundTasks()
        self._dialer = dialer
        self._rng = rng
        self._announce = announce
        self._patience = patience
        self._free: asyncio.LifoQueue[Writer] = asyncio.LifoQueue()
        self._writers = [Writer() for _ in range(size)]
        for writer in self._writers:
            self._free.put_nowait(writer)
        self._closing = asyncio.Event()

    @property
    def where(self) -> str:
        """The server's name for messages."""
        return self._dialer.address.where

    async def write(self, work: Work[T], recover: Recover[T]) -> T:
        """Run a write and return its answer, surviving lost connections. The write continues if
        the caller is cancelled.
        """
        return await self.tasks.run(self.write_here(work, recover), writes=True)

    async def write_here(self, work: Work[T], recover: Recover[T], *, waits: bool = True) -> T:
        """As ``write``, for callers that already run in a task of the store's own.

        ``waits``: for a row that another transaction holds. If not, it then raises ``HeldUpError``.
        """
        writer = await self._free.get()
        try:
            return await self._write(writer, work, recover, waits=waits)
        finally:
            self._free.put_nowait(writer)

    async def _write(self, writer: Writer, work: Work[T], recover: Recover[T], *, waits: bool) -> T:
        pauses = pauses_of(self._rng)
        last: Exception = StoreUnavailableError(f"{self.where} did not accept this write")
        for n in range(_TRIES):
            link = await self._link_with_row(writer)
            tx = WriteTransaction(
                link.connection, self.plans, writer.id, writer.number, writer.number + 1, again=n > 0
            )
            impatience = asyncio.get_running_loop().call_later(self._patience, self._give_up, link)
            try:
                value = await work(tx)
            except WriterGoneError:
                writer.id = 0
                continue
            except Exception as fault:
                last = fault
                if not waits and is_row_held(fault):
                    raise HeldUpError from fault
                if not (is_lost(fault) or isinstance(fault, (*PASSING, *AWAY))):
                    raise translate(fault, self.where) from cause(fault)
                if is_lost(fault) or isinstance(fault, pg.ReadOnlySQLTransactionError):
                    link.terminate()
                if is_lost(fault) and tx.is_sent:
                    number, outcome = await self._resolve(writer, tx.number)
                    if number == tx.number and await self._confirm(writer):
                        return await self._recover(writer, tx, outcome, recover)
                if isinstance(fault, AWAY) or await self._pause(pauses):
                    break
                continue
            finally:
                impatience.cancel()
            writer.number = tx.number if tx.has_mark else writer.number
            if not await self._confirm(writer):
                continue
            self._announce(tx.topics)
            return value
        error = translate(last, self.where)
        if isinstance(last, pg.LockNotAvailableError) and (notifier := await self._notifier(writer)):
            error = StoreUnavailableError(f"{error}. {notifier}")
        raise error from cause(last)

    async def _notifier(self, writer: Writer) -> str:
        """Return which session keeps commits with notifications waiting; "" if none does."""
        try:
            link = await self._open_link(writer)
            row = await self._with_timeout(link, partial(link.connection.fetchrow, _NOTIFIER))
        except Exception as fault:  # noqa: BLE001 - the error is reported without it
            log.debug("%s: %s", self.where, fault)
            return ""
        if row is None:
            return ""
        return (
            f"A commit with NOTIFY in the database {row['datname']} (process {row['pid']}) does not end, perhaps as it waits for a "
            "synchronous standby; on the whole server, others wait for it: start the standby, or end that process"
        )

    async def _recover(
        self, writer: Writer, tx: WriteTransaction, outcome: list[int] | None, recover: Recover[T]
    ) -> T:
        """Return the answer of a write that is known to be committed; retry until it can be read."""
        pauses = pauses_of(self._rng)
        while True:
            try:
                link = await self._link_with_row(writer)
                tx.connection = link.connection
                value = await self._with_timeout(link, lambda: recover(tx, outcome))
            except Exception as fault:  # noqa: BLE001 - sorted there
                await self._ask_again(fault, pauses)
            else:
                self._announce(tx.topics)
                return value

    async def _resolve(self, writer: Writer, number: int) -> tuple[int, list[int] | None]:
        """Return the writer's number, which shows whether ``number`` was committed, and the
        outcome; retry until known.
        """
        pauses = pauses_of(self._rng)
        is_explained = False
        old = writer.link
        while True:
            try:
                link = await self._open_link(writer)
                if old is not None:
                    end = partial(link.connection.execute, _END, old.pid, old.began)
                    await self._with_timeout(link, end)
                row = await self._with_timeout(
                    link, partial(link.connection.fetchrow, _RESOLVE, writer.id, number)
                )
            except Exception as fault:  # noqa: BLE001 - sorted there
                await self._ask_again(fault, pauses)
                is_explained = is_explained or await self._explain_wait(writer)
                continue
            if row is None:
                writer.id = 0
                return 0, None
            writer.number = row["number"]
            return writer.number, row["outcome"]

    async def _confirm(self, writer: Writer) -> bool:
        """Wait until a commit that the server called doubtful is on its standby: a later commit
        without doubt proves it.

        Returns False if the commit is gone: the standby was promoted without it. Then the
        write must be repeated.
        """
        if writer.link is None or not writer.link.watch.in_doubt:
            return True
        pauses = pauses_of(self._rng)
        while True:
            try:
                link = await self._open_link(writer)
                link.watch.in_doubt = False
                ask = partial(link.connection.fetchval, _CONFIRM, writer.id, writer.number)
                is_confirmed = await self._with_timeout(link, ask) is not None
                if not link.watch.in_doubt:
                    return is_confirmed
            except Exception as fault:  # noqa: BLE001 - sorted there
                await self._ask_again(fault, pauses)

    async def _ask_again(self, fault: Exception, pauses: Pauses) -> None:
        """Pause before asking again for a commit's outcome, while the database is away or
        busy; otherwise raise.
        """
        if not (isinstance(fault, (MakegoodError, *PASSING, *AWAY)) or is_lost(fault)):
            raise fault
        log.warning("%s: it is not yet known whether a commit was made: %s", self.where, fault)
        if await self._pause(pauses):
            raise StoreError(
                f"{self.where}: the store was closed before makegood could find out whether the last write was committed"
            ) from fault

    async def _explain_wait(self, writer: Writer) -> bool:
        """Log once why the outcome is unknown, if a standby does not answer."""
        try:
            link = await self._open_link(writer)
            waits = await self._with_timeout(link, partial(link.connection.fetchval, WAITS))
        except Exception as fault:  # noqa: BLE001 - it is asked again later
            log.debug("%s: %s", self.where, fault)
            return False
        if waits is not None:
            log.warning("%s %s", self.where, STANDBY)
        return waits is not None

    async def _with_timeout(self, link: Link, ask: Callable[[], Awaitable[T]]) -> T:
        impatience = asyncio.get_running_loop().call_later(self._patience, self._give_up, link)
        try:
            return await ask()
        finally:
            impatience.cancel()

    def _give_up(self, link: Link) -> None:
        log.warning("%s has not answered for %g s: dropping the connection", self.where, self._patience)
        link.terminate()

    async def _pause(self, pauses: Pauses) -> bool:
        """Wait for the next pause; return True if the store closes."""
        return await event_within(self._closing, pauses.draw())

    async def _open_link(self, writer: Writer) -> Link:
        if writer.link is None or not writer.link.open:
            writer.link = None
            if self._closing.is_set():
                raise StoreUnavailableError(f"{self.where}: the store is closed; nothing was written")
            writer.link = await self._dialer.dial()
        return writer.link

    async def _link_with_row(self, writer: Writer) -> Link:
        """Return the writer's connection, with its row in place."""
        link = await self._open_link(writer)
        if writer.id == 0:
            writer_id = self._rng.getrandbits(62) + 1
            try:
                await self._with_timeout(link, partial(link.connection.execute, _OPEN, writer_id))
                await self._with_timeout(link, partial(link.connection.execute, _CLOSE, []))
            except Exception as fault:  # noqa: BLE001 - raised below, sorted
                raise translate(fault, self.where) from cause(fault)
            writer.id, writer.number = writer_id, 0
        return link

    async def close(self, limit: float) -> None:
        """Finish work under way within ``limit`` seconds, then close the connections."""
        await self.tasks.settle(limit)
        self._closing.set()
        links = [writer.link for writer in self._writers if writer.link is not None and writer.link.open]
        if self._free.qsize() == len(self._writers):  # nothing is in doubt
            ids = [writer.id for writer in self._writers if writer.id]
            if links and ids:
                connection = links[0].connection
                with contextlib.suppress(TimeoutError, *LOST, *PASSING, *AWAY):
                    await answer_within(connection, 1.0, connection.execute(_CLOSE, ids))
            await asyncio.gather(*(link.close(1.0) for link in links))
        for link in links:
            link.terminate()

    async def end(self, limit: float) -> None:
        """Drop every connection, even one in use, and end the work under way: by itself within
        ``limit`` seconds, or by force.

        Connections are dropped first: to cancel a query, the driver would ask the server in a task
        that it leaves running.
        """
        self._dialer.hang_up()
        await self.tasks.settle(limit)
        await self.tasks.cancel()
