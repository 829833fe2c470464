"""Begins a new generation when the server's history has changed (see ``store/generation.py``).

A promotion is visible in the history. A restore is not always: a dump loaded into the same server, or a
snapshot of its files, shows the history that the store has known.
"""

from typing import TypeAlias

from makegood.base.postgres_session import Connection
from makegood.store.generation import after_raise, inform
from makegood.store.postgres.statements import SharedTx

History: TypeAlias = tuple[str, str]
"""A server's system identifier and its timeline."""

_RAISE = """
update makegood.generation set generation = generation + case system_id when '' then 0 else 1 end, system_id = $1, timeline = $2
where system_id = $3 and timeline = $4
"""


async def begin_generation(connection: Connection, old_history: History, new_history: History) -> str:
    """Raise the generation for the history ``new_history``, in the caller's transaction, unless
    another process has done so.

    Returns a message for people, "" if there is none: a new store has an empty ``old_history``.
    """
    tx = SharedTx(connection)
    if await tx.run(_RAISE, *new_history, *old_history) != 1 or not old_history[0]:
        return ""
    outcome = await after_raise(tx)
    text = (
        f"the store shows another history than before (system {old_history[0]}, timeline {old_history[1]}, now system {new_history[0]}, "
        f"timeline {new_history[1]}): a promotion or a restore. The generation was raised; {outcome.freed} tasks under way were freed and "
        f"{outcome.doubtful} requests are in doubt; what was acknowledged shortly before may be lost"
    )
    await inform(tx, outcome.generation, text)
    return text
