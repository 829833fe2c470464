"""The submission process: a message becomes a task in the transaction of its acknowledgement, once, or a dead letter."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.base.daemon_threads import DaemonThreads
from makegood.messaging.inbox import Acceptor, Inboxes
from makegood.model.messages import Act
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing
from makegood.store.views import Filter
from makegood.testing.simulator.doubles import Doubled
from makegood.transactions import Caller
from tests.actors.conftest import QUIET
from tests.conformance.worlds import World

SOON = mg.Retry(tries=3, wait="10ms", factor=1.5, longest="20ms")


@dataclass
class Order:
    """What is ordered."""

    id: str
    cents: int


class Shop:
    """An app whose inbox does what a test wants. ``seen``: the payloads that it was called with."""

    def __init__(self, **options: Any) -> None:
        self.app = mg.App("shop")
        self.seen: list[Order] = []
        self.faults: dict[str, Callable[[], Exception]] = {}
        stock = self.app.agent("stock")

        @stock.action(complete_within="20s", undo=mg.NOTHING)
        async def reserve(order: Order) -> str:
            return f"hold of {order.id}"

        @self.app.workflow
        def place_order(order: Order) -> str:
            return reserve(order)

        self.place_order = place_order
        self.options = options

    def plain(self) -> "Shop":
        """Declare the inbox with a ``def``."""

        @self.app.inbox("orders", **self.options)
        def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str] | None:
            tx.execute(self.insert(tx), (order.id, order.cents))
            return self.planned(order)

        return self

    def waiting(self) -> "Shop":
        """Declare the inbox with an ``async def``."""

        @self.app.inbox("orders", **self.options)
        async def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str] | None:
            await asyncio.sleep(0)
            await tx.execute_async(self.insert(tx), (order.id, order.cents))
            return self.planned(order)

        return self

    @staticmethod
    def insert(tx: mg.Transaction) -> str:
        """Return the statement as the driver wants it."""
        marks = "?, ?" if tx.caller.dialect == "sqlite" else "$1, $2"
        return f"insert into shop_order (id, cents) values ({marks})"

    def planned(self, order: Order) -> mg.Plan[str] | None:
        """Return the plan, or fail as the test wants."""
        self.seen.append(order)
        if order.id in self.faults:
            raise self.faults[order.id]()  # noqa: RSE102 - it makes one
        return self.place_order.plan(order) if order.cents else None


@pytest.fixture(params=["def", "async def"])
def make(request: pytest.FixtureRequest) -> Callable[..., Shop]:
    """Makes a shop whose inbox is of one kind or the other."""
    return lambda **options: Shop(**options).plain() if request.param == "def" else Shop(**options).waiting()


async def prepare(store: Store) -> None:
    """Make an empty table of orders."""

    async def work(caller: Caller) -> None:
        await caller.execute("create table if not exists shop_order (id text, cents integer)")
        await caller.execute("delete from shop_order")

    await store.transact(work, waits=False)


async def written(store: Store) -> list[str]:
    """Return the orders in the table."""

    async def work(caller: Caller) -> list[str]:
        return [row[0] for row in await caller.execute("select id from shop_order order by id")]

    return await store.transact(work, waits=False)


async def send(store: Store, *orders: tuple[str, int], **more: Any) -> None:
    """Send orders, each under its own id."""
    messages = [
        Outgoing(
            queue="orders", id=id_, body=f'{{"id":"{id_}","cents":{cents}}}'.encode(), remember=60.0, **more
        )
        for id_, cents in orders
    ]
    await store.queues.send_messages(messages, 1000)


async def pause(seconds: float) -> None:
    """Let real time pass where nobody would ring."""
    await asyncio.wait([asyncio.get_running_loop().create_task(asyncio.Event().wait())], timeout=seconds)


async def until_empty(store: Store, world: World | None = None) -> None:
    """Wait until no message waits or is taken; ``world``: let time pass in it meanwhile."""
    async with asyncio.timeout(60):
        while await store.queues.messages("orders"):
            await pause(0.01)  # who takes the last one rings nobody
            if world is not None:
                await world.elapse(0.05)


async def test_messages_become_tasks_with_what_the_function_wrote(
    store: Store, make: Callable[..., Shop]
) -> None:
    await prepare(store)
    shop = make()
    async with Node(shop.app, store, options=QUIET) as node:
        assert node.roles == ("scheduler", "agent", "supervisor", "inbox")
        await send(store, *((f"o-{n:02}", n) for n in range(20)), correlation_id="c-1")
        await until_empty(store)
        tasks = await store.tasks.find(Filter())
        results = await asyncio.gather(*(node.client.task(task.id, str).result("60s") for task in tasks))
    assert sorted(results) == [f"hold of o-{n:02}" for n in range(1, 20)]  # the one without cents is no task
    assert await written(store) == [f"o-{n:02}" for n in range(20)]
    assert {task.correlation_id for task in tasks} == {"c-1"}
    assert Order("o-00", 0) in shop.seen  # several are taken at once: any of them may be first


async def test_ten_deliveries_of_a_message_make_one_task(
    store: Store, other: Store, make: Callable[..., Shop]
) -> None:
    await prepare(store)
    shop = make()
    async with (
        Node(shop.app, store, roles=("inbox",), options=QUIET),
        Node(shop.app, other, roles=("inbox",), options=QUIET),
    ):
        for _ in range(5):
            await asyncio.gather(send(store, ("o-1", 5)), send(other, ("o-1", 5)))
            await asyncio.sleep(0)
        await until_empty(store)
        await send(store, ("o-1", 5))
        await until_empty(store)
    assert len(await store.tasks.find(Filter())) == 1
    assert await written(store) == ["o-1"]


async def test_a_message_that_is_delivered_to_two_processes_makes_one_task(
    store: Store, other: Store, world: World, make: Callable[..., Shop]
) -> None:
    """The first one holds it for longer than its lease; whoever is second finds that it is not his any more."""
    await prepare(store)
    inbox, threads = make().app.inboxes["orders"], DaemonThreads(2, "inbox")
    inbox._prepare()
    one, two = (
        Acceptor(s, threads, clock=SystemClock(), rng=random.Random(n), telemetry=None)
        for n, s in enumerate((store, other))
    )
    await send(store, ("o-1", 5))
    (first,) = (await store.queues.receive_messages("orders", "one", 1, 30.0, 5)).messages
    await world.elapse(31)
    (second,) = (await other.queues.receive_messages("orders", "two", 1, 30.0, 5)).messages
    said = await asyncio.gather(one.accept(inbox, first), two.accept(inbox, second), return_exceptions=True)
    assert [isinstance(answer, mg.MakegoodError) for answer in said] == [True, False]
    assert len(await store.tasks.find(Filter())) == 1
    assert await written(store) == ["o-1"]


async def test_a_message_that_fails_comes_again_and_is_a_dead_letter_in_the_end(
    store: Store, world: World, make: Callable[..., Shop]
) -> None:
    await prepare(store)
    shop = make(retry=SOON)
    shop.faults["bad"] = lambda: ValueError("no such sku")
    async with Node(
        shop.app,
        store,
        roles=("inbox",),
        options=Options(poll_every="10ms", alerts_every=None, leaderless_after=None),
    ):
        await send(store, ("bad", 5), ("good", 5))
        await until_empty(store, world)
    (dead,) = await store.queues.messages("orders", dead=True)
    assert (dead.message.id, dead.message.error) == ("bad", "ValueError: no such sku")
    assert [order.id for order in shop.seen].count("bad") == 3
    assert await written(store) == ["good"]
    assert len(await store.tasks.find(Filter())) == 1
    assert [(a.kind, a.step) for a in await store.alerts.views()] == [("dead_letter", "orders/bad")]


async def test_the_traceback_of_a_kind_of_fault_is_logged_once(
    store: Store, world: World, make: Callable[..., Shop], caplog: pytest.LogCaptureFixture
) -> None:
    """Each delivery has a line of its own; where it broke is told by the first, and by that of another kind."""
    await prepare(store)
    shop = make(retry=SOON)
    shop.faults = {"bad": lambda: ValueError("no such sku"), "odd": lambda: KeyError("sku")}
    with caplog.at_level(logging.WARNING, "makegood.inbox"):
        async with Node(
            shop.app,
            store,
            roles=("inbox",),
            options=Options(poll_every="10ms", alerts_every=None, leaderless_after=None),
        ):
            await send(store, ("bad", 5), ("odd", 5))
            await until_empty(store, world)
    told = [r for r in caplog.records if ", delivery " in r.getMessage()]
    assert len(told) >= 6
    assert sorted(r.exc_info[0].__name__ for r in told if r.exc_info and r.exc_info[0]) == [
        "KeyError", "ValueError",
    ]  # fmt: skip


@pytest.mark.parametrize("fault", [lambda: mg.Permanent("never"), lambda: mg.PayloadError("too large")])
async def test_what_would_fail_every_time_is_a_dead_letter_at_once(
    store: Store, make: Callable[..., Shop], fault: Callable[[], Exception]
) -> None:
    await prepare(store)
    shop = make()
    shop.faults["bad"] = fault
    async with Node(shop.app, store, roles=("inbox",), options=QUIET):
        await send(store, ("bad", 5))
        await until_empty(store)
    assert len(shop.seen) == 1
    assert len(await store.queues.messages("orders", dead=True)) == 1
    assert await written(store) == []


async def test_a_message_that_does_not_fit_the_annotation_is_a_dead_letter(
    store: Store, make: Callable[..., Shop]
) -> None:
    shop = make()
    async with Node(shop.app, store, roles=("inbox",), options=QUIET):
        await store.queues.send_messages([Outgoing(queue="orders", id="1", body=b'{"id":"1"}')], 9)
        await until_empty(store)
    (dead,) = await store.queues.messages("orders", dead=True)
    assert "cents" in dead.message.error
    assert shop.seen == []


async def test_later_is_no_failure(store: Store, world: World, make: Callable[..., Shop]) -> None:
    await prepare(store)
    shop = make(retry=mg.Retry(tries=1))
    answers = [mg.Later("10ms", "stock is counted"), mg.Later(0.01)]

    def fault() -> Exception:
        if len(answers) == 1:
            del shop.faults["o-1"]
        return answers.pop()

    shop.faults["o-1"] = fault
    async with Node(
        shop.app,
        store,
        roles=("inbox",),
        options=Options(poll_every="10ms", alerts_every=None, leaderless_after=None),
    ):
        await send(store, ("o-1", 5))
        await until_empty(store, world)
    assert await written(store) == ["o-1"]
    assert len(shop.seen) == 3


async def test_a_replayed_dead_letter_becomes_a_task(store: Store, make: Callable[..., Shop]) -> None:
    await prepare(store)
    shop = make(retry=mg.Retry(tries=1))
    shop.faults["o-1"] = lambda: ValueError("a bug")
    async with Node(shop.app, store, roles=("inbox",), options=QUIET):
        await send(store, ("o-1", 5))
        await until_empty(store)
        shop.faults.clear()
        assert await store.queues.replay_messages("orders", Act("a")) == ["o-1"]
        await until_empty(store)
    assert await written(store) == ["o-1"]
    assert [a.ended_why for a in await store.alerts.views()] == ["replayed"]


async def test_a_key_with_other_inputs_is_a_dead_letter(store: Store) -> None:
    await prepare(store)
    shop = Shop()

    @shop.app.inbox("orders")
    def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
        return shop.place_order.plan(order).with_(key="one")

    async with Node(shop.app, store, roles=("inbox",), options=QUIET):
        await send(store, ("a", 5))
        await until_empty(store)
        await send(store, ("b", 6))
        await until_empty(store)
    (dead,) = await store.queues.messages("orders", dead=True)
    assert (dead.message.id, "KeyConflict" in dead.message.error) == ("b", True)


async def test_no_more_than_its_concurrency_run_at_once(store: Store) -> None:
    await prepare(store)
    shop, running, most, two = Shop(), 0, 0, asyncio.Event()

    @shop.app.inbox("orders", concurrency=2)
    async def accept(order: Order, tx: mg.Transaction) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            two.set()
        await two.wait()  # however slow the machine is, the second comes while the first runs
        await pause(0.01)
        running -= 1

    async with Node(shop.app, store, roles=("inbox",), options=QUIET):
        await send(store, *((str(n), 1) for n in range(8)))
        await until_empty(store)
    assert most == 2


async def test_a_drain_gives_back_what_is_under_way(store: Store) -> None:
    await prepare(store)
    shop, begun = Shop(), asyncio.Event()

    @shop.app.inbox("orders")
    async def accept(order: Order, tx: mg.Transaction) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Node(
        shop.app,
        store,
        roles=("inbox",),
        options=Options(drain="10ms", alerts_every=None, leaderless_after=None),
    ):
        await send(store, ("o-1", 5))
        await begun.wait()
    (left,) = await store.queues.messages("orders")
    assert (left.taken_by, left.message.tries, left.due <= 0) == (None, 0, True)


async def test_a_drain_waits_for_what_is_being_handed_over(store: Store) -> None:
    """Nothing ran, so it was over at once: what was handed over then ran after it, or not at all, and came again after its lease."""
    await prepare(store)
    shop, asked, go = Shop(), asyncio.Event(), asyncio.Event()

    @shop.app.inbox("orders")
    def accept(order: Order, tx: mg.Transaction) -> None: ...

    class Slow(Doubled):
        async def receive_messages(self, *words: Any) -> Any:
            handed = await store.queues.receive_messages(*words)
            asked.set()
            await go.wait()
            return handed

    await send(store, ("o-1", 5))
    inboxes = Inboxes(
        cast("Store", Slow(store)),
        shop.app.inboxes.values(),
        name="inbox-1",
        clock=SystemClock(),
        rng=random.Random(1),
    )
    running = asyncio.create_task(inboxes.run())
    await asked.wait()
    drained = asyncio.create_task(inboxes.drain(10.0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not drained.done()
    go.set()
    await drained
    assert await store.queues.messages("orders") == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_process_that_has_a_message_is_shown(store: Store) -> None:
    shop, begun, go = Shop(), asyncio.Event(), asyncio.Event()

    @shop.app.inbox("orders")
    async def accept(order: Order, tx: mg.Transaction) -> None:
        begun.set()
        await go.wait()

    async with Node(shop.app, store, roles=("inbox",), name="inbox-1", options=QUIET):
        await send(store, ("o-1", 5))
        await begun.wait()
        assert [m.taken_by for m in await store.queues.messages("orders")] == ["inbox-1"]
        go.set()
        await until_empty(store)


async def test_an_answer_that_is_no_plan_is_a_dead_letter(store: Store) -> None:
    shop = Shop()

    @shop.app.inbox("orders")  # type: ignore[arg-type]
    def accept(order: Order, tx: mg.Transaction) -> str:
        return order.id

    async with Node(shop.app, store, roles=("inbox",), options=QUIET):
        await send(store, ("o-1", 5))
        await until_empty(store)
    (dead,) = await store.queues.messages("orders", dead=True)
    assert "it returns a plan" in dead.message.error


def test_the_role_needs_an_inbox() -> None:
    with pytest.raises(mg.ConfigError, match="the role 'inbox' needs an app that declares one"):
        Node(mg.App("shop"), "sqlite:///nowhere.db", roles=("inbox",))
