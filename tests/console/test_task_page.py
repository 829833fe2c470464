"""The page of a task over HTTP, on both stores: its parts, its roles, its links, and what it costs."""

from typing import Any

import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.base import ids
from makegood.base.clock import SystemClock
from makegood.console.app import create_app
from makegood.console.pages.task import context
from makegood.console.reads import Reads
from makegood.console.users import ROLES
from makegood.store import Store
from tests.conformance.builders import draft
from tests.conformance.worlds import Counts
from tests.console import record
from tests.console.asking import Browser

PARTS = ("verdict", "ladder", "time", "attempts", "history", "acts")
STATEMENTS = 14
"""Of one page: the task with its steps, requests, results and undecided acts, its history in two, acts and alerts; processes, terms,
the clock."""


async def run(store: Store, workflow: mg.Workflow[..., Any], *inputs: object) -> int:
    """Run a task to its end; return its number."""
    async with mg.Node(record.shop, store) as node:
        return await record.ended(node, workflow, *inputs)


async def test_the_page_and_its_fragments(store: Store) -> None:
    """Every part is an element of its own, and equal to that of the whole page."""
    path = f"/tasks/{ids.show(await run(store, record.place_order, 'heavy'))}"
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        browser = Browser(app)
        whole = await browser.get(path)
        assert whole.status == 200
        assert "Undone, clean: only email is still in place, and harmless" in whole.text
        for part in PARTS:
            response = await browser.get(f"{path}?fragment={part}")
            assert response.status == 200
            assert f'id="{part}"' in response.text
            assert " style=" not in response.text
        assert "<title>o-heavy undone, clean" in whole.text
        assert "Traceback (most recent call last):" in whole.text
        assert whole.text.count("makegood/agent/") == 0, "makegood's own frames are left out"
        assert (await browser.get(f"{path}?show=acts&skipped=1&submission=99")).status == 200
        assert (await browser.get("/tasks/0000000000000")).status == 404
        assert (await browser.get("/tasks/nonsense")).status in (400, 404)


async def test_a_viewer_sees_no_form(store: Store) -> None:
    """Each act says which role it needs; an admin gets the dialogs, each with its token and its reason."""
    path = f"/tasks/{ids.show(await run(store, record.place_order, 'stuck'))}"
    async with mg.Client(store) as client:
        for role in ROLES:
            async with create_app(client, resolve_user=lambda _: "ann", role=role) as app:
                page = (await Browser(app).get(path)).text
                forms = page.count('<form method="post"')
                assert ("needs the role operator" in page) == (role == "viewer")
                assert ("needs the role admin" in page) == (role != "admin")
                dialogs = page.count('popover id="undo"') + page.count('popover id="settle-')
                assert dialogs == {"viewer": 0, "operator": 1, "admin": 2}[role]
                assert page.count('name="csrf"') >= dialogs
                assert forms >= dialogs


async def test_hostile_texts_stay_texts(store: Store) -> None:
    """Names, keys, payloads and errors of a task are escaped everywhere."""
    evil = "<script>alert('1')</script>\"'\n"
    async with mg.Client(store) as client:
        task = await client.submit(record.place_order, evil, key=evil, correlation_id=evil)
        async with create_app(client, insecure=True) as app:
            page = (await Browser(app).get(f"/tasks/{task.id}")).text
            assert "<script>alert" not in page
            assert "&lt;script&gt;alert" in page


async def test_a_task_links_to_its_trace(store: Store) -> None:
    """To the address that the settings name; without one, the page shows the trace's id."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    await store.tasks.submit([replace(draft(17), trace=f"00-{trace}-b7ad6b7169203331-01")])
    async with mg.Client(store) as client:
        address = "https://jaeger.example/trace/{trace}"
        async with (
            create_app(client, trace_url=address, insecure=True) as app,
            create_app(client, insecure=True) as plain,
        ):
            page = f"/tasks/{ids.show(17)}"
            link = f'<a href="https://jaeger.example/trace/{trace}" rel="noreferrer">{trace}</a>'
            assert link in (await Browser(app).get(page)).text
            text = (await Browser(plain).get(page)).text
            assert (link in text, trace in text) == (False, True)


@pytest.mark.parametrize("address", ["javascript:{trace}", "https://jaeger.example/", "{trace}"])
def test_an_address_of_traces_that_names_none_is_refused(address: str) -> None:
    with pytest.raises(mg.ConfigError, match="in the place of the trace's id"):
        create_app("sqlite:///x.db", trace_url=address)


async def test_a_page_costs_the_same_however_much_has_ended(counting_store: Store, counts: Counts) -> None:
    """Its statements are counted, and bounded."""
    async with mg.Client(counting_store) as client:
        task = await client.submit(record.place_order, "heavy", key="one")
        costs: list[int] = []
        await context(Reads(client, SystemClock(), share=0.0), {"id": task.id})  # what is prepared once
        for more in (0, 60):
            for n in range(more):
                await client.submit(record.place_order, "heavy", key=f"more-{n}")
            await counts.reset()
            reads = Reads(client, SystemClock(), share=0.0)
            task_context = (await context(reads, {"id": task.id}))()
            costs.append(counts.statements)
            assert task_context["page"].name == "one"
    assert costs[0] == costs[1]
    assert costs[0] <= STATEMENTS
