"""How loops rest: pauses that grow to a limit, and waiting for a wake-up with one."""

import asyncio
import random

import pytest

from makegood.base.pacing import Pauses, event_within


def test_pauses_grow_with_jitter_to_a_limit() -> None:
    pauses = Pauses(random.Random(1), first=0.02, longest=1.0)
    draws = [pauses.draw() for _ in range(12)]
    assert 0.01 <= draws[0] <= 0.03
    assert max(draws) <= 1.5
    assert draws[-1] >= 0.5
    pauses.reset()
    assert pauses.draw() <= 0.03


def test_without_chance_pauses_are_exact() -> None:
    pauses = Pauses(longest=0.5)
    assert [pauses.draw() for _ in range(4)] == [0.1, 0.2, 0.4, 0.5]


@pytest.mark.parametrize("limit", [None, 20.0])
async def test_a_wake_up_that_comes_or_had_come_ends_the_wait(limit: float | None) -> None:
    event = asyncio.Event()
    waiting = asyncio.ensure_future(event_within(event, limit))
    await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    assert await waiting
    assert await event_within(event, limit)


async def test_without_a_wake_up_the_limit_ends_the_wait() -> None:
    assert not await event_within(asyncio.Event(), 0.001)
