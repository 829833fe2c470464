"""What is in place of a task, and what an undo would do: items of an ``each`` are grouped."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from makegood.errors import StoreError
from makegood.store.views import StepView, TaskDetail
from makegood.story.step_names import stem_of
from makegood.story.undo_preview import Preview, fate, undo_order

MOST = 40
"""Entries of a list, at most."""


@dataclass(slots=True, kw_only=True)
class Undoing:
    """Steps that an undo treats alike in one turn."""

    turn: str
    """"" for what stays."""
    name: str
    happens: str
    count: int = 1


@dataclass(slots=True, kw_only=True)
class InPlace:
    """An effect that is, or may be, in place."""

    name: str
    icon: str
    tone: str
    words: str
    count: int = 1
    wrong: bool = False
    """Whether it should not be there any more."""
    result: bytes | None = None


def undo_preview(detail: TaskDetail) -> list[Undoing]:
    """Return what an undo would do, in its order; what stays comes last. Empty if nobody can know."""
    try:
        previews = undo_order(detail)
    except StoreError:
        return []
    stays = [preview for preview in previews if preview.stays]
    groups: dict[tuple[str, str], list[Preview]] = {}
    for preview in previews:
        if preview not in stays:
            groups.setdefault((stem(preview.step), preview.happens), []).append(preview)
    undoings = [
        Undoing(turn=_turns(steps), name=name, happens=happens, count=len(steps))
        for (name, happens), steps in groups.items()
    ]
    reasons: dict[str, Counter[str]] = {}
    for preview in stays:
        reasons.setdefault(preview.happens, Counter())[stem(preview.step)] += 1
    undoings += [
        Undoing(turn="", name=", ".join(_times(name, n) for name, n in counter.items()), happens=happens)
        for happens, counter in reasons.items()
    ]
    return undoings[:MOST]


def _turns(previews: Sequence[Preview]) -> str:
    turns = sorted({preview.turn for preview in previews})
    return str(turns[0]) if len(turns) == 1 else f"{turns[0]}–{turns[-1]}"


def _times(name: str, count: int) -> str:
    return name if count == 1 else f"{name} × {count:,}"


def stem(step: StepView) -> str:
    """Return a step's name without the number of its item."""
    return stem_of(step)


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
    back = detail.task.goal == "undo"
    name, has_result = stem(step), step.state not in ("running", "in_doubt") and step.result != b"null"
    result = step.result if has_result else None
    if step.state == "undo_failed":
        words = f"its undo failed: {step.error}" if step.error else "its undo failed"
        return InPlace(name=name, icon="undofailed", tone="need", words=words, wrong=True, result=result)
    if step.state == "kept" or (step.stood and step.state not in ("done", "in_doubt", "running", "undoing")):
        words = "no way back" if step.no_return else "kept: nothing to undo"
        return InPlace(name=name, icon="kept", tone="", words=words, result=result)
    if step.state == "in_doubt":
        return InPlace(
            name=name,
            icon="doubt",
            tone="doubt",
            words=fate(step).text if back else "in doubt: it may be in place",
            wrong=back,
        )
    if step.state == "undoing":
        return InPlace(
            name=name, icon="undoing", tone="undo", words="its undo is under way", result=result, wrong=back
        )
    if step.state == "running":
        return InPlace(name=name, icon="run", tone="run", words="running: it may be in place")
    if not step.undoable or step.no_return:
        words = "no way back" if step.no_return else "stays: nothing to undo"
        return InPlace(name=name, icon="kept", tone="", words=words, result=result)
    if back:
        words = "undone once what came after it is settled"
        return InPlace(name=name, icon="waiting", tone="", words=words, result=result, wrong=True)
    return InPlace(name=name, icon="done", tone="ok", words="", result=result)


def should_not(entries: Iterable[InPlace]) -> int:
    """Return how many effects should not be in place any more."""
    return sum(entry.count for entry in entries if entry.wrong)
