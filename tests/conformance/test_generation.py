"""A new generation, begun because an operator says that the store was restored: ``begin_generation``."""

import asyncio

import pytest

from makegood.errors import FencedOffError
from makegood.model.messages import Act
from makegood.model.states import Move
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing
from makegood.store.views import Filter
from tests.conformance.builders import agent, done, hand, info, offer, reply, running, term, to_state

ACT = Act("act-1", "ann", "restored the backup of Monday")


async def test_the_generation_is_raised_and_told(store: Store) -> None:
    """One more each time; an alert and a row in the audit say who did it and why."""
    identity = store.identity
    anew = await store.admin.begin_generation(ACT)
    assert (anew.generation, anew.freed, anew.doubtful) == (2, 0, 0)
    assert (store.identity.store_id, store.identity.generation) == (identity.store_id, 2)
    assert (await store.admin.begin_generation(Act("act-2", "bob"))).generation == 3
    alerts = await store.alerts.views()
    assert [(alert.kind, alert.step) for alert in alerts] == [("generation", "3"), ("generation", "2")]
    assert "ann said that the store was restored: generation 2 began" in alerts[1].text
    (row,) = [row for row in await store.admin.audit() if row.act == "act-1"]
    assert (row.task, row.kind, row.who, row.why, row.verdict) == (
        None,
        "restored",
        "ann",
        ACT.why,
        "applied",
    )


async def test_the_next_to_open_it_sees_the_generation(store: Store) -> None:
    await store.admin.begin_generation(ACT)
    await store.close()
    await store.open()
    assert store.identity.generation == 2


async def test_whoever_runs_on_it_is_dead_and_learns_of_it_with_his_new_number(
    store: Store, other: Store
) -> None:
    """A process that went on over the restore: its heartbeat is refused, its locks are gone, and with its new number it has
    the new generation, which its agents' tokens bear.
    """
    old = await running(store, 1)
    await other.admin.begin_generation(ACT)
    assert store.identity.generation == 1
    assert not await store.nodes.heartbeat(old.node, info())
    assert (await old.commit(done(old[1], 0))).losses == {1}
    fresh = await hand(store)
    assert store.identity.generation == 2
    assert fresh.node > old.node + 1000
    assert await fresh.claim(5) == [1]


async def test_what_nobody_took_is_in_doubt_and_counts_no_failure(store: Store) -> None:
    """It may have been taken and carried out in the lost stretch; what was taken is answered by whoever runs it."""
    payments = await agent(store)
    await running(store, 1, 2)
    (request,) = await store.requests.take(payments, [offer(1)])
    (left,) = {1, 2} - {request.task}
    anew = await store.admin.begin_generation(ACT)
    assert (anew.freed, anew.doubtful) == (2, 1)
    assert await store.requests.take(payments, [offer(5)]) == []
    assert await store.requests.answer(payments, [reply(request)]) == [True]
    fresh = await hand(store)
    assert sorted(await fresh.claim(5)) == [1, 2]
    (verdict,) = fresh[left].messages
    assert (verdict.kind, verdict.idx, verdict.attempt) == ("expired", 0, 1)
    assert (verdict.failures, verdict.died) == (0, False)
    assert fresh[left].steps[0].state == "running"
    assert [message.kind for message in fresh[request.task].messages] == ["done"]


async def test_a_task_is_freed_as_after_the_death_of_its_scheduler(store: Store) -> None:
    """What was under way is pending, and its history says why; the events' numbers go on above those given out."""
    await running(store, 1)
    before = await store.tasks.history(1)
    await store.admin.begin_generation(ACT)
    (view,) = await store.tasks.find(Filter())
    assert view.state == "pending"
    (event,) = await store.tasks.history(1, after=before[-1].seq)
    assert event.seq > before[-1].seq + 1000
    assert event.moves == [Move("task", "processing", "pending", "new_generation")]


async def test_a_task_at_rest_stays_what_it_is(store: Store) -> None:
    """One that is locked for the decision that an operator asked for does not begin anew by losing its lock."""
    scheduler = await running(store, 1)
    await scheduler.commit(to_state(scheduler[1], "error", release=False))
    await store.admin.begin_generation(ACT)
    (view,) = await store.tasks.find(Filter())
    assert view.state == "error"


async def test_an_epoch_of_a_lease_never_comes_again(store: Store) -> None:
    """A term that was given out before writes nothing more; the next epoch is above all that were given out in the lost stretch."""
    grant = await term(store)
    await store.admin.begin_generation(ACT)
    assert not await store.leases.renew(grant)
    with pytest.raises(FencedOffError):
        await store.supervision.release_dead(grant, 10)
    view = await store.leases.read("supervisor")
    assert view is not None
    assert view.epoch > grant.epoch + 1000


async def test_a_receipt_of_before_names_no_message_of_after(store: Store) -> None:
    """Numbers of messages that the backup does not know may have been given out: they are skipped."""
    await store.queues.send_messages([Outgoing(queue="orders", id="1", body=b"1")], 10)
    await store.admin.begin_generation(ACT)
    await store.queues.send_messages([Outgoing(queue="orders", id="2", body=b"2")], 10)
    first, second = (await store.queues.receive_messages("orders", "me", 10, 30.0, 9)).messages
    assert second.seq > first.seq + 1000


async def test_many_at_once_begin_as_many_generations(store: Store, other: Store) -> None:
    """Each is an act of its own, none is lost."""
    acts = [Act(f"act-{n}", "ann") for n in range(6)]
    generations = await asyncio.gather(
        *(who.admin.begin_generation(act) for who, act in zip([store, other] * 3, acts, strict=True))
    )
    assert sorted(anew.generation for anew in generations) == [2, 3, 4, 5, 6, 7]
    assert len(await store.alerts.views()) == 6
