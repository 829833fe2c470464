"""Schedules in the console: what the page says of each, acts on them by forms and by the API, and pages of many."""

import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest

from makegood.base import ids, zones
from makegood.console.api import ROOT
from makegood.console.pages.schedules import PAGE, row, verdict
from makegood.console.pages.wording import behind
from makegood.store.schedule_records import ScheduleView
from tests.browser.sample import HOSTILE, a_schedule
from tests.console.asking import Browser
from tests.console.consoles import Console, a_console
from tests.console.test_acts import act
from tests.console.test_api import sent

MONTHLY = a_schedule("bill/4711", cron="30 2 1 * *", timezone="Europe/Berlin")
PATH = "/schedules/shop/bill/4711"


async def view(console: Console, name: str = "bill/4711") -> ScheduleView:
    """Return a schedule as it is now."""
    return (await console.app.client.find_schedule(name, app="shop")).view


async def got(browser: Browser, path: str) -> Any:
    """Return what the API answers."""
    response = await browser.get(ROOT + path)
    assert response.status == 200, response.text
    return json.loads(response.text)


async def test_the_page_says_when_each_fires_and_by_which_rules(tmp_path: Path) -> None:
    """Its zone's clocks beside UTC, three moments; a viewer is offered no act."""
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply(
            [MONTHLY, a_schedule("watch", every="15m", jitter="30s")]
        )
        text = (await console.browser("vera").get("/schedules")).text
        (bill,) = re.findall(r"<tr id=\"s-(?:(?!</tr>).)*bill/4711.*?</tr>", text, re.DOTALL)
        moments = re.findall(
            r"(\w{3} \d{4}-\d{2}-01 02:30:00 \+0[12]00) <span class=\"dim\">(\w{3} 0[01]:30:00) UTC", bill
        )
        assert len(moments) == 3
        assert "30 2 1 * * Europe/Berlin" in bill
        assert "every 900s, delayed by up to 30s" in text
        assert str(zones.current()) in text
        assert "Nobody fires them" in text
        assert "Trigger" not in text
        assert '<a class="nav__item" href="/schedules" aria-current="page"' in text


async def test_forms_pause_resume_and_trigger_with_who_and_why(tmp_path: Path) -> None:
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply([MONTHLY])
        otto, fields = console.browser("otto"), {"app": "shop", "name": "bill/4711"}
        page = (await otto.get("/schedules")).text
        assert re.findall(r'action="(/schedules/\w+)"', page) == ["/schedules/pause", "/schedules/trigger"]
        assert page.count('<input type="hidden" name="name" value="bill/4711">') == 2
        answer = await act(console, otto, "/schedules/pause", **fields, **{"for": "2h"}, reason="the ledger")
        assert (answer.status, answer.headers["location"]) == (303, "/schedules")
        paused = await view(console)
        assert (paused.paused_by, paused.paused_why) == ("otto", "the ledger")
        assert paused.paused_until is not None
        page = (await otto.get("/schedules")).text
        assert "Paused: bill/4711" in page
        assert "“the ledger”" in page
        assert 'action="/schedules/resume"' in page
        for outcome in ("Resumed", "Nothing to do"):
            assert (await act(console, otto, "/schedules/resume", **fields)).status == 303
            assert f"{outcome}: bill/4711" in (await otto.get("/schedules")).text
        answer = await act(console, otto, "/schedules/trigger", **fields, reason="by hand")
        assert answer.headers["location"].startswith("/tasks/")
        page = (await otto.get("/schedules")).text
        assert f'<a class="id" href="{answer.headers["location"]}">' in page
        audits = await console.app.client.audit()
        assert [(each.kind, each.who, each.why) for each in audits] == [
            ("schedule_trigger", "otto", "by hand"), ("schedule_resume", "otto", ""), ("schedule_pause", "otto", "the ledger"),
        ]  # fmt: skip
        assert audits[0].act == answer.headers["x-request-id"]


