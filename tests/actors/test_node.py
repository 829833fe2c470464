"""A node wires the roles of one process, learns of its own death, and takes no half measures when an actor dies."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

import makegood as mg
from makegood.base import zones
from makegood.channels import StoreChannel
from makegood.errors import SchemaMismatchError
from makegood.node.node import Node
from makegood.options import Options
from makegood.scheduler.scheduler import Scheduler
from makegood.store.protocol import Store
from makegood.store.records import Batch, Committed, Offer
from makegood.store.views import NodeInfo
from makegood.supervisor.supervisor import Supervisor
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import chain_app
from tests.clocks import HandClock
from tests.conformance.builders import agent
from tests.conformance.worlds import World, eventually
from tests.waiting import moment


async def test_a_node_publishes_the_zone_rules_of_its_machine(store: Store) -> None:
    """With its first heartbeat: for ``doctor``, which compares them."""
    app, _ = chain_app(1)
    async with Node(app, store, roles=("scheduler",)) as node:
        (view,) = [view for view in await store.nodes.views() if view.id == node.number]
        assert view.info.zone_rules == zones.current() is not None


async def test_a_node_that_was_declared_dead_goes_on_under_a_new_number(store: Store, world: World) -> None:
    app, chain = chain_app(2)
    options = Options(heartbeat="10ms", dead_after="1h", poll_every=None, drain="1s")
    async with Node(app, store, roles=("scheduler", "agent"), options=options) as node:
        first = node.number
        assert await (await node.client.submit(chain, "a")).result(timeout="60s") == "a"
        await store.nodes.unregister(first)
        await eventually(lambda: node.number != first, "another number")
        assert await (await node.client.submit(chain, "b")).result(timeout="60s") == "b"


async def test_a_step_whose_dispatch_is_written_while_the_process_drains_is_answered(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the task runs at that moment. If it were given back then, the answer of the next step would be lost: silence, counted."""
    app, answer, began = mg.App("bench"), asyncio.Event(), asyncio.Event()
    desk = app.agent("desk")

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def first(order: str) -> str:
        return order

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def second(order: str) -> str:
        began.set()
        await answer.wait()
        return f"{order} done"

    @app.workflow()
    def both(order: str) -> str:
        return second(first(order))

    dispatch, go, let_go, commit = asyncio.Event(), asyncio.Event(), asyncio.Event(), store.tasks.commit

    async def slow(batch: Batch) -> Committed:
        outcome = await commit(batch)
        if any(decision.requests for decision in batch.decisions):
            dispatch.set()
            await go.wait()
        elif any(decision.release for decision in batch.decisions):
            await let_go.wait()
        return outcome

    async def a_while() -> None:
        for _ in range(20):
            await moment()

    monkeypatch.setattr(store.tasks, "commit", slow)
    node = Node(app, store, roles=("scheduler", "agent"), options=replace(QUIET, drain="20s"))
    await node.start()
    task = await node.client.submit(both, "x")
    await dispatch.wait()
    stopping = asyncio.ensure_future(node.stop())
    for happens in (go, answer, let_go):
        await a_while()
        happens.set()
        await began.wait()
    await stopping
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as after:
        assert await after.client.task(task.id, str).result(timeout="60s") == "x done"
        assert [step.failures for step in (await after.client.task(task.id, str).status()).steps] == [0, 0]


