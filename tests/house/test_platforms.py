"""The classifiers name the Pythons of the table of platforms, and the script that writes the table says what failed or was not run."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import platforms
from scripts.platforms import COLUMNS, MARKS, PAGE, Outcome, PlatformError

PROJECT = tomllib.loads((platforms.HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def outcome(name: str, python: str, **results: str) -> Outcome:
    """Return what a run would have noted."""
    versions = {"Python": python, "SQLite": "3.46.1", "PostgreSQL": "17.2", "msgspec": "0.22.0"}
    return Outcome(name, "2026-11-28", versions, dict.fromkeys(COLUMNS, "right") | results)


def rows(text: str) -> list[list[str]]:
    """Return the cells of the table's rows."""
    lines = [line for line in text.partition(MARKS[0])[2].splitlines() if line.startswith("| 3.")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_classifiers_are_the_pythons_that_were_tested() -> None:
    """Those of the page's table, where nothing failed, and that of CI; the oldest is the one that is required."""
    page = PAGE.read_text(encoding="utf-8")
    table = rows(page)
    assert [row for row in table if any("**" in cell for cell in row)] == []
    versions = {".".join(row[0].split(".")[:2]) for row in table}
    versions |= set(re.findall(r"^CI runs the whole suite on Python (3\.\d+)", page, re.MULTILINE))
    classifiers = set(re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"])))
    assert classifiers == versions
    oldest = min(classifiers, key=lambda version: int(version.partition(".")[2]))
    assert PROJECT["requires-python"] == f">={oldest}"


def test_the_table_shows_what_failed_and_leaves_out_what_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform that was not to be had has no line."""
    page = tmp_path / "support.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(platforms, "PAGE", page)
    absent = Outcome("python3.15", "2026-11-28", skip="Debian sid has no python3.15")
    platforms.write([absent, outcome("python3.13", "3.13.5", unit="**1 of 2**")])
    text = page.read_text(encoding="utf-8")
    (row,) = rows(text)
    assert row[0] == "3.13.5"
    assert "**1 of 2**" in row
    assert "With msgspec 0.22.0." in text
    assert (text.startswith("before\n"), text.endswith("\nafter\n"), "old" in text) == (True, True, False)


def test_an_interpreter_is_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in PATH may be that of a version manager, which refuses; its own folder has the interpreter."""
    refusing = tmp_path / "python3.77"
    refusing.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert platforms.interpreter_of("python3.77") is None
    folder = tmp_path / "versions/3.77.1/bin"
    folder.mkdir(parents=True)
    (folder / "python3.77").symlink_to(sys.executable)
    assert platforms.interpreter_of("python3.77") == str(folder / "python3.77")


def test_a_command_that_takes_too_long_is_a_platform_that_failed() -> None:
    """The run goes on with the next one."""
    with pytest.raises(PlatformError, match="did not end within 0 s"):
        platforms.run(["sleep", "60"], limit=0.05)
    with pytest.raises(PlatformError, match=r"ended with 3:\nlast words"):
        platforms.run(["sh", "-c", "echo last words; exit 3"])
