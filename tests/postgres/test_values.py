"""Values that PostgreSQL refuses and others take, and damaged rows: the guilty one goes to error, the others go on."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.errors import PayloadError
from makegood.model.messages import Alert, TaskMessage
from makegood.store.postgres import PostgresStore
from tests.conformance.builders import agent, begin, done, draft, hand, offer, running, to_state, unchanged

NUL = "before\0after"


def with_error(memory: Any, error: str) -> Any:
    """Return a Decision that keeps an error text of a step."""
    decision = unchanged(memory)
    decision.steps[0] = replace(memory.steps[0], error=error)
    return decision


async def test_a_nul_in_a_decision_is_found_among_many_and_named(store: PostgresStore) -> None:
    mine = await running(store, *range(1, 65))
    decisions = [with_error(mine[n], NUL if n in (17, 40) else "fine") for n in range(1, 65)]
    outcome = await mine.commit(*decisions)
    assert [task for task, _ in outcome.rejections] == [17, 40]
    assert all("refuses a value" in reason for _, reason in outcome.rejections)
    for n in (16, 17, 18):
        detail = await store.tasks.detail(n)
        assert detail is not None
        assert detail.task.state == ("error" if n == 17 else "processing")
        assert detail.steps[0].error == (None if n == 17 else "fine")
        assert detail.steps[0].state == ("in_doubt" if n == 17 else "running")
        assert [a.kind for a in await store.alerts.views(task=n)] == (["unreadable"] if n == 17 else [])


async def test_a_nul_in_the_reason_itself_does_not_stop_the_verdict(store: PostgresStore, db: Any) -> None:
    mine = await running(store, 1)
    bad = unchanged(mine[1])
    bad.alerts.append(Alert("held", 1, text=NUL))
    assert [task for task, _ in (await mine.commit(bad)).rejections] == [1]
    assert "\0" not in await db.fetchval("select cause from makegood.task where id = 1")


async def test_a_number_out_of_range_is_the_fault_of_its_task_alone(store: PostgresStore) -> None:
    mine = await running(store, 1, 2)
    too_big = replace(mine[1].steps[0], attempt=2**40, round=2)
    decision = unchanged(mine[1])
    decision.steps[0] = too_big
    outcome = await mine.commit(decision, begin(mine[2], 1))
    assert [task for task, _ in outcome.rejections] == [1]
    assert (await store.tasks.detail(2)).steps[1].state == "running"  # type: ignore[union-attr]


async def test_a_guilty_claim_does_not_hold_up_its_batch_nor_losers(store: PostgresStore) -> None:
    """Everything at once: a guilty claim, a good one, a loser, a good Decision."""
    mine = await running(store, 1, 2)
    await store.tasks.submit([draft(3), draft(4)])
    late = done(mine[2], 0)
    await mine.commit(done(mine[2], 0))

    def make(memory: Any) -> Any:
        return with_error(memory, NUL) if memory.id == 3 else begin(memory)

    ids = await mine.claim(5, make, decisions=[begin(mine[1], 1), late])
    assert ids == [4]
    assert mine.committed.losses == {2}
    assert [task for task, _ in mine.committed.rejections] == [3]
    assert (await store.tasks.detail(1)).steps[1].state == "running"  # type: ignore[union-attr]


async def test_of_submissions_that_share_a_statement_only_the_guilty_fails(store: PostgresStore) -> None:
    asking = [store.tasks.submit([draft(n, key=NUL if n == 7 else f"k{n}")]) for n in range(1, 21)]
    answers = await asyncio.gather(*asking, return_exceptions=True)
    for n, answer in enumerate(answers, 1):
        if n == 7:
            assert isinstance(answer, PayloadError)
            assert "NUL" in str(answer)
        else:
            assert isinstance(answer, list)
            assert answer[0].is_new


async def test_a_priority_that_nobody_would_claim_is_refused(store: PostgresStore) -> None:
    with pytest.raises(PayloadError, match="priority"):
        await store.tasks.submit([draft(1, priority=10)])


async def test_a_request_that_cannot_be_read_goes_to_error_and_the_others_are_taken(
    store: PostgresStore, db: Any
) -> None:
    await running(store, 1, 2)
    await db.execute("update makegood.request set body = 'not ours' where task = 1")
    requests = await store.requests.take(await agent(store), [offer()])
    assert [r.task for r in requests] == [2]
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.task.state, detail.steps[0].state) == ("error", "in_doubt")


async def test_a_first_dispatch_is_its_request_row_alone_and_seen_as_running(
    store: PostgresStore, db: Any
) -> None:
    """The step's row follows with the reply; whoever reads, and the Supervisor who judges, knows the attempt."""
    mine = await running(store, 1)
    assert await db.fetchval("select state from makegood.step where task = 1 and idx = 0") == "waiting"
    (snapshot,) = await store.tasks.load(mine.node, [1])
    assert (snapshot.steps[0].state, snapshot.steps[0].attempt, snapshot.steps[0].doing) == (
        "running",
        1,
        "do",
    )
    payments = await agent(store)
    await store.requests.take(payments, [offer()])
    await db.execute("update makegood.request set complete_by = 0")
    grant = await store.leases.acquire("supervisor", "me", "nonce", 60)
    assert grant is not None
    assert (await store.supervision.judge(grant, 1.0, 10)).requests == [(1, 0, 1, 1)]
    row = await db.fetchrow("select state, attempt from makegood.step where task = 1 and idx = 0")
    assert tuple(row) == ("running", 1)
    (snapshot,) = await store.tasks.load(mine.node, [1])
    assert (snapshot.steps[0].state, snapshot.steps[0].attempt, snapshot.steps[0].doing) == (
        "running",
        1,
        None,
    )
    assert [m.kind for m in snapshot.messages] == ["expired"]


async def test_what_a_task_at_rest_would_leave_in_flight_is_not_written(
    store: PostgresStore, db: Any
) -> None:
    mine = await hand(store)
    await store.tasks.submit([draft(1)])

    def make(memory: Any) -> Any:
        decision = to_state(memory, "error", begin(memory), goal="hold")
        decision.timers[1] = 5.0
        return decision

    await mine.claim(5, make)
    assert await db.fetchval("select count(*) from makegood.request") == 0


async def test_what_was_left_far_behind_is_found_by_a_sweep(store: PostgresStore, db: Any) -> None:
    """A task whose number is far below what has been claimed: as after a claim of another process that was rolled back."""
    mine = await hand(store)
    await store.tasks.submit([draft(n) for n in range(1, 4)])
    assert len(await mine.claim(10)) == 3
    store.tasks.claims.advance(("pending", 0), 1e18)
    await store.tasks.submit([draft(4)])
    assert await db.fetchval("select ready_seq from makegood.task where id = 4") < 1e17
    assert await mine.claim(10) == [4]


async def test_a_message_far_behind_is_found_by_a_sweep(store: PostgresStore) -> None:
    mine = await running(store, 1)
    await store.tasks.inbox(mine.node, 10)
    store.tasks.messages.advance(("inbox", mine.node), 1_000_000)
    await store.tasks.post(1, TaskMessage("cancel"))
    assert [m.kind for m in (await store.tasks.inbox(mine.node, 10)).messages[1]] == ["cancel"]
