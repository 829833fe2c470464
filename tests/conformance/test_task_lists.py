"""Lists of tasks: what each term of a filter finds, and that ended tasks cost nothing."""

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from makegood.base import ids
from makegood.model.decision import OpenDecision
from makegood.model.states import TaskState
from makegood.store.filters import parse_filter
from makegood.store.protocol import Store
from makegood.store.views import Filter, Tally
from tests.conformance.builders import begin, done, draft, hand, running, to_state, unchanged
from tests.conformance.ended import many_ended
from tests.conformance.worlds import Counts, World


async def some(store: Store) -> None:
    """Make one task in error (1), one undone (2), one processed (3), one under way (4) and two pending (5, 6)."""
    await store.tasks.submit([draft(n, key=f"k{n}", priority=n) for n in (1, 2, 3)])
    scheduler = await hand(store)
    await scheduler.claim(3)
    ends: tuple[tuple[int, TaskState], ...] = ((1, "error"), (2, "undone"), (3, "processed"))
    for task, state in ends:
        decision = done(scheduler[task], 0) if task == 3 else unchanged(scheduler[task])
        await scheduler.commit(
            to_state(scheduler[task], state, decision, cause=f"the card {task} was refused")
        )
    await store.tasks.submit([draft(4, key="k4", workflow="sell")])
    assert await scheduler.claim(1) == [4]
    await store.tasks.submit([draft(5), draft(6, app="kiosk")])


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", [6, 5, 4, 3, 2, 1]),
        ("state:error", [1]),
        ("state:pending,processing", [6, 5, 4]),
        ("state:processed,undone", [3, 2]),
        ("state:pending app:kiosk", [6]),
        ("workflow:sell", [4]),
        ("k3", [3]),
        (ids.show(4), [4]),
        ("k3 state:error", []),
        ("key:k2", [2]),
        ("step:s1", [6, 5, 4, 3, 2, 1]),
        ("step:s9", []),
        ("agent:payments workflow:sell", [4]),
        ("agent:shop/payments", [5, 4, 3, 2, 1]),
        ("error:CARD state:undone", [2]),
        ("priority:>1", [3, 2]),
        ("failures:0 state:error", [1]),
        ("failing:yes", []),
        ("failing:no state:processing", [4]),
        ("doubt:yes", []),
        ("age:>1h", []),
        ("since:1h state:undone", [2]),
    ],
)
async def test_a_filter_finds_and_counts(store: Store, text: str, ids: list[int]) -> None:
    await some(store)
    tasks = await store.tasks.search(parse_filter(text))
    assert ([task.id for task in tasks.tasks], tasks.older) == (ids, None)
    assert await store.tasks.tally(parse_filter(text)) == Tally(len(ids))
    assert [task.id for task in await store.tasks.find(parse_filter(text))] == ids


async def test_a_task_is_failing_while_its_failed_step_is_retried(store: Store, world: World) -> None:
    await running(store, 1, 2)
    async with world.raw() as raw:
        await raw.run("update {task} set failure_count = 1")
        await raw.run("update {step} set failure_count = 1, state = 'in_doubt' where idx = 0 and task = 1")
        await raw.run("update {step} set failure_count = 1, state = 'done' where idx = 0 and task = 2")
    assert [task.id for task in (await store.tasks.search(parse_filter("failing:yes"))).tasks] == [1]
    assert [task.id for task in (await store.tasks.search(parse_filter("doubt:yes"))).tasks] == [1]
    tally = await store.tasks.tally_unended()
    assert (tally.states, tally.failing, tally.doubt, tally.in_flight) == ({"processing": 2}, 1, 1, 2)


async def test_pages_follow_each_other(store: Store) -> None:
    await store.tasks.submit([draft(n) for n in range(1, 6)])
    for text in ("", "state:pending"):
        ids: list[int] = []
        before: int | None = None
        for _ in range(3):
            page = await store.tasks.search(replace(parse_filter(text), limit=2, before=before))
            ids += [task.id for task in page.tasks]
            before = page.older
        assert (ids, before) == ([5, 4, 3, 2, 1], None)


async def test_a_search_stops_where_it_has_looked_enough(store: Store, world: World) -> None:
    """A short page says where to look further; a count says that there may be more."""
    await some(store)
    await many_ended(world, 100, like=3, first=100)
    first = await store.tasks.search(parse_filter("state:undone"), 50)
    assert (first.tasks, first.older) == ([], 150)
    rest = await store.tasks.search(Filter(states=("undone",), before=100), 50)
    assert ([task.id for task in rest.tasks], rest.older) == ([2], None)
    assert await store.tasks.tally(parse_filter("state:processed"), 50) == Tally(50, more=True)
    assert await store.tasks.tally(parse_filter("state:undone"), 50) == Tally(0, more=True)


