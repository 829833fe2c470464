"""The JSON API under ``/api/v1``: the reads and acts of the pages, for programs.

``Api.endpoints`` is one list; the routes, and the description in ``openapi.json``, are made of it. Names,
times and ids are those of the command line's ``--json``. An error is a problem (RFC 9457).
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import fields
from starlette.responses import Response

from makegood.base import ids, zones
from makegood.base.clock import iso
from makegood.base.sizes import KIB, MIB
from makegood.base.text import refuse_unstorable
from makegood.client import as_json, signals
from makegood.client.acknowledgements import checked_kind
from makegood.client.handle import TaskHandle
from makegood.client.remedies import remedies
from makegood.client.schedules import MOST_BACKFILL, ScheduleHandle, preview_backfill
from makegood.console.access import body_of
from makegood.console.acts import PATIENCE, raise_test, task_of, who_of
from makegood.console.covering import MOST as MOST_COVERED
from makegood.console.covering import Covering
from makegood.console.drawing import DrawingThread
from makegood.console.pages import audit
from makegood.console.pages import schedules as schedule_pages
from makegood.console.pages.stores import all_findings, quick_findings
from makegood.console.pages.wording import behind
from makegood.console.redaction import Redaction
from makegood.console.visits import Audience, Denied, Route, Visit, number_in
from makegood.errors import ConfigError, TaskNotFoundError, WaitExpiredError
from makegood.model.lane import LONGEST_LANE
from makegood.model.messages import AlertKind, Answer
from makegood.payload.codec import UNREADABLE, shallow
from makegood.store import filters
from makegood.store.oversight_records import BulkKind, BulkView
from makegood.store.step_down import LEADER
from makegood.store.views import Filter, Finding, StepPage, TaskExcerpt, TaskView
from makegood.story.undo_preview import undo_order

T = TypeVar("T")
B = TypeVar("B", "Why", "ResubmitBody", "SettleBody", "WakeBody", "ExtendBody")

_MOMENTS: Final = frozenset({"at", "began", "ended", "first", "last", "minute", "times"})

_NOT_A_CHOICE: Final = re.compile(r"^Invalid enum value .* - at `\$\.(\w+)`$", re.DOTALL)

ROOT: Final = "/api/v1"
MOST: Final = 1000
"""The most records of one answer."""
MOST_MOMENTS: Final = 100
"""Next moments of a schedule, at most."""

Reason = Annotated[str, Meta(max_length=1000, description="Why; the audit keeps it.")]
Vouched = Annotated[str, Meta(min_length=1, max_length=1000, description="How you know; the audit keeps it.")]
StepName = Annotated[str, Meta(min_length=1, max_length=500, description="The step's name.")]


class Why(msgspec.Struct, forbid_unknown_fields=True):
    """An act that needs nothing but a reason."""

    reason: Reason = ""


class ResubmitBody(msgspec.Struct, forbid_unknown_fields=True):
    """Restart a task. ``inputs`` corrects what it was given, and needs the role admin."""

    reason: Reason = ""
    step: StepName | UnsetType = UNSET
    inputs: dict[str, Any] | list[Any] | UnsetType = UNSET


class SettleBody(msgspec.Struct, forbid_unknown_fields=True):
    """State the outcome of a step of a task in error."""

    step: StepName
    outcome: Literal["done", "failed", "undone"]
    reason: Vouched
    value: Any = None


class WakeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Let a task that sleeps continue. ``step``: the one sleep to end."""

    reason: Reason = ""
    step: StepName | UnsetType = UNSET


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    """Move a task's deadline."""

    by: Annotated[str, Meta(max_length=20, description="How much later, such as 1h.")]
    reason: Reason = ""


class AcknowledgeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Acknowledge the open alerts of a kind, of a task, or of both."""

    kind: AlertKind | UnsetType = UNSET
    task: Annotated[str, Meta(pattern="^[0-9a-z]{13}$")] | UnsetType = UNSET
    reason: Reason = ""


class SignalBody(msgspec.Struct, forbid_unknown_fields=True):
    """Send a signal to a task. A task takes each ``id`` of a name once."""

    name: Annotated[str, Meta(min_length=1, max_length=100, description="The signal's name.")]
    value: Any = None
    id: Annotated[str, Meta(min_length=1, max_length=300)] | UnsetType = UNSET
    step: StepName | UnsetType = UNSET
    reason: Reason = ""


class BulkBody(msgspec.Struct, forbid_unknown_fields=True):
    """Act on all tasks that match. ``expected``: how many were counted; refused if it is another number by
    now. The same request with the same ``id`` is one act.
    """

    act: BulkKind
    filter: Annotated[
        str, Meta(min_length=1, max_length=filters.LONGEST, description="As on the page of tasks.")
    ]
    reason: Reason = ""
    expected: Annotated[int, Meta(ge=0, le=2**31)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=2**31)] | UnsetType = UNSET
    rate: Annotated[float, Meta(gt=0, le=1e6, description="Tasks a second.")] | UnsetType = UNSET
    signal: (
        Annotated[str, Meta(min_length=1, max_length=100, description="With signal: its name.")] | UnsetType
    ) = UNSET
    value: Any = None
    id: Annotated[str, Meta(min_length=1, max_length=100)] | UnsetType = UNSET


class PauseBody(msgspec.Struct, forbid_unknown_fields=True, rename={"length": "for"}):
    """Pause a schedule. ``for``: it resumes by itself after this; otherwise it stays paused."""

    reason: Reason = ""
    length: Annotated[str, Meta(max_length=20, description="How long, such as 1h.")] | UnsetType = UNSET


class BackfillBody(msgspec.Struct, forbid_unknown_fields=True):
    """Submit a task for each moment of a range that has none; both ends are included."""

    since: Annotated[datetime, Meta(tz=True)]
    until: Annotated[datetime, Meta(tz=True)]
    limit: Annotated[int, Meta(ge=1, le=MOST_BACKFILL, description="Refuse more moments.")] = MOST_BACKFILL
    dry_run: Annotated[bool, Meta(description="Only return what it would do; a new task has no id.")] = False
    reason: Reason = ""


class StepDownBody(msgspec.Struct, forbid_unknown_fields=True):
    """Ask the leading Supervisor to step down."""

    epoch: Annotated[int, Meta(ge=0, le=2**62, description="The leader's; refused if another leads.")]
    reason: Reason = ""


Do = Callable[[TaskHandle[Any], B, Visit], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter in a query. ``schema`` is its JSON schema."""

    name: str
    schema: Mapping[str, Any]
    about: str


def _number(name: str, about: str, *, least: int = 0, most: int = 2**62) -> Parameter:
    return Parameter(name, {"type": "integer", "minimum": least, "maximum": most}, about)


Q: Final = Parameter(
    "q", {"type": "string", "maxLength": filters.LONGEST}, "A filter, such as state:error workflow:sell."
)
LIMIT: Final = _number("limit", "The most records.", least=1, most=MOST)
TASK: Final = Parameter("task", {"type": "string", "pattern": "^[0-9a-z]{13}$"}, "Only of this task.")


KIND: Final = Parameter("kind", {"type": "string", "enum": list(get_args(AlertKind))}, "Only of this kind.")
AUDITED: Final = (
    Parameter("who", {"type": "string", "maxLength": audit.LONGEST}, "Only by this person."),
    Parameter("kind", {"type": "string", "maxLength": audit.LONGEST}, "Only of this kind, such as undo."),
    Parameter(
        "act", {"type": "string", "maxLength": audit.LONGEST}, "Only of this request, or of this bulk act."
    ),
)
OF_APP: Final = Parameter("app", {"type": "string", "maxLength": 300}, "Only of this app.")
AFTER: Final = Parameter(
    "after", {"type": "string", "maxLength": 500}, "Only schedules behind this one: APP/NAME."
)
LANE: Final = Parameter("name", {"type": "string", "maxLength": LONGEST_LANE}, "Only this lane.")
AFTER_LANE: Final = Parameter(
    "after", {"type": "string", "maxLength": 500}, "Only lanes behind this one: APP/NAME."
)
BEFORE: Final = Parameter("before", TASK.schema, "Only tasks submitted before this one.")
RESULTS: Final = Parameter(
    "results",
    {"type": "string", "enum": ["0", "1"]},
    "1: with their results: at most 100 tasks, and fewer once their results are more than 1 MiB.",
)
RESULT_BYTES: Final = MIB
"""Bytes of the results of one list, after which it ends."""
RESULT_TASKS: Final = 100
"""Tasks of a list with results, at most."""
EVENT_BYTES: Final = MIB
"""Bytes of the events of one answer, unless it is one event."""
CHANGE: Final = 4 * KIB
"""Bytes of what a command replaced, above which the audit's list leaves it out."""
CHANGES: Final = 256 * KIB
"""Bytes of all that the commands of a list replaced."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint: what it answers, and to whom."""

    path: str
    respond: Callable[..., Awaitable[Any]]
    """Takes the visit, and of a POST its body. Returns what becomes JSON, or a function that returns it and
    is called off the loop.
    """
    about: str
    answer: str
    """The schema of its answer."""
    role: Audience = "viewer"
    body: type[msgspec.Struct] | None = None
    """The body of a POST; None for a GET."""
    query: tuple[Parameter, ...] = ()

    @property
    def method(self) -> str:
        """Its method."""
        return "GET" if self.body is None else "POST"


