"""The machine's clocks behave as the deadlines need it."""

from makegood.base.clock import SystemClock, WallJumps
from tests.clocks import HandClock


def test_the_clock_for_deadlines_only_rises_and_the_boot_is_named() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)
    assert clock.boot_id() == SystemClock().boot_id() != ""
    assert clock.wall() > 1_700_000_000


def test_a_wall_clock_that_was_set_is_noticed_once() -> None:
    """Forward or back; time that passes is none, nor is drift."""
    clock = HandClock()
    jumps = WallJumps(clock)
    clock.forward(86_400.0)
    assert not jumps.come()
    for seconds in (3600.0, -7200.0):
        clock.wall_seconds += seconds
        assert jumps.come()
        assert not jumps.come()
    clock.wall_seconds += 0.01
    assert not jumps.come()
