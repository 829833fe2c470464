"""The app of the fault tests: few actions, each of which can be told by its order to meet with a fault.

``Order.faults`` names, per step and direction, what happens when the action begins for the first, second, ... time:
``kill``, ``stop`` or ``hang``, ``before`` or ``after`` the effect (such as ``"kill before"``), ``permanent``, ``later``, or
``""`` for nothing. The effects stand in the books of the service (``books``), in the folder that FLOOR_FOLDER names.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import makegood as mg
from tests.processes.effect_log import Ask, Books, TombstoneError
from tests.processes.fault_points import end_now, stop_now

BRIEF = mg.Recover(threshold=2, wait="100ms", extended="300ms")
HASTY = mg.Recover(threshold=0, wait="100ms", extended="200ms")
ONCE = mg.Retry(tries=1)
GRIND = 6.0
"""Seconds after which the agent itself finds that ``grind`` is late. All else has minutes, which no test waits for: see ``World.overdue``."""
HEARTBEAT = 6.0
"""Seconds from one heartbeat of ``transfer`` to its deadline."""


@dataclass
class Order:
    """What is ordered. ``faults``: "step" or "step undo" -> what happens at its first, second, ... beginning."""

    id: str
    faults: dict[str, list[str]] = field(default_factory=dict)


app = mg.App("faults")
shelf = app.agent("shelf")
till = app.agent("till", concurrency=2)
van = app.agent("van")
mill = app.agent("mill", concurrency=1)
moon = app.agent("moon")
still = app.agent("still")
post = app.agent("post")
bank = app.agent("bank")


def folder() -> Path:
    """Return the folder of the running test."""
    return Path(os.environ["FLOOR_FOLDER"])


def service() -> Books:
    """Return the remote service."""
    return Books(folder() / "books.db")


def ask(order: Order) -> Ask:
    """Return who asks, as the running call says."""
    call = mg.current_call()
    return Ask(call.scope, call.key, call.token, order.id, call.step)


def begin(order: Order, doing: str) -> str:
    """Count the beginning and return what is to happen to it."""
    call = mg.current_call()
    count = service().arrive(call.scope, doing)
    plan = order.faults.get(call.step if doing == "do" else f"{call.step} {doing}", [])
    return plan[count - 1] if count <= len(plan) else ""


def meet(fault: str, when: str) -> None:
    """Let the fault strike if its time is now."""
    if fault == f"kill {when}":
        end_now()
    elif fault == f"stop {when}":
        stop_now(folder())
    elif fault == f"hang {when}":
        (folder() / "hangs").touch()
        while not (folder() / "free").exists():
            time.sleep(0.01)
    elif fault == "permanent" and when == "before":
        raise mg.Permanent("the service will never do that")
    elif fault == f"later {when}":
        raise mg.Later("6s", "the service is closed")


def bring_about(order: Order) -> str:
    """Do the running step's work at the service; return its answer."""
    fault = begin(order, "do")
    meet(fault, "before")
    value = f"{mg.current_call().step} of {order.id}"
    try:
        value = service().do(ask(order), value, os.getpid())
    except TombstoneError as error:
        raise mg.Refused(str(error)) from error
    meet(fault, "after")
    return value


def take_back(order: Order) -> None:
    """Undo the running step's work at the service."""
    fault = begin(order, "undo")
    meet(fault, "before")
    undoes = mg.current_call().undoes
    assert undoes is not None
    service().undo(ask(order), undoes, os.getpid())
    meet(fault, "after")


def look(order: Order) -> mg.Happened[str] | mg.NotHappened:
    """Ask the service whether the running step's work stands."""
    begin(order, "probe")
    undoes = mg.current_call().undoes
    assert undoes is not None
    booking = service().asked(ask(order), undoes, os.getpid())
    return mg.NOT_HAPPENED if booking is None else mg.Happened(booking)


@shelf.action(complete_within="2m", retry=ONCE, recover=BRIEF)
async def hold(order: Order) -> str:
    return await asyncio.to_thread(bring_about, order)


@hold.undo
async def free(order: Order, *, result: str | None) -> None:
    await asyncio.to_thread(take_back, order)


@till.action(complete_within="2m", retry=ONCE, recover=BRIEF)
def charge(order: Order, held: str) -> str:
    return bring_about(order)


@charge.undo
def refund(order: Order, *, result: str | None) -> None:
    take_back(order)


@van.action(complete_within="2m", retry=ONCE, recover=BRIEF)
async def send(order: Order, paid: str) -> str:
    return await asyncio.to_thread(bring_about, order)


@send.undo
async def recall(order: Order, *, result: str | None) -> None:
    await asyncio.to_thread(take_back, order)


@van.action(complete_within="2m", retry=ONCE, recover=BRIEF)
def haul(order: Order, held: str) -> str:
    return bring_about(order)


@haul.undo
def bring_back(order: Order, *, result: str | None) -> None:
    take_back(order)


@post.action(
    complete_within="5m", retry=ONCE, recover=mg.Recover(threshold=2, wait="5m", extended="5m", resume="dead")
)
def stamp(order: Order) -> str:
    return bring_about(order)


@stamp.undo
def unstamp(order: Order, *, result: str | None) -> None:
    take_back(order)


@till.action(complete_within="2m", retry=ONCE, recover=HASTY)
def bet(order: Order, held: str) -> str:
    return bring_about(order)


@bet.undo
def call_off(order: Order, *, result: str | None) -> None:
    take_back(order)


@till.action(complete_within="2m", retry=ONCE, recover=BRIEF)
def book(order: Order, held: str) -> str:
    return bring_about(order)


