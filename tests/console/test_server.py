"""A console that a process serves itself: where it listens, what it refuses, and that it ends when it is told to."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import makegood as mg
from makegood.console.options import ConsoleOptions
from makegood.console.server import ConsoleServer
from makegood.telemetry import Telemetry
from tests.actors.conftest import QUIET
from tests.console.consoles import USERS, migrated, shop

TOKEN = "the-token-of-a-test"
BEARER = f"Authorization: Bearer {TOKEN}\r\n"


async def first_line(address: str, path: str = "/") -> str:
    """Return the first line of an answer."""
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    head = f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\n{BEARER}Connection: close\r\n\r\n"
    writer.write(head.encode())
    line = (await reader.readline()).decode().strip()
    writer.close()
    return line


async def test_a_server_listens_and_ends(tmp_path: Path) -> None:
    """With a page that is live: its stream ends with the console, which does not wait for it."""
    server = ConsoleServer(await migrated(tmp_path), ConsoleOptions(listen="127.0.0.1:0", token=TOKEN))
    await server.begin()
    assert await first_line(server.address) == "HTTP/1.1 200 OK"
    where = urlsplit(server.address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(f"GET /events?page=/ HTTP/1.1\r\nHost: {where.netloc}\r\n{BEARER}\r\n".encode())
    assert b"200" in await reader.readline()
    await asyncio.wait_for(server.end(), 120)
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await first_line(server.address)


async def test_a_port_that_is_taken_is_a_clear_error(tmp_path: Path) -> None:
    """And a host that is not one of this machine; nothing is left open then."""
    url = await migrated(tmp_path)
    server = ConsoleServer(url, ConsoleOptions(listen="127.0.0.1:0", token=TOKEN))
    await server.begin()
    port = urlsplit(server.address).port
    with pytest.raises(
        mg.ConfigError, match=re.escape(f"console='127.0.0.1:{port}': this process cannot listen there")
    ):
        await ConsoleServer(url, ConsoleOptions(listen=f"127.0.0.1:{port}")).begin()
    await server.end()


def test_other_machines_are_let_in_only_with_users() -> None:
    """Or with the word that it is insecure."""
    for listen in ("0.0.0.0:0", "[::]:0", "192.0.2.1:8640", "shop.example:8640"):
        with pytest.raises(
            mg.ConfigError, match=r"nobody has to log in.*MAKEGOOD_CONSOLE_INSECURE, insecure="
        ):
            ConsoleOptions(listen=listen)  # what any command takes: `makegood run` has no --insecure
        assert ConsoleOptions(listen=listen, users=USERS).authenticates
        assert not ConsoleOptions(listen=listen, insecure=True).authenticates
    for listen in ("127.0.0.1:0", "[::1]:0", "localhost:8640"):
        assert not ConsoleOptions(listen=listen).authenticates


async def test_a_node_serves_the_console_of_its_own_store(tmp_path: Path) -> None:
    """It is one of the process's roles for others to see, and ends with the node."""
    async with mg.Node(
        shop,
        await migrated(tmp_path),
        options=QUIET,
        console=ConsoleOptions(listen="127.0.0.1:0", token=TOKEN),
    ) as node:
        assert await first_line(node.console) == "HTTP/1.1 200 OK"
        address = node.console
    with pytest.raises(ConnectionRefusedError):
        await first_line(address)


async def test_the_console_of_a_node_names_the_store(tmp_path: Path) -> None:
    """As one that was given a URL does; with telemetry, which wraps the store, as well."""
    listen = ConsoleOptions(listen="127.0.0.1:0", token=TOKEN)
    url = await migrated(tmp_path)
    async with mg.Node(shop, url, options=QUIET, console=listen, telemetry=Telemetry()) as node:
        where = urlsplit(node.console)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(f"GET / HTTP/1.1\r\nHost: {where.netloc}\r\n{BEARER}Connection: close\r\n\r\n".encode())
        page = await reader.read()
        writer.close()
    assert b"SQLite console.db" in page


def test_the_command_serves_until_sigterm(tmp_path: Path) -> None:
    """It says where on stdout, and exits with 0."""
    store = asyncio.run(migrated(tmp_path))
    command = [
        sys.executable,
        "-m",
        "makegood",
        "console",
        "--store",
        store,
        "--console",
        "127.0.0.1:0",
        "--json",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"MAKEGOOD_CONSOLE_TOKEN": TOKEN},
    ) as process:
        assert process.stdout is not None
        event = json.loads(process.stdout.readline())
        assert event["event"] == "started"
        assert asyncio.run(first_line(event["console"])) == "HTTP/1.1 200 OK"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert json.loads(process.stdout.readline())["event"] == "stopped"


def test_a_hash_is_printed_as_a_line_of_the_settings(tmp_path: Path) -> None:
    """The password is read from stdin, and is nowhere in what is printed."""
    command = [sys.executable, "-m", "makegood", "console", "--hash-password", "ann", "--role", "operator"]
    run = subprocess.run(
        command, input="correct horse battery\n", capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert re.fullmatch(r'"ann" = "operator scrypt:15:8:1:[\w-]{22}:[\w-]{43}"\n', run.stdout)
    short = subprocess.run(
        command, input="short\n", capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (short.returncode, short.stdout) == (2, "")
    assert "12 to 1024 characters" in short.stderr


def test_the_package_loads_no_web_framework_before_it_is_used() -> None:
    """Nor does makegood itself; without the extra, the error names it."""
    program = (
        "import sys, makegood, makegood.console, makegood.console.users\n"
        "assert not {'starlette', 'jinja2', 'uvicorn'} & set(sys.modules)\n"
        "sys.modules['starlette'] = None\n"
        "try:\n    makegood.console.create_app\n"
        "except makegood.ConfigError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "pip install 'makegood[console]'" in run.stdout
