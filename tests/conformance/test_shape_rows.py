"""Decisions of one shape step are written together, and leave the rows that they would leave one by one."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from makegood import saga
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.shape import HeldTask, Shape
from makegood.model.task import TaskRecord
from makegood.store.protocol import Store
from makegood.store.records import Batch, Committed, Submission
from makegood.store.views import Filter
from tests.conformance.builders import PAYMENTS, agent, draft, offer, reply, scheduler, steps, term
from tests.conformance.worlds import World


class Shop:
    """A Scheduler's work without its loop: tasks of some shapes are born here, and advance in batches."""

    def __init__(self, store: Store, node: int, *, together: bool = True, part: bool = False) -> None:
        self.store = store
        self.node = node
        self.together = together
        self.part = part  # whether only the first of several requests is handed over
        self.held: dict[int, HeldTask] = {}
        self.shared = 0

    async def born(self, *ids: int, plans: Sequence[StepPlan], local: bool = True, **fields: Any) -> None:
        drafts: list[Submission] = []
        shape = Shape(plans)
        for id_ in ids:
            task_draft = draft(id_, steps=shape, holder=self.node, within=60.0, **fields)
            task = TaskRecord(
                id_, task_draft.app, task_draft.workflow, priority=task_draft.priority, epoch=1, within=60.0, inputs=task_draft.inputs, returns=task_draft.returns,
            )  # fmt: skip
            saga.begin(task, shape)  # nothing is kept of a shape that came once only
            memory, first = saga.begin(task, shape)
            assert first is not None
            self.held[id_] = memory
            first.handovers = first.requests if local else ()
            drafts.append(replace(task_draft, first=first))
        await self.store.tasks.submit(drafts)
        for task_draft in drafts:
            assert task_draft.first is not None
            saga.apply(self.held[task_draft.id], task_draft.first)

    async def done(self, *ids: int, idx: int, local: bool = True, value: str = "") -> Committed:
        """Let a step of some tasks be done, in one batch; its results name the task."""
        decisions: list[Decision] = []
        for id_ in ids:
            memory = self.held[id_]
            result = b'{"of":"%d.%d%s"}' % (id_, idx, value.encode("utf-8", "surrogatepass"))
            decision = saga.decide(
                memory, [TaskMessage("done", idx, "do", memory.steps[idx].attempt, result)]
            )
            self.shared += decision.shape_step is not None
            decision.handovers = decision.requests[: 1 if self.part else None] if local else ()
            decisions.append(decision if self.together else replace(decision, shape_step=None))
        outcome = await self.store.tasks.commit(Batch(self.node, decisions))
        for decision in decisions:
            if decision.task.id not in outcome.losses:
                saga.apply(self.held[decision.task.id], decision)
        return outcome


FAN = (
    *steps(1),
    *(replace(s, after=(0,)) for s in steps(3)[1:]),
    replace(steps(4)[3], after=(1, 2)),
)


async def seen(store: Store, ids: Sequence[int], first: int) -> list[object]:
    """Return all that can be seen of tasks and what is waiting for them, ids counted from ``first``, moments left out."""
    rows: list[object] = []
    for id_ in ids:
        detail = await store.tasks.detail(id_)
        assert detail is not None
        task = replace(
            detail.task,
            id=id_ - first,
            created=0.0,
            ended=detail.task.ended and 0.0,
            complete_by=None,
        )
        rows.append(replace(task, result=(task.result or b"").replace(b"%d." % id_, b"_.")))
        for step in detail.steps:
            result = (step.result or b"").replace(b"%d." % id_, b"_.")
            rows.append(replace(step, result=result, due=step.due and 0.0))
        rows += [replace(e, seq=0, task=0, at=0.0) for e in await store.tasks.history(id_)]
    return rows


@pytest.mark.parametrize("plans", [steps(3), FAN], ids=["sequence", "fan"])
async def test_many_leave_what_each_alone_would(store: Store, plans: tuple[StepPlan, ...]) -> None:
    """Tasks of two shapes and three priorities, some before others, all in the same batches."""
    node = await scheduler(store)
    rows: list[list[object]] = []
    for first, together, part in (
        (1000, True, False),
        (2000, False, False),
        (3000, False, True),
        (4000, True, True),
    ):
        shop = Shop(store, node, together=together, part=part)
        ids = range(first, first + 12)
        for n, id_ in enumerate(ids):
            await shop.born(id_, plans=plans, priority=n % 3)
        await shop.done(*ids[:8], idx=0)
        assert shop.shared == 8
        await shop.done(*ids[8:], idx=0)
        for idx in range(1, len(plans)):
            await shop.done(*ids[2:], idx=idx)
        assert {h.task.state for h in shop.held.values()} == {"processing", "processed"}
        rows.append(await seen(store, ids, first))
    assert rows[0] == rows[1]
    assert rows[2] == rows[3]
    for first in (1000, 4000):
        detail = await store.tasks.detail(first)
        assert detail is not None
        takers = [step.taken_by for step in detail.steps if step.state == "running"]
        assert takers == ([node] if len(takers) == 1 else [node, node if first == 1000 else None])
    assert await store.admin.check() == []


