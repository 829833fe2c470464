"""Alerts: which of them has nobody acknowledged yet?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.base.counts import quantity
from makegood.console.pages.tasks import search
from makegood.console.pages.wording import PageVerdict, name_of, title_of
from makegood.console.reads import Reads
from makegood.store.views import AlertView, Filter, TaskView
from makegood.story.steps import join_names

OPEN: Final = 200
"""Open alerts on the page, at most."""
ENDED: Final = 100
"""Ended alerts on the page, at most."""
DAY: Final = 86_400.0

ICONS: Final[Mapping[str, str]] = {
    "step_gave_up": "failed",
    "undo_stuck": "undofailed",
    "held": "error",
    "undo_incomplete": "undofailed",
    "poison": "error",
    "unreadable": "error",
    "late_undo": "undoing",
    "lane_held": "waiting",
    "starved": "agents",
    "circuit_open": "waiting",
    "outage": "agents",
    "no_scheduler": "cluster",
    "no_leader": "flag",
    "role_failing": "cluster",
    "schedule": "waiting",
    "dead_letter": "send",
    "source_away": "cluster",
    "receiver_away": "send",
    "source_refused": "send",
    "generation": "db",
    "near_limit": "waiting",
    "test": "bell",
}
"""The icon of each kind of alert that this version knows. Its title is its name, as in the code."""
BY_THEMSELVES: Final = frozenset({"circuit_open", "late_undo"})
"""Kinds that end without anybody's help: an open circuit only if more than one step fails."""
_FIRST = ("undo_incomplete", "held", "poison", "unreadable")
"""Of several alerts about one task, these give the title."""


class Item(msgspec.Struct, frozen=True):
    """What is wrong with one task, agent or process: one alert or several of one task."""

    first: AlertView
    """The one that gives the title."""
    ids: str
    """The ids of its alerts, separated by commas."""
    kinds: tuple[str, ...]
    title: str
    icon: str
    tone: str
    about: str
    """The task's key or id, "" for an alert about something else."""
    task: str
    workflow: str
    texts: tuple[str, ...]
    at: float
    sent: str
    acts: tuple[str, ...]


def items(alerts: Sequence[AlertView], tasks: Mapping[int, TaskView]) -> list[Item]:
    """Return alerts with those of one task joined, and test alerts, newest first."""
    groups: dict[object, list[AlertView]] = {}
    for alert in alerts:
        key = ("task", alert.task) if alert.task else "test" if alert.kind == "test" else alert.id
        groups.setdefault(key, []).append(alert)
    return [_item(of_one, tasks.get(of_one[0].task or 0)) for of_one in groups.values()]


def _needs_nobody(alert: AlertView) -> bool:
    """Whether an alert ends by itself, or is a test that was reported.

    An open circuit about one task may be that task's fault.
    """
    if alert.kind == "test":
        return alert.logged > 0 and not alert.tries
    return alert.kind in BY_THEMSELVES and not (alert.kind == "circuit_open" and alert.task)


def _look(kind: str) -> tuple[str, str]:
    return title_of(kind), ICONS.get(kind, "bell")


def _item(alerts: Sequence[AlertView], task: TaskView | None) -> Item:
    order = sorted(alerts, key=lambda alert: (alert.kind not in _FIRST, -alert.id))
    first = order[0]
    title, icon = _look(first.kind)
    name = "" if first.task is None else ids.show(first.task) if task is None else name_of(task)
    if first.task is None and first.step:
        title = f"{title}: {first.step}"
    is_calm = all(map(_needs_nobody, [first] if first.kind == "test" else alerts))
    return Item(
        first=first,
        ids=",".join(str(alert.id) for alert in order),
        kinds=tuple(dict.fromkeys(alert.kind for alert in order)),
        title=title,
        icon=icon,
        tone="idle" if first.acked or first.ended else "doubt" if is_calm else "need",
        about=name,
        task="" if first.task is None else ids.show(first.task),
        workflow="" if task is None else task.workflow,
        texts=tuple(dict.fromkeys(alert.text for alert in order))[:3],
        at=min(alert.at for alert in alerts),
        sent=channels_text(first),
        acts=_acts(task),
    )


