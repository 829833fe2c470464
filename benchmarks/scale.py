"""``make bench-scale``: what one PostgreSQL carries, with one, two, four and eight processes, and what a model says of larger machines.

    make bench-scale                                              # a server of its own; some minutes: leave the machine alone
    make bench-scale ARGS="--quick"                               # small: does it run at all?
    make bench-scale ARGS="--url postgresql://bench@db/bench"     # an empty database of yours; makegood's schema in it is dropped
    make bench-scale ARGS="--from .bootstrap/bench/scale/scale.json"   # no measurement: the model again, from an earlier one

Tasks of three no-op steps in a closed loop, in three shapes (``fleet``). First costs are measured with one process at several
flights; the simulation (``queueing``, ``forecast``) is given those alone and predicts all other rows, which are then measured too.
It prints tables and writes ``scale.json`` and ``scale.md``. What the figures mean: docs/internals/capacity-model.md.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.environments import FOLDER
from benchmarks.fleet import SHAPES, FleetError, Plan, measured
from benchmarks.observed import commit_seconds, commits_abreast, flush_seconds
from benchmarks.predictions import report
from makegood.errors import ConfigError
from proofs.private_server import PrivateServer

_SETTINGS = {
    "shared_buffers": "128MB",
    "max_connections": "300",
    "max_wal_size": "1GB",
    "track_wal_io_timing": "on",
}
_LISTENERS, _FEW = 20, 4
"""Connections that only listen, and tasks in flight, where the cost of a wake-up is measured: small batches, many notifications."""


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    argument_parser = argparse.ArgumentParser(
        prog="make bench-scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    argument_parser.add_argument(
        "--quick", action="store_true", help="one and two processes, half a second each"
    )
    argument_parser.add_argument(
        "--url", help="a PostgreSQL database for it alone (default: a server of its own)"
    )
    argument_parser.add_argument(
        "--from", dest="earlier", type=Path, help="figures of an earlier run: only the model"
    )
    argument_parser.add_argument(
        "--shapes", type=_words(SHAPES), default=SHAPES, help=f"default {','.join(SHAPES)}"
    )
    argument_parser.add_argument("--processes", type=_counts, default=(1, 2, 4, 8), help="default 1,2,4,8")
    argument_parser.add_argument(
        "--concurrency",
        "--flight",
        dest="flight",
        type=int,
        default=250,
        help="tasks in flight, in all processes together",
    )
    argument_parser.add_argument(
        "--submitters", type=int, default=1, help="processes that submit, where that is apart"
    )
    argument_parser.add_argument("--seconds", type=float, default=5.0, help="length of a window")
    argument_parser.add_argument(
        "--rounds", type=int, default=3, help="medians of so many; each takes all in turn"
    )
    argument_parser.add_argument(
        "--out", type=Path, default=FOLDER / "scale", help="folder for JSON and Markdown"
    )
    return argument_parser


def _words(choices: Sequence[str]) -> Any:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(text.replace(",", " ").split())
        if not names or set(names) - set(choices):
            raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(choices)}")
        return names

    return read


def _counts(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted({int(part) for part in text.replace(",", " ").split()}))
    if not numbers or numbers[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: whole numbers of at least 1")
    return numbers


@dataclass(slots=True)
class Ground:
    """Where fleets run: databases of a server of our own, or the one database that was given."""

    url: str | None
    _server: PrivateServer | None = None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _number: int = 0

    def open(self) -> None:
        """Start the server, if it is to be ours. Raises ``ConfigError`` where there are no server programs."""
        if self.url is None:
            self._server = self._stack.enter_context(PrivateServer(settings=_SETTINGS))

    def close(self) -> None:
        """Stop it."""
        self._stack.close()

    @property
    def admin(self) -> str:
        """The URL of a database to look from."""
        return self.url or (self._server.url if self._server is not None else "")

    @property
    def folder(self) -> Path | None:
        """The folder of the server's data, when it is ours."""
        return None if self._server is None else self._server.data

    async def empty(self) -> str:
        """Return the URL of a database without makegood's schema."""
        if self._server is not None:
            if self._number:
                self._server.drop_database(f"scale{self._number}")
            self._number += 1
            return self._server.create_database(f"scale{self._number}")
        assert self.url is not None
        connection = await asyncpg.connect(self.url)
        await connection.execute("drop schema if exists makegood cascade")
        await connection.close()
        return self.url


