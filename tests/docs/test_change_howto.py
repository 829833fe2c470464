"""The page on changing what is running: its code is deployed over its own tasks, and each of its statements is tried."""

# ruff: noqa: ARG005, PLW0108 - workflow functions are lambdas with parameters in common here

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.declare.action import Agent
from makegood.store.views import TaskView
from makegood.workflow.workflow import Workflow
from tests.docs.test_operate_howto import loaded, typed
from tests.doors.conftest import Shop

PAGE = (Path(__file__).resolve().parents[2] / "docs/operate/deploy-new-code.md").read_text(encoding="utf-8")
BEFORE, AFTER = re.findall(r"^```python.*?\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
QUICK: Any = {"complete_within": "5s", "recover": mg.Recover(threshold=0, wait="10ms", extended="10ms")}
Declare = Callable[[Agent], Any]


def test_its_code_goes_on_with_the_tasks_of_the_code_before(shop: Shop) -> None:
    """The check passes; the old plan runs with the new action's default, the new one as it is written."""
    (shop.folder / "before.py").write_text(BEFORE, encoding="utf-8")
    old = shop.done("task", "submit", "before:sell", '"o"').strip()
    (shop.folder / "orders.py").write_text(AFTER, encoding="utf-8")
    (shell,) = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    output, _ = typed(shop, shell)
    assert "1 open task" in output
    shop.serve("run", "orders:shop")
    shop.done("task", "watch", old, "--timeout", "60s")
    assert shop.json("task", "show", old)["result"] == "o 250 EUR"
    assert shop.done("task", "submit", "orders:sell", '"p"', "--wait").strip() == '"receipt for p 250 USD"'


def test_its_undo_is_given_the_new_default(tmp_path: Path) -> None:
    """Of a step that the old code has done."""
    (tmp_path / "before_undo.py").write_text(BEFORE, encoding="utf-8")
    (tmp_path / "after_undo.py").write_text(AFTER, encoding="utf-8")
    before, after = loaded(tmp_path, "before_undo"), loaded(tmp_path, "after_undo")
    url = f"sqlite:///{tmp_path / 'shop.db'}"

    async def call() -> str:
        async with mg.Node(before.shop, url) as node:
            task = await node.client.submit(before.sell, "o")
            await task.result("60s")
        async with mg.Node(after.shop, url) as node:
            again = node.client.task(task.id)
            await again.undo(why="to try it")
            return (await again.wait("60s")).state

    assert asyncio.run(call()) == "undone"


# -- one change at a time --------------------------------------------------------------------------------------------------


def app(*actions: Declare) -> mg.App:
    """Return an app with these actions; they are declared on one agent."""
    new_app = mg.App("shop")
    till = new_app.agent("till")
    for declare in actions:
        declare(till)
    return new_app


def pay(till: Agent, within: str = "5s") -> Any:
    @till.action(complete_within=within, recover=QUICK["recover"])
    def pay(order: str, cents: int) -> str:
        return f"{order} {cents}"

    @pay.undo
    def back(order: str, *, result: str | None) -> None: ...

    return pay


def old() -> tuple[mg.App, Workflow[..., Any]]:
    old_app = mg.App("shop")
    action = pay(old_app.agent("till"))
    return old_app, old_app.workflow(name="sell")(lambda order, cents: action(order, cents))


def needed(till: Agent) -> None:
    @till.action(undo=mg.NOTHING, **QUICK)
    def pay(order: str, cents: int, currency: str) -> str:
        return order


def renamed(till: Agent) -> None:
    @till.action(undo=mg.NOTHING, **QUICK)
    def pay(order: str, amount: int) -> str:
        return order


def narrower(till: Agent) -> None:
    @till.action(undo=mg.NOTHING, **QUICK)
    def pay(order: int, cents: int) -> str:
        return str(order)


def wider(till: Agent) -> None:
    @till.action(undo=mg.NOTHING, **QUICK)
    def pay(order: int | str, cents: float) -> str:
        return f"wider {order}"


def fewer(till: Agent) -> None:
    @till.action(undo=mg.NOTHING, **QUICK)
    def pay(order: str) -> str:
        return f"fewer {order}"


async def deployed(url: str, new: mg.App) -> TaskView:
    """Submit a task of the old code while nothing runs, then run the new code until it has ended."""
    _, sell = old()
    async with mg.Client(url, migrate=True) as client:
        task = await client.submit(sell, "o", 5)
    async with mg.Node(new, url) as node:
        return await node.client.task(task.id).wait("60s")


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (needed, "undone"),
        (renamed, "undone"),
        (narrower, "undone"),
        (wider, "processed"),
        (fewer, "processed"),
    ],
)
def test_what_a_waiting_step_makes_of_a_change(tmp_path: Path, change: Declare, state: str) -> None:
    """What does not fit is undone, what fits is done."""
    view = asyncio.run(deployed(f"sqlite:///{tmp_path / 'shop.db'}", app(change)))
    assert view.state == state
    assert ("its arguments do not fit" in view.cause) is (state == "undone")


