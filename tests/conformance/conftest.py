"""One suite for every store: ``store`` is an open one on an empty database, ``world`` that database, ``other`` a second store
on it, which is what another process would have.

PostgreSQL is looked for in this order: MAKEGOOD_TEST_POSTGRES, a server on 127.0.0.1:5432 (one that refuses us counts as
absent), a private server in a temporary folder; else the tests are skipped aloud, which in CI is a failure.
"""

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from makegood.errors import MakegoodError
from makegood.store.protocol import Store
from tests.conformance.builders import info
from tests.conformance.worlds import Counts, SQLiteWorld, World, migrated
from tests.guarded_merges import MergeRecord, recorded_merges, short_logs


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test on the event loop on which its fixtures were made."""
    runner = pyfuncitem.funcargs.get("runner")
    if not isinstance(runner, asyncio.Runner) or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(autouse=True)
def merges(request: pytest.FixtureRequest) -> Iterator[MergeRecord]:
    """What makegood does with the logs of SQLite files, which are merged at every chance except where connections or statements are counted."""
    with ExitStack() as stack:
        if {"counts", "faults"}.isdisjoint(request.fixturenames):
            stack.enter_context(short_logs())
        yield stack.enter_context(recorded_merges())


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test."""
    with asyncio.Runner() as asyncio_runner:
        yield asyncio_runner


@pytest.fixture(scope="session")
def databases() -> Iterator[Any]:
    """The PostgreSQL server of the run, or the reason why there is none."""
    pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")
    from tests.conformance import postgres  # noqa: PLC0415 - asyncpg is an extra

    with ExitStack() as stack:
        try:
            servers: object = stack.enter_context(postgres.databases())
        except MakegoodError as reason:
            servers = str(reason)
        yield servers


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path, runner: asyncio.Runner) -> Iterator[World]:
    """An empty database of each kind; where a store is opened on it, its tables are there."""
    fresh = {"store", "counting"}.isdisjoint(request.fixturenames)
    if request.param == "sqlite":
        sqlite_world = SQLiteWorld(tmp_path)
        if not fresh:
            sqlite_world.path.write_bytes(migrated())
            sqlite_world.path.chmod(0o600)
        yield sqlite_world
        return
    databases = request.getfixturevalue("databases")
    if isinstance(databases, str):
        pytest.skip(f"postgres: {databases}")
    from tests.conformance.postgres import one_of  # noqa: PLC0415 - asyncpg is an extra

    lease = one_of(databases, fresh=fresh)
    yield runner.run(lease.__aenter__())
    runner.run(lease.__aexit__(None, None, None))


@pytest.fixture
def store(world: World, runner: asyncio.Runner) -> Iterator[Store]:
    """An open store."""
    new_store = world.store()
    runner.run(new_store.open(migrate=True))
    yield new_store
    runner.run(new_store.close())


async def warm(store: Store) -> None:
    """Have all connections opened, so that what is counted is no preparation."""
    await asyncio.gather(*(store.nodes.register(info(roles=("agent",))) for _ in range(8)))


@pytest.fixture
def counting(world: World, runner: asyncio.Runner) -> Iterator[tuple[Store, Counts]]:
    """An open store, and what goes through its driver."""
    made, counts = world.counted()
    runner.run(made.open(migrate=True))
    runner.run(warm(made))
    yield made, counts
    runner.run(made.close())


@pytest.fixture
def counting_store(counting: tuple[Store, Counts]) -> Store:
    """An open store whose commits and statements are counted."""
    return counting[0]


@pytest.fixture
def counts(counting: tuple[Store, Counts]) -> Counts:
    """What has gone through the driver of ``counted``."""
    return counting[1]


@pytest.fixture
def other(world: World, store: Store, runner: asyncio.Runner) -> Iterator[Store]:
    """A second store on the same database: another process, as far as the database can tell."""
    second = world.store()
    runner.run(second.open())
    yield second
    runner.run(second.close())
