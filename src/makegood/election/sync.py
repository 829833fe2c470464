"""Elections for blocking code: ``with Election.sync("reports", leases) as e: e.run(lead)``.

Renewals run on an event loop in a thread of their own, the work in the caller's thread. Python cannot stop a
thread: when the term ends, ``term.lost`` is set and ``term.check()`` raises, and the lease is released only
once the work has returned. Work that checks neither in time overruns; ``overrun="exit"`` then ends the
process.

Leaving ``with`` ends every term of other threads, waits for their work until the deadline, then closes:
nothing renews any more.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import partial
from typing import Any, Protocol, Self, TypeVar

from makegood.base.cancelling import cancel_and_wait
from makegood.base.contexts import fresh, home_context, start_thread
from makegood.base.durations import Duration
from makegood.base.loop_thread import Loop
from makegood.election.guard import check_grant, guarding
from makegood.election.protocol import Grant, LeaseStore
from makegood.election.term import Ending, Term
from makegood.election.views import TermView, View
from makegood.errors import ConfigError, LeadershipLostError
from makegood.transactions.caller import at_once

T = TypeVar("T")

_INSTEAD = "makegood.election.Election"
_AGAIN = 0.05
_LEFT = "`with Election.sync(...)` was left: call it inside"


class _LeftError(ConfigError):
    """The end of ``with`` was reached, perhaps in another thread."""


class Contender(Protocol):
    """What the facade wraps: ``Election``."""

    leases: LeaseStore

    def terms(self) -> AsyncGenerator[Term, None]:
        """Yield terms."""

    def watch(self, every: Duration | None = None) -> AsyncIterator[View]:
        """Yield who leads."""

    def stop(self) -> None:
        """Contend no more."""

    async def step_down(self, rest: Duration | None = None) -> None:
        """End the present term."""

    async def history(self, limit: int = 100) -> list[TermView]:
        """Return past terms."""


class SyncTerm:
    """A term for blocking work. ``lost`` is a ``threading.Event``, set when the work must stop."""

    def __init__(self, term: Term, leases: LeaseStore) -> None:
        self._term = term
        self._leases = leases
        self.lost = threading.Event()

    @property
    def grant(self) -> Grant:
        """The grant of this term."""
        return self._term.grant

    @property
    def epoch(self) -> int:
        """The fencing number of this term: send it with every write to a resource."""
        return self._term.epoch

    @property
    def ending(self) -> Ending:
        """Why the term ended; "" while it continues."""
        return self._term.ending

    def remaining(self) -> float:
        """Return the seconds of belief left by the local clock."""
        return self._term.remaining()

    def check(self) -> None:
        """Raise ``LeadershipLostError`` when the work must stop."""
        self._term.check()

    def beat(self) -> None:
        """Report that the work makes progress."""
        self._term.beat()

    def guard(self, connection: Any) -> None:
        """Fail the caller's own transaction unless this epoch is current; see ``Term.guard``. For blocking
        connections.
        """
        self.check()
        caller = guarding(self._leases, connection)
        if not caller.blocks:
            raise ConfigError("this connection wants to be awaited: use Election, not Election.sync, with it")
        at_once(check_grant(self._leases, self.grant, caller))


class _Hold:
    """A term that is held on the loop while its work runs in a thread."""

    def __init__(self, term: Term, leases: LeaseStore, thread: int) -> None:
        self.sync_term = SyncTerm(term, leases)
        self._term = term
        self._finish = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.thread, self.here = thread, False

    async def begin(self) -> None:
        """Start renewing."""
        start = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._hold(start))
        await asyncio.wait([self._task, asyncio.ensure_future(start.wait())], return_when="FIRST_COMPLETED")

    async def _hold(self, start: asyncio.Event) -> None:
        async with self._term:
            start.set()
            try:
                await self._finish.wait()
            finally:
                self.sync_term.lost.set()
                # The work continues in its thread: nothing is released before it stops.
                while not self._finish.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await self._finish.wait()

    async def end(self) -> None:
        """The work has stopped: release the lease."""
        self._finish.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def lose(self) -> None:
        """There will be no more renewals: notify the work, and wait for it until the deadline at most."""
        self._term.stop(renew=False)
        self.sync_term.lost.set()
        if self._task is not None and not self.here:
            await asyncio.wait([self._task], timeout=self._term.remaining())
        await self.end()


class SyncElection:
    """``Election`` for blocking code: the same names and meanings. Made by ``Election.sync``; use it with
    ``with``.

    Its lease store is used on its own loop, so the end of ``with`` closes it too.
    """

    def __init__(self, make: Callable[[], Contender]) -> None:
        self._loop = Loop()
        self._make = make
        self._contender: Contender | None = None
        self._holds: set[_Hold] = set()
        self._turn = threading.Condition()
        self._calls = 0
        self._left = False

    def __enter__(self) -> Self:
        """Make the election. Raises ``ConfigError`` for unsound settings."""
        self._contender, self._left = self._make(), False
        return self

    def __exit__(self, *_: object) -> None:
        """End what runs in other threads: first their terms, then their calls. Then close the lease store and
        the loop.
        """
        thread = threading.get_ident()
        self._loop.run(lambda: self._lose(thread), _INSTEAD)
        with self._turn:
            self._left = True
        while True:
            self._loop.run(_cancel_all, _INSTEAD)
            with self._turn:
                if self._turn.wait_for(lambda: not self._calls, _AGAIN):
                    break
        self._loop.run(_end_generators, _INSTEAD)
        close = getattr(self._election.leases, "close", None)
        if close is not None:
            self._loop.run(close, _INSTEAD)
        self._loop.stop()

    async def _lose(self, thread: int) -> None:
        self._election.stop()
        for hold in self._holds:
            hold.here = hold.thread == thread
        await asyncio.gather(*(hold.lose() for hold in list(self._holds)))

    @property
    def _election(self) -> Contender:
        if self._contender is None:
            raise ConfigError("use it with `with Election.sync(...) as election:`")
        return self._contender

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        with self._turn:
            if self._left:
                raise _LeftError(_LEFT)
            self._calls += 1
        try:
            return self._loop.run(work, _INSTEAD)
        except CancelledError:
            if self._left:
                raise _LeftError(_LEFT) from None
            raise
        finally:
            with self._turn:
                self._calls -= 1
                self._turn.notify_all()

    def terms(self) -> Iterator[SyncTerm]:
        """Yield one term after another; a term ends, at the latest, when the next one is asked for."""
        election = self._election
        terms = election.terms()
        thread = threading.get_ident()

        async def begin() -> _Hold | None:
            term = await anext(terms, None)
            if term is None:
                return None
            hold = _Hold(term, election.leases, thread)
            self._holds.add(hold)
            await hold.begin()
            return hold

        async def end(hold: _Hold) -> None:
            self._holds.discard(hold)
            await hold.end()

        with contextlib.suppress(_LeftError):
            try:
                while (hold := self._run(begin)) is not None:
                    try:
                        yield hold.sync_term
                    finally:
                        self._run(partial(end, hold))
            finally:
                self._run(terms.aclose)

    def run(self, lead: Callable[[SyncTerm], object], *, signals: bool = True) -> None:
        """Call ``lead(term)`` in each term, in this thread, until ``stop()``. See ``Election.run``, also for
        the context in which it runs.

        ``signals``: on SIGTERM, unless it has another handler, step down first and return.
        """
        context = home_context()
        with self._listening(signals), contextlib.closing(self.terms()) as terms:  # type: ignore[type-var]  # a generator
            for term in terms:
                try:
                    fresh(context).run(lead, term)
                except LeadershipLostError as over:
                    if over.epoch != term.epoch:  # Its own means that the work has stopped, as it should.
                        raise

    def stop(self) -> None:
        """Step down, and contend no more. From any thread."""
        election = self._election

        async def stop() -> None:
            election.stop()

        with contextlib.suppress(_LeftError):
            self._run(stop)

    def step_down(self, rest: Duration | None = None) -> None:
        """End the present term, and rest for ``rest``.

        Call it from any thread except the one that works: that one returns from its work instead.
        """
        self._run(lambda: self._election.step_down(rest))

    def watch(self, every: Duration | None = None) -> Iterator[View]:
        """Yield who leads, now and after each change."""
        views = self._election.watch(every)
        with contextlib.suppress(_LeftError):
            while True:
                yield self._run(lambda: _next(views))

    def history(self, limit: int = 100) -> list[TermView]:
        """Return the latest terms of this election, newest first."""
        return self._run(lambda: self._election.history(limit))

    @contextlib.contextmanager
    def _listening(self, listen: bool) -> Iterator[None]:  # noqa: FBT001 - the option as it was given
        main = threading.current_thread() is threading.main_thread()
        if not (listen and main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL):
            yield
            return

        def end(*_: object) -> None:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # This thread may be in the middle of anything.
            start_thread(threading.Thread(target=self.stop, daemon=True))

        signal.signal(signal.SIGTERM, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


async def _cancel_all() -> None:
    """Cancel the calls that other threads wait for, and wait for their end."""
    await cancel_and_wait(*(asyncio.all_tasks() - {asyncio.current_task()}))


async def _end_generators() -> None:
    """End the generators of cancelled calls. Only once all calls are over: none may begin after."""
    await asyncio.get_running_loop().shutdown_asyncgens()


async def _next(views: AsyncIterator[View]) -> View:
    return await anext(views)
