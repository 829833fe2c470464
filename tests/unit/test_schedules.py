"""Schedules as apps declare them: the plan is made once for all moments, and what cannot be meant is refused."""

from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.model.plan import Ref
from makegood.model.schedule import ScheduleTimes
from tests.unit.zone_folders import enact, system_rules, write_zone

shop = mg.App("shop")
desk = shop.agent("desk")


@desk.action(complete_within="20s", undo=mg.NOTHING)
def write(region: str, at: datetime) -> bool:
    """Write."""
    return True


@shop.workflow
def report(region: str, at: datetime) -> bool:
    """Write once, and once more if that says so."""
    first = write(region, at)
    return mg.when(first, then=lambda: write("again", at), otherwise=lambda: first)


def test_a_sketch_refers_to_the_moment_and_keeps_the_other_inputs() -> None:
    plan = report._sketch("eu", mg.MOMENT)
    assert (plan.workflow, [bytes(raw) for raw in plan.inputs], plan.moments) == (
        "report",
        [b'"eu"', b"null"],
        (1,),
    )
    refs = [step.args.refs for step in plan.steps if step.kind == "action" and step.args is not None]
    assert refs == [(Ref("input", 0), Ref("input", 1)), (Ref("input", 1),)]
    assert plan.steps == report.plan("eu", datetime(2026, 1, 1, tzinfo=UTC)).steps


def test_a_workflow_that_branches_on_its_moment_is_refused() -> None:
    app = mg.App("branches")

    @app.workflow
    def weekly(at: datetime) -> None:
        if at.weekday() == 0:
            write("eu", at)

    with pytest.raises(mg.PromiseError, match="do this in an action") as refusal:
        app.schedule(every="1h")(weekly)
    assert "let an action decide on the moment" in "".join(refusal.value.__notes__)
    assert app.schedules == {}


def test_a_moment_outside_of_a_schedule_is_refused() -> None:
    with pytest.raises(mg.PromiseError, match=r"mg\.MOMENT, which stands for the moment of a schedule"):
        report.plan("eu", mg.MOMENT)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ({}, "pass one of cron="),
        ({"cron": "0 9 * * *", "every": "1h"}, "not both"),
        ({"cron": "0 25 * * *"}, "hour"),
        ({"cron": "0 9 * * *", "timezone": "Europe/Berln"}, "timezone"),
        ({"every": "1h", "timezone": "Europe/Berlin"}, "leave timezone out"),
        ({"every": "1h", "overlap": "queue"}, "overlap"),
        ({"every": "1h", "catch_up": "1s"}, "catch_up"),
        ({"every": "1h", "jitter": -1}, "jitter"),
        ({"every": "1h", "start": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - refused
        (
            {
                "every": "1h",
                "start": datetime(2026, 2, 1, tzinfo=UTC),
                "end": datetime(2026, 1, 1, tzinfo=UTC),
            },
            "before start",
        ),
    ],
)
def test_times_that_cannot_be_meant_are_refused(options: dict[str, Any], pattern: str) -> None:
    with pytest.raises(mg.MakegoodError, match=f"^schedule 's': .*{pattern}"):
        shop.schedule("s", report, "eu", mg.MOMENT, **options)
    assert shop.schedules == {}


@pytest.mark.parametrize("name", ["", "a b", "a@b", "a[b]", "x" * 101])
def test_names_that_would_not_fit_a_key_are_refused(name: str) -> None:
    with pytest.raises(mg.ConfigError, match="name"):
        shop.schedule(name, report, "eu", mg.MOMENT, every="1h")


def test_inputs_that_do_not_fit_are_refused_where_they_are_declared() -> None:
    declare: Any = shop.schedule
    with pytest.raises(mg.PayloadError, match="the input at of"):
        declare("s", report, "eu", 7, every="1h")
    with pytest.raises(mg.DefinitionError, match=r"mg\.MOMENT"):
        shop.schedule(every="1h")(report)


def test_who_forgets_the_moment_is_reminded_of_its_name() -> None:
    declare: Any = shop.schedule
    with pytest.raises(mg.DefinitionError, match=r"at is missing.*; mg\.MOMENT stands for the moment"):
        declare("s", report, "eu", every="1h")
    with pytest.raises(mg.DefinitionError, match=r"not 3; there are region, at$"):
        declare("s", report, "eu", "us", "asia", every="1h")


def test_moments_that_new_rules_leap_over_are_left(tmp_path: Path) -> None:
    """Also the one at the end of a gap that the last wall time is in by these rules."""
    change = int(datetime(2026, 3, 1, 2, tzinfo=UTC).timestamp())
    folder = enact(tmp_path, "2998a")
    write_zone(folder / "Test/Town", 0, (change, 3600))
    times = ScheduleTimes(cron="*/30 2-3 * * *", timezone="Test/Town")
    with system_rules(folder):
        moments = islice(times.beyond(change + 1800, datetime(2026, 3, 1, 2, 30)), 3)  # noqa: DTZ001 - a wall time
        keys = [moment.key("s") for moment in moments]
    assert keys == [f"s@2026-03-{at}[Test/Town]" for at in ("01T03:00", "01T03:30", "02T02:00")]
