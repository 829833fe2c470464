"""When the first request under a key was taken is known from then on, whoever asks and whatever became of it."""

import pytest
from msgspec.structs import replace

from makegood.model.decision import OpenDecision
from makegood.model.messages import Act, TaskMessage
from makegood.model.task import Step, TaskRecord
from makegood.store.protocol import Store
from tests.conformance.builders import (
    Hand,
    Memory,
    agent,
    begin,
    draft,
    hand,
    offer,
    running,
    term,
    unchanged,
)
from tests.conformance.worlds import World

AT = 1_790_000_000.125
"""A point in time that no binary fraction rounds."""


def waits(memory: Memory, first_sent: float) -> OpenDecision:
    """Let the first step wait for a retry."""
    decision = unchanged(memory)
    decision.steps[0] = replace(
        memory.steps[0], state="in_doubt", doing=None, doubt=True, first_sent=first_sent, waiting=True
    )
    decision.timers[0] = 60.0
    return decision


async def loaded(store: Store, scheduler: Hand) -> Step:
    """Return the first step of the first task as a Scheduler would read it now."""
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    return snapshot.steps[0]


async def test_the_store_keeps_it_with_the_step(store: Store) -> None:
    scheduler = await running(store, 1)
    assert (await loaded(store, scheduler)).first_sent == 0.0
    await scheduler.commit(waits(scheduler[1], AT))
    assert (await loaded(store, scheduler)).first_sent == AT


async def test_a_request_that_waited_is_first_sent_when_it_is_taken_for_good(
    store: Store, world: World
) -> None:
    await running(store, 1)
    node = await agent(store)
    await world.elapse(40)
    (early,) = await store.requests.take(node, [offer()])
    await store.requests.give_back(node, [(1, 0, 1)])
    await world.elapse(40)
    (request,) = await store.requests.take(node, [offer()])
    assert request.first_sent == pytest.approx(await store.now(), abs=30.0)
    assert early.first_sent > 0
    assert request.waited == pytest.approx(80.0, abs=30.0)


async def test_a_later_request_has_the_time_of_the_first(store: Store) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(1)])
    await scheduler.claim(1, lambda memory: begin(memory, first_sent=AT))
    (request,) = await store.requests.take(await agent(store), [offer()])
    assert request.first_sent == AT


async def test_silence_tells_when_its_request_was_taken_from_the_store(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    (request,) = await store.requests.take(await agent(store, ttl=1e6), [offer()])
    await world.elapse(40)
    await store.supervision.judge(await term(store), 2.0, 10)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert [m.kind for m in snapshot.messages] == ["expired"]
    # where the clock is the server's, all that is recorded is older
    assert snapshot.messages[0].first_sent in (request.first_sent, request.first_sent - 40)


@pytest.mark.parametrize("born_held", [False, True])
async def test_silence_tells_when_its_request_was_handed_over(
    store: Store, world: World, *, born_held: bool
) -> None:
    scheduler = await hand(store)

    def first(memory: Memory) -> OpenDecision:
        decision = begin(memory)
        decision.handovers, decision.handed_at = decision.requests, AT
        return decision

    if born_held:
        task = draft(1)
        record = TaskRecord(1, "shop", "place_order", epoch=1, within=None, returns=task.returns)
        memory = Memory(record, {plan.idx: Step(plan) for plan in task.steps})
        await store.tasks.submit([replace(task, holder=scheduler.node, first=first(memory))])
    else:
        await store.tasks.submit([draft(1)])
        await scheduler.claim(1, first)
    await world.elapse(40)
    await store.supervision.judge(await term(store), 2.0, 10)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert [m.kind for m in snapshot.messages] == ["expired"]
    assert snapshot.messages[0].first_sent in (AT, AT - 40)


async def test_a_task_that_is_put_to_error_keeps_it(store: Store) -> None:
    scheduler = await running(store, 1)
    (request,) = await store.requests.take(await agent(store), [offer()])
    await store.tasks.put_to_error(scheduler.node, 1, "unreadable")
    await store.tasks.post(1, TaskMessage("undo"))
    await scheduler.claim(0, unchanged, at_rest=[1])
    step = scheduler.seen[0].steps[0]
    assert (step.state, step.first_sent) == ("in_doubt", request.first_sent)


async def test_a_generation_that_begins_does_not_take_a_request_for_new(store: Store) -> None:
    """It may have been taken in the stretch that is lost: not later than it was sent."""
    await running(store, 1)
    await store.admin.begin_generation(Act("a"))
    again = await hand(store)
    await again.claim(1, unchanged)
    (message,) = again.seen[0].messages
    assert message.kind == "expired"
    assert message.first_sent == pytest.approx(await store.now(), abs=30.0)


async def test_the_clock_is_the_stores(store: Store) -> None:
    await hand(store)
    before = await store.now()
    clock = store.tasks.clock()
    assert before - 1.0 <= clock <= await store.now() + 1.0
