"""What RabbitMQ alone does, on the real server: each trap that a client falls into, and what an operator must be told."""

import asyncio
import os
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from pamqp import commands, frame

from makegood.brokers import (
    BrokerAddress,
    MissingPlaceError,
    OutgoingEvent,
    RefusedTargetError,
    Target,
    address_of,
    open_sender,
    permissions,
)
from makegood.brokers.rabbitmq import DEAD_LETTERS
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from tests.brokers.reading import (
    BEYOND,
    PATIENCE,
    bodies,
    checked,
    drafts,
    fresh_place,
    nothing_comes,
    opened,
    reading,
    source_at,
    taken,
)
from tests.brokers.rig import Rig
from tests.brokers.rigs.rabbitmq import PASSWORD, USER, RabbitRig
from tests.waiting import until

Rigs = Callable[[str], Rig]


@pytest.fixture(params=["rabbitmq-classic", "rabbitmq-quorum"])
def rabbit(request: pytest.FixtureRequest, rigs: Rigs) -> RabbitRig:
    """The two types of queues."""
    return _rabbit(rigs, request.param)


def _rabbit(rigs: Rigs, name: str) -> RabbitRig:
    rig = rigs(name)
    assert isinstance(rig, RabbitRig)
    return rig


@pytest.fixture
def classic(rigs: Rigs) -> RabbitRig:
    return _rabbit(rigs, "rabbitmq-classic")


@pytest.fixture
def quorum(rigs: Rigs) -> RabbitRig:
    return _rabbit(rigs, "rabbitmq-quorum")


class At(RabbitRig):
    """A rig whose sources use another URL."""

    def __init__(self, rig: RabbitRig, url: str) -> None:
        super().__init__()
        self.type = rig.type
        self._url = url

    @property
    def target(self) -> Target:
        return Target("amqp", "main", self._url)


