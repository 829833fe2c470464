"""Each page as HTML: hostile texts stay texts, nothing is inline, and what a viewer may not do is not offered."""

import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from makegood.base import ids
from makegood.console.app import create_app
from makegood.model.messages import Act, Alert
from makegood.store import open_store
from makegood.store.oversight_records import SupervisorDecision
from makegood.store.views import Filter
from tests.browser.sample import HOSTILE, fill
from tests.conformance.builders import draft
from tests.console.asking import Browser
from tests.console.consoles import USERS, a_console, migrated

PAGES = (
    "/", "/tasks", "/tasks?q=state:error", "/tasks?q=stat:error", "/tasks?group=batch", "/tasks?group=batch&q=workflow:none", "/tasks/TASK", "/alerts", "/errors", "/errors?since=7d&q=refunds", "/errors/GROUP", "/agents",
    "/cluster", "/schedules", "/schedules/backfill?app=shop&name=nightly", "/lanes", "/lanes/show?app=shop&name=ada", "/brokers", "/bulk", "/bulk/bulk-1", "/bulk/new?kind=undo&q=state:error", "/audit", "/stores", "/stores/doctor",
)  # fmt: skip
INLINE = re.compile(r"<[^>]+ (style|on[a-z]+)\s*=|<style|<script(?![^>]* src=)", re.IGNORECASE)


async def seen(folder: Path, user: str, pages: Mapping[str, str]) -> dict[str, str]:
    """Return pages as a user sees them, on a store that has something to show."""
    url = await migrated(folder)
    store = open_store(url)
    await store.open()
    task = await fill(store)
    await store.close()
    texts: dict[str, str] = {}
    async with create_app(url, users=USERS) as app:
        browser = Browser(app)
        browser.cookies["makegood_login"] = app.access.cookie(user)
        for name, path in pages.items():
            group = next(iter(re.findall(r"/errors/([0-9a-f]+)", texts.get("/errors", ""))), "")
            response = await browser.get(path.replace("TASK", ids.show(task)).replace("GROUP", group))
            assert response.status == 200, path
            texts[name] = response.text
    return texts


async def test_hostile_texts_stay_texts_and_nothing_is_inline(tmp_path: Path) -> None:
    """A key, a cause and an alert that would run, on every page; no style, handler or script inside a page."""
    pages = await seen(tmp_path, "ada", {path: path for path in PAGES})
    for path, text in pages.items():
        assert "<script>alert" not in text, path
        assert not INLINE.search(re.sub(r"&[a-z0-9#]+;", "", text)), path
    assert "&lt;script&gt;alert" in pages["/alerts"]
    assert "{{ 7 * 7 }}" in pages["/tasks"]
    assert HOSTILE not in "".join(pages.values())


async def test_a_viewer_is_offered_no_act(tmp_path: Path) -> None:
    """The page hides what the server would refuse: the only form of a POST is that of the logout."""
    pages = await seen(
        tmp_path, "vera", {path: path for path in PAGES if not re.search("new|doctor|backfill", path)}
    )
    for path, text in pages.items():
        acts = [
            action
            for action in re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"', text)
            if action != "/logout"
        ]
        assert acts == [], path
        assert 'href="/bulk/new' not in text, path
        assert 'href="/schedules/backfill' not in text, path


@pytest.mark.parametrize(
    ("path", "needle"),
    [
        ("/tasks?q=stat:error", "did you mean state:...?"),
        ("/tasks?q=key:nothing", "No task matches"),
        ("/errors?q=nothing-like-it", "Nothing matches."),
        ("/audit?before=soon", "is not a time in seconds"),
        ("/bulk/new?kind=undo", "no task is chosen"),
        ("/bulk/nothing", "there is no bulk act"),
        ("/tasks?before=nothing", "is not a task id"),
    ],
)
async def test_what_is_not_understood_is_said_on_the_page(tmp_path: Path, path: str, needle: str) -> None:
    url = await migrated(tmp_path)
    async with create_app(url, users=USERS) as app:
        browser = Browser(app)
        browser.cookies["makegood_login"] = app.access.cookie("otto")
        assert needle in (await browser.get(path)).text.replace("&#39;", "'")


