"""The client: submits tasks, waits for them, and carries operators' acts.

A client needs no role to run beside it: all it does is leave rows in the store and look for others.
"""

import asyncio
import getpass
import logging
import random
import socket
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, Unpack, overload

import msgspec

from makegood import ids
from makegood.clock import Clock, SystemClock
from makegood.codec import decode, decoder, encode
from makegood.durations import Duration, seconds
from makegood.errors import (
    ActRefusedError,
    ConfigError,
    DefinitionError,
    KeyConflict,
    StoreUnavailableError,
    TaskInError,
    TaskNotFoundError,
    TaskUndone,
    WaitExpiredError,
)
from makegood.messages import Act, Answer, Message, MessageKind
from makegood.store import Store, open_store
from makegood.store.records import Draft, EventView, Filter, TaskDetail, TaskView
from makegood.task import Plan
from makegood.workflow import Workflow

log = logging.getLogger("makegood.client")

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")

_RECENT = 10_000
"""Tasks submitted here whose end a Scheduler of the same process may tell before anybody waits for it."""

AT_REST = frozenset({"processed", "undone", "error"})
STANDING = frozenset({"done", "in_doubt", "kept", "undoing", "undo_failed", "running"})


class Client:
    """A connection to a store, for submitting and operating tasks.

    ``store`` is a URL (default: MAKEGOOD_STORE, else ``sqlite:///makegood.db``) or an open store, which is then left open.
    ``poll``: seconds between looks at the store behind the wake-ups. ``migrate``: bring an old or empty store up to date.

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
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._owned = store is None or isinstance(store, str)
        self.store: Store = (
            open_store(store, clock=self._clock) if store is None or isinstance(store, str) else store
        )
        self._poll = seconds(poll, name="poll", least=0.001)
        self._migrate = migrate
        self._ids = ids.TaskIds(self._clock, self._rng)
        self._waiting: dict[int, list[asyncio.Future[TaskView | None]]] = {}
        self._near: Callable[[int], bool] | None = None
        self._recent: OrderedDict[int, TaskView | None] = OrderedDict()
        self._look = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._stops: list[Callable[[], None]] = []
        self._rings: dict[asyncio.Event, None] = {}  # in the order in which they were hung up

    async def open(self) -> None:
        """Open the store. Raises ``StoreUnavailableError``, ``SchemaMismatchError`` or ``ConfigError``."""
        if self._owned:
            await self.store.open(migrate=self._migrate)
        self._stops = [self.store.subscribe(topic, self._ring) for topic in ("ended", "answers")]

    async def close(self) -> None:
        """Stop waiting and close the store if this client opened it."""
        for stop in self._stops:
            stop()
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        for waiters in self._waiting.values():
            for waiter in waiters:
                waiter.cancel()
        self._waiting.clear()
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
    ) -> "TaskHandle[R]": ...

    async def submit(  # type: ignore[misc]  # mypy takes *Ts and *Any for different
        self,
        workflow: Any,
        /,
        *inputs: Any,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
    ) -> "TaskHandle[Any]":
        """Run the workflow function once, record its plan as a task, and return a handle once that is durable.

        ``workflow`` with its inputs by position, or a Plan. ``key``: the same key again with the same inputs returns the
        existing task (``created`` is False), with other inputs raises ``KeyConflict``. ``priority``: 0 to 9, 9 first.
        ``correlation_id`` is kept with the task for the caller. Raises ``DefinitionError`` or ``SubmissionError`` for
        misuse, ``StoreUnavailableError`` when nothing could be written: it is then certain that there is no task.
        """
        plan = self._plan(workflow, inputs)
        if key is not None or priority is not None or correlation_id is not None:
            plan = plan.with_(key=key, priority=priority, correlation_id=correlation_id)
        if not 0 <= plan.priority <= 9:
            raise ConfigError(f"priority={plan.priority}: from 0 to 9, 9 first")
        while True:
            draft = _draft(plan, self._ids.draw())
            (answer,) = await self.store.submit([draft])
            if answer.conflict:
                shown = ids.show(answer.id)
                raise KeyConflict(
                    f"task {shown} of {plan.app}.{plan.workflow} has the key {plan.key!r} with other inputs: use another key, "
                    f"or submit the same inputs to get that task",
                    task_id=shown,
                    key=plan.key or "",
                )
            if not answer.collided:
                if self._near is not None and answer.created:
                    self._recent[answer.id] = None
                    if len(self._recent) > _RECENT:
                        self._recent.popitem(last=False)
                return TaskHandle(self, answer.id, plan.returns_type, created=answer.created, known=True)

    @staticmethod
    def _plan(workflow: Any, inputs: tuple[Any, ...]) -> Plan[Any]:
        if isinstance(workflow, Plan):
            if inputs:
                raise DefinitionError(
                    "a Plan has its inputs already: submit(plan), or submit(workflow, *inputs)"
                )
            return workflow
        if not isinstance(workflow, Workflow):
            raise DefinitionError(
                f"submit() takes a function decorated with @app.workflow(...), or a Plan, not {type(workflow).__name__}"
            )
        return workflow.plan(*inputs)

    # -- finding --------------------------------------------------------------------------------------------------------

    def task(self, task_id: str | int, returns: Any = None) -> "TaskHandle[Any]":
        """Return a handle to an existing task; nothing is looked up yet. ``returns``: type to decode the result to."""
        return TaskHandle(
            self, task_id if isinstance(task_id, int) else ids.parse(task_id), returns, created=False
        )

    async def find(self, wanted: Filter | None = None) -> list[TaskView]:
        """Return tasks that match, newest first."""
        return await self.store.find(wanted or Filter())

    # -- waiting --------------------------------------------------------------------------------------------------------

    def ended(self, view: TaskView) -> None:
        """Tell the waiters of a task that it came to rest: called by a Scheduler of the same process."""
        waiting = self._waiting.pop(view.id, None)
        if waiting is None and view.id in self._recent:
            self._recent[view.id] = view
        for waiter in waiting or ():
            if not waiter.done():
                waiter.set_result(view)

    def waits_for(self, task: int) -> bool:
        """Return whether somebody waits for this task here, or may do so yet because it was submitted here."""
        return task in self._waiting or task in self._recent

    def beside(self, holds: Callable[[int], bool]) -> None:
        """Say that a Scheduler of the same process tells of the end of tasks that it ``holds``: they are not looked for."""
        self._near = holds

    async def rested(self, task: int, limit: float | None = None) -> TaskView | None:
        """Return the task once it is at rest (processed, undone, error), None when it is not within ``limit`` seconds."""
        submitted_here = task in self._recent
        if (ended := self._recent.pop(task, None)) is not None:
            return ended
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[TaskView | None] = loop.create_future()
        self._waiting.setdefault(task, []).append(waiter)
        if self._watcher is None or self._watcher.done():
            self._watcher = loop.create_task(self._watch(), name="client watch")
        if not submitted_here:  # it may have ended before anybody here waited for it
            self._look.set()
        alarm = None if limit is None else loop.call_later(limit, _give_up, waiter)
        try:
            return await waiter
        finally:
            if alarm is not None:
                alarm.cancel()
            if (left := self._waiting.get(task)) is not None:
                if waiter in left:
                    left.remove(waiter)
                if not left:
                    del self._waiting[task]

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
            wanted = [task for task in self._waiting if self._near is None or not self._near(task)]
            try:
                for start in range(0, len(wanted), 500):
                    some = tuple(wanted[start : start + 500])
                    for view in await self.store.find(Filter(ids=some, limit=len(some))):
                        if view.state in AT_REST:
                            self.ended(view)
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
        assert message.act is not None
        limit = seconds(timeout, name="timeout") if timeout is not None else None
        self._recent.pop(task, None)  # its end, if it had come, is no longer its end
        ring = asyncio.Event()
        self._rings[ring] = None
        try:
            await self.store.post(task, message)
            async with asyncio.timeout(limit):
                while True:
                    ring.clear()
                    answer = (await self.store.answers([message.act.id])).get(message.act.id)
                    if answer is not None:
                        break
                    try:
                        async with asyncio.timeout(min(self._poll, 0.25)):
                            await ring.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            raise WaitExpiredError(
                f"no scheduler answered {message.kind!r} of task {ids.show(task)} within {limit:g} s; it will be decided when one runs "
                f"(`makegood agents` shows what runs)",
                task_id=ids.show(task),
            ) from None
        finally:
            self._rings.pop(ring, None)
        if answer.verdict == "refused":
            raise ActRefusedError(
                f"{message.kind} of task {ids.show(task)} is refused: {answer.reason}",
                act=message.kind,
                state=answer.state,
            )
        return answer

    def new_act(self, who: str | None, why: str) -> Act:
        """Return an act's identity; ``who`` defaults to the user and host of this process."""
        return Act(str(uuid.UUID(int=self._rng.getrandbits(128), version=4)), who or _who(), why)


