"""Failed attempts, grouped by what failed and why.

They are read from the history of a bounded number of tasks: the newest in error, those under way that had
failures, and the newest of all that had any. So the history costs no write, and the reading costs the same
beside many ended tasks. The last error of a step
stands in for attempts beyond the history that is read, and where the step could not even begin.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from makegood.base.ids import address
from makegood.base.stored_values import seconds, text, whole
from makegood.base.text import first_line
from makegood.store import rows
from makegood.store.oversight_records import ErrorGroup, ErrorGroups
from makegood.store.transaction import ReadTx, Sql

MOST_TASKS = 500
"""The most tasks to read of each kind."""

LATEST = 2000
"""How many of the newest tasks to search for failures."""

MOST_EVENTS = 20_000
"""Entries of their history that are read."""

_IDS, _TIMES = 100, 200
_TROUBLED = "(failure_count > 0 or cause <> '')"
_TASKS = Sql(f"""
select id, app, state, coalesce(ended_at, created_at), goal from (
    select * from (select id, app, state, ended_at, created_at, goal from makegood.task where state = 'error' order by id desc limit $1) e
    union
    select * from (
        select id, app, state, ended_at, created_at, goal
        from (select * from makegood.task where locked_by is not null order by locked_by desc limit $2) held
        where {_TROUBLED} order by id desc limit $1
    ) h
    union
    select * from (
        select id, app, state, ended_at, created_at, goal from (select * from makegood.task order by id desc limit $2) latest
        where {_TROUBLED} order by id desc limit $1
    ) l
) t order by id desc
""")  # noqa: S608 - our own text
_STEPS = Sql("""
select task, idx, agent, action, state, error, failure_count from makegood.step where task = any ($1::bigint[]) and kind = 'action'
""")
_ENDS = Sql("""
select task, at, attempts from makegood.event where task = any ($1::bigint[]) and octet_length(attempts) > 0
order by task desc, seq desc limit $2
""")

_PLACES = (
    (re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`"), "'…'"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "ID"),
    (re.compile(r"\b(?=[0-9a-z]*[0-9])(?=[0-9a-z]*[a-z])[0-9a-z]{8,}\b", re.IGNORECASE), "ID"),
    (re.compile(r"\b\w+[_-](?=\w*\d)[\w-]{4,}\b"), "ID"),
    (re.compile(r"\d+(?:\.\d+)*"), "N"),
)
_LONGEST = 300
_TRIED_AGAIN: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "do": dict.fromkeys(("pending", "sleeping", "queued", "processing"), ("ready", "running", "in_doubt")),
    "probe": dict.fromkeys(("pending", "sleeping", "queued", "processing", "undoing"), ("in_doubt",)),
    "undo": dict.fromkeys(("pending", "sleeping", "queued", "undoing"), ("undoing",)),
}
"""What was asked -> the task's state -> the step's states in which it is asked again."""
_OBSTACLES: Mapping[str, tuple[str, ...]] = {"undo": ("undo_failed", "in_doubt")}
_OTHERWISE = ("failed", "in_doubt")
"""The goal of a task in error -> the states of a step that it stands in."""


def normalise(message: str) -> str:
    """Return an error's message without what differs from one failure to the next.

    >>> normalise("HTTPError: 503 for order 'A-17' after 2.5 s (req_8f3a9c21)")
    "HTTPError: N for order '…' after N s (ID)"
    """
    short = message[: 4 * _LONGEST]
    for pattern, instead in _PLACES:
        short = pattern.sub(instead, short)
    return " ".join(short.split())[:_LONGEST]


@dataclass(slots=True)
class _Group:
    times: list[float] = field(default_factory=list)
    attempts: int = 0
    sample: tuple[float, str] = (0.0, "")
    traceback: tuple[float, str] = (0.0, "")
    tasks: dict[int, str] = field(default_factory=dict)
    retries: set[int] = field(default_factory=set)
    blocked_tasks: set[int] = field(default_factory=set)

    def add(self, task: int, state: str, at: float, message: str, attempts: int = 1, *, again: bool) -> None:
        self.times.append(at)
        self.attempts += attempts
        self.sample = max(self.sample, (at, message))
        self.tasks[task] = state
        if again:
            self.retries.add(task)


_Key = tuple[str, str, str, str, str]


async def error_groups(tx: ReadTx, limit: int = 100) -> ErrorGroups:
    """Return failed attempts of the latest tasks, grouped by what failed and why, the latest first."""
    task_rows = await tx.rows(_TASKS, MOST_TASKS, LATEST)
    tasks = {id_: (text(app), text(state), seconds(at)) for id_, app, state, at, _ in task_rows}
    goals = {id_: text(goal) for id_, _, _, _, goal in task_rows}
    ids = list(tasks)
    steps = {
        (task, idx): [*map(text, row), failures]
        for task, idx, *row, failures in (await tx.rows(_STEPS, ids) if ids else ())
    }
    ends = await tx.rows(_ENDS, ids, MOST_EVENTS) if ids else []
    by_key: defaultdict[_Key, _Group] = defaultdict(_Group)
    attempts: set[tuple[int, int]] = set()
    obstacles = {
        key: text(step[3])
        for key, step in steps.items()
        if tasks[key[0]][1] == "error" and step[2] in _OBSTACLES.get(goals[key[0]], _OTHERWISE)
    }
    blame: dict[tuple[int, int], tuple[bool, _Key]] = {}
    unreadable: list[str] = []
    for task, at, data in ends:
        for end in rows.try_read(rows.read_attempts, data, "how attempts ended", unreadable) or ():
            attempts.add((task, end.idx))
            step = steps.get((task, end.idx))
            if end.error is None or step is None or end.late:
                continue
            app, state, _ = tasks[task]
            key = (address(app, step[0]), step[1], end.doing, normalise(end.error), end.frame or "")
            if (error := obstacles.get((task, end.idx))) is not None and _blamable(end.doing, step[2]):
                fits = error.startswith(first_line(end.error))
                if (task, end.idx) not in blame or fits > blame[task, end.idx][
                    0
                ]:  # the latest one comes first
                    blame[task, end.idx] = fits, key
            group = by_key[key]
            group.add(task, state, seconds(at), end.error, again=_again(end.doing, state, step[2]))
            if end.traceback:
                group.traceback = max(group.traceback, (seconds(at), end.traceback))
    for (task, idx), (agent, action, now, error, failures) in steps.items():
        if error and (task, idx) not in attempts:
            app, state, at = tasks[task]
            group = by_key[address(app, agent), action, "do", normalise(error), ""]
            if (task, idx) in obstacles:
                group.blocked_tasks.add(task)
            group.add(task, state, at, error, max(1, whole(failures)), again=_again("do", state, now))
    for (task, _), (_, key) in blame.items():
        by_key[key].blocked_tasks.add(task)
    groups = sorted(_groups(by_key.items()), key=lambda group: group.last, reverse=True)
    return ErrorGroups(groups[:limit], len(ids), len(ids) >= MOST_TASKS or len(ends) == MOST_EVENTS)


def _blamable(doing: str, step_state: str) -> bool:
    """Return whether an attempt can be what a step in this state stands in."""
    return (doing == "undo") is (step_state == "undo_failed")


def _again(doing: str, task_state: str, step_state: str) -> bool:
    """Return whether makegood will repeat the failed attempt."""
    return step_state in _TRIED_AGAIN[doing].get(task_state, ())


def _groups(pairs: Iterable[tuple[_Key, _Group]]) -> Sequence[ErrorGroup]:
    groups: list[ErrorGroup] = []
    for key, group in pairs:
        times = sorted(group.times, reverse=True)
        ids = sorted(
            group.tasks,
            key=lambda task: (task not in group.blocked_tasks, group.tasks[task] != "error", -task),
        )
        states: dict[str, Any] = dict(Counter(group.tasks.values()))
        groups.append(
            ErrorGroup(
                *key, group.attempts, len(group.tasks), times[-1], times[0], group.sample[1], tuple(ids[:_IDS]), states, tuple(times[:_TIMES]),
                len(group.retries), group.traceback[1], len(group.blocked_tasks),
            )
        )  # fmt: skip
    return groups
