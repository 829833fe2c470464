"""The surroundings of the engine in some worlds: submitters that receive notices, orders that arrive as
messages.

The options have a random stream of their own, and a world without them draws nothing here, so the rest of a
seed keeps its meaning.
"""

import random
from dataclasses import dataclass, field
from typing import Final

QUEUE: Final = "web"
"""The queue that submitters receive from."""
ORDERS: Final = "orders"
"""The queue of orders that are sent as messages."""

RECEIVERS: Final = ("good.test", "shaky.test", "dead.test")
"""The hosts of webhooks: a healthy one, one with every problem in a storm, one that never answers."""

RECEIVING: Final = ("receiver fails", "receiver takes it and fails", "receiver hangs", "receiver slow")
"""What a webhook's receiver can do to a notice."""

ACCEPTING: Final = ("handler fails", "handler refuses")
"""What the inbox's function can do with a message."""
SENDING: Final = ("sent twice",)
"""What a customer that sends a message can do."""

SWEEP: Final = 4.0
"""Seconds between the janitor's rounds in worlds with short retention."""

_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The options of the surroundings."""

    told: float = 0.0
    """The share of orders whose submitter receives notices."""
    hooks: float = 0.0
    """Of those, the share that receives them by webhook; the others use the queue."""
    posted: float = 0.0
    """Of those, the share that receives them by a broker, and not by queue or webhook."""
    consumers: int = 0
    """Processes that receive from the queue."""
    sent: float = 0.0
    """The share of orders that are sent as messages."""
    brokered: float = 0.0
    """Of those, the share that is sent to a broker; relays take them from there."""
    relays: int = 0
    """Processes that relay from the broker."""
    inboxes: int = 0
    """Processes that take those messages."""
    keep: float | None = None
    """Seconds after which the janitor removes ended tasks; None: never."""
    guarded: bool = False
    """Whether some agents have a breaker, and one a rate."""
    faults: dict[str, float] = field(default_factory=dict)
    """Strengths of the faults, by kind."""


def draw(seed: int) -> Around | None:
    """Draw the surroundings in the world of a seed; None, in most worlds: there are none."""
    rng = random.Random(f"{seed} around")
    if rng.random() >= _SHARE:
        return None
    faults = {
        kind: rng.choice((0.1, 0.3)) for kind in (*RECEIVING, *ACCEPTING, *SENDING) if rng.random() < 0.5
    }
    return Around(
        told=rng.choice((0.5, 1.0)),
        hooks=rng.choice((0.0, 0.3, 0.7)),
        consumers=rng.choice((1, 2)),
        sent=rng.choice((0.0, 0.5, 1.0)),
        inboxes=rng.choice((1, 2)),
        keep=rng.choice((None, 30.0)),
        guarded=rng.random() < 0.5,
        faults=faults,
    )
