"""What a relay needs of an outbox, whatever database it is in."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from makegood.base.sizes import MIB


class Entry(msgspec.Struct, frozen=True):
    """A row of the outbox. ``payload``: JSON as text; ``key``: what the queue knows it by, for ever."""

    seq: int
    key: str
    queue: str
    payload: str
    reply_to: str | None
    correlation_id: str | None


MOST_BYTES: Final = 4 * MIB
"""Bytes of payloads that are relayed in one go, and one entry more."""


class TakenEntries(Protocol):
    """Entries that are about to be relayed. ``more``: there may be others behind them."""

    entries: Sequence[Entry]
    more: bool

    async def settle(self, done: Sequence[int], refused: Sequence[tuple[int, str]]) -> None:
        """Delete the entries ``done``; set those aside that can never be relayed, each with the reason. By ``seq``."""
        ...


class Outbox(Protocol):
    """The table ``makegood_outbox`` in some database. ``where``: for messages, without a password.

    All raise ``StoreUnavailableError`` when the database is away, and ``ConfigError`` when it is none, or has no such table.
    """

    where: str

    async def open(self) -> None:
        """See that it can be read."""
        ...

    def take(self, limit: int, without: Sequence[str]) -> AbstractAsyncContextManager[TakenEntries]:
        """Give the oldest entries, but those for the queues ``without`` and those set aside: at most ``limit``, and no further one
        once their payloads have ``MOST_BYTES``.

        Several relays may be given the same ones: what they do must come to the same when done twice.
        """
        ...

    async def close(self) -> None:
        """Let go of the database."""
        ...


MISSING = "{where} has no table makegood_outbox: `makegood inbox --from URL --ddl` prints the statement that makes it"
"""What to say when the table is not there."""
