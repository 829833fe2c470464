"""A form that is refused keeps what was typed, and names the field that is wrong, also without a script."""

import re
from html import unescape
from pathlib import Path

import pytest

from makegood.base import ids
from tests.conformance.builders import draft
from tests.console.consoles import a_console
from tests.console.test_acts import act, at_work
from tests.console.test_schedules import MONTHLY, range_of
from tests.console.test_signals import waiting

FIELD = re.compile(
    r'<label class="field"><span>([^<]*)</span><(?:input|textarea)([^>]*)>(?:\n([^<]*)</textarea>)?(<small)?'
)


def fields_in(text: str) -> dict[str, tuple[str, bool]]:
    """Return the fields of the form of an answer: what each holds, and whether it is said to be wrong."""
    fields = {}
    for _, attributes, body, says in FIELD.findall(text.partition('id="again"')[2]):
        (name,) = re.findall(r' name="([^"]*)"', attributes)
        value = re.findall(r' value="([^"]*)"', attributes)
        fields[name] = (unescape(value[0] if value else body), bool(says) and "aria-invalid" in attributes)
    return fields


async def test_a_signal_whose_value_is_not_json_is_kept(tmp_path: Path) -> None:
    """Its field says so; corrected, the same form is accepted."""
    async with waiting(tmp_path) as (console, task):
        otto, path = console.browser("otto"), f"/tasks/{task.id}/signal"
        form = {"signal": "payment", "id": "s-1", "value-0": '{"cents": 1200', "reason": "by <phone>"}
        answer = await act(console, otto, path, **form)
        assert answer.status == 400
        assert fields_in(answer.text) == {
            "value-0": ('{"cents": 1200', True),
            "reason": ("by <phone>", False),
        }
        assert '<input type="hidden" name="signal" value="payment">' in answer.text
        assert 'name="csrf"' in answer.text.partition('id="again"')[2]
        answer = await act(console, otto, path, **form | {"value-0": '{"cents": 1200}'})
        assert answer.status == 303


@pytest.mark.parametrize(
    ("path", "form", "wrong"),
    [
        (
            "settle",
            {"step": "charge", "outcome": "done", "value": "{", "reason": "the bank says so"},
            "value",
        ),
        ("settle", {"step": "charge", "outcome": "done", "value": '"p-1"', "reason": ""}, "reason"),
        ("edit", {"step": "charge", "input": '{"amount"', "reason": "a slip"}, "input"),
        ("extend", {"more": "soon", "reason": "busy"}, ""),
    ],
)
async def test_acts_on_a_task_are_kept(tmp_path: Path, path: str, form: dict[str, str], wrong: str) -> None:
    async with a_console(tmp_path) as console:
        await console.app.client.store.tasks.submit([draft(5)])
        answer = await act(console, console.browser("ada"), f"/tasks/{ids.show(5)}/{path}", **form)
        assert 400 <= answer.status < 500, answer.text
        texts = {name: text for name, text in form.items() if name not in ("step", "outcome")}
        fields = fields_in(answer.text)
        assert {name: text for name, (text, _) in fields.items()} == texts
        if wrong:
            assert [name for name, (_, is_wrong) in fields.items() if is_wrong] == [wrong]


@pytest.mark.parametrize(
    ("path", "form", "wrong"),
    [
        ("pause", {"for": "for ever", "reason": "a move"}, "for"),
        ("backfill", {"since": "yesterday", "until": "2026-01-02", "limit": "10", "reason": "away"}, "since"),
        ("backfill", {**range_of(), "until": "2999-01-01", "limit": "10", "reason": "away"}, "until"),
    ],
)
async def test_acts_on_a_schedule_are_kept(
    tmp_path: Path, path: str, form: dict[str, str], wrong: str
) -> None:
    async with a_console(tmp_path) as console:
        await console.app.client.store.schedules.apply([MONTHLY])
        hidden = {"app": "shop", "name": "bill/4711"}
        answer = await act(console, console.browser("otto"), f"/schedules/{path}", **hidden, **form)
        assert answer.status == 400
        assert fields_in(answer.text) == {name: (text, name == wrong) for name, text in form.items()}
        assert '<input type="hidden" name="name" value="bill/4711">' in answer.text


async def test_an_act_on_many_tasks_is_kept(tmp_path: Path) -> None:
    async with a_console(tmp_path) as console:
        form = {
            "kind": "signal",
            "q": "state:processing",
            "signal": "approval",
            "value-0": "yes",
            "reason": "all",
        }
        answer = await act(console, console.browser("otto"), "/bulk", **form)
        assert answer.status == 400
        fields = fields_in(answer.text)
        assert fields == {"signal": ("approval", False), "value-0": ("yes", True), "reason": ("all", False)}


async def test_an_act_that_the_rules_refuse_is_kept(tmp_path: Path) -> None:
    """The reason is a person's text as well, and the page leads back to the task."""
    async with at_work(tmp_path) as (console, task):
        form = {"step": "charge", "outcome": "undone", "reason": "the bank says so"}
        answer = await act(console, console.browser("ada"), f"/tasks/{task.id}/settle", **form)
        assert answer.status == 409
        assert fields_in(answer.text) == {"reason": ("the bank says so", False)}
        assert f'<a class="btn" href="/tasks/{task.id}">Back</a>' in answer.text


async def test_the_script_of_the_page_learns_which_field_is_wrong(tmp_path: Path) -> None:
    """It keeps the dialog open, and what is in it."""
    async with waiting(tmp_path) as (console, task):
        otto = console.browser("otto")
        form = {"csrf": console.token(otto), "signal": "payment", "id": "s-1", "value-0": "{"}
        answer = await otto.post(f"/tasks/{task.id}/signal", form, hx_request="true")
        assert (answer.status, answer.headers["makegood-field"]) == (400, "value-0")
        assert answer.text.startswith('<div class="toast')


async def test_what_a_visitor_may_not_do_is_not_shown_as_a_form(tmp_path: Path) -> None:
    async with a_console(tmp_path) as console:
        await console.app.client.store.tasks.submit([draft(5)])
        answer = await act(console, console.browser("vera"), f"/tasks/{ids.show(5)}/undo", reason="please")
        assert (answer.status, fields_in(answer.text)) == (403, {})
