"""The world's own view of the store's file: what holds of its tasks, and has everything settled?"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from makegood.base import sqlite_log
from makegood.model.states import TEXTS
from makegood.store import search
from makegood.store.rows import Interner
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.testing.checker import Final
from makegood.testing.history import Event

_BUSY = """
select (select count(*) from makegood_task where state not in ('processed', 'undone', 'error') or locked_by is not null)
    + (select count(*) from makegood_inbox) + (select count(*) from makegood_request)
    + (select count(*) from makegood_message where state = 'waiting' and task is null)
"""
_LISTENING = """
select s.task, s.name, s.round, s.action, t.complete_by is null and not exists (select 1 from makegood_request r where r.task = s.task)
        and not exists (select 1 from makegood_inbox i where i.task = s.task)
from makegood_step s join makegood_task t on t.id = s.task where s.kind = 'wait_for' and s.state = 'ready' order by s.task, s.idx
"""
_BLOCKED = """
select w.task, w.name, h.task from makegood_lane w join makegood_lane h on h.app = w.app and h.name = w.name and h.state = 'held'
    join makegood_task t on t.id = h.task
where w.state = 'waiting' and t.state = 'error' order by w.task, w.name, h.task
"""
_MOST_ASKED = """
select task, name, state, attempt, coalesce(error, '') from makegood_step where kind = 'action' and attempt > 0
order by attempt desc, task, idx limit 1
"""
_FAILED = """
select id, state, cause from makegood_task
where state in ('undone', 'error') and (failure_count > 0 or cause = ?) order by id limit 1
"""
_ACTIONS = """
select task, idx, agent, action from makegood_step where kind = 'action' and attempt > 0
"""
_ANSWERS = frozenset({"done", "refused", "permanent", "happened", "not_happened"})
"""Replies that show what a function does."""


@dataclass(slots=True)
class TaskAtRest:
    """A task in the store, once it has settled."""

    state: str
    cause: str
    steps: list[tuple[str, str, int, str]] = field(default_factory=list)
    """Name, state, round and kind of each step."""


class StepCalls(NamedTuple):
    """A step, and how often it was asked."""

    task: int
    step: str
    state: str
    attempts: int
    answer: str
    """The answer of its last attempt that was not done; "" for none."""


class Listening(NamedTuple):
    """A step that waits for a signal."""

    task: int
    step: str
    round: int
    signal: str
    is_lone: bool
    """Whether nothing else will move its task: no timeout, deadline, request or message."""


class BlockedTask(NamedTuple):
    """A task that waits for a lane that a task in error holds."""

    task: int
    lane: str
    holder: int


class Failed(NamedTuple):
    """A task that did not succeed: an action failed (but not for good), or did not end in time."""

    task: int
    state: str
    cause: str


class Eye:
    """Reads the file of a world's store, apart from the engine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite_log.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=5.0)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._connection.execute(sql, values).fetchall()

    def write(self, statements: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        """Change rows beside the engine, in one transaction, while nothing else writes."""
        connection = sqlite_log.connect(f"{self._path.absolute().as_uri()}?mode=rw", timeout=5.0)
        try:
            connection.execute("begin immediate")
            for sql, values in statements:
                connection.execute(sql, values)
            connection.execute("commit")
        finally:
            connection.close()

    def busy(self) -> bool:
        """Whether a task has not ended, or a request or a possible future task is in flight."""
        return bool(self.rows(_BUSY)[0][0])

    def at_rest(self) -> bool:
        """Whether every task has ended and no request is in flight."""
        return not self.busy()

    def tasks(self) -> dict[int, TaskAtRest]:
        """Return all tasks with their steps."""
        tasks = {
            id_: TaskAtRest(state, cause)
            for id_, state, cause in self.rows("select id, state, cause from makegood_task")
        }
        for task, name, state, round_, kind in self.rows(
            "select task, name, state, round, kind from makegood_step order by task, idx"
        ):
            tasks[task].steps.append((name, state, round_, kind))
        return tasks

    def listening(self) -> list[Listening]:
        """Return the steps that wait for a signal now."""
        return [Listening(*row) for row in self.rows(_LISTENING)]

    def blocked_tasks(self) -> list[BlockedTask]:
        """Return the tasks that wait for a lane that a task in error holds."""
        return [BlockedTask(*row) for row in self.rows(_BLOCKED)]

    def most_asked(self) -> StepCalls | None:
        """Return the step that was asked most often; None before the first."""
        rows = self.rows(_MOST_ASKED)
        return StepCalls(*rows[0]) if rows else None

    def first_failure(self) -> Failed | None:
        """Return the first task that was undone, or is in error, because an action failed; None if there is
        none.
        """
        rows = self.rows(_FAILED, TEXTS["deadline"])
        return Failed(*rows[0]) if rows else None

    def coverage(self, events: Iterable[Event]) -> dict[tuple[str, str, str], int]:
        """Return how far the undos and probes of the executed actions came, by agent, action, and "undo" or
        "probe": 0 did not run, 1 ran, 2 answered.
        """
        actions = {(task, idx): (agent, action) for task, idx, agent, action in self.rows(_ACTIONS)}
        levels = {(*action, doing): 0 for action in actions.values() for doing in ("undo", "probe")}
        for event in events:
            if event.kind in ("taken", "accepted") and event["doing"] != "do":
                key = (*actions[event.task, event["idx"]], event["doing"])
                level = 2 if event.kind == "accepted" and event["reply"] in _ANSWERS else 1
                levels[key] = max(levels[key], level)
        return levels

    def final(self) -> Final:
        """Return what the checker needs beside the history: the tasks' rows, and the store's own history of
        each.
        """
        tx = WriteTransaction(self._connection, 0.0, Interner())
        ids_ = [id_ for (id_,) in self.rows("select id from makegood_task order by id")]
        details = [detail for id_ in ids_ if (detail := tx.do(search.detail, tx.plans, id_)) is not None]
        return Final(tasks=details, histories={id_: tx.do(search.history, id_) for id_ in ids_})

    def rest(self) -> dict[str, Any]:
        """Return what the store holds: counts, and rows that should not be there."""
        counts = {
            table: self.rows(f"select count(*) from makegood_{table}")[0][0]  # noqa: S608 - our own tables
            for table in ("task", "inbox", "request")
        }
        orphans = self.rows(
            "select task, idx from makegood_request where task not in (select id from makegood_task) "
            "union all select task, -1 from makegood_inbox where task not in (select id from makegood_task)"
        )
        dead = self.rows(
            "select distinct locked_by from makegood_task where locked_by is not null and locked_by not in "
            "(select id from makegood_node where dead = 0 and stopped_at is null)"
        )
        return {
            "tasks": counts["task"], "orphans": [list(row) for row in orphans], "leases_held_by_dead": [n for (n,) in dead],
            "inbox_rows": counts["inbox"], "request_rows": counts["request"],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class WorldAtRest:
    """What the eye saw when the world had settled, before the janitor removes old rows."""

    tasks: dict[int, TaskAtRest]
    findings: list[str]
    final: Final
