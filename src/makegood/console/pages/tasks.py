"""The list of tasks: which of them, where are they, what is each waiting for?"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.base.clock import iso
from makegood.base.text import is_storable
from makegood.console.day_time import day_time, near_time
from makegood.console.pages.wording import Tab, count_text, name_of, names_of, share, tally_text
from makegood.console.reads import Reads
from makegood.errors import ConfigError, TaskNotFoundError
from makegood.model.attributes import LONGEST_INDEXED, LONGEST_NAME
from makegood.store.filters import LONGEST, parse_filter, parse_terms, text_of
from makegood.store.lane_views import TaskLane
from makegood.store.views import (
    Exact,
    Filter,
    Found,
    Prefix,
    SignalWait,
    StepBrief,
    Tally,
    TaskGroup,
    TaskGroups,
    TaskView,
    UnendedTally,
)
from makegood.story.batch_progress import batch_progress
from makegood.story.lanes import queue_text
from makegood.story.waits import SLEEPS, is_asleep, wait_of

PAGE: Final = 50
"""Tasks on a page."""
PIPS: Final = 20
"""Steps that a row draws, at most."""
LOOKED: Final = 10_000
"""Tasks that a search looks at; the next page looks further back."""
BATCH: Final = "batch"
ATTRIBUTE: Final = "attribute:"
"""How the list is grouped, in its address; a name follows."""
OFFERED: Final = 5
"""Attributes of the tasks in view by which the page offers to group, at most."""
BATCHES: Final = 20
"""Rows on a page of batches."""
SAMPLED: Final = 5
"""Tasks that the row of a batch unfolds to."""
MOST_SAID: Final = 80
"""Characters beside a badge, at most."""
MOST_BEFORE: Final = 100
"""Tasks before a queued one that a list counts, at most."""
UNCLAIMED: Final = 30.0
"""Seconds after which a request that no process has taken is worth a remark."""

_PIPS = {"undoing": "running", "ready": "waiting"}
"""State of a step -> the one that it is drawn as, if that is another."""
_ACTS = (
    ("cancel", "stop", ("pending", "sleeping", "queued", "processing")),
    ("undo", "undoing", ("processed", "error")),
    ("resubmit", "again", ("error", "undone")),
)
_ENDED = (("ok", "processed"), ("undo", "undone"), ("need", "error"))
"""Parts of a batch's bar, and the states that they show."""
_GOING = ("pending", "sleeping", "queued", "processing")
_UNDER_WAY = ("ready", "running", "in_doubt")


class TaskRow(msgspec.Struct, frozen=True):
    """A task in the list."""

    task: TaskView
    id: str
    name: str
    look: str
    """The badge: the task's state, or ``failing`` or ``waiting``, which are derived from its steps."""
    said: str
    """What the badge does not say."""
    need: bool
    pips: tuple[str, ...]
    """The states that are drawn."""
    more: int
    """Steps that are not drawn."""
    step: str
    left: float | None
    """Seconds until its deadline, if it has one ahead."""
    held: str
    rest: tuple[str, float] | None
    """What ends its wait, and in how many seconds."""
    batch: str
    """The filter that names its batch, "" without a correlation id."""


class BatchRow(msgspec.Struct, frozen=True):
    """Tasks with one correlation id, or one value of an attribute, as one row of the list that unfolds."""

    name: str
    id: str
    text: str
    """How far they are."""
    parts: tuple[tuple[str, float], ...]
    """The bar: (tone, share in percent) of those that have ended, and of those under way."""
    need: bool
    count: str
    tasks: list[TaskRow]
    """Some of them, as rows without steps."""
    path: str
    """The filter of all of them, "" if no filter can contain their name."""


