"""Corrected inputs on real stores: the whole task runs on them, or the resubmission is refused."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.errors import ActRefusedError, ConfigError, PayloadError
from makegood.node.node import Node
from makegood.node.sync import SyncNode
from makegood.store import Store
from tests.actors.conftest import QUIET


@dataclass
class Order:
    id: str
    cents: int
    card: str
    gift: bool = False


def shop() -> tuple[mg.App, Any, list[str]]:
    """Return an app, its workflow, and the books of its one service."""
    app, books = mg.App("part"), list[str]()
    desk = app.agent("desk")

    @desk.action(complete_within="20s")
    def invoice(order: Order) -> str:
        books.append(f"invoice {order.cents}")
        return f"invoice over {order.cents}"

    @invoice.undo
    def withdraw(order: Order, *, result: str | None) -> None:
        books.append(f"withdraw {order.cents}")

    @desk.action(complete_within="20s")
    def charge(order: str, cents: int, card: str) -> str:
        if card == "expired":
            raise mg.Permanent("the card has expired")
        books.append(f"charge {cents}")
        return f"charged {cents}"

    @charge.undo
    def refund(order: str, cents: int, *, result: str | None) -> None:
        books.append(f"refund {cents}")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def wrap(order: str) -> None: ...

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def total(order: Order, receipt: str) -> str:
        return f"ordered {order.cents}, {receipt}"

    @app.workflow(on_failure="hold")
    def sell(order: Order) -> dict[str, str]:
        invoice(order)
        receipt = charge(order.id, order.cents, order.card)
        if order.gift:
            wrap(order.id)
        return {"total": total(order, receipt), "note": f"{order.cents} cents"}

    return app, sell, books


async def changed(node: Node, task: str) -> dict[str, Any]:
    """Return what the one correction of a task has changed, as the audit has it."""
    (entry_change,) = [entry.change for entry in await node.client.audit(task) if entry.change is not None]
    change: dict[str, Any] = json.loads(entry_change)
    return change


async def test_an_undone_task_runs_as_a_whole_on_corrected_inputs(store: Store) -> None:
    """Arguments and parts of the result that the workflow function made of the inputs are planned again."""
    app, sell, books = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(sell, Order("a", 100, "visa"))
        assert (await task.result("60s"))["total"] == "ordered 100, charged 100"
        await task.undo(why="wrong sum")
        await task.wait("60s")
        orders = [Order("a", 250, "visa")]
        with pytest.raises(
            ActRefusedError, match=r"charge \(order, cents, card\), the result; name the code"
        ):
            await task.resubmit(inputs=orders)
        dry = await task.resubmit(inputs=orders, workflow=sell, dry_run=True)
        steps = json.loads(dry.change or b"")["steps"]
        assert [one["step"] for one in steps] == ["invoice", "charge", "total"]
        assert (steps[1]["was"]["cents"], steps[1]["now"]["cents"]) == (100, 250)
        assert (await task.status()).task.state == "undone", "nothing is written before"
        answer = await task.resubmit(inputs=orders, workflow=sell, why="it was 250")
        assert (answer.verdict, answer.change) == ("applied", dry.change)
        assert await task.result("60s") == {"total": "ordered 250, charged 250", "note": "250 cents"}
        assert books[-2:] == ["invoice 250", "charge 250"]
        assert await changed(node, task.id) == json.loads(dry.change or b"")


async def test_a_step_that_is_done_keeps_what_it_did_and_is_undone_with_that(store: Store) -> None:
    app, sell, books = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(sell, Order("a", 100, "expired"))
        await task.wait("60s")
        answer = await task.resubmit(inputs=[{"id": "a", "cents": 250, "card": "visa"}], workflow=sell)
        assert answer.outcome.endswith("with corrected inputs; invoice keeps what it did")
        assert await task.result("60s") == {"total": "ordered 250, charged 250", "note": "250 cents"}
        assert books == ["invoice 100", "charge 250"]
        survivals = (await changed(node, task.id))["kept"]
        assert [(one["step"], one["was"]["order"]["cents"]) for one in survivals] == [("invoice", 100)]
        await task.undo()
        await task.wait("60s")
        assert books[2:] == ["refund 250", "withdraw 100"]
        await task.resubmit()
        await task.wait("60s")
        assert books[4:] == ["invoice 250", "charge 250"], "what runs again runs on the corrected inputs"


async def test_what_cannot_be_corrected_says_why(store: Store) -> None:
    app, sell, _ = shop()
    other = shop()[0]
    other.workflows.clear()

    @other.workflow()
    def give(order: Order) -> None: ...

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(sell, Order("a", 100, "expired"))
        await task.wait("60s")
        with pytest.raises(
            ActRefusedError,
            match=r"step 3 would be wrap \(desk\.wrap\) instead of total \(desk\.total\); undo this",
        ):
            await task.resubmit(inputs=[Order("a", 100, "visa", gift=True)], workflow=sell)
        with pytest.raises(ConfigError, match=r"is one of part\.sell, not of part\.give"):
            await task.resubmit(inputs=[Order("a", 100, "visa")], workflow=give)
        with pytest.raises(PayloadError, match="the input order does not fit Order"):
            await task.resubmit(inputs=[{"id": 5}], workflow=sell)
        with pytest.raises(PayloadError, match="takes 1 input, not 2"):
            await task.resubmit(inputs=[Order("a", 1, "b"), 2], workflow=sell)
        plan = sell.plan(Order("a", 250, "visa"))
        with pytest.raises(ConfigError, match="pass workflow=sell as well"):
            await task.resubmit(inputs=plan)
        assert (await task.resubmit(inputs=plan, workflow=sell, dry_run=True)).verdict == "applied"
        with pytest.raises(ConfigError, match=r"is a plan of part\.give, not of part\.sell"):
            await task.resubmit(inputs=give.plan(Order("a", 1, "visa")), workflow=sell)
        with pytest.raises(ConfigError, match="goes with inputs="):
            await task.resubmit(workflow=sell)
        assert [entry.verdict for entry in await node.client.audit(task.id)] == ["refused"]


async def test_what_does_not_fit_the_code_is_refused_as_in_submit(store: Store) -> None:
    """A node's client knows the code; another one learns it from ``workflow=``; without it the step itself refuses."""
    app, sell, _ = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(sell, Order("a", 100, "expired"))
        await task.wait("60s")
        wrong: dict[str, Any] = {"cents": "many"}
        pattern = r"the argument cents of charge is str, its annotation says int"
        with pytest.raises(PayloadError, match=pattern):
            await task.resubmit(step="charge", inputs=wrong)
        with pytest.raises(PayloadError, match="the input order does not fit Order"):
            await task.resubmit(inputs=[{"id": 5}])
        async with mg.Client(store) as bare:
            far = bare.task(task.id)
            with pytest.raises(PayloadError, match=pattern):
                await far.resubmit(step="charge", inputs=wrong, workflow=sell)
            assert (await far.resubmit(step="charge", inputs=wrong, dry_run=True)).verdict == "applied"
        assert not await node.client.audit(task.id), "nothing was written"
        await task.resubmit(step="charge", inputs={"card": "visa", "cents": 5}, workflow=sell)
        assert (await task.result("60s"))["total"] == "ordered 100, charged 5"


