"""What must not be broken of schedules' times: each mutant is noticed by the test that names it."""

import functools
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from makegood.base import zones
from makegood.moments.moment import ScheduleMoment, in_utc
from tests.unit.test_cron import an_upgrade_is_seen, each_day_is_one_task, no_moment_is_in_the_past


def guard_in_local_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two datetimes of one zone, compared by their wall times."""

    def is_after(moment: ScheduleMoment, instant: datetime) -> bool:
        zone = zones.zone(moment.timezone)
        return moment.at.astimezone(zone) > instant.astimezone(zone)

    monkeypatch.setattr(ScheduleMoment, "is_after", is_after)


def cached_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zone stays as it was first read."""
    monkeypatch.setattr(zones, "zone", functools.cache(zones.zone))


def utc_key_for_wall_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instant is the key of a time of the day."""
    monkeypatch.setattr(ScheduleMoment, "key", lambda moment, name: f"{name}@{in_utc(moment.at)}")


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (guard_in_local_time, lambda _: no_moment_is_in_the_past()),
        (cached_zone, an_upgrade_is_seen),
        (utc_key_for_wall_time, each_day_is_one_task),
    ],
)
def test_a_mutant_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Path], None],
) -> None:
    """The check holds for the true rules (``test_cron``), and fails for the mutant."""
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        check(tmp_path)
