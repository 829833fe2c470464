"""The fast path: one step is done, and the steps that waited only for it are dispatched.

Nearly every message is of this kind, and folding it like all others costs several times as much. This path
decides nothing differently from ``decisions``, and leaves everything unusual to it. The tests let both
decide, in every world that they run, and compare.

Tasks of one shape take this path alike, step by step. What is the same in all of them is worked out once for
each step, as a ``ShapeStep``, and shared: the records of steps that were just dispatched, moves, the fields
of requests, the texts of arguments. It holds for a task whose records are those that it begins with. The
stores write Decisions of one ``ShapeStep`` together.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from makegood.errors import MissingValueError
from makegood.model.decision import Decision
from makegood.model.messages import Request, TaskMessage, attempt_end
from makegood.model.plan import INPUTS, Ref
from makegood.model.shape import HeldTask, Shape, ShapeRequest, ShapeStep
from makegood.model.states import Move
from makegood.model.task import Step, TaskRecord
from makegood.payload import splice
from makegood.saga import rules

_NULL, _EMPTY = b"null", b"{}"
_SHAPES = 100  # of claimed tasks that are remembered
_ENDED: Move = Move("task", "processing", "processed", "complete")


def straight(held_task: HeldTask, message: TaskMessage) -> Decision | None:
    """Return what follows from an action's result; None if it is more than the next steps or the task's
    end.
    """
    shape = held_task.shape
    if shape is not None and message.kind == "done":
        shape_step = shape.following.get(message.idx) or _shape_step(held_task, message.idx, shape)
        if shape_step is not None and (decision := _take(held_task, message, shape_step)) is not None:
            return decision
    return _decide_alone(held_task, message)


def _decide_alone(held_task: HeldTask, message: TaskMessage) -> Decision | None:
    """Return what follows in a task that shares nothing with others."""
    task, idx = held_task.task, message.idx
    if message.kind != "done" or message.doing != "do" or not 0 <= idx < len(held_task.steps):
        return None
    if task.state != "processing" or task.goal != "forward" or task.reply is not None or held_task.losers:
        return None
    step = held_task.steps[idx]
    if (
        step.state != "running"
        or step.plan.kind != "action"
        or step.again
        or step.waiting
        or step.loser
        or not rules.current(step, message)
    ):
        return None
    result = message.value or _NULL
    step_after = replace(
        step, state="done", doing=None, result=result, doubt=False, final=False, error=None, tally=None
    )
    moves: list[Move] = [_move_to_done(step)]
    steps = {idx: step_after}
    requests: list[Request] = []
    values = _values(task, held_task.steps, idx, result)
    try:
        for follower in held_task.followers[idx]:
            following = held_task.steps[follower]
            if held_task.open[follower] == 1 or following.plan.kind == "first":
                if not _plain(following):
                    return None
                steps[follower] = _begin(task, following, values, moves, requests)
        if held_task.left == 1:
            if any(each.plan.kind == "done" for each in held_task.steps):
                return None
            task = _end_task(task, values)
            moves.append(_ENDED)
    except MissingValueError:
        return None
    return Decision(
        held_task.task, task, steps, used_requests=[(idx, message.attempt)], requests=requests, moves=moves,
        seqs=[message.seq] if message.seq else (), release=held_task.left == 1,
        attempts=[attempt_end(message)] if message.seq else (),
    )  # fmt: skip


def _move_to_done(step: Step) -> Move:
    return Move(step.plan.name, "running", "done", "reply")


def _begin_moves(name: str) -> tuple[Move, Move]:
    return Move(name, "waiting", "ready", "preceded"), Move(name, "ready", "running", "dispatched")


def _plain(step: Step) -> bool:
    """Return whether a step whose predecessors have passed is an action without any reply, failure or doubt
    in this round.
    """
    plan = step.plan
    return (
        plan.kind == "action"
        and step.state == "waiting"
        and not (plan.guards or step.doubt or step.deaths or step.waiting or step.first_sent)
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
        args = splice.arguments(splice.fill(plan.args, values, limit=plan.payload_limit), plan.payload_limit)
    requests.append(_request(task, step, args))
    return _running(step)


def _running(step: Step) -> Step:
    return replace(step, state="running", doing="do", attempt=step.attempt + 1)


def _request(task: TaskRecord, step: Step, args: bytes) -> Request:
    plan = step.plan
    policy = plan.policy or rules.PLAIN
    return Request(
        task.id, plan.idx, "do", step.attempt + 1, task.app, plan.agent, plan.action, plan.name, step.round, policy.within, args,
        task.priority, trace=task.trace, key_form=policy.key_form, keeps=policy.keeps,
    )  # fmt: skip


def _end_task(task: TaskRecord, values: Callable[[Ref], bytes]) -> TaskRecord:
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
        elif ref.of in INPUTS and 0 <= index < len(task.inputs):
            return task.inputs[index]
        raise MissingValueError(f"there is no {ref.of} {index}")

    return value


# -- tasks of one shape --------------------------------------------------------------------------------------


class Shapes:
    """Recognises tasks of one shape among those claimed: one app, steps declared by the same records.

    (Both stores read equal declarations as one record.) Keeps the last hundred shapes.
    """

    def __init__(self) -> None:
        self._by_plans: OrderedDict[tuple[str, tuple[int, ...]], Shape] = OrderedDict()

    def share(self, held_task: HeldTask) -> None:
        """Let a task share what follows its steps with earlier tasks of its shape."""
        key = (held_task.task.app, tuple([id(step.plan) for step in held_task.steps]))
        shared_shape = self._by_plans.get(key)
        if shared_shape is not None:
            held_task.shape = shared_shape
            return
        shape = Shape([step.plan for step in held_task.steps])  # keeps the records alive, and so their ids
        if shape.plain and not shape.bulky:  # perhaps the only one: the next one shares it
            self._by_plans[key] = shape
            if len(self._by_plans) > _SHAPES:
                self._by_plans.popitem(last=False)


def _shape_step(held_task: HeldTask, idx: int, shape: Shape) -> ShapeStep | None:
    """Work out and keep what follows if this step is done in tasks of its shape; None if it is not a plain
    case.
    """
    if not 0 <= idx < len(held_task.steps):
        return None
    step = held_task.steps[idx]
    plan = step.plan
    expected_step = Step(plan, state="running", doing="do", attempt=1)
    followers = [held_task.steps[follower] for follower in held_task.followers[idx]]
    if (
        plan.kind != "action"
        or step != expected_step
        or not all(_plain(each) and fills(each) for each in followers)
    ):
        return None
    requests = {request.idx: request for each in list(shape.following.values()) for request in each.sends}
    sends = tuple(requests.get(each.plan.idx) or shape_request_of(held_task.task, each) for each in followers)
    moves = [_move_to_done(step), *(move for each in sends for move in _begin_moves(each.waiting.plan.name))]
    after = replace(step, state="done", doing=None)
    ending = [_move_to_done(step), _ENDED]
    shape_step = shape.following[idx] = ShapeStep(step, after, [(idx, 1)], sends, moves, ending)
    return shape_step


def fills(step: Step) -> bool:
    """Return whether a step's arguments are made of inputs and results alone."""
    return all(ref.of != "item" and ref.index >= 0 for ref in _refs(step))


