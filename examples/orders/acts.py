"""The eight acts: each does something to the running system, and says what is being shown.

An act is played by its button. It ends by itself; another one, or the same again, ends it before. What it set is set back.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from makegood.base.counts import quantity
from makegood.errors import StoreUnavailableError

from .chaos import Event
from .director import FAULTS, Director, Playing
from .processes import Place, State
from .visitor import VISITOR, RefusedError, waiting_step

LOOK_EVERY: Final = 0.1
PATIENCE: Final = 60.0
HANGS: Final = 30.0
"""Seconds for which payments hang in the fourth act."""
OPERATOR: Final = 3600.0
"""Seconds for which an act waits for you in the console."""
BEGUN: Final = 10.0
"""Seconds within which an order's first step is done, unless the machine is busy."""
DARK: Final = 1.5
"""Seconds for which nothing runs in the seventh act."""
KILL_EVERY: Final = 3.0
"""Seconds between two kills of agents while an order waits for your answer."""


@dataclass(frozen=True, slots=True)
class Act:
    """An act, as its button shows it."""

    title: str
    shows: str
    play: Callable[[Director, Playing], Awaitable[None]]


async def begin(director: Director, number: int) -> None:
    """Play an act from its beginning; one that is under way ends. Raises ``RefusedError`` for a number that there is not."""
    if number not in ACTS:
        raise RefusedError(f"there is no act {number}")
    await end(director)
    playing = director.act = Playing(number)
    playing.task = asyncio.create_task(_play(director, playing), name=f"act {number}")


async def end(director: Director) -> None:
    """End the act that is played, if one is."""
    task = director.act.task
    if task is not None and not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _play(director: Director, playing: Playing) -> None:
    try:
        await ACTS[playing.number].play(director, playing)
    except (TimeoutError, StoreUnavailableError):
        _say(playing, "This took longer than expected.", "The machine is busy; play it again.", "doubt")
    finally:
        playing.over = True
        await director.turn()


def _say(playing: Playing, title: str, text: str, tone: str = "run") -> None:
    playing.title, playing.text, playing.tone = title, text, tone


async def _until(holds: Callable[[], Awaitable[bool]], patience: float = PATIENCE) -> float:
    """Wait until something holds; return how many seconds that took. Raises ``TimeoutError``."""
    start = time.monotonic()
    async with asyncio.timeout(patience):
        while not await holds():  # noqa: ASYNC110 - other processes ring no event here
            await asyncio.sleep(LOOK_EVERY)
    return time.monotonic() - start


async def _ended(director: Director, order: str, patience: float = PATIENCE) -> str:
    """Wait until the shop was told how an order ended; return the outcome."""

    async def known() -> bool:
        return bool(director.customers.orders[order].told.outcome)

    await _until(known, patience)
    return director.customers.orders[order].told.outcome


async def _calm(director: Director) -> None:
    """Have everything run, and every service answer."""
    director.settings.dials = dict.fromkeys(director.settings.dials, "well")
    director.settings.chaos = False
    await director.start_all()
    await director.turn()


def _follow(director: Director, playing: Playing, kind: str = "order") -> str:
    order = director.order(kind)
    director.follows = playing.order = order
    return order


async def _all_well(director: Director, playing: Playing) -> None:
    await _calm(director)
    _say(
        playing,
        "All is well.",
        "An order is a task. Its steps go down on the left: reserve, charge, book and pack at once, email, ship.",
    )
    order = _follow(director, playing)
    outcome = await _ended(director, order)
    how = "Every step is done, and the customer knows the number of the parcel."
    if outcome == "undone":
        how = "A service refused it, for good reasons of its own, so every step that was done is undone."
    _say(playing, f"{order} is {outcome}.", f"{how} The next orders do the same.", "ok")


