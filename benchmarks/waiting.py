"""What waiting costs: signals, sleeps and schedules beside DBOS, a million sleepers, floods of signals, tasks that do not wait.

    python -m benchmarks.waiting                        # the whole table, about 20 minutes; leave the machine alone
    python -m benchmarks.waiting --quick                # everything small: does it run at all?
    python -m benchmarks.waiting --only signal flood --stores sqlite
    python -m benchmarks.waiting --json                 # the rows as JSON
    python -m benchmarks.waiting --write                # the table into docs/internals/performance.md, between its marks

``signal``    from a signal to the beginning of the next step, of tasks that are held and of those that sleep; beside DBOS's send and recv
``sleep``     how late a step begins after the moment until which its task sleeps; beside DBOS's sleep
``schedule``  how late the step of a task begins that is scheduled each second; beside DBOS's schedules, which add up to a tenth of the wait
``held``      memory and threads for each task that waits for a signal; beside DBOS's recv
``beside``    plain tasks beside a million sleepers: how much slower, and what a process has more in memory than one on an empty store
``drain``     a million sleepers that are due at one moment, and whether lower priorities overtake higher ones
``flood``     signals to 100,000 sleepers, all sent before 1, 2 or 4 processes with Schedulers begin
``lanes``     tasks of one step that wait to be claimed, a million in 100,000 lanes, beside as many without lanes, in turns
``pairs``     tasks that do not wait, against another commit: ``benchmarks.pairs``

Each entry is a process of its own on a store of its own; the entries of a workload take turns. DBOS is installed as for ``make bench``,
and the better of its two modes counts. The last columns show the target, and whether it is met.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Final

from benchmarks import crowded_lanes, sleepers
from benchmarks.environments import ROOT
from benchmarks.plan import Entry, Row, Store
from benchmarks.plan import Sizes as CellSizes
from benchmarks.running import FailedError, Ground, machine
from benchmarks.table import lines

WORKLOADS: Final = ("signal", "sleep", "schedule", "held", "beside", "drain", "flood", "lanes", "pairs")
STORES: Final[tuple[Store, ...]] = ("sqlite", "postgres")
PAGE: Final = ROOT / "docs/internals/performance.md"
BEGIN: Final = "<!-- waiting: begin -->"
END: Final = "<!-- waiting: end -->"
"""The marks between which the page has the table."""
_IN_LANE: Final = 10
"""Tasks in a lane, on average."""
_BARS: Final = {"sqlite": 1 / 50, "postgres": 0.35}
"""How long a signal may take, as a share of DBOS's time."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything."""

    rounds: int = 2
    signals: int = 120
    sleeps: int = 40
    ticks: int = 15
    waiters: int = 100
    sleepers: int = 1_000_000
    plain: int = 5_000
    pairs: int = 7
    flood: int = 100_000
    slices: int = 16
    queued: int = 1_000_000
    turns: int = 10


