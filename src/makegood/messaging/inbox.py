"""The submission process: receives messages from queues and makes a task of each.

What an inbox's function writes, the task with its steps, and the message's acknowledgement are one
transaction of the store's database. After a crash at any moment either all of it is committed, or nothing is
and the message is redelivered. So one task comes of a message, however often the message is delivered.

A message whose function fails is redelivered after growing waits. Past its tries, or at once when it would
fail every time, it goes to the dead letters with an alert. A message whose process dies is redelivered when
its lease has run out. Its tries count too, so a message that kills its process also ends as a dead letter.
"""

import asyncio
import contextlib
import contextvars
import logging
import random
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base import ids
from makegood.base.clock import Clock
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.durations import retry_after
from makegood.base.pacing import rung
from makegood.base.text import words
from makegood.client.submission import conflict, insert, with_options
from makegood.declare.inbox import Inbox, is_final
from makegood.errors import KeyConflict, Later, MakegoodError, Permanent, StoreUnavailableError
from makegood.model.plan import Plan
from makegood.model.queue_message import QueueMessage
from makegood.store.protocol import Store
from makegood.store.queue_records import Returned
from makegood.store.records import Submitted
from makegood.telemetry.hooks import Observer
from makegood.transactions import Caller
from makegood.transactions.transaction import Transaction

log = logging.getLogger("makegood.inbox")

_LAST = 2.0
"""Seconds at the end of a drain in which cancelled functions may finish and messages be released."""
_SHARE = 0.8
"""How much of a message's lease an ``async def`` may use."""


class _LostError(MakegoodError):
    """The message belongs to another meanwhile: nothing was written."""


class Acceptor:
    """Makes a task of one message, in one transaction.

    The transaction covers what the inbox's function writes, the task and the acknowledgement. ``threads``:
    for functions that block, where the store's transactions do not.
    """

    def __init__(
        self,
        store: Store,
        threads: DaemonThreads,
        *,
        clock: Clock,
        rng: random.Random,
        telemetry: Observer | None,
    ) -> None:
        self._store = store
        self._threads = threads
        self._draw = ids.TaskIdSource(clock, rng).draw
        self._telemetry = telemetry

    async def accept(self, inbox: Inbox[Any], message: QueueMessage) -> Submitted | None:
        """Run the inbox's function, submit its plan and acknowledge the message, in one transaction."""
        payload = inbox._read(message.body)

        async def work(caller: Caller) -> Submitted | None:
            tx = Transaction(caller, None if caller.blocks else asyncio.get_running_loop(), message)
            with self._traced(message):
                plan = inbox._checked(await self._called(inbox, payload, tx))
                answer = None if plan is None else await self._submit(caller, plan, message)
            if not await self._store.queues.accept(caller, (message.seq, message.tries)):
                raise _LostError(f"message {message.id} is not ours any more")
            return answer

        return await self._store.transact(work, waits=inbox.waits)

    def _traced(self, message: QueueMessage) -> AbstractContextManager[object]:
        """Return a context in which work belongs to the trace of the message's sender, where tracing is
        on.
        """
        return nullcontext() if self._telemetry is None else self._telemetry.receiving(message.headers)

    async def _called(self, inbox: Inbox[Any], payload: Any, tx: Transaction) -> object:
        if inbox.waits:
            async with asyncio.timeout(inbox.lease * _SHARE):
                return await inbox.fn(payload, tx)  # type: ignore[misc]  # an async def, as `waits` says
        if tx.caller.blocks:
            return inbox.fn(payload, tx)
        context = contextvars.copy_context()
        call = partial(context.run, inbox.fn, payload, tx)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def _submit(self, caller: Caller, plan: Plan[Any], message: QueueMessage) -> Submitted:
        told = plan.with_(
            correlation_id=plan.correlation_id or message.correlation_id,
            reply_to=plan.reply_to or message.reply_to,
        )
        plan = with_options(told, None, None, None)
        watched = None if self._telemetry is None else self._telemetry.submitted
        (answer,) = await insert([plan], self._draw, partial(self._store.tasks.join, caller), watched)
        if answer.conflict:
            raise conflict(plan, answer)
        return answer


