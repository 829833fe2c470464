"""Requests that nobody needs any more: those that an agent has are marked, and its process is woken; the others are withdrawn."""

import asyncio

from msgspec.structs import replace

from makegood.model.decision import Decision
from makegood.model.messages import Request
from makegood.store.protocol import Store
from makegood.store.views import AgentInfo
from tests.conformance.builders import (
    PAYMENTS,
    Hand,
    agent,
    begin,
    done,
    hand,
    info,
    offer,
    reply,
    running,
    unchanged,
)
from tests.conformance.worlds import Counts, World, still_waits


def cancel(scheduler: Hand, task: int, idx: int = 0, *, withdraw: bool = True) -> Decision:
    """Return a Decision by which nobody needs the attempt at a step any more."""
    decision = unchanged(scheduler[task])
    key = (idx, scheduler[task].steps[idx].attempt)
    decision.cancels.append(key)
    if withdraw:
        decision.withdraw.append(key)
    return decision


async def wakes(store: Store, node: int) -> asyncio.Event:
    """Return what is set once this process is woken."""
    wake = asyncio.Event()
    store.subscribe(f"cancel:{node}", wake.set)
    return wake


async def soon(wake: asyncio.Event) -> None:
    """Wait for a wake-up."""
    async with asyncio.timeout(120):
        await wake.wait()


async def test_what_an_agent_has_is_marked_and_what_nobody_has_is_withdrawn(store: Store) -> None:
    scheduler = await running(store, 1, 2)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer(1)])
    other = 3 - request.task
    outcome = await scheduler.commit(cancel(scheduler, request.task), cancel(scheduler, other))
    assert outcome.withdrawals == [(other, 0, 1)]
    assert await store.requests.cancels(payments) == [(request.task, 0, 1)]
    assert await store.requests.cancels(scheduler.node) == []


async def test_its_process_is_woken_and_no_other(store: Store, other: Store) -> None:
    scheduler = await running(store, 1)
    first, second = await agent(other), await agent(other)
    await store.requests.take(first, [offer()])
    near, far, idle = await wakes(store, first), await wakes(other, first), await wakes(other, second)
    await scheduler.commit(cancel(scheduler, 1))
    await soon(near)
    await soon(far)
    assert not idle.is_set()


async def test_a_claim_that_turns_a_task_wakes_too(store: Store) -> None:
    """It is an explicit transaction, and on PostgreSQL its wake-ups go another way."""
    first = await running(store, 1)
    payments = await agent(store)
    await store.requests.take(payments, [offer()])
    release = unchanged(first[1])
    release.task = replace(release.task, state="pending")
    release.release = True
    await first.commit(release)
    wake = await wakes(store, payments)
    scheduler = await hand(store)

    def turn(memory: object) -> Decision:
        scheduler.tasks[1] = memory  # type: ignore[assignment]  # a Memory
        decision = cancel(scheduler, 1)
        decision.task = replace(decision.task, state="undoing", goal="undo")
        return decision

    assert await scheduler.claim(1, turn) == [1]
    assert await store.requests.cancels(payments) == [(1, 0, 1)]
    await soon(wake)


async def test_a_request_that_was_handed_over_in_memory_is_marked_like_any_other(store: Store) -> None:
    scheduler = await running(store, 1, local=True)
    wake = await wakes(store, scheduler.node)
    await scheduler.commit(cancel(scheduler, 1, withdraw=False))
    assert await store.requests.cancels(scheduler.node) == [(1, 0, 1)]
    await soon(wake)


async def test_probes_undos_and_what_is_answered_are_never_marked(store: Store) -> None:
    scheduler = await running(store, 1, 2, 3)
    payments = await agent(store)
    await store.requests.take(payments, [offer()])
    for task, doing in ((1, "undo"), (2, "probe")):
        await scheduler.commit(begin(scheduler[task], 0, done(scheduler[task]), doing=doing))
    await store.requests.take(payments, [offer()])
    await store.requests.answer(payments, [reply(_request(3))])
    await scheduler.commit(*(cancel(scheduler, task) for task in (1, 2, 3)))
    assert await store.requests.cancels(payments) == []


def _request(task: int) -> Request:
    return Request(task, 0, "do", 1, "shop", "payments", "act0", "s0", 1, 30.0, b"{}")


async def test_an_answered_request_is_no_longer_listed_and_a_heartbeat_wakes_for_what_is(
    store: Store,
) -> None:
    """The wake-up of the commit may be lost."""
    scheduler = await running(store, 1)
    payments = await agent(store)
    about = info("agent", ("agent",), agents=(AgentInfo(PAYMENTS, 4),))
    (request,) = await store.requests.take(payments, [offer()])
    wake = await wakes(store, payments)
    assert await store.nodes.heartbeat(payments, about)
    await scheduler.commit(cancel(scheduler, 1))
    await soon(wake)
    wake.clear()
    await store.nodes.heartbeat(payments, about)
    await soon(wake)
    await store.requests.answer(payments, [reply(request)])
    assert await store.requests.cancels(payments) == []
    await asyncio.sleep(0)
    wake.clear()
    await store.nodes.heartbeat(payments, about)
    await store.now()
    assert not wake.is_set()


async def test_a_request_that_is_taken_at_this_very_moment_is_marked(
    store: Store, other: Store, world: World
) -> None:
    """PostgreSQL's statement does not see who takes it while it waits for the row: it must look at it again."""
    scheduler = await running(store, 1)
    payments = await agent(other)
    async with world.raw() as raw:
        await raw.run(
            "update {request} set taken_by = ?, taken_at = 1, complete_by = 1e12 where task = 1", payments
        )
        commit = asyncio.ensure_future(scheduler.commit(cancel(scheduler, 1)))
        assert await still_waits(commit)
    outcome = await commit
    assert outcome.withdrawals == []
    assert await store.requests.cancels(payments) == [(1, 0, 1)]


async def test_what_is_released_without_having_begun_stays_marked_for_the_next_one(store: Store) -> None:
    scheduler = await running(store, 1)
    first, second = await agent(store), await agent(store)
    await store.requests.take(first, [offer()])
    await scheduler.commit(cancel(scheduler, 1))
    await store.requests.give_back(first, [(1, 0, 1)])
    await store.requests.take(second, [offer()])
    assert await store.requests.cancels(first) == []
    assert await store.requests.cancels(second) == [(1, 0, 1)]


async def test_500_cancels_are_one_commit_and_no_more_statements_than_one(
    counting_store: Store, counts: Counts
) -> None:
    scheduler = await running(counting_store, *range(1, 502))
    payments = await agent(counting_store)
    await counting_store.requests.take(payments, [offer(501)])
    statements: list[int] = []
    for tasks in (range(1, 2), range(2, 502)):
        await counts.reset()
        await scheduler.commit(*(cancel(scheduler, n) for n in tasks))
        assert await counts.commits() == 1
        statements.append(counts.statements)
    assert statements[1] <= statements[0] <= 6
    assert len(await counting_store.requests.cancels(payments)) == 501


async def test_a_turn_with_nothing_in_flight_costs_no_statement_more(
    counting_store: Store, counts: Counts
) -> None:
    """Nor does one whose requests nobody has taken: it costs what the withdrawal costs."""
    scheduler = await running(counting_store, 1, 2)
    statements: list[int] = []
    for task, cancels in ((1, False), (2, True)):
        decision = cancel(scheduler, task)
        if not cancels:
            decision.cancels = []
        await counts.reset()
        await scheduler.commit(decision)
        statements.append(counts.statements)
    assert statements[0] == statements[1]
