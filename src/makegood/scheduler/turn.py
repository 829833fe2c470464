"""What a Scheduler has in hand between two commits, and what it makes of tasks that it reads from the store."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from makegood import saga
from makegood.base.ids import address, show
from makegood.base.text import words
from makegood.model.decision import Decision
from makegood.model.messages import Alert, Message, Request
from makegood.model.shape import Held
from makegood.store.records import Batch, Loaded

log = logging.getLogger("makegood.scheduler")

LOST_MOST = 3
"""A task that lost its Scheduler this often in a row may be what kills them."""


_ALONE = 2
"""A task that met an exception this often, each time alone, is its cause."""

_CONDEMNED = 3
"""Tasks in a row, with no commit between them, that are put to error for an exception: then it is not of a task."""


class Doubts:
    """Which tasks an exception may come of: those of the turn that met it, in halves, and halves of those, until one is alone with it.

    ``fine``: whether what met an exception last has gone well since. ``unfit``: why a task that is held is to be put to error; ``unclaimable``: why one is when it is claimed; ``most``: tasks to be claimed at once, None: as many as ever.
    """

    __slots__ = ("_alone", "_groups", "_in_a_row", "fine", "most", "unclaimable", "unfit")

    def __init__(self) -> None:
        self._groups: list[list[int]] = []
        self._alone: dict[int, int] = {}
        self._in_a_row = 0
        self.fine = True
        self.unfit: dict[int, str] = {}
        self.unclaimable: dict[int, str] = {}
        self.most: int | None = None

    def __bool__(self) -> bool:
        return bool(self._groups)

    def next(self) -> list[int]:
        """Return the tasks to be decided next, and apart from all others."""
        return self._groups.pop()

    def met(self, tasks: Sequence[int], defect: Exception, *, apart: bool) -> None:
        """Note that a turn of these tasks met an exception; ``apart``: it was about nothing else. Raises it again when it has met too
        many tasks: then it comes of none of them.
        """
        if len(tasks) == 1 and apart:
            (task,) = tasks
            self._alone[task] = self._alone.get(task, 0) + 1
            if self._alone[task] >= _ALONE:
                del self._alone[task]
                self.unfit[task] = self._condemned(task, defect)
                return
        middle = (len(tasks) + 1) // 2 if apart else len(tasks)
        self._groups += [[*half] for half in (tasks[middle:], tasks[:middle]) if half]

    def condemn(self, task: int, defect: Exception) -> None:
        """Note that a task that is held is to be put to error. Raises the exception again when it has met too many tasks."""
        self.unfit[task] = self._condemned(task, defect)

    def _condemned(self, task: int, defect: Exception) -> str:
        if self._in_a_row >= _CONDEMNED:
            raise defect
        self._in_a_row += 1
        shown = show(task)
        log.error("task %s goes to error, it ends each turn", shown, exc_info=defect, extra={"task": shown})
        return f"its Scheduler meets an exception at it each time: {words(defect, named=True)}"[:1000]

    def claimed_badly(self, loaded: Sequence[int], defect: Exception) -> None:
        """Note that a claim met an exception with these tasks loaded: they are claimed one by one for a while. Raises it again when that
        tells of no task.
        """
        alone, self.most, self.fine = self.most == 1, 1, False
        if alone and len(loaded) == 1 and loaded[0] not in self.unclaimable:
            self.unclaimable[loaded[0]] = self._condemned(loaded[0], defect)
        elif alone:  # of no task that could be named
            raise defect

    def well(self, *, claimed: bool, most: int) -> None:
        """Note that a turn went well; ``most``: tasks to be claimed at once in the end."""
        self._in_a_row = 0
        self.fine = claimed or self.most is None
        if claimed and self.most is not None:
            self.most = None if self.most * 2 > most else self.most * 2


@dataclass(slots=True)
class Turn:
    """One commit in the making. ``budget``: slots set aside and not yet used; ``claimed``: Decisions on claimed tasks, and ``heard``
    what they are made of, where somebody watches. ``partly``: what is handed over in memory of Decisions of which not all is, by
    their ``id``: of one task there may be two, as it was freed and is claimed again. ``loaded``: the tasks that were claimed.
    """

    batch: Batch
    budget: dict[str, int]
    began: float
    claimed: dict[int, Decision] = field(default_factory=dict)
    dues: dict[int, dict[int, float]] = field(default_factory=dict)
    heard: dict[int, list[Message]] = field(default_factory=dict)
    partly: dict[int, list[Request]] = field(default_factory=dict)
    loaded: Sequence[int] = ()

    def place(self, decision: Decision, knows: Callable[[str, str], bool]) -> None:
        """Mark what is asked for to be handed over in memory, as far as slots were set aside for agents that run here."""
        placed, budget = [], self.budget
        for request in decision.requests:
            where = address(request.app, request.agent)
            free = budget.get(where, 0)
            if free > 0 and not request.isolate and knows(where, request.action):
                budget[where] = free - 1
                placed.append(request)
        if len(placed) == len(decision.requests):
            decision.handed = True
        elif placed:
            self.partly[id(decision)] = placed
            self.batch.local.update((r.task, r.idx, r.attempt) for r in placed)

    def placed(self, decision: Decision) -> Sequence[Request]:
        """Return what a Decision asks for that is handed over in memory; each takes one of the slots set aside."""
        return decision.requests if decision.handed else self.partly.get(id(decision), ())

    def forget(self, task: int) -> None:
        """Take back the slots of a Decision on a claimed task, as the store tries its transaction again. What an older one hands over,
        made before the task was claimed, is never written.
        """
        if (decision := self.claimed.pop(task, None)) is not None:
            for request in self.placed(decision):
                self.budget[address(request.app, request.agent)] += 1
            self.partly.pop(id(decision), None)
        self.batch.local -= {row for row in self.batch.local if row[0] == task}


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
    text = f"the rules could not decide: {words(defect)}"[:1000]
    return saga.put_to_error(held, messages, Alert("guilty", held.task.id, "", text))
