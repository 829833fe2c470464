"""Requests to agents, their replies, and operators' acts."""

import asyncio

import pytest
from msgspec.structs import replace

from makegood.errors import TaskNotFoundError
from makegood.model.attempt_end import AttemptEnd
from makegood.model.decision import Decision
from makegood.model.messages import Act, Answer, TaskMessage
from makegood.model.note import Note
from makegood.store.protocol import Store
from makegood.store.views import AgentInfo, Filter
from tests.conformance.builders import (
    PAYMENTS,
    VALUE,
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
    steps,
    term,
    to_state,
    unchanged,
)
from tests.conformance.worlds import World


async def kinds(store: Store, scheduler: Hand, task: int) -> list[str]:
    """Return the kinds of the messages that wait for a task."""
    (snapshot,) = await store.tasks.load(scheduler.node, [task])
    return [m.kind for m in snapshot.messages]


# Taking


async def test_the_highest_priority_is_taken_first_then_the_oldest(store: Store, world: World) -> None:
    scheduler = await hand(store)
    for id_, priority in ((5, 0), (3, 9), (8, 0), (1, 9), (4, 2)):
        await store.tasks.submit([draft(id_, priority=priority)])
        await scheduler.claim(1)
        await world.elapse(1)
    payments = await agent(store)
    assert [r.task for r in await store.requests.take(payments, [offer(3)])] == [3, 1, 4]
    assert [r.task for r in await store.requests.take(payments, [offer(3)])] == [5, 8]


async def test_no_more_than_the_free_slots_are_given_per_offer(store: Store) -> None:
    scheduler = await running(store, *range(1, 8))
    await store.tasks.submit([draft(n, steps=steps(1, agent="carrier")) for n in range(8, 12)])
    await scheduler.claim(10)
    payments = await agent(store)
    carrier = offer(3, to="shop/carrier")
    requests = await store.requests.take(payments, [offer(2), carrier])
    assert [(r.agent) for r in requests] == ["payments"] * 2 + ["carrier"] * 3
    assert len(await store.requests.take(payments, [offer(0), carrier])) == 1
    assert await store.requests.take(payments, []) == []


async def test_a_request_goes_to_one_agent_only(store: Store, other: Store) -> None:
    await running(store, *range(1, 41))
    first, second = await agent(store), await agent(other)
    batches = await asyncio.gather(
        *(s.requests.take(a, [offer(7)]) for s, a in ((store, first), (other, second)) * 4)
    )
    tasks = [r.task for each in batches for r in each]
    assert sorted(tasks) == list(range(1, 41))


async def test_only_named_actions_of_that_agent_of_that_app_are_given(store: Store) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(begin(scheduler[1], 1))
    await store.tasks.submit([draft(2, app="depot"), draft(3, steps=steps(1, agent="stock"))])
    await scheduler.claim(5)
    payments = await agent(store)
    assert [
        (r.task, r.action) for r in await store.requests.take(payments, [offer(9, ("act1", "act7"))])
    ] == [(1, "act1")]
    assert [r.task for r in await store.requests.take(payments, [offer(9)])] == [1]
    assert await store.requests.take(payments, [offer(9)]) == []


async def test_complete_by_starts_when_the_request_is_taken(store: Store, world: World) -> None:
    await running(store, 1, steps=steps(3, within=20.0))
    await world.elapse(500)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    assert request.within == pytest.approx(20, abs=5)
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert detail.steps[0].taken_by == payments
    assert detail.steps[0].due == pytest.approx(12, abs=8.1)


async def test_a_node_that_was_declared_dead_is_given_nothing(store: Store, world: World) -> None:
    payments = await agent(store, ttl=5.0)
    await running(store, 1)
    await world.elapse(6)
    await store.supervision.release_dead(await term(store), 10)
    assert await store.requests.take(payments, [offer()]) == []
    assert len(await store.requests.take(await agent(store), [offer()])) == 1


