"""Queues: each message to one receiver at a time, known by its id, back after its lease, dead in the end; on every store."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from makegood.errors import PayloadError, QueueFullError
from makegood.model.messages import Act
from makegood.model.queue_message import QueueMessage
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing, Receipt, Returned
from tests.conformance.builders import UNENCODABLE
from tests.conformance.worlds import World

MOST = 1000
ACT = Act("act", "ann", "mended")


def out(id_: str, queue: str = "orders", body: bytes = b'{"cents":5}', **more: Any) -> Outgoing:
    """Return a message to be sent."""
    return Outgoing(queue=queue, id=id_, body=body, **more)


async def send(store: Store, *ids: str, **more: Any) -> None:
    """Send messages of these ids."""
    await store.queues.send_messages([out(id_, **more) for id_ in ids], MOST)


async def take(
    store: Store, limit: int = 10, *, queue: str = "orders", lease: float = 30.0, threshold: int = 5
) -> list[QueueMessage]:
    """Receive messages."""
    return (await store.queues.receive_messages(queue, "me", limit, lease, threshold)).messages


def receipts(messages: list[QueueMessage]) -> list[Receipt]:
    """Return what to acknowledge them by."""
    return [(m.seq, m.tries) for m in messages]


def names(messages: list[QueueMessage]) -> list[str]:
    """Return their ids."""
    return [m.id for m in messages]


# Sending


async def test_a_known_id_with_another_body_is_a_conflict_as_long_as_it_is_remembered(store: Store) -> None:
    """The first stays, and nothing is sent."""
    other = [out("a", body=b"2"), out("b", body=b"2"), out("b", body=b"2"), out("c"), out("c", body=b"3")]
    await store.queues.send_messages([out("a", body=b"1", remember=100.0), out("c", queue="mails")], MOST)
    answers = await store.queues.send_messages(other, MOST)
    assert [(one.id, one.created, one.conflict) for one in answers] == [
        ("a", False, True), ("b", True, False), ("b", False, False), ("c", True, False), ("c", False, True)
    ]  # fmt: skip
    messages = await take(store)
    assert [(m.id, m.body) for m in messages] == [("a", b"1"), ("b", b"2"), ("c", b'{"cents":5}')]
    await store.queues.return_messages([Returned(receipts(messages[:1])[0], dead=True)])
    (dead,) = await store.queues.send_messages([out("a", body=b"2")], MOST)
    assert (dead.created, dead.conflict) == (False, True)
    assert await store.queues.replay_messages("orders", Act("replay", "ann"), ["a"], body=b"2") == ["a"]
    await store.queues.acknowledge_messages(receipts(await take(store)))
    again = await store.queues.send_messages([out("a", body=b"1"), out("a", body=b"2")], MOST)
    assert [(one.created, one.conflict) for one in again] == [(False, False), (False, True)]
    await store.queues.acknowledge_messages(receipts(messages[1:2]))
    (answer,) = await store.queues.send_messages([out("b", body=b"7")], MOST)
    assert answer.created


async def test_what_was_sent_is_received_as_it_was(store: Store, other: Store) -> None:
    message = out(
        "o-1",
        kind="order",
        correlation_id="c-1",
        reply_to="queue:web-7",
        task=7,
        sequence=2,
        headers={"trace": "00-1"},
    )
    (answer,) = await store.queues.send_messages([message], MOST)
    assert (answer.id, answer.created) == ("o-1", True)
    (delivery,) = await take(other)
    assert (delivery.queue, delivery.id, delivery.body, delivery.kind, delivery.correlation_id) == (
        "orders",
        "o-1",
        b'{"cents":5}',
        "order",
        "c-1",
    )
    assert (delivery.reply_to, delivery.task, delivery.sequence, delivery.headers) == (
        "queue:web-7",
        "0000000000007",
        2,
        {"trace": "00-1"},
    )
    assert (delivery.tries, delivery.error, delivery.value) == (1, "", {"cents": 5})


async def test_an_id_is_one_message_of_its_queue_before_and_after_it_was_acknowledged(
    store: Store, world: World
) -> None:
    first = await store.queues.send_messages(
        [out("o-1", remember=60.0), out("o-1"), out("o-1", "other")], MOST
    )
    assert [s.created for s in first] == [True, False, True]
    assert not (await store.queues.send_messages([out("o-1")], MOST))[0].created
    await store.queues.acknowledge_messages(receipts(await take(store)))
    assert not (await store.queues.send_messages([out("o-1")], MOST))[0].created
    assert await take(store) == []
    await world.elapse(61)
    assert await store.queues.expire_messages(100) == 1
    assert (await store.queues.send_messages([out("o-1")], MOST))[0].created


async def test_ten_senders_of_one_id_at_once_make_one_message(store: Store, other: Store) -> None:
    answers = await asyncio.gather(
        *((store, other)[n % 2].queues.send_messages([out("o-1")], MOST) for n in range(10))
    )
    assert sum(answer.created for (answer,) in answers) == 1
    assert names(await take(store)) == ["o-1"]


async def test_an_id_without_memory_is_free_once_it_is_acknowledged(store: Store) -> None:
    await send(store, "n-1")
    await store.queues.acknowledge_messages(receipts(await take(store)))
    assert (await store.queues.send_messages([out("n-1")], MOST))[0].created


async def test_a_full_queue_takes_nothing_of_what_was_to_be_sent(store: Store) -> None:
    await store.queues.send_messages([out("1"), out("2")], 3)
    with pytest.raises(
        QueueFullError, match="room for 1 of 2 messages: 2 messages wait in it, and its limit is 3"
    ) as error:
        await store.queues.send_messages([out("3"), out("4"), out("1"), out("5", "other")], 3)
    assert (error.value.queue, error.value.limit, error.value.room) == ("orders", 3, 1)
    await store.queues.send_messages([out("3"), out("1")], 3)
    await store.queues.send_messages([out("1", "other")], 3)
    assert names(await take(store)) == ["1", "2", "3"]
    with pytest.raises(QueueFullError, match="queue orders is full: 3 messages wait") as error:  # those that
        await store.queues.send_messages([out("4")], 3)  # are taken wait as well: they may come back
    assert error.value.room == 0
    with pytest.raises(QueueFullError, match="queue orders is full: more than 2 messages wait"):
        await store.queues.send_messages([out("4"), out("5")], 2)


async def test_one_that_finds_its_queue_full_leaves_others_alone(store: Store) -> None:
    answers = await asyncio.gather(
        *(store.queues.send_messages([out(str(n))], 3) for n in range(6)),
        store.queues.send_messages([out("x", "other")], 3),
        return_exceptions=True,
    )
    refusals = sum(isinstance(answer, QueueFullError) for answer in answers)
    assert 1 <= refusals <= 3  # transactions of one moment do not see each other everywhere
    assert not isinstance(answers[-1], BaseException)
    with pytest.raises(QueueFullError):
        await store.queues.send_messages([out("7")], 3)
    assert len(await take(store)) == 6 - refusals


async def test_what_has_expired_does_not_fill_a_queue(store: Store, world: World) -> None:
    await store.queues.send_messages([out("1", expires=5.0), out("2", expires=5.0)], 2)
    await world.elapse(6)
    await store.queues.send_messages([out("3")], 2)
    assert names(await take(store)) == ["3"]


@pytest.mark.parametrize("field", ["queue", "id", "kind", "correlation_id", "reply_to"])
async def test_a_text_that_no_database_takes_is_refused(store: Store, field: str) -> None:
    message = replace(out("1"), **{field: UNENCODABLE})
    with pytest.raises(PayloadError):
        await store.queues.send_messages([out("2"), message], MOST)
    assert await take(store) == []


async def test_a_number_that_no_database_takes_is_refused(store: Store) -> None:
    with pytest.raises(PayloadError):
        await store.queues.send_messages([out("1", task=2**70)], MOST)


# Receiving


async def test_the_oldest_come_first_and_no_two_receivers_get_one(store: Store, other: Store) -> None:
    await send(store, *(f"m-{n:03}" for n in range(60)))
    assert names(await take(store, 2)) == ["m-000", "m-001"]
    batches = await asyncio.gather(*(take((store, other)[n % 2], 3) for n in range(20)))
    ids = [name for some in batches for name in names(some)]
    while more := await take(store, 50):  # a receiver that met another's locks may have left some
        ids += names(more)
    assert sorted(ids) == [f"m-{n:03}" for n in range(2, 60)]


async def test_a_delayed_message_comes_later_and_the_rest_is_told(store: Store, world: World) -> None:
    await send(store, "1", delay=10.0)
    delivery = await store.queues.receive_messages("orders", "me", 5, 30.0, 5)
    assert delivery.messages == []
    assert delivery.rest is not None
    assert 9.0 < delivery.rest <= 10.0
    assert (await store.queues.receive_messages("empty", "me", 5, 30.0, 5)).rest is None
    await world.elapse(10.1)
    assert names(await take(store)) == ["1"]


async def test_what_is_not_acknowledged_comes_again_after_its_lease(
    store: Store, other: Store, world: World
) -> None:
    await send(store, "1")
    first = await take(store, lease=100.0)
    await world.elapse(60)
    assert await take(other) == []
    assert await store.queues.hold_messages(receipts(first), 100.0) == [True]
    await world.elapse(60)
    assert await take(other) == []
    await world.elapse(50)
    second = await take(other, lease=100.0)
    assert [(m.id, m.tries) for m in second] == [("1", 2)]
    assert await store.queues.acknowledge_messages(receipts(first)) == [False]
    assert await store.queues.hold_messages(receipts(first), 10.0) == [False]
    assert await store.queues.return_messages([Returned(r) for r in receipts(first)]) == [False]
    assert await other.queues.acknowledge_messages(receipts(second)) == [True]
    assert await other.queues.acknowledge_messages(receipts(second)) == [False]


async def test_a_lease_that_ran_out_is_good_while_nobody_else_has_the_message(
    store: Store, world: World
) -> None:
    await send(store, "1")
    first = await take(store, lease=10.0)
    await world.elapse(11)
    assert await store.queues.acknowledge_messages(receipts(first)) == [True]
    assert await take(store) == []


async def test_messages_of_one_task_stay_in_order_while_others_pass(store: Store, world: World) -> None:
    await send(store, "a1", "a2", "a3", task=1)
    await send(store, "b1", task=2)
    await send(store, "x")
    (first,) = await take(store, 1)
    assert names(await take(store, lease=3600.0)) == ["b1", "x"]
    await store.queues.return_messages([Returned((first.seq, first.tries), 60.0)])
    assert await take(store) == []
    await world.elapse(61)
    messages = await take(store)
    assert names(messages) == ["a1"]
    await store.queues.acknowledge_messages(receipts(messages))
    messages = await take(store)
    assert names(messages) == ["a2", "a3"]
    await store.queues.return_messages(
        [Returned(r, wait) for r, wait in zip(receipts(messages), (90.0, 30.0), strict=True)]
    )
    await world.elapse(45)
    assert await take(store) == []
    await world.elapse(46)
    assert names(await take(store)) == ["a2"]


async def test_what_comes_again_takes_nothing_with_it_that_is_behind_one_left_out(
    store: Store, world: World
) -> None:
    """The first comes again after its lease; the second was visible before that, the third only after it."""
    await send(store, "a1", "a2", task=1)
    await take(store, 1, lease=4.0)
    await world.elapse(5)
    await send(store, "a3", task=1)
    order: list[str] = []
    while messages := await take(store, 3):
        order += names(messages)
        await store.queues.acknowledge_messages(receipts(messages))
    assert order == ["a1", "a2", "a3"]


async def test_of_receivers_at_once_none_has_a_message_whose_earlier_one_another_has(
    store: Store, other: Store
) -> None:
    for task in range(30):
        await send(store, f"{task}/1", f"{task}/2", f"{task}/3", task=task)
    batches = await asyncio.gather(*(take((store, other)[n % 2], 1 + n % 3) for n in range(40)))
    batches.append(await take(store, 90))  # what a receiver left that met another's locks
    for batch in map(names, batches):
        for name in batch:
            of, _, nth = name.partition("/")
            assert {f"{of}/{earlier}" for earlier in range(1, int(nth))} <= set(batch)
    ids = [name for batch in batches for name in names(batch)]
    assert len(set(ids)) == len(ids)
    assert {f"{task}/1" for task in range(30)} <= set(ids)


async def test_those_of_a_task_wait_behind_a_dead_one_until_it_is_replayed_or_dropped(store: Store) -> None:
    """Also those that are sent later, and those of one task only; a message of no task holds up nobody."""
    await send(store, "a1", "a2", task=1)
    await send(store, "b1", "b2", task=2)
    await send(store, "x1", "x2")
    await send(store, "a2", queue="other", task=1)
    first = {m.id: m for m in await take(store)}
    dead = [Returned((first[n].seq, 1), error="bad", dead=True) for n in ("a1", "b1", "x1")]
    await store.queues.return_messages(dead)
    rest = [Returned((first[n].seq, 1)) for n in ("a2", "b2", "x2")]
    await store.queues.return_messages(rest)
    await send(store, "a3", task=1)
    await send(store, "c1", task=3)
    assert sorted(names(await take(store))) == ["c1", "x2"]
    assert names(await take(store, queue="other")) == ["a2"], "each queue has an order of its own"
    assert await take(store) == []
    texts = {alert.step: alert.text for alert in await store.alerts.views()}
    assert "later notices of task" in texts["orders/a1"]
    assert "later notices" not in texts["orders/x1"]
    assert await store.queues.replay_messages("orders", ACT, ["a1"]) == ["a1"]
    assert await store.queues.drop_messages("orders", ACT, ["b1"]) == ["b1"]
    came: list[str] = []
    while messages := await take(store, 1):
        came += names(messages)
        await store.queues.acknowledge_messages(receipts(messages))
    assert [name for name in came if name.startswith("a")] == ["a1", "a2", "a3"]
    assert "b2" in came


async def test_the_one_after_one_that_kills_its_receivers_waits_too(store: Store, world: World) -> None:
    """It would be handed out in the very statement that puts the other to the dead letters. Both are worn, and die in turn."""
    await send(store, "a1", "a2", "a3", task=1)
    await send(store, "b1", task=2)
    for _ in range(3):
        assert names(await take(store, lease=1.0, threshold=3)) == ["a1", "a2", "a3", "b1"]
        await world.elapse(2)
    await send(store, "a4", task=1)
    delivery = await store.queues.receive_messages("orders", "me", 10, 1.0, 3)
    assert (delivery.messages, delivery.dead) == ([], 2)
    assert sorted(view.message.id for view in await store.queues.messages("orders", dead=True)) == [
        "a1",
        "b1",
    ]
    assert await store.queues.drop_messages("orders", ACT, ["a1"]) == ["a1"]
    delivery = await store.queues.receive_messages("orders", "me", 10, 1.0, 3)
    assert (delivery.messages, delivery.dead) == ([], 1)
    assert sorted(await store.queues.drop_messages("orders", ACT)) == ["a2", "b1"]
    assert names(await take(store)) == ["a3", "a4"]


async def test_receivers_are_rung_when_a_dead_one_is_dropped(store: Store, other: Store) -> None:
    """What waited behind it can be received then."""
    await send(store, "a1", "a2", task=1)
    (first,) = await take(store, 1)
    await store.queues.return_messages([Returned((first.seq, 1), dead=True)])
    ring = asyncio.Event()
    stop = other.subscribe("queue:orders", ring.set)
    await store.queues.drop_messages("orders", ACT)
    async with asyncio.timeout(60):
        await ring.wait()
    stop()
    assert names(await take(other)) == ["a2"]


async def test_an_unread_message_expires(store: Store, world: World) -> None:
    await send(store, "1", expires=10.0)
    await send(store, "2", expires=20.0)
    await send(store, "3")
    await world.elapse(11)
    assert await store.queues.expire_messages(100) == 1
    (message,) = await take(store, 1, lease=30.0)
    await world.elapse(11)
    assert await store.queues.expire_messages(100) == 0  # somebody has it
    assert message.id == "2"
    assert await store.queues.acknowledge_messages(receipts([message])) == [True]
    assert names(await take(store)) == ["3"]


async def test_a_queue_that_nobody_reads_keeps_the_latest_notices(store: Store) -> None:
    """Its oldest notices go, a bounded number at once, and operators are told once; nobody who writes waits for that. A message
    that somebody sent is never dropped, nor one that a receiver has.
    """
    await send(store, *"abcdef", task=1)
    await send(store, "sent")
    await store.queues.send_messages([out("other", "elsewhere", task=2)], MOST)
    (message,) = await take(store, 1)
    assert message.id == "a"
    assert await store.queues.shorten_queues(4, 2) == 2
    assert await store.queues.shorten_queues(4, 2) == 1
    assert await store.queues.shorten_queues(4, 2) == 0
    waiting = [view.message.id for view in await store.queues.messages("orders")]
    assert sorted(waiting) == ["a", "e", "f", "sent"]
    (alert,) = await store.alerts.views()
    assert (alert.kind, alert.step, alert.task) == ("dead_letter", "orders", None)
    assert "more than 4 messages wait in queue orders: its oldest notices are dropped unread" in alert.text
    assert await store.queues.shorten_queues(1, 9) == 2
    assert await store.queues.shorten_queues(1, 9) == 0, "what is left is no notice, or somebody has it"
    assert names(await take(store)) == ["sent"]


async def test_one_that_has_expired_is_not_given_to_anybody(store: Store, world: World) -> None:
    await send(store, "1", expires=10.0)
    await world.elapse(10.5)
    delivery = await store.queues.receive_messages("orders", "me", 5, 30.0, 5)
    assert delivery.messages == []
    assert delivery.rest is None or delivery.rest > 0


async def test_receivers_are_rung_when_a_message_comes(store: Store, other: Store) -> None:
    ring, elsewhere = asyncio.Event(), asyncio.Event()
    ends = [other.subscribe("queue:orders", ring.set), other.subscribe("queue:empty", elsewhere.set)]
    await send(store, "1")
    async with asyncio.timeout(60):
        await ring.wait()
    assert not elsewhere.is_set()
    for end in ends:
        end()


# Giving back, and the dead letters


async def test_what_is_given_back_waits_and_keeps_its_error(store: Store, world: World) -> None:
    await send(store, "1")
    (message,) = await take(store)
    assert await store.queues.return_messages([Returned((message.seq, message.tries), 10.0, "no room")]) == [
        True
    ]
    assert await store.queues.acknowledge_messages([(message.seq, message.tries)]) == [False]
    assert await take(store) == []
    await world.elapse(11)
    (again,) = await take(store)
    assert (again.tries, again.error) == (2, "no room")
    await store.queues.return_messages([Returned((again.seq, again.tries), counts=False)])
    assert [m.tries for m in await take(store)] == [2]


async def test_a_message_that_is_given_up_is_a_dead_letter_with_an_alert(store: Store) -> None:
    await send(store, "1", "2")
    messages = await take(store)
    back = [Returned((m.seq, m.tries), error="cents is missing", dead=m.id == "1") for m in messages]
    assert await store.queues.return_messages(back) == [True, True]
    assert names(await take(store)) == ["2"]
    (dead,) = await store.queues.messages("orders", dead=True)
    assert (dead.message.id, dead.state, dead.message.error, dead.taken_by) == (
        "1",
        "dead",
        "cents is missing",
        None,
    )
    (alert,) = await store.alerts.views()
    assert (alert.kind, alert.step, alert.open) == ("dead_letter", "orders/1", True)
    assert "cents is missing" in alert.text
    assert not (await store.queues.send_messages([out("1")], MOST))[0].created  # its id is still its own


async def test_what_kills_its_receivers_is_dead_after_the_threshold(store: Store, world: World) -> None:
    await send(store, "poison", "good")
    for _ in range(3):
        messages = {m.id: m for m in await take(store, 2, lease=1.0, threshold=3)}
        good = messages["good"]
        assert "poison" in messages
        await store.queues.return_messages([Returned((good.seq, good.tries), counts=False)])
        await world.elapse(2)
    delivery = await store.queues.receive_messages("orders", "me", 10, 1.0, 3)
    assert (names(delivery.messages), delivery.dead) == (["good"], 1)
    (dead,) = await store.queues.messages(None, dead=True)
    assert "delivered 3 times and never acknowledged" in dead.message.error
    assert [a.step for a in await store.alerts.views()] == ["orders/poison"]


async def test_dead_letters_are_replayed_or_dropped_and_their_alerts_end(store: Store) -> None:
    await send(store, "1", "2", "3")
    await store.queues.return_messages(
        [Returned(r, error="bad", dead=True) for r in receipts(await take(store))]
    )
    assert await store.queues.replay_messages("orders", ACT, ["2", "nobody"]) == ["2"]
    assert await store.queues.replay_messages("other", ACT) == []
    (again,) = await take(store)
    assert (again.id, again.tries) == ("2", 1)
    assert await store.queues.drop_messages("orders", ACT, ["1"]) == ["1"]
    assert await store.queues.replay_messages("orders", ACT) == ["3"]
    assert names(await take(store)) == ["3"]
    assert await store.queues.messages(None, dead=True) == []
    assert sorted((a.step, a.ended_why) for a in await store.alerts.views(ended=True)) == [
        ("orders/1", "dropped"),
        ("orders/2", "replayed"),
        ("orders/3", "replayed"),
    ]


async def test_messages_that_wait_and_nobody_has_are_dropped_with_a_row_in_the_audit(
    store: Store, world: World
) -> None:
    await send(store, "taken", "late", "given back", "1", "dead")
    await send(store, "delayed", delay=50.0)
    await send(store, "1", queue="other")
    messages = await take(store, 3)
    await store.queues.return_messages([Returned(receipts(messages)[2])])
    (late,) = receipts(messages)[1:2]
    (dead,) = [m for m in await take(store) if m.id == "dead"]
    await store.queues.return_messages([Returned((dead.seq, dead.tries), dead=True), Returned(late)])
    assert await store.queues.drop_messages("orders", ACT, ["1", "late", "nobody", "dead"], waiting=True) == [
        "late"
    ]
    await world.elapse(31)
    assert await store.queues.hold_messages(receipts(messages)[:1], 90.0) == [True]
    assert sorted(await store.queues.drop_messages("orders", ACT, waiting=True)) == [
        "1",
        "delayed",
        "given back",
    ]
    assert await store.queues.drop_messages("orders", ACT, waiting=True) == []
    assert [v.message.id for v in await store.queues.messages(None)] == ["taken", "1"]
    assert [v.message.id for v in await store.queues.messages(None, dead=True)] == ["dead"]
    assert len(await store.alerts.views(ended=False)) == 1
    entries = [(v.kind, v.who, v.why, v.outcome) for v in await store.admin.audit()]
    assert sorted(entries) == [
        ("drop_message", "ann", "mended", f"message {one} of queue orders")
        for one in ("1", "delayed", "given back", "late")
    ]


async def test_whoever_replays_or_drops_a_dead_letter_stands_in_the_audit(store: Store) -> None:
    """A row for each message, in the transaction of the act; none for what was no dead letter."""
    await send(store, "1", "2")
    await store.queues.return_messages(
        [Returned(r, error="bad", dead=True) for r in receipts(await take(store))]
    )
    await store.queues.replay_messages("orders", Act("a", "ann", "mended"), ["1", "nobody"])
    await store.queues.drop_messages("orders", Act("b", "bob", "a test order"))
    await store.queues.drop_messages("orders", Act("c", "bob", "again"))
    assert sorted(
        (v.kind, v.task, v.who, v.why, v.verdict, v.outcome, v.state) for v in await store.admin.audit()
    ) == [
        ("drop_message", None, "bob", "a test order", "applied", "message 2 of queue orders", "dropped"),
        ("replay_message", None, "ann", "mended", "applied", "message 1 of queue orders", "replayed"),
    ]


async def test_a_dead_letter_is_replayed_with_a_corrected_value(store: Store) -> None:
    """The audit keeps who and why, what it was and what it is."""
    await send(store, "1", "2", body=b'{"cents":-1}')
    await store.queues.return_messages(
        [Returned(r, error="bad", dead=True) for r in receipts(await take(store))]
    )
    act = Act("a", "ann", "mended")
    assert await store.queues.replay_messages("orders", act, ["1"], body=b'{"cents":1}') == ["1"]
    assert await store.queues.replay_messages("orders", act, ["nobody"], body=b"5") == []
    (again,) = await take(store)
    assert (again.id, again.body, again.tries) == ("1", b'{"cents":1}', 1)
    (entry,) = await store.admin.audit()
    assert (entry.who, entry.why, entry.outcome) == (
        "ann", "mended", "message 1 of queue orders, with another value",
    )  # fmt: skip
    assert msgspec.json.decode(entry.change or b"") == {
        "message": "1", "was": {"cents": -1}, "now": {"cents": 1},
    }  # fmt: skip
    (left,) = await store.queues.messages("orders", dead=True)
    assert left.message.body == b'{"cents":-1}'


async def test_an_alert_that_was_acknowledged_does_not_hinder_a_replay(store: Store) -> None:
    await send(store, "1")
    await store.queues.return_messages(
        [Returned(r, error="bad", dead=True) for r in receipts(await take(store))]
    )
    (alert,) = await store.alerts.views()
    await store.alerts.acknowledge([alert.id], Act("a", "ann", "seen"))
    assert await store.queues.replay_messages("orders", ACT) == ["1"]
    await store.queues.return_messages(
        [Returned(r, error="bad", dead=True) for r in receipts(await take(store))]
    )
    assert len(await store.alerts.views(ended=False)) == 1


# Looking


async def test_queues_and_messages_are_seen_and_not_taken_by_that(store: Store, world: World) -> None:
    await send(store, "1", "2", "3", "dead")
    await send(store, "later", delay=50.0)
    await send(store, "n", queue="web-7")
    messages = await take(store, 4)
    await store.queues.return_messages(
        [Returned((messages[3].seq, 1), dead=True), Returned((messages[2].seq, 1))]
    )
    await store.queues.acknowledge_messages(receipts(messages[:1]))
    await world.elapse(5)
    orders, web = await store.queues.views()
    assert (orders.queue, orders.waiting, orders.taken, orders.delayed, orders.dead) == ("orders", 1, 1, 1, 1)
    assert orders.oldest is not None
    assert 4.9 < orders.oldest < 30
    assert (web.queue, web.waiting, web.dead) == ("web-7", 1, 0)
    assert (orders.read, web.read) == (True, False)
    views = await store.queues.messages("orders")
    assert [(v.message.id, v.taken_by, v.due <= 0) for v in views] == [
        ("3", None, True),
        ("2", "me", False),
        ("later", None, False),
    ]
    assert names([v.message for v in await store.queues.messages(None)]) == ["3", "2", "later", "n"]
    assert names([v.message for v in await store.queues.messages("orders", 1)]) == ["3"]
    assert names(await take(store)) == ["3"]


async def test_receiving_from_an_empty_queue_writes_nothing(counting_store: Store, counts: Any) -> None:
    await counts.reset()
    assert await take(counting_store) == []
    assert await counts.commits() == 0


# Limits in bytes


def big(id_: str, size: int, queue: str = "orders", **more: Any) -> Outgoing:
    """Return a message with a value of so many bytes."""
    return out(id_, queue, b'"' + b"x" * (size - 2) + b'"', **more)


async def test_a_queue_with_too_many_bytes_takes_nothing_of_what_was_to_be_sent(store: Store) -> None:
    await store.queues.send_messages([big("1", 400), big("2", 300)], MOST, 1000)
    with pytest.raises(
        QueueFullError,
        match=r"queue orders has room for 1 of 2 messages: 2 messages of 700 B wait in it, and its limit is 1000 B.*MAKEGOOD_QUEUE_BYTES",
    ) as error:
        await store.queues.send_messages([big("3", 300), big("4", 1), big("5", 400, "other")], MOST, 1000)
    assert (error.value.queue, error.value.limit, error.value.room) == ("orders", 1000, 1)
    assert error.value.unit == "bytes"
    await store.queues.send_messages([big("3", 300), big("1", 400)], MOST, 1000)  # a known one adds nothing
    with pytest.raises(
        QueueFullError, match="is full: 3 messages of 1000 B wait in it, the next one has 2 B"
    ):
        await store.queues.send_messages([out("4", body=b"11")], MOST, 1000)
    await store.queues.send_messages([big("4", 900, "other")], MOST, 1000)
    assert names(await take(store)) == ["1", "2", "3"]
    with pytest.raises(QueueFullError, match="is full"):  # those that are taken may come back
        await store.queues.send_messages([out("4", body=b"1")], MOST, 1000)


async def test_both_limits_hold_and_the_error_says_which(store: Store) -> None:
    await store.queues.send_messages([out("1", body=b"1")], 2, 100)
    with pytest.raises(QueueFullError, match="MAKEGOOD_QUEUE_LIMIT") as error:
        await store.queues.send_messages([out("2", body=b"1"), out("3", body=b"1")], 2, 100)
    assert (error.value.unit, error.value.limit, error.value.room) == ("messages", 2, 1)
    with pytest.raises(QueueFullError, match="MAKEGOOD_QUEUE_BYTES"):
        await store.queues.send_messages([big("2", 100)], 2, 100)


async def test_an_empty_queue_takes_one_message_of_any_size(store: Store) -> None:
    """Otherwise it could never be sent."""
    await store.queues.send_messages([big("1", 5000)], MOST, 1000)
    with pytest.raises(QueueFullError, match=r"1 messages of 4\.9 KiB wait in it"):
        await store.queues.send_messages([out("2", body=b"1")], MOST, 1000)
    await store.queues.acknowledge_messages(receipts(await take(store)))
    with pytest.raises(QueueFullError, match="has room for 1 of 2 messages: no message waits in it") as error:
        await store.queues.send_messages([big("2", 5000), out("3", body=b"1")], MOST, 1000)
    assert error.value.room == 1
    await store.queues.send_messages([out("3", body=b"1"), big("4", 900)], MOST, 1000)


async def test_bytes_that_have_expired_or_were_sent_by_another_process_count_as_they_are(
    store: Store, other: Store, world: World
) -> None:
    await store.queues.send_messages([big("1", 900, expires=5.0)], MOST, 1000)
    with pytest.raises(QueueFullError):
        await other.queues.send_messages([big("2", 200)], MOST, 1000)
    await world.elapse(6)
    await other.queues.send_messages([big("2", 200)], MOST, 1000)
    with pytest.raises(QueueFullError):
        await store.queues.send_messages([big("3", 900)], MOST, 1000)


async def test_a_queue_with_too_many_bytes_that_nobody_reads_keeps_the_latest_notices(store: Store) -> None:
    for n in range(6):
        await store.queues.send_messages([big(f"n{n}", 100, task=1)], MOST)
    await store.queues.send_messages([big("sent", 100)], MOST)
    await store.queues.send_messages([big("other", 9000, "elsewhere", task=2)], MOST)
    (message,) = await take(store, 1)
    assert message.id == "n0"
    assert await store.queues.shorten_queues(MOST, 2, 350) == 2, "at most so many at once"
    assert await store.queues.shorten_queues(MOST, 9, 350) == 2
    assert await store.queues.shorten_queues(MOST, 9, 350) == 0
    waiting = [view.message.id for view in await store.queues.messages("orders")]
    assert sorted(waiting) == ["n0", "n5", "sent"]
    assert [view.message.id for view in await store.queues.messages("elsewhere")] == ["other"], (
        "one alone may be large"
    )
    (alert,) = await store.alerts.views()
    assert "messages of more than 350 B wait in queue orders: its oldest notices are dropped" in alert.text
    assert "MAKEGOOD_QUEUE_BYTES" in alert.text


async def test_queues_are_shown_with_their_bytes(store: Store) -> None:
    await store.queues.send_messages(
        [big("1", 100), big("2", 50, delay=60.0), big("3", 25), big("4", 7, "dead")], MOST
    )
    assert [view.bytes for view in await store.queues.views()] == [7, 175]
    (first,) = await take(store, 1)
    (dead,) = await take(store, 1, queue="dead")
    await store.queues.return_messages([Returned((dead.seq, dead.tries), dead=True)])
    assert [(view.queue, view.bytes) for view in await store.queues.views()] == [("dead", 0), ("orders", 175)]
    await store.queues.acknowledge_messages(receipts([first]))
    assert [view.bytes for view in await store.queues.views()] == [0, 75]
