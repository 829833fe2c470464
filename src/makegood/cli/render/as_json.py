"""Records as ``--json`` shows them.

Names are the API's field names, ids have the form for people, points in time are ISO 8601 in UTC. Results and
inputs are spliced in as the JSON that they are.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from makegood.base import ids
from makegood.base.durations import shown
from makegood.cli.render.output import moment
from makegood.election.protocol import LeaseView
from makegood.model import notices
from makegood.model.queue_message import QueueMessage
from makegood.payload.codec import UNREADABLE
from makegood.store.notice_records import ListenerView
from makegood.store.queue_records import MessageView, QueueView
from makegood.store.views import (
    AgentInfo,
    AlertView,
    AuditView,
    EventView,
    NodeView,
    StepView,
    TaskDetail,
    TaskView,
)

Shape = dict[str, Any]


def raw(value: bytes | None) -> msgspec.Raw | None:
    """Return JSON bytes for splicing in."""
    return None if value is None else msgspec.Raw(value)


def task(view: TaskView) -> Shape:
    """Return a task."""
    return {
        "id": ids.show(view.id),
        "app": view.app,
        "workflow": view.workflow,
        "key": view.key,
        "state": view.state,
        "goal": view.goal,
        "submission": view.submission,
        "priority": view.priority,
        "cause": view.cause,
        "failure_count": view.failure_count,
        "locked_by": view.locked_by,
        "epoch": view.epoch,
        "correlation_id": view.correlation_id,
        "created": moment(view.created),
        "ended": moment(view.ended),
        "complete_by": moment(view.complete_by),
        "result": raw(view.result),
    }


def step(view: StepView) -> Shape:
    """Return a step. ``due``: seconds until its complete-by, or its timer."""
    return {
        "idx": view.idx,
        "kind": view.kind,
        "name": view.name,
        "agent": view.agent,
        "action": view.action,
        "state": view.state,
        "attempt": view.attempt,
        "round": view.round,
        "failures": view.failures,
        "doubt": view.doubt,
        "undoable": view.undoable,
        "result": raw(view.result),
        "error": view.error,
        "doing": view.doing,
        "waiting": view.waiting,
        "taken_by": view.taken_by,
        "due": None if view.due is None else round(view.due, 3),
    }


def detail(found: TaskDetail) -> Shape:
    """Return a task with its inputs and steps."""
    return {
        **task(found.task),
        "inputs": [raw(value) for value in found.inputs],
        "reply_to": found.reply_to,
        "steps": [step(view) for view in found.steps],
        "unreadable": found.unreadable,
    }


def event(view: EventView) -> Shape:
    """Return one row of a task's history."""
    return {
        "event": "moves" if view.moves else "note",
        "seq": view.seq,
        "task": ids.show(view.task),
        "at": moment(view.at),
        "node": view.node,
        "moves": [
            {"step": None if who == "task" else who, "from": before, "to": after, "why": why}
            for who, before, after, why in view.moves
        ],
        "note": view.note,
    }


def alert(view: AlertView) -> Shape:
    """Return an alert."""
    return {
        "id": view.id,
        "kind": view.kind,
        "task": None if not view.task else ids.show(view.task),
        "step": view.step or None,
        "text": view.text,
        "at": moment(view.at),
        "open": view.open,
        "ended": moment(view.ended),
        "ended_why": view.ended_why or None,
        "acked": moment(view.acked),
        "acked_by": view.acked_by or None,
        "acked_why": view.acked_why or None,
    }


def audit(view: AuditView) -> Shape:
    """Return an operator's act."""
    return {
        "act": view.act,
        "task": None if not view.task else ids.show(view.task),
        "kind": view.kind,
        "who": view.who,
        "db_user": view.db_user,
        "why": view.why,
        "verdict": view.verdict,
        "outcome": view.outcome,
        "state": view.state,
        "at": moment(view.at),
        "change": raw(view.change),
    }


def lease(view: LeaseView | None, name: str) -> Shape:
    """Return who leads. ``holder`` is null when nobody holds the lease or its time is over."""
    held = view is not None and view.holder is not None and view.remaining > 0
    return {
        "name": name,
        "holder": view.holder if view is not None and held else None,
        "last_holder": view.holder if view is not None else None,
        "epoch": view.epoch if view is not None else 0,
        "since": moment(view.since) if view is not None and held else None,
        "ttl": view.ttl if view is not None else None,
        "remaining": round(view.remaining, 3) if view is not None and held else None,
    }


