"""The findings of a checker: violations in plain words, and how often each invariant was checked.

An invariant that was never checked never passes silently: the report names it. If the world lacks the part
that an invariant is about, the report says that it does not apply.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from makegood.testing.history import Event


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, what went wrong in plain words, and the events that show it (the last one
    revealed it).
    """

    invariant: str
    says: str
    """What must hold."""
    text: str
    events: tuple[Event, ...] = ()
    task: int = 0

    def __str__(self) -> str:
        """Return the rule, what went wrong, and the events, a line each."""
        lines = [f"{self.invariant} ({self.says}): {self.text}"]
        return "\n".join([*lines, *(f"    {event}" for event in self.events)])


@dataclass(slots=True)
class Report:
    """What one history showed."""

    invariants: Mapping[str, str] = field(default_factory=dict)
    """What must hold, by the name of each invariant that was asked for."""
    violations: list[Violation] = field(default_factory=list)
    checks: Counter[str] = field(default_factory=Counter)
    """How often each invariant was checked."""
    excuses: dict[str, str] = field(default_factory=dict)
    """Why an invariant does not apply, by its name."""

    @property
    def ok(self) -> bool:
        """Whether nothing is violated. (Perhaps because nothing was checked: see ``idle``.)"""
        return not self.violations

    @property
    def idle(self) -> list[str]:
        """Return the invariants that apply and were never checked."""
        return [name for name in self.invariants if not self.checks[name] and name not in self.excuses]

    def saw(self, invariant: str, times: int = 1) -> None:
        """Note that an invariant was checked."""
        self.checks[invariant] += times

    def wrong(self, invariant: str, text: str, *events: Event, task: int = 0) -> None:
        """Note a violation."""
        about = task or next((event.task for event in reversed(events) if event.task), 0)
        self.violations.append(Violation(invariant, self.invariants[invariant], text, events, about))

    def of(self, invariant: str) -> list[Violation]:
        """Return the violations of one invariant."""
        return [violation for violation in self.violations if violation.invariant == invariant]

    def violated_invariants(self) -> list[str]:
        """Return the names of the invariants that are violated, each once."""
        return [name for name in self.invariants if self.of(name)]

    def __str__(self) -> str:
        """Return the violations, then the invariants that were never checked."""
        text = "\n".join(str(violation) for violation in self.violations) or "no invariant is violated"
        counts = ", ".join(f"{name} {self.checks[name]}" for name in self.invariants if self.checks[name])
        lines = [text, f"looked at: {counts or 'nothing'}"]
        if self.idle:
            lines.append(f"nothing to look at: {', '.join(self.idle)}")
        lines += [f"not applicable: {name}, {reason}" for name, reason in sorted(self.excuses.items())]
        return "\n".join(lines)


def join_names(names: Iterable[object]) -> str:
    """Return names for a sentence: ``a, b`` or ``none``."""
    return ", ".join(str(name) for name in names) or "none"
