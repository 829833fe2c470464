"""Schedules in the store: who fires a moment, how often, and what becomes of those that nobody could fire."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from makegood.base import zones
from makegood.election.protocol import Grant
from makegood.errors import ConfigError, FencedOffError, PayloadError, ScheduleNotFoundError
from makegood.model.messages import Act
from makegood.model.plan import StepPlan, Template
from makegood.model.schedule import ScheduleDraft, SchedulePlan, spec_of
from makegood.moments.cron import Cron
from makegood.store import schedules
from makegood.store.firing import Firing
from makegood.store.protocol import Store
from makegood.store.schedule_records import DueSchedule, FiringPass, ScheduleView, ScheduleWork
from makegood.store.views import Filter, TaskView
from tests.conformance.builders import term
from tests.conformance.worlds import Counts, SQLiteWorld, World
from tests.unit.zone_folders import CHANGING, SUMMER, enact, system_rules

ACT = Act("act-1", "ada", "a test")
HOUR, DAY = 3600.0, 86_400.0
MONTH = 30 * DAY
"""Between two moments: so long that hardly any run of a test meets one."""
STEP = StepPlan(0, "action", "note", "agent", "note", Template(('{"at":null}',)))
PLAN = SchedulePlan("report", (STEP,), (msgspec.Raw(b"null"),), (0,), Template(("null",)), ("at",))


@pytest.fixture
def numbers() -> Iterator[int]:
    """Ids of tasks."""
    return count(1)


def a_schedule(name: str = "monthly", **options: Any) -> ScheduleDraft:
    """Return a schedule, each month unless told otherwise."""
    defaults = {
        "cron": None, "every": None, "timezone": "UTC", "overlap": "skip", "catch_up": "1000d", "coalesce": True, "jitter": 0,
        "start": None, "end": None, "is_declared": True,
    }  # fmt: skip
    times = {} if {"cron", "every"} & options.keys() else {"every": MONTH}
    return ScheduleDraft(spec_of("shop", name, **{**defaults, **times, **options}), PLAN)


async def apply(store: Store, *drafts: ScheduleDraft) -> list[str]:
    """Write schedules."""
    return await store.schedules.apply(drafts)


async def fire(store: Store, grant: Grant, numbers: Iterator[int], limit: int = 100) -> FiringPass:
    """Make one pass."""
    return await store.schedules.fire(grant, limit, Firing(numbers.__next__))


async def tasks(store: Store) -> list[TaskView]:
    """Return all tasks, oldest first."""
    return sorted(await store.tasks.find(Filter(limit=10_000)), key=lambda task: task.id)


async def view(store: Store, name: str = "monthly") -> ScheduleView:
    """Return one schedule."""
    (schedule,) = await store.schedules.views(1, "shop", name)
    return schedule


async def next_moment(world: World) -> None:
    """Let time pass until the next moment. For PostgreSQL, whose calendar cannot be moved, that is the same instant again: the
    tasks before give up its key.
    """
    await world.elapse(MONTH)
    if world.dialect == "postgres":
        async with world.raw() as raw:
            await raw.run("update {task} set key = key || '/' || id")


async def end(world: World, *, state: str = "processed") -> None:
    """Let all tasks have ended."""
    async with world.raw() as raw:
        await raw.run("update {task} set state = '" + state + "'")


async def test_a_moment_becomes_one_task_under_its_key(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    assert await apply(store, a_schedule()) == ["new"]
    assert await fire(store, grant, numbers) == FiringPass((), full=False)
    await world.elapse(MONTH)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.app, firing.name, firing.tasks, dict(firing.skips)) == ("shop", "monthly", (1,), {})
    assert 0 <= firing.late[0] <= MONTH
    assert (await fire(store, grant, numbers)).firings == ()
    (task,) = await tasks(store)
    assert (task.state, task.workflow) == ("pending", "report")
    key = task.key or ""
    assert (key[:8], key[-7:]) == ("monthly@", ":00:00Z")
    assert [
        task.id for task in await store.tasks.find(Filter(attributes={"makegood.schedule": "monthly"}))
    ] == [1]
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert msgspec.json.decode(detail.inputs[0], type=datetime).utcoffset() == timedelta()
    assert (await view(store)).firings == 1


async def test_schedules_are_read_in_pages_that_lose_none(store: Store) -> None:
    """By app and name: a name that several apps have may end a page."""
    drafts = [a_schedule("daily"), a_schedule("monthly")]
    others = [replace(each, spec=replace(each.spec, app="shop2")) for each in drafts]
    await apply(store, *others, *drafts)
    pages, after = list[tuple[str, str]](), ("", "")
    while page := await store.schedules.views(1, None, None, after):
        after = page[-1].app, page[-1].name
        pages.append(after)
    assert pages == [("shop", "daily"), ("shop", "monthly"), ("shop2", "daily"), ("shop2", "monthly")]
    rest = await store.schedules.views(9, "shop2", None, ("shop2", "daily"))
    assert [each.name for each in rest] == ["monthly"]


async def test_a_row_that_cannot_be_read_is_not_fired_by_hand(store: Store, world: World) -> None:
    """Nor resumed: the answer names the schedule."""
    await apply(store, a_schedule())
    async with world.raw() as raw:
        await raw.run("update {schedule} set plan = ?", b"{")
    with pytest.raises(ConfigError, match="the row of schedule shop/monthly cannot be read"):
        await store.schedules.launch(ACT, "shop", "monthly", [], is_backfill=False)
    with pytest.raises(ConfigError, match="cannot be read"):
        await store.schedules.resume(ACT, "shop", "monthly")


async def test_an_instant_that_no_calendar_has_is_trouble_of_its_schedule(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    """It does not stop the pass."""
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(cron="0 0 1 * *"))
    async with world.raw() as raw:
        await raw.run("update {schedule} set progress = ?, next_at = 0", b'{"since":-1e17}')
    (firing,) = (await fire(store, grant, numbers)).firings
    assert firing.tasks == ()
    assert "no calendar has -1e+17 seconds" in firing.trouble


async def test_an_equal_schedule_writes_nothing_and_a_change_keeps_what_was_fired(
    counting_store: Store, counts: Counts, numbers: Iterator[int], world: World
) -> None:
    store = counting_store
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(), a_schedule("daily", every="1d"))
    await counts.reset()
    assert await apply(store, a_schedule(), a_schedule("daily", every="1d")) == ["same", "same"]
    assert await counts.commits() == 0
    await world.elapse(MONTH)
    await fire(store, grant, numbers)
    before = await view(store)
    assert await apply(store, a_schedule(overlap="allow")) == ["changed"]
    after = await view(store)
    assert (after.overlap, after.firings, after.last_task) == ("allow", before.firings, before.last_task)
    assert after.next_moment == before.next_moment
    assert await apply(store, a_schedule(every=7 * MONTH)) == ["changed"]
    assert ((await view(store)).next_moment or 0) % (7 * MONTH) == 0


async def test_a_schedule_that_is_deleted_while_it_is_written_is_new(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The insert met a row that was gone when it was to be locked."""
    true, inserts = schedules.apply, list[bool]()

    class Met:
        """A transaction whose first insert meets a row."""

        def __init__(self, tx: Any) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tx, name)

        async def run(self, sql: Any, *values: Any) -> int:
            inserts.append(True)
            if len(inserts) == 1:
                return 0
            count: int = await self._tx.run(sql, *values)
            return count

    async def apply_late(tx: Any, place: Any, drafts: Sequence[ScheduleDraft]) -> list[str]:
        return await true(Met(tx), place, drafts)

    monkeypatch.setattr(schedules, "apply", apply_late)
    assert await apply(store, a_schedule()) == ["new"]
    assert len(inserts) == 2
    assert (await view(store)).next_moment is not None


