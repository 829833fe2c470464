"""A process that starts another and is killed: what it leaves behind."""

import os
import signal
import subprocess
import sys
from multiprocessing.connection import wait

from examples.orders.world import ROOT


def assert_gone_with_starter(program: str, argument: str) -> None:
    """Run a program that starts a process, prints its number and kills itself; the process ends soon after."""
    starter = subprocess.run(
        [sys.executable, "-c", program, argument], cwd=ROOT, capture_output=True, check=False, timeout=60
    )
    assert starter.returncode == -signal.SIGKILL, starter.stderr
    try:
        pidfd = os.pidfd_open(int(starter.stdout))
    except ProcessLookupError:
        return  # gone already
    try:
        assert wait([pidfd], 30), "the process outlived its starter"
    finally:
        os.close(pidfd)
