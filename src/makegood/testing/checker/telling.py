"""L3: what the submitter of a task is told."""

from dataclasses import dataclass, field
from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule
from makegood.testing.history import Event

_TOLD = frozenset({"processing", "undoing", "processed", "undone", "error"})


@dataclass(slots=True)
class _Submitter:
    """What one submitter should be told (``due``: a state and the commit in which the task came to it), what was written for him, and
    what has reached him. ``asked``: he wants to be told, as the client says.
    """

    asked: bool = False
    due: list[tuple[str, Event]] = field(default_factory=list)
    written: list[Event] = field(default_factory=list)
    heard: dict[int, Event] = field(default_factory=dict)
    given_up: bool = False


class EachEndIsTold(Rule):
    """L3: a notice for each state that a task comes to, written in the transaction of the change and numbered without gaps; each
    reaches the submitter at least once, for the first time in order, and the last one is the end. Only a receiver that was
    given up with an alert may miss the rest.
    """

    name: ClassVar[str] = "L3"
    kinds: ClassVar[frozenset[str]] = frozenset({"submitted", "moved", "notice", "notified", "alert"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._submitters: dict[int, _Submitter] = {}

    def _of(self, task: int) -> _Submitter:
        return self._submitters.setdefault(task, _Submitter())

    def after(self, event: Event, _world: HistoryState) -> None:
        """Compare what is written with what happened, and what arrives with what was written."""
        who = self._of(event.task)
        if event.kind == "submitted":
            who.asked = who.asked or bool(event.fields.get("reply_to"))
        elif event.kind == "moved":
            for move in event["moves"]:
                last = who.due[-1][0] if who.due else "received"
                if move[0] == "task" and move[2] in _TOLD and move[2] != last:
                    who.due.append((move[2], event))
        elif event.kind == "notice":
            self._written(who, event)
        elif event.kind == "notified":
            self._heard(who, event)
        elif event["alert"] == "dead_letter" and event.task:
            who.given_up = True

    def _written(self, who: _Submitter, event: Event) -> None:
        """A notice is the next one of its task, and tells what the very same commit did."""
        self.saw()
        who.written.append(event)
        n = len(who.written)
        if event["sequence"] != n:
            self.wrong(f"notice {event['sequence']} was written as the {n}. of its task", event)
        state, commit = (
            ("received", event) if n == 1 else who.due[n - 2] if n - 2 < len(who.due) else ("", event)
        )
        if event["state"] != state:
            true = f"it came to {state}" if state else "it never came to that state"
            self.wrong(f"notice {n} says {event['state']}, and {true}", event)
        elif (commit.at, commit.node) != (event.at, event.node):
            self.wrong(f"notice {n} ({state}) was not written in the commit that it tells of", commit, event)

    def _heard(self, who: _Submitter, event: Event) -> None:
        """What arrives was written; and no notice arrives before the one before it has."""
        n = event["sequence"]
        if n not in who.heard:
            who.heard[n] = event
        if n > 1 and n - 1 not in who.heard:
            self.wrong(f"notice {n} arrived, and notice {n - 1} had not", event)
        written = next((one for one in who.written if one["sequence"] == n), None)
        if written is None or written["state"] != event["state"]:
            self.wrong(
                f"the submitter was told that the task is {event['state']}: nothing that was committed says so",
                event,
            )

    def end(self, world: HistoryState) -> None:
        """Look whether everybody was told everything, and the end last."""
        if world.rest is None:
            return
        for task, who in self._submitters.items():
            if not (who.asked or who.written):
                continue
            for n, (state, commit) in enumerate(
                who.due[max(0, len(who.written) - 1) :], len(who.written) + 1
            ):
                self.wrong(
                    f"the task came to {state}, and notice {max(n, 2)} of it was never written", commit
                )
            if who.given_up:
                continue
            for written in who.written:
                if written["sequence"] not in who.heard:
                    self.wrong(f"notice {written['sequence']} ({written['state']}) never arrived", written)
            last = who.heard.get(len(who.heard))
            end = world.task(task).state
            if last is not None and last["state"] != end:
                self.wrong(
                    f"the last that the submitter heard is {last['state']}, and the task is {end}", last
                )
