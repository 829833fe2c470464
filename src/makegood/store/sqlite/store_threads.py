"""The two threads of a store: one writes, one reads.

The writer takes everything that was asked for since its last commit and does it in *one* transaction, so that
n concurrent callers cost one wait for the disk. There is no timer: a lone caller never waits for others. Each
operation has a savepoint of its own, so that its failure does not affect the others. Results are passed to
the event loop only after the commit, all in one call.

If a COMMIT fails because the disk failed, its outcome is unknown: its writes may be in place, or may reappear
when the log is read after a crash. So each transaction that changes something writes its number into the row
of its writer. After a failed COMMIT the file is reopened, the row is read, and a small transaction is written
behind it. After that the outcome cannot change any more. Only then do the callers get their results.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from makegood.base.clock import Clock
from makegood.base.contexts import other_loop, start_thread
from makegood.base.file_paths import unreachable
from makegood.base.forks import fork_lock
from makegood.base.sqlite_log import WriteAheadLog
from makegood.base.sqlite_readonly import TIMES, Glance, restless
from makegood.errors import StoreError, StoreUnavailableError
from makegood.store.rows import Interner
from makegood.store.sqlite.connection import is_broken, is_busy, is_garbled, legible, translate
from makegood.store.sqlite.file_identity import FileIdentity
from makegood.store.sqlite.transaction import CarefullyError, WriteTransaction, is_environment

_log = logging.getLogger(__name__)

# The most tasks in one transaction, roughly. While the next one is written, the event loop works on the
# results of this one. With all tasks in one transaction, loop and thread would run in lockstep and wait for
# each other.
_MOST_AT_ONCE = 256
# Another process's lock is tried often: if that process is busy, the lock is free only for moments.
_BUSY_TRIES = 9000  # about 10 s
_FIRST_PAUSE = 0.00005
_LONGEST_PAUSE = 0.001
_MERGE_TRIES = 50  # about 40 ms: callers wait for their results meanwhile
# After a failed commit: the disk may come back.
_LOOKS = 20
_LOOK_PAUSE = 0.5

_FIRST_MARK = "insert into makegood_writer (last) values (1) returning id"
_MARK = "update makegood_writer set last = last + 1 where id = ?"
_LOOK = "select last from makegood_writer where id = ?"
_BEHIND = "update makegood_ready set last = last"  # changes nothing, but is written


@dataclass(slots=True)
class StoreClock:
    """The store's clock: the same for all processes of a boot. It never goes back."""

    clock: Clock
    """The machine's clock."""
    shift: float = 0.0
    """Seconds to add to its monotonic time."""

    def now(self) -> float:
        """Return seconds since 1970 on the store's clock."""
        return self.shift + self.clock.monotonic()


@dataclass(slots=True, eq=False)
class Operation:
    """One call of a method."""

    action: Callable[..., Any]
    """The function that runs in the transaction."""
    future: asyncio.Future[Any]
    """The future of its result."""
    items: Sequence[Any] | None = None
    """If given, the action takes the items of all such calls together, and answers each item."""
    weight: int = 1
    """Roughly the number of tasks that it concerns."""
    again: bool = False
    """Whether it can be repeated after a rollback, with the same effect."""
    result: Any = None
    """The result, once it is done."""
    error: BaseException | None = None
    """The error, if it failed."""


