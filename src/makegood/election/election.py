"""Contending for terms: follow, take, lead, stop, release, rest, follow.

Campaigning never blocks anybody: a candidate that does not lead continues with ordinary work. Every pause is
jittered, so that candidates started together do not stay in step. After every term, however it ended, the
candidate contends again.
"""

import asyncio
import contextlib
import logging
import os
import random
import signal
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import Any

from makegood.base.arguments import judge_calls
from makegood.base.clock import Clock, SystemClock
from makegood.base.contexts import fresh, home_context, within
from makegood.base.durations import Duration, seconds
from makegood.base.text import hostname, refuse_unstorable
from makegood.election.counters import Figures
from makegood.election.preference.protocol import MOST_TURNS, TURN, Preference, Seen
from makegood.election.protocol import Grant, LeaseStore
from makegood.election.settings import Health, Overrun, check_arguments, settings
from makegood.election.sync import SyncElection
from makegood.election.term import Term
from makegood.election.views import TermView, View, with_gaps
from makegood.errors import ConfigError, StoreError

log = logging.getLogger("makegood.election")

_BAD = frozenset({"raised", "stalled", "unhealthy"})
_MOST_BACK_OFF = 6


@judge_calls(ConfigError)
class Election:
    """Contends for the lease ``name`` as ``me`` (default: the preference's own name, else host, process id
    and chance).

    - ``ttl``: how long a lease lasts without renewal.
    - ``renew``: the pause between renewals (ttl / 3).
    - ``retry``: the pause between a candidate's tries (as ``renew``).
    - ``timeout``: how long a request may take before its outcome is unknown (ttl / 3).
    - ``drift``: the share by which clocks may be wrong.
    - ``wind_down``: how long before the deadline the work is asked to stop (ttl / 20).
    - ``stall``: the term ends if ``term.beat()`` was not called for this long.
    - ``health``: asked before each renewal whether this process is fit to lead.
    - ``overrun``: what happens to work that has not stopped at the deadline: "log" or "exit".
    - ``preference``: who tries first.

    Durations are seconds or texts such as "15s". Raises ``ConfigError`` for unsound settings, with the
    arithmetic.

    The function that it is given runs while this process leads::

        election = Election("reports", leases, ttl="15s", renew="5s")
        await election.run(lead)
    """

    def __init__(
        self,
        name: str,
        leases: LeaseStore,
        *,
        me: str | None = None,
        ttl: Duration = 15,
        renew: Duration | None = None,
        retry: Duration | None = None,
        timeout: Duration | None = None,
        drift: float = 0.01,
        wind_down: Duration | None = None,
        stall: Duration | None = None,
        health: Health | None = None,
        overrun: Overrun = "log",
        preference: Preference | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        if not name or (me is not None and not me):
            raise ConfigError(
                "an election needs a name, and so does a candidate: Election('reports', leases, me='host-7')"
            )
        refuse_unstorable(ConfigError, name=name, me=me)
        check_arguments(leases, health, preference, me)
        self.settings = settings(
            ttl, renew=renew, retry=retry, timeout=timeout, drift=drift, wind_down=wind_down, stall=stall, health=health,
            overrun=overrun,
        )  # fmt: skip
        self._rng = rng or random.Random()
        self.name = name
        its: str | None = getattr(preference, "me", None)
        self.me = me or its or f"{hostname()}-{os.getpid()}-{self._rng.getrandbits(16):04x}"
        self.leases = leases
        self.figures = Figures()
        self._preference = preference
        self._clock = clock or SystemClock()
        self._term: Term | None = None
        self._rest_until = 0.0
        self._bad = 0
        self._quit = False
        self._contends = False
        self._wake = asyncio.Event()
        self._sighting: Seen | None = None

    @property
    def term(self) -> Term | None:
        """The term that this process leads now; None if it does not lead."""
        return self._term

    def resting(self) -> float:
        """Return for how many more seconds this candidate rests."""
        return max(0.0, self._rest_until - self._clock.monotonic())

    async def terms(self) -> AsyncGenerator[Term, None]:
        """Yield a Term each time this process becomes leader; each must be used with ``async with``.

        It ends after ``stop()``. Close it (``contextlib.aclosing``) if you leave it early. Raises
        ``ConfigError`` if the store reports that it can never work, and if another iteration over this
        election's terms is open: a candidate contends once.
        """
        if self._contends:
            raise ConfigError(
                f"{self.me!r} contends for {self.name!r} already: one run() or terms() at a time; for two candidates make two Elections"
            )
        self._contends = True
        try:
            if self._preference is not None:
                await self._preference.start(self.me)
            while (term := await self._campaign()) is not None:
                self._term = term
                try:
                    yield term
                finally:
                    self._term = None
                    await term.abandon()  # Does nothing if it was used.
                    self._judge(term)
        finally:
            self._contends = False
            if self._preference is not None:
                await self._preference.stop()

    async def run(self, lead: Callable[[Term], Awaitable[object]], *, signals: bool = True) -> None:
        """Call ``lead(term)`` in each term, until ``stop()``; contend again after each, even if it returned.

        ``lead`` is cancelled and awaited when its term ends. Each call runs in a fresh copy of the context
        (contextvars) of this call of ``run``, without its span and baggage. Its exceptions are raised here,
        after the lease was released; the next call begins with a pause. ``signals``: on SIGTERM, unless it
        has another handler, step down first and return.
        """
        context = home_context()

        async def run_lead(term: Term) -> None:
            await lead(term)

        with self.listening() if signals else contextlib.nullcontext():
            async with aclosing(self.terms()) as terms:
                async for term in terms:
                    async with term:
                        await within(fresh(context), run_lead(term))

    def hurry(self) -> None:
        """Try for the lease now: whoever held it is gone. Call it on the loop's thread."""
        self._wake.set()

    def stop(self) -> None:
        """Step down, and contend no more: ``terms()`` and ``run()`` end. Call it on the loop's thread."""
        self._quit = True
        self._wake.set()
        if self._term is not None:
            self._term.stop()

    async def step_down(self, rest: Duration | None = None) -> None:
        """End the present term, if there is one, and rest for ``rest`` (default: two ttl), so that another
        candidate wins.

        Returns once the work has stopped and the lease was released. If the work itself calls it, it does not
        return.
        """
        length = 2 * self.settings.ttl if rest is None else seconds(rest, name="rest")
        self._rest_until = max(self._rest_until, self._clock.monotonic() + length)
        if (term := self._term) is not None:
            term.stop()
            await term.ended()

    async def watch(self, every: Duration | None = None) -> AsyncIterator[View]:
        """Yield who leads, now and after each change; polls every ``every`` (default: ``retry``). No
        candidacy is needed.

        While the store is unreachable, the last view stays; the start and the end of the outage are logged,
        once each.
        """
        pause = self.settings.retry if every is None else seconds(every, name="every", least=0.001)
        last: View | None = None
        away = False
        while True:
            try:
                view = View.of(await self.leases.read(self.name))
            except StoreError as unknown:
                level, away = (logging.INFO if away else logging.WARNING), True
                log.log(level, "who leads %r cannot be seen now: %s", self.name, unknown)
            else:
                if away:
                    log.warning("who leads %r can be seen again", self.name)
                away = False
                if view != last:
                    yield view
                last = view
            await asyncio.sleep(pause * self._rng.uniform(0.9, 1.1))

    async def history(self, limit: int = 100) -> list[TermView]:
        """Return the latest terms of this election, newest first, with the gaps between them. Raises
        ``StoreError``.
        """
        if not isinstance(limit, int) or limit < 0:
            raise ConfigError(f"limit={limit!r} is a number of terms: 0 or more")
        if limit == 0:
            return []
        return with_gaps(await self.leases.past_terms(self.name, limit))

    # -- campaigning -------------------------------------------------------------------------------

    async def _campaign(self) -> Term | None:
        """Contend until this process leads; None if it was stopped."""
        nonce, doubt = self._nonce(), False
        try:
            while await self._rest():
                if await self._turn():
                    sent_at = self._clock.monotonic()
                    grant, doubt = await self._take(nonce)
                    if grant is not None and (term := await self._begin_term(grant, sent_at)) is not None:
                        doubt = False
                        return term
                    if not doubt:
                        nonce = self._nonce()
                await self._pause(self.settings.retry * self._rng.uniform(0.5, 1.5))
            return None
        except asyncio.CancelledError:
            doubt = True  # The answer may be under way.
            raise
        except GeneratorExit:
            doubt = False  # The loop is closed: nothing can be sent any more.
            raise
        finally:
            if doubt:
                await self._withdraw(nonce)

    async def _take(self, nonce: str) -> tuple[Grant | None, bool]:
        """Try once; return the grant, and whether the outcome is unknown."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                grant = await self.leases.acquire(self.name, self.me, nonce, self.settings.ttl)
        except (StoreError, TimeoutError) as unknown:
            log.info("the lease %r cannot be taken now: %s", self.name, str(unknown) or "no answer in time")
            return None, True
        return grant, False

    async def _begin_term(self, grant: Grant, sent_at: float) -> Term | None:
        """Make a term of a grant, unless its answer took too long, or it is not wanted any more."""
        term = Term(
            self.leases, grant, sent_at, settings=self.settings, clock=self._clock, rng=self._rng, figures=self.figures
        )  # fmt: skip
        is_unwanted = self._quit or self._clock.monotonic() < self._rest_until
        if is_unwanted or term.remaining() <= self.settings.wind_down:
            await term.abandon()
            return None
        log.info("%s leads %r, epoch %d", self.me, self.name, grant.epoch)
        self._announce(Seen(self.me, grant.epoch))
        return term

    async def _withdraw(self, nonce: str) -> None:
        """Release what an unanswered take may have got, as far as possible now."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                await self.leases.release(Grant(self.name, self.me, nonce, 0, self.settings.ttl))
        except (StoreError, TimeoutError) as unknown:
            log.info("a lease of %r may be held until it runs out: %s", self.name, unknown)

    async def _turn(self) -> bool:
        """With a preference: read who leads, and let preferred candidates try first; return whether to try
        now.
        """
        if self._preference is None:
            return True
        try:
            async with asyncio.timeout(self.settings.timeout):
                view = View.of(await self.leases.read(self.name))
        except (StoreError, TimeoutError) as unknown:
            log.info("who leads %r is unknown now: %s", self.name, unknown)
            return False
        self._announce(Seen(view.leader, view.epoch))
        if view.leader is not None:
            return False
        rank = min(max(0, self._preference.rank()), MOST_TURNS)
        await self._pause(rank * TURN * self.settings.retry)
        return not self._quit

    def _announce(self, leadership: Seen) -> None:
        if self._preference is not None and leadership != self._sighting:
            self._sighting = leadership
            self._preference.seen(leadership)

    # -- rest --------------------------------------------------------------------------------------

    def _judge(self, term: Term) -> None:
        """Back off after a term that ended badly, longer each time."""
        if term.ending not in _BAD:
            self._bad = 0
            pause = self.settings.retry * self._rng.uniform(0.5, 1.5)
        else:
            self._bad = min(self._bad + 1, _MOST_BACK_OFF)
            pause = self.settings.retry * 2**self._bad * self._rng.uniform(0.5, 1.5)
            log.warning("%s rests for %.1f s after a term that was %s", self.me, pause, term.ending)
        self._rest_until = max(self._rest_until, self._clock.monotonic() + pause)

    async def _rest(self) -> bool:
        """Wait until this candidate may try; return whether it still wants to."""
        while not self._quit and (left := self._rest_until - self._clock.monotonic()) > 0:
            await self._pause(min(left, self.settings.ttl))
        return not self._quit

    async def _pause(self, length: float) -> None:
        """Wait for ``length`` seconds, or until woken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.001, length)):
                await self._wake.wait()
                if not self._quit:
                    self._wake.clear()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """On SIGTERM, unless it has another handler, call ``stop()`` once; a second one has its default
        effect.

        ``run`` does so by itself; for ``terms()``: ``with election.listening(): async for term in
        election.terms(): ...``.
        """
        listens = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if not listens:
            yield
            return
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGTERM)
            log.info("%s was asked to stop: it steps down first", self.me)
            self.stop()

        loop.add_signal_handler(signal.SIGTERM, stop)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGTERM)

    def _nonce(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    @classmethod
    def sync(cls, name: str, leases: LeaseStore, **options: Any) -> "SyncElection":
        """Return the same election for blocking code; see ``SyncElection``."""
        return SyncElection(lambda: cls(name, leases, **options))
