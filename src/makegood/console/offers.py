"""The acts that are allowed on a task now: what each does, and the command that does the same."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from makegood import saga
from makegood.base import ids
from makegood.base.counts import quantity
from makegood.client.remedies import allowed_commands
from makegood.console.in_place import Undoing, undo_preview
from makegood.console.signal_forms import FormField, fields_of
from makegood.errors import StoreError
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.saga import rules
from makegood.store.views import TaskDetail
from makegood.story.held_tasks import held_task_of, task_of
from makegood.story.signals import receivable
from makegood.story.steps import join_names
from makegood.story.undo_preview import TOUCHED, needs_settling
from makegood.story.waits import listens

MOST_SETTLED = 5
"""Steps that get a form of their own, at most."""
MOST_SIGNALS = 10
"""Signals that get a form of their own, at most."""
MOST_SLEEPS = 100
"""Sleeps of which one can be ended alone, at most."""


@dataclass(slots=True, kw_only=True)
class ActOffer:
    """An act that the rules allow now."""

    act: str
    label: str
    verb: str
    """On the button that does it: verb and count."""
    title: str
    means: str
    command: str
    """The same on the command line."""
    look: str = ""
    """The look of its button: "", undo, main."""
    step: str = ""
    idx: int | None = None
    """Of ``step``."""
    settled: tuple[tuple[str, str], ...] = ()
    """(outcome, meaning) that the operator may state about ``step``."""
    steps: tuple[str, ...] = ()
    """Steps of which the operator chooses one: to correct its arguments, or to end this sleep alone."""
    previews: Sequence[Undoing] = ()
    role: str = "operator"
    icon: str = "undoing"
    reason: str = "kept in the audit"
    required: bool = False
    signal: str = ""
    """The name of the signal that it sends."""
    signal_id: str = ""
    """The same for all who look at the page now: of two who send, the second is told."""
    fields: tuple[FormField, ...] = ()
    """For the signal's value."""

    @property
    def id(self) -> str:
        """Names its dialog on the page."""
        return self.act if self.idx is None else f"{self.act}-{self.idx}"


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


def offers(detail: TaskDetail) -> Offers:
    """Return the acts that the rules would carry out now."""
    try:
        task = held_task_of(detail) if detail.tally is None else None
        messages = allowed_commands(detail)
    except StoreError:
        return Offers(
            refused=["The rows of this task cannot be read, so nobody can know what an act would do."]
        )
    result, settlements = Offers(), dict[int, list[str]]()
    for message in messages:
        if message.kind == "settle":
            settlements.setdefault(message.idx, []).append(message.settled)
            continue
        offer = _OFFERS[message.kind](detail)
        for warning in saga.warnings(task, message.kind, detail.now) if task is not None else ():
            offer.means += f" {warning[0].upper()}{warning[1:]}."
        result.acts.append(offer)
        if message.kind == "resubmit" and task is not None and (steps := _restarts(task)):
            result.acts.append(_edit(detail, steps))
    first = [_settle(detail, *settlement) for settlement in list(settlements.items())[:MOST_SETTLED]]
    result.more = max(0, len(settlements) - MOST_SETTLED)
    result.acts = first + result.acts if needs_settling(detail) else result.acts + first
    signals = [_signal(detail, *numbered) for numbered in enumerate(receivable(detail)[:MOST_SIGNALS])]
    awaited = [offer for offer in signals if offer.look]
    result.acts = [*awaited, *result.acts, *(offer for offer in signals if not offer.look)]
    if (release := _release_lane(detail)) is not None:
        result.acts.append(release)
    if rules.may_be_later(replace(task_of(detail), timed=detail.task.complete_by is not None)):
        result.acts.append(_extend(detail))
    if task is None and result.acts:
        result.refused.append(
            "The task is too long for this page to try a command: the rules decide it once you send it."
        )
    elif task is not None and detail.task.state in ("error", "undone") and result.find("resubmit") is None:
        answer = saga.try_command(task, TaskMessage("resubmit"), detail.now)
        result.refused.append(f"Resubmit is refused: {answer.outcome}.")
    return result


_MEANS = {
    "done": "It happened, and this is its result (JSON)",
    "failed": "It did not happen, and certainly cannot any more",
    "undone": "Somebody took its effect back by hand",
}


def _command(detail: TaskDetail, *words: str) -> str:
    return shlex.join(("makegood", "task", words[0], ids.show(detail.task.id), *words[1:]))


def _name(detail: TaskDetail) -> str:
    return detail.task.key or ids.show(detail.task.id)


def _effects(detail: TaskDetail, previews: Sequence[Undoing]) -> str:
    if detail.tally is not None:
        return f"what is left of {quantity(detail.count(*TOUCHED), 'step')}"
    count = sum(preview.count for preview in previews if preview.turn)
    return quantity(count, "effect") if count else "nothing"


def _cancel(detail: TaskDetail) -> ActOffer:
    previews = undo_preview(detail)
    effects = _effects(detail, previews)
    verb = f"Cancel, undo {effects}" if effects != "nothing" else "Cancel"
    return ActOffer(
        act="cancel", look="undo", label="Cancel…", verb=verb, title=f"Cancel {_name(detail)}, and undo {effects}",
        means="Ends it: makegood undoes what it did.", command=_command(detail, "cancel"), previews=previews,
    )  # fmt: skip


