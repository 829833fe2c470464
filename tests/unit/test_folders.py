"""A folder that bars the way is named, and nothing else is said of a place."""

import os
from pathlib import Path

import pytest

from makegood.errors import ConfigError
from makegood.folders import entered


def test_what_is_missing_or_no_folder_is_the_affair_of_whoever_opens_it(tmp_path: Path) -> None:
    """A store that is not there yet is no mistake."""
    (tmp_path / "file").touch()
    for path in ("none.db", "none/none.db", "file", "file/none.db", "."):
        entered(tmp_path / path)


def test_the_first_folder_that_bars_the_way_is_named(tmp_path: Path) -> None:
    """The system says no more than that it is not permitted; root is let in everywhere, so it becomes somebody else."""
    barred = tmp_path / "barred"
    (barred / "deep").mkdir(parents=True)
    above = [folder for folder in tmp_path.parents if folder.stat().st_uid == os.geteuid()]
    modes = {folder: folder.stat().st_mode for folder in (tmp_path, *above)}
    root = os.geteuid() == 0
    for folder, mode in modes.items():
        if root and folder != Path("/"):
            folder.chmod(mode | 0o055)
    barred.chmod(0o000)
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match=f"may not enter the folder {barred}: run as"):
            entered(barred / "deep" / "store.db")
    finally:
        if root:
            os.seteuid(0)
        barred.chmod(0o700)
        for folder, mode in modes.items():
            folder.chmod(mode)
