"""The progress of a proof on pytest's terminal: nothing for short proofs, then how many worlds are left and
roughly how long.

On a terminal it is one line that is rewritten. If the output goes to a file, a new line appears after half a
minute, and then ever more rarely. It only reports: no finding of a proof depends on the time that it took.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from makegood.base.clock import Clock, SystemClock
from makegood.base.counts import quantity

Show = Callable[[str], None]

_SOON, _STEADY = 2.0, 0.5
_LATE: Final = 30.0


@dataclass(slots=True)
class Progress:
    """Reports the progress of a proof."""

    line: Show | None = None
    """Shows a text in place of the one before."""
    say: Show | None = None
    """Shows a text that stays."""
    first: float = _LATE
    """Seconds until the first report."""
    steady: float | None = None
    """Seconds between two reports; None: twice as many each time."""
    clock: Clock = field(default_factory=SystemClock)
    _began: float = 0.0
    _next: float = 0.0
    _is_visible: bool = False

    def begin(self) -> None:
        """Start to count time."""
        self._began = self.clock.monotonic()
        self._next = self.first

    def tell(self, count: int, of: int, note: str = "") -> None:
        """Report that ``count`` of ``of`` worlds have been played, if a report is due. ``note``: why it may
        take long.
        """
        took = self.clock.monotonic() - self._began
        if self.line is None or took < self._next or count >= of:
            return
        self._next = took * 2 if self.steady is None else took + self.steady
        self._is_visible = True
        left = f", about {_length(took / count * (of - count))} to go" if count else ""
        self.line(f"{count:,} of {quantity(of, 'world')}{left}{note}")

    def end(self) -> None:
        """Clear the line."""
        if self._is_visible and self.line is not None and self.steady is not None:
            self.line("")


def on_terminal(config: Any, name: str) -> Progress:
    """Return the progress for this pytest's terminal; silent if it has none (a process of pytest-xdist).

    ``name``: the test's name.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None:
        return Progress()
    capture = config.pluginmanager.get_plugin("capturemanager")
    tty = bool(reporter.isatty)

    names: list[str] = []

    @contextmanager
    def beside_the_dots() -> Iterator[None]:
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            # With `-q` pytest prints only dots, and this line now continues theirs.
            if not names and not reporter.showfspath:
                reporter.write_line("")
            names.append(name)
            reporter.ensure_newline()
            yield

    def say(text: str) -> None:
        with beside_the_dots():
            if tty:
                reporter.rewrite("", erase=True)
                reporter.rewrite("")
            reporter.write_line(f"{name}: {text}")

    def line(text: str) -> None:
        room = shutil.get_terminal_size().columns - 1
        with beside_the_dots():
            reporter.rewrite(f"{name}: {text}"[:room] if text else "", erase=True)
            if not text:
                reporter.rewrite("")

    return Progress(line, say, _SOON, _STEADY) if tty else Progress(say, say)


def _length(seconds: float) -> str:
    """Return a length of time as people say it.

    >>> [_length(n) for n in (8, 95, 5400, 9000)]
    ['8 s', '2 min', '90 min', '2.5 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds <= 5400 else f"{seconds / 3600:.1f} h"
