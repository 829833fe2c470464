"""One measurement: a process of its own runs one peer through one cell of the plan, and prints one JSON object.

A *subject* is a system under measurement behind a few verbs; the loops below are the same for all. In the closed loop each of
``flight`` callers submits a task, waits for its end, and goes on; what ends inside the window is counted, so that filling up and
running dry are no part of the figure. Only the standard library is used here: it runs in the environment of each peer.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from benchmarks.meters import Meter, Traffic, counting_sqlite, memory_of, percentile

T = TypeVar("T")

FEWEST = 30
"""A window is prolonged until so many tasks have ended in it …"""
LONGEST = 8
"""… up to so many times its length."""


@dataclass(slots=True)
class Cell:
    """What to measure. ``place``: where actions run, ``here`` or ``elsewhere`` (another process). ``amount``: of tasks, where the
    workload is about a number of them. ``count``: count commits and statements instead of measuring time.
    """

    workload: str
    store: str
    folder: str
    steps: int = 3
    flight: int = 1
    seconds: float = 5.0
    place: str = "here"
    amount: int = 0
    count: bool = False
    variant: str = ""
    """Which of several ways in which a peer can be used."""
    server: int = 0
    """The process of the database server, 0 if there is none."""
    admin: str = ""
    """PostgreSQL's URL for looking at its counters."""


class UnableError(Exception):
    """The system cannot do this workload, or not comparably; says why."""


class Subject:
    """A system under measurement. ``durable`` says what it makes durable and when; ``most`` is how many it may have in flight."""

    durable = ""
    most = 100_000
    lump = 1
    """Tasks that one call of ``task`` carries."""
    places: tuple[str, ...] = ("here",)

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.roles: dict[str, int] = {"process": os.getpid()}

    def version(self) -> str:
        """Return the version that is measured."""
        raise NotImplementedError

    async def open(self) -> None:
        """Make everything ready; the store is empty."""
        raise NotImplementedError

    async def close(self) -> None:
        """Stop what was started."""

    async def task(self, steps: int) -> None:
        """Submit a task of ``steps`` no-op steps in sequence and wait until it has ended."""
        raise UnableError("it has no tasks of steps")

    async def undone(self, steps: int) -> None:
        """Submit a task whose last step fails for good, and wait until those before are undone."""
        raise UnableError("it has nothing to undo with")

    async def ended(self, count: int) -> None:
        """Put ``count`` ended tasks into the store."""
        raise UnableError("no way to put ended tasks into its store quickly is written here")

    async def waiting(self, count: int) -> None:
        """Submit ``count`` tasks that nobody begins."""
        raise UnableError("it cannot keep tasks waiting comparably")

    async def takeover(self, count: int) -> dict[str, float]:
        """Kill the process that has ``count`` tasks in flight and let another finish them."""
        raise UnableError("its take-over is not written here")


@dataclass(slots=True)
class Loop:
    """Callers that go round and round. ``latencies`` are those of what ended since ``clear()``."""

    once: Callable[[], Awaitable[None]]
    flight: int
    latencies: list[float] = field(default_factory=list)
    stopping: bool = False

    async def _caller(self) -> None:
        while not self.stopping:
            start = time.perf_counter()
            await self.once()
            self.latencies.append(time.perf_counter() - start)

    async def window(self, warm: float, seconds: float, meter: Meter) -> None:
        """Run until the window is over."""
        callers = [asyncio.create_task(self._caller()) for _ in range(self.flight)]
        try:
            await self._pass(callers, warm, fewest=1)
            self.latencies.clear()
            meter.begin()
            await self._pass(callers, seconds, fewest=FEWEST)
            meter.end()
            self.latencies = list(self.latencies)
        finally:
            self.stopping = True
            _, left = await asyncio.wait(callers, timeout=10.0)
            for caller in left:
                caller.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _pass(self, callers: list["asyncio.Task[None]"], seconds: float, fewest: int) -> None:
        """Let time pass until enough has ended; raises what a caller has died of."""
        end = time.perf_counter() + seconds
        last = end + seconds * (LONGEST - 1)
        while (now := time.perf_counter()) < end or (len(self.latencies) < fewest and now < last):
            pause = min(1.0, max(0.02, end - now))
            failures, _ = await asyncio.wait(callers, timeout=pause, return_when=asyncio.FIRST_EXCEPTION)
            for caller in failures:
                caller.result()


