"""The chores of the leader: acts on many tasks are worked off, figures of a minute are written, and it steps down when asked."""

import asyncio
import random
from dataclasses import replace

import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.errors import ActRefusedError, BulkNotFoundError, ConfigError
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.views import Filter, NodeInfo, SchedulerTally
from makegood.supervisor.chores import Chores
from makegood.supervisor.supervisor import LEASE, Supervisor
from tests.actors.conftest import QUIET
from tests.waiting import moment, until


def shop() -> tuple[mg.App, mg.Workflow[[str], None]]:
    """A shop whose orders end in error."""
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="1m", retry=mg.NEVER, no_return=True)
    async def work(order: str) -> None:
        raise mg.Permanent(f"no such order: {order}")

    @app.workflow(on_failure="hold")
    def flow(order: str) -> None:
        work(order)

    return app, flow


def chores(store: Store) -> Chores:
    """Return the chores of a leader, driven by hand."""
    return Chores(store, leads=lambda: True, rng=random.Random(1))


async def test_the_leader_sends_the_commands_and_counts_their_answers(store: Store) -> None:
    app, flow = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        tasks = [await node.client.submit(flow, str(n)) for n in range(3)]
        for task in tasks:
            await task.wait(timeout="2m")
        bulk = await node.client.bulk("resubmit", Filter(states=("error",)), why="try again", who="ann")
        assert (bulk.counted, bulk.state) == (3, "running")
        leader = chores(store)
        async with asyncio.timeout(120):
            while (view := await node.client.bulk_act(bulk.id)).state == "running":
                await leader.once()
                await moment()
        assert (view.state, view.applied, view.refused, view.progress) == ("done", 3, 0, 1.0)
        assert [one.id for one in await node.client.bulk_acts()] == [bulk.id]
        audit = await node.client.audit(tasks[0].id)
        assert [(a.kind, a.who, a.why) for a in audit] == [("resubmit", "ann", "try again")]
        with pytest.raises(ActRefusedError, match="done already"):
            await node.client.stop_bulk(bulk.id)


async def test_an_act_that_is_stopped_reaches_no_more_tasks(store: Store) -> None:
    app, flow = shop()
    async with Node(app, store, roles=("scheduler",), options=QUIET) as node:
        await node.client.submit(flow, "1")
        bulk = await node.client.bulk("cancel", Filter(states=("pending", "processing")), rate=5)
        stop = await node.client.stop_bulk(bulk.id, who="bob", why="wrong filter")
        assert (stop.state, stop.stopped_by) == ("stopping", "bob")
        await chores(store).once()
        assert (await node.client.bulk_act(bulk.id)).state == "stopped"
        assert (await node.client.bulk_act(bulk.id)).sent == 0


async def test_what_cannot_be_is_refused_at_the_request(store: Store) -> None:
    async with Node(None, store, roles=("scheduler",), options=QUIET) as node:
        with pytest.raises(ConfigError, match="pass 'cancel', 'undo', 'resubmit' or 'signal'"):
            await node.client.bulk("settle", Filter())  # type: ignore[arg-type]
        for limit, rate in ((0, None), (None, 0.0), (None, 1e9)):
            with pytest.raises(ConfigError, match="a limit is 1 or more"):
                await node.client.bulk("undo", Filter(), limit=limit, rate=rate)
        with pytest.raises(ConfigError, match="needs signal="):
            await node.client.bulk("signal", Filter())
        with pytest.raises(ConfigError, match="sends no signal"):
            await node.client.bulk("undo", Filter(), signal="approval")
        with pytest.raises(BulkNotFoundError):
            await node.client.bulk_act("none")
        with pytest.raises(ConfigError, match="id"):
            await node.client.bulk_act("no\0ne")
        for ask in (node.client.alerts, node.client.acknowledge_all):
            with pytest.raises(ConfigError, match="'AAA' is not a kind of alerts"):
                await ask(kind="AAA")
        with pytest.raises(ActRefusedError, match="nobody leads under epoch 7"):
            await node.client.step_down(epoch=7)