async def test_a_pause_outlasts_a_new_declaration_and_its_moments_are_skipped_for_good(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule())
    await store.schedules.pause(ACT, "shop", "monthly", None)
    await apply(store, a_schedule(catch_up="999d"))
    assert (await view(store)).paused_by == "ada"
    await world.elapse(3 * MONTH)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((), {"paused": 3})
    await world.elapse(2 * MONTH)
    assert await store.schedules.resume(ACT, "shop", "monthly")
    assert not await store.schedules.resume(ACT, "shop", "monthly")
    assert (await fire(store, grant, numbers)).firings == ()
    now = await view(store)
    assert (now.skips, now.paused_at, now.firings) == ({"paused": 5}, None, 0)
    await world.elapse(MONTH)
    assert [firing.tasks for firing in (await fire(store, grant, numbers)).firings] == [(1,)]


async def test_a_pause_ends_by_itself_and_what_came_after_it_is_caught_up(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule())
    await store.schedules.pause(ACT, "shop", "monthly", 2 * MONTH)
    await world.elapse(4 * MONTH)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((1,), {"paused": 2, "coalesced": 1})
    assert (await view(store)).paused_at is None


async def test_a_pause_that_was_over_when_somebody_resumed_it_has_skipped_its_moments(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    """Nobody led while it was paused, and nobody resumed it in time: the act changes nothing."""
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(coalesce=False, overlap="allow"))
    await store.schedules.pause(ACT, "shop", "monthly", 2 * MONTH)
    await world.elapse(3 * MONTH)
    assert not await store.schedules.resume(ACT, "shop", "monthly")
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((1,), {"paused": 2})


