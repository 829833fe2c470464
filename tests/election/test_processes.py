"""Real processes on real stores: killed, told to stop, stopped past their lease, cut off. Never two believers, always a successor."""

import asyncio
import contextlib
import fcntl
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from makegood.base.clock import SystemClock
from makegood.election import Election, open_leases
from makegood.election.command import UNKEPT
from makegood.election.process_group import now, read_deadline
from proofs.election_groups import FAULTS, Fault, Group, Run, bound
from proofs.halting import halt
from proofs.servers import LeaseServer, ServerKind

TTL = 4.0
"""Seconds: a leader that is told to stop must not lose its lease for the machine's sake before it has given it back."""
LATENCY = 20.0
"""Seconds by which a machine that is busy with other tests may be late: beside programs that kept its processors and its disk busy,
20 runs of 20 stayed within the bound itself. Whatever takes longer has a cause, as it had when a leader was stopped inside a
transaction on the SQLite file, which all groups share: nobody took over anything until it went on (see ``halting``).
"""


async def struck(url: str, fault: Fault, loop: str = "makegood") -> Run:
    """Let a fault happen to a leader among three processes."""
    rng = random.Random(f"{url} {fault}")
    async with Group(url, f"{loop} {fault}", ttl=TTL, loop=loop, rng=rng) as group:
        return await group.run(fault, watch=bound(TTL, fault, TTL / 5) + LATENCY)


async def test_a_leader_that_is_struck_has_one_successor_in_time_and_no_overlap(
    tmp_path: Path, database: str
) -> None:
    """On SQLite and on PostgreSQL. And the measurement can tell: on a port of the sample's loop, cut off, the old leader goes on."""
    file = f"sqlite:///{tmp_path / 'leases.db'}"
    struck_at = [
        (url, fault) for url in (file, database) for fault in FAULTS if fault != "black hole" or url != file
    ]
    *runs, sample = await asyncio.gather(
        *(struck(url, fault) for url, fault in struck_at), struck(database, "black hole", loop="sample")
    )
    for (url, fault), run in zip(struck_at, runs, strict=True):
        where = f"{fault} on {url.partition(':')[0]}: {run}"
        assert run.over is not None, (
            f"nobody took over within {bound(TTL, fault, TTL / 5) + LATENCY:.1f} s: {where}"
        )
        assert run.overlaps == 0, where
        assert run.accepted == 0, f"a stale write was accepted: {where}"
        assert run.stale == run.refused
    for url in (file, database):
        assert True in await terms_of(url, "makegood SIGTERM"), "nothing was given back at SIGTERM"
    assert sample.overlaps > 10, sample


SERVERS: dict[ServerKind, float] = {"redis": 1.2, "nats": 1.2, "etcd": 2.0, "azurite": 15.0}
"""The ttl on each: the shortest that etcd and Azure have."""


@pytest.mark.parametrize("kind", SERVERS)
async def test_on_every_server_a_leader_that_is_killed_or_stopped_past_its_lease_has_one_successor(
    lease_server: Callable[[ServerKind], LeaseServer], kind: ServerKind
) -> None:
    """The server's own expiry hands over, and who wakes up late neither believes nor gets a write accepted."""
    url, ttl = lease_server(kind).url, SERVERS[kind]

    async def run(fault: Fault) -> Run:
        rng = random.Random(f"{kind} {fault}")
        group = Group(
            url,
            f"struck {fault}",
            ttl=ttl,
            rng=rng,
            candidates=2,
            retry=min(ttl / 3, 1.0),
            pace=min(ttl, 1.2),
        )
        async with group:
            return await group.run(fault, watch=bound(ttl, fault, ttl / 5) + 3 * LATENCY)

    faults: tuple[Fault, ...] = ("SIGKILL", "SIGSTOP")
    for fault, takeover in zip(faults, await asyncio.gather(*map(run, faults)), strict=True):
        where = f"{fault} on {kind}: {takeover}"
        assert takeover.over is not None, f"nobody took over: {where}"
        assert (takeover.overlaps, takeover.accepted) == (0, 0), where
        assert takeover.stale == takeover.refused, where
    async with open_leases(url) as leases:
        epochs = [term.epoch for term in await Election("struck SIGKILL", leases).history()]
    assert epochs == sorted(set(epochs), reverse=True)
    assert len(epochs) >= 2


async def terms_of(url: str, name: str) -> list[bool]:
    """Return of each past term whether it was given back."""
    async with open_leases(url) as leases:
        return [term.released for term in await Election(name, leases).history()]


# -- a command that runs only while leading -------------------------------------------------------------------------------

CHILD = "echo $MAKEGOOD_EPOCH >> log; trap '' TERM; sleep 60 & sleep 61"


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start ``makegood election run lead`` with further words."""
    return subprocess.Popen(
        [sys.executable, "-m", "makegood", "election", "run", "lead", "--store", "sqlite:///leases.db", *words],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return exit code and stderr."""
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def test_election_run_exits_with_the_commands_code(tmp_path: Path) -> None:
    both = [
        started(tmp_path, "--", "sh", "-c", 'test "$MAKEGOOD_ELECTION" = lead && exit 42'),
        subprocess.Popen(
            [sys.executable, "-m", "makegood", "election", "run", "other", "--store", "sqlite:///leases.db", "--", "no-such-command"],
            cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        ),
    ]  # fmt: skip
    (code, err), (missing, why) = [finished(process) for process in both]
    assert (code, missing) == (42, 127)
    assert "leads 'lead', epoch 1" in err
    assert "no-such-command: No such file" in why


