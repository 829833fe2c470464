"""Tasks with lanes, submitted in the caller's own transaction, on every kind of connection."""

import contextlib
from typing import Any

import pytest

import makegood as mg
from tests.submission.connections import Door, Player

APP = mg.App("bank")
DESK = APP.agent("desk")


@DESK.action(complete_within="20s", undo=mg.NOTHING)
def move(source: str) -> str:
    """Move money."""
    return source


@APP.workflow(lane=lambda source, target: [source, target], at_once=2)
def transfer(source: str, target: str) -> str:
    """Move money between two accounts, of which each has two transfers at a time."""
    return move(source)


class BackError(Exception):
    """What the application rolls back with."""


def places(world: Any) -> list[tuple[Any, ...]]:
    """Return all places, as far as they are committed."""
    prefix = "makegood." if world.url.startswith("postgres") else "makegood_"
    sql = "select app, name, at_once, when_taken, state, count(*) from {p}lane group by 1, 2, 3, 4, 5 order by 2, 3"
    return [tuple(row) for row in world.rows(sql.replace("{p}", prefix))]


def test_it_is_in_its_lanes_once_the_caller_commits(door: Door) -> None:
    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            tasks = [
                await shop.submit(transfer, "ada", "bob", connection=connection),
                await shop.submit(transfer, "ada", "bob", connection=connection, lane="ada"),
                await shop.submit(transfer.plan("ada", "bob").with_(lane=["till", 7]), connection=connection),
                await shop.submit(transfer, "ada", "bob", connection=connection, lane=()),
            ]
            assert places(shop.world) == []
        states = [(await shop.settled(task.status())).task.state for task in tasks]
        assert states == ["queued", "queued", "queued", "pending"]
        assert [row[1:] for row in places(shop.world)] == [
            ("7", 2, "wait", "waiting", 1), ("ada", 2, "wait", "waiting", 2), ("bob", 2, "wait", "waiting", 1),
            ("till", 2, "wait", "waiting", 1),
        ]  # fmt: skip

    door.play(story)


def test_a_task_has_one_order_in_all_its_lanes(door: Door) -> None:
    """If two tasks were each before the other in some lane, both would wait forever."""

    async def story(shop: Player) -> None:
        names = [f"lane {n}" for n in range(10)]
        async with door.begin() as connection:
            for _ in range(5):
                await shop.submit(transfer, "ada", "bob", connection=connection, lane=names)
        prefix = "makegood." if shop.world.url.startswith("postgres") else "makegood_"
        orders = shop.world.rows(f"select count(*), count(distinct seq) from {prefix}lane group by task")
        assert [tuple(row) for row in orders] == [(10, 1)] * 5

    door.play(story)


def test_its_places_are_rolled_back_with_the_caller(door: Door) -> None:
    async def story(shop: Player) -> None:
        with contextlib.suppress(BackError):
            async with door.begin() as connection:
                await shop.submit(transfer, "ada", "bob", key="k", connection=connection)
                raise BackError
        assert places(shop.world) == []
        task = await shop.submit(transfer, "ada", "bob", key="k", lane="till")
        assert not (await shop.submit(transfer, "ada", "bob", key="k", lane="other")).created
        assert (await shop.settled(task.status())).task.state == "queued"
        assert [row[1] for row in places(shop.world)] == ["till"]
        with pytest.raises(mg.ConfigError, match="lane"):
            await shop.submit(transfer, "ada", "bob", lane=[str(n) for n in range(11)])

    door.play(story)


def test_many_have_the_lanes_that_a_function_names(door: Door) -> None:
    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            plans = [transfer.plan("ada", "bob"), transfer.plan("lea", "bob")]
            many = shop.client.submit_many(
                plans, lane=lambda plan: plan.lanes.names[0], connection=connection
            )
            handles = list(await shop.settled(many))
            assert len(handles) == 2
        assert [row[1] for row in places(shop.world)] == ["ada", "bob"]

    door.play(story)
