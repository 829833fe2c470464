"""Queues as applications use them: sent, received, acknowledged, or else they come again; blocking code has the same."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.client import lease_keeper
from makegood.client.queues import Queue
from makegood.store.protocol import Queues, Store
from makegood.store.sqlite import slices
from tests.conformance.worlds import SQLiteWorld, World, eventually
from tests.waiting import moment


async def states(client: mg.Client, queue: str) -> list[tuple[str, int]]:
    """Return the messages that are in a queue, taken or not, with their tries."""
    return [(view.message.id, view.message.tries) for view in await client.messages(queue)]


async def test_what_is_sent_is_received_with_all_that_was_said(store: Store) -> None:
    async with mg.Client(store) as client:
        answer = await client.send(
            "orders", {"id": "o-1", "cents": 5}, id="o-1", reply_to="queue:web-7", correlation_id="c", kind="order",
            headers={"who": "ann"},
        )  # fmt: skip
        assert (answer.id, answer.created) == ("o-1", True)
        queue = client.queue("orders")
        (message,) = await queue.receive()
        assert message.value == {"id": "o-1", "cents": 5}
        assert message.read(dict[str, Any])["cents"] == 5
        assert (message.id, message.reply_to, message.correlation_id) == ("o-1", "queue:web-7", "c")
        assert (message.kind, message.headers, message.tries) == ("order", {"who": "ann"}, 1)
        assert await queue.acknowledge(message)
        assert await queue.receive(timeout=0) == []
        assert not (await client.send("orders", {}, id="o-1")).created, "its id is remembered"
        other_answer = await client.send("orders", 1)
        assert other_answer.created
        assert other_answer.id not in ("", "o-1")


async def test_another_value_under_a_known_id_is_told(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """To whoever sends, and to nobody else: the first one stays, and the log says nothing."""
    async with mg.Client(store) as client:
        await client.send("orders", {"cents": 5}, id="o-1")
        assert not (await client.send("orders", {"cents": 5}, id="o-1")).conflict
        answer = await client.send("orders", {"cents": 7}, id="o-1")
        assert (answer.created, answer.conflict) == (False, True)
        assert caplog.text == ""
        (message,) = await client.queue("orders").receive()
        assert message.value == {"cents": 5}


async def test_who_waits_gets_the_message_that_another_process_sends(store: Store, other: Store) -> None:
    """Without a poll: the wake-up alone brings it."""
    async with mg.Client(store, poll_every="1h") as client, mg.Client(other) as sender:
        waiting = asyncio.create_task(client.queue("web").receive(10))
        while not waiting.done():  # it may be sent before anybody waits, too
            await sender.send("web", "hello")
            await asyncio.wait([waiting], timeout=0.2)
        assert (await waiting)[0].value == "hello"


async def test_what_is_not_acknowledged_comes_again_after_its_lease(store: Store, world: World) -> None:
    async with mg.Client(store) as client:
        await client.send("web", 1, id="a")
        queue = client.queue("web", lease="10s")
        (first,) = await queue.receive()
        assert await queue.receive(timeout=0) == []
        await world.elapse(6)
        assert await queue.extend(first, lease="10s")
        await world.elapse(6)
        assert await queue.receive(timeout=0) == [], "it was held for longer"
        await world.elapse(5)
        (again,) = await queue.receive()
        assert (again.id, again.tries) == ("a", 2)
        assert not await queue.acknowledge(first), "it is another's by now"
        assert not await queue.extend(first, lease="10s")
        assert await queue.give_back(again, error="not now")
        (third,) = await queue.receive()
        assert (third.tries, third.error) == (3, "not now")
        assert await queue.give_back(third, error="never", dead=True)
        assert [view.message.error for view in await client.messages("web", dead=True)] == ["never"]
        (queue_view,) = await client.queues()
        assert (queue_view.queue, queue_view.waiting, queue_view.dead) == ("web", 0, 1)
        assert await client.replay_messages("web", ["a", "b"]) == ["a"]
        assert [m.tries for m in await queue.receive()] == [1]


async def test_a_message_that_kills_its_receivers_is_a_dead_letter(store: Store, world: World) -> None:
    async with mg.Client(store) as client:
        await client.send("web", 1, id="poison")
        queue = client.queue("web", lease="1s", tries=2)
        for _ in range(2):
            assert len(await queue.receive()) == 1
            await world.elapse(2)
        assert await queue.receive(timeout=0) == []
        assert [alert.kind for alert in await client.alerts()] == ["dead_letter"]
        assert await client.drop_messages("web") == ["poison"]
        assert await client.alerts() == []


async def test_a_loop_acknowledges_each_when_it_asks_for_the_next(store: Store) -> None:
    """By `break` or an exception nothing is said of the last one, and it comes again; what the body settled stays settled."""
    async with mg.Client(store) as client:
        for n in range(5):
            await client.send("web", n, id=str(n))
        queue = client.queue("web", lease="1h")
        async with aclosing(aiter(queue)) as messages:
            async for message in messages:
                if message.value == 1:
                    await queue.acknowledge(message)
                if message.value == 2:
                    await queue.give_back(message, wait="1h")
                if message.value == 3:
                    break
        assert await states(client, "web") == [("4", 0), ("2", 1), ("3", 1)]


def away(monkeypatch: pytest.MonkeyPatch, store: type | Queues, name: str, times: int = 2) -> list[str]:
    """Let a verb of a store be refused so often, for the store is away; returns its name once for each refusal, as they come."""
    real = getattr(store, name)
    refusals: list[str] = []

    async def verb(*args: Any) -> Any:
        if len(refusals) < times:
            refusals.append(name)
            raise mg.StoreUnavailableError("the database has gone")
        return await real(*args)

    monkeypatch.setattr(store, name, verb)
    return refusals


async def test_what_was_handled_is_said_once_the_store_is_back(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A listener's loop outlives an outage at each of its three calls, and its log tells of it."""
    async with mg.Client(store) as client:
        for n in range(3):
            await client.send("web", n, id=str(n))
        queue, values = client.queue("web", lease="1h"), []
        refusals = [
            away(monkeypatch, store.queues, f"{verb}_messages")
            for verb in ("receive", "acknowledge", "return")
        ]
        async with aclosing(aiter(queue)) as messages:
            async for message in messages:
                values.append(message.value)
                if message.value == 1:
                    assert await queue.give_back(message, wait="1h", error="not now")
                if message.value == 2:
                    break
        assert values == [0, 1, 2]
        assert [len(each) for each in refusals] == [2, 2, 2]
        assert sorted(await states(client, "web")) == [("1", 1), ("2", 1)]
        assert caplog.text.count("wait to be settled, the store is away: the database has gone") == 4


