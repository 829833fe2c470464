"""What one sees of the demo while it runs and at its end: a live screen in a terminal, lines in a pipe, or JSON.

``Screen`` is what the demo speaks to; ``screen()`` chooses. A ``Scene`` is everything that can be seen at a moment.
"""

import json
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .chaos import Event, Score
from .processes import Place, State
from .report import Report

COLORS: Final = {
    "processed": "green", "undone": "magenta", "error": "bold red", "undoing": "bright_magenta",
    "processing": "cyan", "sleeping": "yellow", "pending": "blue",
}  # fmt: skip
LIGHTS: Final = {
    State.RUNNING: ("●", "green"),
    State.STOPPED: ("‖", "yellow"),
    State.KILLED: ("✖", "bold red"),
    State.ENDED: ("○", "dim"),
}
MARKS: Final = {
    "killed": ("✖", "red"), "died": ("!", "bold red"), "stopped": ("‖", "yellow"), "started": ("●", "cyan"),
    "resumed": ("▶", "yellow"), "healed": ("✚", "green"), "approved": ("✔", "green"), "refused": ("✘", "magenta"),
    "settled": ("Σ", "cyan"),
}  # fmt: skip
LINE_EVERY: Final = 3.0
"""Seconds between two lines of progress where nothing can be drawn over."""
AUDIT: Final = "audit of the services' own books"
REMEMBERED: Final = 8
"""Events on the screen."""


