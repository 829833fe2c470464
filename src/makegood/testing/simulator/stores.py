"""The real SQLite store inside a simulated process.

``InlineLine`` is a store's thread without a thread: it performs its operations in one go after a virtual
delay, in the only thread. Its commits may fail, be slow, or be the last act of its process.
``WorldWakeSocket`` wakes through the sockets of the world's other processes. ``Wire`` is the store as its
process sees it: faults may strike before and after each operation, and requests and replies may be lost,
duplicated or late.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from makegood.base.ids import address
from makegood.election.protocol import LeaseStore
from makegood.errors import FencedOffError, StoreUnavailableError
from makegood.model.messages import Request, TaskMessage
from makegood.store.protocol import Nodes, Requests, Tasks
from makegood.store.records import Batch, Committed, Offer, Taken
from makegood.store.sqlite.store_threads import Operation, StoreThread
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.store.sqlite.wake_socket import Heard, WakeSocket
from makegood.store.supervision import SupervisionVerbs
from makegood.testing.history import History
from makegood.testing.simulator.doubles import Doubled
from makegood.testing.simulator.files import Files, WatchedConnection
from makegood.testing.simulator.loop import KilledError, SimulatedProcess, WorldLoop
from makegood.testing.simulator.recorder import Recorder
from makegood.testing.simulator.swarm import Swarm

_ASKED, _ANSWERED = ("kill", "stop", "store down"), ("kill", "stop")
_AT_COMMIT = ("kill", "ambiguous committed", "ambiguous not committed", "slow commit", "stop")
_LONGEST_COMMIT = 3.0
_LATEST_COPY = 5.0
"""Seconds after which a copy of a request comes."""


class StoreWorld(Protocol):
    """The parts of a world that its stores need."""

    loop: WorldLoop
    history: History
    recorder: Recorder
    files: Files
    log_pages: int
    once: frozenset[str]

    @property
    def swarm(self) -> Swarm:
        """Its options."""

    def strike(self, name: str, able: tuple[str, ...], process: SimulatedProcess | None = None) -> str | None:
        """Report that a fault point is reached; returns what struck there."""

    async def bear(self, fault: str) -> None:
        """Apply a fault to the calling process; never returns in one that was killed."""

    def draw(self) -> float:
        """Return a random number in [0, 1)."""

    def lateness(self) -> float:
        """Return for how many seconds a slow reply is under way."""

    def away(self, process: SimulatedProcess) -> bool:
        """Whether this process cannot reach the store now."""

    def wake(self, sender: "WorldWakeSocket", topics: set[str]) -> None:
        """Relay a wake-up to the other processes."""


class InlineLine(StoreThread):
    """A store's line that performs its operations inline, each batch at one moment of virtual time."""

    def __init__(self, *args: Any, world: StoreWorld, process: SimulatedProcess, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.place = None  # Nothing moves a world's file away.
        if self.log is not None:
            self.log.pages = world.log_pages
        self._world = world
        self._process = process
        self._in_hand: list[Operation] = []
        self._busy = False
        self._slow = 0.0
        self._verbs: list[str] = []
        self._looking = False
        self._watching: WatchedConnection | None = None

    def start(self) -> None:
        """Start nothing: the only thread does the work."""
        self._thread = threading.current_thread()

    def _hand_over(self) -> None:
        operations, self._operations = self._operations, []
        self._in_hand += operations
        if self._in_hand and not self._busy:
            self._busy = True
            self._later(self._world.draw() * 0.001, self._work)

    def _work(self) -> None:
        operations, self._in_hand = self._in_hand, []
        self._slow = 0.0
        self._perform(operations)

    def _hand_back(self, operations: list[Operation], topics: set[str]) -> None:
        self._later(self._world.draw() * 0.002 + self._slow, self._deliver_and_continue, operations, topics)

    def _later(self, delay: float, step: Callable[..., None], *args: Any) -> None:
        """Take a step in the context of the process, as a thread of its own would, whoever has called."""
        self.loop.call_later(delay, step, *args, context=self._process.context)

    def _deliver_and_continue(self, operations: list[Operation], topics: set[str]) -> None:
        self._deliver(operations, topics)
        self._busy = bool(self._in_hand)
        if self._busy:
            self._work()

    async def stop(self) -> None:
        """Finish the pending operations and close the connection."""
        if self._over or self._thread is None:
            return
        self._hand_over()
        self._over = True
        while self._busy:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.001)
        self._drop()

    # -- what the world sees of a transaction ------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        fresh = self._connection is None
        with self._world.files.opening("writer" if self.writes else "reader"):
            connection = super()._connect()
        if self.writes:
            assert isinstance(connection, WatchedConnection)
            if fresh:
                self._world.recorder.watch(connection)
            connection.on_commit = self._at_commit
            self._watching = connection
        return connection

    def _write(self, operations: list[Operation]) -> set[str]:
        self._verbs = []
        self._world.recorder.begin(self._process.name)
        try:
            return super()._write(operations)
        except BaseException:
            self._world.recorder.roll_back(self._verbs)
            raise
        finally:
            if self._watching is not None:
                self._watching.on_commit = None  # Another process may write next.

    def _merge_log(self) -> None:
        with self._world.files.opening("merger"):
            super()._merge_log()

    def _begin(self, tries: int | None = None) -> sqlite3.Connection:
        connection = super()._begin(tries)
        self._verbs = []
        self._world.recorder.transaction(connection)
        return connection

    def _was_written(self, failure: sqlite3.Error) -> bool:
        self._looking = True
        try:
            return super()._was_written(failure)
        finally:
            self._looking = False

    def _do(self, tx: WriteTransaction, group: list[Operation], *, alone: bool) -> None:
        super()._do(tx, group, alone=alone)
        action = group[0].action
        verb = getattr(action, "func", action).__name__
        self._verbs.append(verb)
        self._world.recorder.finish(tx, verb, getattr(action, "keywords", {}))

    def _at_commit(self, connection: WatchedConnection) -> None:
        world = self._world
        name = "+".join(dict.fromkeys(self._verbs))
        if self._looking:
            connection.commit_truly()
            return
        fault = world.strike(f"commit {name}", _AT_COMMIT, self._process)
        if fault == "kill":
            raise KilledError
        if fault == "ambiguous not committed":
            world.recorder.outcome = fault
            connection.rollback()
            raise _unknown()
        connection.commit_truly()
        if fault == "ambiguous committed":
            world.recorder.keep(fault, self._verbs)
            raise _unknown()
        world.recorder.keep("committed", self._verbs)
        if fault == "slow commit":
            self._slow = world.draw() * _LONGEST_COMMIT
        if world.strike(f"committed {name}", ("kill", "stop"), self._process) == "kill":
            raise KilledError


