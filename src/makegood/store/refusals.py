"""Writes that a fence refused, as rows for people.

They are written when a refusal happens, and never beside a write that succeeds. The leading Supervisor keeps
the latest of them.
"""

import re
from collections.abc import Sequence

from makegood.base.stored_values import record_of
from makegood.model.messages import TaskMessage
from makegood.model.task import about
from makegood.store.oversight_records import Refusal
from makegood.store.rows import MOST_TEXT
from makegood.store.transaction import ReadTx, Sql, Tx, for_each

KEPT = 10_000
"""The most refusals that are kept."""

_REFUSED = for_each(
    """
insert into makegood.refusal (at, kind, who, node, task, step, attempt, epoch, against, what)
select {now}, x.kind, case when x.who <> '' then x.who else coalesce((select n.name from makegood.node n where n.id = x.node), '') end,
    x.node, x.task, x.step, x.attempt, x.epoch, x.against, x.what {rows}
""",
    kind="text", who="text", node="bigint", task="bigint", step="text", attempt="int", epoch="bigint", against="bigint",
    what="text",
)  # fmt: skip
_HOLDS = Sql("select id, epoch, locked_by from makegood.task where id = any ($1::bigint[])")
_COLUMNS = re.sub(
    r"\b(kind|what|who|step)\b",
    rf"substr(\1, 1, {MOST_TEXT})",
    "id, kind, what, who, node, task, step, attempt, epoch, against, at",
)
_LATEST = f"select {_COLUMNS} from makegood.refusal"  # noqa: S608 - our own columns
_VIEWS = Sql(f"{_LATEST} order by id desc limit $1")
_OF_TASK = Sql(f"{_LATEST} where task = $2 order by id desc limit $1")
_TRIM = Sql("delete from makegood.refusal where id <= (select max(id) from makegood.refusal) - $1::bigint")


async def refused(tx: Tx, records: Sequence[Refusal]) -> None:
    """Record writes that a fence refused."""
    await tx.many(
        _REFUSED,
        [(r.kind, r.who, r.node, r.task, r.step, r.attempt, r.epoch, r.against, r.what) for r in records],
    )


async def overtaken(tx: Tx, node: int, losses: Sequence[tuple[int, int]]) -> None:
    """Record that Decisions of ``node`` were lost: the task, and the epoch under which ``node`` decided,
    of each.
    """
    holds = {
        id_: (epoch, holder) for id_, epoch, holder in await tx.rows(_HOLDS, [task for task, _ in losses])
    }
    records: list[Refusal] = []
    for task, epoch in losses:
        against, holder = holds.get(task, (None, None))
        if (against, holder) == (epoch, node):
            text = "a decision was refused: the request that it used was judged before"
        elif holder is None:
            text = f"a decision under epoch {epoch} was refused: it no longer held the task"
        else:
            text = f"a decision under epoch {epoch} was refused: process {holder} holds the task under epoch {against}"
        records.append(Refusal("decision", text, "", node, task, epoch=epoch, against=against))
    await refused(tx, records)


def late(node: int, task: int, message: TaskMessage) -> Refusal:
    """Return the refusal of a reply that came too late."""
    step = about(message.doing, f"step {message.idx}")
    text = f"{message.kind} came too late for {step}, attempt {message.attempt}"
    return Refusal("reply", text, "", node, task, str(message.idx), message.attempt)


async def refusals(tx: ReadTx, limit: int = 100, task: int | None = None) -> list[Refusal]:
    """Return writes that a fence refused, newest first; ``task``: only of this task."""
    records = await (tx.rows(_VIEWS, limit) if task is None else tx.rows(_OF_TASK, limit, task))
    return [record_of(Refusal, (*rest, id_, at)) for id_, *rest, at in records]


async def trim_refusals(tx: Tx) -> None:
    """Remove all except the latest refusals."""
    await tx.run(_TRIM, KEPT)
