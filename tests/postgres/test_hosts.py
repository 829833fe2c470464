"""A URL with several hosts, or a name with several addresses: the first one that can be used is found, whatever ails the others."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

import asyncpg
import pytest
import trustme

import makegood as mg
from makegood.base.postgres_hosts import PostgresHosts
from makegood.base.postgres_target import target_of
from makegood.election import open_leases
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.messaging.outbox import open_outbox
from makegood.messaging.outbox.protocol import MISSING
from makegood.store.postgres import PostgresStore
from proofs.private_server import PrivateServer
from tests.conformance.builders import draft
from tests.postgres.faulty_proxy import Proxy
from tests.waiting import until

_TLS, _GSS = 80877103, 80877104
SILENT = b"silent"
"""A host that takes the start-up packet and never answers, as one that is frozen or without power."""
SLOW_TO_SPEAK = b"before"
"""The same, but it does not even answer whether it speaks TLS."""


def error(code: str, text: str) -> bytes:
    """Return the server's message that refuses a start-up."""
    body = b"SFATAL\0VFATAL\0C" + code.encode() + b"\0M" + text.encode() + b"\0\0"
    return b"E" + struct.pack("!i", len(body) + 4) + body


OF_NO_USE = {
    "silent": SILENT,
    "silent before TLS": SLOW_TO_SPEAK,
    "hangs up": b"",
    "no connection left": error("53300", "sorry, too many clients already"),
    "starting up": error("57P03", "the database system is starting up"),
    "shutting down": error("57P03", "the database system is shutting down"),
    "no standby connections": error("57P03", "the database system is not accepting connections"),
    "shut down meanwhile": error("57P01", "terminating connection due to administrator command"),
    "out of memory": error("53200", "out of memory"),
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
}


class UselessHost:
    """Listens on loopback and answers a start-up packet with the same bytes each time; ``visits`` counts connections."""

    def __init__(self, answer: bytes, host: str = "127.0.0.1", port: int = 0) -> None:
        self.answer, self.host, self.port, self.visits = answer, host, port, 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._talk(reader, writer)
        finally:
            writer.close()
            self._open.discard(writer)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self.answer != SLOW_TO_SPEAK:
            size, kind = struct.unpack("!ii", await reader.readexactly(8))
            await reader.readexactly(size - 8)
            if kind not in (_TLS, _GSS):
                break
            writer.write(b"N")
        if self.answer in (SILENT, SLOW_TO_SPEAK):
            await reader.read()
            return
        writer.write(self.answer)
        await writer.drain()


def behind(url: str, *ports: int, query: str = "connect_timeout=3") -> str:
    """Return a URL whose first hosts are at these ports of loopback."""
    head, _, tail = url.rpartition("@")
    first = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"{head}@{first},{tail}?{query}"


@pytest.mark.parametrize("why", OF_NO_USE)
async def test_a_store_is_found_behind_a_host_of_no_use(url: str, why: str) -> None:
    """Every connection is made, and only the first one meets the useless host."""
    async with UselessHost(OF_NO_USE[why]) as useless:
        store = PostgresStore(behind(url, useless.port))
        await store.open()
        assert (await store.tasks.submit([draft(1)]))[0].is_new
        assert await store.tasks.find(mg.Filter())
        assert 1 <= useless.visits <= 2  # without a sslmode the driver may try a second time without TLS
        await store.close()


@pytest.mark.parametrize("why", OF_NO_USE)
async def test_so_are_leases_and_an_outbox(url: str, why: str, db: Any) -> None:
    async with UselessHost(OF_NO_USE[why]) as useless:
        async with open_leases(behind(url, useless.port), timeout="30s") as leases:
            assert await leases.acquire(f"reports {why}", "host-1", f"nonce {why}", 0.1) is not None
            assert (await leases.read(f"reports {why}")) is not None
        visits = useless.visits
        outbox = open_outbox(behind(url, useless.port))
        with pytest.raises(ConfigError, match=MISSING.partition("{")[0][:10] or "outbox"):
            await outbox.open()  # reached, and it has no such table
        await outbox.close()
        assert useless.visits > visits


async def test_a_closed_port_a_full_queue_of_connections_and_a_standby_are_passed_over(
    url: str, server: PrivateServer
) -> None:
    """Of five hosts the last can be used."""
    copy = server.copy()
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = [socket.socket() for _ in range(4)]
    try:
        for one in waiting:  # nobody accepts: later connections get no answer to their first packet
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(full.getsockname())
        async with UselessHost(SILENT) as silent:
            ports = 1, full.getsockname()[1], copy.port, silent.port
            store = PostgresStore(behind(url, *ports))
            await store.open()
            assert (await store.tasks.submit([draft(1)]))[0].is_new
            await store.close()
    finally:
        for one in (*waiting, full):
            one.close()
        copy.discard()


