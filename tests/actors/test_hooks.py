"""Hooks around the calls of users' functions, and Django's connections, which are tidied up around each of them."""

import asyncio
import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest

import makegood as mg
from makegood.declare.around import Around
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from tests.waiting import until

QUICK = Options(poll_every="50ms", alerts_every=None, leaderless_after=None)
ONCE = mg.Retry(tries=1)
NO_RETRY = mg.Recover(threshold=0, wait="10ms", extended="10ms")
SCOPE: ContextVar[str] = ContextVar("scope", default="none")


class Log:
    """An app with hooks that note what they see."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.app = mg.App("hooked")
        self.desk = self.app.agent("desk")

    def note(self, text: str) -> None:
        """Note something, with the step of the call and the thread's kind."""
        thread = "loop" if threading.current_thread() is threading.main_thread() else "thread"
        self.said.append(f"{text} {mg.current_call().step} {SCOPE.get()} {thread}")

    def hook(self, name: str, **swallows: bool) -> Callable[[], contextlib.AbstractContextManager[None]]:
        """Make a hook that blocks."""

        @contextlib.contextmanager
        def hook() -> Iterator[None]:
            self.note(f"{name} begins")
            SCOPE.set(name)
            try:
                yield
            except Exception:
                if not swallows:
                    raise
            finally:
                self.note(f"{name} ends")

        return hook

    def hook_async(
        self, name: str, **swallows: bool
    ) -> Callable[[], contextlib.AbstractAsyncContextManager[None]]:
        """Make a hook that is awaited."""

        @contextlib.asynccontextmanager
        async def hook() -> AsyncIterator[None]:
            self.note(f"{name} begins")
            SCOPE.set(name)
            await asyncio.sleep(0)
            try:
                yield
            except Exception:
                if not swallows:
                    raise
            finally:
                await asyncio.sleep(0)
                self.note(f"{name} ends")

        return hook


async def test_hooks_run_around_def_and_async_def_functions_each_in_its_way(store: Store) -> None:
    """Actions and undos. In the order of their declarations, in the function's own thread and context, and they know the call."""
    log = Log()
    for name in ("outer", "inner"):
        log.app.around(log.hook(name))
    log.app.around(log.hook_async("awaited"))

    @log.desk.action(complete_within="1m", retry=ONCE)
    def first(n: int) -> int:
        log.note("runs")
        return n

    @first.undo
    def unfirst(*, result: int | None) -> None:
        log.note("undoes")

    @log.desk.action(complete_within="1m", retry=ONCE, undo=mg.NOTHING)
    async def second(n: int) -> int:
        log.note("runs")
        raise mg.Permanent("no")

    @log.app.workflow()
    def both(n: int) -> int:
        return second(first(n))

    async with Node(log.app, store, options=QUICK) as node:
        with pytest.raises(mg.TaskUndone):
            await (await node.client.submit(both, 1)).result("120s")
    assert log.said == [
        "outer begins first none thread", "inner begins first outer thread", "runs first inner thread",
        "inner ends first inner thread", "outer ends first inner thread",
        "awaited begins second none loop", "runs second awaited loop", "awaited ends second awaited loop",
        "outer begins first none thread", "inner begins first outer thread", "undoes first inner thread",
        "inner ends first inner thread", "outer ends first inner thread",
    ]  # fmt: skip


@pytest.mark.parametrize("awaits", [False, True])
async def test_a_hook_cannot_swallow_a_verdict_but_may_raise_another(store: Store, awaits: bool) -> None:
    log = Log()
    log.app.around((log.hook_async if awaits else log.hook)("swallows", swallows=True))

    def refuses(n: int) -> int:
        if n:
            raise mg.Permanent("the card was refused")
        raise KeyError("a service's own error")

    async def refuses_awaiting(n: int) -> int:
        return refuses(n)

    action = log.desk.action(
        complete_within="1m", name="refuses", retry=ONCE, recover=NO_RETRY, undo=mg.NOTHING
    )(refuses_awaiting if awaits else refuses)

    @log.app.workflow()
    def buy(n: int) -> Any:
        return action(n)

    def translated() -> Any:
        try:
            yield
        except KeyError as failure:
            raise mg.Permanent("translated") from failure

    async def translated_awaiting() -> Any:
        try:
            yield
        except KeyError as failure:
            raise mg.Permanent("translated") from failure

    async with Node(log.app, store, options=QUICK) as node:
        with pytest.raises(mg.TaskUndone, match="the card was refused"):
            await (await node.client.submit(buy, 1)).result("120s")
        log.app.around(
            contextlib.asynccontextmanager(translated_awaiting)
            if awaits
            else contextlib.contextmanager(translated)
        )
        with pytest.raises(mg.TaskUndone, match="translated"):
            await (await node.client.submit(buy, 0)).result("120s")


async def test_a_hook_that_fails_before_the_call_counts_as_the_function(store: Store) -> None:
    """It is tried again like the function; and what it says for certain is certain."""
    app = mg.App("hooked")
    calls, failures = [], [OSError("no session"), OSError("no session")]

    @app.around
    @contextlib.contextmanager
    def session() -> Iterator[None]:
        if failures:
            raise failures.pop()
        yield

    @app.agent("desk").action(complete_within="1m", retry=mg.Retry(tries=3, wait="1ms"), undo=mg.NOTHING)
    def act(n: int) -> int:
        calls.append(n)
        return n

    @app.workflow()
    def work(n: int) -> int:
        return act(n)

    async with Node(app, store, options=QUICK) as node:
        assert await (await node.client.submit(work, 1)).result("120s") == 1
        assert calls == [1]
        failures.append(mg.Permanent("closed today"))  # type: ignore[arg-type]
        with pytest.raises(mg.TaskUndone, match="closed today"):
            await (await node.client.submit(work, 2)).result("120s")
    assert calls == [1]


