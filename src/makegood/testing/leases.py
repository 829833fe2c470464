"""The public suite for lease stores: proves of your store, on its real server, what ``makegood.election``
relies on.

Define how your store is opened and how time passes, and run every case::

    class MyWorld(LeaseWorld):
        def open(self) -> OpenLeases:
            return MyLeases("my-server:1234", prefix=self.prefix)

    @pytest.mark.parametrize("case", LEASE_STORE_CASES, ids=str)
    async def test_my_store(case: LeaseCase) -> None:
        why = await case.prove(MyWorld())
        if why:
            pytest.skip(why)

A case fails with ``AssertionError``. A case that needs what your world cannot do returns the reason.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from makegood.election.protocol import Grant, LeaseStore, LeaseView, OpenLeases
from makegood.errors import StoreUnavailableError


class ImpossibleHereError(Exception):
    """A world cannot do what a case needs; the message says what."""


class LeaseWorld(ABC):
    """The place under test."""

    ttl: float = 1.0
    """Seconds of a lease that suit it."""
    slack: float = 0.5
    """Seconds by which a call may be slow, or its clock inexact."""
    rounds: int = 25
    """How often a race is run."""
    observed: bool = False
    """Whether each observer judges expiry on its own clock: a new observer waits a full ttl from its first
    read.
    """
    first: int | None = 1
    """The first epoch of a name; None: any."""
    longest: float = 3600.0
    """The longest ttl, in seconds, that the place allows."""

    def __init__(self) -> None:
        self.prefix = f"suite-{secrets.token_hex(6)}"

    def name(self, what: str = "lease") -> str:
        """Return an unused name."""
        return f"{self.prefix}-{what}-{secrets.token_hex(3)}"

    @abstractmethod
    def open(self) -> OpenLeases:
        """Return a store on the place: each as another process would have it."""

    async def elapse(self, seconds: float) -> None:
        """Let time pass for the store's clock and the observers' clocks."""
        await asyncio.sleep(seconds)

    async def restart(self) -> None:
        """Restart the server in good order."""
        raise ImpossibleHereError("no server to restart")

    async def recycle(self) -> None:
        """Break every connection to the server, as a pool or an operator does."""
        raise ImpossibleHereError("no connections to break")

    def black_hole(self) -> AbstractAsyncContextManager[tuple[OpenLeases, Callable[[], None]]]:
        """Return a store, and a function that cuts it off from its server: from then on bytes vanish, and
        no call fails at once. Its timeout is at most ``slack``.
        """
        raise ImpossibleHereError("no way to let bytes vanish")

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Return an open transaction on the same database, as ``guard`` takes it; it is committed at the
        end.
        """
        raise ImpossibleHereError("no transactions")


