"""Operator commands: cancel, undo, resubmit, settle, extend. Each is answered, in words, with the outcome."""

from typing import Literal

from msgspec import json
from msgspec.structs import replace

from makegood.base.durations import shown
from makegood.model.messages import MOST_EXTENSION, Act, Answer, TaskMessage
from makegood.model.shape import HeldTask
from makegood.model.states import AT_REST
from makegood.model.task import Step, TaskRecord
from makegood.saga import rules
from makegood.saga.corrected_inputs import correct, correction_text, next_round
from makegood.saga.decision_builder import NULL, DecisionBuilder
from makegood.saga.forward import finish
from makegood.saga.undo import begin_undo

ActResult = tuple[Literal["applied", "noop", "refused"], str]
"""The verdict on a command, and why."""

Stated = Literal["done", "failed", "undone"]
"""What an operator may state about a step."""

_ENDED = ("processed", "undone")
_AS_A_WHOLE: tuple[Literal["undo", "cancel", "resubmit"], ...] = ("undo", "cancel", "resubmit")


def act(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    """Carry out a command as far as it is allowed. Returns (applied | noop | refused, why)."""
    before = work.task.state
    acts = {"cancel": _cancel, "undo": _undo, "resubmit": _resubmit, "settle": _settle, "extend": _extend}
    said = acts[message.kind](work, message)
    if said[0] == "applied" and before != work.task.state and before in AT_REST:
        work.ease()  # somebody has seen the alerts, and the task continues
    return said


def lawful(held: HeldTask) -> list[TaskMessage]:
    """Return the commands that would be carried out now, each as its message: tried on a Decision that nobody
    commits.

    A cancel that would do what an undo does is left out.
    """
    found = [kind for kind in _AS_A_WHOLE if act(DecisionBuilder(held), TaskMessage(kind))[0] == "applied"]
    if "undo" in found and "cancel" in found:
        found.remove("cancel")
    settled = [
        TaskMessage("settle", step.plan.idx, settled=outcome)
        for step in held.steps
        for outcome in may_settle(held.task, step)
    ]
    return [*map(TaskMessage, found), *settled]


def tried(held: HeldTask, message: TaskMessage) -> Answer:
    """Return the answer that a command would get now: tried on a Decision that nobody commits."""
    work = DecisionBuilder(held)
    verdict, outcome = act(work, message)
    return Answer(message.act or Act(""), message.kind, verdict, outcome, work.task.state, work.change)


def _by(message: TaskMessage, what: str) -> str:
    """Add who did it and why, for the task's cause."""
    if message.act is None:
        return what
    who = f"{what} by {message.act.who}" if message.act.who else what
    return f"{who}: {message.act.why}" if message.act.why else who


def _no_way_back(work: DecisionBuilder) -> str:
    names = ", ".join(s.name for s in work.steps() if rules.past_return([s]))
    return f"{names} cannot be undone and has begun; wait for the task's end, or undo around it once it is in error"


# -- cancel and undo -----------------------------------------------------------------------------------------


def _cancel(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    if task.state in _ENDED:
        return "refused", f"the task had ended: {task.state}"
    if task.state == "error":
        return _undo(work, message)
    if task.goal == "undo":
        return "noop", "the task is being undone already"
    if rules.past_return(work.steps()):
        return "refused", _no_way_back(work)
    cause = _by(message, "cancelled")
    if task.state == "pending" and _untouched(work):
        work.task = replace(task, goal="undo", cause=cause)
        work.move_task("undone", "cancelled with nothing in place, in doubt or in flight")
        return "applied", "nothing had been done"
    begin_undo(work, cause, cause)
    return "applied", "what was done is taken back"


def _untouched(work: DecisionBuilder) -> bool:
    """Nothing is in place, in doubt, in flight or about to be."""
    return all(rules.idle(s) and s.state in rules.SETTLED and s.state != "kept" for s in work.steps())


def _undo(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    if task.state == "undone":
        return "noop", "the task is undone already"
    if task.state in ("pending", "processing") and task.goal == "forward":
        return "refused", f"the task is {task.state}: cancel it"
    if task.state not in ("error", "processed"):
        return _cancel(work, message)
    # The first cause stays: it says why the task could not be finished; the audit says who undid it.
    work.task = replace(task, lost=0, result=None)
    begin_undo(work, task.cause or _by(message, "undone"), _by(message, "undo"))
    return "applied", "what was done is taken back"


# -- resubmit ------------------------------------------------------------------------------------------------


def _resubmit(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    if task.state not in ("error", "undone"):
        return "refused", f"the task is {task.state}: only one in error or undone can be resubmitted"
    barred = [why for s in work.steps() if (why := rules.barred_from_resubmission(s))]
    if barred:
        return "refused", "; ".join(barred)
    if message.value is not None and (refused := correct(work, message)):
        return "refused", refused
    anew = {s.plan.idx for s in work.steps() if rules.begins_anew(s)}
    anew |= _decided_anew(work, anew)
    for step in work.steps():
        if step.failures:
            work.reset(step.plan.idx)
        fresh = replace(step, failures=0, deaths=0, final=False, stuck=False, again=False)
        if step.plan.idx in anew:
            _begin_round(work, fresh)
        elif fresh != step or (step.state == "in_doubt" and step.asked == step.attempt):
            asked = min(step.asked, step.attempt - 1) if step.state == "in_doubt" else step.asked
            work.put(replace(fresh, asked=asked))
    again = task.state == "undone"
    work.move_task("pending", _by(message, "resubmitted"))
    work.task = replace(
        work.task,
        goal="forward",
        cause="",
        submission=task.submission + again,
        timed=False,
        lost=0,
        result=None,
    )
    work.out.clear_complete_by = True
    what = f"submission {work.task.submission}" if again else "the task goes forward again"
    return "applied", what + correction_text(work.change)


def _begin_round(work: DecisionBuilder, step: Step) -> None:
    token = rules.token_of_new_round(step)
    plan = next_round(step.plan)
    if plan is not step.plan:
        step = replace(step, plan=plan)
        work.out.rewritten.append(plan.idx)
    work.move(
        step,
        "waiting",
        f"round {step.round + 1}",
        round=step.round + 1,
        attempt=token,
        asked=token,
        doubt=False,
        result=None,
        late=None,
        error=None,
        stood=step.stood or step.state == "kept",
    )


def _decided_anew(work: DecisionBuilder, anew: set[int]) -> set[int]:
    """Return the skipped steps whose ``when`` or ``each`` begins again, and those that depend on them."""
    found: set[int] = set()
    more = True
    while more:
        more = False
        for step in work.steps():
            plan = step.plan
            if step.state == "skipped" and plan.idx not in found:
                on = {plan.of, plan.item_of, *(when for when, _ in plan.guards)}
                if on & anew or on & found:
                    found.add(plan.idx)
                    more = True
    return found


# -- extend ----------------------------------------------------------------------------------------------


def _extend(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task, more = work.task, message.wait
    if not rules.may_be_later(task):
        what = (
            f"is {task.state}"
            if task.state != "processing" or task.goal == "forward"
            else "goes no longer forward"
        )
        has = "" if task.timed else " and has no deadline that counts"
        return "refused", f"the task {what}{has}: only the deadline of a task that goes forward can be moved"
    if not 0 < more <= MOST_EXTENSION:
        return "refused", f"{more:g} seconds: more than 0, and at most {MOST_EXTENSION:g} (a week)"
    work.out.extends += more
    return "applied", f"its deadline is {shown(more)} later, at most a week from now"


# -- settle --------------------------------------------------------------------------------------------------


def _settle(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    step, settled = work.find(message.idx), message.settled
    if step is None:
        return "refused", "the task has no such step"
    if rules.is_control(step.plan):
        return "refused", f"{step.name} is not an action: it has no effect to settle"
    if step.state == settled:
        if settled == "done" and not _same(message.value, step.result):
            return "refused", (
                f"{step.name} is done already, and its result stays what it is; to take the step back, undo the task"
            )
        return "noop", f"{step.name} is {settled} already"
    if task.state != "error":
        return "refused", f"the task is {task.state}: only in error may a step be settled by hand"
    allowed = may_settle(task, step)
    if settled not in allowed:
        return "refused", _only(step, allowed)
    result = (message.value or NULL) if settled == "done" else None
    work.move(
        step,
        settled,
        _by(message, "by hand"),
        result=result,
        doubt=False,
        final=False,
        stuck=False,
        error=None,
    )
    return _rest_settled(work, step.name, settled)


def _same(one: bytes | None, other: bytes | None) -> bool:
    """Whether two results are the same value, however it is written."""
    return bool(json.decode(one or NULL) == json.decode(other or NULL))


def may_settle(task: TaskRecord, step: Step) -> tuple[Stated, ...]:
    """Return what may be stated about a step. *failed* is the operator's word that none of it can still
    arrive.
    """
    if task.state != "error" or rules.is_control(step.plan):
        return ()
    if step.state == "in_doubt":
        return ("done", "failed")
    if step.state == "failed" and task.goal == "hold":
        return ("done",)
    return ("undone",) if step.state == "undo_failed" else ()


def _only(step: Step, allowed: tuple[Stated, ...]) -> str:
    if not allowed:
        return f"{step.name} is {step.state}: there is nothing to settle"
    return f"{step.name} is {step.state}: it can be settled as {' or '.join(allowed)}"


def _rest_settled(work: DecisionBuilder, name: str, settled: str) -> ActResult:
    """End the task if that was the last one; otherwise say what is left to do, as nothing continues by
    itself.
    """
    task, said = work.task, f"{name} is {settled}"
    if task.goal == "hold" and work.left == 0:
        finish(work)
    elif task.goal == "undo" and all(s.state in rules.SETTLED for s in work.steps()):
        work.move_task("undone", "the last one settled by hand")
    else:
        work.ease(name)
        said += f"; the task is still in error: {_left_to_do(work)}"
    return "applied", said


def _left_to_do(work: DecisionBuilder) -> str:
    unsettled = ", ".join(s.name for s in work.steps() if s.state in ("in_doubt", "undo_failed"))
    if unsettled:
        return f"{unsettled} can be settled too"
    if work.task.goal == "undo":
        return "undo it again to have the rest undone, or resubmit it to go forward"
    return "resubmit it to continue, or undo it"