class Api:
    """The endpoints of one console."""

    def __init__(self, redaction: Redaction, thread: DrawingThread, covering: Covering) -> None:
        self._redaction = redaction
        self._thread = thread
        self._covering = covering
        self.endpoints = self._endpoints()

    def routes(self) -> tuple[Route, ...]:
        """Return their routes."""
        return tuple(
            Route(
                path=ROOT + e.path, role=e.role, kind="api", respond=self._answering(e), methods=(e.method,)
            )
            for e in self.endpoints
        )

    def _answering(self, endpoint: Endpoint) -> Callable[[Visit], Awaitable[Response]]:
        async def respond(visit: Visit) -> Response:
            bodies = [] if endpoint.body is None else [await _body(visit, endpoint.body)]
            answer = await endpoint.respond(visit, *bodies)

            def text() -> tuple[bytes, int]:
                shape = answer() if callable(answer) else answer
                status = 202 if isinstance(shape, dict) and shape.get("verdict") == "waiting" else 200
                return msgspec.json.encode(shape), status

            body, status = await self._thread.run(text)
            return Response(body, status, media_type="application/json")

        return respond

    def _endpoints(self) -> tuple[Endpoint, ...]:
        def act(name: str, body: type[B], do: Do[B], about: str, role: Audience = "operator") -> Endpoint:
            return Endpoint(f"/tasks/{{task}}/{name}", partial(_do_act, do), about, "Answer", role, body)

        get = Endpoint
        return (
            get("/session", self._session, "Who you are, and the token that acts carry as X-CSRF-Token.", "Session"),
            get("/tasks", self._tasks, "Tasks, newest first, without their results.", "Tasks", query=(Q, LIMIT, BEFORE, RESULTS)),
            get("/tasks/count", self._count, "How many tasks match, up to 10,000.", "Count", query=(Q,)),
            get("/tasks/{task}", self._task, "One task with its steps, at most 200, and the commands that are allowed now.", "TaskDetail", query=(_number("step", "Steps from this idx on, of a task of more than 200."),)),
            get("/tasks/{task}/history", self._history, "Moves of a task, in order.", "Events", query=(_number("after", "Only events after this seq."), LIMIT)),
            get("/tasks/{task}/undo-preview", self._preview, "What an undo would do now, in its order.", "Preview"),
            act("cancel", Why, lambda task, body, visit: task.cancel(**_act_options(body, visit)), "Stop a task, and undo what was done."),
            act("wake", WakeBody, lambda task, body, visit: task.wake(step=_value_or_none(body.step), **_act_options(body, visit)), "Let a task that sleeps continue now: begin, or end its sleeps."),
            act("undo", Why, lambda task, body, visit: task.undo(**_act_options(body, visit)), "Undo a task in error, or one that was processed."),
            act("resubmit", ResubmitBody, _resubmit, "Restart a task in error, or an undone one."),
            act("settle", SettleBody, _settle, "State the outcome of a step of a task in error.", "admin"),
            act("extend", ExtendBody, lambda task, body, visit: task.extend(body.by, **_act_options(body, visit)), "Give a task more time.", "admin"),
            act("release_lane", Why, lambda task, body, visit: task.release_lane(**_act_options(body, visit)), "Let the tasks continue that wait for the lanes of a task in error."),
            Endpoint("/tasks/{task}/signal", self._signal, "Send a value to a task that waits for it, or will.", "Signalled", "operator", SignalBody),
            get("/alerts", self._alerts, "Alerts, newest first.", "Alerts", query=(LIMIT, TASK, KIND, Parameter("ended", {"type": "boolean"}, "Only those that have ended; or only those that have not."))),
            Endpoint("/alerts/acknowledge", self._acknowledge_all, "Acknowledge the open alerts of a kind or of a task.", "Alerts", "operator", AcknowledgeBody),
            Endpoint("/alerts/{alert}/acknowledge", self._acknowledge, "Acknowledge an alert.", "Alert", "operator", Why),
            Endpoint("/alerts/test", self._test, "Raise a test alert.", "Done", "operator", Why),
            get("/audit", self._audit, "What operators did, newest first.", "Audit", query=(LIMIT, TASK, *AUDITED)),
            get("/nodes", self._nodes, "The processes and their agents, and how many requests wait.", "Nodes"),
            get("/leader", self._leader, "The leading Supervisor, and past terms.", "Leader"),
            Endpoint("/leader/step-down", self._step_down, "Ask the leading Supervisor to step down.", "Done", "admin", StepDownBody),
            get("/errors", self._errors, "Failures, grouped by agent, action, message and the user's own frame.", "Errors"),
            get("/refusals", self._refusals, "Writes that fencing refused, newest first.", "Refusals", query=(LIMIT, TASK)),
            get("/decisions", self._decisions, "What the leading Supervisor did, newest first: a record for each kind in each pass.", "Decisions", query=(LIMIT,)),
            get("/minutes", self._minutes, "Figures per minute, oldest first.", "Minutes", query=(_number("since", "Seconds back.", least=60, most=86_400),)),
            get("/queues", self._queues, "The message queues.", "Queues"),
            get("/schedules", self._schedules, "Schedules, by app and name.", "Schedules", query=(OF_APP, AFTER, LIMIT)),
            get("/schedules/{app}/{name:path}", self._schedule, "One schedule, and its next moments by the zone rules of the console's machine.", "ScheduleDetail", query=(_number("count", "Moments.", least=1, most=MOST_MOMENTS),)),
            Endpoint("/schedules/{app}/{name:path}/pause", self._pause, "Let a schedule fire no more; the moments of the pause are skipped for good.", "Schedule", "operator", PauseBody),
            Endpoint("/schedules/{app}/{name:path}/resume", self._resume, "Let a schedule fire again, from its next moment on.", "Schedule", "operator", Why),
            Endpoint("/schedules/{app}/{name:path}/trigger", self._trigger, "Submit a task of a schedule now, whatever its times, its overlap or a pause say.", "Triggered", "operator", Why),
            Endpoint("/schedules/{app}/{name:path}/backfill", self._backfill, "Submit a task for each moment of a range that has none.", "Backfill", "operator", BackfillBody),
            get("/brokers", self._brokers, "Brokers that orders come from and notices go to: what waits, and the last error.", "Brokers"),
            get("/lanes", self._lanes, "Lanes that tasks hold or wait for, by app and name.", "Lanes", query=(OF_APP, LANE, AFTER_LANE, LIMIT)),
            get("/bulk", self._bulk_acts, "Bulk acts, newest first.", "BulkActs"),
            Endpoint("/bulk", self._bulk, "Act on all tasks that match; the leading Supervisor works it off.", "BulkAct", "operator", BulkBody),
            get("/bulk/{id}", self._bulk_act, "One bulk act.", "BulkAct"),
            get("/bulk/{id}/refusals", self._bulk_refusals, "What was refused, task by task.", "BulkRefusals", query=(LIMIT,)),
            Endpoint("/bulk/{id}/stop", self._stop, "Stop a bulk act; what was sent is still decided.", "BulkAct", "operator", Why),
            get("/store", self._store, "The store's schema, and what a look finds that costs the same beside any number of tasks.", "Store"),
            get("/store/examination", self._examination, "What an examination finds, which reads the whole store.", "Examination", "operator"),
        )  # fmt: skip

    # -- tasks -----------------------------------------------------------------------------------------------

    async def _session(self, visit: Visit) -> Any:
        return {"user": visit.visitor.name, "role": visit.visitor.role, "csrf": visit.visitor.token}

    async def _tasks(self, visit: Visit) -> Any:
        condition = _filter_of(visit)
        before, limit = visit.query.get("before"), _limit(visit)
        results = visit.query.get("results", "0")
        if results not in ("0", "1"):
            raise Denied(400, "Not understood", f"results={results[:30]!r}: 0 or 1.")
        if results == "1":
            limit = min(limit, RESULT_TASKS)
        condition = replace(condition, limit=limit, before=None if before is None else ids.parse(before))
        page = await visit.client.store.tasks.search(condition)
        tasks, older = page.tasks, page.older
        if results == "1":
            tasks = await self._with_results(visit, page.tasks)
            older = page.older if len(tasks) == len(page.tasks) else tasks[-1].id
        return lambda: {
            "tasks": [as_json.task(view) for view in tasks],
            "older": ids.show(older) if older and tasks else None,
        }

    async def _with_results(self, visit: Visit, tasks: Sequence[TaskView]) -> list[TaskView]:
        """Return the first of these tasks with their results, covered: as many as fit, and one at least."""
        fitting: list[TaskView] = []
        room = RESULT_BYTES
        for view in tasks:
            size, content = await visit.client.store.tasks.value(
                view.id, "result", 0, MOST_COVERED if not fitting else max(0, room)
            ) or (0, None)
            if fitting and size > room:
                break
            room -= size
            result = None if content is None else await self._covering.mask(content)
            if content is None and size:
                result = f'"{size:,} bytes"'.encode()
            fitting.append(msgspec.structs.replace(view, result=result))
        return fitting

    async def _count(self, visit: Visit) -> Any:
        tally = await visit.client.store.tasks.tally(_filter_of(visit))
        return {"count": tally.count, "more": tally.more}

    async def _task(self, visit: Visit) -> Any:
        part = await self._excerpt(visit, StepPage(_whole(visit, "step", 0, 2**31 - 1, 0)))
        return lambda: self._detail(part)

    def _detail(self, part: TaskExcerpt) -> dict[str, Any]:
        detail = part.detail
        if part.page is not None:
            indices = frozenset(part.page)
            detail = msgspec.structs.replace(
                detail, steps=[step for step in detail.steps if step.idx in indices]
            )
        shape = as_json.detail(detail) | {"result": self._mask(detail.task.result)}
        shape["inputs"] = [self._mask(value, name) for name, value in detail.named_inputs]
        for step, view in zip(shape["steps"], detail.steps, strict=True):
            step["result"] = self._mask(view.result)
        shape["allowed"] = [
            {"act": r.act, "step": r.step, "command": " ".join(r.words)} for r in remedies(part.detail)
        ]
        return shape | {"next": part.next, "left_out": dict(part.sizes)}

    async def _history(self, visit: Visit) -> Any:
        task = await task_of(visit)
        after, limit = _whole(visit, "after", 0, 2**62, 0), _whole(visit, "limit", 1, MOST, MOST)
        stored = await visit.client.store.tasks.events_after(task.id, after, limit, EVENT_BYTES)
        part = await visit.reads.legible_events(task.id, stored)
        return lambda: {
            "events": [as_json.event(self._redaction.event(view)) for view in part.events],
            "next": part.events[-1].seq if part.more and part.events else None,
        }

    async def _preview(self, visit: Visit) -> Any:
        part = await self._excerpt(visit)
        if part.detail.tally is not None:
            text = f"{part.total:,} steps are too many for this answer: `makegood task undo ID --preview` prints it."
            raise Denied(413, "Too large", text)
        return lambda: {
            "undo": [
                {"turn": preview.turn, "step": preview.step.name, "what": preview.happens}
                for preview in undo_order(part.detail)
            ]
        }

    async def _excerpt(self, visit: Visit, page: StepPage | None = None) -> TaskExcerpt:
        task = visit.client.task(visit.params["task"])
        part = await visit.reads.excerpt(task.number, page)
        if part is None:
            raise TaskNotFoundError(f"there is no task {task.id} in this store", task_id=task.id)
        return part

    def _mask(self, payload: bytes | None, name: str = "") -> msgspec.Raw | str | None:
        return as_json.raw(self._redaction.raw(payload, name))

    # -- acts on one task ------------------------------------------------------------------------------------

    async def _signal(self, visit: Visit, body: SignalBody) -> Any:
        task = visit.client.task(visit.params["task"])
        answer = await task.signal(
            body.name, body.value, id=_value_or_none(body.id), step=_value_or_none(body.step), **_by(visit, body)
        )  # fmt: skip
        signals.refuse_conflict(answer, body.name)
        return {"task": task.id, "signal": body.name, "id": answer.id, "created": answer.created}

    # -- what operators look after ---------------------------------------------------------------------------

    async def _alerts(self, visit: Visit) -> Any:
        flag = visit.query.get("ended")
        if flag not in (None, "true", "false"):
            raise Denied(400, "Not understood", f"ended={flag[:30]!r}: true or false.")
        alerts = await visit.client.store.alerts.views(
            _limit(visit),
            _of_task(visit),
            ended=None if flag is None else flag == "true",
            kind=checked_kind(visit.query.get("kind")),
        )
        return lambda: {"alerts": [as_json.alert(view) for view in alerts]}

    async def _acknowledge(self, visit: Visit, body: Why) -> Any:
        number = number_in(visit.params["alert"])
        if number is None:
            raise Denied(404, "Not found", "There is no such alert.")
        view = await visit.client.acknowledge(number, **_by(visit, body))
        return as_json.alert(view)

    async def _acknowledge_all(self, visit: Visit, body: AcknowledgeBody) -> Any:
        if body.kind is UNSET and body.task is UNSET:
            raise Denied(400, "Not understood", "Name the kind or the task of the alerts to acknowledge.")
        views = await visit.client.acknowledge_all(
            kind=body.kind or None, task=body.task or None, **_by(visit, body)
        )
        return {"alerts": [as_json.alert(view) for view in views]}

    async def _test(self, visit: Visit, body: Why) -> Any:
        await raise_test(visit, body.reason or "nothing is wrong")
        return {"done": "a test alert is raised"}

    async def _audit(self, visit: Visit) -> Any:
        operator, kind, act = audit.search_terms(visit.query)
        views = await visit.client.store.admin.audit(
            _limit(visit), _of_task(visit), who=operator, kind=kind, act=act, change=CHANGE
        )

        def shape() -> Any:
            room, records = CHANGES, []
            for view in views:
                room -= len(view.change or b"")
                change = as_json.raw(self._redaction.change(view.change)) if room >= 0 else None
                records.append(as_json.audit(view) | {"change": change})
            return {"audit": records}

        return shape

    async def _errors(self, visit: Visit) -> Any:
        report = await visit.client.store.oversight.error_groups()
        groups = [
            _shape_with_times(group) | {"name": group.name, "ids": [ids.show(task) for task in group.ids]}
            for group in report.groups
        ]
        return {"groups": groups, "read": report.read, "capped": report.capped}

    async def _refusals(self, visit: Visit) -> Any:
        refusals = await visit.client.store.oversight.refusals(_limit(visit), _of_task(visit))
        return lambda: {"refusals": [_shape_with_times(refusal) for refusal in refusals]}

    async def _decisions(self, visit: Visit) -> Any:
        decisions = await visit.client.store.oversight.decisions(_limit(visit))
        return lambda: {"decisions": [_shape_with_times(decision) for decision in decisions]}

    async def _minutes(self, visit: Visit) -> Any:
        since = _whole(visit, "since", 60, 86_400, 3600)
        minutes = await visit.client.store.oversight.minutes(since)
        return lambda: {"minutes": [_shape_with_times(minute) for minute in minutes]}

    # -- processes, queues, the store ------------------------------------------------------------------------

    async def _nodes(self, visit: Visit) -> Any:
        views, depths = await visit.reads.nodes(), await visit.client.store.nodes.depths()
        nodes = [as_json.node(view) for view in views]
        return {"nodes": nodes, "waiting": as_json.waiting(list(views), depths)}

    async def _leader(self, visit: Visit) -> Any:
        lease = as_json.lease(await visit.reads.lease(LEADER), LEADER)
        return lease | {"terms": [_shape_with_times(term) for term in await visit.reads.past_terms(LEADER)]}

    async def _step_down(self, visit: Visit, body: StepDownBody) -> Any:
        await visit.client.step_down(epoch=body.epoch, **_by(visit, body))
        return {"done": f"the leader of epoch {body.epoch} is asked to step down"}

    async def _queues(self, visit: Visit) -> Any:
        return {"queues": [as_json.queue(view) for view in await visit.client.queues()]}

    async def _store(self, visit: Visit) -> Any:
        status = await visit.client.store.admin.schema()
        return {
            "dialect": status.dialect,
            "version": status.version,
            "needed": status.needed,
            "missing": status.missing,
            "findings": _findings(await quick_findings(visit.reads)),
        }

    async def _examination(self, visit: Visit) -> Any:
        return {"findings": _findings(await all_findings(visit.reads))}

    # -- schedules -------------------------------------------------------------------------------------------

    async def _schedules(self, visit: Visit) -> Any:
        app, limit = visit.query.get("app"), _limit(visit)
        after = behind(visit.query.get("after", ""))
        refuse_unstorable(ConfigError, app=app)
        _refuse_long(visit, OF_APP, AFTER)
        views = await visit.client.store.schedules.views(limit, app, None, after)
        return lambda: {
            "schedules": [as_json.schedule(view) for view in views],
            "next": f"{views[-1].app}/{views[-1].name}" if len(views) == limit else None,
        }

    async def _schedule(self, visit: Visit) -> Any:
        handle, count = await _schedule_of(visit), _whole(visit, "count", 1, MOST_MOMENTS, 5)

        def shape() -> dict[str, Any]:
            moments, trouble = schedule_pages.upcoming(handle.view, count)
            upcoming = [as_json.moment(each) for each in moments]
            shape = as_json.schedule(handle.view)
            return shape | {
                "trouble": shape["trouble"] or trouble or None,
                "upcoming": upcoming,
                "zone_rules": as_json.zone_rules(zones.current()),
            }

        return shape

    async def _pause(self, visit: Visit, body: PauseBody) -> Any:
        handle = await _schedule_of(visit)
        view = await handle.pause(_value_or_none(body.length), **_by(visit, body))
        return as_json.schedule(view)

    async def _resume(self, visit: Visit, body: Why) -> Any:
        handle = await _schedule_of(visit)
        await handle.resume(**_by(visit, body))
        return as_json.schedule(await handle.status())

    async def _trigger(self, visit: Visit, body: Why) -> Any:
        handle = await _schedule_of(visit)
        task = await handle.trigger(**_by(visit, body))
        return {"task": task.id}

    async def _backfill(self, visit: Visit, body: BackfillBody) -> Any:
        handle = await _schedule_of(visit)
        if body.dry_run:
            pairs = await preview_backfill(handle, body.since, body.until, body.limit)
            return {
                "tasks": [{"task": task and ids.show(task), "created": task is None} for _, task in pairs]
            }
        tasks = await handle.backfill(body.since, body.until, limit=body.limit, **_by(visit, body))
        return {"tasks": [{"task": task.id, "created": task.created} for task in tasks]}

    async def _brokers(self, visit: Visit) -> Any:
        return as_json.brokers(await visit.client.brokers())

    # -- lanes -----------------------------------------------------------------------------------------------

    async def _lanes(self, visit: Visit) -> Any:
        limit, after = _limit(visit), behind(visit.query.get("after", ""))
        _refuse_long(visit, OF_APP, LANE, AFTER_LANE)
        name, app = visit.query.get("name"), visit.query.get("app")
        views = await visit.client.lanes(app, name, limit=limit, after=after)
        return lambda: {
            "lanes": [as_json.lane(view) for view in views],
            "next": f"{views[-1].app}/{views[-1].name}" if len(views) == limit and name is None else None,
        }

    # -- bulk acts -------------------------------------------------------------------------------------------

    async def _bulk_acts(self, visit: Visit) -> Any:
        return {"bulk": [_bulk(view) for view in await visit.client.store.oversight.bulk_acts()]}

    async def _bulk_act(self, visit: Visit) -> Any:
        return _bulk(await visit.client.bulk_act(visit.params["id"]))

    async def _bulk_refusals(self, visit: Visit) -> Any:
        act = await visit.client.bulk_act(visit.params["id"])
        refusals = await visit.client.store.oversight.bulk_refusals(act.id, _limit(visit))
        return lambda: {"refusals": [_shape_with_times(refusal) for refusal in refusals]}

    async def _bulk(self, visit: Visit, body: BulkBody) -> Any:
        condition = filters.parse_filter(body.filter)
        id_ = None if isinstance(body.id, UnsetType) else ids.checked_bulk(body.id)
        is_new = id_ is None or await visit.client.store.oversight.bulk_act(id_) is None
        if is_new and not isinstance(body.expected, UnsetType):
            now = await visit.client.count(condition)
            if now != body.expected:
                text = f"{now:,} tasks match by now, not {body.expected:,}. Nothing was done."
                raise Denied(409, "Another number", text)
        act = await visit.client.bulk(
            body.act, condition, limit=_value_or_none(body.limit), rate=_value_or_none(body.rate), signal=_value_or_none(body.signal),
            value=body.value, id=id_, **_by(visit, body),
        )  # fmt: skip
        return _bulk(act)

    async def _stop(self, visit: Visit, body: Why) -> Any:
        act = await visit.client.stop_bulk(visit.params["id"], **_by(visit, body))
        return _bulk(act)


