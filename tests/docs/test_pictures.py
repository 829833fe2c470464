"""Pictures are there, have an alternative text, and show what is so: diagrams, the chart, and the film of the demo."""

import io
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from examples.orders import display
from examples.orders.acts import ACTS
from examples.orders.auditor import Report as Audit
from examples.orders.chaos import Score
from examples.orders.director import FAULTS
from examples.orders.report import CHECKS, Report, count_outcomes
from examples.orders.scene import ZEROS
from makegood.cli.commands.demo import demo
from scripts.pictures import diagrams, record
from scripts.pictures.drawing import film, still
from scripts.pictures.terminal import Frame, Screen, plain

ROOT = Path(__file__).resolve().parents[2]
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
FILM = (ROOT / "docs/img/demo.svg").read_text(encoding="utf-8")


def test_diagrams_are_as_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagrams, "FOLDER", tmp_path)
    for draw in (
        diagrams.lifecycle, diagrams.recovery, diagrams.undo, diagrams.shapes, diagrams.brokers,
        diagrams.counters, diagrams.attempt, diagrams.benchmark,
    ):  # fmt: skip
        draw()
    for picture in tmp_path.iterdir():
        assert (ROOT / "docs/img" / picture.name).read_text("utf-8") == picture.read_text("utf-8"), (
            picture.name
        )


def test_pictures_are_there_and_say_what_they_show() -> None:
    pictures = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for text, file in PICTURE.findall(page.read_text(encoding="utf-8")):
            assert len(text) > 20, page
            assert "://" in file or (page.parent / file).exists(), page
            pictures.add(Path(file).name)
    assert {path.name for path in (ROOT / "docs/img").iterdir()} <= pictures, "a picture that no page shows"


def test_pictures_are_well_formed_and_have_a_title_and_two_schemes_of_colour() -> None:
    for path in (ROOT / "docs/img").iterdir():
        picture = ET.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 - our own file
        title = picture.find("{http://www.w3.org/2000/svg}title")
        assert title is not None, path
        assert title.text, path
        assert "prefers-color-scheme" in path.read_text(encoding="utf-8"), path


def test_the_chart_has_the_figures_of_the_readme() -> None:
    chart = (ROOT / "docs/img/benchmark.svg").read_text(encoding="utf-8")
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| steps/s |")[2].partition("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    assert len(rows) == len(diagrams.figures()) >= 5
    assert all(f">{row[4].strip()}<" in chart for row in rows)


@pytest.mark.parametrize("name", ["stage", "stage-film"])
def test_the_pictures_of_the_stage_show_what_it_has(name: str) -> None:
    """The big figures, the acts, the dials: whoever renames one renders the pictures anew."""
    picture = (ROOT / f"docs/img/{name}.svg").read_text(encoding="utf-8")
    texts = record.spoken(picture)
    acts = {act.title for act in ACTS.values()}
    assert {*ZEROS, *acts, *FAULTS, "kills survived", "last heal", "kill -9"} <= set(texts)
    assert picture.count('class="dark"') == picture.count('class="light"') == 1
    assert len(picture.encode()) < 3_000_000
    assert name == "stage" or "prefers-reduced-motion" in picture


@pytest.mark.parametrize(
    ("name", "files", "more"),
    [
        ("cluster", ("cluster.html",), {"has led for", "1 process died", "its lease ran out", "follows"}),
        ("ladder", ("task.html", "ladder.html"), {"Undone, clean", "undo charge", "Turned: ship failed", "certainly did not happen"}),
    ],
)  # fmt: skip
def test_the_pictures_of_the_console_show_what_its_pages_have(
    name: str, files: tuple[str, ...], more: set[str]
) -> None:
    """Heads of cards and columns, the legend, and what happened: whoever renames one renders the pictures anew."""
    picture = (ROOT / f"docs/img/{name}.svg").read_text(encoding="utf-8")
    text = "\n".join(record.spoken(picture))
    page = "".join((ROOT / "src/makegood/console/templates" / file).read_text("utf-8") for file in files)
    heads = {
        a or b for a, b in re.findall(r"<(?:h2|th)\b[^>]*>([^<{]+)<|ticks\(.+?\) }} ([^<{]+)</span>", page)
    }
    assert len(heads) > 15
    assert heads - {"Result", "Signals", "Lanes"} <= {words.strip() for words in re.split(r"[\n\t]+", text)}
    assert {words for words in more if words not in text} == set()
    assert picture.count('class="dark"') == picture.count('class="light"') == 1
    assert (name == "ladder") == ("prefers-reduced-motion" in picture)


