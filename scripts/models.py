"""Search the protocol models of ``models/`` with spin, and compare each variant's verdict with the expected one.

    scripts/models.py                  the quick variants (`make models`)
    scripts/models.py --all            the slow ones too (`make models ALL=1`)
    scripts/models.py --tested         those that `make proof` runs
    scripts/models.py NAME ...         these, the long ones among them
    scripts/models.py --trace NAME     this one; on a violation, what led to it
    scripts/models.py --record ...     write states and seconds into variants.txt, and the table into README.md
    scripts/models.py --table          write the table only

Ends with 0 when every verdict is as expected, with 1 when one is not, with 2 when a name is unknown or spin is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

MODELS = Path(__file__).resolve().parents[1] / "models"
BEGIN, END = "<!-- made by scripts/models.py -->", "<!-- end -->"
PACES = ("quick", "slow", "long")
TOO_LONG = 1800.0
LIVE = "-DLIVE"
"""The flag of a variant that is searched for what never happens, too: its model has an ``ltl`` formula then."""
LARGE = 300_000  # states; below, the compiler would take longer than the search


@dataclass(frozen=True)
class Variant:
    """One line of ``variants.txt``."""

    name: str
    pace: str
    verdict: str
    states: int
    seconds: float
    mutant: str
    what: str
    spec: str
    chapter: str

    @property
    def tested(self) -> bool:
        """Whether ``make proof`` runs it."""
        return self.pace.endswith("*")


@dataclass(frozen=True)
class Found:
    """What a search said: holds, violated or unknown; the assertion that failed, or why there is no verdict."""

    verdict: str
    states: int = 0
    seconds: float = 0.0
    text: str = ""


def read(text: str) -> list[Variant]:
    """Return the variants that a text in the form of ``variants.txt`` lists; raises ``ValueError``."""
    variants: list[Variant] = []
    chapter = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            chapter = line.removeprefix("## ")
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|", 7)]
        if (
            len(parts) != 8
            or parts[1].removesuffix("*") not in PACES
            or parts[2] not in ("holds", "violated")
        ):
            raise ValueError(f"variants.txt:{number}: not a variant: {line}")
        name, pace, verdict, states, seconds, mutant, what, spec = parts
        variants.append(
            Variant(name, pace, verdict, int(states), float(seconds), mutant, what, spec, chapter)
        )
    return variants


def written(text: str, measurements: dict[str, Found]) -> str:
    """Return ``variants.txt`` with the states and seconds that were measured."""
    lines: list[str] = []
    for line in text.splitlines():
        name = line.split("|", 1)[0].strip()
        if name in measurements and not line.startswith("#"):
            parts = line.split("|", 7)
            parts[3], parts[4] = f" {measurements[name].states:<9} ", f" {measurements[name].seconds:<5.3g} "
            line = "|".join(parts)  # noqa: PLW2901 - the line as it is to be written
        lines.append(line)
    return "\n".join(lines) + "\n"


def table(variants: Iterable[Variant]) -> str:
    """Return the Markdown table of README.md."""
    lines = [
        "| variant | rule switched off, or what it shows | verdict | states | seconds | the simulator's mutant |",
        "|---|---|---|---|---|---|",
    ]
    chapter = ""
    for v in variants:
        if v.chapter != chapter:
            chapter = v.chapter
            lines.append(f"| **{chapter}** | | | | | |")
        mutant = {"-": "", "(reached)": "reached", "(limit)": "a limit", "(locks)": "locks"}.get(
            v.mutant, f"`{v.mutant}`"
        )
        verdict = "**holds**" if v.verdict == "holds" else v.verdict
        lines.append(f"| {v.name} | {v.what} | {verdict} | {v.states:,} | {v.seconds:g} | {mutant} |")
    return "\n".join(lines) + "\n"


def page(text: str, variants: Iterable[Variant]) -> str:
    """Return README.md with the table made anew."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(variants)}{END}{tail}"


def search(variant: Variant, limit: float = TOO_LONG, *, trace: bool = False) -> Found:
    """Search one variant in a folder of its own; ``trace`` adds what led to a violation."""
    model, *flags = variant.spec.split()
    large, live = variant.states > LARGE, LIVE in flags
    with tempfile.TemporaryDirectory(prefix="makegood-model-") as folder:

        def run(*command: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
            )

        steps = (
            ("gcc", "-E", "-P", "-x", "c", "-I", str(MODELS), *flags, str(MODELS / model), "-o", "model.pml"),
            ("spin", "-a", "model.pml"),
            ("gcc", "-O2" if large else "-O0", "-w", "-DNFAIR=3" if live else "-DSAFETY", "-DVECTORSZ=2048")
            + (("-DCOLLAPSE",) if large else ())
            + ("-o", "pan", "pan.c"),
        )
        for step in steps:
            process = run(*step)
            if process.returncode:
                return Found(
                    "unknown", text=f"{step[0]}: {(process.stderr or process.stdout).strip()[-300:]}"
                )
        try:
            fairness = ("-a", "-f") if live else ()  # acceptance cycles, under weak fairness
            process = run("./pan", "-m1000000", "-w24" if large else "-w20", *fairness, seconds=limit)
        except subprocess.TimeoutExpired:
            return Found("unknown", seconds=limit, text=f"stopped after {limit:g} s")
        verdict = judged(process.stdout)
        if trace and verdict.verdict == "violated":
            trail = run("spin", "-t", "-p", "-g", "model.pml").stdout
            verdict = replace(verdict, text=f"{verdict.text}\n{trail}")
        return verdict


