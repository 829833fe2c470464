"""How many no-op steps a second one process carries, running and completed states both durable.

    .venv/bin/python benchmarks/throughput.py --store sqlite:///bench.db --flight 500 --seconds 5

Each of ``--flight`` callers submits a 3-step task, waits for its result, and goes on. Prints one JSON object: tasks and steps
per second, CPU microseconds per step of this process, latency percentiles. It runs on the loop that ``makegood run`` would
choose, uvloop where it is installed; ``--loop asyncio`` takes the other.

Virtual machines are twice as fast in one hour as in another. ``yardstick_us`` says how fast this one is just now: microseconds that
asyncio takes to create a task and await it, before and after the run, the mean of both. Compare figures only beside it.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

import makegood as mg
from makegood.cli import event_loop

app = mg.App("bench")
desk, pool = app.agent("desk", concurrency=2000), app.agent("pool", concurrency=50)


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def first(order: str) -> str:
    """Do nothing."""
    return order


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def second(order: str, before: str) -> str:
    """Do nothing."""
    return before


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def third(order: str, before: str) -> str:
    """Do nothing."""
    return before


@app.workflow(complete_within="10m")
def three(order: str) -> str:
    """Three steps in sequence."""
    return third(order, second(order, first(order)))


@pool.action(complete_within="1m", undo=mg.NOTHING)
def plain(order: str, before: str = "") -> str:
    """Do nothing, in a thread."""
    return before or order


@app.workflow(complete_within="10m")
def threaded(order: str) -> str:
    """Three steps in sequence, by functions that are no coroutines."""
    return plain(order, plain(order, plain(order)))


async def yardstick() -> float:
    """Return the CPU microseconds that asyncio takes here and now to create a task and await it: median of nine."""
    loop, times = asyncio.get_running_loop(), []

    async def nothing() -> None:
        pass

    for _ in range(9):
        start = time.process_time()
        for _ in range(2000):
            await loop.create_task(nothing())
        times.append((time.process_time() - start) / 2000 * 1e6)
    return statistics.median(times)


async def measure(
    store: str, flight: int, seconds: float, *, keys: bool = False, threads: bool = False
) -> dict[str, float]:
    """Run ``flight`` callers for ``seconds`` and return the figures. ``keys``: each task is submitted with a key; ``threads``: its
    actions are plain functions.
    """
    latencies: list[float] = []
    work = threaded if threads else three
    async with mg.Node(app, store, roles=("scheduler", "agent", "supervisor")) as node:

        async def caller(number: int) -> None:
            count = 0
            while time.perf_counter() < end:
                start = time.perf_counter()
                order = f"{number}-{count}"
                task = await node.client.submit(work, order, key=f"{start} {order}" if keys else None)
                await task.result(timeout="1m")
                latencies.append(time.perf_counter() - start)
                count += 1

        end = time.perf_counter() + min(1.0, seconds / 4)  # warm-up
        await asyncio.gather(*(caller(n) for n in range(flight)))
        latencies.clear()
        start, cpu = time.perf_counter(), time.process_time()
        end = start + seconds
        await asyncio.gather(*(caller(n) for n in range(flight)))
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
    latencies.sort()
    tasks = len(latencies)
    return {
        "flight": flight,
        "tasks_per_second": round(tasks / took),
        "steps_per_second": round(3 * tasks / took),
        "cpu_us_per_step": round(cpu / tasks / 3 * 1e6, 1),
        "p50_ms": round(latencies[tasks // 2] * 1000, 2),
        "p99_ms": round(latencies[int(tasks * 0.99)] * 1000, 2),
    }


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", help="store URL (default: a SQLite file in a temporary folder)")
    parser.add_argument(
        "--concurrency", "--flight", dest="flight", type=int, default=500, help="tasks in flight"
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--threads", action="store_true", help="the actions are plain functions, run in 50 threads"
    )
    parser.add_argument("--keys", action="store_true", help="each task has a key")
    parser.add_argument(
        "--loop", choices=["best", "asyncio"], default="best", help="best: uvloop if it is there"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or f"sqlite:///{Path(folder) / 'bench.db'}"
        run = asyncio.run if options.loop == "asyncio" else event_loop.run
        before = asyncio.run(yardstick())
        figures = run(
            measure(store, options.flight, options.seconds, keys=options.keys, threads=options.threads)
        )
        figures["yardstick_us"] = round((before + asyncio.run(yardstick())) / 2, 2)
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
