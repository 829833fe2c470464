"""The ladder: a task drawn as its steps, one rung each.

It goes up while the task goes forward, and unwinds while the task is undone. These are pure functions from
records to styled lines: ``tasks`` fetches the records and ``output`` writes the lines. Forward steps are
green or cyan, steps that are taken back magenta, and those that need somebody red or yellow::

    shop.place_order 0csdx3m2k0a4v  undoing  4.2s  card refused
      ↶ reserve  stock     undoing  undo, attempt 2, at web-7, 3.1s left
      ✗ charge   payments  failed   card refused
      · ship     carrier   waiting
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from types import MappingProxyType

from makegood.base import ids
from makegood.base.durations import short_duration
from makegood.cli.render.output import clock_time
from makegood.cli.render.style import STYLES, Line, Span
from makegood.model.attempt_end import probe_answer
from makegood.payload.envelopes import describe
from makegood.saga.rules import owner
from makegood.store.views import EventView, StepView, TaskDetail, TaskView
from makegood.story.steps import JOINS, MOST_ODD, ODD, QUIET, outermost, stem_of, why_it_stays, winner_text
from makegood.story.waits import listens, signal_text, sleep_text

MARKS: Mapping[str, tuple[str, str]] = {
    "waiting": ("·", "."), "ready": ("○", "o"), "running": ("▶", ">"), "done": ("✓", "+"), "failed": ("✗", "x"),
    "in_doubt": ("?", "?"), "undoing": ("↶", "<"), "undone": ("↩", "-"), "undo_failed": ("!", "!"), "kept": ("■", "="),
    "skipped": ("–", " "),
}  # fmt: skip
"""The mark of each state of a step: for terminals that show all of Unicode, and for the others."""

NO_NAMES: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Rung:
    """One step as drawn."""

    mark: str
    name: str
    where: str
    """Its agent."""
    state: str
    notes: str
    """Remarks besides its state."""


def ladder(
    detail: TaskDetail,
    *,
    now: float,
    nodes: Mapping[int, str] | None = None,
    unicode: bool = True,
    height: int | None = None,
) -> list[Line]:
    """Return a task as styled lines: a head, then its rungs in order.

    ``now``: the store's clock. ``nodes``: names of processes by number. ``unicode``: False for plain ASCII
    marks. ``height``: fold quiet steps together to fit into this many lines, as far as that is possible.
    """
    steps = in_order(detail.steps)
    rungs = [rung(step, nodes or {}, now=now, unicode=unicode) for step in steps]
    for n, step in enumerate(steps):
        if step.kind == "first" and (text := winner_text(step, steps)):
            rungs[n] = replace(rungs[n], notes=text)
    head = _head(detail.task, now)
    if height is not None and len(rungs) + len(head) > height:
        rungs = fold_items(steps, rungs)
    if height is not None and len(rungs) + len(head) > height:
        rungs = fold(rungs)
    widths = [max((len(getattr(r, part)) for r in rungs), default=0) for part in ("name", "where", "state")]
    return head + [_draw_rung(r, widths) for r in rungs]


def in_order(steps: Iterable[StepView]) -> list[StepView]:
    """Return the steps that are rungs, in the order of the plan.

    The items of an ``each`` follow it, item by item.
    """

    def place(step: StepView) -> tuple[tuple[int, int], ...]:
        owner_idx = -1 if step.plan is None else owner(step.plan)
        if step.plan is None or owner_idx not in by_idx:
            return ((-1, step.idx),)
        return (*place(by_idx[owner_idx]), (step.plan.nth, step.idx))

    by_idx = {step.idx: step for step in steps}
    return sorted((s for s in by_idx.values() if s.kind not in JOINS), key=place)


def rung(step: StepView, nodes: Mapping[int, str], *, now: float = 0.0, unicode: bool = True) -> Rung:
    """Return a step as it is drawn. ``now``: the store's clock."""
    mark = MARKS.get(step.state, ("?", "?"))[0 if unicode else 1]
    where = step.agent if step.kind == "action" else f"({step.kind})"
    return Rung(mark, step.name, where, step.state, ", ".join(_notes(step, nodes, now)))


def _notes(step: StepView, nodes: Mapping[int, str], now: float) -> list[str]:
    notes = ["lost"] if step.loser else []
    if step.round > 1:
        notes.append(f"round {step.round}")
    if step.doing in ("probe", "undo"):
        notes.append(step.doing)
    if step.attempt > 1 or (step.doing and step.attempt):
        notes.append(f"attempt {step.attempt}")
    if step.failures:
        notes.append(f"{step.failures} unanswered")
    if step.doing and step.taken_by is not None:
        notes.append(f"at {nodes.get(step.taken_by, f'node {step.taken_by}')}")
        if step.due is not None:
            notes.append(
                f"{short_duration(step.due)} left"
                if step.due > 0
                else f"overdue by {short_duration(-step.due)}"
            )
    elif step.doing:
        notes.append("waiting for an agent")
    elif listens(step):
        notes.append(signal_text(step, now))
    elif text := sleep_text(step, now):
        notes.append(text)
    elif step.waiting and step.due is not None:
        notes.append(f"again in {short_duration(max(step.due, 0.0))}")
    if step.doubt and step.state not in ("done", "undone"):
        notes.append("an earlier try is unanswered")
    if step.state == "kept" or (step.state == "done" and not step.undoable and step.kind == "action"):
        notes.append(why_it_stays(step))
    if (
        step.error
        and step.state not in ("done", "undone", "skipped")
        and not (step.loser and step.state == "kept")
    ):
        notes.append(describe(step.error))
    return notes


