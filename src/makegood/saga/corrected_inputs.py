"""A resubmission with corrected inputs: what an operator may replace, and when.

A key must never mean two things: a service that remembers the first answer would give it to the second
request. So only a step that begins a new round, or was never asked, gets other arguments. A step that is done
keeps what it did, and so does its undo; a step in doubt keeps its key and its arguments.

The workflow function made the arguments once, at the submission, and only an argument that *is* an input
still shows its origin, unless the input is ambiguous (``Ref``: "value"). So corrected inputs come with the
plan that the function makes of them (``Replanned``): it must have the same steps, and its arguments replace
the old ones. Without that plan,
corrected inputs are accepted only where nothing can have been made of them.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from makegood.errors import MissingValueError, PayloadError
from makegood.model.messages import TaskMessage
from makegood.model.plan import INPUTS, Condition, Ref, StepPlan, Template
from makegood.model.task import Step
from makegood.payload.codec import UNREADABLE, shallow
from makegood.saga import rules
from makegood.saga.control import Copier
from makegood.saga.decision_builder import NULL, DecisionBuilder

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.encode
_decode = msgspec.json.decode

CHECK = "name the code that plans again, --check APP (in Python: workflow=)"
"""What to do where the code is needed."""


class Replanned(msgspec.Struct, frozen=True, omit_defaults=True):
    """Corrected inputs, and the workflow function's plan for them: ``value`` of a resubmission, as JSON."""

    inputs: tuple[msgspec.Raw, ...]
    steps: tuple[StepPlan, ...]
    returns: Template


_decode_plan = msgspec.json.Decoder(Replanned).decode


def correct(work: DecisionBuilder, message: TaskMessage) -> str:
    """Replace inputs as a resubmission says. Returns "", or why it is refused; then nothing is changed."""
    value = message.value or b"null"
    try:
        shallow(value, "what was given", around=1)
    except PayloadError as deep:
        return str(deep)
    return _inputs(work, value) if message.idx < 0 else _arguments(work, work.find(message.idx), value)


def correction_text(change: bytes | None) -> str:
    """Describe a correction, for the answer to the command; "" without one."""
    if change is None:
        return ""
    unchanged_steps = [one["step"] for one in _decode(change).get("kept", ())]
    does = "keeps what it" if len(unchanged_steps) == 1 else "keep what they"
    return ", with corrected inputs" + (
        f"; {', '.join(unchanged_steps)} {does} did" if unchanged_steps else ""
    )


def next_round(plan: StepPlan) -> StepPlan:
    """Return a step's plan for its next round: with the arguments that were corrected while it was done."""
    return plan if plan.later is None else replace(plan, args=plan.later, later=None)


# -- of a step -----------------------------------------------------------------------------------------------


def _arguments(work: DecisionBuilder, step: Step | None, value: bytes) -> str:
    if step is None:
        return "the task has no such step"
    if rules.is_control(step.plan):
        return f"{step.name} is not an action: it takes no arguments"
    if refusal := _refusal(step):
        return refusal
    try:
        members = _members(value)
    except UNREADABLE:
        return f"the arguments of {step.name} are given by name: an object is expected"
    plan = next_round(step.plan)
    args = plan.args or Template(("{}",))
    names_and_values = _members(_text_with_marks(args, _mark(args.parts)).encode())
    if strange := [name for name in members if name not in names_and_values]:
        return f"{step.name} has no argument {strange[0]!r}; it has {', '.join(names_and_values) or 'none'}"
    corrected_step = replace(step, plan=replace(plan, args=merge_members(args, members)))
    work.change = _encode(
        {
            "step": step.name,
            "was": _current_arguments(work, plan),
            "now": _current_arguments(work, corrected_step.plan),
        }
    )
    _put(work, corrected_step)
    work.out.rewritten.append(step.plan.idx)
    return ""


def _refusal(step: Step) -> str:
    if rules.restarts(step) or step.state == "waiting":
        return ""
    if step.state == "done":
        return (
            f"{step.name} is done with what it was given: undo the task, then resubmit it with other inputs"
        )
    if step.state == "in_doubt":
        return f"{step.name} is in doubt and keeps its key, under which nothing else may be asked: settle it first"
    return f"{step.name} is {step.state}: it begins no new round"


