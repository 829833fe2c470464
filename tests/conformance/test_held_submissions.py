"""A task that is submitted beside a Scheduler is held by it from the beginning: nobody claims it, its first Decision is fenced."""

import asyncio

from msgspec.structs import replace

from makegood.model.decision import OpenDecision
from makegood.store.protocol import Store
from makegood.store.records import Submitted
from makegood.store.views import Filter, TaskView
from tests.conformance.builders import Hand, Memory, begin, draft, hand, term, to_state
from tests.conformance.worlds import World


async def view(store: Store, task: int) -> TaskView:
    """Return one task."""
    (task_view,) = await store.tasks.find(Filter(ids=(task,)))
    return task_view


async def born(store: Store, *ids: int, ttl: float = 60.0, within: float | None = None) -> Hand:
    """Submit tasks that a Scheduler by hand holds from the beginning."""
    scheduler = await hand(store, ttl=ttl)
    await store.tasks.submit([draft(id_, holder=scheduler.node, within=within) for id_ in ids])
    for snapshot in await store.tasks.load(scheduler.node, ids):
        scheduler.tasks[snapshot.task.id] = Memory(snapshot.task, {s.idx: s for s in snapshot.steps})
    return scheduler


async def test_it_is_pending_under_its_holders_lock_and_nobody_claims_it(store: Store, other: Store) -> None:
    scheduler = await born(store, 1)
    task = await view(store, 1)
    assert (task.state, task.locked_by, task.epoch) == ("pending", scheduler.node, 1)
    assert await (await hand(other)).claim(10) == []
    assert await scheduler.claim(10) == []


async def test_its_first_decision_needs_no_claim_and_starts_its_time(store: Store) -> None:
    scheduler = await born(store, 1, 2, within=600.0)
    outcome = await scheduler.commit(
        begin(scheduler[1], decision=_timed(scheduler[1])), begin(scheduler[2], decision=_timed(scheduler[2]))
    )
    assert outcome.losses == set()
    now = await store.now()
    for task in (1, 2):
        task_view = await view(store, task)
        assert (task_view.state, task_view.locked_by, task_view.epoch) == ("processing", scheduler.node, 1)
        assert task_view.complete_by is not None
        assert 590.0 < task_view.complete_by - now <= 600.0
    end = await scheduler.commit(to_state(scheduler[1], "error", cause="x", goal="hold"))
    assert end.losses == set()
    assert (await view(store, 1)).locked_by is None


def _timed(memory: Memory) -> OpenDecision:
    """Return a Decision in which the task's time has begun, as the rules make it of a claim."""
    return OpenDecision(memory.task, replace(memory.task, timed=True))


async def test_a_cancel_before_its_first_decision_starts_its_time_too(store: Store) -> None:
    scheduler = await born(store, 1, within=600.0)
    decision = to_state(
        scheduler[1], "undoing", _timed(scheduler[1]), release=False, goal="undo", cause="cancelled"
    )
    await scheduler.commit(decision)
    task = await view(store, 1)
    assert (task.state, task.complete_by is not None) == ("undoing", True)


async def test_a_key_that_is_taken_leaves_the_task_that_has_it_alone(store: Store) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, key="k")])
    answers = await store.tasks.submit(
        [
            draft(2, key="k", holder=scheduler.node),
            draft(3, holder=scheduler.node),
            draft(3),
            draft(4, key="k"),
        ]
    )
    assert [a.is_new for a in answers] == [False, True, False, False]
    assert answers[0] == Submitted(1, is_new=False)
    assert answers[2].key_collision
    assert (await view(store, 1)).locked_by is None
    assert (await view(store, 3)).locked_by == scheduler.node
    assert await scheduler.claim(10) == [1]


async def test_when_its_holder_dies_first_it_is_freed_and_claimed_as_ever(store: Store, world: World) -> None:
    await born(store, 1, ttl=5.0)
    await world.elapse(10.0)
    assert await store.supervision.release_dead(await term(store), 10) == [1]
    task = await view(store, 1)
    assert (task.state, task.locked_by) == ("pending", None)
    heir = await hand(store)
    assert await heir.claim(10) == [1]
    assert (await view(store, 1)).epoch == 2


async def test_a_decision_of_the_dead_holder_is_lost(store: Store, world: World) -> None:
    scheduler = await born(store, 1, ttl=5.0)
    await world.elapse(10.0)
    await store.supervision.release_dead(await term(store), 10)
    heir = await hand(store)
    await heir.claim(10)
    outcome = await scheduler.commit(begin(scheduler[1]))
    assert outcome.losses == {1}


async def test_nobody_is_woken_for_it(store: Store) -> None:
    """What is rung for comes in order, so the ring for the second task is the first that is heard."""
    bell = asyncio.Event()
    counts: list[int] = []

    def ring() -> None:
        counts.append(len(submissions))
        bell.set()

    submissions: list[int] = []
    stop = store.subscribe("pending", ring)
    await born(store, 1)
    submissions.append(1)
    await store.tasks.submit([draft(2)])
    submissions.append(2)
    async with asyncio.timeout(60):
        await bell.wait()
    assert counts[0] >= 1, "the ring is for the task that must be claimed"
    stop()
