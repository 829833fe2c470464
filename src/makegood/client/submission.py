"""Submission: from a workflow and its inputs to the rows that are written, and the handle of their task."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from msgspec.structs import replace

from makegood.base import ids
from makegood.base.clock import iso
from makegood.base.durations import Duration
from makegood.base.text import refuse_unstorable, short_repr
from makegood.client.handle import TaskAccess, TaskHandle
from makegood.client.scheduler_kinds import SchedulerKinds
from makegood.declare.sealed_values import Opener, input_field
from makegood.errors import ConfigError, DefinitionError, KeyConflict, LaneTakenError, PayloadError
from makegood.model import notices
from makegood.model.attributes import LONGEST_INDEXED, Attribute
from makegood.model.lane import Lane
from makegood.model.plan import MOST_DELAY, Plan
from makegood.model.shape import Shape
from makegood.payload.envelopes import digest, is_encoded
from makegood.store.protocol import Store, Tasks
from makegood.store.records import Submission, Submitted
from makegood.transactions import Caller
from makegood.workflow.workflow import Workflow

MOST_KEY = LONGEST_INDEXED
"""Characters of a key at most."""


class CommonOptions(TypedDict, total=False):
    """The options that are the same for ``submit`` and for all tasks of ``submit_many``."""

    priority: int | None
    reply_to: str | None
    notes: bool | None
    delay: Duration | None
    at: datetime | None
    connection: Any


class SubmitOptions(CommonOptions, total=False):
    """The options of ``submit``."""

    key: str | None
    correlation_id: str | None
    attributes: Mapping[str, Attribute] | None
    lane: Lane | None


def plan_of(workflow: Any, inputs: tuple[Any, ...]) -> Plan[Any]:
    """Return the plan of a workflow with its inputs, or the given Plan. Raises ``DefinitionError``."""
    __tracebackhide__ = True
    if isinstance(workflow, Plan):
        if inputs:
            raise DefinitionError("a Plan has its inputs already: submit(plan), or submit(workflow, *inputs)")
        return workflow
    if not isinstance(workflow, Workflow):
        raise DefinitionError(
            f"submit() takes a function decorated with @app.workflow(...), or a Plan, not {type(workflow).__name__}"
        )
    return workflow.plan(*inputs)


def with_options(
    plan: Plan[Any],
    *,
    key: str | None = None,
    priority: int | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    notes: bool | None = None,
    delay: Duration | None = None,
    at: datetime | None = None,
    attributes: Mapping[str, Attribute] | None = None,
    lane: Lane | None = None,
) -> Plan[Any]:
    """Return the plan with its options. Raises ``ConfigError``."""
    if not (notes is None and delay is None and at is None and attributes is None and lane is None):
        plan = plan.with_(notes=notes, delay=delay, at=at, attributes=attributes, lane=lane)
    if not (key is None and priority is None and correlation_id is None and reply_to is None):
        plan = plan.with_(key=key, priority=priority, correlation_id=correlation_id, reply_to=reply_to)
    elif (
        plan.key is None
        and plan.correlation_id is None
        and plan.reply_to is None
        and not plan.notes
        and type(plan.priority) is int
        and plan.priority == 0
    ):
        return plan  # nearly always
    for name, text, most in (
        ("key", plan.key, MOST_KEY),
        ("correlation_id", plan.correlation_id, notices.MOST_TEXT),
    ):
        if text is not None and (not isinstance(text, str) or len(text) > most):
            raise ConfigError(f"{name}={short_repr(text)}: a text of up to {most} characters")
    notices.reply(plan.reply_to, plan.correlation_id)  # raises for an address that can never be notified
    if plan.notes and plan.reply_to is None:
        raise ConfigError(
            "notes=True: name where to send them with reply_to=; task.events() has them in any case"
        )
    refuse_unstorable(PayloadError, "; nothing was written", key=plan.key, correlation_id=plan.correlation_id)
    if plan.key == "":
        raise ConfigError("key='': a text that is not empty, or None for a task without a key")
    if type(plan.priority) is not int or not 0 <= plan.priority <= 9:  # True and 1.0 would be other JSON
        raise ConfigError(f"priority={short_repr(plan.priority)}: a whole number from 0 to 9, 9 first")
    return plan


def refuse_far(plan: Plan[Any], tasks: Tasks) -> None:
    """Raise ``ConfigError`` for a plan that begins in more than ten years by the store's clock."""
    start = plan.start
    if start is not None and start.at > tasks.clock() + MOST_DELAY:
        raise ConfigError(
            f"at={start.wall or iso(start.at)} is more than ten years from now, which is the most"
        )


