"""Signals that the Scheduler of the sender's process writes with the Decision that uses them, whether it holds the task or claims it for
the signal; and all that leaves them to the store.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import makegood as mg
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.model.messages import Act, TaskMessage
from makegood.node.node import Node
from makegood.scheduler.scheduler import Scheduler
from makegood.store.protocol import Store
from makegood.store.records import Batch, Claim, Committed
from makegood.store.signals import OutgoingSignal, Signalled
from tests.actors.conftest import QUIET
from tests.actors.test_suspension import BOTH
from tests.actors.test_waiting_costs import Shop, waits
from tests.conformance.worlds import Counts, World, eventually

HELD = replace(QUIET, linger=1e9)
both_states = pytest.mark.parametrize("is_held", [True, False], ids=["held", "asleep"])


@dataclass
class Desk:
    """A Node that holds a task which waits, or has let it go. ``sent``: the signals that went through the store; ``commits``: what is done before the
    next commits, one each.
    """

    shop: Shop
    node: Node
    task: mg.TaskHandle[str]
    sent: list[str] = field(default_factory=list)
    commits: list[Callable[[Batch], Awaitable[None]]] = field(default_factory=list)

    @property
    def scheduler(self) -> Scheduler:
        """The Node's Scheduler."""
        assert self.node._scheduler is not None
        return self.node._scheduler

    async def send(self, **options: Any) -> Signalled:
        """Send the approval."""
        receipt: Signalled = await self.task.signal(self.shop.approval, True, **options)
        return receipt

    async def end(self) -> None:
        """Wait for the task's end."""
        self.shop.end.set()
        assert await self.task.result(timeout="60s") == "a"


@asynccontextmanager
async def opened(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, is_held: bool = True
) -> AsyncIterator[Desk]:
    """Yield a desk."""
    shop = Shop()
    shop.end.set()
    async with Node(shop.app, store, roles=BOTH, options=HELD if is_held else QUIET) as node:
        desk = Desk(shop, node, await node.client.submit(shop.approved, "a", key="k"))
        await waits(desk.task)
        tasks, claims = desk.scheduler.tasks, desk.scheduler.turns.claims
        if is_held:
            await eventually(
                lambda: desk.task.number in tasks.in_memory and not tasks.messages, "its memory to follow"
            )
            await eventually(lambda: tasks.in_memory[desk.task.number].steps[0].waiting, "its wait to begin")
        else:
            await eventually(lambda: not tasks.in_memory and claims.is_idle, "its Scheduler to let it go")
        signal, commit = store.tasks.signal, store.tasks.commit

        async def signalling(signal_: OutgoingSignal, act: Act | None = None) -> Signalled:
            desk.sent.append(signal_.id)
            return await signal(signal_, act)

        async def committing(batch: Batch) -> Committed:
            is_eager = batch.claim is not None and batch.claim.eager is not None
            if desk.commits and (is_eager or any(d.new_signal for d in batch.decisions)):
                await desk.commits.pop(0)(batch)
            return await commit(batch)

        monkeypatch.setattr(store.tasks, "signal", signalling)
        monkeypatch.setattr(store.tasks, "commit", committing)
        yield desk