async def test_only_what_was_judged_meanwhile_is_lost(store: Store, world: World) -> None:
    """The fence holds for each task, and the others of the batch are written."""
    shop = Shop(store, await scheduler(store, ttl=1000.0))
    await shop.born(1, 2, 3, plans=steps(3))
    await world.elapse(40.0)
    await shop.born(4, 5, plans=steps(3))
    verdict = await store.supervision.judge(await term(store), 0.0, 1)
    assert len(verdict.requests) == 1
    outcome = await shop.done(1, 2, 3, 4, 5, idx=0)
    assert len(outcome.losses) == 1
    for id_ in {1, 2, 3, 4, 5} - outcome.losses:
        detail = await store.tasks.detail(id_)
        assert detail is not None
        assert [s.state for s in detail.steps] == ["done", "running", "waiting"]


async def test_tasks_of_another_are_lost(store: Store) -> None:
    """The lock's epoch is compared for those that go together, too."""
    shop = Shop(store, await scheduler(store))
    await shop.born(1, 2, plans=steps(2))
    shop.node = await scheduler(store)
    outcome = await shop.done(1, 2, idx=0)
    assert outcome.losses == {1, 2}
    (one, _) = await store.tasks.find(Filter(ids=(1, 2)))
    assert one.state == "processing"


async def test_replies_from_the_inbox_are_taken_out_of_it(store: Store) -> None:
    """Of agents of other processes: what is next waits in the store, too."""
    node, bank = await scheduler(store), await agent(store)
    shop = Shop(store, node)
    await shop.born(1, 2, 3, plans=steps(2), local=False)
    for idx in (0, 1):
        requests = await store.requests.take(bank, [offer()])
        assert sorted((r.task, r.idx) for r in requests) == [(1, idx), (2, idx), (3, idx)]
        await store.requests.answer(bank, [reply(r) for r in requests])
        inbox = await store.tasks.inbox(node, 100)
        decisions = [saga.decide(shop.held[id_], messages) for id_, messages in inbox.messages.items()]
        assert all(d.shape_step is not None and d.seqs for d in decisions)
        assert (await store.tasks.commit(Batch(node, decisions))).losses == set()
        for decision in decisions:
            saga.apply(shop.held[decision.task.id], decision)
        assert (await store.tasks.inbox(node, 100)).messages == {}
    assert [view.state for view in await store.tasks.find(Filter(ids=(1, 2, 3)))] == ["processed"] * 3


async def test_what_is_not_handed_over_in_memory_waits_in_the_store(store: Store) -> None:
    shop = Shop(store, await scheduler(store))
    await shop.born(1, 2, 3, plans=steps(2))
    await shop.done(1, 2, idx=0, local=False)
    await shop.done(3, idx=0)
    requests = await store.requests.take(await agent(store), [offer(to=PAYMENTS)])
    assert sorted((r.task, r.idx) for r in requests) == [(1, 1), (2, 1)]


async def test_results_of_all_kinds_come_back_as_they_were(store: Store) -> None:
    """Quotes, zero characters as JSON writes them, letters beyond the first plane: each task gets its own."""
    shop = Shop(store, await scheduler(store))
    texts = ["", "\\u0000", '\\"', "é", "🜁", "x" * 70_000]
    await shop.born(*range(1, len(texts) + 1), plans=steps(2))
    for id_, text in enumerate(texts, 1):
        await shop.done(id_, idx=0, value=text)
    await shop.done(*range(1, len(texts) + 1), idx=1)
    for id_, text in enumerate(texts, 1):
        detail = await store.tasks.detail(id_)
        assert detail is not None
        assert detail.steps[0].result == f'{{"of":"{id_}.0{text}"}}'.encode()
        assert detail.task.state == "processed"


async def test_each_task_returns_by_its_own_template(store: Store) -> None:
    """Tasks of one shape may return other things."""
    shop = Shop(store, await scheduler(store))
    for id_ in (1, 2):
        await shop.born(id_, plans=steps(1), returns=Template((f'"{id_}"',)))
    await shop.done(1, 2, idx=0)
    for id_ in (1, 2):
        (view,) = await store.tasks.find(Filter(ids=(id_,), results=True))
        assert view.result == b'"%d"' % id_
