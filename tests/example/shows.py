"""A show for tests: ``makegood demo --stage`` as people run it, and its buttons pressed as the page's forms do."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from examples.orders.world import ROOT

DEMO = (sys.executable, "-m", "makegood", "demo", "--stage", "--no-browser", "--json")
OPENS_WITHIN = 120.0


class RunningShow:
    """A running demo. ``lines``: what it wrote so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.link = ""
        """The printed address of the stage, with its token."""
        self._opened = threading.Event()
        self._pause = threading.Event()  # nobody sets it
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.lines.append(event)
            if event["event"] == "stage":
                self.link = event["process"]
                self._opened.set()
        self._opened.set()

    def open(self) -> None:
        """Wait for the page."""
        assert self._opened.wait(OPENS_WITHIN), "the stage did not open"
        assert self.link, "the demo ended before its stage opened"

    def get(self, path: str = "") -> str:
        """Return a page."""
        address, _, token = self.link.partition("?token=")
        request = urllib.request.Request(address + path, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - http, as the demo printed it
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return str(answer.read().decode())

    def press(self, path: str, **form: str) -> int:
        """Press a button; return the status."""
        match = re.search(r'data-token="([^"]+)"', self.get())
        assert match
        body = urlencode({"token": match[1], **form}).encode()
        address = self.link.partition("?")[0] + path
        request = urllib.request.Request(address, body, {"Accept": "application/json"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def part(self, name: str) -> str:
        """Return the words of an element of the page."""
        return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", json.loads(self.get("fragments"))[name])))

    def until(self, name: str, words: str, seconds: float = 120.0) -> str:
        """Wait until an element of the page has words that match; return all of them."""
        deadline = time.monotonic() + seconds
        while not re.search(words, text := self.part(name)):
            assert time.monotonic() < deadline, f"{words!r} was not shown: {text}"
            self._pause.wait(0.3)
        return text

    def end(self, number: signal.Signals = signal.SIGINT) -> dict[str, Any]:
        """End the show as a person does; return the report."""
        self.process.send_signal(number)
        self.process.wait(240)
        self._reader.join(10)
        return self.lines[-1]


@contextmanager
def show(folder: Path, *arguments: str) -> Iterator[RunningShow]:
    """Run the demo with its stage."""
    with (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            [*DEMO, *arguments], cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, stderr=stderr,
            text=True,
        )  # fmt: skip
    running = RunningShow(process)
    try:
        running.open()
        yield running
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()
