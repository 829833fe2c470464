"""A fleet: processes of makegood on one store, put together in one of three shapes, measured for a window.

==========  ==============================================================  =====================================
shape       processes                                                       commits of a task of n steps
==========  ==============================================================  =====================================
inside      N engines, each of which submits its own tasks                  n + 1
together    N engines, and submitters apart                                 n + 2
apart       N Schedulers, N processes with agents, and submitters           n + 2 of the Scheduler, 2 n of agents
==========  ==============================================================  =====================================

An engine is a Scheduler with its agents in one process (``makegood run``). The first one has the Supervisor, too.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from benchmarks.crew import STEPS, Kind, Member, text_of
from benchmarks.environments import ROOT
from benchmarks.meters import cpu_of, memory_of, percentile
from benchmarks.observed import LISTENERS, Listeners, Moment, Server
from makegood.store import open_store

Shape = Literal["inside", "together", "apart"]
SHAPES: tuple[Shape, ...] = ("inside", "together", "apart")
_READY, _ANSWER = 60.0, 60.0


class FleetError(Exception):
    """A process of the fleet ended or fell silent; says which."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A fleet: ``processes`` engines, or Schedulers with as many processes of agents; ``flight`` tasks at once in all of it.

    ``listeners``: further connections that only listen.
    """

    shape: Shape
    processes: int
    flight: int
    submitters: int = 1
    listeners: int = 0

    def members(self, url: str) -> list[tuple[str, Member]]:
        """Return the processes, each with a name: its kind, which its connections carry as well."""
        kinds: list[Kind] = {
            "inside": ["engine"], "together": ["engine"], "apart": ["scheduler", "agents"],
        }[self.shape] * self.processes  # type: ignore[assignment]  # fmt: skip
        drivers = self.processes if self.shape == "inside" else self.submitters
        shares = [
            self.flight // drivers + (n < self.flight % drivers) for n in range(min(drivers, self.flight))
        ]
        members = []
        for n, kind in enumerate(kinds):
            flight = shares[n] if self.shape == "inside" and n < len(shares) else 0
            members.append((kind, Member(kind, named(url, kind), flight, leads=n == 0)))
        if self.shape != "inside":
            members += [
                ("submitter", Member("submitter", named(url, "submitter"), share)) for share in shares
            ]
        return [(str(kind), member) for kind, member in members]


def named(url: str, name: str) -> str:
    """Return the URL with a name that the server shows of each connection."""
    return f"{url}{'&' if '?' in url else '?'}application_name={quote(name)}"


@dataclass(slots=True)
class Fleet:
    """Processes that run. ``processes``: kind and process of each."""

    plan: Plan
    processes: list[tuple[str, Member, asyncio.subprocess.Process]] = field(default_factory=list)

    async def start(self, url: str) -> None:
        """Start all, and wait until each says that it is ready."""
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONWARNINGS": "ignore"}
        for kind, member in self.plan.members(url):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "benchmarks.crew", text_of(member), cwd=ROOT, env=environment, limit=2**26,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            self.processes.append((kind, member, process))
        for kind, _, process in self.processes:
            if await self._line(kind, process, _READY) != "ready":
                raise FleetError(f"the {kind} did not start")

    async def _line(self, kind: str, process: asyncio.subprocess.Process, limit: float) -> str:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(limit):
                line = await process.stdout.readline()
        except TimeoutError:
            raise FleetError(f"the {kind} said nothing within {limit:g} s") from None
        if not line:
            raise FleetError(f"the {kind} ended with {await process.wait()}")
        return line.decode().strip()

    async def tell(self, word: str) -> None:
        """Tell all that have callers."""
        for _, member, process in self.processes:
            if member.flight and process.stdin is not None:
                process.stdin.write(f"{word}\n".encode())
                await process.stdin.drain()

    async def answers(self) -> list[dict[str, Any]]:
        """Return what those with callers have measured."""
        return [
            json.loads(await self._line(kind, process, _ANSWER))
            for kind, member, process in self.processes
            if member.flight
        ]

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far, by kind."""
        seconds: dict[str, float] = {}
        for kind, _, process in self.processes:
            seconds[kind] = seconds.get(kind, 0.0) + cpu_of(process.pid)
        return seconds

    def memory(self) -> dict[str, float]:
        """Return the memory of one process of each kind, in MiB (PSS): the mean."""
        by_kind: dict[str, list[float]] = {}
        for kind, _, process in self.processes:
            by_kind.setdefault(kind, []).append(memory_of(process.pid))
        return {kind: sum(sizes) / len(sizes) for kind, sizes in by_kind.items()}

    async def stop(self) -> None:
        """Let all drain; what does not is killed."""
        for _, _, process in self.processes:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.write(b"stop\n")
                    process.stdin.close()
        for _, _, process in self.processes:
            try:
                async with asyncio.timeout(15):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def measured(plan: Plan, url: str, seconds: float, warm: float) -> dict[str, Any]:
    """Start a fleet on an empty store, let it warm up, measure for a window; returns figures and costs. Raises ``FleetError``."""
    store = open_store(url)
    await store.open(migrate=True)
    await store.close()
    fleet, server = Fleet(plan), await Server.of(url)
    listeners = None
    try:
        await fleet.start(url)
        if plan.listeners:
            listeners = await Listeners.of(url, plan.listeners)
        await fleet.tell("go")
        await asyncio.sleep(warm)
        before, cpu = await server.moment(), fleet.cpu()
        notifications = listeners.heard if listeners is not None else 0
        server.look()
        await fleet.tell("begin")
        await asyncio.sleep(seconds)
        await fleet.tell("end")
        waits, answers = await server.looked(), await fleet.answers()
        after, cpu_after = await server.moment(), fleet.cpu()
        usage = {kind: cpu_after[kind] - cpu[kind] for kind in cpu_after}
        result = figures(plan, answers, before, after, usage)
        if listeners is not None:
            notifications = listeners.heard - notifications
            listener_seconds = after.cpu.get(LISTENERS, 0.0) - before.cpu.get(LISTENERS, 0.0)
            result["notifications_per_task"] = notifications / result["tasks"]
            result["listener_server_us"] = listener_seconds / plan.listeners / max(1, notifications) * 1e6
        return {**result, "memory_mib": fleet.memory(), "waits": waits}
    finally:
        await fleet.stop()
        if listeners is not None:
            await listeners.close()
        await server.close()


