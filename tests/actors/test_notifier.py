"""The notifier: each notice arrives, those of one task in order, whoever sends and whoever dies."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

import makegood as mg
from makegood.clock import SystemClock
from makegood.errors import ConfigError, DeliveryError
from makegood.messages import Act
from makegood.node import Node
from makegood.notifier import ABANDONED, Notifier, Patience
from makegood.options import Options
from makegood.posting import Hosts, RefusedTargetError
from makegood.store.protocol import Store
from tests.actors.benchapp import chain_app
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
    made = Notifier(
        store,
        poster,
        more.pop("hosts", HOSTS),
        clock=SystemClock(),
        rng=random.Random(more.pop("seed", 1)),
        **{"poll": None, **more},
    )
    made.node = node
    return made


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
    await store.submit([draft(n, reply_to=f"https://{host}/hook") for n in tasks])


async def told(store: Store) -> None:
    async def nothing() -> bool:
        return not await store.listeners()

    await until(nothing)


async def alerted(store: Store) -> bool:
    return bool(await store.alerts())


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
        return all(v.dead for v in await store.listeners(1000))

    await submit(store, range(1, 51), "dead.example")
    await submit(store, range(51, 101))
    async with running(notifier(store, node, shop, patience=AT_ONCE)):
        await eventually(lambda: len(shop.got) == 50, "the others")
        await until(given_up)
        assert {v.tries for v in await store.listeners(1000)} == {3}
        assert [a.kind for a in await store.alerts(1000)] == ["dead_letter"] * 50
        shop.down.clear()
        assert len(await store.retry_notices(Act("a"))) == 50
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


async def test_who_wants_nothing_more_is_given_up_at_once(store: Store) -> None:
    node, shop = await scheduler(store), Receivers(gone={"gone.example"})
    await submit(store, [1], "gone.example")
    async with running(notifier(store, node, shop)):
        await until(lambda: alerted(store))
    (listener,) = await store.listeners(dead=True)
    assert (listener.tries, listener.error) == (1, "answered 410")


async def test_a_host_that_only_others_may_send_to_is_left_to_them_for_a_while(
    store: Store, other: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says so, once."""
    here, there, shop = await scheduler(store), await scheduler(other), Receivers()
    await submit(store, [1])
    unable = notifier(store, here, shop, hosts=Hosts([]))
    for _ in range(2):
        assert await unable._turn() is not None
    assert not unable._posts
    said = "a notice for shop.example waits: it is not among webhook_hosts here"
    assert caplog.text.count(said) == 1
    async with running(notifier(other, there, shop)):
        await told(store)
    await submit(store, [2])
    await world.elapse(ABANDONED + 10)
    async with running(unable):
        await until(lambda: alerted(store))
    (alert,) = await store.alerts()
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


async def test_a_process_that_was_stopped_between_taking_and_posting_does_not_post(store: Store) -> None:
    shop = Receivers()
    sent = notifier(store, await scheduler(store), shop)
    await submit(store, [1])
    found = await store.notices_due()
    (due,) = await store.take_notices(sent.node, [(h.host, 1) for h in found], 30)
    await sent._one(due, sent._clock.monotonic() - 21)
    assert (shop.got, sent._settled) == ([], [])


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
        assert [v.task for v in await store.listeners()] == [2]
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
        life="3h",
        poll=None,
        drain="5s",
        webhook_hosts="*.example",
        webhook_secret="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0",
    )
    async with Node(app, store, roles=("scheduler", "agent"), options=options) as node:
        assert node.notifier is not None
        node.notifier.poster = shop
        task = await node.client.submit(chain, "a", reply_to="https://shop.example/", correlation_id="c-1")
        await task.result(timeout="20s")
        await told(store)
        assert (await task.status()).reply_to == "https://shop.example/"
    assert shop.got == [(task.id, 1), (task.id, 2), (task.id, 3)]


async def test_a_node_refuses_what_it_would_not_send_to(store: Store) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=("scheduler", "agent"), options=Options(poll=None)) as node:
        with pytest.raises(ConfigError, match="webhook_hosts"):
            await node.client.submit(chain, "a", reply_to="https://shop.example/")
        with pytest.raises(ConfigError, match="queue:NAME"):
            await node.client.submit(chain.plan("a").with_(reply_to="shop"))
        assert await node.client.find() == []
    with pytest.raises(ConfigError, match="webhook_secret"):
        await Node(app, store, options=Options(webhook_hosts="shop.example")).start()


def test_the_settings_are_checked_when_they_are_made() -> None:
    with pytest.raises(ConfigError, match="webhook_tries"):
        Options(webhook_tries=0)
    assert "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" not in repr(
        Options(webhook_secret="whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0")
    )
    assert mg.Options(webhook_timeout="3s").number("webhook_timeout") == 3
