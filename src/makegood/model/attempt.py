"""One attempt of a step in an agent's process, from the moment its request was taken to its end.

::

    waiting ──► running ──► halted ──► overdue
       │           │           │          │
       └───────────┴───────────┴──────────┴────► ended

*waiting*: the slot is taken, the function is not called yet: a rate delays it, or the event loop has not come
to it. Such an attempt is never halted; once its complete-by has passed it ends without a call, and says so:
nothing is in doubt.

*running*: the function was called. A pause between two tries is no phase: nothing treats it differently, and
``retries`` counts.

*halted*: complete-by has passed. An ``async def`` was cancelled, a ``def`` runs on.

*overdue*: it has not returned a while later either, and that was logged.

*ended*: the slot is free again.

An extension moves the deadline and never the phase: what was halted once is not halted again.

In any phase an action may *hear* that nobody needs it any more (``hear``). That changes no phase either: the
function sees it in its call and may end, and an ``async def`` declared ``cancellable=True`` is cancelled. Its
answer counts like any other.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol

import msgspec

from makegood.base.pacing import event_within
from makegood.model.messages import Request

Phase = Literal["waiting", "running", "halted", "overdue", "ended"]
"""Where an attempt stands in its life."""

_PATIENCE = 1.0
"""Seconds, at least, that a function may run beyond its complete-by before that is logged."""

_PATIENT = 0.05
"""The same as a share of complete_within: a long timeout ends less sharply than a short one."""


class Runner(Protocol):
    """The agents that run an attempt."""

    async def extend(self, attempt: "Attempt", more: float) -> bool:
        """Ask the store for so many seconds from now on; return whether it agreed."""

    def note(self, attempt: "Attempt", value: Any) -> None:
        """Take a note. On the event loop."""


class Attempt(msgspec.Struct, eq=False):
    """An attempt under way. Moments are seconds on the agent's clock."""

    request: Request
    """What is asked for."""
    node: int
    """The process's number when it took the request; a reply under another number would be refused."""
    deadline: float
    """The attempt's complete-by."""
    began: float
    """When the request was taken; after a delay, when the delay was over."""
    runner: Runner
    """Who is asked for an extension, and takes its notes."""
    first_sent: float = 0.0
    """As in ``Request``, and filled in."""
    phase: Phase = "waiting"
    """Where it stands; only the methods below change it."""
    cancellable: bool = False
    """An ``async def``; cancelled at its deadline."""
    retries: int = 0
    """Tries of the function after the first. From the first retry on, an earlier try is unanswered."""
    ticket: int | None = None
    """The circuit breaker's handle for this call; None without a breaker, or once reported."""
    key_until: float = math.inf
    """Until when the service keeps the key of the request: past it, nothing is sent again."""
    repeats: bool = False
    """An earlier request had this key."""
    since: float | None = None
    """A moment after the step's last failure; None for its first attempt, or without a breaker."""
    failed_try: float | None = None
    """When its first try failed; None: none did before its last one."""
    begins: Callable[[], None] | None = None
    """Called, in its thread or on the event loop, when its function begins."""
    cancelled_at: float | None = None
    """When it heard that nobody needs it any more; None: it has not."""
    may_stop: bool = False
    """Its function is awaited now, and declared to be cancelled once nobody needs it."""
    was_stopped: bool = False
    """Its function was cancelled because nobody needs it."""
    hearing: asyncio.Event | None = None
    """Set when it hears; None: nothing waits for that."""
    withholds: bool = False
    """Texts of its errors are encoded: in plain, only the class of an exception is kept."""
    seal: Callable[[Any], Awaitable[Any]] | None = None
    """Encodes the value of a note; None: its task's values are not encoded."""
    has_all_time: bool = False
    """Its deadline was extended as far as its action allows."""
    by_store: bool = False
    """A note of it went through the store. So its reply does too: it must not arrive before."""
    work: "asyncio.Task[None] | None" = None
    """The task that runs it; None once it has ended."""

    def look_at(self, now: float) -> float | None:
        """Return the moment at which its deadline is to be looked at next; None: never again."""
        if self.phase == "running" or (self.phase == "waiting" and self.deadline > now):
            return self.deadline
        return self.deadline + self._patience if self.phase == "halted" else None

    @property
    def _patience(self) -> float:
        return max(_PATIENCE, _PATIENT * self.request.within)

    # -- its life --------------------------------------------------------------------------------------------

    def begin_call(self, *, cancellable: bool) -> None:
        """Its function is called now for the first time."""
        if self.phase != "waiting":
            raise self._impossible("running")
        self.phase = "running"
        self.cancellable = cancellable

    def keep_key(self, until: float, taken_at: float) -> None:
        """Set how long its key is kept: ``until``, had it been sent first when this request was taken.

        A request that is sent again must be answered by then.
        """
        self.repeats = self.first_sent < taken_at
        self.key_until = until - (taken_at - self.first_sent)
        if self.repeats:
            self.deadline = min(self.deadline, self.key_until)

    @property
    def had_failed(self) -> float | None:
        """A moment at which its step had failed already, in this direction; None: it had not, whatever
        attempts came before: they may have said ``Later``, and before an undo its action was done.
        """
        return self.since if self.request.failures and self.since is not None else self.failed_try

    def tries_until(self, margin: float) -> float:
        """Return the moment from which it makes no more tries. ``margin``: seconds that the answer takes."""
        return min(self.deadline - margin, self.key_until)

    def waits(self) -> bool:
        """Its function has returned a coroutine, which can be cancelled. Return whether there is time to
        await it.
        """
        self.cancellable = self.phase == "running"
        return self.cancellable

    def note_retry(self, failed_at: float) -> None:
        """Its function is called once more; the try before it failed at this moment."""
        self.retries += 1
        if self.failed_try is None:
            self.failed_try = failed_at

    def pass_deadline(self, now: float) -> bool:
        """Do what its deadline, which has passed, asks for. Return whether it is overdue from now on.

        A running attempt is halted, and cancelled if it can be. One that was halted before may become
        overdue.
        """
        if self.phase == "running":
            self.phase = "halted"
            if self.cancellable and self.work is not None:
                self.work.cancel()
        elif self.phase == "halted" and now >= self.deadline + self._patience:
            self.phase = "overdue"
            return True
        return False

    def end(self) -> None:
        """It is over: it has an answer, or never will."""
        if self.phase == "ended":
            raise self._impossible("ended")
        self.phase = "ended"
        self.work = None  # its context knows the call, which knows the attempt: no circle

    def _impossible(self, phase: Phase) -> RuntimeError:
        return RuntimeError(f"an attempt that is {self.phase} cannot become {phase}")

    # -- nobody needs it -------------------------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether it has heard that nobody needs it any more."""
        return self.cancelled_at is not None

    @property
    def must_end(self) -> bool:
        """Whether its task is cancelled for another reason: at its deadline, or with the process."""
        return self.work is None or self.work.cancelling() > self.was_stopped

    def hear(self, now: float) -> None:
        """Note that nobody needs it any more. On the event loop."""
        if self.cancelled or self.request.doing != "do":
            return
        self.cancelled_at = now
        if self.hearing is not None:
            self.hearing.set()
        if self.may_stop and self.work is not None:
            self.was_stopped = True
            self.work.cancel()

    async def rest(self, seconds: float) -> None:
        """Wait until it hears, at most so many seconds. On the event loop."""
        if not self.cancelled:
            self.hearing = self.hearing or asyncio.Event()
            await event_within(self.hearing, seconds)

    # -- more time -------------------------------------------------------------------------------------------

    async def extend(self, more: float) -> bool:
        """Ask the store for so many seconds from now on; see ``call.Bounds``."""
        return await self.runner.extend(self, more)

    # -- notes -----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it is over."""
        return self.phase == "ended"

    def note(self, value: Any) -> None:
        """Keep a note of its progress; see ``call.Bounds``."""
        self.runner.note(self, value)