async def test_a_batch_is_one_group_whatever_its_size(
    counting_store: Store, counts: Counts, world: World
) -> None:
    """Groups by correlation id, with counts by state and a sample; a task without one is a group of its own."""
    store = counting_store
    await store.tasks.submit([draft(n, correlation_id="night") for n in (1, 3, 5)])
    await store.tasks.submit([draft(2), draft(4, correlation_id="day"), draft(6)])
    scheduler = await hand(store)
    await scheduler.claim(1)
    await scheduler.commit(to_state(scheduler[1], "error"))
    first = await store.tasks.groups(parse_filter(""), sample_limit=2)
    shapes = [(group.name, group.states, group.sample) for group in first.groups]
    assert shapes == [
        (None, {"pending": 1}, (6,)), ("night", {"pending": 2, "error": 1}, (1, 5)), ("day", {"pending": 1}, (4,)), (None, {"pending": 1}, (2,)),
    ]  # fmt: skip
    assert (first.below, first.older) == (None, None)
    (night,) = (await store.tasks.groups(parse_filter("state:error"))).groups
    assert (night.name, night.states) == ("night", {"error": 1})
    pages = [await store.tasks.groups(replace(parse_filter(""), limit=3))]
    pages.append(await store.tasks.groups(replace(parse_filter(""), limit=3), pages[0].below))
    assert [[group.newest for group in page.groups] for page in pages] == [[6, 5, 4], [2]]
    assert [(page.below, page.older) for page in pages] == [(4, None), (None, None)]
    cut = await store.tasks.groups(parse_filter(""), scan_limit=3)
    assert ([group.newest for group in cut.groups], cut.older) == ([6, 5, 4], 4)
    rest = await store.tasks.groups(replace(parse_filter(""), before=cut.older), scan_limit=9)
    assert [group.newest for group in rest.groups] == [3, 2]
    costs: list[int] = []
    for first_id, count in ((100, 10), (1000, 5000)):
        await many_ended(world, count, like=3, first=first_id)
        async with world.raw() as raw:
            await raw.run(f"update {{task}} set correlation_id = 'night' where id >= {first_id}")
        await counts.reset()
        await store.tasks.groups(parse_filter(""))
        costs.append(counts.statements)
    assert costs[0] == costs[1] <= 3
    for text in (
        "correlation:night",
        "correlation:night state:error",
        "state:pending",
        "older:1h",
        "step:s1",
        "key:none*",
    ):
        page = await store.tasks.groups(parse_filter(text), scan_limit=50)
        assert all(sum(group.states.values()) for group in page.groups), text


async def test_the_values_of_an_attribute_are_groups(
    counting_store: Store, counts: Counts, world: World
) -> None:
    """As correlation ids are: each value with its counts, a task without the attribute alone, at one cost."""
    store = counting_store
    for task, labels in (
        (1, {"customer": "ada", "region": "eu"}), (2, {"customer": "bob"}), (3, {"region": "eu"}), (4, {"customer": "ada"}),
    ):  # fmt: skip
        await store.tasks.submit([draft(task, attributes=tuple(labels.items()), correlation_id="night")])
    page = await store.tasks.groups(parse_filter(""), attribute="customer")
    assert [(group.name, group.states, group.sample) for group in page.groups] == [
        ("ada", {"pending": 2}, (4, 1)), (None, {"pending": 1}, (3,)), ("bob", {"pending": 1}, (2,)),
    ]  # fmt: skip
    (eu,) = (await store.tasks.groups(parse_filter("attribute:region=eu"), attribute="region")).groups
    assert (eu.name, eu.sample) == ("eu", (3, 1))
    second = await store.tasks.groups(
        replace(parse_filter("state:pending"), limit=1), page.groups[0].newest, attribute="customer"
    )
    assert [group.newest for group in second.groups] == [3]
    nobody = await store.tasks.groups(parse_filter("step:s1"), scan_limit=3, attribute="nothing")
    assert [group.name for group in nobody.groups] == [None, None, None]
    assert await store.tasks.attribute_names([1, 2, 3]) == ["customer", "region"]
    assert await store.tasks.attribute_names([1, 2, 3], 1) == ["customer"]
    assert await store.tasks.attribute_names([]) == []
    costs: list[int] = []
    for first_id, count in ((100, 10), (1000, 2000)):
        await many_ended(world, count, like=3, first=first_id)
        async with world.raw() as raw:
            await raw.run(
                f"insert into {{attribute}} (task, name, value) select id, 'customer', 'ada' from {{task}} where id >= {first_id}"
            )
        await counts.reset()
        await store.tasks.groups(parse_filter(""), attribute="customer")
        costs.append(counts.statements)
    assert costs[0] == costs[1] <= 3


