"""``makegood store grants``: a whole shop runs with a role for each process, and a leaked credential of one does no other's work."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

import makegood as mg
from makegood.base import ids
from makegood.election.stores.postgres import PostgresLeases
from makegood.errors import ConfigError
from makegood.messaging.outbox import ddl
from makegood.model.messages import Act, Alert, SignalRef, TaskMessage
from makegood.store import open_store, rows
from makegood.store.grants import ROLES, resolve_roles, script
from tests.doors.cli_app import Order, buy
from tests.doors.conftest import Shop
from tests.doors.guarded_shop import AGENTS, PASSWORD, Guarded, guarded_shop
from tests.waiting import moment

__all__ = ["guarded_shop"]

asyncpg = pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")


def submitted(shop: Guarded, id_: str, *words: str, card: str = "good", code: int = 0) -> Any:
    """Submit an order as the submitter's role and wait for its end."""
    order = json.dumps({"id": id_, "card": card})
    words = ("kiosk:buy", order, *words, "--wait", "--timeout", "60s")
    return shop.said("submitter", "task", "submit", *words, code=code)


def test_a_storm_with_a_role_for_each_process_ends_right(guarded_shop: Guarded) -> None:
    """Orders, refusals with undo, a stuck undo, an application's transaction, an inbox and a relay, a kill -9 with take-over, notices,
    dead letters, operators, another migration, a promotion: each done by the role whose work it is, and by no other.
    """
    shop = guarded_shop
    outbox = f"sqlite:///{shop.folder / 'out.db'}"
    _put(outbox, "relayed")
    supervisor = shop.role("supervisor", "supervisor")
    first = shop.role("scheduler", "scheduler")
    shop.role("agent_kiosk_stock", "agent", "kiosk:kiosk", "stock")
    till = shop.role("agent_kiosk_till", "agent", "kiosk:kiosk", "till")
    shop.role("inbox", "inbox", "kiosk:kiosk", "--from", outbox)
    task = _ordered(shop)

    first.kill()
    till.kill()
    shop.may("submitter", "task", "submit", "kiosk:buy", '{"id": "d"}', "--key", "d")
    shop.role("scheduler", "scheduler")
    shop.role("agent_kiosk_till", "agent", "kiosk:kiosk", "till")
    _until(shop, "select 1 from makegood.task where key = 'd' and state = 'processed'")

    _operated(shop, task)
    # another migration adds a table: it can be read at once, and the grants are applied again under load
    shop.sql("create table makegood.later (a integer)", "owner")
    assert shop.sql("select count(*) from makegood.later", "reader") == [(0,)]
    for _ in range(3):  # a deadlock with one of the processes would show now and then
        shop.granted(*AGENTS)
    assert submitted(shop, "f")["result"] == "paid-100-for-hold-f"
    shop.sql("drop table makegood.later", "owner")

    supervisor.kill()
    _promoted(shop)
    assert len(shop.said("reader", "task", "list", "--filter", "attribute:customer=ada")) == 2
    shop.may("supervisor", "store", "prune", "--older", "0s")
    assert shop.sql("select id from makegood.task where state <> 'error'") == []
    assert shop.sql("select task from makegood.attribute") == []
    assert shop.sql("select kind from makegood.alert where kind in ('poison', 'unreadable')") == []
    shop.close()


NAPPING = mg.App("naps")


@NAPPING.workflow
def nap() -> str:
    """Sleep, as no process holds it; wait for a signal that nobody sends; end."""
    mg.sleep("300ms")
    return mg.wait_for("word", str, timeout="300ms", otherwise="silence")


def test_a_scheduler_of_its_own_role_lets_tasks_go_and_wakes_them(guarded_shop: Guarded) -> None:
    """Those that sleep, wait for a signal, or begin later; submitted, slept and claimed with the rights of these roles alone."""
    shop = guarded_shop
    scheduler = shop.role("scheduler", "scheduler", MAKEGOOD_LINGER="10ms")
    moment_to_begin = datetime.now(ZoneInfo("Europe/Berlin")) + timedelta(milliseconds=300)

    async def submit() -> list[str]:
        async with mg.Client(shop.as_("submitter")) as client:
            tasks = [
                await client.submit(nap),
                await client.submit(nap, delay="300ms"),
                await client.submit(nap, at=moment_to_begin),
            ]
            return [await task.result(timeout=120) for task in tasks]

    assert asyncio.run(submit()) == ["silence"] * 3
    assert scheduler.poll() is None
    moves = shop.sql(
        "select count(*) from makegood.event where convert_from(moves, 'UTF8') like '%suspended%'"
    )
    assert moves[0][0] >= 6
    shop.close()


