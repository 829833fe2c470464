"""The time of a task, as a Gantt chart: which Scheduler held it, and when each step was attempted.

The first row shows the holders. Each further row belongs to a *rung* of the ladder, the page's list of steps.
A rung is one step, or an ``each`` with all its items, drawn as one bar for the actions and one for the undos.
The items of an ``each`` that is open follow it with rows of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from makegood.console.attempts import Course, ShownAttempt
from makegood.console.gantt import Bar, TimeChart, chart, duration_text
from makegood.model.states import AT_REST
from makegood.store.views import TaskDetail

MOST_ROWS = 60
"""Rungs that are drawn, at most."""
MOST_ITEMS = 40
"""Items of an open ``each`` that are drawn, at most: those in trouble first."""

LOOKS: Mapping[str, str] = {
    "done": "ok", "failed": "fail", "no answer": "none", "later": "none", "running": "run", "planned": "plan",
    "undone": "undo", "undo failed": "need", "withdrawn": "none",
}  # fmt: skip
"""The style of a bar, by how its attempt ended."""
WORST = ("undo failed", "failed", "no answer", "running")
"""How an attempt can end, the worst first. The bar of an ``each`` looks like the worst of its items."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TimeRow:
    """A rung in the drawing."""

    name: str
    steps: Sequence[int]
    """The indices of the steps whose attempts it shows."""
    each: str = ""
    """The name of the ``each`` that the rung stands for, "" for a single step."""


def timeline(
    detail: TaskDetail,
    course: Course,
    rows: Sequence[TimeRow],
    *,
    now: float,
    nodes: Mapping[int, str],
    submission: int,
    open_each: str = "",
) -> TimeChart | None:
    """Return the drawing of a submission, None if nothing of it has a time yet.

    ``rows``: the rungs in order. ``now``: seconds since 1970, by the store's clock. ``nodes``: names by id.
    ``submission``: its number. ``open_each``: the ``each`` whose items have rows of their own.
    """
    attempts_by_step: dict[int, list[ShownAttempt]] = {}
    for attempt in course.attempts:
        if attempt.submission == submission:
            attempts_by_step.setdefault(attempt.idx, []).append(attempt)
    is_latest = submission == detail.task.submission
    is_running = is_latest and detail.task.state not in AT_REST
    end = now if is_running else course.ended.get(submission, now)
    step_names = {step.idx: step.name for step in detail.steps}
    names = ["held by"]  # of the rows drawn so far: the next one has the number len(names)
    bars = _holder_bars(course, submission, end, nodes)
    folds: dict[int, tuple[str, bool]] = {}
    items: set[int] = set()
    excess = 0
    for row in rows:
        attempts = [attempt for idx in row.steps for attempt in attempts_by_step.get(idx, ())]
        if not attempts:
            continue
        if len(names) - len(items) > MOST_ROWS:
            excess += 1
            continue
        bars += _bars(len(names), row.name, attempts, end, now, single=not row.each)
        names.append(row.name)
        if not row.each:
            continue
        folds[len(names) - 1] = row.each, row.each == open_each
        if row.each == open_each:
            indices = sorted(
                (idx for idx in row.steps if idx in attempts_by_step),
                key=lambda idx: _urgency(attempts_by_step[idx]),
            )
            excess += max(0, len(indices) - MOST_ITEMS)
            for idx in indices[:MOST_ITEMS]:
                name = step_names[idx]
                bars += _bars(len(names), name, attempts_by_step[idx], end, now, single=True)
                items.add(len(names))
                names.append(name)
    if not bars:
        return None
    turn_event = course.turn
    turn = turn_event.at if is_latest and turn_event is not None and detail.task.goal == "undo" else None
    origin = course.began.get(submission, detail.task.created)
    time_chart = chart(names, bars, origin=origin, now=now if is_running else None, turn=turn)
    time_chart.folds, time_chart.items, time_chart.more = folds, items, excess
    return time_chart


def _urgency(attempts: Sequence[ShownAttempt]) -> int:
    """Return how urgently an item with these attempts needs a person, 0 the most."""
    end = attempts[-1].end
    return WORST.index(end) if end in WORST else len(WORST)


def _holder_bars(course: Course, submission: int, end: float, nodes: Mapping[int, str]) -> list[Bar]:
    bars = []
    for holding in course.holdings:
        if holding.submission != submission:
            continue
        until = end if holding.end is None else holding.end
        if holding.node is None:
            title = f"no Scheduler held it for {duration_text(until - holding.start)}"
            bars.append(Bar(0, holding.start, until, "nobody", title=title))
            continue
        holder, epoch = nodes.get(holding.node, f"node {holding.node}"), f"epoch {holding.epoch}"
        bars.append(Bar(0, holding.start, until, "held", f"{holder} · {epoch}", title=f"{holder}, {epoch}"))
    return bars


def _bars(
    row: int, name: str, attempts: Sequence[ShownAttempt], end: float, now: float, *, single: bool
) -> list[Bar]:
    """Return a bar for each attempt of a ``single`` step; of an ``each``, one for its actions and one for its
    undos.
    """
    if single:
        return [_bar(row, name, attempt, end, now) for attempt in attempts if attempt.end != "withdrawn"]
    bars = []
    for undo in (False, True):
        calls = [a for a in attempts if (a.doing == "undo") is undo and a.end not in ("planned", "withdrawn")]
        if calls:
            ends = {a.end for a in calls}
            worst = next((kind for kind in WORST if kind in ends), "undone" if undo else "done")
            last = max(end if a.ended is None else a.ended for a in calls)
            title = f"{'undo of ' if undo else ''}{name}, {len(calls)} attempts: {worst}"
            bars.append(Bar(row, min(a.asked for a in calls), last, LOOKS[worst], title=title))
    return bars


def _bar(row: int, name: str, attempt: ShownAttempt, end: float, now: float) -> Bar:
    subject = {"do": name, "probe": f"probe of {name}", "undo": f"undo of {name}"}[attempt.doing]
    number = "" if attempt.number is None else f", attempt {attempt.number}"
    title = f"{subject}{number}: {attempt.end}"
    if attempt.end == "planned":
        text = f"in {duration_text(max(0.0, attempt.asked - now))}"
        return Bar(row, now, now, "plan", text, title=title)
    until = attempt.ended if attempt.ended is not None else max(end, attempt.asked)
    due = attempt.due if attempt.due is not None and attempt.due <= until else None
    if attempt.doing == "probe" and attempt.ended is not None:
        return Bar(row, until, until, "probe", due=due, late=attempt.late, title=title)
    start = min(attempt.asked, until)
    has_wait = attempt.taken is not None and attempt.taken - start >= 0.001
    call_start = attempt.taken if has_wait else None
    return Bar(row, start, until, LOOKS.get(attempt.end, "none"), "", call_start, due, attempt.late, title)
