"""A row that does not read is put aside where it is read: neither its Scheduler nor anybody else's work ends of it."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
import pytest

import makegood as mg
from makegood.base.stored_values import UNKNOWN
from makegood.node.node import Node
from makegood.options import Options
from makegood.payload.codec import NESTING_LIMIT
from makegood.store.protocol import Store
from makegood.store.records import Batch, Committed, Loaded
from tests.conformance.builders import draft, hand, running
from tests.conformance.test_lanes import claim, end, laned, submit
from tests.conformance.worlds import World
from tests.waiting import until

QUIET = Options(
    heartbeat="1h", dead_after="3h", poll_every="100ms", drain="1s", alerts_every=None, leaderless_after=None
)
# Deeper than any Python reads: from 3.12 on, C code has a limit of its own, beyond 5,000 levels
DEEP = b"[" * 500_000 + b"]" * 500_000
BROKEN = (
    b"\xff\xfe",
    b"",
    b"null",
    b"[]",
    b'{"kind":"of a newer version"}',
    b'{"kind":"done","idx":0,"x":' + DEEP + b"}",
)


def app_of(length: int, gate: asyncio.Event | None = None) -> tuple[mg.App, Any]:
    app = mg.App("bench")
    desk = app.agent("desk", concurrency=100)

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def step(order: Any) -> Any:
        if gate is not None:
            await gate.wait()
        return order

    @app.workflow()
    def chain(order: Any) -> Any:
        for _ in range(length):
            order = step(order)
        return order

    return app, chain


async def write(world: World, sql: str, *values: Any) -> None:
    async with world.raw() as raw:
        await raw.run(sql, *values)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


# -- doors ---------------------------------------------------------------------------------------------------------------


async def test_an_input_nested_too_deeply_is_refused_and_one_at_the_limit_is_carried_through(
    store: Store,
) -> None:
    app, chain = app_of(2)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        for value in (nested(NESTING_LIMIT + 1), msgspec.Raw(DEEP), {"part": msgspec.Raw(DEEP)}):
            with pytest.raises(mg.PayloadError, match=f"nested too deeply.*limit is {NESTING_LIMIT}"):
                await node.client.submit(chain, value)
        task = await node.client.submit(chain, nested(NESTING_LIMIT))
        assert await task.result(timeout="60s") == nested(NESTING_LIMIT)
        with pytest.raises(mg.PayloadError, match="nested too deeply"):
            await node.client.send("orders", nested(NESTING_LIMIT + 1))


async def test_a_result_nested_too_deeply_cannot_be_kept_and_its_step_is_in_doubt(store: Store) -> None:
    app = mg.App("bench")
    desk = app.agent("desk")
    undos: list[object] = []

    @desk.action(complete_within="1m")
    async def deepen(order: str) -> Any:
        return nested(NESTING_LIMIT + 1)

    @deepen.undo
    async def flatten(order: str, *, result: Any) -> None:
        undos.append(result)

    @app.workflow()
    def flow(order: str) -> Any:
        return deepen(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(flow, "o")
        with pytest.raises(mg.TaskUndone, match="nested too deeply"):
            await task.result(timeout="60s")
        assert undos == [None]


async def test_an_argument_is_limited_once_it_is_filled_in_before_it_is_put_together(store: Store) -> None:
    app = mg.App("bench", payload_limit=10_000)
    desk = app.agent("desk")

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def one(order: Any) -> Any:
        return order

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def use(order: Any) -> str:
        return f"{len(order)}"

    @app.workflow()
    def spread(order: Any, times: int) -> Any:
        return use([one(order)] * times)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        for times in (2, 200):
            with pytest.raises(mg.TaskUndone, match=r"limit is 1.?0?,000|limit is 160,000"):
                await (await node.client.submit(spread, "x" * 9000, times)).result(timeout="60s")
        assert await (await node.client.submit(spread, "x" * 40, 200)).result(timeout="60s") == "200"


# -- rows ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", BROKEN)
async def test_a_message_that_does_not_read_puts_its_task_to_error_and_the_others_go_on(
    store: Store, world: World, body: bytes
) -> None:
    """PostgreSQL's Scheduler ended of it."""
    scheduler = await running(store, 11, 12)
    await write(world, "insert into {inbox} (task, kind, at, body) values (11, 'done', 0, ?)", body)
    await write(
        world, "insert into {inbox} (task, kind, at, body) values (12, 'cancel', 0, ?)", b'{"kind":"cancel"}'
    )
    inbox = await store.tasks.inbox(scheduler.node, 100)
    assert [m.kind for m in inbox.messages[12]] == ["cancel"]
    assert 11 not in inbox.messages
    assert [(a.kind, a.task) for a in await store.alerts.views()] == [("unreadable", 11)]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("update {task} set static = ? where id = 1", b'{"inputs":[' + DEEP + b'],"returns":[["1"],[]]}'),
        (
            "update {task} set static = ? where id = 1",
            b'{"inputs":[],"returns":[["1"],[]],"reply":["gopher://x"]}',
        ),
        ("update {step} set spec = ? where task = 1 and idx = 0", DEEP),
        ("update {step} set spec = ? where task = 1 and idx = 0", b'{"idx":7,"name":"other"}'),
        ("update {step} set state = ? where task = 1 and idx = 0", "of a newer version"),
        ("update {task} set goal = ? where id = 1", "of a newer version"),
        ("delete from {step} where task = 1 and idx < ?", 1),
        ("update {task} set epoch = ? where id = 1", (1 << 63) - 1),
        ("update {task} set notified = ? where id = 1", (1 << 31) - 1),
    ],
)
async def test_a_task_whose_rows_do_not_read_goes_to_error_and_others_are_processed(
    store: Store, world: World, sql: str, value: Any
) -> None:
    app, chain = app_of(2)
    async with mg.Client(store) as client:
        first = await client.submit(chain, "x", reply_to="queue:told")
        number = first.number
    await write(
        world, sql.replace("= 1 and idx", f"= {number} and idx").replace("id = 1", f"id = {number}"), value
    )
    async with Node(app, store, roles=("scheduler", "agent", "supervisor"), options=QUIET) as node:
        tasks = [await node.client.submit(chain, n) for n in range(3)]
        assert [await task.result(timeout="60s") for task in tasks] == [0, 1, 2]
        await until(partial(_at_rest, store, number), "the broken task to be at rest")
        assert node.dead() == ""