async def _agent_killed(director: Director, playing: Playing) -> None:
    await _calm(director)
    await director.turn(payments__charge={"pace_seconds": 2.0})
    order = _follow(director, playing)
    _say(
        playing,
        f"{order} is about to be charged.",
        "The bank takes two seconds for it. One of two agents makes the call.",
    )
    victims: list[Place] = []

    async def charging() -> bool:
        place = await director.taker_of(order, "charge")
        victims[:] = [place] if place and place.role == "agent" else []
        return bool(victims) or bool(director.customers.orders[order].told.outcome)

    await _until(charging)
    if not victims:
        _say(playing, f"{order} was refused before it was charged.", "Play the act again.", "doubt")
        return
    victim = victims[0]
    await asyncio.sleep(0.6)  # the call is on its way
    await director.kill(victim)
    director.follows = order
    _say(
        playing, f"{victim.name} was killed while it charged the card.",
        "Nobody knows whether the charge happened. The step is in doubt; another agent asks the bank, and charges under the same key if it must.",
        "doubt",
    )  # fmt: skip

    async def continues() -> bool:
        place = await director.taker_of(order, "charge")
        is_over = bool(director.customers.orders[order].told.outcome)
        return is_over or (place is not None and place.state is State.RUNNING)

    gap = await _until(continues)
    outcome = await _ended(director, order)
    _say(
        playing, f"{order} is {outcome}, and its card was charged once.",
        f"{gap:.1f} s after the kill the other agent had the step: nobody waits for a deadline of the dead. "
        "It asked the bank before it did anything again. The bank's own books have one charge: see the big zero.", "ok",
    )  # fmt: skip


async def _leader_killed(director: Director, playing: Playing) -> None:
    await _calm(director)
    term = 0
    _say(
        playing, "Waiting for a leading Supervisor.", "One Supervisor leads, by a lease. The other one waits."
    )

    async def leads() -> bool:
        nonlocal term
        term, holder = await director.chaos.term()
        return director.chaos.leader_of(holder) is not None

    await _until(leads)
    _, holder = await director.chaos.term()
    leader = director.chaos.leader_of(holder)
    if leader is None:
        raise TimeoutError
    await director.kill(leader)
    _say(
        playing, f"{leader.name} led term {term}, and was killed.",
        "On one machine the other one sees that, and takes the lease; on another machine it waits until the lease runs out. Orders go on meanwhile.",
        "doubt",
    )  # fmt: skip

    async def next_term() -> bool:
        present, holder = await director.chaos.term()
        return present > term and bool(holder)

    gap = await _until(next_term)
    present, holder = await director.chaos.term()
    successor = director.chaos.leader_of(holder)
    name = successor.name if successor else "Another one"
    _say(
        playing,
        f"{name} leads term {present}.",
        f"It took the lead {gap:.1f} s after the kill. What a leader of term {term} would write now is refused.",
        "ok",
    )


async def _payments_hang(director: Director, playing: Playing) -> None:
    await _calm(director)
    await director.turn(payments={"hang": 1.0})
    director.tell(Event("turned", "payments", 0, FAULTS["hang"]))
    _follow(director, playing)
    end = time.monotonic() + HANGS
    while (left := end - time.monotonic()) > 0:
        _say(
            playing, f"Payments hang, for another {left:.0f} s.",
            "Calls run out of time. After five in a row an agent opens its circuit and takes no more; orders wait, and lose no attempts by that.",
            "doubt",
        )  # fmt: skip
        await asyncio.sleep(0.5)
    waiting = set(director.customers.open())
    await director.turn()
    director.tell(Event("turned", "payments", 0, FAULTS["well"]))

    async def drained() -> bool:
        left = waiting & set(director.customers.open())
        _say(
            playing,
            "Payments answer again.",
            f"An agent tries one call, then all. {len(left)} of {len(waiting)} orders are still under way.",
        )
        return not left

    took = await _until(drained, 2 * PATIENCE)
    _say(
        playing,
        f"All {len(waiting)} orders that waited have ended.",
        f"The queue was empty {took:.1f} s after payments answered again.",
        "ok",
    )


async def _card_refused(director: Director, playing: Playing) -> None:
    await _calm(director)
    order = _follow(director, playing, "card refused")
    _say(
        playing,
        f"The card of {order} will be refused.",
        "A refusal is certain: the step has failed, and nothing is to be undone for it.",
    )
    await _ended(director, order)
    _say(
        playing,
        f"{order} is undone: its card was refused.",
        "The goods that were held for it are back on the shelf.",
        "undo",
    )
    await asyncio.sleep(3.0)
    order = _follow(director, playing, "too heavy")
    _say(
        playing,
        f"{order} is an anvil.",
        "The carrier will find it too heavy, when all the other steps are done.",
    )
    await _ended(director, order)
    _say(
        playing, f"{order} is undone, rung by rung.",
        "It went down on the left and came up on the right: unpacked, its van cancelled, its money refunded, its goods released. Only the email stays.",
        "undo",
    )  # fmt: skip


