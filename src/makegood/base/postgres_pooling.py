"""Recognises a proxy that hands out another server session for each transaction, and leaves no trace there.

Whatever is set on such a session stays in it for the program that gets it next, and so does a prepared
statement. So before makegood sets anything, it compares process ids: that of the session with that which the
protocol announced, which a proxy invents; then, behind a proxy, those of two connections in turn.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import asyncpg
from asyncpg import exceptions as pg

from makegood.base.postgres_errors import POOLING, is_pooler_full
from makegood.errors import ConfigError

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_PID = "select pg_catalog.pg_backend_pid()"
# In one message and without a prepared statement, which another session might not know: no rows come back, so
# the answer is whether it fails.
_SAME = "select 1 operator(pg_catalog./) (pg_catalog.pg_backend_pid() operator(pg_catalog.=) {:d})::int"
_ROUNDS = 3
_REFUSED = (
    pg.InvalidSQLStatementNameError,
    pg.DuplicatePreparedStatementError,
    pg.ProtocolViolationError,  # PgBouncer's: no transaction blocks with pool_mode=statement
)


class SharedSessionError(ConfigError):
    """The server's sessions are shared with other programs, by a proxy."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where}: {POOLING}")


async def is_proxied(connection: Connection) -> bool:
    """Return whether a proxy is between the connection and the server."""
    try:
        await connection.execute(_SAME.format(connection.get_server_pid()))
    except pg.DivisionByZeroError:
        return True
    return False


async def is_shared(dial: Callable[[], Awaitable[Connection]], limit: float) -> bool:
    """Return whether a proxy shares sessions, within ``limit`` seconds.

    ``dial`` makes connections that keep no prepared statements; two of them are open at once. Raises
    ``TimeoutError``.
    """
    probes = list[Connection]()

    def hang_up() -> None:
        for probe in probes:
            probe.terminate()

    loop = asyncio.get_running_loop()
    alarm = loop.call_later(limit, hang_up)
    try:
        probes += [await dial()]
        probes += [await dial()]
        return await _change(*probes)
    except Exception as fault:
        if loop.time() >= alarm.when():
            raise TimeoutError from fault
        if isinstance(fault, _REFUSED) and not is_pooler_full(fault):
            return True
        raise
    finally:
        alarm.cancel()
        hang_up()


async def _change(first: Connection, second: Connection) -> bool:
    """Return whether one of two connections is seen in another session than before."""
    own, second_pid = await first.fetchval(_PID), await second.fetchval(_PID)
    if own == second_pid:
        return True
    for _ in range(_ROUNDS):
        await second.execute("begin")  # while it lasts, the proxy has one session less for the first
        changes = [await second.fetchval(_PID) != second_pid, await first.fetchval(_PID) != own]
        await second.execute("rollback")
        if any(changes) or await first.fetchval(_PID) != own:
            return True
    return False