def _put(work: DecisionBuilder, step: Step) -> None:
    """Write a step with other arguments.

    A step that was asked in this round, and certainly did nothing, begins a new one: the service may remember
    the request.
    """
    if step.state == "waiting" and step.attempt > 0:
        step = replace(step, round=step.round + 1, asked=step.attempt)
    work.put(step)


def merge_members(args: Template, members: Mapping[str, msgspec.Raw]) -> Template:
    """Return the template of an object with some of its members replaced.

    >>> merge_members(Template(('{"a":1,"b":', "}"), (Ref("step", 0),)), {"a": msgspec.Raw(b"2")}).parts
    ('{"a":2,"b":', '}')
    """
    mark = _mark([*args.parts, *(bytes(raw).decode() for raw in members.values())])
    whole = {**_members(_text_with_marks(args, mark).encode()), **members}
    text = ",".join(f"{_encode(name).decode()}:{bytes(raw).decode()}" for name, raw in whole.items())
    return _without_marks(f"{{{text}}}", mark, args.refs)


def _each_argument(args: Template) -> dict[str, Template]:
    """Return the template of each argument by its name; ``args`` is that of the object of all.

    >>> _each_argument(Template(('{"a":1,"b":', "}"), (Ref("step", 0),)))["b"].parts
    ('', '')
    """
    mark = _mark(args.parts)
    members = _members(_text_with_marks(args, mark).encode())
    return {name: _without_marks(bytes(raw).decode(), mark, args.refs) for name, raw in members.items()}


def _mark(texts: Sequence[str]) -> str:
    """Return a word that is in none of these texts, to mark the holes of a template."""
    mark = "hole "
    while any(mark in text for text in texts):
        mark = f"a {mark}"
    return mark


def _text_with_marks(args: Template, mark: str) -> str:
    pieces = [args.parts[0]]
    for n, part in enumerate(args.parts[1:]):
        pieces += [f'"{mark}{n}"', part]
    return "".join(pieces)


def _without_marks(text: str, mark: str, refs: Sequence[Ref]) -> Template:
    """Return the template of a text with marks in it."""
    pieces = re.split(f'"{mark}([0-9]+)"', text)
    return Template(tuple(pieces[::2]), tuple(refs[int(n)] for n in pieces[1::2]))


# -- of the task ---------------------------------------------------------------------------------------------


def _inputs(work: DecisionBuilder, value: bytes) -> str:
    try:
        new_plan = _decode_plan(value) if value.lstrip().startswith(b"{") else None
        new_inputs = tuple(bytes(raw) for raw in (_list(value) if new_plan is None else new_plan.inputs))
    except UNREADABLE:
        return "the inputs of a task are given in order: an array is expected"
    old_inputs = work.task.inputs
    if len(new_inputs) != len(old_inputs):
        return f"the task has {len(old_inputs)} inputs, not {len(new_inputs)}"
    differences = {
        n for n, (one, other) in enumerate(zip(old_inputs, new_inputs, strict=True)) if _differ(one, other)
    }
    if new_plan is None:
        if differences and (refusal := _unclear(work)):
            return refusal
        plans, returns = {step.plan.idx: next_round(step.plan) for step in work.steps()}, work.task.returns
    else:
        if refusal := _other_steps(work, new_plan):
            return refusal
        plans, returns = _plans(work, new_plan), new_plan.returns
    correction = _Correction(work, new_inputs, differences)
    for step in work.steps():
        correction.of(step, plans[step.plan.idx])
    ends = [
        _display_value(work, template, inputs)
        for template, inputs in ((work.task.returns, old_inputs), (returns, new_inputs))
    ]
    if correction.refusals:
        return "; ".join(correction.refusals)
    differs = ends[0][1] != ends[1][1] or _text(ends[0][0]) != _text(ends[1][0])
    if differences and not correction.steps and not differs:
        return correction.idle(has_plan=new_plan is not None)
    result = {"was": ends[0][0], "now": ends[1][0]} if differs else None
    _apply(work, correction, returns, result)
    return ""


def _differ(one: bytes, other: bytes) -> bool:
    return _text(_decode(one)) != _text(_decode(other))


def _text(value: Any) -> bytes:
    """Return the one JSON text of a value: to Python, 1 and true are equal."""
    return _encode(value, order="sorted")


