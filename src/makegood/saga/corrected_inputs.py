"""A resubmission with corrected inputs: what an operator may replace, and when.

A key must never mean two things: a service that remembers the first answer would give it to the second
request. So only a step that begins a new round, or was never asked, gets other arguments. A step that is done
keeps what it did, and so does its undo; a step in doubt keeps its key and its arguments.

The workflow function made the arguments once, at the submission, and only an argument that *is* an input
still shows its origin. So corrected inputs come with the plan that the function makes of them
(``Replanned``): it must have the same steps, and its arguments replace the old ones. Without that plan,
corrected inputs are accepted only where nothing can have been made of them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from makegood.errors import MissingValueError, PayloadError
from makegood.model.messages import TaskMessage
from makegood.model.plan import Condition, Ref, StepPlan, Template
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


_replanned = msgspec.json.Decoder(Replanned).decode


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
    kept = [one["step"] for one in _decode(change).get("kept", ())]
    does = "keeps what it" if len(kept) == 1 else "keep what they"
    return ", with corrected inputs" + (f"; {', '.join(kept)} {does} did" if kept else "")


def next_round(plan: StepPlan) -> StepPlan:
    """Return a step's plan for its next round: with the arguments that were corrected while it was done."""
    return plan if plan.later is None else replace(plan, args=plan.later, later=None)


# -- of a step -----------------------------------------------------------------------------------------------


def _arguments(work: DecisionBuilder, step: Step | None, value: bytes) -> str:
    if step is None:
        return "the task has no such step"
    if rules.is_control(step.plan):
        return f"{step.name} is not an action: it takes no arguments"
    if barred := _refusal(step):
        return barred
    try:
        members = _members(value)
    except UNREADABLE:
        return f"the arguments of {step.name} are given by name: an object is expected"
    plan = next_round(step.plan)
    args = plan.args or Template(("{}",))
    known = _members(_text_with_marks(args, _mark(args.parts)).encode())
    if strange := [name for name in members if name not in known]:
        return f"{step.name} has no argument {strange[0]!r}; it has {', '.join(known) or 'none'}"
    made = replace(step, plan=replace(plan, args=merged(args, members)))
    work.change = _encode(
        {"step": step.name, "was": _current_arguments(work, plan), "now": _current_arguments(work, made.plan)}
    )
    _put(work, made)
    work.out.rewritten.append(step.plan.idx)
    return ""


def _refusal(step: Step) -> str:
    if rules.begins_anew(step) or step.state == "waiting":
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


def merged(args: Template, members: Mapping[str, msgspec.Raw]) -> Template:
    """Return the template of an object with some of its members replaced.

    >>> merged(Template(('{"a":1,"b":', "}"), (Ref("step", 0),)), {"a": msgspec.Raw(b"2")}).parts
    ('{"a":2,"b":', '}')
    """
    mark = _mark([*args.parts, *(bytes(raw).decode() for raw in members.values())])
    whole = {**_members(_text_with_marks(args, mark).encode()), **members}
    text = ",".join(f"{_encode(name).decode()}:{bytes(raw).decode()}" for name, raw in whole.items())
    pieces = re.split(f'"{mark}([0-9]+)"', f"{{{text}}}")
    return Template(tuple(pieces[::2]), tuple(args.refs[int(n)] for n in pieces[1::2]))


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


# -- of the task ---------------------------------------------------------------------------------------------


