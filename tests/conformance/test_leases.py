"""Leases with epochs."""

import asyncio

import pytest

from makegood.election.protocol import Grant
from makegood.store.protocol import Store
from tests.conformance.worlds import World


async def take(store: Store, holder: str, ttl: float = 15.0, nonce: str = "") -> Grant | None:
    """Campaign once, under a nonce of its own."""
    return await store.leases.acquire("boss", holder, nonce or f"{holder}'s nonce", ttl)


async def test_a_free_lease_is_taken_and_shown(store: Store) -> None:
    assert await store.leases.read("boss") is None
    grant = await take(store, "a")
    assert grant == Grant("boss", "a", "a's nonce", 1, 15.0)
    lease = await store.leases.read("boss")
    assert lease is not None
    assert (lease.name, lease.holder, lease.epoch, lease.ttl) == ("boss", "a", 1, 15.0)
    assert 0 < lease.remaining <= 15
    assert lease.since == pytest.approx(await store.now(), abs=15)


async def test_a_held_lease_is_not_given_to_another(store: Store, other: Store) -> None:
    await take(store, "a")
    assert await take(other, "b") is None
    lease = await store.leases.read("boss")
    assert lease is not None
    assert lease.holder == "a"


async def test_the_same_nonce_again_gives_the_same_epoch(store: Store) -> None:
    first = await take(store, "a")
    assert await take(store, "a") == first


async def test_an_expired_lease_goes_to_the_next_with_a_higher_epoch(
    store: Store, other: Store, world: World
) -> None:
    await take(store, "a")
    await world.elapse(16)
    lease = await store.leases.read("boss")
    assert lease is not None
    assert lease.remaining < 0
    grant = await take(other, "b")
    assert grant is not None
    assert grant.epoch == 2


async def test_an_epoch_does_not_return_after_somebody_deleted_the_row(store: Store, world: World) -> None:
    """The terms of the lease outlive its row."""
    for holder in ("a", "b"):
        grant = await take(store, holder)
        assert grant is not None
        await store.leases.release(grant)
    table = "makegood_lease" if world.dialect == "sqlite" else "makegood.lease"
    await world.rows(f"delete from {table} where name = 'boss'")
    again = await take(store, "c")
    assert again is not None
    assert again.epoch == 3


async def test_leases_of_other_names_do_not_matter(store: Store) -> None:
    await take(store, "a")
    grant = await store.leases.acquire("other boss", "b", "n", 15)
    assert grant is not None
    assert grant.epoch == 1


async def test_renewal_extends_a_lease_that_is_held(store: Store, world: World) -> None:
    grant = await take(store, "a")
    assert grant is not None
    for _ in range(3):
        await world.elapse(10)
        assert await store.leases.renew(grant)
    lease = await store.leases.read("boss")
    assert lease is not None
    assert 5 < lease.remaining <= 15
    assert lease.since == pytest.approx(await store.now() - 30, abs=15)


async def test_an_expired_lease_cannot_be_renewed(store: Store, world: World) -> None:
    grant = await take(store, "a")
    assert grant is not None
    await world.elapse(16)
    assert not await store.leases.renew(grant)
    lease = await store.leases.read("boss")
    assert lease is not None
    assert lease.remaining < 0


async def test_a_superseded_grant_can_neither_renew_nor_release(store: Store, world: World) -> None:
    old = await take(store, "a")
    assert old is not None
    await world.elapse(16)
    new = await take(store, "b")
    assert new is not None
    assert not await store.leases.renew(old)
    await store.leases.release(old)
    lease = await store.leases.read("boss")
    assert lease is not None
    assert (lease.holder, lease.epoch) == ("b", 2)
    assert await store.leases.renew(new)


async def test_a_released_lease_is_free_at_once_and_its_epoch_goes_on(store: Store) -> None:
    for n in range(1, 5):
        grant = await take(store, f"holder {n}")
        assert grant is not None
        assert grant.epoch == n
        await store.leases.release(grant)
        lease = await store.leases.read("boss")
        assert lease is not None
        assert (lease.holder, lease.epoch) == (None, n)
        assert not await store.leases.renew(grant)


async def test_releasing_twice_does_nothing_more(store: Store) -> None:
    first = await take(store, "a")
    assert first is not None
    await store.leases.release(first)
    second = await take(store, "b")
    assert second is not None
    await store.leases.release(first)
    assert await store.leases.renew(second)


async def test_a_released_grant_does_not_come_back_with_its_old_epoch(store: Store) -> None:
    first = await take(store, "a")
    assert first is not None
    await store.leases.release(first)
    again = await take(store, "a")
    assert again is not None
    assert again.epoch == 2


async def test_the_holder_decides_the_length_of_its_lease(store: Store, other: Store, world: World) -> None:
    await take(store, "a", ttl=100.0)
    await world.elapse(50)
    assert await take(other, "b", ttl=1.0) is None


async def test_of_eight_racers_one_wins_each_round_and_epochs_rise(store: Store, other: Store) -> None:
    epochs: list[int] = []
    for n in range(25):
        racers = [take(s, f"{i}", nonce=f"{n}-{i}") for i, s in enumerate((store, other) * 4)]
        grants = [g for g in await asyncio.gather(*racers) if g is not None]
        assert len(grants) == 1
        epochs.append(grants[0].epoch)
        await store.leases.release(grants[0])
    assert epochs == list(range(1, 26))


async def test_a_late_renewal_and_a_new_take_at_once_have_one_holder(
    store: Store, other: Store, world: World
) -> None:
    for n in range(10):
        old = await take(store, f"old {n}", nonce=f"old {n}")
        assert old is not None
        await world.elapse(15.5)
        renewal, new = await asyncio.gather(store.leases.renew(old), take(other, "new", nonce=f"new {n}"))
        assert (renewal, new is not None) == (False, True)
        await world.elapse(16)
