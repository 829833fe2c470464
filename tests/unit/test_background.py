"""A loop in a thread: it runs coroutines for blocking code, and refuses to stop a running loop."""

import asyncio
import threading

import pytest

from makegood.background import Loop
from makegood.errors import MakegoodError


async def where() -> str:
    return threading.current_thread().name


def test_it_runs_in_a_thread_of_its_own_and_can_begin_again() -> None:
    begun: list[int] = []
    loop = Loop(lambda: begun.append(1))
    assert loop.run(where, "it") == "makegood"
    assert loop.run(where, "it") == "makegood"
    loop.stop()
    assert loop.run(where, "it") == "makegood"
    loop.stop()
    assert begun == [1, 1]


async def test_inside_a_running_loop_it_names_what_to_use() -> None:
    with pytest.raises(MakegoodError, match="use Client and await it"):
        Loop().run(lambda: asyncio.sleep(0), "Client")
