"""A server that a rig runs as a process of its own: killed, stopped and continued as the suites need it."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from makegood.errors import BrokerUnavailableError

_START = 60.0
_GUARD = 'read nothing; kill -9 "-$1"; rm -rf "$2"'


class PrivateProcess:
    """A command that listens on ``port`` of 127.0.0.1. It ends with the tests' process, even if that is killed."""

    def __init__(self, port: int, environment: Mapping[str, str] | None = None) -> None:
        self.port = port
        self.folder = Path(tempfile.mkdtemp(prefix="makegood-broker-"))
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self, words: Sequence[str]) -> None:
        """Start the command, and wait until it listens."""
        log = self.folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                words,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._process.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + _START
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > until:
                raise BrokerUnavailableError(
                    f"{words[0]} did not start: {log.read_text(errors='replace')[-2000:]}"
                )
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server and its children."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def end(self) -> None:
        """Ask it to end, which lets it write what it keeps in memory."""
        self.signal(signal.SIGTERM)
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        self.kill()

    def kill(self) -> None:
        """Kill it, and keep its folder."""
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.kill()
            guard.wait()
            guard.stdin.close()
        self.signal(signal.SIGKILL)
        process, self._process = self._process, None
        if process is not None:
            process.wait()

    def close(self) -> None:
        """Kill it, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