async def test_a_minute_s_figures_are_what_processes_did_since_the_last_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = store.now

    async def a_minute_ago() -> float:
        return await now() - 60.0

    def says(tally: SchedulerTally) -> NodeInfo:
        return NodeInfo("one", ("scheduler",), "host", 7, 3600.0, tally=tally)

    node, begin = await store.nodes.register(says(SchedulerTally(10, 1, 0, 30, (5,)))), await now()
    leader = chores(store)
    with monkeypatch.context() as earlier:
        earlier.setattr(store, "now", a_minute_ago)
        rest = await leader.minute()
    assert 0 < rest <= 5.0
    assert await store.oversight.minutes() == []
    await store.nodes.heartbeat(node, says(SchedulerTally(14, 1, 2, 42, (5, 4))))
    other = NodeInfo("two", ("scheduler",), "host", 8, 3600.0, tally=SchedulerTally(1))
    await store.nodes.register(other)  # it began since: all that it did counts
    await leader.minute()
    (minute,) = await store.oversight.minutes()
    assert (minute.processed, minute.undone, minute.errors, minute.steps) == (5, 0, 2, 12)
    assert 60.0 <= minute.seen <= 60.0 + await now() - begin
    assert minute.p50 == pytest.approx(0.00139, abs=0.0001)
    await leader.minute()
    assert len(await store.oversight.minutes()) == 1


async def test_a_scheduler_publishes_what_it_has_done(store: Store) -> None:
    app, flow = shop()

    async def published() -> bool:
        (view,) = await store.nodes.views()
        return view.info.tally == SchedulerTally(0, 0, 1, 1)

    beating = replace(QUIET, heartbeat="10ms")
    async with Node(app, store, roles=("scheduler", "agent"), options=beating) as node:
        task = await node.client.submit(flow, "1")
        await task.wait(timeout="60s")
        await until(published, "the tally in its heartbeat")
        (group,) = (await store.oversight.error_groups()).groups
        assert (group.message, group.attempts, group.states) == ("no such order: N", 1, {"error": 1})
        assert group.frame.startswith("test_chores.py:")
        assert group.frame.endswith(" in work")
        (end,) = [each for row in await store.tasks.history(task.number) for each in row.attempts or ()]
        assert "test_chores.py" in (end.traceback or "")


async def test_the_leader_steps_down_when_an_operator_asks_and_another_leads(store: Store) -> None:
    options = Options(supervise_every="500ms", lease="20s")
    instances = [
        Supervisor(store, options, me=name, clock=SystemClock(), rng=random.Random(name))
        for name in ("s-1", "s-2")
    ]
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        running = [group.create_task(each.run()) for each in instances]
        while not any(each.leading for each in instances):
            await moment()
        first = await store.leases.read(LEASE)
        assert first is not None
        async with Node(None, store, roles=("scheduler",), options=QUIET) as node:
            assert await node.client.step_down(epoch=first.epoch, who="ann", why="drill") == first.holder
        while (now := await store.leases.read(LEASE)) is None or now.holder in (None, first.holder):
            await moment()
        assert now.epoch == first.epoch + 1
        for each in running:
            each.cancel()


async def test_a_task_s_deadline_is_moved_by_its_scheduler(store: Store) -> None:
    app = mg.App("shop")
    desk, start = app.agent("desk"), asyncio.Event()

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def work() -> None:
        start.set()
        await asyncio.Event().wait()

    @app.workflow(complete_within="1h")
    def flow() -> None:
        work()

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(flow)
        await start.wait()
        before = (await task.status()).task.complete_by
        answer = await task.extend("30m", why="the bank is slow", who="ann")
        assert (answer.verdict, answer.kind) == ("applied", "extend")
        after = (await task.status()).task.complete_by
        assert before is not None
        assert after is not None
        assert after - before == pytest.approx(1800.0, abs=60.0)
        (audit,) = await node.client.audit(task.id)
        assert (audit.kind, audit.who, audit.why) == ("extend", "ann", "the bank is slow")
