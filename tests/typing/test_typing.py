"""What users write passes mypy --strict and pyright; what they must not write fails in both, line by line.

``api.py`` holds the one, ``wrong.py`` the other: there each line marked ``# wrong`` must be an error, and no other line may be.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
Errors = dict[str, dict[int, str]]


def marked() -> set[int]:
    """Return the lines of wrong.py that are wrong."""
    lines = (HERE / "wrong.py").read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if "# wrong: " in line}


def mypy(cache: Path) -> Errors:
    """Return what mypy --strict finds: file -> line -> message."""
    command = [
        sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--hide-error-context",
        f"--cache-dir={cache}", "api.py", "wrong.py",
    ]  # fmt: skip
    run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    errors: Errors = {"api.py": {}, "wrong.py": {}}
    for file, line, text in re.findall(r"^(.+?):(\d+): error: (.*)$", run.stdout, re.MULTILINE):
        errors.setdefault(file, {})[int(line)] = text
    return errors


def pyright() -> Errors:
    """Return what pyright finds; skips aloud where it cannot be had (it fetches itself once from the npm registry)."""
    files = [HERE / "api.py", HERE / "wrong.py", ROOT / "examples" / "orders" / "shop.py"]
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        *map(str, files),
    ]
    run = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    try:
        report = json.loads(run.stdout)
    except json.JSONDecodeError:
        pytest.skip(
            f"pyright cannot be had here, types were not checked by it: {(run.stderr or run.stdout)[-300:]}"
        )
    assert report["summary"]["filesAnalyzed"] == len(files), report
    errors: Errors = {file.name: {} for file in files}
    for one in report["generalDiagnostics"]:
        if one["severity"] == "error":
            errors[Path(one["file"]).name][one["range"]["start"]["line"] + 1] = one["message"]
    return errors


@pytest.fixture(scope="module")
def by_mypy() -> Errors:
    """One run of mypy for all tests; its cache is kept, as a cold run takes many seconds."""
    return mypy(ROOT / ".mypy_cache" / "typing")


@pytest.fixture(scope="module")
def by_pyright() -> Errors:
    """One run of pyright for all tests."""
    return pyright()


def test_there_are_wrong_lines_to_find() -> None:
    """A file without marks would prove nothing."""
    assert len(marked()) >= 14


def test_mypy_accepts_what_users_write(by_mypy: Errors) -> None:
    """Every line of api.py passes --strict, and infers the types that it states."""
    assert by_mypy["api.py"] == {}


def test_mypy_refuses_the_wrong_lines_and_no_others(by_mypy: Errors) -> None:
    """The errors are at the marked lines exactly."""
    assert set(by_mypy["wrong.py"]) == marked(), by_mypy["wrong.py"]


def test_pyright_accepts_what_users_write(by_pyright: Errors) -> None:
    """Every line of api.py passes in pyright's strict mode, and infers the types that it states."""
    assert by_pyright["api.py"] == {}


def test_pyright_refuses_the_wrong_lines_and_no_others(by_pyright: Errors) -> None:
    """The errors are at the marked lines exactly."""
    assert set(by_pyright["wrong.py"]) == marked(), by_pyright["wrong.py"]


def test_pyright_accepts_the_example(by_pyright: Errors) -> None:
    """The shop that ships with makegood passes too. (mypy checks it with everything else.)"""
    assert by_pyright["shop.py"] == {}
