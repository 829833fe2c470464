"""Durations are read as people write them, and refused with the remedy."""

import math
from datetime import timedelta
from typing import Any

import pytest

from makegood.base.durations import Duration, retry_after, seconds, short_duration
from makegood.errors import ConfigError


@pytest.mark.parametrize(
    ("duration", "expectation"),
    [
        ("200ms", 0.2),
        ("20s", 20.0),
        ("5m", 300.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        (3, 3.0),
        (0.5, 0.5),
        ("1.5s", 1.5),
    ],
)
def test_a_duration_is_read_in_every_form(duration: Duration, expectation: float) -> None:
    assert seconds(duration) == pytest.approx(expectation)
    assert seconds(timedelta(seconds=expectation)) == pytest.approx(expectation)


@pytest.mark.parametrize(
    "wrong", ["20", "fast", "", "-1s", "20 parsecs", True, None, [], float("nan"), float("inf"), -1]
)
def test_what_is_no_duration_is_refused_by_name(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="complete_within="):
        seconds(wrong, name="complete_within")


@pytest.mark.parametrize(("wrong", "text"), [("15", "15"), (" .5 ", ".5")])
def test_a_number_that_is_a_text_is_told_that_it_has_no_unit(wrong: str, text: str) -> None:
    with pytest.raises(ConfigError) as error:
        seconds(wrong, name="ttl")
    assert str(error.value) == f'ttl={wrong!r} has no unit: write "{text}s", or {text} without quotes'


@pytest.mark.parametrize("wrong", ["-5s", " -200ms", -1, -0.5, timedelta(seconds=-1)])
def test_a_negative_duration_is_told_so(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"every=.* is negative"):
        seconds(wrong, name="every")


def test_a_duration_below_the_least_is_refused_with_the_least() -> None:
    with pytest.raises(ConfigError, match=r"at least 0\.1 s"):
        seconds("50ms", name="lease", least=0.1)


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("120", 120.0),
        ("5s", 5.0),
        (2, 2.0),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
    ],
)
def test_a_retry_after_header_is_understood_as_seconds_or_date(value: Duration, wait: float) -> None:
    assert retry_after(value, now=100.0) == pytest.approx(wait)


@pytest.mark.parametrize(
    "value",
    ["99999999999", 1e12, "30d", timedelta.max, "Fri, 31 Dec 9999 23:59:59 GMT", "9" * 300],
)
def test_no_wait_is_longer_than_a_week(value: Duration) -> None:
    """Else a service that asks for too much, or says a wrong year, would be asked by nobody who lives now."""
    assert retry_after(value, now=0.0) == 604_800.0


@pytest.mark.parametrize(
    "value", ["soon", "9" * 400, "Thu, 01 Jan 2020 00:00:00 +9999999999999999", object(), math.inf]
)
def test_a_retry_after_that_says_nothing_waits_a_second_instead_of_failing(value: Any) -> None:
    assert retry_after(value, now=0.0) == 1.0


@pytest.mark.parametrize(
    ("value", "text"), [(0.2, "200ms"), (2.0, "2s"), (90.0, "1m30s"), (7200.0, "2h"), (90061.0, "1d1h1m1s")]
)
def test_lengths_of_time_are_shown_as_people_write_them(value: float, text: str) -> None:
    assert short_duration(value) == text
