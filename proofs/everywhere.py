"""``python -m proofs.everywhere``: one fault at every point of a calm run, one run for each.

A run without faults counts the points at which something could strike. Then the same run is repeated, each
time with one fault at one point: a process killed or stopped there, a commit whose answer is lost, a message
lost, duplicated or late, a store that is away. Every run must end whole: no findings of the checker, the
services' books in balance.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from makegood.testing.checker import timeline
from makegood.testing.simulator.faults import FaultPoint, Plan
from makegood.testing.simulator.swarm import LAYOUTS
from makegood.testing.simulator.world import Outcome
from makegood.testing.simulator.world_files import Grounds
from proofs.quiet import quiet
from proofs.spreading import bar, lumps, spread
from proofs.storms.shop import ONCE, SERVICES_OF_STORM, orders, storm_app
from proofs.storms.swarm import calm
from proofs.storms.world import StormWorld

COMMAND: Final = "python -m proofs.everywhere"
SEED: Final = 7
WORKFLOWS: Final = ("place_order", "undone_order")
"""One that ends processed, and one whose last step is refused, so that everything is undone."""
LAYOUTS_TRIED: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "together": LAYOUTS[0],
    "apart": LAYOUTS[3],
}
"""All roles in each of two processes, which hand requests over in memory; and each role in two processes of
its own.
"""
KINDS: Final[Mapping[str, str]] = {
    "kill": "kill",
    "stop": "stop",
    "ambiguous committed": "ambiguous committed",
    "ambiguous not committed": "ambiguous not committed",
    "duplicate": "duplicate",
    "late reply": "delay",
    "drop": "drop",
    "store down": "store down",
}
"""The faults, and their names at the fault points."""
_STOPPED = 12.0
_LATE = 10.0
_AFTER = 10.0
_SHOWN = 3
_CHUNK = 20


class Struck(StormWorld):
    """A calm world in which one bad fault strikes: a stop, or the delay of a late reply, lasts longer than a
    heartbeat's life and every complete-by. It rests only once the fault and its consequences are over.
    """

    def stop(self, name: str, seconds: float, point: str = "") -> None:  # noqa: ARG002 - as drawn, it may be short
        """Stop a process for a long time."""
        super().stop(name, _STOPPED, point)

    def lateness(self) -> float:
        """Return how long a late reply is under way."""
        return _LATE

    def calls_have_landed(self) -> bool:
        """Return whether that is so, also of calls that the fault left behind."""
        faults = self.history.of("fault")
        return super().calls_have_landed() and (not faults or self.loop.now > faults[-1].at + _LATE + _AFTER)


@dataclass(frozen=True, slots=True, order=True)
class FaultCase:
    """One fault at one point of one workflow's run."""

    workflow: str
    layout: str
    kind: str
    point: int
    name: str = ""

    @property
    def replay(self) -> str:
        """The command that repeats this blow and prints everything that happened."""
        return f'{COMMAND} --workflow {self.workflow} --layout {self.layout} --kind "{self.kind}" --point {self.point} --trace'


@dataclass(slots=True)
class FaultResults:
    """Counts over blows."""

    ends: dict[tuple[str, str, str], dict[str, int]] = field(default_factory=dict)
    """How the tasks ended, by (workflow, layout, kind)."""
    failed: dict[FaultCase, list[str]] = field(default_factory=dict)
    """What is wrong, by blow."""
    runs: int = 0

    def add(self, blow: FaultCase, ends: Mapping[str, int], findings: Sequence[str]) -> None:
        """Count a run."""
        counts = self.ends.setdefault((blow.workflow, blow.layout, blow.kind), {})
        for state, count in ends.items():
            counts[state] = counts.get(state, 0) + count
        if findings:
            self.failed[blow] = list(findings)
        self.runs += 1

    def merge(self, other: "FaultResults") -> None:
        """Add another tally's counts."""
        for (workflow, layout, kind), ends in other.ends.items():
            counts = self.ends.setdefault((workflow, layout, kind), {})
            for state, count in ends.items():
                counts[state] = counts.get(state, 0) + count
        self.failed.update(other.failed)
        self.runs += other.runs


class Everywhere:
    """Runs one order of a workflow, calm or with one fault: ``Everywhere().strike(blow)``."""

    def __init__(self) -> None:
        self._app = storm_app()
        self._grounds = Grounds()
        self._points: dict[tuple[str, str], list[FaultPoint]] = {}

    def run(self, workflow: str, layout: str, plan: Plan) -> Outcome:
        """Return how a run ended whose faults ``plan`` chooses."""
        return Struck(
            SEED, app=self._app, orders=partial(orders, only=workflow), services=SERVICES_OF_STORM, once=ONCE,
            swarm=calm(layout=LAYOUTS_TRIED[layout]), plan=plan, grounds=self._grounds,
        ).run()  # fmt: skip

    def points(self, workflow: str, layout: str) -> list[FaultPoint]:
        """Return the fault points of a calm run. Raises ``RuntimeError`` if even that fails."""
        if (points := self._points.get((workflow, layout))) is not None:
            return points
        new_points: list[FaultPoint] = []

        def count(point: FaultPoint) -> None:
            new_points.append(point)

        outcome = self.run(workflow, layout, count)
        if outcome.findings:
            raise RuntimeError(f"{workflow}, {layout}: wrong without any fault: {outcome.findings[0]}")
        self._points[workflow, layout] = new_points
        return new_points

    def blows(self, workflow: str, layout: str, kind: str) -> list[FaultCase]:
        """Return one blow for each point at which this kind of fault can strike."""
        what, prefix = KINDS[kind], "reply" if kind == "late reply" else ""
        return [
            FaultCase(workflow, layout, kind, point.number, point.name)
            for point in self.points(workflow, layout)
            if what in point.able and point.name.startswith(prefix)
        ]

    def strike(self, blow: FaultCase) -> Outcome:
        """Return how the run with this blow ended; a blow that never struck is a finding too."""
        what = KINDS[blow.kind]
        outcome = self.run(
            blow.workflow, blow.layout, lambda point: what if point.number == blow.point else None
        )
        if not outcome.faults.get(what):
            outcome.findings.append(f"nothing struck: the run never came to point {blow.point}")
        return outcome


