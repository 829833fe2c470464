"""Claims and looks into the inbox in bytes: large values are read only when there is room for them, and read whole."""

import pytest
from msgspec.structs import replace

from makegood.model.messages import Act, TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.store.protocol import Store
from makegood.store.records import Batch, Claim, Loaded
from makegood.store.rows import INLINE
from tests.conformance.builders import (
    Hand,
    agent,
    done,
    draft,
    hand,
    offer,
    reply,
    running,
    steps,
    term,
    to_state,
)
from tests.conformance.worlds import World

LARGE = b'"' + b"x" * 100_000 + b'"'


async def claim(scheduler: Hand, limit: int, room: int, at_rest: tuple[int, ...] = ()) -> list[int]:
    """Claim with a limit in bytes."""
    return await scheduler.claim(limit, at_rest=at_rest, room=room)


async def test_no_more_is_claimed_than_there_is_room_for_and_the_order_stays(store: Store) -> None:
    await store.tasks.submit([draft(n, inputs=(LARGE,)) for n in range(1, 5)])
    await store.tasks.submit([draft(9, inputs=(LARGE,), priority=9)])
    scheduler = await hand(store)
    assert await claim(scheduler, 10, 250_000) == [9, 1]
    assert scheduler.committed.more
    assert scheduler.committed.left
    assert [snapshot.task.inputs for snapshot in scheduler.seen] == [(LARGE,), (LARGE,)]
    assert await claim(scheduler, 10, 250_000) == [2, 3]
    assert await claim(scheduler, 10, 250_000) == [4]
    assert (scheduler.committed.more, scheduler.committed.left) == (False, False)


async def test_the_first_task_is_claimed_whatever_its_size(store: Store) -> None:
    """Otherwise it, and all behind it, would wait for ever."""
    await store.tasks.submit([draft(1, inputs=(LARGE,) * 3), draft(2), draft(3, inputs=(LARGE,)), draft(4)])
    scheduler = await hand(store)
    assert await claim(scheduler, 10, 1) == [1]
    assert await claim(scheduler, 10, 1) == [2]
    assert await claim(scheduler, 10, 1) == [3]
    assert await claim(scheduler, 10, 1) == [4]


async def test_what_is_not_claimed_for_want_of_room_is_another_schedulers(store: Store, other: Store) -> None:
    await store.tasks.submit([draft(n, inputs=(LARGE,), within=60.0) for n in (1, 2)])
    first, second = await hand(store), await hand(other)
    assert await claim(first, 10, 1) == [1]
    assert await claim(second, 10, 1) == [2]
    assert second.seen[-1].task.epoch == 1


@pytest.mark.parametrize("size", [INLINE - 2, INLINE, INLINE + 1, 100_000])
async def test_large_values_are_read_as_they_are(store: Store, other: Store, world: World, size: int) -> None:
    """Inputs, the texts of a plan, results, late results and messages, by whoever takes over; ``load`` as well."""
    value = b'"' + b"v" * (size - 2) + b'"'
    plans = (
        StepPlan(0, "action", "s0", "payments", "act0", Template((value.decode(),))),
        *steps()[1:],
    )
    old = await running(store, 1, inputs=(value, b"1"), steps=plans, returns=Template(('"', value.decode())))
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    await old.commit(done(old[1], 0, value=value))
    await store.tasks.submit([draft(2)])
    await store.tasks.post(1, TaskMessage("resubmit", value=value, act=Act("a")))
    (mine,) = await store.tasks.load(old.node, [1])
    await world.elapse(61)
    await store.supervision.release_dead(await term(store), 10)
    new = await hand(other)
    assert sorted(await claim(new, 10, 10_000_000)) == [1, 2]
    (other_claim,) = [snapshot for snapshot in new.seen if snapshot.task.id == 1]
    for snapshot in (mine, other_claim):
        assert snapshot.task.inputs == (value, b"1")
        assert snapshot.task.returns == Template(('"', value.decode()))
        assert snapshot.steps[0].result == value
        assert snapshot.steps[0].plan == plans[0]
        assert [m.value for m in snapshot.messages if m.kind == "resubmit"] == [value]
    assert request.args
    assert [step.plan for step in other_claim.steps] == list(plans)


async def test_results_of_steps_and_messages_count_as_well_as_inputs(store: Store, world: World) -> None:
    """A task that is taken over late in its life is not read because its inputs are small."""
    old = await running(store, 1, 2, 3)
    await old.commit(done(old[1], 0, value=LARGE), done(old[2], 0, value=LARGE))
    await store.tasks.post(3, TaskMessage("resubmit", value=LARGE, act=Act("a")))
    await world.elapse(61)
    await store.supervision.release_dead(await term(store), 10)
    new = await hand(store)
    ids: list[int] = []
    for _ in range(3):
        (one,) = await claim(new, 10, 1)
        ids.append(one)
    assert sorted(ids) == [1, 2, 3]


async def test_tasks_at_rest_have_no_more_room_than_others(store: Store) -> None:
    """An operator who resubmits a thousand of them at once does not bring them all into memory."""
    scheduler = await running(store, 1, 2, 3, inputs=(LARGE,))
    await scheduler.commit(*(to_state(scheduler[n], "error") for n in (1, 2, 3)))
    for n in (1, 2, 3):
        await store.tasks.post(n, TaskMessage("cancel", act=Act(f"a{n}")))
    another = await hand(store)
    left = {1, 2, 3}
    for _ in range(3):
        (one,) = await claim(another, 0, 1, tuple(sorted(left)))
        assert another.committed.left == (len(left) > 1)
        left.remove(one)


async def test_a_large_result_of_a_task_at_rest_is_read_as_it_is(store: Store) -> None:
    scheduler = await running(store, 1)
    end = to_state(scheduler[1], "processed")
    end.task = replace(end.task, result=LARGE)
    await scheduler.commit(end)
    await store.tasks.post(1, TaskMessage("undo", act=Act("a")))
    snapshots: list[Loaded] = []

    def look(rows: object) -> list[object]:
        snapshots.extend(rows)  # type: ignore[arg-type]
        return []

    batch = Batch(scheduler.node, claim=Claim(0, (1,), 10), decide=look)  # type: ignore[arg-type]
    await store.tasks.commit(batch)
    assert [snapshot.task.result for snapshot in snapshots] == [LARGE]


async def test_the_inbox_is_read_in_portions(store: Store) -> None:
    """A thousand replies of a megabyte are not read at once; the rest is there for the next look."""
    scheduler = await running(store, 1, 2, 3)
    payments = await agent(store)
    requests = await store.requests.take(payments, [offer()])
    assert all(await store.requests.answer(payments, [reply(request, value=LARGE) for request in requests]))
    inbox = await store.tasks.inbox(scheduler.node, 10, 150_000)
    assert (len(inbox.messages), inbox.more) == (2, True)
    assert all(m.value == LARGE for messages in inbox.messages.values() for m in messages)
    assert len((await store.tasks.inbox(scheduler.node, 10, 1)).messages) == 1
    everything = await store.tasks.inbox(scheduler.node, 10)
    assert (len(everything.messages), everything.more) == (3, False)
    assert (await store.tasks.inbox(scheduler.node, 2)).more
