"""What type checkers must refuse: each line marked ``# wrong`` is an error in mypy and in pyright, no other line is."""

from dataclasses import dataclass

import makegood as mg

from api import Order, Parcel, approval, carrier, charge, email, place_order, reserve, ship, shop, split, stock


async def calls(order: Order, client: mg.Client, blocking: mg.SyncClient) -> None:
    charge(order, 3)  # wrong: type of an argument
    charge(order)  # wrong: an argument is missing
    charge(order, reserve(order), x=1)  # wrong: no such parameter
    ship(order, "h").nope  # wrong: no such attribute
    await client.submit(place_order, "no")  # wrong: type of an input
    await client.submit(place_order)  # wrong: an input is missing
    await client.submit(place_order, order, kee="x")  # wrong: no such option
    await client.submit(place_order.plan(order), order)  # wrong: a plan has its inputs
    await client.submit(charge.fn, order)  # wrong: an input is missing
    blocking.submit(place_order, "no")  # wrong: type of an input
    place_order.plan(order, gift=True)  # wrong: no such input
    a, b, c = mg.parallel(ship(order, "h"), email(order, "p"))  # wrong: two steps, three names
    mg.branches(ship(order, "h"), email(order, "p"))  # wrong: functions, not steps
    mg.each(split(order), ship)  # wrong: a body with one parameter
    mg.each(ship(order, "h"), lambda item: email(order, "p"))  # wrong: not a list
    mg.when("yes", then=lambda: ship(order, "h"))  # wrong: not a condition
    mg.when(ship(order, "h").no == "x", then=ship(order, "h"))  # wrong: a function, not a step
    mg.sleep(split(order))  # wrong: not a length of time
    mg.sleep_until("tomorrow")  # wrong: a datetime
    mg.when(ship(order, "h").no == "x", then=lambda: mg.fail(3))  # wrong: a text
    await reserve(order)  # wrong: in a workflow nothing is awaited, in a unit test it is reserve.fn
    number: int = charge(order, "h")  # wrong: type of a result
    first: int = mg.first(charge(order, "h"), reserve(order))  # wrong: type of the winner's result
    both: str = mg.first(lambda: reserve(order), lambda: ship(order, "h"))  # wrong: one of two types
    plan: mg.Plan[int] = place_order.plan(order)  # wrong: type of a workflow's result
    mg.wait_for(approval, otherwise=None)  # wrong: without a timeout
    mg.wait_for("approval")  # wrong: the type of its value is missing
    mg.wait_for(approval).nope  # wrong: no such attribute
    mg.wait_for(approval, timeout=order)  # wrong: type of an option
    days: int = mg.wait_for("days", str)  # wrong: type of its value
    mg.Retry(attempts=3)  # wrong: no such option
    mg.Recover(then="panic")  # wrong: undo or hold


@charge.probe  # wrong: the probe has the action's parameters
def too_few(order: Order) -> mg.Happened[str] | mg.NotHappened:
    return mg.NOT_HAPPENED


@charge.probe  # wrong: what the action would have returned
def other_result(order: Order, hold: str) -> mg.Happened[int] | mg.NotHappened:
    return mg.NOT_HAPPENED


@charge.probe  # wrong: Happened(result) or NOT_HAPPENED
def bare_result(order: Order, hold: str) -> str | None:
    return None


@ship.probe(fences=True)  # wrong: the same with options
async def other_parcel(order: Order, hold: str) -> mg.Happened[str] | mg.NotHappened:
    return mg.NOT_HAPPENED


@stock.action  # wrong: its options are missing
def bare(order: Order) -> None: ...


@stock.action()  # wrong: how long it may take
def endless(order: Order) -> None: ...


@stock.action(complete_within="1m", undo=mg.NOTHING, no_return=True)  # wrong: the one or the other
def both(order: Order) -> None: ...


@stock.action(complete_within="1m", undo="nothing")  # wrong: mg.NOTHING
def text(order: Order) -> None: ...


@stock.action(complete_within="1m", retry=3)  # wrong: mg.Retry
def number_of_tries(order: Order) -> None: ...


@carrier.action(complete_within="1m", fast=True)  # wrong: no such option
def unknown_option(order: Order) -> None: ...


@shop.workflow(on_failure="stop")  # wrong: undo or hold
def stop(order: Order) -> None: ...


async def signals(client: mg.Client, approval: mg.Signal[bool], ping: mg.Signal[None], order: Order) -> None:
    task = await client.submit(place_order, order)
    await client.signal(task, approval, "yes")  # wrong: type of the value
    await client.signal(task, approval)  # wrong: the value is missing
    await client.signal(place_order, approval, True)  # wrong: the key is missing
    await client.signal(task, approval, True, kee="x")  # wrong: no such option
    await task.signal(approval, 1)  # wrong: type of the value
    await task.signal(approval, True, until="charge", connection=client)  # wrong: until with a connection
    await client.signal(task, approval, True, until=7)  # wrong: neither a step's name nor an action
    approval.of(place_order, key=order.id, value=7)  # wrong: type of the value
