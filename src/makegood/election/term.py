"""One term of leadership.

Belief ends at (clock read *before* the request) + ttl less a margin for clock drift, whatever the store says
later: a slow answer must not extend it, and an answer after the deadline revives nothing. At the deadline
(less ``wind_down``), or when a renewal is refused, the body of ``async with term`` is cancelled and *waited
for*; only then is the lease released. A renewal whose outcome is unknown keeps the old deadline and is
retried within it.

Timers stop while a machine is suspended; the clock does not. So the clock is checked every ``ttl / 20``.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Self, TypeVar

from makegood.base.clock import Clock
from makegood.base.contexts import fresh, within
from makegood.base.scrubbed_tracebacks import SCRUBBED_TRACEBACKS
from makegood.election.counters import Figures
from makegood.election.guard import check_grant, guarding
from makegood.election.protocol import Grant, LeaseStore
from makegood.election.settings import Settings
from makegood.election.watchdog import Watchdog
from makegood.errors import LeadershipLostError, StoreError

log = logging.getLogger("makegood.election")
log.addFilter(SCRUBBED_TRACEBACKS)

T = TypeVar("T")

Ending = Literal[
    "", "returned", "raised", "cancelled", "refused", "deadline", "stalled", "unhealthy", "stepped down"
]
"""Why a term ended: its work returned, raised or was cancelled by its caller; a renewal was refused; the
deadline came without one; no ``beat`` came for ``stall`` seconds; ``health`` said no; ``step_down``. "" while
it continues.
"""

_HOPELESS = frozenset({"refused", "deadline", "stalled", "unhealthy"})
"""After these the lease is not renewed any more while the work winds down."""


class Term:
    """A period in which this process may lead. Use it once, with ``async with``.

    ``grant`` goes with every write (its epoch is the fence); ``lost`` is set when the work must stop;
    ``ending`` is why.
    """

    def __init__(
        self,
        leases: LeaseStore,
        grant: Grant,
        sent_at: float,
        *,
        settings: Settings,
        clock: Clock,
        rng: random.Random,
        figures: Figures | None = None,
        watchdog: Callable[..., Watchdog] = Watchdog,
    ) -> None:
        self.grant = grant
        self.lost = asyncio.Event()
        self.ending: Ending = ""
        self._figures = figures or Figures()
        self._release = asyncio.Event()
        self._in_use = False
        self._leases = leases
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._deadline = self._believable_until(sent_at)
        self._last_beat = clock.monotonic()
        self._over = self._hopeless = False
        self._body: asyncio.Task[object] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._work_end: float | None = None
        self._step_down_at: float | None = None
        self._has_complained = False
        self._watchdog: Watchdog | None = None
        if settings.overrun == "exit":
            self._watchdog = watchdog(f"{grant.name!r}, epoch {grant.epoch},", self._last, clock)

    @property
    def epoch(self) -> int:
        """The fencing number of this term: send it with every write to a resource."""
        return self.grant.epoch

    def remaining(self) -> float:
        """Return the seconds of belief left by the local clock, never more than are really left. It only
        reads the clock.
        """
        return 0.0 if self._over else max(0.0, self._deadline - self._clock.monotonic())

    def check(self) -> None:
        """Raise ``LeadershipLostError`` if the work must stop. It only reads the clock, without I/O: cheap
        enough for every loop.

        It is not a fence: a process may be paused right after it. The epoch in the write is.
        """
        if self.lost.is_set() or self.remaining() <= 0:
            text = f"the term {self.epoch} of {self.grant.name!r} is over: stop, and contend again"
            raise LeadershipLostError(text, epoch=self.epoch)

    def beat(self) -> None:
        """Report that the work makes progress. With ``stall=`` the term ends if no report came for that
        long.
        """
        self._last_beat = self._clock.monotonic()

    async def guard(self, connection: Any) -> None:
        """Fail the caller's own transaction unless this epoch is current: call it last before COMMIT.

        ``connection`` is in a transaction on the database that holds the leases: of sqlite3, asyncpg,
        psycopg, or SQLAlchemy (Connection or Session, async ones too). No take can be committed between the
        guard and the end of the transaction. Raises ``LeadershipLostError``: roll back. Raises
        ``ConfigError`` for a store that cannot do it, or for a connection of another kind of database.
        """
        self.check()
        await check_grant(self._leases, self.grant, guarding(self._leases, connection))

    def stop(self, *, renew: bool = True) -> None:
        """End the term: the work is cancelled and waited for, then the lease is released.

        The lease is held until then; without ``renew``, until its deadline at most.
        """
        self._hopeless = self._hopeless or not renew
        self._end("stepped down")

    def stopped(self, at: float) -> None:
        """Set when work that runs elsewhere stopped, by the clock: this process may itself have been paused,
        and learn it late.
        """
        self._work_end = at

    async def ended(self) -> None:
        """Wait until the work has stopped and the lease was released, or could not be."""
        await self._release.wait()

    async def __aenter__(self) -> Self:
        """Start to renew; the body that follows is cancelled when the term ends. Raises
        ``LeadershipLostError`` if it is too late.
        """
        self._in_use = True
        self._body = asyncio.current_task()
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"renew {self.grant.name}")
        if self._watchdog is not None:
            self._watchdog.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> bool:
        """Stop renewing, then release.

        The exceptions of the term's end stop here: its cancellation, or what ``check`` or ``guard`` raised.
        """
        assert self._keeper is not None
        assert self._body is not None
        body, self._body = self._body, None
        is_lost = isinstance(error, LeadershipLostError) and error.epoch == self.epoch
        if not self.ending:
            self.ending = "returned" if kind is None else "deadline" if is_lost else "raised"
            if kind is not None and issubclass(kind, asyncio.CancelledError):
                self.ending = "cancelled"
        self.lost.set()
        self._keeper.cancel()
        try:
            await asyncio.gather(self._keeper, return_exceptions=True)
        except asyncio.CancelledError:
            if not self._is_cancelled:  # The caller's own, not the end of the term arriving late.
                await self._leave()
                raise
        # Undone before the release: up to Python 3.11.2 no timeout works in a task with a pending
        # cancellation.
        ours = self._is_cancelled and body.uncancel() <= 0 and kind in (None, asyncio.CancelledError)
        await self._leave()
        ours = ours or is_lost
        defect = None if self._keeper.cancelled() else self._keeper.exception()
        if defect is not None and (ours or kind is None):
            raise defect
        return ours

    async def abandon(self) -> None:
        """Release a term whose work never began."""
        if not self._in_use:
            self._in_use = True
            self.ending = self.ending or "stepped down"
            self.lost.set()
            await self._leave()

    async def _leave(self) -> None:
        """The work has stopped: record it, and release the lease."""
        late = (self._clock.monotonic() if self._work_end is None else self._work_end) - self._deadline
        if self._watchdog is not None:
            self._watchdog.stop()
        if late > self._settings.looks and self.ending != "refused":
            self._figures.overruns += 1
            log.critical(
                "the work of %r, epoch %d, stopped %.1f s after the deadline of its lease: a successor may have begun; let it look "
                "at term.check() more often, or give it a longer wind_down",
                self.grant.name, self.epoch, late,
            )  # fmt: skip
        self._over = True
        self._figures._count_end(self.ending)
        try:
            async with asyncio.timeout(self._settings.timeout):
                await self._leases.release(self.grant)
        except (StoreError, TimeoutError) as unreachable:
            log.info(
                "the lease %r could not be released and runs out by itself: %s",
                self.grant.name, str(unreachable) or "no answer in time",
            )  # fmt: skip
        finally:
            self._release.set()

    def _believable_until(self, sent_at: float) -> float:
        """Return until when a grant may be believed whose request was sent at ``sent_at``."""
        return sent_at + self._settings.belief

    def _last(self) -> float:
        """Return when the process ends if the work has not: at the deadline, and within one ttl of the
        request to step down; otherwise it would renew forever.
        """
        return (
            self._deadline
            if self._step_down_at is None
            else min(self._deadline, self._step_down_at + self._settings.ttl)
        )

    def _complain(self, now: float) -> None:
        """Log once that work continues although it was asked to stop: nobody else can lead until it does."""
        if (
            self._step_down_at is not None
            and now - self._step_down_at > self._settings.ttl
            and not self._has_complained
        ):
            self._has_complained = True
            log.warning(
                "the work of %r, epoch %d, has not stopped %.1f s after it was asked to: its lease is renewed until it does",
                self.grant.name, self.epoch, now - self._step_down_at,
            )  # fmt: skip

    def _end(self, ending: Ending) -> None:
        self._hopeless = self._hopeless or ending in _HOPELESS
        self._over = self._over or ending == "refused"
        if self.ending:
            return
        self.ending = ending
        self._step_down_at = self._clock.monotonic() if ending == "stepped down" else None
        self.lost.set()
        level = logging.INFO if ending == "stepped down" else logging.WARNING
        log.log(level, "the term %d of %r is over: %s", self.epoch, self.grant.name, ending)
        if self._body is not None:
            self._is_cancelled = True
            self._body.cancel()

    async def _keep(self) -> None:
        """Renew until the work has stopped, or renewing is hopeless."""
        try:
            due = self._clock.monotonic() + self._pause(self._settings.renew)
            while not self._hopeless:
                now = self._clock.monotonic()
                self._complain(now)
                left = self._deadline - self._settings.wind_down - now
                if left <= 0:
                    self._end("deadline")
                elif now >= due:
                    due = self._clock.monotonic() + await self._renew()
                else:
                    await asyncio.sleep(max(0.001, min(self._settings.looks, due - now, left)))
        except BaseException:
            self._end("deadline")  # Nothing renews any more: the work must not continue.
            raise

    def _pause(self, length: float) -> float:
        return length * self._rng.uniform(0.9, 1.0)

    async def _renew(self) -> float:
        """Try to renew; return the seconds until the next renewal."""
        if self.ending != "stepped down" and (unfitness := await self._unfit()):
            self._end(unfitness)
            return 0.0
        sent_at = self._clock.monotonic()
        try:
            is_renewed = await self._within(self._settings.timeout, self._leases.renew(self.grant))
        except (StoreError, TimeoutError) as unknown:
            now = self._clock.monotonic()
            left = max(0.0, self._deadline - now)
            self._figures.unknown += 1
            why_not = str(unknown) or f"no answer within {now - sent_at:.1f} s"
            log.warning("a renewal of the lease %r failed, %.1f s left: %s", self.grant.name, left, why_not)
            return min(self._settings.renew, left / 4)
        now = self._clock.monotonic()
        if not is_renewed:
            self._end("refused")
        elif now >= self._deadline:
            self._end("deadline")  # The answer came too late to be believed.
        else:
            self._figures._count_renewal(now - sent_at, self._deadline - now)
            self._deadline = self._believable_until(sent_at)
        return self._pause(self._settings.renew)

    async def _unfit(self) -> Literal["", "stalled", "unhealthy"]:
        """Return why this process should stop leading; "" if it should not."""
        stall, health = self._settings.stall, self._settings.health
        quiet = self._clock.monotonic() - self._last_beat
        if stall is not None and quiet > stall:
            log.error(
                "the work of %r, epoch %d, has not moved for %.1f s", self.grant.name, self.epoch, quiet
            )
            return "stalled"
        if health is None:
            return ""
        try:
            context = fresh()
            answer = context.run(health)
            if inspect.isawaitable(answer):
                answer = await self._within(self._settings.health_timeout, within(context, _await(answer)))
        except Exception:
            log.exception("the look at the health of the leader of %r failed", self.grant.name)
            return "unhealthy"
        return "" if answer else "unhealthy"

    async def _within(self, limit: float, call: Awaitable[T]) -> T:
        """Return the answer, unless the time for it, or for the work, is up by the clock: timers may have
        stopped.

        Raises ``TimeoutError``, and does not wait for a call that is slow to be cancelled.
        """
        until = min(self._clock.monotonic() + limit, self._deadline - self._settings.wind_down)
        going = asyncio.ensure_future(call)
        going.add_done_callback(_retrieve)
        try:
            while not going.done():
                left = until - self._clock.monotonic()
                if left <= 0:
                    raise TimeoutError
                await asyncio.wait([going], timeout=max(0.001, min(self._settings.looks, left)))
            return going.result()
        finally:
            going.cancel()


async def _await(answer: Awaitable[T]) -> T:
    return await answer


def _retrieve(going: "asyncio.Future[Any]") -> None:
    """Retrieve the result of a call without a caller, so that asyncio does not complain."""
    if not going.cancelled():
        going.exception()
