"""One task: what happened, what is in place, what comes next and when, what you can do."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from makegood.console.long_ladder import ORDER, counted_states, folded, long_ladder
from makegood.console.moves import HistoryRow, history_rows
from makegood.console.offers import Offers, offers
from makegood.console.rungs import rungs
from makegood.console.timeline import TimeRow, timeline
from makegood.console.verdict import TaskVerdict, verdict_of
from makegood.console.visits import number_in
from makegood.errors import TaskNotFoundError
from makegood.model import notices
from makegood.model.states import AT_REST
from makegood.store.records import Identity
from makegood.store.step_down import LEADER
from makegood.store.views import (
    AlertView,
    AuditView,
    EventView,
    NodeView,
    PastTerm,
    StepPage,
    TaskDetail,
    TaskEvents,
    TaskExcerpt,
)

SHOWS = ("all", "decisions", "acts")


class TaskReads(Protocol):
    """What the page reads of the store."""

    async def excerpt(self, task: int, page: StepPage | None = None) -> TaskExcerpt | None:
        """Return what the page shows of a task, with its undecided commands."""

    async def step_names(self, task: int, steps: Sequence[int]) -> dict[int, str]:
        """Return the names of these steps."""

    async def recent(self, task: int, before: int | None = None) -> TaskEvents:
        """Return the newest events of a task, or those before the sequence ``before``."""

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

    part: TaskExcerpt
    events: Sequence[EventView]
    """The newest ones."""
    older: TaskEvents | None = None
    """Those that the history shows, if they are not the newest."""
    more: bool = False
    """Whether there are events before the newest ones."""
    names: Mapping[int, str] = field(default_factory=dict)
    """Of the first and the last step of each block of a long task."""
    asked: StepPage | None = None
    """The page of steps that was asked for."""
    audits: Sequence[AuditView] = ()
    alerts: Sequence[AlertView] = ()
    nodes: Sequence[NodeView] = ()
    terms: Sequence[PastTerm] = ()
    identity: Identity | None = None
    now: float = 0.0

    @property
    def found(self) -> TaskDetail:
        """Return the task."""
        return self.part.detail


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
    submissions: range
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
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of what is too large for the page, by its name as a file."""
    total: int = 0
    """Steps of the task."""
    states: list[tuple[str, int]] = field(default_factory=list)
    """Of a task that is too long for one page: how many of its steps are in which state."""
    asked_page: StepPage | None = None
    """The page of steps that it shows; None for the overview, or all steps."""
    next_page: int | None = None
    """Where the next page of steps begins."""
    older: int | None = None
    """The history before this sequence is on a page of its own."""
    before: int | None = None
    """The history that is shown is the one before this sequence."""

    @property
    def path(self) -> str:
        """Return the address of the page below the console's own."""
        return f"/tasks/{ids.show(self.found.task.id)}"

    def query(self, **changes: object) -> dict[str, object]:
        """Return the query of a link to this page that keeps what is shown, except for ``changes``."""
        parameters: dict[str, object] = {
            "submission": None if self.current else self.submission,
            "skipped": "1" if self.shows_skipped else None,
            "show": None if self.show == "all" else self.show,
            "open": self.opened or None,
            "steps": self.asked_page.first if self.asked_page is not None else None,
            "state": self.asked_page.state if self.asked_page is not None else None,
            "before": self.before,
        }
        return parameters | changes

    @property
    def current(self) -> bool:
        """Whether the page shows the task as it is now."""
        return self.submission == self.submissions[-1]


async def context(reads: TaskReads, query: Mapping[str, str]) -> Callable[[], dict[str, Any]]:
    """Read what the page shows; return what makes the page of it. Raises ``TaskNotFoundError``."""
    task = ids.parse(query["id"])
    step_page = _asked_page(query)
    part = await reads.excerpt(task, step_page)
    if part is None:
        raise TaskNotFoundError(f"there is no task {ids.show(task)}", task_id=ids.show(task))
    newest, before = await reads.recent(task), number_in(query.get("before", ""))
    ends = (
        sorted({idx for block in folded(part) for idx in (block.first, block.last)})
        if step_page is None
        else []
    )
    sources = TaskSources(
        part=part,
        events=newest.events,
        more=newest.more,
        older=None if before is None else await reads.recent(task, before),
        names=await reads.step_names(task, ends) if ends else {},
        asked=step_page if part.page is not None else None,
        audits=await reads.audit(task=task),
        alerts=await reads.alerts(task=task),
        nodes=await reads.nodes(),
        terms=await reads.past_terms(LEADER),
        identity=getattr(getattr(reads, "store", None), "identity", None),
        now=await reads.now(),
    )
    show = query.get("show", "all")

    def page() -> dict[str, Any]:
        model = task_page(
            sources,
            submission=_number(query.get("submission", "")),
            shows_skipped=query.get("skipped") == "1",
            show=show if show in SHOWS else "all",
            open_each=query.get("open", ""),
            before=before,
        )
        return {"page": model, "left_look": looks.left, "right_look": looks.right, "rung_line": looks.line}

    return page


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None


