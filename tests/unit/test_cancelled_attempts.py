"""An attempt that hears that nobody needs it: what becomes of its function, and which answer it gives."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import makegood as mg
from makegood.agent.attempt_runner import AttemptRunner
from makegood.base.clock import SystemClock
from makegood.base.daemon_threads import DaemonThreads
from makegood.declare.action import Action
from makegood.declare.call import Call, enter
from makegood.model.attempt import Attempt
from makegood.model.messages import Request, TaskMessage

Body = Callable[[], Coroutine[Any, Any, object]]


def action_of(fn: Callable[[], object], **options: Any) -> Action[..., Any]:
    """Return an action of this function."""
    action: Action[..., Any] = (
        mg.App("shop").agent("desk").action(complete_within="1m", undo=mg.NOTHING, **options)(fn)
    )
    return action


class Run:
    """One attempt under way: ``hear`` lets it hear, ``reply`` waits for its answer."""

    def __init__(self, action: Action[..., Any], doing: Any = "do", **fields: Any) -> None:
        clock, self._threads = SystemClock(), DaemonThreads(1, "test")
        request = Request(1, 0, doing, 1, "shop", "desk", action.name, action.name, 1, 60.0, b"{}")
        now = clock.monotonic()
        self.attempt = Attempt(request, 1, now + 60.0, now, _NoMore(), **fields)
        self._clock, self._action = clock, action
        self._runner = AttemptRunner(clock, random.Random(1), self._threads)
        self._answer: TaskMessage | None = None
        self.attempt.work = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        enter(Call(self.attempt.request, "s1", 1, self.attempt, self._clock, loop))
        self._answer = await self._runner.answer(self.attempt, self._action)

    def hear(self) -> None:
        """Let it hear."""
        self.attempt.hear(self._clock.monotonic())

    async def reply(self) -> TaskMessage | None:
        """Return its answer; None for silence."""
        assert self.attempt.work is not None
        async with asyncio.timeout(40):  # less than a sleep that hears nothing
            await asyncio.gather(self.attempt.work, return_exceptions=True)
        self._threads.shutdown()
        return self._answer


class _NoMore:
    async def extend(self, attempt: Attempt, more: float) -> bool:
        return False

    def note(self, attempt: Attempt, value: object) -> None:
        raise NotImplementedError


async def answer_of(action: Action[..., Any], began: asyncio.Event) -> TaskMessage:
    """Run an action, let it hear once it has begun, and return its answer."""
    run = Run(action)
    await began.wait()
    run.hear()
    reply = await run.reply()
    assert reply is not None
    return reply


async def test_an_action_that_checks_is_in_doubt_and_makes_no_other_try() -> None:
    began, tries = asyncio.Event(), list[int]()

    async def copy() -> None:
        tries.append(1)
        began.set()
        while True:
            await asyncio.sleep(0)
            mg.current_call().check()

    reply = await answer_of(action_of(copy, retry=mg.Retry(tries=5, wait=0)), began)
    assert (reply.kind, len(tries)) == ("gave_up", 1)
    assert reply.error == "nobody needs step copy of task 0000000000001 any more"


async def test_an_action_that_sleeps_ends_at_once() -> None:
    began = asyncio.Event()

    async def copy() -> None:
        began.set()
        await mg.current_call().sleep("50s")

    assert (await answer_of(action_of(copy), began)).kind == "gave_up"


async def test_a_thread_that_sleeps_ends_at_once() -> None:
    began, loop = asyncio.Event(), asyncio.get_running_loop()

    def copy() -> None:
        loop.call_soon_threadsafe(began.set)
        mg.current_call().sleep("50s")

    assert (await answer_of(action_of(copy), began)).kind == "gave_up"


async def test_a_thread_sees_it_and_is_never_stopped() -> None:
    began, loop, pause = asyncio.Event(), asyncio.get_running_loop(), threading.Event()

    def copy() -> str:
        call = mg.current_call()
        loop.call_soon_threadsafe(began.set)
        while not call.cancelled:
            pause.wait(0.001)
        return "half of it"

    reply = await answer_of(action_of(copy), began)
    assert (reply.kind, reply.value) == ("done", b'"half of it"')


@pytest.mark.parametrize(
    ("error", "kind"),
    [(mg.Refused("gone"), "refused"), (mg.Permanent("no"), "permanent"), (OSError("reset"), "gave_up"), (mg.Later(3), "later")],
)  # fmt: skip
async def test_what_it_raises_counts_as_ever(error: Exception, kind: str) -> None:
    began = asyncio.Event()

    async def copy() -> None:
        began.set()
        try:
            await mg.current_call().sleep("50s")
        except mg.CallCancelled:
            raise error from None

    assert (await answer_of(action_of(copy), began)).kind == kind


async def test_a_cancellable_action_is_cancelled_cleans_up_and_is_in_doubt() -> None:
    began, notes = asyncio.Event(), list[object]()

    async def copy() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            notes.append(mg.current_call().cancelled)
            await asyncio.sleep(0)
            notes.append("clean")

    reply = await answer_of(action_of(copy, cancellable=True, retry=mg.Retry(tries=5, wait=0)), began)
    assert (reply.kind, notes) == ("gave_up", [True, "clean"])
    assert reply.error == "nobody needs step copy of task 0000000000001 any more"


async def test_a_cancellable_action_that_returns_all_the_same_is_done() -> None:
    began = asyncio.Event()

    async def copy() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "it was done already"
        raise AssertionError

    reply = await answer_of(action_of(copy, cancellable=True), began)
    assert (reply.kind, reply.value) == ("done", b'"it was done already"')


async def test_a_cancellable_action_may_say_that_nothing_happened() -> None:
    began = asyncio.Event()

    async def copy() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise mg.Refused("never sent") from None

    assert (await answer_of(action_of(copy, cancellable=True), began)).kind == "refused"


async def test_the_cancellation_of_a_group_inside_is_in_doubt_too() -> None:
    """A cancelled ``TaskGroup`` raises it bare; libraries put it into groups of their own."""
    began = asyncio.Event()

    async def copy() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancellation:
            raise BaseExceptionGroup("of a library", [cancellation]) from None

    assert (await answer_of(action_of(copy, cancellable=True), began)).kind == "gave_up"


async def test_its_deadline_ends_the_cleaning_up_with_silence() -> None:
    began, cleaning = asyncio.Event(), asyncio.Event()

    async def copy() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaning.set()
            await asyncio.Event().wait()

    run = Run(action_of(copy, cancellable=True))
    await began.wait()
    run.hear()
    await cleaning.wait()
    run.attempt.pass_deadline(1e9)
    assert await run.reply() is None


async def test_an_action_that_is_not_cancellable_runs_on() -> None:
    began, leave = asyncio.Event(), asyncio.Event()

    async def copy() -> str:
        began.set()
        await leave.wait()
        return "whole"

    run = Run(action_of(copy))
    await began.wait()
    run.hear()
    asyncio.get_running_loop().call_soon(leave.set)
    reply = await run.reply()
    assert reply is not None
    assert reply.value == b'"whole"'


async def test_a_pause_between_two_tries_ends_at_once_without_another_try() -> None:
    began, tries = asyncio.Event(), list[int]()

    async def copy() -> None:
        tries.append(1)
        asyncio.get_running_loop().call_soon(began.set)
        raise OSError("reset")

    reply = await answer_of(action_of(copy, cancellable=True, retry=mg.Retry(tries=5, wait="30s")), began)
    assert (reply.kind, reply.error, len(tries)) == ("gave_up", "OSError: reset", 1)


def test_only_an_async_def_can_be_cancellable() -> None:
    def copy() -> None: ...

    with pytest.raises(mg.DefinitionError, match=r"copy is a def with cancellable=True.*check\(\)"):
        action_of(copy, cancellable=True)
