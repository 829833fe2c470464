"""What Redis Streams and their client do that others would not guess, on Debian's Redis and on Valkey."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from makegood.brokers import (
    BrokerAddress,
    Delivery,
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
from makegood.brokers import redis as module
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from makegood.testing.forwarder import Forwarder
from tests.brokers.reading import bodies, checked, drafts, fresh_place, opened, reading, source_at, taken
from tests.brokers.rig import Rig
from tests.brokers.rigs.redis import IDLE, PASSWORD, USER, RedisRig
from tests.waiting import until

GROUP = "makegood-shop-orders"


@pytest.fixture(params=["redis", "valkey"])
def redis(request: pytest.FixtureRequest, rigs: Callable[[str], Rig]) -> RedisRig:
    """Each of the two servers."""
    rig = rigs(request.param)
    assert isinstance(rig, RedisRig)
    return rig


def behind(way: Forwarder) -> Target:
    """Return the target behind a forwarder."""
    return Target("redis", "main", f"redis://{USER}:{PASSWORD}@127.0.0.1:{way.port}/0")


@asynccontextmanager
async def sending(target: Target) -> AsyncIterator[Sender]:
    """An open sender."""
    sender = open_sender(target)
    try:
        yield sender
    finally:
        await sender.close()


@asynccontextmanager
async def setting(rig: RedisRig, **values: object) -> AsyncIterator[Any]:
    """An administrator's client, while the server has other settings."""
    async with rig.admin() as client:
        before = {name: (await client.config_get(name))[name] for name in values}
        for name, value in values.items():
            await client.config_set(name, value)
        try:
            yield client
        finally:
            for name, value in before.items():
                await client.config_set(name, value)


def event(number: int = 0, body: bytes = b"{}") -> OutgoingEvent:
    """Return an event of a task."""
    return OutgoingEvent(f"task-1/{number}", "task-1", body)


async def pending(rig: RedisRig, place: str) -> dict[str, int]:
    """Return for each consumer how many entries are pending for it."""
    async with rig.admin() as client:
        return {one["name"].decode(): one["pending"] for one in await client.xinfo_consumers(place, GROUP)}


# -- what is delivered twice, or never -----------------------------------------------------------------------


