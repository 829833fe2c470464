"""The store under fire: where it is, what can be done to it, and what its tables say when all is over.

``url`` is for the processes and the customers: with PostgreSQL it leads through a proxy. ``direct`` is for who looks on.
"""

import asyncio
import contextlib
import ctypes
import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from examples.orders.processes import ProcessError, environment, tethered
from makegood.store.grants import resolve_roles, script

from .kinds import Kind
from .network import Proxy, Sleep
from .server import ServerError, tell

PATIENCE: Final = 60.0
TRIES: Final = 30
PR_CAPBSET_DROP: Final = 24
PREFIX: Final = "chaos_"
"""The roles' names begin so."""
POWERS: Final = (1, 2, 3)
"""CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER: what lets root write to what is read-only."""

Restart = Callable[[], Awaitable[int]]
"""Kills a process and starts it again, at once; says how many of its starts were refused."""


class UnderFire(Protocol):
    """What a run needs of its store."""

    name: str
    url: str
    direct: str

    def url_as(self, role: str, *, direct: bool = False) -> str:
        """Return the URL for processes of a role, which may do what this role needs and no more. ``direct``: past the network's faults."""
        ...

    async def guard(self, agents: Sequence[str]) -> None:
        """Give each role its login, once the tables are there. ``agents``: the addresses that the login "agents" serves."""
        ...

    async def strike(self, kind: Kind, away: float, sleep: Sleep, restart: Restart) -> int:
        """Let a fault happen for ``away`` seconds; return how often it was met, 0 when it came to nothing."""
        ...

    async def tables(self, names: Sequence[str]) -> Mapping[str, list[dict[str, Any]]]:
        """Return the rows of the tables, read past the engine."""
        ...

    async def __aenter__(self) -> Self:
        """Make the store."""
        ...

    async def __aexit__(self, *_: object) -> None:
        """Let it go."""
        ...


class SqliteFile:
    """A SQLite file in a folder of its own."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._logs = folder
        self._folder = folder / "store"
        self.file = self._folder / "store.db"
        self.url = self.direct = f"sqlite:///{self.file}"

    async def __aenter__(self) -> Self:
        """Make the folder; give up root's power over read-only files for every process that is started from now on."""
        self._folder.mkdir()
        if os.geteuid() == 0 and sys.platform == "linux":
            libc = ctypes.CDLL(None, use_errno=True)
            for power in POWERS:
                if libc.prctl(PR_CAPBSET_DROP, power, 0, 0, 0):
                    raise OSError(ctypes.get_errno(), "prctl: root's powers cannot be given up")
        return self

    async def __aexit__(self, *_: object) -> None:
        """The folder is who made it's to delete."""

    def url_as(self, role: str, *, direct: bool = False) -> str:  # noqa: ARG002 - a file knows no roles
        """Return the file's URL."""
        return self.url

    async def guard(self, agents: Sequence[str]) -> None:
        """Do nothing: whoever may write the file may do everything in it."""

    async def strike(self, kind: Kind, away: float, sleep: Sleep, restart: Restart) -> int:
        """Lock the file, read it for long, or make file and folder read-only while a process starts."""
        if kind is Kind.READ_ONLY:
            return await self._read_only(away, sleep, restart)
        return await self._held("write" if kind is Kind.FILE_LOCKED else "read", away, sleep)

    async def tables(self, names: Sequence[str]) -> Mapping[str, list[dict[str, Any]]]:
        """Return the rows of the tables, read past the engine."""
        return await asyncio.to_thread(self._tables, names)

    def _tables(self, names: Sequence[str]) -> Mapping[str, list[dict[str, Any]]]:
        with closing(sqlite3.connect(self.file, timeout=30.0)) as connection:
            connection.row_factory = sqlite3.Row
            return {
                table: [dict(row) for row in connection.execute(f"select * from makegood_{table}")]  # noqa: S608 - our own names
                for table in names
            }

    async def _held(self, how: str, away: float, sleep: Sleep) -> int:
        log = self._logs / f"{how}-lock-{time.monotonic_ns()}.log"
        arguments = ["examples.chaos.locker", how, str(self.file)]
        locker = tethered(arguments, log, environment(os.environ, {}, {}))
        try:
            for _ in range(round(PATIENCE / 0.05)):
                if "held" in log.read_text():
                    break
                if locker.poll() is not None:
                    raise ProcessError(f"the file could not be held: {log.read_text()}")
                await asyncio.sleep(0.05)
            await sleep(away)
        finally:
            _end(locker)
        log.unlink()
        return 1

    async def _read_only(self, away: float, sleep: Sleep, restart: Restart) -> int:
        modes = {path: path.stat().st_mode for path in (*self._folder.glob("store.db*"), self._folder)}
        try:
            for path, mode in modes.items():
                path.chmod(mode & ~0o222)
            refusals, _ = await asyncio.gather(
                restart(), sleep(away)
            )  # a slow machine starts Python for seconds
        finally:
            for path, mode in modes.items():
                with suppress(FileNotFoundError):
                    path.chmod(mode)
        return refusals