async def publish_raw(rig: RabbitRig, place: str, properties: bytes) -> None:
    """Publish a message whose properties no well-behaved client would write."""
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.server.port)

    async def answer() -> Any:
        start = await reader.readexactly(7)
        rest = await reader.readexactly(struct.unpack(">BHI", start)[2] + 1)
        return frame.unmarshal(start + rest)[2]

    def send(method: Any, channel: int) -> None:
        writer.write(frame.marshal(method, channel))

    writer.write(b"AMQP\0\0\x09\x01")
    await answer()
    login = f"\0{rig.server.user}\0{rig.server.password}"
    send(commands.Connection.StartOk(client_properties={}, mechanism="PLAIN", response=login), 0)
    tune = await answer()
    send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), 0)
    send(commands.Connection.Open(rig.type), 0)
    await answer()
    for method in (commands.Channel.Open(), commands.Confirm.Select()):
        send(method, 1)
        await answer()
    send(commands.Basic.Publish(exchange="", routing_key=place), 1)
    header = struct.pack(">HHQ", 60, 0, 2) + properties
    writer.write(struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce")
    writer.write(struct.pack(">BHI", 3, 1, 2) + b"{}\xce")
    assert isinstance(await answer(), commands.Basic.Ack)
    writer.close()
    await writer.wait_closed()


def _table(entry: bytes) -> bytes:
    return struct.pack(">I", len(entry)) + entry


async def test_properties_that_cannot_be_decoded_hold_up_nothing(classic: RabbitRig) -> None:
    """For aiormq a timestamp in microseconds ends each connection that it is delivered to."""
    address = await classic.declare(fresh_place())
    microseconds = struct.pack(">HBcQ", 1 << 7 | 1 << 6, 1, b"t", 1_795_000_000_000_000)
    for properties in (
        microseconds,
        struct.pack(">HB2s", 1 << 7, 2, b"\xff\xfe"),
        struct.pack(">H", 1 << 13) + _table(b"\x02\xff\xfeS" + struct.pack(">I", 1) + b"x"),
        struct.pack(">H", 1 << 13) + _table(b"\x01tT" + struct.pack(">Q", 2**63)),
    ):
        await publish_raw(classic, address.place, properties)
    await classic.publish(address.place, drafts(1))
    async with reading(classic, address) as source:
        late_date, nameless, badly_headed, oddly_headed, good = await taken(source, 5)
        assert (late_date.id, late_date.sent_at, late_date.fault, late_date.body) == ("t", None, "", b"{}")
        assert nameless.fault == "its message_id cannot be decoded"
        assert badly_headed.fault == oddly_headed.fault == "its headers cannot be decoded"
        assert (good.id, good.fault) == ("m0", "")
        assert not any(delivery.headers for delivery in (late_date, nameless, badly_headed, oddly_headed))


async def test_properties_reach_the_delivery(rabbit: RabbitRig) -> None:
    address = await rabbit.declare(fresh_place())
    async with rabbit.channel() as channel:
        properties = commands.Basic.Properties(
            message_id="id",
            headers={"tenant": "a", "n": 3, "ce_type": "order"},
            correlation_id="c",
            reply_to="answers",
            delivery_mode=2,
        )
        await channel.basic_publish(b"{}", routing_key=address.place, properties=properties)
    async with reading(rabbit, address) as source:
        [delivery] = await taken(source, 1)
    assert delivery.headers == {"tenant": "a", "ce_type": "order"}
    assert (delivery.kind, delivery.correlation_id, delivery.reply_to) == ("order", "c", "answers")


async def test_a_late_acknowledgement_settles_nothing_of_a_new_connection(rabbit: RabbitRig) -> None:
    """Delivery tags count from 1 on each channel."""
    address = await rabbit.declare(fresh_place())
    await rabbit.publish(address.place, drafts(2))
    async with reading(rabbit, address) as source:
        before = await taken(source, 2)
        await source.close()
        await opened(source)
        again = await taken(source, 2)
        await source.acknowledge(before)
        await source.refuse(before[0], "late")
        await until(lambda: _waits(rabbit, address, 2), "both to be unacknowledged", PATIENCE)
        await nothing_comes(source)
        await source.acknowledge(again)


async def _waits(rabbit: RabbitRig, address: BrokerAddress, count: int) -> bool:
    return await rabbit.waiting(address, "") == count


async def test_the_count_of_deliveries_is_the_brokers(rabbit: RabbitRig) -> None:
    """A quorum queue counts them; a classic one only says that it is not the first."""
    address = await rabbit.declare(fresh_place())
    await rabbit.publish(address.place, drafts(1))
    counts = []
    for _ in range(3):
        async with reading(rabbit, address) as source:
            counts += [delivery.count for delivery in await taken(source, 1)]
    assert counts == ([1, 2, 3] if rabbit.type == "quorum" else [1, 2, 2])


async def test_a_deleted_queue_ends_the_reading_at_once(classic: RabbitRig) -> None:
    """RabbitMQ cancels the consumer, and leaves connection and channel open: a client that does not hear it waits for ever."""
    address = await classic.declare(fresh_place())
    async with reading(classic, address) as source:
        take = asyncio.create_task(source.take(1, 2 * PATIENCE))
        await asyncio.sleep(0)
        await classic.delete(address.place)
        with pytest.raises(BrokerUnavailableError, match="cancelled this consumer"):
            await asyncio.wait_for(take, PATIENCE)
        with pytest.raises(ConfigError, match="no queue"):
            await source.open()


async def test_no_more_is_prefetched_than_one_commit_takes(rabbit: RabbitRig) -> None:
    """Twice that at most, behind pauses that nothing was acknowledged in."""
    address = await rabbit.declare(fresh_place())
    await rabbit.publish(address.place, drafts(30))

    async def ready() -> int:
        async with rabbit.channel() as channel:
            return int((await channel.queue_declare(address.place, passive=True)).message_count)

    async def is_ready(count: int) -> bool:
        return await ready() == count

    async with reading(rabbit, address, batch=5) as source:
        await until(lambda: is_ready(25), "5 to be delivered", PATIENCE)
        for _ in range(4):
            await source.take(1, 1.0)
            await source.pause()
        assert await ready() >= 20
        await source.acknowledge(await source.take(200, 1.0))


async def test_a_slow_acknowledgement_is_an_outage_and_loses_nothing(classic: RabbitRig) -> None:
    """RabbitMQ closes the channel of a consumer that is too slow, up to 4.2; here after a second."""
    if "MAKEGOOD_TEST_RABBITMQ_ROOT" in os.environ:
        pytest.skip("amqp: classic queues of RabbitMQ 4.3 have no consumer timeout")
    address = await classic.declare(fresh_place())
    await classic.publish(address.place, drafts(2))

    async def limit(milliseconds: int) -> None:
        setting = f"application:set_env(rabbit, consumer_timeout, {milliseconds})."
        await asyncio.to_thread(classic.server.control, "eval", setting)

    await limit(1000)
    try:
        async with reading(classic, address) as source:
            before = await taken(source, 2)
            with pytest.raises(BrokerUnavailableError, match="timed out"):
                await asyncio.wait_for(source.take(10, PATIENCE), PATIENCE)
            await limit(1_800_000)
            again = await taken(source, 2)
            assert [d.id for d in again] == [d.id for d in before]
            await source.acknowledge(again)
    finally:
        await limit(1_800_000)


async def test_an_alarm_stops_notices_and_no_acknowledgements(classic: RabbitRig) -> None:
    """For want of memory RabbitMQ stops all that comes by a connection that publishes: hence another one to consume."""
    address, notices = await classic.declare(fresh_place()), await classic.declare(fresh_place())
    await classic.publish(address.place, drafts(4))
    sender = open_sender(classic.target)
    event = OutgoingEvent(id="e1", task="t", body=b"{}")
    async with reading(classic, address) as source:
        await sender.send(notices.place, event, 60.0)
        await asyncio.to_thread(classic.server.control, "set_vm_memory_high_watermark", "absolute", "1")
        try:
            for name in ("e2", "e3"):
                start = time.monotonic()
                with pytest.raises(DeliveryError, match="stopped all publishers"):
                    await sender.send(notices.place, replace_id(event, name), 6.0)
                assert time.monotonic() - start < 6.0 + BEYOND
            await source.acknowledge(await taken(source, 4))

            async def is_empty() -> bool:
                return await classic.waiting(address, "") == 0

            await until(is_empty, "the acknowledgements", PATIENCE)
        finally:
            await asyncio.to_thread(classic.server.control, "set_vm_memory_high_watermark", "0.4")
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                try:
                    await sender.send(notices.place, replace_id(event, "e3"), PATIENCE)
                except DeliveryError:
                    continue
                break
    await sender.close()
    ids = [message.id for message in await classic.read(notices.place)]
    assert set(ids) <= {"e1", "e2", "e3"}
    assert ids.count("e3") == 1, "what was not sent while publishers were stopped is sent once"


def replace_id(event: OutgoingEvent, new: str) -> OutgoingEvent:
    return OutgoingEvent(id=new, task=event.task, body=event.body)


async def test_what_is_wrong_with_a_login_is_said(classic: RabbitRig) -> None:
    address = await classic.declare(fresh_place())
    server, good = classic.server, classic.target.url
    await asyncio.to_thread(server.ask, "PUT", "/api/vhosts/barred")
    unread = {"configure": "^$", "write": "^$", "read": "^other$"}
    await asyncio.to_thread(server.ask, "PUT", "/api/users/reader", {"password": PASSWORD, "tags": ""})
    await asyncio.to_thread(server.ask, "PUT", f"/api/permissions/{classic.type}/reader", unread)
    here = f"127.0.0.1:{server.port}"
    for url, says in (
        (f"amqp://{USER}:wrong-pass@{here}/{classic.type}", "refuses the login of 'shop'"),
        (f"amqp://{USER}:{PASSWORD}@{here}/nowhere", "virtual host 'nowhere'.*NOT_ALLOWED"),
        (f"amqp://{USER}:{PASSWORD}@{here}/barred", "virtual host 'barred'.*broker permissions main"),
        (
            f"amqp://reader:{PASSWORD}@{here}/{classic.type}",
            "ACCESS_REFUSED.*broker permissions amqp:main/orders",
        ),
        (good.replace("amqp://", "amqps://"), "does not speak TLS: write amqp://"),
    ):
        source = source_at(At(classic, url), address)
        with pytest.raises(ConfigError, match=says) as fault:
            await source.open()
        assert PASSWORD not in str(fault.value)
        assert "wrong-pass" not in str(fault.value)
        await source.close()


async def test_a_check_names_the_missing_right_and_what_to_grant(rabbit: RabbitRig) -> None:
    """Without consuming: the message is delivered for the first time behind it."""
    address = await rabbit.declare(fresh_place())
    await rabbit.publish(address.place, drafts(1))
    server = rabbit.server
    await asyncio.to_thread(server.ask, "PUT", "/api/users/barred", {"password": PASSWORD, "tags": ""})
    rights = {"configure": "^$", "write": "^$", "read": "^other$"}
    await asyncio.to_thread(server.ask, "PUT", f"/api/permissions/{rabbit.type}/barred", rights)
    limited = At(rabbit, rabbit.url("barred", PASSWORD))
    read, write = await checked(limited, [address], [address.place])
    assert (read.severity, write.severity) == ("error", "error")
    assert f"the right to read queue {address.place}: `makegood broker permissions {address}`" in read.what
    assert "the right to write to exchange amq.default: `makegood broker permissions main --to" in write.what
    command = [sys.executable, "-m", "makegood", "broker", "check", str(address), "--to", str(address)]
    environment = {**os.environ, "MAKEGOOD_BROKERS_MAIN": limited.target.url}
    outcome = await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False
    )
    assert (outcome.returncode, outcome.stderr) == (1, ""), "no traceback of the client"
    rights = {"configure": "^$", "write": r"^amq\.default$", "read": re.escape(address.place)}
    await asyncio.to_thread(server.ask, "PUT", f"/api/permissions/{rabbit.type}/barred", rights)
    read, write = await checked(limited, [address], [address.place])
    assert (read.severity, write.severity) == ("warning", "ok")
    assert "answers: 401 Unauthorized" in read.what
    assert read.remedy.startswith("rabbitmqctl set_user_tags barred management")
    async with reading(rabbit, address) as source:
        [delivery] = await taken(source, 1)
        assert delivery.count == 1


