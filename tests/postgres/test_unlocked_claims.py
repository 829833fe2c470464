"""A single task that a message wakes is claimed by one statement after one read, unless something comes between the two."""

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.store.postgres import PostgresStore, claim
from makegood.store.postgres.transaction import WriteTransaction
from makegood.store.records import Claim, Loaded
from tests.conformance.builders import WAITS, Hand, Memory, draft, hand, running, to_state
from tests.postgres.test_statements import watched

Meanwhile = Callable[[PostgresStore, str], Awaitable[None]]
Unlocked = tuple[list[Loaded], dict[int, int]] | None


def wake(memory: Memory) -> Decision:
    return to_state(memory, "undoing", goal="undo")


async def at_rest(store: PostgresStore, *tasks: int) -> Hand:
    """Submit tasks that have ended, and post a message to each; returns another Scheduler."""
    first = await running(store, *tasks, signals=WAITS)
    await first.commit(*(to_state(first[n], "processed") for n in tasks))
    for task in tasks:
        await store.tasks.post(task, TaskMessage("undo"))
    return await hand(store)


async def test_a_task_that_a_message_wakes_is_claimed_by_a_read_and_a_write(url: str) -> None:
    async with watched(url) as (store, recorder):
        scheduler = await at_rest(store, 1)
        recorder.since()
        assert await scheduler.claim(0, wake, at_rest=[1]) == [1]
        assert [statement.split()[0] for statement in recorder.since()] == ["select", "with"]
        assert (scheduler[1].task.epoch, [message.kind for message in scheduler.seen[-1].messages]) == (
            2,
            ["undo"],
        )


async def test_it_goes_with_the_decisions_of_tasks_that_are_held(url: str) -> None:
    async with watched(url) as (store, recorder):
        scheduler = await at_rest(store, 1)
        await store.tasks.submit([draft(2)])
        await scheduler.claim(5)
        recorder.since()
        decision = to_state(scheduler[2], "processed")
        assert await scheduler.claim(0, wake, at_rest=[1], decisions=[decision]) == [1]
        assert len(recorder.since()) == 2
        lost = to_state(scheduler[2], "processed")  # it is released: the batch is not written as it is
        await store.tasks.submit([draft(3)])
        assert await scheduler.claim(5, decisions=[lost]) == [3]
        assert scheduler.committed.losses == {2}


async def another_claims(store: PostgresStore, _: str) -> None:
    assert await (await hand(store)).claim(0, wake, at_rest=[1, 9]) == [1]


async def another_claims_and_lets_go(store: PostgresStore, _: str) -> None:
    second = await hand(store)
    assert await second.claim(0, wake, at_rest=[1, 9]) == [1]
    await second.commit(to_state(second[1], "undone"))


async def an_operator_changes_the_task(_: PostgresStore, url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("update makegood.task set cause = 'changed' where id = 1")
    await connection.close()


RACES: dict[Meanwhile, tuple[list[int], int, str]] = {
    another_claims: ([], 2, ""),
    another_claims_and_lets_go: ([1], 3, ""),
    an_operator_changes_the_task: ([1], 2, "changed"),
}
"""What comes between, and then: what is claimed, the task's epoch, its cause."""


@pytest.mark.parametrize("meanwhile", RACES)
async def test_what_comes_between_the_read_and_the_write_counts(
    url: str, monkeypatch: pytest.MonkeyPatch, meanwhile: Meanwhile
) -> None:
    find, (claims, epoch, cause) = claim.find_unlocked, RACES[meanwhile]

    async def interruption(tx: WriteTransaction, request: Claim) -> Unlocked:
        result = await find(tx, request)
        monkeypatch.setattr(claim, "find_unlocked", find)
        await meanwhile(store, url)
        return result

    async with watched(url) as (store, _):
        scheduler = await at_rest(store, 1)
        monkeypatch.setattr(claim, "find_unlocked", interruption)
        assert await scheduler.claim(0, keep_cause, at_rest=[1]) == claims
        connection = await asyncpg.connect(url)
        ((now, why, node),) = await connection.fetch(
            "select epoch, cause, locked_by from makegood.task where id = 1"
        )
        assert (now, why, node == scheduler.node) == (epoch, cause, bool(claims))
        await connection.close()


def keep_cause(memory: Memory) -> Decision:
    return to_state(memory, "undoing", goal="undo", cause=memory.task.cause)


async def test_a_row_that_somebody_holds_is_not_waited_for(url: str) -> None:
    async with watched(url) as (store, _):
        scheduler = await at_rest(store, 1)
        connection = await asyncpg.connect(url)
        async with connection.transaction():
            await connection.execute("select from makegood.task where id = 1 for no key update")
            async with asyncio.timeout(60):
                assert await scheduler.claim(0, wake, at_rest=[1]) == []
        assert await scheduler.claim(0, wake, at_rest=[1]) == [1]
        await connection.close()
