"""What the members of a group say to each other, and what carries it.

A transport promises nothing: messages may be lost, repeated, late, or in another order, and a member cannot tell one that is
dead from one that is slow or cut off. What the algorithms make of that is said in their modules.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Kind = Literal["alive", "election", "answer", "coordinator", "candidate", "elected", "ack"]
"""``alive``: I am here, and of a leader: I lead. Bully: ``election``, ``answer``, ``coordinator``. Ring: ``candidate``, ``elected``,
and ``ack``, by which a member says that it has a message of the ring.
"""


@dataclass(frozen=True, slots=True)
class Message:
    """``about``: the member that it is about. ``number``: names it, so that an answer can be told from an older one, and a
    repeated message from a new one. ``hops``: how many members of the ring have had it.
    """

    kind: Kind
    about: str
    number: int = 0
    hops: int = 0


Letter = tuple[str, Message]
"""A message and whom it is for, or whom it is from."""


class Transport(Protocol):
    """Carries messages between the members of one group. Each member has its own."""

    @property
    def me(self) -> str:
        """The name of the member that this transport belongs to."""
        ...

    def members(self) -> Sequence[str]:
        """Return all members, ``me`` too, in the order of the ring: the same at each member."""
        ...

    async def open(self) -> None:
        """Begin to receive. Raises ``ConfigError`` when that cannot be done here. It may be opened again after ``close``."""
        ...

    async def close(self) -> None:
        """End, and drop what is under way."""
        ...

    async def send(self, to: str, message: Message) -> None:
        """Send, as well as that can be done: it raises nothing when it cannot, and does not wait for an answer."""
        ...

    async def receive(self) -> Letter:
        """Wait for the next message; return whom it is from, and the message."""
        ...


Order = Callable[[str], object]
"""By what members are compared."""


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
