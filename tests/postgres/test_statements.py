"""What the statements cost and lock: their number per batch, the indexes they use, and who waits for whom."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from makegood.messages import Alert
from makegood.store.mail import Outgoing
from makegood.store.postgres import (
    PostgresStore,
    alerts,
    claim,
    load,
    messages,
    notices,
    queues,
    statement,
    submit,
    supervision,
    take,
)
from makegood.store.postgres.store import _WRITERS
from makegood.task import StepPlan, Template
from tests.conformance.builders import (
    Hand,
    agent,
    begin,
    done,
    draft,
    hand,
    offer,
    reply,
    running,
    scheduler,
    steps,
    to_state,
)


class Sent:
    """Statements as the driver sends them."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    async def driver(self, *args: Any, **options: Any) -> Any:
        """Connect, and note what is sent."""
        connection = await asyncpg.connect(*args, **options)
        connection.add_query_logger(lambda record: self.statements.append(" ".join(record.query.split())))
        return connection

    def since(self) -> list[str]:
        """Return what was sent since the last call, without what makes a connection ready."""
        sent, self.statements = self.statements, []
        return [s for s in sent if "set_config" not in s and "generation" not in s and "pg_control" not in s]


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[tuple[PostgresStore, Sent]]:
    """Open a store whose statements are seen, all its connections made."""
    sent = Sent()
    store = PostgresStore(url, driver=sent.driver)
    await store.open()
    alerts = [store.alert([Alert("no_leader")]) for _ in range(_WRITERS)]
    await asyncio.gather(*alerts, store.submit([draft(1_000_000)]))
    (answer,) = await store.submit([draft(1_000_001)])
    assert answer.created
    mine = await hand(store)
    assert len(await mine.claim(10)) == 2
    sent.since()
    yield store, sent
    await store.close()


@pytest.mark.parametrize("size", [1, 300])
async def test_each_batch_is_one_statement_and_one_round_trip(url: str, size: int) -> None:
    """Submitting, committing, taking, answering: no BEGIN, no COMMIT, whatever the size."""
    tasks = range(1, size + 1)
    async with watched(url) as (store, sent):
        mine = await hand(store)
        payments = await agent(store)
        sent.since()
        await store.submit([draft(n) for n in tasks])
        assert len(sent.since()) == 1
        assert len(await mine.claim(1000)) == size
        # BEGIN, find and lock, read, write, COMMIT
        assert len(sent.since()) == 5
        await mine.commit(*(begin(mine[n], 1, done(mine[n], 0)) for n in tasks))
        assert len(sent.since()) == 1
        taken = await store.take(payments, [offer(size)])
        assert len(taken) == size
        assert len(sent.since()) == 1
        assert all(await store.answer(payments, [reply(r) for r in taken]))
        assert len(sent.since()) == 1
        await store.inbox(mine.node, 1000)
        assert len(sent.since()) == 1


async def test_calls_that_come_while_a_commit_runs_share_the_next(url: str) -> None:
    async with watched(url) as (store, sent):
        mine = await hand(store)
        payments = await agent(store)
        sent.since()
        await asyncio.gather(*(store.submit([draft(n)]) for n in range(1, 301)))
        assert len(sent.since()) == 1
        assert len(await mine.claim(1000)) == 300
        taken = await store.take(payments, [offer(300)])
        sent.since()
        answers = await asyncio.gather(*(store.answer(payments, [reply(r)]) for r in taken))
        assert all(ok for (ok,) in answers)
        assert len(sent.since()) == 1


async def test_more_than_the_most_together_go_in_several_statements(url: str) -> None:
    async with watched(url) as (store, sent):
        await asyncio.gather(*(store.submit([draft(n)]) for n in range(1, 2502)))
        assert len(sent.since()) == 3


async def test_a_decision_that_is_lost_costs_two_more_statements(url: str) -> None:
    """The first fails, as a row is missing that it deletes; the second looks for losers and writes nothing; the third writes the rest."""
    async with watched(url) as (store, sent):
        await store.submit([draft(n) for n in range(1, 101)])
        mine = await hand(store)
        await mine.claim(1000)
        await mine.commit(done(mine[7], 0))
        sent.since()
        got = await mine.commit(*(done(mine[n], 0) for n in range(1, 101)))
        assert got.lost == {7}
        assert len(sent.since()) == 3


