"""Records as ``--json`` shows them.

Names are the API's field names, ids have the form for people, points in time are ISO 8601 in UTC. Results and
inputs are spliced in as the JSON that they are.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from makegood.base import ids
from makegood.base.clock import iso
from makegood.base.durations import short_duration
from makegood.base.zones import ZoneRules
from makegood.election.protocol import LeaseView
from makegood.model import notices
from makegood.model.queue_message import QueueMessage
from makegood.moments.moment import ScheduleMoment, in_utc
from makegood.payload.codec import UNREADABLE
from makegood.payload.envelopes import describe
from makegood.store.lane_views import LanePlace, LaneView, TaskLane
from makegood.store.notice_records import ListenerView
from makegood.store.queue_records import MessageView, QueueView
from makegood.store.schedule_records import ScheduleView
from makegood.store.views import (
    AgentInfo,
    AlertView,
    AuditView,
    EventView,
    NodeView,
    SignalView,
    StepKeys,
    StepView,
    TaskDetail,
    TaskView,
)
from makegood.story.batch_progress import BatchProgress
from makegood.story.brokers import BrokersView
from makegood.story.waits import waits_of

Shape = dict[str, Any]


_TIMES = frozenset({
    "created", "starts", "ended", "complete_by", "at", "acked", "sent_at", "expires", "first_sent", "start", "end",
    "next_moment", "next_firing", "since",
})  # fmt: skip
_ROUNDED = frozenset({"due", "oldest", "remaining", "took"})
_TEXTS = frozenset({"cause", "error", "traceback"})
"""Texts for people; what is encoded in them is described."""
_NO_KEYS: Final = MappingProxyType(dict.fromkeys(StepKeys.__struct_fields__))
_ENDS = "idx attempt doing kind node took error frame traceback late"


def raw(value: bytes | None) -> msgspec.Raw | str | None:
    """Return JSON bytes for splicing in; bytes that are not JSON as text."""
    return None if value is None else _json(value)


def pick(view: object, names: str, **others: Any) -> Shape:
    """Return these attributes of a record, in this order, as JSON shows them.

    ``name?``: null instead of "". ``others``: values of names that are not attributes, or differ from them.
    """
    shape: Shape = {}
    for word in names.split():
        name = word.removesuffix("?")
        shape[name] = others[name] if name in others else _plain(name, getattr(view, name))
        if name != word:
            shape[name] = shape[name] or None
    return shape


def _plain(name: str, value: Any) -> Any:
    if name in _TIMES:
        return iso(value)
    if name in _ROUNDED:
        return None if value is None else round(value, 3)
    if name in _TEXTS:
        return value and describe(value)
    return _json(value) if isinstance(value, bytes) else value


def _task(number: int | None) -> str | None:
    return ids.show(number) if number else None


def task(view: TaskView) -> Shape:
    """Return a task."""
    names = (
        "id app workflow key state goal submission priority cause failure_count locked_by epoch correlation_id created "
        "starts ended complete_by result"
    )
    return pick(view, names, id=ids.show(view.id))


def step(view: StepView) -> Shape:
    """Return a step. ``due``: seconds until its complete-by, or its timer."""
    names = (
        "idx kind name agent action state attempt round failures doubt undoable result error doing waiting taken_by due "
        "first_sent loser"
    )
    return pick(view, names)


def step_keys(keys: StepKeys | None) -> Shape:
    """Return the keys of a step; None: it has none."""
    return dict(_NO_KEYS) if keys is None else pick(keys, " ".join(_NO_KEYS))


def signal(view: SignalView) -> Shape:
    """Return a signal to a task; its value is the result of the step that used it."""
    return pick(view, "name id at who? step? used kept")


def detail(task_detail: TaskDetail) -> Shape:
    """Return a task with its inputs and steps."""
    inputs, steps = (
        [raw(value) for value in task_detail.inputs],
        [step(view) | step_keys(task_detail.keys(view)) for view in task_detail.steps],
    )
    return (
        task(task_detail.task)
        | pick(
            task_detail,
            "inputs reply_to attributes signals steps unreadable",
            inputs=inputs,
            steps=steps,
            signals=[*map(signal, task_detail.signals)],
        )
        | {"waits": waits_of(task_detail), "lanes": [*map(task_lane, task_detail.lanes)]}
    )


def brokers(view: BrokersView) -> Shape:
    """Return the sources and the receivers at users' brokers."""
    return {"sources": [*map(asdict, view.sources)], "receivers": [*map(asdict, view.receivers)]}


def lane(view: LaneView) -> Shape:
    """Return a lane. Its numbers count up to 1,001: more than 1,000."""
    holders, waiters = ([*map(_lane_place, places)] for places in (view.holders, view.waiters))
    return pick(view, "app name held waiting holders waiters", holders=holders, waiters=waiters)


def _lane_place(place: LanePlace) -> Shape:
    return pick(place, "task workflow key state at_once since", task=ids.show(place.task))


def task_lane(place: TaskLane) -> Shape:
    """Return the place of a task in a lane."""
    return pick(place, "name place at_once before behind held_by", held_by=[*map(ids.show, place.held_by)])


def batch(progress: BatchProgress) -> Shape:
    """Return how far a batch is. ``error``: tasks that wait for an operator."""
    return {
        "tasks": progress.tasks, "expected": progress.total or None, "processed": progress.at_end,
        "undone": progress.elsewhere.get("undone", 0), "error": progress.stuck, "to_go": progress.to_go, "ended": progress.is_over,
    }  # fmt: skip


