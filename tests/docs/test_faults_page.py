"""docs/internals/faults.md names every fault test, and no other."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs/internals/faults.md"


def test_the_table_of_faults_is_whole() -> None:
    """Every test with processes stands in the table, once, and every test in the table exists."""
    tests = sorted(
        name
        for file in (TESTS / "processes").glob("test_*.py")
        for name in re.findall(r"^async def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    )
    names = sorted(re.findall(r"`(test_\w+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert names == tests
