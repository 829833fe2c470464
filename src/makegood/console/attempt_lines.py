"""The attempts of a task as lines, newest last: each with what its details show."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from makegood import saga
from makegood.base.durations import brief
from makegood.base.sizes import KIB
from makegood.base.text import first_line, has_more_lines
from makegood.console.attempts import Course, ShownAttempt
from makegood.errors import MissingValueError, PayloadError, StoreError
from makegood.model.shape import HeldTask
from makegood.model.states import TEXTS
from makegood.payload.envelopes import describe
from makegood.saga.rules import owner
from makegood.store.records import Identity
from makegood.store.views import NodeView, StepView, TaskDetail
from makegood.story.held_tasks import held_task_of
from makegood.story.steps import stem

MOST = 100
"""Lines of a page, at most: the latest."""
VALUES = 64 * KIB
"""Bytes of the arguments that a page shows."""
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
    left_out: tuple[tuple[str, int, str], ...] = ()
    """Values that are too large for the page: (what, bytes, its name as a file, "" if there is none)."""
    late: float | None = None
    trace: list[TraceLine] = field(default_factory=list)
    open: bool = False


def attempt_lines(
    detail: TaskDetail,
    course: Course,
    nodes: Sequence[NodeView],
    *,
    identity: Identity | None = None,
    submission: int,
    sizes: Mapping[str, int] = MappingProxyType({}),
    page: Collection[int] = (),
) -> list[AttemptLine]:
    """Return the lines of a submission.

    ``identity``: the store's, which keys and tokens hold. ``sizes``: bytes of values that were not read, by
    their names as files. ``page``: steps that have a line each, whether or not an attempt of theirs is known.
    """
    views = {view.idx: view for view in detail.steps}
    nodes_by_id = {view.id: view for view in nodes}
    try:
        whole: HeldTask | None = None if "inputs" in sizes else held_task_of(detail)
    except StoreError:
        whole = None
    mine = [a for a in course.attempts if a.submission == submission and a.end != "planned"]
    if page:
        mine = [attempt for attempt in mine if attempt.idx in page]
    anchors: dict[tuple[int, str], str] = {}
    all_lines: list[AttemptLine] = []
    for group in _group(mine, views):
        attempt = group[0]
        if len(group) > 1:
            all_lines.append(_together(group, views[attempt.idx]))
            continue
        prefix = {"do": "a", "probe": "p", "undo": "u"}[attempt.doing]
        first = anchors.setdefault((attempt.idx, attempt.doing), f"{prefix}-{attempt.idx}")
        duplicate = any(line.id == first for line in all_lines)
        peers = [a for a in course.of(attempt.idx) if a.doing == attempt.doing and a.end != "planned"]
        line = _line(attempt, views[attempt.idx])
        line.facts = _facts(detail, attempt, views[attempt.idx], nodes_by_id, identity)
        line.id = f"{first}-{len(all_lines)}" if duplicate else first
        _details(line, attempt, views[attempt.idx], whole, last=attempt is peers[-1])
        all_lines.append(line)
    known_steps = {attempt.idx for attempt in mine}
    all_lines += [
        _without_attempts(detail, views[idx], identity)
        for idx in sorted(page)
        if idx not in known_steps and idx in views and views[idx].kind == "action" and views[idx].attempt
    ]
    lines = all_lines[-MOST:]
    _leave_out(lines, sizes)
    return lines


def _without_attempts(detail: TaskDetail, view: StepView, identity: Identity | None) -> AttemptLine:
    """Return the line of a step whose attempts are all further back in the history."""
    attempt = ShownAttempt(
        idx=view.idx, step=view.name, doing="do", round=view.round, submission=detail.task.submission, asked=0.0, number=view.attempt
    )  # fmt: skip
    line = AttemptLine(
        id=f"a-{view.idx}", step=view.name, what=f"attempt {view.attempt}", state=view.state, said=view.state.replace("_", " "),
        words=first_line(view.error), at=None, result=view.result, trace=trace_lines(view.error or ""),
    )  # fmt: skip
    line.facts = _facts(detail, attempt, view, {}, identity)
    return line


def _leave_out(lines: Sequence[AttemptLine], sizes: Mapping[str, int]) -> None:
    """Leave out arguments once a page has enough of them, and name what was not read."""
    room = VALUES
    for line in reversed(lines):  # the latest are shown first
        kind, _, idx = line.id.partition("-")
        file = f"step-{idx}"
        if kind == "a" and file in sizes and line.said in ("done", "undone", "kept"):
            line.left_out = (("Result", sizes[file], file),)
        size = len(line.arguments or b"")
        if size > room or size > VALUES // 4:
            line.arguments, line.left_out = None, (("Arguments", size, ""), *line.left_out)
        else:
            room -= size


def _group(attempts: Sequence[ShownAttempt], views: Mapping[int, StepView]) -> list[list[ShownAttempt]]:
    """Join the calm attempts at items of one ``each``, if there are many."""
    groups: dict[object, list[ShownAttempt]] = {}
    for attempt in attempts:
        plan = views[attempt.idx].plan
        calm = attempt.end in ("done", "undone", "running")
        key: object = attempt
        if plan is not None and plan.nth >= 0 and calm:
            key = stem(attempt.step), attempt.doing, attempt.end, attempt.round
        groups.setdefault(key, []).append(attempt)
    runs: list[list[ShownAttempt]] = []
    for group in groups.values():
        runs += [group] if len(group) > MOST_ALIKE else [[attempt] for attempt in group]
    return sorted(runs, key=lambda group: group[0].asked)


def _together(group: Sequence[ShownAttempt], view: StepView) -> AttemptLine:
    first = group[0]
    state, label = _STATE[first.end]
    ends = [a.ended for a in group if a.ended is not None]
    span = f"in {brief(max(0.0, max(ends) - first.asked))}" if len(ends) == len(group) else ""
    name = stem(first.step)
    return AttemptLine(
        id=f"g-{first.doing}-{owner(view.plan) if view.plan is not None else view.idx}", step=f"{name} × {len(group):,}", what="undo" if first.doing == "undo" else "", state=state,
        said=f"{len(group):,} {label}", words=span, at=max(ends) if ends else None,
    )  # fmt: skip


def _line(attempt: ShownAttempt, view: StepView) -> AttemptLine:
    state, label = _STATE[attempt.end]
    number = "attempt" if attempt.number is None else f"attempt {attempt.number}"
    title = number
    if attempt.doing != "do":
        title = attempt.doing if attempt.number is None else f"{attempt.doing}, {number}"
    at = attempt.ended if attempt.ended is not None else attempt.asked
    return AttemptLine(
        id="", step=view.name, what=title, state=state, said=label, words=_words(attempt, view), at=at, late=attempt.late, open=attempt.end == "undo failed",
    )  # fmt: skip


def _words(attempt: ShownAttempt, view: StepView) -> str:
    error = attempt.error or (view.error or "" if attempt.end in ("failed", "undo failed") else "")
    if attempt.end in ("failed", "undo failed") and (reason := error or attempt.why or attempt.kind):
        return first_line(reason)
    if attempt.end == "no answer":
        late = f"; “{attempt.late_kind}” came too late" if attempt.late is not None else ""
        silent = attempt.why or TEXTS.get(attempt.kind, "no answer")
        if error and attempt.why:
            silent = f"{first_line(error)}; {attempt.why}"
        elif error:
            silent = first_line(error)
        return silent + late
    if attempt.ended is None:
        return "under way" if attempt.node is not None else "no process has taken it yet"
    return f"in {brief(max(0.0, attempt.ended - attempt.asked))}"


def _facts(
    detail: TaskDetail,
    attempt: ShownAttempt,
    view: StepView,
    nodes: Mapping[int, NodeView],
    identity: Identity | None,
) -> list[tuple[str, str]]:
    key, service_key = detail.keys_of(view, attempt.round, undo=attempt.doing == "undo")
    place, token, pickup = "", "", ""
    if attempt.node is not None:
        node = nodes.get(attempt.node)
        place = f" on node {attempt.node}"
        if node is not None:
            place = f" on {node.info.name}, {node.info.host}, pid {node.info.pid}"
    if attempt.number is not None and identity is not None:
        token = f"{identity.generation}.{attempt.number}"
    if attempt.taken is not None:
        delay = attempt.taken - attempt.asked
        pickup = f"{brief(delay)} after it was asked for" if delay >= 0.0005 else "at once"
    facts = [
        ("key", key),
        ("the service's form", "" if service_key == key else service_key),
        ("token", token),
        ("round", str(attempt.round) if attempt.round > 1 else ""),
        ("agent", f"{detail.task.app}/{view.agent}{place}"),
        ("taken", pickup),
        ("raised at", attempt.frame),
    ]
    return [(name, value) for name, value in facts if value]


def _details(
    line: AttemptLine, attempt: ShownAttempt, view: StepView, whole: HeldTask | None, *, last: bool
) -> None:
    """Add traceback, arguments and result: the step keeps those of its last attempt."""
    error = attempt.error
    if last and attempt.end in ("failed", "no answer", "undo failed"):
        error = error or view.error or ""
    line.trace = trace_lines(attempt.traceback or (error if has_more_lines(error) else ""))
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
    lines: list[TraceLine] = []
    frames: list[str] = []
    library = False
    for line in describe(text).splitlines():
        if frame := _FRAME.match(line):
            library = _of_a_library(frame[1])
        elif not line.startswith(" "):
            library = False
        if library:
            frames.append(line)
            continue
        if frames:
            lines.append(TraceLine(folded=tuple(frames)))
            frames = []
        own = line.startswith(" ")
        lines.append(TraceLine(text=line, own=own, error=not own and not line.startswith("Traceback")))
    if frames:
        lines.append(TraceLine(folded=tuple(frames)))
    return lines


def _of_a_library(path: str) -> bool:
    """Whether a file belongs to an installed package or to Python itself."""
    folders = ("/site-packages/", "/lib/python3", "/makegood/")
    return path.startswith("<") or any(folder in path.replace("\\", "/") for folder in folders)
