"""Eager submission: a task that is submitted in its Scheduler's own process is created already locked by it.

Such a task never waits to be claimed. Its first Decision is made before the task is written; if that only
dispatches first steps, then task, steps, first requests and history are one commit, and the requests are
handed over in memory when it is done.

Submissions of one pass of the event loop share a call of the store. An asyncio task of its own writes them:
whatever becomes of the caller, the Scheduler must hear of a task that it holds::

    submit ─► prepared, in a batch ─► written ─┬─ created ───► held; its first requests run
                                               └─ otherwise ─► forgotten; its slots go back
"""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from makegood import saga
from makegood.actor.slot_pool import Reservation, SlotPool
from makegood.base.contexts import HomeLoop
from makegood.base.ids import address
from makegood.base.sizes import MIB
from makegood.errors import MakegoodError, PayloadError
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.model.task import Step, TaskRecord
from makegood.scheduler.claims import Claims
from makegood.scheduler.task_memory import weigh_new
from makegood.store.protocol import Tasks
from makegood.store.records import Submission, Submitted

_TOGETHER, _TOGETHER_BYTES = 250, 4 * MIB
"""Tasks, and the bytes that they count, that share one call of the store."""


class _Prepared(msgspec.Struct):
    draft: Submission
    held_task: HeldTask
    answer: asyncio.Future[Submitted]


class _Batch:
    """Submissions that are written together."""

    __slots__ = ("full", "octets", "slots", "submissions")

    def __init__(self, slots: Reservation) -> None:
        self.slots = slots
        self.submissions: list[_Prepared] = []
        self.octets = 0
        self.full = False
        """Whether no more should be added."""

    def add(self, submission: _Prepared, octets: int) -> None:
        """Add a submission that counts this many bytes."""
        self.submissions.append(submission)
        self.octets += octets
        self.full = len(self.submissions) >= _TOGETHER or self.octets >= _TOGETHER_BYTES


