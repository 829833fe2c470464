"""Open circuits are told once for an agent, however many processes run it, and end with the last one that hears an answer."""

import random

from makegood.breaker import Breaker, Circuit
from makegood.circuits import Circuits
from makegood.errors import StoreUnavailableError
from makegood.slots import Slots
from makegood.store.protocol import Store
from tests.conformance.builders import info, term


class Process:
    """One process with one agent, by hand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.slots = Slots("shop/payments", {}, 4, Circuit(Breaker(failures=1, reset=1), 4))
        self.number = 0
        self.circuits = Circuits(store, [self.slots], self.publish, lambda: self.number, rng=random.Random(1))

    async def start(self) -> "Process":
        """Register."""
        self.number = await self.store.register(info("p", ("agent",), 600.0, agents=(self.slots.info(0.0),)))
        return self

    async def publish(self) -> bool:
        """Write a heartbeat."""
        shown = info("p", ("agent",), 600.0, agents=(self.slots.info(0.0),))
        return await self.store.heartbeat(self.number, shown)

    async def open(self) -> None:
        """Fail once, and tell."""
        assert self.slots.circuit is not None
        self.slots.circuit.ended(self.slots.circuit.began(0.0), "failed", 0.0)
        await self.circuits._tell()

    async def answer(self) -> None:
        """Answer once, and tell: the circuit is released, and far from closed."""
        circuit = self.slots.circuit
        assert circuit is not None
        circuit.room(9.0, 4)
        circuit.ended(circuit.began(9.0), "answered", 9.0)
        assert circuit.state == "release"
        await self.circuits._tell()


async def standing(store: Store) -> list[str]:
    """Return what alerts stand."""
    return [f"{alert.kind} {alert.step}" for alert in await store.alerts(ended=False)]


async def test_it_is_one_alert_and_ends_with_the_last_circuit_that_is_answered(store: Store) -> None:
    """Not when all slots are in use again: of a service that is seldom called that may be days later."""
    first, second = await Process(store).start(), await Process(store).start()
    for process in (first, second):
        await process.open()
        assert await standing(store) == ["circuit_open shop/payments"]
    await second.answer()
    assert await standing(store) == ["circuit_open shop/payments"]
    await first.answer()
    assert await standing(store) == []
    assert len(await store.alerts()) == 1
    await second.open()
    assert len(await store.alerts()) == 2


async def test_one_that_stopped_or_died_does_not_hold_it_open(store: Store) -> None:
    first, second = await Process(store).start(), await Process(store).start()
    await first.open()
    await second.open()
    await store.unregister(first.number)
    await second.answer()
    assert await standing(store) == []


async def test_the_supervisor_ends_it_only_when_no_process_has_it_open(store: Store) -> None:
    process = await Process(store).start()
    await process.open()
    grant = await term(store)
    await store.starved(grant, 30.0, 10)
    assert await standing(store) == ["circuit_open shop/payments"]
    await store.unregister(process.number)
    await store.starved(grant, 30.0, 10)
    assert await standing(store) == []
    (alert,) = await store.alerts()
    assert "its service answers" in alert.ended_why


async def test_what_could_not_be_told_is_told_later(store: Store) -> None:
    process = await Process(store).start()
    true, failing = process.store.alert, [StoreUnavailableError("away")]

    async def alert(alerts: object) -> None:
        if failing:
            raise failing.pop()
        await true(alerts)  # type: ignore[arg-type]

    process.circuits._store = type("Away", (), {"alert": staticmethod(alert)})()
    try:
        await process.open()
    except StoreUnavailableError:
        await process.circuits._tell()
    assert await standing(store) == ["circuit_open shop/payments"]
