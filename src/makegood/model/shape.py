"""Tasks as a Scheduler holds them in memory, and their shape: what tasks with the same steps have in common.

Nearly all tasks of a workflow have the same steps. What follows from these alone is worked out once, with the
second such task, and kept in their ``Shape``. One Shape travels with a task::

    plan cache ─► Plan.steps ─► Submission.steps ─► HeldTask.shape ─► Decision.shape_step
                                     claimed tasks ──────┘

It holds no state of any task, and each part is either there or can be worked out again. So tasks of several
threads may share one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import msgspec

from makegood.model.messages import Request
from makegood.model.plan import FIRST_KINDS, WAITS, Kind, StepPlan
from makegood.model.states import Move
from makegood.model.task import Step, TaskRecord

_MOST_STEPS: Final = 100
"""Steps of a task: nothing is worked out for the steps of larger ones."""
_PLAIN: Final = frozenset({"action", *WAITS})
"""Kinds of the steps of tasks that share what follows their actions."""
_BULKY: Final = 64 * 1024
"""Nothing is worked out for steps whose arguments have more bytes than this."""

_encode = msgspec.json.Encoder().encode


def _kinds(steps: Iterable[StepPlan]) -> Iterator[Kind]:
    for step in steps:
        yield step.kind
        yield from _kinds(step.body)


def spec(plan: StepPlan) -> bytes:
    """Return a step plan as the stores keep it, JSON."""
    return _encode(plan)


class ShapeRequest(msgspec.Struct, frozen=True, eq=False):
    """A step that begins when those before it are done, as in all tasks of a shape.

    Its arguments are ``text``, then each value with the text after it.
    """

    idx: int
    waiting: Step
    """The step before it begins."""
    running: Step
    """The step after it has begun."""
    request: Request
    """Its request, without what each task has of its own: its number, arguments, priority and trace."""
    text: bytes
    holes: Sequence[tuple[bool, int, tuple[str | int, ...], bytes]]
    """(whether of a step or an input, index, path, the text after it) of each value."""
    flat: int
    """Arguments of at most so many bytes need no examination; see ``splice.flat``."""


class ShapeStep(msgspec.Struct, frozen=True, eq=False):
    """What follows when a step is done, as in all tasks of a shape: see ``saga.fast_path``.

    The stores write Decisions together that have the same ``ShapeStep``.
    """

    running: Step
    """The step before."""
    after: Step
    """The step after it, without its result."""
    used_requests: list[tuple[int, int]]
    sends: tuple[ShapeRequest, ...]
    """The steps that wait for it."""
    moves: list[Move]
    """The transitions if all of them begin."""
    ending: list[Move]
    """The transitions if the task ends with it."""


class Opening(msgspec.Struct, frozen=True, eq=False):
    """How tasks of a shape begin: their first Decision, without what differs from task to task."""

    alike: TaskRecord
    """One of them, without its inputs. Tasks begin alike if they agree in what the rules read of it."""
    starts_clock: bool
    """Whether their time begins with it."""
    waiting: list[Step]
    """The steps before it; ``followers``, ``open`` and ``left`` as in ``HeldTask``."""
    followers: list[tuple[int, ...]]
    open: list[int]
    left: int
    changes: Mapping[int, Step]
    """The steps that it changes, after the change."""
    moves: Sequence[Move]
    sends: Sequence[ShapeRequest]
    """The steps that it dispatches, in their order."""


class Shape(tuple[StepPlan, ...]):  # noqa: SLOT001 - what was worked out is kept in its __dict__
    """The steps of a task, and what all tasks with these very steps have in common."""

    opening: Opening | None = None
    """How they begin, once it was worked out."""
    _is_known = False

    def __init__(self, _steps: Iterable[StepPlan] = ()) -> None:
        self.following: dict[int, ShapeStep] = {}
        """What follows when a step is done, by its index, for each that was worked out."""

    @classmethod
    def of(cls, steps: Iterable[StepPlan]) -> "Shape":
        """Return the shape that ``steps`` already are, or else a new one."""
        return steps if isinstance(steps, cls) else cls(steps)

    @cached_property
    def specs(self) -> tuple[bytes, ...]:
        """The steps as the stores keep them, JSON."""
        return tuple(map(spec, self))

    @cached_property
    def plain(self) -> bool:
        """Whether what follows each action can be shared: there are only actions and waits, not too many."""
        return len(self) <= _MOST_STEPS and all(step.kind in _PLAIN for step in self)

    @cached_property
    def newer_kinds(self) -> frozenset[Kind]:
        """The kinds of steps that not every version knows, bodies included."""
        return frozenset(_kinds(self)) - FIRST_KINDS

    @cached_property
    def bulky(self) -> bool:
        """Whether its texts are too large to be kept for tasks that may never come."""
        return sum([sum(map(len, step.args.parts)) for step in self if step.args is not None]) > _BULKY

    def again(self) -> bool:
        """Return whether a task with these steps came before, so that working out what they share pays.

        If values were computed during planning, each task has a shape of its own.
        """
        is_known, self._is_known = self._is_known, True
        return is_known and not self.bulky


class KeptSignal(msgspec.Struct, frozen=True):
    """A signal that no step has used yet."""

    name: str
    id: str
    step: str
    """The only step that may use it; "": any that waits for ``name``."""
    value: bytes
    """JSON."""


class NewSignal(msgspec.Struct, frozen=True):
    """A signal that the Decision which uses it writes, too."""

    name: str
    id: str
    step: str
    digest: bytes
    """What tells it from another signal under its id."""


class HeldTask(msgspec.Struct, eq=False):
    """A task that a Scheduler holds in memory: the record, its steps by index, and their order.

    ``saga.held.hold`` derives it. The rules read it and never change it; ``saga.held.apply`` applies a
    committed Decision to it.
    """

    task: TaskRecord
    steps: list[Step]
    followers: list[tuple[int, ...]]
    """For each step, the steps that wait for it (by ``after``, ``guards``, ``of`` or ``item_of``). A
    ``gather`` waits for every step of its ``each``.
    """
    open: list[int] = []
    """For each step, the number of predecessors that are neither done nor skipped."""
    left: int = 0
    """Steps that have not passed: neither done nor skipped, and if of a lost branch, not settled."""
    shape: Shape | None = None
    """Its shape, if what follows its steps is shared with other tasks."""
    signals: Sequence[KeptSignal] = ()
    """Signals that no step has used yet, in the order in which they came."""
    losers: int = 0
    """Steps of lost branches that have not passed."""
