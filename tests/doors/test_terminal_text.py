"""Text of others never steers the terminal of who looks: an error of a service, a key, a note of why, a message."""

import json
import subprocess
import sys
import unicodedata

import pytest

from makegood.cli.render.output import Output
from tests.doors.cli_app import RUDE
from tests.doors.conftest import BARE, Shop
from tests.doors.test_output import on_terminal

KEY = "k\x1b]0;pwned\x07\nid  x"


def steering(text: str) -> list[str]:
    """Return what of a text a terminal would obey, or be turned round by, beside its line ends."""
    return [c for c in text.replace("\n", "") if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]


def rude(shop: Shop, card: str, *more: str) -> tuple[str, str]:
    """Submit an order that is refused rudely, and wait for its end; return its id and what was said."""
    order = json.dumps({"id": "o-1", "card": card})
    submission = shop.call(
        "task", "submit", "kiosk:buy", order, "by \u202eme", "--wait", "--timeout", "2m", *more
    )
    assert submission.exit_code in (5, 6), submission.output
    (newest,) = shop.json("task", "list", "--limit", "1")
    return newest["id"], submission.stdout + submission.stderr


def test_no_command_lets_a_text_of_others_reach_the_terminal_raw(open_shop: Shop) -> None:
    """Control characters, line breaks and marks of direction in errors, keys, reasons and inputs are shown
    as escapes by all that shows tasks, and a table has a line for each row.
    """
    rude_task, first = rude(open_shop, "rude", "--key", KEY, "--reply-to", "queue:told")
    stuck_task, second = rude(open_shop, "rude-stuck")
    outputs = [first, second]
    for words in (
        ("task", "undo", stuck_task, "--reason", RUDE, "--who", KEY),
        ("task", "settle", rude_task, "--step", KEY, "--not-done", "--reason", RUDE),
        ("task", "cancel", "--filter", "state=error", "--dry-run"),
        ("task", "undo", "--preview", stuck_task),
        *(("task", what, task) for what in ("show", "history", "watch") for task in (rude_task, stuck_task)),
        ("task", "list"),
        ("task", "list", "--color", "always"),
        ("alerts", "--all"),
        ("audit",),
        ("queue", "list"),
        ("queue", "list", "told"),
        ("queue", "receive", "told"),
        ("agents",),
    ):
        result = open_shop.call(*words)
        outputs.append(result.stdout + result.stderr)
        output = (
            outputs[-1].replace("\x1b[0m", "").replace("\x1b[1m", "") if "always" in words else outputs[-1]
        )
        assert "always" in words or steering(output) == [], words
        assert "\x07" not in output, words
        assert "\x9b" not in output, words
    text = "\n".join(outputs)
    assert r"card\u001b[2J refused\n\u009b0m\tby \u202eknab\u0007" in text
    assert r"k\u001b]0;pwned\u0007\nid  x" in text
    assert r"by \u202eme" in text
    assert f"task {rude_task} was undone: charge: card\\u001b" in first
    assert steering(first + second) == []


def test_json_has_every_text_as_it_is_and_steers_no_terminal(open_shop: Shop) -> None:
    """Read by a machine it is the same text, looked at by a person it has only what can be read."""
    task, _ = rude(open_shop, "rude")
    assert RUDE in open_shop.json("task", "show", task)["cause"]
    for words in (("task", "show", task), ("task", "watch", task)):
        assert steering(open_shop.call(*words, "--json").stdout) == []


def test_a_message_is_received_on_one_line_and_of_the_same_value(shop: Shop) -> None:
    """Blanks inside its texts stay as they are; what would steer the terminal is escaped as JSON does."""
    value = '{"a":\n  "b  c\u202e\x7f\u00a0 "}'
    shop.done("queue", "send", "q", value)
    for words in (("queue", "list", "q"), ("queue", "receive", "q")):
        line = shop.done(*words)
        assert steering(line) == []
        assert line.rstrip("\n").count("\n") == ("list" in words)
        body = line[line.index("{") :]
        assert json.loads(body) == json.loads(value)


