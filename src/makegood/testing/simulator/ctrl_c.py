"""Ctrl-C while worlds are played: it ends them between two callbacks, so that it passes through nobody's ``except``.

Raised wherever Python happens to be, it would land in the middle of a simulated transaction or of a user's action, and whoever
catches everything there would make something else of it: a fault that nobody injected, and a world that goes on.

    with held_back():           # the former handler is asked; what it raises is kept, and the loop that runs is stopped
        loop.run_forever()      # ... which calls ``give_in()``: here it is raised

A second Ctrl-C, more than a second later, is raised where it falls: code that never comes back to its loop ends by that alone.
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
    """The handler. ``raised``: what the former one said to the first Ctrl-C, at the time ``at``."""

    def __init__(self, former: Callable[[int, FrameType | None], object], clock: Clock) -> None:
        self.raised: BaseException | None = None
        self._former = former
        self._clock = clock
        self._at = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        if self.raised is not None:
            if now - self._at > SAME:  # `timeout` tells the process and its group
                self._former(number, frame)
            return
        try:
            self._former(number, frame)
        except BaseException as raised:  # noqa: BLE001 - it is raised again, where it can do no harm
            if frame is not None:  # the line on which it fell, for who is shown where it was
                line = frame.f_lineno or frame.f_code.co_firstlineno  # it has none at some instructions
                raised = raised.with_traceback(TracebackType(None, frame, frame.f_lasti, line))
            self.raised, self._at = raised, now
            running = asyncio._get_running_loop()  # noqa: SLF001 - exported for just this: nothing is raised where none runs
            if running is not None:
                running.stop()


@contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C back while the block runs, in the main thread alone: elsewhere no signal arrives. The former handler is put back."""
    former = signal.getsignal(_NUMBER)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return
    held = _Held(former, SystemClock())
    signal.signal(_NUMBER, held)
    try:
        yield
    finally:
        signal.signal(_NUMBER, former)
        if held.raised is not None:  # whatever else the block found out
            raise held.raised


def give_in() -> None:
    """Raise what was held back, if anything was."""
    handler = signal.getsignal(_NUMBER)
    if isinstance(handler, _Held) and handler.raised is not None:
        raise handler.raised