def _ordered(shop: Guarded) -> str:
    """Submit in all ways; returns the task whose undo is stuck."""
    assert (
        submitted(shop, "a", "--key", "a", "--reply-to", "queue:web", "--attribute", "customer=ada")["result"]
        == "paid-100-for-hold-a"
    )
    assert submitted(shop, "b", card="declined", code=5)["state"] == "undone"
    task: str = submitted(shop, "c", card="stuck", code=6)["id"]
    assert "task.processed" in shop.may("submitter", "queue", "receive", "web", "--json")
    assert submitted(shop, "w", "--reply-to", "https://hooks.invalid/x")["result"] == "paid-100-for-hold-w"
    # in a transaction of the application's own, whose login is a member of the submitter's role
    shop.login("web", "submitter")
    shop.sql(f'create table shop_order (id text); grant insert on shop_order to "{shop.prefix}web"')
    asyncio.run(_in_a_transaction(shop))
    shop.may("submitter", "queue", "send", "orders", '{"id": "by-message"}')
    shop.may("submitter", "queue", "send", "orders", '{"nothing": 1}')
    for key in ("by-transaction", "by-message", "relayed"):
        _until(shop, f"select 1 from makegood.task where key = '{key}' and state = 'processed'")
    return task


def _operated(shop: Guarded, task: str) -> None:
    """Do what operators do, under a login of one person's own; and look as a reader."""
    shop.login("anna", "operator")
    options = ("--step", "reserve", "--undone", "--who", "ceo@bank", "--reason", "by hand")
    shop.may("anna", "task", "settle", task, *options)
    (act,) = [act for act in shop.said("reader", "audit") if act["kind"] == "settle"]
    assert (act["who"], act["db_user"]) == ("ceo@bank", f"{shop.prefix}anna")
    notes = [event["note"] or "" for event in shop.said("reader", "task", "history", task)]
    assert any(f"database user {shop.prefix}anna" in note for note in notes)
    assert shop.said("reader", "task", "show", task)["state"] == "undone"
    (dead,) = _until(shop, "select id from makegood.message where state = 'dead'")
    shop.may("anna", "queue", "replay", "orders", dead[0])
    _until(shop, "select id from makegood.message where state = 'dead'")
    shop.may("anna", "queue", "drop", "orders", dead[0])
    (unheard,) = _until(shop, "select task from makegood.listener where dead")
    shop.may("anna", "notices", "retry", ids.show(unheard[0]))
    _until(shop, "select task from makegood.listener where dead")
    shop.may("anna", "notices", "drop", ids.show(unheard[0]))
    again = submitted(shop, "e", card="stuck", code=6)["id"]
    shop.may("anna", "task", "undo", again, "--wait", "--timeout", "60s", code=6)
    for alert in shop.said("anna", "alerts"):
        shop.may("anna", "alerts", "--ack", str(alert["id"]))
    for words in (
        ("task", "list"),
        ("agents",),
        ("leader",),
        ("queue", "list"),
        ("store", "status"),
        ("alerts",),
    ):
        shop.may("reader", *words)


def _promoted(shop: Guarded) -> None:
    """The server shows another history: a role with few rights says what it waits for, until a supervisor has come."""
    shop.sql("update makegood.generation set timeline = '0000002A' returning 1")
    looking = shop.start("task", "list", MAKEGOOD_STORE=shop.as_("reader"))
    assert looking.stderr is not None
    line = looking.stderr.readline()
    assert "start a supervisor" in line, line
    shop.role("supervisor", "supervisor")
    out, err = looking.communicate(timeout=120)
    assert looking.returncode == 0, err
    assert "kiosk" in out
    assert submitted(shop, "g")["result"] == "paid-100-for-hold-g"


