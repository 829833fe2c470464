"""Folders of zone rules that a test writes: laws that change on disk while a process runs."""

import shutil
import zoneinfo
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

STANDARD, SUMMER, CHANGING = "Etc/GMT+6", "Etc/GMT+5", "America/Chicago"
"""Laws that a zone in America may have: always standard time, always summer time, and a change twice a year."""


def enact(folder: Path, version: str, **laws: str) -> Path:
    """Write the rules of a version into a folder; ``laws``: zones (``America_Winnipeg``) and the zone whose law each has."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, law in laws.items():
        path = folder / name.replace("_", "/", 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        with as_file(files("tzdata") / "zoneinfo" / law) as source:
            shutil.copy(source, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)
    (folder / "tzdata.zi").write_text(f"# version {version}\n")
    return folder


@contextmanager
def system_rules(*folders: Path) -> Iterator[None]:
    """Make these folders the system's."""
    zoneinfo.reset_tzpath([str(folder) for folder in folders])
    try:
        yield
    finally:
        zoneinfo.reset_tzpath()
