"""Messages of signals that a process sends are offered to its Scheduler, which need not read them then."""

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from makegood.model.messages import FreshMessage, TaskMessage
from makegood.store.postgres import PostgresStore
from makegood.store.signals import OutgoingSignal, TaskKey
from tests.conformance.builders import WAITS, draft, hand, running, to_state


class Receiver:
    """Takes what is offered, if it ``takes``; counts how often the inbox is to be read."""

    def __init__(self, store: PostgresStore, *, takes: bool = True) -> None:
        self.offers: list[FreshMessage] = []
        self.wakes = 0
        self._takes = takes
        self._ends = [store.receive(self._take), store.subscribe("inbox", self._wake)]

    def _take(self, message: FreshMessage) -> bool:
        self.offers.append(message)
        return self._takes

    def _wake(self) -> None:
        self.wakes += 1

    def close(self) -> None:
        """End what was subscribed to."""
        for end in self._ends:
            end()


@pytest.fixture
def receiver(store: PostgresStore) -> Iterator[Receiver]:
    """One that takes all."""
    new_receiver = Receiver(store)
    yield new_receiver
    new_receiver.close()


async def send(store: PostgresStore, *tasks: int | TaskKey, id_: str = "a") -> None:
    """Send a signal to each task, one after another."""
    for task in tasks:
        signal = OutgoingSignal(to=task, name="approval", id=id_, value=b"true")
        assert (await store.tasks.signal(signal)).created


@pytest.mark.parametrize("address", [1, TaskKey("shop", "place_order", "k")], ids=["id", "key"])
async def test_the_message_of_a_task_that_is_held_is_offered_as_it_is_read(
    store: PostgresStore, receiver: Receiver, address: int | TaskKey
) -> None:
    scheduler = await running(store, 1, signals=WAITS, key="k")
    await running(store, 2, signals=WAITS, key="other")
    await send(store, 2, id_="first")
    await send(store, TaskKey("shop", "place_order", "other"), id_="second")
    receiver.offers.clear()
    receiver.wakes = 0
    await send(store, address)
    (fresh,) = receiver.offers
    inbox = await store.tasks.inbox(scheduler.node, 10)
    assert (fresh.task, fresh.node, [fresh.message]) == (1, scheduler.node, inbox.messages[1])
    assert receiver.wakes == 0


async def test_a_message_behind_another_one_is_read_in_their_order(
    store: PostgresStore, receiver: Receiver
) -> None:
    await running(store, 1, 2, signals=WAITS)
    await store.tasks.post(1, TaskMessage("cancel"))
    receiver.wakes = 0
    await send(store, 1, 2)
    assert [fresh.task for fresh in receiver.offers] == [2]
    assert receiver.wakes == 1
    await send(store, 2, id_="b")
    assert len(receiver.offers) == 1
    assert receiver.wakes == 2


async def test_other_processes_are_notified_unless_a_scheduler_of_this_one_holds_the_task(
    store: PostgresStore, url: str
) -> None:
    """Of a task that sleeps, too: a Scheduler here may be full, or end."""
    other, wakes, ids = PostgresStore(url), 0, itertools.count()
    await other.open()

    def wake() -> None:
        nonlocal wakes
        wakes += 1

    async def noticed(task: int) -> int:
        """Send a signal; return how many wake-ups of the inbox come before that of another topic, which is sent last."""
        nonlocal wakes
        wakes, bell = 0, asyncio.Event()
        end = other.subscribe("nodes", bell.set)
        await send(store, task, id_=f"{next(ids)}")
        await hand(store)
        async with asyncio.timeout(60):
            await bell.wait()
        end()
        return wakes

    receiver = Receiver(store)
    other.subscribe("inbox", wake)
    mine = await running(store, 1, 2, signals=WAITS)
    await running(other, 3, 4, signals=WAITS)
    await mine.commit(to_state(mine[2], "error", goal="hold"))
    assert await noticed(4) > 0  # perhaps of the first of its kind, and of what came before
    assert [await noticed(task) for task in (1, 2, 3)] == [0, 1, 1]
    receiver.close()
    assert await noticed(1) == 1
    await other.close()


async def test_messages_that_are_sent_together_are_read(store: PostgresStore, receiver: Receiver) -> None:
    await running(store, 1, 2, 3, signals=WAITS)
    await send(store, 1)
    receiver.offers.clear()
    receiver.wakes = 0
    ones = [
        OutgoingSignal(to=task, name="approval", id=id_, value=b"true")
        for task, id_ in ((2, "b"), (3, "b"), (3, "c"))
    ]
    await asyncio.gather(*map(store.tasks.signal, ones))
    assert receiver.offers == []
    assert receiver.wakes > 0


async def test_a_task_at_rest_is_offered_and_one_that_is_pending_is_not(
    store: PostgresStore, receiver: Receiver
) -> None:
    """It is claimed with all its messages anyway."""
    scheduler = await running(store, 1, signals=WAITS)
    await scheduler.commit(to_state(scheduler[1], "error", goal="hold"))
    await store.tasks.submit([draft(2, signals=WAITS)])
    await send(store, 1, 2)
    assert [(fresh.task, fresh.node) for fresh in receiver.offers] == [(1, None)]
    assert receiver.wakes == 1


async def test_what_nobody_takes_is_to_be_read(store: PostgresStore) -> None:
    await running(store, 1, signals=WAITS)
    receiver = Receiver(store, takes=False)
    await send(store, 1)
    assert (len(receiver.offers), receiver.wakes) == (1, 1)
    receiver.close()
    await send(store, 1, id_="b")
    assert len(receiver.offers) == 1
