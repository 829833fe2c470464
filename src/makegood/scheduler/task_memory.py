"""Memory accounting: how many bytes of a Scheduler's memory its tasks take.

A task counts the bytes of its inputs, results and texts, and a little for itself and each step. Nothing is
measured: each part is counted where it arrives (in a claim, a submission or a reply), so a step costs one
comparison.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from makegood.base.sizes import KIB, MIB
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.model.task import Step

TASK: Final = KIB
"""Bytes that a task counts beside its values."""
STEP: Final = 256
"""Bytes that a step counts besides its values; small values are included."""
SMALL: Final = 128
"""Bytes of a reply's value up to which it counts as part of its step."""

_PORTION: Final = (MIB, 16 * MIB)
"""Least and most bytes that are read in one go; between these it is a sixteenth of the limit.

While a portion is read and decided, it is in memory up to seven times.
"""


def weigh(held_task: HeldTask, messages: Iterable[TaskMessage] = ()) -> int:
    """Return the bytes that a task counts, with ``messages`` that wait for it.

    Declarations of steps are counted unless the task shares them with others of its shape.
    """
    task, steps = held_task.task, held_task.steps
    octets = weigh_new(held_task) + len(task.result or b"")
    octets += sum([len(s.result or b"") + len(s.late or b"") for s in steps if s.result or s.late])
    if held_task.signals:
        octets += sum([len(signal.value) for signal in held_task.signals])
    return octets + sum([len(m.value) for m in messages if m.value is not None])


def weigh_new(held_task: HeldTask) -> int:
    """Return the bytes that a task counts whose steps have no results yet."""
    octets = TASK + STEP * len(held_task.steps) + sum(map(len, held_task.task.inputs))
    return octets if held_task.shape is not None else octets + sum(map(_texts, held_task.steps))


def _texts(step: Step) -> int:
    args = step.plan.args
    return 0 if args is None else sum(map(len, args.parts))


def weigh_added(steps: Sequence[Step]) -> int:
    """Return the bytes that steps count that were added to a task."""
    return STEP * len(steps) + sum([_texts(step) for step in steps])


class Weights:
    """The tasks of a Scheduler and the bytes that each counts.

    ``most``: from this many bytes on, no more tasks should be claimed.
    """

    __slots__ = ("_heaviest", "_of", "most", "portion", "total")

    def __init__(self, most: int) -> None:
        self.most = most
        self.portion = max(_PORTION[0], min(most // 16, _PORTION[1]))
        self.total = 0
        self._of: dict[int, int] = {}
        self._heaviest = 0  # since there was none

    def of(self, task: int) -> int:
        """Return the bytes that a task counts; for an unknown task, the average of the others."""
        weight = self._of.get(task)
        return self.mean if weight is None else weight

    @property
    def room(self) -> int:
        """The bytes that may come in one go, 0 when none may."""
        left = self.most - self.total
        if left >= self.portion:
            return self.portion  # nearly always
        return max(0, left)

    @property
    def mean(self) -> int:
        """What a task counts on average."""
        return self.total // len(self._of) if self._of else TASK

    def put(self, task: int, weight: int) -> None:
        """Note what a task counts from now on."""
        self.total += weight - self._of.get(task, 0)
        self._of[task] = weight
        self._heaviest = max(self._heaviest, weight)

    def grow(self, task: int, more: int) -> None:
        """Note that a task counts more; nothing for one that is not known."""
        if task in self._of:
            self.total += more
            self._of[task] = weight = self._of[task] + more
            self._heaviest = max(self._heaviest, weight)

    def drop(self, task: int) -> None:
        """Forget a task."""
        self.total -= self._of.pop(task, 0)
        if not self._of:
            self._heaviest = 0

    def first_portion(self, tasks: Sequence[int]) -> Sequence[int]:
        """Return the first of ``tasks`` that may be read or written in one go: at least one task."""
        if len(tasks) * self._heaviest <= self.portion:
            return tasks  # nearly always
        read = 0
        for n, task in enumerate(tasks):
            read += self.of(task)
            if read > self.portion and n > 0:
                return tasks[:n]
        return tasks
