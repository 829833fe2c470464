"""Unexpected exceptions: the Scheduler finds the task that causes them, and puts it to error."""

import logging
from collections.abc import Sequence

from makegood import saga
from makegood.base.ids import show
from makegood.base.text import words
from makegood.model.decision import Decision
from makegood.model.messages import Alert, TaskMessage
from makegood.model.shape import HeldTask

log = logging.getLogger("makegood.scheduler")

_ALONE = 2
"""A task that fails its turn this often, each time alone, is the cause."""

_CONDEMNED = 3
"""After this many tasks in a row were put to error without a commit between them, no task is the cause."""


class Doubts:
    """Which tasks may cause an exception.

    The tasks of a failed turn are tried in halves, then in halves of those, until one task fails alone.
    """

    __slots__ = ("_alone", "_groups", "_in_a_row", "fine", "most", "unclaimable", "unfit")

    def __init__(self) -> None:
        self._groups: list[list[int]] = []
        self._alone: dict[int, int] = {}
        self._in_a_row = 0
        self.fine = True
        """Whether what failed last has gone well since."""
        self.unfit: dict[int, str] = {}
        """Tasks that are held and must be put to error, and why."""
        self.unclaimable: dict[int, str] = {}
        """Tasks that must be put to error as soon as they are claimed, and why."""
        self.most: int | None = None
        """How many tasks to claim at once; None: as many as ever."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def next(self) -> list[int]:
        """Return the tasks to try next, apart from all others."""
        return self._groups.pop()

    def note_fault(self, tasks: Sequence[int], defect: Exception, *, apart: bool) -> None:
        """Note that a turn of these tasks failed. ``apart``: it did nothing else.

        Raises the exception when it has hit too many tasks: none of them is the cause then.
        """
        if len(tasks) == 1 and apart:
            (task,) = tasks
            self._alone[task] = self._alone.get(task, 0) + 1
            if self._alone[task] >= _ALONE:
                del self._alone[task]
                self.unfit[task] = self._reason_for(task, defect)
                return
        middle = (len(tasks) + 1) // 2 if apart else len(tasks)
        self._groups += [[*half] for half in (tasks[middle:], tasks[:middle]) if half]

    def condemn(self, task: int, defect: Exception) -> None:
        """Note that a task must be put to error. Raises the exception when it has hit too many tasks."""
        self.unfit[task] = self._reason_for(task, defect)

    def _reason_for(self, task: int, defect: Exception) -> str:
        if self._in_a_row >= _CONDEMNED:
            raise defect
        self._in_a_row += 1
        task_id = show(task)
        log.error(
            "task %s goes to error, it ends each turn", task_id, exc_info=defect, extra={"task": task_id}
        )
        return f"its Scheduler meets an exception at it each time: {words(defect, named=True)}"[:1000]

    def note_failed_claim(self, tasks: Sequence[int], defect: Exception) -> None:
        """Note that a claim of these tasks failed: for a while tasks are claimed one by one.

        Raises the exception when that does not name a task.
        """
        alone, self.most, self.fine = self.most == 1, 1, False
        if alone and len(tasks) == 1 and tasks[0] not in self.unclaimable:
            self.unclaimable[tasks[0]] = self._reason_for(tasks[0], defect)
        elif alone:  # of no task that could be named
            raise defect

    def well(self, *, with_claim: bool, most: int) -> None:
        """Note that a turn went well. ``most``: how many tasks are claimed at once without doubts."""
        self._in_a_row = 0
        self.fine = with_claim or self.most is None
        if with_claim and self.most is not None:
            self.most = None if self.most * 2 > most else self.most * 2


def rejection(held_task: HeldTask, messages: Sequence[TaskMessage], defect: Exception) -> Decision:
    """Return the Decision that puts to error a task that the rules could not decide."""
    task_id = show(held_task.task.id)
    log.error(
        "task %s goes to error, it cannot be decided", task_id, exc_info=defect, extra={"task": task_id}
    )
    text = f"the rules could not decide: {words(defect)}"[:1000]
    return saga.put_to_error(held_task, messages, Alert("unreadable", held_task.task.id, "", text))


def unfit(task: int, defect: Exception) -> str:
    """Log that the rows of a task do not fit together; returns why it goes to error."""
    log.error("task %s goes to error, it cannot be decided", show(task), exc_info=defect)
    return f"its rows do not fit together: {words(defect, named=True)}"
