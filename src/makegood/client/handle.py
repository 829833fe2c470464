"""A task as its submitter sees it: its state, result and history, and the acts on it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar, Unpack, overload

import msgspec

from makegood.base import ids
from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration, seconds
from makegood.base.secret_names import COVER
from makegood.client import signals
from makegood.client.encoded_tasks import (
    Reasons,
    has_encoded_text,
    legible,
    legible_event,
    plain_result,
    refuse_encoded,
    stored_result,
)
from makegood.client.opened_store import OpenedStore
from makegood.client.operators import Acts
from makegood.client.replanning import check_arguments, payload_limit_of, replan, stored_plan, try_act
from makegood.client.signal_answers import Question, ask
from makegood.client.signals import AnswerOptions, SignalOptions
from makegood.client.step_waiters import StepWaiters
from makegood.client.waiters import Rested, Waiters, missing
from makegood.declare.action import Action
from makegood.declare.sealed_values import is_sealed
from makegood.declare.signal import Signal
from makegood.errors import (
    ActRefusedError,
    ConfigError,
    TaskInError,
    TaskNotFoundError,
    TaskUndone,
    WaitExpiredError,
)
from makegood.model.messages import Answer, MessageKind, TaskMessage
from makegood.model.plan import Plan
from makegood.model.states import AT_REST
from makegood.payload.codec import decode, decoder, encode
from makegood.payload.envelopes import Codec, describe, is_codec, is_encoded
from makegood.store.signals import Signalled, TaskKey
from makegood.store.views import EventView, StepView, TaskDetail, TaskView
from makegood.story.undo_preview import undone_text
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
V = TypeVar("V")

_LATE: Final = 10.0
"""Seconds for which an event that was read is read again: one before it may be committed later."""


@dataclass(frozen=True, slots=True)
class TaskAccess:
    """What the task handles of one client share."""

    opened_store: OpenedStore
    waiters: Waiters
    acts: Acts
    steps: StepWaiters
    apps: list[App] = field(default_factory=list)
    """The apps whose code is in this process, as far as the client knows."""
    codec: Codec | None = None
    """What opens the values of apps whose code is not in this process."""
    codecs: dict[str, Codec] = field(default_factory=dict)
    """The codecs of apps, by name, as far as the client has met them."""

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for what is no codec."""
        if self.codec is not None and not is_codec(self.codec):
            raise ConfigError(
                f"codec={self.codec!r:.60}: pass a codec, such as mg.codecs.Encrypted(keys), or the one of an app, shop.codec"
            )

    def codec_of(self, app: str) -> Codec | None:
        """Return what opens the values of an app's tasks; None: nothing that the client knows."""
        return self.codecs.get(app, self.codec)

    async def legible(self, view: TaskView) -> TaskView:
        """Return a task with the reason of an ``mg.fail`` in its cause decoded, as far as the client can."""
        codec = self.codec_of(view.app)
        if codec is None or not has_encoded_text(view.cause):
            return view
        detail = await self.opened_store.ready().tasks.detail(view.id)
        if detail is None:
            return view
        return msgspec.structs.replace(view, cause=await Reasons(codec, detail).legible(view.cause))

    @property
    def sender(self) -> signals.SignalSender:
        """What sends signals."""
        return signals.SignalSender(self.opened_store, self.acts, self._signal)

    def _signal(self, app: str, name: str) -> Signal[Any] | None:
        """Return a signal of an app, "" for any, by its name, to encode its values: as the app declares it,
        where its code is in this process, else one of any type. None: the client knows no codec of the app.
        """
        for each in self.apps:
            if app in ("", each.name) and name in each.signals:
                return each.signals[name]
        codec = self.codec_of(app)
        return None if codec is None else Signal(name, Any, app, codec)


