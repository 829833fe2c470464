"""What is written where: tables for people, aligned text for pipes, JSON by plain print."""

import io
import json
import re
import sys

import pytest

from makegood.base.clock import iso
from makegood.cli.commands import task
from makegood.cli.render import rich_output
from makegood.cli.render.output import Output, align, cell_text, date_time, mask, plain, recent

HEADS = ("id", "state", "n")
ROWS = [("a1", "undone", "3"), ("b22", "error", "12")]


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        """It is one."""
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of stdout, from within a test: pytest captures anew at its beginning."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_one_long_cell_in_a_pipe_does_not_widen_every_line() -> None:
    """It is whole, and only its own line is longer: an audit with one long outcome stays readable."""
    long = "the value of " * 30 + "it"
    lines = align(("at", "what", "why"), [("1", long, "x"), ("2", "short", "y")]).splitlines()
    assert lines == ["AT  WHAT   WHY", f" 1  {long}  x", " 2  short  y"]


def test_aligned_text_has_columns_and_never_wraps() -> None:
    """Numbers stand to the right, a long cell stays whole, and no line ends in blanks."""
    long = "x" * 300
    lines = align(("id", "n", "what"), [("a", "3", "short"), ("bcd", "20", long)]).splitlines()
    assert lines == ["ID    N  WHAT", "a     3  short", f"bcd  20  {long}"]


def test_in_a_pipe_a_table_is_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    """No frame, no colour."""
    Output().table(HEADS, ROWS, empty="none")
    assert capsys.readouterr().out == "ID   STATE    N\na1   undone   3\nb22  error   12\n"


def test_a_column_without_a_value_stands_where_it_will_stand_with_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Texts to the left; what counts, by its head, to the right."""
    Output().table(("id", "key", "unanswered"), [("a", None, None)], empty="none")
    Output().table(("id", "key", "unanswered"), [("a", "k", 2)], empty="none")
    without, with_one = capsys.readouterr().out.splitlines()[1::2]
    assert (without, with_one) == ("a   -             -", "a   k             2")


def test_an_empty_table_says_so_on_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe that counts lines counts none."""
    Output().table(HEADS, [], empty="no task matches")
    assert capsys.readouterr() == ("", "no task matches\n")


def test_a_terminal_gets_a_table_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state has its colour; NO_COLOR leaves the table and takes the colour."""
    terminal = on_terminal(monkeypatch)
    Output().table(HEADS, ROWS, empty="none")
    text = terminal.getvalue()
    assert "\x1b[35mundone" in text
    assert "─" in text


def test_no_color_leaves_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR takes the colour and nothing else; --color never takes the table too, always gives both to a pipe."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    out = Output()
    assert (out.fancy, out.has_color) == (True, False)
    out.table(HEADS, ROWS, empty="none")
    out.lines([[("undone", "magenta")]])
    assert "─" in terminal.getvalue()
    assert "[35m" not in terminal.getvalue()
    assert not Output(color="never").fancy
    assert Output(color="always").has_color
    assert not Output(json=True, color="always").fancy


def test_a_narrow_terminal_cuts_no_id_and_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one copies and what one looks for stay whole, empty columns go, the last column folds."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "60")
    row = (
        "0akknnn0w6528",
        "kiosk.a_workflow_with_a_long_name",
        "undo_failed",
        "-",
        "refused because " + "of this " * 9,
    )
    Output(color="auto").table(("id", "workflow", "state", "key", "cause"), [row], empty="none")
    text = terminal.getvalue()
    assert "0akknnn0w6528" in text
    assert "undo_failed" in text
    assert "…" in text
    assert "key" not in text
    assert text.count("of") == 9 + text.count("workflow_of")
    assert max(len(line) for line in re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()) <= 60


def test_at_80_columns_a_list_of_tasks_has_no_sliver(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line per task: with every column in use the cause is cut with an ellipsis, ids and states stay whole."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "80")
    row = (
        "0akknnn0w6528",
        "orders.place_order",
        "processing",
        "2/4",
        "07:17:01",
        "2m30s",
        "order-4711",
        "3",
        "till said " * 9,
    )
    Output(color="auto").table(task.HEADS, [row, row], empty="none")
    lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()
    rows = [line for line in lines if "0akknnn0w6528" in line]
    assert len(rows) == 2
    assert len([line for line in lines if line.strip()]) == 4
    assert all("processing" in line and line.rstrip().endswith("…") and len(line) <= 80 for line in rows)
    terminal.seek(0)
    terminal.truncate()
    bare = (*row[:6], "-", "-", row[8])
    Output(color="auto").table(task.HEADS, [bare], empty="none")
    lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()
    assert "till said …" in " ".join(lines)
    assert max(len(line) for line in lines) <= 80


def uncoloured(terminal: Terminal) -> list[str]:
    """Return the lines of a terminal as one reads them."""
    return re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue()).splitlines()


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_drawn_line_ends_where_the_terminal_does(monkeypatch: pytest.MonkeyPatch, no_color: str) -> None:
    """With an ellipsis, with colour or without; lines that are not drawings are whole."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("COLUMNS", "60")
    line = [("  x charge  ", "red"), ("till said " * 20, "")]
    Output().drawing([line, [("short", "")]])
    assert [len(line) for line in uncoloured(terminal)] == [60, 5]
    assert uncoloured(terminal)[0].endswith("…")
    terminal.seek(0)
    terminal.truncate()
    Output().lines([line])
    assert uncoloured(terminal)[0].rstrip() == plain(line)


