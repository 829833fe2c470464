"""The records of oversight: what people look back on, and acts on many tasks."""

from hashlib import blake2b
from typing import Literal

import msgspec

from makegood.store.views import Filter

BulkKind = Literal["cancel", "undo", "resubmit", "signal"]
"""What an act on many tasks does with each."""

BulkState = Literal["running", "stopping", "stopped", "done"]
"""``stopping``: it sends nothing more, and some of its commands are undecided."""

RefusalKind = Literal["decision", "term", "reply"]
"""Whose write a fence refused: of a Scheduler that lost a task, of a former leader, of an agent that was
late.
"""

SupervisorDecisionKind = Literal["judged", "freed", "deaf", "turned"]
"""``judged``: silent attempts. ``freed``: tasks of a dead Scheduler; ``deaf``: of one that did not react.
``turned``: tasks whose deadline passed."""

BUCKETS = 40
"""Buckets of latencies. Bucket n ends at ``bucket_end(n)`` seconds."""


def bucket_end(n: int) -> float:
    """Return the upper end of a bucket of latencies in seconds: 1 ms, then a factor of the fourth root of 10.

    >>> bucket_end(0), round(bucket_end(12), 3)
    (0.001, 1.0)
    """
    return float(0.001 * 10.0 ** (n / 4))


class ErrorGroup(msgspec.Struct, frozen=True):
    """Failed attempts with the same agent, action, message and line of the user's code."""

    agent: str
    """The address, "APP/AGENT"."""
    action: str
    doing: str
    """do, probe or undo."""
    message: str
    """The message without what differs: numbers, ids and quoted values are replaced."""
    frame: str
    """The innermost line of the user's own code, such as "orders.py:42 in charge"; "" if unknown."""
    attempts: int
    tasks: int
    first: float
    last: float
    sample: str
    """The latest message, as it was."""
    ids: tuple[int, ...] = ()
    """Its tasks, those that it blocks first, then those in error, then newest first, at most 100."""
    states: dict[str, int] = {}
    """How many of its tasks are in each state now."""
    times: tuple[float, ...] = ()
    """When attempts failed, newest first, at most 200."""
    retried: int = 0
    """In how many of its tasks makegood tries again; what was refused for good is not tried again."""
    traceback: str = ""
    """The end of the latest traceback, "" if none was kept."""
    blocking: int = 0
    """How many tasks are in error because of it; others in error may have had it before."""

    @property
    def name(self) -> str:
        """A short name that stays the same, for addresses of pages."""
        what = f"{self.agent}\0{self.action}\0{self.doing}\0{self.message}\0{self.frame}"
        return blake2b(what.encode(), digest_size=6).hexdigest()


class ErrorGroups(msgspec.Struct, frozen=True):
    """The groups, the latest first."""

    groups: list[ErrorGroup]
    read: int
    """Tasks that were read."""
    capped: bool
    """Whether there may be more tasks or failures than were read."""


class Refusal(msgspec.Struct, frozen=True):
    """A write that a fence refused."""

    kind: RefusalKind
    what: str
    """What was refused, a sentence."""
    who: str = ""
    """The process that wrote; if "", it is looked up by ``node``."""
    node: int | None = None
    task: int | None = None
    step: str = ""
    attempt: int | None = None
    epoch: int | None = None
    """The epoch under which it wrote."""
    against: int | None = None
    """The epoch that holds; of a task, it is looked up when the refusal is written."""
    id: int = 0
    at: float = 0.0


class SupervisorDecision(msgspec.Struct, frozen=True):
    """What the leading Supervisor did to tasks in one pass, of one kind."""

    kind: SupervisorDecisionKind
    tasks: int
    """To how many; of "judged": how many attempts."""
    task: int
    """One of them."""
    epoch: int
    """The term it led in."""
    id: int = 0
    at: float = 0.0


class MinuteFigures(msgspec.Struct, frozen=True):
    """What happened in one minute."""

    minute: float
    """When it began."""
    seen: float
    """Seconds of it that a leading Supervisor observed."""
    submitted: int
    processed: int
    undone: int
    errors: int
    steps: int
    """Answers of agents that Schedulers used."""
    p50: float | None
    """Half of its tasks ended within so many seconds of their submission, by a sample; None: none ended."""
    p95: float | None
    """95 of 100 did."""


class BulkView(msgspec.Struct, frozen=True):
    """An act on all tasks that match, as people see it."""

    id: str
    kind: BulkKind
    wanted: Filter
    who: str
    why: str
    counted: int
    """Tasks that matched when it was requested, ``limit`` at most."""
    limit: int | None
    """The most tasks."""
    rate: float | None
    """The most commands a second."""
    state: BulkState
    at: float
    ended: float | None
    sent: int
    """Commands that were sent."""
    applied: int
    noop: int
    refused: int
    stopped_by: str
    more: bool = False
    """Whether more tasks may match than ``counted``: a count looks at a limited number of tasks."""
    signal: str = ""
    """With ``signal``: its name."""

    @property
    def waiting(self) -> int:
        """How many of its commands are undecided."""
        return max(0, self.sent - self.applied - self.noop - self.refused)

    @property
    def progress(self) -> float:
        """How much of it is done, 0 to 1."""
        if self.state == "done":
            return 1.0
        return min(1.0, (self.sent - self.waiting) / self.counted) if self.counted else 0.0


class BulkRefusal(msgspec.Struct, frozen=True):
    """A task that refused a command of an act on many."""

    task: int
    outcome: str
    at: float
