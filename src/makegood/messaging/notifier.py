"""The Notifier: posts notices to submitters' webhooks. It runs in every process that has a Scheduler.

A notice was written with the state change that it reports. A notifier takes it under a lease, posts it, and
records the outcome. So of several notifiers one sends, another continues when that one dies, and each notice
arrives at least once. The next notice of a task can be taken only when the one before was delivered: they
arrive in order, whichever process sends.

If a receiver does not answer, the notice is tried again after growing waits, and at last given up with an
alert. Then no more notices of that task are sent until an operator says so. A silent receiver holds up
only its own tasks: each host gets a share of the concurrent posts, and a small share while it fails.

Hosts that have accepted nothing yet, or fail, are on probation. Those that one entry of ``webhook_hosts``
lists ("*.example.com" may list a million) share one allotment, and all of them together leave room for the
proven hosts.
"""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import Clock
from makegood.base.durations import retry_after
from makegood.base.ids import show
from makegood.base.pacing import event_within
from makegood.base.scrubbed_tracebacks import SCRUBBED_TRACEBACKS
from makegood.base.text import words
from makegood.brokers.protocol import RefusedTargetError
from makegood.errors import DeliveryError, StoreUnavailableError
from makegood.messaging.broker_poster import BrokerPoster
from makegood.messaging.hosts import Hosts, UnlistedTargetError
from makegood.messaging.poster import HTTPPoster, NoPoster, Poster
from makegood.messaging.receivers import Receivers
from makegood.model.notices import name_of
from makegood.options import Options
from makegood.payload.codec import UNREADABLE
from makegood.store.notice_records import Due, HostDue, Sending
from makegood.store.protocol import Store
from makegood.store.views import SenderInfo
from makegood.telemetry.hooks import Observer

log = logging.getLogger("makegood.notifier")
log.addFilter(SCRUBBED_TRACEBACKS)

AT_ONCE: Final = 32
"""Notices on their way at the same time."""

PER_HOST: Final = 8
"""Of those, to one host; one alone while it fails."""

PER_ENTRY: Final = 12
"""Of those, the ones to hosts on probation that one entry of the list of hosts covers."""

ON_PROBATION: Final = 24
"""Of those, to hosts on probation."""

FAILING: Final = 3
"""Failures of a host in a row after which it counts as failing.

For a host that has never accepted anything the first failure is enough.
"""

MOST_KNOWN: Final = 10_000
"""Hosts whose answers are remembered; a host that is forgotten counts as new."""

_LEASES: Final = 3
"""A notice's lease lasts this many times the limit of one post."""

ABANDONED: Final = 300.0
"""Seconds after which a notice that this process may not send is given up.

Until then another process may have the host on its list.
"""

