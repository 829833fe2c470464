"""Starts the remote services as a process of their own, and turns, kills and starts them again.

For the demo and for tests. ``Services`` is a context manager; leaving it ends the process, and so does the end of the
process that started it, however that came about.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

PACKAGE: Final = __package__ or "orders"
ROOT: Final = Path(__file__).resolve().parents[len(PACKAGE.split("."))]
"""The directory that must be on ``sys.path`` for the package to be found under its present name."""


class ServicesError(Exception):
    """The services did not start, or did not say what was asked. The message says what they said instead."""


class Services:
    """The services' process: ``url`` where they answer, ``books`` where their books are."""

    def __init__(
        self,
        books: Path,
        *,
        port: int = 0,
        seed: int = 0,
        faults: str = "",
        forgets: Mapping[str, float] | None = None,
        bound_to_starter: bool = False,
    ) -> None:
        """``bound_to_starter``: the process ends with its starter even while it is stopped; start it from the main thread then.

        ``forgets``: as in ``Books``.
        """
        self.books = books.resolve()
        self.url = ""
        self._tethered = bound_to_starter
        self._port = port
        self._seed = seed
        self._faults = faults
        self._forgets = json.dumps(dict(forgets or {}))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float = 20.0) -> Self:
        """Start the process, at the address it had before if it had one; return when it answers.

        ``timeout`` is in seconds. Raises ``ServicesError`` when it runs already, ends at once, or is not ready in time.
        """
        self.launch()
        try:
            return self.ready(timeout)
        except ServicesError:
            self.kill()
            raise

    def launch(self) -> None:
        """Start the process, and do not wait for it. Raises ``ServicesError`` when it runs already."""
        if self.running:
            raise ServicesError(f"the services are running already, as process {self.pid}")
        self._reap()
        self._ready_file.unlink(missing_ok=True)
        tether = [f"{PACKAGE}.tether"] if self._tethered else []
        command = [sys.executable, "-m", *tether, f"{PACKAGE}.services", "--books", self.books]
        command += ["--ready-file", self._ready_file]
        command += ["--port", str(self._port), "--seed", str(self._seed), "--faults", self._faults]
        command += ["--forgets", self._forgets]
        command += [] if tether else ["--until-stdin-closes"]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        with self._log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [*map(str, command)],
                stdin=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,  # a module of the same name where the caller happens to be is not ours
                env={**os.environ, "PYTHONPATH": path},
                process_group=0 if self._tethered else None,
            )

    def ready(self, timeout: float = 20.0) -> Self:
        """Wait until the launched process answers; another thread may kill it meanwhile.

        Raises ``ServicesError`` when it ends, or is not ready in time.
        """
        process = self._process
        deadline = time.monotonic() + timeout
        while not (url := self._said()):
            if process is None or process.poll() is not None:
                log = self._log
                raise ServicesError(f"the services ended at once, see {log}: {log.read_text()[-500:]}")
            if time.monotonic() > deadline:
                raise ServicesError(f"the services were not ready within {timeout} s")
            time.sleep(0.02)
        self.url = url
        self._port = urlsplit(url).port or 0
        return self

    def _said(self) -> str:
        """Where the process says that it answers; "" until it does."""
        try:
            return str(json.loads(self._ready_file.read_text())["url"])
        except FileNotFoundError:
            return ""

    @property
    def _ready_file(self) -> Path:
        return self.books.with_name(self.books.name + ".ready")

    @property
    def _log(self) -> Path:
        return self.books.with_name(self.books.name + ".log")

    @property
    def running(self) -> bool:
        """Whether the process lives; somebody else may have killed it."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises ``ServicesError`` when none is running."""
        if self._process is None or not self.running:
            raise ServicesError("the services are not running; call start()")
        return self._process.pid

    def kill(self) -> None:
        """End the process with SIGKILL: no last words."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def pause(self) -> None:
        """Stop the process with SIGSTOP: it accepts connections, and answers nobody."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped process go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process in good order; kill it if that takes more than five seconds."""
        if self._process is not None:
            self.resume()
            self._process.terminate()
            try:
                self._process.wait(5.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._reap()

    def turn(self, dials: Mapping[str, Mapping[str, float]]) -> None:
        """Set all dials of ``faults.py`` anew; ``{}`` ends every fault. Raises ``ServicesError`` for a wrong one."""
        self._call("POST", "/faults", dials)
        self._faults = json.dumps(dials)  # so that a process started again has them too

    def prepare(self, dials: Mapping[str, Mapping[str, float]]) -> None:
        """Set the dials that a process begins with which is started from now on."""
        self._faults = json.dumps(dials)

    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many requests each service got, and how many met which fault ("service/operation fault"), since the start."""
        faults = self._call("GET", "/faults")
        return faults["asked"], faults["met"]

    def dials(self) -> dict[str, dict[str, float]]:
        """The dials as they stand."""
        dials: dict[str, dict[str, float]] = self._call("GET", "/faults")["dials"]
        return dials

    def totals(self) -> dict[str, dict[str, int]]:
        """Per effect, how often it was done and undone."""
        return self._call("GET", "/totals")

    def under_way(self) -> int:
        """How many requests are being served, slow and hanging ones too."""
        count: int = self._call("GET", "/health")["under_way"]
        return count

    def quiet(self, timeout: float = 30.0) -> bool:
        """Wait until nothing is under way, so that the books are final. False when ``timeout`` seconds were not enough."""
        deadline = time.monotonic() + timeout
        while self.under_way():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _reap(self) -> None:
        """Wait for the end of a process that has been told to end, and let go of what we hold of it."""
        if self._process is not None:
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10.0)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServicesError(f"{method} {self.url}{path}: {error!r}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise ServicesError(
                f"{method} {self.url}{path}: {response.status} {answer.get('message', answer)}"
            )
        return answer


def start_services(books: Path, *, port: int = 0, seed: int = 0, faults: str = "") -> Services:
    """Start the services with their books in ``books``; ``faults`` is JSON or ``rough``. See ``Services``."""
    return Services(books, port=port, seed=seed, faults=faults).start()
