"""An outbox in a SQLite file.

The file is opened again for each use, and nothing is locked while the entries are sent. Relays that are given
the same entries send them twice; the second one deletes rows that are already gone.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from makegood.base import sqlite_log
from makegood.base.file_paths import check_searchable, exists
from makegood.base.sqlite_readonly import denial, may_write, refusal
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.messaging.outbox.protocol import MISSING, MOST_BYTES, Entry

T = TypeVar("T")

_PATIENCE = 5.0
"""Seconds to wait for the application's lock."""

_FOUND = """
select seq, key, queue, payload, reply_to, correlation_id, length(cast(payload as blob)) from makegood_outbox
where error is null and queue not in (select value from json_each(?)) order by seq limit ?
"""
_DELETE = "delete from makegood_outbox where seq = ?"
_ASIDE = "update makegood_outbox set error = ? where seq = ?"


@dataclass(slots=True)
class _Taking:
    outbox: "SQLiteOutbox"
    entries: Sequence[Entry]
    more: bool

    async def settle(self, seqs: Sequence[int], refusals: Sequence[tuple[int, str]]) -> None:
        """Delete and set aside, in one transaction."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("begin immediate")
            connection.executemany(_DELETE, [(seq,) for seq in seqs])
            connection.executemany(_ASIDE, [(why, seq) for seq, why in refusals])
            connection.execute("commit")

        await self.outbox.do(write)


def _legible(text: bytes) -> str:
    """Return a text that may not be UTF-8; the fault is found where it is read as JSON, or as a name."""
    return text.decode(errors="backslashreplace")


class SQLiteOutbox:
    """The outbox in the file at ``path``."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self.where = f"the outbox in {path}"

    async def open(self) -> None:
        """See that it can be read."""
        await self.do(lambda connection: connection.execute(_FOUND, ("[]", 1)).fetchall())

    async def close(self) -> None:
        """Nothing is open."""

    @asynccontextmanager
    async def take(self, limit: int, without: Sequence[str]) -> AsyncIterator[_Taking]:
        """Give the oldest entries."""
        exclusions = msgspec.json.encode(list(without)).decode()
        entries: list[Entry] = []

        def read(connection: sqlite3.Connection) -> bool:
            size = 0
            for *row, octets in connection.execute(_FOUND, (exclusions, limit)):
                entries.append(Entry(*row))
                size += octets or 0
                if size >= MOST_BYTES:
                    return True
            return len(entries) == limit

        has_more = await self.do(read)
        yield _Taking(self, entries, has_more)

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do ``work`` on a connection of its own, in a thread."""
        return await asyncio.to_thread(self._do, work)

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        check_searchable(self._path)
        if not exists(self._path):
            raise ConfigError(f"{self.where}: there is no such file")
        # Entries could not be removed, and SQLite would leave a log that is not the application's.
        if not may_write(self._path):
            raise StoreUnavailableError(f"{self.where} cannot be used now: {denial(self._path)}")
        try:
            uri = f"{self._path.absolute().as_uri()}?mode=rw"
            # It leaves checkpoints to the application: one of ours would not be guarded.
            with contextlib.closing(sqlite_log.connect(uri, timeout=_PATIENCE)) as connection:
                connection.text_factory = _legible
                return work(connection)
        except sqlite3.Error as fault:
            if "no such table" in str(fault):
                raise ConfigError(MISSING.format(where=self.where)) from fault
            if "no such column" in str(fault) or "not a database" in str(fault):
                raise ConfigError(f"{self.where}: {fault}") from fault
            raise StoreUnavailableError(
                f"{self.where} cannot be used now: {refusal(self._path, str(fault))}"
            ) from fault
