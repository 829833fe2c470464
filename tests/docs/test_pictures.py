"""The diagrams are those that their script draws, and every picture of a page is there and has an alternative text."""

import re
from pathlib import Path

import pytest

from scripts.pictures import diagrams

ROOT = Path(__file__).resolve().parents[2]
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def test_diagrams_are_as_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "FOLDER", tmp_path)
    for draw in (
        diagrams.lifecycle, diagrams.recovery, diagrams.undo, diagrams.shapes,
        diagrams.counters, diagrams.attempt, diagrams.benchmark,
    ):  # fmt: skip
        draw()
    for drawn in tmp_path.iterdir():
        assert (ROOT / "docs/img" / drawn.name).read_text("utf-8") == drawn.read_text("utf-8"), drawn.name


def test_pictures_are_there_and_say_what_they_show() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for text, file in PICTURE.findall(page.read_text(encoding="utf-8")):
            assert len(text) > 20, page
            assert "://" in file or (page.parent / file).exists(), page


def test_the_chart_has_the_figures_of_the_readme() -> None:
    chart = (ROOT / "docs/img/benchmark.svg").read_text(encoding="utf-8")
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("steps/s")[2]
    figures = re.findall(r"^\| .*?\|.*?\|.*?\| ([\d,]+) \|", table, re.MULTILINE)[:5]
    assert figures
    assert all(f">{figure}<" in chart for figure in figures)
