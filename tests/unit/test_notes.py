"""Notes: what the rules make of them, how an attempt's are paced, and what may not pass them. Time is virtual."""

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.actor.setbacks import Setbacks
from makegood.agent import reply_sender
from makegood.agent.reply_sender import ReplySender
from makegood.agent.reports import Reports
from makegood.base.contexts import HomeLoop
from makegood.errors import StoreUnavailableError
from makegood.model.attempt import Attempt
from makegood.model.messages import TaskMessage
from makegood.model.note import Note, pause
from makegood.model.task import ReplyTo
from tests.unit.saga_case import Case, action, changes
from tests.unit.test_begin_spacing import LoopClock, attempt, on_virtual_time
from tests.unit.test_begin_spacing import pause as passing

# -- the rules ---------------------------------------------------------------------------------------------------------


def note_of(case: Case, idx: int, value: str, **fields: Any) -> TaskMessage:
    """Return a note of the attempt that a step has in flight."""
    message = case.reply(idx, "late", **fields)
    return replace(message, note=Note(message.idx, message.attempt, message.doing, value))


def test_a_note_becomes_a_line_of_the_history_and_changes_nothing_else() -> None:
    case = Case(action(0), action(1, 0))
    decision = case.say(note_of(case, 0, "half", seq=5))
    assert changes(replace_task(decision)) == {"notes": [Note(0, 1, "do", "half")], "seqs": [5]}
    assert case.states == "running waiting"


def replace_task(decision: Any) -> Any:
    """Return a Decision without its task, which is as before."""
    assert decision.task == decision.before
    return replace(decision, before=None, task=None)


def test_a_note_is_folded_before_the_reply_that_follows_it() -> None:
    case = Case(action(0), action(1, 0))
    decision = case.say(note_of(case, 0, "all"), case.reply(0, "done"))
    assert decision.notes == [Note(0, 1, "do", "all")]
    assert case.asked == [(1, "do")]


def test_a_note_of_an_attempt_that_was_answered_or_judged_is_late() -> None:
    case = Case(action(0, threshold=3, wait=1.0))
    late = note_of(case, 0, "too late")
    case.silence(0)
    assert case.say(late).notes == [Note(0, 1, "do", "too late", late=True)]
    case.due(0)
    assert case.say(late).notes == [Note(0, 1, "do", "too late", late=True)], "another attempt runs"
    assert case.step(0).late is None
    assert case.say(note_of(case, 0, "in time")).notes == [Note(0, 2, "do", "in time")]


def test_a_note_names_the_step_of_its_message_whatever_it_says_itself() -> None:
    """An agent's role may write messages about its own steps only."""
    case = Case(action(0))
    message = replace(note_of(case, 0, "x"), note=Note(7, 9, "undo", "x"))
    assert case.say(message).notes == [Note(0, 1, "do", "x")]
    assert case.say(replace(message, idx=3)).notes == []


def test_a_notice_of_a_note_takes_the_next_number_and_none_is_made_of_a_late_one() -> None:
    case = Case(action(0), reply=ReplyTo("queue:web", None, True), told="received", notified=1)
    decision = case.say(note_of(case, 0, "half"), case.reply(0, "done"))
    assert [(n.sequence, n.type.split(".")[3], n.step) for n in decision.notices] == [
        (3, "note", "s0"), (4, "processed", ""),
    ]  # fmt: skip
    other = Case(action(0), reply=ReplyTo("queue:web"), told="received", notified=1)
    assert other.say(note_of(other, 0, "half")).notices == []
    failing = Case(action(0), reply=ReplyTo("queue:web", None, True), told="received", notified=1)
    late = note_of(failing, 0, "too late")
    failing.silence(0)
    assert failing.say(late).notices == []


# -- the pace ----------------------------------------------------------------------------------------------------------


