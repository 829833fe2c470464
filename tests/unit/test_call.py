"""What an action is told about its call is right for action, probe and undo, in tasks and in threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from makegood.base import ids
from makegood.base.clock import Clock
from makegood.declare.call import Call, Token, current_call, enter
from makegood.errors import CompleteByPassed, ConfigError, DefinitionError
from makegood.model.messages import Request
from tests.clocks import HandClock

TASK = 7_000_000_000


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Attempt:
    """An attempt with 30 seconds left, which the store lets extend or not."""

    def __init__(self, doing: Any = "do", *, grants: bool = True, **more: Any) -> None:
        self.clock = HandClock(100.0)
        self.deadline = 130.0
        self.retries = 0
        self.grants = grants
        self.asked: list[float] = []
        request = Request(
            task=TASK, idx=2, doing=doing, attempt=5, app="shop", agent="payments", action="charge", step="charge-2", round=3,
            within=30.0, args=b"{}", **more,
        )  # fmt: skip
        clock: Clock = self.clock
        self.call = Call(request, "s1", 4, self, clock, running_loop(), self.decoded)

    async def extend(self, seconds: float) -> bool:
        self.asked.append(seconds)
        if self.grants:
            self.deadline = self.clock.seconds + seconds
        return self.grants

    def decoded(self, data: bytes) -> str:
        return f"decoded {data.decode()}"


def test_the_key_is_the_steps_own_and_rises_with_the_round() -> None:
    shown = ids.show(TASK)
    action, probe, undo = (Attempt(doing).call for doing in ("do", "probe", "undo"))
    assert (action.key, action.undoes) == (f"s1-{shown}/charge-2/3/do", None)
    assert (probe.key, probe.undoes) == (action.key, action.key)
    assert (undo.key, undo.undoes) == (f"s1-{shown}/charge-2/3/undo", action.key)
    assert action.scope == probe.scope == undo.scope == f"s1-{shown}/charge-2"


def test_tokens_compare_by_generation_then_attempt() -> None:
    token = Attempt().call.token
    assert token == (4, 5)
    assert str(token) == "4.5"
    assert Token(4, 10) > Token(4, 9)
    assert Token(5, 1) > Token(4, 99)


def test_headers_say_all_of_it() -> None:
    attempt = Attempt("undo", trace="00-ab-cd-01")
    attempt.clock.seconds += 0.5
    shown = ids.show(TASK)
    assert attempt.call.headers == {
        "Idempotency-Key": f"s1-{shown}/charge-2/3/undo",
        "Makegood-Token": "4.5",
        "Makegood-Scope": f"s1-{shown}/charge-2",
        "Makegood-Undoes": f"s1-{shown}/charge-2/3/do",
        "Makegood-Remaining": "28.500",
        "traceparent": "00-ab-cd-01",
    }
    assert set(Attempt().call.headers) == {
        "Idempotency-Key",
        "Makegood-Token",
        "Makegood-Scope",
        "Makegood-Remaining",
    }


def test_where_the_call_stands() -> None:
    call = Attempt("undo", in_doubt=True).call
    assert (call.task_id, call.step, call.attempt, call.in_doubt) == (ids.show(TASK), "charge-2", 5, True)
    assert "charge-2" in repr(call)


def test_a_late_result_is_decoded_for_the_undo() -> None:
    assert Attempt("undo").call.late_result is None
    assert Attempt("undo", late=b'"pay-7"').call.late_result == 'decoded "pay-7"'
    plain = Call(
        Request(1, 0, "undo", 1, "a", "b", "c", "d", 1, 1.0, b"{}", late=b"[1]"), "s", 1, Attempt(), HandClock(100.0), None,
    )  # fmt: skip
    assert plain.late_result == [1]


def test_remaining_seconds_are_never_negative_and_check_raises_then() -> None:
    attempt = Attempt()
    assert (attempt.call.left, attempt.call.remaining()) == (30.0, 29.0)
    attempt.clock.seconds = 129.5  # there is no time to ask any more, and some to answer
    assert (attempt.call.left, attempt.call.remaining()) == (0.5, 0.0)
    attempt.call.check()
    attempt.clock.seconds = 131.0
    assert (attempt.call.left, attempt.call.remaining()) == (0.0, 0.0)
    with pytest.raises(CompleteByPassed, match="the deadline of step charge-2 of task"):
        attempt.call.check()


def test_what_remains_is_shared_among_the_tries_that_are_left() -> None:
    attempt = Attempt()
    assert attempt.call.remaining(tries=3) == pytest.approx(29.0 / 3)
    attempt.clock.seconds, attempt.retries = 110.0, 1
    assert attempt.call.remaining(tries=3) == pytest.approx(19.0 / 2)
    attempt.clock.seconds, attempt.retries = 120.0, 2
    assert attempt.call.remaining(tries=3) == attempt.call.remaining() == pytest.approx(9.0)
    attempt.retries = 7  # more than was said
    assert attempt.call.remaining(tries=3) == pytest.approx(9.0)


@pytest.mark.parametrize("tries", [0, -1, 1.5, True, "3"])
def test_tries_are_a_number(tries: Any) -> None:
    with pytest.raises(ConfigError, match=r"remaining\(tries=.*whole number from 1.*mg\.Retry"):
        Attempt().call.remaining(tries)


# -- the context -----------------------------------------------------------------------------------------------------------


def test_outside_of_an_action_there_is_no_call() -> None:
    with pytest.raises(
        DefinitionError, match=r"known only while an agent runs an action.*asyncio\.to_thread"
    ):
        current_call()


async def test_each_task_and_thread_has_its_own_call() -> None:
    async def action(attempt: Attempt) -> bool:
        enter(attempt.call)
        await asyncio.sleep(0)
        context = copy_context()
        in_thread = await asyncio.get_running_loop().run_in_executor(pool, context.run, current_call)
        return current_call() is attempt.call and in_thread is attempt.call

    with ThreadPoolExecutor(2) as pool:  # gather makes a task of each, as an agent does of an attempt
        assert await asyncio.gather(*(action(Attempt()) for _ in range(5))) == [True] * 5
    with pytest.raises(DefinitionError):
        current_call()


# -- extend -----------------------------------------------------------------------------------------------------------------


async def test_an_async_action_awaits_its_extension() -> None:
    attempt = Attempt()
    await attempt.call.extend("2m")
    assert attempt.asked == [120.0]
    assert attempt.call.left == 120.0


async def test_an_extension_takes_effect_even_when_nobody_awaits_it() -> None:
    attempt = Attempt()
    task = attempt.call.extend(60)
    await asyncio.sleep(0)
    assert attempt.call.left == 60.0
    await task


async def test_a_def_action_in_a_thread_waits_by_itself_and_may_await_all_the_same() -> None:
    attempt = Attempt()

    def action() -> float:
        attempt.call.extend(90)
        return attempt.call.left

    assert await asyncio.to_thread(action) == 90.0

    def awaiting() -> float:
        async def inner() -> float:
            await attempt.call.extend(45)
            return attempt.call.left

        return asyncio.run(inner())

    assert await asyncio.to_thread(awaiting) == 45.0


async def test_a_refused_extension_says_that_time_is_up() -> None:
    attempt = Attempt(grants=False)
    with pytest.raises(
        CompleteByPassed, match=r"cannot be extended any further: stop now.*longer complete_within"
    ):
        await attempt.call.extend(60)
    with pytest.raises(CompleteByPassed):
        await asyncio.to_thread(attempt.call.extend, 60)


@pytest.mark.parametrize("wrong", [0, -1, "soon", True])
def test_an_extension_is_a_duration(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="seconds="):
        Attempt().call.extend(wrong)


def test_without_a_loop_as_in_a_unit_test_extending_works_too() -> None:
    attempt = Attempt()
    attempt.call.extend(60)
    assert attempt.asked == [60.0]


async def test_a_thread_does_not_wait_for_an_extension_beyond_its_deadline() -> None:
    """The store may be away: the wait ends with the attempt, and says so."""
    attempt = Attempt()
    attempt.clock.seconds = 129.999
    stuck = asyncio.Event()

    async def never(seconds: float) -> bool:
        await stuck.wait()
        return True

    attempt.extend = never  # type: ignore[method-assign]  # as the store would while it is away
    before = threading.active_count()
    with pytest.raises(CompleteByPassed):
        await asyncio.to_thread(attempt.call.extend, 60)
    assert threading.active_count() <= before + 1  # the one that asked, kept by the loop for others
