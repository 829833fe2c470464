"""What NATS JetStream and its client do that others would not guess, on Debian's server and on the newest one."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats import errors as failed
from nats.aio.client import Client
from nats.js import errors as refused

from examples.orders.free_port import free_port
from makegood.base.nats_client import NatsClient
from makegood.brokers import (
    Backlog,
    BrokerAddress,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Sender,
    Source,
    Target,
    UnsentError,
    address_of,
    check,
    open_sender,
    open_source,
)
from makegood.brokers import nats as module
from makegood.brokers.nats_connection import NatsConnection, servers_of
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from tests.brokers.reading import (
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
from tests.brokers.rigs.nats import ADMIN, PASSWORD, USER, NatsRig, debian, pypi
from tests.brokers.rigs.private_server import PrivateProgram
from tests.waiting import until

GROUP = "makegood-shop-orders"


@pytest.fixture(params=["nats-2.9", "nats"])
def nats(request: pytest.FixtureRequest, rigs: Callable[[str], Rig]) -> NatsRig:
    """Each of the two servers."""
    rig = rigs(request.param)
    assert isinstance(rig, NatsRig)
    return rig


async def stream(rig: NatsRig, **config: Any) -> BrokerAddress:
    """Make a stream without a consumer, and return its address."""
    place = fresh_place()
    await rig.declare_with(place, **config)
    return address_of(f"nats:main/{place}", {"nats"})


@asynccontextmanager
async def sending(rig: NatsRig) -> AsyncIterator[Sender]:
    """An open sender."""
    sender = open_sender(rig.target)
    try:
        yield sender
    finally:
        await sender.close()


def event(number: int = 0, body: bytes = b"{}") -> OutgoingEvent:
    """Return an event of a task."""
    return OutgoingEvent(f"task-1/{number}", "task-1", body)


async def count(rig: NatsRig, place: str) -> int:
    """Return how many messages a stream has."""
    async with rig.admin() as js:
        return int((await js.stream_info(place)).state.messages)


async def test_the_consumer_is_created_as_orders_need_it(nats: NatsRig) -> None:
    """It delivers all, each until it is acknowledged; the next start finds it."""
    address = await stream(nats)
    await nats.publish(address.place, drafts(2))
    async with reading(nats, address) as source:
        assert bodies(await taken(source, 2)) == [draft.body for draft in drafts(2)]
    async with nats.admin() as js:
        config = (await js.consumer_info(address.place, GROUP)).config
    assert (config.ack_policy, config.max_deliver, config.deliver_policy) == ("explicit", -1, "all")
    assert config.ack_wait == module.ACK_WAIT
    assert (config.max_ack_pending or 0) >= 1000
    async with reading(nats, address) as source:
        assert len(await taken(source, 2)) == 2


async def test_only_messages_of_the_subject_are_taken(nats: NatsRig) -> None:
    place = fresh_place()
    await nats.declare_with(place, subjects=[f"{place}.*"])
    await nats.publish(f"{place}.new", drafts(1, "new"))
    await nats.publish(f"{place}.old", drafts(1, "old"))
    async with reading(nats, address_of(f"nats:main/{place}?subject={place}.new", {"nats"})) as source:
        assert bodies(await taken(source, 1)) == [drafts(1, "new")[0].body]
        await nothing_comes(source)
    with pytest.raises(ConfigError, match=r"does not filter by the subject .*\.old"):
        await source_at(nats, address_of(f"nats:main/{place}?subject={place}.old", {"nats"})).open()


async def test_a_subject_that_the_stream_does_not_have_is_a_warning(nats: NatsRig) -> None:
    place = fresh_place()
    await nats.declare_with(place, subjects=[f"{place}.*", f"{place}.eu.>"])
    for subject, is_there in ((f"{place}.new", True), ("*.new", True), (f"{place}.eu.a.b", True), (f"{place}.new.b", False), ("new", False)):  # fmt: skip
        address = address_of(f"nats:main/{place}?subject={subject}", {"nats"})
        warnings = [each.what for each in await checked(nats, [address]) if "nothing comes" in each.what]
        assert bool(warnings) is not is_there, subject


async def test_a_deleted_consumer_is_no_quiet_stream(nats: NatsRig) -> None:
    """The server may say nothing at all to a request for messages of a consumer that is gone."""
    address = await stream(nats)
    async with reading(nats, address) as source:
        assert await source.take(10, 0.2) == []
        waiting = asyncio.create_task(source.take(10, 2.0))
        async with nats.admin() as js:
            await js.delete_consumer(address.place, GROUP)
        with pytest.raises(BrokerUnavailableError, match="gone"):
            await _taken_twice(source, waiting)
        await opened(source)
        await nats.publish(address.place, drafts(1))
        assert len(await taken(source, 1)) == 1


async def _taken_twice(source: Source, waiting: "asyncio.Task[Any]") -> None:
    """A take that was waiting may have ended before the server said that the consumer is gone."""
    await waiting
    await source.take(10, 1.0)


async def test_silence_to_a_request_is_looked_into(nats: NatsRig) -> None:
    """Debian's server does not answer at all when nobody was waiting as the consumer was deleted."""
    address = await stream(nats)
    async with reading(nats, address) as source:
        assert await source.take(10, 0.0) == []
        async with nats.admin() as js:
            await js.delete_consumer(address.place, GROUP)
        with pytest.raises(BrokerUnavailableError, match="gone"):
            await source.take(10, 0.5)


