"""What is peculiar to Service Bus, on a stub of our own; the suites of sources and senders run on it too."""

import asyncio
import os
from collections.abc import Callable

import pytest

from makegood.brokers import (
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Target,
    address_of,
    open_sender,
    open_source,
    permissions,
    service_bus,
)
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from tests.brokers.reading import checked, source_at, taken
from tests.brokers.rig import Draft, Rig
from tests.brokers.rigs.service_bus import ServiceBusRig
from tests.waiting import until


@pytest.fixture
def rig(rigs: Callable[[str], Rig]) -> ServiceBusRig:
    """The run's own."""
    rig = rigs("servicebus")
    assert isinstance(rig, ServiceBusRig)
    return rig


def numbers(count: int) -> list[Draft]:
    """Messages that can be told apart."""
    return [Draft(b"%d" % n, id=f"order-{n}") for n in range(count)]


async def test_a_delivery_says_what_the_message_says(rig: ServiceBusRig) -> None:
    """The sender's id, or the sequence number with the time, as a queue that is made anew counts from 1 again."""
    address = rig.make("says")
    await rig.publish("says", [Draft(b"{}", id="o-1", headers={"ce_type": "order"}), Draft(b"[]")])
    reader = source_at(rig, address)
    await reader.open()
    first, second = await taken(reader, 2)
    assert (first.id, first.kind, first.body, first.count) == ("o-1", "order", b"{}", 1)
    assert second.id == f"{second.receipt} of {second.sent_at}"
    assert (await reader.backlog()).waiting is None
    await reader.acknowledge([first, second])
    assert await rig.waiting(address, "") == 0
    await reader.close()


async def test_opening_and_checking_deliver_nothing(rig: ServiceBusRig) -> None:
    """A link without a take has no credit: each delivery would count."""
    address = rig.make("checked")
    await rig.publish("checked", numbers(1))
    first, second = source_at(rig, address), source_at(rig, address)
    await checked(rig, [address])
    await first.open()
    await second.open()
    (delivery,) = await taken(second, 1)
    assert delivery.count == 1
    await second.acknowledge([delivery])
    await first.close()
    await second.close()


async def test_locks_are_renewed_while_a_commit_waits_and_close_gives_the_messages_back_at_once(
    rig: ServiceBusRig,
) -> None:
    """The lock lasts 8 seconds, another reader waits 13; the closing counts one delivery."""
    address = rig.make("locked", lock=8)
    await rig.publish("locked", numbers(3))
    reader, other = source_at(rig, address), source_at(rig, address)
    await reader.open()
    await other.open()
    deliveries = await taken(reader, 3)
    await reader.pause()
    assert not await other.take(5, 13)
    await reader.acknowledge(deliveries[:2])
    await reader.close()
    (again,) = await taken(other, 1)
    assert (again.id, again.count) == ("order-2", 2)
    await other.close()