def _put(outbox: str, key: str) -> None:
    file = sqlite3.connect(outbox.removeprefix("sqlite:///"))
    file.executescript(ddl(outbox))
    file.execute(
        "insert into makegood_outbox (key, queue, payload) values (?, 'orders', ?)",
        (key, json.dumps({"id": key})),
    )
    file.commit()
    file.close()


async def _in_a_transaction(shop: Guarded) -> None:
    async with mg.Client(shop.as_("submitter")) as client:
        connection = await asyncpg.connect(shop.as_("web"))
        async with connection.transaction():
            await connection.execute("insert into shop_order values ('by-transaction')")
            await client.submit(
                buy,
                Order("by-transaction"),
                key="by-transaction",
                reply_to="queue:web",
                attributes={"customer": "ada"},
                connection=connection,
            )
        await connection.close()


def _until(shop: Guarded, sql: str) -> list[Any]:
    """Return what a statement finds, once it finds something."""

    async def look() -> list[Any]:
        connection = await asyncpg.connect(shop.admin)
        try:
            async with asyncio.timeout(120):
                while not (records := await connection.fetch(sql)):
                    await moment()
                return [tuple(row) for row in records]
        finally:
            await connection.close()

    return asyncio.run(look())


CANCEL = rows.message(TaskMessage("cancel", act=Act("forged", "ceo@bank", "trust me")))
LEAVE = "insert into makegood.inbox (task, kind, at, body{more}) values (1, $1, 0, $2{value})"
LEFT = LEAVE.format(more="", value="")


def _reply(idx: int, kind: Any = "done") -> bytes:
    return rows.message(TaskMessage(kind, idx=idx, attempt=1, value=b"1"))


@pytest.fixture
def breached_shop(guarded_shop: Guarded) -> Iterator[Guarded]:
    """The same database with one task under way: its step 0 is the stock's, step 1 the till's, both have a request."""
    guarded_shop.sql(_ONE_TASK)
    yield guarded_shop
    guarded_shop.sql(
        "delete from makegood.task where id = 1; delete from makegood.step where task = 1; delete from makegood.request;"
        "delete from makegood.inbox; delete from makegood.rate; delete from makegood.audit where act = 'forged' or kind = 'signal';"
        "delete from makegood.signal"
    )


