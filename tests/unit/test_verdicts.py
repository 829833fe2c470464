"""What counts as a verdict, whatever it is wrapped in; and that the errors inside are always named."""

import asyncio
import concurrent.futures
import copy
import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest

import makegood as mg
from makegood.agent.own_frame import own_frame, traceback_of
from makegood.base.text import words
from makegood.declare.verdicts import verdict_in
from makegood.errors import CompleteByPassed
from tests.unit.test_attempt_runner import answer

NO = "card declined"
desk = mg.App("shop").agent("desk")
RAISED: list[BaseException] = []
CALLS: list[str] = []
OPTIONS: dict[str, Any] = {"complete_within": "1m", "retry": mg.Retry(tries=3, wait=0)}


@desk.action(**OPTIONS)
async def waiting() -> None:
    CALLS.append("async def")
    raise RAISED[0]


@waiting.undo
async def take_back(*, result: None) -> None:
    raise RAISED[0]


@waiting.probe
async def ask() -> mg.Happened[None]:
    raise RAISED[0]


@desk.action(undo=mg.NOTHING, **OPTIONS)
def blocking() -> None:
    CALLS.append("def")
    raise RAISED[0]


class LastTry:
    """The last try of a retry library: tenacity's, a future."""

    def __init__(self, error: BaseException, number: int = 3) -> None:
        self.attempt_number = number
        self._failed = error

    def done(self) -> bool:
        """Whether it has ended."""
        return True

    def exception(self) -> BaseException:
        """Return its error."""
        return self._failed


class OldTry:
    """The last try of a retry library: that of retrying."""

    attempt_number = 3
    has_exception = True

    def __init__(self, error: BaseException) -> None:
        self.value = (type(error), error, None)


class RetryError(Exception):
    """Raised by a retry library when its tries have failed."""

    def __init__(self, last_attempt: Any) -> None:
        super().__init__(last_attempt)
        self.last_attempt = last_attempt

    def __str__(self) -> str:
        return "RetryError[<Future at 0x7f state=finished raised Permanent>]"


class CardError(Exception):
    """A user's own error."""


def group(*errors: BaseException, text: str = "unhandled errors in a TaskGroup") -> BaseExceptionGroup[Any]:
    """Return a group of errors."""
    return BaseExceptionGroup(text, errors)


def nested(error: BaseException, depth: int) -> BaseException:
    """Return an error in groups within groups."""
    for _ in range(depth):
        error = group(error)
    return error


def chained(error: BaseException, other: Exception, *, explicit: bool) -> BaseException:
    """Return an error that was raised from another one, or while that one was handled."""

    def raise_other() -> None:
        try:
            throw(error)
        except BaseException as first:
            if explicit:
                raise other from first
            raise other  # noqa: B904 - what is under test

    with pytest.raises(type(other)) as last:
        raise_other()
    return last.value


def throw(error: BaseException) -> None:
    """Raise it."""
    raise error


def thrown(error: BaseException) -> BaseException:
    """Return an error as it is once it was raised here."""
    with pytest.raises(type(error)) as info:
        throw(error)
    return info.value


PERMANENT, REFUSED, LATER = mg.Permanent(NO), mg.Refused(NO), mg.Later("5s", NO)
OTHER = ValueError("no such street")


