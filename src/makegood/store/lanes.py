"""Lanes in the store: who may go, who waits, and what the end of a task makes room for.

A place says that a task waits in a lane, holds it, or is out of it. Whoever changes the state of a task with
lanes changes its places in the same transaction (``settle``). A queued task may go when in each of its lanes
fewer than ``at_once`` tasks hold the lane or wait before it. If it may not, the claim that found it *parks*
it: no claim looks at it again before somebody who makes room gives it a new ``ready_seq``::

    submitted ─► looked at by a claim ─┬─ may go ──► held ─── its end ──► out
                      ▲                └─ parked                │
                      └──────── those that are next ◄───────────┘

On PostgreSQL a claim decides under locks on the lanes, and so does whoever makes room: otherwise one could
park a task by what the other is about to change, and nobody would look at that task again. A claim never
waits for such a lock: what it cannot lock it leaves for later. SQLite has one writer.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from makegood.base.ids import show
from makegood.model.decision import Decision
from makegood.model.lane import LaneState
from makegood.model.messages import Act, TaskMessage
from makegood.model.states import ENDED
from makegood.store import lane_lists, rows
from makegood.store.records import NO_MOMENT
from makegood.store.transaction import ReadTx, Sql, Tx, Verbs, for_each, reading

MOST_ASKED = 1000
"""Tasks before it that a task asks to cancel, at most."""

_LANES = Sql("select cast(app as text), cast(name as text) from makegood.lane where task = $1")
_PLACES = Sql("select name, state from makegood.lane where task = $1 order by name")
# A limit keeps the planner of PostgreSQL from reading all lanes for a hash. In SQLite a broken row may have
# a value of any type, which must end no claim.
TAKEN = Sql("""
select l.task, cast(l.app as text), cast(l.name as text), cast(l.seq as bigint), cast(l.at_once as bigint), l.when_taken
from makegood.lane l
where l.task = any ($1::bigint[]) and coalesce(l.state, '') = 'waiting' and (
    (select 1 from makegood.lane h where h.app = l.app and h.name = l.name and h.state = 'held' limit 1) is not null
    or (
        select 1 from makegood.lane w where w.app = l.app and w.name = l.name and w.state = 'waiting'
            and (w.seq, w.task) < (l.seq, l.task) limit 1
    ) is not null
) order by l.task, l.name
""")
"""The places of these tasks in lanes that others hold, or wait for before them: most tasks have none."""
_HELD = "select count(*) from makegood.lane h where h.app = x.app and h.name = x.name and h.state = 'held'"
_LAST = """
select {} from makegood.lane w where w.app = x.app and w.name = x.name and w.state = 'waiting' order by w.seq, w.task limit 1 offset {}
"""
_OFFSET = f"cast(greatest(x.at_once - ({_HELD}), 1) as bigint) - 1"
LAST = for_each(  # in SQLite, subqueries in "from" would cost more than looking twice
    f"""
select x.app, x.name, x.at_once, x.at_once - ({_HELD}), ({_LAST.format("cast(w.seq as bigint)", _OFFSET)}), ({_LAST.format("w.task", _OFFSET)})
""",
    f"""
