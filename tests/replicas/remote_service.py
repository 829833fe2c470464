"""A remote service with books of its own, which outlives every store, and the orders that need it.

It honours the key (an effect once, the first answer again), the token (what is older than the highest it has seen for a
scope is refused), and keeps a tombstone for what was undone. ``keeps_tombstones=False`` makes it forget that.
"""

import asyncio
import zlib
from collections import Counter
from dataclasses import dataclass, field

import makegood as mg
from makegood.declare.call import Token
from makegood.workflow.workflow import Workflow

BRIEF = mg.Recover(threshold=5, wait="100ms", extended="200ms")
ONCE = mg.Retry(tries=1)
STEPS = ("reserve", "charge", "ship")


@dataclass
class Order:
    """What is ordered. ``refused``: the step that the service refuses, "" = none. ``later``: the one it puts off at first."""

    id: str
    refused: str = ""
    later: str = ""
    note: str = ""


@dataclass
class Entry:
    """What stands in the books under one key."""

    order: str
    step: str
    net: int = 0
    made: int = 0
    gone: bool = False


@dataclass(frozen=True)
class Asked:
    """One call that the service has let in."""

    order: str
    step: str
    doing: str
    key: str
    scope: str
    token: Token


@dataclass
class Service:
    """The books. ``shut``: steps whose calls wait at the door; with ``after_effect`` behind it, their effect made."""

    keeps_tombstones: bool = True
    books: dict[str, Entry] = field(default_factory=dict)
    highest: dict[str, Token] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    stale: int = 0
    put_off: set[str] = field(default_factory=set)
    waiting: Counter[str] = field(default_factory=Counter)
    _doors: dict[str, asyncio.Event] = field(default_factory=dict)

    def shut(self, step: str) -> None:
        """Let the calls of a step wait from now on: every other one before its effect, the others after it."""
        self._doors[step] = asyncio.Event()

    def reopen(self, step: str) -> None:
        """Let them go on."""
        self._doors.pop(step).set()

    async def do(self, order: Order) -> str:
        """Do the running step's work. Raises ``mg.Permanent``, ``mg.Refused`` (it was undone before), ``RuntimeError`` (stale)."""
        call = mg.current_call()
        late = call.token.attempt == 1 and zlib.crc32(order.id.encode()) % 2 == 1
        if not late:
            await self._wait(call.step)
        self._let_in(order, "do", call.key)
        if order.later == call.step and order.id not in self.put_off:
            self.put_off.add(order.id)
            raise mg.Later("4s")
        entry = self.books.setdefault(call.key, Entry(order.id, call.step))
        if entry.gone and self.keeps_tombstones:
            raise mg.Refused(f"{call.step} of {order.id} was undone before")
        if order.refused == call.step:
            if late:
                await self._wait(call.step)
            raise mg.Permanent(f"{call.step} is refused")
        if not entry.made:
            entry.made, entry.net = 1, 1
        if late:
            await self._wait(call.step)
        return f"{call.step} of {order.id}"

    async def undo(self, order: Order) -> None:
        """Take back what the undone step did, and remember that."""
        call = mg.current_call()
        assert call.undoes is not None
        self._let_in(order, "undo", call.undoes)
        entry = self.books.setdefault(call.undoes, Entry(order.id, call.step))
        entry.net, entry.gone = 0, True

    async def _wait(self, step: str) -> None:
        if (door := self._doors.get(step)) is not None:
            self.waiting[step] += 1
            try:
                await door.wait()
            finally:
                self.waiting[step] -= 1

    def _let_in(self, order: Order, doing: str, key: str) -> None:
        call = mg.current_call()
        if call.token < self.highest.get(call.scope, call.token):
            self.stale += 1
            raise RuntimeError(f"{call.scope} was asked with a later token than {call.token}")
        self.highest[call.scope] = call.token
        self.asked.append(Asked(order.id, call.step, doing, key, call.scope, call.token))

    def standing(self, order: str) -> dict[str, int]:
        """Return how many effects of an order stand, by step; those of which none does are left out."""
        counts: Counter[str] = Counter()
        for entry in self.books.values():
            if entry.order == order:
                counts[entry.step] += entry.net
        return {step: net for step, net in counts.items() if net}


@dataclass(frozen=True)
class Shop:
    """The app whose actions ask one service, and its workflow."""

    app: mg.App
    place_order: Workflow[[Order], str]


def shop(service: Service) -> Shop:
    """Return orders of three steps, one agent each; that of ``ship`` has few slots, so that requests queue before it."""
    app = mg.App("shop")
    stock, till, van = (
        app.agent("stock", concurrency=30),
        app.agent("till", concurrency=30),
        app.agent("van", concurrency=8),
    )

    @stock.action(complete_within="3s", retry=ONCE, recover=BRIEF)
    async def reserve(order: Order) -> str:
        return await service.do(order)

    @reserve.undo
    async def release(order: Order, *, result: str | None) -> None:
        await service.undo(order)

    @till.action(complete_within="3s", retry=ONCE, recover=BRIEF)
    async def charge(order: Order, hold: str) -> str:
        return await service.do(order)

    @charge.undo
    async def refund(order: Order, *, result: str | None) -> None:
        await service.undo(order)

    @van.action(complete_within="6s", retry=ONCE, recover=BRIEF)
    async def ship(order: Order, payment: str) -> str:
        return await service.do(order)

    @ship.undo
    async def recall(order: Order, *, result: str | None) -> None:
        await service.undo(order)

    @app.workflow(complete_within="2m")
    def place_order(order: Order) -> str:
        return ship(order, charge(order, reserve(order)))

    return Shop(app, place_order)
