"""Commands run as other users of this machine: what their rights do to each other only their processes show."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import makegood

OWNER, VISITOR = 65533, 65534
"""Two users without any rights of their own; they need no name."""

_SOURCE = Path(makegood.__file__).parents[1]


def _python() -> str:
    """Return a Python that others may run: ours may lie in a home that is its owner's alone; then the system's, if it is the same version."""
    ours = Path(sys.executable).resolve()
    if all(folder.stat().st_mode & 0o001 for folder in ours.parents):
        return sys.executable
    return (
        shutil.which(
            f"python{sys.version_info.major}.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin"
        )
        or sys.executable
    )


_PYTHON = _python()
_PACKAGES = sysconfig.get_path("purelib")


def run_as(user: int, folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run ``python WORDS`` in ``folder`` as this user, and return what came of it."""
    return subprocess.run(
        [_PYTHON, *words],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{_SOURCE}{os.pathsep}{_PACKAGES}",
            "PYTHONDONTWRITEBYTECODE": "1",
            **environ,
        },
        user=user,
        group=user,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextmanager
def common_folder() -> Iterator[Path]:
    """A folder that everybody may write to; pytest's own ones are their user's alone. Skips where nobody can become another user."""
    if os.geteuid() != 0:
        pytest.skip("users: only root can run commands as two other users")
    with tempfile.TemporaryDirectory(dir="/tmp") as path:
        folder = Path(path)
        folder.chmod(0o777)
        try:
            run_as(VISITOR, folder, "-c", "import makegood.cli").check_returncode()
        except (PermissionError, subprocess.CalledProcessError) as cannot:
            pytest.skip(f"users: another user cannot run this Python or makegood: {cannot}")
        yield folder