async def _body(visit: Visit, struct_type: type[T]) -> T:
    """Return the body of a request. Raises ``Denied``."""
    kind = visit.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Denied(415, "Not JSON", "Send a JSON object, as content-type application/json.")
    raw = await body_of(visit.request)
    try:
        return msgspec.json.decode(shallow(raw or b"{}", "The body"), type=struct_type)
    except UNREADABLE as wrong:
        raise Denied(
            422, "Not understood", f"The body does not fit: {wrong}{_choices(struct_type, wrong)}."
        ) from None


async def _do_act(do: Do[B], visit: Visit, body: B) -> dict[str, Any]:
    """Do an act on the task of the address, and return what became of it."""
    task = visit.client.task(visit.params["task"])
    try:
        answer = await do(task, body, visit)
    except WaitExpiredError as waiting:
        return {"task": task.id, "verdict": "waiting", "outcome": str(waiting), "state": None}
    return {"task": task.id, "verdict": answer.verdict, "outcome": answer.outcome, "state": answer.state}


def _by(visit: Visit, body: Any) -> dict[str, Any]:
    """Return who acts, and why."""
    return {"who": who_of(visit), "why": body.reason}


def _act_options(body: B, visit: Visit) -> dict[str, Any]:
    return {**_by(visit, body), "timeout": PATIENCE}


