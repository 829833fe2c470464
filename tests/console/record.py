"""Runs the tasks whose pages the tests draw, and records what the store shows of them.

``python -m tests.console.record [NAME ...]`` writes ``recorded/NAME.json``.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import makegood as mg
from makegood.store.views import TaskDetail
from tests.console.recorded_tasks import Recorded, keep
from tests.waiting import until

LONG = 3600
PATIENT = mg.Recover(threshold=3, wait=LONG, extended=LONG)

shop = mg.App("shop")
stock, payments, carrier = shop.agent("stock"), shop.agent("payments"), shop.agent("carrier")
ONCE = mg.Retry(tries=1)


@stock.action(complete_within="20s", retry=ONCE)
def reserve(order: str) -> str:
    """Hold the goods."""
    return f"reserve-{order}"


@reserve.undo
def release(order: str, *, result: str | None) -> None:
    """Let the goods go."""


@payments.action(complete_within="20s", retry=ONCE, recover=PATIENT)
def charge(order: str) -> str:
    """Take the money; orders called after what goes wrong."""
    if order == "doubt":
        raise TimeoutError("no answer from payments/charge within 3 s")
    if order.startswith("refused"):
        raise mg.Permanent("card refused")
    return f"charge-{order}"


@charge.probe
def find_charge(order: str) -> mg.NotHappened:
    """Ask the bank."""
    return mg.NOT_HAPPENED


@charge.undo
def refund(order: str, *, result: str | None) -> None:
    """Give the money back."""
    if order == "stuck":
        raise mg.Permanent("403 refunds are closed for this merchant account until settlement")


@carrier.action(complete_within="20s", retry=ONCE)
async def book(order: str) -> str:
    """Order a van."""
    return "book-1"


@book.undo
async def cancel(order: str, *, result: str | None) -> None:
    """Send the van away."""


@stock.action(complete_within="20s", retry=ONCE)
def pack(order: str) -> str:
    """Put the goods in a box."""
    return "pack-1"


@pack.undo
def unpack(order: str, *, result: str | None) -> None:
    """Put the goods back."""


@carrier.action(complete_within="20s", undo=mg.NOTHING, retry=ONCE)
def email(order: str, van: str) -> None:
    """Write to the customer."""


@carrier.action(complete_within="20s", retry=ONCE)
def ship(order: str) -> str:
    """Send the parcel; the heavy ones cannot be sent."""
    if order in ("heavy", "stuck"):
        raise mg.Permanent("the parcel is too heavy")
    return "ship-1"


@ship.undo
def call_back(order: str, *, result: str | None) -> None:
    """Have the parcel back."""


@carrier.action(complete_within="20s", no_return=True, retry=ONCE)
def hand_over(order: str) -> str:
    """Give the goods to the customer."""
    return "handed over"


@carrier.action(complete_within="20s", undo=mg.NOTHING, retry=ONCE, recover=PATIENT)
def notify(order: str) -> None:
    """Tell the shop's owner."""
    raise mg.Permanent("no such mailbox")


@stock.action(complete_within="20s", undo=mg.NOTHING, retry=ONCE)
def split(order: str, lines: int) -> list[int]:
    """Return the lines of an order."""
    return list(range(lines))


@stock.action(complete_within="20s", retry=ONCE)
async def hold_line(line: int) -> str:
    """Hold the goods of a line."""
    return f"hold-{line}"


@hold_line.undo
async def free_line(line: int, *, result: str | None) -> None:
    """Let the goods of a line go; those of line 19 are on their way already."""
    if line == 19:
        raise mg.Permanent("409 the hold is being shipped")


@payments.action(complete_within="20s", undo=mg.NOTHING, retry=ONCE)
def screen(order: str) -> str:
    """Return the risk of an order."""
    return "low"


@payments.action(complete_within="20s", undo=mg.NOTHING, retry=ONCE)
def review(order: str) -> str:
    """Look at an order closely."""
    return "fine"


@shop.workflow(complete_within="2h")
def place_order(order: str) -> str:
    """The usual order."""
    reserve(order)
    charge(order)
    van, _ = mg.parallel(book(order), pack(order))
    email(order, van)
    return ship(order)


@shop.workflow(complete_within="2h")
def fulfil(order: str, lines: int) -> str:
    """An order of many lines."""
    mg.each(split(order, lines), hold_line, limit=1000)
    return charge(order)


