"""When agents look into the store without a poll: whenever something that waits there may be for them now, and else not."""

import asyncio
from typing import Any

import pytest

from makegood.agent.agents import Agents
from makegood.agent.slots import Slots
from makegood.store.records import Taken
from tests.actors.lone_agent import BANK, Waiting, request, running
from tests.conformance.worlds import eventually


def slots_of(agents: Agents) -> Slots:
    """Return the slots of the one agent."""
    return agents.slots[BANK]


async def test_an_agent_that_was_declared_dead_looks_again_under_its_new_number() -> None:
    """What it was not given as a dead process, no ring tells it of."""
    channel = Waiting()
    async with running(channel) as agents:
        channel.alive, looks = 2, channel.looks
        channel.waiting = [request(7)]
        channel.wake()
        await eventually(lambda: channel.looks > looks, "a look as a dead process")
        agents.rename(2)
        await eventually(lambda: channel.answered == [7], "the answer")


async def test_a_slot_that_a_commit_did_not_use_is_offered_to_what_was_rung_for_meanwhile() -> None:
    channel = Waiting()
    async with running(channel) as agents:
        loan = agents.lend_all()
        assert loan == {BANK: 2}
        channel.waiting = [request(7)]
        channel.wake()
        await eventually(
            lambda: not agents.intake.wake.is_set(), "the ring to be heard"
        )  # it has heard, and has nothing to offer
        agents.give_back(loan)
        await eventually(lambda: channel.answered == [7], "the answer")


async def test_a_rate_that_lets_nothing_begin_yet_is_asked_again_when_it_does() -> None:
    """Nothing was given, so nothing ends: without a timer of its own nobody would look again. Seed 17935 found it."""
    channel = Waiting()
    async with running(channel):
        channel.waiting, channel.again = [request(1)], [0.02]
        channel.wake()
        await eventually(lambda: channel.answered == [1], "the answer")


async def test_a_claim_waits_for_a_look_of_an_agent_that_has_free_slots() -> None:
    """Without it the requests of the claim would go to the store, and the next claim would find the same."""
    channel, end = Waiting(), asyncio.Event()

    async def charge() -> None:
        await end.wait()

    async with running(channel, charge, slots=4) as agents:
        channel.waiting, looks = [request(7)], channel.looks
        channel.wake()
        assert agents.lend_all() == {}
        await agents.catch_up()
        assert agents.lend_all() == {BANK: 3}
        assert channel.looks == looks + 1
        end.set()
        await eventually(lambda: channel.answered == [7], "the answer")
        assert channel.looks == looks + 1, "one more look would have set the free slots aside"


async def test_no_claim_waits_for_a_look_of_a_busy_agent() -> None:
    """Whatever it finds, it lends no slot."""
    channel, end = Waiting(), asyncio.Event()

    async def charge() -> None:
        await end.wait()

    async with running(channel, charge, slots=2) as agents:
        channel.waiting = [request(7), request(8)]
        channel.wake()
        await eventually(lambda: slots_of(agents).running == 2, "two calls")
        channel.waiting = [request(9)]
        channel.wake()
        with pytest.raises(StopIteration):
            agents.catch_up().send(None)
        end.set()
        await eventually(lambda: sorted(channel.answered) == [7, 8, 9], "the answers")


async def test_no_claim_waits_for_a_look_while_all_slots_are_set_aside() -> None:
    """There is none to look for before a commit gives them back."""
    channel = Waiting()
    async with running(channel) as agents:
        agents.lend_all()
        channel.wake()
        with pytest.raises(StopIteration):
            agents.catch_up().send(None)


async def test_a_look_that_does_not_end_delays_one_claim_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is silent, or whoever looks pauses after a defect while each wake-up calls for a look."""
    monkeypatch.setattr("makegood.agent.agents._LONGEST_LOOK", 0.01)
    channel, end = Waiting(), asyncio.Event()
    take = channel.take

    async def late(*arguments: Any, **options: Any) -> Taken:
        await end.wait()
        return await take(*arguments, **options)

    async with running(channel, slots=4) as agents:
        monkeypatch.setattr(channel, "take", late)
        channel.wake()
        await agents.catch_up()
        with pytest.raises(StopIteration):
            agents.catch_up().send(None)
        end.set()
        await eventually(agents.intake.end_of_look.is_set, "the end of the look")