_ONE_TASK = """
    insert into makegood.task (id, app, workflow, fingerprint, state, goal, on_failure, submission, priority, ready_seq, epoch, cause,
        failure_count, lost, task_expired, created_at, static)
    values (1, 'kiosk', 'buy', '', 'processing', 'forward', 'undo', 1, 5, 1, 1, '', 0, 0, false, 0, '{}');
    insert into makegood.step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec)
    values (1, 0, 'action', 'reserve', 'stock', 'reserve', 'running', 1, 1, 0, 0, 0, 0, 'secret'),
        (1, 1, 'action', 'charge', 'till', 'charge', 'running', 1, 1, 0, 0, 0, 0, 'secret');
    insert into makegood.request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, within, answered, body)
    values (1, 0, 1, 'do', 'kiosk/stock', 'reserve', 5, false, false, 0, 60, false, 'order'),
        (1, 1, 1, 'do', 'kiosk/till', 'charge', 5, false, false, 0, 60, false, '{"iban":"DE89"}');
    insert into makegood.rate values ('kiosk/till', 0);
"""
STOCK = "agent_kiosk_stock"
NOW = "extract(epoch from clock_timestamp())"
NOTHING = (
    "select 1 from makegood.request where agent = 'kiosk/till'",
    "select 1 from makegood.rate",
    "update makegood.request set taken_by = 7 where agent = 'kiosk/till' returning 1",
    "update makegood.node set stopped_at = 0 where roles not in (' agent ') returning 1",
)
"""What an agent's credential may ask, and finds nothing."""
BARRED = [
    (STOCK, "select spec from makegood.step"),
    (STOCK, "select static from makegood.task"),
    (STOCK, "select result from makegood.step"),
    (STOCK, "select * from makegood.message"),
    (STOCK, "select * from makegood.audit"),
    (STOCK, "update makegood.request set body = '' returning 1"),
    (STOCK, "update makegood.step set state = 'done' returning 1"),
    (STOCK, "update makegood.task set state = 'undoing' returning 1"),
    (STOCK, "update makegood.lease set holder = 'me' returning 1"),
    (STOCK, "update makegood.generation set generation = 9 returning 1"),
    (STOCK, "insert into makegood.event (task, at, moves, note) values (2, 0, '', 'forged') returning 1"),
    (
        STOCK,
        "insert into makegood.node (name, roles, host, pid, started_at, alive_until, dead, info) values ('x', ' scheduler ', 'h', 1, 0, 0, false, '')",
    ),
    (STOCK, "insert into makegood.rate values ('kiosk/till', 9e12)"),
    (STOCK, "delete from makegood.inbox"),
    ("submitter", "update makegood.task set state = 'undoing' returning 1"),
    ("submitter", "delete from makegood.task"),
    ("submitter", "insert into makegood.attribute values (1, 'customer', 'mallory') returning 1"),
    ("submitter", "update makegood.attribute set value = 'mallory' returning 1"),
    ("inbox", "insert into makegood.attribute values (1, 'customer', 'mallory') returning 1"),
    ("scheduler", "insert into makegood.attribute values (1, 'customer', 'mallory') returning 1"),
    ("operator", "delete from makegood.attribute"),
    (STOCK, "select * from makegood.attribute"),
    (
        "submitter",
        f"insert into makegood.signal (task, name, id, at, digest, who) values (1, 'a', 'b', {NOW}, '', 'ceo') returning 1",
    ),
    ("submitter", "insert into makegood.signal (task, name, id, at, digest) values (1, 'a', 'b', 0, '')"),
    (
        "submitter",
        f"insert into makegood.signal (task, name, id, at, digest, used) values (1, 'a', 'b', {NOW}, '', 0)",
    ),
    ("submitter", "update makegood.signal set used = 0 returning 1"),
    ("submitter", "delete from makegood.signal"),
    ("inbox", "update makegood.signal set used = 0 returning 1"),
    (
        "scheduler",
        f"insert into makegood.signal (task, name, id, at, digest) values (1, 'a', 'b', {NOW}, '')",
    ),
    (
        "scheduler",
        f"insert into makegood.signal (task, name, id, step, at, digest, used) values (1, 'a', 'b', '', {NOW}, '', 0)",
    ),
    ("scheduler", "delete from makegood.signal"),
    ("supervisor", "update makegood.signal set used = 0 returning 1"),
    ("operator", "update makegood.signal set body = '' returning 1"),
    ("operator", "delete from makegood.signal"),
    ("reader", f"insert into makegood.signal (task, name, id, at, digest) values (1, 'a', 'b', {NOW}, '')"),
    (STOCK, "select * from makegood.signal"),
    (STOCK, f"insert into makegood.signal (task, name, id, at, digest) values (1, 'a', 'b', {NOW}, '')"),
    (
        "submitter",
        "insert into makegood.audit (act, task, kind, who, why, verdict, reason, state, at) values ('a', 1, '', '', '', '', '', '', 0)",
    ),
    ("submitter", "update makegood.lease set holder = 'me' returning 1"),
    ("inbox", "update makegood.task set state = 'undoing' returning 1"),
    ("inbox", "select * from makegood.inbox"),
    ("inbox", "update makegood.lease set holder = 'me' returning 1"),
    ("scheduler", "update makegood.lease set holder = 'me' returning 1"),
    ("scheduler", "delete from makegood.audit"),
    ("scheduler", "delete from makegood.event"),
    ("scheduler", "delete from makegood.task"),
    ("supervisor", "insert into makegood.task select * from makegood.task"),
    ("supervisor", "insert into makegood.request select * from makegood.request"),
    ("operator", "update makegood.task set state = 'processed' returning 1"),
    ("operator", "delete from makegood.audit"),
    ("operator", "update makegood.audit set who = 'nobody' returning 1"),
    ("operator", "delete from makegood.inbox"),
    (
        "operator",
        "insert into makegood.audit (act, task, kind, who, why, verdict, reason, state, at, db_user) values ('a', 1, '', '', '', '', '', '', 0, 'anna')",
    ),
    ("console", "update makegood.task set state = 'processed' returning 1"),
    ("console", "select 1 from makegood.task where false for update"),
    ("console", "delete from makegood.message"),
    ("console", "update makegood.bulk_act set sent = 0 returning 1"),
    ("supervisor", "insert into makegood.bulk_act select * from makegood.bulk_act"),
    ("supervisor", "update makegood.bulk_act set db_user = 'anna' returning 1"),
    ("reader", "update makegood.alert set acked_at = 0 returning 1"),
    ("reader", "insert into makegood.writer values (1, 1, null, 0)"),
    *(
        (kind, "create table makegood.mine (a integer)")
        for kind in ("scheduler", "operator", "reader", STOCK)
    ),
    *((kind, "drop table makegood.task") for kind in ("scheduler", "operator", "supervisor")),
    *((kind, "alter table makegood.request disable row level security") for kind in (STOCK, "scheduler")),
]