@pytest.mark.parametrize("name", ["shop=orders", "orders(eu)", "rt-answers.*", """!"$%&'<>[]{}|~"""])
async def test_a_queue_may_have_any_name_that_rabbitmq_takes(rabbit: RabbitRig, name: str) -> None:
    place = f"{fresh_place()}{name}"
    settings = {"durable": True, "arguments": {"x-queue-type": rabbit.type}}
    path = f"/api/queues/{rabbit.type}/{quote(place, safe='')}"
    sender = open_sender(rabbit.target)
    with pytest.raises(MissingPlaceError, match="no such queue"):
        await sender.send(place, OutgoingEvent(id="e1", task="t", body=b"{}"), 60.0)
    await asyncio.to_thread(rabbit.server.ask, "PUT", path, settings)
    await sender.send(place, OutgoingEvent(id="e2", task="t", body=b"{}"), 60.0)
    await sender.close()
    address = address_of(f"amqp:main/{place}", {"amqp"})
    assert "error" not in {each.severity for each in await checked(rabbit, [address], [place])}
    async with reading(rabbit, address) as source:
        assert (await source.backlog()).waiting == 1
        [delivery] = await taken(source, 1)
        await source.pause()
        await source.acknowledge([delivery])
        await nothing_comes(source)


async def test_the_right_to_publish_alone_is_enough_to_send_and_to_be_checked(rabbit: RabbitRig) -> None:
    """RabbitMQ 4.3 does not say to such a user whether the queue is there; one that is missing is named all the same."""
    address = await rabbit.declare(fresh_place())
    server = rabbit.server
    await asyncio.to_thread(server.ask, "PUT", "/api/users/writer", {"password": PASSWORD, "tags": ""})
    rights = {"configure": "^$", "write": r"^amq\.default$", "read": "^$"}
    await asyncio.to_thread(server.ask, "PUT", f"/api/permissions/{rabbit.type}/writer", rights)
    writer = At(rabbit, rabbit.url("writer", PASSWORD))
    (requirement,) = await checked(writer, places=[address.place])
    assert requirement.severity == "ok"
    sender = open_sender(writer.target)
    await sender.send(address.place, OutgoingEvent(id="e1", task="t", body=b"{}"), 60.0)
    with pytest.raises(MissingPlaceError, match="no such queue"):
        await sender.send(fresh_place(), OutgoingEvent(id="e2", task="t", body=b"{}"), 60.0)
    await sender.close()
    assert [message.id for message in await rabbit.read(address.place)] == ["e1"]


