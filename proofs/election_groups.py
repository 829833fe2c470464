"""Groups of candidates as real processes, one fault at a time on the leader, and the result.

The resource that they write to is here: it stamps each unit of work, and refuses an epoch lower than one that
it has seen.
"""

import asyncio
import contextlib
import json
import random
import signal
import subprocess
from asyncio.subprocess import Process
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from makegood.base.clock import SystemClock
from makegood.testing.forwarder import Forwarder
from proofs.candidates import Spec
from proofs.halting import halt

Fault = Literal["SIGKILL", "SIGTERM", "SIGSTOP", "black hole"]
FAULTS: tuple[Fault, ...] = ("SIGKILL", "SIGTERM", "SIGSTOP", "black hole")
CANDIDATES = 3


@dataclass(slots=True)
class Run:
    """The result of one fault, in seconds."""

    over: float | None = None
    """From the fault to the successor's first unit; None: there was none in the time watched."""
    gap: float = 0.0
    """From the old leader's last unit before that, to it."""
    overlaps: int = 0
    """Units that the old leader sent after the successor's first, believing that it leads."""
    stale: int = 0
    """All units that the old leader sent after it."""
    refused: int = 0
    """Those of them that the resource refused."""
    accepted: int = 0
    """Those of them that the resource accepted."""
    longest: float = 0.0
    """For how long that continued."""


@dataclass(slots=True)
class _Unit:
    me: str
    epoch: int
    sent: float
    left: float
    accepted: bool


def behind(url: str, port: int) -> str:
    """Return a URL whose server is reached through a port of this machine."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))


def server_of(url: str) -> tuple[str, int] | None:
    """Return host and port of the server in a URL; None if no forwarder can be put before it."""
    parts = urlsplit(url)
    if not parts.hostname:
        return None
    return parts.hostname, parts.port or 5432


class Group:
    """Candidates for one lease at ``url``.

    ``loop``: "makegood" or "sample"; ``quiet``: hide what they log; ``candidates``: how many. For long leases
    ``retry``: seconds between tries (default: a third of the ttl), and ``pace``: the seconds that scale a
    run's own pauses (default: the ttl).

    The resource checks the epochs of "makegood"; the sample has none.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        ttl: float,
        rng: random.Random,
        loop: str = "makegood",
        quiet: bool = True,
        candidates: int = CANDIDATES,
        retry: float | None = None,
        pace: float | None = None,
    ) -> None:
        self._candidates, self._retry, self._pace = candidates, retry, ttl if pace is None else pace
        self._stderr = subprocess.DEVNULL if quiet else None
        self._url, self._name, self._ttl, self._loop, self._rng = url, name, ttl, loop, rng
        self._fenced = loop == "makegood"
        self._clock = SystemClock()
        self._units: list[_Unit] = []
        self._fence = 0
        self._ready: set[str] = set()
        self._news = asyncio.Event()
        self._processes: dict[str, Process] = {}
        self._ways: dict[str, Forwarder] = {}
        self._server: asyncio.Server | None = None
        self._numbers = 0
        self._readers: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        """Start the resource and the candidates."""
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        try:
            for _ in range(self._candidates):
                await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill all processes."""
        await self.close()

    async def close(self) -> None:
        """Kill all processes."""
        for me in list(self._processes):
            await self._end(me)
        assert self._server is not None
        self._server.close()
        for task in list(self._readers):
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _start(self) -> None:
        self._numbers += 1
        me, url = f"c{self._numbers}", self._url
        server = server_of(url)
        if server is not None:
            way = self._ways[me] = await Forwarder(server[1], host=server[0]).__aenter__()
            url = behind(url, way.port)
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        spec = Spec(
            url, self._name, me, self._ttl, self._loop, port, wind_down=self._ttl / 5, retry=self._retry
        )
        self._processes[me] = await asyncio.create_subprocess_exec(*spec.words(), stderr=self._stderr)

    async def _end(self, me: str) -> None:
        process = self._processes.pop(me)
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        self._ready.discard(me)
        way = self._ways.pop(me, None)
        if way is not None:
            await way.__aexit__(None, None, None)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._readers.add(task)
        try:
            while line := await reader.readline():
                self._unit(json.loads(line))
        except ConnectionError:
            return
        finally:
            self._readers.discard(task)
            writer.transport.abort()

    def _unit(self, event: dict[str, Any]) -> None:
        if event["what"] == "ready":
            self._ready.add(event["me"])
        if event["what"] == "unit":
            in_force = event["epoch"] >= self._fence or not self._fenced
            self._fence = max(self._fence, event["epoch"])
            self._units.append(_Unit(event["me"], event["epoch"], event["sent"], event["left"], in_force))
        self._news.set()

    async def _until(self, true: Callable[[], bool], limit: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while not true():
                    self._news.clear()
                    await self._news.wait()
        return true()

    async def run(self, fault: Fault, watch: float) -> Run:
        """Let a fault hit the leader at a random moment; watch for ``watch`` seconds; repair."""
        while len(self._processes) < self._candidates:
            await self._start()
        await self._until(lambda: self._ready >= set(self._processes), 30)
        self._units.clear()
        if not await self._until(lambda: bool(self._units), max(60.0, 20 * self._ttl)):
            raise AssertionError("nobody leads")
        await asyncio.sleep(self._rng.uniform(0.3, 1.3) * self._pace)
        old = self._units[-1]
        at = self._strike(fault, old.me)
        began = await self._until(lambda: any(u.epoch > old.epoch for u in self._units), watch)
        left = at + watch - self._clock.monotonic()
        if fault == "SIGSTOP":
            await asyncio.sleep(max(0.0, min(left, self._pace)))
            self._processes[old.me].send_signal(signal.SIGCONT)
            await asyncio.sleep(self._pace)
        elif began and fault == "black hole":
            await asyncio.sleep(max(0.0, left))
        elif began:
            await asyncio.sleep(2 * self._pace / 5)
        verdict = self._judged(old, at)
        await self._repair(fault, old.me)
        return verdict

    def _strike(self, fault: Fault, me: str) -> float:
        at = self._clock.monotonic()
        if fault == "black hole":
            self._ways[me].swallow = "everything"
        elif fault == "SIGSTOP":
            halt(self._processes[me].pid, self._url)
        else:
            self._processes[me].send_signal(getattr(signal, fault))
        return at

    async def _repair(self, fault: Fault, me: str) -> None:
        if fault == "black hole":
            self._ways[me].heal()
        if fault in ("SIGKILL", "SIGTERM") or self._processes[me].returncode is not None:
            await self._end(me)

    def _judged(self, old: _Unit, at: float) -> Run:
        newer = [u.sent for u in self._units if u.epoch > old.epoch]
        if not newer:
            return Run()
        first = min(newer)
        mine = [u for u in self._units if u.epoch == old.epoch]
        late = [u for u in mine if u.sent > first]
        return Run(
            over=first - at,
            gap=first - max((u.sent for u in mine if u.sent <= first), default=at),
            overlaps=sum(u.left > 0 for u in late),
            stale=len(late),
            refused=sum(not u.accepted for u in late),
            accepted=sum(u.accepted for u in late),
            longest=max((u.sent - first for u in late), default=0.0),
        )


def bound(ttl: float, fault: Fault, wind_down: float) -> float:
    """Return the seconds after a fault within which a successor of an ``Election`` with its default settings
    must begin, without latency: the lease, renewed just before, plus the longest pause between two tries; at
    SIGTERM the end of the work instead.
    """
    retry = 1.5 * ttl / 3
    return (wind_down if fault == "SIGTERM" else ttl) + retry