def several(blows: Sequence[FaultCase]) -> FaultResults:
    """Strike these blows, one after another, in this process."""
    everywhere, tally = Everywhere(), FaultResults()
    with quiet():
        for blow in blows:
            outcome = everywhere.strike(blow)
            tally.add(blow, outcome.ends, outcome.findings)
    return tally


def all_blows(
    workflows: Sequence[str] = WORKFLOWS,
    layouts: Sequence[str] = tuple(LAYOUTS_TRIED),
    kinds: Sequence[str] = tuple(KINDS),
) -> list[FaultCase]:
    """Return every blow that there is."""
    everywhere = Everywhere()
    return [
        blow
        for workflow in workflows
        for layout in layouts
        for kind in kinds
        for blow in everywhere.blows(workflow, layout, kind)
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--workflow", "workflows", multiple=True, help=f"Only this workflow (default: {', '.join(WORKFLOWS)})."
)
@click.option(
    "--layout", "layouts", multiple=True, type=click.Choice(list(LAYOUTS_TRIED)), help="Only this layout."
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Only this kind of fault."
)
@click.option("--point", type=int, help="Only this point: strikes one blow.")
@click.option("--trace", is_flag=True, help="With --point: print everything that happened.")
@click.option(
    "--processes", default=1, show_default=True, type=click.IntRange(1), help="Processes to run in."
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def main(  # click passes all by name
    *, workflows: tuple[str, ...], layouts: tuple[str, ...], kinds: tuple[str, ...], point: int | None, trace: bool,
    processes: int, as_json: bool,
) -> None:  # fmt: skip
    """Strike once at every fault point of a calm run; exit code 1 if a run does not end whole."""
    logging.disable(logging.CRITICAL)
    blows = all_blows(workflows or WORKFLOWS, layouts or tuple(LAYOUTS_TRIED), kinds or tuple(KINDS))
    if point is not None:
        blows = [blow for blow in blows if blow.point == point]
        if not blows:
            raise click.UsageError(f"there is no point {point} at which that could strike")
    if trace:
        if point is None:
            raise click.UsageError("--trace needs --point: everything that happened in every run is too much")
        sys.exit(max(_tell(blow, last=None) for blow in blows))
    tally, began = FaultResults(), time.perf_counter()
    with bar("everywhere", len(blows), quiet=as_json) as more:
        for part in spread(several, lumps(blows, _CHUNK), processes):
            tally.merge(part)
            more(part.runs, f"{len(tally.failed)} failed" if tally.failed else "")
    seconds = time.perf_counter() - began
    if as_json:
        click.echo(json.dumps(_as_json(tally, seconds), indent=2))
    else:
        _report(tally, seconds)
    sys.exit(1 if tally.failed else 0)


def _as_json(tally: FaultResults, seconds: float) -> dict[str, Any]:
    return {
        "runs": tally.runs,
        "seconds": round(seconds, 2),
        "ends": [
            {"workflow": workflow, "layout": layout, "kind": kind, **ends}
            for (workflow, layout, kind), ends in tally.ends.items()
        ],
        "failed": [
            {"point": blow.point, "name": blow.name, "findings": findings, "replay": blow.replay}
            for blow, findings in tally.failed.items()
        ],
    }


def _tell(blow: FaultCase, *, last: int | None) -> int:
    """Strike a blow and print what happened; returns the exit code."""
    outcome = Everywhere().strike(blow)
    click.echo(
        f"{blow.kind} at point {blow.point} ({blow.name}) of {blow.workflow}, {blow.layout}: {outcome.ends}"
    )
    for finding in outcome.findings:
        click.echo(f"WRONG  {finding}")
    click.echo(timeline(outcome.history, last=last))
    click.echo(f"again: {blow.replay}")
    return 1 if outcome.findings else 0


def _report(tally: FaultResults, seconds: float) -> None:
    for blow in list(tally.failed)[:_SHOWN]:
        _tell(blow, last=100)
    for blow in list(tally.failed)[_SHOWN:]:
        click.echo(f"{blow.name}: {tally.failed[blow][0]}\n  again: {blow.replay}")
    table = Table(title="one fault at every point")
    for title in ("workflow", "processes", "fault", "processed", "undone", "error", "failed"):
        table.add_column(title, justify="left" if title in ("workflow", "processes", "fault") else "right")
    for (workflow, layout, kind), ends in tally.ends.items():
        failures = sum((b.workflow, b.layout, b.kind) == (workflow, layout, kind) for b in tally.failed)
        counts = [str(ends.get(state, 0)) for state in ("processed", "undone", "error")]
        table.add_row(workflow, layout, kind, *counts, str(failures))
    console = Console()
    console.print(table)
    console.print(
        f"{tally.runs} runs in {seconds:.1f} s ({tally.runs / max(seconds, 1e-9):.1f} a second), {len(tally.failed)} failed"
    )


if __name__ == "__main__":
    main()
