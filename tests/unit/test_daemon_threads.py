"""Threads for functions that cannot be stopped."""

import asyncio
import contextlib
import gc
import subprocess
import sys
import threading
import weakref
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from makegood.base.daemon_threads import DaemonThreads


async def answers(threads: DaemonThreads, *calls: Callable[[], Any]) -> list[Any]:
    """Return what calls return that are made at the same time."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        return await asyncio.gather(*(loop.run_in_executor(threads, call) for call in calls))


def name() -> str:
    return threading.current_thread().name


async def test_no_more_threads_than_allowed_and_none_before_they_are_needed() -> None:
    """Each thread is begun for a call that the others cannot take: they wait."""
    threads = DaemonThreads(2, "some")
    gate, entries = threading.Event(), threading.Semaphore(0)

    def wait() -> str:
        entries.release()
        gate.wait()
        return name()

    running = asyncio.gather(*(asyncio.get_running_loop().run_in_executor(threads, wait) for _ in range(5)))
    assert entries.acquire(timeout=60)
    assert entries.acquire(timeout=60)
    assert not entries.acquire(timeout=0.05)
    gate.set()
    assert set(await running) == {"some-0", "some-1"}
    threads.shutdown(wait=True)


async def test_an_idle_thread_is_used_again() -> None:
    """One call after the other needs one thread."""
    threads = DaemonThreads(9, "some")
    for _ in range(5):
        assert await answers(threads, name) == ["some-0"]
        async with asyncio.timeout(60):
            while threads._idle == 0:  # noqa: ASYNC110 - it has given its answer, and tells nobody that it falls asleep
                await asyncio.sleep(0)
    threads.shutdown(wait=True)


async def test_calls_that_wait_all_wait_at_the_same_time() -> None:
    """Each thread that is woken wakes the next before it begins: as many wait as there are threads, again and again."""
    threads = DaemonThreads(20, "some")
    for _ in range(50):
        together = threading.Barrier(20, timeout=60)
        assert len(await answers(threads, *[together.wait] * 20)) == 20
    threads.shutdown(wait=True)


async def test_calls_that_are_short_and_long_all_end() -> None:
    """Thousands, in bursts of every size, while threads fall asleep and wake up: nobody is forgotten."""
    threads = DaemonThreads(4, "some")
    count = 0

    def call(n: int) -> int:
        if n % 7 == 0:
            zlib.compress(bytes(100_000))  # others may run meanwhile
        return n

    for burst in [1, 2, 3, 5, 8, 40] * 60:
        calls = [lambda n=n: call(n) for n in range(count, count + burst)]
        assert await answers(threads, *calls) == list(range(count, count + burst))
        count += burst
    threads.shutdown(wait=True)


async def test_what_a_call_raises_comes_out_of_its_future() -> None:
    """Even what is no ``Exception``; the thread lives on."""
    threads = DaemonThreads(1, "some")
    with pytest.raises(ZeroDivisionError):
        await answers(threads, lambda: divmod(1, 0))
    with pytest.raises(SystemExit):
        await asyncio.get_running_loop().run_in_executor(threads, sys.exit, 3)
    assert await answers(threads, lambda: 4) == [4]
    threads.shutdown(wait=True)


async def test_a_stop_iteration_comes_out_as_a_coroutine_would_raise_it() -> None:
    """``next`` of what is empty: no future of asyncio's takes it, and who awaits it would wait for ever."""
    threads = DaemonThreads(1, "some")
    with pytest.raises(RuntimeError, match="raised StopIteration") as error:
        await answers(threads, lambda: next(iter(())))
    assert isinstance(error.value.__cause__, StopIteration)
    threads.shutdown(wait=True)


