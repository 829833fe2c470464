"""Undo and hold: withdrawing requests, then undoing what was done, in reverse dependency order.

An undo never starts on a step with a request in flight, nor before the deadline of an attempt whose process
seemed dead (``rules.runs_on``). A request that no agent has taken is withdrawn; one
that an agent has is awaited until its reply or deadline. If it is an action's, and the task is to be undone,
it hears that nobody needs it (``DecisionBuilder.cancel``), and may end earlier; a task that is held may still
need it. Then every step that is done *or in doubt* is undone
once all steps after it are settled; independent undos continue if one is stuck. A held task only drains.

The steps of a branch that has lost (``races``) are undone in the same way while their task goes forward, or
is held: each is turned back alone, and the ``first`` that decided so does not bar them.
"""

from typing import Any

from msgspec.structs import replace

from makegood.base.text import first_line
from makegood.errors import MissingValueError
from makegood.model.messages import Alert, AlertKind
from makegood.model.states import Reason, StepState, words
from makegood.model.task import STANDING, Doing, Step, standing
from makegood.saga import rules
from makegood.saga.decision_builder import DecisionBuilder
from makegood.saga.held import predecessors

_PUT_TO_ERROR = frozenset({"poison", "unreadable"})
"""Alerts that themselves say that the task is in error."""
_OF_STEPS = frozenset({"step_gave_up", "undo_stuck"})


def clear(work: DecisionBuilder) -> None:
    """Drop timers and withdraw requests that no agent has taken: nothing goes forward any more.

    Steps of lost branches go on: they have been turned back before.
    """
    for step in work.steps():
        if not step.loser:
            halt(work, step, "waiting", "goal_changed")


def halt(work: DecisionBuilder, step: Step, state: StepState, reason: Reason) -> Step:
    """Let a step go forward no more; ``state`` becomes of it if it was only ready."""
    if step.waiting:
        step = work.drop_timer(step)
    if step.state == "ready":
        return work.move(step, state, reason)
    if step.doing in ("do", "probe"):
        work.out.withdraw.append((step.plan.idx, step.attempt))
    return step


def begin_undo(
    work: DecisionBuilder, reason: Reason, *, step: str = "", detail: str = "", who: str = ""
) -> None:
    """Set the task to undo. Counts start at 0, doubts may be probed again, and if an operator says so, stuck
    undos are tried again.

    ``step``, ``detail``, ``who``: as in ``Move``. The task's first cause stays: it says why the task could
    not be finished. A task that does not go and has lanes is queued: it may have given them up.
    """
    cause = work.task.cause or words(reason, step=step, detail=detail, who=who)
    work.task = replace(work.task, goal="undo", cause=cause)
    if rules.waits_for_lanes(work.task):
        work.move_task("queued", reason, step=step, detail=detail, who=who)
    elif work.task.state != "queued":
        work.move_task("undoing", reason, step=step, detail=detail, who=who)
    work.agenda.everything = True
    clear(work)
    by_hand = reason in ("cancelled", "operator_undo")
    for each in work.steps():
        work.cancel(each)
        if not each.loser or (by_hand and (each.stuck or each.state == "undo_failed")):
            turn_back(work, each)


def turn_back(work: DecisionBuilder, step: Step) -> Step:
    """Prepare a step for its undo: counts start at 0, a doubt may be probed again, a stuck undo is tried
    again.
    """
    changes: dict[str, Any] = {}
    if step.failures:
        changes["failures"] = 0
        changes["tally"] = None
        work.reset(step.plan.idx)
    if step.probe_answer:
        changes["probe_answer"] = False
    if step.asked == step.attempt and step.state == "in_doubt" and step.doing is None:
        changes["asked"] = step.attempt - 1
    if step.stuck:
        changes["stuck"] = False
    again = step.state == "undo_failed" or step.doing is not None
    if again is not step.again:
        changes["again"] = again
    return work.put(replace(step, **changes)) if changes else step


def backward(work: DecisionBuilder) -> None:
    """Undo what can be undone now: at the beginning check all steps, later those that were touched and may be
    freed.
    """
    todo = list(range(work.size())) if work.agenda.everything else []
    for idx in work.agenda.news:
        if work.step(idx).state in rules.SETTLED:
            todo.extend(_before(work, idx))
        else:
            todo.append(idx)
    while todo:
        idx = todo.pop()
        step = work.step(idx)
        if (
            rules.idle(step)
            and rules.is_taken_back(work.task, step)
            and (step.state == "undoing" or rules.to_be_undone(step))
            and _take_back(work, step)
        ):
            todo.extend(_before(work, idx))


