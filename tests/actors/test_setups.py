"""Setups: opened once in each process before the first call that needs them, given by name, closed at the drain."""

import asyncio
import contextlib
import logging
import random
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

import makegood as mg
from makegood.agent.open_setups import OpenSetups
from makegood.agent.slots import Slots
from makegood.base.pacing import event_within
from makegood.node.heartbeat import Heartbeat
from makegood.node.node import Node
from makegood.node.roles import slots_of
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.telemetry.log_lines import JsonLines
from makegood.testing.simulator.loop import WorldLoop
from tests.actors.conftest import QUIET
from tests.waiting import until

QUICK = Options(poll_every="50ms", alerts_every=None, leaderless_after=None, drain="10s")


class Pool:
    """What a setup opens."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.is_open = True
        log.append(f"{name} opens")

    def close(self) -> None:
        """Close it."""
        self.is_open = False
        self.log.append(f"{self.name} closes")


class Shop:
    """An app with a blocking setup, an awaited one that uses it, and an agent that needs neither."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails = 0
        """How often the awaited setup fails."""
        self.app = app = mg.App("shop")
        desk, till = app.agent("desk"), app.agent("till")

        @app.setup
        def config() -> Iterator[Pool]:
            assert threading.current_thread() is not threading.main_thread()
            pool = Pool("config", self.log)
            yield pool
            pool.close()

        @app.setup
        @contextlib.asynccontextmanager
        async def db(*, config: Pool = mg.SETUP) -> AsyncIterator[Pool]:
            if self.fails:
                self.fails -= 1
                raise OSError("the database is away")
            assert config.is_open
            pool = Pool("db", self.log)
            yield pool
            assert config.is_open
            pool.close()

        @desk.action(complete_within="1m")
        async def charge(cents: int, *, db: Pool = mg.SETUP) -> str:
            assert db.is_open
            self.log.append("charge")
            if cents < 0:
                raise ConnectionError("lost")
            return db.name

        @charge.undo
        def refund(cents: int, *, result: str | None, db: Pool = mg.SETUP, config: Pool = mg.SETUP) -> None:
            self.log.append(f"refund by {db.name} and {config.name}")

        @charge.probe
        async def find(cents: int, *, db: Pool = mg.SETUP) -> mg.Happened[str] | mg.NotHappened:
            self.log.append(f"probe by {db.name}")
            return mg.NOT_HAPPENED

        @till.action(complete_within="1m", undo=mg.NOTHING)
        async def ring(cents: int) -> int:
            self.log.append("ring")
            return cents

        @app.workflow
        def order(cents: int) -> str:
            return charge(cents)

        @app.workflow
        def rings(cents: int) -> int:
            return ring(cents)

        self.order, self.rings, self.charge = order, rings, charge


async def test_a_setup_is_opened_once_before_the_first_call_and_closed_in_reverse_order(store: Store) -> None:
    shop = Shop()
    async with Node(shop.app, store, options=QUICK) as node:
        tasks = [await node.client.submit(shop.order, n) for n in range(5)]
        assert [await task.result("60s") for task in tasks] == ["db"] * 5
        await tasks[0].undo()
        assert (await tasks[0].wait("60s")).state == "undone"
    assert shop.log == [
        "config opens", "db opens", *["charge"] * 5, "refund by db and config", "db closes", "config closes",
    ]  # fmt: skip


async def test_a_setup_is_no_argument_of_the_step(store: Store) -> None:
    shop = Shop()
    plan = shop.order.plan(7)
    assert plan.steps[0].args is not None
    assert "db" not in "".join(plan.steps[0].args.parts)
    async with Node(shop.app, store, options=QUICK) as node:
        task = await node.client.submit(plan)
        await task.result("60s")
        (step,) = (await task.status()).steps
        assert step.plan is not None
        assert step.plan.args is not None
        assert "".join(step.plan.args.parts) == '{"cents":}'
    fake = Pool("fake", [])
    assert await shop.charge.fn(7, db=fake) == "fake"


async def test_a_probe_and_a_repeated_try_get_it_too(store: Store) -> None:
    shop = Shop()
    shop.charge.retry = mg.Retry(tries=2, wait="1ms")
    async with Node(shop.app, store, options=QUICK) as node:
        task = await node.client.submit(shop.order, -1)
        await until(lambda: _true("probe by db" in shop.log), "the probe")
        assert shop.log.count("charge") >= 2
        await task.cancel()
        await task.wait("60s")


async def _true(value: object) -> object:
    return value


