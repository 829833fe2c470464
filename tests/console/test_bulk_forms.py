"""Forms on many tasks and on the leader: what they write, who may send them, and how a refusal reads."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import makegood as mg
from makegood.base import ids
from makegood.store.views import Filter
from tests.actors.conftest import QUIET
from tests.console.consoles import Console, a_console
from tests.console.test_acts import act, at_work
from tests.waiting import moment, until


async def test_tasks_that_match_are_meant(tmp_path: Path) -> None:
    """The form writes one row; its page follows it; the audit names who and why."""
    async with at_work(tmp_path) as (console, _):
        browser = console.browser("otto")
        response = await act(console, browser, "/bulk", kind="undo", q="state:error", reason="wrong price")
        (bulk,) = await console.app.client.bulk_acts()
        assert (response.status, response.headers["location"]) == (303, f"/bulk/{bulk.id}")
        assert (bulk.who, bulk.why, bulk.wanted.states, bulk.counted) == (
            "otto",
            "wrong price",
            ("error",),
            1,
        )
        page = (await browser.get(f"/bulk/{bulk.id}")).text
        assert "1 task will be undone" in page
        assert "Undo 1 task" in page


async def test_a_signal_whose_type_is_not_known_is_written_as_json(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (console, _):
        browser = console.browser("otto")
        page = (await browser.get("/bulk/new?kind=signal&q=state:error")).text
        assert '<input class="input" name="signal" maxlength="100"' in page
        assert '<textarea class="input mono" name="value-0"' in page
        form = {"kind": "signal", "q": "state:error", "reason": "all of them", "signal": "approval"}
        refusal = await act(console, browser, "/bulk", **form, **{"value-0": "{yes"})
        assert (refusal.status, "the value is not JSON" in refusal.text) == (400, True)
        await act(console, browser, "/bulk", **form, **{"value-0": '{"yes": true}'})
        (bulk,) = await console.app.client.bulk_acts()
        assert (bulk.kind, bulk.signal, bulk.who, bulk.counted) == ("signal", "approval", "otto", 1)
        page = (await browser.get(f"/bulk/{bulk.id}")).text
        assert "1 task will be sent the signal" in page
        assert "signal <b>approval</b>" in page


@dataclass
class Approval:
    """What the boss says."""

    yes: bool
    note: str = ""


@asynccontextmanager
async def approvals(folder: Path) -> AsyncIterator[tuple[Console, list[mg.TaskHandle[Any]]]]:
    """A console, and three tasks that wait for an approval, one of them of another app and type."""
    office, bank = mg.App("office"), mg.App("bank")
    approval = office.signal("approval", Approval)

    @office.workflow()
    def travel(trip: str) -> bool:
        return mg.wait_for(approval).yes

    @bank.workflow()
    def spend(cents: int) -> int:
        return mg.wait_for("approval", int)

    async with (
        a_console(folder) as console,
        mg.Node(office, console.url, options=QUIET) as node,
        mg.Node(bank, console.url, roles=("scheduler",), options=QUIET) as other,
    ):
        client = node.client
        tasks: list[mg.TaskHandle[Any]] = [
            await client.submit(travel, name, key=name) for name in ("rome", "oslo")
        ]
        tasks.append(await other.client.submit(spend, 7, key="spend"))
        waits = mg.Filter(waits="approval")

        async def all_wait() -> bool:
            return len(await console.app.client.find(waits)) == len(tasks)

        await until(all_wait)
        yield console, tasks


async def test_many_are_answered_by_the_fields_of_the_signals_type(tmp_path: Path) -> None:
    """The list of those that wait leads to a form with these fields; the Supervisor sends what they hold."""
    async with approvals(tmp_path) as (console, (rome, oslo, _)):
        browser, q = console.browser("otto"), "waits:approval workflow:travel"
        assert "Signal all…" in (await browser.get(f"/tasks?q={quote(q)}")).text
        misspelt = (await browser.get("/tasks?q=waits:aproval")).text
        assert "No task waits for aproval. Tasks wait for: approval." in misspelt
        page = (await browser.get(f"/bulk/new?kind=signal&q={quote(q)}")).text
        for text in (
            "Send approval to 2 tasks?",
            '<select class="input" name="value-0" required data-focus><option value=""></option><option value="true">yes</option>',
            '<input class="input" name="value-1">',
        ):
            assert text in page, text
        schema, name = (
            unescape(re.findall(rf'name="{field}" value="([^"]*)"', page)[0]) for field in ("schema", "id")
        )
        form = {
            "id": name,
            "kind": "signal",
            "q": q,
            "signal": "approval",
            "schema": schema,
            "reason": "in budget",
        }
        refusal = await act(console, browser, "/bulk", **form, **{"value-0": "perhaps"})
        assert (refusal.status, "yes is true or false" in refusal.text) == (400, True)
        assert await console.app.client.bulk_acts() == []
        for _ in range(2):  # a double click
            await act(console, browser, "/bulk", **form, **{"value-0": "true", "value-1": "fine"})
        assert [await task.result("60s") for task in (rome, oslo)] == [True, True]
        refusal = await act(console, browser, "/bulk", **form, **{"value-0": "false"})
        assert (refusal.status, "was requested before" in refusal.text) == (409, True)
        (bulk,) = await console.app.client.bulk_acts()
        assert (bulk.signal, bulk.who, bulk.why, bulk.counted) == ("approval", "otto", "in budget", 2)


async def test_ticked_tasks_are_answered_if_they_still_wait(tmp_path: Path) -> None:
    """With values of two types the form takes JSON, and says so."""
    async with approvals(tmp_path) as (console, (rome, oslo, spend)):
        browser = console.browser("otto")
        page = (await browser.get("/tasks?q=waits:approval")).text
        assert (
            '<input type="hidden" name="waits" value="approval"><button class="btn btn--s" type="submit" name="kind" value="signal">'
            in page
        )
        selection = "&".join(f"t-{task.id}=on" for task in (rome, spend))
        page = (await browser.get(f"/bulk/new?kind=signal&waits=approval&{selection}")).text
        assert "These tasks take values of different types" in page
        assert '<textarea class="input mono" name="value-0"' in page
        page = (await browser.get(f"/bulk/new?kind=signal&waits=approval&t-{rome.id}=on")).text
        assert '<select class="input" name="value-0" required' in page
        form = {
            "kind": "signal",
            "ids": f"{rome.id},{oslo.id}",
            "waits": "approval",
            "signal": "approval",
            "reason": "x",
        }
        await rome.signal("approval", {"yes": False})
        await rome.wait("60s")
        await act(console, browser, "/bulk", **form, **{"value-0": '{"yes": true}'})
        assert [await task.result("60s") for task in (rome, oslo)] == [False, True]
        (bulk,) = await console.app.client.bulk_acts()
        assert bulk.counted == 1
        assert len((await rome.status()).signals) == 1


async def test_selected_tasks_win_over_the_filter(tmp_path: Path) -> None:
    async with at_work(tmp_path) as (console, task):
        browser = console.browser("otto")
        await act(console, browser, "/bulk", kind="resubmit", q="state:undone", ids=task.id, reason="")
        (bulk,) = await console.app.client.bulk_acts()
        assert bulk.wanted.ids == (ids.parse(task.id),)


async def test_what_cannot_be_meant_is_said(tmp_path: Path) -> None:
    """No kind, no tasks, a filter that is not understood, an act and a leader that do not exist."""
    async with a_console(tmp_path) as console:
        browser, admin = console.browser("otto"), console.browser("ada")
        for path, fields, status, hint in (
            (
                "/bulk",
                {"kind": "explode", "q": "state:error"},
                400,
                "kind is one of cancel, undo, resubmit, signal",
            ),
            ("/bulk", {"kind": "undo", "q": ""}, 400, "no task is chosen"),
            ("/bulk", {"kind": "undo", "q": "stat:error"}, 400, "did you mean state:"),
            ("/bulk/b-1/stop", {}, 404, "there is no command on many tasks"),
        ):
            response = await act(console, browser, path, **fields)
            assert (response.status, hint in response.text) == (status, True), response.text
        assert (await act(console, browser, "/cluster/step-down", epoch="1")).status == 403
        assert (await act(console, admin, "/cluster/step-down", epoch="one")).status == 400
        step_down = await act(console, admin, "/cluster/step-down", epoch="1")
        assert step_down.status == 303
        assert "nobody leads under epoch 1" in (await admin.get("/cluster")).text
        assert await console.app.client.store.oversight.bulk_acts() == []


async def test_a_command_on_many_tasks_is_stopped_once(tmp_path: Path) -> None:
    """Who comes second reads who was first."""
    async with a_console(tmp_path) as console:
        otto, ada = console.browser("otto"), console.browser("ada")
        bulk = await console.app.client.bulk("cancel", Filter(states=("error",)))
        await act(console, otto, f"/bulk/{bulk.id}/stop", reason="enough")
        assert (await console.app.client.bulk_act(bulk.id)).stopped_by == "otto"
        await act(console, ada, f"/bulk/{bulk.id}/stop")
        assert "by otto already" in (await ada.get("/bulk")).text


async def test_what_was_carried_out_is_listed_and_the_audit_leads_back(tmp_path: Path) -> None:
    """Each command of an act is in the audit under the act's id; both pages name the task by its key."""
    async with at_work(tmp_path) as (console, task):
        client, browser = console.app.client, console.browser("otto")
        bulk = await client.bulk("resubmit", Filter(ids=(ids.parse(task.id),)), who="otto", why="again")
        while (view := await client.bulk_act(bulk.id)) is None or view.ended is None:
            await moment()
        page = (await browser.get(f"/bulk/{bulk.id}?fragment=carried")).text
        assert f'href="/tasks/{task.id}">o-1</a>' in page
        audit = (await browser.get(f"/audit?act={bulk.id}&kind=resubmit&who=otto")).text
        assert f'href="/bulk/{bulk.id}"' in audit
        assert ">o-1</a>" in audit
        assert f"/audit.csv?who=otto&amp;kind=resubmit&amp;act={bulk.id}" in audit
        assert "No command matches" in (await browser.get("/audit?who=nobody")).text
        assert "nonsense" in (await browser.get("/audit?task=nonsense")).text
        assert "without NUL" in (await browser.get("/audit?who=%00")).text


async def test_a_task_that_waits_offers_the_answer_first(tmp_path: Path) -> None:
    """Above its cancel, and in the head of the page; what happens if nobody acts is said."""
    async with approvals(tmp_path) as (console, (rome, *_)):
        page = (await console.browser("otto").get(f"/tasks/{rome.id}")).text
        head = page.partition('<header class="head"')[2].partition("</header>")[0]
        acts = page.partition(">What you can do<")[2]
        assert "Send approval…" in head
        assert 0 < acts.index("Send approval…") < acts.index("Cancel…")
        assert "Waiting for approval, a signal</p>" in page
        assert "it continues when the signal comes." in page