@judge_calls(ConfigError, values=True, own=("wait", "result"), constructor=False)
class TaskHandle(Generic[R_co]):
    """One task.

    ``id`` is the form for people, ``number`` the form in the store. ``created`` is False when the key already
    had a task.
    """

    def __init__(
        self, access: TaskAccess, number: int, returns: Any, *, created: bool, exists: bool = False
    ) -> None:
        self._exists = exists
        self.number = number
        self.created = created
        self._access = access
        self.returns = returns

    @property
    def id(self) -> str:
        """The task's id: 13 letters and digits."""
        return ids.show(self.number)

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    async def status(self) -> TaskDetail:
        """Return the task with its steps as they are now. Raises ``TaskNotFoundError``, ``ClosedError``.

        Encoded values are decoded if the client has their codec and key; else they are returned encoded.
        """
        detail = await self._detail()
        return await legible(self._access.codec_of(detail.task.app), detail)

    async def _detail(self) -> TaskDetail:
        """Return the task as it is stored. Raises ``TaskNotFoundError``, ``ClosedError``."""
        detail = await self._access.opened_store.ready().tasks.detail(self.number)
        if detail is None:
            raise missing(self.number)
        return detail

    async def wait(self, timeout: Duration | None = None) -> TaskView:
        """Wait until the task is at rest: processed, undone or in error.

        Raises ``WaitExpiredError`` and ``TaskNotFoundError``.
        """
        return await self._access.legible((await self._wait_for_rest(timeout)).view)

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the task's end and return its result, decoded to the workflow's return type.

        ``timeout``: seconds or a duration, None = forever. Raises ``TaskUndone`` (cause, undone, standing),
        ``TaskInError`` (cause, standing: an operator is needed) or ``WaitExpiredError`` (the task continues),
        and ``CodecError`` for a result that is encoded and that the client cannot open.
        """
        end = await self._wait_for_rest(timeout)
        if end.view.state == "processed":
            data = end.view.result or b"null"
            if is_encoded(data):
                data = await plain_result(self._access.codec_of(end.view.app), end.view)
            return self._decode(data)
        raise await self._outcome(end)

    async def _outcome(self, end: Rested) -> TaskUndone | TaskInError:
        """Return what to raise for a task that came to rest without a result."""
        view, all_steps = end.view, end.steps
        if all_steps is None:
            detail = await self.status()
            all_steps, cause = detail.steps, detail.task.cause or view.cause
        else:
            cause = (await self._access.legible(view)).cause
        steps = [s for s in all_steps if s.kind == "action"]
        standing = tuple(s.name for s in steps if s.stands)
        if view.state == "undone":
            undone_steps = tuple(s.name for s in steps if s.state == "undone")
            text = undone_text(self.number, cause, steps)
            return TaskUndone(text, task_id=self.id, cause=cause, undone=undone_steps, standing=standing)
        problems = [
            f"the undo of {s.name} failed ({s.error or 'no reason recorded'})"
            for s in steps
            if s.state == "undo_failed"
        ]
        return TaskInError(
            f"task {self.id} needs an operator: {'; '.join([describe(cause) or 'no cause recorded', *problems])}; in place or in doubt: "
            f"{', '.join(standing) or 'nothing'} (`makegood task show {self.id}`)",
            task_id=self.id, cause=cause, standing=standing,
        )  # fmt: skip

    def _decode(self, data: bytes) -> R_co:
        try:
            value: R_co = decoder(self.returns, "the workflow's result")(data)
        except Exception:  # noqa: BLE001 - see ``codec.decode``
            value = decode(data, self.returns, f"the result of task {self.id}")  # raises, and names the task
        return value

    async def _wait_for_rest(self, timeout: Duration | None) -> Rested:
        limit = seconds(timeout, name="timeout") if timeout is not None else None
        if not self._exists:
            detail = await self.status()  # raises for a task that is not there: nobody would ever end it
            self._exists = True
            if detail.task.state in AT_REST:
                return Rested(detail.task, detail.steps)
        end = await self._access.waiters.wait_for_rest(self.number, limit)
        if end is None:
            text = f"task {self.id} did not end within {limit:g} s; the task continues, ask again later"
            raise WaitExpiredError(text, task_id=self.id)
        return end

    async def events(self, *, follow: bool = True) -> AsyncIterator[EventView]:
        """Yield the task's history in order; with ``follow``, continue until the task is at rest.

        On PostgreSQL, an event of one process may be committed after a later one of another process; it then
        comes after that one.
        """
        last_seq, recent = 0, dict[int, float]()
        while True:
            events, rests = await self._look(last_seq)
            now = asyncio.get_running_loop().time()
            for event in events:
                if event.seq not in recent:
                    recent[event.seq] = now
                    yield event
            for seq in [seq for seq, since in recent.items() if since < now - _LATE]:
                last_seq = max(last_seq, seq)
                del recent[seq]
            if rests or not follow:
                return
            await asyncio.sleep(0.1)

    async def _look(self, after: int = 0) -> tuple[list[EventView], bool]:
        """Return the events after sequence number ``after``, and whether there will be no more until somebody
        acts.
        """
        detail = await self._detail()
        events = await self._access.opened_store.store.tasks.history(self.number, after=after)
        if is_sealed(detail.returns):
            codec = self._access.codec_of(detail.task.app)
            names = {step.idx: step.name for step in detail.steps}
            reasons = None if codec is None else Reasons(codec, detail)
            events = [await legible_event(codec, self.number, names, event, reasons) for event in events]
        return events, detail.task.state in AT_REST

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
        self,
        *,
        step: str | None = None,
        inputs: Mapping[str, Any] | Sequence[Any] | Plan[Any] | None = None,
        workflow: Workflow[..., Any] | None = None,
        dry_run: bool = False,
        why: str = "",
        who: str | None = None,
        timeout: Duration | None = "30s",
    ) -> Answer:
        """Restart a task in error or an undone one: what failed or was undone runs in a new round, under a
        new key.

        ``step`` with ``inputs``: arguments of that step by name. They replace those it was given; the others
        stay. ``inputs`` alone: all inputs of the workflow, in order. They must fit the annotations, as in
        ``submit``, where the code is known: to a node's own client, or from ``workflow``.

        With ``workflow``, and without ``step``, its function plans again with the inputs: the plan must have
        the same steps, and those that run get its arguments. Without it, makegood refuses the inputs where
        the function may have made arguments of them. With it, ``inputs`` may also be a plan that the workflow
        has made: a dry run and the command after it then use the very same plan, whatever the function draws
        or reads.

        A step that is done keeps its effect; a step in doubt keeps its arguments. The audit keeps the old and
        the new values.

        ``dry_run``: change nothing, and return what would be answered now; the answer's ``change`` lists the
        arguments.

        >>> async def repair(task):
        ...     await task.resubmit(step="charge", inputs={"card": "another"}, why="the old one had expired")
        """
        if inputs is None:
            if step is not None or workflow is not None:
                subject = f"step={step!r}" if workflow is None else f"workflow={workflow.name}"
                raise ConfigError(
                    f"{subject} goes with inputs=: the step's arguments by name, or all inputs of the workflow"
                )
            return await self._act("resubmit", who, why, timeout, dry_run=dry_run)
        if step is None:
            if isinstance(inputs, Mapping | str | bytes):
                raise ConfigError(
                    "inputs: a list of all inputs of the workflow, in order ('[...]' on the command line). An object by name corrects the "
                    "arguments of one step: name it with step= (--step NAME)"
                )
            idx = -1
            detail = await self._detail()
            if workflow is not None:
                value = replan(workflow, detail, await stored_plan(workflow, detail, inputs))
            elif isinstance(inputs, Plan):
                raise ConfigError(
                    f"inputs= is a plan: pass workflow={inputs.workflow} as well, which made it"
                )
            else:
                refuse_encoded(detail)
                await self._check_inputs(inputs)
                limit = payload_limit_of(detail.steps)
                each = [encode(one, limit, f"input {n} of the workflow") for n, one in enumerate(inputs, 1)]
                value = b"[%b]" % b",".join(each)
        else:
            if not isinstance(inputs, Mapping):
                raise ConfigError(f"inputs: the arguments of {step} by name")
            refuse_encoded(await self._detail())
            task, view = await self._step(step)
            self._check_arguments(task, view, inputs, workflow)
            value = encode(dict(inputs), payload_limit_of([view]), f"the arguments of {step}", around=1)
            idx = view.idx
        return await self._act("resubmit", who, why, timeout, dry_run=dry_run, idx=idx, value=value)

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
        """State the outcome of a step of a task in error.

        ``outcome``: ``done`` (with its result as ``value``), ``failed`` (certainly not done, and nothing of
        it can still arrive), or ``undone``.
        """
        if outcome not in ("done", "failed", "undone"):
            raise ConfigError(f'outcome={outcome!r}: "done", "failed" or "undone"')
        task, view = await self._step(step)
        body = None
        if outcome == "done":
            body = encode(value, payload_limit_of([view]), f"the result of step {step}")
            body = await stored_result(self._access.codec_of(task.app), task, view, body)
        return await self._act("settle", who, why, timeout, idx=view.idx, value=body, settled=outcome)

    async def extend(
        self, more: Duration, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s"
    ) -> Answer:
        """Move the deadline of a task that goes forward: ``more`` later, at most a week from now.

        Steps keep their deadlines. Raises ``ActRefusedError`` when the task has no deadline that counts.

        >>> async def wait_for_the_carrier(task):
        ...     await task.extend("2h", why="the carrier answers again at six")
        """
        return await self._act("extend", who, why, timeout, wait=seconds(more, name="more"))

    async def release_lane(
        self, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s"
    ) -> Answer:
        """Take the lanes of a task in error away, so that the next tasks in them go.

        If it continues after that, by resubmission or undo, it waits for its lanes like every other task.
        Raises ``ActRefusedError`` for a task that is not in error, or holds no lane.
        """
        return await self._act("release_lane", who, why, timeout)

    async def wake(
        self,
        *,
        step: str | None = None,
        why: str = "",
        who: str | None = None,
        timeout: Duration | None = "30s",
    ) -> Answer:
        """Let a task that sleeps continue now: begin before its start, or end its ``mg.sleep`` steps.

        ``step``: the one sleep to end. A task that does not sleep stays as it is
        (``noop``). Raises ``TaskNotFoundError`` for an unknown step.
        """
        idx = -1 if step is None else (await self._step(step))[1].idx
        return await self._act("wake", who, why, timeout, idx=idx)

    @overload
    async def signal(
        self,
        signal: Signal[V],
        value: V,
        /,
        **options: Unpack[SignalOptions],
    ) -> Signalled: ...

    @overload
    async def signal(
        self,
        signal: Signal[None] | str,
        value: Any = None,
        /,
        **options: Unpack[SignalOptions],
    ) -> Signalled: ...

    @overload
    async def signal(
        self,
        signal: Signal[V],
        value: V,
        /,
        *,
        until: Action[..., R],
        **options: Unpack[AnswerOptions],
    ) -> R: ...

    @overload
    async def signal(
        self,
        signal: Signal[V],
        value: V,
        /,
        *,
        until: str,
        **options: Unpack[AnswerOptions],
    ) -> Any: ...

    @overload
    async def signal(
        self,
        signal: Signal[None] | str,
        value: Any = None,
        /,
        *,
        until: Action[..., R],
        **options: Unpack[AnswerOptions],
    ) -> R: ...

    @overload
    async def signal(
        self,
        signal: Signal[None] | str,
        value: Any = None,
        /,
        *,
        until: str,
        **options: Unpack[AnswerOptions],
    ) -> Any: ...

    async def signal(
        self,
        signal: Any,
        value: Any = None,
        /,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        step: str | None = None,
        who: str | None = None,
        why: str = "",
        connection: Any = None,
        until: Any = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Send a signal with a value to the task: see ``Client.signal``."""
        return await send_signal(
            self._access, self.number, signal, value,
            id=id, step=step, connection=connection, who=who, why=why, until=until, timeout=timeout,
        )  # fmt: skip

    async def _step(self, name: str) -> tuple[TaskView, StepView]:
        detail = await self._detail()
        view = next((s for s in detail.steps if s.name == name), None)
        if view is None:
            names = ", ".join(s.name for s in detail.steps)
            raise TaskNotFoundError(f"task {self.id} has no step {name!r}; it has {names}", task_id=self.id)
        return detail.task, view

    async def _check_inputs(self, inputs: Sequence[Any]) -> None:
        """Raise ``PayloadError`` for inputs that the workflow does not take, if its code is known."""
        task = (await self.status()).task
        for app in self._access.apps:
            workflow = app._find_workflow(task.workflow) if app.name == task.app else None
            if workflow is not None:
                workflow._check_inputs(inputs)

    def _check_arguments(
        self, task: TaskView, step: StepView, inputs: Mapping[str, Any], workflow: Workflow[..., Any] | None
    ) -> None:
        """Raise ``PayloadError`` for arguments that the step's action does not take, if its code is known."""
        if workflow is not None and not workflow.address.startswith(f"{task.app}."):
            raise ConfigError(
                f"task {self.id} is one of {task.app}.{task.workflow}, not of {workflow.address}: pass the workflow that it was submitted with"
            )
        agents = [app.agents.get(step.agent) for app in self._access.apps if app.name == task.app]
        actions = [agent._find(step.action) for agent in agents if agent is not None]
        for action in actions if workflow is None else [workflow._find_action(step.agent, step.action)]:
            if action is not None and step.kind == "action":
                check_arguments(action, step.name, inputs)

    async def _act(
        self,
        kind: MessageKind,
        who: str | None,
        why: str,
        timeout: Duration | None,
        *,
        dry_run: bool = False,
        **fields: Any,
    ) -> Answer:
        detail = await self._detail()
        if detail.unreadable:
            in_place = ", ".join(s.name for s in detail.steps if s.stands) or "nothing"
            raise ActRefusedError(
                f"nothing can decide about task {self.id}: {'; '.join(detail.unreadable)}. Put those rows back from a backup and ask "
                f"again; or repair by hand, at the services, what is or may be in place ({in_place}), and acknowledge its alert "
                f"(`makegood alerts --task {self.id}`)",
                act=kind,
                state=detail.task.state,
            )
        if kind == "release_lane" and _has_released(detail):
            raise ActRefusedError(
                f"{kind} of task {self.id} is not allowed: it holds no lane any more",
                act=kind,
                state=detail.task.state,
            )
        if f'"{COVER}"'.encode() in (fields.get("value") or b""):
            raise ConfigError(
                f"a value is {COVER}, which stands for one that was covered: give the value itself (`makegood task show {self.id} --uncovered`)"
            )
        message = msgspec.structs.replace(TaskMessage(kind, act=self._access.acts.new(who, why)), **fields)
        if dry_run:
            answer = try_act(detail, message)
            if answer.verdict == "refused":
                text = f"{kind} of task {self.id} would be refused: {answer.outcome}"
                raise ActRefusedError(text, act=kind, state=answer.state)
            return answer
        return await self._access.acts.leave(self.number, message, timeout=timeout)


def _has_released(detail: TaskDetail) -> bool:
    """Whether a task in error had lanes and holds none: the rules do not know who holds a lane."""
    places = {place.place for place in detail.lanes}
    return detail.task.state == "error" and bool(places) and "held" not in places


async def send_signal(
    access: TaskAccess,
    to: int | TaskKey,
    signal: Any,
    value: Any,
    *,
    until: str | Action[..., Any] | None,
    timeout: Duration | None,
    **options: Any,
) -> Any:
    """Send a signal and return what was sent, or with ``until`` its answer: see ``Client.signal``."""
    if until is None and timeout is None:
        return await signals.send(access.sender, to, signal, value, **options)
    question = Question(to, signal, value, until, timeout, access.codec_of)
    return await ask(access.sender, access.steps, question, **options)
