"""What the largest tasks cost the console: the part ``large`` of ``make bench-console``.

    python -m benchmarks.large_tasks serve sqlite:///shop.db 8640        # a console that reports how long its loop was held
    python -m benchmarks.large_tasks engine sqlite:///shop.db 8640 250 5   # all roles and a console on one loop, and 250 callers

The largest task has 9,001 steps, 9,000 of them done one after the other (``--steps``); others have results of 1 MiB, as many as
``--large`` says.

*Hold* is the longest time for which the loop did not run while an answer was made, seen by a timer of 1 ms on it; an answer is
asked five times and the least counts, for other processes of the machine also hold it. *Callback* is the most CPU time that one callback of the
loop took: nobody else adds to it. *Growth* is what the answers of one address add to the memory of a console that has just begun.

``engine`` is the worst place for a console: on the loop of all roles (``makegood run --console``). Its CPU time is that of the
loop's thread. Tabs are viewers as of ``viewers.py``, all on the page of the largest task.
"""

import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import makegood as mg
from benchmarks.environments import ROOT
from benchmarks.throughput import app, desk, first, three
from benchmarks.viewers import TOKEN, Line, Viewer, until_listening
from makegood.console.options import ConsoleOptions
from makegood.console.server import ConsoleServer
from makegood.store.step_down import LEADER

TABS: Final = 3
TIMES: Final = 5
ENVIRONMENT: Final = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONWARNINGS": "ignore"}
_WITHIN: Final = 60.0


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def later(order: str) -> str:
    """Ask to be called again in an hour."""
    raise mg.Later("1h")


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def large(order: str) -> list[str]:
    """Return a megabyte."""
    return ["x" * 60] * 16_000


@app.workflow(complete_within="2h")
def longest(order: str, count: int) -> str:
    """Return what the last of many steps does, which waits."""
    for _ in range(count):
        first(order)
    return later(order)


@app.workflow(complete_within="2h")
def heavy(order: str) -> list[str]:
    """A result of a megabyte."""
    return large(order)


@app.workflow(complete_within="2h")
def heaviest(order: str, count: int) -> list[str]:
    """Return a megabyte, after ``count`` other results of a megabyte."""
    mg.branches(*[lambda: large(order) for _ in range(count)])
    return large(order)


async def fill(store: str, steps: int, count: int) -> dict[str, str]:
    """Make the largest tasks, of so many steps, and ``count`` more with large results; returns the ids of the
    longest and of the heaviest one, which has 101 results of a megabyte, or ``count`` where those are fewer.
    """
    async with mg.Node(app, store, options=mg.Options(migrate=True)) as node:
        longest_task = await node.client.submit(longest, "order", steps)
        heaviest_task = await node.client.submit(heaviest, "order", min(count, 100))
        await heaviest_task.result(timeout="5m")
        for n in range(count):
            await (await node.client.submit(heavy, f"order {n}")).result(timeout="5m")
        while True:  # until only the last step is left
            detail = await longest_task.status()
            if sum(step.state == "done" for step in detail.steps) >= steps:
                return {"longest": longest_task.id, "heaviest": heaviest_task.id}
            await asyncio.sleep(2)


def addresses(tasks: dict[str, str], steps: int) -> dict[str, str]:
    """Return what is asked, by name."""
    long, heavy_ = tasks["longest"], tasks["heaviest"]
    return {
        "overview": "/",
        "tasks": "/tasks",
        "longest task": f"/tasks/{long}",
        "its steps": f"/tasks/{long}?steps={steps // 2}",
        "its steps done": f"/tasks/{long}?state=done&steps=0",
        "its history": f"/tasks/{long}?before={steps // 2}",
        "task of 101 MiB": f"/tasks/{heavy_}",
        "1 MiB, covered": f"/tasks/{heavy_}/values/result",
        "api: tasks": "/api/v1/tasks?limit=1000",
        "api: results": "/api/v1/tasks?limit=1000&results=1",
        "api: longest task": f"/api/v1/tasks/{long}",
        "api: its history": f"/api/v1/tasks/{long}/history",
        "errors": "/errors",
        "audit": "/audit.csv",
    }


# -- a console that reports on its loop ----------------------------------------------------------------------