@dataclass(slots=True, eq=False)
class StoreThread:
    """A thread with a connection of its own, and the queue in front of it.

    Created and used on the event loop.
    """

    name: str
    path: Path
    connect: Callable[[], sqlite3.Connection]
    clock: StoreClock
    loop: asyncio.AbstractEventLoop
    on_commit: Callable[[set[str]], None] | None = None
    announce: Callable[[set[str]], None] | None = None
    writes: bool = True
    place: FileIdentity | None = None
    glance: Glance | None = None
    log: WriteAheadLog | None = None
    openings: int = 0
    _operations: list[Operation] = field(default_factory=list)
    _queue: queue.SimpleQueue[list[Operation] | None] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None
    _connection: sqlite3.Connection | None = None
    _plans: Interner = field(default_factory=Interner)
    _inside: threading.Lock = field(default_factory=fork_lock)
    _over: bool = False
    _death: StoreError | None = None
    _writer: int = 0
    _commits: int = 0

    def start(self) -> None:
        """Start the thread; the connection is opened by the first operation."""
        self._thread = threading.Thread(target=self._live, name=f"makegood {self.name}", daemon=True)
        start_thread(self._thread)

    def ask(
        self,
        action: Callable[..., Any],
        items: Sequence[Any] | None = None,
        *,
        weight: int = 1,
        again: bool = False,
    ) -> asyncio.Future[Any]:
        """Queue an operation and return the future of its result; see ``Operation``.

        Everything asked for in the same turn of the event loop reaches the thread together.
        """
        if self._over or self._thread is None:
            raise StoreUnavailableError(f"{self.path}: the store is not open; `await store.open()` first")
        if self._death is not None:
            raise self._death
        if asyncio.get_running_loop() is not self.loop:
            raise other_loop(self.loop, "this store")
        future: asyncio.Future[Any] = self.loop.create_future()
        self._operations.append(
            Operation(action, future, items, weight if items is None else max(weight, len(items)), again)
        )
        if len(self._operations) == 1:
            self.loop.call_soon(self._hand_over)
        return future

    def _hand_over(self) -> None:
        if self._operations:
            operations, self._operations = self._operations, []
            self._queue.put(operations)
        if self._death is not None:
            self._fail_rest(self._death)

    def _fail_rest(self, error: StoreError) -> None:
        """Fail everything that the thread, which is dead, leaves in the queue."""
        while not self._queue.empty():
            for operation in self._queue.get() or ():
                operation.error = error
                self._deliver([operation], set())

    async def stop(self) -> None:
        """Finish what was asked for, close the connection and end the thread."""
        if self._over or self._thread is None:
            return
        self._hand_over()
        self._over = True
        self._queue.put(None)
        await self.loop.run_in_executor(None, self._thread.join)

    # Everything below runs in the thread.

    def _live(self) -> None:
        waiting: deque[Operation] = deque()
        try:
            self._serve(waiting)
        except BaseException as failure:  # noqa: BLE001 - every caller gets it
            self._die(failure, list(waiting))

    def _die(self, failure: BaseException, waiting: list[Operation]) -> None:
        """Let callers fail, now and from now on: a thread that a fault in makegood ended serves nobody."""
        self._death = StoreError(
            f"{self.path}: a fault in makegood ended the thread that {'writes' if self.writes else 'reads'} ({type(failure).__name__}: "
            f"{failure}); restart this process, and please report it with the traceback"
        )
        self._death.__cause__ = failure
        _log.critical("%s", self._death, exc_info=failure)
        self._queue.put(waiting)
        try:
            self.loop.call_soon_threadsafe(self._fail_rest, self._death)
        except RuntimeError:
            _log.debug("the event loop ended before %d callers could be failed", len(waiting))

    def _serve(self, waiting: deque[Operation]) -> None:
        is_over = False
        while waiting or not is_over:
            while not is_over and not (waiting and self._queue.empty()):
                operations = self._queue.get()
                is_over = operations is None
                waiting.extend(operations or ())
            if waiting:
                operations = _next(waiting)
                try:
                    with self._inside:
                        self._perform(operations)
                except BaseException:
                    waiting.extend(operations)
                    raise
        self._drop()

    def _perform(self, operations: list[Operation]) -> None:
        if not self.writes:
            for operation in operations:
                self._look(operation)
                self._hand_back([operation], set())
            return
        topics: set[str] = set()
        try:
            topics = self._write(operations)
        except BaseException as failure:  # noqa: BLE001 - every caller gets it; the thread lives on
            error = self._ours(failure)
            for operation in operations:
                operation.error = error
        try:
            if topics and self.on_commit is not None:
                self.on_commit(topics)
            self._merge_log()
        finally:  # whatever becomes of the thread: these are decided
            self._hand_back(operations, topics)

    def _merge_log(self) -> None:
        """Merge a log that has become long. The event loop is idle now; later, its steps would wait for this
        thread.
        """
        if self.log is not None and self._connection is not None:
            self.log.merge_if_long(self._connection, partial(self._begin, _MERGE_TRIES))

    def _hand_back(self, operations: list[Operation], topics: set[str]) -> None:
        try:
            self.loop.call_soon_threadsafe(self._deliver, operations, topics)
        except RuntimeError:
            _log.debug("the event loop ended before %d results could be given to it", len(operations))

    def _deliver(self, operations: list[Operation], topics: set[str]) -> None:
        """Deliver results to their callers, on the event loop; callers that were cancelled meanwhile are
        skipped.
        """
        for operation in operations:
            if operation.future.done():
                continue
            if operation.error is not None:
                operation.future.set_exception(operation.error)
            else:
                operation.future.set_result(operation.result)
        if topics and self.announce is not None:
            self.announce(topics)

    def _write(self, operations: list[Operation]) -> set[str]:
        try:
            return self._write_batch(operations)
        except sqlite3.Error as failure:
            if not is_garbled(failure):
                raise
        with self._any_text():
            return self._transaction(operations, careful=True)

    @contextmanager
    def _any_text(self) -> Iterator[None]:
        """Read texts that are not UTF-8, which foreign SQL may have written, with bad bytes escaped."""
        connection = self._connect()
        connection.text_factory = legible
        try:
            yield
        finally:
            connection.text_factory = str

    def _write_batch(self, operations: list[Operation]) -> set[str]:
        if all(operation.again for operation in operations):
            try:
                return self._transaction(operations, careful=False)
            except CarefullyError as failure:
                _log.debug("%s: done again with savepoints: %s", self.path, failure.__cause__)
        return self._transaction(operations, careful=True)

    def _transaction(self, operations: list[Operation], *, careful: bool) -> set[str]:
        connection = self._begin()
        tx = WriteTransaction(connection, self.clock.now(), self._plans, self.clock.clock.wall(), careful)
        before = connection.total_changes
        try:
            groups = _group(operations)
            for group in groups:
                self._do(tx, group, alone=len(groups) == 1)
            if connection.total_changes != before:
                self._commit(connection)
            else:
                connection.execute("commit")
        except BaseException as failure:
            self._roll_back(connection, failure)
            raise
        return tx.topics

    def _commit(self, connection: sqlite3.Connection) -> None:
        """Commit under the next number of this writer.

        If that fails, check the outcome, and raise only if nothing was written.
        """
        if not self._writer:
            (self._writer,) = connection.execute(_FIRST_MARK).fetchone()
            first, self._commits = True, 1
        else:
            connection.execute(_MARK, (self._writer,))
            first, self._commits = False, self._commits + 1
        try:
            connection.execute("commit")
        except sqlite3.Error as failure:
            if connection.in_transaction or not is_broken(failure) or not self._was_written(failure):
                self._commits -= 1
                if first:
                    self._writer = 0
                raise

    def _was_written(self, failure: sqlite3.Error) -> bool:
        """Return whether a transaction was written although its COMMIT failed, once that cannot change any
        more.
        """
        _log.warning("%s: a commit failed (%s); looking whether it was written", self.path, failure)
        for _ in range(_LOOKS):
            try:
                self._drop()
                connection = self._begin()
                row = connection.execute(_LOOK, (self._writer,)).fetchone()
                connection.execute(_BEHIND)
                connection.execute("commit")
            except (sqlite3.Error, StoreUnavailableError) as again:
                _log.warning("%s: it cannot be seen yet whether a commit was written (%s)", self.path, again)
                time.sleep(_LOOK_PAUSE)
            else:
                return row is not None and row[0] == self._commits
        raise StoreError(
            f"{self.path}: a commit failed ({failure}) and the file cannot be read again: it is not known whether it was written; "
            "read the system's log and restart this process"
        ) from failure

    def _do(self, tx: WriteTransaction, group: list[Operation], *, alone: bool) -> None:
        """Run one operation, or several that run together.

        Their failure affects no others unless the database failed.
        """
        if alone and len(group) == 1:
            _act(tx, group)
            return
        try:
            with tx.savepoint():
                _act(tx, group)
        except Exception as failure:
            if (
                isinstance(failure, CarefullyError)
                or is_environment(failure)
                or not tx.connection.in_transaction
            ):
                raise
            if len(group) == 1:
                group[0].error = self._ours(failure)
                return
            for operation in group:
                self._do(tx, [operation], alone=False)

    def _look(self, operation: Operation) -> None:
        """Read, and repeat a read that may have mixed two states of the file (see ``sqlite_readonly``)."""
        for _ in range(TIMES):
            self._read(operation)
            if self.glance is None or not self.glance.again(operation.error):
                return
            self._drop()
        operation.error = restless(self.path)

    def _read(self, operation: Operation) -> None:
        self._read_once(operation)
        cause = None if operation.error is None else operation.error.__cause__
        if isinstance(cause, sqlite3.Error) and is_garbled(cause):
            with self._any_text():
                self._read_once(operation)

    def _read_once(self, operation: Operation) -> None:
        operation.error = None
        try:
            connection = self._connect()
            connection.execute("begin")
            try:
                operation.result = operation.action(
                    WriteTransaction(connection, self.clock.now(), self._plans, self.clock.clock.wall())
                )
            finally:
                if connection.in_transaction:
                    connection.execute("commit")
        except BaseException as failure:  # noqa: BLE001 - the caller gets it; the thread lives on
            operation.error = self._ours(failure)
            if isinstance(failure, sqlite3.Error) and is_broken(failure):
                self._drop()

    def _begin(self, tries: int | None = None) -> sqlite3.Connection:
        """Begin a write transaction.

        Another process may hold the lock, usually for less than a millisecond.
        """
        pause = _FIRST_PAUSE
        last: sqlite3.Error | None = None
        for _ in range(tries or _BUSY_TRIES):
            try:
                connection = self._connect()
                connection.execute("begin immediate")
                return connection
            except sqlite3.Error as failure:
                if not is_busy(failure):
                    if is_broken(failure):
                        self._drop()
                    raise
                # Its traceback would keep the data to be written in memory until the garbage collector runs.
                last = failure.with_traceback(None)
            time.sleep(pause)
            pause = min(pause * 1.2, _LONGEST_PAUSE)
        raise last or sqlite3.OperationalError("database is locked")

    def _connect(self) -> sqlite3.Connection:
        """Return our connection, reopened if necessary.

        The file of that name must be the one that we first opened.
        """
        place = self.place
        if self._connection is None:
            self._connection = self.connect()
            self.openings += 1
            if place is not None:
                place.record_log()
        if place is not None:
            place.verify()
        return self._connection

    def _roll_back(self, connection: sqlite3.Connection, failure: BaseException) -> None:
        """Undo everything. A connection that cannot roll back, or whose disk failed, is not used again."""
        if connection is not self._connection:  # let go of already
            return
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except sqlite3.Error:
            _log.exception("%s: the transaction could not be rolled back; the file is reopened", self.path)
            self._drop()
        if isinstance(failure, sqlite3.Error) and is_broken(failure):
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if self.log is not None:
            self.log.close()
        if connection is not None:
            try:
                connection.close()
            except sqlite3.Error:
                _log.exception("%s: a connection could not be closed", self.path)
        if self.glance is not None:
            self.glance.release()

    def _ours(self, failure: BaseException) -> BaseException:
        if isinstance(failure, sqlite3.Error):
            error: BaseException = translate(failure, self.path)
        elif isinstance(failure, OSError):
            error = unreachable(f"{self.path}: it", failure)
        elif isinstance(failure, Exception) and not isinstance(failure, StopIteration):
            return failure
        else:  # a future cannot carry a StopIteration, and nothing may end the event loop from in here
            error = StoreError(f"{self.path}: {type(failure).__name__} inside a transaction")
        error.__cause__ = failure
        return error


def _next(waiting: deque[Operation]) -> list[Operation]:
    """Take the operations of the next transaction: those that fit its weight, at least one."""
    operations = [waiting.popleft()]
    weight = operations[0].weight
    while waiting and weight + waiting[0].weight <= _MOST_AT_ONCE:
        operations.append(waiting.popleft())
        weight += operations[-1].weight
    return operations


def _group(operations: list[Operation]) -> list[list[Operation]]:
    """Group operations that can run together, each group at the position of its first operation."""
    groups: list[list[Operation]] = []
    together: dict[Callable[..., Any], list[Operation]] = {}
    for operation in operations:
        if operation.items is None:
            groups.append([operation])
        elif operation.action in together:
            together[operation.action].append(operation)
        else:
            together[operation.action] = [operation]
            groups.append(together[operation.action])
    return groups


def _act(tx: WriteTransaction, group: list[Operation]) -> None:
    if group[0].items is None:
        group[0].result = group[0].action(tx)
        return
    answers = group[0].action(tx, [item for operation in group for item in operation.items or ()])
    start = 0
    for operation in group:
        end = start + len(operation.items or ())
        operation.result = answers[start:end]
        start = end
