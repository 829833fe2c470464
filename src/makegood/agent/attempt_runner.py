"""Runs the function that a request asks for, retries it within its complete-by, and makes its answer.

What an action raises decides the answer: ``Permanent``, ``Refused``, ``Later`` say so at once; any other
exception is transient *and may have happened*, so when the tries run out the answer is "gave up": in doubt,
never failed. That holds for ``sys.exit()`` too, which would end the agent's process with all that runs in it.
Only arguments that the function cannot take are certain: it was not begun.
"""

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextvars import copy_context
from typing import Any

from makegood.agent.own_frame import own_frame, traceback_of
from makegood.base.clock import Clock
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.durations import retry_after
from makegood.base.ids import show
from makegood.base.text import words
from makegood.declare.action import Action
from makegood.declare.call import margin
from makegood.declare.outcomes import NOT_HAPPENED, Happened
from makegood.errors import CompleteByPassed, Later, PayloadError, Permanent, Refused
from makegood.model.attempt import Attempt
from makegood.model.messages import MessageKind, Request, TaskMessage

log = logging.getLogger("makegood.agent")


class AttemptRunner:
    """Runs the functions of attempts: ``async def`` on the event loop, ``def`` in ``threads``.

    ``halting``: called with the deadline of each attempt before its function is called.
    """

    def __init__(
        self, clock: Clock, rng: random.Random, threads: DaemonThreads, halting: Callable[[float], None]
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._threads = threads
        self._halting = halting
        self._async: dict[Callable[..., object], bool] = {}

    async def answer(self, attempt: Attempt, action: Action[..., Any]) -> TaskMessage | None:
        """Return the answer of one attempt, or None for silence."""
        request = attempt.request
        try:
            fn, kwargs = action._prepared(request)
        except PayloadError as unfit:
            # the code changed under a waiting step, or a value is not what its annotation says
            text = f"it was not begun, its arguments do not fit: {words(unfit)}"
            if request.doing == "do":
                return _message(request, "permanent", error=text)
            return _message(request, "gave_up", error=text, final=True)
        is_async = self._async.get(fn)
        if is_async is None:
            is_async = self._async[fn] = inspect.iscoroutinefunction(fn)
        self._halting(attempt.deadline)
        attempt.called(cancellable=is_async)
        pauses: Iterator[float] | None = None
        while True:
            message: TaskMessage | None
            try:
                value = await fn(**kwargs) if is_async else await self._in_thread(fn, kwargs)
                message = _answered(attempt, action, value)
            except asyncio.CancelledError as cancelled:
                if attempt.work is None or attempt.work.cancelling():
                    raise
                message = gave_up(request, cancelled)  # nobody stopped it: the user's code raised it
            except (KeyboardInterrupt, GeneratorExit):  # somebody ends this very process, or this coroutine
                raise
            except BaseException as said:  # noqa: BLE001 - whatever it is
                message = self._raised(attempt, said)
            if message is None or message.kind != "gave_up" or message.final or action.retry.never:
                return message
            pauses = pauses or iter(action.retry.pauses())
            pause = next(pauses, None)
            if pause is None:
                return message
            jittered = pause * self._rng.uniform(0.5, 1.5)
            if self._clock.monotonic() + jittered >= attempt.deadline - margin(request.within):
                return message  # the next one would have no time to ask
            await asyncio.sleep(jittered)
            attempt.retried()

    async def _in_thread(self, fn: Callable[..., Any], kwargs: Mapping[str, object]) -> Any:
        """Run a ``def`` function once, with the context of the attempt."""
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(fn, **kwargs)
        )

    def _raised(self, attempt: Attempt, said: BaseException) -> TaskMessage | None:
        """Return the answer of a function that raised, None for silence."""
        request = attempt.request
        if isinstance(said, CompleteByPassed):
            return None
        if isinstance(said, Permanent):
            return _failed(request, "permanent", said, unclear=attempt.retries > 0)
        if isinstance(said, Refused):
            return _failed(request, "refused", said)
        if isinstance(said, Later):
            wait = retry_after(said.wait, self._clock.wall())
            return _message(request, "later", error=words(said), wait=wait, unclear=attempt.retries > 0)
        return gave_up(request, said)  # transient, and it may have happened


def gave_up(request: Request, failed: BaseException) -> TaskMessage:
    """Return the answer of an attempt that failed and may have happened, and log why."""
    text = words(failed)
    task, attempt = show(request.task), request.attempt
    about = {"task": task, "step": request.step, "attempt": attempt}
    log.info("step %s of task %s, attempt %d: %s", request.step, task, attempt, text, extra=about)
    return _failed(request, "gave_up", failed)


def _failed(request: Request, kind: str, said: BaseException, **fields: object) -> TaskMessage:
    return _message(
        request, kind, error=words(said), frame=own_frame(said), traceback=traceback_of(said), **fields
    )


def _answered(attempt: Attempt, action: Action[..., Any], value: object) -> TaskMessage:
    request = attempt.request
    doing = request.doing
    kind: MessageKind = "done"
    if doing == "undo":
        return _message(request, "done")
    if doing == "probe":
        if value is NOT_HAPPENED:
            return _message(request, "not_happened")
        if not isinstance(value, Happened):
            said = f"the probe of {request.action} returned {type(value).__name__}: return mg.Happened(result) or mg.NOT_HAPPENED"
            return _message(request, "gave_up", error=said)
        value, kind = value.result, "happened"
    elif isinstance(value, Happened) or value is NOT_HAPPENED:
        # not the value: this is logged
        named = "mg.NOT_HAPPENED" if value is NOT_HAPPENED else "mg.Happened(...)"
        said = f"{request.action} returned {named}, which is what a probe answers: return the result itself"
        return _message(request, "gave_up", error=said, final=True)
    try:
        return TaskMessage(kind, request.idx, doing, request.attempt, action._encoded(value))
    except PayloadError as unfit:
        # it was done, and its result is lost: in doubt, no retry, undone with result None
        return _message(request, "gave_up", error=f"the result cannot be kept: {words(unfit)}", final=True)


def _message(request: Request, kind: str, **fields: object) -> TaskMessage:
    return TaskMessage(kind, request.idx, request.doing, request.attempt, **fields)  # type: ignore[arg-type]
