"""Forms that begin and stop commands on many tasks, and ask the leader to step down.

The leading Supervisor carries them out: what a form does here is one row, written with who and why.
"""

from typing import Any, Final, get_args

from starlette.responses import Response

from makegood.console.acts import signal_value, who_of, why_of
from makegood.console.outcomes import ActOutcome, Outcomes
from makegood.console.pages import bulk
from makegood.console.signal_forms import fields_of
from makegood.console.visits import Denied, Route, Visit, act, number_in
from makegood.errors import ActRefusedError
from makegood.store.oversight_records import BulkKind

_VERBS: Final = {
    "cancel": "cancelled",
    "undo": "undone",
    "resubmit": "resubmitted",
    "signal": "sent the signal",
}


class BulkForms:
    """The acts on many tasks, and on the leader."""

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes

    def routes(self) -> tuple[Route, ...]:
        """Return their routes."""
        return (
            act("/bulk", self.begin),
            act("/bulk/{id}/stop", self.stop),
            act("/cluster/step-down", self.step_down, role="admin"),
        )

    async def begin(self, visit: Visit) -> Response:
        """Begin a command on the tasks that the form selects, or on all that match its filter."""
        kind = next((kind for kind in get_args(BulkKind) if kind == visit.field("kind")), None)
        if kind is None:
            raise Denied(400, "Not understood", f"kind is one of {', '.join(get_args(BulkKind))}.")
        condition = bulk.filter_of(visit.form)
        signal: dict[str, Any] = {}
        if kind == "signal":
            fields = fields_of(visit.form.get("schema", ""))
            signal = {"signal": visit.field("signal"), "value": signal_value(fields, visit)}
        name = visit.field("id") or None
        try:
            act = await visit.client.bulk(
                kind, condition, why=why_of(visit), who=who_of(visit), id=name, **signal
            )
        except ActRefusedError as refusal:
            return self._outcomes.respond(
                visit, ActOutcome("need", "Refused", str(refusal), f"/bulk/{name}", 409)
            )
        tasks = f"{act.counted:,}{'+' if act.more else ''} task{'s' * (act.counted != 1)}"
        text = "The leading Supervisor sends the commands; this page shows how far it is."
        outcome = ActOutcome("ok", f"{tasks} will be {_VERBS[kind]}", text, f"/bulk/{act.id}")
        return self._outcomes.respond(visit, outcome)

    async def stop(self, visit: Visit) -> Response:
        """Stop a command on many tasks: it reaches no more of them."""
        name = visit.params["id"]
        back = f"/bulk/{name}"
        try:
            act = await visit.client.stop_bulk(name, why=why_of(visit), who=who_of(visit))
            outcome = ActOutcome("ok", "Stopped", f"{act.sent:,} tasks had been sent the command.", back)
        except ActRefusedError as refusal:
            outcome = ActOutcome("need", "Refused", str(refusal), back, 409)
        return self._outcomes.respond(visit, outcome)

    async def step_down(self, visit: Visit) -> Response:
        """Ask the leader of the epoch that the form names to step down."""
        epoch = number_in(visit.field("epoch"))
        if epoch is None:
            raise Denied(400, "Not understood", "The form does not name the epoch of a leader.")
        try:
            leader = await visit.client.step_down(epoch=epoch, why=why_of(visit), who=who_of(visit))
            text = "It does so after its present pass; another Supervisor takes the lead."
            outcome = ActOutcome("ok", f"{leader} is asked to step down", text, "/cluster")
        except ActRefusedError as refusal:
            outcome = ActOutcome("need", "Refused", str(refusal), "/cluster", 409)
        return self._outcomes.respond(visit, outcome)
