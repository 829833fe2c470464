"""The fast path: one step is done, and the steps that waited only for it are dispatched.

Nearly every message is of this kind, and folding it like all others costs several times as much. This path
decides nothing differently from ``decisions``, and leaves everything unusual to it. The tests let both
decide, in every world that they run, and compare.

Tasks of one shape take this path alike, step by step. What is the same in all of them is worked out once for
each step, as a *stride*, and shared: the records of steps that were just dispatched, moves, the fields of
requests, the texts of arguments. A task takes a stride if its records are those that the stride begins with.
Shared objects also help the stores find what is alike in a batch.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import astuple, replace

from makegood.errors import MissingValueError
from makegood.model.decision import Decision, Move
from makegood.model.messages import Request, TaskMessage
from makegood.model.plan import Ref, StepPlan
from makegood.model.shape import HeldTask, ShapeRequest, ShapeStep
from makegood.model.task import Step, TaskRecord
from makegood.payload import splice
from makegood.saga import rules

_NULL, _EMPTY = b"null", b"{}"
_MOST = 100  # steps of a task: nothing is remembered of larger ones
SHAPES = 100
"""Shapes that are remembered."""
_BULKY = 64 * 1024
"""A shape is not remembered if its steps' arguments have more bytes than this."""
_UP_TO_RESULT = Step.__struct_fields__.index("result")
_ENDED: Move = ("task", "processing", "processed", "every step done or skipped")


def straight(held: HeldTask, message: TaskMessage) -> Decision | None:
    """Return what follows from an action's result; None if it is more than the next steps or the task's
    end.
    """
    strides = held.strides
    if strides is not None and message.kind == "done":
        stride = strides.get(message.idx)
        if stride is None:
            stride = _stride(held, message.idx, strides)
        if stride is not None and (decision := _take_stride(held, message, stride)) is not None:
            return decision
    return _decide_alone(held, message)


def _decide_alone(held: HeldTask, message: TaskMessage) -> Decision | None:
    """Return what follows in a task that shares no strides with others."""
    task, idx = held.task, message.idx
    if message.kind != "done" or message.doing != "do" or not 0 <= idx < len(held.steps):
        return None
    if task.state != "processing" or task.goal != "forward" or task.reply is not None:
        return None
    step = held.steps[idx]
    if (
        step.state != "running"
        or step.plan.kind != "action"
        or step.again
        or step.waiting
        or not rules.current(step, message)
    ):
        return None
    result = message.value or _NULL
    done = replace(step, state="done", doing=None, result=result, doubt=False, final=False, error=None)
    moves: list[Move] = [_done_move(step)]
    steps = {idx: done}
    requests: list[Request] = []
    values = _values(task, held.steps, idx, result)
    try:
        for follower in held.followers[idx]:
            if held.open[follower] == 1:
                following = held.steps[follower]
                if not _plain(following):
                    return None
                steps[follower] = _begin(task, following, values, moves, requests)
        if held.left == 1:
            task = _ended_task(task, values)
            moves.append(_ENDED)
    except MissingValueError:
        return None
    return Decision(
        held.task, task, steps, consumed=[(idx, message.attempt)], requests=requests, moves=moves,
        seqs=[message.seq] if message.seq else [], release=held.left == 1,
    )  # fmt: skip


def _done_move(step: Step) -> Move:
    return (step.plan.name, "running", "done", "reply")


def _begin_moves(name: str) -> tuple[Move, Move]:
    return (name, "waiting", "ready", "predecessors done or skipped"), (
        name,
        "ready",
        "running",
        "dispatched",
    )


def _plain(step: Step) -> bool:
    """Return whether a step whose predecessors have passed is an action without any reply, failure or doubt
    in this round.
    """
    plan = step.plan
    return (
        plan.kind == "action"
        and step.state == "waiting"
        and not (plan.guards or step.doubt or step.deaths or step.waiting)
        and plan.of < 0
        and plan.item_of < 0
    )