async def test_hosts_are_tried_in_turn(classic: RabbitRig) -> None:
    """Nobody listens at the first; at the second listens something else."""
    address = await classic.declare(fresh_place())
    await classic.publish(address.place, drafts(1))
    hosts = f"127.0.0.1:1,127.0.0.1:{classic.server.api},127.0.0.1:{classic.server.port}"
    rig = At(classic, f"amqp://{USER}:{PASSWORD}@{hosts}/{classic.type}")
    async with reading(rig, address) as source:
        assert len(await taken(source, 1)) == 1
    management = quote("http://127.0.0.1:15672", safe="")
    for hosts, says in (
        ("127.0.0.1:1", r": Connect call failed \('127\.0\.0\.1', 1\)"),
        ("127.0.0.1:1,127.0.0.1:2", r"no host answers: 127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: "),
    ):
        absent = source_at(At(classic, f"amqp://{USER}:{PASSWORD}@{hosts}/?management={management}"), address)
        with pytest.raises(BrokerUnavailableError, match=says) as fault:
            await absent.open()
        assert f"{hosts}/?management=http://127.0.0.1:15672" in str(fault.value), "no host is masked"
        assert PASSWORD not in str(fault.value)


async def test_the_management_api_has_hosts_too_and_messages_name_them(classic: RabbitRig) -> None:
    """The first that answers is asked; those that do not are named, with what each said."""
    address = await classic.declare(fresh_place())
    plain = f"amqp://{USER}:{PASSWORD}@127.0.0.1:{classic.server.port}/{classic.type}?management="
    first = At(classic, plain + quote(f"http://127.0.0.1:1,127.0.0.1:{classic.server.api}/", safe=""))
    [requirement] = await checked(first, [address])
    assert requirement.severity == "ok"
    away = At(classic, plain + quote(f"http://127.0.0.1:1,127.0.0.1:{classic.server.port}", safe=""))
    [requirement] = await checked(away, [address])
    assert "management API at http://127.0.0.1:1 does not answer: [Errno 111]" in requirement.what
    # The port of AMQP answers with its own protocol, or hangs up.
    assert f"management API at http://127.0.0.1:{classic.server.port} " in requirement.what
    for wrong in ("127.0.0.1:15672", "ftp://host", "http://"):
        with pytest.raises(ConfigError, match="its parameter management: write http://host:15672 or "):
            source_at(At(classic, plain + quote(wrong, safe="")), address)