@pytest.mark.parametrize("number", ["5", "1.5", "5000"])
async def test_a_number_where_sqlite_should_have_a_value_is_put_aside(
    store: Store, world: World, number: str
) -> None:
    """Its length was asked for: after the commit of a claim, and before any message of other tasks was read."""
    if world.dialect != "sqlite":
        return  # PostgreSQL refuses it
    app, chain = app_of(1)
    async with mg.Client(store) as client:
        tasks = [(await client.submit(chain, n)).number for n in range(4)]
    await write(world, f"update {{task}} set result = {number} where id = {tasks[0]}")
    await write(world, f"update {{step}} set late = {number} where task = {tasks[1]}")
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        assert node._scheduler is not None
        defects: list[Exception] = []
        node._scheduler.turns.listeners.defect = defects.append
        for task in tasks:
            await until(partial(_at_rest, store, task), "each task to be at rest")
        assert defects == []
        states = [
            detail.task.state for task in tasks if (detail := await store.tasks.detail(task)) is not None
        ]
        assert states == ["error", "error", "processed", "processed"]
    scheduler = await running(store, 11, 12)
    await write(world, f"insert into {{inbox}} (task, kind, at, body) values (11, 'done', 0, {number})")
    await write(
        world, "insert into {inbox} (task, kind, at, body) values (12, 'cancel', 0, ?)", b'{"kind":"cancel"}'
    )
    inbox = await store.tasks.inbox(scheduler.node, 100)
    assert [m.kind for m in inbox.messages[12]] == ["cancel"]
    assert 11 not in inbox.messages


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
@pytest.mark.parametrize("column", ["app", "name", "seq", "at_once", "when_taken"])
@pytest.mark.parametrize("value", ["x", b"\xff", 1.5, -1, 10**18])
async def test_a_place_in_a_lane_that_makes_no_sense_ends_no_claim_and_no_end(
    store: Store, world: World, column: str, value: object
) -> None:
    """Some tasks are looked at with such a place, and some have one while they wait."""
    for task, lane in enumerate(["ada"] * 5 + ["bob"] * 5, 1):
        await submit(store, laned(task, lane, at_once=2 if task % 2 else 1))
    scheduler = await hand(store)
    await write(world, f"update {{lane}} set {column} = ? where task = 3", value)
    assert 1 in await claim(scheduler)
    await write(world, f"update {{lane}} set {column} = ? where task in (4, 7)", value)
    await submit(store, laned(11, "cid"))
    assert 11 in (claims := await claim(scheduler))
    await end(scheduler, *scheduler.tasks)
    while claims := await claim(scheduler):
        await end(scheduler, *claims)


async def _at_rest(store: Store, task: int) -> bool:
    detail = await store.tasks.detail(task)
    return detail is not None and detail.task.state in ("error", "processed", "undone")


