"""Does what the stage's buttons say: to the processes that the demo started, its services and its shop, and to nothing else.

Every button names a place on the wall, a service or an act; a name that is none of them is refused. Processes are found by
their place and never by a number, which may be another's by now.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from makegood.errors import StoreUnavailableError

from .approver import MAY_APPROVE
from .books import OPERATIONS
from .chaos import BROKER, LEADER, OTHERS, WORLD, Blow, Chaos, Event
from .customers import Customers, drawn
from .processes import SERVICES, Place, State
from .shop import LIMIT, Order
from .visitor import RefusedError, Visitor
from .world import Services, ServicesError

PACE: Final = 0.35
"""Seconds that a call of a service takes, so that one can watch."""
SLOW: Final = 0.8
"""Seconds that a slow service takes: a little less than the agents wait."""
SLOW_CHARGE: Final = 2.5
"""Seconds that a slow bank takes for a charge, for which its agent waits as long as it may."""
NO_UNDO: Final = "no undo"
FAULTS: Final[Mapping[str, str]] = {
    "well": "answers, as it should", "slow": f"waits {SLOW} s ({SLOW_CHARGE} s for a charge), then does it", "5xx": "answers 500, and did nothing",
    "hang": "never answers, and did nothing", "refuse": "says no, for business reasons",
    "lie": "does it, and the caller's time runs out", NO_UNDO: "answers 500 to every undo, and undid nothing",
    "down": "nobody answers at all",
}  # fmt: skip
"""What a dial can be set to, and what a service does then."""
KINDS: Final = {
    "slow": "slow",
    "5xx": "fail",
    "hang": "hang",
    "refuse": "refuse",
    "lie": "lie",
    "down": "abort",
}
SHARES: Final[Mapping[str, float]] = {"1 in 5": 0.2, "half": 0.5, "every call": 1.0}
RATES: Final[Mapping[str, float]] = {"none": 0.0, "1/s": 1.0, "3/s": 3.0, "10/s": 10.0}
KINDS_OF_ORDERS: Final[Mapping[str, tuple[str, str]]] = {
    "order": ("lamp", "good"), "card refused": ("lamp", "declined"), "too heavy": ("anvil", "good"), "large": ("chair", "good"),
}  # fmt: skip
LARGE: Final = 2 * MAY_APPROVE
"""Cents of an order that waits for a visitor's answer."""
AWAY: Final = 4.0
"""Seconds after which a killed process is replaced."""
BLOW_EVERY: Final = (3.0, 6.0)
REMEMBERED: Final = 40


