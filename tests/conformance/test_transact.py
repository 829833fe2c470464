"""The store's own transaction, lent to somebody's work: all of it or nothing, whatever the work does; on every store."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from makegood.base.text import words
from makegood.errors import TransactionError
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing
from makegood.transactions import Caller
from makegood.transactions.transaction import Transaction
from tests.conformance.builders import draft, scheduler
from tests.conformance.worlds import World

TABLE = "create table if not exists shop_order (id text primary key, cents integer)"
Work = Callable[[Caller], Coroutine[Any, Any, Any]]
WAITS = pytest.mark.parametrize("waits", [False, True], ids=["at once", "waits"])


async def tables(store: Store, world: World) -> None:
    """Make a table of the user's, empty."""

    async def make(caller: Caller) -> None:
        await caller.execute(TABLE)
        await caller.execute("delete from shop_order")

    await store.transact(make, waits=False)


async def ids(store: Store) -> list[str]:
    """Return what is in the user's table."""

    async def look(caller: Caller) -> list[str]:
        return [row[0] for row in await caller.execute("select id from shop_order order by id")]

    return await store.transact(look, waits=False)


def ordering(store: Store, id_: int, *, waits: bool) -> Work:
    """Return work that writes an order and submits its task."""

    async def work(caller: Caller) -> str:
        await caller.ask("insert into shop_order (id, cents) values (?, ?)", f"o-{id_}", 5)
        if waits:
            await asyncio.sleep(0)
        (answer,) = await store.tasks.join(caller, [draft(id_)])
        return f"created {answer.is_new}"

    return work


@WAITS
async def test_what_work_writes_is_committed_with_the_task(store: Store, world: World, waits: bool) -> None:
    await tables(store, world)
    assert await store.transact(ordering(store, 1, waits=waits), waits=waits) == "created True"
    assert await ids(store) == ["o-1"]
    assert await store.tasks.detail(1) is not None


@WAITS
async def test_work_that_raises_leaves_nothing_and_its_error_is_its_own(
    store: Store,
    world: World,
    waits: bool,
) -> None:
    await tables(store, world)

    async def work(caller: Caller) -> None:
        await ordering(store, 2, waits=waits)(caller)
        raise ZeroDivisionError("of the user's")

    with pytest.raises(ZeroDivisionError, match="of the user's"):
        await store.transact(work, waits=waits)
    assert await ids(store) == []
    assert await store.tasks.detail(2) is None


@WAITS
async def test_a_statement_that_fails_is_the_works_alone(store: Store, world: World, waits: bool) -> None:
    """Others of the same moment, who may share the commit, are written."""
    await tables(store, world)

    async def wrong(caller: Caller) -> None:
        await caller.ask("insert into shop_order (id, cents) values (?, ?)", "half", 5)
        await caller.execute("insert into no_such_table values (1)")

    node = await scheduler(store)
    answers = await asyncio.gather(
        store.transact(wrong, waits=waits),
        store.tasks.submit([draft(3)]),
        store.transact(ordering(store, 4, waits=waits), waits=waits),
        store.nodes.unregister(node),
        return_exceptions=True,
    )
    assert [isinstance(answer, Exception) for answer in answers] == [True, False, False, False]
    assert "no_such_table" in str(answers[0])
    assert await ids(store) == ["o-4"]


@WAITS
async def test_a_transaction_that_has_ended_takes_nothing_more(
    store: Store, world: World, waits: bool
) -> None:
    await tables(store, world)
    callers: list[Caller] = []

    async def keep(caller: Caller) -> None:
        await caller.execute("select 1")
        callers.append(caller)

    await store.transact(keep, waits=waits)
    with pytest.raises(TransactionError, match="has ended"):
        await callers[0].execute("delete from shop_order")


@WAITS
async def test_work_that_executes_nothing_is_no_transaction(store: Store, waits: bool) -> None:
    async def nothing(_: Caller) -> int:
        return 7

    assert await store.transact(nothing, waits=waits) == 7


async def test_work_that_is_cancelled_leaves_nothing(store: Store, world: World) -> None:
    await tables(store, world)
    start, never = asyncio.Event(), asyncio.Event()

    async def work(caller: Caller) -> None:
        await ordering(store, 5, waits=True)(caller)
        start.set()
        await never.wait()

    task = asyncio.create_task(store.transact(work, waits=True))
    await start.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ids(store) == []
    assert await store.transact(ordering(store, 6, waits=True), waits=True) == "created True"


async def test_a_message_is_acknowledged_with_the_work_or_not_at_all(store: Store, world: World) -> None:
    await tables(store, world)
    await store.queues.send_messages([Outgoing(queue="orders", id="o", body=b"1", remember=60.0)], 10)
    (message,) = (await store.queues.receive_messages("orders", "me", 1, 30.0, 5)).messages
    receipt = (message.seq, message.tries)

    async def work(caller: Caller) -> bool:
        await caller.ask("insert into shop_order (id, cents) values (?, ?)", "o", 5)
        return await store.queues.accept(caller, receipt)

    async def failing(caller: Caller) -> None:
        assert await work(caller)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.transact(failing, waits=False)
    assert await store.queues.hold_messages([receipt], 30.0) == [True]
    assert await store.transact(work, waits=False)
    assert await ids(store) == ["o"]
    assert await store.queues.hold_messages([receipt], 30.0) == [False]

    async def again(caller: Caller) -> bool:
        return await store.queues.accept(caller, receipt)

    assert not await store.transact(again, waits=False)


