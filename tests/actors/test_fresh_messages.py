"""What a Scheduler takes without reading it, and what it leaves in the inbox: nothing is decided twice, or before what came first."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from makegood.model.messages import FreshMessage, TaskMessage
from makegood.node.node import Node
from makegood.scheduler.scheduler import Scheduler
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.actors.test_suspension import BOTH, asleep
from tests.actors.test_waiting_costs import Shop, waits
from tests.conformance.worlds import eventually

Take = Callable[[FreshMessage], bool]


class Desk:
    """A Node whose Scheduler holds a task that waits, or has let it go; ``take``: its receiver."""

    def __init__(self, node: Node, task: int, take: Take) -> None:
        assert node._scheduler is not None
        self.scheduler: Scheduler = node._scheduler
        self.task = task
        self._take = take

    def offer(self, seq: int = 1_000_000, **changes: Any) -> bool:
        """Offer a message that does nothing; returns whether it was taken."""
        values = {"task": self.task, "node": self.scheduler.tasks.node, **changes}
        return self._take(FreshMessage(message=TaskMessage("retry", 0, seq=seq), **values))


@pytest.fixture
def takes(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[Take]:
    """The receivers of Schedulers on the store."""
    receivers: list[Take] = []

    def receive(take: Take) -> Callable[[], None]:
        receivers.append(take)
        return lambda: receivers.remove(take)

    monkeypatch.setattr(store, "receive", receive)
    return receivers


async def test_a_scheduler_takes_messages_for_tasks_that_it_holds_and_has_nothing_else_to_decide_for(
    store: Store, takes: list[Take]
) -> None:
    shop, options = Shop(), replace(QUIET, linger=1e9)
    async with Node(shop.app, store, roles=BOTH, options=options) as node:
        task = await node.client.submit(shop.approved, "a")
        await waits(task)
        desk = Desk(node, task.number, takes[0])
        tasks, turns = desk.scheduler.tasks, desk.scheduler.turns
        await eventually(
            lambda: task.number in tasks.in_memory and tasks.in_memory[task.number].steps[0].waiting,
            "its memory to follow",
        )
        assert not desk.offer(node=tasks.node + 1)
        assert not desk.offer(task=task.number + 1)
        turns.last_used = 7
        assert not desk.offer(seq=7)
        tasks.reload.add(task.number)
        assert not desk.offer()
        tasks.reload.clear()
        assert desk.offer(seq=8)
        assert [message.seq for message in tasks.messages[task.number]] == [8]
        assert not desk.offer(seq=9)
        tasks.messages.clear()
    assert takes == []


async def test_a_scheduler_claims_a_task_at_rest_unless_it_holds_it_or_is_to_stop(
    store: Store, takes: list[Take]
) -> None:
    shop = Shop()
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.approved, "a")
        await asleep(node)
        desk = Desk(node, task.number, takes[0])
        tasks, claims = desk.scheduler.tasks, desk.scheduler.turns.claims
        await eventually(lambda: desk.offer(node=None), "its commit to be over")
        assert claims.at_rest == [task.number]
        claims.open = False
        assert not desk.offer(node=None)
        claims.open = True
        tasks.in_memory[task.number] = tasks.in_memory.get(task.number, None)  # type: ignore[assignment]  # only whether it is there counts
        assert not desk.offer(node=None)
        del tasks.in_memory[task.number]