async def test_a_client_that_is_closed_in_an_outage_ends_the_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mg.Client(store)
    await client.open()
    await client.send("web", 1)
    queue = client.queue("web", lease="1h")
    refusals = away(monkeypatch, store.queues, "acknowledge_messages", times=1000)
    saying = asyncio.create_task(queue.acknowledge(*await queue.receive()))
    await eventually(lambda: refusals, "a refusal")
    await client.close()
    with pytest.raises(mg.ClosedError):
        await saying


def test_blocking_code_waits_through_an_outage_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mg.SyncClient(f"sqlite:///{tmp_path / 'a.db'}", migrate=True) as client:
        for n in range(2):
            client.send("web", n)
        queue = client.queue("web", lease="1h")
        refusals = [
            away(monkeypatch, slices.QueueSlice, f"{verb}_messages") for verb in ("acknowledge", "return")
        ]
        for message in queue:
            if message.value == 1:
                assert queue.give_back(message, wait="1h")
                break
        assert [len(each) for each in refusals] == [2, 2]
        assert [view.message.tries for view in client.messages("web")] == [1]


async def test_a_full_queue_refuses_and_takes_again_when_it_was_read(store: Store) -> None:
    async with mg.Client(store, queue_limit=2) as client:
        await client.send("orders", 1)
        await client.send("orders", 2)
        with pytest.raises(mg.QueueFullError, match="MAKEGOOD_QUEUE_LIMIT"):
            await client.send("orders", 3)
        queue = client.queue("orders")
        assert await queue.acknowledge(*await queue.receive(2))
        assert (await client.send("orders", 3)).created


