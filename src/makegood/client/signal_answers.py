"""The answer to a signal: the result of the step that it made ready.

Before anything is sent, the task's plan says which step is meant, and which of its waits for the signal come
before that step. Afterwards the signal's row says which wait used it: a result counts only if that wait is
one of these. So of two waits for one name, each signal gets its own answer.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from makegood import saga
from makegood.base import ids
from makegood.base.durations import Duration, seconds
from makegood.client import signals
from makegood.client.encoded_tasks import plain_step_result
from makegood.client.opened_store import OpenedStore
from makegood.client.step_waiters import UNDER_WAY, StepWaiters
from makegood.client.waiters import missing
from makegood.declare.action import Action
from makegood.declare.signal import Signal
from makegood.errors import (
    ConfigError,
    StepFailedError,
    TaskNotFoundError,
    WaitExpiredError,
)
from makegood.model.plan import StepPlan
from makegood.payload.codec import decode
from makegood.payload.envelopes import Codec
from makegood.store.signals import Signalled, TaskKey
from makegood.store.step_outcomes import AwaitedStep, StepOutcome
from makegood.store.views import Exact, Filter, StepView, TaskDetail

_ITEM: Final = re.compile(r"(\[\d+\])+$")
"""The end of a step's name that says which item of an ``each`` it belongs to."""


class Question(NamedTuple):
    """A signal whose answer somebody waits for."""

    to: int | TaskKey
    signal: Signal[Any] | str
    value: Any
    until: str | Action[..., Any] | None
    timeout: Duration | None
    codec_of: Callable[[str], Codec | None]
    """Returns what opens the values of an app."""

    @property
    def name(self) -> str:
        """The signal's name."""
        return self.signal.name if isinstance(self.signal, Signal) else str(self.signal)


class TargetStep(NamedTuple):
    """A step for whose result somebody waits."""

    name: str
    view: StepView
    """The step, or the ``each`` that has not made it yet."""
    waits: Mapping[int, str]
    """The steps before it that wait for the signal, and their names."""
    app: str

    @property
    def exists(self) -> bool:
        """Whether the step is there."""
        return self.view.name == self.name


async def ask(sender: signals.SignalSender, waiters: StepWaiters, question: Question, **options: Any) -> Any:
    """Send a signal, wait for the result of the step that it makes ready, and return that: see
    ``Client.signal``.
    """
    to, signal, value, until, timeout, codec_of = question
    name, until = question.name, _checked_step(until, options["connection"])
    opened_store = sender.opened_store
    limit = None if timeout is None else seconds(timeout, name="timeout")
    target = await _target(opened_store, await _number(opened_store, to), until, name)
    _check_step(target, options["step"])
    receipt = await signals.send(sender, to, signal, value, **options)
    signals.refuse_conflict(receipt, name)
    try:
        async with asyncio.timeout(limit):
            body = await _body(opened_store, waiters, target, receipt, name)
    except TimeoutError:
        if limit is None:
            raise
        raise WaitExpiredError(
            f"step {target.name} of task {receipt.task} had no outcome within {limit:g} s. The signal is sent, and the task continues: to "
            f"wait on, send the signal again with id={receipt.id!r}",
            task_id=receipt.task,
        ) from None
    result = replace(target.view, name=target.name, result=body)
    body = await plain_step_result(codec_of(target.app), target.app, receipt.task, result)
    if isinstance(until, Action):
        return until._decode(body)
    return decode(body, Any, f"the result of step {target.name} of task {receipt.task}")


async def _body(
    opened_store: OpenedStore, waiters: StepWaiters, target: TargetStep, receipt: Signalled, signal: str
) -> bytes:
    """Return the result, as JSON, of the step that a signal made ready. Raises ``StepFailedError``."""
    task = ids.parse(receipt.task)
    while True:
        step = AwaitedStep(task, target.view.idx, signal, receipt.id, frozenset(target.waits))
        outcome = await waiters.outcome(step)
        if target.exists and (outcome.wait is None or outcome.wait in target.waits):
            return _result(target, outcome, receipt)
        again = await _target(opened_store, task, target.name, signal)  # an each has made its items
        if again.view.idx == target.view.idx and again.waits == target.waits:
            raise _unreached_error(target, outcome, receipt, signal)
        target = again


def _checked_step(until: object, connection: object) -> str | Action[..., Any]:
    """Return the step to wait for. Raises ``ConfigError``."""
    if until is None:
        raise ConfigError("timeout= goes with until=, the step whose result is the answer to the signal")
    if not isinstance(until, str | Action):
        raise ConfigError(
            f"until={until!r:.60}: the name of a step, such as 'charge' or 'charge[3]', or the action itself"
        )
    if connection is not None:
        raise ConfigError(
            "until= waits for a step, and a signal with connection= is not sent before your transaction is committed: send it, commit, "
            "and call signal() again with the same id=, with until= and without connection="
        )
    return until


def _check_step(target: TargetStep, step: str | None) -> None:
    """Raise ``ConfigError`` for a step whose use of the signal the target would not answer."""
    waits = target.waits.values()
    if step and target.exists and waits and step not in waits:
        raise ConfigError(
            f"step={step!r}: {target.name} comes after {' and '.join(waits)}, and no such wait, so its result would be no answer: pass "
            f"{' or '.join(f'step={name!r}' for name in waits)}, or leave step= out"
        )


async def _number(opened_store: OpenedStore, to: int | TaskKey) -> int:
    """Return the number of a task. Raises ``TaskNotFoundError``."""
    if isinstance(to, int):
        return to
    condition = Filter(app=to.app, workflow=to.workflow, key=Exact(to.key), limit=1)
    views = await opened_store.ready().tasks.find(condition)
    if not views:
        raise TaskNotFoundError(
            f"no task of {to.app}.{to.workflow} has the key {to.key!r}: submit it under this key first"
        )
    return views[0].id


