"""What the lock file must have in it, beyond what the Python that made it needs."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).parents[2] / "requirements.lock"
_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==", re.MULTILINE)


@pytest.mark.parametrize("python", ["3.11.0", "3.12.0", "3.13.0"])
def test_the_lock_serves_every_python_that_we_support(python: str) -> None:
    """It is made on one; a package that only another one needs is missing then, and with hashes nothing is installed at all. Debian
    12's own Python is 3.11.2, and redis wants a package more before 3.11.3.
    """
    pinned = {canonicalize_name(name) for name in _PINNED.findall(LOCK.read_text(encoding="utf-8"))}
    there = {
        "python_full_version": python,
        "python_version": ".".join(python.split(".")[:2]),
        "extra": "",
        "sys_platform": "linux",
        "platform_system": "Linux",
    }
    missing: list[str] = []
    for name in sorted(pinned):
        try:
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # for another Python
            continue
        for text in wanted:
            requirement = Requirement(text)
            if requirement.marker is not None and not requirement.marker.evaluate(there):
                continue
            if canonicalize_name(requirement.name) not in pinned:
                missing.append(f"{name} wants {text}")
    assert missing == []
