"""A PostgreSQL server of the tests' own, a fresh database for each, and a proxy that can misbehave in between."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import asyncpg
import pytest

from makegood.errors import ConfigError
from makegood.store.postgres import PostgresStore
from proofs.private_server import PrivateServer
from tests.conformance.conftest import pytest_pyfunc_call, runner
from tests.conformance.postgres import PostgresWorld
from tests.postgres.faulty_proxy import Proxy

__all__ = ["pytest_pyfunc_call", "runner"]

SETTINGS = {"fsync": "off", "full_page_writes": "off", "deadlock_timeout": "200ms"}
TEMPLATE = "migrated"
NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server_of_the_run() -> Iterator[PrivateServer]:
    """One server for all; its template database has the schema."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(PrivateServer(database=TEMPLATE, settings=SETTINGS))
        except ConfigError as missing:
            pytest.skip(f"postgres: {missing}")
        asyncio.run(PostgresStore(server.url).admin.migrate())
        yield server


@pytest.fixture
def server(server_of_the_run: PrivateServer) -> Iterator[PrivateServer]:
    """The server, running; a test may stop it or change its settings."""
    assert server_of_the_run.folder is not None
    configuration = server_of_the_run.folder / "data/postgresql.auto.conf"
    before = configuration.read_bytes()
    yield server_of_the_run
    server_of_the_run.start()
    if configuration.read_bytes() != before:
        server_of_the_run.run("alter system reset all", database="postgres")
        server_of_the_run.run("select pg_reload_conf()", database="postgres")


@pytest.fixture(scope="session")
def shared_url(server_of_the_run: PrivateServer) -> str:
    """A database with the schema, which tests have one after another."""
    return server_of_the_run.create_database("shared", TEMPLATE)


@pytest.fixture
def url(request: pytest.FixtureRequest, server: PrivateServer) -> Iterator[str]:
    """An empty database with the schema; a new one for a test with the marker ``new_database``, to which more is done than rows."""
    if request.node.get_closest_marker("new_database"):
        name = f"test_{next(NUMBERS)}"
        yield server.create_database(name, TEMPLATE)
        server.start()
        server.drop_database(name)
        return
    common_url: str = request.getfixturevalue("shared_url")
    yield common_url
    server.start()
    others = "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'shared'"
    server.run(others, database="postgres")
    asyncio.run(PostgresWorld(common_url).clean())


@pytest.fixture
def store(url: str, runner: asyncio.Runner) -> Iterator[PostgresStore]:
    """An open store."""
    new_store = PostgresStore(url)
    runner.run(new_store.open())
    yield new_store
    runner.run(new_store.close())


@pytest.fixture
def proxy(server: PrivateServer, runner: asyncio.Runner) -> Iterator[Proxy]:
    """A proxy in front of the server."""
    new_proxy = Proxy(server.port)
    runner.run(new_proxy.start())
    yield new_proxy
    runner.run(new_proxy.stop())


@pytest.fixture
def behind(url: str, server: PrivateServer, proxy: Proxy, runner: asyncio.Runner) -> Iterator[PostgresStore]:
    """An open store whose connections go through the proxy."""
    new_store = PostgresStore(url.replace(f":{server.port}/", f":{proxy.port}/"))
    runner.run(new_store.open())
    yield new_store
    runner.run(new_store.close())


@pytest.fixture
def db(url: str, runner: asyncio.Runner) -> Iterator[Any]:
    """A connection of the test's own to the database."""
    connection = runner.run(asyncpg.connect(url))
    yield connection
    if not connection.is_closed():
        runner.run(connection.close())