def plans(options: argparse.Namespace) -> Iterator[Plan]:
    """Yield all fleets: with one process every flight, then with several the largest; and once connections that listen."""
    flights = sorted({1, max(1, round(options.flight**0.6)), options.flight})
    for shape in options.shapes:
        for flight in flights:
            yield Plan(shape, 1, flight, options.submitters)
        for processes in options.processes:
            if processes > 1:
                yield Plan(shape, processes, options.flight, options.submitters)
    if "inside" in options.shapes:
        yield Plan("inside", 1, _FEW, listeners=_LISTENERS)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure all fleets, round after round; returns figures and what they were measured on."""
    ground = Ground(options.url)
    ground.open()
    all_plans = list(plans(options))
    rounds: dict[Plan, list[dict[str, Any]]] = {plan: [] for plan in all_plans}
    loads = [os.getloadavg()[0]]
    try:
        flushes = flush_seconds(ground.folder) if ground.folder is not None else None
        commit = await commit_seconds(ground.admin)
        abreast = [await commits_abreast(ground.admin, notify=notify) for notify in (False, True)]
        for number in range(options.rounds):
            for at, plan in enumerate(all_plans):
                title = f"{plan.shape}, {plan.processes} processes, {plan.flight} in flight"
                sys.stderr.write(f"[round {number + 1}, {at + 1}/{len(all_plans)}] {title}\n")
                url = await ground.empty()
                rounds[plan].append(
                    await measured(plan, url, options.seconds, warm=max(0.5, options.seconds / 3))
                )
                loads.append(os.getloadavg()[0])
        version = await _version(ground.admin)
    finally:
        ground.close()
    return {
        "machine": {
            "cores": os.cpu_count(), "postgres": version, "python": ".".join(map(str, sys.version_info[:3])),
            "load": [round(min(loads), 1), round(max(loads), 1)], "commit_ms": commit * 1000, "commits_abreast": abreast,
            "flush_ms": None if flushes is None else [value * 1000 for value in flushes],
            "server": "here" if options.url is None else "given",
        },
        "settings": {
            "seconds": options.seconds, "rounds": options.rounds, "submitters": options.submitters, "quick": options.quick,
        },
        "runs": [
            {**median(results), "listeners": plan.listeners, "rates": [one["tasks_per_second"] for one in results]}
            for plan, results in rounds.items()
        ],
    }  # fmt: skip


async def _version(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("show server_version"))
    finally:
        await connection.close()


def median(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of all numbers, within objects too; texts as they are.

    >>> median([{"a": 1.0, "b": {"c": 2}}, {"a": 3.0, "b": {"c": 4}}, {"a": 2.0, "b": {}}])
    {'a': 2.0, 'b': {'c': 3.0}}
    """
    figures: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in rounds for name in one):
        values = [one[name] for one in rounds if name in one]
        if all(isinstance(value, dict) for value in values):
            figures[name] = median(values)
        elif all(isinstance(value, int | float) for value in values):
            figures[name] = statistics.median(values)
        else:
            figures[name] = values[0]
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and predict what the command line asks for; returns 1 when nothing could be measured, 2 where nothing can."""
    options = parser().parse_args(arguments)
    if options.quick:
        options.processes, options.seconds, options.rounds = (1, 2), 0.5, 1
        options.flight = min(options.flight, 50)
    if not Path("/proc/self/smaps_rollup").exists():
        sys.stderr.write(
            "makegood: make bench-scale needs Linux: it reads the costs of processes from /proc\n"
        )
        return 2
    try:
        if options.earlier is not None:
            document = json.loads(options.earlier.read_text(encoding="utf-8"))
        else:
            document = asyncio.run(measure(options))
    except (FleetError, ConfigError) as why:
        sys.stderr.write(f"makegood: {why}\n")
        return 1
    text, forecast = report(document)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "scale.json").write_text(
        json.dumps({**document, "model": forecast}, indent=1) + "\n", encoding="utf-8"
    )
    (options.out / "scale.md").write_text(text, encoding="utf-8")
    print(text)
    sys.stderr.write(f"written: {options.out}/scale.json, scale.md\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
