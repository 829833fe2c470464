"""One task: what happened, what is in place, what comes next and when, what you can do."""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from makegood.base import ids
from makegood.base.durations import brief
from makegood.console import looks
from makegood.console.attempt_lines import AttemptLine, attempt_lines
from makegood.console.attempts import Course, course
from makegood.console.day_time import near_time
from makegood.console.gantt import TimeChart
from makegood.console.in_place import InPlace, Undoing, in_place, should_not, undo_preview
from makegood.console.ladder import LadderRow, LadderStep, ladder
from makegood.console.long_ladder import fold, long_ladder, state_counts
from makegood.console.moves import HistoryRow, history_rows
from makegood.console.offers import Offers, offers
from makegood.console.reads import Reads
from makegood.console.rungs import rungs
from makegood.console.timeline import TimeRow, timeline
from makegood.console.verdict import TaskVerdict, verdict_of
from makegood.console.visits import number_in
from makegood.errors import TaskNotFoundError
from makegood.model import notices
from makegood.model.states import AT_REST
from makegood.store.lane_views import TaskLane
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
from makegood.story.lanes import place_text
from makegood.story.signals import fate
from makegood.story.steps import ORDER
from makegood.story.waits import listens

MOST_SIGNALS = 20
"""Signals that the page lists, at most."""
SHOWS = ("all", "decisions", "acts")


@dataclass(slots=True)
class Turn:
    """Where the task turned from forward to undo."""

    tone: str
    what: str
    at: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChoice:
    """What of a task a visitor wants to see."""

    submission: int | None = None
    """An older one, rebuilt from the history."""
    shows_skipped: bool = False
    """Whether to draw steps whose branch was not taken."""
    show: str = "all"
    """Which rows of the history."""
    open_each: str = ""
    """The ``each`` whose items have rows of their own in the drawing of time."""
    before: int | None = None
    """The history to show is the one before this sequence."""
    steps: StepPage | None = None
    """The page of steps; None for the overview, or all steps."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "TaskChoice":
        """Return what a query asks for: steps from one on, of one state, or both."""
        first, state, show = _number(query.get("steps", "")), query.get("state", ""), query.get("show", "")
        has_state = state in ORDER
        return cls(
            submission=_number(query.get("submission", "")),
            shows_skipped=query.get("skipped") == "1",
            show=show if show in SHOWS else "all",
            open_each=query.get("open", ""),
            before=number_in(query.get("before", "")),
            steps=StepPage(first or 0, state if has_state else None)
            if has_state or first is not None
            else None,
        )


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
    audits: Sequence[AuditView] = ()
    alerts: Sequence[AlertView] = ()
    nodes: Sequence[NodeView] = ()
    terms: Sequence[PastTerm] = ()
    identity: Identity | None = None
    now: float = 0.0


@dataclass(slots=True, kw_only=True)
class TaskPage:
    """What the page shows."""

    sources: TaskSources
    choice: TaskChoice
    found: TaskDetail
    """The task as it is; for an older submission, as it was then."""
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
    in_place: list[InPlace]
    wrong: int
    preview: list[Undoing]
    offers: Offers
    facts: list[tuple[str, str]]
    signals: list[tuple[str, str, float, str, str]]
    """Name, id, when it was sent, who sent it, and what became of it."""
    lanes: Sequence[tuple[TaskLane, str]]
    """Its places in its lanes as they are now, each in words."""
    skipped: int
    """Steps whose branch was not taken."""
    opened: str
    """The ``each`` that is open in the drawing of time."""
    states: list[tuple[str, int]]
    """Of a task that is too long for one page: how many of its steps are in which state."""
    older: int | None
    """The history before this sequence is on a page of its own."""

    @property
    def name(self) -> str:
        """What people call the task."""
        return self.found.task.key or ids.show(self.found.task.id)

    @property
    def alerts(self) -> list[AlertView]:
        """Its open alerts."""
        return [alert for alert in self.sources.alerts if alert.open]

    @property
    def path(self) -> str:
        """The address of the page below the console's own."""
        return f"/tasks/{ids.show(self.found.task.id)}"

    @property
    def continues(self) -> str:
        """When the task continues if nobody acts on it."""
        listening = [step for step in self.found.steps if listens(step)]
        if not listening:
            return "by itself"
        has_limit = any(step.due is not None for step in listening)
        return f"when the signal comes{', or at its timeout' if has_limit else ''}"

    @property
    def current(self) -> bool:
        """Whether the page shows the task as it is now."""
        return self.submission == self.submissions[-1]

    def query(self, **changes: object) -> dict[str, object]:
        """Return the query of a link to this page that keeps what is shown, except for ``changes``."""
        choice = self.choice
        parameters: dict[str, object] = {
            "submission": None if self.current else self.submission,
            "skipped": "1" if choice.shows_skipped else None,
            "show": None if choice.show == "all" else choice.show,
            "open": self.opened or None,
            "steps": choice.steps.first if choice.steps is not None else None,
            "state": choice.steps.state if choice.steps is not None else None,
            "before": choice.before,
        }
        return parameters | changes