def event(view: EventView) -> Shape:
    """Return one row of a task's history."""
    moves = [
        {
            "step": None if move.of_task else move.name,
            "from": move.before,
            "to": move.after,
            "reason": move.reason,
            "why": describe(move.why),
        }
        for move in view.moves
    ]
    kind = "moves" if view.moves else "note"
    ends = [pick(end, _ENDS) for end in view.attempts]
    notes = [pick(note, "idx attempt doing value skipped late") for note in view.notes]
    names = "event seq task at node moves note attempts notes"
    return pick(view, names, event=kind, task=ids.show(view.task), moves=moves, attempts=ends, notes=notes)


def alert(view: AlertView) -> Shape:
    """Return an alert."""
    names = "id kind task step? text at open ended ended_why? acked acked_by? acked_why? acked_db_user?"
    return pick(view, names, task=_task(view.task))


def audit(view: AuditView) -> Shape:
    """Return an operator's act."""
    names = "act task kind who db_user why verdict outcome state at change"
    return pick(view, names, task=_task(view.task))


def lease(view: LeaseView | None, name: str) -> Shape:
    """Return who leads. ``holder`` is null when nobody holds the lease or its time is over."""
    is_held = view is not None and view.held
    return {
        "name": name,
        "holder": view.holder if view is not None and is_held else None,
        "last_holder": view.holder if view is not None else None,
        "epoch": view.epoch if view is not None else 0,
        "since": iso(view.since) if view is not None and is_held else None,
        "ttl": view.ttl if view is not None else None,
        "remaining": round(view.remaining, 3) if view is not None and is_held else None,
    }


def node(view: NodeView) -> Shape:
    """Return a process with its agents."""
    agents = [_agent(info) for info in view.info.agents]
    about, start = pick(view.info, "name roles host pid"), iso(view.started)
    own = {"started": start, "heartbeat_age": round(view.silent, 3), "remaining": round(view.remaining, 3)}
    return {
        "id": view.id,
        **about,
        "state": view.state,
        **own,
        "held": view.info.held,
        "agents": agents,
        "zone_rules": zone_rules(view.info.zone_rules),
    }


def zone_rules(rules: ZoneRules | None) -> Shape | None:
    """Return rules of time zones."""
    return None if rules is None else pick(rules, "source version")


def _agent(info: AgentInfo) -> Shape:
    return pick(
        info,
        "agent slots used calls failed failure_rate seconds success circuit? reset most rate",
        failure_rate=rate(info.failed, info.calls),
        seconds=round(info.seconds, 6),
        success=None if info.success is None else round(info.success, 4),
        reset=round(info.reset, 3) if info.circuit == "open" else None,
        most=info.slots if info.most is None else info.most,
    )


def circuit(info: AgentInfo) -> str | None:
    """Return an agent's circuit in a few words, None without a breaker.

    >>> payments = AgentInfo("shop/payments", 20, circuit="open", reset=12.0)
    >>> circuit(payments), circuit(AgentInfo("shop/stock", 20))
    ('open, 12s', None)
    """
    if info.circuit == "open":
        return f"open, {short_duration(info.reset)}"
    if info.circuit == "release":
        return f"release {info.most}/{info.slots}"
    return info.circuit or None


def rate(failures: int, calls: int) -> float | None:
    """Return the share of calls that failed, None when there were none."""
    return round(failures / calls, 4) if calls else None


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
    # 18 digits always fit into the store's numbers.
    valid = all(part.isdecimal() and len(part) < 19 for part in (seq, tries))
    return (int(seq), int(tries)) if valid else None


_MESSAGE = "queue id kind? value correlation_id reply_to task sequence headers sent_at tries error?"


def message(queue_message: QueueMessage) -> Shape:
    """Return a message."""
    about = {"value": _json(queue_message.body), "headers": dict(queue_message.headers)}
    return pick(queue_message, f"{_MESSAGE} receipt", **about, receipt=receipt(queue_message))


def mail(view: MessageView) -> Shape:
    """Return a message with its state. ``due``: seconds until it can be received."""
    queue_message, due = view.message, round(view.due, 3) if view.state == "waiting" else None
    about = pick(
        queue_message, _MESSAGE, value=_json(queue_message.body), headers=dict(queue_message.headers)
    )
    return about | pick(view, "state due taken_by ended expires", due=due)


def queue(view: QueueView) -> Shape:
    """Return a queue.

    ``oldest``: seconds for which its oldest receivable message has waited. ``read``: whether one of its
    messages was given to a receiver. ``bytes``: of the values of its messages, without dead letters.
    """
    return pick(view, "queue waiting taken delayed dead bytes oldest read")


def listener(view: ListenerView) -> Shape:
    """Return a webhook with unsent notices of a task. ``due``: seconds until the next try."""
    names = "task to sent last tries dead due error?"
    return pick(view, names, task=ids.show(view.task), to=notices.safe_address(view.url))


def _json(body: bytes) -> msgspec.Raw | str:
    """Return a body for splicing in; a body that is not JSON as text."""
    try:
        msgspec.json.decode(body)
    except UNREADABLE:
        return body.decode(errors="replace")
    return msgspec.Raw(body)


def moment(each: ScheduleMoment) -> Shape:
    """Return a moment of a schedule."""
    return {"moment": in_utc(each.at), "local": each.local.isoformat(), "mark": each.mark}


def schedule(view: ScheduleView) -> Shape:
    """Return a schedule."""
    names = (
        "app name workflow cron every timezone overlap catch_up coalesce jitter start end declared next_moment next_firing "
        "buffered last_task last_state last_moment? firings skips paused trouble?"
    )
    pause = {
        "by": view.paused_by,
        "why": view.paused_why,
        "since": iso(view.paused_at),
        "until": iso(view.paused_until),
    }
    return pick(
        view,
        names,
        declared=view.is_declared,
        buffered=view.is_buffered,
        last_task=_task(view.last_task),
        paused=None if view.paused_at is None else pause,
    )
