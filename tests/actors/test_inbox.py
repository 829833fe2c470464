"""The submission process: a message becomes a task in the transaction of its acknowledgement, once, or a dead letter."""

import asyncio
import functools
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.base.daemon_threads import DaemonThreads
from makegood.client import lease_keeper
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
from tests.waiting import until

log = logging.getLogger(__name__)
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
    answers = await asyncio.gather(
        one.accept(inbox, first), two.accept(inbox, second), return_exceptions=True
    )
    assert [isinstance(answer, mg.MakegoodError) for answer in answers] == [True, False]
    assert len(await store.tasks.find(Filter())) == 1
    assert await written(store) == ["o-1"]


async def test_a_function_that_is_slower_than_its_lease_keeps_its_message(
    store: Store, other: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On PostgreSQL the lease is extended while it works; on SQLite its own transaction keeps every other away."""
    await prepare(store)
    monkeypatch.setattr(lease_keeper, "TIMES", 3000)
    working, end = threading.Event(), threading.Event()
    shop = Shop(lease="30s")

    @shop.app.inbox("orders", lease="30s")
    def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str] | None:
        working.set()
        end.wait(60)
        return shop.planned(order)

    inbox, threads = shop.app.inboxes["orders"], DaemonThreads(1, "inbox")
    inbox._prepare()
    acceptor = Acceptor(store, threads, clock=SystemClock(), rng=random.Random(1), telemetry=None)
    await send(store, ("o-1", 5))
    (message,) = (await store.queues.receive_messages("orders", "one", 1, 30.0, 5)).messages
    acceptance = asyncio.create_task(acceptor.accept(inbox, message))
    await asyncio.to_thread(working.wait, 60)
    if world.dialect != "sqlite":
        for _ in range(3):
            before = await store.queues.messages("orders")
            await world.elapse(15)
            async with asyncio.timeout(120):
                while (await store.queues.messages("orders"))[0].due < before[0].due - 1:
                    await pause(0.01)
            delivery = await other.queues.receive_messages("orders", "two", 1, 30.0, 5)
            assert delivery.messages == []
    end.set()
    assert await acceptance is not None
    assert len(await store.tasks.find(Filter())) == 1
    assert await store.queues.messages("orders") == []


@pytest.mark.parametrize("fault", [TimeoutError, ConnectionResetError, EOFError])
async def test_a_lost_connection_of_the_functions_own_is_its_failure(
    store: Store, make: Callable[..., Shop], caplog: pytest.LogCaptureFixture, fault: type[Exception]
) -> None:
    """It is not taken for an outage of the store, after which the message would wait for the end of its lease."""
    await prepare(store)
    shop = make(retry=mg.Retry(tries=1))
    shop.faults["o-1"] = fault
    await send(store, ("o-1", 5))
    async with Node(shop.app, store, roles=("inbox",), options=QUIET), asyncio.timeout(60):
        while "goes to the dead letters" not in caplog.text:
            await pause(0.01)
    assert f"delivery 1, goes to the dead letters: {fault.__name__}" in caplog.text


async def test_an_async_function_that_is_slower_than_its_lease_is_told_what_to_raise(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(store)
    shop = Shop()

    @shop.app.inbox("orders", lease="1s", retry=mg.Retry(tries=1))
    async def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str] | None:
        await asyncio.Event().wait()
        return None

    await send(store, ("o-1", 5))
    async with Node(shop.app, store, roles=("inbox",), options=QUIET), asyncio.timeout(60):
        while "goes to the dead letters" not in caplog.text:
            await pause(0.01)
    assert "took longer than 800ms, four fifths of its lease: raise lease= at the inbox" in caplog.text


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
    records = [r for r in caplog.records if ", delivery " in r.getMessage()]
    assert len(records) >= 6
    assert sorted(r.exc_info[0].__name__ for r in records if r.exc_info and r.exc_info[0]) == [
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
    store: Store, make: Callable[..., Shop], caplog: pytest.LogCaptureFixture
) -> None:
    """Its line in the log has no traceback: nothing of the user's code was called."""
    shop = make()
    with caplog.at_level(logging.WARNING, "makegood.inbox"):
        async with Node(shop.app, store, roles=("inbox",), options=QUIET):
            await store.queues.send_messages([Outgoing(queue="orders", id="1", body=b'{"id":"1"}')], 9)
            await until_empty(store)
    assert [r.exc_info for r in caplog.records if ", delivery " in r.getMessage()] == [None]
    (dead,) = await store.queues.messages("orders", dead=True)
    assert "cents" in dead.message.error
    assert shop.seen == []


async def test_a_payload_error_of_the_function_has_its_traceback_in_the_log(
    store: Store, make: Callable[..., Shop], caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(store)
    shop = make()
    shop.faults["bad"] = lambda: mg.PayloadError("a note that the function has read fits nothing")
    with caplog.at_level(logging.WARNING, "makegood.inbox"):
        async with Node(shop.app, store, roles=("inbox",), options=QUIET):
            await send(store, ("bad", 5))
            await until_empty(store)
    (line,) = [record for record in caplog.records if ", delivery " in record.getMessage()]
    assert line.exc_info
    assert len(await store.queues.messages("orders", dead=True)) == 1


@pytest.mark.parametrize("options", [{"key": "k" * 1000}, {"reply_to": "amqp:main/notices"}])
async def test_a_plan_that_makegood_refuses_has_one_line_in_the_log(
    store: Store, caplog: pytest.LogCaptureFixture, options: Any
) -> None:
    """A traceback would lead through files of makegood alone. What is shown of a text has both its quotes."""
    shop = Shop()

    @shop.app.inbox("orders")
    def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
        return shop.place_order.plan(order).with_(**options)

    with caplog.at_level(logging.WARNING, "makegood.inbox"):
        async with Node(
            shop.app,
            store,
            roles=("inbox",),
            options=replace(
                QUIET, reply_to_brokers="amqp:main/answers", brokers={"main": "amqp://guest@127.0.0.1:9"}
            ),
        ):
            await send(store, ("bad", 5))
            await until_empty(store)
    (line,) = [record for record in caplog.records if ", delivery " in record.getMessage()]
    assert line.exc_info is None
    if "key" in options:
        assert f"ConfigError: key='{'k' * 57}…': a text of up to " in line.getMessage()


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


async def test_one_at_a_time_makes_tasks_in_the_order_of_the_queue(
    store: Store, make: Callable[..., Shop]
) -> None:
    await prepare(store)
    shop = make(concurrency=1)
    await send(store, *((f"o-{n}", n + 1) for n in range(60)))
    async with Node(shop.app, store, roles=("inbox",), options=QUIET) as node:
        await until_empty(store)
        newest_first = await node.client.find(Filter(limit=100))
        inputs = [(await node.client.task(task.id).status()).inputs[0] for task in reversed(newest_first)]
    assert [msgspec.json.decode(one)["cents"] for one in inputs] == list(range(1, 61))


async def test_a_drain_gives_back_what_is_under_way(store: Store) -> None:
    await prepare(store)
    shop, start = Shop(), asyncio.Event()

    @shop.app.inbox("orders")
    async def accept(order: Order, tx: mg.Transaction) -> None:
        start.set()
        await asyncio.Event().wait()

    async with Node(
        shop.app,
        store,
        roles=("inbox",),
        options=Options(drain="10ms", alerts_every=None, leaderless_after=None),
    ):
        await send(store, ("o-1", 5))
        await start.wait()
    (left,) = await store.queues.messages("orders")
    assert (left.taken_by, left.message.tries, left.due <= 0) == (None, 0, True)


async def test_a_drain_waits_for_what_is_being_handed_over(store: Store) -> None:
    """Nothing ran, so it was over at once: what was handed over then ran after it, or not at all, and came again after its lease."""
    await prepare(store)
    shop, request, go = Shop(), asyncio.Event(), asyncio.Event()

    @shop.app.inbox("orders")
    def accept(order: Order, tx: mg.Transaction) -> None: ...

    class Slow(Doubled):
        async def receive_messages(self, *words: Any) -> Any:
            delivery = await store.queues.receive_messages(*words)
            request.set()
            await go.wait()
            return delivery

    await send(store, ("o-1", 5))
    inboxes = Inboxes(
        cast("Store", Slow(store)),
        shop.app.inboxes.values(),
        name="inbox-1",
        clock=SystemClock(),
        rng=random.Random(1),
    )
    running = asyncio.create_task(inboxes.run())
    await request.wait()
    draining = asyncio.create_task(inboxes.drain(10.0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not draining.done()
    go.set()
    await draining
    assert await store.queues.messages("orders") == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_process_that_has_a_message_is_shown(store: Store) -> None:
    shop, start, go = Shop(), asyncio.Event(), asyncio.Event()

    @shop.app.inbox("orders")
    async def accept(order: Order, tx: mg.Transaction) -> None:
        start.set()
        await go.wait()

    async with Node(shop.app, store, roles=("inbox",), name="inbox-1", options=QUIET):
        await send(store, ("o-1", 5))
        await start.wait()
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


# -- errors in groups, and errors that were caught ---------------------------------------------------------


async def taken(store: Store, shop: Shop, world: World | None = None) -> list[str]:
    """Run the inbox until no message waits, and return the errors of the dead letters."""
    async with Node(
        shop.app,
        store,
        roles=("inbox",),
        options=Options(poll_every="10ms", alerts_every=None, leaderless_after=None),
    ):
        await send(store, ("bad", 5))
        await until_empty(store, world)
    return [dead.message.error for dead in await store.queues.messages("orders", dead=True)]


@pytest.mark.parametrize(
    "fault",
    [
        lambda: ExceptionGroup(
            "two calls", [mg.Permanent("never"), ExceptionGroup("more", [mg.Permanent("never")])]
        ),
        lambda: ExceptionGroup("two calls", [mg.PayloadError("never"), mg.DefinitionError("never")]),
    ],
    ids=["refused", "would fail every time"],
)
async def test_a_group_of_final_errors_is_a_dead_letter_at_once(
    store: Store, make: Callable[..., Shop], fault: Callable[[], Exception]
) -> None:
    await prepare(store)
    shop = make()
    shop.faults["bad"] = fault
    (error,) = await taken(store, shop)
    assert "never" in error
    assert len(shop.seen) == 1


async def test_a_group_with_another_error_is_redelivered_and_names_them_all(
    store: Store, world: World, make: Callable[..., Shop]
) -> None:
    await prepare(store)
    shop = make(retry=SOON)
    shop.faults["bad"] = lambda: ExceptionGroup(
        "two calls", [ValueError("no sku"), mg.Permanent("card declined")]
    )
    (error,) = await taken(store, shop, world)
    assert error.endswith("from card declined; ValueError: no sku")
    assert len(shop.seen) == 3


async def test_later_in_a_group_is_no_failure(store: Store, world: World, make: Callable[..., Shop]) -> None:
    await prepare(store)
    shop = make(retry=mg.Retry(tries=1))
    left = [ExceptionGroup("two calls", [mg.Later("10ms"), mg.Later("20ms")]) for _ in range(3)]
    shop.faults["bad"] = lambda: left.pop() if left else mg.Permanent("now it is refused")
    (error,) = await taken(store, shop, world)
    assert error == "Permanent: now it is refused"
    assert len(shop.seen) == 4


async def test_an_error_of_the_users_own_that_is_an_os_error_counts_as_a_try(
    store: Store, world: World, make: Callable[..., Shop]
) -> None:
    """It is not taken for an outage of the store, which would redeliver it without end."""
    await prepare(store)
    shop = make(retry=SOON)
    shop.faults["bad"] = lambda: ConnectionError("the payments are down")
    assert await taken(store, shop, world) == ["ConnectionError: the payments are down"]
    assert len(shop.seen) == 3


@pytest.mark.parametrize("answer", ["plan", "none", "execute"])
@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_a_statement_whose_error_is_caught_fails_the_delivery_with_that_cause(
    store: Store, world: World, kind: str, answer: str
) -> None:
    """Whatever the function does then, on both stores: nothing is written, no task is made, no message lost."""
    await prepare(store)
    shop = Shop(retry=SOON)

    def finish(order: Order) -> mg.Plan[str] | None:
        shop.seen.append(order)
        return None if answer == "none" else shop.place_order.plan(order)

    if kind == "def":

        @shop.app.inbox("orders", retry=SOON)
        def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str] | None:
            tx.execute(shop.insert(tx), (order.id, order.cents))
            try:
                tx.execute("insert into shop_ordre values (1)")
            except Exception:
                log.info("it is misspelt")
            if answer == "execute":
                tx.execute(shop.insert(tx), (order.id, order.cents))
            return finish(order)

    else:

        @shop.app.inbox("orders", retry=SOON)
        async def accept_async(order: Order, tx: mg.Transaction) -> mg.Plan[str] | None:
            await tx.execute_async(shop.insert(tx), (order.id, order.cents))
            try:
                await tx.execute_async("insert into shop_ordre values (1)")
            except Exception:
                log.info("it is misspelt")
            if answer == "execute":
                await tx.execute_async(shop.insert(tx), (order.id, order.cents))
            return finish(order)

    (error,) = await taken(store, shop, world)
    assert error.startswith("TransactionError: a statement")
    assert "shop_ordre" in error
    assert await written(store) == []
    assert await store.tasks.find(Filter()) == []


# -- functions that are not plain --------------------------------------------------------------------------


def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function around another, as decorators do that do not know ``async def``."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


class Desk:
    """An object whose methods take messages."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop

    async def accept(self, order: Order, tx: mg.Transaction) -> mg.Plan[str]:
        """Write the order."""
        await tx.execute_async(Shop.insert(tx), (order.id, order.cents))
        return self.shop.place_order.plan(order)

    def accept_at_once(self, order: Order, tx: mg.Transaction) -> mg.Plan[str]:
        """Write the order, and wait for it."""
        tx.execute(Shop.insert(tx), (order.id, order.cents))
        return self.shop.place_order.plan(order)

    async def __call__(self, order: Order, tx: mg.Transaction) -> mg.Plan[str]:
        """Write the order."""
        return await self.accept(order, tx)


FORMS: dict[str, Callable[[Desk], Any]] = {
    "method": lambda desk: desk.accept,
    "blocking method": lambda desk: desk.accept_at_once,
    "callable object": lambda desk: desk,
    "partial": lambda desk: functools.partial(Desk.accept, desk),
    "wrapped async def": lambda desk: logged(desk.accept),
    "wrapped def": lambda desk: logged(desk.accept_at_once),
    "returns a coroutine": lambda desk: lambda order, tx: desk.accept(Order(**order), tx),
}


@pytest.mark.parametrize("form", FORMS)
async def test_whatever_is_callable_takes_messages(store: Store, form: str) -> None:
    """A coroutine that a ``def`` returns is awaited, on both stores."""
    await prepare(store)
    shop = Shop()
    shop.app.inbox("orders")(FORMS[form](Desk(shop)))
    async with Node(shop.app, store, roles=("inbox",), options=QUIET):
        await send(store, ("o-1", 5), ("o-2", 5))
        await until_empty(store)
    assert await store.queues.messages("orders", dead=True) == []
    assert await written(store) == ["o-1", "o-2"]
    assert len(await store.tasks.find(Filter())) == 2


def test_the_role_needs_an_inbox() -> None:
    with pytest.raises(mg.ConfigError, match="the role 'inbox' needs an app that declares one"):
        Node(mg.App("shop"), "sqlite:///nowhere.db", roles=("inbox",))


@pytest.mark.parametrize(
    ("roles", "settings", "to", "setting"),
    [
        (("inbox",), {}, "amqp:main/notices", None),
        (("inbox", "scheduler"), {}, "amqp:main/notices", "reply_to_brokers"),
        (("inbox",), {"reply_to_brokers": "amqp:main/shop.*"}, "amqp:main/notices", "reply_to_brokers"),
        (("inbox",), {}, "https://shop.example", None),
        (("inbox", "scheduler"), {}, "https://shop.example", "webhook_hosts"),
        (("inbox",), {"reply_to_brokers": "amqp:main/*"}, "amqp:main/notices", None),
    ],
)
async def test_a_plan_that_tells_somebody_whom_no_process_may_tell_is_refused_at_once(
    store: Store, roles: Any, settings: Any, to: str, setting: str | None
) -> None:
    """The message is a dead letter with what to do; not a task whose notices are given up after minutes. A process that
    sends no notices knows of no webhook and no broker's place, unless its settings list some: the order becomes a task.
    """
    shop = Shop()

    @shop.app.inbox("orders")
    def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
        return shop.place_order.plan(order).with_(reply_to=to)

    options = replace(QUIET, **settings, brokers={"main": "amqp://guest@127.0.0.1:9"})
    async with Node(shop.app, store, roles=roles, options=options):
        await send(store, ("o-1", 1))

        async def settled() -> bool:
            return not await store.queues.messages("orders")

        await until(settled)
    letters = await store.queues.messages("orders", dead=True)
    if setting is None:
        assert (letters, len(await store.tasks.find(Filter()))) == ([], 1)
    else:
        (letter,) = letters
        assert (letter.message.tries, await store.tasks.find(Filter())) == (1, [])
        assert to in letter.message.error
        remedy = f"append {to} after a space" if settings else f"Options({setting}="
        assert remedy in letter.message.error