class Grouping(msgspec.Struct, frozen=True):
    """How the list is grouped: by correlation ids, or by the values of an attribute."""

    attribute: str | None = None

    @classmethod
    def read(cls, text: str) -> "Grouping | None":
        """Return what an address says. Raises ``ConfigError``."""
        if text in ("", BATCH):
            return cls() if text else None
        name = text.removeprefix(ATTRIBUTE)
        if name == text or not 1 <= len(name) <= LONGEST_NAME or not is_storable(name):
            raise ConfigError(
                f"group={text!r:.120} is not understood; write group={BATCH}, or group={ATTRIBUTE}NAME"
            )
        return cls(name)

    @property
    def text(self) -> str:
        """As an address says it."""
        return BATCH if self.attribute is None else f"{ATTRIBUTE}{self.attribute}"

    def filter_of(self, condition: Filter, name: str) -> str:
        """Return the filter of one group, "" if no filter can contain its name."""
        if not name or len(name) > LONGEST_INDEXED or not is_storable(name):
            return ""
        if self.attribute is None:
            return text_of(replace(condition, correlation_id=Exact(name)))
        return text_of(
            replace(condition, attributes={**(condition.attributes or {}), self.attribute: Exact(name)})
        )


def batch_row(
    group: TaskGroup, tasks: Sequence[TaskView], listing: tuple[Grouping, Filter], now: float, *, more: bool
) -> BatchRow:
    """Return the row of a group.

    ``listing``: how the list is grouped, and its filter; ``more``: whether there may be more of it than were
    looked at.
    """
    grouping, condition = listing
    name, total = group.name or "", sum(group.states.values())
    states: dict[str, int] = {state: count for state, count in group.states.items()}  # noqa: C416 - of any text
    counts = {tone: states.get(state, 0) for tone, state in _ENDED}
    counts["run"] = total - sum(counts.values())
    return BatchRow(
        name=name if grouping.attribute is None else f"{grouping.attribute}={name}",
        id=hashlib.sha256(name.encode()).hexdigest()[:16],
        text=batch_progress(states).text,
        parts=tuple((tone, share(count, total)) for tone, count in counts.items() if count),
        need=bool(counts["need"]),
        count=count_text(total, more=more),
        tasks=[row(task, (), {}, now) for task in tasks],
        path=grouping.filter_of(condition, name),
    )


def row(
    task: TaskView,
    steps: Sequence[StepBrief],
    names: Mapping[int, str],
    now: float,
    places: Sequence[TaskLane] = (),
) -> TaskRow:
    """Return the row of a task. ``places``: those of a queued one in its lanes."""
    look, label = _look(task, steps, places)
    actions = [step for step in steps if step.kind == "action" and step.state != "skipped"]
    left = task.complete_by - now if task.complete_by and task.state in _GOING else None
    return TaskRow(
        task=task,
        id=ids.show(task.id),
        name=name_of(task),
        look=look,
        said=label,
        need=task.state == "error",
        pips=tuple(_PIPS.get(step.state, step.state) for step in actions[:PIPS]),
        more=max(0, len(actions) - PIPS),
        step=_step(task, steps, names, now),
        left=left if left is not None and left > 0 else None,
        held=names.get(task.locked_by, "") if task.locked_by is not None else "",
        rest=_rest(steps),
        batch=Grouping().filter_of(Filter(), task.correlation_id or ""),
    )


def _look(task: TaskView, steps: Sequence[StepBrief], places: Sequence[TaskLane] = ()) -> tuple[str, str]:
    """Return the badge of a task, and what to say beside it."""
    if task.state == "error":
        incomplete = task.goal == "undo" or any(step.state == "undo_failed" for step in steps)
        return "error", "undo incomplete" if incomplete else "held"
    if task.starts is not None or task.state == "queued" or task.state not in _GOING:
        return task.state, _quiet(task, places)
    if failing := [step for step in steps if step.failures and step.state in _UNDER_WAY]:
        attempt = max(step.attempt + (step.doing == "timer") for step in failing)
        return "failing", f"attempt {attempt} · failing"
    if any(_waits_unclaimed(step) for step in steps):
        return "waiting", "no process takes it"
    moving = [step for step in steps if step.doing is not None]
    if moving and all(map(is_asleep, moving)):
        return "sleeping", SLEEPS
    if all(step.doing == "timer" for step in moving) and (text := next(filter(None, map(_wait, steps)), "")):
        return "waiting", shorten(text)
    return task.state, ""