def purchase() -> tuple[mg.App, Any, Any, Any, list[tuple[str, int]]]:
    """Return an app, a workflow of two inputs, one that hides what it passes on, one with a constant, and the calls that were made."""
    app, calls = mg.App("part"), list[tuple[str, int]]()
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def reserve(count: int) -> str:
        if count in (1, 1_000):
            raise mg.Permanent("another number")
        calls.append(("reserve", count))
        return "hold"

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def charge(cents: int, hold: str) -> None:
        calls.append(("charge", cents))

    @app.workflow(on_failure="hold")
    def buy(count: int, cents: int) -> None:
        charge(cents, reserve(count))

    @app.workflow(on_failure="hold")
    def label(count: int) -> None:
        charge(1, reserve(count))

    def helping(count: int, cents: int) -> None:
        charge(cents, reserve(count))

    @app.workflow(on_failure="hold")
    def buy_by_helper(count: int, cents: int) -> None:
        helping(count, cents)

    return app, buy, buy_by_helper, label, calls


@pytest.mark.parametrize("inputs", [(), (1, 7)], ids=["first task", "after another task"])
async def test_equal_inputs_are_told_apart_by_what_the_function_passes(
    store: Store, inputs: tuple[int, ...]
) -> None:
    """Its source says which parameter each step takes."""
    app, buy, _, _, calls = purchase()
    if inputs:
        buy.plan(*inputs)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        for amounts in ([2, 3], [2, 1]):
            task = await node.client.submit(buy, 1, 1)
            await task.wait("60s")
            await task.resubmit(inputs=amounts)
            await task.result("60s")
            assert [calls.pop(), calls.pop()] == [("charge", amounts[1]), ("reserve", amounts[0])]
            change = await changed(node, task.id)
            steps = [{"step": "reserve", "was": {"count": 1}, "now": {"count": 2}}]
            if amounts == [2, 3]:
                hold = "the result of reserve"
                steps += [
                    {"step": "charge", "was": {"cents": 1, "hold": hold}, "now": {"cents": 3, "hold": hold}}
                ]
            assert change["steps"] == steps


