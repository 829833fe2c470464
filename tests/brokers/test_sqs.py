"""What is peculiar to SQS, on moto's server; the suites of sources and senders run on it too."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import boto3
import pytest

from makegood.brokers import (
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Source,
    Target,
    address_of,
    open_sender,
    open_source,
    permissions,
    sqs,
)
from makegood.brokers.protocol import MOST_BYTES
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from tests.brokers.reading import checked, source_at, taken
from tests.brokers.rig import Draft, Rig
from tests.brokers.rigs.sqs import SqsRig


@pytest.fixture
def rig(rigs: Callable[[str], Rig]) -> SqsRig:
    """The run's own."""
    rig = rigs("sqs")
    assert isinstance(rig, SqsRig)
    return rig


def numbers(count: int) -> list[Draft]:
    """Messages that can be told apart."""
    return [Draft(b"%d" % n) for n in range(count)]


async def test_a_batch_is_several_calls_and_a_delivery_says_what_sqs_says(rig: SqsRig) -> None:
    """Ten a call; headers, time, count, and SQS's own id where the sender can give none."""
    address = await rig.declare("batch")
    await rig.publish("batch", [*numbers(24), Draft(b'"x"', headers={"ce_type": "order"})])
    reader = source_at(rig, address)
    await reader.open()
    deliveries = await taken(reader, 25)
    last = next(delivery for delivery in deliveries if delivery.kind == "order")
    assert (last.body, last.headers, last.count) == (b'"x"', {"ce_type": "order"}, 1)
    assert last.id == last.receipt
    assert last.sent_at
    assert len({delivery.id for delivery in deliveries}) == 25
    await reader.acknowledge(deliveries)
    assert (await reader.backlog()).waiting == 0
    await reader.close()


async def test_what_waits_for_its_commit_stays_hidden_and_close_shows_it_at_once(rig: SqsRig) -> None:
    """The visibility is 8 seconds; another reader that waits 13 gets nothing until the first one closes."""
    address = await rig.declare("hidden")
    await rig.publish("hidden", numbers(12))
    reader, other = source_at(rig, address), source_at(rig, address)
    await reader.open()
    await other.open()
    deliveries = await taken(reader, 12)
    await reader.pause()
    assert not await other.take(10, 13)
    await reader.acknowledge(deliveries[:2])
    await reader.close()
    again = await taken(other, 10)
    assert {delivery.id for delivery in again} == {delivery.id for delivery in deliveries[2:]}
    assert {delivery.count for delivery in again} == {2}
    await other.close()


async def test_a_cancelled_take_loses_nothing(rig: SqsRig) -> None:
    """What its call receives afterwards belongs to the next take, and to others once the source is closed."""
    address = await rig.declare("cancelled")
    reader, other = source_at(rig, address), source_at(rig, address)
    await reader.open()
    await other.open()
    await _cancelled_take(reader)
    await rig.publish("cancelled", numbers(1))
    assert [delivery.body for delivery in await reader.take(5, 60)] == [b"0"]
    await reader.close()

    await reader.open()
    assert [delivery.body for delivery in await reader.take(5, 60)] == [b"0"]
    await _cancelled_take(reader)
    await reader.close()
    assert [delivery.body for delivery in await other.take(5, 60)] == [b"0"]
    await other.close()


async def _cancelled_take(reader: Source) -> None:
    task = asyncio.create_task(reader.take(5, 10))
    await asyncio.wait({task}, timeout=0.5)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_a_go_ends_at_most_bytes_and_the_rest_is_taken_next(rig: SqsRig) -> None:
    """Ten messages of 600 KiB come in one call: seven are more than MOST_BYTES."""
    address = await rig.declare("large")
    await rig.publish("large", [Draft(b'"%s"' % (b"x" * 600 * 1024))] * 10)
    reader = source_at(rig, address)
    await reader.open()
    first = list(await reader.take(200, 60))
    assert len(first) == MOST_BYTES // (600 * 1024) + 1
    second = list(await reader.take(200, 60))
    assert len(first) + len(second) == 10
    await reader.acknowledge([*first, *second])
    assert (await reader.backlog()).waiting == 0
    await reader.close()


async def test_a_fifo_queue_gives_the_senders_id_and_nothing_more_of_a_group_that_is_out(rig: SqsRig) -> None:
    """The group's order holds; its next messages come after the acknowledgement."""
    address = await rig.declare("orders.fifo")
    await rig.publish("orders.fifo", [Draft(b"%d" % n, id=f"order-{n}") for n in range(13)])
    reader = source_at(rig, address)
    await reader.open()
    deliveries = list(await reader.take(200, 60))
    assert [delivery.id for delivery in deliveries] == [f"order-{n}" for n in range(10)]
    assert not await reader.take(200, 1)
    await reader.acknowledge(deliveries)
    rest = list(await reader.take(200, 60))
    assert [delivery.id for delivery in rest] == ["order-10", "order-11", "order-12"]
    await reader.close()