async def test_tls_is_verified(classic: RabbitRig) -> None:
    address = await classic.declare(fresh_place())
    await classic.publish(address.place, drafts(1))
    folder = classic.server.folder
    url = f"amqps://{USER}:{PASSWORD}@localhost:{classic.server.tls_port}/{classic.type}"
    with pytest.raises(ConfigError, match=r"certificate of .*\?cafile="):
        await source_at(At(classic, url), address).open()
    with pytest.raises(ConfigError, match="cafile=/nowhere"):
        await source_at(At(classic, f"{url}?cafile=/nowhere"), address).open()
    async with reading(At(classic, f"{url}?cafile={folder}/authority.pem"), address) as source:
        assert len(await taken(source, 1)) == 1
    by_address = url.replace("localhost", "127.0.0.1") + f"?cafile={folder}/authority.pem"
    with pytest.raises(ConfigError, match="certificate"):
        await source_at(At(classic, by_address), address).open()


@pytest.mark.parametrize("parameter", ["no_verify_ssl=1", "heartbeat=0", "sslmode=disable"])
async def test_parameters_of_the_client_are_not_taken(parameter: str) -> None:
    """The client would read them from the URL: one switches the verification of certificates off."""
    with pytest.raises(ConfigError, match=f"no parameter '{parameter.partition('=')[0]}'"):
        open_sender(Target("amqp", "main", f"amqps://a:{PASSWORD}@host/?{parameter}"))


