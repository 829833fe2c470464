"""SQLite only: what the database does when it fails, put in from outside through the connections."""

import asyncio
import gc
import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from makegood.errors import StoreError, StoreUnavailableError
from makegood.model.messages import TaskMessage
from makegood.store.records import Batch, Claim
from makegood.store.sqlite import store_threads
from makegood.store.views import Filter
from tests.conformance.builders import agent, begin, draft, hand, offer, reply, running
from tests.conformance.sqlite_faults import BUSY, FULL, IOERR, Faults, failure
from tests.conformance.worlds import SQLiteWorld, opened, still_waits


@pytest.fixture
def faults() -> Faults:
    """Faults, none armed."""
    return Faults()


async def test_a_lock_held_by_another_is_asked_for_again(tmp_path: Path, faults: Faults) -> None:
    async with opened(tmp_path, faults.connect) as store:
        faults.arm("begin immediate", BUSY, times=25)
        await store.tasks.submit([draft(1)])
        assert len(await store.tasks.find(Filter())) == 1


async def test_a_file_that_another_process_is_just_making_is_asked_for_again(
    tmp_path: Path, faults: Faults
) -> None:
    faults.arm("pragma journal_mode = wal", BUSY, times=3)
    async with opened(tmp_path, faults.connect) as store:
        await store.tasks.submit([draft(1)])


async def test_a_lock_that_never_gets_free_is_an_outage(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_threads, "_BUSY_TRIES", 5)
    async with opened(tmp_path, faults.connect) as store:
        faults.arm("begin immediate", BUSY, times=5)
        with pytest.raises(StoreUnavailableError, match="lock"):
            await store.tasks.submit([draft(1)])
        await store.tasks.submit([draft(2)])
        assert [t.id for t in await store.tasks.find(Filter())] == [2]


async def test_a_commit_waits_for_somebody_elses_transaction_and_reading_does_not(tmp_path: Path) -> None:
    world = SQLiteWorld(tmp_path)
    store = world.store()
    await store.open(migrate=True)
    async with world.raw():
        going = asyncio.create_task(store.tasks.submit([draft(1)]))
        assert await still_waits(going)
        assert await store.tasks.find(Filter()) == []
    await going
    await store.close()


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ("insert or fail into makegood_change", FULL, "disk is full"),
        ("commit", FULL, "disk is full"),
        ("commit", IOERR, "disk failed"),
        ("insert into makegood_task", IOERR, "disk failed"),
    ],
)
async def test_a_failing_disk_is_an_outage_and_nothing_is_written(
    tmp_path: Path, faults: Faults, where: str, error: Exception, message: str
) -> None:
    async with opened(tmp_path, faults.connect) as store:
        await store.tasks.submit([draft(1)])
        faults.arm(where, error)
        with pytest.raises(StoreUnavailableError, match=message):
            await store.tasks.submit([draft(2), draft(3)])
        await store.tasks.submit([draft(4)])
        assert [t.id for t in await store.tasks.find(Filter())] == [4, 1]
        assert (await store.admin.schema()).rows["step"] == 6


async def test_after_a_disk_error_the_file_is_opened_anew(tmp_path: Path, faults: Faults) -> None:
    async with opened(tmp_path, faults.connect) as store:
        await store.tasks.submit([draft(3)])
        before = faults.opened
        faults.arm("commit", IOERR)
        with pytest.raises(StoreUnavailableError):
            await store.tasks.submit([draft(1)])
        await store.tasks.submit([draft(2)])
        assert faults.opened == before + 1


async def test_all_who_share_a_failed_commit_are_told(tmp_path: Path, faults: Faults) -> None:
    async with opened(tmp_path, faults.connect) as store:
        await store.tasks.submit([draft(1)])
        faults.arm("commit", FULL)
        results = await asyncio.gather(
            store.tasks.submit([draft(2)]),
            store.tasks.post(1, TaskMessage("cancel")),
            store.tasks.submit([draft(3)]),
            return_exceptions=True,
        )
        assert [type(r) for r in results] == [StoreUnavailableError] * 3
        assert (await store.admin.schema()).rows["task"] == 1


async def test_a_defect_in_one_operation_leaves_those_of_the_same_moment_alone(
    tmp_path: Path, faults: Faults
) -> None:
    async with opened(tmp_path, faults.connect) as store:
        scheduler = await hand(store)
        await store.tasks.submit([draft(1)])

        def broken(_: object) -> Any:
            raise ZeroDivisionError("a defect")

        results = await asyncio.gather(
            store.tasks.submit([draft(2)]),
            store.tasks.commit(Batch(scheduler.node, claim=Claim(5), decide=broken)),
            store.nodes.register((await store.nodes.views())[0].info),
            return_exceptions=True,
        )
        assert isinstance(results[1], ZeroDivisionError)
        assert (await store.admin.schema()).rows == {
            **(await store.admin.schema()).rows,
            "task": 2,
            "node": 2,
        }
        assert len(await scheduler.claim(5)) == 2


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit])
async def test_nothing_raised_inside_a_transaction_ends_the_thread(
    tmp_path: Path, faults: Faults, ending: type[BaseException]
) -> None:
    async with opened(tmp_path, faults.connect) as store:
        scheduler = await hand(store)
        await store.tasks.submit([draft(1)])

        def broken(_: object) -> Any:
            raise ending

        with pytest.raises(StoreError, match=ending.__name__):
            await store.tasks.commit(Batch(scheduler.node, claim=Claim(5), decide=broken))
        assert await scheduler.claim(5) == [1]


