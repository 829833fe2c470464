"""A history for people: when, who, which task, what; faults are marked.

Tasks are numbered in the order of their first events; a key above the lines maps the numbers to ids.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from makegood.base.ids import show
from makegood.testing.history import Event, History

_OF_THE_WORLD = frozenset({"fault", "healed", "rest", "restored"})
_MARKS = MappingProxyType(
    {
        "fault": "!!",
        "refused": "x",
        "late": "x",
        "alert": "*",
        "ended": "=",
        "healed": "--",
        "rest": "--",
        "restored": "!!",
    }
)


def timeline(history: History, task: int | None = None, *, last: int | None = None) -> str:
    """Return a history as aligned lines.

    ``task``: only this one, with the faults and other events of the nodes that dealt with it; ``last``: only
    this many lines at the end.
    """
    numbers: dict[int, int] = {}
    names: dict[int, tuple[str, ...]] = {}
    for event in history.events:
        if event.task and event.task not in numbers:
            numbers[event.task] = len(numbers) + 1
        if event.kind == "submitted":
            names[event.task] = tuple(event["steps"])
    shown = [
        event for event in history.events if task is None or event.task == task or event.kind in _OF_THE_WORLD
    ]
    rows = [_row(event, numbers, names.get(event.task, ())) for event in shown]
    cut = rows if last is None else rows[-last:]
    widths = [max((len(row[n]) for row in cut), default=0) for n in range(4)]
    lines = [f"task #{n} is {show(of)}" for of, n in numbers.items() if task in (None, of)]
    if len(cut) < len(rows):
        lines.append(f"... {len(rows) - len(cut)} lines before")
    for at, mark, node, about, what in cut:
        line = f"{at:>{widths[0]}}  {mark:<{widths[1]}}  {node:<{widths[2]}}  {about:<{widths[3]}}  {what}"
        lines.append(line.rstrip())
    return "\n".join(lines)


def _row(event: Event, numbers: Mapping[int, int], names: tuple[str, ...]) -> tuple[str, str, str, str, str]:
    about = f"#{numbers[event.task]}" if event.task else ""
    tell = _TELLING.get(event.kind, _plainly)
    return f"{event.at:.3f}", _MARKS.get(event.kind, ""), event.node or "-", about, tell(event, names)


# -- one sentence per kind -------------------------------------------------------------------------


def _named(event: Event, names: tuple[str, ...]) -> str:
    """Return ``charge/2``: a step's name and the attempt; ``undo charge/3`` for an undo."""
    name = event.fields.get("step")
    idx = event.fields.get("idx", -1)
    if name is None:
        name = names[idx] if 0 <= idx < len(names) else f"step {idx}"
    doing = event.fields.get("doing", "do")
    attempt = event.fields.get("attempt")
    about = name if attempt is None else f"{name}/{attempt}"
    return about if doing == "do" else f"{doing} {about}"


def _plainly(event: Event, _names: tuple[str, ...]) -> str:
    told = " ".join(f"{name}={value!r}" for name, value in event.fields.items())
    return f"{event.kind} {told}".rstrip()


def _submitted(event: Event, _names: tuple[str, ...]) -> str:
    return f"submitted, key {event['key']}: {', '.join(event['steps'])}"


def _claimed(event: Event, _names: tuple[str, ...]) -> str:
    lost = event.fields.get("lost")
    return f"claimed under epoch {event['epoch']}" + (f", it has lost {lost} Schedulers" if lost else "")


def _moved(event: Event, names: tuple[str, ...]) -> str:
    said = []
    for move in event["moves"]:
        if move[0] == "task":
            said.append(f"TASK {move[1]} -> {move[2]}")
        else:
            name = names[move[0]] if move[0] < len(names) else f"step {move[0]}"
            said.append(f"{name} {move[1]} -> {move[2]}")
    why = event.fields.get("note") or event.fields.get("cause")
    return "; ".join(said or ["noted"]) + (f"  ({why})" if why else "")


def _answered(event: Event, names: tuple[str, ...]) -> str:
    left = event["complete_by"] - event["now"]
    return f"the store has the reply of {_named(event, names)}, {left:.3f} s before its complete-by"


def _accepted(event: Event, names: tuple[str, ...]) -> str:
    return f"accepts {event['reply']} of {_named(event, names)}"


def _refused(event: Event, names: tuple[str, ...]) -> str:
    about = f" of {_named(event, names)}" if event.fields.get("idx", -1) >= 0 else ""
    return f"{event['what']}{about} refused: {event['why']}"


def _late(event: Event, names: tuple[str, ...]) -> str:
    return f"late reply of {_named(event, names)}"


def _sent(event: Event, names: tuple[str, ...]) -> str:
    where = "in memory" if event.fields.get("local") else "by the store"
    return f"asks for {_named(event, names)}, round {event['round']}, {where}"


def _taken(event: Event, names: tuple[str, ...]) -> str:
    return f"{event['by']} takes {_named(event, names)}"


def _given_back(event: Event, names: tuple[str, ...]) -> str:
    return f"gives {_named(event, names)} back"


