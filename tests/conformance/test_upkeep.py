"""Opening and closing, the clock, processes, alerts, wake-ups."""

import asyncio

import pytest

from makegood.errors import StoreUnavailableError
from makegood.model.messages import Act, Alert, Answer, TaskMessage
from makegood.store.protocol import Store
from makegood.store.views import AgentInfo, Filter, TaskFigures
from tests.conformance.builders import (
    PAYMENTS,
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
    unchanged,
)
from tests.conformance.worlds import World, eventually

# Opening and closing


async def test_a_store_keeps_its_id_and_generation(world: World, store: Store, other: Store) -> None:
    assert store.identity == other.identity
    assert (len(store.identity.store_id) >= 8, store.identity.generation) == (True, 1)
    assert "-" not in store.identity.store_id


async def test_what_was_written_is_there_after_closing_and_opening(world: World, store: Store) -> None:
    await running(store, 1)
    identity = store.identity
    await store.close()
    await store.open()
    assert store.identity == identity
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert detail.task.state == "processing"


async def test_opening_and_closing_twice_is_harmless(store: Store) -> None:
    await store.open()
    await store.close()
    await store.close()
    await store.open()


async def test_a_store_that_is_not_open_says_so(world: World) -> None:
    store = world.store()
    with pytest.raises(StoreUnavailableError, match="open"):
        await store.tasks.find(Filter())
    with pytest.raises(StoreUnavailableError, match="open"):
        await store.tasks.submit([draft(1)])
    with pytest.raises(StoreUnavailableError, match="open"):
        store.identity  # noqa: B018


async def test_closing_finishes_what_was_asked_for(world: World, store: Store) -> None:
    going = [asyncio.ensure_future(store.tasks.submit([draft(n)])) for n in range(1, 20)]
    await asyncio.sleep(0)
    await store.close()
    assert all(a.is_new for (a,) in await asyncio.gather(*going))
    await store.open()
    assert len(await store.tasks.find(Filter())) == 19


async def test_a_caller_that_gives_up_leaves_the_store_in_order(store: Store) -> None:
    going = asyncio.ensure_future(store.tasks.submit([draft(1)]))
    await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert [a.is_new for a in await store.tasks.submit([draft(2)])] == [True]
    assert len(await store.tasks.find(Filter())) in (1, 2)


# The clock


async def test_all_stores_of_a_database_share_one_clock(store: Store, other: Store, world: World) -> None:
    before = await store.now()
    assert before - 1 <= await other.now() <= await store.now() + 1
    before = await store.now()
    await world.elapse(0)
    assert await store.now() >= before


# Processes


async def test_a_registered_node_is_shown_with_what_it_published(store: Store) -> None:
    description = info(
        "web-1", ("agent", "supervisor"), 30.0, agents=(AgentInfo(PAYMENTS, 4, 2, 10, 1, 0.5),), held=3
    )
    node = await store.nodes.register(description)
    (node_view,) = await store.nodes.views()
    assert (node_view.id, node_view.info, node_view.is_stopped, node_view.dead) == (
        node,
        description,
        False,
        False,
    )
    assert 0.0 < node_view.remaining <= 30.1
    assert node_view.started == pytest.approx(await store.now(), abs=30)


async def test_numbers_of_nodes_are_never_given_twice(store: Store, other: Store, world: World) -> None:
    numbers = await asyncio.gather(*(s.nodes.register(info()) for s in (store, other) * 10))
    assert len(set(numbers)) == 20
    async with world.raw() as raw:
        await raw.run("delete from {node}")
    assert await store.nodes.register(info()) not in numbers


async def test_a_heartbeat_extends_life_and_publishes(store: Store, world: World) -> None:
    node = await store.nodes.register(info(ttl=5.0))
    await world.elapse(4)
    assert await store.nodes.heartbeat(node, info("node", ttl=20.0, held=7))
    (node_view,) = await store.nodes.views()
    assert 5.0 < node_view.remaining <= 20.1
    assert node_view.info.held == 7


async def test_a_heartbeat_of_a_node_that_does_not_exist_is_refused(store: Store) -> None:
    assert not await store.nodes.heartbeat(99, info())


