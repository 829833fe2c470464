"""Every screen in a real browser: light and dark, at the root and under a base path, wide and narrow, by keyboard alone."""

import asyncio
import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.base import ids
from makegood.model.messages import Alert
from tests.browser.chromium import Page
from tests.browser.conftest import Listening

VENDOR = Path(__file__).parent / "vendor"
SCREENS = (
    "/",
    "/tasks",
    "/tasks?group=batch",
    "/tasks?group=attribute:customer",
    "/tasks/TASK",
    "/alerts",
    "/errors",
    "/errors/GROUP",
    "/agents",
    "/cluster",
    "/schedules",
    "/schedules/backfill?app=shop&name=nightly&since=2020-10-20&until=2020-10-30T12:00&limit=1000",
    "/schedules/backfill?app=shop&name=nightly&since=soon&until=2999-01-01",
    "/bulk",
    "/bulk/bulk-2",
    "/bulk/new?kind=undo&q=state:error",
    "/audit",
    "/stores",
    "/stores/doctor",
    "/tasks?q=stat:error",
    "/nowhere",
)
WIDE = """
[...document.querySelectorAll("body *")].filter(e => {
  const r = e.getBoundingClientRect();
  if (r.right <= innerWidth + 1 || !r.width || getComputedStyle(e).position == "absolute") return false;
  for (let p = e.parentElement; p; p = p.parentElement) if (getComputedStyle(p).overflowX != "visible") return false;
  return true;
}).slice(0, 5).map(e => `${e.tagName} ${e.getAttribute("class")}`)
"""
AXE = """
axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations
  .filter(v => v.impact == "serious" || v.impact == "critical")
  .map(v => `${v.id}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).join(" | ")}`))
"""


def settled(page: Page, console: Listening, screen: str) -> None:
    """Open a screen."""
    if "GROUP" in screen:
        page.open(console.at("/errors"))
        page.open(str(page.run("document.querySelector('.group__msg a').href")))
        return
    page.open(console.at(screen.replace("TASK", ids.show(console.task))))


def examined(page: Page) -> list[Any]:
    """Return what is serious in the eyes of axe-core."""
    page.run((VENDOR / "axe.min.js").read_text(encoding="utf-8") + ";0")
    violations: list[Any] = page.run(AXE)
    return violations


def test_the_vendored_script_is_the_one_that_was_examined() -> None:
    """Its hash, and its licence beside it."""
    entry = tomllib.loads((VENDOR / "vendor.toml").read_text(encoding="utf-8"))["axe-core"]
    assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
    assert "Mozilla Public License" in (VENDOR / "axe-core.LICENSE").read_text(encoding="utf-8")


def test_the_first_screen_opens(page: Page, consoles: dict[str, Listening]) -> None:
    """It says what needs somebody, and the browser has nothing to complain of."""
    page.open(consoles["root"].at("/"))
    assert page.run("document.querySelector('.verdict__title').textContent") == "1 task needs you"
    assert page.complaints() == []


