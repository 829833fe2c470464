"""Messages in memory: between members that are tasks of one process, for tests and simulations.

A subclass can override ``carry`` to make a network that delays, loses and repeats.
"""

import asyncio
from collections.abc import Sequence

from makegood.election.preference.transport import Letter, Message

MOST_WAITING = 1000
"""Messages that may wait for a member; further ones are lost."""


class MemoryNetwork:
    """Connects the members of these names: ``MemoryNetwork(["a", "b"]).transport("a")``."""

    def __init__(self, members: Sequence[str]) -> None:
        self.members = list(members)
        self._boxes: dict[str, asyncio.Queue[Letter]] = {}

    def transport(self, me: str) -> "MemoryTransport":
        """Return the transport of a member."""
        return MemoryTransport(self, me)

    def open(self, me: str) -> "asyncio.Queue[Letter]":
        """Return a new, empty box for the messages to a member; its former box gets none any more."""
        box = self._boxes[me] = asyncio.Queue(MOST_WAITING)
        return box

    def close(self, me: str, box: "asyncio.Queue[Letter]") -> None:
        """Remove a box."""
        if self._boxes.get(me) is box:
            del self._boxes[me]

    def carry(self, sender: str, to: str, message: Message) -> None:
        """Carry a message."""
        self.deliver(sender, to, message)

    def deliver(self, sender: str, to: str, message: Message) -> None:
        """Put a message into its box; it is lost if there is none, or if the box is full."""
        box = self._boxes.get(to)
        if box is not None and not box.full():
            box.put_nowait((sender, message))


class MemoryTransport:
    """A member's way to a ``MemoryNetwork``."""

    def __init__(self, network: MemoryNetwork, me: str) -> None:
        self._network = network
        self._me = me
        self._box: asyncio.Queue[Letter] | None = None

    @property
    def me(self) -> str:
        """The name of this member."""
        return self._me

    def members(self) -> Sequence[str]:
        """Return all members."""
        return self._network.members

    async def open(self) -> None:
        """Begin to receive."""
        self._box = self._network.open(self._me)

    async def close(self) -> None:
        """End."""
        if self._box is not None:
            self._network.close(self._me, self._box)
            self._box = None

    async def send(self, to: str, message: Message) -> None:
        """Send."""
        self._network.carry(self._me, to, message)

    async def receive(self) -> Letter:
        """Wait for the next message."""
        assert self._box is not None, "the transport is not open"
        return await self._box.get()
