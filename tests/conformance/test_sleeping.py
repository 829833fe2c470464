"""Tasks that begin later: they sleep as rows that nobody holds, until a claim finds them due or a message comes."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from makegood.model.decision import Decision
from makegood.model.messages import Act, TaskMessage
from makegood.model.plan import Start
from makegood.store.protocol import Store
from makegood.store.views import Filter, Tally, TaskView
from tests.conformance.builders import Memory, begin, draft, hand, running, to_state, unchanged
from tests.conformance.ended import many_ended
from tests.conformance.worlds import Counts, SQLiteWorld, World

HOUR = 3600.0


def later(seconds: float) -> Start:
    """Return a start after a delay."""
    return Start(seconds)


async def at_moment(world: World, seconds: float, wall: str = "") -> Start:
    """Return a start at the moment in so many seconds, by the store's calendar."""
    if isinstance(world, SQLiteWorld):
        return Start(None, world.clock.wall() + seconds, wall)
    return Start(None, datetime.now(UTC).timestamp() + seconds, wall)


async def view(store: Store, task: int) -> TaskView:
    """Return one task."""
    (task_view,) = await store.tasks.find(Filter(ids=(task,)))
    return task_view


async def test_a_delayed_task_sleeps_and_is_claimed_once_its_delay_is_over(
    store: Store, world: World
) -> None:
    await store.tasks.submit([draft(1, start=later(HOUR)), draft(2)])
    assert ((await view(store, 1)).state, (await view(store, 2)).state) == ("sleeping", "pending")
    scheduler = await hand(store)
    assert await scheduler.claim(5, sleepers=True) == [2]
    assert scheduler.committed.next_start == pytest.approx(HOUR, abs=60)
    await world.elapse(HOUR - 60)
    assert await scheduler.claim(5, sleepers=True) == []
    assert scheduler.committed.next_start == pytest.approx(60, abs=50)
    await world.elapse(61)
    assert await scheduler.claim(5) == []
    assert await scheduler.claim(5, sleepers=True) == [1]
    assert scheduler.committed.next_start is None
    assert not scheduler.seen[0].sleeps
    assert (await view(store, 1)).starts is None


async def test_a_moment_is_one_of_the_calendar_and_a_past_one_is_no_delay(store: Store, world: World) -> None:
    await store.tasks.submit(
        [
            draft(1, start=await at_moment(world, 90)),
            draft(2, start=await at_moment(world, -5)),
            draft(3, start=later(0)),
        ]
    )
    assert [(await view(store, n)).state for n in (1, 2, 3)] == ["sleeping", "pending", "pending"]
    assert (await view(store, 1)).starts is not None
    scheduler = await hand(store)
    assert await scheduler.claim(5, sleepers=True) == [2, 3]
    await world.elapse(91)
    assert await scheduler.claim(5, sleepers=True) == [1]


async def test_due_ones_are_claimed_among_the_pending_by_priority_and_age(store: Store, world: World) -> None:
    await store.tasks.submit(
        [draft(1, start=later(10)), draft(2, start=later(20), priority=9), draft(3, start=later(50))]
    )
    await world.elapse(30)
    await store.tasks.submit([draft(4), draft(5, priority=9), draft(6, priority=4, start=later(1))])
    await world.elapse(5)
    scheduler = await hand(store)
    assert await scheduler.claim(3, sleepers=True) == [2, 5, 6]
    assert scheduler.committed.more
    assert await scheduler.claim(3, sleepers=True) == [1, 4]
    assert not scheduler.committed.more
    assert scheduler.committed.next_start == pytest.approx(15, abs=14)


async def test_many_that_are_due_at_once_leave_in_full_claims_by_priority(store: Store, world: World) -> None:
    """Those after a delay and those of a moment, of ten priorities: each claim is full, and the last one says that no more are due."""
    moment = await at_moment(world, 60)
    await store.tasks.submit(
        [draft(n, start=moment if n % 3 else later(30), priority=n % 10) for n in range(1, 96)]
    )
    await world.elapse(90)
    scheduler = await hand(store)
    claims: list[list[int]] = []
    more = True
    while more:
        claims.append(await scheduler.claim(20, sleepers=True))
        more = scheduler.committed.more
    assert [len(claim) for claim in claims] == [20, 20, 20, 20, 15]
    in_order = [n for claim in claims for n in claim]
    assert sorted(in_order) == list(range(1, 96))
    assert [n % 10 for n in in_order] == sorted((n % 10 for n in in_order), reverse=True)