async def test_while_a_setup_fails_only_the_agents_that_need_it_begin_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again with pauses; an alert says so, and ends once it works."""
    shop = Shop()
    shop.fails = 4
    async with Node(shop.app, store, options=QUICK) as node:
        task = await node.client.submit(shop.order, 1)
        assert await (await node.client.submit(shop.rings, 2)).result("60s") == 2
        assert "charge" not in shop.log
        assert await task.result("60s") == "db"

        async def alerts() -> list[Any]:
            return [a for a in await node.client.alerts(ended=True) if a.kind == "role_failing"]

        await until(_ended(alerts), "the alert to end")
        (alert,) = await alerts()
    assert alert.step == "agents (setup)"
    assert "the setup db of app shop" in alert.text
    assert "the database is away" in alert.text
    assert shop.log.count("config opens") == 1, "what is open stays open"
    assert caplog.text.count("begin no calls until it works") == 4


async def test_an_alert_that_cannot_be_written_ends_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as by a login with the rights of an earlier version."""

    async def denied(*_: Any) -> None:
        raise mg.ConfigError("permission denied")

    monkeypatch.setattr(store.alerts, "alert", denied)
    shop = Shop()
    shop.fails = 4
    async with Node(shop.app, store, options=QUICK) as node:
        assert await (await node.client.submit(shop.order, 1)).result("60s") == "db"
        assert node.dead() == ""
    assert "the alert about a setup could not be written: ConfigError" in caplog.text


def _ended(alerts: Any) -> Any:
    async def ended() -> bool:
        alert_list = await alerts()
        return bool(alert_list) and alert_list[0].ended is not None

    return ended


async def test_a_process_that_needs_no_setup_opens_none(store: Store) -> None:
    shop = Shop()
    async with Node(shop.app, store, agents=["till"], options=QUICK) as node:
        assert await (await node.client.submit(shop.rings, 2)).result("60s") == 2
    async with Node(shop.app, store, roles=("scheduler",), options=QUIET):
        pass
    assert shop.log == ["ring"]


async def test_values_in_place_of_setups(store: Store) -> None:
    shop = Shop()
    fake = Pool("fake", [])
    async with Node(shop.app, store, options=QUICK, setups={"db": fake, "config": fake}) as node:
        assert await (await node.client.submit(shop.order, 1)).result("60s") == "fake"
    assert shop.log == ["charge"]
    with pytest.raises(mg.ConfigError, match="declares no setup of this name; it has config, db"):
        Node(shop.app, store, setups={"dbb": fake})


