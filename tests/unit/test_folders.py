"""A folder that bars the way is named, and nothing else is said of a place."""

from pathlib import Path

import pytest

from makegood.errors import ConfigError
from makegood.folders import entered
from tests.barred import barred


def test_what_is_missing_or_no_folder_is_the_affair_of_whoever_opens_it(tmp_path: Path) -> None:
    """A store that is not there yet is no mistake."""
    (tmp_path / "file").touch()
    for path in ("none.db", "none/none.db", "file", "file/none.db", "."):
        entered(tmp_path / path)


def test_the_first_folder_that_bars_the_way_is_named(tmp_path: Path) -> None:
    """The system says no more than that it is not permitted."""
    shut = tmp_path / "shut"
    (shut / "deep").mkdir(parents=True)
    with barred(shut), pytest.raises(ConfigError, match=f"may not enter the folder {shut}: run as"):
        entered(shut / "deep" / "store.db")
