"""What an election counts about itself."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Figures:
    """Counts since the election was created; durations in seconds."""

    terms: int = 0
    renewals: int = 0
    unknown: int = 0
    """Renewals without an answer."""
    overruns: int = 0
    """Terms whose work stopped after the deadline."""
    slowest: float = 0.0
    """The longest duration of an answered renewal."""
    margin: float = float("inf")
    """The least time left of a lease when a renewal's answer came: the earliest warning there is."""
    endings: dict[str, int] = field(default_factory=dict)
    """Terms by why they ended."""

    def _count_renewal(self, took: float, margin: float) -> None:
        """Count a renewal that was answered."""
        self.renewals += 1
        self.slowest = max(self.slowest, took)
        self.margin = min(self.margin, margin)

    def _count_end(self, ending: str) -> None:
        """Count the end of a term."""
        self.terms += 1
        self.endings[ending] = self.endings.get(ending, 0) + 1
