"""Slots of a process's agents that its Scheduler sets aside for requests that it is about to commit.

Once they are committed, the requests are handed over in memory.

::

    free ── take, set_aside ──► set aside ── run ──► running: the agent's own from here on
     ▲                              │
     └──────── given back ──────────┘   on every way out of the reservation

A reservation gives back what was set aside or promised and did not run, the slots of lost Decisions included.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from makegood.base.ids import address
from makegood.model.messages import REPLIES, Request, TaskMessage


class SlotPool(Protocol):
    """The agents of a process, as far as a Scheduler beside them hands requests over in memory."""

    def reserve(self) -> "Reservation":
        """Return a reservation that has no slots yet."""
        ...

    def knows(self, address: str, action: str) -> bool:
        """Return whether this process runs that action."""
        ...

    def lend(self, address: str, action: str) -> bool:
        """Set a slot aside for an action that this process runs, if one may be had now."""
        ...

    def lend_all(self) -> dict[str, int]:
        """Set aside all slots that may be had now; returns how many, by agent address."""
        ...

    def give_back(self, lent: Mapping[str, int]) -> None:
        """Take back slots that were set aside and not used."""
        ...

    def hand(self, request: Request, began: float) -> None:
        """Begin a request in a slot that was set aside. ``began``: local clock before its row was written."""
        ...

    def backlogged(self, address: str) -> None:
        """Note that a request for this agent went to the store."""
        ...

    def tasks(self) -> set[int]:
        """Return the tasks of which an attempt runs in this process."""
        ...

    def resend(self, node: int, task: int, message: TaskMessage) -> None:
        """Send through the store a reply that could not be used in memory."""
        ...


class Reservation:
    """The slots set aside for one commit: ``with pool.reserve() as slots: ...``."""

    __slots__ = ("_aside", "_asked", "_began", "_pool", "_ran", "_spare")

    def __init__(self, pool: SlotPool, began: float) -> None:
        self._pool = pool
        self._began = began  # local clock, before any row of the commit is written
        self._asked: list[Request] = []  # promised slots that the pool lent one by one
        self._aside: Mapping[str, int] | None = None  # slots that the pool lent all together, by address
        self._spare: dict[str, int] = {}  # of these, not promised to any request
        self._ran: list[Request] = []

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what does not run."""
        if self._aside is None and len(self._ran) == len(self._asked):
            return  # nearly always
        left = Counter(self._aside)
        left.update(map(_address, self._asked))
        left.subtract(map(_address, self._ran))
        self._asked, self._aside, self._ran = [], None, []
        self._pool.give_back(+left)

    def take(self, requests: Sequence[Request]) -> list[Request]:
        """Promise slots to requests that are about to be written; returns those that have one."""
        found: list[Request] = []
        if self._aside is None:
            lend = self._pool.lend
            for request in requests:
                if not request.isolate and lend(address(request.app, request.agent), request.action):
                    found.append(request)  # noqa: PERF401 - for one request, which is usual, this is quicker
            self._asked += found
            return found
        for request in requests:
            where = address(request.app, request.agent)
            if not request.isolate and self._spare.get(where) and self._pool.knows(where, request.action):
                self._spare[where] -= 1
                found.append(request)
        return found

    def set_aside(self) -> None:
        """Set aside all slots there are: ``take`` asks nobody then, so another thread may call it."""
        self._aside = self._pool.lend_all()
        self._spare = dict(self._aside)

    def rollback(self) -> None:
        """Promise nothing of what was promised since ``set_aside``: another try may promise it again."""
        self._spare = dict(self._aside or {})

    def release(self, taken: Sequence[Request]) -> None:
        """Give back, before anything is set aside, the slots of the requests that were taken last."""
        if taken:
            del self._asked[-len(taken) :]
            self._pool.give_back(Counter(map(_address, taken)))

    def run(self, requests: Sequence[Request], handed: Sequence[Request]) -> None:
        """Begin the ``requests`` that are ``handed`` over, now that all are written. The others queue."""
        hand, began = self._pool.hand, self._began
        for request in handed:
            self._ran.append(request)
            hand(request, began)
        if len(handed) < len(requests):
            here = set(map(id, handed))
            for request in requests:
                if id(request) not in here:
                    self._pool.backlogged(_address(request))


def _address(request: Request) -> str:
    return address(request.app, request.agent)


class NoAgents:
    """The pool of a process that runs no agents: it never has a slot."""

    def reserve(self) -> Reservation:
        """Return a reservation that stays empty."""
        return Reservation(self, 0.0)

    def knows(self, address: str, action: str) -> bool:  # noqa: ARG002 - as every pool
        """Return False."""
        return False

    def lend(self, address: str, action: str) -> bool:  # noqa: ARG002 - as every pool
        """Return False."""
        return False

    def lend_all(self) -> dict[str, int]:
        """Return nothing."""
        return {}

    def give_back(self, lent: Mapping[str, int]) -> None:
        """Take nothing: nothing was lent."""

    def hand(self, request: Request, began: float) -> None:
        """Begin nothing: no slot was taken."""

    def backlogged(self, address: str) -> None:
        """Do nothing: nobody here waits behind it."""

    def tasks(self) -> set[int]:
        """Return none."""
        return set()

    def resend(self, node: int, task: int, message: TaskMessage) -> None:
        """Do nothing: no reply came in memory."""


def in_memory(message: TaskMessage) -> bool:
    """Return whether a message is a reply that came in memory."""
    return message.seq == 0 and message.kind in REPLIES


def resend(pool: SlotPool, node: int, taken: Mapping[int, Sequence[TaskMessage]]) -> None:
    """Leave replies from memory in the store, for the task's next owner, or to be recorded as late."""
    for task, messages in taken.items():
        for message in filter(in_memory, messages):
            pool.resend(node, task, message)
