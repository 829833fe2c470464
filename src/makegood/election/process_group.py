"""Runs a command in its own process group, and ends it, with all that it started, when its leader's term is
over.

It is a process of its own, started by path with nothing of makegood in it. Whatever happens to the candidate
that started it (stopped by a signal, killed, stuck), it keeps the deadline that the candidate wrote last. It
reads lines from a pipe: a number is the deadline, on the clock that runs through suspend; ``stop`` means at
once; the end of the pipe means that the candidate is gone. It sends SIGTERM to the command ``wind_down``
seconds before the deadline, SIGKILL at it. Into another pipe it writes the number of the group, and in the
end ``over``, the exit code of the command and the time. If that line is missing, this process was killed, and
the candidate ends the group in its place.

On Linux a session of its own is no escape either: this process is the parent of all orphans below it (a
*subreaper*), and exits only when it has no child any more. Linux also kills the command when this process is
killed. Elsewhere only the process group is ended.

    process_group.py PIPE REPORT GRACE DEADLINE COMMAND...
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

LOOK = 0.25
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = sys.platform == "linux"
CANNOT_RUN, NOT_FOUND = 126, 127


def now() -> float:
    """Read the clock that runs through suspend, where there is one."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


def bind_to_keeper(keeper: int, report: int) -> None:
    """In the child: set its own process group, reported before anything runs in it, and an end together with
    the keeper.
    """
    os.setpgid(0, 0)
    try:
        os.write(report, f"{os.getpid()}\n".encode())
    except BrokenPipeError:  # The candidate was killed a moment ago.
        os._exit(CANNOT_RUN)
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # It was killed a moment ago.
        os._exit(CANNOT_RUN)


def adopt() -> None:
    """Become the parent of every orphan below this process, where the system has such a thing."""
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def below(ancestor: int) -> list[int]:
    """Return the running processes below ``ancestor``; zombies do not count. Linux only."""
    alive, parents = set(), {}
    for stat in Path("/proc").glob("[0-9]*/stat") if LINUX else ():
        try:
            state, parent = stat.read_bytes().rpartition(b") ")[2].split()[:2]
        except (OSError, ValueError):
            continue  # It has just ended.
        process = int(stat.parent.name)
        parents[process] = int(parent)
        if state not in (b"Z", b"X"):
            alive.add(process)

    def descends(process: int) -> bool:
        while process in parents:
            process = parents[process]
            if process == ancestor:
                return True
        return False

    return [process for process in alive if descends(process)]


def bury(but: int) -> bool:
    """Reap orphans that have ended; return whether any child is left. ``but``: a child that other code waits
    for.
    """
    try:
        while (child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if child.si_pid in (0, but):
                return True
            os.waitpid(child.si_pid, 0)
    except ChildProcessError:
        return False
    return True


def read_deadline(pipe: int, text: bytearray, wait: float) -> tuple[float | None, bool]:
    """Wait for input; return the latest deadline that was written, and whether to stop now."""
    poll = select.poll()  # The number may be above the 1,023 that select takes: it is that of the parent.
    poll.register(pipe, select.POLLIN)
    if not poll.poll(wait * 1000):
        return None, False
    data = os.read(pipe, 4096)
    if not data:
        return None, True
    text += data
    *lines, tail = bytes(text).split(b"\n")
    text[:] = tail
    numbers = [float(line) for line in lines if line != b"stop"]
    return (numbers[-1] if numbers else None), b"stop" in lines


def signal_group(group: int, number: int) -> None:
    """Send a signal to the remaining processes of a group, and on Linux to all others below this process."""
    # No process is left, or it belongs to another user.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for process in below(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process) != group:
                signal_process(process, number)


def signal_process(process: int, number: int) -> bool:
    """Send a signal to one process; return whether that is allowed."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return True


def end_all_below() -> None:
    """End all processes below this one: one after another becomes its child, until there is none."""
    while LINUX and bury(0):
        alive = below(os.getpid())
        survivors = [process for process in alive if not signal_process(process, signal.SIGKILL)]
        if alive and len(survivors) == len(alive):
            sys.stderr.write(f"makegood: the command left processes that may not be ended: {survivors}\n")
            return
        time.sleep(LOOK / 50)


def keep(child: "subprocess.Popen[bytes]", pipe: int, wind_down: float, deadline: float) -> int:
    """Wait for the command's end, or bring it about; return its exit code."""
    text, is_ending, stop_at = bytearray(), False, 0.0
    while child.poll() is None:
        bury(child.pid)
        limit = min(deadline, stop_at + wind_down) if is_ending else deadline - wind_down
        left = limit - now()
        if left <= 0 and is_ending:
            break
        if is_ending:
            time.sleep(min(left, LOOK / 10))
            continue
        stop = left <= 0
        if not stop:
            new_deadline, stop = read_deadline(pipe, text, min(left, LOOK))
            deadline = deadline if new_deadline is None else new_deadline
        if stop:
            is_ending, stop_at = True, now()
            signal_group(child.pid, signal.SIGTERM)
    signal_group(child.pid, signal.SIGKILL)  # Also what the command left behind.
    code = child.wait()
    end_all_below()
    return code if code >= 0 else 128 - code


def main(words: list[str]) -> int:
    """Run a command; return its exit code: 128 + n if signal n ended it, 127 not found, 126 cannot be run."""
    pipe, report, wind_down, deadline, *command = words
    me = os.getpid()
    for signal_number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signal_number, signal.SIG_IGN)
    adopt()

    def restore_signals() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        bind_to_keeper(me, int(report))

    try:
        child = subprocess.Popen(command, preexec_fn=restore_signals)  # noqa: PLW1509 - one thread only
    except OSError as fault:
        sys.stderr.write(f"makegood: {command[0]}: {fault.strerror}\n")
        code = NOT_FOUND if isinstance(fault, FileNotFoundError) else CANNOT_RUN
    else:
        code = keep(child, int(pipe), float(wind_down), float(deadline))
    with contextlib.suppress(BrokenPipeError):  # the candidate is gone
        os.write(int(report), f"over {code} {now()}\n".encode())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
