"""Commands run as other users of this machine: what their rights do to each other only their processes show."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import makegood

OWNER, VISITOR = 65533, 65534
"""Two users without any rights of their own; they need no name."""

_SOURCE = Path(makegood.__file__).parents[1]


def run_as(user: int, folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run ``python WORDS`` in ``folder`` as this user, and return what came of it."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(_SOURCE),
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
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        folder = Path(made)
        folder.chmod(0o777)
        tried = run_as(VISITOR, folder, "-c", "import makegood.cli")
        if tried.returncode != 0:
            pytest.skip(
                f"users: another user cannot run this Python or makegood: {tried.stderr.strip()[-200:]}"
            )
        yield folder
