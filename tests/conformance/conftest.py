"""One suite for every store: ``store`` is an open one on an empty database, ``world`` that database, ``other`` a second store
on it, which is what another process would have.

PostgreSQL is looked for in this order: MAKEGOOD_TEST_POSTGRES, a server on 127.0.0.1:5432 (one that refuses us counts as
absent), a private server in a temporary folder; else the tests are skipped aloud, which in CI is a failure.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from makegood.store.protocol import Store
from tests.conformance.worlds import Counts, SQLiteWorld, World


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test on the event loop on which its fixtures were made."""
    runner = pyfuncitem.funcargs.get("runner")
    if not isinstance(runner, asyncio.Runner) or not asyncio.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test."""
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest, tmp_path: Path, runner: asyncio.Runner) -> Iterator[World]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield SQLiteWorld(tmp_path)
        return
    pytest.skip("postgres: the store is not written yet")


@pytest.fixture
def store(world: World, runner: asyncio.Runner) -> Iterator[Store]:
    """An open store."""
    made = world.store()
    runner.run(made.open(migrate=True))
    yield made
    runner.run(made.close())


@pytest.fixture
def counts() -> Counts:
    """What has gone through the driver of ``counted``."""
    return Counts()


@pytest.fixture
def counted(world: World, counts: Counts, runner: asyncio.Runner) -> Iterator[Store]:
    """An open store whose commits and statements are counted."""
    made = world.counted(counts)
    runner.run(made.open(migrate=True))
    yield made
    runner.run(made.close())


@pytest.fixture
def other(world: World, store: Store, runner: asyncio.Runner) -> Iterator[Store]:
    """A second store on the same database: another process, as far as the database can tell."""
    made = world.store()
    runner.run(made.open())
    yield made
    runner.run(made.close())
