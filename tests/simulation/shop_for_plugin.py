"""A small shop whose tests are run by pytest itself: `pytester` copies this file into its folder."""

import asyncio
from typing import Any

import makegood as mg

shop = mg.App("shop")
stock, payments, post = shop.agent("stock"), shop.agent("payments"), shop.agent("post")


class Remote:
    """Where the services are; each test puts its own here."""

    warehouse: Any = None
    bank: Any = None
    letters: Any = None


@stock.action(complete_within="20s")
async def reserve(order: str) -> str:
    return str(await Remote.warehouse.do(order, headers=mg.current_call().headers))


@reserve.undo
async def release(order: str, *, result: str | None) -> None:
    await Remote.warehouse.undo(result, headers=mg.current_call().headers)


@payments.action(complete_within="30s")
async def charge(order: str, hold: str) -> str:
    return str(await Remote.bank.do(order, 990, headers=mg.current_call().headers))


@charge.undo
async def refund(order: str, *, result: str | None) -> None:
    await Remote.bank.undo(result, headers=mg.current_call().headers)


@payments.action(complete_within="30s")
async def charge_without_key(order: str, hold: str) -> str:
    return str(await Remote.bank.do(order, 990))


@charge_without_key.undo
async def refund_what_is_known(order: str, *, result: str | None) -> None:
    if result is not None:
        await Remote.bank.undo(result)


@payments.action(complete_within="30s", remembers=True)
async def charge_settled(order: str, hold: str) -> str:
    return str(await Remote.bank.do(order, 990, headers=mg.current_call().headers))


@charge_settled.undo
async def refund_settled(order: str, *, result: str | None) -> None:
    await Remote.bank.undo(result, headers=mg.current_call().headers)


@payments.action(complete_within="30s")
def charge_in_a_thread(order: str, hold: str) -> str:
    return str(Remote.bank.blocking.do(order, 990, headers=mg.current_call().headers))


@charge_in_a_thread.undo
def refund_in_a_thread(order: str, *, result: str | None) -> None:
    Remote.bank.blocking.undo(result, headers=mg.current_call().headers)


@post.action(complete_within="30s", retry=mg.NEVER)
async def stamp(order: str) -> str:
    return str(await Remote.letters.do(order))


@stamp.probe
async def find_stamp(order: str) -> mg.Happened[str] | mg.NotHappened:
    answer: mg.Happened[str] | mg.NotHappened = await Remote.letters.probe(order)
    return answer


@stamp.undo
async def unstamp(order: str, *, result: str | None) -> None:
    await Remote.letters.undo(result)


@stock.action(complete_within="3h", undo=mg.NOTHING)
async def mature(order: str) -> str:
    await asyncio.sleep(7200)
    return "ripe"


@shop.workflow(complete_within="2h")
def place_order(order: str) -> str:
    return charge(order, reserve(order))


@shop.workflow(complete_within="2h")
def naive_order(order: str) -> str:
    return charge_without_key(order, reserve(order))


@shop.workflow(complete_within="2h")
def settled_order(order: str) -> str:
    return charge_settled(order, reserve(order))


@shop.workflow(complete_within="2h")
def threaded_order(order: str) -> str:
    return charge_in_a_thread(order, reserve(order))


@shop.workflow(complete_within="2h")
def letter(order: str) -> str:
    return stamp(order)


@shop.workflow(complete_within="1d")
def slow_order(order: str) -> str:
    hold = reserve(order)
    mature(order)
    return charge(order, hold)
