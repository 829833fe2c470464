"""Operators through the client: alerts, the audit, acts on all tasks that match; and why an act was refused."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

import makegood as mg
from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.client.operators import AT_ONCE, Acted
from makegood.model.messages import Act, Alert, TaskMessage
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.views import Filter
from makegood.workflow.workflow import Workflow
from tests.actors.conftest import QUIET
from tests.conformance.builders import draft
from tests.conformance.worlds import World
from tests.waiting import moment


def shop() -> tuple[mg.App, Workflow[[str], str]]:
    """Return an app with a workflow that does one thing, which can be undone; "bad" is refused."""
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="1m")
    def work(order: str) -> str:
        if order == "bad":
            raise mg.Permanent("refused")
        return order

    @work.undo
    def back(order: str, *, result: str | None) -> None:
        """Take it back."""

    @app.workflow()
    def flow(order: str) -> str:
        return work(order)

    return app, flow


async def test_all_that_match_are_done_in_batches_each_with_its_own_answer(store: Store) -> None:
    app, flow = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        client = node.client
        many = [await client.submit(flow, f"o-{n}") for n in range(AT_ONCE + 5)]
        bad = await client.submit(flow, "bad")
        await asyncio.gather(*(task.wait("60s") for task in [*many, bad]))
        assert await client.count(Filter(states=("processed",))) == len(many)
        progress: list[Acted] = []
        verdicts = await client.undo_all(
            Filter(workflow="flow", limit=1), why="recall", who="ann", progress=progress.append
        )
        assert progress == verdicts
        assert [act.verdict for act in verdicts] == ["noop"] + ["applied"] * len(many), "newest first"
        await asyncio.gather(*(task.wait("60s") for task in many))
        assert await client.count(Filter(states=("undone",))) == len(many) + 1
        entries = await client.audit(limit=1000)
        assert len({entry.act for entry in entries}) == len(many) + 1
        assert {(e.kind, e.who, e.why) for e in entries} == {("undo", "ann", "recall")}
        assert [e.verdict for e in await client.audit(bad.id)] == ["noop"]


async def test_a_limit_and_what_is_refused_for_one_alone(store: Store) -> None:
    app, flow = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        client = node.client
        tasks = [await client.submit(flow, order) for order in ("a", "bad", "b")]
        await asyncio.gather(*(task.wait("60s") for task in tasks))
        first = await client.cancel_all(Filter(), limit=1)
        assert [(act.task, act.verdict) for act in first] == [(tasks[2].id, "refused")]
        again = await client.resubmit_all(Filter(states=("processed", "undone")))
        assert [act.verdict for act in again] == ["refused", "applied", "refused"]
        assert "only one in error or undone" in again[0].outcome


async def test_without_a_scheduler_they_wait_and_are_decided_later(store: Store) -> None:
    app, flow = shop()
    async with mg.Client(store, poll_every="20ms") as client:
        tasks = [await client.submit(flow, order) for order in ("a", "b")]
        waiting = await client.cancel_all(Filter(), timeout="100ms")
        assert [(act.verdict, act.state) for act in waiting] == [("waiting", "pending")] * 2
        async with Node(app, store, roles=("scheduler", "agent"), options=QUIET):
            for task in tasks:
                assert (await task.wait("60s")).state == "undone"


async def test_a_filter_knows_how_long_ago(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1)])
    await world.elapse(100)
    await store.tasks.submit([draft(2)])
    for conditions, matches in (({"older": 50.0}, [1]), ({"younger": 50.0}, [2]), ({"older": 0.0}, [2, 1])):
        condition = Filter(**conditions)  # type: ignore[arg-type]  # older or younger
        assert [view.id for view in await store.tasks.find(condition)] == matches
        assert await store.tasks.count(condition) == len(matches)
    assert await store.tasks.count(Filter(limit=1, ids=(1, 2, 3), states=("pending",))) == 2


async def test_a_refused_act_says_why_and_who_won(store: Store) -> None:
    app, flow = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(flow, "a")
        await task.wait("60s")
        await task.undo(who="ann", why="recall")
        await task.wait("60s")
        with pytest.raises(mg.ActRefusedError, match="the task had ended: undone") as error:
            await task.cancel(who="bob")
        assert "the last act on it: undo by ann (recall), " in str(error.value)
        assert error.value.state == "undone"
        other = await node.client.submit(flow, "b")
        await other.wait("60s")
        with pytest.raises(mg.ActRefusedError) as first:
            await other.cancel()
        assert "last act" not in str(first.value)


async def test_a_task_is_resubmitted_with_other_inputs(store: Store) -> None:
    """By hand of an operator, for a step and for the whole; each attempt under a key of its own."""
    app, flow = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        client = node.client
        task = await client.submit(flow, "good")
        for change in ({"step": "work", "inputs": {"order": "good"}}, {"inputs": ["good"]}):
            task = await client.submit(flow, "bad")
            assert (await task.wait("60s")).state == "undone"
            await task.resubmit(**change, who="ann", why="a slip of the pen")
            assert await task.result("60s") == "good"
            (entry,) = await client.audit(task.id)
            content = msgspec.json.decode(entry.change or b"")
            now: object = {"order": "good"} if "step" in change else ["good"]
            assert (content["step"], content["now"]) == (change.get("step"), now)
            assert (await task.status()).steps[0].round == 2
        with pytest.raises(mg.ActRefusedError, match="is processed"):
            await task.resubmit(inputs=["other"])
        with pytest.raises(mg.TaskNotFoundError, match="no step 'wrok'; it has work"):
            await task.resubmit(step="wrok", inputs={})
        for wrong in ({"step": "work"}, {"inputs": "bad"}, {"step": "work", "inputs": ["x"]}):
            with pytest.raises(mg.ConfigError):
                await task.resubmit(**wrong)


async def test_corrected_values_may_be_as_large_as_their_app_allows(store: Store) -> None:
    app = mg.App("shop", payload_limit=2 * PAYLOAD_LIMIT)

    @app.agent("desk").action(complete_within="1m", undo=mg.NOTHING)
    def work(texts: list[str]) -> str:
        raise mg.Permanent("refused")

    @app.workflow(on_failure="hold")
    def flow(texts: list[str]) -> str:
        return work(texts)

    large, larger = ["x" * PAYLOAD_LIMIT], ["x" * 2 * PAYLOAD_LIMIT]
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(flow, large)
        await task.wait("60s")
        for change in ({"inputs": [large]}, {"step": "work", "inputs": {"texts": large}}):
            await task.resubmit(**change)
            assert (await task.wait("60s")).state == "error"
        for change in ({"inputs": [larger]}, {"step": "work", "inputs": {"texts": larger}}):
            with pytest.raises(mg.PayloadError, match="the limit is 2,097,152"):
                await task.resubmit(**change)
        await task.settle("work", value=large[0])
        assert await task.result("60s") == large[0]


async def test_alerts_are_acknowledged_once(store: Store) -> None:
    async with mg.Client(store) as client:
        await store.alerts.alert(
            [Alert("no_leader", text="nobody leads"), Alert("circuit_open", step="shop/desk")]
        )
        newest, oldest = await client.alerts()
        view = await client.acknowledge(newest.id, who="ann", why="mine")
        assert (view.acked_by, view.acked_why, view.open) == ("ann", "mine", False)
        assert [alert.id for alert in await client.alerts()] == [oldest.id, newest.id]
        with pytest.raises(mg.ActRefusedError, match=r"was acknowledged by ann \(mine\) before"):
            await client.acknowledge(newest.id, who="bob")
        await store.alerts.ease([Alert("no_leader")], "a leader is back")
        with pytest.raises(mg.ActRefusedError, match="has ended by itself: a leader is back"):
            await client.acknowledge(oldest.id)
        with pytest.raises(mg.AlertNotFoundError, match="no alert 999"):
            await client.acknowledge(999)
        assert [alert.id for alert in await client.alerts(ended=True)] == [newest.id, oldest.id]
        assert [alert.id for alert in await client.alerts()] == [newest.id]


def test_the_same_from_blocking_code(tmp_path: Path) -> None:
    app, flow = shop()
    with mg.SyncNode(app, f"sqlite:///{tmp_path / 'a.db'}") as node:
        client = node.client
        task = node.client.submit(flow, "a")
        assert task.result(timeout="60s") == "a"
        assert client.count(Filter()) == 1
        (act,) = client.undo_all(Filter(), who="ann")
        assert (act.verdict, act.task) == ("applied", task.id)
        task.wait("60s")
        assert [a.verdict for a in client.resubmit_all(Filter())] == ["applied"]
        task.wait("60s")
        assert [a.verdict for a in client.cancel_all(Filter(), limit=3)] == ["refused"]
        assert [entry.who for entry in client.audit(task.id, limit=5)][-1] == "ann"
        assert client.alerts() == []
        with pytest.raises(mg.AlertNotFoundError):
            client.acknowledge(1)


async def test_a_task_that_was_settled_to_its_end_shows_no_cause(store: Store) -> None:
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def charge(order: str) -> str:
        raise mg.Permanent("the card has expired")

    @app.workflow(on_failure="hold")
    def sell(order: str) -> str:
        return charge(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(sell, "a")
        assert (await task.wait("60s")).cause == "charge: the card has expired"
        await task.settle("charge", value="paid in cash", why="I took it")
        assert await task.result("60s") == "paid in cash"
        view = (await task.status()).task
        assert (view.state, view.cause) == ("processed", "")


async def test_the_database_says_under_which_login_an_operator_acted(store: Store, world: World) -> None:
    """Beside ``who``, which the operator types: in the audit and in the task's history. What the message claims itself is ignored."""
    login = urlsplit(world.url).username if world.dialect == "postgres" else None  # type: ignore[attr-defined]
    app, flow = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(flow, "bad")
        await task.wait("60s")
        command = TaskMessage("resubmit", act=Act("act-1", "ceo@bank", "trust me", "ceo"))
        await store.tasks.post(task.number, command)
        async with asyncio.timeout(60):
            while not (entries := await node.client.audit(task.id)):
                await moment()
        assert [(entry.who, entry.db_user) for entry in entries] == [("ceo@bank", login)]
        notes = [event.note async for event in task.events(follow=False) if "resubmit" in event.note]
        assert [f"[database user {login}]" in note for note in notes] == [login is not None]
        await store.alerts.alert([Alert("no_leader", text="nobody leads")])
        alerts = await store.alerts.views()
        await store.alerts.acknowledge([alert.id for alert in alerts], Act("act-2", "ann", "seen", "ceo"))
        assert {entry.db_user for entry in await store.admin.audit()} == {login}
