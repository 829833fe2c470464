"""The quickstart does what it says: its program is taken from the page and run."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/start/quickstart.md"


def test_trip_is_booked_and_taken_back(tmp_path: Path) -> None:
    """One trip is booked; the room of the other is cancelled, because the flight was refused."""
    page = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "trip.py").write_text(program, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "trip.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stdout + run.stderr
    key = re.compile(r"key [0-9a-z-]+/")  # it differs from run to run
    assert key.sub("key /", run.stdout) == key.sub("key /", shown)
