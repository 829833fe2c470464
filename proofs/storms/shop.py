"""The workflows of a storm: every shape and every recovery that makegood has, over services of all kinds.

``storm_app()`` makes the app, ``SERVICES_OF_STORM`` names its services, ``orders`` draws the submissions.
"""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from makegood.declare.action import Agent, AsyncAction
from makegood.declare.outcomes import NOTHING, Happened, NotHappened
from makegood.declare.signal import Signal
from makegood.errors import Permanent
from makegood.model.breaker import Breaker
from makegood.model.plan import Plan
from makegood.model.policy import NEVER, Recover, Retry
from makegood.testing.simulator.customers import Order
from makegood.transactions.transaction import Transaction
from makegood.workflow.app import App
from makegood.workflow.signal_waits import wait_for
from makegood.workflow.verbs import branches, done, each, fail, first, parallel, sleep, sleep_until, when
from proofs.storms import lanes
from proofs.storms.services import KEEPS, SERVICES, Kind, service
from proofs.storms.surroundings import ACCEPTING, ORDERS

SERVICES_OF_STORM: Final[Mapping[str, Kind]] = {
    "stock": "fenced", "payments": "fenced", "carrier": "fenced", "mail": "fenced", "bank": "keyed", "post": "bare",
}  # fmt: skip
ONCE: Final = frozenset({"storm/post"})
"""Agents whose services cannot bear a repeated request: theirs travel on a channel that delivers once."""

RETRY: Final = Retry(tries=2, wait="200ms", factor=2)
RECOVER: Final = Recover(threshold=2, wait="500ms", extended="3s", then="undo")
SOON: Final = Recover(threshold=1, wait="500ms", extended="2s", then="undo")
"""For steps whose keys are forgotten soon."""
HOLD: Final = Recover(threshold=1, wait="500ms", extended="2s", then="hold")


CONSENT: Final = "consent"
"""The signal that workflows wait for."""
ASKING: Final = ("approval", "approval_in_time", "approval_or_default", "approval_held")
"""Workflows that wait for a signal."""
BRIEFLY: Final = ("brief_order", "brief_hasty", "brief_held", "brief_settle")
"""Workflows of steps whose keys are forgotten soon."""
_BRIEF_WORLDS, _BRIEF_ORDERS = 0.3, 0.6
NAPS: Final = ("nap", "nap", "unwanted")
"""Workflows that wait."""
_NAP_WORLDS, _NAPS = 0.2, 0.5
RACES: Final = (
    "three_carriers",
    "three_carriers",
    "race_then_charge",
    "race_of_sequences",
    "race_or_nap",
    "early",
)
"""Workflows in which the first of several branches wins, and one that may end early."""
_RACE_WORLDS, _RACES = 0.15, 0.6
NOON: Final = 1_767_225_600.0
"""When a world begins, by the calendar."""

Reserve = AsyncAction[[str], str]
Pack = AsyncAction[[str, str], str]
Charge = AsyncAction[[str, str], str]
Email = AsyncAction[[str, str], None]
Book = AsyncAction[[str], str]
Ship = AsyncAction[[str, str, str], str]


