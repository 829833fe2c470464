"""The tutorial does what it says: its files are written, its lines are typed in one shell, in order, and its proof is run."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.docs.shell import typed
from tests.doors.conftest import BARE

PAGE = (Path(__file__).resolve().parents[2] / "docs/start/tutorial.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```python\n# (\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TYPED = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
MARK = "---- next step"


def books(output: str) -> list[tuple[str, ...]]:
    """Return the services' books, as they were printed last in a text."""
    rows = re.findall(r"^(stock|payments|carrier) +(\S+) +(done|undone)$", output, re.MULTILINE)
    return [row for row in rows if row]


def test_every_line_does_what_the_page_says(tmp_path: Path) -> None:
    assert [name for name, _ in FILES] == ["services.py", "orders.py", "test_orders.py"]
    for name, text in FILES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    ran = typed(f"\necho '{MARK}'\n".join(TYPED), tmp_path)
    order, kill, again, undo, correction, proof = ran.split(MARK)
    whole = [(name, "o-1", "done") for name in ("stock", "payments", "carrier")]
    assert '"carrier: o-1 done"' in order
    assert books(order) == whole
    assert "running" in kill
    assert books(kill) == [*whole, ("stock", "slow-1", "done"), ("payments", "slow-1", "done")]
    whole += [(name, "slow-1", "done") for name in ("stock", "payments", "carrier")]
    assert books(again) == whole
    assert books(undo) == [*whole, ("stock", "o-2", "undone")]
    assert "ann" in correction
    assert 'inputs: [{"id":"o-2","card":"•••"}], another secret value than before' in correction
    assert books(correction) == [
        *whole, ("stock", "o-2", "undone"), *((name, "o-2", "done") for name in ("stock", "payments", "carrier")),
    ]  # fmt: skip
    assert "1 passed" in proof
    assert "makegood: not proved" in proof  # the page explains it


def test_the_lines_that_have_the_undos_proved_do_so(tmp_path: Path) -> None:
    """Appended to the page's test, in some of its worlds: it passes, and no undo is named that ran in none."""
    for name, text in FILES:
        (tmp_path / name).write_text(text, encoding="utf-8")
    (more,) = re.findall(r"^```python\n(await .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    proof = tmp_path / "test_orders.py"
    proof.write_text(
        proof.read_text(encoding="utf-8").replace("@crash_everywhere", "@crash_everywhere(at_most=5)")
        + textwrap.indent(more, "    "),
        encoding="utf-8",
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", proof.name],
        cwd=tmp_path, env=BARE, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
    assert "not proved" not in ran.stdout