async def test_an_actor_that_dies_takes_the_node_with_it_and_its_error_is_raised(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _ = chain_app(1)
    strike = asyncio.Event()

    async def dies(_: Scheduler) -> None:
        await strike.wait()
        raise ZeroDivisionError

    monkeypatch.setattr(Scheduler, "run", dies)
    with pytest.raises(ZeroDivisionError):
        await Node(app, store, roles=("scheduler", "agent"), options=QUIET).run(strike.set)


async def test_an_actor_that_is_cancelled_by_something_else_takes_the_node_with_it_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a process runs may cancel its own task by mistake; nobody would notice that the Supervisor is gone."""
    app, _ = chain_app(1)
    strike = asyncio.Event()

    async def struck(_: Supervisor) -> None:
        await strike.wait()
        raise asyncio.CancelledError

    monkeypatch.setattr(Supervisor, "run", struck)
    with pytest.raises(RuntimeError, match="supervisor was cancelled, and not by its node"):
        await Node(app, store, roles=("scheduler", "supervisor"), options=QUIET).run(strike.set)


async def test_a_store_that_cannot_be_opened_stops_the_node_before_anything_runs(tmp_path: Path) -> None:
    app, _ = chain_app(1)
    with pytest.raises(mg.ConfigError, match="does not exist"):
        async with Node(app, f"sqlite:///{tmp_path / 'no' / 'such' / 'folder.db'}"):
            pass
    with pytest.raises(SchemaMismatchError, match="makegood store migrate"):
        async with Node(app, f"sqlite:///{tmp_path / 'empty.db'}", options=Options(migrate=False)):
            pass


async def test_the_channel_of_the_store_carries_requests_and_rings_for_them(
    store: Store, other: Store
) -> None:
    app, chain = chain_app(1)
    channel, rang = StoreChannel(other), asyncio.Event()
    stop = channel.subscribe("bench/desk", rang.set)
    async with Node(None, store, roles=("scheduler",), options=QUIET) as node:
        await node.client.submit(chain, "a")
        async with asyncio.timeout(60):
            await rang.wait()
        mine = await agent(other)
        (request,) = await channel.take(mine, [Offer("bench/desk", ("step",), 5)])
        assert (request.action, request.attempt) == ("step", 1)
        assert await channel.extend(mine, request.task, request.idx, request.attempt, 90.0)
        await channel.give_back(mine, [(request.task, request.idx, request.attempt)])
        assert len(await channel.take(mine, [Offer("bench/desk", ("step",), 5)])) == 1
    stop()
    assert app.name == "bench"
    assert mg.Options is Options


def unknown(order: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821
    """Take what nobody knows."""


async def test_an_action_whose_arguments_cannot_be_decoded_stops_the_node_before_a_step_finds_out(
    store: Store,
) -> None:
    app = mg.App("odd")
    app.agent("a").action(complete_within="1s", undo=mg.NOTHING)(unknown)
    with pytest.raises(mg.DefinitionError, match="odd/a/unknown: an annotation cannot be evaluated"):
        Node(app, store, options=QUIET)


async def test_a_workflow_that_nobody_could_submit_stops_the_node(store: Store) -> None:
    """Whatever its roles: each submission of it would fail."""
    app, _ = chain_app(1)

    @app.workflow()
    def odd() -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
        return None

    with pytest.raises(mg.DefinitionError, match=r"bench\.odd: an annotation cannot be evaluated"):
        Node(app, store, roles=("scheduler",), options=QUIET)


def test_a_path_for_a_store_and_a_word_for_roles_are_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(mg.ConfigError, match=r"write a URL, 'sqlite:///.*shop\.db'"):
        mg.Client(tmp_path / "shop.db")  # type: ignore[arg-type]  # as a program without a type checker would
    app, _ = chain_app(1)
    with pytest.raises(mg.ConfigError, match=r"roles=\('scheduler',\)"):
        Node(app, f"sqlite:///{tmp_path / 'shop.db'}", roles="scheduler")


async def test_an_outage_is_said_once_and_so_is_its_end(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """However many heartbeats fail meanwhile."""
    options = Options(heartbeat="10ms", dead_after="1h", poll_every=None, drain="1s")
    beat, tries, away = store.nodes.heartbeat, 0, True

    async def heartbeat(node: int, info: NodeInfo) -> bool:
        nonlocal tries
        tries += 1
        if away:
            raise mg.StoreUnavailableError("the server has gone")
        return await beat(node, info)

    with caplog.at_level(logging.INFO, "makegood.node"):
        async with Node(None, store, roles=("scheduler",), options=options) as node:
            node.store.nodes.heartbeat = heartbeat  # type: ignore[method-assign]
            await eventually(lambda: tries >= 5, "some heartbeats fail")
            away, tries = False, 0
            await eventually(lambda: tries >= 3, "it is back")
            messages = [record.getMessage() for record in caplog.records if record.name == "makegood.node"]
        events = [record.__dict__["event"] for record in caplog.records[len(messages) :]]
    assert events == ["draining", "stopped"]
    assert messages == [
        "no heartbeat until the store is back: the server has gone",
        "the store is back: the heartbeat continues",
    ]


async def test_an_action_that_blocks_the_loop_is_told_of(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, clock = mg.App("odd"), HandClock()

    @app.agent("a").action(complete_within="1m", undo=mg.NOTHING)
    async def block(order: str) -> None:
        clock.forward(2.3)  # as if it had slept for so long

    @app.workflow()
    def blocks(order: str) -> None:
        block(order)

    options = Options(heartbeat="10ms", dead_after="1h", poll_every=None, drain="1s")

    async def alive(node: int, info: NodeInfo) -> bool:
        return True

    with caplog.at_level(logging.WARNING, "makegood.node"):
        async with Node(app, store, roles=("scheduler", "agent"), options=options, clock=clock) as node:
            node.store.nodes.heartbeat = alive  # type: ignore[method-assign]  # at once: it rests when the loop stands still
            await (await node.client.submit(blocks, "o")).result(timeout="60s")
            await eventually(lambda: caplog.records, "it is said")
    assert "the event loop was blocked for" in caplog.text
    assert "does an `async def` action block without `await`?" in caplog.text
