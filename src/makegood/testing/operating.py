"""The operator of a world: cancels, undoes, resubmits and settles, sensibly and not, and looks at the services before settling."""

import random
from typing import Any, Protocol

from makegood import ids
from makegood.errors import MakegoodError
from makegood.handle import TaskHandle
from makegood.store.records import StepView
from makegood.testing.history import History
from makegood.testing.loop import Loop
from makegood.testing.members import Member
from makegood.testing.services import Service

_PATIENCE = 20.0


class Office(Protocol):
    """What of a world its operator needs."""

    loop: Loop
    history: History
    members: dict[str, Member]
    services: dict[str, Service]
    store_id: str
    customers: Any


class Operator:
    """Acts at random on tasks that were submitted. ``idle``: whether no act is under way."""

    def __init__(self, world: Office, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._acts = 0

    @property
    def idle(self) -> bool:
        """Whether no act is under way."""
        return self._acts == 0

    def act(self) -> None:
        """Begin an act on one of the tasks, if there is one."""
        member = self._world.members["operator"]
        tasks = list(self._world.customers.told.values())
        if member.client is None or not tasks:
            return
        handle = member.client.task(self._rng.choice(tasks))
        kind = self._rng.choice(("cancel", "undo", "resubmit", "resubmit", "settle", "settle"))
        self._acts += 1
        self._world.loop.create_task(self._do(handle, kind), context=member.process.context.copy())

    async def _do(self, handle: TaskHandle[Any], kind: str) -> None:
        try:
            if kind == "settle":
                await self._settle(handle)
            else:
                await getattr(handle, kind)(who="operator", why="at random", timeout=_PATIENCE)
        except (MakegoodError, TimeoutError):
            pass  # refused, or nobody answered in time: the history knows
        finally:
            self._acts -= 1

    async def _settle(self, handle: TaskHandle[Any]) -> None:
        """State the truth about a step in doubt of a task in error, or take its effect back by hand."""
        detail = await handle.status()
        if detail.task.state != "error":
            return
        for step in detail.steps:
            if step.kind != "action" or step.state not in ("in_doubt", "undo_failed"):
                continue
            key = ids.key(self._world.store_id, handle.number, step.name, step.round, "do")
            if not self._quiet(handle.number, key):
                return
            await self._state(handle, step, key)
            return

    async def _state(self, handle: TaskHandle[Any], step: StepView, key: str) -> None:
        at = [service for service in self._world.services.values() if key in service.books]
        if step.state == "undo_failed":
            for service in at:
                service.take_back(key, handle.number)
            await handle.settle(
                step.name, outcome="undone", who="operator", why="taken back", timeout=_PATIENCE
            )
        elif any(service.standing(key) for service in at):
            value = next((service.books[key].answer for service in at if service.standing(key)), None)
            await handle.settle(
                step.name, outcome="done", value=value, who="operator", why="it stands", timeout=_PATIENCE
            )
        else:
            await handle.settle(
                step.name, outcome="failed", who="operator", why="nothing stands", timeout=_PATIENCE
            )

    def _quiet(self, task: int, key: str) -> bool:
        """Whether nothing can arrive at a service any more: no call on the wire, no process that runs an attempt."""
        if any(service.under_way.get(key) for service in self._world.services.values()):
            return False
        for member in self._world.members.values():
            node = member.node
            if member.up and node is not None and node.agents is not None and task in node.agents.tasks():
                return False
        return True
