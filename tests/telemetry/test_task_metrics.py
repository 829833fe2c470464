"""What is counted is what was done: every outcome, every cause and every decision, provoked on both stores and scraped."""

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest

import makegood as mg
from makegood import saga
from makegood.base.clock import SystemClock
from makegood.model.messages import SignalRef, TaskMessage
from makegood.model.plan import StepPlan
from makegood.store.protocol import Store
from makegood.store.records import Committed
from makegood.telemetry import task_metrics
from makegood.telemetry.catalogue import DECISIONS, FENCED, SIGNALS, UNDOS, WAIT_SECONDS
from makegood.telemetry.counters import Counters
from makegood.telemetry.task_metrics import Accounts
from tests.clocks import HandClock
from tests.conformance.worlds import World
from tests.telemetry.conftest import QUICK, page, watched
from tests.unit.saga_case import Case, action
from tests.waiting import until

ONE_TERM = replace(QUICK, lease=600.0, dead_after=600.0)
"""What lasts a second is lost where a busy machine lets nobody renew it, or where a test lets time pass."""

QUICKLY = mg.Recover(threshold=1, wait="1ms", extended="2ms")
ONCE = mg.Retry(tries=1)


class Bank:
    """A service that does what its caller's order says."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun = asyncio.Event()
        self.ends = asyncio.Event()

    async def call(self, order: str) -> str:
        """Be called."""
        self.calls += 1
        if order == "refused":
            raise mg.Permanent("no")
        if order == "down" or (order == "flaky" and self.calls == 1):
            raise ConnectionError("down")
        if order == "busy" and self.calls == 1:
            raise mg.Later("1ms")
        if order == "slow":
            self.begun.set()
            await self.ends.wait()
        return order


def shop(bank: Bank, **workflow: Any) -> tuple[mg.App, Any]:
    """Return an app whose workflow holds goods, which can be given back, then calls the bank."""
    app = mg.App("shop")
    stock, payments = app.agent("stock"), app.agent("payments")

    @stock.action(complete_within="20s")
    async def reserve(order: str) -> str:
        return order

    @reserve.undo
    async def release(order: str, *, result: str | None) -> None:
        if order == "stuck":
            raise mg.Permanent("locked")

    @payments.action(complete_within="20s", retry=ONCE, recover=QUICKLY, undo=mg.NOTHING)
    async def charge(order: str, hold: str) -> str:
        return await bank.call(order)

    @app.workflow(**workflow)
    def buy(order: str) -> str:
        return charge(order, reserve(order))

    return app, buy


async def test_every_task_and_attempt_is_counted_once(store: Store) -> None:
    """Twenty orders: as many tasks processed, twice as many attempts, all timed; nothing waits, nothing is left."""
    app, buy = shop(Bank())
    async with watched(app, store) as (node, telemetry):
        tasks = [await node.client.submit(buy, f"o{n}") for n in range(20)]
        await asyncio.gather(*(task.result("60s") for task in tasks))
        numbers = await page(telemetry)
    assert numbers.table("makegood_tasks_total", "app", "workflow", "outcome") == {
        ("shop", "buy", "processed"): 20
    }
    assert numbers("makegood_task_duration_seconds_count", outcome="processed") == 20
    assert numbers.table("makegood_step_attempts_total", "workflow", "agent", "step", "outcome") == {
        ("buy", "stock", "reserve", "ok"): 20,
        ("buy", "payments", "charge", "ok"): 20,
    }
    assert numbers("makegood_step_duration_seconds_count", agent="payments", step="charge", doing="do") == 20
    assert numbers("makegood_step_schedule_to_start_seconds_count", agent="stock") == 20
    assert numbers("makegood_commit_batch_size_sum", op="submit") == 20
    assert (numbers("makegood_commits_total", op="commit") or 0) > 0
    assert numbers.table("makegood_supervisor_decisions_total", "decision") == {
        ("retry",): 0, ("wait",): 0, ("undo",): 0, ("hold",): 0,
    }  # fmt: skip
    assert numbers("makegood_agent_slots", agent="stock", state="free") == 10
    assert numbers("makegood_undos_total") is None


async def test_a_failure_that_passes_is_retried_and_a_later_is_none(store: Store) -> None:
    for order, outcome, retries in (("flaky", "transient", 1), ("busy", "later", 0)):
        app, buy = shop(Bank())
        async with watched(app, store) as (node, telemetry):
            await (await node.client.submit(buy, order)).result("60s")
            numbers = await page(telemetry)
        attempts = numbers.table("makegood_step_attempts_total", "step", "outcome")
        assert attempts == {("reserve", "ok"): 1, ("charge", outcome): 1, ("charge", "ok"): 1}
        assert numbers("makegood_supervisor_decisions_total", decision="retry") == retries


async def test_past_its_threshold_a_task_is_undone_and_each_decision_is_counted(store: Store) -> None:
    app, buy = shop(Bank())
    async with watched(app, store) as (node, telemetry):
        task = await node.client.submit(buy, "down")
        await task.wait("60s")
        numbers = await page(telemetry)
    assert numbers("makegood_step_attempts_total", step="charge", outcome="transient") == 3
    assert numbers.table("makegood_supervisor_decisions_total", "decision") == {
        ("retry",): 1, ("wait",): 1, ("undo",): 1, ("hold",): 0,
    }  # fmt: skip
    assert numbers.table("makegood_undos_total", "workflow", "cause") == {("buy", "threshold"): 1}
    assert numbers.table("makegood_tasks_total", "outcome") == {("undone",): 1}
    assert numbers.table("makegood_undo_steps_total", "step", "outcome") == {
        ("reserve", "undone"): 1,
        ("charge", "kept"): 1,
    }
    assert numbers("makegood_step_duration_seconds_count", step="reserve", doing="undo") == 1


async def test_a_refusal_and_an_undo_that_is_stuck(store: Store) -> None:
    """Permanent is a cause; what cannot be taken back is held, in error, with an alert that stands."""
    app, buy = shop(Bank())
    async with watched(app, store) as (node, telemetry):
        declined_task = await node.client.submit(buy, "refused")
        await declined_task.wait("60s")
        numbers = await page(telemetry)
        assert numbers.table("makegood_undos_total", "cause") == {("permanent",): 1}
        assert numbers("makegood_step_attempts_total", step="charge", outcome="permanent") == 1
        stuck_task = await node.client.submit(buy, "stuck")
        await stuck_task.result("60s")
        await stuck_task.undo(timeout="2m")
        await stuck_task.wait("60s")
        numbers = await page(telemetry)
    assert numbers.table("makegood_undos_total", "cause") == {("permanent",): 1, ("operator",): 1}
    assert numbers("makegood_undo_steps_total", step="reserve", outcome="failed") == 1
    assert numbers("makegood_supervisor_decisions_total", decision="hold") == 1
    assert numbers("makegood_tasks_total", outcome="error") == 1


async def passing(world: World, task: Any) -> None:
    """Let time pass until a task has ended."""
    waiting = asyncio.create_task(task.wait("60s"))
    while not (await asyncio.wait([waiting], timeout=0.01))[0]:
        await world.elapse(1.0)
    await waiting


async def test_what_is_cancelled_and_what_takes_too_long(world: World, store: Store) -> None:
    for cause, workflow in (("cancel", {}), ("complete_by", {"complete_within": "30s"})):
        bank = Bank()
        app, buy = shop(bank, **workflow)
        async with watched(app, store, options=ONE_TERM) as (node, telemetry):
            task = await node.client.submit(buy, "slow")
            async with asyncio.timeout(60):
                await bank.begun.wait()
            if cause == "cancel":
                await task.cancel(timeout="2m")
            await passing(world, task)
            numbers = await page(telemetry)
            bank.ends.set()
        assert numbers.table("makegood_undos_total", "cause") == {(cause,): 1}, cause
        assert (numbers("makegood_step_attempts_total", step="charge", outcome="timeout") or 0) >= 1


async def test_the_leader_says_what_is_in_the_store_and_nobody_else_does(store: Store, other: Store) -> None:
    """Requests that nobody takes, tasks by state, alerts: in the process that leads; the other says that it does not lead."""
    app, buy = shop(Bank())
    async with (
        watched(None, store, roles=("scheduler", "supervisor"), options=ONE_TERM) as (node, first),
        watched(None, other, roles=("supervisor",), options=ONE_TERM) as (_, second),
    ):
        for n in range(3):
            await node.client.submit(buy, f"o{n}")
        states = {("buy", "processing"): 3}
        async with asyncio.timeout(60):
            leads, follows = await page(first), await page(second)
            while (
                leads("makegood_queue_depth", agent="stock") != 3
                or leads.table("makegood_tasks", "workflow", "state") != states
                or not leads("makegood_supervisor_scan_seconds_count")
            ):  # the figures are those of the last pass, and either may lead
                one, two = await page(first), await page(second)
                leads, follows = (one, two) if one("makegood_leader", role="supervisor") else (two, one)
    assert (leads("makegood_leader"), follows("makegood_leader")) == (1, 0)
    assert leads("makegood_queue_oldest_seconds", agent="stock") is not None
    for name in ("makegood_tasks", "makegood_queue_depth", "makegood_alerts"):
        assert follows(name) is None
    assert leads("makegood_leader_changes_total", role="supervisor") == 1
    assert app.name == "shop"


async def test_a_reply_that_comes_too_late_is_counted_for_its_agent(
    world: World, store: Store, other: Store
) -> None:
    app, start, go = mg.App("shop"), threading.Event(), threading.Event()

    @app.agent("desk").action(complete_within="20s", undo=mg.NOTHING)
    def work(x: int) -> int:
        start.set()
        go.wait()
        return x

    @app.workflow()
    def do(x: int) -> int:
        return work(x)

    async with (
        watched(None, store, roles=("scheduler",)) as (node, _),
        watched(app, other, roles=("agent",)) as (_, telemetry),
    ):
        await node.client.submit(do, 1)
        await asyncio.to_thread(start.wait)
        await world.elapse(30.0)
        go.set()
        late = "makegood_late_replies_discarded_total"
        async with asyncio.timeout(60):
            while not (counts := (await page(telemetry)).table(late, "app", "agent")):
                pass
    assert counts == {("shop", "desk"): 1}


def test_what_was_overtaken_is_counted_as_refused_and_nothing_else() -> None:
    """A Decision that was lost changed nothing, so nothing of it is counted."""
    tally = Counters()
    Accounts(tally, SystemClock()).decided({}, [], Committed(losses={1, 2}))
    assert tally.counts(FENCED) == {("scheduler",): 2}
    assert tally.counts(UNDOS) == {}
    assert set(tally.counts(DECISIONS).values()) == {0.0}


# -- waiting -------------------------------------------------------------------------------------------------


def travels() -> tuple[mg.App, Any, mg.Signal[str]]:
    """Return an app whose workflow waits for an answer, then sleeps for as long as it says, and these two."""
    app = mg.App("trips")
    answer = app.signal("answer", str)

    @app.workflow
    def trip(timeout: str) -> str:
        text = mg.wait_for(answer, timeout="1h", otherwise="none")
        mg.sleep("20ms")
        return text

    return app, trip, answer


async def test_signals_and_waits_are_counted(store: Store, world: World) -> None:
    """One is answered and sends again too late, one runs out of time, one is cancelled, and one name is misspelt."""
    app, trip, answer = travels()
    options = replace(QUICK, dead_after=1e6, linger=0.0)
    async with watched(app, store, options=options) as (node, telemetry):
        first, second, third = [await node.client.submit(trip, name) for name in ("a", "b", "c")]
        for handle in (first, second, third):
            await until_listening(handle)
        await node.client.signal(first, answer, "yes", id="one")
        await passing(world, first)
        assert await first.result() == "yes"
        with pytest.raises(mg.SignalRefused) as refusal:
            await node.client.signal(first, answer, "again", id="two")
        assert (refusal.value.app, refusal.value.workflow, refusal.value.is_known) == ("trips", "trip", True)
        with pytest.raises(mg.SignalRefused) as refusal:
            await node.client.signal(third, "no such name", "x", id="three")
        assert not refusal.value.is_known
        await third.cancel(who="ann")
        assert (await third.wait("60s")).state == "undone"
        await world.elapse(3600.0)
        await passing(world, second)
        assert await second.result() == "none"
        numbers = await page(telemetry)
    assert numbers.table("makegood_signals_total", "workflow", "signal", "outcome") == {
        ("trip", "answer", "used"): 1,
        ("trip", "answer", "refused"): 1,
        ("trip", "", "refused"): 1,
    }
    assert numbers.table("makegood_wait_seconds_count", "workflow", "step", "outcome") == {
        ("trip", "answer", "signal"): 1,
        ("trip", "answer", "timeout"): 1,
        ("trip", "answer", "dropped"): 1,
        ("trip", "sleep", "moment"): 2,
    }
    assert (numbers("makegood_wait_seconds_sum", step="sleep") or 0) >= 0.02


async def until_listening(handle: mg.TaskHandle[Any]) -> None:
    """Wait until a task waits for a signal."""

    async def listens() -> bool:
        return any(
            step.kind == "wait_for" and step.state == "ready" for step in (await handle.status()).steps
        )

    await until(listens, "a wait for a signal")


def test_what_an_ended_task_keeps_is_late_and_what_another_keeps_is_kept() -> None:
    tally = Counters()
    accounts = Accounts(tally, SystemClock())
    for state in ("processing", "error", "processed", "undone"):
        case = Case(action(0), state=state)
        case.say(TaskMessage("signal", value=b"1", signal=SignalRef("answer", state)))
        accounts.decided({}, [(case.held, case.last)], Committed())
    assert tally.counts(SIGNALS) == {
        ("shop", "order", "answer", "kept"): 2,
        ("shop", "order", "answer", "late"): 2,
    }


def test_only_so_many_waits_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_metrics, "_MOST_WAITS", 2)
    tally, clock = Counters(), HandClock()
    accounts = Accounts(tally, clock)
    cases = [Case(StepPlan(0, "wait_for", "answer", action="answer"), id=n, claim=False) for n in range(3)]
    for messages in (
        [TaskMessage("claim")],
        [TaskMessage("signal", value=b"1", signal=SignalRef("answer", "x"))],
    ):
        for case in cases:
            held, decision = case.held, saga.decide(case.held, messages)
            accounts.decided({}, [(held, decision)], Committed())
            saga.apply(held, decision)
        clock.forward(60.0)
    (spread,) = tally.spreads(WAIT_SECONDS).values()
    assert (sum(spread.counts), spread.total) == (2, 120.0)