# -- the last resort -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["commit", "load"])
async def test_an_exception_that_comes_again_with_a_task_counts_against_that_task(
    store: Store, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Whatever it is: the task is found among many, put to error with an alert, and the others are processed."""
    gate = asyncio.Event()
    app, chain = app_of(3, gate)
    rejections: list[int] = []

    async def commit(
        batch: Batch, inner: Callable[[Batch], Awaitable[Committed]] = store.tasks.commit
    ) -> Committed:
        if any(d.task.id in rejections for d in batch.decisions):
            raise ZeroDivisionError("a defect that nobody thought of")
        return await inner(batch)

    async def load(node: int, tasks: list[int], inner: Any = store.tasks.load) -> list[Loaded]:
        if set(tasks) & set(rejections):
            raise ZeroDivisionError("a defect that nobody thought of")
        snapshots: list[Loaded] = await inner(node, tasks)
        return snapshots

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        assert node._scheduler is not None
        monkeypatch.setattr(store.tasks, "commit", commit)
        monkeypatch.setattr(store.tasks, "load", load)
        tasks = [await node.client.submit(chain, n) for n in range(20)]
        rejections.append(tasks[7].number)
        if where == "load":
            node._scheduler.tasks.mistrust(task.number for task in tasks)
        gate.set()
        for n, task in enumerate(tasks):
            if n != 7:
                assert await task.result(timeout="60s") == n
        with pytest.raises(mg.TaskInError, match="a defect that nobody thought of"):
            await tasks[7].result(timeout="60s")
        assert [(a.kind, a.task) for a in await store.alerts.views()] == [("unreadable", rejections[0])]
        assert node.dead() == ""


async def test_tasks_whose_rows_do_not_fit_together_are_put_to_error_when_they_are_read_again(
    store: Store, world: World
) -> None:
    """However many. From the fourth on the Scheduler forgot them, those read with them and the replies to these."""
    gate = asyncio.Event()
    app, chain = app_of(2, gate)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        assert node._scheduler is not None
        tasks = [await node.client.submit(chain, n) for n in range(7)]
        for task in tasks[:6]:
            sql = """insert into {request} (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, within,
                complete_by, answered) values (?, 77, 0, 'timer', '', '', 0, ?, ?, 0, 0, 0, ?)"""
            await write(world, sql, task.number, False, False, False)  # a timer of a step that is not there
        node._scheduler.tasks.mistrust(task.number for task in tasks)
        for task in tasks[:6]:
            await until(partial(_at_rest, store, task.number), "each broken task to be at rest")
        gate.set()
        assert await tasks[6].result(timeout="60s") == 6
        assert {a.task for a in await store.alerts.views() if a.kind == "unreadable"} == {
            t.number for t in tasks[:6]
        }
        assert node.dead() == ""


async def test_a_task_whose_claim_meets_an_exception_is_put_to_error_when_it_is_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, chain = app_of(1)
    async with mg.Client(store) as client:
        tasks = [await client.submit(chain, n) for n in range(5)]

    async def commit(
        batch: Batch, inner: Callable[[Batch], Awaitable[Committed]] = store.tasks.commit
    ) -> Committed:
        decide = batch.decide

        def watched(snapshots: Any) -> Any:
            assert decide is not None
            decisions = decide(snapshots)
            if any(decision.task.id == tasks[2].number for _, decision in decisions):
                raise ZeroDivisionError("a defect that nobody thought of")
            return decisions

        if decide is not None:
            batch.decide = watched
        return await inner(batch)

    monkeypatch.setattr(store.tasks, "commit", commit)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        for task in tasks:
            await until(partial(_at_rest, store, task.number), "each task to be at rest")
        states = [
            detail.task.state
            for task in tasks
            if (detail := await store.tasks.detail(task.number)) is not None
        ]
        assert states == ["processed", "processed", "error", "processed", "processed"]
        assert [(a.kind, a.task) for a in await store.alerts.views()] == [("unreadable", tasks[2].number)]
        assert node.dead() == ""


# -- found ---------------------------------------------------------------------------------------------------------------


async def test_a_message_that_was_acknowledged_is_not_called_broken(store: Store) -> None:
    """Its id is known for a while, without its body."""
    async with mg.Client(store) as client:
        await client.send("orders", "x", id="o-1")
        queue = client.queue("orders")
        assert await queue.acknowledge(*await queue.receive(timeout="2m"))
    assert await store.admin.broken_rows(100) == []


async def test_a_moment_that_is_not_a_number_ends_no_list(store: Store, world: World) -> None:
    """SQLite keeps any text where a number belongs."""
    if world.dialect != "sqlite":
        return
    await store.tasks.submit([draft(1)])
    async with world.raw() as raw:
        await raw.run("update makegood_task set created_at = 'abc', ended_at = 'x'")
    async with mg.Client(store) as client:
        (view,) = await client.find()
        assert (view.created, view.ended) == (UNKNOWN, None)
        assert (await client.task(view.id).status()).task == view


async def test_broken_rows_are_named(store: Store, world: World) -> None:
    assert await store.admin.broken_rows(100) == []
    await store.tasks.submit([draft(1), draft(2)])
    await write(world, "update {task} set static = ? where id = 1", DEEP)
    await write(
        world, "insert into {listener} (task, host, url, sent, last) values (2, 'h', 'gopher://h', 0, 1)"
    )
    await write(world, "insert into {notice} (task, sequence, body) values (77, 1, ?)", b"\xff")
    text = "\n".join(await store.admin.broken_rows(100))
    for part in (
        "its rows cannot be read",
        "its listener's address",
        "its notice 1 does not read",
        "is not there, and table notice",
    ):
        assert part in text
    assert len(await store.admin.broken_rows(2)) == 2
