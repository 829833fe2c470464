"""No call begins after its complete-by: the store may have been away while a request was taken, or the process stood still."""

from collections.abc import Sequence

from msgspec.structs import replace

from makegood.store.records import Offer, Taken
from tests.actors.waiting import BANK, Waiting, request, running
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
    """A ``def`` action could not be stopped any more, and an undo may have begun meanwhile."""
    called, clock = list[int](), AheadClock()
    channel = Slow(clock)

    def charge() -> None:
        called.append(1)

    async with running(channel, charge, slots=1, clock=clock) as agents:
        slots = agents.slots[BANK]
        channel.waiting = [replace(request(1), within=0.05)]
        channel.ring()
        await eventually(lambda: channel.looks > 1 and slots.calls == 1, "the late one")
        assert (called, slots.free, slots.running) == ([], 1, 0)
        channel.waiting = [request(2)]
        channel.ring()
        await eventually(lambda: channel.answered == [2], "the answer")
        assert called == [1]
