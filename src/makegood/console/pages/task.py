"""One task: what happened, what is in place, what comes next and when, what you can do."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec.structs import replace

from makegood.base import ids
from makegood.base.durations import brief
from makegood.console import looks
from makegood.console.attempt_lines import AttemptLine, attempt_lines
from makegood.console.attempts import Course, course
from makegood.console.day_time import day_time
from makegood.console.gantt import TimeChart
from makegood.console.in_place import InPlace, Undoing, in_place, should_not, undo_preview
from makegood.console.ladder import LadderRow, LadderStep, ladder
from makegood.console.moves import HistoryRow, history_rows
from makegood.console.offers import Offers, offers
from makegood.console.rungs import rungs
from makegood.console.timeline import TimeRow, timeline
from makegood.console.verdict import TaskVerdict, verdict_of
from makegood.errors import TaskNotFoundError
from makegood.model import notices
from makegood.model.states import AT_REST
from makegood.store.records import Identity
from makegood.store.step_down import LEADER
from makegood.store.views import AlertView, AuditView, EventView, NodeView, PastTerm, TaskDetail

SHOWS = ("all", "decisions", "acts")


class TaskReads(Protocol):
    """What the page reads of the store."""

    async def detail(self, task: int) -> TaskDetail | None:
        """Return a task with its steps and its undecided commands."""

    async def history(self, task: int) -> Sequence[EventView]:
        """Return the history of a task."""

    async def audit(self, limit: int = 100, *, task: int | None = None) -> Sequence[AuditView]:
        """Return operators' acts, newest first."""

    async def alerts(
        self, limit: int = 100, *, task: int | None = None, ended: bool = False
    ) -> Sequence[AlertView]:
        """Return alerts, open ones first."""

    async def nodes(self) -> Sequence[NodeView]:
        """Return the processes."""

    async def past_terms(self, name: str, limit: int = 100) -> Sequence[PastTerm]:
        """Return who led, newest first."""

    async def now(self) -> float:
        """Return the time on the store's clock."""


@dataclass(slots=True, kw_only=True)
class Turn:
    """Where the task turned from forward to undo."""

    tone: str
    what: str
    at: float
    why: str


@dataclass(slots=True, kw_only=True)
class TaskSources:
    """What the page is made of: one look at the store."""

    found: TaskDetail
    events: Sequence[EventView]
    audits: Sequence[AuditView] = ()
    alerts: Sequence[AlertView] = ()
    nodes: Sequence[NodeView] = ()
    terms: Sequence[PastTerm] = ()
    identity: Identity | None = None
    now: float = 0.0


@dataclass(slots=True, kw_only=True)
class TaskPage:
    """What the page shows."""

    found: TaskDetail
    """The task as it is; for an older submission, as it was then."""
    now: float
    name: str
    verdict: TaskVerdict
    rows: list[LadderRow]
    goal: str
    """Of the ladder: forward or undo."""
    turn: Turn | None
    submission: int
    submissions: list[int]
    began: float
    ended: float | None
    chart: TimeChart | None
    took: str
    attempts: list[AttemptLine]
    asked: int
    """Attempts in all."""
    history: list[HistoryRow]
    show: str
    in_place: list[InPlace]
    wrong: int
    preview: list[Undoing]
    offers: Offers
    alerts: list[AlertView]
    facts: list[tuple[str, str]] = field(default_factory=list)
    skipped: int = 0
    """Steps whose branch was not taken."""
    shows_skipped: bool = False
    opened: str = ""
    """The ``each`` whose items have rows of their own in the drawing of time."""

    @property
    def path(self) -> str:
        """Return the address of the page below the console's own."""
        return f"/tasks/{ids.show(self.found.task.id)}"

    def query(self, **changes: object) -> dict[str, object]:
        """Return the query of a link to this page that keeps what is shown, except for ``changes``."""
        kept: dict[str, object] = {
            "submission": None if self.current else self.submission,
            "skipped": "1" if self.shows_skipped else None,
            "show": None if self.show == "all" else self.show,
            "open": self.opened or None,
        }
        return kept | changes

    @property
    def current(self) -> bool:
        """Whether the page shows the task as it is now."""
        return self.submission == self.submissions[-1]


