"""The client: submits tasks, waits for them, and carries operators' acts.

A client needs no role to run beside it: all it does is leave rows in the store and look for others.
"""

import asyncio
import contextlib
import getpass
import logging
import random
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, TypeVarTuple, Unpack, overload

from makegood.base import ids
from makegood.base.clock import Clock, SystemClock
from makegood.base.deadline_timer import Alarm
from makegood.base.durations import Duration, seconds, shown
from makegood.base.sizes import MIB, Size, size
from makegood.base.text import hostname, kept, refuse_unstorable
from makegood.client.handle import AT_REST, Rested, TaskHandle, missing
from makegood.client.operators import Operators
from makegood.client.queues import LIMIT, MOST_BYTES, Correspondent
from makegood.client.submission import conflict, draft_of, plan_of, with_options
from makegood.client.submit_many import Submitter
from makegood.errors import (
    ActRefusedError,
    ClosedError,
    ConfigError,
    PayloadError,
    StoreUnavailableError,
    WaitExpiredError,
)
from makegood.model.messages import Act, Answer, Message
from makegood.model.plan import Plan
from makegood.store import Store, open_store, store_given
from makegood.store.records import Draft, Submitted
from makegood.store.views import Filter, StepView, TaskView
from makegood.telemetry.hooks import Observer
from makegood.transactions import recognise

log = logging.getLogger("makegood.client")

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_Asked = tuple[Draft, "asyncio.Future[Submitted]"]
"""A draft that a Scheduler of the same process expects, and who waits for what becomes of it."""

_TOGETHER, _TOGETHER_BYTES = (
    250,
    4 * MIB,
)  # of tasks submitted in one turn of the loop that share one call of the store
_RECENT = 10_000
"""Tasks submitted here whose end a Scheduler of the same process may tell before anybody waits for it."""


_RECENT_BYTES = 4096
"""Bytes of the results of such a task up to which its end is kept for that."""


def _octets(rested: Rested) -> int:
    """Return the bytes of the results of a task and its steps."""
    found = len(rested.view.result or b"")
    return found + sum([len(step.result) for step in rested.steps or () if step.result is not None])


class Beside(Protocol):
    """What a client needs of a Scheduler in the same process."""

    def holds(self, task: int) -> bool:
        """Return whether it holds a task, and so tells of its end."""
        ...

    def expect(self, draft: Draft) -> Draft | None:
        """Return a draft as it may be submitted for it to hold from the beginning; None: it must be claimed."""
        ...

    def adopt(self, draft: Draft, *, created: bool) -> None:
        """Take such a task, once its submission was answered."""
        ...


