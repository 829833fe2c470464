"""Picture the stage of the demo from a real run: `python -m scripts.pictures.stage`. It needs Chromium.

Both files are SVG that hold pictures of the page in light and in dark, and show what the reader prefers: ``stage.svg`` is a still,
``stage-film.svg`` moves: an agent is killed while it charges a card, and a parcel is too heavy. A frame of the film holds
only what has changed.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Final
from urllib.parse import urlencode

from scripts.pictures.record import FOLDER, environment
from tests.browser.chromium import Page, chromium, found

WIDTH, HEIGHT = 1280, 920
SCHEMES: Final = ("light", "dark")
DEMO: Final = (sys.executable, "-m", "makegood", "demo", "--stage", "--no-browser", "--json", "--seed", "7")
EVERY: Final = 0.7
MOST_FRAMES: Final = 48
STAYS: Final = 4.0
TITLE: Final = "The stage of makegood demo: an agent is killed while it charges a card; the order ends whole, the zeros hold"
_CHANGED: Final = """
(async (before, after, quality) => {
  const load = async text => { const image = new Image(); image.src = "data:image/png;base64," + text; await image.decode(); return image };
  const draw = image => { const canvas = new OffscreenCanvas(image.width, image.height), at = canvas.getContext("2d"); at.drawImage(image, 0, 0);
                          return at };
  const now = await load(after), made = draw(now), tile = 20;
  if (before) {
    const old = draw(await load(before));
    for (let y = 0; y < now.height; y += tile) for (let x = 0; x < now.width; x += tile) {
      const [a, b] = [old, made].map(at => at.getImageData(x, y, tile, tile).data);
      if (a.every((value, n) => value === b[n])) made.clearRect(x, y, tile, tile);
    }
  }
  const blob = await made.canvas.convertToBlob({ type: "image/webp", quality });
  return await new Promise(done => { const reader = new FileReader(); reader.onload = () => done(reader.result); reader.readAsDataURL(blob) });
})
"""
"""Returns the tiles of a picture that differ from the one before, as WebP; where nothing has changed it is clear."""


def opened(link: str) -> str:
    """Return a page of the demo, whose address ends with the token that opens it."""
    address, _, token = link.partition("?token=")
    request = urllib.request.Request(address, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - the demo's own address
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return str(answer.read().decode())


class Run:
    """A running demo: its address, and its buttons."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.link = next(
            event["process"] for line in process.stdout if (event := json.loads(line))["event"] == "stage"
        )
        """The stage's address, with its token."""
        # what it writes from now on is read, so that it never waits for us
        threading.Thread(target=process.stdout.read, daemon=True).start()
        self._address, _, self._token = self.link.partition("?token=")

    def _get(self, path: str) -> str:
        return opened(f"{self._address}{path}?token={self._token}")

    def press(self, path: str, **form: str) -> None:
        """Press a button."""
        body = urlencode({"token": self._token, **form}).encode()
        request = urllib.request.Request(  # noqa: S310 - the demo's own address
            self._address + path, body, {"Accept": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30):  # noqa: S310
            pass

    def part(self, name: str) -> str:
        """Return an element of the page as it is now."""
        return str(json.loads(self._get("fragments"))[name])

    def says(self, part: str, words: str) -> bool:
        """Whether an element of the page has these words."""
        return words in self.part(part)


@contextmanager
def running() -> Iterator[Run]:
    """Run the demo with its stage."""
    with tempfile.TemporaryDirectory(prefix="makegood-pictures-") as folder:
        process = subprocess.Popen(
            DEMO, env=environment({"TMPDIR": folder}), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )  # fmt: skip
        try:
            yield Run(process)
        finally:
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@contextmanager
def shown(program: str, url: str, width: int, height: int, scale: float = 1.0) -> Iterator[dict[str, Page]]:
    """Open an address in light and in dark: in a browser for each scheme, for one shows its front tab only."""
    with ExitStack() as stack:
        pages: dict[str, Page] = {}
        for scheme in SCHEMES:
            page = pages[scheme] = stack.enter_context(chromium(program)).page()
            page.look(width=width, height=height, scheme=scheme, scale=scale)
            page.open(url)
        yield pages


def browser() -> str:
    """Return the browser's program, or end."""
    program = found()
    if program is None:
        raise SystemExit("pictures of pages need Chromium: apt-get install chromium, or MAKEGOOD_CHROMIUM")
    return program


def pictured(page: Page) -> str:
    """Return a picture of what a tab shows, as PNG in base64."""
    return str(page.call("Page.captureScreenshot", format="png")["data"])


@dataclass(slots=True)
class Film:
    """What was taken: when, by scheme, the words at the end, and the frame of the still."""

    moments: list[float] = field(default_factory=list)
    frames: dict[str, list[str]] = field(default_factory=lambda: {scheme: [] for scheme in SCHEMES})
    said: str = ""
    still: int = 0


def filmed(run: Run, pages: Mapping[str, Page]) -> Film:
    """Play the second act, and have a parcel be too heavy; take a frame now and then."""
    film = Film()
    start = time.monotonic()
    first_page = pages[SCHEMES[0]]

    def until(pattern: str, most: int) -> None:
        over = False
        while len(film.moments) < most:
            at = time.monotonic()
            film.moments.append(at - start)
            for scheme, page in pages.items():
                film.frames[scheme].append(pictured(page))
            if over:
                return
            over = run.says("live", pattern)
            if not film.still and run.says("live", "was killed while"):
                film.still = len(film.moments)
            first_page.run(
                f"new Promise(done => setTimeout(done, {1000 * max(0.1, at + EVERY - time.monotonic()):.0f}))"
            )

    run.press("act", number="2")
    until("its card was charged once", MOST_FRAMES // 2)
    film.said = str(first_page.run("document.querySelector('.stage').innerText"))
    run.press("order", kind="too heavy")
    until("<b>undone</b>", MOST_FRAMES)
    return film


def layered(page: Page, frames: Sequence[str]) -> list[str]:
    """Return frames as data URLs, each with only what has changed since the one before."""
    layers, before = [], ""
    for frame in frames:
        layers.append(str(page.run(f"{_CHANGED}({json.dumps(before)}, {json.dumps(frame)}, 0.82)")))
        before = frame
    return layers


def drawn(
    title: str,
    description: str,
    layers: Sequence[Sequence[str]],
    moments: Sequence[float],
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> str:
    """Return an SVG of one frame or more, light and dark. Where motion is not wanted, the last frame is shown."""
    width, height = size
    seconds = moments[-1] + STAYS if len(moments) > 1 else 0.0
    style = [
        ".dark{display:none}@media (prefers-color-scheme:dark){.dark{display:inline}.light{display:none}}"
    ]
    if seconds:
        for n, at in enumerate(moments):
            if n:
                begins = 100 * at / seconds
                style.append(f"@keyframes f{n}{{0%{{opacity:0}}{begins:.2f}%{{opacity:1}}}}")
                style.append(f".f{n}{{animation:f{n} {seconds:.1f}s step-end infinite}}")
        style.append("@media (prefers-reduced-motion:reduce){image{animation:none!important}}")
    images = [
        f'<g class="{scheme}">'
        + "".join(f'<image class="f{n}" width="{width}" height="{height}" href="{url}"/>' for n, url in enumerate(urls))
        + "</g>"
        for scheme, urls in zip(SCHEMES, layers, strict=True)
    ]  # fmt: skip
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{escape(title)}</title>", f"<desc>{escape(description)}</desc>", f"<style>{''.join(style)}</style>", *images, "</svg>\n",
    ])  # fmt: skip


def main() -> None:
    """Play, and write both pictures."""
    program = browser()
    with running() as run, shown(program, run.link, WIDTH, HEIGHT) as pages:
        while not run.says("customers", "shipped: ship-"):
            pages["light"].run("new Promise(done => setTimeout(done, 300))")
        film = filmed(run, pages)
    with chromium(program) as other:
        at = min(film.still, len(film.moments) - 1)
        still = [layered(other.page(), film.frames[scheme][at : at + 1]) for scheme in SCHEMES]
        layers = [layered(other.page(), film.frames[scheme]) for scheme in SCHEMES]
    files = {
        "stage.svg": drawn(TITLE.partition(":")[0], film.said, still, [0.0]),
        "stage-film.svg": drawn(TITLE, film.said, layers, film.moments),
    }
    for name, picture in files.items():
        (FOLDER / name).write_text(picture, encoding="utf-8")
        print(f"{name}: {len(picture) // 1024} KiB, {len(film.moments)} frames in {film.moments[-1]:.0f} s")


if __name__ == "__main__":
    main()