def _begin(
    task: TaskRecord, step: Step, values: Callable[[Ref], bytes], moves: list[Move], requests: list[Request]
) -> Step:
    """Dispatch a step: add its moves and its request, and return the running step."""
    plan = step.plan
    moves += _begin_moves(plan.name)
    args = _EMPTY
    if plan.args is not None:
        filled = splice.fill(plan.args, values, limit=plan.payload_limit)
        args = splice.arguments((filled,), plan.payload_limit)
    requests.append(_request(task, _fields(task, step), args))
    return _running(step)


def _running(step: Step) -> Step:
    return replace(step, state="running", doing="do", attempt=step.attempt + 1)


def _fields(task: TaskRecord, step: Step) -> tuple[Any, ...]:
    """Return the fields of a step's request from ``idx`` to ``within``."""
    plan = step.plan
    within = (plan.policy or rules.PLAIN).within
    return (
        plan.idx,
        "do",
        step.attempt + 1,
        task.app,
        plan.agent,
        plan.action,
        plan.name,
        step.round,
        within,
    )


def _request(task: TaskRecord, fields: tuple[Any, ...], args: bytes) -> Request:
    rest = (args, task.priority, False, None, None, False, task.trace)
    return Request(task.id, *fields, *rest)  # type: ignore[call-arg]  # the type checker cannot count them


def _ended_task(task: TaskRecord, values: Callable[[Ref], bytes]) -> TaskRecord:
    """Return a task whose steps have all passed."""
    result = _NULL if task.returns is None else splice.fill(task.returns, values)
    return replace(task, result=result, state="processed")


def _values(task: TaskRecord, steps: Sequence[Step], idx: int, result: bytes) -> Callable[[Ref], bytes]:
    """Return the lookup of inputs and results, with that of the step just done; it raises
    ``MissingValueError``.
    """

    def value(ref: Ref) -> bytes:
        index = ref.index
        if ref.of == "step":
            if index == idx:
                return result
            if 0 <= index < len(steps):
                return steps[index].result or _NULL
        elif ref.of == "input" and 0 <= index < len(task.inputs):
            return task.inputs[index]
        raise MissingValueError(f"there is no {ref.of} {index}")

    return value


# -- strides -------------------------------------------------------------------------------------------------


class Shapes:
    """Recognises tasks of one shape among those read from a store: one app, steps declared by the same
    records.

    (Both stores read equal declarations as one record.) Remembers the strides of the last hundred shapes that
    came twice.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, tuple[int, ...]], tuple[Sequence[StepPlan], dict[int, ShapeStep]]]
        self._known = OrderedDict()

    def share(self, held: HeldTask) -> None:
        """Let a task share its strides with earlier tasks of its shape."""
        if len(held.steps) > _MOST or any(step.plan.kind != "action" for step in held.steps):
            return
        key = (held.task.app, tuple([id(step.plan) for step in held.steps]))
        known = self._known.get(key)
        if known is None:  # perhaps the only one: remember nothing until a second one comes
            plans = [step.plan for step in held.steps]
            if bulky(plans):
                return
            self._known[key] = (plans, {})  # keeps the records alive, so that no other gets their ids
            if len(self._known) > SHAPES:
                self._known.popitem(last=False)
            return
        _, held.strides = known


def bulky(plans: Sequence[StepPlan]) -> bool:
    """Return whether the texts of steps are too large to be kept for tasks that may never come."""
    return sum([sum(map(len, plan.args.parts)) for plan in plans if plan.args is not None]) > _BULKY


def _stride(held: HeldTask, idx: int, strides: dict[int, ShapeStep]) -> ShapeStep | None:
    """Work out and keep what follows if this step is done in tasks of its shape; None if it is not a plain
    case.
    """
    if not 0 <= idx < len(held.steps) <= _MOST:
        return None
    step = held.steps[idx]
    plan = step.plan
    untroubled = Step(plan, state="running", doing="do", attempt=1)
    followers = [held.steps[follower] for follower in held.followers[idx]]
    if (
        plan.kind != "action"
        or step != untroubled
        or not all(_plain(each) and fills(each) for each in followers)
    ):
        return None
    known = {sent.idx: sent for stride in strides.values() for sent in stride.sent}
    sent = tuple(known.get(each.plan.idx) or sent_of(held.task, each) for each in followers)
    moves = [_done_move(step), *(move for each in sent for move in _begin_moves(each.waiting.plan.name))]
    fields = astuple(replace(step, state="done", doing=None))[:_UP_TO_RESULT]
    ending = [_done_move(step), _ENDED]
    stride = strides[idx] = ShapeStep(step, fields, [(idx, 1)], sent, moves, ending)
    return stride


def fills(step: Step) -> bool:
    """Return whether a step's arguments are made of inputs and results alone."""
    return all(ref.of != "item" and ref.index >= 0 for ref in _refs(step))


