"""Texts that every store can keep: without NUL, which PostgreSQL refuses, and without lone surrogates (not
UTF-8).

Python allows both: ``os.fsdecode`` turns bytes that are not UTF-8 into surrogates, and a service's answer may
hold a NUL. Texts that makegood writes, such as an exception's, are escaped. Texts that a caller gives and
will search for again, such as a key, are refused.
"""

import os
import re
import socket

from makegood.base.secret_names import without_secrets
from makegood.base.wrapped_errors import inside
from makegood.errors import ConfigError, MakegoodError, PayloadError

MOST_ERROR = 2000
"""Characters of an error that are kept."""
_MOST_INSIDE = 6
"""Errors inside another one that its text names."""
_LONGEST_OUTER, _LONGEST_INNER = 500, 240
"""Characters of an error that has others inside, and of each of those."""
_LEAST_QUOTE = 12
"""Characters; a shorter text may be in another one by chance."""

_ADDRESS = re.compile(r"(?<=\S) at 0x[0-9a-fA-F]{4,}")
_UNMADE = "(its text could not be made"


def first_line(text: str | None) -> str:
    """Return the first line of a text, which is all that a table has room for."""
    return (text or "").partition("\n")[0]


def has_more_lines(text: str) -> bool:
    """Whether a text has more than one line."""
    return "\n" in text


def short_repr(value: object, most: int = 60) -> str:
    """Return a value as Python writes it, of ``most`` characters at most; a text keeps both its quotes.

    >>> short_repr("order-7"), short_repr("kkkkkkkkkkkkkkkk", 10)
    ("'order-7'", "'kkkkkkk…'")
    """
    text = repr(value)
    if len(text) <= most:
        return text
    end = "…" + text[0] if isinstance(value, str) else "…"
    return text[: most - len(end)] + end


def is_storable(text: str) -> bool:
    r"""Whether every store takes a text as it is.

    >>> is_storable("naïve"), is_storable("a\0b"), is_storable("caf\udce9")
    (True, False, False)
    """
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable_text(text: str) -> str:
    r"""Return a text that makegood writes, with characters that a store cannot keep escaped as Python writes
    them.

    >>> print(storable_text("caf\udce9, a\0b"))
    caf\udce9, a\x00b
    """
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def without_backticks(text: str) -> str:
    """Return a foreign text for use in a text of ours, in which backticks enclose commands to copy.

    >>> without_backticks("no `rm -rf`, please")
    "no 'rm -rf', please"
    """
    return text.replace("`", "'")


def refuse_unstorable(
    error: type[ConfigError | PayloadError], then: str = "", /, **texts: str | None
) -> None:
    """Raise ``error`` for a text that a store cannot keep, naming its parameter; ``then``: the
    consequence.
    """
    for name, text in texts.items():
        if text is not None and not is_storable(text):
            raise error(f"{name}={text!r:.60}: texts must be Unicode without NUL or lone surrogates{then}")


def error_text(error: BaseException) -> str:
    """Return an exception's text, fit to be kept, without the secrets that it shows in a usual form.

    If its ``__str__`` raises, the text says so. The address of an object, as in ``<Future at 0x7f3c5a0>``, is
    left out: it says nothing to anybody, and makes two equal causes differ.

    >>> error_text(ValueError(object()))
    '<object object>'
    """
    try:
        return without_secrets(_ADDRESS.sub("", storable_text(str(error))))
    except Exception as fault:  # noqa: BLE001 - the user's class: what it was raised for must not be lost by that
        return storable_text(f"{_UNMADE}: {_why(fault)})")


def _why(fault: Exception) -> str:
    try:
        return f"{type(fault).__name__}: {fault}"
    except Exception:  # noqa: BLE001 - the fault's own text fails as well
        return type(fault).__name__


def words(error: BaseException, *, named: bool = False) -> str:
    """Return an exception as a text for people, fit to be kept.

    The text begins with the exception's type if it is not one of ours, or always with ``named``. It names the
    errors inside (see ``wrapped_errors``): verdicts first, each text once, and the number of all others.

    >>> words(KeyError("order")), words(ConfigError("every='soon' is no duration"))
    ("KeyError: 'order'", "every='soon' is no duration")
    >>> words(ExceptionGroup("two calls", [KeyError("order"), ConfigError("no URL")]))
    "ExceptionGroup: two calls (2 sub-exceptions), from KeyError: 'order'; no URL"
    """
    text = _alone(error, with_type=named)
    if isinstance(error, MakegoodError):
        return text[:MOST_ERROR]
    parts: list[str] = []
    surplus = 0
    for inner in inside(error):
        message = error_text(inner)
        if len(message) >= _LEAST_QUOTE and any(message in part for part in (text, *parts)):
            continue  # the outer error quotes it, as libraries do that wrap another one's
        part = " ".join(_alone(inner, with_type=False).split())[:_LONGEST_INNER]
        if part in parts:
            continue
        if len(parts) < _MOST_INSIDE:
            parts.append(part)
        else:
            surplus += 1
    if not parts:
        return text[:MOST_ERROR]
    if surplus:
        parts.append(f"and {surplus} more")
    return f"{text[:_LONGEST_OUTER]}, from {'; '.join(parts)}"[:MOST_ERROR]


def _alone(error: BaseException, *, with_type: bool) -> str:
    """Return an exception's own text, without those inside."""
    text, name = error_text(error), type(error).__name__
    if text.startswith(_UNMADE):
        return f"{name} {text}"
    if with_type or not (text and isinstance(error, MakegoodError)):
        text = f"{name}: {text}" if text else name
    return text


def hostname() -> str:
    """Return this machine's name."""
    return storable_text(socket.gethostname())


_SESSION_NAME = 63  # bytes that PostgreSQL keeps of an application_name


def session_name(roles: str, name: str = "") -> str:
    """Return the name of a process's sessions in PostgreSQL (``application_name``).

    A long name keeps its end, which holds the pid.

    >>> session_name("scheduler supervisor", "web-7-4711")
    'makegood scheduler supervisor web-7-4711'
    """
    head = f"makegood {roles} ".encode()
    tail = (name or f"{hostname()}-{os.getpid()}").encode(errors="replace")
    return (head + tail[-max(1, _SESSION_NAME - len(head)) :])[:_SESSION_NAME].decode(errors="ignore")