def _before(work: DecisionBuilder, idx: int) -> list[int]:
    """Return the steps before a step; a skipped one stands for its own predecessors."""
    indices: list[int] = []
    visits, todo = {idx}, [idx]
    while todo:
        plan = work.step(todo.pop()).plan
        before = list(predecessors(plan))
        if plan.kind == "gather":
            before += [i for i in work.followers(plan.of) if rules.owner(work.step(i).plan) == plan.of]
        for other in before:
            if other not in visits:
                visits.add(other)
                (todo if work.step(other).state == "skipped" else indices).append(other)
    return indices


def _take_back(work: DecisionBuilder, step: Step) -> bool:
    """Continue the undo of one step; returns whether it is settled now."""
    if step.state == "undoing":
        if old := rules.too_old(step, work.at.now):
            undo_failed(work, step, f"{rules.silence_noted(step) or 'no answer'}; {old}")
        else:
            _ask_undo(work, step, "undo_again")
        return False
    if step.stuck or is_barred(work, step.plan.idx) or _awaits(work, step):
        return False
    if rules.nothing_to_undo(step):
        work.move(step, "kept", "past_return" if rules.policy(step).no_return else "nothing_to_undo")
        return True
    if step.state == "in_doubt":
        if rules.can_probe(step):
            _ask(work, step, "probe")
            return False
        if not step.doubt:
            work.move(step, "failed", "fenced")
            return True
        if rules.must_be_definite(step):
            _make_definite(work, step)
            return False
    if step.failures:
        work.reset(step.plan.idx)
    first_sent = rules.first_sent_of_undo(step, work.at.now)
    _ask_undo(
        work, replace(step, failures=0, deaths=0, again=False, first_sent=first_sent, tally=None), "undo"
    )
    return False


def _awaits(work: DecisionBuilder, step: Step) -> bool:
    """Wait for the deadline of an earlier attempt that may still run; returns whether there is one."""
    left = rules.runs_on(step, work.at.now)
    if left > 0:
        work.timer(step, left)
    return left > 0


def is_barred(work: DecisionBuilder, idx: int) -> bool:
    """Whether any step after this one is not settled; a skipped one stands for its own followers."""
    visits, todo = {idx}, [idx]
    while todo:
        step = work.step(todo.pop())
        for follower in work.followers(step.plan.idx):
            after = work.step(follower)
            if rules.lets_go(after, step):
                continue
            if rules.bars_undo(after):
                return True
            if after.state == "skipped" and follower not in visits:
                visits.add(follower)
                todo.append(follower)
    return False


def _make_definite(work: DecisionBuilder, step: Step) -> None:
    """Ask for a definite answer before the undo; if there can be none, the undo is stuck."""
    idx, policy = step.plan.idx, rules.policy(step)
    following, choice = rules.request_before_undo(step), rules.what_follows(step)
    if following == "do" and rules.is_forgotten(step, work.at.now):
        following = rules.request_if_forgotten(step)
    wait = policy.wait if choice == "retry" else policy.extended
    if following is None or choice in ("undo", "hold"):
        _mark_stuck(work, step, _unknown(step, work.at.now, 0.0))
    elif idx in work.agenda.due or step.failures == 0:
        _ask(work, step, following)
    elif following == "do" and not policy.probe and rules.is_forgotten(step, work.at.now + wait):
        _mark_stuck(work, step, _unknown(step, work.at.now, wait))
    else:
        work.timer(step, wait)


def _unknown(step: Step, now: float, wait: float) -> str:
    """Say why a step in doubt has no definite answer."""
    old = rules.too_old(step, now, wait)
    return "nobody can tell whether it happened" + (f"; {old}" if old else "")


def _ask(work: DecisionBuilder, step: Step, doing: Doing) -> None:
    """Ask the action or its probe for a definite answer."""
    try:
        args = work.arguments(step.plan)
    except MissingValueError as missing:
        _mark_stuck(work, step, str(missing))
        return
    if doing == "do":
        step = work.move(step, "running", "definite")
    work.send(step, doing, args)


def _ask_undo(work: DecisionBuilder, step: Step, reason: Reason) -> None:
    try:
        args = work.arguments(step.plan)
    except MissingValueError as missing:
        undo_failed(work, work.move(step, "undoing", reason), str(missing))
        return
    work.send(work.move(step, "undoing", reason), "undo", args)


