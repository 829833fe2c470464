"""Limits of agents: a rate over all processes, silence that is excused, and priorities that rise with waiting."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.model.decision import OpenDecision
from makegood.model.rates import AHEAD
from makegood.store.priority_ageing import Ageing
from makegood.store.protocol import Store
from makegood.store.records import Offer
from tests.conformance.builders import PAYMENTS, agent, draft, hand, info, offer, running, steps, term
from tests.conformance.worlds import World

RATE = 20.0


def rated(slots: int = 500, rate: float = RATE) -> Offer:
    """Return what an agent with a rate offers."""
    return replace(offer(slots), rate=rate)


def trial() -> Offer:
    """Return what an agent whose circuit is half-open offers."""
    return replace(offer(1), trial=True)


# -- rate --------------------------------------------------------------------------------------------------------------


async def test_no_more_is_given_than_the_rate_allows_and_the_rest_waits(store: Store, world: World) -> None:
    await running(store, *range(1, 41))
    payments = await agent(store)
    most = 1 + round(AHEAD * RATE)  # after however long a rest
    began = await store.now()
    first = await store.requests.take(payments, [rated()])
    assert len(first) == most
    assert first.again.keys() == {PAYMENTS}
    second = len(await store.requests.take(payments, [rated()]))
    assert second <= 1 + (await store.now() - began) * RATE  # only real time has passed
    await world.elapse(10.0)
    assert len(await store.requests.take(payments, [offer(500)])) == 40 - most - second


async def test_each_may_begin_an_interval_after_the_one_before_and_its_time_begins_there(
    store: Store,
) -> None:
    await running(store, *range(1, 21))
    payments = await agent(store)
    requests = await store.requests.take(payments, [rated()])
    delays = [request.delay for request in requests]
    assert delays == pytest.approx([n / RATE for n in range(5)], abs=0.001)
    for request in requests:
        assert request.within == pytest.approx(30.0 + request.delay, abs=0.5)


async def test_processes_share_one_rate(store: Store, other: Store) -> None:
    await running(store, *range(1, 41))
    first, second = await agent(store), await agent(other)
    began = await store.now()
    batches = await asyncio.gather(
        *(s.requests.take(a, [rated(2)]) for s, a in ((store, first), (other, second)) * 6)
    )
    real = await store.now() - began
    requests = [request for each in batches for request in each]
    assert 5 <= len(requests) <= 6 + real * RATE
    assert len({(request.task, request.idx) for request in requests}) == len(requests)


async def test_what_was_taken_in_a_row_keeps_the_rate_to_the_number(store: Store, world: World) -> None:
    """A hundred looks, a hundred milliseconds apart, and whatever they took."""
    await running(store, *range(1, 501))
    payments = await agent(store, ttl=600)
    count, began = 0, await store.now()
    for _ in range(100):
        count += len(await store.requests.take(payments, [rated(5)]))
        await world.elapse(0.1)
    real = await store.now() - began if world.dialect == "postgres" else 0.0
    least, most = 10 * RATE, (10 + real) * RATE  # it is not made up for what the machine was too slow to take
    assert least - 0.05 * 10 * RATE <= count <= most + 0.05 * 10 * RATE


async def test_a_further_try_gets_a_turn_like_a_call_whichever_process_asks(
    store: Store, other: Store
) -> None:
    await running(store, *range(1, 21))
    payments = await agent(store)
    began = await store.now()
    (call,) = await store.requests.take(payments, [rated(1, rate=0.1)])
    turns = [await one.requests.turn(PAYMENTS, 0.1, 60.0) for one in (store, other, store)]
    real = await store.now() - began
    assert call.delay == 0.0
    assert turns == pytest.approx([10.0, 20.0, 30.0], abs=0.05 + real)
    assert await other.requests.take(payments, [rated(1, rate=0.1)]) == []


async def test_a_turn_that_does_not_fit_is_not_reserved(store: Store, world: World) -> None:
    """Neither beyond what is left to the attempt, nor more than a minute ahead."""
    assert await store.requests.turn(PAYMENTS, 0.1, 30.0) == 0.0
    assert await store.requests.turn(PAYMENTS, 0.1, 5.0) is None
    turns = [await store.requests.turn(PAYMENTS, 0.1, 1e9) for _ in range(10)]
    assert [turn is None for turn in turns] == [False] * 6 + [True] * 4
    await world.elapse(61.0)
    assert await store.requests.turn(PAYMENTS, 0.1, 10.0) is not None


async def test_a_rate_holds_back_its_own_agent_alone(store: Store) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(n) for n in range(1, 31)])
    await store.tasks.submit([draft(n, steps=steps(agent="stock")) for n in range(31, 61)])
    await scheduler.claim(100)
    both = await store.nodes.register(info("x", ("agent",)))
    requests = await store.requests.take(both, [rated(), offer(500, to="shop/stock")])
    assert sum(request.agent == "stock" for request in requests) == 30
    assert sum(request.agent == "payments" for request in requests) == 5
    assert {request.delay for request in requests if request.agent == "stock"} == {0.0}
    assert requests.again.keys() == {PAYMENTS}


async def test_nothing_is_said_of_more_when_nothing_was_held_back(store: Store) -> None:
    await running(store, 1, 2)
    payments = await agent(store)
    assert (await store.requests.take(payments, [rated(2)])).again == {}
    assert (await store.requests.take(payments, [rated()])).again == {}
    assert (await store.requests.take(payments, [offer()])).again == {}


# -- what is excused ---------------------------------------------------------------------------------------------------


async def test_silence_that_is_excused_is_judged_and_counts_as_no_failure(store: Store, world: World) -> None:
    await running(store, 1, 2)
    payments = await agent(store, ttl=600)
    await store.requests.take(payments, [offer()])
    await store.requests.excuse(payments, [(1, 0, 1)])
    await world.elapse(120)
    verdict = await store.supervision.judge(await term(store), 0.0, 10)
    assert sorted(verdict.requests) == [(1, 0, 1, 0), (2, 0, 1, 1)]
    for task, failures in ((1, 0), (2, 1)):
        detail = await store.tasks.detail(task)
        assert detail is not None
        assert (detail.task.failure_count, detail.steps[0].failures) == (failures, failures)


async def test_a_canary_is_excused_as_it_is_taken(store: Store, world: World) -> None:
    """Its silence counts as no failure, whatever becomes of its agent's word: the mark is in the row from the beginning."""
    await running(store, 1, 2)
    payments = await agent(store, ttl=600)
    assert len(await store.requests.take(payments, [trial()])) == 1
    assert len(await store.requests.take(payments, [offer()])) == 1
    await world.elapse(120)
    verdict = await store.supervision.judge(await term(store), 0.0, 10)
    assert sorted(verdict.requests) == [(1, 0, 1, 0), (2, 0, 1, 1)]


