"""Lanes in the console: the pages of all and of one, what lists and tasks say of them, the release by a form, and the API."""

import json
import re
from pathlib import Path
from typing import Any

import makegood as mg
from makegood.base import ids
from makegood.console.api import ROOT
from makegood.console.pages.lanes import LaneRow, row, verdict, verdict_of
from makegood.store.lane_views import LanePlace, LaneView
from tests.console.asking import Browser
from tests.console.consoles import Console, a_console, place_order, shop
from tests.console.test_acts import act
from tests.waiting import until

IN_ERROR = LanePlace(7, "place_order", "o-7", "error", 1, 0.0)
WAITS = LanePlace(9, "place_order", "o-9", "queued", 1, 0.0)


async def got(browser: Browser, path: str) -> Any:
    """Return what the API answers."""
    response = await browser.get(ROOT + path)
    assert response.status == 200, response.text
    return json.loads(response.text)


async def blocked(console: Console, url: str) -> tuple[str, str]:
    """Let a task in error hold the lane <ada>, and one wait for it; return their ids."""
    async with mg.Node(shop, url, options=mg.Options(poll_every="20ms")) as node:
        first = await node.client.submit(place_order, {"id": "o-1"}, key="o-1", lane="<ada>/1")
        await first.wait("60s")
        second = await node.client.submit(place_order, {"id": "o-2"}, key="o-2", lane="<ada>/1")

        async def is_queued() -> bool:
            return (await second.status()).task.state == "queued"

        await until(is_queued)
    return first.id, second.id


async def test_pages_show_who_holds_a_lane_and_who_waits_and_a_form_releases_it(tmp_path: Path) -> None:
    async with a_console(tmp_path) as console:
        url = f"sqlite:///{tmp_path}/console.db"
        first, second = await blocked(console, url)
        otto, vera = console.browser("otto"), console.browser("vera")
        page = (await vera.get("/lanes")).text
        assert "1 lane held by a task in error: &lt;ada&gt;/1" in page
        (link,) = re.findall(r'href="(/lanes/show\?[^"]+)"', page)
        link = link.replace("&amp;", "&")
        assert f'href="/tasks/{first}"' in page
        one = (await vera.get(link)).text
        assert one.index(first) < one.index(second)
        assert "A task in error holds &lt;ada&gt;/1, and 1 task waits" in one
        assert "/release_lane" not in one, "a viewer is offered no act"
        assert f'action="/tasks/{first}/release_lane"' in (await otto.get(link)).text

        text = f"waits for lane &lt;ada&gt;/1, held by {first}"
        assert text in (await vera.get("/tasks?q=state:queued")).text
        task = (await vera.get(f"/tasks/{second}")).text
        assert f"Queued: it {text}" in task
        assert f'<a class="id" href="/tasks/{first}">{first}</a>' in task
        holder = (await otto.get(f"/tasks/{first}")).text
        assert "holds lane &lt;ada&gt;/1; 1 task waits for it" in holder
        assert f'action="/tasks/{first}/release_lane"' in holder
        assert f'action="/tasks/{second}/release_lane"' not in (await otto.get(f"/tasks/{second}")).text

        answer = await act(console, vera, f"/tasks/{first}/release_lane", reason="no right")
        assert answer.status == 403
        answer = await act(console, otto, f"/tasks/{first}/release_lane", reason="the others may go")
        assert answer.status in (202, 303)
        async with mg.Node(shop, url) as node:
            await node.client.task(second).wait("60s")
        acts = [a for a in await console.app.client.audit() if a.kind == "release_lane"]
        assert [(a.who, a.why, a.verdict) for a in acts] == [("otto", "the others may go", "applied")]


async def test_a_program_reads_lanes(tmp_path: Path) -> None:
    async with a_console(tmp_path) as console:
        first, second = await blocked(console, f"sqlite:///{tmp_path}/console.db")
        vera = console.browser("vera")
        whole = await got(vera, "/lanes")
        (lane,) = whole["lanes"]
        assert (lane["app"], lane["name"], lane["held"], lane["waiting"]) == ("shop", "<ada>/1", 1, 1)
        assert [p["task"] for p in (*lane["holders"], *lane["waiters"])] == [first, second]
        assert (await got(vera, "/lanes?name=%3Cada%3E/1&app=shop"))["lanes"] == [lane]
        page = await got(vera, "/lanes?limit=1")
        assert page["next"] == "shop/<ada>/1"
        assert await got(vera, "/lanes?after=shop/%3Cada%3E/1") == {"lanes": [], "next": None}
        assert (await got(vera, "/tasks?q=lane:'<ada>/1'"))["tasks"][0]["id"] == second
        (place,) = (await got(vera, f"/tasks/{second}"))["lanes"]
        assert (place["place"], place["held_by"]) == ("waiting", [first])
        for path in ("/lanes?name=" + "x" * 201, "/lanes?after=a%00/b"):
            assert (await vera.get(ROOT + path)).status == 400


def test_the_sentence_of_each_page_says_what_matters() -> None:
    taken_by_error, busy = (
        LaneView("shop", "ada", 1, 1, (IN_ERROR,), (WAITS,)),
        LaneView("shop", "bob", 1, 0, (WAITS,)),
    )
    assert verdict([]).title == "No task holds a lane, or waits for one"
    assert verdict([row(taken_by_error), row(busy)]).title == "1 lane held by a task in error: ada"
    assert verdict([row(busy)]).title == "1 lane on this page"
    many = LaneView("shop", "ada", 1, 1001, (WAITS,), (WAITS,) * 10)
    assert (row(many).waiting, row(many).more) == ("1,000+", "more than 990 tasks")
    for view, title in (
        (taken_by_error, "A task in error holds ada, and 1 task waits"),
        (busy, "bob is held, and nobody waits"),
        (many, "ada is held, and more than 1,000 tasks wait"),
        (
            LaneView("shop", "ada", 0, 2, (), (WAITS, WAITS)),
            "ada is free: the next Scheduler takes the first task, 2 tasks wait",
        ),
        (LaneView("shop", "ada"), "No task holds ada, or waits for it"),
    ):
        assert verdict_of(row(view)).title == title
    assert ids.show(7)


def test_the_sentence_counts_the_lanes_that_it_does_not_name() -> None:
    rows = [LaneRow(LaneView("shop", name), need=True, waiting="1", more="") for name in "abcdefg"]
    assert verdict(rows).title == "7 lanes held by a task in error: a, b, c and 4 more"
