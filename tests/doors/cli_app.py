"""A small app for the tests of the command line, with services that do what an order's ``card`` says."""

import asyncio
from dataclasses import dataclass

import makegood as mg

RUDE = "card\x1b[2J refused\n\x9b0m\tby \u202eknab\x07"
"""What a service may say that would steer a terminal."""

kiosk = mg.App("kiosk")
stock, till = kiosk.agent("stock"), kiosk.agent("till", concurrency=5)


@dataclass
class Order:
    """``card``: good; declined is refused for good; stuck is refused too, and its goods cannot be given back; slow never
    answers, later is asked to wait; rude and rude-stuck are refused in words that would steer a terminal.
    """

    id: str
    cents: int = 100
    card: str = "good"


@stock.action(complete_within="1m")
def reserve(order: Order) -> str:
    """Hold the goods."""
    return f"hold-{order.id}"


@reserve.undo
def release(order: Order, *, result: str | None) -> None:
    """Give the goods back."""
    if order.card == "stuck":
        raise mg.Permanent("the stock room is locked")
    if order.card == "rude-stuck":
        raise mg.Permanent(RUDE)


@till.action(complete_within="2m")
async def charge(order: Order, hold: str) -> str:
    """Take the money."""
    if order.card in ("declined", "stuck"):
        raise mg.Permanent("card refused")
    if order.card.startswith("rude"):
        raise mg.Permanent(RUDE)
    if order.card == "later":
        raise mg.Later("1h", "nobody has answered yet\nask again tomorrow")
    if order.card == "slow":
        await asyncio.Event().wait()
    return f"paid-{order.cents}-for-{hold}"


@charge.undo
def refund(order: Order, *, result: str | None) -> None:
    """Give the money back."""


@till.action(complete_within="1m", undo=mg.NOTHING)
def print_receipt(order: Order, note: str) -> str:
    """Print a receipt."""
    return f"{order.id} {note}".strip()


@kiosk.workflow(complete_within="5m")
def buy(order: Order, note: str = "") -> str:
    """Buy something: hold the goods, take the money, print a receipt."""
    if order.cents < 0:
        raise ValueError("cents must not be negative")
    payment = charge(order, reserve(order))
    print_receipt(order, note)
    return payment


@kiosk.inbox("orders", retry=mg.Retry(tries=1))
def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
    """Take an order from the queue."""
    return buy.plan(order).with_(key=order.id)
