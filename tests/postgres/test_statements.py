"""What the statements cost and lock: their number per batch, the indexes they use, and who waits for whom."""

import asyncio
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from makegood.base.ids import show
from makegood.client.client import Client
from makegood.errors import FencedOffError, SignalRefused, TaskNotFoundError
from makegood.model.messages import Alert
from makegood.model.plan import StepPlan, Template
from makegood.model.shape import Shape
from makegood.node.node import Node
from makegood.store import rows, supervision
from makegood.store.postgres import PostgresStore
from makegood.store.postgres.database import _WRITERS
from makegood.store.queue_records import Outgoing
from makegood.store.signals import OutgoingSignal, Signalled, TaskKey
from tests.conformance.builders import (
    WAITS,
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
from tests.conformance.postgres import KEEPS_ALIVE


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
        """Return what was sent since the last call, without what makes a connection ready and, every few seconds, keeps it alive."""
        statements, self.statements = self.statements, []
        ready = [
            s for s in statements if "set_config" not in s and "generation" not in s and "pg_control" not in s
        ]
        return [s for s in ready if s != KEEPS_ALIVE]


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[tuple[PostgresStore, Sent]]:
    """Open a store whose statements are seen, all its connections made."""
    recorder = Sent()
    store = PostgresStore(url, driver=recorder.driver)
    await store.open()
    alerts = [store.alerts.alert([Alert("no_leader")]) for _ in range(_WRITERS)]
    await asyncio.gather(*alerts, store.tasks.submit([draft(1_000_000)]))
    (answer,) = await store.tasks.submit([draft(1_000_001)])
    assert answer.is_new
    mine = await hand(store)
    assert len(await mine.claim(10)) == 2
    recorder.since()
    yield store, recorder
    await store.close()


@pytest.mark.parametrize("size", [1, 300])
async def test_each_batch_is_one_statement_and_one_round_trip(url: str, size: int) -> None:
    """Submitting, committing, taking, answering: no BEGIN, no COMMIT, whatever the size."""
    tasks = range(1, size + 1)
    async with watched(url) as (store, recorder):
        mine = await hand(store)
        payments = await agent(store)
        recorder.since()
        await store.tasks.submit([draft(n, signals=WAITS) for n in tasks])
        assert len(recorder.since()) == 1
        assert len(await mine.claim(1000)) == size
        # BEGIN, find and lock, read, write, COMMIT
        assert len(recorder.since()) == 5
        await mine.commit(*(begin(mine[n], 1, done(mine[n], 0)) for n in tasks))
        assert len(recorder.since()) == 1
        requests = await store.requests.take(payments, [offer(size)])
        assert len(requests) == size
        assert len(recorder.since()) == 1
        assert all(await store.requests.answer(payments, [reply(r) for r in requests]))
        assert len(recorder.since()) == 1
        await store.tasks.inbox(mine.node, 1000)
        assert len(recorder.since()) == 1
        for id_, count in (("a", 2), ("b", 1)):  # the first one reads what such tasks take
            await store.tasks.signal(OutgoingSignal(to=1, name="approval", id=id_, value=b"true"))
            assert len(recorder.since()) == count


async def test_a_claim_reads_the_requests_that_replies_have_used_once(url: str) -> None:
    """To look for them before they are deleted costs as much again; only a second try does so, once one was missing."""
    async with watched(url) as (store, recorder):
        mine = await running(store, 1)
        await store.tasks.submit([draft(2)])
        recorder.since()
        assert await mine.claim(decisions=[done(mine[1], 0)]) == [2]
        assert not any("there as" in statement for statement in recorder.since())


async def test_signals_of_one_moment_share_statements_and_each_has_its_answer(url: str) -> None:
    key = TaskKey("shop", "place_order", "k")

    def signal(to: int | TaskKey, id_: str, value: bytes = b"true") -> OutgoingSignal:
        return OutgoingSignal(to=to, name="approval", id=id_, value=value)

    async with watched(url) as (store, recorder):
        await store.tasks.submit([draft(1, signals=WAITS), draft(2, key="k", signals=WAITS)])
        await store.tasks.signal(signal(1, "known"))
        recorder.since()
        drafts = [
            *(signal(1, f"{n}") for n in range(100)), signal(key, "by key"), signal(9, "lost"), signal(1, "known"), signal(1, "known", b"1"),
            signal(1, "twice"), signal(1, "twice", b"2"),
        ]  # fmt: skip
        answers = await asyncio.gather(
            *(store.tasks.signal(draft) for draft in drafts), return_exceptions=True
        )
        # One state by id and one by key, then a write; the signal that was there twice is looked at again.
        assert len(recorder.since()) <= 6
    signals = [answer for answer in answers if isinstance(answer, Signalled)]
    assert isinstance(answers[101], TaskNotFoundError)
    assert len(signals) == len(drafts) - 1
    assert [answer.created for answer in signals] == [True] * 101 + [False, False, True, False]
    assert [answer.conflict for answer in signals[101:]] == [False, True, False, True]
    assert [answer.task for answer in signals[99:101]] == [show(1), show(2)]


async def test_a_signal_that_is_refused_or_known_writes_nothing(url: str) -> None:
    """No lock on a row, and no number of a transaction: the server would have to sync its log for that."""

    def signal(id_: str, name: str = "approval") -> OutgoingSignal:
        return OutgoingSignal(to=1, name=name, id=id_, value=b"true")

    async with watched(url) as (store, _):
        await store.tasks.submit([draft(1, signals=WAITS)])
        connection = await asyncpg.connect(url)
        for id_ in "ab":
            assert (await store.tasks.signal(signal(id_))).created
        next_number = "select pg_snapshot_xmax(pg_current_snapshot())::text"
        before = await connection.fetchval(next_number)
        assert not (await store.tasks.signal(signal("b"))).created
        with pytest.raises(SignalRefused):
            await store.tasks.signal(signal("c", name="other"))
        assert await connection.fetchval(next_number) == before
        await store.tasks.signal(signal("c"))
        assert await connection.fetchval(next_number) != before
        await connection.close()


async def test_tasks_that_take_different_signals_have_each_their_own_judged(url: str) -> None:
    """Although a process assumes that a task takes what the one before took, and an input looks like its signals."""
    typed = (("approval", '{"type":"object","properties":{"by":{"type":"string","default":"desk"}}}'),)
    looks_alike = b'{"x":[],"signals":[["approval",""],["payment",""]]}'

    async def send(to: int, value: bytes, name: str = "approval") -> bytes:
        answer = await store.tasks.signal(OutgoingSignal(to=to, name=name, id=f"{value!r}", value=value))
        assert answer.created
        return value

    async with watched(url) as (store, _):
        await store.tasks.submit(
            [
                draft(1, signals=(("approval", ""), ("payment", ""))), draft(2, signals=typed),
                draft(3, inputs=(looks_alike,)),
            ]
        )  # fmt: skip
        for round_ in (b"1", b"2"):
            assert await send(1, round_)
            with pytest.raises(SignalRefused, match="must be an object"):
                await send(2, round_)
            with pytest.raises(SignalRefused, match="waits for no signal"):
                await send(3, round_)
            await send(1, round_, name="payment")
        await send(2, b"{}")
        connection = await asyncpg.connect(url)
        body = await connection.fetchval("select body from makegood.inbox where task = 2")
        assert rows.read_message(body, 1).value == b'{"by":"desk"}'
        await connection.close()


async def test_calls_that_come_while_a_commit_runs_share_the_next(url: str) -> None:
    async with watched(url) as (store, recorder):
        mine = await hand(store)
        payments = await agent(store)
        recorder.since()
        await asyncio.gather(*(store.tasks.submit([draft(n)]) for n in range(1, 301)))
        assert len(recorder.since()) == 1
        assert len(await mine.claim(1000)) == 300
        requests = await store.requests.take(payments, [offer(300)])
        recorder.since()
        answers = await asyncio.gather(*(store.requests.answer(payments, [reply(r)]) for r in requests))
        assert all(ok for (ok,) in answers)
        assert len(recorder.since()) == 1


async def test_more_than_the_most_together_go_in_several_statements(url: str) -> None:
    async with watched(url) as (store, recorder):
        await asyncio.gather(*(store.tasks.submit([draft(n)]) for n in range(1, 2502)))
        assert len(recorder.since()) == 3


async def test_a_decision_that_is_lost_costs_two_more_statements(url: str) -> None:
    """The first fails, as a row is missing that it deletes; the second looks for losers and writes nothing; the third writes the rest."""
    async with watched(url) as (store, recorder):
        await store.tasks.submit([draft(n) for n in range(1, 101)])
        mine = await hand(store)
        await mine.claim(1000)
        await mine.commit(done(mine[7], 0))
        recorder.since()
        outcome = await mine.commit(*(done(mine[n], 0) for n in range(1, 101)))
        assert outcome.losses == {7}
        assert len(recorder.since()) == 3


# Plans


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
        state: str = await other.fetchval("select state from makegood.step where task = 1 and idx = 0")
        return state

    going = asyncio.create_task(take_over())
    query = "select count(*) from pg_locks where not granted"
    watcher = await asyncpg.connect(url)
    while not going.done() and not await watcher.fetchval(query):  # noqa: ASYNC110 - the server has no event for it
        await asyncio.sleep(0)
    assert going.done() is not waits
    await change.commit()
    state = await going
    assert (state == "done") is waits
    await other.close()
    await watcher.close()


@pytest.mark.new_database
@pytest.mark.parametrize("claiming", [False, True], ids=["one statement", "with a claim"])
async def test_a_take_over_waits_for_our_commit_and_loads_what_it_wrote(
    store: PostgresStore, url: str, db: Any, *, claiming: bool
) -> None:
    """The commit is held up after it has locked and written; the take-over then gets the new state, and its late twin is lost."""
    old = await running(store, 1)
    if claiming:
        await store.tasks.submit([draft(2)])
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
    query = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    while not await db.fetchval(query):
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
    assert (await old.commit(to_state(old[1], "processed"))).losses == {1}


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
    assert (await going).losses == set()
    await watcher.close()


async def test_a_stuck_transaction_does_not_hold_up_the_supervisor(store: PostgresStore, db: Any) -> None:
    """Somebody holds one task's row for long: after the lock timeout the others are freed, and that one in a later pass."""
    old = Hand(store, await scheduler(store, ttl=0.0))
    await store.tasks.submit([draft(n) for n in (1, 2, 3)])
    assert len(await old.claim(10)) == 3
    grant = await store.leases.acquire("supervisor", "me", "nonce", 60)
    assert grant is not None
    blocker = db.transaction()
    await blocker.start()
    await db.execute("select 1 from makegood.task where id = 2 for update")
    assert await store.supervision.release_dead(grant, 10) == [1, 3]
    await blocker.rollback()
    assert await store.supervision.release_dead(grant, 10) == [2]


async def test_who_was_nearly_declared_dead_keeps_its_tasks(store: PostgresStore, db: Any) -> None:
    """The mark was rolled back, for another led by then, and the heartbeat came after all. While sweeps are rested from, the one who had
    marked it went by what it remembered.
    """
    mine = Hand(store, await scheduler(store, ttl=0.0))
    await store.tasks.submit([draft(1)])
    assert await mine.claim(10) == [1]
    past = await store.leases.acquire("supervisor", "me", "nonce", 60)
    assert past is not None
    await store.leases.release(past)
    grant = await store.leases.acquire("supervisor", "me", "another nonce", 60)
    assert grant is not None
    store.supervision.floors._rests[supervision.HOLD] = math.inf
    with pytest.raises(FencedOffError):
        await store.supervision.release_dead(past, 10)
    await db.execute("update makegood.node set alive_until = alive_until + 1000")
    assert await store.supervision.release_dead(grant, 10) == []
    await db.execute("update makegood.node set alive_until = 0")
    assert await store.supervision.release_dead(grant, 10) == [1]


async def test_what_is_behind_a_message_just_being_taken_waits_for_it(store: PostgresStore, db: Any) -> None:
    """Another receiver has locked it and has not committed: the next of its task is not given past it, and asked for again soon."""
    await store.queues.send_messages([Outgoing(queue="web", id=id_, body=b"1", task=1) for id_ in "ab"], 9)
    taking = db.transaction()
    await taking.start()
    await db.execute("select 1 from makegood.message where id = 'a' for update")
    delivery = await store.queues.receive_messages("web", "me", 5, 30.0, 5)
    assert (delivery.messages, delivery.dead) == ([], 0)
    assert 0 < (delivery.rest or 0) < 0.1
    await taking.rollback()
    delivery = await store.queues.receive_messages("web", "me", 5, 30.0, 5)
    assert [m.id for m in delivery.messages] == ["a", "b"]


# Shapes


@pytest.mark.parametrize("count", [1, 60])
async def test_tasks_of_many_shapes_in_one_submission(store: PostgresStore, count: int) -> None:
    """Few shapes are sent once each, many with each task: what arrives is the same."""

    def shape(n: int) -> Shape:
        return Shape(
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
    assert all(a.is_new for a in await store.tasks.submit(drafts))
    for n in (1, 5, 60, 120):
        detail = await store.tasks.detail(n)
        assert detail is not None
        assert [s.name for s in detail.steps] == [f"s{i}-{n % count}" for i in range(3)]
        assert (detail.task.key, detail.task.priority) == (f"k{n}" if n % 2 else None, n % 10)
    again = await store.tasks.submit(drafts)
    assert [a.is_new for a in again] == [False] * 120
    assert [a.key_collision for a in again] == [n % 2 == 0 for n in range(1, 121)]


async def test_the_server_shows_which_process_a_session_belongs_to(url: str, db: Any) -> None:
    """Its roles and its name: whoever looks for the holder of a lock finds the process. A URL's own application_name goes before."""
    names = "select distinct application_name from pg_stat_activity where application_name like 'makegood %' and datname = current_database()"
    long = f"{'x' * 60}-web-7-4711"
    for name, name_part in (("web-7-4711", "web-7-4711"), (long, long[-33:])):
        async with Node(None, url, roles=("scheduler", "supervisor"), name=name):
            sessions = await db.fetch(names)
            assert [row[0] for row in sessions] == [f"makegood scheduler supervisor {name_part}"]
    async with Client(url):
        ((sessions,),) = await db.fetch(names)
        assert sessions.startswith("makegood client ")
        assert sessions.endswith(f"-{os.getpid()}")
    async with Client(f"{url}?application_name=makegood%20mine"):
        assert [row[0] for row in await db.fetch(names)] == ["makegood mine"]
