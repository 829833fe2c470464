"""One turn of a Scheduler, whatever the store answers: memory is what the store is, and no slot is lost."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from makegood.errors import StoreUnavailableError
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.plan import UNTIL, StepPlan, Template
from makegood.model.shape import HeldTask
from makegood.store.records import Batch, Claim, Committed
from tests.unit.saga_case import action
from tests.unit.scheduler_parts import MINE, Parts, loaded

PLAN = action(0)
BANK = PLAN.agent
CLAIM = {7: [TaskMessage("claim")]}


async def test_what_is_committed_is_in_memory_and_its_requests_run() -> None:
    parts = Parts(**{BANK: 2})
    parts.hold(7, PLAN)
    await parts.commits.carry_out(dict(CLAIM), None)
    assert parts.tasks.in_memory[7].task.state == "processing"
    assert [r.task for r in parts.pool.handed] == [7]
    assert parts.pool.free == {f"shop/{BANK}": 1}
    assert (parts.commits.writing, parts.wakeups.event.is_set()) == ({}, True)


async def test_a_decision_that_is_lost_changes_nothing_and_its_task_is_read_again() -> None:
    parts = Parts(**{BANK: 1})
    parts.hold(7, PLAN)
    parts.store.committed = lambda _batch: Committed(losses={7})
    await parts.commits.carry_out(dict(CLAIM), None)
    assert parts.tasks.in_memory[7].task.state == "pending"
    assert parts.tasks.reload == {7}
    assert (parts.pool.handed, parts.pool.free) == ([], {f"shop/{BANK}": 1})
    assert parts.store.refused == [(MINE, 7, 1)]


@pytest.mark.parametrize("claims", [False, True])
async def test_while_the_store_is_away_messages_wait_and_slots_are_free(*, claims: bool) -> None:
    parts = Parts(**{BANK: 1})
    parts.hold(7, PLAN)

    def away(_batch: Batch) -> Committed:
        parts.tasks.hear(7, TaskMessage("cancel"))  # it comes after what was taken
        raise StoreUnavailableError("away")

    parts.store.committed = away
    with pytest.raises(StoreUnavailableError):
        await parts.commits.carry_out(dict(CLAIM), Claim(5) if claims else None)
    assert [m.kind for m in parts.tasks.messages[7]] == ["claim", "cancel"]
    assert (parts.pool.handed, parts.pool.free) == ([], {f"shop/{BANK}": 1})
    assert (parts.defects, parts.wakeups.pending, parts.commits.writing) == ([], True, {})


async def test_tasks_of_a_turn_that_nobody_expected_are_tried_in_parts() -> None:
    parts = Parts(**{BANK: 2})
    for task in (7, 8):
        parts.hold(task, PLAN)

    def broken(_batch: Batch) -> Committed:
        raise ZeroDivisionError

    parts.store.committed = broken
    await parts.commits.carry_out({7: [TaskMessage("claim")], 8: [TaskMessage("claim")]}, None)
    assert [type(defect) for defect in parts.defects] == [ZeroDivisionError]
    following = [parts.turns.next(), parts.turns.next()]
    assert [set(each.messages) for each in following if each is not None] == [{7}, {8}]
    assert parts.pool.free == {f"shop/{BANK}": 2}


async def test_a_claim_that_the_store_decides_twice_takes_its_slots_once() -> None:
    """What was decided on an older lock of the same task is lost, and takes none."""
    parts = Parts(**{BANK: 2})
    parts.hold(7, PLAN)
    snapshots = [loaded(7, PLAN), loaded(8, PLAN)]

    def twice(batch: Batch) -> Committed:
        assert batch.decide is not None
        batch.decide(snapshots)
        claims = list[tuple[HeldTask, Decision]](batch.decide(snapshots))
        return Committed(losses={7}, claims=claims, more=True)

    parts.store.committed = twice
    parts.wakeups.pending = False
    await parts.commits.carry_out(dict(CLAIM), Claim(5))
    assert [r.task for r in parts.pool.handed] == [7]
    assert parts.pool.free == {f"shop/{BANK}": 1}
    assert parts.pool.queued == [f"shop/{BANK}"]
    assert [*parts.tasks.in_memory] == [7, 8]
    assert parts.wakeups.pending


async def test_a_sleep_until_a_moment_counts_from_when_its_task_has_been_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counted from the beginning of the claim, it would end as much too late as the reading takes."""
    parts = Parts()
    now, until = parts.store.calendar(), datetime.fromtimestamp(parts.store.calendar() + 100, UTC)
    plan = StepPlan(0, "sleep", "sleep", action=UNTIL, args=Template((f'"{until.isoformat()}"',)))
    decisions: list[Decision] = []

    def slow(batch: Batch) -> Committed:
        assert batch.decide is not None
        monkeypatch.setattr(parts.store, "calendar", lambda: now + 40)
        decisions.extend(decision for _, decision in batch.decide([loaded(7, plan)]))
        return Committed()

    parts.store.committed = slow
    await parts.commits.carry_out({}, Claim(5))
    assert [decision.timers for decision in decisions] == [{0: pytest.approx(60)}]


async def test_a_task_that_is_let_go_is_forgotten_and_looked_for_at_its_moment() -> None:
    parts = waiting_parts()
    await parts.commits.carry_out({7: [TaskMessage("later", 0, "do", 1, wait=60.0)]}, None)
    assert (parts.tasks.in_memory, parts.claims.at_rest) == ({}, [])
    moment = parts.claims.next_start
    assert moment is not None
    assert moment - parts.tasks.clock.monotonic() == pytest.approx(60, abs=5)
    parts.claims.fire(moment)
    claim = parts.claims.next_claim(None)
    assert claim is not None
    assert claim.sleepers


async def test_a_message_that_came_while_it_was_let_go_brings_it_back() -> None:
    """It was read, so no reading of the inbox would find it before the next sweep."""
    parts = waiting_parts()

    def meanwhile(_batch: Batch) -> Committed:
        parts.tasks.hear(7, TaskMessage("cancel", seq=5))
        return Committed()

    parts.store.committed = meanwhile
    await parts.commits.carry_out({7: [TaskMessage("later", 0, "do", 1, wait=60.0)]}, None)
    assert (parts.tasks.in_memory, parts.claims.at_rest) == ({}, [7])


async def test_a_late_reply_in_memory_for_one_that_is_let_go_goes_to_the_store() -> None:
    parts = waiting_parts()

    def meanwhile(_batch: Batch) -> Committed:
        parts.tasks.hear(7, TaskMessage("done", 0, "do", 1))
        return Committed()

    parts.store.committed = meanwhile
    await parts.commits.carry_out({7: [TaskMessage("later", 0, "do", 1, wait=60.0)]}, None)
    assert parts.pool.resent == [(MINE, 7, "done")]


def waiting_parts() -> Parts:
    """Return a Scheduler that lets tasks go, with one whose only step runs."""
    parts = Parts()
    parts.claims._linger = 10.0
    parts.hold(7, PLAN)
    held_task = parts.tasks.in_memory[7]
    held_task.task = replace(held_task.task, state="processing")
    held_task.steps[0] = replace(held_task.steps[0], state="running", doing="do", attempt=1)
    return parts
