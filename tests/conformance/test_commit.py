"""A Scheduler's commit: its fences, its losers, its guilty ones."""

import asyncio

import pytest
from msgspec.structs import replace

from makegood.election.protocol import Grant
from makegood.model.decision import Decision
from makegood.model.messages import Act, Alert, Answer, TaskMessage
from makegood.model.states import Move
from makegood.store.protocol import Store
from makegood.store.records import Batch
from makegood.store.views import Filter, TaskDetail
from tests.conformance.builders import (
    UNENCODABLE,
    Hand,
    Memory,
    agent,
    begin,
    done,
    draft,
    hand,
    offer,
    reply,
    running,
    steps,
    term,
    to_state,
    unchanged,
)
from tests.conformance.worlds import World, still_waits


async def look(store: Store, task: int) -> TaskDetail:
    """Return one task with its steps."""
    detail = await store.tasks.detail(task)
    assert detail is not None
    return detail


async def taken_over(store: Store, world: World, old: Hand, *, claim: bool = True) -> Hand:
    """Let the Scheduler ``old`` die and another take its tasks."""
    await world.elapse(120)
    new = await hand(store)
    grant = await term(store)
    assert sorted(await store.supervision.release_dead(grant, 100)) == sorted(old.tasks)
    await store.leases.release(grant)
    if claim:
        await new.claim(100, lambda memory: to_state(memory, "processing"))
    return new


# The fences


async def test_a_decision_under_an_old_epoch_is_lost_and_writes_nothing(store: Store, world: World) -> None:
    old = await running(store, 1)
    new = await taken_over(store, world, old)
    decision = done(old[1], 0)
    begin(old[1], 1, decision)
    decision.alerts.append(Alert("held", 1, "", "text"))
    decision.answers.append(Answer(Act("a"), "cancel", "applied"))
    await store.tasks.post(1, TaskMessage("cancel"))
    decision.seqs = [m.seq for m in (await store.tasks.inbox(new.node, 10)).messages[1]]
    events = len(await store.tasks.history(1))
    outcome = await old.commit(decision)
    assert outcome.losses == {1}
    assert outcome.rejections == []
    after = await look(store, 1)
    assert [s.state for s in after.steps] == ["running", "waiting", "waiting"]
    assert len(await store.tasks.history(1)) == events
    assert await store.alerts.views() == []
    assert await store.tasks.answers(["a"]) == {}
    assert len((await store.tasks.inbox(new.node, 10)).messages[1]) == 1
    assert (await store.admin.schema()).rows["request"] == 1


async def test_a_decision_of_a_task_that_was_freed_and_not_yet_claimed_is_lost(
    store: Store, world: World
) -> None:
    old = await running(store, 1)
    await taken_over(store, world, old, claim=False)
    assert (await old.commit(begin(old[1], 1))).losses == {1}
    assert (await look(store, 1)).task.state == "pending"


async def test_a_decision_of_a_task_that_the_same_batch_claims_is_lost(store: Store, world: World) -> None:
    """A Scheduler whose tasks were freed, and that does not know it yet, may claim them while it still writes of them."""
    old = await running(store, 1, 2)
    await taken_over(store, world, old, claim=False)
    async with world.raw() as raw:  # one that was declared dead gets nothing
        await raw.run("update {node} set dead = (1 = 0) where id = ?", old.node)
    stale = to_state(old[1], "undoing", begin(old[1], 1), goal="undo", cause="stale")
    assert await old.claim(decisions=[stale], make=lambda memory: begin(memory, 2)) == [1, 2]
    assert old.committed.losses == {1}
    for task in (1, 2):
        after = await look(store, task)
        assert (after.task.state, after.task.goal, after.task.cause, after.task.epoch) == (
            "processing",
            "forward",
            "",
            2,
        )
        assert [(s.state, s.attempt) for s in after.steps] == [("running", 1), ("waiting", 0), ("running", 1)]
    assert (await store.admin.schema()).rows["request"] == 4
    assert not (await old.commit(begin(old[1], 1))).losses


async def test_the_same_node_claiming_again_does_not_revive_an_old_decision(store: Store) -> None:
    scheduler = await running(store, 1)
    stale = begin(scheduler[1], 1)
    await scheduler.commit(to_state(scheduler[1], "pending"))
    await scheduler.claim(1, lambda memory: to_state(memory, "processing"))
    assert (await scheduler.commit(stale)).losses == {1}