async def test_what_a_reader_held_is_given_back_when_it_closes(nats: NatsRig) -> None:
    """Long before the consumer's ack_wait is over."""
    address = await stream(nats)
    await nats.publish(address.place, drafts(2))
    async with reading(nats, address) as source:
        await taken(source, 2)
    async with reading(nats, address, "two") as source:
        assert bodies(await source.take(10, module.ACK_WAIT / 3)) == [draft.body for draft in drafts(2)]


async def test_a_full_consumer_is_no_fault(nats: NatsRig) -> None:
    """It delivers nothing while so many are unacknowledged (max_ack_pending), and says what a quiet stream says."""
    address = await stream(nats)
    async with nats.admin() as js:
        await js.add_consumer(address.place, durable_name="two", ack_policy="explicit", max_ack_pending=2)
    await nats.publish(address.place, drafts(3))
    async with reading(nats, address_of(f"{address}?consumer=two", {"nats"})) as source:
        first = await taken(source, 2)
        assert await source.take(10, 0.5) == []
        await source.acknowledge(first)
        assert bodies(await taken(source, 1)) == [drafts(3)[2].body]


async def test_what_is_held_is_not_given_to_others(nats: NatsRig) -> None:
    """For more than two spans of the consumer's ack_wait, while the store is away; it costs no delivery."""
    address = await stream(nats)
    async with nats.admin() as js:
        await js.add_consumer(address.place, durable_name="brief", ack_policy="explicit", ack_wait=8)
    brief = address_of(f"{address}?consumer=brief", {"nats"})
    await nats.publish(address.place, drafts(3))
    async with reading(nats, brief) as source, reading(nats, brief, "two") as other:
        deliveries = await taken(source, 2, limit=2)
        await source.pause()
        assert bodies(await taken(other, 1)) == [drafts(3)[2].body]
        assert await other.take(10, 17.0) == []
        await source.acknowledge(deliveries)
        assert await nats.waiting(brief, "") == 1


