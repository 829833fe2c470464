"""Forward: which steps may begin, what follows a step in doubt, and when the task is done or its direction
turns.

Control steps are decided at once, as far as they are ready (``advance``). Actions are dispatched only when
every message at hand has been folded in (``dispatch``): a cancel in the same batch then finds no request that
was just sent.

A step that has failed for good turns its task, unless it is in a branch of a ``first`` of which another
branch may still be done: then its branch loses (``fall``).
"""

from msgspec.structs import replace

from makegood.base.durations import short_duration
from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.errors import MissingValueError
from makegood.model.messages import Alert
from makegood.model.plan import Template
from makegood.model.states import Reason, words
from makegood.model.task import Doing, Step
from makegood.saga import control, races, rules, signals, waits
from makegood.saga.decision_builder import NULL, DecisionBuilder
from makegood.saga.undo import begin_undo, clear, halt


def look_at_all(work: DecisionBuilder) -> None:
    """Find what is to be done in a task that was just claimed, whatever its last Scheduler left."""
    for step in work.steps():
        if not rules.idle(step):
            continue
        idx = step.plan.idx
        if step.loser:
            work.agenda.news.append(idx)
        elif step.state == "waiting" and (work.open(idx) == 0 or step.plan.kind == "first"):
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
    while work.agenda.free or work.agenda.firsts:
        for idx in work.agenda.free:  # the list grows meanwhile: deciding one control step frees others
            _begin(work, idx)
            if work.task.goal != "forward":
                return
        work.agenda.free.clear()
        if work.agenda.firsts:  # of two branches that are done now the earlier one in the plan wins
            idx = min(work.agenda.firsts)
            work.agenda.firsts.remove(idx)
            _settle_first(work, work.step(idx))
            if work.task.goal != "forward":
                return
    if work.left == 0 and work.task.state == "processing" and work.task.goal == "forward":
        finish(work)


def _begin(work: DecisionBuilder, idx: int) -> None:
    step = work.step(idx)
    plan = step.plan
    if step.state != "waiting" or step.loser:
        return
    if not races.may_be_decided(work, step) if plan.kind == "first" else work.open(idx):
        return
    if (plan.guards or plan.of >= 0 or plan.item_of >= 0) and control.not_taken(work, plan):
        work.move(step, "skipped", "branch_not_taken")
    elif plan.kind == "action":
        work.agenda.ready.append(idx)
    elif plan.kind == "first":
        work.agenda.firsts.add(idx)
    else:
        step = work.move(step, "ready", "preceded")
        if plan.kind == "fail":
            _fail(work, step)
        elif plan.kind == "done":
            _end_early(work, step)
        elif rules.is_wait(plan):
            _look(work, step)
        else:
            _decide(work, step)


def _settle_first(work: DecisionBuilder, first: Step) -> None:
    """Decide a ``first`` of which a branch is done: that one wins, and all others lose."""
    if first.state != "waiting" or first.loser:
        return
    for branch in races.winners(work, first):
        try:
            result = races.value(work, first, branch)
        except MissingValueError as missing:
            _branch_falls(work, first, branch, f"{first.name}: {missing}")
            work.agenda.firsts.add(first.plan.idx)  # another branch may be done too
            return
        winner = work.step(races.indices(first, branch)[-1]).name
        first = work.move(first, "ready", "preceded")
        work.move(first, "done", "decided", detail=winner, result=result, error=None)
        for other in range(len(first.plan.branches)):
            if other != branch:
                races.lose(work, first, other)
        return


def _end_early(work: DecisionBuilder, step: Step) -> None:
    """The workflow itself says that it is done: what has not begun is skipped, except in a ``first`` that has
    begun.
    """
    try:
        result = work.fill(step.plan.args or Template((NULL.decode(),)), step.plan.payload_limit)
    except MissingValueError as missing:
        _unfit(work, step, str(missing))
        return
    work.move(step, "done", "decided", result=result)
    open_races = races.under_way(work)
    for each in work.steps():
        if each.state not in ("waiting", "ready") or each.doing is not None or each.plan.idx in open_races:
            continue
        if not each.loser:
            rest = halt(work, each, "skipped", "ended_early")
            if rest.state == "waiting":
                work.move(rest, "skipped", "ended_early")


def _decide(work: DecisionBuilder, step: Step) -> None:
    try:
        if step.plan.kind == "each" and (excess := control.excess(work, step.plan)):
            _over_limit(work, step, excess)
            return
        if step.plan.kind == "each" and (text := control.nearness(work, step.plan)):
            work.alert(
                Alert("near_limit", step=step.name, text=f"{text}: raise the limit, or give the task less")
            )
        result = control.decide(work, step)
    except MissingValueError as missing:
        _unfit(work, step, str(missing))
    else:
        work.move(step, "done", "decided", result=result)


def _look(work: DecisionBuilder, step: Step) -> None:
    """Look at a wait: whether what it waits for has come."""
    if step.state != "ready":
        return
    try:
        if step.plan.kind == "wait_for":
            _listen(work, step)
        elif not step.waiting:
            waits.look(work, step)
    except MissingValueError as missing:
        _unfit(work, step, str(missing))


def _listen(work: DecisionBuilder, step: Step) -> None:
    """Look at a wait for a signal: whether one has come, or its time is over.

    Raises ``MissingValueError`` if what it gives without a signal cannot be put together.
    """
    plan = step.plan
    if (signal := signals.take(work, step)) is not None:
        waits.end(work, step, "signal_came", detail=signal.id, result=signal.value)
    elif rules.time_is_over(work.agenda.due, step):
        if plan.sides:
            waits.end(work, step, "timed_out", result=work.fill(plan.sides[0], plan.payload_limit))
            return
        text = f"no signal {plan.action} within {short_duration(signals.timeout(step) or 0.0)}"
        fall(work, work.move(step, "failed", "no_signal", detail=text, error=text), text)
    elif not step.waiting and (timeout := signals.timeout(step)) is not None:
        work.timer(step, timeout)


