"""The notifier: each notice arrives, those of one task in order, whoever sends and whoever dies."""

import asyncio
import random
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.base.name_lookups import SHARE
from makegood.brokers.protocol import RefusedTargetError
from makegood.errors import ConfigError, DeliveryError
from makegood.messaging.hosts import Hosts
from makegood.messaging.notifier import ABANDONED, ON_PROBATION, PER_ENTRY, Notifier, Patience
from makegood.messaging.poster import HTTPPoster
from makegood.model.messages import Act
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.notice_records import Due
from makegood.store.protocol import Store
from tests.actors.noop_apps import chain_app
from tests.actors.webhook_receiver import listening
from tests.clocks import HandClock
from tests.conformance.builders import draft, scheduler
from tests.conformance.worlds import World, eventually
from tests.waiting import until

HOSTS = Hosts(["*.example"])
AT_ONCE = Patience(tries=3, wait=0.0, longest=0.0)


@dataclass
class Receivers:
    """All hosts: what each got, and how it answers."""

    got: list[tuple[str, int]] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    hung: dict[str, asyncio.Event] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    under_way: int = 0
    most: int = 0

    async def close(self) -> None:
        """Do nothing."""

    async def post(self, url: str, message_id: str, body: bytes) -> None:
        """Take an event, as the receiver of its address would."""
        host = url.split("/")[2]
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if host in self.hung:
                await self.hung[host].wait()
            await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        if host in self.gone:
            raise RefusedTargetError("answered 410", status=410)
        if host in self.down:
            raise DeliveryError("answered 503", status=503)
        event = msgspec.json.decode(body)
        assert message_id == event["id"]
        self.got.append((event["subject"], event["data"]["sequence"]))


def notifier(store: Store, node: int, poster: Any, **more: Any) -> Notifier:
    new_notifier = Notifier(
        store,
        poster,
        more.pop("hosts", HOSTS),
        clock=more.pop("clock", SystemClock()),
        rng=random.Random(more.pop("seed", 1)),
        **{"poll": None, **more},
    )
    new_notifier.rename(node)
    return new_notifier


@asynccontextmanager
async def running(*notifiers: Notifier) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(n.run()) for n in notifiers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def submit(store: Store, tasks: Sequence[int], host: str = "shop.example") -> None:
    await store.tasks.submit([draft(n, reply_to=f"https://{host}/hook") for n in tasks])


async def told(store: Store) -> None:
    async def nothing() -> bool:
        return not await store.notices.listeners()

    await until(nothing)


async def alerted(store: Store) -> bool:
    return bool(await store.alerts.views())


async def test_what_is_submitted_is_told_at_once(store: Store) -> None:
    node, shop = await scheduler(store), Receivers()
    await submit(store, [1])
    async with running(notifier(store, node, shop)):
        await eventually(lambda: len(shop.got) == 1, "what was there before it ran")
        await submit(store, range(2, 101))
        await eventually(lambda: len(shop.got) == 100, "what came meanwhile")
        await told(store)
    assert len(set(shop.got)) == 100
    assert 1 < shop.most <= 8


async def test_of_two_notifiers_each_notice_leaves_through_one(store: Store, other: Store) -> None:
    one, two, shop = await scheduler(store), await scheduler(other), Receivers()
    await submit(store, range(1, 101))
    async with running(notifier(store, one, shop), notifier(other, two, shop, seed=2)):
        await told(store)
    assert len(shop.got) == len(set(shop.got)) == 100


async def test_a_dead_receiver_holds_up_only_its_own_tasks_and_is_given_up_with_an_alert(
    store: Store, world: World
) -> None:
    node, shop = await scheduler(store), Receivers(down={"dead.example"})

    async def given_up() -> bool:
        return all(v.dead for v in await store.notices.listeners(1000))

    await submit(store, range(1, 51), "dead.example")
    await submit(store, range(51, 101))
    async with running(notifier(store, node, shop, patience=AT_ONCE)):
        await eventually(lambda: len(shop.got) == 50, "the others")
        await until(given_up)
        assert {v.tries for v in await store.notices.listeners(1000)} == {3}
        assert [a.kind for a in await store.alerts.views(1000)] == ["dead_letter"] * 50
        shop.down.clear()
        assert len(await store.notices.retry_notices(Act("a"))) == 50
        await told(store)
    assert len(shop.got) == 100


