"""The relay from a broker: each message becomes one of the queue, whatever the broker, the store and the relay's death do."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.brokers import BrokerAddress, Delivery
from makegood.codecs import Compressed, Elsewhere
from makegood.errors import StoreUnavailableError
from makegood.messaging.inbox import Inboxes
from makegood.messaging.source_messages import SourceMessages
from makegood.messaging.source_relay import SourceRelay
from makegood.model.messages import Act
from makegood.store.protocol import Store
from makegood.store.views import Filter
from proofs.memory_broker import MemoryBroker, relay_of
from tests.conformance.worlds import Counts
from tests.waiting import until

ADDRESS = BrokerAddress("amqp", "main", "orders")
QUEUE = ADDRESS.queue


def relay(
    store: Any, broker: MemoryBroker, most: int = 1000, rng: random.Random | None = None, **options: Any
) -> SourceRelay:
    """Return a relay that nobody runs."""
    return relay_of(store, broker, ADDRESS, QUEUE, most=most, rng=rng or random.Random(1), **options)


async def waiting(store: Store) -> list[str]:
    """Return the ids of the messages that wait."""
    return [view.message.id for view in await store.queues.messages(QUEUE)]


async def alerts(store: Store) -> dict[str, str]:
    """Return the texts of the open alerts by kind."""
    return {view.kind: view.text for view in await store.alerts.views(100, ended=False)}


async def test_what_is_delivered_is_a_message_under_its_id_and_acknowledged(store: Store) -> None:
    broker = MemoryBroker()
    broker.put(b'{"id": 1}', "o-1", traceparent="00-1")
    broker.put(b"2", "o-2")
    relaying = relay(store, broker)
    assert await relaying.turn() == 0
    first, second = (view.message for view in await store.queues.messages(QUEUE))
    assert (first.id, first.body, first.headers, second.id) == (
        "o-1",
        b'{"id": 1}',
        {"traceparent": "00-1"},
        "o-2",
    )
    assert (broker.waiting, relaying.report.info().taken, relaying.report.info().waiting) == ([], 2, 0)
    assert relaying.report.info().group == f"makegood-{store.identity.store_id}-{QUEUE}"


async def test_a_batch_is_one_commit(counting_store: Store, counts: Counts) -> None:
    broker = MemoryBroker()
    broker.put(b"1", "first")
    relaying = relay(counting_store, broker)
    await relaying.turn()  # which also ends an alert that a process before it may have left
    for n in range(200):
        broker.put(b"1", f"o-{n}")
    await counts.reset()
    await relaying.turn()
    assert await counts.commits() == 1
    assert broker.waiting == []


async def test_lost_acknowledgements_and_doubled_deliveries_make_one_message(store: Store) -> None:
    """Even after the inbox has acknowledged it: the queue remembers its id."""
    broker = MemoryBroker(losing_acks=1.0, doubling=0.5)
    for n in range(20):
        broker.put(b"1", f"o-{n}")
    await relay(store, broker).turn()
    assert sorted(await waiting(store)) == sorted(f"o-{n}" for n in range(20))
    handover = await store.queues.receive_messages(QUEUE, "me", 100, 60.0, 9)
    await store.queues.acknowledge_messages([(m.seq, m.tries) for m in handover.messages])
    broker.break_connections()
    broker.losing_acks = 0.0
    again = relay(store, broker)
    await again.turn()
    assert (await waiting(store), broker.waiting) == ([], [])
    assert (again.report.info().taken, again.report.info().redelivered >= 20) == (0, True)


async def test_a_relay_that_dies_between_commit_and_acknowledgement_repeats_nothing(store: Store) -> None:
    broker = MemoryBroker()
    broker.put(b"1", "o-1")

    class Dies(BaseException):
        pass

    def die() -> None:
        raise Dies

    broker.before_acknowledge = die
    with pytest.raises(Dies):
        await relay(store, broker).turn()
    assert (await waiting(store), len(broker.waiting)) == (["o-1"], 1)
    broker.before_acknowledge = None
    broker.break_connections()
    await relay(store, broker).turn()
    assert (await waiting(store), broker.waiting) == (["o-1"], [])


@pytest.mark.parametrize(
    ("body", "name", "why"),
    [
        (b"{not json", "a", "is not JSON"),
        (b"\xff\xfe", "a", "is not JSON"),
        (b'"' + b"x" * (1 << 20) + b'"', "a", "the fixed limit is 1,048,576"),
        (b"", None, "message without an id of amqp:main/orders is empty"),
        (b"[", None, "is not JSON"),
    ],
)
@pytest.mark.parametrize("keeps", [False, True], ids=["store", "broker"])
async def test_what_no_queue_can_take_is_a_dead_letter_and_stops_nothing(
    store: Store, body: bytes, name: str | None, why: str, keeps: bool
) -> None:
    broker = MemoryBroker(keeps_refusals=keeps)
    broker.put(body, name)
    broker.put(b"1", "good")
    relaying = relay(store, broker)
    await relaying.turn()
    assert (await waiting(store), broker.waiting) == (["good"], [])
    letters = await store.queues.messages(QUEUE, dead=True)
    if keeps:
        ((_, text),) = broker.dead
        assert (letters, why in text) == ([], True)
    else:
        assert [letter.message.body for letter in letters] == [body]
        assert why in letters[0].message.error
    assert list(await alerts(store)) == ["source_refused"]
    text = (await alerts(store))["source_refused"]
    assert why in text
    assert "amqp:main/orders" in text
    assert relaying.report.info().refused == 1
    assert await store.admin.broken_rows(10) == []


async def test_a_refusal_survives_the_absence_of_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MemoryBroker()
    broker.put(b"{", "bad")
    relaying = relay(store, broker)
    keep = store.queues.keep_dead_letters

    async def away(*_: object) -> None:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(store.queues, "keep_dead_letters", away)
    with pytest.raises(StoreUnavailableError):
        await relaying.turn()
    monkeypatch.setattr(store.queues, "keep_dead_letters", keep)
    await relaying.turn()
    assert broker.waiting == []
    assert len(await store.queues.messages(QUEUE, dead=True)) == 1


@pytest.mark.parametrize("keeps", [False, True], ids=["store", "broker"])
async def test_a_thousand_refused_messages_are_one_alert_with_their_number(store: Store, keeps: bool) -> None:
    """However many batches they come in; acknowledged, it is raised again only by another refusal."""
    broker = MemoryBroker(keeps_refusals=keeps)
    relaying = relay(store, broker)
    for n in range(1000):
        broker.put(b"{", f"bad-{n}")
    while broker.waiting:
        await relaying.turn()
    (alert,) = await store.alerts.views(10)
    place = (
        "the broker's own dead letters"
        if keeps
        else f"the dead letters of queue {QUEUE} (`makegood queue list --dead {QUEUE}`)"
    )
    assert alert.kind == "source_refused"
    assert alert.text.startswith("1,000 messages of amqp:main/orders could not be taken")
    assert place in alert.text
    assert relaying.report.info().refused == 1000
    assert len(await store.queues.messages(QUEUE, dead=True, limit=2000)) == (0 if keeps else 1000)
    await store.alerts.acknowledge([alert.id], Act("a", "ann"))
    if not keeps:  # it is delivered again, as its acknowledgement was lost: the store has it
        broker.put(b"{", "bad-1")
        await relaying.turn()
    assert (await alerts(store), broker.waiting) == ({}, [])
    broker.put(b"{", "bad-1000")
    await relaying.turn()
    assert list(await alerts(store)) == ["source_refused"]


@pytest.mark.parametrize("is_handled", [False, True])
async def test_another_value_under_a_known_id_is_refused_and_the_first_stays(
    store: Store, is_handled: bool
) -> None:
    """Also if the first was handled long ago: a sender may count from 1 again after it was restarted."""
    broker = MemoryBroker()
    broker.put(b"1", "a")
    await relay(store, broker).turn()
    assert await waiting(store) == ["a"]
    if is_handled:
        handover = await store.queues.receive_messages(QUEUE, "inbox", 1, 30.0, 8)
        await store.queues.acknowledge_messages([(m.seq, m.tries) for m in handover.messages])
    broker.put(b"2", "a")
    broker.put(b"1", "a")
    await relay(store, broker).turn()
    (letter,) = await store.queues.messages(QUEUE, dead=True)
    assert (letter.message.body, "another value" in letter.message.error, broker.waiting) == (b"2", True, [])


@pytest.mark.parametrize("name", ["a", None])
async def test_each_refused_message_is_a_dead_letter_and_a_redelivered_one_is_no_second(
    store: Store, name: str | None
) -> None:
    """Also if senders give one id to several."""
    broker = MemoryBroker()
    drafts = [b"{order 1", b"{order 2", b"{order 2", b"{order 3"]
    for body in drafts:
        broker.put(body, name)
    await relay(store, broker).turn()
    broker.put(b"{order 3", name)
    again = relay(store, broker)
    await again.turn()
    assert again.report.info().refused == 0, "counted once"
    letters = await store.queues.messages(QUEUE, dead=True)
    assert sorted(letter.message.body for letter in letters) == sorted(set(drafts))
    assert broker.waiting == []


async def test_a_full_queue_leaves_the_backlog_at_the_broker(store: Store) -> None:
    """What was taken is kept and committed later; nothing more is taken, and nothing is given back."""
    broker = MemoryBroker()
    for n in range(5):
        broker.put(b"1", f"o-{n}")
    relaying = relay(store, broker, most=3)
    rest = await relaying.turn()
    assert rest > 0
    assert (await waiting(store), len(broker.waiting)) == (["o-0", "o-1", "o-2"], 2)
    takes = broker.takes
    assert await relaying.turn() > 0
    assert broker.takes == takes
    assert "its limit is 3" in relaying.report.info().error
    handover = await store.queues.receive_messages(QUEUE, "me", 100, 60.0, 9)
    await store.queues.acknowledge_messages([(m.seq, m.tries) for m in handover.messages])
    assert await relaying.turn() == 0
    assert (await waiting(store), broker.waiting) == (["o-3", "o-4"], [])
    assert relaying.report.info().error == ""


async def test_a_broker_that_is_away_or_refuses_us_raises_an_alert_that_ends(store: Store) -> None:
    broker = MemoryBroker(refuses_us=True)
    broker.put(b"1", "a")
    relaying = relay(store, broker)
    with pytest.raises(mg.ConfigError):
        await relaying.begin()
    await relaying.turn()
    text = (await alerts(store))["source_away"]
    assert "refuses the password" in text
    assert relaying.report.info().away is not None
    broker.refuses_us = False
    await relaying.turn()
    assert (await alerts(store), await waiting(store), relaying.report.info().away) == ({}, ["a"], None)
    assert relaying.report.info().error == ""  # lists show no outage that is over


async def test_a_refusal_remains_the_last_error_after_an_outage(store: Store) -> None:
    broker = MemoryBroker()
    broker.put(b"not JSON", "a")
    relaying = relay(store, broker)
    await relaying.turn()
    why = relaying.report.info().error
    assert "is not JSON" in why
    broker.refuses_us = True
    broker.break_connections()
    await relaying.turn()
    assert "refuses the password" in relaying.report.info().error
    broker.refuses_us = False
    await relaying.turn()
    assert relaying.report.info().error == why


async def test_the_next_process_ends_the_alert_of_one_that_never_heard_the_broker(store: Store) -> None:
    broker = MemoryBroker(refuses_us=True)
    await relay(store, broker).turn()
    assert "source_away" in await alerts(store)
    broker.refuses_us = False
    await relay(store, broker).turn()
    assert await alerts(store) == {}


async def test_a_place_that_a_sender_may_not_name_is_in_the_log_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    messages = SourceMessages(ADDRESS, QUEUE, random.Random(1))
    for n in range(2):
        delivery = Delivery(receipt=n, body=b"1", id=f"o-{n}", reply_to="secret")
        outgoing = await messages.message(delivery)
        assert (outgoing.reply_to, outgoing.headers) == (None, {"reply-to": "secret"})
    (record,) = [record for record in caplog.records if "not among reply_to_brokers" in record.message]
    assert "amqp:main/secret" in record.message


@pytest.mark.parametrize("place", ["a b/ü?x=1", "a?x=1", "a\nb", "x" * 300])
async def test_a_place_that_no_address_can_name_costs_the_answer_and_not_the_order(
    store: Store, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """The list may allow any text there, and the order was a dead letter."""
    messages = SourceMessages(ADDRESS, QUEUE, random.Random(1), may_reply=lambda _: True)
    outgoing = await messages.message(Delivery(receipt=1, body=b"1", id="o-1", reply_to=place))
    assert (outgoing.reply_to, outgoing.headers) == (None, {"reply-to": place})
    (record,) = caplog.records
    assert "which cannot be an address" in record.message
    assert "\n" not in record.message


async def test_a_start_does_not_wait_for_the_broker(store: Store) -> None:
    broker = MemoryBroker(away=True)
    relaying = relay(store, broker)
    await relaying.begin()
    assert await relaying.turn() > 0
    broker.away = False
    broker.put(b"1", "a")
    await relaying.turn()
    assert await waiting(store) == ["a"]


async def test_a_break_in_the_middle_of_a_batch_loses_nothing(store: Store) -> None:
    broker = MemoryBroker()
    broker.put(b"1", "a")
    relaying = relay(store, broker)

    def leave() -> None:
        broker.away = True

    broker.before_acknowledge = leave
    assert await relaying.turn() > 0
    assert (await waiting(store), len(broker.waiting)) == (["a"], 1)
    broker.before_acknowledge, broker.away = None, False
    await relaying.turn()
    assert (await waiting(store), broker.waiting) == (["a"], [])


@pytest.mark.parametrize(
    ("identify", "prefix"),
    [
        (lambda delivery: delivery.headers["order"], "7"),
        (lambda _: "x" * 301, "sha256:"),
        (lambda _: "two\nlines", "sha256:"),
    ],
)
async def test_an_inbox_may_say_the_id(
    store: Store, identify: Callable[[Delivery], str], prefix: str
) -> None:
    broker = MemoryBroker()
    broker.put(b"1", "a", order="7")
    await relay(store, broker, identify=identify).turn()
    (name,) = await waiting(store)
    assert name.startswith(prefix)


async def test_an_id_function_that_fails_makes_a_dead_letter(store: Store) -> None:
    broker = MemoryBroker()
    broker.put(b"1", "a")
    await relay(store, broker, identify=lambda delivery: delivery.headers["none"]).turn()
    (letter,) = await store.queues.messages(QUEUE, dead=True)
    assert "id= of the inbox raised KeyError" in letter.message.error


async def test_bodies_are_encoded_where_the_app_has_a_codec(store: Store) -> None:
    broker = MemoryBroker()
    broker.put(b'{"card": "4711"}', "a")
    await relay(store, broker, codec=Compressed()).turn()
    (view,) = await store.queues.messages(QUEUE)
    assert b"4711" not in view.message.body


async def test_a_body_that_cannot_be_encoded_now_makes_no_dead_letter(store: Store) -> None:
    """It would be there in plain. The relay raises, and tries again with pauses."""

    def put(name: str, data: bytes) -> None:
        raise OSError("no route to the bucket")

    broker = MemoryBroker()
    broker.put(b'{"card": "4711"}', "a")
    with pytest.raises(mg.CodecError, match="message a of queue"):
        await relay(store, broker, codec=Elsewhere(1, put, dict[str, bytes]().__getitem__)).turn()
    assert await store.queues.messages(QUEUE, dead=True) == []


async def test_what_was_delivered_while_a_codec_fails_is_committed_once_it_works(store: Store) -> None:
    """The broker need not deliver it once more."""
    bucket: dict[str, bytes] = {}
    faults = [OSError("no route to the bucket")]

    def put(name: str, data: bytes) -> None:
        if len(bucket) == 1 and faults:
            raise faults.pop()
        bucket[name] = data

    broker = MemoryBroker()
    for name in "abc":
        broker.put(f'{{"card": "{name}"}}'.encode(), name)
    relaying = relay(store, broker, codec=Elsewhere(1, put, bucket.__getitem__))
    with pytest.raises(mg.CodecError, match="message b of queue"):
        await relaying.turn()
    takes = broker.takes
    for _ in range(2):
        await relaying.turn()
    assert await waiting(store) == ["a", "b", "c"]
    assert (broker.waiting, broker.takes) == ([], takes)


async def test_a_message_without_an_id_needs_a_key(store: Store) -> None:
    """Its plan has one, or it is refused with the reason; two deliveries of it are one task."""
    shop = mg.App("shop")

    @shop.workflow
    def place(order: dict[str, str]) -> dict[str, str]:
        return order

    @shop.inbox("amqp:main/orders")
    def accept(order: dict[str, str], tx: mg.Transaction) -> mg.Plan[dict[str, str]]:
        plan = place.plan(order)
        return plan.with_(key=order["id"]) if "id" in order else plan

    assert list(shop.inboxes) == [QUEUE]
    broker = MemoryBroker(losing_acks=1.0)
    broker.put(b'{"id": "7"}')
    broker.put(b"{}")
    await relay(store, broker).turn()
    broker.break_connections()
    await relay(store, broker, rng=random.Random(2)).turn()
    assert len(await waiting(store)) == 4
    inboxes = Inboxes(store, [accept], name="here-1", clock=SystemClock(), rng=random.Random(3))
    serving = asyncio.create_task(inboxes.run())

    async def nothing_waits() -> bool:
        return not await waiting(store)

    await until(nothing_waits)
    await inboxes.drain(5.0)
    serving.cancel()
    (task,) = await store.tasks.find(Filter())
    assert task.key == "7"
    letters = await store.queues.messages(QUEUE, dead=True)
    assert ["amqp:main/orders has no id" in letter.message.error for letter in letters] == [True, True]