async def _stuck(director: Director, playing: Playing) -> tuple[str, str]:
    """Have the carrier refuse one order while refunds are down; return it, and how it ended."""
    _say(
        playing,
        "The orders that are under way end first.",
        "Then the carrier will refuse one, and refunds will be down.",
    )

    async def quiet() -> bool:
        return not director.customers.open()

    await _until(quiet)
    refusal, down = {"refuse": 1.0}, {"abort": 1.0}
    await director.turn(carrier__ship=refusal, payments__refund=down)
    director.tell(Event("turned", "carrier/ship", 0, FAULTS["refuse"]))
    director.tell(Event("turned", "payments/refund", 0, FAULTS["down"]))
    order = _follow(director, playing)
    _say(
        playing,
        f"The carrier will refuse {order}, and refunds are down.",
        "It will have to be undone, and its refund will not work.",
        "doubt",
    )

    async def turned() -> bool:
        customer_order = director.customers.orders[order]
        return customer_order.state == "undoing" or bool(customer_order.told.outcome)

    await _until(turned)
    await director.turn(payments__refund=down)
    director.tell(Event("turned", "carrier/ship", 0, FAULTS["well"]))
    director.settings.sells_large = False  # nobody else's order is to need a refund
    director.settings.rate = "3/s"  # the bank answers others: a failed refund counts
    return order, await _ended(director, order, 2 * PATIENCE)


async def _refund_down(director: Director, playing: Playing) -> None:
    await _calm(director)
    rate, director.settings.rate = director.settings.rate, "none"
    try:
        order, outcome = await _stuck(director, playing)
    finally:
        director.settings.rate, director.settings.sells_large = rate, True
    await director.turn()  # refunds work again; the order does not know
    director.tell(Event("turned", "payments/refund", 0, FAULTS["well"]))
    if outcome != "error":
        _say(playing, f"{order} is {outcome}.", "The refund worked after all.", "ok")
        return
    playing.waits_for_operator = True
    _say(
        playing, f"{order} needs you.",
        "Its undo is incomplete: the refund failed again and again, and makegood has raised an alert. Refunds work again now. Open it in the console, and press “Try the undo again”.",
        "need",
    )  # fmt: skip

    async def outcome_is(*outcomes: str) -> bool:
        return director.customers.orders[order].told.outcome in outcomes

    try:
        await _until(partial(outcome_is, "undone", "processed"), OPERATOR)
        _say(
            playing, f"{order} is undone.",
            "The refund went through, and the rest followed. Nothing is left in place but the email. The customer still wants the lamp: press “Resubmit” in the console.",
            "need",
        )  # fmt: skip
        await _until(partial(outcome_is, "processed"), OPERATOR)
    finally:
        playing.waits_for_operator = False
    _say(
        playing,
        f"{order} is made good.",
        "You resubmitted it: every step ran again, under new keys, and the parcel is on its way.",
        "ok",
    )


async def _everything_killed(director: Director, playing: Playing) -> None:
    await _calm(director)
    orders = [director.order() for _ in range(6)]
    director.follows = playing.order = orders[-1]
    _say(
        playing,
        "Six more orders.",
        "In a moment everything is killed: the shop, the engine, the agents, the services.",
    )

    async def half_done() -> bool:
        detail = await director.visitor.task(playing.order)
        return detail is not None and any(step.state == "done" for step in detail.steps)

    with suppress(TimeoutError):
        await _until(half_done, BEGUN)
    open_ = set(director.customers.open())
    count = sum(place.state is State.RUNNING for place in director.chaos.places.values())
    await director.kill_all()
    _say(
        playing,
        f"All {count} processes are dead.",
        f"{len(open_)} orders were under way. What is left are two databases and the shop's files.",
        "need",
    )
    killed_at = time.monotonic()
    await asyncio.sleep(DARK)
    await director.start_all()

    async def resumed() -> bool:
        left = open_ & set(director.customers.open())
        _say(
            playing,
            "Everything is started again.",
            f"New processes read the store and go on. {len(left)} of {len(open_)} orders are still under way.",
        )
        return not left

    took = await _until(resumed, 2 * PATIENCE)
    director.chaos.healed("everything", 0, f"{quantity(len(open_), 'order')} went on, and ended", killed_at)
    _say(
        playing,
        f"All {len(open_)} orders have ended whole.",
        f"The last one ended {took:.1f} s after the restart. Nothing was lost, nothing doubled.",
        "ok",
    )


