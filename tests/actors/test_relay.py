"""The relay: an entry of an outbox in another database becomes one message for ever, whoever carries it and dies over it."""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.messaging.outbox import Outbox, TakenEntries, ddl, open_outbox
from makegood.messaging.relay import Relay
from makegood.node.node import Node
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.conformance.worlds import World


class Source:
    """A database of the application's own. ``run`` executes a statement in it, with ``?`` for values, and returns the rows."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement and commit."""
        if self.url.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file:
                records = file.execute(sql, values).fetchall()
                file.commit()
                return records
        import asyncpg  # noqa: PLC0415 - it is an extra

        connection = await asyncpg.connect(self.url)
        try:
            for n in range(len(values)):
                sql = sql.replace("?", f"${n + 1}", 1)
            return [tuple(row) for row in await connection.fetch(sql, *values)]
        finally:
            await connection.close()

    async def put(
        self, key: str, payload: str = "1", queue: str = "orders", reply_to: str | None = None
    ) -> None:
        """Leave an entry, as an application does."""
        await self.run(
            "insert into makegood_outbox (key, queue, payload, reply_to) values (?, ?, ?, ?)",
            key,
            queue,
            payload,
            reply_to,
        )

    async def keys(self) -> list[str]:
        """Return the keys of the entries that are there."""
        return [row[0] for row in await self.run("select key from makegood_outbox order by seq")]


@pytest.fixture(params=["sqlite", "postgres"])
def source(request: pytest.FixtureRequest, tmp_path: Path, runner: asyncio.Runner) -> Iterator[Source]:
    """An application's database, with an empty outbox."""
    if request.param == "sqlite":
        new_source = Source(f"sqlite:///{tmp_path / 'app.db'}")
        runner.run(new_source.run(ddl(new_source.url)))
        yield new_source
        return
    databases = request.getfixturevalue("databases")
    if isinstance(databases, str):
        pytest.skip(f"postgres: {databases}")
    new_source = Source(runner.run(databases.create()))
    runner.run(new_source.run(ddl(new_source.url)))
    yield new_source
    runner.run(databases.drop(new_source.url))


Carry = Callable[..., Relay]


@pytest.fixture
def carry(source: Source, runner: asyncio.Runner) -> Iterator[Carry]:
    """Makes relays that nobody runs."""
    outboxes: list[Outbox] = []

    def make(
        store: Any,
        most: int = 1000,
        around: Callable[[Outbox], Outbox] = lambda outbox: outbox,
        most_bytes: int = 1 << 30,
    ) -> Relay:
        outboxes.append(open_outbox(source.url))
        return Relay(store, around(outboxes[-1]), most=most, most_bytes=most_bytes, rng=random.Random(1))

    yield make
    for outbox in outboxes:
        runner.run(outbox.close())


async def waiting(store: Store, queue: str = "orders") -> list[str]:
    """Return the ids of the messages that wait."""
    return [view.message.id for view in await store.queues.messages(queue)]


async def take_all(store: Store, queue: str = "orders") -> None:
    """Receive and acknowledge what waits."""
    delivery = await store.queues.receive_messages(queue, "me", 1000, 60.0, 9)
    await store.queues.acknowledge_messages([(m.seq, m.tries) for m in delivery.messages])


async def test_what_was_left_is_a_message_under_its_key_and_gone(
    store: Store, source: Source, carry: Carry
) -> None:
    await source.put("o-1", '{"id": "o-1"}', reply_to="queue:web")
    await source.put("o-2")
    carrier = carry(store)
    assert await carrier.turn() == 2
    first, second = (view.message for view in await store.queues.messages("orders"))
    assert (first.id, first.value, first.reply_to, second.id) == ("o-1", {"id": "o-1"}, "queue:web", "o-2")
    assert await source.keys() == []
    assert await carrier.turn() == 0


async def test_a_key_is_carried_once_for_ever(
    store: Store, source: Source, carry: Carry, world: World
) -> None:
    """Also when the message was handled long ago and the application leaves the key once more."""
    carrier = carry(store)
    await source.put("o-1")
    await carrier.turn()
    await take_all(store)
    await world.elapse(400 * 86_400)
    await store.queues.expire_messages(100)
    await source.put("o-1")
    await carrier.turn()
    assert await source.keys() == await waiting(store) == []
    await source.put("o-1", queue="others")
    await carrier.turn()
    assert await waiting(store, "others") == ["o-1"], "it is once for each queue"


