"""The description of the JSON API: ``openapi.json`` beside this module; a test compares it with ``document``.

``python -m makegood.console.openapi`` prints it.

``_ANSWERS`` writes the schema of each answer as one text, its properties as NAME:KIND. A kind is one of
``_KINDS``, or the name of another answer; ``KIND?`` may be null; ``[KIND]`` is a list of that kind; ``+NAME``
stands for all properties of another answer.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.console.api import ROOT, Api, Endpoint
from makegood.console.covering import Covering
from makegood.console.drawing import DrawingThread
from makegood.console.redaction import Redaction

_KINDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "yes": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "id": {"type": "string", "pattern": "^[0-9a-z]{13}$"},
    "any": {},
    "texts": {"type": "object", "additionalProperties": {"type": "string"}},
    "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
}

_ANSWERS: Final[Mapping[str, str]] = {
    "Session": "user:text role:text csrf:text",
    "Done": "done:text",
    "Answer": "task:id verdict:text outcome:text state:text?",
    "Signalled": "task:id signal:text id:text created:yes",
    "Signal": "name:text id:text at:time who:text? step:text? used:text? kept:yes",
    "Task": "id:id app:text workflow:text key:text? state:text goal:text submission:whole priority:whole cause:text failure_count:whole "
    "locked_by:whole? epoch:whole correlation_id:text? created:time? starts:time? ended:time? complete_by:time? result:any",
    "Tasks": "tasks:[Task] older:id?",
    "Count": "count:whole more:yes",
    "Step": "idx:whole kind:text name:text agent:text action:text state:text attempt:whole round:whole failures:whole doubt:yes "
    "undoable:yes loser:yes result:any error:text? doing:text? waiting:yes taken_by:whole? due:number? "
    "first_sent:time? key:text? service_key:text? undo_key:text? undo_service_key:text?",
    "Allowed": "act:text step:text? command:text",
    "TaskLane": "name:text place:text at_once:whole before:whole behind:whole held_by:[id]",
    "LanePlace": "task:id workflow:text key:text? state:text at_once:whole since:time",
    "Lane": "app:text name:text held:whole waiting:whole holders:[LanePlace] waiters:[LanePlace]",
    "Lanes": "lanes:[Lane] next:text?",
    "Source": "address:text queue:text readers:[text] waiting:whole? oldest:number? taken:whole refused:whole redelivered:whole away:number? error:text",
    "Receiver": "broker:text waiting:whole oldest:number? dead:whole sent:whole failed:whole error:text",
    "Brokers": "sources:[Source] receivers:[Receiver]",
    "Wait": "step:text for:text name:text? until:time?",
    "TaskDetail": "+Task inputs:[any] reply_to:text? attributes:texts signals:[Signal] waits:[Wait] lanes:[TaskLane] steps:[Step] unreadable:[text] allowed:[Allowed] next:whole? left_out:counts",
    "Move": "step:text? from:text to:text reason:text why:text",
    "Event": "event:text seq:whole task:id at:time node:whole? moves:[Move] note:text attempts:[AttemptEnd] notes:[Note]",
    "Note": "idx:whole attempt:whole doing:text value:any skipped:whole late:yes",
    "AttemptEnd": "idx:whole attempt:whole doing:text kind:text node:whole? took:number? error:text? frame:text? traceback:text? late:yes",
    "Events": "events:[Event] next:whole?",
    "Undo": "step:text turn:whole? what:text",
    "Preview": "undo:[Undo]",
    "Alert": "id:whole kind:text task:id? step:text? text:text at:time open:yes ended:time? ended_why:text? acked:time? acked_by:text? "
    "acked_why:text? acked_db_user:text?",
    "Alerts": "alerts:[Alert]",
    "Act": "act:text task:id? kind:text who:text db_user:text? why:text verdict:text outcome:text state:text at:time change:any",
    "Audit": "audit:[Act]",
    "AgentOfNode": "agent:text slots:whole used:whole calls:whole failed:whole failure_rate:number? seconds:number success:number? "
    "circuit:text? reset:number? most:whole rate:number?",
    "Node": "id:whole name:text roles:[text] host:text pid:whole state:text started:time heartbeat_age:number remaining:number held:whole "
    "agents:[AgentOfNode] zone_rules:ZoneRules?",
    "ZoneRules": "source:text version:text",
    "Nodes": "nodes:[Node] waiting:counts",
    "Term": "epoch:whole holder:text began:time ended:time? released:yes",
    "Leader": "name:text holder:text? last_holder:text? epoch:whole since:time? ttl:number? remaining:number? terms:[Term]",
    "ErrorGroup": "name:text agent:text action:text doing:text message:text frame:text attempts:whole tasks:whole first:time last:time "
    "sample:text ids:[id] states:counts times:[time] retried:whole traceback:text blocking:whole",
    "Errors": "groups:[ErrorGroup] read:whole capped:yes",
    "Refusal": "id:whole at:time kind:text who:text node:whole? task:id? step:text attempt:whole? epoch:whole? against:whole? what:text",
    "Refusals": "refusals:[Refusal]",
    "Decision": "id:whole at:time kind:text tasks:whole task:id epoch:whole",
    "Decisions": "decisions:[Decision]",
    "Minute": "minute:time seen:number submitted:whole processed:whole undone:whole errors:whole steps:whole p50:number? p95:number?",
    "Minutes": "minutes:[Minute]",
    "Queue": "queue:text waiting:whole taken:whole delayed:whole dead:whole bytes:whole oldest:number? read:yes",
    "Queues": "queues:[Queue]",
    "Pausing": "by:text why:text since:time until:time?",
    "Schedule": "app:text name:text workflow:text cron:text? every:number? timezone:text overlap:text catch_up:number coalesce:yes jitter:number "
    "start:time? end:time? declared:yes next_moment:time? next_firing:time? buffered:yes last_task:id? last_state:text? last_moment:text? "
    "firings:whole skips:counts paused:Pausing? trouble:text?",
    "Schedules": "schedules:[Schedule] next:text?",
    "Moment": "moment:time local:time mark:text?",
    "ScheduleDetail": "+Schedule upcoming:[Moment] zone_rules:ZoneRules?",
    "Triggered": "task:id",
    "Launched": "task:id? created:yes",
    "Backfill": "tasks:[Launched]",
    "BulkAct": "id:text kind:text who:text why:text counted:whole limit:whole? rate:number? state:text at:time ended:time? sent:whole "
    "applied:whole noop:whole refused:whole waiting:whole progress:number stopped_by:text more:yes signal:text",
    "BulkActs": "bulk:[BulkAct]",
    "BulkRefusal": "task:id outcome:text at:time",
    "BulkRefusals": "refusals:[BulkRefusal]",
    "Finding": "check:text severity:text what:text remedy:text",
    "Examination": "findings:[Finding]",
    "Store": "dialect:text version:whole needed:whole missing:[text] findings:[Finding]",
}
"""The schemas of answers, by name, in the notation that the module's docstring explains."""

