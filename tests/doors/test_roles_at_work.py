"""Each role may do all that its work needs: also what a storm seldom does."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from makegood.model.messages import Act, Alert, TaskMessage
from makegood.store import open_store
from makegood.store.oversight_records import Refusal, SupervisorDecision
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing, Returned
from makegood.store.views import Filter, SchedulerTally
from tests.conformance.builders import WAITS, done, draft, hand
from tests.doors.guarded_shop import Guarded, guarded_shop

__all__ = ["guarded_shop"]

pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")

LEASE = "makegood/supervisor"


async def open_as(stack: AsyncExitStack, shop: Guarded, kind: str) -> Store:
    store = open_store(shop.as_(kind))
    await store.open()
    stack.push_async_callback(store.close)
    return store


async def operate(store: Store, name: str) -> None:
    """Do what the console does, too."""
    await store.tasks.post(1, TaskMessage("cancel", act=Act(name, "anna")))
    await store.alerts.alert([Alert("test", step=name, text="a test alert (x) by anna: nothing is wrong")])
    number = next(view.id for view in await store.alerts.views() if view.step == name)
    assert (await store.alerts.acknowledge([number], Act(f"{name}-ack", "anna")))[number].acked_by == "anna"
    await store.alerts.note_look(Act(f"{name}-look", "anna"), 1, "inputs")
    await store.oversight.bulk(Act(f"{name}-bulk", "anna"), "cancel", Filter())
    assert (await store.oversight.stop_bulk(f"{name}-bulk", Act(f"{name}-stop", "anna"))) is not None
    signal = ("approval", b"true")
    await store.oversight.bulk(Act(f"{name}-signals", "anna"), "signal", Filter(), signal=signal)
    await store.oversight.ask_step_down(LEASE, 1, Act(f"{name}-down", "anna"))


async def supervise(store: Store) -> None:
    grant = await store.leases.acquire(LEASE, "me", "nonce", 60.0)
    assert grant is not None
    assert await store.leases.renew(grant)
    assert await store.oversight.asked_to_step_down(LEASE, grant.epoch) is False
    await store.supervision.judge(grant, 0.0, 10)
    await store.supervision.release_dead(grant, 10)
    await store.supervision.release_unresponsive(grant, 0.0, 10)
    await store.supervision.expire_tasks(grant, 10)
    await store.supervision.alert_starved(grant, 0.0, 10)
    for act in ("operator-bulk", "console-bulk"):
        await store.oversight.advance_bulk(act, 10)
    for act in ("operator-signals", "console-signals"):
        assert await store.oversight.advance_bulk(act, 10) is None
        view = await store.oversight.bulk_act(act)
        assert view is not None
        assert (view.applied, view.refused) == (2, 1), (
            "sent as the login that requested it; the third waits for nothing"
        )
    await store.oversight.add_minute(29_000_000, 60.0, SchedulerTally(latencies=(1, 2)))
    await store.oversight.decided([SupervisorDecision("judged", 1, 1, 1)])
    await store.oversight.refused([Refusal("term", "x", "", None, 1, epoch=1)])
    await store.queues.shorten_queues(1, 10)
    await store.queues.expire_messages(10)
    await store.alerts.take_unlogged(10)
    await store.alerts.told(await store.alerts.untold(5.0, 10), {})
    await store.admin.begin_generation(Act("anew", "anna"))
    await store.admin.prune(0.0, 0, 100)
    await store.leases.release(grant)


async def receive(store: Store) -> None:
    await store.tasks.submit([draft(1, signals=WAITS), draft(2, signals=WAITS), draft(3)])
    await store.queues.send_messages([Outgoing(queue="q", id=str(n), body=b"1") for n in range(4)], 100)
    first = (await store.queues.receive_messages("q", "me", 2, 30.0, 8)).messages
    assert all(
        await store.queues.return_messages([Returned((m.seq, m.tries), error="no", dead=True) for m in first])
    )
    (second,) = (await store.queues.receive_messages("q", "me", 1, 30.0, 8)).messages
    assert await store.queues.hold_messages([(second.seq, second.tries)], 30.0) == [True]
    assert await store.queues.acknowledge_messages([(second.seq, second.tries)]) == [True]


async def everyone(shop: Guarded) -> None:
    async with AsyncExitStack() as stack:
        submitter, inbox, operator, console, scheduler, supervisor, reader = [
            await open_as(stack, shop, kind)
            for kind in ("submitter", "inbox", "operator", "console", "scheduler", "supervisor", "reader")
        ]
        await receive(submitter)
        await operate(operator, "operator")
        await operate(console, "console")
        assert await operator.queues.replay_messages("q", Act("replay", "anna"), ["0"]) == ["0"]
        assert await operator.queues.drop_messages("q", Act("drop", "anna")) == ["1"]
        assert set(await operator.queues.drop_messages("q", Act("drop2", "anna"), waiting=True)) == {"0", "3"}
        await operator.notices.drop_notices(Act("notices", "anna"), 1)
        mine = await hand(scheduler)
        assert sorted(await mine.claim(10)) == [1, 2, 3]
        assert not (await mine.commit(done(mine[1], 0))).losses
        await scheduler.oversight.overtaken(mine.node, [(1, 1)])
        await scheduler.tasks.put_to_error(mine.node, 2, "bad")
        await supervise(supervisor)
        assert (await inbox.queues.send_messages([Outgoing(queue="q", id="i", body=b"1")], 9))[0].created
        assert (await reader.tasks.detail(1)) is not None
        assert await reader.leases.past_terms(LEASE)


def test_each_role_does_its_work(guarded_shop: Guarded) -> None:
    asyncio.run(everyone(guarded_shop))
