"""Rows that nobody of makegood wrote, in every table, while all roles run: no role ends of one, and others' tasks are processed.

What a database refuses by itself is fine. Left out are the rows of which there is one for the whole store (its identity, its clock,
its schema version): without them there is no store.
"""

import asyncio
import contextlib
import json
import random
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.messaging.outbox import ddl
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.sqlite import SQLiteStore
from tests.conformance.worlds import World
from tests.waiting import moment, until

HARDY = Options(
    heartbeat="200ms", dead_after="20s", poll_every="100ms", drain="1s", alerts_every="200ms", leaderless_after="1h", supervise_every="300ms", lease="3s",
    starved_after="1s", late_after="100ms", webhook_tries=2, cleanup_every="1s",
)  # fmt: skip
TABLES = (
    "task", "attribute", "lane", "schedule", "step", "request", "inbox", "event", "audit", "alert", "node", "lease", "lease_term", "message", "listener", "notice",
    "rate", "signal",
)  # fmt: skip
DRAWN = frozenset({("inbox", "seq"), ("message", "seq"), ("alert", "id"), ("node", "id"), ("signal", "seq")})
"""Columns whose numbers SQLite draws, each above all before: behind a row with its highest number there is none left for anybody."""
DEEP = '{"a":' + "[" * 3000 + "]" * 3000 + "}"
TEXTS = (
    "",
    "of a newer version",
    "gopher://x",
    "http://[",
    "queue:",
    DEEP,
    "[]",
    "null",
    "pending",
    "processing",
    "\u202e",
)
BYTES = (
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'{"kind":"zzz"}',
    b'{"kind":"done","idx":99,"attempt":1}',
    DEEP.encode(),
    b'{"id":7}',
)
NUMBERS = (0, -1, 1, 7, 2**31 - 1, 2**53, 2**63 - 1, -(2**63))
FLOATS = ("0.0", "-1.0", "1e300", "-1e300")
FIELDS: dict[str, tuple[object, ...]] = {
    "key_form": (
        "uuid",
        "uuid4",
        "quoted",
        "length=28",
        "length=1",
        "length=x",
        "of a newer version",
        7,
        None,
    ),
    "keeps": (0.0, -1.0, 1e-9, 1e300, "24h", None),
    "key_limit": (1, -1, 2**53, "many"),
    "first_sent": (0.0, -1.0, 1e300, 1e-300, "once", None),
    "taken_at": (-1.0, 1e300, "then"),
    "failures": (-7, 2**53, "none"),
    "probe": (True, 1),
    "remembers": (True, "yes"),
    "then": ("hold", "wait"),
    "threshold": (-1, 2**53, 1.5),
    "wait": (-5.0, 1e300, "5s"),
}
"""Values of the fields of stored policies and requests: lawful ones, and such as no version writes."""


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


class Fuzzer:
    """Writes broken rows; ``columns`` of each table with their types, as the database says."""

    def __init__(self, world: World, columns: dict[str, list[tuple[str, str]]], rng: random.Random) -> None:
        self.world = world
        self.columns = columns
        self.rng = rng
        self.written = 0
        self.fields = 0

    def literal(self, kind: str) -> str:
        """Return a value that fits the type of a column, hardly ever its meaning; on SQLite one of any type."""
        choose = self.rng.choice
        if self.world.dialect == "sqlite":
            kind = choose((kind, kind, "text", "blob", "integer", "real", "null", "garbled"))
            if kind == "garbled":
                return "cast(x'ff61' as text)"
        if kind == "null" or self.rng.random() < 0.1:
            return "null"
        if kind in ("blob", "bytea"):
            data = choose(BYTES).hex()
            return f"x'{data}'" if self.world.dialect == "sqlite" else f"'\\x{data}'::bytea"
        if kind in ("real", "double precision"):
            return choose((*FLOATS, "'NaN'::float8", "'Infinity'::float8") if kind != "real" else FLOATS)
        if kind in ("integer", "bigint", "smallint"):
            return str(choose(NUMBERS))
        return choose(("true", "false")) if kind == "boolean" else _text(choose(TEXTS))

    def value(self, table: str, column: str, kind: str) -> str:
        """Return a value for a column."""
        literal = self.literal(kind)
        return str(2**53) if (table, column) in DRAWN and literal == str(2**63 - 1) else literal

    def statement(self, table: str) -> str:
        """Return a statement that changes a row of a table, or adds one."""
        name = f"makegood_{table}" if self.world.dialect == "sqlite" else f"makegood.{table}"
        columns = self.columns[table]
        if self.rng.random() < 0.4:
            some = [c for c in columns if self.rng.random() < 0.9]
            values = ", ".join(self.value(table, column, kind) for column, kind in some)
            return f"insert into {name} ({', '.join(c for c, _ in some)}) values ({values})"
        key = columns[0][0]
        column, kind = self.rng.choice(columns)
        return (
            f"update {name} set {column} = {self.value(table, column, kind)} where {key} in "
            f"(select {key} from {name} order by {key} desc limit 1 offset {self.rng.randrange(6)})"
        )

    async def field(self) -> str:
        """Return a statement that changes one field of a stored policy or request whose rest is as it was; "" if there is none."""
        table, column, within = self.rng.choice((("step", "spec", "policy"), ("request", "body", "")))
        name = f"makegood_{table}" if self.world.dialect == "sqlite" else f"makegood.{table}"
        rows = await self.world.rows(
            f"select task, idx, {column} from {name} where {column} is not null order by task desc limit 6"
        )
        try:
            task, idx, data = self.rng.choice(rows)
            record = json.loads(data)
            target = record.setdefault(within, {}) if within else record
            which = self.rng.choice(list(FIELDS))
            target[which] = self.rng.choice(FIELDS[which])
        except (IndexError, TypeError, ValueError, AttributeError):
            return ""
        text = json.dumps(record).encode().hex()
        value = f"x'{text}'" if self.world.dialect == "sqlite" else f"'\\x{text}'::bytea"
        self.fields += 1
        return f"update {name} set {column} = {value} where task = {task} and idx = {idx}"

    async def write(self) -> None:
        """Write one; what the database refuses is fine."""
        sql = ""
        if self.rng.random() < 0.3:
            with contextlib.suppress(Exception):  # somebody else has locked what is to be read
                sql = await self.field()
        sql = sql or self.statement(self.rng.choice(TABLES))
        with contextlib.suppress(Exception):
            async with self.world.raw() as raw:
                await raw.run(sql.replace("{", "{{").replace("}", "}}").replace("?", "!"))
            self.written += 1


