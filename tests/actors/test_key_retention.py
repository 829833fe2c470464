"""Keys that a service remembers for a while only: a Scheduler that takes over, and an agent with an old request, send nothing again."""

import re
from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.model.messages import Request, TaskMessage
from makegood.model.plan import OnFailure
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.workflow.app import App
from tests.actors.conftest import QUIET
from tests.actors.lone_agent import Waiting, request, running
from tests.conformance.worlds import World, eventually
from tests.waiting import moment

BOTH = ("scheduler", "agent")
HOUR = 3600.0
PATIENT = mg.Recover(threshold=3, wait="1m", extended="1m")


class Shop:
    """An order whose charge, or whose refund, is never answered; the service keeps a key for an hour."""

    def __init__(self, silent: str, *, probe: bool = False, on_failure: OnFailure = "undo") -> None:
        self.calls: Counter[str] = Counter()
        self.app = App("shop")
        bank = self.app.agent("bank")
        calls = self.calls

        def call(what: str) -> None:
            calls[what] += 1
            if what == silent:
                raise ConnectionError("the answer is lost")

        @bank.action(complete_within="30s", keeps="1h", retry=mg.Retry(tries=1), recover=PATIENT)
        def charge(order: str) -> str:
            call("charge")
            return "ch_1"

        @charge.undo
        def refund(order: str, *, result: str | None) -> None:
            call("refund")

        if probe:

            @charge.probe
            def find(order: str) -> mg.Happened[str] | mg.NotHappened:
                call("find")
                return mg.Happened("ch_1") if calls["find"] > 1 else mg.NOT_HAPPENED

        @bank.action(complete_within="30s", undo=mg.NOTHING)
        def ship(order: str) -> None:
            if silent == "refund":
                raise mg.Refused("sold out")

        @self.app.workflow(on_failure=on_failure)
        def buy(order: str) -> None:
            charge(order)
            ship(order)

        self.buy = buy

    async def until_it_rests(self, store: Store) -> str:
        """Run the order until it waits for the next attempt; return its id."""
        async with Node(self.app, store, roles=BOTH, options=QUIET) as node:
            task = await node.client.submit(self.buy, "o1")

            async def waits() -> bool:
                return any(step.waiting for step in (await task.status()).steps)

            while not await waits():
                await moment()
            return task.id


async def test_who_takes_over_after_its_time_undoes_it_and_sends_nothing(store: Store, world: World) -> None:
    shop = Shop("charge")
    id_ = await shop.until_it_rests(store)
    await world.elapse(HOUR)
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        with pytest.raises(mg.TaskUndone, match="its key is older than the 1h that the service keeps it"):
            await node.client.task(id_).result(timeout=60)
    assert shop.calls == {"charge": 1, "refund": 1}


async def test_who_takes_over_within_its_time_sends_it_again(store: Store, world: World) -> None:
    shop = Shop("charge")
    id_ = await shop.until_it_rests(store)
    await world.elapse(HOUR / 2)
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        await eventually(lambda: shop.calls["charge"] == 2, "the second request")
        await node.client.task(id_).cancel()
    assert shop.calls["charge"] == 2


async def test_after_its_time_a_probe_that_finds_it_ends_the_doubt(store: Store, world: World) -> None:
    shop = Shop("charge", probe=True)
    id_ = await shop.until_it_rests(store)
    await world.elapse(HOUR)
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        await node.client.task(id_).result(timeout=60)
    assert shop.calls == {"charge": 1, "find": 2}


async def test_an_undo_after_its_time_is_stuck_until_an_operator_has_it_sent(
    store: Store, world: World
) -> None:
    shop = Shop("refund")
    id_ = await shop.until_it_rests(store)
    await world.elapse(HOUR)
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = node.client.task(id_)
        with pytest.raises(mg.TaskInError):
            await task.result(timeout=60)
        assert shop.calls["refund"] == 1
        alerts = [a.kind for a in await node.client.alerts()]
        assert alerts == ["undo_incomplete"]
        answer = await task.undo()
        assert "the undo of charge is sent again, and may be done twice" in answer.outcome
        await eventually(lambda: shop.calls["refund"] == 2, "the undo")


async def test_a_resubmission_says_what_it_risks_before_and_when_it_is_done(
    store: Store, world: World
) -> None:
    shop = Shop("charge", on_failure="hold")
    id_ = await shop.until_it_rests(store)
    await world.elapse(HOUR)
    async with Node(shop.app, store, roles=BOTH, options=QUIET) as node:
        task = node.client.task(id_)
        with pytest.raises(mg.TaskInError):
            await task.result(timeout=60)
        assert shop.calls["charge"] == 1
        dry = await task.resubmit(dry_run=True)
        warning = "charge is sent again, and may be done twice (its key is older than the 1h that the service keeps it"
        assert warning in dry.outcome
        assert warning in (await task.resubmit()).outcome
        await eventually(lambda: shop.calls["charge"] == 2, "the request that the operator wanted")


# -- the agent ---------------------------------------------------------------------------------------------------------


class Heard(Waiting):
    """A channel that keeps the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[TaskMessage] = []

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Keep them."""
        self.said += [message for _, message in replies]
        return await super().answer(node, replies)


def taken(doing: str = "do", *, age: float) -> Request:
    """Return a request that was taken just now, so long after the first under its key; the service keeps a key for an hour."""
    now = 1_000_000.0
    return replace(request(1), doing=doing, attempt=2, keeps=HOUR, first_sent=now - age, taken_at=now)


async def answer_to(sending: Request) -> tuple[int, TaskMessage]:
    """Return how often the action ran for a request, and the answer."""
    channel, calls = Heard(), 0

    def charge() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionError("the answer is lost")

    async with running(channel, charge):
        channel.waiting.append(sending)
        channel.wake()
        await eventually(lambda: bool(channel.said), "the answer")
    return calls, channel.said[0]


async def test_an_agent_does_not_send_what_waited_in_the_queue_for_too_long() -> None:
    calls, reply = await answer_to(taken(age=HOUR))
    assert calls == 0
    assert reply.kind == "later"  # no failure
    assert reply.error == "it was not sent: 1h, for which the service keeps its key, have passed"
    assert reply.first_sent == 1_000_000.0 - HOUR


async def test_an_agent_does_not_send_what_has_no_time_left_for_an_answer() -> None:
    """``call.remaining()`` would be 0: the request would go out with a timeout that nothing can meet."""
    calls, reply = await answer_to(taken(age=HOUR - 0.5))
    assert (calls, reply.kind) == (0, "later")
    assert re.fullmatch(
        r"it was not sent: 1h, for which the service keeps its key, end in [45]\d\dms, which leaves no time for an answer",
        reply.error or "",
    )
    assert reply.wait >= 1.5  # past the age of the key also by a Scheduler's clock


async def test_an_agent_sends_a_first_request_however_long_it_waited() -> None:
    calls, reply = await answer_to(replace(taken(age=0.0), waited=2 * HOUR))
    assert calls > 0
    assert reply.kind == "gave_up"


async def test_an_agent_does_not_try_again_within_an_attempt_past_the_time() -> None:
    """A quarter of a second is left, and the first pause of the default ``Retry`` is 100 to 300 ms, the second one more."""
    calls, reply = await answer_to(taken(age=HOUR - 1.09))  # of which a second is for the answer
    assert calls == 1
    assert reply.kind == "gave_up"
