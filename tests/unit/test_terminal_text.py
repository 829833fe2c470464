"""What is not seen in a text is shown, and a command that is offered with somebody else's text runs that command and nothing else."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.base.terminal_text import command, visible, visible_json

UNSEEN = ("Cc", "Cf", "Zl", "Zp", "Zs")


def test_every_character_that_is_not_seen_is_escaped() -> None:
    """All that Unicode calls control, format or separator, whatever version of it this Python knows."""
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        if letter != " " and unicodedata.category(letter) in UNSEEN:
            assert visible(f"k{letter}").isascii(), hex(code)
            assert visible_json(f"k{letter}").isascii(), hex(code)


@pytest.mark.parametrize(
    "unseen",
    [
        "\ufe0f",
        "\U000e0100",
        "\U000e0041",
        "\u034f",
        "\u115f",
        "\u3164",
        "\uffa0",
        "\u2800",
        "\u180b",
        "\u200d",
        "\u00ad",
    ],
)
def test_two_keys_never_look_the_same_by_what_is_not_seen(unseen: str) -> None:
    """Variation selectors, tags, fillers and joiners, which no category shows."""
    assert visible(f"o-7{unseen}") != visible("o-7")
    assert visible(f"o-7{unseen}").isascii()


@given(st.text())
def test_what_is_shown_is_shown_again_as_it_is(text: str) -> None:
    assert visible(visible(text)) == visible(text)
    assert "\n" not in visible(text)


def test_letters_of_every_language_stay() -> None:
    text = "naïve → 漢字 नमस्ते 😀 é ไทย עִבְרִית"
    assert visible(text) == text
    assert visible("é e\u0301 e\u0316\u0301 \u1100\u1161") == "é e\\u0301 e\u0316\\u0301 \u1100\\u1161"


@pytest.mark.parametrize("text", ["a\nb", "a\x1b[2J", "a`id`", "a\u200b", "a\u202eb", "", "a\u00a0b"])
def test_a_command_that_cannot_be_pasted_is_not_offered(text: str) -> None:
    assert command(["queue", "replay"], ["orders", text]) == ""
