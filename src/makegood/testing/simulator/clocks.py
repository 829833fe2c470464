"""The clock of a simulated process: off by some seconds, a little too fast or slow, and jumping."""

from collections.abc import Callable


class SimulatedClock:
    """A ``Clock`` over the world's true time.

    ``epoch``: the wall clock's value when the world began; ``drift``: the share by which the clock runs fast;
    ``skew``: seconds that the wall clock is off.
    """

    def __init__(
        self,
        now: Callable[[], float],
        *,
        epoch: float = 1_767_225_600.0,
        drift: float = 0.0,
        skew: float = 0.0,
    ) -> None:
        self._now = now
        self._epoch = epoch
        self._rate = 1.0 + drift
        self._ahead = 0.0
        self.skew = skew

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return 1000.0 + self._now() * self._rate + self._ahead

    def wall(self) -> float:
        """Seconds since 1970, as this process believes."""
        return self._epoch + self._now() * self._rate + self.skew

    def boot_id(self) -> str:
        """One machine, one boot."""
        return "simulated"

    def jump(self, wall: float, monotonic: float = 0.0) -> None:
        """Let the wall clock jump by ``wall`` seconds, and the monotonic clock by ``monotonic`` (a suspended
        machine), never back.
        """
        self.skew += wall
        self._ahead += max(0.0, monotonic)

    def hold(self, seconds: float) -> None:
        """Let the monotonic clock stand still over the ``seconds`` that the world is about to leap."""
        self._ahead -= seconds * self._rate

    def mend(self) -> None:
        """Set the wall clock right and let the clocks run at their true speed; elapsed time stays elapsed."""
        self._ahead += self._now() * (self._rate - 1.0)
        self._rate = 1.0
        self.skew = 0.0
