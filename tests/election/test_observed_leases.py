"""Leases whose expiry each observer judges: proved on a place in memory, and the suite finds what may be wrong there."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from makegood.base.clock import Clock
from makegood.election import Grant, OpenLeases
from makegood.election.stores.calls import GrantDeadlines
from makegood.election.stores.compare_and_set import KEPT, ObservedLeases, Record
from makegood.errors import ConfigError, MakegoodError, StoreUnavailableError
from makegood.testing.leases import LEASE_STORE_CASES, LeaseCase, LeaseWorld
from tests.clocks import AheadClock

Place = dict[str, tuple[bytes, int]]


class PlaceLeases(ObservedLeases):
    """A dict that compares and sets; others come between any two calls of it."""

    def __init__(self, place: Place, clock: Clock) -> None:
        super().__init__("the leases in a dict", clock=clock)
        self.place = place

    async def get(self, name: str) -> tuple[Record, Any] | None:
        await asyncio.sleep(0)
        entry = self.place.get(name)
        return None if entry is None else (Record.decode(entry[0]), entry[1])

    async def put(self, name: str, record: Record, expect: Any) -> Any:
        await asyncio.sleep(0)
        return self.compared(name, record, expect)

    def compared(self, name: str, record: Record, expect: Any) -> Any:
        version = self.place[name][1] if name in self.place else None
        if version != expect:
            return None
        self.place[name] = record.encode(), (version or 0) + 1
        return self.place[name][1]

    async def disconnect(self) -> None:
        return

    def meaning(self, fault: Exception) -> MakegoodError | None:
        return None


class PlaceWorld(LeaseWorld):
    """Each store that is opened is another observer."""

    ttl = 15.0
    observed = True

    def __init__(self, kind: type[PlaceLeases] = PlaceLeases) -> None:
        super().__init__()
        self.kind = kind
        self.place: Place = {}
        self.clock = AheadClock()

    def open(self) -> OpenLeases:
        return self.kind(self.place, self.clock)

    async def elapse(self, seconds: float) -> None:
        self.clock.ahead += seconds


@pytest.mark.parametrize("case", LEASE_STORE_CASES, ids=str)
async def test_the_suite(case: LeaseCase) -> None:
    """What is common to NATS, ZooKeeper and Kubernetes does what an election relies on."""
    assert await case.prove(PlaceWorld()) in (
        "",
        "no server to restart",
        "no connections to break",
        "no way to let bytes vanish",
    )


class TrustsItsFirstLook(PlaceLeases):
    """Takes what it has not seen before for old."""

    def _seconds_left(self, name: str, record: Record, version: Any) -> float:
        return super()._seconds_left(name, record, version) if name in self._sightings else 0.0


class OwnTtl(PlaceLeases):
    """Waits for as long as leases usually last, not as long as this one does."""

    def _seconds_left(self, name: str, record: Record, version: Any) -> float:
        return super()._seconds_left(name, replace(record, ttl=PlaceWorld.ttl), version)


class RenewsInSilence(PlaceLeases):
    """A renewal that changes nothing which others could see."""

    async def extend(self, grant: Grant) -> bool:
        if not self._deadlines.holds(grant.nonce):
            return False
        self._deadlines.note_grant(grant.nonce, grant.ttl, self._clock.monotonic())
        return True


class CountsFromTheFirstSight(PlaceLeases):
    """Does not begin anew when the record has changed."""

    def _seconds_left(self, name: str, record: Record, version: Any) -> float:
        return super()._seconds_left(name, record, record.epoch)


class SetsWithoutComparing(PlaceLeases):
    """The last one to write wins."""

    def compared(self, name: str, record: Record, expect: Any) -> Any:
        return super().compared(name, record, self.place[name][1] if name in self.place else None)


class RenewsTooLate(PlaceLeases):
    """Sends a renewal whatever its own clock says."""

    def __init__(self, place: Place, clock: Clock) -> None:
        super().__init__(place, clock)
        self._deadlines = Timeless(clock)


class Timeless(GrantDeadlines):
    def holds(self, nonce: str) -> bool:
        return nonce in self._until

    def note_grant(self, nonce: str, ttl: float, start: float) -> None:
        self._until[nonce] = start + ttl


class ReleasesAnything(PlaceLeases):
    """Frees whoever's lease it is."""

    async def free(self, grant: Grant) -> None:
        entry = await self.get(grant.name)
        if entry is not None:
            await super().free(replace(grant, nonce=entry[0].nonce))


