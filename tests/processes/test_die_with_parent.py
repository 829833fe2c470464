"""No process of a fault test outlives the test, however that one ends."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes.world import ROOT

PROGRAM = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-m", "tests.processes.die_with_parent", "tests.processes.lock_holder", sys.argv[1]],
                         stdout=subprocess.PIPE, process_group=0)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""
FORK = """
import os, pathlib, sys, time
from tests.processes.fork_server import ForkServer
folder = pathlib.Path(sys.argv[1]).parent
child = ForkServer().launch(["tests.processes.lock_holder", sys.argv[1]], folder=folder, log=folder / "log", environment=dict(os.environ))
while not (folder / "log").read_bytes():
    time.sleep(0.01)
print(child.pid, flush=True)
time.sleep(60)
"""


def lives(pid: int) -> bool:
    """Whether a process runs: one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, or before it was read
        return False


@pytest.mark.parametrize("how", [PROGRAM, FORK], ids=["program", "fork"])
def test_a_process_dies_with_its_starter(tmp_path: Path, how: str) -> None:
    """Its starter is killed with SIGKILL and can say nothing to it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    with subprocess.Popen(
        [sys.executable, "-c", how, str(tmp_path / "file.db")], stdout=subprocess.PIPE, env=environment
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert lives(pid)
        starter.kill()
    end = time.monotonic() + 60
    while lives(pid):
        assert time.monotonic() < end, f"process {pid} has outlived its starter"
        time.sleep(0.01)
