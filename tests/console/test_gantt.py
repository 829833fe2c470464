"""The axis of time: quiet stretches are shortened, everything else keeps its proportions."""

import random
from itertools import pairwise

from makegood.console.gantt import (
    BREAK,
    CHARACTER,
    FUTURE,
    GAP,
    MOST_BREAKS,
    Bar,
    axis,
    chart,
    duration_text,
    ticks,
)


def bar(start: float, end: float, look: str = "ok", **more: float) -> Bar:
    """Return a bar in the first row."""
    return Bar(row=0, start=start, end=end, look=look, **more)  # type: ignore[arg-type]


def test_an_hour_in_which_nothing_happens_takes_little_of_the_axis() -> None:
    """It is labelled with its length, and bars through it are cut."""
    gantt = chart(["a"], [bar(0, 1), bar(3601, 3602), bar(3602, 3603)], origin=0)
    assert [(round(b - a, 2), text) for a, b, text in gantt.breaks] == [(BREAK, "+1 h")]
    through = chart(["a"], [bar(0, 1), bar(1, 3601, "none"), bar(3601, 3602)], origin=0)
    assert [row for _, row in through.cuts] == [0]


def test_what_is_planned_stands_behind_now_to_no_scale() -> None:
    """However far away it is."""
    gantt = chart(["a"], [bar(0, 2), bar(2, 2, "plan")], origin=0, now=2.0)
    assert gantt.planned
    assert gantt.now == 100.0 - FUTURE
    assert gantt.bars[-1].start > gantt.now


def test_a_bar_without_a_time_of_taking_is_solid() -> None:
    """One with a time waits until then; the call begins behind it."""
    gantt = chart(["a"], [bar(0, 4), bar(4, 8, taken=6.0)], origin=0)
    assert (gantt.bars[0].begin, gantt.bars[0].taken) == (0.0, None)
    assert gantt.bars[1].begin == gantt.bars[1].taken
    assert gantt.bars[1].start < gantt.bars[1].begin < 100


def test_random_axes_rise_from_0_to_100() -> None:
    """Whatever lasts how long: places rise with time, at most five stretches are broken, labels keep apart."""
    for seed in range(300):
        rng = random.Random(seed)
        bars = [
            bar(start, start + 10 ** rng.uniform(-3, 4), rng.choice(("ok", "none", "held", "undo")))
            for start in (10 ** rng.uniform(-3, 4) for _ in range(rng.randint(1, 12)))
        ]
        gantt = axis(bars)
        places = [x for _, x in gantt.knots]
        assert places == sorted(places), seed
        assert abs(places[-1] - 100) < 1e-6, seed
        assert len(gantt.breaks) <= MOST_BREAKS, seed
        marks = [x for x, _ in ticks(gantt, 0.0)]
        assert all(b - a > 5 for a, b in pairwise(marks)), seed


def test_one_moment_is_an_axis_too() -> None:
    """Nothing is divided by its length."""
    assert chart(["a"], [bar(5, 5)], origin=5).bars[0].length > 0
    assert chart(["a"], [], origin=0).ticks is not None


def test_lengths_are_as_exact_as_their_steps() -> None:
    """Neither more digits nor fewer."""
    assert [
        duration_text(9.65, 0.05),
        duration_text(0.03, 0.005),
        duration_text(5400, 600),
        duration_text(90000),
    ] == [
        "9.65 s",
        "30 ms",
        "1.5 h",
        "25 h",
    ]


def test_no_two_labels_of_an_axis_are_printed_over_each_other() -> None:
    """Times, lengths of shortened stretches, "turn", "now" and "planned": what has no room is left out, and "now" stays."""
    rng = random.Random(7)
    for _ in range(200):
        bars, at = [], 0.0
        for row in range(rng.randint(1, 6)):
            at += rng.choice((0.001, 0.02, 1.0, 30.0, 4000.0))
            end = at + rng.choice((0.0005, 0.02, 2.0))
            bars.append(Bar(row=row, start=at, end=end, look="ok"))
            at = end
        if rng.random() < 0.5:
            bars.append(Bar(row=0, start=at + 9, end=at + 9, look="plan"))
        chart_ = chart(
            [str(n) for n in range(7)],
            bars,
            origin=0.0,
            now=at if rng.random() < 0.6 else None,
            turn=at * 0.99,
        )
        spans = [(chart_.now + GAP, "now", 0.0)] if chart_.now is not None else []
        spans += [(98.5, "planned", 1.0)] if chart_.planned else []
        spans += [(chart_.turn or 0.0, "turn", 0.5)] if chart_.says_turn else []
        spans += [((p + q) / 2, text, 0.5) for p, q, text in chart_.breaks if text]
        spans += [(x, text, 0.0 if x < 2 else 1.0 if x > 96 else 0.5) for x, text in chart_.ticks]
        places = sorted(
            (x - share * CHARACTER * len(text), x + (1 - share) * CHARACTER * len(text))
            for x, text, share in spans
        )
        assert all(end <= start for (_, end), (start, _) in pairwise(places)), places
