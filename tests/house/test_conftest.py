"""The test run itself is honest: ``async def`` tests really run, the table counts, and CI skips no store in silence."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SAMPLE = """
import asyncio
import pytest
from hypothesis import given, settings, strategies as st

@pytest.fixture
def number():
    return 7

async def test_passes(number):
    await asyncio.sleep(0)
    assert number == 7

async def test_fails(number):
    await asyncio.sleep(0)
    assert number == 8

@settings(max_examples=20, database=None)
@given(n=st.integers(0, 10))
async def test_property_fails(n):
    await asyncio.sleep(0)
    assert n < 5

def test_absent():
    pytest.skip("no PostgreSQL here")

def test_other_skip():
    pytest.skip("the moon is full")

@pytest.mark.timeout(400)
def test_takes_long():
    pass
"""


def run_sample(folder: Path, *, ci: bool) -> str:
    """Run the sample under our conftest in a process of its own; return what it printed."""
    (folder / "conftest.py").write_text(
        (ROOT / "tests/conftest.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (folder / "test_sample.py").write_text(SAMPLE, encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key not in {"CI", "PYTEST_ADDOPTS"}}
    environment["PYTHONPATH"] = str(ROOT)
    if ci:
        environment["CI"] = "true"
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-v",
            "-rA",
            str(folder),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    return run.stdout


def test_async_tests_run_in_order_of_their_limits_and_skips_are_told(tmp_path: Path) -> None:
    """A wrong async test fails, a property too; the table counts each, and names why something was skipped."""
    out = run_sample(tmp_path, ci=False)
    for line in ("PASSED test_sample.py::test_passes", "FAILED test_sample.py::test_fails"):
        assert line in out
    assert "FAILED test_sample.py::test_property_fails" in out
    assert "2 failed, 2 passed, 2 skipped" in out
    assert "1 x: no PostgreSQL here" in out
    assert "1 x: the moon is full" in out
    # what takes long begins first: otherwise a single test may run alone at the end, while the other cores have nothing to do
    assert out.index("test_sample.py::test_takes_long") < out.index("test_sample.py::test_passes")


def test_ci_turns_an_untested_store_into_a_failure(tmp_path: Path) -> None:
    """With CI=true a test skipped for want of PostgreSQL has failed; another skip stays one."""
    out = run_sample(tmp_path, ci=True)
    assert "FAILED test_sample.py::test_absent" in out
    assert "every store must be tested: no PostgreSQL here" in out
    assert "3 failed, 2 passed, 1 skipped" in out