@pytest.mark.parametrize(("kind", "sql"), BARRED)
def test_a_leaked_credential_does_not_do_what_is_not_its_work(
    breached_shop: Guarded, kind: str, sql: str
) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        breached_shop.sql(sql, kind)


@pytest.mark.parametrize(
    ("as_kind", "kind"),
    [
        (as_kind, kind)
        for as_kind in ("cancel", "done", "expired")
        for kind in [
            kind for kind in ROLES if kind not in ("owner", "agent", "operator", "console", "elector")
        ]
        + [STOCK]
        # It may undo any task, and leaves a cancel where a lane's next task wants it.
        if (as_kind, kind) != ("cancel", "scheduler")
    ],
)
def test_nobody_but_an_operator_leaves_an_operators_act(
    breached_shop: Guarded, kind: str, as_kind: str
) -> None:
    """Nor under the name of another message."""
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        breached_shop.sql(LEFT, kind, as_kind, CANCEL)


def test_who_submits_and_is_a_scheduler_writes_a_signal_as_it_was_used(breached_shop: Guarded) -> None:
    """Each role has the rights on a part of the columns: the leaked credential of either writes no such row."""
    shop = breached_shop
    shop.login("both", "submitter")
    shop.sql(f'grant "{shop.prefix}scheduler" to "{shop.prefix}both"')

    async def write() -> None:
        connection = await asyncpg.connect(shop.as_("both"))
        values = f"(1, 'a', 'b', '', {NOW}, '', 0, {NOW}, null)"
        columns = "task, name, id, step, at, digest, used, used_at, body"
        await connection.execute(f"insert into makegood.signal ({columns}) values {values}")
        await connection.close()

    asyncio.run(write())
    assert shop.sql("select used from makegood.signal") == [(0,)]


SIGNAL = TaskMessage("signal", value=b"true", signal=SignalRef("approval", "s-1"))


