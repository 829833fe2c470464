"""The Scheduler: commits and statements of whole tasks counted at the driver, order, take-over, lost decisions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

import makegood as mg
from makegood import saga
from makegood.client.client import Client
from makegood.node.node import Node
from makegood.scheduler import task_table
from makegood.scheduler.wakeups import Wakeups
from makegood.store.protocol import Store
from makegood.store.records import NO_LIMIT, Batch, Committed, Loaded, TaskMessages
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import chain_app
from tests.conformance.worlds import Counts, World, eventually


@pytest.mark.parametrize("length", [1, 3, 10])
async def test_a_task_of_n_sequential_steps_costs_n_plus_one_commits_its_submission_included(
    counting_store: Store, counts: Counts, length: int
) -> None:
    app, chain = chain_app(length)
    async with Node(app, counting_store, roles=("scheduler", "agent"), options=QUIET) as node:
        for _ in range(3):  # all connections are made
            warm = await asyncio.gather(*(node.client.submit(chain, f"warm {n}") for n in range(50)))
            await asyncio.gather(*(task.result(timeout="60s") for task in warm))
        await counts.reset()
        task = await node.client.submit(chain, "one")
        assert await task.result(timeout="60s") == "one"
        assert await counts.commits() == 1 + length, (
            "the submission with the first step's dispatch, and one commit for each step done"
        )
        most = 12 + 9 * length if counts.shares else 1 + length
        assert counts.statements <= most, (
            "SQLite's are calls of functions; PostgreSQL's are round trips: one a commit"
        )


async def test_500_tasks_at_once_share_their_commits(counting_store: Store, counts: Counts) -> None:
    app, chain = chain_app(3)
    async with Node(app, counting_store, roles=("scheduler", "agent"), options=QUIET) as node:
        warm = await node.client.submit(chain, "warm")
        await warm.result(timeout="60s")
        await counts.reset()
        tasks = await asyncio.gather(*(node.client.submit(chain, f"order-{n}") for n in range(500)))
        results = await asyncio.gather(*(task.result(timeout="60s") for task in tasks))
        assert sorted(results) == sorted(f"order-{n}" for n in range(500))
        commits = await counts.commits()
        assert commits <= 40, "1500 steps, each of which would cost a commit alone"
        assert counts.statements <= 40 * commits


async def test_commits_abreast_share_no_task_and_lose_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While some are written the tasks that are not in them are decided; no fifth is begun, and a claim waits."""
    app, chain = chain_app(5)
    store.parallel_from = 4
    writing: list[set[int]] = []
    most, commit = 0, store.tasks.commit

    async def watched(batch: Batch) -> Committed:
        nonlocal most
        mine = {decision.task.id for decision in batch.decisions}
        assert not any(mine & other for other in writing), "a task is in two commits"
        assert not (writing and batch.claim), "a claim does not find what is just being changed"
        writing.append(mine)
        most = max(most, len(writing))
        try:
            return await commit(batch)
        finally:
            writing.remove(mine)

    monkeypatch.setattr(store.tasks, "commit", watched)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        tasks = await asyncio.gather(*(node.client.submit(chain, f"order-{n}") for n in range(60)))
        results = await asyncio.gather(*(task.result(timeout="60s") for task in tasks))
        assert sorted(results) == sorted(f"order-{n}" for n in range(60))
    assert 2 <= most <= 4


