"""What a batch of runs must contain before it proves anything.

A batch in which no reply was ever late says nothing about late replies. ``RunCounts`` counts what happened in
each added history, and ``lacking`` names what never did. A batch that lacks something fails, however clean it
is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rich.table import Table

from makegood.testing.checker import Report, Violation
from makegood.testing.checker.signals import TIMEOUTS
from makegood.testing.history import Event, History
from proofs.storms.schedule_rules import reasons

WANTED: Mapping[str, str] = MappingProxyType(
    {
        "end processed": "a task that ended processed",
        "end undone": "a task that ended undone",
        "end error": "a task that ended in error",
        "late reply": "a reply that came too late",
        "duplicate request": "a request that was delivered twice",
        "duplicate reply": "a reply that was delivered twice",
        "refused stale write": "a stale write turned away by a fence",
        "change of leader": "a change of leader while tasks were under way",
        "undo in doubt": "an undo of a step in doubt",
        "key too old": "a step whose key was too old to be sent again",
        "undo too old": "an undo whose key was too old to be sent again",
        "ambiguous committed": "a commit whose answer was lost, and which was there",
        "ambiguous not committed": "a commit whose answer was lost, and which was not there",
        "let-go": "a task that was let go",
        "kept signal": "a signal that was kept",
        "late signal": "a signal that was kept by a task that had ended",
        "timeout": "a wait that timed out",
        "signal close to a timeout": "a signal that came within 50 ms of a timeout",
        "lane wait": "a task that waited for another one of its lane",
        "lane refusal": "a submission that was refused because its lane was taken",
        "lane release": "a release of the lanes of a task in error",
        "skip overlap": "a moment of a schedule that was skipped because of the task before",
        "skip missed": "a moment of a schedule that was missed",
        "skip coalesced": "a moment of a schedule in whose place a later one was fired",
        "skip paused": "a moment of a schedule that a pause skipped",
        "skip gap": "a time of a schedule that clocks never showed",
        "skip fold": "a time of a schedule that clocks showed twice",
        "firing after a change of leader": "a firing by another Supervisor than the one before",
    }
)
"""What every batch must contain, with the words that report its absence."""
RARE: Mapping[str, int] = MappingProxyType({"undo too old": 1000})
"""From how many runs on a batch must contain what is rare."""

_REQUESTS = ("request", "take", "offer", "hand")
_REPLIES = ("reply", "answer")
_CLOSE = 0.05
"""Seconds between a signal and a timeout."""


@dataclass(slots=True)
class RunCounts:
    """Counts over many runs; batches of several processes can be merged."""

    runs: int = 0
    invariants: dict[str, str] = field(default_factory=dict)
    """What must hold, by name."""
    happened: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    exercised: Counter[str] = field(default_factory=Counter)
    excused: dict[str, str] = field(default_factory=dict)
    enabled: set[str] = field(default_factory=set)
    """Kinds of faults that some run had switched on, and that must therefore have happened."""
    violations: list[tuple[str, Violation]] = field(default_factory=list)
    """Violations, each with the label of its run."""

    def add(self, history: History, report: Report, *, kinds: Iterable[str] = (), label: str = "") -> None:
        """Count what a run contained. ``kinds``: the kinds of faults (as in ``fault`` events) that were
        switched on.
        """
        self.runs += 1
        self.happened += occurrences(history)
        self.faults.update(event["what"] for event in history.of("fault"))
        self.invariants.update(report.invariants)
        self.exercised += report.checks
        self.excused.update(report.excuses)
        self.enabled.update(kinds)
        self.violations += [(label, violation) for violation in report.violations]

    def merge(self, other: "RunCounts") -> None:
        """Add what another batch has counted."""
        self.runs += other.runs
        self.happened += other.happened
        self.faults += other.faults
        self.invariants.update(other.invariants)
        self.exercised += other.exercised
        self.excused.update(other.excused)
        self.enabled |= other.enabled
        self.violations += other.violations

    def lacking(self) -> list[str]:
        """Return, in words, what this batch must contain and does not; the batch fails if there is
        anything.
        """
        gaps = [
            f"no {text.removeprefix('a ').removeprefix('an ')}"
            for name, text in WANTED.items()
            if not self.happened[name] and not 0 < self.runs < RARE.get(name, 0)
        ]
        gaps += [
            f"no fault {what!r}, although it was switched on"
            for what in sorted(self.enabled)
            if not self.faults[what]
        ]
        gaps += [
            f"nothing for {name} to look at ({text})"
            for name, text in self.invariants.items()
            if not self.exercised[name] and name not in self.excused
        ]
        return gaps

    @property
    def ok(self) -> bool:
        """Whether nothing is violated and nothing is lacking."""
        return not self.violations and not self.lacking()

    def tables(self) -> tuple[Table, Table]:
        """Return two tables for people: the invariants, and what happened."""
        counts = Counter(violation.invariant for _, violation in self.violations)
        table = Table(title=f"what happened in {self.runs} runs")
        table.add_column("")
        table.add_column("times", justify="right")
        for name, text in WANTED.items():
            count = self.happened[name]
            table.add_row(text, str(count) if count else "[bold red]never[/]")
        for what in sorted({*self.faults, *self.enabled}):
            count = self.faults[what]
            table.add_row(f"fault: {what}", str(count) if count else "[bold red]never[/]")
        return self._verdicts(counts), table

    def _verdicts(self, counts: Counter[str]) -> Table:
        """Return the table of all invariants: how often they were checked, and the verdicts."""
        table = Table(title=f"invariants in {self.runs} runs")
        table.add_column("")
        table.add_column("invariant")
        table.add_column("looked at", justify="right")
        table.add_column("verdict")
        for name, text in self.invariants.items():
            count, violations = self.exercised[name], counts[name]
            if violations:
                verdict = (
                    f"[bold red]violated {violations} times[/]" if violations > 1 else "[bold red]violated[/]"
                )
            elif count:
                verdict = "[green]held[/]"
            elif name in self.excused:
                verdict = f"[dim]not applicable: {self.excused[name]}[/]"
            else:
                verdict = "[yellow]nothing to look at[/]"
            table.add_row(name, text, str(count), verdict)
        return table

    def __str__(self) -> str:
        """Return the violations, then what is lacking, then the counts."""
        lines = [f"{label}: {violation}" if label else str(violation) for label, violation in self.violations]
        lines += [f"this batch proves too little: {text}" for text in self.lacking()]
        counts = {
            **{name: self.happened[name] for name in WANTED},
            **{f"fault {w}": n for w, n in sorted(self.faults.items())},
        }
        lines.append(f"{self.runs} runs: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
        lines += [f"not applicable: {name}, {why}" for name, why in sorted(self.excused.items())]
        return "\n".join(lines)


def occurrences(history: History) -> Counter[str]:
    """Return how often each of ``WANTED`` happened in a history."""
    counts: Counter[str] = Counter()
    under_way: set[int] = set()
    leaders: dict[str, str] = {}
    answers: set[tuple[int, int, int]] = set()
    waits, lanes = _Waits(counts), _Lanes(counts)
    for event in history.events:
        counts.update(_by_kind(event))
        waits.take(event)
        lanes.take(event)
        if event.kind == "accepted":
            answers.add((event.task, event["idx"], event["attempt"]))
        elif event.kind == "late":
            again = (event.task, event["idx"], event["attempt"]) in answers
            counts["duplicate reply" if again else "late reply"] += 1
        if event.kind in ("submitted", "claimed"):
            under_way.add(event.task)
        elif event.kind == "ended":
            under_way.discard(event.task)
        elif event.kind == "lease" and event["verb"] == "acquired":
            before = leaders.get(event["name"])
            counts["change of leader"] += before not in (None, event["holder"]) and bool(under_way)
            leaders[event["name"]] = event["holder"]
    return +counts


@dataclass(slots=True)
class _Waits:
    """Counts what happened to tasks that wait, and to schedules."""

    counts: Counter[str]
    ends: set[int] = field(default_factory=set)
    """Tasks that have ended."""
    dues: dict[int, list[float]] = field(default_factory=dict)
    """The moments of the timeouts of each task, by the store's clock."""
    leader: str = ""
    """Who fired last."""

    def take(self, event: Event) -> None:
        """Count an event."""
        kind = event.kind
        if kind == "ended":
            self.ends.add(event.task)
        elif kind == "moved":
            if any(move[0] == "task" for move in event["moves"]):
                self.ends.discard(event.task)
        elif kind == "suspended":
            self.counts["let-go"] += 1
        elif kind == "kept":
            self.counts["late signal" if event.task in self.ends else "kept signal"] += 1
        elif kind == "timeout":
            self.dues.setdefault(event.task, []).append(event["due"])
        elif kind == "signalled":
            near = any(abs(due - event["now"]) <= _CLOSE for due in self.dues.get(event.task, ()))
            self.counts["signal close to a timeout"] += near
        elif kind == "waited":
            self.counts["timeout"] += event["reason"] in TIMEOUTS
        elif kind == "schedule":
            self.counts.update({f"skip {reason}": count for reason, count in reasons(event).items()})
            if event["verb"] == "fire" and event["tasks"]:
                self.counts["firing after a change of leader"] += self.leader not in ("", event.node)
                self.leader = event.node