def channels_text(alert: AlertView) -> str:
    """Return where an alert has been sent, in words."""
    channels = ["log"] if alert.logged else []
    if alert.tries:
        channels.append(f"webhook refused {quantity(alert.tries, 'time')}")
    elif alert.told:
        channels.append("webhook")
    return f"sent to: {', '.join(channels)}" if channels else "not sent yet"


def _acts(task: TaskView | None) -> tuple[str, ...]:
    """Return the acts to offer on the task of an alert."""
    if task is None or task.state != "error":
        return ()
    return ("undo", "settle") if task.goal == "undo" else ("resubmit", "undo", "settle")


def verdict(need: Sequence[Item], claims: Sequence[Item], alone: Sequence[Item]) -> PageVerdict:
    """Return the sentence that answers the page."""
    sentences = []
    if claims:
        people = sorted({item.first.acked_by for item in claims})
        sentences.append(
            f"{join_names(people)} {'has' if len(people) == 1 else 'have'} acknowledged {len(claims)}."
        )
    if alone:
        sentences.append(f"{quantity(len(alone), 'alert')} need{'s' if len(alone) == 1 else ''} nobody.")
    if not need:
        return PageVerdict("ok", "done", "Nothing needs you", " ".join(sentences) or "No alert is open.")
    kinds = [_look(item.kinds[0])[0].lower() for item in need]
    names = [f"{kind}{f' ({n})' if (n := kinds.count(kind)) > 1 else ''}" for kind in dict.fromkeys(kinds)]
    title = f"{len(need)} need{'s' if len(need) == 1 else ''} somebody: {join_names(names)}"
    return PageVerdict("need", "error", title, " ".join(sentences))


async def open_items(reads: Reads) -> list[Item]:
    """Return what open alerts are about; two reads."""
    return await _read(reads, OPEN, ended=False)


async def needing(reads: Reads) -> int:
    """Return how many things need somebody, and nobody has them yet."""
    return sum(item.tone == "need" for item in await open_items(reads))


async def _read(reads: Reads, limit: int, *, ended: bool) -> list[Item]:
    alerts = await reads.alerts(limit, ended=ended)
    condition = Filter(ids=tuple(sorted({alert.task for alert in alerts if alert.task})), limit=limit)
    tasks = (await search(reads, condition)).tasks if condition.ids else []
    return items(alerts, {task.id: task for task in tasks})


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the page shows."""
    now = await reads.now()
    entries = await open_items(reads)
    need = [item for item in entries if item.tone == "need"]
    claims = [item for item in entries if item.first.acked is not None]
    alone = [item for item in entries if item.tone == "doubt"]
    past = [i for i in await _read(reads, ENDED, ended=True) if i.first.ended and i.first.ended > now - DAY]
    return {
        "verdict": verdict(need, claims, alone),
        "need": need,
        "acked": claims,
        "alone": alone,
        "ended": past,
        "ways": ways(await reads.alerts(OPEN)),
        "now": now,
    }


def ways(alerts: Sequence[AlertView]) -> list[tuple[str, str, str, str]]:
    """Return how alerts reach people: (way, look of its badge, state, more)."""
    has_log = any(alert.logged for alert in alerts)
    tries = max((alert.tries for alert in alerts), default=0)
    has_post = any(alert.told for alert in alerts)
    hook = (
        ("in_doubt", f"refused {quantity(tries, 'time')}", "makegood posts them again for a day")
        if tries
        else ("done", "works", "the open alerts were posted")
        if has_post
        else ("waiting", "not seen", "no open alert was posted: alert_webhook= sets where to")
    )
    return [
        ("row", "done", "works", "this page, `makegood alerts`, client.alerts()"),
        ("log", "done" if has_log or not alerts else "waiting", "works" if has_log or not alerts else "not yet", "the logger makegood.alerts of one of the processes"),
        ("webhook", *hook),
    ]  # fmt: skip