async def test_a_receiver_that_hangs_takes_no_room_from_others(store: Store) -> None:
    node, shop = await scheduler(store), Receivers(hung={"slow.example": asyncio.Event()})
    await submit(store, range(1, 101), "slow.example")
    async with running(notifier(store, node, shop)):
        await eventually(lambda: shop.under_way == 8, "its share is full")
        await submit(store, range(101, 151))
        await eventually(lambda: len(shop.got) == 50, "the others")
        assert shop.under_way == 8
        shop.hung["slow.example"].set()
        await told(store)
    assert len(shop.got) == 150


@pytest.mark.parametrize("names", [60, 800])
async def test_names_whose_name_servers_are_silent_hold_up_no_other_entry_and_no_proven_host(
    store: Store, names: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the look-ups of those names last, and they end only when the test does. Look-ups of others have threads."""
    real, end, lookups = socket.getaddrinfo, threading.Event(), set[str]()

    def getaddrinfo(host: str, port: int, *args: Any, **more: Any) -> Any:
        if not host.endswith(".slow.example"):
            return real("127.0.0.1", port, *args, **more)
        lookups.add(host)
        end.wait(60)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    hosts = Hosts(["*.slow.example", "localhost", "127.0.0.0/8"])
    posts = HTTPPoster(hosts, ["whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"], clock=SystemClock())
    with listening() as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        sends = notifier(store, await scheduler(store), posts, hosts=hosts)
        try:
            async with running(sends):
                await store.tasks.submit([draft(1, reply_to=f"http://localhost:{port}/")])
                await eventually(lambda: len(receiver.got) == 1, "localhost is proven")
                await store.tasks.submit(
                    [draft(100 + n, reply_to=f"https://h{n}.slow.example/") for n in range(names)]
                )
                await eventually(lambda: len(lookups) >= PER_ENTRY, "the share of the entry is full")
                await store.tasks.submit([draft(2, reply_to=f"http://localhost:{port}/")])
                await eventually(lambda: len(receiver.got) == 2, "a proven host")
                await store.tasks.submit([draft(3, reply_to=f"http://127.0.0.1:{port}/")])
                await eventually(lambda: len(receiver.got) == 3, "a new host of another entry")
                assert len(lookups) <= SHARE
                assert sum(host.endswith(".slow.example") for host in sends.posts.values()) == PER_ENTRY
                answer = asyncio.get_running_loop().run_in_executor(None, lambda: "at once")
                assert await answer == "at once", "the event loop's own threads are free"
        finally:
            end.set()


async def test_new_hosts_of_many_entries_leave_room_for_proven_ones(store: Store) -> None:
    hangs = {f"h{n}.e{of}.example": asyncio.Event() for n in range(20) for of in range(3)}
    node, shop = await scheduler(store), Receivers(hung=hangs)
    await submit(store, [1])
    sends = notifier(
        store, node, shop, hosts=Hosts([*(f"*.e{of}.example" for of in range(3)), "shop.example"])
    )
    async with running(sends):
        await eventually(lambda: len(shop.got) == 1, "it is proven")
        for n, host in enumerate(hangs):
            await submit(store, [10 + n], host)
        await eventually(lambda: shop.under_way == ON_PROBATION, "the share of new hosts is full")
        await submit(store, range(100, 120))
        await eventually(lambda: len(shop.got) == 21, "the proven one")
        assert shop.under_way == ON_PROBATION
        for event in hangs.values():
            event.set()
        await told(store)


def test_of_a_million_hosts_only_some_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("makegood.messaging.notifier.MOST_KNOWN", 10)
    sends = Notifier(None, Receivers(), HOSTS, clock=SystemClock(), rng=random.Random(1))  # type: ignore[arg-type]  # no store is needed
    for n in range(100):
        sends.shares.note_answer(f"h{n}.example", success=True)
        assert not sends.shares.on_probation(f"h{n}.example")
    familiar = [n for n in range(100) if not sends.shares.on_probation(f"h{n}.example")]
    assert familiar == list(range(90, 100)), "the others count as new"


async def test_who_wants_nothing_more_is_given_up_at_once(store: Store) -> None:
    node, shop = await scheduler(store), Receivers(gone={"gone.example"})
    await submit(store, [1], "gone.example")
    async with running(notifier(store, node, shop)):
        await until(lambda: alerted(store))
    (listener,) = await store.notices.listeners(dead=True)
    assert (listener.tries, listener.error) == (1, "answered 410")


async def test_a_host_that_only_others_may_send_to_is_left_to_them_for_a_while(
    store: Store, other: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says so, once."""
    here, there, shop = await scheduler(store), await scheduler(other), Receivers()
    await submit(store, [1])
    unable = notifier(store, here, shop, hosts=Hosts([]))
    for _ in range(2):
        assert await unable.turn() is not None
    assert not unable.posts
    text = "a notice for shop.example waits: it is not among webhook_hosts here"
    assert caplog.text.count(text) == 1
    async with running(notifier(other, there, shop)):
        await told(store)
    await submit(store, [2])
    await world.elapse(ABANDONED + 10)
    async with running(unable):
        await until(lambda: alerted(store))
    (alert,) = await store.alerts.views()
    assert "webhook_hosts" in alert.text


async def test_what_was_under_way_when_a_process_died_is_sent_by_another(
    store: Store, other: Store, world: World
) -> None:
    here, there = await scheduler(store), await scheduler(other)
    shop = Receivers(hung={"shop.example": asyncio.Event()})
    await submit(store, [1])
    async with running(notifier(store, here, shop)):
        await eventually(lambda: shop.under_way == 1, "it is under way")
    shop.hung.clear()
    await world.elapse(31)
    async with running(notifier(other, there, shop)):
        await told(store)
    assert len(shop.got) == 1


async def test_a_process_that_was_stopped_between_taking_and_posting_does_not_post(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, clock, take = Receivers(), HandClock(), store.notices.take_notices
    sends = notifier(store, await scheduler(store), shop, clock=clock)
    await submit(store, [1])

    async def stopped(*args: Any) -> Sequence[Due]:
        notices = await take(*args)
        clock.forward(21)
        return notices

    monkeypatch.setattr(store.notices, "take_notices", stopped)
    await sends.turn()
    assert len(sends.posts) == 1
    await eventually(lambda: not sends.posts, "it has had its moment")
    await sends.turn()
    (listener,) = await store.notices.listeners()
    assert (shop.got, listener.tries, listener.sent) == ([], 0, 0)


async def test_an_orderly_end_waits_for_what_is_under_way(store: Store) -> None:
    shop = Receivers(hung={"shop.example": asyncio.Event()})
    sends = notifier(store, await scheduler(store), shop)
    await submit(store, [1])
    async with running(sends):
        await eventually(lambda: shop.under_way == 1, "it is under way")
        ending = asyncio.ensure_future(sends.drain(20))
        await submit(store, [2])
        shop.hung["shop.example"].set()
        await ending
        assert [v.task for v in await store.notices.listeners()] == [2]
    assert len(shop.got) == 1


def test_waits_grow_to_a_limit_and_follow_what_the_receiver_asks() -> None:
    rng, patience = random.Random(1), Patience()
    waits = [patience.after(n, None, rng) for n in range(1, 12)]
    assert 3.7 < waits[0] < 6.3
    assert waits[:6] == sorted(waits[:6])
    assert max(waits) <= 21_600
    assert sum(waits) > 86_400  # more than a day before it is given up
    assert patience.after(1, 120.0, rng) == 120
    assert patience.after(1, 1e9, rng) == 21_600


# The whole


async def test_a_task_tells_its_states_while_it_runs(store: Store) -> None:
    app, chain = chain_app(2)
    shop = Receivers()
    options = Options(
        heartbeat="1h",
        dead_after="3h",
        poll_every=None,
        drain="5s",
        webhook_hosts="*.example",
        webhook_secret="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
    )
    async with Node(app, store, roles=("scheduler", "agent"), options=options) as node:
        assert node._notifier is not None
        node._notifier.delivery.poster = shop
        task = await node.client.submit(chain, "a", reply_to="https://shop.example/", correlation_id="c-1")
        await task.result(timeout="60s")
        await told(store)
        assert (await task.status()).reply_to == "https://shop.example/"
    assert shop.got == [(task.id, 1), (task.id, 2), (task.id, 3)]


async def test_a_node_refuses_what_it_would_not_send_to(store: Store) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=("scheduler", "agent"), options=Options(poll_every=None)) as node:
        with pytest.raises(ConfigError, match="webhook_hosts"):
            await node.client.submit(chain, "a", reply_to="https://shop.example/")
        with pytest.raises(ConfigError, match="queue:NAME"):
            await node.client.submit(chain.plan("a").with_(reply_to="shop"))
        assert await node.client.find() == []
    with pytest.raises(ConfigError, match="webhook_secret"):
        await Node(app, store, options=Options(webhook_hosts="shop.example")).start()


async def test_a_process_warns_when_it_starts_with_one_secret_for_several_receivers(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = (f"whsec_{name * 32}" for name in "ab")
    several = Options(webhook_hosts="a.example c.example", webhook_secret=one, poll_every=None)
    async with Node(None, store, roles=("scheduler",), options=several):
        assert "one secret signs what is posted to a.example, c.example" in caplog.text
    caplog.clear()
    each = Options(
        webhook_hosts="a.example c.example",
        webhook_secret=one,
        webhook_secrets={"c.example": two},
        poll_every=None,
    )
    async with Node(None, store, roles=("scheduler",), options=each):
        assert "one secret" not in caplog.text
    assert one not in caplog.text


def test_the_settings_are_checked_when_they_are_made() -> None:
    with pytest.raises(ConfigError, match="webhook_tries"):
        Options(webhook_tries=0)
    assert "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" not in repr(
        Options(webhook_secret="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0")
    )
    assert mg.Options(webhook_timeout="3s").number("webhook_timeout") == 3


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("update {listener} set url = 'gopher://shop.example/x' where task = 1", "is no URL"),
        ("update {listener} set url = 'http://[' where task = 1", "is no URL"),
        ("update {listener} set url = '', host = '' where task = 1", "is no URL"),
        ("update {notice} set body = ? where task = 1", "is unreadable"),
    ],
)
async def test_a_listener_or_a_notice_that_does_not_read_is_given_up_and_the_others_are_told(
    store: Store, world: World, sql: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The notifier of every process ended of such an address."""
    receivers = Receivers()
    await submit(store, [1, 2])
    async with world.raw() as raw:
        await raw.run(sql, *([b"\xff"] if "?" in sql else []))
    sends = notifier(store, await scheduler(store), receivers)
    async with running(sends) as _:

        async def given_up() -> bool:
            return any(alert.kind == "dead_letter" for alert in await store.alerts.views())

        await until(given_up, "the alert")
        await until_sent(receivers)
    (alert,) = await store.alerts.views()
    assert (alert.kind, alert.task) == ("dead_letter", 1)
    assert text in alert.text
    assert [view.task for view in await store.notices.listeners(dead=True)] == [1]
    assert "is not among webhook_hosts here" not in caplog.text, "it waits for no other process"


async def until_sent(receivers: Receivers) -> None:
    """Wait until something has arrived."""

    async def arrived() -> bool:
        return bool(receivers.got)

    await until(arrived, "the other notice")


@pytest.mark.parametrize(
    "url", ["nats://127.0.0.1:9?creds=/nowhere", "amqps://127.0.0.1?cafile=/nowhere", "kafka+tls://127.0.0.1:9?sslrootcert=/nowhere"]
)  # fmt: skip
async def test_a_process_whose_settings_of_a_broker_cannot_be_used_does_not_start(
    store: Store, url: str
) -> None:
    """It would take notices that other processes can send, and gave them up for good."""
    options = Options(brokers={"main": url}, reply_to_brokers=f"{url[:4]}:main/x".replace("kafk:", "kafka:"))
    with pytest.raises(ConfigError, match=r"the URL of 'main': .*(cannot be read|can be read)"):
        await Node(None, store, roles=("scheduler",), options=options).start()
