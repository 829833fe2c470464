"""From a task to the steps of its ladder: what is one rung, what follows what, and the words on each side.

An ``each`` with its items is one rung, and a ``when`` keeps its rung. Steps that only join what others
decided have none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from makegood.base.durations import brief
from makegood.console.attempts import Course, ForwardEnd, ShownAttempt
from makegood.console.conditions import condition_text, verdict_text
from makegood.console.day_time import day_time
from makegood.console.ladder import LadderStep, OddItem
from makegood.errors import StoreError
from makegood.model.attempt_end import probe_answer
from makegood.model.plan import StepPlan
from makegood.saga.held import predecessors
from makegood.saga.rules import SETTLED
from makegood.store.views import StepView, TaskDetail
from makegood.story.steps import JOINS, MOST_ODD, ODD, ORDER, TURNED, outermost, stem, winner_text
from makegood.story.undo_preview import fate, span_text, turns
from makegood.story.waits import listens, signal_text, sleep_text

MOST_TICKS = 12

CODES: Mapping[str, str] = {
    "done": "ok", "failed": "fail", "no answer": "none", "later": "later", "happened": "probe+", "not happened": "probe-",
    "undone": "undo", "undo failed": "bad", "running": "run", "planned": "plan",
}  # fmt: skip
"""The mark of an attempt, by how it ended."""

_BY = {"probe": "done, by probe", "by_hand": "done, by hand"}
"""Who had the answer that a step is done, if not its own reply."""

_UNDOS = {
    "done": "ghost", "in_doubt": "ghost", "running": "ghost", "undone": "undone", "undoing": "running", "undo_failed": "undo_failed",
}  # fmt: skip
"""State of an item -> how its undo is drawn."""


@dataclass(slots=True)
class _Reading:
    """What the words of a rung are made of."""

    found: TaskDetail
    course: Course
    now: float
    nodes: Mapping[int, str]
    goal: str
    turns: Mapping[int, int]


@dataclass(slots=True)
class _Rung:
    """A rung before it has words: one step, or the items of an ``each`` at one position of its body."""

    name: str
    views: list[StepView]
    before: set[int]
    each: StepView | None = None
    body: StepPlan | None = None


def rungs(
    detail: TaskDetail, course: Course, *, now: float, nodes: Mapping[int, str], shows_skipped: bool = False
) -> list[LadderStep]:
    """Return the steps of a task's ladder. ``shows_skipped``: with the steps whose branch was not taken."""
    try:
        turn_counts: Mapping[int, int] = turns(detail)
    except StoreError:  # rows that cannot be read have no order
        turn_counts = {}
    back = detail.task.goal == "undo" or detail.task.state in ("undoing", "undone")
    reading = _Reading(detail, course, now, nodes, "undo" if back else "forward", turn_counts)
    if detail.tally is None:
        drafts = _draft_rungs(detail.steps, shows_skipped=shows_skipped)
    else:  # each step has a rung: how they follow each other takes all of them
        drafts = [_Rung(view.name, [view], set()) for view in detail.steps if view.kind not in JOINS]
    steps = [_step(reading, n, draft, tuple(sorted(draft.before))) for n, draft in enumerate(drafts)]
    _say_what_they_wait_for(steps)
    _pick(steps)
    return steps


# -- what is one rung ----------------------------------------------------------------------------------------


def _draft_rungs(views: Sequence[StepView], *, shows_skipped: bool) -> list[_Rung]:
    """Return the rungs in the order of the plan, each with those before it by position."""
    views_by_idx = {view.idx: view for view in views}
    items: dict[int, list[StepView]] = {}
    top: list[StepView] = []
    for view in sorted(views, key=lambda view: view.idx):
        each = outermost(view, views_by_idx)
        if each is None:
            top.append(view)
        elif view.kind == "action":
            items.setdefault(each, []).append(view)
    drafts: list[_Rung] = []
    ends: dict[int, set[int]] = {}  # of each step: the rungs that whoever follows it comes after
    last: set[int] = set()
    for view in top:
        before = set(last) if view.plan is None else _before(view.plan, ends)
        if view.kind == "each":
            last = _each(view, items.get(view.idx, []), before, drafts)
        elif view.kind in JOINS or (view.state == "skipped" and not (shows_skipped or view.loser)):
            last = before
        else:
            drafts.append(_Rung(view.name, [view], before))
            last = {len(drafts) - 1}
        ends[view.idx] = last
    return drafts


