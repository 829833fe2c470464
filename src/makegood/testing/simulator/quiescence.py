"""The world's own view of the store's file: has everything settled, and do the services' books balance?"""

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from makegood.base import ids
from makegood.store import search
from makegood.store.rows import Interner
from makegood.store.sqlite import reads
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.testing.checker import Final
from makegood.testing.history import History
from makegood.testing.simulator.peers import Around
from makegood.testing.simulator.recorder import STANDING
from makegood.testing.simulator.services import Service

_BUSY = """
select (select count(*) from makegood_task where state not in ('processed', 'undone', 'error') or locked_by is not null)
    + (select count(*) from makegood_inbox) + (select count(*) from makegood_request)
    + (select count(*) from makegood_message where state = 'waiting' and task is null)
"""
_UNTOLD = """
select (select count(*) from makegood_message where state = 'waiting' and task is not null)
    + (select count(*) from makegood_listener where not dead)
"""
_IN_ERROR = "select exists (select 1 from makegood_task where state = 'error')"
_OVERDUE = """
select id from makegood_task t where state in ('processed', 'undone') and locked_by is null
    and not exists (select 1 from makegood_listener where task = t.id) and not exists (select 1 from makegood_inbox where task = t.id)
    and not exists (select 1 from makegood_alert where task = t.id)
"""
_LEADER = "select holder from makegood_lease where name = 'makegood/supervisor'"
_MOST_ASKED = """
select task, name, state, attempt, coalesce(error, '') from makegood_step where kind = 'action' and attempt > 0
order by attempt desc, task, idx limit 1
"""
_FAILED = """
select id, state, cause from makegood_task
where state in ('undone', 'error') and (failure_count > 0 or cause = 'complete-by passed') order by id limit 1
"""
_ACTIONS = """
select distinct agent, action, state in ('undone', 'undoing', 'undo_failed') from makegood_step where kind = 'action' and attempt > 0
"""
_NET = {"done": (1,), "undone": (0,), "waiting": (0,), "skipped": (0,), "failed": (0,)}


class RestingWorld(Protocol):
    """The parts of a world that are checked when it has settled."""

    services: dict[str, Service]
    store_id: str
    customers: Any
    history: History


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
    said: str
    """The answer of its last attempt that was not done; "" for none."""


class Failed(NamedTuple):
    """A task that did not succeed: an action failed (but not for good), or did not end in time."""

    task: int
    state: str
    cause: str


