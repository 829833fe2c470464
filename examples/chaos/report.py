"""What a run tells at its end: what happened, how the orders ended, and whether that proves anything. Nothing here acts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .checker import Verdict
from .kinds import Kind
from .lane_checks import WAITED

ENDS: Final = ("processed", "undone", "error")
RECOVERIES: Final = ("silent attempts judged", "orders taken over", "terms of a leader")
"""What every run must have gone through, or its faults hit nobody; of terms more than the first."""
WAITS: Final = (
    "tasks let go",
    "sleeps",
    "delayed orders",
    "signals used",
    "signals refused",
    "waits timed out",
    "moments fired",
    WAITED,
)
"""What must have happened to waits, or nothing is said of them."""
THROUGH_BROKER: Final = ("orders through the broker", "orders published more than once", "notices")
"""What must have come through a broker, if there is one."""


@dataclass(frozen=True, slots=True)
class Report:
    """A run. ``ends``: of the orders, at last; ``told``: what customers were told first. ``complaints``: sentences about
    what went wrong besides the books.
    """

    store: str
    seed: int
    seconds: float
    healed: float
    """Seconds from the end of the faults until all was at rest."""
    enabled: Sequence[Kind]
    met: Mapping[Kind, int]
    ends: Mapping[str, int]
    told: Mapping[str, int]
    recoveries: Mapping[str, int]
    counts: Mapping[str, int]
    verdict: Verdict
    complaints: Sequence[str]
    folder: str = ""

    broker: str = ""
    """Which broker there was, "" for none."""

    @property
    def missing(self) -> list[str]:
        """What did not happen, and must have for the run to prove anything."""
        gaps = [f"no {kind.value}" for kind in self.enabled if not self.met.get(kind)]
        gaps += [f"no order ended {end}" for end in ENDS if not self.ends.get(end, 0) + self.told.get(end, 0)]
        if self.broker:
            gaps += [f"no {name}" for name in THROUGH_BROKER if not self.verdict.broker.counts.get(name)]
        gaps += [f"no {name}" for name in WAITS if not self.verdict.waits.counts.get(name)]
        least = {"terms of a leader": 2}
        return gaps + [
            f"too few {name}: {self.recoveries.get(name, 0)}"
            for name in RECOVERIES
            if self.recoveries.get(name, 0) < least.get(name, 1)
        ]

    @property
    def placed(self) -> int:
        """Orders whose submission was acknowledged."""
        return self.verdict.audit.orders["submitted"]

    @property
    def well(self) -> bool:
        """The books balance, nothing contradicts itself, and each fault happened."""
        return not (self.verdict.findings or self.complaints or self.missing)

    def as_json(self) -> dict[str, Any]:
        """The report for a machine."""
        return {
            "ok": self.well,
            "store": self.store,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "healed_after": round(self.healed, 1),
            "placed": self.placed,
            "ends": dict(self.ends),
            "told_first": dict(self.told),
            "faults": {kind.value: self.met.get(kind, 0) for kind in self.enabled},
            "recoveries": dict(self.recoveries),
            "waits": dict(self.verdict.waits.counts),
            **({"broker": {"name": self.broker, **self.verdict.broker.counts}} if self.broker else {}),
            "counts": dict(sorted(self.counts.items())),
            "findings": self.verdict.findings,
            "complaints": list(self.complaints),
            "missing": self.missing,
            "audit": self.verdict.audit.as_json(),
            "folder": self.folder,
        }

    def troubles(self) -> list[str]:
        """Everything that is not as it should be, in words."""
        return [
            *self.verdict.findings,
            *self.complaints,
            *(f"nothing proved: {text}" for text in self.missing),
        ]

    def sentence(self) -> str:
        """One sentence, and the command that draws the same plan again."""
        where = f"{self.store}, {self.seconds:.0f} s, SEED={self.seed}"
        if self.well:
            return f"the books balance: {self.placed} orders are whole, and nothing is lost ({where})"
        return f"not well: {len(self.troubles())} findings ({where})"
