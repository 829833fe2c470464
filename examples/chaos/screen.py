"""What one sees of a run: a live screen in a terminal, lines in a pipe, or a JSON object per line."""

import json
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.orders.chaos import Score
from examples.orders.display import Scene as Wall
from examples.orders.display import process_wall
from examples.orders.processes import Place

from .kinds import Kind
from .report import Report

COLORS: Final = {
    "killed": "red",
    "died": "bold red",
    "stopped": "yellow",
    "refused": "magenta",
    "fault": "cyan",
}
LINE_EVERY: Final = 3.0
REMEMBERED: Final = 12
COLUMN: Final = 32
"""Characters that a kind of fault and its count take."""
WIDE: Final = 110
"""Characters of a line where nobody says how wide it may be."""


@dataclass(slots=True)
class Scene:
    """A moment of a run. ``phase`` says what is going on."""

    span: float
    enabled: Sequence[Kind]
    phase: str = "starting"
    begun: float = field(default_factory=time.monotonic)
    placed: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    met: Mapping[Kind, int] = field(default_factory=dict)
    wall: Sequence[Place] = ()
    leader: int = 0
    waits: Mapping[str, int] = field(default_factory=dict)
    """What is asleep, and what was signalled and fired so far."""
    events: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def seconds(self) -> float:
        """Seconds since the faults began."""
        return time.monotonic() - self.begun

    def counts(self) -> dict[str, int]:
        """What can be counted, for a line."""
        ends = {name: self.ends[name] for name in ("processed", "undone", "error")}
        return {
            "placed": self.placed,
            **ends,
            "under way": self.placed - sum(ends.values()),
            **self.waits,
            "faults": sum(self.met.values()),
        }


class Screen(Protocol):
    """Where a run is seen."""

    def note(self, text: str) -> None:
        """Say something to a person."""
        ...

    def event(self, scene: Scene, kind: str, text: str) -> None:
        """Tell what just happened."""
        ...

    def show(self, scene: Scene) -> None:
        """Show the moment; called several times a second."""
        ...

    def report(self, report: Report) -> None:
        """Tell the end."""
        ...

    def close(self) -> None:
        """Draw no more."""
        ...


def screen(*, as_json: bool) -> Screen:
    """Return the screen that fits: JSON when asked for, drawn in a terminal, lines anywhere else."""
    if as_json:
        return JsonScreen()
    console = Console(highlight=False, emoji=False)
    live = console.is_terminal and not console.is_dumb_terminal
    return LiveScreen(console) if live else PlainScreen(Console(highlight=False, emoji=False, width=WIDE))


class JsonScreen:
    """One JSON object per line on stdout; the last one is the report."""

    def __init__(self) -> None:
        self._last = 0.0

    def note(self, text: str) -> None:
        """Say it on stderr: it is no data."""
        print(text, file=sys.stderr, flush=True)

    def event(self, scene: Scene, kind: str, text: str) -> None:
        """Write the event."""
        self._write({"event": kind, "at": round(scene.seconds, 2), "text": text})

    def show(self, scene: Scene) -> None:
        """Write the counts, now and then."""
        if time.monotonic() - self._last >= LINE_EVERY:
            self._last = time.monotonic()
            self._write(
                {"event": "progress", "at": round(scene.seconds, 2), "phase": scene.phase, **scene.counts()}
            )

    def report(self, report: Report) -> None:
        """Write the report."""
        self._write({"event": "report", **report.as_json()})

    def close(self) -> None:
        """Nothing is drawn."""

    def _write(self, value: Mapping[str, object]) -> None:
        print(json.dumps(value), flush=True)