def _asked_page(query: Mapping[str, str]) -> StepPage | None:
    """Return the page of steps that a query names: from a step on, of one state, or both."""
    first, state = _number(query.get("steps", "")), query.get("state", "")
    if first is None and state not in ORDER:
        return None
    return StepPage(first or 0, state if state in ORDER else None)


def task_page(
    sources: TaskSources,
    *,
    submission: int | None = None,
    shows_skipped: bool = False,
    show: str = "all",
    open_each: str = "",
    before: int | None = None,
) -> TaskPage:
    """Return the page of a task. ``submission``: an older one, rebuilt from the history; ``before``: the
    sequence before which ``sources.older`` was read.
    """
    current = max(1, sources.found.task.submission)
    shown_submission = submission if submission is not None and 1 <= submission <= current else current
    part, detail, events = sources.part, sources.found, sources.events
    if detail.tally is not None:
        shown_submission = current  # it takes all steps to rebuild an older one
    if shown_submission != current:
        detail, events = earlier(sources.found, sources.events, shown_submission)
    way = course(detail, events, sources.now)
    names = {view.id: view.info.name for view in sources.nodes}
    steps = rungs(detail, way, now=sources.now, nodes=names, shows_skipped=shows_skipped)
    goal = "undo" if detail.task.goal == "undo" or detail.task.state in ("undoing", "undone") else "forward"
    entries = in_place(detail)
    steady = _steady(sources.now, way.began.get(shown_submission, detail.task.created), way)
    has_scheduler = any("scheduler" in view.info.roles and view.state == "alive" for view in sources.nodes)
    history = sources.older or TaskEvents(sources.events, sources.more)
    indices = part.page if part.page is not None else [step.idx for step in detail.steps]
    return TaskPage(
        found=detail,
        now=sources.now,
        name=detail.task.key or ids.show(detail.task.id),
        verdict=verdict_of(detail, way, has_scheduler=has_scheduler),
        rows=ladder(steps, goal=goal)
        if detail.tally is None
        else long_ladder(part, steps, sources.names, back=goal == "undo"),
        goal=goal,
        turn=_turn(detail, way) if goal == "undo" else None,
        submission=shown_submission,
        submissions=range(1 if detail.tally is None else current, current + 1),
        began=way.began.get(shown_submission, detail.task.created),
        ended=way.ended.get(shown_submission),
        chart=timeline(detail, way, _rows(steps), now=steady, nodes=names, submission=shown_submission, open_each=open_each),
        took=_took(detail, way, shown_submission, steady),
        attempts=attempt_lines(
            detail, way, sources.nodes, identity=sources.identity, submission=shown_submission, sizes=part.sizes,
            page=() if detail.tally is None else indices,
        ),
        asked=sum(a.submission == shown_submission and a.end != "planned" for a in way.attempts),
        history=history_rows(
            history.events,
            sources.audits if sources.older is None else (),
            nodes=names,
            terms=sources.terms,
            steps={step.idx: step.name for step in detail.steps},
            show=show,
        ),
        show=show,
        in_place=entries,
        wrong=should_not(entries),
        preview=undo_preview(detail) if detail.task.state not in ("undone", "error") else [],
        offers=offers(detail) if shown_submission == current else Offers(),
        alerts=[alert for alert in sources.alerts if alert.open],
        facts=_facts(detail, names, way, sources.now),
        skipped=sum(step.kind == "action" and step.state == "skipped" for step in detail.steps)
        if detail.tally is None
        else 0,
        shows_skipped=shows_skipped,
        opened=open_each if any(step.anchor == open_each for step in steps) else "",
        sizes=part.sizes,
        total=part.total,
        states=_states(part),
        asked_page=sources.asked,
        next_page=part.next,
        older=history.events[0].seq if history.more and history.events else None,
        before=before if sources.older is not None else None,
    )  # fmt: skip


