"""Locks on lanes, for the claims that look at them and for whoever makes room in them.

They are advisory locks of the transaction: they end with it, need no rows, and a claim can try one without
waiting. Lanes share a fixed number of locks, since the server has room for few; two lanes under one lock only
wait for each other. A transaction that makes room takes its locks first of all and in order, and waits for
them; then it waits for the rows of parked tasks. A claim only tries, and locks such a row only if it has the
locks of its lanes. So nothing can deadlock.
"""

from collections.abc import Sequence

from makegood.store.postgres.statements import SharedTx

LOCKS = 1024
"""A power of two."""
_CLASS = 1_818_324_581
"""Tells makegood's advisory locks from those of others."""
_OF = f"(hashtext({{}}) & {LOCKS - 1})"
WAIT = f"""
select pg_advisory_xact_lock({_CLASS}, b.lock) from (
    select distinct {_OF.format("l.lane")} as lock from unnest($1::text[]) l (lane) order by 1
) b
"""  # noqa: S608 - our own text
TRY = f"""
select d.tasks from (
    select {_OF.format("l.app || '/' || l.name")} as lock, array_agg(l.task) as tasks from makegood.lane l where l.task = any ($1::bigint[]) group by 1 order by 1
) d where not pg_try_advisory_xact_lock({_CLASS}, d.lock)
"""  # noqa: S608 - our own text


async def wait(tx: SharedTx, lanes: Sequence[str]) -> None:
    """Lock lanes, each named as "app/name", in order, as soon as nobody else does."""
    await tx.rows(WAIT, lanes)


async def busy(tx: SharedTx, tasks: Sequence[int]) -> set[int]:
    """Lock the lanes of tasks that nobody else has locked; return the tasks of which somebody has."""
    return {task for row in await tx.rows(TRY, list(tasks)) for task in row[0]} if tasks else set()
