"""I14: what retention removes."""

from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule
from makegood.testing.history import Event


class OnlyWhatIsOver(Rule):
    """I14: a task that is removed has ended, nobody has something to say to it, and its submitter's webhook was told everything.
    And what nothing keeps is removed.
    """

    name: ClassVar[str] = "I14"
    kinds: ClassVar[frozenset[str]] = frozenset({"notice", "notified", "removed", "swept"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._untold: dict[int, dict[int, Event]] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Look at a task that is removed, with what was still to be done about it."""
        if event.kind == "notice" and not event["queue"]:
            self._untold.setdefault(event.task, {})[event["sequence"]] = event
        elif event.kind == "notified":
            self._untold.get(event.task, {}).pop(event["sequence"], None)
        elif event.kind == "swept" and event["overdue"]:
            self.wrong(f"the janitor has left what nothing keeps: {len(event['overdue'])} tasks", event)
        elif event.kind == "removed":
            self._removed(event, world)

    def _removed(self, event: Event, world: HistoryState) -> None:
        self.saw()
        for state in (event["state"], world.task(event.task).state):
            if state not in ("processed", "undone"):
                self.wrong(f"a task that is {state} was removed", event)
                return
        if event["unheard"]:
            self.wrong(f"a task was removed that {event['unheard']} messages are for", event)
        untold = list(self._untold.get(event.task, {}).values())
        if untold or event["unsent"]:
            self.wrong("a task was removed whose submitter is still to be told", *untold, event)
