"""The machine's clocks behave as the deadlines need it."""

from makegood.base.clock import SystemClock


def test_the_clock_for_deadlines_only_rises_and_the_boot_is_named() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)
    assert clock.boot_id() == SystemClock().boot_id() != ""
    assert clock.wall() > 1_700_000_000
