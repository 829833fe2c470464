"""What each server's leases say when they cannot work, on the real server."""

import asyncio
import hashlib
import sys
from base64 import b64encode
from collections.abc import Callable
from secrets import token_hex
from typing import Any

import httpx2
import nats
import pytest
from azure.storage.blob.aio import ContainerClient
from kazoo.client import KazooClient
from nats.js import api
from nats.js import errors as failed
from redis.asyncio import Redis

from makegood.election import Election, Grant, View, open_leases
from makegood.election.stores import azure, zookeeper
from makegood.election.stores.calls import RemoteLeases
from makegood.election.stores.http import Http
from makegood.errors import ConfigError, StoreUnavailableError
from proofs.servers import LeaseServer, ServerKind
from tests.clocks import AheadClock

Servers = Callable[[ServerKind], LeaseServer]

NOBODY = {
    "redis": "redis://127.0.0.1:1/0",
    "nats": "nats://127.0.0.1:1",
    "etcd": "etcd://127.0.0.1:1",
    "zookeeper": "zookeeper://127.0.0.1:1",
    "azure": "azure-blob://devstoreaccount1@127.0.0.1:1/leases",
}
"""By extra: a URL at whose place nobody listens."""


@pytest.mark.parametrize("extra", NOBODY)
async def test_a_server_that_is_not_there_is_named_and_may_come_back(extra: str) -> None:
    async with open_leases(NOBODY[extra], timeout=1) as leases:
        assert isinstance(leases, RemoteLeases)
        with pytest.raises(StoreUnavailableError, match=r"^the leases in .*127\.0\.0\.1:1"):
            await leases.read("x")


async def test_a_redis_that_may_evict_the_lease_is_refused(own_server: Servers) -> None:
    url = own_server("redis").url
    redis: Any = Redis.from_url(url)
    async with redis, open_leases(url) as leases:
        await redis.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(ConfigError, match="maxmemory-policy allkeys-lru may evict the lease"):
            await leases.acquire("x", "a", "n", 15)


async def test_a_redis_that_forgets_at_a_restart_is_told_in_the_log(
    own_server: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_server("redis").url
    redis: Any = Redis.from_url(url)
    async with redis, open_leases(url) as leases:
        await redis.config_set("appendonly", "no")
        assert await leases.read("x") is None
        assert await leases.read("x") is None
    assert sum("appendonly is off" in r.message for r in caplog.records) == 1, "once, and not at each call"


async def test_a_key_that_serves_something_else_is_refused(lease_server: Servers) -> None:
    url = lease_server("redis").url
    redis: Any = Redis.from_url(url)
    async with redis, open_leases(url) as leases:
        await redis.set("makegood:election:{taken}", "mine")
        with pytest.raises(ConfigError, match="used for something else"):
            await leases.acquire("taken", "a", "n", 15)
        assert await redis.get("makegood:election:{taken}") == b"mine"


async def test_a_wrong_password_is_no_outage(lease_server: Servers) -> None:
    async with open_leases(lease_server("redis").url.replace("//", "//somebody:wrong@")) as leases:
        with pytest.raises(ConfigError, match="invalid username-password"):
            await leases.read("x")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (api.KeyValueConfig("aged", ttl=60), "forgets keys after 60 s"),
        (api.KeyValueConfig("light", storage=api.StorageType.MEMORY), "kept in memory"),
    ],
    ids=["an age limit", "in memory"],
)
async def test_a_nats_bucket_that_forgets_is_refused(
    lease_server: Servers, config: api.KeyValueConfig, says: str
) -> None:
    url = lease_server("nats").url
    client = await nats.connect(url)
    await client.jetstream().create_key_value(config)
    async with open_leases(f"{url}/{config.bucket}") as leases:
        with pytest.raises(ConfigError, match=says):
            await leases.acquire("x", "a", "n", 15)
    await client.close()


