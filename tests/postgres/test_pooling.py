"""A real PgBouncer in front of the server: with pool_mode=transaction it is found out, with pool_mode=session it will do."""

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

import makegood as mg
from examples.orders.free_port import free_port
from makegood.election import open_leases
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.options import Options
from makegood.store.postgres import PostgresStore
from proofs.private_server import PrivateServer
from tests.doors.conftest import Shop
from tests.waiting import until

Pooled = Callable[..., str]


@pytest.fixture
def pooler(open_folder: Path, url: str) -> Iterator[Pooled]:
    """Starts a PgBouncer with a pool_mode; returns the URL through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed: `make` installs it where apt-get may")
    parts = urlsplit(url)
    with contextlib.ExitStack() as stack:

        def start(mode: str, **settings: object) -> str:
            port = free_port()
            ini, log = open_folder / "pooler.ini", open_folder / "pooler.log"
            options = {"default_pool_size": 2, "ignore_startup_parameters": "extra_float_digits", **settings}
            lines = "".join(f"{name}={value}\n" for name, value in options.items())
            ini.write_text(
                f"[databases]\n* = host={parts.hostname} port={parts.port} user={parts.username} password={parts.password}\n"
                f"[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port={port}\nauth_type=any\nunix_socket_dir=\n"
                f"pool_mode={mode}\n{lines}",
                encoding="utf-8",
            )
            command = [program, str(ini)]
            if os.geteuid() == 0:  # it refuses to be root
                command[1:1] = ["-u", "nobody"]
            with log.open("wb") as out:
                process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
            stack.callback(process.wait, 60)
            stack.callback(process.kill)
            _listening(port, process, log)
            return f"postgresql://{parts.username}@127.0.0.1:{port}/{parts.path.lstrip('/')}"

        yield start


def _listening(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until somebody listens there, for at most 120 s."""
    end = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()


Traces = list[tuple[object, ...]]

TRACES = """
select current_setting('search_path'), current_setting('application_name') like 'makegood%',
    (select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where source in ('session', 'client')
        and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'extra_float_digits')),
    (select count(*) from pg_prepared_statements where name <> ''), current_setting('makegood.session', true) is null,
    (select count(*) from pg_listening_channels())
"""


async def traces(url: str) -> Traces:
    """Return what another program finds in the sessions that the pooler hands out."""
    connections = [await asyncpg.connect(url, statement_cache_size=0, timeout=60) for _ in range(3)]
    rows = [tuple(await connection.fetchrow(TRACES) or ()) for connection in connections * 2]
    for connection in connections:
        await connection.close()
    return rows


async def through_client(url: str) -> None:
    """A client's first command."""
    async with mg.Client(url) as client:
        await client.find(mg.Filter(limit=1))


async def through_sync_client(url: str) -> None:
    """The blocking client's."""

    def call() -> None:
        with mg.SyncClient(url) as client:
            client.find(mg.Filter(limit=1))

    await asyncio.to_thread(call)


async def through_node(url: str) -> None:
    """A node's start."""
    async with mg.Node(mg.App("shop"), url) as node:
        await node.client.find(mg.Filter(limit=1))


async def through_leases(url: str) -> None:
    """A candidate's first try."""
    async with open_leases(url, timeout="60s") as leases:
        await leases.acquire("reports", "host-1", "nonce-1", 15.0)


async def through_check(url: str) -> None:
    """`makegood store check`."""
    await PostgresStore(url).admin.check()


async def through_migration(url: str) -> None:
    """`makegood store migrate`."""
    await PostgresStore(url).admin.migrate()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("size", [1, 4])
async def test_everything_refuses_shared_sessions_by_name_and_leaves_no_trace(
    pooler: Pooled, mode: str, size: int
) -> None:
    """Also with extra settings that let an election's parameters through."""
    passing = "extra_float_digits,lock_timeout,statement_timeout"
    url = pooler(mode, default_pool_size=size, ignore_startup_parameters=passing)
    before = await traces(url)
    for attempt in (
        through_client, through_sync_client, through_node, through_leases, through_check, through_migration,
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=r"pool_mode=transaction.*pool_mode=session"):
            await attempt(url)
        assert set(await traces(url)) == set(before), attempt.__name__
    (finding,) = await PostgresStore(url).admin.examine()
    assert (finding.check, finding.severity) == ("pooling", "error")
    assert "pool_mode=transaction" in finding.what
    assert "pool_mode=session" in finding.remedy
    assert set(await traces(url)) == set(before)


