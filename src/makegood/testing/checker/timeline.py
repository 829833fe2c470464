"""A history for people: when, who, which task, what; faults are marked.

Tasks are numbered in the order of their first events; a key above the lines maps the numbers to ids.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from makegood.base.ids import show
from makegood.testing.history import Event, History

_OF_THE_WORLD = frozenset({"fault", "healed", "rest", "restored"})
_MARKS = MappingProxyType(
    {
        "fault": "!!", "refused": "x", "late": "x", "alert": "*", "ended": "=", "healed": "--", "rest": "--", "restored": "!!",
    }
)  # fmt: skip


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
    events = [
        event for event in history.events if task is None or event.task == task or event.kind in _OF_THE_WORLD
    ]
    rows = [_row(event, numbers, names.get(event.task, ())) for event in events]
    cut = rows if last is None else rows[-last:]
    widths = [max((len(row[n]) for row in cut), default=0) for n in range(4)]
    lines = [f"task #{n} is {show(of)}" for of, n in numbers.items() if task in (None, of)]
    if len(cut) < len(rows):
        lines.append(f"... {len(rows) - len(cut)} lines before")
    for at, mark, node, about, sentence in cut:
        line = (
            f"{at:>{widths[0]}}  {mark:<{widths[1]}}  {node:<{widths[2]}}  {about:<{widths[3]}}  {sentence}"
        )
        lines.append(line.rstrip())
    return "\n".join(lines)


def _row(event: Event, numbers: Mapping[int, int], names: tuple[str, ...]) -> tuple[str, str, str, str, str]:
    about = f"#{numbers[event.task]}" if event.task else ""
    return f"{event.at:.3f}", _MARKS.get(event.kind, ""), event.node or "-", about, _sentence(event, names)


def _sentence(event: Event, names: tuple[str, ...]) -> str:
    sentence = _SENTENCES.get(event.kind)
    if sentence is None:
        fields = " ".join(f"{name}={value!r}" for name, value in event.fields.items())
        return f"{event.kind} {fields}".rstrip()
    if isinstance(sentence, str):
        return sentence.format_map(defaultdict(str, event.fields, it=_attempt_text(event, names)))
    return sentence(event, names)


def _attempt_text(event: Event, names: tuple[str, ...]) -> str:
    """Return ``charge/2``: a step's name and the attempt; ``undo charge/3`` for an undo."""
    name = event.fields.get("step")
    idx = event.fields.get("idx", -1)
    if name is None:
        name = _name(idx, names)
    doing = event.fields.get("doing", "do")
    attempt = event.fields.get("attempt")
    about = name if attempt is None else f"{name}/{attempt}"
    return about if doing == "do" else f"{doing} {about}"


def _name(idx: int, names: tuple[str, ...]) -> str:
    return names[idx] if 0 <= idx < len(names) else f"step {idx}"


# -- what takes more than a sentence ---------------------------------------------------------------


def _claim_text(event: Event, _names: tuple[str, ...]) -> str:
    losses = event.fields.get("lost")
    return f"claimed under epoch {event['epoch']}" + (f", it has lost {losses} Schedulers" if losses else "")


def _moves_text(event: Event, names: tuple[str, ...]) -> str:
    moves = [
        f"{'TASK' if idx == 'task' else _name(idx, names)} {old} -> {new}"
        for idx, old, new, *_ in event["moves"]
    ]
    reason = event.fields.get("note") or event.fields.get("cause")
    return "; ".join(moves or ["noted"]) + (f"  ({reason})" if reason else "")


def _answer_text(event: Event, names: tuple[str, ...]) -> str:
    left = event["complete_by"] - event["now"]
    return f"the store has the reply of {_attempt_text(event, names)}, {left:.3f} s before its complete-by"


def _refusal_text(event: Event, names: tuple[str, ...]) -> str:
    about = f" of {_attempt_text(event, names)}" if event.fields.get("idx", -1) >= 0 else ""
    return f"{event['what']}{about} refused: {event['why']}"