async def test_below_the_floors_they_are_found_by_the_sweep(store: Store, world: World) -> None:
    """One that came late, as a caller's transaction commits late: its moment is below all that was claimed since."""
    await store.tasks.submit([draft(n, start=later(100 + n)) for n in range(1, 4)])
    await world.elapse(200)
    scheduler = await hand(store)
    assert await scheduler.claim(5, sleepers=True) == [1, 2, 3]
    await store.tasks.submit([draft(9, start=later(1))])
    await world.elapse(150)
    assert await scheduler.claim(5, sleepers=True) == [9]


async def test_two_schedulers_share_those_that_are_due(store: Store, other: Store, world: World) -> None:
    await store.tasks.submit([draft(n, start=later(1)) for n in range(1, 101)])
    await world.elapse(2)
    first, second = await hand(store), await hand(other)
    claims = await asyncio.gather(first.claim(60, sleepers=True), second.claim(60, sleepers=True))
    rest = await first.claim(100, sleepers=True)
    assert sorted([*claims[0], *claims[1], *rest]) == list(range(1, 101))


async def test_the_deadline_begins_with_the_start(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1, start=later(HOUR), within=100.0)])
    assert (await view(store, 1)).complete_by is None
    await world.elapse(HOUR + 1)
    scheduler = await hand(store)
    await scheduler.claim(5, sleepers=True)
    assert (await view(store, 1)).complete_by is not None


async def test_a_message_is_decided_and_the_task_sleeps_on(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1, start=later(HOUR), within=100.0)])
    await store.tasks.post(1, TaskMessage("extend", act=Act("a")))
    scheduler = await hand(store)
    assert (await store.tasks.inbox(scheduler.node, 10)).at_rest == [1]

    def hear(memory: Memory) -> Decision:
        decision = unchanged(memory)
        decision.seqs, decision.release = [m.seq for m in memory.messages], True
        return decision

    assert await scheduler.claim(5, hear, at_rest=[1], sleepers=True) == [1]
    assert scheduler.seen[0].sleeps
    after = await view(store, 1)
    assert (after.state, after.locked_by, after.complete_by) == ("sleeping", None, None)
    await world.elapse(HOUR + 1)
    assert await scheduler.claim(5, sleepers=True) == [1]


async def test_one_that_is_due_and_has_a_message_is_claimed_once_to_begin(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1, start=later(10))])
    await store.tasks.post(1, TaskMessage("cancel", act=Act("a")))
    await world.elapse(11)
    scheduler = await hand(store)
    assert await scheduler.claim(5, at_rest=[1], sleepers=True) == [1]
    assert not scheduler.seen[0].sleeps
    assert [m.kind for m in scheduler.seen[0].messages] == ["cancel"]


async def test_a_wake_sets_the_deadline(store: Store) -> None:
    """The rules begin the task in the Decision of its message."""
    await store.tasks.submit([draft(1, start=later(HOUR), within=100.0)])
    await store.tasks.post(1, TaskMessage("wake", act=Act("a")))
    scheduler = await hand(store)

    def wake(memory: Memory) -> Decision:
        memory_task = replace(memory.task, timed=True)
        decision = begin(memory)
        decision.task = replace(decision.task, timed=memory_task.timed)
        decision.seqs = [m.seq for m in memory.messages]
        return decision

    await scheduler.claim(0, wake, at_rest=[1])
    begun_task = await view(store, 1)
    assert (begun_task.state, begun_task.locked_by, begun_task.starts) == ("processing", scheduler.node, None)
    assert begun_task.complete_by is not None