async def _target(
    opened_store: OpenedStore, task: int, until: str | Action[..., Any], signal: str
) -> TargetStep:
    """Return the step that ``until`` names. Raises ``TaskNotFoundError``, ``ConfigError``."""
    detail = await opened_store.ready().tasks.detail(task)
    if detail is None:
        raise missing(task)
    target = (
        _step_of_name(detail, until, signal) if isinstance(until, str) else _of_action(detail, until, signal)
    )
    if not target.waits and not any(_waits_inside(step.plan, signal) for step in detail.steps):
        raise ConfigError(
            f"until={target.name!r}: in task {ids.show(task)} this step does not come after a wait for the signal {signal!r}, so its result "
            "is not an answer to it"
        )
    return target


def _result(target: TargetStep, outcome: StepOutcome, receipt: Signalled) -> bytes:
    if (
        outcome.wait is not None
        and not outcome.is_stale
        and outcome.state == "done"
        and outcome.goal != "undo"
    ):
        return outcome.result or b"null"
    if outcome.is_stale:
        reason = (
            "the task was resubmitted since, and the wait that used this signal began again: send another one"
        )
    elif outcome.wait is None:
        reason = "no step has used the signal"
    elif outcome.state == "done":
        reason = "the step was done, and the task is being undone"
    else:
        reason = f"the step is {outcome.state.replace('_', ' ')}"
    error = f" ({outcome.error})" if outcome.error else ""
    raise StepFailedError(
        f"step {target.name} of task {receipt.task} has no result: {reason}{error}; the task is {outcome.task_state} (`makegood task show {receipt.task}`)",
        task_id=receipt.task,
        step=target.name,
        state=outcome.state,
        error=outcome.error or "",
    )


def _unreached_error(
    target: TargetStep, outcome: StepOutcome, receipt: Signalled, signal: str
) -> StepFailedError:
    """Return the error for a step that does not follow the wait that used the signal, or was not made."""
    if target.exists:
        reason = f"another wait used this signal, and the step is {outcome.state.replace('_', ' ')}"
        if outcome.state in UNDER_WAY and target.waits:
            waits = " or ".join(f"step={name!r}" for name in target.waits.values())
            reason += f": to reach it, send another one with {waits}"
    else:
        reason = (
            f"{target.view.name} has not made it (it is {outcome.state}; the task is {outcome.task_state})"
        )
    return StepFailedError(
        f"step {target.name} of task {receipt.task} has no result for the signal {signal} {receipt.id}: {reason}",
        task_id=receipt.task,
        step=target.name,
        state=outcome.state if target.exists else "",
    )


def _step_of_name(detail: TaskDetail, name: str, signal: str) -> TargetStep:
    by_name = {step.name: step for step in detail.steps}
    view = by_name.get(name)
    if view is None:
        bare = _ITEM.sub("", name)
        makers = [step for step in detail.steps if bare != name and _makes(step.plan, bare)]
        if not makers:
            raise TaskNotFoundError(
                f"task {ids.show(detail.task.id)} has no step {name!r}; it has {', '.join(by_name)}",
                task_id=ids.show(detail.task.id),
            )
        view = makers[-1]
    return TargetStep(name, view, _waits_before(detail.steps, view.idx, signal), detail.task.app)


def _of_action(detail: TaskDetail, action: Action[..., Any], signal: str) -> TargetStep:
    """Return the only step of an action after a wait for the signal."""
    names = (action.name, *action.formerly)
    targets = [
        TargetStep(step.name, step, _waits_before(detail.steps, step.idx, signal), detail.task.app)
        for step in detail.steps
        if step.kind == "action" and step.agent == action.agent.name and step.action in names
    ]
    following = [target for target in targets if target.waits] or targets
    if len(following) == 1:
        return following[0]
    task = ids.show(detail.task.id)
    if not following:
        raise TaskNotFoundError(
            f"task {task} has no step of {action.address}; a step of an mg.each is named by its item, such as until='{action.name}[0]'",
            task_id=task,
        )
    steps = ", ".join(target.name for target in following)
    raise ConfigError(
        f"until={action.address}: task {task} has several steps of it, {steps}: pass the name of one"
    )


def _waits_before(steps: Sequence[StepView], idx: int, signal: str) -> dict[int, str]:
    """Return the waits for a signal that come before a step, itself included, with their names."""
    plans = {step.idx: step.plan for step in steps if step.plan is not None}
    names = {step.idx: step.name for step in steps}
    items: Mapping[int, list[int]] = defaultdict(list)
    for plan in plans.values():
        items[saga.owner(plan)].append(plan.idx)
    waits: dict[int, str] = {}
    ahead, closure = [idx], {idx}
    while ahead:
        plan = plans.get(ahead.pop(), StepPlan(-1))
        if plan.kind == "wait_for" and plan.action == signal:
            waits[plan.idx] = names[plan.idx]
        before = [*saga.predecessors(plan), *(items[plan.of] if plan.kind == "gather" else ())]
        ahead += [each for each in before if each not in closure]
        closure.update(before)
    return waits


def _waits_inside(plan: StepPlan | None, signal: str) -> bool:
    """Whether the items of an ``each`` wait for a signal."""
    return plan is not None and any(
        (step.kind == "wait_for" and step.action == signal) or _waits_inside(step, signal)
        for step in plan.body
    )


def _makes(plan: StepPlan | None, name: str) -> bool:
    """Whether the items of an ``each`` have a step of this name."""
    return plan is not None and any(step.name == name or _makes(step, name) for step in plan.body)