@book.undo
def unbook(order: Order, *, result: str | None) -> None:
    take_back(order)


@book.probe
def find_booking(order: Order, held: str) -> mg.Happened[str] | mg.NotHappened:
    return look(order)


@mill.action(complete_within=GRIND, retry=ONCE, recover=BRIEF)
def grind(order: Order, held: str) -> str:
    return bring_about(order)


@grind.undo
def sweep(order: Order, *, result: str | None) -> None:
    take_back(order)


@mill.action(complete_within="2m", retry=ONCE, recover=BRIEF)
def polish(order: Order, held: str) -> str:
    return bring_about(order)


@polish.undo
def scratch(order: Order, *, result: str | None) -> None:
    take_back(order)


@still.action(
    complete_within="2m", retry=ONCE, recover=mg.Recover(threshold=1, wait="100ms", extended="200ms")
)
def brew(order: Order, held: str) -> str:
    return bring_about(order)


@brew.undo
def pour_away(order: Order, *, result: str | None) -> None:
    take_back(order)


@moon.action(complete_within="2m", retry=ONCE, recover=BRIEF)
def land(order: Order, held: str) -> str:
    return bring_about(order)


@land.undo
def leave(order: Order, *, result: str | None) -> None:
    take_back(order)


@bank.action(complete_within=HEARTBEAT, extend_up_to="2h", retry=ONCE, recover=BRIEF, cancellable=True)
async def transfer(order: Order) -> str:
    """Work of two hours with a heartbeat, until it has arrived."""
    begin(order, "do")
    call = mg.current_call()
    while not (folder() / "arrived").exists():
        await call.extend(HEARTBEAT)
        await asyncio.sleep(0.1)
    return await asyncio.to_thread(bring_about, order)


@transfer.undo
def send_back(order: Order, *, result: str | None) -> None:
    take_back(order)


@app.workflow(complete_within="10m")
def move(order: Order) -> str:
    """One step that takes as long as it takes."""
    return transfer(order)


@app.workflow(complete_within="10m")
def fill(order: Order) -> str:
    """Three steps in a row, over three agents."""
    reservation = hold(order)
    paid = charge(order, reservation)
    return send(order, paid)


@app.workflow
def mail(order: Order) -> str:
    """One step with all the time in the world, which is resumed as soon as its process is dead."""
    return stamp(order)


@app.workflow(complete_within="10m")
def buy(order: Order) -> str:
    """Two steps, the short one first."""
    return send(order, charge(order, "at once"))


@app.workflow(complete_within="10m")
def wager(order: Order) -> str:
    """Two steps, the first of which takes little time to undo."""
    return send(order, bet(order, "at once"))


@app.workflow(complete_within="10m")
def carry(order: Order) -> str:
    """Two steps with all the time in the world."""
    return haul(order, hold(order))


@app.workflow(complete_within="10m")
def gamble(order: Order) -> str:
    """The second step is undone after its second failure."""
    return bet(order, hold(order))


@app.workflow(complete_within="10m")
def reserve(order: Order) -> str:
    """The second step can be asked whether it happened."""
    return book(order, hold(order))


@app.workflow(complete_within="10m")
def poison(order: Order) -> str:
    """The second step has an agent of its own, which may be killed again and again."""
    return brew(order, hold(order))


@app.workflow(complete_within="10m")
def process(order: Order) -> str:
    """The second step's agent has one slot."""
    return grind(order, hold(order))


@app.workflow(complete_within="10m")
def deliver(order: Order) -> str:
    """The first step's agent has one slot; another step follows."""
    return send(order, grind(order, "at once"))


@app.workflow(complete_within="10m")
def finish(order: Order) -> str:
    """As ``deliver``, with all the time in the world."""
    return haul(order, polish(order, "at once"))


@app.workflow(complete_within="10m")
def explore(order: Order) -> str:
    """The second step's agent is not deployed everywhere."""
    return land(order, hold(order))


REST = 6.0
"""Seconds for which ``rest`` sleeps: long enough to be seen asleep."""
word = app.signal("word", str)


@app.workflow(complete_within="10m")
def rest(order: Order) -> str:
    """Three steps in a row, with a sleep after the first."""
    reservation = hold(order)
    mg.sleep(REST)
    return send(order, charge(order, reservation))


@app.workflow(complete_within="10m")
def ask_first(order: Order) -> str:
    """Three steps in a row, with a person's word after the first."""
    reservation = hold(order)
    mg.wait_for(word, timeout="5m")
    return send(order, charge(order, reservation))


@app.workflow(complete_within="10m")
def ring() -> None:
    """No action: what a schedule fires."""
    mg.sleep("10ms")


@app.inbox("orders", lease="1s", retry=mg.Retry(tries=20, wait="50ms"))
def accept(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
    """Take an order from the queue: a row of its own, and a task."""
    marks = "?, ?" if tx.caller.dialect == "sqlite" else "$1, $2"
    tx.execute(f"insert into fault_order (id, pid) values ({marks})", (order.id, os.getpid()))
    return fill.plan(order)


@app.inbox("waiting-orders", lease="1s", retry=mg.Retry(tries=20, wait="50ms"))
async def accept_waiting(order: Order, tx: mg.Transaction) -> mg.Plan[str]:
    """The same, as an `async def`."""
    marks = "?, ?" if tx.caller.dialect == "sqlite" else "$1, $2"
    await tx.execute_async(f"insert into fault_order (id, pid) values ({marks})", (order.id, os.getpid()))
    return fill.plan(order)
