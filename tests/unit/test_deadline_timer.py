"""One timer for many moments: it rings at the earliest, is not set anew for later ones, and can be stopped."""

import random
from collections.abc import Iterator

import pytest

from makegood.base.deadline_timer import Alarm
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.loop import WorldLoop


class Waiting:
    """An alarm in virtual time: when it rang, and how many timers the loop was asked for."""

    def __init__(self) -> None:
        self.loop = WorldLoop(random.Random(1))
        self.clock = SimulatedClock(self.loop.time)
        self.rang: list[float] = []
        self.timers = 0
        self.alarm = Alarm(self.clock, lambda: self.rang.append(self.loop.time()))
        later, self.start = self.loop.call_later, self.clock.monotonic()

        def counted(*args: object, **options: object) -> object:
            self.timers += 1
            return later(*args, **options)  # type: ignore[arg-type]

        self.loop.call_later = counted  # type: ignore[assignment, method-assign]

    def set(self, *moments: float) -> None:
        """Set the alarm to moments, in seconds from the beginning, in their order."""

        async def all_of_them() -> None:
            for moment in moments:
                self.alarm.set(self.start + moment)

        self.loop.run_until_complete(all_of_them())

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.call_at(self.loop.time() + seconds, self.loop.stop)
        self.loop.run_forever()


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    """A loop whose time is virtual, with an alarm."""
    waiter = Waiting()
    yield waiter
    waiter.loop.dispose()


def test_it_rings_once_at_the_earliest_moment_and_one_timer_serves_all(waiting: Waiting) -> None:
    """A thousand later moments need no timer of their own: this is why there is an alarm at all."""
    waiting.set(5.0, *(5.0 + n for n in range(1000)))
    waiting.passes(2000.0)
    assert (waiting.rang, waiting.timers) == ([5.0], 1)


def test_an_earlier_moment_takes_the_place_of_a_later_one(waiting: Waiting) -> None:
    waiting.set(5.0, 3.0)
    waiting.passes(10.0)
    assert (waiting.rang, waiting.timers) == ([3.0], 2)


def test_it_can_be_set_anew_after_it_rang_and_a_moment_that_has_passed_is_now(waiting: Waiting) -> None:
    waiting.set(1.0)
    waiting.passes(2.0)
    waiting.set(0.5)
    waiting.passes(1.0)
    waiting.set(8.0)
    waiting.passes(9.0)
    assert waiting.rang == [1.0, 2.0, 8.0]


def test_stopped_it_does_not_ring_and_may_be_set_to_a_later_moment(waiting: Waiting) -> None:
    waiting.set(1.0)
    waiting.alarm.stop()
    waiting.alarm.stop()
    waiting.set(4.0)
    waiting.passes(10.0)
    assert waiting.rang == [4.0]