class DeletesOnRelease(PlaceLeases):
    """Removes the record, and the epoch with it."""

    async def free(self, grant: Grant) -> None:
        entry = await self.get(grant.name)
        if entry is not None and entry[0].nonce == grant.nonce:
            del self.place[grant.name]
            self._sightings.clear()


MUTANTS = (
    TrustsItsFirstLook, OwnTtl, RenewsInSilence, CountsFromTheFirstSight, SetsWithoutComparing, RenewsTooLate,
    ReleasesAnything, DeletesOnRelease,
)  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_the_suite_kills_mistakes_of_an_observer(mutant: type[PlaceLeases]) -> None:
    died_of = []
    for case in LEASE_STORE_CASES:
        try:
            await case.prove(PlaceWorld(mutant))
        except (AssertionError, MakegoodError):
            died_of.append(case.name)
    assert died_of, "it lives"


async def test_a_renewal_whose_answer_was_lost_is_found_to_have_been_ours() -> None:
    """The place took it, nobody was told: the next renewal meets a version that it does not know, and its own nonce."""
    leases = PlaceLeases({}, AheadClock())
    grant = await leases.acquire("x", "a", "n", 15)
    assert grant is not None
    record, version = leases._mine["n"]
    assert leases.compared("x", replace(record, beat=record.beat + 1), version) is not None
    assert await leases.renew(grant)


async def test_a_deleted_record_is_refused_by_who_knew_its_epoch() -> None:
    leases = PlaceLeases({}, AheadClock())
    grant = await leases.acquire("x", "a", "n", 15)
    assert grant is not None
    leases.place.clear()
    assert not await leases.renew(grant)
    with pytest.raises(ConfigError, match="was deleted, and its epoch with it"):
        await leases.acquire("x", "b", "m", 15)


async def test_a_record_that_never_stands_still_is_unavailable_not_lost() -> None:
    class Restless(PlaceLeases):
        def compared(self, name: str, record: Record, expect: Any) -> Any:
            return None if name in self.place else super().compared(name, record, expect)

    leases = Restless({}, AheadClock())
    grant = await leases.acquire("x", "a", "n", 15)
    assert grant is not None
    with pytest.raises(StoreUnavailableError, match="keeps changing"):
        await leases.renew(grant)
    with pytest.raises(StoreUnavailableError, match="keeps changing"):
        await leases.release(grant)


async def test_the_record_keeps_the_latest_terms_only() -> None:
    leases = PlaceLeases({}, AheadClock())
    for n in range(KEPT + 5):
        grant = await leases.acquire("x", "a", f"n{n}", 15)
        assert grant is not None
        await leases.release(grant)
    past = await leases.past_terms("x", 1000)
    assert [term.epoch for term in past] == list(range(KEPT + 5, 5, -1))


async def test_a_release_waits_for_a_take_that_is_still_under_way() -> None:
    """The taker was cancelled, its request was not: a release that overtook it would leave a lease that nobody knows of."""
    arrival, go = asyncio.Event(), asyncio.Event()

    class Slow(PlaceLeases):
        async def put(self, name: str, record: Record, expect: Any) -> Any:
            arrival.set()
            await go.wait()
            return await super().put(name, record, expect)

    leases = Slow({}, AheadClock())
    taking = asyncio.ensure_future(leases.acquire("x", "a", "n", 15))
    await arrival.wait()
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    giving_back = asyncio.ensure_future(leases.release(Grant("x", "a", "n", 0, 15)))
    go.set()
    await giving_back
    lease = await leases.read("x")
    assert lease is not None
    assert lease.holder is None
