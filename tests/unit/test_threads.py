"""Threads for functions that cannot be stopped."""

import subprocess
import sys
import threading

import pytest

from makegood.threads import DaemonThreads


def test_no_more_threads_than_allowed_and_none_before_they_are_needed() -> None:
    """Each thread is begun by a call that finds none idle."""
    threads = DaemonThreads(2, "some")
    gate, entered = threading.Event(), threading.Semaphore(0)

    def wait() -> str:
        entered.release()
        gate.wait()
        return threading.current_thread().name

    running = [threads.submit(wait) for _ in range(5)]
    assert entered.acquire(timeout=5)
    assert entered.acquire(timeout=5)
    assert not entered.acquire(blocking=False)
    gate.set()
    assert {future.result(5) for future in running} <= {"some-0", "some-1"}
    threads.shutdown(wait=True)


def test_an_idle_thread_is_used_again() -> None:
    """One call after the other needs one thread."""
    threads = DaemonThreads(9, "some")
    names = {threads.submit(lambda: threading.current_thread().name).result(5)}
    threads.submit(threading.Event().is_set).result(5)
    assert names == {"some-0"}
    threads.shutdown(wait=True)


def test_what_a_call_raises_comes_out_of_its_future() -> None:
    """Even what is no ``Exception``; the thread lives on."""
    threads = DaemonThreads(1, "some")
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 1, 0).result(5)
    with pytest.raises(SystemExit):
        threads.submit(sys.exit, 3).result(5)
    assert threads.submit(pow, 2, 2).result(5) == 4
    threads.shutdown(wait=True)


def test_shutdown_cancels_what_is_queued() -> None:
    """With ``cancel_futures``, what has not begun never does."""
    threads = DaemonThreads(1, "some")
    gate, entered = threading.Event(), threading.Event()

    def wait() -> bool:
        entered.set()
        return gate.wait()

    first = threads.submit(wait)
    assert entered.wait(5)
    second = threads.submit(pow, 2, 2)
    threads.shutdown(cancel_futures=True)
    assert second.cancelled()
    gate.set()
    assert first.result(5)


def test_a_call_that_never_returns_does_not_keep_the_interpreter() -> None:
    """The standard library's pool would wait for it when the interpreter ends."""
    program = """
import threading
from makegood.threads import DaemonThreads
entered = threading.Event()
DaemonThreads(1, "some").submit(lambda: (entered.set(), threading.Event().wait()))
entered.wait()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=20, check=False).returncode == 0
