"""The Notifier: sends what submitters are told to their webhooks. It runs in every process that has a Scheduler.

What is to be sent was written with the state change that it tells of. A notifier takes it under a lease, posts it, and writes
down what became of it; so of several notifiers one sends, another goes on when it dies, and each notice arrives at least once.
Of one task the next notice can be taken only when the one before was delivered: they arrive in order, whoever sends.

A receiver that does not answer is tried again after growing waits, and given up with an alert at last; then nothing more of that
task is sent until an operator says so. It holds up only its own tasks: each host gets a share of the sending at one time, and
a small one while it fails. Hosts that have taken nothing yet, or fail, are on probation: those that one entry of ``webhook_hosts``
lists ("*.example.com" may list a million) get a share together, and all of them together leave room for the hosts that are proven.
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
from makegood.base.clock import Clock
from makegood.base.durations import retry_after
from makegood.base.ids import show
from makegood.base.pacing import Pauses, rung
from makegood.base.text import words
from makegood.errors import DeliveryError, StoreUnavailableError
from makegood.messaging.hosts import Hosts, RefusedTargetError
from makegood.messaging.poster import HTTPPoster, NoPoster, Poster
from makegood.model.notices import name_of
from makegood.options import Options
from makegood.payload.codec import UNREADABLE
from makegood.store.notice_records import Due, HostDue, Sending
from makegood.store.protocol import Store

log = logging.getLogger("makegood.notifier")

AT_ONCE: Final = 32
"""Notices on their way at the same time."""

PER_HOST: Final = 8
"""Of those, to one host; one alone while it fails."""

PER_ENTRY: Final = 12
"""Of those, to hosts on probation that one entry of the list of hosts means."""

ON_PROBATION: Final = 24
"""Of those, to hosts on probation."""

FAILING: Final = 3
"""Failures of a host in a row after which it counts as failing; of one that has never taken anything the first is enough."""

MOST_KNOWN: Final = 10_000
"""Hosts of which is remembered how they answer; one that is forgotten counts as new."""

_LEASES: Final = 3
"""For so many times the limit of one post a notice is this process's."""

ABANDONED: Final = 300.0
"""Seconds after which a notice is given up that no process may send: another one may have the host on its list."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a notice is tried before it is given up, and the waits between: the first, the longest, in seconds."""

    tries: int = 12
    wait: float = 5.0
    factor: float = 4.0
    longest: float = 21_600.0

    def after(self, tries: int, asked: float | None, rng: random.Random) -> float:
        """Return the wait after the ``tries``-th failure; ``asked``: what the receiver wants. Never the same for two."""
        wait = min(self.wait * self.factor ** (tries - 1), self.longest)
        return min(max(wait * rng.uniform(0.75, 1.25), asked or 0.0), self.longest)


class Shares:
    """How the places for notices on their way are shared out among the hosts. ``hosts``: whom this process may send to."""

    def __init__(self, hosts: Hosts, rng: random.Random) -> None:
        self.hosts = hosts
        self._rng = rng
        self._fails: dict[str, int] = {}
        """Failures in a row of each host that is remembered."""
        self._foreign: set[str] = set()
        """Hosts that this process was last seen to leave to others."""

    def warn(self, foreign: set[str]) -> None:
        """Say once of each host that this process must leave to others why nothing is sent."""
        for host in sorted(foreign - self._foreign):
            log.warning(
                "a notice for %s waits: it is not among webhook_hosts here; unless another process sends it, it is given up after %.0f s",
                host, ABANDONED,
            )  # fmt: skip
        self._foreign = foreign

    def room(self, due: Sequence[HostDue], busy: Counter[str]) -> list[tuple[str, int]]:
        """Return how many notices of each host may be sent now: one for each in turn, then more for those that do not fail.
        ``busy``: how many are on their way to each.
        """
        hosts = [h.host for h in due if h.seconds + self.left(h.host) <= 0]
        self._rng.shuffle(hosts)  # which host comes first must not be the alphabet's choice
        tried = Counter({host: count for host, count in busy.items() if self._on_probation(host)})
        entries: Counter[str] = Counter()
        for host, count in tried.items():
            entries[self.hosts.share(host)] += count
        left, probation = AT_ONCE - busy.total(), ON_PROBATION - tried.total()
        room: Counter[str] = Counter()
        for more in (1, PER_HOST):
            for host in hosts:
                most = 1 if self._fails.get(host, 0) >= FAILING else PER_HOST
                free = min(left, more, most - busy[host] - room[host])
                if self._on_probation(host) and (free := min(free, probation)) > 0:
                    share = self.hosts.share(host)
                    free = min(free, PER_ENTRY - entries[share])
                    if free > 0:
                        probation -= free
                        entries[share] += free
                if free > 0:
                    room[host] += free
                    left -= free
        return list(room.items())

    def left(self, host: str) -> float:
        """Return for how many seconds what is due for a host is left to other processes; 0: this one takes it, if only to give it up."""
        return 0.0 if not host or self.hosts.allow(host) else ABANDONED

    def answered(self, host: str, *, taken: bool) -> None:
        """Remember how a host has answered."""
        before = self._fails.pop(host, FAILING)
        self._fails[host] = 0 if taken else before + 1
        if len(self._fails) > MOST_KNOWN:
            del self._fails[next(iter(self._fails))]

    def _on_probation(self, host: str) -> bool:
        """Whether a host has taken nothing yet, as far as is remembered, or fails."""
        return self._fails.get(host, FAILING) >= FAILING


