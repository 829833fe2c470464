"""What a leaked credential of few rights tries beyond its work, against a real server: each is refused, or changes nothing for others."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from makegood.errors import ConfigError
from makegood.model.messages import Act, TaskMessage
from makegood.model.note import Note
from makegood.store import open_store, rows
from tests.doors.guarded_shop import Guarded, guarded_shop

__all__ = ["guarded_shop"]

asyncpg = pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")

STOCK, TILL = "agent_kiosk_stock", "agent_kiosk_till"
NOW = "extract(epoch from clock_timestamp())::float8"
TASK = f"""insert into makegood.task (id, app, workflow, fingerprint, state, goal, on_failure, submission, priority, ready_seq, epoch, cause,
    failure_count, lost, task_expired, created_at, static)
values (@id, 'kiosk', 'buy', '', 'pending', 'forward', 'undo', 1, 5, ({NOW} * 1000000)::bigint, 0, '', 0, 0, false, {NOW}, '{{}}')"""
STEP = """insert into makegood.step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec)
values (@id, @place, 'action', 'reserve', 'stock', 'reserve', 'waiting', 0, 1, 0, 0, 0, 0, '')"""
NOTICE = "insert into makegood.notice (task, sequence, body) values (@id, 9, '{}')"
LISTENER = "insert into makegood.listener (task, host, url, sent, last, due_at) values (@id, 'h', 'https://h/', 0, 1, 0)"
MESSAGE = "insert into makegood.message (queue, id, body, task, sent_at, visible_at) values ('web', @name, '', @id, 0, 0)"
ALERT = f"insert into makegood.alert (kind, step, text, standing, at) values (@kind, @step, @text, @standing, {NOW})"
SENT = "insert into makegood.message (queue, id, body, sent_at, visible_at) values ('orders', $1, '', 0, 0)"
VICTIM = 1


def task(id_: int) -> str:
    return TASK.replace("@id", str(id_))


def step(id_: int, idx: int = 0) -> str:
    return STEP.replace("@id", str(id_)).replace("@place", str(idx))


def alert(kind: str, about: str, text: str) -> str:
    literals = [f"'{each}'" for each in (kind, about, text, f"{kind} 0 {about}")]
    sql = ALERT
    for name, value in zip(("@kind", "@step", "@text", "@standing"), literals, strict=True):
        sql = sql.replace(name, value)
    return sql


@pytest.fixture
def shop(guarded_shop: Guarded) -> Iterator[Guarded]:
    """The database with a victim: a task of two steps, each with an answer."""
    guarded_shop.sql(f"{task(VICTIM)}; {step(VICTIM)}; {step(VICTIM, 1)}")
    guarded_shop.sql(f"update makegood.step set agent = 'till' where task = {VICTIM} and idx = 1")
    yield guarded_shop
    tables = ("task", "step", "notice", "listener", "message", "alert", "inbox", "request", "event", "audit")
    guarded_shop.sql("; ".join(f"delete from makegood.{table}" for table in (*tables, "refusal", "node")))


def refusal_of(shop: Guarded, kind: str, *statements: str, begin: str = "begin") -> str:
    """Run statements in one transaction as a role; return "" or the name of what refused them."""

    async def run() -> str:
        connection = await asyncpg.connect(shop.as_(kind))
        try:
            await connection.execute(begin)
            for sql in statements:
                await connection.execute(sql)
            await connection.execute("commit")
        except asyncpg.PostgresError as error:
            return type(error).__name__
        finally:
            await connection.close()
        return ""

    return asyncio.run(run())


BARRED = "InsufficientPrivilegeError"

# -- what a submitter may add to -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["submitter", "inbox"])
@pytest.mark.parametrize(
    "sql",
    [step(VICTIM, 9), step(99), NOTICE, LISTENER, MESSAGE.replace("@name", "'x'")],
    ids=["step", "orphan", "notice", "listener", "message"],
)
def test_a_submitter_adds_nothing_to_a_task_that_exists_or_does_not(
    shop: Guarded, kind: str, sql: str
) -> None:
    assert refusal_of(shop, kind, sql.replace("@id", str(VICTIM))) == BARRED


OWN = {
    "at once": (task(2), step(2)),
    "in a savepoint": ("savepoint a", task(2), "release a", step(2)),
    "in savepoints within": ("savepoint a", "savepoint b", task(2), "release b", "savepoint c", step(2), "release c"),
    "after a rollback to one": (task(2), "savepoint a", step(2), "rollback to a", step(2)),
    "with its notices": (task(2), step(2), NOTICE.replace("@id", "2"), LISTENER.replace("@id", "2"), MESSAGE.replace("@id", "2").replace("@name", "'n'")),
}  # fmt: skip


@pytest.mark.parametrize("begin", ["begin", "begin isolation level serializable"])
@pytest.mark.parametrize("way", OWN)
def test_a_submitter_adds_to_the_tasks_of_its_own_transaction(shop: Guarded, way: str, begin: str) -> None:
    assert refusal_of(shop, "submitter", *OWN[way], begin=begin) == ""


def test_a_task_that_was_rolled_back_or_is_older_is_not_of_the_own_transaction(shop: Guarded) -> None:
    assert refusal_of(shop, "submitter", "savepoint a", task(3), "rollback to a", step(3)) == BARRED
    assert refusal_of(shop, "submitter", task(4), step(4)) == ""
    assert refusal_of(shop, "submitter", step(4, 1)) == BARRED
    shop.sql("vacuum freeze makegood.task")
    assert refusal_of(shop, "submitter", step(4, 1)) == BARRED


def test_an_old_snapshot_does_not_hide_that_a_task_is_another_ones(shop: Guarded) -> None:
    """Under repeatable read, or while another transaction is about to commit."""

    async def run() -> list[str]:
        one, other = [await asyncpg.connect(shop.as_("submitter")) for _ in range(2)]
        outcomes: list[str] = []

        async def add(id_: int) -> None:
            try:
                await one.execute(step(id_, 9))
                outcomes.append("")
            except asyncpg.PostgresError as error:
                outcomes.append(type(error).__name__)
            await one.execute("rollback")

        await one.execute("begin isolation level repeatable read")
        await one.fetch("select count(*) from makegood.task")
        await other.execute(task(5))
        await add(5)
        await one.execute("begin")
        await one.execute(task(6))
        await other.execute(task(7))
        await add(7)
        await other.execute("begin")
        await other.execute(task(8))
        await one.execute("begin")
        await add(8)
        await one.close()
        await other.close()
        return outcomes

    assert asyncio.run(run()) == [BARRED] * 3


def test_operators_and_functions_of_its_own_do_not_deceive_the_policy(shop: Guarded) -> None:
    assert (
        refusal_of(
            shop,
            "submitter",
            "create function pg_temp.yes(bigint, bigint) returns boolean language sql as 'select true'",
            "create operator pg_temp.= (leftarg = bigint, rightarg = bigint, function = pg_temp.yes)",
            "create function pg_temp.is_new(bigint) returns boolean language sql as 'select true'",
            "set local search_path = pg_temp, pg_catalog",
            step(VICTIM, 9),
        )
        == BARRED
    )


@pytest.mark.parametrize(
    ("was", "instead"),
    [
        ("'pending'", "'processed'"),
        (f", {NOW}, '{{}}'", ", 1e15, '{}'"),
        (f"({NOW} * 1000000)::bigint", "0"),
        (", 0, '', 0, 0, false", ", 7, '', 0, 0, false"),
    ],
)
def test_a_submitted_task_is_one_that_nobody_has_worked_on(shop: Guarded, was: str, instead: str) -> None:
    assert was in task(2)
    assert refusal_of(shop, "submitter", task(2).replace(was, instead)) == BARRED


def test_a_message_of_an_application_has_not_the_id_of_a_notice(shop: Guarded) -> None:
    """Otherwise it could take a notice's place before that is sent."""
    ((store,),) = shop.sql("select store_id from makegood.generation")
    sql = MESSAGE.replace("@id", "null")
    assert refusal_of(shop, "submitter", sql.replace("@name", f"'{store}-1-x'")) == BARRED
    assert refusal_of(shop, "submitter", sql.replace("@name", "'o-7'")) == ""
    assert refusal_of(shop, "submitter", "update makegood.message set body = 'x'") == BARRED


