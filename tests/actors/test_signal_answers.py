"""``signal(..., until=)``: the result of the step that a signal makes ready, on both stores with whole Nodes that never poll."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import makegood as mg
from makegood.client.client import Client
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.step_outcomes import AwaitedStep
from tests.actors.conftest import QUIET
from tests.actors.test_suspension import BOTH, asleep
from tests.actors.test_waiting_costs import idle
from tests.conformance.worlds import Counts
from tests.waiting import until


class Shop:
    """Workflows that wait for words; ``reply`` answers them. ``end``: lets it return."""

    def __init__(self) -> None:
        self.app = app = mg.App("shop")
        self.word = word = app.signal("word", str)
        self.end = asyncio.Event()
        self.end.set()
        self.calls: Counter[str] = Counter()
        desk = app.agent("desk", concurrency=100)

        @desk.action(complete_within="1m", undo=mg.NOTHING, recover=mg.Recover(threshold=0))
        async def reply(text: str) -> dict[str, int]:
            self.calls[text] += 1
            await self.end.wait()
            if text == "bad":
                raise mg.Permanent("no such word")
            return {text: len(text)}

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def count(text: str) -> int:
            return len(text)

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def names(order: str) -> list[str]:
            return order.split()

        @app.workflow
        def chat(order: str) -> dict[str, int]:
            count(order)
            return reply(mg.wait_for(word))

        @app.workflow(on_failure="hold")
        def held(order: str) -> dict[str, int]:
            return reply(mg.wait_for(word))

        @app.workflow
        def two_words(order: str) -> None:
            reply(mg.wait_for(word))
            count(mg.wait_for(word))

        @app.workflow
        def asks_each(order: str) -> list[dict[str, int]]:
            def ask(name: str) -> dict[str, int]:
                return reply(mg.wait_for(word))

            return mg.each(names(order), ask)

        @app.workflow
        def two_sides(order: str) -> None:
            mg.branches(lambda: reply(mg.wait_for(word)), lambda: count(mg.wait_for(word)))

        @app.workflow
        def maybe(order: str) -> None:
            text = mg.wait_for(word)
            mg.when(text == "yes", then=lambda: reply("yes"))
            count(text)

        self.reply, self.count = reply, count
        self.held = held
        self.chat, self.two_words, self.two_sides, self.asks_each, self.maybe = (
            chat,
            two_words,
            two_sides,
            asks_each,
            maybe,
        )


@pytest.mark.parametrize("beside", [True, False], ids=["the same process", "another process"])
async def test_a_signal_returns_the_result_of_the_step_that_it_makes_ready(
    store: Store, other: Store, beside: bool
) -> None:
    shop = Shop()
    async with (
        Node(shop.app, store, roles=BOTH, options=QUIET),
        Client(store if beside else other, poll_every="1h") as client,
        asyncio.timeout(60),
    ):
        open_task = await client.submit(shop.two_words, "a")  # it does not end with this answer
        assert await client.signal(open_task, shop.word, "hello", until="reply") == {"hello": 5}
        await client.submit(shop.chat, "b", key="b")
        answer = await client.signal(shop.chat, shop.word, "hi", key="b", until=shop.reply)
        assert answer == {"hi": 2}


async def test_the_same_id_waits_again_for_the_same_answer(store: Store) -> None:
    shop = Shop()
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.chat, "a", key="a")
        shop.end.clear()
        with pytest.raises(
            mg.WaitExpiredError, match=r"The signal is sent, and the task continues.*id='m-1'"
        ):
            await task.signal(shop.word, "hello", id="m-1", until=shop.reply, timeout="50ms")
        shop.end.set()
        for _ in range(2):  # while it runs, and after its end
            answer = await node.client.signal(
                shop.chat, shop.word, "hello", key="a", id="m-1", until=shop.reply, timeout="60s"
            )
            assert answer == {"hello": 5}
            await task.wait("60s")
        with pytest.raises(mg.SignalRefused, match="of the id 'm-1' with another value"):
            await task.signal(shop.word, "other", id="m-1", until="reply")
    assert shop.calls == {"hello": 1}


async def test_of_two_waits_each_signal_gets_its_own_answer(store: Store) -> None:
    """A step that was done before is not the answer to a later signal."""
    shop = Shop()
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.two_words, "a")
        assert await task.signal(shop.word, "one", until="reply", timeout="60s") == {"one": 3}
        with pytest.raises(
            mg.StepFailedError, match="another wait used this signal, and the step is done"
        ) as wrong:
            await task.signal(shop.word, "second", until="reply", timeout="60s")
        assert (wrong.value.step, wrong.value.state) == ("reply", "done")
        await task.wait("60s")
        assert [(s.name, s.result) for s in (await task.status()).steps if s.name == "count"] == [
            ("count", b"6")
        ]


async def test_a_signal_that_another_wait_used_ends_the_waiting(store: Store) -> None:
    """The step is under way and waits for another signal, which may never come; the error names the way to it."""
    shop = Shop()
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.two_sides, "a")
        await asleep(node)
        detail = await task.status()
        _, second = (step.name for step in detail.steps if step.kind == "wait_for")
        with pytest.raises(mg.StepFailedError, match=f"another wait used .* step='{second}'") as wrong:
            await task.signal(shop.word, "one", until="count", timeout="60s")
        assert (wrong.value.step, wrong.value.state) == ("count", "waiting")
        assert await task.signal(shop.word, "three", step=second, until="count", timeout="60s") == 5
        await task.wait("60s")


async def test_an_item_of_an_each_is_awaited_before_the_list_is_known(store: Store) -> None:
    shop = Shop()
    async with Client(store, poll_every="1h") as client:
        task = await client.submit(shop.asks_each, "a b c")
        waiting = [
            asyncio.create_task(task.signal(shop.word, str(n), step=f"word[{n}]", until=f"reply[{n}]"))
            for n in (1, 3)
        ]
        async with Node(shop.app, store, roles=BOTH, options=QUIET), asyncio.timeout(60):
            assert await waiting[0] == {"1": 1}
            assert await task.signal(shop.word, "0", step="word[0]", until="reply[0]") == {"0": 1}
            await task.signal(shop.word, "2", step="word[2]")
            with pytest.raises(mg.StepFailedError, match=r"step reply\[3\] .* has no result"):
                await waiting[1]


WITHOUT = [("chat", "bad", "failed", "no such word"), ("maybe", "no", "skipped", "the step is skipped")]


@pytest.mark.parametrize(("workflow", "value", "state", "text"), WITHOUT)
async def test_a_step_without_a_result_raises(
    store: Store, workflow: str, value: str, state: str, text: str
) -> None:
    shop = Shop()
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(getattr(shop, workflow), "a")
        with pytest.raises(mg.StepFailedError, match=text) as error:
            await task.signal(shop.word, value, until="reply", timeout="60s")
    assert (error.value.task_id, error.value.step, error.value.state) == (task.id, "reply", state)


async def test_a_cancelled_task_ends_the_waiting(store: Store) -> None:
    shop = Shop()
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.two_words, "a")
        waiting = asyncio.create_task(task.signal(shop.word, "one", until="count"))

        async def is_used() -> bool:
            return any(view.used for view in (await task.status()).signals)

        await until(is_used, "the signal to be used")
        await task.cancel()
        with pytest.raises(mg.StepFailedError, match=r"the task is undo(ing|ne)"):
            await asyncio.wait_for(waiting, 60)


async def test_the_answer_of_a_resubmission_is_that_of_its_round(store: Store) -> None:
    """Of a task that was held: its wait is over, and the signal used."""
    shop = Shop()
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.held, "a")
        with pytest.raises(mg.StepFailedError, match=r"the step is failed .*; the task is error"):
            await task.signal(shop.word, "bad", id="m", until="reply", timeout="60s")
        await task.resubmit(step="reply", inputs={"text": "good"})
        assert await task.signal(shop.word, "bad", id="m", until="reply", timeout="60s") == {"good": 4}


async def test_a_task_that_was_undone_waits_for_another_signal(store: Store) -> None:
    shop = Shop()
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.chat, "a")
        with pytest.raises(mg.StepFailedError, match="no such word"):
            await task.signal(shop.word, "bad", id="m-1", until="reply", timeout="60s")
        await task.wait("60s")
        await task.resubmit()
        with pytest.raises(mg.StepFailedError, match="began again: send another one"):
            await task.signal(shop.word, "bad", id="m-1", until="reply", timeout="60s")
        assert await task.signal(shop.word, "good", id="m-2", until="reply", timeout="60s") == {"good": 4}
        with pytest.raises(mg.StepFailedError, match="began again: send another one"):
            await task.signal(shop.word, "bad", id="m-1", until="reply", timeout="60s")


async def test_what_cannot_be_the_answer_is_refused_before_the_signal_is_sent(store: Store) -> None:
    shop = Shop()
    async with Client(store) as client:
        chat, two = await client.submit(shop.chat, "a"), await client.submit(shop.two_words, "b")
        with pytest.raises(
            mg.ConfigError, match=r"'count': in task .* does not come after a wait for the signal 'word'"
        ):
            await chat.signal(shop.word, "x", until="count")
        with pytest.raises(mg.TaskNotFoundError, match="has no step 'repply'; it has count, word, reply"):
            await chat.signal(shop.word, "x", until="repply")
        with pytest.raises(mg.TaskNotFoundError, match=r"has no step 'reply\[3\]'"):
            await chat.signal(shop.word, "x", until="reply[3]")
        with pytest.raises(mg.ConfigError, match=r"reply comes after word, .* pass step=.word., or leave"):
            await chat.signal(shop.word, "x", step="word-9", until="reply")
        with pytest.raises(mg.TaskNotFoundError, match="has the key 'none'"):
            await client.signal(shop.chat, shop.word, "x", key="none", until="reply")
        untyped: Any = two
        with pytest.raises(mg.ConfigError, match=r"until= waits for a step.*commit"):
            await untyped.signal(shop.word, "x", until="reply", connection=object())
        with pytest.raises(mg.ConfigError, match="timeout= goes with until="):
            await untyped.signal(shop.word, "x", timeout="1s")
        for task in (chat, two):
            assert (await task.status()).signals == ()


@contextmanager
def counted_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the reads of awaited steps, by how many each reads."""
    sizes: list[int] = []
    true = store.tasks.step_outcomes

    async def step_outcomes(steps: list[AwaitedStep]) -> Any:
        sizes.append(len(steps))
        return await true(steps)

    with monkeypatch.context() as patch:
        patch.setattr(store.tasks, "step_outcomes", step_outcomes)
        yield sizes


