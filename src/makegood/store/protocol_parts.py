"""Parts of ``store.protocol``: signals, and lists of lanes."""

from collections.abc import Sequence
from typing import Protocol

from makegood.model.lane import LaneState
from makegood.model.messages import Act
from makegood.store.lane_views import LaneView, TaskLane
from makegood.store.signals import OutgoingSignal, Signalled
from makegood.transactions import Caller


class Signalling(Protocol):
    """Signals to tasks. A sender locks no task: it only inserts."""

    async def signal(self, signal: OutgoingSignal, act: Act | None = None) -> Signalled:
        """Send a signal in one commit; ``act``: an operator's, which is audited.

        If the task knows a signal of this name and id, it keeps what it has: ``created=False``, whatever
        became of the task meanwhile. Raises ``TaskNotFoundError``, and ``SignalRefused`` when the task has
        ended or is being undone, no step of it waits for this name, or ``signals.MOST_BACKLOG`` signals are
        unused: then nothing was sent. Concurrent sends may not see each other, and all be accepted.
        """

    async def join_signal(self, caller: Caller, signal: OutgoingSignal) -> Signalled:
        """Send a signal in the caller's open transaction, using only ``caller``.

        Returns and raises as ``signal``, and raises what ``join`` raises. Its own errors leave the
        transaction as it was.
        """


class LaneLists(Protocol):
    """Who holds lanes, and who waits. Claims and Decisions change that: see ``Tasks.commit``."""

    async def lanes(
        self,
        app: str | None = None,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] = ("", ""),
    ) -> list[LaneView]:
        """Return at most ``limit`` lanes that tasks hold or wait for, by app and name, those behind
        ``after``, which is an app and a name. ``app``, ``name``: only those.
        """
        ...

    async def places(self, tasks: Sequence[int], most: int = ...) -> dict[int, list[TaskLane]]:
        """Return the places of tasks in their lanes, by task; of others, ``most`` and one more are counted
        at most.
        """
        ...

    async def lanes_of(self, task: int) -> dict[str, LaneState]:
        """Return the lanes of a task, each with the state of its place: waiting, held or out."""
        ...

    async def obstacle(self, app: str, names: Sequence[str], at_once: int) -> tuple[int, str] | None:
        """Return a task that has one of these lanes, or waits for it, and the lane, if a task that comes now
        may not go. It locks nothing: the claim decides.
        """