@dataclass(slots=True)
class Scene:
    """A moment: orders by state, who is on the wall, what happened last."""

    wanted: int
    score: Score
    placed: int = 0
    states: Counter[str] = field(default_factory=Counter)
    wall: Sequence[Place] = ()
    leader: int = 0
    """The process id of the supervisor that leads, 0 when none does."""
    events: deque[tuple[float, Event]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    begun: float = field(default_factory=time.monotonic)
    waits: str = ""
    """What open orders wait for: see ``waits.py``."""

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begun

    def counts(self) -> dict[str, int]:
        """Orders by what people ask for."""
        rest = {name: self.states[name] for name in ("processed", "undone", "error")}
        return {"placed": self.placed, **rest, "under way": self.placed - sum(rest.values())}


class Screen(Protocol):
    """Where the demo is seen. Leaving it as a context manager ends the drawing."""

    def note(self, text: str) -> None:
        """Say something to a person."""
        ...

    def event(self, scene: Scene, event: Event) -> None:
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
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else PlainScreen()


class JsonScreen:
    """One JSON object per line on stdout; the last one is the report."""

    def __init__(self) -> None:
        self._last = 0.0

    def note(self, text: str) -> None:
        """Say it on stderr: it is no data."""
        print(text, file=sys.stderr, flush=True)

    def event(self, scene: Scene, event: Event) -> None:
        """Write the event."""
        document = {
            "event": event.kind,
            "at": round(scene.seconds, 2),
            "process": event.who,
            "pid": event.pid,
        }
        self._write(document | {"text": event.text})

    def show(self, scene: Scene) -> None:
        """Write the counts, now and then."""
        if scene.seconds - self._last >= LINE_EVERY:
            self._last = scene.seconds
            line = {
                "event": "progress",
                "at": round(scene.seconds, 2),
                **scene.counts(),
                "waits": scene.waits,
            }
            self._write(line)

    def report(self, report: Report) -> None:
        """Write the report."""
        self._write({"event": "report", **report.as_json()})

    def close(self) -> None:
        """Nothing is drawn."""

    def _write(self, value: dict[str, object]) -> None:
        print(json.dumps(value), flush=True)


class PlainScreen:
    """Lines for a pipe or a log."""

    def __init__(self) -> None:
        self._last = 0.0

    def note(self, text: str) -> None:
        """Write it."""
        print(text, flush=True)

    def event(self, scene: Scene, event: Event) -> None:
        """Write the event on a line."""
        print(f"{scene.seconds:6.1f} s  {event.kind:<8} {event.name}: {event.text}", flush=True)

    def show(self, scene: Scene) -> None:
        """Write the scoreboard, now and then."""
        if scene.seconds - self._last >= LINE_EVERY:
            self._last = scene.seconds
            print(f"{scene.seconds:6.1f} s  {scoreboard(scene).plain}", flush=True)
            if scene.waits:
                print(f"{scene.seconds:6.1f} s  {'waits':<8} {scene.waits}", flush=True)

    def report(self, report: Report) -> None:
        """Write the table, what the bank says, and the verdict."""
        width = max(len(name) for name, _, _ in (*report.rows(), *report.audit_rows()))
        for title, rows in (("", report.rows()), (f"{AUDIT}:\n", report.audit_rows())):
            print(f"\n{title}", end="")
            for name, value, good in rows:
                print(f"{name:<{width}}  {value}{'' if good else '  <-- !'}")
        print(f"\nmoney: {report.money()}")
        for finding in report.audit.findings:
            print(f"FINDING  {finding}")
        for complaint in report.complaints:
            print(f"COMPLAINT  {complaint}")
        for note in report.notes:
            print(f"note: {note}")
        print(f"{report.verdict()} ({report.seconds:.0f} s on {report.store})", flush=True)

    def close(self) -> None:
        """Nothing is drawn."""


class LiveScreen:
    """A terminal: bar, scoreboard, process wall and the last events, drawn over and over."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="ellipsis")

    def note(self, text: str) -> None:
        """Write it above the drawing."""
        self._console.print(text, markup=False)

    def event(self, scene: Scene, event: Event) -> None:  # noqa: ARG002 - it is in the scene
        """Draw at once: a kill is worth a look."""
        self.show(scene)

    def show(self, scene: Scene) -> None:
        """Draw the moment."""
        if not self._live.is_started:
            self._live.start()
        self._live.update(drawn(scene, self._console.width), refresh=True)

    def report(self, report: Report) -> None:
        """Draw the final table, what the bank says, and the verdict."""
        self.close()
        tables = Table.grid(padding=(0, 6))
        tables.add_row(_told("the run", report.rows()), _told(AUDIT, report.audit_rows()))
        self._console.print(Text(), tables, Text(), sep="\n")
        self._console.print(Text(f"money: {report.money()}", style="dim"))
        for finding in (*map(str, report.audit.findings), *report.complaints):
            self._console.print(Text(f"✖ {finding}", style="red"))
        for note in report.notes:
            self._console.print(Text(note, style="yellow"))
        style = "bold green" if report.well else "bold red"
        self._console.print(
            Text(f"{report.verdict()} ({report.seconds:.0f} s on {report.store})", style=style)
        )

    def close(self) -> None:
        """Leave the last drawing standing."""
        if self._live.is_started:
            self._live.stop()


def _told(title: str, rows: Sequence[tuple[str, str, bool]]) -> Table:
    """One of the tables at the end: what is not as it should be is red."""
    table = Table(title, "", box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    for name, value, good in rows:
        bad = "" if good else "bold red"
        table.add_row(Text(name, style=bad), Text(value, style=bad or "bold"))
    return table


def scoreboard(scene: Scene) -> Text:
    """The numbers that change, on one line."""
    counts = scene.counts()
    line = Text("orders ").append(f"{scene.placed}/{scene.wanted}", style="bold")
    for name in ("processed", "undone", "error", "under way"):
        label = "in error" if name == "error" else name
        line.append(f" · {label} ").append(f"{counts[name]}", style=COLORS.get(name, "cyan"))
    line.append(" · kills survived ").append(f"{scene.score.survived}", style="bold")
    if scene.score.heals:
        line.append(f" · last heal {scene.score.heals[-1]:.1f} s")
    return line


def bar(scene: Scene, width: int) -> Text:
    """All orders as one bar, a colour for each state; what is not yet placed is left dim."""
    line = Text()
    drawn_so_far = count = 0
    for name, color in COLORS.items():
        count += scene.states[name]
        until = round(width * min(count, scene.wanted) / max(scene.wanted, 1))
        line.append("█" * (until - drawn_so_far), style=color)
        drawn_so_far = max(drawn_so_far, until)
    return line.append("░" * (width - drawn_so_far), style="dim")


def process_wall(scene: Scene, now: float) -> Table:
    """Who stands where, since when, how often that place was hit, and who leads."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("process", no_wrap=True)
    for head in ("pid", "for", "kills", "stops"):
        table.add_column(head, justify="right", no_wrap=True)
    for place in scene.wall:
        light, color = LIGHTS[place.state]
        down = place.state is State.KILLED
        name = f"{place.name} ★" if place.pid == scene.leader and not down else place.name
        table.add_row(
            Text(light, style=color),
            Text(name, style=color if down else ""),
            Text(
                "killed" if down else f"{place.pid}", style=color if place.state is not State.RUNNING else ""
            ),
            f"{now - place.since:.0f} s",
            f"{place.kills}" if place.kills else "·",
            f"{place.stops}" if place.stops else "·",
        )
    return table


def drawn(scene: Scene, width: int) -> RenderableType:
    """The whole screen."""
    grid = Table.grid(padding=(0, 3))
    grid.add_column(no_wrap=True)  # what is too narrow for both wraps the events
    grid.add_column()
    log = Text("\n")
    for at, event in scene.events:
        mark, color = MARKS.get(event.kind, ("·", ""))
        log.append(f"{at:5.1f} s ", style="dim").append(f"{mark} ", style=color)
        log.append(f"{event.who} ", style="bold").append(f"{event.text}\n")
    grid.add_row(process_wall(scene, time.monotonic()), log)
    legend = Text("  ").join(Text(f"█ {name}", style=color) for name, color in COLORS.items())
    waits = Text(scene.waits, style="yellow")
    return Group(Text(), bar(scene, min(width - 1, 100)), legend, Text(), scoreboard(scene), waits, grid)