def _refs(step: Step) -> Sequence[Ref]:
    return () if step.plan.args is None else step.plan.args.refs


def shape_request_of(task: TaskRecord, step: Step) -> ShapeRequest:
    """Return how a waiting step begins, in this task and all of its shape."""
    plan = step.plan
    text, *texts = ("{}",) if plan.args is None else plan.args.parts
    holes = [
        (r.of == "step", r.index, r.path, after.encode()) for r, after in zip(_refs(step), texts, strict=True)
    ]
    flat = splice.flat(1 + 2 * len(holes), plan.payload_limit)
    request = replace(_request(task, step, b""), task=0, priority=0, trace=None)
    return ShapeRequest(plan.idx, step, _running(step), request, text.encode(), holes, flat)


def _take(held_task: HeldTask, message: TaskMessage, shape_step: ShapeStep) -> Decision | None:
    """Return what follows in a task whose records are those that ``shape_step`` has first; None otherwise."""
    task, steps, idx = held_task.task, held_task.steps, message.idx
    step, running = steps[idx], shape_step.running
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
    changes = {idx: replace(shape_step.after, result=result)}
    requests: list[Request] = []
    ends, moves, whole = held_task.left == 1, shape_step.moves, True
    try:
        for request in shape_step.sends:
            follower = request.idx
            if held_task.open[follower] != 1:  # it waits for others too
                continue
            if not (steps[follower] is request.waiting or steps[follower] == request.waiting):
                return None
            changes[follower] = request.running
            requests.append(request_of(request, task, steps, changes))
        if ends:
            if shape_step.sends:  # they have passed already: not a plain case
                return None
            task, moves = _end_task(task, _values(task, steps, idx, result)), shape_step.ending
        elif len(requests) < len(shape_step.sends):
            whole = False
            moves = [_move_to_done(running), *(move for r in requests for move in _begin_moves(r.step))]
    except (MissingValueError, IndexError):  # the task has no such input
        return None
    return Decision(
        held_task.task, task, changes, used_requests=shape_step.used_requests, requests=requests, moves=moves,
        seqs=[message.seq] if message.seq else (), release=ends, shape_step=shape_step if whole else None,
        attempts=[attempt_end(message)] if message.seq else (),
    )  # fmt: skip


def request_of(
    shape_request: ShapeRequest, task: TaskRecord, steps: Sequence[Step], changes: Mapping[int, Step]
) -> Request:
    """Return the request of a step that begins; ``changed``: the new records of the steps before it.

    Raises ``MissingValueError`` or ``IndexError`` if a value is missing.
    """
    pieces = [shape_request.text]
    for of_step, index, path, text in shape_request.holes:
        value = (changes.get(index) or steps[index]).result or _NULL if of_step else task.inputs[index]
        pieces += splice.walk(value, path) if path else value, text
    args = b"".join(pieces)
    if len(args) > shape_request.flat:
        args = splice.arguments(
            splice.join_pieces(pieces, limit := shape_request.waiting.plan.payload_limit), limit
        )
    return replace(shape_request.request, task=task.id, args=args, priority=task.priority, trace=task.trace)
