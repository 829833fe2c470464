"""``make bench``: makegood beside its peers and beside the bare floor, in one run on this machine.

    make bench                                        # everything, medians of three rounds; takes hours: leave the machine alone
    make bench QUICK=1                                # everything small, once: does it run at all?
    make bench ARGS="--only throughput --peers dbos"  # makegood and the floor take part always

It prints a table and writes ``results.json``, ``results.md`` and ``results.svg``. What cannot be measured here is a row that says why.
What the figures mean, and what each peer makes durable and when: docs/internals/performance.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Self

from benchmarks import chart, table
from benchmarks.environments import FOLDER
from benchmarks.figures import Result
from benchmarks.plan import PEERS, QUICK, WORKLOADS, Entry, Row, Sizes, entries, rows
from benchmarks.running import FailedError, Ground, machine

_COUNTED = ("throughput", "remote", "undo")
_NARROW = 40


def _names(names: Sequence[str]) -> "type[_Names]":
    """Return the type of an option that takes some of these names, parted by commas."""
    return type("_Of", (_Names,), {"known": tuple(names)})


class _Names(tuple[str, ...]):
    known: tuple[str, ...] = ()
    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        names = [name for name in text.replace(",", " ").split() if name]
        wrong = [name for name in names if name not in cls.known]
        if wrong or not names:
            raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(cls.known)}")
        return super().__new__(cls, names)


def _many(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace(",", " ").split())


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    argument_parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    argument_parser.add_argument("--quick", action="store_true", help="everything small, one round")
    argument_parser.add_argument(
        "--only",
        type=_names(list(WORKLOADS)),
        default=tuple(WORKLOADS),
        metavar="WORKLOADS",
        help=", ".join(WORKLOADS),
    )
    argument_parser.add_argument(
        "--peers", type=_names(list(PEERS)), default=tuple(PEERS), metavar="PEERS", help=", ".join(PEERS)
    )
    argument_parser.add_argument(
        "--stores",
        type=_names(("sqlite", "postgres")),
        default=("sqlite", "postgres"),
        metavar="STORES",
        help="sqlite, postgres",
    )
    argument_parser.add_argument(
        "--out", type=Path, default=FOLDER / "results", help="folder for JSON, Markdown and SVG"
    )
    for one in fields(Sizes):
        kind = _many if one.name in {"steps", "flight"} else float if one.name == "seconds" else int
        argument_parser.add_argument(
            *(["--concurrency"] if one.name == "flight" else []),
            f"--{one.name}",
            dest=one.name,
            type=kind,
            default=None,
            help=f"default {one.default}, quick {getattr(QUICK, one.name)}",
        )
    return argument_parser


@dataclass(slots=True)
class Progress:
    """A bar on stderr, one line that is written over; on no terminal, a line each."""

    total: int
    done: int = 0
    begun: float = field(default_factory=time.monotonic)

    def step(self, what: str) -> None:
        """Say what is measured now."""
        share = self.done / max(1, self.total)
        left = (time.monotonic() - self.begun) / share * (1 - share) if share else 0.0
        bars = round(share * 24)
        ahead = f"{left / 60:.0f} min left" if left > 90 else f"{left:.0f} s left" if left else ""
        line = f"[{'#' * bars}{'.' * (24 - bars)}] {self.done}/{self.total} {what}  {ahead}"
        sys.stderr.write(f"\r\x1b[2K{line[:150]}" if sys.stderr.isatty() else line + "\n")
        sys.stderr.flush()
        self.done += 1

    def end(self) -> None:
        """Leave the line."""
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K")


def measure(
    ground: Ground,
    plan: Sequence[Row],
    takers: Sequence[Entry],
    progress: Progress,
    save: Callable[[Sequence[Result]], object],
) -> list[Result]:
    """Measure every cell: its entries in turn, round after round, another one first each time; then count its commits.

    ``save`` is given what there is after each cell, so that a run that is broken off has not been for nothing.
    """
    results = []
    for row in plan:
        mine = [Result(row, entry) for entry in takers]
        results += mine
        for number in range(ground.sizes.rounds):
            at = number % len(mine)
            for result in (*mine[at:], *mine[:at]):
                _once(ground, result, progress, f"{row.title}: {result.entry.title}, round {number + 1}")
        for result in mine:
            if row.workload in _COUNTED and result.entry.store != "own":
                _once(ground, result, progress, f"{row.title}: {result.entry.title}, counting", count=True)
        save(results)
    return results


def _once(ground: Ground, result: Result, progress: Progress, what: str, *, count: bool = False) -> None:
    progress.step(what)
    if result.why:
        return
    try:
        figures = ground.run(result.row, result.entry, count=count)
    except FailedError as why:
        result.why = str(why)
        return
    if count:
        result.counts = {name: value for name, value in figures.items() if name.endswith("_per_task")}
    else:
        result.rounds.append(figures)


def write(folder: Path, results: "Sequence[Result]", about: dict[str, str], sizes: Sizes) -> str:
    """Write JSON, Markdown and SVG; return the text."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"{', '.join(f'{name} {value}' for name, value in about.items())}\n\n{table.whole(results)}"
    document = {
        "machine": about,
        "sizes": asdict(sizes),
        "results": [
            {**asdict(r.row), **asdict(r.entry), "figures": r.figures, "rounds": r.rounds, "why": r.why}
            for r in results
        ],
    }
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / "results.md").write_text(text, encoding="utf-8")
    (folder / "results.svg").write_text(chart.svg("makegood and its peers", results), encoding="utf-8")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; returns 1 when makegood itself could not be measured, 2 where nothing can."""
    options = parser().parse_args(arguments)
    if not Path("/proc/self/smaps_rollup").exists():
        sys.stderr.write(
            "makegood: make bench needs Linux: it reads the costs of processes from /proc; run it there or in a container\n"
        )
        return 2
    overrides = {
        one.name: value for one in fields(Sizes) if (value := getattr(options, one.name)) is not None
    }
    sizes = replace(QUICK if options.quick else Sizes(), **overrides)
    peers = tuple(peer for peer in PEERS if peer in {"floor", "makegood", *options.peers})
    takers = entries(peers, options.stores)
    for peer in set(peers) - {entry.peer for entry in takers}:
        sys.stderr.write(
            f"makegood: {peer} takes no part: it runs on none of the stores {', '.join(options.stores)}\n"
        )
    plan = list(rows(sizes, options.only))
    count_runs = sum(row.workload in _COUNTED for row in plan) * sum(entry.store != "own" for entry in takers)
    progress = Progress(len(plan) * len(takers) * sizes.rounds + count_runs)
    with Ground(sizes) as ground:
        about = machine(ground, postgres="postgres" in options.stores)
        results = measure(
            ground, plan, takers, progress, lambda results: write(options.out, results, about, sizes)
        )
    progress.end()
    print(write(options.out, results, about, sizes))
    sys.stderr.write(f"written: {options.out}/results.json, results.md, results.svg\n")
    return 1 if any(r.entry.peer == "makegood" and not r.rounds for r in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