select x.app, x.name, x.at_once, f.free, w.seq, w.task {{rows}}
cross join lateral (select x.at_once - ({_HELD}) as free) f
left join lateral ({_LAST.format("w.seq, w.task", "greatest(f.free, 1) - 1")}) w on true
""",
    app="text", name="text", at_once="int",
)  # fmt: skip
"""For each lane: how many more may go, and the last of those that wait and would."""
PARK = Sql(
    f"update makegood.task set ready_seq = {NO_MOMENT} where id = any ($1::bigint[])"  # noqa: S608 - our own number
)
_MOST = """
select coalesce(max(m.at_once), 1) from makegood.lane m where m.app = x.app and m.name = x.name and m.state = 'waiting' and m.at_once > 1
"""
_NEXT = f"""
select w.app, w.name, cast(w.seq as bigint) as seq, w.task from makegood.lane w where w.app = x.app and w.name = x.name and w.state = 'waiting'
order by w.seq, w.task limit cast(greatest(1, ({_MOST}) - ({_HELD})) as bigint)
"""  # noqa: S608 - our own text
NEXT = for_each(_NEXT, f"select n.* {{rows}} cross join lateral ({_NEXT}) n", app="text", name="text")
"""The tasks that are next in these lanes, each of which may let several go."""
_FIRST = f"""
select f.name, f.task, f.is_wide from (
    select l.name, (
        select t.id from makegood.task t where t.state = 'queued' and t.ready_seq = {NO_MOMENT} and t.id = (
            select w.task from makegood.lane w where w.app = $1 and w.name = l.name and w.state = 'waiting'
            order by w.seq, w.task limit 1
        )
    ) as task, (
        select 1 from makegood.lane m where m.app = $1 and m.name = l.name and m.state = 'waiting' and m.at_once > 1 limit 1
    ) is not null as is_wide
    from {{names}}
) f where f.task is not null or f.is_wide
"""  # noqa: S608 - our own number
FIRST = Sql(
    _FIRST.replace("{names}", "unnest($2::text[]) l (name)"),
    _FIRST.replace("{names}", "(select value as name from json_each(?2)) l"),
)
"""Of the lanes of these names in an app: the first task that waits, if it is parked, and those that may let
several go, because tasks wait that allow it.
"""
_UNPARK = f"""
update makegood.task as t set ready_seq = {{base}} + x.n {{rows}}
where {{one}} and coalesce(t.state, '') = 'queued' and coalesce(t.ready_seq, 0) = {NO_MOMENT}
"""  # noqa: S608 - our own text
# A range of one makes PostgreSQL's planner look up each row. In SQLite it would cost three times as much.
UNPARK = for_each(
    _UNPARK.replace(
        "{base}", "(select max(last, cast({now} * 1000000 as integer)) from makegood.ready)"
    ).replace("{one}", "t.id = x.task"),
    _UNPARK.replace("{base}", "(extract(epoch from statement_timestamp()) * 1000000)::bigint").replace(
        "{one}", "t.id between x.task and x.task"
    ),
    task="bigint", n="bigint",
)  # fmt: skip
"""Lets tasks look again, in this order. Pass them by task: two that make room may find the same ones."""
# Without "coalesce", a plan made while the tables are empty would read all of an index of those that wait.
_TAKE = Sql(
    "update makegood.lane set state = 'held' where task = any ($1::bigint[]) and coalesce(state, '') = 'waiting'"
)
_QUIT = Sql(
    "update makegood.lane set state = 'out' where task = any ($1::bigint[]) and coalesce(state, '') = 'waiting'"
)
_LEAVE = Sql("update makegood.lane set state = 'out' where task = any ($1::bigint[]) and state <> 'out'")
_ENTERED = """
update makegood.lane as l set state = 'waiting', seq = t.ready_seq from makegood.task t
where l.task = any ($1::bigint[]) and l.state = 'out' and t.id between l.task and l.task
"""
_ENTER = Sql(_ENTERED, _ENTERED.replace("between l.task and l.task", "= l.task"))
_EARLIER = f"""
select x.task as asks, b.task from makegood.lane b where b.app = x.app and b.name = x.name
    and (b.state = 'held' or (b.state = 'waiting' and (b.seq, b.task) < (x.seq, x.task))) limit {MOST_ASKED}