def _quiet(task: TaskView, places: Sequence[TaskLane]) -> str:
    """Return what a task waits for that has not begun, "" for one that has ended."""
    if task.starts is not None:
        return f"starts at {iso(task.starts)[:16]}Z"
    return shorten(queue_text(places, MOST_BEFORE)) if task.state == "queued" else ""


def _rest(steps: Sequence[StepBrief]) -> tuple[str, float] | None:
    """Return what ends the first wait of a task, and in how many seconds; None if only a signal does."""
    words = {"sleep": "ends", "wait_for": "times out"}
    waits = [(step.due, words[step.kind]) for step in steps if step.kind in words and step.due is not None]
    return next(((word, max(0.0, due)) for due, word in sorted(waits)), None)


def _wait(step: StepBrief) -> str:
    """Return what a step waits for, without how long still: that changes all the time."""
    return wait_of(msgspec.structs.replace(step, due=None))


def shorten(text: str) -> str:
    """Return the beginning of a text that a badge has room for."""
    return text if len(text) <= MOST_SAID else f"{text[: MOST_SAID - 1].rstrip()}…"


def _waits_unclaimed(step: StepBrief) -> bool:
    return step.doing not in (None, "timer") and step.taken_by is None and (step.wait or 0.0) > UNCLAIMED


def _step(task: TaskView, steps: Sequence[StepBrief], names: Mapping[int, str], now: float) -> str:
    """Return what a task does now, or how it ended; with times of the day, which do not change by
    themselves.
    """
    for step in steps:
        if step.state == "undo_failed":
            return f"undo of {step.name} failed: {step.error or 'no reason recorded'}"
    if task.state in ("error", "undone"):
        return task.cause
    texts = [text for step in steps if (text := _moving(step, names, now))]
    return " · ".join(texts[:2]) + (f" and {len(texts) - 2} more" if len(texts) > 2 else "")


def _moving(step: StepBrief, names: Mapping[int, str], now: float) -> str:
    """Return what a step under way does, "" for any other."""
    at = f" at {names[node]}" if (node := step.taken_by or 0) in names else ""
    if step.doing == "timer":
        at_moment = near_time(round(now + (step.due or 0.0)), now)
        if step.kind in ("sleep", "wait_for"):
            return f"{step.name}, until {at_moment}"
        return f"{step.name}{' in doubt' if step.state == 'in_doubt' else ''}, again at {at_moment}"
    if _waits_unclaimed(step):
        return f"{step.name}: no process has taken it since {day_time(round(now - (step.wait or 0.0)))}"
    if step.state == "undoing":
        return f"undo of {step.name}, attempt {step.attempt}{at}"
    if step.doing == "probe":
        return f"{step.name} in doubt, being probed{at}"
    if step.state == "in_doubt":
        return f"{step.name} in doubt{at}"
    return f"{step.name}{at}" if step.state == "running" else ""


def tabs(tally: UnendedTally, lately: Mapping[str, int], *, more: bool) -> list[Tab]:
    """Return the filters that are often asked for, each with its count."""
    cut = tally.more
    return [
        Tab("All", ""),
        Tab("Last hour", "since:1h", count_text(sum(lately.values()), more=more)),
        Tab("Need you", "state:error", count_text(tally.states.get("error", 0), more=cut), need=True),
        Tab("Failing", "failing:yes", count_text(tally.failing, more=cut)),
        Tab(
            "In doubt", "doubt:yes state:pending,processing,undoing,error", count_text(tally.doubt, more=cut)
        ),
        Tab("Undoing", "state:undoing", count_text(tally.states.get("undoing", 0), more=cut)),
        Tab("In flight", "state:pending,processing,undoing", count_text(tally.in_flight, more=cut)),
        Tab("Sleeping", "state:sleeping", count_text(tally.states.get("sleeping", 0), more=cut)),
        Tab("Queued", "state:queued", count_text(tally.states.get("queued", 0), more=cut)),
        Tab("Undone", "state:undone since:1h", count_text(lately.get("undone", 0), more=more)),
    ]


def allowed_acts(rows: Sequence[TaskRow]) -> list[tuple[str, str]]:
    """Return the acts that make sense for the states in view: (kind, icon)."""
    states = {row.task.state for row in rows}
    return [(kind, icon) for kind, icon, fit in _ACTS if states.intersection(fit)]


