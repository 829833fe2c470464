"""Records as ``--json`` shows them: the API's field names, ids as people write them, points in time as ISO 8601 in UTC.

Results and inputs are spliced in as the JSON that they are.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from makegood import ids
from makegood.cli.output import moment
from makegood.store.records import AlertView, EventView, LeaseView, NodeView, StepView, TaskDetail, TaskView

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
        "steps": [step(view) for view in found.steps],
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
            }
            for info in view.info.agents
        ],
    }


def rate(failed: int, calls: int) -> float | None:
    """Return the share of calls that failed, None when there were none."""
    return round(failed / calls, 4) if calls else None


def waiting(views: list[NodeView], depths: Mapping[str, int]) -> Mapping[str, int]:
    """Return how many requests wait per agent ("APP/AGENT"): agents that processes run, and those in whose queue something is."""
    return {info.agent: 0 for view in views for info in view.info.agents} | dict(depths)
