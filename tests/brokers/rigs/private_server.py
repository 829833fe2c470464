"""A private server that is one program: in a temporary folder, on a free port, gone when the tests' process ends, even if that is killed."""

import atexit
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from examples.orders.free_port import free_port
from makegood.errors import StoreUnavailableError

_START = 60.0
_LOOK = 0.05
_GUARD = 'read nothing; kill -9 "$1"; rm -rf "$2"'


class PrivateServer:
    """``words``: returns its command for a folder and a port."""

    def __init__(self, name: str, words: Callable[[Path, int], list[str]]) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix=f"makegood-{name}-"))
        self.port = free_port()
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def start(self) -> None:
        """Start it, or start it again on its port and in its folder, and wait until it can be reached."""
        words = self._words(self.folder, self.port)
        with (self.folder / "output").open("ab") as out:
            self._process = subprocess.Popen(
                words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )  # fmt: skip
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._process.pid), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + _START
        while not self._is_reachable():
            if self._process.poll() is not None or time.monotonic() > until:
                output = (self.folder / "output").read_text(errors="replace")[-1000:]
                raise StoreUnavailableError(f"the private {self.name} did not start: {output}")
            pause(_LOOK)

    def _is_reachable(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def send(self, number: int) -> None:
        """Send its process a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self) -> None:
        """Stop it with SIGSTOP, and wait until each of its threads has stopped."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        tasks = Path(f"/proc/{self._process.pid}/task")
        while any(task.read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.glob("*/stat")):
            pause(_LOOK)

    def restart(self) -> None:
        """Stop it in good order, and start it again."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(_START)
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill it as a crash does."""
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.kill()
            guard.wait()
            guard.stdin.close()
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """Kill it, and remove its folder."""
        atexit.unregister(self.close)
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def pause(seconds: float) -> None:
    """Leave the core to the server, which says to nobody that it has come further."""
    threading.Event().wait(seconds)
