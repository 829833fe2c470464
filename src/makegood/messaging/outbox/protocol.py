"""What a relay needs from an outbox, in any database."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from makegood.base.sizes import MIB


class Entry(msgspec.Struct, frozen=True):
    """A row of the outbox."""

    seq: int
    key: str
    """The key by which the queue knows the entry, forever."""
    queue: str
    payload: str
    """JSON as text."""
    reply_to: str | None
    correlation_id: str | None


MOST_BYTES: Final = 4 * MIB
"""Bytes of payloads that are relayed in one go, and one entry more."""


class TakenEntries(Protocol):
    """Entries that are about to be relayed."""

    entries: Sequence[Entry]
    more: bool
    """There may be others behind them."""

    async def settle(self, seqs: Sequence[int], refusals: Sequence[tuple[int, str]]) -> None:
        """Delete the entries ``seqs``, and set aside the ``refusals``: each an entry that can never be
        relayed, by its ``seq``, with the reason.
        """


class Outbox(Protocol):
    """The table ``makegood_outbox`` in some database.

    All methods raise ``StoreUnavailableError`` when the database is unavailable, and ``ConfigError`` when
    there is no such database, or no such table in it.
    """

    where: str
    """The database's name for messages, without a password."""

    async def open(self) -> None:
        """Check that it can be read."""

    def take(self, limit: int, without: Sequence[str]) -> AbstractAsyncContextManager[TakenEntries]:
        """Return the oldest entries, except those for the queues ``without`` and those set aside.

        At most ``limit`` entries, and no further one once their payloads have ``MOST_BYTES``.

        Several relays may be given the same entries: relaying one twice must have the effect of relaying it
        once.
        """

    async def close(self) -> None:
        """Let go of the database."""


MISSING = "{where} has no table makegood_outbox: `makegood inbox --from URL --ddl` prints the statement that makes it"
"""What to say when the table is not there."""
