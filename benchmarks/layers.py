"""What each layer of the fast path buys: the loop of ``throughput.py`` with layers switched off, one by one.

    .venv/bin/python -m benchmarks.layers --rounds 4

Each run is a process of its own, in turn with the others. Prints the medians of the rounds. ``docs/internals/fast-path.md``
explains the layers. The decisions are the same without them; only the work for each is more.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.throughput import measure
from makegood.model.shape import Shape
from makegood.saga import decisions, fast_path
from makegood.workflow import plan_run, workflow
from makegood.workflow.plan_cache import NO_TRAIL


def _nothing(*_args: object) -> None:
    return None


def _no_plan_cache() -> None:
    def planning(
        share: Any, where: str, copies: Any, marks: Any, *, trail: Any, code: Any
    ) -> plan_run.Planning:
        return plan_run.Planning(share, where, copies, marks, trail=NO_TRAIL, code=code)

    workflow.Planning = planning  # type: ignore[assignment, attr-defined]


def _no_shapes() -> None:
    Shape.again = lambda _shape: False  # type: ignore[method-assign, assignment]
    fast_path.Shapes.share = _nothing  # type: ignore[assignment, method-assign]


def _no_shape_steps() -> None:
    fast_path._shape_step = _nothing  # type: ignore[assignment]  # noqa: SLF001 - to be switched off


def _no_fast_path() -> None:
    decisions.straight = _nothing  # type: ignore[attr-defined, assignment]


def _none() -> None:
    for switch_off in (_no_plan_cache, _no_shapes, _no_fast_path):
        switch_off()


LAYERS: Mapping[str, Callable[[], object]] = {
    "all": _nothing,
    "no shape steps": _no_shape_steps,
    "no fast path": _no_fast_path,
    "no shapes": _no_shapes,
    "no plan cache": _no_plan_cache,
    "none": _none,
}


def _one(layers: str, flight: int, seconds: float) -> dict[str, Any]:
    """Run the loop in a process of its own; returns its figures."""
    arguments = ["--layers", layers, "--concurrency", str(flight), "--seconds", str(seconds)]
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.layers", *arguments], check=True, capture_output=True, text=True
    )
    figures: dict[str, Any] = json.loads(process.stdout)
    return figures


def main() -> None:
    """Measure all settings, or in a child process one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--layers", choices=LAYERS, help="run this setting alone and print its figures as JSON"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--concurrency", "--flight", dest="flight", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    if options.layers is not None:
        LAYERS[options.layers]()
        with tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(
                measure(f"sqlite:///{Path(folder) / 'layers.db'}", options.flight, options.seconds)
            )
        print(json.dumps(figures))
        return
    rounds = [
        {layers: _one(layers, options.flight, options.seconds) for layers in LAYERS}
        for _ in range(options.rounds)
    ]
    for layers in LAYERS:
        steps, cpu = (
            statistics.median(each[layers][name] for each in rounds)
            for name in ("steps_per_second", "cpu_us_per_step")
        )
        print(f"{layers:<16} {steps:>8,.0f} steps/s {cpu:>7.1f} CPU us a step")


if __name__ == "__main__":
    main()