def node(view: NodeView, state: str) -> Shape:
    """Return a process with its agents."""
    return {
        "id": view.id,
        "name": view.info.name,
        "roles": list(view.info.roles),
        "host": view.info.host,
        "pid": view.info.pid,
        "state": state,
        "started": moment(view.started),
        "heartbeat_age": round(max(0.0, view.info.ttl - view.remaining), 3),
        "remaining": round(view.remaining, 3),
        "held": view.info.held,
        "agents": [
            {
                "agent": info.agent,
                "slots": info.slots,
                "used": info.used,
                "calls": info.calls,
                "failed": info.failed,
                "failure_rate": rate(info.failed, info.calls),
                "seconds": round(info.seconds, 6),
                "success": None if info.success is None else round(info.success, 4),
                "circuit": info.circuit or None,
                "reset": round(info.reset, 3) if info.circuit == "open" else None,
                "most": info.slots if info.most is None else info.most,
                "rate": info.rate,
            }
            for info in view.info.agents
        ],
    }


def circuit(info: AgentInfo) -> str | None:
    """Return an agent's circuit in a few words, None without a breaker.

    >>> payments = AgentInfo("shop/payments", 20, circuit="open", reset=12.0)
    >>> circuit(payments), circuit(AgentInfo("shop/stock", 20))
    ('open, 12s', None)
    """
    if info.circuit == "open":
        return f"open, {shown(info.reset)}"
    if info.circuit == "release":
        return f"release {info.most}/{info.slots}"
    return info.circuit or None


def rate(failed: int, calls: int) -> float | None:
    """Return the share of calls that failed, None when there were none."""
    return round(failed / calls, 4) if calls else None


def waiting(views: list[NodeView], depths: Mapping[str, int]) -> Mapping[str, int]:
    """Return how many requests wait per agent ("APP/AGENT").

    It lists the agents that processes run, and those with requests in their queue.
    """
    return {info.agent: 0 for view in views for info in view.info.agents} | dict(depths)


def receipt(message: QueueMessage) -> str:
    """Return the receipt of a delivery, as people write it.

    >>> message = QueueMessage(seq=12, queue="web", id="a", body=b"1", tries=2)
    >>> receipt(message), of_receipt("12.2"), of_receipt("12")
    ('12.2', (12, 2), None)
    """
    return f"{message.seq}.{message.tries}"


def of_receipt(text: str) -> tuple[int, int] | None:
    """Return a receipt as the store has it, None for what is none."""
    seq, _, tries = text.partition(".")
    return (int(seq), int(tries)) if seq.isdecimal() and tries.isdecimal() else None


def message(found: QueueMessage) -> Shape:
    """Return a message."""
    return {
        "queue": found.queue,
        "id": found.id,
        "kind": found.kind or None,
        "value": _json(found.body),
        "correlation_id": found.correlation_id,
        "reply_to": found.reply_to,
        "task": found.task,
        "sequence": found.sequence,
        "headers": dict(found.headers),
        "sent_at": moment(found.sent_at),
        "tries": found.tries,
        "error": found.error or None,
        "receipt": receipt(found),
    }


def mail(view: MessageView) -> Shape:
    """Return a message with its state. ``due``: seconds until it can be received."""
    shape = message(view.message)
    del shape["receipt"]  # a look is no delivery
    return {
        **shape,
        "state": view.state,
        "due": round(view.due, 3) if view.state == "waiting" else None,
        "taken_by": view.taken_by,
        "ended": moment(view.ended),
        "expires": moment(view.expires),
    }


def queue(view: QueueView) -> Shape:
    """Return a queue.

    ``oldest``: seconds for which its oldest receivable message has waited. ``read``: whether one of its
    messages was given to a receiver. ``bytes``: of the values of its messages, without dead letters.
    """
    return {
        "queue": view.queue,
        "waiting": view.waiting,
        "taken": view.taken,
        "delayed": view.delayed,
        "dead": view.dead,
        "bytes": view.bytes,
        "oldest": None if view.oldest is None else round(view.oldest, 3),
        "read": view.read,
    }


def listener(view: ListenerView) -> Shape:
    """Return a webhook with unsent notices of a task. ``due``: seconds until the next try."""
    return {
        "task": ids.show(view.task),
        "to": notices.shown(view.url),
        "sent": view.sent,
        "last": view.last,
        "tries": view.tries,
        "dead": view.dead,
        "due": None if view.due is None else round(view.due, 3),
        "error": view.error or None,
    }


def _json(body: bytes) -> msgspec.Raw | str:
    """Return a body for splicing in; a body that is not JSON as text."""
    try:
        msgspec.json.decode(body)
    except UNREADABLE:
        return body.decode(errors="replace")
    return msgspec.Raw(body)
