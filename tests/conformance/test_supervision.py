"""What the leading Supervisor finds and writes, under the epoch of its term."""

import asyncio

import pytest

from makegood.election.protocol import Grant
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.store.protocol import Store
from makegood.store.views import Filter, NodeInfo, TaskView
from tests.conformance.builders import (
    Hand,
    Memory,
    agent,
    begin,
    done,
    draft,
    hand,
    info,
    offer,
    reply,
    running,
    steps,
    term,
    to_state,
)
from tests.conformance.worlds import World


async def view(store: Store, task: int) -> TaskView:
    """Return one task."""
    (task_view,) = await store.tasks.find(Filter(ids=(task,)))
    return task_view


async def node_info(store: Store, node: int) -> NodeInfo:
    """Return what a node published."""
    return next(n.info for n in await store.nodes.views() if n.id == node)


async def overdue(store: Store, world: World, *ids: int, seconds: float = 40.0) -> tuple[Hand, Grant]:
    """Send requests, have them taken, and let them become overdue; returns the Scheduler and a term."""
    scheduler = await running(store, *ids)
    await store.requests.take(await agent(store, ttl=1e6), [offer(len(ids))])
    await world.elapse(seconds)
    return scheduler, await term(store)


# Judging silence


async def test_a_silent_request_is_judged(store: Store, world: World) -> None:
    scheduler, grant = await overdue(store, world, 1)
    verdict = await store.supervision.judge(grant, 2.0, 10)
    assert (verdict.requests, verdict.full) == ([(1, 0, 1, 1)], False)
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.steps[0].failures, detail.steps[0].doing, detail.task.failure_count) == (1, None, 1)
    assert (detail.steps[0].state, detail.task.state) == ("running", "processing")
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    (message,) = snapshot.messages
    assert (message.kind, message.idx, message.doing, message.attempt) == ("expired", 0, "do", 1)
    assert (message.failures, message.died) == (1, False)
    assert message.took == pytest.approx(message.due - message.first_sent)
    assert await store.supervision.judge(grant, 2.0, 10) == type(verdict)([])


async def test_a_silence_has_the_deadline_as_it_was_last_extended(store: Store, world: World) -> None:
    """The console draws it; the first one is long past."""
    scheduler = await running(store, 1)
    node = await agent(store, ttl=1e6)
    await store.requests.take(node, [offer()])
    await world.elapse(20)
    assert await store.requests.extend(node, 1, 0, 1, 100.0)
    await world.elapse(110)
    await store.supervision.judge(await term(store), 2.0, 10)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    (message,) = snapshot.messages
    assert 119 < message.took < 130
    assert message.due == pytest.approx(message.first_sent + message.took)


async def test_the_count_goes_on_from_the_stored_one(store: Store, world: World) -> None:
    scheduler, grant = await overdue(store, world, 1)
    await store.supervision.judge(grant, 0, 10)
    await scheduler.commit(begin(scheduler[1], 0))
    await store.requests.take(await agent(store, ttl=1e6), [offer()])
    await world.elapse(40)
    await store.nodes.heartbeat(scheduler.node, await node_info(store, scheduler.node))
    grant = await store.leases.acquire("supervisor", "me", "second nonce", 60) or grant
    assert (await store.supervision.judge(grant, 0, 10)).requests == [(1, 0, 2, 2)]


async def test_silence_is_judged_only_after_the_grace(store: Store, world: World) -> None:
    _, grant = await overdue(store, world, 1, seconds=31.0)
    assert (await store.supervision.judge(grant, 10.0, 10)).requests == []
    await world.elapse(12)
    assert len((await store.supervision.judge(grant, 10.0, 10)).requests) == 1


async def test_requests_that_nobody_took_or_that_were_answered_are_not_judged(
    store: Store, world: World
) -> None:
    await running(store, 1, 2, 3)
    payments = await agent(store, ttl=1e6)
    requests = await store.requests.take(payments, [offer(2)])
    await store.requests.answer(payments, [reply(requests[0])])
    await world.elapse(500)
    verdict = await store.supervision.judge(await term(store), 0, 10)
    assert [r[0] for r in verdict.requests] == [2]


