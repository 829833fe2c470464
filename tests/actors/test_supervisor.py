"""The Supervisor judges and asks: silence is counted once, dead Schedulers lose their tasks, starvation is no failure."""

import asyncio
import random
from dataclasses import replace

import pytest

import makegood as mg
from makegood.base.clock import SystemClock
from makegood.base.ids import parse
from makegood.election import Term
from makegood.election.settings import settings
from makegood.errors import FencedOffError
from makegood.node.node import Node
from makegood.options import Options
from makegood.scheduler.scheduler import Scheduler
from makegood.store.protocol import Store
from makegood.supervisor.supervisor import LEASE, Pass, Supervisor
from tests.actors.conftest import QUIET
from tests.conformance.builders import scheduler
from tests.conformance.worlds import World
from tests.waiting import moment

PROMPT = Options(supervise_every="500ms", lease="60s", late_after="0s", starved_after="30s")
CALM = Options(supervise_every="10s", lease="60s", late_after="0s", starved_after="30s")
"""A Scheduler has 20 seconds to answer before it counts as deaf."""


def supervisor(store: Store, me: str = "s-1", options: Options = PROMPT) -> Supervisor:
    """Return a Supervisor that is driven by hand."""
    return Supervisor(store, options, me=me, clock=SystemClock(), rng=random.Random(me))


async def term_of(store: Store, holder: str = "s-1") -> Term:
    """Take the Supervisor's lease."""
    grant = await store.leases.acquire(LEASE, holder, f"nonce-{holder}", 60.0)
    assert grant is not None
    return Term(
        store.leases,
        grant,
        SystemClock().monotonic(),
        settings=settings(60),
        clock=SystemClock(),
        rng=random.Random(1),
    )


def hanging_app() -> tuple[mg.App, mg.Plan[None], asyncio.Event, list[int]]:
    """Return an app whose action hangs at its first attempt, a plan, an event for its begin, and its attempts."""
    app, start, attempts = mg.App("shop"), asyncio.Event(), list[int]()
    desk = app.agent("desk")

    @desk.action(complete_within="1m", undo=mg.NOTHING, recover=mg.Recover(wait="1ms"))
    async def work(order: str) -> None:
        attempts.append(mg.current_call().attempt)
        start.set()
        if len(attempts) == 1:
            await asyncio.Event().wait()

    @app.workflow()
    def flow(order: str) -> None:
        work(order)

    return app, flow.plan("o"), start, attempts


async def test_silence_is_judged_once_counted_once_and_the_rules_try_again(
    store: Store, world: World
) -> None:
    app, plan, start, attempts = hanging_app()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(plan)
        await start.wait()
        watcher, term = supervisor(store, options=CALM), await term_of(store)
        assert (await watcher.once(term)).judged == 0, "its complete-by has not passed"
        await world.elapse(61.0)
        await store.leases.renew(term.grant)
        term = await term_of(store)
        assert (await watcher.once(term)).judged == 1
        assert (await watcher.once(term)).judged == 0
        (decision,) = await store.oversight.decisions()
        assert (decision.kind, decision.tasks, decision.task, decision.epoch) == (
            "judged",
            1,
            parse(task.id),
            term.epoch,
        )
        await task.result(timeout="60s")
        detail = await task.status()
    assert attempts == [1, 2]
    assert detail.task.failure_count == 1


async def test_a_superseded_leader_changes_nothing(store: Store, world: World) -> None:
    app, plan, start, _ = hanging_app()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        await node.client.submit(plan)
        await start.wait()
        old = await term_of(store, "old")
        await world.elapse(61.0)
        new = await term_of(store, "new")
        assert new.epoch == old.epoch + 1
        with pytest.raises(FencedOffError):
            await supervisor(store, "old").once(old)
        assert (await supervisor(store, "new").once(new)).judged == 1


async def test_a_dead_schedulers_tasks_are_freed_and_taken_over(
    store: Store, other: Store, world: World
) -> None:
    app, plan, start, attempts = hanging_app()
    dead = Scheduler(other, None, clock=SystemClock(), rng=random.Random(1), poll=None)
    dead.rename(await scheduler(other))
    life = asyncio.ensure_future(dead.run())
    async with Node(app, store, roles=("agent",), options=replace(QUIET, dead_after="100h")) as agents:
        task = await agents.client.submit(plan)
        await start.wait()
        life.cancel()  # it says nothing more: to the store it is as good as killed
        await world.elapse(3 * 3600 + 1)
        result = await supervisor(store).once(await term_of(store))
        assert (result.released, result.judged) == (1, 1)
        async with Node(None, store, roles=("scheduler",), options=QUIET):
            await task.result(timeout="60s")
        assert (await task.status()).task.epoch == 2
    assert attempts == [1, 2]
    await asyncio.gather(life, return_exceptions=True)


async def test_a_request_that_nobody_takes_raises_one_alert_and_counts_no_failure(
    store: Store, world: World
) -> None:
    _, plan, _, _ = hanging_app()
    async with Node(None, store, roles=("scheduler",), options=QUIET) as node:
        task = await node.client.submit(plan)
        async with asyncio.timeout(60):
            while not [
                s for s in (await task.status()).steps if s.state == "running"
            ]:  # the store has no ring for a step
                await moment()
        await world.elapse(31.0)
        watcher, term = supervisor(store), await term_of(store)
        assert (await watcher.once(term)).starved == 1
        assert (await watcher.once(term)).starved == 0
        (step,) = (await task.status()).steps
    assert (step.failures, step.attempt) == (0, 1)
    assert [alert.kind for alert in await store.alerts.views()] == ["starved"]


async def test_it_leads_by_the_lease_makes_its_pass_and_gives_the_lease_back(store: Store) -> None:
    result = await supervisor(store).single(wait=120.0)
    assert isinstance(result, Pass)
    assert result.judged == 0
    view = await store.leases.read(LEASE)
    assert view is not None
    assert (view.holder, view.epoch) == (None, 1)
    await term_of(store, "somebody else")
    assert await supervisor(store).single(wait=0.05) is None


@pytest.mark.parametrize(
    "world", ["postgres"], indirect=True
)  # SQLite counts on beyond its largest whole number
async def test_a_lease_whose_row_is_broken_ends_no_supervisor(store: Store, world: World) -> None:
    """No epoch comes after the largest number: it tries again, says so, and leads once the row is mended."""
    grant = await store.leases.acquire(LEASE, "before", "nonce", 60.0)
    assert grant is not None
    await store.leases.release(grant)
    async with world.raw() as raw:
        await raw.run(f"update {{lease}} set epoch = {2**63 - 1}")
    candidate = supervisor(store)
    running = asyncio.create_task(candidate.run())
    while not [alert for alert in await store.alerts.views() if alert.kind == "role_failing"]:
        assert not running.done()
        await moment()
    async with world.raw() as raw:
        await raw.run("update {lease} set epoch = 7")
    while candidate.leading is None:
        assert not running.done()
        await moment()
    assert candidate.leading.epoch == 8
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
