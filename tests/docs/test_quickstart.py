"""The quickstart does what it says: its program is taken from the page and run."""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tests.docs.shell import environment, typed

PAGE = Path(__file__).resolve().parents[2] / "docs/start/quickstart.md"


def test_trip_is_booked_and_taken_back(tmp_path: Path) -> None:
    """One trip is booked; the room of the other is cancelled, because the flight was refused."""
    page = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (output,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "trip.py").write_text(program, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "trip.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
    key = re.compile(r"key [0-9a-z-]+/")  # it differs from run to run
    assert key.sub("key /", run.stdout) == key.sub("key /", output)


def test_agents_that_are_killed_in_the_middle_delay_a_trip(tmp_path: Path) -> None:
    """The page's commands; but the airline is as slow as it takes to kill it, and settings shorten the intervals."""
    page = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert re.search(r"`import time`.*`time\.sleep\(8\)`", page)
    booking = "def book_flight(trip: Trip) -> str:\n"
    assert booking in program
    text = program.replace(booking, booking + '    open("answer").close()\n')
    (tmp_path / "trip.py").write_text(text, encoding="utf-8")
    os.mkfifo(tmp_path / "answer")  # whoever opens it waits for one who writes: nobody does
    migrate, scheduler, agent, supervisor = re.findall(
        r"^makegood (?:store|scheduler|agent|super).*$", page, re.MULTILINE
    )[:4]
    submit = re.findall(r"^makegood task submit .*$", page, re.MULTILINE)[0]
    kill = re.search(r"`pkill -9 -f '(makegood agent)'`", page)
    assert kill is not None
    short = {"MAKEGOOD_SUPERVISE_EVERY": "500ms", "MAKEGOOD_LATE_AFTER": "200ms", "MAKEGOOD_LEASE": "1s"}

    def run(line: str) -> str:
        return typed(line, tmp_path, **short)

    def started(line: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(
                shlex.split(line), cwd=tmp_path, env=environment(**short), stdout=log, stderr=log
            )

    run(migrate)
    running = [started(line) for line in (scheduler, agent, supervisor)]
    try:
        task = run(submit).strip()
        until = time.monotonic() + 120
        while "book_flight" not in (output := run(f"makegood task show {task}")) or "running" not in output:
            assert time.monotonic() < until, output
        running[1].kill()  # the page kills by its name; another test's agents have it too
        running[1].wait()
        (tmp_path / "answer").unlink()
        (tmp_path / "answer").touch()
        running[1] = started(agent)
        assert "processed" in run(f"makegood task watch {task} --timeout 1m")
        history = json.loads(run(f"makegood task show {task} --json"))
        (flight,) = [step for step in history["steps"] if step["name"] == "book_flight"]
        assert (flight["attempt"], flight["round"]) == (2, 1)
    finally:
        for process in running:
            process.kill()
            process.wait()
