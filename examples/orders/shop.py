"""A shop whose orders end whole: every step done, or every effect undone.

Run it with ``makegood run orders.shop:shop``; the environment variable ``MAKEGOOD_DEMO_SERVICES`` says where the remote
services are. Three agents, each wrapping one service; every action says how it is made good::

    reserve ── charge ──┬── book ──┬── email ── ship
    (stock)  (payments) │ (carrier)│ (carrier)  (carrier)
                        └── pack ──┘
                           (stock)

The lengths of time are short so that a demo heals while one watches; in earnest they are seconds to minutes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import makegood as mg

from . import remote

RETRY: Final = mg.Retry(tries=3, wait="100ms", factor=2)
"""Within one attempt, while its complete-by allows: a service that hiccups."""
RECOVER: Final = mg.Recover(threshold=4, wait="500ms", extended="3s", then="undo")
"""From attempt to attempt: a service that is down, an agent that died."""
PATIENCE: Final = 1.0
"""Seconds to wait for one answer where asking again under the same key is cheap."""

shop = mg.App("shop")
stock, payments, carrier = shop.agent("stock"), shop.agent("payments", concurrency=20), shop.agent("carrier")


@dataclass
class Order:
    """What a customer wants. ``sku`` "sold-out" and ``card`` "declined" are refused by the services, always."""

    id: str
    sku: str
    cents: int
    card: str = "good"


@contextmanager
def verdicts() -> Iterator[None]:
    """Say in makegood's words what the service said. Anything else that is raised counts as transient."""
    try:
        yield
    except remote.Declined as no:
        raise mg.Permanent(str(no)) from no
    except remote.AlreadyUndone as gone:
        raise mg.Refused(str(gone)) from gone
    except remote.Busy as busy:
        raise mg.Later(busy.wait, str(busy)) from busy


def goods(order: Order) -> dict[str, object]:
    """What every service is told of an order."""
    return {"order_id": order.id, "sku": order.sku, "cents": order.cents}


@stock.action(complete_within="4s", retry=RETRY, recover=RECOVER)
async def reserve(order: Order) -> str:
    """Hold the goods; return the hold's id."""
    with verdicts():
        answer = await remote.ask_async(mg.current_call(), "stock/reserve", goods(order), patience=PATIENCE)
    return answer.id


@reserve.undo
async def release(order: Order, *, result: str | None) -> None:
    """Let the goods go. ``result`` is None when in doubt: the service goes by the key, and knows."""
    with verdicts():
        facts = {**goods(order), "hold": result}
        await remote.ask_async(mg.current_call(), "stock/release", facts, patience=PATIENCE)


@payments.action(complete_within="3s", retry=RETRY, recover=RECOVER)
def charge(order: Order, hold: str) -> str:
    """Take the money; return the payment's id. Waits as long as it may: a silent bank is the Supervisor's case."""
    with verdicts():
        facts = {**goods(order), "card": order.card, "hold": hold}
        return remote.ask(mg.current_call(), "payments/charge", facts).id


@charge.probe
def find_charge(order: Order, hold: str) -> mg.Happened[str] | mg.NotHappened:
    """Ask the bank whether the charge happened, before anything is repeated or refunded."""
    with verdicts():
        found = remote.ask(
            mg.current_call(), "payments/find", {"order_id": order.id, "hold": hold}, patience=PATIENCE
        )
    return mg.Happened(found.id) if found.happened else mg.NOT_HAPPENED


@charge.undo
def refund(order: Order, *, result: str | None) -> None:
    """Give the money back, if it was taken."""
    with verdicts():
        facts = {**goods(order), "payment": result}
        remote.ask(mg.current_call(), "payments/refund", facts, patience=PATIENCE)


@carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER)
async def book(order: Order) -> str:
    """Order a van; return the booking's id."""
    with verdicts():
        answer = await remote.ask_async(mg.current_call(), "carrier/book", goods(order), patience=PATIENCE)
    return answer.id


@book.probe(fences=True)
async def find_booking(order: Order) -> mg.Happened[str] | mg.NotHappened:
    """Ask for the booking, and have every older request refused from then on: "not happened" is final then."""
    with verdicts():
        facts = {"order_id": order.id, "fences": True}
        found = await remote.ask_async(mg.current_call(), "carrier/find", facts, patience=PATIENCE)
    return mg.Happened(found.id) if found.happened else mg.NOT_HAPPENED


@book.undo
async def cancel(order: Order, *, result: str | None) -> None:
    """Send the van away."""
    with verdicts():
        facts = {**goods(order), "booking": result}
        await remote.ask_async(mg.current_call(), "carrier/cancel", facts, patience=PATIENCE)


@stock.action(complete_within="4s", retry=RETRY, recover=RECOVER)
def pack(order: Order, hold: str) -> str:
    """Put the goods in a box; return the parcel's id."""
    with verdicts():
        facts = {**goods(order), "hold": hold}
        return remote.ask(mg.current_call(), "stock/pack", facts, patience=PATIENCE).id


@pack.undo
def unpack(order: Order, *, result: str | None) -> None:
    """Put the goods back on the shelf."""
    with verdicts():
        facts = {**goods(order), "parcel": result}
        remote.ask(mg.current_call(), "stock/unpack", facts, patience=PATIENCE)


@carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER, undo=mg.NOTHING)
def email(order: Order, payment: str) -> None:
    """Tell the customer. A mail that was sent stays sent; it is harmless, and listed when the order is undone."""
    with verdicts():
        remote.ask(
            mg.current_call(), "carrier/email", {**goods(order), "payment": payment}, patience=PATIENCE
        )


@carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER)
async def ship(order: Order, booking: str, parcel: str) -> str:
    """Send the parcel on its way; return the tracking number."""
    with verdicts():
        facts = {**goods(order), "booking": booking, "parcel": parcel}
        answer = await remote.ask_async(mg.current_call(), "carrier/ship", facts, patience=PATIENCE)
    return answer.id


@ship.undo
async def recall(order: Order, *, result: str | None) -> None:
    """Have the parcel brought back."""
    with verdicts():
        facts = {**goods(order), "tracking": result}
        await remote.ask_async(mg.current_call(), "carrier/recall", facts, patience=PATIENCE)


@shop.workflow(complete_within="2m", on_failure="undo")
def place_order(order: Order) -> str:
    """Reserve, charge, book and pack at once, tell the customer, ship; return the tracking number."""
    hold = reserve(order)
    payment = charge(order, hold)
    booking, parcel = mg.parallel(book(order), pack(order, hold))
    email(order, payment)
    return ship(order, booking, parcel)
