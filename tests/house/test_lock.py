"""What the lock file must have in it, beyond what the Python that made it needs."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from scripts.constraints import FILE, constraints, needed, pinned

LOCK = Path(__file__).parents[2] / "requirements.lock"
_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==", re.MULTILINE)


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0"])
def test_the_lock_serves_every_python_that_we_support(python: str) -> None:
    """It is made on one; a package that only another one needs is missing then, and with hashes nothing is installed at all. Debian
    12's own Python is 3.11.2, and redis wants a package more before 3.11.3.
    """
    pins = {canonicalize_name(name) for name in _PINNED.findall(LOCK.read_text(encoding="utf-8"))}
    there = {
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "extra": "",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    missing: list[str] = []
    for name in sorted(pins):
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another Python
            continue
        for text in requirements:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate(there):
                continue
            if canonicalize_name(requirement.name) not in pins:
                missing.append(f"{name} wants {text}")
    assert missing == []


def test_the_constraints_for_users_are_those_of_the_lock() -> None:
    """`make lock` writes both; a version that was raised in one alone would be none that was tested."""
    assert FILE.read_text(encoding="utf-8") == constraints()
    assert {
        "msgspec",
        "click",
        "rich",
        "starlette",
        "h11",
        "jinja2",
        "uvicorn",
        "asyncpg",
    } <= needed() & pinned().keys()
    assert "pytest" not in needed()


FLOORS = {
    "starlette": "1.3.1",  # CVE-2025-54121, CVE-2025-62727, and the Host header in request.url
    "jinja2": "3.1.6",  # CVE-2025-27516
    "h11": "0.16",  # CVE-2025-43859; uvicorn asks for any
    "azure-core": "1.38",  # CVE-2026-21226
    "aiohttp": "3.13.3",  # eight of December 2025
}
"""The first version of each package without an advisory."""


@pytest.mark.parametrize("name", FLOORS)
def test_no_version_with_a_known_advisory_is_admitted(name: str) -> None:
    """Whoever installs with the lowest versions that we admit gets none of these."""
    project = tomllib.loads((LOCK.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [
        requirement
        for texts in (project["dependencies"], *project["optional-dependencies"].values())
        for requirement in map(Requirement, texts)
        if canonicalize_name(requirement.name) == name
    ]
    assert requirements
    for requirement in requirements:
        floor = min(Version(one.version) for one in requirement.specifier if one.operator == ">=")
        assert floor >= Version(FLOORS[name]), requirement


def test_the_licence_covers_what_is_vendored() -> None:
    """The metadata names the licence of each file that is not ours, and its text is in every package."""
    project = tomllib.loads((LOCK.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = LOCK.parent / "src/makegood/console/static/vendor"
    for entry in tomllib.loads((folder / "vendor.toml").read_text(encoding="utf-8")).values():
        assert entry["licence"] in project["license"].split(" AND ")
        assert str((folder / entry["licence_file"]).relative_to(LOCK.parent)) in project["license-files"]
