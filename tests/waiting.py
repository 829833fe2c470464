"""How tests wait for what rings nobody: they look, and between two looks leave the core to whoever is to bring it about."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

PAUSE = 0.005


async def moment() -> None:
    """Let other things happen between two looks."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PAUSE):
            await asyncio.Event().wait()


async def until(
    condition: Callable[[], Awaitable[object]], what: str = "it to be so", seconds: float = 120.0
) -> None:
    """Wait until ``await condition()`` holds, of which a store tells nobody; fails after so many seconds, naming ``what``."""
    try:
        async with asyncio.timeout(seconds):
            while not await condition():
                await moment()
    except TimeoutError:
        pytest.fail(f"waited {seconds:g} s in vain for {what}")