async def test_each_host_is_named_with_what_ails_it(server: PrivateServer) -> None:
    async with UselessHost(SILENT) as silent, UselessHost(OF_NO_USE["no connection left"]) as full:
        place = server.url.rpartition("@")[2]
        url = behind(server.url.replace(f"@{place}", "@127.0.0.1:1/makegood"), silent.port, full.port)
        with pytest.raises(StoreUnavailableError) as error:
            await PostgresStore(url).open()
        assert f"127.0.0.1:{silent.port} does not answer" in str(error.value)
        assert f"127.0.0.1:{full.port} has no connection left" in str(error.value)
        assert "127.0.0.1:1 refuses connections" in str(error.value)


async def test_a_wrong_password_is_named_even_behind_a_host_of_no_use(url: str) -> None:
    """A person must correct it: waiting does not help."""
    async with UselessHost(SILENT) as silent:
        password = url.partition("postgres:")[2].partition("@")[0]
        with pytest.raises(ConfigError, match="refuses this user or password"):
            await PostgresStore(behind(url.replace(password, "wrong"), silent.port)).open()


@contextlib.asynccontextmanager
async def named(monkeypatch: pytest.MonkeyPatch, name: str, addresses: Sequence[str]) -> AsyncIterator[None]:
    """Give a name addresses of its own, as a name server would."""
    usual = socket.getaddrinfo

    def lookup(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host != name:
            return usual(host, port, *rest, **more)
        return [one for address in addresses for one in usual(address, port, *rest, **more)]

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", lookup)
        yield


@pytest.mark.parametrize("why", ["silent", "hangs up", "no connection left", "starting up"])
async def test_each_address_of_a_name_has_its_share(
    url: str, server: PrivateServer, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        UselessHost(OF_NO_USE[why], "127.0.0.2", server.port) as useless,
        named(monkeypatch, "db.test", ["127.0.0.2", "127.0.0.1"]),
    ):
        store = PostgresStore(f"{url.replace('@127.0.0.1:', '@db.test:')}?connect_timeout=6")
        await store.open()
        assert (await store.tasks.submit([draft(1)]))[0].is_new
        assert 1 <= useless.visits <= 2
        await store.close()


@pytest.fixture
def tls(server: PrivateServer, tmp_path: Path) -> Path:
    """The server takes TLS, with a certificate for db.test; returns its authority's file."""
    owner, authority = server.data.stat(), trustme.CA()
    pair = authority.issue_cert("db.test")
    for name, blob in (("server.crt", pair.cert_chain_pems[0]), ("server.key", pair.private_key_pem)):
        blob.write_to_path(server.data / name)
        (server.data / name).chmod(0o600)
        os.chown(server.data / name, owner.st_uid, owner.st_gid)
    authority.cert_pem.write_to_path(tmp_path / "root.crt")
    server.run("alter system set ssl = on", database="postgres")
    server.run("select pg_reload_conf()", database="postgres")
    return tmp_path / "root.crt"


async def test_a_certificate_is_that_of_the_name_and_not_of_its_address(
    url: str, tls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verify-full works with a name that has several addresses, and the second of them answers."""
    url = url.replace("@127.0.0.1:", "@db.test:")

    async def encrypted(connection: Any) -> bool:
        try:
            return bool(await connection.fetchval("select ssl from pg_stat_ssl where pid = pg_backend_pid()"))
        finally:
            await connection.close()

    async with named(monkeypatch, "db.test", ["127.0.0.2", "127.0.0.1"]):
        target = target_of(f"{url}?sslmode=verify-full&sslrootcert={tls}")
        assert await PostgresHosts(target).connect(asyncpg.connect, limit=10, ready=encrypted)
    async with named(monkeypatch, "other.test", ["127.0.0.2", "127.0.0.1"]):
        wrong = url.replace("db.test", "other.test")
        with pytest.raises(ConfigError, match="certificate"):
            await PostgresStore(f"{wrong}?sslmode=verify-full&sslrootcert={tls}").open()


async def test_a_running_store_leaves_a_server_that_falls_silent(
    url: str, server: PrivateServer, proxy: Proxy
) -> None:
    """The way to the first host carries nothing any more; the second one is another way to the same server."""
    store = PostgresStore(behind(url, proxy.port, query="connect_timeout=3"), patience=1.0)
    await store.open()
    assert (await store.tasks.submit([draft(1)]))[0].is_new
    ring = asyncio.Event()
    store.subscribe("pending", ring.set)
    proxy.silent = True
    assert (await store.tasks.submit([draft(2)]))[0].is_new
    ring.clear()
    other = PostgresStore(url)
    await other.open()

    async def heard() -> bool:
        await other.tasks.submit([draft(other_ids.pop())])
        return ring.is_set()

    other_ids = list(range(100, 100_000))
    await until(heard, "a wake-up over the second host")
    await other.close()
    await store.close()
