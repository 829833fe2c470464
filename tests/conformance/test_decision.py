"""Everything that a Decision writes."""

import asyncio

import pytest
from msgspec.structs import replace

from makegood.model.decision import Decision
from makegood.model.messages import Act, Alert, Answer, TaskMessage
from makegood.store.protocol import Store
from makegood.store.views import TaskDetail
from tests.conformance.builders import (
    Memory,
    agent,
    begin,
    draft,
    hand,
    offer,
    running,
    term,
    to_state,
    unchanged,
)
from tests.conformance.worlds import World


async def look(store: Store, task: int) -> TaskDetail:
    """Return one task with its steps."""
    detail = await store.tasks.detail(task)
    assert detail is not None
    return detail


async def test_a_retry_under_the_same_key_is_a_new_attempt(store: Store) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store)
    await store.requests.take(payments, [offer()])
    decision = unchanged(scheduler[1])
    decision.used_requests.append((0, 1))
    begin(scheduler[1], 0, decision)
    await scheduler.commit(decision)
    (request,) = await store.requests.take(payments, [offer()])
    assert (request.attempt, request.idx) == (2, 0)
    assert (await look(store, 1)).steps[0].attempt == 2


async def test_a_request_comes_to_the_agent_as_it_was_sent(store: Store) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, priority=6, trace="00-b")])
    requests = []

    def make(memory: Memory) -> Decision:
        decision = begin(
            memory, 1, doing="undo", in_doubt=True, result=b"1", late=b"2", isolate=True, trace="00-b"
        )
        requests.extend(decision.requests)
        return decision

    await scheduler.claim(1, make)
    (request,) = await store.requests.take(await agent(store), [offer()])
    # when it was first sent and taken, and how long it lay there, only the store knows
    assert replace(request, waited=0.0, first_sent=0.0, taken_at=0.0) == requests[0]
    assert request.first_sent > 0
    assert request.taken_at > 0
    assert 0 <= request.waited < 60
    assert request.within == 30.0


async def test_release_clears_the_lock_and_a_task_at_rest_keeps_no_requests(store: Store) -> None:
    scheduler = await running(store, 1, 2)
    decision = to_state(scheduler[1], "error", goal="hold", cause="no stock")
    decision.timers[2] = 10.0
    await scheduler.commit(decision)
    detail = await look(store, 1)
    assert (detail.task.state, detail.task.goal, detail.task.cause, detail.task.locked_by) == (
        "error",
        "hold",
        "no stock",
        None,
    )
    assert all(s.doing is None for s in detail.steps)
    assert detail.task.ended is None


async def test_an_ended_task_has_its_end_and_loses_it_when_it_goes_on(store: Store) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(to_state(scheduler[1], "undone", goal="undo"))
    assert (await look(store, 1)).task.ended == pytest.approx(await store.now(), abs=40)
    await store.tasks.post(1, TaskMessage("resubmit"))
    await scheduler.claim(
        0, lambda memory: to_state(memory, "pending", goal="forward", submission=2), at_rest=[1]
    )
    detail = await look(store, 1)
    assert (detail.task.ended, detail.task.state, detail.task.submission) == (None, "pending", 2)