class TaskHandle(Generic[R_co]):
    """One task. ``id`` is what people see, ``number`` what the store keeps; ``created`` is False when the key had it already."""

    def __init__(
        self, client: Client, number: int, returns: Any, *, created: bool, known: bool = False
    ) -> None:
        self._known = known
        self.number = number
        self.created = created
        self._client = client
        self.returns = returns

    @property
    def id(self) -> str:
        """The task's id: 13 letters and digits."""
        return ids.show(self.number)

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    async def status(self) -> TaskDetail:
        """Return the task with its steps as they are now. Raises ``TaskNotFoundError``."""
        found = await self._client.store.detail(self.number)
        if found is None:
            raise TaskNotFoundError(
                f"there is no task {self.id} in this store: see `makegood task list`", task_id=self.id
            )
        return found

    async def wait(self, timeout: Duration | None = None) -> TaskView:
        """Wait until the task is at rest (processed, undone, error). Raises ``WaitExpiredError``, ``TaskNotFoundError``."""
        return await self._rested(timeout)

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the task's end and return its result, decoded to the workflow's return type.

        ``timeout``: seconds or a duration, None = for ever. Raises ``TaskUndone`` (cause, undone, standing),
        ``TaskInError`` (cause, standing: an operator is needed) or ``WaitExpiredError`` (the task goes on).
        """
        view = await self._rested(timeout)
        if view.state == "processed":
            return self._decoded(view.result or b"null")
        detail = await self.status()
        steps = [s for s in detail.steps if s.kind == "action"]
        cause = detail.task.cause or view.cause
        standing = tuple(s.name for s in steps if s.state in STANDING)
        if view.state == "undone":
            undone = tuple(s.name for s in steps if s.state == "undone")
            raise TaskUndone(
                f"task {self.id} was undone: {cause or 'no cause recorded'}"
                + (f"; harmless effects stand: {', '.join(standing)}" if standing else ""),
                task_id=self.id, cause=cause, undone=undone, standing=standing,
            )  # fmt: skip
        raise TaskInError(
            f"task {self.id} needs an operator: {cause or 'no cause recorded'}; standing or in doubt: {', '.join(standing) or 'nothing'}"
            f" (`makegood task show {self.id}`)",
            task_id=self.id, cause=cause, standing=standing,
        )  # fmt: skip

    def _decoded(self, data: bytes) -> R_co:
        try:
            value: R_co = decoder(self.returns, "the workflow's result")(data)
        except msgspec.MsgspecError:
            value = decode(data, self.returns, f"the result of task {self.id}")  # raises, and names the task
        return value

    async def _rested(self, timeout: Duration | None) -> TaskView:
        limit = seconds(timeout, name="timeout") if timeout is not None else None
        if not self._known:
            await self.status()  # raises for a task that is not there: nobody would ever end it
            self._known = True
        view = await self._client.rested(self.number, limit)
        if view is None:
            raise WaitExpiredError(
                f"task {self.id} did not end within {limit:g} s; it goes on, ask again later", task_id=self.id
            )
        return view

    async def events(self, *, follow: bool = True) -> AsyncIterator[EventView]:
        """Yield the task's history in order; with ``follow`` go on until the task is at rest."""
        seen = 0
        while True:
            view = (await self.status()).task
            for event in await self._client.store.history(self.number, after=seen):
                seen = event.seq
                yield event
            if not follow or view.state in AT_REST:
                return
            await asyncio.sleep(0.1)

    async def cancel(
        self, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s"
    ) -> Answer:
        """Stop the task and undo what was done. Raises ``ActRefusedError``, saying which state won."""
        return await self._act("cancel", who, why, timeout)

    async def undo(
        self, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s"
    ) -> Answer:
        """Undo a task in error or one that was processed."""
        return await self._act("undo", who, why, timeout)

    async def resubmit(
        self, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s"
    ) -> Answer:
        """Start a task in error, or an undone one, again: what failed or was undone runs in a new round."""
        return await self._act("resubmit", who, why, timeout)

    async def settle(
        self,
        step: str,
        *,
        outcome: str = "done",
        value: Any = None,
        why: str = "",
        who: str | None = None,
        timeout: Duration | None = "30s",
    ) -> Answer:
        """State the outcome of a step of a task in error: ``done`` (with its result as ``value``), ``failed`` (certainly not
        done, and nothing of it can still arrive), or ``undone``.
        """
        if outcome not in ("done", "failed", "undone"):
            raise ConfigError(f'outcome={outcome!r}: "done", "failed" or "undone"')
        detail = await self.status()
        idx = next((s.idx for s in detail.steps if s.name == step), None)
        if idx is None:
            known = ", ".join(s.name for s in detail.steps)
            raise TaskNotFoundError(f"task {self.id} has no step {step!r}; it has {known}", task_id=self.id)
        encoded = encode(value, what=f"the result of step {step}") if outcome == "done" else None
        return await self._act("settle", who, why, timeout, idx=idx, value=encoded, settled=outcome)

    async def _act(
        self, kind: MessageKind, who: str | None, why: str, timeout: Duration | None, **fields: Any
    ) -> Answer:
        message = msgspec.structs.replace(Message(kind, act=self._client.new_act(who, why)), **fields)
        return await self._client.act(self.number, message, timeout=timeout)


def _draft(plan: Plan[Any], task_id: int) -> Draft:
    return Draft(
        task_id, plan.app, plan.workflow, plan.steps, plan.inputs, plan.returns, plan.fingerprint, plan.key, plan.priority,
        plan.correlation_id, plan.within, plan.undo_within, plan.on_failure,
    )  # fmt: skip


def _give_up(waiter: "asyncio.Future[TaskView | None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