async def context(reads: TaskReads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows. Raises ``TaskNotFoundError``."""
    task = ids.parse(query["id"])
    found = await reads.detail(task)
    if found is None:
        raise TaskNotFoundError(f"there is no task {ids.show(task)}", task_id=ids.show(task))
    sources = TaskSources(
        found=found,
        events=await reads.history(task),
        audits=await reads.audit(task=task),
        alerts=await reads.alerts(task=task),
        nodes=await reads.nodes(),
        terms=await reads.past_terms(LEADER),
        identity=getattr(getattr(reads, "store", None), "identity", None),
        now=await reads.now(),
    )
    asked = query.get("submission", "")
    wanted = int(asked) if asked.isascii() and asked.isdecimal() and len(asked) < 9 else None
    show = query.get("show", "all")
    made = task_page(
        sources,
        submission=wanted,
        skipped=query.get("skipped") == "1",
        show=show if show in SHOWS else "all",
        opened=query.get("open", ""),
    )
    return {"page": made, "left_look": looks.left, "right_look": looks.right, "rung_line": looks.line}


def task_page(
    sources: TaskSources,
    *,
    submission: int | None = None,
    skipped: bool = False,
    show: str = "all",
    opened: str = "",
) -> TaskPage:
    """Return the page of a task. ``submission``: an older one, rebuilt from the history."""
    current = sources.found.task.submission
    wanted = submission if submission is not None and 1 <= submission <= current else current
    found, events = sources.found, sources.events
    if wanted != current:
        found, events = earlier(sources.found, sources.events, wanted)
    way = course(found, events, sources.now)
    names = {view.id: view.info.name for view in sources.nodes}
    steps = rungs(found, way, now=sources.now, nodes=names, skipped=skipped)
    goal = "undo" if found.task.goal == "undo" or found.task.state in ("undoing", "undone") else "forward"
    entries, steady = in_place(found), _steady(sources.now, way.began.get(wanted, found.task.created), way)
    attended = any("scheduler" in view.info.roles and view.state == "alive" for view in sources.nodes)
    return TaskPage(
        found=found,
        now=sources.now,
        name=found.task.key or ids.show(found.task.id),
        verdict=verdict_of(found, way, attended=attended),
        rows=ladder(steps, goal=goal),
        goal=goal,
        turn=_turn(found, way) if goal == "undo" else None,
        submission=wanted,
        submissions=list(range(1, current + 1)),
        began=way.began.get(wanted, found.task.created),
        ended=way.ended.get(wanted),
        chart=timeline(found, way, _rows(steps), now=steady, nodes=names, submission=wanted, opened=opened),
        took=_took(found, way, wanted, steady),
        attempts=attempt_lines(found, way, sources.nodes, identity=sources.identity, submission=wanted),
        asked=sum(a.submission == wanted and a.end != "planned" for a in way.attempts),
        history=history_rows(
            sources.events,
            sources.audits,
            nodes=names,
            terms=sources.terms,
            steps={step.idx: step.name for step in found.steps},
            show=show,
        ),
        show=show,
        in_place=entries,
        wrong=should_not(entries),
        preview=undo_preview(found) if found.task.state not in ("undone", "error") else [],
        offers=offers(found) if wanted == current else Offers(),
        alerts=[alert for alert in sources.alerts if alert.open],
        facts=_facts(found, names, way, sources.now),
        skipped=sum(step.kind == "action" and step.state == "skipped" for step in found.steps),
        shows_skipped=skipped,
        opened=opened if any(step.anchor == opened for step in steps) else "",
    )


def earlier(
    found: TaskDetail, events: Sequence[EventView], submission: int
) -> tuple[TaskDetail, list[EventView]]:
    """Return a task as it was at the end of an older submission, with the history until then."""
    kept: list[EventView] = []
    begun = 1
    for event in events:
        if any(
            what == "task" and (was, state) == ("undone", "pending") for what, was, state, _ in event.moves
        ):
            begun += 1
            if begun > submission:
                break
        kept.append(event)
    states: dict[str, Any] = {}
    errors: dict[str, str] = {}
    rounds: dict[str, int] = {}
    cause = ""
    for event in kept:
        for what, _, state, why in event.moves:
            states[what] = state
            if what == "task" and state == "undoing":
                cause = why
            elif state == "undo_failed":
                errors[what] = why
            elif state == "waiting" and why.startswith("round "):
                rounds[what] = int(why.split()[1])
    name, _, text = cause.partition(": ")
    errors.setdefault(name, text)
    steps = [
        replace(
            step, state=states.get(step.name, "waiting"), round=rounds.get(step.name, 1), failures=0, doubt=False, doing=None,
            waiting=False, taken_by=None, due=None, error=errors.get(step.name), result=None, stood=False,
        )
        for step in found.steps
    ]  # fmt: skip
    task = replace(
        found.task,
        state=states.get("task", "undone"),
        goal="undo",
        submission=submission,
        cause=cause,
        result=None,
    )
    return replace(found, task=task, steps=steps, asked=()), kept


def _steady(now: float, began: float, way: Course) -> float:
    """Return the "now" of the drawing: it moves in steps, the longer the task lasts the longer ones."""
    step = max(1.0, (now - began) / 200)
    last = [a.ended if a.ended is not None else a.asked for a in way.attempts if a.end != "planned"]
    return max(began + (now - began) // step * step, *last, began)


def _rows(steps: Sequence[LadderStep]) -> list[TimeRow]:
    """Return the rows of the time: a rung's name, and the steps whose attempts it shows."""
    return [
        TimeRow(name=step.name, steps=[int(step.anchor)])
        if step.count is None
        else TimeRow(
            name=f"{step.name} × {step.count:,}",
            steps=[idx for _, idx in step.items],
            each=step.anchor if step.count > 1 else "",
        )
        for step in steps
        if step.kind == "action"
    ]


def _turn(found: TaskDetail, way: Course) -> Turn | None:
    event = way.turned
    if event is None:
        return None
    failed = next((name for name, was, state, _ in event.moves if name != "task" and state == "failed"), "")
    cause = found.task.cause
    if failed:
        text = cause.removeprefix(f"{failed}: ")
        why = (
            f"“{text}” is a certain no, so makegood undoes what was done"
            if text
            else "makegood undoes what was done"
        )
        return Turn(tone="fail", what=f"Turned: {failed} failed", at=event.at, why=why)
    return Turn(tone="", what="Turned", at=event.at, why=cause)


def _took(found: TaskDetail, way: Course, submission: int, now: float) -> str:
    begun = way.began.get(submission, found.task.created)
    open_ = found.task.state not in AT_REST
    end = now if open_ else way.ended.get(submission, found.task.ended or begun)
    return f"{brief(max(0.0, end - begun))}{' so far' if open_ else ''}"


def _trace(parent: str | None) -> str:
    """Return the id of the trace in which a task was submitted, "" if there is none.

    >>> _trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), _trace("strange")
    ('0af7651916cd43dd8448eb211c80319c', '')
    """
    found = re.match(r"[0-9a-f]{2}-([0-9a-f]{32})-", parent or "")
    return found[1] if found else ""


def _facts(found: TaskDetail, names: Mapping[int, str], way: Course, now: float) -> list[tuple[str, str]]:
    task = found.task
    ended = way.ended.get(task.submission, task.ended) if task.state in AT_REST else None
    deadline = "" if task.complete_by is None or ended is not None else day_time(task.complete_by)
    if deadline and task.complete_by is not None and task.complete_by < now:
        deadline = f"passed at {deadline}"
    holder = "" if task.locked_by is None else names.get(task.locked_by, f"node {task.locked_by}")
    facts = [
        ("workflow", f"{task.app}.{task.workflow}"),
        ("submitted", day_time(task.created)),
        ("took", "" if ended is None else brief(max(0.0, ended - task.created))),
        ("failures", f"{task.failure_count:,}" if task.failure_count else ""),
        ("deadline", deadline),
        (
            "held by",
            f"{holder}, epoch {task.epoch}"
            if holder
            else f"nobody, last epoch {task.epoch}"
            if task.epoch
            else "",
        ),
        ("submission", str(task.submission) if task.submission > 1 else ""),
        ("priority", str(task.priority) if task.priority else ""),
        ("correlation", task.correlation_id or ""),
        ("trace", _trace(found.trace)),
        ("reply to", notices.shown(found.reply_to) if found.reply_to is not None else ""),
    ]
    return [(name, value) for name, value in facts if value]
