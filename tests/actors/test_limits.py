"""Limits of an agent: its circuit breaker, its slots, its rate; on real stores, through a whole node."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

import makegood as mg
from makegood.agent.slots import Slots
from makegood.client.handle import TaskHandle
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.records import Offer, Taken
from makegood.store.sqlite import SQLiteStore
from tests.actors.conftest import QUIET
from tests.conformance.worlds import SQLiteWorld, World, eventually
from tests.waiting import until

ONE_TRY = mg.Retry(tries=1)
PATIENT = mg.Recover(threshold=50, wait="1ms", extended="1ms")


class Bank:
    """A service that is up or down. ``calls``: begun; ``most``: at once; ``go``: what calls wait for."""

    def __init__(self, *, down: bool = False) -> None:
        self.down = down
        self.calls = self.running = self.most = 0
        self.go = asyncio.Event()
        self.go.set()

    async def call(self) -> None:
        """Be called."""
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
            await asyncio.sleep(0)
            if self.down:
                raise ConnectionError("down")
        finally:
            self.running -= 1


def shop(bank: Bank, **agent: Any) -> tuple[mg.App, Any]:
    """Return an app with one action that calls the bank, and its workflow."""
    app = mg.App("shop")
    payments = app.agent("payments", **agent)

    @payments.action(complete_within="20s", retry=ONE_TRY, recover=PATIENT, undo=mg.NOTHING)
    async def charge(order: str) -> str:
        await bank.call()
        return order

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    return app, buy


ROLES = {"together": ("scheduler", "agent"), "apart": ("agent",)}


@asynccontextmanager
async def nodes(app: mg.App, store: Store, other: Store, roles: str) -> AsyncIterator[tuple[Node, Node]]:
    """Run the agents, beside the Scheduler or through the store alone; yields their node, and one with a client."""
    async with Node(app, store, roles=ROLES[roles], options=QUIET) as agents:
        if roles == "together":
            yield agents, agents
        else:
            async with Node(None, other, roles=("scheduler",), options=QUIET) as scheduler:
                yield agents, scheduler


async def submit(node: Node, workflow: Any, count: int) -> list[TaskHandle[Any]]:
    """Submit so many tasks."""
    return list(await asyncio.gather(*(node.client.submit(workflow, str(n)) for n in range(count))))


async def alerted(store: Store) -> bool:
    """Whether an alert stands."""
    return bool(await store.alerts.views(ended=False))


async def handed_back(world: World, rows: str) -> bool:
    """Whether no request is taken, and no time runs for one."""
    return {tuple(row) for row in await world.rows(rows)} <= {(None, None)}


async def quiet(store: Store) -> bool:
    """Whether none does."""
    return not await alerted(store)


async def results(tasks: list[TaskHandle[Any]]) -> None:
    """Wait for all of them."""
    await asyncio.gather(*(task.result(timeout="2m") for task in tasks))


def slots_of(node: Node) -> Slots:
    """Return the slots of the payments agent."""
    assert node._agents is not None
    return node._agents.slots["shop/payments"]


def state_of(node: Node) -> str:
    """Return what the payments agent's circuit is."""
    circuit = slots_of(node).circuit
    assert circuit is not None
    return circuit.state


