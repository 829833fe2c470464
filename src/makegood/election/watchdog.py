"""A thread that ends the process if work has not stopped at the deadline of its term.

Python cannot stop a thread, nor a coroutine that blocks the event loop: then not even the cancellation at the
deadline happens. Ending the process always works. Only with ``overrun="exit"``.
"""

import os
import sys
import threading
from collections.abc import Callable

from makegood.base.clock import Clock
from makegood.base.contexts import start_thread

EXIT_CODE = 70
"""The process's exit code (EX_SOFTWARE)."""

_LONGEST_LOOK = 0.5


class Watchdog:
    """Watches one term until ``stop``. ``deadline`` returns its present end on ``clock``; ``leave`` ends the
    process.
    """

    def __init__(
        self,
        subject: str,
        deadline: Callable[[], float],
        clock: Clock,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._what = subject
        self._deadline = deadline
        self._clock = clock
        self._leave = leave
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"watchdog {subject}", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        start_thread(self._thread)

    def stop(self) -> None:
        """The work has stopped in time: stop watching."""
        self._over.set()

    def _watch(self) -> None:
        while True:
            left = self._deadline() - self._clock.monotonic()
            if left <= 0:
                break
            if self._over.wait(min(left, _LONGEST_LOOK)):
                return
        if not self._over.is_set():
            sys.stderr.write(
                f"makegood: the work of {self._what} has not stopped at the deadline of its lease, or within one ttl of being asked to; "
                f"this process ends now, with exit code {EXIT_CODE}, because its successor begins\n"
            )
            sys.stderr.flush()
            self._leave(EXIT_CODE)
