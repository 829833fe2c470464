"""A resubmission with corrected inputs: what an operator may replace, and when.

A key must never mean two things: a service that remembers the first answer would give it to the second question. So only a step
that begins a new round, or has never been asked, may be given something else. What is done was done with what it was given;
what is in doubt keeps its key and its arguments.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from makegood.errors import MissingValueError
from makegood.messages import Message
from makegood.saga import rules
from makegood.saga.work import Work
from makegood.task import Condition, Step, StepPlan, Template

_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.encode


def correct(work: Work, message: Message) -> str:
    """Replace inputs as a resubmission says; returns why that is refused, "" when it is not. Nothing is changed then."""
    value = message.value or b"null"
    return _inputs(work, value) if message.idx < 0 else _arguments(work, work.find(message.idx), value)


# -- of a step ---------------------------------------------------------------------------------------------------------


def _arguments(work: Work, step: Step | None, value: bytes) -> str:
    if step is None:
        return "the task has no such step"
    if rules.is_control(step.plan):
        return f"{step.name} is no action: it takes no arguments"
    if barred := _barred(step):
        return barred
    try:
        members = _members(value)
    except msgspec.DecodeError:
        return f"the arguments of {step.name} are given by name: an object is expected"
    args = step.plan.args or Template(("{}",))
    known = _members(_marked(args, _mark(args.parts)).encode())
    if strange := [name for name in members if name not in known]:
        return f"{step.name} has no argument {strange[0]!r}; it has {', '.join(known) or 'none'}"
    made = replace(step, plan=replace(step.plan, args=merged(args, members)))
    _note(work, step.name, _filled(work, args), _filled(work, made.plan.args))
    _put(work, made)
    work.out.rewritten.append(step.plan.idx)
    return ""


def _barred(step: Step) -> str:
    if rules.begins_anew(step) or step.state == "waiting":
        return ""
    if step.state == "done":
        return (
            f"{step.name} is done with what it was given: undo the task, then resubmit it with other inputs"
        )
    if step.state == "in_doubt":
        return f"{step.name} is in doubt and keeps its key, under which nothing else may be asked: settle it first"
    return f"{step.name} is {step.state}: it begins no new round"


def _put(work: Work, step: Step) -> None:
    """Write a step with other arguments. One that was asked in this round, and certainly did nothing, begins a new one: the
    service may remember the question.
    """
    if step.state == "waiting" and step.attempt > 0:
        step = replace(step, round=step.round + 1, attempt=step.attempt, asked=step.attempt)
    work.put(step)


def merged(args: Template, members: Mapping[str, msgspec.Raw]) -> Template:
    """Return the template of an object with some of its members replaced.

    >>> merged(Template(('{"a":1,"b":', "}"), (Ref("step", 0),)), {"a": msgspec.Raw(b"2")}).parts
    ('{"a":2,"b":', '}')
    """
    mark = _mark([*args.parts, *(bytes(raw).decode() for raw in members.values())])
    whole = {**_members(_marked(args, mark).encode()), **members}
    text = ",".join(f"{_encode(name).decode()}:{bytes(raw).decode()}" for name, raw in whole.items())
    pieces = re.split(f'"{mark}([0-9]+)"', f"{{{text}}}")
    return Template(tuple(pieces[::2]), tuple(args.refs[int(n)] for n in pieces[1::2]))


def _mark(texts: Sequence[str]) -> str:
    """Return a word that is in none of these texts, to stand for the holes of a template."""
    mark = "hole "
    while any(mark in text for text in texts):
        mark = f"a {mark}"
    return mark


def _marked(args: Template, mark: str) -> str:
    pieces = [args.parts[0]]
    for n, part in enumerate(args.parts[1:]):
        pieces += [f'"{mark}{n}"', part]
    return "".join(pieces)


# -- of the task -------------------------------------------------------------------------------------------------------


def _inputs(work: Work, value: bytes) -> str:
    try:
        given = tuple(bytes(raw) for raw in _list(value))
    except msgspec.DecodeError:
        return "the inputs of a task are given in order: an array is expected"
    known = work.task.inputs
    if len(given) != len(known):
        return f"the task has {len(known)} inputs, not {len(given)}"
    changed = {n for n, (one, other) in enumerate(zip(known, given, strict=True)) if _differ(one, other)}
    concerned = [step for step in work.steps() if changed & set(_inputs_of(step.plan))]
    if changed and not concerned:
        return (
            "no step takes those inputs as they are: what the workflow function made of them at the submission is part of the "
            "plan; correct the arguments of a step"
        )
    barred = [why for step in concerned if step.state != "skipped" and (why := _barred(step))]
    if barred:
        return "; ".join(barred)
    _note(work, None, _array(known), _array(given))
    work.task = replace(work.task, inputs=given)
    for step in concerned:
        _put(work, step)
    return ""


def _differ(one: bytes, other: bytes) -> bool:
    return bool(msgspec.json.decode(one) != msgspec.json.decode(other))


def _array(values: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"


def _inputs_of(plan: StepPlan) -> Iterator[int]:
    """Yield the positions of the workflow's inputs that a step takes as they are."""
    templates = [plan.args, *plan.sides]
    conditions: list[Condition] = [plan.condition] if plan.condition is not None else []
    while conditions:
        condition = conditions.pop()
        templates += [condition.left, condition.right]
        conditions += condition.parts
    for template in templates:
        for ref in template.refs if template is not None else ():
            if ref.of == "input":
                yield ref.index
    for inner in plan.body:
        yield from _inputs_of(inner)


# -- for the audit -----------------------------------------------------------------------------------------------------


def _note(work: Work, step: str | None, was: bytes, now: bytes) -> None:
    work.change = _encode({"step": step, "was": msgspec.Raw(was), "now": msgspec.Raw(now)})


def _filled(work: Work, args: Template | None) -> bytes:
    """Return arguments as they would be sent now; null when what they are made of is not there."""
    try:
        return work.fill(args)
    except MissingValueError:
        return b"null"