async def test_a_moment_that_waits_for_a_task_is_not_fired_during_a_pause(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(overlap="buffer"))
    for _ in range(2):
        await next_moment(world)
        await fire(store, grant, numbers)
    await store.schedules.pause(ACT, "shop", "monthly", None)
    await end(world)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((), {"paused": 1})
    assert not (await view(store)).is_buffered


async def test_a_late_moment_is_not_coalesced_into_one_that_a_pause_skips(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    """Nobody led before, during and after a short pause: of the moments before it the latest is fired."""
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule())
    await world.elapse(2 * MONTH)
    await store.schedules.pause(ACT, "shop", "monthly", MONTH)
    await world.elapse(MONTH + 1)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((1,), {"paused": 1, "coalesced": 1})


async def test_a_pause_keeps_moments_from_before_it(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    """Nobody led when they were due: a pass during the pause neither fires nor counts them, one after it fires them late."""
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(coalesce=False, overlap="allow"))
    await world.elapse(2 * MONTH)
    await store.schedules.pause(ACT, "shop", "monthly", MONTH)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((), {})
    assert (await fire(store, grant, numbers)).firings == ()
    await world.elapse(MONTH + 1)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((1, 2), {"paused": 1})
    assert (await view(store)).skips == {"paused": 1}


@pytest.mark.parametrize("options", [{"every": 60.0}, {"cron": "* * * * *"}])
async def test_all_moments_of_a_long_pause_are_counted(
    store: Store, world: World, numbers: Iterator[int], options: dict[str, Any]
) -> None:
    """A schedule of each minute was paused for two days: more moments than one pass deals with."""
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(coalesce=False, **options))
    await store.schedules.pause(ACT, "shop", "monthly", None)
    await world.elapse(2 * DAY)
    assert await store.schedules.resume(ACT, "shop", "monthly")
    for _ in range(10):
        await fire(store, grant, numbers)
    now = await view(store)
    assert abs(now.skips["paused"] - 2 * 24 * 60) <= 1
    assert (sorted(now.skips), now.paused_at) == (["paused"], None)
    assert now.firings <= 1, "a minute may begin while the test runs"
    assert now.next_moment is not None
    assert now.next_moment > now.since


async def test_a_defect_of_the_engine_is_not_taken_for_a_row_that_cannot_be_read(
    store: Store, world: World, numbers: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(*_: object) -> None:
        raise TypeError("a defect")

    await apply(store, a_schedule())
    await world.elapse(MONTH)
    monkeypatch.setattr("makegood.store.firing.advance_of", defective)
    with pytest.raises(TypeError, match="a defect"):
        await fire(store, await term(store, ttl=1e9), numbers)


async def test_who_resumes_a_schedule_gets_the_moments_from_before_the_pause(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    """As late ones; nothing else fires them."""
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(coalesce=False, overlap="allow"))
    await world.elapse(MONTH)
    await store.schedules.pause(ACT, "shop", "monthly", None)
    await fire(store, grant, numbers)
    assert (await view(store)).next_firing is None
    assert await store.schedules.resume(ACT, "shop", "monthly")
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((1,), {})
    assert (await view(store)).paused_at is None


async def test_of_two_pauses_each_has_its_own_moments(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    """Nobody led meanwhile: what was due before, between and after them is fired."""
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(coalesce=False, overlap="allow"))
    await world.elapse(MONTH)
    await store.schedules.pause(ACT, "shop", "monthly", MONTH)
    first = (await view(store)).paused_at
    await world.elapse(3 * MONTH)
    await store.schedules.pause(ACT, "shop", "monthly", 2 * MONTH)
    assert ((await view(store)).paused_at or 0) > (first or 0)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((), {})
    assert await store.schedules.resume(ACT, "shop", "monthly")
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((1, 2, 3), {"paused": 1})


async def test_a_pause_that_is_over_reaches_no_further_than_the_next_although_the_clock_was_set_back(
    tmp_path: Path, numbers: Iterator[int]
) -> None:
    """Nobody led, so the moments of the first pause are still to be counted; those that come anew after the second are fired."""
    world = SQLiteWorld(tmp_path)
    store = world.store()
    await store.open(migrate=True)
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(every=HOUR, coalesce=False, overlap="allow"))
    await world.elapse(2.5 * HOUR - world.clock.wall_seconds % HOUR)
    await store.schedules.pause(ACT, "shop", "monthly", None)
    await world.elapse(3 * HOUR)
    assert await store.schedules.resume(ACT, "shop", "monthly")
    world.clock.wall_seconds -= 2.8 * HOUR
    await store.schedules.pause(ACT, "shop", "monthly", 0.1 * HOUR)
    await world.elapse(0.2 * HOUR)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((1, 2), {})
    await world.elapse(0.2 * HOUR)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (firing.tasks, dict(firing.skips)) == ((3,), {})
    await store.close()


