"""Control steps: ``when``, ``merge``, ``each`` and ``gather`` are data in the plan; the rules do them once
they are ready. (Of a ``first``, see ``races``.)

``each`` makes steps: one copy of its body per item of a list that is known only at run time. It may be
decided again, by a resubmission that reruns the steps before it: then items keep their rows and indices,
surplus ones are skipped, new ones added. The owner of a row is never stored: a copy's step knows its ``each``
(``rules.owner``) and its item (``nth``), and within an item rows follow the body in order of index.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from makegood.base import sizes
from makegood.base.service_keys import MOST_STEPS
from makegood.errors import MissingValueError
from makegood.model.plan import INPUTS, Condition, Ref, StepPlan, Template, inside, place
from makegood.model.task import Step
from makegood.payload import codec, splice
from makegood.saga import rules
from makegood.saga.decision_builder import NULL, DecisionBuilder
from makegood.saga.held import predecessors

TRUE, FALSE = b"true", b"false"

NEAR = 0.8
"""The share of the app's limit of steps from which there is an alert."""


def not_taken(work: DecisionBuilder, plan: StepPlan) -> bool:
    """Whether a step is skipped: a ``when`` that guards it went the other way, or what it is part of was
    skipped.
    """
    for when, side in plan.guards:
        decision = work.step(when)
        if decision.state == "skipped" or (decision.result == TRUE) is not side:
            return True
    return any(of >= 0 and work.step(of).state == "skipped" for of in (plan.of, plan.item_of))


def decide(work: DecisionBuilder, step: Step) -> bytes:
    """Return the result of a control step whose predecessors have passed; raises ``MissingValueError``."""
    plan = step.plan
    if plan.kind == "when":
        if plan.condition is None:
            raise MissingValueError("the condition is missing from the plan")
        return TRUE if holds(work, plan.condition, plan.payload_limit) else FALSE
    if plan.kind == "merge":
        side = 0 if work.step(plan.of).result == TRUE else 1
        return work.fill(plan.sides[side], plan.payload_limit) if side < len(plan.sides) else NULL
    return _each(work, step) if plan.kind == "each" else _gather(work, plan)


def holds(work: DecisionBuilder, condition: Condition, limit: int = sizes.PAYLOAD_LIMIT) -> bool:
    """Return whether a condition holds; raises ``MissingValueError``. ``limit``: of one payload, in bytes."""
    if condition.op == "all":
        return all(holds(work, part, limit) for part in condition.parts)
    if condition.op == "any":
        return any(holds(work, part, limit) for part in condition.parts)
    if condition.op == "not":
        return not any(holds(work, part, limit) for part in condition.parts)
    left = _value(work, condition.left, limit)
    if condition.op == "true":
        return left is True
    return (left == _value(work, condition.right, limit)) is (condition.op == "eq")


def _value(work: DecisionBuilder, template: Template | None, limit: int) -> object:
    if template is None:
        raise MissingValueError("a side of the condition is missing from the plan")
    body = work.fill(template, limit)
    try:
        return msgspec.json.decode(body)
    except codec.UNREADABLE as unreadable:
        raise MissingValueError(f"a side of the condition is not JSON: {unreadable}") from None


# -- each and gather -----------------------------------------------------------------------------------------


def items_of(work: DecisionBuilder, each: int) -> list[list[int]]:
    """Return the steps of each item that has rows, in order of the body."""
    items: list[list[int]] = []
    for idx in sorted(work.followers(each)):
        plan = work.step(idx).plan
        if rules.owner(plan) != each:
            continue
        while len(items) <= plan.nth:
            items.append([])
        items[plan.nth].append(idx)
    return items


def excess(work: DecisionBuilder, plan: StepPlan) -> str:
    """Return why an ``each`` may not make its items, "" if it may; raises ``MissingValueError``."""
    count, size = _sizes(work, plan)
    if count > plan.limit:
        return f"the list has {count} items, the limit is {plan.limit}: raise mg.each(limit=...)"
    limit = plan.step_limit or MOST_STEPS
    if size > limit:
        return f"with {count} items the task would have {size:,} steps, the limit is {limit:,}: raise App(step_limit=...)"
    return ""


def nearness(work: DecisionBuilder, plan: StepPlan) -> str:
    """Return how near to the app's limit of steps the items of an ``each`` bring the task, "" if not near."""
    _, size = _sizes(work, plan)
    near = plan.step_limit * NEAR
    if not plan.step_limit or size <= near or work.size() > near:
        return ""
    return f"with the items of {plan.name} the task has {size:,} steps, and App(step_limit=...) is {plan.step_limit:,}"


def _sizes(work: DecisionBuilder, plan: StepPlan) -> tuple[int, int]:
    """Return how many items an ``each`` has, and how many steps the task would have with them."""
    count = len(splice.elements(_list(work, plan)))
    return count, work.size() + max(0, count - len(items_of(work, plan.idx))) * len(plan.body)


def _list(work: DecisionBuilder, plan: StepPlan) -> bytes:
    return NULL if plan.args is None else work.fill(plan.args, plan.payload_limit)


def _each(work: DecisionBuilder, step: Step) -> bytes:
    plan = step.plan
    items_json = _list(work, plan)
    count = len(splice.elements(items_json))
    items = items_of(work, plan.idx)
    for surplus in items[count:]:
        for idx in surplus:
            if work.step(idx).state == "waiting":
                work.move(work.step(idx), "skipped", "item_gone")
    if plan.body:
        gather = next((f for f in work.followers(plan.idx) if _gathers(work.step(f).plan, plan.idx)), -1)
        for nth in range(len(items), count):
            items.append(_add_item(work, plan, nth, items))
            for idx in items[nth] if gather >= 0 else ():
                work.link(idx, gather)
    return items_json