def _unknown() -> sqlite3.OperationalError:
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    failure.sqlite_errorname = "SQLITE_IOERR_FSYNC"
    return failure


class WorldWakeSocket(WakeSocket):
    """The wake socket of a store object in a simulated process: it has no socket, the world relays the wake-
    ups.
    """

    def __init__(self, path: Path, callback: Heard, *, world: StoreWorld, process: SimulatedProcess) -> None:
        super().__init__(path, callback)
        self._world = world
        self.process = process
        self.kinds: set[str] = set()

    def open(self) -> None:
        """There is no socket to watch."""

    def listen_to(self, topic: str) -> None:
        """Register the kinds of topics that concern this process."""
        self.kinds.add(topic.partition(":")[0])

    def hears(self, kinds: set[str]) -> bool:
        """Whether one of these kinds of topics concerns this process."""
        return not self.kinds.isdisjoint(kinds)

    def wake(self, topics: set[str]) -> None:
        """Wake the others."""
        self._world.wake(self, topics)

    def close(self) -> None:
        """Stop listening."""
        self.kinds.clear()


_NOT_STRUCK = frozenset({"join", "signal", "join_signal", "put_to_error", "count", "views", "depths"})
VERBS = frozenset(
    verb
    for room in (Tasks, Requests, SupervisionVerbs, LeaseStore, Nodes)
    for verb in dir(room)
    if not verb.startswith("_") and verb not in _NOT_STRUCK
) | {"nodes", "alert", "alerts", "now", "open"}
"""The operations that faults may strike; "nodes" and "alerts" are the views of these slices."""


