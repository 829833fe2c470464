"""Signals from the console: a form made of the stored schema, what it becomes, and what is listed."""

import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

import makegood as mg
from makegood.console.api import ROOT
from makegood.console.signal_forms import LONGEST, MOST_FIELDS, FormField, fields_of, value_of
from tests.console.asking import Got
from tests.console.consoles import Console, a_console, place_order
from tests.console.test_acts import act
from tests.console.test_api import sent


@dataclass
class Approval:
    """What the boss says."""

    yes: bool
    note: str
    cents: int = 0
    level: Literal["low", "high"] | None = None
    rate: float | None = None


def schema(kind: Any) -> str:
    """Return the JSON schema of a type, as it is stored."""
    return msgspec.json.encode(msgspec.json.schema(kind)).decode()


@asynccontextmanager
async def waiting(folder: Path) -> AsyncIterator[tuple[Console, mg.TaskHandle[str]]]:
    """A console and a task that is known to wait for two signals; no Scheduler runs."""
    async with a_console(folder) as console:
        task = await console.app.client.submit(place_order, {"id": "o-1", "token": "s3cret"}, key="o-1")
        place = console.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(place)) as connection, connection:
            ((static,),) = connection.execute("select static from makegood_task").fetchall()
            content = json.loads(static) | {"signals": [["approval", schema(Approval)], ["payment", ""]]}
            connection.execute("update makegood_task set static = ?", (json.dumps(content).encode(),))
        yield console, task


async def test_the_page_has_a_form_for_each_signal_that_the_task_waits_for(tmp_path: Path) -> None:
    """It needs no script; a viewer sees who may send."""
    async with waiting(tmp_path) as (console, task):
        page = (await console.browser("otto").get(f"/tasks/{task.id}")).text
        assert page.count(f'action="/tasks/{task.id}/signal"') == 2
        assert "Send approval…" in page
        for text in (
            '<input type="hidden" name="signal" value="approval"><input type="hidden" name="id" value="console-1">',
            '<select class="input" name="value-0" required data-focus><option value=""></option><option value="true">yes</option>',
            '<input class="input" name="value-1">',
            '<input class="input" name="value-2" inputmode="decimal">',
            '<option value="&#34;low&#34;">&#34;low&#34;</option>',
            '<textarea class="input mono" name="value-0" rows="3" spellcheck="false" placeholder="null" required data-focus></textarea>',
        ):
            assert text in page, text
        page = (await console.browser("vera").get(f"/tasks/{task.id}")).text
        assert f'action="/tasks/{task.id}/signal"' not in page
        assert "Send approval: needs the role operator." in page


