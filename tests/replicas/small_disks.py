"""Small file systems that run full, and can be made larger: only root can mount them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest


@contextmanager
def small_disk(size: str, owner: os.stat_result | None = None) -> Iterator[Path]:
    """Mount a file system of a size ("20m") that belongs to whom ``owner`` says; skip, aloud, where that cannot be."""
    if os.geteuid() != 0:
        pytest.skip("disk full: only root can mount a small file system")
    folder = Path(mkdtemp(prefix="makegood-disk-"))
    whose = "" if owner is None else f",mode=700,uid={owner.st_uid},gid={owner.st_gid}"
    problem = _mounted(folder, f"size={size}{whose}")
    try:
        if problem:
            pytest.skip(f"disk full: no file system can be mounted here: {problem}")
        yield folder
    finally:
        if not problem:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def enlarge(folder: Path, size: str) -> None:
    """Make a small file system larger."""
    problem = _mounted(folder, f"remount,size={size}")
    assert not problem, problem


def _mounted(folder: Path, options: str) -> str:
    """Mount a file system in memory, or change one; returns what went wrong."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def stuff(ballast: Path) -> None:
    """Fill what is left: something smaller than what was refused could still have its place."""
    with ballast.open("wb", buffering=0) as file:
        for size in (65536, 4096):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
