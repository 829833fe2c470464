"""Records of lanes, as people see them."""

from typing import Final

import msgspec

from makegood.model.states import TaskState

NAMED: Final = 10
"""Tasks of a lane that are named, those that hold it and those that wait."""
COUNTED: Final = 1000
"""Tasks of a lane that are counted; if there are more, one more is."""


class LanePlace(msgspec.Struct, frozen=True):
    """A task that holds a lane, or waits for it."""

    task: int
    workflow: str
    key: str | None
    state: TaskState
    at_once: int
    """How many tasks may hold the lane for this one to go."""
    since: float
    """When it was submitted."""


class LaneView(msgspec.Struct, frozen=True):
    """A lane that tasks hold or wait for."""

    app: str
    name: str
    held: int = 0
    """How many tasks hold it, counted up to ``COUNTED``; if there are more, it is one more."""
    waiting: int = 0
    """How many wait for it, counted likewise."""
    holders: tuple[LanePlace, ...] = ()
    """The first ``NAMED`` tasks that hold it."""
    waiters: tuple[LanePlace, ...] = ()
    """The first ``NAMED`` tasks that wait for it, in the order in which they will go."""


class TaskLane(msgspec.Struct, frozen=True):
    """The place of a task in one of its lanes."""

    task: int
    app: str
    name: str
    place: str
    """"waiting", "held", or "out": it has ended, or its lanes were released."""
    at_once: int
    before: int = 0
    """Of a waiting task: how many wait before it, counted up to ``COUNTED``."""
    behind: int = 0
    """Of one that holds the lane: how many wait for it."""
    held_by: tuple[int, ...] = ()
    """The first ``NAMED`` tasks that hold the lane."""

    @property
    def blocks(self) -> bool:
        """Whether the task waits because of this lane."""
        return self.place == "waiting" and len(self.held_by) + self.before >= self.at_once
