"""Ctrl-C while worlds are played: raised between two callbacks, so that it passes through nobody's
``except``.

Raised wherever Python happens to be, it would land in the middle of a simulated transaction or of a user's
action. Code there that catches everything would turn it into a fault that nobody injected, in a world that
continues.

    with held_back():           # calls the former handler, keeps what it raises, and stops the running loop
        loop.run_forever()      # ... which calls ``give_in()``: it is raised here

A second Ctrl-C, more than a second later, is raised at once: only that ends code that never returns to its
loop.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Final

from makegood.base.clock import Clock, SystemClock
from makegood.node.signals import SAME

_NUMBER: Final = signal.SIGINT


class _Held:
    """The signal handler. ``error``: the exception of the former handler for the latest Ctrl-C."""

    def __init__(self, former: Callable[[int, FrameType | None], object], clock: Clock) -> None:
        self.error: BaseException | None = None
        self._former = former
        self._clock = clock
        self._at = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        is_second = self.error is not None
        if is_second and now - self._at <= SAME:  # `timeout` signals the process and its group.
            return
        try:
            self._former(number, frame)
        except BaseException as error:
            if frame is not None:  # The line where it arrived, for the traceback.
                line = frame.f_lineno or frame.f_code.co_firstlineno  # Some instructions have none.
                error = error.with_traceback(TracebackType(None, frame, frame.f_lasti, line))
            self.error, self._at = error, now
            if is_second:
                raise
            # Unlike `get_running_loop`, it does not raise if no loop runs.
            running = asyncio._get_running_loop()  # noqa: SLF001 - exported for this purpose
            if running is not None:
                running.stop()


@contextmanager
def hold_ctrl_c() -> Iterator[None]:
    """Hold Ctrl-C back while the block runs, then restore the former handler. Only in the main thread: no
    other thread receives signals.
    """
    former = signal.getsignal(_NUMBER)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return
    handler = _Held(former, SystemClock())
    signal.signal(_NUMBER, handler)
    try:
        yield
    finally:
        signal.signal(_NUMBER, former)
        if handler.error is not None:  # Whatever else the block raised.
            raise handler.error


def give_in() -> None:
    """Raise the Ctrl-C that was held back, if there was one."""
    handler = signal.getsignal(_NUMBER)
    if isinstance(handler, _Held) and handler.error is not None:
        raise handler.error
