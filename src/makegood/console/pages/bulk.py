"""Acts on many tasks: counted before they are confirmed, followed while they run, with refusals."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.base.counts import quantity
from makegood.console.pages import oversight
from makegood.console.pages.cluster import leading
from makegood.console.pages.tasks import depth, rows_of, search
from makegood.console.pages.wording import PageVerdict, duration_text, name_of, share, tally_text, title_of
from makegood.console.reads import Reads
from makegood.console.signal_forms import fields_of
from makegood.errors import ConfigError, TaskNotFoundError
from makegood.store.filters import parse_filter, text_of
from makegood.store.oversight_records import BulkView
from makegood.store.views import Filter, TaskView
from makegood.story.batch_progress import bulk_progress

SAMPLE: Final = 20
"""Tasks that are shown before an act is confirmed."""
CARRIED: Final = 100
"""Commands that were carried out, the latest, on the page of an act."""
FOLLOWED: Final = 5
"""The latest acts, whose tasks the list of acts counts."""
SELECTED: Final = 500
"""Tasks that may be selected by hand, at most."""
WORKFLOWS: Final = 5
"""Workflows whose types of a signal are compared: with more, its value is typed as JSON."""

LOOKS: Final[Mapping[str, tuple[str, str, str]]] = {
    "cancel": ("stop", "Cancel", "ends each task: undoes what it did"),
    "undo": ("undoing", "Undo", "undoes what each task did"),
    "resubmit": ("again", "Resubmit", "sends each task forward again"),
    "signal": ("send", "Signal", "sends each task a value that it waits for"),
}
"""Icon, verb and meaning of each kind of act."""
STATES: Final[Mapping[str, tuple[str, str, str]]] = {
    "running": ("run", "run", "under way"),
    "stopping": ("pause", "doubt", "stopping"),
    "stopped": ("stop", "doubt", "stopped"),
    "done": ("done", "ok", "done"),
}


class BulkRow(msgspec.Struct, frozen=True):
    """An act on many tasks."""

    view: BulkView
    icon: str
    state: str
    state_icon: str
    tone: str
    filter: str
    running: bool
    left: int
    took: str
    rate: str
    eta: str
    parts: tuple[tuple[str, float], ...]
    """The bar: tone and share in percent."""
    progress: str
    """How far its tasks are, "" if nothing is known of them."""
    to_go: int


def _look(kind: str) -> tuple[str, str]:
    return LOOKS[kind][:2] if kind in LOOKS else ("bulk", title_of(kind))


def row(view: BulkView, now: float, states: Mapping[str, int] | None = None) -> BulkRow:
    """Return an act as pages show it. ``states``: of the tasks that accepted it, how many are in each."""
    took = (view.ended or now) - view.at
    running = view.state in ("running", "stopping")
    left = max(0, view.counted - view.sent) if running else 0
    pace = view.rate or (view.sent / took if took > 0 else 0.0)
    tone_done = "undo" if view.kind in ("undo", "cancel") else "ok"
    counts = ((tone_done, view.applied), ("run", view.waiting), ("idle", view.noop), ("fail", view.refused))
    tasks = bulk_progress(view.kind, states) if states else None
    # once its commands are sent, its tasks are under way
    shown_state = "running" if view.state == "done" and tasks is not None and tasks.to_go else view.state
    state_icon, tone, state = STATES.get(shown_state, ("bulk", "idle", view.state))
    return BulkRow(
        view,
        _look(view.kind)[0],
        state,
        state_icon,
        tone,
        text_of(view.wanted),
        running,
        left,
        took=duration_text(took),
        rate="as fast as the leader works" if view.rate is None else f"{view.rate:g} a second at most",
        eta=duration_text(left / pace) if left and pace else "",
        parts=tuple((name, share(count, max(view.counted, view.sent, 1))) for name, count in counts if count),
        progress="" if tasks is None else tasks.text,
        to_go=0 if tasks is None else tasks.to_go,
    )


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the list of acts shows."""
    now = await reads.now()
    views = await oversight.bulk_acts(reads)
    states = {view.id: await oversight.bulk_ends(reads, view.id) for view in views[:FOLLOWED]}
    rows = [row(view, now, states.get(view.id)) for view in views]
    return {"verdict": verdict(rows, now, has_leader=await _has_leader(reads)), "rows": rows, "now": now}


async def _has_leader(reads: Reads) -> bool:
    lease = await leading(reads)
    return lease is not None and lease.held


def verdict(rows: Sequence[BulkRow], now: float, *, has_leader: bool) -> PageVerdict:
    """Return the sentence that answers the list of acts."""
    running = [act for act in rows if act.running]
    if running and not has_leader:
        text = "The leading Supervisor does: start one with `makegood supervisor`."
        return PageVerdict("need", "error", "Nobody works on them", text)
    if running:
        left = quantity(sum(act.left for act in running), "task")
        title = f"{quantity(len(running), 'act')} under way, {left} to come"
        text = "They survive a restart of any process, this one included."
        return PageVerdict("run", "run", title, text)
    if going := sum(act.to_go for act in rows):
        title = f"Every command is sent; {quantity(going, 'task')} to go"
        text = "Their undos, or their steps, run as fast as their services take them."
        return PageVerdict("run", "run", title, text)
    text = "Choose tasks in the list of tasks; the console counts them before you confirm."
    if rows:
        text = f"The last one ended {duration_text(now - rows[0].view.at)} ago."
    return PageVerdict("idle", "bulk", "Nothing is under way", text)


