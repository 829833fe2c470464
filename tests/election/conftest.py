"""A PostgreSQL for the election's tests: the one that the stores' own suite finds; a database of its own for each test. And a private
server of each other kind that the machine has the programs for.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from makegood.errors import MakegoodError
from proofs.servers import LeaseServer, ServerKind
from tests.conformance.postgres import Databases, databases


@pytest.fixture(scope="session")
def servers() -> Iterator[Databases]:
    """The PostgreSQL server of the run."""
    with ExitStack() as stack:
        try:
            private = stack.enter_context(databases())
        except MakegoodError as reason:
            pytest.skip(f"postgres: {reason}")
        yield private


@pytest.fixture
def database(servers: Databases) -> Iterator[str]:
    """The URL of an empty database."""
    url = asyncio.run(servers.create())
    yield url
    asyncio.run(servers.drop(url))


@pytest.fixture(scope="module")
def shared_database(servers: Databases) -> Iterator[str]:
    """The URL of a database that the tests of a module share, under names of their own."""
    url = asyncio.run(servers.create())
    yield url
    asyncio.run(servers.drop(url))


@contextmanager
def started() -> Iterator[Callable[[ServerKind], LeaseServer]]:
    """A server of each kind that is asked for; skips, aloud, when it cannot be had here."""
    running: dict[ServerKind, LeaseServer] = {}
    with ExitStack() as stack:

        def server(kind: ServerKind) -> LeaseServer:
            if kind not in running:
                try:
                    running[kind] = stack.enter_context(LeaseServer(kind))
                except MakegoodError as reason:
                    pytest.skip(f"leases on {kind} were NOT tested: {reason}")
            return running[kind]

        yield server


@pytest.fixture(scope="session")
def lease_server() -> Iterator[Callable[[ServerKind], LeaseServer]]:
    """Returns the run's server of a kind, begun when it is first asked for."""
    with started() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[Callable[[ServerKind], LeaseServer]]:
    """Returns a server of a kind that is the test's own, to be set as it likes."""
    with started() as server:
        yield server
