"""Processes of fault tests, each a fork of one that has imported what they need: to start Python and to import it all is most of
what such a test would cost.

What forks does it twice and ends the one between, so that the new process is a child of whoever asked for it: that one waits for it,
sees how it ended, and takes it along when it dies itself (``die_with_parent``). It has all that a program has of its own: environment, folder,
process group, input and output, memory, chance; in it runs the module that it is to be, as ``python -m`` would run it.

``python -m tests.processes.fork_server NUMBER`` is what forks; NUMBER is that of its socket.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.processes.die_with_parent import PR_SET_PDEATHSIG, control

ROOT = Path(__file__).resolve().parents[2]
PR_SET_CHILD_SUBREAPER = 36
LONGEST = 1 << 17
WANTED = (
    "makegood.cli",
    "makegood.node",
    "makegood.store.sqlite",
    "tests.processes.fault_app",
    "tests.processes.fault_points",
)


class Forked:
    """A child process of ours; of ``subprocess.Popen`` as much as is needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, or minus the signal that it died of; None while it has not ended."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return the same; raises ``TimeoutExpired``."""
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.001)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end in good order."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks, seen from outside. It begins when something is first wanted of it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def close(self) -> None:
        """End it; what it has forked goes on."""
        if self._process is not None and self._socket is not None:
            self._socket.close()
            self._process.wait()
            self._process = self._socket = None

    def launch(
        self, command: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str]
    ) -> Forked:
        """Start a process, ``python -m`` with ``command``, in a folder; what it prints goes to ``log``."""
        order = {"command": command, "folder": str(folder), "log": str(log), "environment": environment}
        log.write_bytes(b"")
        connection = self._begun()
        control(PR_SET_CHILD_SUBREAPER, 1)  # whoever loses its parent now becomes our child
        try:
            connection.send(json.dumps({**order, "parent": os.getpid()}, default=dict).encode())
            pid = int(connection.recv(LONGEST))
        finally:
            control(PR_SET_CHILD_SUBREAPER, 0)
        return Forked(pid)

    def _begun(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                number = theirs.fileno()
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "tests.processes.die_with_parent",
                        "tests.processes.fork_server",
                        str(number),
                    ],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[number],
                    process_group=0,
                    env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PYTHONUNBUFFERED": "1"},
                )
        return self._socket


def forked(asker: socket.socket) -> dict[str, Any] | None:
    """Fork whenever asked to. Returns in each new process, with what was asked; None in the old one, when nobody asks any more."""
    while order := asker.recv(LONGEST):
        readable, writable = os.pipe()
        between = os.fork()
        if not between:
            between = os.getpid()
            pid = os.fork()
            if pid:
                os.write(writable, str(pid).encode())
                os._exit(0)
            while os.getppid() == between:
                time.sleep(0.0002)
            os.close(readable)
            os.close(writable)
            program: dict[str, Any] = json.loads(order)
            return program
        os.close(writable)
        os.waitpid(between, 0)
        asker.send(os.read(readable, 32))
        os.close(readable)
    return None


def become(order: dict[str, Any]) -> None:
    """Make this process the one that was asked for, and run its module."""
    control(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != order["parent"]:
        os._exit(1)  # it has died meanwhile
    os.setpgid(0, 0)
    os.chdir(order["folder"])
    with Path(order["log"]).open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:0] = [order["folder"], *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv = order["command"]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def main() -> None:
    """Import what is wanted, then fork."""
    for name in WANTED:
        importlib.import_module(name)
    if find_spec("asyncpg") is not None:
        importlib.import_module("makegood.store.postgres")
    gc.collect()
    gc.freeze()  # what is shared stays shared
    with socket.socket(fileno=int(sys.argv[1])) as asker:
        order = forked(asker)
    if order is not None:
        become(order)


if __name__ == "__main__":
    main()