def figures(
    plan: Plan, answers: Sequence[dict[str, Any]], before: Moment, after: Moment, cpu: dict[str, float]
) -> dict[str, Any]:
    """Return rates and costs of a window from the counters at its ends. CPU of the clients: ``cpu``, in seconds by kind."""
    latencies = sorted(value for answer in answers for value in answer["latencies_ms"])
    tasks, took = len(latencies), max(float(answer["seconds"]) for answer in answers)
    if not tasks:
        raise FleetError("not one task ended in the window")
    growth = {
        name: value - before.numbers[name] for name, value in after.numbers.items() if name in before.numbers
    }
    server = {name: value - before.cpu.get(name, 0.0) for name, value in after.cpu.items()}
    steps = tasks * STEPS
    busy = after.busy - before.busy
    # The counters were read a little outside the window: what is counted there is brought to its length.
    share = took / (after.at - before.at)
    result: dict[str, Any] = {
        "shape": plan.shape, "processes": plan.processes, "flight": plan.flight, "tasks": tasks, "seconds": took,
        "tasks_per_second": tasks / took, "steps_per_second": steps / took, "p50_ms": percentile(latencies, 0.5),
        "p99_ms": percentile(latencies, 0.99),
        "mean_ms": sum(latencies) / tasks,
        "client_us": {kind: value * share / steps * 1e6 for kind, value in cpu.items()},
        "commits_per_task": growth["written"] * share / tasks,
        "commits_per_second": growth["written"] * share / took,
        "wal_bytes_per_step": growth["wal_bytes"] * share / steps,
        "kept_bytes_per_task": growth.get("kept_bytes", 0.0) * share / tasks,
        "connections": {kind: after.connections.get(kind, 0) / _count(plan, kind) for kind in cpu},
        "busy_cores": busy / (after.at - before.at),
    }  # fmt: skip
    if flushes := growth.get("flushes"):
        result["flushes_per_second"] = flushes * share / took
        result["flush_ms"] = growth.get("flush_ms", 0.0) / flushes
    if "server" in server:
        # What only listens or looks is no part of what tasks cost.
        seconds = server["server"] - server.get(LISTENERS, 0.0)
        result["server_us"] = seconds * share / steps * 1e6
        result["server_us_by"] = {kind: server.get(kind, 0.0) * share / steps * 1e6 for kind in cpu}
        ours = seconds + server.get(LISTENERS, 0.0) + sum(cpu.values())
        result["foreign_cores"] = max(0.0, busy - ours) / (after.at - before.at)
    return result


def _count(plan: Plan, kind: str) -> int:
    """Return how many processes of a kind a fleet has."""
    return plan.submitters if kind == "submitter" else plan.processes
