"""Brokers of one's own, as real programs: in a temporary folder, on free ports of 127.0.0.1, gone when this program ends.

``makegood demo --broker rabbitmq`` sends its orders through one; makegood's own tests run on them. The programs are the
machine's; a broker that runs as a service is not touched.
"""

import atexit
import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

from makegood.errors import BrokerUnavailableError, ConfigError

from .free_port import free_port

START: Final = 60.0
"""Seconds within which a server must serve."""
_LOOK: Final = 0.1
_GUARD: Final = 'read nothing; folder=$1; shift; kill -9 -- "$@"; rm -rf "$folder"'
"""Runs beside a server: when the program that started both is gone, however it ended, its stdin ends."""


class PrivateServer(ABC):
    """A server that can be killed, and started again on its port and in its folder."""

    title: ClassVar[str]
    """What people call it."""
    kind: ClassVar[str]
    """What makegood's addresses of it begin with."""

    def __init__(self) -> None:
        """Make its folder. Raises ``ConfigError``, which says what to install, if the machine lacks the program."""
        self.require()
        self.folder = Path(tempfile.mkdtemp(prefix=f"makegood-{self.kind}-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._companions: list[subprocess.Popen[bytes]] = []
        """Processes that the server needs beside it, for all its lives."""
        self._guard: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @classmethod
    @abstractmethod
    def require(cls) -> None:
        """Raise ``ConfigError``, which says what to install, if the machine lacks the program."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it is, as makegood's settings have it, for somebody who may do anything."""

    @abstractmethod
    def declare(self, *places: str) -> None:
        """Make queues or streams that outlive a kill."""

    @abstractmethod
    def _words(self) -> Sequence[str]:
        """Return the command that becomes the server."""

    @abstractmethod
    def _serves(self) -> bool:
        """Whether it answers."""

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def start(self) -> None:
        """Start it, or start it again, and wait until it serves. Raises ``BrokerUnavailableError``."""
        self.launch()
        self.ready()

    def launch(self) -> None:
        """Start it, and do not wait for it."""
        self.kill()
        self._process = self._run(self._words())
        groups = [f"-{process.pid}" for process in (self._process, *self._companions)]
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self.folder), *groups],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def _run(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as out:
            return subprocess.Popen(
                words, cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )  # fmt: skip

    def ready(self) -> None:
        """Wait until it serves; another thread may kill it meanwhile. Raises ``BrokerUnavailableError``."""
        until = time.monotonic() + START
        while not self._serves():
            if not self.running or time.monotonic() > until:
                output = (self.folder / "output").read_text(errors="replace")[-1000:]
                raise BrokerUnavailableError(f"the private {self.title} did not start: {output}")
            time.sleep(_LOOK)

    @property
    def running(self) -> bool:
        """Whether its process lives; somebody else may have killed it."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id, 0 for none."""
        return self._process.pid if self._process is not None else 0

    def kill(self) -> None:
        """Kill it as a crash does."""
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.kill()
            guard.wait()
            guard.stdin.close()
        self._signal(signal.SIGKILL)
        process, self._process = self._process, None
        if process is not None:
            process.wait()

    def pause(self) -> None:
        """Stop it with SIGSTOP: it keeps its connections, and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Kill it, and remove its folder."""
        atexit.unregister(self.close)
        self.kill()
        for companion in self._companions:
            companion.kill()
            companion.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class RabbitServer(PrivateServer):
    """A node of RabbitMQ with its management API: Debian's, or where ``MAKEGOOD_TEST_RABBITMQ_HOME`` says."""

    title = "RabbitMQ"
    kind = "amqp"
    user: Final = "guest"
    """The administrator."""

    def __init__(self) -> None:
        super().__init__()
        self.password = secrets.token_urlsafe(16)
        self.api, self._epmd_port, self._dist = (free_port() for _ in range(3))
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")
        self.configure("")
        self._companions.append(self._run(["epmd", "-address", "127.0.0.1", "-port", str(self._epmd_port)]))

    def configure(self, more: str) -> None:
        """Write its configuration, and lines of one's own."""
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.api}\n"
            f"collect_statistics_interval = 200\ndefault_user = {self.user}\ndefault_pass = {self.password}\n{more}"
        )

    @staticmethod
    def _program(name: str) -> Path:
        return Path(os.environ.get("MAKEGOOD_TEST_RABBITMQ_HOME", "/usr/lib/rabbitmq")) / "bin" / name

    @classmethod
    def require(cls) -> None:
        """Raise ``ConfigError`` where Debian's package is missing."""
        if not cls._program("rabbitmq-server").is_file() or shutil.which("epmd") is None:
            raise ConfigError(
                "no RabbitMQ on this machine: install it (Debian: apt-get install rabbitmq-server)"
            )

    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "HOME": str(self.folder),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_NODENAME": f"makegood{self.port}@localhost",
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            # What a quorum queue holds is counted each second, not every five. Shorter ticks keep it from electing a leader.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-rabbit quorum_tick_interval 1000 -rabbit channel_tick_interval 1000",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, and does not wait for it
        }

    def _words(self) -> Sequence[str]:
        return [str(self._program("rabbitmq-server"))]

    def _serves(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/api/overview") is not None
        return False

    @property
    def url(self) -> str:
        """The URL of the virtual host that a node begins with."""
        return self.url_of("/", self.user, self.password)

    def url_of(self, host: str, user: str, password: str) -> str:
        """Return the URL of a virtual host for a user."""
        management = quote(f"http://127.0.0.1:{self.api}", safe="")
        return (
            f"amqp://{user}:{password}@127.0.0.1:{self.port}/{quote(host, safe='')}?management={management}"
        )

    def declare(self, *places: str) -> None:
        """Make durable quorum queues, whose refused messages go to another one."""
        for place in places:
            dead = f"{place}.dead"
            arguments = {"x-queue-type": "quorum"}
            self._declare(dead, arguments)
            self._declare(
                place, arguments | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
            )

    def _declare(self, name: str, arguments: Mapping[str, str]) -> None:
        self.ask("PUT", f"/api/queues/%2F/{name}", {"durable": True, "arguments": arguments})

    def control(self, *words: str) -> None:
        """Run ``rabbitmqctl``."""
        command = [str(self._program("rabbitmqctl")), *words]
        subprocess.run(
            command, cwd=self.folder, env=self._environment(), check=True, capture_output=True, timeout=60
        )

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask the management API; return its JSON, None for none. Raises ``LookupError`` for 404."""
        connection = http.client.HTTPConnection("127.0.0.1", self.api, timeout=20)
        login = b64encode(f"{self.user}:{self.password}".encode()).decode()
        headers = {"authorization": f"Basic {login}", "content-type": "application/json"}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status == 404:
            raise LookupError(path)
        if answer.status >= 300:
            raise http.client.HTTPException(f"{method} {path}: {answer.status} {text!r:.200}")
        return json.loads(text) if text else None


SERVERS: Final[Mapping[str, type[PrivateServer]]] = {"rabbitmq": RabbitServer}
"""By the name that ``makegood demo --broker`` takes."""
