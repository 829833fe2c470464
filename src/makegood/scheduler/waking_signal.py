"""Eager signals to tasks that sleep: the commit that claims the task writes the signal, too.

Nobody knows whether a task sleeps that is not held here, and what it waits for, before it was read. So the
claim reads it although no message waits for it, and decides then::

    send ─► next claim reads the task ─┬─ it waits for the signal ─► claimed, decided, committed ─► the answer
                                       └─ otherwise: not claimed ─────────────────────────────────► sent as
                                                                                       all others are

The fences are those of the claim, which nobody else has made since the read, and of an eager signal. Whatever
fails, the sender sends the signal through the store, under the same id.

There is one such signal at a time, and only while the Scheduler has nothing else to claim: many signals share
the commits of the store, and then those of the claims.
"""

import asyncio
from dataclasses import dataclass

import msgspec

from makegood import saga
from makegood.base.ids import show
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask, NewSignal
from makegood.scheduler.claims import Claims
from makegood.store.records import Claim, Committed, Loaded
from makegood.store.signals import MOST_BACKLOG, OutgoingSignal, Signalled, whole_for


@dataclass(slots=True)
class _Draft:
    task: int
    signal: OutgoingSignal
    answer: asyncio.Future[bool]
    """Whether it was written."""
    is_decided: bool = False
    """Whether the latest Decision on its task writes it."""


class WakingSignal:
    """The signal that wakes a task, if there is one."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self.draft: _Draft | None = None
        """The one whose sender waits."""

    async def send(self, task: int, signal: OutgoingSignal) -> Signalled | None:
        """Send a signal to a task that is not held here; None: it is to be sent through the store."""
        if self.draft is not None or not self._claims.is_idle:
            return None
        self.draft = draft = _Draft(task, signal, asyncio.get_running_loop().create_future())
        self._claims.call([task])
        self._claims.tasks.wakeups.wake()
        return Signalled(signal.id, created=True, task=show(task)) if await draft.answer else None

    def expand(self, claim: Claim | None) -> Claim | None:
        """Return the next claim, which may claim the task without a message; without one the sender is
        answered.
        """
        draft = self.draft
        if draft is None or claim is None or draft.task not in claim.at_rest:
            self.leave()
            return claim
        # A look for tasks that are due comes at any time, and can wait for a commit. It comes before the next
        # such signal.
        return msgspec.structs.replace(self._claims.postpone_pending(claim), eager=draft.task)

    def message(self, task: Loaded, held_task: HeldTask) -> TaskMessage | None:
        """Return the signal's message for its task, which was read; None: the task does not wait for that, or
        something else is to be decided first.
        """
        draft = self.draft
        if draft is None or task.sleeps or any(wait <= 0 for wait in task.due.values()):
            return None
        whole = whole_signal(held_task, draft.signal)
        if whole is None:
            return None
        draft.signal = whole
        return whole.task_message

    def join(self, decision: Decision, *, is_used: bool) -> None:
        """Have a Decision on the task write the signal if it uses it."""
        if self.draft is not None:
            self.draft.is_decided = is_used
            if is_used:
                decision.new_signal = new_signal(self.draft.signal)

    def settle(self, claim: Claim | None, outcome: Committed) -> set[int]:
        """Answer the sender after the commit of the claim; return the task if its Decision was lost."""
        draft = self.draft
        if draft is None or claim is None or claim.eager is None:
            return set()
        is_claimed = any(held_task.task.id == draft.task for held_task, _ in outcome.claims)
        self._answer(is_written=draft.is_decided and is_claimed)
        return {draft.task} & outcome.losses

    def leave(self) -> None:
        """Leave the signal to its sender."""
        self._answer(is_written=False)

    def _answer(self, *, is_written: bool) -> None:
        draft, self.draft = self.draft, None
        if draft is not None and not draft.answer.done():  # else the sender has gone
            draft.answer.set_result(is_written)


def new_signal(signal: OutgoingSignal) -> NewSignal:
    """Return a signal as a Decision writes it."""
    return NewSignal(signal.name, signal.id, signal.step, signal.digest)


def whole_signal(held_task: HeldTask, signal: OutgoingSignal) -> OutgoingSignal | None:
    """Return a signal in its final form if a task waits for it now."""
    if held_task.task.goal != "forward" or len(held_task.signals) >= MOST_BACKLOG:
        return None
    if not saga.is_awaited(held_task, signal.name, signal.step):
        return None
    return whole_for(signal, dict(held_task.task.signals))