class Delivery:
    """Posts notices, each once. ``poster``: by what; ``patience``: how often one is tried before it is given up."""

    def __init__(
        self, poster: Poster, shares: Shares, patience: Patience, *, clock: Clock, rng: random.Random
    ) -> None:
        self.poster = poster
        self.patience = patience
        self._shares = shares
        self._clock = clock
        self._rng = rng

    async def post(self, notice: Due) -> Sending:
        """Post a notice and return what became of it."""
        try:
            self._allowed(notice.host)
            await self.poster.post(notice.url, _name(notice), notice.body)
        except DeliveryError as fault:
            return self._failed(notice, fault)
        except Exception as defect:
            log.exception("notice %d of task %s", notice.sequence, show(notice.task))
            return self._failed(notice, DeliveryError(words(defect, named=True)))
        self._shares.answered(notice.host, taken=True)
        return Sending(notice.task, notice.sequence, "sent")

    def _allowed(self, host: str) -> None:
        """Raise ``RefusedTargetError`` for a host that no process sends to."""
        if not self._shares.hosts.allow(host):
            why = f"{host} is not among webhook_hosts of any process that sends"
            raise RefusedTargetError(why if host else "its address is no URL that anything is sent to")

    def _failed(self, notice: Due, fault: DeliveryError) -> Sending:
        tries = notice.tries + 1
        refused = isinstance(fault, RefusedTargetError)
        if not refused:
            self._shares.answered(notice.host, taken=False)
        if refused or tries >= self.patience.tries:
            return Sending(notice.task, notice.sequence, "dead", error=words(fault))
        wait = self.patience.after(tries, _asked(fault, self._clock.wall()), self._rng)
        task = show(notice.task)
        text = "notice %d of task %s, once more in %.0f s: %s"
        log.info(text, notice.sequence, task, wait, fault, extra={"task": task})
        return Sending(notice.task, notice.sequence, "failed", wait, words(fault))


