"""Values of rows that nobody of makegood wrote, as fields of records."""

import math
from random import Random
from typing import Any

import pytest

from makegood.base.clock import date_text, iso
from makegood.base.durations import brief, short_duration
from makegood.base.stored_values import FARTHEST, UNKNOWN, record_of
from makegood.console.gantt import MOST_TICKS, Axis, Bar, chart, ticks
from makegood.console.render import ago, clock_time, until
from makegood.election.protocol import LeaseView
from makegood.store.views import AlertView, NodeView, StepBrief, TaskView

ODD: list[Any] = [
    None, "", "soon", b"\xff", -1, 0, 2**62, -(2**63), 1e300, -1e300, math.nan, math.inf, -math.inf, 0.5, True, "\u202e", "x" * 1000,
]  # fmt: skip


@pytest.mark.parametrize("record", [TaskView, AlertView, NodeView, StepBrief, LeaseView])
def test_a_record_of_any_values_has_fields_of_its_types(record: Any) -> None:
    """A number is a finite one, a text a text, and what may be missing is missing rather than wrong."""
    chance = Random(3)
    names = getattr(record, "__struct_fields__", None) or tuple(record.__dataclass_fields__)
    for _ in range(300):
        row = record_of(record, [chance.choice(ODD) for _ in names])
        for name in names:
            value, kind = getattr(row, name), str(record.__annotations__[name])
            if "float" in kind and not (value is None and "None" in kind):
                assert isinstance(value, float)
                assert abs(value) <= FARTHEST
            elif kind in ("<class 'int'>", "int"):
                assert isinstance(value, int)
            elif kind in ("<class 'str'>", "str"):
                assert isinstance(value, str)


@pytest.mark.parametrize(
    "at",
    [
        1e300,
        -1e300,
        math.nan,
        math.inf,
        -math.inf,
        UNKNOWN,
        FARTHEST,
        2.0**62,
        253_402_300_800.0,
        -62_135_596_801.0,
    ],
)
def test_no_point_in_time_is_too_far_to_be_shown(at: float) -> None:
    """JSON gets a date at the end of the calendar, people a question mark."""
    assert str(iso(at))[:4] in ("0001", "9999")
    assert date_text(at, "%Y") == clock_time(at) == "?"
    assert "?" in ago(at, 1.8e9)
    assert until(at)
    assert brief(at) == short_duration(at) == "?" or abs(at) < 1e11


@pytest.mark.parametrize("far", [1e13, 1e300, 2.0**62])
def test_an_axis_over_any_length_has_few_labels(far: float) -> None:
    """One row may say that something lasted a million years: the labels are bounded, and drawn at once."""
    assert len(ticks(Axis([(0.0, 0.0), (1.0, 40.0), (far, 100.0)]), 0.0)) <= 2 * (MOST_TICKS + 1)
    bars = [Bar(row=0, start=n * 1.0, end=n + 0.5, look="ok") for n in range(3)] + [
        Bar(row=0, start=3.0, end=far, look="ok")
    ]
    assert len(chart(["a"], bars, origin=0.0, now=far, turn=2.0).ticks) <= MOST_TICKS
