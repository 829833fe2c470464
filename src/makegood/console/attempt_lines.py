"""The attempts of a task as lines, newest last: each with what its details show."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from makegood import saga
from makegood.base import ids
from makegood.base.durations import brief
from makegood.client.replanning import held
from makegood.console.attempts import Course, ShownAttempt
from makegood.errors import MissingValueError, PayloadError, StoreError
from makegood.model.shape import HeldTask
from makegood.saga.rules import owner
from makegood.store.records import Identity
from makegood.store.views import NodeView, StepView, TaskDetail

MOST = 200
"""Lines of a page, at most: the latest."""
MOST_ALIKE = 20
"""Attempts at items of one ``each`` that are lines of their own; more of them are one line."""

_STATE: Mapping[str, tuple[str, str]] = {
    "done": ("done", "done"), "failed": ("failed", "failed"), "no answer": ("in_doubt", "no answer"), "later": ("waiting", "later"),
    "withdrawn": ("skipped", "withdrawn"), "happened": ("done", "probe: happened"), "not happened": ("ready", "probe: not"),
    "undone": ("undone", "undone"), "undo failed": ("undo_failed", "undo failed"), "running": ("running", "running"),
    "planned": ("waiting", "planned"),
}  # fmt: skip
"""How an attempt ended -> the look of its badge, and its words."""

_FRAME = re.compile(r'^\s*File "(.+)", line \d+, in ')


@dataclass(slots=True, kw_only=True)
class TraceLine:
    """A line of a traceback, or a run of lines of libraries that are folded."""

    text: str = ""
    own: bool = False
    """Whether it is a frame of the user's own code."""
    error: bool = False
    folded: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class AttemptLine:
    """One line."""

    id: str
    step: str
    what: str
    state: str
    said: str
    words: str
    at: float | None
    facts: list[tuple[str, str]] = field(default_factory=list)
    mono: frozenset[str] = frozenset(("key",))
    arguments: bytes | None = None
    result: bytes | None = None
    late: float | None = None
    trace: list[TraceLine] = field(default_factory=list)
    open: bool = False


def attempt_lines(
    found: TaskDetail,
    course: Course,
    nodes: Sequence[NodeView],
    *,
    identity: Identity | None = None,
    submission: int,
) -> list[AttemptLine]:
    """Return the lines of a submission. ``identity``: the store's, which keys and tokens hold."""
    views = {view.idx: view for view in found.steps}
    known = {view.id: view for view in nodes}
    try:
        whole: HeldTask | None = held(found)
    except StoreError:
        whole = None
    mine = [a for a in course.attempts if a.submission == submission and a.end != "planned"]
    named: dict[tuple[int, str], str] = {}
    made: list[AttemptLine] = []
    for group in _grouped(mine, views):
        attempt = group[0]
        if len(group) > 1:
            made.append(_together(group, views[attempt.idx]))
            continue
        prefix = {"do": "a", "probe": "p", "undo": "u"}[attempt.doing]
        first = named.setdefault((attempt.idx, attempt.doing), f"{prefix}-{attempt.idx}")
        taken = any(line.id == first for line in made)
        line = _line(attempt, views[attempt.idx])
        line.facts = _facts(found, attempt, views[attempt.idx], known, identity)
        line.id = f"{first}-{len(made)}" if taken else first
        _details(line, attempt, views[attempt.idx], whole, last=_is_last(attempt, course))
        made.append(line)
    return made[-MOST:]


def _grouped(attempts: Sequence[ShownAttempt], views: Mapping[int, StepView]) -> list[list[ShownAttempt]]:
    """Join the calm attempts at items of one ``each``, if there are many."""
    groups: dict[object, list[ShownAttempt]] = {}
    for attempt in attempts:
        plan = views[attempt.idx].plan
        calm = attempt.end in ("done", "undone", "running")
        key: object = attempt
        if plan is not None and plan.nth >= 0 and calm:
            key = attempt.step.partition("[")[0], attempt.doing, attempt.end, attempt.round
        groups.setdefault(key, []).append(attempt)
    made: list[list[ShownAttempt]] = []
    for group in groups.values():
        made += [group] if len(group) > MOST_ALIKE else [[attempt] for attempt in group]
    return sorted(made, key=lambda group: group[0].asked)


def _together(group: Sequence[ShownAttempt], view: StepView) -> AttemptLine:
    first = group[0]
    state, said = _STATE[first.end]
    ends = [a.ended for a in group if a.ended is not None]
    span = f"in {brief(max(0.0, max(ends) - first.asked))}" if len(ends) == len(group) else ""
    stem = first.step.partition("[")[0]
    return AttemptLine(
        id=f"g-{first.doing}-{owner(view.plan) if view.plan is not None else view.idx}", step=f"{stem} × {len(group):,}", what="undo" if first.doing == "undo" else "", state=state,
        said=f"{len(group):,} {said}", words=span, at=max(ends) if ends else None,
    )  # fmt: skip


