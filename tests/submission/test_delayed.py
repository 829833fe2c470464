"""A task that begins later, submitted in the caller's own transaction, on every kind of connection."""

import contextlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import makegood as mg
from tests.actors.noop_apps import chain_app
from tests.submission.connections import Door, Player

_, CHAIN = chain_app(3)
NEXT_YEAR = datetime(2029, 6, 1, 9, 30, tzinfo=ZoneInfo("Europe/Berlin"))


class BackError(Exception):
    """What the application rolls back with."""


def test_it_sleeps_once_the_caller_commits(door: Door) -> None:
    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            after_days = await shop.submit(CHAIN, "a", delay="3d", connection=connection)
            next_year = await shop.submit(CHAIN, "b", at=NEXT_YEAR, connection=connection)
            past = datetime.now(UTC) - timedelta(hours=1)
            at_once = await shop.submit(CHAIN, "c", at=past, connection=connection)
            assert shop.world.counts()[1] == 0
        views = [(await shop.settled(task.status())).task for task in (after_days, next_year, at_once)]
        assert [view.state for view in views] == ["sleeping", "sleeping", "pending"]
        assert views[0].starts == pytest.approx(views[0].created + 3 * 86_400, abs=60)
        assert (views[1].starts, views[1].start_wall) == (
            NEXT_YEAR.timestamp(),
            "2029-06-01T09:30:00[Europe/Berlin]",
        )
        assert views[2].starts is None

    door.play(story)


def test_it_is_rolled_back_with_the_caller(door: Door) -> None:
    async def story(shop: Player) -> None:
        with contextlib.suppress(BackError):
            async with door.begin() as connection:
                await shop.submit(CHAIN, "a", key="k", delay="1h", connection=connection)
                raise BackError
        assert shop.world.counts()[1] == 0
        task = await shop.submit(CHAIN, "b", key="k", delay="2h")
        assert task.created
        assert not (await shop.submit(CHAIN, "b", key="k", delay="9h")).created
        view = (await shop.settled(task.status())).task
        assert view.starts == pytest.approx(view.created + 7200, abs=1)
        with pytest.raises(mg.ConfigError, match="more than ten years from now"):
            await shop.submit(CHAIN, "c", at=datetime(2126, 1, 1, tzinfo=UTC))

    door.play(story)
