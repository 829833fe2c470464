"""Taking requests: what came too late to begin is given back, and what belongs to nobody here is left out."""

import asyncio
import logging
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from makegood.agent.agents import Agents
from makegood.base.clock import SystemClock
from makegood.model.breaker import Breaker, Circuit
from makegood.model.messages import Request
from makegood.store.records import Offer, Taken
from tests.actors.lone_agent import BANK, Waiting, request, running
from tests.conformance.worlds import eventually


class Slow(Waiting):
    """A channel whose answer takes until ``go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.returned: list[tuple[int, int, int]] = []

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Give what waits, in the end."""
        if self.waiting:
            self.asked.set()
            await self.go.wait()
        return await super().take(node, offers, alone=alone)

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Note what comes back."""
        self.returned += requests


async def taking(agents: Agents, channel: Slow, *requests: Request) -> None:
    """Have these requests asked for, and wait until that is under way."""
    channel.waiting = list(requests)
    channel.wake()
    await channel.asked.wait()
    assert agents.intake.taking


async def test_what_comes_when_the_process_drains_is_given_back() -> None:
    channel = Slow()
    async with running(channel) as agents:
        await taking(agents, channel, request(1), request(2))
        drain = asyncio.ensure_future(agents.drain(20.0))
        await asyncio.sleep(0)
        assert not drain.done(), "what the store gives now is still to come back"
        channel.go.set()
        await drain
        assert (channel.returned, channel.answered) == ([(1, 0, 1), (2, 0, 1)], [])
        assert agents.slots[BANK].free == 2


async def test_what_comes_when_its_circuit_has_opened_is_given_back() -> None:
    channel = Slow()
    async with running(channel) as agents:
        slots = agents.slots[BANK]
        slots.circuit = circuit = Circuit(Breaker(failures=1), 2)
        await taking(agents, channel, request(1))
        now = SystemClock().monotonic()
        circuit.record_end(circuit.began(now), "failed", now)
        channel.go.set()
        await eventually(lambda: channel.returned == [(1, 0, 1)], "it to come back")
        assert (slots.free, slots.running, channel.answered) == (2, 0, [])


async def test_a_request_of_no_agent_here_is_named_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel = Slow()
    async with running(channel) as agents:
        channel.go.set()
        channel.waiting = [replace(request(1), agent="nobody"), request(2)]
        channel.wake()
        await eventually(lambda: channel.answered == [2], "the answer")
        await eventually(lambda: agents.slots[BANK].free == 2, "all slots to be free")
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR] == [
        "1 requests were stored under another agent's name"
    ]
