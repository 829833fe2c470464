"""``python -m proofs.seeds``: storms over the real engine, seed after seed.

Each seed is a world of its own. A failing one prints its seed, its options, what is wrong, a timeline, and
the one command that replays it; the exit code is then 1. A run in which something never happened proves
nothing, and its output says so.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Any

import click
from rich.console import Console

from makegood.testing.checker import timeline
from makegood.testing.simulator.swarm import Swarm
from makegood.testing.simulator.world import Outcome
from makegood.testing.simulator.world_files import Grounds
from proofs.quiet import quiet
from proofs.run_counts import RunCounts
from proofs.shrinking import shrunk
from proofs.spreading import bar, lumps, spread
from proofs.storms.shop import ONCE, SERVICES_OF_STORM, orders, storm_app
from proofs.storms.swarm import StormSwarm, drawn
from proofs.storms.world import Orders, StormWorld

COMMAND = "python -m proofs.seeds"
ENOUGH = 100
"""From this number of seeds on, a run must contain everything that can happen."""
_SHOWN = 3
_LUMP = 10
_LINES = 150


class Storms:
    """Makes world after world over the same workflows: ``Storms().run(7)``. ``only``: submit only this
    workflow.
    """

    def __init__(self, only: str | None = None) -> None:
        self._apps = {breakers: storm_app(breakers=breakers) for breakers in (False, True)}
        self._grounds = Grounds()
        self._orders: Orders = orders if only is None else partial(orders, only=only)

    def world(self, seed: int, swarm: StormSwarm | None = None, **more: Any) -> StormWorld:
        """Return the world of a seed, not yet started; ``more``: further arguments of ``StormWorld``."""
        swarm = swarm or drawn(seed)
        app = self._apps[swarm.around is not None and swarm.around.guarded]
        return StormWorld(
            seed, app=app, orders=self._orders, services=SERVICES_OF_STORM, once=ONCE, swarm=swarm,
            grounds=self._grounds, **more,
        )  # fmt: skip

    def run(self, seed: int, swarm: StormSwarm | None = None, **more: Any) -> Outcome:
        """Return how the world of a seed ended."""
        return self.world(seed, swarm, **more).run()


@dataclass(slots=True)
class SeedResults:
    """Counts over seeds."""

    batch: RunCounts = field(default_factory=RunCounts)
    ends: dict[str, int] = field(default_factory=dict)
    failed: dict[int, list[str]] = field(default_factory=dict)
    """What is wrong, by seed."""
    virtual: float = 0.0
    steps: int = 0
    points: int = 0
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Count a world."""
        self.batch.add(
            outcome.history, outcome.report, kinds=enabled(outcome.swarm), label=f"seed {outcome.seed}"
        )
        for state, count in outcome.ends.items():
            self.ends[state] = self.ends.get(state, 0) + count
        if outcome.findings:
            self.failed[outcome.seed] = outcome.findings
        self.virtual += outcome.virtual
        self.steps += outcome.steps
        self.points += outcome.points

    def merge(self, other: "SeedResults") -> None:
        """Add another tally's counts."""
        self.batch.merge(other.batch)
        for state, count in other.ends.items():
            self.ends[state] = self.ends.get(state, 0) + count
        self.failed.update(other.failed)
        self.virtual += other.virtual
        self.steps += other.steps
        self.points += other.points

    def lacking(self) -> list[str]:
        """Return what many seeds must contain and these do not; few seeds need not contain everything."""
        return self.batch.lacking() if self.batch.runs >= ENOUGH else []

    def as_json(self) -> dict[str, Any]:
        """Return the counts as plain values."""
        runs, seconds = self.batch.runs, max(self.seconds, 1e-9)
        return {
            "seeds": runs, "failed": {str(seed): findings for seed, findings in self.failed.items()}, "lacking": self.lacking(),
            "ends": self.ends, "faults": dict(sorted(self.batch.faults.items())), "happened": dict(self.batch.happened),
            "looked at": dict(self.batch.exercised), "fault points": self.points, "virtual seconds": round(self.virtual, 1),
            "seconds": round(self.seconds, 2), "seeds per second": round(runs / seconds, 2),
            "times real time": round(self.virtual / seconds, 1),
        }  # fmt: skip


def enabled(swarm: Swarm) -> Iterable[str]:
    """Return the kinds of faults that a world had switched on and that some seed must therefore have met."""
    exceptions = {"outage": "store down", "operator": None, "spell": None}
    for kind in (*swarm.points, *swarm.messages, *swarm.services, *swarm.rates):
        what = exceptions.get(kind, kind)
        if what is not None:
            yield what


@cache
def _storms(only: str | None) -> Storms:
    """Return this process's worlds over a workflow.

    They are kept: to declare all workflows and create an empty store takes a third of a seed's time.
    """
    return Storms(only)