class Eye:
    """Reads the file of a world's store, apart from the engine."""

    def __init__(self, path: Path, around: Around | None = None) -> None:
        self._around = around
        self._connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values).fetchall()

    def busy(self) -> bool:
        """Whether a task has not ended, or a request or a possible future task is in flight."""
        return bool(self._rows(_BUSY)[0][0])

    def in_error(self) -> bool:
        """Whether a task waits for an operator."""
        return bool(self._rows(_IN_ERROR)[0][0])

    def all_are_told(self) -> bool:
        """Whether no notice is in flight."""
        return self._around is None or not self._rows(_UNTOLD)[0][0]

    def at_rest(self) -> bool:
        """Whether every task has ended and nothing is in flight, neither requests nor notices."""
        return not self.busy() and self.all_are_told()

    def tasks(self) -> dict[int, TaskAtRest]:
        """Return all tasks with their steps."""
        found = {
            id_: TaskAtRest(state, cause)
            for id_, state, cause in self._rows("select id, state, cause from makegood_task")
        }
        for task, name, state, round_, kind in self._rows(
            "select task, name, state, round, kind from makegood_step order by task, idx"
        ):
            found[task].steps.append((name, state, round_, kind))
        return found

    def most_asked(self) -> StepCalls | None:
        """Return the step that was asked most often; None before the first."""
        found = self._rows(_MOST_ASKED)
        return StepCalls(*found[0]) if found else None

    def failed(self) -> Failed | None:
        """Return the first task that was undone, or is in error, because an action failed; None if there is
        none.
        """
        found = self._rows(_FAILED)
        return Failed(*found[0]) if found else None

    def undone(self) -> dict[tuple[str, str], bool]:
        """Return whether the undo was asked for, by agent and name of the executed actions."""
        found: dict[tuple[str, str], bool] = {}
        for agent, action, undone in self._rows(_ACTIONS):
            found[agent, action] = found.get((agent, action), False) or bool(undone)
        return found

    def leader(self) -> str:
        """Return the process whose Supervisor leads; "" if none does."""
        return next((holder for (holder,) in self._rows(_LEADER) if holder), "")

    def overdue(self) -> list[int]:
        """Return the tasks that no process will continue."""
        return [id_ for (id_,) in self._rows(_OVERDUE)]

    def final(self) -> Final:
        """Return what the checker needs beside the history: the tasks' rows, and the store's own history of
        each.
        """
        tx = WriteTransaction(self._connection, 0.0, Interner())
        ids_ = [id_ for (id_,) in self._rows("select id from makegood_task order by id")]
        details = [found for id_ in ids_ if (found := reads.detail(tx, id_)) is not None]
        return Final(tasks=details, histories={id_: tx.do(search.history, id_) for id_ in ids_})

    def rest(self) -> dict[str, Any]:
        """Return what the store holds: counts, and rows that should not be there."""
        counted = {
            table: self._rows(f"select count(*) from makegood_{table}")[0][0]  # noqa: S608 - our own tables
            for table in ("task", "inbox", "request")
        }
        orphans = self._rows(
            "select task, idx from makegood_request where task not in (select id from makegood_task) "
            "union all select task, -1 from makegood_inbox where task not in (select id from makegood_task)"
        )
        dead = self._rows(
            "select distinct locked_by from makegood_task where locked_by is not null and locked_by not in "
            "(select id from makegood_node where dead = 0 and stopped_at is null)"
        )
        return {
            "tasks": counted["task"], "orphans": [list(row) for row in orphans], "leases_held_by_dead": [n for (n,) in dead],
            "inbox_rows": counted["inbox"], "request_rows": counted["request"],
        }  # fmt: skip

    # -- what is wrong -----------------------------------------------------------------------------

    def findings(self, world: RestingWorld) -> list[str]:
        """Return what is wrong with a settled world: tasks without end, books that do not balance."""
        wrong: list[str] = list(world.customers.findings)
        tasks = self.tasks()
        removed = {event.task for event in world.history.of("removed")}
        for key, task in world.customers.told.items():
            if task not in tasks and task not in removed:
                wrong.append(f"I12: the acknowledged task {ids.show(task)} ({key}) does not exist")
        if not self.at_rest():
            wrong.append(f"L1: not at rest: {self.rest()}")
        alerted = {
            task for (task,) in self._rows("select distinct task from makegood_alert where task is not null")
        }
        for task, found in tasks.items():
            if found.state not in ("processed", "undone", "error"):
                wrong.append(f"L1: task {ids.show(task)} is {found.state}")
            if found.state == "error" and task not in alerted:
                wrong.append(f"L2: task {ids.show(task)} is in error, and nobody was alerted")
            wrong += self._books(world, task, found)
        return wrong

    def _books(self, world: RestingWorld, task: int, found: TaskAtRest) -> list[str]:
        wrong: list[str] = []
        for name, state, round_, kind in found.steps:
            if kind != "action":
                continue
            for n in range(1, round_ + 1):
                key = ids.key(world.store_id, task, name, n, "do")
                for service in world.services.values():
                    entry = service.books.get(key)
                    if entry is None:
                        continue
                    allowed = _allowed(state, last=n == round_)
                    if entry.net not in allowed:
                        wrong.append(
                            f"L2: task {ids.show(task)} is {found.state}, its step {name} (round {n} of {round_}) is {state}, and at "
                            f"{service.name} {entry.net} of it stand"
                        )
        return wrong


def _allowed(state: str, *, last: bool) -> tuple[int, ...]:
    """Return how many effects of a step in this state may be in place; from earlier rounds, only harmless
    ones.
    """
    if not last:
        return (0, 1)
    return _NET.get(state, (0, 1) if state in STANDING else (0,))


@dataclass(frozen=True, slots=True)
class WorldAtRest:
    """What the eye saw when the world had settled, before the janitor removes old rows."""

    tasks: dict[int, TaskAtRest]
    findings: list[str]
    final: Final

    @classmethod
    def by(cls, eye: Eye, world: RestingWorld) -> Self:
        """Read it now."""
        return cls(eye.tasks(), eye.findings(world), eye.final())