def _wake(detail: TaskDetail) -> ActOffer:
    sleeps = [step.name for step in detail.steps if step.kind == "sleep" and step.state == "ready"]
    if sleeps:
        several = len(sleeps) > 1
        return ActOffer(
            act="wake", icon="run", label="Wake…", verb="End now", title=f"Let {_name(detail)} continue now",
            means=f"Ends {join_names(sleeps)} before {'their moments' if several else 'its moment'}.",
            command=_command(detail, "wake"), steps=tuple(sleeps[:MOST_SLEEPS]) if several else (),
        )  # fmt: skip
    return ActOffer(
        act="wake", icon="run", label="Wake…", verb="Begin now", title=f"Let {_name(detail)} begin now",
        means="It begins now, before its start.", command=_command(detail, "wake"),
    )  # fmt: skip


def _undo(detail: TaskDetail) -> ActOffer:
    previews = undo_preview(detail)
    rest = "what is left of " if detail.task.goal == "undo" else ""
    offer = ActOffer(
        act="undo", look="undo", label="Undo…", verb=f"Undo {_effects(detail, previews)}", title=f"Undo {rest}{_name(detail)}",
        means="makegood undoes what the task did, in reverse order.", command=_command(detail, "undo"), previews=previews,
    )  # fmt: skip
    if again := [step.name for step in detail.steps if step.state == "undo_failed"]:
        offer.look, offer.label = "main", "Try the undo again…"
        offer.means = f"{join_names(again)} first, then what is left."
    return offer


def _restarts(task: HeldTask) -> tuple[str, ...]:
    """Return the steps that a resubmission would begin again."""
    return tuple(step.name for step in task.steps if step.plan.kind == "action" and rules.restarts(step))


def _resubmit(detail: TaskDetail) -> ActOffer:
    steps = _restarts(held_task_of(detail)) if detail.tally is None else ()
    begin = "step begins" if len(steps) == 1 else "steps begin"
    rounds = f"{len(steps):,} {begin} a new round under new keys: {join_names(steps, 6)}. " if steps else ""
    text = f"Resubmit {_name(detail)}"
    return ActOffer(
        act="resubmit", icon="again", label="Resubmit…", verb=text, title=text, means=f"{rounds}Sends it forward again.", command=_command(detail, "resubmit"),
    )  # fmt: skip


def _edit(detail: TaskDetail, steps: tuple[str, ...]) -> ActOffer:
    failures = [step.name for step in detail.steps if step.state == "failed" and step.name in steps]
    order = tuple(dict.fromkeys((*failures, *steps)))
    text = f"Resubmit {_name(detail)}"
    return ActOffer(
        act="edit", role="admin", icon="settle", label="Resubmit with other input…", verb=text, title=f"{text} with other input",
        means="A step that was refused is refused again, unless its arguments change.",
        command=_command(detail, "resubmit", "--step", order[0], "--input", "JSON"), steps=order[:100],
        reason="kept in the audit with your name", required=True,
    )  # fmt: skip


def _settle(detail: TaskDetail, idx: int, outcomes: Sequence[str]) -> ActOffer:
    step = next(view.name for view in detail.steps if view.idx == idx)
    flag = {"done": ("--done", "VALUE"), "failed": ("--not-done",), "undone": ("--undone",)}[outcomes[0]]
    title = f"Settle {step}{f' as {outcomes[0]}' if len(outcomes) == 1 else ''}"
    return ActOffer(
        act="settle", role="admin", icon="settle", idx=idx, label=f"{title}…", verb=f"Settle {step}", title=title, means="You say what happened, and makegood believes you.",
        command=_command(detail, "settle", "--step", step, *flag, "--reason", "HOW YOU KNOW"), step=step,
        settled=tuple((outcome, _MEANS[outcome]) for outcome in outcomes),
        reason="how do you know? Kept in the audit with your name", required=True,
    )  # fmt: skip


def _signal(detail: TaskDetail, idx: int, name: str) -> ActOffer:
    number = sum(signal.name == name for signal in detail.signals) + 1
    title = f"Send {name} to {_name(detail)}"
    is_awaited = any(listens(step) and step.action == name for step in detail.steps)
    return ActOffer(
        look="main" if is_awaited else "",
        act="signal", icon="send", idx=idx, label=f"Send {name}…", verb=f"Send {name}", title=title,
        means="The step that waits for it gets the value; if none waits yet, the task keeps it.",
        command=_command(detail, "signal", name, "VALUE"), signal=name, signal_id=f"console-{number}",
        fields=fields_of(detail.signal_types[name]),
    )  # fmt: skip


def _release_lane(detail: TaskDetail) -> ActOffer | None:
    """Return the release of the lanes of a task in error; None if it holds none."""
    names = [place.name for place in detail.lanes if place.place == "held"]
    if detail.task.state != "error" or not names:
        return None
    waits = any(place.behind for place in detail.lanes)
    return ActOffer(
        act="release_lane", icon="lock", label="Release its lanes…", verb="Release", title=f"Release the lanes of {_name(detail)}",
        means=f"{'The tasks that wait for' if waits else 'Others may take'} {join_names(names, 6)}{' continue' if waits else ''}. It stays in error, with its effects "
        "in place: look at them first.",
        command=shlex.join(("makegood", "lane", "release", ids.show(detail.task.id))),
    )  # fmt: skip


def _extend(detail: TaskDetail) -> ActOffer:
    return ActOffer(
        act="extend", role="admin", icon="waiting", label="Extend the deadline…", verb="Extend the deadline", title=f"Extend the deadline of {_name(detail)}",
        means="The whole task gets more time, at most a week from now.", command=_command(detail, "extend", "--by", "1h"),
    )  # fmt: skip


_OFFERS = {"wake": _wake, "cancel": _cancel, "undo": _undo, "resubmit": _resubmit}
