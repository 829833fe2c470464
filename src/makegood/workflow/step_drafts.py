"""Steps of a plan under construction, and the sequences they are recorded in; see ``recorder``."""

import dataclasses
from collections.abc import Sequence
from types import NoneType
from typing import Any, Never

import msgspec

from makegood.base.service_keys import length_of, longest_key
from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.declare.action import Action
from makegood.errors import DefinitionError, PromiseError
from makegood.model.plan import Condition, Kind, StepPlan, Template, inside
from makegood.workflow.promise import Origin, Promise, Scope, content_of


class StepDraft(Origin, eq=False):
    """A step of a plan under construction: ``StepPlan`` with drafts instead of indices."""

    kind: Kind = "action"
    action: Action[..., Any] | None = None
    label: str = ""
    """The ``action`` of a step that has none: what a wait waits for."""
    args: Template | None = None
    after: "tuple[StepDraft, ...]" = ()
    guards: "tuple[tuple[StepDraft, bool], ...]" = ()
    condition: Condition | None = None
    sides: tuple[Template, ...] = ()
    limit: int = 1000
    at_once: int = 0
    body: "Sequence[StepDraft]" = ()
    branches: "tuple[StepDraft, ...]" = ()
    step_limit: int = 0
    of: "StepDraft | None" = None


class Unit(msgspec.Struct, eq=False):
    """A part of a sequence, see ``recorder``."""

    first: int
    """A serial."""
    last: int
    """A serial."""
    start: tuple[StepDraft, ...]
    """The frontier before it."""
    heads: tuple[StepDraft, ...]
    ends: tuple[StepDraft, ...]
    needs: list[int]
    result: StepDraft | None
    """The step whose promise stands for it."""

    def holds(self, serials: set[int]) -> bool:
        """Return whether one of these steps is part of it."""
        return any(self.first <= serial <= self.last for serial in serials)


class Flow(msgspec.Struct, eq=False):
    """The sequence being recorded, and where: in which body, under which guards, in which scope."""

    scope: Scope
    body: list[StepDraft]
    depth: int = 0
    guards: tuple[tuple[StepDraft, bool], ...] = ()
    frontier: tuple[StepDraft, ...] = ()
    units: list[Unit] = []
    is_side: bool = False
    """Whether it is, or is within, a side of a ``when``."""
    is_lane: bool = False
    """Whether it is, or is within, a branch of a ``first``."""


def step_plan(draft: StepDraft, payload_limit: int = PAYLOAD_LIMIT) -> StepPlan:
    """Return a step as the plan keeps it: indices instead of drafts. ``payload_limit``: of its app."""
    action = draft.action
    if action is not None and not draft.guards and draft.depth == 0:
        return StepPlan(
            draft.position, "action", draft.name, action.agent.name, action.name, draft.args,
            tuple([before.position for before in draft.after]), policy=action._policy, payload_limit=payload_limit,
        )  # fmt: skip
    return StepPlan(
        idx=_own_index(draft),
        kind=draft.kind,
        name=draft.name,
        agent="" if action is None else action.agent.name,
        action=draft.label if action is None else action.name,
        args=draft.args,
        after=tuple(map(_own_index, draft.after)),
        guards=tuple((_own_index(when), side) for when, side in draft.guards),
        policy=None if action is None else action._policy,
        condition=draft.condition,
        sides=draft.sides,
        limit=draft.limit,
        at_once=draft.at_once,
        body=tuple([step_plan(inner, payload_limit) for inner in draft.body]),
        branches=tuple(map(_own_index, draft.branches)),
        step_limit=draft.step_limit,
        of=-1 if draft.of is None else _own_index(draft.of),
        payload_limit=payload_limit,
    )


def _own_index(draft: StepDraft) -> int:
    """Return the index of a step among those of the same body."""
    return draft.position if draft.depth == 0 else inside(draft.position)


def check_key_lengths(steps: Sequence[StepPlan], items: str = "") -> None:
    """Raise ``DefinitionError`` for a step whose longest key is longer than its service takes.

    ``items``: what the names of the steps get in the last item of the ``each`` around them.
    """
    for step in steps:
        policy, name = step.policy, step.name + items
        if policy is not None and policy.key_limit and not policy.key_form:
            length = longest_key(name, "undo" if policy.undoable else "do")
            if length > policy.key_limit:
                raise DefinitionError(
                    f"step {name} may get a key of {length} characters, and the service of {step.agent}.{step.action} takes "
                    f'{policy.key_limit}: declare the action with key="uuid", which has {length_of("uuid")}'
                )
        if step.body:
            check_key_lengths(step.body, f"{items}[{step.limit - 1}]")


def of_functions(verb: str) -> str:
    """Return how a workflow says ``verb``, ``mg.parallel`` or ``mg.first``, of parts with several steps."""
    return f"{'mg.branches' if verb == 'mg.parallel' else verb}(lambda: ..., lambda: ...)"


def check_part(segment: Sequence[Unit], lowest: int, verb: str) -> None:
    """Raise ``PromiseError`` if a part of a group needs another part, or contains a step that belongs to no
    part. ``verb``: ``mg.parallel`` or ``mg.first``.
    """
    needs = set(segment[-1].needs)
    for unit in reversed(segment[:-1]):
        if not unit.holds(needs):
            name = unit.heads[0].name
            raise PromiseError(
                f"{verb}: {name} was recorded between its steps, but none of them uses its result: call it before, or write "
                f"{of_functions(verb)}"
            )
        needs.update(unit.needs)
    if any(lowest <= serial < segment[0].first for serial in needs):
        result = segment[-1].result
        raise PromiseError(
            f"{verb}: {result.name if result else 'a step'} uses the result of another of its steps, so it must wait for it: "
            f"write them one after the other"
        )


def check_race_branch(steps: Sequence[StepDraft], where: str) -> None:
    """Raise ``DefinitionError`` for a branch of a ``first`` with a step that cannot lose."""
    for step in steps:
        if step.action is not None and step.action._policy.no_return:
            raise DefinitionError(
                f"mg.first in {where}: {step.action.address} is declared no_return=True, and a branch that loses is undone: call it "
                f"after mg.first, with its result"
            )
        if step.kind == "done":
            raise DefinitionError(
                f"mg.done in {where} would end the task while other branches of mg.first run: return the value from its branch"
            )
        check_race_branch(step.body, where)


def annotation_of(value: object) -> Any:
    """Return the annotation of the result of a branch or body."""
    if isinstance(value, Promise):
        return content_of(value).annotation
    if value is None:
        return NoneType
    has_type = isinstance(value, str | int | float | msgspec.Struct) or dataclasses.is_dataclass(value)
    return type(value) if has_type else Any


def either(one: Any, other: Any) -> Any:
    """Return the annotation of a value that is one or the other."""
    if one == other or other is Never:
        return one
    if one is Never:
        return other
    if NoneType in (one, other):
        rest = other if one is NoneType else one
        return Any if rest is Any else rest | None
    return Any