async def test_a_canary_of_a_step_that_has_failed_while_others_were_answered_is_not_excused(
    store: Store, world: World
) -> None:
    """Two failures that count, deaths of processes aside: its agent decides whether the silence counts."""
    scheduler = await running(store, 1, 2, 3)
    payments = await agent(store, ttl=600)
    for task, failures, deaths in ((1, 1, 0), (2, 2, 0), (3, 3, 2)):
        memory = scheduler[task]
        step = replace(memory.steps[0], failures=failures, deaths=deaths)
        await scheduler.commit(
            OpenDecision(memory.task, memory.task, steps={0: step}, failure_counts={0: (True, failures)})
        )
    for _ in range(3):
        assert len(await store.requests.take(payments, [trial()])) == 1
    await world.elapse(120)
    verdict = await store.supervision.judge(await term(store), 0.0, 10)
    assert sorted(verdict.requests) == [(1, 0, 1, 1), (2, 0, 1, 3), (3, 0, 1, 3)]
    messages = (await store.tasks.inbox(scheduler.node, 10)).messages
    assert {task: [message.excused for message in silences] for task, silences in messages.items()} == {
        1: [True],
        2: [False],
        3: [True],
    }


async def test_a_canary_whose_process_dies_counts_and_one_whose_process_is_stopped_does_not(
    store: Store, other: Store, world: World
) -> None:
    """The first may have been killed by it: poison comes to its threshold. To stop a process, in an outage too, undoes nothing."""
    await running(store, 1, 2)
    dying, leaving = await agent(store, ttl=60), await agent(other, ttl=60)
    assert [request.task for request in await store.requests.take(dying, [trial()])] == [1]
    assert [request.task for request in await other.requests.take(leaving, [trial()])] == [2]
    await other.nodes.unregister(leaving)
    await world.elapse(120)
    verdict = await store.supervision.judge(await term(store), 0.0, 10)
    assert sorted(verdict.requests) == [(1, 0, 1, 1), (2, 0, 1, 0)]


async def test_a_canary_that_is_given_back_is_excused_no_more(store: Store, world: World) -> None:
    await running(store, 1)
    payments = await agent(store, ttl=600)
    await store.requests.take(payments, [trial()])
    await store.requests.give_back(payments, [(1, 0, 1)])
    assert len(await store.requests.take(payments, [offer()])) == 1
    await world.elapse(120)
    assert (await store.supervision.judge(await term(store), 0.0, 10)).requests == [(1, 0, 1, 1)]


async def test_canaries_are_drawn_in_the_order_in_which_they_were_sent(store: Store, world: World) -> None:
    """Whatever their priority: one that has failed is sent again, and is then the last. Beside it, others go by priority."""
    scheduler = await hand(store)
    for n, priority, to in (
        (1, 0, "payments"),
        (2, 9, "payments"),
        (3, 4, "payments"),
        (4, 0, "stock"),
        (5, 9, "stock"),
    ):
        await store.tasks.submit([draft(n, priority=priority, steps=steps(agent=to))])
        await scheduler.claim(1)
        await world.elapse(1)
    both = await store.nodes.register(info("x", ("agent",)))
    beside = offer(1, to="shop/stock")
    assert {r.task for r in await store.requests.take(both, [trial(), beside])} == {1, 5}
    assert {r.task for r in await store.requests.take(both, [beside, trial()])} == {2, 4}
    assert [r.task for r in await store.requests.take(both, [trial()])] == [3]


