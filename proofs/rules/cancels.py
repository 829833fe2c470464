"""I32: an action that nobody needs any more hears of it, and gives way."""

import math
from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule, when
from makegood.testing.history import Event

SOON = 2.5
"""Seconds, with those of a heartbeat, within which an attempt hears where no fault strikes."""

Attempt = tuple[int, int, int]


class HearsAndGivesWay(Rule):
    """I32: an attempt hears within seconds that its request was cancelled, and one that is declared
    ``cancellable`` ends within a second of that.

    Whether it hears is checked where no fault but those of services has struck since it was taken: a process
    that stands still, or is cut off from the store, hears nothing. Nor does an attempt whose time was over by
    then, or that had answered, although the store may have refused the answer.
    """

    name: ClassVar[str] = "I32"
    says: ClassVar[str] = "an action in flight that nobody needs hears of it, and gives way"
    part: ClassVar[tuple[str, str] | None] = ("cancelled", "nothing that ran was cancelled")
    kinds: ClassVar[frozenset[str]] = frozenset(
        {"taken", "reply", "cancelled", "hears", "runs on", "judged", "fault"}
    )

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._taken: dict[Attempt, Event] = {}
        self._cancels: dict[Attempt, Event] = {}
        self._fault_at = -math.inf

    def before(self, event: Event, world: HistoryState) -> None:
        """Follow a request from its taking to its end."""
        if event.kind == "fault":
            if not event["what"].startswith("service"):
                self._fault_at = event.at
            return
        key = (event.task, event["idx"], event["attempt"])
        if event.kind == "taken":
            self._taken[key] = event
        elif event.kind == "reply":
            if key not in self._cancels:
                self._taken.pop(key, None)
        elif event.kind == "cancelled":
            self._cancels[key] = event
        elif event.kind == "hears":
            self.saw()
            self._cancels.pop(key, None)
        elif event.kind == "runs on":
            self.wrong(
                f"{world.task(event.task).name(event['idx'])} was cancelled, and runs on {when(event)}"
            )
        elif (cancel := self._cancels.pop(key, None)) is not None:
            taken = self._taken.get(key)
            if taken is None or cancel.at > taken.at + taken["within"]:
                return  # its time was over before
            if self._fault_at < taken.at and event.at > cancel.at + SOON:
                self.wrong(
                    f"nobody needed {world.task(event.task).name(event['idx'])} {when(cancel)}, and it never heard",
                    taken,
                    cancel,
                )