class Meter:
    """How long a loop was held since the last look."""

    def __init__(self) -> None:
        self.hold = self.callback = 0.0

    def watch_callbacks(self) -> None:
        """Measure each callback of asyncio's own loop from now on."""
        name = "_run"  # where each callback of asyncio's own loop is called
        run = getattr(asyncio.Handle, name)

        def measured(handle: asyncio.Handle) -> Any:
            start = time.thread_time()
            try:
                return run(handle)
            finally:
                self.callback = max(self.callback, time.thread_time() - start)

        setattr(asyncio.Handle, name, measured)

    async def watch(self) -> None:
        """Measure how late a timer of 1 ms is, until cancelled."""
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            self.hold = max(self.hold, time.perf_counter() - start - 0.001)

    def take(self) -> dict[str, float]:
        """Return what was measured, and the memory of this process in MiB: now, and at most."""
        numbers = {"hold_ms": self.hold * 1000, "callback_ms": self.callback * 1000, **memory()}
        self.hold = self.callback = 0.0
        return numbers


def memory() -> dict[str, float]:
    """Return the memory of this process now, and the most since it began, in MiB."""
    lines = dict(
        line.split(":", 1)
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    )
    return {"rss": int(lines["VmRSS"].split()[0]) / 1024, "peak": int(lines["VmHWM"].split()[0]) / 1024}


async def serve(store: str, port: int) -> None:
    """Serve a console; answer each line of the input with what was measured."""
    meter = Meter()
    meter.watch_callbacks()
    server = ConsoleServer(store, ConsoleOptions(listen=f"127.0.0.1:{port}", token=TOKEN))
    await server.begin()
    loop = asyncio.get_running_loop()
    watching = loop.create_task(meter.watch())

    def answer() -> None:
        for _ in sys.stdin:
            sys.stdout.write(json.dumps(meter.take()) + "\n")
            sys.stdout.flush()
        loop.call_soon_threadsafe(watching.cancel)

    threading.Thread(target=answer, daemon=True).start()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    await server.end()