class Notifier(Actor):
    """Sends notices, once it is ``renamed``.

    ``hosts``, ``poster``: whom to, and by what; ``patience``: how often. ``timeout``: of one post, in seconds. ``poll``: seconds
    between looks at the store behind the wake-ups, None = never.
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
    ) -> None:
        self.shares = Shares(hosts, rng)
        self.delivery = Delivery(poster, self.shares, patience or Patience(), clock=clock, rng=rng)
        self._node = 0
        self._store = store
        self._clock = clock
        self._rng = rng
        self._timeout = timeout
        self._poll = poll
        self._wake = asyncio.Event()
        self._posts: dict[asyncio.Task[None], str] = {}
        """What is on its way, to which host."""
        self._settled: list[Sending] = []
        """What became of notices, as far as that is not written down yet."""
        self._idle: asyncio.Event | None = None
        """There from a drain on: set once nothing is under way."""

    @classmethod
    def of(cls, store: Store, options: Options, *, clock: Clock, rng: random.Random) -> Self:
        """Return a notifier as ``options`` want it. Raises ``ConfigError`` when they name a host without a secret."""
        hosts, timeout, poll = (
            Hosts((options.webhook_hosts or "").split()),
            options.number("webhook_timeout"),
            options.poll_seconds,
        )
        poster: Poster = NoPoster()
        if hosts:
            poster = HTTPPoster(
                hosts,
                (options.webhook_secret or "").split(),
                own=options.receivers,
                cause=options.webhook_cause,
                clock=clock,
                timeout=timeout,
            )
            poster.warn()
        return cls(
            store,
            poster,
            hosts,
            clock=clock,
            rng=rng,
            patience=Patience(options.webhook_tries),
            timeout=timeout,
            poll=None if poll is None else 5 * poll,
        )

    def renamed(self, node: int) -> None:
        """Take notices under this number."""
        self._node = node

    async def run(self) -> None:
        """Send what there is to send, until cancelled. What is under way then is sent again by another."""
        stop = self._store.subscribe("notice", self._wake.set)
        pauses = Pauses()
        setbacks = Setbacks("notifier", self._store.alerts, self._rng)
        try:
            while True:
                self._wake.clear()
                try:
                    rest = await self._turn()
                    pauses.reset()
                    if setbacks.count:
                        await setbacks.over()
                except StoreUnavailableError as away:
                    log.warning("the store is away; submitters are told when it is back: %s", away)
                    rest = pauses.draw()
                except Exception as defect:  # noqa: BLE001 - others go on being told
                    await asyncio.sleep(await setbacks.met(defect))
                    rest = 0.0
                await rung(self._wake, rest)
        finally:
            stop()
            for post in self._posts:
                post.cancel()
            await asyncio.gather(*self._posts, return_exceptions=True)
            self._posts.clear()

    async def drain(self, limit: float) -> None:
        """Take nothing more, and wait until nothing is under way, at most ``limit`` seconds: for an orderly end."""
        self._idle = asyncio.Event()
        self._wake.set()
        await rung(self._idle, limit)

    async def _turn(self) -> float | None:
        """Settle what was sent, take what is due; returns how long to rest at most."""
        settled = list(self._settled)
        if settled:
            await self._settle(settled)
        if self._idle is not None:
            if not self._posts:
                self._idle.set()
            return self._poll
        due = await self._store.notices.notices_due()
        self.shares.warn({host.host for host in due if self.shares.left(host.host)})
        room = self.shares.room(due, Counter(self._posts.values()))
        if room:
            began = self._clock.monotonic()
            for notice in await self._store.notices.take_notices(self._node, room, _LEASES * self._timeout):
                self._send(notice, began)
        return self._rest(due)

    async def _settle(self, settled: Sequence[Sending]) -> None:
        """Write down what became of notices; what cannot be written of one is left to its lease, and sent again."""
        try:
            await self._store.notices.settle_notices(self._node, settled)
        except StoreUnavailableError:
            raise
        except Exception:
            if len(settled) > 1:
                for one in settled:
                    await self._settle([one])
                return
            log.exception("what became of a notice of task %s cannot be written", show(settled[0].task))
        del self._settled[: len(settled)]

    def _rest(self, due: Sequence[HostDue]) -> float | None:
        """Return the seconds until something will be due that this process may send; what is due now waits for room, which
        wakes it.
        """
        waits = [self._poll * self._rng.uniform(0.8, 1.2)] if self._poll is not None else []
        for host in due:
            seconds = host.seconds + self.shares.left(host.host)
            if seconds > 0:
                waits.append(seconds)
        return min(waits) if waits else None

    def _send(self, notice: Due, began: float) -> None:
        task = asyncio.get_running_loop().create_task(self._one(notice, began), name="post a notice")
        self._posts[task] = notice.host
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._posts.pop(task, None)
        self._wake.set()
        if not task.cancelled() and (defect := task.exception()) is not None:
            log.error("a notice could not be posted, it is sent again later", exc_info=defect)

    async def _one(self, notice: Due, began: float) -> None:
        if self._clock.monotonic() - began > (_LEASES - 1) * self._timeout:
            return  # this process was stopped meanwhile: somebody else has it, or will
        self._settled.append(await self.delivery.post(notice))


def _name(notice: Due) -> str:
    """Return the id of a notice. Raises ``RefusedTargetError`` for one that does not read."""
    try:
        return name_of(notice.body)
    except UNREADABLE as fault:
        raise RefusedTargetError(f"the notice itself does not read: {words(fault)}") from fault


def _asked(fault: DeliveryError, now: float) -> float | None:
    """Return the wait that a receiver asks for, None when it asks for none."""
    return None if fault.retry_after is None else retry_after(fault.retry_after, now)
