"""Rows that nobody of makegood wrote, column by column, and what shows rows: pages, API, exports, command line."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple

from makegood.base import ids
from makegood.model.messages import Act, TaskMessage
from makegood.store import open_store, rows
from tests.browser.sample import fill
from tests.conformance.worlds import World

TABLES: Final = (
    "task", "attribute", "schedule", "step", "request", "inbox", "signal", "event", "audit", "alert", "node", "lease", "lease_term", "message", "listener", "notice",
    "rate", "refusal", "minute", "bulk_act", "bulk_item", "supervisor_decision", "writer",
)  # fmt: skip
"""Left out are the rows of which there is one for the whole store, without which there is no store."""
LONG: Final = "k" * 500
NESTED: Final = '{"a":' + "[" * 3000 + "]" * 3000 + "}"
TEXTS: Final = (
    "",
    "of a newer version",
    "\u202eENIL EKAF\u2066 \u200b\u2060\ufeff\u00ad\U000e0041",
    "<script>alert(1)</script>",
    "`makegood` `",
    LONG,
    "x" * 1_000_000,
    "a\nb\r\tc\x1b[2J",
)
NUMBERS: Final = ("-1", "0", "7", str(2**31 - 1), str(2**62), str(2**63 - 1), str(-(2**63)))
FLOATS: Final = (
    "1e300",
    "-1e300",
    "1.7976931348623157e308",
    "1e15",
    "4.6e18",
    "-1.0",
    "0.0",
    "253402300800.0",
    "1e11",
)
BYTES: Final = (
    b"", b"\xff\xfe", b"null", b"[]", b"{}", b"7", b'"\\ud800"', b"[[]]", b'[["task","a"]]', NESTED.encode(), b"1e999", b"NaN",
    b"[" + b"9" * 5000 + b"]", b'{"inputs":[1],"returns":{"form":"{}"}}', b"x" * 1_000_000,
)  # fmt: skip


class Column(NamedTuple):
    """A column as the database describes it."""

    table: str
    name: str
    kind: str


def literals(dialect: str, kind: str) -> list[str]:
    """Return values for a column of this type, as SQL; on SQLite also those of every other type."""
    texts = [_text(text, dialect) for text in TEXTS]
    blobs = [f"x'{data.hex()}'" if dialect == "sqlite" else f"'\\x{data.hex()}'::bytea" for data in BYTES]
    numbers = (
        list(NUMBERS)
        if kind != "integer" or dialect == "sqlite"
        else [n for n in NUMBERS if abs(int(n)) < 2**31]
    )
    if dialect == "sqlite":
        others = ["9e999", "-9e999", "cast(x'ff61' as text)", "'a' || char(0) || 'b'", "null"]
        by_kind = {
            "text": [*texts, "7", "x'ff'"],
            "blob": [*blobs, "'text'", "7"],
            "real": [*FLOATS, str(2**62), "'soon'", "x'ff'"],
        }
        return by_kind.get(kind, [*numbers, "1e300", "0.5", "'many'", "x'ff'"]) + others
    wide = ["null"]
    by_kind = {
        "text": texts, "bytea": blobs, "boolean": ["true", "false"],
        "double precision": [*FLOATS, "'NaN'::float8", "'Infinity'::float8", "'-Infinity'::float8"],
    }  # fmt: skip
    return by_kind.get(kind, numbers) + wide


def _text(text: str, dialect: str) -> str:
    literal = "'" + text.replace("'", "''") + "'"
    return literal if dialect == "sqlite" else f"{literal}::text"


def json_literals(data: bytes, dialect: str, chance: Random) -> list[str]:
    """Return JSON with one leaf of another kind each."""
    try:
        value = json.loads(data)
    except ValueError:
        return []
    places = list(_leaves(value))
    values = []
    for place in chance.sample(places, min(len(places), 12)):
        other: object = chance.choice(
            [-1, 2**62, 1e300, "", None, [], {}, "of a newer version", True, 10**40, 0]
        )
        text = json.dumps(_with(value, place, other)).encode()
        values.append(f"x'{text.hex()}'" if dialect == "sqlite" else f"'\\x{text.hex()}'::bytea")
    return values


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(part, (*place, key))


def _with(value: Any, place: Sequence[Any], other: Any) -> Any:
    if not place:
        return other
    if isinstance(value, dict):
        return {
            key: _with(part, place[1:], other) if key == place[0] else part for key, part in value.items()
        }
    return [_with(part, place[1:], other) if n == place[0] else part for n, part in enumerate(value)]


class Rows:
    """The rows of a filled store, to break and to put back."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.first: dict[str, str] = {}
        """The first column of each table, which is its key or begins it."""
        self._name = "makegood_{}" if world.dialect == "sqlite" else "makegood.{}"

    def table(self, name: str) -> str:
        """Return the name of a table in this database."""
        return self._name.format(name)

    async def run(self, sql: str) -> list[Any]:
        """Execute a statement."""
        async with self.world.raw() as raw:
            return list(await raw.run(sql.replace("{", "{{").replace("}", "}}")))

    async def columns(self) -> list[Column]:
        """Return all columns, and keep a copy of each table."""
        columns = []
        for table in TABLES:
            name = self.table(table)
            await self.run(f"create table saved_{table} as select * from {name}")
            if self.world.dialect == "sqlite":
                types = await self.run(f"select name, lower(type) from pragma_table_info('{name}')")
            else:
                types = await self.run(
                    "select column_name::text, data_type::text from information_schema.columns "
                    f"where table_schema = 'makegood' and table_name = '{table}' order by ordinal_position"
                )
            columns += [Column(table, column, kind) for column, kind in types]
            self.first[table] = types[0][0]
        return columns

    async def damage(self, column: Column, literal: str, *, one: bool = False) -> bool:
        """Write a value into a column of all rows, or of the last one if ``one`` or if the database refuses more; False if it refuses that, too."""
        name = self.table(column.table)
        first = self.first[column.table]
        last = f" where {first} = (select max({first}) from {name})"
        for where in (last,) if one else ("", last):
            with suppress(Exception):  # a database's own
                await self.run(f"update {name} set {column.name} = {literal}{where}")
                return True
        return False

    async def restore(self, table: str) -> None:
        """Put the rows of a table back."""
        name = self.table(table)
        always = "" if self.world.dialect == "sqlite" else " overriding system value"
        await self.run(f"delete from {name}")
        await self.run(f"insert into {name}{always} select * from saved_{table}")