def draft_of(plan: Plan[Any], task_id: int) -> Submission:
    """Return a plan as it is written down, sealed if it is to be.

    Only the inputs of a task with a key are ever compared. Encoded ones differ in each task, so they are
    decoded first (``opened_conflict``).
    """
    if plan.key is None:
        fingerprint = b""
    else:
        fingerprint = plan.fingerprint if plan.sealing is None else digest(plan.inputs)
    return Submission(
        task_id, plan.app, plan.workflow, Shape.of(plan.steps), plan.inputs, plan.returns, fingerprint, plan.key, plan.priority,
        plan.correlation_id, plan.within, plan.undo_within, plan.on_failure,
        reply_to=plan.reply_to, names=plan.names, start=plan.start, attributes=plan.attributes, signals=plan.signals, lanes=plan.lanes, notes=plan.notes,
    )  # fmt: skip


async def write_draft(plan: Plan[Any], task_id: int) -> Submission:
    """Return a plan as it is written down for a task. Raises what the codec of its app raises."""
    if plan.sealing is not None:
        plan = await plan.sealing.seal(plan, ids.show(task_id))
    return draft_of(plan, task_id)


async def opened_conflict(plan: Plan[Any], answer: Submitted) -> Submitted:
    """Return the answer to a submission, the inputs of the existing task decoded. Raises ``CodecError``."""
    if not any(map(is_encoded, answer.inputs)):
        return answer
    opener = Opener(None if plan.sealing is None else plan.sealing.codec, plan.app, ids.show(answer.id))
    inputs = [await opener.value(data, input_field(n)) for n, data in enumerate(answer.inputs)]
    return replace(answer, inputs=tuple(inputs))


def refuse_conflict(plan: Plan[Any], answer: Submitted) -> None:
    """Raise ``KeyConflict`` if the key of a plan belongs to a task with other inputs.

    Its fingerprint is that of the code that submitted it: to the present one the inputs may be equal all the
    same, as those are that lack a field with a default.
    """
    if not answer.conflict or not (differences := plan.comparison.differences(answer.inputs, plan.inputs)):
        return
    task_id = ids.show(answer.id)
    raise KeyConflict(
        f"task {task_id} of {plan.app}.{plan.workflow} has the key {plan.key!r} with other inputs ({differences}): use another key, or "
        f"submit the same inputs to get that task",
        task_id=task_id,
        key=plan.key or "",
    )


async def refuse_taken(store: Store, plans: Sequence[Plan[Any]]) -> None:
    """Raise ``LaneTakenError`` for a plan that does not wait, and of which a lane is taken now, unless a task
    has its key already, or it begins later: then the claim decides at its start.
    """
    for plan in plans:
        lanes = plan.lanes
        begins_now = plan.start is None or plan.start.delay == 0
        if lanes.when_taken != "refuse" or not lanes.names or not begins_now:
            continue
        if plan.key is not None and await store.tasks.ids_by_key(plan.app, plan.workflow, [plan.key]):
            continue
        obstacle = await store.lanes.obstacle(plan.app, lanes.names, lanes.at_once)
        if obstacle is not None:
            task_id, lane = ids.show(obstacle[0]), obstacle[1]
            raise LaneTakenError(
                f'{plan.app}.{plan.workflow}: task {task_id} has the lane {lane!r}, or is next in it, and when_taken="refuse": '
                "nothing was written; submit it again once that task has ended",
                task_id=task_id, lane=lane,
            )  # fmt: skip


