"""The leader steps down because an operator asks for it: a row beside the lease says which epoch should end.

It is not a column of the lease: an operator's transaction that stays open must not lock the lease.
"""

from typing import Final

from makegood.model.messages import Act
from makegood.store import alerts, rows
from makegood.store.transaction import ReadTx, Sql, Tx

LEADER: Final = "makegood/supervisor"
"""The lease that the leading Supervisor of a store holds."""

_HOLDER = Sql(
    "select holder from makegood.lease where name = $1 and epoch = $2 and holder is not null and expires_at > {now}"
)
_ASK = Sql("""
insert into makegood.step_down (name, epoch) values ($1, $2) on conflict (name) do update set epoch = excluded.epoch
""")
_ASKED = Sql("select 1 from makegood.step_down where name = $1 and epoch = $2")


async def ask_step_down(tx: Tx, name: str, epoch: int, act: Act) -> str | None:
    """Ask the leader of this epoch to step down, and audit it. Returns its name, None if it leads no
    more.
    """
    for (holder,) in await tx.rows(_HOLDER, name, epoch):
        await tx.run(_ASK, name, epoch)
        text = f"{holder}, leader of {name} under epoch {epoch}, is asked to step down"
        await alerts.write_audit(tx, rows.act_row(act, "step_down", text, "asked"))
        return str(holder)
    return None


async def asked_to_step_down(tx: ReadTx, name: str, epoch: int) -> bool:
    """Return whether an operator asked the leader of this epoch to step down."""
    return bool(await tx.rows(_ASKED, name, epoch))