async def test_a_zone_is_asked_again_when_its_task_is_to_be_claimed(store: Store, world: World) -> None:
    """Its rules may have changed since: here they say an hour later, and an hour earlier, than at the submission."""
    zone = ZoneInfo("Europe/Berlin")
    start = (await at_moment(world, 10 * HOUR)).at
    later_wall = datetime.fromtimestamp(start + HOUR, zone).replace(tzinfo=None).isoformat()
    earlier_wall = datetime.fromtimestamp(start - HOUR, zone).replace(tzinfo=None).isoformat()
    await store.tasks.submit(
        [
            draft(1, start=Start(None, start, f"{later_wall}[Europe/Berlin]")),
            draft(2, start=Start(None, start, f"{earlier_wall}[Europe/Berlin]")),
            draft(3, start=Start(None, start, "")),
        ]
    )
    scheduler = await hand(store)

    async def claims() -> list[int]:
        ids: list[int] = []
        while True:
            ids += await scheduler.claim(5, sleepers=True)
            if not scheduler.committed.more:
                return ids

    assert (await view(store, 1)).starts == pytest.approx(start + HOUR)
    if not isinstance(world, SQLiteWorld):
        return  # time by hand moves what is stored, and wall times do not move with it
    assert await claims() == []
    await world.elapse(8 * HOUR + 1)
    assert await claims() == []  # looked at, and computed anew
    await world.elapse(HOUR)
    assert await claims() == [2]
    await world.elapse(HOUR)
    assert await claims() == [3]
    await world.elapse(HOUR - 60)
    assert await claims() == []
    assert scheduler.committed.next_start == pytest.approx(59, abs=1)
    await world.elapse(60)
    assert await claims() == [1]


async def test_a_zone_is_asked_again_on_both_stores(store: Store, world: World) -> None:
    """A task whose zone says later by now is not claimed at the moment that its row has."""
    start = (await at_moment(world, 30)).at
    wall = datetime.fromtimestamp(start + HOUR, ZoneInfo("Asia/Tokyo")).replace(tzinfo=None).isoformat()
    await store.tasks.submit([draft(1, start=Start(None, start, f"{wall}[Asia/Tokyo]"))])
    await world.elapse(31)
    scheduler = await hand(store)
    assert await scheduler.claim(5, sleepers=True) == []
    assert scheduler.committed.more
    assert await scheduler.claim(5, sleepers=True) == []
    assert not scheduler.committed.more
    assert scheduler.committed.next_start == pytest.approx(HOUR, abs=60)


async def test_clocks_that_jump_move_moments_and_no_delays(tmp_path: Path) -> None:
    """On SQLite a delay runs on the store's clock, which no one sets; a moment is one of the machine's wall clock."""
    world = SQLiteWorld(tmp_path)
    store = world.store()
    await store.open(migrate=True)
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, start=later(HOUR)), draft(2, start=await at_moment(world, HOUR))])
    world.clock.wall_seconds += 2 * HOUR  # set forth: the moment has come, the length has not passed
    assert await scheduler.claim(5, sleepers=True) == [2]
    assert scheduler.committed.next_start == pytest.approx(HOUR)
    await store.tasks.submit([draft(3, start=await at_moment(world, HOUR))])
    world.clock.wall_seconds -= 5 * HOUR  # set back: the moment is farther
    world.clock.forward(HOUR)
    assert await scheduler.claim(5, sleepers=True) == [1]
    assert scheduler.committed.next_start == pytest.approx(5 * HOUR)
    world.clock.forward(5 * HOUR)
    assert await scheduler.claim(5, sleepers=True) == [3]
    await store.close()


async def test_a_sleeper_is_released_as_it_was(store: Store, world: World) -> None:
    """Whoever holds a task may let it sleep on: it is due at the moment that it had."""
    scheduler = await running(store, 1)
    await scheduler.commit(to_state(scheduler[1], "pending"))
    await store.tasks.submit([draft(2, start=later(5))])
    assert await scheduler.claim(5, lambda memory: to_state(memory, "processing", release=False)) == [1]
    await world.elapse(6)
    assert await scheduler.claim(5, sleepers=True) == [2]


async def test_lists_and_figures_know_them(store: Store) -> None:
    await store.tasks.submit([draft(1, start=later(HOUR)), draft(2)])
    assert (await store.admin.figures()).tasks == {
        ("shop", "place_order", "pending"): 1,
        ("shop", "place_order", "sleeping"): 1,
    }
    assert [task.id for task in await store.tasks.find(Filter(states=("sleeping",)))] == [1]
    assert [task.id for task in (await store.tasks.search(Filter(states=("sleeping",)))).tasks] == [1]
    tally = await store.tasks.tally_unended()
    assert (tally.states, tally.in_flight) == ({"pending": 1, "sleeping": 1}, 1)