MORE: Final = (
    ("message (queue, id, body, sent_at, visible_at, headers, correlation_id, reply_to, taken_by)", "'orders', 'm1', ?, 1.8e9, 1.8e9, ?, 'c', 'queue:a', 'desk'", (b'{"n": 1}', b'{"a": "b"}')),
    ("message (queue, id, state, body, sent_at, visible_at, error, ended_at)", "'orders', 'm2', 'dead', ?, 1.8e9, 1.8e9, 'no such order', 1.8e9", (b'{"n": 2}',)),
    ("message (queue, id, body, sent_at, visible_at)", "'parcels', 'm3', ?, 1.8e9, 1.8e9", (b'{"n": 3}',)),
    ("listener (task, host, url, sent, last, due_at, error)", "1, 'shop.example', 'https://shop.example/told', 0, 1, 1.8e9, '500'", ()),
    ("listener (task, host, url, sent, last, dead, error)", "2, 'shop.example', 'https://shop.example/told', 0, 1, true, '500'", ()),
    ("notice (task, sequence, body)", "1, 1, ?", (b'{"id": "a"}',)),
    ("signal (task, name, id, step, at, who, digest, body)", "1, 'approval', 's1', 'approval[3]', 1.8e9, 'ann', ?, ?", (b"d", b"true")),
    ("signal (task, name, id, at, digest, used, used_at)", "1, 'approval', 's2', 1.8e9, ?, 0, 1.8e9", (b"d",)),
    ("rate (agent, next)", "'shop/payments', 1.8e9", ()),
    ("supervisor_decision (at, epoch, kind, tasks, task)", "1.8e9, 1, 'judged', 4, 7", ()),
    ("supervisor_decision (at, epoch, kind, tasks, task)", "1.8e9, 1, 'freed', 2, 8", ()),
    ("bulk_item (bulk, task, act, outcome, at)", "'bulk-2', 7, 'bulk-2/7', 'refused: it has ended', 1.8e9", ()),
    ("bulk_item (bulk, task, act, at)", "'bulk-2', 8, 'bulk-2/8', 1.8e9", ()),
)  # fmt: skip
"""Rows of tables that ``fill`` leaves empty: (table and columns, values, bytes)."""