# Plans


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all nodes of a plan."""
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


STATEMENTS = {
    "commit": statement.statement(tuple(statement.PARTS), looks=False),
    "commit that looks": statement.statement(tuple(statement.PARTS), looks=True),
    "submit, few shapes": submit.statement((True, True, True), by_shape=True, begun=True),
    "submit, many shapes": submit.statement((True, True, True), by_shape=False, begun=True),
    "submit, telling": submit.statement((True, True, True), by_shape=True, begun=True, told=True),
    "by key": submit._BY_KEY,
    "claim": claim.PENDING,
    "claim by age": claim.PENDING_AGED,
    "claim at rest": claim._AT_REST,
    "read": load._PARTS,
    "load": load._HELD,
    "inbox": queues.INBOX,
    "answer": queues._ANSWER,
    "given": queues._GIVEN,
    "late": queues._LATE,
    "give back": queues._GIVE_BACK,
    "take": take.TAKE,
    "take by age": take.TAKE_AGED,
    "rates": take.RATES,
    "rates used": take._USED,
    "delayed": take._DELAYED,
    "excuse": queues._EXCUSE,
    "shut": alerts.SHUT,
    "overdue": supervision.OVERDUE,
    "judge": supervision.JUDGE,
    "lock": supervision._LOCK,
    "holders": supervision.HOLDERS,
    "held by": supervision.HELD_BY,
    "lock held": supervision._LOCK_HELD,
    "deaf": supervision.DEAF,
    "lock locked": supervision._LOCK_LOCKED,
    "past": supervision.PAST,
    "lock past": supervision._LOCK_PAST,
    "late undo": supervision.LATE_UNDO,
    "lock late": supervision._LOCK_LATE,
    "starved": supervision.STARVED,
    "starved told": supervision._STARVED_TOLD,
    "free": supervision._FREE,
    "horizon": supervision.HORIZON,
    "receive": messages._RECEIVE,
    "notices due": notices._HOSTS,
    "take notices": notices._TAKE,
    "our notices": notices._OURS,
    "sent": notices._SENT,
    "the last one": notices._LAST,
    "the next one": notices._NEXT,
    "once more": notices._AGAIN,
    "given up": notices._DEAD,
}
FINE = {
    "commit": {"all of generation"},  # it has one row
    "commit that looks": {"all of generation"},
    "submit, telling": {"(t.shape = s.shape)", "all of generation"},
    "submit, few shapes": {"(t.shape = s.shape)"},  # bounded by the number of shapes that go together
    "take": {"all of node_alive"},
    "take by age": {"all of node_alive"},  # only when something isolated waits: who else could take it
    "holders": {"all of task_held"},  # its first row
    "starved": {"all of request_take"},  # its first row
    "notices due": {"all of listener_due"},  # its first row
    "horizon": {"all of request_judge", "all of task_complete_by", "all of node_alive"},  # their first rows
}


def blunders(plan: dict[str, Any]) -> set[str]:
    """Return what costs the product of two things, or reads a whole table or index."""
    found: set[str] = set()
    for node in nodes(plan):
        if "Join Filter" in node:
            found.add(node["Join Filter"])
        if node["Node Type"] in {"Hash Join", "Merge Join"}:
            found.add(node["Node Type"])
        if node["Node Type"] == "Seq Scan":
            found.add(f"all of {node['Relation Name']}")
        if "Index Name" in node and "Index Cond" not in node:
            found.add(f"all of {node['Index Name']}")
    return found


@pytest.mark.parametrize("statistics", ["never made", "made when all was empty"])
async def test_no_statement_ever_reads_a_whole_table(store: PostgresStore, db: Any, statistics: str) -> None:
    """Plans are made once for a session, at worst from statistics of an idle moment: they must be right when tables are full."""
    if statistics != "never made":
        await db.execute("analyze")
    await store.alert([Alert("no_leader")])
    lane = store._writing()._lanes[-1]
    assert lane.link is not None
    connection, found = lane.link.connection, {}
    for name, text in STATEMENTS.items():  # none is executed, so that each finds what the one before found
        await connection.execute(f"prepare looked_at as {text}")
        known = await connection.fetchval(
            "select cardinality(parameter_types) from pg_prepared_statements where name = 'looked_at'"
        )
        values = f"({', '.join(['null'] * known)})" if known else ""
        (plan,) = json.loads(await connection.fetchval(f"explain (format json) execute looked_at{values}"))
        found[name] = blunders(plan["Plan"]) - FINE.get(name, set())
        await connection.execute("deallocate looked_at")
    assert {name: what for name, what in found.items() if what} == {}


async def explained(connection: Any, sql: str, *values: Any) -> list[dict[str, Any]]:
    """Execute a statement under EXPLAIN ANALYZE, with the settings of the store's own sessions; returns the plan's nodes."""
    found = json.loads(
        await connection.fetchval(f"explain (analyze, buffers, timing off, format json) {sql}", *values)
    )
    return nodes(found[0]["Plan"])


def scanned(plan: list[dict[str, Any]]) -> set[str]:
    """Return "table by index" of every scan."""
    return {f"{n['Relation Name']} by {n['Index Name']}" for n in plan if "Index Name" in n}


LOOKS: dict[str, tuple[str, tuple[Any, ...], set[str]]] = {
    "claim": (claim.PENDING, (claim.PRIORITIES, [-1] * 10, 100), {"task by task_claim"}),
    "claim by age": (claim.PENDING_AGED, (claim.PRIORITIES, 100, 6e7), {"task by task_claim"}),
    "inbox": (queues.INBOX, (1, -1, 100), {"inbox by inbox_pkey", "task by task_pkey"}),
    "judge": (supervision.OVERDUE, (-1000.0, 100), {"request by request_judge"}),
    "holders": (supervision.HOLDERS, (), {"task by task_held", "node by node_pkey"}),
    "held by": (supervision.HELD_BY, ([1], 100), {"task by task_held"}),
    "deaf": (supervision.DEAF, (-1000.0, 100), {"inbox by inbox_expired", "task by task_pkey"}),
    "past": (supervision.PAST, (100,), {"task by task_complete_by"}),
    "late undo": (supervision.LATE_UNDO, (100,), {"task by task_undo_by"}),
    "starved": (supervision.STARVED, (-1000.0, 100), {"request by request_take"}),
    "unclaimed": (alerts.WATCHED, (100, -1000.0), {"task by task_claim"}),
}


async def ripe(store: PostgresStore, ended: int) -> Hand:
    """Make ``ended`` tasks that have ended and some of every kind that is looked for."""
    mine = await hand(store)
    for start in range(1, ended + 1, 1000):
        ids = range(start, min(start + 1000, ended + 1))
        await store.submit([draft(n, within=600.0) for n in ids])
        await mine.claim(1000, lambda memory: to_state(memory, "processed"))
    await store.submit([draft(n, within=600.0) for n in range(100_000, 100_040)])
    await mine.claim(20)
    await store.take(await agent(store), [offer(10)])
    return mine


@pytest.mark.parametrize("look", LOOKS)
async def test_what_is_looked_for_all_the_time_is_found_by_its_index(store: PostgresStore, look: str) -> None:
    """With statistics and without, among many ended tasks."""
    await ripe(store, 500)
    sql, values, wanted = LOOKS[look]
    lane = store._writing()._lanes[-1]
    assert lane.link is not None
    connection = lane.link.connection
    for _ in range(2):
        async with connection.transaction():
            found = scanned(await explained(connection, sql, *values))
        assert wanted <= found, found
        await connection.execute("analyze")


async def test_a_take_goes_by_its_index(store: PostgresStore) -> None:
    await ripe(store, 200)
    payments = await agent(store)
    lane = store._writing()._lanes[-1]
    assert lane.link is not None
    before = ["shop/payments"], ["act0,act1"], [5]
    for sql, rest in (
        (take.TAKE, ([-1.0] * len(claim.PRIORITIES), False, claim.PRIORITIES)),
        (take.TAKE_AGED, (60.0, False, claim.PRIORITIES)),
    ):
        values = (lane.id, lane.number, lane.number + 1, payments, *before, *rest)
        plan = await explained(lane.link.connection, sql, *values)
        lane.number += 1
        found = scanned(plan)
        assert {"request by request_take", "request by request_pkey", "node by node_pkey"} <= found


@pytest.mark.parametrize("look", ["claim", "judge", "past", "holders"])
async def test_ended_tasks_cost_a_look_nothing(store: PostgresStore, look: str) -> None:
    """The pages touched do not grow with what has ended, although nothing was vacuumed."""
    sql, values, _ = LOOKS[look]
    touched: list[int] = []
    for ended in (0, 3000):
        await ripe(store, ended)
        lane = store._writing()._lanes[-1]
        assert lane.link is not None
        if look == "claim":
            found = store._claims
            values = (claim.PRIORITIES, [int(found.floor(("pending", p))) for p in claim.PRIORITIES], 10)
        connection = lane.link.connection
        pages = 0
        for _ in range(2):  # the first look marks what is dead, once
            async with connection.transaction():
                plan = await explained(connection, sql, *values)
            pages = plan[0]["Shared Hit Blocks"] + plan[0]["Shared Read Blocks"]
        touched.append(pages)
        await connection.execute("delete from makegood.task where id >= 100000")
        await connection.execute("delete from makegood.step where task >= 100000")
        await connection.execute("delete from makegood.request where task >= 100000")
    assert touched[1] <= touched[0] + 40, touched


# Who waits for whom

TABLE = {
    "": False,  # a plain look at the epoch
    "for key share": False,
    "for share": True,
    "for no key update": True,  # ours
}


@pytest.mark.parametrize("lock", TABLE)
async def test_only_a_lock_that_a_take_over_waits_for_is_a_fence(
    store: PostgresStore, db: Any, url: str, lock: str
) -> None:
    """A commit in flight under each kind of lock, and a take-over meanwhile: with the weak ones it loads what is no longer so."""
    await running(store, 1)
    waits = TABLE[lock]
    other = await asyncpg.connect(url)
    change = db.transaction()
    await change.start()
    assert await db.fetchval(f"select 1 from makegood.task where id = 1 and epoch = 1 {lock}") == 1
    await db.execute("update makegood.step set state = 'done' where task = 1 and idx = 0")

    async def take_over() -> str:
        await other.execute("update makegood.task set epoch = epoch + 1, locked_by = 99 where id = 1")
        found: str = await other.fetchval("select state from makegood.step where task = 1 and idx = 0")
        return found

    going = asyncio.create_task(take_over())
    blocked = "select count(*) from pg_locks where not granted"
    watcher = await asyncpg.connect(url)
    while not going.done() and not await watcher.fetchval(blocked):  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0)
    assert going.done() is not waits
    await change.commit()
    state = await going
    assert (state == "done") is waits
    await other.close()
    await watcher.close()


@pytest.mark.parametrize("claiming", [False, True], ids=["one statement", "with a claim"])
async def test_a_take_over_waits_for_our_commit_and_loads_what_it_wrote(
    store: PostgresStore, url: str, db: Any, *, claiming: bool
) -> None:
    """The commit is held up after it has locked and written; the take-over then gets the new state, and its late twin is lost."""
    old = await running(store, 1)
    if claiming:
        await store.submit([draft(2)])
    await db.execute("select pg_advisory_lock(1)")
    await db.execute(
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(1); return null; end $$;"
        "create trigger slow after insert on makegood.event for each statement execute function slow()"
    )
    decision = begin(old[1], 1, done(old[1], 0))
    commit: Callable[[], Awaitable[Any]] = (
        (lambda: old.claim(1, decisions=[decision])) if claiming else (lambda: old.commit(decision))
    )
    going = asyncio.ensure_future(commit())
    held = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    while not await db.fetchval(held):
        assert not going.done()
    taker = await asyncpg.connect(url)
    taking = asyncio.create_task(
        taker.execute("update makegood.task set epoch = epoch + 1, locked_by = 99 where id = 1")
    )
    while not await db.fetchval(
        "select count(*) from pg_locks where not granted and locktype = 'transactionid'"
    ):
        assert not taking.done()
    await db.execute("select pg_advisory_unlock(1)")
    await going
    await taking
    assert await taker.fetchval("select state from makegood.step where task = 1 and idx = 0") == "done"
    await taker.close()
    assert (await old.commit(to_state(old[1], "processed"))).lost == {1}


async def test_a_deadlock_is_tried_again(store: PostgresStore, url: str, db: Any) -> None:
    """A stranger locks our tasks in the other order, and is more patient than we are."""
    mine = await running(store, 1, 2)
    await db.execute("set deadlock_timeout = '1min'")
    strange = db.transaction()
    await strange.start()
    await db.execute("select 1 from makegood.task where id = 2 for update")
    going = asyncio.create_task(mine.commit(done(mine[1], 0), done(mine[2], 0)))
    watcher = await asyncpg.connect(url)
    while not await watcher.fetchval("select count(*) from pg_locks where not granted"):
        assert not going.done()
    await db.execute("select 1 from makegood.task where id = 1 for update")  # ours gives way
    await strange.commit()
    assert (await going).lost == set()
    await watcher.close()


async def test_a_stuck_transaction_does_not_hold_up_the_supervisor(store: PostgresStore, db: Any) -> None:
    """Somebody holds one task's row for long: after the lock timeout the others are freed, and that one in a later pass."""
    old = Hand(store, await scheduler(store, ttl=0.0))
    await store.submit([draft(n) for n in (1, 2, 3)])
    assert len(await old.claim(10)) == 3
    grant = await store.acquire("supervisor", "me", "nonce", 60)
    assert grant is not None
    stuck = db.transaction()
    await stuck.start()
    await db.execute("select 1 from makegood.task where id = 2 for update")
    assert await store.release_dead(grant, 10) == [1, 3]
    await stuck.rollback()
    assert await store.release_dead(grant, 10) == [2]