@shop.workflow(complete_within="2h")
def screened(order: str) -> str:
    """An order that may be reviewed."""
    mg.when(screen(order) == "high", then=lambda: review(order))
    return reserve(order)


@shop.workflow(complete_within="2h")
def final(order: str) -> None:
    """An order that cannot be taken back once it is handed over."""
    reserve(order)
    hand_over(order)
    notify(order)


@shop.workflow(complete_within="2h")
def trip(order: str) -> str:
    """Five branches side by side, and a long end."""
    reserve(order)
    mg.branches(
        lambda: (book(order), pack(order)),
        lambda: book(order),
        lambda: pack(order),
        lambda: reserve(order),
        lambda: charge(order),
    )
    for _ in range(30):
        pack(order)
    return ship(order)


async def ended(node: mg.Node, workflow: mg.Workflow[..., Any], *inputs: object) -> int:
    """Submit a task and wait until it is at rest; return its number."""
    task = await node.client.submit(workflow, *inputs, key=f"o-{inputs[0]}")
    await task.wait(60)
    return task.number


async def undone(node: mg.Node) -> int:
    """Return a task that was undone, with branches and a kept effect."""
    return await ended(node, place_order, "heavy")


async def stuck(node: mg.Node) -> int:
    """Return a task whose undo is stuck, twice."""
    task = await ended(node, place_order, "stuck")
    await node.client.task(task).undo(why="refunds open again?", who="bob")
    await node.client.task(task).wait(60)
    return task


async def round_two(node: mg.Node) -> int:
    """Return a task that was undone, resubmitted and undone again."""
    task = await ended(node, place_order, "refused again")
    await node.client.task(task).resubmit(why="the customer has another card", who="ann")
    await node.client.task(task).wait(60)
    return task


async def in_doubt(node: mg.Node) -> int:
    """Return a task in flight, with a step in doubt that waits for its next attempt."""
    task = await node.client.submit(place_order, "doubt", key="o-doubt")

    async def waits() -> bool:
        status = await task.status()
        return any(step.state == "in_doubt" and step.waiting for step in status.steps)

    await until(waits)
    return task.number


async def each(node: mg.Node) -> int:
    """Return a task with 300 items, the undo of one of which is stuck."""
    return await ended(node, fulfil, "refused", 300)


async def few(node: mg.Node) -> int:
    """Return a processed task with twelve items."""
    return await ended(node, fulfil, "usual", 12)


async def when(node: mg.Node) -> int:
    """Return a task with a branch that was not taken."""
    return await ended(node, screened, "usual")


async def no_return(node: mg.Node) -> int:
    """Return a task that is held past its point of no return."""
    return await ended(node, final, "special")


async def wide(node: mg.Node) -> int:
    """Return a task of five branches side by side, and more steps than a page shows at once."""
    return await ended(node, trip, "usual")


TASKS: dict[str, Callable[[mg.Node], Awaitable[int]]] = {
    "undone": undone, "stuck": stuck, "round_two": round_two, "in_doubt": in_doubt, "each": each, "few": few,
    "when": when, "no_return": no_return, "wide": wide,
}  # fmt: skip


async def seen(client: mg.Client, task: int) -> Recorded:
    """Return what the store shows of a task."""
    store = client.store
    detail = await store.tasks.detail(task, with_asked=True)
    assert isinstance(detail, TaskDetail)
    return Recorded(
        detail, await store.tasks.history(task), await store.admin.audit(100, task),
        await store.alerts.views(task=task), await store.nodes.views(), await store.now(),
    )  # fmt: skip


async def record(name: str) -> None:
    """Run one task and record it."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'shop.db')}"
        async with mg.Node(shop, url) as node:
            recording = await seen(node.client, await TASKS[name](node))
        keep(name, recording)


async def waiting() -> None:
    """Record a task that no Scheduler has seen: it has no times."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'shop.db')}"
        async with mg.Node(shop, url):
            pass  # it has made the store
        async with mg.Client(url) as client:
            task = await client.submit(place_order, "new", key="o-new")
            keep("without_times", await seen(client, task.number))


if __name__ == "__main__":
    for task_name in sys.argv[1:] or TASKS:
        asyncio.run(record(task_name))
    asyncio.run(waiting())