@pytest.mark.parametrize("wall", [None, "Europe/Berlin"])
async def test_figures_say_for_how_long_something_has_been_due(
    store: Store, world: World, wall: str | None
) -> None:
    """Sleepers of any priority, after a delay or at a moment of the calendar; not what sleeps on."""

    async def start(seconds: float) -> Start:
        return later(seconds) if wall is None else await at_moment(world, seconds, wall)

    async def lag() -> float:
        calendar = world.clock.wall() if isinstance(world, SQLiteWorld) else 0.0
        return (await store.admin.figures(calendar=calendar)).due_lag

    await store.tasks.submit([draft(1, start=await start(HOUR)), draft(2)])
    assert await lag() == 0.0
    await store.tasks.submit([draft(3, start=await start(180)), draft(4, start=await start(100), priority=7)])
    await world.elapse(400)
    assert await lag() == pytest.approx(300.0, abs=40.0)


async def test_many_sleepers_are_not_counted_at_each_look(counting_store: Store, counts: Counts) -> None:
    """A few are counted each time; of more, all are counted unless an earlier count is at hand."""
    store, kind = counting_store, ("shop", "place_order", "sleeping")
    await store.tasks.submit([draft(n, start=later(HOUR)) for n in range(1, 4)])
    await store.admin.figures()  # the first statements of a connection cost more
    await counts.reset()
    few = await store.admin.figures(count_limit=3)
    cost = counts.statements
    assert (few.tasks[kind], few.sleepers) == (3, None)
    await counts.reset()
    many = await store.admin.figures(count_limit=2)
    assert (many.tasks[kind], many.sleepers) == (3, {kind[:2]: 3})
    assert counts.statements == cost + 1
    await store.tasks.submit([draft(4, start=later(HOUR)), draft(5)])
    await counts.reset()
    again = await store.admin.figures(many.sleepers, count_limit=2)
    assert (again.tasks[kind], again.tasks[(*kind[:2], "pending")]) == (3, 1)
    assert again.sleepers is many.sleepers
    assert counts.statements == cost
    assert (await store.admin.figures(many.sleepers, count_limit=9)).tasks[kind] == 4


async def test_those_that_should_have_begun_are_found_once_both_clocks_say_so(
    store: Store, world: World
) -> None:
    start = await at_moment(world, 50)
    await store.tasks.submit([draft(1, start=later(100)), draft(2, start=start), draft(3, start=later(HOUR))])
    assert await store.admin.late_starts(1e10, 0.0, 9) == []
    await world.elapse(200)
    now = await store.now()
    late = await store.admin.late_starts(now, 60.0, 9)
    assert [task for task, _ in late] == [2, 1]
    assert late[-1][1] == pytest.approx(100, abs=20)
    assert await store.admin.late_starts(now - 140, 60.0, 9) == []
    assert len(await store.admin.late_starts(1e10, 0.0, 1)) == 1
    scheduler = await hand(store)
    await scheduler.claim(5, sleepers=True)
    assert await store.admin.late_starts(1e10, 0.0, 9) == []


async def test_a_search_for_sleepers_looks_at_no_other_task(store: Store, world: World) -> None:
    """However many there are, and however many tasks are newer: its pages lead to the last of them."""
    await store.tasks.submit([draft(n, start=later(HOUR)) for n in range(1, 8)])
    scheduler = await running(store, 50)
    await scheduler.commit(to_state(scheduler[50], "processed"))
    await many_ended(world, 100, like=50, first=100)
    sleepers: list[int] = []
    before: int | None = None
    for _ in range(4):
        page = await store.tasks.search(Filter(states=("sleeping",), limit=2, before=before), 5)
        sleepers += [task.id for task in page.tasks]
        before = page.older
    assert (sleepers, before) == ([7, 6, 5, 4, 3, 2, 1], None)
    assert await store.tasks.tally(Filter(states=("sleeping",)), 5) == Tally(5, more=True)
    assert await store.tasks.tally(Filter(states=("sleeping",)), 8) == Tally(7)
    page = await store.tasks.search(Filter(states=("sleeping",), workflow="sell"), 5)
    assert (page.tasks, page.older) == ([], 3)  # two have not been looked at


async def test_a_wall_time_is_kept(store: Store) -> None:
    moment = datetime.now(UTC) + timedelta(days=30)
    wall = moment.astimezone(ZoneInfo("America/New_York")).replace(tzinfo=None, microsecond=0).isoformat()
    start = Start(None, moment.timestamp(), f"{wall}[America/New_York]")
    await store.tasks.submit([draft(1, start=start)])
    sleeper = await view(store, 1)
    if sleeper.state == "sleeping":  # by the clock of a test on SQLite that time has passed
        assert sleeper.start_wall == start.wall
