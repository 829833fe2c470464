"""Forms on many tasks and on the leader: what they write, who may send them, and how a refusal reads."""

from pathlib import Path

from makegood.base import ids
from makegood.store.views import Filter
from tests.console.consoles import a_console
from tests.console.test_acts import act, at_work
from tests.waiting import moment


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


async def test_a_signal_goes_to_all_tasks_that_wait_for_it(tmp_path: Path) -> None:
    """The list of those that wait for it offers the form, which knows the signal's name."""
    async with at_work(tmp_path) as (console, _):
        browser = console.browser("otto")
        page = (await browser.get("/bulk/new?kind=signal&q=state:error")).text
        assert 'name="signal" value=""' in page
        form = {"kind": "signal", "q": "state:error", "reason": "all of them", "signal": "approval"}
        refused = await act(console, browser, "/bulk", **form, value="{yes")
        assert (refused.status, "The value is not JSON" in refused.text) == (400, True)
        await act(console, browser, "/bulk", **form, value='{"yes": true}')
        (bulk,) = await console.app.client.bulk_acts()
        assert (bulk.kind, bulk.signal, bulk.who, bulk.counted) == ("signal", "approval", "otto", 1)
        page = (await browser.get(f"/bulk/{bulk.id}")).text
        assert "1 task will be sent the signal" in page
        assert "signal <b>approval</b>" in page


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
