"""L6: what becomes of messages."""

from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule
from makegood.testing.history import Event


class OneTaskPerMessage(Rule):
    """L6: a message whose sender was told that it is there is one task in the end, or one dead letter with an alert; never two
    tasks, never both, however often it was sent and delivered.
    """

    name: ClassVar[str] = "L6"
    kinds: ClassVar[frozenset[str]] = frozenset({"posted", "made", "handled", "alert"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._posted: dict[tuple[str, str], Event] = {}
        self._made: dict[str, list[Event]] = {}
        self._state: dict[tuple[str, str], Event] = {}
        self._alerted: set[str] = set()

    def before(self, event: Event, _world: HistoryState) -> None:
        """Note what became of each message."""
        if event.kind == "posted":
            self._posted.setdefault((event["queue"], event["id"]), event)
        elif event.kind == "handled":
            self._state[event["queue"], event["id"]] = event
        elif event.kind == "made":
            made = self._made.setdefault(event["message"], [])
            made.append(event)
            if len(made) == 2:
                self.wrong(f"two tasks were made of message {event['message']}", *made)
        elif event["alert"] == "dead_letter":
            self._alerted.add(event["step"])

    def end(self, world: HistoryState) -> None:
        """Look at each message that was taken."""
        if world.rest is None:
            return
        for (queue, id_), posted in self._posted.items():
            self.saw()
            made, last = self._made.get(id_, []), self._state.get((queue, id_))
            state = "waiting" if last is None else last["state"]
            seen = [posted, *made, *([last] if last is not None else [])]
            if state == "waiting":
                self.wrong(f"message {id_} waits for ever", *seen)
            elif state == "done" and not made:
                self.wrong(f"message {id_} was acknowledged, and there is no task", *seen)
            elif state == "dead" and made:
                self.wrong(f"message {id_} is a dead letter, and a task was made of it", *seen)
            elif state == "dead" and f"{queue}/{id_}" not in self._alerted:
                self.wrong(f"message {id_} is a dead letter, and no alert was raised", *seen)
