"""A client closes the store that it opened, and leaves one alone that it was given."""

from pathlib import Path

import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.client.opened_store import OpenedStore
from makegood.store.protocol import Store


async def test_a_store_of_the_clients_own_is_opened_and_closed_with_it(tmp_path: Path) -> None:
    opened = OpenedStore(f"sqlite:///{tmp_path / 'a.db'}", migrate=True, clock=SystemClock())
    with pytest.raises(mg.ClosedError, match="is not open"):
        opened.ready()
    await opened.open(looking=False)
    assert await opened.ready().tasks.find(mg.Filter()) == []
    await opened.close()
    with pytest.raises(mg.ClosedError):
        opened.ready()
    with pytest.raises(mg.MakegoodError):
        await opened.store.tasks.find(mg.Filter())


async def test_a_store_that_was_given_stays_open(store: Store) -> None:
    opened = OpenedStore(store, migrate=False, clock=SystemClock())
    await opened.open(looking=False)
    assert opened.ready() is store
    opened.shut()
    with pytest.raises(mg.ClosedError):
        opened.ready()
    await opened.close()
    assert await store.tasks.find(mg.Filter()) == []