async def test_a_list_says_which_tasks_an_act_is_for(tmp_path: Path) -> None:
    """The ticked ones by a form that does not hold the filter, all by a link that does; and why one is missing."""
    paths = {"all": "/tasks", "error": "/tasks?q=state:error", "undone": "/tasks?q=state:undone"}
    pages = await seen(tmp_path, "otto", paths)
    to_all = "To act on all tasks that match, filter the list first."
    assert (to_all in pages["all"], "/bulk/new?" in pages["all"]) == (True, False)
    assert (to_all in pages["error"], "On all 2 that match" in pages["error"]) == (False, True)
    assert 'href="/bulk/new?kind=undo&amp;q=state%3Aerror"' in pages["error"]
    assert (
        "Cancel is not offered: no task on this page is pending, sleeping, queued or processing."
        in pages["error"]
    )
    form = pages["undone"].partition('<form id="selected"')[2].partition("</form>")[0]
    assert re.findall(r'name="(\w+)" value="([^"]*)"', form) == [("kind", "resubmit")]


async def test_a_list_of_more_than_a_page_leads_to_the_older_tasks(tmp_path: Path) -> None:
    """As tasks, and as batches; each further page, too."""
    url = await migrated(tmp_path)
    store = open_store(url)
    await store.open()
    await store.tasks.submit([draft(n, correlation_id=f"c-{n // 2}") for n in range(1, 161)])
    await store.close()
    async with create_app(url, users=USERS) as app:
        browser = Browser(app)
        browser.cookies["makegood_login"] = app.access.cookie("ada")
        for first in ("/tasks", "/tasks?group=batch"):
            path, pages = first, 0
            while path:
                response = await browser.get(path)
                assert response.status == 200, path
                older = re.search(r'rel="next" href="([^"]+)"', response.text)
                path, pages = older[1].replace("&amp;", "&") if older else "", pages + 1
            assert pages > 2


async def test_a_batch_is_one_row_that_unfolds_without_a_script(tmp_path: Path) -> None:
    """The switch is a link, the row is an element that browsers unfold by key and by pointer; its bar has words."""
    async with a_console(tmp_path) as console:
        await console.app.client.store.tasks.submit(
            [draft(n, key=f"n-{n}", correlation_id="<b>night</b>" if n % 2 else None) for n in range(1, 15)]
        )
        browser = console.browser("otto")
        plain = (await browser.get("/tasks?q=state:pending")).text
        assert (
            'href="/tasks?q=state%3Apending&amp;group=batch" aria-label="One row for each batch"><span class="cut">batch</span></a>'
            in plain
        )
        page = (await browser.get("/tasks?q=state:pending&group=batch")).text
        assert page.count("<details") == 1
        (batch,) = re.findall(r"<details.*?</details>", page, re.DOTALL)
        summary, _, tasks = batch.partition("</summary>")
        assert "<summary>" in summary
        assert "&lt;b&gt;night&lt;/b&gt;" in summary
        assert 'role="img" aria-label="Progress: 7 submitted; 0 processed, 7 to go, 0 stuck"' in summary
        assert re.findall(r'title="(n-\d+)"', tasks) == ["n-13", "n-11", "n-9", "n-7", "n-5"]
        (path,) = re.findall(r'href="([^"]+)">All 7 tasks of this batch</a>', tasks)
        assert len(re.findall(r'id="t-', (await browser.get(path.replace("&amp;", "&"))).text)) == 7
        assert page.count('<tr id="t-') == 7, "the tasks without a batch"
        assert '<input type="hidden" name="group" value="batch">' in page
        assert "1 batch and 7 tasks shown" in page
        assert 'href="/tasks?q=state%3Aerror&amp;group=batch"' in page, "a tab keeps the switch"
        assert 'aria-label="One row for each task">task</a>' in page