def several(seeds: Sequence[int], only: str | None = None) -> SeedResults:
    """Run these seeds in this process."""
    storms, tally = _storms(only), SeedResults()
    with quiet():
        for seed in seeds:
            tally.add(storms.run(seed))
    return tally


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seeds", default=300, show_default=True, help="How many seeds to run.")
@click.option("--from", "first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", "one", type=int, help="Run this seed alone.")
@click.option("--trace", is_flag=True, help="With --seed: print everything that happened.")
@click.option(
    "--shrink", is_flag=True, help="With --seed: look for the few faults and orders that are needed."
)
@click.option("--workflow", "only", help="Submit this workflow alone, such as place_order.")
@click.option(
    "--processes", default=1, show_default=True, type=click.IntRange(1), help="Processes to run seeds in."
)
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def main(  # click passes all by name
    *,
    seeds: int,
    first: int,
    one: int | None,
    trace: bool,
    shrink: bool,
    only: str | None,
    processes: int,
    as_json: bool,
) -> None:
    """Let storms go over the real engine, from seed to seed; exit code 1 if a seed finds something."""
    logging.disable(logging.CRITICAL)
    if shrink and one is None:
        raise click.UsageError("--shrink needs the seed to shrink: --seed N --shrink")
    if one is not None and shrink:
        sys.exit(_shrink(one, only, trace=trace, as_json=as_json))
    if one is not None:
        sys.exit(_single(one, only, trace=trace, as_json=as_json))
    tally = SeedResults()
    began = time.perf_counter()
    with bar("storms", seeds, quiet=as_json) as more:
        for part in spread(partial(several, only=only), lumps(range(first, first + seeds), _LUMP), processes):
            tally.merge(part)
            more(part.batch.runs, f"{len(tally.failed)} failed" if tally.failed else "")
    tally.seconds = time.perf_counter() - began
    if as_json:
        click.echo(json.dumps(tally.as_json(), indent=2))
    else:
        _report(tally, only)
    sys.exit(1 if tally.failed or tally.lacking() else 0)


def _single(seed: int, only: str | None, *, trace: bool, as_json: bool) -> int:
    outcome = Storms(only).run(seed)
    if as_json:
        document = {
            "seed": seed, "options": outcome.swarm.as_json(), "findings": outcome.findings, "ends": outcome.ends,
            "faults": outcome.faults, "fault points": outcome.points, "virtual seconds": outcome.virtual,
            "history": outcome.history.digest(),
        }  # fmt: skip
        if trace:
            document["events"] = [asdict(event) for event in outcome.history.events]
        click.echo(json.dumps(document, indent=2, default=str))
    else:
        _tell(outcome, only, lines=None if trace else 0)
    return 1 if outcome.findings else 0


def _shrink(seed: int, only: str | None, *, trace: bool, as_json: bool) -> int:
    """Print the fewest of a seed's faults and orders that still violate the same invariants; exit code 1 if
    it fails at all.
    """
    storms = Storms(only)
    minimum = shrunk(partial(storms.world, seed))
    if minimum is None:
        click.echo(
            json.dumps({"seed": seed, "findings": []}) if as_json else f"seed {seed} finds nothing wrong"
        )
        return 0
    outcome = minimum.outcome
    if as_json:
        document = {
            "seed": seed, "findings": outcome.findings, "needed": [str(blow) for blow in minimum.blows], "of": minimum.whole,
            "runs": minimum.runs,
        }  # fmt: skip
        click.echo(json.dumps(document, indent=2))
        return 1
    for finding in outcome.findings:
        click.echo(f"WRONG  {finding}")
    click.echo(timeline(outcome.history, last=None if trace else _LINES))
    click.echo(
        f"seed {seed} needs {len(minimum.blows)} of {minimum.whole} faults and orders ({minimum.runs} runs):"
    )
    for blow in minimum.blows:
        click.echo(f"  {blow}")
    return 1


def _replay(seed: int, only: str | None) -> str:
    return f"{COMMAND} --seed {seed} --trace" + (f" --workflow {only}" if only else "")


def _tell(outcome: Outcome, only: str | None, *, lines: int | None) -> None:
    click.echo(
        f"seed {outcome.seed}: {outcome.ends}, faults {outcome.faults}, {outcome.virtual:.1f} s of virtual time"
    )
    for name, value in asdict(outcome.swarm).items():
        click.echo(f"  {name:<12} {value}")
    for finding in outcome.findings:
        click.echo(f"WRONG  {finding}")
    if lines is None or (lines and outcome.findings):
        click.echo(timeline(outcome.history, last=lines))
    click.echo(f"history {outcome.history.digest()}; again: {_replay(outcome.seed, only)}")
    if outcome.findings:
        click.echo(f"what of it is needed: {_replay(outcome.seed, only).replace('--trace', '--shrink')}")


def _report(tally: SeedResults, only: str | None) -> None:
    for seed in list(tally.failed)[:_SHOWN]:
        _tell(Storms(only).run(seed), only, lines=_LINES)
    for seed in list(tally.failed)[_SHOWN:]:
        click.echo(f"seed {seed}: {tally.failed[seed][0]}\n  again: {_replay(seed, only)}")
    console = Console()
    for table in tally.batch.tables():
        console.print(table)
    document = tally.as_json()
    console.print(
        f"{document['seeds']} seeds in {document['seconds']} s ({document['seeds per second']} a second), {document['times real time']} times real "
        f"time, {document['fault points']} fault points; tasks {document['ends']}; {len(tally.failed)} seeds failed"
    )
    for text in tally.lacking():
        console.print(f"this run proves too little: {text}")


if __name__ == "__main__":
    main()
