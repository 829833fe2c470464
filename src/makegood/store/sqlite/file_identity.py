"""Verifies that the open files are still the files that bear their names.

If a file is removed, moved or replaced while it is open, the process keeps writing into the old file: nobody
else sees these writes, and they are lost when the process ends. The operating system does not report this. So
before each transaction, the numbers of the files behind the names are compared with those of the files that
were opened. This takes two system calls, a few microseconds.
"""

from dataclasses import dataclass, field
from pathlib import Path

from makegood.base.file_paths import FileNumber, number_of
from makegood.errors import StoreUnavailableError


@dataclass(slots=True)
class FileIdentity:
    """The files of one connection."""

    path: Path
    """The name of the store's file."""
    main: FileNumber | None
    """The file on which the store was opened; it never changes.

    A file that bears the name later is another store, or the same store at another time, even for a new
    connection.
    """
    _main_name: str = field(init=False)
    _log_name: str = field(init=False)
    _log: FileNumber | None = None

    def __post_init__(self) -> None:
        """Determine the names once. The log is beside the file itself, even if ``path`` is a link to it."""
        self._main_name = str(self.path.absolute())
        self._log_name = f"{self.path.resolve()}-wal"

    def record_log(self) -> None:
        """Record the write-ahead log of a newly opened connection.

        The log exists as long as a connection is open.
        """
        self._log = number_of(self._log_name)

    def verify(self) -> None:
        """Raise ``StoreUnavailableError`` if another file, or none, is now in the place of ours."""
        if self.main is None or number_of(self._main_name) != self.main:
            name = self._main_name
        elif self._log is not None and number_of(self._log_name) != self._log:
            name = self._log_name
        else:
            return
        raise StoreUnavailableError(
            f"{name} was removed, moved or replaced while this process had it open; nothing is written into a file that nobody "
            "else sees: put that very file back, or restart all processes that use it"
        )
