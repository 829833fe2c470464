"""Operator commands: cancel, undo, resubmit, settle, extend, wake. Each is answered, in words, with the
outcome.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict

from msgspec import json
from msgspec.structs import replace

from makegood.base.durations import short_duration
from makegood.model.decision import At
from makegood.model.messages import MOST_EXTENSION, Act, Answer, TaskMessage
from makegood.model.shape import HeldTask
from makegood.model.states import AT_REST, UNBEGUN, words
from makegood.model.task import Step, TaskRecord
from makegood.payload.schema_misfit import fill_defaults, misfit
from makegood.saga import races, rules, waits
from makegood.saga.corrected_inputs import correct, correction_text, next_round
from makegood.saga.decision_builder import NULL, DecisionBuilder
from makegood.saga.forward import finish, look_at_all
from makegood.saga.undo import begin_undo

ActResult = tuple[Literal["applied", "noop", "refused"], str]
"""The verdict on a command, and why."""

Stated = Literal["done", "failed", "undone"]
"""What an operator may state about a step."""

_ENDED = ("processed", "undone")
_AS_A_WHOLE: tuple[Literal["wake", "undo", "cancel", "resubmit"], ...] = (
    "wake",
    "undo",
    "cancel",
    "resubmit",
)


def act(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    """Carry out a command as far as it is allowed. Returns (applied | noop | refused, why)."""
    before = work.task.state
    acts = {
        "cancel": _cancel, "undo": _undo, "resubmit": _resubmit, "settle": _settle, "extend": _extend, "wake": _wake,
        "release_lane": _release_lane,
    }  # fmt: skip
    result = acts[message.kind](work, message)
    if result[0] == "applied" and before != work.task.state and before in AT_REST:
        work.ease()  # somebody has seen the alerts, and the task continues
    return result


def possible_commands(held_task: HeldTask) -> list[TaskMessage]:
    """Return the commands that would be carried out now, each as its message: tried on a Decision that nobody
    commits.

    A cancel that would do what an undo does is left out.
    """
    kinds = [
        kind for kind in _AS_A_WHOLE if act(DecisionBuilder(held_task), TaskMessage(kind))[0] == "applied"
    ]
    if "undo" in kinds and "cancel" in kinds:
        kinds.remove("cancel")
    settlements = [
        TaskMessage("settle", step.plan.idx, settled=outcome)
        for step in held_task.steps
        for outcome in may_settle(held_task.task, step)
    ]
    return [*map(TaskMessage, kinds), *settlements]


def try_command(held_task: HeldTask, message: TaskMessage, now: float) -> Answer:
    """Return the answer that a command would get now: tried on a Decision that nobody commits.

    ``now``: the store's clock.
    """
    work = DecisionBuilder(held_task, At(now))
    verdict, outcome = act(work, message)
    return Answer(message.act or Act(""), message.kind, verdict, outcome, work.task.state, work.change)


class _By(TypedDict, total=False):
    """Who moved a task or a step, and why: as in ``Move``."""

    who: str
    detail: str


def _by(message: TaskMessage) -> _By:
    """Return who gave a command and why, for the history."""
    return _By() if message.act is None else _By(who=message.act.who, detail=message.act.why)


def _no_way_back(work: DecisionBuilder) -> str:
    names = ", ".join(s.name for s in work.steps() if rules.past_return([s]))
    return f"{names} cannot be undone and has begun; wait for the task's end, or undo around it once it is in error"


# -- cancel and undo -----------------------------------------------------------------------------------------


def _cancel(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    if task.state in _ENDED:
        remedy = "; undo takes back what it did" if task.state == "processed" else ""
        return "refused", f"the task had ended: {task.state}{remedy}"
    if task.state == "error" and message.automatic:
        return "noop", "the task had come to rest in error: an operator decides about it"
    if task.state == "error":
        return _undo(work, message)
    if task.goal == "undo":
        return "noop", "the task is being undone already"
    if rules.past_return(work.steps()):
        return "refused", _no_way_back(work)
    if task.state in UNBEGUN and rules.are_untouched(work.steps()):
        work.task = replace(task, goal="undo", cause=words("cancelled", **_by(message)))
        work.move_task("undone", "untouched", **_by(message))
        return "applied", "nothing had been done"
    work.task = replace(work.task, cause="")  # of one that is held
    begin_undo(work, "cancelled", **_by(message))
    return "applied", "what was done is being undone"


def _undo(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    if task.state == "undone":
        return "noop", "the task is undone already"
    if task.state in ("pending", "sleeping", "queued", "processing") and task.goal == "forward":
        return "refused", f"the task is {task.state}: cancel it"
    if task.state not in ("error", "processed"):
        return _cancel(work, message)
    work.task = replace(task, lost=0, result=None)
    warnings = _warnings(work.steps(), "undo", work.at.now)
    steps = [s.name for s in work.steps() if s.state == "undo_failed"]
    begin_undo(work, "operator_undo", **_by(message))
    return "applied", "; ".join([_retry_text(steps) if steps else "what was done is being undone", *warnings])


def _retry_text(steps: Sequence[str]) -> str:
    """Say what an undo does about undos that failed before, and what to do if they fail again."""
    more = f" and {len(steps) - 1} more" if len(steps) > 1 else ""
    return f"the undo of {steps[0]}{more} is tried again; if it fails again, undo the effect by hand, and settle the step"


def warnings(held_task: HeldTask, kind: str, now: float) -> list[str]:
    """Return what an operator must know of keys that services have forgotten before a resubmission or an
    undo.

    ``now``: the store's clock.
    """
    return _warnings(held_task.steps, kind, now)


def _warnings(steps: Sequence[Step], kind: str, now: float) -> list[str]:
    texts = []
    for step in steps:
        if not rules.is_forgotten(step, now):
            continue
        keeps = short_duration(rules.policy(step).keeps)
        if kind == "resubmit" and step.state in ("in_doubt", "waiting"):
            what = f"{step.name} is sent again, and may be done twice"
        elif kind == "undo" and step.state == "undo_failed":
            what = f"the undo of {step.name} is sent again, and may be done twice"
        elif kind == "undo" and step.state == "in_doubt" and rules.must_be_definite(step):
            what = f"{step.name} stays in doubt, unless its probe finds it: settle it"
        else:
            continue
        texts.append(
            f"{what} (its key is older than the {keeps} that the service keeps it: look there first)"
        )
    return texts


# -- resubmit ------------------------------------------------------------------------------------------------


def _resubmit(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    if task.state not in ("error", "undone"):
        return "refused", f"the task is {task.state}: only one in error or undone can be resubmitted"
    obstacles = [why for s in work.steps() if (why := rules.why_not_resubmit(s))]
    restarts = {s.plan.idx for s in work.steps() if rules.restarts(s)}
    restarts |= _restarts_of_decisions(work, restarts)
    losers = races.of_restarts(work, restarts)
    obstacles += [
        f"{s.name} has lost and is {s.state}: undo the task first" for s in losers if not rules.passes(s)
    ]
    restarts.update(s.plan.idx for s in losers)
    if obstacles:
        return "refused", "; ".join(obstacles)
    if message.value is not None and (refusal := correct(work, message)):
        return "refused", refusal
    cautions = _warnings(work.steps(), "resubmit", work.at.now)
    for step in work.steps():
        if step.failures:
            work.reset(step.plan.idx)
        fresh = replace(
            step, failures=0, deaths=0, final=False, stuck=False, again=step.loser and step.state == "undo_failed",
            probe_answer=False, tally=None,
        )  # fmt: skip
        if rules.is_forgotten(step, work.at.now):  # sent all the same: to the service it is a first request
            fresh = replace(fresh, first_sent=0.0)
        if step.plan.idx in restarts:
            _begin_round(work, fresh)
        elif fresh != step or (step.state == "in_doubt" and step.asked == step.attempt):
            last_probe = min(step.asked, step.attempt - 1) if step.state == "in_doubt" else step.asked
            work.put(replace(fresh, asked=last_probe))
    again = task.state == "undone"
    work.move_task("queued" if rules.waits_for_lanes(task) else "pending", "resubmitted", **_by(message))
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
    return "applied", "; ".join([what + correction_text(work.change), *cautions])


def _begin_round(work: DecisionBuilder, step: Step) -> None:
    token = rules.token_of_new_round(step)
    plan = next_round(step.plan)
    if plan is not step.plan:
        step = replace(step, plan=plan)
        work.out.rewritten.append(plan.idx)
    work.move(
        step,
        "waiting",
        "new_round",
        detail=str(step.round + 1),
        round=step.round + 1,
        attempt=token,
        asked=token,
        doubt=False,
        result=None,
        late=None,
        error=None,
        stood=step.stood or step.state == "kept",
        first_sent=0.0,
        loser=False,
    )


def _restarts_of_decisions(work: DecisionBuilder, restarts: set[int]) -> set[int]:
    """Return the skipped steps whose ``when`` or ``each`` begins again, and those that depend on them; all
    skipped ones if the workflow may end elsewhere.
    """
    indices: set[int] = set()
    if any(work.step(idx).plan.kind == "done" for idx in restarts):
        indices = {step.plan.idx for step in work.steps() if step.state == "skipped" and not step.loser}
    more = True
    while more:
        more = False
        for step in work.steps():
            plan = step.plan
            if step.state == "skipped" and plan.idx not in indices:
                on = {plan.of, plan.item_of, *(when for when, _ in plan.guards)}
                if not step.loser and (on & restarts or on & indices):
                    indices.add(plan.idx)
                    more = True
    return indices


# -- wake ----------------------------------------------------------------------------------------------------


def _wake(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    if message.idx >= 0 and work.find(message.idx) is None:
        return "refused", "the task has no such step"
    if task.state == "sleeping" and message.idx < 0 and not work.any(rules.has_begun):
        if task.lanes:
            work.move_task("queued", "woken", **_by(message))
            return "applied", "it waits for its lanes now"
        work.task = rules.with_deadline(task)
        work.move_task("processing", "woken", **_by(message))
        look_at_all(work)
        return "applied", "it begins now"
    steps = work.steps() if message.idx < 0 else [work.step(message.idx)]
    asleep = [step for step in steps if waits.sleeps(step)]
    signals = ", ".join(dict.fromkeys(step.plan.action for step in steps if rules.listens(step)))
    if not asleep and signals:
        return (
            "noop",
            f"it waits for the signal {signals}, not for a moment: send it (`makegood task signal`)",
        )
    if not asleep:
        what = "the task does not sleep" if message.idx < 0 else f"{steps[0].name} does not sleep"
        return "noop", f"{what}: it is {task.state if message.idx < 0 else steps[0].state}"
    for step in asleep:
        waits.end(work, step, "woken_early", **_by(message))
    return "applied", f"{', '.join(step.name for step in asleep)} {'ends' if len(asleep) == 1 else 'end'} now"


# -- lanes -----------------------------------------------------------------------------------------------


def _release_lane(work: DecisionBuilder, message: TaskMessage) -> ActResult:  # noqa: ARG001 - as all acts
    task = work.task
    if not task.lanes:
        return "refused", "the task has no lane"
    if task.state != "error":
        remedy = "" if task.state in _ENDED else ": cancel it, or wait for its end"
        return (
            "refused",
            f"the task is {task.state}{remedy}; only one in error can be made to give up its lanes",
        )
    work.out.frees_lanes = True
    return (
        "applied",
        f"{', '.join(task.lanes)}: the next tasks go; if this one continues, it waits for its lanes again",
    )


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
    return "applied", f"its deadline is {short_duration(more)} later, at most a week from now"


# -- settle --------------------------------------------------------------------------------------------------


def _settle(work: DecisionBuilder, message: TaskMessage) -> ActResult:
    task = work.task
    step, outcome = work.find(message.idx), message.settled
    if step is None:
        return "refused", "the task has no such step"
    if rules.is_control(step.plan) and step.plan.kind != "wait_for":
        return "refused", f"{step.name} is not an action: it has no effect to settle"
    if step.state == outcome:
        if outcome == "done" and not _same(message.value, step.result):
            return "refused", (
                f"{step.name} is done already, and its result stays what it is; to take the step back, undo the task"
            )
        return "noop", f"{step.name} is {outcome} already"
    if task.state != "error":
        return "refused", f"the task is {task.state}: only in error may a step be settled by hand"
    choices = may_settle(task, step)
    if outcome not in choices:
        return "refused", _only(step, choices)
    result = (message.value or NULL) if outcome == "done" else None
    if result is not None and step.plan.kind == "wait_for":
        schema = dict(task.signals).get(step.plan.action, "")
        if reason := misfit(schema, result):
            return "refused", f"{step.name} takes no such value: {reason}"
        result = fill_defaults(schema, result)
    work.move(
        step,
        outcome,
        "by_hand",
        **_by(message),
        result=result,
        doubt=False,
        final=False,
        stuck=False,
        error=None,
        tally=None,
    )
    return _rest_settled(work, step.name, outcome)


def _same(one: bytes | None, other: bytes | None) -> bool:
    """Whether two results are the same value, however it is written."""
    return bool(json.decode(one or NULL) == json.decode(other or NULL))


def may_settle(task: TaskRecord, step: Step) -> tuple[Stated, ...]:
    """Return what may be stated about a step. *failed* is the operator's word that none of it can still
    arrive.
    """
    if rules.may_be_given(step) and task.state == "error" and task.goal == "hold":
        return ("done",)
    if task.state != "error" or rules.is_control(step.plan):
        return ()
    if step.state == "in_doubt":
        return ("done", "failed")
    if step.state == "failed" and task.goal == "hold" and not step.loser:
        return ("done",)
    return ("undone",) if step.state == "undo_failed" else ()


def _only(step: Step, choices: tuple[Stated, ...]) -> str:
    if not choices:
        return f"{step.name} is {step.state}: there is nothing to settle"
    return f"{step.name} is {step.state}: it can be settled as {' or '.join(choices)}"


def _rest_settled(work: DecisionBuilder, name: str, outcome: str) -> ActResult:
    """End the task if that was the last one; otherwise say what is left to do, as nothing continues by
    itself.
    """
    task, text = work.task, f"{name} is {outcome}"
    if task.goal == "hold" and work.left == 0:
        finish(work)
    elif task.goal == "undo" and all(s.state in rules.SETTLED for s in work.steps()):
        work.move_task("undone", "settled")
    else:
        work.ease(name)
        text += f"; the task is still in error: {_remedy(work)}"
    return "applied", text


def _remedy(work: DecisionBuilder) -> str:
    names = ", ".join(s.name for s in work.steps() if s.state in ("in_doubt", "undo_failed"))
    if names:
        return f"{names} can be settled too"
    if work.task.goal == "undo":
        return "undo it again to have the rest undone, or resubmit it to go forward"
    return "resubmit it to continue, or undo it"