QUICK: Final = Sizes(1, 40, 20, 4, 20, 5_000, 1_000, 3, 2_000, 4, 200_000, 6)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table. ``bar``: the target; ``is_met``: None where there is none."""

    what: str
    store: str
    makegood: str
    dbos: str = ""
    bar: str = ""
    is_met: bool | None = None


class Bench:
    """One run."""

    def __init__(self, ground: Ground, sizes: Sizes, stores: tuple[Store, ...], base: str) -> None:
        self.lines: list[Line] = []
        self.reasons: list[str] = []
        """Why something was not measured."""
        self._ground = ground
        self._sizes = sizes
        self._stores = stores
        self._base = base
        self._number = 0

    def run(self, workload: str) -> None:
        """Measure a workload on each store."""
        if workload == "pairs":
            self._compare()
            return
        for store in self._stores:
            sys.stderr.write(f"{workload}, {store}\n")
            if workload in ("beside", "drain"):
                self._million(store, workload)
            else:
                getattr(self, f"_{workload}")(store)

    # -- beside DBOS -----------------------------------------------------------------------------------------

    def _entries(
        self, row: Row, store: Store, peers: tuple[str, ...], rounds: int = 1
    ) -> dict[str, dict[str, float]]:
        """Return the medians of each peer's figures, which take turns."""
        results: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
        for number in range(rounds):
            turn = number % len(peers)
            for peer in (*peers[turn:], *peers[:turn]):
                try:
                    results[peer].append(self._ground.run(row, Entry(peer, store)))
                except FailedError as failure:
                    self.reasons.append(f"{row.workload}, {peer} on {store}: {failure}")
        return {
            peer: {
                name: statistics.median(each[name] for each in figures)
                for name, value in figures[0].items()
                if isinstance(value, int | float)
            }
            for peer, figures in results.items()
            if figures
        }

    def _late(self, row: Row, store: Store, title: str) -> None:
        figures = self._entries(row, store, ("makegood_waits", "dbos_waits"))
        self.lines.append(
            Line(title, store, _times(figures.get("makegood_waits")), _times(figures.get("dbos_waits")))
        )

    def _signal(self, store: Store) -> None:
        row = Row("signal", 1, 1, self._sizes.signals)
        peers = ("makegood_waits-asleep", "dbos_waits", "makegood_waits-held", "dbos_waits-async")
        figures = self._entries(row, store, peers, self._sizes.rounds)
        modes = [figures[peer] for peer in ("dbos_waits", "dbos_waits-async") if peer in figures]
        best = min(modes, key=lambda mode: mode["p50_ms"], default=None)
        for peer in ("makegood_waits-asleep", "makegood_waits-held"):
            mine, state = figures.get(peer), peer.partition("-")[2]
            ratio = mine["p50_ms"] / best["p50_ms"] if mine and best else None
            bar = _BARS[store]
            self.lines.append(
                Line(
                    f"signal to next step, {state}: p50, p99", store, _times(mine), _times(best),
                    "" if ratio is None else f"{ratio:.3f} of DBOS's, at most {bar:g}",
                    None if ratio is None else ratio <= bar,
                )
            )  # fmt: skip

    def _sleep(self, store: Store) -> None:
        self._late(Row("sleep", 1, 1, self._sizes.sleeps), store, "a sleep until a moment, late by: p50, p99")

    def _schedule(self, store: Store) -> None:
        self._late(
            Row("schedule", 1, 1, self._sizes.ticks), store, "a cron text of each second, late by: p50, p99"
        )

    def _held(self, store: Store) -> None:
        row = Row("held", 1, 1, self._sizes.waiters)
        figures = self._entries(row, store, ("makegood_waits", "dbos_waits"))
        mine, theirs = (
            f"{of['kib_each']:.0f} KiB, {of['threads_each']:.2f} threads" if of else ""
            for of in (figures.get("makegood_waits"), figures.get("dbos_waits"))
        )
        self.lines.append(Line(f"each of {self._sizes.waiters} that wait for a signal", store, mine, theirs))

    # -- sleepers by the million -----------------------------------------------------------------------------

    @contextmanager
    def _database(self, store: Store) -> Iterator[str]:
        """Yield the URL of an empty store, which is removed afterwards."""
        self._number += 1
        if store == "postgres":
            server, name = self._ground.server(), f"waiting{self._number}"
            try:
                yield server.create_database(name)
            finally:
                server.drop_database(name)
        else:
            with tempfile.TemporaryDirectory(prefix="makegood-waiting-") as folder:
                yield f"sqlite:///{folder}/store.db"

    def _million(self, store: Store, workload: str) -> None:
        count = self._sizes.sleepers
        with self._database(store) as url, self._database(store) as empty:
            asyncio.run(sleepers.fill(url, "slept", count))
            if workload == "beside":
                asyncio.run(sleepers.fill(empty, "slept", 0))
                ratio, mib = asyncio.run(self._slower(url, empty))
                self.lines += [
                    Line(f"plain tasks beside {count:,} sleepers", store, f"{ratio:.3f} times slower", "", "at most 1.05", ratio <= 1.05),
                    Line(f"memory beside {count:,} sleepers", store, f"{mib:+.2f} MiB", "", "at most 1 MiB", mib <= 1.0),
                ]  # fmt: skip
                return
            figures = asyncio.run(sleepers.drained(url, count, 1, lambda url: sleepers.make_due(url, 0.0)))
            rate, overtaken = figures["rate"], figures["overtaken"]
            self.lines.append(
                Line(
                    f"{count:,} due at one moment", store, f"{rate:,.0f} tasks/s, {figures['cpu_us']:.0f} µs of CPU each; {overtaken:,.0f} overtaken",
                    "", "at least 5,000, at most 1,000 overtaken", rate >= 5_000 and overtaken <= 1_000,
                )
            )  # fmt: skip

    async def _slower(self, url: str, empty: str) -> tuple[float, float]:
        """Return how much slower plain tasks are on a store, and the MiB that its process has more, than on an empty one."""
        crew = [await sleepers.Process.on(each) for each in (empty, url)]
        try:
            for process in crew:
                await process.ask("start")
                await process.ask(f"rate {self._sizes.plain}")  # to warm up
            ratios = []
            for number in range(self._sizes.pairs):
                first = number % 2
                rates = {
                    n: (await crew[n].ask(f"rate {self._sizes.plain}"))["rate"] for n in (first, 1 - first)
                }
                ratios.append(rates[0] / rates[1])
            memory = [(await process.ask("memory"))["mib"] for process in crew]
        finally:
            for process in crew:
                await process.close()
        return statistics.median(ratios), memory[1] - memory[0]

    def _flood(self, store: Store) -> None:
        rates: dict[int, float] = {}
        for processes in (1, 2, 4):
            with self._database(store) as url:
                asyncio.run(sleepers.fill(url, "asked", self._sizes.flood))
                figures = asyncio.run(
                    sleepers.drained(url, self._sizes.flood, processes, sleepers.signal_all)
                )
            rates[processes] = figures["rate"]
            is_last = processes == 4
            self.lines.append(
                Line(
                    f"{self._sizes.flood:,} signals to sleepers, {processes} {'processes' if processes > 1 else 'process'}", store,
                    f"{figures['rate']:,.0f} tasks/s, {figures['cpu_us']:.0f} µs of CPU each", "",
                    f"{rates[4] / rates[1]:.2f} of one's rate, at least 1" if is_last else "", rates[4] >= rates[1] if is_last else None,
                )
            )  # fmt: skip

    def _lanes(self, store: Store) -> None:
        count = self._sizes.queued
        lanes = count // _IN_LANE
        with self._database(store) as with_lanes, self._database(store) as without:
            asyncio.run(crowded_lanes.fill(with_lanes, count, lanes))
            asyncio.run(crowded_lanes.fill(without, count, 0))
            figures = asyncio.run(crowded_lanes.compared(with_lanes, without, self._sizes.turns))
        self.lines.append(
            Line(
                f"{count:,} waiting tasks in {lanes:,} lanes, beside as many without", store,
                f"{figures['with']:,.0f} tasks/s beside {figures['without']:,.0f}; {figures['cpu_us']:.0f} µs of CPU each beside {figures['cpu_us_without']:.0f}",
                "", f"{figures['ratio']:.2f} of the rate without lanes, at least 0.9", figures["ratio"] >= 0.9,
            )
        )  # fmt: skip

    # -- tasks that do not wait ------------------------------------------------------------------------------

    def _compare(self) -> None:
        sys.stderr.write("pairs\n")
        arguments = [
            "--json",
            "--slices",
            str(self._sizes.slices),
            "--seconds",
            "1",
            "--stores",
            *self._stores,
        ]
        process = subprocess.run(
            [sys.executable, "-m", "benchmarks.pairs", self._base, *arguments],
            cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        results = json.loads(process.stdout)
        for store in self._stores:
            for name, title in (("cpu", "CPU a step"), ("rate", "steps/s")):
                ratio = results[store][name]
                self.lines.append(
                    Line(
                        f"no waits: {title}", store, f"{ratio['median']:.3f} times as good as at {self._base} ({ratio['low']:.2f} to {ratio['high']:.2f})",
                        "", "at least 0.98", ratio["median"] >= 0.98,
                    )
                )  # fmt: skip


def _times(figures: dict[str, float] | None) -> str:
    return f"{figures['p50_ms']:.1f} ms, {figures['p99_ms']:.1f} ms" if figures else ""


def text(bench: Bench) -> str:
    """Return the rows as a Markdown table, and below it what was not measured."""
    marks = {None: "", True: "yes", False: "**no**"}
    body = [
        [line.what, line.store, line.makegood, line.dbos, line.bar, marks[line.is_met]]
        for line in bench.lines
    ]
    head = ["", "store", "makegood", "DBOS 3.4", "target", "met"]
    rows = lines(head, body)
    return "\n".join([*rows, *(f"- NOT MEASURED: {reason}" for reason in bench.reasons)])


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.waiting", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=WORKLOADS, metavar="WORKLOAD")
    parser.add_argument("--stores", nargs="+", choices=STORES, default=STORES)
    parser.add_argument("--quick", action="store_true", help="everything small")
    parser.add_argument("--base", default="233b58f3", help="the commit for pairs: the last one without waits")
    parser.add_argument("--sleepers", type=int, help="for beside and drain")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    options = parser.parse_args()
    sizes = QUICK if options.quick else Sizes()
    if options.sleepers:
        sizes = replace(sizes, sleepers=options.sleepers)
    with Ground(CellSizes()) as ground:
        about = machine(ground, postgres="postgres" in options.stores)
        bench = Bench(ground, sizes, tuple(options.stores), options.base)
        for workload in options.only:
            bench.run(workload)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        machine_line = ", ".join(f"{name} {value}" for name, value in about.items())
        table = f"{BEGIN}\n\n{text(bench)}\n\n{machine_line}.\n\n{END}"
        PAGE.write_text(f"{before}{table}{after}", encoding="utf-8")
    if options.json:
        rows = [asdict(line) for line in bench.lines]
        print(
            json.dumps(
                {
                    "machine": about,
                    "sizes": asdict(sizes),
                    "rows": rows,
                    "not_measured": bench.reasons,
                },
                indent=1,
            )
        )
    else:
        print(", ".join(f"{name} {value}" for name, value in about.items()), "\n", text(bench), sep="\n")


if __name__ == "__main__":
    main()