class EagerSubmissions:
    """Submits tasks for a Scheduler to hold from the beginning."""

    def __init__(self, store: Tasks, agents: SlotPool, claims: Claims) -> None:
        self._store = store
        self._agents = agents
        self._tasks = claims.tasks
        self._claims = claims
        self._home: HomeLoop
        self._batch: _Batch | None = None
        self._writing: set[asyncio.Task[list[Submitted | Exception]]] = set()
        self._pending = 0

    def __len__(self) -> int:
        """Return how many tasks are being written."""
        return self._pending

    def open(self) -> None:
        """Note on which loop and in which context the Scheduler runs."""
        self._home = HomeLoop("this Scheduler")

    async def close(self) -> None:
        """Wait for what is being written: its callers may have gone."""
        await asyncio.gather(*self._writing, return_exceptions=True)

    def submit(self, draft: Submission) -> Awaitable[Submitted]:
        """Submit a task, as ``Tasks.submit`` does; return what awaits the outcome.

        The task is left for any Scheduler to claim when this one is full or stops, when other tasks may wait
        already, when it begins later, or has lanes.
        """
        if draft.start is not None or draft.lanes.names or not self._claims.takes(self._pending):
            return self._submit_unheld(draft)
        held_task, first = self._begin(draft)
        batch = self._batch
        if batch is None or batch.full:
            batch = self._batch = _Batch(self._agents.reserve(self._store.clock()))
            work = self._home.start(self._write(batch))
            self._writing.add(work)
            work.add_done_callback(partial(self._settle, batch), context=self._home.context)
        if first is not None and not self._place(first, batch.slots):
            first = None
        self._pending += 1
        octets = weigh_new(held_task)
        self._tasks.weights.put(draft.id, octets)
        future: asyncio.Future[Submitted] = self._home.loop.create_future()
        batch.add(_Prepared(replace(draft, holder=self._tasks.node, first=first), held_task, future), octets)
        return future

    async def _submit_unheld(self, draft: Submission) -> Submitted:
        """Submit a task for any Scheduler to claim."""
        (answer,) = await self._store.submit([draft])
        return answer

    # -- before it is written --------------------------------------------------------------------------------

    def _begin(self, draft: Submission) -> tuple[HeldTask, Decision | None]:
        """Return a task as it is to be held, and its first Decision if that can be written with it."""
        task = TaskRecord(
            draft.id, draft.app, draft.workflow, draft.key, on_failure=draft.on_failure, priority=draft.priority, epoch=1,
            within=draft.within, undo_within=draft.undo_within, inputs=draft.inputs, returns=draft.returns, trace=draft.trace,
            names=draft.names, signals=draft.signals,
        )  # fmt: skip
        if draft.reply_to is not None:
            task = replace(task, reply=draft.reply, told=draft.told, notified=draft.notified)
        try:
            held_task, first = saga.begin(task, draft.steps)
        except MakegoodError:
            # Found again, told and put to error when the task is decided as all others are.
            return saga.hold(task, map(Step, draft.steps)), None
        # What its submitter is told goes with a Decision of its own.
        return held_task, first if task.reply is None else None

    def _place(self, first: Decision, slots: Reservation) -> bool:
        """Return whether all first requests have a slot here, or all are for agents elsewhere."""
        requests = slots.take(first.requests)
        if len(requests) == len(first.requests):
            first.handovers, first.handed_at = requests, slots.now
            return True
        slots.release(requests)  # others need not wait for them until it is written
        actions = self._agents.actions
        return not any(r.action in actions.get(address(r.app, r.agent), ()) for r in first.requests)

    # -- writing ---------------------------------------------------------------------------------------------

    async def _write(self, batch: _Batch) -> list[Submitted | Exception]:
        """Submit a batch; returns what became of each."""
        if batch is self._batch:
            self._batch = None
        return await self._submit_in_parts([submission.draft for submission in batch.submissions])

    async def _submit_in_parts(self, drafts: Sequence[Submission]) -> list[Submitted | Exception]:
        try:
            return [*await self._store.submit(drafts)]
        except PayloadError as misfit:
            if len(drafts) == 1:
                return [misfit]
        except Exception as fault:  # noqa: BLE001 - it is theirs who called
            return [fault] * len(drafts)
        # only the one at fault fails
        return [answer for draft in drafts for answer in await self._submit_in_parts([draft])]

    # -- afterwards ------------------------------------------------------------------------------------------

    def _settle(self, batch: _Batch, work: asyncio.Task[list[Submitted | Exception]]) -> None:
        """Hold what was created, and answer the callers.

        A batch whose writing was cancelled has no answers.
        """
        self._writing.discard(work)
        if batch is self._batch:  # it was cancelled before it began
            self._batch = None
        answers = [None] * len(batch.submissions) if work.cancelled() else work.result()
        beginnings: list[Decision] = []
        with batch.slots as slots:
            for submission, answer in zip(batch.submissions, answers, strict=True):
                self._pending -= 1
                if isinstance(answer, Submitted) and answer.is_new:
                    self._hold(submission, beginnings)
                else:
                    self._tasks.weights.drop(submission.draft.id)
                _answer(submission.answer, answer)
            slots.run(beginnings)

    def _hold(self, submission: _Prepared, beginnings: list[Decision]) -> None:
        """Take a task over that is committed; add its first Decision to those that are ``begun``."""
        draft, tasks = submission.draft, self._tasks
        first = draft.first
        if draft.holder != tasks.node:  # declared dead meanwhile: it is freed with all that the old node held
            tasks.weights.drop(draft.id)
            return
        # a message for it may have come first, so that it was read
        tasks.in_memory.setdefault(draft.id, submission.held_task)
        if first is not None:
            saga.apply_first(submission.held_task, first)
            beginnings.append(first)
        else:
            tasks.put_back({draft.id: [TaskMessage("claim")]})


def _answer(future: asyncio.Future[Submitted], answer: Submitted | Exception | None) -> None:
    """Report the outcome of a submission to a caller that still waits; None: its writing was cancelled."""
    if future.done():
        return
    if answer is None:
        future.cancel()
    elif isinstance(answer, Submitted):
        future.set_result(answer)
    else:
        future.set_exception(answer)