@pytest.mark.parametrize(
    ("error", "kind", "unclear"),
    [
        (PERMANENT, mg.Permanent, False),
        (group(PERMANENT), mg.Permanent, False),
        (group(PERMANENT, mg.Permanent("and stolen")), mg.Permanent, False),
        (group(group(PERMANENT), group(group(PERMANENT))), mg.Permanent, False),
        (nested(PERMANENT, 5_000), mg.Permanent, False),
        (group(*[PERMANENT] * 1_000), mg.Permanent, False),
        (group(REFUSED, REFUSED), mg.Refused, False),
        (group(PERMANENT, REFUSED), mg.Permanent, False),
        (group(LATER), mg.Later, False),
        (group(CompleteByPassed(), PERMANENT), CompleteByPassed, False),
        (RetryError(LastTry(PERMANENT)), mg.Permanent, True),
        (RetryError(LastTry(PERMANENT, 1)), mg.Permanent, False),
        (RetryError(OldTry(PERMANENT)), mg.Permanent, True),
        (RetryError(LastTry(group(PERMANENT))), mg.Permanent, True),
        (group(RetryError(LastTry(REFUSED)), REFUSED), mg.Refused, True),
        (group(PERMANENT, OTHER), None, False),
        (group(*[PERMANENT] * 999, OTHER), None, False),
        (group(PERMANENT, LATER), None, False),
        (group(PERMANENT, asyncio.CancelledError()), None, False),
        (group(PERMANENT, SystemExit(1)), None, False),
        (RetryError(LastTry(OTHER)), None, False),
        (chained(PERMANENT, CardError("cannot pay"), explicit=True), None, False),
        (chained(PERMANENT, CardError("cannot pay"), explicit=False), None, False),
        (group(chained(PERMANENT, CardError("cannot pay"), explicit=True)), None, False),
        (chained(OTHER, mg.Permanent(NO), explicit=True), mg.Permanent, False),
        (mg.PayloadError("too large"), None, False),
    ],
)
def test_what_counts_as_a_verdict(error: BaseException, kind: type | None, unclear: bool) -> None:
    verdict = verdict_in(error, 0.0)
    assert (None if verdict is None else type(verdict.verdict)) is kind
    assert verdict is None or verdict.unclear is unclear


def test_of_several_waits_the_longest_counts() -> None:
    verdict = verdict_in(
        group(mg.Later("5s"), group(mg.Later("2m")), mg.Later("Thu, 01 Jan 1970 00:01:00 GMT")), 0.0
    )
    assert verdict is not None
    assert isinstance(verdict.verdict, mg.Later)
    assert verdict.verdict.wait == "2m"


@pytest.mark.parametrize("doing", ["do", "undo", "probe"])
@pytest.mark.parametrize(
    ("wrap", "answers"),
    [
        (group, {mg.Permanent: "permanent", mg.Refused: "refused", mg.Later: "later"}),
        (
            lambda error: RetryError(LastTry(error, 1)),
            {mg.Permanent: "permanent", mg.Refused: "refused", mg.Later: "later"},
        ),
        (
            lambda error: nested(error, 300),
            {mg.Permanent: "permanent", mg.Refused: "refused", mg.Later: "later"},
        ),
        (lambda error: chained(error, CardError("cannot pay"), explicit=True), {}),
        (lambda error: chained(error, CardError("cannot pay"), explicit=False), {}),
        (lambda error: group(error, OTHER), {}),
        (lambda error: group(*[OTHER] * 999, error), {}),
    ],
    ids=["group", "retry library", "nested", "raised from", "while handled", "other beside", "last of 1,000"],
)
async def test_each_function_answers_alike_and_the_answer_names_what_was_inside(
    doing: str, wrap: Callable[[BaseException], BaseException], answers: dict[type, str]
) -> None:
    for verdict in (PERMANENT, REFUSED, LATER):
        RAISED[:] = [wrap(verdict)]
        expectation = answers.get(type(verdict), "gave_up")
        reply = await answer(b"{}", doing, of=waiting)
        assert reply is not None
        assert (reply.kind, NO in (reply.error or "")) == (expectation, True)
        assert len(reply.error or "") <= 2000
        if doing == "do":
            CALLS.clear()
            reply = await answer(b"{}", of=blocking)
            assert reply is not None
            assert (reply.kind, NO in (reply.error or "")) == (expectation, True)
            assert len(CALLS) == (3 if expectation == "gave_up" else 1), (
                "a definite answer was asked for again"
            )


async def test_the_deadline_of_a_call_in_a_group_is_silence() -> None:
    RAISED[:] = [group(CompleteByPassed("too late"))]
    assert await answer(b"{}", of=waiting) is None


async def test_a_refusal_behind_earlier_tries_is_not_certain() -> None:
    RAISED[:] = [RetryError(LastTry(PERMANENT, 2))]
    reply = await answer(b"{}", of=waiting)
    assert reply is not None
    assert (reply.kind, reply.unclear) == ("permanent", True)


