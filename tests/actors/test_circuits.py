"""Open circuits are told once for an agent, however many processes run it, and end with the last one that hears an answer."""

import random

import pytest

from makegood.agent.circuit_alerts import Circuits
from makegood.agent.slots import Slots
from makegood.base.ids import show
from makegood.errors import StoreUnavailableError
from makegood.model.breaker import Breaker, Circuit, Outcome
from makegood.store.protocol import Store
from makegood.store.views import NodeInfo
from tests.clocks import HandClock
from tests.conformance.builders import info, running, term
from tests.conformance.worlds import World


class Process:
    """One process with one agent, by hand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.slots = Slots("shop/payments", {}, 4, Circuit(Breaker(failures=1, reset=1), 4))
        self.number = 0
        self.clock = HandClock(0.0)
        self.circuits = Circuits(
            store, [self.slots], self.publish, lambda: self.number, clock=self.clock, rng=random.Random(1)
        )

    async def start(self) -> "Process":
        """Register."""
        self.number = await self.store.nodes.register(self.info())
        return self

    @property
    def circuit(self) -> Circuit:
        """Its circuit."""
        assert self.slots.circuit is not None
        return self.slots.circuit

    def info(self) -> NodeInfo:
        """Return what it says of itself."""
        return info("p", ("agent",), 600.0, agents=(self.slots.info(self.clock.seconds),))

    async def publish(self) -> bool:
        """Write a heartbeat."""
        return await self.store.nodes.heartbeat(self.number, self.info())

    async def call(self, outcome: Outcome) -> None:
        """Call once, as soon as that may be, and tell."""
        now = self.clock.seconds
        self.circuit.room(now, 4)
        self.circuit.record_end(self.circuit.began(now), outcome, now)
        await self.circuits.report()

    async def open(self) -> None:
        """Fail once, and tell."""
        await self.call("failed")

    async def answer(self) -> None:
        """Answer once, and tell: the circuit is released, and far from closed."""
        self.clock.seconds += 9.0
        await self.call("answered")
        assert self.circuit.state == "release"

    async def look(self, seconds: float = 1.0) -> None:
        """Let time pass, look at the other processes, and tell."""
        self.clock.seconds += seconds
        self.circuit.room(self.clock.seconds, 4)
        await self.publish()
        await self.circuits.look()
        await self.circuits.report()


async def standing(store: Store) -> list[str]:
    """Return what alerts stand."""
    return [f"{alert.kind} {alert.step}" for alert in await store.alerts.views(ended=False)]


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
    assert len(await store.alerts.views()) == 1
    await second.open()
    assert len(await store.alerts.views()) == 2


async def test_one_that_stopped_or_died_does_not_hold_it_open(store: Store) -> None:
    first, second = await Process(store).start(), await Process(store).start()
    await first.open()
    await second.open()
    await store.nodes.unregister(first.number)
    await second.answer()
    assert await standing(store) == []


async def test_the_supervisor_ends_it_only_when_no_process_has_it_open(store: Store) -> None:
    process = await Process(store).start()
    await process.open()
    grant = await term(store)
    await store.supervision.alert_starved(grant, 30.0, 10)
    assert await standing(store) == ["circuit_open shop/payments"]
    await store.nodes.unregister(process.number)
    await store.supervision.alert_starved(grant, 30.0, 10)
    assert await standing(store) == []
    (alert,) = await store.alerts.views()
    assert "its service answers" in alert.ended_why


async def test_what_could_not_be_told_is_told_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    process = await Process(store).start()
    true, failing = process.store.alerts.alert, [StoreUnavailableError("away")]

    async def alert(alerts: object) -> None:
        if failing:
            raise failing.pop()
        await true(alerts)  # type: ignore[arg-type]

    monkeypatch.setattr(store.alerts, "alert", alert)
    try:
        await process.open()
    except StoreUnavailableError:
        await process.circuits.report()
    assert await standing(store) == ["circuit_open shop/payments"]


async def test_an_answer_to_one_process_ends_the_alert_though_the_other_is_not_called(store: Store) -> None:
    """The other's circuit is half-open, and waits for a trial call that does not come: it learns from the store that it may be released."""
    first, second = await Process(store).start(), await Process(store).start()
    await first.open()
    await second.open()
    await second.look(9.0)
    assert second.slots.info(9.0).circuit == "half-open"
    first.clock.seconds = 10.0
    await first.answer()
    assert await standing(store) == ["circuit_open shop/payments"]
    second.clock.seconds = 20.0
    await second.look()
    assert second.circuit.state == "release"
    assert await standing(store) == []


