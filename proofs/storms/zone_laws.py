"""Zones of a storm: each host has rules of its own in a folder, which an upgrade replaces on disk.

The clocks of such a zone change once in a world, by seconds, so that a short world has a gap or a repeated
stretch. Only the folders are made up: the engine reads them as it reads the system's.
"""

import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

ZONE: Final = "Storm/Town"
"""The zone of schedules in a storm."""


class ZoneLaw(NamedTuple):
    """When the clocks of a zone change, and their offsets from UTC before and from then on, in seconds."""

    change: int
    """Seconds since 1970."""
    before: int
    after: int

    def offset(self, at: int) -> int:
        """Return the offset at an instant."""
        return self.before if at < self.change else self.after

    def local(self, at: float) -> datetime:
        """Return what the clocks show at an instant, without zone."""
        return datetime.fromtimestamp(at, UTC).replace(tzinfo=None) + timedelta(seconds=self.offset(int(at)))

    def file(self) -> bytes:
        """Return the law as a compiled zone, version 2 of the format."""
        types = struct.pack(">lbb", self.before, 0, 0) + struct.pack(">lbb", self.after, 0, 0)
        transition = struct.pack(">q", self.change) + b"\1"
        return _head(0, 0, 0) + _head(1, 2, 4) + transition + types + b"ZON\0" + b"\n\n"


UNIVERSAL: Final = ZoneLaw(0, 0, 0)
"""The law of UTC."""


def _head(times: int, types: int, characters: int) -> bytes:
    return b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, times, types, characters)


def install(folder: Path, law: ZoneLaw, version: str) -> None:
    """Write a law, and UTC, into the folder of a host, in place of what is there."""
    for name, each in ((ZONE, law), ("UTC", UNIVERSAL)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".new").write_bytes(each.file())
        path.with_suffix(".new").replace(path)
    (folder / "tzdata.zi").write_text(f"# version {version}\n")
