"""What an exception says is always a text that every store can keep; what cannot be kept is told from what can."""

import asyncio

import pytest

from makegood.base.text import (
    MOST_ERROR,
    error_text,
    hostname,
    is_storable,
    refuse_unstorable,
    storable_text,
    words,
)
from makegood.errors import ConfigError, Permanent


def test_a_cause_contains_no_address_of_an_object() -> None:
    """Such as that of the future in a retry library's error: two equal causes would differ."""
    error = RuntimeError("RetryError[<Future at 0x7f3c5a0b12d0 state=finished raised ValueError>]")
    assert words(error) == "RuntimeError: RetryError[<Future state=finished raised ValueError>]"
    assert " at 0x" not in words(ValueError(object(), [words, Mute]))
    assert " at 0x" not in words(ExceptionGroup("two", [ValueError(object()), KeyError(object())]))
    assert error_text(ValueError("status 0x80070005 at 10:30")) == "status 0x80070005 at 10:30"


class Mute(Exception):  # noqa: N818 - what it is
    """Its text cannot be made."""

    def __str__(self) -> str:
        return "HTTP " + self.response.status  # type: ignore[attr-defined,no-any-return]  # as in the wild


class Worse(Exception):  # noqa: N818 - what it is
    """Neither can the text of what its ``__str__`` raises."""

    def __str__(self) -> str:
        raise Worse


class Refusal(Permanent):
    """A verdict of the user's own whose text cannot be made."""

    def __str__(self) -> str:
        raise KeyError("code")


class Text(str):
    """A text of a class of its own."""

    __slots__ = ()


class Given(Exception):  # noqa: N818 - what it is
    """Its text is of a class of its own, which JSON does not know."""

    def __str__(self) -> str:
        return Text("given")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("caf\udce9.pdf"), "ValueError: caf\\udce9.pdf"),
        (ValueError("502: \0\x1f"), "ValueError: 502: \\x00\x1f"),
        (ValueError(), "ValueError"),
        (Permanent("no"), "no"),
        (Permanent(), "Permanent"),
        (Permanent("caf\udce9"), "caf\\udce9"),
    ],
)
def test_an_exception_is_told_in_words_that_can_be_kept(error: Exception, text: str) -> None:
    assert words(error) == text
    assert is_storable(words(error))


@pytest.mark.parametrize("error", [Mute(), Worse(), Refusal()])
def test_an_exception_whose_text_cannot_be_made_is_told_all_the_same(error: Exception) -> None:
    assert type(error).__name__ in words(error)
    assert "its text could not be made" in words(error)
    assert "its text could not be made" in error_text(error)


def test_why_a_text_could_not_be_made_is_told() -> None:
    assert words(Mute()).startswith("Mute (its text could not be made: AttributeError: 'Mute' object has no")


def test_a_text_of_a_class_of_its_own_is_told_as_a_plain_one() -> None:
    assert words(Given()) == "Given: given"
    assert type(words(Given())) is str


def test_a_text_stays_as_it_is_where_it_can_be_kept_and_is_cut_to_what_is_kept() -> None:
    assert storable_text("naïve 🙂\n") == "naïve 🙂\n"
    assert len(words(ValueError("\0" * MOST_ERROR))) == MOST_ERROR


def test_what_is_escaped_can_be_kept() -> None:
    for text in ("\ud800", "\udfff", "a\0b", "\ud83d\ude42 in two halves"):
        assert not is_storable(text)
        assert is_storable(storable_text(text))
    assert is_storable(hostname())


def test_a_text_that_cannot_be_kept_is_refused_by_its_name() -> None:
    refuse_unstorable(ConfigError, who=None, why="naïve")
    with pytest.raises(
        ConfigError, match=r"why='a\\x00b': texts must be .* without NUL .*; nothing was done"
    ):
        refuse_unstorable(ConfigError, "; nothing was done", who="me", why="a\0b")


def test_an_error_is_told_in_words_with_its_type_unless_it_is_ours_and_never_at_length() -> None:
    assert words(ValueError("five")) == "ValueError: five"
    assert words(asyncio.CancelledError()) == "CancelledError"
    assert words(Permanent("card refused")) == "card refused"
    assert words(Permanent("card refused"), named=True) == "Permanent: card refused"
    assert len(words(ValueError("x" * 10_000))) == 2000
