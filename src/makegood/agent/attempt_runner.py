"""Runs the function that a request asks for, retries it within its complete-by, and makes its answer.

What an action raises decides the answer: ``Permanent``, ``Refused``, ``Later`` say so at once, alone or in a
group of their kind (``declare/verdicts.py`` decides what counts); any other
exception is transient *and may have happened*, so when the tries run out the answer is "gave up": in doubt,
never failed. That holds for ``sys.exit()`` too, which would end the agent's process with all that runs in it.
Only arguments that the function cannot take are certain: it was not begun.

An attempt that hears that nobody needs it makes no further try. What its function then returns or raises
counts as ever; ``CallCancelled``, and a cancellation, are "gave up": in doubt.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import Context
from types import MappingProxyType
from typing import Any

from makegood.agent.own_frame import own_frame, traceback_of
from makegood.agent.sealed_calls import SealedCalls
from makegood.base.clock import Clock
from makegood.base.contexts import fresh, own_arithmetic, within
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.durations import retry_after, short_duration
from makegood.base.function_layers import is_async
from makegood.base.ids import show
from makegood.base.text import words
from makegood.base.wrapped_errors import leaves, process_end
from makegood.declare.action import Action
from makegood.declare.around import Around
from makegood.declare.call import margin
from makegood.declare.outcomes import NOT_HAPPENED, Happened
from makegood.declare.verdicts import verdict_in
from makegood.errors import CallCancelled, CompleteByPassed, Later, PayloadError, Refused
from makegood.model.attempt import Attempt
from makegood.model.messages import MessageKind, Request, TaskMessage
from makegood.payload.envelopes import SEALED, fault_text

log = logging.getLogger("makegood.agent")

_CLOCK_DIFFERENCE = 1.0
"""Seconds by which the clocks of an agent and a Scheduler may differ on whether a key is too old."""


class _AwaitedFunctions(dict[Callable[..., object], bool]):
    """Whether each function is awaited, inspected at its first call: that costs more than a call."""

    def __missing__(self, fn: Callable[..., object]) -> bool:
        self[fn] = is_async(fn)
        return self[fn]


class AttemptRunner:
    """Runs the functions of attempts: ``async def`` on the event loop, ``def`` in ``threads``.

    ``turn``: awaited before each further try; False: its agent's rate has no room for it in time. None: no
    agent has a rate.
    ``apart``: gives each attempt a decimal context of its own; see ``HomeLoop.apart``. ``setups``: those that
    are open, by name. ``sealed_calls``: opens requests that are encoded.
    """

    def __init__(
        self,
        clock: Clock,
        rng: random.Random,
        threads: DaemonThreads,
        *,
        turn: Callable[[Attempt], Awaitable[bool]] | None = None,
        apart: Callable[[], Context] = own_arithmetic,
        setups: Mapping[str, Any] = MappingProxyType({}),
        sealed_calls: SealedCalls | None = None,
    ) -> None:
        self._sealed_calls = sealed_calls or SealedCalls(None, clock)
        self._clock = clock
        self._rng = rng
        self._threads = threads
        self._turn = turn
        self._apart = apart
        self._setups = setups
        self._is_awaited = _AwaitedFunctions()

    async def answer(self, attempt: Attempt, action: Action[..., Any]) -> TaskMessage | None:
        """Run one attempt with its tries; return its answer, or None for silence: its deadline has passed.

        Raises ``CancelledError`` if the attempt must end.
        """
        request = attempt.request
        if request.args.startswith(SEALED):
            return await self._sealed_calls.answer(self, attempt, action)
        try:
            fn, kwargs = action._prepare(request)
        except PayloadError as error:
            # the code changed under a waiting step, or a value is not what its annotation says
            return _unfit(attempt, error)
        for name in action._fit().setups[request.doing]:
            kwargs[name] = self._setups[name]
        awaits = self._is_awaited[fn]
        attempt.begin_call(cancellable=awaits)
        around = action.agent.registry.around
        context = self._apart() if awaits else None  # before a try sets anything
        pauses: Iterator[float] | None = None
        while True:
            message: TaskMessage | None
            try:
                if context is None:
                    value = await self._in_thread(attempt, around, fn, kwargs)
                else:
                    call = around.awaiting(fn, **kwargs) if around.async_hooks else fn(**kwargs)
                    if attempt.begins is not None:
                        attempt.begins()
                    attempt.may_stop = action.terms.cancellable
                    value = await (within(fresh(context), call) if attempt.retries else call)
                    attempt.may_stop = False
                message = _result_message(attempt, action, value)
            except asyncio.CancelledError as cancellation:
                attempt.may_stop = False
                if attempt.must_end:
                    raise
                # stopped because nobody needs it any more; or not stopped, and the user's code raised this
                message = gave_up(attempt, not_needed(request) if attempt.was_stopped else cancellation)
            except (KeyboardInterrupt, GeneratorExit):  # somebody ends this very process, or this coroutine
                raise
            except BaseException as error:  # noqa: BLE001 - whatever it is
                attempt.may_stop = False
                if attempt.cancellable:  # a thread ends neither this process nor this task
                    raise_end(error, must_end=attempt.must_end)
                message = self._answer_to_error(attempt, error)
            if message is None or message.kind != "gave_up" or message.final or action.retry.never:
                return message
            pauses = pauses or iter(action.retry.pauses())
            if not await self._may_retry(attempt, pauses):
                return message

    async def _may_retry(self, attempt: Attempt, pauses: Iterator[float]) -> bool:
        """Wait until the function of an attempt may be tried again; False: it has no try or no time left,
        somebody's rate has no room for it, or nobody needs it any more.
        """
        pause = next(pauses, None)
        if pause is None:
            return False
        wait, failed_at = pause * self._rng.uniform(0.5, 1.5), self._clock.monotonic()
        if failed_at + wait >= attempt.tries_until(margin(attempt.request.within)):
            return (
                False  # the next try would have no time for an answer, or the service has forgotten its key
            )
        await attempt.rest(wait)
        if attempt.cancelled or (self._turn is not None and not await self._turn(attempt)):
            return False
        attempt.note_retry(failed_at)
        return True

    async def _in_thread(
        self, attempt: Attempt, around: Around, fn: Callable[..., Any], kwargs: Mapping[str, object]
    ) -> Any:
        """Run a ``def`` function once, in a fresh copy of the attempt's context.

        If it returns a coroutine, as a decorator around an ``async def`` may, that is awaited here.
        """
        attempt.cancellable = False
        context = fresh()

        def call() -> Any:
            if attempt.begins is not None:
                attempt.begins()
            return context.run(around.call, fn, **kwargs)

        value = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        if not hasattr(type(value), "__await__"):
            return value
        if not attempt.waits():
            if inspect.iscoroutine(value):
                value.close()
            raise CompleteByPassed("the deadline passed before the function returned its coroutine")
        return await within(context, around.awaiting(_await, value))

    def _answer_to_error(self, attempt: Attempt, error: BaseException) -> TaskMessage | None:
        """Return the answer of a function that raised, None for silence."""
        request = attempt.request
        answer = verdict_in(error, self._clock.wall())
        if answer is None:
            return gave_up(attempt, error)  # transient, and it may have happened
        verdict, unclear = answer.verdict, answer.unclear or attempt.retries > 0
        if isinstance(verdict, CompleteByPassed):
            return None
        if isinstance(verdict, CallCancelled):
            return gave_up(attempt, error)
        if isinstance(verdict, Later):
            wait = retry_after(verdict.wait, self._clock.wall())
            return _message(request, "later", error=_text(attempt, error), wait=wait, unclear=unclear)
        if isinstance(verdict, Refused):
            return _failure_message(attempt, "refused", error)
        return _failure_message(attempt, "permanent", error, unclear=unclear)


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def raise_end(error: BaseException, *, must_end: bool) -> None:
    """Raise the interrupt of this process that a group carries, or the cancellation of a task that
    ``must_end``.
    """
    end = process_end(error)
    if end is not None:
        raise end from error
    if must_end and any(isinstance(leaf, asyncio.CancelledError) for leaf, _ in leaves(error)):
        raise asyncio.CancelledError from error


def gave_up(attempt: Attempt, error: BaseException) -> TaskMessage:
    """Return the answer of an attempt that failed and may have happened, and log why."""
    request, text = attempt.request, _text(attempt, error)
    task, number = show(request.task), request.attempt
    about = {"task": task, "step": request.step, "attempt": number}
    level = logging.INFO if isinstance(error, CallCancelled) else logging.WARNING
    log.log(level, "step %s of task %s, attempt %d: %s", request.step, task, number, text, extra=about)
    return _failure_message(attempt, "gave_up", error)


def _text(attempt: Attempt, error: BaseException) -> str:
    return fault_text(error, withhold=attempt.withholds, with_type=False)


def not_needed(request: Request) -> CallCancelled:
    """Return the error with which an attempt ends that nobody needs any more."""
    return CallCancelled(f"nobody needs step {request.step} of task {show(request.task)} any more")


def not_begun(request: Request, reason: object) -> TaskMessage:
    """Return the answer of an attempt whose function was never called: nothing is in doubt."""
    return _message(request, "later", error=f"it was not begun: {reason}")


def not_sent(request: Request, left: float) -> TaskMessage:
    """Return the answer of an attempt that came too late to be sent again: the Scheduler decides on it.

    ``left``: seconds until the service forgets its key.
    """
    end = "have passed" if left <= 0 else f"end in {short_duration(left)}, which leaves no time for an answer"
    text = f"it was not sent: {short_duration(request.keeps)}, for which the service keeps its key, {end}"
    return _message(request, "later", error=text, wait=_CLOCK_DIFFERENCE + margin(request.within))


def _unfit(attempt: Attempt, error: PayloadError) -> TaskMessage:
    """Return the answer of an attempt whose function cannot take its arguments."""
    text = f"it was not begun, its arguments do not fit: {_text(attempt, error)}"
    if attempt.request.doing == "do":
        return _message(attempt.request, "permanent", error=text)
    return _message(attempt.request, "gave_up", error=text, final=True)


def _failure_message(attempt: Attempt, kind: str, error: BaseException, **fields: object) -> TaskMessage:
    traceback = traceback_of(error)
    if attempt.withholds:  # the traceback is encoded, so it also carries the text, which is withheld
        traceback = f"{words(error)}\n{traceback or ''}"
    return _message(
        attempt.request,
        kind,
        error=_text(attempt, error),
        frame=own_frame(error),
        traceback=traceback,
        **fields,
    )


def _result_message(attempt: Attempt, action: Action[..., Any], value: object) -> TaskMessage:
    request, doing = attempt.request, attempt.request.doing
    kind: MessageKind = "done"
    if doing == "do":
        if isinstance(value, Happened) or value is NOT_HAPPENED:
            # not the value: this is logged
            name = "mg.NOT_HAPPENED" if value is NOT_HAPPENED else "mg.Happened(...)"
            text = (
                f"{request.action} returned {name}, which is what a probe answers: return the result itself"
            )
            return _message(request, "gave_up", error=text, final=True)
    elif doing == "undo":
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            text = f"the undo of {request.action} returned a generator, so it did nothing: write it without yield"
            return _message(request, "gave_up", error=text, final=True)
        return _message(request, "done")
    else:
        if value is NOT_HAPPENED:
            return _message(request, "not_happened")
        if not isinstance(value, Happened):
            text = f"the probe of {request.action} returned {type(value).__name__}: return mg.Happened(result) or mg.NOT_HAPPENED"
            return _message(request, "gave_up", error=text)
        value, kind = value.result, "happened"
    try:
        return TaskMessage(kind, request.idx, doing, request.attempt, action._encode(value))
    except PayloadError as error:
        # it was done, and its result is lost: in doubt, no retry, undone with result None
        return _message(
            request, "gave_up", error=f"the result cannot be kept: {_text(attempt, error)}", final=True
        )


def _message(request: Request, kind: str, **fields: object) -> TaskMessage:
    return TaskMessage(kind, request.idx, request.doing, request.attempt, **fields)  # type: ignore[arg-type]