"""  # noqa: S608 - our own number
_BEFORE = for_each(
    _EARLIER,
    f"select b.* {{rows}} cross join lateral ({_EARLIER}) b",
    task="bigint",
    app="text",
    name="text",
    seq="bigint",
)
_ASK = for_each(
    "insert into makegood.inbox (task, kind, at, body) select x.task, 'cancel', {now}, x.body {rows}",
    task="bigint", body="bytea",
)  # fmt: skip
_HAS_ASKED = Sql(
    "update makegood.lane set when_taken = 'wait' where task = any ($1::bigint[]) and when_taken = 'cancel'"
)


@dataclass(slots=True)
class Admitted:
    """What a claim makes of queued tasks."""

    may_go: set[int] = field(default_factory=set)
    refusals: set[int] = field(default_factory=set)
    """Those whose lanes are taken, and that do not wait."""


async def admit(tx: Tx, tasks: Sequence[int]) -> Admitted:
    """Return which of these queued tasks may go, and park the others.

    Those that would rather have their lanes ask the tasks before them to cancel.
    """
    result = Admitted(set(tasks))
    places = await tx.rows(TAKEN, list(tasks)) if tasks else ()
    if not places:
        return result
    lanes = sorted({(app, name, at_once) for _, app, name, _, at_once, _ in places})
    lasts = {(app, name, most): last for app, name, most, *last in await tx.each(LAST, lanes)}
    asking: list[tuple[int, str, str, int]] = []
    for task, app, name, seq, at_once, when_taken in places:
        free, last_seq, last_task = lasts[app, name, at_once]
        if free > 0 and (last_seq is None or (seq, task) <= (last_seq, last_task)):
            continue
        result.may_go.discard(task)
        if when_taken == "refuse":
            result.refusals.add(task)
        elif when_taken == "cancel":
            asking.append((task, app, name, seq))
    to_park = [task for task in tasks if task not in result.may_go]
    if to_park:
        await tx.run(PARK, to_park)
    if asking:
        await _ask_to_cancel(tx, asking)
    return result


async def _ask_to_cancel(tx: Tx, asking: Sequence[tuple[int, str, str, int]]) -> None:
    """Ask the tasks before these (task, app, name, seq) to cancel, once."""
    pairs = {(asks, task) for asks, task in await tx.each(_BEFORE, asking) if asks != task}
    messages = [
        (task, rows.message(TaskMessage("cancel", act=_act(asks, task), automatic=True)))
        for asks, task in sorted(pairs)
    ]
    await tx.many(_ASK, messages)
    await tx.run(_HAS_ASKED, sorted({task for task, *_ in asking}))
    tx.topics.add("inbox")


def _act(asks: int, task: int) -> Act:
    return Act(f"lane-{show(asks)}-{show(task)}", "lane", f"task {show(asks)} wants its lane")


def movers(decisions: Iterable[Decision]) -> list[Decision]:
    """Return those that may change the places of their tasks."""
    return [d for d in decisions if d.task.lanes and (d.frees_lanes or _moves(d.before.state, d.task.state))]


def _moves(before: str, after: str) -> bool:
    return before != after and (before == "queued" or after == "queued" or after in ENDED)


def makes_room(d: Decision) -> bool:
    """Whether a Decision takes the places of its task away, so that others may go."""
    return bool(d.task.lanes) and (d.frees_lanes or (d.task.state in ENDED and d.before.state not in ENDED))


async def settle(tx: Tx, decisions: Sequence[Decision]) -> None:
    """Make the places of tasks what the states say that these Decisions, which are written, give them; let
    those look again that are next.
    """
    moves = defaultdict[Sql, list[int]](list)
    room = defaultdict[str, set[str]](set)
    for d in decisions:
        move = _move(d)
        moves[move].append(d.task.id)
        if move is _LEAVE or move is _QUIT:
            room[d.task.app].update(d.task.lanes)
    for move, tasks in moves.items():
        await tx.run(move, tasks)
    await _make_room(tx, room)


def _move(d: Decision) -> Sql:
    """Return what becomes of the places of a task."""
    state = d.task.state
    if d.frees_lanes or place_of(state, "held") == "out":
        return _LEAVE
    if state == "queued":
        return _ENTER
    return _TAKE if place_of(state, "waiting") == "held" else _QUIT


async def expel(tx: Tx, task: int) -> None:
    """Take the places away in which a task waits that is put to error: it has not had its lanes."""
    if await tx.run(_QUIT, [task]):
        room = defaultdict[str, set[str]](set)
        for app, name in await tx.rows(_LANES, task):
            room[app].add(name)
        await _make_room(tx, room)


async def _make_room(tx: Tx, lanes: Mapping[str, Collection[str]]) -> None:
    """Let those look again that are next in the lanes of these names, by app."""
    numbers: dict[int, int] = {}
    wide: list[tuple[str, str]] = []
    for app, names in lanes.items():
        for name, task, is_wide in await tx.rows(FIRST, app, list(names)):
            if is_wide:
                wide.append((app, name))
            else:
                numbers[task] = 1
        tx.topics.add("queued")
    counts = Counter[tuple[str, str]]()
    for app, name, _, task in sorted(await tx.each(NEXT, wide)):
        counts[app, name] += 1
        numbers[task] = min(counts[app, name], numbers.get(task, counts[app, name]))
    await tx.many(UNPARK, sorted(numbers.items()))


def place_of(state: str, place: str) -> str:
    """Return the state of a place, from that of its task and its own so far.

    >>> place_of("processing", "waiting"), place_of("error", "held"), place_of("undone", "held")
    ('held', 'held', 'out')
    """
    if state in ENDED:
        return "out"
    if state == "queued":
        return "waiting" if place == "out" else place
    if place != "waiting":
        return place
    return "out" if state == "error" else "held"  # one that cannot be read has not had its lanes


# -- for people, and for submissions -------------------------------------------------------------------------


async def lanes_of(tx: ReadTx, task: int) -> dict[str, LaneState]:
    """Return the lanes of a task, each with the state of its place: waiting, held or out."""
    return dict(await tx.rows(_PLACES, task))


async def obstacle(tx: ReadTx, app: str, names: Sequence[str], at_once: int) -> tuple[int, str] | None:
    """Return a task that has one of these lanes, or waits for it, and the lane, if a task that comes now may
    not go; None if it may. It locks nothing: the claim decides.
    """
    keys = [(app, name) for name in names]
    holders, waiters = [
        {name: count for _, name, count in await tx.each(sql, keys)}
        for sql in (lane_lists.HELD_COUNT, lane_lists.WAITING_COUNT)
    ]
    for name in names:
        if holders[name] + waiters[name] >= at_once:
            members = lane_lists.HOLDERS if holders[name] else lane_lists.WAITING
            for _, _, task, *_ in await tx.each(members, [(app, name)]):
                return task, name
    return None


class LaneVerbs(Verbs):
    """The holders of lanes and the tasks that wait for one; ``Tasks.commit`` changes both."""

    lanes = reading(lane_lists.lanes)
    places = reading(lane_lists.places)
    lanes_of = reading(lanes_of)
    obstacle = reading(obstacle)