class Process:
    """One of this module's commands, until ``close``; lines go in, JSON comes out."""

    def __init__(self, *words: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.large_tasks", *map(str, words)],
            cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    async def listening(self, port: int) -> Self:
        """Wait until its console answers."""
        await until_listening(self._process, port, "/login", _WITHIN)
        return self

    def tell(self) -> dict[str, Any]:
        """Send a line; return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        report: dict[str, Any] = json.loads(self._process.stdout.readline())
        return report

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        with self._process:  # its pipes are closed at the end
            self._process.stdin.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()


async def answers(store: str, port: int, tasks: dict[str, str], steps: int) -> dict[str, Any]:
    """Ask for each address at a console of its own; return how long its loop was held, what it grew by, and the bytes."""
    figures: dict[str, Any] = {}
    for name, path in addresses(tasks, steps).items():
        console = await Process("serve", store, port).listening(port)
        try:
            line, body = Line(port), b""
            await line.get("/login")
            before = console.tell()["rss"]
            rounds: list[dict[str, Any]] = []
            for _ in range(TIMES):
                console.tell()
                status, body = await line.get(path)
                if status != 200:
                    raise RuntimeError(f"{path} answers {status}")
                rounds.append(console.tell())
            await line.close()
        finally:
            console.close()
        figures[name] = {
            "hold_ms": min(one["hold_ms"] for one in rounds),
            "callback_ms": min(one["callback_ms"] for one in rounds),
            "growth_mib": max(one["peak"] for one in rounds) - before,
            "kib": len(body) / 1024,
        }
    return figures


# -- an engine with a console on its loop --------------------------------------------------------------------


async def engine(store: str, port: int, flight: int, seconds: float) -> None:
    """Run all roles, a console and so many callers; answer each line with the figures of the next ``seconds``."""
    async with mg.Node(app, store, console=ConsoleOptions(listen=f"127.0.0.1:{port}", token=TOKEN)) as node:
        steps = 0

        async def call() -> None:
            nonlocal steps
            while True:
                await (await node.client.submit(three, "order")).result()
                steps += 3

        callers = [asyncio.create_task(call()) for _ in range(flight)]
        while await asyncio.to_thread(sys.stdin.readline):
            before, start, loop_cpu = steps, time.perf_counter(), time.thread_time()
            await asyncio.sleep(seconds)
            took, cpu = time.perf_counter() - start, time.thread_time() - loop_cpu
            terms = await node.client.store.leases.past_terms(LEADER)
            alerts = await node.client.store.alerts.views(100, ended=None)
            late = [alert.kind for alert in alerts if alert.kind == "no_leader"]
            numbers = {
                "loop_ms_per_second": 1000 * cpu / took,
                "us_per_step": 1e6 * cpu / max(1, steps - before),
                "steps_per_second": (steps - before) / took,
            }
            sys.stdout.write(
                json.dumps({**numbers, "terms": len(terms), "no_leader": len(late), **memory()}) + "\n"
            )
            sys.stdout.flush()
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


async def watched(
    store: str, port: int, task: str, *, flight: int, seconds: float, pairs: int
) -> dict[str, Any]:
    """Let an engine run without and with tabs in turn; return medians, the ratio of each pair, and what the leases show."""
    process = await Process("engine", store, port, flight, seconds).listening(port)
    alone: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    events = 0
    try:
        first_terms = (await asyncio.to_thread(process.tell))["terms"]  # warm
        for n in range(pairs):
            for tabs in (0, TABS) if n % 2 else (TABS, 0):
                viewers = [Viewer(port, f"/tasks/{task}") for _ in range(tabs)]
                people = [asyncio.create_task(viewer.watch()) for viewer in viewers]
                while not all(viewer.open for viewer in viewers):
                    for person in people:
                        if person.done():
                            person.result()
                    await asyncio.sleep(0.05)
                (beside if tabs else alone).append(await asyncio.to_thread(process.tell))
                events += sum(viewer.events for viewer in viewers)
                for person in people:
                    person.cancel()
                await asyncio.gather(*people, return_exceptions=True)
    finally:
        process.close()
    ratios = [
        with_["us_per_step"] / without["us_per_step"] for with_, without in zip(beside, alone, strict=True)
    ]
    return {
        "us_per_step": [statistics.median(one["us_per_step"] for one in rounds) for rounds in (alone, beside)],
        "steps_per_second": [statistics.median(one["steps_per_second"] for one in rounds) for rounds in (alone, beside)],
        "loop_ms_per_second": [statistics.median(one["loop_ms_per_second"] for one in rounds) for rounds in (alone, beside)],
        "ratio": statistics.median(ratios), "ratios": sorted(ratios), "events": events,
        "terms": max(one["terms"] for one in beside) - first_terms, "no_leader": max(one["no_leader"] for one in beside),
    }  # fmt: skip


def table(kind: str, figures: dict[str, Any]) -> list[str]:
    """Return the figures as lines."""
    lines = [
        "",
        f"{kind}: answers about the largest tasks",
        f"{'':<22}{'hold ms':>9}{'callback ms':>13}{'growth MiB':>12}{'KiB':>9}",
    ]
    lines += [
        f"{name:<22}{row['hold_ms']:9.1f}{row['callback_ms']:13.1f}{row['growth_mib']:12.1f}{row['kib']:9.0f}"
        for name, row in figures["answers"].items()
    ]
    both = figures["watched"]
    (cpu, cpu_with), (rate, rate_with) = both["us_per_step"], both["steps_per_second"]
    lines.append(
        f"  {TABS} live tabs on the longest task, on the engine's own loop: CPU us/step of the loop {cpu:.1f} {cpu_with:.1f}, median of ratios "
        f"{both['ratio']:.3f} ({both['ratios'][0]:.3f} to {both['ratios'][-1]:.3f}); steps/s {rate:,.0f} {rate_with:,.0f}; CPU of the loop "
        f"{both['loop_ms_per_second'][0]:.0f} {both['loop_ms_per_second'][1]:.0f} ms/s; {both['events']} events"
    )
    return [
        *lines,
        f"  leases lost {both['terms']}, alerts no_leader {both['no_leader']}",
    ]


def main(words: Sequence[str]) -> None:
    """Run one of the processes."""
    if words[0] == "serve":
        asyncio.run(serve(words[1], int(words[2])))
    else:
        asyncio.run(engine(words[1], int(words[2]), int(words[3]), float(words[4])))


if __name__ == "__main__":
    main(sys.argv[1:])
