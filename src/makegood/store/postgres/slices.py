"""The slices of the store on PostgreSQL: the functions of the modules beside this one, made methods."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from makegood.base.counts import quantity
from makegood.base.ids import show
from makegood.base.postgres_errors import MORE_POOLED, NEEDED, POOLING
from makegood.base.postgres_pooling import SharedSessionError
from makegood.base.sizes import KIB
from makegood.election.stores.postgres_table import PostgresLeaseTable
from makegood.errors import ConfigError, MakegoodError, StoreUnavailableError
from makegood.model.messages import Act, Alert, TaskMessage
from makegood.store import queue_records, records, rows, search, task_excerpts
from makegood.store import views as views_
from makegood.store.generation import begin_after_restore
from makegood.store.postgres import doctor, joined_submit, load, signals, take, upkeep
from makegood.store.postgres import queues as mails
from makegood.store.postgres import requests as queues
from makegood.store.postgres.claim import ClaimScan
from makegood.store.postgres.commit import BLOCKED_FOR, Commit, put_to_error
from makegood.store.postgres.connection import Connection, Dialer, Link
from makegood.store.postgres.database import Database, Slice, asks, explicit, writes
from makegood.store.postgres.statements import SharedTx
from makegood.store.postgres.submit import recover_answers, submit
from makegood.store.postgres.take import turn
from makegood.store.postgres.transaction import WriteTransaction
from makegood.store.postgres.writers import Writers
from makegood.store.priority_ageing import Ageing
from makegood.store.protocol import Admin, Nodes, Queues, Requests, Tasks
from makegood.store.queue_records import DeadLetter, Depths, Outgoing, Receipt, Room, Sent
from makegood.store.rows import Interner
from makegood.store.scan_floors import Floors
from makegood.store.schedule_verbs import ScheduleQuestion, ScheduleVerbs, Scheduling
from makegood.store.schedules import FiringPlace
from makegood.store.signals import OutgoingSignal, Signalled
from makegood.store.soundness import find_defects
from makegood.store.upkeep import heartbeat, register
from makegood.transactions import Caller

log = logging.getLogger("makegood.store")

T = TypeVar("T")

_PATIENCE = 3.0
"""Seconds that ``doctor`` waits for a further connection through a proxy."""
_LEASES = PostgresLeaseTable("makegood.lease", "makegood.lease_term")
_HEAVY = 16 * KIB
"""This many bytes weigh as much as one more call, when calls are written together."""
# The slack of floors below: how late a transaction may commit, in numbers, microseconds or seconds after its
# turn, and still be seen at once.


class TaskSlice(Slice, Tasks):
    """Tasks, their steps and their inboxes."""

    def __init__(self, database: Database, ageing: Ageing) -> None:
        super().__init__(database)
        self.ageing = ageing
        self.claims = Floors(database.clock, 250_000)
        self.messages = Floors(database.clock, 2000)
        self.clock = self.calendar = database.server_clock.now
        self._known_takes = signals.KnownTakes()
        self._careful = 0.0
        """Until when batches are written with savepoints."""

    async def submit(self, drafts: Sequence[records.Submission]) -> list[records.Submitted]:
        """Insert tasks with all their steps."""
        return await self._db.batcher("submit", partial(_submit, self._db.writers), _weight).ask(drafts)

    async def join(self, caller: Caller, drafts: Sequence[records.Submission]) -> list[records.Submitted]:
        """Insert tasks in a caller's transaction."""
        return await joined_submit.join(caller, drafts, self._db.place())

    async def commit(self, batch: records.Batch) -> records.Committed:
        """Write Decisions, claim tasks, and write what ``decide`` returns for them."""
        now = self._db.clock.monotonic()
        scan = ClaimScan(self.claims, self.ageing, self._db.server_clock)
        commit = Commit(batch, scan, partial(self._is_outlived, batch.node), now < self._careful)
        outcome = await self._db.writers.write(commit.work, commit.recover)
        commit.note_commit()
        if outcome.lock_conflicts:
            self._careful = self._db.clock.monotonic() + BLOCKED_FOR
        return outcome

    def _is_outlived(self, node: int) -> bool:
        """Return whether a node was registered here before the store's generation was raised."""
        generation = self._db.identity.generation
        return self._db.generations.get(node, generation) != generation

    async def load(self, node: int, tasks: Sequence[int]) -> list[records.Loaded]:
        """Return tasks that ``node`` still holds."""
        plans = self._db.writers.plans
        result = await self._db.read(lambda connection: load.load(connection, plans, node, tasks))
        await self._put_to_error(node, result.unreadable)
        return result.tasks

    async def put_to_error(self, node: int, task: int, reason: str) -> None:
        """Put a task that ``node`` holds to error, whatever its rows contain."""
        await self._put_to_error(node, [(task, reason)])

    async def _put_to_error(self, node: int, unreadable: Sequence[tuple[int, str]]) -> None:
        for task, reason in unreadable:
            await self._db.write(partial(put_to_error, node=node, task=task, reason=reason, check_lock=True))

    async def inbox(
        self, node: int, limit: int, room: int = records.NO_LIMIT, *, at_rest: bool = True
    ) -> records.TaskMessages:
        """Return messages for the tasks of ``node``, and unlocked tasks at rest that have messages."""
        floors = self.messages if at_rest else None
        messages, unreadable = await self._db.read(
            partial(queues.inbox, node=node, limit=limit, room=room, floors=floors)
        )
        await self._put_to_error(node, list(unreadable.items()))
        return messages

    async def detail(self, task: int, *, with_asked: bool = False) -> views_.TaskDetail | None:
        """Return one task with its steps."""
        plans = self._db.writers.plans
        return await self._at_one_moment(lambda tx: search.detail(tx, plans, task, with_asked=with_asked))

    async def excerpt(self, task: int, page: views_.StepPage | None = None) -> views_.TaskExcerpt | None:
        """Return what a page shows of a task."""
        plans = self._db.writers.plans
        return await self._at_one_moment(lambda tx: task_excerpts.excerpt(tx, plans, task, page))

    async def _at_one_moment(self, work: Callable[[SharedTx], Coroutine[Any, Any, T]]) -> T:
        """Run reads that must see the same rows."""

        async def look(connection: Connection) -> T:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await work(SharedTx(connection))

        return await self._db.read(look)

    async def signal(self, signal: OutgoingSignal, act: Act | None = None) -> Signalled:
        """Send a signal."""
        if act is not None:
            return await self._db.write(partial(signals.send, signal=signal, act=act))
        assumption = self._known_takes.assumption(signal)
        while True:
            flush = partial(_signal, self._db)
            draft = signals.SignalDraft(signal, assumption)
            (answer,) = await self._db.batcher("signal", flush, _weight_of_signals).ask([draft])
            if isinstance(answer, MakegoodError):
                raise answer
            if isinstance(answer, Signalled):
                return answer
            if answer is not None:
                assumption = answer
                self._known_takes.note(signal, answer)

    async def join_signal(self, caller: Caller, signal: OutgoingSignal) -> Signalled:
        """Send a signal in a caller's transaction."""
        await joined_submit.verify(caller, self._db.place())
        return await signals.put(caller, signal)