async def test_an_unread_message_expires_and_a_delayed_one_comes_later(store: Store, world: World) -> None:
    async with mg.Client(store) as client:
        queue = client.queue("web")
        await client.send("web", "old", expires="5s")
        await client.send("web", "later", delay="10s")
        await world.elapse(6)
        assert await queue.receive(timeout=0) == []
        await world.elapse(5)
        assert [message.value for message in await queue.receive()] == ["later"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"queue": "or ders"}, "queue name 'or ders'"),
        ({"id": ""}, "id=''"),
        ({"id": "x" * 301}, "up to 300"),
        ({"reply_to": "mailto:ann"}, "reply_to"),
        ({"kind": "a\nb"}, "kind"),
        ({"expires": "0s"}, "expires='0s' must be"),
        ({"headers": {"n": 1}}, "headers: texts"),
        ({"correlation_id": "\0"}, "correlation_id"),
        ({"correlation_id": 7}, "correlation_id=7: .*a text"),
    ],
)
async def test_what_cannot_be_sent_is_refused_with_the_reason(
    store: Store, options: dict[str, Any], why: str
) -> None:
    async with mg.Client(store) as client:
        with pytest.raises(mg.ConfigError, match=why):
            await client.send(**{"queue": "orders", "value": 1, **options})
        with pytest.raises(mg.PayloadError):
            await client.send("orders", object())
        assert await client.queues() == []


async def test_a_client_that_is_closed_meanwhile_ends_the_waiting(store: Store) -> None:
    client = mg.Client(store, poll_every="10ms")
    with pytest.raises(mg.ClosedError):
        await client.send("web", 1)
    await client.open()
    waiting = asyncio.create_task(client.queue("web").receive())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(mg.ClosedError):
        await waiting


def test_blocking_code_has_the_same_queues(tmp_path: Path) -> None:
    with mg.SyncClient(f"sqlite:///{tmp_path / 'a.db'}", migrate=True, queue_limit=3) as client:
        queue = client.queue("web", lease="1h")
        assert queue.receive(timeout="10ms") == []
        for n in range(3):
            assert client.send("web", n, id=str(n)).created
        with pytest.raises(mg.QueueFullError):
            client.send("web", 3)
        for message in queue:
            if message.value == 1:
                assert queue.extend(message, lease="2h")
                assert queue.give_back(message, error="no", dead=True)
            if message.value == 2:
                break
        (left,) = client.messages("web")
        assert (left.message.id, left.taken_by is None) == ("2", False)
        assert [view.message.id for view in client.messages(dead=True)] == ["1"]
        assert client.replay_messages("web", who="ann", why="mended") == ["1"]
        assert [(view.kind, view.who, view.why) for view in client.audit()] == [
            ("replay_message", "ann", "mended")
        ]
        assert [(view.queue, view.waiting, view.taken) for view in client.queues()] == [("web", 1, 1)]
        assert client.drop_messages("web") == client.retry_notices() == client.drop_notices() == []
        assert client.notices() == []


def test_the_blocking_queue_has_the_names_and_parameters_of_the_other() -> None:
    def public(kind: type) -> dict[str, list[str]]:
        members = {name: m for name, m in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}
        return {name: list(inspect.signature(member).parameters) for name, member in members.items()}

    assert public(mg.SyncQueue) == public(Queue)