async def test_shared_sessions_are_found_whatever_else_uses_the_pool(pooler: Pooled) -> None:
    """Other programs take sessions from it all the time, and it hands out the one that has rested longest."""
    url = pooler("transaction", default_pool_size=4, server_round_robin=1)
    stopping = asyncio.Event()

    async def load() -> None:
        connection = await asyncpg.connect(url, statement_cache_size=0)
        while not stopping.is_set():
            await connection.fetchval("select pg_sleep(0.001)")
        await connection.close()

    loads = [asyncio.create_task(load()) for _ in range(3)]
    for _ in range(5):
        with pytest.raises(ConfigError, match="pool_mode=transaction"):
            await through_client(url)
    stopping.set()
    await asyncio.gather(*loads)


async def test_a_node_works_through_session_pooling_with_five_connections(pooler: Pooled) -> None:
    url = pooler("session", default_pool_size=5, query_wait_timeout=60)
    app = mg.App("shop")
    agent = app.agent("counter")

    @agent.action(complete_within="20s", undo=mg.NOTHING)
    async def double(n: int) -> int:
        return 2 * n

    @app.workflow(complete_within="10m")
    def flow(n: int) -> int:
        return double(n)

    async with mg.Node(app, url) as node:
        assert await (await node.client.submit(flow, 21)).result(timeout=60) == 42


FEW = r"proxy is in between.*default_pool_size"


@pytest.mark.parametrize(
    "limits",
    [
        {"default_pool_size": 1}, {"default_pool_size": 2}, {"default_pool_size": 9, "max_db_connections": 2},
        {"default_pool_size": 1, "query_wait_timeout": 3}, {"default_pool_size": 9, "max_client_conn": 1},
    ],
)  # fmt: skip
async def test_a_pooler_with_too_few_connections_is_named(pooler: Pooled, limits: dict[str, int]) -> None:
    """Whether its queue lets a connection wait, ends the wait, or takes no more of them: the error says where connections are lacking."""
    url = pooler("session", **limits)
    with pytest.raises(StoreUnavailableError, match=FEW):
        await through_node(f"{url}?connect_timeout=6")


@pytest.mark.parametrize(
    "limits",
    [{"default_pool_size": 2, "query_wait_timeout": 1}, {"default_pool_size": 9, "max_client_conn": 2}],
)
async def test_a_node_that_lacks_connections_once_it_runs_says_so(
    pooler: Pooled, limits: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Two were enough to start."""

    async def said() -> object:
        return re.search(FEW, caplog.text)

    async with mg.Node(mg.App("shop"), pooler("session", **limits), options=Options(drain="0s")):
        await until(said, "the reason in the log")


async def test_session_pooling_will_do(pooler: Pooled) -> None:
    """The same proxy, one session for each connection."""
    findings = await PostgresStore(pooler("session", default_pool_size=5)).admin.examine()
    assert [one.severity for one in findings if one.check == "pooling"] == ["ok"]


@pytest.mark.parametrize("size", [2, 3, 4])
async def test_doctor_counts_the_connections_of_a_pool_that_is_too_small(pooler: Pooled, size: int) -> None:
    url = pooler("session", default_pool_size=size, query_wait_timeout=5)
    (finding,) = [one for one in await PostgresStore(url).admin.examine() if one.check == "pooling"]
    assert finding.severity == "warning"
    assert finding.what == f"the proxy in between had {size} connections for this process, and a Node needs 5"
    assert "default_pool_size" in finding.remedy


def test_doctor_says_so(pooler: Pooled, server: PrivateServer, tmp_path: Path) -> None:
    """Exit 1 and what to do; beside the proxy the same server is sound but for the durability that it was told to forgo."""
    shop = Shop(tmp_path, pooler("transaction"))
    report = shop.json("doctor", code=1)
    assert [(one["check"], one["severity"]) for one in report["findings"] if one["check"] != "zones"] == [
        ("database", "ok"),
        ("pooling", "error"),
    ]
    straight = shop.json("doctor", "--store", server.url, code=1)
    errors = [one["what"].partition(":")[0] for one in straight["findings"] if one["severity"] == "error"]
    assert errors == ["fsync is off", "full_page_writes is off"]
    assert [
        one["severity"] for one in straight["findings"] if one["check"] in ("schema", "clock", "orphans")
    ] == ["ok"] * 3
