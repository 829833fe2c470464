"""The slices of the SQLite store: its operations, by subject.

Most operations are transactions from the modules beside this one, turned into methods.
"""

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from makegood.model.messages import Act, Alert, TaskMessage
from makegood.store import queue_records, records, search, task_excerpts
from makegood.store import views as views_
from makegood.store.generation import begin_after_restore
from makegood.store.priority_ageing import Ageing
from makegood.store.protocol import Admin, Nodes, Queues, Requests, Tasks
from makegood.store.queue_records import DeadLetter, Depths, Outgoing, Receipt, Room, Sent
from makegood.store.schedule_verbs import ScheduleQuestion, ScheduleVerbs, Scheduling
from makegood.store.schedules import FiringPlace
from makegood.store.signals import OutgoingSignal, Signalled
from makegood.store.soundness import find_defects
from makegood.store.sqlite import doctor, leases, load, requests, signals, upkeep
from makegood.store.sqlite import queues as mails
from makegood.store.sqlite.commit import commit, put_to_error
from makegood.store.sqlite.database import Database, Slice, reads, writes
from makegood.store.sqlite.joined_submit import join, verify
from makegood.store.sqlite.submit import submit
from makegood.store.sqlite.take import take, turn
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.store.upkeep import heartbeat, register
from makegood.transactions import Caller

T = TypeVar("T")


class TaskSlice(Slice, Tasks):
    """Tasks, their steps and their inboxes."""

    def __init__(self, database: Database, ageing: Ageing) -> None:
        super().__init__(database)
        self.ageing = ageing
        self.clock = database.now
        self.calendar = database.clock.clock.wall

    async def submit(self, drafts: Sequence[records.Submission]) -> list[records.Submitted]:
        """Insert tasks with all their steps."""
        octets = sum([draft.octets for draft in drafts])
        return await self._db.together(submit, drafts, octets=octets, again=True)

    async def join(self, caller: Caller, drafts: Sequence[records.Submission]) -> list[records.Submitted]:
        """Insert tasks in the caller's transaction."""
        return await join(caller, drafts, self._db.path, self._db.identity.store_id, self._db.clock)

    async def commit(self, batch: records.Batch) -> records.Committed:
        """Write Decisions, claim tasks, and write the Decisions that ``decide`` makes on these."""
        act = partial(commit, batch=batch, ageing=self.ageing)
        return await self._db.write(act, weight=len(batch.decisions), again=batch.claim is None)

    async def load(self, node: int, tasks: Sequence[int]) -> list[records.Loaded]:
        """Return those of ``tasks`` that ``node`` still holds. Tasks that cannot be read are put to error."""
        result = await self._db.read(partial(load.load, node=node, tasks=tasks))
        for task, reason in result.unreadable:
            await self.put_to_error(node, task, reason)
        return result.tasks

    async def put_to_error(self, node: int, task: int, reason: str) -> None:
        """Put a task that ``node`` holds to error, whatever its rows contain."""
        await self._db.write(partial(put_to_error, node=node, task=task, reason=reason, check_lock=True))

    async def inbox(
        self, node: int, limit: int, room: int = records.NO_LIMIT, *, at_rest: bool = True
    ) -> records.TaskMessages:
        """Return messages for tasks that ``node`` holds, and tasks at rest that have messages."""
        act = partial(requests.inbox, node=node, limit=limit, room=room, at_rest=at_rest)
        messages, unreadable = await self._db.read(act)
        for task, reason in unreadable.items():
            await self.put_to_error(node, task, reason)
        return messages

    async def detail(self, task: int, *, with_asked: bool = False) -> views_.TaskDetail | None:
        """Return one task with its steps."""
        return await self._db.read(lambda tx: tx.do(search.detail, tx.plans, task, with_asked=with_asked))

    async def excerpt(self, task: int, page: views_.StepPage | None = None) -> views_.TaskExcerpt | None:
        """Return what a page shows of a task."""
        return await self._db.read(lambda tx: tx.do(task_excerpts.excerpt, tx.plans, task, page))

    async def signal(self, signal: OutgoingSignal, act: Act | None = None) -> Signalled:
        """Send a signal."""
        return await self._db.write(partial(signals.send, signal=signal, act=act))

    async def join_signal(self, caller: Caller, signal: OutgoingSignal) -> Signalled:
        """Send a signal in the caller's transaction."""
        await verify(caller, self._db.path, self._db.identity.store_id)
        return await signals.put(caller, signal, self._db.clock.now())


class RequestSlice(Slice, Requests):
    """Requests to agents, and their replies."""

    def __init__(self, database: Database, ageing: Ageing) -> None:
        super().__init__(database)
        self._ageing = ageing

    async def take(self, node: int, offers: Sequence[records.Offer], *, alone: bool = False) -> records.Taken:
        """Give waiting requests to ``node``."""
        act = partial(take, node=node, offers=offers, ageing=self._ageing, alone=alone)
        return await self._db.write(act, again=True)

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Write replies into the tasks' inboxes. Returns True for each reply that came in time."""
        incoming_replies = [requests.IncomingReply(node, task, message) for task, message in replies]
        octets = sum([len(message.value or b"") for _, message in replies])
        return await self._db.together(requests.answer, incoming_replies, octets=octets, again=True)

    turn = writes(turn)


