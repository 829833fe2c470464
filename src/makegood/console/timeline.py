"""The time of a task: who held it, and one row of attempts for each rung of its ladder."""

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
WORST = ("undo failed", "failed", "no answer", "running")
"""The look of an ``each`` is that of the first of these among its items."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TimeRow:
    """A rung in the drawing."""

    name: str
    steps: Sequence[int]
    """Those whose attempts it shows."""
    each: str = ""
    """Names an ``each`` whose row can be opened."""


def timeline(
    found: TaskDetail,
    course: Course,
    rows: Sequence[TimeRow],
    *,
    now: float,
    nodes: Mapping[int, str],
    submission: int,
    opened: str = "",
) -> TimeChart | None:
    """Return the drawing of a submission, None if nothing of it has a time yet.

    ``rows``: the rungs in order. ``opened``: the ``each`` whose items have rows of their own.
    """
    mine: dict[int, list[ShownAttempt]] = {}
    for attempt in course.attempts:
        if attempt.submission == submission:
            mine.setdefault(attempt.idx, []).append(attempt)
    last = submission == found.task.submission
    open_ = last and found.task.state not in AT_REST
    end = now if open_ else course.ended.get(submission, now)
    held = _held(course, submission, end, nodes)
    names, bars, folds, items, more = ["held by"], held, dict[int, tuple[str, bool]](), set[int](), 0
    for row in rows:
        attempts = [attempt for idx in row.steps for attempt in mine.get(idx, ())]
        if not attempts:
            continue
        if len(names) - len(items) > MOST_ROWS:
            more += 1
            continue
        bars += _bars(len(names), row.name, attempts, end, now, single=not row.each)
        names.append(row.name)
        if not row.each:
            continue
        folds[len(names) - 1] = row.each, row.each == opened
        if row.each == opened:
            begun = sorted((idx for idx in row.steps if idx in mine), key=lambda idx: _rank(mine[idx]))
            more += max(0, len(begun) - MOST_ITEMS)
            for idx in begun[:MOST_ITEMS]:
                name = found.steps[idx].name
                bars += _bars(len(names), name, mine[idx], end, now, single=True)
                items.add(len(names))
                names.append(name)
    if not bars:
        return None
    turned = course.turned
    turn = turned.at if last and turned is not None and found.task.goal == "undo" else None
    origin = course.began.get(submission, found.task.created)
    made = chart(names, bars, origin=origin, now=now if open_ else None, turn=turn)
    made.folds, made.items, made.more = folds, items, more
    return made


def _rank(attempts: Sequence[ShownAttempt]) -> int:
    """Return how much an item asks to be looked at, 0 the most."""
    end = attempts[-1].end
    return WORST.index(end) if end in WORST else len(WORST)


def _held(course: Course, submission: int, end: float, nodes: Mapping[int, str]) -> list[Bar]:
    made = []
    for holding in course.holdings:
        if holding.submission != submission:
            continue
        until = end if holding.end is None else holding.end
        if holding.node is None:
            title = f"no Scheduler held it for {duration_text(until - holding.start)}"
            made.append(Bar(row=0, start=holding.start, end=until, look="nobody", title=title))
            continue
        who = nodes.get(holding.node, f"node {holding.node}")
        made.append(
            Bar(
                row=0,
                start=holding.start,
                end=until,
                look="held",
                text=f"{who} · epoch {holding.epoch}",
                title=f"{who}, epoch {holding.epoch}",
            )
        )
    return made


def _bars(
    row: int, name: str, attempts: Sequence[ShownAttempt], end: float, now: float, *, single: bool
) -> list[Bar]:
    if single:
        return [_bar(row, name, attempt, end, now) for attempt in attempts if attempt.end != "withdrawn"]
    made = []
    for undo in (False, True):
        some = [a for a in attempts if (a.doing == "undo") is undo and a.end not in ("planned", "withdrawn")]
        if some:
            ends = {a.end for a in some}
            worst = next((kind for kind in WORST if kind in ends), "undone" if undo else "done")
            last = max(end if a.ended is None else a.ended for a in some)
            what = "undo of " if undo else ""
            title = f"{what}{name}, {len(some)} attempts: {worst}"
            made.append(
                Bar(row=row, start=min(a.asked for a in some), end=last, look=LOOKS[worst], title=title)
            )
    return made


def _bar(row: int, name: str, attempt: ShownAttempt, end: float, now: float) -> Bar:
    what = {"do": name, "probe": f"probe of {name}", "undo": f"undo of {name}"}[attempt.doing]
    number = "" if attempt.number is None else f", attempt {attempt.number}"
    title = f"{what}{number}: {attempt.end}"
    if attempt.end == "planned":
        return Bar(
            row=row,
            start=now,
            end=now,
            look="plan",
            text=f"in {duration_text(max(0.0, attempt.asked - now))}",
            title=title,
        )
    look = (
        "probe" if attempt.doing == "probe" and attempt.ended is not None else LOOKS.get(attempt.end, "none")
    )
    until = attempt.ended if attempt.ended is not None else max(end, attempt.asked)
    due = attempt.due if attempt.due is not None and attempt.due <= until else None
    start = min(attempt.asked, until)
    if look == "probe":
        start = until
    taken = (
        None if attempt.taken is None or look == "probe" or attempt.taken - start < 0.001 else attempt.taken
    )
    return Bar(
        row=row, start=start, end=until, look=look, taken=taken, due=due, late=attempt.late, title=title
    )