async def test_queues_that_lose_messages_are_named(classic: RabbitRig) -> None:
    place = fresh_place()
    warnings = {
        "message-ttl of 60000 ms deletes": {"x-message-ttl": 60000},
        "expires of 600000 ms deletes": {"x-expires": 600000},
        "drops its oldest": {"x-max-length": 10},
    }
    for says, arguments in warnings.items():
        address = await classic.declare_with(place, arguments)
        source = source_at(classic, address)
        [requirement] = await source.open()
        assert requirement.severity == "warning"
        assert says in requirement.what
        assert not source.keeps_refusals
        await source.close()
    await classic.declare_with(place, {"x-max-length": 10, "x-overflow": "reject-publish"})
    source = source_at(classic, address_of(f"amqp:main/{place}", {"amqp"}))
    assert [item.severity for item in await source.open()] == ["ok"]
    await source.close()
    await classic.delete(place)
    async with classic.channel() as channel:
        await channel.queue_declare(place, durable=False, auto_delete=True)
    with pytest.raises(ConfigError, match="deleted when its last reader leaves"):
        await source.open()


async def test_a_quorum_queue_that_drops_messages_is_refused(quorum: RabbitRig) -> None:
    """By its own limit of deliveries, or a policy's; not if it has a dead-letter exchange."""
    place = fresh_place()
    address = await quorum.declare_with(place, {"x-delivery-limit": 3})
    with pytest.raises(ConfigError, match=r"left 3 times.*delivery-limit") as refusal:
        await source_at(quorum, address).open()
    assert f"'^{place}$'" in str(refusal.value)
    [error] = await checked(quorum, [address])
    assert (error.severity, error.remedy in str(refusal.value)) == ("error", True)
    await quorum.declare_with(
        place,
        {"x-delivery-limit": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{place}.dead"},
    )
    with pytest.raises(ConfigError, match=r"left 3 times.*leads to no queue.*bind a queue"):
        await source_at(quorum, address).open()
    await quorum.declare_with(f"{place}.dead")
    async with reading(quorum, address) as source:
        assert source.keeps_refusals
    await quorum.declare_with(place)
    policy = {"pattern": f"^{place}$", "definition": {"delivery-limit": 5}, "apply-to": "queues"}
    path = f"/api/policies/{quorum.type}/limited"
    await asyncio.to_thread(quorum.server.ask, "PUT", path, policy)
    try:
        source = source_at(quorum, address)

        async def is_refused() -> bool:
            try:
                await source.open()
            except ConfigError as refusal:
                return "left 5 times" in str(refusal)
            await source.close()
            return False

        await until(is_refused, "the policy", PATIENCE)
    finally:
        await asyncio.to_thread(quorum.server.ask, "DELETE", path)


async def test_who_keeps_refusals_without_the_management_api_is_the_address_to_say(
    classic: RabbitRig,
) -> None:
    """Nothing is dropped because of an exchange that cannot be seen."""
    address = await classic.declare(fresh_place())
    blind = At(classic, f"amqp://{USER}:{PASSWORD}@127.0.0.1:{classic.server.port}/{classic.type}")
    source = source_at(blind, address)
    [requirement] = await source.open()
    assert requirement.severity == "warning"
    assert "names no management API" in requirement.what
    assert not source.keeps_refusals
    await source.close()
    assert "where its dead letters go, was not checked" in requirement.what
    address_that_says = replace(address, parameters={DEAD_LETTERS: "broker"})
    async with reading(blind, address_that_says) as source:
        assert source.keeps_refusals
    plain = await classic.declare_with(fresh_place())
    with pytest.raises(ConfigError, match="the queue has no dead-letter exchange"):
        await source_at(classic, replace(plain, parameters={DEAD_LETTERS: "broker"})).open()
    with pytest.raises(ConfigError, match="must be broker"):
        source_at(classic, replace(plain, parameters={DEAD_LETTERS: "yes"}))
    down = quote("http://127.0.0.1:1", safe="")
    source = source_at(At(classic, f"{blind.target.url}?management={down}"), address)
    [requirement] = await source.open()
    assert "management API at http://127.0.0.1:1 does not answer: " in requirement.what
    assert "correct management= in the URL" in requirement.remedy
    await source.close()


async def test_dead_letters_that_reach_no_queue_are_named_and_the_store_keeps_refusals(
    classic: RabbitRig,
) -> None:
    """RabbitMQ drops them without a word: the exchange is absent, or has no queue for the routing key."""
    place, exchange, path = fresh_place(), fresh_place(), f"/api/bindings/{classic.type}/e"

    async def bind(routing_key: str, source: str = exchange, destination: str = f"q/{place}.dead") -> None:
        body = {"routing_key": routing_key}
        await asyncio.to_thread(classic.server.ask, "POST", f"{path}/{source}/{destination}", body)

    async def declare(name: str, kind: str, **arguments: str) -> None:
        async with classic.channel() as channel:
            await channel.exchange_delete(name)
            await channel.exchange_declare(name, exchange_type=kind, durable=True, arguments=arguments)

    async def answered(address: BrokerAddress) -> tuple[str, str]:
        source = source_at(classic, address)
        [requirement] = await checked(classic, [address])
        if requirement.severity != "error":
            assert await source.open() == [requirement], "the start sees what the check sees"
            says_broker = address.parameters.get(DEAD_LETTERS) == "broker"
            assert source.keeps_refusals == (requirement.severity == "ok" or says_broker)
            await source.close()
        return requirement.severity, requirement.what

    await classic.declare_with(f"{place}.dead")
    arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "dead.orders"}
    address = await classic.declare_with(place, arguments)
    severity, what = await answered(address)
    assert (severity, f"'{exchange}' does not exist" in what) == ("warning", True)
    to_broker = replace(address, parameters={DEAD_LETTERS: "broker"})
    assert (await answered(to_broker))[0] == "error"
    with pytest.raises(ConfigError, match=r"does not exist.*declare it and bind a queue"):
        await source_at(classic, to_broker).open()
    for kind, elsewhere, there in (
        ("direct", "other", "dead.orders"),
        ("topic", "dead.*.eu", "dead.#"),
        ("fanout", None, ""),
    ):
        await declare(exchange, kind)
        if elsewhere is not None:
            await bind(elsewhere)
        severity, what = await answered(address)
        assert (severity, "leads to no queue for the routing key 'dead.orders'" in what) == ("warning", True)
        await bind(there)
        assert (await answered(address))[0] == "ok"
        await _refuse_one(classic, address, kind)
    await declare(exchange, "direct", **{"alternate-exchange": f"{exchange}.rest"})
    await declare(f"{exchange}.rest", "fanout")
    assert "leads to no queue" in (await answered(address))[1]
    await bind("", f"{exchange}.rest")
    assert (await answered(address))[0] == "ok"
    await declare(exchange, "headers")
    await bind("")
    severity, what = await answered(address)
    assert (severity, "depends on each message" in what) == ("warning", True)
    assert (await answered(to_broker))[0] == "warning"


