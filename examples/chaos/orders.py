"""What is ordered: the example's order, and three more ways to place it, so that every end is met.

``by_hand`` hands what fails to an operator instead of undoing it; ``in_a_hurry`` is undone when it takes too long; ``brief``
packs where the service forgets its keys soon. Schedulers never see a workflow: nothing has to be deployed for them.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

import makegood as mg
from examples.orders.shop import (
    RETRY,
    Order,
    ask,
    book,
    charge,
    email,
    pack,
    place_order,
    reserve,
    ship,
    shop,
    stock,
)

HURRY: Final = "3s"
SKUS: Final = ("pen", "ink", "paper", "lamp", "chair")
SOLD_OUT, DECLINED, DECLINED_BY_HAND = 0.05, 0.05, 0.3
"""The shares of orders that a service refuses for good."""


@shop.workflow(complete_within="2m", on_failure="hold")
def by_hand(order: Order) -> str:
    """As ``place_order``; when it fails nothing is undone: an operator decides."""
    return _placed(order)


@shop.workflow(complete_within=HURRY, on_failure="undo")
def in_a_hurry(order: Order) -> str:
    """As ``place_order``, and undone when it does not end in time."""
    return _placed(order)


MODULE: Final = __name__
"""Where agents find these actions."""
BRIEF: Final = "pack.brief"
"""The action whose keys the stock's service forgets."""
KEEPS: Final = 6.0
"""For how many seconds it promises to remember them."""
FORGETS: Final = {f"/{BRIEF}/": KEEPS + 3.0}
"""For how long it truly does: a request that was sent in time may be on its way for so much longer."""
SOON: Final = mg.Recover(threshold=0, wait="300ms", extended="1s", then="undo")


@stock.action(name=BRIEF, complete_within="2s", retry=RETRY, recover=SOON, keeps=KEEPS)
def pack_brief(order: Order, hold: str) -> str:
    """Put the goods in a box; return the parcel's id."""
    return ask("stock/pack", order, hold=hold).id


@pack_brief.undo
def unpack_brief(order: Order, *, result: str | None) -> None:
    """Put the goods back on the shelf."""
    ask("stock/unpack", order, parcel=result)


@shop.workflow(complete_within="2m", on_failure="undo")
def brief(order: Order) -> str:
    """As ``place_order``, with ``pack_brief``."""
    hold = reserve(order)
    payment = charge(order, hold)
    parcel = pack_brief(order, hold)
    booking = book(order)
    email(order, payment)
    return ship(order, booking, parcel)


def _placed(order: Order) -> str:
    hold = reserve(order)
    payment = charge(order, hold)
    booking, parcel = mg.parallel(book(order), pack(order, hold))
    email(order, payment)
    return ship(order, booking, parcel)


def wanted(customer: int, rng: random.Random) -> Iterator[tuple[Any, Order]]:
    """Yield what a customer orders, without end: the workflow and the order."""
    number = 0
    while True:
        number += 1
        workflow = rng.choices((place_order, by_hand, in_a_hurry, brief), (5, 2, 2, 3))[0]
        sku = "sold-out" if rng.random() < SOLD_OUT else rng.choice(SKUS)
        card = (
            "declined" if rng.random() < (DECLINED_BY_HAND if workflow is by_hand else DECLINED) else "good"
        )
        yield workflow, Order(f"c{customer}-{number:04d}", sku, rng.randrange(300, 30_000), card)
