"""What a process's attempts report: notes (``call.note``) while they run, at a pace, and their answers.

The first note of an attempt is sent at once. Of those that come faster than notes are kept, the last one is
sent when its time has come, or when the attempt ends, and says how many it replaces. Whatever happens, all
notes of an attempt are on their way before its answer is.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from makegood.base.clock import Clock
from makegood.base.contexts import HomeLoop
from makegood.base.ids import show
from makegood.model.attempt import Attempt
from makegood.model.messages import TaskMessage
from makegood.model.note import Note, pause

log = logging.getLogger("makegood.agent")


@dataclass(slots=True)
class _Pace:
    """The notes of one attempt."""

    next_at: float
    """When the next one may be sent."""
    waiting: Note | None = None
    timer: asyncio.TimerHandle | None = None
    sealing: "asyncio.Task[None] | None" = None
    """Encodes the last one that was to be sent, after those before it."""


class Reports:
    """Takes what attempts report. ``on_note``: called with each note that is kept, as a message to the task.
    ``on_answer``: called with each answer and its moment.
    """

    def __init__(
        self,
        on_note: Callable[[Attempt, TaskMessage], None],
        on_answer: Callable[[Attempt, TaskMessage, float], None],
        clock: Clock,
        home: HomeLoop,
    ) -> None:
        self.on_answer = on_answer
        self.paces: dict[Attempt, _Pace] = {}
        """Of the attempts that have written notes."""
        self._on_note = on_note
        self._clock = clock
        self._home = home
        self._under_way: set[asyncio.Task[None]] = set()
        """Notes being encoded: somebody must hold them."""

    def note(self, attempt: Attempt, value: Any, *, overtakes: bool = True) -> None:
        """Take a note. On the event loop. ``overtakes``: another one may take its place, and it that of
        another.
        """
        now, request = self._clock.monotonic(), attempt.request
        if attempt.phase == "ended":  # a thread of its own wrote it at that very moment
            log.warning(
                "a note of step %s of task %s came after its attempt had ended",
                request.step,
                show(request.task),
            )
            return
        pace = self.paces.setdefault(attempt, _Pace(now))
        if not overtakes:
            self._go(attempt, pace)
        skips = 0 if pace.waiting is None else pace.waiting.skipped + 1
        pace.waiting = Note(request.idx, request.attempt, request.doing, value, skips)
        if now >= pace.next_at or not overtakes:
            self._go(attempt, pace)
        elif pace.timer is None:
            pace.timer = self._home.loop.call_later(
                pace.next_at - now, self._go, attempt, pace, context=self._home.context
            )

    async def settle(self, attempt: Attempt) -> None:
        """Send what waits, and wait until all notes of an attempt that has written some are on their way."""
        pace = self.paces[attempt]
        self._go(attempt, pace)
        if pace.sealing is not None:
            await asyncio.shield(pace.sealing)

    def end(self, attempt: Attempt, answer: TaskMessage | None, now: float) -> None:
        """Send what waits of an attempt that has written notes and has ended, then its answer; None: it says
        nothing.
        """
        self._go(attempt, self.paces.pop(attempt))
        if answer is not None:
            self.on_answer(attempt, answer, now)

    def _go(self, attempt: Attempt, pace: _Pace) -> None:
        if pace.timer is not None:
            pace.timer.cancel()
            pace.timer = None
        note, pace.waiting = pace.waiting, None
        if note is None:
            return
        now = self._clock.monotonic()
        pace.next_at = now + pause(now - attempt.began)
        if attempt.seal is None:
            self._on_note(attempt, _message(note))
        else:
            work = self._seal(attempt, note, pace.sealing)
            pace.sealing = task = self._home.start(work)
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _seal(self, attempt: Attempt, note: Note, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await before
        if attempt.seal is not None:
            note = replace(note, value=await attempt.seal(note.value))
        self._on_note(attempt, _message(note))


def _message(note: Note) -> TaskMessage:
    return TaskMessage("late", note.idx, note.doing, note.attempt, note=note)  # type: ignore[arg-type]  # a Doing