@both_states
async def test_it_leaves_what_a_signal_through_the_store_leaves(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    async with opened(store, monkeypatch, is_held=is_held) as desk:
        assert await desk.send(id="a") == Signalled("a", created=True, task=desk.task.id)
        await desk.end()
        (view,) = (await desk.task.status()).signals
        assert (view.name, view.id, view.used, view.kept) == ("approval", "a", "approval", False)
        assert view.used_at is not None
        assert desk.sent == []
        assert await desk.send(id="a") == Signalled("a", created=False, task=desk.task.id)
        conflict = await desk.task.signal(desk.shop.approval, False, id="a")
        assert (conflict.created, conflict.conflict) == (False, True)
        assert desk.sent == ["a", "a"]
    assert await world.rows("select 1 from {inbox}") == []


Arrange = Callable[[Desk], Awaitable[dict[str, Any]]]


async def _operator(_: Desk) -> dict[str, Any]:
    return {"who": "boss"}


async def _for_a_later_step(_: Desk) -> dict[str, Any]:
    return {"step": "approval-2"}


async def _behind_a_message_in_memory(desk: Desk) -> dict[str, Any]:
    desk.scheduler.tasks.messages[desk.task.number] = [TaskMessage("retry", 1)]
    return {}


async def _to_be_read_again(desk: Desk) -> dict[str, Any]:
    desk.scheduler.tasks.reload.add(desk.task.number)
    return {}


async def _by_a_scheduler_that_stops(desk: Desk) -> dict[str, Any]:
    desk.scheduler.signals.close()
    return {}


@pytest.mark.parametrize(
    "arrange",
    [
        _operator, _for_a_later_step, _behind_a_message_in_memory, _to_be_read_again,
        _by_a_scheduler_that_stops,
    ],
)  # fmt: skip
async def test_what_is_not_simple_goes_through_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch, arrange: Arrange
) -> None:
    async with opened(store, monkeypatch) as desk:
        options = await arrange(desk)
        assert (await desk.send(id="a", **options)).created
        assert desk.sent == ["a"]
        if "step" in options:
            scheduler = desk.scheduler
            held_task = scheduler.tasks.in_memory[desk.task.number]
            await eventually(lambda: len(held_task.signals) == 1, "it to be kept")
            await desk.send(id="b")
            assert desk.sent == ["a"], "the next one is for the step that waits"
        await desk.end()


@both_states
async def test_by_key_and_of_another_name_or_value_it_goes_through_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    async with opened(store, monkeypatch, is_held=is_held) as desk:
        for name, value in (("payment", True), ("approval", 7)):
            with pytest.raises(mg.SignalRefused):
                await desk.task.signal(name, value, id=name)
        await desk.node.client.signal(desk.shop.approved, desk.shop.approval, True, key="k", id="a")
        assert desk.sent == ["payment", "approval", "a"]
        await desk.end()