class RequestSlice(Slice, Requests):
    """Requests to agents, and their replies."""

    def __init__(self, database: Database, ageing: Ageing) -> None:
        super().__init__(database)
        self._ageing = ageing
        self._floors = Floors(database.clock, 0.25)

    async def take(self, node: int, offers: Sequence[records.Offer], *, alone: bool = False) -> records.Taken:
        """Claim waiting requests for ``node``."""
        taking = take.Taking(node, offers, self._floors, self._ageing, self._db.clock.monotonic(), alone)
        result = await self._db.writers.write(taking.work, lambda tx, _: take.recover_claims(tx, node))
        requests, unreadable = take.read(result)
        for task, reason in unreadable:
            try:
                await self._db.write(partial(put_to_error, node=None, task=task, reason=reason, seqs=()))
            except ConfigError as denial:  # an agent's role may not: the Supervisor judges its silence
                log.warning("task %s: %s (%s)", show(task), reason, denial)
        return requests

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Put replies in the tasks' inboxes; True for each that came in time."""
        flush = partial(_answer, self._db.writers, node)
        return await self._db.batcher(node, flush, _weight_of_replies).ask(replies)

    turn = writes(turn)


class QueueSlice(Slice, Queues):
    """Queues of messages."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._depths = Depths()

    def _room(self, most: int, most_bytes: int) -> Room:
        return Room(most, most_bytes, self._depths)

    async def accept(self, caller: Caller, receipt: Receipt) -> bool:
        """Acknowledge a message in a caller's transaction."""
        await joined_submit.verify(caller, self._db.place())
        return await mails.accept(caller, receipt)

    async def put(
        self, caller: Caller, message: Outgoing, most: int, most_bytes: int = records.NO_LIMIT
    ) -> Sent:
        """Send a message in a caller's transaction."""
        await joined_submit.verify(caller, self._db.place())
        return await mails.put(caller, message, self._room(most, most_bytes), self._db.clock.monotonic())

    async def send_messages(
        self, messages: Sequence[Outgoing], most: int, most_bytes: int = records.NO_LIMIT
    ) -> list[Sent]:
        """Add messages to their queues."""
        queue_records.check_messages(messages)
        if not messages:
            return []
        room, now = self._room(most, most_bytes), self._db.clock.monotonic()
        return await self._db.write(partial(mails.send, messages=messages, room=room, now=now))

    async def keep_dead_letters(self, letters: Sequence[DeadLetter], alert: Alert) -> list[Sent]:
        """Add messages as dead letters."""
        queue_records.check_messages([each.message for each in letters])
        return await self._db.write(partial(mails.bury, letters=letters, alert=alert)) if letters else []

    async def acknowledge_messages(self, receipts: Sequence[Receipt]) -> list[bool]:
        """Remove processed messages from their queues."""
        return await self._db.write(partial(mails.acknowledge, receipts=receipts)) if receipts else []