class Wire(Doubled):
    """The store as one process sees it, and the way of its messages."""

    def __init__(
        self, world: StoreWorld, store: Any, process: SimulatedProcess, verbs: frozenset[str] = VERBS
    ) -> None:
        super().__init__(store)
        self._world = world
        self._process = process
        self._targets = verbs
        self._again: list[tuple[float, float, Request]] = []
        """Copies that come later: when, since when, of what."""

    def double_of(self, name: str, member: Any) -> Any:
        """Return a verb that may be struck."""
        if name not in self._targets:
            return member
        return partial(self._call, name, member)

    async def _call(self, name: str, method: Any, *args: Any, **kwargs: Any) -> Any:
        world = self._world
        fault = world.strike(f"{name} asked", _ASKED)
        if fault is not None:
            await world.bear(fault)
        if fault == "store down" or world.away(self._process):
            raise StoreUnavailableError(f"{name}: the store is away, says the simulator")
        try:
            return await method(*args, **kwargs)
        except FencedOffError as over:
            self._note_refusal("supervisor", f"{name}: epoch {over.epoch}")
            raise
        finally:
            if (fault := world.strike(f"{name} answered", _ANSWERED)) is not None:
                await world.bear(fault)

    def _note_refusal(self, what: str, why: str, task: int = 0, idx: int = -1, attempt: int = 0) -> None:
        name = self._process.name
        self._world.history.note("refused", name, task, what=what, idx=idx, attempt=attempt, why=why)

    # -- requests and replies ----------------------------------------------------------------------

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Take requests; each may be lost on its way, and may come a second time.

        No copy comes so late that its agent would send it under a key that the service has forgotten: the
        agent cannot tell it from the request, so a channel that may deliver twice must lose such a copy.
        """
        requests: Taken = await self._call("take", self._store.requests.take, node, offers, alone=alone)
        world, now = self._world, self._world.loop.now
        room = {offer.agent: offer.slots for offer in offers}
        arrivals = Taken((), requests.again)
        for request in requests:
            room[owner := address(request.app, request.agent)] -= 1
            able = ("drop",) if owner in world.once else ("drop", "duplicate")
            fault = world.strike("request", able)
            if fault == "duplicate":
                self._again.append((now + world.draw() * _LATEST_COPY, now, request))
            if fault != "drop":
                arrivals.append(request)
        for copy in list(self._again):
            due, since, request = copy
            owner = address(request.app, request.agent)
            if due <= now and room.get(owner, 0) > 0:
                self._again.remove(copy)
                age = now - since + (request.taken_at - request.first_sent if request.first_sent else 0.0)
                if request.keeps and age >= request.keeps - request.within:
                    continue
                room[owner] -= 1
                arrivals.append(request)
        return arrivals

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Give replies; each may be lost on its way, duplicated or late."""
        world, deliveries = self._world, []
        for task, message in replies:
            world.history.note(
                "reply", self._process.name, task, idx=message.idx, doing=message.doing, attempt=message.attempt,
                reply=message.kind,
            )  # fmt: skip
            fault = world.strike("reply", ("drop", "duplicate", "delay"))
            if fault in ("duplicate", "delay"):
                asyncio.get_running_loop().create_task(self._later(node, task, message))
            if fault not in ("drop", "delay"):
                deliveries.append((task, message))
        if not deliveries:
            return [True] * len(replies)
        verdicts = await self._call("answer", self._store.requests.answer, node, deliveries)
        self._note_late(deliveries, verdicts)
        results = {
            (task, id(message)): verdict
            for (task, message), verdict in zip(deliveries, verdicts, strict=True)
        }
        return [results.get((task, id(message)), True) for task, message in replies]

    async def _later(self, node: int, task: int, message: TaskMessage) -> None:
        """Deliver a slow reply; nobody learns its result."""
        await asyncio.sleep(self._world.lateness())
        try:
            verdicts = await self._call("answer", self._store.requests.answer, node, [(task, message)])
        except StoreUnavailableError:
            return
        self._note_late([(task, message)], verdicts)

    def _note_late(self, deliveries: Sequence[tuple[int, TaskMessage]], verdicts: Sequence[bool]) -> None:
        for (task, message), in_time in zip(deliveries, verdicts, strict=True):
            if not in_time:
                about = {"idx": message.idx, "attempt": message.attempt}
                self._world.history.note("late", self._process.name, task, doing=message.doing, **about)
                self._note_refusal("reply", "late or superseded", task, **about)

    async def commit(self, batch: Batch) -> Committed:
        """Commit Decisions; those that were lost, and replies that changed nothing, are noted as refused."""
        outcome: Committed = await self._call("commit", self._store.tasks.commit, batch)
        for task in sorted(outcome.losses):
            self._note_refusal("decision", "its lock or its request was gone", task)
        decisions = [d for d in batch.decisions if d.task.id not in outcome.losses]
        for decision in (*decisions, *(decision for _, decision in outcome.claims)):
            for end in decision.attempts:
                if end.late:
                    self._note_refusal("reply", "superseded", decision.task.id, end.idx, end.attempt)
        return outcome

    async def renew(self, grant: Any) -> bool:
        """Renew a lease; a refusal is noted."""
        success: bool = await self._call("renew", self._store.leases.renew, grant)
        if not success:
            self._note_refusal("lease", f"epoch {grant.epoch}")
        return success