async def test_another_node_may_not_write_a_task_it_does_not_hold(store: Store) -> None:
    scheduler, stranger = await running(store, 1), await hand(store)
    stranger.tasks[1] = scheduler[1]
    assert (await stranger.commit(begin(scheduler[1], 1))).losses == {1}


async def test_a_decision_on_a_judged_request_is_lost(store: Store, world: World) -> None:
    scheduler = await running(store, 1, local=True)
    await world.elapse(40)
    await store.nodes.heartbeat(scheduler.node, (await store.nodes.views())[0].info)
    assert len((await store.supervision.judge(await term(store), 0, 10)).requests) == 1
    assert (await scheduler.commit(done(scheduler[1], 0))).losses == {1}
    assert (await look(store, 1)).steps[0].state == "running"


async def test_a_reply_to_another_attempt_than_the_one_in_flight_is_lost(store: Store) -> None:
    scheduler = await running(store, 1)
    decision = done(scheduler[1], 0)
    decision.used_requests = [(0, 2)]
    assert (await scheduler.commit(decision)).losses == {1}


async def test_a_timer_cannot_be_consumed_as_a_request(store: Store) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(Decision(scheduler[1].task, scheduler[1].task, timers={1: 5.0}))
    decision = unchanged(scheduler[1])
    decision.used_requests = [(1, 0)]
    assert (await scheduler.commit(decision)).losses == {1}
    assert (await look(store, 1)).steps[1].waiting


