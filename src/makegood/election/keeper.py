"""Runs a command in a process group of its own, and ends that group when the term of its leader is over.

A process of its own, started by path with nothing of makegood in it: whatever becomes of the candidate that started it (stopped
by a signal, killed, stuck), the deadline it wrote last is kept here. It reads lines from a pipe: a number is the deadline, on
the clock that runs through suspend; ``stop`` means at once; the end of the pipe means that the candidate is gone. SIGTERM
goes to the group ``grace`` seconds before the deadline, SIGKILL at it. Linux kills the command when this process is killed.

    keeper.py PIPE GRACE DEADLINE COMMAND...
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

LOOK = 0.25
PR_SET_PDEATHSIG = 1
CANNOT_RUN, NOT_FOUND = 126, 127


def now() -> float:
    """Read the clock that runs through suspend, where there is one."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)


def bound() -> None:
    """In the child: a process group of its own, and an end together with this process."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def told(pipe: int, text: bytearray, wait: float) -> tuple[float | None, bool]:
    """Wait for word; return the latest deadline that was written, and whether to stop now."""
    readable, _, _ = select.select([pipe], [], [], wait)
    if not readable:
        return None, False
    data = os.read(pipe, 4096)
    if not data:
        return None, True
    text += data
    *lines, rest = bytes(text).split(b"\n")
    text[:] = rest
    numbers = [float(line) for line in lines if line != b"stop"]
    return (numbers[-1] if numbers else None), b"stop" in lines


def signalled(group: int, number: int) -> None:
    """Send a signal to whoever is left of a group."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def keep(child: "subprocess.Popen[bytes]", pipe: int, grace: float, deadline: float) -> int:
    """Wait for the command's end, or bring it about; return its exit code."""
    text, asked, stopping = bytearray(), False, 0.0
    while child.poll() is None:
        limit = min(deadline, stopping + grace) if asked else deadline - grace
        left = limit - now()
        if left <= 0 and asked:
            break
        if left <= 0:
            asked, stopping = True, now()
            signalled(child.pid, signal.SIGTERM)
            continue
        if asked:
            time.sleep(min(left, LOOK / 10))
            continue
        later, stop = told(pipe, text, min(left, LOOK))
        deadline = deadline if later is None else later
        if stop:
            asked, stopping = True, now()
            signalled(child.pid, signal.SIGTERM)
    signalled(child.pid, signal.SIGKILL)  # those too whom the command left behind
    code = child.wait()
    return code if code >= 0 else 128 - code


def main(words: list[str]) -> int:
    """Run a command; return its exit code: 128 + n when signal n ended it, 127 not found, 126 cannot be run."""
    pipe, grace, deadline, *command = words
    for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)

    def restored() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        bound()

    try:
        child = subprocess.Popen(command, preexec_fn=restored)  # noqa: PLW1509 - one thread only
    except FileNotFoundError as missing:
        sys.stderr.write(f"makegood: {command[0]}: {missing.strerror}\n")
        return NOT_FOUND
    except OSError as barred:
        sys.stderr.write(f"makegood: {command[0]}: {barred.strerror}\n")
        return CANNOT_RUN
    return keep(child, int(pipe), float(grace), float(deadline))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
