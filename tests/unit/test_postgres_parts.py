"""The small parts of the PostgreSQL store that need no server."""

import asyncio

import asyncpg
import pytest
from asyncpg import exceptions as pg
from hypothesis import given
from hypothesis import strategies as st

from makegood.base.postgres_errors import connect_error
from makegood.errors import ConfigError, PayloadError, SchemaMismatchError, StoreError, StoreUnavailableError
from makegood.store.postgres.batcher import Batcher
from makegood.store.postgres.commit_statement import PARTS, join_values, numbers, parameters, place, statement
from makegood.store.postgres.connection import Address
from makegood.store.postgres.errors import cause, is_data, is_lost, translate
from makegood.store.postgres.writers import BackgroundTasks, HeldUpError
from makegood.store.scan_floors import Floors
from tests.clocks import HandClock
from tests.waiting import moment

SERVER = "PostgreSQL at db:5432, database x, user me"


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("postgresql://me:secret@db/x", "PostgreSQL at db:5432, database x, user me"),
        ("postgresql://me:secret@db:6000/x", "PostgreSQL at db:6000, database x, user me"),
        ("postgresql://me@a:1,b:2/x", "PostgreSQL at a:1,b:2, database x, user me"),
        ("postgresql:///x?host=/run/pg&user=me", "PostgreSQL at /run/pg, database x, user me"),
        (
            "postgresql://me@/x",
            "PostgreSQL at the local socket or localhost:5432, database x, user me",
        ),
        ("postgresql://me:p%40ss@[::1]:7000/x", "PostgreSQL at [::1]:7000, database x, user me"),
    ],
)
def test_an_address_is_named_without_its_password(url: str, where: str) -> None:
    assert Address(url).where == where
    assert repr(Address(url)) == where