def _states(part: TaskExcerpt) -> list[tuple[str, int]]:
    """Return how many steps of a long task are in which state."""
    total: Counter[str] = Counter()
    for block in part.blocks:
        total.update(block.states)
    return counted_states(total)


def earlier(
    detail: TaskDetail, events: Sequence[EventView], submission: int
) -> tuple[TaskDetail, list[EventView]]:
    """Return a task as it was at the end of an older submission, with the history until then."""
    past: list[EventView] = []
    count = 1
    for event in events:
        if any(move.of_task and (move.before, move.after) == ("undone", "pending") for move in event.moves):
            count += 1
            if count > submission:
                break
        past.append(event)
    states: dict[str, Any] = {}
    errors: dict[str, str] = {}
    rounds: dict[str, int] = {}
    state, turn = "undone", None
    for event in past:
        for move in event.moves:
            if move.of_task:
                state = move.after
                if state == "undoing" and move.reason != "claimed":
                    turn = move
                continue
            states[move.name] = move.after
            if move.after == "undo_failed":
                errors[move.name] = move.why
            elif move.reason == "new_round":
                rounds[move.name] = rounds.get(move.name, 1) + 1
    if turn is not None and turn.step:
        errors.setdefault(turn.step, turn.detail)
    steps = [
        replace(
            step, state=states.get(step.name, "waiting"), round=rounds.get(step.name, 1), failures=0, doubt=False, doing=None,
            waiting=False, taken_by=None, due=None, error=errors.get(step.name), result=None, stood=False,
        )
        for step in detail.steps
    ]  # fmt: skip
    task = replace(
        detail.task,
        state=state,
        goal="undo",
        submission=submission,
        cause="" if turn is None else turn.why,
        result=None,
    )
    return replace(detail, task=task, steps=steps, asked=()), past


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


def _turn(detail: TaskDetail, way: Course) -> Turn | None:
    event = way.turned
    if event is None:
        return None
    failed_step = next((move.name for move in event.moves if not move.of_task and move.after == "failed"), "")
    cause = detail.task.cause
    if failed_step:
        text = next((move.detail for move in event.moves if move.of_task and move.step == failed_step), "")
        reason = (
            f"“{text}” is a certain no, so makegood undoes what was done"
            if text
            else "makegood undoes what was done"
        )
        return Turn(tone="fail", what=f"Turned: {failed_step} failed", at=event.at, why=reason)
    return Turn(tone="", what="Turned", at=event.at, why=cause)


def _took(detail: TaskDetail, way: Course, submission: int, now: float) -> str:
    start = way.began.get(submission, detail.task.created)
    open_ = detail.task.state not in AT_REST
    end = now if open_ else way.ended.get(submission, detail.task.ended or start)
    return f"{brief(max(0.0, end - start))}{' so far' if open_ else ''}"


def _trace(parent: str | None) -> str:
    """Return the id of the trace in which a task was submitted, "" if there is none.

    >>> _trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), _trace("strange")
    ('0af7651916cd43dd8448eb211c80319c', '')
    """
    match = re.match(r"[0-9a-f]{2}-([0-9a-f]{32})-", parent or "")
    return match[1] if match else ""


def _facts(detail: TaskDetail, names: Mapping[int, str], way: Course, now: float) -> list[tuple[str, str]]:
    task = detail.task
    end = way.ended.get(task.submission, task.ended) if task.state in AT_REST else None
    deadline = "" if task.complete_by is None or end is not None else day_time(task.complete_by)
    if deadline and task.complete_by is not None and task.complete_by < now:
        deadline = f"passed at {deadline}"
    holder = "" if task.locked_by is None else names.get(task.locked_by, f"node {task.locked_by}")
    facts = [
        ("workflow", f"{task.app}.{task.workflow}"),
        ("submitted", day_time(task.created)),
        ("took", "" if end is None else brief(max(0.0, end - task.created))),
        ("unanswered", f"{task.failure_count:,}" if task.failure_count else ""),
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
        ("trace", _trace(detail.trace)),
        ("reply to", notices.shown(detail.reply_to) if detail.reply_to is not None else ""),
    ]
    return [(name, value) for name, value in facts if value]
