"""What goes over the wire to a NATS server, before it knows who is there."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from makegood.base.nats_client import credentials_of, split_login
from makegood.election import open_leases
from makegood.errors import ConfigError, StoreUnavailableError


@asynccontextmanager
async def server() -> AsyncIterator[tuple[int, bytearray]]:
    """A server that offers no TLS, and hangs up when it has read the login; yields its port and what it has read."""
    text, end = bytearray(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b'INFO {"version":"2.10.0","max_payload":1048576,"headers":true,"auth_required":true}\r\n'
        )
        with contextlib.suppress(ConnectionError):
            while b"\r\n" not in text and (chunk := await reader.read(1000)):
                text.extend(chunk)
        writer.close()
        end.set()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1], text
        await asyncio.wait_for(end.wait(), 30)
    finally:
        listener.close()
        await listener.wait_closed()


async def test_a_lease_s_password_is_decoded() -> None:
    async with (
        server() as (port, text),
        open_leases(f"nats://me:p%40ss%2Fw@127.0.0.1:{port}/b", timeout=1) as leases,
    ):
        with pytest.raises(StoreUnavailableError):
            await leases.read("leader")
    login = json.loads(bytes(text).partition(b" ")[2].partition(b"\r\n")[0])
    assert (login["user"], login["pass"]) == ("me", "p@ss/w")


async def test_no_password_of_a_lease_goes_to_a_server_without_tls() -> None:
    async with (
        server() as (port, text),
        open_leases(f"tls://me:hunter2@127.0.0.1:{port}/b", timeout=1) as leases,
    ):
        with pytest.raises(ConfigError, match="offers no TLS"):
            await leases.read("leader")
    assert bytes(text) == b""


def test_one_login_is_that_of_all_servers() -> None:
    assert split_login(["tls://to%2Fken@one"], "the URL") == (["tls://one"], {"token": "to/ken"})
    assert split_login(["nats://a:b@one", "nats://a:b@two"], "x")[1] == {"user": "a", "password": "b"}
    for servers in (["nats://a:b@one", "nats://c:d@two"], ["nats://a:b", "nats://c@one"]):
        with pytest.raises(ConfigError, match="the URL has two logins"):
            split_login(servers, "the URL")


def test_credentials_without_the_package_that_signs_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nkeys", None)
    file = tmp_path / "user.creds"
    file.write_text("-----BEGIN NATS USER JWT-----\nx\n-----BEGIN USER NKEY SEED-----\ny\n")
    with pytest.raises(ConfigError, match=r"^the URL: creds needs the package nkeys: `pip install nkeys`$"):
        credentials_of(str(file), "the URL")


def test_a_lease_s_credentials_are_looked_at_before_nats_py_reads_them_forever(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    file.write_text("none")
    with pytest.raises(ConfigError, match="without the JWT and the seed of a user"):
        open_leases(f"nats://127.0.0.1:4222/b?creds={file}")
