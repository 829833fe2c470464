"""Writes constraints.txt: for users, the versions of requirements.lock of what makegood and its extras need, without the tools of the tests."""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "constraints.txt"
HEAD = """\
# The versions that makegood was tested with, from requirements.lock (`make lock` writes both): pip install -c constraints.txt 'makegood[console]'
"""
_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==\S+(?: ; [^\\\n]+?)?(?= \\|$)", re.MULTILINE)


def pinned() -> Mapping[str, str]:
    """Return the lines of the lock by package, without hashes."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return {canonicalize_name(line[1]): line[0] for line in _PINNED.finditer(lock)}


def needed() -> set[str]:
    """Return the packages that a user gets: those of the base install and of the extra "all", and what these need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    open_ = [Requirement(text) for text in (*project["dependencies"], *_of(extras, "all"))]
    names: set[str] = set()
    visits: set[tuple[str, frozenset[str]]] = set()
    while open_:
        requirement = open_.pop()
        key = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if key in visits:
            continue
        visits.add(key)
        names.add(key[0])
        open_ += _needs(key[0], requirement.extras)
    return names


def _of(extras: Mapping[str, list[str]], name: str) -> Iterator[str]:
    for text in extras[name]:
        requirement = Requirement(text)
        if requirement.name == "makegood":
            for inner in sorted(requirement.extras):
                yield from _of(extras, inner)
        else:
            yield text


def _needs(name: str, extras: set[str]) -> Iterator[Requirement]:
    try:
        texts = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # for another Python
        return
    for text in texts:
        requirement = Requirement(text)
        marker = str(requirement.marker or "")
        if "extra" not in marker or any(
            requirement.marker.evaluate({"extra": extra}) for extra in extras if requirement.marker
        ):
            yield requirement  # whatever its Python and its system: the lock says which of them it has


def constraints() -> str:
    """Return the text of the file."""
    lines = pinned()
    return HEAD + "".join(f"{lines[name]}\n" for name in sorted(needed() & lines.keys()))


if __name__ == "__main__":
    FILE.write_text(constraints(), encoding="utf-8")
    print(f"makegood: {FILE.name} is written", file=sys.stderr)
