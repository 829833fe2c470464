"""The checker's rules about what surrounds the engine in a storm: retention, notices, orders that come as
messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from makegood.testing import checker
from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule
from makegood.testing.history import Event, History
from proofs.rules import RULES_OF_THE_ENGINE
from proofs.storms.lane_rules import FirstComeFirst, NeverTooMany, NobodyForgotten, PlacesAsTasks
from proofs.storms.schedule_rules import EachMomentOnce

_TOLD = frozenset({"processing", "undoing", "processed", "undone", "error"})


@dataclass(slots=True)
class _Submitter:
    """The notices of one submitter."""

    asked: bool = False
    """Whether it wants notices, as the client says."""
    notes: bool = False
    """Whether it wants notes."""
    lines: int = 0
    """Notes in the history of its task that came in time."""
    due: list[tuple[str, Event]] = field(default_factory=list)
    """What it should receive: a state and the commit that reached it."""
    written: list[Event] = field(default_factory=list)
    """What was written for it."""
    heard: dict[int, Event] = field(default_factory=dict)
    """What has reached it, by sequence number."""
    given_up: bool = False


class EachEndIsTold(Rule):
    """L3: the submitter receives a notice for each state of its task.

    Each is written in the transaction of the change and numbered without gaps. If the submitter wants notes,
    those that came in time have theirs under the same numbers. Each arrives at least once,
    the first time in order, and the last one is the end. Only a receiver that was given up with an alert may
    miss the rest.
    """

    name: ClassVar[str] = "L3"
    says: ClassVar[str] = "each end is told at least once, by one distinct notice"
    part: ClassVar[tuple[str, str] | None] = ("notice", "no submitter wanted to be told")
    kinds: ClassVar[frozenset[str]] = frozenset(
        {"submitted", "moved", "noted", "notice", "notified", "alert"}
    )

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._submitters: dict[int, _Submitter] = {}

    def _of(self, task: int) -> _Submitter:
        return self._submitters.setdefault(task, _Submitter())

    def after(self, event: Event, _world: HistoryState) -> None:
        """Compare written notices with the events, and arrivals with what was written."""
        who = self._of(event.task)
        if event.kind == "submitted":
            who.asked = who.asked or bool(event.fields.get("reply_to"))
            who.notes = who.notes or (who.asked and bool(event.fields.get("notes")))
        elif event.kind == "noted":
            who.lines += not event["late"]
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
        """A notice is the next one of its task, and reports a change of the very same commit."""
        self.saw()
        who.written.append(event)
        n = len(who.written)
        if event["sequence"] != n:
            self.wrong(f"notice {event['sequence']} was written as the {n}. of its task")
        if event["state"] == "note":
            return
        n = sum(notice["state"] != "note" for notice in who.written)
        state, commit = (
            ("received", event) if n == 1 else who.due[n - 2] if n - 2 < len(who.due) else ("", event)
        )
        if event["state"] != state:
            true = f"it came to {state}" if state else "it never came to that state"
            self.wrong(f"notice {n} says {event['state']}, and {true}")
        elif (commit.at, commit.node) != (event.at, event.node):
            self.wrong(f"notice {n} ({state}) was not written in the commit that it tells of", commit)

    def _heard(self, who: _Submitter, event: Event) -> None:
        """An arrival was written before, and no notice arrives before its predecessor."""
        n = event["sequence"]
        if n not in who.heard:
            who.heard[n] = event
        if n > 1 and n - 1 not in who.heard:
            self.wrong(f"notice {n} arrived, and notice {n - 1} had not")
        notice = next((one for one in who.written if one["sequence"] == n), None)
        if notice is None or notice["state"] != event["state"]:
            self.wrong(
                f"the submitter was told that the task is {event['state']}: nothing that was committed says so"
            )

    def end(self, world: HistoryState) -> None:
        """Check whether every submitter received everything, and the end last."""
        if world.rest is None:
            return
        for task, who in self._submitters.items():
            if not (who.asked or who.written):
                continue
            notes = sum(notice["state"] == "note" for notice in who.written)
            if notes != (who.lines if who.notes else 0):
                self.wrong(f"of {who.lines} notes {notes} were written for the submitter", task=task)
            states = len(who.written) - notes
            for n, (state, commit) in enumerate(who.due[max(0, states - 1) :], len(who.written) + 1):
                self.wrong(
                    f"the task came to {state}, and notice {max(n, 2)} of it was never written", commit
                )
            if who.given_up:
                continue
            for notice in who.written:
                if notice["sequence"] not in who.heard:
                    self.wrong(f"notice {notice['sequence']} ({notice['state']}) never arrived", notice)
            last = who.heard.get(len(who.heard))
            end = world.task(task).state
            if last is not None and last["state"] != end:
                self.wrong(
                    f"the last that the submitter heard is {last['state']}, and the task is {end}", last
                )


class OneTaskPerMessage(Rule):
    """L6: an acknowledged message becomes one task, or one dead letter with an alert: never two tasks, never
    both, however often it was sent and delivered.
    """

    name: ClassVar[str] = "L6"
    says: ClassVar[str] = "in the end every message is one task, or one dead letter with an alert"
    part: ClassVar[tuple[str, str] | None] = ("posted", "no order came as a message")
    kinds: ClassVar[frozenset[str]] = frozenset({"posted", "made", "handled", "alert"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._posted: dict[tuple[str, str], Event] = {}
        self._made: dict[str, list[Event]] = {}
        self._state: dict[tuple[str, str], Event] = {}
        self._alerted: set[str] = set()

    def before(self, event: Event, _world: HistoryState) -> None:
        """Note the outcome of each message."""
        if event.kind == "posted":
            self._posted.setdefault((event["queue"], event["id"]), event)
        elif event.kind == "handled":
            self._state[event["queue"], event["id"]] = event
        elif event.kind == "made":
            tasks = self._made.setdefault(event["message"], [])
            tasks.append(event)
            if len(tasks) == 2:
                self.wrong(f"two tasks were made of message {event['message']}", tasks[0])
        elif event["alert"] == "dead_letter":
            self._alerted.add(event["step"])

    def end(self, world: HistoryState) -> None:
        """Check each message that was accepted."""
        if world.rest is None:
            return
        for (queue, id_), post in self._posted.items():
            self.saw()
            tasks, last = self._made.get(id_, []), self._state.get((queue, id_))
            state = "waiting" if last is None else last["state"]
            history = [post, *tasks, *([last] if last is not None else [])]
            if state == "waiting":
                self.wrong(f"message {id_} waits for ever", *history)
            elif state == "done" and not tasks:
                self.wrong(f"message {id_} was acknowledged, and there is no task", *history)
            elif state == "dead" and tasks:
                self.wrong(f"message {id_} is a dead letter, and a task was made of it", *history)
            elif state == "dead" and f"{queue}/{id_}" not in self._alerted:
                self.wrong(f"message {id_} is a dead letter, and no alert was raised", *history)


class OnlyWhatIsOver(Rule):
    """I14: a removed task has ended, no message waits in its inbox, and its submitter's webhook received
    everything. And what nothing keeps is removed.
    """

    name: ClassVar[str] = "I14"
    says: ClassVar[str] = "retention removes nothing that has not ended, and no unsent notice"
    part: ClassVar[tuple[str, str] | None] = ("removed", "nothing was removed")
    kinds: ClassVar[frozenset[str]] = frozenset({"notice", "notified", "removed", "swept"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._untold: dict[int, dict[int, Event]] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Check a task that is removed, with the work that was left about it."""
        if event.kind == "notice" and not event["queue"]:
            self._untold.setdefault(event.task, {})[event["sequence"]] = event
        elif event.kind == "notified":
            self._untold.get(event.task, {}).pop(event["sequence"], None)
        elif event.kind == "swept" and event["overdue"]:
            self.wrong(f"the janitor has left what nothing keeps: {len(event['overdue'])} tasks")
        elif event.kind == "removed":
            self._removed(event, world)

    def _removed(self, event: Event, world: HistoryState) -> None:
        self.saw()
        for state in (event["state"], world.task(event.task).state):
            if state not in ("processed", "undone"):
                self.wrong(f"a task that is {state} was removed")
                return
        if event["unheard"]:
            self.wrong(f"a task was removed that {event['unheard']} messages are for")
        untold = list(self._untold.get(event.task, {}).values())
        if untold or event["unsent"]:
            self.wrong("a task was removed whose submitter is still to be told", *untold)


RULES: Final[Sequence[type[Rule]]] = (
    *RULES_OF_THE_ENGINE, *checker.RULES, EachEndIsTold, OneTaskPerMessage, OnlyWhatIsOver, EachMomentOnce, NeverTooMany,
    FirstComeFirst, PlacesAsTasks, NobodyForgotten,
)  # fmt: skip
"""One rule per invariant: the engine's, those of every world, and those of a storm's surroundings."""


def check(history: History, final: checker.Final | None = None) -> Report:
    """Return what the history of a storm violates and how often each invariant was checked."""
    return checker.check(history, final, rules=RULES)
