"""Batches: tasks are found by their correlation id, the beginning of their key and their attributes, whatever else there is."""

from typing import Any

import pytest

from makegood.store.filters import parse_filter
from makegood.store.protocol import Store
from makegood.store.views import Filter, Tally
from tests.conformance.builders import done, draft, running, to_state
from tests.conformance.ended import many_ended
from tests.conformance.test_counts import MOST_STATEMENTS
from tests.conformance.worlds import Counts, World

NIGHT = "2026-11-28"
ADA = (("customer", "ada"), ("vip", "true"))


async def a_night(store: Store, first: int = 1) -> None:
    """Submit six tasks, four of them of one night."""
    keys = (f"{NIGHT}/a", f"{NIGHT}/b", f"{NIGHT}/*", f"{NIGHT}\U0010ffff", "2026-11-29/a", f"{NIGHT}-")
    attributes: tuple[Any, ...] = (ADA, ADA[:1], (("customer", "adam"),), (), (("customer", "a*"),), ())
    await store.tasks.submit(
        [
            draft(first + n, key=key, correlation_id=NIGHT if n < 4 else "night*", attributes=pairs)
            for n, (key, pairs) in enumerate(zip(keys, attributes, strict=True))
        ]
    )


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (f"correlation:{NIGHT}", [4, 3, 2, 1]),
        ("correlation:2026-*", [4, 3, 2, 1]),
        ("correlation:'night*'", [6, 5]),
        ("correlation:night*", [6, 5]),
        ("correlation:night", []),
        (f"key:{NIGHT}/*", [3, 2, 1]),
        (f"{NIGHT}/*", [3, 2, 1]),
        (f"key:'{NIGHT}/*'", [3]),
        (f"'{NIGHT}/*'", [3]),
        (f"key:{NIGHT}*", [6, 4, 3, 2, 1]),
        (f"key:{NIGHT}/a", [1]),
        ("attribute:customer=ada", [2, 1]),
        ("attribute:customer=ada*", [3, 2, 1]),
        ("attribute:customer='a*'", [5]),
        ("attribute:customer=ada attribute:vip=true", [1]),
        ("attribute:vip=false", []),
        ("attribute:city=ulm", []),
        (f"correlation:{NIGHT} attribute:customer=adam state:pending", [3]),
        (f"correlation:{NIGHT} key:{NIGHT}/* since:1h app:shop", [3, 2, 1]),
    ],
)
async def test_a_filter_names_a_batch(store: Store, text: str, ids: list[int]) -> None:
    await a_night(store)
    page = await store.tasks.search(parse_filter(text))
    assert ([task.id for task in page.tasks], page.older) == (ids, None)
    assert await store.tasks.tally(parse_filter(text)) == Tally(len(ids))
    assert await store.tasks.states(parse_filter(text)) == ({"pending": len(ids)} if ids else {})


async def test_values_that_are_no_texts_are_found_as_they_were_given(store: Store) -> None:
    await store.tasks.submit([draft(1, attributes=(("tries", "3"), ("vip", "true")))])
    for attributes in ({"tries": 3}, {"vip": True}, {"tries": "3"}):
        assert [task.id for task in await store.tasks.find(Filter(attributes=attributes))] == [1]


async def test_a_task_shows_its_attributes(store: Store) -> None:
    await a_night(store)
    for task, attributes in ((1, dict(ADA)), (4, {})):
        detail, excerpt = await store.tasks.detail(task), await store.tasks.excerpt(task)
        assert detail is not None
        assert excerpt is not None
        assert detail.attributes == excerpt.detail.attributes == attributes


async def test_a_key_that_is_taken_keeps_its_attributes(store: Store) -> None:
    await store.tasks.submit([draft(1, key="k", attributes=ADA)])
    (answer,) = await store.tasks.submit([draft(2, key="k", attributes=(("customer", "bob"),))])
    assert (answer.id, answer.is_new) == (1, False)
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert detail.attributes == dict(ADA)
    assert (await store.admin.schema()).rows["attribute"] == 2


async def test_attributes_go_with_their_task(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    await store.tasks.submit([draft(2, attributes=ADA)])
    await scheduler.claim(1)
    for task in (1, 2):
        await scheduler.commit(to_state(scheduler[task], "processed", done(scheduler[task]), result=b"1"))
    await world.elapse(100.0)
    assert (await store.admin.prune(50.0, 0, 100)).removals == 2
    assert (await store.admin.schema()).rows["attribute"] == 0


async def test_attributes_share_the_commit_of_their_tasks_and_at_most_one_statement(
    counting_store: Store, counts: Counts
) -> None:
    """None for tasks without them."""
    statements = []
    first = 1
    for attributes, count in (((), 1), (ADA, 1), (ADA, 500)):
        await counts.reset()
        await counting_store.tasks.submit([draft(first + n, attributes=attributes) for n in range(count)])
        assert await counts.commits() == 1
        statements.append(counts.statements)
        first += count
    assert statements[1] == statements[2] <= min(statements[0] + 1, MOST_STATEMENTS)


@pytest.mark.parametrize(
    "text", [f"correlation:{NIGHT}", f"key:{NIGHT}/*", "attribute:customer=ada", "attribute:customer=ada*"]
)
async def test_a_batch_costs_as_many_statements_beside_many_tasks(
    counting_store: Store, counts: Counts, world: World, text: str
) -> None:
    await a_night(counting_store, first=10_001)
    await counting_store.tasks.search(parse_filter(""))  # opens its connection
    numbers = []
    for start in (1, 20_001):
        await counts.reset()
        page = await counting_store.tasks.search(parse_filter(text), 50)
        assert await counting_store.tasks.tally(parse_filter(text), 50) == Tally(len(page.tasks))
        numbers.append((counts.statements, len(page.tasks), page.older))
        await many_ended(world, 200, like=10_006, first=start)
    assert numbers[0] == numbers[1]
    assert numbers[0][1] >= 2
