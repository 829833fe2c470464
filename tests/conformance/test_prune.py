"""Removing what ended long ago: with all about it, in windows, and never what is not settled."""

from makegood.model.messages import Act, Alert, TaskMessage
from makegood.store.protocol import Store
from makegood.store.views import Filter
from tests.conformance.builders import Hand, done, draft, hand, running, to_state
from tests.conformance.worlds import World

YEAR = 365 * 86400.0


async def processed(store: Store, *ids: int) -> Hand:
    """Submit tasks and let them end."""
    scheduler = await running(store, *ids)
    for id_ in ids:
        await scheduler.commit(to_state(scheduler[id_], "processed", done(scheduler[id_]), result=b"1"))
    return scheduler


async def ids(store: Store) -> list[int]:
    """Return the tasks that there are."""
    return sorted(view.id for view in await store.tasks.find(Filter(limit=100)))


async def rows(store: Store) -> dict[str, int]:
    """Return the rows of the tables that know of tasks."""
    counts = (await store.admin.schema()).rows
    return {name: counts[name] for name in ("task", "step", "event", "audit", "alert", "request", "inbox")}


async def test_what_ended_long_ago_goes_with_all_about_it(store: Store, world: World) -> None:
    await processed(store, 1, 2)
    await world.elapse(100.0)
    await processed(store, 3)
    assert (await store.admin.prune(50.0, 0, 100)).removals == 2
    assert await ids(store) == [3]
    assert (await rows(store))["step"] == 3
    assert await store.tasks.history(1) == []
    await world.elapse(100.0)
    assert (await store.admin.prune(50.0, 0, 100)).removals == 1
    assert set((await rows(store)).values()) == {0}


async def test_nothing_is_removed_by_looking(store: Store, world: World) -> None:
    await processed(store, 1)
    await world.elapse(100.0)
    assert (await store.admin.prune(50.0, 0, 100, dry=True)).removals == 1
    assert await ids(store) == [1]


async def test_what_has_not_ended_stays_for_ever(store: Store, world: World) -> None:
    scheduler = await running(store, 2, 3)
    await store.tasks.submit([draft(1)])
    await scheduler.commit(to_state(scheduler[3], "error", goal="hold", cause="x"))
    await world.elapse(YEAR)
    pruning = await store.admin.prune(1.0, 0, 100)
    assert (pruning.removals, pruning.survivors) == (0, 0)
    assert await ids(store) == [1, 2, 3]


async def test_a_task_that_somebody_has_a_message_for_stays(store: Store, world: World) -> None:
    await processed(store, 1, 2)
    await store.tasks.post(1, TaskMessage("undo", act=Act("a-1", "me", "why")))
    await world.elapse(100.0)
    pruning = await store.admin.prune(50.0, 0, 100)
    assert (pruning.removals, pruning.survivors) == (1, 1)
    assert await ids(store) == [1]


async def test_a_task_about_which_an_alert_stands_or_was_not_told_stays(store: Store, world: World) -> None:
    await processed(store, 1)
    await store.alerts.alert([Alert("step_gave_up", 1, "s0", "look")])
    await world.elapse(100.0)
    assert (await store.admin.prune(50.0, 0, 100)).survivors == 1
    assert await ids(store) == [1]


async def test_alerts_and_acts_that_belong_to_no_task_go_after_the_same_time(
    store: Store, world: World
) -> None:
    """What stands or was not told stays, and what is younger; looking removes nothing."""
    over, stands = Alert("circuit_open", step="shop/desk"), Alert("starved", step="ship")
    await store.alerts.alert([over, stands])
    await store.alerts.ease([over], "its service answers")
    await store.alerts.take_unlogged(10)
    await store.alerts.alert([Alert("dead_letter", step="orders/1"), Alert("dead_letter", step="orders/2")])
    first, second = [alert.id for alert in await store.alerts.views() if alert.kind == "dead_letter"]
    await store.alerts.acknowledge([first], Act("a", "ann", "seen"))
    await world.elapse(100.0)
    await store.alerts.acknowledge([second], Act("b", "bob", "seen"))
    await store.admin.prune(50.0, 0, 100, dry=True)
    assert (await rows(store))["alert"] == 4
    await store.admin.prune(50.0, 0, 100)
    left = {alert.step for alert in await store.alerts.views()}
    assert left == {"ship", "orders/1", "orders/2"}, "those of the dead letters were not told"
    assert [act.who for act in await store.admin.audit()] == ["bob"]
    await store.alerts.take_unlogged(10)
    await world.elapse(100.0)
    await store.admin.prune(50.0, 0, 100)
    assert [alert.step for alert in await store.alerts.views()] == ["ship"]
    assert await store.admin.audit() == []


async def test_a_task_whose_submitter_is_still_to_be_told_stays(store: Store, world: World) -> None:
    scheduler = await running(store, 1, reply_to="https://shop.example/hook")
    await scheduler.commit(to_state(scheduler[1], "processed", done(scheduler[1]), result=b"1"))
    await world.elapse(100.0)
    assert (await store.admin.prune(50.0, 0, 100)).survivors == 1
    assert await ids(store) == [1]


async def test_it_looks_at_a_bounded_window_and_says_where_the_next_begins(
    store: Store, world: World
) -> None:
    await processed(store, *range(1, 8))
    await world.elapse(100.0)
    after, removals, windows = 0, 0, 0
    while True:
        pruning = await store.admin.prune(50.0, after, 3)
        removals, windows = removals + pruning.removals, windows + 1
        assert pruning.removals <= 3
        if pruning.next is None:
            break
        after = pruning.next
    assert (removals, windows) == (7, 3)
    assert await ids(store) == []


async def test_it_does_not_look_on_where_tasks_are_too_young(store: Store, world: World) -> None:
    await processed(store, 1, 2)
    await world.elapse(100.0)
    await processed(store, 3, 4)
    pruning = await store.admin.prune(50.0, 0, 4)
    assert (pruning.removals, pruning.next) == (2, None)


async def test_a_key_may_be_used_again_once_its_task_is_removed(store: Store, world: World) -> None:
    await hand(store)
    await store.tasks.submit([draft(1, key="k")])
    scheduler = await hand(store)
    await scheduler.claim(1)
    await scheduler.commit(to_state(scheduler[1], "processed", done(scheduler[1]), result=b"1"))
    await world.elapse(100.0)
    assert not (await store.tasks.submit([draft(2, key="k")]))[0].is_new
    assert (await store.admin.prune(50.0, 0, 100)).removals == 1
    assert (await store.tasks.submit([draft(3, key="k")]))[0].is_new


async def test_a_task_that_somebody_holds_stays_with_all_about_it(store: Store, world: World) -> None:
    scheduler = await processed(store, 1, 2)
    await world.elapse(100.0)
    async with world.raw() as raw:
        await raw.run("update {task} set locked_by = ? where id = 1", scheduler.node)
    assert (await store.admin.prune(50.0, 0, 100)).removals == 1
    assert await ids(store) == [1]
    assert (await rows(store))["step"] == 3
    assert await store.tasks.history(1) != []