def storm_app(*, breakers: bool = False) -> App:
    """Return the app; its workflows are found by name. ``breakers``: some agents have a breaker, and one a
    rate.
    """
    app = App("storm")
    breaker = Breaker(failures=2, reset="3s") if breakers else None
    stock, carrier = app.agent("stock", breaker=breaker), app.agent("carrier", breaker=breaker)
    payments = app.agent("payments", concurrency=3, breaker=breaker, rate="2/s" if breakers else None)
    reserve, pack, charge, email = _of_the_shop(app, stock, payments)
    book, ship = _of_the_carrier(carrier)

    @app.workflow(complete_within="2m")
    def place_order(order: str) -> str:
        hold = reserve(order)
        payment = charge(order, hold)
        booking, parcel = parallel(book(order), pack(order, hold))
        email(order, payment)
        return ship(order, booking, parcel)

    @carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER, undo=NOTHING)
    async def refuse(order: str) -> str:
        raise Permanent("nobody goes there")

    @app.workflow(complete_within="2m")
    def undone_order(order: str) -> str:
        payment = charge(order, reserve(order))
        booking, _ = parallel(book(order), pack(order, payment))
        email(order, booking)
        return refuse(order)

    @app.workflow(complete_within="5s")
    def hasty(order: str) -> str:
        hold = reserve(order)
        booking, parcel = parallel(book(order), pack(order, hold))
        return ship(order, booking, parcel)

    @app.workflow(complete_within="30s")
    def sequence(order: str) -> str:
        return charge(order, reserve(reserve(order)))

    @app.workflow(on_failure="hold")
    def held(order: str) -> str:
        return charge(order, reserve(order))

    @app.workflow(on_failure="hold")
    def held_apart(order: str) -> list[str]:
        booking, parcel, payment = parallel(book(order), pack(order, order), charge(order, order))
        return [booking, parcel, payment]

    @app.workflow(complete_within="2m")
    def lone(order: str) -> str:
        return reserve(order)

    _poisoned(app, stock)
    bank = _settling(app, reserve)
    _brief(app, (stock, payments, bank), reserve)
    _unkeyed(app, reserve)
    _shapes(app, stock, (reserve, pack, email))
    _approvals(app, reserve)
    _submission(app)
    _waits(app, reserve, charge)
    _races(app, (bank, carrier), (reserve, pack, charge), book)
    _ticks(app, reserve)
    lanes.declare(app, reserve, charge)
    return app


def _of_the_shop(app: App, stock: Agent, payments: Agent) -> tuple[Reserve, Pack, Charge, Email]:
    """Keys and tokens; a probe that only asks; a harmless effect."""
    mail = app.agent("mail")

    @stock.action(complete_within="4s", retry=RETRY, recover=RECOVER)
    async def reserve(order: str) -> str:
        return await service("stock").do()

    @reserve.undo
    async def release(order: str, *, result: str | None) -> None:
        await service("stock").undo()

    @payments.action(complete_within="3s", retry=RETRY, recover=RECOVER, key="uuid")
    async def charge(order: str, hold: str) -> str:
        return await service("payments").do()

    @charge.probe
    async def find_charge(order: str, hold: str) -> Happened[str] | NotHappened:
        return await service("payments").probe()

    @charge.undo(complete_within="2s")
    async def refund(order: str, *, result: str | None) -> None:
        await service("payments").undo()

    @stock.action(complete_within="4s", cancellable=True, retry=RETRY, recover=RECOVER)
    async def pack(order: str, hold: str) -> str:
        return await service("stock").do()

    @pack.undo
    async def unpack(order: str, *, result: str | None) -> None:
        await service("stock").undo()

    @mail.action(complete_within="4s", retry=RETRY, recover=RECOVER, undo=NOTHING)
    async def email(order: str, payment: str) -> None:
        await service("mail").do()

    return reserve, pack, charge, email


def _of_the_carrier(carrier: Agent) -> tuple[Book, Ship]:
    """Keys and tokens, and a probe that fences."""

    @carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER)
    async def book(order: str) -> str:
        return await service("carrier").do()

    @book.probe(fences=True)
    async def find_booking(order: str) -> Happened[str] | NotHappened:
        return await service("carrier").probe(fences=True)

    @book.undo
    async def unbook(order: str, *, result: str | None) -> None:
        await service("carrier").undo()

    @carrier.action(complete_within="4s", cancellable=True, retry=RETRY, recover=RECOVER)
    async def ship(order: str, booking: str, parcel: str) -> str:
        return await service("carrier").do()

    @ship.undo
    async def recall(order: str, *, result: str | None) -> None:
        await service("carrier").undo()

    return book, ship


def _poisoned(app: App, stock: Agent) -> None:
    """Steps that fail forever while the service answers others, or their own probe."""

    @stock.action(complete_within="4s", retry=RETRY, recover=RECOVER)
    async def stain(order: str) -> str:
        return await service("stock").do()

    @stain.undo
    async def bleach(order: str, *, result: str | None) -> None:
        await service("stock").undo()

    @stock.action(complete_within="4s", retry=RETRY, recover=RECOVER)
    async def stain_again(order: str) -> str:
        return await service("stock").do()

    @stain_again.probe
    async def find_stain(order: str) -> Happened[str] | NotHappened:
        return await service("stock").probe()

    @stain_again.undo
    async def bleach_again(order: str, *, result: str | None) -> None:
        await service("stock").undo()

    @app.workflow()
    def poisoned(order: str) -> str:
        return stain(order)

    @app.workflow()
    def poisoned_with_probe(order: str) -> str:
        return stain_again(order)