class _Correction:
    """What other inputs mean for each step."""

    def __init__(self, work: DecisionBuilder, inputs: Sequence[bytes], differences: set[int]) -> None:
        self.work = work
        self.inputs = inputs
        self.differences = differences
        self.steps: list[dict[str, Any]] = []
        """For the audit: the steps that run with other arguments."""
        self.effects: list[dict[str, Any]] = []
        """For the audit: the steps that are done with their old arguments."""
        self.new_steps: list[tuple[Step, bool]] = []
        """The steps with a new plan, and whether each runs with other arguments."""
        self.refusals: list[str] = []
        """Why the correction is refused."""

    def of(self, step: Step, new: StepPlan) -> None:
        """Add a step's consequences; ``new`` is its plan with the corrected inputs."""
        work, old_inputs, old = self.work, self.work.task.inputs, step.plan
        plans = (old, new)
        if step.state == "done":  # the steps that an ``each`` made of its body are compared by themselves
            plans = (replace(old, body=()), replace(new, body=()))
        was, before = _values_to_compare(work, plans[0], old_inputs)
        now, after = _values_to_compare(work, plans[1], self.inputs)
        differs = before != after or _text(was) != _text(now)
        stays = step.state in ("done", "in_doubt") and not rules.is_control(old)
        if differs:
            entry = {"step": step.name, "was": was, "now": now}
            if step.state == "in_doubt":
                self.refusals.append(_refusal(step))
            (self.effects if step.state == "done" else self.steps).append(entry)
        plan = _with(old, new)
        if stays:
            args = _with_fixed_inputs(old.args, old_inputs, self.differences)
            plan = replace(plan, args=args, later=None if args == new.args else new.args)
        if plan != old:
            self.new_steps.append((replace(step, plan=plan), differs and not stays))

    def idle(self, *, has_plan: bool) -> str:
        """Say why inputs that change nothing are refused; ``planned``: the code planned with them, too."""
        if self.effects:
            names = ", ".join(one["step"] for one in self.effects)
            does = "is done with what it" if len(self.effects) == 1 else "are done with what they"
            was = "was" if len(self.effects) == 1 else "were"
            return (
                f"{names} {does} {was} given, and no other step takes those inputs: undo the task, then resubmit it with other "
                f"inputs"
            )
        if not has_plan:
            return (
                "no step takes those inputs as they are: what the workflow function made of them at the submission is part of the plan; "
                f"{CHECK}, or give one step other arguments (--step NAME)"
            )
        return (
            "with these inputs the workflow function plans what it planned before: resubmit the task without other inputs, or give "
            "one step other arguments (--step NAME)"
        )


def _apply(
    work: DecisionBuilder, correction: _Correction, returns: Template | None, result: Mapping[str, Any] | None
) -> None:
    change: dict[str, Any] = {
        "step": None,
        "was": _raws(work.task.inputs),
        "now": _raws(correction.inputs),
        "steps": correction.steps,
    }
    if work.task.names:
        change["names"] = work.task.names
    if correction.effects:
        change["kept"] = correction.effects
    if result is not None:
        change["result"] = result
    work.change = _encode(change)
    work.task = replace(work.task, inputs=tuple(correction.inputs), returns=returns)
    for step, asks in correction.new_steps:
        if asks:
            _put(work, step)
        else:
            work.put(step)
        work.out.rewritten.append(step.plan.idx)


def _raws(values: Sequence[bytes]) -> list[msgspec.Raw]:
    return [msgspec.Raw(value) for value in values]


def _with(old: StepPlan, new: StepPlan) -> StepPlan:
    """Return a step's plan with the values of another one of the same shape; its policy stays."""
    body = tuple(map(_with, old.body, new.body))
    return replace(
        old, args=new.args, condition=new.condition, sides=new.sides, body=body, later=None,
        limit=new.limit, step_limit=new.step_limit,
    )  # fmt: skip


def _with_fixed_inputs(
    template: Template | None, inputs: Sequence[bytes], differences: set[int]
) -> Template | None:
    """Return a template with the values of these inputs fixed: what was done with them is undone with
    them.
    """
    if template is None or not any(ref.of in INPUTS and ref.index in differences for ref in template.refs):
        return template
    parts, refs = [template.parts[0]], list[Ref]()
    for ref, part in zip(template.refs, template.parts[1:], strict=True):
        if ref.of in INPUTS and ref.index in differences:
            parts[-1] += inputs[ref.index].decode() + part
        else:
            refs.append(ref)
            parts.append(part)
    return Template(tuple(parts), tuple(refs))