async def test_a_lock_is_renewed_for_a_bounded_time(
    rig: ServiceBusRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten minutes, here none: others get the message when its lock expires, and its acknowledgement is no fault."""
    monkeypatch.setattr(service_bus, "_RENEWED", 0.0)
    address = rig.make("bounded", lock=6)
    await rig.publish("bounded", numbers(1))
    reader, other = source_at(rig, address), source_at(rig, address)
    await reader.open()
    deliveries = await taken(reader, 1)
    await other.open()
    (again,) = await taken(other, 1)
    assert again.count == 2
    await reader.acknowledge(deliveries)
    await other.acknowledge([again])
    assert await rig.waiting(address, "") == 0
    await reader.close()
    await other.close()


async def test_a_message_whose_lock_is_lost_comes_again(rig: ServiceBusRig) -> None:
    """The service's answer to complete and to dead_letter; neither is a fault."""
    address = rig.make("lost")
    await rig.publish("lost", numbers(2))
    reader = source_at(rig, address)
    await reader.open()
    deliveries = await taken(reader, 2)
    rig.do("expire", "lost")
    await reader.acknowledge(deliveries[:1])
    await reader.refuse(deliveries[1], "no JSON")
    again: list[str | None] = []

    async def all_again() -> bool:
        again.extend(delivery.id for delivery in await reader.take(2, 1))
        return len(again) == 2

    await until(all_again, "both to come again")
    assert sorted(map(str, again)) == ["order-0", "order-1"]
    await reader.close()


async def test_what_is_refused_is_in_the_queues_dead_letters_with_the_reason(rig: ServiceBusRig) -> None:
    """And not in the queue."""
    address = rig.make("refused")
    await rig.publish("refused", numbers(1))
    reader = source_at(rig, address)
    await reader.open()
    assert reader.keeps_refusals
    (delivery,) = await taken(reader, 1)
    await reader.refuse(delivery, "it is no JSON" + "!" * 5000)
    (letter,) = rig.do("read", "refused/$DeadLetterQueue")
    assert (letter["id"], letter["reason"]) == ("order-0", "makegood")
    assert await rig.waiting(address, "") == 0
    await reader.close()


async def test_a_link_that_was_idle_is_opened_anew_before_the_service_detaches_it(
    rig: ServiceBusRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine minutes, here none: a detached link is not even noticed. Otherwise it is an outage, and the next open heals it."""
    address = rig.make("idle")
    reader = source_at(rig, address)
    await reader.open()
    rig.do("detach", "idle")
    with pytest.raises(BrokerUnavailableError, match="detach-forced"):
        await reader.take(1, 1)
    await reader.open()
    monkeypatch.setattr(service_bus, "_IDLE", -1.0)
    rig.do("detach", "idle")
    await rig.publish("idle", numbers(1))
    assert [delivery.id for delivery in await reader.take(1, 60)] == ["order-0"]
    await reader.close()


async def test_clocks_are_compared_at_each_receipt(rig: ServiceBusRig) -> None:
    """Ahead: a lock seems to end at once. Behind: a message comes from the future. Both are warnings, until the clocks agree."""
    address = rig.make("clock", lock=30)
    reader = source_at(rig, address)
    await reader.open()
    for ahead, words in ((-28.0, "ends in"), (20.0, "behind that of Service Bus")):
        rig.do("set", ahead=ahead)
        try:
            await rig.publish("clock", numbers(1))
            deliveries = await taken(reader, 1)
        finally:
            rig.do("set", ahead=0.0)
        _, requirement = await reader.open()
        assert requirement.severity == "warning"
        assert words in requirement.what
        await reader.acknowledge(deliveries)
    await rig.publish("clock", numbers(1))
    await reader.acknowledge(await taken(reader, 1))
    assert len(await reader.open()) == 1
    await reader.close()


async def test_sessions_are_read_one_after_the_other_in_order(rig: ServiceBusRig) -> None:
    """Each session's order holds; a queue without messages has no session, and that is no fault."""
    plain = rig.make("sessions", sessions=True, lock=10)
    with pytest.raises(ConfigError, match=r"\?sessions=on"):
        await source_at(rig, plain).open()
    address = address_of("servicebus:main/sessions?sessions=on", {"servicebus"})
    reader = source_at(rig, address)
    await reader.open()
    assert not await reader.take(9, 0.5)
    messages = [
        {"body": "MQ==", "id": f"{session}{n}", "session": session} for n in range(3) for session in "ab"
    ]
    rig.do("send", "sessions", messages=messages)
    ids: list[str | None] = []

    async def all_read() -> bool:
        deliveries = await reader.take(9, 1)
        ids.extend(delivery.id for delivery in deliveries)
        await reader.acknowledge(deliveries)
        return len(ids) == 6

    await until(all_read, "both sessions")
    assert ids in (["a0", "a1", "a2", "b0", "b1", "b2"], ["b0", "b1", "b2", "a0", "a1", "a2"])
    assert await rig.waiting(address, "") == 0
    await reader.close()


async def test_a_session_is_held_while_a_commit_waits(rig: ServiceBusRig) -> None:
    """Its lock lasts 8 seconds, and another reader waits 13 for a session in vain."""
    rig.make("held", sessions=True, lock=8)
    rig.do("send", "held", messages=[{"body": "MQ==", "id": "a0", "session": "a"}])
    address = address_of("servicebus:main/held?sessions=on", {"servicebus"})
    reader, other = source_at(rig, address), source_at(rig, address)
    await reader.open()
    deliveries = await taken(reader, 1)
    await other.open()
    assert not await other.take(1, 13)
    await reader.acknowledge(deliveries)
    assert await rig.waiting(address, "") == 0
    await reader.close()
    await other.close()


async def test_a_subscription_of_a_topic_is_read(rig: ServiceBusRig) -> None:
    """Each subscription has its own copy."""
    for name in ("one", "two"):
        rig.do("queue", f"news/Subscriptions/{name}")
    rig.do("send", "news", messages=[{"body": "MQ==", "id": "n-1"}])
    reader = source_at(rig, address_of("servicebus:main/news?subscription=two", {"servicebus"}))
    await reader.open()
    deliveries = await taken(reader, 1)
    assert [delivery.id for delivery in deliveries] == ["n-1"]
    await reader.acknowledge(deliveries)
    assert [rig.do("waiting", f"news/Subscriptions/{name}") for name in ("one", "two")] == [1, 0]
    await reader.close()


async def test_settings_that_cannot_work_are_errors_of_configuration(rig: ServiceBusRig) -> None:
    """Each says what to do; no message shows the key."""
    with pytest.raises(ConfigError, match="there is no such queue or subscription"):
        await source_at(rig, address_of("servicebus:main/nothing", {"servicebus"})).open()
    with pytest.raises(ConfigError, match="write on or off"):
        source_at(rig, address_of("servicebus:main/a?sessions=yes", {"servicebus"}))
    for url in ("servicebus://host/orders", "servicebus://user@host"):
        with pytest.raises(ConfigError, match="connection string"):
            open_sender(Target("servicebus", "main", url))
    address = rig.make("barred")
    await rig.revoke()
    try:
        with pytest.raises(ConfigError, match="broker permissions main") as error:
            await source_at(rig, address).open()
    finally:
        await rig.grant()
    assert "c2VjcmV0" not in str(error.value)
    broken = Target("servicebus", "main", "Endpoint=sb://h;SharedAccessKeyName=x")
    with pytest.raises(ConfigError):
        await open_source(address, {"main": broken}, Reader("shop", "one")).open()


async def test_a_service_that_is_silent_is_an_outage(
    rig: ServiceBusRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opening that nobody answers ends in 8 seconds; a stopped service is not taken for an empty queue."""
    monkeypatch.setattr(service_bus, "_QUIET", 0.0)
    monkeypatch.setattr(service_bus, "_ANSWER", 3.0)
    address = rig.make("silent")
    reader = source_at(rig, address)
    rig.do("set", silent=True)
    try:
        with pytest.raises(BrokerUnavailableError, match="not opened a link within 3 s"):
            await reader.open()
    finally:
        rig.do("set", silent=False)
    await reader.open()
    rig.stop()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(BrokerUnavailableError):
                await reader.take(1, 1)
            sender = open_sender(rig.target)
            with pytest.raises(DeliveryError, match="within 2 s"):
                await sender.send("silent", OutgoingEvent(id="e", task="t", body=b"{}"), 2)
            await sender.close()
    finally:
        rig.resume()
    await reader.open()
    await reader.close()


async def test_an_event_has_its_id_and_its_task_as_session_and_a_repetition_is_dropped(
    rig: ServiceBusRig,
) -> None:
    """By a queue with duplicate detection, or one that requires sessions."""
    rig.make("notices", duplicates=True, sessions=True)
    sender = open_sender(rig.target)
    for name in ("e-1", "e-1", "e-2"):
        await sender.send(
            "notices", OutgoingEvent(id=name, task="5e-1", body=b"{}", correlation_id="o-1"), 60
        )
    messages = rig.do("read", "notices")
    assert [(each["id"], each["session"], each["type"], each["correlation"]) for each in messages] == [
        ("e-1", "5e-1", "application/cloudevents+json", "o-1"),
        ("e-2", "5e-1", "application/cloudevents+json", "o-1"),
    ]
    long = OutgoingEvent(id="e-3", task="5e-1", body=b"{}", correlation_id="o" * 129)
    await sender.send("notices", long, 60)
    assert [each["correlation"] for each in rig.do("read", "notices")][-1:] == ["5e-1"], (
        "a cut one names nothing"
    )
    with pytest.raises(RefusedTargetError, match="not-found"):
        await sender.send("nothing", OutgoingEvent(id="e", task="t", body=b"{}"), 60)
    with pytest.raises(RefusedTargetError, match="too large"):
        await sender.send("notices", OutgoingEvent(id="e", task="t", body=b"x" * 300_000), 30)
    answers = await checked(rig, places=["notices", "nothing"])
    assert [requirement.severity for requirement in answers] == ["ok", "error"]
    await sender.close()


def test_permissions_are_roles_or_rules_with_one_right() -> None:
    """Listen or Receiver for what is taken, Send or Sender for the others; never Manage."""
    by_identity = permissions(
        Target("servicebus", "main", "servicebus://shop.servicebus.windows.net"), ["orders"], ["notices"]
    )
    assert '"Azure Service Bus Data Receiver" --scope "$NAMESPACE/queues/orders"' in by_identity
    assert '"Azure Service Bus Data Sender" --scope "$NAMESPACE/queues/notices"' in by_identity
    by_key = permissions(
        Target("servicebus", "main", "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=x;SharedAccessKey=hidden"),
        ["orders"], ["notices"],
    )  # fmt: skip
    assert "--queue-name orders --name makegood-listen --rights Listen" in by_key
    assert "--queue-name notices --name makegood-send --rights Send" in by_key
    assert "--namespace-name shop " in by_key
    assert "hidden" not in by_key
    assert "Manage" not in by_key + by_identity


@pytest.mark.skipif(
    "MAKEGOOD_TEST_SERVICEBUS" not in os.environ,
    reason="the real Service Bus, or Microsoft's emulator: set MAKEGOOD_TEST_SERVICEBUS to a connection string, and make a queue makegood-test",
)
async def test_the_real_service_locks_renews_completes_and_keeps_dead_letters() -> None:
    """What the stub cannot prove: locks, counts and outcomes of the service itself. The queue must be empty."""
    target = Target("servicebus", "main", os.environ["MAKEGOOD_TEST_SERVICEBUS"])
    address = address_of("servicebus:main/makegood-test", {"servicebus"})
    reader = open_source(address, {"main": target}, Reader("shop", "one"))
    await reader.open()
    sender = open_sender(target)
    for n in range(3):
        await sender.send("makegood-test", OutgoingEvent(id=f"real-{n}", task="t", body=b"%d" % n), 30)
    await sender.close()
    deliveries = list(await reader.take(3, 20))
    assert [delivery.id for delivery in deliveries] == ["real-0", "real-1", "real-2"]
    await reader.acknowledge(deliveries[:1])
    await reader.refuse(deliveries[1], "a test")
    await reader.close()
    await reader.open()
    (again,) = await reader.take(3, 20)
    assert (again.id, again.count) == ("real-2", 2)
    await reader.acknowledge([again])
    assert not await reader.take(1, 5)
    await reader.close()
