"""What an action is told about its call is right for action, probe and undo, in tasks and in threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from typing import Any

import pytest

from makegood import keys
from makegood.base import ids
from makegood.base.clock import Clock
from makegood.base.service_keys import KeyedRequest, length_of, request_of
from makegood.declare.call import Call, Token, current_call, enter
from makegood.errors import CallCancelled, CompleteByPassed, ConfigError, DefinitionError, PayloadError
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

    def __init__(
        self,
        doing: Any = "do",
        *,
        grants: bool = True,
        keys: keys.Preset = keys.PLAIN,
        tries: int = 1,
        **more: Any,
    ) -> None:
        self.clock = HandClock(100.0)
        self.deadline = 130.0
        self.retries = 0
        self.first_sent = 1_800_000_000.25
        self.grants = grants
        self.asked: list[float] = []
        self.notes: list[object] = []
        self.is_over = False
        self.is_cancelled = self.is_cancelled_meanwhile = False
        request = Request(
            task=TASK, idx=2, doing=doing, attempt=5, app="shop", agent="payments", action="charge", step="charge-2", round=3,
            within=30.0, args=b"{}", **more,
        )  # fmt: skip
        clock: Clock = self.clock
        self.call = Call(request, "s1", 4, self, clock, running_loop(), self.decoded, keys, tries)

    @property
    def cancelled(self) -> bool:
        return self.is_cancelled

    def note(self, value: object) -> None:
        self.notes.append(value)

    async def rest(self, seconds: float) -> None:
        self.asked.append(seconds)
        self.is_cancelled = self.is_cancelled or self.is_cancelled_meanwhile
        self.clock.seconds += seconds

    async def extend(self, seconds: float) -> bool:
        self.asked.append(seconds)
        if self.grants:
            self.deadline = self.clock.seconds + seconds
        return self.grants

    def decoded(self, data: bytes) -> str:
        return f"decoded {data.decode()}"


def test_the_key_is_the_steps_own_and_rises_with_the_round() -> None:
    task_id = ids.show(TASK)
    action, probe, undo = (Attempt(doing).call for doing in ("do", "probe", "undo"))
    assert (action.key, action.undoes) == (f"s1-{task_id}/charge-2/3/do", None)
    assert (probe.key, probe.undoes) == (action.key, action.key)
    assert (undo.key, undo.undoes) == (f"s1-{task_id}/charge-2/3/undo", action.key)
    assert action.scope == probe.scope == undo.scope == f"s1-{task_id}/charge-2"


@pytest.mark.parametrize("form", ["uuid", "uuid4", "quoted", "length=28"])
def test_with_a_form_all_keys_have_it_and_undo_and_probe_name_the_same_action(form: str) -> None:
    action, probe, undo = (Attempt(doing, key_form=form).call for doing in ("do", "probe", "undo"))
    assert (action.key, action.undoes) == (action.key_as(form), None)
    assert (probe.key, probe.undoes) == (action.key, action.key)
    assert undo.undoes == action.key != undo.key
    assert len(undo.key) == len(action.key) == length_of(form)
    assert undo.headers["Idempotency-Key"] == undo.key
    assert undo.headers["Makegood-Undoes"] == probe.headers["Makegood-Undoes"] == action.key
    readable = f"s1-{ids.show(TASK)}/charge-2/3"
    assert (undo.key_as("plain"), undo.undoes_as("plain")) == (f"{readable}/undo", f"{readable}/do")
    assert repr(action) == f"<call {readable}/do attempt 5>"
    assert request_of("s1", undo.key) == KeyedRequest(TASK, 2, 3, undo=True)


def test_any_form_may_be_had_of_a_key_that_is_declared_without_one() -> None:
    action, undo = Attempt("do").call, Attempt("undo").call
    assert undo.undoes_as(length=28) == action.key_as(length=28) == action.key_as("length=28")
    assert undo.undoes_as("uuid4") == action.key_as("uuid4")
    assert action.undoes_as("uuid") is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((), "either a form"), (("uuid", 28), "either a form"), (("guid",), "not the form"), ((None, 19), "at least 20"),
     ((None, 65), "at most 64")],
)  # fmt: skip
def test_a_form_that_does_not_exist_is_refused(arguments: tuple[Any, ...], words: str) -> None:
    form, length = (*arguments, None, None)[:2]
    for ask in (Attempt("undo").call.key_as, Attempt("undo").call.undoes_as):
        with pytest.raises(ConfigError, match=words):
            ask(form, length=length)


def test_a_preset_puts_the_key_where_its_service_looks_for_it() -> None:
    klarna = Attempt("undo", keys=keys.KLARNA, key_form="uuid").call
    assert klarna.headers["Klarna-Idempotency-Key"] == klarna.key
    assert "Idempotency-Key" not in klarna.headers
    square = Attempt(keys=keys.SQUARE, key_form="uuid").call
    assert square.headers["Idempotency-Key"] == square.key


def test_the_first_request_has_a_time_in_utc_and_azure_gets_it() -> None:
    call = Attempt(keys=keys.AZURE, key_form="uuid").call
    assert call.first_sent == datetime(2027, 1, 15, 8, 0, 0, 250_000, UTC)
    assert call.headers["Repeatability-First-Sent"] == "Fri, 15 Jan 2027 08:00:00 GMT"
    assert call.headers["Repeatability-Request-ID"] == call.key


def test_tokens_compare_by_generation_then_attempt() -> None:
    token = Attempt().call.token
    assert token == (4, 5)
    assert str(token) == "4.5"
    assert Token(4, 10) > Token(4, 9)
    assert Token(5, 1) > Token(4, 99)


def test_headers_say_all_of_it() -> None:
    attempt = Attempt("undo", trace="00-ab-cd-01")
    attempt.clock.seconds += 0.5
    task_id = ids.show(TASK)
    assert attempt.call.headers == {
        "Idempotency-Key": f"s1-{task_id}/charge-2/3/undo",
        "Makegood-Token": "4.5",
        "Makegood-Scope": f"s1-{task_id}/charge-2",
        "Makegood-Undoes": f"s1-{task_id}/charge-2/3/do",
        "Makegood-Remaining": "28.500",
        "traceparent": "00-ab-cd-01",
    }
    assert set(Attempt().call.headers) == {
        "Idempotency-Key",
        "Makegood-Token",
        "Makegood-Scope",
        "Makegood-Remaining",
    }


async def test_a_note_is_taken_on_the_event_loop_whichever_thread_writes_it() -> None:
    attempt = Attempt()
    attempt.call.note("12 of 40 files")
    await asyncio.to_thread(attempt.call.note, {"copied": 12})
    await asyncio.sleep(0)
    attempt.call.note("pin=4711 at https://me:hunter2@api.example")
    assert attempt.notes[:2] == ["12 of 40 files", {"copied": 12}]
    assert "4711" not in str(attempt.notes[2])
    assert "hunter2" not in str(attempt.notes[2])
    with pytest.raises(
        PayloadError, match=r"the note has 2,051 bytes as JSON, the fixed limit is 2,048: .* its address on$"
    ):
        attempt.call.note("x" * 2049)
    attempt.is_over = True
    with pytest.raises(CompleteByPassed, match="has ended"):
        await asyncio.to_thread(attempt.call.note, "too late")
    assert len(attempt.notes) == 3


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


def test_check_raises_once_nobody_needs_the_call_and_the_deadline_comes_first() -> None:
    attempt = Attempt()
    assert not attempt.call.cancelled
    attempt.is_cancelled = True
    assert attempt.call.cancelled
    with pytest.raises(CallCancelled, match=r"nobody needs step charge-2 of task .* any more"):
        attempt.call.check()
    attempt.clock.seconds = 131.0
    with pytest.raises(CompleteByPassed):
        attempt.call.check()


async def test_sleep_waits_until_nobody_needs_the_call_at_most_to_its_deadline() -> None:
    attempt = Attempt()
    await attempt.call.sleep("10s")
    assert attempt.asked == [10.0]
    with pytest.raises(CompleteByPassed):
        await attempt.call.sleep("1h")
    assert attempt.asked == [10.0, 20.0]
    other = Attempt()
    other.is_cancelled_meanwhile = True
    with pytest.raises(CallCancelled):
        await other.call.sleep(1)
    with pytest.raises(CallCancelled):
        other.call.sleep(1)
    assert other.asked == [1.0]


async def test_a_sleep_and_an_extension_that_nobody_awaits_say_so() -> None:
    """Both would return at once without a word, as a `def` action's may be written."""
    attempt = Attempt()
    for method, effect in ((attempt.call.sleep, "did not wait"), (attempt.call.extend, "does not show")):
        with pytest.warns(
            RuntimeWarning, match=rf"{effect}.*write `await call\.{method.__name__}\("
        ) as warnings:
            method("1s")
        assert warnings[0].filename == __file__


