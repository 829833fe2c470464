"""No call begins after its complete-by: the store may have been away while a request was taken, or the process stood still."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.records import Offer, Taken
from tests.actors.conftest import QUIET
from tests.actors.lone_agent import BANK, Waiting, request, running
from tests.clocks import AheadClock
from tests.conformance.worlds import eventually


class Slow(Waiting):
    """A channel whose gifts with little time take longer than that."""

    def __init__(self, clock: AheadClock) -> None:
        super().__init__()
        self.clock = clock

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Give what waits, after a while."""
        self.clock.ahead += max(
            (waiting.within for waiting in self.waiting if waiting.within < 1.0), default=0
        )
        return await super().take(node, offers, alone=alone)


async def test_what_was_taken_too_long_ago_is_not_begun_and_its_slot_is_free_again() -> None:
    """A ``def`` action could not be stopped any more, and an undo may have begun meanwhile. The answer is that nothing was done."""
    calls, clock = list[int](), AheadClock()
    channel = Slow(clock)

    def charge() -> None:
        calls.append(1)

    async with running(channel, charge, slots=1, clock=clock) as agents:
        slots = agents.slots[BANK]
        channel.waiting = [replace(request(1), within=0.05)]
        channel.wake()
        await eventually(lambda: channel.looks > 1 and slots.calls == 1, "the late one")
        assert (calls, slots.free, slots.running, slots.failures) == ([], 1, 0, 0)
        channel.waiting = [request(2)]
        channel.wake()
        await eventually(lambda: channel.answered == [1, 2], "the answers")
        assert calls == [1]


@pytest.mark.parametrize("apart", [False, True])
async def test_a_step_whose_process_stood_still_before_it_could_begin_is_not_in_doubt(
    store: Store, other: Store, monkeypatch: pytest.MonkeyPatch, *, apart: bool
) -> None:
    """::

        the agent's clock  0 s               70 s                70 s
        the process        reserves a slot   stands still, then  the deadline (60 s) has passed: it answers
                           or asks the store commits, or takes   "later", and is asked again

    Silence would count as a failure, and leave a step in doubt that is never asked again: a task in error.
    """
    clock, app, calls = AheadClock(), mg.App("shop"), list[str]()
    bank = app.agent("bank")

    @bank.action(complete_within="1m", undo=mg.NOTHING)
    def reserve(order: str) -> None:
        """Reserve the money."""

    @bank.action(complete_within="1m", undo=mg.NOTHING, retry=mg.NEVER)
    def charge(order: str) -> None:
        calls.append(str(mg.current_call().token))

    @app.workflow()
    def buy(order: str) -> None:
        reserve(order)
        charge(order)

    verbs, verb = (other.requests, "take") if apart else (store.tasks, "commit")
    carried_out = getattr(verbs, verb)

    def takes_charge(owner: Any, outcome: Any) -> bool:
        requests = outcome if apart else [each for d in owner.decisions for each in d.handovers]
        return any(each.action == "charge" for each in requests)

    async def stand_still(owner: Any, *args: Any, **options: Any) -> Any:
        outcome = await carried_out(owner, *args, **options)
        if not clock.ahead and takes_charge(owner, outcome):
            clock.ahead = 70.0
        return outcome

    roles: tuple[str, ...] = ("scheduler",) if apart else ("scheduler", "agent")
    roles_of_other = ("agent",) if apart else ("supervisor",)
    async with (
        Node(app, store, roles=roles, options=QUIET, clock=clock) as node,
        Node(app, other, roles=roles_of_other, options=QUIET, clock=clock),
    ):
        monkeypatch.setattr(verbs, verb, stand_still)
        task = await node.client.submit(buy, "o")
        await task.result()
        status = await task.status()
        ends = [end async for event in task.events(follow=False) for end in event.attempts]
    assert (clock.ahead, calls, status.task.failure_count) == (70.0, ["1.2"], 0)
    assert [(end.kind, end.error) for end in ends if end.idx == 1][:1] == [
        ("later", "it was not begun: its 1m were over before it could be")
    ]


async def test_a_plain_function_that_runs_past_its_complete_by_is_named_once_while_it_keeps_its_slot(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing can stop it. Whoever sees that all slots are taken must be able to find out by what."""
    monkeypatch.setattr("makegood.model.attempt._PATIENCE", 0.01)
    channel, block = Waiting(), threading.Event()
    async with running(channel, lambda: block.wait(20)) as agents:
        channel.waiting = [replace(request(1), within=0.25), replace(request(2), within=20.0)]
        channel.wake()
        await eventually(lambda: agents.infos()[0].overdue, "the first one overdue")
        assert (agents.infos()[0].used, agents.infos()[0].overdue) == (2, 1)
        agents.attempts.halt()
        block.set()
        await eventually(lambda: not agents.infos()[0].used, "both to return")
        assert agents.infos()[0].overdue == 0
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "shop/bank/charge for step charge of task 0000000000001 still runs" in record.getMessage()
    assert (record.__dict__["task"], record.__dict__["step"]) == ("0000000000001", "charge")


async def test_a_function_that_does_not_heed_its_cancellation_is_named_a_while_later(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makegood.model.attempt._PATIENCE", 0.01)
    channel, cancellation, leave = Waiting(), asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                cancellation.set()

    async with running(channel, stubborn) as agents:
        channel.waiting = [replace(request(1), within=0.25)]
        channel.wake()
        await cancellation.wait()
        await eventually(lambda: agents.infos()[0].overdue, "it to be overdue")
        leave.set()
        await eventually(lambda: not agents.infos()[0].used, "it to return")
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "ignores its cancellation" in record.getMessage()


async def test_a_function_that_returns_shortly_after_its_complete_by_is_not_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it waited for has timed out, a moment late: that is no call that hangs."""
    monkeypatch.setattr("makegood.model.attempt._PATIENCE", 3600.0)
    channel, block = Waiting(), threading.Event()
    async with running(channel, lambda: block.wait(20)) as agents:
        channel.waiting = [replace(request(1), within=0.25)]
        channel.wake()
        await eventually(lambda: [a.phase for a in agents.attempts.running] == ["halted"], "its complete-by")
        assert agents.infos()[0].overdue == 0
        block.set()
        await eventually(lambda: agents.infos()[0].calls == 1, "it to return")
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("tries", [1, 3])
async def test_a_call_that_times_out_at_remaining_is_heard_and_leaves_room_for_its_tries(
    caplog: pytest.LogCaptureFixture, tries: int
) -> None:
    """At a service that hangs: each try gets its share of the time, and what comes of it is said before complete-by."""
    channel, waits, clock = Waiting(), list[float](), AheadClock()

    def charge() -> None:
        waits.append(mg.current_call().remaining())
        clock.ahead += waits[-1]  # so long it waits in vain
        raise TimeoutError("payments does not answer")

    retry = (
        None if tries == 1 else mg.Retry(tries=tries)
    )  # the default leaves the whole time to the first try
    async with running(channel, charge, clock=clock, retry=retry) as agents:
        channel.waiting = [replace(request(1), within=20.0)]
        channel.wake()
        await eventually(lambda: agents.infos()[0].calls == 1, "its end")
        await eventually(lambda: channel.answered == [1], "its answer")
    assert len(waits) == tries
    assert 17.0 < sum(waits) <= 19.0, "but for the pauses between tries, and the margin of a second"
    assert max(waits) < 1.3 * min(waits)
    texts = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert [text.partition(", ")[2] for text in texts] == [
        "attempt 1: TimeoutError: payments does not answer"
    ] * tries
