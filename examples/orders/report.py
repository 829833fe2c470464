"""What the demo tells at its end: the numbers, the audit, and whether all is well. Nothing here reads or prints."""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from .auditor import OUTCOMES, Kind, Told
from .auditor import Report as Audit
from .chaos import Score

CHECKS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "charged twice": (Kind.CHARGED_TWICE,),
    "charged for an undone order": (Kind.CHARGED_THOUGH_UNDONE,),
    "done twice": (Kind.DONE_TWICE,),
    "left after an undo": (Kind.STANDING_THOUGH_UNDONE,),
    "left but not listed": (Kind.NOT_LISTED,),
    "missing from a processed order": (Kind.MISSING,),
    "taken back too often": (Kind.UNDONE_TOO_OFTEN,),
    "wrong amount": (Kind.WRONG_AMOUNT,),
    "shipped without approval": (Kind.NOT_APPROVED,),
    "settled wrongly": (Kind.WRONG_SETTLEMENT,),
    "lost": (Kind.LOST,),
    "of unknown orders": (Kind.UNKNOWN_ORDER,),
}
"""What people look for in the books, and the findings that count for it. All must be 0."""


@dataclass(frozen=True, slots=True)
class Passage:
    """What came through a broker, ``title``: of each order how many tasks there are, and which notices came, by number."""

    title: str
    tasks: Mapping[str, int]
    notices: Mapping[str, AbstractSet[int]]

    @property
    def count(self) -> int:
        """How many notices came."""
        return sum(map(len, self.notices.values()))

    def complaints(self) -> list[str]:
        """A sentence for each order that is not one task, or whose notices have a gap."""
        wrong = [
            f"order {name} came through {self.title} and is {count} tasks"
            for name, count in self.tasks.items()
            if count != 1
        ]
        for name, numbers in self.notices.items():
            if missing := sorted(set(range(1, max(numbers, default=1) + 1)) - numbers):
                wrong.append(f"of order {name} notice {missing[0]} did not come through {self.title}")
        return wrong

    def sentence(self) -> str:
        """What the demo's last words say of it."""
        if self.complaints():
            return f"{len(self.tasks)} orders came through {self.title}"
        return f"{len(self.tasks)} orders came through {self.title}: each is one task, and each of its notices came, {self.count} in all"

    def as_json(self) -> dict[str, Any]:
        """The same for a machine."""
        return {
            "title": self.title,
            "orders": len(self.tasks),
            "tasks": sum(self.tasks.values()),
            "notices": self.count,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The end of a run. ``complaints`` are sentences about what went wrong besides the books; empty when nothing did."""

    store: str
    seconds: float
    wanted: int
    outcomes: Mapping[str, int]
    """How many orders were told processed, undone, error."""
    score: Score
    audit: Audit
    complaints: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Orders in error, and why: what an operator would see to next. Nothing is wrong about them."""
    approvals: tuple[int, int] = (0, 0)
    """How many large orders were approved, and how many refused."""
    passage: Passage | None = None
    """What came through a broker, if there was one."""

    @property
    def placed(self) -> int:
        """Orders whose submission was acknowledged."""
        return self.audit.orders["submitted"]

    @property
    def well(self) -> bool:
        """Every order placed and at rest, the books balanced, nothing to complain of."""
        count = sum(self.outcomes[name] for name in OUTCOMES)
        return self.audit.balanced and not self.complaints and count == self.placed == self.wanted

    def checks(self) -> dict[str, int]:
        """How many findings there are of each kind that people look for."""
        counts = Counter(finding.kind for finding in self.audit.findings)
        return {name: sum(counts[kind] for kind in kinds) for name, kinds in CHECKS.items()}

    def as_json(self) -> dict[str, Any]:
        """The report for a machine."""
        heals = sorted(self.score.heals)
        return {
            "ok": self.well,
            "store": self.store,
            "seconds": round(self.seconds, 1),
            "placed": self.placed,
            **{name: self.outcomes[name] for name in OUTCOMES},
            "open": self.placed - sum(self.outcomes[name] for name in OUTCOMES),
            "approved": self.approvals[0],
            "refused": self.approvals[1],
            "kills_survived": self.score.survived,
            "kills": dict(self.score.kills),
            "stopped_and_resumed": self.score.stops,
            "died_of_themselves": self.score.died,
            "heals": [round(heal, 2) for heal in heals],
            "checks": self.checks(),
            "audit": self.audit.as_json(),
            "complaints": list(self.complaints),
            "notes": list(self.notes),
            **({"broker": self.passage.as_json()} if self.passage else {}),
        }

    def rows(self) -> list[tuple[str, str, bool]]:
        """The run in a table for a person: what, how much, and whether it is as it should be."""
        score = self.score
        kills = ", ".join(f"{count} {role}" for role, count in sorted(score.kills.items()))
        rows = [("placed", f"{self.placed}", self.placed == self.wanted)]
        rows += [
            (name if name != "error" else "in error", f"{self.outcomes[name]}", True) for name in OUTCOMES
        ]
        yes, no = self.approvals
        rows.append(("large orders", f"{yes} approved, {no} refused", True))
        rows.append(("kills survived", f"{score.survived}" + (f"  ({kills})" if kills else ""), True))
        if score.stops:
            rows.append(("stopped and resumed", f"{score.stops}", True))
        if score.died:
            rows.append(("died of themselves", f"{score.died}", False))
        if score.heals:
            rows.append(
                ("healed after", f"{median(score.heals):.1f} s (at most {max(score.heals):.1f} s)", True)
            )
        return rows

    def audit_rows(self) -> list[tuple[str, str, bool]]:
        """The same for the audit of the services' own books."""
        return [(name, f"{count}", count == 0) for name, count in self.checks().items()]

    def money(self) -> str:
        """What the bank says."""
        return ", ".join(f"{name} {cents / 100:,.2f}" for name, cents in self.audit.money.items())

    def verdict(self) -> str:
        """One sentence."""
        if self.well:
            through = f"{self.passage.sentence()}; " if self.passage else ""
            return f"{through}the books balance: every order is whole, and nothing is lost"
        troubles = [*self.complaints, *map(str, self.audit.findings)]
        if self.placed != self.wanted:
            troubles.insert(0, f"{self.wanted - self.placed} orders could not be placed")
        return f"not well: {troubles[0] if troubles else 'orders are open'}"


def count_approvals(outcomes: Sequence[Told]) -> tuple[int, int]:
    """How many orders somebody approved, and how many were refused by all who answered."""
    yes = sum(bool(item.approvers) for item in outcomes)
    return yes, sum(bool(item.refusers) and not item.approvers for item in outcomes)


def count_outcomes(outcomes: Sequence[Told]) -> dict[str, int]:
    """How many orders ended how; every outcome is there, 0 too."""
    counts = Counter(item.outcome for item in outcomes)
    return {name: counts[name] for name in OUTCOMES}
