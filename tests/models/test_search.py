"""A part of the protocol models is searched in every run: their verdicts must be the expected ones."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import models

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/models.py"

pytestmark = pytest.mark.skipif(
    shutil.which("spin") is None or shutil.which("gcc") is None,
    reason="THE MODELS WERE NOT CHECKED: spin and gcc are not here; sudo apt-get install -y spin gcc",
)


def searching(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script to its end."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=280, check=False
    )


@pytest.mark.timeout(300)  # compiling and searching, on a machine that may do other things
def test_a_part_of_the_models_has_the_expected_verdicts() -> None:
    """One variant of each model, and of each fence that is switched off, is searched to its end."""
    process = searching("--tested")
    assert process.returncode == 0, process.stdout + process.stderr
    assert "0 not as expected" in process.stdout


def test_a_wrong_verdict_is_found() -> None:
    """A search whose variant is said to hold, and does not, tells which assertion failed."""
    wrong = models.Variant("wrong", "quick", "holds", 37, 0.0, "-", "", "leader.pml", "")
    result = models.search(wrong)
    assert result.verdict == "violated"
    assert "assertion violated" in result.text


def test_what_cannot_be_compiled_has_no_verdict() -> None:
    """A mistake in a model is not taken for a violation."""
    result = models.search(
        models.Variant("broken", "quick", "violated", 1, 0.0, "-", "", "leader.pml -Dproctype=", "")
    )
    assert result.verdict == "unknown"
    assert result.text


def test_a_variant_that_is_not_listed_is_refused() -> None:
    """The script says so, and how to find the right name."""
    process = searching("no-such-variant")
    assert process.returncode == 2
    assert "no such variant: no-such-variant" in process.stderr
