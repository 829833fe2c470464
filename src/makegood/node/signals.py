"""Stop signals: SIGTERM or Ctrl-C drains a process, a second one ends it at once."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from typing import Final, Self

log = logging.getLogger("makegood.node")

SAME: Final = 1.0
"""Seconds within which a second signal counts as the first.

``timeout`` and other wrappers send theirs to the process and to its group.
"""

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """While entered, calls ``stop`` at the first SIGTERM or SIGINT.

    Another signal, more than ``SAME`` seconds later, kills the process. Outside the main thread, or on a
    system without such handlers, signals keep their former effect. ``signal_name``: the name of the first
    signal, "" before it.
    """

    signal_name = ""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._first: float | None = None

    def __enter__(self) -> Self:
        for number in _NUMBERS:
            with contextlib.suppress(NotImplementedError, ValueError):
                self._loop.add_signal_handler(number, self._handle, number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in _NUMBERS:
            with contextlib.suppress(NotImplementedError, ValueError):
                self._loop.remove_signal_handler(number)

    def _handle(self, number: signal.Signals) -> None:
        now = self._loop.time()
        if self._first is None:
            self._first = now
            self.signal_name = number.name
            self._stop()
        elif now - self._first > SAME:
            log.warning(
                "%s once more: this process ends at once, and what runs in it is in doubt", number.name
            )
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
