"""What the leading Supervisor did, as rows for people: a row for each kind in each pass that did anything."""

from collections.abc import Sequence

from makegood.base.stored_values import record_of
from makegood.store.oversight_records import SupervisorDecision
from makegood.store.transaction import ReadTx, Sql, Tx, for_each

KEPT = 1_000
"""The most that are kept."""

_DECIDED = for_each(
    """
insert into makegood.supervisor_decision (at, epoch, kind, tasks, task) select {now}, x.epoch, x.kind, x.tasks, x.task {rows}
""",
    epoch="bigint", kind="text", tasks="int", task="bigint",
)  # fmt: skip
_TRIM = Sql(
    "delete from makegood.supervisor_decision where id <= (select max(id) from makegood.supervisor_decision) - $1::bigint"
)
_VIEWS = Sql(
    "select kind, tasks, task, epoch, id, at from makegood.supervisor_decision order by id desc limit $1"
)


async def decided(tx: Tx, records: Sequence[SupervisorDecision]) -> None:
    """Write what a pass did, and remove all except the latest."""
    await tx.many(_DECIDED, [(d.epoch, d.kind, d.tasks, d.task) for d in records])
    await tx.run(_TRIM, KEPT)


async def decisions(tx: ReadTx, limit: int = 100) -> list[SupervisorDecision]:
    """Return what the leaders did, newest first."""
    return [record_of(SupervisorDecision, row) for row in await tx.rows(_VIEWS, limit)]
