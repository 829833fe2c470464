"""What our pages say of other tools has a version and a date: in one table, to which each page with such statements links."""

import re
from datetime import date
from pathlib import Path

import pytest

from benchmarks.environments import ENVIRONMENTS

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/learn/comparison.md"
ANCHOR = "comparison.md#what-was-checked"
WITHOUT = {
    "docs/learn/README.md": "a table of contents",
    "docs/build/README.md": "a table of contents",
    "docs/learn/how-it-works.md": "borrows two words of Temporal",
    "docs/learn/faq.md": "asks whether makegood can be used beside Celery",
    "docs/build/submit-in-your-transaction.md": "shows how to submit from Celery",
    "CHANGELOG.md": "history",
}
"""Pages that name a tool and state nothing about it."""


def checked() -> dict[str, tuple[str, str, str]]:
    """Return version, date and method of each tool in the table."""
    part = TABLE.read_text().partition("## What was checked")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in row.strip("|").split(" | ")]
        for row in re.findall(r"^\| .*\|$", part, re.MULTILINE)
    ]
    assert rows[0] == ["Tool", "Version", "Checked", "How"]
    return {tool.strip(): (version, day, how) for tool, version, day, how in rows[1:]}


TOOLS = checked()


def pages() -> list[Path]:
    """Return the pages that people read, decisions of the past aside."""
    return [
        page
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        if "adr" not in page.parts and str(page.relative_to(ROOT)) not in WITHOUT
    ]


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_has_a_version_a_date_and_how_it_was_checked(tool: str) -> None:
    version, day, how = TOOLS[tool]
    assert re.search(r"\d+\.\d+|of that day", version)
    assert date(2026, 11, 1) <= date.fromisoformat(day)
    assert len(how) > 10


def test_each_page_about_a_tool_links_to_what_was_checked() -> None:
    names = re.compile(rf"\b(?:{'|'.join(map(re.escape, TOOLS))})\b")
    about = [page for page in pages() if names.search(page.read_text())]
    assert len(about) >= 8, "the pages are found"
    assert [str(page) for page in about if page != TABLE and ANCHOR not in page.read_text()] == []


def test_the_exceptions_name_a_tool_and_are_needed() -> None:
    names = re.compile(rf"\b(?:{'|'.join(map(re.escape, TOOLS))})\b")
    idle = [
        page for page in WITHOUT if page != "CHANGELOG.md" and not names.search((ROOT / page).read_text())
    ]
    assert idle == []


@pytest.mark.parametrize(
    ("tool", "peer", "package"),
    [
        ("DBOS", "dbos", "dbos"), ("Celery", "celery", "celery"), ("Restate", "restate", "@restatedev/restate-server"),
        ("Restate", "restate", "restate-sdk"), ("Procrastinate", "procrastinate", "procrastinate"), ("Prefect", "prefect", "prefect"),
        ("absurd", "absurd", "absurd-sdk"),
    ],
)  # fmt: skip
def test_the_benchmark_runs_the_version_that_was_checked(tool: str, peer: str, package: str) -> None:
    requirements = (*ENVIRONMENTS[peer].python, *ENVIRONMENTS[peer].npm)
    (version,) = [
        re.split("==|@(?=[0-9])", each)[1]
        for each in requirements
        if re.split("==|@(?=[0-9])", each)[0] == package
    ]
    assert version in TOOLS[tool][0]


def test_a_version_beside_a_name_is_the_one_that_was_checked() -> None:
    """A page says DBOS 3.4, and the table 3.4.0."""
    wrong = []
    for page in pages():
        for tool, version in re.findall(
            rf"\b({'|'.join(map(re.escape, TOOLS))}) (\d+(?:\.\d+)+)", page.read_text()
        ):
            if not re.search(rf"(?<![\d.]){re.escape(version)}(?:\.\d+)*(?![\d])", TOOLS[tool][0]):
                wrong.append((page.name, tool, version))
    assert wrong == []


def test_each_sdk_that_may_repeat_has_a_version_and_how_it_was_checked() -> None:
    part = (ROOT / "docs/build/your-services-sdk.md").read_text().partition("## What to switch off")[2]
    part = part.partition("\n## ")[0]
    rows = [row.strip("|").split(" | ") for row in re.findall(r"^\| .*\|$", part, re.MULTILINE)][1:]
    assert len(rows) > 20
    for sdks, *_, how in rows:
        for sdk in re.split(r", (?=[a-z])(?!the module)", re.sub(r"\(.*?\)", "", sdks)):
            assert re.search(r"[a-z0-9] \d+\.\d+\.\d+\b", sdk), sdk
        assert how.strip() in ("run", "read")


def test_statements_that_were_found_false_do_not_return() -> None:
    text = "\n".join(page.read_text() for page in pages())
    for false in (
        "nothing: its journal has",
        "Restate 1.7: nothing",
        "`start_to_close_timeout` | `complete_within`",
        "before 3.4",  # of DBOS's decorators: they went with 3.0
    ):
        assert false not in text