def _settling(app: App, reserve: Reserve) -> Agent:
    """Keys without tokens: settled before the undo. Returns the agent of their service."""
    bank = app.agent("bank")

    @bank.action(
        complete_within="3s", cancellable=True, retry=RETRY, recover=RECOVER, remembers=True, key="length=28"
    )
    async def transfer(order: str) -> str:
        return await service("bank").do()

    @transfer.undo
    async def transfer_back(order: str, *, result: str | None) -> None:
        await service("bank").undo()

    @app.workflow(complete_within="1m")
    def settle(order: str) -> str:
        first = transfer(order)
        reserve(first)
        return transfer(order)

    return bank


def _brief(app: App, agents: tuple[Agent, Agent, Agent], reserve: Reserve) -> None:
    """Steps whose services forget their keys soon: with a probe and without, and settled before the undo."""
    stock, payments, bank = agents

    @stock.action(complete_within="2s", retry=RETRY, recover=SOON, keeps=KEEPS)
    async def brief_pack(order: str) -> str:
        return await service("stock").do()

    @brief_pack.undo
    async def brief_unpack(order: str, *, result: str | None) -> None:
        await service("stock").undo()

    @payments.action(complete_within="2s", retry=RETRY, recover=SOON, keeps=KEEPS, key="uuid")
    async def brief_charge(order: str, parcel: str) -> str:
        return await service("payments").do()

    @brief_charge.probe
    async def brief_find(order: str, parcel: str) -> Happened[str] | NotHappened:
        return await service("payments").probe()

    @brief_charge.undo
    async def brief_refund(order: str, *, result: str | None) -> None:
        await service("payments").undo()

    @bank.action(complete_within="2s", retry=RETRY, recover=SOON, keeps=KEEPS, remembers=True)
    async def brief_transfer(order: str) -> str:
        return await service("bank").do()

    @brief_transfer.undo
    async def brief_transfer_back(order: str, *, result: str | None) -> None:
        await service("bank").undo()

    @app.workflow(complete_within="2m")
    def brief_order(order: str) -> str:
        return reserve(brief_charge(order, brief_pack(order)))

    @app.workflow(complete_within="5s")
    def brief_hasty(order: str) -> str:
        return reserve(brief_charge(order, brief_pack(order)))

    @app.workflow(on_failure="hold")
    def brief_held(order: str) -> str:
        return brief_charge(order, brief_pack(order))

    @app.workflow(complete_within="1m")
    def brief_settle(order: str) -> str:
        return brief_transfer(reserve(brief_transfer(order)))


def _unkeyed(app: App, reserve: Reserve) -> None:
    """Services without keys, a point of no return, and a task held for an operator."""
    post, desk = app.agent("post"), app.agent("desk")

    @post.action(complete_within="3s", retry=NEVER, recover=RECOVER)
    async def stamp(order: str) -> str:
        return await service("post").do()

    @stamp.probe
    async def find_stamp(order: str) -> Happened[str] | NotHappened:
        return await service("post").probe()

    @stamp.undo
    async def unstamp(order: str, *, result: str | None) -> None:
        await service("post").undo()

    @post.action(complete_within="3s", retry=NEVER, recover=HOLD)
    async def cast(order: str) -> str:
        return await service("post").do()

    @cast.undo
    async def uncast(order: str, *, result: str | None) -> None:
        await service("post").undo()

    @desk.action(complete_within="3s", retry=RETRY, recover=RECOVER, no_return=True)
    async def sign(order: str) -> str:
        return await service("carrier").do()

    @app.workflow(complete_within="1m")
    def never(order: str) -> str:
        reserve(order)
        stamp(order)
        return cast(order)

    @app.workflow(complete_within="1m")
    def final(order: str) -> str:
        reserve(order)
        return sign(order)