async def columns_of(world: World) -> dict[str, list[tuple[str, str]]]:
    columns: dict[str, list[tuple[str, str]]] = {}
    for table in TABLES:
        if world.dialect == "sqlite":
            rows: Sequence[Any] = await world.rows(
                f"select name, lower(type) from pragma_table_info('makegood_{table}')"
            )
        else:
            rows = await world.rows(
                "select column_name::text, data_type::text from information_schema.columns "
                f"where table_schema = 'makegood' and table_name = '{table}' order by ordinal_position"
            )
        columns[table] = [(name, kind) for name, kind in rows]
        assert columns[table], table
    return columns


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[Store]:
    """A store whose clock goes by itself."""
    store = SQLiteStore(world.path, poll=0.1) if world.dialect == "sqlite" else world.store()  # type: ignore[attr-defined]
    await store.open(migrate=True)
    try:
        yield store
    finally:
        await store.close()


def ends(node: Node) -> list[object]:
    """Return why actors have ended."""
    tasks = node._running._tasks  # noqa: SLF001 - nobody else knows
    return [task.exception() for task in tasks if task.done() and not task.cancelled()]


def shop_of() -> tuple[mg.App, Any]:
    shop = mg.App("shop")
    desk = shop.agent("desk", concurrency=10, rate="1000/s", breaker=mg.Breaker(failures=1000))

    @desk.action(complete_within="5s", undo=mg.NOTHING)
    async def pack(order: Any) -> Any:
        await moment()
        return order

    @desk.action(complete_within="2s", undo=mg.NOTHING, key="length=28", keeps="1m")
    async def charge(order: Any) -> Any:
        await moment()
        if not mg.current_call().key or (isinstance(order, dict) and mg.current_call().attempt == 1):
            raise ConnectionError("the answer is lost")
        return order

    @charge.probe
    async def find(order: Any) -> mg.Happened[Any] | mg.NotHappened:
        return mg.NOT_HAPPENED

    @shop.workflow(complete_within="10s")
    def place(order: Any) -> Any:
        parcel = pack(order)
        mg.wait_for("approval", dict, timeout=0.01, otherwise={})
        return pack(charge(parcel))

    @shop.inbox("orders")
    def accept(order: Any, tx: mg.Transaction) -> mg.Plan[Any]:
        return place.plan(order)

    return shop, place


@pytest.mark.timeout(400)  # its waits are long, for machines that do much else
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_role_ends_of_a_broken_row_and_innocent_tasks_are_processed(
    world: World, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    outbox = tmp_path / "app.db"
    with contextlib.closing(sqlite3.connect(outbox)) as file:
        file.executescript(ddl(f"sqlite:///{outbox}"))
    shop, place = shop_of()
    async with opened(world) as store:
        fuzzer = Fuzzer(world, await columns_of(world), rng)
        node = Node(shop, store, options=HARDY, rng=random.Random(seed), outbox=f"sqlite:///{outbox}")
        async with node:
            for n in range(60):
                with contextlib.suppress(mg.MakegoodError, TypeError, ValueError):
                    to = rng.choice(("queue:told", None))
                    lane = rng.choice(((), "ada", ["ada", "bob"], [f"lane {n}"]))
                    task = await node.client.submit(
                        place, {"n": n}, reply_to=to, priority=rng.randrange(10), lane=lane
                    )
                    await task.signal("approval", {"n": n})
                    await node.client.send("orders", {"n": n})
                for _ in range(5):
                    await fuzzer.write()
                await moment()
                assert node.dead() == "", ends(node)
            assert fuzzer.written > 100
            assert fuzzer.fields > 20

            async def processed() -> bool:
                """What was in the way is put aside by now, or soon."""
                task = await node.client.submit(place, "innocent")
                try:
                    return bool(await task.result(timeout="60s") == "innocent")
                except mg.MakegoodError:
                    return False

            await until(processed, "an innocent task to be processed", 90.0)
            results = [await node.client.submit(place, n, lane=f"new {n // 2}") for n in range(5)]
            assert [await task.result(timeout="60s") for task in results] == [0, 1, 2, 3, 4]
            assert node.dead() == "", ends(node)
            assert all(isinstance(line, str) for line in await store.admin.broken_rows(1000))
            await asyncio.sleep(0)
