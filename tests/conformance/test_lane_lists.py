"""Lanes as people see them: what the filter finds, who holds a lane and who waits, and the alert about a task in error that holds
one; on every store.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from makegood.base import ids
from makegood.errors import ConfigError
from makegood.model.messages import Act
from makegood.store.filters import parse_filter, text_of
from makegood.store.lane_views import COUNTED, NAMED, LaneView, TaskLane
from makegood.store.protocol import Store
from makegood.store.scan_floors import Floors
from makegood.store.views import Exact, Filter, Prefix
from tests.conformance.builders import draft, hand, term, to_state, unchanged
from tests.conformance.worlds import Counts, World

_PLACE = (
    "insert into {lane} (task, app, name, seq, at_once, when_taken, state) values (?, ?, ?, ?, 1, 'wait', ?)"
)


async def put(world: World, places: Iterable[tuple[int, str, str]], app: str = "shop") -> None:
    """Write places (task, lane, state), in the order in which they were submitted."""
    async with world.raw() as raw:
        for seq, (task, name, state) in enumerate(places):
            await raw.run(_PLACE, task, app, name, seq, state)


async def in_error(store: Store, *tasks: int) -> Any:
    """Submit tasks and put them to error; return the Scheduler that did so."""
    await store.tasks.submit([draft(task) for task in tasks])
    scheduler = await hand(store)
    await scheduler.claim(len(tasks))
    for task in tasks:
        await scheduler.commit(to_state(scheduler[task], "error", unchanged(scheduler[task])))
    return scheduler


async def some(store: Store, world: World) -> None:
    """Let 1 hold ada, 2 and 3 wait for it, 3 also for bob, which 4 holds, and let 5 have held ada."""
    await store.tasks.submit([draft(n, key=f"k{n}") for n in range(1, 7)])
    await put(
        world,
        [
            (5, "ada", "out"),
            (1, "ada", "held"),
            (2, "ada", "waiting"),
            (4, "bob/1", "held"),
            (3, "ada", "waiting"),
            (3, "bob/1", "waiting"),
        ],
    )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("lane:ada", [5, 3, 2, 1]),
        ("lane:bob/1", [4, 3]),
        ("lane:bob/*", [4, 3]),
        ("lane:b* k3", [3]),
        ("lane:ad", []),
        ("lane:'bob/*'", []),
        ("lane:ada key:k2", [2]),
        ("lane:ada state:error", []),
    ],
)
async def test_the_filter_finds_those_that_hold_a_lane_wait_for_it_or_had_it(
    store: Store, world: World, text: str, numbers: list[int]
) -> None:
    await some(store, world)
    page = await store.tasks.search(parse_filter(text))
    assert [task.id for task in page.tasks] == numbers
    assert (await store.tasks.tally(parse_filter(text))).count == len(numbers)


def test_the_word_is_written_and_read_alike_and_misuse_has_a_remedy() -> None:
    for lane in (Prefix("bob/"), Exact("a*"), "ada lovelace"):
        assert parse_filter(text_of(Filter(lane=lane))).lane == lane
    for text, message in (
        ("lane:a*b", "write a \\* only at the end"),
        ("lane:*", "write a \\* only at the end"),
        ("lane:ada lane:bob", "lane is given twice"),
        ("lanes:ada", "did you mean lane:"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse_filter(text)
    with pytest.raises(ConfigError, match="Prefix"):
        Filter(lane="ada*")


def named(view: LaneView) -> tuple[str, str, list[int], list[int]]:
    """Return app and name of a lane, who holds it and who waits."""
    return view.app, view.name, [p.task for p in view.holders], [p.task for p in view.waiters]


async def test_lanes_are_listed_by_app_and_name_page_by_page(store: Store, world: World) -> None:
    await some(store, world)
    await store.tasks.submit([draft(7, app="kiosk")])
    await put(world, [(7, "ada", "waiting")], app="kiosk")
    views = await store.lanes.lanes()
    whole = [
        ("kiosk", "ada", [], [7]),
        ("shop", "ada", [1], [2, 3]),
        ("shop", "bob/1", [4], [3]),
    ]
    assert [named(view) for view in views] == whole
    assert [(view.held, view.waiting) for view in views] == [(0, 1), (1, 2), (1, 1)]
    first, *_ = views[1].waiters
    assert (first.key, first.state, first.at_once, first.workflow) == ("k2", "pending", 1, "place_order")
    pages, after = [], ("", "")
    while page := await store.lanes.lanes(limit=1, after=after):
        pages += page
        after = page[0].app, page[0].name
    assert pages == views
    assert [named(view) for view in await store.lanes.lanes(name="ada")] == whole[:2]
    assert [named(view) for view in await store.lanes.lanes("shop", "ada")] == whole[1:2]
    assert [named(view) for view in await store.lanes.lanes("shop")] == whole[1:]
    assert await store.lanes.lanes("shop", "nobody") == await store.lanes.lanes(name="nobody") == []


async def test_of_many_that_wait_the_first_are_named_and_the_others_counted(
    store: Store, world: World
) -> None:
    count = COUNTED + 5
    await store.tasks.submit([draft(n) for n in range(1, count + 1)])
    await put(world, [(n, "ada", "waiting") for n in range(count, 0, -1)])
    (view,) = await store.lanes.lanes()
    assert (view.waiting, [place.task for place in view.waiters]) == (
        COUNTED + 1,
        [*range(count, count - NAMED, -1)],
    )
    places = await store.lanes.places([1, count, count - 7])
    assert [places[task][0].before for task in (1, count, count - 7)] == [COUNTED + 1, 0, 7]
    assert (await store.lanes.places([1], 100))[1][0].before == 101


async def test_a_task_knows_its_place_in_each_lane(store: Store, world: World) -> None:
    await some(store, world)
    places = await store.lanes.places([1, 3, 5, 6])
    assert places == {
        1: [TaskLane(1, "shop", "ada", "held", 1, behind=2)],
        3: [
            TaskLane(3, "shop", "ada", "waiting", 1, before=1, held_by=(1,)),
            TaskLane(3, "shop", "bob/1", "waiting", 1, held_by=(4,)),
        ],
        5: [TaskLane(5, "shop", "ada", "out", 1)],
    }
    assert [place.blocks for place in places[3]] == [True, True]


async def watch(store: Store, grant: Any = None) -> None:
    """Make the part of the Supervisor's pass that watches what waits; on a busy machine it would rest after a long look."""
    verbs: Any = store.supervision
    verbs.floors = Floors(verbs.floors.clock, 5.0)
    await store.supervision.alert_starved(grant or await term(store), 60.0, 10)


