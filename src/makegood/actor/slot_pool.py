"""Slots of a process's agents that its Scheduler sets aside for requests that it is about to commit.

Once they are committed, the requests are handed over in memory.

::

    free ── take, set_aside ──► set aside ── run ──► running: the agent's own from here on
     ▲                              │
     └──────── given back ──────────┘   on every way out of the reservation

A reservation gives back what was set aside or promised and did not run, the slots of lost Decisions included.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol, Self

from makegood.base.ids import address
from makegood.model.decision import Decision
from makegood.model.messages import REPLIES, Request, TaskMessage


class SlotPool(Protocol):
    """The agents of a process, as far as a Scheduler beside them hands requests over in memory."""

    def reserve(self, now: float) -> "Reservation":
        """Return a reservation that has no slots yet. ``now``: on the store's clock."""

    @property
    def actions(self) -> Mapping[str, Container[str]]:
        """The actions that this process runs, by agent address."""

    def lend(self, address: str, action: str) -> bool:
        """Set a slot aside for an action that this process runs, if one may be had now."""

    def lend_all(self) -> dict[str, int]:
        """Set aside all slots that may be had now; returns how many, by agent address."""

    async def catch_up(self) -> None:
        """Wait, for no more than a second, until agents with free slots have looked at what waits for them
        in the store: before that, they lend none.
        """

    def give_back(self, slots: Mapping[str, int]) -> None:
        """Take back slots that were set aside and not used."""

    def hand(self, requests: Sequence[Request], began: float, handed_at: float) -> None:
        """Begin requests in slots that were set aside. ``began``: local clock before their rows were written;
        ``handed_at``: that moment on the store's clock, as the rows have it.
        """

    def note_backlog(self, address: str) -> None:
        """Note that a request for this agent went to the store."""

    def tasks(self) -> set[int]:
        """Return the tasks of which an attempt runs in this process."""

    def resend(self, node: int, task: int, message: TaskMessage) -> None:
        """Send through the store a reply that could not be used in memory."""


class Reservation:
    """The slots set aside for one commit: ``with pool.reserve() as slots: ...``."""

    __slots__ = ("_before", "_began", "_pool", "_promises", "_ran", "_spare", "now")

    def __init__(self, pool: SlotPool, began: float, now: float) -> None:
        self.now = now
        """The store's clock at that moment: the ``handed_at`` of its Decisions."""
        self._pool = pool
        self._began = began  # local clock, before any row of the commit is written
        self._promises: list[Request] = []  # those to which a slot is promised
        self._ran: list[Request] = []  # of these, those that have begun
        self._spare: dict[str, int] = {}  # slots that are set aside and not promised, by address
        self._before: tuple[int, Mapping[str, int]] = 0, {}  # len(_asked) and _spare at ``set_aside``

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give back what does not run."""
        if len(self._ran) == len(self._promises) and not any(self._spare.values()):
            return  # nearly always
        left = Counter(self._spare)
        left.update(map(_address, self._promises))
        left.subtract(map(_address, self._ran))
        self._promises, self._spare, self._ran = [], {}, []
        self._pool.give_back(+left)

    def take(self, requests: Sequence[Request]) -> list[Request]:
        """Promise slots to requests that are about to be written; returns those that have one."""
        lend = self._pool.lend
        accepted_requests = [r for r in requests if not r.isolate and lend(address(r.app, r.agent), r.action)]
        self._promises += accepted_requests
        return accepted_requests

    def set_aside(self) -> None:
        """Set aside all slots there are: ``place`` asks nobody then, so another thread may call it."""
        self._spare = self._pool.lend_all()
        self._before = len(self._promises), dict(self._spare)

    def place(self, decisions: Iterable[Decision]) -> None:
        """Promise slots that are set aside to the requests of Decisions, as far as they go."""
        spare, actions, now, promises = self._spare, self._pool.actions, self.now, self._promises
        for decision in decisions:
            if not (requests := decision.requests):
                continue
            handovers = []
            for request in requests:
                where = address(request.app, request.agent)
                if (left := spare.get(where)) and request.action in actions[where] and not request.isolate:
                    spare[where] = left - 1
                    handovers.append(request)
            decision.handovers, decision.handed_at = handovers, now
            promises += handovers

    def rollback(self) -> None:
        """Promise nothing of what was promised since ``set_aside``: another try may promise it again."""
        requests, spare = self._before
        del self._promises[requests:]
        self._spare = dict(spare)

    def give_back_spare(self) -> None:
        """Give back what is set aside and not promised: tasks that are submitted meanwhile may want it."""
        slots, self._spare = self._spare, {}
        self._pool.give_back(slots)

    def release(self, requests: Sequence[Request]) -> None:
        """Give back, before anything is set aside, the slots of the requests that were taken last."""
        if requests:
            del self._promises[-len(requests) :]
            self._pool.give_back(Counter(map(_address, requests)))

    def run(self, decisions: Sequence[Decision]) -> None:
        """Begin the requests that Decisions hand over, now that they are committed. The others queue."""
        handovers = [request for decision in decisions for request in decision.handovers]
        self._ran += handovers
        self._pool.hand(handovers, self._began, self.now)
        if len(handovers) == sum([len(decision.requests) for decision in decisions]):
            return  # nearly always
        here = set(map(id, handovers))
        for decision in decisions:
            for request in decision.requests:
                if id(request) not in here:
                    self._pool.note_backlog(_address(request))


def _address(request: Request) -> str:
    return address(request.app, request.agent)


class NoAgents:
    """The pool of a process that runs no agents: it never has a slot."""

    def reserve(self, now: float) -> Reservation:
        """Return a reservation that stays empty."""
        return Reservation(self, 0.0, now)

    @property
    def actions(self) -> Mapping[str, Container[str]]:
        """None."""
        return {}

    def lend(self, address: str, action: str) -> bool:  # noqa: ARG002 - as every pool
        """Return False."""
        return False

    def lend_all(self) -> dict[str, int]:
        """Return nothing."""
        return {}

    async def catch_up(self) -> None:
        """Wait for nobody."""

    def give_back(self, slots: Mapping[str, int]) -> None:
        """Take nothing: nothing was lent."""

    def hand(self, requests: Sequence[Request], began: float, handed_at: float) -> None:
        """Begin nothing: no slot was taken."""

    def note_backlog(self, address: str) -> None:
        """Do nothing: nobody here waits behind it."""

    def tasks(self) -> set[int]:
        """Return none."""
        return set()

    def resend(self, node: int, task: int, message: TaskMessage) -> None:
        """Do nothing: no reply came in memory."""


def in_memory(message: TaskMessage) -> bool:
    """Return whether a message is a reply or a note that came in memory."""
    return message.seq == 0 and (message.kind in REPLIES or message.note is not None)


def resend(pool: SlotPool, node: int, inbox: Mapping[int, Sequence[TaskMessage]]) -> None:
    """Leave replies and notes from memory in the store: the next owner takes them, or they are late."""
    for task, messages in inbox.items():
        for message in filter(in_memory, messages):
            pool.resend(node, task, message)
