"""All that one event (or several, folded) changes in one task: what the rules return and a Scheduler commits.

A Decision is data. The store writes it whole or not at all, under the fence of the task's lock and epoch and of every
request row that it consumes.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from makegood.model.messages import Alert, Answer, Message, Request
from makegood.model.notices import Notice
from makegood.model.shape import Stride
from makegood.model.task import Step, Task

Move = tuple[str, str, str, str]
"""("task" or a step's name, from, to, why): one lawful transition."""


_NONE: Final[Mapping[int, Any]] = MappingProxyType({})


class Decision(msgspec.Struct):
    """The change of one task. (Most change little: what is empty is shared, and costs nothing. The rules build an ``OpenDecision``.)

    ``task`` and ``steps`` are the records after the change (``steps``: only those that changed, by index);
    ``before`` is the task as the rules found it. ``added``: new rows of an ``each``, in order of idx, starting at the number
    of steps there were. ``consumed``: (idx, attempt) of request rows that replies of agents have used up: each must still be
    there, unjudged, or the whole Decision is lost. ``requests``: new request rows. ``timers``: idx -> seconds until due; sets or
    replaces the step's timer row. ``dropped``: idx of timer rows to delete (fired or no longer wanted); like a consumed row, a
    dropped one may be followed by a new one of the same step. ``withdraw``:
    (idx, attempt) of requests to take back if no agent has taken them; the store says which it took back.
    ``counted``: idx -> (reset, increment) of failure counts: written as 0 or the stored count, plus the increment; the task's
    count rises by the sum of the increments. idx -1 counts for the task alone: a step that failed and begins to count anew
    in one Decision. (``task.failure_count`` is only what the rules were told; it is not to be written.)
    ``alerts``, ``answers`` (to operators' acts), ``moves`` go to their own rows. ``seqs``: inbox rows used up. ``stale``: replies
    that changed nothing, for the history. ``eased``: steps whose alerts end with this change, "*" for all alerts of the task
    (not those of this very Decision, unless the task has ended). ``rewritten``: idx of steps whose plan an operator has changed, beside the answer to that act;
    so has he the task's inputs when they are others than before. ``release``: the task is at rest or given back, its lock is cleared.
    ``notices``: what the task's submitter is told, in order; only of tasks with a ``reply``.
    ``clear_complete_by``: a resubmission starts the task's time anew (it is set at claim whenever it is null).
    ``handed``: those of ``requests`` that its Scheduler hands over in memory: their rows are born taken, without a body.
    ``stride``: what it is, but for task, result, arguments and ``seqs``, like those of other tasks that have the very same one.
    """

    before: Task
    task: Task
    steps: Mapping[int, Step] = _NONE
    added: Sequence[Step] = ()
    consumed: Sequence[tuple[int, int]] = ()
    requests: Sequence[Request] = ()
    timers: Mapping[int, float] = _NONE
    dropped: Sequence[int] = ()
    withdraw: Sequence[tuple[int, int]] = ()
    counted: Mapping[int, tuple[bool, int]] = _NONE
    alerts: Sequence[Alert] = ()
    answers: Sequence[Answer] = ()
    moves: Sequence[Move] = ()
    seqs: Sequence[int] = ()
    stale: Sequence[Message] = ()
    eased: Sequence[str] = ()
    rewritten: Sequence[int] = ()
    notices: Sequence[Notice] = ()
    release: bool = False
    clear_complete_by: bool = False
    handed: Sequence[Request] = ()
    stride: Stride | None = None


class OpenDecision(Decision):
    """One that is still being added to: what it changes stands in lists of its own."""

    steps: dict[int, Step] = {}
    added: list[Step] = []
    consumed: list[tuple[int, int]] = []
    requests: list[Request] = []
    timers: dict[int, float] = {}
    dropped: list[int] = []
    withdraw: list[tuple[int, int]] = []
    counted: dict[int, tuple[bool, int]] = {}
    alerts: list[Alert] = []
    answers: list[Answer] = []
    moves: list[Move] = []
    seqs: list[int] = []
    stale: list[Message] = []
    eased: list[str] = []
    rewritten: list[int] = []
    notices: list[Notice] = []
