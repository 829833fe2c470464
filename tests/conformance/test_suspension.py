"""Tasks that are let go: they wait as rows that nobody holds, until their moment or a message."""

import asyncio
import math
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.model.decision import Decision, OpenDecision
from makegood.model.messages import Act, TaskMessage
from makegood.model.notices import Notice
from makegood.model.plan import Start
from makegood.model.task import ReplyTo
from makegood.store.protocol import Store
from makegood.store.records import MOST_LOST, Batch, Claim
from makegood.store.views import Filter, TaskView
from tests.conformance.builders import (
    Hand,
    Memory,
    done,
    draft,
    hand,
    running,
    term,
    to_state,
    unchanged,
)
from tests.conformance.worlds import World

HOUR = 3600.0


def later(memory: Memory, seconds: float, idx: int = 0) -> OpenDecision:
    """Let the service of a step ask to come back later, which sets its timer."""
    decision = unchanged(memory)
    step = memory.steps[idx]
    decision.used_requests.append((idx, step.attempt))
    decision.steps[idx] = replace(step, state="ready", doing=None, waiting=True)
    decision.timers[idx] = seconds
    return decision


def let_go(memory: Memory, seconds: float, decision: OpenDecision | None = None) -> OpenDecision:
    """Let a task sleep."""
    builder = to_state(memory, "sleeping", decision)
    builder.wakes = seconds
    return builder


async def asleep(store: Store, seconds: float, *ids: int, **changes: Any) -> Hand:
    """Return a Scheduler that has let tasks go whose first step waits for so many seconds."""
    scheduler = await running(store, *ids, **changes)
    await scheduler.commit(*(let_go(scheduler[n], seconds, later(scheduler[n], seconds)) for n in ids))
    assert not scheduler.committed.losses
    return scheduler


async def view(store: Store, task: int) -> TaskView:
    """Return one task."""
    (task_view,) = await store.tasks.find(Filter(ids=(task,)))
    return task_view


async def test_it_is_held_by_nobody_and_claimed_at_its_moment(store: Store, world: World) -> None:
    scheduler = await asleep(store, HOUR, 1)
    after = await view(store, 1)
    assert (after.state, after.locked_by, after.starts) == ("sleeping", None, None)
    assert await scheduler.claim(5, sleepers=True) == []
    assert scheduler.committed.next_start == pytest.approx(HOUR, abs=60)
    await world.elapse(HOUR - 60)
    assert await scheduler.claim(5, sleepers=True) == []
    await world.elapse(61)
    assert await scheduler.claim(5) == []
    assert await scheduler.claim(5, sleepers=True) == [1]
    (load,) = scheduler.seen
    assert (load.sleeps, load.due, load.task.state) == (False, {0: 0.0}, "sleeping")


async def test_whoever_claims_it_finds_its_timer_due(store: Store, world: World) -> None:
    """Else its claim would only set a timer again, of some microseconds, and each wake would be two commits."""
    scheduler = await asleep(store, 0.3, *range(1, 50))
    await world.elapse(0.1)
    claims: list[int] = []
    while len(claims) < 49:
        await world.elapse(0.05)
        scheduler.seen.clear()
        claims += await scheduler.claim(100, sleepers=True)
        assert all(load.due == {0: 0.0} for load in scheduler.seen)


async def test_its_claim_raises_the_epoch_and_continues_the_deadline(store: Store, world: World) -> None:
    scheduler = await asleep(store, 60.0, 1, within=HOUR)
    deadline = (await view(store, 1)).complete_by
    assert deadline is not None
    await world.elapse(61)
    assert await scheduler.claim(5, sleepers=True) == [1]
    after = await view(store, 1)
    assert (after.state, after.locked_by, after.epoch) == ("processing", scheduler.node, 2)
    assert after.complete_by == pytest.approx(deadline, abs=62)


async def test_one_that_began_late_and_was_let_go_is_not_taken_for_one_that_has_not_begun(
    store: Store, world: World
) -> None:
    await store.tasks.submit([draft(1, start=Start(5.0))])
    await world.elapse(6)
    scheduler = await hand(store)
    assert await scheduler.claim(5, sleepers=True) == [1]
    await scheduler.commit(let_go(scheduler[1], HOUR, later(scheduler[1], HOUR)))
    assert (await view(store, 1)).starts is None
    await store.tasks.post(1, TaskMessage("cancel", act=Act("a")))
    assert await scheduler.claim(5, at_rest=[1]) == [1]
    assert not scheduler.seen[0].sleeps


