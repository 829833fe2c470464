"""The client: keys, waiting, outcomes, operators' acts; the blocking facade has the same names."""

import asyncio
import inspect
import os
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

import makegood as mg
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.client.sync import SyncClient, SyncTaskHandle
from makegood.node.node import Node
from makegood.node.sync import SyncNode
from makegood.store.protocol import Store
from makegood.store.views import Filter, TaskDetail, TaskView
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import chain_app
from tests.clocks import HandClock
from tests.conformance.worlds import World, eventually

FORKING = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
"""Python warns of what these tests are about: a program with threads that forks all the same."""


async def test_the_same_key_with_the_same_inputs_is_the_same_task_with_others_a_conflict(
    store: Store,
) -> None:
    _, chain = chain_app(1)
    async with Client(store) as client:
        first = await client.submit(chain, "a", key="k")
        again = await client.submit(chain, "a", key="k")
        assert (first.created, again.created, again.id) == (True, False, first.id)
        with pytest.raises(mg.KeyConflict, match="use another key") as error:
            await client.submit(chain, "b", key="k")
        assert error.value.task_id == first.id
        assert [view.id for view in await client.find(Filter(key="k"))] == [first.number]


async def test_a_key_that_exists_keeps_what_was_first_submitted_with_it(store: Store) -> None:
    """Whose queue hears, which priority, whose correlation id: those of the first call, as two web processes with retries meet it."""
    _, chain = chain_app(1)
    async with Client(store) as client:
        first = await client.submit(
            chain, "a", key="k", reply_to="queue:web-1", priority=3, correlation_id="one"
        )
        again = await client.submit(
            chain, "a", key="k", reply_to="queue:10.0.0.2", priority=9, correlation_id="two"
        )
        assert (again.id, again.created) == (first.id, False)
        detail = await again.status()
        assert (detail.task.priority, detail.task.correlation_id) == (3, "one")
        (notice,) = await client.queue("web-1").receive(10)
        assert notice.value["data"]["correlation_id"] == "one"
        assert await client.queue("10.0.0.2").receive(timeout=0) == []


async def test_misuse_of_submit_is_refused_with_the_remedy(store: Store) -> None:
    _, chain = chain_app(1)
    async with Client(store) as client:
        with pytest.raises(mg.DefinitionError, match=r"@app\.workflow"):
            await client.submit(print, "a")
        with pytest.raises(mg.DefinitionError, match="has its inputs already"):
            await client.submit(chain.plan("a"), "b")
        wrong: tuple[Any, ...] = (10, -1, 1.0, True, "5")
        for priority in wrong:  # an agent elsewhere could not read the request
            with pytest.raises(mg.ConfigError, match="a whole number from 0 to 9"):
                await client.submit(chain, "a", priority=priority)
        with pytest.raises(mg.ConfigError, match="a whole number from 0 to 9"):
            await client.submit(chain.plan("a").with_(priority=False))
        with pytest.raises(mg.DefinitionError, match="chain"):
            await client.submit(chain)
        assert await client.find() == []


async def test_waiting_ends_without_the_task_and_unknown_tasks_are_named(store: Store) -> None:
    _, chain = chain_app(1)
    async with Client(store) as client:
        task = await client.submit(chain, "a")
        with pytest.raises(mg.WaitExpiredError, match="the task continues"):
            await task.result(timeout="20ms")
        missing = client.task(task.number + 1)
        with pytest.raises(mg.TaskNotFoundError, match="task list"):
            await missing.status()
        with pytest.raises(mg.TaskNotFoundError, match="task list"):
            await missing.wait(timeout="120s")
        with pytest.raises(mg.TaskNotFoundError):
            await missing.result(timeout="120s")
        with pytest.raises(mg.WaitExpiredError, match="makegood agents"):
            await task.cancel(timeout="20ms")


async def test_each_of_many_who_wait_gives_up_at_its_own_moment(store: Store) -> None:
    """One timer serves them all: the next is set for those whose time comes later, and whoever waits without a limit goes on."""
    _, chain = chain_app(1)
    order: list[int] = []

    async def waits(number: int, task: TaskHandle[str], limit: str | None) -> None:
        with suppress(mg.WaitExpiredError):
            await task.result(timeout=limit)
        order.append(number)

    clock = HandClock()
    async with Client(store, clock=clock) as client:
        task = await client.submit(chain, "a")
        limits = ["90ms", "30ms", None, "60ms"]
        waiters = [asyncio.ensure_future(waits(n, task, limit)) for n, limit in enumerate(limits)]
        await asyncio.sleep(0)
        for finishers in ([1], [1, 3], [1, 3, 0]):
            clock.forward(0.031)
            await waiters[finishers[-1]]
            assert order == finishers
        assert not waiters[2].done()
    with pytest.raises(mg.ClosedError):
        await waiters[2]


