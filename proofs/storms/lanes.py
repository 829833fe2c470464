"""Workflows whose tasks wait for lanes, and the lanes of a storm's orders.

Some name their lanes themselves, others get them from their orders: one or several of a few names, so that
tasks meet.
"""

import random
from collections.abc import Sequence
from typing import Final

from makegood.declare.action import AsyncAction
from makegood.testing.simulator.customers import Order
from makegood.workflow.app import App
from makegood.workflow.verbs import sleep

LANED: Final = (
    "laned",
    "laned_twice",
    "laned_both",
    "laned_refused",
    "laned_cancels",
    "laned_held",
    "laned_held",
    "laned_held",
    "laned_nap",
)
"""Workflows with lanes."""
_NAMES: Final = ("ada", "bob", "cid")
_COUNTS: Final = (0, 0, 1, 1, 2, 2, 3)
"""How many lanes an order names; 0: its workflow does."""


def declare(app: App, reserve: AsyncAction[[str], str], charge: AsyncAction[[str, str], str]) -> None:
    """Declare workflows with lanes: one or two keys, one task at a time or two, and each way to deal with a
    taken lane.
    """

    def one(order: str) -> str:
        return _NAMES[len(order) % 2]

    @app.workflow(complete_within="2m", lane=one)
    def laned(order: str) -> str:
        return charge(order, reserve(order))

    @app.workflow(complete_within="2m", lane=one, at_once=2)
    def laned_twice(order: str) -> str:
        return charge(order, reserve(order))

    @app.workflow(complete_within="2m", lane=lambda order: [_NAMES[len(order) % 3], _NAMES[0]])
    def laned_both(order: str) -> str:
        return charge(order, reserve(order))

    @app.workflow(complete_within="2m", lane=one, when_taken="refuse")
    def laned_refused(order: str) -> str:
        return charge(order, reserve(order))

    @app.workflow(complete_within="2m", lane=one, when_taken="cancel")
    def laned_cancels(order: str) -> str:
        return charge(order, reserve(order))

    @app.workflow(on_failure="hold", lane=one)
    def laned_held(order: str) -> str:
        return charge(order, reserve(order))

    @app.workflow(complete_within="2m", lane=one)
    def laned_nap(order: str) -> str:
        hold = reserve(order)
        sleep(2)
        return charge(order, hold)


def laned(app: App, orders: Sequence[Order], share: float, rng: random.Random) -> list[Order]:
    """Return the orders, a share of them for workflows with lanes."""
    return [
        order._replace(
            workflow=app._find_workflow(name),
            key=f"{name}-{n}",
            lanes=tuple(rng.sample(_NAMES, rng.choice(_COUNTS))) or None,
        )
        if rng.random() < share and (name := rng.choice(LANED))
        else order
        for n, order in enumerate(orders)
    ]
