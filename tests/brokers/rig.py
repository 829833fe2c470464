"""What the suites of sources and senders need of a broker: a private server that can be filled, read, and
broken.

A rig is made once for a module, and starts its server (a temporary folder, a free port; it ends with the
tests' process, even if that is killed). Each case works at a place of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from makegood.brokers import BrokerAddress, Target


class Draft(msgspec.Struct, frozen=True):
    """A message that a rig publishes."""

    body: bytes
    id: str | None = None
    """None: without an id, where the broker lets a sender leave it out."""
    headers: Mapping[str, str] = {}


class Received(msgspec.Struct, frozen=True):
    """A message that a rig has read, as any client of the broker would."""

    body: bytes
    id: str | None
    """The broker's own field for it."""
    key: str | None = None
    """The field by which the broker keeps order: a key, a group, a session."""
    content_type: str | None = None


class Rig(Protocol):
    """A broker for the suites. What a broker cannot do is said by the flags, and never skipped in silence."""

    kind: str
    gives_ids: bool
    """Each message has an id, whatever its sender says."""
    takes_ids: bool
    """A sender may say the id, and a repeated one is known by it."""
    keeps_over_restart: bool
    """What was confirmed is there after a kill and a start of the server."""
    has_dead_letters: bool
    """The place of ``declare`` keeps what is refused, at the broker."""
    keeps_order: bool
    """Messages of a place are delivered in the order in which they were published."""
    has_single_acknowledgements: bool
    """One message can be acknowledged while an earlier one is not."""
    durable_after: float
    """Seconds after ``declare`` from which on a place outlives a kill of the server."""
    takes_empty: bool
    """A message may be empty."""
    has_connection: bool
    """A reader that waits has a connection that can break; else it asks from time to time."""
    takes_bytes: bool
    """A message may be any bytes; else it is text."""
    checks_rights: bool
    """``revoke`` takes something away; else everybody may do all."""
    has_proxy: bool
    """What connects to it reaches a relay in between, which accepts connections also when the server is dead."""
    redelivery: float
    """Seconds until another reader receives what a dead one had taken."""
    most_bytes: int
    """The longest body that the broker takes."""

    @property
    def secrets(self) -> Sequence[str]:
        """What no message may show."""

    def start(self) -> None:
        """Start the server, or start it again on its port and in its folder."""

    def kill(self) -> None:
        """Kill the server as a crash does."""

    def stop(self) -> None:
        """Stop it with SIGSTOP: it keeps its connections, and answers nothing."""

    def resume(self) -> None:
        """Let it continue."""

    def close(self) -> None:
        """Kill the server, and remove its folder."""

    @property
    def target(self) -> Target:
        """The broker as the settings name it, with the rights that ``permissions`` asks for."""

    async def declare(self, place: str) -> BrokerAddress:
        """Make an empty queue, topic or stream, and return its address, with what reading it needs."""

    async def delete(self, place: str) -> None:
        """Delete it, with all that is in it."""

    async def publish(self, place: str, drafts: Sequence[Draft]) -> None:
        """Publish messages in order, and wait until the broker keeps them."""

    async def waiting(self, address: BrokerAddress, group: str) -> int:
        """Return how many messages the readers of a group have not acknowledged."""

    async def read(self, place: str) -> list[Received]:
        """Return all messages of a place that senders have filled, in order, with a client of its own."""

    async def dead_letters(self, place: str) -> list[bytes]:
        """Return the bodies that the broker keeps as dead letters of a place."""

    async def disconnect(self, place: str) -> None:
        """Break all connections to the broker but the rig's own, as an operator or a proxy would."""

    async def revoke(self) -> None:
        """Take the rights, or the password, of ``target`` away. Connections that exist may be broken by it."""

    async def grant(self) -> None:
        """Give them back."""
