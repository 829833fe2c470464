"""libpq's parameters in a URL, on a real server: each has its effect, on the store, its leases and an outbox."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

import makegood as mg
from makegood.base.postgres_hosts import PostgresHosts
from makegood.base.postgres_target import target_of
from makegood.election import open_leases
from makegood.errors import ConfigError
from makegood.messaging.outbox import open_outbox


@pytest.fixture
def service(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A service file whose service ``shop`` is the database; the user's own name is that of no database."""
    parts = urlsplit(url)
    lines = [
        "[shop]",
        f"host={parts.hostname}",
        f"port={parts.port}",
        f"user={parts.username}",
        f"dbname={parts.path[1:]}",
        f"password={parts.password}",
    ]
    (tmp_path / "services").write_text("\n".join(lines))
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    return "shop"


@pytest.mark.parametrize("form", ["postgresql://?service={}", "postgresql:///?service={}"])
async def test_a_service_is_the_database_that_its_file_names(form: str, service: str) -> None:
    async with mg.Client(form.format(service)) as client:
        assert await client.count(mg.Filter()) == 0
    async with open_leases(form.format(service)) as leases:
        assert await leases.acquire("reports", "me", "nonce", 5.0) is not None
    with pytest.raises(ConfigError, match="no table makegood_outbox"):
        await open_outbox(form.format(service)).open()


@pytest.mark.parametrize("form", ["postgresql://?service={}", "postgresql:///?service={}"])
async def test_a_misspelt_service_reaches_no_database(form: str, service: str) -> None:
    wrong = form.format(f"{service}p")
    openers: list[Callable[[], object]] = [
        lambda: mg.Client(wrong, migrate=True),
        lambda: open_leases(wrong),
        lambda: open_outbox(wrong),
    ]
    for opener in openers:
        with pytest.raises(ConfigError, match="names the service 'shopp', which is not defined"):
            opener()


async def test_pgdatabase_counts_when_the_url_names_none(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = urlsplit(url)
    monkeypatch.setenv("PGDATABASE", parts.path[1:])
    monkeypatch.setenv("PGUSER", parts.username or "")
    monkeypatch.setenv("PGPASSWORD", parts.password or "")
    async with mg.Client(f"postgresql://{parts.hostname}:{parts.port}/") as client:
        assert await client.count(mg.Filter()) == 0


async def itself(connection: Any) -> Any:
    """Return a connection as it is."""
    return connection


async def test_parameters_have_their_effect(url: str) -> None:
    query = "keepalives_idle=41&keepalives_interval=7&keepalives_count=3&tcp_user_timeout=9000&options=-c%20work_mem=5MB&application_name=mine"
    connection = await PostgresHosts(target_of(f"{url}?{query}")).connect(
        asyncpg.connect, limit=10, ready=itself
    )
    try:
        assert await connection.fetchval("show work_mem") == "5MB"
        assert await connection.fetchval("show application_name") == "mine"
        link: socket.socket = connection._transport.get_extra_info("socket")
        set_to = [
            link.getsockopt(socket.IPPROTO_TCP, o)
            for o in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        ]
        assert (link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), set_to) == (1, [41, 7, 3, 9000])
    finally:
        await connection.close()


async def test_a_server_without_a_connection_left_names_how_many_a_node_needs(url: str) -> None:
    admin = await asyncpg.connect(url)
    role = "nb_limited"
    await admin.execute(
        f"create role {role} login password 'secret' connection limit 1; grant usage on schema makegood to {role}"
    )
    parts = urlsplit(url)
    limited_url = f"postgresql://{role}:secret@{parts.hostname}:{parts.port}{parts.path}"
    try:
        connection = await asyncpg.connect(limited_url)
        with pytest.raises(mg.StoreUnavailableError, match=r"has no connection left .*: a Node needs five"):
            async with mg.Client(limited_url):
                pass
        await connection.close()
    finally:
        await admin.execute(f"drop owned by {role}; drop role {role}")
        await admin.close()