async def test_acts_that_cannot_be_carried_out_are_said(tmp_path: Path) -> None:
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply([MONTHLY])
        otto, vera = console.browser("otto"), console.browser("vera")
        for name in ("pause", "resume", "trigger"):
            fields = {"app": "shop", "name": "nothing"}
            assert (await act(console, otto, f"/schedules/{name}", **fields)).status == 404
            assert (await act(console, vera, f"/schedules/{name}", **fields)).status == 403
            assert (await sent(otto, f"/schedules/shop/nothing/{name}", {})).status == 404
            assert (await sent(vera, f"{PATH}/{name}", {})).status == 403
            assert (await sent(otto, f"{PATH}/{name}", {}, x_csrf_token="another")).status == 403
        answer = await act(console, otto, "/schedules/pause", app="shop", name="bill/4711", **{"for": "soon"})
        assert answer.status == 400
        assert (await sent(otto, f"{PATH}/pause", {"for": "soon"})).status == 400
        assert (await sent(otto, f"{PATH}/pause", {"length": "1h"})).status == 422
        assert (await otto.get("/schedules?after=a%00/b")).status == 400
        assert await console.app.client.audit() == []


async def test_a_program_reads_and_acts_on_schedules(tmp_path: Path) -> None:
    """A name with a slash is one part of the path; the answers are those of the command line."""
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply([MONTHLY, a_schedule("watch", every="15m")])
        otto = console.browser("otto")
        detail = await got(otto, f"{PATH}?count=2")
        assert (detail["name"], detail["cron"], len(detail["upcoming"])) == ("bill/4711", "30 2 1 * *", 2)
        assert set(detail["zone_rules"]) == {"source", "version"}
        first = await got(otto, "/schedules?limit=1")
        assert ([each["name"] for each in first["schedules"]], first["next"]) == (
            ["bill/4711"],
            "shop/bill/4711",
        )
        rest = await got(otto, f"/schedules?after={first['next']}")
        assert ([each["name"] for each in rest["schedules"]], rest["next"]) == (["watch"], None)
        assert (await got(otto, "/schedules?app=another"))["schedules"] == []
        paused = json.loads((await sent(otto, f"{PATH}/pause", {"for": "1h", "reason": "closed"})).text)[
            "paused"
        ]
        assert (paused["by"], paused["why"], paused["until"] is None) == ("otto", "closed", False)
        assert json.loads((await sent(otto, f"{PATH}/resume", {})).text)["paused"] is None
        task = json.loads((await sent(otto, f"{PATH}/trigger", {"reason": "by hand"})).text)["task"]
        assert (await got(otto, PATH))["last_task"] == task
        now = datetime.now(UTC)
        body = {"since": (now - timedelta(days=70)).isoformat(), "until": now.isoformat()}
        dry = body | {"dry_run": True}
        preview = json.loads((await sent(otto, f"{PATH}/backfill", dry)).text)["tasks"]
        tasks = json.loads((await sent(otto, f"{PATH}/backfill", body)).text)["tasks"]
        assert preview == [{"task": None, "created": True}] * len(tasks)
        preview = json.loads((await sent(otto, f"{PATH}/backfill", dry)).text)["tasks"]
        assert preview == [each | {"created": False} for each in tasks]
        for change in (
            {"until": "2999-01-01T00:00:00Z"},
            {"since": now.isoformat(), "until": body["since"]},
            {"limit": 1},
        ):
            real, dry_run = [await sent(otto, f"{PATH}/backfill", each | change) for each in (body, dry)]
            assert real.status == 400
            assert (dry_run.status, dry_run.text) == (400, real.text)
        assert [each["created"] for each in tasks] in ([True, True], [True, True, True])
        again = json.loads((await sent(otto, f"{PATH}/backfill", body)).text)["tasks"]
        assert again == [each | {"created": False} for each in tasks]
        assert (await sent(otto, f"{PATH}/backfill", body | {"limit": 1})).status == 400
        assert (await sent(otto, f"{PATH}/backfill", body | {"since": "2026-11-01T00:00:00"})).status == 422