def unfit(rows: Sequence[TaskRow]) -> str:
    """Return why acts are not offered for the states in view, "" if each is."""
    kinds = {kind for kind, _ in allowed_acts(rows)}
    return " ".join(
        f"{kind.capitalize()} is not offered: no task on this page is {' or '.join([', '.join(fit[:-1]), fit[-1]])}."
        for kind, _, fit in _ACTS
        if kind not in kinds
    )


async def rows_of(reads: Reads, tasks: Sequence[TaskView]) -> list[TaskRow]:
    """Return the rows of tasks; three reads, whatever their number, and two more if some are queued."""
    task_ids = tuple(task.id for task in tasks)
    briefs = await reads.share(("briefs", task_ids), lambda: reads.store.tasks.briefs(task_ids))
    places = await places_of(reads, [task.id for task in tasks if task.state == "queued"])
    names, now = names_of(await reads.nodes()), await reads.now()
    return [row(task, briefs.get(task.id, []), names, now, places.get(task.id, ())) for task in tasks]


async def places_of(reads: Reads, tasks: Sequence[int]) -> Mapping[int, Sequence[TaskLane]]:
    """Return the places of queued tasks in their lanes."""
    if not tasks:
        return {}
    return await reads.share(("places", tuple(tasks)), lambda: reads.store.lanes.places(tasks, MOST_BEFORE))


def depth(condition: Filter) -> int:
    """Return how many tasks a search looks at: fewer if it must read the steps of each."""
    return LOOKED // 5 if condition.step or condition.agent or condition.error else LOOKED


async def batches(
    reads: Reads, grouping: Grouping, condition: Filter, below: int | None
) -> tuple[list[TaskRow | BatchRow], TaskGroups]:
    """Return a page of rows, one for each batch, and where the next begins; the cost does not depend on the
    sizes of the batches.
    """
    look = depth(condition)
    groups = await reads.share(
        ("groups", grouping, condition, below),
        lambda: reads.store.tasks.groups(condition, below, look, SAMPLED, attribute=grouping.attribute),
    )
    task_ids = tuple(task for group in groups.groups for task in group.sample)
    views = await reads.tasks(Filter(ids=task_ids, limit=len(task_ids))) if task_ids else []
    tasks, now = {view.id: view for view in views}, await reads.now()
    singles = [group.newest for group in groups.groups if _is_single(group)]
    rows = {r.task.id: r for r in await rows_of(reads, [tasks[n] for n in singles if n in tasks])}
    more = groups.older is not None
    return [
        rows[group.newest] if group.newest in rows
        else batch_row(group, [tasks[n] for n in group.sample if n in tasks], (grouping, condition), now, more=more)
        for group in groups.groups
        if group.newest in rows or not _is_single(group)
    ], groups  # fmt: skip


def _is_single(group: TaskGroup) -> bool:
    return group.name is None or sum(group.states.values()) == 1


async def groupings(reads: Reads, rows: Sequence[TaskRow], now: Grouping | None) -> list[Grouping]:
    """Return other ways to group the list: by batch, and by attributes that tasks in view have."""
    names = await reads.store.tasks.attribute_names([row.task.id for row in rows], OFFERED) if rows else []
    return [each for each in (Grouping(), *map(Grouping, names)) if each != now]


async def search(reads: Reads, condition: Filter) -> Found:
    """Return a page of tasks."""
    return await reads.share(
        ("search", condition), lambda: reads.store.tasks.search(condition, depth(condition))
    )


async def unended_tally(reads: Reads) -> UnendedTally:
    """Return how many tasks have not ended."""
    return await reads.share("unended", reads.store.tasks.tally_unended)


async def waits(reads: Reads) -> dict[str, int]:
    """Return how many steps wait because their service asked for it, by what it said."""
    return await reads.share("waits", reads.store.tasks.waits)


async def signal_waits(reads: Reads) -> list[SignalWait]:
    """Return how many tasks wait for each signal, the most first."""
    return await reads.share("signal waits", reads.store.tasks.signal_waits)


