"""What is in place of a task, and what an undo would do: items of an ``each`` are grouped."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from makegood.client.undo_preview import Preview, listed, what_happens
from makegood.errors import StoreError
from makegood.store.views import StepView, TaskDetail

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


def undo_preview(found: TaskDetail) -> list[Undoing]:
    """Return what an undo would do, in its order; what stays comes last. Empty if nobody can know."""
    try:
        previews = listed(found)
    except StoreError:
        return []
    stays = [preview for preview in previews if "stays" in preview.happens]
    groups: dict[tuple[str, str], list[Preview]] = {}
    for preview in previews:
        if preview not in stays:
            groups.setdefault((stem(preview.step), preview.happens), []).append(preview)
    made = [
        Undoing(turn=_turns(each), name=name, happens=happens, count=len(each))
        for (name, happens), each in groups.items()
    ]
    why: dict[str, Counter[str]] = {}
    for preview in stays:
        why.setdefault(preview.happens, Counter())[stem(preview.step)] += 1
    made += [
        Undoing(turn="", name=", ".join(_times(name, n) for name, n in some.items()), happens=happens)
        for happens, some in why.items()
    ]
    return made[:MOST]


def _turns(previews: Sequence[Preview]) -> str:
    turns = sorted({preview.turn for preview in previews})
    return str(turns[0]) if len(turns) == 1 else f"{turns[0]}–{turns[-1]}"


def _times(name: str, count: int) -> str:
    return name if count == 1 else f"{name} × {count:,}"


def stem(step: StepView) -> str:
    """Return a step's name without the number of its item."""
    return step.name.partition("[")[0] if step.plan is not None and step.plan.nth >= 0 else step.name


def in_place(found: TaskDetail) -> list[InPlace]:
    """Return the effects that are, or may be, in place: those that should not be first."""
    made = [_entry(found, step) for step in found.steps if step.stands]
    joined: dict[tuple[str, str, str], InPlace] = {}
    for entry in made:
        known = joined.setdefault((entry.name, entry.icon, entry.words), entry)
        if known is not entry:
            known.count += 1
            known.result = None
    return sorted(
        joined.values(), key=lambda entry: (not entry.wrong, entry.tone != "need", entry.icon == "kept")
    )[:MOST]


def _entry(found: TaskDetail, step: StepView) -> InPlace:
    back = found.task.goal == "undo"
    name, known = stem(step), step.state not in ("running", "in_doubt") and step.result != b"null"
    result = step.result if known else None
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
            words=what_happens(step) if back else "in doubt: it may be in place",
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
