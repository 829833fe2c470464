"""Clocks that tests move: one that stands still until it is told to go on, and one that goes by itself and may be let ahead."""

from makegood.base.clock import SystemClock


class HandClock:
    """A clock that moves only when it is told to. ``seconds``: what it shows at first."""

    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds
        self.wall_seconds = 1_800_000_000.0
        self.boot = "boot-1"

    def monotonic(self) -> float:
        """Seconds since the boot."""
        return self.seconds

    def wall(self) -> float:
        """Seconds since 1970."""
        return self.wall_seconds

    def boot_id(self) -> str:
        """The boot's name."""
        return self.boot

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds
        self.wall_seconds += seconds


class AheadClock:
    """The machine's clock, which a test may let run ahead."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self.boot = self._system.boot_id()
        self.ahead = 0.0

    def monotonic(self) -> float:
        """Seconds since the boot, and those ahead."""
        return self._system.monotonic() + self.ahead

    def wall(self) -> float:
        """Seconds since 1970, and those ahead."""
        return self._system.wall() + self.ahead

    def boot_id(self) -> str:
        """The boot's name."""
        return self.boot