def has_no_fault(page: Page, screen: str) -> None:
    """The browser complains of nothing, nothing is wider than the window, and hostile texts stay texts."""
    missing = ["Failed to load resource: the server responded with a status of 404 (Not Found)"]
    assert page.complaints() == (missing if screen == "/nowhere" else [])
    assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0, page.run(WIDE)
    assert page.run("document.querySelectorAll('main script, main iframe').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_is_whole(page: Page, consoles: dict[str, Listening], screen: str, scheme: str) -> None:
    """Wide and narrow: no fault, and nothing serious for axe-core."""
    for width in (1280, 390):
        page.look(width=width, scheme=scheme)
        settled(page, consoles["root"], screen)
        has_no_fault(page, screen)
        assert examined(page) == []


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_under_a_base_path_is_whole(page: Page, consoles: dict[str, Listening], screen: str) -> None:
    """A base path changes addresses, not colours and widths: what it could break is refused or missing."""
    settled(page, consoles["base"], screen)
    has_no_fault(page, screen)


@pytest.mark.parametrize("where", ["root", "base"])
def test_every_link_stays_below_the_base_path(page: Page, consoles: dict[str, Listening], where: str) -> None:
    console = consoles[where]
    for screen in SCREENS:
        settled(page, console, screen)
        links = page.run(
            "[...document.querySelectorAll('a[href], form[action], link[href^=\"/\"], script[src]')].map(e => e.href || e.action || e.src)"
        )
        assert links
        assert [
            link for link in links if not link.startswith(console.at("/")) and not link.startswith("#")
        ] == []


def test_an_alert_is_acknowledged_by_keyboard(page: Page, consoles: dict[str, Listening]) -> None:
    """Tab finds the button, Enter opens its dialog, a note is written, Enter sends it; the page says who has the alert."""
    page.open(consoles["root"].at("/alerts"))
    focus = "document.activeElement.textContent"
    for _ in range(80):
        page.press("Tab")
        if page.run(focus).strip() == "Acknowledge…":
            break
    assert page.run(focus).strip() == "Acknowledge…"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.press("Enter")
    assert page.run("document.querySelectorAll('.dialog:popover-open').length") == 1
    for _ in range(5):
        page.press("Tab")
        if page.run("document.activeElement.name") == "reason":
            break
    page.write("I ask the bank")
    page.press("Enter")
    assert page.run(seen("document.querySelector('#toasts').textContent.includes('1 alert acknowledged')"))
    assert page.run(seen("document.querySelector('#acked')?.textContent.includes('I ask the bank')"))
    assert page.run("document.querySelectorAll('.dialog:popover-open').length") == 0
    assert page.complaints() == []


def test_a_schedule_is_backfilled_by_keyboard(page: Page, consoles: dict[str, Listening]) -> None:
    """Enter in a field shows what it would do, Enter in the reason does it; the page says what it did."""
    page.open(consoles["base"].at("/schedules/backfill?app=shop&name=nightly"))

    def written(name: str, text: str) -> None:
        for _ in range(60):
            page.press("Tab")
            if page.run("document.activeElement.name") == name:
                break
        assert page.run("document.activeElement.name") == name
        page.run("document.activeElement.select?.()")
        page.write(text)

    written("since", "2020-10-24")
    written("until", "2020-10-25T12:00")
    page.heard()
    page.press("Enter")
    page.loaded()
    assert "A backfill submits 2 tasks" in page.run("document.querySelector('#verdict').textContent")
    assert page.run("document.querySelector('#moments').textContent.includes('the first of two')")
    written("reason", "the ledger was away")
    page.heard()
    page.press("Enter")
    page.loaded()
    assert page.run("location.pathname + decodeURIComponent(location.search)").endswith(
        "/tasks?q=app:shop+attribute:makegood.schedule=nightly"
    )
    assert "2 tasks are submitted." in page.run("document.body.textContent")
    assert page.run("document.querySelectorAll('#rows tr').length") == 2
    page.open(consoles["base"].at("/audit?kind=schedule_backfill"))
    assert page.run("document.querySelector('main').textContent.includes('the ledger was away')")
    assert page.complaints() == []


def test_a_page_follows_the_store_without_a_reload(page: Page, consoles: dict[str, Listening]) -> None:
    """An alert that another process raises is there, on the page that was open; paused by a key, the next one is not."""
    console = consoles["base"]
    page.open(console.at("/alerts"))
    page.run("window.marked = true")
    assert page.run(seen("document.querySelector('#live .live__word').textContent == 'live'"))
    asyncio.run(raised(console.store, "the first test alert"))
    assert page.run(seen("document.querySelector('#main').textContent.includes('the first test alert')"))
    assert page.run("window.marked") is True
    page.press("p")
    assert page.run(seen("document.querySelector('#live .live__word').textContent.startsWith('paused at ')"))
    asyncio.run(raised(console.store, "the second test alert"))
    page.press("p")
    assert page.run(seen("document.querySelector('#main').textContent.includes('the second test alert')"))
    assert page.complaints() == []


def test_keys_lead_from_page_to_page(page: Page, consoles: dict[str, Listening]) -> None:
    """Two of them for a page, one for the theme, which the next page keeps."""
    page.open(consoles["base"].at("/"))
    page.press("t")
    dark = page.run("document.documentElement.dataset.theme")
    page.heard()
    page.press("g")
    page.press("c")
    page.loaded()
    assert page.run("location.pathname") == "/ops/makegood/cluster"
    assert page.run("document.documentElement.dataset.theme") == dark == "dark"
    page.press("t")
    assert page.complaints() == []


def seen(expression: str) -> str:
    """Return a script that waits until an expression is true."""
    return f"new Promise(done => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 20); look(); }})"


async def raised(url: str, text: str) -> None:
    """Raise an alert, as another process would."""
    async with mg.Client(url) as client:
        await client.store.alerts.alert([Alert("dead_letter", step=text, text=text)])


def test_alerts_are_gone_through_by_keys(page: Page, consoles: dict[str, Listening]) -> None:
    """J and k move, a opens the dialog of the alert that is marked, Escape closes it: nothing acts on one key."""
    page.open(consoles["base"].at("/alerts"))
    page.press("p")  # live is paused, so that nothing but keys moves anything
    dialog = "document.querySelector('.dialog:popover-open')?.id ?? ''"
    page.press("j")
    page.press("a")
    first = page.run(dialog)
    assert first.endswith("-ack")
    page.press("Escape")
    assert page.run(dialog) == ""
    page.press("j")
    while not page.run("document.querySelector('.is-at [data-key=u]') !== null"):
        page.press("j")  # a test alert has no task
    alert_id = page.run("document.querySelector('.is-at').id")
    assert f"{alert_id}-ack" != first
    page.press("u")
    assert page.run(dialog) == f"{alert_id}-undo"
    assert page.complaints() == []


ROWS = "[...document.querySelectorAll('#need > [data-row]')].map(row => row.id)"


def test_the_marked_alert_stays_marked_when_the_list_changes(
    page: Page, consoles: dict[str, Listening]
) -> None:
    """Live goes on: another alert waits behind a button; shown, it leaves the mark where it was, and so the next key's act."""
    for text in ("one to mark", "another to mark"):
        asyncio.run(raised(consoles["root"].store, text))
    page.open(consoles["root"].at("/alerts"))
    assert page.run(seen("document.querySelector('#need').textContent.includes('another to mark')"))
    page.press("j")
    page.press("j")
    alert_id = page.run("document.querySelector('.is-at').id")
    before = page.run(ROWS)
    asyncio.run(raised(consoles["root"].store, f"new {before}"))
    assert page.run(seen("document.querySelector('#newer').textContent == '1 newer'"))
    assert page.run(ROWS) == before
    page.run("document.querySelector('#newer').click()")
    assert page.run(seen("document.querySelector('#newer').hidden"))
    assert page.run(ROWS)[1:] == before
    assert page.run("document.querySelector('.is-at').id") == alert_id
    page.press("a")
    assert page.run("document.querySelector('.dialog:popover-open')?.id ?? ''") == f"{alert_id}-ack"
    assert page.complaints() == []


def test_rows_under_the_pointer_do_not_move(page: Page, consoles: dict[str, Listening]) -> None:
    """What is new waits while the pointer is in the list, and is there as soon as it leaves."""
    asyncio.run(raised(consoles["root"].store, "one to point at"))
    page.open(consoles["root"].at("/alerts"))
    assert page.run(seen("document.querySelector('#need').textContent.includes('one to point at')"))
    middle = page.run(
        "(({x, y, width}) => [x + width / 2, y + 5])(document.querySelector('#need > [data-row]').getBoundingClientRect())"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=middle[0], y=middle[1])
    assert page.run(seen("document.querySelector('#need').matches(':hover')"))
    before = page.run(ROWS)
    asyncio.run(raised(consoles["root"].store, f"new {before}"))
    assert page.run(seen("!document.querySelector('#newer').hidden"))
    assert page.run(ROWS) == before
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=3, y=3)
    assert page.run(seen("document.querySelector('#newer').hidden"))
    assert page.run(ROWS)[1:] == before
    assert page.complaints() == []


