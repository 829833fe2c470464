"""Many at a time: in batches, in bounded memory, each under its key."""

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.client.submission import insert
from makegood.store.records import Submission, Submitted
from makegood.store.views import Filter
from tests.actors.noop_apps import chain_app
from tests.submission.connections import World

_, CHAIN = chain_app(2)


async def test_batches_are_made_while_their_handles_are_gone_through(world: World) -> None:
    """No more than two batches of the inputs are in memory, and each batch is one commit, in the turn of its first handle."""
    numbers: list[int] = []

    def inputs() -> Iterator[str]:
        for n in range(25):
            numbers.append(n)
            yield str(n)

    async with mg.Client(world.url) as client:
        handles = []
        async for task in client.submit_many(CHAIN, inputs(), key=str, priority=3, batch=10):
            handles.append(task)
            count = len(await client.find(Filter(limit=100)))
            assert count == min(25, (len(handles) + 9) // 10 * 10)
            assert len(numbers) == min(25, count + 10)
        views = {view.id: view for view in await client.find(Filter(limit=100))}
        assert [(views[task.number].key, views[task.number].priority) for task in handles] == [
            (str(n), 3) for n in range(25)
        ]
        again = await client.submit_many(CHAIN, (str(n) for n in range(30)), key=str)
        assert [task.id for task in again[:25]] == [task.id for task in handles]
        assert [task.created for task in again] == [False] * 25 + [True] * 5


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": 7}, r"key=7: a text of up to 500"),
        ({"key": "k" * 501}, r"key='kkk.*: a text of up to 500"),
        ({"key": ""}, r"key='': a text that is not empty"),
        ({"correlation_id": 7}, r"correlation_id=7: a text of up to 500"),
        ({"correlation_id": "c" * 501}, r"correlation_id='ccc.*: a text of up to 500"),
        ({"correlation_id": 7, "reply_to": "queue:web"}, r"correlation_id=7: a text"),
    ],
)
async def test_keys_and_correlation_ids_are_refused_alike_on_both_stores(
    world: World, options: dict[str, Any], why: str
) -> None:
    """By makegood, before anything is written, however they are submitted; the longest are taken."""
    async with mg.Client(world.url) as client:
        with pytest.raises(mg.ConfigError, match=why):
            await client.submit(CHAIN, "a", **options)
        many: dict[str, Any] = {
            name: value if name == "reply_to" else lambda _, value=value: value
            for name, value in options.items()
        }
        with pytest.raises(mg.ConfigError, match=why):
            await client.submit_many(CHAIN, ["a"], **many)
        assert await client.find() == []
        longest = await client.submit(CHAIN, "a", key="\U0001f980" * 500, correlation_id="\U0001f980" * 500)
        assert longest.created


async def test_plans_and_asynchronous_inputs(world: World) -> None:
    async def orders() -> AsyncIterator[str]:
        for order in ("a", "b"):
            yield order

    async with mg.Client(world.url) as client:
        tasks = await client.submit_many(CHAIN, orders(), correlation_id=lambda order: f"for {order}")
        assert {view.correlation_id for view in await client.find()} == {"for a", "for b"}
        more = await client.submit_many(CHAIN.plan(n).with_(key=n) for n in "abc")
        assert [(await task.status()).task.key for task in (*tasks, *more)] == [None, None, "a", "b", "c"]
        assert await client.submit_many(CHAIN, []) == []


async def test_what_is_wrong_with_an_input_is_raised_after_the_handles_of_the_batch_before(
    world: World,
) -> None:
    """The next batch is planned while one is written, and nobody can tell."""

    def inputs() -> Iterator[str]:
        yield from "abc"
        raise LookupError("the list ends here")

    async with mg.Client(world.url) as client:
        numbers: list[int] = []

        async def go_through() -> None:
            async for task in client.submit_many(CHAIN, inputs(), batch=2):
                numbers.append(task.number)  # noqa: PERF401 - those that came before the error

        with pytest.raises(LookupError, match="the list ends here"):
            await go_through()
        assert sorted(view.id for view in await client.find()) == sorted(numbers)
        assert len(numbers) == 2


async def test_a_batch_is_planned_while_the_one_before_is_written(world: World) -> None:
    """A write that ends only when the input after its batch was asked for does end."""
    request = asyncio.Event()

    def inputs() -> Iterator[str]:
        yield from "ab"
        request.set()
        yield "c"

    async with mg.Client(world.url) as client:
        submit = client.store.tasks.submit

        async def when_asked(drafts: Sequence[Submission]) -> list[Submitted]:
            await request.wait()
            return await submit(drafts)

        client.store.tasks.submit = when_asked  # type: ignore[method-assign]
        assert len(await client.submit_many(CHAIN, inputs(), batch=2)) == 3


async def test_a_conflict_is_raised_in_its_turn_and_the_call_may_be_repeated(world: World) -> None:
    async with mg.Client(world.url) as client:
        first = await client.submit(CHAIN, "other", key="1")
        many = aiter(client.submit_many(CHAIN, ["0", "1", "2"], key=str))
        assert (await anext(many)).created
        with pytest.raises(mg.KeyConflict) as error:
            await anext(many)
        assert error.value.task_id == first.id
        (task,) = await client.submit_many(CHAIN, ["2"], key=str)
        assert not task.created, "the rest of the batch was submitted"


