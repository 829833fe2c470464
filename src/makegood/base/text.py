"""Texts that every store can keep: without NUL, which PostgreSQL refuses, and without lone surrogates, which are not UTF-8.

Python has both: ``os.fsdecode`` makes surrogates of bytes that are no UTF-8, and an answer of a service may hold a NUL. What is ours to
write, such as what an exception says, is escaped; what somebody gives us and will look for again, such as a key, is refused.
"""

import os
import socket

from makegood.errors import ConfigError, MakegoodError, PayloadError

MOST_ERROR = 2000
"""Letters of an error that are kept."""

_UNMADE = "(its text could not be made"


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


def kept(text: str) -> str:
    r"""Return a text of ours as every store can keep it: what it cannot is escaped, as Python writes it.

    >>> print(kept("caf\udce9, a\0b"))
    caf\udce9, a\x00b
    """
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def refuse_unstorable(error: type[ConfigError | PayloadError], then: str = "", **texts: str | None) -> None:
    """Raise ``error`` for a text that a store could not keep, by the name under which it was given; ``then``: what came of it."""
    for name, text in texts.items():
        if text is not None and not is_storable(text):
            raise error(f"{name}={text!r:.60}: texts must be Unicode without NUL or lone surrogates{then}")


def said(error: BaseException) -> str:
    """Return what an exception says, fit to be kept; of one whose ``__str__`` raises, that it does."""
    try:
        return kept(str(error))
    except Exception as fault:  # noqa: BLE001 - the user's class: what it was raised for must not be lost by that
        return kept(f"{_UNMADE}: {_why(fault)})")


def _why(fault: Exception) -> str:
    try:
        return f"{type(fault).__name__}: {fault}"
    except Exception:  # noqa: BLE001 - nor can this be told
        return type(fault).__name__


def words(error: BaseException, *, named: bool = False) -> str:
    """Return an exception as a text for people, fit to be kept: what it says, and its type when that is not one of ours,
    or with ``named`` always.

    >>> words(KeyError("order")), words(ConfigError("every='soon' is no duration"))
    ("KeyError: 'order'", "every='soon' is no duration")
    """
    text, name = said(error), type(error).__name__
    if text.startswith(_UNMADE):
        return f"{name} {text}"[:MOST_ERROR]
    if named or not (text and isinstance(error, MakegoodError)):
        text = f"{name}: {text}" if text else name
    return text[:MOST_ERROR]


def hostname() -> str:
    """Return this machine's name."""
    return kept(socket.gethostname())


_SESSION_NAME = 63  # bytes that PostgreSQL keeps of an application_name


def session_name(roles: str, name: str = "") -> str:
    """Return what PostgreSQL shows of a process's sessions (``application_name``); of a long name the end, in which the pid is.

    >>> session_name("scheduler supervisor", "web-7-4711")
    'makegood scheduler supervisor web-7-4711'
    """
    head = f"makegood {roles} ".encode()
    tail = (name or f"{hostname()}-{os.getpid()}").encode(errors="replace")
    return (head + tail[-max(1, _SESSION_NAME - len(head)) :])[:_SESSION_NAME].decode(errors="ignore")