async def test_one_that_sleeps_until_a_message_comes_is_never_due(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(let_go(scheduler[1], math.inf, done(scheduler[1])))
    await world.elapse(1000 * HOUR)
    assert await scheduler.claim(5, sleepers=True) == []
    assert scheduler.committed.next_start is None or scheduler.committed.next_start > 1e9
    await store.tasks.post(1, TaskMessage("cancel", act=Act("a")))
    assert (await store.tasks.inbox(scheduler.node, 10)).at_rest == [1]
    assert await scheduler.claim(5, at_rest=[1]) == [1]


async def test_a_scheduler_that_knows_enough_sleepers_reads_only_messages_for_its_own(store: Store) -> None:
    scheduler = await asleep(store, HOUR, 1)
    mine = await running(store, 2)
    for task in (1, 2):
        await store.tasks.post(task, TaskMessage("cancel", act=Act(f"act {task}")))
    everything = await store.tasks.inbox(mine.node, 10)
    assert (everything.at_rest, [*everything.messages]) == ([1], [2])
    own = await store.tasks.inbox(mine.node, 10, at_rest=False)
    assert (own.at_rest, own.messages, own.more) == ([], everything.messages, False)
    assert (await store.tasks.inbox(mine.node, 1, at_rest=False)).more
    none = await store.tasks.inbox(scheduler.node, 10, at_rest=False)
    assert (none.at_rest, none.messages) == ([], {})


async def test_a_message_claims_it_before_its_moment_and_it_may_sleep_on(store: Store, world: World) -> None:
    scheduler = await asleep(store, HOUR, 1)
    await store.tasks.post(1, TaskMessage("extend", act=Act("a")))
    assert (await store.tasks.inbox(scheduler.node, 10)).at_rest == [1]

    def hear(memory: Memory) -> Decision:
        decision = let_go(memory, 1800.0)
        decision.seqs = [m.seq for m in memory.messages]
        return decision

    assert await scheduler.claim(5, hear, at_rest=[1], sleepers=True) == [1]
    (load,) = scheduler.seen
    assert not load.sleeps
    assert load.due[0] == pytest.approx(HOUR, abs=60)
    assert (await view(store, 1)).state == "sleeping"
    await world.elapse(1801)
    assert await scheduler.claim(5, sleepers=True) == [1]


async def test_its_deadline_finds_it(store: Store, world: World) -> None:
    scheduler = await asleep(store, 24 * HOUR, 1, within=HOUR)
    await world.elapse(HOUR + 5)
    assert await store.supervision.expire_tasks(await term(store), 10) == [1]
    assert (await store.tasks.inbox(scheduler.node, 10)).at_rest == [1]
    assert await scheduler.claim(5, at_rest=[1]) == [1]
    assert [m.kind for m in scheduler.seen[0].messages] == ["task_expired"]


async def test_the_time_of_an_undo_runs_on(store: Store, world: World) -> None:
    """Its limit is that of the whole undo: no claim begins it again."""
    scheduler = await running(store, 1, undo_within=100.0)
    turn = to_state(scheduler[1], "undoing", done(scheduler[1]), goal="undo")
    await scheduler.commit(turn)
    await scheduler.commit(let_go(scheduler[1], 60.0))
    await world.elapse(61)
    assert await scheduler.claim(5, lambda memory: to_state(memory, "undoing"), sleepers=True) == [1]
    await world.elapse(45)
    await store.supervision.expire_tasks(await term(store), 10)
    assert "late_undo" in (await store.admin.figures()).alerts


async def test_due_ones_are_claimed_among_the_pending_by_priority_and_age(store: Store, world: World) -> None:
    scheduler = await running(store, 1, 2, 3)
    await scheduler.commit(let_go(scheduler[1], 10.0), let_go(scheduler[3], 500.0))
    await scheduler.commit(let_go(scheduler[2], 20.0))
    await world.elapse(30)
    await store.tasks.submit([draft(4), draft(5, priority=9)])
    assert await scheduler.claim(3, sleepers=True) == [5, 1, 2]
    assert scheduler.committed.more
    assert await scheduler.claim(3, sleepers=True) == [4]
    assert scheduler.committed.next_start == pytest.approx(470, abs=60)


async def test_below_the_floors_they_are_found_by_the_sweep(store: Store, world: World) -> None:
    scheduler = await asleep(store, 300.0, 1)
    await world.elapse(301)
    assert await scheduler.claim(5, sleepers=True) == [1]
    await scheduler.commit(let_go(scheduler[1], 0.5))
    await world.elapse(150)
    assert await scheduler.claim(5, sleepers=True) == [1]


async def test_two_schedulers_share_those_that_are_due(store: Store, other: Store, world: World) -> None:
    first, second = await asleep(store, 1.0, *range(1, 101)), await hand(other)
    await world.elapse(2)
    claims = await asyncio.gather(first.claim(60, sleepers=True), second.claim(60, sleepers=True))
    rest = await first.claim(100, sleepers=True)
    assert sorted([*claims[0], *claims[1], *rest]) == list(range(1, 101))


async def test_one_that_was_taken_over_lets_nothing_go(store: Store, world: World) -> None:
    """The fence: the Decision of a Scheduler that was declared dead is lost, and its task does not sleep."""
    scheduler = await running(store, 1)
    await world.elapse(100)
    assert await store.supervision.release_dead(await term(store), 10) == [1]
    await scheduler.commit(let_go(scheduler[1], HOUR, later(scheduler[1], HOUR)))
    assert scheduler.committed.losses == {1}
    assert (await view(store, 1)).state == "pending"


async def test_what_else_changes_is_written_with_it(store: Store) -> None:
    scheduler = await running(store, 1)
    decision = let_go(scheduler[1], 60.0, later(scheduler[1], 60.0))
    decision.failure_counts[0] = (False, 1)
    decision.task = replace(decision.task, goal="undo", cause="a reason")
    await scheduler.commit(decision)
    after = await view(store, 1)
    assert (after.state, after.goal, after.cause, after.failure_count) == ("sleeping", "undo", "a reason", 1)


async def test_a_notice_of_the_same_decision_is_written_with_it(store: Store, world: World) -> None:
    """Such as that it began, if its first request was refused a moment ago and the service asked to wait."""
    scheduler = await running(store, 1, reply_to="queue:answers")
    decision = let_go(scheduler[1], 60.0, later(scheduler[1], 60.0))
    decision.task = replace(decision.task, told="processing", notified=2)
    decision.notices.append(Notice(1, 2, "processing", ReplyTo("queue:answers"), "shop", "place_order", None))
    await scheduler.commit(decision)
    assert (await view(store, 1)).state == "sleeping"
    await world.elapse(61)
    assert await scheduler.claim(5, sleepers=True) == [1]


async def test_one_that_may_be_what_kills_its_schedulers_is_claimed_alone(store: Store, world: World) -> None:
    scheduler = await running(store, 1, 2)
    doubtful = let_go(scheduler[1], 5.0)
    doubtful.task = replace(doubtful.task, lost=MOST_LOST)
    await scheduler.commit(doubtful, let_go(scheduler[2], 6.0))
    await world.elapse(10)
    assert await scheduler.claim(5, sleepers=True) == [1]
    assert await scheduler.claim(5, sleepers=True) == [2]


async def test_a_sleeper_that_nothing_wakes_is_an_orphan(store: Store) -> None:
    scheduler = await running(store, 1, 2, 3)
    await scheduler.commit(
        let_go(scheduler[1], math.inf, done(scheduler[1])),
        let_go(scheduler[2], math.inf, later(scheduler[2], HOUR)),
        let_go(scheduler[3], HOUR, done(scheduler[3])),
    )
    assert await store.admin.orphans(10) == [1]


async def test_it_is_put_to_error_like_any_other(store: Store) -> None:
    scheduler = await asleep(store, HOUR, 1)
    await store.tasks.post(1, TaskMessage("cancel", act=Act("a")))
    batch = Batch(scheduler.node, claim=Claim(0, (1,)), decide=lambda _: [], unfit={1: "a reason"})
    await store.tasks.commit(batch)
    assert (await view(store, 1)).state == "error"
    assert await scheduler.claim(5, sleepers=True) == []
    assert scheduler.committed.next_start is None


async def test_a_new_generation_leaves_it_asleep(store: Store, world: World) -> None:
    await asleep(store, 60.0, 1)
    await store.admin.begin_generation(Act("a", "ada", "backup"))
    assert (await view(store, 1)).state == "sleeping"
    again = await hand(store)
    await world.elapse(61)
    assert await again.claim(5, sleepers=True) == [1]


async def test_five_hundred_wakes_are_one_commit(store: Store, world: World) -> None:
    scheduler = await asleep(store, 5.0, *range(1, 501))
    await world.elapse(6)
    assert len(await scheduler.claim(500, sleepers=True)) == 500
    assert not scheduler.committed.more


async def test_processes_without_a_part_in_it_see_it(store: Store) -> None:
    await asleep(store, HOUR, 1)
    assert (await store.admin.figures()).tasks == {("shop", "place_order", "sleeping"): 1}
    assert [task.id for task in (await store.tasks.search(Filter(states=("sleeping",)))).tasks] == [1]
