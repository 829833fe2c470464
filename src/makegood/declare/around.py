"""What runs around each call of an app's functions: the hooks of ``app.around``, and Django's tidying up.

A web framework cleans up between two requests: connections that died, scoped sessions, the scope of an error
tracker. An agent's thread lives for weeks and has no requests, so whatever cleans up must run around each
call. Hooks are context managers: those that block run around ``def`` functions, in their thread; those that
are awaited run around ``async def`` functions.
"""

import contextlib
import inspect
import logging
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from types import TracebackType
from typing import Any, TypeAlias

from makegood.errors import DefinitionError

log = logging.getLogger("makegood.agent")

Hook: TypeAlias = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""Makes the context manager of one call."""


class Around:
    """The hooks of one app, in the order of their declarations: the first is the outermost."""

    def __init__(self) -> None:
        self._blocking: tuple[Callable[[], AbstractContextManager[Any]], ...] = ()
        self.async_hooks: tuple[Callable[[], AbstractAsyncContextManager[Any]], ...] = ()
        """Those that are awaited."""

    def add(self, hook: Any, where: str) -> None:
        """Add a hook. Raises ``DefinitionError`` for what makes no context manager, or needs arguments."""
        blocking, asynchronous = _kinds(hook, where)
        if blocking:
            self._blocking += (hook,)
        if asynchronous:
            self.async_hooks += (hook,)

    def call(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a ``def`` function inside the hooks that block."""
        inside: Callable[[], Any] = partial(fn, *args, **kwargs)
        for hook in reversed(self._blocking):
            inside = partial(_call, hook, inside)
        django = sys.modules.get("django.db")
        if django is None:
            return inside()
        _end_request(django)
        try:
            return inside()
        finally:
            _end_request(django)

    def awaiting(
        self, fn: Callable[..., Coroutine[Any, Any, Any]], /, *args: Any, **kwargs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Return what to await for a call of an ``async def`` function inside the awaited hooks."""
        inside: Callable[[], Coroutine[Any, Any, Any]] = partial(fn, *args, **kwargs)
        for hook in reversed(self.async_hooks):
            inside = partial(_await, hook, inside)
        return inside()


class _Unswallowed:
    """Raises behind a hook what the function raised inside it: a hook may replace that, and cannot swallow
    it.

    It is entered twice, around the hook and inside it.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            self._error = error
            return
        try:
            if error is None and self._error is not None:
                raise self._error
        finally:
            self._error = None  # its traceback refers to the caller's frame: a reference cycle


def _call(hook: Callable[[], AbstractContextManager[Any]], inside: Callable[[], Any]) -> Any:
    """Call a function inside a hook."""
    guard = _Unswallowed()
    with guard, hook(), guard:
        return inside()
    raise AssertionError("unreachable: what the hook swallows is raised")


async def _await(
    hook: Callable[[], AbstractAsyncContextManager[Any]], inside: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    guard = _Unswallowed()
    with guard:
        async with hook():
            with guard:
                return await inside()
    raise AssertionError("unreachable: what the hook swallows is raised")


def _kinds(hook: Any, where: str) -> tuple[bool, bool]:
    """Return whether a hook makes context managers that block, and such that are awaited."""
    factory: Any = hook
    while isinstance(factory, partial):
        factory = factory.func
    blocking = asynchronous = False
    if isinstance(factory, type):
        blocking, asynchronous = hasattr(factory, "__enter__"), hasattr(factory, "__aenter__")
    elif callable(factory) and (body := inspect.unwrap(factory)) is not factory:
        blocking, asynchronous = inspect.isgeneratorfunction(body), inspect.isasyncgenfunction(body)
    if not (blocking or asynchronous):
        raise DefinitionError(
            f"{where} takes what makes a context manager for each call: a function under @contextlib.contextmanager (for def "
            f"functions) or @contextlib.asynccontextmanager (for async def functions), or a class of such objects; not {hook!r}"
        )
    with contextlib.suppress(ValueError):  # a class written in C may have no signature to read
        parameters = inspect.signature(hook).parameters.values()
        needs = [
            p.name
            for p in parameters
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if needs:
            raise DefinitionError(
                f"{where} calls {hook!r} without arguments, and it needs {', '.join(needs)}: what the call is about is in "
                "mg.current_call()"
            )
    return blocking, asynchronous


def _end_request(django: Any) -> None:
    """Do in this thread what Django does between two requests: drop dead and old connections, and its log of
    queries.
    """
    if not sys.modules["django.conf"].settings.configured:
        return
    try:
        django.reset_queries()
        django.close_old_connections()
    except Exception:  # the function was right, or will report by itself what is wrong
        log.exception("Django's connections of this thread could not be tidied up")