class Dying:
    """An outbox whose relay dies between take-over and deletion."""

    def __init__(self, inner: Outbox) -> None:
        self.inner = inner
        self.where = inner.where

    async def open(self) -> None:
        """See that it can be read."""

    async def close(self) -> None:
        """Let go."""
        await self.inner.close()

    @asynccontextmanager
    async def take(self, limit: int, without: Sequence[str]) -> AsyncIterator[TakenEntries]:
        """Give entries whose settling fails."""
        async with self.inner.take(limit, without) as taking:
            yield _Deadly(taking)


class _Deadly:
    def __init__(self, taking: TakenEntries) -> None:
        self.entries = taking.entries
        self.more = taking.more

    async def settle(self, successes: Sequence[int], refusals: Sequence[tuple[int, str]]) -> None:
        raise mg.StoreUnavailableError("gone")


async def test_who_dies_before_the_deletion_leaves_no_second_message(
    store: Store, source: Source, carry: Carry
) -> None:
    await source.put("o-1")
    with pytest.raises(mg.StoreUnavailableError):
        await carry(store, around=Dying).turn()
    assert await waiting(store) == ["o-1"]
    await take_all(store)
    assert await source.keys() == ["o-1"]
    await carry(store).turn()
    assert await source.keys() == await waiting(store) == []


async def test_an_entry_whose_key_its_queue_has_with_another_value_is_told(
    store: Store, source: Source, carry: Carry, caplog: pytest.LogCaptureFixture
) -> None:
    await source.put("o-1", "1")
    await carry(store).turn()
    assert caplog.text == ""
    await source.put("o-1", "2")
    await carry(store).turn()
    assert await source.keys() == []
    assert "queue orders has a message o-1 with another value" in caplog.text
    assert [view.message.value for view in await store.queues.messages("orders", 10)] == [1]


async def test_several_at_once_carry_each_key_once(
    store: Store, other: Store, source: Source, carry: Carry
) -> None:
    marks = ", ".join(f"('o-{n:03}', 'orders', '1')" for n in range(600))
    await source.run(f"insert into makegood_outbox (key, queue, payload) values {marks}")
    carriers = [carry(s) for s in (store, other, store, other)]
    while await source.keys():
        for outcome in await asyncio.gather(*(c.turn() for c in carriers), return_exceptions=True):
            assert isinstance(outcome, int | mg.StoreUnavailableError), (
                outcome
            )  # SQLite may say that it is locked
    ids = [view.message.id for view in await store.queues.messages("orders", 1000)]
    assert sorted(ids) == [f"o-{n:03}" for n in range(600)]


async def test_what_no_queue_can_take_is_set_aside_with_an_alert_and_goes_on_when_it_is_mended(
    store: Store, source: Source, carry: Carry
) -> None:
    bad = [
        ("json", "{", "orders", None),
        ("queue", "1", "or ders", None),
        ("reply", "1", "orders", "mailto:ann"),
        ("large", f'"{"x" * (1 << 20)}"', "orders", None),
        ("", "1", "orders", None),
        ("deep", "[" * 2000 + "]" * 2000, "orders", None),
    ]
    for key, payload, queue, reply_to in bad:
        await source.put(key, payload, queue, reply_to)
    await source.put("good")
    carrier = carry(store)
    assert await carrier.turn() == 7
    assert await carrier.turn() == 0
    assert await waiting(store) == ["good"]
    assert await source.keys() == [one[0] for one in bad]
    alerts = {alert.step.rpartition("/")[2]: alert for alert in await store.alerts.views()}
    assert {alert.kind for alert in alerts.values()} == {"dead_letter"}
    assert "is not JSON" in alerts["json"].text
    assert "nested too deeply" in alerts["deep"].text
    assert "secret" not in alerts["json"].text
    await source.run("update makegood_outbox set payload = '2', error = null where key = 'json'")
    await source.run("update makegood_outbox set queue = 'orders', error = null where key = 'queue'")
    await carrier.turn()
    assert await waiting(store) == ["good", "json", "queue"]
    assert {alert.id for alert in await store.alerts.views(ended=False)} == {
        alert.id for key, alert in alerts.items() if key not in ("json", "queue")
    }
    assert {a.ended_why for a in await store.alerts.views(ended=True)} == {"fixed, and sent to its queue"}


async def test_a_full_queue_holds_up_its_own_entries_only(
    store: Store, source: Source, carry: Carry, caplog: pytest.LogCaptureFixture
) -> None:
    carrier = carry(store, most=2)
    for n in range(4):
        await source.put(f"o-{n}")
    await source.put("mail", queue="mails")
    await carrier.turn()
    assert await waiting(store, "mails") == ["mail"]
    assert await waiting(store) == ["o-0", "o-1"], "what there was room for, in order"
    assert caplog.text == ""
    await carrier.turn()
    assert "queue orders is full: 2 messages wait in it, and its limit is 2" in caplog.text
    await source.put("mail-2", queue="mails")
    assert await carrier.turn() == 1, "the full one is left alone for a while"
    assert await source.keys() == ["o-2", "o-3"]


