"""A shop that processes of two versions run side by side; each effect is a line of the file EFFECTS, with the version's name."""

import os
import time
from pathlib import Path

import makegood as mg

shop = mg.App("shop")
stock = shop.agent("stock", concurrency=4)
bank = shop.agent("bank", concurrency=4)


def note(what: str, order: int) -> None:
    """Append an effect in one write."""
    call = mg.current_call()
    line = f"{os.environ['VERSION']} {what} {order} {call.attempt}\n"
    with Path(os.environ["EFFECTS"]).open("ab", buffering=0) as file:
        file.write(line.encode())


@stock.action(complete_within="3s", retry=mg.Retry(tries=2, wait="50ms"))
def reserve(order: int) -> str:
    """Set something aside; takes a while, so that kills meet it."""
    time.sleep(0.3)
    note("reserve", order)
    return f"hold-{order}"


@reserve.undo
def release(order: int, *, result: str | None) -> None:
    """Take it back."""
    note("release", order)


@bank.action(complete_within="3s")
def charge(order: int, hold: str) -> str:
    """Charge; every fifth card is refused, every seventh call fails at first."""
    if order % 5 == 0:
        raise mg.Permanent("card refused")
    if order % 7 == 0 and mg.current_call().attempt == 1:
        raise ConnectionError("the bank was restarted")
    note("charge", order)
    return f"paid-{order}"


@charge.undo
def refund(order: int, *, result: str | None) -> None:
    """Pay back."""
    note("refund", order)


@shop.workflow(complete_within="5m")
def place(order: int) -> str:
    """Reserve, then charge."""
    return charge(order, reserve(order))
