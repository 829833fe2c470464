"""A world for each test and store, and what a failed test prints: logs, traces, tables, books.

PostgreSQL: one private server for each test process, in a temporary folder, with a database for each test; a test that
stops its server or spoils it starts one of its own. Without server programs those tests are skipped aloud, which in CI is
a failure.
"""

import asyncio
import itertools
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from makegood import MakegoodError
from makegood.store import open_store
from proofs.private_server import PrivateServer
from tests.processes.world import World

STORES = ("sqlite", "postgres")
TEMPLATE = "migrated"
_NUMBERS = itertools.count(1)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: sockets stand in it."""
    with tempfile.TemporaryDirectory(prefix="makegood-") as path:
        yield Path(path)


def started() -> PrivateServer:
    """Return a running server, or skip the test."""
    pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")
    try:
        # A database for each test: too many to be looked at every ten seconds.
        server = PrivateServer(settings={"autovacuum_naptime": "1min"})
        server.start()
    except MakegoodError as why:
        pytest.skip(f"postgres: {why}")
    return server


@pytest.fixture(scope="session")
def shared_server() -> Iterator[PrivateServer]:
    """The server for all tests of this process that leave it alone; its template database has the schema."""
    server = started()
    asyncio.run(open_store(server.create_database(TEMPLATE)).admin.migrate())
    yield server
    server.discard()


def another_database(server: PrivateServer) -> str:
    """Return the URL of an empty database beside the store's."""
    return server.create_database(f"test_{next(_NUMBERS)}")


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    """A server of the test's own, to be stopped, started and spoilt."""
    server = started()
    yield server
    server.discard()


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest, folder: Path) -> Iterator[World]:
    """A world on each store."""
    if request.param == "sqlite":
        new_world = World(folder, f"sqlite:///{folder}/store.db")
    else:
        private_server: PrivateServer = request.getfixturevalue("shared_server")
        new_world = World(folder, private_server.create_database(f"test_{next(_NUMBERS)}", TEMPLATE))
    yield new_world
    new_world.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what is known of the worlds to the report of a failed test."""
    report = yield
    if report.when == "call" and report.failed:
        for each_world in World.of_test:
            report.sections.append(("the world", asyncio.run(each_world.report())))
    return report


@pytest.fixture(scope="session", autouse=True)
def one_fork_server() -> Iterator[None]:
    """What makes the worlds' processes ends with the run."""
    yield
    World.fork_server.close()


@pytest.fixture(autouse=True)
def new_worlds() -> Iterator[None]:
    """Forget the worlds of the test before."""
    World.of_test.clear()
    yield
    World.of_test.clear()
