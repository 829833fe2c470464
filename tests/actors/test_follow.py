"""Batches by the client: attributes are submitted in every way, and a batch is followed until all its tasks have ended."""

import asyncio
from typing import Any

import pytest

import makegood as mg
from makegood.client.client import Client
from makegood.client.sync import SyncClient
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.views import Filter
from makegood.story.batch_progress import BatchProgress
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import chain_app
from tests.clocks import AheadClock
from tests.conformance.worlds import World

NIGHT = Filter(correlation_id="night")


async def followed(client: Client, wanted: Filter = NIGHT, **options: Any) -> list[BatchProgress]:
    """Follow a batch to its end."""
    return [progress async for progress in client.follow(wanted, **options)]


async def test_attributes_are_submitted_in_every_way(store: Store) -> None:
    _, chain = chain_app(1)
    async with Client(store) as client:
        await client.submit(chain, "a", attributes={"customer": "ada", "vip": True, "n": 3})
        await client.submit(chain.plan("b").with_(attributes={"customer": "ada"}))
        many = client.submit_many(chain, ["c", "d"], attributes=lambda name: {"customer": name})
        tasks = [*await many]
        await client.submit(chain, "e")
        ada = await client.find(Filter(attributes={"customer": "ada"}))
        assert len(ada) == 2
        (first,) = await client.find(Filter(attributes={"vip": True, "n": 3}))
        detail = await client.task(first.id).status()
        assert detail.attributes == {"customer": "ada", "n": "3", "vip": "true"}
        assert [(await task.status()).attributes for task in tasks] == [{"customer": "c"}, {"customer": "d"}]


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({f"a{n}": "" for n in range(17)}, r"attributes=\{...\} has 17 names: at most 16 are allowed"),
        ({"": "a"}, r"attributes=\{'': ...\}: a name is a text of 1 to 100 characters, without ="),
        ({"a" * 101: "a"}, "a name is a text of 1 to 100"),
        ({"a=b": "c"}, "without ="),
        ({3: "c"}, r"attributes=\{3: ...\}: a name is a text"),
        ({"makegood.schedule": "c"}, "names that begin with makegood. are makegood's own"),
        ({"a": 1.5}, r"attributes=\{'a': 1.5\}: a value is a text, a whole number of 64 bits, True or False"),
        ({"a": None}, "a value is a text"),
        ({"a": 2**63}, "of 64 bits"),
        ({"a": "x" * 201}, r"attributes=\{'a': 'xxx.* has 201 characters: a value has at most 200"),
        ({"a": "\ud800"}, "texts must be Unicode without NUL or lone surrogates"),
        ([("a", "b")], r"attributes=\[\('a', 'b'\)\]: pass a mapping of names to values, or None"),
    ],
)
async def test_what_no_attribute_can_be_is_refused_early(store: Store, attributes: Any, words: str) -> None:
    _, chain = chain_app(1)
    async with Client(store) as client:
        for plan in (chain, chain.plan("a")):
            inputs = ["a"] if plan is chain else []
            with pytest.raises(mg.ConfigError, match=words):
                await client.submit(plan, *inputs, attributes=attributes)
        assert await client.find() == []


async def test_the_longest_attributes_are_kept_and_found(store: Store) -> None:
    _, chain = chain_app(1)
    attributes = {f"{n:x}" + "\U0001f980" * 99: "\U0001f980" * 200 for n in range(16)}
    async with Client(store) as client:
        task = await client.submit(chain, "a", attributes=attributes, correlation_id="\U0001f980" * 500)
        assert (await task.status()).attributes == attributes
        for wanted in (
            Filter(attributes=attributes),
            Filter(correlation_id=mg.Prefix("\U0001f980" * 499)),
            Filter(attributes={"0" + "\U0001f980" * 99: mg.Prefix("\U0001f980")}),
        ):
            assert [view.id for view in await client.find(wanted)] == [task.number]


async def test_a_batch_is_followed_until_as_many_as_expected_have_ended(store: Store) -> None:
    app, chain = chain_app(2)
    async with Node(app, store, options=QUIET) as node, Client(store, poll_every=0.02) as client:
        await node.client.submit(chain, "a", correlation_id="night")
        following = asyncio.ensure_future(followed(client, expect=3))
        await node.client.submit_many(chain, ["b", "c"], correlation_id=lambda _: "night")
        await node.client.submit(chain, "d", correlation_id="day")
        progress = await following
        assert (progress[-1].tasks, progress[-1].at_end, progress[-1].is_over) == (3, 3, True)
        assert progress[-1].text == "3 processed"
        assert [step.is_over for step in progress[:-1]] == [False] * (len(progress) - 1)
        assert await followed(client) == [progress[-1]._replace(total=0)]


async def test_a_batch_says_what_it_waits_for_when_time_is_up(store: Store) -> None:
    _, chain = chain_app(1)
    async with Client(store, poll_every=0.02) as client:
        await client.submit(chain, "a", correlation_id="night")
        with pytest.raises(mg.WaitExpiredError, match=r"1 of 2 submitted; 0 processed, 1 to go, 0 stuck"):
            await followed(client, expect=2, timeout=0.05)
        with pytest.raises(mg.WaitExpiredError, match=r"0 of 1 submitted"):
            await followed(client, Filter(correlation_id="day"), expect=1, timeout="10ms")


async def test_what_cannot_be_followed_is_refused(store: Store) -> None:
    async with Client(store) as client:
        with pytest.raises(
            mg.TaskNotFoundError, match="no task matches correlation:night; for tasks that are"
        ):
            await followed(client)
        for passing in (
            Filter(states=("pending",)),
            Filter(failing=True),
            Filter(doubt=False),
            Filter(failures=(1, 2)),
            Filter(error="card"),
        ):
            with pytest.raises(mg.ConfigError, match="is true of a task only for some time"):
                client.follow(passing)
        with pytest.raises(mg.ConfigError, match="expect=-1"):
            client.follow(NIGHT, expect=-1)


async def test_a_batch_by_age_keeps_its_tasks_while_it_is_followed(store: Store, world: World) -> None:
    """What was submitted within the hour before the call stays in the batch, however long that takes."""
    _, chain = chain_app(1)
    clock = AheadClock()
    async with Client(store, poll_every=0.02, clock=clock) as client:
        await client.submit(chain, "a")
        following = client.follow(Filter(younger=3600.0, workflow="chain"), timeout=7200.2)
        assert (await anext(following)).tasks == 1
        clock.ahead = 7200.0
        await world.elapse(7200.0)
        with pytest.raises(mg.WaitExpiredError, match="1 submitted; 0 processed, 1 to go"):
            await anext(following)


def test_blocking_code_follows_a_batch(tmp_path: Any) -> None:
    app, chain = chain_app(1)
    with mg.SyncNode(app, f"sqlite:///{tmp_path}/s.db") as node:
        for task in node.client.submit_many(
            chain, ["a", "b"], correlation_id=lambda _: "night", attributes=lambda name: {"name": name}
        ):
            assert task.created
        node.client.submit(chain, "c", attributes={"name": "c"}, correlation_id="night")
        with SyncClient(f"sqlite:///{tmp_path}/s.db") as client:
            *_, last = client.follow(NIGHT, expect=3)
            assert last.text == "3 processed"
            assert client.count(Filter(attributes={"name": "c"})) == 1
