"""Forward: which steps may begin, what follows a step in doubt, and when the task is done or its direction
turns.

Control steps are decided at once, as far as they are ready (``advance``). Actions are dispatched only when
every message at hand has been folded in (``dispatch``): a cancel in the same batch then finds no request that
was just sent.
"""

from msgspec.structs import replace

from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.errors import MissingValueError
from makegood.model.messages import Alert
from makegood.model.states import Reason, words
from makegood.model.task import Doing, Step
from makegood.saga import control, rules, waits
from makegood.saga.decision_builder import NULL, DecisionBuilder
from makegood.saga.undo import begin_undo, clear


def look_at_all(work: DecisionBuilder) -> None:
    """Find what is to be done in a task that was just claimed, whatever its last Scheduler left."""
    for step in work.steps():
        if not rules.idle(step):
            continue
        idx = step.plan.idx
        if step.state == "waiting" and work.open(idx) == 0:
            work.agenda.free.append(idx)
        elif step.state == "ready":
            (work.agenda.waits if rules.is_wait(step.plan) else work.agenda.ready).append(idx)
        elif step.state == "in_doubt":
            work.agenda.doubts.append(idx)


def advance(work: DecisionBuilder) -> None:
    """Take the task as far forward as possible without a request."""
    for idx in work.agenda.waits:
        _look(work, work.step(idx))
        if work.task.goal != "forward":
            return
    work.agenda.waits.clear()
    for idx in work.agenda.free:  # the list grows meanwhile: deciding one control step frees others
        _begin(work, idx)
        if work.task.goal != "forward":
            return
    work.agenda.free.clear()
    if work.left == 0 and work.task.state == "processing" and work.task.goal == "forward":
        finish(work)


def _begin(work: DecisionBuilder, idx: int) -> None:
    step = work.step(idx)
    if step.state != "waiting" or work.open(idx):
        return
    plan = step.plan
    if (plan.guards or plan.of >= 0 or plan.item_of >= 0) and control.not_taken(work, plan):
        work.move(step, "skipped", "branch_not_taken")
    elif plan.kind == "action":
        work.agenda.ready.append(idx)
    else:
        step = work.move(step, "ready", "preceded")
        if plan.kind == "fail":
            _fail(work, step)
        elif rules.is_wait(plan):
            _look(work, step)
        else:
            _decide(work, step)


def _decide(work: DecisionBuilder, step: Step) -> None:
    try:
        result = control.decide(work, step)
    except MissingValueError as missing:
        _unfit(work, step, str(missing))
    else:
        work.move(step, "done", "decided", result=result)


def _look(work: DecisionBuilder, step: Step) -> None:
    """Look at a wait: whether what it waits for has come."""
    if step.state != "ready" or step.waiting:
        return
    try:
        waits.look(work, step)
    except MissingValueError as missing:
        _unfit(work, step, str(missing))


def _fail(work: DecisionBuilder, step: Step) -> None:
    """The workflow itself says that the task fails, and why."""
    try:
        text = waits.failure(work, step)
    except MissingValueError as missing:
        _unfit(work, step, str(missing))
        return
    work.move(step, "failed", "workflow_fails", detail=text, error=text)
    turn(work, "step_failed", detail=text)


def finish(work: DecisionBuilder) -> None:
    """End a task whose every step is done or skipped."""
    task = work.task
    try:
        limit = max((step.plan.payload_limit for step in work.steps()), default=PAYLOAD_LIMIT)
        result = NULL if task.returns is None else work.fill(task.returns, limit)
    except MissingValueError as missing:
        cause = words("result_missing", detail=str(missing))
        work.alert(Alert("step_gave_up", text=f"every step is done, but {cause}"))
        turn(work, "result_missing", detail=str(missing))
    else:
        work.task = replace(task, result=result, cause="")
        work.move_task("processed", "complete")


# -- dispatch ------------------------------------------------------------------------------------------------


