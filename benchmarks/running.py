"""Running cells: each in a process of its own, on a store of its own that is empty; what stands beside it is idle meanwhile."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.driving import Cell, text_of
from benchmarks.environments import ROOT, MissingError, interpreter
from benchmarks.plan import Entry, Row, Sizes
from examples.orders.temporary_postgres import programs
from makegood.errors import ConfigError
from proofs.private_server import PrivateServer

_SETTINGS = {"shared_buffers": "128MB", "max_connections": "1000", "max_wal_size": "1GB"}
_STATEMENTS = "pg_stat_statements"
_EXTRA, _MUCH = 120.0, 1800.0
"""Seconds beyond its windows that a cell may take: to start and to end; to fill a store as well."""


class FailedError(Exception):
    """A cell gave no figures; says why."""


@dataclass(slots=True)
class Ground:
    """Where cells run: a PostgreSQL server of our own (started when first needed) and a folder, both gone at the end."""

    sizes: Sizes
    _server: PrivateServer | None = None
    _counts: bool = False
    _missing: dict[str, str] = field(default_factory=dict)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _number: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def server(self) -> PrivateServer:
        """Return the server; raises ``FailedError`` when there are no server programs."""
        if self._server is None:
            settings = dict(_SETTINGS)
            try:
                library = programs().parent / f"lib/{_STATEMENTS}.so"
            except ConfigError as why:
                raise FailedError(str(why)) from why
            if library.is_file():
                settings |= {"shared_preload_libraries": _STATEMENTS, f"{_STATEMENTS}.track": "none"}
                self._counts = True
            self._server = self._stack.enter_context(PrivateServer(settings=settings))
            if self._counts:
                self._server.run(f"create extension {_STATEMENTS}", "postgres")
        return self._server

    def python(self, peer: str) -> Path:
        """Return the interpreter for a peer, its environment made; raises ``FailedError`` with the reason, each time."""
        name = peer.partition("-")[0].partition("_")[0]
        if name not in self._missing:
            try:
                return interpreter(name)
            except MissingError as why:
                self._missing[name] = str(why)
        raise FailedError(self._missing[name])

    def run(self, row: Row, entry: Entry, *, count: bool = False) -> dict[str, Any]:
        """Measure one cell once, or count what it sends; raises ``FailedError``."""
        python = self.python(entry.peer)
        self._number += 1
        with tempfile.TemporaryDirectory(prefix="makegood-bench-") as folder:
            cell = self._cell(row, entry, folder, count=count)
            if entry.store != "postgres":
                return self._run(python, entry, cell)
            server, database = self.server(), f"bench{self._number}"
            url = server.create_database(database)
            try:
                if count:  # vacuuming by itself, the server would take numbers of transactions, too
                    _set_autovacuum(server, "off")
                if count and self._counts:
                    server.run(f"alter database {database} set {_STATEMENTS}.track = 'top'", "postgres")
                pid = int((server.data / "postmaster.pid").read_text(encoding="ascii").split()[0])
                return self._run(python, entry, replace(cell, store=url, server=pid), database)
            finally:
                if count:
                    _set_autovacuum(server, "on")
                server.drop_database(database)

    def _cell(self, row: Row, entry: Entry, folder: str, *, count: bool) -> Cell:
        amount = max(self.sizes.counted, 2 * row.flight)
        return Cell(
            "throughput" if row.workload == "remote" else row.workload,
            f"sqlite:///{Path(folder) / 'bench.db'}" if entry.store == "sqlite" else entry.store,
            folder,
            row.steps,
            row.flight,
            self.sizes.seconds,
            "elsewhere" if row.workload == "remote" else "here",
            amount if count else row.amount,
            count,
            entry.peer.partition("-")[2],
        )

    def _run(self, python: Path, entry: Entry, cell: Cell, database: str = "") -> dict[str, Any]:
        """Run a cell's process and return its answer, the last line that it prints."""
        module = entry.peer.partition("-")[0]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONWARNINGS": "ignore"}
        if module.partition("_")[0] not in {"makegood", "floor"}:
            environment["PYTHONPATH"] = str(ROOT)
        limit = cell.seconds * 20 + (_MUCH if cell.amount > 20_000 else _EXTRA)
        with subprocess.Popen(
            [python, "-m", f"benchmarks.peers.{module}", text_of(cell)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        ) as process:  # fmt: skip
            timer = threading.Timer(limit, _end, (process,))
            timer.start()
            complaints: list[str] = []
            assert process.stderr is not None
            listener = threading.Thread(target=complaints.extend, args=(process.stderr,))
            listener.start()
            try:
                answer = self._converse(process, cell, database)
            finally:
                timed_out = not timer.is_alive()
                timer.cancel()
                _end(process)
                listener.join(10)
        if answer is None:
            last = [line for line in "".join(complaints).splitlines() if line.strip()][-1:] or [
                "it said nothing"
            ]
            raise FailedError(f"no answer within {limit:.0f} s" if timed_out else last[0].strip()[:300])
        if "unable" in answer:
            raise FailedError(str(answer["unable"]))
        return answer

    def _converse(self, process: "subprocess.Popen[str]", cell: Cell, database: str) -> dict[str, Any] | None:
        """Read what the process prints; where it says that it begins or has ended counting, look at the server's counters."""
        assert process.stdout is not None
        assert process.stdin is not None
        looks: list[tuple[int, int]] = []
        last = ""
        for line in process.stdout:
            if line.strip() == "@look":
                looks.append(self._look(database) if database else (0, 0))
                process.stdin.write("\n")
                process.stdin.flush()
            else:
                last = line
        try:
            answer = json.loads(last)
        except ValueError:
            return None
        if not isinstance(answer, dict):
            return None
        if database and len(looks) == 2 and "unable" not in answer:
            answer["commits_per_task"] = (looks[1][0] - looks[0][0]) / cell.amount
            if self._counts:
                answer["statements_per_task"] = (looks[1][1] - looks[0][1]) / cell.amount
        return answer

    def _look(self, database: str) -> tuple[int, int]:
        """Return how many transactions have written so far (each took a number), and the statements sent to this database."""
        server = self.server()
        ((number,),) = server.run("select pg_snapshot_xmax(pg_current_snapshot())", "postgres")
        statements: str | None = "0"
        if self._counts:
            ((statements,),) = server.run(
                f"select coalesce(sum(calls), 0)::bigint from {_STATEMENTS} s join pg_database d on d.oid = s.dbid "
                f"where d.datname = '{database}'",
                "postgres",
            )
        return int(number or 0), int(statements or 0)


def _set_autovacuum(server: PrivateServer, state: str) -> None:
    """Turn vacuuming by itself on or off, at once."""
    server.run(f"alter system set autovacuum = {state}", "postgres")
    server.run("select pg_reload_conf()", "postgres")


def _end(process: "subprocess.Popen[str]") -> None:
    """End a process and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def machine(ground: Ground, *, postgres: bool) -> dict[str, str]:
    """Return what the figures depend on: processor, cores, versions, how busy the machine is."""
    model = "unknown"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(
            (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model
        )
    about = {
        "processor": model,
        "cores": str(os.cpu_count()),
        "load": " ".join(f"{value:.1f}" for value in os.getloadavg()),
        "python": ".".join(map(str, sys.version_info[:3])),
        "sqlite": sqlite3.sqlite_version,
    }
    if postgres:
        with contextlib.suppress(FailedError):
            ((version,),) = ground.server().run("show server_version", "postgres")
            about["postgres"] = str(version)
    return about