async def test_sleep_blocks_the_thread_of_a_def_action() -> None:
    attempt = Attempt()
    await asyncio.to_thread(attempt.call.sleep, "10s")
    assert attempt.asked == [10.0]
    attempt.is_cancelled_meanwhile = True
    with pytest.raises(CallCancelled):
        await asyncio.to_thread(attempt.call.sleep, 1)


@pytest.mark.parametrize("doing", ["do", "undo", "probe"])
def test_what_remains_is_shared_among_the_tries_that_are_left(doing: str) -> None:
    """The action's own ``Retry`` is known."""
    attempt = Attempt(doing, tries=3)
    assert attempt.call.remaining() == pytest.approx(29.0 / 3)
    attempt.clock.seconds, attempt.retries = 110.0, 1
    assert attempt.call.remaining() == pytest.approx(19.0 / 2)
    attempt.clock.seconds, attempt.retries = 120.0, 2
    assert attempt.call.remaining() == pytest.approx(9.0)
    attempt.retries = 7  # more than was declared
    assert attempt.call.remaining() == pytest.approx(9.0)


def test_a_client_that_repeats_by_itself_has_a_share_for_each_of_its_requests() -> None:
    assert Attempt().call.remaining(tries=3) == pytest.approx(29.0 / 3)
    attempt = Attempt(tries=2)
    assert attempt.call.remaining(tries=3) == pytest.approx(29.0 / 6)
    attempt.retries = 1
    assert attempt.call.remaining(tries=3) == pytest.approx(29.0 / 3)


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
    never_set = asyncio.Event()

    async def never(seconds: float) -> bool:
        await never_set.wait()
        return True

    attempt.extend = never  # type: ignore[method-assign]  # as the store would while it is away
    before = threading.active_count()
    with pytest.raises(CompleteByPassed):
        await asyncio.to_thread(attempt.call.extend, 60)
    assert threading.active_count() <= before + 1  # the one that asked, kept by the loop for others
