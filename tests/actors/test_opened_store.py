"""A client closes the store that it opened, and leaves one alone that it was given."""

from pathlib import Path

import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.client.opened_store import OpenedStore
from makegood.store.protocol import Store


async def test_a_store_of_the_clients_own_is_opened_and_closed_with_it(tmp_path: Path) -> None:
    handle = OpenedStore(f"sqlite:///{tmp_path / 'a.db'}", migrate=True, clock=SystemClock())
    with pytest.raises(mg.ClosedError, match="is not open"):
        handle.ready()
    await handle.open(looking=False)
    assert await handle.ready().tasks.find(mg.Filter()) == []
    await handle.close()
    with pytest.raises(mg.ClosedError):
        handle.ready()
    with pytest.raises(mg.MakegoodError):
        await handle.store.tasks.find(mg.Filter())


async def test_a_store_that_was_given_stays_open(store: Store) -> None:
    handle = OpenedStore(store, migrate=False, clock=SystemClock())
    await handle.open(looking=False)
    assert handle.ready() is store
    handle.shut()
    with pytest.raises(mg.ClosedError):
        handle.ready()
    await handle.close()
    assert await store.tasks.find(mg.Filter()) == []
