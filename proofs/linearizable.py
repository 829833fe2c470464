"""Does *some* order of their calls explain the answers of concurrent callers about one task?

For one task the store is a small register: *claim* gives it to a caller under the next epoch, *complete* ends
it if the caller still holds it under that epoch, *requeue* takes it from its holder (under an epoch, if one
is named). A record of calls, with the times at which they began and returned, is *linearizable* if the calls
can be put in an order that respects real time (a call that returned before another began comes before it) and
in which a single-threaded register gives every caller exactly the answer it got. A call whose answer was lost
may have happened at any time after it began, or never.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

Call = Literal["claim", "complete", "requeue"]


class Register(NamedTuple):
    """The state of one task: the epoch of its last claim, its holder (None: nobody), and whether it has
    ended.
    """

    epoch: int = 0
    holder: str | None = None
    ended: bool = False


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call."""

    call: Call
    who: str
    began: float
    returned: float | None
    """When it returned; None: its answer was lost."""
    answer: int | bool | None = None
    """Of a claim the epoch, 0 for none; of the others whether they took effect."""
    epoch: int = 0
    """The epoch under which it completes or requeues; 0 for a requeue under any epoch."""

    @property
    def until(self) -> float:
        """Return the latest moment at which it may have happened."""
        return math.inf if self.returned is None else self.returned


def step(state: Register, operation: RecordedCall) -> tuple[Register, int | bool]:
    """Return the register after a call, and its answer.

    >>> step(Register(), RecordedCall("claim", "a", began=0, returned=1))
    (Register(epoch=1, holder='a', ended=False), 1)
    """
    if operation.call == "claim":
        if state.holder is not None or state.ended:
            return state, 0
        return Register(state.epoch + 1, operation.who), state.epoch + 1
    any_epoch = operation.call == "requeue" and not operation.epoch
    if state.holder is None or (state.epoch != operation.epoch and not any_epoch):
        return state, False
    if operation.call == "requeue":
        return Register(state.epoch), True
    if state.holder != operation.who:
        return state, False
    return Register(state.epoch, None, ended=True), True


def linearizable(operations: Sequence[RecordedCall], *, skipping: bool = False) -> list[RecordedCall] | None:
    """Return an order that explains every answer; None if there is none.

    ``skipping``: the store skips a row that another call is just writing (``SKIP LOCKED``), so a claim or
    requeue that found nothing is not evidence while another call overlaps it. Every effect, and every answer
    to *complete*, must still be explained.

    The search is depth first. It remembers which calls were used and the register's state after them, so a
    short history (some dozens of calls) is quick. Calls whose answer was lost may be left out.
    """
    relevant = [one for one in operations if not (skipping and _says_nothing(one, operations))]
    calls = sorted(relevant, key=lambda one: one.began)
    dead: set[tuple[int, Register]] = set()
    certain = sum(1 << n for n, one in enumerate(calls) if one.returned is not None)

    def search(mask: int, state: Register, order: list[RecordedCall]) -> bool:
        if mask & certain == certain:
            return True
        if (mask, state) in dead:
            return False
        soonest = min(one.until for n, one in enumerate(calls) if not mask >> n & 1)
        for n, one in enumerate(calls):
            if mask >> n & 1 or one.began > soonest:
                continue
            after, answer = step(state, one)
            if one.returned is not None and answer != one.answer:
                continue
            order.append(one)
            if search(mask | 1 << n, after, order):
                return True
            order.pop()
        dead.add((mask, state))
        return False

    history: list[RecordedCall] = []
    return history if search(0, Register(), history) else None


def _says_nothing(one: RecordedCall, others: Sequence[RecordedCall]) -> bool:
    if one.call == "complete" or one.answer or one.returned is None:
        return False
    return any(other is not one and other.began <= one.until and one.began <= other.until for other in others)
