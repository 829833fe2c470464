"""``make bench-console``: how long each page of the console takes beside many ended tasks, and what viewers cost a busy engine.

    make bench-console                                          # 1,000,000 ended tasks, then five pairs of loops, on both stores
    make bench-console ARGS="--quick"                           # small: does it run at all?
    make bench-console ARGS="--only pages --stores postgres"    # or --only viewers, --only large

The console is ``makegood console``, a process of its own. Pages are asked over one connection, and nothing is shared between two
requests: each reads the store. Viewers have live pages; beside them the loop of ``throughput.py`` runs, with them and without them
in turn. What the figures mean: docs/internals/performance.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import makegood as mg
from benchmarks import large_tasks, viewers
from benchmarks.environments import ROOT
from benchmarks.meters import cpu_of, percentile
from benchmarks.peers.makegood import multiply_postgres, multiply_sqlite
from benchmarks.throughput import app, desk, first, three
from makegood.store import open_store
from proofs.private_server import PrivateServer

_SETTINGS = {"shared_buffers": "128MB", "max_wal_size": "1GB"}
_WITHIN = 60.0
_ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONWARNINGS": "ignore"}
_PAGES = {
    "overview": "/", "tasks": "/tasks", "filter by state": "/tasks?q=state%3Aundone", "by workflow and age": "/tasks?q=workflow%3Athree+since%3A1h",
    "by error": "/tasks?q=error%3Aexpired", "by key": "/tasks?q=key%3Akey-67", "alerts": "/alerts", "errors": "/errors",
    "agents": "/agents", "cluster": "/cluster", "bulk acts": "/bulk", "audit": "/audit", "stores": "/stores",
}  # fmt: skip
elsewhere = mg.App("elsewhere")
away = elsewhere.agent("away")


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def refuse(order: str) -> str:
    """Fail for good."""
    raise mg.Permanent(f"the card of {order} has expired")


@away.action(complete_within="1h", undo=mg.NOTHING)
async def wait(order: str) -> str:
    """Wait for a process that nobody starts."""
    return order


@app.workflow(complete_within="1h")
def undone(order: str) -> str:
    """A step that fails, after one that does not."""
    return refuse(first(order))


@app.workflow(complete_within="1h", on_failure="hold")
def held(order: str) -> str:
    """A task in error."""
    return refuse(order)


@elsewhere.workflow(complete_within="1h")
def waiting(order: str) -> str:
    """A task under way."""
    return wait(order)


class Console:
    """A console that runs as a process of its own, until ``close``."""

    def __init__(self, store: str, share: float) -> None:
        self.port = _free_port()
        command = [sys.executable, "-m", "benchmarks.viewers", "serve", store, str(self.port), str(share)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=_ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    async def __aenter__(self) -> Self:
        """Wait until it answers."""
        await viewers.until_listening(self._process, self.port, "/", _WITHIN)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate()

    @property
    def cpu(self) -> float:
        """The CPU seconds that it has used."""
        return cpu_of(self._process.pid)

    def statements(self) -> int:
        """Return how many statements it has sent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def fill(store: str, count: int) -> str:
    """Put tasks of each kind into an empty store, and ``count`` more that have ended; returns the id of one that was undone."""
    async with mg.Node(app, store, options=mg.Options(migrate=True)) as node:
        kinds = [three] * 60 + [undone] * 30 + [held] * 10
        tasks = [
            await node.client.submit(kind, f"order {n}", key=None if kind is three else f"key-{n}")
            for n, kind in enumerate(kinds)
        ]
        for n in range(50):
            await node.client.submit(waiting, f"order {n}")
        for task in tasks[:90]:
            with contextlib.suppress(mg.TaskUndone):
                await task.result(timeout="1m")
        await asyncio.sleep(2)
    if store.startswith("sqlite"):
        multiply_sqlite(store.removeprefix("sqlite:///"), count)
    else:
        await multiply_postgres(store, count)
    return tasks[60].id


