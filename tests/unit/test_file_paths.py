"""A folder that bars the way is named, and nothing else is said of a place."""

from pathlib import Path

import pytest

from makegood.base.file_paths import check_searchable, file_of
from makegood.election.open import open_leases
from makegood.errors import ConfigError
from makegood.messaging.outbox import open_outbox
from makegood.store import open_store
from tests.forbidden_folder import barred


def test_what_is_missing_or_no_folder_is_the_affair_of_whoever_opens_it(tmp_path: Path) -> None:
    """A store that is not there yet is no mistake."""
    (tmp_path / "file").touch()
    for path in ("none.db", "none/none.db", "file", "file/none.db", "."):
        check_searchable(tmp_path / path)


def test_the_first_folder_that_bars_the_way_is_named(open_folder: Path) -> None:
    """The system says no more than that it is not permitted."""
    shut = open_folder / "shut"
    (shut / "deep").mkdir(parents=True)
    with barred(shut), pytest.raises(ConfigError, match=f"may not enter the folder {shut}: run as"):
        check_searchable(shut / "deep" / "store.db")


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("sqlite:///:memory:", "an in-memory store is not supported"),
        ("sqlite://:memory:", "an in-memory store is not supported"),
        ("sqlite:///file::memory:?cache=shared", "an in-memory store is not supported|has no parameter"),
        ("sqlite:///x?mode=memory", "an in-memory store is not supported|has no parameter"),
        ("sqlite:///shop.db?mode=ro", "has no parameter"),
        ("sqlite:///", "write sqlite:///file.db"),
        ("sqlite://", "write sqlite:///file.db"),
        ("sqlite://shop.db", "write sqlite:///file.db"),
    ],
)
def test_a_url_that_names_no_file_is_refused_with_what_to_write(
    url: str, pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores, leases and outboxes alike; a file of the name ``:memory:`` was made in the current folder."""
    monkeypatch.chdir(tmp_path)
    for opens in (file_of, open_store, open_leases, open_outbox):
        with pytest.raises(ConfigError, match=pattern):
            opens(url)
    assert not list(tmp_path.iterdir())
