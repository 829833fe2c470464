"""Parts of a task: rows, bytes and statements are bounded whatever the task, and every step can be reached."""

import msgspec
import pytest

from makegood.store import task_excerpts
from makegood.store.protocol import Store
from makegood.store.views import Filter, StepPage, TaskExcerpt
from tests.conformance.builders import draft, steps
from tests.conformance.large_tasks import LARGE, long_task
from tests.conformance.worlds import Counts, World

STATEMENTS = 10
"""Of one excerpt."""


async def excerpt_of(store: Store, page: StepPage | None = None) -> TaskExcerpt:
    """Return what a page shows of task 1."""
    part = await store.tasks.excerpt(1, page)
    assert part is not None
    return part


async def test_a_short_task_is_read_whole(store: Store, world: World) -> None:
    await long_task(store, world, task_excerpts.WHOLE)
    part, detail = await excerpt_of(store), await store.tasks.detail(1, with_asked=True)
    assert detail is not None
    assert part.detail.steps == detail.steps
    assert part.detail.tally is None
    assert (part.total, part.blocks, part.page, part.next, dict(part.sizes)) == (200, [], None, None, {})
    assert part.detail.count("failed") == 1
    assert await store.tasks.excerpt(2) is None


async def test_a_long_task_is_read_in_part(store: Store, world: World) -> None:
    """What failed, what is in doubt, the first and the last steps; of the rest the number in each state."""
    await long_task(store, world, 10_000)
    part = await excerpt_of(store)
    assert [step.idx for step in part.detail.steps] == [
        0, 1, 2, *(7 + 1000 * n for n in range(1)), 500, *(7 + 1000 * n for n in range(1, 10)), 9997, 9998, 9999,
    ]  # fmt: skip
    assert part.total == 10_000
    assert len(part.blocks) == 100
    assert part.detail.tally == {"done": 9987, "failed": 10, "in_doubt": 1, "waiting": 2}
    assert sum(sum(block.states.values()) for block in part.blocks) == 10_000
    assert (part.blocks[10].first, part.blocks[10].last, part.blocks[10].states) == (
        1000,
        1099,
        {"done": 99, "failed": 1},
    )


async def test_of_many_steps_in_one_state_a_few_are_read(store: Store, world: World) -> None:
    """So the others that need attention are seen beside them."""
    await long_task(store, world, 2000)
    async with world.raw() as raw:
        await raw.run("update {step} set state = 'undo_failed' where task = 1 and idx between 600 and 1900")
    states = [step.state for step in (await excerpt_of(store)).detail.steps]
    assert states.count("undo_failed") == task_excerpts.ALIKE
    assert states.count("in_doubt") == 1
    assert len(states) < 40


async def test_every_step_is_on_a_page(store: Store, world: World) -> None:
    await long_task(store, world, 2050)
    indices: list[int] = []
    first: int | None = 0
    while first is not None:
        part = await excerpt_of(store, StepPage(first))
        assert part.page is not None
        assert {*part.page} <= {step.idx for step in part.detail.steps}
        assert len(part.page) <= task_excerpts.PAGE
        indices += part.page
        first = part.next
    assert indices == list(range(2050))
    failures = await excerpt_of(store, StepPage(1000, "failed"))
    assert (failures.page, failures.next) == ([1007, 2007], None)
    assert await store.tasks.step_names(1, [3, 2007]) == {3: "s3", 2007: "s2007"}


