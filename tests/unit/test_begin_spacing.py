"""Calls of an agent with a rate begin an interval apart, however late the machine comes to each. Time is virtual."""

import asyncio
import random
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

from makegood.agent.begin_spacing import SLACK, BeginSpacing
from makegood.model.attempt import Attempt
from makegood.model.messages import Request
from makegood.testing.simulator.loop import WorldLoop

GAP = 0.05


class LoopClock:
    """The virtual time of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        """Seconds."""
        return self._loop.time()

    wall = monotonic

    def boot_id(self) -> str:
        """One boot."""
        return "boot"


class Nobody:
    """Extends nothing."""

    async def extend(self, attempt: Attempt, more: float) -> bool:
        """Refuse."""
        return False

    def note(self, attempt: Attempt, value: object) -> None:
        """Nothing notes anything here."""
        raise NotImplementedError


def attempt() -> Attempt:
    return Attempt(
        Request(1, 0, "do", 1, "shop", "bank", "pay", "pay", 1, 60.0, b"{}"), 1, 60.0, 0.0, Nobody()
    )


def on_virtual_time(work: Coroutine[Any, Any, None]) -> None:
    loop = WorldLoop(random.Random(1))
    try:
        loop.run_until_complete(work)
    finally:
        loop.dispose()


async def pause(seconds: float) -> None:
    """Let virtual time pass."""
    loop = asyncio.get_running_loop()
    end = loop.create_future()
    loop.call_later(seconds, end.set_result, None)
    await end


def began(lags: list[float]) -> list[float]:
    """Return when calls begin that may begin GAP apart, each of which the machine comes to so much later."""
    moments: list[float] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        spacing = BeginSpacing(1 / GAP, LoopClock(loop))

        async def call(delay: float, lag: float) -> None:
            mine = attempt()
            await pause(delay)
            await spacing.wait(mine)
            await pause(lag)  # until a thread runs it
            moments.append(loop.time())
            spacing.note_begin(mine, loop.time())

        await asyncio.gather(*(call(n * GAP, lag) for n, lag in enumerate(lags)))

    on_virtual_time(run())
    return moments


def test_a_late_call_does_not_bring_the_next_one_closer() -> None:
    moments = began([0.0, 0.04, 0.0, 0.02, 0.0, 0.0])
    assert len(moments) == 6
    assert all(later - sooner >= GAP - SLACK - 1e-9 for sooner, later in pairwise(moments))


def test_late_timers_of_less_than_a_millisecond_are_made_up_for() -> None:
    moments = began([0.0008] * 200)
    assert moments[-1] - moments[0] <= 199 * GAP + 0.002


def test_whoever_ends_without_a_call_hands_on_the_turn_at_once() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        spacing = BeginSpacing(1 / GAP, LoopClock(loop))
        first, second = attempt(), attempt()
        await spacing.wait(first)
        spacing.leave(first)
        spacing.leave(first)  # a second time it has no effect
        await spacing.wait(second)
        assert loop.time() == 0.0

    on_virtual_time(run())
