"""What an operator of a world does: acts that run in its process, one beside the other."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from makegood.testing.simulator.loop import WorldLoop
from makegood.testing.simulator.members import FleetMember


class Place(Protocol):
    """The parts of a world that acts need."""

    loop: WorldLoop
    members: dict[str, FleetMember]


class Acts:
    """Acts under way in the operator's process. ``subject``: what each is called in a finding."""

    def __init__(self, world: Place, subject: str) -> None:
        self._place = world
        self._subject = subject
        self._count = 0
        self.findings: list[str] = []

    @property
    def idle(self) -> bool:
        """Whether no act is under way."""
        return self._count == 0

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._count += 1
        context = self._place.members["operator"].process.context.copy()
        task = self._place.loop.create_task(work, context=context)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._count -= 1
        if not task.cancelled() and task.exception() is not None:
            self.findings.append(f"{self._subject} ended with {task.exception()!r}")
