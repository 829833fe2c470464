"""A task submitted beside a Scheduler is held by it from the beginning, and whatever becomes of the caller it ends."""

import asyncio
from collections.abc import Sequence

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.records import Submission, Submitted
from makegood.store.views import Filter
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import chain_app
from tests.conformance.worlds import eventually

BOTH = ("scheduler", "agent")


async def test_it_never_waits_to_be_claimed(store: Store) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        first = await node.client.submit(chain, "x")  # the Scheduler may not have looked for others yet
        await first.result(timeout="60s")
        task = await node.client.submit(chain, "y")
        view = (await task.status()).task
        assert (view.locked_by, view.epoch) == (node.number, 1) or view.state == "processed"
        assert await task.result(timeout="60s") == "y"


async def test_a_caller_that_is_cancelled_leaves_no_task_that_nobody_advances(store: Store) -> None:
    """The row may be written all the same; then the Scheduler must know of it, or it would hold it for ever."""
    app, chain = chain_app(2)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        await (await node.client.submit(chain, "warm")).result(timeout="60s")
        for turns in range(6):
            calls = [asyncio.create_task(node.client.submit(chain, f"{turns}-{n}")) for n in range(20)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        last = await node.client.submit(chain, "last")  # written after all the others
        await last.result(timeout="60s")
        views = await node.client.find(Filter(limit=1000))
        for view in views:
            await node.client.task(view.id).result(timeout="60s")
        assert len(views) > 2, "some were written, or this shows nothing"


async def test_a_full_scheduler_leaves_it_to_be_claimed_and_all_end(store: Store) -> None:
    app, chain = chain_app(3)
    options = Options(heartbeat="1h", dead_after="3h", poll_every=None, drain="1s", max_tasks=3)
    async with Node(app, store, roles=BOTH, options=options) as node:
        tasks = await asyncio.gather(*(node.client.submit(chain, f"{n}") for n in range(40)))
        assert node._scheduler is not None
        assert node._scheduler.count() <= 3
        assert [await task.result(timeout="60s") for task in tasks] == [f"{n}" for n in range(40)]


async def test_a_cancel_that_comes_at_once_is_obeyed(store: Store) -> None:
    app, desk_go = mg.App("shop"), asyncio.Event()
    desk = app.agent("desk")

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def slow(order: str) -> str:
        await desk_go.wait()
        return order

    @app.workflow()
    def flow(order: str) -> str:
        return slow(slow(order))

    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        tasks = [await node.client.submit(flow, f"{n}") for n in range(5)]
        answers = await asyncio.gather(*(task.cancel(timeout="2m") for task in tasks))
        assert {answer.verdict for answer in answers} == {"applied"}
        desk_go.set()
        for task in tasks:
            with pytest.raises(mg.TaskUndone):
                await task.result(timeout="60s")


async def test_it_ends_although_the_submission_of_another_fails(store: Store) -> None:
    """What the store refuses is told to its caller alone, and leaves no place taken in the Scheduler."""
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        await (await node.client.submit(chain, "warm", key="k")).result(timeout="60s")
        for n in range(3):
            with pytest.raises(mg.KeyConflict):
                await node.client.submit(chain, f"other {n}", key="k")
        again = await node.client.submit(chain, "warm", key="k")
        assert not again.created
        assert await again.result(timeout="60s") == "warm"
        assert node._scheduler is not None
        await eventually(node._scheduler.idle, "no place to be taken")


async def test_of_several_submitted_at_once_only_the_one_that_is_refused_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share one call of the store: a text that is no Unicode must not cost the others their place."""
    monkeypatch.setattr("makegood.base.text.refuse_unstorable", lambda *_, **__: None)  # left to the store
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        await (await node.client.submit(chain, "warm")).result(timeout="60s")
        keys = ["a", "\ud800", "c"]
        calls = [node.client.submit(chain, f"{n}", key=key) for n, key in enumerate(keys)]
        first, guilty, last = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(guilty, mg.PayloadError)
        for task, result in ((first, "0"), (last, "2")):
            assert isinstance(task, mg.TaskHandle)
            assert await task.result(timeout="60s") == result
        assert node._scheduler is not None
        await eventually(node._scheduler.idle, "no place to be taken")


async def test_many_submitted_at_once_share_few_calls_of_the_store(store: Store) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        await (await node.client.submit(chain, "warm")).result(timeout="60s")
        calls, submit = [], node.client.store.tasks.submit

        async def counted(drafts: Sequence[Submission]) -> list[Submitted]:
            calls.append(len(drafts))
            return await submit(drafts)

        node.client.store.tasks.submit = counted  # type: ignore[method-assign]
        tasks = await asyncio.gather(*(node.client.submit(chain, f"{n}") for n in range(1200)))
        assert calls == [250, 250, 250, 250, 200]
        assert [await task.result(timeout="60s") for task in tasks] == [f"{n}" for n in range(1200)]