async def test_an_agent_takes_from_a_task_that_has_no_scheduler(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    await world.elapse(120)
    await store.supervision.release_dead(await term(store), 10)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    assert await store.requests.answer(payments, [reply(request)]) == [True]
    new = await hand(store)
    await new.claim(5, lambda memory: to_state(memory, "processing"))
    assert [m.kind for m in new.seen[0].messages] == ["done"]
    assert scheduler.node != new.node


# Isolated requests


async def isolated(store: Store, *ids: int) -> Hand:
    """Send isolated requests."""
    scheduler = await hand(store)
    await store.tasks.submit([draft(n) for n in ids])
    await scheduler.claim(len(ids), lambda memory: begin(memory, isolate=True))
    return scheduler


async def test_an_isolated_request_goes_to_a_node_without_a_scheduler(store: Store) -> None:
    await isolated(store, 1, 2)
    both = await agent(store, roles=("scheduler", "agent"))
    assert await store.requests.take(both, [offer()]) == []
    lone = await agent(store)
    assert [r.task for r in await store.requests.take(lone, [offer()])] == [1, 2]


async def test_a_lone_node_with_a_scheduler_takes_one_isolated_request_and_nothing_beside_it(
    store: Store,
) -> None:
    scheduler = await isolated(store, 1, 2)
    await store.tasks.submit([draft(3)])
    await scheduler.claim(1)
    both = await agent(store, roles=("scheduler", "agent"))
    assert [r.task for r in await store.requests.take(both, [offer()], alone=True)] == [1]
    assert [r.task for r in await store.requests.take(both, [offer()], alone=True)] == [2]
    assert [r.task for r in await store.requests.take(both, [offer()], alone=True)] == [3]


async def test_a_lone_node_leaves_isolated_requests_to_a_live_one_without_a_scheduler(
    store: Store, world: World
) -> None:
    await isolated(store, 1)
    lone = await agent(store, ttl=10.0)
    both = await agent(store, roles=("scheduler", "agent"), ttl=1000.0)
    assert await store.requests.take(both, [offer()], alone=True) == []
    await world.elapse(11)  # the other one has died
    assert [r.task for r in await store.requests.take(both, [offer()], alone=True)] == [1]
    assert lone != both


async def test_a_node_without_a_scheduler_that_offers_another_agent_does_not_count(store: Store) -> None:
    await isolated(store, 1)
    await store.nodes.register(info("x", ("agent",), agents=(AgentInfo("shop/stock", 4),)))
    idle = await agent(store)
    await store.nodes.unregister(idle)
    both = await agent(store, roles=("scheduler", "agent"))
    assert [r.task for r in await store.requests.take(both, [offer()], alone=True)] == [1]


# Replies


async def test_a_reply_in_time_is_in_the_tasks_inbox(store: Store) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    answer = replace(reply(request, unclear=True)[1], error="note")
    assert await store.requests.answer(payments, [(1, answer)]) == [True]
    (message,) = (await store.tasks.inbox(scheduler.node, 10)).messages[1]
    assert replace(message, seq=0) == answer
    assert message.value == VALUE


async def test_an_answered_request_stays_until_the_scheduler_uses_it_up(store: Store) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    await store.requests.answer(payments, [reply(request)])
    assert (await store.admin.schema()).rows["request"] == 1
    assert await store.requests.take(payments, [offer()]) == []
    assert not (await scheduler.commit(done(scheduler[1], 0))).losses


async def test_the_same_reply_again_is_in_time_and_changes_nothing(store: Store) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    twice = [reply(request), reply(request)]
    assert await store.requests.answer(payments, twice) == [True, True]
    assert await store.requests.answer(payments, twice) == [True, True]
    assert await kinds(store, scheduler, 1) == ["done"]
    assert len(await store.tasks.history(1)) == 1


async def test_another_reply_to_an_answered_request_is_late(store: Store) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    assert await store.requests.answer(payments, [reply(request)]) == [True]
    assert await store.requests.answer(payments, [reply(request, "permanent", error="no")]) == [False]
    assert await kinds(store, scheduler, 1) == ["done"]
    assert "permanent" in (await store.tasks.history(1))[-1].note


async def test_a_reply_after_complete_by_is_late_even_before_it_is_judged(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store, ttl=1000.0)
    (request,) = await store.requests.take(payments, [offer()])
    await world.elapse(30.5)
    assert await store.requests.answer(payments, [reply(request)]) == [False]
    assert await kinds(store, scheduler, 1) == ["late"]
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    late = snapshot.messages[0]
    assert (late.idx, late.doing, late.attempt, late.value) == (0, "do", 1, VALUE)


async def test_a_reply_after_the_judgement_is_recorded_as_late(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store, ttl=1000.0)
    (request,) = await store.requests.take(payments, [offer()])
    await world.elapse(40)
    await store.supervision.judge(await term(store), 2.0, 10)
    assert await store.requests.answer(payments, [reply(request)]) == [False]
    assert await kinds(store, scheduler, 1) == ["expired", "late"]
    last = (await store.tasks.history(1))[-1]
    assert (last.node, last.moves) == (payments, [])
    assert "done" in last.note


async def test_a_late_reply_that_does_not_say_done_is_only_history(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store, ttl=1000.0)
    (request,) = await store.requests.take(payments, [offer()])
    await world.elapse(40)
    for kind in ("permanent", "refused", "later", "gave_up", "happened", "not_happened"):
        assert await store.requests.answer(payments, [reply(request, kind)]) == [False]
    assert await kinds(store, scheduler, 1) == []
    assert len(await store.tasks.history(1)) == 7


async def test_a_late_reply_to_an_ended_task_is_only_history(store: Store) -> None:
    scheduler = await running(store, 1, 2, 3)
    payments = await agent(store)
    requests = await store.requests.take(payments, [offer()])
    await scheduler.commit(
        to_state(scheduler[1], "processed"),
        to_state(scheduler[2], "undone"),
        to_state(scheduler[3], "error", goal="hold"),
    )
    assert await store.requests.answer(payments, [reply(r) for r in requests]) == [False, False, False]
    assert (await store.tasks.inbox(scheduler.node, 10)).at_rest == [3]
    assert [len(await store.tasks.history(n)) for n in (1, 2, 3)] == [3, 3, 3]


async def test_a_reply_of_a_node_that_did_not_take_the_request_is_refused(store: Store) -> None:
    await running(store, 1, 2)
    first, second = await agent(store), await agent(store)
    (request,) = await store.requests.take(first, [offer(1)])
    assert await store.requests.answer(second, [reply(request)]) == [False]
    untaken = replace(request, task=2)
    assert await store.requests.answer(first, [reply(untaken)]) == [False]
    assert await store.requests.answer(first, [reply(request)]) == [True]


async def test_a_reply_to_a_superseded_attempt_is_refused(store: Store) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    again = unchanged(scheduler[1])
    again.used_requests.append((0, 1))
    await scheduler.commit(begin(scheduler[1], 0, again))
    (second,) = await store.requests.take(payments, [offer()])
    assert await store.requests.answer(payments, [reply(request), reply(second)]) == [False, True]
    assert await store.requests.answer(payments, [reply(replace(second, attempt=3))]) == [False]


async def test_a_reply_about_another_doing_than_asked_is_refused(store: Store) -> None:
    await running(store, 1)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    assert await store.requests.answer(payments, [reply(request, "happened", doing="probe")]) == [False]


async def test_replies_of_one_call_are_judged_one_by_one(store: Store) -> None:
    scheduler = await running(store, *range(1, 6))
    payments = await agent(store)
    requests = await store.requests.take(payments, [offer()])
    replies = [reply(r if r.task != 3 else replace(r, attempt=9)) for r in requests]
    replies.append((999, TaskMessage("done", 0, "do", 1)))
    assert await store.requests.answer(payments, replies) == [True, True, False, True, True, False]
    assert sorted((await store.tasks.inbox(scheduler.node, 10)).messages) == [1, 2, 3, 4, 5]
    assert await store.requests.answer(payments, []) == []


async def test_notes_wait_for_the_scheduler_in_order_before_the_reply(store: Store) -> None:
    """Those of a task that does not exist any more are dropped, and cost nobody else's."""
    scheduler = await running(store, 1)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer(1)])
    notes = [Note(0, 1, "do", "a"), Note(0, 1, "do", {"b": [1, None]}, 3)]
    messages = [TaskMessage("late", 0, "do", 1, note=note) for note in notes]
    await store.requests.note([(1, messages[0]), (99, messages[0]), (1, messages[1])])
    assert await store.requests.answer(payments, [reply(request)]) == [True]
    messages = (await store.tasks.inbox(scheduler.node, 10)).messages[1]
    assert [message.note for message in messages] == [*notes, None]
    assert [message.kind for message in messages] == ["late", "late", "done"]


