"""How long a group is without a leader after a fault, and what the old leader still does, on each lease store.

    .venv/bin/python -m benchmarks.election --stores sqlite,postgresql --runs 30 --ttl 2s

Real processes: three candidates contend, the leader writes a unit of work every 20 ms to a resource that refuses an epoch lower
than one that it has seen. A fault befalls the leader at a random moment: SIGKILL; SIGTERM, with work that takes a fifth of the ttl to
wind down; SIGSTOP until the successor has begun, then SIGCONT; a TCP forwarder between leader and store that swallows all bytes. The
same faults befall a port of the loop of the pattern's best-known sample, its timings scaled by ttl / 15 s; to have its say it is
watched for longer.

``bound`` is what theory allows, without latency: the lease (at SIGTERM the wind-down instead) and the longest pause between two
tries; where observers judge, another pause, since they see a renewal only when they look. ``overlap``: writes that the old leader made
after its successor's first while it believed that it leads. ``stale``: all that it made after it; ``refused`` by the resource. The
table goes to stdout; with ``--json FILE`` the figures go there too. Exit code 1: an Election overlapped, a stale write of it was
accepted, or nobody took over.
"""

import asyncio
import json
import logging
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from makegood.base.durations import seconds
from makegood.errors import MakegoodError
from proofs.election_groups import FAULTS, Fault, Group, Run, bound
from proofs.private_server import PrivateServer
from proofs.servers import LeaseServer

STORES = ("sqlite", "postgresql", "redis", "nats", "etcd", "azurite", "zookeeper")
SHORTEST = {"azurite": 15.0, "etcd": 2.0}
"""Seconds that a lease must last there."""
OBSERVED = frozenset({"nats", "zookeeper"})
"""Where no clock but the observers' judges a lease."""
GRANULE = {"etcd": 1.0}
"""Seconds by which a server may notice late that a lease has run out."""
WATCH = 95 / 15
"""For how many ttl the sample is watched: as long as in the measurement that found it still at work."""
SAMPLE_BOUND = 35 / 15
LATE = 5.0
"""Seconds by which a busy machine may be late before it counts as no take-over."""
IN_A_ROW = 5
"""Runs that one group of processes makes before another one takes its place."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A line of the table before it is measured."""

    store: str
    url: str
    loop: str
    fault: Fault
    ttl: float

    @property
    def bound(self) -> float:
        """Seconds that theory allows."""
        if self.loop == "sample":
            return SAMPLE_BOUND * self.ttl
        looks = (
            1.5 * self.ttl / 3 + 0.02 * self.ttl if self.store in OBSERVED and self.fault != "SIGTERM" else 0
        )
        late = GRANULE.get(self.store, 0) if self.fault != "SIGTERM" else 0
        return bound(self.ttl, self.fault, self.ttl / 5) + looks + late

    @property
    def watch(self) -> float:
        """Seconds for which a run is watched after its fault."""
        return max(
            self.bound + LATE, WATCH * self.ttl if self.loop == "sample" and self.fault == "black hole" else 0
        )


