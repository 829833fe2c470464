"""When a task may begin, as people write it: delays, moments, zones."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import makegood as mg
from makegood.base.wall_times import by_present_rules, moment, read_moment
from makegood.client.submit_many import Many
from makegood.model.plan import Start
from tests.actors.noop_apps import chain_app

_, CHAIN = chain_app(1)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"delay": "1h", "at": datetime(2027, 1, 1, tzinfo=UTC)}, "pass only one of them"),
        ({"at": datetime(2027, 1, 1)}, "has no time zone"),  # noqa: DTZ001 - that is the mistake
        ({"at": "2027-01-01T00:00Z"}, "is not a moment|pass a datetime"),
        ({"at": date(2027, 1, 1)}, "is not a moment|pass a datetime"),
        ({"delay": "3"}, "has no unit"),
        ({"delay": -1}, "is negative"),
        ({"delay": "4000d"}, "delay='4000d' is longer than ten years"),
        ({"delay": 4000 * 86400.0}, "delay=4000d is longer than ten years"),
        ({"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5)))}, "beyond the calendar"),
    ],
)
def test_what_says_no_start_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(mg.ConfigError, match=text):
        CHAIN.plan("x").with_(**options)
    with pytest.raises(mg.ConfigError, match=text):
        Many(CHAIN, **options)


def test_a_plan_keeps_its_start_until_another_is_given() -> None:
    plan = CHAIN.plan("x").with_(delay="90s", key="k")
    assert plan.start == Start(90.0)
    assert plan.with_(priority=3).start == Start(90.0)
    assert plan.with_(at=datetime(1970, 1, 1, 2, tzinfo=UTC)).start == Start(None, 7200.0, "")
    assert plan.fingerprint == CHAIN.plan("x").with_(key="k").fingerprint


def test_a_named_zone_is_kept_and_a_fixed_offset_is_a_moment() -> None:
    nine = datetime(2027, 3, 28, 9, tzinfo=BERLIN)
    assert moment(nine) == (nine.timestamp(), "2027-03-28T09:00:00[Europe/Berlin]")
    fixed = nine.astimezone(timezone(timedelta(hours=2)))
    assert moment(fixed) == (nine.timestamp(), "")
    assert moment(nine.replace(tzinfo=ZoneInfo("UTC")))[1] == ""


def test_the_repeated_hour_and_the_gap() -> None:
    first, second = (datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=BERLIN) for fold in (0, 1))
    texts = [moment(each)[1] for each in (first, second)]
    assert texts == ["2026-10-25T02:30:00[Europe/Berlin]", "2026-10-25T02:30:00[Europe/Berlin]~"]
    assert by_present_rules(0.0, texts[1]) - by_present_rules(0.0, texts[0]) == 3600
    in_gap = datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)
    assert by_present_rules(0.0, moment(in_gap)[1]) == moment(in_gap)[0]


@pytest.mark.parametrize(
    "wall", ["", "nonsense", "2027-01-01T00:00:00[Nowhere/City]", "x[Europe/Berlin]", "1[../etc]"]
)
def test_what_cannot_be_computed_stays_the_moment_that_it_was(wall: str) -> None:
    assert by_present_rules(7.0, wall) == 7.0


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("2026-12-24T09:00", "an offset or a time zone"),
        ("2026-12-24T09:00+01:00[Europe/Berlin]", "an offset or a time zone"),
        ("2026-12-24T09:00[Europe/Atlantis]", "have no such zone"),
        ("tomorrow", "is not a moment"),
    ],
)
def test_a_text_that_names_no_moment_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(mg.ConfigError, match=complaint):
        read_moment(text)
