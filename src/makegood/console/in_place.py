"""What is in place of a task, and what an undo would do: items of an ``each`` are grouped."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from makegood.errors import StoreError
from makegood.store.views import StepView, TaskDetail
from makegood.story.steps import stem_of, why_it_stays
from makegood.story.undo_preview import fate, span_text, undo_order

MOST = 40
"""Entries of a list, at most."""


@dataclass(frozen=True, slots=True)
class Undoing:
    """Steps that an undo treats alike in one turn."""

    turn: str
    """"" for what stays."""
    name: str
    happens: str
    count: int = 1


@dataclass(slots=True)
class InPlace:
    """An effect that is, or may be, in place."""

    name: str
    icon: str
    tone: str
    words: str
    wrong: bool
    """Whether it should not be there any more."""
    result: bytes | None = None
    count: int = 1


def undo_preview(detail: TaskDetail) -> list[Undoing]:
    """Return what an undo would do, in its order; what stays comes last. Empty if nobody can know."""
    try:
        previews = undo_order(detail)
    except StoreError:
        return []
    groups: dict[tuple[str, str], list[int]] = {}
    reasons: dict[str, Counter[str]] = {}
    for preview in previews:
        name = stem_of(preview.step)
        if preview.stays:
            reasons.setdefault(preview.happens, Counter())[name] += 1
        else:
            groups.setdefault((name, preview.happens), []).append(preview.turn)
    undoings = [
        Undoing(span_text(turns), name, happens, len(turns)) for (name, happens), turns in groups.items()
    ]
    for happens, counter in reasons.items():
        names = [name if n == 1 else f"{name} × {n:,}" for name, n in counter.items()]
        undoings.append(Undoing("", ", ".join(names), happens))
    return undoings[:MOST]


def in_place(detail: TaskDetail) -> list[InPlace]:
    """Return the effects that are, or may be, in place: those that should not be first."""
    entries = [_entry(detail, step) for step in detail.steps if step.stands]
    groups: dict[tuple[str, str, str], InPlace] = {}
    for entry in entries:
        first = groups.setdefault((entry.name, entry.icon, entry.words), entry)
        if first is not entry:
            first.count += 1
            first.result = None
    return sorted(
        groups.values(), key=lambda entry: (not entry.wrong, entry.tone != "need", entry.icon == "kept")
    )[:MOST]


def _entry(detail: TaskDetail, step: StepView) -> InPlace:
    icon, tone, words, wrong = _look(step, back=detail.task.goal == "undo")
    has_result = step.state not in ("running", "in_doubt") and step.result != b"null"
    return InPlace(stem_of(step), icon, tone, words, wrong, step.result if has_result else None)


def _look(step: StepView, *, back: bool) -> tuple[str, str, str, bool]:
    """Return the icon, the tone and the words of an effect, and whether it should not be there any more.

    ``back``: its task is undone.
    """
    if step.state == "undo_failed":
        return "undofailed", "need", f"its undo failed{f': {step.error}' if step.error else ''}", True
    if step.state == "in_doubt":
        return "doubt", "doubt", fate(step).text if back else "in doubt: it may be in place", back
    if step.state == "undoing":
        return "undoing", "undo", fate(step).text, back
    if step.state == "running":
        return "run", "run", "running: it may be in place", False
    is_kept = step.state != "done"
    if is_kept or not step.undoable or step.no_return:
        prefix = "" if step.no_return else "kept: " if is_kept else "stays: "
        return "kept", "", prefix + why_it_stays(step), False
    if back:
        return "waiting", "", "undone once what came after it is settled", True
    return "done", "ok", "", False


def should_not(entries: Iterable[InPlace]) -> int:
    """Return how many effects should not be in place any more."""
    return sum(entry.count for entry in entries if entry.wrong)
