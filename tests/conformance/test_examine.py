"""An examination: what surrounds the store, what nothing will move, and a write that only takes its time."""

import msgspec

from makegood.store.protocol import Store
from tests.conformance.builders import agent, draft, hand, offer, reply, running, to_state
from tests.conformance.worlds import World


async def test_a_sound_store_has_no_errors(store: Store) -> None:
    """Each finding has a check and a sentence; whatever is not in order has a remedy."""
    findings = await store.admin.examine()
    assert {finding.check for finding in findings} >= {"durability", "room"}
    assert [finding for finding in findings if finding.severity == "error"] == []
    assert all(finding.what for finding in findings)
    assert all(finding.remedy for finding in findings if finding.severity != "ok")


async def test_it_works_on_a_store_that_is_empty_and_not_open(world: World) -> None:
    """Whoever cannot open it asks why."""
    store = world.store()
    assert [finding for finding in await store.admin.examine() if finding.severity == "error"] == []
    await store.close()


async def test_what_is_held_asked_for_or_waiting_is_no_orphan(store: Store) -> None:
    """A request in flight, a live scheduler without a request, a task that is pending."""
    scheduler = await running(store, 1)
    await store.tasks.submit([draft(2)])
    assert await store.admin.orphans(10) == []
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer(1)])
    assert await store.requests.answer(payments, [reply(request)]) == [True]
    assert await store.admin.orphans(10) == []
    assert scheduler.node


async def test_a_task_that_nothing_will_move_is_an_orphan(store: Store) -> None:
    """Under way, without a request, and its scheduler has stopped or its lock was never there."""
    quiet = await hand(store)
    await store.tasks.submit([draft(1), draft(2), draft(3)])
    await quiet.claim(3, lambda memory: to_state(memory, "processing"))
    assert await store.admin.orphans(10) == []
    await store.nodes.unregister(quiet.node)
    assert await store.admin.orphans(10) == [1, 2, 3]
    assert await store.admin.orphans(2) == [1, 2]


async def test_a_touch_is_a_commit_that_changes_nothing(store: Store) -> None:
    """The tasks, the history and the alerts are what they were."""
    await running(store, 1)

    async def content() -> object:
        detail = await store.tasks.detail(1)
        assert detail is not None
        timeless = msgspec.structs.replace(detail, now=0.0)
        return (await store.tasks.history(1), await store.alerts.views(), timeless)

    before = await content()
    for _ in range(3):
        await store.admin.touch()
    assert await content() == before