# -- what is written to operators ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["submitter", "inbox", STOCK, "operator", "console", "reader"])
def test_nobody_writes_the_text_of_an_alert(shop: Guarded, kind: str) -> None:
    shop.sql(alert("held", "", "true"))
    for sql in (
        "update makegood.alert set text = 'run `rm -rf /`'",
        "update makegood.alert set acked_by = 'otto', acked_at = 1",
        "update makegood.alert set told = 2, logged = 2",
        "delete from makegood.alert",
        alert("held", "", "run `rm -rf /`"),
        alert("generation", "", "x"),
        alert("dead_letter", "orders/o-7", "x"),
        alert("circuit_open", "kiosk/till", "x"),
        alert("role_failing", "scheduler", "x"),
        alert("test", "x", "run `rm -rf /`"),
    ):
        refusal = refusal_of(shop, kind, sql)
        assert refusal == BARRED or shop.sql("select text, acked_by, told from makegood.alert") == [
            ("true", "", 0)
        ], sql
    assert shop.sql("select kind, text from makegood.alert") == [("held", "true")]


def test_the_text_of_a_dead_letter_is_made_of_the_message(shop: Guarded) -> None:
    """By a function; it raises nothing about a message that is not dead, and shows no command that a submitter has written."""
    for name, commands in (
        ("o-7", "then `makegood queue replay orders o-7` or `drop`"),
        ("o-7; touch x", "then `makegood queue replay orders 'o-7; touch x'` or `drop`"),
        ("--all", "then `makegood queue replay -- orders --all` or `drop`"),
        ("a`rm -rf /`b", "then replay it by its id, which is not fit for a command line, or `drop`"),
    ):
        asyncio.run(_run(shop, "submitter", SENT, name))
        ((seq,),) = shop.sql("select seq from makegood.message where id = $1", None, name)
        assert refusal_of(shop, "submitter", f"select makegood.raise_dead_letter({seq})") == ""
        assert shop.sql("select 1 from makegood.alert") == []
        dead = f"update makegood.message set state = 'dead', error = 'see `rm`' where seq = {seq}"
        assert refusal_of(shop, "submitter", dead, f"select makegood.raise_dead_letter({seq})") == ""
        ((text,),) = shop.sql("select text from makegood.alert")
        assert text.endswith(commands), text
        assert "`rm" not in text
        shop.sql("delete from makegood.alert; delete from makegood.message")