async def test_entries_whose_delivery_was_lost_come_first_at_the_next_start(
    redis: RedisRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server counts them as delivered; they come before what is new, and say that it is the second time."""
    monkeypatch.setattr(module.RedisSource, "idle", 600.0)
    address = await redis.declare(fresh_place())
    async with Forwarder(redis.server.port) as way:
        source = open_source(address, {"main": behind(way)}, Reader(GROUP, "one"))
        try:
            await source.open()
            await source.take(1, 0.0)  # the claim that comes before the first read
            taking = asyncio.create_task(source.take(10, 8.0))
            await until(lambda: _blocks(redis), "the read to wait")
            way.swallow = "replies"
            await redis.publish(address.place, drafts(2, "lost"))
            with pytest.raises(BrokerUnavailableError):
                await taking
            way.heal()
            assert await pending(redis, address.place) == {"one": 1}
            await redis.publish(address.place, drafts(1, "new"))
            await opened(source)
            deliveries = await taken(source, 3)
        finally:
            await source.close()
    assert bodies(deliveries) == [draft.body for draft in (*drafts(2, "lost"), *drafts(1, "new"))]
    assert [delivery.count for delivery in deliveries] == [2, 1, 1]


async def _blocks(rig: RedisRig) -> bool:
    async with rig.admin() as client:
        return int((await client.info("clients"))["blocked_clients"]) > 0


async def test_a_command_whose_answer_was_lost_is_not_repeated(redis: RedisRig) -> None:
    """The client's default is to repeat it up to ten times; here it is the notifier that does, under the event's id."""
    address = await redis.declare(fresh_place())
    async with Forwarder(redis.server.port) as way, sending(behind(way)) as sender:
        await sender.send(address.place, event(0), 60)
        way.swallow = "replies"
        with pytest.raises(DeliveryError):
            await sender.send(address.place, event(1), 6)
        way.heal()
        await sender.send(address.place, event(1), 60)
    assert [one.id for one in await redis.read(address.place)] == ["task-1/0", "task-1/1", "task-1/1"]


async def test_a_trimmed_entry_is_a_fault_and_not_an_empty_order(redis: RedisRig) -> None:
    """Its place in the list of pending entries outlives it."""
    address = await redis.declare(fresh_place())
    await redis.publish(address.place, drafts(3))
    async with reading(redis, address) as source:
        before = await taken(source, 3)
    async with redis.admin() as client:
        await client.xtrim(address.place, maxlen=1, approximate=False)
    async with reading(redis, address) as source:
        deliveries = await taken(source, 3)
        assert [(bool(one.fault), one.body) for one in deliveries] == [
            (True, b""),
            (True, b""),
            (False, before[2].body),
        ]
        assert "trimmed" in deliveries[0].fault
        await source.acknowledge(deliveries)
        assert await pending(redis, address.place) == {"one": 0}


async def test_an_entry_that_was_trimmed_after_its_reader_died_is_a_fault(redis: RedisRig) -> None:
    """The server drops it from the list of pending entries when another one claims it, and says so only in that answer."""
    address = await redis.declare(fresh_place())
    await redis.publish(address.place, drafts(3))
    async with reading(redis, address) as source:
        await taken(source, 3)
    async with redis.admin() as client:
        await client.xtrim(address.place, maxlen=1, approximate=False)
    async with reading(redis, address, "two") as source:
        deliveries = await taken(source, 3)
        assert sorted(bool(one.fault) for one in deliveries) == [False, True, True]
        await source.acknowledge(deliveries)
        assert set((await pending(redis, address.place)).values()) == {0}


async def test_what_a_reader_held_is_given_back_when_it_closes(
    redis: RedisRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To any other reader, as if it had been idle for long."""
    monkeypatch.setattr(module.RedisSource, "idle", 600.0)
    address = await redis.declare(fresh_place())
    await redis.publish(address.place, drafts(2))
    async with reading(redis, address) as source:
        await taken(source, 2)
    async with reading(redis, address, "two") as source:
        assert bodies(await source.take(10, 0.0)) == [draft.body for draft in drafts(2)]


async def test_what_is_held_is_not_claimed_by_others(redis: RedisRig) -> None:
    """For more than the time after which a dead process's entries are; it costs no delivery."""
    address = await redis.declare(fresh_place())
    await redis.publish(address.place, drafts(3))
    async with reading(redis, address) as source, reading(redis, address, "two") as other:
        deliveries = await taken(source, 2, limit=2)
        await source.pause()
        assert bodies(await taken(other, 1)) == [drafts(3)[2].body]
        async with asyncio.timeout(120):
            for _ in range(round(2 * IDLE)):
                assert await other.take(10, 1.0) == []
        await source.acknowledge(deliveries)
        async with redis.admin() as client:
            summary = await client.xpending_range(address.place, GROUP, "-", "+", 10)
        assert [one["times_delivered"] for one in summary] == [1]


async def test_names_of_dead_consumers_go_only_once_nothing_is_pending_for_them(
    redis: RedisRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DELCONSUMER would throw their entries away. This one's own name goes at the end, if it leaves nothing."""
    monkeypatch.setattr(module, "_TIDY_AFTER", 0.001)
    address = await redis.declare(fresh_place())
    await redis.publish(address.place, drafts(2))
    async with redis.admin() as client:
        await client.xgroup_create(address.place, GROUP, "0")
        await client.xgroup_createconsumer(address.place, GROUP, "dead-empty")
        await client.xreadgroup(GROUP, "dead-full", {address.place: ">"}, count=1)
    async with reading(redis, address) as source:
        [delivery] = await taken(source, 1)
        assert await pending(redis, address.place) == {"dead-full": 1, "one": 1}
        await source.acknowledge([delivery])
    assert await pending(redis, address.place) == {"dead-full": 1}


async def test_a_group_begins_at_the_first_entry_or_at_the_next_one(redis: RedisRig) -> None:
    place = (await redis.declare(fresh_place())).place
    await redis.publish(place, drafts(2, "old"))
    latest = address_of(f"redis:main/{place}?start=latest&group=late", {"redis"})
    async with (
        reading(redis, latest) as late,
        reading(redis, address_of(f"redis:main/{place}", {"redis"})) as early,
    ):
        assert await late.take(10, 0.0) == []
        await redis.publish(place, drafts(1, "new"))
        assert bodies(await taken(late, 1)) == [drafts(1, "new")[0].body]
        assert len(await taken(early, 3)) == 3
    async with reading(redis, latest, "two") as late:  # the group exists: start says nothing any more
        assert bodies(await taken(late, 1)) == [drafts(1, "new")[0].body]


@pytest.mark.parametrize(("start", "count"), [("", 2), ("?start=earliest", 2), ("?start=latest", 1)])
async def test_the_command_for_a_missing_stream_begins_where_the_source_would(
    redis: RedisRig, start: str, count: int
) -> None:
    """Its first entry may come before somebody runs the command."""
    place = fresh_place()
    address = address_of(f"redis:main/{place}{start}", {"redis"})
    missing = next(each for each in await checked(redis, [address]) if each.severity == "error")
    async with redis.admin() as client:
        await client.xadd(place, {"data": "1"})
        await client.execute_command(*missing.remedy.partition("create it: ")[2].split())
        await client.xadd(place, {"data": "2"})
    async with reading(redis, address) as source:
        assert bodies(await taken(source, count)) == [b"1", b"2"][-count:]
    (_, sent_to) = await checked(redis, places=[fresh_place()])
    assert sent_to.remedy.endswith("GROUP 0 MKSTREAM")


async def test_entries_of_any_size_are_read_in_pieces(redis: RedisRig) -> None:
    """Redis has no bound in bytes for an answer: after large entries it is asked for fewer."""
    address = await redis.declare(fresh_place())
    large = [draft.__class__(draft.body.ljust(1 << 20), draft.id) for draft in drafts(30)]
    await redis.publish(address.place, large)
    async with reading(redis, address) as source:
        sizes: list[int] = []
        while sum(sizes) < 30:
            batch = await source.take(200, 30.0)
            sizes.append(len(batch))
            await source.acknowledge(batch)
    assert sizes[:4] == [4] * 4  # the first read is of sixteen, whatever their size
    assert max(sizes) == 4


# -- what an entry says --------------------------------------------------------------------------------------


def of(**fields: str | bytes) -> Delivery:
    """Return the delivery of an entry with these fields."""
    flat = [word if isinstance(word, bytes) else word.encode() for pair in fields.items() for word in pair]
    return module.delivery_of("orders", "1795967799190-0", flat, 1)


def test_the_body_is_the_field_data_or_payload_or_the_only_one_or_all() -> None:
    assert of(data=b"\xff", payload="p", trace="t").body == b"\xff"
    assert of(payload="p", sku="a").body == b"p"
    assert of(order='{"id": 1}').body == b'{"id": 1}'
    assert of(sku="a", count="2").body == b'{"sku": "a", "count": "2"}'
    assert (
        of(sku="a", count=b"\xff").fault
        == "a field of the entry is not text in UTF-8, and it has no field data"
    )


def test_the_other_fields_are_headers_and_some_have_a_meaning() -> None:
    deliveries = of(
        data="{}", ce_id="o-1", ce_type="order", correlation_id="c", reply_to="answers", blob=b"\xff"
    )
    assert (deliveries.id, deliveries.kind, deliveries.correlation_id, deliveries.reply_to) == (
        "o-1",
        "order",
        "c",
        "answers",
    )
    assert "blob" not in deliveries.headers
    assert deliveries.headers["ce_id"] == "o-1"
    assert deliveries.sent_at == 1795967799.19
    plain = of(data="{}", id="business-1")
    assert (plain.id, plain.headers) == ("orders/1795967799190-0", {"id": "business-1"})


# -- how the server is set up --------------------------------------------------------------------------------


async def requirements(source: Source, words: str) -> str:
    """Return the severity of what was checked, by its words."""
    try:
        [one] = [one for one in await source.open() if words in one.what]
    finally:
        await source.close()
    return one.severity


async def test_a_server_that_may_forget_says_so(redis: RedisRig) -> None:
    address = await redis.declare(fresh_place())
    source = source_at(redis, address)
    assert await requirements(source, "appendonly is on") == "ok"
    async with setting(redis, appendonly="no"):
        assert await requirements(source, "appendonly is off") == "warning"
    async with setting(redis, **{"maxmemory-policy": "allkeys-lru"}):
        assert await requirements(source, "may evict whole streams") == "warning"
    async with setting(redis, **{"maxmemory-policy": "allkeys-lru", "maxmemory": "1gb"}):
        with pytest.raises(ConfigError, match="may evict whole streams"):
            await source.open()


async def test_a_stream_that_expires_is_refused(redis: RedisRig) -> None:
    address = await redis.declare(fresh_place())
    async with redis.admin() as client:
        await client.expire(address.place, 1000)
    with pytest.raises(ConfigError, match="expires in 1000 s"):
        await source_at(redis, address).open()


async def test_ids_that_senders_choose_are_a_warning(redis: RedisRig) -> None:
    """Made anew, such a stream repeats them. Those that the server makes of its clock differ."""
    address = await redis.declare(fresh_place())
    async with redis.admin() as client:
        await client.xadd(address.place, {"data": "1"}, id="1-1")
    assert await requirements(source_at(redis, address), "choose the ids") == "warning"


async def test_a_key_that_is_no_stream_is_refused(redis: RedisRig) -> None:
    place = fresh_place()
    async with redis.admin() as client:
        await client.set(place, "text")
    with pytest.raises(ConfigError, match="is not a stream, but a string"):
        await source_at(redis, address_of(f"redis:main/{place}", {"redis"})).open()
    async with sending(redis.target) as sender:
        with pytest.raises(RefusedTargetError, match="WRONGTYPE"):
            await sender.send(place, event(), 60)
        [error] = [one for one in await checked(redis, places=[place]) if one.severity == "error"]
        assert "not a stream" in error.what


async def test_a_replica_is_an_outage_until_it_is_promoted(redis: RedisRig) -> None:
    address = await redis.declare(fresh_place())
    source = source_at(redis, address)
    async with redis.admin() as client, sending(redis.target) as sender:
        await client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(BrokerUnavailableError, match="replica"):
                await source.open()
            with pytest.raises(DeliveryError, match="READONLY") as error:
                await sender.send(address.place, event(), 60)
            assert not isinstance(error.value, RefusedTargetError)
        finally:
            await client.execute_command("REPLICAOF", "NO", "ONE")
        await source.open()
        await source.close()
        await sender.send(address.place, event(), 60)


async def test_a_full_server_is_tried_again(redis: RedisRig) -> None:
    address = await redis.declare(fresh_place())
    async with sending(redis.target) as sender:
        async with setting(redis, **{"maxmemory-policy": "noeviction", "maxmemory": "1"}):
            with pytest.raises(DeliveryError, match="OOM") as error:
                await sender.send(address.place, event(), 60)
            assert not isinstance(error.value, RefusedTargetError)
        await sender.send(address.place, event(), 60)


async def test_a_server_without_enough_replicas_is_an_outage(redis: RedisRig) -> None:
    """With the setting that makegood itself names, while a replica is away."""
    address = await redis.declare(fresh_place())
    source = source_at(redis, address)
    async with sending(redis.target) as sender:
        async with setting(redis, **{"min-replicas-to-write": "1"}):
            with pytest.raises(UnsentError, match="NOREPLICAS"):
                await sender.send(address.place, event(), 60)
            with pytest.raises(BrokerUnavailableError, match="NOREPLICAS"):
                await source.open()
        await sender.send(address.place, event(), 60)
        await source.open()
        await source.close()


@asynccontextmanager
async def answering(text: str) -> AsyncIterator[Target]:
    """A server that answers each XADD with an error, and "OK" to all else."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                count = int((await reader.readuntil())[1:])
                words = []
                for _ in range(count):
                    size = int((await reader.readuntil())[1:])
                    words.append((await reader.readexactly(size + 2))[:-2])
                writer.write(f"-{text}\r\n".encode() if words[0] == b"XADD" else b"+OK\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Target("redis", "main", f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("CLUSTERDOWN The cluster is down", BrokerUnavailableError),
        ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", BrokerUnavailableError),
        ("TRYAGAIN Multiple keys request during rehashing of slot", BrokerUnavailableError),
        ("NOREPLICAS Not enough good replicas to write.", BrokerUnavailableError),
        ("MOVED 3999 127.0.0.1:6381", ConfigError),
        ("ASK 3999 127.0.0.1:6381", ConfigError),
    ],
)  # fmt: skip
async def test_a_notice_waits_while_a_cluster_fails_over_or_moves_the_stream(
    text: str, cause: type[Exception]
) -> None:
    """redis-py leaves the first word out of most of these errors."""
    async with answering(text) as target, sending(target) as sender:
        with pytest.raises(UnsentError, match=text) as error:
            await sender.send("notices", event(), 60)
    assert type(error.value.__cause__) is cause


async def test_a_missing_right_is_named(redis: RedisRig) -> None:
    address = await redis.declare(fresh_place())
    async with redis.admin() as client, sending(redis.target) as sender:
        await client.execute_command("ACL", "SETUSER", USER, "-xadd", "-xgroup|create", "-info")
        try:
            with pytest.raises(
                DeliveryError, match=rf"NOPERM.*ACL SETUSER {USER} \+xadd, .*broker permissions"
            ):
                await sender.send(address.place, event(), 60)
            with pytest.raises(
                ConfigError, match=rf"lacks the rights \+xgroup\|create.*ACL SETUSER {USER} \+xgroup"
            ):
                await source_at(redis, address).open()
            warning, error = await checked(redis, places=[address.place])
            assert (warning.severity, "cannot be checked" in warning.what) == ("warning", True)
            assert (error.severity, error.remedy) == ("error", f"ACL SETUSER {USER} +xadd, and ACL SAVE")
        finally:
            await redis.grant()


async def test_a_check_of_many_places_takes_one_connection(redis: RedisRig) -> None:
    addresses = [await redis.declare(fresh_place()) for _ in range(3)]
    async with redis.admin() as client:
        before = (await client.info("stats"))["total_connections_received"]
        await checked(redis, addresses, [each.place for each in addresses])
        assert (await client.info("stats"))["total_connections_received"] == before + 1


async def test_a_database_that_the_server_lacks_is_to_be_corrected(redis: RedisRig) -> None:
    target = Target("redis", "main", redis.target.url.rpartition("/")[0] + "/99")
    with pytest.raises(ConfigError, match="the server has no database 99: correct the path of the URL"):
        await check(target, [], ["notices"], Reader(GROUP, "one"))


async def test_a_check_names_all_missing_rights_at_once(redis: RedisRig) -> None:
    """Each is tried with a group that does not exist, so that nothing is read."""
    address = await redis.declare(fresh_place())
    await redis.publish(address.place, drafts(1))
    denials = ("-xreadgroup", "-xack", "-xautoclaim", "-xclaim", "-xpending", "-xrange", "-time")
    async with redis.admin() as client:
        await client.execute_command("ACL", "SETUSER", USER, *denials, "-eval")
        try:
            answers = [one for one in await checked(redis, [address]) if "lacks" in one.what]
            rights = " ".join(name.replace("-", "+") for name in denials)
            assert [(one.severity, one.remedy) for one in answers] == [
                ("error", f"ACL SETUSER {USER} {rights}, and ACL SAVE"),
                ("warning", f"ACL SETUSER {USER} +eval, and ACL SAVE"),
            ]
            await redis.grant()
            await client.execute_command("ACL", "SETUSER", USER, "resetkeys", "~other")
            [error] = [one for one in await checked(redis, [address]) if one.severity == "error"]
            assert error.remedy == f"ACL SETUSER {USER} ~{address.place}, and ACL SAVE"
        finally:
            await redis.grant()
    assert "error" not in {one.severity for one in await checked(redis, [address])}
    async with reading(redis, address) as source:
        [delivery] = await taken(source, 1)
        assert delivery.count == 1


# -- the sender ----------------------------------------------------------------------------------------------


async def test_a_stream_is_trimmed_only_if_its_url_says_so(redis: RedisRig) -> None:
    address = await redis.declare(fresh_place())
    trimming = Target("redis", "main", f"{redis.target.url}?maxlen=100")
    lengths = []
    for target in (redis.target, trimming):
        async with sending(target) as sender:
            for start in range(0, 500, 50):
                await asyncio.gather(
                    *(sender.send(address.place, event(n), 60) for n in range(start, start + 50))
                )
        async with redis.admin() as client:
            lengths.append(await client.xlen(address.place))
    assert lengths[0] == 500
    assert 100 <= lengths[1] < 400


async def test_a_sender_s_event_is_one_order_of_a_reader_however_often_it_is_sent(redis: RedisRig) -> None:
    """Two entries, one id."""
    address = await redis.declare(fresh_place())
    async with sending(redis.target) as sender:
        for _ in range(2):
            await sender.send(address.place, event(0, b'{"id": "task-1/0"}'), 60)
    async with reading(redis, address) as source:
        deliveries = await taken(source, 2)
    assert [(one.id, one.body) for one in deliveries] == [("task-1/0", b'{"id": "task-1/0"}')] * 2
    assert deliveries[0].headers["content-type"] == "application/cloudevents+json"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://one:6379/orders", "not the number of a database"),
        ("redis://one,two/0", "more than one server"),
        ("redis://one/0?retry_on_timeout=yes", "there is no parameter 'retry_on_timeout'"),
        ("redis://one/0?maxlen=some", "a number of entries"),
        ("redis://one/0?ssl_ca_certs=/no/such", "cannot be read"),
        ("redis://one/0?ssl_ca_certs=/etc/hostname", "write rediss://"),
    ],
)
def test_urls_that_redis_does_not_have_are_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_sender(Target("redis", "main", url))


def test_a_start_that_redis_does_not_have_is_refused() -> None:
    address = BrokerAddress("redis", "main", "orders", {"start": "middle"})
    with pytest.raises(ConfigError, match="write earliest or latest"):
        open_source(address, {"main": Target("redis", "main", "redis://one/0")}, Reader(GROUP, "one"))
