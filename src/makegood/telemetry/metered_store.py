"""Replaces the store and the attempt runner of a watched process by wrappers that pass everything on, and
count.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from makegood.base.clock import Clock
from makegood.declare.action import Action
from makegood.election.protocol import Grant, LeaseStore
from makegood.errors import FencedOffError, SignalRefused
from makegood.model.attempt import Attempt
from makegood.model.messages import Request, TaskMessage
from makegood.store.lanes import LaneVerbs
from makegood.store.protocol import Nodes, Requests, Store, Tasks
from makegood.store.records import Identity, Judged, Offer, Taken
from makegood.store.schedule_records import FiringPass
from makegood.store.schedule_verbs import ScheduleVerbs
from makegood.store.schedules import Following
from makegood.store.supervision import SupervisionVerbs
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
        self._agents: OrderedDict[tuple[int, int, int], tuple[str, str]] = OrderedDict()

    def note(self, request: Request) -> None:
        """Remember the agent of a request."""
        self._agents[request.task, request.idx, request.attempt] = request.app, request.agent
        if len(self._agents) > _REMEMBERED:
            self._agents.popitem(last=False)

    def of(self, task: int, message: TaskMessage) -> tuple[str, str]:
        """Return (app, agent) of a reply and forget it; ("", "") if it is no longer known."""
        return self._agents.pop((task, message.idx, message.attempt), ("", ""))


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

    def time_calls(
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

    def count_refusals(self, call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a call of the Supervisor's that counts when it is refused."""

        async def watched(*args: P.args, **options: P.kwargs) -> T:
            try:
                return await call(*args, **options)
            except FencedOffError:
                self.tally.count(catalogue.FENCED, "supervisor")
                raise

        return watched

    def refusing(self, call: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return a call that sends a signal, and counts when it is refused. (A name that the workflow
        does not have has no label.)
        """

        async def watched(*args: P.args, **options: P.kwargs) -> T:
            try:
                return await call(*args, **options)
            except SignalRefused as refusal:
                name = refusal.signal if refusal.is_known else ""
                self.tally.count(catalogue.SIGNALS, refusal.app, refusal.workflow, name, "refused")
                raise

        return watched


def _slice(inner: object, **watched: Any) -> Any:
    """Return a slice of a store in which these verbs have others in their place."""
    verbs = {name: getattr(inner, name) for name in dir(inner) if not name.startswith("_")}
    return SimpleNamespace(**(verbs | watched))


class _WatchedRequests:
    def __init__(self, inner: Requests, meter: _Meter) -> None:
        self._meter = meter
        self._take = meter.time_calls("take", inner.take, lambda requests, *_, **__: len(requests))
        self._answer = meter.time_calls("answer", inner.answer, lambda answers, *_, **__: len(answers))

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


class _WatchedLeases:
    def __init__(self, inner: LeaseStore, meter: _Meter) -> None:
        self._inner = inner
        self._meter = meter
        self._epoch = 0

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a lease; a new epoch is a new term."""
        grant = await self._inner.acquire(name, holder, nonce, ttl)
        if grant is not None and grant.epoch != self._epoch:
            self._epoch = grant.epoch
            self._meter.tally.count(catalogue.LEADER_CHANGES, "supervisor")
        return grant


class _WatchedSupervision:
    def __init__(self, inner: SupervisionVerbs, meter: _Meter) -> None:
        self._meter = meter
        self._pass_began: float | None = None
        self._judge, self._starved = (
            meter.count_refusals(inner.judge),
            meter.count_refusals(inner.alert_starved),
        )

    async def judge(self, term: Grant, grace: float, limit: int) -> Judged:
        """Judge silence: a pass of the Supervisor begins."""
        self._pass_began = self._meter.clock.monotonic()
        return await self._judge(term, grace, limit)

    async def alert_starved(self, term: Grant, after: float, limit: int, outage: float = 300.0) -> list[int]:
        """Find requests that nobody takes: a pass of the Supervisor ends."""
        requests = await self._starved(term, after, limit, outage)
        if self._pass_began is not None:
            took = self._meter.clock.monotonic() - self._pass_began
            self._meter.tally.observe(catalogue.SCAN_SECONDS, took)
        return requests


class _WatchedSchedules:
    def __init__(self, inner: ScheduleVerbs, meter: _Meter) -> None:
        self._tally = meter.tally
        self._fire = meter.count_refusals(inner.fire)

    async def fire(self, term: Grant, limit: int, following: Following) -> FiringPass:
        """Fire schedules, and count what became of their moments. (Schedules that clients make have no
        label.)
        """
        outcome = await self._fire(term, limit, following)
        for firing in outcome.firings:
            labels = firing.app, firing.name if firing.is_declared else ""
            for late in firing.late:
                self._tally.count(catalogue.FIRINGS, *labels, "fired")
                self._tally.observe(catalogue.SCHEDULE_LATE, late, *labels)
            for reason, count in firing.skips.items():
                self._tally.count(catalogue.FIRINGS, *labels, reason, by=count)
        return outcome


class WatchedStore:
    """A store with timed and counted calls: those that write much, or show that the store is slow."""

    def __init__(self, inner: Store, tally: Counters, clock: Clock, whose: Whose) -> None:
        meter = _Meter(tally, clock, whose)
        self._inner = inner
        self.parallel_from = inner.parallel_from
        tasks, judging = inner.tasks, inner.supervision
        requests, supervision = _WatchedRequests(inner.requests, meter), _WatchedSupervision(judging, meter)
        commit = meter.time_calls(
            "commit", tasks.commit, lambda result, batch: len(batch.decisions) + len(result.claims)
        )
        submit = meter.time_calls("submit", tasks.submit, lambda _, drafts: len(drafts))
        inbox = meter.time_calls("inbox", tasks.inbox)
        signal = meter.refusing(tasks.signal)
        self.tasks: Tasks = _slice(tasks, commit=commit, submit=submit, inbox=inbox, signal=signal)
        self.requests: Requests = _slice(inner.requests, take=requests.take, answer=requests.answer)
        self.supervision: SupervisionVerbs = _slice(
            judging,
            judge=supervision.judge,
            alert_starved=supervision.alert_starved,
            judge_dead=meter.count_refusals(judging.judge_dead),
            release_dead=meter.count_refusals(judging.release_dead),
            release_unresponsive=meter.count_refusals(judging.release_unresponsive),
            expire_tasks=meter.count_refusals(judging.expire_tasks),
        )
        self.schedules: ScheduleVerbs = _slice(
            inner.schedules, fire=_WatchedSchedules(inner.schedules, meter).fire
        )
        self.leases: LeaseStore = _slice(inner.leases, acquire=_WatchedLeases(inner.leases, meter).acquire)
        self.nodes: Nodes = _slice(
            inner.nodes, heartbeat=meter.time_calls("heartbeat", inner.nodes.heartbeat)
        )
        self.alerts, self.queues, self.notices = inner.alerts, inner.queues, inner.notices
        self.admin, self.oversight = inner.admin, inner.oversight
        self.open, self.close, self.now = inner.open, inner.close, inner.now
        self.subscribe, self.receive = inner.subscribe, inner.receive
        self.joined, self.transact = inner.joined, inner.transact

    @property
    def identity(self) -> Identity:
        """The store's own random id and its generation."""
        return self._inner.identity

    @property
    def lanes(self) -> LaneVerbs:
        """Lanes: who holds them, and who waits."""
        return self._inner.lanes

    @property
    def label(self) -> str:
        """Which store it is, for people."""
        return self._inner.label
