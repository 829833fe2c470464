"""Live pages: what is compared, what a stream is told, and that it tells it to everybody who watches."""

import asyncio
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest

from makegood.console import live
from makegood.console.live import changes, look_at
from makegood.model.messages import Alert
from tests.console.consoles import USERS, Console, a_console

PAGE = '<main id="main"><section id="a"><h2 id="h-a">A</h2><p>1</p></section><table id="rows"><tr id="t-1"><td>x<br></td></tr></table></main>'


def differ(before: str, after: str) -> tuple[str, ...]:
    """Return what has changed between two pages."""
    return changes(look_at(before), look_at(after))


def test_only_the_innermost_element_that_changed_is_named() -> None:
    """A row for itself; the list when a row came or went; a heading is part of its section."""
    assert differ(PAGE, PAGE) == ()
    assert differ(PAGE, PAGE.replace("<p>1", "<p>2")) == ("a",)
    assert differ(PAGE, PAGE.replace(">A<", ">B<")) == ("a",)
    assert differ(PAGE, PAGE.replace("x<br>", "y<br>")) == ("t-1",)
    more = PAGE.replace("</table>", '<tr id="t-2"><td>z</td></tr></table>')
    assert differ(PAGE, more) == differ(more, PAGE) == ("rows",)
    assert differ(PAGE, more.replace("<p>1", "<p>2")) == ("a", "rows")


def test_ages_and_countdowns_are_no_change() -> None:
    """The page's script keeps them."""
    page = '<p id="a"><time datetime="T" data-since="{0}">{0}s ago</time> <span class="c" data-until="{0}">in {0}s</span></p>'
    assert differ(page.format(1), page.format(2)) == ()
    assert differ(page.format(1), page.format(2).replace('"T"', '"U"')) == ("a",)


def test_a_lease_that_runs_down_is_no_change_and_one_that_was_renewed_is() -> None:
    """The page's script lets the bar run down; it must hear of a renewal."""
    page = '<p id="a"><svg data-ends="{0}"><rect data-of="15" data-left="{1}" width="{1}%"/></svg></p>'
    assert differ(page.format(100, 9), page.format(100, 8)) == ()
    assert differ(page.format(100, 9), page.format(105, 9)) == ("a",)


def test_an_unchanged_page_is_not_taken_apart_again() -> None:
    """The same look is returned."""
    look = look_at(PAGE)
    assert look_at(PAGE, look) is look


class Stream:
    """A browser's end of a stream."""

    def __init__(self, console: Console, page: str, user: str = "vera") -> None:
        browser = console.browser(user)
        self.heard: asyncio.Queue[str] = asyncio.Queue()
        self.status = 0
        self.headers: dict[str, str] = {}
        self._gone = asyncio.Event()
        cookie = f"makegood_login={browser.cookies['makegood_login']}" if browser.cookies else ""
        scope = {
            "type": "http", "method": "GET", "path": "/events", "query_string": f"page={page}".encode(), "scheme": "http",
            "root_path": "", "headers": [(b"host", b"localhost"), (b"cookie", cookie.encode())], "client": ("127.0.0.1", 1),
        }  # fmt: skip
        self._running = asyncio.ensure_future(console.app(scope, self._receive, self._send))

    async def _receive(self) -> MutableMapping[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif message.get("body"):
            await self.heard.put(message["body"].decode())

    async def event(self) -> str:
        """Return the next event."""
        return await asyncio.wait_for(self.heard.get(), 120)

    async def leave(self) -> None:
        """Close the page."""
        self._gone.set()
        await asyncio.wait_for(self._running, 120)

    async def end(self) -> None:
        """Wait until the server has ended the stream."""
        await asyncio.wait_for(self._running, 120)


async def test_a_change_is_named_to_all_who_watch_the_page(tmp_path: Path) -> None:
    """And to nobody who watches another one; when the last has left, nobody looks any more."""
    async with a_console(tmp_path) as console:
        one, two, other = (
            Stream(console, "/alerts"),
            Stream(console, "/alerts", "otto"),
            Stream(console, "/audit"),
        )
        for stream in (one, two, other):
            assert "retry: " in await stream.event()
        assert one.headers["content-type"].startswith("text/event-stream")
        assert one.headers["cache-control"] == "no-store"
        assert "content-security-policy" in one.headers
        await console.app.client.store.alerts.alert([Alert("test", step="x", text="a test alert")])
        for stream in (one, two):
            assert (await stream.event()).startswith("event: changed\ndata: ")
        for stream in (one, two, other):
            await stream.leave()
        looking = console.app.live.looking
        assert looking is not None
        await asyncio.wait_for(looking, 120)


async def test_fragments_are_drawn_once_for_all_viewers_of_a_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the token of their own forms; another role gets a drawing of its own, and an act is seen at once."""
    async with a_console(tmp_path, users=USERS | {"olga": USERS["otto"]}) as console:
        await console.app.client.store.alerts.alert([Alert("test", step="x", text="a test alert")])
        templates: list[str] = []
        console.app._reads._share = 60.0  # a busy machine needs more than a second for these
        page = console.app._renderer.page

        def draw(*args: Any) -> str:
            templates.append(args[1])
            return page(*args)

        monkeypatch.setattr(console.app._renderer, "page", draw)
        texts: dict[str, str] = {}
        for user in ("otto", "olga", "otto", "vera"):
            browser = console.browser(user)
            texts[user] = (await browser.get("/alerts?fragment=need,nav")).text
            tokens = set(re.findall(r'name="csrf" value="([^"]*)"', texts[user]))
            assert tokens == (set() if user == "vera" else {console.token(browser)})
            assert "1<span class=" in texts[user]  # the navigation counts what needs somebody
        assert templates == ["alerts.html"] * 2
        console.app._reads.forget()
        await console.browser("otto").get("/alerts?fragment=need")
        assert len(templates) == 3


async def test_a_stream_is_for_the_pages_of_its_visitor(tmp_path: Path) -> None:
    """Neither for what is no page, nor for one of a higher role, nor for nobody."""
    async with a_console(tmp_path) as console:
        for page, user, status in (
            ("/nothing", "vera", 404),
            ("/bulk/new", "vera", 404),
            ("/login", "ada", 404),
            ("/", "", 401),
        ):
            stream = Stream(console, page, user)
            await stream.end()
            assert stream.status == status, page


async def test_the_end_of_the_console_ends_its_streams(tmp_path: Path) -> None:
    """A process that is told to stop does not wait for those who watch."""
    async with a_console(tmp_path) as console:
        stream = Stream(console, "/")
        await stream.event()
        console.app.end_streams()
        await stream.end()


def test_at_most_four_events_a_second() -> None:
    """As the design says; and under load one."""
    assert live.QUICK >= 0.25
    assert live.STEADY >= live.QUICK