async def test_what_is_behind_a_message_just_being_taken_waits_for_it(store: PostgresStore, db: Any) -> None:
    """Another receiver has locked it and has not committed: the next of its task is not given past it, and asked for again soon."""
    await store.send_messages([Outgoing(queue="web", id=id_, body=b"1", task=1) for id_ in "ab"], 9)
    taking = db.transaction()
    await taking.start()
    await db.execute("select 1 from makegood.message where id = 'a' for update")
    handed = await store.receive_messages("web", "me", 5, 30.0, 5)
    assert (handed.messages, handed.dead) == ([], 0)
    assert 0 < (handed.rest or 0) < 0.1
    await taking.rollback()
    handed = await store.receive_messages("web", "me", 5, 30.0, 5)
    assert [m.id for m in handed.messages] == ["a", "b"]


# Shapes


@pytest.mark.parametrize("count", [1, 60])
async def test_tasks_of_many_shapes_in_one_submission(store: PostgresStore, count: int) -> None:
    """Few shapes are sent once each, many with each task: what arrives is the same."""

    def shape(n: int) -> tuple[StepPlan, ...]:
        return tuple(
            StepPlan(s.idx, s.kind, f"{s.name}-{n}", s.agent, s.action, Template((f"{n}",)), s.after)
            for s in steps(3)
        )

    shapes = [shape(n) for n in range(count)]
    drafts = [
        draft(
            n,
            steps=shapes[n % count],
            key=f"k{n}" if n % 2 else None,
            trace="t" if n == 5 else None,
            priority=n % 10,
        )
        for n in range(1, 121)
    ]
    assert all(a.created for a in await store.submit(drafts))
    for n in (1, 5, 60, 120):
        found = await store.detail(n)
        assert found is not None
        assert [s.name for s in found.steps] == [f"s{i}-{n % count}" for i in range(3)]
        assert (found.task.key, found.task.priority) == (f"k{n}" if n % 2 else None, n % 10)
    again = await store.submit(drafts)
    assert [a.created for a in again] == [False] * 120
    assert [a.collided for a in again] == [n % 2 == 0 for n in range(1, 121)]
