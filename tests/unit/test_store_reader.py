"""What a Scheduler reads of its tasks: each message once, and tasks again of which memory may be wrong."""

import asyncio

import pytest

from makegood.model.messages import TaskMessage
from makegood.model.task import Step, TaskRecord
from makegood.scheduler.store_reader import restore
from makegood.store.records import MOST_LOST, Loaded
from tests.unit.saga_case import action
from tests.unit.scheduler_parts import MINE, Parts, loaded


def message(seq: int) -> TaskMessage:
    """Return a message of the inbox."""
    return TaskMessage("cancel", seq=seq)


async def test_each_message_is_taken_once_also_while_turns_are_under_way() -> None:
    parts = Parts()
    parts.hold(7, action(0))
    parts.hold(8, action(0))
    end = asyncio.Event()

    async def turn() -> None:
        await end.wait()

    parts.turns.begin(turn(), {7: [message(1)]})
    parts.tasks.messages[7] = [message(2)]
    parts.store.messages = {7: [message(1), message(2), message(3)], 8: [message(4)], 9: [message(5)]}
    parts.store.at_rest = [11]
    await parts.reader.read_inbox()
    assert {task: [m.seq for m in messages] for task, messages in parts.tasks.messages.items()} == {
        7: [2, 3],
        8: [4],
    }
    assert parts.tasks.reload == {9}, "the store says that it is ours, memory does not"
    assert parts.claims.at_rest == [11]
    assert not parts.wakeups.inbox
    await parts.turns.stop()


async def test_in_a_flood_of_signals_it_reads_no_more_sleepers_than_it_claims_soon() -> None:
    """Else each Scheduler would read all of them again with each wake-up. Those that it left out are read in time."""
    parts = Parts()
    parts.store.at_rest = [*range(11, 20)]
    await parts.reader.read_inbox()
    assert sorted(parts.claims.at_rest) == parts.store.at_rest
    parts.store.at_rest.append(20)
    await parts.reader.read_inbox()
    assert 20 not in parts.claims.at_rest
    claims = 0
    while not parts.wakeups.inbox:
        assert parts.claims.next_claim(None) is not None
        claims += 1
    assert claims < 5
    assert parts.claims.at_rest, "it reads again before it has nothing to claim"
    await parts.reader.read_inbox()
    assert 20 in parts.claims.at_rest


async def test_where_another_scheduler_has_been_it_claims_elsewhere() -> None:
    """It claims messages' tasks in their order from a place of its own on, and leaves the place of another one."""
    parts = Parts()
    parts.claims.call([*range(100)])
    begin = parts.claims.at_rest[0]
    assert parts.claims.at_rest == [(begin + n) % 100 for n in range(100)]
    claim = parts.claims.next_claim(None)
    assert claim is not None
    following = parts.claims.at_rest[0]
    parts.claims.settle(claim, claim.at_rest, more=False, next_start=None)
    assert parts.claims.at_rest[0] == following
    parts.claims.settle(claim, [], more=False, next_start=None)
    assert parts.claims.at_rest[0] != following
    assert len(parts.claims.at_rest) == 100 - len(claim.at_rest)


async def test_a_ring_while_the_inbox_is_read_is_heard() -> None:
    parts = Parts()
    parts.store.meanwhile = parts.wakeups.wake_for_inbox
    await parts.reader.read_inbox()
    assert parts.wakeups.inbox


async def test_a_task_that_is_read_again_keeps_its_replies_and_one_that_is_gone_sends_them_back() -> None:
    parts = Parts()
    for task in (7, 8):
        parts.hold(task, action(0))
        parts.tasks.hear(task, TaskMessage("done", 0, "do", 1, b"1"))
    parts.store.loaded = [loaded(7, action(0), state="processing")]
    parts.tasks.mistrust([7, 8])
    await parts.reader.read_again()
    assert [*parts.tasks.in_memory] == [7]
    assert [m.kind for m in parts.tasks.messages[7]] == ["done"]
    assert parts.pool.resent == [(MINE, 8, "done")]
    assert parts.tasks.reload == set()


async def test_a_message_that_comes_from_this_process_while_its_task_is_read_again_is_read() -> None:
    """The answer may be older than the message, and memory forgets it."""
    parts = Parts()
    parts.hold(7, action(0))
    parts.store.loaded = [loaded(7, action(0), state="processing")]
    parts.store.meanwhile = lambda: parts.tasks.deliver(7, message(1), MINE)
    parts.wakeups.inbox = False
    parts.tasks.mistrust([7])
    await parts.reader.read_again()
    assert parts.wakeups.inbox


async def test_tasks_read_for_a_number_that_is_declared_dead_are_not_held() -> None:
    parts = Parts()
    parts.hold(7, action(0))
    parts.store.loaded = [loaded(7, action(0), state="processing")]
    parts.store.meanwhile = lambda: parts.tasks.rename(MINE + 1)
    parts.tasks.mistrust([7])
    await parts.reader.read_again()
    assert not parts.tasks.in_memory


async def test_a_task_that_cannot_be_restored_is_put_to_error() -> None:
    parts = Parts()
    damage = loaded(7, action(0), state="processing")
    damage.due[77] = 0.0
    parts.hold(7, action(0))
    parts.store.loaded = [damage]
    parts.tasks.mistrust([7])
    await parts.reader.read_again()
    assert len(parts.defects) == 1
    await parts.reader.put_to_error()
    assert [task for task, _ in parts.store.put] == [7]
    assert not parts.turns.doubts.unfit


@pytest.mark.parametrize("losses", [0, MOST_LOST - 1, MOST_LOST])
def test_a_pending_task_is_claimed_and_one_that_kills_its_schedulers_is_called_poison(losses: int) -> None:
    """The claim is the first message; what the store has for the task comes after it."""
    cancel = TaskMessage("cancel", seq=9)
    read = Loaded(TaskRecord(7, "shop", "order", lost=losses), [Step(action(0))], [cancel])
    memory, messages = restore(read)
    assert memory.task.id == 7
    assert [m.kind for m in messages] == ["claim", *(["poison"] if losses == MOST_LOST else []), "cancel"]


def test_a_timer_that_is_past_fires_at_once_and_another_waits() -> None:
    """Only of steps that wait for one."""
    steps = [Step(action(n), state="ready", waiting=n < 2) for n in range(3)]
    read = Loaded(TaskRecord(7, "shop", "order", state="processing"), steps, [], {0: 0.0, 1: 5.0, 2: 0.0})
    _, messages = restore(read)
    assert [(m.kind, m.idx) for m in messages] == [("retry", 0)]


async def test_pending_tasks_take_what_those_with_messages_leave_of_twice_what_may_be_held() -> None:
    """One is held, two may be: three have messages, so that no pending one is claimed beside them."""
    parts = Parts()
    parts.claims._hold, parts.claims.most = 2, 10
    parts.hold(7, action(0))
    for calls, limit in ((3, 0), (2, 1), (0, 1)):
        parts.claims.at_rest = [*range(11, 11 + calls)]
        parts.wakeups.pending = True
        claim = parts.claims.next_claim(None)
        assert claim is not None
        assert (len(claim.at_rest), claim.limit) == (calls, limit)
