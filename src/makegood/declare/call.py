"""``current_call()``: what an action may ask about the call it runs in.

A context variable holds the call; the agent carries it into the threads of ``def`` actions. The call has what
to send to a remote service: the key, which is the same for every attempt; the token, which rises with every
attempt; and the seconds that are left.
"""

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from makegood.base import durations, ids, service_keys
from makegood.base.arguments import judge_calls
from makegood.base.clock import Clock
from makegood.base.contexts import running_loop
from makegood.base.secret_names import without_secrets
from makegood.errors import CallCancelled, CompleteByPassed, ConfigError, DefinitionError
from makegood.keys import PLAIN, Preset
from makegood.model.messages import Request
from makegood.model.note import MOST_OCTETS
from makegood.payload.codec import decode, encode

_SLACK = 1.0  # seconds that a thread waits for an extension beyond its deadline


def margin(within: float) -> float:
    """Return the seconds before its deadline that an attempt keeps for the answer: a tenth of
    ``complete_within``, at most one second.

    >>> margin(5.0), margin(30.0)
    (0.5, 1.0)
    """
    return min(1.0, within / 10)


class Token(NamedTuple):
    """A fencing token: a service refuses older ones. The store's generation, then the attempt, written "2.5".

    >>> Token(1, 12) > Token(1, 3), str(Token(1, 12))
    (True, '1.12')
    """

    generation: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.attempt}"


class Bounds(Protocol):
    """How long an attempt may run, as known to the agent that runs it."""

    @property
    def deadline(self) -> float:
        """Its deadline, on the agent's clock."""

    @property
    def retries(self) -> int:
        """Tries of this attempt after the first."""

    @property
    def first_sent(self) -> float:
        """When the first request under the call's key was taken: seconds since 1970, on the store's clock."""

    @property
    def cancelled(self) -> bool:
        """Whether the attempt has heard that nobody needs it any more."""

    async def rest(self, seconds: float) -> None:
        """Wait until it hears, at most so many seconds."""

    async def extend(self, more: float) -> bool:
        """Ask the store to move the deadline to ``more`` seconds from now; return whether it agreed."""

    @property
    def is_over(self) -> bool:
        """Whether the attempt is over."""

    def note(self, value: Any) -> None:
        """Keep a note; on the event loop."""


