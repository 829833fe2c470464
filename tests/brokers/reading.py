"""How the suites read from a source, and wait for what a broker does in its own time."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from makegood.brokers import BrokerAddress, Delivery, Reader, Requirement, Source, Target, check, open_source
from makegood.errors import BrokerUnavailableError
from tests.brokers.rig import Draft, Rig

PATIENCE = 120.0
"""Seconds that the slowest machine may take for anything."""
BEYOND = 30.0
"""Seconds that a call may take beyond its ``wait``: some ten by itself, the rest is for a busy machine."""

_numbers = itertools.count(1)


def fresh_place() -> str:
    """Return a name that no other case of this machine uses."""
    return f"orders-{os.getpid()}-{next(_numbers)}"


def drafts(count: int, prefix: str = "m", *, with_ids: bool = True) -> list[Draft]:
    """Return messages that differ in body and id."""
    return [
        Draft(f'{{"order": "{prefix}{n}"}}'.encode(), f"{prefix}{n}" if with_ids else None)
        for n in range(count)
    ]


def source_at(
    rig: Rig, address: BrokerAddress, name: str = "one", batch: int = 200, target: Target | None = None
) -> Source:
    """Return a source of the rig's broker, or as another user, that is not open."""
    reader = Reader("makegood-shop-orders", name, batch)
    return open_source(address, {address.name: target or rig.target}, reader)


async def checked(
    rig: Rig, sources: Sequence[BrokerAddress] = (), places: Sequence[str] = ()
) -> list[Requirement]:
    """Return what is checked of places of the rig's broker."""
    answers = await check(rig.target, sources, places, Reader("makegood-shop-orders", "check"))
    assert {where for where, _ in answers} == {str(each) for each in sources} | {
        f"{rig.target.where}/{place}" for place in places
    }
    return [requirement for _, requirement in answers]


@asynccontextmanager
async def reading(
    rig: Rig, address: BrokerAddress, name: str = "one", batch: int = 200
) -> AsyncIterator[Source]:
    """An open source."""
    source = source_at(rig, address, name, batch)
    try:
        await opened(source)
        yield source
    finally:
        await source.close()


async def opened(source: Source) -> None:
    """Open a source as the relay does: again, while the broker is away."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await source.open()
            except BrokerUnavailableError:
                await asyncio.sleep(0.1)
            else:
                return


async def taken(source: Source, count: int, *, limit: int = 200, beyond: float = 0.0) -> list[Delivery]:
    """Take until there are so many deliveries; opens the source anew when it has broken, and drops what it had taken then.

    ``beyond``: seconds to wait longer than usual.
    """
    result: list[Delivery] = []
    try:
        async with asyncio.timeout(PATIENCE + beyond):
            while len(result) < count:
                try:
                    result += await source.take(min(limit, count - len(result)), 1.0)
                except BrokerUnavailableError:
                    result.clear()
                    await opened(source)
    except TimeoutError:
        pytest.fail(f"{len(result)} of {count} messages came in {PATIENCE + beyond:g} s")
    return result


async def until_durable(rig: Rig) -> None:
    """Wait until a place that was declared outlives a kill of the server. No server says when: see ``Rig.durable_after``."""
    await asyncio.sleep(rig.durable_after)


async def nothing_comes(source: Source, seconds: float = 1.0) -> None:
    """Fail if anything is delivered within so many seconds."""
    assert [delivery.body for delivery in await source.take(200, seconds)] == []


def bodies(deliveries: Sequence[Delivery]) -> list[bytes]:
    """Return the bodies of deliveries."""
    return [delivery.body for delivery in deliveries]


def in_order(rig: Rig, arrivals: Sequence[bytes], messages: Sequence[bytes]) -> None:
    """Check that all of these came and nothing else, in this order if the broker keeps one."""
    if rig.keeps_order:
        assert list(arrivals) == list(messages)
    else:
        assert sorted(arrivals) == sorted(messages)