async def _refuse_one(rabbit: RabbitRig, address: BrokerAddress, prefix: str) -> None:
    """Refuse a message, and wait until it is where the check says that dead letters go."""
    await rabbit.publish(address.place, drafts(1, prefix))
    async with reading(rabbit, address) as source:
        [delivery] = await taken(source, 1)
        await source.refuse(delivery, "it is no order")

        async def arrives() -> bool:
            return delivery.body in await rabbit.dead_letters(address.place)

        await until(arrives, "the dead letter", PATIENCE)


async def test_dead_letters_keep_the_key_that_a_message_came_with(classic: RabbitRig) -> None:
    """Without a routing key of its own: each key by which messages come needs a queue."""
    place = fresh_place()
    await classic.declare_with(f"{place}.dead")
    address = await classic.declare_with(place, {"x-dead-letter-exchange": "amq.topic"})
    async with classic.channel() as channel:
        await channel.queue_bind(place, "amq.direct", f"{place}.new")
        [requirement] = await checked(classic, [address])
        assert f"for the routing key '{place}', '{place}.new'" in requirement.what
        await channel.queue_bind(f"{place}.dead", "amq.topic", f"{place}.*")
        [requirement] = await checked(classic, [address])
        assert (requirement.severity, f"for the routing key '{place}', so" in requirement.what) == (
            "warning",
            True,
        )
        await channel.queue_bind(f"{place}.dead", "amq.topic", f"{place}.#")
        [requirement] = await checked(classic, [address])
        assert requirement.severity == "ok"
    address = await classic.declare_with(place, {"x-dead-letter-exchange": ""})
    [requirement] = await checked(classic, [address])
    assert (requirement.severity, "return to it" in requirement.what) == ("warning", True)


