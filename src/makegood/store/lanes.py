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

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
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

_PLACES = Sql("""
select task, app, name, seq, at_once, when_taken, state from makegood.lane where task = any ($1::bigint[]) order by task, name
""")
_HELD = "select count(*) from makegood.lane h where h.app = x.app and h.name = x.name and h.state = 'held'"
_LAST = """
select {} from makegood.lane w where w.app = x.app and w.name = x.name and w.state = 'waiting' order by w.seq, w.task limit 1 offset {}
"""
_OFFSET = f"greatest(x.at_once - ({_HELD}), 1) - 1"
LAST = for_each(  # in SQLite, subqueries in "from" would cost more than looking twice
    f"""
select x.app, x.name, x.at_once, x.at_once - ({_HELD}), ({_LAST.format("w.seq", _OFFSET)}), ({_LAST.format("w.task", _OFFSET)})
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
select w.app, w.name, w.seq, w.task from makegood.lane w where w.app = x.app and w.name = x.name and w.state = 'waiting'
order by w.seq, w.task limit greatest(1, ({_MOST}) - ({_HELD}))
"""  # noqa: S608 - our own text
NEXT = for_each(_NEXT, f"select n.* {{rows}} cross join lateral ({_NEXT}) n", app="text", name="text")
"""The tasks that are next in these lanes."""
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
_STATES = Sql("select id, state, ready_seq from makegood.task where id = any ($1::bigint[])")
_MOVED = "update makegood.lane as l set state = x.state, seq = x.seq {rows} where "
_MOVE = for_each(
    _MOVED + "l.task = x.task and l.name = x.name",
    _MOVED + "(l.task, l.name) between (x.task, x.name) and (x.task, x.name)",
    task="bigint", name="text", state="text", seq="bigint",
)  # fmt: skip
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
    places = [place for place in await tx.rows(_PLACES, list(tasks)) if place[6] == "waiting"]
    lanes = sorted({(app, name, at_once) for _, app, name, _, at_once, _, _ in places})
    if not lanes:
        return result
    lasts = {(app, name, most): last for app, name, most, *last in await tx.each(LAST, lanes)}
    asking: list[tuple[int, str, str, int]] = []
    for task, app, name, seq, at_once, when_taken, _ in places:
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
        (task, rows.message(TaskMessage("cancel", act=_act(asks, task)))) for asks, task in sorted(pairs)
    ]
    await tx.many(_ASK, messages)
    await tx.run(_HAS_ASKED, sorted({task for task, *_ in asking}))
    tx.topics.add("inbox")


def _act(asks: int, task: int) -> Act:
    return Act(f"lane-{show(asks)}-{show(task)}", "lane", f"task {show(asks)} wants its lane")


def movers(decisions: Iterable[Decision]) -> list[int]:
    """Return the tasks whose places these Decisions may change."""
    return [
        d.task.id
        for d in decisions
        if d.task.lanes and (d.frees_lanes or _moves(d.before.state, d.task.state))
    ]


def _moves(before: str, after: str) -> bool:
    return before != after and (before == "queued" or after == "queued" or after in ENDED)


def giving_up(decisions: Iterable[Decision]) -> list[int]:
    """Return the tasks whose lanes these Decisions free by an operator's act."""
    return [d.task.id for d in decisions if d.frees_lanes]


def makes_room(d: Decision) -> bool:
    """Whether a Decision takes the places of its task away, so that others may go."""
    return bool(d.task.lanes) and (d.frees_lanes or (d.task.state in ENDED and d.before.state not in ENDED))


async def settle(tx: Tx, tasks: Sequence[int], given_up: Collection[int] = ()) -> None:
    """Make the places of tasks what the states of these tasks, which are written, say; let those look again
    that are next.
    """
    if not tasks:
        return
    states = {task: (state, ready) for task, state, ready in await tx.rows(_STATES, list(tasks))}
    moves: list[tuple[int, str, str, int]] = []
    room: set[tuple[str, str]] = set()
    for task, app, name, seq, _, _, place in await tx.rows(_PLACES, list(tasks)):
        if task not in states:
            continue
        state, ready = states[task]
        after = "out" if task in given_up else place_of(state, place)
        if after != place:
            moves.append((task, name, after, ready if after == "waiting" else seq))
            if after == "out":
                room.add((app, name))
    await tx.many(_MOVE, moves)
    if room:
        numbers: dict[int, int] = {}
        counts = Counter[tuple[str, str]]()
        for app, name, _, task in sorted(await tx.each(NEXT, sorted(room))):
            counts[app, name] += 1
            numbers[task] = min(counts[app, name], numbers.get(task, counts[app, name]))
        await tx.many(UNPARK, sorted(numbers.items()))
        tx.topics.add("queued")


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
    """Return the lanes of a task, each with the state of its place."""
    return {name: state for _, _, name, _, _, _, state in await tx.rows(_PLACES, [task])}


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
    """Who holds lanes, and who waits."""

    lanes = reading(lane_lists.lanes)
    places = reading(lane_lists.places)
    lanes_of = reading(lanes_of)
    obstacle = reading(obstacle)