def _dispatch_text(event: Event, names: tuple[str, ...]) -> str:
    place = "in memory" if event.fields.get("local") else "by the store"
    return f"asks for {_attempt_text(event, names)}, round {event['round']}, {place}"


def _call(event: Event, names: tuple[str, ...]) -> str:
    token = ".".join(str(part) for part in event["token"])
    return f"calls {event.fields.get('service', 'its service')} for {_attempt_text(event, names)}, token {token}, {event['remaining']:.3f} s left"


def _effect(event: Event, _names: tuple[str, ...]) -> str:
    text = f"{event['service']}: {event['doing']} {event['key'].partition('/')[2] or event['key']} -> {event['outcome']}"
    return f"{text}, is in place {event['net']} times" + ("" if event["changed"] else " as before")


def _end_text(event: Event, _names: tuple[str, ...]) -> str:
    standing = ", ".join(event["standing"]) or "nothing"
    return f"ENDED {event['state']}, submission {event['submission']}, standing: {standing}"


def _fault(event: Event, _names: tuple[str, ...]) -> str:
    point = event.fields.get("point")
    return f"FAULT {event['what']}" + (f" at {point}" if point else "")


def _store(event: Event, _names: tuple[str, ...]) -> str:
    verbs: Any = event.fields.get("verbs") or event.fields.get("verb") or ""
    text = verbs if isinstance(verbs, str) else "+".join(dict.fromkeys(verbs))
    return f"transaction {event['outcome']}" + (f": {text}" if text else "")


_SENTENCES: Mapping[str, str | Callable[[Event, tuple[str, ...]], str]] = MappingProxyType(
    {
        "submitted": lambda event, _: f"submitted, key {event['key']}: {', '.join(event['steps'])}",
        "claimed": _claim_text,
        "moved": _moves_text,
        "answered": _answer_text,
        "told": "the client hears that the task is {state}",
        "accepted": "accepts {reply} of {it}",
        "refused": _refusal_text,
        "late": "late reply of {it}",
        "sent": _dispatch_text,
        "taken": "{by} takes {it}",
        "signalled": "signal {name} [{id}] is in the store",
        "acknowledged": "the sender of signal {name} [{id}] has its answer",
        "kept": "keeps signal {name} [{id}]",
        "used": "signal {name} [{id}] ends the wait of {it}",
        "timeout": "{it} waits until {due:.3f} of the store's clock",
        "waited": "the wait of {it} ends: {reason}",
        "given back": "gives {it} back",
        "withdrawn": "takes back the request for {it}",
        "call": _call,
        "effect": _effect,
        "reply": "answers {reply} for {it}",
        "judged": "judges {it} silent: failure {failures}, term {epoch}",
        "released": "frees the task: its Scheduler is {why}, term {epoch}",
        "lease": "lease {name} {verb} by {holder}, epoch {epoch}",
        "alert": "ALERT {alert}: {text}",
        "act": "operator's {what}: {verdict}, {reason}",
        "circuit": "the circuit of {agent} is {state}",
        "outcome": "the call for {it} ends: {outcome}",
        "counted": "counts failure {failures} of {it}",
        "removed": lambda event, _: f"removed, {event['now'] - event['ended']:.1f} s after it was {event['state']}",
        "posted": "message {id} is in the queue {queue}, its sender is told",
        "handled": "message {id} of the queue {queue} is {state}",
        "made": "made of message {message}",
        "notice": lambda event, _: f"notice {event['sequence']} is written, for {event['queue'] or 'a webhook'}: {event['state']}",
        "notified": "notice {sequence} arrives at {by}: {state}",
        "ended": _end_text,
        "fault": _fault,
        "store": _store,
        "healed": "HEALED: no fault from here on",
        "restored": "RESTORED: the store went back in time, under a new generation",
        "rest": lambda event, _: "AT REST: " + ", ".join(f"{name} {value}" for name, value in event.fields.items()),
    }
)  # fmt: skip
"""What is said of each kind of event; ``{it}`` is the step, with its attempt."""
