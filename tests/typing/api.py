# pyright: strict
"""What users write, as type checkers must accept it: checked by mypy --strict and pyright, never run.

``assert_type`` states what each checker infers; a line that is wrong on purpose belongs into ``wrong.py``.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, assert_type

import makegood as mg

shop = mg.App("shop")
stock, payments, carrier = shop.agent("stock"), shop.agent("payments", concurrency=20), shop.agent("carrier")


@dataclass
class Order:
    id: str
    sku: str
    cents: int


@dataclass
class Parcel:
    no: str
    weight: int
    fragile: bool = False


@dataclass
class Approval:
    yes: bool
    note: str = ""


@stock.action(complete_within="20s")
async def reserve(order: Order) -> str:
    return order.sku


@reserve.undo
async def release(order: Order, *, result: str | None) -> None:
    assert_type(mg.current_call().in_doubt, bool)


@payments.action(
    complete_within="30s",
    retry=mg.Retry(tries=4, wait="200ms", factor=2),
    recover=mg.Recover(threshold=3, wait="5s", extended="5m", then="undo"),
)
def charge(order: Order, hold: str) -> str:
    call = mg.current_call()
    assert_type(call, mg.Call)
    assert_type(call.key, str)
    assert_type(call.undoes, str | None)
    assert_type(call.headers, dict[str, str])
    assert_type(call.remaining(), float)
    call.check()
    call.extend("1m")
    if order.cents > 100:
        raise mg.Permanent("card refused")
    if order.cents > 50:
        raise mg.Later("120")
    return hold


@charge.probe
def find_charge(order: Order, hold: str) -> mg.Happened[str] | mg.NotHappened:
    return mg.Happened(hold) if order.cents else mg.NOT_HAPPENED


@charge.undo
def refund(order: Order, *, result: str | None) -> None: ...


@carrier.action(complete_within=timedelta(minutes=1), remembers=True)
async def ship(order: Order, hold: str) -> Parcel:
    await mg.current_call().extend(30)
    return Parcel(order.id, 1)


@ship.probe(fences=True)
async def find_parcel(order: Order, hold: str) -> mg.Happened[Parcel] | mg.NotHappened:
    return mg.NOT_HAPPENED


@ship.undo(complete_within="2m", recover=mg.Recover(threshold=5))
async def recall(*, result: Parcel | None) -> None: ...


@carrier.action(
    complete_within=60, undo=mg.NOTHING, name="mail", formerly=("post",), key=mg.keys.RESEND, keeps="1d"
)
def email(order: Order, payment: str, *, copy: bool = False) -> None:
    call = mg.current_call()
    key: str = call.key_as("uuid") + call.key_as(length=28)
    undoes: str | None = call.undoes_as("uuid")
    print(key, undoes, call.first_sent.isoformat(), mg.keys.Preset("own", form="uuid"))


@carrier.action(complete_within="1m", no_return=True, retry=mg.NEVER)
def hand_over(parcel: Parcel) -> bool:
    return parcel.fragile


@hand_over.probe
def was_handed_over(parcel: Parcel) -> mg.Happened[bool] | mg.NotHappened:
    return mg.NOT_HAPPENED


@stock.action(complete_within="1m", undo=mg.NOTHING)
def split(order: Order) -> list[Parcel]:
    return []


@stock.action(complete_within="1m", undo=mg.NOTHING)
def measure(order: Order) -> dict[str, tuple[int, str]]:
    return {}


@stock.action(complete_within="30s", undo=mg.NOTHING)
def measured(order: Order) -> timedelta:
    return timedelta(1)


@stock.action(complete_within="30s", undo=mg.NOTHING)
def moved(order: Order) -> datetime:
    return datetime.now().astimezone()


# -- the functions stay what they were, for unit tests ---------------------------------------------------------------------


async def unit_tests(order: Order) -> None:
    assert_type(charge.fn(order, "hold"), str)
    assert_type(charge.fn(order, hold="hold"), str)
    assert_type(await reserve.fn(order), str)
    assert_type(find_charge(order, "hold"), mg.Happened[str] | mg.NotHappened)
    assert_type(await find_parcel(order, "hold"), mg.Happened[Parcel] | mg.NotHappened)
    refund(order, result=None)
    await release(order, result="hold")
    await recall(result=None)
    find: Callable[[Order, str], Coroutine[Any, Any, mg.Happened[Parcel] | mg.NotHappened]] = find_parcel
    await find(order, "hold")


# -- workflows -------------------------------------------------------------------------------------------------------------


@shop.workflow(complete_within="2h", on_failure="undo")
def place_order(order: Order) -> str:
    hold = reserve(order)
    payment = charge(order, hold)
    parcel, _ = mg.parallel(ship(order, hold), email(order, payment, copy=True))
    assert_type(hold, str)
    assert_type(parcel, Parcel)
    return parcel.no


@shop.workflow(on_failure="hold", undo_within="1h", name="gift", formerly=["present"])
def place_gift(order: Order, wrapped: bool = False, *, note: str = "") -> list[str]:
    one, two, three = mg.branches(
        lambda: charge(order, reserve(order)),
        lambda: ship(order, "hold"),
        lambda: None,
    )
    assert_type(one, str)
    assert_type(two, Parcel)
    assert_type(three, None)
    choice = mg.when(two.no == "x", then=lambda: ship(order, "a").weight, otherwise=lambda: charge(order, "b"))
    assert_type(choice, int | str)
    maybe = mg.when(hand_over(two), then=lambda: reserve(order))
    assert_type(maybe, str | None)
    mg.when(
        mg.all_of(one == "a", mg.any_of(two.weight != 3, mg.not_(two.fragile))),
        then=lambda: email(order, "p"),
    )
    assert_type(measure(order)["box"][0], int)
    parcels = mg.each(split(order), lambda parcel: reserve(Order(parcel.no, "sku", 1)), limit=100, at_once=5)
    assert_type(parcels, list[str])
    mg.each(split(order), hand_over)
    mg.sleep("3d")
    mg.sleep(timedelta(days=3))
    mg.sleep(measured(order))
    mg.sleep_until(moved(order))
    mg.branches(lambda: mg.sleep(20), lambda: email(order, "p"))
    winner = mg.first(charge(order, "a"), measure(order))
    assert_type(winner, str | dict[str, tuple[int, str]])
    assert_type(mg.first(lambda: reserve(order), lambda: charge(order, "b")), str)
    assert_type(mg.first(*[reserve(order), charge(order, "c")]), str)
    early = mg.when(two.no == "x", then=lambda: ship(order, "a"), otherwise=lambda: mg.done(["no room"]))
    assert_type(early, Parcel)
    judged = mg.when(two.no == "x", then=lambda: ship(order, "a"), otherwise=lambda: mg.fail("no room"))
    assert_type(judged, Parcel)
    if wrapped and note:
        assert_type(place_order(order), str)
    return parcels


@shop.workflow
def touch(order: Order) -> None:
    email(order, "p")


approval = shop.signal("approval", Approval)
choice_of_size = shop.signal("size", Literal["s", "m"])


@shop.workflow(complete_within="14d")
def buy_with_approval(order: Order) -> str:
    answer = mg.wait_for(approval, timeout="7d")
    assert_type(answer, Approval)
    assert_type(mg.wait_for(approval), Approval)
    assert_type(mg.wait_for(approval, timeout=timedelta(days=1), otherwise=None), Approval | None)
    assert_type(mg.wait_for("weight", int), int)
    assert_type(mg.wait_for("weight", int, timeout=60, otherwise="none"), int | str)
    assert_type(choice_of_size, mg.Signal[Any])
    mg.when(answer.yes, then=lambda: charge(order, "hold"))
    return mg.when(answer.yes, then=lambda: charge(order, "hold"), otherwise=lambda: answer.note)


def plans(order: Order) -> None:
    assert_type(approval, mg.Signal[Approval])
    assert_type(place_order.plan(order), mg.Plan[str])
    assert_type(place_gift.plan(order, wrapped=True, note="for you").with_(key=order.id), mg.Plan[list[str]])
    assert_type(touch.plan(order), mg.Plan[None])
    print(place_order.plan(order).steps[0].name)
    plan: mg.Plan[object] = place_order.plan(order)
    print(plan)


# -- clients ---------------------------------------------------------------------------------------------------------------


async def submit(order: Order) -> None:
    async with mg.Client("sqlite:///shop.db") as client:
        task = await client.submit(place_order, order, key=order.id, priority=5, correlation_id="web-7")
        assert_type(task, mg.TaskHandle[str])
        try:
            assert_type(await task.result(timeout=60), str)
        except mg.TaskUndone as undo:
            print(undo.cause, undo.undone, undo.standing)
        except mg.TaskInError as error:
            print(error.cause, error.standing)
        gifts = await client.submit(place_gift, order, True)
        assert_type(await gifts.result(timeout="1m"), list[str])
        gift = await client.submit(place_gift.plan(order, note="for you"), key=order.id, priority=9)
        assert_type(gift, mg.TaskHandle[list[str]])
        await (await client.submit(touch, order)).result()
    async with mg.Node(shop, "sqlite:///shop.db") as node:
        assert_type(await (await node.client.submit(place_order, order)).result(), str)


def submit_blocking(order: Order) -> None:
    with mg.SyncClient("sqlite:///shop.db") as client:
        task = client.submit(place_order, order, key=order.id)
        assert_type(task, mg.SyncTaskHandle[str])
        assert_type(task.result(timeout=60), str)
        assert_type(client.submit(place_order.plan(order)), mg.SyncTaskHandle[str])


async def signals(
    client: mg.Client, blocking: mg.SyncClient, approval: mg.Signal[bool], ping: mg.Signal[None], order: Order
) -> None:
    task = await client.submit(place_order, order)
    assert_type(await client.signal(task, approval, True), mg.Signalled)
    await client.signal(task.id, approval, True, id="click-1", step="approval[3]", connection=object())
    await client.signal(place_order, approval, True, key=order.id, who="ann", why="by phone")
    await client.signal(place_order, "approval", {"any": "value"}, key=order.id)
    await client.signal(task, "approval")
    await client.signal(task, ping)
    await task.signal(approval, False, id="click-2")
    answer = blocking.signal(blocking.submit(place_order, order), approval, True)
    assert_type(answer.created, bool)
    blocking.task(answer.task).signal(ping)
    blocking.signal(place_order, approval, True, key=order.id, connection=object())
    assert_type(await client.signal(task, approval, True, until=reserve), str)
    assert_type(await client.signal(place_order, ping, key=order.id, until=ship, timeout="30s"), Parcel)
    assert_type(await client.signal(task, "approval", {"any": 1}, until=charge, id="click-3", why="asked"), str)
    assert_type(await task.signal(approval, True, until=ship), Parcel)
    assert_type(blocking.signal(place_order, approval, True, key=order.id, until=ship), Parcel)
    assert_type(blocking.task(task.id).signal(ping, until=reserve), str)
    print(await client.signal(task, approval, True, until="reserve[3]"), await task.signal(ping, until="ship"))
    assert_type(approval.of(place_order, key=order.id, value=True), mg.SignalByKey)
    assert_type((await task.status()).signals, tuple[mg.SignalView, ...])


class Pool:
    async def fetch(self, order: str) -> str:
        return order


@shop.setup
def settings() -> Iterator[dict[str, str]]:
    yield {}


@shop.setup
async def db(*, settings: dict[str, str] = mg.SETUP) -> AsyncIterator[Pool]:
    yield Pool()


@shop.setup
@asynccontextmanager
async def other_db() -> AsyncGenerator[Pool, None]:
    yield Pool()


@payments.action(complete_within="30s")
async def transfer(order: Order, *, db: Pool = mg.SETUP) -> str:
    return await db.fetch(order.id)


@transfer.undo
async def transfer_back(order: Order, *, result: str | None, db: Pool = mg.SETUP) -> None: ...


@shop.workflow
def move(order: Order) -> str:
    assert_type(transfer(order), str)
    return transfer(order)


async def with_fakes() -> None:
    assert_type(await transfer.fn(Order("7", "s", 1), db=Pool()), str)
    assert_type(mg.Node(shop, setups={"db": Pool()}), mg.Node)


@shop.inbox("approvals")
def approve(order: Order, tx: mg.Transaction) -> mg.SignalByKey | mg.Plan[str] | None:
    return None


def encoded(keys: dict[str, bytes], own: mg.codecs.Codec) -> None:
    chain = mg.codecs.Chain(mg.codecs.Compressed(above=100), mg.codecs.Encrypted(keys, errors="keep"), own)
    vault = mg.App("vault", codec=chain)
    assert_type(vault.signal("opened", bool, readable=True), mg.Signal[bool])
    safe = vault.agent("safe")

    @safe.action(complete_within="10s", undo=mg.NOTHING, readable=True)
    def is_open(name: str) -> bool:
        return bool(name)

    @vault.workflow
    def look(name: str) -> bool:
        return is_open(name)

    async def read(client: mg.Client) -> None:
        assert_type(await (await client.submit(look, "x")).result(), bool)

    assert callable(read)


async def put(name: str, data: bytes) -> None: ...


def get(name: str) -> bytes:
    return b""


assert_type(mg.codecs.Elsewhere(100, put, get), mg.codecs.Elsewhere)
mg.Client(codec=mg.codecs.Encrypted({}))
mg.SyncClient(codec=mg.codecs.Compressed())
