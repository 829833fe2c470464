"""How long a step waits whose process was killed with SIGKILL, from the kill to the beginning of its next attempt.

    .venv/bin/python -m benchmarks.deaths --runs 5 --peers dbos,restate

Real processes. Each run has a step that would take ten minutes; it notes when it begins. Its process is killed in the middle, and where
it is the only one it is started again at once, as a process manager would:

- ``makegood, alone``: one process with all roles, killed and started again;
- ``makegood, agents``: two processes with agents beside one with the other roles; one of the agents is killed;
- ``makegood, another host``: the same, without what shows on one host that a process is gone: only its heartbeat (``dead_after`` 5 s);
- ``DBOS``, ``Restate``: the process of the workflow, or of the service, killed and started again; Restate's server lives on.

A process that is started again needs some of that time to load its modules (stderr says how much). The settings of makegood are the default ones. The table goes to stdout: the shortest, median and longest of the runs, in seconds.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import makegood as mg
from benchmarks.environments import ROOT, MissingError, interpreter
from makegood.base import process_identity

FOLDER = "MAKEGOOD_BENCH_FOLDER"
LONG = 600.0
"""Seconds that the first attempt would take."""
PATIENCE = 120.0
CASES = ("alone", "agents", "another host")
PEERS = ("dbos", "restate")

app = mg.App("deaths")
desk = app.agent("desk")


def begin(folder: Path) -> bool:
    """Note that the step begins; return whether it is the first time."""
    with (folder / "begun").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {time.monotonic()}\n")
    return len(beginnings(folder)) == 1


def beginnings(folder: Path) -> list[tuple[int, float]]:
    """Return which process began the step, and when, in order."""
    file = folder / "begun"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [(int(pid), float(at)) for pid, at in (line.split() for line in lines)]


@desk.action(complete_within="20m", undo=mg.NOTHING, recover=mg.Recover(resume="dead"))
async def work() -> None:
    """Note the beginning; the first time, take long."""
    if begin(Path(os.environ[FOLDER])):
        await asyncio.sleep(LONG)


@app.workflow
def once() -> None:
    """One step."""
    work()


async def serve(roles: Sequence[str], *, submits: bool, is_elsewhere: bool) -> None:
    """Be one process of makegood. ``is_elsewhere``: as if each process were on a host of its own."""
    if is_elsewhere:
        process_identity.own = lambda: None
    async with mg.Node(app, f"sqlite:///{os.environ[FOLDER]}/store.db", roles=roles or None) as node:
        print("ready", flush=True)
        if submits:
            await node.client.submit(once, key="once")
        await asyncio.Event().wait()


@contextlib.contextmanager
def processes_for_a_while() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep processes, and kill those that are left."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        yield processes
    finally:
        for process in processes:
            kill(process.pid)
            process.wait()


def kill(pid: int) -> None:
    """Kill a process and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(os.getpgid(pid), signal.SIGKILL)


def start(folder: Path, *command: str | Path) -> subprocess.Popen[bytes]:
    """Start a process that prints "ready", and wait until it does."""
    environment = {**os.environ, FOLDER: str(folder)}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == b"ready":
            return process
    kill(process.pid)  # what it has started lives on
    raise SystemExit(f"a process has ended: {(folder / 'log').read_text(encoding='utf-8')[-2000:]}")


def until(folder: Path, count: int) -> tuple[int, float]:
    """Wait until the step has begun so often; return by which process, and when."""
    end = time.monotonic() + PATIENCE
    while len(entries := beginnings(folder)) < count:
        if time.monotonic() > end:
            raise SystemExit(f"the step did not begin {count} times within {PATIENCE:g} s")
        time.sleep(0.005)
    return entries[count - 1]


def of_makegood(folder: Path, case: str) -> float:
    """Return the seconds from the kill to the next attempt of makegood."""
    serve_it = [sys.executable, "-m", "benchmarks.deaths", "--serve"]
    elsewhere = ["--elsewhere"] if case == "another host" else []
    with processes_for_a_while() as processes:
        if case == "alone":
            processes.append(start(folder, *serve_it, "", "--submit"))
        else:
            processes += [start(folder, *serve_it, "agent", *elsewhere) for _ in range(2)]
            processes.append(start(folder, *serve_it, "scheduler,supervisor", "--submit", *elsewhere))

        def again() -> None:
            if case == "alone":
                processes.append(start(folder, *serve_it, ""))

        return _kill(folder, again)


def of_peer(folder: Path, peer: str) -> float:
    """Return the same of a peer, whose process is started again."""
    command: list[str | Path] = [interpreter(peer), "-m", f"benchmarks.peers.deaths_{peer}", folder]
    with processes_for_a_while() as processes:
        try:
            processes.append(start(folder, *command, "first"))
            return _kill(folder, lambda: processes.append(start(folder, *command, "again")))
        finally:
            for file in folder.glob("*.pid"):  # a server that lives on
                kill(int(file.read_text(encoding="utf-8")))


def _kill(folder: Path, again: Callable[[], None]) -> float:
    pid, _ = until(folder, 1)
    time.sleep(2.5)  # it has had its heartbeats, and a Supervisor its first pass
    killed_at = time.monotonic()
    kill(pid)
    again()
    print(f"  started again after {time.monotonic() - killed_at:.2f} s", file=sys.stderr)
    return until(folder, 2)[1] - killed_at


def main() -> None:
    """Measure, or be one of the processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", default="", help=", ".join(PEERS))
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--submit", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--elsewhere", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        roles = [role for role in arguments.serve.split(",") if role]
        asyncio.run(serve(roles, submits=arguments.submit, is_elsewhere=arguments.elsewhere))
        return
    print(f"{'':<24} {'shortest':>9} {'median':>9} {'longest':>9}   seconds, {arguments.runs} runs")
    for case in CASES:
        _report(f"makegood, {case}", arguments.runs, partial(of_makegood, case=case))
    for peer in [name for name in arguments.peers.split(",") if name]:
        try:
            _report(peer, arguments.runs, partial(of_peer, peer=peer))
        except MissingError as why:
            print(f"{peer:<24} {why}")


def _report(name: str, runs: int, measure: Callable[[Path], float]) -> None:
    figures = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            figures.append(measure(Path(folder)))
    print(f"{name:<24} {min(figures):>9.2f} {median(figures):>9.2f} {max(figures):>9.2f}", flush=True)


if __name__ == "__main__":
    main()