async def pages(store: str, count: int, times: int) -> dict[str, Any]:
    """Ask each page ``times`` times beside so many ended tasks; returns its times and its statements."""
    paths = {**_PAGES, "a task": f"/tasks/{await fill(store, count)}"}
    took: dict[str, list[float]] = {name: [] for name in paths}
    counts: dict[str, int] = {}
    async with Console(store, share=0.0) as console:
        line = viewers.Line(console.port)
        for n in range(times + 2):
            for name, path in paths.items():
                before = console.statements() if n == 1 else 0
                start = time.perf_counter()
                status, _ = await line.get(path)
                if n == 1:
                    counts[name] = console.statements() - before
                elif n > 1:
                    took[name].append((time.perf_counter() - start) * 1000)
                if status != 200:
                    raise RuntimeError(f"{path} answers {status}")
        await line.close()
    return {
        name: {
            "p50_ms": percentile(sorted(one), 0.5),
            "p95_ms": percentile(sorted(one), 0.95),
            "statements": counts[name],
        }
        for name, one in took.items()
    }


async def loop(store: str, flight: int, seconds: float) -> dict[str, float]:
    """Run the loop of ``throughput.py`` in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "benchmarks/throughput.py", "--store", store, "--flight", str(flight), "--seconds", str(seconds),
        cwd=ROOT, env=_ENVIRONMENT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    figures: dict[str, float] = json.loads(output)
    return figures


async def beside(store: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run pairs of loops, one of each pair with viewers; returns the medians of both, their ratios, and what the console did."""
    new_store = open_store(store)
    await new_store.open(migrate=True)
    await new_store.close()
    alone: list[dict[str, float]] = []
    with_console: list[dict[str, float]] = []
    for n in range(options.pairs):
        for with_viewers in (n % 2 == 0, n % 2 == 1):
            if with_viewers:
                async with Console(store, share=1.0) as console:
                    with_console.append(await _watched(store, console, options))
            else:
                alone.append(await loop(store, options.flight, options.seconds))
    return {
        "cpu_us_per_step": [_median(alone, "cpu_us_per_step"), _median(with_console, "cpu_us_per_step")],
        "steps_per_second": [_median(alone, "steps_per_second"), _median(with_console, "steps_per_second")],
        "cpu_ratios": [
            with_["cpu_us_per_step"] / without["cpu_us_per_step"] for without, with_ in zip(alone, with_console, strict=True)
        ],
        "rate_ratios": [
            with_["steps_per_second"] / without["steps_per_second"] for without, with_ in zip(alone, with_console, strict=True)
        ],
        "console": {name: _median(with_console, name) for name in ("viewers", "console_cores", "viewers_cores", "statements", "events", "fetched", "bytes", "failed")},
    }  # fmt: skip


async def _watched(store: str, console: Console, options: argparse.Namespace) -> dict[str, float]:
    """Run the loop while viewers watch; returns its figures, and per second what the console and its viewers used and sent."""
    watching = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.viewers", "watch", str(console.port), str(options.viewers),
        cwd=ROOT, env=_ENVIRONMENT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert watching.stdout is not None
    await watching.stdout.readline()
    start, cpu, statements, viewing = (
        time.perf_counter(),
        console.cpu,
        console.statements(),
        cpu_of(watching.pid),
    )
    figures = await loop(store, options.flight, options.seconds)
    took = time.perf_counter() - start
    viewing, cpu, statements = (
        cpu_of(watching.pid) - viewing,
        console.cpu - cpu,
        console.statements() - statements,
    )
    output, _ = await watching.communicate(b"\n")
    figures |= json.loads(output)
    return (
        figures
        | {"viewers": options.viewers}
        | {
            "console_cores": cpu / took,
            "viewers_cores": viewing / took,
            "statements": statements / took,
        }
    )


async def largest(store: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what the largest tasks cost a console, and an engine whose loop serves one."""
    tasks = await large_tasks.fill(store, options.steps, options.large)
    return {
        "answers": await large_tasks.answers(store, _free_port(), tasks, options.steps),
        "watched": await large_tasks.watched(
            store,
            _free_port(),
            tasks["longest"],
            flight=options.flight,
            seconds=options.seconds,
            pairs=options.pairs,
        ),
    }


def _median(rounds: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in rounds)


@contextlib.contextmanager
def stores(kinds: Sequence[str]) -> Iterator[dict[str, "Ground"]]:
    """Return where each kind of store comes from; all are gone at the end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="makegood-bench-")))
        server = stack.enter_context(PrivateServer(settings=_SETTINGS)) if "postgres" in kinds else None
        yield {kind: Ground(folder, server if kind == "postgres" else None) for kind in kinds}


