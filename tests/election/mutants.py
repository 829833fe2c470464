"""Elections and lease stores with one mistake each, planted on purpose: what a proof does not notice, it does not prove."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from makegood.base.clock import Clock
from makegood.election import Election, Grant, Term
from makegood.election.settings import Settings
from makegood.election.stores.memory import MemoryLeases
from makegood.errors import StoreError
from makegood.testing.simulator.clocks import SimulatedClock
from proofs.election_world import ElectionWorld, SimulatedCandidate

# -- of the election -----------------------------------------------------------------------------------------------------


@contextmanager
def counted_from_the_reply() -> Iterator[None]:
    """Belief counts from when the answer came, not from when the request went out."""

    def believed(self: Term, _start: float) -> float:
        return self._clock.monotonic() + self._settings.belief

    original = Election._begin_term

    async def from_now(self: Election, grant: Grant, _start: float) -> Term | None:
        return await original(self, grant, self._clock.monotonic())

    with patch.object(Term, "_believable_until", believed), patch.object(Election, "_begin_term", from_now):
        yield


def no_margin_for_drift() -> AbstractContextManager[Any]:
    """Belief lasts as long as the lease."""
    return patch.object(Settings, "belief", property(lambda self: self.ttl))


@contextmanager
def released_before_the_stop() -> Iterator[None]:
    """The lease is given back when the work is told to stop, not when it has stopped."""
    end = Term._end

    def early(self: Term, why: Any) -> None:
        end(self, why)
        asyncio.ensure_future(given_back(self))  # noqa: RUF006 - a mutant

    async def given_back(self: Term) -> None:
        with contextlib.suppress(StoreError):
            await self._leases.release(self.grant)

    with patch.object(Term, "_end", early):
        yield


@contextmanager
def no_local_deadline() -> Iterator[None]:
    """It waits for the store's answer, however long that takes."""

    async def patient(self: Term, _limit: float, call: Any) -> Any:
        return await call

    def endless(self: Term) -> float:
        return 0.0 if self._over else 1e9

    with patch.object(Term, "_within", patient), patch.object(Term, "remaining", endless):
        yield


@contextmanager
def leads_on_an_unknown_outcome() -> Iterator[None]:
    """A take without an answer counts as won."""
    take = Election._take

    async def hopeful(self: Election, nonce: str) -> tuple[Grant | None, bool]:
        grant, doubt = await take(self, nonce)
        if doubt:
            grant = Grant(self.name, self.me, nonce, 10**6, self.settings.ttl)
        return grant, False

    with patch.object(Election, "_take", hopeful):
        yield


@contextmanager
def one_shot() -> Iterator[None]:
    """After its first term a candidate contends no more."""
    terms = Election.terms

    async def once(self: Election) -> Any:
        async with contextlib.aclosing(terms(self)) as going:
            async for term in going:
                yield term
                await asyncio.Event().wait()

    with patch.object(Election, "terms", once):
        yield


ELECTIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "deadline counted from the reply": counted_from_the_reply,
    "no margin for drift": no_margin_for_drift,
    "released before the work has stopped": released_before_the_stop,
    "no local deadline": no_local_deadline,
    "leads on an unknown outcome": leads_on_an_unknown_outcome,
    "one-shot": one_shot,
}


# -- of the clock --------------------------------------------------------------------------------------------------------


class SleepyClock(SimulatedClock):
    """Stands still while the machine is suspended, as ``time.monotonic()`` does on Linux."""

    def __init__(self, world: ElectionWorld, candidate: SimulatedCandidate) -> None:
        super().__init__(lambda: world.loop.now, drift=candidate.drift)
        self._candidate = candidate

    def monotonic(self) -> float:
        return super().monotonic() - self._candidate.asleep


class WallClock(SimulatedClock):
    """Takes the wall clock for its own."""

    def monotonic(self) -> float:
        return super().wall()


class SleepyWorld(ElectionWorld):
    def clock_of(self, candidate: SimulatedCandidate) -> Clock:
        return SleepyClock(self, candidate)


class WallWorld(ElectionWorld):
    def clock_of(self, candidate: SimulatedCandidate) -> Clock:
        return WallClock(lambda: self.loop.now, drift=candidate.drift)


