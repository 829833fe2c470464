"""What an election counts about itself."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """Counts since the election was made; seconds for lengths of time.

    ``margin`` is the least that was left of a lease when a renewal's answer came: the earliest warning there is. ``unknown``:
    renewals without an answer. ``overruns``: terms whose work stopped after the deadline. ``endings``: terms by why they ended.
    """

    terms: int = 0
    renewals: int = 0
    unknown: int = 0
    overruns: int = 0
    slowest: float = 0.0
    margin: float = float("inf")
    endings: dict[str, int] = field(default_factory=dict)

    def renewed(self, took: float, margin: float) -> None:
        """Count a renewal that was answered."""
        self.renewals += 1
        self.slowest = max(self.slowest, took)
        self.margin = min(self.margin, margin)

    def ended(self, why: str) -> None:
        """Count the end of a term."""
        self.terms += 1
        self.endings[why] = self.endings.get(why, 0) + 1
