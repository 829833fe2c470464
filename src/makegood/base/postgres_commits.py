"""Commits that PostgreSQL reports as done although its synchronous standby may lack them.

Anyone with the right to do so may cancel the wait for the standby (``pg_cancel_backend``). Then the server
answers COMMIT as usual and sends a warning before. ``lc_messages`` chooses the language of its text, so only
the function of the server that sends it identifies it. The store and the election's leases use this module.
"""

import logging
from typing import TypeAlias

import asyncpg

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_WAIT = "SyncRepWaitForLSN"
"""The server's function that waits for a standby."""

# It needs no table and no rights, but writes to the server's log, so its commit waits for the standby.
_LATER = "select pg_catalog.pg_logical_emit_message(true, 'makegood', '')"


class CommitWatch:
    """Hears the server's warnings on one connection, whose session has the settings of ``CONDUCT``.

    ``where``: the server's name for ``log``.
    """

    def __init__(self, connection: Connection, log: logging.Logger, where: str) -> None:
        self.in_doubt = False
        """Whether a commit may be missing on the standby, and no later one has proved the contrary."""
        self._connection = connection
        self._log = log
        self._where = where
        connection.add_log_listener(self._hear)

    def _hear(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        if getattr(message, "server_source_function", None) == _WAIT:
            self._log.warning("%s: %s", self._where, message)
            self.in_doubt = True

    async def settle(self) -> None:
        """Wait until the standby has every commit made so far: a later commit without a warning proves it.

        Costs nothing without a doubt. The wait has no limit; to end it, drop the connection.
        """
        while self.in_doubt:
            self.in_doubt = False
            await self._connection.execute(_LATER)