async def test_who_only_looks_makes_no_bucket(lease_server: Servers) -> None:
    """A missing bucket says that nobody ever led; the first take makes it, and whoever looked before sees that."""
    url = lease_server("nats").url
    client = await nats.connect(url)
    try:
        async with open_leases(f"{url}/unseen") as onlooker, open_leases(f"{url}/unseen") as candidate:
            views = Election("lead", onlooker).watch(every=0.05)
            assert await anext(views) == View(None, 0, 0.0)
            assert await onlooker.read("lead") is None
            assert await onlooker.past_terms("lead") == []
            await onlooker.release(Grant("lead", "a", "nonce", 0, 5.0))
            with pytest.raises(failed.BucketNotFoundError):
                await client.jetstream().key_value("unseen")
            grant = await candidate.acquire("lead", "a", "nonce", 5.0)
            assert grant is not None
            assert grant == Grant("lead", "a", "nonce", grant.epoch, 5.0)
            assert (await anext(views)).leader == "a"
    finally:
        await client.close()


async def term(url: str, name: str = "lead", ttl: float = 15.0) -> int:
    """Lead once, as a process of its own, and return the epoch."""
    async with open_leases(url) as leases:
        grant = await leases.acquire(name, "a", token_hex(4), ttl)
        assert grant is not None
        await leases.release(grant)
        return grant.epoch


async def test_epochs_of_nats_rise_after_the_key_was_removed_without_a_trace(lease_server: Servers) -> None:
    """Deleted and compacted, purged from the stream, and with the server started anew: no epoch is granted twice."""
    server = lease_server("nats")
    url = f"{server.url}/compacted"
    epochs = [await term(url) for _ in range(3)]
    assert epochs == [epochs[0], epochs[0] + 1, epochs[0] + 2]
    for way in ("compact", "purge", "restart"):
        client = await nats.connect(server.url)
        bucket = await client.jetstream().key_value("compacted")
        if way == "purge":
            await client.jetstream().purge_stream("KV_compacted")
        else:
            await bucket.delete("lead")
            with pytest.raises(ConfigError, match="nats kv compact compacted"):
                await term(url)
            await bucket.purge_deletes(olderthan=0)
        with pytest.raises(failed.NoKeysError):
            await bucket.keys()
        await client.close()
        if way == "restart":
            await asyncio.to_thread(server.restart)
        epochs += [await term(url), await term(url)]
    assert epochs == sorted(set(epochs)), epochs
    assert epochs[-1] < epochs[0] + 50, "the floor is the bucket's revision"


async def test_epochs_of_nats_rise_after_its_stream_was_deleted(lease_server: Servers) -> None:
    """The next take makes a new bucket. A fresh process, and one that had the old bucket open, grant epochs above all earlier ones."""
    server = lease_server("nats")
    url = f"{server.url}/deleted"
    epochs = [await term(url), await term(url)]
    client = await nats.connect(server.url)
    clock = AheadClock()
    async with open_leases(url, clock=clock) as open_before:
        grant = await open_before.acquire("lead", "a", "n", 15)
        assert grant is not None
        epochs.append(grant.epoch)
        for _ in range(2):
            await client.jetstream().delete_stream("KV_deleted")
            epochs.append(await term(url))
            assert not await open_before.renew(grant)
        clock.ahead += 16
        next_grant = await open_before.acquire("lead", "a", "m", 15)
        assert next_grant is not None
        epochs.append(next_grant.epoch)
    await client.close()
    assert epochs == sorted(set(epochs)), epochs


async def test_a_nats_record_that_vanishes_under_a_leader_is_taken_after_its_ttl(
    lease_server: Servers,
) -> None:
    """A candidate that saw the record waits until its holder has stopped believing."""
    url = lease_server("nats").url
    clock = AheadClock()
    async with (
        open_leases(f"{url}/vanishing") as leader,
        open_leases(f"{url}/vanishing", clock=clock) as candidate,
    ):
        grant = await leader.acquire("lead", "a", "n", 15)
        assert grant is not None
        assert await candidate.acquire("lead", "b", "m", 15) is None
        client = await nats.connect(url)
        await client.jetstream().purge_stream("KV_vanishing")
        await client.close()
        assert await candidate.acquire("lead", "b", "m", 15) is None
        assert not await leader.renew(grant)
        clock.ahead += 16
        next_grant = await candidate.acquire("lead", "b", "m", 15)
        assert next_grant is not None
        assert next_grant.epoch > grant.epoch