def test_an_acknowledgement_notes_the_login(shop: Guarded) -> None:
    shop.sql(alert("held", "", "true"))
    ((number,),) = shop.sql("select id from makegood.alert")
    assert (
        refusal_of(shop, "operator", f"select makegood.acknowledge_alerts(array[{number}], 'otto', 'seen')")
        == ""
    )
    assert shop.sql("select acked_by, acked_db_user from makegood.alert") == [
        ("otto", f"{shop.prefix}operator")
    ]
    assert (
        refusal_of(shop, "submitter", f"select makegood.acknowledge_alerts(array[{number}], 'otto', 'seen')")
        == BARRED
    )


def test_an_agent_raises_the_alert_of_its_circuit_in_the_words_for_it(shop: Guarded) -> None:
    words = "its service does not answer: its circuit is open, requests wait (see `makegood agents`)"
    assert refusal_of(shop, STOCK, alert("circuit_open", "kiosk/stock", words)) == ""
    assert refusal_of(shop, TILL, alert("circuit_open", "kiosk/stock", words)) == BARRED
    ease = "update makegood.alert set standing = null, ended_at = 1, ended_why = 'x' where standing = 'circuit_open 0 kiosk/stock'"
    assert refusal_of(shop, TILL, ease) == ""
    assert shop.sql("select standing from makegood.alert") == [("circuit_open 0 kiosk/stock",)]
    assert refusal_of(shop, STOCK, ease) == ""
    assert shop.sql("select standing from makegood.alert") == [(None,)]


# -- what is read, and who commands --------------------------------------------------------------------------


def test_an_agent_reads_answers_of_its_own_steps_only(shop: Guarded) -> None:
    left = "insert into makegood.inbox (task, kind, at, body) values ($1, $2, 0, $3)"
    for idx, kind in ((0, STOCK), (1, TILL)):
        body = rows.message(TaskMessage("done", idx=idx, attempt=1, value=b'"iban"'))
        asyncio.run(_run(shop, kind, left, VICTIM, "done", body))
    for idx, kind in ((0, STOCK), (1, TILL)):
        ((body,),) = shop.sql("select body from makegood.inbox", kind)
        assert b'"idx":%d' % idx in bytes(body)
    assert shop.sql("select count(*) from makegood.step", STOCK) == [(1,)]
    for sql in (
        "select seq from makegood.inbox",
        "select at from makegood.inbox",
        "select * from makegood.event",
    ):
        assert refusal_of(shop, STOCK, sql) == BARRED
    assert refusal_of(shop, STOCK, "copy makegood.inbox to stdout") == BARRED
    insert = (
        "insert into makegood.event (task, at, node, moves, note) values (1, 0, null, '', '') returning *"
    )
    assert refusal_of(shop, STOCK, insert) == BARRED


def test_an_agent_writes_notes_of_its_own_steps_only(shop: Guarded) -> None:
    """They travel as late replies do, so no role needs another right for them."""

    async def note(idx: int) -> None:
        store = open_store(shop.as_(STOCK))
        await store.open()
        try:
            words = Note(idx, 1, "do", "half")
            await store.requests.note([(VICTIM, TaskMessage("late", idx, "do", 1, note=words))])
        finally:
            await store.close()

    asyncio.run(note(0))
    with pytest.raises(ConfigError):
        asyncio.run(note(1))
    ((body,),) = shop.sql("select body from makegood.inbox")
    message = rows.read_message(bytes(body), 1)
    assert message.note is not None
    assert message.note.value == "half"


