"""A private node of RabbitMQ, of Debian's package.

``MAKEGOOD_TEST_RABBITMQ_ROOT`` names the tree of another Debian with that package, such as a newer one: the node then runs in there.
"""

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from typing import Any

import aiormq
import trustme
from pamqp import commands

from examples.orders.free_port import free_port
from examples.orders.private_servers import RabbitServer
from makegood.base.sizes import MIB
from makegood.brokers import BrokerAddress, Target, address_of
from tests.brokers.rig import Draft, Received
from tests.brokers.rigs.private_server import ServerRig

USER, PASSWORD = "shop", "orders-2-hunter"


class TlsRabbitServer(RabbitServer):
    """A node that also listens with TLS, and limits the size of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.tls_port = free_port()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "authority.pem")
        authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(
            self.folder / "server.pem"
        )
        pem = self.inside / "server.pem"
        self.configure(
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}\nssl_options.certfile = {pem}\nssl_options.keyfile = {pem}\n"
            f"max_message_size = {2 * MIB}\n"
        )


@cache
def server() -> TlsRabbitServer:
    """The node that the rigs of this process share, each in a virtual host of its own. It ends with this program."""
    return TlsRabbitServer()


class RabbitRig(ServerRig[TlsRabbitServer]):
    """A virtual host whose queues are of one type."""

    kind = "amqp"
    gives_ids = False
    takes_ids = True
    durable_after = 0.0
    takes_empty = True
    takes_bytes = True
    has_connection = True
    has_single_acknowledgements = True
    secrets: Sequence[str] = (PASSWORD,)
    keeps_order = True
    keeps_over_restart = True
    has_dead_letters = True
    checks_rights = True
    has_proxy = False
    redelivery = 0.0
    most_bytes = 2 * MIB
    type = "classic"

    def __init__(self) -> None:
        self.server = server()

    def start(self) -> None:
        """Start the node if it does not run, and make the virtual host and its user."""
        if not self.server.running:
            self.server.start()
        self.server.ask("PUT", f"/api/vhosts/{self.type}")
        self.server.ask("PUT", f"/api/permissions/{self.type}/{self.server.user}", _rights(".*", ".*", ".*"))
        self._allow(PASSWORD)

    def _allow(self, password: str) -> None:
        self.server.ask("PUT", f"/api/users/{USER}", {"password": password, "tags": "management"})
        self.server.ask("PUT", f"/api/permissions/{self.type}/{USER}", _rights("^$", r"^amq\.default$", ".*"))

    def close(self) -> None:
        """Remove the virtual host; the node is shared, and ends with this program."""
        self.server.ask("DELETE", f"/api/vhosts/{self.type}")

    @property
    def target(self) -> Target:
        """The virtual host, by a user who may read its queues and publish to them."""
        return Target("amqp", "main", self.url(USER, PASSWORD))

    def url(self, user: str, password: str) -> str:
        """The URL of the virtual host for a user."""
        return self.server.url_of(self.type, user, password)

    @contextlib.asynccontextmanager
    async def channel(self) -> Any:
        """A channel of the administrator."""
        url = self.url(self.server.user, self.server.password)
        connection = await aiormq.connect(url.partition("?")[0])
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
    durable_after = 10.0


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
