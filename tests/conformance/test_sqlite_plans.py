"""SQLite only: what is asked for often is found by an index, whatever the number of ended tasks."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from makegood.base.sqlite_log import connect
from makegood.store import (
    alerts,
    lane_lists,
    lanes,
    notice_operations,
    open_store,
    supervision,
    task_lists,
    upkeep,
)
from makegood.store import signals as shared_signals
from makegood.store.filters import parse_filter
from makegood.store.migrations import migrations
from makegood.store.search import matching
from makegood.store.sqlite import claim, commit, load, requests, signals, submit, take
from makegood.store.transaction import Sql

PARTS = [part.split("(", 1)[1].rsplit(")", 1)[0] for part in task_lists.UNENDED.sqlite.split("union")]
NEXT = re.findall(r"\((select \w+ from .*? limit 1)\)", supervision.HORIZON.sqlite, re.DOTALL)
UNENDED = upkeep.UNENDED.sqlite.split("union all")
BATCHES = {
    "correlation:night": "makegood_task_correlation",
    "correlation:nig*": "makegood_task_correlation",
    "key:night/*": "makegood_task_key",
    "attribute:customer=ada": "makegood_attribute_value",
    "attribute:customer=ad*": "makegood_attribute_value",
    "lane:ada": "makegood_lane_name",
    "lane:ad*": "makegood_lane_name",
}
STATEMENTS = {
    "claim": (claim.PENDING, "makegood_task_claim"),
    "claim by age": (claim.PENDING_AGED, "makegood_task_claim"),
    "claim of sleepers": (claim.DUE, "makegood_task_sleeping"),
    "claim in lanes": (claim.QUEUED, "makegood_task_queued"),
    "places": (lanes._PLACES.sqlite, "PRIMARY KEY"),
    "last place": (lanes.LAST.sqlite, "makegood_lane_waiting"),
    "next places": (lanes.NEXT.sqlite, "makegood_lane_waiting"),
    "let go": (lanes.UNPARK.sqlite, "INTEGER PRIMARY KEY"),
    "lanes taken": (lanes.TAKEN.sqlite, "makegood_lane_waiting"),
    "first places": (lanes.FIRST.sqlite, "makegood_lane_waiting"),
    "places held": (lanes._TAKE.sqlite, "PRIMARY KEY"),
    "places left": (lanes._LEAVE.sqlite, "PRIMARY KEY"),
    "places given up": (lanes._QUIT.sqlite, "PRIMARY KEY"),
    "places queued again": (lanes._ENTER.sqlite, "PRIMARY KEY"),
    "waiters": (lane_lists.WAITING.sqlite, "makegood_lane_waiting"),
    "listed queued": (
        "select app from makegood_task where state = 'queued' and id < 9 order by id desc limit 9",
        "makegood_task_in_queue",
    ),
    "take at all": (take.ANY, "makegood_request_take"),
    "take": (take.WAITING, "makegood_request_take"),
    "take by age": (take.WAITING_AGED, "makegood_request_take"),
    "rate": (take.RATE, "PRIMARY KEY"),
    "notices given up": (notice_operations.GIVEN_UP.sqlite, "makegood_listener_failed"),
    "receivers": (alerts.RECEIVERS.sqlite, "makegood_listener_failed"),
    "judge": (supervision.OVERDUE.sqlite, "makegood_request_judge"),
    "dead nodes": (supervision.DEAD.sqlite, "makegood_node_alive"),
    "holders": (supervision.HOLDERS.sqlite, "makegood_task_held"),
    "held by": (supervision.HELD_BY.sqlite, "makegood_task_held"),
    "deaf": (supervision.UNRESPONSIVE.sqlite, "makegood_inbox_expired"),
    "past complete-by": (supervision.PAST.sqlite, "makegood_task_complete_by"),
    "late undo": (supervision.LATE_UNDO.sqlite, "makegood_task_undo_by"),
    "starved": (supervision.STARVED.sqlite, "makegood_request_starved"),
    "unclaimed": (alerts.UNCLAIMED.sqlite, "makegood_task_claim"),
    "next request": (NEXT[0], "makegood_request_judge"),
    "next task": (NEXT[1], "makegood_task_complete_by"),
    "next node": (NEXT[2], "makegood_node_alive"),
    "by key": (submit.BY_KEY, "makegood_task_key"),
    "signal": (signals._BY_ID, "makegood_signal_id"),
    "signals of a task": (shared_signals._VIEWS.sqlite, "makegood_signal_id"),
    "signal by key": (signals._BY_KEY, "makegood_task_key"),
    "inserted": (submit._OURS, "INTEGER PRIMARY KEY"),
    "epochs": (commit._EPOCHS, "INTEGER PRIMARY KEY"),
    "requests": (commit._THERE, "PRIMARY KEY"),
    "steps": (load._STEPS, "sqlite_autoindex_makegood_step"),
    "messages": (load._INBOX, "makegood_inbox_task"),
    "messages of held tasks": (requests.HELD_INBOX, "makegood_task_held"),
    "depths": (upkeep.DEPTHS.sqlite, "makegood_request_take"),
    "pending": (UNENDED[0], "makegood_task_claim"),
    "held": (UNENDED[1], "makegood_task_held"),
    "in error": (UNENDED[2], "makegood_task_error"),
    "asleep": (upkeep.SLEEPERS.sqlite, "makegood_task_sleeping"),
    "late": (upkeep.LATE_STARTS.sqlite, "makegood_task_sleeping"),
    "due lag": (upkeep.DUE_LAG.sqlite, "makegood_task_sleeping"),
    "listed asleep": (
        "select app from makegood_task where state = 'sleeping' and id < 9 order by id desc limit 9",
        "makegood_task_asleep",
    ),
    "listed pending": (PARTS[0], "makegood_task_claim"),
    "listed held": (PARTS[1], "makegood_task_held"),
    "listed in error": (PARTS[2], "makegood_task_error"),
    "listed steps": (task_lists.STEPS.sqlite, "sqlite_autoindex_makegood_step"),
    "listed requests": (task_lists.REQUESTS.sqlite, "PRIMARY KEY"),
    **{
        f"{kind} {text}": (Sql(text_.format(matching(parse_filter(text))[0])).sqlite, index)
        for kind, text_ in (
            ("find", "select id from makegood.task where {} order by id desc limit 101"),
            ("count", "select state, count(*) from makegood.task where {} group by state"),
        )
        for text, index in BATCHES.items()
    },
    "standing": (upkeep.STANDING.sqlite, "makegood_alert_open"),
}
MAY_SORT = {
    "claim of sleepers",
    "messages",
    "messages of held tasks",
    "signals of a task",
    "pending",
    "held",
    "in error",
    "asleep",
    "late",
    "standing",
    *(f"count {text}" for text in BATCHES),
    *(f"find {text}" for text in BATCHES),
}  # those of a few tasks, or counted by kind now and then


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """An empty database with the schema."""
    with closing(connect(f"file:{tmp_path}/s.db", timeout=5)) as connection:
        for migration in migrations("sqlite"):
            connection.executescript(migration.sql)
        yield connection


@pytest.mark.parametrize("name", STATEMENTS)
def test_the_plan_goes_by_an_index(database: sqlite3.Connection, name: str) -> None:
    sql, index = STATEMENTS[name]
    sql = sql.format(marks="?,?,?")
    parameters = re.findall(r"\?(\d)", sql)
    values = [1] * (max(map(int, parameters)) if parameters else sql.count("?"))
    plan = [row[3] for row in database.execute(f"explain query plan {sql}", values)]
    assert any(index in step for step in plan), plan
    fine = (
        "constant row",
        "clock",
        "oldest",
        "holder",
        "subquery",
        "json_each",
        "sleepers",
        "scan h",  # hosts
        "scan w",
        "makegood_ready",  # it has one row
    )  # in capitals before SQLite 3.39
    scans = [
        step for step in plan if step.startswith("SCAN") and not any(word in step.lower() for word in fine)
    ]
    assert all(index in step and "_" in index for step in scans), plan  # in its order, to a limit
    assert name in MAY_SORT or not any("TEMP B-TREE" in step for step in plan), plan


@pytest.mark.parametrize(
    "sql",
    [
        lane_lists.HELD_LANES, lane_lists.WAITING_LANES, lane_lists.NAMESAKES, lane_lists.HOLDERS, lane_lists.HELD_COUNT,
        lane_lists.WAITING_COUNT, lane_lists.PLACES,
    ],
)  # fmt: skip
def test_lists_of_lanes_scan_no_table(database: sqlite3.Connection, sql: Sql) -> None:
    parameters = max(map(int, re.findall(r"\?(\d)", sql.sqlite)))
    plan = [row[3] for row in database.execute(f"explain query plan {sql.sqlite}", [1] * parameters)]
    scans = {step.split()[1] for step in plan if step.startswith("SCAN")} - {"TABLE", "SUBQUERY"}
    assert scans <= {"part", "lanes", "json_each", "CONSTANT"}, plan
    assert any("makegood_lane_" in step for step in plan), plan


def test_the_inbox_is_read_in_the_order_in_which_it_came(database: sqlite3.Connection) -> None:
    """It holds only what waits; sorting it, or looking at each held task, would cost more."""
    plan = [row[3] for row in database.execute(f"explain query plan {requests.INBOX}", (1, 1))]
    assert plan[0] in ("SCAN i", "SCAN TABLE makegood_inbox AS i")  # SQLite before 3.36 names the table
    assert "USING INTEGER PRIMARY KEY" in plan[1]
    assert plan[1].startswith(("SEARCH t ", "SEARCH TABLE makegood_task AS t "))
    assert not any("TEMP B-TREE" in step for step in plan)


@pytest.mark.parametrize(
    ("most", "step", "priorities"), [(50, 10**17, [9]), (-1, 10, [7, 8, 9])], ids=["strict", "by age"]
)
def test_a_claim_reads_no_more_sleepers_than_it_wants(
    database: sqlite3.Connection, most: int, step: int, priorities: list[int]
) -> None:
    """1,000 are due of ten priorities: the best 50 are read whole, and no others. By age, ten microseconds count as a priority."""
    columns = "id, app, workflow, fingerprint, state, goal, on_failure, submission, priority, ready_seq, epoch, cause, failure_count"
    database.executemany(
        f"insert into makegood_task ({columns}, lost, task_expired, created_at, static) "
        "values (?, 'shop', 'order', x'', 'sleeping', 'forward', 'undo', 1, ?, ?, 1, '', 0, 0, 0, 0.0, x'')",
        [(n, n % 10, n // 10) for n in range(1, 1001)],
    )
    rows = database.execute(claim.DUE, (50, 0, 5000, 5000, most, step)).fetchall()
    assert len(rows) == 50
    assert sorted({row[claim._PRIORITY] for row in rows}) == priorities


async def test_statistics_of_an_almost_empty_store_are_forgotten(tmp_path: Path) -> None:
    """After an ANALYZE of a few rows SQLite scans the requests for those of an agent, however many there are."""
    path = tmp_path / "s.db"
    store = open_store(f"sqlite:///{path}")
    await store.open(migrate=True)
    await store.close()
    with closing(sqlite3.connect(path)) as other, other:
        row = "values (?, 0, 1, 'do', 'a', 'b', 0, 0, 0, 0, 1, 1, 0)"
        columns = "task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, within, answered"
        other.executemany(f"insert into makegood_request ({columns}) {row}", [(n,) for n in range(10)])
        other.execute("create table orders (id integer primary key, customer text)")
        other.execute("create index by_customer on orders (customer)")
        other.execute("insert into orders (customer) values ('ada')")
        other.execute("analyze")
    assert "SCAN" in _plan_of_take(path)
    await store.open()
    try:
        assert "makegood_request_take" in _plan_of_take(path)
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("select distinct tbl from sqlite_stat1").fetchall() == [("orders",)]
    finally:
        await store.close()


def _plan_of_take(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute(f"explain query plan {take.ANY}", ("a",)).fetchall())