async def test_a_stopped_node_is_shown_as_stopped_and_cannot_beat(store: Store, world: World) -> None:
    node = await store.nodes.register(info(ttl=1000.0))
    await store.nodes.unregister(node)
    (node_view,) = await store.nodes.views()
    assert (node_view.is_stopped, node_view.dead) == (True, False)
    assert node_view.remaining <= 0
    assert not await store.nodes.heartbeat(node, info())
    await store.supervision.release_dead(await term(store), 10)
    assert not (await store.nodes.views())[0].dead


async def test_nodes_are_forgotten_an_hour_after_their_end(store: Store, world: World) -> None:
    leaver, dead = (
        await store.nodes.register(info("stopped", ttl=1e5)),
        await store.nodes.register(info("dead", ttl=10.0)),
    )
    await store.nodes.unregister(leaver)
    await world.elapse(3000)
    alive = await store.nodes.register(info("alive", ttl=1e5))
    assert [n.id for n in await store.nodes.views()] == [leaver, dead, alive]
    await world.elapse(1000)
    assert [n.id for n in await store.nodes.views()] == [alive]


async def test_the_depth_of_a_queue_is_shown_with_the_nodes_that_serve_it(store: Store) -> None:
    await running(store, 1, 2, 3)
    payments = await agent(store)
    await store.requests.take(payments, [offer(1)])
    queues = {n.id: n.waiting for n in await store.nodes.views()}
    assert queues[payments] == {PAYMENTS: 2}


async def test_the_depth_of_a_queue_is_known_when_no_process_serves_it(store: Store) -> None:
    assert await store.nodes.depths() == {}
    await running(store, 1, 2, 3)
    assert await store.nodes.depths() == {PAYMENTS: 3}
    await store.requests.take(await agent(store), [offer(1)])
    assert await store.nodes.depths() == {PAYMENTS: 2}


async def test_the_figures_count_what_has_not_ended_what_waits_and_what_is_wrong(
    store: Store, world: World
) -> None:
    assert await store.admin.figures() == TaskFigures({}, {}, {})
    scheduler = await running(store, 1, 2, 3)
    await store.tasks.submit([draft(4)])
    await world.elapse(7.0)
    await store.requests.take(await agent(store), [offer(1)])
    await store.alerts.alert([Alert("no_leader", text="nobody leads"), Alert("held", 2, "", "two")])
    await store.alerts.ease([Alert("no_leader")], "somebody leads")
    figures = await store.admin.figures()
    assert figures.tasks == {("shop", "place_order", "processing"): 3, ("shop", "place_order", "pending"): 1}
    waiting, oldest = figures.queues[PAYMENTS]
    assert (waiting, len(figures.queues)) == (2, 1)
    assert 6.9 < oldest < 40
    assert figures.alerts == {"held": 1}
    await scheduler.commit(to_state(scheduler[1], "error"))
    assert (await store.admin.figures()).tasks["shop", "place_order", "error"] == 1


# Alerts


async def test_alerts_come_newest_first_up_to_the_limit(store: Store) -> None:
    await store.tasks.submit([draft(1), draft(2)])
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    await store.alerts.alert([Alert("held", 1, "s0", "one"), Alert("held", 2, "", "two")])
    alerts = await store.alerts.views(2)
    assert [(a.kind, a.task, a.step, a.text) for a in alerts] == [
        ("held", 2, "", "two"),
        ("held", 1, "s0", "one"),
    ]
    assert [(a.kind, a.task) for a in await store.alerts.views()][-1] == ("no_leader", None)
    assert [a.text for a in await store.alerts.views(task=1)] == ["one"]
    assert alerts[0].at == pytest.approx(await store.now(), abs=60)
    await store.alerts.alert([])


# Wake-ups


