"""Who approves large orders, and the nightly settlement: real services, a real Node, and an approver that may be killed."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from examples.orders.approver import BY, MAY_APPROVE, Desk, answer, decide
from examples.orders.auditor import audit, read_told
from examples.orders.shop import LIMIT, NOT_APPROVED, Order, place_order, settle_now, shop
from examples.orders.storefront import TOLD, WANTED, append
from examples.orders.world import Services
from tests.waiting import moment

LARGE = LIMIT + 100
SEED = next(n for n in range(100) if decide("o-yes", n).yes and not decide("o-no", n).yes)
"""A seed with which the desk approves the one and refuses the other."""
QUICK = mg.Options(heartbeat="100ms", poll_every="100ms", linger="0s")


@asynccontextmanager
async def shopping(folder: Path) -> AsyncIterator[mg.Client]:
    """Run the shop; what waits sleeps at once."""
    async with mg.Node(shop, f"sqlite:///{folder / 'store.db'}", options=QUICK) as node:
        yield node.client


async def order(client: mg.Client, folder: Path, name: str, cents: int = LARGE) -> mg.TaskHandle[str]:
    """Order something, as a customer does; return its task."""
    append(folder / WANTED, {"id": name, "cents": cents})
    return await client.submit(place_order, Order(name, "chair", cents), key=name)


async def waiting(client: mg.Client, count: int) -> None:
    """Wait until so many orders wait for their approval."""
    while await client.count(mg.Filter(waits="approval")) != count:
        await moment()


def notes(folder: Path) -> list[dict[str, Any]]:
    """What the shop's book says."""
    return [json.loads(line) for line in (folder / TOLD).read_text().splitlines()]


def check_books(services: Services, folder: Path, *outcomes: tuple[str, str, int]) -> dict[str, int]:
    """The books balance with these outcomes; return the money."""
    lines = [
        json.dumps({"order": name, "outcome": outcome, "cents": cents}) for name, outcome, cents in outcomes
    ]
    book = folder / TOLD
    lines += book.read_text().splitlines() if book.exists() else []
    report = audit(services.books, read_told(lines))
    assert report.findings == ()
    return dict(report.money)


async def test_large_orders_wait_are_approved_or_refused_and_the_books_know_by_whom(
    services: Services, tmp_path: Path
) -> None:
    """A refused one is taken back, and its customer never heard of it; a small one waits for nobody."""
    async with shopping(tmp_path) as client:
        first, second, small = [
            await order(client, tmp_path, name, cents)
            for name, cents in (("o-yes", LARGE), ("o-no", LARGE), ("o-small", LIMIT))
        ]
        assert (await small.result(timeout="60s")).startswith("ship-")
        await waiting(client, 2)
        await Desk(tmp_path, client, SEED).answer_all()
        assert (await first.result(timeout="60s")).startswith("ship-")
        with pytest.raises(mg.TaskUndone) as failure:
            await second.result(timeout="60s")
        assert failure.value.cause == NOT_APPROVED
        assert failure.value.standing == ()
    assert {line.get("approved_by") or line["order"]: line.get("refused_by", "") for line in notes(tmp_path)} == {
        BY: "", "o-no": BY
    }  # fmt: skip
    ends = (("o-yes", "processed", LARGE), ("o-no", "undone", LARGE), ("o-small", "processed", LIMIT))
    assert check_books(services, tmp_path, *ends)["kept"] == LARGE + LIMIT


async def test_an_approver_that_was_killed_before_its_signal_gives_the_same_answer_once(
    services: Services, tmp_path: Path
) -> None:
    """It had noted its answer. The next one notes it again, and sends it; the one after that finds nothing that waits."""
    async with shopping(tmp_path) as client:
        task = await order(client, tmp_path, "o-yes")
        append(tmp_path / TOLD, decide("o-yes", SEED).line)
        await waiting(client, 1)
        for _ in range(3):
            await Desk(tmp_path, client, SEED).answer_all()
        assert (await task.result(timeout="60s")).startswith("ship-")
        again = await answer(client, tmp_path, decide("o-yes", SEED))
        assert (again.created, again.conflict) == (False, False)
    assert len({json.dumps(line) for line in notes(tmp_path)}) == 1
    check_books(services, tmp_path, ("o-yes", "processed", LARGE))


async def test_a_refused_order_that_is_resubmitted_gets_an_answer_again(
    services: Services, tmp_path: Path
) -> None:
    """Its signal has another id: a task takes a signal of one id only once."""
    async with shopping(tmp_path) as client:
        task = await order(client, tmp_path, "o-no")
        desk = Desk(tmp_path, client, SEED)
        for submission in (1, 2):
            await waiting(client, 1)
            await desk.answer_all()
            while (view := (await task.status()).task).state != "undone":
                await moment()
            assert (view.submission, view.cause) == (submission, NOT_APPROVED)
            if submission == 1:
                await task.resubmit(why="they ask again")
    check_books(services, tmp_path, ("o-no", "undone", LARGE))


async def test_the_approver_leaves_very_large_orders_and_those_of_other_shops(
    services: Services, tmp_path: Path
) -> None:
    async with shopping(tmp_path) as client:
        task = await order(client, tmp_path, "o-yes", MAY_APPROVE + 1)
        other = await client.submit(place_order, Order("another", "chair", LARGE), key="another")
        await waiting(client, 2)
        await Desk(tmp_path, client, SEED).answer_all()
        assert not (tmp_path / TOLD).exists()
        for handle in (task, other):
            await handle.cancel()
            with pytest.raises(mg.TaskUndone):
                await handle.result(timeout="60s")
    check_books(services, tmp_path, ("o-yes", "undone", LARGE), ("another", "undone", LARGE))


async def test_the_night_settles_what_the_bank_has_kept_and_the_next_night_the_rest(
    services: Services, tmp_path: Path
) -> None:
    async with shopping(tmp_path) as client:
        await (await order(client, tmp_path, "o-1", 1200)).result(timeout="60s")
        assert await (await settle_now(client, "a test")).result(timeout="60s") == 1200
        await (await order(client, tmp_path, "o-2", 300)).result(timeout="60s")
        assert await (await settle_now(client, "a test")).result(timeout="60s") == 300
        (schedule,) = await client.schedules(shop.name)
        assert schedule.name == "settle_day"
    assert check_books(services, tmp_path, ("o-1", "processed", 1200), ("o-2", "processed", 300)) == {
        "charged": 1500, "refunded": 0, "kept": 1500, "paid out": 1500
    }  # fmt: skip


async def test_a_settlement_that_is_undone_is_paid_back_and_the_next_one_has_it(
    services: Services, tmp_path: Path
) -> None:
    async with shopping(tmp_path) as client:
        await (await order(client, tmp_path, "o-1", 1200)).result(timeout="60s")
        task = await settle_now(client, "a test")
        await task.result(timeout="60s")
        await task.undo(why="the bank asks for it")
        while (await task.status()).task.state != "undone":
            await moment()
        assert await (await settle_now(client, "a test")).result(timeout="60s") == 1200
    assert check_books(services, tmp_path, ("o-1", "processed", 1200))["paid out"] == 1200