def _before(plan: StepPlan, ends: Mapping[int, set[int]]) -> set[int]:
    return set().union(*(ends.get(p, set()) for p in predecessors(plan)))


def _each(each: StepView, items: Sequence[StepView], before: set[int], drafts: list[_Rung]) -> set[int]:
    """Add the rungs of an ``each``: one for each position of its body, in series."""
    body = [step for step in (each.plan.body if each.plan is not None else ()) if step.kind == "action"]
    groups: dict[str, list[StepView]] = {step.name: [] for step in body}
    for item in items:
        groups.setdefault(stem(item.name), []).append(item)
    declarations = {step.name: step for step in body}
    for name, views in groups.items():
        views.sort(key=lambda view: (view.plan.nth if view.plan is not None else 0, view.idx))
        drafts.append(_Rung(name, views, before, each, declarations.get(name)))
        before = {len(drafts) - 1}
    return before


# -- the words of a rung -------------------------------------------------------------------------------------


def _step(reading: _Reading, n: int, draft: _Rung, after: tuple[int, ...]) -> LadderStep:
    if draft.each is not None:
        return _group(reading, n, draft, draft.each, after)
    (view,) = draft.views
    step = LadderStep(idx=n, name=view.name, anchor=str(view.idx), state=view.state, after=after)
    if view.kind == "when":
        step.kind, step.undoable = "when", False
        step.name, step.text = condition_text(view, reading.found), verdict_text(view, reading.found)
        return step
    step.loser = view.loser
    if view.kind == "first":
        step.kind, step.undoable = "first", False
        step.text = winner_text(view, reading.found.steps) or view.state.replace("_", " ")
        return step
    if view.kind == "each":
        step.kind, step.undoable = "each", False
        step.text = "its items have rungs of their own" if view.state == "done" else ""
        return step
    mine = reading.course.of(view.idx)
    forward, undos = [a for a in mine if a.doing != "undo"], [a for a in mine if a.doing == "undo"]
    outcome = reading.course.forward.get(view.name, ForwardEnd(""))
    if view.state in TURNED:
        step.forward = "in_doubt" if outcome.state == "in_doubt" else "done"
    step.agent, step.round, step.turn = view.agent, view.round, str(reading.turns.get(view.idx, ""))
    step.undoable, step.no_return = view.undoable, view.no_return
    step.ticks, step.undo_ticks = ticks(forward, view.round), ticks(undos, view.round)
    step.took = took(forward, view.round)
    step.undo_took = took(undos, view.round) if view.state == "undone" else ""
    step.note, step.undo_note = _note(reading, view, outcome), _undo_note(reading, view)
    step.text = _BY.get(outcome.by, "") if view.state != "waiting" else ""
    step.undo_text, step.now = _undo_text(view), _now(reading, view)
    return step


def ticks(attempts: Iterable[ShownAttempt], round_: int) -> tuple[str, ...]:
    """Return the marks of a step's attempts, those of older rounds before a line."""
    codes: list[str] = []
    last = 0
    for attempt in attempts:
        code = CODES.get(attempt.end)
        if code is None:
            continue
        if last and attempt.round != last:
            codes.append("|")
        last = attempt.round
        codes.append(code if attempt.round >= round_ else f"~{code}")
    return tuple(codes[-MOST_TICKS:])


def took(attempts: Iterable[ShownAttempt], round_: int) -> str:
    """Return how long the attempts of a round took together, "" while they last."""
    mine = [a for a in attempts if a.round == round_ and a.end not in ("planned", "withdrawn")]
    if (
        not mine
        or mine[-1].ended is None
        or mine[-1].end in ("no answer", "later", "not happened", "running")
    ):
        return ""
    return brief(max(0.0, mine[-1].ended - mine[0].asked))