async def test_more_entries_than_a_queue_may_hold_go_as_room_comes_each_once(
    store: Store, source: Source, carry: Carry
) -> None:
    """A relay had sent some and not deleted them when it died."""
    keys = [f"o-{n:02}" for n in range(25)]
    for key in keys:
        await source.put(key)
    with pytest.raises(mg.StoreUnavailableError):
        await carry(store, most=7, around=Dying).turn()
    read: list[str] = []
    while await source.keys():
        await carry(store, most=7).turn()
        there = await waiting(store)
        assert len(there) <= 7
        read += there
        await take_all(store)
    assert read == keys


async def test_a_node_carries_and_makes_tasks_of_it(store: Store, source: Source) -> None:
    app = mg.App("shop")
    stock = app.agent("stock")

    @stock.action(complete_within="20s", undo=mg.NOTHING)
    async def reserve(order: str) -> str:
        return f"hold of {order}"

    @app.workflow
    def place_order(order: str) -> str:
        return reserve(order)

    @app.inbox("orders")
    def accept(order: str, tx: mg.Transaction) -> mg.Plan[str]:
        return place_order.plan(order).with_(key=order)

    async with Node(app, store, options=QUIET, outbox=source.url) as node:
        assert node.roles == ("scheduler", "agent", "supervisor", "inbox", "relay")
        await source.put("o-1", '"lamp"', reply_to="queue:web")
        states: list[str] = []
        async for message in node.client.queue("web"):
            states.append(message.value["data"]["state"])
            if states[-1] == "processed":
                break
    assert states == ["received", "processing", "processed"]
    assert await source.keys() == []


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _: "mysql://db/shop", "an outbox is in sqlite:///"),
        (lambda _: "sqlite://shop.db", "for an absolute path"),
        (lambda folder: f"sqlite:///{folder}/none.db", "no such file"),
        (lambda folder: f"sqlite:///{folder}/bare.db", "--ddl` prints"),
        (
            lambda _: "postgresql://me:secret@127.0.0.1:1/none",
            "127.0.0.1:1, database none, user me refuses connections: is PostgreSQL running",
        ),
    ],
)
async def test_an_outbox_that_is_none_is_refused_with_the_remedy(
    store: Store, tmp_path: Path, make: Callable[[Path], str], why: str
) -> None:
    sqlite3.connect(tmp_path / "bare.db").close()
    with pytest.raises(mg.MakegoodError, match=why) as error:
        async with Node(None, store, roles=(), options=QUIET, outbox=make(tmp_path)):
            raise AssertionError("it started")
    assert "secret" not in str(error.value)


def test_the_role_needs_the_outbox() -> None:
    with pytest.raises(mg.ConfigError, match=r"Node\(..., outbox=URL\)"):
        Node(None, "sqlite:///nowhere.db", roles=("relay",))


async def test_a_missing_table_in_postgres_names_the_statement(databases: Any) -> None:
    if isinstance(databases, str):
        pytest.skip(f"postgres: {databases}")
    url = await databases.create()
    with pytest.raises(mg.ConfigError, match="--ddl"):
        await open_outbox(url).open()
    await databases.drop(url)


async def test_large_entries_go_in_portions_and_none_is_left(
    store: Store, source: Source, carry: Carry
) -> None:
    """A batch of them is not read at once; whether there are more is known, so that the relay does not rest in between."""
    for n in range(6):
        await source.put(f"o-{n}", '"' + "x" * 1_000_000 + '"')
    outbox = open_outbox(source.url)
    try:
        async with outbox.take(200, ()) as taking:
            assert [entry.key for entry in taking.entries] == [f"o-{n}" for n in range(5)]
            assert taking.more
    finally:
        await outbox.close()
    carrier = carry(store)
    assert [await carrier.turn() for _ in range(3)] == [5, 1, 0]
    assert await waiting(store) == [f"o-{n}" for n in range(6)]


async def test_a_queue_is_given_as_many_bytes_as_it_has_room_for(
    store: Store, source: Source, carry: Carry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makegood.messaging.queue_feed.FULL", 0.0)
    for n in range(4):
        await source.put(f"o-{n}", '"' + "x" * 398 + '"')
    await source.put("other", "1", queue="others")
    carrier = carry(store, most_bytes=1000)
    await carrier.turn()
    assert await source.keys() == ["o-2", "o-3"]
    assert await waiting(store, "others") == ["other"]
    await take_all(store)
    await carrier.turn()
    assert await source.keys() == []
