"""When agents look into the store without a poll: whenever something that waits there may be for them now, and else not."""

from tests.actors.lone_agent import BANK, Waiting, request, running
from tests.conformance.worlds import eventually


async def test_an_agent_that_was_declared_dead_looks_again_under_its_new_number() -> None:
    """What it was not given as a dead process, no ring tells it of."""
    channel = Waiting()
    async with running(channel) as agents:
        channel.alive, looks = 2, channel.looks
        channel.waiting = [request(7)]
        channel.wake()
        await eventually(lambda: channel.looks > looks, "a look as a dead process")
        agents.renamed(2)
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