def _gathers(plan: StepPlan, each: int) -> bool:
    return plan.kind == "gather" and plan.of == each


def _add_item(work: DecisionBuilder, each: StepPlan, nth: int, items: Sequence[list[int]]) -> list[int]:
    """Add one item's copy of the body; returns its steps' indices."""
    first = work.size()
    copier = Copier(each.idx, nth, range(first, first + len(each.body)))
    window: tuple[int, ...] = ()
    if each.at_once and nth >= each.at_once:
        window = tuple(items[nth - each.at_once][n] for n in _lasts(each.body))
    for idx, template in zip(copier.indices, each.body, strict=True):
        plan = copier.plan(template, 0)
        first_of_item = not any(i < 0 for i in _before_in_body(template))
        owner = {"item_of": each.idx} if _uses_of(template) else {"of": each.idx}
        after = (*plan.after, *window) if first_of_item else plan.after
        plan = replace(plan, idx=idx, nth=nth, after=after, **owner)
        work.add(plan, predecessors(plan))
    return list(copier.indices)


def _uses_of(plan: StepPlan) -> bool:
    return plan.kind in ("merge", "gather")


def _before_in_body(template: StepPlan) -> Sequence[int]:
    """Return a body step's predecessors as the template writes them: those below 0 are steps of the same
    body.
    """
    indices = (*template.after, *(when for when, _ in template.guards))
    return (*indices, template.of) if _uses_of(template) else indices


def _lasts(body: Sequence[StepPlan]) -> list[int]:
    """Return the positions of a body's last steps: those that no other step of it waits for."""
    predecessors = {i for template in body for i in _before_in_body(template)}
    return [n for n in range(len(body)) if inside(n) not in predecessors]


class Copier:
    """Turns the template steps of a body into steps of item ``nth``, whose indices are ``indices``.

    ``depth``: the number of bodies of nested ``each`` between the body that is copied and the part being
    copied.
    """

    def __init__(self, each: int, nth: int, indices: range) -> None:
        self.each = each
        self.nth = nth
        self.indices = indices

    def plan(self, template: StepPlan, depth: int) -> StepPlan:
        """Return a copy of a body step, with the item's names and indices."""
        # A gather's value is put together inside the body of its each, one body further in than the gather
        # itself.
        scope = depth + 1 if template.kind == "gather" else depth
        return replace(
            template,
            name=f"{template.name}[{self.nth}]",
            args=template.args and self.template(template.args, depth),
            after=tuple(self.index(i, depth) for i in template.after),
            branches=tuple(self.index(i, depth) for i in template.branches),
            guards=tuple((self.index(i, depth), side) for i, side in template.guards),
            condition=template.condition and self.condition(template.condition, depth),
            sides=tuple(self.template(side, scope) for side in template.sides),
            body=tuple(self.plan(inner, depth + 1) for inner in template.body),
            of=self.index(template.of, depth) if _uses_of(template) else template.of,
        )

    def index(self, index: int, depth: int) -> int:
        """Return the item's step for an index of the copied body; any other index is returned unchanged."""
        if index >= 0:
            return index
        position, level = place(index)
        return self.indices[position] if level == depth else index

    def ref(self, ref: Ref, depth: int) -> Ref:
        """Return a ref with its index translated; the item itself becomes part of the result of the
        ``each``.
        """
        if ref.of == "item" and ref.index == self.each:
            return Ref("step", self.each, (self.nth, *ref.path))
        return ref if ref.of in INPUTS else replace(ref, index=self.index(ref.index, depth))

    def template(self, template: Template, depth: int) -> Template:
        """Return a template with its refs translated."""
        if not template.refs:
            return template
        return replace(template, refs=tuple(self.ref(ref, depth) for ref in template.refs))

    def condition(self, condition: Condition, depth: int) -> Condition:
        """Return a condition with the refs of both sides translated."""
        return replace(
            condition,
            left=condition.left and self.template(condition.left, depth),
            right=condition.right and self.template(condition.right, depth),
            parts=tuple(self.condition(part, depth) for part in condition.parts),
        )


def _gather(work: DecisionBuilder, plan: StepPlan) -> bytes:
    """Return the list of the items' values."""
    elements = splice.elements(work.step(plan.of).result or NULL)
    if not plan.sides:
        return b"[" + b",".join(NULL for _ in elements) + b"]"
    items = items_of(work, plan.of)
    values: list[bytes] = []
    size = 0
    for nth, value in enumerate(elements):
        rows = items[nth] if nth < len(items) else []

        def lookup(ref: Ref, value: bytes = value, rows: Sequence[int] = rows) -> bytes:
            if ref.of == "item" and ref.index == plan.of:
                return value
            if ref.of == "step" and ref.index < 0 and place(ref.index)[0] < len(rows):
                return work.step(rows[place(ref.index)[0]]).result or NULL
            return work.lookup(ref)

        values += b",", splice.fill(plan.sides[0], lookup, limit=plan.payload_limit)
        if (size := size + len(values[-1])) > plan.payload_limit * splice.PLAN_PAYLOADS:
            break  # too large already: joining reports it
    return splice.join_pieces([b"[", *values[1:], b"]"], plan.payload_limit)
