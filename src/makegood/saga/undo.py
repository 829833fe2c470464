"""Undo and hold: withdrawing requests, then undoing what was done, in reverse dependency order.

An undo never starts on a step with a request in flight. A request that no agent has taken is withdrawn; one
that an agent has is awaited until its reply or deadline. Then every step that is done *or in doubt* is undone
once all steps after it are settled; independent undos continue if one is stuck. A held task only drains.
"""

from typing import Any

from msgspec.structs import replace

from makegood.errors import MissingValueError
from makegood.model.messages import Alert, AlertKind
from makegood.model.task import STANDING, Doing, Step, standing
from makegood.saga import rules
from makegood.saga.decision_builder import DecisionBuilder
from makegood.saga.held import predecessors

_PUT_TO_ERROR = frozenset({"poison", "guilty"})
"""Alerts that themselves say that the task is in error."""


def clear(work: DecisionBuilder) -> None:
    """Drop timers and withdraw requests that no agent has taken: nothing goes forward any more."""
    for found in work.steps():
        step = work.drop_timer(found) if found.waiting else found
        if step.state == "ready":
            work.move(step, "waiting", "the goal is no longer forward")
        elif step.doing in ("do", "probe"):
            work.out.withdraw.append((step.plan.idx, step.attempt))


def begin_undo(work: DecisionBuilder, cause: str, why: str) -> None:
    """Set the task to undo. Counts start at 0, doubts may be probed again, and stuck undos are tried
    again.
    """
    work.task = replace(work.task, goal="undo", cause=cause)
    work.move_task("undoing", why)
    work.agenda.everything = True
    clear(work)
    for step in work.steps():
        changes: dict[str, Any] = {}
        if step.failures:
            changes["failures"] = 0
            work.reset(step.plan.idx)
        if step.asked == step.attempt and step.state == "in_doubt" and step.doing is None:
            changes["asked"] = step.attempt - 1
        if step.stuck:
            changes["stuck"] = False
        again = step.state == "undo_failed" or step.doing is not None
        if again is not step.again:
            changes["again"] = again
        if changes:
            work.put(replace(step, **changes))


def backward(work: DecisionBuilder) -> None:
    """Undo what can be undone now: at the beginning check all steps, later those that were touched and may be
    freed.
    """
    todo = list(range(work.size())) if work.agenda.everything else []
    for idx in work.agenda.touched:
        if work.step(idx).state in rules.SETTLED:
            todo.extend(_before(work, idx))
        else:
            todo.append(idx)
    while todo:
        idx = todo.pop()
        step = work.step(idx)
        if (
            rules.idle(step)
            and (step.state == "undoing" or rules.to_be_undone(step))
            and _take_back(work, step)
        ):
            todo.extend(_before(work, idx))


def _before(work: DecisionBuilder, idx: int) -> list[int]:
    """Return the steps before a step; a skipped one stands for its own predecessors."""
    found: list[int] = []
    seen, todo = {idx}, [idx]
    while todo:
        plan = work.step(todo.pop()).plan
        before = list(predecessors(plan))
        if plan.kind == "gather":
            before += [i for i in work.followers(plan.of) if rules.owner(work.step(i).plan) == plan.of]
        for other in before:
            if other not in seen:
                seen.add(other)
                (todo if work.step(other).state == "skipped" else found).append(other)
    return found


def _take_back(work: DecisionBuilder, step: Step) -> bool:
    """Continue the undo of one step; returns whether it is settled now."""
    if step.state == "undoing":
        _ask_undo(work, step, "asked again")
        return False
    if step.stuck or barred(work, step.plan.idx):
        return False
    if rules.nothing_to_undo(step):
        work.move(step, "kept", "past return" if rules.policy(step).no_return else "nothing to undo")
        return True
    if step.state == "in_doubt":
        if rules.can_probe(step):
            _ask(work, step, "probe")
            return False
        if not step.doubt:
            work.move(step, "failed", "a fencing probe")
            return True
        if rules.must_be_definite(step):
            _make_definite(work, step)
            return False
    if step.failures:
        work.reset(step.plan.idx)
    _ask_undo(work, replace(step, failures=0, deaths=0, again=False), "undo")
    return False


