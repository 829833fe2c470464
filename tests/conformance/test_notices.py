"""Notices to submitters: written with the state change, leaving in order, given up with an alert."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from makegood.base import ids
from makegood.model import notices
from makegood.model.decision import OpenDecision
from makegood.model.messages import Act
from makegood.store.notice_records import Due, Sending, Waiting
from makegood.store.protocol import Store
from makegood.transactions import Caller
from tests.conformance.builders import (
    UNENCODABLE,
    Hand,
    Memory,
    begin,
    done,
    draft,
    hand,
    running,
    scheduler,
    steps,
    term,
    to_state,
    unchanged,
)
from tests.conformance.worlds import Counts, World, eventually

HOOK = "https://shop.example/hooks/makegood?of=orders"
LEASE = 30.0
ACT = Act("act", "ann", "it is back")


def tell(memory: Memory, decision: OpenDecision) -> OpenDecision:
    """Add the notice of the state that a Decision leaves its task in, as the rules would."""
    notice = notices.notice_of(decision.task, lambda: list((memory.steps | decision.steps).values()))
    assert notice is not None
    decision.notices.append(notice)
    decision.task = replace(decision.task, told=notice.state, notified=notice.sequence)
    return decision


def claimed(memory: Memory) -> OpenDecision:
    return tell(memory, begin(memory))


async def told(store: Store, *tasks: int, to: str = HOOK) -> Hand:
    """Submit tasks that tell, and claim them."""
    scheduler = await hand(store)
    await store.tasks.submit([draft(id_, reply_to=to, correlation_id=f"cart-{id_}") for id_ in tasks])
    assert sorted(await scheduler.claim(100, claimed)) == sorted(tasks)
    return scheduler


async def processed(scheduler: Hand, task: int) -> None:
    memory = scheduler[task]
    await scheduler.commit(tell(memory, to_state(memory, "processed", done(memory), result=b'{"sum":1299}')))


async def take(store: Store, node: int, room: int = 10, lease: float = LEASE) -> list[Due]:
    hosts = await store.notices.notices_due()
    return await store.notices.take_notices(node, [(h.host, room) for h in hosts if h.seconds <= 0], lease)


async def settle(
    store: Store, node: int, due: Sequence[Due], outcome: Any = "sent", **more: Any
) -> list[bool]:
    return await store.notices.settle_notices(
        node, [Sending(d.task, d.sequence, outcome, **more) for d in due]
    )


async def leave(store: Store, node: int) -> list[Any]:
    """Send all that there is; returns the events in the order in which they left."""
    left: list[Any] = []
    while notices := await take(store, node):
        left += [msgspec.json.decode(due.body) for due in notices]
        assert all(await settle(store, node, notices))
    return left


async def test_each_state_leaves_once_in_order_with_all_that_it_says(store: Store) -> None:
    scheduler = await told(store, 7)
    await processed(scheduler, 7)
    events = await leave(store, scheduler.node)
    assert [e["data"]["state"] for e in events] == ["received", "processing", "processed"]
    assert [e["data"]["sequence"] for e in events] == [1, 2, 3]
    assert [e["sequence"] for e in events] == ["0000000001", "0000000002", "0000000003"]
    last = events[-1]
    assert last["data"] == {
        "task": ids.show(7), "state": "processed", "sequence": 3, "submission": 1, "app": "shop", "workflow": "place_order",
        "key": None, "correlation_id": "cart-7", "result": {"sum": 1299},
    }  # fmt: skip
    assert (last["id"], last["generation"]) == (f"{store.identity.store_id}-1-{ids.show(7)}-3", 1)
    assert (last["type"], last["subject"]) == ("dev.makegood.task.processed.v1", ids.show(7))
    assert (last["source"], last["correlationid"]) == ("/makegood/shop/place_order", "cart-7")
    assert [e["time"] for e in events] == sorted(e["time"] for e in events)
    now = msgspec.convert(last["time"], type=__import__("datetime").datetime).timestamp()
    assert abs(now - await store.now()) < 60
    assert await store.notices.listeners() == []
    assert await store.notices.notices_due() == []


async def test_of_two_outcomes_for_one_task_the_one_for_its_next_notice_counts(store: Store) -> None:
    scheduler = await told(store, 7)
    assert [due.sequence for due in await take(store, scheduler.node)] == [1]
    outcomes = [Sending(7, 2, "sent"), Sending(7, 1, "sent"), Sending(7, 1, "failed")]
    assert await store.notices.settle_notices(scheduler.node, outcomes) == [False, True, False]
    (listener,) = await store.notices.listeners()
    assert (listener.sent, listener.tries) == (1, 0)


@pytest.mark.parametrize("to", ["queue:web", HOOK])
async def test_a_generation_has_names_of_its_own(store: Store, to: str) -> None:
    """After a restore a task may come to the same sequence in another way: no receiver must take that for a repeat. What was
    written before keeps its name, whenever it leaves.
    """
    await told(store, 1, to=to)
    await store.admin.begin_generation(ACT)
    again = await hand(store)
    await again.claim(1)
    await processed(again, 1)
    if to == HOOK:
        events = await leave(store, again.node)
    else:
        messages = (await store.queues.receive_messages("web", "me", 10, LEASE, 9)).messages
        events = [message.value for message in messages]
        assert [message.id for message in messages] == [event["id"] for event in events]
    name, task = store.identity.store_id, ids.show(1)
    assert [e["id"] for e in events] == [f"{name}-1-{task}-1", f"{name}-1-{task}-2", f"{name}-2-{task}-3"]
    assert [e["generation"] for e in events] == [1, 1, 2]


async def test_what_stands_is_said_with_an_end(store: Store) -> None:
    scheduler = await told(store, 1)
    memory = scheduler[1]
    decision = done(memory)
    undo = replace(memory.steps[1], state="undone")
    decision.steps[1] = undo
    await scheduler.commit(tell(memory, to_state(memory, "error", decision, cause="card refused")))
    data = (await leave(store, scheduler.node))[-1]["data"]
    assert (data["cause"], data["undone"]) == ("card refused", ["s1"])
    assert data["standing"] == [{"step": "s0", "state": "done"}]
    assert "result" not in data


async def test_several_states_of_one_commit_leave_in_order(store: Store) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, reply_to=HOOK)])

    def straight(memory: Memory) -> OpenDecision:
        decision = tell(memory, to_state(memory, "undoing", release=False, goal="undo", cause="cancelled"))
        return tell(memory, to_state(memory, "undone", decision))

    await scheduler.claim(1, straight)
    events = await leave(store, scheduler.node)
    assert [e["data"]["state"] for e in events] == ["received", "undoing", "undone"]
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.task.state, detail.reply_to) == ("undone", HOOK)


async def test_a_decision_that_is_lost_tells_nothing(store: Store, world: World) -> None:
    """The notice goes with the state change: both, or neither."""
    scheduler = await told(store, 1)
    other = await hand(store)
    stale = tell(scheduler[1], to_state(scheduler[1], "processed", unchanged(scheduler[1]), result=b"1"))
    stale.used_requests.append((0, 9))  # a request that is not there
    assert (await scheduler.commit(stale)).losses == {1}
    assert [e["data"]["state"] for e in await leave(store, other.node)] == ["received", "processing"]
    ((state, sequence),) = await world.rows("select told, notified from {task}")
    assert (state, sequence) == ("processing", 2)


async def test_a_submission_that_finds_its_key_taken_tells_nothing(store: Store) -> None:
    node = await scheduler(store)
    first, second = draft(1, key="o-1", reply_to=HOOK), draft(2, key="o-1", reply_to="https://other.example/")
    assert (await store.tasks.submit([first]))[0].is_new
    assert (await store.tasks.submit([second]))[0].id == 1
    together = await store.tasks.submit([draft(3, reply_to=HOOK), replace(second, id=4), draft(5)])
    assert [s.is_new for s in together] == [True, False, True]
    events = await leave(store, node)
    assert [e["subject"] for e in events] == [ids.show(1), ids.show(3)]


async def test_the_next_scheduler_knows_what_was_told(store: Store, world: World) -> None:
    scheduler = await told(store, 1)
    await world.elapse(100)
    assert await store.supervision.release_dead(await term(store, ttl=1e6), 10) == [1]
    other = await hand(store)
    assert await other.claim(1, begin) == [1]
    task = other[1].task
    assert (task.told, task.notified, task.reply) == ("processing", 2, notices.reply(HOOK, "cart-1"))
    (snapshot,) = await store.tasks.load(other.node, [1])
    assert (snapshot.task.told, snapshot.task.notified) == ("processing", 2)
    assert scheduler.node != other.node


async def test_a_task_that_the_store_puts_to_error_tells_so(store: Store) -> None:
    scheduler = await told(store, 1)
    bad = to_state(scheduler[1], "processed", done(scheduler[1]), cause=UNENCODABLE, result=b"1")
    tell(scheduler[1], bad)
    assert [task for task, _ in (await scheduler.commit(bad)).rejections] == [1]
    data = (await leave(store, scheduler.node))[-1]["data"]
    assert (data["state"], data["sequence"]) == ("error", 3)
    assert data["standing"] == [{"step": "s0", "state": "in_doubt"}]
    assert "refuses a value" in data["cause"]


# Taking


async def test_a_task_is_told_one_after_another_and_tasks_do_not_wait_for_each_other(
    store: Store, other: Store
) -> None:
    scheduler = await told(store, 1, 2)
    first, second = await hand(store), await hand(other)
    notices = await take(store, first.node, 1) + await take(other, second.node, 1)
    assert sorted((d.task, d.sequence) for d in notices) == [(1, 1), (2, 1)]
    assert await take(store, scheduler.node) == []
    mine, theirs = notices
    assert await settle(other, second.node, [mine]) == [False]
    assert await settle(store, first.node, [mine]) == [True]
    assert await settle(store, first.node, [mine]) == [False]
    assert [(d.task, d.sequence) for d in await take(store, first.node)] == [(mine.task, 2)]
    assert await settle(other, second.node, [theirs], "failed", wait=60.0, error="503") == [True]
    assert await take(store, first.node) == []


async def test_two_that_take_at_once_get_different_ones(store: Store, other: Store) -> None:
    scheduler = await told(store, *range(1, 41))
    batches = await asyncio.gather(
        *(take(s, scheduler.node + n, 10) for n, s in enumerate((store, other, store, other)))
    )
    tasks = [due.task for some in batches for due in some]
    assert sorted(tasks) == sorted(set(tasks))
    while more := await take(store, scheduler.node, 10):
        tasks += [due.task for due in more]
    assert sorted(tasks) == list(range(1, 41))


async def test_who_has_it_for_too_long_loses_it(store: Store, world: World) -> None:
    scheduler = await told(store, 1)
    late, next_ = scheduler.node, (await hand(store)).node
    (due,) = await take(store, late)
    await world.elapse(LEASE - 5)
    assert await take(store, next_) == []
    await world.elapse(10)
    (again,) = await take(store, next_)
    assert again == due
    assert await settle(store, late, [due]) == [False]
    assert await settle(store, next_, [again]) == [True]


async def test_of_each_host_so_many_are_taken(store: Store) -> None:
    """A host that does not answer takes no room from the others."""
    scheduler = await hand(store)
    await store.tasks.submit([draft(n, reply_to="https://slow.example/") for n in range(1, 30)])
    await store.tasks.submit([draft(n, reply_to=f"https://h{n}.example/") for n in range(30, 33)])
    assert [h.host for h in await store.notices.notices_due()] == [
        "h30.example", "h31.example", "h32.example", "slow.example",
    ]  # fmt: skip
    room = [(h.host, 4) for h in await store.notices.notices_due()]
    notices = await store.notices.take_notices(scheduler.node, room, LEASE)
    assert sorted(due.task for due in notices if due.task >= 30) == [30, 31, 32]
    assert len(notices) == 7


async def test_what_failed_is_due_again_and_counts_and_what_was_kept_does_not(
    store: Store, world: World
) -> None:
    scheduler = await told(store, 1)
    node = scheduler.node
    assert await settle(store, node, await take(store, node), "failed", wait=60.0, error="503")
    (listener,) = await store.notices.listeners()
    assert (listener.sent, listener.last, listener.tries, listener.error) == (0, 2, 1, "503")
    assert listener.due is not None
    assert 30 < listener.due <= 60
    await world.elapse(70)
    (due,) = await take(store, node)
    assert (due.sequence, due.tries) == (1, 1)
    assert await settle(store, node, [due], "kept", wait=0.0)
    (due,) = await take(store, node)
    assert due.tries == 1
    await processed(scheduler, 1)  # more is said while it is under way
    assert await settle(store, node, [due]) == [True]
    states = [e["data"]["state"] for e in await leave(store, node)]
    assert states == ["processing", "processed"]


async def test_what_waits_for_its_next_try_can_be_taken_early(store: Store) -> None:
    """The next ones first, to one address or to any but some, and never what somebody has."""
    scheduler = await told(store, 1, 2, 3)
    await told(store, 4, to="https://shop.example/other")
    node = scheduler.node
    for due in await take(store, node):
        assert await settle(store, node, [due], "failed", wait=due.task * 600.0, error="503")
    taken = await store.notices.take_early_notices(node, Waiting("shop.example", 2, HOOK), LEASE)
    assert [(due.task, due.sequence, due.url, due.tries) for due in taken] == [
        (1, 1, HOOK, 1),
        (2, 1, HOOK, 1),
    ]
    assert all(due.body for due in taken)
    assert [due.early for due in taken] == pytest.approx([600.0, 1200.0], abs=60.0)
    assert await settle(store, node, taken[:1], "kept", wait=taken[0].early, error="still full")
    (one, *_) = sorted(await store.notices.listeners(), key=lambda view: view.task)
    assert (one.task, one.tries, one.error) == (1, 1, "still full")
    assert one.due == pytest.approx(600.0, abs=60.0)
    others = await store.notices.take_early_notices(node, Waiting("shop.example", 9, without=[HOOK]), LEASE)
    assert [due.task for due in others] == [4]
    rest = await store.notices.take_early_notices(node, Waiting("shop.example", 9), LEASE)
    assert [due.task for due in rest] == [1, 3]
    assert await store.notices.take_early_notices(node, Waiting("other.example", 9), LEASE) == []
    assert await settle(store, node, taken[1:]) == [True]


async def test_what_is_given_up_is_told_to_operators_and_sent_when_they_ask(store: Store) -> None:
    scheduler = await told(store, 1, 2)
    node = scheduler.node
    given_up = [due for due in await take(store, node) if due.task == 1]
    assert await settle(store, node, given_up, "dead", error="404") == [True]
    (alert,) = await store.alerts.views()
    assert (alert.kind, alert.task) == ("dead_letter", 1)
    assert "https://shop.example" in alert.text
    assert "of=orders" not in alert.text  # what may be secret is not shown
    assert [(v.task, v.dead, v.due) for v in await store.notices.listeners(dead=True)] == [(1, True, None)]
    await processed(scheduler, 1)  # goes behind what was given up
    assert [d.task for d in await take(store, node)] == []
    assert await store.notices.retry_notices(ACT, 2) == []
    assert await store.notices.retry_notices(ACT) == [1]
    states = [e["data"]["state"] for e in await leave(store, node)]
    assert states == ["received", "processing", "processed"]


async def test_of_a_task_that_is_named_what_waits_is_dropped_too(store: Store) -> None:
    """What is being sent is nobody's then, and what the task says later is told again."""
    scheduler = await told(store, 1, 2)
    sending = [due for due in await take(store, scheduler.node) if due.task == 1]
    assert await store.notices.retry_notices(ACT, 1) == await store.notices.drop_notices(ACT) == []
    assert await store.notices.drop_notices(ACT, 1) == [1]
    assert [view.task for view in await store.notices.listeners()] == [2]
    assert await settle(store, scheduler.node, sending, "sent") == [False]
    await processed(scheduler, 1)
    states = [e["data"]["state"] for e in await leave(store, scheduler.node)]
    assert "processed" in states