async def test_an_id_that_sqs_made_of_the_body_names_no_order(rig: SqsRig) -> None:
    """Content-based deduplication: two equal orders an hour apart are two orders, so the message's own id counts."""
    url = await rig.make("content.fifo", {"FifoQueue": "true", "ContentBasedDeduplication": "true"})
    client = rig.client()
    client.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="a")
    client.send_message(QueueUrl=url, MessageBody="2", MessageGroupId="b", MessageDeduplicationId="two")
    reader = source_at(rig, address_of("sqs:main/content.fifo", {"sqs"}))
    await reader.open()
    ids = {delivery.body: (delivery.id, delivery.receipt) for delivery in await reader.take(9, 60)}
    assert ids[b"1"][0] == ids[b"1"][1]
    assert ids[b"2"][0] == "two"
    await reader.close()


async def test_where_ids_count_within_a_group_the_group_is_part_of_the_name(rig: SqsRig) -> None:
    """High throughput: one deduplication id may name a message of each group. (To moto it would be a repetition.)"""
    attributes = {
        "FifoQueue": "true",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    url = await rig.make("groups.fifo", attributes)
    client = rig.client()
    for group, name in ("ax", "by"):
        client.send_message(QueueUrl=url, MessageBody="1", MessageGroupId=group, MessageDeduplicationId=name)
    reader = source_at(rig, address_of("sqs:main/groups.fifo", {"sqs"}))
    await reader.open()
    ids: set[str | None] = set()
    while batch := await reader.take(9, 1):
        ids |= {delivery.id for delivery in batch}
        await reader.acknowledge(batch)
    assert ids == {"a x", "b y"}
    await reader.close()


async def test_single_messages_that_sqs_failed_to_delete_get_a_second_try(
    rig: SqsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch's answer is 200 with `Failed` inside. The first one is falsified here, as moto never fails so."""
    address = await rig.declare("failed")
    await rig.publish("failed", numbers(3))
    reader = source_at(rig, address)
    await reader.open()
    deliveries = await taken(reader, 3)
    calls: list[int] = []
    call = sqs.SqsCalls.call

    async def falsified(service: Any, verb: str, **arguments: Any) -> Mapping[str, Any]:
        if verb != "delete_message_batch":
            return dict(await call(service, verb, **arguments))
        calls.append(len(arguments["Entries"]))
        if len(calls) > 1:
            return dict(await call(service, verb, **arguments))
        arguments["Entries"] = arguments["Entries"][1:]
        answer = dict(await call(service, verb, **arguments))
        return {**answer, "Failed": [{"Id": "0", "SenderFault": False, "Code": "InternalError"}]}

    monkeypatch.setattr(sqs.SqsCalls, "call", falsified)
    await reader.acknowledge(deliveries)
    assert calls == [3, 1]
    assert (await reader.backlog()).waiting == 0
    await reader.close()


async def test_settings_of_a_queue_that_lose_orders_are_named(rig: SqsRig) -> None:
    """A short redrive, a short retention."""
    dead = await rig.make("dead", {})
    arn = "arn:aws:sqs:eu-west-1:123456789012:dead"
    assert dead
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})
    await rig.make("hasty", {"RedrivePolicy": policy, "MessageRetentionPeriod": "3600"})
    reader = source_at(rig, address_of("sqs:main/hasty", {"sqs"}))
    requirements = await reader.open()
    assert [requirement.severity for requirement in requirements] == ["warning", "warning"]
    assert "received 3 times" in requirements[0].what
    assert "1209600" in requirements[1].remedy
    assert await reader.open() == requirements
    assert not reader.keeps_refusals
    await reader.close()


async def test_a_missing_queue_and_wrong_words_are_errors_of_configuration(rig: SqsRig) -> None:
    """Each says what to do, and no message shows the secret."""
    with pytest.raises(ConfigError, match="no such queue in eu-west-1"):
        await source_at(rig, address_of("sqs:main/nothing", {"sqs"})).open()
    with pytest.raises(ConfigError, match=r"80 letters"):
        await source_at(rig, address_of("sqs:main/a.b", {"sqs"})).open()
    with pytest.raises(ConfigError, match="whole seconds, from 1 to 43200"):
        source_at(rig, address_of("sqs:main/a?visibility=soon", {"sqs"}))
    for url in ("sqs://eu-west-1/orders", "sqs://eu-west-1?region=x", "sqs://key@eu-west-1"):
        with pytest.raises(ConfigError, match="sqs://"):
            source_at(rig, address_of("sqs:main/a", {"sqs"}), target=Target("sqs", "main", url))