async def test_the_silence_of_the_dead_is_not_excused(store: Store, world: World) -> None:
    """A step may be what kills its processes: it must come to its threshold."""
    await running(store, 1)
    payments = await agent(store, ttl=60)
    await store.requests.take(payments, [offer()])
    await store.requests.excuse(payments, [(1, 0, 1)])
    await world.elapse(120)
    assert (await store.supervision.judge(await term(store), 0.0, 10)).requests == [(1, 0, 1, 1)]


async def test_nobody_excuses_what_is_not_his(store: Store, world: World) -> None:
    await running(store, 1)
    payments, stranger = await agent(store, ttl=600), await agent(store, ttl=600)
    await store.requests.take(payments, [offer()])
    await store.requests.excuse(stranger, [(1, 0, 1)])
    await store.requests.excuse(payments, [(1, 0, 2), (7, 0, 1)])
    await world.elapse(120)
    assert (await store.supervision.judge(await term(store), 0.0, 10)).requests == [(1, 0, 1, 1)]


# -- ageing ------------------------------------------------------------------------------------------------------------


def aged(store: Any) -> None:
    """Let a store look at age with its next look: as after a second of full ones."""
    for key in ("pending", PAYMENTS):
        store.tasks.ageing.record(key, full=True, oldest=0.0, now=-1000.0)


async def test_a_minute_of_waiting_counts_as_one_priority_for_claims(store: Store, world: World) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, priority=0)])
    await world.elapse(61, pending=True)
    await store.tasks.submit([draft(2, priority=3)])
    await world.elapse(61, pending=True)
    await store.tasks.submit([draft(3, priority=1), draft(4, priority=2), draft(5, priority=9)])
    aged(store)
    order: list[int] = []
    while ids := await scheduler.claim(1):
        order += ids
        aged(store)
    assert order == [5, 2, 1, 4, 3]  # 9, 3 + 1, a little more than 0 + 2, 2, 1


async def test_a_minute_of_waiting_counts_as_one_priority_for_takes(store: Store, world: World) -> None:
    scheduler = await hand(store)
    for n, priority in ((1, 0), (2, 3), (3, 1), (4, 2), (5, 9)):
        await store.tasks.submit([draft(n, priority=priority)])
        await scheduler.claim(1)
        if n < 3:
            await world.elapse(61)
    payments = await agent(store)
    order: list[int] = []
    aged(store)
    while batch := await store.requests.take(payments, [offer(1)]):
        order += [request.task for request in batch]
        aged(store)
    assert order == [5, 2, 1, 4, 3]


async def test_a_flood_of_the_highest_priority_does_not_starve_the_lowest(store: Store, world: World) -> None:
    """Claims: every second ten tasks of priority 9 come and five are claimed; a task of priority 0 comes through in time."""
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, priority=0)])
    number, seconds = 10, 0
    while seconds < 3000:
        number += 10
        await store.tasks.submit([draft(n, priority=9) for n in range(number, number + 10)])
        aged(store)
        if 1 in await scheduler.claim(5):
            break
        await world.elapse(30, pending=True)
        seconds += 30
    # It overtakes the flood when ten minutes count more than the oldest of the flood has gathered.
    assert 540 <= seconds <= 1500


async def test_a_flood_of_requests_does_not_starve_one_either(store: Store, world: World) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, priority=0)])
    await scheduler.claim(1)
    payments = await agent(store, ttl=1e6)
    number, seconds = 10, 0
    while seconds < 3000:
        number += 4
        await store.tasks.submit([draft(n, priority=9) for n in range(number, number + 4)])
        await scheduler.claim(100)
        aged(store)
        if 1 in [request.task for request in await store.requests.take(payments, [offer(2)])]:
            break
        await world.elapse(30)
        seconds += 30
    assert 540 <= seconds <= 1500


async def test_age_is_looked_at_only_when_looks_have_been_full_for_a_second(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise all that waits is taken anyway, and the plain look is the cheaper one."""
    scheduler, looks, original = await hand(store), list[float](), Ageing.record

    def noted(ageing: Ageing, key: str, *, full: bool, oldest: float | None, now: float) -> None:
        looks.append(now)
        original(ageing, key, full=full, oldest=oldest, now=now)

    monkeypatch.setattr(Ageing, "record", noted)
    await store.tasks.submit([draft(n) for n in range(1, 21)])
    await scheduler.claim(5)
    assert not store.tasks.ageing.due("pending", looks[0] + 0.9)
    assert store.tasks.ageing.due("pending", looks[0] + 1.0)
    await scheduler.claim(50)
    assert not store.tasks.ageing.due("pending", looks[0] + 5.0)


async def test_without_ageing_priority_alone_decides(world: World) -> None:
    store: Any = world.store()
    store.tasks.ageing.step = None
    await store.open(migrate=True)
    try:
        scheduler = await hand(store)
        await store.tasks.submit([draft(1, priority=0)])
        await world.elapse(3600, pending=True)
        await store.tasks.submit([draft(2, priority=1)])
        aged(store)
        assert await scheduler.claim(1) == [2]
    finally:
        await store.close()