@dataclass(slots=True)
class _Lanes:
    """Counts what happened to tasks with lanes."""

    counts: Counter[str]
    places: dict[str, dict[int, str]] = field(default_factory=dict)
    """The places of each lane, by task."""

    def take(self, event: Event) -> None:
        """Count an event."""
        if event.kind == "lane":
            places = self.places.setdefault(event["lane"], {})
            places[event.task] = event["state"]
            self.counts["lane wait"] += {"waiting", "held"} <= set(places.values())
        elif event.kind == "lane refused":
            self.counts["lane refusal"] += 1
        elif event.kind == "act":
            self.counts["lane release"] += (event["what"], event["verdict"]) == ("release_lane", "applied")


def _by_kind(event: Event) -> list[str]:
    kind = event.kind
    if kind == "ended":
        return [f"end {event['state']}"]
    if kind == "refused":
        return ["refused stale write"] if event["what"] != "act" else []
    if kind == "store":
        return [event["outcome"]] if event["outcome"] in WANTED else []
    if kind == "alert" and "that the service keeps it" in event["text"]:
        _, _, of_undo = event["text"].partition("the undo of")  # of a task in error it follows the cause
        return ["undo too old" if "that the service keeps it" in of_undo else "key too old"]
    if kind == "moved":
        return ["undo in doubt" for move in event["moves"] if tuple(move[1:3]) == ("in_doubt", "undoing")]
    if kind == "fault" and event["what"] == "duplicate":
        point = str(event["point"])
        of_request = any(word in point for word in _REQUESTS)
        of_reply = any(word in point for word in _REPLIES)
        return ["duplicate request"] * of_request + ["duplicate reply"] * of_reply
    return []