def test_a_lease_runs_down_before_ones_eyes(page: Page, consoles: dict[str, Listening]) -> None:
    """The bar and the countdown move without a request."""
    page.open(consoles["root"].at("/cluster"))
    assert (
        page.run("""new Promise(done => {
      const bar = document.querySelector('rect[data-left]');
      const seen = bar.getAttribute('width');
      new MutationObserver(() => { if (bar.getAttribute('width') !== seen) done('moved'); }).observe(bar, {attributes: true});
    })""")
        == "moved"
    )


def test_tasks_are_selected_and_counted_before_an_act_by_keyboard(
    page: Page, consoles: dict[str, Listening]
) -> None:
    """Without a script: a checkbox by Space, then the button."""
    page.open(consoles["base"].at("/tasks?q=state:error"))
    for _ in range(60):
        page.press("Tab")
        if page.run("document.activeElement.name ?? ''").startswith("t-"):
            break
    page.press(" ")
    page.run("document.querySelector('button[name=kind][value=undo]').focus()")
    page.heard()
    page.press("Enter")
    page.loaded()
    assert page.run("document.querySelector('h1').textContent") == "Undo 1 task?"


def test_all_tasks_on_a_page_are_ticked_at_once(page: Page, consoles: dict[str, Listening]) -> None:
    """The box in the head ticks each; the buttons are for the ticked tasks, and wait until there is one."""
    page.open(consoles["base"].at("/tasks?q=state:error"))
    ticks, off = (
        "document.querySelector('[data-ticked]').textContent",
        "document.querySelector('button[value=undo]').disabled",
    )
    boxes = page.run("document.querySelectorAll('#rows .check').length")
    assert (page.run(ticks), page.run(off)) == ("Tick tasks to act on them", True)
    page.run("document.querySelector('[data-all]').click()")
    assert (page.run(ticks), page.run(off)) == (f"On the {boxes} ticked", False)
    page.run("document.querySelector('#rows .check').click()")
    assert page.run(ticks) == f"On the {boxes - 1} ticked"
    assert page.run("document.querySelector('[data-all]').indeterminate")
    page.run("document.querySelector('[data-all]').click()")
    page.heard()
    page.run("document.querySelector('button[value=undo]').click()")
    page.loaded()
    assert page.run("document.querySelector('h1').textContent") == f"Undo {boxes} tasks?"
    assert page.complaints() == []


