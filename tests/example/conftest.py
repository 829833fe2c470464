"""The remote services as a real process, one for a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.orders.remote import SERVICES_VARIABLE
from examples.orders.world import Services, start_services


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """Calm services that the remote client finds."""
    with start_services(tmp_path / "books.db", seed=7) as running:
        monkeypatch.setenv(SERVICES_VARIABLE, running.url)
        yield running