def fold_items(steps: Sequence[StepView], rungs: Sequence[Rung]) -> list[Rung]:
    """Return the rungs of steps, with the items of an ``each`` together: every step of its body has one rung
    for each state that its items are in. Of items that need somebody, a few keep their own.
    """
    by_idx = {step.idx: step for step in steps}
    result: list[Rung] = []
    for each, pairs in groupby(zip(steps, rungs, strict=True), key=lambda pair: outermost(pair[0], by_idx)):
        if each is None:
            result += [line for _, line in pairs]
            continue
        groups: dict[tuple[str, str], list[Rung]] = {}
        for step, line in pairs:
            groups.setdefault((stem_of(step), step.state), []).append(line)
        for (name, state), alike in groups.items():
            own = min(len(alike), MOST_ODD) if state in ODD else len(alike) if len(alike) < 3 else 0
            result += alike[:own]
            if rest := alike[own:]:
                notes = {line.notes for line in rest}
                count = f"{'and ' if own else ''}{len(rest):,} steps"
                result.append(
                    Rung(rest[0].mark, f"{name}[…]", count, state, notes.pop() if len(notes) == 1 else "")
                )
    return result


def fold(rungs: Sequence[Rung]) -> list[Rung]:
    """Return the rungs with each run of three or more quiet steps of one state drawn as one."""
    result: list[Rung] = []
    for state, alike in groupby(rungs, key=attrgetter("state")):
        run = list(alike)
        if state in QUIET and len(run) > 2:
            run = [Rung(run[0].mark, f"{run[0].name} to {run[-1].name}", f"{len(run)} steps", state, "")]
        result += run
    return result


def _head(task: TaskView, now: float) -> list[Line]:
    spans: list[Span] = [
        (f"{task.app}.{task.workflow} ", "bold"),
        (ids.show(task.id), ""),
        ("  ", ""),
        (task.state, STYLES.get(task.state, "")),
        (
            f"  {short_duration(max(0.0, (task.ended if task.ended is not None else now) - task.created))}",
            "dim",
        ),
    ]
    if task.submission > 1:
        spans.append((f"  submission {task.submission}", "dim"))
    if task.goal != "forward" and task.state in ("pending", "sleeping", "queued", "processing"):
        spans.append((f"  goal {task.goal}", STYLES["undoing"]))
    if task.cause:
        spans.append((f"  {describe(task.cause)}", "yellow"))
    return [spans]


def _draw_rung(r: Rung, widths: Sequence[int]) -> Line:
    style = STYLES.get(r.state, "")
    return [
        (f"  {r.mark} ", style),
        (f"{r.name:<{widths[0]}}  ", "dim" if r.state in ("waiting", "skipped") else ""),
        (f"{r.where:<{widths[1]}}  ", "dim"),
        (f"{r.state:<{widths[2]}}  ", style),
        (r.notes, "dim" if r.state in QUIET else ""),
    ]


def probe_answers(events: Iterable[EventView], steps: Mapping[int, str]) -> dict[str, tuple[float, str]]:
    """Return when each probe answered last, and what, by the name of its step; ``steps``: their names."""
    answers: dict[str, tuple[float, str]] = {}
    for event in events:
        for end in event.attempts:
            if end.doing == "probe" and not end.late and end.idx in steps:
                answers[steps[end.idx]] = event.at, probe_answer(end.kind, end.error)
        for move in event.moves:
            if move.reason == "probe" and move.after == "done":
                answers[move.name] = event.at, probe_answer("happened", None)
    return answers


def event_lines(
    event: EventView, *, steps: Mapping[int, str] = NO_NAMES, unicode: bool = True, width: int = 16
) -> list[Line]:
    """Return one event as lines, one per note and move: when, who, from which state to which, why.

    A probe's answer that moved nothing has a line of its own, if ``steps`` names its step.
    """
    arrow = "→" if unicode else "->"
    at = (f"{clock_time(event.at)}  ", "dim")
    lines: list[Line] = [
        [
            at,
            (f"{steps.get(note.idx, f'step {note.idx}'):<{width}}  ", ""),
            (note.text, ""),
            (f"  {note.facts}" if note.facts else "", "dim"),
        ]
        for note in event.notes
    ]
    lines += [
        [
            at,
            (f"{who:<{width}}  ", "bold" if who == "task" else ""),
            (f"{before} {arrow} ", "dim"),
            (after, STYLES.get(after, "")),
            (f"  {describe(why)}" if why else "", "dim"),
        ]
        for who, before, after, why in event.moves
    ]
    for name, (_, answer) in probe_answers([event], steps).items():
        if not any(move.name == name and move.reason == "probe" for move in event.moves):
            lines.append([at, (f"{name:<{width}}  ", ""), (f"probe: {answer}", "dim")])
    if event.note:
        lines.append([at, (f"{'':<{width}}  ", ""), (event.note, "dim")])
    return lines