class QueueSlice(Slice, Queues):
    """Queues of messages."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.depths = Depths()  # the writer's

    async def _verify_caller(self, caller: Caller) -> float:
        await verify(caller, self._db.path, self._db.identity.store_id)
        return self._db.clock.now()

    async def accept(self, caller: Caller, receipt: Receipt) -> bool:
        """Acknowledge a message in the caller's transaction."""
        return await mails.accept(caller, receipt, await self._verify_caller(caller))

    async def put(
        self, caller: Caller, message: Outgoing, most: int, most_bytes: int = records.NO_LIMIT
    ) -> Sent:
        """Send a message in the caller's transaction."""
        room = Room(most, most_bytes, self.depths)
        return await mails.put(caller, message, room, await self._verify_caller(caller))

    async def send_messages(
        self, messages: Sequence[Outgoing], most: int, most_bytes: int = records.NO_LIMIT
    ) -> list[Sent]:
        """Send messages, together with those that other callers send at the same moment."""
        queue_records.check_messages(messages)
        room = Room(most, most_bytes, self.depths)
        octets = sum([len(m.body) for m in messages])
        return await self._db.together(mails.send, [(m, room) for m in messages], octets=octets)

    async def keep_dead_letters(self, letters: Sequence[DeadLetter], alert: Alert) -> list[Sent]:
        """Add messages as dead letters."""
        queue_records.check_messages([each.message for each in letters])
        return await self._db.write(partial(mails.bury, letters=letters, alert=alert)) if letters else []

    async def acknowledge_messages(self, receipts: Sequence[Receipt]) -> list[bool]:
        """Remove messages from their queues."""
        return await self._db.together(mails.acknowledge, receipts)


class ScheduleSlice(Slice, ScheduleVerbs):
    """Schedules and their firings."""

    async def _run_write(self, work: Scheduling[T], term: records.Grant | None = None) -> T:
        def act(tx: WriteTransaction, term: records.Grant | None) -> T:
            if term is not None:
                tx.fence(term)

            async def insert(drafts: Sequence[records.Submission]) -> list[records.Submitted]:
                return submit(tx, drafts)

            return tx.do(work, FiringPlace(insert, tx.calendar))

        act.__name__ = getattr(work, "func", work).__name__
        return await self._db.write(partial(act, term=term))

    async def _run_read(self, question: ScheduleQuestion[T]) -> T:
        return await self._db.read(lambda tx: tx.do(question, tx.calendar))


class LeaseSlice(Slice):
    """Leases with epochs."""

    acquire = writes(leases.acquire)
    renew = writes(leases.renew)
    release = writes(leases.release)
    read = reads(leases.read)
    past_terms = reads(leases.past_terms)


class NodeSlice(Slice, Nodes):
    """Processes."""

    async def register(self, info: views_.NodeInfo) -> int:
        """Insert a node row with its first heartbeat. Returns the node's number."""
        number, generation, _ = await self._db.run_ahead(partial(register, info=info))
        self._db.stored_identity = records.Identity(self._db.identity.store_id, generation)
        return number

    async def heartbeat(self, node: int, info: views_.NodeInfo) -> bool:
        """Extend a node's life; False if it was declared dead or has stopped."""
        return await self._db.run_ahead(partial(heartbeat, node=node, info=info)) is not None


class AdminSlice(Slice, Admin):
    """The store as a whole."""

    async def schema(self) -> views_.SchemaStatus:
        """Return the state of the schema."""
        return await self._db.schema()

    async def migrate(self) -> list[str]:
        """Apply missing migrations."""
        return await self._db.migrate()

    async def check(self) -> list[str]:
        """Verify integrity and durability settings."""
        return await self._db.check()

    async def examine(self) -> list[views_.Finding]:
        """Examine the file, its location and its durability."""
        return await self._db.apart(partial(doctor.examine, self._db.path, self._db.connect))

    async def broken_rows(self, limit: int) -> list[str]:
        """Return the rows that cannot be read, one sentence each."""
        read = self._db.read
        return await find_defects(
            self._db,
            lambda after, most: read(partial(doctor.unreadable_tasks, after=after, limit=most)),
            limit,
        )

    async def begin_generation(self, act: Act) -> records.NewGeneration:
        """Raise the generation, because an operator says that the file was restored."""
        outcome = await self._db.run_write(partial(begin_after_restore, act=act))
        self._db.stored_identity = records.Identity(self._db.identity.store_id, outcome.generation)
        return outcome

    touch = writes(upkeep.pass_by)
