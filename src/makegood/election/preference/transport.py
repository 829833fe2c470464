"""The messages between the members of a group, and their transport.

A transport promises nothing: messages may be lost, repeated, late, or in another order, and a member cannot
distinguish a dead member from a slow or cut-off one. The modules of the algorithms say what follows from
that.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["alive", "election", "answer", "coordinator", "candidate", "elected", "ack"]
"""``alive``: I am here, and of a leader: I lead. Bully: ``election``, ``answer``, ``coordinator``. Ring:
``candidate``, ``elected``, and ``ack``, by which a member acknowledges a message of the ring.
"""


@dataclass(frozen=True, slots=True)
class Message:
    """One message."""

    kind: Kind
    about: str
    """The member that it is about."""
    number: int = 0
    """Identifies it: tells an answer from an older one, and a repeated message from a new one."""
    hops: int = 0
    """How many members of the ring have had it."""


Letter = tuple[str, Message]
"""A message with its receiver, or with its sender."""


class Transport(Protocol):
    """Carries messages between the members of one group. Each member has its own."""

    @property
    def me(self) -> str:
        """The name of the member that this transport belongs to."""

    def members(self) -> Sequence[str]:
        """Return all members, ``me`` too, in the order of the ring: the same at each member."""

    async def open(self) -> None:
        """Start to receive. Raises ``ConfigError`` if that is impossible here. It may be opened again after
        ``close``.
        """

    async def close(self) -> None:
        """End, and drop messages under way."""

    async def send(self, to: str, message: Message) -> None:
        """Send if possible: it raises nothing if it cannot, and does not wait for an answer."""

    async def receive(self) -> Letter:
        """Wait for the next message; return its sender and the message."""


Order = Callable[[str], object]
"""The order of members."""


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Compare names as people do: numbers in them by their value.

    >>> sorted(["host-10", "host-9", "host-b"], key=natural)
    ['host-9', 'host-10', 'host-b']
    """
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return (
        *((not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts),
        (False, 0, name),
    )