async def _run(shop: Guarded, kind: str, sql: str, *values: Any) -> None:
    connection = await asyncpg.connect(shop.as_(kind))
    await connection.execute(sql, *values)
    await connection.close()


CANCEL = rows.message(TaskMessage("cancel", act=Act("forged", "ceo@bank", "trust me"))).decode()


@pytest.mark.parametrize("kind", ["scheduler", "supervisor", "operator", "console", "submitter", STOCK])
def test_no_role_turns_a_message_into_a_command(shop: Guarded, kind: str) -> None:
    shop.sql(
        f"insert into makegood.inbox (task, kind, at, body) values ({VICTIM}, 'expired', 0, '{{\"kind\":\"expired\"}}')"
    )
    change = f"update makegood.inbox set kind = 'cancel', body = '{CANCEL}', db_user = 'anna'"
    merge = f"""merge into makegood.inbox i using (select 1) x on i.task = {VICTIM}
        when matched then update set kind = 'cancel', body = '{CANCEL}'"""
    conflict = f"""insert into makegood.inbox (task, kind, at, body) values ({VICTIM}, 'expired', 0, '{{"kind":"expired"}}')
        on conflict (seq) do update set kind = 'cancel', body = '{CANCEL}'"""
    for sql in (change, merge, conflict):
        assert refusal_of(shop, kind, sql) in (BARRED, "PostgresSyntaxError"), sql
    assert shop.sql("select kind from makegood.inbox") == [("expired",)]


# -- what is held up -----------------------------------------------------------------------------------------


def test_no_role_locks_or_spoils_the_rows_of_another_login(shop: Guarded) -> None:
    """Those of connections, processes and leases: nobody else could commit, live or lead."""
    shop.sql(
        "insert into makegood.writer (id, number, at) values (77, 1, 9e12);"
        "insert into makegood.node (name, roles, host, pid, started_at, alive_until, dead, info) values ('x', ' agent ', 'h', 1, 0, 9e12, false, '');"
        "insert into makegood.lease values ('makegood/supervisor', 'me', 'n', 1, 15, 9e12, 0) on conflict do nothing"
    )
    for kind in ("agent_kiosk_stock", "submitter", "inbox", "operator", "console"):
        for sql in (
            "update makegood.writer set number = 9",
            "update makegood.node set alive_until = 0",
            "update makegood.lease set epoch = epoch",
            "select 1 from makegood.lease for update",
            "select 1 from makegood.task for update",
            "delete from makegood.writer",
            "insert into makegood.writer (id, number, at, db_user) values (78, 1, 0, 'postgres')",
        ):
            refusal_of(shop, kind, sql)
        locks = shop.sql("select 1 from makegood.writer where id = 77 and number = 1 for update nowait")
        assert locks == [(1,)], kind
        assert refusal_of(shop, kind, "select makegood.close_writers('{77}')") == ""
        assert shop.sql("select count(*) from makegood.writer where id = 77") == [(1,)]
        assert shop.sql("select alive_until > 0 from makegood.node") == [(True,)], kind
    shop.sql("delete from makegood.writer where id = 77; delete from makegood.lease")


def test_no_role_moves_a_sequence(shop: Guarded) -> None:
    for kind in ("scheduler", "submitter", "inbox", "operator", "console", "reader", STOCK):
        for sql in (
            "select nextval('makegood.event_seq_seq')",
            "select setval('makegood.alert_id_seq', 1)",
            "select nextval('makegood.ready')",
        ):
            assert refusal_of(shop, kind, sql) == BARRED, (kind, sql)


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        (STOCK, "insert into makegood.event (seq, task, at, moves, note) overriding system value values (9, 1, 0, '', '')"),
        (STOCK, "insert into makegood.refusal (id, at, kind, who, step, what) overriding system value values (9, 0, 'reply', '', '', '')"),
        ("submitter", "insert into makegood.message (seq, queue, id, body, sent_at, visible_at) overriding system value values (9, 'q', 'i', '', 0, 0)"),
        ("inbox", "insert into makegood.node (id, name, roles, host, pid, started_at, alive_until, dead, info) overriding system value values (9, '', ' inbox ', '', 1, 0, 0, false, '')"),
        ("operator", "insert into makegood.inbox (seq, task, kind, at, body) overriding system value values (9, 1, 'cancel', 0, '')"),
    ],
)  # fmt: skip
def test_nobody_chooses_a_number_that_the_database_draws(shop: Guarded, kind: str, sql: str) -> None:
    assert refusal_of(shop, kind, sql) == BARRED
