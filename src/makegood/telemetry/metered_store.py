"""Replaces the store and the attempt runner of a watched process by wrappers that pass everything on, and
count.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from makegood.base.clock import Clock
from makegood.declare.action import Action
from makegood.election.protocol import Grant
from makegood.errors import FencedOffError
from makegood.model.attempt import Attempt
from makegood.model.messages import Request, TaskMessage
from makegood.store.protocol import Leases, Nodes, Requests, Store, Supervision, Tasks
from makegood.store.records import (
    NO_LIMIT,
    Batch,
    Committed,
    Identity,
    Judged,
    Offer,
    Submission,
    Submitted,
    Taken,
    TaskMessages,
)
from makegood.store.views import NodeInfo
from makegood.telemetry import catalogue
from makegood.telemetry.counters import Counters
from makegood.telemetry.hooks import Answering

_REMEMBERED: Final = 10_000
"""The most attempts whose agent is remembered until the store has accepted their replies."""


class Whose:
    """Remembers the agent (app, agent) of each attempt until its reply; the oldest attempts are forgotten."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int, int], tuple[str, str]] = OrderedDict()

    def note(self, request: Request) -> None:
        """Remember the agent of a request."""
        self._known[request.task, request.idx, request.attempt] = request.app, request.agent
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def of(self, task: int, message: TaskMessage) -> tuple[str, str]:
        """Return (app, agent) of a reply and forget it; ("", "") if it is no longer known."""
        return self._known.pop((task, message.idx, message.attempt), ("", ""))


class CountedAttempts:
    """Times attempts; see ``hooks.Answering``."""

    def __init__(self, inner: Answering, tally: Counters, clock: Clock) -> None:
        self._inner = inner
        self._tally = tally
        self._clock = clock

    async def answer(self, attempt: Attempt, action: Action[..., Any]) -> TaskMessage | None:
        """Time one attempt, and return its answer."""
        request, began = attempt.request, self._clock.monotonic()
        labels = request.app, request.agent, request.action
        self._tally.observe(catalogue.START_SECONDS, request.waited + began - attempt.began, *labels)
        try:
            return await self._inner.answer(attempt, action)
        finally:
            lasted = self._clock.monotonic() - began
            self._tally.observe(catalogue.STEP_SECONDS, lasted, *labels, request.doing)


class _Timed:
    """Notes how long a call of the store takes."""

    __slots__ = ("_began", "_clock", "_op", "_tally")

    def __init__(self, tally: Counters, clock: Clock, op: str) -> None:
        self._tally = tally
        self._clock = clock
        self._op = op

    def __enter__(self) -> None:
        self._began = self._clock.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tally.observe(catalogue.STORE_SECONDS, self._clock.monotonic() - self._began, self._op)


class _Meter:
    """Times and counts the calls of a store."""

    def __init__(self, tally: Counters, clock: Clock, whose: Whose) -> None:
        self.tally = tally
        self.clock = clock
        self.whose = whose

    def timed(self, op: str) -> _Timed:
        """Note how long a call takes."""
        return _Timed(self.tally, self.clock, op)

    def wrote(self, op: str, size: int) -> None:
        """Count a commit and its size."""
        if size:
            self.tally.count(catalogue.COMMITS, op)
            self.tally.observe(catalogue.BATCH, float(size), op)