async def detail(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page of one act shows. Raises ``TaskNotFoundError`` if there is none."""
    view = await oversight.bulk_act(reads, query["id"])
    if view is None:
        raise TaskNotFoundError(f"there is no bulk act {query['id']!r}", task_id=query["id"])
    now = await reads.now()
    act = row(view, now, await oversight.bulk_ends(reads, view.id))
    refusals = await oversight.bulk_refusals(reads, view.id)
    # each command was decided before the act ended: a look from there finds those of an old act, too
    before = None if view.ended is None else view.ended + 60.0
    commands = await reads.share(
        ("carried out", view.id),
        lambda: reads.store.admin.audit(CARRIED, before=before, kind=view.kind, act=view.id, change=0),
    )
    commands_by_task = {
        command.task: command for command in commands if command.task and command.verdict != "refused"
    }
    wanted_ids = tuple(sorted({refusal.task for refusal in refusals} | commands_by_task.keys()))
    tasks = (await search(reads, Filter(ids=wanted_ids, limit=len(wanted_ids)))).tasks if wanted_ids else []
    names = {task: ids.show(task) for task in wanted_ids} | {task.id: name_of(task) for task in tasks}
    return {
        "act": act,
        "verb": _look(view.kind)[1],
        "refusals": [(ids.show(r.task), names[r.task], r.outcome, r.at) for r in refusals],
        "more": max(0, view.refused - len(refusals)),
        "carried": [
            (ids.show(task), names[task], command.verdict, command.outcome, command.at)
            for task, command in commands_by_task.items()
        ],
        "more_carried": max(0, view.applied + view.noop - len(commands_by_task)),
        "led": await _has_leader(reads),
        "now": now,
    }


def filter_of(query: Mapping[str, str]) -> Filter:
    """Return the tasks that a page asks to act on: those selected (``t-ID``, or ``ids``) that are in a
    ``state`` if one is named, and for a signal those that still wait for it (``waits``); else those that
    match ``q``. Raises ``ConfigError``, ``TaskNotFoundError``.
    """
    names = [name[2:] for name in query if name.startswith("t-")]
    names += [name for name in query.get("ids", "").split(",") if name]
    if len(names) > SELECTED:
        raise ConfigError(
            f"{len(names)} tasks are selected: select at most {SELECTED}, or choose them by a filter"
        )
    if names:
        states = parse_filter(f"state:{query['state']}").states if query.get("state") else ()
        waits = query.get("waits") or None if query.get("kind") == "signal" else None
        numbers = tuple(sorted({ids.parse(name) for name in names}))
        return Filter(ids=numbers, states=states, waits=waits, limit=len(names))
    if not query.get("q", "").strip():
        raise ConfigError("no task is chosen: select some in the list of tasks, or filter them")
    return parse_filter(query["q"])


async def new(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what is shown before an act is confirmed: how many tasks match, and some of them.

    Raises ``ConfigError``, ``TaskNotFoundError``.
    """
    kind = query.get("kind", "")
    if kind not in LOOKS:
        raise ConfigError(f"kind={kind!r}: an act on many tasks is one of {', '.join(LOOKS)}")
    condition = filter_of(query)
    tally = await reads.share(
        ("tally", condition), lambda: reads.store.tasks.tally(condition, depth(condition))
    )
    sample = await search(reads, replace(condition, limit=SAMPLE))
    icon, verb, means = LOOKS[kind]
    signal = (condition.waits or "") if kind == "signal" else ""
    schema, mixed = await _schema(reads, signal, sample.tasks) if signal else ("", False)
    return {
        "id": secrets.token_hex(8),  # whoever sends this form twice requests one act
        "kind": kind,
        "icon": icon,
        "verb": verb,
        "means": means,
        "q": "" if condition.ids else query.get("q", "").strip(),
        "ids": ",".join(ids.show(task) for task in condition.ids),
        "states": ",".join(condition.states) if condition.ids else "",
        "filter": text_of(condition),
        "signal": signal,
        "title": f"Send {signal} to" if signal else verb,
        "schema": schema,
        "fields": fields_of(schema),
        "mixed": mixed,
        "count": tally_text(tally),
        "none": not tally.count and not tally.more,
        "sample": await rows_of(reads, sample.tasks),
        "now": await reads.now(),
    }


async def _schema(reads: Reads, signal: str, tasks: Sequence[TaskView]) -> tuple[str, bool]:
    """Return the JSON schema of a signal's values, "" if it is not known, and whether the newest task of each
    workflow says another one.
    """
    newest = {(task.app, task.workflow): task.id for task in reversed(tasks)}
    if len(newest) > WORKFLOWS:
        return "", True
    excerpts = [await reads.excerpt(task) for task in newest.values()]
    schemas = {each.detail.signal_types.get(signal, "") for each in excerpts if each is not None}
    return (schemas.pop(), False) if len(schemas) == 1 else ("", bool(schemas))
