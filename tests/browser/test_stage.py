"""The stage in a browser: an order survives the kill of its agent by a button, and the page is whole at every width."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.browser.chromium import ChromiumError, Page, chromium, found
from tests.example.shows import RunningShow, show
from tests.example.test_demo import broker_or_skip

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(found() is None, reason="there is no Chromium here: apt-get install chromium"),
]


AXIS_LABELS = """
(labels => labels.every((a, n) => n === 0 || labels[n - 1].right <= a.left))(
  ["now", "planned"].map(word => [...document.querySelectorAll("svg.time text")].find(e => e.textContent === word))
    .filter(e => e).map(e => e.getBoundingClientRect()))
"""
"""Whether "now" and "planned" keep apart."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[RunningShow]:
    """A show without customers but the test, and those that came before its rate was set to none."""
    with show(tmp_path, "--seed", "3") as running:
        assert running.press("switch", switch="rate", value="none") == 204
        yield running


@pytest.fixture
def page() -> Iterator[Page]:
    """A tab of a browser of its own."""
    with chromium(found() or "") as browser:
        yield browser.page()


def click(page: Page, selector: str) -> None:
    """Press what a selector finds, as a mouse does."""
    hit = page.run(f"(e => (e && e.click(), !!e))(document.querySelector({selector!r}))")
    assert hit, f"the page has no {selector}"


def until(page: Page, script: str, seconds: float = 120.0) -> object:
    """Wait until a script returns something; return it."""
    for _ in range(int(seconds / 0.25)):
        with suppress(ChromiumError):  # the page is about to be another
            if value := page.run(script):
                return value
            page.run("new Promise(done => setTimeout(done, 250))")
    raise AssertionError(f"waited {seconds:g} s in vain for {script}: {page.run('document.body.innerText')}")


def test_an_order_survives_the_kill_of_its_agent_by_the_button(stage: RunningShow, page: Page) -> None:
    """It is placed on the page, its agent killed in mid-charge, and it ends whole; all without a reload."""
    page.look(width=1280)
    page.open(stage.link)
    page.run("window.stayed = true")
    click(page, 'button[name="value"][value="every call"]')
    click(page, '.dial[aria-label="payments"] button[value="slow"]')
    until(
        page,
        """document.querySelector('.dial[aria-label="payments"] button[value="slow"][aria-pressed="true"]')"""
        " !== null",
    )
    click(page, 'button[name="kind"][value="order"]')
    agent = until(page, "(document.querySelector('#live').innerText.match(/at (payments-\\d)/) || [])[1]")
    order = page.run("document.querySelector('#h-live').innerText")
    click(page, f'button[aria-label="kill -9 {agent}"]')
    until(page, f"/killed {agent}/.test(document.querySelector('#feed').innerText)")
    # Not before it is dead: a call that waits is let go then.
    click(page, '.dial[aria-label="payments"] button[value="well"]')
    until(page, f"/{order}\\s+shipped: ship-/.test(document.querySelector('#customers').innerText)")
    until(page, f"/healed {agent}/.test(document.querySelector('#feed').innerText)")
    until(page, "/1\\nkills survived/.test(document.querySelector('#score').innerText)")
    zeros = page.run("[...document.querySelectorAll('.zero b')].map(e => e.innerText)")
    assert zeros == ["0", "0", "0"]
    assert page.run("window.stayed") is True
    assert page.complaints() == []
    report = stage.end()
    assert (report["ok"], report["kills_survived"]) == (True, 1)
    assert report["processed"] >= 1


def test_a_broker_is_killed_by_the_button_and_its_order_comes_through(tmp_path: Path, page: Page) -> None:
    """The order is placed while the broker is away; it waits, and ends whole; all without a reload."""
    broker_or_skip()
    with show(tmp_path, "--seed", "3", "--broker", "rabbitmq") as stage:
        assert stage.press("switch", switch="rate", value="none") == 204
        page.look(width=1280)
        page.open(stage.link)
        page.run("window.stayed = true")
        broker = "document.querySelector('#broker').innerText"
        click(page, '#broker button[aria-label="kill -9 broker"]')
        until(page, f"/killed \\d+ s ago/.test({broker})")
        click(page, 'button[name="kind"][value="order"]')
        until(page, f"/[1-9]\\s+orders? to publish/.test({broker})")
        for width in (375, 1280):
            page.look(width=width)
            assert page.run("document.documentElement.scrollWidth") <= width
        until(page, "/started broker/.test(document.querySelector('#feed').innerText)")
        until(page, "/shipped: ship-/.test(document.querySelector('#customers').innerText)")
        until(page, f"/[1-9]\\s+notices came/.test({broker})")
        assert page.run("window.stayed") is True
        assert page.complaints() == []
        report = stage.end()
        assert (report["ok"], report["kills"]) == (True, {"broker": 1})
        assert report["processed"] >= 1
        assert report["broker"]["orders"] == report["broker"]["tasks"] >= 1