class Pacing:
    """An attempt on virtual time, and when which of its notes was sent."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.sent: list[tuple[float, Any, int]] = []
        self.reports = Reports(self._send, self._answer, LoopClock(self.loop), HomeLoop("this test"))
        self.attempt = attempt()
        self.attempt.began = self.loop.time()

    def _age(self) -> float:
        return round(self.loop.time() - self.attempt.began, 3)

    def _send(self, _attempt: Attempt, message: TaskMessage) -> None:
        assert message.note is not None
        self.sent.append((self._age(), message.note.value, message.note.skipped))

    def _answer(self, _attempt: Attempt, message: TaskMessage, _now: float) -> None:
        self.sent.append((self._age(), message.kind, 0))

    def write(self, *values: str) -> None:
        """Write notes."""
        for value in values:
            self.reports.note(self.attempt, value)


def test_the_first_note_goes_at_once_and_then_one_a_second_the_last_of_each() -> None:
    async def run() -> None:
        pacing = Pacing()
        pacing.write("a", "b")
        await passing(0.5)
        pacing.write("c")
        await passing(3.0)
        pacing.write("d")
        pacing.write("e", "f")
        await pacing.reports.settle(pacing.attempt)
        pacing.reports.end(pacing.attempt, TaskMessage("done", 0), 0.0)
        first = [(0.0, "a", 0), (1.0, "c", 1), (3.5, "d", 0), (3.5, "f", 1)]
        assert pacing.sent == [*first, (3.5, "done", 0)]
        await passing(5.0)
        assert len(pacing.sent) == 5

    on_virtual_time(run())


def test_a_long_attempt_keeps_some_hundred_notes() -> None:
    assert (pause(0.0), pause(50.0), pause(1000.0)) == (1.0, 1.0, 10.0)

    async def run() -> None:
        pacing = Pacing()
        for n in range(36_000):  # ten hours
            pacing.write(str(n))
            await passing(1.0)
        pacing.reports.end(pacing.attempt, None, 0.0)
        assert 600 < len(pacing.sent) < 800
        assert len(pacing.sent) + sum(skips for _, _, skips in pacing.sent) == 36_000
        assert pacing.sent[-1][1] == "35999"

    on_virtual_time(run())


def test_notes_that_take_their_time_to_be_encoded_keep_their_order_and_precede_the_reply() -> None:
    async def run() -> None:
        pacing = Pacing()
        waits = iter([2.0, 0.1])

        async def seal(value: Any) -> Any:
            await passing(next(waits))
            return f"mg1:{value}"

        pacing.attempt.seal = seal
        pacing.write("a", "b")
        await pacing.reports.settle(pacing.attempt)
        assert [value for _, value, _ in pacing.sent] == ["mg1:a", "mg1:b"]

    on_virtual_time(run())


def test_a_note_that_was_written_as_its_attempt_ended_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        pacing = Pacing()
        pacing.attempt.end()
        pacing.write("a")
        assert pacing.sent == []

    on_virtual_time(run())
    assert "after its attempt had ended" in caplog.text


# -- the way through the store -----------------------------------------------------------------------------------------


class Channel:
    """Takes replies and notes; the first call fails."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.fails = 1
        self.full = asyncio.Event()

    def _take(self, texts: list[str]) -> None:
        if self.fails:
            self.fails -= 1
            raise StoreUnavailableError("away")
        self.calls.append(texts)
        if sum(map(len, self.calls)) == 5:
            self.full.set()

    async def note(self, notes: list[tuple[int, TaskMessage]]) -> None:
        """Take notes."""
        self._take([m.note.value for _, m in notes if m.note is not None])

    async def answer(self, _node: int, replies: list[tuple[int, TaskMessage]]) -> list[bool]:
        """Take replies."""
        self._take([m.kind for _, m in replies])
        return [True] * len(replies)


def test_no_reply_passes_a_note_and_what_the_store_cannot_take_waits() -> None:
    async def run() -> None:
        channel = Channel()
        sender = ReplySender(channel, Setbacks("agents", None, random.Random(1)), random.Random(1))  # type: ignore[arg-type]  # as much of it as is needed
        life = asyncio.ensure_future(sender.run())
        for kind, note in (("done", ""), ("late", "a"), ("late", "b"), ("gave_up", ""), ("refused", "")):
            message = TaskMessage(kind, 0, "do", 1, note=Note(0, 1, "do", note) if note else None)  # type: ignore[arg-type]
            sender.send(1, 7, message)
        await channel.full.wait()
        life.cancel()
        assert channel.calls == [["done"], ["a", "b"], ["gave_up", "refused"]]

    on_virtual_time(run())


def test_a_batch_ends_where_replies_and_notes_change() -> None:
    note, reply = TaskMessage("late", note=Note(0, 1, "do", "x")), TaskMessage("done", 0)
    entries = [(1, 1, note), (2, 1, note), (1, 1, reply), (1, 1, note)]
    assert list(reply_sender._batch(entries)) == entries[:1]