async def test_a_failing_read_is_an_outage_and_the_next_one_works(tmp_path: Path, faults: Faults) -> None:
    async with opened(tmp_path, faults.connect) as store:
        await store.tasks.submit([draft(1)])
        faults.arm("select", IOERR)
        with pytest.raises(StoreUnavailableError, match="disk failed"):
            await store.tasks.find(Filter())
        assert len(await store.tasks.find(Filter())) == 1


async def test_a_defective_batch_says_what_it_lacks(tmp_path: Path, faults: Faults) -> None:
    async with opened(tmp_path, faults.connect) as store:
        scheduler = await running(store, 1)
        await store.tasks.submit([draft(2)])
        with pytest.raises(StoreError, match="decide"):
            await store.tasks.commit(Batch(scheduler.node, claim=Claim(5)))
        decide: Callable[..., Any] = lambda _: [(None, begin(scheduler[1], 1))]  # noqa: E731
        with pytest.raises(StoreError, match="not claimed"):
            await store.tasks.commit(Batch(scheduler.node, claim=Claim(5), decide=decide))


async def test_a_message_that_cannot_be_read_puts_its_task_to_error_and_the_others_are_given(
    tmp_path: Path,
) -> None:
    world = SQLiteWorld(tmp_path)
    store = world.store()
    await store.open(migrate=True)
    scheduler = await running(store, 1, 2)
    payments = await agent(store)
    (first, _) = await store.requests.take(payments, [offer()])
    for n in (1, 2):
        await store.tasks.post(n, TaskMessage("cancel"))
    async with world.raw() as raw:
        await raw.run("update {inbox} set body = ? where task = 1", b"{")
    assert await store.requests.answer(payments, [reply(first)]) == [True]
    assert list((await store.tasks.inbox(scheduler.node, 10)).messages) == [2]
    assert [t.id for t in await store.tasks.find(Filter(states=("error",)))] == [1]
    inbox = await store.tasks.inbox(scheduler.node, 10)
    assert (list(inbox.messages), inbox.at_rest) == ([2], [])
    await store.close()


@pytest.mark.parametrize("table", ["inbox", "step", "task"])
async def test_a_held_task_whose_rows_cannot_be_read_goes_to_error(tmp_path: Path, table: str) -> None:
    world = SQLiteWorld(tmp_path)
    store = world.store()
    await store.open(migrate=True)
    scheduler = await running(store, 1, 2)
    await store.tasks.post(1, TaskMessage("cancel"))
    async with world.raw() as raw:
        statement = {
            "inbox": "update {inbox} set body = ? where task = 1",
            "step": "update {step} set spec = ? where task = 1",
            "task": "update {task} set static = ? where id = 1",
        }
        await raw.run(statement[table], b"{")
    assert [snapshot.task.id for snapshot in await store.tasks.load(scheduler.node, [1, 2])] == [2]
    (task,) = await store.tasks.find(Filter(states=("error",)))
    assert (task.id, task.locked_by) == (1, None)
    assert [a.kind for a in await store.alerts.views()] == ["unreadable"]
    await store.close()


async def test_a_request_that_cannot_be_read_puts_its_task_to_error_and_the_others_are_given(
    tmp_path: Path,
) -> None:
    world = SQLiteWorld(tmp_path)
    store = world.store()
    await store.open(migrate=True)
    await running(store, 1, 2)
    async with world.raw() as raw:
        await raw.run("update {request} set body = ? where task = 1", b"{")
    assert [r.task for r in await store.requests.take(await agent(store), [offer()])] == [2]
    assert [t.id for t in await store.tasks.find(Filter(states=("error",)))] == [1]
    await store.close()


async def test_what_waited_for_the_lock_is_not_kept_until_the_garbage_collector_comes(tmp_path: Path) -> None:
    """What a Scheduler writes may have megabytes, and so little else happens then that the collector hardly ever runs."""
    faults = Faults()

    class Written:
        def __init__(self) -> None:
            self.value = b"x"

        async def __call__(self, tx: Any) -> bytes:
            return self.value

    async def nothing(_: Any) -> None: ...

    gc.collect()
    gc.disable()
    try:
        async with opened(tmp_path, faults.connect) as store:
            act = Written()
            reference = weakref.ref(act)
            faults.arm("begin immediate", failure(sqlite3.SQLITE_BUSY, "database is locked"), times=2)
            assert await store.transact(act, waits=False) == b"x"
            assert not faults.armed["begin immediate"]
            del act
            await store.transact(nothing, waits=False)  # the thread has let go of the one before
            assert reference() is None
    finally:
        gc.enable()


async def test_a_writing_thread_that_dies_fails_its_callers(
    tmp_path: Path, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of makegood's own after a commit: what was committed is reported so, everything else fails."""
    async with opened(tmp_path, faults.connect) as store:
        writer = store._database.writer  # noqa: SLF001
        assert writer is not None

        def no_letter(topics: set[str]) -> None:
            raise KeyError("of a newer release")

        writer.on_commit = no_letter
        async with asyncio.timeout(120):
            await store.tasks.submit([draft(1)])
            for n in (2, 3):
                with pytest.raises(StoreError, match=r"the thread that writes .*a newer release.*restart"):
                    await store.tasks.submit([draft(n)])
            assert [task.id for task in await store.tasks.find(Filter())] == [1]
    assert "a fault in makegood ended the thread that writes" in caplog.text


async def test_a_reading_thread_that_dies_fails_its_callers(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, faults.connect) as store:

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(store_threads.StoreThread, "_look", broken)
        async with asyncio.timeout(120):
            for _ in range(2):
                with pytest.raises(StoreError, match="the thread that reads"):
                    await store.tasks.find(Filter())
            await store.tasks.submit([draft(1)])
    assert "a fault in makegood ended the thread that reads" in caplog.text