def _note(reading: _Reading, view: StepView, outcome: ForwardEnd) -> str:
    if view.state == "in_doubt":
        times = reading.course.silence(view.idx)
        return (view.error or "no answer by its deadline") + times + _probe_text(reading, view)
    if view.state == "failed":
        return view.error or ""
    if view.doing in ("do", "probe") and view.state == "running":
        return _in_flight(reading, view)
    if text := signal_text(view, reading.now) if listens(view) else sleep_text(view, reading.now):
        return _countdown_first(text)
    if view.waiting and view.state == "ready" and view.due is not None:
        return f"again at {day_time(reading.now + view.due)}" + (f": {view.error}" if view.error else "")
    if outcome.by == "probe":
        return "no answer at first; its probe found that it had happened"
    if reading.found.tally is not None and view.attempt > 1:
        return f"{view.attempt:,} attempts"
    return ""


def _countdown_first(text: str) -> str:
    """Return a text with how long is left at its beginning: a narrow ladder cuts the end.

    >>> _countdown_first("waits for approval, a signal, until 2026-11-29T08:18:36Z, 58s left")
    '58s left: waits for approval, a signal, until 2026-11-29T08:18:36Z'
    """
    head, _, end = text.rpartition(", ")
    return f"{end}: {head}" if end.endswith(" left") else text


def _probe_text(reading: _Reading, view: StepView) -> str:
    """Return what a step's probe answered last, and when; "" if it has not been asked."""
    last = next((a for a in reversed(reading.course.of(view.idx)) if a.doing == "probe" and a.ended), None)
    if last is None or last.ended is None:
        return ""
    return f"; its probe, at {day_time(last.ended)}: {probe_answer(last.kind, None if last.error == view.error else last.error)}"


def _in_flight(reading: _Reading, view: StepView) -> str:
    attempt = f"attempt {view.attempt}" if view.attempt > 1 else ""
    if view.taken_by is None:
        return ", ".join(filter(None, (attempt, "waits for an agent")))
    place = f"at {reading.nodes.get(view.taken_by, f'node {view.taken_by}')}"
    left = (
        ""
        if view.due is None
        else f"{'deadline' if view.due > 0 else 'overdue since'} {day_time(reading.now + view.due)}"
    )
    return ", ".join(filter(None, (f"{attempt} {place}".strip(), left)))


def _undo_note(reading: _Reading, view: StepView) -> str:
    if view.state == "undo_failed":
        return view.error or ""
    if view.state == "undoing":
        again = (
            f"again at {day_time(reading.now + view.due)}" if view.waiting and view.due is not None else ""
        )
        flight = _in_flight(reading, view) if view.doing == "undo" and view.taken_by is not None else ""
        return "; ".join(filter(None, (view.error if view.failures else "", again or flight)))
    if view.stood and view.state != "kept":
        return f"an effect of round {max(1, view.round - 1)} is in place"
    return ""


def _undo_text(view: StepView) -> str:
    if view.state == "undoing":
        return f"undoing, attempt {view.attempt}" if view.failures else ""
    if view.state == "running":
        return "undone once it is answered"
    if view.state == "in_doubt":
        ahead = fate(view)
        return ahead.short or ahead.text
    return ""


def _now(reading: _Reading, view: StepView) -> str:
    """Return why this is a rung to look at."""
    if view.state == "undo_failed":
        return "need"
    if reading.found.task.state in ("processed", "undone", "pending", "sleeping", "queued"):
        return ""
    if view.state == "in_doubt" or (
        view.state == "failed" and reading.found.task.state == "error" and reading.goal != "undo"
    ):
        return "doubt"
    return {"running": "run", "ready": "run", "undoing": "undo"}.get(view.state, "")


def _pick(steps: Sequence[LadderStep]) -> None:
    """Leave marked only what matters most."""
    marks = {step.now for step in steps}
    drop = {"doubt", "run", "undo"} if "need" in marks else {"run"} if marks & {"doubt", "undo"} else set()
    for step in steps:
        if step.now in drop:
            step.now = ""


