"""Tasks, steps and plans: frozen records.

A *plan* is what a workflow function yields when it is run once, at submission: steps with their dependencies,
their arguments as templates, and the template of the result. A *task* is a submitted plan with its state; a *step*
is one row of it. Everything a step declares (``StepPlan``) never changes and is shared between tasks of one shape;
what changes (``Step``) is small.

Arguments are JSON with holes: ``Template.parts`` are the pieces of text around the holes, ``Template.refs`` say what
goes into them, so a user's data needs no escaping and filling in is one join of bytes.
"""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from makegood.codec import PAYLOAD_LIMIT
from makegood.policy import Policy
from makegood.states import Goal, StepState, TaskState

R_co = TypeVar("R_co", covariant=True)

Kind = Literal["action", "when", "merge", "each", "gather"]
"""Kinds of steps. All but "action" are control steps: done by the rules as soon as they are ready."""

Doing = Literal["do", "probe", "undo"]
"""What an agent is asked for. (A timer is a row of its own kind, never sent to an agent.)"""

OnFailure = Literal["undo", "hold"]

STANDING = frozenset({"done", "in_doubt", "kept", "undoing", "undo_failed", "running"})
"""States of a step whose effect stands, or may stand."""


class Ref(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What goes into a hole: (part of) the result of a step, or a workflow input, or the item of an ``each``.

    ``of`` = "step": ``index`` is a step's index in the task; "input": the position of a workflow input;
    "item": ``index`` is the ``each`` step, and the ref stands only inside that step's body template, where ``path``
    begins behind the item. ``path`` walks into the value: names of object members, positions in arrays.
    """

    of: Literal["step", "input", "item"]
    index: int
    path: tuple[str | int, ...] = ()


class Template(msgspec.Struct, frozen=True, array_like=True):
    """JSON with holes: ``parts[0] + value(refs[0]) + parts[1] + ... + parts[-1]``; one more part than refs."""

    parts: tuple[str, ...]
    refs: tuple[Ref, ...] = ()


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a ``when`` decides on. ``eq`` / ``ne``: ``left`` against ``right``, both templates of one JSON value,
    compared as decoded values; ``true``: ``left`` is JSON true; ``all`` / ``any`` / ``not``: over ``parts``.
    """

    op: Literal["eq", "ne", "true", "all", "any", "not"]
    left: Template | None = None
    right: Template | None = None
    parts: "tuple[Condition, ...]" = ()


_LEVEL = 1 << 20


def inside(position: int, level: int = 0) -> int:
    """Return the index that names the step at ``position`` of a body: this one (level 0), the one around it (1), ...

    >>> inside(0), inside(2), place(inside(2, 1))
    (-1, -3, (2, 1))
    """
    return -1 - position - level * _LEVEL


def place(index: int) -> tuple[int, int]:
    """Return (position, level) of a negative index: what ``inside`` made it of."""
    level, position = divmod(-1 - index, _LEVEL)
    return position, level


class StepPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a step declares. ``idx`` is its position in the task, ``name`` is unique in the task.

    ``after``: indices that must be done or skipped first. ``guards``: (index of a ``when``, side) that must hold,
    outermost first; a guard that went the other way, or was skipped, skips the step.

    Control steps carry their data here: ``when`` its ``condition``; ``merge`` the ``when`` it belongs to in ``of`` and
    ``sides``, the value's templates for (True, False); ``each`` its list in ``args``, ``limit``, ``at_once`` (0: all)
    and ``body``; ``gather`` its ``each`` in ``of`` and, in ``sides``, the one template of an item's value.

    ``body`` holds the template steps of one item. Their ``idx``, and every index in ``after``, ``guards``, ``of`` and refs
    that names a step of the same body, is written as ``-1 - n`` (n = position in the body, 0 first); indices >= 0 name
    steps outside. Item ``n``'s copy of body position j gets a fresh idx, ``of`` = the ``each``, ``nth`` = n,
    ``name`` + "[n]", and its refs of "item" turned into refs of "step" (the ``each``) with path (n, ...).
    For copies of nested control steps that use ``of`` themselves, ``item_of`` keeps the owning ``each``.

    ``later``: the arguments of its next round, of a step whose inputs an operator corrected while it was done.
    ``payload_limit``: of its app; an argument is held to it once it is filled in.

    In an ``each`` inside a body, an index may also name a step of the body *around* it: ``inside(n, level)`` with one
    level more for each body further out. ``sides`` of a ``gather`` stand inside the body of their ``each`` (level 0 is
    that body, level 1 the one that holds the gather); so does everything in ``body``.
    """

    idx: int
    kind: Kind = "action"
    name: str = ""
    agent: str = ""
    action: str = ""
    args: Template | None = None
    after: tuple[int, ...] = ()
    guards: tuple[tuple[int, bool], ...] = ()
    policy: Policy | None = None
    condition: Condition | None = None
    sides: tuple[Template, ...] = ()
    limit: int = 1000
    at_once: int = 0
    body: "tuple[StepPlan, ...]" = ()
    of: int = -1
    item_of: int = -1
    nth: int = -1
    later: Template | None = None
    payload_limit: int = PAYLOAD_LIMIT


class Step(msgspec.Struct, frozen=True):
    """A step of a task, with its state.

    ``doing`` is the kind of the one request in flight, None when none is; ``waiting`` says that its timer row exists.
    ``attempt`` counts every hand-out of do, probe and undo alike and is never reset; ``round`` rises when a resubmission
    starts it again. ``failures`` count for the present direction. ``doubt``: an earlier try or attempt of this round is
    unanswered. ``final``: Permanent was answered while in doubt. ``asked``: the last attempt that needs no probe: that of the
    last probe, or the one after which this round began.
    ``stuck``: its undo cannot go on without an operator. ``again``: an operator wants the undo tried again; of a step with a
    request in flight: it was sent before the task turned to undo, so its failure does not count there.
    ``deaths``: times that the process running it died. ``stood``: it was kept in an earlier round, so that effect stands
    whatever becomes of this one.
    ``result`` and ``late`` (a late reply's value, for the undo) are JSON bytes.
    """

    plan: StepPlan
    state: StepState = "waiting"
    doing: Doing | None = None
    waiting: bool = False
    attempt: int = 0
    round: int = 1
    failures: int = 0
    asked: int = 0
    deaths: int = 0
    doubt: bool = False
    final: bool = False
    stuck: bool = False
    again: bool = False
    result: bytes | None = None
    late: bytes | None = None
    error: str | None = None
    stood: bool = False

    @property
    def idx(self) -> int:
        """Position in the task."""
        return self.plan.idx

    @property
    def name(self) -> str:
        """Name, unique in the task."""
        return self.plan.name


class Reply(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Where a task's submitter wants to hear of its states: ``to`` is "queue:NAME" or a URL; told with ``correlation_id``."""

    to: str
    correlation_id: str | None = None


class Task(msgspec.Struct, frozen=True):
    """A task, without its steps.

    ``within``: seconds from the first claim to its complete-by, None = no limit; ``timed``: its complete-by is set.
    ``undo_within``: seconds after which an undo that is not finished raises an alert. ``cause``: why the goal is no longer
    forward. ``failure_count``: failures of all its steps and lost locks; ``lost``: Schedulers lost in a row, while the
    task may have been the reason.
    ``inputs`` are the workflow's inputs, ``result`` the value of ``returns`` once processed: JSON bytes.
    ``reply``: whom to tell, None = nobody; ``told``: the state that was told last, as the ``notified``-th notice.
    """

    id: int
    app: str
    workflow: str
    key: str | None = None
    state: TaskState = "pending"
    goal: Goal = "forward"
    on_failure: OnFailure = "undo"
    submission: int = 1
    priority: int = 0
    epoch: int = 0
    within: float | None = None
    timed: bool = False
    undo_within: float | None = None
    cause: str = ""
    failure_count: int = 0
    lost: int = 0
    inputs: tuple[bytes, ...] = ()
    returns: Template | None = None
    result: bytes | None = None
    trace: str | None = None
    reply: Reply | None = None
    told: str = ""
    notified: int = 0


class Sent(msgspec.Struct, frozen=True):
    """A step that begins when those before it are done, as it is in all tasks of a shape.

    ``waiting`` and ``running``: before and after; ``asked``: its request's fields from ``idx`` to ``within``. Its arguments are
    ``texts`` with a value after each but the last, ``holes``: (whether of a step or an input, index, path).
    """

    idx: int
    waiting: Step
    running: Step
    asked: tuple[Any, ...]
    texts: tuple[bytes, ...]
    holes: tuple[tuple[bool, int, tuple[str | int, ...]], ...]


class Stride(msgspec.Struct, frozen=True):
    """What follows when a step is done, as it is in all tasks of a shape: see ``saga.straight``.

    ``running``: the step before; ``done``: its fields after, up to the result; ``sent``: the steps that wait for it; ``moves``: if all
    of them begin; ``ending``: if the task ends with it.
    """

    running: Step
    done: tuple[Any, ...]
    consumed: list[tuple[int, int]]
    sent: tuple[Sent, ...]
    moves: list[tuple[str, str, str, str]]
    ending: list[tuple[str, str, str, str]]


class Held(msgspec.Struct, eq=False):
    """A task that a Scheduler holds in memory: the record, its steps by index, and who comes after whom.

    ``followers[i]`` are the steps that wait for step i (by ``after``, ``guards``, ``of`` or ``item_of``; a ``gather`` waits for
    every step of its ``each``). ``open[i]`` counts the predecessors of step i that are neither done nor skipped, ``left`` all
    such steps. Derived by ``saga.hold``; the rules read it and never change it, ``saga.apply`` puts a committed Decision into it.
    ``strides``: what the rules remember of tasks of the same shape, which share it; None for a task that is alone.
    """

    task: Task
    steps: list[Step]
    followers: list[tuple[int, ...]]
    open: list[int] = []
    left: int = 0
    strides: dict[int, Stride] | None = None


class Plan(msgspec.Struct, Generic[R_co], frozen=True):
    """What a workflow function yields for its inputs: the steps, typed by the workflow's result.

    Printable and testable without a store; submit it with ``client.submit(plan)``. ``fingerprint`` stands for the
    workflow and its inputs: the same key with another fingerprint is a ``KeyConflict``.
    """

    app: str
    workflow: str
    steps: tuple[StepPlan, ...]
    inputs: tuple[bytes, ...]
    returns: Template
    fingerprint: bytes
    within: float | None = None
    undo_within: float | None = None
    on_failure: OnFailure = "undo"
    key: str | None = None
    priority: int = 0
    correlation_id: str | None = None
    returns_type: Any = None
    reply_to: str | None = None

    def with_(
        self,
        *,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
    ) -> "Plan[R_co]":
        """Return the plan with submission options filled in; what is None stays as it is."""
        return Plan(
            self.app,
            self.workflow,
            self.steps,
            self.inputs,
            self.returns,
            self.fingerprint,
            self.within,
            self.undo_within,
            self.on_failure,
            self.key if key is None else key,
            self.priority if priority is None else priority,
            self.correlation_id if correlation_id is None else correlation_id,
            self.returns_type,
            self.reply_to if reply_to is None else reply_to,
        )

    def __str__(self) -> str:
        """Return the steps as a table for people: index, name, agent, what they wait for."""
        lines = [f"{self.app}.{self.workflow}: {len(self.steps)} steps"]
        for step in self.steps:
            after = ", ".join(self.steps[i].name for i in step.after) or "-"
            where = f"{step.agent}.{step.action}" if step.kind == "action" else f"({step.kind})"
            lines.append(f"  {step.idx:>3}  {step.name:<24} {where:<28} after {after}")
        return "\n".join(lines)


def standing(steps: Sequence[Step]) -> list[Step]:
    """Return the steps whose effect stands or may stand: done, in doubt, kept (in an earlier round too), being undone, or
    whose undo failed.
    """
    return [s for s in steps if s.plan.kind == "action" and (s.state in STANDING or s.stood)]
