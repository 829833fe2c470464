"""Which turn of a Scheduler may begin beside others, and what it takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from makegood.model.messages import TaskMessage
from tests.unit.saga_case import action
from tests.unit.scheduler_parts import Parts


def waiting(parts: Parts, *tasks: int) -> None:
    """Let a message wait for each of these tasks."""
    for task in tasks:
        if task not in parts.tasks.in_memory:
            parts.hold(task, action(0))
        parts.tasks.hear(task, TaskMessage("claim"))


def quiet(parts: Parts) -> Parts:
    """Return parts for which nobody rings."""
    parts.wakeups.pending = parts.wakeups.inbox = False
    return parts


@asynccontextmanager
async def under_way(parts: Parts, *turns: tuple[int, ...]) -> AsyncIterator[asyncio.Event]:
    """Let turns of these tasks run until the event is set."""
    go = asyncio.Event()

    async def turn() -> None:
        await go.wait()

    for tasks in turns:
        parts.turns.begin(turn(), {task: [TaskMessage("claim", seq=task)] for task in tasks})
    yield go
    await parts.turns.stop()


async def test_another_turn_begins_when_enough_tasks_wait_that_are_in_no_other() -> None:
    parts = quiet(Parts())
    assert (parts.turns.state, parts.turns.may_begin()) == ("quiet", True)
    async with under_way(parts, (1, 2)):
        waiting(parts, 1, 2, 3)
        assert (parts.turns.state, parts.turns.may_begin()) == ("parallel", False)
        waiting(parts, 4)
        assert parts.turns.may_begin()
        following = parts.turns.next()
        assert following is not None
        assert ([*following.messages], following.is_parallel) == ([3, 4], True)
        assert [*parts.tasks.messages] == [1, 2], "their turn is not committed yet"
        assert parts.turns.inbox_rows() == {1, 2}


async def test_four_turns_leave_no_room_until_one_has_ended() -> None:
    parts = quiet(Parts())
    async with under_way(parts, (1,), (2,), (3,), (4,)) as go:
        waiting(parts, 5, 6, 7)
        assert (parts.turns.state, parts.turns.may_begin()) == ("full", False)
        go.set()
        for _ in range(3):
            await asyncio.sleep(0)
        parts.turns.reap()
        assert parts.turns.state == "quiet"


@pytest.mark.parametrize("why", ["timer", "read again", "operator", "claim", "doubts"])
async def test_what_reads_tasks_from_the_store_waits_until_all_is_quiet(why: str) -> None:
    parts = quiet(Parts())
    waiting(parts, 5, 6)
    async with under_way(parts, (1, 2)):
        assert parts.turns.may_begin()
        match why:
            case "timer":
                parts.tasks.arm(7, {0: 0.0})
            case "read again":
                parts.tasks.mistrust([7])
            case "operator":
                parts.claims.at_rest = [7]
            case "claim":
                parts.wakeups.wake_for_pending()
            case _:
                parts.turns.doubts.note_fault([5], ValueError(), apart=False)
        assert not parts.turns.may_begin()
    assert parts.turns.may_begin()


def test_of_very_many_tasks_a_turn_takes_a_part_and_leaves_the_rest_to_another() -> None:
    parts = quiet(Parts())
    waiting(parts, *range(1, 8))
    parts.wakeups.event.clear()
    following = parts.turns.next()
    assert following is not None
    assert [*following.messages] == [1, 2, 3, 4]
    assert [*parts.tasks.messages] == [5, 6, 7]
    assert parts.wakeups.event.is_set()


def test_a_turn_that_claims_takes_all_messages_and_is_waited_for() -> None:
    parts = Parts()
    waiting(parts, *range(1, 8))
    following = parts.turns.next()
    assert following is not None
    assert following.claim is not None
    assert (len(following.messages), following.claim.limit, following.is_parallel) == (7, 3, False)
    assert parts.turns.next() is None, "all is taken, and nobody has rung since"