async def context(reads: Reads, query: Mapping[str, str]) -> Callable[[], dict[str, Any]]:
    """Read what the page shows; return what makes the page of it. Raises ``TaskNotFoundError``."""
    task, choice = ids.parse(query["id"]), TaskChoice.of(query)
    part = await reads.excerpt(task, choice.steps)
    if part is None:
        raise TaskNotFoundError(f"there is no task {ids.show(task)}", task_id=ids.show(task))
    newest, ends = await reads.recent(task), set[int]()
    if choice.steps is None:
        ends = {idx for block in fold(part) for idx in (block.first, block.last)}
    elif part.page is None:
        choice = dataclasses.replace(choice, steps=None)
    sources = TaskSources(
        part=part,
        events=newest.events,
        more=newest.more,
        older=None if choice.before is None else await reads.recent(task, choice.before),
        names=await reads.step_names(task, sorted(ends)) if ends else {},
        audits=await reads.audit(task=task),
        alerts=await reads.alerts(task=task),
        nodes=await reads.nodes(),
        terms=await reads.past_terms(LEADER),
        identity=reads.store.identity,
        now=await reads.now(),
    )
    drawing = {"left_look": looks.left_look, "right_look": looks.right, "rung_line": looks.line}
    return lambda: {"page": task_page(sources, choice), **drawing}


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None


