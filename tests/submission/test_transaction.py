"""A task submitted in the caller's own transaction stands or falls with it: on every kind of connection."""

import contextlib

import pytest

import makegood as mg
from tests.actors.noop_apps import chain_app
from tests.submission.connections import ORDER, Door, Player

_, CHAIN = chain_app(3)


class BackError(Exception):
    """What the application rolls back with."""


def test_both_are_committed_together(door: Door) -> None:
    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            await door.run(connection, ORDER)
            task = await shop.submit(CHAIN, "a", key="k", priority=7, connection=connection)
            assert task.created
            assert shop.world.counts() == (0, 0, 0), "nothing is seen before the commit"
        assert shop.world.counts() == (1, 1, 3)
        view = (await shop.settled(task.status())).task
        assert (view.id, view.key, view.priority, view.state) == (task.number, "k", 7, "pending")

    door.play(story)


def test_both_are_rolled_back_together(door: Door) -> None:
    async def story(shop: Player) -> None:
        with contextlib.suppress(BackError):
            async with door.begin() as connection:
                task = await shop.submit(CHAIN, "a", key="k", connection=connection)
                await door.run(connection, ORDER)
                raise BackError
        assert shop.world.counts() == (0, 0, 0)
        with pytest.raises(mg.TaskNotFoundError, match="appears when its transaction commits"):
            await shop.settled(task.result(timeout="60s"))
        task = await shop.submit(CHAIN, "b", key="k")
        assert task.created, "the key is as free as if nothing had been"

    door.play(story)


def test_what_its_submitter_is_told_stands_or_falls_with_it_too(door: Door) -> None:
    sql = "select told, notified from {task}"
    waiting = "select n.sequence, l.host, l.last from {notice} n join {listener} l on l.task = n.task"

    async def story(shop: Player) -> None:
        options = {"reply_to": "https://shop.example/", "correlation_id": "c"}
        with contextlib.suppress(BackError):
            async with door.begin() as connection:
                await shop.submit(CHAIN, "a", connection=connection, **options)
                raise BackError
        assert shop.world.rows(waiting) == []
        async with door.begin() as connection:
            task = await shop.submit(CHAIN, "a", connection=connection, **options)
            await door.run(connection, ORDER)
        assert shop.world.counts() == (1, 1, 3)
        assert [tuple(row) for row in shop.world.rows(sql)] == [("received", 1)]
        assert [tuple(row) for row in shop.world.rows(waiting)] == [(1, "shop.example", 1)]
        assert (await shop.settled(task.status())).reply_to == "https://shop.example/"
        async with door.begin() as connection:
            await shop.submit(CHAIN, "b", connection=connection, reply_to="queue:web")
        (row,) = shop.world.rows("select queue, sequence from {message}")
        assert tuple(row) == ("web", 1)

    door.play(story)


def test_its_attributes_stand_or_fall_with_it_too(door: Door) -> None:
    sql = "select name, value from {attribute} order by name"

    async def story(shop: Player) -> None:
        options = {"key": "k", "attributes": {"customer": "ada \U0001f980 'x'", "vip": True}}
        with contextlib.suppress(BackError):
            async with door.begin() as connection:
                await shop.submit(CHAIN, "a", connection=connection, **options)
                raise BackError
        assert shop.world.rows(sql) == []
        async with door.begin() as connection:
            task = await shop.submit(CHAIN, "a", connection=connection, **options)
            again = await shop.submit(
                CHAIN, "a", connection=connection, key="k", attributes={"customer": "bob"}
            )
            await door.run(connection, ORDER)
        assert (again.id, again.created) == (task.id, False)
        assert [tuple(row) for row in shop.world.rows(sql)] == [
            ("customer", "ada \U0001f980 'x'"),
            ("vip", "true"),
        ]
        assert shop.world.counts() == (1, 1, 3)

    door.play(story)


def test_the_same_key_leaves_the_transaction_alone(door: Door) -> None:
    async def story(shop: Player) -> None:
        before = await shop.submit(CHAIN, "a", key="k")
        async with door.begin() as connection:
            again = await shop.submit(CHAIN, "a", key="k", connection=connection)
            assert (again.id, again.created) == (before.id, False)
            with pytest.raises(mg.KeyConflict) as error:
                await shop.submit(CHAIN, "b", key="k", connection=connection)
            assert error.value.task_id == before.id
            assert "with other inputs (order: another text): use another key" in str(error.value)
            new = await shop.submit(CHAIN, "b", key="l", connection=connection)
            twice = await shop.submit(CHAIN, "b", key="l", connection=connection)
            assert (new.created, twice.created, twice.id) == (True, False, new.id)
            await door.run(connection, ORDER)
        assert shop.world.counts() == (1, 2, 6)

    door.play(story)


def test_without_an_open_transaction_nothing_is_written(door: Door) -> None:
    async def story(shop: Player) -> None:
        async with door.loose() as connection:
            with pytest.raises(mg.TransactionError, match=r"commit.*by itself|autocommit"):
                await shop.submit(CHAIN, "a", connection=connection)
            await door.run(connection, "select 1")
        assert shop.world.counts() == (0, 0, 0)

    door.play(story)


def test_refused_values_leave_the_transaction_alone(door: Door) -> None:
    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            for key in ("a\0b", "\ud800"):
                with pytest.raises(mg.PayloadError, match="nothing was written"):
                    await shop.submit(CHAIN, "a", key=key, connection=connection)
            await door.run(connection, ORDER)
        assert shop.world.counts() == (1, 0, 0)

    door.play(story)


def test_many_in_one_transaction(door: Door) -> None:
    async def story(shop: Player) -> None:
        orders = [str(n) for n in range(25)]
        async with door.begin() as connection:
            many = shop.client.submit_many(CHAIN, orders, key=str, batch=10, connection=connection)
            tasks = list(many) if door.blocks else await many
            assert [task.created for task in tasks] == [True] * 25
            assert shop.world.counts() == (0, 0, 0)
        assert shop.world.counts() == (0, 25, 75)
        assert len({task.id for task in tasks}) == 25

    door.play(story)
