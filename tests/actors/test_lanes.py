"""Lanes with a whole Node: transfers between accounts, what ``lane=`` may say, what becomes of a task whose lane is taken."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.waiting import moment, until

BOTH = ("scheduler", "agent")


class Bank:
    """Accounts that a transfer reads and writes in two calls, as services do."""

    def __init__(self) -> None:
        self.balances = dict.fromkeys(("ada", "bob", "lea"), 100)
        self.busy: set[str] = set()
        self.gate: asyncio.Event | None = None
        self.app = app = mg.App("bank")
        agent = app.agent("accounts", concurrency=50)

        @agent.action(complete_within="20s")
        async def withdraw(source: str, target: str, cents: int) -> int:
            with self.alone(source, target):
                balance = self.balances[source]
                await asyncio.sleep(0)
                if self.gate is not None:
                    await self.gate.wait()
                if balance < cents:
                    raise mg.Refused("not enough")
                self.balances[source] = balance - cents
            return cents

        @withdraw.undo
        async def put_back(source: str, *, result: int | None) -> None:
            self.balances[source] += result or 0

        @agent.action(complete_within="20s", undo=mg.NOTHING)
        async def deposit(source: str, target: str, cents: int) -> None:
            with self.alone(source, target):
                if cents % 7 == 0:
                    raise mg.Refused("the bank does not like sevens")
                balance = self.balances[target]
                await asyncio.sleep(0)
                self.balances[target] = balance + cents

        @app.workflow(lane=lambda source, target, _cents: [source, target])
        def transfer(source: str, target: str, cents: int) -> None:
            deposit(source, target, withdraw(source, target, cents))

        self.transfer = transfer

    @contextmanager
    def alone(self, *accounts: str) -> Iterator[None]:
        """Note that a call works on accounts, on which no other task may work."""
        assert not self.busy.intersection(accounts), f"{accounts} beside {self.busy}"
        self.busy.update(accounts)
        try:
            yield
        finally:
            self.busy.difference_update(accounts)


class Stock:
    """An app whose orders have the lane of their customer, and wait for ``gate``. ``options``: of its workflow.

    ``is_out``: an order is refused.
    """

    def __init__(self, **options: Any) -> None:
        self.app = app = mg.App("shop")
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_out = False

        @app.agent("stock").action(complete_within="20s", undo=mg.NOTHING)
        async def count(customer: str) -> str:
            await self.gate.wait()
            if self.is_out:
                raise mg.Refused("sold out")
            return customer

        @app.workflow(lane=lambda customer: customer, **options)
        def order(customer: str) -> str:
            return count(customer)

        self.order = order


async def test_transfers_with_lanes_of_two_keys_lose_nothing(store: Store) -> None:
    bank, rng = Bank(), random.Random(7)
    async with Node(bank.app, store, roles=BOTH, options=QUIET) as node:
        tasks = []
        for _ in range(60):
            source, target = rng.sample(list(bank.balances), 2)
            tasks.append(await node.client.submit(bank.transfer, source, target, rng.randrange(1, 60)))
        for task in tasks:
            await task.wait(timeout="2m")
        states = {(await task.status()).task.state for task in tasks}
        assert states == {"processed", "undone"}
        assert await node.client.lanes() == []
    assert sum(bank.balances.values()) == 300
    assert min(bank.balances.values()) >= 0


async def test_submitted_in_many_ways_they_are_in_their_lanes(store: Store) -> None:
    bank = Bank()
    bank.gate = asyncio.Event()
    async with Node(bank.app, store, roles=BOTH, options=QUIET) as node:
        client = node.client
        first = await client.submit(bank.transfer, "ada", "bob", 1)
        plan = bank.transfer.plan("bob", "lea", 2)
        assert plan.lanes.names == ("bob", "lea")
        others = [
            await client.submit(bank.transfer, "lea", "bob", 1, lane="ada"),
            await client.submit(plan.with_(lane=["ada", 7])),
            *await client.submit_many([plan, plan], lane=lambda plan: ["ada", *plan.lanes.names]),
        ]
        free = await client.submit(bank.transfer, "lea", "ada", 3, lane=[])
        (lane,) = await client.lanes(name="ada")
        assert ([place.task for place in lane.holders], lane.waiting) in (
            ([first.number], 4),
            ([], 5),
        )
        assert (await free.status()).task.state in ("pending", "processing")
        bank.gate.set()
        for task in (first, *others, free):
            await task.wait(timeout="2m")


async def test_refused_by_the_submission_or_by_the_claim(store: Store) -> None:
    stock = Stock(when_taken="refuse")
    stock.gate.clear()
    async with Node(stock.app, store, roles=BOTH, options=QUIET) as node:
        first = await node.client.submit(stock.order, "ada", key="one")
        with pytest.raises(mg.LaneTakenError, match=f"task {first.id} has the lane 'ada'") as refusal:
            await node.client.submit(stock.order, "ada")
        assert (refusal.value.task_id, refusal.value.lane) == (first.id, "ada")
        assert not (await node.client.submit(stock.order, "ada", key="one")).created, (
            "its own lane is no obstacle"
        )
        stock.gate.set()
        assert await first.result(timeout="2m") == "ada"
        assert await (await node.client.submit(stock.order, "ada")).result(timeout="2m") == "ada"


async def test_a_task_that_begins_later_is_refused_at_its_start_alone(store: Store) -> None:
    """Who holds the lane now says nothing about then."""
    stock = Stock(when_taken="refuse")
    stock.gate.clear()
    async with Node(stock.app, store, roles=BOTH, options=QUIET) as node:
        first = await node.client.submit(stock.order, "ada")
        later = [await node.client.submit(stock.order, "ada", delay="1h") for _ in range(2)]
        await later[0].wake(who="ann")
        with pytest.raises(mg.TaskUndone):
            await later[0].result(timeout="2m")
        stock.gate.set()
        assert await first.result(timeout="2m") == "ada"
        await later[1].wake(who="ann")
        assert await later[1].result(timeout="2m") == "ada"


async def test_a_task_in_error_is_left_to_its_operator_by_those_that_cancel(store: Store) -> None:
    """Here the error came before their question; the rules of acts are tested with one that came after it."""
    stock = Stock(on_failure="hold", when_taken="cancel")
    stock.is_out = True
    async with Node(stock.app, store, roles=BOTH, options=QUIET) as node:
        first = await node.client.submit(stock.order, "ada")
        with pytest.raises(mg.TaskInError):
            await first.result(timeout="2m")
        stock.is_out = False
        second = await node.client.submit(stock.order, "ada")
        await until(lambda: node.client.audit(task=first.id), "the second to ask the first to cancel")
        (audit,) = await node.client.audit(task=first.id)
        assert (audit.who, audit.verdict) == ("lane", "noop")
        assert [(await task.status()).task.state for task in (first, second)] == ["error", "queued"]
        assert (await first.undo(who="ann")).verdict == "applied"
        assert await second.result(timeout="2m") == "ada"


async def test_an_error_holds_the_lane_until_an_operator_acts(store: Store) -> None:
    stock = Stock(on_failure="hold")
    stock.is_out = True
    async with Node(stock.app, store, roles=BOTH, options=QUIET) as node:
        first = await node.client.submit(stock.order, "ada")
        with pytest.raises(mg.TaskInError):
            await first.result(timeout="2m")
        stock.is_out = False
        second = await node.client.submit(stock.order, "ada")
        with pytest.raises(mg.ActRefusedError, match="only one in error"):
            await second.release_lane(who="ann")
        assert (await second.status()).task.state == "queued"
        answer = await node.client.release_lane(first.id, who="ann", why="the shop is closed")
        assert (answer.verdict, answer.state) == ("applied", "error")
        with pytest.raises(mg.ActRefusedError, match=r"not allowed: it holds no lane any more"):
            await first.release_lane(who="ann")
        assert await second.result(timeout="2m") == "ada"
        assert (await first.resubmit(who="ann")).verdict == "applied"
        assert await first.result(timeout="2m") == "ada"
        assert (await first.undo(who="ann")).state in ("queued", "undoing", "undone")
        await first.wait(timeout="2m")
        assert (await first.status()).task.state == "undone"
        audits = await node.client.audit(task=first.id)
        assert {audit.kind: audit.who for audit in audits}["release_lane"] == "ann"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lane": "x" * 201}, "a text of 1 to 200 characters, or a whole number; this one has 201$"),
        (
            {"lane": [""]},
            "lane='': a lane is a text of 1 to 200 characters, or a whole number; this one has 0$",
        ),
        ({"lane": True}, "or a whole number"),
        ({"lane": ["a", 1.5]}, "or a whole number"),
        ({"lane": list("abcdefghijk")}, "11 lanes, and a task has at most 10"),
        ({"lane": "a", "at_once": 0}, "at_once=0: a whole number from 1 to 10,000"),
        ({"lane": "a", "when_taken": "fight"}, '"wait", "refuse" or "cancel"'),
    ],
)
def test_options_that_make_no_sense_are_refused_where_they_are_written(options: Any, message: str) -> None:
    app = mg.App("shop")
    with pytest.raises(mg.DefinitionError, match=message):

        @app.workflow(**options)
        def order(customer: str) -> None: ...


def test_a_function_that_returns_no_key_is_named_at_submission() -> None:
    app = mg.App("shop")
    agent = app.agent("stock")

    @agent.action(complete_within="20s", undo=mg.NOTHING)
    def count(customer: str) -> None: ...

    @app.workflow(lane=lambda _customer: [cast("Any", object())])
    def order(customer: str) -> None:
        count(customer)

    @app.workflow(lane=lambda _customer: None)
    def other(customer: str) -> None:
        count(customer)

    with pytest.raises(
        mg.DefinitionError, match=r"shop.order: the function lane= returned what is not a lane: lane=<object"
    ):
        order.plan("ada")
    assert other.plan("ada").lanes.names == ()
    with pytest.raises(mg.ConfigError, match="lane=''"):
        other.plan("ada").with_(lane="")


async def test_the_tasks_of_messages_are_in_the_lanes_that_their_inbox_names(store: Store) -> None:
    """Those of the workflow, or those of ``with_(lane=)``."""
    bank = Bank()

    @bank.app.inbox("transfers")
    def accept(source: str, tx: mg.Transaction) -> mg.Plan[None]:
        plan = bank.transfer.plan(source, "bob", 1)
        return plan.with_(lane=["till", 7]) if source == "lea" else plan

    async with Node(bank.app, store, roles=("inbox",), options=QUIET) as node:
        for source in ("ada", "lea"):
            await node.client.send("transfers", source)
        await eventually(lambda: _names(node), ["7", "ada", "bob", "till"])


async def test_the_tasks_of_a_schedule_are_in_the_lanes_of_their_workflow(store: Store) -> None:
    bank = Bank()
    bank.app.schedule("nightly", bank.transfer, "ada", "lea", 1, every="1d")
    async with Node(bank.app, store, roles=("supervisor",), options=QUIET) as node:
        await (await node.client.find_schedule("nightly")).trigger()
        await eventually(lambda: _names(node), ["ada", "lea"])


async def _names(node: Node) -> list[str]:
    return [lane.name for lane in await node.client.lanes()]


async def eventually(read: Any, value: object) -> None:
    """Read until what is read is as it should be."""
    async with asyncio.timeout(120):
        while await read() != value:
            await moment()