async def test_a_setup_that_cannot_be_closed_does_not_keep_the_others_open(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, log = mg.App("shop"), list[str]()
    desk = app.agent("desk")

    @app.setup
    def first() -> Iterator[Pool]:
        pool = Pool("first", log)
        yield pool
        pool.close()

    @app.setup
    async def second(*, first: Pool = mg.SETUP) -> AsyncIterator[int]:
        yield 2
        raise OSError("it hangs")

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    def work(n: int, *, second: int = mg.SETUP) -> int:
        return n + second

    @app.workflow
    def flow(n: int) -> int:
        return work(n)

    async with Node(app, store, options=QUICK) as node:
        assert await (await node.client.submit(flow, 1)).result("60s") == 3
    assert log == ["first opens", "first closes"]
    assert "could not be closed" in caplog.text


async def test_setups_that_do_not_close_in_time_are_cancelled_one_after_the_other(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that closes two things, and those after it: the node ends, and leaves no task behind."""
    app, log, never, returns = mg.App("shop"), list[str](), asyncio.Event(), threading.Event()

    @app.setup
    def blocks() -> Iterator[int]:
        yield 1
        returns.wait()

    @app.setup
    async def waits() -> AsyncIterator[int]:
        yield 2
        try:
            await never.wait()
        finally:
            log.append("waits")

    @app.setup
    async def waits_twice() -> AsyncIterator[int]:
        yield 3
        try:
            await never.wait()
        finally:
            log.append("once")
            try:
                await never.wait()
            finally:
                log.append("twice")

    @app.agent("desk").action(complete_within="1m", undo=mg.NOTHING)
    def work(n: int, *, blocks: int = mg.SETUP, waits: int = mg.SETUP, waits_twice: int = mg.SETUP) -> int:
        return n + blocks + waits + waits_twice

    @app.workflow
    def flow(n: int) -> int:
        return work(n)

    before = asyncio.all_tasks()
    async with asyncio.timeout(60):
        async with Node(app, store, options=replace(QUICK, drain="1s")) as node:
            assert await (await node.client.submit(flow, 1)).result("60s") == 7
        await until(lambda: _true(asyncio.all_tasks() <= before), "the setups to end")
    assert log == ["once", "twice", "waits"]
    assert "the setups could not be closed within 1.0 s (the setup waits_twice of app shop" in caplog.text
    returns.set()


@pytest.mark.parametrize(("seconds", "lines"), [(9, 0), (25, 1)])
def test_a_setup_that_takes_long_to_open_is_logged_once(
    caplog: pytest.LogCaptureFixture, seconds: int, lines: int
) -> None:
    """In virtual time: a setup that hangs would be silent else."""
    app = mg.App("shop")

    @app.setup
    async def db() -> AsyncIterator[int]:
        await event_within(asyncio.Event(), seconds)
        yield 1

    @app.agent("desk").action(complete_within="1m", undo=mg.NOTHING)
    def work(n: int, *, db: int = mg.SETUP) -> int:
        return n + db

    slots, rng, ready = slots_of(app, None, None), random.Random(1), list[Slots]()
    loop = WorldLoop(rng)

    async def story() -> None:
        setups = OpenSetups(slots, {}, on_ready=ready.append, alerts=None, rng=rng)
        running = asyncio.create_task(setups.run())
        await event_within(asyncio.Event(), 30)
        await setups.close(1.0)
        await running

    with closing(loop):
        loop.run_until_complete(story())
    assert ready == list(slots.values())
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == lines
    assert all("the setup db of app shop" in line for line in warnings)
    assert all("is still opening after 10 s" in line for line in warnings)


async def test_a_node_whose_actor_dies_closes_its_setups(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, dies = Shop(), asyncio.Event()

    async def run(_: Heartbeat) -> None:
        await dies.wait()
        raise RuntimeError("it died")

    monkeypatch.setattr(Heartbeat, "run", run)
    node = Node(shop.app, store, options=QUICK)
    await node.start()
    assert await (await node.client.submit(shop.order, 1)).result("60s") == "db"
    dies.set()
    await until(lambda: _true(node.dead()), "the actor to die")
    await node.stop()
    assert shop.log[-2:] == ["db closes", "config closes"]


def test_sync_nodes_have_them_as_well(tmp_path: Any) -> None:
    shop = Shop()
    with mg.SyncNode(shop.app, f"sqlite:///{tmp_path}/shop.db", options=Options(migrate=True)) as node:
        assert node.client.submit(shop.order, 1).result("60s") == "db"
    assert shop.log == ["config opens", "db opens", "charge", "db closes", "config closes"]


PASSWORD = "xqzjv-kwyqx"


def connect(url: str) -> Pool:
    """Fail as a driver does."""
    raise OSError(f"no route to {url}")


def leaky_app(*, at_close: bool) -> mg.App:
    """Return an app whose setup and inbox have a password in their code, and fail."""
    app = mg.App("shop")

    @app.setup
    def db() -> Iterator[Pool]:
        if not at_close:
            connect("postgres://shop:xqzjv-kwyqx@10.0.0.1/shop")
        yield Pool("db", [])
        connect("postgres://shop:xqzjv-kwyqx@10.0.0.1/shop")

    @app.agent("desk").action(complete_within="1m", undo=mg.NOTHING)
    def look(order: int, *, db: Pool = mg.SETUP) -> int:
        return order

    @app.inbox("orders", retry=mg.Retry(tries=1))
    def accept(order: int, tx: mg.Transaction) -> None:
        connect("postgres://shop:xqzjv-kwyqx@10.0.0.1/shop")

    @app.workflow
    def order(number: int) -> int:
        return look(number)

    return app


@pytest.mark.parametrize("at_close", [False, True], ids=["at its opening", "at its end"])
async def test_a_password_in_the_code_of_a_setup_or_an_inbox_reaches_no_log(
    store: Store, caplog: pytest.LogCaptureFixture, at_close: bool
) -> None:
    """The traceback is there, whatever formats it, and the password covered."""
    caplog.set_level(logging.INFO)
    app = leaky_app(at_close=at_close)
    async with Node(app, store, options=QUICK) as node:
        await node.client.submit(app.workflows["order"], 1)
        await node.client.send("orders", 7)
        await until(lambda: _true(at_close or "begin no calls" in caplog.text), "the failure")
        await until(lambda: _true("goes to the dead letters" in caplog.text), "the inbox")
        if at_close:
            await until(lambda: _true("is open" in caplog.text), "the setup")
    lines = caplog.text + "".join(JsonLines().format(record) for record in caplog.records)
    assert "could not be closed" in lines or not at_close
    assert "OSError: no route to postgres://shop:•••@10.0.0.1/shop" in lines
    assert lines.count('connect("postgres://shop:•••@10.0.0.1/shop")') >= 2
    assert PASSWORD not in lines
