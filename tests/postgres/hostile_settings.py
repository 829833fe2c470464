"""Every setting that a role can have, one at a time, at its extremes: a store works as on a server as it comes. `make hostile` runs it.

A role or a database may carry any setting (``alter database shop set ...``), and everything that connects gets it. Each value is set on a
database; then a store is created there, tasks are submitted in every way, run, fail, are undone and read, and the answers are compared.
"""

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

import makegood as mg
from makegood.election import open_leases
from makegood.errors import ConfigError, MakegoodError
from makegood.options import Options
from makegood.store.postgres import PostgresStore
from proofs.private_server import PrivateServer
from tests.postgres.conftest import SETTINGS

PATIENCE = 60.0
KEY = "Z\u00fcrich \\ 'quoted' \"\u65e5\u672c\" 1/2"
AWKWARD = {
    "text": "back\\slash 'quote' \"double\" $1 %s ? \u00e9\u20ac\u65e5\u672c\U0001f600 \\x41 NULL {}",
    "tiny": 5e-324, "huge": 1.7976931348623157e308, "third": 0.1 + 0.2, "none": None, "long": 2**62, "list": [None, "NULL", ""],
}  # fmt: skip
TEXTS = {
    "DateStyle": ["SQL, DMY", "German"],
    "TimeZone": ["Asia/Kathmandu", "America/St_Johns"],
    "client_encoding": ["LATIN1", "WIN1251"],
    "search_path": ["", "nowhere, public"],
    "timezone_abbreviations": ["Australia"],
    "default_text_search_config": ["pg_catalog.german"],
    "lc_messages": ["C", "POSIX"],
    "lc_monetary": ["C", "POSIX"],
    "lc_numeric": ["C", "POSIX"],
    "lc_time": ["C", "POSIX"],
    "application_name": ["shop"],
    "log_statement": ["all"],
    "temp_tablespaces": [""],
    "session_replication_role": ["replica", "local"],
    "restrict_nonsystem_relation_kind": ["view, foreign-table"],
}
"""Values of settings that have neither a range nor a list."""
SHORT = {
    "statement_timeout": "30", "transaction_timeout": "50", "idle_in_transaction_session_timeout": "100", "idle_session_timeout": "200",
}  # fmt: skip
"""Limits that leave a connection its first statement, in milliseconds: at 1 ms nobody can use the server."""
UNLIMITED = f"select set_config(name, '0', false) from pg_settings where name = any ('{{{','.join(SHORT)}}}')"
"""The application's own first statement, since limits hold for its connections too."""
REFUSED = {("default_transaction_read_only", "on"): "read-only"}
"""What makegood refuses, with a word of its error."""
UNUSABLE = {
    # These keep any client from connecting or creating anything, or are no setting of a database.
    "transaction_isolation", "transaction_read_only", "transaction_deferrable", "is_superuser", "session_authorization", "role", "seed",
    "debug_discard_caches",  # each statement takes seconds
    "max_stack_depth",  # the server itself needs more
    "wal_consistency_checking", "trace_sort", "trace_locks", "backtrace_functions", "ignore_checksum_failure", "zero_damaged_pages",
    "session_preload_libraries", "local_preload_libraries", "dynamic_library_path", "extension_destdir", "output_plugin_libraries",
    "default_tablespace", "default_table_access_method",  # there is one of each here
}  # fmt: skip
ALL = """
select name, vartype, min_val, max_val, enumvals, setting from pg_settings
where context in ('user', 'superuser') order by name
"""


@pytest.fixture(scope="module")
def hostile() -> Iterator[PrivateServer]:
    """A server of these tests' own."""
    try:
        private_server = PrivateServer(database="postgres", settings=SETTINGS)
    except ConfigError as missing:
        pytest.skip(f"postgres: {missing}")
    with private_server:
        private_server.create_database("hostile", "template0")
        yield private_server


def values(row: dict[str, Any]) -> list[str]:
    """Return the hostile values of a setting."""
    name, kind = row["name"], row["vartype"]
    if name in UNUSABLE:
        return []
    if name in SHORT:
        return [SHORT[name], row["max_val"]]
    if kind == "bool":
        return ["off" if row["setting"] == "on" else "on"]
    if kind == "enum":
        return [value for value in row["enumvals"] if value != row["setting"]]
    if kind in ("integer", "real"):
        numbers = {
            row["min_val"],
            row["max_val"],
            "1" if float(row["min_val"]) < 1 < float(row["max_val"]) else row["min_val"],
        }
        return sorted(numbers - {row["setting"]})
    return TEXTS.get(name, [])


app = mg.App("hostile")
agent = app.agent("service", concurrency=4)


@agent.action(complete_within="20s", undo=mg.NOTHING)
async def echo(value: dict[str, Any], number: float) -> dict[str, Any]:
    """Return what it is given."""
    return {"value": value, "number": number}