async def test_at_most_limit_are_judged_the_longest_overdue_first(store: Store, world: World) -> None:
    scheduler = await hand(store)
    payments = await agent(store, ttl=1e6)
    for n in (4, 2, 3, 1):
        await store.tasks.submit([draft(n)])
        await scheduler.claim(1)
        await store.requests.take(payments, [offer()])
        await world.elapse(1)
    await world.elapse(100)
    grant = await term(store)
    verdict = await store.supervision.judge(grant, 0, 3)
    assert ({r[0] for r in verdict.requests}, verdict.full) == ({4, 2, 3}, True)
    verdict = await store.supervision.judge(grant, 0, 3)
    assert ([r[0] for r in verdict.requests], verdict.full) == ([1], False)


async def test_the_message_says_whether_the_process_died(store: Store, world: World) -> None:
    scheduler = await running(store, 1, 2, 3)
    alive, dying, stopping = [await agent(store, ttl=t) for t in (1e6, 10.0, 1e6)]
    for node in (alive, dying, stopping):
        await store.requests.take(node, [offer(1)])
    await world.elapse(40)
    grant = await term(store)
    await store.supervision.judge(grant, 0, 10)
    await store.nodes.register(info())
    inbox = await store.tasks.inbox(scheduler.node, 10)
    assert {task: messages[0].died for task, messages in inbox.messages.items()} == {
        1: False,
        2: True,
        3: False,
    }


async def test_one_of_two_supervisors_counts_an_expiry(store: Store, other: Store, world: World) -> None:
    _, grant = await overdue(store, world, *range(1, 21))
    verdicts = await asyncio.gather(
        store.supervision.judge(grant, 0, 100), other.supervision.judge(grant, 0, 100)
    )
    assert sorted(r[0] for each in verdicts for r in each.requests) == list(range(1, 21))
    for n in range(1, 21):
        assert (await view(store, n)).failure_count == 1


async def test_an_extension_and_a_judgement_at_once_exclude_each_other(
    store: Store, other: Store, world: World
) -> None:
    await running(store, *range(1, 11))
    payments = await agent(store, ttl=1e6)
    await store.requests.take(payments, [offer(10)])
    grant = await term(other)
    verdict, extensions = await asyncio.gather(
        other.supervision.judge(grant, -100.0, 100),
        asyncio.gather(*(store.requests.extend(payments, n, 0, 1, 500.0) for n in range(1, 11))),
    )
    assert {r[0] for r in verdict.requests}.isdisjoint(n for n, ok in enumerate(extensions, 1) if ok)
    assert len(verdict.requests) + sum(extensions) == 10


async def test_a_task_that_nobody_holds_is_judged_too(store: Store, world: World) -> None:
    scheduler, grant = await overdue(store, world, 1)
    await world.elapse(60)
    grant = await store.leases.acquire("supervisor", "me", "n2", 60) or grant
    await store.supervision.release_dead(grant, 10)
    assert len((await store.supervision.judge(grant, 0, 10)).requests) == 1
    new = await hand(store)
    await new.claim(1, lambda memory: to_state(memory, "processing"))
    assert [m.kind for m in new.seen[0].messages] == ["expired"]
    assert new.node != scheduler.node


# Dead Schedulers


async def test_tasks_of_a_dead_scheduler_are_freed(store: Store, world: World) -> None:
    dead = await running(store, 1, 2)
    await world.elapse(120)
    alive = await running(store, 3)
    await dead.store.tasks.submit([draft(4)])
    assert sorted(await store.supervision.release_dead(await term(store), 10)) == [1, 2]
    for n in (1, 2):
        task = await view(store, n)
        assert (task.state, task.locked_by, task.failure_count, task.epoch) == ("pending", None, 1, 1)
    assert (await view(store, 3)).locked_by == alive.node
    assert (await store.tasks.history(1))[-1].moves[0][:3] == ("task", "processing", "pending")


async def test_the_goal_of_a_freed_task_is_kept(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(to_state(scheduler[1], "undoing", goal="undo"))
    await world.elapse(120)
    await store.supervision.release_dead(await term(store), 10)
    task = await view(store, 1)
    assert (task.state, task.goal) == ("pending", "undo")


async def test_each_loss_of_a_scheduler_that_ran_an_attempt_is_counted(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1)])
    for count in (1, 2, 3):
        scheduler = await hand(store)
        await scheduler.claim(1, local=True)
        assert scheduler.seen[0].task.lost == count - 1
        await world.elapse(120)
        grant = await store.leases.acquire("supervisor", "me", f"nonce {count}", 60)
        assert grant is not None
        assert await store.supervision.release_dead(grant, 10) == [1]
    last = await hand(store)
    await last.claim(1)
    assert last.seen[0].task.lost == 3