async def test_whoever_retries_or_drops_notices_stands_in_the_audit_and_their_alerts_end(
    store: Store,
) -> None:
    scheduler = await told(store, 1, 2)
    node = scheduler.node
    await settle(store, node, await take(store, node), "dead", error="404")
    assert len(await store.alerts.views(ended=False)) == 2
    await store.notices.retry_notices(Act("a", "ann", "it is back"), 1)
    await store.notices.drop_notices(Act("b", "bob", "nobody listens"))
    assert await store.alerts.views(ended=False) == []
    assert sorted((a.task, a.ended_why) for a in await store.alerts.views(ended=True)) == [
        (1, "sent again"),
        (2, "dropped"),
    ]
    where = "notices to https://shop.example"
    (drop,), (retry,) = await store.admin.audit(task=2), await store.admin.audit(task=1)
    assert (drop.kind, drop.who, drop.why, drop.outcome) == (
        "drop_notices",
        "bob",
        "nobody listens",
        where,
    )
    assert (retry.kind, retry.who, retry.why, retry.outcome) == (
        "retry_notices",
        "ann",
        "it is back",
        where,
    )


async def test_what_is_given_up_can_be_dropped(store: Store, world: World) -> None:
    scheduler = await told(store, 1)
    await settle(store, scheduler.node, await take(store, scheduler.node), "dead", error="410")
    assert await store.notices.drop_notices(ACT, 1) == [1]
    assert await store.notices.listeners() == []
    assert await world.rows("select * from {notice}") == []
    await processed(scheduler, 1)  # said later, told again
    assert [e["data"]["sequence"] for e in await leave(store, scheduler.node)] == [3]


