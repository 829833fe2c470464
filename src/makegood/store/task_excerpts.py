"""Parts of one task, for pages: a bounded number of rows and bytes, however many steps a task has and however
large its values are.

``excerpt`` reads every step of a task of up to ``WHOLE`` steps. Of a longer one it reads the steps that need
attention, the first and the last ones, and a page of steps if one is asked for; of the rest only how many are
in which state, block by block. Values are read smallest first until a budget is used up; ``value`` reads one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base.sizes import KIB, MIB
from makegood.store import lane_lists, rows, signals
from makegood.store.search import (
    ASKED,
    HAS_ATTRIBUTES,
    HAS_SIGNALS,
    LISTED,
    STEP_COLUMNS,
    attributes,
    step_views,
    task_view,
    unknown_values,
)
from makegood.store.transaction import ReadTx, Sql
from makegood.store.views import EventView, StepBlock, StepPage, StepView, TaskDetail, TaskEvents, TaskExcerpt

WHOLE: Final = 200
"""Steps of a task that is read whole."""
PAGE: Final = 100
"""Steps of a page, and steps of a block at least."""
BLOCKS: Final = 100
"""Blocks of a task, at most."""
SPECS: Final = 2 * MIB
"""Bytes of what steps declare, above which a task is not read whole."""
SPEC: Final = 16 * KIB
"""Bytes of what a step of such a task declares, above which it is left out."""
VALUE: Final = 16 * KIB
"""Bytes above which a value is left out."""
VALUES: Final = 64 * KIB
"""Bytes of all results of steps."""
ERROR: Final = 4000
"""Characters of an error that are read."""
EVENTS: Final = 400
"""Events of a page."""
EVENT: Final = 64 * KIB
"""Bytes of an event above which its moves are left out."""
EVENT_BYTES: Final = 256 * KIB
"""Bytes of the events of a page."""
ALIKE: Final = 12
"""Steps of one state that are read for their state, at most."""

_STATE = "case when r.attempt > s.attempt then 'running' else s.state end"
_WITH_REQUESTS = (
    "from makegood.step s left join makegood.request r on r.task = s.task and r.idx = s.idx and r.kind <> 'timer' "
    "where s.task = $1 and s.kind not in ('merge', 'gather')"
)
_TASK = Sql(f"""
select {LISTED}, case when octet_length(result) <= $2 then result end, octet_length(result), trace,
    case when octet_length(static) <= $2 then static end, octet_length(static), (select store_id from makegood.generation), {{now}},
    (select max(idx) from makegood.step where task = $1), (select sum(octet_length(spec)) from makegood.step where task = $1), {HAS_ATTRIBUTES}, {HAS_SIGNALS}
