"""A connection that is lost while a write is under way: the caller gets the true answer, and the effect stands once.

Three losses for each write: the *answer* (the server committed), the *request* (it never heard of it), and a request that
is held up on the way and arrives after the store has looked what became of it (it must then write nothing).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.base.ids import show
from makegood.errors import StoreError, StoreUnavailableError
from makegood.model.decision import Decision
from makegood.model.messages import Act, Alert, TaskMessage
from makegood.store.postgres import PostgresStore
from makegood.store.signals import OutgoingSignal, Signalled, TaskKey
from proofs.private_server import PrivateServer
from tests.conformance.builders import (
    VALUE,
    WAITS,
    Hand,
    Memory,
    agent,
    begin,
    done,
    draft,
    hand,
    info,
    offer,
    reply,
    running,
    term,
    to_state,
)
from tests.postgres.faulty_proxy import Loss, Proxy

LOSSES: list[Loss] = ["answer", "request", "until later"]
MARK = b"lose me here"
STEP = b"approval-77"
SEEN = "select count(*) from makegood."


@dataclass
class Scene:
    """A store behind the proxy, and what was prepared in it."""

    store: PostgresStore
    scheduler: Hand
    agent: int
    taken: Any = None


async def submits(scene: Scene) -> None:
    submission = draft(7, inputs=(b'"' + MARK + b'"',), key="k")
    (answer,) = await scene.store.tasks.submit([submission])
    assert (answer.id, answer.is_new) == (7, True)


async def submits_some_that_exist(scene: Scene) -> None:
    """The answer of those that were there already is found again too."""
    await scene.store.tasks.submit([draft(5, key="old"), draft(6, key="other", fingerprint=b"else")])
    drafts = [
        draft(7, inputs=(b'"' + MARK + b'"',), key="k"),
        draft(8, key="old"),
        draft(9, key="other"),
        draft(5),
    ]
    answers = await scene.store.tasks.submit(drafts)
    assert [(a.id, a.is_new, a.conflict, a.key_collision) for a in answers] == [
        (7, True, False, False),
        (5, False, False, False),
        (6, False, True, False),
        (5, False, False, True),
    ]


async def signals(scene: Scene) -> None:
    signal = OutgoingSignal(to=1, name="approval", id="click", value=b"true", step=STEP.decode())
    answer = await scene.store.tasks.signal(signal)
    assert answer == Signalled("click", created=True, task=show(1))


async def signals_by_key(scene: Scene) -> None:
    """The id of its task is found again too."""
    key = TaskKey("shop", "place_order", "signalled")
    draft_ = OutgoingSignal(to=key, name="approval", id="click", value=b"true", step=STEP.decode())
    await scene.store.tasks.signal(replace(draft_, id="second", step=""))
    assert await scene.store.tasks.signal(draft_) == Signalled("click", created=True, task=show(1))


async def signals_together(scene: Scene) -> None:
    """A later one of those that share a statement."""
    drafts = [
        OutgoingSignal(to=1, name="approval", id=id_, value=b"true", step=step)
        for id_, step in (("a", ""), ("b", ""), ("click", STEP.decode()))
    ]
    answers = await asyncio.gather(*map(scene.store.tasks.signal, drafts))
    assert [(answer.id, answer.created) for answer in answers] == [("a", True), ("b", True), ("click", True)]


async def wakes(scene: Scene) -> None:
    """A single task at rest is claimed without BEGIN."""
    mine = await running(scene.store, 21)
    await mine.commit(to_state(mine[21], "error", goal="hold"))
    await scene.store.tasks.post(21, TaskMessage("undo"))

    def undo(memory: Memory) -> Decision:
        return to_state(memory, "undoing", goal="undo", cause=MARK.decode())

    assert await scene.scheduler.claim(0, undo, at_rest=[21]) == [21]
    assert scene.scheduler[21].task.epoch == 2


async def commits(scene: Scene) -> None:
    value = b'"' + MARK + b'"'
    outcome = await scene.scheduler.commit(
        begin(scene.scheduler[1], 1, done(scene.scheduler[1], 0, value=value)), begin(scene.scheduler[2], 1)
    )
    assert (outcome.losses, outcome.rejections) == (set(), [])


async def commits_with_a_loser(scene: Scene) -> None:
    """Who lost is known although the answer is not: losers are left out before anything is written."""
    loser = done(scene.scheduler[2], 0)
    await scene.scheduler.commit(done(scene.scheduler[2], 0))
    value = b'"' + MARK + b'"'
    outcome = await scene.scheduler.commit(
        begin(scene.scheduler[1], 1, done(scene.scheduler[1], 0, value=value)), loser
    )
    assert outcome.losses == {2}


async def withdraws(scene: Scene) -> None:
    decision = to_state(scene.scheduler[2], "undoing", goal="undo", cause=MARK.decode())
    decision.withdraw.append((0, 1))
    outcome = await scene.scheduler.commit(decision)
    assert outcome.withdrawals == [(2, 0, 1)]


async def claims(scene: Scene) -> None:
    await scene.store.tasks.submit([draft(11), draft(12)])
    ids = await scene.scheduler.claim(10)
    assert sorted(ids) == [11, 12]
    assert scene.scheduler[11].task.epoch == 1


async def answers(scene: Scene) -> None:
    message = reply(scene.taken, "done", error=MARK.decode())
    assert await scene.store.requests.answer(scene.agent, [message]) == [True]


async def answers_two_of_which_one_is_late(scene: Scene) -> None:
    message = reply(scene.taken, "done", error=MARK.decode())
    late = (2, TaskMessage("done", 0, attempt=9, value=VALUE))
    assert await scene.store.requests.answer(scene.agent, [late, message]) == [False, True]


async def takes(scene: Scene) -> None:
    """Also when the answer is lost a request comes with all its seconds: the agent counts them from when it asked."""
    requests = await scene.store.requests.take(scene.agent, [offer(actions=("act0", MARK.decode()))])
    assert [(r.task, r.idx, r.attempt) for r in requests] == [(2, 0, 1)]
    assert requests[0].within == 30


async def posts(scene: Scene) -> None:
    await scene.store.tasks.post(1, TaskMessage("cancel", act=Act("a1", why=MARK.decode())))


async def alerts(scene: Scene) -> None:
    await scene.store.alerts.alert([Alert("no_leader", text=MARK.decode())])


async def registers(scene: Scene) -> None:
    number = await scene.store.nodes.register(info(MARK.decode()))
    assert [n.id for n in await scene.store.nodes.views() if n.info.name == MARK.decode()] == [number]


async def judges(scene: Scene) -> None:
    grant = await term(scene.store)
    verdict = await scene.store.supervision.judge(grant, -1000.0, 10)
    assert [(task, idx) for task, idx, _, _ in verdict.requests] == [(1, 0)]


@dataclass
class Write:
    """A write, what to watch for in its traffic, and what must be found exactly once afterwards."""

    do: Callable[[Scene], Awaitable[None]]
    mark: bytes
    once: str
    times: int = 1


WRITES = {
    "submit": Write(submits, MARK, SEEN + "step where task = 7", 3),
    "submit, some exist": Write(submits_some_that_exist, MARK, SEEN + "step where task in (7, 8, 9)", 3),
    "signal": Write(signals, STEP, SEEN + "signal where id = 'click'"),
    "signal by key": Write(signals_by_key, STEP, SEEN + "signal where id = 'click'"),
    "signals together": Write(signals_together, STEP, SEEN + "signal where task = 1", 4),
    "wake": Write(wakes, MARK, SEEN + "event where task = 21 and position('undoing'::bytea in moves) > 0"),
    "commit": Write(commits, MARK, SEEN + "event where task in (1, 2)", 4),
    "commit with a loser": Write(commits_with_a_loser, MARK, SEEN + "event where task = 1", 2),
    "withdraw": Write(withdraws, MARK, SEEN + "event where task = 2", 2),
    "claim": Write(claims, b"COMMIT", SEEN + "event where task in (11, 12)", 2),
    "answer": Write(answers, MARK, SEEN + "inbox where task = 1 and kind = 'done'"),
    "answer, one late": Write(answers_two_of_which_one_is_late, MARK, SEEN + "inbox where kind = 'done'"),
    "take": Write(takes, MARK, SEEN + "request where taken_by is not null", 2),
    "post": Write(posts, b"COMMIT", SEEN + "inbox where kind = 'cancel'"),
    "alert": Write(alerts, b"COMMIT", SEEN + "alert where kind = 'no_leader'"),
    "register": Write(registers, b"COMMIT", SEEN + "node where name = 'lose me here'"),
    "judge": Write(judges, b"COMMIT", SEEN + "inbox where kind = 'expired'"),
}


async def prepared(store: PostgresStore) -> Scene:
    """Two tasks under way: the request of the first is taken, that of the second waits."""
    scheduler = await running(store, 1, signals=WAITS, key="signalled")
    await store.tasks.signal(OutgoingSignal(to=1, name="approval", id="first", value=b"true"))
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer(1)])
    await store.tasks.submit([draft(2)])
    await scheduler.claim(1)
    return Scene(store, scheduler, payments, request)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("write", WRITES)
async def test_a_write_whose_connection_is_lost_is_done_once_and_answered_truly(
    behind: PostgresStore, proxy: Proxy, db: Any, write: str, loss: Loss
) -> None:
    scene, what = await prepared(behind), WRITES[write]
    event = proxy.lose(what.mark, loss)
    async with asyncio.timeout(8):  # and not after the server has grown tired of an old transaction
        await what.do(scene)
    assert event.is_set()
    await proxy.deliver()
    assert await db.fetchval(what.once) == what.times


async def test_what_the_caller_was_told_was_not_written_never_comes_late(
    behind: PostgresStore, proxy: Proxy, db: Any
) -> None:
    """Every try is held up on its way; when they all arrive at last, each finds its number out of use."""
    await behind.tasks.submit([draft(1)])
    proxy.lose(MARK, "until later", times=100)
    with pytest.raises(StoreUnavailableError, match="nothing was written"):
        await behind.tasks.submit([draft(2, inputs=(b'"' + MARK + b'"',))])
    assert proxy.losses > 1
    await proxy.deliver()
    assert await db.fetchval(SEEN + "task") == 1


async def test_a_write_in_doubt_waits_for_the_server_and_then_answers(
    behind: PostgresStore, proxy: Proxy, server: PrivateServer
) -> None:
    """The server is away when the truth is asked: the caller waits, other callers are told that nothing was written."""
    await behind.tasks.submit([draft(1)])
    event = proxy.lose(MARK, "answer")
    proxy.refusing = True
    going = asyncio.create_task(behind.tasks.submit([draft(2, inputs=(b'"' + MARK + b'"',))]))
    await event.wait()
    proxy.cut()
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1"):
        await behind.tasks.post(1, TaskMessage("cancel"))
    assert not going.done()
    proxy.refusing = False
    assert [a.is_new for a in await going] == [True]


async def test_closing_a_store_in_doubt_ends_and_does_not_lie(behind: PostgresStore, proxy: Proxy) -> None:
    """What cannot be learnt is not called "nothing was written"."""
    await behind.tasks.submit([draft(1)])
    event = proxy.lose(MARK, "answer")
    proxy.refusing = True
    going = asyncio.create_task(behind.tasks.submit([draft(2, inputs=(b'"' + MARK + b'"',))]))
    await event.wait()
    proxy.cut()
    async with asyncio.timeout(60):
        await behind.close()
        with pytest.raises(StoreError, match="before makegood could find out") as error:
            await going
    assert not isinstance(error.value, StoreUnavailableError)


@pytest.mark.new_database
@pytest.mark.parametrize("what", ["submit", "commit", "alert"])
async def test_a_caller_that_is_cancelled_does_not_cancel_the_write(
    store: PostgresStore, db: Any, what: str
) -> None:
    """The driver would cancel it at the server, and a wait for a standby with it."""
    mine = await running(store, 1)
    table = {"submit": "task", "commit": "event", "alert": "alert"}[what]
    await db.fetchval("select pg_advisory_lock(1)")
    await db.execute(
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_advisory_xact_lock(1); return new; end $$;"
        f"create trigger slow before insert on makegood.{table} for each statement execute function slow()"
    )
    before = await db.fetchval(f"select count(*) from makegood.{table}")
    writes: dict[str, Callable[[], Awaitable[object]]] = {
        "submit": lambda: store.tasks.submit([draft(2)]),
        "commit": lambda: mine.commit(done(mine[1], 0)),
        "alert": lambda: store.alerts.alert([Alert("no_leader")]),
    }
    going = asyncio.ensure_future(writes[what]())
    while not await db.fetchval("select count(*) from pg_locks where locktype = 'advisory' and not granted"):
        assert not going.done()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    for _ in range(200):  # a cancel request of the driver's would have come by now
        assert await db.fetchval("select count(*) from pg_locks where locktype = 'advisory' and not granted")
    await db.fetchval("select pg_advisory_unlock(1)")
    await store.close()
    assert await db.fetchval(f"select count(*) from makegood.{table}") == before + 1


async def test_a_scheduler_that_went_on_after_a_lost_answer_keeps_its_numbers_in_order(
    behind: PostgresStore, proxy: Proxy, db: Any
) -> None:
    """Twenty commits, each answer or request lost in turn: every one is written once, in order."""
    scheduler = await hand(behind)
    for n in range(1, 21):
        await behind.tasks.submit([draft(n)])
        proxy.lose(b"COMMIT", ("answer", "request")[n % 2])
        assert await scheduler.claim(1) == [n]
        assert proxy.losses == n
        value = b'"' + MARK + b'"'
        await scheduler.commit(to_state(scheduler[n], "processed", done(scheduler[n], 0, value=value)))
    assert await db.fetchval(SEEN + "event") == 40
    assert await db.fetchval(SEEN + "task where state = 'processed'") == 20