def _is_last(attempt: ShownAttempt, course: Course) -> bool:
    same = [
        a for a in course.attempts if a.idx == attempt.idx and a.doing == attempt.doing and a.end != "planned"
    ]
    return same[-1] is attempt


def _line(attempt: ShownAttempt, view: StepView) -> AttemptLine:
    state, said = _STATE[attempt.end]
    number = f"attempt {attempt.number}" if attempt.number is not None else "attempt"
    what = {
        "do": number,
        "probe": f"probe, {number}",
        "undo": f"undo, {number}",
    }[attempt.doing]
    if attempt.doing != "do" and attempt.number is None:
        what = attempt.doing
    return AttemptLine(
        id="", step=view.name, what=what, state=state, said=said, words=_words(attempt, view),
        at=attempt.ended if attempt.ended is not None else attempt.asked,
        late=attempt.late, open=attempt.end == "undo failed",
    )  # fmt: skip


def _words(attempt: ShownAttempt, view: StepView) -> str:
    error = attempt.error or (view.error or "" if attempt.end in ("failed", "undo failed") else "")
    if attempt.end in ("failed", "undo failed") and (error or attempt.why):
        return (error or attempt.why).partition("\n")[0]
    if attempt.end == "no answer":
        late = f"; “{attempt.late_kind}” came too late" if attempt.late is not None else ""
        silent = {"expired": "no answer by its deadline", "gave_up": "gave up after its tries"}.get(
            attempt.why, attempt.why
        )
        return (error.partition("\n")[0] or silent or "no answer") + late
    if attempt.ended is None:
        return "under way" if attempt.node is not None else "no process has taken it yet"
    return f"in {brief(max(0.0, attempt.ended - attempt.asked))}"


def _facts(
    found: TaskDetail,
    attempt: ShownAttempt,
    view: StepView,
    nodes: Mapping[int, NodeView],
    identity: Identity | None,
) -> list[tuple[str, str]]:
    direction = "undo" if attempt.doing == "undo" else "do"
    task = found.task
    key = (
        ids.key(identity.store_id, task.id, view.name, attempt.round, direction)
        if identity is not None
        else ""
    )
    node = nodes.get(attempt.node) if attempt.node is not None else None
    where = (
        f"on {node.info.name}, {node.info.host}, pid {node.info.pid}"
        if node is not None
        else f"on node {attempt.node}"
        if attempt.node is not None
        else ""
    )
    taken = ""
    if attempt.taken is not None:
        waited = attempt.taken - attempt.asked
        taken = f"{brief(waited)} after it was asked for" if waited >= 0.0005 else "at once"
    facts = [
        ("key", key),
        (
            "token",
            "" if attempt.number is None or identity is None else f"{identity.generation}.{attempt.number}",
        ),
        ("round", str(attempt.round) if attempt.round > 1 else ""),
        ("agent", f"{task.app}/{view.agent} {where}".strip()),
        ("taken", taken),
        ("raised at", attempt.frame),
    ]
    return [(name, value) for name, value in facts if value]


def _details(
    line: AttemptLine, attempt: ShownAttempt, view: StepView, whole: HeldTask | None, *, last: bool
) -> None:
    """Add traceback, arguments and result: the step keeps those of its last attempt."""
    error = attempt.error or (
        view.error or "" if last and attempt.end in ("failed", "no answer", "undo failed") else ""
    )
    line.trace = trace_lines(attempt.traceback or (error if "\n" in error else ""))
    if not last or whole is None or attempt.round != view.round or view.plan is None:
        return
    if attempt.doing == "do":
        line.result = view.result if attempt.end == "done" else None
    try:
        line.arguments = saga.arguments(whole, view.idx)
    except (MissingValueError, PayloadError):
        line.arguments = None


def trace_lines(text: str) -> list[TraceLine]:
    """Return an error text as lines, frames of libraries folded."""
    made: list[TraceLine] = []
    folded: list[str] = []
    library = False
    for line in text.splitlines():
        if frame := _FRAME.match(line):
            library = _of_a_library(frame[1])
        elif not line.startswith(" "):
            library = False
        if library:
            folded.append(line)
            continue
        if folded:
            made.append(TraceLine(folded=tuple(folded)))
            folded = []
        traced = line.startswith(" ")
        made.append(TraceLine(text=line, own=traced, error=not traced and not line.startswith("Traceback")))
    if folded:
        made.append(TraceLine(folded=tuple(folded)))
    return made


def _of_a_library(path: str) -> bool:
    """Whether a file belongs to an installed package or to Python itself."""
    parts = path.replace("\\", "/")
    return (
        "/site-packages/" in parts or "/lib/python3" in parts or "/makegood/" in parts or path.startswith("<")
    )
