"""Picture two pages of the console from a real run of the demo: `python -m scripts.pictures.console`. It needs Chromium.

``ladder.svg`` moves, slower than it was: an anvil is too heavy for the carrier, and its order is undone, rung by rung. ``cluster.svg``
is a still: the leading Supervisor was killed with SIGKILL, and another one leads. Both hold light and dark, as those of the stage do.
The pages are read while it happens and drawn afterwards, so that a slow browser misses no rung.
"""

import json
import re
import socket
import time
from collections.abc import Sequence
from typing import Final

from scripts.pictures.record import FOLDER
from scripts.pictures.stage import SCHEMES, Run, browser, drawn, layered, opened, pictured, running, shown
from tests.browser.chromium import chromium

WIDTH: Final = 1080
HEIGHTS: Final = {"ladder": 748, "cluster": 664}
SCALE: Final = 1.25
EVERY: Final = 1.1
"""Seconds that a frame stays."""
PATIENCE: Final = 120.0
TITLES: Final = {
    "ladder": "The console's page of a task: a parcel is too heavy, and the order is undone, rung by rung",
    "cluster": "The console's page of the cluster after a fail-over: the gap, and the new term",
}


def main_of(url: str) -> str:
    """Return the main part of a page as it is now. The machine is named ``shop``."""
    page = opened(url)
    main = re.search(r'<main\b[^>]*id="main".*?</main>', page, re.DOTALL)
    return main[0].replace(socket.gethostname(), "shop") if main else ""


def followed(run: Run) -> str:
    """Order an anvil when nothing else is ordered, and return where the console has its task."""

    def address() -> str:
        match = re.search(r'href="(http[^"#]+/tasks/\w+\?token=[^"#]+)"', run.part("live"))
        return match[1] if match else ""

    run.press("switch", switch="rate", value="none")
    time.sleep(8.0)
    before = address()
    run.press("order", kind="too heavy")
    while (there := address()) in ("", before):
        time.sleep(0.05)
    return there


def unwound(task: str) -> list[str]:
    """Return the page of a task, each time that its ladder has changed until it is undone."""
    pages, before, end = [], "", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        page = main_of(task)
        ladder = re.sub(r"<[^>]+>", " ", page.partition('id="ladder"')[2].partition("</section>")[0])
        if ladder != before:
            before = ladder
            pages.append(page)
        if "undone, clean" in page:
            return pages
        time.sleep(0.05)
    raise TimeoutError("the order is not undone")


def failed_over(run: Run, cluster: str) -> list[str]:
    """Play the third act; return the page of the cluster when another Supervisor leads and one waits again."""
    run.press("act", number="3")
    end = time.monotonic() + PATIENCE
    while not run.says("live", "It took the lead") or "tries for the lease" not in (page := main_of(cluster)):
        if time.monotonic() > end:
            raise TimeoutError("nobody leads")
        time.sleep(0.2)
    return [page]


def pictures(name: str, url: str, states: Sequence[str]) -> str:
    """Draw what was read of a page."""
    frames: dict[str, list[str]] = {}
    program = browser()
    with shown(program, url, WIDTH, HEIGHTS[name], SCALE) as pages:
        for scheme, page in pages.items():
            page.run("htmx.swap = async () => {}")  # nothing newer
            frames[scheme] = []
            for state in states:
                page.run(f"document.querySelector('#main').outerHTML = {json.dumps(state)}; 0")
                frames[scheme].append(pictured(page))
        text = str(pages["light"].run("document.querySelector('#main').innerText"))
    with chromium(program) as other:
        layers = [layered(other.page(), frames[scheme]) for scheme in SCHEMES]
    return drawn(TITLES[name], text, layers, [n * EVERY for n in range(len(states))], (WIDTH, HEIGHTS[name]))


def main() -> None:
    """Run the demo, and write both pictures."""
    with running() as run:
        while not run.says("customers", "shipped: ship-"):
            time.sleep(0.3)
        task = followed(run)
        cluster = re.sub(r"/tasks/\w+", "/cluster", task)
        for name, url, states in (
            ("ladder", task, unwound(task)),
            ("cluster", cluster, failed_over(run, cluster)),
        ):
            picture = pictures(name, url, states)
            (FOLDER / f"{name}.svg").write_text(picture, encoding="utf-8")
            print(f"{name}.svg: {len(picture) // 1024} KiB, {len(states)} frames")


if __name__ == "__main__":
    main()
