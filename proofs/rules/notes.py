"""I33: what an attempt notes is in the history, once and in order, before its answer."""

from dataclasses import dataclass, field
from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule, when
from makegood.testing.history import Event

Attempt = tuple[int, int, int]
"""A task, the index of a step, and the attempt."""


@dataclass(slots=True)
class _Run:
    """One run of an attempt: a request that a channel delivers twice has two."""

    writes: list[Event] = field(default_factory=list)
    last: int = 0
    """The number of its last note in the history."""
    claims: set[int] = field(default_factory=set)
    """How often its task had been claimed when it wrote."""
    count: int = 0
    """Its notes in the history, and those that they say were skipped."""


class NotesInOrder(Rule):
    """I33: a note in the history was written by its attempt, once, after those that come before it. When the
    answer of its attempt is used, all its notes are there or counted as skipped.

    The last is checked of attempts that ran once, and that began and were answered under one Scheduler: a
    Scheduler that loses its task hands its notes on, and they may come late.
    """

    name: ClassVar[str] = "I33"
    says: ClassVar[str] = "notes are in the history once, in order, and before the answer of their attempt"
    part: ClassVar[tuple[str, str] | None] = ("wrote", "no action wrote notes")
    kinds: ClassVar[frozenset[str]] = frozenset({"wrote", "noted", "accepted", "claimed"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._runs: dict[int, _Run] = {}
        self._writes: dict[int, Event] = {}
        self._lines: dict[int, Event] = {}
        self._by_attempt: dict[Attempt, set[int]] = {}
        self._claims: dict[int, int] = {}
        self._open: dict[int, Event] = {}
        """Notes that were called late while their attempts were under way."""

    def before(self, event: Event, world: HistoryState) -> None:
        """Follow the notes of an attempt to the history."""
        if event.kind == "claimed":
            self._claims[event.task] = self._claims.get(event.task, 0) + 1
            return
        attempt = (event.task, event["idx"], event["attempt"])
        if event.kind == "wrote":
            self._writes[event["n"]] = event
            run = self._runs.setdefault(event["run"], _Run())
            run.writes.append(event)
            run.claims.add(self._claims.get(event.task, 0))
            self._by_attempt.setdefault(attempt, set()).add(event["run"])
        elif event.kind == "noted":
            self._noted(event, attempt, world)
        else:
            self._accepted(event, attempt, world)

    def _noted(self, event: Event, attempt: Attempt, world: HistoryState) -> None:
        self.saw()
        n, name = event["n"], world.task(event.task).name(event["idx"])
        write = self._writes.get(n)
        if write is None:
            self.wrong(f"the history has a note {n} of {name} {when(event)} that nobody wrote")
            return
        if (write.task, write["idx"], write["attempt"], write["doing"]) != (*attempt, event["doing"]):
            self.wrong(f"note {n} is in the history of {name}, which did not write it", write)
        if (line := self._lines.get(n)) is not None:
            self.wrong(f"note {n} of {name} is in the history a second time", line)
            return
        self._lines[n] = event
        run = self._runs[write["run"]]
        if n < run.last:
            self.wrong(f"note {n} of {name} comes after {run.last}", write)
        run.last, run.count = n, run.count + 1 + event["skipped"]
        step = world.task(event.task).step(event["idx"])
        dispatch, last = step.dispatches.get(event["attempt"]), step.last
        is_over = dispatch is None or dispatch.answer is not None or dispatch is not last
        if is_over and not event["late"]:
            self.wrong(f"note {n} of {name} comes after its attempt was over, and is not called late", write)
        elif event["late"] and dispatch is not None and dispatch.open:
            self._open[n] = event

    def end(self, world: HistoryState) -> None:
        """Look for notes that were called late although nothing had ended their attempts."""
        for n, line in self._open.items():
            name = world.task(line.task).name(line["idx"])
            self.wrong(f"note {n} of {name} is called late, and its attempt was under way", line)

    def _accepted(self, event: Event, attempt: Attempt, world: HistoryState) -> None:
        now = (event.at, event.node, *attempt)
        for n, line in list(self._open.items()):
            if (line.at, line.node, line.task, line["idx"], line["attempt"]) == now:
                del self._open[n]  # the very commit that called it late used the answer
        runs = self._by_attempt.get(attempt, set())
        if len(runs) != 1:
            return
        run = self._runs[next(iter(runs))]
        arrival = event.fields.get("came")
        came = event.at if arrival is None else event.at - (event["now"] - arrival)
        if run.writes[-1].at > came:
            return  # the answer is that of a run without notes
        if run.claims != {self._claims.get(event.task, 0)}:
            return
        self.saw()
        if run.count != len(run.writes):
            name = world.task(event.task).name(event["idx"])
            self.wrong(
                f"{name} was answered {when(event)}, and of its {len(run.writes)} notes {run.count} are in the history or skipped",
                *run.writes,
            )
