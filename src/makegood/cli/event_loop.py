"""The event loop of a role's process: uvloop where it is installed (``makegood[fast]``), else asyncio's own.

The choice concerns the whole process, so only the command line makes it; a Node in a user's program runs on
the existing loop. The same holds for the switch interval: a busy event loop keeps the interpreter from other
threads for 5 ms by default, and a store in a SQLite file, which a thread writes, would wait for that again
and again.

The end of the process concerns the whole process too. A loop waits at its end for everything that was started
on it. It would wait forever for a function that ignores its cancellation, or for a thread of its executor
that hangs. The node has ended by then, and what was reported to it is in the store, so this process ends too,
a moment later.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from makegood.base.scrubbed_tracebacks import SCRUBBED_TRACEBACKS
from makegood.base.text import words
from makegood.cli import exits
from makegood.errors import MakegoodError

T = TypeVar("T")

log = logging.getLogger("makegood.node")
log.addFilter(SCRUBBED_TRACEBACKS)

GRACE: Final = 3.0
"""Seconds in which cancelled work may finish, once the node has ended."""

_SWITCH = 0.0002
"""Seconds; SQLite's writing thread wants the interpreter about ten times a commit, each at most this late."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, as ``asyncio.run`` does.

    What outlives that by more than ``GRACE`` ends with the process.
    """
    sys.setswitchinterval(min(_SWITCH, sys.getswitchinterval()))
    runner: Callable[[Coroutine[Any, Any, T]], T] = asyncio.run
    with contextlib.suppress(ImportError):  # not asked for, or a platform that has none
        import uvloop  # noqa: PLC0415 - an extra, and only for roles

        runner = uvloop.run
    # Outside of suppress, which would also swallow an ImportError of main.
    over = threading.Event()
    try:
        return runner(_run_main(main, over))
    finally:
        over.set()


async def _run_main(main: Coroutine[Any, Any, T], over: threading.Event) -> T:
    """Run ``main``, and from its end on make sure that the loop ends as well."""
    failure, loop = None, asyncio.get_running_loop()
    try:
        return await main
    except BaseException as fault:
        failure = fault
        raise
    finally:
        threading.Thread(target=_end, args=(over, loop, failure), name="makegood end", daemon=True).start()


def _end(over: threading.Event, loop: asyncio.AbstractEventLoop, failure: BaseException | None) -> None:
    """End the process unless its loop does.

    ``failure``: the error that ended the node, which would otherwise not be reported.
    """
    if over.wait(GRACE):
        return
    code = exits.DONE
    if isinstance(failure, MakegoodError):
        code = exits.code_of(failure)
        log.error("%s", failure)
    elif isinstance(failure, Exception):
        code = exits.FAILED
        log.error("%s", words(failure), exc_info=failure)
    elif failure is not None:
        code = exits.INTERRUPTED
    tasks = [task.get_name() for task in asyncio.all_tasks(loop)]
    threads = [thread.name for thread in threading.enumerate() if not thread.daemon]
    log.warning(
        "this process ends now, %g s after its node: %s would not end by themselves. Nothing that was acknowledged is lost; "
        "steps that still run are in doubt once their deadline has passed",
        GRACE, ", ".join(tasks or [f"thread {name}" for name in threads if name != "MainThread"]) or "its loop",
    )  # fmt: skip
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # closed
            stream.flush()
    os._exit(code)