async def insert(
    plans: Sequence[Plan[Any]],
    draw: Callable[[], int],
    write: Callable[[Sequence[Submission]], Awaitable[list[Submitted]]],
    watch: Callable[[Submission], Submission] | None = None,
) -> list[Submitted]:
    """Write plans; returns one answer per plan, in order.

    Each draft passes through ``watch``. A plan whose id was taken is written again under a new id.
    """
    answers: dict[int, Submitted] = {}
    left: Sequence[int] = range(len(plans))
    while left:
        drafts = [
            draft_of(plans[n], draw()) if plans[n].sealing is None else await write_draft(plans[n], draw())
            for n in left
        ]
        results = await write(drafts if watch is None else [watch(draft) for draft in drafts])
        answers.update(zip(left, results, strict=True))
        left = [n for n in left if answers[n].key_collision]
    return [
        await opened_conflict(plans[n], answers[n]) if answers[n].conflict else answers[n]
        for n in range(len(plans))
    ]


class Submitter:
    """Writes a client's submissions, in its own transaction or the caller's, and makes the tasks' handles.

    ``watch`` adds the trace to a draft that belongs to one.
    """

    def __init__(
        self, access: TaskAccess, draw: Callable[[], int], watch: Callable[[Submission], Submission] | None
    ) -> None:
        self._access = access
        self._draw = draw
        self._observe = watch
        self._refuse: Callable[[str], None] | None = None
        self._kinds = SchedulerKinds()

    def only_to(self, refuse: Callable[[str], None]) -> None:
        """Let ``refuse`` raise ``ConfigError`` for a ``reply_to`` that, as far as this process knows, nobody
        serves.
        """
        self._refuse = refuse

    def check(self, plans: Sequence[Plan[Any]]) -> None:
        """Raise ``ConfigError`` for a plan that begins in more than ten years, or whose ``reply_to`` is
        refused here.
        """
        for plan in plans:
            refuse_far(plan, self._access.opened_store.store.tasks)
        if self._refuse is not None:
            for plan in plans:
                if plan.reply_to is not None:
                    self._refuse(plan.reply_to)

    def handle(self, plan: Plan[Any], answer: Submitted, *, exists: bool) -> TaskHandle[Any]:
        """Return the handle of what became of a plan. Raises ``KeyConflict``."""
        refuse_conflict(plan, answer)
        if plan.sealing is not None:
            self._access.codecs[plan.app] = plan.sealing.codec
        return TaskHandle(self._access, answer.id, plan.returns_type, created=answer.is_new, exists=exists)

    async def submit(self, plan: Plan[Any], caller: Caller | None) -> TaskHandle[Any]:
        """Record one plan, and return its task's handle."""
        if caller is not None:
            (answer,) = await self.write([plan], caller)
            return self.handle(plan, answer, exists=False)
        if plan.reply_to is not None or plan.start is not None:
            self.check([plan])
        if plan.lanes.when_taken == "refuse":
            await refuse_taken(self._access.opened_store.store, [plan])
        while True:
            draft = (
                draft_of(plan, self._draw())
                if plan.sealing is None
                else await write_draft(plan, self._draw())
            )
            if draft.steps.newer_kinds or draft.lanes.names:
                await self._kinds.check(self._access.opened_store.store, [draft])
            if self._observe is not None:
                draft = self._observe(draft)
            near = self._access.opened_store.near
            if near is not None:
                answer = await near.submit(draft)
                if answer.is_new:
                    self._access.waiters.recent.add(answer.id)
            else:
                (answer,) = await self._access.opened_store.store.tasks.submit([draft])
            if not answer.key_collision:
                if answer.conflict:
                    answer = await opened_conflict(plan, answer)
                return self.handle(plan, answer, exists=True)

    async def write(self, plans: Sequence[Plan[Any]], caller: Caller | None = None) -> list[Submitted]:
        """Record plans in one transaction, the caller's if there is one; returns one answer per plan, in
        order.

        With a caller that blocks it may be called in any thread, and waits for nothing else: then what the
        Schedulers know is not read.
        """
        self.check(plans)
        store = self._access.opened_store.store
        if caller is None:
            await refuse_taken(store, plans)
            return await insert(
                plans, self._draw, self._kinds.checking(store, store.tasks.submit), self._observe
            )

        async def write(drafts: Sequence[Submission]) -> list[Submitted]:
            """The work inside awaits only the caller, which may block although it is awaited itself."""
            answers: list[Submitted] = await caller.perform(lambda tx: store.tasks.join(tx, drafts))
            return answers

        checking = write if caller.blocks else self._kinds.checking(store, write)
        answers = await insert(plans, self._draw, checking, self._observe)
        store.joined(*[answer.id for answer in answers if answer.is_new][-1:])
        return answers
