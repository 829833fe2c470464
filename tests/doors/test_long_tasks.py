"""What the command line says of a task of thousands of steps: little, unless everything is asked for."""

import asyncio

from makegood.base import ids
from makegood.store import open_store
from tests.conformance.builders import draft, steps
from tests.doors.conftest import Shop

COUNT = 3000


async def submit(url: str) -> None:
    """Insert a task of so many steps."""
    store = open_store(url)
    await store.open(migrate=True)
    try:
        await store.tasks.submit([draft(1, steps=steps(COUNT), inputs=(b'"' + b"x" * 10_000 + b'"',))])
    finally:
        await store.close()


def test_a_long_task_is_folded_unless_all_steps_are_asked_for(shop: Shop) -> None:
    """With --all each step is a line and the input is whole; --json is complete either way."""
    asyncio.run(submit(shop.url))
    short = shop.done("task", "show", ids.show(1))
    assert f"s0 to s{COUNT - 1}" in short
    assert f"{COUNT} steps" in short
    assert "--all shows them" in short
    assert len(short) < 10_000
    whole = shop.done("task", "show", ids.show(1), "--all")
    assert all(f"\n  · s{n} " in whole for n in (0, 1000, COUNT - 1))
    assert "x" * 10_000 in whole.replace("\n", "")
    shape = shop.json("task", "show", ids.show(1))
    assert [step["idx"] for step in shape["steps"]] == list(range(COUNT))
    assert len(shape["inputs"][0]) == 10_000