async def test_a_form_becomes_a_signal_with_who_and_why(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (console, task):
        browser = console.browser("otto")
        fields = {
            "signal": "approval",
            "id": "console-1",
            "value-0": "true",
            "value-1": " fine ",
            "value-3": '"low"',
            "value-4": "1.5",
        }
        response = await act(console, browser, f"/tasks/{task.id}/signal", reason="by phone", **fields)
        assert (response.status, response.headers["location"]) == (303, f"/tasks/{task.id}")
        (audit,) = await console.app.client.audit(task.id)
        assert (audit.kind, audit.who, audit.why, audit.act) == (
            "signal",
            "otto",
            "by phone",
            response.headers["x-request-id"],
        )
        ((body,),) = rows(console, "select body from makegood_inbox")
        message = json.loads(body)
        assert message["signal"] == ["approval", "console-1", ""]
        assert json.loads(msgspec.json.decode(body, type=_Body).value) == {
            "yes": True, "note": " fine ", "cents": 0, "level": "low", "rate": 1.5
        }  # fmt: skip
        page = (await browser.get(f"/tasks/{task.id}")).text
        assert "Sent: o-1" in page
        assert "unread; sent at" in page
        assert 'name="id" value="console-2"' in page
        response = await act(console, browser, f"/tasks/{task.id}/signal", **fields)
        assert response.status == 303
        assert "Nothing to do: o-1" in (await browser.get("/")).text
        assert len(rows(console, "select 1 from makegood_inbox")) == 1


class _Body(msgspec.Struct):
    value: bytes


def rows(console: Console, sql: str) -> list[Any]:
    """Return what a statement finds."""
    with closing(sqlite3.connect(console.url.removeprefix("sqlite:///"))) as connection:
        return connection.execute(sql).fetchall()


async def test_two_who_answer_at_the_same_moment_are_one_answer(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (console, task):
        fields = {"signal": "approval", "id": "console-1", "value-0": "true", "value-1": ""}
        otto, ada = console.browser("otto"), console.browser("ada")
        assert (await act(console, otto, f"/tasks/{task.id}/signal", **fields)).status == 303
        refusal = await ada.post(
            f"/tasks/{task.id}/signal",
            {"csrf": console.token(ada), **fields, "value-0": "false"},
            hx_request="true",
        )
        assert refusal.status == 409
        assert "with another value, or for another step: nothing was sent" in refusal.text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"value-0": "perhaps", "value-1": ""}, "yes is true or false."),
        ({"value-0": "true", "value-1": "", "value-2": "1.5"}, "cents is a whole number."),
        ({"value-0": "true", "value-1": "", "value-2": "x"}, "cents is not JSON"),
        ({"value-0": "true", "value-1": "", "value-3": '"middle"'}, "level is one of"),
    ],
)
async def test_what_does_not_fit_the_schema_is_refused(
    tmp_path: Path, fields: dict[str, str], text: str
) -> None:
    async with waiting(tmp_path) as (console, task):
        browser = console.browser("otto")
        response = await act(console, browser, f"/tasks/{task.id}/signal", signal="approval", **fields)
        assert response.status == 400
        assert text in response.text
        assert rows(console, "select 1 from makegood_signal") == []