async def test_an_answer_from_before_it_opened_says_nothing(store: Store) -> None:
    first, second = await Process(store).start(), await Process(store).start()
    await first.call("answered")
    await first.publish()
    second.clock.seconds = first.clock.seconds = 5.0
    await second.open()
    first.clock.seconds = 14.0
    await first.publish()
    await second.look(9.0)
    assert second.circuit.state == "half-open"
    assert await standing(store) == ["circuit_open shop/payments"]


async def test_the_alert_of_a_service_for_which_nothing_waits_ends_and_is_raised_again(store: Store) -> None:
    """Its circuit may be half-open for days: nobody knows whether the service answers, and nobody needs to."""
    process = await Process(store).start()
    await process.open()
    await process.look(9.0)
    await process.look(59.0)
    assert await standing(store) == ["circuit_open shop/payments"]
    await process.look(2.0)
    assert await standing(store) == []
    assert "the next call shows" in (await store.alerts.views())[0].ended_why
    await process.open()
    assert await standing(store) == ["circuit_open shop/payments"]
    await process.look(9.0)
    assert await standing(store) == ["circuit_open shop/payments"]


async def test_an_alert_that_could_not_be_ended_is_ended_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was away when it was to be ended: the next look ends it."""
    process = await Process(store).start()
    await process.open()
    await process.look(9.0)
    true, failing = store.alerts.ease, [StoreUnavailableError("away")]

    async def ease(alerts: object, why: str) -> None:
        if failing:
            raise failing.pop()
        await true(alerts, why)  # type: ignore[arg-type]

    monkeypatch.setattr(store.alerts, "ease", ease)
    with pytest.raises(StoreUnavailableError):
        await process.look(61.0)
    assert await standing(store) == ["circuit_open shop/payments"]
    await process.look(10.0)
    assert await standing(store) == []


async def test_the_alert_stays_as_long_as_something_waits_or_another_process_is_sure(store: Store) -> None:
    process, sure = await Process(store).start(), await Process(store).start()
    await process.open()
    await sure.open()
    for _ in range(3):
        await process.look(100.0)
        assert await standing(store) == ["circuit_open shop/payments"]
    await store.nodes.unregister(sure.number)
    await running(store, 1)
    for _ in range(3):
        await process.look(100.0)
        assert await standing(store) == ["circuit_open shop/payments"]


async def test_an_outage_has_an_alert_that_names_the_tasks_that_wait(store: Store, world: World) -> None:
    """From when the circuit has been open for as long as was set, until it is not: up to date, and no more than ten names."""
    process = await Process(store).start()
    await process.open()
    grant = await term(store)
    await running(store, 1, 2)
    await store.supervision.alert_starved(grant, 3600.0, 10, 300.0)
    assert await standing(store) == ["circuit_open shop/payments"]
    await world.elapse(301)
    await process.publish()
    grant = await term(store)
    await store.supervision.alert_starved(grant, 3600.0, 10, 300.0)
    assert await standing(store) == ["outage shop/payments", "circuit_open shop/payments"]
    (alert, _) = await store.alerts.views(ended=False)
    assert f"more than 5m; 2 tasks wait: {show(1)}, {show(2)}. They wait until" in alert.text
    assert "`makegood task cancel ID`" in alert.text
    await running(store, *range(3, 14))
    await store.supervision.alert_starved(grant, 3600.0, 10, 300.0)
    (alert, _) = await store.alerts.views(ended=False)
    assert f"13 tasks wait: {show(1)}, " in alert.text
    assert f"{show(10)} and 3 more." in alert.text
    await process.answer()
    await store.supervision.alert_starved(grant, 3600.0, 10, 300.0)
    assert await standing(store) == []


async def test_an_outage_for_which_nothing_waits_is_no_operators_business(store: Store, world: World) -> None:
    process = await Process(store).start()
    await process.open()
    await world.elapse(301)
    await process.publish()
    await store.supervision.alert_starved(await term(store), 3600.0, 10, 300.0)
    assert await standing(store) == ["circuit_open shop/payments"]
