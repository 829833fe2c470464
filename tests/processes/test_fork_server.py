"""A forked process is one like any other: what it has of its own, and what is seen of its end."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.fork_server import Forked, ForkServer

PROGRAM = """
import json, os, random, sys
print(json.dumps([__name__, sys.argv, os.getcwd(), os.environ["MINE"], "OTHERS" in os.environ, os.getpid() == os.getpgid(0)]))
print(random.random(), os.getpid(), os.getppid())
print("aloud", file=sys.stderr)
print(repr(sys.stdin.read()))
if sys.argv[1] == "wait":
    sys.stdout.flush()
    os.kill(os.getpid(), 19)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def fork_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    """What forks, in whose environment there is a variable that the forked have not."""
    monkeypatch.setenv("OTHERS", "1")
    server = ForkServer()
    yield server
    server.close()


def launch(fork_server: ForkServer, folder: Path, word: str) -> Forked:
    """Start the program in its folder."""
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    return fork_server.launch(
        ["program", word], folder=folder, log=folder / "log", environment={"MINE": "yes"}
    )


def test_it_runs_a_module_with_all_that_a_program_has_of_its_own(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    """Arguments, folder, environment, process group, standard streams, a parent that waits for it, chance."""
    chances = set()
    for code in ("3", "0"):
        process = launch(fork_server, tmp_path, code)
        assert process.wait(60) == process.poll() == int(code)
        context, numbers, *rest = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
        program = str(tmp_path / "program.py")
        assert context == f'["__main__", ["{program}", "{code}"], "{tmp_path}", "yes", false, true]'
        assert sorted(rest) == ["''", "aloud"]
        chance, pid, parent = numbers.split()
        assert (int(pid), int(parent)) == (process.pid, os.getpid())
        chances.add(chance)
    assert len(chances) == 2


def test_its_end_is_seen_and_waited_for_only_so_long(fork_server: ForkServer, tmp_path: Path) -> None:
    """It has stopped itself, is not taken for ended, and dies of a signal, which is told as such."""
    process = launch(fork_server, tmp_path, "wait")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    assert process.poll() is None
    fork_server.close()
    assert process.poll() is None, "what was forked goes on"
    process.kill()
    assert process.wait(60) == process.returncode == -signal.SIGKILL
    process.kill()