class ScheduleSlice(Slice, ScheduleVerbs):
    """Schedules and their firings."""

    async def _run_write(self, work: Scheduling[T], term: records.Grant | None = None) -> T:
        async def act(tx: WriteTransaction) -> T:
            result = await work(tx, FiringPlace(partial(submit, tx), None))
            tx.idle = not (tx.wrote or tx.topics or tx.has_mark)
            return result

        return await self._db.write(act, term)

    async def _run_read(self, question: ScheduleQuestion[T]) -> T:
        return await self._db.run_read(lambda tx: question(tx, None))


class LeaseSlice(Slice):
    """Leases with epochs."""

    acquire = asks(_LEASES.acquire)
    renew = asks(_LEASES.renew)
    release = asks(_LEASES.release)
    read = asks(_LEASES.read)
    past_terms = asks(_LEASES.past_terms)


class NodeSlice(Slice, Nodes):
    """Processes and their heartbeats."""

    async def register(self, info: views_.NodeInfo) -> int:
        """Insert a node row with its first heartbeat."""
        begin = self._db.clock.monotonic()
        number, generation, now = await self._db.run_write(partial(register, info=info))
        self._db.server_clock.set(now, begin)
        await self._db.read_clock()  # that answer took a commit, and perhaps a new connection
        self._db.dialer.identity = records.Identity(self._db.identity.store_id, generation)
        self._db.generations[number] = generation
        return number

    async def heartbeat(self, node: int, info: views_.NodeInfo) -> bool:
        """Renew a node's row; False if it was declared dead or has stopped."""
        begin = self._db.clock.monotonic()
        now = await self._db.run_ahead(partial(heartbeat, node=node, info=info))
        if now is not None:
            self._db.server_clock.set(now, begin)
        return now is not None