@pytest.mark.parametrize("kind", ["submitter", "inbox", "console"])
def test_who_sends_signals_adds_no_other_message_to_an_inbox(breached_shop: Guarded, kind: str) -> None:
    """Nor a command under the name of a signal, nor one of another time."""
    insertion = f"insert into makegood.inbox (task, kind, at, body) values (1, $1, {NOW}, $2)"
    body = rows.message(SIGNAL)
    forgery = rows.message(msgspec.structs.replace(SIGNAL, act=Act("forged", "ceo@bank")))
    for as_kind, content in (
        ("cancel", CANCEL),
        ("cancel", body),
        ("signal", CANCEL),
        ("signal", forgery),
        ("done", _reply(0)),
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            breached_shop.sql(insertion, kind, as_kind, content)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        breached_shop.sql(LEFT, kind, "signal", body)
    breached_shop.sql(insertion, kind, "signal", body)


@pytest.mark.parametrize("kind", ["scheduler", "reader", STOCK])
def test_nobody_else_leaves_a_signal(breached_shop: Guarded, kind: str) -> None:
    insertion = f"insert into makegood.inbox (task, kind, at, body) values (1, $1, {NOW}, $2)"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        breached_shop.sql(insertion, kind, "signal", rows.message(SIGNAL))


def test_each_role_that_sends_signals_does(breached_shop: Guarded) -> None:
    """A submitter, also in a transaction of its application, and an inbox; an operator with who and why."""
    task = ids.show(1)

    async def send(kind: str) -> None:
        async with mg.Client(breached_shop.as_(kind)) as client:
            assert (await client.signal(task, "approval", True, id=kind)).created
            assert not (await client.signal(task, "approval", True, id=kind)).created
            connection = await asyncpg.connect(breached_shop.as_(kind))
            async with connection.transaction():
                assert (await client.signal(task, "approval", True, connection=connection)).created
            await connection.close()

    for kind in ("submitter", "inbox"):
        asyncio.run(send(kind))
    breached_shop.may(
        "operator", "task", "signal", task, "approval", "true", "--who", "ann", "--reason", "by phone"
    )
    assert breached_shop.sql("select count(*) from makegood.signal where task = 1") == [(5,)]
    assert breached_shop.sql("select who, db_user from makegood.audit where kind = 'signal'") == [
        ("ann", f"{breached_shop.prefix}operator")
    ]
    refusal = breached_shop.may("submitter", "task", "signal", task, "approval", "true", code=2)
    assert "permission denied" in refusal


def test_an_operator_leaves_acts_under_the_own_login_alone(breached_shop: Guarded) -> None:
    for more, value in (("", ""), (", db_user", ", 'anna'")):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            breached_shop.sql(LEAVE.format(more=more, value=value), "operator", "cancel", CANCEL)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        breached_shop.sql(
            LEAVE.format(more=", db_user", value=", session_user"), "operator", "done", _reply(0)
        )
    breached_shop.sql(LEAVE.format(more=", db_user", value=", session_user"), "operator", "cancel", CANCEL)


def test_a_supervisor_sends_the_signals_that_an_operator_requested_for_many_tasks(
    breached_shop: Guarded,
) -> None:
    """And no other one: not of another act, name or value."""
    breached_shop.sql(
        """insert into makegood.bulk_act (id, kind, wanted, who, why, db_user, counted, state, at, cursor, free_at, sent, applied, noop,
        refused, stopped_by, more, signal, value) values ('s', 'signal', '{}', 'anna', '', session_user, 1, 'running', 0, 9, 0, 0, 0, 0, 0, '',
        false, 'approval', 'true')""",
        "console",
    )
    insertion = LEAVE.format(more="", value="")

    def message(name: str = "approval", id_: str = "s/1", value: bytes = b"true") -> bytes:
        return rows.message(TaskMessage("signal", value=value, signal=SignalRef(name, id_)))

    for body in (message("payment"), message(id_="b/1"), message(id_="1"), message(value=b"false")):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            breached_shop.sql(insertion, "supervisor", "signal", body)
    breached_shop.sql(insertion, "supervisor", "signal", message())


def test_a_supervisor_leaves_the_acts_that_an_operator_requested_for_many_tasks(
    breached_shop: Guarded,
) -> None:
    """And of those nothing but what was requested: not another command, login or operator."""
    bulk = """insert into makegood.bulk_act (id, kind, wanted, who, why, db_user, counted, state, at, cursor, free_at, sent, applied, noop,
        refused, stopped_by, more) values ('b', 'cancel', '{}', 'anna', '', @login, 1, 'running', 0, 9, 0, 0, 0, 0, 0, '', false)"""
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        breached_shop.sql(bulk.replace("@login", "'anna'"), "console")
    breached_shop.sql(bulk.replace("@login", "session_user"), "console")
    breached_shop.sql(
        "insert into makegood.bulk_item (bulk, task, act, at) values ('b', 1, 'b/1', 0)", "supervisor"
    )
    login = f"{breached_shop.prefix}console"
    insertion = LEAVE.format(more=", db_user", value=f", '{login}'")

    def command(kind: str = "cancel", act: str = "b/1", who: str = "anna") -> bytes:
        return rows.message(TaskMessage(kind, act=Act(act, who)))  # type: ignore[arg-type]

    for kind, body in (
        ("undo", command("undo")),
        ("cancel", command(act="b/2")),
        ("cancel", command(who="eve")),
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            breached_shop.sql(insertion, "supervisor", kind, body)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        breached_shop.sql(LEFT, "supervisor", "cancel", command())
    breached_shop.sql(insertion, "supervisor", "cancel", command())


def test_an_agent_meets_its_own_requests_and_answers_them_alone(breached_shop: Guarded) -> None:
    assert breached_shop.sql("select agent from makegood.request", STOCK) == [("kiosk/stock",)]
    for sql in NOTHING:
        assert breached_shop.sql(sql, STOCK) == []
    twice = _reply(1).replace(b'{"kind":"done"', b'{"kind":"done","idx":0')  # the later one counts
    for kind, body in (
        ("done", _reply(1)),
        ("late", _reply(1, "late")),
        ("done", twice),
        ("expired", _reply(0, "expired")),
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            breached_shop.sql(LEFT, STOCK, kind, body)
    breached_shop.sql(LEFT, STOCK, "done", _reply(0))
    breached_shop.sql(LEFT, STOCK, "late", _reply(0, "late"))
    zero = rows.message(TaskMessage("done", idx=0, attempt=1, value=b'"a\\u0000b"'))
    breached_shop.sql(LEFT, STOCK, "done", zero)


def test_row_level_security_costs_owner_and_scheduler_nothing(guarded_shop: Guarded) -> None:
    """The server plans their statements alike; an agent's are looked up by the same index, with its own agent as a filter."""
    place = "where (task, idx, attempt) = (1, 0, 1)"

    def plan(kind: str, sql: str) -> list[str]:
        async def run() -> list[str]:
            connection = await asyncpg.connect(guarded_shop.as_(kind))
            await connection.execute("set enable_seqscan = off; set enable_bitmapscan = off")
            lines = await connection.fetch(f"explain (costs off) {sql}")
            await connection.close()
            return [row[0] for row in lines]

        return asyncio.run(run())

    for sql in (
        f"delete from makegood.request {place}",
        "update makegood.task set state = 'pending' where id between 1 and 1 and epoch = 1",
        "update makegood.step set state = 'done' where (task, idx) between (1, 0) and (1, 0)",
        "select * from makegood.task where state = 'pending' and locked_by is null and priority = 5 and ready_seq > 7 order by ready_seq limit 9",
    ):
        assert plan("owner", sql) == plan("scheduler", sql) == plan("supervisor", sql)
    answer = f"update makegood.request set answered = true {place}"
    agents, owners = plan(STOCK, answer), plan("owner", answer)
    assert agents[: len(owners)] == owners
    assert agents[-1].strip() == "Filter: (agent = 'kiosk/stock'::text)"


def test_a_role_that_lacks_a_right_is_told_so_and_who_grants_it(guarded_shop: Guarded) -> None:
    """The server is there: nobody asks whether PostgreSQL is running."""
    guarded_shop.sql(f"create role \"{guarded_shop.prefix}nobody\" login password '{PASSWORD}'")
    for kind, words in (
        ("nobody", ("task", "list")),
        ("reader", ("task", "submit", "kiosk:buy", '{"id": "x"}')),
        ("submitter", ("store", "prune", "--older", "1d")),
    ):
        text = guarded_shop.may(kind, *words, code=2)
        assert "permission denied" in text
        assert "`makegood store grants`" in text
        assert f"user {guarded_shop.prefix}{kind}" in text
        assert "running" not in text


def test_sqlite_has_no_roles(shop: Shop) -> None:
    result = shop.call("store", "grants")
    assert result.exit_code == 2
    assert "rights on the file" in result.output


def test_an_elector_takes_part_in_elections_and_does_nothing_else(guarded_shop: Guarded) -> None:
    """In tables of their own; its role is made only when it is asked for."""
    assert not guarded_shop.sql("select 1 from pg_namespace where nspname = 'makegood_election'")
    guarded_shop.granted("--role", "elector")
    asyncio.run(_elected(guarded_shop.as_("elector")))
    for sql in (
        "drop table makegood_election.lease",
        "create table makegood_election.mine (a int)",
        "delete from makegood_election.lease",
        "begin; lock table makegood_election.lease in access exclusive mode",
        "select * from makegood.task",
        "update makegood_election.lease set name = 'x'",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            guarded_shop.sql(sql, "elector")
    guarded_shop.sql("drop schema makegood_election cascade")


async def _elected(url: str) -> None:
    leases = PostgresLeases(url)
    grant = await leases.acquire("shop/leader", "me", "n1", 15.0)
    assert grant is not None
    assert await leases.renew(grant)
    connection = await asyncpg.connect(url)
    fence = leases.fence(grant)
    sql = fence.sql.replace(":name", "$1").replace(":nonce", "$2").replace(":epoch", "$3")
    assert await connection.fetchval(sql, *fence.values.values()) == 1
    await connection.close()
    await leases.release(grant)
    assert [term.released for term in await leases.past_terms("shop/leader")] == [True]
    await leases.close()


@pytest.mark.parametrize("kind", ["inbox", STOCK])
def test_processes_of_few_rights_raise_and_end_the_alerts_about_themselves(
    guarded_shop: Guarded, kind: str
) -> None:
    """As the engine raises them: twice for one cause, with another text, then ended."""
    task = ids.show(1)
    lone = (
        f"only step charge of task {task} fails, and opened its circuit: its service answered another step 2 s ago. See `makegood task show {task}`; "
        f"if the step is broken and not the service, `makegood task cancel {task}` ends it"
    )
    usual = "its service does not answer: its circuit is open, requests wait (see `makegood agents`)"
    two = f"{usual}; only these steps fail: pick of task {task}, pick[1] of task {task}"
    failing = "{} meets an exception at each turn, and does nothing else: OSError: x; see its log"
    nobody = "no supervisor has led for 7.5 s: what is overdue is not found, and nobody frees the tasks of dead processes; start `makegood supervisor`"
    alerts = {
        STOCK: [
            Alert("circuit_open", step="kiosk/stock", text=two),
            Alert("circuit_open", 1, "kiosk/stock", lone),
            Alert("role_failing", step="circuits", text=failing.format("circuits")),
        ],
        "inbox": [
            Alert("dead_letter", step="outbox/7/o-7", text="entry 'o-7' cannot be put into queue 'q'"),
            Alert("dead_letter", step="outbox/7/o-7", text="entry 'o-7' cannot be put into queue 'q': full"),
            Alert("role_failing", step="inbox orders", text=failing.format("inbox orders")),
        ],
    }

    async def run() -> None:
        store = open_store(guarded_shop.as_(kind))
        await store.open()
        for alert in (*alerts[kind], Alert("no_leader", text=nobody)):
            await store.alerts.alert([alert])
        await store.alerts.ease(alerts[kind], "over")
        with pytest.raises(ConfigError, match="row-level security"):  # that is for whoever leads
            await store.alerts.ease([Alert("no_leader")], "over")
        await store.close()

    guarded_shop.sql("delete from makegood.alert")
    guarded_shop.sql(_ONE_TASK)
    try:
        asyncio.run(run())
        alert_rows = guarded_shop.sql("select kind, text, ended_why from makegood.alert order by id")
        over = [(alert.kind, alert.text, "over") for alert in alerts[kind][1:]]
        assert alert_rows == [*over, ("no_leader", nobody, "")]
    finally:
        guarded_shop.sql(
            "delete from makegood.alert; delete from makegood.task where id = 1; delete from makegood.step where task = 1;"
            "delete from makegood.request; delete from makegood.rate"
        )


def test_what_cannot_be_meant_is_refused() -> None:
    for prefix, roles, agents, words in (
        ("Bad Prefix", (), (), "--prefix"),
        ("m_", (), ("till",), "APP/AGENT"),
        ("m_", ("agent",), (), "--agent APP/AGENT"),
        ("m_" * 30, (), (), "56 bytes"),
        ("m_", (), ("a/b-c", "a/b_c"), "called m_agent_a_b_c"),
    ):
        with pytest.raises(ConfigError, match=words):
            script(prefix, roles, agents)
    assert [name for name, _, _ in resolve_roles("m_", ("agent",), ("a/b",))] == ["m_agent_a_b"]


@pytest.mark.parametrize("kind", ["reader", "submitter"])
def test_doctor_says_what_a_weak_role_may_not_examine_and_goes_on(guarded_shop: Guarded, kind: str) -> None:
    """It ended at the first table that the role may not read."""
    findings = guarded_shop.said(kind, "doctor")["findings"]
    assert [one["check"] for one in findings if "this role may not" in one["what"]]
    assert all(one["severity"] == "note" for one in findings if "this role may not" in one["what"])
    assert {one["check"] for one in findings} >= {"generation", "zones"}  # what comes after those tables