def test_in_a_pipe_a_drawn_line_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    line = [("  x charge  ", "red"), ("till said " * 20 + "no", "")]
    Output().drawing([line])
    assert capsys.readouterr().out == f"{plain(line)}\n"


def test_a_list_that_shows_more_elsewhere_has_a_line_for_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any width its last column ends in an ellipsis instead of folding."""
    terminal = on_terminal(monkeypatch)
    for width in ("60", "80", "120", "200"):
        monkeypatch.setenv("COLUMNS", width)
        terminal.seek(0)
        terminal.truncate()
        row = ("0akknnn0w6528", "orders.place_order", "error", "14:08:44", "till said " * 50)
        Output().table(("id", "workflow", "state", "created", "cause"), [row, row], empty="none", folds=False)
        lines = [line for line in uncoloured(terminal) if line.strip()]
        assert len(lines) == 4
        assert all(line.rstrip().endswith("…") and len(line) <= int(width) for line in lines[2:])


def test_a_users_text_is_never_taken_for_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Square brackets in a cause or an error are shown as they are."""
    terminal = on_terminal(monkeypatch)
    Output().table(("cause",), [("[bold]not bold[/bold] :smile:",)], empty="none")
    assert "[bold]not bold[/bold] :smile:" in terminal.getvalue()


def test_styled_lines_are_coloured_for_people_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same line, with and without."""
    terminal = on_terminal(monkeypatch)
    line = [("  x ", "red"), ("charge", "")]
    Output().lines([line])
    assert terminal.getvalue() == "\x1b[31m  x \x1b[0mcharge\n"
    assert plain(line) == "  x charge"


def test_a_live_drawing_leaves_its_last_state_standing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn last is what remains."""
    terminal = on_terminal(monkeypatch)
    with rich_output.Live(color=False) as live:
        live.show([[("first", "")]])
        live.show([[("second", "")], [("line", "")]])
        assert live.height > 1
    assert "second\nline" in terminal.getvalue().replace("\r", "")


def test_json_is_one_document_or_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Long strings and markup go through untouched."""
    value = {"text": "[red]" + "x" * 500, "n": 1}
    Output(json=True).document(value)
    assert json.loads(capsys.readouterr().out) == value
    Output(json=True).record(value)
    Output(json=True).record(value)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [value, value]


def test_cells_moments_and_urls_are_shown_for_what_they_are() -> None:
    """Nothing is "-", a text stays on its line, a password is never shown."""
    assert (cell_text(None), cell_text(""), cell_text(0), cell_text("a\n  b")) == ("-", "-", "0", r"a\n  b")
    assert (iso(0.5), iso(None)) == ("1970-01-01T00:00:00.500Z", None)
    assert date_time(86400.0 * 2).endswith(recent(86400.0 * 2, 86400.0 * 2 + 1))
    assert recent(0.0, 86400.0 * 9) == date_time(0.0)[:16]
    assert (date_time(None), len(date_time(0.0))) == ("-", 19)
    assert mask("postgresql://me:se:cret@db:5432/shop?x=1") == "postgresql://me:•••@db:5432/shop?x=•••"
    assert mask("sqlite:///shop.db") == "sqlite:///shop.db"