async def test_an_act_that_changes_nothing_leaves_the_end_as_it_was(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(to_state(scheduler[1], "processed"))
    await world.elapse(100)
    await store.tasks.post(1, TaskMessage("cancel", act=Act("a")))

    def refuse(memory: Memory) -> Decision:
        decision = unchanged(memory)
        decision.release = True
        decision.seqs = [m.seq for m in memory.messages]
        decision.answers.append(
            Answer(Act("a", "me", "why"), "cancel", "refused", "it has ended", "processed")
        )
        return decision

    await scheduler.claim(0, refuse, at_rest=[1])
    task = (await look(store, 1)).task
    assert (task.state, task.locked_by) == ("processed", None)
    assert task.ended == pytest.approx(await store.now() - 100, abs=40)
    assert (await store.tasks.answers(["a"]))["a"].verdict == "refused"


async def test_untaken_requests_are_withdrawn_and_taken_ones_are_not(store: Store) -> None:
    scheduler = await running(store, 1, 2)
    await scheduler.commit(begin(scheduler[1], 1), begin(scheduler[2], 1))
    requests = await store.requests.take(await agent(store), [offer(1)])
    assert [(r.task, r.idx) for r in requests] == [(1, 0)]
    decisions = []
    for n in (1, 2):
        decision = unchanged(scheduler[n])
        decision.withdraw = [(0, 1), (1, 1), (2, 1), (1, 9)]
        decisions.append(decision)
    outcome = await scheduler.commit(*decisions)
    assert sorted(outcome.withdrawals) == [(1, 1, 1), (2, 0, 1), (2, 1, 1)]
    assert [s.doing for s in (await look(store, 1)).steps] == ["do", None, None]
    assert [s.doing for s in (await look(store, 2)).steps] == [None, None, None]


async def test_a_withdrawal_and_a_take_at_once_exclude_each_other(store: Store, other: Store) -> None:
    scheduler = await running(store, *range(1, 21))
    payments = await agent(other)
    decisions = []
    for n in range(1, 21):
        decision = unchanged(scheduler[n])
        decision.withdraw = [(0, 1)]
        decisions.append(decision)
    outcome, requests = await asyncio.gather(
        scheduler.commit(*decisions), other.requests.take(payments, [offer(10)])
    )
    withdrawals = {task for task, _, _ in outcome.withdrawals}
    takes = {r.task for r in requests}
    assert withdrawals.isdisjoint(takes)
    assert withdrawals | takes == set(range(1, 21)) or len(takes) == 10


async def test_timers_are_set_replaced_and_dropped(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    task = scheduler[1].task
    await scheduler.commit(Decision(task, task, timers={1: 10.0, 2: 20.0}))
    await scheduler.commit(Decision(task, task, timers={1: 50.0}, stale_timers=[2]))
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert snapshot.due == {1: pytest.approx(50, abs=30)}
    await scheduler.commit(Decision(task, task, stale_timers=[1], timers={1: 7.0}))
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert snapshot.due == {1: pytest.approx(7, abs=5)}
    await scheduler.commit(Decision(task, task, stale_timers=[1]))
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert (snapshot.due, snapshot.steps[1].waiting) == ({}, False)


async def test_a_step_may_have_a_timer_and_a_request_side_by_side(store: Store) -> None:
    scheduler = await running(store, 1)
    task = scheduler[1].task
    await scheduler.commit(Decision(task, task, timers={0: 10.0}))
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert (snapshot.steps[0].doing, snapshot.steps[0].waiting) == ("do", True)


async def test_a_timer_is_never_taken_and_never_judged(store: Store, world: World) -> None:
    scheduler = await running(store, 1, local=True)
    task = scheduler[1].task
    await scheduler.commit(Decision(task, task, used_requests=[(0, 1)], timers={1: 1.0}))
    await world.elapse(50)
    assert await store.requests.take(await agent(store), [offer()]) == []
    assert (await store.supervision.judge(await term(store), 0, 10)).requests == []


async def test_failure_counts_are_raised_in_the_store_or_begun_anew(store: Store, world: World) -> None:
    scheduler = await running(store, 1, local=True)
    await world.elapse(31)
    await store.supervision.judge(
        await term(store), 0, 10
    )  # the store's count is 1, the Scheduler does not know
    task, first = scheduler[1].task, scheduler[1].steps[0]
    await scheduler.commit(
        Decision(task, task, steps={0: first}, failure_counts={0: (False, 2), 1: (False, 1)})
    )
    detail = await look(store, 1)
    assert ([s.failures for s in detail.steps], detail.task.failure_count) == ([3, 1, 0], 4)
    await scheduler.commit(
        Decision(task, task, steps={0: first}, failure_counts={0: (True, 1), 1: (True, 0)})
    )
    detail = await look(store, 1)
    assert ([s.failures for s in detail.steps], detail.task.failure_count) == ([1, 0, 0], 5)


async def test_a_failure_may_count_for_the_task_alone(store: Store) -> None:
    scheduler = await running(store, 1)
    task = scheduler[1].task
    await scheduler.commit(Decision(task, task, failure_counts={-1: (False, 1), 0: (True, 0)}))
    detail = await look(store, 1)
    assert ([s.failures for s in detail.steps], detail.task.failure_count) == ([0, 0, 0], 1)


async def test_the_failure_count_that_the_rules_were_told_is_not_written(store: Store) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(
        Decision(scheduler[1].task, replace(scheduler[1].task, failure_count=7, cause="x"))
    )
    assert (await look(store, 1)).task.failure_count == 0


async def test_alerts_are_written_with_the_decision(store: Store) -> None:
    scheduler = await running(store, 1)
    decision = unchanged(scheduler[1])
    decision.alerts = [Alert("held", 1, "", "look at it"), Alert("undo_stuck", 1, "s0", "no undo")]
    await scheduler.commit(decision)
    alerts = await store.alerts.views()
    assert [(a.kind, a.task, a.step, a.text) for a in alerts] == [
        ("undo_stuck", 1, "s0", "no undo"),
        ("held", 1, "", "look at it"),
    ]


async def test_answers_to_acts_are_written_with_the_decision_and_the_first_stands(store: Store) -> None:
    scheduler = await running(store, 1)
    answer = Answer(Act("act-1", "ops", "customer called"), "cancel", "applied", "", "undoing")
    for verdict in ("applied", "noop"):
        decision = unchanged(scheduler[1])
        decision.answers = [replace(answer, verdict=verdict)]
        assert not (await scheduler.commit(decision)).rejections
    assert await store.tasks.answers(["act-1", "act-2"]) == {"act-1": answer}


async def test_messages_are_used_up_by_the_decision_that_names_them(store: Store) -> None:
    scheduler = await running(store, 1, 2)
    await store.tasks.post(1, TaskMessage("cancel"))
    await store.tasks.post(1, TaskMessage("undo"))
    await store.tasks.post(2, TaskMessage("cancel"))
    inbox = await store.tasks.inbox(scheduler.node, 10)
    decision = unchanged(scheduler[1])
    decision.seqs = [inbox.messages[1][0].seq, 0]
    await scheduler.commit(decision)
    after = await store.tasks.inbox(scheduler.node, 10)
    assert [[m.kind for m in after.messages[n]] for n in (1, 2)] == [["undo"], ["cancel"]]


async def test_a_sequence_never_comes_again(store: Store) -> None:
    scheduler = await running(store, 1)
    sequences = []
    for _ in range(3):
        await store.tasks.post(1, TaskMessage("cancel"))
        (message,) = (await store.tasks.inbox(scheduler.node, 10)).messages[1]
        sequences.append(message.seq)
        decision = unchanged(scheduler[1])
        decision.seqs = [message.seq]
        await scheduler.commit(decision)
    assert sequences == sorted(set(sequences))


async def test_steps_of_an_each_are_added(store: Store) -> None:
    scheduler = await running(store, 1)
    decision = unchanged(scheduler[1])
    template = scheduler[1].steps[2]
    for n in (3, 4):
        plan = replace(template.plan, idx=n, name=f"s2[{n - 3}]", of=2, nth=n - 3)
        decision.new_steps.append(replace(template, plan=plan, state="waiting"))
    await scheduler.commit(decision)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert [s.plan.name for s in snapshot.steps] == ["s0", "s1", "s2", "s2[0]", "s2[1]"]
    assert [s.plan.nth for s in snapshot.steps] == [-1, -1, -1, 0, 1]


async def test_a_late_undo_is_alerted_only_after_undo_within(store: Store, world: World) -> None:
    scheduler = await running(store, 1, undo_within=60.0)
    await world.elapse(10)
    await scheduler.commit(to_state(scheduler[1], "undoing", goal="undo"))
    grant = await term(store, ttl=1000)
    await world.elapse(30)
    await store.supervision.expire_tasks(grant, 10)
    assert await store.alerts.views() == []
    await world.elapse(31)
    await store.supervision.expire_tasks(grant, 10)
    assert [(a.kind, a.task) for a in await store.alerts.views()] == [("late_undo", 1)]
