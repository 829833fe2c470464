"""Whether the files that are open are still those that bear their names.

A process goes on to write into a file that was removed, moved away or replaced by another while it was open: nobody else sees
what it writes, and it is gone when the process ends. The system tells nobody of it. So before each transaction the numbers
of the files behind the names are compared with those that were opened: two calls of the system, some microseconds.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

from makegood.errors import StoreUnavailableError

FileNumber = tuple[int, int]
"""The device and the number of a file on it: what a file is, whatever its name."""


def number_of(path: str) -> FileNumber | None:
    """Return what file bears this name now; None: no file does."""
    try:
        found = os.stat(path)  # noqa: PTH116 - asked before every transaction: a Path costs more than the question
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@dataclass(slots=True)
class FileIdentity:
    """The files of one connection. ``main``: the file that the store was opened on, once and for all: whoever takes its name
    later is another store, or the same one at another time, even when our connection to it is new.
    """

    path: Path
    main: FileNumber | None
    _main_name: str = field(init=False)
    _log_name: str = field(init=False)
    _log: FileNumber | None = None

    def __post_init__(self) -> None:
        """Make the names once; the log lies beside the file itself, also where ``path`` is a link to it."""
        self._main_name = str(self.path.absolute())
        self._log_name = f"{self.path.resolve()}-wal"

    def opened(self) -> None:
        """Remember the write-ahead log of a connection that was just opened; it lives as long as one is open."""
        self._log = number_of(self._log_name)

    def verify(self) -> None:
        """Raise ``StoreUnavailableError`` when another file, or none, is where ours was."""
        if self.main is None or number_of(self._main_name) != self.main:
            name = self._main_name
        elif self._log is not None and number_of(self._log_name) != self._log:
            name = self._log_name
        else:
            return
        raise StoreUnavailableError(
            f"{name} was removed, moved or replaced while this process had it open; nothing is written into a file that nobody "
            "else sees: put that very file back, or stop all processes that use it and start them anew"
        )