def test_a_large_order_is_approved_by_keyboard_while_agents_are_killed(
    stage: RunningShow, page: Page
) -> None:
    """It waits on the page with a countdown; the button sends a signal, and the order ends whole; all without a reload."""
    page.look(width=1280)
    page.open(stage.link)
    page.run("window.stayed = true")
    page.run("""document.querySelector('button[name="number"][value="8"]').focus()""")
    page.press("Enter")
    until(page, "!!document.querySelector('.answer')")
    order = page.run("document.querySelector('#h-live').innerText")
    countdown = "+document.querySelector('.answer b').innerText.match(/^(\\d+) s left$/)[1]"
    first_left = until(page, countdown)
    until(page, f"{countdown} < {first_left}")
    ladder = page.run("document.querySelector('.ladder').innerText")
    assert " left: waits for approval, a signal" in str(ladder)
    page.run("document.querySelector('.answer button').focus()")
    until(page, "/[2-9] agents died meanwhile/.test(document.querySelector('.heard').innerText)")
    assert page.run("document.activeElement.innerText") == "Approve", "the focus survives what is new"
    page.press("Tab")
    assert page.run("document.activeElement.innerText") == "Refuse"
    for width in (375, 1280):
        for scheme in ("light", "dark"):
            page.look(width=width, scheme=scheme)
            assert page.run("document.documentElement.scrollWidth") <= width
    page.run("document.querySelector('.answer button').focus()")
    page.press("Enter")
    until(page, f"/approved you: {order},/.test(document.querySelector('#feed').innerText)")
    until(page, f"/Act 8\\. {order} is processed/.test(document.querySelector('#live').innerText)")
    assert page.run("!document.querySelector('.answer')")
    zeros = page.run("[...document.querySelectorAll('.zero b')].map(e => e.innerText)")
    assert zeros == ["0", "0", "0"]
    assert page.run("window.stayed") is True
    assert page.complaints() == []
    report = stage.end()
    assert (report["ok"], report["approved"]) == (True, 1)
    assert report["processed"] >= 1


def test_the_console_shows_what_a_large_order_waits_for_and_how_long(stage: RunningShow, page: Page) -> None:
    """In the ladder, in the list and on the overview; no label of the time axis is printed over another one."""
    assert stage.press("order", kind="large") == 204
    stage.until("live", "waits for an approval")
    link = re.search(r'href="(http://[^"]+)/tasks/([^"?#]+)\?([^"#]+)"', stage.get())
    assert link is not None
    console, task, token = link.groups()
    page.open(f"{console}/?{token}")
    for width in (375, 1280):
        for scheme in ("light", "dark"):
            page.look(width=width, scheme=scheme)
            page.open(f"{console}/tasks/{task}")
            note = until(page, "[...document.querySelectorAll('.cell__note')].map(e => e.innerText).at(-1)")
            assert re.match(r"\d[\d.]*s left: waits for approval", str(note))
            assert page.run(AXIS_LABELS) is True
            assert page.run("document.documentElement.scrollWidth") <= width
            page.open(f"{console}/tasks?q=waits:approval")
            row = until(page, "(document.querySelector('.tasks tbody tr') || {}).innerText")
            assert re.search(r"waits for approval, a signal · times out in \d", str(row))
            assert re.search(r"approval, until \d\d:\d\d:\d\d", str(row))
            page.open(f"{console}/")
            until(page, "!!document.querySelector('.needs--calm b')")
            assert page.run("(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.needs--calm b'))")
            assert page.complaints() == []
    report = stage.end()
    assert (report["ok"], report["undone"], report["refused"]) == (True, 1, 1), "the show is over: refused"


def test_the_page_is_whole_in_both_schemes_at_every_width_and_by_keyboard(
    stage: RunningShow, page: Page
) -> None:
    assert stage.press("act", number="5") == 204
    stage.until("live", "is undone: its card was refused")
    for width in (390, 1280, 1600):
        for scheme in ("light", "dark"):
            page.look(width=width, scheme=scheme)
            page.open(stage.link)
            until(
                page,
                "document.querySelectorAll('.post').length >= 14 && !document.querySelector('.stage--old')",
            )
            assert page.run("document.documentElement.scrollWidth") <= width
            assert page.complaints() == []
    page.run("""document.querySelector('button[aria-label="stop stock-1"]').focus()""")
    page.press("Enter")
    until(page, """!!document.querySelector('button[aria-label="start stock-1"]')""")
    page.press("Tab")
    assert page.run("document.activeElement.getAttribute('aria-label')") == "kill -9 stock-1"
    page.run("document.querySelector('#theme').focus()")
    page.press("Enter")
    assert page.run("document.documentElement.dataset.theme") in ("light", "dark")


def test_the_sixth_act_ends_with_an_operator_in_the_console(stage: RunningShow, page: Page) -> None:
    """The undo is stuck; the page leads to the console: there the operator tries it again, then resubmits the order."""
    page.look(width=1280)
    page.open(stage.link)
    click(page, 'button[name="number"][value="6"]')
    there = until(page, "(document.querySelector('.heard a') || {}).href", 300.0)
    order = str(page.run("document.querySelector('#h-live').innerText"))
    page.open(str(there))
    assert order in page.run("document.title")
    click(page, '#verdict button[popovertarget="undo"]')
    assert page.run("document.querySelector('#undo').matches(':popover-open')")
    click(page, '#undo button[type="submit"]')
    until(page, "document.querySelector('#verdict') && !document.querySelector('.verdict--need')")
    page.open(stage.link)
    until(page, f"/Act 6\\. {order} is undone/.test(document.querySelector('#live').innerText)")
    page.open(str(there))  # it may be a second old, and is live
    until(page, "!!document.querySelector('.head__acts button[popovertarget=resubmit]')")
    click(page, '.head__acts button[popovertarget="resubmit"]')
    click(page, '#resubmit button[type="submit"]')
    page.open(stage.link)
    until(page, f"/Act 6\\. {order} is made good/.test(document.querySelector('#live').innerText)")
    zeros = page.run("[...document.querySelectorAll('.zero b')].map(e => e.innerText)")
    assert zeros == ["0", "0", "0"]
    report = stage.end()
    assert (report["ok"], report["error"], report["open"]) == (True, 0, 0)
    assert report["processed"] + report["undone"] == report["placed"]
