"""The straight road: one step is done, and what waited for it alone is dispatched.

Nearly every message of a day is of this kind, and folding it like all others costs several times as much. Nothing is decided
here that ``deciding`` would decide otherwise: whatever is not plain is left to it, and the tests let both decide, in every
world that they run, and compare.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from makegood import codec
from makegood.decision import Decision, Move
from makegood.errors import MissingValueError
from makegood.messages import Message, Request
from makegood.saga import rules
from makegood.task import Held, Ref, Step, Task

_NULL, _EMPTY = b"null", b"{}"


def straight(held: Held, message: Message) -> Decision | None:
    """Return what follows from an action's result; None when there is more to it than the next steps, or the task's end."""
    task, idx = held.task, message.idx
    if message.kind != "done" or message.doing != "do" or not 0 <= idx < len(held.steps):
        return None
    step = held.steps[idx]
    if (
        task.state != "processing"
        or task.goal != "forward"
        or step.state != "running"
        or task.reply is not None
        or step.plan.kind != "action"
        or step.again
        or step.waiting
        or not rules.current(step, message)
    ):
        return None
    result = message.value or _NULL
    done = replace(step, state="done", doing=None, result=result, doubt=False, final=False, error=None)
    moves: list[Move] = [(step.plan.name, "running", "done", "reply")]
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
            ended = b"null" if task.returns is None else codec.fill(task.returns, values)
            task = replace(task, result=ended, state="processed")
            moves.append(("task", "processing", "processed", "every step done or skipped"))
    except MissingValueError:
        return None
    return Decision(
        held.task, task, steps, consumed=[(idx, message.attempt)], requests=requests, moves=moves,
        seqs=[message.seq] if message.seq else [], release=held.left == 1,
    )  # fmt: skip


def _plain(step: Step) -> bool:
    """Return whether a step whose last predecessor has passed is an action that nothing was ever said about in this round."""
    plan = step.plan
    return (
        plan.kind == "action"
        and step.state == "waiting"
        and not (plan.guards or step.doubt or step.deaths or step.waiting)
        and plan.of < 0
        and plan.item_of < 0
    )


def _begin(
    task: Task, step: Step, values: Callable[[Ref], bytes], moves: list[Move], requests: list[Request]
) -> Step:
    """Dispatch a step: its moves and its request are added; return it as it then is."""
    plan, attempt = step.plan, step.attempt + 1
    moves.append((plan.name, "waiting", "ready", "predecessors done or skipped"))
    moves.append((plan.name, "ready", "running", "dispatched"))
    args = _EMPTY if plan.args is None else codec.fill(plan.args, values)
    within = (plan.policy or rules.PLAIN).within
    requests.append(
        Request(
            task.id, plan.idx, "do", attempt, task.app, plan.agent, plan.action, plan.name, step.round, within, args,
            task.priority, trace=task.trace,
        )
    )  # fmt: skip
    return replace(step, state="running", doing="do", attempt=attempt)


def _values(task: Task, steps: Sequence[Step], idx: int, result: bytes) -> Callable[[Ref], bytes]:
    """Return what looks values up: inputs, results, and that of the step that is just done; it raises ``MissingValueError``."""

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
