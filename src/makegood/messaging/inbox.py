"""The submission process: receives messages from queues and makes a task, or a signal to a task, of each.

What an inbox's function writes, the task with its steps, and the message's acknowledgement are one
transaction of the store's database. After a crash at any moment either all of it is committed, or nothing is
and the message is redelivered. So one task comes of a message, however often the message is delivered.

A message whose function fails is redelivered after growing waits. Past its tries, or at once when it would
fail every time, it goes to the dead letters with an alert. A message whose process dies is redelivered when
its lease has run out. Its tries count too, so a message that kills its process also ends as a dead letter.
"""

import asyncio
import contextlib
import inspect
import logging
import random
import traceback
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base import ids
from makegood.base.clock import Clock
from makegood.base.contexts import fresh, home_context, within
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.durations import retry_after, short_duration
from makegood.base.pacing import event_within
from makegood.base.scrubbed_tracebacks import SCRUBBED_TRACEBACKS
from makegood.base.wrapped_errors import process_end
from makegood.client.lease_keeper import LeaseKeeper
from makegood.client.scheduler_kinds import SchedulerKinds
from makegood.client.signals import of_message, send_sealed
from makegood.client.submission import insert, refuse_conflict, refuse_far, with_options
from makegood.declare.inbox import WITHOUT_ID, Inbox, check_answer, is_final, pause
from makegood.declare.signal import SignalByKey
from makegood.declare.verdicts import verdict_in
from makegood.errors import KeyConflict, Later, MakegoodError, PayloadError, StoreUnavailableError
from makegood.model.plan import Plan
from makegood.model.queue_message import QueueMessage
from makegood.payload.envelopes import decode, fault_text, is_encoded, message_context
from makegood.store.protocol import Store
from makegood.store.queue_records import Returned
from makegood.store.records import IDLE, Submitted
from makegood.store.signals import Signalled
from makegood.telemetry.hooks import Observer
from makegood.transactions import Caller
from makegood.transactions.transaction import Transaction

log = logging.getLogger("makegood.inbox")
log.addFilter(SCRUBBED_TRACEBACKS)

_LAST = 2.0
"""Seconds at the end of a drain in which cancelled functions may finish and messages be released."""
_SHARE = 0.8
"""How much of a message's lease an ``async def`` may use."""


class _LostError(MakegoodError):
    """The message belongs to another meanwhile: nothing was written."""


class _MustWaitError(Exception):
    """A ``def`` has returned a coroutine, as a decorator around an ``async def`` may: nothing was written."""


async def _outcome(fn: Callable[..., Any], payload: Any, tx: Transaction) -> object:
    answer = fn(payload, tx)
    return await answer if inspect.isawaitable(answer) else answer


