"""The reference is complete: each method, parameter and field that a user meets is on its page, and nothing else."""

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import makegood as mg
from makegood.client import as_json
from makegood.model.plan import Template
from makegood.model.queue_message import QueueMessage
from makegood.model.schedule import SchedulePlan, ScheduleSpec, ScheduleTimes
from makegood.store.notice_records import ListenerView
from makegood.store.queue_records import MessageView, QueueView
from makegood.store.schedule_records import ScheduleView
from makegood.store.views import (
    AgentInfo,
    AlertView,
    AuditView,
    EventView,
    NodeInfo,
    NodeView,
    StepView,
    TaskDetail,
    TaskView,
)

ROOT = Path(__file__).resolve().parents[2] / "docs/reference"


def section(page: str, title: str) -> str:
    """Return what a page says below a heading that begins so, up to the next one of its rank."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (body,) = re.findall(rf"^## `?{re.escape(title)}\b.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(body)


def first_column(text: str) -> set[str]:
    """Return the names in code in the first column of a section's tables."""
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)", row)}


def methods(cls: type) -> dict[str, Any]:
    """Return the methods of a class that users call."""
    members = {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}
    return {name: value for name, value in members.items() if callable(value)}


@pytest.mark.parametrize(
    ("title", "page", "classes"),
    [
        ("Client", "client.md", (mg.Client, mg.SyncClient)),
        ("TaskHandle", "client.md", (mg.TaskHandle, mg.SyncTaskHandle)),
        ("Node", "client.md", (mg.Node, mg.SyncNode)),
        ("queue(", "queues.md", (mg.Queue, mg.SyncQueue)),
    ],
)
def test_every_method_is_explained_with_its_parameters(
    title: str, page: str, classes: tuple[type, ...]
) -> None:
    text = section(page, title)
    for cls in classes:
        for name, method in methods(cls).items():
            assert re.search(rf"`(?:[^`]*, `)?{name}\(|`{name}`", text), (
                f"{page} does not explain {cls.__name__}.{name}"
            )
            for parameter in inspect.signature(method).parameters.values():
                if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD:
                    assert parameter.name in text, f"{page}: {cls.__name__}.{name} takes {parameter.name}"


def test_constructors_are_explained() -> None:
    """What a client and a node are made with, apart from what only tests hand in."""
    for title, cls in (("Client", mg.Client), ("Client", mg.SyncClient), ("Node", mg.Node)):
        parameters = set(inspect.signature(cls).parameters) - {"clock", "rng"}
        assert parameters <= first_column(section("client.md", title)), title


def fields(*types: Any) -> set[str]:
    """Return the names of the fields of records."""
    return {name for each in types for name in get_type_hints(each) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("title", "fields"),
    [
        ("Filter", fields(mg.Filter)),
        ("TaskView", fields(TaskView) | {"starts"}),
        ("TaskDetail", fields(TaskDetail) | {"waits"}),
        ("StepView", fields(StepView)),
        ("EventView", fields(EventView) | {"event"}),
        ("AlertView", fields(AlertView) | {"open"}),
        ("AuditView", fields(AuditView)),
        ("Answer", fields(mg.Answer, mg.Acted)),
        ("Sent", fields(mg.Sent)),
        ("QueueView", fields(QueueView)),
        ("QueueMessage", (fields(QueueMessage, MessageView) - {"body", "message"}) | {"value", "receipt"}),
        ("ListenerView", fields(ListenerView) | {"to"}),
        ("ScheduleView", fields(ScheduleView) | {"times", "declared", "buffered", "paused"}),
        ("Pass", fields(mg.Pass) | {"done"}),
    ],
)
def test_every_field_of_a_record_is_explained(title: str, fields: set[str]) -> None:
    assert first_column(section("records.md", title)) == fields


MESSAGE = QueueMessage(seq=1, queue="web", id="a", body=b"1")
SCHEDULE = ScheduleView(
    "a", "s", "w", "0 2 * * *", None, "UTC", "skip", 1.0, True, 0.0, None, None, True, None, None, False, None, None, "", 0, {}, 0.0, None, "", "", "",
    0.0, ScheduleSpec("a", "s", ScheduleTimes()), SchedulePlan("w", (), (), (), Template(("null",))), 0.0,
)  # fmt: skip
JSON: list[tuple[str, dict[str, Any]]] = [
    ("TaskView", as_json.task(TaskView(1, "a", "w", None, "pending", "forward", 1, 0, "", 0, None, 0, None, 0.0, None, None))),
    ("StepView", as_json.step(StepView(0, "action", "s", "a", "a", "done", 1, 1, 0, False, True))),
    ("EventView", as_json.event(EventView(1, 1, 0.0, None, []))),
    ("AlertView", as_json.alert(AlertView(1, "held", 1, "", "", 0.0))),
    ("AuditView", as_json.audit(AuditView("", 1, "", "", "", "", "", "", 0.0))),
    ("QueueView", as_json.queue(QueueView("q", 0, 0, 0, 0, None))),
    ("QueueMessage", as_json.message(MESSAGE)),
    ("QueueMessage", as_json.mail(MessageView(MESSAGE, "waiting", 0.0, None, None, None))),
    ("ListenerView", as_json.listener(ListenerView(1, "https://a.example/x", 0, 1, 0, False, 0.0, ""))),
    ("Processes", as_json.node(NodeView(1, NodeInfo("n", (), "h", 1, 5.0, (AgentInfo("a/b", 1),)), 0.0, 1.0, False, False))),
    ("Leaders", as_json.lease(None, "s")),
    ("ScheduleView", as_json.schedule(SCHEDULE)),
]  # fmt: skip


@pytest.mark.parametrize(("title", "shape"), JSON, ids=[title for title, _ in JSON])
def test_every_field_of_json_is_explained(title: str, shape: dict[str, Any]) -> None:
    """What ``--json`` writes is on the page, nested objects too."""
    names = set(shape)
    for inner in shape.get("agents", ()):
        names |= set(inner)
    assert names <= first_column(section("records.md", title))


def test_what_is_returned_is_public() -> None:
    """Each type that a public method returns is ``mg.NAME``."""
    public = set(mg.__all__)
    for cls in (
        mg.Client, mg.SyncClient, mg.TaskHandle, mg.SyncTaskHandle, mg.Queue, mg.SyncQueue, mg.Node, mg.SyncNode, mg.App,
        mg.Workflow, mg.Inbox, mg.Plan, mg.Call,
    ):  # fmt: skip
        for name, method in methods(cls).items():
            for type_name in re.findall(
                r"makegood\.[\w.]+\.(\w+)", str(inspect.signature(method).return_annotation)
            ):
                assert type_name in public, f"{cls.__name__}.{name} returns {type_name}"
