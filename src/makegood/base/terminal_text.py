"""Text of others made fit for a person's terminal: what would steer it, reorder what is read, or not be seen, is shown instead.

An error's text comes from a remote service, a key from whoever submits. Written raw, an escape sequence in it could clear the
screen, rename the window or write a line that looks like one of ours; and two keys of which one holds a character without a shape
would look the same. So a variation selector and the joiner inside an emoji are shown as escapes as well: the emoji falls apart.
"""

import json
import re
import shlex
from collections.abc import Sequence
from typing import Final

_BREAKS: Final = "\x00-\x1f\x7f-\x9f\u2028\u2029"
_BLANK: Final = (
    "\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"  # they look like the blank that they are not
)
_FORMAT: Final = (  # category Cf: marks of direction, joiners, tags, ...
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
)
_SHAPELESS: Final = (  # other characters that a font may leave out (Default_Ignorable_Code_Point), among them variation selectors
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff"
)
_HIDDEN: Final = re.compile(f"[{_BREAKS}{_BLANK}{_FORMAT}{_SHAPELESS}]")


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def _escape_in_json(found: re.Match[str]) -> str:
    return " " if found[0] in "\t\n\r" else _escape(found)


def visible(text: str) -> str:
    r"""Return a text on one line, with every character that is not seen as JSON would escape it: control characters (C0, DEL, C1), line
    separators, blanks other than the space, format characters and others without a shape.

    >>> print(visible("refused\n\x1b[2Jby \u202ethe bank\u200b"))
    refused\n\u001b[2Jby \u202ethe bank\u200b
    """
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_escape, text)


def visible_json(text: str) -> str:
    r"""Return a JSON text on one line, of the same value: between its values a line break is only a blank.

    >>> print(visible_json('{"a":\n "b  \u202ec"}'))
    {"a":  "b  \u202ec"}
    """
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_escape_in_json, text)


def command(words: Sequence[str], others: Sequence[str] = ()) -> str:
    """Return a command of makegood between backticks, as a shell takes it: ``words`` are ours, ``others`` somebody else's texts, which
    are never options. "" where one of them cannot be pasted as it is: it is not seen in full, or a backtick would end the command.

    >>> command(["queue", "replay"], ["orders", "o-7; touch x"])
    "`makegood queue replay orders 'o-7; touch x'`"
    >>> command(["queue", "replay"], ["orders", "--all"]), command(["queue", "list"], ["a`b"])
    ('`makegood queue replay -- orders --all`', '')
    """
    if any(visible(text) != text or "`" in text or not text for text in others):
        return ""
    guard = ["--"] if any(text.startswith("-") for text in others) else []
    return f"`{shlex.join(['makegood', *words, *guard, *others])}`"
