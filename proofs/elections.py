"""``python -m proofs.elections``: candidates contend under faults, seed after seed.

A failing seed prints what was wrong and the command that replays it; the exit code is then 1. A run in which the fence had
nothing to refuse proves nothing, and says so.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import click

from proofs.election_world import ElectionOutcome, ElectionWorld
from proofs.quiet import quiet
from proofs.spreading import lumps, spread

COMMAND = "python -m proofs.elections"
MUST_HAPPEN = (
    "term", "write accepted", "stale write refused", "lost message", "repeated message", "pause at an await", "stop", "suspend",
    "kill", "hole", "deaf", "mute", "outage", "step down", "wall", "work that raised",
    "work that stopped after its successor began", "alive message", "coordinator message", "elected message",
)  # fmt: skip
"""What a hundred seeds and more must contain."""
ENOUGH = 100
_CHUNK = 25


@dataclass(slots=True)
class ElectionResults:
    """What a number of seeds came to. ``failed``: what was wrong, by seed."""

    seeds: int = 0
    failed: dict[int, list[str]] = field(default_factory=dict)
    happened: dict[str, int] = field(default_factory=dict)
    virtual: float = 0.0
    steps: int = 0
    longest: float = 0.0

    def add(self, outcome: ElectionOutcome) -> None:
        """Count a world."""
        self.seeds += 1
        if outcome.findings:
            self.failed[outcome.seed] = outcome.findings
        self.virtual += outcome.virtual
        self.steps += outcome.steps
        self.longest = max(self.longest, outcome.leaderless)
        for what, count in outcome.happened.items():
            self.happened[what] = self.happened.get(what, 0) + count

    def merge(self, other: "ElectionResults") -> None:
        """Count what another has counted."""
        self.seeds += other.seeds
        self.failed.update(other.failed)
        self.virtual += other.virtual
        self.steps += other.steps
        self.longest = max(self.longest, other.longest)
        for what, count in other.happened.items():
            self.happened[what] = self.happened.get(what, 0) + count

    def lacking(self) -> list[str]:
        """Return what so many seeds must contain and these do not."""
        return [what for what in MUST_HAPPEN if not self.happened.get(what)] if self.seeds >= ENOUGH else []


def several(seeds: Sequence[int], make: Callable[[int], ElectionWorld] = ElectionWorld) -> ElectionResults:
    """Run these seeds in this process."""
    tally = ElectionResults()
    with quiet():
        for seed in seeds:
            tally.add(make(seed).run())
    return tally


def told(tally: ElectionResults, seconds: float) -> list[str]:
    """Return the report, a line each."""
    head = (
        f"{tally.seeds} seeds, {tally.virtual / 3600:.1f} simulated hours in {seconds:.0f} s, {tally.happened.get('term', 0)} terms; "
        f"longest time without a leader after the last fault {tally.longest:.2f} s"
    )
    lines = [head, ", ".join(f"{what}: {count}" for what, count in sorted(tally.happened.items()))]
    for seed, findings in sorted(tally.failed.items())[:3]:
        lines += [f"seed {seed} failed:", *(f"  {finding}" for finding in findings[:5])]
        lines.append(f"  replay it: {COMMAND} --from {seed} --seeds 1")
    lacking = tally.lacking()
    if lacking:
        lines.append(f"these seeds prove less than they should: there was no {', no '.join(lacking)}")
    lines.append(f"{tally.seeds - len(tally.failed)} passed, {len(tally.failed)} failed")
    return lines


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=300, show_default=True, help="How many worlds.")
@click.option("--from", "first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="How many at a time.")
def main(*, seeds: int, first: int, processes: int) -> None:
    """Let candidates contend for a lease under faults, on virtual time."""
    began, tally = time.perf_counter(), ElectionResults()
    for part in spread(several, lumps(range(first, first + seeds), _CHUNK), processes):
        tally.merge(part)
    for line in told(tally, time.perf_counter() - began):
        click.echo(line)
    sys.exit(1 if tally.failed or tally.lacking() else 0)


if __name__ == "__main__":
    main()