def _inputs(work: DecisionBuilder, value: bytes) -> str:
    try:
        made = _replanned(value) if value.lstrip().startswith(b"{") else None
        given = tuple(bytes(raw) for raw in (_list(value) if made is None else made.inputs))
    except UNREADABLE:
        return "the inputs of a task are given in order: an array is expected"
    known = work.task.inputs
    if len(given) != len(known):
        return f"the task has {len(known)} inputs, not {len(given)}"
    changed = {n for n, (one, other) in enumerate(zip(known, given, strict=True)) if _differ(one, other)}
    if made is None:
        if changed and (refused := _unclear(work)):
            return refused
        plans, returns = {step.plan.idx: next_round(step.plan) for step in work.steps()}, work.task.returns
    else:
        if refused := _other_steps(work, made):
            return refused
        plans, returns = _plans(work, made), made.returns
    correction = _Correction(work, given, changed)
    for step in work.steps():
        correction.of(step, plans[step.plan.idx])
    ends = [
        _display_value(work, template, inputs)
        for template, inputs in ((work.task.returns, known), (returns, given))
    ]
    if correction.barred:
        return "; ".join(correction.barred)
    differs = ends[0][1] != ends[1][1] or _text(ends[0][0]) != _text(ends[1][0])
    if changed and not correction.steps and not differs:
        return correction.idle(planned=made is not None)
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

    def __init__(self, work: DecisionBuilder, given: Sequence[bytes], changed: set[int]) -> None:
        self.work = work
        self.given = given
        self.changed = changed
        self.steps: list[dict[str, Any]] = []
        """For the audit: the steps that run with other arguments."""
        self.kept: list[dict[str, Any]] = []
        """For the audit: the steps that are done with their old arguments."""
        self.made: list[tuple[Step, bool]] = []
        """The steps with a new plan, and whether each runs with other arguments."""
        self.barred: list[str] = []
        """Why the correction is refused."""

    def of(self, step: Step, new: StepPlan) -> None:
        """Add a step's consequences; ``new`` is its plan with the corrected inputs."""
        work, known, old = self.work, self.work.task.inputs, step.plan
        plans = (old, new)
        if step.state == "done":  # the steps that an ``each`` made of its body are compared by themselves
            plans = (replace(old, body=()), replace(new, body=()))
        was, before = _compared_values(work, plans[0], known)
        now, after = _compared_values(work, plans[1], self.given)
        differs = before != after or _text(was) != _text(now)
        stays = step.state in ("done", "in_doubt") and not rules.is_control(old)
        if differs:
            entry = {"step": step.name, "was": was, "now": now}
            if step.state == "in_doubt":
                self.barred.append(_refusal(step))
            (self.kept if step.state == "done" else self.steps).append(entry)
        plan = _with(old, new)
        if stays:
            args = _with_fixed_inputs(old.args, known, self.changed)
            plan = replace(plan, args=args, later=None if args == new.args else new.args)
        if plan != old:
            self.made.append((replace(step, plan=plan), differs and not stays))

    def idle(self, *, planned: bool) -> str:
        """Say why inputs that change nothing are refused; ``planned``: the code planned with them, too."""
        if self.kept:
            names = ", ".join(one["step"] for one in self.kept)
            does = "is done with what it" if len(self.kept) == 1 else "are done with what they"
            was = "was" if len(self.kept) == 1 else "were"
            return (
                f"{names} {does} {was} given, and no other step takes those inputs: undo the task, then resubmit it with other "
                f"inputs"
            )
        if not planned:
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
    made: dict[str, Any] = {
        "step": None,
        "was": _raws(work.task.inputs),
        "now": _raws(correction.given),
        "steps": correction.steps,
    }
    if correction.kept:
        made["kept"] = correction.kept
    if result is not None:
        made["result"] = result
    work.change = _encode(made)
    work.task = replace(work.task, inputs=tuple(correction.given), returns=returns)
    for step, asks in correction.made:
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
    return replace(old, args=new.args, condition=new.condition, sides=new.sides, body=body, later=None)


def _with_fixed_inputs(
    template: Template | None, inputs: Sequence[bytes], changed: set[int]
) -> Template | None:
    """Return a template with the values of these inputs fixed: what was done with them is undone with
    them.
    """
    if template is None or not any(ref.of == "input" and ref.index in changed for ref in template.refs):
        return template
    parts, refs = [template.parts[0]], list[Ref]()
    for ref, part in zip(template.refs, template.parts[1:], strict=True):
        if ref.of == "input" and ref.index in changed:
            parts[-1] += inputs[ref.index].decode() + part
        else:
            refs.append(ref)
            parts.append(part)
    return Template(tuple(parts), tuple(refs))


# -- without the code ----------------------------------------------------------------------------------------


def _unclear(work: DecisionBuilder) -> str:
    """Say which steps have arguments that may have been made of the inputs; "" if none.

    A constant looks like a computed value, and a key like one that was looked up, so both count. Steps that
    are done count too: they may be undone and run again.
    """
    found = [
        f"{step.name}{names}"
        for step in work.steps()
        if (names := _made_by_hand(work, step.plan)) is not None
    ]
    returns = work.task.returns
    if returns is not None and not _is_whole(returns):
        found.append("the result")
    if not found:
        return ""
    return (
        f"the workflow function may have made these of the inputs, and they would keep the old values: {', '.join(found)}; {CHECK}, or "
        f"give one step other arguments (--step NAME)"
    )


