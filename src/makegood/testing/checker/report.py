"""The findings of a checker: violations in plain words, and how often each invariant was checked.

An invariant that was never checked never passes silently: the report names it. If the world lacks the part
that an invariant is about, the report says that it does not apply.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from rich.table import Table

from makegood.testing.history import Event

INVARIANTS: Mapping[str, str] = MappingProxyType(
    {
        "I1": "what has ended stays as it is, but for an operator's act",
        "I2": "at most one accepted completion per task, step and round",
        "I3": "only the reply to the current attempt is accepted, in time by the store's clock",
        "I4": "under each key an effect stands once or not at all",
        "I5": "attempts and tokens rise; a key lasts for one step, round and direction",
        "I6": "one claim per task and epoch, one owner per attempt, and only the owner decides",
        "I7": "no act by a superseded term",
        "I8": "one silence is counted once, not before its complete-by, and never more than the threshold allows",
        "I9": "undone is what is done or in doubt, all of it, in reverse order, after the decision to undo",
        "I10": "no step starts before its predecessors are done",
        "I11": "no service call begins after its complete-by by the agent's own clock",
        "I12": "every acknowledged submission exists",
        "I13": "a refused reply changes nothing",
        "I14": "retention removes nothing that has not ended, and no unsent notice",
        "I15": "no payload and no secret in log lines",
        "I16": "the state row is the fold of its history",
        "I17": "while a circuit is open nothing begins, half-open one canary; a service that answers nobody adds no failure to a step",
        "L1": "in the end every task is processed, undone or in error",
        "L2": "in the end what stands is what the record says",
        "L3": "each end is told at least once, by one distinct notice",
        "L4": "in the end nothing is left over: no messages, requests, orphans, leases of the dead, slots that no call has",
        "L5": "a task that met no fault needs one commit per step and one more",
        "L6": "in the end every message is one task, or one dead letter with an alert",
    }
)
"""The invariants, in the words of the report."""

PARTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "I14": ("removed", "nothing was removed"),
        "I17": ("circuit", "no agent has a breaker"),
        "L3": ("notice", "no submitter wanted to be told"),
        "L6": ("posted", "no order came as a message"),
    }
)
"""Invariants about the surroundings of the engine, which a world may lack: the kind of event without which
they do not apply, and why.
"""


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, what went wrong in plain words, and the events that show it (the last one
    revealed it).
    """

    invariant: str
    text: str
    events: tuple[Event, ...] = ()
    task: int = 0

    def __str__(self) -> str:
        """Return the rule, what went wrong, and the events, a line each."""
        lines = [f"{self.invariant} ({INVARIANTS[self.invariant]}): {self.text}"]
        return "\n".join([*lines, *(f"    {event}" for event in self.events)])


@dataclass(slots=True)
class Report:
    """What one history showed."""

    violations: list[Violation] = field(default_factory=list)
    exercised: Counter[str] = field(default_factory=Counter)
    """How often each invariant was checked."""
    excused: dict[str, str] = field(default_factory=dict)
    """Why an invariant does not apply, by its name."""

    @property
    def ok(self) -> bool:
        """Whether nothing is violated. (Perhaps because nothing was checked: see ``idle``.)"""
        return not self.violations

    @property
    def idle(self) -> list[str]:
        """Return the invariants that apply and were never checked."""
        return [name for name in INVARIANTS if not self.exercised[name] and name not in self.excused]

    def saw(self, invariant: str, times: int = 1) -> None:
        """Note that an invariant was checked."""
        self.exercised[invariant] += times

    def wrong(self, invariant: str, text: str, *events: Event, task: int = 0) -> None:
        """Note a violation."""
        about = task or next((event.task for event in reversed(events) if event.task), 0)
        self.violations.append(Violation(invariant, text, events, about))

    def of(self, invariant: str) -> list[Violation]:
        """Return the violations of one invariant."""
        return [found for found in self.violations if found.invariant == invariant]

    def broken(self) -> list[str]:
        """Return the names of the invariants that are violated, each once."""
        return [name for name in INVARIANTS if self.of(name)]

    def table(self, title: str = "invariants") -> Table:
        """Return a table for people: every invariant, how often it was checked, and the result."""
        return verdicts(title, self.exercised, self.excused, Counter(v.invariant for v in self.violations))

    def __str__(self) -> str:
        """Return the violations, then the invariants that were never checked."""
        told = "\n".join(str(found) for found in self.violations) or "no invariant is violated"
        looked = ", ".join(f"{name} {self.exercised[name]}" for name in INVARIANTS if self.exercised[name])
        lines = [told, f"looked at: {looked or 'nothing'}"]
        if self.idle:
            lines.append(f"nothing to look at: {', '.join(self.idle)}")
        lines += [f"not applicable: {name}, {why}" for name, why in sorted(self.excused.items())]
        return "\n".join(lines)


def verdicts(
    title: str, exercised: Mapping[str, int], excused: Mapping[str, str], violated: Mapping[str, int]
) -> Table:
    """Return the table of all invariants: how often they were checked, and the verdicts."""
    table = Table(title=title)
    table.add_column("")
    table.add_column("invariant")
    table.add_column("looked at", justify="right")
    table.add_column("verdict")
    for name, text in INVARIANTS.items():
        count, broken = exercised.get(name, 0), violated.get(name, 0)
        if broken:
            verdict = f"[bold red]violated {broken} times[/]" if broken > 1 else "[bold red]violated[/]"
        elif count:
            verdict = "[green]held[/]"
        elif name in excused:
            verdict = f"[dim]not applicable: {excused[name]}[/]"
        else:
            verdict = "[yellow]nothing to look at[/]"
        table.add_row(name, text, str(count), verdict)
    return table


def listed(names: Iterable[object]) -> str:
    """Return names for a sentence: ``a, b`` or ``none``."""
    return ", ".join(str(name) for name in names) or "none"