@pytest.mark.parametrize("inputs", [(), (1, 7)], ids=["first task", "after another task"])
@pytest.mark.parametrize("number", [1, 1_000], ids=["one object", "two objects"])
async def test_equal_inputs_that_cannot_be_told_apart_are_corrected_by_the_code_alone(
    store: Store, inputs: tuple[int, ...], number: int
) -> None:
    """Another function passes them on, which this one's source does not show: it might choose one of them."""
    app, _, buy, label, calls = purchase()
    if inputs:
        buy.plan(*inputs)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, number, number)
        await task.wait("60s")
        for amounts in ([2, 3], [2, 1]):
            with pytest.raises(
                ActRefusedError, match=r"it is unknown .*: reserve \(count\), charge \(cents\);.*workflow="
            ):
                await task.resubmit(inputs=amounts)
        dry = await task.resubmit(inputs=[2, 3], workflow=buy, dry_run=True)
        await task.resubmit(inputs=[2, 3], workflow=buy)
        await task.result("60s")
        assert calls == [("reserve", 2), ("charge", 3)]
        change = await changed(node, task.id)
        assert change == json.loads(dry.change or b"")
        assert [(step["was"], step["now"]) for step in change["steps"]] == [
            ({"count": number}, {"count": 2}),
            (
                {"cents": number, "hold": "the result of reserve"},
                {"cents": 3, "hold": "the result of reserve"},
            ),
        ]
        label_task = await node.client.submit(label, 1)
        await label_task.wait("60s")
        with pytest.raises(ActRefusedError, match=r"charge \(cents\).*name the code"):
            await label_task.resubmit(inputs=[2])
        await label_task.resubmit(inputs=[2], workflow=label)
        await label_task.result("60s")
        assert calls[2:] == [("reserve", 2), ("charge", 1)], "the label costs what it cost"


async def test_one_object_for_two_inputs(store: Store) -> None:
    """An order, and a part of it, passed as two inputs: correcting one leaves the steps of the other alone."""
    app, calls = mg.App("part"), list[str]()
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def ship(order: Order, to: Order) -> None:
        calls.append(f"{order.id} to {to.id}")
        raise mg.Permanent("no carrier")

    @app.workflow(on_failure="hold")
    def send(order: Order, to: Order) -> None:
        ship(order, to)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        order = Order("a", 100, "visa")
        task = await node.client.submit(send, order, order)
        await task.wait("60s")
        await task.resubmit(inputs=[order, Order("b", 100, "visa")])
        await task.wait("60s")
        assert calls == ["a to a", "a to b"]


async def test_an_action_that_was_renamed_is_the_same(store: Store) -> None:
    app, sell, _ = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(sell, Order("a", 100, "expired"))
        await task.wait("60s")
    new = mg.App("part")
    desk = new.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING, formerly=("invoice",))
    def bill(order: Order) -> str:
        return ""

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def charge(order: str, cents: int, card: str) -> str:
        return f"charged {cents}"

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def total(order: Order, receipt: str) -> str:
        return f"ordered {order.cents}, {receipt}"

    @new.workflow(on_failure="hold", formerly=("sell",))
    def sells(order: Order) -> str:
        bill(order)
        return total(order, charge(order.id, order.cents, order.card))

    async with Node(new, store, roles=("scheduler", "agent"), options=QUIET) as node:
        again = node.client.task(task.id, str)
        await again.resubmit(inputs=[Order("a", 250, "visa")], workflow=sells)
        assert await again.result("60s") == "ordered 250, charged 250"


def test_blocking_code_corrects_too(tmp_path: Path) -> None:
    app, sell, _ = shop()
    with SyncNode(
        app, f"sqlite:///{tmp_path / 'shop.db'}", roles=("scheduler", "agent"), options=QUIET
    ) as node:
        task = node.client.submit(sell, Order("a", 100, "expired"))
        task.wait("60s")
        orders = [Order("a", 250, "visa")]
        assert task.resubmit(inputs=orders, workflow=sell, dry_run=True).verdict == "applied"
        task.resubmit(inputs=orders, workflow=sell)
        assert task.result("60s") == {"total": "ordered 250, charged 250", "note": "250 cents"}
