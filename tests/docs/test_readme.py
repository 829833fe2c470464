"""The README does what it says: its program is run, its output compared, its commands are typed into a shell."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def block(kind: str, within: str) -> str:
    """Return the one block of that kind that holds some text."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (one,) = [each for each in blocks if within in each]
    return str(one)


def test_program_prints_what_the_page_says(tmp_path: Path) -> None:
    """The program runs as it is pasted: one order is paid, the other is undone."""
    (tmp_path / "orders.py").write_text(block("python", "# orders.py"), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "orders.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.sub(r"key \S+", "key KEY", run.stdout) == block("text", "o-1 ->")


def test_processes_run_as_the_page_types_them(tmp_path: Path) -> None:
    """Each role in a process of its own, and a submission that waits: typed into a shell, line by line."""
    (tmp_path / "orders.py").write_text(block("python", "# orders.py"), encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKEGOOD_")}
    shell = subprocess.Popen(
        ["bash", "-ec", block("sh", "makegood scheduler")],
        cwd=tmp_path, env={**environ, "PATH": path}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    assert shell.stdout is not None
    try:
        output = ""
        while "payment-o-3" not in output:
            line = shell.stdout.readline()
            assert line, output
            output += line
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()