async def test_a_nats_bucket_that_was_replaced_is_refused_by_whoever_had_it_open(
    lease_server: Servers,
) -> None:
    url = lease_server("nats").url
    client = await nats.connect(url)
    async with open_leases(f"{url}/replaced") as leases:
        grant = await leases.acquire("lead", "a", "n", 15)
        assert grant is not None
        await client.jetstream().delete_key_value("replaced")
        for _ in range(2):  # the first call may find it out by a lost answer
            with pytest.raises((ConfigError, StoreUnavailableError)):
                await leases.acquire("other", "b", "m", 15)
        with pytest.raises(ConfigError, match="deleted or replaced while this process had it open"):
            await leases.acquire("other", "b", "m", 15)
        assert await term(f"{url}/replaced") > grant.epoch
        with pytest.raises(ConfigError, match="deleted or replaced while this process had it open"):
            await leases.acquire("other", "b", "m", 15)
    await client.close()


async def test_epochs_of_redis_rise_after_the_record_was_deleted(lease_server: Servers) -> None:
    """The list of its terms outlives a record that somebody deleted or that Redis evicted."""
    url = lease_server("redis").url
    epochs = [await term(url, "gone") for _ in range(2)]
    redis: Any = Redis.from_url(url)
    async with redis:
        assert await redis.delete("makegood:election:{gone}") == 1
    assert [*epochs, await term(url, "gone")] == [1, 2, 3]


async def test_epochs_of_etcd_rise_after_the_record_was_deleted(lease_server: Servers) -> None:
    """The cluster's revision says which epochs there may have been, whatever was deleted and compacted."""
    server = lease_server("etcd")
    first = await term(server.url, "gone", 2.0)
    second = await term(server.url, "gone", 2.0)
    assert second == first + 1
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.port}/v3/") as client:
        key = b64encode(b"makegood/election/gone/record").decode()
        answer = (await client.post("kv/deleterange", json={"key": key})).json()
        assert answer["deleted"] == "1", answer
        revision = int(answer["header"]["revision"])
        await client.post("kv/compaction", json={"revision": revision, "physical": True})
    assert await term(server.url, "gone", 2.0) > max(second, revision)


async def test_epochs_of_zookeeper_rise_after_the_node_was_deleted(lease_server: Servers) -> None:
    """A folder knows whether one of its nodes was deleted, and in which transaction."""
    server = lease_server("zookeeper")
    url = f"{server.url.rstrip('/')}/falling"
    epochs = [await term(url), await term(url)]
    assert [*epochs, await term(url, "fresh")] == [1, 2, 1]
    client = KazooClient(f"127.0.0.1:{server.port}")
    await asyncio.to_thread(client.start)
    await asyncio.to_thread(client.delete, "/falling/lead")
    after = [await term(url), await term(url)]
    assert after[0] > 2
    assert after[1] == after[0] + 1
    await asyncio.to_thread(client.delete, "/falling/lead")
    assert await term(url) > after[1]
    await asyncio.to_thread(client.stop)
    await asyncio.to_thread(client.close)


async def test_a_nats_key_that_was_deleted_is_refused_since_its_epoch_is_lost(lease_server: Servers) -> None:
    url = lease_server("nats").url
    client = await nats.connect(url)
    async with open_leases(f"{url}/deleting") as leases:
        grant = await leases.acquire("a/b c", "a", "n", 15)
        assert grant is not None
        bucket = await client.jetstream().key_value("deleting")
        await bucket.delete("a=2Fb=20c")
        with pytest.raises(ConfigError, match="was deleted, perhaps while its lease was held"):
            await leases.acquire("a/b c", "b", "m", 15)
        with pytest.raises(ConfigError, match="deleted"):
            await leases.renew(grant)
    await client.close()


async def test_a_nats_key_that_serves_something_else_is_refused(lease_server: Servers) -> None:
    url = lease_server("nats").url
    async with open_leases(f"{url}/mine") as leases:
        assert await leases.acquire("other", "a", "n", 15) is not None
        client = await nats.connect(url)
        await (await client.jetstream().key_value("mine")).put("x", b'{"settings": 1}')
        with pytest.raises(ConfigError, match="used for something else"):
            await leases.acquire("x", "a", "n", 15)
        await client.close()


@pytest.mark.parametrize(
    "url", ["nats:", "nats://host/a/b", "nats://host/b?replicas=x", "nats://host/b?what=1"]
)
def test_a_nats_url_that_says_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="write nats://host:4222/bucket"):
        open_leases(url)


