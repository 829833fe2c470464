"""No process of the demo outlives the process that started it, not even one that is stopped."""

import os
import subprocess
import sys

import pytest

from examples.orders.world import PACKAGE, ROOT
from tests.example.starter import assert_gone_with_starter

STARTER = f"""
import os, signal, subprocess, sys, urllib.request
process = subprocess.Popen(
    [sys.executable, "-u", "-m", "{PACKAGE}.tether", "http.server", "0", "--bind", "127.0.0.1"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0,
)
process.stdout.readline()  # it says where it serves: it is up
if sys.argv[1] == "stopped":
    os.kill(process.pid, signal.SIGSTOP)
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["running", "stopped"])
def test_it_ends_with_a_starter_that_is_killed(how: str) -> None:
    assert_gone_with_starter(STARTER, how)


def test_the_module_gets_its_own_arguments_and_its_exit_code_counts() -> None:
    """As with ``python -m``: here a module that ends by itself while its starter lives."""
    reader, writer = os.pipe()  # a stdin that does not end
    try:
        process = subprocess.run(
            [sys.executable, "-m", f"{PACKAGE}.tether", "json.tool", "--no-such-option"],
            cwd=ROOT,
            stdin=reader,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert process.returncode == 2
    assert b"--no-such-option" in process.stderr