@dataclass(frozen=True, slots=True)
class Ground:
    """Makes empty stores of one kind."""

    folder: Path
    server: PrivateServer | None

    def empty(self, name: str) -> str:
        """Return the URL of an empty store."""
        return (
            f"sqlite:///{self.folder}/{name}.db" if self.server is None else self.server.create_database(name)
        )


def table(figures: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines: list[str] = []
    for kind, one in figures.items():
        if rows := one.get("pages"):
            lines += ["", f"{kind}: pages, ms", f"{'':<22}{'p50':>8}{'p95':>8}{'statements':>12}"]
            lines += [
                f"{name:<22}{row['p50_ms']:8.1f}{row['p95_ms']:8.1f}{row['statements']:12}"
                for name, row in rows.items()
            ]
        if both := one.get("viewers"):
            (cpu, cpu_with), (rate, rate_with) = both["cpu_us_per_step"], both["steps_per_second"]
            ratios, rates = sorted(both["cpu_ratios"]), sorted(both["rate_ratios"])
            with_console = both["console"]
            lines += [
                "",
                f"{kind}: the loop without console, and with {with_console['viewers']:.0f} viewers",
                f"  engine, CPU us/step {cpu:8.1f} {cpu_with:8.1f}   median of ratios {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})",
                f"  steps/s             {rate:8,.0f} {rate_with:8,.0f}   median of ratios {statistics.median(rates):.3f} ({rates[0]:.3f} to {rates[-1]:.3f})",
                (
                    f"  console {with_console['console_cores']:.2f} cores, viewers {with_console['viewers_cores']:.2f}; a second: {with_console['statements']:.0f} statements, {with_console['events']:.0f} events, "
                    f"{with_console['fetched']:.0f} fragments, {with_console['bytes'] / 1024:,.0f} KiB, {with_console['failed']:.0f} failed"
                ),
            ]
        if large := one.get("large"):
            lines += large_tasks.table(kind, large)
        lines.append(f"  load average {' '.join(f'{value:.1f}' for value in one['load'])}")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    argument_parser = argparse.ArgumentParser(
        prog="make bench-console", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    argument_parser.add_argument(
        "--quick", action="store_true", help="1,000 ended tasks, 5 requests, one pair of two seconds"
    )
    argument_parser.add_argument("--only", choices=["pages", "viewers", "large"], help="default: all")
    argument_parser.add_argument("--large", type=int, default=150, help="tasks with a result of 1 MiB")
    argument_parser.add_argument("--steps", type=int, default=9_000, help="steps of the longest task")
    argument_parser.add_argument("--stores", default="sqlite,postgres", help="default sqlite,postgres")
    argument_parser.add_argument(
        "--ended", type=int, default=1_000_000, help="ended tasks beside which pages are asked"
    )
    argument_parser.add_argument("--times", type=int, default=100, help="requests of each page")
    argument_parser.add_argument("--viewers", type=int, default=20, help="viewers with live pages")
    argument_parser.add_argument("--flight", type=int, default=250, help="tasks in flight")
    argument_parser.add_argument(
        "--pairs", type=int, default=5, help="loops with viewers, and as many without"
    )
    argument_parser.add_argument("--seconds", type=float, default=5.0, help="length of a loop")
    argument_parser.add_argument("--json", action="store_true", help="print figures as JSON")
    return argument_parser


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the command line asks for."""
    figures: dict[str, Any] = {}
    with stores(options.stores.split(",")) as grounds:
        for kind, ground in grounds.items():
            figures[kind] = {}
            if options.only in (None, "pages"):
                figures[kind]["pages"] = await pages(ground.empty("pages"), options.ended, options.times)
            if options.only in (None, "viewers"):
                figures[kind]["viewers"] = await beside(ground.empty("viewers"), options)
            if options.only in (None, "large"):
                figures[kind]["large"] = await largest(ground.empty("large"), options)
            figures[kind]["load"] = os.getloadavg()
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = parser().parse_args(arguments)
    if options.quick:
        options.ended, options.times, options.pairs, options.seconds = 1000, 5, 1, 2.0
        options.large, options.steps = 5, 300
    figures = asyncio.run(measure(options))
    print(json.dumps(figures, indent=1) if options.json else table(figures))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