def hears(memory: Memory) -> Decision:
    """Use up what waits for the task, and send its first request (again)."""
    decision = begin(memory)
    decision.seqs = [message.seq for message in memory.messages]
    return decision


@pytest.mark.parametrize("judged_at", [40.0, 120.0])
async def test_a_loss_counts_though_the_silence_of_its_attempt_was_judged_before(
    store: Store, world: World, judged_at: float
) -> None:
    """In the pass that frees the task, or in an earlier one, when the heartbeat had not run out."""
    await store.tasks.submit([draft(1)])
    for count in (1, 2, 3):
        scheduler = await hand(store)
        await scheduler.claim(1, hears, local=True)
        assert scheduler.seen[0].task.lost == count - 1
        await world.elapse(judged_at)
        grant = await term(store)
        assert [one[:3] for one in (await store.supervision.judge(grant, 0, 10)).requests] == [(1, 0, count)]
        await world.elapse(120 - judged_at)
        grant = await term(store)
        assert await store.supervision.release_dead(grant, 10) == [1]
    last = await hand(store)
    await last.claim(1, hears)
    assert last.seen[0].task.lost == 3


async def test_the_silence_of_an_attempt_elsewhere_does_not_make_a_task_suspect(
    store: Store, world: World
) -> None:
    await overdue(store, world, 1)
    assert len((await store.supervision.judge(await term(store), 0, 10)).requests) == 1
    await world.elapse(120)
    assert await store.supervision.release_dead(await term(store), 10) == [1]
    new = await hand(store)
    await new.claim(1, hears)
    assert new.seen[0].task.lost == 0


async def test_a_task_of_which_nothing_ran_in_the_dead_process_did_not_kill_it(
    store: Store, world: World
) -> None:
    """It waited for another process, or for nothing: innocent beside one that kills, however often."""
    await store.tasks.submit([draft(1), draft(2), draft(3)])
    scheduler = await hand(store)
    await scheduler.claim(1, local=True)
    await scheduler.claim(1)
    assert len(await store.requests.take(await agent(store, ttl=1e6), [offer(1)])) == 1
    await scheduler.claim(1, lambda memory: to_state(memory, "processing"))
    await world.elapse(120)
    assert sorted(await store.supervision.release_dead(await term(store), 10)) == [1, 2, 3]
    new = await hand(store)
    await new.claim(3)
    assert {snapshot.task.id: snapshot.task.lost for snapshot in new.seen} == {1: 1, 2: 0, 3: 0}
    assert [(await view(store, n)).failure_count for n in (1, 2, 3)] == [1, 1, 1]


async def test_a_dead_node_learns_of_its_death_when_it_comes_back(store: Store, world: World) -> None:
    sleeper = await store.nodes.register(info(ttl=5.0))
    await world.elapse(6)
    assert await store.supervision.release_dead(await term(store), 10) == []
    assert not await store.nodes.heartbeat(sleeper, info(ttl=5.0))
    assert next(n.dead for n in await store.nodes.views() if n.id == sleeper)