@pytest.mark.parametrize("statement", ["commit", "ROLLBACK;", "savepoint a", " begin immediate"])
async def test_users_cannot_end_it(store: Store, statement: str) -> None:
    async def work(caller: Caller) -> None:
        await Transaction(caller).execute_async(statement)

    with pytest.raises(TransactionError, match="committed once the function has returned"):
        await store.transact(work, waits=True)


async def test_many_at_once(store: Store, world: World) -> None:
    await tables(store, world)
    answers = await asyncio.gather(
        *(store.transact(ordering(store, n, waits=n % 2 == 0), waits=n % 2 == 0) for n in range(10, 30))
    )
    assert answers == ["created True"] * 20
    assert len(await ids(store)) == 20


# -- a statement that fails --------------------------------------------------------------------------------


async def swallowed(caller: Caller) -> None:
    """Catch the error of a second order under the same id."""
    await caller.ask("insert into shop_order (id, cents) values (?, ?)", "o-1", 5)
    with contextlib.suppress(Exception):
        await caller.ask("insert into shop_order (id, cents) values (?, ?)", "o-1", 6)


async def misspelt(caller: Caller) -> None:
    """Catch the error of a statement that the database does not understand."""
    await caller.ask("insert into shop_order (id, cents) values (?, ?)", "o-1", 5)
    with contextlib.suppress(Exception):
        await caller.execute("insert into shop_ordre values (1)")


async def unbound(caller: Caller) -> None:
    """Catch the error of the driver, which never sent the statement."""
    await caller.ask("insert into shop_order (id, cents) values (?, ?)", "o-1", 5)
    with contextlib.suppress(Exception):
        await caller.ask("insert into shop_order (id, cents) values (?, ?)", "o-2")


@WAITS
@pytest.mark.parametrize(
    ("work", "why"), [(swallowed, "(?i)unique"), (misspelt, "shop_ordre"), (unbound, "(?i)bind|argument")]
)
async def test_a_statement_whose_error_was_caught_fails_the_transaction_all_the_same(
    store: Store, world: World, waits: bool, work: Work, why: str
) -> None:
    """On PostgreSQL nothing else is possible, and SQLite would commit half of it: the same on both, with the cause."""
    await tables(store, world)
    with pytest.raises(TransactionError, match="although its error was caught") as error:
        await store.transact(work, waits=waits)
    assert re.search(why, str(error.value))
    assert error.value.__cause__ is not None
    assert await ids(store) == []


@WAITS
@pytest.mark.parametrize("work", [swallowed, misspelt, unbound])
async def test_nothing_more_is_executed_after_a_statement_that_failed(
    store: Store, world: World, waits: bool, work: Work
) -> None:
    await tables(store, world)

    async def more(caller: Caller) -> None:
        await work(caller)
        for _ in range(2):
            with pytest.raises(TransactionError, match="a statement of this transaction failed before"):
                await caller.execute("select 1")
        await store.tasks.join(caller, [draft(8)])

    with pytest.raises(TransactionError, match="failed before"):
        await store.transact(more, waits=waits)
    assert await ids(store) == []
    assert await store.tasks.detail(8) is None


@WAITS
async def test_what_the_work_raises_after_a_failed_statement_is_its_own_and_names_the_statements_error(
    store: Store, world: World, waits: bool
) -> None:
    await tables(store, world)

    async def own(caller: Caller) -> None:
        await swallowed(caller)
        raise ZeroDivisionError("of the user's") from None

    with pytest.raises(ZeroDivisionError) as error:
        await store.transact(own, waits=waits)
    assert re.search("ZeroDivisionError: of the user's, from .*(?i:unique)", words(error.value))


async def test_a_statement_that_was_cancelled_and_caught_fails_the_transaction(
    store: Store, world: World
) -> None:
    await tables(store, world)

    async def work(caller: Caller) -> None:
        await caller.ask("insert into shop_order (id, cents) values (?, ?)", "o-1", 5)
        statement = asyncio.ensure_future(caller.execute("select 1"))
        await asyncio.sleep(0)
        statement.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await statement

    with pytest.raises(TransactionError, match="although its error was caught: CancelledError"):
        await store.transact(work, waits=True)
    assert await ids(store) == []


@WAITS
async def test_others_of_the_same_moment_are_written_beside_a_failed_statement(
    store: Store, world: World, waits: bool
) -> None:
    await tables(store, world)
    answers = await asyncio.gather(
        store.transact(swallowed, waits=waits),
        store.tasks.submit([draft(9)]),
        store.transact(ordering(store, 10, waits=waits), waits=waits),
        return_exceptions=True,
    )
    assert [isinstance(answer, Exception) for answer in answers] == [True, False, False]
    assert await ids(store) == ["o-10"]
    assert await store.tasks.detail(9) is not None


@WAITS
@pytest.mark.parametrize(
    "fault", [ConnectionError("the payments"), TimeoutError("slow"), FileNotFoundError("a file")]
)
async def test_an_error_of_the_works_own_is_not_taken_for_one_of_the_database(
    store: Store, world: World, waits: bool, fault: OSError
) -> None:
    await tables(store, world)

    async def work(caller: Caller) -> None:
        await caller.ask("insert into shop_order (id, cents) values (?, ?)", "o-1", 5)
        raise fault

    with pytest.raises(type(fault)) as error:
        await store.transact(work, waits=waits)
    assert error.value is fault
    assert await ids(store) == []
