"""A breaker hides no poisoned step: one that always fails comes to its verdict, alone too, and an outage still undoes nothing."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

import makegood as mg
from makegood.agent import circuit_alerts
from makegood.base.ids import show
from makegood.client.handle import TaskHandle
from makegood.console.pages.alerts import items
from makegood.node.node import Node
from tests.actors.test_outages import BRISK, IN_ORDER, ONE_TRY, Service, counted, processes, running, shop
from tests.conformance.worlds import World, eventually
from tests.waiting import until

SOON = mg.Recover(threshold=3, wait="30ms", extended="60ms")


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of other processes is old a hundred times as soon: all waits here are that much shorter."""
    monkeypatch.setattr(circuit_alerts, "_FRESH", 0.005)


class Bank(Service):
    """A service with orders that are poisoned from now on: ``broken``; its probe may answer for them: ``probes``."""

    probes = True

    async def probe(self, order: str) -> mg.NotHappened:
        """Be asked whether it happened."""
        self.asked[f"probe {order}"] += 1
        if self.down or not self.probes:
            raise ConnectionError("payments does not answer")
        return mg.NOT_HAPPENED


def probed_shop(
    bank: Bank, breaker: mg.Breaker | None, *, probe: bool, recover: mg.Recover = SOON
) -> tuple[mg.App, Any]:
    """Return an app with one action, with a probe or without, and its workflow."""
    app = mg.App("shop")
    payments = app.agent("payments", concurrency=4, breaker=breaker)

    @payments.action(complete_within="20s", retry=ONE_TRY, recover=recover)
    async def charge(order: str) -> str:
        await bank.call(order)
        return order

    if probe:

        @charge.probe
        async def found(order: str) -> mg.Happened[str] | mg.NotHappened:
            return await bank.probe(order)

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None:
        bank.asked[f"undo {order}"] += 1

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    return app, buy


async def undone(task: TaskHandle[Any]) -> None:
    """Wait until a task is undone."""
    with pytest.raises(mg.TaskUndone):
        await task.result(timeout="60s")


async def failed_once(bank: Bank, node: Node, workflow: Any) -> TaskHandle[Any]:
    """Submit a poisoned order, and answer others once it has failed."""
    bank.broken.add("c-013")
    task = await node.client.submit(workflow, "c-013")
    await eventually(lambda: bank.asked["c-013"] >= 1, "its first failure")
    others = [await node.client.submit(workflow, f"c-{n}") for n in range(100, 104)]
    await asyncio.gather(*(other.result(timeout="60s") for other in others))
    return task


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("failures", [1, 2, 5])
async def test_a_step_whose_own_probe_alone_is_answered_comes_to_its_verdict(
    world: World, agents: int, failures: int
) -> None:
    """As without a breaker: after the five failures that it declares, whoever counted them, and one more at most."""
    bank = Bank()
    bank.broken.add("o-1")
    app, buy = probed_shop(bank, mg.Breaker(failures=failures, reset="5ms"), probe=True)
    async with processes(app, world, agents) as node:
        await undone(await node.client.submit(buy, "o-1"))
    assert 5 <= bank.asked["o-1"] <= 6


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("probe", [False, True])
@pytest.mark.parametrize("failures", [1, 3, 5])
async def test_a_step_that_is_left_alone_comes_to_its_verdict(
    world: World, agents: int, probe: bool, failures: int
) -> None:
    """The others were answered after it had failed first; then nobody calls but the one that always fails."""
    bank = Bank()
    bank.probes = False
    app, buy = probed_shop(bank, mg.Breaker(failures=failures, reset="20ms"), probe=probe)
    async with processes(app, world, agents) as node:
        await undone(await failed_once(bank, node, buy))
    assert bank.asked["c-013"] < 60


async def test_its_verdict_does_not_need_the_process_that_has_seen_others_answered(world: World) -> None:
    """An agent's process for each attempt, and the Scheduler's beside it: what one knew outlives it in the store."""
    bank = Bank()
    app, buy = probed_shop(bank, mg.Breaker(failures=2, reset="5ms"), probe=False)
    async with processes(app, world, 0) as node:
        async with AsyncExitStack() as stack:
            await running(stack, world, ("agent",), app, IN_ORDER)
            task = await failed_once(bank, node, buy)
            await eventually(lambda: bank.asked["c-013"] >= 4, "failures that count")
        end = asyncio.create_task(undone(task))
        for _ in range(30):
            if end.done():
                break
            before = bank.asked["c-013"]
            async with AsyncExitStack() as stack:
                await running(stack, world, ("agent",), app, IN_ORDER)
                await eventually(
                    lambda before=before: end.done() or bank.asked["c-013"] >= before + 3, "attempts"
                )
        async with AsyncExitStack() as stack:
            await running(stack, world, ("agent",), app, IN_ORDER)
            await end