def test_an_address_that_cannot_be_read_does_not_show_itself() -> None:
    with pytest.raises(ConfigError) as error:
        Address("postgresql://me:secret@[::1/x")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("fault", "connection_loss", "data", "error"),
    [
        (ConnectionResetError(), True, False, StoreUnavailableError),
        (pg.ConnectionDoesNotExistError("gone"), True, False, StoreUnavailableError),
        (pg.AdminShutdownError("bye"), True, False, StoreUnavailableError),
        (asyncpg.InterfaceError("connection is closed"), True, False, StoreUnavailableError),
        (pg.DeadlockDetectedError("again"), False, False, StoreUnavailableError),
        (pg.LockNotAvailableError("busy"), False, False, StoreUnavailableError),
        (pg.OutdatedSchemaCacheError("again"), False, False, StoreUnavailableError),
        (pg.DiskFullError("full"), False, False, StoreUnavailableError),
        (pg.ReadOnlySQLTransactionError("ro"), False, False, StoreUnavailableError),
        (pg.CharacterNotInRepertoireError("nul"), False, True, pg.CharacterNotInRepertoireError),
        (pg._base.DataError("int"), False, True, pg._base.DataError),
        (pg.CheckViolationError("priority"), False, True, pg.CheckViolationError),
        (pg.UndefinedTableError("task"), False, False, SchemaMismatchError),
        (pg.InsufficientPrivilegeError("no"), False, False, ConfigError),
        (pg.InvalidSQLStatementNameError("stmt_1"), False, False, ConfigError),
        (PayloadError("ours"), False, False, PayloadError),
        (ZeroDivisionError(), False, False, ZeroDivisionError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_faults_are_sorted(
    fault: Exception, connection_loss: bool, data: bool, error: type[Exception]
) -> None:
    """The driver's families overlap; each fault is of one kind for us, and named in the family's words."""
    assert (is_lost(fault), is_data(fault)) == (connection_loss, data)
    error_ = translate(fault, SERVER)
    assert type(error_) is error
    assert cause(fault) is (None if isinstance(fault, PayloadError) else fault)
    if error in (StoreUnavailableError, SchemaMismatchError, ConfigError):
        assert SERVER in str(error_)
    assert ("docs/operate/security.md" in str(error_)) == isinstance(fault, pg.LockNotAvailableError)


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (pg.InvalidPasswordError("no"), ConfigError, "user or password"),
        (pg.InvalidCatalogNameError("no"), ConfigError, "createdb"),
        (ValueError("dsn"), ConfigError, "correct the URL"),
        (
            asyncpg.ClientConfigurationError('root certificate file "x" does not exist'),
            ConfigError,
            "name its file with sslrootcert",
        ),
        (pg.ProtocolViolationError("startup parameter"), ConfigError, "pool_mode"),
        (TimeoutError(), StoreUnavailableError, "does not answer"),
        (ConnectionRefusedError(), StoreUnavailableError, "is PostgreSQL running"),
        (pg.CannotConnectNowError("starting up"), StoreUnavailableError, "starting up"),
        (pg.TargetServerAttributeNotMatched("ro"), StoreUnavailableError, "read-only"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_a_refused_connection_is_explained(fault: Exception, error: type[Exception], words: str) -> None:
    error_ = connect_error(fault, SERVER, url="postgresql://db/shop")
    assert type(error_) is error
    assert SERVER in str(error_)
    assert words in str(error_)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_numbers_travel_as_the_text_of_an_array(column: list[int | None]) -> None:
    text = numbers(column)
    assert text[0] + text[-1] == "{}"
    inside = text[1:-1]
    parts = inside.split(",") if inside else []
    assert [None if part == "null" else int(part) for part in parts] == column


@given(st.lists(st.none() | st.binary()))
def test_byte_strings_travel_joined_and_are_found_again(column: list[bytes | None]) -> None:
    data, spans = join_values(column)
    begins = [None if span is None else (span >> 32) - 1 for span in spans]
    sizes = [0 if span is None else span & 0xFFFFFFFF for span in spans]
    assert sum(sizes) == len(data)
    pieces = [None if n is None else data[n : n + size] for n, size in zip(begins, sizes, strict=True)]
    assert pieces == column


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_a_place_holds_index_and_attempt(idx: int, attempt: int) -> None:
    both = place(idx, attempt)
    assert (both >> 32, both & 0xFFFFFFFF) == (idx, attempt)
    assert both < 2**63


@pytest.mark.parametrize("looks", [True, False])
def test_a_statement_has_the_parameters_that_it_says(looks: bool) -> None:
    """Every parameter from the first to the last appears (the moves of events are one); a part that is absent adds none."""
    all_parts = statement(tuple(PARTS), looks=looks)
    count = 8 + 2 + 2 + 7 + 1 + sum(parameters(part.columns) for part in PARTS.values())
    assert all(f"${n}" in all_parts for n in range(1, count + 1))
    assert f"${count + 1}" not in all_parts
    assert "@" not in all_parts
    assert "$13" not in statement((), looks=looks)
    assert statement(("event",), looks=looks).count("insert into") == 1
    assert ("there as" in all_parts) is looks


def test_a_look_begins_a_little_below_what_was_passed_and_now_and_then_at_the_bottom() -> None:
    clock = HandClock(0.0)
    floors = Floors(clock, 10)
    assert floors.due("claims")  # the first look
    assert floors.floor("a") == -1
    floors.advance("a", 100)
    floors.advance("a", 50)
    assert floors.floor("a") == 90
    assert floors.floor("b") == -1
    assert not floors.due("claims")
    assert floors.due("claims", empty=True)
    clock.seconds = 0.9
    assert not floors.due("claims")
    clock.seconds = 1.1
    assert floors.due("claims")


def test_sweeps_that_have_become_dear_are_rested_from() -> None:
    """They take a twentieth of the time at most. One alone that took long may have waited for a processor."""
    clock = HandClock(0.0)
    floors = Floors(clock, 10)

    def sweep(seconds: float, *, empty: bool = False) -> bool:
        due = floors.due("claims", empty=empty)
        if due:
            clock.seconds += seconds
            floors.end_sweep("claims")
        return due

    for seconds in (0.05, 3.0, 0.05, 0.05):
        assert sweep(seconds, empty=True)
    assert sweep(2.0, empty=True)
    assert sweep(2.0, empty=True), "the second dear one: from here on they are rare"
    assert not sweep(2.0, empty=True)
    assert floors.affordable("others")
    clock.seconds += 39.9
    assert not sweep(2.0, empty=True)
    assert not floors.affordable("claims")
    clock.seconds += 0.2
    assert sweep(0.05, empty=True), "the vacuum has been there"
    clock.seconds += 0.01
    assert sweep(0.05, empty=True)
    assert sweep(30.0, empty=True)
    assert sweep(30.0, empty=True), (
        "the server was held up, and is not any more: what was given back is found in a minute"
    )
    clock.seconds += 60.1
    assert sweep(0.05, empty=True)


async def test_calls_that_come_during_a_flush_share_the_next_and_limits_hold() -> None:
    flushes: list[list[int]] = []
    going = asyncio.Event()

    async def flush(items: list[int], /, *, waits: bool = False) -> list[int]:
        flushes.append(list(items))
        await going.wait()
        return [10 * item for item in items]

    batcher: Batcher[int, int] = Batcher(BackgroundTasks(), flush, 4)  # type: ignore[arg-type]
    first = asyncio.create_task(batcher.ask([1]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    rest = [asyncio.create_task(batcher.ask([n, n])) for n in (2, 3, 4)]
    await asyncio.sleep(0)
    going.set()
    assert await first == [10]
    assert [await one for one in rest] == [[20, 20], [30, 30], [40, 40]]
    assert flushes == [[1], [2, 2, 3, 3], [4, 4]]
    assert await batcher.ask([]) == []


async def test_a_guilty_call_fails_alone_and_a_fault_fails_all() -> None:
    async def flush(items: list[int], /, *, waits: bool = False) -> list[int]:
        if 13 in items:
            raise PayloadError("unlucky")
        if 99 in items:
            raise StoreUnavailableError("away")
        return items

    batcher: Batcher[int, int] = Batcher(BackgroundTasks(), flush, 100)  # type: ignore[arg-type]
    answers = await asyncio.gather(*(batcher.ask([n]) for n in (1, 13, 2)), return_exceptions=True)
    assert [type(g) for g in answers] == [list, PayloadError, list]
    answers = await asyncio.gather(*(batcher.ask([n]) for n in (1, 99)), return_exceptions=True)
    assert [type(g) for g in answers] == [StoreUnavailableError] * 2
    assert await batcher.ask([5]) == [5]


async def test_a_call_that_is_held_up_waits_alone() -> None:
    flushes: list[tuple[list[int], bool]] = []
    free = asyncio.Event()

    async def flush(items: list[int], /, *, waits: bool = False) -> list[int]:
        flushes.append((list(items), waits))
        if 13 in items and not waits:
            raise HeldUpError
        if 13 in items:
            await free.wait()
        return items

    tasks = BackgroundTasks()
    batcher: Batcher[int, int] = Batcher(tasks, flush, 100)  # type: ignore[arg-type]
    waiting = asyncio.create_task(batcher.ask([13]))
    assert await asyncio.gather(*(batcher.ask([n]) for n in (1, 2))) == [[1], [2]]
    assert await batcher.ask([3]) == [3]
    assert not waiting.done()
    free.set()
    assert await waiting == [13]
    assert flushes == [
        ([13, 1, 2], False),
        ([13], False),
        ([1], False),
        ([2], False),
        ([13], True),
        ([3], False),
    ]
    left = [asyncio.create_task(batcher.ask([13])) for _ in range(2)]
    free.clear()
    while len(flushes) < 10:
        await moment()
    await tasks.cancel()
    faults = await asyncio.gather(*left, return_exceptions=True)
    assert [type(fault) for fault in faults] == [StoreError, StoreUnavailableError]


async def test_a_caller_that_goes_away_does_not_disturb_the_others() -> None:
    start = asyncio.Event()
    going = asyncio.Event()

    async def flush(items: list[int], /, *, waits: bool = False) -> list[int]:
        start.set()
        await going.wait()
        return items

    batcher: Batcher[int, int] = Batcher(BackgroundTasks(), flush, 100)  # type: ignore[arg-type]
    asking = [asyncio.create_task(batcher.ask([n])) for n in (1, 2)]
    await start.wait()
    asking[0].cancel()
    going.set()
    assert await asking[1] == [2]
    with pytest.raises(asyncio.CancelledError):
        await asking[0]


async def test_calls_left_behind_at_the_end_are_told_that_nothing_was_written() -> None:
    start = asyncio.Event()

    async def flush(items: list[int], /, *, waits: bool = False) -> list[int]:
        start.set()
        await asyncio.Event().wait()
        return items

    tasks = BackgroundTasks()
    batcher: Batcher[int, int] = Batcher(tasks, flush, 1)  # type: ignore[arg-type]
    asking = [asyncio.create_task(batcher.ask([n])) for n in (1, 2)]
    await start.wait()
    await tasks.settle(0.01)
    await tasks.cancel()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert "check whether it was committed" in str(answers[0])
    assert type(answers[1]) is StoreUnavailableError