@both_states
async def test_a_commit_that_is_refused_leaves_it_to_the_store(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """Another process has just sent the same one, or something else that is read first."""
    async with opened(store, monkeypatch, is_held=is_held) as desk:

        async def send_the_same(_: Batch) -> None:
            await desk.send(id="a", who="boss")

        desk.commits.append(send_the_same)
        assert not (await desk.send(id="a")).created
        assert desk.sent == ["a", "a"]
        await desk.end()
        assert await world.rows("select who, used from {signal}") == [("boss", 0)]
        assert await world.rows("select 1 from {refusal}") == [], "nobody was fenced off"


@both_states
async def test_one_that_is_sent_while_another_is_written_goes_through_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """It is in the inbox before the other one is written, so both do, in this order."""
    async with opened(store, monkeypatch, is_held=is_held) as desk:

        async def send_another(_: Batch) -> None:
            await desk.send(id="b")

        desk.commits.append(send_another)
        assert (await desk.send(id="a")).created
        assert desk.sent == ["b", "a"]
        await desk.end()
        used = {view.id: view.used for view in (await desk.task.status()).signals}
        assert used == {"b": "approval", "a": None}


@both_states
async def test_a_message_that_came_first_is_decided_first(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    async with opened(store, monkeypatch, is_held=is_held) as desk:

        async def cancel(_: Batch) -> None:
            await store.tasks.post(desk.task.number, TaskMessage("cancel", act=Act("c", "boss")))

        desk.commits.append(cancel)
        if is_held:
            assert (await desk.send(id="a")).created
        else:  # the claim has read the cancel
            with pytest.raises(mg.SignalRefused, match="the task had ended: undone"):
                await desk.send(id="a")
        assert desk.sent == ["a"]
        assert (await desk.task.wait("60s")).state == "undone"
        assert [view.used for view in (await desk.task.status()).signals] == ([None] if is_held else [])


@pytest.mark.parametrize(
    "fault", [StoreUnavailableError("away"), ConfigError("denied"), RuntimeError("a defect")]
)
@both_states
async def test_a_commit_that_fails_leaves_it_to_the_store_and_the_scheduler_continues(
    store: Store, monkeypatch: pytest.MonkeyPatch, fault: Exception, is_held: bool
) -> None:
    """Without the right to write signals the Scheduler takes no more of them."""
    async with opened(store, monkeypatch, is_held=is_held) as desk:

        async def fail(_: Batch) -> None:
            raise fault

        desk.commits.append(fail)
        assert (await desk.send(id="a")).created
        assert desk.sent == ["a"]
        await desk.end()
        assert desk.scheduler.signals.is_open == (not isinstance(fault, ConfigError))
        assert desk.scheduler.turns.doubts.unfit == {}
        assert desk.scheduler.turns.doubts.fine or not is_held, "after a claim that failed it claims fewer"


@both_states
async def test_an_answer_that_is_lost_is_no_second_signal(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    """The commit was done, and its Scheduler does not know: the store knows the id."""
    async with opened(store, monkeypatch, is_held=is_held) as desk:
        commit = store.tasks.commit

        async def lose(batch: Batch) -> None:
            await commit(batch)
            raise StoreUnavailableError("away")

        desk.commits += [lose]
        answer = await desk.send(id="a")
        assert (answer.created, answer.conflict) == (False, False)
        assert await world.rows("select used from {signal}") == [(0,)]


async def test_a_scheduler_that_was_declared_dead_leaves_it_to_the_store(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(store, monkeypatch) as desk:
        sending = asyncio.ensure_future(desk.send(id="a"))
        await asyncio.sleep(0)  # its message waits
        assert [m.kind for m in desk.scheduler.tasks.messages[desk.task.number]] == ["signal"]
        desk.scheduler.rename(desk.scheduler.tasks.node + 1)
        assert (await sending).created
        assert desk.sent == ["a"]
        await store.tasks.post(desk.task.number, TaskMessage("cancel"))


@both_states
async def test_a_sender_that_is_cancelled_may_have_sent_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_held: bool
) -> None:
    async with opened(store, monkeypatch, is_held=is_held) as desk:
        sending = asyncio.ensure_future(desk.send(id="a"))
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await desk.end()
        assert desk.sent == []
        assert desk.scheduler.signals.drafts == {}
        assert desk.scheduler.signals.waking.draft is None


async def test_a_scheduler_whose_claims_fail_claims_for_no_signal(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim of one task that fails then would put this task to error, although the signal may be at fault."""
    async with opened(store, monkeypatch, is_held=False) as desk:
        desk.scheduler.turns.doubts.most = 1
        assert (await desk.send(id="a")).created
        assert desk.sent == ["a"]
        await desk.end()


async def test_a_look_for_tasks_that_are_due_waits_until_the_signal_is_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look comes by the clock, also between a signal and the claim for it; it is the next claim then."""
    async with opened(store, monkeypatch, is_held=False) as desk:
        turns, commit = desk.scheduler.turns, store.tasks.commit
        claims: list[Claim] = []

        def look(_: float) -> None:
            if desk.scheduler.signals.waking.draft is not None:
                desk.scheduler.wakeups.look_again()

        async def committing(batch: Batch) -> Committed:
            claims.extend(filter(None, [batch.claim]))
            return await commit(batch)

        monkeypatch.setattr(turns.claims, "fire", look)
        monkeypatch.setattr(store.tasks, "commit", committing)
        assert (await desk.send()).created
        await desk.end()
        await eventually(lambda: len(claims) > 1, "the next claim")
        for_the_signal, next_claim = claims[:2]
        assert (for_the_signal.eager, for_the_signal.limit) == (desk.task.number, 0)
        assert next_claim.limit > 0
        assert next_claim.sleepers
        assert next_claim.lanes
        assert desk.sent == []


async def test_signals_of_the_same_moment_share_a_commit(counting_store: Store, counts: Counts) -> None:
    shop = Shop()
    async with Node(shop.app, counting_store, roles=BOTH, options=HELD) as node:
        tasks = [await node.client.submit(shop.approved, f"{n}") for n in range(50)]
        for task in tasks:
            await waits(task)
        await counts.reset()
        answers = await asyncio.gather(*(task.signal(shop.approval, True) for task in tasks))
        assert all(answer.created for answer in answers)
        await shop.ships(50)
        assert await counts.commits() == 1
        shop.end.set()
        await asyncio.gather(*(task.result(timeout="60s") for task in tasks))