async def test_a_message_longer_than_a_batch_comes_alone(
    nats: NatsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    monkeypatch.setattr(NatsConnection, "max_payload", 0)
    address = await stream(nats)
    long = [module_draft(letter * 300) for letter in ("a", "b")]
    await nats.publish(address.place, [*long, *drafts(2)])
    async with reading(nats, address) as source:
        deliveries = await taken(source, 4)
        assert bodies(deliveries) == [draft.body for draft in (*long, *drafts(2))]
        assert {delivery.count for delivery in deliveries} == {1}


def module_draft(text: str) -> Any:
    """Return a message with a body."""
    return drafts(1)[0].__class__(text.encode(), text[0])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"storage": "memory"}, "kept in memory"),
        ({"max_age": 60}, "deletes messages by max_age"),
        ({"max_msgs": 10}, "deletes messages by max_msgs"),
        ({"retention": "interest"}, "for which a consumer exists"),
        ({"num_replicas": 1}, "one replica"),
    ],
    ids=str,
)
async def test_a_stream_that_can_lose_orders_is_a_warning(
    nats: NatsRig, config: dict[str, Any], words: str
) -> None:
    address = await stream(nats, **config)
    async with reading(nats, address) as source:
        requirements = await source.open()
    [warning] = [one for one in requirements if words in one.what]
    assert (warning.severity, bool(warning.remedy)) == ("warning", True)


async def test_a_work_queue_is_read_like_any_other_stream(nats: NatsRig) -> None:
    address = await stream(nats, retention="workqueue")
    await nats.publish(address.place, drafts(3))
    async with reading(nats, address) as source:
        await source.acknowledge(await taken(source, 3))
        await until(lambda: _is_empty(nats, address.place), "the work queue to be empty")


async def _is_empty(rig: NatsRig, place: str) -> bool:
    return await count(rig, place) == 0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"max_deliver": 5}, "gives up a message after 5 deliveries"),
        ({"ack_policy": "none", "deliver_subject": "push.here"}, "is a push consumer"),
        ({"ack_policy": "all"}, "ack policy 'all'"),
        ({"headers_only": True}, "headers without bodies"),
    ],
    ids=str,
)
async def test_a_consumer_that_would_lose_orders_is_refused(
    nats: NatsRig, config: dict[str, Any], words: str
) -> None:
    address = await stream(nats)
    async with nats.admin() as js:
        await js.add_consumer(address.place, durable_name="theirs", **{"ack_policy": "explicit", **config})
    source = source_at(nats, address_of(f"{address}?consumer=theirs", {"nats"}))
    with pytest.raises(ConfigError, match=words):
        await source.open()


async def test_a_missing_right_is_named_at_once(nats: NatsRig) -> None:
    """The server only says so beside the call, which nobody answers."""
    address = await stream(nats)
    async with reading(nats, address) as source:
        nats.write(PASSWORD)
        text = (nats.server.folder / "server.conf").read_text()
        (nats.server.folder / "server.conf").write_text(text.replace('"$JS.API.CONSUMER.MSG.NEXT.*.*",', ""))
        await asyncio.to_thread(nats.server.restart)
        try:
            with contextlib.suppress(BrokerUnavailableError):  # the server was away
                await source.take(1, 0.0)
            await opened(source)
            start = time.monotonic()
            right = re.escape(f'allow its user to publish to "$JS.API.CONSUMER.MSG.NEXT.{address.place}.')
            with pytest.raises(ConfigError, match=f"{right}.*broker permissions {address}`"):
                await source.take(10, 2 * PATIENCE)
            assert time.monotonic() - start < PATIENCE
        finally:
            nats.write(PASSWORD)
            await asyncio.to_thread(nats.server.restart)


async def test_a_check_names_missing_rights_and_takes_nothing(nats: NatsRig) -> None:
    address = await nats.declare(fresh_place())
    await nats.publish(address.place, drafts(1))
    assert "error" not in {one.severity for one in await checked(nats, [address])}
    configuration = nats.server.folder / "server.conf"
    text = configuration.read_text()
    try:
        for right in ("$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.ACK.*.>", "$JS.API.STREAM.INFO.*"):
            begin = right.split("*")[0] + address.place
            configuration.write_text(text.replace(f'"{right}",', "").replace(f'"{right}"', '"none"'))
            await asyncio.to_thread(nats.server.restart)
            errors = [one.what for one in await checked(nats, [address]) if one.severity == "error"]
            assert len(errors) == 1, errors
            assert f'allow its user to publish to "{begin}' in errors[0]
    finally:
        nats.write(PASSWORD)
        await asyncio.to_thread(nats.server.restart)
    async with reading(nats, address) as source:
        [delivery] = await taken(source, 1)
        assert delivery.count == 1