async def test_notes_of_a_decision_are_in_the_history(store: Store) -> None:
    """Beside moves and ends of attempts, or alone; each reader gets them apart from those."""
    scheduler = await running(store, 1)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    notes = [Note(0, 1, "do", "a"), Note(0, 1, "do", {"b": 1}, 3), Note(2, 4, "undo", "c", late=True)]
    decision = Decision(snapshot.task, snapshot.task, notes=notes, attempts=[AttemptEnd(0, 1, "do", "later")])
    await scheduler.commit(decision)
    event = (await store.tasks.history(1))[-1]
    assert (list(event.notes), event.attempts) == (notes, (AttemptEnd(0, 1, "do", "later"),))
    assert (await store.tasks.recent(1)).events[-1] == event


async def test_a_request_handed_over_in_memory_may_be_answered_through_the_store(store: Store) -> None:
    scheduler = await running(store, 1, local=True)
    message = TaskMessage("done", 0, "do", 1, VALUE)
    assert await store.requests.answer(scheduler.node, [(1, message)]) == [True]
    assert await kinds(store, scheduler, 1) == ["done"]


async def test_a_reply_and_its_judgement_at_once_exclude_each_other(
    store: Store, other: Store, world: World
) -> None:
    """In time or judged, never both: the reply's row and the deletion of its request are one order."""
    scheduler = await running(store, *range(1, 31))
    payments = await agent(store, ttl=1000.0)
    requests = await store.requests.take(payments, [offer(30)])
    grant = await term(other, ttl=1000.0)
    answers, verdict = await asyncio.gather(
        asyncio.gather(*(store.requests.answer(payments, [reply(r)]) for r in requests[:15])),
        other.supervision.judge(grant, -1000.0, 100),  # judges even what is not due yet
    )
    in_time = {r.task for r, (ok,) in zip(requests, answers, strict=False) if ok}
    assert in_time.isdisjoint(task for task, *_ in verdict.requests)
    assert in_time | {task for task, *_ in verdict.requests} == set(range(1, 31))
    for n in range(1, 31):
        messages = await kinds(store, scheduler, n)
        assert messages == (["done"] if n in in_time else ["expired", "late"] if n <= 15 else ["expired"])


