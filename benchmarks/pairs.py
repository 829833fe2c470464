"""Are tasks as fast as at another commit? Two processes, one on each, work in turn, slice by slice.

    python -m benchmarks.pairs 233b58f3                       # against the files of this folder; both stores, 3 minutes
    python -m benchmarks.pairs 233b58f3 --slices 40 --json    # longer, as JSON

Each slice keeps ``--concurrency`` tasks of three steps in flight for ``--seconds``; another one of the two is first each
time. What else happens on the machine falls on both alike, so only ratios of neighbours count, and of these the median:
CPU microseconds of the process for each step, and steps per second. At 1.00 both are the same; above it, the files here are
better: they need less CPU, or are faster. The spread is that of the middle half.

A process keeps the luck of its start, such as where its memory lies: up to a tenth. So both are replaced after four slices.
"""

import argparse
import asyncio
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.environments import ROOT
from benchmarks.peers.makegood import app_of
from makegood import Node
from makegood.cli import event_loop
from proofs.private_server import PrivateServer

_STEPS = 3
_SLICES_OF_A_PROCESS = 4


async def slices(url: str, concurrency: int) -> None:
    """Run a slice for each line of standard input, the seconds that it lasts, and print its figures as JSON."""
    app, chain, *_ = app_of(_STEPS)
    async with Node(app, url, roles=("scheduler", "agent", "supervisor")) as node:
        while line := await asyncio.to_thread(sys.stdin.readline):
            end, count = time.perf_counter() + float(line), 0

            async def caller(end: float = end) -> None:
                nonlocal count
                while time.perf_counter() < end:
                    await (await node.client.submit(chain, "an order of thirty-two characters")).result()
                    count += 1

            begin, cpu = time.perf_counter(), time.process_time()
            await asyncio.gather(*(caller() for _ in range(concurrency)))
            seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
            steps = count * _STEPS
            print(json.dumps({"cpu_us": cpu / steps * 1e6, "rate": steps / seconds}), flush=True)


class Side:
    """One of the two: a process with the package of one commit."""

    def __init__(self, package: Path, url: str, concurrency: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pairs", "--slice", url, "--concurrency", str(concurrency)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{package}:{ROOT}"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, seconds: float) -> dict[str, float]:
        """Run a slice and return its figures."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        figures: dict[str, float] = json.loads(self._process.stdout.readline())
        return figures

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def middle(values: list[float]) -> dict[str, float]:
    """Return the median of ratios, and the bounds of their middle half."""
    low, median, high = statistics.quantiles(values, n=4)
    return {"median": round(median, 3), "low": round(low, 3), "high": round(high, 3)}


def compare(base: Path, urls: tuple[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Return the ratios of one store; ``base``: the package of the other commit."""
    cpu: list[float] = []
    rate: list[float] = []
    while len(cpu) < options.slices:
        sides = [
            Side(package, url, options.concurrency)
            for package, url in zip((base, ROOT / "src"), urls, strict=True)
        ]
        try:
            for side in sides:
                side.run(options.seconds)  # to warm up
            for number in range(min(_SLICES_OF_A_PROCESS, options.slices - len(cpu))):
                first = number % 2
                figures = {n: sides[n].run(options.seconds) for n in (first, 1 - first)}
                cpu.append(figures[0]["cpu_us"] / figures[1]["cpu_us"])
                rate.append(figures[1]["rate"] / figures[0]["rate"])
        finally:
            for side in sides:
                side.close()
    return {"cpu": middle(cpu), "rate": middle(rate), "slices": options.slices}


def main() -> None:
    """Compare on each store, or in a child process run slices."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pairs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )  # fmt: skip
    parser.add_argument("base", nargs="?", default="HEAD", help="the other commit")
    parser.add_argument("--slices", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a slice")
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--stores", nargs="+", choices=("sqlite", "postgres"), default=("sqlite", "postgres"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--slice", metavar="STORE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.slice:
        event_loop.run(slices(options.slice, options.concurrency))
        return
    results: dict[str, Any] = {"base": options.base}
    with tempfile.TemporaryDirectory(prefix="makegood-pairs-") as folder:
        tree = Path(folder) / "base"
        archive = subprocess.run(
            ["git", "archive", options.base, "src"],  # noqa: S607 - wherever it is
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as sources:
            sources.extractall(tree, filter="data")
        if "sqlite" in options.stores:
            urls = (f"sqlite:///{folder}/base.db", f"sqlite:///{folder}/here.db")
            results["sqlite"] = compare(tree / "src", urls, options)
        if "postgres" in options.stores:
            with PrivateServer(settings={"shared_buffers": "128MB"}) as server:
                urls = (server.create_database("base"), server.create_database("here"))
                results["postgres"] = compare(tree / "src", urls, options)
    if options.json:
        print(json.dumps(results))
        return
    for store in options.stores:
        for name, title in (("cpu", "CPU a step"), ("rate", "steps/s")):
            ratio = results[store][name]
            print(
                f"{store:8} {title:10} {ratio['median']:.3f} times as good as at {options.base} ({ratio['low']:.3f} to {ratio['high']:.3f})"
            )


if __name__ == "__main__":
    main()
