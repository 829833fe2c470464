"""``SQLiteStore``: the store on one SQLite file, made of its slices, threads and wake socket."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from makegood.base.clock import Clock, SystemClock
from makegood.store import records
from makegood.store.alerts import AlertVerbs
from makegood.store.lanes import LaneVerbs
from makegood.store.notice_operations import NoticeVerbs
from makegood.store.oversight import OversightVerbs
from makegood.store.priority_ageing import Ageing
from makegood.store.records import IDLE
from makegood.store.sqlite import slices
from makegood.store.sqlite.connection import Connect, connect
from makegood.store.sqlite.database import Database
from makegood.store.sqlite.inbox_work import WorkFault, run_at_once, run_dialogue
from makegood.store.sqlite.joined_watch import RowKey
from makegood.store.sqlite.store_threads import StoreThread
from makegood.store.sqlite.wake_socket import Heard, WakeSocket
from makegood.store.sqlite.wakes import Wakes
from makegood.store.subscribers import Receive
from makegood.store.supervision import SupervisionVerbs
from makegood.transactions import Caller

T = TypeVar("T")

_POLL = 1.0
_PARALLEL_FROM = 64  # while one batch is written, the others are decided and wait in line


class SQLiteStore:
    """The store on one SQLite file.

    ``path``: the file. ``clock``: the machine's clock, unless a test passes its own. ``poll``: seconds
    between polls for commits of other processes, which back up the wake socket; None: never. ``ageing``:
    seconds of waiting that count as one more priority; None: never. ``open_connection``: opens connections;
    tests pass one that counts or fails. ``line`` and ``wake_socket``: create the two threads and the wake
    socket; a simulated world has neither and passes its own.

    A store object belongs to the event loop on which it was opened.
    """

    parallel_from: int | None = _PARALLEL_FROM

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        poll: float | None = _POLL,
        ageing: float | None = 60.0,
        open_connection: Connect = connect,
        line: Callable[..., StoreThread] = StoreThread,
        wake_socket: Callable[[Path, Heard], WakeSocket] = WakeSocket,
    ) -> None:
        self._database = database = Database(Path(path), clock or SystemClock(), open_connection, line)
        self._wakes = Wakes(database, wake_socket, poll)
        ageing_policy = Ageing(ageing)  # the writer's
        self.tasks = slices.TaskSlice(database, ageing_policy)
        self.requests = slices.RequestSlice(database, ageing_policy)
        self.supervision = SupervisionVerbs(database, database.clock.clock)
        self.alerts = AlertVerbs(database)
        self.queues = slices.QueueSlice(database)
        self.notices = NoticeVerbs(database)
        self.leases = slices.LeaseSlice(database)
        self.nodes = slices.NodeSlice(database)
        self.admin = slices.AdminSlice(database)
        self.oversight = OversightVerbs(database)

    @property
    def lanes(self) -> LaneVerbs:
        """Lanes: who holds them, and who waits."""
        return LaneVerbs(self._database)

    @property
    def schedules(self) -> slices.ScheduleSlice:
        """Schedules and their firings."""
        return slices.ScheduleSlice(self._database)

    @property
    def identity(self) -> records.Identity:
        """The store's own random id and its generation."""
        return self._database.stored_identity or self._database.identity

    @property
    def label(self) -> str:
        """Which store it is, for people."""
        return f"SQLite {self._database.path.name}"

    async def open(self, *, migrate: bool = False, looking: bool = False) -> None:
        """Open the file, verify settings and schema, start the threads and open the wake socket.

        This waits for a lock, which the caller itself may hold, only if there is something to write: a new
        file, an old schema, or the first process since the machine started. With ``looking``, it writes only
        to a new file or an old schema.
        """
        if self._database.writer is not None:
            return
        await self._database.prepare(migrate=migrate, looking=looking)
        try:
            await self._database.start(self._wakes.wake_socket(), self._wakes.announce)
        except BaseException:
            await self.close()
            raise
        self._wakes.open(asyncio.get_running_loop())

    async def close(self) -> None:
        """Finish the operations asked for, then close the file and the wake socket."""
        await self._wakes.rest()
        await self._database.close()
        self._wakes.close()

    async def now(self) -> float:
        """Return the store's clock."""
        return self._database.now()

    def subscribe(self, topic: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when something may have arrived for ``topic``; returns a function that ends the
        subscription.
        """
        return self._wakes.subscribe(topic, wake)

    def receive(self, take: Receive) -> Callable[[], None]:  # noqa: ARG002 - a read costs no round trip here
        """Offer nothing."""
        return lambda: None

    def joined(self, *keys: RowKey) -> None:
        """Poll for these tasks or messages for 10 seconds, and wake listeners once they are committed."""
        self._wakes.expect(*keys)

    async def transact(
        self,
        work: Callable[[Caller], Coroutine[Any, Any, T]],
        *,
        waits: bool,
        idle: float = IDLE,  # noqa: ARG002 - a file has no session that ends
    ) -> T:
        """Run ``work`` in a transaction of the store; ``waits``: the work has to wait (an ``async def``)."""
        if waits:
            return await run_dialogue(self._database.write, work)
        try:
            return await self._database.write(partial(run_at_once, work=work))
        except WorkFault as wrapper:
            fault = wrapper.fault
        raise fault  # with the cause that it has, and not from the wrapper
