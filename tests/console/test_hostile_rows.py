"""Whatever a row contains, every page, the API, the exports and the command line answer: one row never hides the others from operators."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import click.testing
import pytest

from makegood.base import ids
from makegood.cli import main
from makegood.console.app import create_app
from makegood.model.attempt_end import AttemptEnd
from makegood.store.rows import attempts
from tests.conformance.worlds import World
from tests.console.asking import Browser, Got
from tests.console.hostile_rows import (
    COMMANDS,
    PAGES,
    TABLES,
    Column,
    Rows,
    fill_tables,
    json_literals,
    literals,
    pages_for,
    pages_of,
    url_of,
)

pytestmark = pytest.mark.timeout(1200)  # on a machine that does much else
RAW = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\xad\U000e0000-\U000e0fff]")
"""Characters that reorder text or are not seen."""
PAGE_VALUES, COMMAND_VALUES = (9, 2) if os.environ.get("MAKEGOOD_NIGHT") else (1, 1)
"""How many values of each column pages meet, and commands: `make hostile` tries more."""


@dataclass
class Views:
    """A filled store, and all that shows it."""

    world: World
    url: str
    browser: Browser
    rows: Rows
    columns: list[Column]
    tasks: list[int]

    async def page(self, path: str) -> Got:
        """Open a page, as it is now."""
        self.browser.app._reads.forget()  # type: ignore[attr-defined]
        return await self.browser.get(path)

    async def failing_pages(self, pages: list[str]) -> list[tuple[str, int]]:
        """Return the pages that fail."""
        results = [(path, (await self.page(path)).status) for path in pages]
        return [(path, status) for path, status in results if status not in (200, 303, 404)]

    def command(self, words: str, *more: str) -> click.testing.Result:
        """Run a command."""
        runner = click.testing.CliRunner(env={"MAKEGOOD_STORE": self.url})
        return runner.invoke(main, [*words.replace("TASK", ids.show(self.tasks[4])).split(), *more])

    async def failing_commands(
        self, *commands: str, forms: Sequence[tuple[str, ...]] = ((), ("--json",))
    ) -> list[tuple[str, str]]:
        """Return the commands that end with an error that nobody expected. ``forms``: text, and JSON."""
        results = []
        for words in commands:
            for more in forms:
                result = await in_thread(lambda words=words, more=more: self.command(words, *more))
                if "unexpected" in result.output or not isinstance(result.exception, SystemExit | None):
                    results.append((words, result.output[-300:]))
                elif more and result.exit_code == 0:
                    json.loads(result.stdout)
        return results

    async def samples(self, column: Column, chance: Random) -> list[str]:
        """Return values for a column: those of other kinds, and of JSON also some with one odd leaf."""
        results = literals(self.world.dialect, column.kind)
        if column.kind in ("blob", "bytea"):
            name = self.rows.table(column.table)
            for (data,) in await self.rows.run(
                f"select {column.name} from {name} where {column.name} is not null limit 2"
            ):
                results += json_literals(bytes(data), self.world.dialect, chance)
        return results


async def in_thread(work: Any) -> Any:
    """Run what opens an event loop of its own."""
    return await asyncio.to_thread(work)


@asynccontextmanager
async def open_views(world: World) -> AsyncIterator[Views]:
    """Open a console on a filled store."""
    url = url_of(world)
    await fill_tables(world, url)
    rows = Rows(world)
    columns = await rows.columns()
    tasks = [task for (task,) in await rows.run(f"select id from {rows.table('task')} order by id")]
    async with create_app(url, insecure=True) as app:
        yield Views(world, url, Browser(app), rows, columns, tasks)


async def test_every_table_at_once(world: World) -> None:
    """Each column of each table has a value that it was never meant for, and everything answers."""
    async with open_views(world) as views:
        pages = [*PAGES, *(page for task in views.tasks[3:7] for page in pages_of(task))]
        assert await views.failing_pages(pages) == []
        chance = Random(7)
        values = {
            column: chance.sample(some, len(some))
            for column in views.columns
            if (some := literals(world.dialect, column.kind))
        }
        writes = 0
        for n in range(4):
            for column, some in values.items():
                short = [value for value in some if len(value) < 100_000]
                writes += await views.rows.damage(column, short[n % len(short)])
            assert await views.failing_pages(pages) == [], n
            if n == 0:
                assert await views.failing_commands(*COMMANDS) == [], n
            for table in TABLES:
                await views.rows.restore(table)
        assert writes > 300


@pytest.mark.parametrize("table", TABLES)
async def test_no_value_of_a_column_stops_a_page(world: World, table: str) -> None:
    """One column at a time, so that nothing hides behind another fault."""
    async with open_views(world) as views:
        pages, chance, writes = pages_for(table, views.tasks[3:6]), Random(table), 0
        for column in (column for column in views.columns if column.table == table):
            some = await views.samples(column, chance)
            for value in chance.sample(some, min(len(some), PAGE_VALUES)):
                if not await views.rows.damage(column, value):
                    continue
                writes += 1
                assert await views.failing_pages(pages) == [], (column, value[:80])
                await views.rows.restore(table)
        assert writes


async def test_attempts_of_an_unknown_kind_are_shown(world: World) -> None:
    """Of every task: under way, as its request says, and ended, as its history says."""
    async with open_views(world) as views:
        pages = ["/errors", *(page for task in views.tasks for page in pages_of(task))]
        (kind,) = (c for c in views.columns if (c.table, c.name) == ("request", "kind"))
        assert await views.rows.damage(kind, "'of a newer version'")
        assert await views.failing_pages(pages) == []
        await views.rows.restore("request")
        odd = attempts([AttemptEnd(0, 1, "of a newer version", "failed"), AttemptEnd(1, 1, "", "expired")])
        async with world.raw() as raw:
            await raw.run("update {event} set attempts = ?", odd)
        assert await views.failing_pages(pages) == []
        assert await views.failing_commands("task history TASK", "task show TASK") == []


@pytest.mark.parametrize("table", TABLES)
async def test_no_value_of_a_column_stops_a_command(world: World, table: str) -> None:
    """One value of each column as text or as JSON; at night one as text, another as JSON."""
    async with open_views(world) as views:
        chance, writes = Random(table), 0
        for column in (column for column in views.columns if column.table == table):
            some = [value for value in await views.samples(column, chance) if len(value) < 100_000]
            forms = chance.sample([(), ("--json",)], COMMAND_VALUES)
            for value, form in zip(chance.sample(some, min(len(some), COMMAND_VALUES)), forms, strict=False):
                if not await views.rows.damage(column, value):
                    continue
                writes += 1
                assert await views.failing_commands(*COMMANDS, forms=(form,)) == [], (column, value[:80])
                await views.rows.restore(table)
        assert writes


@pytest.mark.parametrize(
    ("table", "path", "key"),
    [
        ("task", "/api/v1/tasks", "tasks"),
        ("alert", "/api/v1/alerts", "alerts"),
        ("audit", "/api/v1/audit", "audit"),
        ("node", "/api/v1/nodes", "nodes"),
    ],
)
async def test_one_row_does_not_hide_the_others(world: World, table: str, path: str, key: str) -> None:
    """The others are listed, whatever one of them contains."""
    async with open_views(world) as views:

        def names_in(response: Got) -> set[str]:
            document = json.loads(response.text)
            entries = document[key] if isinstance(document, dict) else document
            return {str(entry.get("id") or entry.get("act")) for entry in entries}

        first = views.rows.first[table]
        (last,) = (await views.rows.run(f"select max({first}) from {views.rows.table(table)}"))[0]
        whole = names_in(await views.page(path))
        others = whole - {ids.show(last) if table == "task" else str(last)}
        assert len(others) > 1
        chance = Random(table)
        for column in (column for column in views.columns if column.table == table and column.name != first):
            some = await views.samples(column, chance)
            for value in chance.sample(some, min(len(some), 6)):
                if await views.rows.damage(column, value, one=True):
                    assert others <= names_in(await views.page(path)), (column, value[:80])
                    await views.rows.restore(table)


async def test_invisible_characters_are_shown_as_such(world: World) -> None:
    """Two keys that look the same are told apart, on pages and in tables."""
    async with open_views(world) as views:
        task = views.rows.table("task")
        keys = ("invoice7", "invoice\u202e7", "invoice\u200b7", "caf\u00e9", "cafe\u0301")
        for key, number in zip(keys, views.tasks[3:8], strict=True):
            await views.rows.run(f"update {task} set key = '{key}' where id = {number}")
        for column in views.columns:
            if column.kind == "text" and column.name not in (
                "state",
                "kind",
                "key",
                "goal",
                "id",
                "act",
                "bulk",
                "roles",
            ):
                await views.rows.damage(
                    column, "'in\u202evisible\u200b\u2066'", one=column.table in ("lease", "lease_term")
                )
        for path in [*PAGES[:16], *(pages_of(number)[0] for number in views.tasks[3:8])]:
            if path not in ("/audit.csv", "/audit.jsonl"):
                assert RAW.findall((await views.page(path)).text) == [], path
        text = (await views.page("/tasks")).text
        for spelling in (
            ">invoice7<",
            ">invoice\\u202e7<",
            ">invoice\\u200b7<",
            ">caf\u00e9<",
            ">cafe\\u0301<",
        ):
            assert spelling in text, spelling
        table = (await in_thread(lambda: views.command("task list"))).output
        for spelling in ("invoice7 ", "invoice\\u202e7", "invoice\\u200b7", "caf\u00e9", "cafe\\u0301"):
            assert spelling in table, spelling
        assert RAW.findall(table) == []
