"""Pages, streams and answers about large tasks: a bounded number of rungs, rows and bytes, and every step within reach."""

import asyncio
import itertools
import json
import re
import threading
import time
from typing import Any

import pytest

import makegood as mg
from makegood.base import ids
from makegood.client import as_json
from makegood.console import api, live
from makegood.console import app as console_app
from makegood.console.app import create_app
from makegood.console.live import LIVE_BYTES
from makegood.console.pages import task
from makegood.store import Store
from tests.conformance.builders import draft
from tests.conformance.large_tasks import LARGE, long_task
from tests.conformance.worlds import Counts, World
from tests.console.asking import Browser
from tests.console.test_task_page import PARTS

RUNGS = 100
"""Of any page of a long task."""
LINES = 260
"""Rungs and blocks of the overview."""
STATEMENTS = 18
"""Of the page of a long task: two more than for a short one, for its blocks and for what it chooses, and their names."""
PAGE = f"/tasks/{ids.show(1)}"
SHORT = ids.show(1)


def rungs(text: str) -> int:
    """Return how many rungs a page draws."""
    return len(re.findall(r'<div class="rung ', text))


async def get(app: Any, path: str) -> Any:
    """Return an answer, which has no line that is not part of a page."""
    answer = await Browser(app).get(path)
    assert answer.status == 200, answer.text[:500]
    return answer


@pytest.mark.parametrize("count", [201, 10_000])
async def test_the_page_of_a_long_task_is_an_overview(store: Store, world: World, count: int) -> None:
    """What failed, what is in doubt, the first and the last steps; the others are counted, and every part is small."""
    await long_task(store, world, count, results=2, events=40)
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        text = (await get(app, PAGE)).text
        assert len(text) < LIVE_BYTES
        assert ' data-page="' in text
        assert rungs(text) <= RUNGS
        assert rungs(text) + text.count('class="stackhead block') <= LINES
        assert "s7</span>" in text
        assert "the card was refused" in text
        assert f"failed <b>{1 + (count - 8) // 1000}</b>" in text
        assert "x" * 100 not in text, "large results stay in the store"
        for part in PARTS:
            assert f'id="{part}"' in (await get(app, f"{PAGE}?fragment={part}")).text


async def test_every_step_is_on_a_page_that_links_lead_to(store: Store, world: World) -> None:
    """Without scripts: blocks lead to pages of steps, and each of these to the next."""
    await long_task(store, world, 1150)
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        overview = (await get(app, PAGE)).text
        blocks = re.findall(r'class="stackhead block[^"]*" href="([^"#]*)', overview)
        assert len(blocks) == 6
        names: set[str] = set()
        path: str | None = f"{PAGE}?steps=0"
        while path is not None:
            text = (await get(app, path)).text
            assert rungs(text) <= RUNGS
            assert len(text) < LIVE_BYTES
            names |= set(re.findall(r'<span title="(s\d+)">', text))
            following = re.search(r'rel="next" href="(/tasks/[^"#]*steps=[^"#]*)', text)
            path = following[1].replace("&amp;", "&") if following else None
        assert names == {f"s{n}" for n in range(1150)}
        failures = (await get(app, f"{PAGE}?state=failed")).text
        assert set(re.findall(r'<span title="(s\d+)">', failures)) == {"s7", "s1007"}
        last = (await get(app, blocks[-1].replace("&amp;", "&"))).text
        assert "s1149" in last


async def test_an_each_with_many_items_is_folded(store: Store, world: World) -> None:
    """Its items are blocks, whatever they are called."""
    await long_task(store, world, 3000)
    async with world.raw() as raw:
        await raw.run("update {step} set name = 'hold[' || idx || ']' where idx > 2 and idx < 2990")
        await raw.run("update {step} set state = 'done', error = null where state in ('failed', 'in_doubt')")
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        text = (await get(app, PAGE)).text
        assert "hold[100] to hold[2899]" in text
        assert "2,800 steps: 2,800 done" in text
        assert rungs(text) <= 10