async def test_cancel_undoes_and_says_who_won_when_it_comes_too_late(store: Store) -> None:
    app, go, start = mg.App("shop"), asyncio.Event(), asyncio.Event()
    bank = app.agent("bank")
    undos: list[str | None] = []

    @bank.action(complete_within="1m")
    async def charge(order: str) -> str:
        return f"paid {order}"

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None:
        undos.append(result)

    @bank.action(complete_within="1m", undo=mg.NOTHING)
    async def slow(receipt: str) -> str:
        start.set()
        await go.wait()
        return receipt

    @app.workflow()
    def buy(order: str) -> str:
        return slow(charge(order))

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        async with asyncio.timeout(60):
            await start.wait()
        answer = await task.cancel(why="changed my mind", who="ada")
        assert (answer.verdict, answer.state) == ("applied", "undoing")
        go.set()
        with pytest.raises(mg.TaskUndone) as error:
            await task.result(timeout="60s")
        assert error.value.undone == ("charge",)
        assert "ada" in error.value.cause
        with pytest.raises(mg.ActRefusedError, match="undone"):
            await task.cancel()
        events = [event async for event in task.events()]
        assert any(move[:3] == ("task", "undoing", "undone") for event in events for move in event.moves)
    assert undos == ["paid o"]


@pytest.mark.parametrize("then", ["undo", "hold"])
async def test_who_waits_beside_the_scheduler_hears_how_a_task_ended_without_a_look_into_the_store(
    store: Store, then: Literal["undo", "hold"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Scheduler has the steps in its hands. What is raised is the same as from the store, to the letter."""
    app = mg.App("shop")
    shop = app.agent("shop")

    @shop.action(complete_within="1m", undo=mg.NOTHING)
    async def look(order: str) -> str:
        return order

    @shop.action(complete_within="1m")
    async def reserve(order: str) -> str:
        return order

    @reserve.undo
    async def release(order: str, *, result: str | None) -> None:
        raise mg.Permanent("the shelf is gone")

    @shop.action(complete_within="1m")
    async def charge(order: str) -> str:
        return order

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None: ...

    @shop.action(complete_within="1m", undo=mg.NOTHING)
    async def ship(order: str) -> str:
        raise mg.Permanent("no such street")

    @app.workflow(on_failure=then)
    def gone(order: str) -> str:
        return ship(charge(look(order)))

    @app.workflow(on_failure=then)
    def stuck(order: str) -> str:
        return ship(reserve(order))

    looks: list[int] = []
    detail = store.tasks.detail

    async def counted(task: int) -> TaskDetail | None:
        looks.append(task)
        return await detail(task)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        for workflow in (gone, stuck):
            task = await node.client.submit(workflow, "o")
            with monkeypatch.context() as m:
                m.setattr(store.tasks, "detail", counted)
                with pytest.raises(mg.TaskOutcome) as outcome:
                    await task.result(timeout="60s")
            with pytest.raises(mg.TaskOutcome) as read:
                await node.client.task(task.id).result()
            assert looks == []
            assert type(outcome.value) is type(read.value)
            assert str(outcome.value) == str(read.value)
            assert vars(outcome.value) == vars(read.value)


async def test_an_operator_settles_resubmits_and_undoes(store: Store) -> None:
    app, failing = mg.App("shop"), [True]
    bank = app.agent("bank")

    @bank.action(
        complete_within="1m",
        retry=mg.Retry(tries=1),
        recover=mg.Recover(threshold=0, wait=0, extended=0, then="hold"),
    )
    async def charge(order: str) -> str:
        if failing[0]:
            raise ConnectionError("gone")
        return f"paid {order}"

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None: ...

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskInError, match="needs an operator") as error:
            await task.result(timeout="60s")
        assert error.value.standing == ("charge",)
        with pytest.raises(mg.TaskNotFoundError, match="it has charge"):
            await task.settle("nope", outcome="failed")
        with pytest.raises(mg.ConfigError, match="outcome="):
            await task.settle("charge", outcome="perhaps")
        assert (await task.settle("charge", value="paid by hand", why="rang the bank")).verdict == "applied"
        assert await task.result(timeout="60s") == "paid by hand"
        assert (await task.undo()).verdict == "applied"
        assert (await task.wait("60s")).state == "undone"
        failing[0] = False
        await task.resubmit()
        assert await task.result(timeout="60s") == "paid o"


async def test_a_client_that_is_not_open_says_so_and_does_not_look_like_an_outage(store: Store) -> None:
    """A loop that tries again while the store is away would try for ever."""
    _, chain = chain_app(1)
    client = Client(store)
    with pytest.raises(mg.ClosedError, match=r"await client\.open\(\)"):
        await client.submit(chain, "a")
    async with client:
        task = await client.submit(chain, "a")
    for use in (task.status, task.result, task.cancel, client.find):
        with pytest.raises(mg.ClosedError):
            await use()
    assert not issubclass(mg.ClosedError, mg.StoreUnavailableError)


async def test_who_waits_while_the_client_is_closed_is_told(store: Store) -> None:
    _, chain = chain_app(1)
    client = Client(store)
    await client.open()
    task = await client.submit(chain, "a")
    waiting = asyncio.create_task(task.result())
    await eventually(lambda: client.waiters.waits_for(task.number), "somebody who waits")
    await client.close()
    with pytest.raises(mg.ClosedError, match="the task continues"):
        await waiting


async def test_a_task_that_the_store_has_lost_is_no_longer_waited_for(store: Store, world: World) -> None:
    """After a promotion of a replica that lagged behind there is no such task, and nobody would ever end it."""
    _, chain = chain_app(1)
    async with Client(store, poll_every="10ms") as client:
        missing, there = await client.submit(chain, "a"), await client.submit(chain, "b")
        waiting = [asyncio.create_task(task.result()) for task in (missing, missing, there)]
        await eventually(lambda: client.waiters.waits_for(there.number), "somebody who waits")
        await world.rows("delete from {task} where id = ?", missing.number)
        for one in waiting[:2]:
            with pytest.raises(mg.TaskNotFoundError, match=missing.id):
                await asyncio.wait_for(one, 60)
        assert not waiting[2].done()
        waiting[2].cancel()


async def test_an_undone_task_tells_what_is_harmless_from_what_can_never_be_undone(store: Store) -> None:
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def look(order: str) -> str:
        return order

    @desk.action(complete_within="1m", no_return=True)
    async def issue(order: str) -> str:
        return order

    @app.workflow()
    def flow(order: str) -> str:
        return issue(look(order))

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(flow, "o")
        await task.result(timeout="60s")
        await task.undo()
        with pytest.raises(
            mg.TaskUndone,
            match=r"issue cannot be undone and is still in place; harmless effects in place: look",
        ):
            await task.result(timeout="60s")


# -- the blocking facade ---------------------------------------------------------------------------------------------------


def public(kind: type) -> dict[str, list[str]]:
    """Return the public methods of a class, those of its bases too, with their parameter names."""
    members = {name: member for base in reversed(kind.__mro__) for name, member in vars(base).items()}
    return {
        name: [p for p in inspect.signature(member).parameters if p != "self"]
        for name, member in members.items()
        if not name.startswith("_") and inspect.isfunction(member)
    }


def test_the_facade_has_the_names_and_parameters_of_what_it_fronts() -> None:
    assert set(public(SyncClient)) == set(public(Client)) - {"beside"}
    handles, blocking = public(TaskHandle), public(SyncTaskHandle)
    assert set(blocking) == set(handles) - {"look"}
    for name in blocking:
        assert blocking[name] == handles[name], name


def test_the_facade_submits_and_waits_from_blocking_code(tmp_path: Path) -> None:
    app, chain = chain_app(3)
    with SyncNode(app, f"sqlite:///{tmp_path / 'a.db'}") as node:
        assert node.client.submit(chain, "x").result(timeout="60s") == "x"
        with SyncClient(f"sqlite:///{tmp_path / 'a.db'}") as client:
            task = client.submit(chain, "y", key="y")
            assert task.result(timeout="60s") == "y"
            assert client.task(task.id).wait().state == "processed"
            assert len(list(task.events())) == 4
            assert len(client.find()) == 2
            with pytest.raises(mg.ActRefusedError):
                task.cancel()


async def test_the_facade_refuses_to_block_a_running_loop(tmp_path: Path) -> None:
    with pytest.raises(mg.MakegoodError, match=r"use makegood\.Client"):
        SyncClient(f"sqlite:///{tmp_path / 'a.db'}").find()


@FORKING
def test_a_forked_child_opens_its_own_connection(tmp_path: Path) -> None:
    _, chain = chain_app(1)
    with SyncClient(f"sqlite:///{tmp_path / 'a.db'}", migrate=True) as client:
        client.submit(chain, "parent")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                client.submit(chain, "child")
                code = 0 if len(client.find()) == 2 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert len(client.find()) == 2


def test_threads_that_come_first_at_the_same_time_share_one_client(tmp_path: Path) -> None:
    """Each would open a client of its own, and all but one be lost with its threads and files."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with SyncClient(url, migrate=True) as first:
        first.open()
    before = {thread.name for thread in threading.enumerate()}
    with SyncClient(url) as client, ThreadPoolExecutor(10) as pool:
        together = threading.Barrier(10)

        def look(_: int) -> list[TaskView]:
            together.wait()
            return client.find()

        assert list(pool.map(look, range(10))) == [[]] * 10
        writers = [t for t in threading.enumerate() if t.name == "makegood writer"]
        assert len(writers) == 1 + sum(name == "makegood writer" for name in before)


def test_a_closed_client_stays_closed_until_it_is_opened(tmp_path: Path) -> None:
    """No call opens it by the way: not of the client, nor of a task or a queue that came from it; and no thread is left."""
    _, chain = chain_app(1)
    before = set(threading.enumerate())
    client = SyncClient(f"sqlite:///{tmp_path / 'a.db'}", migrate=True)
    client.close()
    client.close()
    client.open()
    task, queue = client.submit(chain, "x"), client.queue("web")
    connection = sqlite3.connect(tmp_path / "a.db")
    client.close()
    client.close()
    calls: list[Callable[[], object]] = [
        client.find,
        partial(client.submit, chain, "y"),
        partial(client.submit, chain, "y", connection=connection),
        partial(list, client.submit_many(chain, ["y"])),
        partial(client.send, "web", 1),
        partial(queue.receive, timeout=0),
        task.status,
        lambda: list(task.events()),
    ]
    for call in calls:
        with pytest.raises(mg.ClosedError, match=r"was closed: `client\.open\(\)`"):
            call()
    connection.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before
    with client:
        assert [view.id for view in client.find()] == [task.status().task.id]
    with pytest.raises(mg.ClosedError):
        client.find()


def test_a_call_that_waits_in_another_thread_ends_when_the_client_is_closed(tmp_path: Path) -> None:
    """It would wait forever for a loop that runs no more."""
    client = SyncClient(f"sqlite:///{tmp_path / 'a.db'}", migrate=True, poll_every="1h")
    client.open()
    waiting = threading.Event()

    def listen() -> None:
        queue = client.queue("web")
        waiting.set()
        list(queue)

    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(listen)
        waiting.wait()
        client.queues()  # what was asked before is under way now
        client.close()
        with pytest.raises(mg.ClosedError):
            listening.result(60)


def test_a_node_that_was_left_refuses_and_can_be_started_again(tmp_path: Path) -> None:
    app, chain = chain_app(1)
    sync_node = SyncNode(app, f"sqlite:///{tmp_path / 'a.db'}")
    with sync_node as node:
        client = node.client
        task = client.submit(chain, "x")
    for call in (client.find, task.status):
        with pytest.raises(mg.ClosedError, match="as `with SyncNode"):
            call()
    with sync_node as node:
        assert node.client.task(task.id, str).result(timeout="100s") == "x"
    sync_node.__exit__(None, None, None)


@FORKING
def test_a_child_of_a_process_that_closed_its_client_finds_it_closed(tmp_path: Path) -> None:
    """Whereas what a child closes, its parent goes on using."""
    with SyncClient(f"sqlite:///{tmp_path / 'a.db'}", migrate=True) as client:
        client.open()
        for close in (True, False):
            pid = os.fork()
            if pid == 0:
                try:
                    if close:
                        client.close()
                        with suppress(mg.ClosedError):
                            client.find()
                            os._exit(2)
                    else:
                        client.find()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert client.find() == []
        client.close()
        pid = os.fork()
        if pid == 0:
            with suppress(mg.ClosedError):
                client.find()
                os._exit(2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


async def test_it_is_opened_and_closed_inside_a_running_loop_and_used_in_threads(tmp_path: Path) -> None:
    """As a lifespan does: what would block the loop's work is refused, and says how it is called."""
    with SyncClient(f"sqlite:///{tmp_path / 'a.db'}", migrate=True) as client:
        client.open()
        with pytest.raises(mg.MakegoodError, match=r"await asyncio\.to_thread"):
            client.find()
        assert await asyncio.gather(*(asyncio.to_thread(client.find) for _ in range(8))) == [[]] * 8
    with pytest.raises(mg.ClosedError):
        await asyncio.to_thread(client.find)


@FORKING
async def test_a_child_that_was_forked_on_the_loop_is_refused_the_parents_client(tmp_path: Path) -> None:
    """Its loop is another one, though thread and loop look like the parent's: the store's threads are not there."""
    async with mg.Client(f"sqlite:///{tmp_path / 'a.db'}", migrate=True) as client:
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(asyncio.wait_for(client.find(), 60))
            except mg.ClosedError as refusal:
                os._exit(0 if "this client was opened" in str(refusal) else 3)
            os._exit(2)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert await client.find() == []


@FORKING
def test_a_forked_child_reads_the_history_on_its_own_connection(tmp_path: Path) -> None:
    app, chain = chain_app(1)
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with SyncNode(app, url), SyncClient(url) as client:
        task = client.submit(chain, "x")
        task.result(timeout="60s")
        events = list(task.events())
        pid = os.fork()
        if pid == 0:
            try:
                os._exit(0 if list(task.events()) == events else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert list(task.events()) == events, "the parent's own is whole"
