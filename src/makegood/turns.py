"""What a Scheduler has in hand between two commits, and what it makes of tasks that it reads from the store."""

import heapq
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from makegood import saga
from makegood.decision import Decision
from makegood.errors import MakegoodError
from makegood.ids import show
from makegood.messages import Alert, Message
from makegood.store.records import Batch, Loaded
from makegood.task import Held

log = logging.getLogger("makegood.scheduler")

LOST_MOST = 3
"""A task that lost its Scheduler this often in a row may be what kills them."""


_REVIEW_EVERY, _REVIEW_MOST = 30.0, 1000
"""Seconds, and tasks each time."""


class Review:
    """Which of the tasks held are to be read again, in turn.

    A Scheduler that was slow to answer may have been taken for deaf and its tasks freed. Of one that nobody else has
    claimed since it hears nothing more: no message comes, nothing is decided, so no commit tells. It would hold it for ever,
    and, as it holds only so many, claim ever less.
    """

    __slots__ = ("_due", "_last")

    def __init__(self, now: float) -> None:
        self._due, self._last = now + _REVIEW_EVERY, 0

    def some(self, held: Collection[int], busy: Collection[int], now: float) -> list[int]:
        """Return the next of the tasks ``held`` that are not ``busy``; none before their time has come, in monotonic seconds."""
        if now < self._due:
            return []
        self._due = now + _REVIEW_EVERY
        found = heapq.nsmallest(
            _REVIEW_MOST, (task for task in held if task > self._last and task not in busy)
        )
        self._last = found[-1] if len(found) == _REVIEW_MOST else 0
        return found


@dataclass(slots=True)
class Turn:
    """One commit in the making. ``budget``: slots set aside and not yet used; ``placed``: requests that use one, with their agent;
    ``heard``: what Decisions on claimed tasks are made of, where somebody watches.
    """

    batch: Batch
    budget: dict[str, int]
    began: float
    placed: dict[tuple[int, int, int], str] = field(default_factory=dict)
    dues: dict[int, dict[int, float]] = field(default_factory=dict)
    heard: dict[int, list[Message]] = field(default_factory=dict)


def restored(loaded: Loaded) -> tuple[Held, list[Message]]:
    """Return a task read from the store as it can be held, and the messages that wait for it, in the order to fold them."""
    held = saga.hold(loaded.task, loaded.steps)
    missed = saga.repair(held, loaded.messages)
    due = [Message("retry", idx) for idx, wait in loaded.due.items() if wait <= 0 and held.steps[idx].waiting]
    claim: list[Message] = []
    if loaded.task.state == "pending":
        claim.append(Message("claim"))
        if loaded.task.lost >= LOST_MOST:
            claim.append(Message("poison"))
    return held, claim + missed + loaded.messages + due


def guilty(held: Held, messages: Sequence[Message], defect: Exception) -> Decision:
    """Put a task to error that the rules could not decide: a defect, or data that no longer reads."""
    shown = show(held.task.id)
    log.error("task %s goes to error, it cannot be decided", shown, exc_info=defect, extra={"task": shown})
    known = defect if isinstance(defect, MakegoodError) else repr(defect)
    text = f"the rules could not decide: {known}"[:1000]
    return saga.put_to_error(held, messages, Alert("guilty", held.task.id, "", text))