class Acceptor:
    """Makes a task of one message, in one transaction.

    The transaction covers what the inbox's function writes, the task and the acknowledgement. ``threads``:
    for functions that block, where the store's transactions do not. ``refuse`` raises ``ConfigError`` for a
    ``reply_to`` that nobody serves.
    """

    def __init__(
        self,
        store: Store,
        threads: DaemonThreads,
        *,
        clock: Clock,
        rng: random.Random,
        telemetry: Observer | None,
        refuse: Callable[[str], None] | None = None,
    ) -> None:
        self._store = store
        self._refuse = refuse
        self._threads = threads
        self._draw = ids.TaskIdSource(clock, rng).draw
        self._telemetry = telemetry
        self._kinds = SchedulerKinds()
        self._context = home_context()

    async def accept(self, inbox: Inbox[Any], message: QueueMessage) -> Submitted | Signalled | None:
        """Run the inbox's function, submit its plan or send its signal, and acknowledge the message, in one
        transaction.
        """
        registry = inbox.registry
        if is_encoded(message.body):
            context = message_context(inbox.queue, message.id)
            payload = inbox._read(await decode(registry.codec, message.body, context))
        else:
            payload = inbox._read(message.body)

        async def work(caller: Caller) -> Submitted | Signalled | None:
            tx = Transaction(caller, None if caller.blocks else asyncio.get_running_loop(), message)
            with self._trace(message):
                content = check_answer(inbox, await self._call(inbox, payload, tx))
                answer: Submitted | Signalled | None = None
                if isinstance(content, SignalByKey):
                    answer = await self._signal(caller, content, message)
                elif content is not None:
                    answer = await self._submit(caller, content, message)
            if not await self._store.queues.accept(caller, (message.seq, message.tries)):
                raise _LostError(f"message {message.id} is not ours any more")
            return answer

        async def begin(caller: Caller) -> Submitted | Signalled | None:
            # on SQLite a def function runs in the store's own thread, whose context is nobody's
            return await within(fresh(self._context), work(caller))

        idle = max(IDLE, inbox.lease)
        try:
            return await self._store.transact(begin, waits=inbox.waits, idle=idle)
        except _MustWaitError:  # from now on it is called where its coroutine can be awaited
            inbox.waits = True
            return await self._store.transact(begin, waits=True, idle=idle)

    def _trace(self, message: QueueMessage) -> AbstractContextManager[object]:
        """Return a context in which work belongs to the trace of the message's sender, where tracing is
        on.
        """
        return nullcontext() if self._telemetry is None else self._telemetry.receiving(message.headers)

    async def _call(self, inbox: Inbox[Any], payload: Any, tx: Transaction) -> object:
        if inbox.waits:
            limit = asyncio.timeout(inbox.lease * _SHARE)
            try:
                async with limit:
                    return await inbox.registry.around.awaiting(_outcome, inbox.fn, payload, tx)
            except TimeoutError as late:
                if limit.expired():
                    raise TimeoutError(
                        f"{inbox.where} took longer than {short_duration(inbox.lease * _SHARE)}, four fifths of its lease: raise lease= at the inbox"
                    ) from late
                raise
        if tx.caller.blocks:  # its transaction keeps every other receiver away
            answer = inbox.registry.around.call(inbox.fn, payload, tx)
        else:
            call = partial(fresh().run, inbox.registry.around.call, inbox.fn, payload, tx)
            keeper = self._keeper(inbox, tx.message)
            try:
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, call)
            finally:
                keeper.stop()
        if inspect.isawaitable(answer):
            if inspect.iscoroutine(answer):
                answer.close()
            raise _MustWaitError
        return answer

    @classmethod
    def came_from_the_function(cls, fault: BaseException) -> bool:
        """Return whether an error was raised in the call of an inbox's function."""
        call = cls._call.__code__
        return any(frame.f_code is call for frame, _ in traceback.walk_tb(fault.__traceback__))

    def _keeper(self, inbox: Inbox[Any], message: QueueMessage) -> LeaseKeeper:
        """Extend the message's lease while a function works that cannot be cancelled."""

        async def hold() -> bool:
            return (await self._store.queues.hold_messages([(message.seq, message.tries)], inbox.lease))[0]

        what = f"message {message.id} of {inbox.where}"
        return LeaseKeeper(hold, what, lease=inbox.lease, tries=inbox.retry.tries)

    async def _submit(self, caller: Caller, plan: Plan[Any], message: QueueMessage) -> Submitted:
        if WITHOUT_ID in message.headers and plan.key is None:
            raise PayloadError(
                f"the message from {message.headers[WITHOUT_ID]} has no id, so nobody could know it again if it came twice: give the "
                "plan a key (`.with_(key=...)`), or let its sender say an id"
            )
        draft = plan.with_(
            correlation_id=plan.correlation_id or message.correlation_id,
            reply_to=plan.reply_to or message.reply_to,
        )
        plan = with_options(draft)
        if self._refuse is not None and plan.reply_to is not None:
            self._refuse(plan.reply_to)
        refuse_far(plan, self._store.tasks)
        watch = None if self._telemetry is None else self._telemetry.submitted
        write = partial(self._store.tasks.join, caller)
        checking = write if caller.blocks else self._kinds.checking(self._store, write)
        (answer,) = await insert([plan], self._draw, checking, watch)
        refuse_conflict(plan, answer)
        return answer

    async def _signal(self, caller: Caller, content: SignalByKey, message: QueueMessage) -> Signalled:
        signal = of_message(content, message.id)
        join = partial(self._store.tasks.join_signal, caller)
        answer = await send_sealed(signal, content.codec, content.app, join)
        if answer.conflict:
            raise KeyConflict(
                f"task {answer.task} knows a signal {signal.name!r} of the id {signal.id!r} with another value, or for another step: pass id= to "
                f"Signal.of for another signal",
                task_id=answer.task,
                key=signal.id,
            )
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
                await event_within(wake, rest)
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
                return None  # whoever ends wakes
            async with self.handing_over:
                handover = await self._store.queues.receive_messages(
                    inbox.queue, self._name, free, inbox.lease, inbox.retry.tries
                )
                for message in handover.messages:
                    self._begin(message)
            if handover.dead:
                log.error("%s: %d messages put to the dead letters", inbox.where, handover.dead)
            if handover.rest is None or handover.rest > 0:
                poll = self._poll
                rests = [
                    r for r in (handover.rest, poll and poll * self._rng.uniform(0.8, 1.2)) if r is not None
                ]
                return min(rests, default=None)
        return None

    def _begin(self, message: QueueMessage) -> None:
        task = asyncio.get_running_loop().create_task(self._one(message), name=f"inbox {self.inbox.queue}")
        self.running[task] = None
        task.add_done_callback(self._finish)

    def _finish(self, task: "asyncio.Task[None]") -> None:
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
        except asyncio.CancelledError as cancellation:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # the process is to end
                await asyncio.shield(self._give_back(message, 0.0, "", counts=False))
                raise
            await self._handle_failure(message, cancellation)  # nobody stopped it: the user's code raised it
        except _LostError:
            log.warning(
                "message %s of %s belongs to another process by now: it took longer than its lease of %s; nothing that it wrote was kept",
                message.id, self.inbox.where, short_duration(self.inbox.lease),
            )  # fmt: skip
        except StoreUnavailableError as away:
            log.warning(
                "message %s of %s is redelivered after its lease: %s", message.id, self.inbox.where, away
            )
        except (KeyboardInterrupt, GeneratorExit):  # somebody ends this very process, or this coroutine
            raise
        except BaseException as fault:
            if (end := process_end(fault)) is not None:
                raise end from fault
            now = self._clock.wall()
            finding = verdict_in(fault, now)
            if finding is not None and isinstance(finding.verdict, Later):
                await self._give_back(
                    message, retry_after(finding.verdict.wait, now), self._text(fault), counts=False
                )
            else:
                await self._handle_failure(message, fault)
        else:
            match answer:
                case None:
                    result = "no task"
                case Signalled(task=address):
                    result = f"a signal to task {address}"
                case _:
                    result = f"task {ids.show(answer.id)}"
            log.debug("message %s of %s made %s", message.id, self.inbox.where, result)

    async def _handle_failure(self, message: QueueMessage, fault: BaseException) -> None:
        error = self._text(fault, with_type=True)
        dead = message.tries >= self.inbox.retry.tries or is_final(fault)
        level = logging.ERROR if dead else logging.WARNING
        what = "goes to the dead letters" if dead else "is redelivered"
        details = message.id, self.inbox.where, message.tries, what, error
        # What makegood refuses before or after the call of the user's code says in its text what is wrong.
        is_shown = (
            not isinstance(fault, MakegoodError) or Acceptor.came_from_the_function(fault)
        ) and not self.inbox.registry.withholds
        trace = fault if is_shown and self._is_new(fault) else None
        log.log(level, "message %s of %s, delivery %d, %s: %s", *details, exc_info=trace)
        wait = pause(self.inbox.retry, message.tries) * self._rng.uniform(0.5, 1.5)
        await self._give_back(message, wait, error, dead=dead)

    def _text(self, fault: BaseException, *, with_type: bool = False) -> str:
        return fault_text(fault, withhold=self.inbox.registry.withholds, with_type=with_type)

    def _is_new(self, fault: BaseException) -> bool:
        """Whether this kind of fault is new: its traceback is logged once, later ones get one line each."""
        new = type(fault) not in self._met
        self._met.add(type(fault))
        return new

    async def _give_back(
        self, message: QueueMessage, wait: float, error: str, *, dead: bool = False, counts: bool = True
    ) -> None:
        entry = Returned((message.seq, message.tries), wait, error, dead, counts)
        try:
            (ours,) = await self._store.queues.return_messages([entry])
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
    wake-up arrives, None = never. ``telemetry``: the observer. ``refuse``: see ``Acceptor``.
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
        refuse: Callable[[str], None] | None = None,
    ) -> None:
        inbox_list = tuple(inboxes)
        for inbox in inbox_list:
            inbox._prepare()
        self._threads = DaemonThreads(max(1, sum(inbox.concurrency for inbox in inbox_list)), "inbox")
        acceptor = Acceptor(store, self._threads, clock=clock, rng=rng, telemetry=telemetry, refuse=refuse)
        self._readers = [
            _Reader(inbox, store, acceptor, name=name, clock=clock, rng=rng, poll=poll)
            for inbox in inbox_list
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