async def test_many_callers_share_the_reads_and_no_read_happens_without_news(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 callers: at most one read for each commit that ends steps, none while nothing happens, and none without callers."""
    shop = Shop()
    shop.end.clear()
    async with Node(shop.app, store, roles=BOTH, options=QUIET), Client(store, poll_every="1h") as client:
        with counted_reads(store, monkeypatch) as sizes:
            tasks = [await client.submit(shop.chat, str(n)) for n in range(100)]
            waiting = [asyncio.create_task(t.signal(shop.word, "hello", until="reply")) for t in tasks]

            async def all_run() -> bool:
                return shop.calls["hello"] == 100

            await until(all_run, "all steps to run")
            assert max(sizes) > 1, "they are read together"
            quiet = len(sizes)
            await asyncio.gather(*[t.status() for t in tasks])
            assert len(sizes) <= quiet + 1, "nothing is read while nothing happens"
            shop.end.set()
            async with asyncio.timeout(60):
                assert await asyncio.gather(*waiting) == [{"hello": 5}] * 100
            read = len(sizes)
            assert read <= 100, "far fewer reads than callers and commits"
            other = await client.submit(shop.chat, "other")
            await other.signal(shop.word, "hello")
            await other.wait("60s")
            assert len(sizes) == read, "nobody waits for a step"


async def test_a_wait_costs_one_read_of_the_task_and_no_commit(counting_store: Store, counts: Counts) -> None:
    shop = Shop()
    async with Node(shop.app, counting_store, roles=BOTH, options=QUIET) as node:
        for round_ in range(2):
            task = await node.client.submit(shop.chat, "a")
            await asleep(node)
            await idle(node)
            await counts.reset()
            if round_:
                await task.signal(shop.word, "hello", until="reply", timeout="60s")
            else:
                await task.signal(shop.word, "hello")
            await task.wait("60s")
            commits = await counts.commits()
            assert commits == 2, "the end of the wait, the end of the step"
