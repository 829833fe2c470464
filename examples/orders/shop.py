"""A shop whose orders end whole: every step done, or every effect undone.

Run it with ``makegood run orders.shop:shop``; the environment variable ``MAKEGOOD_DEMO_SERVICES`` says where the remote
services are. Three agents, each wrapping one service; every action says how it is made good::

    reserve ── charge ──┬── book ──┬── (approval) ── email ── ship
    (stock)  (payments) │ (carrier)│                (carrier)  (carrier)
                        └── pack ──┘
                           (stock)

An order above a limit waits for somebody's approval before it ships; without it, the order is undone. At night the bank pays
out the day's takings: a schedule, which the demo triggers once.

The lengths of time are short so that a demo heals while one watches; in earnest they are seconds to minutes.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import makegood as mg

from . import remote

ORDERS_VARIABLE: Final = "MAKEGOOD_DEMO_ORDERS"
"""Where orders come from: a queue of the store, or a place at a broker, such as ``amqp:main/orders``."""
NOTICES_VARIABLE: Final = "MAKEGOOD_DEMO_NOTICES"
"""Where every state of an order is sent to, such as ``amqp:main/notices``; unset: where its sender wants it."""
RETRY: Final = mg.Retry(tries=3, wait="100ms", factor=2)
"""Within one attempt, while its complete-by allows: a service that hiccups."""
RECOVER: Final = mg.Recover(threshold=4, wait="500ms", extended="3s", then="undo", resume="dead")
"""From attempt to attempt: a service that is down, an agent that died."""
PATIENCE: Final = 1.0
"""Seconds to wait for one answer where asking again under the same key is cheap."""

BREAKER: Final = mg.Breaker(failures=5, reset="3s")
"""When a service is silent, an agent stops calling it, and tries one call after a while."""
LIMIT: Final = 30_000
"""Cents up to which an order ships without anybody's approval."""
DECIDE_WITHIN: Final = "1m"
"""For how long an order waits for its approval; then the answer is no."""
NOT_APPROVED: Final = "the order was not approved"
TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS shop_orders (id TEXT PRIMARY KEY, sku TEXT NOT NULL, cents INTEGER NOT NULL)"
)
"""The shop's own table, in the store's database."""
INSERT: Final = {
    "sqlite": "INSERT INTO shop_orders (id, sku, cents) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
    "postgres": "INSERT INTO shop_orders (id, sku, cents) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
}
"""An order's row, as each store's driver writes it."""

shop = mg.App("shop")
stock, carrier = shop.agent("stock"), shop.agent("carrier")
payments = shop.agent("payments", concurrency=20, breaker=BREAKER)


@dataclass
class Order:
    """What a customer wants. ``sku`` "sold-out", ``card`` "declined" and the shipping of an "anvil" are always refused."""

    id: str
    sku: str
    cents: int
    card: str = "good"


@dataclass
class Approval:
    """Somebody's answer to a large order. ``by``: who gave it, as the carrier's papers have it."""

    yes: bool
    by: str = ""


approval = shop.signal("approval", Approval)


@contextmanager
def verdicts() -> Iterator[None]:
    """Say in makegood's words what the service said. Anything else that is raised counts as transient."""
    try:
        yield
    except remote.Declined as no:
        raise mg.Permanent(str(no)) from no
    except remote.AlreadyUndone as error:
        raise mg.Refused(str(error)) from error
    except remote.Busy as busy:
        raise mg.Later(busy.wait, str(busy)) from busy


def facts(order: Order, more: Mapping[str, object]) -> dict[str, object]:
    """What a service is told of an order, and what it needs besides."""
    return {"order_id": order.id, "sku": order.sku, "cents": order.cents, **more}


def ask(place: str, order: Order, *, patience: float | None = PATIENCE, **more: object) -> remote.Answer:
    """Ask a service ("service/operation") for this call; key, token and scope travel in the headers."""
    with verdicts():
        return remote.ask(mg.current_call(), place, facts(order, more), patience=patience)


async def ask_async(place: str, order: Order, **more: object) -> remote.Answer:
    """As ``ask``, from an ``async def`` action."""
    with verdicts():
        return await remote.ask_async(mg.current_call(), place, facts(order, more), patience=PATIENCE)


@stock.action(complete_within="4s", retry=RETRY, recover=RECOVER)
async def reserve(order: Order) -> str:
    """Hold the goods; return the hold's id."""
    return (await ask_async("stock/reserve", order)).id


@reserve.undo
async def release(order: Order, *, result: str | None) -> None:
    """Let the goods go. ``result`` is None when in doubt: the service goes by the key, and knows."""
    await ask_async("stock/release", order, hold=result)


@payments.action(complete_within="3s", retry=RETRY, recover=RECOVER)
def charge(order: Order, hold: str) -> str:
    """Take the money; return the payment's id. Waits as long as it may: a silent bank is the Supervisor's case."""
    return ask("payments/charge", order, patience=None, card=order.card, hold=hold).id


