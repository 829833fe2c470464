"""One attempt: which answer comes of what its function does, without a store and without a Scheduler."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.agent.attempt_runner import AttemptRunner
from makegood.agent.own_frame import traceback_of
from makegood.base.clock import SystemClock
from makegood.base.daemon_threads import DaemonThreads
from makegood.declare.action import Action
from makegood.model.attempt import Attempt
from makegood.model.messages import Request, TaskMessage

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


class NoMore:
    """Gives nobody more time."""

    async def extend(self, attempt: Attempt, more: float) -> bool:
        """Refuse."""
        return False

    def note(self, attempt: Attempt, value: object) -> None:
        """Nothing notes anything here."""
        raise NotImplementedError


async def answer(
    args: bytes, doing: Any = "do", *, deadline: float = 60.0, of: Action[..., Any] | None = None
) -> TaskMessage | None:
    """Run one attempt and return its answer."""
    clock, threads = SystemClock(), DaemonThreads(1, "test")

    request = Request(1, 2, doing, 3, "shop", "desk", "charge", "charge", 1, 60.0, args)
    now = clock.monotonic()
    attempt = Attempt(request, 1, now + deadline, now, NoMore())
    tries.clear()
    try:
        return await AttemptRunner(clock, random.Random(1), threads).answer(attempt, of or charge)
    finally:
        threads.shutdown()


async def test_a_result_is_the_answer_to_this_attempt() -> None:
    assert await answer(b'{"cents":5}') == TaskMessage("done", 2, "do", 3, value=b'"paid 5"')


async def test_after_its_tries_it_gave_up_and_an_earlier_one_is_unanswered() -> None:
    reply = await answer(b'{"cents":0}')
    assert reply is not None
    assert replace(reply, traceback=None) == TaskMessage(
        "gave_up", 2, "do", 3, error="ConnectionError: gone", frame="test_attempt_runner.py:27 in charge"
    )
    assert tries == ["charge"] * 3


async def test_a_failed_attempt_brings_its_traceback_without_makegoods_own_frames() -> None:
    reply = await answer(b'{"cents":0}')
    assert reply is not None
    first_line, where, *_, last = (reply.traceback or "").splitlines()
    assert first_line == "Traceback (most recent call last):"
    assert where.endswith('test_attempt_runner.py", line 27, in charge')
    assert last == "ConnectionError: gone"


def test_a_traceback_is_cut_at_its_beginning() -> None:
    """What raised is at its end. Causes are part of it."""

    def fail(cause: Exception, text: str) -> None:
        raise ValueError(text) from cause

    error: Exception = KeyError("order")
    for n in range(60):
        with pytest.raises(ValueError, match="no") as info:
            fail(error, f"no {n} " * 100)
        error = info.value
    text = traceback_of(error) or ""
    assert len(text) <= 4002
    assert text.startswith("…\n")
    assert text.count(", in fail") > 2
    assert text.splitlines()[-1].startswith("ValueError: no 59 no 59")
    assert max(map(len, text.splitlines())) <= 200
    assert traceback_of(ValueError("never raised")) is None


async def test_a_plain_function_whose_next_finds_nothing_gave_up() -> None:
    """A future takes no StopIteration: the attempt had no answer, and was silent until its complete-by."""
    reply = await answer(b'{"cents":0}', of=first)
    assert reply is not None
    assert (reply.kind, reply.error) == ("gave_up", "RuntimeError: the function raised StopIteration")
    assert await answer(b'{"cents":5}', of=first) == TaskMessage("done", 2, "do", 3, value=b"0")


@pytest.mark.parametrize("deadline", [0.0, 0.9])
async def test_no_try_is_begun_that_would_have_no_time_to_ask(deadline: float) -> None:
    """Not after its complete-by, nor in the second before it, which is kept for the answer."""
    assert await answer(b'{"cents":0}', deadline=deadline) is not None
    assert tries == ["charge"]


@pytest.mark.parametrize(("doing", "kind", "final"), [("do", "permanent", False), ("undo", "gave_up", True)])
async def test_arguments_that_do_not_fit_are_certain_for_the_action_and_not_for_its_undo(
    doing: str, kind: str, final: bool
) -> None:
    """An undo that was not begun leaves an effect standing: that is for an operator, or for a process with other code."""
    reply = await answer(b'{"cents":"five"}', doing)
    assert reply is not None
    assert (reply.kind, reply.final, reply.unclear) == (kind, final, False)
    assert "was not begun" in (reply.error or "")
    assert tries == []


class Mute(Exception):  # noqa: N818 - what it is
    """Its text cannot be made."""

    def __str__(self) -> str:
        return "HTTP " + self.response.status  # type: ignore[attr-defined,no-any-return]  # as in the wild


class Halt(BaseException):
    """What a test library stops a test with."""


@dataclass
class Card:
    """An argument that is looked at when it is made."""

    number: str

    def __post_init__(self) -> None:
        raise KeyError(self.number)


@desk.action(complete_within="1m", retry=mg.NEVER)
def take(card: Card) -> str:
    return card.number


@take.undo
def give_back(card: Card, *, result: str | None) -> None: ...


raised: list[BaseException] = []


@desk.action(complete_within="1m", retry=mg.NEVER)
async def stumble() -> None:
    raise raised[0]


@stumble.undo
async def stumble_again(*, result: None) -> None:
    raise raised[0]


@stumble.probe
async def asked() -> mg.Happened[None]:
    raise raised[0]


@desk.action(complete_within="1m", undo=mg.NOTHING, retry=mg.NEVER)
def trip() -> None:
    raise raised[0]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("caf\udce9 \0"), "ValueError: caf\\udce9 \\x00"),
        (
            Mute(),
            "Mute (its text could not be made: AttributeError: 'Mute' object has no attribute 'response')",
        ),
        (Halt("no"), "Halt: no"),
        (BaseExceptionGroup("both", [Halt()]), "BaseExceptionGroup: both (1 sub-exception), from Halt"),
    ],
)
@pytest.mark.parametrize("doing", ["do", "undo", "probe"])
async def test_whatever_is_raised_the_attempt_is_answered_with_a_text_that_can_be_kept(
    error: BaseException, text: str, doing: str
) -> None:
    raised[:] = [error]
    reply = await answer(b"{}", doing, of=stumble)
    assert reply is not None
    assert (reply.kind, reply.error) == ("gave_up", text)
    if doing == "do":
        again = await answer(b"{}", of=trip)
        assert again is not None
        assert replace(again, traceback=None) == replace(reply, traceback=None)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit()])
async def test_what_would_end_the_process_ends_no_more_than_the_plain_function_that_raises_it(
    error: BaseException,
) -> None:
    raised[:] = [error]
    reply = await answer(b"{}", of=trip)
    assert reply is not None
    assert reply.error == f"RuntimeError: the function raised {type(error).__name__}"


@pytest.mark.parametrize(("verdict", "kind"), [(mg.Permanent, "permanent"), (mg.Refused, "refused")])
async def test_a_verdict_keeps_its_meaning_whatever_its_text(
    verdict: type[mg.Permanent] | type[mg.Refused], kind: str
) -> None:
    raised[:] = [verdict("caf\udce9")]
    reply = await answer(b"{}", of=stumble)
    assert reply is not None
    assert (reply.kind, reply.error) == (kind, "caf\\udce9")


async def test_an_argument_whose_class_raises_what_it_likes_was_not_begun() -> None:
    reply = await answer(b'{"card":{"number":"caf\xc3\xa9\\u0000"}}', of=take)
    assert reply is not None
    assert reply.kind == "permanent"
    assert "not begun" in (reply.error or "")
    assert "KeyError: 'café\\x00'" in (reply.error or "")