def container(url: str) -> ContainerClient:
    """Return Azure's own client for the container of a URL."""
    where = url.partition("@")[2].partition("/")[0]
    return ContainerClient(f"http://{where}/devstoreaccount1", "leases", credential=azure._EMULATED_KEY)


async def test_a_blob_with_content_is_refused_and_left_alone(lease_server: Servers) -> None:
    url = lease_server("azurite").url
    async with open_leases(url) as leases, container(url) as its:
        assert await leases.acquire("makes the container", "a", "n", 15) is not None
        blob = its.get_blob_client("report.csv")
        await blob.upload_blob(b"1,2,3", metadata={"mine": "yes"}, overwrite=True)
        with pytest.raises(ConfigError, match=r"the blob report\.csv has content"):
            await leases.acquire("report.csv", "a", "n", 15)
        left = await blob.get_blob_properties()
        assert (left.size, left.metadata, left.lease.state) == (5, {"mine": "yes"}, "available")


@pytest.mark.parametrize("ttl", [14.9, 60.1])
async def test_azure_leases_last_15_to_60_seconds(lease_server: Servers, ttl: float) -> None:
    async with open_leases(lease_server("azurite").url) as leases:
        with pytest.raises(ConfigError, match=f"lasts 15 to 60 s, not {ttl}"):
            await leases.acquire("x", "a", "n", ttl)


async def test_an_operator_breaks_a_lease_and_the_epoch_goes_on(lease_server: Servers) -> None:
    async with open_leases(lease_server("azurite").url) as leases:
        assert isinstance(leases, azure.AzureLeases)
        old = await leases.acquire("broken", "a", "n", 60)
        assert old is not None
        assert await leases.break_lease("broken", within="30s") == 30
        assert await leases.acquire("broken", "b", "m", 60) is None, "taken while it was breaking"
        assert await leases.break_lease("broken") == 0
        lease = await leases.read("broken")
        assert lease is not None
        assert lease.remaining <= 0
        new = await leases.acquire("broken", "b", "m", 60)
        assert new is not None
        assert new.epoch == old.epoch + 1
        assert not await leases.renew(old), "a broken lease was renewed"
        await leases.release(old)
        assert await leases.renew(new)


async def test_a_breaking_lease_is_not_renewed(lease_server: Servers) -> None:
    async with open_leases(lease_server("azurite").url) as leases:
        assert isinstance(leases, azure.AzureLeases)
        grant = await leases.acquire("breaking", "a", "n", 60)
        assert grant is not None
        await leases.break_lease("breaking", within=30)
        assert not await leases.renew(grant)


async def test_terms_of_holders_with_long_names_still_fit_into_the_metadata(lease_server: Servers) -> None:
    async with open_leases(lease_server("azurite").url) as leases:
        for n in range(20):
            holder = f"{n}-" + hashlib.sha512(str(n).encode()).hexdigest() * 2
            grant = await leases.acquire("long names", holder, f"n{n}", 15)
            assert grant is not None
            await leases.release(grant)
        past = await leases.past_terms("long names")
        assert len(past) >= 16
        assert past[0].epoch == 20


@pytest.mark.parametrize("url", ["azure-blob:", "azure-blob://account.blob.core.windows.net"])
def test_an_azure_url_without_a_container_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"write azure-blob://ACCOUNT\.blob"):
        open_leases(url)


def test_azure_without_a_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_KEY", raising=False)
    monkeypatch.setitem(sys.modules, "azure.identity.aio", None)
    with pytest.raises(ConfigError, match="set AZURE_STORAGE_KEY"):
        open_leases("azure-blob://shop.blob.core.windows.net/leases")


async def test_a_wrong_key_is_no_outage(lease_server: Servers) -> None:
    url = lease_server("azurite").url.replace("@", ":d3Jvbmc=@")
    async with open_leases(url) as leases:
        with pytest.raises(ConfigError, match="the leases in Azure at"):
            await leases.read("x")