def test_a_letter_that_stdout_cannot_write_is_shown_and_ends_no_command(shop: Shop) -> None:
    """Such as in a Latin-1 locale: the command ended in the middle of its table, with a request to report that."""
    value = '"é → 😀"'
    shop.done("task", "submit", "kiosk:buy", '{"id": "o-1"}', "--key", "k → 😀")
    shop.done("queue", "send", "q", value)
    for encoding in ("ascii", "latin-1"):
        listing = shop.run("task", "list", PYTHONIOENCODING=encoding)
        assert (listing.returncode, r"k \u2192 \U0001f600" in listing.stdout) == (0, True), listing.stderr
        (view,) = json.loads(shop.run("task", "list", "--json", PYTHONIOENCODING=encoding).stdout)
        assert view["key"] == "k → 😀"
    message = shop.run("queue", "receive", "q", "--json", PYTHONIOENCODING="ascii")
    assert json.loads(message.stdout)["value"] == json.loads(value)


@pytest.mark.parametrize(
    "words",
    [
        ("task", "list", "--key", "\udcff"),
        ("task", "list", "--filter", "workflow=\udcff"),
        ("task", "cancel", "--app", "\udcff", "--reason", "x", "--yes"),
        ("task", "submit", "kiosk:buy", '{"id": "\udcff"}'),
        ("task", "resubmit", "0000000000000", "--input", '["\udcff"]'),
        ("task", "settle", "0000000000000", "--step", "s", "--reason", "x", "--done", '"\udcff"'),
        ("queue", "send", "q", '"\udcff"'),
        ("queue", "list", "\udcff"),
        ("queue", "drop", "q", "\udcff", "--reason", "x"),
        ("queue", "replay", "\udcff", "--all", "--reason", "x"),
    ],
)
def test_what_is_given_as_no_utf8_is_refused_in_a_sentence(shop: Shop, words: tuple[str, ...]) -> None:
    """Python hands bytes of a command line that are no UTF-8 on as lone surrogates, which no store has or takes."""
    result = shop.call(*words)
    assert result.exit_code == 2, result.output
    assert any(
        text in result.stderr
        for text in ("UTF-8", "texts must be Unicode", "queue name '\\udcff' is not allowed")
    )


def test_a_value_on_stdin_that_is_no_utf8_is_refused_in_a_sentence(shop: Shop) -> None:
    """Whether the locale's reading raises, or hands the bytes on."""
    for locale in ("strict", "surrogateescape"):
        process = subprocess.run(
            [sys.executable, "-m", "makegood", "queue", "send", "q", "-"],
            cwd=shop.folder, env={**BARE, "MAKEGOOD_STORE": shop.url, "PYTHONIOENCODING": f"utf-8:{locale}"}, input=b'"\xff"',
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert process.returncode == 2, process.stderr
        assert b"stdin" in process.stderr


def test_a_store_whose_name_is_no_utf8_is_named_in_json(shop: Shop) -> None:
    """Its file can be opened, so it can be spoken of."""
    shop.url = f"sqlite:///{shop.folder}/caf\udce9.db"
    shop.done("store", "migrate")
    assert shop.json("store", "status")["store"].endswith(r"caf\udce9.db")


def test_at_a_terminal_and_on_its_lines_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, styled lines and live drawings, with colour or without."""
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    out = Output()
    out.table(("what",), [(RUDE,), (KEY,)], empty="none")
    out.lines([[(RUDE, "red")]])
    out.text(RUDE)
    with out.live() as live:
        live.show([[(RUDE, "red")]])
    text = terminal.getvalue()
    assert not {"\x07", "\x9b", "\u202e"} & set(text)
    assert text.count(r"card\u001b[2J refused\n") == 5  # the drawing that stays is written twice
