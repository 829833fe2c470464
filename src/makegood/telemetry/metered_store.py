"""Replaces the store and the attempt runner of a watched process by wrappers that pass everything on, and
count.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from makegood.base.clock import Clock
from makegood.declare.action import Action
from makegood.election.protocol import Grant
from makegood.errors import FencedOffError
from makegood.model.attempt import Attempt
from makegood.model.messages import Request, TaskMessage
from makegood.store.protocol import Leases, Nodes, Requests, Store, Supervision, Tasks
from makegood.store.records import Identity, Judged, Offer, Taken
from makegood.telemetry import catalogue
from makegood.telemetry.counters import Counters
from makegood.telemetry.hooks import Answering

P = ParamSpec("P")
T = TypeVar("T")

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
            duration = self._clock.monotonic() - began
            self._tally.observe(catalogue.STEP_SECONDS, duration, *labels, request.doing)


class _Meter:
    """Times and counts the calls of a store."""

    def __init__(self, tally: Counters, clock: Clock, whose: Whose) -> None:
        self.tally = tally
        self.clock = clock
        self.whose = whose

    def timed(
        self, op: str, call: Callable[P, Awaitable[T]], size: Callable[Concatenate[T, P], int] | None = None
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a call that notes how long it takes; with ``size`` (of its result and arguments), also how
        much it wrote.
        """

        async def watched(*args: P.args, **options: P.kwargs) -> T:
            began = self.clock.monotonic()
            try:
                result = await call(*args, **options)
            finally:
                self.tally.observe(catalogue.STORE_SECONDS, self.clock.monotonic() - began, op)
            if size is not None and (row_count := size(result, *args, **options)):
                self.tally.count(catalogue.COMMITS, op)
                self.tally.observe(catalogue.BATCH, float(row_count), op)
            return result

        return watched

    def fenced(self, call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a call of the Supervisor's that counts when it is refused."""

        async def watched(*args: P.args, **options: P.kwargs) -> T:
            try:
                return await call(*args, **options)
            except FencedOffError:
                self.tally.count(catalogue.FENCED, "supervisor")
                raise

        return watched


class _WatchedTasks:
    def __init__(self, inner: Tasks, meter: _Meter) -> None:
        self.commit = meter.timed(
            "commit", inner.commit, lambda result, batch: len(batch.decisions) + len(result.claims)
        )
        self.submit = meter.timed("submit", inner.submit, lambda _, drafts: len(drafts))
        self.inbox = meter.timed("inbox", inner.inbox)
        self.clock = inner.clock
        self.join, self.load, self.put_to_error = inner.join, inner.load, inner.put_to_error
        self.post, self.answers, self.history = inner.post, inner.answers, inner.history
        self.find, self.count, self.detail = inner.find, inner.count, inner.detail
        self.search, self.tally, self.briefs = inner.search, inner.tally, inner.briefs
        self.unended, self.lately = inner.unended, inner.lately
        self.waits, self.progress = inner.waits, inner.progress
        self.excerpt, self.step_names, self.value = inner.excerpt, inner.step_names, inner.value
        self.recent, self.events_after = inner.recent, inner.events_after


class _WatchedRequests:
    def __init__(self, inner: Requests, meter: _Meter) -> None:
        self._meter = meter
        self._take = meter.timed("take", inner.take, lambda requests, *_, **__: len(requests))
        self._answer = meter.timed("answer", inner.answer, lambda answers, *_, **__: len(answers))
        self.extend, self.turn, self.give_back, self.excuse = (
            inner.extend,
            inner.turn,
            inner.give_back,
            inner.excuse,
        )

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Take requests."""
        requests = await self._take(node, offers, alone=alone)
        for request in requests:  # what is handed over in memory is answered in memory, as good as always
            self._meter.whose.note(request)
        return requests

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Leave replies."""
        answers = await self._answer(node, replies)
        for (task, message), in_time in zip(replies, answers, strict=True):
            whose = self._meter.whose.of(task, message)
            if not in_time:
                self._meter.tally.count(catalogue.LATE, *whose)
        return answers


class _WatchedNodes:
    def __init__(self, inner: Nodes, meter: _Meter) -> None:
        self.heartbeat = meter.timed("heartbeat", inner.heartbeat)
        self.register, self.unregister = inner.register, inner.unregister
        self.views, self.depths, self.waiting = inner.views, inner.depths, inner.waiting


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
        self._meter = meter
        self._pass_began: float | None = None
        self._judge, self._starved = meter.fenced(inner.judge), meter.fenced(inner.starved)
        self.release_dead = meter.fenced(inner.release_dead)
        self.release_deaf = meter.fenced(inner.release_deaf)
        self.expire_tasks = meter.fenced(inner.expire_tasks)
        self.horizon = inner.horizon

    async def judge(self, term: Grant, grace: float, limit: int) -> Judged:
        """Judge silence: a pass of the Supervisor begins."""
        self._pass_began = self._meter.clock.monotonic()
        return await self._judge(term, grace, limit)

    async def starved(self, term: Grant, after: float, limit: int, outage: float = 300.0) -> list[int]:
        """Find requests that nobody takes: a pass of the Supervisor ends."""
        requests = await self._starved(term, after, limit, outage)
        if self._pass_began is not None:
            took = self._meter.clock.monotonic() - self._pass_began
            self._meter.tally.observe(catalogue.SCAN_SECONDS, took)
        return requests


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
        self.alerts, self.queues, self.notices = inner.alerts, inner.queues, inner.notices
        self.admin, self.oversight = inner.admin, inner.oversight
        self.open, self.close, self.now = inner.open, inner.close, inner.now
        self.subscribe, self.joined, self.transact = inner.subscribe, inner.joined, inner.transact

    @property
    def identity(self) -> Identity:
        """The store's own random id and its generation."""
        return self._inner.identity

    @property
    def label(self) -> str:
        """Which store it is, for people."""
        return self._inner.label