def judged(output: str) -> Found:
    """Return the verdict that the searching program has printed."""
    errors = re.findall(r"errors: (\d+)", output)
    states = re.search(r"([\d.e+]+) states, stored", output)
    duration = re.search(r"elapsed time ([\d.e+-]+) seconds", output)
    cut = re.search(r"max search depth too small|search not completed|out of memory", output, re.IGNORECASE)
    if not errors or states is None:
        return Found("unknown", text=output.strip()[-300:])
    verdict = Found("holds", int(float(states[1])), float(duration[1]) if duration else 0.0)
    if errors[-1] != "0":
        error = re.search(r"^pan:1: (.*?) \(at depth", output, re.MULTILINE)
        return replace(verdict, verdict="violated", text=error[1] if error else "")
    return replace(verdict, verdict="unknown", text=cut[0]) if cut else verdict


def search_all(
    variants: Sequence[Variant], limit: float, *, at_once: int, notify: Callable[[Variant, Found], None]
) -> dict[str, Found]:
    """Search all variants, a few at once; ``notify`` hears of each as it ends."""
    results: dict[str, Found] = {}
    with ThreadPoolExecutor(at_once) as pool:
        futures = {pool.submit(search, variant, limit): variant for variant in variants}
        for future in as_completed(futures):
            results[futures[future].name] = future.result()
            notify(futures[future], results[futures[future].name])
    return results


def chosen(options: argparse.Namespace, variants: Sequence[Variant]) -> list[Variant]:
    """Return the variants that the command line names; raises ``ValueError``."""
    if options.names:
        unknown = set(options.names) - {v.name for v in variants}
        if unknown:
            raise ValueError(f"no such variant: {', '.join(sorted(unknown))}; see models/variants.txt")
        return [v for v in variants if v.name in options.names]
    if options.tested:
        return [v for v in variants if v.tested]
    return [v for v in variants if v.pace.startswith("quick") or (options.all and v.pace == "slow")]


def report(variants: Sequence[Variant], results: dict[str, Found], console: Console) -> int:
    """Print the final table; returns how many verdicts are not as expected."""
    table = Table("variant", "expected", "found", "states", "seconds", "what", title="protocol models")
    wrong = 0
    for v in variants:
        was = results[v.name]
        right = was.verdict == v.verdict
        wrong += not right
        style = None if right else "bold red"
        what = v.what if right else was.text
        table.add_row(
            v.name, v.verdict, was.verdict, f"{was.states:,}", f"{was.seconds:.2f}", what, style=style
        )
    console.print(table)
    holds = sum(was.verdict == "holds" for was in results.values())
    console.print(
        f"{len(results)} variants: {holds} hold, {len(results) - holds} do not; {wrong} not as expected"
    )
    return wrong


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="search the protocol models with spin")
    parser.add_argument("names", nargs="*", metavar="NAME", help="variants; without any: the quick ones")
    parser.add_argument("--all", action="store_true", help="the slow ones too")
    parser.add_argument("--tested", action="store_true", help="those that `make proof` runs")
    parser.add_argument("--trace", action="store_true", help="print what led to a violation")
    parser.add_argument("--record", action="store_true", help="write states and seconds, and README's table")
    parser.add_argument("--table", action="store_true", help="write README's table, search nothing")
    parser.add_argument("--at-once", type=int, default=min(4, os.cpu_count() or 1), help="searches at once")
    parser.add_argument("--limit", type=float, default=TOO_LONG, help="seconds for one search")
    return parser.parse_args()


def write_table() -> None:
    """Make the table of README.md anew from ``variants.txt``."""
    readme = MODELS / "README.md"
    variants = read((MODELS / "variants.txt").read_text(encoding="utf-8"))
    readme.write_text(page(readme.read_text(encoding="utf-8"), variants), encoding="utf-8")


def main() -> int:
    """Search, report, and say by the exit code whether all is as expected."""
    options = arguments()
    file = MODELS / "variants.txt"
    try:
        variants = chosen(options, read(file.read_text(encoding="utf-8")))
    except ValueError as mistake:
        print(f"makegood: {mistake}", file=sys.stderr)
        return 2
    if options.table:
        write_table()
        return 0
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        print(
            f"makegood: {' and '.join(missing)} missing; scripts/models.sh installs what it can",
            file=sys.stderr,
        )
        return 2
    if options.trace:
        for variant in variants:
            one = search(variant, options.limit, trace=True)
            print(f"{variant.name}: {one.verdict}, {one.states:,} states\n{one.text}")
        return 0
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("searching", total=len(variants))

        def told(variant: Variant, was: Found) -> None:
            progress.update(bar, advance=1, description=variant.name)
            if was.verdict != variant.verdict:
                progress.console.print(
                    f"{variant.name}: {was.verdict}, expected {variant.verdict}", style="red"
                )

        results = search_all(variants, options.limit, at_once=options.at_once, notify=told)
    wrong = report(variants, results, Console(width=None if sys.stdout.isatty() else 150))
    if options.record:
        file.write_text(written(file.read_text(encoding="utf-8"), results), encoding="utf-8")
        write_table()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