async def test_a_node_that_beats_again_before_it_was_found_lives_on(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    await world.elapse(120)
    assert await store.nodes.heartbeat(scheduler.node, info())
    assert await store.supervision.release_dead(await term(store), 10) == []
    assert (await view(store, 1)).locked_by == scheduler.node


async def test_tasks_left_by_a_node_that_stopped_are_freed(store: Store) -> None:
    scheduler = await running(store, 1)
    await store.nodes.unregister(scheduler.node)
    assert await store.supervision.release_dead(await term(store), 10) == [1]


async def test_freed_tasks_wait_behind_those_that_waited_already(store: Store, world: World) -> None:
    await running(store, 1)
    await store.tasks.submit([draft(2)])
    await world.elapse(120)
    await store.supervision.release_dead(await term(store), 10)
    new = await hand(store)
    assert await new.claim(5, lambda memory: to_state(memory, "processing")) == [2, 1]


async def test_at_most_limit_tasks_are_freed_at_once(store: Store, world: World) -> None:
    await running(store, *range(1, 8))
    await world.elapse(120)
    grant = await term(store)
    batches = [await store.supervision.release_dead(grant, 3) for _ in range(4)]
    assert [len(f) for f in batches] == [3, 3, 1, 0]
    assert sorted(n for f in batches for n in f) == list(range(1, 8))


# Deaf Schedulers


async def test_a_scheduler_that_leaves_an_expired_message_unanswered_loses_the_task(
    store: Store, world: World
) -> None:
    scheduler, grant = await overdue(store, world, 1, 2)
    await store.supervision.judge(grant, 0, 1)
    await world.elapse(20)
    assert await store.supervision.release_unresponsive(grant, 40.0, 10) == []
    await world.elapse(21)
    assert await store.supervision.release_unresponsive(grant, 40.0, 10) == [1]
    task = await view(store, 1)
    assert (task.state, task.locked_by, task.failure_count) == ("pending", None, 2)
    assert (await view(store, 2)).locked_by == scheduler.node
    assert (await scheduler.commit(begin(scheduler[1], 1))).losses == {1}
    assert await store.nodes.heartbeat(scheduler.node, info())
    assert await store.supervision.release_unresponsive(grant, 10.0, 10) == []


async def test_a_scheduler_that_answered_in_time_keeps_the_task(store: Store, world: World) -> None:
    scheduler, grant = await overdue(store, world, 1)
    await store.supervision.judge(grant, 0, 1)
    decision = begin(scheduler[1], 0)
    decision.seqs = [m.seq for m in (await store.tasks.inbox(scheduler.node, 10)).messages[1]]
    await scheduler.commit(decision)
    await world.elapse(15)
    assert await store.supervision.release_unresponsive(grant, 10.0, 10) == []


async def test_other_messages_do_not_make_a_scheduler_deaf(store: Store, world: World) -> None:
    await running(store, 1)
    await store.tasks.post(1, TaskMessage("cancel"))
    await world.elapse(50)
    assert await store.supervision.release_unresponsive(await term(store), 10.0, 10) == []


# Tasks past their complete-by


async def test_a_task_past_its_complete_by_is_told_so_once(store: Store, world: World) -> None:
    scheduler = await running(store, 1, within=20.0)
    await running(store, 2)
    grant = await term(store)
    assert await store.supervision.expire_tasks(grant, 10) == []
    await world.elapse(21)
    assert await store.supervision.expire_tasks(grant, 10) == [1]
    assert await store.supervision.expire_tasks(grant, 10) == []
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert [(m.kind, m.idx) for m in snapshot.messages] == [("task_expired", -1)]
    assert (await view(store, 1)).state == "processing"


async def test_only_tasks_that_go_forward_expire(store: Store, world: World) -> None:
    scheduler = await running(store, 1, 2, 3, 4, within=20.0)
    await scheduler.commit(
        to_state(scheduler[1], "undoing", goal="undo"),
        to_state(scheduler[2], "processed"),
        to_state(scheduler[3], "error", goal="hold"),
    )
    await world.elapse(21)
    assert await store.supervision.expire_tasks(await term(store), 10) == [4]


async def test_a_freed_task_past_its_complete_by_is_told_too(store: Store, world: World) -> None:
    scheduler = await running(store, 1, within=20.0)
    await scheduler.commit(to_state(scheduler[1], "pending"))
    await world.elapse(21)
    assert await store.supervision.expire_tasks(await term(store), 10) == [1]
    new = await hand(store)
    await new.claim(1, lambda memory: to_state(memory, "processing"))
    assert [m.kind for m in new.seen[0].messages] == ["task_expired"]


async def test_a_resubmitted_task_can_expire_again(store: Store, world: World) -> None:
    scheduler = await running(store, 1, within=20.0)
    grant = await term(store, ttl=1e6)
    await world.elapse(21)
    assert await store.supervision.expire_tasks(grant, 10) == [1]
    decision = to_state(scheduler[1], "pending")
    decision.clear_complete_by = True
    await scheduler.commit(decision)
    await scheduler.claim(1, lambda memory: to_state(memory, "processing"))
    assert await store.supervision.expire_tasks(grant, 10) == []
    await world.elapse(21)
    assert await store.supervision.expire_tasks(grant, 10) == [1]


async def test_at_most_limit_tasks_are_told_at_once(store: Store, world: World) -> None:
    await running(store, *range(1, 6), within=20.0)
    await world.elapse(21)
    grant = await term(store)
    batches = [await store.supervision.expire_tasks(grant, 2) for _ in range(4)]
    assert [len(t) for t in batches] == [2, 2, 1, 0]


async def test_an_undo_that_takes_too_long_is_alerted_once_and_goes_on(store: Store, world: World) -> None:
    scheduler = await running(store, 1, undo_within=50.0)
    await scheduler.commit(to_state(scheduler[1], "undoing", goal="undo"))
    grant = await term(store, ttl=1e6)
    await world.elapse(51)
    for _ in range(2):
        await store.supervision.expire_tasks(grant, 10)
    assert [(a.kind, a.task) for a in await store.alerts.views()] == [("late_undo", 1)]
    assert (await view(store, 1)).state == "undoing"
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert snapshot.messages == []


async def test_a_takeover_does_not_begin_the_time_of_an_undo_anew(store: Store, world: World) -> None:
    scheduler = await running(store, 1, undo_within=50.0)
    await scheduler.commit(to_state(scheduler[1], "undoing", goal="undo"))
    await world.elapse(30)
    await scheduler.commit(to_state(scheduler[1], "pending"))
    await scheduler.claim(1, lambda memory: to_state(memory, "undoing"))
    await world.elapse(21)
    await store.supervision.expire_tasks(await term(store), 10)
    assert len(await store.alerts.views()) == 1


async def test_an_undo_that_ended_in_time_is_not_alerted(store: Store, world: World) -> None:
    scheduler = await running(store, 1, undo_within=50.0)
    await scheduler.commit(to_state(scheduler[1], "undoing", goal="undo"))
    await scheduler.commit(to_state(scheduler[1], "undone"))
    await world.elapse(51)
    await store.supervision.expire_tasks(await term(store), 10)
    assert await store.alerts.views() == []


# Starved requests


async def test_a_request_that_no_agent_takes_is_alerted_once_and_fails_nothing(
    store: Store, world: World
) -> None:
    await running(store, 1)
    grant = await term(store, ttl=1e6)
    await world.elapse(50)
    assert await store.supervision.alert_starved(grant, 60.0, 10) == []
    await world.elapse(11)
    assert await store.supervision.alert_starved(grant, 60.0, 10) == [1]
    assert await store.supervision.alert_starved(grant, 60.0, 10) == []
    (alert,) = await store.alerts.views()
    assert (alert.kind, alert.task, alert.step) == ("starved", 1, "s0")
    assert "payments" in alert.text
    assert "act0" in alert.text
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.steps[0].failures, detail.task.failure_count, detail.steps[0].doing) == (0, 0, "do")
    assert len(await store.requests.take(await agent(store), [offer()])) == 1


