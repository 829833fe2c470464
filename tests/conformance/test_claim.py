"""Claiming: who gets which task, and what the claim does in the transaction of the task's first Decision."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from makegood.model.decision import Decision
from makegood.model.messages import Act, TaskMessage
from makegood.model.shape import HeldTask
from makegood.store.protocol import Store
from makegood.store.records import Batch, Claim, Loaded
from makegood.store.views import Filter, TaskView
from tests.conformance.builders import (
    Memory,
    agent,
    begin,
    done,
    draft,
    hand,
    info,
    offer,
    running,
    term,
    to_state,
)
from tests.conformance.worlds import World


async def view(store: Store, task: int) -> TaskView:
    """Return one task."""
    (task_view,) = await store.tasks.find(Filter(ids=(task,)))
    return task_view


async def test_the_highest_priority_comes_first_then_who_waits_longest(store: Store) -> None:
    await store.tasks.submit([draft(5), draft(3, priority=9), draft(8)])
    await store.tasks.submit([draft(1), draft(2, priority=9), draft(9, priority=4)])
    scheduler = await hand(store)
    assert await scheduler.claim(10) == [3, 2, 9, 5, 8, 1]


async def test_at_most_limit_are_claimed_and_more_tells_of_the_others(store: Store) -> None:
    await store.tasks.submit([draft(n) for n in range(1, 6)])
    scheduler = await hand(store)
    assert await scheduler.claim(2) == [1, 2]
    assert scheduler.committed.more
    assert await scheduler.claim(2) == [3, 4]
    assert scheduler.committed.more
    assert await scheduler.claim(2) == [5]
    assert not scheduler.committed.more
    assert await scheduler.claim(2) == []


async def test_a_claimed_task_is_locked_under_a_raised_epoch_and_shown_as_it_was(store: Store) -> None:
    await store.tasks.submit([draft(1)])
    scheduler = await hand(store)
    await scheduler.claim(1)
    (snapshot,) = scheduler.seen
    assert (snapshot.task.state, snapshot.task.epoch) == ("pending", 1)
    task = await view(store, 1)
    assert (task.state, task.locked_by, task.epoch) == ("processing", scheduler.node, 1)


async def test_a_locked_task_is_not_claimed(store: Store) -> None:
    await running(store, 1)
    assert await (await hand(store)).claim(10) == []


async def test_two_schedulers_share_the_tasks_and_none_goes_to_both(store: Store, other: Store) -> None:
    await store.tasks.submit([draft(n) for n in range(1, 201)])
    first, second = await hand(store), await hand(other)

    async def all_of(scheduler: object) -> list[int]:
        ids: list[int] = []
        while batch := await scheduler.claim(7):  # type: ignore[attr-defined]
            ids += batch
        return ids

    claims = await asyncio.gather(all_of(first), all_of(second))
    assert sorted(claims[0] + claims[1]) == list(range(1, 201))
    assert all(len(claim) > 0 for claim in claims)


async def test_decide_gets_the_messages_that_wait(store: Store) -> None:
    await store.tasks.submit([draft(1), draft(2)])
    await store.tasks.post(1, TaskMessage("cancel", act=Act("a1")))
    scheduler = await hand(store)
    await scheduler.claim(10)
    assert [[m.kind for m in snapshot.messages] for snapshot in scheduler.seen] == [["cancel"], []]


async def test_what_decide_returns_is_written_with_the_claim(store: Store) -> None:
    await store.tasks.submit([draft(1)])
    scheduler = await hand(store)
    await scheduler.claim(1)
    (request,) = await store.requests.take(await agent(store), [offer()])
    assert (request.task, request.idx, request.attempt) == (1, 0, 1)


async def test_a_claim_and_decisions_share_one_batch(store: Store) -> None:
    scheduler = await running(store, 1)
    await store.tasks.submit([draft(2)])
    assert await scheduler.claim(5, decisions=[begin(scheduler[1], 1)]) == [2]
    payments = await agent(store)
    assert {(r.task, r.idx) for r in await store.requests.take(payments, [offer()])} == {
        (1, 0),
        (1, 1),
        (2, 0),
    }


async def test_a_task_given_back_in_a_batch_is_not_claimed_by_it(store: Store) -> None:
    scheduler = await running(store, 1)
    assert await scheduler.claim(5, decisions=[to_state(scheduler[1], "pending")]) == []
    assert await scheduler.claim(5, lambda memory: to_state(memory, "processing")) == [1]


async def test_local_requests_of_a_claim_are_born_taken(store: Store) -> None:
    scheduler = await running(store, 1, local=True)
    assert await store.requests.take(await agent(store), [offer()]) == []
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.steps[0].doing, detail.steps[0].taken_by) == ("do", scheduler.node)
    assert detail.steps[0].due == pytest.approx(30, abs=20)


async def test_when_decide_raises_nothing_is_claimed_and_the_caller_gets_it(store: Store) -> None:
    await store.tasks.submit([draft(1)])
    scheduler = await hand(store)

    def decide(snapshots: Sequence[Loaded]) -> list[tuple[HeldTask, Decision]]:
        raise ZeroDivisionError("a defect of the rules")

    with pytest.raises(ZeroDivisionError, match="defect"):
        await store.tasks.commit(Batch(scheduler.node, claim=Claim(5), decide=decide))
    assert (await view(store, 1)).locked_by is None
    assert await scheduler.claim(5) == [1]


async def test_a_task_that_lost_three_schedulers_is_claimed_alone(store: Store) -> None:
    await store.tasks.submit([draft(n) for n in range(1, 6)])
    scheduler = await hand(store)
    await scheduler.claim(5)
    await scheduler.commit(
        *(to_state(scheduler[n], "pending", lost=3 if n in (1, 3) else 2) for n in (1, 2, 3, 4, 5))
    )
    starts: list[list[int]] = []
    while ids := await scheduler.claim(5, lambda memory: to_state(memory, "processing")):
        starts.append(ids)
        assert scheduler.committed.more == (sum(map(len, starts)) < 5)
    assert starts == [[1], [2], [3], [4, 5]]


async def test_a_task_given_back_goes_behind_those_of_its_priority(store: Store) -> None:
    scheduler = await running(store, 1)
    await store.tasks.submit([draft(2), draft(3, priority=1)])
    await scheduler.commit(to_state(scheduler[1], "pending"))
    assert await scheduler.claim(5, lambda memory: to_state(memory, "processing")) == [3, 2, 1]


async def test_each_claim_raises_the_epoch(store: Store) -> None:
    await store.tasks.submit([draft(1)])
    scheduler = await hand(store)
    for epoch in (1, 2, 3):
        await scheduler.claim(1, lambda memory: to_state(memory, "processing"))
        assert scheduler[1].task.epoch == epoch
        await scheduler.commit(to_state(scheduler[1], "pending"))


async def test_the_first_claim_sets_the_complete_by_and_later_ones_leave_it(
    store: Store, world: World
) -> None:
    await store.tasks.submit([draft(1, within=100.0), draft(2)])
    await world.elapse(1000)
    scheduler = await hand(store)
    await scheduler.claim(5)
    assert [snapshot.task.timed for snapshot in scheduler.seen] == [True, False]
    set_to = (await view(store, 1)).complete_by
    assert set_to == pytest.approx(await store.now() + 100, abs=40)
    await world.elapse(50)
    await scheduler.commit(to_state(scheduler[1], "pending"))
    await scheduler.claim(5, lambda memory: to_state(memory, "processing"))
    assert scheduler.seen[0].task.timed
    assert (await view(store, 1)).complete_by == pytest.approx(await store.now() + 50, abs=20)
    assert (await view(store, 2)).complete_by is None


async def test_a_resubmitted_task_gets_a_new_complete_by_at_its_next_claim(
    store: Store, world: World
) -> None:
    scheduler = await running(store, 1, within=100.0)
    await scheduler.commit(to_state(scheduler[1], "error", goal="hold"))
    await world.elapse(500)
    await store.tasks.post(1, TaskMessage("resubmit", act=Act("a")))

    def resubmit(memory: Memory) -> Decision:
        decision = to_state(memory, "pending", goal="forward")
        decision.clear_complete_by = True
        decision.seqs = [m.seq for m in memory.messages]
        return decision

    await scheduler.claim(0, resubmit, at_rest=[1])
    assert (await view(store, 1)).complete_by is None
    await scheduler.claim(5, lambda memory: to_state(memory, "processing"))
    assert (await view(store, 1)).complete_by == pytest.approx(await store.now() + 100, abs=40)


async def test_a_task_that_is_to_be_undone_gets_no_complete_by(store: Store) -> None:
    scheduler = await running(store, 1, within=100.0)
    decision = to_state(scheduler[1], "pending", goal="undo")
    decision.clear_complete_by = True
    await scheduler.commit(decision)
    await scheduler.claim(5, lambda memory: to_state(memory, "undoing"))
    assert not scheduler.seen[0].task.timed
    assert (await view(store, 1)).complete_by is None


async def test_a_task_at_rest_is_claimed_for_the_message_that_waits(store: Store) -> None:
    scheduler = await running(store, 1, 2, 3)
    await scheduler.commit(
        to_state(scheduler[1], "error", goal="hold"),
        to_state(scheduler[2], "processed"),
        to_state(scheduler[3], "undone"),
    )
    for n in (1, 2, 3):
        await store.tasks.post(n, TaskMessage("undo", act=Act(f"act {n}")))

    def answer(memory: Memory) -> Decision:
        decision = (
            to_state(memory, "undoing", goal="undo") if memory.id != 3 else Decision(memory.task, memory.task)
        )
        decision.release = memory.id == 3
        decision.seqs = [m.seq for m in memory.messages]
        return decision

    assert sorted(await scheduler.claim(0, answer, at_rest=[1, 2, 3])) == [1, 2, 3]
    assert [m.kind for snapshot in scheduler.seen for m in snapshot.messages] == ["undo"] * 3
    assert {snapshot.task.state for snapshot in scheduler.seen} == {"error", "processed", "undone"}
    assert [(await view(store, n)).locked_by for n in (1, 2, 3)] == [scheduler.node, scheduler.node, None]
    assert [(await view(store, n)).epoch for n in (1, 2, 3)] == [2, 2, 2]


async def test_at_rest_claims_only_unlocked_tasks_at_rest_with_messages(store: Store) -> None:
    scheduler = await running(store, 1, 2)
    await store.tasks.submit([draft(3)])
    await scheduler.commit(to_state(scheduler[2], "processed"))
    await store.tasks.post(1, TaskMessage("cancel"))
    await store.tasks.post(3, TaskMessage("cancel"))
    second = await hand(store)
    assert await second.claim(0, at_rest=[1, 2, 3, 99]) == []
    await store.tasks.post(2, TaskMessage("undo"))
    assert await second.claim(
        0, lambda memory: to_state(memory, "undoing", goal="undo"), at_rest=[1, 2, 3]
    ) == [2]


async def test_a_locked_task_is_not_claimed_in_whatever_state_it_is(store: Store) -> None:
    """A lock counts even where the rules would not leave one: on a task that is pending or at rest."""
    await store.tasks.submit([draft(1), draft(2)])
    first, second = await hand(store), await hand(store)
    await first.claim(1, lambda memory: to_state(memory, "pending", release=False))
    await first.claim(1, lambda memory: to_state(memory, "processed", release=False))
    for n in (1, 2):
        await store.tasks.post(n, TaskMessage("undo"))
    assert await second.claim(5, at_rest=[1, 2]) == []


async def test_the_same_task_at_rest_goes_to_one_of_two_schedulers(store: Store, other: Store) -> None:
    first, second = await running(store, 1), await hand(other)
    await first.commit(to_state(first[1], "processed"))
    await store.tasks.post(1, TaskMessage("undo"))

    def undo(memory: Memory) -> Decision:
        return to_state(memory, "undoing", goal="undo")

    claims = await asyncio.gather(first.claim(0, undo, at_rest=[1]), second.claim(0, undo, at_rest=[1]))
    assert sorted(claims) == [[], [1]]


async def test_a_task_whose_rows_cannot_be_read_goes_to_error_and_the_others_go_on(
    store: Store, world: World
) -> None:
    await store.tasks.submit([draft(1), draft(2)])
    async with world.raw() as raw:
        await raw.run("update {task} set static = ? where id = 1", b"not what we wrote")
    scheduler = await hand(store)
    assert await scheduler.claim(5) == [2]
    ((task, reason),) = scheduler.committed.rejections
    assert task == 1
    assert "read" in reason
    task_view = await view(store, 1)
    assert (task_view.state, task_view.locked_by) == ("error", None)
    assert [a.kind for a in await store.alerts.views(task=1)] == ["unreadable"]


async def test_a_claim_after_a_takeover_shows_what_the_dead_scheduler_committed(
    store: Store, world: World
) -> None:
    old = await running(store, 1)
    await old.commit(begin(old[1], 1))
    await world.elapse(120)
    assert await store.supervision.release_dead(await term(store), 10) == [1]
    new = await hand(store)
    await new.claim(5, lambda memory: to_state(memory, "processing"))
    (snapshot,) = new.seen
    assert (snapshot.task.epoch, snapshot.task.lost, snapshot.task.failure_count) == (2, 0, 1)
    assert [(s.state, s.doing, s.attempt) for s in snapshot.steps] == [
        ("running", "do", 1),
        ("running", "do", 1),
        ("waiting", None, 0),
    ]


async def test_ten_thousand_tasks_are_taken_over_in_batches(store: Store, world: World) -> None:
    """The count is a thousand, to be quick; the batches are what matters."""
    old = await hand(store)
    await store.tasks.submit([draft(n) for n in range(1, 1001)])
    assert len(await old.claim(1000)) == 1000
    await world.elapse(120)
    await store.nodes.register(info())
    grant = await term(store)
    assert len(await store.supervision.release_dead(grant, 600)) == 600
    assert len(await store.supervision.release_dead(grant, 600)) == 400
    assert await store.supervision.release_dead(grant, 600) == []
    new = await hand(store)
    assert len(await new.claim(700, lambda memory: to_state(memory, "processing"))) == 700
    assert len(await new.claim(700, lambda memory: to_state(memory, "processing"))) == 300
    assert all(snapshot.steps[0].doing == "do" for snapshot in new.seen)
    assert replace(new.seen[0].task).epoch == 2


async def test_a_claim_that_uses_up_a_request_that_is_gone_is_lost_and_the_rest_is_written(
    store: Store,
) -> None:
    """The fence holds for what is claimed in this very transaction, too; the task waits as before."""
    await store.tasks.submit([draft(1), draft(2)])
    scheduler = await hand(store)

    def mistaken(memory: Memory) -> Decision:
        return done(memory, 0) if memory.task.id == 1 else begin(memory)

    assert await scheduler.claim(10, mistaken) == [2]
    assert scheduler.committed.losses == {1}
    assert (await view(store, 1)).state == "pending"
    assert await scheduler.claim(10) == [1]


async def test_who_was_declared_dead_claims_nothing_until_it_has_another_number(
    store: Store, world: World
) -> None:
    """A process that stood still wakes up before its heartbeat. What it claimed would be freed, and counted, once more."""
    await store.tasks.submit([draft(1)])
    sleeper = await hand(store, ttl=5.0)
    assert await sleeper.claim(1) == [1]
    await world.elapse(6)
    assert await store.supervision.release_dead(await term(store), 10) == [1]
    assert await sleeper.claim(1) == []
    assert (await view(store, 1)).failure_count == 1
    assert await (await hand(store)).claim(1) == [1]
    assert await store.supervision.release_dead(await term(store), 10) == []