def dispatch(work: DecisionBuilder) -> None:
    """Make the requests. Everything that turns the direction is found before the first request is made."""
    requests: list[tuple[int, Doing]] = []
    for idx in work.agenda.ready:
        if rules.forgotten(step := work.step(idx), work.at.now):
            _doubt_old_key(work, step)
        else:
            requests.append((idx, "do"))
    for idx in work.agenda.doubts:
        _recover(work, work.step(idx), requests)
    with_arguments: list[tuple[Step, Doing, bytes]] = []
    for idx, doing in requests:
        step = work.step(idx)
        try:
            with_arguments.append((step, doing, work.arguments(step.plan)))
        except MissingValueError as missing:
            _unfit(work, step, str(missing))
    if work.task.goal != "forward":
        return
    for step, doing, args in with_arguments:
        if doing == "do":
            work.begin(step, args)
        else:
            work.send(step, doing, args)


def _recover(work: DecisionBuilder, step: Step, requests: list[tuple[int, Doing]]) -> None:
    """Follow up a step in doubt: probe, try again now or later, or the verdict."""
    if step.state != "in_doubt" or not rules.idle(step) or work.task.goal != "forward":
        return
    idx, policy = step.plan.idx, rules.policy(step)
    if rules.can_probe(step):
        requests.append((idx, "probe"))
        return
    following = None if step.final else rules.next_try(step)
    if following == "do" and rules.forgotten(step, work.at.now):
        following = rules.asked_instead(step)
    choice = rules.what_follows(step)
    wait = policy.wait if choice == "retry" else policy.extended
    if following is None or choice in ("undo", "hold"):
        _give_up(work, step)
    elif idx in work.agenda.due or step.failures == 0:
        requests.append((idx, following))
    elif following == "do" and not policy.probe and rules.forgotten(step, work.at.now + wait):
        _give_up(work, step, wait)
    else:
        work.timer(step, wait)


def _doubt_old_key(work: DecisionBuilder, step: Step) -> None:
    """Put in doubt a step that the service has asked to send later, when its key is too old for that."""
    if step.state == "waiting":
        step = work.move(step, "ready", "preceded")
    work.move(step, "in_doubt", "key_too_old", doubt=True)
    work.agenda.doubts.append(step.plan.idx)


def _give_up(work: DecisionBuilder, step: Step, wait: float = 0.0) -> None:
    """The verdict on a step in doubt that may not be tried again, now or after a wait."""
    detail = rules.failures_noted(step)
    if (old := rules.too_old(step, work.at.now, wait)) and old not in detail:
        detail += f"; {old}"
    holds = rules.holds_in_doubt(step)
    if not step.doubt:
        step = work.move(step, "failed", "fenced")
    certainty = "certainly nothing happened" if step.state == "failed" else "it may have happened"
    work.alert(Alert("step_gave_up", step=step.name, text=f"{step.name}: {detail}; {certainty}"))
    turn(work, "step_failed", step=step.name, detail=detail, hold=holds)


def _unfit(work: DecisionBuilder, step: Step, text: str) -> None:
    """Fail a step whose request cannot be made: it certainly did nothing now. A step in doubt stays in
    doubt.
    """
    if work.task.goal != "forward":
        return
    if step.state == "in_doubt":
        _give_up(work, work.put(replace(step, error=text, tally=None)))
        return
    if step.state == "waiting":
        step = work.move(step, "ready", "preceded")
    work.move(step, "failed", "arguments_missing", detail=text, error=text)
    work.alert(Alert("step_gave_up", step=step.name, text=f"{step.name} cannot begin: {text}"))
    turn(work, "step_failed", step=step.name, detail=text)


# -- the verdict ---------------------------------------------------------------------------------------------


def turn(
    work: DecisionBuilder, reason: Reason, *, step: str = "", detail: str = "", hold: bool = False
) -> None:
    """Turn the task from forward to undo or hold; the first verdict wins. ``step``, ``detail``: as in
    ``Move``; ``hold``: the failed step says hold.
    """
    if work.task.goal != "forward":
        return
    if hold or rules.holds(work.task, work.steps()):
        work.task = replace(work.task, goal="hold", cause=words(reason, step=step, detail=detail))
        clear(work)
    else:
        begin_undo(work, reason, step=step, detail=detail)