def _resubmit(task: TaskHandle[Any], body: ResubmitBody, visit: Visit) -> Awaitable[Answer]:
    inputs: Any = _value_or_none(body.inputs)
    if inputs is not None and not visit.visitor.may("admin"):
        raise Denied(403, "For role admin", "Correcting what a task was given needs the role admin.")
    return task.resubmit(step=_value_or_none(body.step), inputs=inputs, **_act_options(body, visit))


def _settle(task: TaskHandle[Any], body: SettleBody, visit: Visit) -> Awaitable[Answer]:
    value = body.value if body.outcome == "done" else None
    return task.settle(body.step, outcome=body.outcome, value=value, **_act_options(body, visit))


async def _schedule_of(visit: Visit) -> ScheduleHandle:
    return await visit.client.find_schedule(visit.params["name"], app=visit.params["app"])


def _value_or_none(value: T | UnsetType) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _choices(struct_type: type[Any], wrong: Exception) -> str:
    """Return what a member may be, if it has to be one of some texts and was not; else ""."""
    place = _NOT_A_CHOICE.search(str(wrong))
    kind = next((f.type for f in fields(struct_type) if place is not None and f.name == place[1]), None)
    return f"; one of {', '.join(get_args(kind))}" if get_origin(kind) is Literal else ""


