"""A rate as points in time: evenly spaced, little ahead, nothing made up for."""

import random
from itertools import pairwise

import pytest

from makegood.errors import ConfigError
from makegood.model.rates import pace, per_second


@pytest.mark.parametrize(
    "wrong", ["20", "20/x", "-1/s", "0/s", 0, -3.0, True, float("inf"), float("nan"), "5/0s", None, "1/s/s"]
)
def test_what_is_no_rate_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r'rate=.*"20/s"'):
        per_second(wrong)


@pytest.mark.parametrize("rate", [0.5, 7.0, 20.0, 333.0])
@pytest.mark.parametrize("processes", [1, 5])
def test_many_processes_keep_it_within_five_percent_over_ten_seconds(rate: float, processes: int) -> None:
    """Each asks when it is told to, a little late; what begins in any ten seconds is the rate."""
    rng = random.Random(3)
    next_: float | None = None
    asks = [(rng.random() * 0.01, n) for n in range(processes)]
    starts: list[float] = []
    while (now := min(asks)[0]) < 40.0:
        _, who = min(asks)
        asks.remove((now, who))
        stand = pace(next_, now, rate)
        starts += [now + stand.delay(n) for n in range(stand.most)]
        next_ = stand.after(stand.most)
        asks.append((now + stand.again(stand.most) + rng.random() * 0.03, who))
    for start in (0.0, 5.0, 17.3, 29.0):
        count = sum(start <= at < start + 10 for at in starts)
        assert abs(count - rate * 10) <= max(0.05 * rate * 10, 1)


@pytest.mark.parametrize("next_", [None, 100.0, 199.95])
def test_after_a_rest_the_first_second_has_no_more_calls_than_the_rate_says(next_: float | None) -> None:
    """One call at once and then one each interval, though nobody called for a while."""
    rate, now, starts = 10.0, 200.0, list[float]()
    while now < 201.5:
        stand = pace(next_, now, rate)
        starts += [now + stand.delay(n) for n in range(stand.most)]
        next_, now = stand.after(stand.most), now + stand.again(stand.most)
    assert starts[0] == 200.0
    assert all(later - sooner > 0.0999 for sooner, later in pairwise(starts))
    assert sum(at < 200.9999 for at in starts) == 10


def test_a_further_try_gets_the_next_turn_or_none() -> None:
    stand = pace(100.0, 99.5, 10.0)
    assert [stand.turn(most) for most in (0.4, 0.5, 60.0)] == [None, 0.5, 0.5]


def test_turns_of_tries_reserve_no_more_than_a_minute() -> None:
    """What is reserved further ahead would look like a clock that has gone back."""
    next_: float | None = None
    stand = pace(next_, 100.0, 0.1)
    for _ in range(100):
        if stand.turn(1000.0) is None:
            break
        next_ = stand.after(1)
        stand = pace(next_, 100.0, 0.1)
    assert stand.first == 170.0
    assert pace(next_, 100.0, 0.1).first == stand.first


def test_a_clock_that_went_far_back_does_not_stop_everything() -> None:
    assert pace(1e6, 100.0, 10.0).first <= 161.0
