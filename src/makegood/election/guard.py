"""The fence inside the caller's own transaction, on any supported driver.

The statement finds one row while the grant is current. In PostgreSQL it locks the row FOR SHARE (a plain
read, or KEY SHARE, would let a successor's take proceed: the old leader's transaction would be committed
after the new term had begun). In SQLite it takes the write lock. Either way no take is committed before the
transaction ends.
"""

import re
from typing import Any

from makegood.election.protocol import Fence, Grant, LeaseStore
from makegood.errors import ConfigError, LeadershipLostError, TransactionError
from makegood.transactions.caller import Caller, defer_checkpoints
from makegood.transactions.recognise import recognise_known

_NAMED = re.compile(r"(?<!:):([a-z]+)\b")
_NO_TABLE = "42P01"
_DIALECTS = {"sqlite": "sqlite", "postgres": "postgresql"}


def guarding(leases: LeaseStore, connection: Any) -> Caller:
    """Return the transaction of ``connection``, which a grant of ``leases`` can guard. Raises
    ``ConfigError``.
    """
    if getattr(leases, "fence", None) is None:
        raise ConfigError(
            f"{type(leases).__name__} is not in a database that a transaction could share: write term.epoch with every change, and let "
            "the resource refuse a lower one"
        )
    try:
        caller = recognise_known(connection)
    except TransactionError as unusable:
        raise ConfigError(f"term.guard(): {unusable}") from None
    if caller is None:
        raise ConfigError(
            f"term.guard() does not know {type(connection).__module__}.{type(connection).__qualname__}: pass a connection of sqlite3, "
            "asyncpg, psycopg, or a Connection or Session of SQLAlchemy"
        )
    return caller


async def check_grant(leases: LeaseStore, grant: Grant, caller: Caller) -> None:
    """Check the grant in the caller's transaction. Raises ``LeadershipLostError``, ``ConfigError``."""
    fence: Fence = leases.fence(grant)  # type: ignore[attr-defined]  # ``guarding`` has seen that it has one

    async def find(tx: Caller) -> bool:
        dialect = _DIALECTS.get(tx.dialect, "another database")
        if fence.dialect != dialect:
            raise ConfigError(
                f"the leases are kept in {fence.dialect}, the connection is one of {dialect}: guard works only inside one database"
            )
        if fence.dialect == "sqlite":
            await defer_checkpoints(tx)
        values = [fence.values[name] for name in _NAMED.findall(fence.sql)]
        return bool(await tx.ask(_NAMED.sub("?", fence.sql), *values))

    try:
        is_current = await caller.perform(find)
    except TransactionError as outside:
        raise ConfigError(
            f"term.guard() outside of a transaction guards nothing: begin one, write, guard, commit ({outside})"
        ) from None
    except Exception as wrong:
        cause = getattr(wrong, "orig", None) or wrong.__cause__ or wrong  # SQLAlchemy's, Django's
        if getattr(cause, "sqlstate", None) != _NO_TABLE and "no such table" not in str(cause):
            raise
        raise ConfigError(
            "the connection is open on another database or file than the leases: guard works only inside one"
        ) from wrong
    if not is_current:
        raise LeadershipLostError(
            f"the term {grant.epoch} of {grant.name!r} is over: roll this transaction back", epoch=grant.epoch
        )