@pytest.mark.parametrize("fails", [True, False])
async def test_nothing_that_was_asked_or_raised_is_kept(fails: bool) -> None:
    """Neither a thread that waits nor a traceback holds the last call: no circle is left to the garbage collector."""

    class Held:
        def __call__(self) -> None:
            if fails:
                raise ValueError

    threads, loop = DaemonThreads(1, "some"), asyncio.get_running_loop()
    gc.collect()
    gc.disable()
    try:
        call = Held()
        reference = weakref.ref(call)
        with contextlib.suppress(ValueError):
            await loop.run_in_executor(threads, call)
        del call
        async with asyncio.timeout(60):
            while reference() is not None:  # noqa: ASYNC110 - the thread tells nobody that it has let go
                await asyncio.sleep(0)
    finally:
        gc.enable()
    threads.shutdown(wait=True)


async def test_a_call_that_nobody_waits_for_any_more_is_not_begun() -> None:
    threads, gate, start = DaemonThreads(1, "some"), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    first = loop.run_in_executor(threads, gate.wait)
    second = loop.run_in_executor(threads, start.set)
    second.cancel()
    gate.set()
    assert await first
    assert await answers(threads, start.is_set) == [False]
    threads.shutdown(wait=True)


async def test_shutdown_cancels_what_is_queued() -> None:
    """With ``cancel_futures``, what has not begun never does."""
    threads = DaemonThreads(1, "some")
    gate, entry = threading.Event(), threading.Event()

    def wait() -> bool:
        entry.set()
        return gate.wait()

    loop = asyncio.get_running_loop()
    first = loop.run_in_executor(threads, wait)
    assert entry.wait(120)
    second = loop.run_in_executor(threads, pow, 2, 2)
    threads.shutdown(cancel_futures=True)
    assert second.cancelled()
    gate.set()
    assert await first


async def test_a_system_that_gives_no_more_threads_is_asked_no_more_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without any thread a call fails at once, and is not begun later; with some, it waits for them."""
    threads, start = DaemonThreads(9, "some"), threading.Thread.start
    starts: list[int] = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        await answers(threads, lambda: starts.append(1))
    monkeypatch.setattr(threading.Thread, "start", start)
    assert await answers(threads, lambda: 4) == [4]
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert await answers(threads, *[name] * 5) == ["some-0"] * 5
    assert starts == []
    monkeypatch.undo()
    threads.shutdown(wait=True)


async def test_what_is_queued_at_a_shutdown_is_done_and_no_thread_is_left() -> None:
    """Also those that are begun only then; what comes later is never begun."""
    for _ in range(20):
        threads = DaemonThreads(8, "some")
        loop = asyncio.get_running_loop()
        running = [loop.run_in_executor(threads, zlib.compress, bytes(10_000)) for _ in range(6)]
        threads.shutdown()
        late = loop.run_in_executor(threads, name)
        async with asyncio.timeout(60):
            assert len(await asyncio.gather(*running)) == 6
        threads.shutdown(wait=True)
        assert not late.done()
        assert not [thread for thread in threads._threads if thread.is_alive()]


def test_an_event_loop_that_is_gone_is_not_waited_for() -> None:
    """A call that outlives its loop ends in silence, and the threads serve the next loop."""
    threads, gate = DaemonThreads(1, "some"), threading.Event()

    async def leave() -> None:
        asyncio.get_running_loop().run_in_executor(threads, gate.wait)

    asyncio.run(leave())
    gate.set()
    for _ in range(3):
        assert asyncio.run(answers(threads, lambda: 4, lambda: 5)) == [4, 5]
    threads.shutdown(wait=True)


def test_a_call_that_never_returns_does_not_keep_the_interpreter() -> None:
    """The standard library's pool would wait for it when the interpreter ends."""
    program = """
import asyncio, threading
from makegood.base.daemon_threads import DaemonThreads
entered = threading.Event()
async def leave():
    asyncio.get_running_loop().run_in_executor(DaemonThreads(1, "some"), lambda: (entered.set(), threading.Event().wait()))
    await asyncio.to_thread(entered.wait)
asyncio.run(leave())
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0
