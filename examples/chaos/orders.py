"""What is ordered: the example's order, and seven more ways to place it, so that every end and every wait is met.

``by_hand`` hands what fails to an operator instead of undoing it; ``in_a_hurry`` is undone when it takes too long; ``brief``
packs where the service forgets its keys soon. ``rested`` sleeps before it charges; ``approved`` needs a customer's consent in
time, ``countersigned`` asks for it twice and does without. ``in_line`` has lanes of two keys, its account and its shelf. A schedule has ``settle_moment`` report each of its moments.
Schedulers never see a workflow: nothing has to be deployed for them.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import makegood as mg
from examples.orders.shop import (
    RECOVER,
    RETRY,
    Order,
    ask,
    book,
    carrier,
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


@dataclass
class Consent:
    """What a customer answers to the question whether the order may go. ``id``: that of the signal."""

    id: str


consent = shop.signal("consent", Consent)
CONSENT_WITHIN: Final = 4.0
"""Seconds for which ``approved`` waits."""
EACH_WITHIN: Final = 2.5
"""Seconds for which each of the two waits of ``countersigned`` lasts."""
NAPS: Final = (0.3, 1.0, 2.0)
"""Seconds for which an order rests: the shortest in a Scheduler's memory, the others as rows."""


def nap_of(cents: int) -> float:
    """Return the seconds for which ``rested`` sleeps with an order of this price."""
    return NAPS[cents % len(NAPS)]


@shop.workflow(complete_within="2m")
def rested(order: Order) -> str:
    """As ``place_order``, with a sleep before the charge."""
    hold = reserve(order)
    mg.sleep(nap_of(order.cents))
    return _delivered(order, hold, charge(order, hold))


@shop.workflow(complete_within="2m")
def approved(order: Order) -> str:
    """As ``place_order``; undone when the customer does not consent in time."""
    hold = reserve(order)
    mg.wait_for(consent, timeout=CONSENT_WITHIN)
    return _delivered(order, hold, charge(order, hold))


@shop.workflow(complete_within="2m")
def countersigned(order: Order) -> str:
    """As ``place_order``; asks for consent twice, and goes on without."""
    hold = reserve(order)
    mg.wait_for(consent, timeout=EACH_WITHIN, otherwise=Consent(""))
    payment = charge(order, hold)
    mg.wait_for(consent, timeout=EACH_WITHIN, otherwise=Consent(""))
    return _delivered(order, hold, payment)


ACCOUNTS: Final = 4
"""Accounts of a customer."""


def lanes_of(order: Order) -> list[str]:
    """Return what an order shares with others: an account of its customer, and the shelf of its goods."""
    customer, _, number = order.id.rpartition("-")
    return [f"account {customer}/{int(number) % ACCOUNTS}", f"shelf {order.sku}"]


@shop.workflow(complete_within="2m", lane=lanes_of)
def in_line(order: Order) -> str:
    """As ``place_order``, alone on its account and at its shelf."""
    return _placed(order)


ASKING: Final = (approved.name, countersigned.name)
"""The workflows that wait for a customer's consent."""
SCHEDULE: Final = "settlement"
EVERY: Final = 2.0
"""Seconds between two moments of the schedule."""
MOMENT_PREFIX: Final = "moment "
"""In the services' books the "order" of a moment begins so."""


@carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER, undo=mg.NOTHING)
def report_moment(moment: datetime) -> None:
    """Mail the day's business: the carrier's books show how often."""
    ask("carrier/email", Order(f"{MOMENT_PREFIX}{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", "", 0))


@shop.workflow(complete_within="2m")
def settle_moment(moment: datetime) -> None:
    """What the schedule does at each of its moments."""
    report_moment(moment)


def _placed(order: Order) -> str:
    hold = reserve(order)
    return _delivered(order, hold, charge(order, hold))


def _delivered(order: Order, hold: str, payment: str) -> str:
    booking, parcel = mg.parallel(book(order), pack(order, hold))
    email(order, payment)
    return ship(order, booking, parcel)


WORKFLOWS: Final[tuple[Any, ...]] = (
    place_order, by_hand, in_a_hurry, brief, rested, approved, countersigned, in_line,
)  # fmt: skip
SHARES: Final = (5, 2, 2, 3, 2, 2, 2, 3)
"""How often each is ordered beside the others."""


def wanted(customer: int, rng: random.Random, shares: Sequence[int] = SHARES) -> Iterator[tuple[Any, Order]]:
    """Yield what a customer orders, without end: the workflow and the order."""
    number = 0
    while True:
        number += 1
        workflow = rng.choices(WORKFLOWS, shares)[0]
        sku = "sold-out" if rng.random() < SOLD_OUT else rng.choice(SKUS)
        card = (
            "declined" if rng.random() < (DECLINED_BY_HAND if workflow is by_hand else DECLINED) else "good"
        )
        yield workflow, Order(f"c{customer}-{number:04d}", sku, rng.randrange(300, 30_000), card)
