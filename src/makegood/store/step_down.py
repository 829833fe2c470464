"""The leader steps down because an operator asks for it: the lease's row says which epoch should end."""

from typing import Final

from makegood.model.messages import Act
from makegood.store import alerts, rows
from makegood.store.transaction import ReadTx, Sql, Tx

LEADER: Final = "makegood/supervisor"
"""The lease that the leading Supervisor of a store holds."""

_ASK = Sql("""
update makegood.lease set step_down = $2 where name = $1 and epoch = $2 and holder is not null and expires_at > {now} returning holder
""")
_ASKED = Sql("select 1 from makegood.lease where name = $1 and epoch = $2 and step_down = epoch")


async def ask_step_down(tx: Tx, name: str, epoch: int, act: Act) -> str | None:
    """Ask the leader of this epoch to step down, and audit it. Returns its name, None if it leads no
    more.
    """
    for (holder,) in await tx.rows(_ASK, name, epoch):
        what = f"{holder}, leader of {name} under epoch {epoch}, is asked to step down"
        await alerts.acted(tx, rows.act_row(act, "step_down", what, "asked"))
        return str(holder)
    return None


async def asked_to_step_down(tx: ReadTx, name: str, epoch: int) -> bool:
    """Return whether an operator asked the leader of this epoch to step down."""
    return bool(await tx.rows(_ASKED, name, epoch))