async def test_the_values_of_an_attribute_are_rows_that_unfold(tmp_path: Path) -> None:
    """The page offers the attributes of the tasks in view; a name that is none is said, and lists nothing."""
    async with a_console(tmp_path) as console:
        await console.app.client.store.tasks.submit([
            draft(n, key=f"n-{n}", attributes=(("customer", "<b>ada</b>" if n % 2 else f"c{n}"), ("region", "eu"))[: n % 5])
            for n in range(1, 15)
        ])  # fmt: skip
        browser = console.browser("vera")
        plain = (await browser.get("/tasks?q=state:pending")).text
        (link,) = re.findall(
            r'href="([^"]+)" aria-label="One row for each value of customer"><span class="cut">customer</span></a>',
            plain,
        )
        assert 'aria-label="One row for each value of region"' in plain
        page = (await browser.get(unescape(link))).text
        (row,) = re.findall(r"<details.*?</details>", page, re.DOTALL)
        assert "customer=&lt;b&gt;ada&lt;/b&gt;" in row
        assert "6 submitted; 0 processed, 6 to go, 0 stuck" in row
        (path,) = re.findall(r'href="([^"]+)">All 6 tasks with customer=', row)
        matches = (await browser.get(unescape(path))).text
        assert len(re.findall(r'id="t-', matches)) == 6
        assert "state:pending attribute:customer=" in unescape(matches)
        assert "1 value and 8 tasks shown" in page
        assert '<input type="hidden" name="group" value="attribute:customer">' in page
        assert 'aria-label="One row for each value of customer"' not in page
        assert 'aria-label="One row for each batch"' in page
        for wrong in ("customer", "attribute:", "attribute:" + "x" * 200, "attribute:a%00b"):
            refusal = (await browser.get(f"/tasks?group={wrong}")).text
            assert "write group=batch, or group=attribute:NAME" in refusal
            assert 'id="t-' not in refusal


async def test_an_exact_id_or_key_opens_its_task(tmp_path: Path) -> None:
    """Also a key that the filter language does not read; two tasks of one key, and every other filter, are a list."""
    async with a_console(tmp_path, base="/ops") as console:
        await console.app.client.store.tasks.submit([
            draft(17, key="o-17"), draft(18, key="order:18"), draft(19, key="both"),
            draft(20, key="both", workflow="sell"), draft(21, key="it's 21"),
        ])  # fmt: skip
        browser = console.browser("vera")
        for word, task in (("o-17", 17), (ids.show(17), 17), (" order:18 ", 18), ("it's 21", 21)):
            response = await browser.get(f"/tasks?{urlencode({'q': word})}")
            assert (response.status, response.headers.get("location")) == (
                303,
                f"/ops/tasks/{ids.show(task)}",
            ), word
        for text in (
            "both",
            "nothing",
            "key:o-17",
            "o-17+state:pending",
            "o-17&before=0000000000100",
            "",
            "a%00b",
        ):
            assert (await browser.get(f"/tasks?q={text}")).status == 200, text


async def test_a_part_of_a_page_is_the_part_of_the_page(tmp_path: Path) -> None:
    """The fragments that live pages ask for are elements of the page itself."""
    parts = {
        "/": ("verdict", "tiles", "chart-ended", "chart-latency", "leader", "agents", "feed"),
        "/tasks": ("tabs", "rows"),
        "/alerts": ("verdict", "need", "acked", "alone", "ways"),
        "/agents": ("verdict", "by-agent", "by-process"),
        "/cluster": ("verdict", "lease", "terms", "processes", "refusals"),
        "/bulk/bulk-2": ("progress", "refused", "carried"),
    }
    queries = {
        f"{path} {name}": f"{path}?fragment={name}"
        for path, names in parts.items()
        for name in (*names, "main", "nav")
    }
    for name, text in (await seen(tmp_path, "otto", queries)).items():
        assert f'id="{name.split()[1]}"' in text.split(">")[0] + ">", name
        assert "<html" not in text