async def test_what_agents_elsewhere_answer_is_read_while_commits_are_under_way(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being committed is still in the inbox then: it is neither taken twice, nor is its task read again when it has ended."""
    app, chain = chain_app(4)
    store.parallel_from = 2
    loads = 0
    gate, read = asyncio.Event(), asyncio.Event()
    commit, inbox, load = store.tasks.commit, store.tasks.inbox, store.tasks.load

    async def committing(batch: Batch) -> Committed:
        if len(batch.decisions) >= 2 and batch.claim is None and not gate.is_set():
            gate.set()  # this one lasts until the inbox was read
            async with asyncio.timeout(60):
                await read.wait()
        return await commit(batch)

    async def reading(node: int, limit: int, room: int, *, at_rest: bool) -> TaskMessages:
        messages = await inbox(node, limit, room, at_rest=at_rest)
        if gate.is_set():
            read.set()
        return messages

    async def loading(node: int, tasks: Sequence[int]) -> list[Loaded]:
        nonlocal loads
        loads += 1
        return await load(node, tasks)

    monkeypatch.setattr(store.tasks, "commit", committing)
    monkeypatch.setattr(store.tasks, "inbox", reading)
    monkeypatch.setattr(store.tasks, "load", loading)
    async with (
        Node(app, store, roles=("scheduler",), options=QUIET) as node,
        Node(app, other, roles=("agent",), options=QUIET),
    ):
        tasks = await asyncio.gather(*(node.client.submit(chain, f"order-{n}") for n in range(60)))
        results = await asyncio.gather(*(task.result(timeout="60s") for task in tasks))
        assert sorted(results) == sorted(f"order-{n}" for n in range(60))
        for task in tasks:
            notes = [event.note async for event in task.events(follow=False)]
            assert not any(notes), "nothing came too late, or twice"
    assert read.is_set()
    assert loads == 0


async def test_the_inbox_is_read_once_turns_have_ended_that_left_no_room_for_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four had just ended when the ring came; nothing was taken, and without a poll the Scheduler slept on it for ever."""
    inbox = store.tasks.inbox

    async def reading(node: int, limit: int, room: int, *, at_rest: bool) -> TaskMessages:
        read.set()
        return await inbox(node, limit, room, at_rest=at_rest)

    async def turn() -> None:
        """Have nothing to do."""

    idle, read = asyncio.Event(), asyncio.Event()
    rest = Wakeups.rest

    async def resting(wakeups: Wakeups, due: float | None) -> None:
        idle.set()
        await rest(wakeups, due)

    monkeypatch.setattr(Wakeups, "rest", resting)
    async with Node(None, store, roles=("scheduler",), options=QUIET) as node:
        scheduler = node._scheduler
        assert scheduler is not None
        async with asyncio.timeout(60):
            await idle.wait()
        monkeypatch.setattr(store.tasks, "inbox", reading)
        for _ in range(4):
            end = asyncio.create_task(turn())
            await end
            scheduler.turns.under_way[end] = {}
        scheduler.wakeups.wake_for_inbox()
        async with asyncio.timeout(60):
            await read.wait()


async def test_a_node_that_stops_gives_its_tasks_back_and_another_goes_on(store: Store, other: Store) -> None:
    app = mg.App("shop")
    desk = app.agent("desk")
    start, go = asyncio.Event(), asyncio.Event()

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def slow(order: str) -> str:
        start.set()
        await go.wait()
        return order

    @app.workflow()
    def flow(order: str) -> str:
        return slow(slow(order))

    first = Node(app, store, roles=("scheduler",), options=QUIET)
    async with Node(app, other, roles=("agent",), options=QUIET) as agents:
        async with first:
            task = await agents.client.submit(flow, "x")
            await start.wait()
        waiting = (await task.status()).task
        assert (waiting.state, waiting.locked_by) == ("pending", None)
        async with Node(None, store, roles=("scheduler",), options=QUIET):
            go.set()
            assert await task.result(timeout="60s") == "x"
            assert (await task.status()).task.epoch == 2


async def test_priority_decides_what_is_claimed_first(store: Store) -> None:
    app, order = mg.App("shop"), []
    desk = app.agent("desk", concurrency=1)

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def note(number: int) -> None:
        order.append(number)

    @app.workflow()
    def flow(number: int) -> None:
        note(number)

    async with mg.Client(store) as client:
        tasks = [await client.submit(flow, p, priority=p) for p in (0, 5, 9, 5)]
        async with Node(app, store, roles=("scheduler", "agent"), options=QUIET):
            for task in tasks:
                await task.wait("60s")
    assert order == [9, 5, 5, 0]


async def test_a_task_that_the_rules_cannot_decide_goes_to_error_with_an_alert_and_others_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:

    app, chain = chain_app(1)
    decide = saga.decide

    def broken(memory, *rest):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002 - stands in for the rules
        if memory.task.key == "bad":
            raise RuntimeError("a defect")
        return decide(memory, *rest)

    monkeypatch.setattr(saga, "decide", broken)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        bad = await node.client.submit(chain, "a", key="bad")
        good = await node.client.submit(chain, "b", key="good")
        assert await good.result(timeout="60s") == "b"
        assert (await bad.wait("60s")).state == "error"
        kinds = [alert.kind for alert in await store.alerts.views(task=bad.number)]
        assert "unreadable" in kinds


async def test_a_drain_waits_for_the_claim_that_is_being_written(store: Store) -> None:
    """What the claim brings must be given back too: the process that stops knows of it only when the commit is answered."""
    _, chain = chain_app(1)
    writing, go = asyncio.Event(), asyncio.Event()
    node = Node(None, store, roles=("scheduler",), options=QUIET)
    commit = store.tasks.commit

    async def slow(batch: Batch) -> Committed:
        outcome = await commit(batch)
        if outcome.claims:
            writing.set()
            await go.wait()
        return outcome

    store.tasks.commit = slow  # type: ignore[method-assign]  # it is written, and the answer is under way
    async with Client(store) as client:
        await node.start()
        task = await client.submit(chain, "x")
        await writing.wait()
        stopping = asyncio.create_task(node.stop())
        await asyncio.sleep(0)
        go.set()
        await stopping
        view = (await task.status()).task
        assert (view.state, view.locked_by) == ("pending", None)


async def test_what_was_claimed_under_an_old_number_is_not_held_under_the_new_one(store: Store) -> None:
    """Declared dead while its claim is being written, a Scheduler must not keep in memory what is given to others; or it would hear
    nothing of it, and never claim again once it has ``hold`` of them.
    """
    _, chain = chain_app(1)
    writing, go, again = asyncio.Event(), asyncio.Event(), asyncio.Event()
    node = Node(None, store, roles=("scheduler",), options=replace(QUIET, max_tasks=1, heartbeat="10ms"))
    commit = store.tasks.commit

    async def slow(batch: Batch) -> Committed:
        outcome = await commit(batch)
        if outcome.claims and not writing.is_set():
            writing.set()
            await go.wait()
        elif outcome.claims:
            again.set()
        return outcome

    store.tasks.commit = slow  # type: ignore[method-assign]  # it is written, and the answer is under way
    async with Client(store) as client:
        await node.start()
        await client.submit(chain, "x")
        await writing.wait()
        first = node.number
        await store.nodes.unregister(first)
        await eventually(lambda: node.number != first, "another number")
        await client.submit(chain, "y")
        go.set()
        async with asyncio.timeout(60):
            await again.wait()
        await node.stop()


async def test_a_scheduler_lets_go_of_what_was_freed_while_it_heard_nothing(
    store: Store, other: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for deaf, it is told by nobody: of a task that waits to be claimed no message comes and no commit is made. Once it
    held ``hold`` of them it never claimed again.
    """
    monkeypatch.setattr(task_table, "_REVIEW_EVERY", 0.2)
    app = mg.App("shop")
    desk = app.agent("desk")
    calls = 0

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    async def hangs_once(order: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            await asyncio.Event().wait()
        return order

    @app.workflow()
    def flow(order: str) -> str:
        return hangs_once(order)

    hear, read, hears = store.tasks.inbox, store.tasks.load, asyncio.Event()

    async def nothing(node: int, limit: int, room: int = NO_LIMIT, *, at_rest: bool = True) -> TaskMessages:
        return await hear(node, limit, room, at_rest=at_rest) if hears.is_set() else TaskMessages({}, [])

    async def late(node: int, tasks: Sequence[int]) -> list[Loaded]:
        await hears.wait()
        return await read(node, tasks)

    store.tasks.inbox, store.tasks.load = nothing, late  # type: ignore[method-assign]  # its process is slow
    watching = replace(QUIET, poll_every=0.05, supervise_every=0.5, late_after=0.01)
    async with (
        Node(None, store, roles=("scheduler",), options=replace(QUIET, poll_every=0.05, max_tasks=1)),
        Node(app, other, roles=("agent", "supervisor"), options=watching) as rest,
    ):
        first = await rest.client.submit(flow, "x")

        async def freed() -> bool:
            return calls > 0 and (await first.status()).task.locked_by is None

        await passes(world, freed, 1.0)
        hears.set()
        second = await rest.client.submit(flow, "y")

        async def ended() -> bool:
            return {(await task.status()).task.state for task in (first, second)} == {"processed"}

        await passes(world, ended)


async def passes(world: World, over: Callable[[], Awaitable[bool]], faster: float = 0.1) -> None:
    """Let time pass until ``over``, for which there is no event: each 50 ms ``faster`` more seconds than there were."""
    async with asyncio.timeout(90):
        while not await over():
            tick = asyncio.Event()
            asyncio.get_running_loop().call_later(0.05, tick.set)
            await tick.wait()
            await world.elapse(faster)
