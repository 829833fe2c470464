"""What the pages on decisions name in the code is there, or the page has a line that begins with "Today:" and says what is there now."""

import builtins
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs/adr").glob("0*.md"))
PROJECT = [
    path
    for folder in (".ci", "benchmarks", "docs", "examples", "models", "proofs", "scripts", "src", "tests")
    for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
    if "__pycache__" not in path.parts
]
PATHS = {
    "/".join(parts[start:])
    for path in PROJECT
    for parts in (path.relative_to(ROOT).as_posix().removesuffix(".py").split("/"),)
    for start in range(len(parts))
}
"""Each of them from every folder above it on, without the ``.py`` of a module."""
NAMES = {
    name
    for path in PROJECT
    if path.suffix == ".py" and path.is_relative_to(ROOT / "src")
    for name in re.findall(
        r"^ *(?:def|async def|class) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
    )
} | {"Field", "TaskGroup", "Strict", *vars(builtins)}
"""The classes and functions of the package, and names of libraries and of a header."""


def absent(text: str) -> list[str]:
    """Return the files, folders and classes that a text names and the project does not have."""
    spans = set(re.findall(r"`([\w./-]+)`", text))
    paths = {span for span in spans if re.fullmatch(r"(\w+/)+(\w+(\.py)?)?|\w+\.(py|sql)", span)}
    classes = {span for span in spans if re.fullmatch(r"(\w+\.)*[A-Z]\w*[a-z]\w*(\.\w+)*", span)}
    gone = {path for path in paths if path.rstrip("/").removesuffix(".py") not in PATHS}
    return sorted(
        gone | {name for name in classes - paths if NAMES.isdisjoint(re.findall(r"[A-Z]\w*", name))}
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_decision_names_is_there_or_the_page_says_what_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    today = "\n".join(re.findall(r"^\*\*Today:\*\* .*", text, re.MULTILINE))
    assert not absent(today)
    assert today or not absent(text)


def test_what_is_absent_is_noticed() -> None:
    assert absent("`saga/straight.py`, `saga/`, `model/states.py`") == ["saga/straight.py"]
    assert absent("`joining.py`, `Births`, `Scheduler`, `saga.Beginnings`") == [
        "Births",
        "joining.py",
        "saga.Beginnings",
    ]
