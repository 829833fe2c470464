"""``python -m proofs.candidates SPEC``: a candidate as a process of its own, for tests and measurements.

It contends for a lease and, while it leads, sends one unit of work after another to a resource: it checks
that it leads, thinks for a moment, and writes. A process that is stopped in between makes a stale write. SPEC
is JSON, see ``Spec``.

``loop`` "makegood" is the ``Election``. "sample" is a port of the loop of the pattern's best-known sample
(the BlobDistributedMutex of the cloud design patterns), with its timings: lease 15 s, renewal every 10 s less
the duration of the last call, retry every 20 s without jitter; a call has 60 s and is tried four times; the
release is sent while the work winds down. All of it is scaled by ``ttl / 15``.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from signal import SIGTERM
from typing import TypeVar

from makegood.base.clock import SystemClock
from makegood.election import Election, Grant, LeaseStore, Term, open_leases
from makegood.errors import StoreError

T = TypeVar("T")

UNIT, THINK = 0.02, 0.008
"""Seconds between units of work, and between the check and the write of each."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The settings of a candidate."""

    url: str
    name: str
    me: str
    ttl: float
    loop: str
    """"makegood" or "sample"."""
    resource: int
    """The port that takes the units."""
    wind_down: float
    """Seconds that its work takes to stop."""
    retry: float | None = None
    """Seconds between tries; None: a third of the ttl."""

    def words(self) -> list[str]:
        """Return the command that starts it."""
        return [sys.executable, "-m", "proofs.candidates", json.dumps(asdict(self))]


class SampleLoop:
    """The sample's loop over a lease store, scaled: no local deadline, no jitter, release before the work has
    stopped.
    """

    def __init__(self, name: str, leases: LeaseStore, me: str, ttl: float) -> None:
        self._name, self._leases, self._me, self._ttl = name, leases, me, ttl
        scale = ttl / 15
        self._renew, self._retry, self._delay, self._limit = 10 * scale, 20 * scale, 5 * scale, 60 * scale
        self._tries = 0
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Cancel, as its host does at the end."""
        self._stopped.set()

    async def run(self, lead: Callable[[Grant], Awaitable[None]]) -> None:
        """Acquire, run, renew; when either ends, cancel the other."""
        while not self._stopped.is_set():
            self._tries += 1
            nonce = f"{self._me}-{self._tries}"
            grant = await self._called(partial(self._acquire, nonce))
            if grant is None:
                await self._wait(self._retry)
                continue
            work = asyncio.ensure_future(lead(grant))
            renewing = asyncio.ensure_future(self._keep(grant))
            stopping = asyncio.ensure_future(self._stopped.wait())
            await asyncio.wait([work, renewing, stopping], return_when="FIRST_COMPLETED")
            for task in (work, renewing, stopping):
                task.cancel()
            await asyncio.wait([work, renewing, stopping])

    async def _acquire(self, nonce: str) -> Grant | None:
        return await self._leases.acquire(self._name, self._me, nonce, self._ttl)

    async def _keep(self, grant: Grant) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                if not await self._called(lambda: self._leases.renew(grant)):
                    return
                await asyncio.sleep(max(0.0, self._renew - (loop.time() - began)))
        except asyncio.CancelledError:
            await self._called(lambda: self._leases.release(grant))
            raise

    async def _called(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Call as the cloud's client library does: four tries, a growing delay; None if all failed."""
        for n in range(4):
            try:
                async with asyncio.timeout(self._limit):
                    return await call()
            except (StoreError, TimeoutError):
                if n < 3:
                    await asyncio.sleep(self._delay * 2**n)
        return None

    async def _wait(self, seconds: float) -> None:
        await asyncio.wait([asyncio.ensure_future(self._stopped.wait())], timeout=seconds)


class Candidate:
    """One candidate: its loop, and its work while it leads."""

    def __init__(self, spec: Spec, leases: LeaseStore, resource: asyncio.StreamWriter) -> None:
        self._spec = spec
        self._leases = leases
        self._resource = resource
        self._clock = SystemClock()

    async def run(self) -> None:
        """Contend until SIGTERM."""
        spec = self._spec
        self._say("ready", 0, 0.0)
        if spec.loop == "sample":
            sample = SampleLoop(spec.name, self._leases, spec.me, spec.ttl)
            asyncio.get_running_loop().add_signal_handler(SIGTERM, sample.stop)
            await sample.run(lambda grant: self._work(grant.epoch, None))
        else:
            wind_down = min(spec.wind_down, spec.ttl / 5)
            election = Election(
                spec.name, self._leases, me=spec.me, ttl=spec.ttl, retry=spec.retry, wind_down=wind_down
            )
            await election.run(lambda term: self._work(term.epoch, term))

    async def _work(self, epoch: int, term: Term | None) -> None:
        try:
            while True:
                if term is not None:
                    term.check()
                await asyncio.sleep(THINK)
                self._say("unit", epoch, 1e9 if term is None else term.remaining())
                await asyncio.sleep(UNIT - THINK)
        except asyncio.CancelledError:
            until = self._clock.monotonic() + self._spec.wind_down
            while self._clock.monotonic() < until:
                left = 1e9 if term is None else term.remaining()
                if left <= UNIT:
                    break
                self._say("unit", epoch, left)
                await asyncio.sleep(UNIT)
            self._say("stopped", epoch, 0.0)
            raise

    def _say(self, what: str, epoch: int, left: float) -> None:
        line = {
            "what": what,
            "me": self._spec.me,
            "epoch": epoch,
            "sent": self._clock.monotonic(),
            "left": left,
        }
        self._resource.write(json.dumps(line).encode() + b"\n")


async def main(spec: Spec) -> None:
    """Connect to the resource, then contend."""
    _, resource = await asyncio.open_connection("127.0.0.1", spec.resource)
    timeout = spec.ttl * 4 if spec.loop == "sample" else spec.ttl / 3
    async with open_leases(spec.url, timeout=timeout) as leases:
        await Candidate(spec, leases, resource).run()
    await resource.drain()
    resource.close()


if __name__ == "__main__":
    asyncio.run(main(Spec(**json.loads(sys.argv[1]))))
