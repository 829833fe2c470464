"""A command that runs only while this process leads: the one kind of work that can be *forced* to stop.

The command's parent is a keeper (a separate process), which ends the command at the deadline whatever happens
to the candidate. The candidate sends the keeper every renewal. If the keeper itself is killed or stopped, the
candidate ends the command before it releases the lease. Each watches the other, and either is enough.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from makegood.base.clock import Clock
from makegood.election import process_group
from makegood.election.term import Term

UNKEPT = 70
"""The exit code if the keeper was killed, and the command therefore ended (EX_SOFTWARE)."""

_LOOK = 0.1
_SHORT = 0.02


class LedCommand:
    """Runs ``command`` in a term; ``wind_down``: seconds between SIGTERM and SIGKILL.

    ``code``: the command's own exit code, None if the term ended first; ``unkept``: its keeper was killed,
    and the command was therefore ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        wind_down: float,
        clock: Clock,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._command = list(command)
        self._wind_down = wind_down
        self._clock = clock
        self._environ = dict(os.environ if environ is None else environ)
        self.code: int | None = None
        self.unkept = False
        self.runs = 0

    async def lead(self, term: Term) -> None:
        """Run the command until it ends, or until the term does: then end and await all that it started."""
        self.code, self.unkept = None, False
        self.runs += 1
        deadline = self._clock.monotonic() + term.remaining()
        keeper = await _Kept.begin(
            self._command, self._wind_down, deadline, self._environment(term), self._clock
        )
        try:
            while not keeper.waiting.done():
                left = term.remaining()
                if not term.lost.is_set():
                    keeper.send(f"{self._clock.monotonic() + left}\n")
                await asyncio.wait([keeper.waiting], timeout=_LOOK)
            self.unkept = not keeper.end_seen()
        finally:
            ending = asyncio.ensure_future(keeper.end(term))
            while not ending.done():  # It ends in time, whatever happens.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([ending])
            term.stopped(ending.result())
        self.code = UNKEPT if self.unkept else keeper.waiting.result()

    def _environment(self, term: Term) -> dict[str, str]:
        return {
            **self._environ,
            "MAKEGOOD_ELECTION": term.grant.name,
            "MAKEGOOD_CANDIDATE": term.grant.holder,
            "MAKEGOOD_EPOCH": str(term.epoch),
        }


class _Kept:
    """A command and its keeper, as the candidate sees them."""

    def __init__(
        self, process: asyncio.subprocess.Process, wind_down: float, clock: Clock, pipes: tuple[int, int]
    ) -> None:
        self._process = process
        self._wind_down = wind_down
        self._clock = clock
        self._write, self._report = pipes
        self._output = b""
        self._before: frozenset[int] = frozenset()
        self.waiting = asyncio.ensure_future(process.wait())

    @classmethod
    async def begin(
        cls, command: list[str], wind_down: float, deadline: float, environ: Mapping[str, str], clock: Clock
    ) -> Self:
        """Start the keeper, which starts the command."""
        process_group.adopt()  # If it is killed, its descendants become ours.
        before = frozenset(process_group.below(os.getpid()))
        (read, write), (feedback, report) = os.pipe(), os.pipe()
        os.set_blocking(write, False)
        os.set_blocking(feedback, False)
        words = [sys.executable, "-I", "-S", str(Path(process_group.__file__)), str(read), str(report), str(wind_down), str(deadline)]  # fmt: skip
        try:
            process = await asyncio.create_subprocess_exec(
                *words, *command, pass_fds=[read, report], start_new_session=True, env=environ
            )
        except BaseException:
            os.close(write)
            os.close(feedback)
            raise
        finally:
            os.close(read)
            os.close(report)
        keeper = cls(process, wind_down, clock, (write, feedback))
        keeper._before = before
        return keeper

    def send(self, text: str) -> None:
        """Send text to the keeper; one that has ended, or is stopped, need not receive it."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self._write, text.encode())

    def end_seen(self) -> float | None:
        """Return when the keeper saw the end of all that ran, on the clock; None if it was ended before."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._report, 4096):
                self._output += data
        last = self._output.decode().splitlines()[-1:]
        return float(last[0].split()[2]) if last and last[0].startswith("over ") else None

    async def end(self, term: Term) -> float:
        """Let the keeper end the command, or end it here if it does not; return when nothing ran any more."""
        try:
            self.send("stop\n")
            last = self._clock.monotonic() + min(term.remaining(), self._wind_down) + _SHORT
            while not self.waiting.done() and self._clock.monotonic() < last:
                await asyncio.wait([self.waiting], timeout=_SHORT)
            if not self.waiting.done():
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()  # It is stopped, or stuck.
                await self.waiting
            at = self.end_seen()
            if at is None:
                await self._end_it_here(term)
            return self._clock.monotonic() if at is None else at
        finally:
            os.close(self._write)
            os.close(self._report)

    async def _end_it_here(self, term: Term) -> None:
        """In place of the keeper: SIGTERM, then SIGKILL after ``wind_down`` or at the deadline."""
        await self._signal(signal.SIGTERM, min(term.remaining(), self._wind_down))
        await self._signal(signal.SIGKILL, None)

    async def _signal(self, number: int, seconds: float | None) -> None:
        """Send a signal to the remaining processes, repeatedly if need be, and wait at most ``seconds`` until
        there are none.
        """
        start, empty_checks, first = self._clock.monotonic(), 0, True
        while empty_checks < 2:  # One check may miss a process that starts during it.
            left = self._remaining_processes()
            empty_checks = 0 if left else empty_checks + 1
            survivors = [
                p
                for p in left
                if (first or number == signal.SIGKILL) and not process_group.signal_process(p, number)
            ]
            if left and survivors == left:
                sys.stderr.write(f"makegood: the command's processes may not be ended: {survivors}\n")
                return
            if seconds is not None and self._clock.monotonic() - start >= seconds:
                return
            first = False
            await asyncio.sleep(_SHORT / 4)
        if not self._before:
            process_group.bury(0)

    def _remaining_processes(self) -> list[int]:
        """Return the remaining processes of the command, or its group where parents cannot be determined."""
        if process_group.LINUX:
            return [process for process in process_group.below(os.getpid()) if process not in self._before]
        group = self._output.split(b"\n")[0]
        if group.isdigit() and int(group) > 1:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(int(group), 0)
                return [-int(group)]
        return []