def _made_by_hand(work: DecisionBuilder, plan: StepPlan) -> str | None:
    """Return the arguments of a step that are neither an input nor a result, in brackets; None if there are
    none.
    """
    if plan.kind == "action":
        plan = next_round(plan)
        args = plan.args or Template(("{}",))
        mark = _mark(args.parts)
        whole = {
            f'"{mark}{n}"' for n, ref in enumerate(args.refs) if not ref.path or _is_item(work, plan, ref)
        }
        members = _members(_text_with_marks(args, mark).encode())
        names = [name for name, raw in members.items() if bytes(raw).decode() not in whole]
        return f" ({', '.join(names)})" if names else None
    if plan.body and any(_made_by_hand(work, inner) is not None for inner in plan.body):
        return ""
    outer = replace(plan, body=())
    return None if all(map(_is_whole, _templates(outer))) else ""


def _is_item(work: DecisionBuilder, plan: StepPlan, ref: Ref) -> bool:
    """Whether a ref names an item of an ``each`` around the step, which its copies write as an element of a
    list.
    """
    while (owner := rules.owner(plan)) >= 0:
        if (ref.of, ref.index, ref.path) == ("step", owner, (plan.nth,)):
            return True
        plan = work.step(owner).plan
    return False


def _is_whole(template: Template) -> bool:
    """Whether a template is one whole input or result, or the null of a function without ``return``."""
    if not template.refs:
        return template.parts == ("null",)
    return template.parts == ("", "") and not template.refs[0].path


# -- with the plan that the code makes -----------------------------------------------------------------------


def _other_steps(work: DecisionBuilder, made: Replanned) -> str:
    """Say where the plan's steps differ from the task's; "" if they are the same."""
    old = [step.plan for step in work.steps() if rules.owner(step.plan) < 0]
    pairs = zip(old, made.steps, strict=False)
    at = next((n for n, (one, other) in enumerate(pairs) if _shape(one) != _shape(other)), None)
    if at is None and len(old) == len(made.steps):
        return ""
    if at is None:
        at = min(len(old), len(made.steps))
    is_, would = (_display_name(plans[at]) if at < len(plans) else "" for plans in (old, made.steps))
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


def _shape(plan: StepPlan) -> tuple[Any, ...]:
    """Return all of a step's plan except its values, its name and its policy."""
    outside = (plan.kind, plan.agent, plan.action, plan.after, plan.guards, plan.of, plan.limit, plan.at_once)
    return (*outside, tuple(map(_shape, plan.body)))


def _display_name(plan: StepPlan) -> str:
    return f"{plan.name} ({plan.agent}.{plan.action})" if plan.kind == "action" else plan.name


def _plans(work: DecisionBuilder, made: Replanned) -> dict[int, StepPlan]:
    """Return the plan of each step of the task: those of the items of an ``each`` are copies of its body."""
    found: dict[int, StepPlan] = {}
    firsts: dict[tuple[int, int], int] = {}
    for step in work.steps():
        idx, nth, owner = step.plan.idx, step.plan.nth, rules.owner(step.plan)
        if owner < 0:
            found[idx] = made.steps[idx]
            continue
        first = firsts.setdefault((owner, nth), idx)
        body = found[owner].body
        copier = Copier(owner, nth, range(first, first + len(body)))
        found[idx] = copier.plan(body[idx - first], 0)
    return found


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


def _compared_values(work: DecisionBuilder, plan: StepPlan, inputs: Sequence[bytes]) -> tuple[Any, Any]:
    """Return a plan's values as people see them (an action's arguments by name), and what else distinguishes
    them.
    """
    shown = [_display_value(work, template, inputs) for template in _templates(plan)]
    seen = [value for value, _ in shown]
    rest = [refs for _, refs in shown], plan.condition and _operators(plan.condition)
    if plan.kind == "action":
        return (seen[0] if seen else {}), rest
    return seen, rest


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
        if ref.of == "input" and 0 <= ref.index < len(inputs):
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