CLOCKS: dict[str, Callable[[int], ElectionWorld]] = {
    "a clock that stands still in suspend": SleepyWorld,
    "the wall clock": WallWorld,
}


# -- of the store --------------------------------------------------------------------------------------------------------


class RenewsExpired(MemoryLeases):
    """Renews a lease that has expired, if nobody took it since."""

    async def renew(self, grant: Grant) -> bool:
        record = self._records.get(grant.name)
        if record is not None and record.nonce == grant.nonce and record.holder is not None:
            self._expires[grant.name] = self._clock.monotonic() + record.ttl
            return True
        return False


class RenewsSuperseded(MemoryLeases):
    """Renews whatever is there."""

    async def renew(self, grant: Grant) -> bool:
        record = self._records[grant.name]
        self._expires[grant.name] = self._clock.monotonic() + record.ttl
        return True


class ForgetsEpoch(MemoryLeases):
    """Deletes the record at release, so that the epoch begins again."""

    async def release(self, grant: Grant) -> None:
        record = self._records.get(grant.name)
        if record is not None and record.nonce == grant.nonce:
            del self._records[grant.name]


class ReleasesAnything(MemoryLeases):
    """Releases whoever holds the lease."""

    async def release(self, grant: Grant) -> None:
        record = self._records.get(grant.name)
        if record is not None and record.holder is not None:
            await super().release(Grant(grant.name, record.holder, record.nonce, record.epoch, record.ttl))


class NewEpochPerTry(MemoryLeases):
    """A repeated take gets a new epoch."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        grant = await super().acquire(name, holder, nonce, ttl)
        if grant is not None:
            self._records[name] = replace(self._records[name], epoch=grant.epoch + 1)
            return Grant(name, holder, nonce, grant.epoch + 1, ttl)
        return None


class RefusesItsOwn(MemoryLeases):
    """A repeated take is refused by one's own grant."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        record = self._records.get(name)
        if record is not None and record.holder is not None and self._seconds_left(name) > 0:
            return None
        return await super().acquire(name, holder, nonce, ttl)


class ReadersTtl(MemoryLeases):
    """Judges expiry by the ttl of whoever looks."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        record = self._records.get(name)
        if record is not None and record.nonce != nonce:
            self._expires[name] += ttl - record.ttl
            self._records[name] = replace(record, ttl=ttl)
        return await super().acquire(name, holder, nonce, ttl)


class OpensByHolder(MemoryLeases):
    """Gives a held lease to a taker of the holder's name."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        record = self._records.get(name)
        if record is not None and record.holder == holder:
            self._expires[name] = self._clock.monotonic()
        return await super().acquire(name, holder, nonce, ttl)


class TakenEarly(MemoryLeases):
    """Lets a lease go a little before its time."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        record = self._records.get(name)
        if record is not None and record.nonce != nonce and self._seconds_left(name) < record.ttl * 0.4:
            self._expires[name] = self._clock.monotonic()
        return await super().acquire(name, holder, nonce, ttl)


class NeverExpires(MemoryLeases):
    """Keeps a lease for ever."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        grant = await super().acquire(name, holder, nonce, ttl)
        if grant is not None:
            self._expires[name] = float("inf")
        return grant


STORES: dict[str, type[MemoryLeases]] = {
    "a renewal that accepts an expired lease": RenewsExpired,
    "a renewal that accepts a superseded grant": RenewsSuperseded,
    "epoch reset on release": ForgetsEpoch,
    "unconditional release": ReleasesAnything,
    "a new epoch at each try": NewEpochPerTry,
    "a repeated take refused by one's own grant": RefusesItsOwn,
    "the reader's ttl instead of the record's": ReadersTtl,
    "the holder's name opens a held lease": OpensByHolder,
    "taken before its time": TakenEarly,
    "never taken after its time": NeverExpires,
}


def world_with(store: type[MemoryLeases], seed: int) -> ElectionWorld:
    """Return a world whose lease store has the mistake."""
    world = ElectionWorld(seed)
    world.leases = store(world.store_clock)
    return world


def maker(store: type[MemoryLeases]) -> Callable[[int], ElectionWorld]:
    """Return what makes such worlds."""
    return partial(world_with, store)
