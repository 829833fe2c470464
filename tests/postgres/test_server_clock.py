"""What a process knows of the server's clock: from answers that arrive a while after the server read it."""

import pytest

from makegood.store.postgres.server_clock import ServerClock
from tests.clocks import HandClock

TIME = 1_800_000_000.0
"""What the server's clock shows when the other one shows 0."""


def answered(
    server_clock: ServerClock, local: HandClock, *, before: float, after: float, time: float = TIME
) -> None:
    """Ask, and note the answer: the server reads its clock ``before`` seconds after the question, ``after`` before the answer."""
    begin = local.monotonic()
    local.forward(before)
    now = time + local.monotonic()
    local.forward(after)
    server_clock.set(now, begin)


def test_a_slow_answer_does_not_make_it_late() -> None:
    """Else each sleep would end late by the slowest heartbeat of a busy machine."""
    local = HandClock()
    server_clock = ServerClock(local)
    answered(server_clock, local, before=0.001, after=0.4)
    assert server_clock.now() == pytest.approx(TIME + local.monotonic() - 0.4)
    answered(server_clock, local, before=0.001, after=0.002)
    answered(server_clock, local, before=0.001, after=0.3)
    assert server_clock.now() == pytest.approx(TIME + local.monotonic(), abs=0.003)


def test_it_is_never_ahead_of_a_server_whose_clock_is_slower_or_set_back() -> None:
    local = HandClock()
    server_clock = ServerClock(local)
    for second in range(3600):
        local.forward(1.0)
        answered(server_clock, local, before=0.0, after=0.01, time=TIME - 0.0003 * second)
        assert server_clock.now() <= TIME - 0.0003 * second + local.monotonic() + 1e-6
    answered(server_clock, local, before=0.001, after=0.01, time=TIME - 60)
    assert server_clock.now() == pytest.approx(TIME - 60 + local.monotonic(), abs=0.011)
    answered(server_clock, local, before=0.001, after=0.01, time=TIME + 60)
    assert server_clock.now() == pytest.approx(TIME + 60 + local.monotonic(), abs=0.011)
