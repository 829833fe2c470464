"""Remote services with books of their own, in a simulated world: what all kinds of them have in common.

The network lies between the agent's check of the clock and the effect: a call may be slow, arrive twice or
long after its caller has died, and its answer may never come.
"""

from dataclasses import dataclass, field
from typing import Any, Protocol

from makegood.testing.history import History
from makegood.testing.simulator.loop import WorldLoop
from makegood.testing.simulator.swarm import Swarm


class ServiceError(Exception):
    """The service could not be reached, or failed: the call may or may not have taken effect."""


class StaleTokenError(Exception):
    """The service has seen a later attempt of this step: this one was superseded."""


@dataclass(slots=True)
class KeyState:
    """What a service knows of one key."""

    net: int = 0
    """How many effects are in place."""
    answer: str | None = None
    """Its answer."""
    is_refused: bool = False
    refused_token: Any = None
    is_undone: bool = False
    """Whether it was undone."""


class ServiceWorld(Protocol):
    """The parts of a world that a service needs."""

    loop: WorldLoop
    history: History

    @property
    def swarm(self) -> Swarm:
        """Its options."""

    def draw(self) -> float:
        """Return a random number in [0, 1)."""


@dataclass(slots=True)
class Service:
    """One remote service: its books, and how long calls travel to it."""

    world: ServiceWorld
    name: str
    books: dict[str, KeyState] = field(default_factory=dict)
    highest: dict[str, Any] = field(default_factory=dict)
    """The highest token that it was asked with, by scope."""
    _under_way: dict[str, int] = field(default_factory=dict)
    """Calls on the wire, by the key that they are about."""
    effect_count: int = 0
    """How many effects it ever made."""
    _spell: str = ""
    """What goes wrong with every call for a while."""
    _spell_ends: float = 0.0

    def standing(self, key: str) -> int:
        """Return how many effects done under a key are in place."""
        entry = self.books.get(key)
        return 0 if entry is None else entry.net

    def _delay(self, trouble: str | None) -> float:
        fraction = self.world.draw()
        # In a queue somewhere; after a spell all come out together, in any order.
        if trouble == "service late":
            left = self._spell_ends - self.world.loop.now
            return left + fraction * 2.0 if left > 0 else 2.0 + fraction * 28.0
        if trouble == "service slow":
            return fraction * 6.0
        return fraction * self.world.swarm.pace

    def _take_back(self, key: str, task: int = 0) -> None:
        """An operator takes an effect back by hand, permanently."""
        entry = self.books.setdefault(key, KeyState())
        in_place, entry.net, entry.is_undone = entry.net > 0, 0, True
        self.world.history.note(
            "effect", "", task, service=self.name, key=key, doing="undo", token=[], net=0, changed=in_place, outcome="ok"
        )  # fmt: skip