def _whole(visit: Visit, name: str, least: int, most: int, default: int) -> int:
    """Return a whole number of the query. Raises ``Denied``."""
    text = visit.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
        raise Denied(400, "Not understood", f"{name}={text[:30]!r}: a whole number from {least} to {most}.")
    return int(text)


def _refuse_long(visit: Visit, *texts: Parameter) -> None:
    for text in texts:
        if len(visit.query.get(text.name, "")) > (longest := text.schema["maxLength"]):
            raise ConfigError(f"{text.name}: a text of at most {longest} characters")


def _filter_of(visit: Visit) -> Filter:
    return filters.parse_filter(visit.query.get("q", ""))


def _limit(visit: Visit) -> int:
    return _whole(visit, "limit", 1, MOST, 100)


def _findings(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [as_json.pick(finding, "check severity what remedy") for finding in findings]


def _shape_with_times(record: object) -> dict[str, Any]:
    """Return a record with its moments and its task as people read them."""
    shape: dict[str, Any] = msgspec.to_builtins(record)
    for name in shape.keys() & _MOMENTS:
        value = shape[name]
        shape[name] = [iso(moment) for moment in value] if isinstance(value, list | tuple) else iso(value)
    if "task" in shape:
        shape["task"] = ids.show(shape["task"]) if shape["task"] else None
    return shape


def _bulk(view: BulkView) -> dict[str, Any]:
    shape = _shape_with_times(view) | {"waiting": view.waiting, "progress": round(view.progress, 4)}
    del shape["wanted"]
    return shape


def _of_task(visit: Visit) -> int | None:
    text = visit.query.get("task")
    return None if text is None else ids.parse(text)