async def test_pages_cost_the_same_statements_whatever_the_task(
    counting_store: Store, counts: Counts, world: World
) -> None:
    await long_task(counting_store, world, 10_000, events=5, results=2)
    await long_task(counting_store, world, 300, task=2, events=5, results=2)
    costs = []
    async with mg.Client(counting_store) as client, create_app(client, insecure=True) as app:
        for number in (1, 2, 1, 2):
            app._reads.forget()
            await counts.reset()
            await get(app, f"/tasks/{ids.show(number)}")
            costs.append(counts.statements)
    assert costs[2] == costs[3]
    assert costs[3] <= STATEMENTS


async def test_large_values_are_links(store: Store, world: World) -> None:
    """A value of 1 MiB is a file, with its secrets covered, and names its size on the page."""
    secret = json.dumps({"password": "hunter2", "list": ["x" * 60] * (LARGE // 70)}).encode()
    await store.tasks.submit([draft(1, inputs=(secret,))])
    async with world.raw() as raw:
        await raw.run("update {task} set state = 'processed', result = ?", secret)
        await raw.run("update {step} set state = 'done', attempt = 1, result = ?", secret)
    async with (
        mg.Client(store) as client,
        create_app(client, resolve_user=lambda _: "vera", role="viewer") as app,
    ):
        text = (await get(app, PAGE)).text
        assert len(text) < 60_000
        links = re.findall(r'href="(/tasks/[^"]*/values/[^"]*)"', text)
        assert {link.rpartition("/")[2] for link in links} >= {"inputs", "result"}
        for name in ("inputs", "result", "step-0"):
            answer = await get(app, f"{PAGE}/values/{name}")
            value = json.loads(answer.text)
            value = value[0] if name == "inputs" else value
            assert (value["password"], len(value["list"])) == ("•••", LARGE // 70)
            assert answer.headers["content-disposition"].startswith("attachment; ")
        for name in ("step-7", "error-0", "nonsense", "step", "result-1"):
            assert (await Browser(app).get(f"{PAGE}/values/{name}")).status == 404
        assert (await Browser(app).get(f"/tasks/{ids.show(2)}/values/result")).status == 404


async def test_what_is_too_large_to_cover_is_refused(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1)])
    async with world.raw() as raw:
        await raw.run("update {task} set result = ?", b'"' + b"x" * (9 * LARGE) + b'"')
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        answer = await Browser(app).get(f"{PAGE}/values/result")
        assert answer.status == 413
        assert "makegood task show" in answer.text


async def test_the_api_answers_in_parts(store: Store, world: World) -> None:
    """Steps, history and lists come page by page, in bytes as well."""
    await long_task(store, world, 450, results=2, events=300)
    async with world.raw() as raw:
        await raw.run("update {task} set state = 'error', cause = 's7: the card was refused'")
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        indices: list[int] = []
        after: int | None = 0
        while after is not None:
            answer = await get(app, f"/api/v1/tasks/{SHORT}?step={after}")
            assert len(answer.text) < 200_000
            part = json.loads(answer.text)
            indices += [step["idx"] for step in part["steps"]]
            after = part["next"]
        assert indices == list(range(450))
        first = json.loads((await get(app, f"/api/v1/tasks/{SHORT}")).text)
        assert first["left_out"] == {"step-0": LARGE, "step-1": LARGE}
        assert {each["act"] for each in first["allowed"]} == {"undo", "resubmit"}
        assert (await Browser(app).get(f"/api/v1/tasks/{SHORT}/undo-preview")).status == 413
        events: list[int] = []
        after = 0
        while after is not None:
            page = json.loads((await get(app, f"/api/v1/tasks/{SHORT}/history?after={after}&limit=200")).text)
            assert len(page["events"]) <= 200
            events += [event["seq"] for event in page["events"]]
            after = page["next"]
        assert len(events) == len(set(events)) == 301


async def test_lists_hold_results_only_if_they_are_asked_for(store: Store, world: World) -> None:
    """And then as many as a budget of bytes allows: every task is on a page."""
    await store.tasks.submit([draft(n) for n in range(1, 13)])
    async with world.raw() as raw:
        await raw.run("update {task} set result = ?", b'"' + b"x" * (LARGE // 4) + b'"')
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        plain = await get(app, "/api/v1/tasks?limit=1000")
        assert len(plain.text) < 10_000
        assert {one["result"] for one in json.loads(plain.text)["tasks"]} == {None}
        assert len((await get(app, "/tasks")).text) < 100_000
        task_ids: list[str] = []
        before = ""
        while True:
            answer = await get(app, f"/api/v1/tasks?results=1{before}")
            assert len(answer.text) < api.RESULT_BYTES + 20_000
            page = json.loads(answer.text)
            assert all(len(one["result"]) == LARGE // 4 for one in page["tasks"])
            task_ids += [one["id"] for one in page["tasks"]]
            if page["older"] is None:
                break
            before = f"&before={page['older']}"
        assert task_ids == [ids.show(n) for n in range(12, 0, -1)]
        assert (await Browser(app).get("/api/v1/tasks?results=yes")).status == 400


async def test_pages_are_drawn_off_the_loop(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages, fragments, what streams compare, and JSON: in one thread of the console's own."""
    await long_task(store, world, 300)
    threads: set[threading.Thread] = set()
    calls: set[str] = set()

    def note(where: Any, name: str) -> None:
        inner = getattr(where, name)

        def noted(*args: Any, **kwargs: Any) -> Any:
            threads.add(threading.current_thread())
            calls.add(name)
            return inner(*args, **kwargs)

        monkeypatch.setattr(where, name, noted)

    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        for where, name in (
            (app._renderer, "page"),
            (live, "look_at"),
            (console_app, "cut"),
            (task, "task_page"),
            (as_json, "detail"),
        ):
            note(where, name)
        for path in (PAGE, f"{PAGE}?fragment=ladder", "/", "/tasks", f"/api/v1/tasks/{SHORT}"):
            await get(app, path)
        assert (await app.live._look_at(("/tasks", "", "viewer", ""), None))[0] is not None
    assert calls == {"page", "look_at", "cut", "task_page", "detail"}
    assert len(threads) == 1
    assert threading.current_thread() not in threads


async def test_a_page_rests_ten_times_as_long_as_its_drawing_took(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In CPU time of the thread that draws, whatever happens meanwhile, and however many watch it."""
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        loop, drawings = asyncio.get_running_loop(), list[tuple[float, float]]()

        def burn() -> str:
            began = time.thread_time()
            while time.thread_time() - began < 0.02:
                pass
            drawings.append((loop.time(), time.thread_time() - began))
            return f'<main id="main">{len(drawings)}</main>'

        async def draw(*_: Any) -> str:
            return await app._thread.run(burn)

        monkeypatch.setattr(live, "QUICK", 0.001)
        monkeypatch.setattr(live, "STEADY", 0.002)
        monkeypatch.setattr(app.live, "_draw", draw)
        page: live.Page = "/", "", "viewer", ""
        look, due = await app.live._look_at(page, None)
        assert look is not None
        with app.live.watching(page, look, due) as stream, app.live.watching(page, look, 0.0):
            while len(drawings) < 4:
                app.live._news.set()
                await asyncio.wait_for(stream.wake.wait(), 120)
                stream.take()
        for (end, cost), (next_, next_cost) in itertools.pairwise(drawings):
            assert next_ - end >= live.RESTS * cost + next_cost


async def test_a_page_that_is_too_large_is_not_live(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page opens no stream; one that becomes too large ends its stream with a word to the browser."""
    await long_task(store, world, 300)
    monkeypatch.setattr(live, "LIVE_BYTES", 1000)
    monkeypatch.setattr(console_app, "LIVE_BYTES", 1000)
    async with mg.Client(store) as client, create_app(client, insecure=True) as app:
        assert ' data-page="' not in (await get(app, PAGE)).text
        assert (await Browser(app).get(f"/events?page={PAGE}")).status == 204
        viewers = live._Watched()
        viewers.streams.add(stream := live.Stream())
        await app.live._look((PAGE, "", "viewer", ""), viewers)
        assert stream.take().startswith("event: large")