async def test_an_undo_that_is_left_alone_is_stuck_in_the_end(world: World) -> None:
    service = Service()
    app, buy = shop(service, mg.Breaker(failures=2, reset="10ms"))
    service.broken.add("undo o-1")
    async with processes(app, world, 1) as node:
        task = await node.client.submit(buy, "o-1")
        await task.result(timeout="60s")
        await task.undo(why="sent back")
        await eventually(lambda: service.asked["undo o-1"] >= 1, "its first failure")
        for n in range(3):
            await (await node.client.submit(buy, f"other-{n}")).result(timeout="60s")
        with pytest.raises(mg.TaskInError):
            await task.result(timeout="60s")


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("probe", [False, True])
async def test_an_outage_that_begins_while_calls_are_answered_undoes_nothing(
    world: World, agents: int, probe: bool
) -> None:
    """Some fail at its beginning, others are answered after them, then nobody, nor any probe. Until then each failure counts, however
    many a slow machine lets happen; then three at most do, of some twenty.
    """
    bank = Bank()
    patient = replace(SOON, threshold=100)
    app, buy = probed_shop(bank, mg.Breaker(failures=3, reset="5ms"), probe=probe, recover=patient)
    async with processes(app, world, agents) as node:
        bank.broken |= {"o-1", "o-2", "o-3"}
        orders = [await node.client.submit(buy, f"o-{n}") for n in (1, 2, 3)]
        await eventually(lambda: all(bank.asked[f"o-{n}"] for n in (1, 2, 3)), "the first failures")
        await (await node.client.submit(buy, "o-9")).result(timeout="60s")
        bank.down = True
        before, counts = bank.calls, await counted(orders)
        await eventually(lambda: bank.calls >= before + 60, "many attempts")
        for (_, count), (state, failures) in zip(counts, await counted(orders), strict=True):
            assert (state, failures <= count + 3) == ("processing", True)
        bank.down = False
        bank.broken.clear()
        await asyncio.gather(*(task.result(timeout="60s") for task in orders))


async def kinds(node: Node) -> Sequence[tuple[str, str, str]]:
    """Return what alerts are open: kind, task, and whether somebody is needed."""
    alerts = await node.client.alerts(ended=False)
    return [
        (alert.kind, show(alert.task) if alert.task else "", items([alert], {})[0].tone) for alert in alerts
    ]


async def test_the_alert_of_a_circuit_names_the_one_task_that_fails_and_somebody_is_needed(
    world: World,
) -> None:
    """At once, whether it runs or rests; until another fails too, which looks like an outage."""
    bank = Bank(down=True)
    app, buy = probed_shop(bank, mg.Breaker(failures=2, reset="50ms"), probe=False)
    async with processes(app, world, 1) as node:
        task = await node.client.submit(buy, "o-1")
        await eventually(lambda: bank.asked["o-1"] >= 2, "an open circuit")
        await until(lambda: kinds(node), "the alert")
        assert await kinds(node) == [("circuit_open", task.id, "need")]
        (alert,) = await node.client.alerts(ended=False)
        assert f"only step charge of task {task.id} fails" in alert.text
        other = await node.client.submit(buy, "o-2")

        async def of_the_agent() -> bool:
            return await kinds(node) == [("circuit_open", "", "doubt")]

        await until(of_the_agent, "the alert to be about the agent")
        (alert,) = await node.client.alerts(ended=False)
        *_, steps = alert.text.partition("; only these steps fail: ")
        assert sorted(steps.split(", ")) == sorted(f"charge of task {one.id}" for one in (task, other))
        bank.down = False
        await asyncio.gather(task.result(timeout="60s"), other.result(timeout="60s"))


async def test_an_outage_names_tasks_that_rest_between_two_attempts(world: World) -> None:
    """Whatever moment the Supervisor looks at: they need not wait in the store just then."""
    bank = Bank(down=True)
    app, buy = probed_shop(bank, mg.Breaker(failures=1, reset="20ms"), probe=False)
    async with processes(app, world, 1, replace(BRISK, outage_after="0s")) as node:
        await node.client.submit(buy, "o-1")

        async def named() -> bool:
            return "outage" in [kind for kind, *_ in await kinds(node)]

        await until(named, "the alert that names it")
        bank.down = False
