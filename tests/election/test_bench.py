"""The benchmark of fail-over: a small run of it, what it makes of runs, and when it says that something is wrong."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proofs.election_groups import Run

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks/election.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("election_bench", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_small_run_prints_a_table_and_writes_json(tmp_path: Path) -> None:
    ran = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.election", "--stores", "sqlite", "--faults", "SIGSTOP", "--runs", "2", "--ttl", "1.2s",
            "--sample-on", "", "--json", str(tmp_path / "figures.json"),
        ],
        cwd=SCRIPT.parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    head, _, line = ran.stdout.splitlines()
    assert head.startswith("| store | ttl | fault | loop | runs | p50 | p95 | max | bound |")
    assert line.startswith("| sqlite | 1.2 | SIGSTOP | makegood | 2 |")
    (row,) = json.loads((tmp_path / "figures.json").read_text())
    assert len(row["over"]) == 2
    assert row["overlap"] == row["accepted"] == 0
    assert row["stale"] == row["refused"]


def test_a_store_that_cannot_be_had_is_told_and_the_others_are_measured(bench: Any) -> None:
    with pytest.raises(bench.click.UsageError, match="no such store: oracle"):
        bench.named(bench.STORES, "sqlite,oracle", "store")
    kinds = [
        cell.fault for cell in bench.cells_of("sqlite", "sqlite:///x", 2.0, list(bench.FAULTS), sample=False)
    ]
    assert kinds == ["SIGKILL", "SIGTERM", "SIGSTOP"], "a file has no network before it"
    azure = bench.cells_of("azurite", "azure-blob://x", 2.0, ["SIGKILL"], sample=True)
    assert [(cell.loop, cell.ttl) for cell in azure] == [("makegood", 15.0), ("sample", 15.0)]


def test_percentiles_and_what_is_wrong(bench: Any) -> None:
    cell = bench.Cell("redis", "redis://x", "makegood", "SIGKILL", 3.0)
    fine = bench.Row.of(cell, [Run(over=n / 10, stale=1, refused=1, longest=0.1) for n in range(1, 31)])
    assert (fine.p50, fine.p95, fine.max, fine.bound) == (1.55, 2.9, 3.0, 4.5)
    assert fine.wrong() == ""
    bad = bench.Row.of(cell, [Run(over=1.0, overlaps=2, stale=3, refused=1, accepted=2), Run()])
    assert (
        bad.wrong()
        == "redis, SIGKILL: 2 overlapping writes, 2 stale writes accepted, 1 runs without a successor"
    )
    sample = bench.Cell("redis", "redis://x", "sample", "black hole", 3.0)
    assert bench.Row.of(sample, [Run(over=1.0, overlaps=2, stale=2)]).wrong() == "", "it is shown, not judged"
    assert sample.watch == pytest.approx(19.0)
    assert (
        "| redis | 3 | SIGKILL | makegood | 30 | 1.55 | 2.90 | 3.00 | 4.50 | 0 | 0 | 30 | 30 | 0.10 |"
        in bench.table([fine])
    )