async def test_the_oldest_waiting_message_has_an_age(nats: NatsRig) -> None:
    """Of what this process holds, else of what the stream has behind the last acknowledgement; unknown without the right."""
    address = await nats.declare(fresh_place())
    await nats.publish(address.place, drafts(1))
    start = time.time()
    async with reading(nats, address) as source:
        assert (await source.backlog()).oldest is not None
        [first] = await taken(source, 1)
        assert first.sent_at is not None

        async def is_older() -> bool:
            least = time.time() - (first.sent_at or 0.0)
            oldest = (await source.backlog()).oldest
            assert oldest is not None
            assert least - 1.0 <= oldest <= time.time() - (first.sent_at or 0.0) + 1.0
            return oldest >= 1.0

        await until(is_older, "a second of age", PATIENCE)
        await source.acknowledge([first])
        assert await source.backlog() == Backlog(0)
        await nats.publish(address.place, drafts(2, "new"))
        second, _ = await taken(source, 2)
        await source.acknowledge([second])
        oldest = (await source.backlog()).oldest
        assert oldest is not None
        assert oldest < time.time() - start + 1.0
    configuration = nats.server.folder / "server.conf"
    configuration.write_text(configuration.read_text().replace('"$JS.API.STREAM.MSG.GET.*",', ""))
    await asyncio.to_thread(nats.server.restart)
    try:
        async with reading(nats, address) as source:
            assert await source.backlog() == await source.backlog() == Backlog(1)
    finally:
        nats.write(PASSWORD)
        await asyncio.to_thread(nats.server.restart)


async def test_a_password_of_any_characters_is_encoded_in_the_url(nats: NatsRig) -> None:
    address = await stream(nats)
    await nats.change_password("p@s/w:r d%")
    try:
        url = f"nats://{USER}:p%40s%2Fw%3Ar%20d%25@127.0.0.1:{nats.server.port}"
        source = open_source(address, {"main": Target("nats", "main", url)}, Reader(GROUP, "one"))
        await source.open()
        await source.close()
    finally:
        await nats.grant()


# -- the sender ----------------------------------------------------------------------------------------------


async def test_a_repeated_event_is_kept_once(nats: NatsRig) -> None:
    """Within the stream's duplicate window."""
    address = await stream(nats)
    async with sending(nats) as sender:
        for _ in range(3):
            await sender.send(address.place, event(), 60)
        await sender.send(address.place, event(1), 60)
    assert [one.id for one in await nats.read(address.place)] == ["task-1/0", "task-1/1"]


async def test_an_answer_of_something_else_is_no_confirmation(nats: NatsRig) -> None:
    """A program that answers on the subject is heard before the stream, or instead of it."""
    place = fresh_place()
    client = Client()
    await client.connect(f"nats://admin:{ADMIN}@127.0.0.1:{nats.server.port}")

    async def answer(message: Any) -> None:
        await client.publish(message.reply, b"thank you")

    try:
        await client.subscribe(place, cb=answer)
        await client.flush()
        async with sending(nats) as sender:
            with pytest.raises(DeliveryError, match="something else than a stream"):
                await sender.send(place, event(), 60)
    finally:
        await client.close()


async def test_nothing_is_delivered_after_an_outage_that_was_refused_in_it(nats: NatsRig) -> None:
    """A client that reconnects by itself would deliver it late."""
    address = await stream(nats)
    async with sending(nats) as sender:
        await sender.send(address.place, event(0), 60)
        await asyncio.to_thread(nats.kill)
        start = time.monotonic()
        for number in range(1, 6):
            with pytest.raises(DeliveryError) as error:
                await sender.send(address.place, event(number), PATIENCE)
            assert PASSWORD not in str(error.value)
        assert time.monotonic() - start < PATIENCE / 2, "it waits for no broker that is gone"
        await asyncio.to_thread(nats.start)
        await sender.send(address.place, event(6), 60)
    assert [one.id for one in await nats.read(address.place)] == ["task-1/0", "task-1/6"]


