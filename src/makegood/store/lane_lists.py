"""Lanes as people see them: who holds each, who waits and in which order, and which tasks in error others
wait for.

Each read is bounded: of a lane's tasks the first ones are read, and the others are counted up to a limit.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from makegood.base.stored_values import record_of, text, whole
from makegood.store.lane_views import COUNTED, NAMED, LanePlace, LaneView, TaskLane
from makegood.store.transaction import ReadTx, Sql, for_each

APPS: Final = 100
"""Apps that may have a lane of one name."""


_OF_LANE = "l.app = x.app and l.name = x.name and l.state = '{place}'"
_MEMBERS = f"""
select l.app, l.name, l.task, t.workflow, t.key, t.state, l.at_once, t.created_at
from makegood.lane l join makegood.task t on t.id between l.task and l.task where {_OF_LANE} order by l.seq, l.task limit {NAMED}
"""  # noqa: S608 - our own numbers
_COUNT = f"""
select x.app, x.name, (select count(*) from (select 1 from makegood.lane l where {_OF_LANE} limit {COUNTED + 1}) part) {{rows}}
"""  # noqa: S608 - our own numbers
_LANE = {"app": "text", "name": "text"}


def _both(text_: str) -> tuple[str, str]:
    """Return a text for tasks that hold a lane, and one for those that wait."""
    return text_.replace("{place}", "held"), text_.replace("{place}", "waiting")


HOLDERS, WAITING = (
    for_each(each, f"select m.* {{rows}} cross join lateral ({each}) m", **_LANE) for each in _both(_MEMBERS)
)
HELD_COUNT, WAITING_COUNT = (for_each(each, **_LANE) for each in _both(_COUNT))
_COLUMN = """
(select l.{} from makegood.lane l where l.state = '{{place}}' and (l.app, l.name) > (lanes.app, lanes.name) order by l.app, l.name limit 1)
"""
_LANES = f"""
with recursive lanes (n, app, name) as (
    select 0, {{first}}
    union all
    select lanes.n + 1, {_COLUMN.format("app")}, {_COLUMN.format("name")} from lanes where lanes.app is not null and lanes.n < $3
)
select lanes.app, lanes.name from lanes where lanes.n > 0 and lanes.app is not null
"""  # noqa: S608 - our own columns
# One step through the index for each lane, whatever the number of its tasks.
HELD_LANES, WAITING_LANES = (
    Sql(
        each.replace("{first}", '$1::text collate "C", $2::text collate "C"'),
        each.replace("{first}", "$1, $2"),
    )
    for each in _both(_LANES)
)
NAMESAKES = Sql(f"""
select distinct app from (select app from makegood.lane where name = $1 and state <> 'out' limit {COUNTED}) part order by app limit {APPS}
""")  # noqa: S608 - our own numbers
_COUNTED = "(select count(*) from (select 1 from makegood.lane o where {} limit $2) part)"
_OTHERS = "o.app = l.app and o.name = l.name and o.state = 'waiting'"
PLACES = Sql(f"""
select l.task, l.app, l.name, l.state, l.at_once,
    case when l.state = 'waiting' then {_COUNTED.format(f"{_OTHERS} and (o.seq, o.task) < (l.seq, l.task)")} else 0 end,
    case when l.state = 'held' then {_COUNTED.format(_OTHERS)} else 0 end
from makegood.lane l where l.task = any ($1::bigint[]) order by l.task, l.name
""")  # noqa: S608 - our own conditions


def _members(records: Sequence[Sequence[object]]) -> dict[tuple[str, str], list[LanePlace]]:
    members = defaultdict[tuple[str, str], list[LanePlace]](list)
    for app, name, *member in records:
        members[text(app), text(name)].append(record_of(LanePlace, member))
    return members


async def lanes(
    tx: ReadTx,
    app: str | None = None,
    name: str | None = None,
    limit: int = 100,
    after: tuple[str, str] = ("", ""),
) -> list[LaneView]:
    """Return at most ``limit`` lanes that tasks hold or wait for, by app and name, those behind ``after``,
    which is an app and a name. ``app``, ``name``: only those.
    """
    if name is None:
        begin = max(after, (app or "", ""))
        pages = [await tx.rows(sql, *begin, limit) for sql in (HELD_LANES, WAITING_LANES)]
        keys = sorted({(text(of), text(lane)) for page in pages for of, lane in page})
        keys = [key for key in keys if app in (None, key[0])][:limit]
    elif app is not None:
        keys = [(app, name)]
    else:
        keys = [(text(of), name) for (of,) in await tx.rows(NAMESAKES, name)]
    if not keys:
        return []
    holders, waiting = [_members(await tx.each(sql, keys)) for sql in (HOLDERS, WAITING)]
    held_counts, wait_counts = [
        {(text(of), text(lane)): whole(count) for of, lane, count in await tx.each(sql, keys)}
        for sql in (HELD_COUNT, WAITING_COUNT)
    ]
    views = [
        LaneView(
            *key,
            held_counts.get(key, 0),
            wait_counts.get(key, 0),
            tuple(holders.get(key, ())),
            tuple(waiting.get(key, ())),
        )
        for key in keys
    ]
    return [view for view in views if view.holders or view.waiters]


async def places(tx: ReadTx, tasks: Sequence[int], most: int = COUNTED) -> dict[int, list[TaskLane]]:
    """Return the places of tasks in their lanes, by task; of others, at most ``most`` are counted, and one
    more if there are more.
    """
    places_ = [record_of(TaskLane, row) for row in await tx.rows(PLACES, list(tasks), most + 1)]
    lanes_ = sorted({(place.app, place.name) for place in places_ if place.place == "waiting"})
    holders = _members(await tx.each(HOLDERS, lanes_)) if lanes_ else {}
    by_task: dict[int, list[TaskLane]] = {}
    for place in places_:
        held_by = tuple(member.task for member in holders.get((place.app, place.name), ()))
        seen_place = msgspec.structs.replace(place, held_by=held_by) if place.place == "waiting" else place
        by_task.setdefault(place.task, []).append(seen_place)
    return by_task


async def of_task(tx: ReadTx, task: int) -> tuple[TaskLane, ...]:
    """Return the places of a task in its lanes, by name."""
    return tuple((await places(tx, [task])).get(task, ()))


async def first_waiting(
    tx: ReadTx, keys: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], tuple[int, list[int]]]:
    """Return how many tasks wait for each of these lanes, counted up to ``COUNTED``, and the first of
    them.
    """
    members = _members(await tx.each(WAITING, keys))
    counts = await tx.each(WAITING_COUNT, keys)
    return {
        (text(app), text(name)): (whole(count), [member.task for member in members[text(app), text(name)]])
        for app, name, count in counts
    }
