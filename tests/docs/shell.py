"""Lines of a page, typed into a real shell."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.doors.conftest import BARE


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which `makegood` is this checkout's, without settings but for ``more``."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**BARE, "PATH": path, **more}


def typed(text: str, folder: Path, **more: str) -> str:
    """Type lines in a folder; all must succeed within three minutes. Returns what they printed."""
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def wait_for_sent(count: int, folder: Path, **more: str) -> None:
    """Wait until the only broker that notices go to has confirmed ``count`` of them."""
    until = time.monotonic() + 120
    while True:
        receivers = json.loads(typed("makegood broker list --json", folder, **more))["receivers"]
        if [each["sent"] for each in receivers] == [count]:
            return
        assert time.monotonic() < until, receivers