def _withdrawn(event: Event, names: tuple[str, ...]) -> str:
    return f"takes back the request for {_named(event, names)}"


def _call(event: Event, names: tuple[str, ...]) -> str:
    token = ".".join(str(part) for part in event["token"])
    return f"calls {event.fields.get('service', 'its service')} for {_named(event, names)}, token {token}, {event['remaining']:.3f} s left"


def _effect(event: Event, _names: tuple[str, ...]) -> str:
    said = f"{event['service']}: {event['doing']} {event['key'].partition('/')[2] or event['key']} -> {event['outcome']}"
    return f"{said}, stands {event['net']} times" + ("" if event["changed"] else " as before")


def _reply(event: Event, names: tuple[str, ...]) -> str:
    return f"answers {event.fields.get('reply', '')} for {_named(event, names)}"


def _judged(event: Event, names: tuple[str, ...]) -> str:
    return f"judges {_named(event, names)} silent: failure {event['failures']}, term {event['epoch']}"


def _released(event: Event, _names: tuple[str, ...]) -> str:
    return f"frees the task: its Scheduler is {event['why']}, term {event['epoch']}"


def _lease(event: Event, _names: tuple[str, ...]) -> str:
    return f"lease {event['name']} {event['verb']} by {event['holder']}, epoch {event['epoch']}"


def _alert(event: Event, _names: tuple[str, ...]) -> str:
    return f"ALERT {event['alert']}: {event['text']}"


def _act(event: Event, _names: tuple[str, ...]) -> str:
    return f"operator's {event['what']}: {event['verdict']}, {event['reason']}"


def _told(event: Event, _names: tuple[str, ...]) -> str:
    return f"the client hears that the task is {event['state']}"


def _notice(event: Event, _names: tuple[str, ...]) -> str:
    return f"notice {event['sequence']} is written, for {event['queue'] or 'a webhook'}: {event['state']}"


def _notified(event: Event, _names: tuple[str, ...]) -> str:
    return f"notice {event['sequence']} arrives at {event['by']}: {event['state']}"


def _posted(event: Event, _names: tuple[str, ...]) -> str:
    return f"message {event['id']} is in the queue {event['queue']}, its sender is told"


def _handled(event: Event, _names: tuple[str, ...]) -> str:
    return f"message {event['id']} of the queue {event['queue']} is {event['state']}"


def _made(event: Event, _names: tuple[str, ...]) -> str:
    return f"made of message {event['message']}"


def _circuit(event: Event, _names: tuple[str, ...]) -> str:
    return f"the circuit of {event['agent']} is {event['state']}"


def _counted(event: Event, names: tuple[str, ...]) -> str:
    return f"counts failure {event['failures']} of {_named(event, names)}"


def _removed(event: Event, _names: tuple[str, ...]) -> str:
    return f"removed, {event['now'] - event['ended']:.1f} s after it was {event['state']}"


def _ended(event: Event, _names: tuple[str, ...]) -> str:
    standing = ", ".join(event["standing"]) or "nothing"
    return f"ENDED {event['state']}, submission {event['submission']}, standing: {standing}"


def _fault(event: Event, _names: tuple[str, ...]) -> str:
    point = event.fields.get("point")
    return f"FAULT {event['what']}" + (f" at {point}" if point else "")


def _store(event: Event, _names: tuple[str, ...]) -> str:
    verbs: Any = event.fields.get("verbs") or event.fields.get("verb") or ""
    told = verbs if isinstance(verbs, str) else "+".join(dict.fromkeys(verbs))
    return f"transaction {event['outcome']}" + (f": {told}" if told else "")


def _healed(_event: Event, _names: tuple[str, ...]) -> str:
    return "HEALED: no fault from here on"


def _restored(_event: Event, _names: tuple[str, ...]) -> str:
    return "RESTORED: the store went back in time, under a new generation"


def _rest(event: Event, _names: tuple[str, ...]) -> str:
    return "AT REST: " + ", ".join(f"{name} {value}" for name, value in event.fields.items())


_TELLING: Mapping[str, Callable[[Event, tuple[str, ...]], str]] = MappingProxyType(
    {
        "submitted": _submitted,
        "claimed": _claimed,
        "moved": _moved,
        "answered": _answered,
        "told": _told,
        "accepted": _accepted,
        "refused": _refused,
        "late": _late,
        "sent": _sent,
        "taken": _taken,
        "given back": _given_back,
        "withdrawn": _withdrawn,
        "call": _call,
        "effect": _effect,
        "reply": _reply,
        "judged": _judged,
        "released": _released,
        "lease": _lease,
        "alert": _alert,
        "act": _act,
        "circuit": _circuit,
        "counted": _counted,
        "removed": _removed,
        "posted": _posted,
        "handled": _handled,
        "made": _made,
        "notice": _notice,
        "notified": _notified,
        "ended": _ended,
        "fault": _fault,
        "store": _store,
        "healed": _healed,
        "restored": _restored,
        "rest": _rest,
    }
)