def task_page(sources: TaskSources, choice: TaskChoice) -> TaskPage:
    """Return the page of a task."""
    part, detail, events, now = sources.part, sources.part.detail, sources.events, sources.now
    is_long = detail.tally is not None
    current = max(1, detail.task.submission)
    submission = choice.submission or current
    if submission > current or is_long:  # it takes all steps to rebuild an older one
        submission = current
    if submission != current:
        detail, events = earlier(detail, events, submission)
    way = course(detail, events, now)
    began = way.began.get(submission, detail.task.created)
    names = {view.id: view.info.name for view in sources.nodes}
    steps = rungs(detail, way, now=now, nodes=names, shows_skipped=choice.shows_skipped)
    goal = "undo" if detail.task.goal == "undo" or detail.task.state in ("undoing", "undone") else "forward"
    entries = in_place(detail)
    steady = _steady(now, began, way)
    has_scheduler = any("scheduler" in view.info.roles and view.state == "alive" for view in sources.nodes)
    history = sources.older or TaskEvents(sources.events, sources.more)
    indices = part.page if part.page is not None else [step.idx for step in detail.steps]
    states = sum((Counter(block.states) for block in part.blocks), Counter())
    return TaskPage(
        sources=sources,
        choice=choice,
        found=detail,
        verdict=verdict_of(detail, way, has_scheduler=has_scheduler),
        rows=long_ladder(part, steps, sources.names, back=goal == "undo") if is_long else ladder(steps, goal=goal),
        goal=goal,
        turn=_turn(detail, way) if goal == "undo" else None,
        submission=submission,
        submissions=range(current if is_long else 1, current + 1),
        began=began,
        ended=way.ended.get(submission),
        chart=timeline(detail, way, _rows(steps), now=steady, nodes=names, submission=submission, open_each=choice.open_each),
        took=_took(detail, way, submission, steady),
        attempts=attempt_lines(
            detail, way, sources.nodes, identity=sources.identity, submission=submission, sizes=part.sizes,
            page=indices if is_long else (),
        ),
        asked=sum(a.submission == submission and a.end != "planned" for a in way.attempts),
        history=history_rows(
            history.events, sources.audits if sources.older is None else (), nodes=names, terms=sources.terms,
            steps={step.idx: step.name for step in detail.steps}, show=choice.show,
        ),
        in_place=entries,
        wrong=should_not(entries),
        preview=undo_preview(detail) if detail.task.state not in ("undone", "error") else [],
        offers=offers(detail) if submission == current else Offers(),
        facts=_facts(detail, names, way, now),
        signals=[(s.name, s.id, s.at, s.who, fate(s, detail.task.state)) for s in detail.signals[:MOST_SIGNALS]],
        lanes=[(place, place_text(place)) for place in detail.lanes] if submission == current else [],
        skipped=0 if is_long else sum(s.kind == "action" and s.state == "skipped" for s in detail.steps),
        opened=choice.open_each if any(step.anchor == choice.open_each for step in steps) else "",
        states=state_counts(states),
        older=history.events[0].seq if history.more and history.events else None,
    )  # fmt: skip


def earlier(
    detail: TaskDetail, events: Sequence[EventView], submission: int
) -> tuple[TaskDetail, list[EventView]]:
    """Return a task as it was at the end of an older submission, with the history until then."""
    past: list[EventView] = []
    count = 1
    for event in events:
        if any(
            move.of_task and move.before == "undone" and move.after in ("pending", "queued")
            for move in event.moves
        ):
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
    if (event := way.turn) is None:
        return None
    failed_step = next((move.name for move in event.moves if not move.of_task and move.after == "failed"), "")
    if not failed_step:
        return Turn("", "Turned", event.at, detail.task.cause)
    text = next((move.detail for move in event.moves if move.of_task and move.step == failed_step), "")
    reason = f"“{text}” is a certain no, so " if text else ""
    return Turn("fail", f"Turned: {failed_step} failed", event.at, f"{reason}makegood undoes what was done")


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
    deadline = "" if task.complete_by is None or end is not None else near_time(task.complete_by, now)
    if deadline and task.complete_by is not None and task.complete_by < now:
        deadline = f"passed at {deadline}"
    holder = f"nobody, last epoch {task.epoch}" if task.epoch else ""
    if task.locked_by is not None:
        holder = f"{names.get(task.locked_by, f'node {task.locked_by}')}, epoch {task.epoch}"
    facts = [
        ("workflow", f"{task.app}.{task.workflow}"),
        ("submitted", near_time(task.created, now)),
        ("took", "" if end is None else brief(max(0.0, end - task.created))),
        ("unanswered", f"{task.failure_count:,}" if task.failure_count else ""),
        ("deadline", deadline),
        ("held by", holder),
        ("submission", str(task.submission) if task.submission > 1 else ""),
        ("priority", str(task.priority) if task.priority else ""),
        ("correlation", task.correlation_id or ""),
        ("attributes", ", ".join(f"{name}={value}" for name, value in detail.attributes.items())),
        ("trace", _trace(detail.trace)),
        ("reply to", notices.safe_address(detail.reply_to) if detail.reply_to is not None else ""),
    ]
    return [(name, value) for name, value in facts if value]