@pytest.mark.parametrize("roles", ROLES)
async def test_an_open_circuit_lets_nothing_begin_and_everything_is_done_when_the_service_is_back(
    store: Store, other: Store, roles: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of forty tasks at a service that is down, only as many call as may be on their way, then canaries, one at a time."""
    bank = Bank(down=True)
    app, buy = shop(bank, concurrency=4, breaker=mg.Breaker(failures=5, reset="60ms"))
    states, call = list[str](), bank.call
    async with nodes(app, store, other, roles) as (agents, node):

        async def noted() -> None:
            states.append(state_of(agents))
            await call()

        monkeypatch.setattr(bank, "call", noted)
        with caplog.at_level(logging.WARNING, "makegood.agent"):
            tasks = await submit(node, buy, 40)
            await eventually(lambda: state_of(agents) == "open", "the circuit to open")
            until_open = bank.calls
            assert 5 <= states.count("closed") <= 5 + 4
            bank.most = 0
            await eventually(lambda: bank.calls >= until_open + 4, "canaries")
            assert bank.most == 1
            bank.down = False
            await results(tasks)
    assert bank.most <= 4
    assert sum("the circuit of shop/payments is open" in line for line in caplog.messages) == 1
    assert sum("the circuit of shop/payments is closed" in line for line in caplog.messages) == 1


async def moved_on(task: TaskHandle[Any]) -> bool:
    """Whether the first attempt of a task's only step has come to its end."""
    (step,) = (await task.status()).steps
    return step.state != "running" or step.attempt > 1


@pytest.mark.parametrize("roles", ROLES)
async def test_failures_under_way_when_it_opened_are_no_failures_of_their_steps(
    store: Store, other: Store, roles: str
) -> None:
    """Six calls are in flight; two failures open the circuit; the four that fail after that count for nobody."""
    bank = Bank(down=True)
    bank.go.clear()
    app, buy = shop(bank, concurrency=6, breaker=mg.Breaker(failures=2, reset="1h"))
    async with nodes(app, store, other, roles) as (agents, node):
        tasks = await submit(node, buy, 6)
        await eventually(lambda: bank.running == 6, "six calls")
        bank.go.set()
        await eventually(lambda: slots_of(agents).free == 6 and state_of(agents) == "open", "all to end")
        failure_counts: list[int] = []
        for task in tasks:
            await until(partial(moved_on, task))
            detail = await task.status()
            failure_counts.append(detail.task.failure_count)
            assert detail.steps[0].failures == detail.task.failure_count
    assert sorted(failure_counts) == [0, 0, 0, 0, 1, 1]


async def test_silence_while_it_is_open_is_excused(store: Store, other: Store) -> None:
    """Three calls hang past their complete-by: the first opens the circuit, and the others' rows say that they do not count."""
    app = mg.App("shop")
    payments = app.agent("payments", concurrency=3, breaker=mg.Breaker(failures=1, reset="1h"))
    never = asyncio.Event()

    @payments.action(complete_within="2s", retry=ONE_TRY, recover=PATIENT, undo=mg.NOTHING)
    async def quick(order: str) -> None:
        await never.wait()

    @payments.action(complete_within="1h", retry=ONE_TRY, recover=PATIENT, undo=mg.NOTHING)
    async def slow(order: str) -> None:
        await never.wait()

    @app.workflow()
    def first(order: str) -> None:
        quick(order)

    @app.workflow()
    def second(order: str) -> None:
        slow(order)

    excuses: list[Any] = []
    async with nodes(app, store, other, "together") as (agents, node):
        true = store.requests.excuse

        async def excuse(number: int, requests: Any) -> None:
            await true(number, requests)
            excuses.extend(requests)

        store.requests.excuse = excuse  # type: ignore[method-assign, assignment]
        tasks = [await node.client.submit(second, "a"), await node.client.submit(second, "b")]
        await node.client.submit(first, "c")
        await eventually(lambda: bool(excuses), "the store to be told", 60.0)
        assert state_of(agents) == "open"
        never.set()
        await results(tasks)
    assert len(excuses) == 2


async def test_what_is_handed_back_to_the_store_by_an_open_circuit_burns_no_time(
    store: Store, other: Store, world: World
) -> None:
    """Requests that wait while it is open have no complete-by; an attempt is counted with the taking."""
    bank = Bank(down=True)
    app, buy = shop(bank, concurrency=2, breaker=mg.Breaker(failures=1, reset="1h"))
    async with nodes(app, store, other, "together") as (agents, node):
        await submit(node, buy, 10)
        await eventually(
            lambda: slots_of(agents).free == 2 and state_of(agents) == "open", "the circuit to open"
        )
        await eventually(lambda: bank.calls <= 2, "no more calls")
        rows = "select complete_by, taken_by from {request} where kind <> 'timer'"
        await until(partial(handed_back, world, rows))
        assert len(await world.rows(rows)) >= 8
        assert slots_of(agents).lendable == 0


async def test_an_answer_is_an_answer_whatever_it_says(store: Store, other: Store) -> None:
    """Permanent, Refused and Later never open the circuit."""
    app = mg.App("shop")
    payments = app.agent("payments", breaker=mg.Breaker(failures=1, reset="1h"))
    verdicts = [mg.Later("1ms"), mg.Later("1ms"), mg.Permanent("no"), mg.Refused("nothing stands")]

    @payments.action(complete_within="20s", undo=mg.NOTHING)
    async def charge(order: str) -> None:
        raise verdicts.pop(0)

    @app.workflow()
    def buy(order: str) -> None:
        charge(order)

    async with nodes(app, store, other, "together") as (agents, node):
        for order in ("a", "b"):
            with pytest.raises(mg.TaskUndone):
                await (await node.client.submit(buy, order)).result(timeout="60s")
        assert state_of(agents) == "closed"
    assert verdicts == []


async def test_one_alert_stands_while_a_circuit_is_open_and_ends_with_it(store: Store, other: Store) -> None:
    bank = Bank(down=True)
    app, buy = shop(bank, concurrency=2, breaker=mg.Breaker(failures=2, reset="50ms"))
    async with nodes(app, store, other, "together") as (agents, node):
        tasks = await submit(node, buy, 5)
        await until(partial(alerted, store))
        open_ = await store.alerts.views(ended=False)
        assert [(alert.kind, alert.task, alert.step) for alert in open_] == [
            ("circuit_open", None, "shop/payments")
        ]
        (view,) = await store.nodes.views()
        assert view.info.agents[0].circuit in ("open", "half-open")  # published before the alert
        bank.down = False
        await results(tasks)
        await eventually(lambda: state_of(agents) == "closed" or bank.calls > 1000, "it to close")
        await until(partial(quiet, store))
        assert [alert.kind for alert in await store.alerts.views()] == ["circuit_open"]


async def test_the_supervisor_ends_the_alert_of_a_process_that_died_and_raises_none_for_what_waits(
    store: Store, other: Store, world: World
) -> None:
    bank = Bank(down=True)
    app, buy = shop(bank, concurrency=2, breaker=mg.Breaker(failures=1, reset="1h"))
    supervising = Options(
        heartbeat="1h",
        dead_after="3h",
        poll_every=None,
        drain="0s",
        supervise_every="500ms",
        starved_after="1s",
    )

    async def all_noticed() -> bool:
        return not await world.rows("select 1 from {request} where kind <> 'timer' and not starved")

    async def all_wait() -> bool:
        """Whether those that were under way when it opened wait again too: what is sent only after the minute is young."""
        waiting = "select 1 from {request} where kind <> 'timer' and taken_by is null"
        return len(await world.rows(waiting)) == 4

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        await submit(node, buy, 4)
        await until(partial(alerted, store))
        await eventually(lambda: slots_of(node).free == 2, "nothing to be in flight")
        await until(all_wait)
        await world.elapse(60)
        async with Node(None, other, roles=("supervisor",), options=supervising):
            await until(all_noticed)
            assert [alert.kind for alert in await store.alerts.views()] == ["circuit_open"]
            await store.nodes.unregister(node.number)
            await until(partial(quiet, store))


async def test_plain_functions_in_threads_never_run_more_than_the_slots_of_their_agent(
    store: Store, other: Store
) -> None:
    app, lock = mg.App("shop"), threading.Lock()
    running, most, idents = [0, 0], [0, 0], set[int]()
    full = threading.Event(), threading.Event()
    two, three = app.agent("two", concurrency=2), app.agent("three", concurrency=3)

    def work(n: int) -> None:
        with lock:
            running[n] += 1
            most[n] = max(most[n], running[n])
            idents.add(threading.get_ident())
            if most[n] == 2 + n:
                full[n].set()
        full[n].wait(20)  # until all slots are in use at once, however slow the machine is
        threading.Event().wait(0.002)
        with lock:
            running[n] -= 1

    @two.action(complete_within="1m", undo=mg.NOTHING)
    def left(order: str) -> None:
        work(0)

    @three.action(complete_within="1m", undo=mg.NOTHING)
    def right(order: str) -> None:
        work(1)

    @app.workflow()
    def both(order: str) -> None:
        mg.parallel(left(order), right(order))

    async with nodes(app, store, other, "apart") as (_, node):
        await results(await submit(node, both, 40))
    assert most == [2, 3]
    assert len(idents) <= 5


@pytest.mark.parametrize("roles", ROLES)
async def test_an_agent_with_a_rate_takes_everything_from_the_store_which_keeps_it(
    world: World, roles: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty calls at a hundred a second take the time that they should, beside a Scheduler too, with no poll to help."""
    bank = Bank()
    app, buy = shop(bank, concurrency=30, rate="100/s")
    loop, delays = asyncio.get_running_loop(), list[float]()
    async with ticking(world) as store, ticking(world) as other, nodes(app, store, other, roles) as (_, node):
        take = store.requests.take

        async def taking(number: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
            requests = await take(number, offers, alone=alone)
            delays.extend(request.delay for request in requests)
            return requests

        monkeypatch.setattr(store.requests, "take", taking)
        began = loop.time()
        await results(await submit(node, buy, 60))
        took = loop.time() - began
    assert bank.calls == 60
    assert took >= 0.55
    assert len(delays) >= 60
    assert max(delays) <= 0.6, "nobody waits for longer than all sixty take, however slow the machine is"


@asynccontextmanager
async def ticking(world: World) -> AsyncIterator[Store]:
    """Open a store whose clock moves by itself."""
    store = SQLiteStore(world.path, poll=None) if isinstance(world, SQLiteWorld) else world.store()
    await store.open(migrate=True)
    yield store
    await store.close()


async def test_what_the_command_line_shows_is_in_the_heartbeat(store: Store, other: Store) -> None:
    bank = Bank()
    app, buy = shop(bank, concurrency=7, rate="1000/s", breaker=mg.Breaker())
    async with nodes(app, store, other, "together") as (agents, node):
        await results(await submit(node, buy, 3))
        assert agents._agents is not None
        (info,) = agents._agents.infos()
    assert (info.agent, info.slots, info.used, info.calls, info.failed) == ("shop/payments", 7, 0, 3, 0)
    assert (info.success, info.circuit, info.reset, info.most, info.rate) == (1.0, "closed", 0.0, 7, 1000.0)


def test_an_agents_limits_are_checked_where_they_are_written() -> None:
    app = mg.App("shop")
    with pytest.raises(mg.ConfigError, match="agent payments: rate='often'"):
        app.agent("payments", rate="often")
    with pytest.raises(mg.DefinitionError, match=r"mg\.Breaker"):
        app.agent("payments", breaker=5)  # type: ignore[arg-type]
