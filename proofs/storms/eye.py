"""A storm's view of the store's file: beside what every world looks at, notices, old rows and the leader."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from makegood.base import ids
from makegood.model.task import STANDING
from makegood.testing.history import History
from makegood.testing.simulator.quiescence import Eye, TaskAtRest
from proofs.storms.services import StormService
from proofs.storms.surroundings import Around

_NET = {"done": (1,), "undone": (0,), "waiting": (0,), "skipped": (0,), "failed": (0,)}
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
_UNDER_WAY = """
select exists (select 1 from makegood_task where state not in ('queued', 'processed', 'undone', 'error') or locked_by is not null)
    or exists (select 1 from makegood_inbox) or exists (select 1 from makegood_request)
    or exists (select 1 from makegood_message where state = 'waiting' and task is null)
"""
_IN_THE_WAY = """
select exists (select 1 from makegood_lane l join makegood_task t on t.id = l.task where l.state = 'held' and t.state = 'error')
"""
_TO_FIRE = (
    "select exists (select 1 from makegood_schedule where next_at is not null or buffer_at is not null)"
)
_LEADER = "select holder from makegood_lease where name = 'makegood/supervisor'"


class SettledStorm(Protocol):
    """The parts of a world that are checked when it has settled."""

    store_id: str
    customers: Any
    history: History

    @property
    def services(self) -> Mapping[str, StormService]:
        """Its remote services, by name."""
        ...


class StormEye(Eye):
    """Reads the file of a storm's store. ``around``: its surroundings, if it has any."""

    def __init__(self, path: Path, around: Around | None) -> None:
        super().__init__(path)
        self._around = around

    def busy(self) -> bool:
        """Whether a task has not ended, something is in flight, or a schedule has moments to come."""
        return super().busy() or bool(self.rows(_TO_FIRE)[0][0])

    def at_rest(self) -> bool:
        """Whether every task has ended and nothing is in flight, neither requests nor notices."""
        return super().at_rest() and self.all_are_told()

    def in_error(self) -> bool:
        """Whether a task waits for an operator."""
        return bool(self.rows(_IN_ERROR)[0][0])

    def waits_for_release(self) -> bool:
        """Whether only tasks that wait for lanes are left, and a task in error has lanes."""
        return bool(self.rows(_IN_THE_WAY)[0][0]) and not self.rows(_UNDER_WAY)[0][0]

    def all_are_told(self) -> bool:
        """Whether no notice is in flight."""
        return self._around is None or not self.rows(_UNTOLD)[0][0]

    def leader(self) -> str:
        """Return the process whose Supervisor leads; "" if none does."""
        return next((holder for (holder,) in self.rows(_LEADER) if holder), "")

    def overdue(self) -> list[int]:
        """Return the tasks that no process will continue."""
        return [id_ for (id_,) in self.rows(_OVERDUE)]

    # -- what is wrong -----------------------------------------------------------------------------

    def findings(self, world: SettledStorm) -> list[str]:
        """Return what is wrong with a settled world: tasks without end, books that do not balance."""
        wrong: list[str] = list(world.customers.findings)
        tasks = self.tasks()
        removals = {event.task for event in world.history.of("removed")}
        for key, task in world.customers.acks.items():
            if task not in tasks and task not in removals:
                wrong.append(f"I12: the acknowledged task {ids.show(task)} ({key}) does not exist")
        if not self.at_rest():
            wrong.append(f"L1: not at rest: {self.rest()}")
        alerts = {
            task for (task,) in self.rows("select distinct task from makegood_alert where task is not null")
        }
        for task, rest in tasks.items():
            if rest.state not in ("processed", "undone", "error"):
                wrong.append(f"L1: task {ids.show(task)} is {rest.state}")
            if rest.state == "error" and task not in alerts:
                wrong.append(f"L2: task {ids.show(task)} is in error, and nobody was alerted")
            wrong += self._books(world, task, rest)
        return wrong

    def _books(self, world: SettledStorm, task: int, rest: TaskAtRest) -> list[str]:
        wrong: list[str] = []
        for name, state, round_, kind in rest.steps:
            if kind != "action":
                continue
            for n in range(1, round_ + 1):
                key = ids.key(world.store_id, task, name, n, "do")
                for service in world.services.values():
                    entry = service.books.get(key)
                    if entry is None:
                        continue
                    counts = _allowed(state, last=n == round_)
                    if entry.net not in counts:
                        wrong.append(
                            f"L2: task {ids.show(task)} is {rest.state}, its step {name} (round {n} of {round_}) is {state}, and at "
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