async def fill_tables(world: World, url: str) -> int:
    """Fill a store, every table of it; return a task in error."""
    store = open_store(url)
    await store.open(migrate=True)
    task = await fill(store)
    await store.close()
    command = rows.message(TaskMessage("cancel", act=Act("act-9", "ann", "it is late")))
    more = (*MORE, ("inbox (task, kind, at, body)", f"{task}, 'cancel', 1.8e9, ?", (command,)))
    async with world.raw() as raw:
        for into, values, data in more:
            name = f"makegood_{into}" if world.dialect == "sqlite" else f"makegood.{into}"
            await raw.run(f"insert into {name} values ({values})", *data)
    return task


def url_of(world: Any) -> str:
    """Return the URL of a world's database."""
    return f"sqlite:///{world.path}" if world.dialect == "sqlite" else str(world.url)


PAGES: Final = (
    "/", "/tasks", "/tasks?q=state:error", "/alerts", "/errors", "/agents", "/cluster", "/bulk", "/bulk/bulk-2", "/bulk/new?kind=undo&q=state:error",
    "/schedules", "/lanes", "/lanes/show?app=shop&name=ada", "/brokers", "/audit", "/audit.csv", "/audit.jsonl", "/stores", "/stores/doctor", "/api/v1/tasks", "/api/v1/nodes", "/api/v1/leader", "/api/v1/queues",
    "/api/v1/bulk", "/api/v1/bulk/bulk-2", "/api/v1/alerts", "/api/v1/errors", "/api/v1/audit", "/api/v1/schedules",
)  # fmt: skip
"""What shows rows, tasks aside."""
COMMANDS: Final = (
    "task list", "task show TASK", "task history TASK", "alerts", "audit", "agents", "leader", "leader history", "queue list", "queue list orders",
    "queue list orders --dead", "notices list", "notices list --dead", "store status", "store check", "doctor", "task undo --filter state=error --dry-run",
)  # fmt: skip
"""Commands that show rows."""


def pages_of(task: int) -> tuple[str, ...]:
    """Return the pages of a task, and what the API says of it."""
    name = ids.show(task)
    return f"/tasks/{name}", f"/api/v1/tasks/{name}", f"/api/v1/tasks/{name}/history"


SHOWN_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "task": ("/", "/tasks", "/tasks?q=state:error", "/alerts", "/errors", "/audit", "/bulk/new?kind=undo&q=state:error", "/api/v1/tasks", "/api/v1/errors"),
    "step": ("/", "/tasks", "/errors", "/agents", "/api/v1/errors"), "request": ("/", "/tasks", "/agents", "/api/v1/nodes"),
    "inbox": ("/", "/tasks"), "event": ("/", "/errors", "/api/v1/errors"), "alert": ("/", "/alerts", "/tasks", "/api/v1/alerts"),
    "audit": ("/", "/audit", "/audit.csv", "/audit.jsonl", "/bulk", "/bulk/bulk-2", "/api/v1/audit"),
}  # fmt: skip
"""The pages that read a table, those of tasks aside; of other tables: all."""


def pages_for(table: str, tasks: Sequence[int]) -> list[str]:
    """Return the pages that read a table."""
    places = SHOWN_BY.get(table)
    lists = [page for page in PAGES if places is None or page in places]
    return [*lists, *(page for task in tasks for page in pages_of(task))]
