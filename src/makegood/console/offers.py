"""The acts that are allowed on a task now: what each does, and the command that does the same."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from makegood import saga
from makegood.base import ids
from makegood.base.counts import counted
from makegood.client.replanning import held
from makegood.client.undo_preview import needs_settling
from makegood.console.in_place import Undoing, undo_preview
from makegood.console.verdict import names
from makegood.errors import StoreError
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.saga import rules
from makegood.store.views import TaskDetail

MOST_SETTLED = 5
"""Steps that get a form of their own, at most."""


@dataclass(slots=True, kw_only=True)
class ActOffer:
    """An act that the rules allow now."""

    id: str
    """Names its dialog on the page."""
    act: str
    role: str
    icon: str
    look: str
    """The look of its button: "", undo, main."""
    label: str
    verb: str
    """On the button that does it: verb and count."""
    title: str
    means: str
    command: str
    """The same on the command line; "" if it has none."""
    step: str = ""
    settled: tuple[tuple[str, str], ...] = ()
    """(outcome, meaning) that the operator may state about ``step``."""
    steps: tuple[str, ...] = ()
    """Steps whose arguments may be corrected."""
    previews: list[Undoing] = field(default_factory=list)
    reason: str = "kept in the audit"
    required: bool = False


@dataclass(slots=True, kw_only=True)
class Offers:
    """What can be done, and what cannot be, with the reason."""

    acts: list[ActOffer] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    more: int = 0
    """Steps that could be settled and have no form here."""

    def find(self, act: str) -> ActOffer | None:
        """Return the offer of an act."""
        return next((offer for offer in self.acts if offer.act == act), None)


def offers(found: TaskDetail) -> Offers:
    """Return the acts that the rules would carry out now."""
    try:
        task = held(found)
        allowed = saga.lawful(task)
    except StoreError:
        return Offers(
            refused=["The rows of this task cannot be read, so nobody can know what an act would do."]
        )
    made = Offers()
    known = {step.idx: step.name for step in found.steps}
    settled: dict[str, list[tuple[str, str]]] = {}
    for message in allowed:
        if message.kind == "settle":
            settled.setdefault(known[message.idx], []).append((message.settled, _MEANS[message.settled]))
        else:
            made.acts.append(_OFFERS[message.kind](found))
            if message.kind == "resubmit" and (steps := _anew(found)):
                made.acts.append(_edit(found, steps))
    first = [_settle(found, name, tuple(outcomes)) for name, outcomes in list(settled.items())[:MOST_SETTLED]]
    made.more = max(0, len(settled) - MOST_SETTLED)
    made.acts = first + made.acts if needs_settling(found) else made.acts + first
    if _can_be_later(found, task):
        made.acts.append(_extend(found))
    if found.task.state in ("error", "undone") and made.find("resubmit") is None:
        answer = saga.tried(task, TaskMessage("resubmit"))
        made.refused.append(f"Resubmit is refused: {answer.outcome}.")
    return made


_MEANS = {
    "done": "It happened, and this is its result (JSON)",
    "failed": "It did not happen, and certainly cannot any more",
    "undone": "Somebody took its effect back by hand",
}


def _can_be_later(found: TaskDetail, task: HeldTask) -> bool:
    """Whether the task has a deadline that counts."""
    return rules.may_be_later(replace(task.task, timed=found.task.complete_by is not None))


def _command(found: TaskDetail, *words: str) -> str:
    return shlex.join(("makegood", "task", words[0], ids.show(found.task.id), *words[1:]))


def _name(found: TaskDetail) -> str:
    return found.task.key or ids.show(found.task.id)


def _effects(previews: Sequence[Undoing]) -> str:
    count = sum(preview.count for preview in previews if preview.turn)
    return counted(count, "effect") if count else "nothing"


def _cancel(found: TaskDetail) -> ActOffer:
    previews = undo_preview(found)
    what = _effects(previews)
    return ActOffer(
        id="cancel", act="cancel", role="operator", icon="undoing", look="undo", label="Cancel…",
        verb=f"Cancel, undo {what}" if what != "nothing" else "Cancel", title=f"Cancel {_name(found)}, and undo {what}",
        means="Ends it: makegood undoes what it did.", command=_command(found, "cancel"), previews=previews,
    )  # fmt: skip


def _undo(found: TaskDetail) -> ActOffer:
    previews = undo_preview(found)
    again = [step.name for step in found.steps if step.state == "undo_failed"]
    what = _effects(previews)
    label = "Try the undo again…" if again else "Undo…"
    means = (
        f"{names(again)} first, then what is left."
        if again
        else "makegood undoes what the task did, in reverse order."
    )
    return ActOffer(
        id="undo", act="undo", role="operator", icon="undoing", look="main" if again else "undo", label=label,
        verb=f"Undo {what}", title=f"Undo {'what is left of ' if found.task.goal == 'undo' else ''}{_name(found)}",
        means=means, command=_command(found, "undo"), previews=previews,
    )  # fmt: skip


def _anew(found: TaskDetail) -> tuple[str, ...]:
    """Return the steps that a resubmission would begin again."""
    return tuple(
        step.name for step in held(found).steps if step.plan.kind == "action" and rules.begins_anew(step)
    )


def _resubmit(found: TaskDetail) -> ActOffer:
    steps = _anew(found)
    begin = "step begins" if len(steps) == 1 else "steps begin"
    rounds = f"{len(steps):,} {begin} a new round under new keys: {names(steps, 6)}. " if steps else ""
    return ActOffer(
        id="resubmit", act="resubmit", role="operator", icon="again", look="", label="Resubmit…",
        verb=f"Resubmit {_name(found)}", title=f"Resubmit {_name(found)}",
        means=f"{rounds}Sends it forward again.", command=_command(found, "resubmit"),
    )  # fmt: skip


def _edit(found: TaskDetail, steps: tuple[str, ...]) -> ActOffer:
    failed = [step.name for step in found.steps if step.state == "failed" and step.name in steps]
    first = (failed or list(steps))[0]
    return ActOffer(
        id="edit", act="edit", role="admin", icon="settle", look="", label="Resubmit with other input…",
        verb=f"Resubmit {_name(found)}", title=f"Resubmit {_name(found)} with other input",
        means="A step that was refused is refused again, unless its arguments change.",
        command=_command(found, "resubmit", "--step", first, "--input", "JSON"), steps=(*failed, *(name for name in steps if name not in failed))[:100],
        reason="kept in the audit with your name", required=True,
    )  # fmt: skip


def _settle(found: TaskDetail, step: str, outcomes: tuple[tuple[str, str], ...]) -> ActOffer:
    flag = {"done": ("--done", "VALUE"), "failed": ("--not-done",), "undone": ("--undone",)}[outcomes[0][0]]
    only = f" as {outcomes[0][0]}" if len(outcomes) == 1 else ""
    return ActOffer(
        id=f"settle-{next(view.idx for view in found.steps if view.name == step)}", act="settle", role="admin", icon="settle", look="",
        label=f"Settle {step}{only}…", verb=f"Settle {step}", title=f"Settle {step}{only}",
        means="You say what happened, and makegood believes you.",
        command=_command(found, "settle", "--step", step, *flag, "--reason", "HOW YOU KNOW"), step=step, settled=outcomes,
        reason="how do you know? Kept in the audit with your name", required=True,
    )  # fmt: skip


def _extend(found: TaskDetail) -> ActOffer:
    return ActOffer(
        id="extend", act="extend", role="admin", icon="waiting", look="", label="Extend the deadline…", verb="Extend the deadline",
        title=f"Extend the deadline of {_name(found)}", means="The whole task gets more time, at most a week from now.",
        command=f"makegood task extend {ids.show(found.task.id)} --by 1h",
    )  # fmt: skip


_OFFERS = {"cancel": _cancel, "undo": _undo, "resubmit": _resubmit}