# Extending and giving back


async def test_extend_moves_complete_by_from_now(store: Store, world: World) -> None:
    await running(store, 1)
    payments = await agent(store, ttl=1000.0)
    await store.requests.take(payments, [offer()])
    await world.elapse(25)
    assert await store.requests.extend(payments, 1, 0, 1, 100.0)
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert detail.steps[0].due == pytest.approx(100, abs=40)


async def test_extend_never_shortens(store: Store) -> None:
    await running(store, 1)
    payments = await agent(store)
    await store.requests.take(payments, [offer()])
    assert await store.requests.extend(payments, 1, 0, 1, 1.0)
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert detail.steps[0].due == pytest.approx(30, abs=20)


async def test_extend_is_refused_for_what_is_not_ours_or_not_in_time(store: Store, world: World) -> None:
    scheduler = await running(store, 1, 2)
    payments, stranger = await agent(store, ttl=1000.0), await agent(store, ttl=1000.0)
    (request,) = await store.requests.take(payments, [offer(1)])
    assert not await store.requests.extend(stranger, 1, 0, 1, 100.0)
    assert not await store.requests.extend(payments, 1, 0, 2, 100.0)
    assert not await store.requests.extend(payments, 2, 0, 1, 100.0)
    assert not await store.requests.extend(payments, 1, 7, 1, 100.0)
    await scheduler.commit(Decision(scheduler[1].task, scheduler[1].task, timers={1: 5.0}))
    assert not await store.requests.extend(payments, 1, 1, 0, 100.0)
    await world.elapse(31)
    assert not await store.requests.extend(payments, 1, 0, 1, 100.0)
    assert await store.requests.answer(payments, [reply(request)]) == [False]


async def test_a_request_given_back_is_available_again_at_its_old_place(store: Store, world: World) -> None:
    await running(store, 1)
    await world.elapse(1)
    scheduler = await running(store, 2)
    first = await agent(store, ttl=1000.0)
    requests = await store.requests.take(first, [offer(1)])
    await world.elapse(10)
    await store.requests.give_back(first, [(r.task, r.idx, r.attempt) for r in requests])
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.steps[0].taken_by, detail.steps[0].due, detail.steps[0].attempt) == (None, None, 1)
    second = await agent(store)
    assert [r.task for r in await store.requests.take(second, [offer()])] == [1, 2]
    assert await store.requests.answer(first, [reply(requests[0])]) == [False]
    assert await store.requests.answer(second, [reply(requests[0])]) == [True]
    assert scheduler.node


async def test_only_ones_own_unanswered_requests_can_be_given_back(store: Store) -> None:
    await running(store, 1, 2)
    first, second = await agent(store), await agent(store)
    requests = await store.requests.take(first, [offer()])
    await store.requests.answer(first, [reply(requests[0])])
    await store.requests.give_back(second, [(2, 0, 1)])
    await store.requests.give_back(first, [(1, 0, 1), (2, 0, 5), (99, 0, 1)])
    assert await store.requests.take(second, [offer()]) == []
    await store.requests.give_back(first, [])