async def test_the_policy_is_enough_to_take_and_not_to_send(rig: SqsRig) -> None:
    """Actions as the service compares them; the resources are read here."""
    address = await rig.declare("granted")
    await rig.publish("granted", numbers(1))
    policy = json.loads(permissions(rig.target, ["granted"], []))
    assert [part.pop("Resource") for part in policy["Statement"]] == [["arn:aws:sqs:eu-west-1:*:granted"]]
    login = rig.user("taker", rig.in_moto(policy))
    rig.check_rights(on=True)
    try:
        target = rig.target_of(*login)
        reader = source_at(rig, address, target=target)
        await reader.open()
        deliveries = await taken(reader, 1)
        await reader.acknowledge(deliveries)
        assert (await reader.backlog()).waiting == 0
        await reader.close()
        sender = open_sender(target)
        event = OutgoingEvent(id="e", task="t", body=b"{}")
        with pytest.raises(DeliveryError, match=r"403|AccessDenied") as error:
            await sender.send("granted", event, 60)
        assert not isinstance(error.value, RefusedTargetError)
        await sender.close()
        with pytest.raises(ConfigError, match="broker permissions main") as wrong:
            await source_at(rig, address, target=rig.target_of(login[0], "wrong/secret")).open()
        assert "wrong" not in str(wrong.value)
    finally:
        rig.check_rights(on=False)


def test_policies_of_other_partitions() -> None:
    """China and the government's clouds have names of their own."""
    for region, partition in (
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("us-east-1", "aws"),
    ):
        policy = json.loads(permissions(Target("sqs", "main", f"sqs://{region}"), [], ["notices.fifo"]))
        (statement,) = policy["Statement"]
        assert statement["Resource"] == [f"arn:{partition}:sqs:{region}:*:notices.fifo"]
        assert "sqs:SendMessage" in statement["Action"]
        assert "sqs:DeleteMessage" not in statement["Action"]


async def test_a_fifo_queue_takes_an_event_once_and_those_of_a_task_in_order(rig: SqsRig) -> None:
    """Group: the task. Deduplication id: the event's. Letters that SQS does not take are escaped."""
    await rig.declare("notices.fifo")
    sender = open_sender(rig.target)
    for n in (1, 1, 2):
        body = b'{"text":"\xef\xbf\xbf"}'
        await sender.send("notices.fifo", OutgoingEvent(id=f"e {n}", task="5e-1", body=body), 60)
    first, second = await rig.read("notices.fifo")
    assert json.loads(first.body) == {"text": "\uffff"}
    assert first.key == second.key == "5e-1"
    assert first.id != second.id
    await sender.close()


async def test_targets_that_can_take_nothing_are_refused(rig: SqsRig) -> None:
    """A missing queue, and an event that is too large; the check names the missing one."""
    await rig.declare("notices")
    sender = open_sender(rig.target)
    small = OutgoingEvent(id="e", task="t", body=b"{}")
    with pytest.raises(RefusedTargetError, match="does not exist"):
        await sender.send("nothing", small, 30)
    large = OutgoingEvent(id="e", task="t", body=b'"%s"' % (b"x" * (1 << 20)))
    with pytest.raises(RefusedTargetError, match="shorter than"):
        await sender.send("notices", large, 30)
    severities = [requirement.severity for requirement in await checked(rig, places=["notices", "nothing"])]
    assert severities == ["ok", "error"]
    await sender.close()


async def test_a_server_that_is_stopped_or_gone_is_an_outage_within_ten_seconds(rig: SqsRig) -> None:
    """And the next open begins anew."""
    address = await rig.declare("outage")
    await rig.publish("outage", numbers(1))
    reader = source_at(rig, address)
    await reader.open()
    rig.stop()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(BrokerUnavailableError, match="answered"):
                await reader.take(1, 1)
    finally:
        rig.resume()
    await reader.open()
    rig.kill()
    try:
        with pytest.raises(BrokerUnavailableError):
            await reader.take(1, 1)
        sender = open_sender(rig.target)
        with pytest.raises(DeliveryError):
            await sender.send("outage", OutgoingEvent(id="e", task="t", body=b"{}"), 60)
        await sender.close()
    finally:
        rig.start()
    await reader.open()
    assert not await reader.take(1, 0)
    await reader.close()


@pytest.mark.skipif(
    "MAKEGOOD_TEST_SQS" not in os.environ,
    reason="the real SQS: set MAKEGOOD_TEST_SQS=sqs://REGION and credentials that may make queues",
)
async def test_the_real_service_hides_extends_deletes_and_moves_to_dead_letters() -> None:
    """What moto cannot prove: expiry on the service's own clock, a stale receipt, the redrive."""
    target = Target("sqs", "main", os.environ["MAKEGOOD_TEST_SQS"])
    region = target.url.removeprefix("sqs://")
    client = boto3.session.Session(region_name=region).client("sqs")
    name = f"makegood-test-{os.getpid()}"
    dead = client.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    url = client.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
    try:
        address = address_of(f"sqs:main/{name}?visibility=6", {"sqs"})
        reader, other = (open_source(address, {"main": target}, Reader("shop", "one")) for _ in range(2))
        await reader.open()
        await other.open()
        client.send_message(QueueUrl=url, MessageBody="1")
        (first,) = await reader.take(1, 20)
        assert not await other.take(1, 10)
        await reader.close()
        (second,) = await other.take(1, 20)
        assert (second.id, second.count) == (first.id, 2)
        await other.close()
        await reader.open()
        assert not await reader.take(1, 10)
        assert client.receive_message(QueueUrl=dead, WaitTimeSeconds=20)["Messages"]
        await reader.close()
    finally:
        client.delete_queue(QueueUrl=url)
        client.delete_queue(QueueUrl=dead)