class PlainScreen:
    """Lines for a pipe or a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = 0.0

    def note(self, text: str) -> None:
        """Write it."""
        print(text, flush=True)

    def event(self, scene: Scene, kind: str, text: str) -> None:
        """Write it on a line."""
        print(f"{scene.seconds:6.1f} s  {kind:<8} {text}", flush=True)

    def show(self, scene: Scene) -> None:
        """Write the counts, now and then."""
        if time.monotonic() - self._last >= LINE_EVERY:
            self._last = time.monotonic()
            print(f"{scene.seconds:6.1f} s  {scene.phase}: {_words(scene.counts())}", flush=True)

    def report(self, report: Report) -> None:
        """Write the tables and the verdict."""
        self._console.print(tables(report, self._console.width))

    def close(self) -> None:
        """Nothing is drawn."""


class LiveScreen:
    """A terminal: time, orders, faults by kind, processes and the last events, drawn over and over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="ellipsis")

    def note(self, text: str) -> None:
        """Write it above the drawing."""
        self._console.print(text, markup=False)

    def event(self, scene: Scene, kind: str, text: str) -> None:  # noqa: ARG002 - it is in the scene
        """Draw at once."""
        self.show(scene)

    def show(self, scene: Scene) -> None:
        """Draw the moment."""
        if not self._live.is_started:
            self._live.start()
        self._live.update(drawn(scene, self._console.width), refresh=True)

    def report(self, report: Report) -> None:
        """Draw the tables and the verdict."""
        self.close()
        self._console.print(tables(report, self._console.width))

    def close(self) -> None:
        """Leave the last drawing standing."""
        if self._live.is_started:
            self._live.stop()


def drawn(scene: Scene, width: int) -> RenderableType:
    """The whole screen."""
    bar = ProgressBar(total=scene.span, completed=min(scene.seconds, scene.span), width=60)
    head = Text(f"{scene.phase}  {scene.seconds:.0f} s of {scene.span:.0f} s", style="bold")
    log = Text()
    for at, kind, text in scene.events:
        log.append(f"{at:6.1f} s ", style="dim").append(f"{text}\n", style=COLORS.get(kind, ""))
    grid = Table.grid(padding=(0, 3))
    wall = Wall(0, Score(), wall=scene.wall, leader=scene.leader)
    grid.add_row(process_wall(wall, time.monotonic()), log)
    return Group(head, bar, Text(_words(scene.counts())), faults(scene.enabled, scene.met, width), grid)


def tables(report: Report, width: int) -> RenderableType:
    """The end of a run: faults by kind, ends, recoveries, and what is wrong."""
    table = Table("orders", "", box=box.SIMPLE_HEAD, header_style="dim")
    for name, count in ({"placed": report.placed} | dict(report.ends)).items():
        table.add_row(name, str(count))
    table.add_row("at rest after", f"{report.healed:.1f} s")
    through = Table("gone through", "", box=box.SIMPLE_HEAD, header_style="dim")
    for name, count in sorted(report.recoveries.items()):
        through.add_row(name, str(count))
    waits = Table("waits", "", box=box.SIMPLE_HEAD, header_style="dim")
    for name, count in report.verdict.waits.counts.items():
        waits.add_row(name, str(count))
    also = Table("and", "", box=box.SIMPLE_HEAD, header_style="dim")
    for name, count in sorted(report.counts.items()):
        also.add_row(name, str(count))
    side = Table.grid(padding=(0, 4))
    side.add_row(table, through, waits, also)
    lines = [Text(f"✖ {text}", style="red") for text in report.troubles()]
    style = "bold green" if report.well else "bold red"
    return Group(
        faults(report.enabled, report.met, width), side, *lines, Text(report.sentence(), style=style)
    )


def faults(kinds: Sequence[Kind], counts: Mapping[Kind, int], width: int) -> Table:
    """Faults by kind, in columns; one that did not happen is red."""
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=False)
    columns = max(1, width // COLUMN)
    for n in range(columns):
        table.add_column("" if n else "faults met", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    rows = -(-len(kinds) // columns)
    for row in range(rows):
        cells = []
        for kind in kinds[row::rows]:
            count = counts.get(kind, 0)
            style = "" if count else "red"
            cells += [Text(kind.value, style=style), Text(str(count), style=style or "bold")]
        table.add_row(*cells)
    return table


def _words(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{name} {count}" for name, count in counts.items())