async def test_a_task_in_error_that_holds_a_lane_for_which_others_wait_raises_an_alert_that_clears_by_itself(
    store: Store, world: World
) -> None:
    await in_error(store, 1)
    await store.tasks.submit([draft(n) for n in range(2, 8)])
    await put(world, [(1, "ada", "held"), *((n, "ada", "waiting") for n in range(2, 8)), (7, "bob", "held")])
    grant = await term(store)
    for _ in range(2):
        await watch(store, grant)
    (alert,) = [each for each in await store.alerts.views() if each.kind == "lane_held"]
    assert alert.task == 1
    waiting = ", ".join(map(ids.show, (2, 3, 4)))
    assert alert.text.startswith(
        f"it is in error and holds lane ada, for which 6 tasks wait: {waiting} and 3 more."
    )
    assert f"makegood lane release {ids.show(1)}" in alert.text
    async with world.raw() as raw:
        await raw.run("update {lane} set state = 'out' where task > 3 and state = 'waiting'")
    await watch(store, grant)
    (alert,) = [each for each in await store.alerts.views() if each.kind == "lane_held"]
    assert "for which 2 tasks wait" in alert.text
    await store.alerts.acknowledge([alert.id], Act("ack-1", "ann", ""))
    await watch(store, grant)
    assert [each.acked_by for each in await store.alerts.views() if each.kind == "lane_held"] == ["ann"]
    async with world.raw() as raw:
        await raw.run("update {lane} set state = 'out' where task = 1")
    await watch(store, grant)
    (alert,) = [each for each in await store.alerts.views(ended=True) if each.kind == "lane_held"]
    assert alert.ended_why == "it holds no lane any more that others wait for"


async def test_one_task_is_one_alert_whatever_lanes_it_holds(store: Store, world: World) -> None:
    await in_error(store, 1, 2)
    await store.tasks.submit([draft(n) for n in (3, 4, 5)])
    holds = [(1, name, "held") for name in ("a", "b", "c", "d")]
    await put(world, [*holds, (2, "e", "held"), *((3, name, "waiting") for name in "abcd"), (4, "f", "held")])
    await watch(store)
    (alert,) = [each for each in await store.alerts.views() if each.kind == "lane_held"]
    assert alert.task == 1, "nobody waits for e, and f is held by a task that goes"
    assert "lane a, for which 1 task waits" in alert.text
    assert "; and 1 more lane. " in alert.text


async def test_while_nobody_waits_for_a_task_in_error_a_pass_has_no_statement_more(
    counting_store: Store, world: World, counts: Counts
) -> None:
    store = counting_store
    await in_error(store, 1)
    grant = await term(store)
    await watch(store, grant)
    before = counts.statements
    await watch(store, grant)
    plain = counts.statements - before
    await store.tasks.submit([draft(n) for n in (2, 3)])
    await put(world, [(1, "ada", "held"), (2, "bob", "held"), (3, "bob", "waiting")])
    before = counts.statements
    await watch(store, grant)
    assert counts.statements - before == plain
