"""What a PostgreSQL server was doing between two moments: CPU by who asked for it, log, commits, flushes, connections, waits.

Backends are told apart by their ``application_name``, which a fleet's URLs carry. CPU is read from ``/proc``, so it is known only of
a server on this machine; everything else also of one elsewhere.
"""

import asyncio
import contextlib
import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import asyncpg

from benchmarks.meters import cpu_of, machine_cpu

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

LISTENERS = "bench-listener"
"""The name of connections that only listen."""

_NUMBERS = """
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as wal_bytes,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint as written,
    (select xact_commit from pg_stat_database where datname = current_database()) as transactions,
    (select to_jsonb(w) ->> 'wal_sync' from pg_stat_wal w)::bigint as flushes,
    (select to_jsonb(w) ->> 'wal_sync_time' from pg_stat_wal w)::float8 as flush_ms,
    (select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'makegood' and c.relname in ('task', 'step', 'event'))::float8 as kept_bytes
"""
_BACKENDS = """
select pid, application_name as name from pg_stat_activity
where backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid()
"""
_WAITS = """
select coalesce(wait_event_type || ':' || wait_event, 'running') as what, count(*) as n from pg_stat_activity
where backend_type = 'client backend' and state = 'active' and datname = current_database() and pid <> pg_backend_pid() group by 1
"""
_LOOK = 0.05


@dataclass(slots=True)
class Moment:
    """All counters at one moment; those that cannot be had are missing from ``numbers``."""

    at: float
    busy: float
    numbers: dict[str, float]
    cpu: dict[str, float]
    """CPU seconds so far, by the name that backends were given; "server": all of it, background processes too."""
    connections: dict[str, int]


@dataclass(slots=True)
class Server:
    """A look at the server through a connection of our own. ``local``: the id of its first process, 0 when it is not on this machine."""

    connection: Connection
    local: int = 0
    waits: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    _looking: "asyncio.Task[None] | None" = None

    @classmethod
    async def of(cls, url: str) -> "Server":
        """Connect, and find out whether the server's processes can be seen."""
        connection = await asyncpg.connect(url, server_settings={"application_name": "bench-look"})
        pid = await connection.fetchval("select pg_backend_pid()")
        return cls(connection, _parent(pid))

    async def moment(self) -> Moment:
        """Read all counters."""
        row = await self.connection.fetchrow(_NUMBERS)
        assert row is not None
        backends = await self.connection.fetch(_BACKENDS)
        cpu: dict[str, float] = {}
        if self.local:
            for backend in backends:
                cpu[backend["name"]] = cpu.get(backend["name"], 0.0) + cpu_of(backend["pid"])
            cpu["server"] = cpu_of(self.local)
        numbers = {name: float(value) for name, value in row.items() if value is not None}
        counts = Counter(str(backend["name"]) for backend in backends)
        return Moment(time.perf_counter(), machine_cpu(), numbers, cpu, dict(counts))

    def look(self) -> None:
        """Begin to note, twenty times a second, what active backends wait for."""
        self.waits, self.looks = Counter(), 0
        self._looking = asyncio.create_task(self._note())

    async def _note(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            for row in await self.connection.fetch(_WAITS):
                self.waits[row["what"]] += row["n"]
            self.looks += 1

    async def looked(self) -> dict[str, float]:
        """Stop noting; returns how many backends were, on average, at what, the most frequent first."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        return {what: n / max(1, self.looks) for what, n in self.waits.most_common(6)}

    async def close(self) -> None:
        """Let go of the connection."""
        await self.connection.close()


def _parent(pid: int) -> int:
    """Return the server's first process, when this is a backend on this machine; else 0."""
    with contextlib.suppress(OSError, ValueError):
        if "postgres" in Path(f"/proc/{pid}/comm").read_text(encoding="utf-8"):
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
            return int(stat.rpartition(")")[2].split()[1])
    return 0


async def commit_seconds(url: str, times: int = 100) -> float:
    """Return how long a commit takes that writes one number, as its client sees it: the median."""
    connection = await asyncpg.connect(url)
    try:
        durations = []
        for n in range(times):
            start = time.perf_counter()
            # A record in the log and a transaction number: what makes a commit wait for its flush, and no row.
            await connection.execute(
                "select pg_current_xact_id(), pg_logical_emit_message(true, 'bench', $1)", str(n)
            )
            durations.append(time.perf_counter() - start)
        return statistics.median(durations)
    finally:
        await connection.close()


async def commits_abreast(url: str, *, notify: bool, connections: int = 8, seconds: float = 1.0) -> float:
    """Return how many commits a second so many connections make at once that write a record each; with ``notify`` each tells something."""
    what = "select pg_current_xact_id(), pg_logical_emit_message(true, 'bench', 'x')" + (
        ", pg_notify('bench', 'x')" if notify else ""
    )
    sessions = [await asyncpg.connect(url) for _ in range(connections)]

    async def commits(connection: Connection, end: float) -> int:
        count = 0
        while time.perf_counter() < end:
            await connection.execute(what)
            count += 1
        return count

    try:
        start = time.perf_counter()
        counts = await asyncio.gather(*(commits(connection, start + seconds) for connection in sessions))
        return sum(counts) / (time.perf_counter() - start)
    finally:
        for connection in sessions:
            connection.terminate()


def flush_seconds(folder: Path, times: int = 200) -> tuple[float, float]:
    """Return median and 99th percentile of writing a page to a file of this folder and syncing it."""
    path = folder / f"bench-flush-{os.getpid()}"
    durations = []
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            start = time.perf_counter()
            file.write(b"x" * 8192)
            os.fdatasync(file.fileno())
            durations.append(time.perf_counter() - start)
    path.unlink()
    durations.sort()
    return statistics.median(durations), durations[int(len(durations) * 0.99)]


class Listeners:
    """Connections that listen as every process of makegood does, and nothing else: to see what a wake-up costs."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections
        self.heard = 0

    @classmethod
    async def of(cls, url: str, count: int) -> "Listeners":
        """Open ``count`` of them; ``heard`` counts what the first one is told."""
        settings = {"application_name": LISTENERS}
        listeners = cls([await asyncpg.connect(url, server_settings=settings) for _ in range(count)])
        for n, connection in enumerate(listeners._connections):
            await connection.add_listener("makegood", listeners._told if n == 0 else _nothing)
        return listeners

    def _told(self, *_: object) -> None:
        self.heard += 1

    async def close(self) -> None:
        """Let go of them."""
        for connection in self._connections:
            connection.terminate()


def _nothing(*_: object) -> None:
    pass
