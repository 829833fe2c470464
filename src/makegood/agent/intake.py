"""Whether a process takes requests now: shared by what takes them, what runs them and what lends slots.

::

    open ◄────► alone
      │           │
      └───────────┴────► closed

*alone*: an isolated request runs beside a Scheduler, and nothing else begins until it has ended. *closed*:
the process drains, and nothing more begins.
"""

import asyncio
from typing import Literal

from makegood.agent.slots import Slots
from makegood.model.messages import Request


class Intake:
    """What a process takes. ``beside_scheduler``: a Scheduler runs in it; isolated requests run alone."""

    def __init__(self, *, beside_scheduler: bool) -> None:
        self.mode: Literal["open", "alone", "closed"] = "open"
        self.beside_scheduler = beside_scheduler
        self.taking = False
        """Whether the store is being asked for requests now: the slots that it may fill are set aside."""
        self.wake = asyncio.Event()
        """Set when the store may have something for a free slot."""
        self.end_of_look = asyncio.Event()
        """Set once the store has been asked for requests, or could not be; a claim that waits clears it."""
        self.end_of_look.set()

    @property
    def open(self) -> bool:
        """Whether requests may be taken, and slots lent."""
        return self.mode == "open"

    def close(self) -> None:
        """Take nothing more."""
        self.mode = "closed"

    def begins(self, request: Request) -> None:
        """Note that a request from the store is about to begin."""
        if self.open and self.beside_scheduler and request.isolate:
            self.mode = "alone"

    def idle(self) -> None:
        """Note that nothing runs any more."""
        if self.mode == "alone":
            self.mode = "open"

    def look(self, slots: Slots) -> None:
        """Look for requests of this agent, whose free slots may be filled or not."""
        slots.needs_look = True
        self.wake.set()

    def note_free_slot(self, slots: Slots) -> None:
        """Look at the store again if something may wait there for this agent, which has a free slot."""
        if slots.backlog or slots.needs_look:
            self.wake.set()
