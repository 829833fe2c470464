"""Only what is certain counts: a process of this host that is gone, and no other, even one that has its number now."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from makegood.base import process_identity
from makegood.base.process_identity import ProcessIdentity, is_gone, own

pytestmark = pytest.mark.skipif(own() is None, reason="only Linux says which process it is")


@dataclass
class Other:
    """Another process of this host, which waits for its end."""

    process: subprocess.Popen[bytes]
    identity: ProcessIdentity


def here() -> ProcessIdentity:
    """Return the identity of this process."""
    identity = own()
    assert identity is not None
    return identity


@pytest.fixture
def other() -> Other:
    """Start another process."""
    program = "import sys, time; print('here', flush=True); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    started = int(process_identity._fields(process.pid)[process_identity._STARTED])
    return Other(process, ProcessIdentity(here().scope, process.pid, started))


def test_a_process_that_lives_or_is_stopped_is_not_gone(other: Other) -> None:
    try:
        assert not is_gone(here(), here())
        assert not is_gone(other.identity, here())
        other.process.send_signal(signal.SIGSTOP)
        assert not is_gone(other.identity, here())
    finally:
        other.process.kill()
        other.process.communicate()


def test_one_that_was_killed_is_gone_also_before_its_parent_looks(other: Other) -> None:
    other.process.kill()
    os.waitid(os.P_PID, other.process.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(other.identity, here())
    other.process.communicate()
    assert is_gone(other.identity, here())


def test_whoever_has_its_number_now_is_another_one(other: Other) -> None:
    try:
        assert is_gone(replace(other.identity, started=other.identity.started - 1), here())
    finally:
        other.process.kill()
        other.process.communicate()


def test_of_another_boot_or_container_nothing_is_known(other: Other) -> None:
    other.process.kill()
    other.process.communicate()
    assert not is_gone(replace(other.identity, scope="another"), here())


def test_what_is_hidden_is_not_gone(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of another user, under a /proc that shows only one's own."""
    try:
        monkeypatch.setattr(process_identity, "_PROC", Path("/nowhere"))
        assert not is_gone(other.identity, here_again := other.identity), here_again
        assert own() is None
    finally:
        other.process.kill()
        other.process.communicate()