def _fail(work: DecisionBuilder, step: Step) -> None:
    """The workflow itself says that the task fails, and why."""
    try:
        text = waits.failure(work, step)
    except MissingValueError as missing:
        _unfit(work, step, str(missing))
        return
    fall(work, work.move(step, "failed", "workflow_fails", detail=text, error=text), text, name="")


def finish(work: DecisionBuilder) -> None:
    """End a task whose every step is done or skipped."""
    task = work.task
    early = next((s.result for s in work.steps() if s.plan.kind == "done" and s.state == "done"), None)
    try:
        limit = max((step.plan.payload_limit for step in work.steps()), default=PAYLOAD_LIMIT)
        result = early or (NULL if task.returns is None else work.fill(task.returns, limit))
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
        step = work.step(idx)
        if step.state not in ("waiting", "ready"):  # skipped meanwhile
            continue
        if rules.is_forgotten(step, work.at.now):
            _doubt_old_key(work, step)
        else:
            requests.append((idx, "do"))
    for idx in work.agenda.doubts:
        _recover(work, work.step(idx), requests)
    with_arguments: list[tuple[Step, Doing, bytes]] = []
    for idx, doing in requests:
        step = work.step(idx)
        if step.loser:
            continue
        try:
            with_arguments.append((step, doing, work.arguments(step.plan)))
        except MissingValueError as missing:
            _unfit(work, step, str(missing))
    if work.task.goal != "forward":
        return
    for step, doing, args in with_arguments:
        if work.step(step.plan.idx).loser:
            continue
        if doing == "do":
            work.begin(step, args)
        else:
            work.send(step, doing, args)


def _recover(work: DecisionBuilder, step: Step, requests: list[tuple[int, Doing]]) -> None:
    """Follow up a step in doubt: probe, try again now or later, or the verdict."""
    if step.state != "in_doubt" or not rules.idle(step) or not rules.goes_forward(work.task, step):
        return
    idx, policy = step.plan.idx, rules.policy(step)
    if rules.can_probe(step):
        requests.append((idx, "probe"))
        return
    following = None if step.final else rules.next_try(step)
    if following == "do" and rules.is_forgotten(step, work.at.now):
        following = rules.request_if_forgotten(step)
    choice = rules.what_follows(step)
    wait = policy.wait if choice == "retry" else policy.extended
    if following is None or choice in ("undo", "hold"):
        _give_up(work, step)
    elif idx in work.agenda.due or step.failures == 0:
        requests.append((idx, following))
    elif following == "do" and not policy.probe and rules.is_forgotten(step, work.at.now + wait):
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
    alert = Alert("step_gave_up", step=step.name, text=f"{step.name}: {detail}; {certainty}")
    fall(work, step, detail, hold=holds, alert=alert)


def _unfit(work: DecisionBuilder, step: Step, text: str) -> None:
    """Fail a step whose request cannot be made: it certainly did nothing now. A step in doubt stays in
    doubt.
    """
    if not rules.goes_forward(work.task, step):
        return
    if step.state == "in_doubt":
        _give_up(work, work.put(replace(step, error=text, tally=None)))
        return
    if step.state == "waiting":
        step = work.move(step, "ready", "preceded")
    step = work.move(step, "failed", "arguments_missing", detail=text, error=text)
    fall(
        work,
        step,
        text,
        alert=Alert("step_gave_up", step=step.name, text=f"{step.name} cannot begin: {text}"),
    )


def _over_limit(work: DecisionBuilder, step: Step, text: str) -> None:
    """Hold a task whose ``each`` has more items than it may: what was done stays until somebody decides."""
    step = work.move(step, "failed", "over_limit", detail=text, error=text)
    alert = Alert("step_gave_up", step=step.name, text=f"{step.name} cannot begin: {text}")
    fall(work, step, text, hold=True, alert=alert)


# -- the verdict ---------------------------------------------------------------------------------------------


def fall(
    work: DecisionBuilder,
    step: Step,
    detail: str,
    *,
    name: str | None = None,
    hold: bool = False,
    alert: Alert | None = None,
) -> None:
    """A step has failed for good: its branch loses if another one may still be done, else the task turns.

    ``name``: that of the step in the task's cause, if it is another. ``hold``: the step says hold. ``alert``:
    raised if the task turns.
    """
    if not rules.goes_forward(work.task, step):
        return
    label = step.name if name is None else name
    place = races.place_of(work, step)
    if place is not None:
        _branch_falls(work, *place, ": ".join(filter(None, (label, detail))), hold=hold, alert=alert)
        return
    if alert is not None:
        work.alert(alert)
    turn(work, "step_failed", step=label, detail=detail, hold=hold)


def _branch_falls(
    work: DecisionBuilder,
    first: Step,
    branch: int,
    cause: str,
    *,
    hold: bool = False,
    alert: Alert | None = None,
) -> None:
    """A branch has failed: it loses, or with the last one the ``first`` has failed."""
    causes = races.fail(work, first, branch, cause)
    if causes:
        first = work.move(work.step(first.plan.idx), "ready", "preceded")
        first = work.move(first, "failed", "all_failed", detail=causes, error=causes)
        fall(work, first, causes, hold=hold, alert=alert)


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
