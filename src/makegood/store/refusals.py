"""Writes that a fence refused, as rows for people.

They are written when a refusal happens, and never beside a write that succeeds. The leading Supervisor keeps
the latest of them.
"""

from collections.abc import Sequence

from makegood.model.messages import TaskMessage
from makegood.store.oversight_records import Refusal
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
_LATEST = "select id, kind, what, who, node, task, step, attempt, epoch, against, at from makegood.refusal"
_VIEWS = Sql(f"{_LATEST} order by id desc limit $1")
_OF_TASK = Sql(f"{_LATEST} where task = $2 order by id desc limit $1")
_TRIM = Sql("delete from makegood.refusal where id <= (select max(id) from makegood.refusal) - $1::bigint")


async def refused(tx: Tx, found: Sequence[Refusal]) -> None:
    """Record writes that a fence refused."""
    await tx.many(
        _REFUSED,
        [(r.kind, r.who, r.node, r.task, r.step, r.attempt, r.epoch, r.against, r.what) for r in found],
    )


async def overtaken(tx: Tx, node: int, lost: Sequence[tuple[int, int]]) -> None:
    """Record that Decisions of ``node`` were lost: the task, and the epoch under which ``node`` decided,
    of each.
    """
    holds = {id_: (epoch, holder) for id_, epoch, holder in await tx.rows(_HOLDS, [task for task, _ in lost])}
    found: list[Refusal] = []
    for task, epoch in lost:
        against, holder = holds.get(task, (None, None))
        if (against, holder) == (epoch, node):
            what = "a decision was refused: the request that it used was judged before"
        elif holder is None:
            what = f"a decision under epoch {epoch} was refused: it no longer held the task"
        else:
            what = f"a decision under epoch {epoch} was refused: process {holder} holds the task under epoch {against}"
        found.append(Refusal("decision", what, "", node, task, epoch=epoch, against=against))
    await refused(tx, found)


def late(node: int, task: int, message: TaskMessage) -> Refusal:
    """Return the refusal of a reply that came too late."""
    what = f"{message.kind} came too late for the {message.doing} of step {message.idx}, attempt {message.attempt}"
    return Refusal("reply", what, "", node, task, str(message.idx), message.attempt)


async def refusals(tx: ReadTx, limit: int = 100, task: int | None = None) -> list[Refusal]:
    """Return writes that a fence refused, newest first; ``task``: only of this task."""
    found = await (tx.rows(_VIEWS, limit) if task is None else tx.rows(_OF_TASK, limit, task))
    return [Refusal(*rest, id_, at) for id_, *rest, at in found]  # type: ignore[call-arg]  # a row's columns


async def trim_refusals(tx: Tx) -> None:
    """Remove all except the latest refusals."""
    await tx.run(_TRIM, KEPT)
