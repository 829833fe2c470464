"""A race (``mg.first``) as it is drawings, in the terminal and in the console: the winner, the losers, and their undos."""

import asyncio
import re
from pathlib import Path
from typing import Any

import makegood as mg
from makegood.cli.render.ladder import ladder
from makegood.cli.render.output import plain
from tests.actors.conftest import QUIET
from tests.console.consoles import Console, a_console
from tests.waiting import until


class Shop:
    """Three carriers: ``express`` wins, ``stamp`` of another branch is done by then, and ``walk`` has not begun."""

    def __init__(self) -> None:
        self.app = app = mg.App("shop")
        self.stamp, self.undo = asyncio.Event(), asyncio.Event()
        desk = app.agent("desk")

        @desk.action(complete_within="1m")
        async def express(order: str) -> str:
            await self.stamp.wait()
            return "express"

        @desk.action(complete_within="1m")
        async def stamp(order: str) -> str:
            self.stamp.set()
            return "stamp"

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def carry(order: str, stamp: str) -> str:
            await mg.current_call().sleep("1m")
            return "carried"

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def walk(order: str) -> str:
            return "walked"

        @express.undo
        async def stop(order: str, *, result: str | None) -> None: ...

        @stamp.undo
        async def refund(order: str, *, result: str | None) -> None:
            await self.undo.wait()

        @app.workflow
        def ship(order: str) -> str:
            def later() -> str:
                mg.sleep("1d")
                return walk(order)

            return mg.first(lambda: express(order), lambda: carry(order, stamp(order)), later)

        self.ship = ship


async def drawings(console: Console, task: mg.TaskHandle[Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the terminal and the page say of each step, its undo included."""
    detail = await task.status()
    lines = [plain(line).split(None, 2) for line in ladder(detail, now=detail.now)[1:]]
    page = (await console.browser("vera").get(f"/tasks/{task.id}")).text
    page = page[page.index('class="ladder"') :]
    cells = re.split(r'<(?:a|div) class="cell ', page)[1:]
    sides: dict[str, str] = {}
    for cell in cells:
        words = " ".join(re.sub(r"<[^>]*>", " ", cell.partition(">")[2].partition('class="rung')[0]).split())
        if name := next(
            (step.name for step in detail.steps if re.match(rf"(undo )?{re.escape(step.name)}\b", words)), ""
        ):
            sides[name] = f"{sides.get(name, '')} | {words}".removeprefix(" | ")
    return {name: rest for _, name, rest in lines}, sides


async def test_a_race_shows_who_won_who_lost_and_what_is_undone(tmp_path: Path) -> None:
    shop = Shop()
    async with a_console(tmp_path) as console, mg.Node(shop.app, console.url, options=QUIET) as node:
        task = await node.client.submit(shop.ship, "o-1")

        async def is_undoing() -> bool:
            return any(step.state == "undoing" for step in (await task.status()).steps)

        async def is_over() -> bool:
            """Pages share what they read, for about a second."""
            return "undoing" not in (await drawings(console, task))[1]["stamp"]

        await until(is_undoing, "the undo of the loser")
        under_way = await drawings(console, task)
        shop.undo.set()
        await task.result("60s")
        await until(is_over, "the end of the undo")
        at_rest = await drawings(console, task)
    for (terminal, page), state in ((under_way, "undoing"), (at_rest, "undone")):
        assert terminal["express"].split() == ["desk", "done"]
        assert terminal["first"].split(None, 2) == ["(first)", "done", "express won"]
        assert terminal["stamp"].split(None, 2)[1] == state
        assert "lost" in terminal["stamp"]
        assert terminal["walk"].split() == ["desk", "skipped", "lost"]
        assert "any more" not in terminal["carry"]
        assert "express won" in page["first"]
        assert "lost" not in page["express"]
        assert "lost" in page["stamp"]
        assert re.search(rf"undo stamp\b.*{state}", page["stamp"])
        assert "skipped, lost" in page["walk"]
        assert "lost" in page["carry"]
