"""What agents and others change of requests after they were taken, and messages to tasks: written once for
every store.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from makegood.model.messages import TaskMessage
from makegood.payload.codec import UNREADABLE
from makegood.store import rows
from makegood.store.records import TaskMessages
from makegood.store.transaction import ReadTx, Sql, Tx, Verbs, asking, for_each, reading, writing

KEY = {"task": "bigint", "idx": "int", "attempt": "int"}
_THIS = """
(r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
    and r.kind <> 'timer' and r.taken_by = $4::bigint and not r.answered
"""
_LEAVE = for_each(
    "insert into makegood.inbox (task, kind, at, body) select x.task, x.kind, {now}, x.body {rows}",
    task="bigint", kind="text", body="bytea",
)  # fmt: skip
_KNOWN = Sql("select id from makegood.task where id = any ($1::bigint[])")
_EXTEND = Sql("""
update makegood.request set complete_by = greatest(complete_by, {now} + $5::float8)
where task = $2 and idx = $3 and attempt = $4 and kind <> 'timer' and taken_by = $1 and not answered and complete_by >= {now}
""")
GIVE_BACK = for_each(
    f"""
update makegood.request as r set taken_by = null, taken_at = null, complete_by = null, excused = false
{{rows}} where {_THIS} and r.body is not null returning agent
""",  # noqa: S608 - our own text
    **KEY,
)
CANCELS = Sql("""
select r.task, r.idx, r.attempt from makegood.request r where r.taken_by = $1 and r.cancelled and not r.answered
""")
EXCUSE = for_each(f"update makegood.request as r set excused = true {{rows}} where {_THIS}", **KEY)  # noqa: S608 - our own text


async def leave(tx: Tx, messages: Sequence[tuple[int, TaskMessage]]) -> None:
    """Put messages in the inboxes of tasks."""
    await tx.many(_LEAVE, [(task, m.kind, rows.message(m)) for task, m in messages])
    if messages:
        tx.topics.add("inbox")


async def note(tx: Tx, notes: Sequence[tuple[int, TaskMessage]]) -> None:
    """Put notes (task, message) in the tasks' inboxes, in order; nothing for a task that was removed.

    A Scheduler writes each into the history: as late, if its attempt was answered or judged before.
    """
    ids = {id_ for (id_,) in await tx.rows(_KNOWN, [*dict.fromkeys(task for task, _ in notes)])}
    await leave(tx, [(task, message) for task, message in notes if task in ids])


async def extend(tx: Tx, node: int, key: tuple[int, int, int], seconds: float) -> bool:
    """Move an attempt's deadline, never to an earlier time; False if ``node`` has lost the request."""
    return await tx.run(_EXTEND, node, *key, seconds) == 1


async def give_back(tx: Tx, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
    """Release requests (task, idx, attempt) that were claimed but not begun, at their old place; those handed
    over in memory have no body to give.
    """
    tx.topics.update(f"agent:{agent}" for (agent,) in await tx.each(GIVE_BACK, sorted(requests), node))


async def excuse(tx: Tx, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
    """Mark requests (task, idx, attempt) that ``node`` has claimed and not answered as excused.

    ``judge`` does not count their silence as a failure, unless ``node`` dies.
    """
    await tx.many(EXCUSE, sorted(requests), node)


async def cancels(tx: ReadTx, node: int) -> list[tuple[int, int, int]]:
    """Return the requests (task, idx, attempt) that ``node`` has claimed and not answered, and that nobody
    needs any more (``Decision.cancels``).
    """
    return [(task, idx, attempt) for task, idx, attempt in await tx.rows(CANCELS, node)]


def sort_messages(inbox_rows: Iterable[Any], limit: int, room: int) -> tuple[TaskMessages, dict[int, str]]:
    """Return messages for the tasks of a node, and the unlocked tasks at rest that have messages.

    The rows: seq, task, body, the node that holds the task, the login that the database recorded. The second
    value says, by task, why one of its messages cannot be read.
    """
    task_messages = TaskMessages({}, [])
    unreadable: dict[int, str] = {}
    at_rest: dict[int, None] = {}
    octets = count = 0
    for seq, task, body, locked_by, db_user in inbox_rows:
        if octets >= room:
            break
        count, octets = count + 1, octets + (len(body) if isinstance(body, bytes) else 0)
        if locked_by is None:
            at_rest[task] = None
            continue
        try:
            task_messages.messages.setdefault(task, []).append(rows.read_message(body, seq, db_user))
        except UNREADABLE as fault:
            unreadable[task] = f"a message to it cannot be read: {type(fault).__name__}: {fault}"
    task_messages.at_rest.extend(at_rest)
    task_messages.more = count == limit or octets >= room
    for task in unreadable:
        task_messages.messages.pop(task, None)
    return task_messages, unreadable


_extend = asking(extend)


class RequestVerbs(Verbs):
    """The verbs on requests that are the same for every store."""

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Move the attempt's deadline to ``seconds`` from now, never earlier.

        Returns whether ``node`` still has the request and is in time.
        """
        return await _extend(self, node, (task, idx, attempt), seconds)

    note = writing(note)
    give_back = writing(give_back)
    excuse = asking(excuse)
    cancels = reading(cancels)