async def test_when_one_of_two_consumed_requests_is_gone_the_other_stays(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(begin(scheduler[1], 1))
    decision = done(scheduler[1], 1, done(scheduler[1], 0))
    decision.used_requests[1] = (1, 7)
    assert (await scheduler.commit(decision)).losses == {1}
    assert [s.doing for s in (await look(store, 1)).steps] == ["do", "do", None]


async def test_losers_are_named_and_the_rest_is_committed(store: Store, world: World) -> None:
    scheduler = await running(store, *range(1, 10))
    stranger = await hand(store)
    for n in (2, 5):
        await scheduler.commit(to_state(scheduler[n], "pending"))
    await stranger.claim(5, lambda memory: to_state(memory, "processing"))
    decisions = []
    for n in range(1, 10):
        decision = done(scheduler[n], 0)
        if n == 7:
            decision.used_requests = [(0, 99)]
        decisions.append(begin(scheduler[n], 1, decision))
    outcome = await scheduler.commit(*decisions)
    assert outcome.losses == {2, 5, 7}
    for n in range(1, 10):
        states = [s.state for s in (await look(store, n)).steps]
        assert states == (
            ["running", "waiting", "waiting"] if n in (2, 5, 7) else ["done", "running", "waiting"]
        )


async def test_a_claim_is_made_beside_a_decision_whose_request_is_gone(store: Store) -> None:
    scheduler = await running(store, 1, 2)
    await store.tasks.submit([draft(3)])
    lost = done(scheduler[1], 0)
    lost.used_requests = [(0, 99)]
    assert await scheduler.claim(decisions=[lost, done(scheduler[2], 0)]) == [3]
    assert scheduler.committed.losses == {1}
    states = [(await look(store, n)).steps[0].state for n in (1, 2, 3)]
    assert states == ["running", "done", "running"]


async def test_a_batch_of_losers_only_is_no_error(store: Store) -> None:
    scheduler = await running(store, 1)
    stale = begin(scheduler[1], 1)
    await scheduler.commit(to_state(scheduler[1], "pending"))
    assert (await scheduler.commit(stale)).losses == {1}


async def test_an_empty_batch_is_no_error(store: Store) -> None:
    outcome = await (await hand(store)).commit()
    assert (outcome.losses, outcome.claims, outcome.more) == (set(), [], False)


# Races with a take-over


async def test_a_takeover_leaves_a_commit_in_flight_alone_and_loads_what_it_wrote(
    store: Store, world: World
) -> None:
    """The old owner's commit holds the task's row: only after it may the lock move, and nothing stale is loaded.

    Whether the Supervisor waits or passes such a task over until its next look is the store's choice.
    """
    old = await running(store, 1)
    await world.elapse(70)
    new = await hand(store)
    grant = await term(store)
    async with world.raw() as raw:  # the commit of a slow Scheduler: s0 done
        await raw.run("update {step} set state = 'done' where task = 1 and idx = 0")
        await raw.run("delete from {request} where task = 1 and idx = 0")
        going = asyncio.create_task(store.supervision.release_dead(grant, 10))
        assert await still_waits(going) or await going == []
    assert (await going or await store.supervision.release_dead(grant, 10)) == [1]
    await new.claim(5, lambda memory: to_state(memory, "processing"))
    (snapshot,) = new.seen
    assert (snapshot.steps[0].state, snapshot.steps[0].doing) == ("done", None)
    assert (await old.commit(done(old[1], 0))).losses == {1}


async def test_a_claim_leaves_a_commit_in_flight_alone(store: Store, world: World) -> None:
    """A task that is just being given back goes to nobody before that is committed."""
    await running(store, 1)
    new = await hand(store)
    async with world.raw() as raw:
        await raw.run("update {task} set locked_by = null, state = 'pending' where id = 1")
        going = asyncio.create_task(new.claim(5, lambda memory: to_state(memory, "processing")))
        assert await still_waits(going) or await going == []
    assert (await going or await new.claim(5, lambda memory: to_state(memory, "processing"))) == [1]
    assert new.seen[0].task.epoch == 2


async def test_a_commit_waits_for_a_takeover_in_flight_and_is_lost(store: Store, world: World) -> None:
    old = await running(store, 1)
    decision = begin(old[1], 1, done(old[1], 0))
    async with world.raw() as raw:
        await raw.run("update {task} set locked_by = null, state = 'pending' where id = 1")
        going = asyncio.create_task(old.commit(decision))
        assert await still_waits(going)
    assert (await going).losses == {1}
    assert [s.state for s in (await look(store, 1)).steps] == ["running", "waiting", "waiting"]


async def test_a_commit_and_a_takeover_at_once_leave_no_stale_owner(
    store: Store, other: Store, world: World
) -> None:
    """Whoever comes first wins: the new owner has seen the old one's commit, or the old one has lost."""
    wins = losses = 0
    for n in range(1, 31):
        old = await running(store, n)
        async with world.raw() as raw:  # its heartbeat has run out
            await raw.run("update {node} set alive_until = 0 where id = ?", old.node)
        new = await hand(other, ttl=1e6)
        grant = await term(other)

        async def take_over(new: Hand = new, grant: Grant = grant) -> None:
            while not new.tasks:
                await other.supervision.release_dead(grant, 100)
                await new.claim(5, lambda memory: to_state(memory, "processing"))

        both = [old.commit(done(old[n], 0)), take_over()]
        await asyncio.gather(*(both if n % 2 else reversed(both)))
        outcome = old.committed
        await other.leases.release(grant)
        (snapshot,) = new.seen
        assert snapshot.steps[0].state == ("running" if outcome.losses else "done")
        assert (await look(store, n)).steps[0].state == snapshot.steps[0].state
        wins, losses = wins + (not outcome.losses), losses + len(outcome.losses)
    assert wins + losses == 30


async def test_of_two_replies_to_one_request_one_decision_wins(store: Store) -> None:
    scheduler = await running(store, 1)
    again = done(scheduler[1], 0)
    assert (await scheduler.commit(done(scheduler[1], 0))).losses == set()
    assert (await scheduler.commit(again)).losses == {1}


async def test_judge_and_reply_at_once_count_the_attempt_once(
    store: Store, other: Store, world: World
) -> None:
    """Silence judged and the reply committed exclude each other, whatever the order."""
    scheduler = await running(store, *range(1, 21), local=True)
    await world.elapse(31)
    grant = await term(other)
    verdict, commits = await asyncio.gather(
        other.supervision.judge(grant, 0, 100),
        asyncio.gather(
            *(store.tasks.commit(Batch(scheduler.node, [done(scheduler[n], 0)])) for n in range(1, 21))
        ),
    )
    late = {task for task, *_ in verdict.requests}
    losers = {task for outcome in commits for task in outcome.losses}
    assert losers == late
    for n in range(1, 21):
        detail = await look(store, n)
        assert (detail.steps[0].state, detail.steps[0].failures) == (
            ("running", 1) if n in late else ("done", 0)
        )


# Guilty data


@pytest.mark.parametrize("where", ["task", "step", "alert", "request", "number", "move"])
async def test_a_decision_whose_values_the_database_refuses_puts_its_task_alone_to_error(
    store: Store, where: str
) -> None:
    scheduler = await running(store, *range(1, 8))
    decisions = {n: begin(scheduler[n], 1, done(scheduler[n], 0)) for n in range(1, 8)}
    bad = decisions[4]
    if where == "task":
        bad.task = replace(bad.task, cause=UNENCODABLE)
    elif where == "step":
        bad.steps[0] = replace(bad.steps[0], error=UNENCODABLE)
    elif where == "alert":
        bad.alerts.append(Alert("held", 4, "", UNENCODABLE))
    elif where == "request":
        bad.requests[0] = replace(bad.requests[0], action=UNENCODABLE)
    elif where == "number":
        bad.steps[0] = replace(bad.steps[0], attempt=2**70)
    else:
        bad.moves.append(Move("s0", "running", "done", UNENCODABLE))
    await store.tasks.post(4, TaskMessage("cancel"))
    bad.seqs = [m.seq for m in (await store.tasks.inbox(scheduler.node, 10)).messages[4]]
    outcome = await scheduler.commit(*decisions.values())
    assert outcome.losses == set()
    ((task, reason),) = outcome.rejections
    assert task == 4
    assert reason
    for n in range(1, 8):
        detail = await look(store, n)
        if n == 4:
            assert (detail.task.state, detail.task.goal, detail.task.locked_by) == ("error", "hold", None)
            assert detail.task.cause
            assert [(s.state, s.doubt, s.doing) for s in detail.steps] == [
                ("in_doubt", True, None),
                ("waiting", False, None),
                ("waiting", False, None),
            ]
        else:
            assert [s.state for s in detail.steps] == ["done", "running", "waiting"]
    (alert,) = await store.alerts.views()
    assert (alert.kind, alert.task) == ("unreadable", 4)
    moves = [move[:3] for move in (await store.tasks.history(4))[-1].moves]
    assert moves == [("task", "processing", "error"), ("s0", "running", "in_doubt")], (
        "the rows are the fold of their history"
    )
    assert (await store.tasks.inbox(scheduler.node, 10)).at_rest == []


async def test_several_guilty_ones_and_losers_in_one_batch(store: Store) -> None:
    scheduler = await running(store, *range(1, 13))
    decisions = []
    for n in range(1, 13):
        decision = done(scheduler[n], 0)
        if n in (1, 6, 12):
            decision.task = replace(decision.task, cause=UNENCODABLE)
        if n in (2, 7):
            decision.used_requests = [(0, 50)]
        decisions.append(decision)
    outcome = await scheduler.commit(*decisions)
    assert sorted(task for task, _ in outcome.rejections) == [1, 6, 12]
    assert outcome.losses == {2, 7}
    assert [t.id for t in await store.tasks.find(Filter(states=("error",)))] == [12, 6, 1]
    assert [(await look(store, n)).steps[0].state for n in (3, 4, 5, 8, 9, 10, 11)] == ["done"] * 7


async def test_a_refused_decision_of_a_claim_puts_that_task_to_error_and_the_others_are_claimed(
    store: Store,
) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(n) for n in (1, 2, 3)])

    def make(memory: Memory) -> Decision:
        decision = begin(memory)
        if memory.id == 2:
            decision.task = replace(decision.task, cause=UNENCODABLE)
        return decision

    assert sorted(await scheduler.claim(5, make)) == [1, 3]
    assert [task for task, _ in scheduler.committed.rejections] == [2]
    bad_task = (await look(store, 2)).task
    assert (bad_task.state, bad_task.locked_by) == ("error", None)
    assert await scheduler.claim(5) == []


