"""The page of recipes is one module, and each recipe does what the page says."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from tests.docs.test_operate_howto import loaded

PAGE = (Path(__file__).resolve().parents[2] / "docs/build/recipes/README.md").read_text(encoding="utf-8")


@pytest.fixture
def recipes(tmp_path: Path) -> Any:
    """The page's module, with a folder for answers."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "recipes.py").write_text("\n\n".join(blocks), encoding="utf-8")
    page = loaded(tmp_path, "recipes")
    page.ANSWERS = tmp_path / "answers"
    page.ANSWERS.mkdir()
    return page


def test_each_recipe_runs(recipes: Any, tmp_path: Path) -> None:
    """A delay, a person who says yes and one who says no, polling, a list, a pivot, tenants, a task each night."""

    async def call() -> None:
        async with mg.Node(recipes.shop, f"sqlite:///{tmp_path / 'recipes.db'}") as node:
            client = node.client
            waiting = [await client.submit(recipes.approved, order) for order in ("o-1", "o-2")]
            await recipes.remind_later(client, "o-9", delay="100ms")
            for workflow, inputs, result in (
                (recipes.render_film, ("f",), "POST /renders/f"),
                (recipes.print_book, ("b",), 3),
                (recipes.release_book, ("b",), "POST /published/b"),
                (recipes.synchronise, ("blue", "r"), "PUT /records/r"),
            ):
                task = await client.submit(workflow, *inputs)
                assert await task.result("30s") == result
            first, again = await recipes.nightly(client), await recipes.nightly(client)
            assert first.id == again.id
            (recipes.ANSWERS / "o-1").write_text("yes", encoding="utf-8")
            (recipes.ANSWERS / "o-2").write_text("no", encoding="utf-8")
            assert await waiting[0].result("30s") == "o-1 done"
            with pytest.raises(mg.TaskUndone):
                await waiting[1].result("30s")
            while not (found := await client.find(mg.Filter(workflow="remind", key="o-9"))):
                pass
            assert await client.task(str(found[0].id)).result("30s") == "reminder for o-9 done"

    asyncio.run(asyncio.wait_for(call(), 60))


def test_a_declined_card_is_answered_by_an_apology_and_a_paid_one_is_refunded(
    recipes: Any, tmp_path: Path
) -> None:
    """The mail is taken back when the card is declined; an undo of a paid order refunds that very payment."""
    asked: list[tuple[str, str, dict[str, Any]]] = []
    declined = False

    def http(method: str, path: str, headers: Any = None, **data: Any) -> dict[str, Any]:
        asked.append((method, path, data))
        return {"id": "pi_1", "state": "declined" if declined else "ready"}

    recipes.http = http

    async def call() -> None:
        nonlocal declined
        async with mg.Node(recipes.shop, f"sqlite:///{tmp_path / 'pay.db'}") as node:
            task = await node.client.submit(recipes.pay, "o-1", 500)
            assert await task.result("30s") == "pi_1"
            await task.undo(why="sent back")
            await task.wait("30s")
            assert ("POST", "/v1/refunds", {"payment_intent": "pi_1"}) in asked
            asked.clear()
            declined = True
            task = await node.client.submit(recipes.pay, "o-2", 500)
            with pytest.raises(mg.TaskUndone):
                await task.result("30s")
            assert asked[-1] == ("POST", "/mail", {"text": "sorry: o-2 was cancelled"})

    asyncio.run(asyncio.wait_for(call(), 60))