class Rings:
    """Counts the rings of each topic of a store."""

    def __init__(self, store: Store, *topics: str) -> None:
        self.counts = dict.fromkeys(topics, 0)
        self.ends = [store.subscribe(topic, lambda topic=topic: self.rang(topic)) for topic in topics]  # type: ignore[misc]

    def rang(self, topic: str) -> None:
        """Count one ring."""
        self.counts[topic] += 1

    async def of(self, topic: str) -> None:
        """Wait for a ring of a topic, and begin to count anew."""
        await eventually(lambda: self.counts[topic] > 0, f"a ring of {topic}, heard {self.counts}")
        self.counts = dict.fromkeys(self.counts, 0)


TOPICS = ("pending", "inbox", f"agent:{PAYMENTS}", "ended", "answers")


@pytest.mark.parametrize("from_where", ["this process", "another"])
async def test_a_ring_comes_for_everything_that_concerns_others(
    store: Store, other: Store, from_where: str
) -> None:
    rings = Rings(store, *TOPICS)
    acting = store if from_where == "this process" else other
    scheduler, payments = await hand(acting), await agent(acting)
    await acting.tasks.submit([draft(1)])
    await rings.of("pending")
    await scheduler.claim(1)
    await rings.of(f"agent:{PAYMENTS}")
    requests = await acting.requests.take(payments, [offer()])
    await acting.requests.give_back(payments, [(r.task, r.idx, r.attempt) for r in requests])
    await rings.of(f"agent:{PAYMENTS}")
    requests = await acting.requests.take(payments, [offer()])
    await acting.requests.answer(payments, [reply(r) for r in requests])
    await rings.of("inbox")
    await acting.tasks.post(1, TaskMessage("cancel"))
    await rings.of("inbox")
    decision = unchanged(scheduler[1])
    decision.answers = [Answer(Act("a"), "cancel", "noop")]
    await scheduler.commit(decision)
    await rings.of("answers")
    await scheduler.commit(to_state(scheduler[1], "pending"))
    await rings.of("pending")
    await scheduler.claim(1, lambda memory: to_state(memory, "processing"))
    await scheduler.commit(to_state(scheduler[1], "processed", done(scheduler[1], 0)))
    await rings.of("ended")


async def test_the_supervisors_finds_ring_for_schedulers(store: Store, other: Store, world: World) -> None:
    await running(store, 1, within=10.0)
    await store.requests.take(await agent(store, ttl=1e6), [offer()])
    await world.elapse(100)
    rings = Rings(other, "pending", "inbox")
    grant = await term(store)
    await store.supervision.judge(grant, 0, 10)
    await rings.of("inbox")
    await store.supervision.expire_tasks(grant, 10)
    await rings.of("inbox")
    await store.supervision.release_dead(grant, 10)
    await rings.of("pending")


async def test_a_request_handed_over_in_memory_rings_for_nobody(store: Store) -> None:
    rings = Rings(store, f"agent:{PAYMENTS}", "agent:shop/stock")
    scheduler = await running(store, 1, local=True)
    await store.now()
    assert set(rings.counts.values()) == {0}
    await scheduler.commit(begin(scheduler[1], 1))
    await rings.of(f"agent:{PAYMENTS}")
    assert rings.counts["agent:shop/stock"] == 0


async def test_many_rings_at_once_lose_no_topic(store: Store, other: Store) -> None:
    """A bell that cannot hold all rings must not forget what they were for."""
    rings = Rings(store, "pending", "answers")
    scheduler = await running(other, 1)
    decision = unchanged(scheduler[1])
    decision.answers = [Answer(Act("a"), "cancel", "noop")]
    for n in range(2, 80):
        await other.tasks.submit([draft(n)])
    await scheduler.commit(decision)
    await rings.of("answers")


async def test_a_subscription_ends_when_it_is_told_to(store: Store) -> None:
    rings = Rings(store, "pending")
    still = Rings(store, "pending")
    rings.ends[0]()
    rings.ends[0]()
    await store.tasks.submit([draft(1)])
    await still.of("pending")
    assert rings.counts == {"pending": 0}


async def test_a_closed_store_no_longer_listens(store: Store, other: Store, world: World) -> None:
    Rings(other, "pending")
    await other.close()
    await store.tasks.submit([draft(1)])
    await other.open()
    assert len(await other.tasks.find(Filter())) == 1
