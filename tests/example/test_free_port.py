"""Ports of private servers, from a range that this test alone uses."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from examples.orders import free_port as module

ROOT = Path(__file__).resolve().parents[2]
SMALL = 8
PROGRAM = f"""
from examples.orders import free_port as module
module._FROM, module._TO = 9_000, 9_000 + {SMALL}
print(module.free_port(), flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no names that end with their program")
def test_a_port_is_given_out_once_to_the_programs_of_a_machine_until_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody listens on any of them."""
    monkeypatch.setattr(module, "_FROM", 9_000)
    monkeypatch.setattr(module, "_TO", 9_000 + SMALL)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as other:
        assert other.stdout is not None
        ports = [int(other.stdout.readline())]
        with suppress(OSError):
            while True:
                ports.append(module.free_port())
        assert len(set(ports)) == len(ports) > 1
        other.communicate("")
    assert module.free_port() == ports[0]
