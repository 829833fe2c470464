"""The operator of a world: cancels, undoes, resubmits, settles, extends and wakes, one task or many, sensibly
or not; checks the services before settling.
"""

import asyncio
import random
from typing import Any, Protocol

from makegood.base import ids
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.errors import ActRefusedError, StoreUnavailableError, TaskNotFoundError, WaitExpiredError
from makegood.model.states import TaskState
from makegood.store.oversight_records import BulkKind
from makegood.store.step_down import LEADER
from makegood.store.views import Filter, StepView
from makegood.testing.history import History
from makegood.testing.simulator.loop import WorldLoop
from makegood.testing.simulator.members import FleetMember
from proofs.storms.acts import Acts
from proofs.storms.services import StormService
from proofs.storms.swarm import StormSwarm

_PATIENCE = 20.0
_MOST_SETTLED = 10


class Office(Protocol):
    """The parts of a world that its operator needs."""

    loop: WorldLoop
    history: History
    members: dict[str, FleetMember]
    services: dict[str, StormService]
    store_id: str
    customers: Any
    swarm: StormSwarm


class RandomOperator(Acts):
    """Acts at random on submitted tasks."""

    def __init__(self, world: Office, rng: random.Random) -> None:
        super().__init__(world, "an operator's act")
        self._world = world
        self._rng = rng

    def act(self) -> None:
        """Start an act on one of the tasks, if there is one."""
        member = self._world.members["operator"]
        tasks = list(self._world.customers.acks.values())
        if member.client is None or not tasks:
            return
        self._begin(self._one(member.client, self._rng.choice(tasks)))

    def tidy(self) -> None:
        """Start to go through all tasks in error: settle steps in doubt, then undo the task or resubmit
        it.
        """
        client = self._world.members["operator"].client
        if client is not None:
            self._begin(self._all(client))

    def release_all(self) -> None:
        """Start to release the lanes of all tasks in error."""
        client = self._world.members["operator"].client
        if client is not None:
            self._begin(self._release_all(client))

    async def _release_all(self, client: Client) -> None:
        for view in await client.find(Filter(states=("error",), limit=100)):
            await self._do(client.task(view.id), "release_lane")

    async def _one(self, client: Client, task: int) -> None:
        """Do something to a task: mostly to one in error, if there is one."""
        kinds: tuple[str, ...] = ("cancel", "cancel", "undo", "resubmit", "extend", "bulk")
        has_sleepers = self._world.swarm.delayed > 0  # a world without them stays as it was
        kinds = (*kinds, "wake", "wake") if has_sleepers else kinds
        has_lanes = self._world.swarm.laned > 0
        kind = self._rng.choice((*kinds, "release_lane", "release_lane") if has_lanes else kinds)
        if kind == "bulk":
            await self._many(client)
            return
        states: tuple[TaskState, ...] = (
            ("sleeping",)
            if kind == "wake"
            else ("error",)
            if kind == "release_lane"
            else ("pending", "sleeping", "processing", *(("queued",) if has_lanes else ()))
            if kind in ("cancel", "extend")
            else ("error", "undone")
        )
        if self._rng.random() < 0.8:  # Otherwise any act, sensible or not.
            try:
                tasks = await client.find(Filter(states=states, limit=10))
            except StoreUnavailableError:
                return
            if tasks:
                view = self._rng.choice(tasks)
                task = view.id
                if view.state == "error" and kind != "release_lane":
                    acts = ("settle", "settle", "resubmit", "undo")
                    kind = self._rng.choice((*acts, "release_lane", "release_lane") if has_lanes else acts)
        await self._do(client.task(task), kind)

    async def _many(self, client: Client) -> None:
        """Let the leading Supervisor send a command to some tasks; now and then stop it, or ask the leader to
        step down.
        """
        kinds: tuple[BulkKind, ...] = ("cancel", "undo", "resubmit")
        kind = self._rng.choice(kinds)
        states: tuple[TaskState, ...] = ("pending", "processing") if kind == "cancel" else ("error", "undone")
        for service in self._world.services.values():
            service.keep()
        try:
            bulk = await client.bulk(
                kind, Filter(states=states), who="operator", why="at random", limit=self._rng.randint(1, 4)
            )
        except StoreUnavailableError:
            return
        try:
            if self._rng.random() < 0.3:
                await client.stop_bulk(bulk.id, who="operator", why="at random")
            leads = await client.store.leases.read(LEADER)
            if leads is not None and self._rng.random() < 0.3:
                await client.step_down(epoch=leads.epoch, who="operator", why="at random")
        except (ActRefusedError, StoreUnavailableError):
            pass
        await self._ended_bulk(client, bulk.id)

    async def _ended_bulk(self, client: Client, name: str) -> None:
        """Wait until all of it is decided: only then has the world come to rest."""
        while True:
            try:
                if (await client.bulk_act(name)).ended is not None:
                    return
            except StoreUnavailableError:
                pass
            await asyncio.sleep(1.0)

    async def _all(self, client: Client) -> None:
        for view in sorted(await client.find(Filter(states=("error",), limit=100)), key=lambda view: view.id):
            handle = client.task(view.id)
            for _ in range(_MOST_SETTLED):
                if not await self._settle(handle):
                    break
            if self._world.swarm.laned > 0 and self._rng.random() < 0.5:
                await self._do(handle, "release_lane")
            await self._do(handle, self._rng.choice(("resubmit", "undo")))

    async def _do(self, handle: TaskHandle[Any], kind: str) -> None:
        for service in self._world.services.values():
            service.keep(handle.number)
        try:
            if kind == "settle":
                await self._settle(handle)
            elif kind == "extend":
                await handle.extend(60.0, who="operator", why="at random", timeout=_PATIENCE)
            else:
                await getattr(handle, kind)(who="operator", why="at random", timeout=_PATIENCE)
        except (ActRefusedError, WaitExpiredError, StoreUnavailableError):
            return  # The history has it.
        except TaskNotFoundError:
            if not any(event.task == handle.number for event in self._world.history.of("removed")):
                raise

    async def _settle(self, handle: TaskHandle[Any]) -> bool:
        """State the truth about a step in doubt of a task in error, or take its effect back by hand; False if
        there is none.
        """
        detail = await handle.status()
        if detail.task.state != "error":
            return False
        for step in detail.steps:
            if step.kind != "action" or step.state not in ("in_doubt", "undo_failed"):
                continue
            key = ids.key(self._world.store_id, handle.number, step.name, step.round, "do")
            if not self._quiet(handle.number, key):
                return False
            try:
                await self._state(handle, step, key)
            except ActRefusedError:
                return False
            return True
        return False

    async def _state(self, handle: TaskHandle[Any], step: StepView, key: str) -> None:
        at = [service for service in self._world.services.values() if key in service.books]
        if step.state == "undo_failed":
            for service in at:
                service._take_back(key, handle.number)
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
        """Whether nothing can reach a service any more: no call on the wire, no process that runs an
        attempt.
        """
        if any(service._under_way.get(key) for service in self._world.services.values()):
            return False
        for member in self._world.members.values():
            node = member.node
            if member.up and node is not None and node._agents is not None and task in node._agents.tasks():
                return False
        return True