class _Reader:
    """Reads one inbox's queue. ``name``: the process's, as ``queue list`` shows it."""

    def __init__(
        self,
        inbox: Inbox[Any],
        store: Store,
        acceptor: Acceptor,
        *,
        name: str,
        clock: Clock,
        rng: random.Random,
        poll: float | None,
    ) -> None:
        self.inbox = inbox
        self.running: dict[asyncio.Task[None], None] = {}
        """Messages under way, in the order in which they began."""
        self.handing_over = asyncio.Lock()
        """Held while messages are handed over."""
        self._store = store
        self._acceptor = acceptor
        self._name = name
        self._clock = clock
        self._rng = rng
        self._poll = poll
        self._wake = asyncio.Event()
        self._draining = False
        self._met: set[type[BaseException]] = set()

    def end(self) -> None:
        """Take nothing more."""
        self._draining = True
        self._wake.set()

    async def run(self) -> None:
        """Take messages, until cancelled."""
        inbox, wake = self.inbox, self._wake
        stop = self._store.subscribe(f"queue:{inbox.queue}", wake.set)
        setbacks = Setbacks(f"inbox {inbox.queue}", self._store.alerts, self._rng)
        try:
            while True:
                wake.clear()
                rest = await setbacks.turn(self._take, log, "%s takes no messages now: %s", inbox.where)
                await rung(wake, rest)
        finally:
            stop()

    async def _take(self) -> float | None:
        """Receive as many messages as there is room for.

        Returns how long to rest at most, None until a wake-up.
        """
        inbox = self.inbox
        while not self._draining:
            free = inbox.concurrency - len(self.running)
            if free <= 0:
                return None  # whoever ends rings
            async with self.handing_over:
                handed = await self._store.queues.receive_messages(
                    inbox.queue, self._name, free, inbox.lease, inbox.retry.tries
                )
                for message in handed.messages:
                    self._begin(message)
            if handed.dead:
                log.error("%s: %d messages put to the dead letters", inbox.where, handed.dead)
            if handed.rest is None or handed.rest > 0:
                poll = self._poll
                rests = [
                    r for r in (handed.rest, poll and poll * self._rng.uniform(0.8, 1.2)) if r is not None
                ]
                return min(rests, default=None)
        return None

    def _begin(self, message: QueueMessage) -> None:
        task = asyncio.get_running_loop().create_task(self._one(message), name=f"inbox {self.inbox.queue}")
        self.running[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        del self.running[task]
        self._wake.set()
        if not task.cancelled() and (defect := task.exception()) is not None:
            log.error(
                "%s: a message could not be released; it is redelivered", self.inbox.where, exc_info=defect
            )

    async def _one(self, message: QueueMessage) -> None:
        """Make a task of a message, or give it back."""
        try:
            answer = await self._acceptor.accept(self.inbox, message)
        except asyncio.CancelledError as cancelled:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # the process is to end
                await asyncio.shield(self._give_back(message, 0.0, "", counted=False))
                raise
            await self._failed(message, cancelled)  # nobody stopped it: the user's code raised it
        except _LostError:
            log.warning("message %s of %s belongs to another process by now", message.id, self.inbox.where)
        except StoreUnavailableError as away:
            log.warning(
                "message %s of %s is redelivered after its lease: %s", message.id, self.inbox.where, away
            )
        except Later as later:
            wait = retry_after(later.wait, self._clock.wall())
            await self._give_back(message, wait, words(later), counted=False)
        except (KeyboardInterrupt, GeneratorExit):  # somebody ends this very process, or this coroutine
            raise
        except BaseException as fault:  # noqa: BLE001 - whatever the user's function raises
            await self._failed(message, fault)
        else:
            made = "no task" if answer is None else f"task {ids.show(answer.id)}"
            log.debug("message %s of %s made %s", message.id, self.inbox.where, made)

    async def _failed(self, message: QueueMessage, fault: BaseException) -> None:
        error = words(fault, named=True)
        dead = (
            message.tries >= self.inbox.retry.tries
            or is_final(fault)
            or isinstance(fault, Permanent | KeyConflict)
        )
        level = logging.ERROR if dead else logging.WARNING
        what = "goes to the dead letters" if dead else "is redelivered"
        said = message.id, self.inbox.where, message.tries, what, error
        trace = fault if self._is_new(fault) else None
        log.log(level, "message %s of %s, delivery %d, %s: %s", *said, exc_info=trace)
        wait = self.inbox._pause(message.tries) * self._rng.uniform(0.5, 1.5)
        await self._give_back(message, wait, error, dead=dead)

    def _is_new(self, fault: BaseException) -> bool:
        """Whether this kind of fault is new: its traceback is logged once, later ones get one line each."""
        new = type(fault) not in self._met
        self._met.add(type(fault))
        return new

    async def _give_back(
        self, message: QueueMessage, wait: float, error: str, *, dead: bool = False, counted: bool = True
    ) -> None:
        returned = Returned((message.seq, message.tries), wait, error, dead, counted)
        try:
            (ours,) = await self._store.queues.return_messages([returned])
        except StoreUnavailableError as away:
            log.warning(
                "message %s of %s is redelivered after its lease: %s", message.id, self.inbox.where, away
            )
            return
        if not ours:
            log.warning("message %s of %s belongs to another process by now", message.id, self.inbox.where)


class Inboxes(Actor):
    """Runs inboxes.

    ``name``: the process's, as ``queue list`` shows it. ``poll``: seconds between reads of the store when no
    wake-up arrives, None = never. ``telemetry``: the observer.
    """

    def __init__(
        self,
        store: Store,
        inboxes: Iterable[Inbox[Any]],
        *,
        name: str,
        clock: Clock,
        rng: random.Random,
        poll: float | None = 1.0,
        telemetry: Observer | None = None,
    ) -> None:
        declared = tuple(inboxes)
        for inbox in declared:
            inbox._prepare()
        self._threads = DaemonThreads(max(1, sum(inbox.concurrency for inbox in declared)), "inbox")
        acceptor = Acceptor(store, self._threads, clock=clock, rng=rng, telemetry=telemetry)
        self._readers = [
            _Reader(inbox, store, acceptor, name=name, clock=clock, rng=rng, poll=poll) for inbox in declared
        ]

    async def run(self) -> None:
        """Take messages, until cancelled."""
        async with asyncio.TaskGroup() as serving:
            for reader in self._readers:
                serving.create_task(reader.run())

    async def drain(self, limit: float) -> None:
        """Receive no more messages, wait up to ``limit`` seconds for those under way, and release the
        others.
        """
        for reader in self._readers:
            reader.end()
        now = asyncio.get_running_loop().time
        end = now() + limit
        with contextlib.suppress(TimeoutError):
            for reader in self._readers:  # what was asked for before is under way then, or does not come
                async with asyncio.timeout_at(end), reader.handing_over:
                    pass
        if running := self._running():
            await asyncio.wait(running, timeout=max(0.0, end - now()))
        if running := self._running():
            for task in running:
                task.cancel()
            await asyncio.wait(running, timeout=_LAST)
        for reader in self._readers:
            for _ in reader.running:
                text = "%s: a message's function ignores its cancellation; the message is redelivered after its lease"
                log.warning(text, reader.inbox.where)
        self._threads.shutdown()

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for reader in self._readers for task in reader.running]