Prove: TypeAlias = Callable[[LeaseWorld], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class LeaseCase:
    """One thing to prove. ``name`` describes it; ``must`` raises ``AssertionError`` if it does not hold."""

    name: str
    must: Prove

    def __str__(self) -> str:
        return self.name

    async def prove(self, world: LeaseWorld) -> str:
        """Prove it. Returns "", or why this world cannot try it. Raises ``AssertionError``."""
        try:
            await self.must(world)
        except ImpossibleHereError as impossible:
            return str(impossible)
        return ""


async def take(store: LeaseStore, name: str, holder: str, ttl: float, nonce: str = "") -> Grant | None:
    """Campaign once, under a new nonce unless one is given."""
    return await store.acquire(name, holder, nonce or f"{holder}-{secrets.token_hex(8)}", ttl)


async def must_take(store: LeaseStore, name: str, holder: str, ttl: float, nonce: str = "") -> Grant:
    """Take a lease that must be free."""
    grant = await take(store, name, holder, ttl, nonce)
    assert grant is not None, f"a free lease was not given to {holder}"
    assert (grant.name, grant.holder, grant.ttl) == (name, holder, ttl), f"the grant says {grant}"
    return grant


async def read(
    store: LeaseStore, name: str, message: str = "a lease that was taken is on record"
) -> LeaseView:
    """Read a lease that somebody took."""
    view = await store.read(name)
    assert view is not None, message
    return view


def _two(case: Callable[[LeaseWorld, OpenLeases, OpenLeases, str], Awaitable[None]]) -> Prove:
    """Give a case two stores on the place, as two processes would have them, and an unused name."""

    async def must(world: LeaseWorld) -> None:
        async with world.open() as store, world.open() as peer:
            await case(world, store, peer, world.name())

    return must


async def ran_out(world: LeaseWorld, store: LeaseStore, name: str, ttl: float) -> None:
    """Let a lease run out, as far as ``store`` is concerned."""
    if world.observed:
        assert await take(store, name, "observer", ttl) is None, "a held lease was given away"
        await world.elapse(ttl * 0.05)
    await world.elapse(ttl + world.slack)


# -- the cases -------------------------------------------------------------------------------------


async def _free(world: LeaseWorld) -> None:
    async with world.open() as store:
        name = world.name()
        assert await store.read(name) is None, "a lease that nobody ever took is on record"
        assert await store.past_terms(name) == []
        grant = await must_take(store, name, "a", world.ttl)
        assert world.first in (None, grant.epoch), f"the first epoch is {world.first}, not {grant.epoch}"
        view = await read(store, name, "a lease that is held cannot be read")
        assert (view.name, view.holder, view.epoch, view.ttl) == (name, "a", grant.epoch, world.ttl), (
            f"{view}"
        )
        assert 0 < view.remaining <= world.ttl * 1.05, f"{view.remaining} s are left of {world.ttl}"
        await store.release(grant)


async def _held_lease(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    grant = await must_take(store, name, "a", world.ttl)
    assert await take(peer, name, "b", world.ttl) is None, "a held lease was given to another"
    assert await take(peer, name, "a", world.ttl) is None, "the holder's name alone opened a held lease"
    view = await read(peer, name)
    assert (view.holder, view.epoch) == ("a", grant.epoch)
    await store.release(grant)


async def _names(world: LeaseWorld) -> None:
    async with world.open() as store:
        first = await must_take(store, world.name("one"), "a", world.ttl)
        second = await must_take(store, world.name("other"), "b", world.ttl)
        firsts = [world.first or first.epoch, world.first or second.epoch]
        assert [first.epoch, second.epoch] == firsts, "leases of different names have to do with each other"
        await store.release(first)
        assert await store.renew(second)
        await store.release(second)


async def _race(world: LeaseWorld) -> None:
    stores = [world.open() for _ in range(4)]
    try:
        name, last = world.name(), 0
        for n in range(world.rounds):
            calls = [partial(stores[i % 4].acquire, name, f"r{i}", f"{n}-{i}", world.ttl) for i in range(8)]
            racers = [call_until_known(call) for call in calls]
            winners: list[Grant] = [grant for grant in await asyncio.gather(*racers) if grant is not None]
            assert len(winners) == 1, f"round {n}: {len(winners)} of 8 racers won"
            assert winners[0].epoch > last, f"round {n}: epoch {winners[0].epoch} after {last}"
            last = winners[0].epoch
            await stores[0].release(winners[0])
    finally:
        for store in stores:
            await store.close()


async def _repeat(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    first = await must_take(store, name, "a", world.ttl, "nonce-a-1")
    again = await take(peer, name, "a", world.ttl, "nonce-a-1")
    assert again == first, f"the same nonce gave {again} after {first}"
    await store.release(first)


async def _repeat_extends(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    await take(store, name, "a", world.ttl, "nonce-a-1")
    assert await take(peer, name, "b", world.ttl) is None
    await world.elapse(world.ttl * 0.6)
    assert await take(store, name, "a", world.ttl, "nonce-a-1") is not None
    await world.elapse(world.ttl * 0.6)
    grant = await take(peer, name, "b", world.ttl)
    assert grant is None, "a repeated take did not restore the full ttl"


async def _expires(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    grant = await must_take(store, name, "a", world.ttl)
    if world.observed:
        assert await take(peer, name, "b", world.ttl) is None
    await world.elapse(world.ttl * 0.7)
    assert await take(peer, name, "b", world.ttl) is None, "taken before its time was up"
    await world.elapse(world.ttl * 0.35 + world.slack)
    view = await read(peer, name)
    assert view.holder is None or view.remaining <= 0, f"shown as held after it ran out: {view}"
    successor = await take(peer, name, "b", world.ttl)
    assert successor is not None, "not taken soon after its time was up"
    assert successor.epoch > grant.epoch, f"epoch {successor.epoch} after {grant.epoch}"


async def _renews(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    grant = await must_take(store, name, "a", world.ttl)
    for _ in range(3):
        assert await take(peer, name, "b", world.ttl) is None
        await world.elapse(world.ttl * 0.6)
        assert await store.renew(grant), "a lease that is held was not renewed"
    assert await take(peer, name, "b", world.ttl) is None, "a renewed lease was given away"
    view = await read(store, name)
    assert view.epoch == grant.epoch, "a renewal changed the epoch"


async def _late_renewal(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    grant = await must_take(store, name, "a", world.ttl)
    await ran_out(world, peer, name, world.ttl)
    assert not await store.renew(grant), "a lease that had expired was renewed"
    assert await take(peer, name, "b", world.ttl) is not None, "the refused renewal had an effect"


async def _superseded_grant(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    old = await must_take(store, name, "a", world.ttl)
    await ran_out(world, peer, name, world.ttl)
    new = await must_take(peer, name, "b", world.ttl)
    assert not await store.renew(old), "a superseded grant was renewed"
    await store.release(old)
    view = await read(peer, name)
    assert (view.holder, view.epoch) == ("b", new.epoch), f"a superseded grant released another's: {view}"
    assert await peer.renew(new), "a superseded grant's release had an effect"
    await peer.release(new)


async def _release(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    last = 0
    for holder in ("a", "b", "a", "c"):
        grant = await must_take(store, name, holder, world.ttl)
        assert last in (0, grant.epoch - 1), f"epoch {grant.epoch} after {last}: it must rise by one"
        last = grant.epoch
        await store.release(grant)
        await store.release(grant)
        view = await read(peer, name, "a released lease is still on record")
        assert (view.holder, view.epoch) == (None, last), f"after the release {view}"
        assert not await store.renew(grant), "a released grant was renewed"


async def _release_by_nonce(world: LeaseWorld) -> None:
    async with world.open() as store:
        name = world.name()
        grant = await must_take(store, name, "a", world.ttl)
        await store.release(Grant(name, "a", "another nonce", grant.epoch, world.ttl))
        assert await take(store, name, "b", world.ttl) is None, "another nonce released the lease"
        await store.release(Grant(name, "a", grant.nonce, 0, world.ttl))
        assert (await must_take(store, name, "b", world.ttl)).epoch == grant.epoch + 1


async def _released_nonce(world: LeaseWorld) -> None:
    async with world.open() as store:
        name = world.name()
        first = await must_take(store, name, "a", world.ttl, "nonce-a-1")
        await store.release(first)
        again = await must_take(store, name, "a", world.ttl, "nonce-a-1")
        assert again.epoch == first.epoch + 1, "a released grant came back under its old epoch"
        await store.release(again)


async def _holders_ttl(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    short = world.ttl
    await must_take(store, name, "a", short * 3)
    assert await take(peer, name, "b", short) is None
    await world.elapse(short * 1.5 + world.slack)
    assert await take(peer, name, "b", short) is None, "the reader's ttl ruled, not the holder's"
    view = await read(peer, name)
    assert view.ttl == short * 3, f"the record says ttl {view.ttl}, the holder said {short * 3}"


async def _history(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    first = await must_take(store, name, "a", world.ttl)
    await store.release(first)
    await must_take(store, name, "b", world.ttl)
    await ran_out(world, peer, name, world.ttl)
    third = await must_take(peer, name, "c", world.ttl)
    past = await peer.past_terms(name)
    began = first.epoch
    assert [(t.epoch - began, t.holder) for t in past] == [(2, "c"), (1, "b"), (0, "a")], f"{past}"
    assert (past[0].ended, past[0].released) == (None, False)
    assert past[1].ended is not None
    assert not past[1].released, "a lease that ran out is recorded as released"
    assert past[2].ended is not None
    assert past[2].released, "a released lease is not recorded as released"
    assert past[2].began <= past[2].ended <= past[1].began + world.slack
    assert past[1].ended <= past[0].began + world.slack
    assert [t.epoch - began for t in await peer.past_terms(name, 2)] == [2, 1]
    await peer.release(third)
    for n in range(16):
        await store.release(await must_take(store, name, f"h{n}", world.ttl))
    assert len(await store.past_terms(name)) >= 16, "fewer than 16 terms are remembered"


async def _restart(world: LeaseWorld) -> None:
    async with world.open() as store:
        name = world.name()
        before = await must_take(store, name, "a", world.ttl)
        await store.release(before)
        await world.restart()
    async with world.open() as store:
        await read(store, name, "the record did not survive a restart")
        after = await must_take(store, name, "b", world.ttl)
        assert after.epoch > before.epoch, f"epoch {after.epoch} after {before.epoch} and a restart"


async def _recycle(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    grant = await must_take(store, name, "a", world.ttl * 3)
    await world.recycle()
    assert await call_until_known(lambda: take(peer, name, "b", world.ttl)) is None, (
        "lost with the connection"
    )
    assert await call_until_known(lambda: store.renew(grant)), "the holder lost its lease with its connection"


async def call_until_known(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call whose outcome is unknown; after a few tries it must be known."""
    for _ in range(9):
        try:
            return await call()
        except StoreUnavailableError:
            continue
    return await call()


async def _cancelled_take(world: LeaseWorld, store: OpenLeases, peer: OpenLeases, name: str) -> None:
    long = min(world.ttl * 10, world.longest)
    for n in range(world.rounds):
        nonce = f"cancelled-{n}"
        going = asyncio.ensure_future(store.acquire(name, "a", nonce, long))
        for _ in range(n):
            await asyncio.sleep(0)
        going.cancel()
        await asyncio.wait([going], timeout=world.slack)
        assert going.done(), "a call that was cancelled did not end"
        await call_until_known(partial(store.release, Grant(name, "a", nonce, 0, long)))
        next_one = await take(peer, name, "b", long)
        assert next_one is not None, f"after {n} steps a cancelled take left a held lease behind"
        await peer.release(next_one)


async def _black_hole(world: LeaseWorld) -> None:
    async with world.black_hole() as (store, cut_off):
        name = world.name()
        grant = await call_until_known(lambda: store.acquire(name, "a", "n", world.ttl))
        assert grant is not None, "a free lease was not given"
        cut_off()
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "acquire": lambda: store.acquire(name, "a", "n", world.ttl),
            "renew": lambda: store.renew(grant),
            "release": lambda: store.release(grant),
            "read": lambda: store.read(name),
            "past_terms": lambda: store.past_terms(name),
        }
        for verb, call in calls.items():
            try:
                async with asyncio.timeout(3 * world.slack + 1):
                    answer = await call()
            except StoreUnavailableError:
                continue
            except TimeoutError:
                raise AssertionError(f"{verb} did not end within its time-out") from None
            raise AssertionError(f"{verb} answered {answer!r} out of a black hole")


LEASE_STORE_CASES: tuple[LeaseCase, ...] = (
    LeaseCase("a free lease is taken and shown", _free),
    LeaseCase("a held lease is not given to another", _two(_held_lease)),
    LeaseCase("leases of other names do not matter", _names),
    LeaseCase("of eight racers one wins, and epochs rise", _race),
    LeaseCase("the same nonce again gives the same grant", _two(_repeat)),
    LeaseCase("the same nonce again restores the full ttl", _two(_repeat_extends)),
    LeaseCase("not taken before the ttl, and taken soon after", _two(_expires)),
    LeaseCase("a renewal extends a lease that is held", _two(_renews)),
    LeaseCase("a lease that has expired is not renewed", _two(_late_renewal)),
    LeaseCase("a superseded grant can do nothing", _two(_superseded_grant)),
    LeaseCase("a release hands over at once, and the epoch continues to rise", _two(_release)),
    LeaseCase("only the nonce releases", _release_by_nonce),
    LeaseCase("a released nonce has no way back to its epoch", _released_nonce),
    LeaseCase("the holder's ttl rules, not the reader's", _two(_holders_ttl)),
    LeaseCase("past terms are remembered", _two(_history)),
    LeaseCase("epochs rise across a restart of the server", _restart),
    LeaseCase("no lease is lost with a connection", _two(_recycle)),
    LeaseCase("a cancelled take leaves no held lease", _two(_cancelled_take)),
    LeaseCase("a black hole is given up in time", _black_hole),
)
"""What every lease store must do, a case each."""