_PROBLEMS: Final[Mapping[str, str]] = {
    "400": "The request does not make sense.",
    "401": "Nobody is logged in.",
    "403": "The role does not allow it, or the token is missing.",
    "404": "There is no such thing.",
    "409": "It is not allowed now, and the reason says who was first; or the same name has other content.",
    "405": "The address is used by another method.",
    "413": "The body is too long.",
    "415": "The body is not JSON.",
    "422": "The body does not fit.",
    "503": "The store cannot be reached.",
}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _kind(text: str) -> dict[str, Any]:
    if text.endswith("?"):
        schema = _kind(text[:-1])
        if isinstance(schema.get("type"), str):
            return {**schema, "type": [schema["type"], "null"]}
        return {"anyOf": [schema, {"type": "null"}]}
    if text.startswith("["):
        return {"type": "array", "items": _kind(text[1:-1])}
    return dict(_KINDS[text]) if text in _KINDS else _ref(text)


def _properties(text: str) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for word in text.split():
        if word.startswith("+"):
            properties |= _properties(_ANSWERS[word[1:]])
        else:
            name, _, kind = word.partition(":")
            properties[name] = _kind(kind)
    return properties


def _answer(text: str) -> dict[str, Any]:
    properties = _properties(text)
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _path_for_readers(path: str) -> str:
    """Return a path as it is described: a name that may hold slashes is one part."""
    return path.replace(":path}", "}")


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    path = _path_for_readers(endpoint.path)
    names = re.findall(r"{(\w+)}", path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in names
    ]
    parameters += [
        {
            "name": parameter.name,
            "in": "query",
            "description": parameter.about,
            "schema": dict(parameter.schema),
        }
        for parameter in endpoint.query
    ]
    problem = {"application/problem+json": {"schema": _ref("Problem")}}
    answers: dict[str, Any] = {
        "200": {"description": "Done.", "content": {"application/json": {"schema": _ref(endpoint.answer)}}}
    }
    if endpoint.answer == "Answer":
        answers["202"] = {**answers["200"], "description": "Not decided yet: no Scheduler has answered."}
    answers |= {status: {"description": about, "content": problem} for status, about in _PROBLEMS.items()}
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{endpoint.method.lower()}{path}").strip("_"),
        "summary": endpoint.about,
        "description": f"Role: {endpoint.role}.",
        "parameters": parameters,
        "responses": answers,
        "security": [{"password": []}, {"login": [], "token": []} if endpoint.body else {"login": []}],
    }
    if endpoint.body is not None:
        schema = _ref(endpoint.body.__name__)
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def document(endpoints: Sequence[Endpoint] | None = None) -> dict[str, Any]:
    """Return the description, as OpenAPI 3.1."""
    if endpoints is None:
        redaction, thread = Redaction(), DrawingThread()
        endpoints = Api(redaction, thread, Covering(redaction, thread)).endpoints
    bodies = sorted(
        {endpoint.body for endpoint in endpoints if endpoint.body is not None}, key=lambda body: body.__name__
    )
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    problem = _answer("type:text title:text status:whole detail:text")
    schemas = (
        {name: _answer(text) for name, text in _ANSWERS.items()} | dict(components) | {"Problem": problem}
    )
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(ROOT + _path_for_readers(endpoint.path), {})[endpoint.method.lower()] = _operation(
            endpoint
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "makegood console",
            "version": "1",
            "description": "The reads and acts of the console, for programs. Times are ISO 8601 in UTC; durations are seconds.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "login": {"type": "apiKey", "in": "cookie", "name": "makegood_login"},
                "token": {"type": "apiKey", "in": "header", "name": "X-CSRF-Token"},
            },
        },
    }


def text() -> str:
    """Return the description as it is checked in."""
    return msgspec.json.format(msgspec.json.encode(document()), indent=2).decode() + "\n"


if __name__ == "__main__":
    print(text(), end="")  # noqa: T201 - its purpose
