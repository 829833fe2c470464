"""Commits and statements, counted at the driver: their number does not grow with the batch."""

import asyncio

from msgspec.structs import replace

from makegood.model.decision import OpenDecision
from makegood.model.messages import Act, TaskMessage
from makegood.model.states import Move
from makegood.store.protocol import Store
from makegood.store.views import Filter
from tests.conformance.builders import (
    Hand,
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
from tests.conformance.worlds import Counts, World

MOST_STATEMENTS = 12
"""More than any one operation needs, between its begin and its commit."""


async def end_of(scheduler: Hand, *tasks: int) -> None:
    """Commit the last step and the end of tasks."""
    await scheduler.commit(*(to_state(scheduler[n], "processed", done(scheduler[n], 0)) for n in tasks))


async def test_a_submission_is_one_commit_and_500_are_as_many_statements(
    counting_store: Store, counts: Counts
) -> None:
    await counts.reset()
    await counting_store.tasks.submit([draft(1)])
    assert await counts.commits() == 1
    one = counts.statements
    assert one <= MOST_STATEMENTS
    await counts.reset()
    await counting_store.tasks.submit([draft(n, steps=steps(10)) for n in range(2, 502)])
    assert await counts.commits() == 1
    assert counts.statements <= one


async def test_submissions_of_the_same_moment_share_a_commit(counting_store: Store, counts: Counts) -> None:
    await counting_store.tasks.submit([draft(1)])
    await counts.reset()
    await asyncio.gather(*(counting_store.tasks.submit([draft(n)]) for n in range(2, 252)))
    assert await counts.commits() == 1
    assert counts.statements <= MOST_STATEMENTS


async def test_a_step_done_and_the_next_sent_is_one_commit_for_1_and_for_500(
    counting_store: Store, counts: Counts
) -> None:
    scheduler = await running(counting_store, *range(1, 502))
    await counting_store.now()
    await counts.reset()
    await scheduler.commit(begin(scheduler[1], 1, done(scheduler[1], 0)))
    assert await counts.commits() == 1
    one = counts.statements
    assert one <= MOST_STATEMENTS
    await counts.reset()
    await scheduler.commit(*(begin(scheduler[n], 1, done(scheduler[n], 0)) for n in range(2, 502)))
    assert await counts.commits() == 1
    assert counts.statements <= one


async def test_claim_and_first_dispatch_are_one_commit_for_1_and_for_500(
    counting_store: Store, counts: Counts
) -> None:
    scheduler = await hand(counting_store)
    await counting_store.tasks.submit([draft(n) for n in range(1, 502)])
    await counts.reset()
    await scheduler.claim(1)
    assert await counts.commits() == 1
    one = counts.statements
    assert one <= MOST_STATEMENTS
    await counts.reset()
    assert len(await scheduler.claim(500)) == 500
    assert await counts.commits() == 1
    assert counts.statements <= one


async def test_the_end_of_1_and_of_500_tasks_is_one_commit(counting_store: Store, counts: Counts) -> None:
    scheduler = await running(counting_store, *range(1, 502))
    await counts.reset()
    await end_of(scheduler, 1)
    assert await counts.commits() == 1
    one = counts.statements
    await counts.reset()
    await end_of(scheduler, *range(2, 502))
    assert await counts.commits() == 1
    assert counts.statements <= one


async def test_a_sequence_of_n_steps_costs_n_and_one_scheduler_commits(
    counting_store: Store, counts: Counts
) -> None:
    for n in (1, 3, 10):
        await counting_store.tasks.submit([draft(n, steps=steps(n))])
        scheduler = await hand(counting_store)
        await counts.reset()
        await scheduler.claim(1, local=True)
        for idx in range(n):
            decision = done(scheduler[n], idx)
            if idx + 1 < n:
                begin(scheduler[n], idx + 1, decision)
                await scheduler.commit(decision, local=[(n, idx + 1, 1)])
            else:
                await scheduler.commit(to_state(scheduler[n], "processed", decision))
        assert await counts.commits() == n + 1


async def test_operations_of_the_same_moment_share_a_commit(counting_store: Store, counts: Counts) -> None:
    scheduler = await running(counting_store, 1, 2)
    payments = await agent(counting_store)
    (first, _) = await counting_store.requests.take(payments, [offer()])
    await counts.reset()
    await asyncio.gather(
        scheduler.commit(begin(scheduler[2], 1)),
        counting_store.tasks.submit([draft(3)]),
        counting_store.requests.answer(payments, [reply(first)]),
        counting_store.tasks.post(2, TaskMessage("cancel")),
    )
    assert await counts.commits() <= counts.sharing(4)


async def test_taking_and_answering_do_not_grow_with_the_batch(counting_store: Store, counts: Counts) -> None:
    await running(counting_store, *range(1, 401))
    payments = await agent(counting_store)
    costs = []
    for slots in (1, 300):
        await counts.reset()
        requests = await counting_store.requests.take(payments, [offer(slots)])
        assert len(requests) == slots
        assert all(await counting_store.requests.answer(payments, [reply(r) for r in requests]))
        assert await counts.commits() == 2
        costs.append(counts.statements)
    assert costs[1] <= costs[0]


async def test_a_supervisors_pass_does_not_grow_with_what_it_finds(
    world: World, counting_store: Store, counts: Counts
) -> None:
    grant = await term(counting_store, ttl=1e6)
    costs = []
    for count in (1, 300):
        scheduler = await hand(counting_store)
        leftovers = len(await counting_store.tasks.find(Filter(limit=1000)))  # freed by the pass before
        await counting_store.tasks.submit([draft(n, within=20.0) for n in range(leftovers + 1, count + 1)])
        assert len(await scheduler.claim(1000)) == count
        await counting_store.requests.take(await agent(counting_store), [offer(count)])
        await world.elapse(100)
        await counts.reset()
        assert len((await counting_store.supervision.judge(grant, 0, 1000)).requests) == count
        assert len(await counting_store.supervision.release_dead(grant, 1000)) == count
        assert len(await counting_store.supervision.expire_tasks(grant, 1000)) == count - leftovers
        assert await counts.commits() == 3
        costs.append(counts.statements)
    assert costs[1] <= costs[0]


async def test_looking_writes_nothing(counting_store: Store, counts: Counts) -> None:
    scheduler = await running(counting_store, 1)
    await counts.reset()
    await counting_store.tasks.inbox(scheduler.node, 100)
    await counting_store.tasks.detail(1)
    await counting_store.tasks.history(1)
    await counting_store.tasks.load(scheduler.node, [1])
    await counting_store.supervision.horizon(2, 5)
    await counting_store.nodes.views()
    assert await counts.commits() == 0


def wait_of(scheduler: Hand, task: int, *, let_go: bool) -> OpenDecision:
    """Return the Decision on a step whose service asks to come back in an hour."""
    memory = scheduler[task]
    decision = unchanged(memory) if not let_go else to_state(memory, "sleeping")
    decision.used_requests.append((0, memory.steps[0].attempt))
    decision.steps[0] = replace(memory.steps[0], state="ready", doing=None, waiting=True)
    decision.timers[0] = 3600.0
    decision.moves.append(Move("s0", "running", "ready", "later"))
    decision.wakes = 3600.0 if let_go else None
    return decision


async def test_letting_go_is_in_the_commit_of_the_wait_and_no_statement_more(
    counting_store: Store, counts: Counts, world: World
) -> None:
    """SQLite changes one row more, by a statement of the same transaction; 500 tasks that wait alike share it."""
    scheduler = await running(counting_store, *range(1, 1003))
    await counting_store.now()
    statements: list[int] = []
    for tasks in (range(1, 2), range(2, 502)):
        for let_go, shift in ((False, 0), (True, 501)):
            await counts.reset()
            await scheduler.commit(*(wait_of(scheduler, n + shift, let_go=let_go) for n in tasks))
            assert await counts.commits() == 1
            statements.append(counts.statements)
    more = 1 if world.dialect == "sqlite" else 0
    assert statements[1] <= statements[0] + more
    assert statements[3] <= statements[2] + more


async def test_500_wakes_are_one_commit(counting_store: Store, counts: Counts, world: World) -> None:
    scheduler = await running(counting_store, *range(1, 501))
    await scheduler.commit(*(wait_of(scheduler, n, let_go=True) for n in range(1, 501)))
    await world.elapse(3601)
    await counting_store.now()
    await counts.reset()
    assert len(await scheduler.claim(500, sleepers=True)) == 500
    assert await counts.commits() == 1
    assert counts.statements <= MOST_STATEMENTS + 2


async def test_timers_that_nobody_needs_go_without_a_statement_more(
    counting_store: Store, counts: Counts
) -> None:
    """They are what a task that wakes leaves behind."""
    scheduler = await running(counting_store, *range(1, 601))
    await scheduler.commit(*(wait_of(scheduler, n, let_go=False) for n in range(1, 601)))
    statements: list[int] = []
    for tasks, timers in ((range(1, 301), []), (range(301, 601), [0])):
        decisions = [done(scheduler[n], 0) for n in tasks]
        for decision in decisions:
            decision.used_requests.clear()
            decision.stale_timers = timers
        await counts.reset()
        await scheduler.commit(*decisions)
        assert await counts.commits() == 1
        statements.append(counts.statements)
    assert statements[1] <= statements[0]
    loads = await counting_store.tasks.load(scheduler.node, list(range(1, 601)))
    assert [each.task.id for each in loads if each.due] == list(range(1, 301))


async def test_a_claim_for_messages_alone_looks_for_no_pending_task(
    counting_store: Store, counts: Counts
) -> None:
    """It is what lies between a signal and the next step of a task that sleeps."""
    scheduler = await running(counting_store, 1, 2)
    await scheduler.commit(*(wait_of(scheduler, n, let_go=True) for n in (1, 2)))
    for task in (1, 2):
        await counting_store.tasks.post(task, TaskMessage("cancel", act=Act(f"act {task}")))
    await counting_store.tasks.submit([draft(3)])
    statements: list[int] = []
    for task, limit in ((1, 0), (2, 1)):
        await counts.reset()
        await scheduler.claim(limit, at_rest=[task])
        assert await counts.commits() == 1
        statements.append(counts.statements)
        assert scheduler.committed.more is False
    assert statements[0] < statements[1]