async def test_saying_more_while_the_last_one_is_settled_loses_neither(store: Store, other: Store) -> None:
    """The race of the Scheduler that adds a notice with the notifier that settles the last one before it."""
    tasks = range(1, 21)
    scheduler = await told(store, *tasks)
    node = (await hand(other)).node
    for _ in range(2):
        notices = await take(other, node, 100)
        assert len(notices) == 20
        await asyncio.gather(
            *(settle(other, node, [due]) for due in notices[:10]),
            settle(other, node, notices[10:]),
            *(processed(scheduler, n) for n in tasks if scheduler[n].task.state != "processed"),
        )
    events = await leave(other, node)
    assert sorted(e["subject"] for e in events) == [ids.show(n) for n in tasks]
    assert {e["data"]["sequence"] for e in events} == {3}
    assert await other.notices.listeners() == []


async def test_whoever_sends_is_rung_for(store: Store, other: Store) -> None:
    rings: list[None] = []
    stop = other.subscribe("notice", lambda: rings.append(None))
    await store.tasks.submit([draft(1, reply_to=HOOK)])
    await eventually(lambda: rings, "a ring for a notice")
    stop()


async def test_who_reads_a_queue_is_rung_for_what_is_submitted_in_a_transaction(store: Store) -> None:
    """As for a plain submission: an inbox submits in the transaction in which it takes its message."""
    rings: dict[str, int] = {}
    ends = [
        store.subscribe(topic, partial(rings.__setitem__, topic, 1)) for topic in ("pending", "queue:web")
    ]

    async def work(caller: Caller) -> None:
        await store.tasks.join(caller, [draft(1, reply_to="queue:web")])

    await store.transact(work, waits=False)
    await eventually(lambda: rings, "a ring for the task")
    assert set(rings) == {"pending", "queue:web"}, "at once, not with the next poll"
    for end in ends:
        end()


