"""One attempt: which answer comes of what its function does, without a store and without a Scheduler."""

import asyncio
import random
from typing import Any

import pytest

import makegood as mg
from makegood.clock import SystemClock
from makegood.declaration import Action
from makegood.messages import Message, Request
from makegood.threads import DaemonThreads
from makegood.trying import Running, Trying, words

desk = mg.App("shop").agent("desk")
tries: list[str] = []


@desk.action(complete_within="1m", retry=mg.Retry(tries=3, wait=0))
async def charge(cents: int) -> str:
    tries.append("charge")
    if cents == 0:
        raise ConnectionError("gone")
    return f"paid {cents}"


@charge.undo
async def refund(cents: int, *, result: str | None) -> None: ...


@desk.action(complete_within="1m", undo=mg.NOTHING, retry=mg.NEVER)
def first(cents: int) -> int:
    return next(iter(range(cents)))


async def answer(
    args: bytes, doing: Any = "do", *, deadline: float = 60.0, of: Action[..., Any] | None = None
) -> Message | None:
    """Run one attempt and return its answer."""
    clock, threads = SystemClock(), DaemonThreads(1, "test")

    async def extended(_attempt: Running, _more: float) -> bool:
        return False

    request = Request(1, 2, doing, 3, "shop", "desk", "charge", "charge", 1, 60.0, args)
    now = clock.monotonic()
    attempt = Running(request, 1, now + deadline, now + 600.0, now, extended)
    tries.clear()
    try:
        return await Trying(clock, random.Random(1), threads, lambda _deadline: None).answer(
            attempt, of or charge
        )
    finally:
        threads.shutdown()


async def test_a_result_is_the_answer_to_this_attempt() -> None:
    assert await answer(b'{"cents":5}') == Message("done", 2, "do", 3, value=b'"paid 5"')


async def test_after_its_tries_it_gave_up_and_an_earlier_one_is_unanswered() -> None:
    said = await answer(b'{"cents":0}')
    assert said == Message("gave_up", 2, "do", 3, error="ConnectionError: gone")
    assert tries == ["charge"] * 3


async def test_a_plain_function_whose_next_finds_nothing_gave_up() -> None:
    """A future takes no StopIteration: the attempt had no answer, and was silent until its complete-by."""
    said = await answer(b'{"cents":0}', of=first)
    assert said is not None
    assert (said.kind, said.error) == ("gave_up", "RuntimeError: the function raised StopIteration")
    assert await answer(b'{"cents":5}', of=first) == Message("done", 2, "do", 3, value=b"0")


async def test_no_try_is_begun_that_would_come_after_its_complete_by() -> None:
    assert await answer(b'{"cents":0}', deadline=0.0) is not None
    assert tries == ["charge"]


@pytest.mark.parametrize(("doing", "kind", "final"), [("do", "permanent", False), ("undo", "gave_up", True)])
async def test_arguments_that_do_not_fit_are_certain_for_the_action_and_not_for_its_undo(
    doing: str, kind: str, final: bool
) -> None:
    """An undo that was not begun leaves an effect standing: that is for an operator, or for a process with other code."""
    said = await answer(b'{"cents":"five"}', doing)
    assert said is not None
    assert (said.kind, said.final, said.unclear) == (kind, final, False)
    assert "was not begun" in (said.error or "")
    assert tries == []


def test_an_error_is_told_in_words_with_its_type_unless_it_is_ours_and_never_at_length() -> None:
    assert words(ValueError("five")) == "ValueError: five"
    assert words(asyncio.CancelledError()) == "CancelledError"
    assert words(mg.Permanent("card refused")) == "card refused"
    assert len(words(ValueError("x" * 10_000))) == 2000
