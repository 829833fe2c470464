"""Record the pictures of terminals in docs/img from real runs: `python -m scripts.pictures.record [NAME...]`.

The stills come from the pages that show them: their files are written, their commands typed. The film is the demo.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Final, NamedTuple

from scripts.pictures.drawing import film, still
from scripts.pictures.terminal import Drawn, Frame, Row, plain, run

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs/img"
DEMO: Final = "makegood demo --headless --orders 60 --kills 6 --seed 7"
_COLUMNS: Final = 104
_FILM: Final = (112, 30)
_EVERY: Final = 0.4
_STAYS: Final = 8.0
_QUICK: Final = {
    "MAKEGOOD_HEARTBEAT": "200ms", "MAKEGOOD_DEAD_AFTER": "1s", "MAKEGOOD_LEASE": "1s", "MAKEGOOD_SUPERVISE_EVERY": "500ms",
    "MAKEGOOD_LATE_AFTER": "200ms",
}  # fmt: skip


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of what is recorded: nobody's own settings, and this environment's programs first."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKEGOOD_")}
    return {**outside, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{outside['PATH']}", **settings}


class Desk:
    """A folder with the files of a page, a store, and processes that run beside what is typed."""

    def __init__(self, folder: Path, page: str, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._environment = environment({"MAKEGOOD_STORE": "sqlite:///shop.db", **settings})
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for name, code in re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            (folder / name).write_text(code, encoding="utf-8")
        for code in re.findall(
            r"Save this as `trip\.py`:\n\n```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL
        ):
            (folder / "trip.py").write_text(code, encoding="utf-8")

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Let a command run in the background."""
        with (self.folder / "log").open("ab") as log:
            program = subprocess.Popen(
                command.split(), cwd=self.folder, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )  # fmt: skip
        self._running.append(program)
        return program

    def said(self, command: str) -> str:
        """Return what a command writes; it may end with any code."""
        process = subprocess.run(
            ["/bin/bash", "-c", command], cwd=self.folder, env=self._environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        return process.stdout.strip()

    def until(self, command: str, what: str) -> None:
        """Wait until the output of a command contains a text. Raises ``TimeoutError``."""
        end = time.monotonic() + 30.0
        while what not in (output := self.said(command)):
            if time.monotonic() > end:
                raise TimeoutError(f"{command} does not say {what!r}:\n{output}")
            time.sleep(0.1)

    def typed(self, command: str) -> Drawn:
        """Return the screen of a terminal in which a command was typed."""
        frames = run(
            ["bash", "-c", command],
            columns=_COLUMNS,
            lines=40,
            folder=self.folder,
            environment=self._environment,
        )
        return (_prompt(command), *(_anonymous(row) for row in frames[-1].rows))

    def end(self) -> None:
        """End what runs in the background."""
        for program in self._running:
            program.terminate()
        for program in self._running:
            program.wait(30)


def _prompt(command: str) -> Row:
    return ((0, "$ ", "d"), (2, command, "b"))


def _anonymous(row: Row) -> Row:
    """Name the machine ``shop``."""
    here = re.compile(rf"\b{re.escape(socket.gethostname())}(?=-\d)")
    return tuple((column, here.sub("shop", text), style) for column, text, style in row)


@contextmanager
def desk(page: str, settings: Mapping[str, str] = _QUICK) -> Iterator[Desk]:
    """Return a desk for the code of a page."""
    with tempfile.TemporaryDirectory(prefix="makegood-pictures-") as folder:
        new_desk = Desk(Path(folder), page, settings)
        new_desk.said("makegood store migrate")
        try:
            yield new_desk
        finally:
            new_desk.end()


def trip() -> dict[str, Drawn]:
    """Record the quickstart: a trip that is taken back."""
    with desk("start/quickstart.md") as here:
        here.start("makegood run trip:trips")
        here.until("makegood agents --json", "alive")  # a busy machine takes its time
        task = here.said(
            """makegood task submit trip:travel '{"city": "Atlantis", "nights": 3}' --timeout 20s"""
        )
        return {"terminal-undone": here.typed(f"makegood task watch {task}")}


def order() -> dict[str, Drawn]:
    """Record the tutorial: a process that is killed after a charge, and what becomes of it."""
    with desk("start/tutorial.md") as here:
        # half of its life without a heartbeat is silence, which a busy machine would show
        victim = here.start("env MAKEGOOD_DEAD_AFTER=12s makegood run orders:shop")
        task = here.said("""makegood task submit orders:place_order '{"id": "slow-1"}' --timeout 20s""")
        here.until("python services.py", "payments")
        victim.kill()
        terminal = here.typed(f"makegood task show {task}")
        again = here.start("makegood run orders:shop")
        here.until("makegood agents", str(again.pid))
        return {"terminal-killed": terminal, "terminal-recovered": here.typed(f"makegood task watch {task}")}


def operator() -> dict[str, Drawn]:
    """Record what an operator sees of a task that waits for one."""
    with desk("operate/operate-tasks.md", {}) as here:
        here.start("makegood run desk:shop")
        task = here.said('makegood task submit desk:sell "Emma" expired --timeout 20s')
        here.said(f"makegood task watch {task}")
        here.until("makegood alerts", task)
        report = here.typed("makegood doctor")
        settings = next(n for n, line in enumerate(plain(report)) if line.lstrip().startswith("setting"))
        report = (*report[:settings], ((1, "… and every setting, with where it comes from", "d"),))
        return {"terminal-alerts": here.typed("makegood alerts"), "terminal-doctor": report}


SCENES: Final[Sequence[Callable[[], dict[str, Drawn]]]] = (trip, order, operator)
TITLES: Final = {
    "terminal-undone": "makegood task watch: a trip that was undone",
    "terminal-killed": "makegood task show: an order whose process was killed",
    "terminal-recovered": "makegood task watch: the same order, processed",
    "terminal-alerts": "makegood alerts: a task that waits for an operator",
    "terminal-doctor": "makegood doctor: what it checks",
    "demo": "makegood demo: sixty orders, six kills, and the audit",
}


def demo() -> str:
    """Record the demo as a film: a frame at most every 0.4 s, and its end for a while."""
    columns, lines = _FILM
    with tempfile.TemporaryDirectory(prefix="makegood-pictures-") as folder:
        frames = run(
            DEMO.split(), columns=columns, lines=lines, folder=Path(folder), environment=environment({})
        )
    thinned_film: list[Frame] = []
    for at, rows in frames:
        frame = Frame(at, (_prompt(DEMO), *rows))
        if thinned_film and at - thinned_film[-1].at < _EVERY:
            frame = Frame(thinned_film[-1].at, frame.rows)
            thinned_film.pop()
        thinned_film.append(frame)
    return film(TITLES["demo"], thinned_film, columns, lines, thinned_film[-1].at + _STAYS)


class _Noise(NamedTuple):
    what: re.Pattern[str]
    instead: str


_NOISE: Final = (
    _Noise(re.compile(r"/\S*makegood-pictures-\S+"), "PATH"),
    _Noise(re.compile(r"\b(?=[0-9a-z]*\d)[0-9a-z]{13}\b"), "ID"),
    _Noise(
        re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d)?|\d\d:\d\d(?::\d\d)?(?:[+-]\d\d:?\d\d| UTC|Z)?"),
        "TIME",
    ),
    _Noise(re.compile(r"\d+(?:\.\d+)? ?(?:ms|s|min|m|h|d)\b(?: \d+(?:\.\d+)? ?(?:ms|s|m|h)\b)?"), "TIME"),
    _Noise(re.compile(r"[\w.-]+[-/:]\d{3,}\b"), "PROCESS"),
    _Noise(re.compile(r"\bstore [0-9a-f]{16}\b|only \w+ may|[\d.,]+ MiB|\(\w+fs\)|\(ext\d\)"), "MACHINE"),
    _Noise(re.compile(r"attempt \d+|\d+ failures?|held by node +\d+"), "COUNT"),
    _Noise(re.compile(r"[─━]+"), "-"),
    _Noise(re.compile(r"\s+"), " "),
)


def noticed(lines: Sequence[str]) -> list[str]:
    """Return what a reader would notice of a screen: words, columns and figures; not ids, times, processes and widths.

    >>> noticed(["task 0k3x9w2m4v7qa  charge   done 1.25 s"])
    ['task ID charge done TIME']
    """
    texts = []
    for line in lines:
        text = line
        for what, instead in _NOISE:
            text = what.sub(instead, text)
        texts.append(text.strip())
    return texts


def spoken(picture: str) -> list[str]:
    """Return the text of a picture: what its last screen says."""
    match = re.search(r"<desc>(.*?)</desc>", picture, re.DOTALL)
    return [] if match is None else unescape(match[1]).split("\n")


def main(names: Sequence[str]) -> None:
    """Record these pictures; without names, all."""
    for scene in SCENES:
        for name, rows in scene().items():
            if not names or name in names:
                (FOLDER / f"{name}.svg").write_text(still(TITLES[name], rows, _COLUMNS), encoding="utf-8")
                print("\n".join(plain(rows)))
    if not names or "demo" in names:
        (FOLDER / "demo.svg").write_text(demo(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