async def _closed(subject: Subject, once: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """Measure a closed loop."""
    cell = subject.cell
    flight = min(cell.flight, subject.most)
    meter, loop = Meter(dict(subject.roles)), Loop(once, -(-flight // subject.lump))
    if cell.server:
        meter.roles["server"] = cell.server
    # The latencies are read where the window ends: a caller that comes later is no part of it.
    await loop.window(min(2.0, cell.seconds / 3), cell.seconds, meter)
    latencies = sorted(loop.latencies)
    tasks = len(latencies) * subject.lump
    if not tasks:
        raise UnableError(f"not one task ended within {meter.took:.0f} s")
    cpu = sum(meter.cpu.values())
    return {
        "flight": flight,
        "tasks": tasks,
        "tasks_per_second": tasks / meter.took,
        "steps_per_second": tasks * cell.steps / meter.took,
        "p50_ms": percentile(latencies, 0.5) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
        "cpu_us_per_step": meter.cpu["process"] / tasks / cell.steps * 1e6,
        "all_cpu_us_per_step": cpu / tasks / cell.steps * 1e6,
        "memory_mib": sum(memory_of(pid) for name, pid in subject.roles.items() if name != "server"),
        "foreign_cores": meter.foreign,
    }


def look() -> None:
    """Let whoever started us look at the database server's counters, and wait until that is done."""
    sys.stdout.write("@look\n")
    sys.stdout.flush()
    sys.stdin.readline()


async def _counted(subject: Subject, traffic: Traffic) -> dict[str, Any]:
    """Run a fixed number of tasks, so many in flight, for the counters: SQLite's here, PostgreSQL's where we were started."""
    cell = subject.cell
    flight = min(cell.flight, subject.most)
    rest = cell.amount

    async def caller() -> None:
        nonlocal rest
        while rest > 0:
            rest -= subject.lump
            await (subject.undone if cell.workload == "undo" else subject.task)(cell.steps)

    look()
    before = traffic.copy()
    await asyncio.gather(*(caller() for _ in range(-(-flight // subject.lump))))
    look()
    if cell.store.startswith("sqlite"):
        difference = traffic - before
        return {
            "commits_per_task": difference.commits / cell.amount,
            "statements_per_task": difference.statements / cell.amount,
        }
    return {}


async def _ended(subject: Subject) -> dict[str, Any]:
    """Measure the closed loop beside no ended task and beside many; the store stays the same."""
    empty = await _closed(subject, lambda: subject.task(subject.cell.steps))
    await subject.ended(subject.cell.amount)
    full = await _closed(subject, lambda: subject.task(subject.cell.steps))
    return {**full, "slower_by": empty["tasks_per_second"] / full["tasks_per_second"]}


async def _waiting(subject: Subject) -> dict[str, Any]:
    """Measure what waiting tasks cost in memory, and how fast they come in."""
    roles = {name: pid for name, pid in subject.roles.items() if name != "server"}
    before = sum(memory_of(pid) for pid in roles.values())
    start = time.perf_counter()
    await subject.waiting(subject.cell.amount)
    took = time.perf_counter() - start
    after = sum(memory_of(pid) for pid in roles.values())
    return {
        "tasks_per_second": subject.cell.amount / took,
        "memory_mib": after,
        "bytes_per_task": max(0.0, after - before) * 1024 * 1024 / subject.cell.amount,
    }


_VERBS = {"undo": "undone", "ended": "ended", "waiting": "waiting", "takeover": "takeover"}
"""What a subject must be able to do for a workload."""


async def measure(subject: Subject, traffic: Traffic) -> dict[str, Any]:
    """Open the subject, measure its cell, close it."""
    cell = subject.cell
    if cell.place not in subject.places:
        raise UnableError(f"its actions do not run {cell.place}")
    verb = _VERBS.get(cell.workload)
    if verb is not None and getattr(type(subject), verb) is getattr(Subject, verb):
        await getattr(subject, verb)(0)  # says why, before anything is started
    await subject.open()
    try:
        if cell.count:
            answer = await _counted(subject, traffic)
        elif cell.workload == "undo":
            answer = await _closed(subject, lambda: subject.undone(cell.steps))
        elif cell.workload == "ended":
            answer = await _ended(subject)
        elif cell.workload == "waiting":
            answer = await _waiting(subject)
        elif cell.workload == "takeover":
            answer = dict(await subject.takeover(cell.amount))
        else:
            answer = await _closed(subject, lambda: subject.task(cell.steps))
    finally:
        await subject.close()
    return {**answer, "version": subject.version(), "durable": subject.durable}


Runner = Callable[[Coroutine[Any, Any, dict[str, Any]]], dict[str, Any]]
"""Runs a measurement on an event loop."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on uvloop where that is installed, else on asyncio's loop."""
    try:
        import uvloop  # noqa: PLC0415 - an extra of most environments
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def main(
    subject: Callable[[Cell], Any],
    within: Runner = run,
    measured: Callable[[Any], Coroutine[Any, Any, dict[str, Any]]] | None = None,
) -> None:
    """Read a cell from the first argument, measure, print the answer as the last line; what cannot be measured says why.

    ``within``: what else runs it, as the programs of the one that is measured do. ``measured``: measures workloads of its own.
    """
    cell = given()
    traffic = Traffic()
    try:
        if measured is not None:
            answer = within(measured(subject(cell)))
        elif cell.count and cell.store.startswith("sqlite"):
            with counting_sqlite(traffic):
                answer = within(measure(subject(cell), traffic))
        else:
            answer = within(measure(subject(cell), traffic))
    except UnableError as why:
        answer = {"unable": str(why)}
    sys.stdout.flush()
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # threads of a peer that never end must not hold the benchmark up


def given() -> Cell:
    """Return the cell in this process's first argument."""
    return Cell(**json.loads(sys.argv[1]))


def text_of(cell: Cell) -> str:
    """Return a cell as the argument that ``main`` reads."""
    return json.dumps(asdict(cell))