def test_blocking_code_has_the_same(world: World) -> None:
    with mg.SyncClient(world.url) as client:
        tasks = list(client.submit_many(CHAIN, map(str, range(25)), key=str, batch=10))
        assert [task.status().task.key for task in tasks] == [str(n) for n in range(25)]
        with pytest.raises(mg.KeyConflict):
            list(client.submit_many((CHAIN.plan("x") for _ in range(1)), key=lambda _: "3"))


async def test_what_nobody_goes_through_says_that_nothing_was_submitted(world: World) -> None:
    async with mg.Client(world.url) as client:
        with pytest.warns(RuntimeWarning, match="nothing was submitted"):  # noqa: PT031 - it is told by the collector
            client.submit_many(CHAIN, ["a"])
            gc.collect()
        assert await client.find() == []


async def test_misuse_is_refused_with_the_remedy(world: World) -> None:
    async with mg.Client(world.url) as client:
        wrong: dict[str, Any] = {"key": "order-1"}
        with pytest.raises(mg.ConfigError, match="a plain function of the input"):
            client.submit_many(CHAIN, ["a"], **wrong)
        with pytest.raises(mg.ConfigError, match="batch=0"):
            client.submit_many(CHAIN, ["a"], batch=0)
        with pytest.raises(mg.DefinitionError, match="or a Plan, not list"):
            await client.submit_many(["a"])  # type: ignore[arg-type]  # wrong on purpose
        assert await client.find() == []


async def test_big_inputs_make_small_batches(world: World) -> None:
    """What a commit carries is bounded in bytes, too."""
    async with mg.Client(world.url) as client:
        many = aiter(client.submit_many(CHAIN, ("x" * 500_000 for _ in range(12))))
        await anext(many)
        assert len(await client.find()) == 9
        await many.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_an_id_that_was_taken_is_drawn_anew_for_that_task_only() -> None:
    batches: list[list[int]] = []
    numbers = iter(range(10))

    async def write(drafts: Any) -> list[Submitted]:
        ids = [draft.id for draft in drafts if isinstance(draft, Submission)]
        batches.append(ids)
        return [Submitted(id_, is_new=id_ != 1, key_collision=id_ == 1) for id_ in ids]

    answers = await insert([CHAIN.plan(n) for n in "abc"], lambda: next(numbers), write)
    assert batches == [[0, 1, 2], [3]]
    assert [answer.id for answer in answers] == [0, 3, 2]


def test_a_url_with_a_place_of_its_own(tmp_path: Path) -> None:
    """A client that nobody uses opens nothing, whatever is prepared with it."""
    client = mg.SyncClient(f"sqlite:///{tmp_path / 'none.db'}")
    with pytest.warns(RuntimeWarning, match=r"nothing was submitted: write `list\("):  # noqa: PT031 - as above
        client.submit_many(CHAIN, ["a"])
        gc.collect()
    assert list(tmp_path.iterdir()) == []


@dataclass
class Order:
    """As it was."""

    id: str


@dataclass
class GrownOrder:
    """With one more field."""

    id: str
    gift: bool = False


def taking(kind: type) -> Any:
    """Return the workflow for one kind of order."""
    app = mg.App("shop")

    def buy(order: Any) -> None: ...

    buy.__annotations__ = {"order": kind, "return": None}
    return app.workflow()(buy)


async def test_a_field_that_came_with_a_deploy_makes_no_other_inputs(world: World) -> None:
    """A caller that repeats its call across the deploy gets its task, from old code and new; another value of the field is a conflict."""
    old, new = taking(Order), taking(GrownOrder)
    async with mg.Client(world.url) as client:
        first = await client.submit(old, Order("1"), key="k")
        (again,) = await client.submit_many(new, [GrownOrder("1")], key=lambda _: "k")
        assert (again.id, again.created) == (first.id, False)
        with pytest.raises(
            mg.KeyConflict, match=r"with other inputs \(order.gift: False was submitted, now True\)"
        ):
            await client.submit(new, GrownOrder("1", gift=True), key="k")
        later = await client.submit(new, GrownOrder("2"), key="l")
        again = await client.submit(old, Order("2"), key="l")
        assert (again.id, again.created) == (later.id, False)


@pytest.mark.parametrize(
    "options",
    [{"priority": "high"}, {"notes": "yes"}, {"reply_to": 5}, {"batch": "x"}, {"key": 5}, {"attribut": {}}],
    ids=lambda options: next(iter(options)),
)
async def test_blocking_clients_refuse_the_same_options_in_the_same_words(
    world: World, options: dict[str, Any]
) -> None:
    texts: set[str] = set()
    async with mg.Client(world.url) as client:
        with pytest.raises(mg.ConfigError) as refusal:
            client.submit_many(CHAIN, ["a"], **options)
        texts.add(str(refusal.value))
    with mg.SyncClient(world.url) as blocking:
        with pytest.raises(mg.ConfigError) as refusal:
            blocking.submit_many(CHAIN, ["a"], **options)
        texts.add(str(refusal.value))
    assert len(texts) == 1, texts
