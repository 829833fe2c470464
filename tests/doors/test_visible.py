"""Text of others never steers the terminal of who looks: an error of a service, a key, a note of why, a message."""

import json
import unicodedata

import pytest

from makegood.cli.output import Output
from tests.doors.conftest import Shop
from tests.doors.kiosk import RUDE
from tests.doors.test_output import on_terminal

KEY = "k\x1b]0;pwned\x07\nid  x"


def steering(text: str) -> list[str]:
    """Return what of a text a terminal would obey, or be turned round by, beside its line ends."""
    return [c for c in text.replace("\n", "") if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]


def rude(shop: Shop, card: str, *more: str) -> tuple[str, str]:
    """Submit an order that is refused rudely, and wait for its end; return its id and what was said."""
    order = json.dumps({"id": "o-1", "card": card})
    made = shop.call("task", "submit", "kiosk:buy", order, "by \u202eme", "--wait", "--timeout", "30s", *more)
    assert made.exit_code in (5, 6), made.output
    (newest,) = shop.json("task", "list", "--limit", "1")
    return newest["id"], made.stdout + made.stderr


def test_no_command_lets_a_text_of_others_reach_the_terminal_raw(open_shop: Shop) -> None:
    """Control characters, line breaks and marks of direction in errors, keys, reasons and inputs are shown
    as escapes by all that shows tasks, and a table has a line for each row.
    """
    undone, first = rude(open_shop, "rude", "--key", KEY, "--reply-to", "queue:told")
    stuck, second = rude(open_shop, "rude-stuck")
    told = [first, second]
    for words in (
        ("task", "undo", stuck, "--why", RUDE, "--who", KEY),
        ("task", "settle", undone, "--step", KEY, "--not-done", "--why", RUDE),
        ("task", "cancel", "--filter", "state=error", "--dry-run"),
        ("task", "undo", "--preview", stuck),
        *(("task", what, task) for what in ("show", "history", "watch") for task in (undone, stuck)),
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
        told.append(result.stdout + result.stderr)
        drawn = told[-1].replace("\x1b[0m", "").replace("\x1b[1m", "") if "always" in words else told[-1]
        assert "always" in words or steering(drawn) == [], words
        assert "\x07" not in drawn, words
        assert "\x9b" not in drawn, words
    shown = "\n".join(told)
    assert r"card\u001b[2J refused\n\u009b0m\tby \u202eknab\u0007" in shown
    assert r"k\u001b]0;pwned\u0007\nid  x" in shown
    assert r"by \u202eme" in shown
    assert f"task {undone} was undone: charge: card\\u001b" in first
    assert steering(first + second) == []


def test_json_has_every_text_as_it_is_and_steers_no_terminal(open_shop: Shop) -> None:
    """Read by a machine it is the same text, looked at by a person it has only what can be read."""
    undone, _ = rude(open_shop, "rude")
    assert RUDE in open_shop.json("task", "show", undone)["cause"]
    for words in (("task", "show", undone), ("task", "watch", undone)):
        assert steering(open_shop.call(*words, "--json").stdout) == []


def test_a_message_is_received_on_one_line_and_of_the_same_value(shop: Shop) -> None:
    """Blanks inside its texts stay as they are; what would steer the terminal is escaped as JSON does."""
    value = '{"a":\n  "b  c\u202e\x7f\u00a0 "}'
    shop.done("queue", "send", "q", value)
    for words in (("queue", "list", "q"), ("queue", "receive", "q")):
        written = shop.done(*words)
        assert steering(written) == []
        assert written.rstrip("\n").count("\n") == ("list" in words)
        body = written[written.index("{") :]
        assert json.loads(body) == json.loads(value)


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
    drawn = terminal.getvalue()
    assert not {"\x07", "\x9b", "\u202e"} & set(drawn)
    assert drawn.count(r"card\u001b[2J refused\n") == 5  # the drawing that stays is written twice
