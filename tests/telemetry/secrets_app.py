"""An app whose inputs, results and mistakes all carry what must not come into logs, for a process of its own."""

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Any

import makegood as mg

log = logging.getLogger("leaky")
app = mg.App("leaky")
desk = app.agent("desk")
ONCE = mg.Retry(tries=1)
QUICKLY = mg.Recover(threshold=1, wait="1ms", extended="2ms")


class Card(Enum):
    """A kind of card."""

    VISA = "visa"


@dataclass
class Order:
    """What is ordered. ``secret`` goes through every payload."""

    secret: str
    how: str


@desk.action(complete_within="1m")
async def hold(order: Order) -> str:
    """Hold goods; the result is a payload too."""
    log.warning("holding")
    return f"held for {order.secret}"


@hold.undo
async def release(order: Order, *, result: str | None) -> None:
    """Give goods back, which fails when it is to."""
    if order.how == "stuck":
        raise mg.Permanent("locked")


@desk.action(complete_within="1m", retry=ONCE, recover=QUICKLY, undo=mg.NOTHING)
def charge(order: Order, held: str) -> Any:
    """Do what the order says; a thread writes lines as well."""
    log.warning("charging")
    if order.how == "down":
        raise ConnectionError("the bank is down")
    if order.how == "odd":
        return mg.Happened(order.secret)
    if order.how == "unfit":
        return {order.secret: object()}
    if order.how == "stuck":
        raise mg.Permanent("no")
    return order.secret


@desk.action(complete_within="1m", undo=mg.NOTHING)
def note(card: Card) -> str:
    """Take a value that may not fit."""
    return card.value


@app.workflow()
def buy(order: Order) -> Any:
    """Hold, charge, note what the bank said."""
    payment = charge(order, hold(order))
    note(payment)
    return payment