OPENED = "document.querySelector('.dialog:popover-open')"
FOCUS = "(({tagName, name, id}) => [tagName, name || id])(document.activeElement)"


@pytest.mark.parametrize("how", ["key", "button"])
def test_a_dialog_has_the_focus_while_it_is_open(
    page: Page, consoles: dict[str, Listening], how: str
) -> None:
    """What is typed goes into its first field, without a Tab; closed, the focus is where it was, so that Enter opens it again."""
    console = consoles["root"]
    page.open(console.at(f"/tasks/{ids.show(console.task)}"))
    button = "document.querySelector('#acts [data-key=u]')"
    if how == "key":
        page.press("u")
    else:
        page.run(f"{button}.focus()")
        page.press("Enter")
    assert page.run(FOCUS) == ["INPUT", "reason"]
    assert page.run(f"{OPENED}.contains(document.activeElement)")
    page.write("by keyboard")
    assert page.run("document.activeElement.value") == "by keyboard"
    page.press("Escape")
    assert page.run(OPENED) is None
    assert page.run(f"document.activeElement === {button}")
    page.press("Enter")
    assert page.run(FOCUS) == ["INPUT", "reason"]
    assert page.complaints() == []


@pytest.mark.parametrize("screen", ["/tasks/TASK", "/alerts", "/bulk/bulk-2", "/"])
def test_every_dialog_takes_the_focus(page: Page, consoles: dict[str, Listening], screen: str) -> None:
    """Each that a page has, the list of keys among them, and gives it back."""
    settled(page, consoles["root"], screen)
    page.press("p")
    dialogs = page.run("""[...document.querySelectorAll('button[popovertarget]:not([popovertargetaction])')].filter(e => e.checkVisibility()).map(button => {
      button.focus(); button.click();
      const dialog = document.getElementById(button.getAttribute('popovertarget')), inside = dialog.contains(document.activeElement);
      dialog.hidePopover();
      return [dialog.id, inside, document.activeElement === button];
    })""")
    assert dialogs
    assert [one for one in dialogs if not (one[1] and one[2])] == []