from makegood.task where id = $1
""")  # noqa: S608 - our own columns
_SHORTENED = STEP_COLUMNS.replace("result, error", f"octet_length(result), substr(error, 1, {ERROR})")
_STEPS = f"select {_SHORTENED} from makegood.step where task = $1"  # noqa: S608 - our own columns
_ALL_STEPS = Sql(f"{_STEPS} order by idx")
_SOME_STEPS = Sql(
    _STEPS.replace("spec", f"case when octet_length(spec) <= {SPEC} then spec end")
    + " and idx = any ($2::integer[]) order by idx"
)
_REQUESTS = Sql("""
select idx, kind, attempt, taken_by, complete_by - {now}, taken_at from makegood.request where task = $1 and idx = any ($2::integer[])
""")
_RESULTS = Sql("select idx, result from makegood.step where task = $1 and idx = any ($2::integer[])")
_BLOCKS = Sql(f"""
select s.idx / $2::integer, s.kind = 'action', {_STATE}, count(*), min(s.idx), max(s.idx) {_WITH_REQUESTS}
group by 1, 2, 3 order by 1
""")
_NOTABLE: Final = "'undo_failed', 'in_doubt', 'failed', 'undoing', 'running', 'ready', 'kept'"
"""States of steps that a page shows apart, those that need somebody first."""
_CHOICE = Sql(f"""
select idx from (
    select idx, state, row_number() over (partition by state order by idx) as nth
    from (select s.idx, {_STATE} as state {_WITH_REQUESTS}) known
) ranked where idx < 3 or idx > $2::integer - 3 or (nth <= {ALIKE} and state in ({_NOTABLE}))
""")  # noqa: S608 - our own states
_WINDOW = Sql(f"""
select s.idx {_WITH_REQUESTS} and s.idx >= $2::integer and ($3::text is null or {_STATE} = $3) order by s.idx limit $4
""")
_NAMES = Sql("select idx, name from makegood.step where task = $1 and idx = any ($2::integer[])")
_SIZES = Sql("""
select seq, octet_length(moves) + octet_length(attempts) + octet_length(note) from makegood.event
where task = $1 and ($2::bigint is null or seq < $2) order by seq desc limit $3
""")
_SIZES_AFTER = Sql("""
select seq, octet_length(moves) + octet_length(attempts) + octet_length(note) from makegood.event
where task = $1 and seq > $2 order by seq limit $3
""")
_EVENTS = Sql(f"""
select {rows.EVENT_COLUMNS} from makegood.event where task = $1 and seq = any ($2::bigint[]) order by seq
""")  # noqa: S608 - our own columns
_BARE_EVENTS = Sql(
    "select seq, task, at, node from makegood.event where task = $1 and seq = any ($2::bigint[])"
)


async def excerpt(
    tx: ReadTx, plans: rows.Interner, task: int, page: StepPage | None = None
) -> TaskExcerpt | None:
    """Return what a page shows of a task, None if it does not exist. ``tx`` must see one moment."""
    row = await tx.rows(_TASK, task, VALUE)
    if not row:
        return None
    (
        *columns,
        result_size,
        trace,
        static,
        static_size,
        store_id,
        now,
        last,
        specs,
        has_attributes,
        has_signals,
    ) = row[0]
    unreadable: list[str] = []
    whole = (last or 0) < WHOLE and (specs or 0) <= SPECS
    blocks = [] if whole else await _blocks(tx, task, last)
    window, next_ = (None, None) if whole or page is None else await _window(tx, task, page)
    choice = None if whole else sorted({*await _notable(tx, task, last), *(window or ())})
    steps, sizes = await _steps(tx, plans, task, choice, unreadable)
    inputs, returns, reply, names = rows.try_read_static(static, unreadable)
    if static is None and static_size:
        sizes["inputs"] = static_size
    view = task_view(columns)
    unreadable += unknown_values(view)
    if view.result is None and result_size:
        sizes["result"] = result_size
    detail = TaskDetail(
        view, steps, inputs, None if reply is None else reply.to, tuple(unreadable),
        rows.operator_commands(await tx.rows(ASKED, task), unreadable), returns, trace, store_id, now, names,
        await attributes(tx, task) if has_attributes else {}, None if whole else _tally(blocks),
        await signals.views(tx, task) if has_signals else (), {} if static is None else rows.signals_of(static) or {},
        await lane_lists.of_task(tx, task) if rows.may_have_lanes(static) else (),
    )  # fmt: skip
    return TaskExcerpt(detail, (last or 0) + 1, blocks, window, next_, sizes)


async def _blocks(tx: ReadTx, task: int, last: int) -> list[StepBlock]:
    """Return how many steps are in which state, in blocks of equal length."""
    length = PAGE * -(-(last + 1) // (PAGE * BLOCKS))
    blocks: dict[int, StepBlock] = {}
    for number, action, state, count, first, final in await tx.rows(_BLOCKS, task, length):
        block = blocks.get(number, StepBlock(first, final))
        name = str(state)
        states, actions = dict(block.states), dict(block.actions)
        states[name] = states.get(name, 0) + count
        if action:
            actions[name] = actions.get(name, 0) + count
        blocks[number] = StepBlock(min(block.first, first), max(block.last, final), states, actions)
    return list(blocks.values())


def _tally(blocks: Sequence[StepBlock]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for block in blocks:
        total.update(block.actions)
    return total


async def _window(tx: ReadTx, task: int, page: StepPage) -> tuple[list[int], int | None]:
    """Return the steps of a page, and where the next page begins."""
    numbers = [idx for (idx,) in await tx.rows(_WINDOW, task, page.first, page.state, PAGE + 1)]
    return numbers[:PAGE], numbers[PAGE] if len(numbers) > PAGE else None


async def _notable(tx: ReadTx, task: int, last: int) -> list[int]:
    """Return the steps that need attention, the first and the last ones."""
    return [idx for (idx,) in await tx.rows(_CHOICE, task, last)]


async def _steps(
    tx: ReadTx, plans: rows.Interner, task: int, choice: list[int] | None, unreadable: list[str]
) -> tuple[list[StepView], dict[str, int]]:
    """Return these steps, or all, and the bytes of results that are left out, by "step-IDX"."""
    if choice is None:
        records = await tx.rows(_ALL_STEPS, task)
        choice = [row[0] for row in records]
    else:
        records = await tx.rows(_SOME_STEPS, task, choice)
    requests = await tx.rows(_REQUESTS, task, choice)
    sizes = {row[0]: row[11] for row in records if row[11]}
    room, fitting = VALUES, []
    for idx in sorted(sizes, key=lambda idx: sizes[idx]):
        room -= sizes[idx]
        if room < 0 or sizes[idx] > VALUE:
            break
        fitting.append(idx)
    results = {idx: value for idx, value in await tx.rows(_RESULTS, task, fitting)} if fitting else {}  # noqa: C416 - records, not pairs
    complete = ([*row[:11], results.get(row[0]), *row[12:]] for row in records)
    steps = step_views(plans, complete, requests, unreadable)
    return steps, {f"step-{idx}": size for idx, size in sizes.items() if idx not in results}


async def step_names(tx: ReadTx, task: int, steps: Sequence[int]) -> dict[int, str]:
    """Return the names of these steps, by index."""
    return {idx: name for idx, name in await tx.rows(_NAMES, task, list(steps))}  # noqa: C416 - records, not pairs


async def recent(tx: ReadTx, task: int, before: int | None = None) -> TaskEvents:
    """Return the newest events of a task with a sequence below ``before``, in order, as many as a page shows.

    The moves of an event that is too large for a page are left out, and its size says so.
    """
    sizes = [*await tx.rows(_SIZES, task, before, EVENTS + 1)]
    return await _events(tx, task, sizes[:EVENTS], is_partial=len(sizes) > EVENTS, most=EVENT)


async def events_after(tx: ReadTx, task: int, after: int, limit: int, octets: int) -> TaskEvents:
    """Return events of a task with a sequence above ``after``, in order: at most ``limit``, and of ``octets``
    bytes, but one at least.
    """
    sizes = [*await tx.rows(_SIZES_AFTER, task, after, limit + 1)]
    room, fitting = octets, list[Any]()
    for row in sizes[:limit]:
        room -= row[1] or 0
        if fitting and room < 0:
            break
        fitting.append(row)
    return await _events(tx, task, fitting, is_partial=len(sizes) > len(fitting), most=None)


async def _events(
    tx: ReadTx, task: int, sizes: Sequence[Any], *, is_partial: bool, most: int | None
) -> TaskEvents:
    room, large = EVENT_BYTES, dict[int, int]()
    for seq, size in sizes:  # from the first one that was asked for
        room -= size or 0
        if most is not None and (room < 0 or (size or 0) > most):
            room += size or 0
            large[seq] = size
    fitting = [seq for seq, _ in sizes if seq not in large]
    events = [rows.event(row) for row in await tx.rows(_EVENTS, task, fitting)] if fitting else []
    bare = await tx.rows(_BARE_EVENTS, task, list(large)) if large else ()
    events += [EventView(seq, of, at, node, [], octets=large[seq]) for seq, of, at, node in bare]
    return TaskEvents(sorted(events, key=lambda event: event.seq), is_partial)


# -- one value -----------------------------------------------------------------------------------------------

_VALUES: Mapping[str, Sql] = {
    "result": Sql(
        "select octet_length(result), case when octet_length(result) <= $2 then result end from makegood.task where id = $1"
    ),
    "static": Sql(
        "select octet_length(static), case when octet_length(static) <= $2 then static end from makegood.task where id = $1"
    ),
    "step": Sql(
        "select octet_length(result), case when octet_length(result) <= $2 then result end from makegood.step where task = $1 and idx = $3"
    ),
    "error": Sql(
        "select octet_length(error), case when octet_length(error) <= $2 then error end from makegood.step where task = $1 and idx = $3"
    ),
}


async def value(tx: ReadTx, task: int, what: str, number: int, most: int) -> tuple[int, bytes | None] | None:
    """Return the size of a value and the value itself, None instead of it above ``most`` bytes; None if there
    is none.

    ``what``: "result" or "inputs" of the task, or of the step ``number`` its result ("step") or "error".
    """
    name = "static" if what == "inputs" else what
    values = (task, most) if name in ("result", "static") else (task, most, number)
    row = await tx.rows(_VALUES[name], *values)
    if not row or row[0][0] is None:
        return None
    size, content = row[0]
    if content is None:
        return size, None
    if isinstance(content, str):
        return size, content.encode("utf-8", "surrogatepass")
    if what == "inputs":
        inputs, _, _, names = rows.try_read_static(content, [])
        if names:  # a name says whether a value is secret
            fields = {name: msgspec.Raw(data) for name, data in zip(names, inputs, strict=False)}
            content = msgspec.json.encode(fields)
        else:
            content = b"[" + b",".join(inputs) + b"]"
    return size, bytes(content)