async def test_large_values_stay_in_the_store(store: Store, world: World) -> None:
    """Those of steps, of the task and its inputs; each can be read by itself, up to a size."""
    await store.tasks.submit([draft(1, inputs=(b'"' + b"i" * LARGE + b'"', b"2"))])
    async with world.raw() as raw:
        large = b'"' + b"x" * (LARGE - 2) + b'"'
        await raw.run("update {task} set result = ? where id = 1", large)
        await raw.run("update {step} set result = ? where idx = 0", large)
        await raw.run("update {step} set result = ?, error = ? where idx = 1", b"1", "e" * LARGE)
    part = await excerpt_of(store)
    assert part.sizes.keys() == {"inputs", "result", "step-0"}
    assert part.sizes["step-0"] == LARGE
    assert [step.result for step in part.detail.steps] == [None, b"1", None]
    assert len(msgspec.json.encode(part)) < 20_000
    assert await store.tasks.value(1, "result", 0, LARGE) == (LARGE, large)
    assert await store.tasks.value(1, "step", 0, LARGE - 1) == (LARGE, None)
    assert await store.tasks.value(1, "error", 1, LARGE) == (LARGE, b"e" * LARGE)
    inputs = await store.tasks.value(1, "inputs", 0, 2 * LARGE)
    assert inputs is not None
    assert inputs[1] == b'["' + b"i" * LARGE + b'",2]'
    for what, number in (("step", 2), ("step", 9), ("error", 0)):
        assert await store.tasks.value(1, what, number, 2 * LARGE) is None
    assert await store.tasks.value(2, "result", 0, LARGE) is None


async def test_small_results_are_read_before_large_ones_up_to_a_budget(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1, steps=steps(100))])
    async with world.raw() as raw:
        await raw.run("update {step} set result = ?", b'"' + b"x" * 1500 + b'"')
        await raw.run("update {step} set result = ? where idx >= 90", b"1")
    part = await excerpt_of(store)
    results = {step.idx for step in part.detail.steps if step.result is not None}
    assert {*range(90, 100)} <= results
    assert len(results) == 10 + (task_excerpts.VALUES - 10) // 1502
    assert len(part.sizes) == 100 - len(results)


async def test_what_steps_declare_is_bounded(store: Store, world: World) -> None:
    """A few steps with large arguments are read as a long task is."""
    await store.tasks.submit([draft(1)])
    async with world.raw() as raw:
        await raw.run("update {step} set spec = ?", b'{"idx":0,"name":"' + b"x" * LARGE + b'"}')
    part = await excerpt_of(store)
    assert [(step.name, step.plan, step.undoable) for step in part.detail.steps] == [
        (f"s{n}", None, True) for n in range(3)
    ]
    assert part.detail.tally is not None
    assert part.detail.unreadable == ()


@pytest.mark.parametrize("count", [300, 10_000])
async def test_statements_are_counted(
    counting_store: Store, counts: Counts, world: World, count: int
) -> None:
    """As many for every task."""
    await long_task(counting_store, world, count)
    await counting_store.tasks.excerpt(1, StepPage(100))  # what is prepared once
    await counts.reset()
    await counting_store.tasks.excerpt(1, StepPage(100))
    assert counts.statements <= STATEMENTS


async def test_the_history_is_read_from_its_end(store: Store, world: World) -> None:
    """Page by page; an entry that is too large is named by its size."""
    await long_task(store, world, 300, events=900)
    newest = await store.tasks.recent(1)
    assert len(newest.events) == task_excerpts.EVENTS
    assert newest.more
    large = newest.events[-1]
    assert (large.moves, large.octets > 600_000) == ([], True)
    assert newest.events[-2].moves[0][0] == "s899"
    older = await store.tasks.recent(1, newest.events[0].seq)
    oldest = await store.tasks.recent(1, older.events[0].seq)
    assert [len(older.events), len(oldest.events), oldest.more] == [400, 101, False]
    assert len({event.seq for part in (newest, older, oldest) for event in part.events}) == 901


async def test_the_history_is_read_from_its_beginning(store: Store, world: World) -> None:
    """With all moves: as many as fit, and one at least."""
    await long_task(store, world, 300, events=900)
    whole = await store.tasks.history(1)
    events, more = list(whole[:0]), True
    while more:
        part = await store.tasks.events_after(1, events[-1].seq if events else 0, 1000, 50_000)
        assert part.events
        events, more = [*events, *part.events], part.more
    assert events == whole


async def test_lists_hold_no_results(store: Store, world: World) -> None:
    """Unless they are asked for."""
    await store.tasks.submit([draft(n) for n in (1, 2)])
    async with world.raw() as raw:
        await raw.run("update {task} set result = ?", b"1")
    assert [view.result for view in await store.tasks.find(Filter())] == [None, None]
    assert [view.result for view in (await store.tasks.search(Filter())).tasks] == [None, None]
    assert [view.result for view in await store.tasks.find(Filter(results=True))] == [b"1", b"1"]
