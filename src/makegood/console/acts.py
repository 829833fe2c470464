"""Acts on one task, and on alerts: a form becomes an operator command, kept with who, why and the request's
id.

The rules decide, as they do for the command line: a page offers what is allowed, and an act that lost a race
is answered with the reason, and with who was first.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from makegood.base.counts import quantity
from makegood.base.text import storable_text
from makegood.client import signals
from makegood.client.handle import TaskHandle
from makegood.console.outcomes import ActOutcome, Outcomes
from makegood.console.signal_forms import FieldError, FormField, fields_of, value_of
from makegood.console.users import Role
from makegood.console.visits import Denied, Route, Visit, act, number_in
from makegood.errors import (
    ActRefusedError,
    AlertNotFoundError,
    SignalRefused,
    TaskNotFoundError,
    WaitExpiredError,
)
from makegood.model.messages import Act, Alert, Answer
from makegood.payload.codec import UNREADABLE, shallow
from makegood.store.views import Filter, TaskView

PATIENCE: Final = 10.0
"""Seconds that an act waits for the answer of a Scheduler; the act is in the task's inbox by then."""
MOST_ALERTS: Final = 500
"""Alerts that one form may acknowledge."""

Do = Callable[[TaskHandle[Any], Visit], Awaitable[Answer]]