async def test_taken_requests_and_timers_do_not_starve(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    await store.requests.take(await agent(store, ttl=1e6), [offer()])
    await scheduler.commit(Decision(scheduler[1].task, scheduler[1].task, timers={1: 500.0}))
    await world.elapse(100)
    assert await store.supervision.alert_starved(await term(store), 60.0, 10) == []


async def test_at_most_limit_requests_are_alerted_the_longest_waiting_first(
    store: Store, world: World
) -> None:
    scheduler = await hand(store)
    for n in (3, 1, 2):
        await store.tasks.submit([draft(n)])
        await scheduler.claim(1)
        await world.elapse(1)
    await world.elapse(100)
    grant = await term(store)
    assert [await store.supervision.alert_starved(grant, 60.0, 2) for _ in range(3)] == [[3, 1], [2], []]


# The horizon


async def test_with_nothing_to_come_the_horizon_is_the_most(store: Store) -> None:
    assert await store.supervision.horizon(2.0, 5.0) == 5.0


async def test_the_horizon_is_the_earliest_of_what_may_have_to_be_judged(store: Store, world: World) -> None:
    await store.nodes.register(info(ttl=50.0))
    assert await store.supervision.horizon(2.0, 100.0) == pytest.approx(50, abs=5)
    scheduler = await running(store, 1, within=40.0, steps=steps(3, within=20.0))
    assert await store.supervision.horizon(2.0, 100.0) == pytest.approx(40, abs=5)
    await store.requests.take(await agent(store), [offer()])
    assert await store.supervision.horizon(7.0, 100.0) == pytest.approx(27, abs=5)
    assert await store.supervision.horizon(7.0, 10.0) == 10.0
    await world.elapse(30)
    assert await store.supervision.horizon(2.0, 100.0) == 0.0
    await scheduler.commit(to_state(scheduler[1], "processed", done(scheduler[1], 0)))
    assert await store.supervision.horizon(2.0, 100.0) == pytest.approx(20, abs=5)