@pytest.mark.parametrize("awaits", [False, True])
async def test_hooks_run_around_an_inboxs_function(store: Store, awaits: bool) -> None:
    app = mg.App("hooked")
    steps: list[str] = []

    @app.around
    @contextlib.contextmanager
    def blocking() -> Iterator[None]:
        steps.append("blocking")
        yield

    @app.around
    @contextlib.asynccontextmanager
    async def waiting() -> AsyncIterator[None]:
        steps.append("awaited")
        yield

    if awaits:

        @app.inbox("orders")
        async def take_awaiting(order: str, tx: mg.Transaction) -> None:
            steps.append(order)

    else:

        @app.inbox("orders")
        def take(order: str, tx: mg.Transaction) -> None:
            steps.append(order)

    async with Node(app, store, roles=("inbox",), options=QUICK) as node:
        await node.client.send("orders", "nut")

        async def taken() -> bool:
            return len(steps) == 2

        await until(taken)
    assert steps == ["awaited" if awaits else "blocking", "nut"]


@pytest.mark.parametrize("with_hook", [False, True])
async def test_an_actions_parameters_may_have_any_name(store: Store, with_hook: bool) -> None:
    """Also those of makegood's own functions between the agent and the action."""
    app = mg.App("hooked")
    desk = app.agent("desk")
    if with_hook:
        app.around(Both)

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    def first(fn: int, hook: int, inside: int, args: int, func: int) -> int:
        return fn + hook + inside + args + func

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def second(fn: int, hook: int, context: int, work: int) -> int:
        return fn + hook + context + work

    @app.workflow()
    def both(n: int) -> int:
        return second(first(n, 1, 1, 1, 1), 1, 1, 1)

    async with Node(app, store, options=QUICK) as node:
        assert await (await node.client.submit(both, 1)).result("120s") == 8


class Both:
    """A context manager of both kinds."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    async def __aenter__(self) -> None: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@contextlib.contextmanager
def scope(name: str, level: int = 0) -> Iterator[None]:
    """A context manager that needs an argument."""
    yield


def generator() -> Iterator[None]:
    """What lacks @contextmanager."""
    yield


async def coroutine() -> None:
    """What makes no context manager."""


@pytest.mark.parametrize("hook", [None, 7, generator, coroutine, Both(), scope("a"), len, int])
def test_what_makes_no_context_manager_is_refused_where_it_is_declared(hook: Any) -> None:
    with pytest.raises(mg.DefinitionError, match=r"hooked\.around takes what makes a context manager"):
        mg.App("hooked").around(hook)


def test_a_hook_that_needs_arguments_is_refused_by_their_names() -> None:
    app = mg.App("hooked")
    with pytest.raises(mg.DefinitionError, match=r"without arguments, and it needs name: .*current_call"):
        app.around(scope)  # type: ignore[type-var]
    hook = partial(scope, "a")
    assert app.around(hook) is hook
    assert app.around(Both) is Both


async def test_a_class_may_make_context_managers_of_both_kinds() -> None:
    around, steps = Around(), []

    class Noting(Both):
        def __enter__(self) -> None:
            steps.append("def")

        async def __aenter__(self) -> None:
            steps.append("async def")

    around.add(Noting, "here")

    async def answer() -> int:
        return 2

    assert (around.call(lambda: 1), await around.awaiting(answer), steps) == (1, 2, ["def", "async def"])


def test_a_failure_is_not_kept_alive_by_the_frames_that_it_passed() -> None:
    """The exception's traceback refers to them: no collection is needed to free it."""
    around = Around()
    around.add(contextlib.contextmanager(generator), "here")

    class Failure(Exception):  # noqa: N818 - a test's
        pass

    def fail() -> None:
        raise Failure

    gc.collect()
    gc.disable()
    try:
        alive = []
        try:
            around.call(fail)
        except Failure as failure:
            alive.append(weakref.ref(failure))
        assert alive[0]() is None
    finally:
        gc.enable()


# -- Django --------------------------------------------------------------------------------------------------


def test_djangos_connections_are_tidied_before_and_after_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where its settings are in place; and a failure to tidy up is no failure of the function."""
    calls: list[str] = []

    def close() -> None:
        calls.append("close")
        if len(calls) > 4:
            raise OSError

    settings = SimpleNamespace(configured=False)
    monkeypatch.setitem(sys.modules, "django.conf", SimpleNamespace(settings=settings))
    django = SimpleNamespace(reset_queries=lambda: calls.append("reset"), close_old_connections=close)
    monkeypatch.setitem(sys.modules, "django.db", django)
    around = Around()
    assert around.call(lambda: calls.append("call")) is None
    settings.configured = True
    around.call(calls.append, "call")
    assert calls == ["call", "reset", "close", "call", "reset", "close"]
    assert around.call(int, "7") == 7
