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
from makegood.model.task import Doing, Step
from makegood.saga import control, rules
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
            work.agenda.ready.append(idx)
        elif step.state == "in_doubt":
            work.agenda.doubts.append(idx)


def advance(work: DecisionBuilder) -> None:
    """Take the task as far forward as possible without a request."""
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
        work.move(step, "skipped", "its branch is not taken")
    elif plan.kind == "action":
        work.agenda.ready.append(idx)
    else:
        step = work.move(step, "ready", "predecessors done or skipped")
        try:
            result = control.decide(work, step)
        except MissingValueError as missing:
            _unfit(work, step, str(missing))
        else:
            work.move(step, "done", "decided", result=result)


def finish(work: DecisionBuilder) -> None:
    """End a task whose every step is done or skipped."""
    task = work.task
    try:
        limit = max((step.plan.payload_limit for step in work.steps()), default=PAYLOAD_LIMIT)
        result = NULL if task.returns is None else work.fill(task.returns, limit)
    except MissingValueError as missing:
        cause = f"the result cannot be put together: {missing}"
        work.alert(Alert("step_failed", text=f"every step is done, but {cause}"))
        turn(work, cause)
    else:
        work.task = replace(task, result=result, cause="")
        work.move_task("processed", "every step done or skipped")


# -- dispatch ------------------------------------------------------------------------------------------------


def dispatch(work: DecisionBuilder) -> None:
    """Make the requests. Everything that turns the direction is found before the first request is made."""
    wanted: list[tuple[int, Doing]] = [(idx, "do") for idx in work.agenda.ready]
    for idx in work.agenda.doubts:
        _recover(work, work.step(idx), wanted)
    filled: list[tuple[Step, Doing, bytes]] = []
    for idx, doing in wanted:
        step = work.step(idx)
        try:
            filled.append((step, doing, work.arguments(step.plan)))
        except MissingValueError as missing:
            _unfit(work, step, str(missing))
    if work.task.goal != "forward":
        return
    for step, doing, args in filled:
        if doing == "do":
            work.begin(step, args)
        else:
            work.send(step, doing, args)


def _recover(work: DecisionBuilder, step: Step, wanted: list[tuple[int, Doing]]) -> None:
    """Follow up a step in doubt: probe, try again now or later, or the verdict."""
    if step.state != "in_doubt" or not rules.idle(step) or work.task.goal != "forward":
        return
    idx, policy = step.plan.idx, rules.policy(step)
    if rules.can_probe(step):
        wanted.append((idx, "probe"))
        return
    following = None if step.final else rules.next_try(step)
    choice = rules.what_follows(step)
    if following is None or choice in ("undo", "hold"):
        _give_up(work, step)
    elif idx in work.agenda.due or step.failures == 0:
        wanted.append((idx, following))
    else:
        work.timer(step, policy.wait if choice == "retry" else policy.extended)


def _give_up(work: DecisionBuilder, step: Step) -> None:
    """The verdict on a step in doubt that may not be tried again."""
    cause = f"{step.name}: {step.error or 'in doubt'}"
    if step.failures > 1:
        cause += f" ({step.failures} failures)"
    held = rules.holds_in_doubt(step)
    if not step.doubt:
        step = work.move(step, "failed", "a fencing probe")
    known = "certainly nothing happened" if step.state == "failed" else "it may have happened"
    work.alert(Alert("step_failed", step=step.name, text=f"{cause}; {known}"))
    turn(work, cause, held=held)


def _unfit(work: DecisionBuilder, step: Step, text: str) -> None:
    """Fail a step whose request cannot be made: it certainly did nothing now. A step in doubt stays in
    doubt.
    """
    if work.task.goal != "forward":
        return
    if step.state == "in_doubt":
        _give_up(work, work.put(replace(step, error=text)))
        return
    if step.state == "waiting":
        step = work.move(step, "ready", "predecessors done or skipped")
    work.move(step, "failed", text, error=text)
    work.alert(Alert("step_failed", step=step.name, text=f"{step.name} cannot begin: {text}"))
    turn(work, f"{step.name}: {text}")


# -- the verdict ---------------------------------------------------------------------------------------------


def turn(work: DecisionBuilder, cause: str, *, held: bool = False) -> None:
    """Turn the task from forward to undo or hold; the first verdict wins. ``held``: the failed step says
    hold.
    """
    if work.task.goal != "forward":
        return
    if held or rules.holds(work.task, work.steps()):
        work.task = replace(work.task, goal="hold", cause=cause)
        clear(work)
    else:
        begin_undo(work, cause, cause)
