"""Whose context work runs in: the contextvars that are set while it runs, and the event loop that it needs.

asyncio copies the context of whoever creates a task, sets a timer or opens a connection. An engine that does
such things when somebody calls it would run its work, and its users' functions, with the tenant, the user and
the trace of that caller, and keep these objects alive. So whatever lives longer than a call notes its *home*
when it is opened, and makes its tasks and timers there. Users' functions run in a ``fresh`` copy of it.
"""

import asyncio
import decimal
import os
import sys
import threading
from asyncio import get_running_loop
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from threading import get_ident
from typing import Any, ClassVar, Generic, TypeVar

from makegood.errors import ClosedError

T = TypeVar("T")


def _decimal_variable() -> ContextVar[decimal.Context]:
    """Return the variable in which ``decimal`` keeps the current arithmetic."""
    context = Context()
    context.run(decimal.getcontext)
    (variable,) = context
    return variable


_DECIMAL = _decimal_variable()


def home_context() -> Context:
    """Return a copy of the current context, outside any span and baggage of OpenTelemetry, with a
    ``decimal.getcontext()`` of its own.

    A program may start a node inside a span. That span is not the parent of what its tasks do later. And
    requests share the arithmetic of the program that starts them: one that changes it in place changes it
    for the program, but not for the node.
    """
    context = fresh()
    telemetry = sys.modules.get("opentelemetry.context")
    if telemetry is not None:
        context.run(telemetry.attach, telemetry.Context())
    return context


def bare_context() -> Context:
    """Return a context without variables, for what runs nobody's functions and may be opened in a request.

    So are waits with a limit: the event loop keeps a cancelled timer until its moment, with its context.
    Only the process of a simulated world is kept, in which everything there runs.
    """
    context = Context()
    for variable, value in copy_context().items():
        if variable.name == "makegood_process":
            context.run(variable.set, value)
    return context


def fresh(context: Context | None = None) -> Context:
    """Return a copy of a context (default: the current one), in which one function of a user's may run.

    What it sets there, nobody else sees; its ``decimal.getcontext()`` is its own too, although programs
    change that object in place.
    """
    copy = copy_context() if context is None else context.copy()
    copy.run(own_arithmetic)
    return copy


def own_arithmetic() -> Context:
    """Give the current context a ``decimal.getcontext()`` of its own; return a copy of it as it was."""
    before = copy_context()
    if (arithmetic := _DECIMAL.get(None)) is not None:
        _DECIMAL.set(arithmetic.copy())
    return before


class within(Generic[T]):  # noqa: N801 - read as a verb: ``await within(context, call())``
    """Runs a coroutine in a context, as part of the current asyncio task."""

    def __init__(self, context: Context, work: Coroutine[Any, Any, T]) -> None:
        self._context = context
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        """Pass on what the coroutine waits for, and what comes of that."""
        run, work = self._context.run, self._work
        try:
            waits = run(work.send, None)
            while True:
                try:
                    answer = yield waits
                except BaseException as fault:  # noqa: BLE001 - a cancellation, or the end of the generator
                    waits = run(work.throw, fault)
                else:
                    waits = run(work.send, answer)
        except StopIteration as end:
            result: T = end.value
            return result


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread; None if none does."""
    try:
        return get_running_loop()
    except RuntimeError:
        return None


def other_loop(loop: asyncio.AbstractEventLoop, subject: str) -> ClosedError:
    """Return the error for ``subject``, opened on ``loop``, where another event loop runs."""
    kind = subject.split()[1] if subject.startswith("this ") else "node"
    if loop.is_closed():
        return ClosedError(
            f"{subject} was opened on an event loop that has ended, and cannot be used again: make a new {kind}, and open and close it inside "
            "one loop (each asyncio.run is a loop of its own), or use SyncClient or SyncNode, which any thread may call"
        )
    return ClosedError(
        f"{subject} was opened on an event loop that is not the one that runs here, and answers on that one only: make a new {kind} on the "
        "loop that uses it (each asyncio.run is a loop of its own), or use SyncClient or SyncNode, which any thread may call"
    )


class HomeLoop:
    """The event loop and the context in which an object was opened. ``subject`` names it in messages."""

    __slots__ = ("_process", "_subject", "_thread", "apart", "context", "loop")
    process: ClassVar[object] = object()
    """Stands for this process: a child of a fork has another one, while its thread keeps its number."""

    def __init__(self, subject: str) -> None:
        self.loop = asyncio.get_running_loop()
        self._process = self.process
        self._thread = get_ident()
        self.context = home_context()
        self.apart = own_arithmetic if _DECIMAL in self.context else copy_context
        """``own_arithmetic`` for copies of this context; without an arithmetic there is nothing to copy."""
        self._subject = subject

    def check(self) -> None:
        """Raise ``ClosedError`` on any other event loop."""
        if get_ident() == self._thread and self._process is self.process and self.loop.is_running():
            return  # asyncio asks the system for the process's number each time
        if get_running_loop() is not self.loop:
            raise other_loop(self.loop, self._subject)

    def start(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> "asyncio.Task[T]":
        """Run a coroutine in an asyncio task of its own, whoever the caller is."""
        return self.loop.create_task(work, name=name, context=self.context.copy())

    @classmethod
    def be_a_child(cls) -> None:
        """Note that this process is a new one."""
        cls.process = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=HomeLoop.be_a_child)


def start_thread(thread: threading.Thread) -> None:
    """Start a thread that outlives its caller's request: where threads inherit a context, an empty one."""
    Context().run(thread.start)