async def test_an_undo_whose_values_are_refused_stays_an_undo(store: Store) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(
        begin(scheduler[1], 0, to_state(scheduler[1], "undoing", goal="undo"), doing="undo")
    )
    bad = unchanged(scheduler[1])
    bad.task = replace(bad.task, cause=UNENCODABLE)
    await scheduler.commit(bad)
    detail = await look(store, 1)
    assert (detail.task.state, detail.task.goal, detail.steps[0].state) == ("error", "undo", "undo_failed")


async def test_a_big_batch_is_written_whole(store: Store) -> None:
    scheduler = await running(store, *range(1, 1301))
    payments = await agent(store)
    requests = await store.requests.take(payments, [offer(1300)])
    assert len(requests) == 1300
    assert all(await store.requests.answer(payments, [reply(r) for r in requests]))
    decisions = [begin(scheduler[n], 1, done(scheduler[n], 0)) for n in range(1, 1301)]
    outcome = await scheduler.commit(*decisions)
    assert (outcome.losses, outcome.rejections) == (set(), [])
    assert (await store.admin.schema()).rows["request"] == 1300


async def test_plans_with_one_step_end_in_two_commits(store: Store) -> None:
    scheduler = await running(store, 1, steps=steps(1))
    await scheduler.commit(to_state(scheduler[1], "processed", done(scheduler[1], 0)))
    assert (await look(store, 1)).task.state == "processed"