async def test_many_schedules_are_pages_of_one_statement_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each schedule is on one page, also where several apps have one of the same name."""
    async with a_console(tmp_path) as console:
        store, ada = console.app.client.store, console.browser("ada")
        drafts = [a_schedule(f"s-{n // 2:03}", every="1h") for n in range(0, 2 * PAGE + 20, 2)]
        await store.schedules.apply(drafts)
        with closing(sqlite3.connect(console.url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(
                "insert into makegood_schedule (app, name, spec, plan, digest, progress, made_at) "
                'select \'shop2\', name, cast(replace(cast(spec as text), \'"app":"shop"\', \'"app":"shop2"\') as blob), plan, digest, progress, made_at '
                "from makegood_schedule"
            )
        reads = 0
        verbs = type(store.schedules)
        views = verbs.views

        async def counting(self: Any, *arguments: Any) -> list[ScheduleView]:
            nonlocal reads
            reads += 1
            return await views(self, *arguments)

        monkeypatch.setattr(verbs, "views", counting)
        rows, path = list[str](), "/schedules"
        for pages in range(1, 10):
            text = (await ada.get(path)).text
            rows += re.findall(r'<tr id="(s-\w+)"', text)
            assert reads == pages
            link = re.findall(r'rel="next" href="([^"]+)"', text)
            if not link:
                break
            assert len(rows) == pages * PAGE
            path = link[0]
        assert len(rows) == len(set(rows)) == 2 * len(drafts)
        assert len(await console.app.client.schedules()) == 2 * len(drafts)


async def test_one_schedule_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    """It is red, with its fault; acts on it are refused, and texts in it stay texts."""
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply([MONTHLY, a_schedule("watch", every="15m")])
        with closing(sqlite3.connect(console.url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(
                "update makegood_schedule set plan = ? where name = 'watch'", (HOSTILE.encode(),)
            )
            connection.execute(
                "update makegood_schedule set paused_at = 0, paused_by = ?, paused_why = ? where name != 'watch'",
                (HOSTILE, HOSTILE),
            )
        otto = console.browser("otto")
        page = (await otto.get("/schedules")).text
        assert "1 schedule cannot be fired: watch" in page
        assert "its row cannot be read" in page
        assert HOSTILE not in page
        assert "bill/4711" in page
        answer = await act(console, otto, "/schedules/trigger", app="shop", name="watch")
        assert (answer.status, "cannot be read" in answer.text) == (400, True)
        assert len(await console.app.client.find()) == 0


async def test_the_sentence_names_the_next_one(tmp_path: Path) -> None:
    """A zone that this machine lacks is trouble, and so is nobody who leads; a paused one is not next."""
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply([MONTHLY, a_schedule("watch", every="15m")])
        bill, watch = row(await view(console)), row(await view(console, "watch"))
        now = (watch.view.next_firing or 0.0) - 60.0
        assert verdict([], now, has_leader=False).tone == "idle"
        assert verdict([bill, watch], now, has_leader=False).title == "Nobody fires them"
        assert verdict([bill, watch], now, has_leader=True).title.startswith("watch is next, in ")
        await (await console.app.client.find_schedule("watch")).pause()
        watch = row(await view(console, "watch"))
        sentence = verdict([bill, watch], now, has_leader=True)
        assert (sentence.title[:17], sentence.more) == (
            "bill/4711 is next",
            "2 schedules on this page, 1 paused.",
        )
        with closing(sqlite3.connect(console.url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(
                "update makegood_schedule set spec = cast(replace(cast(spec as text), 'Berlin', 'Atlantis') as blob)"
            )
        bill = row(await view(console))
        assert (bill.state, bill.moments, "Europe/Atlantis" in bill.trouble) == ("failing", (), True)
        assert verdict([bill, watch], now, has_leader=False).tone == "need"


def test_where_a_page_begins() -> None:
    assert (behind(""), behind("shop/bill/4711"), behind("shop")) == (
        ("", ""),
        ("shop", "bill/4711"),
        ("shop", ""),
    )


def range_of(days: int = 70) -> dict[str, str]:
    """Return the fields of a range that ends now, on the clocks of Berlin."""
    until = datetime.now(ZoneInfo("Europe/Berlin"))
    return {"since": f"{until - timedelta(days=days):%Y-%m-%dT%H:%M}", "until": f"{until:%Y-%m-%dT%H:%M}"}


async def test_a_backfill_says_what_it_will_do_and_what_it_did(tmp_path: Path) -> None:
    """Before: which moments have no task. After: how many tasks are submitted, on a page that lists them."""
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply([MONTHLY])
        otto, fields = console.browser("otto"), {"app": "shop", "name": "bill/4711"}
        link = f"/schedules/backfill?{urlencode(fields)}"
        assert f'href="{escape(link)}"' in (await otto.get("/schedules")).text
        form = (await otto.get(link)).text
        assert "on the clocks of Europe/Berlin" in form
        assert "Moments" not in form
        assert "Submit " not in form
        query = fields | range_of() | {"limit": "1000"}
        page = (await otto.get(f"/schedules/backfill?{urlencode(query)}")).text
        count = page.count("<b>a new one</b>")
        assert count in (2, 3)
        assert f"A backfill submits {count} tasks" in page
        assert f"Submit {count} tasks" in page
        assert await console.app.client.find() == [], "a look submits nothing"
        detail = await view(console)
        (first, *_) = detail.between(
            (datetime.now(UTC) - timedelta(days=70)).timestamp(), datetime.now(UTC).timestamp(), 9
        )
        narrow = {"since": first.local.isoformat(), "until": first.local.isoformat()}
        answer = await act(
            console, otto, "/schedules/backfill", **(query | narrow), reason="the ledger was away"
        )
        assert (answer.status, answer.headers["location"]) == (
            303, "/tasks?q=app%3Ashop+attribute%3Amakegood.schedule%3Dbill%2F4711",
        )  # fmt: skip
        tasks = (await otto.get(answer.headers["location"])).text
        assert "1 task is submitted." in tasks
        (task,) = await console.app.client.find()
        assert f'href="/tasks/{ids.show(task.id)}"' in tasks
        page = (await otto.get(f"/schedules/backfill?{urlencode(query)}")).text
        assert f'<a class="id" href="/tasks/{ids.show(task.id)}">' in page
        assert "1 moment of the range has a task already." in page
        await act(console, otto, "/schedules/backfill", **query)
        outcome = f"{count - 1} task{'s are' if count > 2 else ' is'} submitted. 1 moment had a task already."
        assert outcome in (await otto.get("/schedules")).text
        page = (await otto.get(f"/schedules/backfill?{urlencode(query)}")).text
        assert f"All {count} moments have a task already" in page
        assert "Submit " not in page
        await act(console, otto, "/schedules/backfill", **query)
        assert "Nothing to do: bill/4711" in (await otto.get("/schedules")).text
        audits = await console.app.client.audit()
        assert [(each.kind, each.who, each.why) for each in audits][-1] == (
            "schedule_backfill", "otto", "the ledger was away",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"since": "yesterday"}, "since=&#39;yesterday&#39; is not a point in time"),
        ({"until": "2999-01-01"}, "is not over yet"),
        ({"limit": "1"}, "more than limit=1 moments"),
        ({"limit": "0"}, "write a number from 1 to 1,000"),
        ({"limit": "1001"}, "write a number from 1 to 1,000"),
        ({"since": "9999-12-31T23:00-12:00"}, "is beyond the calendar of UTC"),
    ],
)
async def test_a_range_that_makes_no_sense_is_refused_before_and_at_the_act(
    tmp_path: Path, fields: dict[str, str], text: str
) -> None:
    """The page keeps what was written; a form that is sent all the same submits nothing."""
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply([MONTHLY])
        otto, vera = console.browser("otto"), console.browser("vera")
        query = {"app": "shop", "name": "bill/4711"} | range_of() | fields
        page = await otto.get(f"/schedules/backfill?{urlencode(query)}")
        assert (page.status, text in page.text) == (200, True), page.text
        assert 'role="alert"' in page.text
        assert f'value="{escape(next(iter(fields.values())))}"' in page.text
        answer = await act(console, otto, "/schedules/backfill", **query)
        assert (answer.status, text in answer.text) == (400, True), answer.text
        assert await console.app.client.find() == []
        assert (await vera.get(f"/schedules/backfill?{urlencode(query)}")).status == 403
        assert (await act(console, vera, "/schedules/backfill", **query)).status == 403
        assert (await otto.get("/schedules/backfill?app=shop&name=nothing")).status == 404