class PostgresServer:
    """A private PostgreSQL server in a process of its own, and a proxy before it."""

    name = "postgres"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._socket = folder / "server"
        self._proxy = Proxy(rng)
        self._rng = rng
        self._password = f"{rng.getrandbits(64):x}"
        self._stack = AsyncExitStack()
        self.url = self.direct = ""

    async def __aenter__(self) -> Self:
        """Start server and proxy."""
        arguments = ["--gently", "examples.chaos.server", str(self._socket), str(self._folder)]
        keeper = tethered(arguments, self._folder / "postgres.log", environment(os.environ, {}, {}))
        self._stack.callback(_end, keeper, gently=True)
        try:
            await self._answers(keeper)
            self.direct = await tell(self._socket, "url")
            target = urlsplit(self.direct).port or 0
            await self._proxy.start(target)
        except BaseException:
            await self._stack.aclose()
            raise
        self._stack.push_async_callback(self._proxy.stop)
        self.url = self.direct.replace(f":{target}/", f":{self._proxy.port}/")
        return self

    async def _answers(self, keeper: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._socket.exists():
            if keeper.poll() is not None or time.monotonic() > deadline:
                words = (self._folder / "postgres.log").read_text(errors="replace")
                raise ProcessError(f"no private PostgreSQL: {words[-2000:].strip()}")
            await asyncio.sleep(0.05)

    async def __aexit__(self, *_: object) -> None:
        """Stop both; the server's files go, its log stays."""
        await self._stack.aclose()

    def url_as(self, role: str, *, direct: bool = False) -> str:
        """Return the URL for the login of a role."""
        target = urlsplit(self.direct if direct else self.url)
        where = target.netloc.rpartition("@")[2]
        return target._replace(netloc=f"{PREFIX}{role}:{self._password}@{where}").geturl()

    async def guard(self, agents: Sequence[str]) -> None:
        """Apply ``makegood store grants``, and let its roles log in; one login serves all agents, as their processes do."""
        roles = [name for name, kind, _ in resolve_roles(PREFIX, (), agents) if kind == "agent"]
        connection = await self._connect()
        try:
            await connection.execute(script(PREFIX, agents=agents))
            await connection.execute(f"create role {PREFIX}agents login in role {', '.join(roles)}")
            for (name,) in await connection.fetch(
                "select rolname::text from pg_roles where starts_with(rolname, $1)", PREFIX
            ):
                await connection.execute(f"alter role {name} password '{self._password}'")
        finally:
            await connection.close()

    async def strike(self, kind: Kind, away: float, sleep: Sleep, restart: Restart) -> int:  # noqa: ARG002 - SQLite's needs it
        """Do something to the server, its sessions, or the way to it."""
        match kind:
            case Kind.STORE_STOPPED:
                return await self._down("stop", away, sleep)
            case Kind.STORE_CRASHED:
                return await self._down("crash", away, sleep)
            case Kind.SESSIONS_ENDED:
                return await self._terminate()
            case Kind.STORE_REFUSED:
                return await self._proxy.refuse(away, sleep)
            case Kind.STORE_RESET:
                return await self._proxy.reset(away, sleep)
            case Kind.STORE_HOLE:
                return await self._proxy.hole(away, sleep)
        return await self._proxy.lose_answers(away, sleep)

    async def tables(self, names: Sequence[str]) -> Mapping[str, list[dict[str, Any]]]:
        """Return the rows of the tables, read past the engine."""
        connection = await self._connect()
        try:
            return {
                table: [dict(row) for row in await connection.fetch(f"select * from makegood.{table}")]  # noqa: S608 - our own names
                for table in names
            }
        finally:
            await connection.close()

    async def _down(self, how: str, away: float, sleep: Sleep) -> int:
        await tell(self._socket, how)
        try:
            await sleep(away)
        finally:
            await self._start()
        return 1

    async def _start(self) -> None:
        """Start the server again: of one that crashed some processes may still be about, so more than once."""
        for left in reversed(range(TRIES)):
            try:
                await tell(self._socket, "start")
            except ServerError:
                if not left:
                    raise
                await asyncio.sleep(0.3)
            else:
                return

    async def _terminate(self) -> int:
        connection = await self._connect()
        try:
            rows = await connection.fetch(
                "select pg_terminate_backend(pid) as ended from pg_stat_activity "
                "where backend_type = 'client backend' and pid <> pg_backend_pid() and random() < $1",
                self._rng.uniform(0.3, 1.0),
            )
        finally:
            await connection.close()
        return sum(row["ended"] for row in rows)

    async def _connect(self) -> Any:
        import asyncpg  # noqa: PLC0415 - wanted on PostgreSQL only

        return await asyncpg.connect(self.direct, timeout=10)


def under_fire(name: str, folder: Path, rng: random.Random) -> UnderFire:
    """Return the store of that name: "sqlite" or "postgres"."""
    return PostgresServer(folder, rng) if name == "postgres" else SqliteFile(folder)


def _end(process: "subprocess.Popen[bytes]", *, gently: bool = False) -> None:
    """End a process that is ours and see it gone."""
    if gently:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30.0)
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