class Cluster:
    """Three servers."""

    def __init__(self, binary: str) -> None:
        routes = [free_port() for _ in range(3)]
        self.servers = [PrivateProgram("nats", self._words) for _ in routes]
        self._binary = binary
        urls = ", ".join(f"nats://127.0.0.1:{route}" for route in routes)
        for server, route in zip(self.servers, routes, strict=True):
            (server.folder / "server.conf").write_text(
                f'server_name: "{server.port}"\nlisten: "127.0.0.1:{server.port}"\njetstream {{ store_dir: "{server.folder}/data" }}\n'
                f'cluster {{ name: "test", listen: "127.0.0.1:{route}", routes: [{urls}] }}\n'
            )

    def _words(self, folder: Path, _: int) -> list[str]:
        return [self._binary, "-c", str(folder / "server.conf")]

    def url(self, *, last: PrivateProgram) -> str:
        """The URL of all servers, with this one at its end."""
        servers = sorted(self.servers, key=lambda server: server is last)
        return "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)

    async def leader(self, place: str) -> PrivateProgram:
        """Make a stream with three replicas, and return the server that leads it."""
        client = Client()
        await client.connect([f"nats://127.0.0.1:{server.port}" for server in self.servers])
        js = client.jetstream(timeout=20)

        async def is_made() -> bool:
            with contextlib.suppress(refused.APIError, failed.Error):
                await js.add_stream(name=place, subjects=[place], num_replicas=3)
                return True
            return False

        await until(is_made, "the cluster to make a stream", PATIENCE)
        info = await js.stream_info(place)
        await client.close()
        assert info.cluster is not None
        return next(server for server in self.servers if str(server.port) == info.cluster.leader)


@pytest.mark.parametrize("find", [debian, pypi])
async def test_no_notice_is_given_up_while_a_stream_elects_a_leader(find: Callable[[], str]) -> None:
    """Nobody answers at its subject then, for longer than a send waits."""
    try:
        cluster = Cluster(find())
    except ConfigError as reason:
        pytest.skip(f"a cluster of NATS was NOT tested: {reason}")
    place, faults = fresh_place(), list[DeliveryError]()
    with ExitStack() as stack:
        for server in cluster.servers:
            stack.callback(server.close)
            server.launch()
        for server in cluster.servers:
            await asyncio.to_thread(server.ready)
        leader = await cluster.leader(place)
        sender = open_sender(Target("nats", "main", cluster.url(last=leader)))
        try:
            await sender.send(place, event(0), PATIENCE)
            leader.kill()

            async def is_sent() -> bool:
                try:
                    await sender.send(place, event(1), 5)
                except DeliveryError as fault:
                    faults.append(fault)
                    return isinstance(fault, RefusedTargetError)
                return True

            await until(is_sent, "the stream to have another leader", PATIENCE)
            assert not any(isinstance(fault, RefusedTargetError) for fault in faults), faults
        finally:
            await sender.close()


async def test_an_event_that_is_too_long_with_its_headers_breaks_no_connection(nats: NatsRig) -> None:
    """The server counts headers, too, and hangs up on a longer one."""
    address = await stream(nats)
    async with sending(nats) as sender:
        await sender.send(address.place, event(0), 60)
        for size in (1 << 20, (1 << 20) - 50, 3 << 20):
            with pytest.raises(RefusedTargetError, match="max_payload"):
                await sender.send(address.place, event(1, b"x" * size), 60)
        await sender.send(address.place, event(2, b"x" * ((1 << 20) - 300)), 60)
    assert await count(nats, address.place) == 2


async def test_a_full_stream_is_tried_again_and_a_small_one_is_not(nats: NatsRig) -> None:
    """What is refused for a limit of the stream was surely not stored."""
    full = [
        await stream(nats, discard="new", **limits)
        for limits in (
            {"max_msgs": 1},
            {"max_bytes": 300},
            {"max_msgs_per_subject": 1, "discard_new_per_subject": True},
        )
    ]
    small = await stream(nats, max_msg_size=100)
    async with sending(nats) as sender:
        for address in full:
            await sender.send(address.place, event(0), 60)
            with pytest.raises(UnsentError, match=r"maximum .* exceeded"):
                await sender.send(address.place, event(1, b"x" * 200), 60)
        with pytest.raises(RefusedTargetError, match="message size exceeds"):
            await sender.send(small.place, event(1, b"x" * 500), 60)