def _refs(step: Step) -> Sequence[Ref]:
    return () if step.plan.args is None else step.plan.args.refs


def sent_of(task: TaskRecord, step: Step) -> ShapeRequest:
    """Return how a waiting step begins, in this task and all of its shape."""
    plan = step.plan
    holes = tuple((ref.of == "step", ref.index, ref.path) for ref in _refs(step))
    texts = (_EMPTY,) if plan.args is None else tuple(part.encode() for part in plan.args.parts)
    return ShapeRequest(plan.idx, step, _running(step), _fields(task, step), texts, holes)


def _take_stride(held: HeldTask, message: TaskMessage, stride: ShapeStep) -> Decision | None:
    """Return what follows in a task that matches the start of the stride; None if it does not match."""
    task, steps, idx = held.task, held.steps, message.idx
    step, running = steps[idx], stride.running
    if (
        message.attempt != 1
        or message.doing != "do"
        or task.state != "processing"
        or task.goal != "forward"
        or task.reply is not None
        or not (step is running or step == running)
    ):
        return None
    result = message.value or _NULL
    changed = {idx: Step(*stride.done, result)}  # type: ignore[call-arg]  # the type checker cannot count them
    requests: list[Request] = []
    ends, moves, whole = held.left == 1, stride.moves, True
    try:
        for sent in stride.sent:
            follower = sent.idx
            if held.open[follower] != 1:  # it waits for others too
                continue
            if not (steps[follower] is sent.waiting or steps[follower] == sent.waiting):
                return None
            changed[follower] = sent.running
            requests.append(request_of(sent, task, steps, changed))
        if ends:
            if stride.sent:  # they have passed already: not a plain case
                return None
            task, moves = _ended_task(task, _values(task, steps, idx, result)), stride.ending
        elif len(requests) < len(stride.sent):
            moves, whole = (
                [_done_move(running), *(move for r in requests for move in _begin_moves(r.step))],
                False,
            )
    except (MissingValueError, IndexError):  # the task has no such input
        return None
    return Decision(
        held.task, task, changed, consumed=stride.consumed, requests=requests, moves=moves,
        seqs=[message.seq] if message.seq else [], release=ends, stride=stride if whole else None,
    )  # fmt: skip


def request_of(
    sent: ShapeRequest, task: TaskRecord, steps: Sequence[Step], changed: Mapping[int, Step]
) -> Request:
    """Return the request of a step that begins; ``changed``: the new records of the steps before it.

    Raises ``MissingValueError`` or ``IndexError`` if a value is missing.
    """
    texts = sent.texts
    pieces = [texts[0]]
    for n, (of_step, index, path) in enumerate(sent.holes, 1):
        value = (changed.get(index) or steps[index]).result or _NULL if of_step else task.inputs[index]
        pieces += splice.walk(value, path) if path else value, texts[n]
    limit = sent.waiting.plan.payload_limit
    args = splice.arguments(pieces, limit)
    rest = (args, task.priority, False, None, None, False, task.trace)
    return Request(task.id, *sent.asked, *rest)  # type: ignore[call-arg]  # as in ``_request``