class Client(Submitter, Operators, Correspondent):
    """A connection to a store, for submitting and operating tasks, and for sending and receiving messages.

    ``store`` is a URL (default: MAKEGOOD_STORE, else ``sqlite:///makegood.db``) or an open store, which is then left open.
    ``poll``: seconds between looks at the store behind the wake-ups. ``migrate``: bring an old or empty store up to date.
    ``telemetry``: whose traces submissions are part of, such as ``makegood.telemetry.Telemetry(traces=True)``.
    ``queue_limit``: messages that may wait in a queue to which this client sends; ``queue_bytes``: the bytes of their values, as
    whole bytes or "64MiB".

    >>> async def place(order):
    ...     async with Client("sqlite:///shop.db") as client:
    ...         task = await client.submit(place_order, order, key=order.id)
    ...         return await task.result(timeout="1m")
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        poll: Duration = 1.0,
        migrate: bool = False,
        queue_limit: int = LIMIT,
        queue_bytes: Size = MOST_BYTES,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        telemetry: Observer | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._owned = store is None or isinstance(store, str)
        self.store: Store = (
            open_store(store, clock=self._clock)
            if store is None or isinstance(store, str)
            else store_given(store)
        )
        self._telemetry = telemetry
        self._poll = seconds(poll, name="poll", least=0.001)
        self._open = False
        self._loop: asyncio.AbstractEventLoop
        self._migrate = migrate
        self._queue_limit = queue_limit
        self._queue_bytes = size(queue_bytes, name="queue_bytes")
        self._ids = ids.TaskIdSource(self._clock, self._rng)
        self._waiting: dict[int, list[asyncio.Future[Rested | None]]] = {}
        self._limits: dict[asyncio.Future[Rested | None], float] = {}
        self._alarm = Alarm(self._clock, self._give_up)
        self._near: Beside | None = None
        self._inserting: set[asyncio.Task[list[Submitted | Exception]]] = set()
        self._gathered: list[_Asked] = []
        self._gathered_bytes = 0
        self._recent: OrderedDict[int, Rested | None] = OrderedDict()
        self._look = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._stops: list[Callable[[], None]] = []
        self._rings: dict[asyncio.Event, None] = {}  # in the order in which they were hung up

    async def open(self, *, looking: bool = False) -> None:
        """Open the store. Raises ``StoreUnavailableError``, ``SchemaMismatchError`` or ``ConfigError``.

        ``looking``: without writing and waiting for a lock, which the caller may hold himself.
        """
        if self._owned:
            await self.store.open(migrate=self._migrate, looking=looking)
        self._stops = [self.store.subscribe(topic, self._ring) for topic in ("ended", "answers")]
        self._loop = asyncio.get_running_loop()  # to ask for it costs a call of the system each time
        self._open = True

    @property
    def means(self) -> tuple[Clock, random.Random]:
        """The clock and the source of chance that this client was given."""
        return self._clock, self._rng

    def ready(self) -> None:
        """Raise ``ClosedError`` unless the client is open."""
        if not self._open:
            raise ClosedError(
                "this client is not open: use it inside `async with mg.Client(...) as client:`, or `await client.open()` first"
            )

    async def close(self) -> None:
        """Stop waiting and close the store if this client opened it. Who still waits gets a ``ClosedError``."""
        self._open = False
        for stop in self._stops:
            stop()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        self._alarm.stop()
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(
                        ClosedError("the client was closed while this task was waited for; it goes on")
                    )
        self._waiting.clear()
        if self._inserting:  # their callers have gone; what they write is still taken
            await asyncio.gather(*self._inserting, return_exceptions=True)
        if self._owned:
            await self.store.close()

    async def __aenter__(self) -> Self:
        """Open the client."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    # -- submitting -----------------------------------------------------------------------------------------------------

    @overload
    async def submit(
        self,
        workflow: Callable[[Unpack[Ts]], R],
        /,
        *inputs: *Ts,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        connection: Any = None,
    ) -> "TaskHandle[R]": ...

    @overload
    async def submit(
        self,
        workflow: Plan[R],
        /,
        *,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        connection: Any = None,
    ) -> "TaskHandle[R]": ...

    async def submit(  # type: ignore[misc]  # mypy takes *Ts and *Any for different
        self,
        workflow: Any,
        /,
        *inputs: Any,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        connection: Any = None,
    ) -> "TaskHandle[Any]":
        """Run the workflow function once, record its plan as a task, and return a handle once that is durable.

        ``workflow`` with its inputs by position, or a Plan. ``key``: the same key again with the same inputs returns the
        existing task (``created`` is False), with other inputs raises ``KeyConflict``. ``priority``: 0 to 9, 9 first.
        ``correlation_id`` is kept with the task for the caller. ``reply_to``: where to send notices of the task's states, "queue:NAME"
        or a webhook's "https://…". A task that has the key already keeps the three as they were first submitted. Raises ``DefinitionError`` or ``SubmissionError`` for
        misuse, ``StoreUnavailableError`` when nothing could be written: it is then certain that there is no task.

        ``connection``: record it in the transaction that is open on this connection to the store's own database (sqlite3,
        asyncpg, psycopg, SQLAlchemy, Django): it is there when that is committed, and never was when it is rolled back. Raises
        ``TransactionError`` for a connection that cannot carry it, and whatever its driver raises.
        """
        __tracebackhide__ = True  # pytest shows the line that submitted
        self.ready()
        plan = with_options(plan_of(workflow, inputs), key, priority, correlation_id, reply_to)
        self.may_tell([plan])
        if connection is not None:
            (answer,) = await self.submit_plans([plan], recognise(connection))
            return self.handle(plan, answer, known=False)
        while True:
            answer = await self._insert(plan)
            if answer.conflict:
                raise conflict(plan, answer)
            if not answer.collided:
                if self._near is not None and answer.created:
                    self._recent[answer.id] = None
                    if len(self._recent) > _RECENT:
                        self._recent.popitem(last=False)
                return TaskHandle(self, answer.id, plan.returns_type, created=answer.created, known=True)

    async def _insert(self, plan: Plan[Any]) -> Submitted:
        near = self._near
        draft = draft_of(plan, self._ids.draw())
        if self._telemetry is not None:
            draft = self._telemetry.submitted(draft)
        expected = None if near is None else near.expect(draft)
        if near is None or expected is None:
            (answer,) = await self.store.submit([draft])
            return answer
        # Whatever becomes of the caller, the Scheduler must hear of a task that it holds: hence an asyncio task of its own, one for
        # all that comes before it begins.
        answered: asyncio.Future[Submitted] = self._loop.create_future()
        if not (0 < len(self._gathered) < _TOGETHER and self._gathered_bytes < _TOGETHER_BYTES):
            batch = self._gathered = []
            self._gathered_bytes = 0
            work = self._loop.create_task(self._write(batch))
            self._inserting.add(work)
            work.add_done_callback(partial(self._inserted, near, batch))
        self._gathered.append((expected, answered))
        self._gathered_bytes += expected.octets
        return await answered

    async def _write(self, batch: list[_Asked]) -> list[Submitted | Exception]:
        """Submit what was gathered; returns what became of each."""
        if batch is self._gathered:
            self._gathered = []
        return await self._submitted([draft for draft, _ in batch])

    async def _submitted(self, drafts: Sequence[Draft]) -> list[Submitted | Exception]:
        try:
            return [*await self.store.submit(drafts)]
        except PayloadError as guilty:
            if len(drafts) == 1:
                return [guilty]
        except Exception as fault:  # noqa: BLE001 - it is theirs who called
            return [fault] * len(drafts)
        return [
            answer for draft in drafts for answer in await self._submitted([draft])
        ]  # only the guilty fails

    def _inserted(
        self, near: "Beside", batch: list[_Asked], work: asyncio.Task[list[Submitted | Exception]]
    ) -> None:
        self._inserting.discard(work)
        answers = [None] * len(batch) if work.cancelled() else work.result()
        for (draft, answered), answer in zip(batch, answers, strict=True):
            self._answered(near, draft, answered, answer)

    def _answered(
        self,
        near: "Beside",
        draft: Draft,
        answered: asyncio.Future[Submitted],
        answer: Submitted | Exception | None,
    ) -> None:
        """Tell the Scheduler and the caller what became of a submission; None: it was cancelled."""
        near.adopt(draft, created=isinstance(answer, Submitted) and answer.created)
        if answered.done():
            return
        if isinstance(answer, Submitted):
            answered.set_result(answer)
        elif answer is None:
            answered.cancel()
        else:
            answered.set_exception(answer)

    # -- finding --------------------------------------------------------------------------------------------------------

    def task(self, task_id: str | int, returns: Any = None) -> "TaskHandle[Any]":
        """Return a handle to an existing task; nothing is looked up yet. ``returns``: type to decode the result to."""
        return TaskHandle(
            self, task_id if isinstance(task_id, int) else ids.parse(task_id), returns, created=False
        )

    async def find(self, wanted: Filter | None = None) -> list[TaskView]:
        """Return tasks that match, newest first."""
        self.ready()
        return await self.store.find(wanted or Filter())

    # -- waiting --------------------------------------------------------------------------------------------------------

    def ended(self, view: TaskView, steps: Sequence[StepView] | None = None) -> None:
        """Tell the waiters of a task that it came to rest: called by a Scheduler of the same process, which knows its steps."""
        rested, waiting = Rested(view, steps), self._waiting.pop(view.id, None)
        if waiting is None and view.id in self._recent:
            if _octets(rested) <= _RECENT_BYTES:
                self._recent[view.id] = rested
            else:
                del self._recent[view.id]  # the store has it
        for waiter in waiting or ():
            if not waiter.done():
                waiter.set_result(rested)

    def _lost(self, task: int) -> None:
        """Tell the waiters of a task that the store has it no more: nobody will ever end it."""
        for waiter in self._waiting.pop(task, ()):
            if not waiter.done():
                waiter.set_exception(missing(task))

    def waits_for(self, task: int) -> bool:
        """Return whether somebody waits for this task here, or may do so yet because it was submitted here."""
        return task in self._waiting or task in self._recent

    def beside(self, scheduler: Beside) -> None:
        """Say that a Scheduler of the same process takes tasks submitted here, and tells of the end of those that it holds."""
        self._near = scheduler

    async def rested(self, task: int, limit: float | None = None) -> Rested | None:
        """Return the task once it is at rest (processed, undone, error), None when it is not within ``limit`` seconds."""
        self.ready()
        submitted_here = task in self._recent
        if (ended := self._recent.pop(task, None)) is not None:
            return ended
        waiter: asyncio.Future[Rested | None] = self._loop.create_future()
        self._waiting.setdefault(task, []).append(waiter)
        if self._watcher is None or self._watcher.done():
            self._watcher = self._loop.create_task(self._watch(), name="client watch")
        if not submitted_here:  # it may have ended before anybody here waited for it
            self._look.set()
        if limit is not None:
            moment = self._limits[waiter] = self._clock.monotonic() + limit
            self._alarm.set(moment)
        try:
            return await waiter
        finally:
            if limit is not None:
                del self._limits[waiter]
            if (left := self._waiting.get(task)) is not None:
                if waiter in left:
                    left.remove(waiter)
                if not left:
                    del self._waiting[task]

    def _give_up(self) -> None:
        """Tell those whose time has passed that their task has not come to rest."""
        now = self._clock.monotonic()
        for waiter, moment in self._limits.items():
            if moment <= now and not waiter.done():
                waiter.set_result(None)
        later = [moment for moment in self._limits.values() if moment > now]
        if later:
            self._alarm.set(min(later))

    def _ring(self) -> None:
        if self._waiting:
            self._look.set()
        for ring in self._rings:
            ring.set()

    async def _watch(self) -> None:
        """Look for the end of all tasks that are waited for, with one query, after each ring and slowly without.

        Not of those that a Scheduler of this process holds (``beside``): it tells their end itself.
        """
        pause = 0.05
        rest = 0.005 if self._near is None else 0.05
        while self._waiting:
            self._look.clear()
            wanted = [task for task in self._waiting if self._near is None or not self._near.holds(task)]
            try:
                for start in range(0, len(wanted), 500):
                    some = tuple(wanted[start : start + 500])
                    found = await self.store.find(Filter(ids=some, limit=len(some)))
                    for view in found:
                        if view.state in AT_REST:
                            self.ended(view)
                    for task in set(some) - {view.id for view in found}:
                        self._lost(task)
                pause = 0.05
            except StoreUnavailableError as away:
                log.warning("waiting for %d tasks, the store is away: %s", len(self._waiting), away)
                pause = min(pause * 2, 2.0)
                await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(self._poll * self._rng.uniform(0.8, 1.2)):
                    await asyncio.sleep(rest)  # what ends together is looked for together
                    await self._look.wait()
            except TimeoutError:
                continue

    # -- acts -----------------------------------------------------------------------------------------------------------

    async def act(self, task: int, message: Message, *, timeout: Duration | None) -> Answer:
        """Leave an operator's act in the task's inbox and return what a Scheduler's rules made of it.

        Raises ``ActRefusedError`` when it is refused, ``WaitExpiredError`` when no Scheduler answered in time: the act
        stands in the inbox and will be decided.
        """
        answer = (await self.ask({task: message}, timeout)).get(task)
        name = ids.show(task)
        if answer is None:
            raise WaitExpiredError(
                f"no scheduler answered {message.kind!r} of task {name} within {seconds(timeout or 0.0):g} s; it will be decided when one runs "
                f"(`makegood agents` shows what runs)",
                task_id=name,
            )
        if answer.verdict == "refused":
            outcome = answer.outcome + await self._won(task, answer.act.id)
            raise ActRefusedError(
                f"{message.kind} of task {name} is refused: {outcome}", act=message.kind, state=answer.state
            )
        return answer

    async def ask(self, messages: Mapping[int, Message], timeout: Duration | None) -> dict[int, Answer]:
        """Leave acts, by task, and return the answers that came in time. Raises ``TaskNotFoundError``."""
        self.ready()
        limit = seconds(timeout, name="timeout") if timeout is not None else None
        waiting = {message.act.id: task for task, message in messages.items() if message.act is not None}
        answers: dict[int, Answer] = {}
        ring = asyncio.Event()
        self._rings[ring] = None
        try:
            for task in messages:
                self._recent.pop(task, None)  # its end, if it had come, is no longer its end
            await asyncio.gather(*(self.store.post(task, message) for task, message in messages.items()))
            async with asyncio.timeout(limit):
                while waiting:
                    ring.clear()
                    for act, answer in (await self.store.answers(list(waiting))).items():
                        answers[waiting.pop(act)] = answer
                    if waiting:
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(min(self._poll, 0.25)):
                                await ring.wait()
        except TimeoutError:
            return answers
        finally:
            self._rings.pop(ring, None)
        return answers

    async def _won(self, task: int, act: str) -> str:
        """Say which act on the task was the last one before this, if there was one."""
        for other in await self.store.audit(10, task):
            if other.verdict == "applied" and other.act != act:
                why = f" ({other.why})" if other.why else ""
                ago = max(0.0, await self.store.now() - other.at)
                return f"; the last act on it: {other.kind} by {other.who}{why}, {shown(ago)} ago"
        return ""

    def new_act(self, who: str | None, why: str) -> Act:
        """Return an act's identity; ``who`` defaults to the user and host of this process."""
        refuse_unstorable(ConfigError, who=who, why=why)
        return Act(str(uuid.UUID(int=self._rng.getrandbits(128), version=4)), who or _who(), why or "")


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{kept(user)}@{hostname()}"