class TaskActs:
    """The acts on one task, and on alerts."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def routes(self) -> tuple[Route, ...]:
        """Return their routes."""
        return (
            *(
                act(f"/tasks/{{id}}/{name}", self._on_task(title, do), role=role)
                for name, (role, title, do) in _FORMS.items()
            ),
            act("/alerts/acknowledge", self.acknowledge),
            act("/alerts/test", self.test),
        )

    def _on_task(self, title: str, do: Do) -> Callable[[Visit], Awaitable[Response]]:
        async def respond(visit: Visit) -> Response:
            task = visit.client.task(visit.params["id"])
            back = f"/tasks/{task.id}"
            label = (await task_of(visit)).key or task.id
            try:
                outcome = _act_outcome(title, label, back, await do(task, visit))
            except (ActRefusedError, SignalRefused) as refusal:
                outcome = ActOutcome("need", f"Refused: {label}", str(refusal), back, 409)
            except WaitExpiredError:
                text = "No Scheduler has answered yet. The command is in the task's inbox, and will be decided when one runs."
                outcome = ActOutcome("doubt", f"Not decided yet: {label}", text, back, 202)
            return self._outcomes.respond(visit, outcome)

        return respond

    async def acknowledge(self, visit: Visit) -> Response:
        """Acknowledge the alerts that the form names, with its note; one that somebody else has says who."""
        names = visit.field("alert").split()[:MOST_ALERTS]
        alerts = [alert for name in names if (alert := number_in(name)) is not None]
        if not names or len(alerts) < len(names):
            raise Denied(400, "No alert", "Say which alerts to acknowledge.")
        count, refusals = 0, []
        for alert in alerts:
            try:
                await visit.client.acknowledge(alert, who=who_of(visit), why=why_of(visit))
                count += 1
            except (ActRefusedError, AlertNotFoundError) as failure:
                refusals.append(str(failure))
        title = f"{quantity(count, 'alert')} acknowledged" if count else "Refused"
        outcome = ActOutcome(
            "need" if refusals else "ok", title, "; ".join(refusals[:5]), "/alerts", 200 if count else 409
        )
        return self._outcomes.respond(visit, outcome)

    async def test(self, visit: Visit) -> Response:
        """Raise an alert that only shows which ways alerts take."""
        await raise_test(visit, "nothing is wrong")
        text = "It goes where alerts go: see the logs of Schedulers and Supervisors, and the receiver of alert_webhook."
        return self._outcomes.respond(visit, ActOutcome("ok", "A test alert is raised", text, "/alerts"))


async def raise_test(visit: Visit, reason: str) -> None:
    """Raise a test alert that says who raised it, and why."""
    text = f"a test alert ({visit.id}) by {who_of(visit)}: {reason}"
    await visit.client.store.alerts.alert([Alert("test", step=visit.id, text=text)])


async def task_of(visit: Visit) -> TaskView:
    """Return the task that a path names, without its steps. Raises ``TaskNotFoundError``."""
    task = visit.client.task(visit.params.get("id") or visit.params["task"])
    views = await visit.client.find(Filter(ids=(task.number,), limit=1))
    if not views:
        raise TaskNotFoundError(f"there is no task {task.id} in this store", task_id=task.id)
    return views[0]


def who_of(visit: Visit) -> str:
    """Return who acts, as the audit keeps it."""
    return storable_text(visit.visitor.name)


def why_of(visit: Visit, *, mandatory: bool = False) -> str:
    """Return the reason that the form gives. Raises ``Denied`` if it is ``mandatory`` and missing."""
    reason = visit.field("reason")
    if mandatory and not reason:
        text = "Say how you know: the audit keeps it with your name."
        raise Denied(400, "A reason is needed", text, field="reason")
    return storable_text(reason)


def _act_outcome(title: str, label: str, back: str, answer: Answer) -> ActOutcome:
    if answer.verdict == "noop":
        return ActOutcome("doubt", f"Nothing to do: {label}", answer.outcome, back)
    return ActOutcome("ok", f"{title}: {label}", answer.outcome, back)


def _act_options(visit: Visit, *, mandatory: bool = False) -> dict[str, Any]:
    return {"why": why_of(visit, mandatory=mandatory), "who": who_of(visit), "timeout": PATIENCE}


async def _edit(task: TaskHandle[Any], visit: Visit) -> Answer:
    inputs = json_in(visit, "input", "The input")
    return await task.resubmit(
        step=visit.field("step") or None, inputs=inputs, **_act_options(visit, mandatory=True)
    )


async def _settle(task: TaskHandle[Any], visit: Visit) -> Answer:
    outcome = visit.field("outcome")
    value = json_in(visit, "value", "The result", "null") if outcome == "done" else None
    return await task.settle(
        visit.field("step"), outcome=outcome, value=value, **_act_options(visit, mandatory=True)
    )


async def _signal(task: TaskHandle[Any], visit: Visit) -> Answer:
    name = visit.field("signal")
    detail = await task.status()
    value = signal_value(fields_of(detail.signal_types.get(name, "")), visit)
    who, why = who_of(visit), why_of(visit)
    answer = await task.signal(name, value, id=visit.field("id") or None, who=who, why=why)
    signals.refuse_conflict(answer, name)
    act = Act(answer.id, who, why)
    if not answer.created:
        return Answer(act, "signal", "noop", f"{name} was sent already", detail.task.state)
    return Answer(act, "signal", "applied", f"{name} is sent", detail.task.state)


def signal_value(fields: tuple[FormField, ...], visit: Visit) -> Any:
    """Return the value of a signal that a form holds. Raises ``Denied``."""
    try:
        return value_of(fields, visit.form)
    except FieldError as wrong:
        raise Denied(400, "Not understood", f"{wrong}.", field=wrong.field) from None


def json_in(visit: Visit, field: str, label: str, default: str = "") -> Any:
    """Return a value that a field holds as JSON; ``default``: in place of an empty one. Raises ``Denied``."""
    text = visit.form.get(field, "") or default
    try:
        return msgspec.json.decode(shallow(text.encode(), label))
    except UNREADABLE as wrong:
        raise Denied(400, "Not JSON", f"{label} is not JSON: {wrong}", field=field) from None


_FORMS: Final[Mapping[str, tuple[Role, str, Do]]] = {
    "cancel": ("operator", "Cancelled", lambda task, visit: task.cancel(**_act_options(visit))),
    "wake": (
        "operator",
        "Woken",
        lambda task, visit: task.wake(step=visit.field("step") or None, **_act_options(visit)),
    ),
    "undo": ("operator", "The undo has begun", lambda task, visit: task.undo(**_act_options(visit))),
    "resubmit": ("operator", "Resubmitted", lambda task, visit: task.resubmit(**_act_options(visit))),
    "edit": ("admin", "Resubmitted with other input", _edit),
    "settle": ("admin", "Settled", _settle),
    "release_lane": ("operator", "Released", lambda task, visit: task.release_lane(**_act_options(visit))),
    "signal": ("operator", "Sent", _signal),
    "extend": (
        "admin",
        "The deadline is later",
        lambda task, visit: task.extend(visit.field("more"), **_act_options(visit)),
    ),
}
"""Of each act on a task: the role that it needs, the title of its outcome, and what does it."""