class AdminSlice(Slice, Admin):
    """Operations on the store as a whole."""

    async def schema(self) -> views_.SchemaStatus:
        """Return the state of the schema; works on a store that needs migrating."""
        return await self._db.on_separate_connection(partial(upkeep.schema, where=self._db.where))

    async def migrate(self) -> list[str]:
        """Apply missing migrations under a lock, and record the server's history, which roles with
        fewer rights may not do.
        """
        names = await self._db.on_separate_connection(partial(upkeep.migrate, where=self._db.where))
        link = await self._db.separate_dialer(checks=True).dial()
        await link.close(1.0)
        return names

    async def check(self) -> list[str]:
        """Verify settings, schema and connection."""
        return await self._db.on_separate_connection(partial(upkeep.check, where=self._db.where))

    async def examine(self) -> list[views_.Finding]:
        """Check the connection to the server, and the server."""
        target = self._db.dialer.address.target
        try:
            findings = await self._db.on_separate_connection(partial(doctor.examine, target=target))
        except SharedSessionError:  # no answer over it is reliable
            text = POOLING.partition(";")[0]
            remedy = "connect to PostgreSQL itself, or use pool_mode=session for makegood"
            return [views_.Finding("pooling", "error", text, remedy)]
        return [await self._check_pooling(), *findings]

    async def _check_pooling(self) -> views_.Finding:
        """Judge whether a proxy that keeps sessions has enough connections for a process: take them for a
        moment.
        """
        count, dialer = NEEDED, self._db.dialer
        if dialer.address.hosts.has_proxy:
            links = list[Link]()
            own = len(dialer.living)
            try:
                while own + len(links) < NEEDED:
                    links.append(await Dialer(dialer.address, dialer.driver, limit=_PATIENCE).dial())
            except StoreUnavailableError:
                count = own + len(links)
            finally:
                await asyncio.gather(*[link.close(1.0) for link in links])
        if count < NEEDED:
            text = f"the proxy in between had {quantity(count, 'connection')} for this process, and a Node needs {NEEDED}"
            return views_.Finding("pooling", "warning", text, MORE_POOLED)
        return views_.Finding("pooling", "ok", "sessions keep their state")

    async def broken_rows(self, limit: int) -> list[str]:
        """Return the unreadable rows, one sentence each."""
        read_page = partial(doctor.unreadable_tasks, plans=Interner())
        return await find_defects(
            self._db, lambda after, most: self._db.read(partial(read_page, after=after, limit=most)), limit
        )

    async def begin_generation(self, act: Act) -> records.NewGeneration:
        """Raise the generation because an operator says that the store was restored."""
        outcome = await self._db.run_write(partial(begin_after_restore, act=act))
        self._db.dialer.identity = records.Identity(self._db.identity.store_id, outcome.generation)
        return outcome

    touch = writes(doctor.nothing)


async def _submit(
    writers: Writers, drafts: Sequence[records.Submission], *, waits: bool = False
) -> list[records.Submitted]:
    """Write the submissions of several callers."""
    return await writers.write_here(
        lambda tx: submit(tx, drafts), lambda tx, outcome: recover_answers(tx, drafts, outcome), waits=waits
    )


async def _signal(
    db: Database, drafts: Sequence[signals.SignalDraft], *, waits: bool = False
) -> list[signals.Answer]:
    """Send the signals of several callers."""
    sending = signals.SignalBatch(drafts, [*db.generations] if db.subscribers.receivers else None)
    answers = await db.writers.write_here(sending.work, sending.recover, waits=waits)
    if sending.fresh_message is not None:
        db.subscribers.deliver(sending.fresh_message)
    return answers


async def _answer(
    writers: Writers, node: int, replies: Sequence[tuple[int, TaskMessage]], *, waits: bool = False
) -> list[bool]:
    """Write replies; check late ones in a separate transaction."""
    incoming_replies = [
        queues.IncomingReply(node, task, message, rows.message(message)) for task, message in replies
    ]
    verdicts = await writers.write_here(
        lambda tx: queues.answer(tx, node, incoming_replies),
        lambda tx, outcome: queues.recover_verdicts(tx, incoming_replies, outcome),
        waits=waits,
    )
    late_numbers = [n for n, in_time in enumerate(verdicts) if not in_time]
    if late_numbers:
        doubtful = [incoming_replies[n] for n in late_numbers]
        second = await explicit(writers, partial(queues.late, node=node, replies=doubtful))
        for n, in_time in zip(late_numbers, second, strict=True):
            verdicts[n] = in_time
    return verdicts


def _weight(drafts: Sequence[records.Submission]) -> int:
    return len(drafts) + sum([draft.octets for draft in drafts]) // _HEAVY


def _weight_of_signals(drafts: Sequence[signals.SignalDraft]) -> int:
    return len(drafts) + sum([len(draft.signal.value) for draft in drafts]) // _HEAVY


def _weight_of_replies(replies: Sequence[tuple[int, TaskMessage]]) -> int:
    return len(replies) + sum([len(message.value or b"") for _, message in replies]) // _HEAVY