async def test_what_was_handed_over_in_memory_cannot_be_given_back(store: Store) -> None:
    """Its row has no body: nobody else could run it. Its silence will be judged."""
    scheduler = await running(store, 1, local=True)
    await store.requests.give_back(scheduler.node, [(1, 0, 1)])
    assert await store.requests.take(await agent(store), [offer()]) == []


# The inbox


async def test_the_inbox_holds_messages_of_held_tasks_oldest_first(store: Store) -> None:
    scheduler, second = await running(store, 1, 2), await running(store, 3)
    for task, kind in ((1, "cancel"), (2, "undo"), (1, "settle"), (3, "cancel")):
        await store.tasks.post(task, TaskMessage(kind))  # type: ignore[arg-type]
    inbox = await store.tasks.inbox(scheduler.node, 10)
    assert {task: [m.kind for m in messages] for task, messages in inbox.messages.items()} == {
        1: ["cancel", "settle"],
        2: ["undo"],
    }
    assert inbox.at_rest == []
    assert list((await store.tasks.inbox(second.node, 10)).messages) == [3]


async def test_looking_into_the_inbox_removes_nothing(store: Store) -> None:
    scheduler = await running(store, 1)
    await store.tasks.post(1, TaskMessage("cancel"))
    assert await store.tasks.inbox(scheduler.node, 10) == await store.tasks.inbox(scheduler.node, 10)
    assert (await store.tasks.inbox(scheduler.node, 10)).messages


async def test_the_inbox_names_unlocked_tasks_at_rest_that_have_messages(store: Store) -> None:
    scheduler = await running(store, 1, 2, 3)
    await store.tasks.submit([draft(4)])
    await scheduler.commit(
        to_state(scheduler[1], "error"),
        to_state(scheduler[2], "processed"),
        to_state(scheduler[3], "pending"),
    )
    for n in (1, 1, 2, 3, 4):
        await store.tasks.post(n, TaskMessage("cancel"))
    inbox = await store.tasks.inbox((await hand(store)).node, 10)
    assert (inbox.messages, sorted(inbox.at_rest)) == ({}, [1, 2])


async def test_at_most_limit_messages_are_returned_the_oldest_first(store: Store) -> None:
    scheduler = await running(store, 1)
    for n in range(5):
        await store.tasks.post(1, TaskMessage("cancel", act=Act(f"a{n}")))
    (messages,) = (await store.tasks.inbox(scheduler.node, 3)).messages.values()
    assert [m.act.id for m in messages if m.act] == ["a0", "a1", "a2"]


async def test_a_message_to_a_task_that_does_not_exist_is_refused(store: Store) -> None:
    with pytest.raises(TaskNotFoundError, match="no task"):
        await store.tasks.post(12345, TaskMessage("cancel"))


async def test_a_wrong_post_does_not_spoil_others_of_the_same_moment(store: Store) -> None:
    scheduler = await running(store, 1)
    results = await asyncio.gather(
        store.tasks.post(1, TaskMessage("cancel")),
        store.tasks.post(777, TaskMessage("cancel")),
        store.tasks.post(1, TaskMessage("undo")),
        return_exceptions=True,
    )
    assert [type(r) for r in results] == [type(None), TaskNotFoundError, type(None)]
    assert await kinds(store, scheduler, 1) == ["cancel", "undo"]


async def test_acts_not_yet_decided_are_missing_from_the_answers(store: Store) -> None:
    assert await store.tasks.answers(["a"]) == {}
    assert await store.tasks.answers([]) == {}


async def test_an_act_carries_who_and_why_to_its_answer(store: Store) -> None:
    scheduler = await running(store, 1)
    act = Act("a1", "ops", "the customer called")
    await store.tasks.post(1, TaskMessage("cancel", act=act))
    (message,) = (await store.tasks.inbox(scheduler.node, 10)).messages[1]
    assert message.act is not None
    assert replace(message.act, db_user="") == act  # the database writes its own word beside it

    def made(memory: Memory) -> Decision:
        decision = unchanged(memory)
        decision.seqs = [message.seq]
        decision.answers = [Answer(act, "cancel", "refused", "past return", "processing")]
        return decision

    await scheduler.commit(made(scheduler[1]))
    assert await store.tasks.answers(["a1"]) == {
        "a1": Answer(act, "cancel", "refused", "past return", "processing")
    }
    assert await kinds(store, scheduler, 1) == []
    assert len(await store.tasks.find(Filter(states=("processing",)))) == 1
    assert PAYMENTS == "shop/payments"
