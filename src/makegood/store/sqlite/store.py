"""``SQLiteStore``: every method of the protocol, each one transaction in the store's threads."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from makegood.base.clock import Clock, SystemClock
from makegood.base.sizes import KIB
from makegood.base.sqlite_readonly import Glance, glanced, may_write
from makegood.errors import StoreUnavailableError
from makegood.model.messages import Act, Answer, Message
from makegood.store import migrations, records, views
from makegood.store.priority_ageing import Ageing
from makegood.store.queue_records import Depths
from makegood.store.sqlite import bulk_change, leases, load, pruning, reads, supervision, upkeep
from makegood.store.sqlite import requests as queues
from makegood.store.sqlite.alerts import AlertVerbs
from makegood.store.sqlite.commit import commit, put_to_error
from makegood.store.sqlite.connection import (
    Connect,
    connect,
    examine,
    fsync_folder,
    is_damaged,
    opened,
    translated,
)
from makegood.store.sqlite.decision_rows import CHANGES
from makegood.store.sqlite.doctor import ExaminingVerbs
from makegood.store.sqlite.doorbell import Bell, Heard, kind_of
from makegood.store.sqlite.file_identity import FileNumber, Place, number_of
from makegood.store.sqlite.generation import begin_anew
from makegood.store.sqlite.joined_submit import join, verify
from makegood.store.sqlite.joined_watch import Lookout, Wanted
from makegood.store.sqlite.notices import NoticeVerbs
from makegood.store.sqlite.queues import MessageVerbs
from makegood.store.sqlite.store_threads import Line, StoreClock
from makegood.store.sqlite.submit import submit
from makegood.store.sqlite.take import take
from makegood.store.sqlite.transaction import Action, Transaction
from makegood.transactions import Caller

T = TypeVar("T")

_POLL = 1.0
_BUSY = 5.0
_HEAVY = 64 * KIB  # bytes of a call that count as much as another call, when calls share a transaction
_ABREAST = 64  # one is written; others are decided meanwhile and wait in line


class SQLiteStore(AlertVerbs, MessageVerbs, NoticeVerbs, ExaminingVerbs):
    """The store on one SQLite file.

    ``path``: the file. ``clock``: the machine's, unless a test hands in its own. ``poll``: seconds between looks for commits
    of other processes, behind the doorbell; None: never. ``open_connection``: makes connections, for tests that count or fail.
    ``ageing``: seconds of waiting that count as one priority more, None: never.
    ``line`` and ``bell``: what makes the two threads and the doorbell, for a simulated world that has neither.
    An object belongs to the event loop on which it was opened.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        poll: float | None = _POLL,
        ageing: float | None = 60.0,
        open_connection: Connect = connect,
        line: Callable[..., Line] = Line,
        bell: Callable[[Path, Heard], Bell] = Bell,
    ) -> None:
        self.abreast: int | None = _ABREAST
        self._path = Path(path)
        self._clock = StoreClock(clock or SystemClock())
        self._poll = poll
        self._ageing = Ageing(ageing)  # the writer's
        self._depths = Depths()  # the writer's
        self._connect = open_connection
        self._make_line = line
        self._make_bell = bell
        self._identity: records.Identity | None = None
        self._main: FileNumber | None = None
        self._writer: Line | None = None
        self._reader: Line | None = None
        self._bell: Bell | None = None
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self._poll_timer: asyncio.TimerHandle | None = None
        self._data_version = (0, -1)
        self._lookout = Lookout(self._read, self._seen)

    # Opening and closing

    @property
    def identity(self) -> records.Identity:
        """The store's own random id and its generation."""
        if self._identity is None:
            raise StoreUnavailableError(f"{self._path}: the store is not open; `await store.open()` first")
        return self._identity

    async def open(self, *, migrate: bool = False, looking: bool = False) -> None:
        """Open the file, verify settings and schema, start the threads and hang up the bell.

        No lock is waited for, which the caller may hold himself, unless there is something to write: a new or old file, or the
        first process since the machine was started. ``looking``: nothing is written then either, but for a new or old file.
        """
        if self._writer is not None:
            return
        loop = asyncio.get_running_loop()
        await self._apart(partial(self._prepare, migrate=migrate, looking=looking))
        bell = self._make_bell(self._path, self._heard)
        self._writer = self._line("writer", loop, busy=0.0, bell=bell)
        self._reader = self._line("reader", loop, busy=_BUSY, bell=None)
        self._bell = bell
        try:  # now, not when it is first needed; the writer would wait for the lock
            await self._reader.ask(_data_version)
        except BaseException:
            await self.close()
            raise
        # A folder for sockets that belongs to who only looks would keep the file's owner from having one.
        watched = bell.open() if may_write(self._path) else None
        if watched is not None:
            loop.add_reader(watched, bell.answer)
        for topic in self._listeners:
            bell.listen_to(topic)
        self._lookout.open(loop)
        self._plan_poll()

    def _line(self, name: str, loop: asyncio.AbstractEventLoop, *, busy: float, bell: Bell | None) -> Line:
        glance = Glance(self._path) if bell is None else None
        line = self._make_line(
            name,
            self._path,
            partial(self._opened, busy=busy, glance=glance),
            self._clock,
            loop,
            committed=bell.ring if bell is not None else None,
            announce=self._announce if bell is not None else None,
            writes=bell is not None,
            place=Place(self._path, self._main),
            glance=glance,
        )
        line.start()
        return line

    def _opened(self, *, busy: float = _BUSY, glance: Glance | None = None) -> sqlite3.Connection:
        connection = opened(self._path, self._connect, glance=glance)
        try:
            if glance is None:
                bulk_change.install(connection, CHANGES)
            connection.execute(f"pragma busy_timeout = {round(busy * 1000)}")
        except BaseException:
            connection.close()
            raise
        return connection

    async def _apart(self, action: Callable[[], T]) -> T:
        """Run something with a connection of its own, outside of the two threads."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, action)
        except sqlite3.Error as failure:
            raise translated(failure, self._path) from failure

    def _prepare(self, *, migrate: bool, looking: bool) -> None:
        """Verify that the file can be what we need; create it when we may."""
        examine(self._path)
        if not self._path.exists():
            if not migrate:
                migrations.verify("sqlite", 0, f"{self._path} (no such file yet)")
            self._migrate()

        def look(glance: Glance | None) -> tuple[float, records.Identity]:
            with closing(opened(self._path, self._connect, glance=glance)) as connection:
                version = upkeep.version(connection, str(self._path))
                if migrate and version != migrations.needed(
                    "sqlite"
                ):  # looked at without asking for the lock
                    self._migrate()
                    version = upkeep.version(connection, str(self._path))
                migrations.verify("sqlite", version, str(self._path))
                shift = upkeep.agreed_clock(connection, self._clock.clock, looking=looking)
                return shift, upkeep.identity(connection)

        self._clock.shift, self._identity = glanced(self._path, look) if looking else look(None)
        self._main = number_of(str(self._path))

    def _migrate(self) -> list[str]:
        examine(self._path)
        new = not self._path.exists()
        with closing(opened(self._path, self._connect, create=True)) as connection:
            applied = upkeep.migrate(connection, self._path, self._clock.clock)
        if new:
            fsync_folder(self._path)
        return applied

    async def close(self) -> None:
        """Finish what was asked for, then let go of the file and the bell."""
        writer, reader, bell = self._writer, self._reader, self._bell
        self._writer = self._reader = self._bell = None
        await self._lookout.close()
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        for line in (writer, reader):
            if line is not None:
                await line.stop()
        if bell is not None:
            watched = bell.watched
            if watched is not None:
                asyncio.get_running_loop().remove_reader(watched)
            bell.close()

    async def begin_anew(self, act: Act) -> records.Anew:
        """Raise the generation, because an operator says that the file was restored."""
        done = await self._write(partial(begin_anew, act=act))
        self._identity = records.Identity(self.identity.store_id, done.generation)
        return done

    async def now(self) -> float:
        """Return the store's clock."""
        self._open(self._writer)
        return self._clock.now()

    def _open(self, line: Line | None) -> Line:
        if line is None:
            raise StoreUnavailableError(f"{self._path}: the store is not open; `await store.open()` first")
        return line

    async def _write(self, action: Action[T], *, weight: int = 1, again: bool = False) -> T:
        return cast("T", await self._open(self._writer).ask(action, weight=weight, again=again))

    async def _together(
        self, action: Callable[..., list[T]], items: Sequence[object], *, octets: int = 0, again: bool = False
    ) -> list[T]:
        weight = len(items) + octets // _HEAVY
        return cast("list[T]", await self._open(self._writer).ask(action, items, weight=weight, again=again))

    async def _read(self, action: Action[T]) -> T:
        return cast("T", await self._open(self._reader).ask(action))

    # Wake-ups

    def subscribe(self, topic: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call ``ring`` when something may have come for ``topic``; returns what ends that."""
        kind_of(topic)
        self._listeners.setdefault(topic, []).append(ring)
        if self._bell is not None:
            self._bell.listen_to(topic)

        def end() -> None:
            rings = self._listeners.get(topic, [])
            if ring in rings:
                rings.remove(ring)
            if not rings:
                self._listeners.pop(topic, None)

        return end

    def _announce(self, topics: set[str]) -> None:
        for topic in sorted(topics):  # in an order that a seed can replay
            for ring in tuple(self._listeners.get(topic, ())):
                ring()

    def _heard(self, topics: set[str] | None) -> None:
        self._announce(set(self._listeners) if topics is None else topics)

    def _plan_poll(self) -> None:
        if self._poll is not None and self._reader is not None:
            loop = asyncio.get_running_loop()
            self._poll_timer = loop.call_later(self._poll, self._look)

    def _look(self) -> None:
        if self._reader is not None and self._listeners:
            self._reader.ask(_data_version).add_done_callback(self._looked)
        else:
            self._plan_poll()

    def _looked(self, future: "asyncio.Future[int]") -> None:
        if not future.cancelled() and future.exception() is None and self._reader is not None:
            version = (
                self._reader.openings,
                future.result(),
            )  # numbers of two connections cannot be compared
            if version != self._data_version:
                self._data_version = version
                self._heard(None)
        self._plan_poll()

    def _seen(self, found: set[Wanted]) -> None:
        """Wake everybody for tasks and messages that were committed on a connection that rings no bell."""
        topics = {"pending" if isinstance(one, int) else f"queue:{one[0]}" for one in found}
        if self._bell is not None:
            self._bell.ring(topics)
        self._announce(topics)

    # Tasks

    async def submit(self, drafts: Sequence[records.Draft]) -> list[records.Submitted]:
        """Insert tasks with all their steps."""
        octets = sum([draft.octets for draft in drafts])
        return await self._together(submit, drafts, octets=octets, again=True)

    async def join(self, caller: Caller, drafts: Sequence[records.Draft]) -> list[records.Submitted]:
        """Insert tasks in a transaction of the caller's."""
        return await join(caller, drafts, self._path, self.identity.store_id, self._clock)

    async def _verified(self, caller: Caller) -> float:
        await verify(caller, self._path, self.identity.store_id)
        return self._clock.now()

    def joined(self, *written: Wanted) -> None:
        """Look often for these tasks or messages, for some seconds, and ring for them once they are committed."""
        for one in written:
            self._lookout.expect(one)

    async def commit(self, batch: records.Batch) -> records.Committed:
        """Write Decisions, claim tasks, and write what ``decide`` makes of them."""
        act = partial(commit, batch=batch, ageing=self._ageing)
        return await self._write(act, weight=len(batch.decisions), again=batch.claim is None)

    async def load(self, node: int, tasks: Sequence[int]) -> list[records.Loaded]:
        """Return tasks that ``node`` still holds."""
        found = await self._read(partial(load.load, node=node, tasks=tasks))
        for task, reason in found.unreadable:
            await self.put_to_error(node, task, reason)
        return found.tasks

    async def put_to_error(self, node: int, task: int, reason: str) -> None:
        """Put a task that ``node`` holds to error, whatever is in its rows."""
        await self._write(partial(put_to_error, node=node, task=task, reason=reason, held=True))

    async def find(self, wanted: views.Filter) -> list[views.TaskView]:
        """Return tasks that match, newest first."""
        return await self._read(partial(reads.find, wanted=wanted))

    async def count(self, wanted: views.Filter) -> int:
        """Return how many tasks match."""
        return await self._read(partial(reads.count, wanted=wanted))

    async def detail(self, task: int, *, asked: bool = False) -> views.TaskDetail | None:
        """Return one task with its steps."""
        return await self._read(partial(reads.detail, task=task, asked=asked))

    async def history(self, task: int, after: int = 0) -> list[views.EventView]:
        """Return the events of a task in order."""
        return await self._read(partial(reads.history, task=task, after=after))

    # Queues

    async def inbox(self, node: int, limit: int, room: int = records.NO_LIMIT) -> records.Inbox:
        """Return messages for tasks that ``node`` holds, and tasks at rest that have some."""
        found, unreadable = await self._read(partial(queues.inbox, node=node, limit=limit, room=room))
        for task, reason in unreadable.items():
            await self.put_to_error(node, task, reason)
        return found

    async def post(self, task: int, message: Message) -> None:
        """Leave an operator's act in a task's inbox."""
        await self._together(queues.post, [(task, message)])

    async def answers(self, acts: Sequence[str]) -> dict[str, Answer]:
        """Return what became of acts."""
        return await self._read(partial(queues.answers, acts=acts))

    async def take(self, node: int, offers: Sequence[records.Offer], *, alone: bool = False) -> records.Taken:
        """Give waiting requests to ``node``."""
        act = partial(take, node=node, offers=offers, ageing=self._ageing, alone=alone)
        return await self._write(act, again=True)

    async def answer(self, node: int, replies: Sequence[tuple[int, Message]]) -> list[bool]:
        """Leave replies in the tasks' inboxes; True for each that came in time."""
        given = [queues.Reply(node, task, message) for task, message in replies]
        octets = sum([len(message.value or b"") for _, message in replies])
        return await self._together(queues.answer, given, octets=octets, again=True)

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Move an attempt's complete-by."""
        return await self._write(partial(queues.extend, node=node, key=(task, idx, attempt), seconds=seconds))

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Make requests that were taken but not begun available again."""
        await self._write(partial(queues.give_back, node=node, requests=requests))

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Mark requests whose silence is not to be counted."""
        await self._write(partial(queues.excuse, node=node, requests=requests))

    # Supervision

    async def judge(self, term: records.Grant, grace: float, limit: int) -> records.Judged:
        """Judge requests whose complete-by passed."""
        return await self._write(partial(supervision.judge, term=term, grace=grace, limit=limit))

    async def release_dead(self, term: records.Grant, limit: int) -> list[int]:
        """Free tasks held by dead nodes."""
        return await self._write(partial(supervision.release_dead, term=term, limit=limit))

    async def release_deaf(self, term: records.Grant, older: float, limit: int) -> list[int]:
        """Free tasks whose Scheduler does not answer."""
        return await self._write(partial(supervision.release_deaf, term=term, older=older, limit=limit))

    async def expire_tasks(self, term: records.Grant, limit: int) -> list[int]:
        """Tell tasks that their own complete-by has passed."""
        return await self._write(partial(supervision.expire_tasks, term=term, limit=limit))

    async def starved(
        self, term: records.Grant, after: float, limit: int, outage: float = 300.0
    ) -> list[int]:
        """Raise one alert per request that no agent has taken."""
        return await self._write(
            partial(supervision.starved, term=term, after=after, limit=limit, outage=outage)
        )

    async def horizon(self, grace: float, most: float) -> float:
        """Return seconds until something may have to be judged."""
        return await self._read(partial(supervision.horizon, grace=grace, most=most))

    async def prune(self, older: float, after: int, limit: int, *, dry: bool = False) -> records.Pruned:
        """Remove tasks that ended long ago, of one window."""
        act = partial(pruning.prune, older=older, after=after, limit=limit, dry=dry)
        return await (self._read(act) if dry else self._write(act))

    # Leases

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> records.Grant | None:
        """Take a free or expired lease."""
        return await self._write(partial(leases.acquire, wanted=records.Grant(name, holder, nonce, 0, ttl)))

    async def renew(self, grant: records.Grant) -> bool:
        """Extend a lease that is still held."""
        return await self._write(partial(leases.renew, grant=grant))

    async def release(self, grant: records.Grant) -> None:
        """Free a lease that is still this grant's."""
        await self._write(partial(leases.release, grant=grant))

    async def read(self, name: str) -> records.LeaseView | None:
        """Return who holds a lease."""
        return await self._read(partial(leases.read, name=name))

    async def past_terms(self, name: str, limit: int = 100) -> list[records.PastTerm]:
        """Return the latest terms of a lease, newest first."""
        return await self._read(partial(leases.past_terms, name=name, limit=limit))

    # Upkeep

    async def register(self, info: views.NodeInfo) -> int:
        """Insert a node row with its first heartbeat."""
        number, generation = await self._write(partial(upkeep.register, info=info))
        self._identity = records.Identity(self.identity.store_id, generation)
        return number

    async def heartbeat(self, node: int, info: views.NodeInfo) -> bool:
        """Extend a node's life."""
        return await self._write(partial(upkeep.heartbeat, node=node, info=info), again=True)

    async def unregister(self, node: int) -> None:
        """Mark a node as stopped in good order."""
        await self._write(partial(upkeep.unregister, node=node))

    async def nodes(self) -> list[views.NodeView]:
        """Return nodes alive or ended within the last hour."""
        return await self._read(upkeep.nodes)

    async def depths(self) -> dict[str, int]:
        """Return how many requests wait for each agent."""
        return await self._read(upkeep.depths)

    async def figures(self) -> views.Figures:
        """Return how much there is to do, and what is wrong."""
        return await self._read(upkeep.figures)

    async def schema(self) -> views.SchemaStatus:
        """Return where the schema stands; the store need not be open."""

        def look(glance: Glance | None) -> views.SchemaStatus:
            with closing(opened(self._path, self._connect, glance=glance)) as connection:
                return upkeep.schema(connection, str(self._path))

        def there() -> views.SchemaStatus:
            examine(self._path)
            if self._path.exists():
                return glanced(self._path, look)
            missing = [migration.name for migration in migrations.plan("sqlite", 0)]
            return views.SchemaStatus("sqlite", 0, migrations.needed("sqlite"), missing)

        return await self._apart(there)

    async def migrate(self) -> list[str]:
        """Apply missing migrations; the store need not be open."""
        return await self._apart(self._migrate)

    async def check(self) -> list[str]:
        """Verify integrity and durability settings; the store need not be open."""

        def look(glance: Glance | None) -> list[str]:
            try:
                with closing(opened(self._path, self._connect, glance=glance)) as connection:
                    return upkeep.check(connection, self._path, glance)
            except sqlite3.DatabaseError as failure:
                if not is_damaged(failure):
                    raise
                return [str(translated(failure, self._path))]

        def there() -> list[str]:
            examine(self._path)
            return glanced(self._path, look)

        return await self._apart(there)


def _data_version(tx: Transaction) -> int:
    found: int = tx.rows("pragma data_version")[0][0]
    return found