@agent.action(complete_within="20s")
async def reserve(name: str) -> str:
    """Do something that can be undone."""
    return name


@reserve.undo
async def release(name: str, *, result: str | None) -> None:
    """Undo it."""


@agent.action(complete_within="20s", undo=mg.NOTHING)
async def refuse(name: str) -> str:
    """Fail."""
    raise mg.Permanent(f"refused: {name}")


@app.workflow(complete_within="10m")
def right(value: dict[str, Any], number: float) -> dict[str, Any]:
    """Succeed."""
    return echo(value, number)


@app.workflow(complete_within="10m")
def wrong(name: str) -> str:
    """Fail, and be undone."""
    return refuse(reserve(name))


async def seen(url: str) -> dict[str, Any]:
    """Use a store in every way; return what it answers."""
    await PostgresStore(url).admin.migrate()
    answers: dict[str, Any] = {"check": await PostgresStore(url).admin.check()}
    async with mg.Node(app, url, options=Options(poll_every="500ms", drain="2s")) as node:
        client = node.client
        first = await client.submit(right, AWKWARD, math.pi, key=KEY)
        plain = await asyncpg.connect(url)
        await plain.execute(UNLIMITED)
        async with plain.transaction():
            second = await client.submit(right, AWKWARD, math.e, key=f"{KEY} asyncpg", connection=plain)
        await plain.close()
        async with await psycopg.AsyncConnection.connect(url) as other:
            await other.execute(UNLIMITED)
            await other.commit()
            third = await client.submit(right, AWKWARD, math.e, key=f"{KEY} psycopg", connection=other)
            again = await client.submit(right, AWKWARD, math.e, key=f"{KEY} psycopg", connection=other)
        fourth = await client.submit(wrong, "it", key="wrong")
        answers["results"] = [await task.result(timeout=PATIENCE) for task in (first, second, third)]
        answers["again"] = (third.created, again.created)
        with pytest.raises(mg.TaskUndone) as error:
            await fourth.result(timeout=PATIENCE)
        answers["undone"] = str(error.value.cause)
        answers["found"] = sorted(str(view.key) for view in await client.find(mg.Filter(limit=10)))
        answers["moves"] = [
            [move[1:3] for event in await node.store.tasks.history(int(view.id)) for move in event.moves]
            for view in await client.find(mg.Filter(limit=10, states=("undone",)))
        ]
        answers["known"] = [
            bool(task.id) for task in (await client.submit(right, AWKWARD, math.pi, key=KEY),)
        ]
        answers["findings"] = sorted(
            f.what for f in await node.store.admin.examine() if f.severity == "error"
        )
    async with open_leases(url, timeout="5s") as leases:
        grant = await leases.acquire("reports", "host-1", "nonce-1", 30.0)
        assert grant is not None
        view = await leases.read("reports")
        answers["lease"] = (grant.epoch, await leases.renew(grant), view and view.holder)
    return answers


def test_every_setting_one_at_a_time(hostile: PrivateServer) -> None:
    """All that differ are named at the end."""
    columns = ("name", "vartype", "min_val", "max_val", "enumvals", "setting")
    rows = asyncio.run(_rows(hostile.url))
    url, reference, wrong = hostile.url_of("hostile"), None, []
    for row in [None, *(dict(zip(columns, row_values, strict=True)) for row_values in rows)]:
        for value in [""] if row is None else values(row):
            hostile.run("drop schema if exists makegood, makegood_election cascade", database="hostile")
            if row is not None:
                hostile.run(
                    f"alter database hostile set {_quoted(row['name'])} = {_literal(row['name'], value)}"
                )
            try:
                answers = asyncio.run(_within(seen(url)))
            except (
                MakegoodError,
                TimeoutError,
                asyncpg.PostgresError,
                psycopg.Error,
                AssertionError,
                OSError,
            ) as fault:
                answers = f"{type(fault).__name__}: {fault}"
            hostile.run("alter database hostile reset all")
            reference = answers if row is None else reference
            assert isinstance(reference, dict), reference
            refusal = REFUSED.get((row["name"], value)) if row is not None else None
            if answers != reference and not (refusal and isinstance(answers, str) and refusal in answers):
                differing = (
                    answers
                    if isinstance(answers, str)
                    else {k: v for k, v in answers.items() if v != reference[k]}
                )
                assert row is not None
                wrong.append(f"{row['name']} = {value}: {differing}")
    assert not wrong, "\n".join(wrong)


async def _within(work: Any) -> Any:
    async with asyncio.timeout(3 * PATIENCE):
        return await work


async def _rows(url: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(ALL)]
    finally:
        await connection.close()


def _quoted(name: str) -> str:
    return '"' + name + '"'


def _literal(name: str, value: str) -> str:
    if name in ("search_path", "DateStyle") and value:
        return ", ".join(f"'{part.strip()}'" for part in value.split(","))
    return "'" + value.replace("'", "''") + "'"
