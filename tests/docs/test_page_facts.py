"""Figures of the page on testing are those of the pages that it links; headers and tables that are named exist."""

import re
from pathlib import Path

from tests.docs.test_declare_howto import sent

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_figures_are_those_of_the_pages_that_are_linked() -> None:
    """Each number with a thousands separator is on the page of its row, or on the one about the rings."""
    page = DOCS / "tested/how-it-is-tested.md"
    rings = (DOCS / "internals/proofs.md").read_text(encoding="utf-8")
    count = 0
    for line in page.read_text(encoding="utf-8").splitlines():
        link = re.match(r"\| \[[^\]]*\]\(([^)#]+)", line)
        for figure in re.findall(r"\d+(?:,\d{3})+", line) if link else ():
            assert link is not None
            assert figure in (page.parent / link[1]).read_text(encoding="utf-8") + rings, figure
            count += 1
    assert count > 8


def test_the_protocol_names_the_headers_that_are_sent() -> None:
    text = (DOCS / "reference/service-protocol.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)) == set(sent("undo", 1))


def test_tables_that_are_named_exist() -> None:
    """What "how it works" says of the database, against the migrations of SQLite."""
    text = (
        (DOCS / "learn/how-it-works.md")
        .read_text(encoding="utf-8")
        .partition("## What is in the database")[2]
    )
    schema = "".join(
        file.read_text(encoding="utf-8")
        for file in sorted((DOCS.parent / "src/makegood/store/migrations/sqlite").glob("*.sql"))
    )
    tables = [
        name
        for cell in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    ]
    assert len(tables) > 8
    assert all(f"create table makegood_{name} " in schema for name in tables)
