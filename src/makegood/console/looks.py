"""How a rung of the ladder looks: icon, tone and words of its step on the left, of its undo on the right."""

from collections.abc import Mapping
from dataclasses import dataclass

from makegood.console.ladder import LadderRow, LadderStep


@dataclass(slots=True, kw_only=True)
class RungLook:
    """One side of a rung."""

    icon: str = ""
    tone: str = ""
    word: str = ""
    rail: str = ""
    """Of the left: "" solid, half, ahead (dotted)."""
    name: str = ""
    """Of the right: "" shows none."""
    more: str = ""
    bare: bool = False
    """Whether there is nothing but the rail."""
    line: str = ""
    """How the rung's line is drawn: stuck, undone, could, stays, "" for none."""


LOOKS: Mapping[str, tuple[str, str, str]] = {
    "waiting": ("dot", "idle", "waiting"), "ready": ("ready", "idle", "ready"), "running": ("run", "run", "running"),
    "done": ("done", "ok", "done"), "failed": ("failed", "fail", "failed"), "in_doubt": ("doubt", "doubt", "in doubt"),
    "undoing": ("undoing", "undo", "undoing"), "undone": ("undone", "undo", "undone"),
    "undo_failed": ("undofailed", "need", "undo failed"), "kept": ("kept", "kept", "kept"), "skipped": ("skipped", "idle", "skipped"),
}  # fmt: skip
"""State -> icon, tone, word."""

LINES = ("stuck", "undone", "could", "stays")


def left_look(step: LadderStep) -> RungLook:
    """Return the left side."""
    state = step.forward or step.state
    if state in ("undoing", "undone", "undo_failed", "kept"):
        state = "done"
    icon, tone, word = LOOKS.get(state) or ("dot", "idle", state)
    if step.kind == "when":
        icon, tone = "when", "ok" if state == "done" else "idle"
    under_way = state in ("ready", "running", "in_doubt") and not step.forward
    return RungLook(
        icon=icon,
        tone=tone,
        word=f"{step.text or word}{', lost' if step.loser else ''}",
        rail="ahead" if state == "waiting" else "half" if under_way else "",
    )


def right(step: LadderStep, goal: str) -> RungLook | None:
    """Return the right side, None for nothing at all."""
    if step.state == "waiting":
        return None
    if step.kind != "action" or step.state == "skipped":
        return RungLook(bare=True)
    stays = not step.undoable or step.no_return
    return (
        _would_be(step, stays=stays)
        if goal == "forward" and not step.loser
        else _is_undone(step, stays=stays)
    )


def _why(step: LadderStep) -> str:
    return "no way back" if step.no_return else "nothing to undo"


def _would_be(step: LadderStep, *, stays: bool) -> RungLook | None:
    """Return the right side of a task that goes forward: what an undo would do."""
    if step.state in ("ready", "failed"):
        return None if step.state == "ready" else RungLook(bare=True)
    if stays:
        return RungLook(icon="kept", tone="ghost", word=f"would stay: {_why(step)}", line="stays")
    return RungLook(icon="undoing", tone="ghost", word=step.undo_text or "would be undone", line="could")


def _is_undone(step: LadderStep, *, stays: bool) -> RungLook:
    """Return the right side of a task that is undone."""
    if step.state == "failed":
        return RungLook(icon="skipped", tone="ghost", word="nothing to undo: certainly did not happen")
    if step.state == "kept":
        return RungLook(icon="kept", tone="kept", name="in place", word="kept", more=_why(step), line="stays")
    if step.state in ("undoing", "undone", "undo_failed"):
        icon, tone, word = LOOKS[step.state]
        line = "stuck" if step.state == "undo_failed" else "undone"
        return RungLook(
            icon=icon, tone=tone, name=f"undo {step.name}", word=step.undo_text or word, line=line
        )
    if stays:
        return RungLook(icon="kept", tone="ghost", word=f"will stay: {_why(step)}", line="stays")
    word = f"waits for {step.waits_for}" if step.waits_for else step.undo_text or "will be undone"
    return RungLook(icon="waiting", tone="ghost", name=f"undo {step.name}", word=word, line="could")


def line(row: LadderRow, goal: str) -> str:
    """Return how the line of a rung is drawn: the strongest of its sides."""
    lines = {look.line for step in row.steps if (look := right(step, goal)) is not None}
    return next((kind for kind in LINES if kind in lines), "none")
