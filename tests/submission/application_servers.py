"""Servers of applications, as real processes: gunicorn, uvicorn, Celery. What they say is read line by line."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0


class Server:
    """A process and what it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._ended = False
        assert process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(process.stdout,))
        self._reader.start()

    def _read(self, stream: TextIO) -> None:
        for line in stream:
            with self._news:
                self.lines.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def heard(self, pattern: str, times: int = 1) -> list["re.Match[str]"]:
        """Wait until it has said what matches ``pattern``, so many times; returns the matches."""
        matches: list[re.Match[str]] = []

        def enough() -> bool:
            matches[:] = [match for line in self.lines if (match := re.search(pattern, line))]
            return len(matches) >= times or self._ended

        with self._news:
            self._news.wait_for(enough, PATIENCE)
        assert len(matches) >= times, "\n".join([f"{pattern!r} was not said {times} times:", *self.lines])
        return matches

    def kill(self) -> None:
        """End it and its children at once: some take long to say good-bye."""
        os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Ask it to end, and wait."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._reader.join(PATIENCE)
            if self.process.stdout is not None:
                self.process.stdout.close()


@contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[Server]:
    """Run ``python -m arguments`` in a folder; it dies with this process."""
    path = os.pathsep.join((str(folder), str(ROOT)))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.processes.die_with_parent", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    server = Server(process)
    try:
        yield server
    finally:
        server.end()


class _Local(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = str(path)

    def connect(self) -> None:
        """Connect to a socket of this machine's file system."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self._path)


def ask(path: Path, method: str, url: str) -> tuple[int, Any]:
    """Send a request to the server on a socket; returns the status and, of a good one, what its JSON says."""
    connection = _Local(path)
    try:
        connection.request(method, url)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    return answer.status, json.loads(body) if answer.status == 200 else None