def test_terms_are_those_of_the_plan(tmp_path: Path) -> None:
    """Another complete_within is for tasks submitted from now on."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"

    async def call() -> tuple[float, bool]:
        _, sell = old()
        async with mg.Client(url, migrate=True) as client:
            task = await client.submit(sell, "o", 5)
        async with mg.Node(app(lambda till: pay(till, "9m")), url) as node:
            again = node.client.task(task.id)
            await again.wait("60s")
            (step,) = (await again.status()).steps
        assert step.plan is not None
        assert step.plan.policy is not None
        return step.plan.policy.within, step.undoable

    assert asyncio.run(call()) == (5.0, True)


def test_a_result_of_another_type_fails_its_undo(tmp_path: Path) -> None:
    """An operator is needed: the check lists it as long as the task is under way."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"

    def number(till: Agent) -> None:
        @till.action(**QUICK)
        def pay(order: str, cents: int) -> int:
            return cents

        @pay.undo
        def back(*, result: int | None) -> None: ...

    async def call() -> str:
        before, sell = old()
        async with mg.Node(before, url) as node:
            task = await node.client.submit(sell, "o", 5)
            await task.result("60s")
        async with mg.Node(app(number), url) as node:
            again = node.client.task(task.id)
            await again.undo(why="to try it")
            return (await again.wait("60s")).state

    assert asyncio.run(call()) == "error"


def test_an_agent_that_is_older_passes_over_a_parameter(tmp_path: Path) -> None:
    """Why agents come first."""
    url = f"sqlite:///{tmp_path / 'shop.db'}"

    async def call() -> Any:
        new = mg.App("shop")

        @new.agent("till").action(undo=mg.NOTHING, **QUICK)
        def pay(order: str, cents: int, currency: str = "EUR") -> str:
            return currency

        async with mg.Client(url, migrate=True) as client:
            task = await client.submit(new.workflow(name="sell")(lambda order: pay(order, 5, "USD")), "o")
        async with mg.Node(old()[0], url) as node:
            return (await node.client.task(task.id).wait("60s")).result

    assert asyncio.run(call()) == b'"o 5"'


def test_keys_belong_to_a_name_and_to_inputs(tmp_path: Path) -> None:
    """The same function with another plan finds the task, and with one more parameter that has its default; with any other parameter it
    is a conflict, under another name a second task.
    """
    url = f"sqlite:///{tmp_path / 'shop.db'}"

    async def call() -> None:
        _, sell = old()
        first_app, second_app = mg.App("shop"), mg.App("shop")
        action = pay(first_app.agent("till"))
        same = first_app.workflow(name="sell")(lambda order, cents: [action(order, 1), action(order, cents)])
        more = mg.App("shop").workflow(name="sell")(lambda order, cents, note="": None)
        first = mg.App("shop").workflow(name="sell")(lambda order, note="", cents=5: None)
        needs = mg.App("shop").workflow(name="sell")(lambda order, cents, note: None)
        fewer = mg.App("shop").workflow(name="sell")(lambda order: None)
        trade = second_app.workflow(name="trade", formerly=("sell",))(lambda order, cents: None)
        async with mg.Client(url, migrate=True) as client:
            task = await client.submit(sell, "o", 5, key="k")
            assert (await client.submit(same, "o", 5, key="k")).id == task.id
            assert (await client.submit(more, "o", 5, key="k")).id == task.id
            for plan, difference in [
                (more.plan("o", 5, "x"), "note: another text"),
                (more.plan("o", 6), "cents: 5 was submitted, now 6"),
                (first.plan("o"), "note: 5 was submitted, now a text"),
                (needs.plan("o", 5, ""), "2 inputs were submitted, now 3"),
                (fewer.plan("o"), "2 inputs were submitted, now 1"),
            ]:
                with pytest.raises(mg.KeyConflict) as error:
                    await client.submit(plan, key="k")
                assert f"({difference})" in str(error.value)
            assert (await client.submit(trade, "o", 5, key="k")).id != task.id

    asyncio.run(call())