def barred(work: DecisionBuilder, idx: int) -> bool:
    """Whether any step after this one is not settled; a skipped one stands for its own followers."""
    seen, todo = set(), list(work.followers(idx))
    while todo:
        after = todo.pop()
        step = work.step(after)
        if rules.stands_before(step):
            return True
        if step.state == "skipped" and after not in seen:
            seen.add(after)
            todo.extend(work.followers(after))
    return False


def _make_definite(work: DecisionBuilder, step: Step) -> None:
    """Ask for a definite answer before the undo; if there can be none, the undo is stuck."""
    idx, policy = step.plan.idx, rules.policy(step)
    following, choice = rules.asked_before_undo(step), rules.what_follows(step)
    if following is None or choice in ("undo", "hold"):
        _stuck(work, step, "nobody can tell whether it happened")
    elif idx in work.agenda.due or step.failures == 0:
        _ask(work, step, following)
    else:
        work.timer(step, policy.wait if choice == "retry" else policy.extended)


def _ask(work: DecisionBuilder, step: Step, doing: Doing) -> None:
    """Ask the action or its probe for a definite answer."""
    try:
        args = work.arguments(step.plan)
    except MissingValueError as missing:
        _stuck(work, step, str(missing))
        return
    if doing == "do":
        step = work.move(step, "running", "driven to a definite answer")
    work.send(step, doing, args)


def _ask_undo(work: DecisionBuilder, step: Step, why: str) -> None:
    try:
        args = work.arguments(step.plan)
    except MissingValueError as missing:
        undo_failed(work, work.move(step, "undoing", why), str(missing))
        return
    work.send(work.move(step, "undoing", why), "undo", args)


def _stuck(work: DecisionBuilder, step: Step, text: str) -> None:
    work.put(replace(step, stuck=True))
    work.alert(Alert("undo_stuck", step=step.name, text=f"{step.name} cannot be undone: {text}"))


def undo_failed(work: DecisionBuilder, step: Step, text: str) -> None:
    """The undo of a step has failed past its threshold or for good: an operator must act."""
    work.move(step, "undo_failed", text, error=text)
    work.alert(Alert("undo_stuck", step=step.name, text=f"the undo of {step.name} failed: {text}"))


# -- coming to rest ------------------------------------------------------------------------------------------


def rest_when_drained(work: DecisionBuilder) -> None:
    """Hand a held task to an operator once nothing of it is in flight."""
    if work.any(lambda step: step.doing is not None):
        return
    work.move_task("error", "held, and nothing in flight")
    _alert_error(work, "held", f"held for an operator: {work.task.cause}")


def rest_when_undone(work: DecisionBuilder) -> None:
    """End an undo when nothing is left to undo, or when everything left is stuck."""
    if work.any(lambda step: not rules.idle(step)):
        return
    if not work.any(lambda step: step.state not in rules.SETTLED):
        work.move_task("undone", "nothing left to undo")
        work.ease()
        return
    work.move_task("error", "an undo is stuck, and nothing in flight or due")
    _alert_error(work, "undo_incomplete", f"the undo could not be completed ({work.task.cause})")


def _alert_error(work: DecisionBuilder, kind: AlertKind, what: str) -> None:
    """Alert that the task is in error, with the effects in place.

    Only once: if this very Decision has an alert with the reason for the error, add the effects to that one.
    """
    listed, told = _standing_text(work.steps()), work.out.alerts
    for n, alert in enumerate(told):
        if alert.kind in _PUT_TO_ERROR:
            told[n] = replace(alert, text=f"{alert.text}; {listed}")
            return
    work.alert(Alert(kind, text=f"{what}; {listed}"))


def _standing_text(steps: list[Step]) -> str:
    """Name the effects that are, or may be, still in place."""
    names = [f"{s.name} ({_how(s)})" for s in standing(steps)]
    return f"in place: {', '.join(names)}" if names else "nothing is in place"


def _how(step: Step) -> str:
    return step.state.replace("_", " ") if step.state in STANDING else "kept in an earlier round"