UNLISTED: Final = 5
"""Tries of a notice for a port or a place that is not on the list of the process that takes it.

The usual waits between them are longer than ``ABANDONED``: processes with a new list may replace those with
the former one.
"""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a notice is tried before it is given up, and the waits between the tries."""

    tries: int = 12
    """Posts of one notice before it is given up."""
    wait: float = 5.0
    """Seconds before the second try."""
    factor: float = 4.0
    """Each wait is this many times the wait before."""
    longest: float = 21_600.0
    """Seconds that a wait lasts at most."""

    def after(self, tries: int, retry_after: float | None, rng: random.Random) -> float:
        """Return the wait after the ``tries``-th failure, randomised so that no two are the same.

        ``retry_after``: the wait that the receiver wants.
        """
        wait = min(self.wait * self.factor ** (tries - 1), self.longest)
        return min(max(wait * rng.uniform(0.75, 1.25), retry_after or 0.0), self.longest)


class Shares:
    """How the places for notices under way are shared among the hosts.

    ``hosts``: those that may be posted to.
    """

    def __init__(self, hosts: Hosts, rng: random.Random) -> None:
        self.hosts = hosts
        self._rng = rng
        self._fails: dict[str, int] = {}
        """Failures in a row of each host that is remembered."""
        self._foreign: set[str] = set()
        """Hosts that this process was last seen to leave to others."""

    def warn(self, foreign: set[str]) -> None:
        """Log, once for each host that this process must leave to others, why nothing is sent."""
        for host in sorted(foreign - self._foreign):
            log.warning(
                "a notice for %s waits: it is not among %s here; unless another process sends it, it is given up after %.0f s",
                host, "reply_to_brokers" if ":" in host else "webhook_hosts", ABANDONED,
            )  # fmt: skip
        self._foreign = foreign

    def room(self, due: Sequence[HostDue], busy: Counter[str]) -> list[tuple[str, int]]:
        """Return how many notices of each host may be sent now.

        Each host gets one in turn; then those that do not fail get more. ``busy``: how many are under way to
        each.
        """
        hosts = [h.host for h in due if h.seconds + self.seconds_left(h.host) <= 0]
        self._rng.shuffle(hosts)  # which host comes first must not be the alphabet's choice
        probes = Counter({host: count for host, count in busy.items() if self.on_probation(host)})
        entries: Counter[str] = Counter()
        for host, count in probes.items():
            entries[self.hosts.share(host)] += count
        left, probation = AT_ONCE - busy.total(), ON_PROBATION - probes.total()
        room: Counter[str] = Counter()
        for allowance in (1, PER_HOST):
            for host in hosts:
                most = 1 if self._fails.get(host, 0) >= FAILING else PER_HOST
                free = min(left, allowance, most - busy[host] - room[host])
                if self.on_probation(host) and (free := min(free, probation)) > 0:
                    share = self.hosts.share(host)
                    free = min(free, PER_ENTRY - entries[share])
                    if free > 0:
                        probation -= free
                        entries[share] += free
                if free > 0:
                    room[host] += free
                    left -= free
        return list(room.items())

    def seconds_left(self, host: str) -> float:
        """Return for how many seconds what is due for a host is left to other processes.

        0: this process takes it, even if only to give it up.
        """
        return 0.0 if not host or self.hosts.allow(host) else ABANDONED

    def note_answer(self, host: str, *, success: bool) -> None:
        """Remember how a host has answered."""
        before = self._fails.pop(host, FAILING)
        self._fails[host] = 0 if success else before + 1
        if len(self._fails) > MOST_KNOWN:
            del self._fails[next(iter(self._fails))]

    def on_probation(self, host: str) -> bool:
        """Whether a host fails, or has accepted nothing yet as far as is remembered."""
        return self._fails.get(host, FAILING) >= FAILING


class NoticePoster:
    """Posts notices, each once. ``poster``: posts them. ``patience``: how often a notice is tried.
    ``receivers``: what hears of the outcomes.
    """

    def __init__(
        self,
        poster: Poster,
        shares: Shares,
        patience: Patience,
        receivers: Receivers,
        *,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.poster = poster
        self.patience = patience
        self.receivers = receivers
        self._shares = shares
        self._clock = clock
        self._rng = rng

    async def post(self, notice: Due) -> Sending:
        """Post a notice and return what became of it."""
        try:
            self._refuse_foreign(notice.host)
            await self.poster.post(notice.url, _name(notice), notice.body)
        except DeliveryError as fault:
            return self._note_failure(notice, fault)
        except Exception as defect:
            log.exception("notice %d of task %s", notice.sequence, show(notice.task))
            return self._note_failure(notice, DeliveryError(words(defect, named=True)))
        self._shares.note_answer(notice.host, success=True)
        self.receivers.note_success(notice)
        return Sending(notice.task, notice.sequence, "sent")

    def _refuse_foreign(self, host: str) -> None:
        """Raise ``RefusedTargetError`` for a host that no process sends to."""
        if not self._shares.hosts.allow(host):
            setting = "reply_to_brokers" if ":" in host else "webhook_hosts"
            why = f"{host} is not among {setting} of any process that sends"
            raise RefusedTargetError(why if host else "its address is no URL that anything is sent to")

    def _note_failure(self, notice: Due, fault: DeliveryError) -> Sending:
        tries = notice.tries + 1
        is_refusal = isinstance(fault, RefusedTargetError)
        is_away = self.receivers.note_failure(notice, fault)
        if not is_refusal:
            self._shares.note_answer(notice.host, success=False)
        is_early = notice.early > 0
        is_unlisted = isinstance(fault, UnlistedTargetError)
        most = UNLISTED if is_unlisted else self.patience.tries
        if (is_refusal and not is_unlisted) or (tries >= most and not is_early):
            return Sending(notice.task, notice.sequence, "dead", error=words(fault))
        pause = _wait_asked_for(fault, self._clock.wall())
        if is_early:
            wait = min(max(notice.early, pause or 0.0), self.patience.longest)
        else:
            wait = self.patience.after(tries, pause, self._rng)
        task = show(notice.task)
        text = "notice %d of task %s, once more in %.0f s: %s"
        level = logging.DEBUG if is_away else logging.INFO
        log.log(level, text, notice.sequence, task, wait, fault, extra={"task": task})
        return Sending(notice.task, notice.sequence, "kept" if is_early else "failed", wait, words(fault))


class Notifier(Actor):
    """Sends notices, once ``rename`` gave it a number.

    ``hosts``: those that may be posted to. ``poster``: posts them. ``patience``: how often. ``timeout``: of
    one post, in seconds. ``poll``: seconds between reads of the store when no wake-up arrives, None = never.
    ``telemetry``: counts what is sent to brokers.
    """

    def __init__(
        self,
        store: Store,
        poster: Poster,
        hosts: Hosts,
        *,
        clock: Clock,
        rng: random.Random,
        patience: Patience | None = None,
        timeout: float = 10.0,
        poll: float | None = 5.0,
        telemetry: Observer | None = None,
    ) -> None:
        self.shares = Shares(hosts, rng)
        receivers = Receivers(store, hosts, clock=clock, rng=rng, telemetry=telemetry)
        patience = patience or Patience()
        self.delivery = NoticePoster(poster, self.shares, patience, receivers, clock=clock, rng=rng)
        self._node = 0
        self._store = store
        self._clock = clock
        self._rng = rng
        self._timeout = timeout
        self._poll = poll
        self._wake = receivers.wake = asyncio.Event()
        self.posts: dict[asyncio.Task[None], str] = {}
        """What is on its way, to which host."""
        self._settled: list[Sending] = []
        """What became of notices, as far as that is not written down yet."""
        self._idle: asyncio.Event | None = None
        """There from a drain on: set once nothing is under way."""

    @classmethod
    def of(
        cls,
        store: Store,
        options: Options,
        *,
        clock: Clock,
        rng: random.Random,
        telemetry: Observer | None = None,
    ) -> Self:
        """Return a notifier with these ``options``.

        Raises ``ConfigError`` when they name a host without a secret.
        """
        hosts = Hosts.of(options)
        timeout, poll = options.number("webhook_timeout"), options._poll_seconds
        poster: Poster = NoPoster()
        if hosts.entries:
            own, cause = options._receivers, options.webhook_cause
            secrets = (options.webhook_secret or "").split()
            poster = HTTPPoster(hosts, secrets, own=own, cause=cause, clock=clock, timeout=timeout)
            poster.warn()
        if hosts.places:
            poster = BrokerPoster(
                options._broker_targets, hosts, poster,
                cause=options.webhook_cause, timeout=timeout,
            )  # fmt: skip
        patience, poll = Patience(options.webhook_tries), None if poll is None else 5 * poll
        return cls(
            store, poster, hosts, clock=clock, rng=rng, patience=patience, timeout=timeout, poll=poll, telemetry=telemetry
        )  # fmt: skip

    def senders(self) -> tuple[SenderInfo, ...]:
        """Return what this process publishes about the brokers to which it sends."""
        return self.delivery.receivers.infos()

    def rename(self, node: int) -> None:
        """Take notices under this number."""
        self._node = node

    async def run(self) -> None:
        """Send notices until cancelled. Posts under way at that moment are sent again by another process."""
        stop = self._store.subscribe("notice", self._wake.set)
        setbacks = Setbacks("notifier", self._store.alerts, self._rng)
        try:
            while True:
                self._wake.clear()
                away = "the store is away; submitters are notified when it is back: %s"
                await event_within(self._wake, await setbacks.turn(self.turn, log, away))
        finally:
            stop()
            await cancel_and_wait(*self.posts)
            self.posts.clear()
            await self.delivery.receivers.close()
            await self.delivery.poster.close()

    async def drain(self, limit: float) -> None:
        """Take nothing more, and wait up to ``limit`` seconds until nothing is under way: for an orderly
        end.
        """
        self._idle = asyncio.Event()
        self._wake.set()
        await event_within(self._idle, limit)

    async def turn(self) -> float | None:
        """Record outcomes and take what is due; returns how long to rest at most."""
        outcomes = list(self._settled)
        if outcomes:
            await self._settle(outcomes)
        if self._idle is not None:
            if not self.posts:
                self._idle.set()
            return self._poll
        due = await self._store.notices.notices_due()
        self.shares.warn({host.host for host in due if self.shares.seconds_left(host.host)})
        busy = Counter(self.posts.values())
        receivers, lease = self.delivery.receivers, _LEASES * self._timeout
        room = self.shares.room(await receivers.turn(due, self.delivery.poster, busy), busy)
        if room:
            began = self._clock.monotonic()
            notices = await self._store.notices.take_notices(self._node, room, lease)
            left = Counter(dict(room)) - Counter(notice.host for notice in notices)
            for notice in [*notices, *await receivers.take_early(self._node, left, lease)]:
                self._send(notice, began)
        return self._rest(due)

    async def _settle(self, outcomes: Sequence[Sending]) -> None:
        """Record the outcomes of notices.

        A notice whose outcome cannot be recorded is left to its lease, and sent again.
        """
        try:
            await self._store.notices.settle_notices(self._node, outcomes)
        except StoreUnavailableError:
            raise
        except Exception:
            if len(outcomes) > 1:
                for outcome in outcomes:
                    await self._settle([outcome])
                return
            log.exception("what became of a notice of task %s cannot be written", show(outcomes[0].task))
        del self._settled[: len(outcomes)]

    def _rest(self, due: Sequence[HostDue]) -> float | None:
        """Return the seconds until something that this process may send will be due.

        A notice that is due now waits for room, and the room wakes this process.
        """
        waits = [self._poll * self._rng.uniform(0.8, 1.2)] if self._poll is not None else []
        if (probe := self.delivery.receivers.rest()) is not None:
            waits.append(probe)
        for host in due:
            seconds = host.seconds + self.shares.seconds_left(host.host)
            if seconds > 0:
                waits.append(seconds)
        return min(waits) if waits else None

    def _send(self, notice: Due, began: float) -> None:
        task = asyncio.get_running_loop().create_task(self._one(notice, began), name="post a notice")
        self.posts[task] = notice.host
        task.add_done_callback(self._finish)

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self.posts.pop(task, None)
        self._wake.set()
        if not task.cancelled() and (defect := task.exception()) is not None:
            log.error("a notice could not be posted, it is sent again later", exc_info=defect)

    async def _one(self, notice: Due, began: float) -> None:
        if self._clock.monotonic() - began > (_LEASES - 1) * self._timeout:
            return  # this process was stopped meanwhile: somebody else has it, or will
        self._settled.append(await self.delivery.post(notice))


def _name(notice: Due) -> str:
    """Return the id of a notice. Raises ``RefusedTargetError`` for one that cannot be read."""
    try:
        return name_of(notice.body)
    except UNREADABLE as fault:
        raise RefusedTargetError(f"the notification itself is unreadable: {words(fault)}") from fault


def _wait_asked_for(fault: DeliveryError, now: float) -> float | None:
    """Return the wait that a receiver asks for, None when it asks for none."""
    return None if fault.retry_after is None else retry_after(fault.retry_after, now)