@charge.probe
def find_charge(order: Order, hold: str) -> mg.Happened[str] | mg.NotHappened:
    """Ask the bank whether the charge happened, before anything is repeated or refunded."""
    answer = ask("payments/find", order, hold=hold)
    return mg.Happened(answer.id) if answer.happened else mg.NOT_HAPPENED


@charge.undo
def refund(order: Order, *, result: str | None) -> None:
    """Give the money back, if it was taken."""
    ask("payments/refund", order, payment=result)


@carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER)
async def book(order: Order) -> str:
    """Order a van; return the booking's id."""
    return (await ask_async("carrier/book", order)).id


@book.probe(fences=True)
async def find_booking(order: Order) -> mg.Happened[str] | mg.NotHappened:
    """Ask for the booking, and have every older request refused from then on: "not happened" is final then."""
    answer = await ask_async("carrier/find", order, fences=True)
    return mg.Happened(answer.id) if answer.happened else mg.NOT_HAPPENED


@book.undo
async def cancel(order: Order, *, result: str | None) -> None:
    """Send the van away."""
    await ask_async("carrier/cancel", order, booking=result)


@stock.action(complete_within="4s", retry=RETRY, recover=RECOVER)
def pack(order: Order, hold: str) -> str:
    """Put the goods in a box; return the parcel's id."""
    return ask("stock/pack", order, hold=hold).id


@pack.undo
def unpack(order: Order, *, result: str | None) -> None:
    """Put the goods back on the shelf."""
    ask("stock/unpack", order, parcel=result)


@carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER, undo=mg.NOTHING)
def email(order: Order, payment: str) -> None:
    """Tell the customer. A mail that was sent stays sent; it is harmless, and listed when the order is undone."""
    ask("carrier/email", order, payment=payment)


@carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER)
async def ship(order: Order, booking: str, parcel: str, approved_by: str = "") -> str:
    """Send the parcel on its way; return the tracking number. ``approved_by``: whose approval the papers name."""
    more = {"booking": booking, "parcel": parcel, "approved_by": approved_by}
    return (await ask_async("carrier/ship", order, **more)).id


@ship.undo
async def recall(order: Order, *, result: str | None) -> None:
    """Have the parcel brought back."""
    await ask_async("carrier/recall", order, tracking=result)


@shop.workflow(complete_within="2m", on_failure="undo")
def place_order(order: Order) -> str:
    """Reserve, charge, book and pack at once, tell the customer, ship; return the tracking number.

    An order above the limit waits for its approval before the customer hears of it.
    """
    hold = reserve(order)
    payment = charge(order, hold)
    booking, parcel = mg.parallel(book(order), pack(order, hold))
    if order.cents <= LIMIT:
        email(order, payment)
        return ship(order, booking, parcel)
    answer = mg.wait_for(approval, timeout=DECIDE_WITHIN, otherwise=Approval(yes=False))
    mg.when(mg.not_(answer.yes), then=lambda: mg.fail(NOT_APPROVED))
    email(order, payment)
    return ship(order, booking, parcel, answer.by)


def night(at: datetime) -> Order:
    """Return what a settlement is at the services, which know orders only: an id, and no goods."""
    return Order(f"settlement-{at.isoformat()}", "", 0)


@payments.action(complete_within="3s", retry=RETRY, recover=RECOVER)
def settle(at: datetime) -> int:
    """Have the bank pay out what it took and did not pay out before, refunds deducted; return the cents."""
    return ask("payments/settle", night(at)).cents


@settle.undo
def reverse(at: datetime, *, result: int | None) -> None:
    """Pay it back to the bank: the next settlement has it."""
    ask("payments/reverse", night(at), paid_out=result)


@carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER, undo=mg.NOTHING)
def report(at: datetime, cents: int) -> None:
    """Tell the accountant what was paid out."""
    ask("carrier/email", night(at), paid_out=cents)


@shop.schedule(cron="30 1 * * *", timezone="Europe/Berlin")
@shop.workflow(complete_within="2m", on_failure="undo")
def settle_day(at: datetime) -> int:
    """Have the day's takings paid out, and tell the accountant; return the cents."""
    cents = settle(at)
    report(at, cents)
    return cents


async def settle_now(client: mg.Client, why: str) -> mg.TaskHandle[int]:
    """Have the takings paid out now, whatever the time: what an operator does with ``makegood schedule trigger settle_day``."""
    schedule = await client.find_schedule(settle_day.name, app=shop.name)
    return await schedule.trigger(why=why)


@shop.inbox(os.environ.get(ORDERS_VARIABLE, "orders"), lease="5s")
def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
    """Make a task of an order's message: the order's row, the task and the acknowledgement are one transaction.

    A killed process keeps the messages that it has until their lease ends, whoever takes its place.
    """
    tx.execute(INSERT[tx.caller.dialect], (order.id, order.sku, order.cents))
    return place_order.plan(order).with_(key=order.id, reply_to=os.environ.get(NOTICES_VARIABLE))
