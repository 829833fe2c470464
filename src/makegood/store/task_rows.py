"""A task's row on its way to a record, as both stores read it."""

from dataclasses import dataclass
from typing import Any

from makegood.model.task import TaskRecord
from makegood.store import rows
from makegood.store.records import Loaded


@dataclass(slots=True)
class Raw:
    """A task's row, to become a record."""

    row: Any
    """The columns ``COLUMNS`` of the store."""
    epoch: int
    """The epoch that the task has or is about to get."""
    has_deadline: bool
    """Whether the task has a deadline."""

    @property
    def id(self) -> int:
        """The task's id."""
        number: int = self.row[0]
        return number

    def record(self, values: tuple[bytes, bytes | None] | None) -> TaskRecord:
        """Return the task. ``values``: the large values of its row (static part, result), if these were read
        apart. Raises an exception for a row that cannot be read.
        """
        (
            id_, app, workflow, key, state, goal, on_failure, submission, priority, _, within, _, undo_within, cause, failures,
            losses, static, result, trace, told_state, notice_count, *_,
        ) = self.row  # fmt: skip
        if values is not None:
            static, result = values
        if not (result is None or isinstance(result, bytes)):
            raise ValueError("its result is not a value")
        inputs, returns, reply, names = rows.read_static(static)
        return TaskRecord(
            id_, app, workflow, key, state, goal, on_failure, submission, priority, self.epoch, within, self.has_deadline, undo_within,
            cause, failures, losses, inputs, returns, result, trace, reply, told_state or "", notice_count or 0, names,
            rows.signals_in(static), rows.lanes_in(static),
        )  # fmt: skip


@dataclass(slots=True)
class Read:
    """The result of reading tasks."""

    tasks: list[Loaded]
    """The tasks that were read."""
    unreadable: list[tuple[int, str]]
    """(task, reason) of those that could not be read."""
    left: list[int]
    """Tasks left out for lack of room for their large values."""

    def fault(self, task: int, fault: Exception) -> None:
        """Note a task whose rows cannot be read."""
        self.unreadable.append((task, f"its rows cannot be read: {type(fault).__name__}: {fault}"))
