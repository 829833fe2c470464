"""Everything that one event (or several, folded) changes in one task: what the rules return and a Scheduler
commits.

A Decision is data. The store writes all of it or nothing, under the fence of the task's lock and epoch and of
every request row that it consumes.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from makegood.model.attempt_end import AttemptEnd
from makegood.model.messages import Alert, Answer, Request
from makegood.model.note import Note
from makegood.model.notices import Notice
from makegood.model.shape import KeptSignal, NewSignal, ShapeStep
from makegood.model.states import Move
from makegood.model.task import Step, TaskRecord

_NONE: Final[Mapping[int, Any]] = MappingProxyType({})


class At(msgspec.Struct, frozen=True):
    """When a Decision is made, and what else of its Scheduler the rules may read."""

    now: float = 0.0
    """The store's clock, by which keys grow too old to be sent again; 0: unknown, and then no key does."""
    calendar: float = 0.0
    """The wall clock, in seconds since 1970, by which a moment has come: the server's on PostgreSQL, this
    machine's on SQLite; 0: unknown, and then none has.
    """
    linger: float = math.inf
    """Seconds for which a task that only waits stays with its Scheduler; inf: for as long as it waits."""


NEVER: Final = At()
"""No time is known."""


class Decision(msgspec.Struct):
    """The change of one task.

    Most decisions change little: the empty defaults are shared and cost nothing. The rules build an
    ``OpenDecision``.
    """

    before: TaskRecord
    """The task as the rules found it."""
    task: TaskRecord
    """The task after the change. ``task.failure_count`` is only what the rules were given, and is not
    written.
    """
    steps: Mapping[int, Step] = _NONE
    """The changed steps after the change, by index."""
    new_steps: Sequence[Step] = ()
    """New rows of an ``each``, in order of idx, starting at the previous number of steps."""
    used_requests: Sequence[tuple[int, int]] = ()
    """(idx, attempt) of request rows used up by agents' replies. Each must still be there and unjudged, or
    the whole Decision is lost.
    """
    requests: Sequence[Request] = ()
    """New request rows."""
    timers: Mapping[int, float] = _NONE
    """idx -> seconds until due; sets or replaces the step's timer row."""
    stale_timers: Sequence[int] = ()
    """idx of timer rows to delete (fired, or no longer wanted). As with a consumed row, a new one of the same
    step may follow.
    """
    withdraw: Sequence[tuple[int, int]] = ()
    """(idx, attempt) of requests to withdraw if no agent has taken them; the store reports which it
    withdrew.
    """
    cancels: Sequence[tuple[int, int]] = ()
    """(idx, attempt) of requests for actions that nobody needs any more: an attempt that an agent has begun
    hears of it.
    """
    failure_counts: Mapping[int, tuple[bool, int]] = _NONE
    """idx -> (reset, increment) of failure counts: written as 0 or the stored count, plus the increment.

    The task's count rises by the sum of the increments. idx -1 counts for the task alone: a step that failed
    and starts counting again in one Decision.
    """
    alerts: Sequence[Alert] = ()
    answers: Sequence[Answer] = ()
    """Answers to operator commands."""
    moves: Sequence[Move] = ()
    seqs: Sequence[int] = ()
    """Inbox rows used up."""
    alert_ends: Sequence[str] = ()
    """Steps whose alerts end with this change; "*" for all alerts of the task. Alerts of this very Decision
    stay open, unless the task has ended.
    """
    rewritten: Sequence[int] = ()
    """idx of steps whose plan an operator has changed, beside the answer to that command. The operator has
    changed the task's inputs as well if they differ from those of ``before``.
    """
    notices: Sequence[Notice] = ()
    """Notifications of the task's submitter, in order; only for tasks with a ``reply``."""
    wakes: float | None = None
    """The task goes to sleep: seconds until it is to be claimed again, ``inf`` for by a message only."""
    by_calendar: bool = False
    """These seconds end at a moment of the calendar, also if that is set forward or back meanwhile."""
    release: bool = False
    """The task is at rest or released: its lock is cleared."""
    extends: float = 0.0
    """Seconds by which an operator moves the task's deadline."""
    frees_lanes: bool = False
    """An operator takes the lanes of a task in error away."""
    clear_complete_by: bool = False
    """A resubmission restarts the task's time. (A claim sets the deadline whenever it is null.)"""
    handovers: Sequence[Request] = ()
    """Those of ``requests`` that its Scheduler hands over in memory: their rows are inserted as already
    taken, without a body.
    """
    handed_at: float = 0.0
    """When they are handed over, on the store's clock as this process knows it."""
    used_signals: Sequence[tuple[str, str, int]] = ()
    """(name, id, idx) of signals that ended waits, with the idx of each wait."""
    kept_signals: Sequence[KeptSignal] = ()
    """Signals that came with this Decision, and that no step has used."""
    new_signal: NewSignal | None = None
    """The one of these signals that has no row yet. The whole Decision is lost if the task knows its name and
    id, or has a message in its inbox.
    """
    attempts: Sequence[AttemptEnd] = ()
    """How attempts ended, for the history: those that failed or were answered through the store, and late
    replies.
    """
    notes: Sequence[Note] = ()
    """Notes of attempts, for the history, in order."""
    shape_step: ShapeStep | None = None
    """What this Decision shares with those of other tasks that have the very same ``ShapeStep``: all but
    task, result, arguments and ``seqs``.
    """


class OpenDecision(Decision):
    """A Decision under construction: its changes are in lists of its own."""

    steps: dict[int, Step] = {}
    new_steps: list[Step] = []
    used_requests: list[tuple[int, int]] = []
    requests: list[Request] = []
    timers: dict[int, float] = {}
    stale_timers: list[int] = []
    withdraw: list[tuple[int, int]] = []
    cancels: list[tuple[int, int]] = []
    failure_counts: dict[int, tuple[bool, int]] = {}
    alerts: list[Alert] = []
    answers: list[Answer] = []
    moves: list[Move] = []
    seqs: list[int] = []
    alert_ends: list[str] = []
    rewritten: list[int] = []
    notices: list[Notice] = []
    used_signals: list[tuple[str, str, int]] = []
    kept_signals: list[KeptSignal] = []
    attempts: list[AttemptEnd] = []
    notes: list[Note] = []