# -- without the code ----------------------------------------------------------------------------------------


_MADE = "the workflow function may have made these of the inputs, and they would keep the old values"
_UNKNOWN = (
    "it is unknown whether the workflow function passed on an input here, another one that is equal, or a value of its own, as "
    "Python has one object for values such as 1, None or an enum member"
)


def _unclear(work: DecisionBuilder) -> str:
    """Say which steps may have got an argument elsewhere than from an input as it is; "" if none.

    A constant looks like a computed value, and a key like one that was looked up, so both count; so does the
    value of an ambiguous input. Steps that are done count too: they may be undone and run again.
    """
    reasons = [
        f"{reason}: {', '.join(names)}"
        for reason, is_unclear in ((_MADE, _is_computed), (_UNKNOWN, _is_ambiguous))
        if (names := _steps_where(work, is_unclear))
    ]
    return f"{'; '.join(reasons)}; {CHECK}, or give one step other arguments (--step NAME)" if reasons else ""


Unclear = Callable[[DecisionBuilder, StepPlan, Template], bool]
"""Whether a template of a step may hold a value that correcting the inputs would not reach, or wrongly so."""


def _steps_where(work: DecisionBuilder, is_unclear: Unclear) -> list[str]:
    """Return the steps with an unclear template, each with the names of the arguments, and "the result"."""
    steps = [
        f"{step.name}{names}"
        for step in work.steps()
        if (names := _arguments_where(work, step.plan, is_unclear)) is not None
    ]
    returns = work.task.returns
    if returns is not None and is_unclear(work, StepPlan(0, "merge"), returns):
        steps.append("the result")
    return steps


def _arguments_where(work: DecisionBuilder, plan: StepPlan, is_unclear: Unclear) -> str | None:
    """Return the unclear arguments of a step in brackets, "" for a control step; None if there are none."""
    if plan.kind == "action":
        args = next_round(plan).args or Template(("{}",))
        names = [name for name, template in _each_argument(args).items() if is_unclear(work, plan, template)]
        return f" ({', '.join(names)})" if names else None
    outer = any(is_unclear(work, plan, template) for template in _templates(replace(plan, body=())))
    return (
        ""
        if outer or any(_arguments_where(work, inner, is_unclear) is not None for inner in plan.body)
        else None
    )


def _is_computed(work: DecisionBuilder, plan: StepPlan, template: Template) -> bool:
    """Return whether a template is neither one whole input or result nor, outside of an action, the null of a
    function without ``return``.
    """
    if not template.refs:
        return plan.kind == "action" or template.parts != ("null",)
    (ref, *_), is_action = template.refs, plan.kind == "action"
    return template.parts != ("", "") or (ref.path != () and not (is_action and _is_item(work, plan, ref)))


def _is_ambiguous(work: DecisionBuilder, plan: StepPlan, template: Template) -> bool:  # noqa: ARG001 - one of two forms
    """Return whether a template takes the value of an input that may have come from elsewhere."""
    return any(ref.of == "value" for ref in template.refs)


def _is_item(work: DecisionBuilder, plan: StepPlan, ref: Ref) -> bool:
    """Whether a ref names an item of an ``each`` around the step, which its copies write as an element of a
    list.
    """
    while (owner := rules.owner(plan)) >= 0:
        if (ref.of, ref.index, ref.path) == ("step", owner, (plan.nth,)):
            return True
        plan = work.step(owner).plan
    return False


# -- with the plan that the code makes -----------------------------------------------------------------------


def _other_steps(work: DecisionBuilder, new_plan: Replanned) -> str:
    """Say where the plan's steps differ from the task's; "" if they are the same."""
    old = [step.plan for step in work.steps() if rules.owner(step.plan) < 0]
    pairs = zip(old, new_plan.steps, strict=False)
    at = next((n for n, (one, other) in enumerate(pairs) if not _is_alike(work.step(n), one, other)), None)
    if at is None and len(old) == len(new_plan.steps):
        return ""
    if at is None:
        at = min(len(old), len(new_plan.steps))
    is_, would = (_display_name(plans[at]) if at < len(plans) else "" for plans in (old, new_plan.steps))
    if not would:
        how = f"step {at + 1} of the task, {is_}, would not be there"
    elif not is_:
        how = f"there would be a further step {at + 1}, {would}"
    elif is_ == would:
        how = f"step {at + 1}, {is_}, would wait for other steps, or have other limits"
    else:
        how = f"step {at + 1} would be {would} instead of {is_}"
    undo = "" if work.task.state == "undone" else "undo this one, then "
    return f"with these inputs the workflow plans other steps, and a task keeps its steps: {how}; {undo}submit a new task under another key"


