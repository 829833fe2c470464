"""A shop whose orders come from a broker and whose notices go to one: for the storm, which kills everything."""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass

import makegood as mg

BOOKS = os.environ.get("MAKEGOOD_TEST_BOOKS", "")
SOURCE = os.environ.get("MAKEGOOD_TEST_SOURCE", "amqp:main/orders")
NOTICES = os.environ.get("MAKEGOOD_TEST_NOTICES")

shop = mg.App("shop")
stock = shop.agent("stock")


@dataclass
class Order:
    """What is ordered."""

    order: str


def _write(key: str, order: str, *, stands: bool) -> None:
    with closing(sqlite3.connect(BOOKS, timeout=60)) as books, books:
        books.execute(
            "insert into hold (key, the_order, stands) values (?, ?, ?) on conflict (key) do update set stands = ?",
            (key, order, stands, stands),
        )


@stock.action(complete_within="10s", remembers=True)
def reserve(order: Order) -> str:
    """Write the order down, once for each key."""
    _write(mg.current_call().key, order.order, stands=True)
    return order.order


@reserve.undo
def release(order: Order, *, result: str | None) -> None:
    """Strike it out."""
    _write(mg.current_call().undoes or "", order.order, stands=False)


@shop.workflow
def place(order: Order) -> str:
    """Reserve what is ordered."""
    return reserve(order)


@shop.inbox(SOURCE, lease="5s")
def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
    """Make a task of each message; the broker's id alone says which are the same."""
    return place.plan(order).with_(reply_to=NOTICES, correlation_id=order.order)
