"""Makes foreign text safe for a terminal and for a page: shows characters that would steer it, reorder text
or stay invisible.

An error's text comes from a remote service, a key from the submitter. Written raw, an escape sequence in it
could clear the screen, rename the window or write a line that looks like one of ours; and two keys would look
the same if one holds a character without a shape. So a variation selector and the joiner inside an emoji
appear as escapes as well: the emoji falls apart.
"""

import json
import re
import shlex
import unicodedata
from collections.abc import Sequence
from typing import Final

_MARKS: Final = 16
"""Marks after a letter that are shown as they are."""
_BREAKS: Final = "\x00-\x1f\x7f-\x9f\u2028\u2029"
_BLANK: Final = "\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"  # look like a space, and are not
_FORMAT: Final = (  # category Cf: direction marks, joiners, tags, ...
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
# other characters that a font may leave out (Default_Ignorable_Code_Point), such as variation selectors
_SHAPELESS: Final = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff"
)
_BEGINNING: Final = re.compile(f"\\A[ {_BREAKS}{_BLANK}{_FORMAT}{_SHAPELESS}]*")
_HALVES: Final = "\ud800-\udfff"  # of a pair: no encoding has them alone
_HIDDEN: Final = re.compile(f"[{_BREAKS}{_BLANK}{_FORMAT}{_SHAPELESS}{_HALVES}]")


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1] if match[0] != "\x7f" else "\\u007f"


def _escape_in_json(match: re.Match[str]) -> str:
    return " " if match[0] in "\t\n\r" else _escape(match)


def visible(text: str) -> str:
    r"""Return a text on one line, with every invisible character escaped as in JSON.

    These are control characters (C0, DEL, C1), line separators, blanks other than the space, format
    characters and others without a shape.

    A letter that Unicode spells in two ways, as one or with a mark after it, looks the same in both: of
    a text that is not composed, the marks appear as escapes as well.

    >>> print(visible("refused\n\x1b[2Jby \u202ethe bank\u200b"))
    refused\n\u001b[2Jby \u202ethe bank\u200b
    >>> print(visible("caf\xe9"), visible("cafe\u0301"))
    café cafe\u0301
    """
    if text.isascii() and text.isprintable():
        return text
    result = _HIDDEN.sub(_escape, text)
    return result if unicodedata.is_normalized("NFC", result) else _escape_marks(result)


def _escape_marks(text: str) -> str:
    """Return a text with escapes for the marks that Unicode would compose with what they follow, or reorder.

    Marks that belong to the spelling of a script, such as those of Hindi, stay.
    """
    parts, cluster = [], ""
    for letter in text:
        apart = len(cluster) > _MARKS or not unicodedata.is_normalized("NFC", cluster + letter)
        parts.append(json.dumps(letter)[1:-1] if apart else letter)
        if not apart:
            cluster = cluster + letter if unicodedata.combining(letter) else letter
    return "".join(parts)


def visible_lines(text: str) -> str:
    r"""Return a text of several lines, each of them ``visible``.

    >>> print(visible_lines("a\u200b\nb"))
    a\u200b
    b
    """
    return "\n".join(map(visible, text.split("\n")))


def visible_json(text: str) -> str:
    r"""Return a JSON text on one line, with the same value: between its values a line break is only a blank.

    >>> print(visible_json('{"a":\n "b  \u202ec"}'))
    {"a":  "b  \u202ec"}
    """
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_escape_in_json, text)


def unseen(text: str) -> str:
    r"""Return a text without the blanks and invisible characters that it begins with.

    >>> unseen("\ufeff\u200b \n=1"), unseen("a b")
    ('=1', 'a b')
    """
    return _BEGINNING.sub("", text)


def command(words: Sequence[str], others: Sequence[str] = ()) -> str:
    """Return a makegood command between backticks, as a shell takes it.

    ``words`` are ours; ``others`` are foreign texts, which are never options. Returns "" if one of these
    cannot be pasted as it is: a part of it is invisible, or a backtick would end the command.

    >>> command(["queue", "replay"], ["orders", "o-7; touch x"])
    "`makegood queue replay orders 'o-7; touch x'`"
    >>> command(["queue", "replay"], ["orders", "--all"]), command(["queue", "list"], ["a`b"])
    ('`makegood queue replay -- orders --all`', '')
    """
    if any(visible(text) != text or "`" in text or not text for text in others):
        return ""
    guard = ["--"] if any(text.startswith("-") for text in others) else []
    return f"`{shlex.join(['makegood', *words, *guard, *others])}`"
