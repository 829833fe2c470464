"""A command that runs only while this process leads: the one kind of work that can be *forced* to stop.

The command's parent is a keeper (a process of its own), which ends the command's process group at the deadline whatever has
become of the candidate. The keeper is told of every renewal.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from makegood.clock import Clock
from makegood.election import keeper
from makegood.election.term import Term

_LOOK = 0.1


class LedCommand:
    """Runs ``command`` in a term; ``grace``: seconds between SIGTERM and SIGKILL. ``code`` is how it ended by itself, None when
    the term ended first.
    """

    def __init__(
        self, command: Sequence[str], *, grace: float, clock: Clock, environ: Mapping[str, str] | None = None
    ) -> None:
        self._command = list(command)
        self._grace = grace
        self._clock = clock
        self._environ = dict(os.environ if environ is None else environ)
        self.code: int | None = None
        self.runs = 0

    async def lead(self, term: Term) -> None:
        """Run the command until it ends, or until the term does: then its group is ended, and waited for."""
        self.code = None
        self.runs += 1
        read, write = os.pipe()
        os.set_blocking(write, False)
        deadline = self._clock.monotonic() + term.remaining()
        words = [
            sys.executable,
            "-I",
            "-S",
            str(Path(keeper.__file__)),
            str(read),
            str(self._grace),
            str(deadline),
        ]
        try:
            process = await asyncio.create_subprocess_exec(
                *words, *self._command, pass_fds=[read], start_new_session=True, env=self._told(term)
            )
        except BaseException:
            os.close(write)
            raise
        finally:
            os.close(read)
        waiting = asyncio.ensure_future(process.wait())
        try:
            while not waiting.done():
                left = term.remaining()
                if not term.lost.is_set():
                    _write(write, f"{self._clock.monotonic() + left}\n")
                await asyncio.wait([waiting], timeout=_LOOK)
            self.code = waiting.result()
        finally:
            _write(write, "stop\n")
            while not waiting.done():  # the keeper ends it in time, come what may
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([waiting])
            os.close(write)

    def _told(self, term: Term) -> dict[str, str]:
        return {
            **self._environ,
            "MAKEGOOD_ELECTION": term.grant.name,
            "MAKEGOOD_CANDIDATE": term.grant.holder,
            "MAKEGOOD_EPOCH": str(term.epoch),
        }


def _write(pipe: int, text: str) -> None:
    """Tell the keeper; one that has ended, or is stopped, need not hear it."""
    with contextlib.suppress(BrokenPipeError, BlockingIOError):
        os.write(pipe, text.encode())