def _shapes(app: App, stock: Agent, actions: tuple[Reserve, Pack, Email]) -> None:
    """Branches, conditions, loops over results; and a plain function as an action."""
    reserve, pack, email = actions

    @stock.action(complete_within="3s", retry=RETRY, recover=RECOVER, undo=NOTHING)
    def parts(order: str) -> list[str]:
        return [f"{order}/{n}" for n in range(len(order) % 4)]

    @stock.action(complete_within="3s", retry=RETRY, recover=RECOVER, undo=NOTHING)
    def urgent(order: str) -> bool:
        return len(order) % 2 == 0

    @app.workflow(complete_within="2m")
    def shapes(order: str) -> list[str]:
        def left() -> str:
            return pack(order, reserve(order))

        def right() -> list[str]:
            return each(parts(order), reserve, at_once=2)

        _, promises = branches(left, right)
        when(urgent(order), then=lambda: email(order, order), otherwise=lambda: pack(order, order))
        return promises


def _approvals(app: App, reserve: Reserve) -> None:
    """Waits for signals: without a timeout, with one, one after another, beside an action, held."""
    consent = app.signal(CONSENT, str)

    @app.workflow(complete_within="1m")
    def approval(order: str) -> str:
        return reserve(wait_for(consent) if len(order) % 2 else wait_for(reserve_first(order)))

    def reserve_first(order: str) -> Signal[str]:
        reserve(order)
        return consent

    @app.workflow(complete_within="1m")
    def approval_in_time(order: str) -> str:
        hold = reserve(order)
        parallel(wait_for(consent, timeout="6s"), reserve(hold))
        return reserve(hold)

    @app.workflow()
    def approval_or_default(order: str) -> str:
        first = wait_for(consent, timeout="3s", otherwise="nobody")
        second = wait_for(consent, timeout="4s", otherwise=reserve(first))
        return reserve(second)

    @app.workflow(on_failure="hold")
    def approval_held(order: str) -> str:
        return reserve(wait_for(consent, timeout="5s"))


def _waits(app: App, reserve: Reserve, charge: Charge) -> None:
    """Sleeps of both kinds, in a row and beside other steps, and a workflow that fails by itself."""

    @app.workflow(complete_within="2m")
    def nap(order: str) -> str:
        hold = reserve(order)
        sleep(1.5 * len(order))
        payment, _ = branches(lambda: charge(order, hold), lambda: sleep(4))
        sleep_until(datetime.fromtimestamp(NOON + 4 * len(order), UTC))
        return when(
            payment == order, then=lambda: fail("nobody wants it"), otherwise=lambda: reserve(payment)
        )

    @app.workflow(complete_within="2m")
    def unwanted(order: str) -> str:
        hold = reserve(order)
        sleep(0.5)
        return when(
            hold != order, then=lambda: fail("nobody wants it"), otherwise=lambda: charge(order, hold)
        )


def _races(app: App, agents: tuple[Agent, Agent], actions: tuple[Reserve, Pack, Charge], book: Book) -> None:
    """The first of several: of plain steps, of sequences, with a sleep, in an item; and an early end."""
    (bank, carrier), (reserve, pack, charge) = agents, actions

    @bank.action(complete_within="3s", retry=RETRY, recover=RECOVER, remembers=True)
    async def book_at_bank(order: str) -> str:
        return await service("bank").do()

    @book_at_bank.undo
    async def unbook_at_bank(order: str, *, result: str | None) -> None:
        await service("bank").undo()

    @carrier.action(complete_within="4s", retry=RETRY, recover=RECOVER)
    async def refuse_to_book(order: str) -> str:
        raise Permanent("no van")

    @refuse_to_book.undo
    async def unrefuse(order: str, *, result: str | None) -> None:
        await service("carrier").undo()

    @app.workflow(complete_within="2m")
    def three_carriers(order: str) -> str:
        return reserve(first(book(order), refuse_to_book(order), book_at_bank(order)))

    @app.workflow(complete_within="6s")
    def race_then_charge(order: str) -> str:
        hold = reserve(order)
        return charge(first(book(order), pack(order, hold)), hold)

    @app.workflow(on_failure="hold")
    def race_of_sequences(order: str) -> str:
        return first(lambda: charge(order, reserve(order)), lambda: pack(order, book(order)))

    def pack_later(order: str) -> str:
        sleep(1.5)
        return pack(order, order)

    @app.workflow(complete_within="1m")
    def race_or_nap(order: str) -> str:
        first_half = first(lambda: book(order), lambda: pack_later(order))
        return reserve(first(lambda: book(first_half), lambda: pack_later(first_half)))

    @app.workflow(complete_within="2m")
    def early(order: str) -> str:
        hold, _ = parallel(reserve(order), book(order))
        when(hold != order, then=lambda: done(hold), otherwise=lambda: pack(order, hold))
        return charge(order, hold)