async def _answered_by_you(director: Director, playing: Playing) -> None:
    await _calm(director)
    order = _follow(director, playing, "large")
    _say(
        playing,
        f"{order} is too large to ship unseen.",
        "It is reserved, charged, booked and packed; then it waits for a yes. The approver answers smaller ones: this one is yours.",
    )
    customer = director.customers.orders[order]
    left: float | None = None

    async def waits() -> bool:
        nonlocal left
        step = waiting_step(await director.visitor.task(order))
        left = None if step is None else step.due or 0.0
        return step is not None or bool(customer.told.outcome)

    await _until(waits)
    kills, due = 0, time.monotonic() + KILL_EVERY / 2
    while left is not None and not customer.told.outcome and VISITOR not in _answerers(director, order):
        deaths = f" {quantity(kills, 'agent')} died meanwhile: it does not matter." if kills else ""
        _say(
            playing, f"{order} waits for you: {left:.0f} s left.",
            f"Approve it, or refuse it, below: the button sends a signal. Until then no agent has it, and no slot.{deaths} If nobody answers, it is undone.",
            "doubt",
        )  # fmt: skip
        if time.monotonic() >= due:
            due = time.monotonic() + KILL_EVERY
            kills += await _kill_an_agent(director, order, number=kills)
        await asyncio.sleep(0.5)
        await waits()
    if VISITOR in _answerers(director, order):
        for name in ("carrier-1", "carrier-2"):
            await _kill_an_agent(director, order, name=name)
        _say(
            playing, f"You have {'approved' if VISITOR in customer.told.approvers else 'refused'} {order}.",
            "The signal is in the store, and the agents that it needs next were killed just now. New ones continue.",
        )  # fmt: skip
        if not director.settings.replace:
            await asyncio.sleep(DARK)
            await director.start_all()
    outcome = await _ended(director, order)
    if outcome == "processed" and VISITOR not in customer.told.approvers:
        how = "Somebody else approved it, and the parcel is on its way."
    elif outcome == "processed":
        how = "You approved it, the carrier has your name in its papers, and the parcel is on its way."
    elif VISITOR in customer.told.refusers:
        how = "You refused it: unpacked, its van cancelled, its money refunded, its goods released. The customer heard nothing of it."
    else:
        how = "No yes came in time: every step is taken back."
    _say(playing, f"{order} is {outcome}.", how, "ok" if outcome == "processed" else "undo")


def _answerers(director: Director, order: str) -> frozenset[str]:
    outcome = director.customers.orders[order].told
    return outcome.approvers | outcome.refusers


async def _kill_an_agent(director: Director, order: str, *, number: int = 0, name: str = "") -> int:
    """Kill an agent that runs, and follow the order still; return how many were killed: none, if none runs."""
    agents = [
        place for place in director.chaos.places.values()
        if place.role == "agent" and place.state is State.RUNNING and name in ("", place.name)
    ]  # fmt: skip
    if not agents:
        return 0
    await director.kill(agents[number % len(agents)])
    director.follows = order
    return 1


ACTS: Final[Mapping[int, Act]] = {
    1: Act("All is well", "orders, and the ladder that they go down", _all_well),
    2: Act("Kill an agent while it charges", "taken over under the same key: one charge", _agent_killed),
    3: Act("Kill the leading Supervisor", "the term rises, and there is a gap", _leader_killed),
    4: Act("Payments hang for 30 s", "a circuit opens, orders wait, then drain", _payments_hang),
    5: Act("A card is refused, an anvil is too heavy", "the ladder unwinds", _card_refused),
    6: Act("Refunds are down too", "it needs an operator: you", _refund_down),
    7: Act("Kill everything", "started again, it resumes", _everything_killed),
    8: Act("A large order waits for you", "approve it while agents are killed", _answered_by_you),
}