class Director:
    """The stage's buttons. ``dials``: what each service is set to; ``said``: what is being shown, as a title and a sentence."""

    def __init__(
        self,
        chaos: Chaos,
        customers: Customers,
        services: Services,
        *,
        rng: random.Random,
        prefix: str,
        visitor: Visitor,
    ) -> None:
        self.chaos = chaos
        self.customers = customers
        self.settings = Settings()
        self.feed: deque[tuple[float, Event]] = deque(maxlen=REMEMBERED)
        self.follows = ""
        """The order whose ladder is shown."""
        self.act = Playing()
        self.visitor = visitor
        self._services = services
        self._rng = rng
        self._prefix = prefix
        self._number = 1000
        self._group: asyncio.TaskGroup | None = None

    async def direct(self, until: asyncio.Event) -> None:
        """Keep customers ordering, and carry out what is pressed, until the event; then have everything run again and well."""
        await self.turn()
        async with asyncio.TaskGroup() as group:
            self._group = group
            going = [group.create_task(work) for work in (self._order_on(), self._chaos_on())]
            await until.wait()
            for task in (*going, *([self.act.task] if self.act.task else [])):
                task.cancel()
            self._group = None
            self.settings = Settings(rate="none")
            await self.turn()
            await self.start_all()
            await self._refuse_what_waits()

    def tell(self, event: Event) -> None:
        """Note what happened."""
        self.feed.append((time.monotonic(), event))

    # -- processes -----------------------------------------------------------------------------------------------------

    def place(self, name: str) -> Place:
        """Return a place on the wall. Raises ``RefusedError`` for a name that is not on it."""
        place = self.chaos.places.get(name)
        if place is None:
            raise RefusedError(f"there is no process {name!r} here")
        return place

    async def press(self, name: str, button: str) -> None:
        """kill, stop or start the process in a place. Raises ``RefusedError``."""
        place = self.place(name)
        if button == "start":
            await self.start(place)
        elif place.state not in (State.RUNNING, State.STOPPED):
            raise RefusedError(f"{name} does not run")
        elif button == "kill":
            await self.kill(place)
        elif button == "stop":
            if place.state is State.STOPPED:
                raise RefusedError(f"{name} is stopped already")
            self.chaos.stop(name, f"{place.role} stopped until you start it")
        else:
            raise RefusedError(f"no button is called {button!r}")

    async def start(self, place: Place) -> None:
        """Fill a place, or have a stopped process go on."""
        await self.chaos.start(place.name)
        if place is self.chaos.world:
            await self.turn()

    async def kill(self, place: Place) -> None:
        """Kill the process in a place; the order that it holds is followed. It is replaced if the settings say so."""
        _, holder = await self.chaos.term()
        node, tasks = await self.chaos.in_hands(place)
        order = await self._newest(tasks)
        if place.state not in (State.RUNNING, State.STOPPED):
            return  # somebody else was faster
        role = LEADER if place is self.chaos.leader_of(holder) else place.role
        wound = self.chaos.kill(place.name, role, node, tasks)
        if order:
            self.follows = order
        away = AWAY if self.settings.replace else None
        self._soon(self.chaos.recover(wound, away))

    async def kill_all(self) -> None:
        """Kill every process at once."""
        for place in self.chaos.places.values():
            if place.state in (State.RUNNING, State.STOPPED):
                wound = self.chaos.kill(place.name)
                if self.settings.replace and self.act.number != 7:
                    self._soon(self.chaos.recover(wound, AWAY))

    async def start_all(self) -> None:
        """Fill every place, and have every stopped process go on."""
        for place in self.chaos.places.values():
            if place.state is not State.RUNNING:
                await self.start(place)

    def _soon(self, work: Any) -> None:
        if self._group is None:
            work.close()
        else:
            self._group.create_task(work)

    # -- services ------------------------------------------------------------------------------------------------------

    async def dial(self, service: str, fault: str) -> None:
        """Set a service's dial. Raises ``RefusedError``."""
        if service not in SERVICES or fault not in FAULTS:
            raise RefusedError(f"there is no dial {service!r} with {fault!r}")
        self.settings.dials[service] = fault
        self.tell(Event("turned", service, 0, FAULTS[fault] + self._how_often(fault)))
        await self.turn()

    def _how_often(self, fault: str) -> str:
        return "" if fault in ("well", "down", NO_UNDO) else f" ({self.settings.share})"

    async def turn(self, **places: Mapping[str, float]) -> None:
        """Set the services as the dials say, and ``places`` ("payments__refund") as an act wants them."""
        dials = {service: self._dial(fault) for service, fault in self.settings.dials.items()}
        dials |= {
            place: self._dial("well") | {"fail": 1.0}
            for place, operation in OPERATIONS.items()
            if operation.undoes and self.settings.dials[operation.service] == NO_UNDO
        }
        dials |= {name.replace("__", "/"): dict(dial) for name, dial in places.items()}
        dials.setdefault("payments/charge", dials["payments"] | {"slow_seconds": SLOW_CHARGE})
        self._services.prepare(dials)
        if self.chaos.world.state is State.RUNNING:
            try:
                await asyncio.to_thread(self._services.turn, dials)
            except ServicesError as away:
                self.tell(Event("turned", WORLD, 0, f"will be set when they answer: {away}"))

    def _dial(self, fault: str) -> dict[str, float]:
        share = 1.0 if fault == "down" else SHARES[self.settings.share]
        return {
            "pace_seconds": PACE,
            "slow_seconds": SLOW,
            **({KINDS[fault]: share} if fault in KINDS else {}),
        }

    # -- orders --------------------------------------------------------------------------------------------------------

    def order(self, kind: str = "order") -> str:
        """Order something; return the order's id. Raises ``RefusedError``."""
        if kind not in KINDS_OF_ORDERS:
            raise RefusedError(f"nobody sells {kind!r}")
        sku, card = KINDS_OF_ORDERS[kind]
        order = self._drawn()
        cents = LARGE if kind == "large" else order.cents % LIMIT
        self.customers.want(replace(order, sku=sku, card=card, cents=cents))
        return order.id

    async def _refuse_what_waits(self) -> None:
        """Refuse the orders that wait for an answer which no visitor gives any more."""
        for name in self.customers.open():
            if self.customers.orders[name].order.cents > MAY_APPROVE:
                with suppress(RefusedError):  # it has its answer, or needs none any more
                    await self.visitor.answer(name, yes=False, why="the show is over")

    def _drawn(self) -> Order:
        self._number += 1
        return drawn(f"{self._prefix}{self._number}", self._rng)

    async def _order_on(self) -> None:
        while True:
            rate = RATES[self.settings.rate]
            await asyncio.sleep(self._rng.expovariate(rate) if rate else 0.2)
            if RATES[self.settings.rate]:
                order = self._drawn()
                if not self.settings.sells_large:
                    order = replace(order, cents=order.cents % LIMIT)
                self.customers.want(order)

    async def _chaos_on(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(*BLOW_EVERY))
            if self.settings.chaos:
                outside = (WORLD, BROKER) if self.chaos.broker else (WORLD,)
                blow = Blow(0.0, self._rng.choice((*OTHERS, *outside)), self._rng.uniform(1.0, 3.0))
                self._soon(self.chaos.strike(blow))

    # -- looking -------------------------------------------------------------------------------------------------------

    async def _newest(self, tasks: Collection[int]) -> str:
        """The newest order among tasks that is under way; "" for none."""
        try:
            open_ = await self.customers.under_way() if tasks else []
        except StoreUnavailableError:
            return ""
        return next((view.key or "" for view in open_ if view.id in tasks), "")

    async def taker_of(self, order: str, step: str) -> Place | None:
        """The place of the process that runs a step of an order right now."""
        detail = await self.visitor.task(order)
        nodes = {node: pid for pid, node in (await self.chaos.nodes()).items()}
        for step_view in detail.steps if detail else ():
            if step_view.name == step and step_view.taken_by in nodes:
                pid = nodes[step_view.taken_by]
                return next((p for p in self.chaos.places.values() if p.pid == pid), None)
        return None


class Settings:
    """What the stage's switches are set to."""

    def __init__(self, rate: str = "1/s") -> None:
        self.dials = dict.fromkeys(SERVICES, "well")
        self.share = "1 in 5"
        self.rate = rate
        self.sells_large = True
        """Whether customers order what somebody may refuse after it was paid. No button changes it, but an act may."""
        self.chaos = False
        self.replace = True
        """Whether a killed process is replaced after a while."""

    def put(self, switch: str, value: str) -> None:
        """Set a switch from a form. Raises ``RefusedError``."""
        if switch in ("chaos", "replace") and value in ("on", "off"):
            setattr(self, switch, value == "on")
        elif switch == "rate" and value in RATES:
            self.rate = value
        elif switch == "share" and value in SHARES:
            self.share = value
        else:
            raise RefusedError(f"no switch {switch!r} can be set to {value!r}")


class Playing:
    """The act that is played: its number (0: none), what is being shown, and whether it is over."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.title = ""
        self.text = ""
        self.tone = "run"
        self.order = ""
        self.waits_for_operator = False
        self.over = number == 0
        self.task: asyncio.Task[None] | None = None
