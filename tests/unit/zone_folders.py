"""Folders of zone rules that a test writes: laws that change on disk while a process runs."""

import shutil
import struct
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


def write_zone(path: Path, offset: int, *changes: tuple[int, int]) -> None:
    """Write the file of a zone (RFC 9636), for laws that no country has: its offset from UTC at first, and the instant and the
    new offset of each change, all in seconds.
    """
    offsets = [offset, *(new for _, new in changes)]
    types = b"".join(struct.pack(">lBB", each, 0, 0) for each in offsets) + b"LMT\0"
    head = struct.pack(">4sc15x", b"TZif", b"2")
    body = b"".join(struct.pack(">q", at) for at, _ in changes) + bytes(range(1, len(offsets)))
    counts = struct.pack(">6L", 0, 0, 0, len(changes), len(offsets), 4)
    old_form = struct.pack(">6L", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB", offset, 0, 0) + b"LMT\0"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(head + old_form + head + counts + body + types + b"\n\n")
    fresh.replace(path)


@contextmanager
def system_rules(*folders: Path) -> Iterator[None]:
    """Make these folders the system's."""
    zoneinfo.reset_tzpath([str(folder) for folder in folders])
    try:
        yield
    finally:
        zoneinfo.reset_tzpath()