async def test_a_group_with_an_interrupt_ends_the_process_as_the_interrupt_does() -> None:
    RAISED[:] = [group(group(KeyboardInterrupt()), PERMANENT)]
    with pytest.raises(KeyboardInterrupt):
        await answer(b"{}", of=waiting)
    reply = await answer(b"{}", of=blocking)  # in a thread neither does
    assert reply is not None
    assert reply.kind == "gave_up"


def refuse() -> None:
    """Refuse, in another process."""
    raise mg.Permanent(NO)


def wait() -> None:
    """Ask for time, in another process."""
    raise mg.Later("5s", NO)


async def test_pools_and_gather_raise_the_verdict_itself() -> None:
    context = multiprocessing.get_context("spawn")
    for call, kind in ((refuse, mg.Permanent), (wait, mg.Later)):
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            of_process = pool.submit(call).exception()
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            of_thread = threads.submit(call).exception()
        for error in (of_process, of_thread):
            assert error is not None
            verdict = verdict_in(error, 0.0)
            assert verdict is not None
            assert type(verdict.verdict) is kind
            assert words(error) == NO

    async def call_refuse() -> None:
        refuse()

    with pytest.raises(mg.Permanent):
        await asyncio.gather(call_refuse(), asyncio.sleep(0))


class Declined(mg.Permanent):
    """A refusal of the user's own, whose constructor takes other things than a text."""

    def __init__(self, code: int, bank: str) -> None:
        super().__init__(f"{bank} says {code}")
        self.code = code


def decline() -> None:
    """Refuse with a class of the user's own, in another process."""
    raise Declined(51, "the bank")


def conflict() -> None:
    """Raise an error with attributes, in another process."""
    raise mg.KeyConflict("same key", task_id="t", key="k")


def test_our_errors_cross_processes_as_they_are() -> None:
    """Whatever their constructors take. An error that cannot be made again would break the pool."""
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        decline_, later, same = (pool.submit(call).exception() for call in (decline, wait, conflict))
    for one in (decline_, copy.copy(decline_)):
        assert isinstance(one, Declined)
        assert (str(one), one.code) == ("the bank says 51", 51)
    assert isinstance(later, mg.Later)
    assert (later.wait, str(later)) == ("5s", NO)
    assert isinstance(same, mg.KeyConflict)
    assert (str(same), same.task_id, same.key) == ("same key", "t", "k")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            group(PERMANENT),
            "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception), from card declined",
        ),
        (
            group(OTHER, group(OTHER, PERMANENT)),
            "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions), from card declined; ValueError: no such street",
        ),
        (
            chained(PERMANENT, CardError("cannot pay"), explicit=True),
            "CardError: cannot pay, from card declined",
        ),
        (
            chained(PERMANENT, CardError("cannot pay"), explicit=False),
            "CardError: cannot pay, from card declined",
        ),
        (
            chained(OTHER, CardError("cannot pay"), explicit=True),
            "CardError: cannot pay, from ValueError: no such street",
        ),
        (chained(OTHER, CardError("cannot pay"), explicit=False), "CardError: cannot pay"),
        (chained(OTHER, CardError("no: no such street!"), explicit=True), "CardError: no: no such street!"),
        (chained(asyncio.CancelledError(), TimeoutError(), explicit=True), "TimeoutError"),
        (chained(OTHER, mg.Permanent(NO), explicit=True), NO),
        (
            group(*[ValueError(n) for n in range(1_000)], PERMANENT),
            "ExceptionGroup: unhandled errors in a TaskGroup (1001 sub-exceptions), from card declined; ValueError: 0; ValueError: 1; ValueError: 2; ValueError: 3; ValueError: 4; and 995 more",
        ),
    ],
    ids=str,
)
def test_a_text_names_the_errors_inside(error: BaseException, text: str) -> None:
    assert words(error) == text


def test_of_a_group_the_line_of_the_refusal_is_shown_and_its_traceback_printed() -> None:
    deep = thrown(group(thrown(ValueError("bad")), thrown(mg.Permanent(NO))))
    assert (own_frame(deep) or "").endswith(" in throw")
    assert NO in (traceback_of(deep) or "")
    deepest = thrown(nested(thrown(mg.Permanent(NO)), 3_000))
    assert (traceback_of(deepest) or "").startswith("  + Exception Group Traceback")
    assert (own_frame(deepest) or "").endswith(" in throw")
