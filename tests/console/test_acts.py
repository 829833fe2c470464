"""Acts from the console: what a form becomes, who the audit says it was, and how a refusal reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import makegood as mg
from makegood.console import acts, outcomes
from makegood.console.app import create_app
from tests.actors.conftest import QUIET
from tests.console.asking import Browser, Got
from tests.console.consoles import USERS, Console, a_console, place_order, shop
from tests.waiting import until


@asynccontextmanager
async def at_work(folder: Path, **options: Any) -> AsyncIterator[tuple[Console, mg.TaskHandle[str]]]:
    """A console beside a node, and a task in error: its card has expired, and the only try is over."""
    async with a_console(folder, **options) as console, mg.Node(shop, console.url, options=QUIET) as node:
        task = await node.client.submit(place_order, {"id": "o-1", "token": "s3cret"}, key="o-1")
        await task.wait("60s")
        yield console, task


async def act(console: Console, browser: Browser, path: str, **fields: str) -> Got:
    """Send a form of a page."""
    return await browser.post(path, {"csrf": console.token(browser), **fields})


async def test_an_act_is_kept_with_who_why_and_the_request(tmp_path: Path) -> None:
    """The row of the audit, the id of the answer, and the task's history say the same."""
    async with at_work(tmp_path) as (console, task):
        browser = console.browser("otto")
        response = await act(console, browser, f"/tasks/{task.id}/resubmit", reason="a new card")
        assert (response.status, response.headers["location"]) == (303, f"/tasks/{task.id}")
        (row,) = [row for row in await console.app.client.audit(task.id) if row.kind == "resubmit"]
        assert (row.who, row.why, row.act) == ("otto", "a new card", response.headers["x-request-id"])
        page = (await browser.get("/")).text
        assert "Resubmitted: o-1" in page
        assert "Resubmitted: o-1" not in (await browser.get("/")).text  # said once


async def test_a_script_gets_a_toast(tmp_path: Path) -> None:
    """The same act, answered with the element alone."""
    async with at_work(tmp_path) as (console, task):
        browser = console.browser("otto")
        fields = {"csrf": console.token(browser), "reason": ""}
        response = await browser.post(f"/tasks/{task.id}/resubmit", fields, hx_request="true")
        assert response.status == 200
        assert response.text.startswith('<div class="toast toast--ok">')
        refusal = await console.browser("vera").post(f"/tasks/{task.id}/resubmit", {}, hx_request="true")
        assert refusal.status == 403
        assert refusal.text.startswith('<div class="toast toast--need">')


async def test_an_act_that_lost_a_race_says_who_won(tmp_path: Path) -> None:
    """With the reason, and not as a blank page."""
    async with at_work(tmp_path) as (console, task):
        one, two = console.browser("otto"), console.browser("ada")
        await act(console, one, f"/tasks/{task.id}/undo", reason="the customer is gone")
        await task.wait("60s")
        fields = {"csrf": console.token(two)}
        response = await two.post(f"/tasks/{task.id}/cancel", fields, hx_request="true")
        assert response.status == 409
        assert "the task had ended: undone" in response.text
        assert "undo by otto (the customer is gone)" in response.text
        response = await two.post(f"/tasks/{task.id}/undo", fields, hx_request="true")
        assert "Nothing to do: o-1" in response.text


async def test_an_administrator_edits_the_input(tmp_path: Path) -> None:
    """With a reason; an operator may not, and what is not JSON is refused before anything is written."""
    async with at_work(tmp_path) as (console, task):
        path, new_input = f"/tasks/{task.id}/edit", '{"order": {"id": "o-1", "card": "new"}}'
        assert (
            await act(console, console.browser("otto"), path, step="charge", input=new_input)
        ).status == 403
        ada = console.browser("ada")
        assert (
            await act(console, ada, path, step="charge", input=new_input)
        ).status == 400  # without a reason
        assert (await act(console, ada, path, step="charge", input="{", reason="typo")).status == 400
        assert await console.app.client.audit(task.id) == []
        assert (
            await act(console, ada, path, step="charge", input=new_input, reason="a new card")
        ).status == 303
        (row,) = await console.app.client.audit(task.id)
        assert (row.who, row.kind, b'"card":"new"' in (row.change or b"")) == ("ada", "resubmit", True)