@judge_calls(ConfigError)
class Call(msgspec.Struct, eq=False):
    """One attempt of a step, as the action, undo or probe that runs it sees it."""

    _request: Request
    _store_id: str
    _generation: int
    _bounds: Bounds
    """Its deadline on ``_clock``."""
    _clock: Clock
    _loop: asyncio.AbstractEventLoop | None
    """The agent's event loop; None for a call outside any."""
    _decode: Callable[[bytes], Any] | None = None
    """Turns a result's JSON into the action's type."""
    _keys: Preset = PLAIN
    """What the service says of keys. Their form is the request's: it stays what it was when the step was
    submitted.
    """
    _tries: int = 1
    """Among how many tries an attempt shares its time."""

    def _with_trace(self, trace: str) -> "Call":
        """Return this call as part of the span named by ``trace``, a ``traceparent``."""
        return replace(self, _request=replace(self._request, trace=trace))

    @property
    def trace_id(self) -> str | None:
        """The id of the trace that this attempt belongs to; None if nobody traces."""
        trace = self._request.trace
        return None if trace is None else trace.partition("-")[2].partition("-")[0]

    def __repr__(self) -> str:
        return f"<call {self.key_as('plain')} attempt {self.attempt}>"

    # -- what a service is told ------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt. An undo has its own; a probe has that of the call
        it asks about.

        It has the form that the action declares (``key=``).
        """
        return self._key(self._request.key_form, undo=self._request.doing == "undo")

    def key_as(self, form: str | None = None, *, length: int | None = None) -> str:
        """Return ``key`` in another form, for a service that does not take it as it is.

        "uuid" (version 5), "uuid4" (the same with version 4), "quoted" (a UUID in double quotes), or
        ``length=28`` letters and digits, which are equally long for an action and its undo; or "plain", the
        readable one. Raises ``ConfigError`` for any other form, and for a length below 20 or above 64.
        """
        return self._key(_form(form, length, "key_as"), undo=self._request.doing == "undo")

    @property
    def undoes(self) -> str | None:
        """In an undo and a probe: the key under which the action was done. None in an action."""
        return None if self._request.doing == "do" else self._key(self._request.key_form, undo=False)

    def undoes_as(self, form: str | None = None, *, length: int | None = None) -> str | None:
        """Return ``undoes`` in another form, as ``key_as`` does."""
        key_form = _form(form, length, "undoes_as")
        return None if self._request.doing == "do" else self._key(key_form, undo=False)

    @property
    def token(self) -> Token:
        """(generation, attempt): rises with every attempt of action, probe and undo alike, within one
        ``scope``.
        """
        return Token(self._generation, self._request.attempt)

    @property
    def first_sent(self) -> datetime:
        """When an agent had the first request under ``key``, in UTC: the same for every attempt.

        It is read from the store's clock.
        """
        return datetime.fromtimestamp(self._bounds.first_sent, UTC)

    @property
    def scope(self) -> str:
        """The scope in which tokens are compared: one for a step, over all its keys."""
        return ids.scope(self._store_id, self._request.task, self._request.step)

    @property
    def headers(self) -> dict[str, str]:
        """All of it as HTTP headers: Idempotency-Key, Makegood-Token, -Scope, -Undoes, -Remaining,
        traceparent.

        Makegood-Remaining is in seconds, as ``remaining()``. A preset (``key=mg.keys.KLARNA``) gives the key
        another header.
        """
        headers = {
            self._keys.header or "Idempotency-Key": self.key,
            "Makegood-Token": str(self.token),
            "Makegood-Scope": self.scope,
            "Makegood-Remaining": f"{self.remaining():.3f}",
        }
        if self._keys.first_sent is not None:
            headers[self._keys.first_sent] = format_datetime(self.first_sent, usegmt=True)
        if (undoes := self.undoes) is not None:
            headers["Makegood-Undoes"] = undoes
        if self._request.trace is not None:
            headers["traceparent"] = self._request.trace
        return headers

    def _key(self, form: str, *, undo: bool) -> str:
        request = self._request
        if not form:
            direction = "undo" if undo else "do"
            return ids.key(self._store_id, request.task, request.step, request.round, direction)
        of_request = service_keys.KeyedRequest(request.task, request.idx, request.round, undo)
        return service_keys.in_form(self._store_id, of_request, form)

    # -- which step it is ------------------------------------------------------------------------------------

    @property
    def task_id(self) -> str:
        """The task's id, as people see it."""
        return ids.show(self._request.task)

    @property
    def step(self) -> str:
        """The step's name, unique in its task."""
        return self._request.step

    @property
    def attempt(self) -> int:
        """The number of requests for this step, including this one; tries within an attempt do not count."""
        return self._request.attempt

    @property
    def in_doubt(self) -> bool:
        """In an undo and a probe: whether it is unknown if the action happened. Then an undo's ``result`` is
        None.
        """
        return self._request.in_doubt

    @property
    def late_result(self) -> Any:
        """In an undo: the action's result from a reply that came too late to count; None if there was none.

        Raises ``PayloadError`` if it does not fit the action's return type.
        """
        late = self._request.late
        if late is None:
            return None
        return decode(late, Any, "the late result") if self._decode is None else self._decode(late)

    # -- time ------------------------------------------------------------------------------------------------

    @property
    def left(self) -> float:
        """The seconds left until the deadline itself; 0 once it has passed."""
        return max(0.0, self._bounds.deadline - self._clock.monotonic())

    def remaining(self, tries: int = 1) -> float:
        """Return the seconds that one request to a service may take: use it as the timeout. 0 if there is no
        time left.

        All of it ends a little before the deadline, by a tenth of ``complete_within`` and at most one second,
        so that the attempt can still report a request that times out. An action that declares
        ``retry=mg.Retry(tries=...)`` shares the time left among its remaining tries, so that a hanging
        service is tried that often; its undo and its probe too. ``tries``: how often your client itself sends
        a request, if you cannot switch its repetitions off; each of them then has its share. Raises
        ``ConfigError`` for a number below 1.
        """
        if not isinstance(tries, int) or isinstance(tries, bool) or tries < 1:
            raise ConfigError(
                f"remaining(tries={tries!r}): a whole number from 1: how often your client itself sends the request; the "
                f"tries of mg.Retry are known"
            )
        left = max(0.0, self.left - margin(self._request.within))
        return left / (max(1, self._tries - self._bounds.retries) * tries)

    @property
    def cancelled(self) -> bool:
        """Whether nobody needs this action any more, since its task is being undone. May be read in any
        thread.

        It becomes True within a second, whichever process runs the action, and stays so. In an undo and a
        probe it is always False.
        """
        return self._bounds.cancelled

    def check(self) -> None:
        """Raise ``CompleteByPassed`` once the deadline has passed, and ``CallCancelled`` once nobody needs
        the action any more: for long loops, which nobody can stop from outside.
        """
        self._check_time()
        if self.cancelled:
            raise CallCancelled(f"nobody needs step {self.step} of task {self.task_id} any more")

    def _check_time(self) -> None:
        if self.left <= 0:
            raise CompleteByPassed(f"the deadline of step {self.step} of task {self.task_id} has passed")

    def sleep(self, seconds: durations.Duration) -> Awaitable[None]:
        """Wait for this many seconds (or "2m"), and ``check()`` before and after. It ends at once when nobody
        needs the action any more, and at its deadline.

        ``await call.sleep("10s")`` in an ``async def`` action; in a ``def`` action ``call.sleep("10s")``
        blocks. Raises ``CallCancelled`` and ``CompleteByPassed``.
        """
        wait = min(durations.seconds(seconds, name="seconds"), self.left)
        self.check()
        try:
            return self._on_loop(self._sleep_and_check(wait), wait, "sleep")
        except TimeoutError:  # the event loop stands still
            self.check()
            return _Done()

    async def _sleep_and_check(self, wait: float) -> None:
        await self._bounds.rest(wait)
        self.check()

    def extend(self, seconds: durations.Duration) -> Awaitable[None]:
        """Move the deadline to this many seconds (or "2m") from now, never earlier, at most to what the
        action's ``extend_up_to`` allows.

        ``await call.extend("2m")`` in an ``async def`` action; in a ``def`` action ``call.extend("2m")``
        blocks. Raises ``CompleteByPassed`` if that is impossible: the attempt was judged, or has had all
        the time it may have.
        """
        more = durations.seconds(seconds, name="seconds", least=0.001)
        try:
            return self._on_loop(self._extend_or_raise(more), self.left, "extend")
        except TimeoutError:
            raise self._no_more_time() from None

    def note(self, note: object) -> None:
        """Report progress: a text such as "12 of 40 files copied", or another value that JSON can hold.

        It becomes a line of the task's history (``task.events()``, ``makegood task history``, the console).
        It returns at once, in threads too; a note is durable soon after. Of one attempt makegood keeps about
        one note a second, each hundredth of its time once it has run for longer than 100 s, and the last one
        before it ends: a note that another one overtakes is not kept, and the next says how many were
        skipped. Raises ``PayloadError`` for more than 2,048 bytes of JSON, and for what JSON cannot hold;
        ``CompleteByPassed`` if the attempt has ended.
        """
        value = msgspec.json.decode(encode(note, MOST_OCTETS, "the note", is_fixed=True))
        if isinstance(value, str):
            value = without_secrets(value)
        if self._bounds.is_over:
            raise self._has_ended()
        if self._loop is None or running_loop() is self._loop:
            self._bounds.note(value)
            return
        try:
            self._loop.call_soon_threadsafe(self._bounds.note, value)
        except RuntimeError:  # the event loop has ended
            raise self._has_ended() from None

    def _has_ended(self) -> CompleteByPassed:
        return CompleteByPassed(
            f"the attempt of step {self.step} of task {self.task_id} has ended: a note of it would be of nothing that runs"
        )

    def _on_loop(self, work: Coroutine[Any, Any, None], most: float, name: str) -> Awaitable[None]:
        """Run ``work`` of the method ``name`` on the agent's event loop. There, return it, to be awaited; a
        thread blocks.

        Raises ``TimeoutError`` in a thread after ``most`` seconds and a little more.
        """
        here = running_loop()
        if here is not None and here is self._loop:
            return _Awaited(here.create_task(work), name)
        if self._loop is None:
            asyncio.run(work)
        else:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            try:
                future.result(most + _SLACK)
            except TimeoutError:
                future.cancel()
                raise
        return _Done()

    async def _extend_or_raise(self, more: float) -> None:
        if not await self._bounds.extend(more):
            raise self._no_more_time()

    def _no_more_time(self) -> CompleteByPassed:
        return CompleteByPassed(
            f"the deadline of step {self.step} of task {self.task_id} cannot be extended any further: stop now; for more time declare "
            f'extend_up_to="2h" or the like, or a longer complete_within'
        )