async def slow_turns(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, turns: int
) -> Callable[[], Awaitable[None]]:
    """Let leases be extended every few milliseconds; return what lets 15 s pass in the store, then waits for an extension."""
    monkeypatch.setattr(lease_keeper, "TIMES", turns)
    loop, extension = asyncio.get_running_loop(), asyncio.Event()
    real = type(store.queues).hold_messages

    async def hold_messages(self: Any, *args: Any) -> list[bool]:
        renewals = await real(self, *args)
        loop.call_soon_threadsafe(extension.set)
        return renewals

    monkeypatch.setattr(type(store.queues), "hold_messages", hold_messages)

    async def pass_by() -> None:
        await world.elapse(15)
        for _ in range(2):  # one may have been under way before
            extension.clear()
            async with asyncio.timeout(120):
                await extension.wait()

    return pass_by


async def test_a_loop_that_is_slower_than_the_lease_keeps_its_message(
    store: Store, other: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else gets it meanwhile, and it is acknowledged after one delivery."""
    pass_by = await slow_turns(store, world, monkeypatch, 3000)
    async with mg.Client(store) as client, mg.Client(other) as rival:
        await client.send("web", 1, id="slow")
        async with aclosing(aiter(client.queue("web", lease="30s"))) as messages:
            message = await anext(messages)
            for _ in range(4):
                await pass_by()
                assert await rival.queue("web").receive(timeout=0) == []
            assert (message.id, message.tries) == ("slow", 1)
            following = asyncio.ensure_future(anext(messages))
            async with asyncio.timeout(120):
                while await client.messages("web"):
                    await moment()
            following.cancel()
            await asyncio.wait([following])


async def test_a_blocking_loop_that_is_slower_than_the_lease_keeps_its_message(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is extended beside the loop's body, and no more once the loop was left."""
    monkeypatch.setattr(lease_keeper, "TIMES", 3000)
    turns = threading.Semaphore(0)
    real = type(store.queues).hold_messages

    async def hold_messages(self: Any, *args: Any) -> list[bool]:
        renewals = await real(self, *args)
        turns.release()
        return renewals

    monkeypatch.setattr(type(store.queues), "hold_messages", hold_messages)
    url = f"sqlite:///{world.path}" if isinstance(world, SQLiteWorld) else world.url  # type: ignore[attr-defined]  # the other kind has one
    deliveries = []

    def work() -> None:
        with mg.SyncClient(url) as client:
            for message in client.queue("web", lease="30s"):
                deliveries.append((message.id, message.tries))
                assert turns.acquire(timeout=60)
                assert turns.acquire(timeout=60)
                if len(deliveries) == 2:
                    break

    async with mg.Client(store) as client:
        await client.send("web", 1, id="slow")
        await client.send("web", 2, id="last")
        await asyncio.to_thread(work)
        assert deliveries == [("slow", 1), ("last", 1)]
        assert await states(client, "web") == [("last", 1)]


async def test_a_loop_that_hangs_loses_its_message_in_the_end(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A message is kept for as long as all its deliveries would have had, and the log names the remedy."""
    monkeypatch.setattr(lease_keeper, "TIMES", 2)
    async with mg.Client(store) as client:
        await client.send("web", 1, id="hung")
        queue = client.queue("web", lease="60ms", tries=3)
        async with aclosing(aiter(queue)) as messages:
            await anext(messages)
            async with asyncio.timeout(120):
                while "although its receiver still works on it: raise lease=" not in caplog.text:
                    await moment()
            assert "takes longer than its lease of 60ms, and is kept for at most 180ms" in caplog.text
            await world.elapse(1)
            (again,) = await client.queue("web", lease="1h").receive(timeout=120)
            assert again.tries == 2
            following = asyncio.ensure_future(anext(messages))
            async with asyncio.timeout(120):
                while "delivery 1, is not this receiver's any more" not in caplog.text:
                    await moment()
            following.cancel()
            await asyncio.wait([following])
            assert await states(client, "web") == [("hung", 2)]