async def test_a_full_queue_is_tried_again_later(classic: RabbitRig) -> None:
    place = fresh_place()
    await classic.declare_with(place, {"x-max-length": 1, "x-overflow": "reject-publish"})
    sender = open_sender(classic.target)
    event = OutgoingEvent(id="e", task="t", body=b"{}")
    await sender.send(place, replace_id(event, "e1"), 60.0)
    with pytest.raises(DeliveryError, match="queue is full") as fault:
        await sender.send(place, replace_id(event, "e2"), 60.0)
    assert not isinstance(fault.value, RefusedTargetError)
    await classic.read(place)
    await sender.send(place, replace_id(event, "e2"), 60.0)
    await sender.close()


@pytest.mark.parametrize(
    ("correlation_id", "value"),
    [("", "task-1"), ("o-1", "o-1"), ("é" * 127, "é" * 127), ("é" * 128, "task-1")],
)
async def test_a_notice_is_persistent_and_has_the_correlation_id_of_the_order_or_its_task(
    rabbit: RabbitRig, correlation_id: str, value: str
) -> None:
    """A property of AMQP has room for 255 bytes; the event itself always has both."""
    place = (await rabbit.declare(fresh_place())).place
    sender = open_sender(rabbit.target)
    event = OutgoingEvent(id="e1", task="task-1", body=b"{}", correlation_id=correlation_id)
    await sender.send(place, event, 60.0)
    await sender.close()
    async with rabbit.channel() as channel:
        properties = (await channel.basic_get(place)).header.properties
    assert (properties.delivery_mode, properties.message_id) == (2, "e1")
    assert (properties.correlation_id, properties.app_id) == (value, "makegood")


async def test_one_event_goes_to_two_places_at_once(classic: RabbitRig) -> None:
    """The client knows a returned message by its id alone: the one that has no queue is refused, and not the other."""
    place = (await classic.declare(fresh_place())).place
    sender = open_sender(classic.target)
    event = OutgoingEvent(id="same", task="t", body=b"{}")
    outcomes = await asyncio.gather(
        *(sender.send(name, event, 60.0) for name in (place, f"{place}-missing", place, f"{place}-none")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), MissingPlaceError] * 2
    await sender.close()


async def test_the_permissions_are_enough_and_no_more(classic: RabbitRig) -> None:
    """They are the rights of this rig's user, as commands; a name is not a pattern."""
    text = permissions(classic.target, ["orders.eu", "it's"], ["notices"])
    assert f"set_permissions -p 'classic' '{USER}' '^$' '^amq\\.default$' '^(orders\\.eu|it'\\''s)$'" in text
    assert f"set_user_tags '{USER}' management" in text
    assert PASSWORD not in text
    bare = permissions(Target("amqp", "main", "amqp://reader@host/"), ["orders"], [])
    warning, command = bare.splitlines()
    assert warning == (
        "# This replaces all rights of the user in this virtual host: do not run it for guest or an administrator."
    )
    assert command == "rabbitmqctl set_permissions -p '/' 'reader' '^$' '^$' '^(orders)$'"


async def test_a_reader_that_stops_leaves_nothing_behind(rabbit: RabbitRig) -> None:
    """Closed in the middle of a take: all goes to the next reader."""
    address = await rabbit.declare(fresh_place())
    await rabbit.publish(address.place, drafts(20))
    async with reading(rabbit, address) as source:
        await taken(source, 3, limit=3)
    async with reading(rabbit, address, "two") as source:
        again = await taken(source, 20)
        assert bodies(again) == [draft.body for draft in drafts(20)]
        await source.acknowledge(again)
        await nothing_comes(source)
