"""Plans that need more than their rows before they are submitted in the caller's own transaction, on every kind of connection:
values that a codec keeps elsewhere, and steps that a Scheduler of an older version does not know.
"""

import pytest

import makegood as mg
from tests.submission.connections import Door, Player

CANARY = "canary-4711"


def test_values_that_are_kept_elsewhere_are_put_there_before_the_caller_commits(door: Door) -> None:
    bucket: dict[str, bytes] = {}
    app = mg.App("shop", codec=mg.codecs.Elsewhere(10, bucket.__setitem__, bucket.__getitem__))
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def write(text: str) -> str:
        return text

    @app.workflow
    def letter(text: str) -> str:
        return write(text)

    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            task = await shop.submit(letter, CANARY, key="k", connection=connection)
            assert any(CANARY.encode() in data for data in bucket.values())
            again = await shop.submit(letter, CANARY, key="k", connection=connection)
            assert (task.created, again.created, again.id) == (True, False, task.id)
        ((static,),) = shop.world.rows("select static from {task}")
        assert CANARY.encode() not in bytes(static)

    door.play(story)


def test_a_value_that_cannot_be_kept_elsewhere_is_not_submitted(door: Door) -> None:
    """The caller sees why, and may submit again."""
    bucket: dict[str, bytes] = {}

    def put(name: str, data: bytes) -> None:
        if not bucket:
            raise OSError("no route to the bucket")
        bucket[name] = data

    app = mg.App("shop", codec=mg.codecs.Elsewhere(10, put, bucket.__getitem__))

    @app.workflow
    def letter(text: str) -> str:
        return text

    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            with pytest.raises(mg.CodecError, match="cannot be encoded by Elsewhere, so nothing was written"):
                await shop.submit(letter, CANARY, key="k", connection=connection)
            bucket["up"] = b""
            assert (await shop.submit(letter, CANARY, key="k", connection=connection)).created

    door.play(story)


def test_a_race_is_submitted_as_other_plans_are(door: Door) -> None:
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def ask(carrier: str) -> str:
        return carrier

    @app.workflow
    def race() -> str:
        return mg.first(lambda: ask("a"), lambda: ask("b"))

    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            await shop.submit(race, connection=connection)
        assert shop.world.counts()[1:] == (1, 3)

    door.play(story)
