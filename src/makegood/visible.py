"""Text of others made fit for a person's terminal: what would steer it, or reorder what is read, is shown instead of obeyed.

An error's text comes from a remote service, a key from whoever submits. Written raw, an escape sequence in it could clear the
screen, rename the window or write a line that looks like one of ours.
"""

from collections.abc import Mapping

_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_BREAKS = (0x2028, 0x2029)
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_SHORT = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}

_ESCAPES: Mapping[int, str] = {
    **{code: f"\\u{code:04x}" for code in (*_CONTROLS, *_BREAKS, *_BIDI)},
    **_SHORT,
}
_ESCAPES_IN_JSON: Mapping[int, str] = {**_ESCAPES, **dict.fromkeys(_SHORT, " ")}


def visible(text: str) -> str:
    r"""Return a text on one line, with control characters (C0, DEL, C1), line separators and marks that change the direction of
    reading as JSON would escape them.

    >>> print(visible("refused\n\x1b[2Jby \u202ethe bank"))
    refused\n\u001b[2Jby \u202ethe bank
    """
    return text if text.isprintable() else text.translate(_ESCAPES)


def visible_json(text: str) -> str:
    r"""Return a JSON text on one line, of the same value: between its values a line break is only a blank.

    >>> print(visible_json('{"a":\n "b  \u202ec"}'))
    {"a":  "b  \u202ec"}
    """
    return text if text.isprintable() else text.translate(_ESCAPES_IN_JSON)
