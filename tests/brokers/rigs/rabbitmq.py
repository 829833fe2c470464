"""A private node of RabbitMQ, of Debian's package.

``MAKEGOOD_TEST_RABBITMQ_ROOT`` names the tree of another Debian with that package, such as a newer one: the node then runs in there.
"""

import asyncio
import atexit
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiormq
import trustme
from pamqp import commands

from examples.orders.free_port import free_port
from makegood.base.sizes import MIB
from makegood.brokers import BrokerAddress, Target, address_of
from makegood.errors import ConfigError, StoreUnavailableError
from tests.brokers.rig import Draft, Received

_START = 60.0
_LOOK = 0.1
_GUARD = 'read nothing; kill -9 -- "-$1" "-$2"; rm -rf "$3"'
_BIN, _EPMD = Path("/usr/lib/rabbitmq/bin"), Path("/usr/bin/epmd")
_ADMIN = "guest"
USER, PASSWORD = "shop", "orders-2-hunter"


class RabbitServer:
    """A node with the management API, on free ports and in a temporary folder; ends with this program, even if that is killed."""

    def __init__(self) -> None:
        self._root = Path(os.environ.get("MAKEGOOD_TEST_RABBITMQ_ROOT", "/"))
        programs = (_BIN / "rabbitmq-server", _EPMD)
        if not all((self._root / program.relative_to("/")).exists() for program in programs):
            raise ConfigError(
                "no RabbitMQ on this machine: install it (Debian: apt-get install rabbitmq-server)"
            )
        self.folder = Path(tempfile.mkdtemp(prefix="makegood-rabbitmq-", dir=self._root / "tmp"))
        self._inside = Path("/") / self.folder.relative_to(self._root)
        self.port, self.tls_port, self.api, self._epmd_port, self._dist = (free_port() for _ in range(5))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._guard: subprocess.Popen[bytes] | None = None
        (self.folder / "plugins").write_text("[rabbitmq_management].\n")
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "authority.pem")
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
            self.folder / "server.pem"
        )
        pem = self._inside / "server.pem"
        (self.folder / "rabbitmq.conf").write_text(
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}\nssl_options.certfile = {pem}\nssl_options.keyfile = {pem}\n"
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.api}\n"
            f"collect_statistics_interval = 200\nmax_message_size = {2 * MIB}\n"
        )
        self._epmd = self._run([str(_EPMD), "-address", "127.0.0.1", "-port", str(self._epmd_port)])
        atexit.register(self.close)

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self._inside),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self._inside / "rabbitmq.conf"),
            "RABBITMQ_DIST_PORT": str(self._dist),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._inside / "plugins"),
            "RABBITMQ_LOG_BASE": str(self._inside / "log"),
            "RABBITMQ_MNESIA_BASE": str(self._inside / "data"),
            "RABBITMQ_NODENAME": f"makegood{self.port}@localhost",
            "RABBITMQ_PID_FILE": str(self._inside / "pid"),
            # What a quorum queue holds is counted, and slow consumers are noticed, each second.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-rabbit quorum_tick_interval 1000 -rabbit channel_tick_interval 1000",
            "RUNNING_UNDER_SYSTEMD": "true",  # the script becomes the server, and does not wait for it
        }

    def _enter(self) -> list[str]:
        """Return what runs a command in the tree of another Debian, with a /proc that nothing else sees."""
        if self._root == Path("/"):
            return []
        script = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        return ["unshare", "--mount", "sh", "-c", script, str(self._root)]

    def _run(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as out:
            return subprocess.Popen(
                [*self._enter(), *words], cwd=self.folder, env=self._environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )  # fmt: skip

    def start(self) -> None:
        """Start it, or start it again, and wait until it serves."""
        process = self._run([str(_BIN / "rabbitmq-server")])
        self._processes.append(process)
        self._guard_anew(process.pid)
        until = time.monotonic() + _START
        while not self._serves():
            if process.poll() is not None or time.monotonic() > until:
                self.kill()
                output = (self.folder / "output").read_text(errors="replace")[-1000:]
                raise StoreUnavailableError(f"the private RabbitMQ did not start: {output}")
            time.sleep(_LOOK)

    def _serves(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.ask("GET", "/api/overview") is not None
        return False

    def _guard_anew(self, pid: int) -> None:
        self._unguarded()
        words = ["/bin/sh", "-c", _GUARD, "guard", str(pid), str(self._epmd.pid), str(self.folder)]
        self._guard = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _unguarded(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None and guard.stdin is not None:
            guard.kill()
            guard.wait()
            guard.stdin.close()

    def control(self, *words: str) -> None:
        """Run ``rabbitmqctl``."""
        command = [*self._enter(), str(_BIN / "rabbitmqctl"), *words]
        subprocess.run(
            command, cwd=self.folder, env=self._environment(), check=True, capture_output=True, timeout=60
        )

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed."""
        return bool(self._processes)

    def kill(self) -> None:
        """Kill it as a crash does."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def signal(self, number: int) -> None:
        """Send its process a signal."""
        for process in self._processes:
            os.killpg(process.pid, number)

    def close(self) -> None:
        """Kill it, and remove its folder."""
        atexit.unregister(self.close)
        self._unguarded()
        self.kill()
        self._epmd.kill()
        self._epmd.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask the management API; return its JSON, None for none. Raises ``LookupError`` for 404."""
        connection = http.client.HTTPConnection("127.0.0.1", self.api, timeout=20)
        login = b64encode(f"{_ADMIN}:{_ADMIN}".encode()).decode()
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


@cache
def server() -> RabbitServer:
    """The node that the rigs of this process share, each in a virtual host of its own. It ends with this program."""
    return RabbitServer()


class RabbitRig:
    """A virtual host whose queues are of one type."""

    kind = "amqp"
    gives_ids = False
    takes_ids = True
    durable_after = 0.0
    takes_empty = True
    has_connection = True
    takes_bytes = True
    has_single_acknowledgements = True
    secrets: Sequence[str] = (PASSWORD,)
    keeps_order = True
    keeps_over_restart = True
    has_dead_letters = True
    checks_rights = True
    redelivery = 0.0
    most_bytes = 2 * MIB
    type = "classic"

    def __init__(self) -> None:
        self.server = server()

    def start(self) -> None:
        """Start the node if it does not run, and make the virtual host and its user."""
        if not self.server.is_running:
            self.server.start()
        self.server.ask("PUT", f"/api/vhosts/{self.type}")
        self.server.ask("PUT", f"/api/permissions/{self.type}/{_ADMIN}", _rights(".*", ".*", ".*"))
        self._allow(PASSWORD)

    def _allow(self, password: str) -> None:
        self.server.ask("PUT", f"/api/users/{USER}", {"password": password, "tags": "management"})
        self.server.ask("PUT", f"/api/permissions/{self.type}/{USER}", _rights("^$", r"^amq\.default$", ".*"))

    def kill(self) -> None:
        """Kill the node."""
        self.server.kill()

    def stop(self) -> None:
        """Stop it with SIGSTOP."""
        self.server.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it continue."""
        self.server.signal(signal.SIGCONT)

    def close(self) -> None:
        """Remove the virtual host; the node is shared, and ends with this program."""
        self.server.ask("DELETE", f"/api/vhosts/{self.type}")

    @property
    def target(self) -> Target:
        """The virtual host, by a user who may read its queues and publish to them."""
        return Target("amqp", "main", self.url(USER, PASSWORD))

    def url(self, user: str, password: str) -> str:
        """The URL of the virtual host for a user."""
        management = quote(f"http://127.0.0.1:{self.server.api}", safe="")
        return f"amqp://{user}:{password}@127.0.0.1:{self.server.port}/{self.type}?management={management}"

    @contextlib.asynccontextmanager
    async def channel(self) -> Any:
        """A channel of the administrator."""
        url = f"amqp://{_ADMIN}:{_ADMIN}@127.0.0.1:{self.server.port}/{self.type}"
        connection = await aiormq.connect(url)
        try:
            yield await connection.channel()
        finally:
            await connection.close()

    async def declare(self, place: str) -> BrokerAddress:
        """Declare an empty queue whose refused messages go to another one."""
        dead = f"{place}.dead"
        await self.declare_with(dead)
        return await self.declare_with(
            place, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
        )

    async def declare_with(self, place: str, arguments: dict[str, Any] | None = None) -> BrokerAddress:
        """Declare an empty queue with arguments."""
        async with self.channel() as channel:
            await channel.queue_delete(place)
            settings = {"x-queue-type": self.type, **(arguments or {})}
            await channel.queue_declare(place, durable=True, arguments=settings)
        return address_of(f"amqp:main/{place}", {"amqp"})

    async def delete(self, place: str) -> None:
        """Delete a queue."""
        async with self.channel() as channel:
            await channel.queue_delete(place)

    async def publish(self, place: str, drafts: Sequence[Draft]) -> None:
        """Publish, and wait for the confirmations."""
        async with self.channel() as channel:
            for group in _grouped(drafts):
                if group[0].id is None:  # aiormq would give it one
                    await asyncio.to_thread(self._publish_without_id, place, group[0])
                else:
                    await asyncio.gather(*(self._publish(channel, place, draft) for draft in group))

    async def _publish(self, channel: Any, place: str, draft: Draft) -> None:
        properties = commands.Basic.Properties(
            message_id=draft.id, headers=dict(draft.headers), delivery_mode=2
        )
        await channel.basic_publish(draft.body, routing_key=place, mandatory=True, properties=properties)

    def _publish_without_id(self, place: str, draft: Draft) -> None:
        body = {
            "properties": {"headers": dict(draft.headers), "delivery_mode": 2},
            "routing_key": place,
            "payload": b64encode(draft.body).decode(),
            "payload_encoding": "base64",
        }
        assert self.server.ask("POST", f"/api/exchanges/{self.type}/amq.default/publish", body)["routed"]

    async def waiting(self, address: BrokerAddress, group: str) -> int:
        """Return how many messages are in the queue, delivered or not."""
        # Of a single queue the API tells what its statistics were, up to five seconds ago.
        path = f"/api/queues/{self.type}?disable_stats=true&enable_queue_totals=true"
        queues = await asyncio.to_thread(self.server.ask, "GET", path)
        return next(int(queue.get("messages", -1)) for queue in queues if queue["name"] == address.place)

    async def read(self, place: str) -> list[Received]:
        """Take all messages out of a queue."""
        result: list[Received] = []
        async with self.channel() as channel:
            while True:
                message = await channel.basic_get(place, no_ack=True)
                if isinstance(message.delivery, commands.Basic.GetEmpty):
                    return result
                properties = message.header.properties
                result.append(Received(message.body, properties.message_id, None, properties.content_type))

    async def dead_letters(self, place: str) -> list[bytes]:
        """Return the bodies in the queue of refused messages."""
        return [message.body for message in await self.read(f"{place}.dead")]

    async def disconnect(self, place: str) -> None:
        """Close the connections of everybody but the administrator."""
        await asyncio.to_thread(self.server.ask, "DELETE", f"/api/connections/username/{USER}")

    async def revoke(self) -> None:
        """Change the password; connections that exist stay."""
        await asyncio.to_thread(self._allow, "another-password")

    async def grant(self) -> None:
        """Set the password again."""
        await asyncio.to_thread(self._allow, PASSWORD)


class ClassicRig(RabbitRig):
    """Classic queues."""


class QuorumRig(RabbitRig):
    """Quorum queues."""

    type = "quorum"
    # Killed within the first seconds, 3.10.8 never elects the queue's leader, and 4.3.6 has lost what it confirmed.
    durable_after = 5.0


def _rights(configure: str, write: str, read: str) -> dict[str, str]:
    return {"configure": configure, "write": write, "read": read}


def _grouped(drafts: Sequence[Draft]) -> list[list[Draft]]:
    """Return the drafts in order: those with different ids together, which aiormq needs, those without an id alone."""
    groups: list[list[Draft]] = []
    for draft in drafts:
        last = groups[-1] if groups else None
        if (
            last is None
            or draft.id is None
            or len(last) == 200
            or draft.id in {other.id for other in last}
            or last[0].id is None
        ):
            groups.append([draft])
        else:
            last.append(draft)
    return groups