def _is_alike(step: Step, old: StepPlan, new: StepPlan) -> bool:
    """Return whether a step could have this plan. An ``each`` that begins again may have another limit."""
    return _shape(old) == _shape(new) and (old.limit == new.limit or rules.restarts(step))


def _shape(plan: StepPlan) -> tuple[Any, ...]:
    """Return all of a step's plan except its values, its limits, its name and its policy."""
    outside = (
        plan.kind,
        plan.agent,
        plan.action,
        plan.after,
        plan.guards,
        plan.branches,
        plan.of,
        plan.at_once,
    )
    return (*outside, tuple([(*_shape(inner), inner.limit) for inner in plan.body]))


def _display_name(plan: StepPlan) -> str:
    return f"{plan.name} ({plan.agent}.{plan.action})" if plan.kind == "action" else plan.name


def _plans(work: DecisionBuilder, new_plan: Replanned) -> dict[int, StepPlan]:
    """Return the plan of each step of the task: those of the items of an ``each`` are copies of its body."""
    plans: dict[int, StepPlan] = {}
    firsts: dict[tuple[int, int], int] = {}
    for step in work.steps():
        idx, nth, owner = step.plan.idx, step.plan.nth, rules.owner(step.plan)
        if owner < 0:
            plans[idx] = new_plan.steps[idx]
            continue
        first = firsts.setdefault((owner, nth), idx)
        body = plans[owner].body
        copier = Copier(owner, nth, range(first, first + len(body)))
        plans[idx] = copier.plan(body[idx - first], 0)
    return plans


# -- to look at ----------------------------------------------------------------------------------------------


def _templates(plan: StepPlan) -> Iterator[Template]:
    """Yield the templates of a step's plan."""
    if plan.args is not None:
        yield plan.args
    yield from plan.sides
    conditions: list[Condition] = [plan.condition] if plan.condition is not None else []
    while conditions:
        condition = conditions.pop()
        yield from (side for side in (condition.left, condition.right) if side is not None)
        conditions += condition.parts
    for inner in plan.body:
        yield from _templates(inner)


def _values_to_compare(work: DecisionBuilder, plan: StepPlan, inputs: Sequence[bytes]) -> tuple[Any, Any]:
    """Return a plan's values as people see them (an action's arguments by name), and what else distinguishes
    them.
    """
    pairs = [_display_value(work, template, inputs) for template in _templates(plan)]
    values = [value for value, _ in pairs]
    rest = [refs for _, refs in pairs], plan.condition and _operators(plan.condition)
    if plan.kind == "action":
        return (values[0] if values else {}), rest
    return values, rest


def _operators(condition: Condition) -> tuple[Any, ...]:
    return (condition.op, tuple(map(_operators, condition.parts)))


def _display_value(
    work: DecisionBuilder, template: Template | None, inputs: Sequence[bytes]
) -> tuple[Any, tuple[Ref, ...]]:
    """Return a value with its inputs filled in and its results named, and the refs to those results."""
    if template is None:
        return None, ()
    text, refs = template.parts[0], list[Ref]()
    for ref, part in zip(template.refs, template.parts[1:], strict=True):
        if ref.of in INPUTS and 0 <= ref.index < len(inputs):
            text += inputs[ref.index].decode() + part
        else:
            refs.append(ref)
            step = work.find(ref.index) if ref.of == "step" else None
            path = "".join(f".{key}" if isinstance(key, str) else f"[{key}]" for key in ref.path)
            what = (
                f"the result of {step.name}"
                if step is not None
                else "an item"
                if ref.of == "item"
                else "a result"
            )
            text += _encode(f"{what}{path}").decode() + part
    return _decode(text), tuple(refs)


def _current_arguments(work: DecisionBuilder, plan: StepPlan) -> msgspec.Raw:
    """Return arguments as they would be sent now; null if a value for them is missing."""
    try:
        return msgspec.Raw(work.arguments(plan))
    except (MissingValueError, PayloadError):
        return msgspec.Raw(NULL)