def racing(app: App, orders: list[Order], rng: random.Random) -> list[Order]:
    """Return the orders, in some worlds a share of them for workflows with races."""
    if rng.random() >= _RACE_WORLDS:
        return orders
    return [
        order._replace(workflow=app._find_workflow(name), key=f"{name}-{n}")
        if rng.random() < _RACES and (name := rng.choice(RACES))
        else order
        for n, order in enumerate(orders)
    ]


def _ticks(app: App, reserve: Reserve) -> None:
    """Workflows of schedules: a short one, and one that is often not ended at the next moment."""

    @app.workflow(complete_within="2m")
    def tick(name: str) -> str:
        return reserve(name)

    @app.workflow(complete_within="2m")
    def slow_tick(name: str) -> str:
        hold = reserve(name)
        sleep(4)
        return hold


def _submission(app: App) -> None:
    """The submission process: a message names the workflow and its input."""

    @app.inbox(ORDERS, concurrency=2, retry=Retry(tries=8, wait="300ms", factor=2, longest="4s"), lease="5s")
    def accept(order: dict[str, str], tx: Transaction) -> Plan[Any]:
        trouble = SERVICES.get()["stock"].world.trouble(ACCEPTING)
        if trouble == "handler refuses":
            raise Permanent("we do not take this order")
        if trouble == "handler fails":
            raise LookupError("no such customer, yet")
        workflow: Any = app._find_workflow(order["workflow"])
        plan: Plan[Any] = workflow.plan(order["order"])
        return plan


def asking(app: App, orders: Sequence[Order], share: float, rng: random.Random) -> list[Order]:
    """Return the orders, a share of them for workflows that wait for signals, which their customers send."""
    return [
        order._replace(
            workflow=app._find_workflow(name), key=f"{name}-{n}", signals=rng.choice((0, 1, 1, 2, 2, 3))
        )
        if rng.random() < share and (name := rng.choice(ASKING))
        else order
        for n, order in enumerate(orders)
    ]


def orders(app: App, rng: random.Random, count: int, only: str | None = None) -> list[Order]:
    """Draw submissions: nearly half of them the order workflow, or all of them the one named.

    ``held_apart`` replaces every other ``held``, and in some worlds those of ``BRIEFLY`` replace some of all,
    so that seeds that found something keep their meaning. Of ``poisoned``, and ``poisoned_with_probe``, there
    is one, the first; the others are plain. Every third has an attribute.
    """
    names = ("place_order", "hasty", "sequence", "held", "settle", "never", "final", "shapes")
    batch: list[Order] = []
    for n in range(count):
        name = only or ("place_order" if rng.random() < 0.4 else rng.choice(names))
        if name == "held" and only is None and n % 2:
            name = "held_apart"
        if name.startswith("poisoned") and n:
            name = "lone"
        workflow = app._find_workflow(name)
        order = f"o{n}" + "x" * rng.randrange(4)
        attributes = {"order": order} if n % 3 == 0 else None
        priority = rng.choice((0, 0, 0, 5))
        batch.append(Order(workflow, (order,), f"{name}-{n}", priority, attributes=attributes))
    if only is None and rng.random() < _BRIEF_WORLDS:
        for n, long in enumerate(batch):
            if rng.random() < _BRIEF_ORDERS:
                name = rng.choice(BRIEFLY)
                batch[n] = long._replace(workflow=app._find_workflow(name), key=f"{name}-{n}")
    if only is None and rng.random() < _NAP_WORLDS:
        for n, long in enumerate(batch):
            if rng.random() < _NAPS:
                name = rng.choice(NAPS)
                batch[n] = long._replace(workflow=app._find_workflow(name), key=f"{name}-{n}")
    return racing(app, batch, random.Random(f"races {rng.getstate()}")) if only is None else batch