def test_a_page_that_is_missing_is_named(tmp_path: Path) -> None:
    """Every page of the table is tried above, but for the console's own."""
    paths = {
        route.path for route in create_app(f"sqlite:///{tmp_path}/x.db").routes if route.context is not None
    }
    attempts = {
        path.partition("?")[0].replace("TASK", "{id}").replace("bulk-1", "{id}").replace("GROUP", "{name}")
        for path in PAGES
    }
    assert paths <= attempts


async def test_the_overview_tells_what_the_supervisor_decided(tmp_path: Path) -> None:
    """With the task by its key, or by its id where it is gone."""
    async with a_console(tmp_path) as console:
        store = console.app.client.store
        await store.tasks.submit([draft(17, key="o-17")])
        decisions = [
            SupervisorDecision("judged", 2, 17, epoch=3),
            SupervisorDecision("freed", 40, 16, epoch=3),
            SupervisorDecision("turned", 1, 17, epoch=3),
        ]
        await store.oversight.decided(decisions)
        text = (await console.browser("otto").get("/")).text
        link = f'<a href="/tasks/{ids.show(17)}">o-17</a>'
        assert f"Judged 2 attempts in doubt, of {link}" in text
        assert f"Turned 1 task to undo: {link}" in text
        assert f'Freed 40 tasks: <a href="/tasks/{ids.show(16)}">{ids.show(16)}</a>' in text


async def test_a_kind_of_a_newer_version_is_shown_by_its_own_name(tmp_path: Path) -> None:
    """An alert, a decision, and an act on many tasks: processes of two versions share a store during an upgrade."""
    newer: Any = "late_boat"
    async with a_console(tmp_path) as console:
        store, ada = console.app.client.store, console.browser("ada")
        await store.alerts.alert([Alert(newer, text="it has not come")])
        await store.oversight.decided([SupervisorDecision(newer, 2, 17, epoch=3)])
        bulk = await store.oversight.bulk(Act("b-1", "ann", "down"), newer, Filter())
        pages = {
            path: (await ada.get(path)).text
            for path in ("/", "/tasks", "/alerts", "/bulk", f"/bulk/{bulk.id}")
        }
        assert all("Late boat" in pages[path] for path in ("/", "/alerts", f"/bulk/{bulk.id}"))
        assert "1 needs somebody: late boat" in pages["/alerts"]
        assert "Late boat, 2 tasks:" in pages["/"]


async def test_many_open_alerts_hide_no_ended_one(tmp_path: Path) -> None:
    """The page of alerts lists the ended ones, and the overview the latest of both."""
    async with a_console(tmp_path) as console:
        store, ada = console.app.client.store, console.browser("ada")
        await store.alerts.alert([Alert("starved", step=f"shop/a-{n}", text=f"open {n}") for n in range(210)])
        await store.alerts.alert([Alert("no_leader", text="nobody leads")])
        await store.alerts.ease([Alert("no_leader")], "a supervisor leads again")
        assert "a supervisor leads again" in (await ada.get("/alerts")).text
        assert "a supervisor leads again" in (await ada.get("/")).text


async def test_a_leader_that_released_is_not_one_that_never_was(tmp_path: Path) -> None:
    """The card of the leader and the table of past terms agree."""
    async with a_console(tmp_path) as console:
        ada, leases = console.browser("ada"), console.app.client.store.leases
        grant = await leases.acquire("makegood/supervisor", "vm-1", "nonce", 60.0)
        assert grant is not None
        await leases.release(grant)
        page = (await ada.get("/cluster")).text
        assert ("Nobody leads" in page, "Nobody has led yet" in page) == (True, False)
