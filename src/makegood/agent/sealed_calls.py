"""Calls of tasks whose values are encoded: their arguments are decoded before the function runs, its result
and the texts of its errors are encoded after it.

A process that cannot decode a request (no codec, an unknown key, a value that was moved) says nothing about
the step: the request is asked for again later, and an alert says what is missing. So a deploy that comes
before its keys loses no task. The first waits are short, and the process leaves requests to others meanwhile
(``Slots.note_decoding``): one that has the key need not wait for one that lacks it.
"""

import logging
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final, Protocol

from msgspec.structs import replace

from makegood.base.clock import Clock
from makegood.base.ids import address, show
from makegood.base.text import without_backticks, words
from makegood.declare.action import Action
from makegood.declare.call import enter, known_call
from makegood.declare.sealed_values import seal_answer, seal_error, seal_note, unseal_request
from makegood.errors import CodecError, MakegoodError, MissingValueError
from makegood.model.attempt import Attempt
from makegood.model.messages import Alert, Request, TaskMessage
from makegood.payload.splice import arguments

log = logging.getLogger("makegood.agent")

WAIT: Final = 30.0
"""Seconds after which a request that cannot be decoded is asked for again, at most: the first waits are 1 s,
2 s, 4 s and so on.
"""
ROLE: Final = "agents (decoding)"
"""What the alert is about."""


class _Alerts(Protocol):
    async def alert(self, alerts: list[Alert], /) -> None: ...

    async def ease(self, causes: list[Alert], why: str, /) -> None: ...


class _Answering(Protocol):
    async def answer(self, attempt: Attempt, action: Action[..., Any]) -> TaskMessage | None: ...


class SealedCalls:
    """Opens requests and closes answers. ``alerts``: where to report what cannot be opened; None: nowhere.
    ``note``: called with the address of an agent, and whether a request for it could be decoded.
    """

    def __init__(
        self,
        alerts: _Alerts | None,
        clock: Clock,
        note: Callable[[str, bool], None] = lambda _address, _works: None,
    ) -> None:
        self._alerts = alerts
        self._clock = clock
        self._note = note
        self._may_have_alert = True  # a process that ended may have left one
        self._failed_at = self._raised_at = -inf

    async def answer(
        self, runner: _Answering, attempt: Attempt, action: Action[..., Any]
    ) -> TaskMessage | None:
        """Return the answer of an attempt whose request is encoded. ``runner`` answers the decoded one."""
        request, registry = attempt.request, action.agent.registry
        codec = registry.codec
        try:
            plain, readable = await unseal_request(codec, request)
        except MissingValueError as missing:
            return _answer(
                request, "permanent" if request.doing == "do" else "gave_up", str(missing), final=True
            )
        except CodecError as fault:
            wait = min(WAIT, 2.0 ** min(request.attempt - 1, 10))
            self._note(address(request.app, request.agent), False)
            await self._report(request, fault, wait)
            return _answer(request, "later", f"it was not begun: {words(fault)}", wait=wait)
        self._note(address(request.app, request.agent), True)
        await self._works()
        limit = registry.payload_limit
        try:
            arguments(plain.args, limit)
        except MissingValueError as large:
            return _answer(
                request, "permanent" if request.doing == "do" else "gave_up", str(large), final=True
            )
        attempt.request, attempt.withholds = plain, registry.withholds
        if (call := known_call()) is not None:
            enter(replace(call, _request=replace(plain, trace=call._request.trace)))  # noqa: SLF001 - the same call
        if codec is not None:
            attempt.seal = partial(seal_note, codec, request)
        message = await runner.answer(attempt, action)
        if message is None or codec is None:
            return message
        if message.traceback is not None and attempt.withholds:
            message = replace(message, traceback=await seal_error(codec, request, message.traceback))
        try:
            return await seal_answer(codec, request, message, readable=readable)
        except Exception as fault:
            text = f"the result cannot be encoded: {type(fault.__cause__ or fault).__name__}"
            trace = None if registry.withholds else fault
            log.warning("step %s of task %s: %s", request.step, show(request.task), text, exc_info=trace)
            return _answer(request, "gave_up", text)

    async def _report(self, request: Request, fault: CodecError, wait: float) -> None:
        """Raise the alert, and raise it again later: another process, which can decode, may have ended it."""
        task = show(request.task)
        about = {"task": task, "step": request.step, "attempt": request.attempt}
        log.warning(
            "step %s of task %s is asked for again in %g s: %s",
            request.step,
            task,
            wait,
            words(fault),
            extra=about,
        )
        now = self._failed_at = self._clock.monotonic()
        if self._alerts is None or now < self._raised_at + 2 * WAIT:
            return
        text = f"{ROLE}: a process cannot decode what {request.app}/{request.agent} is asked for, so its steps wait: {words(fault)}"
        try:
            await self._alerts.alert([Alert("role_failing", step=ROLE, text=without_backticks(text)[:1000])])
            self._raised_at, self._may_have_alert = now, True
        except MakegoodError as away:
            log.warning("%s: no alert could be raised: %s", ROLE, words(away))

    async def _works(self) -> None:
        """End the alert once requests are decoded, and none has failed for a while."""
        if (
            not self._may_have_alert
            or self._alerts is None
            or self._clock.monotonic() < self._failed_at + 2 * WAIT
        ):
            return
        self._raised_at, self._may_have_alert = -inf, False
        try:
            await self._alerts.ease([Alert("role_failing", step=ROLE)], "it works again")
        except MakegoodError as away:
            self._may_have_alert = True
            log.warning("%s: its alert could not be ended: %s", ROLE, words(away))


def _answer(request: Request, kind: str, error: str, **fields: Any) -> TaskMessage:
    return TaskMessage(kind, request.idx, request.doing, request.attempt, error=error, **fields)  # type: ignore[arg-type]