class _WatchedTasks:
    def __init__(self, inner: Tasks, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter
        self.join, self.load, self.put_to_error = inner.join, inner.load, inner.put_to_error
        self.post, self.answers, self.history = inner.post, inner.answers, inner.history
        self.find, self.count, self.detail = inner.find, inner.count, inner.detail

    async def commit(self, batch: Batch) -> Committed:
        """Write Decisions."""
        with self._meter.timed("commit"):
            committed = await self._inner.commit(batch)
        self._meter.wrote("commit", len(batch.decisions) + len(committed.claimed))
        return committed

    async def submit(self, drafts: Sequence[Submission]) -> list[Submitted]:
        """Insert tasks."""
        with self._meter.timed("submit"):
            answers = await self._inner.submit(drafts)
        self._meter.wrote("submit", len(drafts))
        return answers

    async def inbox(self, node: int, limit: int, room: int = NO_LIMIT) -> TaskMessages:
        """Look for messages."""
        with self._meter.timed("inbox"):
            return await self._inner.inbox(node, limit, room)


class _WatchedRequests:
    def __init__(self, inner: Requests, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter
        self.extend, self.give_back, self.excuse = inner.extend, inner.give_back, inner.excuse

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Take requests."""
        with self._meter.timed("take"):
            taken = await self._inner.take(node, offers, alone=alone)
        self._meter.wrote("take", len(taken))
        for request in taken:  # what is handed over in memory is answered in memory, as good as always
            self._meter.whose.note(request)
        return taken

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Leave replies."""
        with self._meter.timed("answer"):
            accepted = await self._inner.answer(node, replies)
        self._meter.wrote("answer", len(replies))
        for (task, message), in_time in zip(replies, accepted, strict=True):
            whose = self._meter.whose.of(task, message)
            if not in_time:
                self._meter.tally.count(catalogue.LATE, *whose)
        return accepted


class _WatchedNodes:
    def __init__(self, inner: Nodes, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter
        self.register, self.unregister = inner.register, inner.unregister
        self.views, self.depths = inner.views, inner.depths

    async def heartbeat(self, node: int, info: NodeInfo) -> bool:
        """Extend the process's life."""
        with self._meter.timed("heartbeat"):
            return await self._inner.heartbeat(node, info)


class _WatchedLeases:
    def __init__(self, inner: Leases, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter
        self._epoch = 0
        self.renew, self.release = inner.renew, inner.release
        self.read, self.past_terms = inner.read, inner.past_terms

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a lease; a new epoch is a new term."""
        grant = await self._inner.acquire(name, holder, nonce, ttl)
        if grant is not None and grant.epoch != self._epoch:
            self._epoch = grant.epoch
            self._meter.tally.count(catalogue.LEADER_CHANGES, "supervisor")
        return grant


class _WatchedSupervision:
    def __init__(self, inner: Supervision, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter
        self._pass_began: float | None = None
        self.horizon = inner.horizon

    async def judge(self, term: Grant, grace: float, limit: int) -> Judged:
        """Judge silence: a pass of the Supervisor begins."""
        self._pass_began = self._meter.clock.monotonic()
        with self._fenced():
            return await self._inner.judge(term, grace, limit)

    async def starved(self, term: Grant, after: float, limit: int, outage: float = 300.0) -> list[int]:
        """Find requests that nobody takes: a pass of the Supervisor ends."""
        with self._fenced():
            found = await self._inner.starved(term, after, limit, outage)
        if self._pass_began is not None:
            self._meter.tally.observe(
                catalogue.SCAN_SECONDS, self._meter.clock.monotonic() - self._pass_began
            )
        return found

    async def release_dead(self, term: Grant, limit: int) -> list[int]:
        """Free the tasks of dead processes."""
        with self._fenced():
            return await self._inner.release_dead(term, limit)

    async def release_deaf(self, term: Grant, older: float, limit: int) -> list[int]:
        """Free the tasks of Schedulers that do not answer."""
        with self._fenced():
            return await self._inner.release_deaf(term, older, limit)

    async def expire_tasks(self, term: Grant, limit: int) -> list[int]:
        """Find tasks past their complete-by."""
        with self._fenced():
            return await self._inner.expire_tasks(term, limit)

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        try:
            yield
        except FencedOffError:
            self._meter.tally.count(catalogue.FENCED, "supervisor")
            raise


class WatchedStore:
    """A store with timed and counted calls: those that write much, or show that the store is slow."""

    def __init__(self, inner: Store, tally: Counters, clock: Clock, whose: Whose) -> None:
        meter = _Meter(tally, clock, whose)
        self._inner = inner
        self.abreast = inner.abreast
        self.tasks = _WatchedTasks(inner.tasks, meter)
        self.requests = _WatchedRequests(inner.requests, meter)
        self.supervision = _WatchedSupervision(inner.supervision, meter)
        self.leases = _WatchedLeases(inner.leases, meter)
        self.nodes = _WatchedNodes(inner.nodes, meter)
        self.alerts, self.queues, self.notices, self.admin = (
            inner.alerts,
            inner.queues,
            inner.notices,
            inner.admin,
        )
        self.open, self.close, self.now = inner.open, inner.close, inner.now
        self.subscribe, self.joined, self.transact = inner.subscribe, inner.joined, inner.transact

    @property
    def identity(self) -> Identity:
        """The store's own random id and its generation."""
        return self._inner.identity