async def test_a_refused_signal_says_why(tmp_path: Path) -> None:
    async with waiting(tmp_path) as (console, task):
        browser = console.browser("otto")
        fields = {"csrf": console.token(browser), "signal": "aproval", "value-0": "null"}
        response = await browser.post(f"/tasks/{task.id}/signal", fields, hx_request="true")
        assert response.status == 409
        assert (
            "waits for no signal &#39;aproval&#39;, now or later; it has approval, payment" in response.text
        )
        with closing(sqlite3.connect(console.url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute("update makegood_task set state = 'processed'")
        page = (await browser.get(f"/tasks/{task.id}")).text
        assert "Send approval" not in page


async def test_a_program_sends_signals_through_the_api(tmp_path: Path) -> None:
    """As an operator, with the token; the answer is that of the command line."""
    async with waiting(tmp_path) as (console, task):
        otto, path = console.browser("otto"), f"/tasks/{task.id}/signal"
        body = {"name": "payment", "value": [1], "id": "p-1", "reason": "seen at the bank"}
        assert (await sent(console.browser("vera"), path, body)).status == 403
        assert (await sent(otto, path, body, **{"x-csrf-token": "no"})).status == 403
        answer = json.loads((await sent(otto, path, body)).text)
        assert answer == {"task": task.id, "signal": "payment", "id": "p-1", "created": True}
        again: Got = await sent(otto, path, body)
        assert (again.status, json.loads(again.text)) == (200, answer | {"created": False})
        conflict: Got = await sent(otto, path, body | {"value": [2]})
        problem = json.loads(conflict.text)
        assert (conflict.status, problem["status"]) == (409, 409)
        assert "knows a signal 'payment' of the id 'p-1' with another value" in problem["detail"]
        refusal: Got = await sent(otto, path, {"name": "aproval"})
        assert refusal.status == 409
        assert (await sent(otto, path, {"nam": "payment"})).status == 422
        detail = json.loads((await otto.get(f"{ROOT}/tasks/{task.id}")).text)
        (signal,) = detail["signals"]
        assert (signal["name"], signal["id"], signal["who"], signal["used"]) == (
            "payment",
            "p-1",
            "otto",
            None,
        )


async def test_the_request_on_the_page_of_the_console_sends_a_signal(tmp_path: Path) -> None:
    """Sent again it is known; with another value it is a conflict, with the status 409."""
    page = (Path(__file__).parents[2] / "docs/operate/console.md").read_text(encoding="utf-8")
    ((text, path),) = re.findall(r"-d '([^']+)' \\\n +http://127.0.0.1:8640/api/v1(/tasks/TASK/signal)", page)
    body = json.loads(text) | {"name": "payment"}  # of this task, which takes any value
    async with waiting(tmp_path) as (console, task):
        otto, path = console.browser("otto"), path.replace("TASK", task.id)
        for change, status, created in (
            ({}, 200, True),
            ({}, 200, False),
            ({"value": {"yes": False}}, 409, None),
        ):
            got: Got = await sent(otto, path, body | change)
            assert (got.status, json.loads(got.text).get("created")) == (status, created), got.text


@dataclass
class Line:
    item: str
    count: int


@dataclass
class Basket:
    lines: list[Line]
    tags: dict[str, str]
    gift: bool
    coupon: int | str | None


@dataclass
class Tree:
    branches: "list[Tree]"


KINDS: list[tuple[Any, list[tuple[str, str]]]] = [
    (str, [("text", "")]),
    (int | None, [("integer", "")]),
    (bool, [("boolean", "")]),
    (Literal["a", "b"], [("choice", "")]),
    (
        Approval,
        [("boolean", "yes"), ("text", "note"), ("integer", "cents"), ("choice", "level"), ("number", "rate")],
    ),
    (list[str], [("json", "")]),
    (int | str, [("json", "")]),
    (dict[str, int], [("json", "")]),
    (bytes, [("json", "")]),
]


@pytest.mark.parametrize(("kind", "fields"), KINDS)
def test_each_kind_of_value_has_its_fields(kind: Any, fields: list[tuple[str, str]]) -> None:
    assert [(field.kind, field.member) for field in fields_of(schema(kind))] == fields


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "7", '{"type":7}', '{"$ref":"#/$defs/x"}', '{"$ref":"#/$defs/x","$defs":{"x":{"$ref":"#/$defs/x"}}}',
     '{"anyOf":7}', '{"enum":7}', '{"type":"object","properties":7}', '{"type":"object","properties":{"a":7}}', "{" * 5000,
     json.dumps({"type": "object", "properties": {str(n): {"type": "string"} for n in range(MOST_FIELDS + 1)}})],
)  # fmt: skip
def test_a_schema_that_is_none_is_a_field_of_json(text: str) -> None:
    (field,) = fields_of(text)
    assert (field.kind, field.name) == ("json", "value-0")


@pytest.mark.parametrize(
    ("kind", "example"),
    [
        (Basket, '{"lines":[{"item":"","count":0}],"tags":{},"gift":false,"coupon":null}'),
        (list[str], '[""]'),
        (dict[str, int], "{}"),
        (int | str, "null"),
    ],
)
def test_a_field_of_json_shows_the_form_of_its_values(kind: Any, example: str) -> None:
    assert fields_of(schema(kind)) == (FormField("json", example=example),)


def test_an_example_is_short_and_ends() -> None:
    """Also one of a type that contains itself, or of many long names."""
    (field,) = fields_of(schema(Tree))
    assert field.example == '{"branches":[{"branches":[null]}]}'
    members = {f"{'n' * 40}{number}": {"type": "array"} for number in range(9)}
    (field,) = fields_of(json.dumps({"type": "object", "properties": members}))
    assert (len(field.example), field.example[-1]) == (LONGEST, "…")


def test_a_value_is_what_the_fields_hold() -> None:
    assert value_of(fields_of(schema(int | None)), {"value-0": ""}) is None
    assert value_of(fields_of(schema(int)), {"value-0": " 7 "}) == 7
    assert value_of(fields_of(schema(str)), {"value-0": " a "}) == " a "
    assert value_of(fields_of(""), {"value-0": '{"a": [1]}'}) == {"a": [1]}
    with pytest.raises(ValueError, match="the value is a number"):
        value_of(fields_of(schema(float)), {"value-0": "true"})
    with pytest.raises(ValueError, match="the value is not JSON"):
        value_of(fields_of(""), {"value-0": ""})