@pytest.mark.parametrize(
    ("coalesce", "count_", "skips"), [(True, 1, {"coalesced": 2}), (False, 3, {})], ids=["latest", "all"]
)
async def test_late_moments_are_fired_as_the_schedule_says(
    store: Store, world: World, numbers: Iterator[int], *, coalesce: bool, count_: int, skips: dict[str, int]
) -> None:
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule(overlap="allow", coalesce=coalesce, catch_up=3 * MONTH))
    await world.elapse(10 * MONTH)
    (firing,) = (await fire(store, grant, numbers)).firings
    assert (len(firing.tasks), dict(firing.skips)) == (count_, {"missed": 7, **skips})
    assert (await fire(store, grant, numbers)).firings == ()


async def test_overlap_skips_allows_buffers_or_cancels(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    kinds = ("skip", "allow", "buffer", "cancel")
    await apply(store, *(a_schedule(kind, overlap=kind) for kind in kinds))
    outcomes: dict[str, list[tuple[int, dict[str, int]]]] = {kind: [] for kind in kinds}

    async def next_month() -> None:
        await next_moment(world)
        await look()

    async def look() -> None:
        for firing in (await fire(store, grant, numbers)).firings:
            outcomes[firing.name].append((len(firing.tasks), dict(firing.skips)))

    for _ in range(3):
        await next_month()
    skip: tuple[int, dict[str, int]] = (0, {"overlap": 1})
    assert outcomes == {
        "skip": [(1, {}), skip, skip],
        "allow": [(1, {})] * 3,
        "buffer": [(1, {}), (0, {}), skip],
        "cancel": [(1, {}), (0, {}), skip],
    }
    letters = await world.rows("select task, kind from {inbox}")
    assert [tuple(row) for row in letters] == [((await view(store, "cancel")).last_task, "cancel")]
    await look()
    assert len(outcomes["buffer"]) == 3, "it waits for the task"
    waiting = [(await view(store, kind)).next_moment for kind in ("buffer", "cancel")]
    assert (await store.schedules.ahead(5.0))[1]
    await end(world)
    await look()
    assert (outcomes["buffer"][3:], outcomes["cancel"][3:]) == ([(1, {})], [(1, {})])
    assert [(await view(store, kind)).next_moment for kind in ("buffer", "cancel")] == waiting
    assert not (await store.schedules.ahead(5.0))[1]


async def test_a_key_that_was_taken_by_hand_means_that_the_moment_was_fired(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule())
    await world.elapse(MONTH)

    def only_see(due_rows: Sequence[DueSchedule], calendar: float) -> list[ScheduleWork]:
        works.extend(Firing(numbers.__next__)(due_rows, calendar))
        return []

    works: list[ScheduleWork] = []
    await store.schedules.fire(grant, 1, only_see)
    await store.tasks.submit([msgspec.structs.replace(works[0].drafts[0], id=900, inputs=(b'"by hand"',))])
    (firing,) = (await fire(store, grant, numbers)).firings
    assert firing.tasks == ()
    now = await view(store)
    assert ([task.id for task in await tasks(store)], now.last_task, now.firings) == ([900], 900, 0)
    assert (await fire(store, grant, numbers)).firings == ()


async def test_a_term_that_is_over_fires_nothing(store: Store, world: World, numbers: Iterator[int]) -> None:
    grant = await term(store, ttl=60)
    await apply(store, a_schedule())
    await world.elapse(MONTH)
    with pytest.raises(FencedOffError):
        await fire(store, grant, numbers)
    assert (await tasks(store), (await view(store)).firings) == ([], 0)


async def test_of_two_leaders_at_once_one_fires(
    store: Store, other: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    await apply(store, *(a_schedule(f"s{n}", overlap="allow") for n in range(5)))
    for _ in range(4):
        await next_moment(world)
        passes = await asyncio.gather(*(fire(each, grant, numbers) for each in (store, other, store)))
        names = Counter(firing.name for each in passes for firing in each.firings if firing.tasks)
        assert names == {f"s{n}": 1 for n in range(5)}
    keys = [task.key for task in await tasks(store)]
    assert len(set(keys)) == len(keys) == 20


async def test_a_hundred_due_schedules_are_one_commit(
    counting_store: Store, counts: Counts, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(counting_store, ttl=1e9)
    await apply(counting_store, *(a_schedule(f"s{n:03}") for n in range(100)))
    await world.elapse(MONTH)
    await counts.reset()
    outcome = await fire(counting_store, grant, numbers)
    assert len(outcome.firings) == 100
    assert await counts.commits() == 1
    assert len(await tasks(counting_store)) == 100


async def test_what_the_database_refuses_keeps_its_moment_and_raises_an_alert(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule("good"), a_schedule("bad"))
    await world.elapse(MONTH)

    class Refused(Firing):
        def __call__(self, due_rows: Sequence[DueSchedule], calendar: float) -> list[ScheduleWork]:
            works = super().__call__(due_rows, calendar)
            return [
                msgspec.structs.replace(w, drafts=tuple(msgspec.structs.replace(d, priority=2**70) for d in w.drafts))
                if w.due.name == "bad" else w for w in works
            ]  # fmt: skip

    firing = Refused(numbers.__next__)
    with pytest.raises(PayloadError):
        await store.schedules.fire(grant, 100, firing)
    assert await tasks(store) == []
    due = next(row for row in firing.rows if row.name == "bad")
    moment = (await view(store, "bad")).next_moment
    await store.schedules.fail(grant, ScheduleWork(due, trouble="it is refused", failures=1, wait=60.0))
    assert [f.name for f in (await fire(store, grant, numbers)).firings] == ["good"]
    bad = await view(store, "bad")
    assert (bad.next_moment, bad.trouble) == (moment, "it is refused")
    (alert,) = await store.alerts.views(10)
    assert (alert.kind, alert.step, alert.ended) == ("schedule", "shop/bad", None)
    await world.elapse(61)
    assert [f.name for f in (await fire(store, grant, numbers)).firings] == ["bad"]
    (alert,) = await store.alerts.views(10)
    assert alert.ended is not None
    assert (await view(store, "bad")).trouble == ""


async def test_a_row_that_cannot_be_read_stops_no_other(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    grant = await term(store, ttl=1e9)
    await apply(store, a_schedule("good"), a_schedule("bad"))
    await world.elapse(MONTH)
    async with world.raw() as raw:
        await raw.run("update {schedule} set plan = ? where name = 'bad'", b"{")
    firings = {firing.name: firing for firing in (await fire(store, grant, numbers)).firings}
    assert firings["bad"].trouble
    assert firings["good"].tasks
    assert [alert.step for alert in await store.alerts.views(10)] == ["shop/bad"]
    views = {each.name: each.trouble for each in await store.schedules.views()}
    assert "cannot be read" in views["bad"]
    assert views["good"] == ""


async def test_acts_are_audited_and_name_what_is_missing(
    store: Store, world: World, numbers: Iterator[int]
) -> None:
    await apply(store, a_schedule())
    await store.schedules.pause(msgspec.structs.replace(ACT, id="1"), "shop", "monthly", 60)
    await store.schedules.resume(msgspec.structs.replace(ACT, id="2"), "shop", "monthly")
    await store.schedules.delete(msgspec.structs.replace(ACT, id="3"), "shop", "monthly")
    assert {audit.kind for audit in await store.admin.audit()} == {
        "schedule_pause", "schedule_resume", "schedule_delete",
    }  # fmt: skip
    for act in (store.schedules.resume, store.schedules.delete):
        with pytest.raises(ScheduleNotFoundError, match="monthly"):
            await act(ACT, "shop", "monthly")
    with pytest.raises(ScheduleNotFoundError):
        await store.schedules.pause(ACT, "shop", "monthly", None)


# A year in virtual time: SQLite's calendar is the machine's clock


class Year:
    """A store whose clock is moved, and a leader that looks each ``every`` seconds."""

    def __init__(self, world: SQLiteWorld, store: Store, start: datetime) -> None:
        self.world, self.store = world, store
        self.world.clock.wall_seconds = start.timestamp()
        self.numbers = count(1)
        self.skips: Counter[str] = Counter()

    async def run(self, seconds: float, every: float = 1800.0) -> None:
        """Let time pass."""
        grant = await term(self.store, ttl=1e9)
        for _ in range(round(seconds / every)):
            self.world.clock.forward(every)
            await self.look(grant)
        await self.store.leases.release(grant)

    async def look(self, grant: Grant) -> None:
        """Make passes until nothing is due."""
        while True:
            outcome = await fire(self.store, grant, self.numbers)
            for firing in outcome.firings:
                self.skips.update(firing.skips)
                assert not firing.trouble
            if not outcome.full:
                return


async def retime(store: Store) -> None:
    """Do what a new leader does first."""
    grant = await term(store, ttl=1e9)
    assert await store.schedules.retime(grant, ("", "")) is None
    await store.leases.release(grant)


@pytest.fixture
def year(tmp_path: Path, runner: asyncio.Runner) -> Iterator[Year]:
    """A year that begins in the winter of 2026."""
    sqlite_world = SQLiteWorld(tmp_path)
    store = sqlite_world.store()
    runner.run(store.open(migrate=True))
    yield Year(sqlite_world, store, datetime(2026, 3, 1, 0, 10, tzinfo=UTC))
    runner.run(store.close())


@pytest.mark.parametrize(
    ("zone", "cron", "count_", "skips"),
    [
        ("Europe/Berlin", "30 2 * * *", 365, {"fold": 1}),
        ("Europe/Berlin", "*/30 2 * * *", 2 * 365, {"gap": 2}),
        ("Australia/Lord_Howe", "15 2 * * *", 365, {}),
        ("Australia/Lord_Howe", "45 1 * * *", 365, {"fold": 1}),
    ],
)
async def test_a_year_has_each_day_once(
    year: Year, zone: str, cron: str, count_: int, skips: dict[str, int]
) -> None:
    await apply(year.store, a_schedule("s", cron=cron, timezone=zone, overlap="allow", coalesce=False))
    await year.run(365 * DAY, DAY / 4)
    keys = [task.key for task in await tasks(year.store)]
    assert len(set(keys)) == len(keys) == count_
    assert year.skips == skips


async def test_hosts_with_other_zone_rules_fire_one_task_for_each_local_day(
    year: Year, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(year.store, a_schedule("s", cron="0 9 * * *", timezone="America/Winnipeg", overlap="allow"))
    real, other = zones.zone, "Etc/GMT+5"
    for n in range(40):
        name = [None, other][n % 2]
        monkeypatch.setattr(zones, "zone", lambda key, name=name: real(name or key))
        await retime(year.store)
        grant = await term(year.store, ttl=1e9)
        for _ in range(37):
            year.world.clock.forward(HOUR)
            await year.look(grant)
        await year.store.leases.release(grant)
    days = [(task.key or "")[2:12] for task in await tasks(year.store)]
    first, last = min(days), max(days)
    span = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).days + 1
    assert len(days) == len(set(days)) == span >= 60


@pytest.mark.parametrize(("old", "new"), [(CHANGING, SUMMER), (SUMMER, CHANGING)], ids=["forward", "back"])
@pytest.mark.parametrize("cron", ["0 9 * * *", "0,30 9 * * *", "*/15 8-10 * * *"])
async def test_an_upgrade_at_any_hour_loses_no_moment_of_the_day(
    year: Year, tmp_path: Path, cron: str, old: str, new: str
) -> None:
    """The new rules put the clocks forward or back, each day at another hour, between any two moments."""
    folder, start = tmp_path / "zones", datetime(2026, 11, 10, tzinfo=UTC)
    year.world.clock.wall_seconds = start.timestamp()
    for day in range(17):
        name, hours = f"s{day}", 14 + day / 8
        with system_rules(enact(folder, "2998a", America_Winnipeg=old)):
            draft = a_schedule(name, cron=cron, timezone="America/Winnipeg", overlap="allow", coalesce=False)
            await apply(year.store, draft)
            await year.run(13 * HOUR, 13 * HOUR)
            await year.run((hours - 13) * HOUR, HOUR / 8)
            enact(folder, "2998b", America_Winnipeg=new)
            await retime(year.store)
            await year.run((18 - hours) * HOUR, HOUR / 8)
            await year.run(6 * HOUR, 6 * HOUR)
        await year.store.schedules.delete(replace(ACT, id=name), "shop", name)
    walls = Cron(cron).walls(start.replace(tzinfo=None))
    keys = [
        f"s{wall.day - 10}@{wall:%Y-%m-%dT%H:%M}[America/Winnipeg]"
        for wall in takewhile(lambda wall: wall.day < 27, walls)
    ]
    assert sorted(task.key or "" for task in await tasks(year.store)) == sorted(keys)
    assert year.skips == {}


async def test_a_calendar_that_jumps_fires_no_moment_twice(year: Year) -> None:
    await apply(year.store, a_schedule("s", every="1h", overlap="allow"))
    await year.run(10 * HOUR)
    year.world.clock.wall_seconds -= 5 * HOUR
    await year.run(10 * HOUR)
    assert len(await tasks(year.store)) == 15
    year.world.clock.wall_seconds += 3650 * DAY
    await year.run(HOUR)
    year.world.clock.wall_seconds -= 3650 * DAY
    await retime(year.store)
    await year.run(10 * HOUR)
    keys = [task.key for task in await tasks(year.store)]
    assert len(set(keys)) == len(keys) == 15 + 1 + 1 + 10


async def test_what_a_stall_and_what_a_restart_missed_is_treated_alike(year: Year) -> None:
    await apply(year.store, a_schedule("s", every="1h", overlap="allow", catch_up=5 * HOUR))
    grant = await term(year.store, ttl=1e9)
    year.world.clock.forward(20 * HOUR)
    await year.look(grant)
    first_skips, year.skips = year.skips, Counter()
    await year.store.leases.release(grant)
    year.world.clock.forward(20 * HOUR)
    await year.run(1, 1)
    assert first_skips == year.skips == {"missed": 15, "coalesced": 4}


async def test_chance_delays_a_moment_below_its_jitter_and_leaves_its_key(year: Year) -> None:
    await apply(
        year.store,
        a_schedule("s", every="1h", overlap="allow", jitter="50m"),
        a_schedule("far", every="10m", overlap="allow", jitter="10d"),
    )
    await year.run(50 * HOUR, 60.0)
    births = {task.key: task.created for task in await tasks(year.store)}
    hours = {key: at for key, at in births.items() if (key or "").startswith("s@")}
    assert len(hours) in {49, 50}
    assert all((key or "").endswith(":00:00Z") for key in hours)
    assert len([key for key in births if (key or "").startswith("far@")]) in {299, 300}


async def test_a_moment_that_chance_delays_beyond_a_pause_is_fired(year: Year) -> None:
    """A minute or less after its moment, somebody resumes the schedule: that skips what was to fire until then."""
    schedules_ = [a_schedule(f"s{n}", every="1h", jitter="50m") for n in range(9)]
    await apply(year.store, *schedules_)
    for n in range(9):
        await year.store.schedules.pause(replace(ACT, id=f"p{n}"), "shop", f"s{n}", None)
    year.world.clock.forward(HOUR)
    for n in range(9):
        await year.store.schedules.resume(replace(ACT, id=f"r{n}"), "shop", f"s{n}")
    skips = [view.skips.get("paused", 0) for view in await year.store.schedules.views(9)]
    await year.run(49 * 60, 60.0)
    counts = [view.firings for view in await year.store.schedules.views(9)]
    assert [skip + fired for skip, fired in zip(skips, counts, strict=True)] == [1] * 9
    assert {*counts} == {0, 1}


async def test_figures_say_for_how_long_a_schedule_has_been_due(store: Store, world: World) -> None:
    await store.schedules.apply([a_schedule()])
    ((due,),) = await world.rows("select next_at from {schedule}")
    assert (await store.admin.figures(calendar=due - 1.0)).due_lag == 0.0
    assert (await store.admin.figures(calendar=due + 40.0)).due_lag == pytest.approx(40.0)
