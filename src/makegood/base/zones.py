"""The rules of time zones: read from disk at each use, from the newer of the system's files and the package
``tzdata``.

Countries change their clocks at a few days' notice, and hosts learn of it at different times. ``zoneinfo``
keeps a zone as it was first read, and prefers the system's files however old they are: after an upgrade on
disk, a process would compute by two sets of rules. Here nothing is kept, and the version decides.
"""

import re
import zoneinfo
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from makegood.base.did_you_mean import did_you_mean
from makegood.errors import ConfigError

PACKAGE: Final = "the package tzdata"
"""The source of rules that ``pip`` installed."""
FOLDERS: Final[ContextVar[Sequence[Path] | None]] = ContextVar("makegood_zone_folders", default=None)
"""Folders of zones in place of the machine's; None: the machine's. A simulation runs hosts with different
rules in one process.
"""
_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_PRIVATE = ("localtime", "posix", "posixrules", "right")
"""Files and folders beside the zones: a machine's own zone, and zones that count leap seconds."""
_VERSION = re.compile(r"\b\d{4}[a-z]{1,2}\b")


class ZoneRules(msgspec.Struct, frozen=True):
    """A set of rules: where they are, and which release."""

    source: str
    """A folder of the system, or ``PACKAGE``."""
    version: str
    """The release, such as "2026f"; "" if the folder does not name it."""
    released: float | None = None
    """Seconds since 1970 by which that release was out: the date of its file, within the year of its version;
    None without a version.
    """

    def __str__(self) -> str:
        """Return the version and its source, for people."""
        return f"{self.version or 'of unknown version'} ({self.source})"


def current() -> ZoneRules | None:
    """Return the rules by which this process would compute now; None if the machine has none."""
    return next((rules for rules, _ in _folders()), None)


def zone(name: str) -> zoneinfo.ZoneInfo:
    """Return a zone by its IANA name, by the newest rules that know it, as they are on disk now.

    Raises ``ConfigError`` for an unknown name, and for a damaged file.

    >>> zone("Europe/Berlin").key
    'Europe/Berlin'
    """
    if _NAME.fullmatch(name) and name.partition("/")[0] not in _PRIVATE:
        for _, folder in _folders():
            try:
                with (folder / name).open("rb") as file:
                    return zoneinfo.ZoneInfo.from_file(file, key=name)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                continue
            except Exception as fault:
                # Bytes that are not a zone raise errors of any kind. Older rules in another folder are no
                # replacement: they may differ.
                raise ConfigError(
                    f"timezone={name!r:.80}: {folder / name} is not a readable zone file: install tzdata again"
                ) from fault
    raise ConfigError(f"timezone={name!r:.80}: {_remedy(name)}")


def _remedy(name: str) -> str:
    rules = current()
    if rules is None:
        return "this machine has no rules of time zones: pip install tzdata"
    # A name similar to an abbreviation may be hours away from it, as CEST from EST.
    is_abbreviation = name.isupper() and "/" not in name
    hint = "" if is_abbreviation else did_you_mean(name, zoneinfo.available_timezones())
    hint = hint or "write UTC, or a name such as Europe/Berlin"
    return (
        f"the zone rules {rules} have no such zone: {hint} (for a zone newer than these rules: "
        f"pip install --upgrade tzdata)"
    )


def _folders() -> list[tuple[ZoneRules, Path]]:
    """Return the folders of zones, those of the newest rules first, the system's before the package's."""
    replacements = FOLDERS.get()
    if replacements is None:
        places = [(place, Path(place)) for place in zoneinfo.TZPATH]
        places += [(PACKAGE, folder) for folder in _package_folders()]
    else:
        places = [(str(folder), folder) for folder in replacements]
    folders = [(_rules_in(source, folder), folder) for source, folder in places if _is_there(folder)]
    return sorted(folders, key=lambda pair: _version_key(pair[0].version), reverse=True)


def _is_there(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:  # this user may not read the folder above it
        return False


def _package_folders() -> Iterator[Path]:
    spec = find_spec("tzdata")
    for place in (spec and spec.submodule_search_locations) or ():
        yield Path(place, "zoneinfo")


def _rules_in(source: str, folder: Path) -> ZoneRules:
    for name in ("tzdata.zi", "+VERSION"):
        try:
            with (folder / name).open(encoding="utf-8", errors="replace") as file:
                match = _VERSION.search(file.readline(100))
            date = (folder / name).stat().st_mtime
        except OSError:
            continue
        if match is not None:
            year = int(match[0][:4])
            begin, end = (datetime(y, 1, 1, tzinfo=UTC).timestamp() for y in (year, year + 1))
            return ZoneRules(source, match[0], max(begin, min(end, date)))
    return ZoneRules(source, "")


def _version_key(version: str) -> tuple[str, int, str]:
    """Return the sort key of a version: 2025z before 2025za before 2026a, an unknown one first."""
    return version[:4], len(version), version