@dataclass(slots=True)
class Row:
    """A line of the table. Seconds; counts over all runs. ``none``: runs in which nobody took over."""

    store: str
    loop: str
    fault: str
    ttl: float
    runs: int
    p50: float | None
    p95: float | None
    max: float | None
    bound: float
    none: int
    overlap: int
    stale: int
    refused: int
    accepted: int
    longest: float
    over: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, cell: Cell, runs: list[Run]) -> "Row":
        """Return what runs came to."""
        over = sorted(run.over for run in runs if run.over is not None)
        return cls(
            cell.store, cell.loop, cell.fault, cell.ttl, len(runs),
            round(median(over), 3) if over else None,
            round(over[max(0, -(-len(over) * 95 // 100) - 1)], 3) if over else None,
            round(over[-1], 3) if over else None,
            round(cell.bound, 3),
            len(runs) - len(over),
            sum(run.overlaps for run in runs), sum(run.stale for run in runs), sum(run.refused for run in runs),
            sum(run.accepted for run in runs), round(max(run.longest for run in runs), 3),
            [round(value, 3) for value in over],
        )  # fmt: skip

    def wrong(self) -> str:
        """Return what an Election must never do and did, "" if nothing."""
        if self.loop == "sample":
            return ""
        faults = {
            "overlapping writes": self.overlap,
            "stale writes accepted": self.accepted,
            "runs without a successor": self.none,
        }
        text = ", ".join(f"{count} {what}" for what, count in faults.items() if count)
        return f"{self.store}, {self.fault}: {text}" if text else ""


@contextmanager
def place(store: str) -> Iterator[str]:
    """Start a store; yield its URL. Raises ``MakegoodError`` that says what is missing."""
    if store == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 'leases.db'}"
    elif store == "postgresql":
        with PrivateServer() as server:
            yield server.url
    else:
        with LeaseServer(store) as server:  # type: ignore[arg-type]  # click has seen to it
            yield server.url


def cells_of(store: str, url: str, ttl: float, faults: list[Fault], *, sample: bool) -> list[Cell]:
    """Return what is measured on a store: a file has no network before it that could swallow anything."""
    lasts = max(ttl, SHORTEST.get(store, 0.0))
    loops = ("makegood", "sample") if sample else ("makegood",)
    return [
        Cell(store, url, loop, fault, lasts)
        for loop in loops
        for fault in faults
        if fault != "black hole" or store != "sqlite"
    ]


async def measured(
    cells: list[Cell], runs: int, abreast: int, seed: int, advance: Callable[[], object]
) -> list[Row]:
    """Measure all cells, ``abreast`` groups at a time."""
    places = asyncio.Semaphore(abreast)

    async def group(cell: Cell, number: int, count: int) -> list[Run]:
        async with places:
            rng = random.Random(f"{seed} {cell.store} {cell.loop} {cell.fault} {number}")
            name = f"{cell.loop} {cell.fault} {number}"
            runs = []
            async with Group(cell.url, name, ttl=cell.ttl, rng=rng, loop=cell.loop) as candidates:
                for _ in range(count):
                    runs.append(await candidates.run(cell.fault, watch=cell.watch))
                    advance()
            return runs

    async def row(cell: Cell) -> Row:
        counts = [min(IN_A_ROW, runs - start) for start in range(0, runs, IN_A_ROW)]
        async with asyncio.TaskGroup() as tasks:
            groups = [tasks.create_task(group(cell, number, count)) for number, count in enumerate(counts)]
        return Row.of(cell, [run for task in groups for run in task.result()])

    async with asyncio.TaskGroup() as tasks:
        rows = [tasks.create_task(row(cell)) for cell in cells]
    return [task.result() for task in rows]


def table(rows: list[Row]) -> str:
    """Return the figures as a table in Markdown, as the documentation has it."""

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    lines = [
        "| store | ttl | fault | loop | runs | p50 | p95 | max | bound | none | overlap | stale | refused | longest |",
        "|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        refusals = str(row.refused) if row.loop != "sample" else "no epoch"
        lines.append(
            f"| {row.store} | {row.ttl:g} | {row.fault} | {row.loop} | {row.runs} | {number(row.p50)} | {number(row.p95)} | "
            f"{number(row.max)} | {row.bound:.2f} | {row.none} | {row.overlap} | {row.stale} | {refusals} | {row.longest:.2f} |"
        )
    return "\n".join(lines)


def shown(rows: list[Row]) -> None:
    """Print the table: drawn for a terminal, as Markdown for a file or a pipe."""
    if not sys.stdout.isatty():
        click.echo(table(rows))
        return
    head, _, *lines = table(rows).splitlines()
    rich_table = Table(*(column.strip() for column in head.strip("|").split("|")))
    for line in lines:
        rich_table.add_row(*(value.strip() for value in line.strip("|").split("|")))
    Console().print(rich_table)


def named(names: tuple[str, ...], text: str, what: str) -> list[Any]:
    """Return the parts of a text, each of which must be known."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [part for part in parts if part not in names]
    if unknown:
        raise click.UsageError(f"no such {what}: {', '.join(unknown)}; there are {', '.join(names)}")
    return parts


@click.command(help=__doc__.partition("\n")[0])
@click.option("--stores", default=",".join(STORES), show_default=True, help="Which, separated by commas.")
@click.option("--faults", default=",".join(FAULTS), show_default=True, help="Which, separated by commas.")
@click.option("--runs", type=click.IntRange(1), default=30, show_default=True, help="Faults of each kind.")
@click.option(
    "--ttl",
    default="2s",
    show_default=True,
    help="How long a lease lasts; longer where the store asks for it.",
)
@click.option(
    "--sample-on",
    default="postgresql",
    show_default=True,
    help='The store for the sample\'s loop; "" for none.',
)
@click.option(
    "--abreast", type=click.IntRange(1), default=4, show_default=True, help="Groups of processes at a time."
)
@click.option("--seed", type=int, default=1, show_default=True, help="When the faults come.")
@click.option("--json", "to", type=click.Path(path_type=Path), help="Where the figures go as JSON.")
def main(
    *, stores: str, faults: str, runs: int, ttl: str, sample_on: str, abreast: int, seed: int, to: Path | None
) -> None:
    """Measure, print, and fail when an Election did what it never may."""
    logging.disable(logging.WARNING)
    cells: list[Cell] = []
    kinds: list[Fault] = named(FAULTS, faults, "fault")
    with ExitStack() as stack:
        for store in named(STORES, stores, "store"):
            try:
                url = stack.enter_context(place(store))
            except MakegoodError as missing:
                click.echo(f"{store} is NOT measured: {missing}", err=True)
                continue
            cells += cells_of(
                store, url, seconds(ttl, name="ttl", least=0.5), kinds, sample=store == sample_on
            )
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("faults", total=len(cells) * runs)
            rows = asyncio.run(measured(cells, runs, abreast, seed, partial(progress.advance, bar)))
    shown(rows)
    if to is not None:
        to.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    wrong = [row.wrong() for row in rows if row.wrong()]
    for line in wrong:
        click.echo(f"wrong: {line}", err=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