async def test_keys_lead_to_the_tasks_that_have_them(store: Store) -> None:
    """Of one workflow of one app; a key of another, or of nobody, leads nowhere."""
    await store.tasks.submit([draft(1, key="a"), draft(2, key="b"), draft(3, key="c", workflow="sell")])
    app, workflow = (await store.tasks.find(parse_filter("key:a")))[0].app, "place_order"
    assert await store.tasks.ids_by_key(app, workflow, ["a", "b", "c", "d"]) == {"a": 1, "b": 2}
    assert await store.tasks.ids_by_key("another", workflow, ["a"]) == {}
    assert await store.tasks.ids_by_key(app, workflow, []) == {}


async def test_what_has_not_ended_is_found_below_any_number_of_ended_tasks(
    store: Store, world: World
) -> None:
    await some(store)
    await many_ended(world, 100, like=3, first=100)
    for text, matches in (("state:error", [1]), ("state:pending,processing,undoing", [6, 5, 4])):
        page = await store.tasks.search(parse_filter(text), 50)
        assert ([task.id for task in page.tasks], page.older) == (matches, None)
        assert await store.tasks.tally(parse_filter(text), 50) == Tally(len(matches))
    assert (await store.tasks.tally_unended(50)).states == {"error": 1, "pending": 2, "processing": 1}
    overfull = await store.tasks.tally_unended(2)
    assert (sum(overfull.states.values()), overfull.more) == (2, True)
    assert await store.tasks.lately(3600.0, 50) == ({"processed": 50}, True)
    assert (await store.tasks.lately(3600.0, 1000))[0]["processed"] == 101


async def test_what_services_ask_to_wait_for_is_counted_by_its_first_line(store: Store) -> None:
    scheduler = await running(store, 1, 2, 3, 4)
    for task, error in (
        (1, "nobody has answered yet\nsee X"),
        (2, "nobody has answered yet"),
        (3, "busy"),
        (4, None),
    ):
        memory = scheduler[task]
        step = with_fields(memory.steps[0], state="ready", doing=None, waiting=True, error=error)
        decision = OpenDecision(
            memory.task, memory.task, steps={0: step}, timers={0: 60.0}, used_requests=[(0, 1)]
        )
        await scheduler.commit(decision)
    assert await store.tasks.waits() == {"nobody has answered yet": 2, "busy": 1}
    assert await store.tasks.progress([1, 2, 99]) == {1: (0, 0, 3), 2: (0, 0, 3)}


async def test_steps_of_a_list_say_what_is_in_flight(store: Store) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(begin(scheduler[1], 1, done(scheduler[1], 0)))
    await store.tasks.submit([draft(2)])
    briefs = await store.tasks.briefs([1, 2, 3])
    assert {task: [step.state for step in steps] for task, steps in briefs.items()} == {
        1: ["done", "running", "waiting"], 2: ["waiting"] * 3, 3: [],
    }  # fmt: skip
    step = briefs[1][1]
    assert (step.name, step.agent, step.attempt, step.doing, step.taken_by) == (
        "s1",
        "payments",
        1,
        "do",
        None,
    )
    assert {agent: count for agent, (count, _) in (await store.nodes.waiting()).items()} == {
        "shop/payments": 1
    }


async def test_the_size_of_each_table_is_looked_at_to_a_limit(store: Store) -> None:
    await store.tasks.submit([draft(n) for n in range(1, 4)])
    sizes = await store.admin.sizes(2)
    assert (sizes["task"], sizes["request"]) == (Tally(2, more=True), Tally(0))


async def test_ended_tasks_cost_no_statement(counting_store: Store, counts: Counts, world: World) -> None:
    """Each read of a list costs as many statements with 100 and with 20,000 ended tasks."""
    await some(counting_store)
    costs: list[list[int]] = []
    for first, count in (
        (100, 100),
        (200, 1),
        (1000, 20_000),
    ):  # the first statements of a connection cost more
        await many_ended(world, count, like=3, first=first)
        costs.append([])
        for text in (
            "",
            "state:error",
            "state:pending",
            "state:undone",
            "k3",
            "failing:yes",
            "since:1h error:card",
        ):
            for read in (counting_store.tasks.search, counting_store.tasks.tally):
                await counts.reset()
                await read(parse_filter(text))
                costs[-1].append(counts.statements)
        for look in (
            counting_store.tasks.tally_unended,
            counting_store.nodes.waiting,
            counting_store.admin.sizes,
        ):
            await counts.reset()
            await look()
            costs[-1].append(counts.statements)
    assert costs[1] == costs[2]
    assert max(costs[1]) <= 4
