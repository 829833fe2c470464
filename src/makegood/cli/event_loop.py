"""The event loop of a role's process: uvloop where it is installed (``makegood[fast]``), else asyncio's own.

It is a matter of the process, so only the command line chooses; a Node in a user's program runs on the loop that is there. So is
how long a busy event loop keeps the interpreter from other threads, 5 ms by itself: a store in a SQLite file, written by a thread,
would have to wait for that again and again; and how often the garbage collector looks (``collecting``).

And so is its end. A loop waits at its end for all that was begun on it, and would wait for ever for a function that does not heed its
cancellation, or for a thread of its executor that hangs. The node has ended by then, and what it was told is in the store: so this
process ends too, a moment later.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from makegood.base.text import words
from makegood.cli import exits
from makegood.errors import MakegoodError

T = TypeVar("T")

log = logging.getLogger("makegood.node")

GRACE: Final = 3.0
"""Seconds in which what was cancelled may come to its end, once the node has ended."""

_SWITCH = 0.0002  # seconds; SQLite's writing thread wants the interpreter some ten times a commit, each time so long at most


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as ``asyncio.run`` does; what outlives that by more than ``GRACE`` ends with the process."""
    sys.setswitchinterval(min(_SWITCH, sys.getswitchinterval()))
    chosen: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run
    with contextlib.suppress(ImportError):  # not asked for, or a platform that has none
        import uvloop  # noqa: PLC0415 - an extra, and only for roles

        chosen = uvloop.run
    # Out here: what fails inside does not begin its traceback with the import that failed.
    over = threading.Event()
    try:
        return chosen(_watched(main, over))
    finally:
        over.set()


async def _watched(main: Coroutine[Any, Any, T], over: threading.Event) -> T:
    """Do ``main``, and from its end on see to it that the loop ends as well."""
    failed, loop = None, asyncio.get_running_loop()
    try:
        return await main
    except BaseException as fault:
        failed = fault
        raise
    finally:
        threading.Thread(target=_end, args=(over, loop, failed), name="makegood end", daemon=True).start()


def _end(over: threading.Event, loop: asyncio.AbstractEventLoop, failed: BaseException | None) -> None:
    """End the process unless its loop does; ``failed``: what ended the node, which nobody else gets to tell then."""
    if over.wait(GRACE):
        return
    code = exits.DONE
    if isinstance(failed, MakegoodError):
        code = exits.code_of(failed)
        log.error("%s", failed)
    elif isinstance(failed, Exception):
        code = exits.FAILED
        log.error("%s", words(failed), exc_info=failed)
    elif failed is not None:
        code = exits.INTERRUPTED
    tasks = [task.get_name() for task in asyncio.all_tasks(loop)]
    threads = [thread.name for thread in threading.enumerate() if not thread.daemon]
    log.warning(
        "this process ends now, %g s after its node: %s would not end by themselves. Nothing that was acknowledged is lost; "
        "steps that still run are in doubt once their complete-by has passed",
        GRACE, ", ".join(tasks or [f"thread {name}" for name in threads if name != "MainThread"]) or "its loop",
    )  # fmt: skip
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed
            stream.flush()
    os._exit(code)