def _mark_stuck(work: DecisionBuilder, step: Step, text: str) -> None:
    work.put(replace(step, stuck=True))
    work.alert(Alert("undo_stuck", step=step.name, text=f"{step.name} cannot be undone: {text}"))


def undo_failed(work: DecisionBuilder, step: Step, text: str) -> None:
    """The undo of a step has failed past its threshold or for good: an operator must act."""
    work.move(step, "undo_failed", "undo_failed", detail=text, error=text, tally=None)
    work.alert(Alert("undo_stuck", step=step.name, text=f"the undo of {step.name} failed: {text}"))


# -- coming to rest ------------------------------------------------------------------------------------------


def rest_when_drained(work: DecisionBuilder) -> None:
    """Hand a held task to an operator once nothing of it is in flight, and no lost branch is being undone."""
    if work.any(lambda step: not rules.idle(step)):
        return
    waits = [_awaits(work, step) for step in work.steps()]
    if any(waits):
        return
    work.move_task("error", "held")
    _alert_error(work, "held", f"held for an operator: {work.task.cause}")


def rest_when_lost(work: DecisionBuilder) -> None:
    """Hand a task to an operator of which nothing is left but undos of lost branches, all of them stuck."""
    if work.agenda.losers != work.left or work.any(lambda step: not rules.idle(step)):
        return
    reasons = "; ".join(_obstacles(work)) or "they are stuck"
    work.task = replace(
        work.task, goal="hold", cause=f"every step is done, but lost branches are not undone: {reasons}"
    )
    work.move_task("error", "held")
    _end_alerts_of_steps(work)
    _alert_error(work, "held", f"held for an operator: {work.task.cause}")


def rest_when_undone(work: DecisionBuilder) -> None:
    """End an undo when nothing is left to undo, or when everything left is stuck."""
    if work.any(lambda step: not rules.idle(step)):
        return
    if not work.any(lambda step: step.state not in rules.SETTLED):
        work.move_task("undone", "reverted")
        work.ease()
        return
    work.move_task("error", "undo_incomplete")
    reasons = _obstacles(work)
    _end_alerts_of_steps(work)
    _alert_error(work, "undo_incomplete", "; ".join((f"undone because {work.task.cause}", *reasons)))


def _obstacles(work: DecisionBuilder) -> list[str]:
    """Say what stopped an undo: steps with one reason are named together, an error with its first line."""
    failures: dict[str, list[str]] = {}
    doubts: dict[str, list[str]] = {}
    for step in work.steps():
        if step.state == "undo_failed":
            failures.setdefault(first_line(step.error) or "no reason recorded", []).append(step.name)
        elif step.state == "in_doubt" and step.stuck:
            doubts.setdefault(_unknown(step, work.at.now, 0.0), []).append(step.name)
    return [
        *(f"the undo of {', '.join(names)} failed: {reason}" for reason, names in failures.items()),
        *(f"{', '.join(names)} cannot be undone: {reason}" for reason, names in doubts.items()),
    ]


def _end_alerts_of_steps(work: DecisionBuilder) -> None:
    """End what alerts say of single steps: the alert of the task says all of it, so there is one a task."""
    work.out.alerts = [alert for alert in work.out.alerts if alert.kind not in _OF_STEPS]
    for step in work.steps():
        if step.state in ("failed", "undo_failed", "in_doubt", "undone"):
            work.ease(step.name)


def _alert_error(work: DecisionBuilder, kind: AlertKind, what: str) -> None:
    """Alert that the task is in error, with the effects in place.

    Only once: if this very Decision has an alert with the reason for the error, add the effects to that one.
    """
    in_place, alerts = _standing_text(work.steps()), work.out.alerts
    for n, alert in enumerate(alerts):
        if alert.kind in _PUT_TO_ERROR:
            alerts[n] = replace(alert, text=f"{alert.text}; {in_place}")
            return
    work.alert(Alert(kind, text=f"{what}; {in_place}"))


def _standing_text(steps: list[Step]) -> str:
    """Name the effects that are, or may be, still in place."""
    names = [f"{s.name} ({_how(s)})" for s in standing(steps)]
    return f"in place: {', '.join(names)}" if names else "nothing is in place"


def _how(step: Step) -> str:
    return step.state.replace("_", " ") if step.state in STANDING else "kept in an earlier round"
