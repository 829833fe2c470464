"""A term ends by the local clock, stops its work before it gives the lease back, and is fenced by a rising epoch."""

import asyncio
import contextlib
import random
import re

import pytest

from makegood.election import Election, Grant, LeadershipLostError, LeaseView, PastTerm
from makegood.election.settings import belief
from makegood.errors import ConfigError, StoreUnavailableError
from tests.election.virtual import virtual


class LoopClock:
    """The event loop's own time, so that deadlines and sleeps agree."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic()

    def boot_id(self) -> str:
        return "test"


class Leases:
    """A lease store in memory whose answers can be held back; it keeps a log."""

    def __init__(self) -> None:
        self.holder: Grant | None = None
        self.until = 0.0
        self.epoch = 0
        self.away = False
        self.refuse = False
        self.log: list[str] = []

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        now = asyncio.get_running_loop().time()
        if self.away:
            raise StoreUnavailableError("away")
        if self.holder is not None and self.until > now and self.holder.nonce != nonce:
            return None
        self.epoch += 1
        self.holder = Grant(name, holder, nonce, self.epoch, ttl)
        self.until = now + ttl
        self.log.append(f"{holder} took {self.epoch}")
        return self.holder

    async def renew(self, grant: Grant) -> bool:
        if self.away:
            raise StoreUnavailableError("away")
        if self.refuse or self.holder != grant:
            return False
        self.until = asyncio.get_running_loop().time() + grant.ttl
        return True

    async def release(self, grant: Grant) -> None:
        if self.holder == grant:
            self.holder = None
            self.log.append(f"{grant.holder} released {grant.epoch}")

    async def read(self, name: str) -> LeaseView | None:
        raise NotImplementedError

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        raise NotImplementedError


def election(leases: Leases, me: str, ttl: float = 0.15) -> Election:
    return Election("lead", leases, me=me, ttl=ttl, clock=LoopClock(), rng=random.Random(me))


def test_a_renewal_that_cannot_come_in_time_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(ConfigError, match=r"together 15 s, which must fit into the 13\.95 s"):
        Election("lead", Leases(), me="a", ttl=15, renew=10)


def test_belief_is_shorter_than_the_lease_by_twice_the_drift() -> None:
    assert 14.6 < belief(15) < 14.75


@virtual  # in true time a busy machine may be late
async def test_the_work_is_cancelled_at_the_deadline_when_the_store_is_gone_and_awaited_before_release() -> (
    None
):
    leases, ends = Leases(), []
    start = asyncio.get_running_loop().time()
    async for term in election(leases, "a").terms():
        async with term:
            leases.away = True
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.shield(asyncio.sleep(0))
                ends.append(asyncio.get_running_loop().time() - start)
                leases.away = False
                leases.log.append("work ended")
        break
    assert 0.1 < ends[0] < belief(0.15)
    assert leases.log == ["a took 1", "work ended", "a released 1"]
    assert term.lost.is_set()
    assert term.remaining() == 0.0
    with pytest.raises(LeadershipLostError, match="contend again"):
        term.check()


@virtual  # as above
async def test_a_renewal_without_an_answer_is_logged_with_its_reason_and_the_seconds_that_are_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was left before the wait is of no use to anybody after it."""

    class Silent(Leases):
        async def renew(self, grant: Grant) -> bool:
            await asyncio.Event().wait()
            return False

    async for term in election(Silent(), "a", ttl=0.3).terms():
        async with term:
            await asyncio.Event().wait()
        break
    messages = [record.getMessage() for record in caplog.records if "renewal" in record.getMessage()]
    assert messages
    assert re.fullmatch(
        r"a renewal of the lease 'lead' failed, 0\.0 s left: no answer within \d\.\d s", messages[-1]
    )


async def test_a_refused_renewal_ends_the_term_at_once() -> None:
    leases = Leases()
    start = asyncio.get_running_loop().time()
    brisk = Election("lead", leases, me="a", ttl=60, renew=0.05, clock=LoopClock(), rng=random.Random(1))
    async for term in brisk.terms():
        leases.refuse = True
        async with term:
            await asyncio.Event().wait()
        break
    assert asyncio.get_running_loop().time() - start < 50


@virtual  # as above
async def test_a_term_that_is_renewed_outlives_its_lease_and_release_lets_another_in_with_a_higher_epoch() -> (
    None
):
    leases = Leases()
    terms = election(leases, "a", ttl=0.1).terms()
    first = await anext(terms)
    async with first:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        end = asyncio.Event()
        asyncio.get_running_loop().call_later(0.3, end.set)
        await end.wait()
        first.check()
    second = await anext(election(leases, "b").terms())
    assert (first.epoch, second.epoch) == (1, 2)
    async with second:
        pass
    await terms.aclose()


async def test_the_callers_own_cancellation_is_not_swallowed_and_releases_the_lease() -> None:
    leases = Leases()

    async def lead() -> None:
        async for term in election(leases, "a", ttl=5).terms():
            async with term:
                await asyncio.Event().wait()

    task = asyncio.create_task(lead())
    for _ in range(10):
        await asyncio.sleep(0)
    assert leases.holder is not None
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert leases.holder is None


@virtual  # in true time a busy machine may stand still for longer than a lease of 0.1 s
async def test_two_contenders_never_lead_at_once() -> None:
    leases, leading, most = Leases(), [0], [0]

    async def contend(me: str) -> None:
        async for term in election(leases, me, ttl=0.1).terms():
            async with term:
                leading[0] += 1
                most[0] = max(most[0], leading[0])
                end = asyncio.Event()
                asyncio.get_running_loop().call_later(0.05, end.set)
                try:
                    await end.wait()
                finally:
                    leading[0] -= 1

    tasks = [asyncio.create_task(contend(me)) for me in "abc"]
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(1.0, over.set)
    await over.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most[0] == 1
    assert leases.epoch >= 3
