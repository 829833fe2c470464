"""What a workflow plans: its steps and their order, as a Scheduler will dispatch them."""

from typing import Any, Generic, Literal, TypeVar

import msgspec

from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.model.policy import Policy

R_co = TypeVar("R_co", covariant=True)

Kind = Literal["action", "when", "merge", "each", "gather"]
"""Kinds of steps. All but "action" are control steps: done by the rules as soon as they are ready."""

OnFailure = Literal["undo", "hold"]


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
