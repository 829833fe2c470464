"""What lies around the engine in some worlds: submitters who are told, orders that come as messages.

The options are drawn from a stream of chance of their own, and a world without them draws nothing here: what else a seed means
stays as it was.
"""

import random
from dataclasses import dataclass, field
from typing import Final

QUEUE: Final = "web"
"""The queue in which submitters hear."""
ORDERS: Final = "orders"
"""The queue in which orders come that are sent as messages."""

RECEIVERS: Final = ("good.test", "shaky.test", "dead.test")
"""The hosts of webhooks: one that is well, one with which everything goes wrong in a storm, one that never answers."""

RECEIVING: Final = ("receiver fails", "receiver takes it and fails", "receiver hangs", "receiver slow")
"""What a webhook's receiver can do to a notice."""

ACCEPTING: Final = ("handler fails", "handler refuses")
"""What the inbox's function can do with a message."""
SENDING: Final = ("sent twice",)
"""What a customer can do who sends a message."""

SWEEP: Final = 4.0
"""Seconds between the janitor's rounds where it keeps things shortly."""

_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The options of what lies around. ``told``: the share of orders whose submitter is told; ``hooks``: the share of those that
    are told by webhook, the others by queue; ``consumers``: processes that receive from the queue. ``sent``: the share of
    orders that are sent as messages; ``inboxes``: processes that take them. ``keep``: seconds after which the
    janitor removes what has ended, None: never. ``guarded``: some agents have a breaker, and one a rate. ``faults``: strengths, by kind.
    """

    told: float = 0.0
    hooks: float = 0.0
    consumers: int = 0
    sent: float = 0.0
    inboxes: int = 0
    keep: float | None = None
    guarded: bool = False
    faults: dict[str, float] = field(default_factory=dict)


def draw(seed: int) -> Around | None:
    """Draw what lies around the engine in the world of a seed; None: nothing, in most worlds."""
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