async def test_a_subject_without_a_right_is_refused_and_holds_up_no_other(nats: NatsRig) -> None:
    place = fresh_place()
    await nats.declare_with(place, subjects=[place, f"{place}.more"])
    async with sending(nats) as sender:
        results = await asyncio.gather(
            *(sender.send(f"{place}.more" if n % 2 else place, event(n), 60) for n in range(8)), return_exceptions=True
        )  # fmt: skip
    assert [type(result) for result in results] == [type(None), UnsentError] * 4
    assert "broker permissions" in str(results[1])
    assert await count(nats, place) == 4


async def test_what_a_sender_needs_is_checked(nats: NatsRig) -> None:
    good = await stream(nats)
    mute = await stream(nats, no_ack=True)
    of_kept = await checked(nats, places=[good.place])
    [error] = [one for one in await checked(nats, places=[mute.place]) if one.severity == "error"]
    [missing] = await checked(nats, places=["nowhere"])
    assert "error" not in {one.severity for one in of_kept}
    assert "no_ack" in error.what
    assert (missing.severity, missing.what) == ("error", "No stream has the subject nowhere")


# -- URLs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nats://a:b@one,c:d@two", "two logins"),
        ("nats://a:b,c@one", "two logins"),
        ("nats://one/orders", "has a path"),
        ("nats://one?replicas=3", "there is no parameter 'replicas'"),
        ("nats://one?creds=/no/such", "cannot be read"),
        (f"nats://one?creds={__file__}", "without the JWT and the seed of a user"),
        ("tls://one?sslrootcert=/no/such", "sslrootcert=/no/such cannot be used"),
        ("nats://", "a host is missing"),
    ],
)
async def test_urls_that_nats_does_not_have_are_refused(url: str, words: str) -> None:
    target = Target("nats", "main", url)
    with pytest.raises(ConfigError, match=words) as error:
        open_sender(target)
    assert "b," not in str(error.value)
    with pytest.raises(ConfigError, match=words):
        await check(target, [], ["notices"], Reader("g", "one"))


def test_logins_and_servers_of_urls() -> None:
    servers, options = servers_of(Target("nats", "main", "nats://me:a%40b@one:4222,two"))
    assert (servers, options) == (["nats://one:4222", "nats://two"], {"user": "me", "password": "a@b"})
    assert servers_of(Target("nats", "main", "nats://to%2Fken@one"))[1] == {"token": "to/ken"}


async def test_no_password_goes_to_a_server_without_tls() -> None:
    """nats-py would send it in the clear, although the URL says tls://."""
    received, end = bytearray(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true,"auth_required":true}\r\n'
        )
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1000):
                received.extend(chunk)
                if b"PING" in chunk:
                    writer.write(b"PONG\r\n")
        writer.close()
        end.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sender = open_sender(Target("nats", "main", f"tls://me:{PASSWORD}@127.0.0.1:{port}"))
    try:
        with pytest.raises(DeliveryError, match="offers no TLS"):
            await sender.send("orders", event(), 60)
    finally:
        await sender.close()
        await asyncio.wait_for(end.wait(), 30)
        server.close()
        await server.wait_closed()
    assert bytes(received) == b""


async def test_a_connection_keeps_nothing_of_subjects_that_were_sent_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Submitters choose them, perhaps one for each task."""

    async def answer(*_: Any, **__: Any) -> object:
        return object()

    monkeypatch.setattr(NatsClient, "request", answer)
    link = NatsConnection(Target("nats", "main", "nats://127.0.0.1:9"), "nats:main")
    before = repr(vars(link))
    await link.request("orders.one", b"", timeout=PATIENCE)
    assert repr(vars(link)).replace(str(link.answered_at), "0.0") == before