# What it costs


@pytest.mark.parametrize("reply_to", [None, HOOK])
async def test_a_notice_costs_no_commit_and_without_a_reply_to_no_statement(
    counting_store: Store, counts: Counts, reply_to: str | None, world: World
) -> None:
    """Three tasks, three commits each way; what tells is counted against what does not."""

    async def run(first: int, to: str | None) -> tuple[int, int]:
        scheduler = await hand(counting_store)
        mark = claimed if to is not None else begin
        await counts.reset()
        await counting_store.tasks.submit([draft(first + n, steps=steps(1), reply_to=to) for n in range(3)])
        await scheduler.claim(10, mark)
        ends = [
            to_state(scheduler[first + n], "processed", done(scheduler[first + n]), result=b"1")
            for n in range(3)
        ]
        if to is not None:
            ends = [tell(scheduler[first + n], end) for n, end in enumerate(ends)]
        await scheduler.commit(*ends)
        return await counts.commits(), counts.statements

    await run(1, reply_to)
    commits, statements = await run(100, reply_to)
    assert commits == 3
    _, silent = await run(200, None)
    if reply_to is None:
        assert statements == silent
        assert (
            await world.rows("select * from {notice}") == await world.rows("select * from {listener}") == []
        )
        assert {tuple(row) for row in await world.rows("select told, notified from {task}")} == {(None, None)}
    else:
        assert statements <= silent + 3 * 4