def test_the_pictures_of_the_readme_are_small() -> None:
    """All of them are loaded with its first screen."""
    pictures = {
        file for _, file in PICTURE.findall((ROOT / "README.md").read_text("utf-8")) if "://" not in file
    }
    assert sum((ROOT / file).stat().st_size for file in pictures) < 3_000_000


# -- the film ----------------------------------------------------------------------------------------------------------


def labels() -> set[str]:
    """Return what stands in the tables at the end of a run in which everything happened."""
    score = Score({"agent": 1}, stops=1, heals=[1.0])
    audit = Audit((), {"submitted": 1}, {}, {})
    report = Report("sqlite", 1.0, 1, count_outcomes(()), score, audit, ())
    return {name for name, _, _ in (*report.rows(), *report.audit_rows())}


def test_the_film_ends_with_the_tables_that_the_demo_ends_with() -> None:
    lines = record.spoken(FILM)
    heads = next(n for n, line in enumerate(lines) if display.AUDIT in line)
    end = next(n for n, line in enumerate(lines) if line.startswith("money: "))
    cells = {cell for line in lines[heads + 1 : end] for cell in re.split(r" {2,}|─+", line.strip())}
    words = {cell for cell in cells if cell and not cell[0].isdigit() and cell[0] != "(" and cell[-1] != ")"}
    assert words == labels()
    assert set(CHECKS) <= words
    assert "the books balance: every order is whole, and nothing is lost" in lines[-1]


def test_the_film_shows_the_screen_of_the_demo() -> None:
    scene = display.Scene(60, Score({}))
    console = Console(width=112, file=io.StringIO())
    console.print(display.drawn(scene, 112))
    assert isinstance(console.file, io.StringIO)
    words = set(re.findall(r"[a-z]+", console.file.getvalue()))
    assert {"processed", "pending", "kills", "stops", "process"} <= words
    assert words <= set(re.findall(r"[a-z]+", " ".join(re.findall(r">([^<]+)</text>", FILM))))


def test_the_film_begins_with_a_command_that_there_is_and_is_small() -> None:
    assert f"$ {record.DEMO}" in record.spoken(FILM)
    options = {option for parameter in demo.params for option in parameter.opts}
    assert set(re.findall(r"--\w+", record.DEMO)) <= options
    assert len(FILM.encode()) < 3_000_000
    assert "prefers-color-scheme:dark" in FILM
    assert "prefers-reduced-motion" in FILM


# -- how terminals are drawn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "lines"),
    [
        (["one\r\ntwo"], ["one", "two"]),
        (["one\r\ntwo\r\x1b[2K\x1b[1A\x1b[2Kthree\r\n"], ["three"]),
        (["\x1b[1", ";32mgreen\x1b", "[0m plain"], ["green plain"]),
        (["a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"], ["alink"]),
        (["0123456789ab"], ["0123456789", "ab"]),
    ],
)
def test_a_terminal_shows_what_was_written(texts: list[str], lines: list[str]) -> None:
    """Also when a code comes in two parts, a line is drawn over, and one is too long."""
    screen = Screen(10 if len(texts[0]) == 12 else 40, 20)
    for text in texts:
        screen.feed(text)
    assert plain(screen.rows()) == lines


def test_styles_become_classes() -> None:
    screen = Screen(40, 20)
    screen.feed("\x1b[1;32mok\x1b[0m \x1b[2mdim\x1b[22m \x1b[95mpink\x1b[39m")
    assert screen.rows() == (((0, "ok", "b c2"), (3, "dim", "d"), (7, "pink", "c13")),)


def test_a_picture_says_what_it_shows_and_a_film_draws_a_row_once() -> None:
    row = ((0, "a <b>", "c2"),)
    assert record.spoken(still("t", (row, ()), 20)) == ["a <b>", ""]
    svg = film("t", [Frame(0.0, (row,)), Frame(1.0, (row, row))], 20, 5, 4.0)
    assert svg.count("a &lt;b&gt;</text>") == 1
    assert svg.count("<use ") == 3
    assert "25.00%{transform:translateX(-" in svg


def test_a_reader_notices_words_and_figures_but_no_ids_and_times() -> None:
    """So a picture is stale when a column has another name, and not because another task is in it."""
    line = "shop.place_order 0amnf3dhvv2v4  processed  9.3s   3 steps"
    assert record.noticed([line]) == record.noticed(
        [line.replace("0amnf3dhvv2v4", "0amnffqz28g0k").replace("9.3", "9.5")]
    )
    assert record.noticed([line]) != record.noticed([line.replace("processed", "done")])
    assert record.noticed([line]) != record.noticed([line.replace("3 steps", "4 steps")])