async def lately(reads: Reads) -> tuple[dict[str, int], bool]:
    """Return how many tasks were submitted within the last hour, by state, and whether there may be more."""
    return await reads.share(("lately", 3600), lambda: reads.store.tasks.lately(3600.0))


async def batch_text(reads: Reads, condition: Filter) -> str:
    """Return how far the batch is that a filter names by what tasks were submitted with, "" for others."""
    named = condition.correlation_id or condition.attributes or isinstance(condition.key, Prefix)
    if not named or condition.states:
        return ""
    states = await reads.share(("states", condition), lambda: reads.store.tasks.states(condition))
    return batch_progress(states).text if states else ""


async def only_one(reads: Reads, query: Mapping[str, str]) -> str:
    """Return the path of the task whose id or exact key is the whole filter, "" unless there is exactly one.

    A key may contain what the filter language does not read, such as a colon.
    """
    text = query.get("q", "").strip()
    try:
        terms = parse_terms(text)
    except ConfigError:
        terms = {"word": text} if len(text) <= LONGEST else {}
    if terms.keys() != {"word"} or query.get("before"):
        return ""
    try:
        tasks = (await search(reads, Filter(word=terms["word"], limit=2))).tasks
    except ConfigError:  # a text that no store contains
        return ""
    return f"/tasks/{ids.show(tasks[0].id)}" if len(tasks) == 1 else ""


def _id_text(task: int | None) -> str | None:
    return None if task is None else ids.show(task)


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows: ``q`` is the filter, ``before`` the id below which the page begins.

    ``group=batch``: a batch is one row, and so is each value of NAME with ``group=attribute:NAME``; then the
    page begins with the rows whose newest task is ``below``.
    """
    text, refusal = query.get("q", "").strip(), ""
    result, tally, progress = Found([]), Tally(0), ""
    grouping, groups, before = None, TaskGroups([]), None
    lines: list[TaskRow | BatchRow] = []
    signal: str | None = None
    try:
        grouping = Grouping.read(query.get("group", ""))
        before, below = (ids.parse(query[name]) if query.get(name) else None for name in ("before", "below"))
        condition = replace(parse_filter(text), limit=PAGE, before=before)
        if grouping is not None:
            lines, groups = await batches(reads, grouping, replace(condition, limit=BATCHES), below)
        else:
            result = await search(reads, condition)
        signal, whole = condition.waits, replace(condition, before=None)
        tally = await reads.share(("tally", whole), lambda: reads.store.tasks.tally(whole, depth(whole)))
        progress = await batch_text(reads, whole)
    except (ConfigError, TaskNotFoundError) as wrong:
        refusal = str(wrong)
    tasks = result.tasks
    if (
        not text and not query.get("before") and grouping is None and not refusal
    ):  # those that need somebody come first
        need = (await search(reads, Filter(states=("error",), limit=10))).tasks
        tasks = [*need, *(task for task in tasks if task.state != "error")]
    states, more = await lately(reads)
    rows = await rows_of(reads, tasks)
    if grouping is not None:
        rows = [one for line in lines for one in ([line] if isinstance(line, TaskRow) else line.tasks)]
    next_page = {"before": _id_text(before), "below": _id_text(groups.below)}
    if groups.below is None:
        next_page = {"before": _id_text(result.older if grouping is None else groups.older), "below": None}
    return {
        "q": text,
        "refused": refusal,
        "rows": rows,
        "lines": rows if grouping is None else lines,
        "group": None if grouping is None else grouping.text,
        "groupings": await groupings(reads, rows, grouping),
        "batches": sum(isinstance(line, BatchRow) for line in lines),
        "count": tally_text(tally),
        "batch": progress,
        "older": next_page if any(next_page.values()) else None,
        "first": not query.get("before") and not query.get("below"),
        "tabs": tabs(await unended_tally(reads), states, more=more),
        "acts": allowed_acts(rows),
        "signal": signal,
        "others": [wait.name for wait in await signal_waits(reads)] if signal and not rows else [],
        "unfit": unfit(rows),
        "now": await reads.now(),
    }