async def test_looking_for_what_is_due_writes_nothing(counting_store: Store, counts: Counts) -> None:
    await running(counting_store, 1, reply_to=HOOK)
    await counts.reset()
    await counting_store.notices.notices_due()
    await counting_store.notices.listeners()
    assert await counts.commits() == 0


# To queues


async def test_notices_to_a_queue_are_its_messages_in_order(store: Store, other: Store) -> None:
    rings: list[None] = []
    stop = other.subscribe("queue:web-7", lambda: rings.append(None))
    scheduler = await told(store, 1, 2, to="queue:web-7")
    await eventually(lambda: rings, "a ring for the queue")
    stop()
    await processed(scheduler, 1)
    bad = to_state(scheduler[2], "processed", done(scheduler[2]), cause=UNENCODABLE, result=b"1")
    assert (await scheduler.commit(tell(scheduler[2], bad))).rejections
    messages = (await other.queues.receive_messages("web-7", "me", 10, 30.0, 5)).messages
    of_one, of_two = ([m for m in messages if m.task == ids.show(task)] for task in (1, 2))
    assert [m.sequence for m in of_one] == [m.sequence for m in of_two] == [1, 2, 3]
    assert [m.value["data"]["state"] for m in of_one] == ["received", "processing", "processed"]
    assert of_two[-1].value["data"]["state"] == "error"
    last = of_one[-1]
    assert (last.id, last.kind) == (last.value["id"], "dev.makegood.task.processed.v1")
    assert (last.correlation_id, last.value["data"]["result"]) == ("cart-1", {"sum": 1299})
    assert await store.notices.listeners() == []
    assert await store.notices.notices_due() == []


async def test_a_decision_that_is_lost_sends_no_message(store: Store) -> None:
    scheduler = await told(store, 1, to="queue:web")
    stale = tell(scheduler[1], to_state(scheduler[1], "processed", unchanged(scheduler[1]), result=b"1"))
    stale.used_requests.append((0, 9))
    assert (await scheduler.commit(stale)).losses == {1}
    assert len(await store.queues.messages("web")) == 2