def _say_what_they_wait_for(steps: Sequence[LadderStep]) -> None:
    """Name, for each step that will be undone, the step behind it that is in its way."""
    followers: dict[int, list[LadderStep]] = {step.idx: [] for step in steps}
    for step in steps:
        for before in step.after:
            followers[before].append(step)
    blockers: dict[int, str] = {}
    for step in reversed(steps):
        for follower in followers[step.idx]:
            if step.idx in blockers:
                break
            if follower.kind in ("when", "first") or follower.state in SETTLED:
                if follower.idx in blockers:
                    blockers[step.idx] = blockers[follower.idx]
            else:
                blockers[step.idx] = follower.name
        step.waits_for = blockers.get(step.idx, "")


# -- an each -------------------------------------------------------------------------------------------------


def _group(reading: _Reading, n: int, draft: _Rung, each: StepView, after: tuple[int, ...]) -> LadderStep:
    """Return the items of an ``each`` as one rung."""
    views = draft.views
    policy = draft.body.policy if draft.body is not None else None
    step = LadderStep(
        idx=n, name=draft.name, anchor=str(each.idx), agent=draft.body.agent if draft.body is not None else each.agent,
        after=after, undoable=policy is None or policy.undoable, no_return=policy is not None and policy.no_return,
        round=max((view.round for view in views), default=1),
    )  # fmt: skip
    if not views:
        step.kind, step.state = "each", each.state
        if each.state in ("done", "kept"):
            step.state, step.text = "done", "no items"
        return step
    step.count = len(views)
    states: Counter[str] = Counter(view.state for view in views)
    step.state = next((state for state in ORDER if states[state]), "skipped")
    if step.state in TURNED:
        step.forward = "done"
    forward = [_forward_state(reading, view) for view in views]
    step.items = tuple((state, view.idx) for state, view in zip(forward, views, strict=True))
    if any(view.undoable and not view.no_return for view in views):
        step.undo_items = tuple(_UNDOS.get(view.state, "idle") for view in views)
    step.text = _counts(Counter(forward), len(views))
    step.undo_text = _undo_counts(states, len(views), reading.goal)
    mine = [a for view in views for a in reading.course.of(view.idx)]
    step.took = _span([a for a in mine if a.doing != "undo"])
    step.undo_took = _span([a for a in mine if a.doing == "undo"]) if step.state == "undone" else ""
    step.turn = span_text([reading.turns[view.idx] for view in views if view.idx in reading.turns])
    odd = [view for view in views if view.state in ODD or (view.state == "undoing" and view.failures)]
    odd.sort(key=lambda view: ORDER.index(view.state))
    step.odd = tuple(
        OddItem(view.state, f"{view.name}: {view.error or view.state.replace('_', ' ')}", view.idx)
        for view in odd[:MOST_ODD]
    )
    step.more_odd = max(0, len(odd) - MOST_ODD)
    marks = {_now(reading, view) for view in views}
    step.now = next((now for now in ("need", "doubt", "undo", "run") if now in marks), "")
    return step


def _forward_state(reading: _Reading, view: StepView) -> str:
    if view.state in TURNED:
        return "in_doubt" if reading.course.forward.get(view.name) == ("in_doubt", "") else "done"
    return view.state


def _counts(states: Counter[str], total: int) -> str:
    """Say how the items are: "35 of 36 done, 1 in doubt".

    >>> _counts(Counter(done=35, in_doubt=1), 36)
    '35 of 36 done, 1 in doubt'
    """
    parts = [f"{states['done']:,} of {total:,} done"]
    parts += [
        f"{count:,} {state.replace('_', ' ')}"
        for state, count in states.items()
        if state not in ("done", "waiting", "skipped") and count
    ]
    return ", ".join(parts)


def _undo_counts(states: Counter[str], total: int, goal: str) -> str:
    if goal != "undo":
        return ""
    failures = [f"{states['undo_failed']:,} failed"] if states["undo_failed"] else []
    any_undone = states["undone"] or states["undoing"] or failures
    return ", ".join([*failures, f"{states['undone']:,} of {total:,} undone"]) if any_undone else ""


def _span(attempts: Sequence[ShownAttempt]) -> str:
    ends = [a.ended for a in attempts if a.ended is not None]
    return (
        brief(max(0.0, max(ends) - min(a.asked for a in attempts)))
        if ends and len(ends) == len(attempts)
        else ""
    )
