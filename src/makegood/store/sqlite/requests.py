"""Requests to agents, their replies, and messages to tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

from makegood.model.messages import TaskMessage
from makegood.payload.codec import UNREADABLE
from makegood.store import refusals, rows
from makegood.store.records import TaskMessages
from makegood.store.requests import sort_messages
from makegood.store.sqlite.decision_rows import EVENT
from makegood.store.sqlite.transaction import Row, WriteTransaction

INBOX = """
select i.seq, i.task, i.body, t.locked_by, null from makegood_inbox i cross join makegood_task t on t.id = i.task
where t.locked_by = ? or (t.locked_by is null and t.state <> 'pending')
order by i.seq limit ?
"""
HELD_INBOX = """
select i.seq, i.task, i.body, t.locked_by, null from makegood_task t cross join makegood_inbox i on i.task = t.id
where t.locked_by = ? order by i.seq limit ?
"""
"""Only for tasks that the node holds: however many others have messages, as in a flood of signals."""
_PUT_MESSAGE = "insert into makegood_inbox (task, kind, at, body) values (?, ?, ?, ?)"
_TASKS = "select id, state from makegood_task where id in ({marks})"

_IN_FLIGHT = """
select task, idx, attempt, kind, taken_by, complete_by, answered from makegood_request
where task in ({marks}) and kind <> 'timer'
"""
_ANSWERED = "update makegood_request set answered = 1 where task = ? and idx = ? and attempt = ?"
_BODIES = "select task, body from makegood_inbox where task in ({marks})"


def inbox(
    tx: WriteTransaction, node: int, limit: int, room: int, *, at_rest: bool
) -> tuple[TaskMessages, dict[int, str]]:
    """Return the next messages for the tasks that ``node`` holds, and why some cannot be read: see
    ``sort_messages``.

    ``limit``: the most messages. ``room``: the most bytes of them. ``at_rest``: also return the tasks without
    a holder that have messages.
    """
    return sort_messages(tx.each(INBOX if at_rest else HELD_INBOX, (node, limit)), limit, room)


@dataclass(frozen=True, slots=True)
class IncomingReply:
    """A reply that is being delivered."""

    node: int
    """The node that replies."""
    task: int
    """The task that the reply is for."""
    message: TaskMessage
    """The reply itself."""


def answer(tx: WriteTransaction, replies: Sequence[IncomingReply]) -> list[bool]:
    """Write replies that came in time into their tasks' inboxes, and record the others as late.

    Returns True for each reply that came in time.
    """
    tasks = list(dict.fromkeys(reply.task for reply in replies))
    in_flight = {tuple(row[:3]): row[3:] for row in tx.among(_IN_FLIGHT, tasks)}
    stored_replies: dict[tuple[int, int, int], bytes] = {}
    if any(row[3] for row in in_flight.values()):
        stored_replies = _replies_in_inboxes(tx, tasks)
    inbox_rows: list[Row] = []
    answer_keys: list[tuple[int, int, int]] = []
    late: list[IncomingReply] = []
    verdicts: list[bool] = []
    for reply in replies:
        message = reply.message
        key = (reply.task, message.idx, message.attempt)
        doing, taken_by, complete_by, _ = in_flight.get(key, (None, None, None, 0))
        body = rows.message(message)
        if stored_replies.get(key) == body and taken_by == reply.node:
            in_time = True  # delivered before: the agent did not learn of it, and sent it again
        elif (
            taken_by == reply.node
            and doing == message.doing
            and key not in stored_replies
            and complete_by >= tx.now
        ):
            in_time = True
            stored_replies[key] = body
            answer_keys.append(key)
            inbox_rows.append((reply.task, message.kind, tx.now, body))
        else:
            in_time = False
            late.append(reply)
        verdicts.append(in_time)
    tx.many(_ANSWERED, answer_keys)
    if late:
        inbox_rows += _record_late(tx, late)
    tx.many(_PUT_MESSAGE, inbox_rows)
    if inbox_rows:
        tx.topics.add("inbox")
    return verdicts


def _replies_in_inboxes(tx: WriteTransaction, tasks: Sequence[int]) -> dict[tuple[int, int, int], bytes]:
    """Return the replies in the inboxes of ``tasks``, by the request that they answer."""
    stored_replies: dict[tuple[int, int, int], bytes] = {}
    for task, body in tx.among(_BODIES, tasks):
        try:
            message = rows.read_message(body, 0)
        except UNREADABLE:  # the next reader of the inbox will find it
            continue
        if message.idx >= 0 and message.kind not in ("late", "expired"):
            stored_replies[task, message.idx, message.attempt] = body
    return stored_replies


def _record_late(tx: WriteTransaction, replies: Sequence[IncomingReply]) -> list[Row]:
    """Write late replies into the history.

    Returns the messages for those of their tasks that have not ended.
    """
    states: dict[int, str] = dict(tx.among(_TASKS, [reply.task for reply in replies]))
    known_replies = [r for r in replies if r.task in states]
    tx.many(
        EVENT, [(r.task, tx.now, r.node, rows.moves([]), rows.late_reply(r.message)) for r in known_replies]
    )
    tx.do(refusals.refused, [refusals.late(r.node, r.task, r.message) for r in replies])
    messages = rows.late([(r.task, r.message) for r in replies], states)
    return [(task, m.kind, tx.now, rows.message(m)) for task, m in messages]
