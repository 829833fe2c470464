"""``PostgresStore``: every method of the protocol on a few connections.

Two connections write (``lanes``), one reads, and one carries heartbeats and leases and listens for the wake-ups of other
processes, so that neither waits behind a batch.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import asyncpg

from makegood.base.clock import Clock, SystemClock
from makegood.base.sizes import KIB
from makegood.errors import StoreUnavailableError
from makegood.model.messages import Act, Answer, Message
from makegood.store import migrations, records, rows, views
from makegood.store.postgres import generation as promotion
from makegood.store.postgres import joined_submit, leases, load, pruning, reads, supervision, take, upkeep
from makegood.store.postgres import requests as queues
from makegood.store.postgres.alerts import AlertVerbs
from makegood.store.postgres.batcher import Together
from makegood.store.postgres.commit import Commit, put_to_error
from makegood.store.postgres.connection import Address, AwaitingError, Connection, Dialer, Driver
from makegood.store.postgres.doctor import ExaminingVerbs
from makegood.store.postgres.errors import cause, translated
from makegood.store.postgres.inbox_work import Callers
from makegood.store.postgres.notices import NoticeVerbs
from makegood.store.postgres.queues import MessageVerbs
from makegood.store.postgres.reader import Line
from makegood.store.postgres.scan_floors import Floors
from makegood.store.postgres.submit import recovered as submit_recovered
from makegood.store.postgres.submit import submit
from makegood.store.postgres.transaction import Transaction, Work, within
from makegood.store.postgres.writers import Lanes, pauses_of
from makegood.store.priority_ageing import Ageing
from makegood.store.queue_records import Depths
from makegood.transactions import Caller

log = logging.getLogger("makegood.store")

T = TypeVar("T")

_WRITERS = 3  # two commits of a Scheduler, and submissions
_ABREAST = 64
_PATIENCE = 30.0
_CONTROL_PATIENCE = 5.0
_KEEP = 5.0
_AWAITED = 15.0
"""Seconds that a role with few rights waits at its start for another process to begin a new generation."""
_MOST_TOGETHER, _HEAVY = 1000, 16 * KIB
"""Calls that are written together; one of so many bytes weighs as much as another one."""


class PostgresStore(AlertVerbs, MessageVerbs, NoticeVerbs, ExaminingVerbs):
    """The store in a PostgreSQL database, in its schema ``makegood``.

    ``url``: as libpq's, several hosts included. ``clock``: for pauses only; what is judged is judged by the server's clock.
    ``patience``: seconds that a statement may take before its connection is dropped and the truth is asked on another.
    ``ageing``: seconds of waiting that count as one priority more, None: never.
    ``session``: what the server shows of its connections, where the URL names no application_name.
    ``driver``: makes connections, for tests that count or fail. An object belongs to the event loop on which it was opened.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        patience: float = _PATIENCE,
        ageing: float | None = 60.0,
        driver: Driver = asyncpg.connect,
        session: str | None = None,
    ) -> None:
        self.abreast: int | None = _ABREAST
        self._address = Address(url, session)
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._patience = patience
        self._ageing = Ageing(ageing)
        self._dialer = Dialer(self._address, driver)
        self._lanes: Lanes | None = None
        self._reader: Line | None = None
        self._control: Line | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        # Slack: how many numbers, microseconds or seconds later than its turn a transaction may commit and still be seen at once.
        self._claims = Floors(self._clock, 250_000)
        self._messages = Floors(self._clock, 2000)
        self._depths = Depths()
        self._takes = Floors(self._clock, 0.25)
        self._judged = Floors(self._clock, 5.0)
        self._submits: Together[records.Draft, records.Submitted] | None = None
        self._answers: dict[int, Together[tuple[int, Message], bool]] = {}
        self._callers = Callers(self._dialer, patience, self._announce)
        self._registered: dict[int, int] = {}  # nodes, and the generation under which they came

    # Opening and closing

    @property
    def identity(self) -> records.Identity:
        """The store's own random id and its generation, as seen by the latest connection."""
        if self._dialer.identity is None:
            raise self._not_open()
        return self._dialer.identity

    async def open(self, *, migrate: bool = False, looking: bool = False) -> None:  # noqa: ARG002 - nothing is written either way
        """Connect, verify settings and schema, listen for wake-ups."""
        if self._lanes is not None:
            return
        await self._alone(partial(self._prepared, migrate=migrate))
        dialer = self._dialer
        dialer.checked, dialer.shut = True, False
        lanes = Lanes(dialer, self._rng, self._announce, size=_WRITERS, patience=self._patience)
        line = partial(Line, dialer, self._rng, lanes.tasks)
        reader = line(patience=self._patience)
        control = line(patience=min(self._patience, _CONTROL_PATIENCE), heard=self._heard)
        try:
            await self._reached(control)
        except BaseException:
            await control.close()
            await lanes.end(0.0)
            raise
        self._lanes, self._reader, self._control = lanes, reader, control
        self._submits = Together(lanes.tasks, partial(_submit, lanes), _MOST_TOGETHER, _weight)
        self._answers = {}
        self._callers.open()
        self._keeper = asyncio.get_running_loop().create_task(control.keep(_KEEP))

    async def _reached(self, control: Line) -> None:
        """Connect; wait, up to a limit, where a process with more rights has to begin a new generation first."""
        pauses = pauses_of(self._rng)
        loop = asyncio.get_running_loop()
        end = loop.time() + _AWAITED
        while True:
            try:
                await control.ask(lambda connection: connection.fetchval("select 1"))
            except AwaitingError as waits:
                if loop.time() >= end:
                    raise
                if end - loop.time() > _AWAITED - 1.0:
                    log.warning("%s", waits)
                await asyncio.sleep(pauses.draw())
            else:
                return

    async def _prepared(self, connection: Connection, *, migrate: bool) -> None:
        if migrate:
            await upkeep.migrate(connection, self._address.where)
        migrations.verify(
            "postgres", await upkeep.version(connection, self._address.where), self._address.where
        )
        for finding in await upkeep.settings(connection, self._address.where):
            log.warning("%s", finding)

    async def _alone(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """Ask on a connection of its own, whatever the state of the schema."""
        link = await Dialer(self._address, self._dialer.driver, warned=True).dial()
        try:
            return await question(link.connection)
        except Exception as fault:  # noqa: BLE001 - raised below, sorted
            raise translated(fault, self._address.where) from cause(fault)
        finally:
            await link.close(1.0)

    async def close(self) -> None:
        """Finish what is under way, for some seconds, and let go of the connections."""
        lanes, reader, control, keeper = self._lanes, self._reader, self._control, self._keeper
        self._lanes = self._reader = self._control = self._keeper = self._submits = None
        self._answers = {}
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        await self._callers.close()
        if lanes is not None:
            await lanes.close(5.0)
        for line in (reader, control):
            if line is not None:
                await line.close()
        if lanes is not None:
            await lanes.end(1.0)

    def _not_open(self) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"{self._address.where}: the store is not open; `await store.open()` first"
        )

    def _writing(self) -> Lanes:
        if self._lanes is None:
            raise self._not_open()
        return self._lanes

    async def _write(self, work: Work[T], term: records.Grant | None = None) -> T:
        lanes = self._writing()
        return await asyncio.shield(lanes.tasks.start(_explicit(lanes, work, term)))

    async def _read(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        if self._reader is None:
            raise self._not_open()
        return await self._reader.ask(question)

    async def _ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        if self._control is None:
            raise self._not_open()
        return await self._control.ask(question)

    # Wake-ups

    def subscribe(self, topic: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call ``ring`` when something may have come for ``topic``; returns what ends that."""
        self._listeners.setdefault(topic, []).append(ring)

        def end() -> None:
            rings = self._listeners.get(topic, [])
            if ring in rings:
                rings.remove(ring)
            if not rings:
                self._listeners.pop(topic, None)

        return end

    def _announce(self, topics: set[str]) -> None:
        for topic in topics:
            for ring in tuple(self._listeners.get(topic, ())):
                ring()

    def _heard(self, topic: str | None) -> None:
        self._announce(set(self._listeners) if topic is None else {topic})

    # Tasks

    async def submit(self, drafts: Sequence[records.Draft]) -> list[records.Submitted]:
        """Insert tasks with all their steps."""
        if self._submits is None:
            raise self._not_open()
        return await self._submits.ask(drafts)

    async def join(self, caller: Caller, drafts: Sequence[records.Draft]) -> list[records.Submitted]:
        """Insert tasks in a transaction of the caller's."""
        return await joined_submit.join(caller, drafts, self._place())

    def _place(self) -> joined_submit.Place:
        dialer = self._dialer
        return joined_submit.Place(self._address.where, self.identity, dialer.database, dialer.system)

    async def _verified(self, caller: Caller) -> None:
        await joined_submit.verify(caller, self._place())

    async def transact(self, work: Callable[[Caller], Coroutine[Any, Any, T]], *, waits: bool) -> T:  # noqa: ARG002 - on a loop either way
        """Do ``work`` in a transaction of its own connection."""
        return await self._callers.transact(work)

    def joined(self, *written: int | tuple[str, str]) -> None:
        """Do nothing: the caller's commit notifies whoever listens."""

    async def commit(self, batch: records.Batch) -> records.Committed:
        """Write Decisions, claim tasks, and write what ``decide`` makes of them."""
        commit = Commit(batch, self._claims, self._ageing, partial(self._outlived, batch.node))
        done = await self._writing().write(commit.work, commit.recovered)
        commit.settled()
        return done

    def _outlived(self, node: int) -> bool:
        """Return whether a node was registered here before the store's generation was raised."""
        return self._registered.get(node, self.identity.generation) != self.identity.generation

    async def load(self, node: int, tasks: Sequence[int]) -> list[records.Loaded]:
        """Return tasks that ``node`` still holds."""
        plans = self._writing().plans
        found = await self._read(lambda connection: load.load(connection, plans, node, tasks))
        await self._put_to_error(node, found.unreadable)
        return found.tasks

    async def put_to_error(self, node: int, task: int, reason: str) -> None:
        """Put a task that ``node`` holds to error, whatever is in its rows."""
        await self._put_to_error(node, [(task, reason)])

    async def _put_to_error(self, node: int, unreadable: Sequence[tuple[int, str]]) -> None:
        for task, reason in unreadable:
            await self._write(partial(put_to_error, node=node, task=task, reason=reason, held=True))

    async def find(self, wanted: views.Filter) -> list[views.TaskView]:
        """Return tasks that match, newest first."""
        return await self._read(partial(reads.find, wanted=wanted))

    async def count(self, wanted: views.Filter) -> int:
        """Return how many tasks match."""
        return await self._read(partial(reads.count, wanted=wanted))

    async def detail(self, task: int, *, asked: bool = False) -> views.TaskDetail | None:
        """Return one task with its steps."""
        return await self._read(partial(reads.detail, plans=self._writing().plans, task=task, asked=asked))

    async def history(self, task: int, after: int = 0) -> list[views.EventView]:
        """Return the events of a task in order."""
        return await self._read(partial(reads.history, task=task, after=after))

    # Queues

    async def inbox(self, node: int, limit: int, room: int = records.NO_LIMIT) -> records.Inbox:
        """Return messages for the tasks of ``node``, and unlocked tasks at rest that have some."""
        found, unreadable = await self._read(
            partial(queues.inbox, node=node, limit=limit, room=room, floors=self._messages)
        )
        await self._put_to_error(node, unreadable)
        return found

    async def post(self, task: int, message: Message) -> None:
        """Leave an operator's act in a task's inbox."""
        await self._write(partial(queues.post, task=task, message=message))

    async def answers(self, acts: Sequence[str]) -> dict[str, Answer]:
        """Return what became of acts."""
        return await self._read(partial(queues.answers, acts=acts))

    async def take(self, node: int, offers: Sequence[records.Offer], *, alone: bool = False) -> records.Taken:
        """Give waiting requests to ``node``."""
        taking = take.Taking(node, offers, self._takes, self._ageing, self._clock.monotonic(), alone)
        found = await self._writing().write(taking.work, lambda tx, _: take.recovered(tx, node))
        requests, unreadable = take.read(found)
        for task, reason in unreadable:
            await self._write(partial(put_to_error, node=None, task=task, reason=reason, seqs=()))
        return requests

    async def answer(self, node: int, replies: Sequence[tuple[int, Message]]) -> list[bool]:
        """Leave replies in the tasks' inboxes; True for each that came in time."""
        lanes = self._writing()
        together = self._answers.get(node)
        if together is None:
            together = self._answers[node] = Together(
                lanes.tasks, partial(_answer, lanes, node), _MOST_TOGETHER, _weight_of_replies
            )
        return await together.ask(replies)

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Move an attempt's complete-by to ``seconds`` from now, never earlier."""
        key = (task, idx, attempt)
        return await self._ask(partial(queues.extend, node=node, key=key, seconds=seconds))

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Make requests that were taken but not begun available again."""
        if requests:
            await self._write(partial(queues.give_back, node=node, requests=requests))

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Mark requests whose silence is not to be counted."""
        if requests:
            await self._ask(partial(queues.excuse, node=node, requests=requests))

    # Supervision

    async def judge(self, term: records.Grant, grace: float, limit: int) -> records.Judged:
        """Judge requests past complete-by."""
        return await self._write(
            partial(supervision.judge, grace=grace, limit=limit, floors=self._judged), term
        )

    async def release_dead(self, term: records.Grant, limit: int) -> list[int]:
        """Free tasks held by dead nodes."""
        return await self._write(partial(supervision.release_dead, limit=limit, floors=self._judged), term)

    async def release_deaf(self, term: records.Grant, older: float, limit: int) -> list[int]:
        """Free tasks whose Scheduler leaves ``expired`` unanswered."""
        return await self._write(partial(supervision.release_deaf, older=older, limit=limit), term)

    async def expire_tasks(self, term: records.Grant, limit: int) -> list[int]:
        """Tell tasks that their complete-by has passed; alert late undos."""
        return await self._write(partial(supervision.expire_tasks, limit=limit, floors=self._judged), term)

    async def starved(
        self, term: records.Grant, after: float, limit: int, outage: float = 300.0
    ) -> list[int]:
        """Raise one alert per request that nobody takes."""
        return await self._write(
            partial(supervision.starved, after=after, limit=limit, outage=outage, floors=self._judged), term
        )

    async def horizon(self, grace: float, most: float) -> float:
        """Return seconds until something may have to be judged."""
        return await self._ask(partial(supervision.horizon, grace=grace, most=most, floors=self._judged))

    async def prune(self, older: float, after: int, limit: int, *, dry: bool = False) -> records.Pruned:
        """Remove tasks that ended long ago, of one window."""
        return await self._write(partial(pruning.prune, older=older, after=after, limit=limit, dry=dry))

    # Leases

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> records.Grant | None:
        """Take a free or expired lease."""
        return await self._ask(partial(leases.acquire, name=name, holder=holder, nonce=nonce, ttl=ttl))

    async def renew(self, grant: records.Grant) -> bool:
        """Extend a lease that is still held."""
        return await self._ask(partial(leases.renew, grant=grant))

    async def release(self, grant: records.Grant) -> None:
        """Free a lease that is still this grant's."""
        await self._ask(partial(leases.release, grant=grant))

    async def read(self, name: str) -> records.LeaseView | None:
        """Return who holds a lease."""
        return await self._ask(partial(leases.read, name=name))

    async def past_terms(self, name: str, limit: int = 100) -> list[records.PastTerm]:
        """Return the latest terms of a lease, newest first."""
        return await self._ask(partial(leases.past_terms, name=name, limit=limit))

    # Upkeep

    async def begin_anew(self, act: Act) -> records.Anew:
        """Raise the generation, because an operator says that the store was restored."""
        done = await self._write(lambda tx: promotion.restored(tx.connection, act))
        self._dialer.identity = records.Identity(self.identity.store_id, done.generation)
        return done

    async def now(self) -> float:
        """Return the server's clock."""

        async def ask(connection: Connection) -> float:
            now: float = await connection.fetchval(upkeep.NOW)
            return now

        return await self._ask(ask)

    async def register(self, info: views.NodeInfo) -> int:
        """Insert a node row with its first heartbeat."""
        number, generation = await self._write(partial(upkeep.register, info=info))
        self._dialer.identity = records.Identity(self.identity.store_id, generation)
        self._registered[number] = generation
        return number

    async def heartbeat(self, node: int, info: views.NodeInfo) -> bool:
        """Extend the node's life; False: it was declared dead."""
        return await self._ask(partial(upkeep.heartbeat, node=node, info=info))

    async def unregister(self, node: int) -> None:
        """Mark the node as stopped in good order."""
        await self._ask(partial(upkeep.unregister, node=node))

    async def nodes(self) -> list[views.NodeView]:
        """Return nodes alive or ended within the last hour."""
        return await self._read(upkeep.nodes)

    async def depths(self) -> dict[str, int]:
        """Return how many requests wait for each agent."""
        return await self._read(upkeep.depths)

    async def figures(self) -> views.Figures:
        """Return how much there is to do, and what is wrong."""
        return await self._read(upkeep.figures)

    async def schema(self) -> views.SchemaStatus:
        """Return where the schema stands; works on a store that needs migrating."""
        return await self._alone(partial(upkeep.schema, where=self._address.where))

    async def migrate(self) -> list[str]:
        """Apply missing migrations under a lock, and record the history that the server shows, which roles with fewer rights may not."""
        applied = await self._alone(partial(upkeep.migrate, where=self._address.where))
        link = await Dialer(self._address, self._dialer.driver, checked=True, warned=True).dial()
        await link.close(1.0)
        return applied

    async def check(self) -> list[str]:
        """Verify settings, schema and the way to the server."""
        findings = await self._alone(partial(upkeep.check, where=self._address.where))
        return findings + await upkeep.pooled(Dialer(self._address, self._dialer.driver, warned=True))


async def _explicit(lanes: Lanes, work: Work[T], term: records.Grant | None = None) -> T:
    """Run an explicit transaction; its answer is known before its commit is sent, so nothing has to be recovered."""
    answer: list[T] = []

    async def keep(tx: Transaction) -> T:
        answer[:] = [await work(tx)]
        return answer[0]

    async def run(tx: Transaction) -> T:
        return await within(tx, keep, term)

    async def recover(_: Transaction, __: Sequence[int] | None) -> T:
        return answer[0]

    return await lanes.write_here(run, recover)


async def _submit(lanes: Lanes, drafts: Sequence[records.Draft]) -> list[records.Submitted]:
    """Write what several callers submit."""
    return await lanes.write_here(
        lambda tx: submit(tx, drafts), lambda tx, outcome: submit_recovered(tx, drafts, outcome)
    )


async def _answer(lanes: Lanes, node: int, replies: Sequence[tuple[int, Message]]) -> list[bool]:
    """Write replies; those that did not come in time are looked at in a transaction of their own."""
    made = [queues.Reply(node, task, message, rows.message(message)) for task, message in replies]
    verdicts = await lanes.write_here(
        lambda tx: queues.answer(tx, node, made), lambda tx, outcome: queues.answered(tx, made, outcome)
    )
    missed = [n for n, in_time in enumerate(verdicts) if not in_time]
    if missed:
        doubtful = [made[n] for n in missed]
        second = await _explicit(lanes, partial(queues.late, node=node, replies=doubtful))
        for n, in_time in zip(missed, second, strict=True):
            verdicts[n] = in_time
    return verdicts


def _weight(drafts: Sequence[records.Draft]) -> int:
    return len(drafts) + sum([draft.octets for draft in drafts]) // _HEAVY


def _weight_of_replies(replies: Sequence[tuple[int, Message]]) -> int:
    return len(replies) + sum([len(message.value or b"") for _, message in replies]) // _HEAVY
