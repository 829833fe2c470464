"""The event loop of a role's process: uvloop where it is installed (``makegood[fast]``), else asyncio's own.

It is a matter of the process, so only the command line chooses; a Node in a user's program runs on the loop that is there. So is
how long a busy event loop keeps the interpreter from other threads, 5 ms by itself: a store in a SQLite file, written by a thread,
would have to wait for that again and again.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_SWITCH = 0.0002  # seconds; SQLite's writing thread wants the interpreter some ten times a commit, each time so long at most


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as ``asyncio.run`` does."""
    sys.setswitchinterval(min(_SWITCH, sys.getswitchinterval()))
    chosen: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run
    with contextlib.suppress(ImportError):  # not asked for, or a platform that has none
        import uvloop  # noqa: PLC0415 - an extra, and only for roles

        chosen = uvloop.run
    # Out here: what fails inside does not begin its traceback with the import that failed.
    return chosen(main)