def test_a_candidate_that_is_killed_or_stopped_takes_its_command_along_and_its_successor_begins_after(
    tmp_path: Path,
) -> None:
    """Nobody is left to renew, nor to stop the command: its keeper does, before the lease runs out."""
    struck_by = {}
    for number in (signal.SIGKILL, signal.SIGSTOP):
        folder = tmp_path / number.name
        folder.mkdir()
        first = started(folder, "--ttl", "8s", "--wind-down", "0.3s", "--once", "--", "sh", "-c", CHILD)
        group = group_of(folder, first)
        if number == signal.SIGSTOP:
            halt(first.pid, f"sqlite:///{folder}/leases.db")
        else:
            first.send_signal(number)
        after = f"kill -0 -- -{group} 2>/dev/null && exit 9; exit 0"
        struck_by[number] = first, started(folder, "--ttl", "8s", "--", "sh", "-c", after)
    for number, (first, second) in struck_by.items():
        assert finished(second)[0] == 0, f"{number.name}: the command was alive when its successor began"
        first.send_signal(signal.SIGCONT)
        assert finished(first)[0] in ((-9,) if number == signal.SIGKILL else (4, 137))


def test_sigterm_ends_the_command_and_gives_the_lease_back(tmp_path: Path) -> None:
    first = started(tmp_path, "--ttl", "30s", "--wind-down", "0.2s", "--", "sh", "-c", CHILD)
    group = group_of(tmp_path, first)
    waiting = started(tmp_path, "--wait", "0.5s", "--", "true")
    code, err = finished(waiting)
    assert code == 7
    assert "did not lead 'lead' within 500ms" in err
    first.send_signal(signal.SIGTERM)
    assert finished(first)[0] == 0
    assert alive(group) == []
    assert asyncio.run(terms_of(f"sqlite:///{tmp_path / 'leases.db'}", "lead")) == [True]


BEATS = """
import os, signal, sys, time
if sys.argv[1:] != ["away"]:
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, [sys.executable, __file__, "away"])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
log = os.open("beats", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with open("pids", "a") as pids:
    pids.write(f"{os.getpid()}\\n")
while True:
    os.write(log, b"%f\\n" % time.monotonic())
    time.sleep(0.02)
"""
"""Ignores SIGTERM, and so does what it starts in a session of its own."""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the process group is all that is ended")
@pytest.mark.parametrize("target", ["keeper killed", "keeper stopped", "candidate killed", "both told"])
def test_nothing_of_the_command_runs_when_its_lease_is_given_back(tmp_path: Path, target: str) -> None:
    """Neither the command nor what it started in a session of its own, whoever of keeper and candidate is struck."""
    (tmp_path / "beats.py").write_text(BEATS)
    first = started(tmp_path, "--ttl", "8s", "--wind-down", "0.3s", "--", sys.executable, "beats.py")
    pids = asyncio.run(lines(tmp_path / "pids", 2))
    (keeper,) = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    number = signal.SIGTERM if "told" in target else signal.SIGSTOP if "stopped" in target else signal.SIGKILL
    os.kill(first.pid if target.startswith(("cand", "both")) else int(keeper), number)
    if target == "keeper stopped":
        first.terminate()
    second = started(tmp_path, "--", "sh", "-c", "".join(f"kill -0 {p} 2>/dev/null && exit 9; " for p in pids) + "exit 0")  # fmt: skip
    code, err = finished(first)
    assert finished(second)[0] == 0, "something of the command was alive when its successor began"
    assert code == {"keeper killed": UNKEPT, "candidate killed": -9}.get(target, 0), err
    assert ("was killed, so the command was ended" in err) == (target == "keeper killed")
    assert "Traceback" not in err


async def lines(path: Path, number: int) -> list[str]:
    """Wait until a file has so many lines; return them."""
    async with asyncio.timeout(120):
        while not path.exists() or path.read_text().count("\n") < number:  # noqa: ASYNC240 - nobody else waits on this loop
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await asyncio.Event().wait()
    return path.read_text().split()  # noqa: ASYNC240 - as above


def group_of(folder: Path, candidate: subprocess.Popen[str]) -> int:
    """Wait for the command to begin; return its process group."""
    asyncio.run(written(folder / "log"))
    keepers = Path(f"/proc/{candidate.pid}/task/{candidate.pid}/children").read_text().split()
    (command,) = [
        c for keeper in keepers for c in Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    ]
    return os.getpgid(int(command))


def alive(group: int) -> list[str]:
    """Return the processes of a group that run; the dead whom nobody has buried yet do not count."""
    names = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, state, _, its, *_ = stat.read_text().partition("(")[2].replace(") ", " ").split(" ")
            if int(its) == group and state != "Z":
                names.append(name)
    return names


async def written(path: Path) -> None:
    """Wait until a file has something in it."""
    async with asyncio.timeout(120):
        while not path.exists() or not path.stat().st_size:  # noqa: ASYNC240 - nobody else waits on this loop
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await asyncio.Event().wait()


def test_the_keeper_s_clock_is_the_elections() -> None:
    assert abs(now() - SystemClock().monotonic()) < 1


def test_the_keeper_hears_on_a_pipe_whose_number_is_above_1_023() -> None:
    """A candidate with a thousand open files gives it such a number, which ``select`` refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    low, write = os.pipe()
    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1500)
        os.write(write, b"12.5\n")
        assert read_deadline(high, bytearray(), 10) == (12.5, False)
        assert read_deadline(high, bytearray(), 0) == (None, False)
        os.close(high)
    finally:
        os.close(low)
        os.close(write)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