async def test_an_administrator_settles_a_step(tmp_path: Path) -> None:
    """The reason is how they know; an outcome that the rules do not allow is refused with what they do."""
    async with at_work(tmp_path) as (console, task):
        path, ada = f"/tasks/{task.id}/settle", console.browser("ada")
        assert (await act(console, ada, path, step="charge", outcome="undone")).status == 400
        refusal = await act(console, ada, path, step="charge", outcome="undone", reason="x")
        assert (refusal.status, "it can be settled as done" in refusal.text) == (409, True)
        assert (await act(console, ada, path, step="nothing", outcome="done", reason="x")).status == 404
        assert (await act(console, ada, path, step="charge", outcome="perhaps", reason="x")).status == 400
        settlement = {
            "step": "charge",
            "outcome": "done",
            "value": '"receipt 7"',
            "reason": "seen at the bank",
        }
        assert (await act(console, ada, path, **settlement)).status == 303
        assert (await task.status()).task.state == "processed"
        assert await task.result() == "receipt 7"


async def test_an_administrator_moves_a_deadline(tmp_path: Path) -> None:
    """Of a task that goes forward; for any other the rules refuse it, and a length that is none is not understood."""
    async with at_work(tmp_path) as (console, task):
        path = f"/tasks/{task.id}/extend"
        assert (await act(console, console.browser("otto"), path, more="1h", reason="x")).status == 403
        ada = console.browser("ada")
        assert (await act(console, ada, path, more="soon", reason="x")).status == 400
        refusal = await act(console, ada, path, more="1h", reason="x")
        hint = "only the deadline of a task that goes forward can be moved"
        assert (refusal.status, hint in refusal.text) == (409, True)


async def test_an_administrator_looks_at_payloads_and_the_audit_keeps_it(tmp_path: Path) -> None:
    """The page itself covers them for everybody; a look is an act, and shows them once."""
    async with at_work(tmp_path) as (console, task):
        ada, path = console.browser("ada"), f"/tasks/{task.id}"
        assert "s3cret" not in (await ada.get(path)).text
        assert (await act(console, console.browser("otto"), f"{path}/payloads")).status == 403
        assert await console.app.client.audit(task.id) == []
        assert "s3cret" in (await act(console, ada, f"{path}/payloads", reason="a dispute")).text
        (row,) = await console.app.client.audit(task.id)
        assert (row.kind, row.who, row.why) == ("look", "ada", "a dispute")
        assert "s3cret" not in (await ada.get(path)).text


async def test_a_task_that_is_not_there(tmp_path: Path) -> None:
    """Is a page of the console, for a wrong id as well."""
    async with a_console(tmp_path) as console:
        for task in ("0000000000000", "nonsense", "..%2f"):
            assert (await act(console, console.browser("otto"), f"/tasks/{task}/undo")).status == 404


async def test_no_scheduler_is_no_failure(tmp_path: Path) -> None:
    """The command is in the task's inbox, and the page says so."""
    async with at_work(tmp_path) as (console, task):
        pass
    async with a_console_again(console) as console:
        browser = console.browser("otto")
        response = await asyncio.wait_for(
            browser.post(f"/tasks/{task.id}/resubmit", {"csrf": console.token(browser)}, hx_request="true"),
            60,
        )
        assert response.status == 202
        assert "Not decided yet: o-1" in response.text


