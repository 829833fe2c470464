"""Azure's storage queues by Azurite, a process of its own.

Azurite writes its table of messages every few seconds only: a kill loses some, a stop in good order none.
"""

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

from azure.storage.queue import QueueSasPermissions, generate_queue_sas
from azure.storage.queue.aio import QueueClient

from makegood.brokers import BrokerAddress, Target, address_of
from proofs.servers import node, queue_script
from tests.brokers.rig import Draft, Received
from tests.brokers.rigs.private_server import PrivateProgram, RigBehindAWay

ACCOUNT = "shop"
FIRST, SECOND, OTHER = (
    base64.b64encode(name * 8).decode() for name in (b"first/+?", b"second/+", b"other+/?")
)


class StorageQueueRig(RigBehindAWay):
    """Azurite's queue service. The rig's own key is the account's second one."""

    kind = "azure-queue"
    gives_ids = True
    takes_ids = False
    keeps_over_restart = False
    keeps_order = False
    durable_after = 0.0
    has_single_acknowledgements = True
    takes_empty = False
    has_connection = False
    takes_bytes = False
    checks_rights = True
    has_proxy = True
    redelivery = 12.0
    secrets = (FIRST,)
    has_dead_letters = False
    most_bytes = 64 * 1024
    visibility = 8

    def __init__(self) -> None:
        super().__init__(PrivateProgram("azurite", self._words))
        self._key = FIRST
        self._queues: set[str] = set()

    @property
    def target(self) -> Target:
        return self.target_of(FIRST)

    def target_of(self, key: str) -> Target:
        """The broker with another key."""
        login = f"{ACCOUNT}:{quote(key, safe='')}"
        return Target("azure-queue", "main", f"azure-queue://{login}@127.0.0.1:{self.way.port}")

    def target_with(self, place: str, rights: str) -> Target:
        """The broker by a signature with some rights on a queue."""
        sas = generate_queue_sas(
            ACCOUNT, place, SECOND, permission=QueueSasPermissions.from_string(rights), expiry=datetime.now(UTC) + timedelta(hours=1)
        )  # fmt: skip
        return Target("azure-queue", "main", f"azure-queue://{ACCOUNT}@127.0.0.1:{self.way.port}?{sas}")

    def start(self) -> None:
        self._start(FIRST)

    def _start(self, key: str) -> None:
        self._key = key
        self.server.start()

    def _words(self, folder: Path, port: int) -> list[str]:
        script = f'AZURITE_ACCOUNTS={ACCOUNT}:{self._key}:{SECOND} exec "$@"'  # both keys of the account
        return [
            "/bin/sh", "-c", script, "azurite", node(), queue_script(), "--silent", "--queueHost", "127.0.0.1", "--queuePort", str(port),
            "--location", str(folder), "--skipApiVersionCheck", "--disableTelemetry",
        ]  # fmt: skip

    @asynccontextmanager
    async def queue(self, place: str) -> AsyncIterator[QueueClient]:
        """A queue's client past the way."""
        credential = {"account_name": ACCOUNT, "account_key": SECOND}
        url = f"http://127.0.0.1:{self.server.port}/{ACCOUNT}"
        async with QueueClient(url, place, credential) as client:
            yield client

    async def declare(self, place: str) -> BrokerAddress:
        async with self.queue(place) as queue:
            await queue.create_queue()
        return address_of(f"azure-queue:main/{place}?visibility={self.visibility}", {"azure-queue"})

    async def delete(self, place: str) -> None:
        async with self.queue(place) as queue:
            await queue.delete_queue()

    async def publish(self, place: str, drafts: Sequence[Draft]) -> None:
        async with self.queue(place) as queue:
            for draft in drafts:
                await queue.send_message(draft.body.decode())

    async def waiting(self, address: BrokerAddress, group: str) -> int:
        del group
        async with self.queue(address.place) as queue:
            return int((await queue.get_queue_properties()).approximate_message_count or 0)

    async def read(self, place: str) -> list[Received]:
        messages: list[Received] = []
        async with self.queue(place) as queue:
            async for message in queue.receive_messages(messages_per_page=32):
                messages.append(Received(body=str(message.content).encode(), id=None))
                await queue.delete_message(message)
        return messages

    async def dead_letters(self, place: str) -> list[bytes]:
        raise AssertionError(f"{place}: a storage queue cannot refuse a message")

    async def revoke(self) -> None:
        self._restart(OTHER)

    async def grant(self) -> None:
        self._restart(FIRST)

    def _restart(self, key: str) -> None:
        """Change the account's first key, which takes a new start."""
        self.server.end()
        self._start(key)