async def test_an_etcd_that_wants_a_login_gets_one_and_says_when_it_is_wrong(own_server: Servers) -> None:
    server = own_server("etcd")
    root = {"name": "root", "password": "secret"}
    http = Http([f"http://127.0.0.1:{server.port}"], timeout=5)
    for what, body in (
        ("role/add", {"name": "root"}), ("user/add", root), ("user/grant", {"user": "root", "role": "root"}), ("enable", {}),
    ):  # fmt: skip
        status, answer = await http.ask("POST", f"/v3/auth/{what}", body)
        assert status == 200, answer
    await http.drop()
    async with open_leases(server.url.replace("//", "//root:secret@")) as leases:
        grant = await leases.acquire("x", "a", "n", 5)
        assert grant is not None
        assert await leases.renew(grant)
    async with open_leases(server.url.replace("//", "//root:wrong@")) as leases:
        with pytest.raises(ConfigError, match="authentication failed"):
            await leases.read("x")
    async with open_leases(server.url) as leases:
        with pytest.raises(ConfigError, match="the leases in etcd at"):
            await leases.read("x")


async def test_an_etcd_key_that_serves_something_else_is_refused(lease_server: Servers) -> None:
    server = lease_server("etcd")
    http = Http([f"http://127.0.0.1:{server.port}"], timeout=5)
    key = b64encode(b"mine/x/record").decode()
    await http.ask("POST", "/v3/kv/put", {"key": key, "value": b64encode(b"1").decode()})
    await http.drop()
    async with open_leases(f"{server.url}/mine") as leases:
        with pytest.raises(ConfigError, match="used for something else"):
            await leases.acquire("x", "a", "n", 5)


async def test_of_several_etcd_servers_one_that_answers_is_enough(lease_server: Servers) -> None:
    port = lease_server("etcd").port
    async with open_leases(f"etcd://127.0.0.1:1,127.0.0.1:{port}/several") as leases:
        with pytest.raises(StoreUnavailableError):
            await leases.read("x")
        assert await leases.read("x") is None


@pytest.mark.parametrize("url", ["etcd:", "etcd://user@/x", "etcd://host/x?y=1"])
def test_an_etcd_url_that_says_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="write etcd://host:2379/prefix"):
        open_leases(url)


async def test_a_zookeeper_node_that_vanished_is_taken_after_its_ttl_and_a_folder_that_did_never(
    lease_server: Servers,
) -> None:
    """The folder says that a node was deleted, and when; with the folder, its epochs are gone."""
    url, clock = lease_server("zookeeper").url, AheadClock()
    async with open_leases(f"{url}/deleting", clock=clock) as leases, open_leases(url) as other:
        grant = await leases.acquire("a/b c", "a", "n", 15)
        assert grant is not None
        await leases.release(grant)
        assert isinstance(other, zookeeper.ZooKeeperLeases)
        client = await other._connect()
        await zookeeper._answer(client.delete_async("/deleting/a%2Fb c"))
        assert await leases.acquire("a/b c", "b", "m", 15) is None
        clock.ahead += 16
        later = await leases.acquire("a/b c", "b", "m", 15)
        assert later is not None
        assert later.epoch > grant.epoch
        await zookeeper._answer(client.delete_async("/deleting/a%2Fb c"))
        await zookeeper._answer(client.delete_async("/deleting"))
        with pytest.raises(ConfigError, match="was deleted, and its epoch with it"):
            await leases.acquire("a/b c", "b", "m", 15)


async def test_nodes_made_under_a_login_are_for_that_user_alone(lease_server: Servers) -> None:
    url = f"{lease_server('zookeeper').url}/private"
    async with open_leases(url.replace("//", "//ann:secret@")) as leases:
        assert await leases.acquire("x", "a", "n", 15) is not None
    async with open_leases(url) as leases:
        with pytest.raises(ConfigError, match="this user may not touch the node"):
            await leases.acquire("x", "b", "m", 15)


async def test_a_zookeeper_node_that_serves_something_else_is_refused(lease_server: Servers) -> None:
    async with open_leases(f"{lease_server('zookeeper').url}/mine") as leases:
        assert isinstance(leases, zookeeper.ZooKeeperLeases)
        client = await leases._connect()
        await zookeeper._answer(client.create_async("/mine/x", b"settings", makepath=True))
        with pytest.raises(ConfigError, match="used for something else"):
            await leases.acquire("x", "b", "m", 15)


@pytest.mark.parametrize("url", ["zookeeper:", "zookeeper://ann@host", "zookeeper://host/x?y=1"])
def test_a_zookeeper_url_that_says_something_else_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="write zookeeper://host:2181/folder"):
        open_leases(url)