async def test_alerts_are_acknowledged_with_a_note(tmp_path: Path) -> None:
    """Several at once; one that somebody else has says who has it."""
    async with a_console(tmp_path) as console:
        otto, ada = console.browser("otto"), console.browser("ada")
        assert (await act(console, otto, "/alerts/test")).status == 303
        assert (await act(console, otto, "/alerts/test")).status == 303
        one, two = sorted(alert.id for alert in await console.app.client.alerts())
        assert (await act(console, otto, "/alerts/acknowledge", alert=str(one), reason="mine")).status == 303
        response = await ada.post(
            "/alerts/acknowledge", {"csrf": console.token(ada), "alert": f"{one} {two}"}, hx_request="true"
        )
        assert f"alert {one} was acknowledged by otto (mine) before" in response.text
        assert "1 alert acknowledged" in response.text
        assert not any(alert.open for alert in await console.app.client.alerts())
        for wrong in ("", "one", "9" * 30):
            assert (await act(console, ada, "/alerts/acknowledge", alert=wrong)).status == 400


async def test_what_a_person_writes_is_escaped_and_kept_out_of_logs(tmp_path: Path, caplog: Any) -> None:
    """Reasons, names of steps and inputs are hostile."""
    caplog.set_level("DEBUG")
    hostile = "<script>alert('x')</script>\n\"&canary-7\x00"
    async with at_work(tmp_path) as (console, task):
        ada = console.browser("ada")
        for path, fields in (
            ("resubmit", {"reason": hostile}),
            ("settle", {"reason": hostile, "step": hostile, "outcome": hostile}),
            ("edit", {"reason": hostile, "step": hostile, "input": hostile}),
        ):
            response = await ada.post(
                f"/tasks/{task.id}/{path}", {"csrf": console.token(ada), **fields}, hx_request="true"
            )
            assert response.status < 500, path
            assert "<script" not in response.text
        assert "<script" not in (await ada.get(f"/?q={hostile!r}")).text.split("</head>")[1]
    ours = [record for record in caplog.records if record.name.startswith("makegood.console")]
    assert ours
    assert not [record for record in ours if "canary-7" in str(record.__dict__)]


def test_a_form_waits_for_an_answer_less_long_than_a_person() -> None:
    """The act is in the inbox by then; and one form acknowledges a page of alerts at most."""
    assert acts.PATIENCE <= 10
    assert acts.MOST_ALERTS <= 500
    assert outcomes.COOKIE == "makegood_said"


@asynccontextmanager
async def a_console_again(console: Console) -> AsyncIterator[Console]:
    """Open another console on the store of one that is closed."""
    async with create_app(console.url, users=USERS) as app:
        yield Console(app, console.url)


async def test_one_sleep_of_several_is_ended_alone(tmp_path: Path) -> None:
    """The form names the sleeps that have begun; without a choice it ends all of them."""
    office = mg.App("office")

    @office.workflow()
    def nap() -> None:
        mg.branches(lambda: mg.sleep("1d"), lambda: mg.sleep("2d"))

    async with a_console(tmp_path) as console, mg.Node(office, console.url, options=QUIET) as node:
        task, browser = await node.client.submit(nap, key="n-1"), console.browser("otto")
        path = f"/tasks/{task.id}/wake"

        async def both_asleep() -> bool:
            return [step.state for step in (await task.status()).steps if step.kind == "sleep"] == [
                "ready"
            ] * 2

        await until(both_asleep)
        page = (await browser.get(f"/tasks/{task.id}")).text
        assert "Ends sleep and sleep-2 before their moments." in page
        assert (
            '<option value="">all of them</option><option value="sleep">sleep</option><option value="sleep-2">sleep-2</option>'
            in page
        )
        unknown = await act(console, browser, path, step="sleep-3")
        assert (unknown.status, "has no step" in unknown.text) == (404, True)
        await act(console, browser, path, step="sleep-2", reason="the ferry is early")
        assert "sleep-2 ends now" in (await browser.get("/")).text
        states = {step.name: step.state for step in (await task.status()).steps}
        assert (states["sleep"], states["sleep-2"]) == ("ready", "done")
        assert (
            '<option value="sleep">' not in (await browser.get(f"/tasks/{task.id}")).text
        )  # only one is left
        await act(console, browser, path)
        assert (await task.wait("60s")).state == "processed"
        assert [(row.who, row.why) for row in await console.app.client.audit(task.id)] == [
            ("otto", ""), ("otto", "the ferry is early"),
        ]  # fmt: skip
