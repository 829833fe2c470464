"""Rows with names that nobody would choose: the pages stay as wide as the window, and show what is invisible in them."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from makegood.base import ids
from makegood.store import open_store
from tests.browser.chromium import Page
from tests.browser.conftest import Listening, _served
from tests.browser.test_screens import SCREENS, WIDE, settled
from tests.conformance.builders import draft, steps

LONG_TASK = 4711
"""A task of 3,000 steps; some failed, one is in doubt."""
ENUMERATED = frozenset((
    "state", "kind", "goal", "on_failure", "standing", "roles", "verdict", "told", "act", "bulk", "id", "trace", "boot_id", "store_id",
))  # fmt: skip
"""Columns of texts that are no names, and ids that other rows name."""
KEPT = frozenset(
    (
        "makegood_lease.name",
        "makegood_lease_term.name",
        "makegood_schema_version.name",
        "makegood_lease.nonce",
    )
)


def lengthened(store: str, text: str) -> None:
    """Give every name in a store a text of 500 characters, each another one."""
    with closing(sqlite3.connect(store.removeprefix("sqlite:///"))) as file:
        tables = [
            name
            for (name,) in file.execute(
                "select name from sqlite_master where type = 'table' and name like 'makegood_%'"
            )
        ]
        for table in tables:
            for name, kind in file.execute(
                f"select name, lower(type) from pragma_table_info('{table}')"
            ).fetchall():
                if kind != "text" or name in ENUMERATED or f"{table}.{name}" in KEPT:
                    continue
                number = "idx" if table == "makegood_step" else "rowid" if _has_rowids(file, table) else "1"
                file.execute(
                    f"update {table} set {name} = substr('{text}', 1, 490) || {number} where {name} is not null and {name} <> ''"
                )
        for number, info in file.execute("select id, info from makegood_node").fetchall():
            file.execute(
                "update makegood_node set info = ? where id = ?",
                (info.replace(b"shop", text.encode()[:490]), number),
            )
        file.commit()


def _has_rowids(file: sqlite3.Connection, table: str) -> bool:
    return (
        "without rowid"
        not in file.execute("select sql from sqlite_master where name = ?", (table,)).fetchone()[0]
    )


async def _with_a_long_task(store_url: str) -> None:
    store = open_store(store_url)
    await store.open()
    await store.tasks.submit([draft(LONG_TASK, key="long", steps=steps(3000))])
    await store.close()
    with closing(sqlite3.connect(store_url.removeprefix("sqlite:///"))) as file:
        file.execute(
            "update makegood_step set state = case when idx % 500 = 7 then 'failed' when idx = 50 then 'in_doubt' else 'done' end, "
            "error = case when idx % 500 = 7 then 'refused' end where task = ? and idx < 2990",
            (LONG_TASK,),
        )
        file.commit()


@pytest.fixture(scope="module", params=["W", "schlüssel-"])
def console(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
    """A console whose store has long names everywhere."""
    folder: Path = tmp_path_factory.mktemp("long")
    with _served(folder, "") as listening:
        asyncio.run(_with_a_long_task(listening.store))
        lengthened(listening.store, request.param * 500)
        yield listening


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("screen", SCREENS)
def test_no_page_scrolls_sideways(page: Page, console: Listening, screen: str, width: int) -> None:
    """Keys, steps, agents, processes and people with names of 500 characters; every dialog, too."""
    page.look(width=width)
    settled(page, console, screen)
    assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0, page.run(WIDE)
    page.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
    assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0, page.run(WIDE)
    wide = page.run("""[...document.querySelectorAll('.dialog')].map(one => {
      one.showPopover(); const wider = one.scrollWidth - one.clientWidth; one.hidePopover(); return [one.id, wider];
    }).filter(([, wider]) => wider > 0)""")
    assert wide == []


@pytest.mark.parametrize("width", [390, 1280])
def test_the_folded_page_of_a_long_task_fits_and_its_blocks_open_by_keyboard(
    page: Page, console: Listening, width: int
) -> None:
    """Its overview, the page of a block, and the list of those that failed."""
    page.look(width=width)
    overview = console.at(f"/tasks/{ids.show(LONG_TASK)}")
    page.open(overview)
    assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0, page.run(WIDE)
    links: list[str] = page.run(
        '[...document.querySelectorAll(\'main a[href*="steps="], main a[href*="state=failed"]\')].map(one => one.href)'
    )
    assert links
    for link in (links[0], links[-1]):
        page.open(overview)
        for _ in range(300):
            page.press("Tab")
            if page.run("document.activeElement?.href") == link:
                break
        assert page.run("document.activeElement?.href") == link
        page.heard()
        page.press("Enter")
        page.loaded()
        assert page.run("location.href") == link
        assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0, page.run(WIDE)
        assert page.run("document.querySelectorAll('.rung').length") > 0
