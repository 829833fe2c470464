"""Eager signals: a signal to a task that a Scheduler of the sender's process holds is written by the very
Decision that uses it. (One to a task that sleeps as well: see ``WakingSignal``.)

Its message waits in memory, like a reply. The commit of the next turn inserts the signal's row as it is once
it was used, and its sender has the answer when that is done::

    send ─► waits in memory ─► decided ─► committed ─┬─ written ───► the sender's answer
                                                     └─ otherwise ─► sent as all others are

Only a task that waits for the signal now takes it. The commit is refused if the task knows the signal's id,
or if its inbox has a message, which came first. Whatever happens to the message before the commit, its sender
sends the signal through the store then, under the same id: so it is neither lost nor used twice.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from makegood.base.ids import show
from makegood.errors import ConfigError
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask, NewSignal
from makegood.scheduler.claims import Claims
from makegood.scheduler.waking_signal import WakingSignal, new_signal, whole_signal
from makegood.store.records import Batch, Claim, Committed
from makegood.store.signals import OutgoingSignal, Signalled

Inbox = Mapping[int, Sequence[TaskMessage]]

log = logging.getLogger("makegood.scheduler")


class _Draft(msgspec.Struct):
    signal: NewSignal
    message: TaskMessage
    answer: asyncio.Future[bool]
    """Whether it was written."""
    is_decided: bool = False
    """Whether a commit under way contains it."""


class EagerSignals:
    """Signals that the commits of one Scheduler write, at most one for each task at a time."""

    def __init__(self, claims: Claims) -> None:
        self._tasks = claims.tasks
        self.waking = WakingSignal(claims)
        """The one to a task that sleeps."""
        self.drafts: dict[int, _Draft] = {}
        """Those whose senders wait, by task: nearly always none, which costs a turn nothing."""
        self.is_open = False
        """Whether it takes signals."""

    def open(self) -> None:
        """Take signals from now on."""
        self.is_open = True

    def close(self) -> None:
        """Take no more signals, and leave all to their senders: the last turn has ended."""
        self.is_open = False
        for task in [*self.drafts]:
            self._answer(task, is_written=False)
        self.waking.leave()

    async def send(self, signal: OutgoingSignal, writing: Iterable[Collection[int]]) -> Signalled | None:
        """Send a signal with the next commit; None: it is to be sent through the store.

        ``writing``: the tasks of the commits under way.
        """
        task = signal.to
        if not isinstance(task, int) or not self.is_open or any(task in tasks for tasks in writing):
            return None
        if task not in self._tasks.in_memory:
            return await self.waking.send(task, signal)
        whole = self._whole(task, signal)
        if whole is None:
            return None
        message = whole.task_message
        if not self._tasks.deliver(task, message, self._tasks.node):
            return None
        draft = _Draft(new_signal(whole), message, asyncio.get_running_loop().create_future())
        self.drafts[task] = draft
        return Signalled(signal.id, created=True, task=show(task)) if await draft.answer else None

    def _whole(self, task: int, signal: OutgoingSignal) -> OutgoingSignal | None:
        """Return a signal in its final form if its task waits for it, and for nothing that came before."""
        tasks = self._tasks
        held_task = tasks.in_memory.get(task)
        if held_task is None or task in tasks.messages or task in tasks.reload or task in self.drafts:
            return None
        return whole_signal(held_task, signal) if held_task.task.state == "processing" else None

    # -- what becomes of them --------------------------------------------------------------------------------

    def join(self, inbox: Inbox, decisions: Iterable[tuple[HeldTask, Decision]]) -> None:
        """Have the Decisions on messages write the signals among these."""
        for _, decision in decisions:
            draft = self.drafts.get(decision.task.id)
            if draft is not None and _has(inbox, decision.task.id, draft.message):
                decision.new_signal, draft.is_decided = draft.signal, True

    def settle(self, inbox: Collection[int], claim: Claim | None, outcome: Committed) -> set[int]:
        """Answer the senders after a commit; return the tasks whose signals it did not write."""
        not_written = outcome.losses | {task for task, _ in outcome.rejections}
        tasks = {task for task, draft in self.drafts.items() if draft.is_decided and task in inbox}
        for task in tasks:
            self._answer(task, is_written=task not in not_written)
        return tasks & not_written | self.waking.settle(claim, outcome)

    def leave_failed(self, inbox: dict[int, list[TaskMessage]], batch: Batch, fault: Exception) -> bool:
        """Leave the signals of a commit that failed to their senders; return whether it failed for lack of
        the right to write signals. Then no more are taken.
        """
        tasks = [task for task, draft in self.drafts.items() if draft.is_decided and task in inbox]
        for task in tasks:
            _remove(self._answer(task, is_written=False), inbox, task)
        self._tasks.mistrust(tasks)  # they may have been written after all
        self.waking.leave()
        has_waking = batch.claim is not None and batch.claim.eager is not None
        if not (tasks or has_waking) or not isinstance(fault, ConfigError):
            return False
        self.is_open = False
        log.info("the store sends all signals, as this role may not write them with a Decision: %s", fault)
        return True

    def leave(self, under_way: Iterable[Inbox], *, waiting: bool = False) -> None:
        """Leave to their senders the signals whose messages were dropped, and with ``waiting`` those that no
        turn has taken. ``under_way``: what turns have taken.
        """
        turns = [*under_way]
        if waiting:
            self.waking.leave()
        for task, draft in [*self.drafts.items()]:
            if draft.is_decided or any(_has(turn, task, draft.message) for turn in turns):
                continue
            if waiting:
                _remove(draft.message, self._tasks.messages, task)
            if not _has(self._tasks.messages, task, draft.message):
                self._answer(task, is_written=False)

    def _answer(self, task: int, *, is_written: bool) -> TaskMessage:
        draft = self.drafts.pop(task)
        if not draft.answer.done():  # else the sender has gone
            draft.answer.set_result(is_written)
        return draft.message


def _has(inbox: Inbox, task: int, message: TaskMessage) -> bool:
    return any(each is message for each in inbox.get(task, ()))


def _remove(message: TaskMessage, inbox: dict[int, list[TaskMessage]], task: int) -> None:
    left = [each for each in inbox.pop(task, ()) if each is not message]
    if left:
        inbox[task] = left