def _form(form: str | None, length: int | None, where: str) -> str:
    """Return the form that the arguments of ``key_as`` name; raises ``ConfigError``."""
    if (form is None) == (length is None):
        raise ConfigError(f'{where}: pass either a form, {where}("uuid"), or a length, {where}(length=28)')
    return (
        service_keys.form_of_length(length, where) if form is None else service_keys.checked_form(form, where)
    )


class _Awaited:
    """The work of a method that an ``async def`` action has to await; warns if it does not."""

    def __init__(self, work: asyncio.Task[None], name: str) -> None:
        self._work = work
        self._name = name
        self._is_awaited = False

    def __await__(self) -> Generator[Any, None, None]:
        self._is_awaited = True
        return self._work.__await__()

    def __del__(self) -> None:
        if not self._is_awaited:
            effect = "did not wait" if self._name == "sleep" else "does not show whether the deadline moved"
            text = f"call.{self._name}(...) {effect}: write `await call.{self._name}(...)` in an `async def` action"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


class _Done:
    """An awaitable that is already done."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


_CALL: ContextVar[Call | None] = ContextVar("makegood_call", default=None)


enter = _CALL.set
"""Make ``current_call()`` return a call in the current asyncio task, which must belong to one attempt."""


def known_call() -> Call | None:
    """Return the current call, or None where ``current_call()`` raises: for log lines, which may be written
    anywhere.
    """
    return _CALL.get()


def current_call() -> Call:
    """Return the call that the running action, undo or probe is part of.

    Raises ``DefinitionError`` anywhere else, and in threads that the action started itself without its
    context.
    """
    call = _CALL.get()
    if call is None:
        raise DefinitionError(
            "mg.current_call() is known only while an agent runs an action, an undo or a probe; a thread that the action starts "
            "knows it when run with contextvars.copy_context().run(...), as asyncio.to_thread does"
        )
    return call
