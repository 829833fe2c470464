"""What a run costs: CPU and memory of processes, commits and statements at the driver or the server.

Only the standard library, for this runs inside the environment of each peer. It reads ``/proc``, so it needs Linux.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TICK = os.sysconf("SC_CLK_TCK")


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    pids = [pid]
    with contextlib.suppress(OSError, ValueError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                pids += family(int(child))
    return pids


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process, its descendants, and the children it has buried."""
    total = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{member}/stat").read_text(encoding="utf-8", errors="replace")
            fields = text.rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
    return total / _TICK


def memory_of(pid: int) -> float:
    """Return the memory of a process and its descendants in MiB, shared pages counted once (PSS)."""
    total = 0
    for member in family(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{member}/smaps_rollup").read_text(encoding="ascii").splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def machine_cpu() -> float:
    """Return the CPU seconds that the whole machine has been busy."""
    fields = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    user, nice, system, _, _, irq, softirq = (int(value) for value in fields[1:8])
    return (user + nice + system + irq + softirq) / _TICK


@dataclass(slots=True)
class Traffic:
    """Commits that wrote, and statements, as the SQLite driver of this process was asked for them (``executemany``: one)."""

    commits: int = 0
    statements: int = 0

    def __sub__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.commits - other.commits, self.statements - other.statements)

    def copy(self) -> "Traffic":
        """Return the numbers of this moment."""
        return Traffic(self.commits, self.statements)


@contextlib.contextmanager
def counting_sqlite(traffic: Traffic) -> Iterator[None]:
    """Count what all connections opened meanwhile send: ``sqlite3.connect`` is given a factory that counts."""

    class Cursor(sqlite3.Cursor):
        def execute(self, *arguments: Any) -> Any:
            traffic.statements += 1
            return super().execute(*arguments)

        def executemany(self, *arguments: Any) -> Any:
            traffic.statements += 1
            return super().executemany(*arguments)

    class Connection(sqlite3.Connection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._seen = 0
            self.set_trace_callback(self._trace)

        def _trace(self, text: str) -> None:
            # The driver itself begins and commits, for those who use it so: only the library sees each of them.
            if text[:6].upper() == "COMMIT":
                traffic.commits += self.total_changes != self._seen
                self._seen = self.total_changes

        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, *arguments: Any) -> Any:
            return self.cursor().execute(*arguments)

        def executemany(self, *arguments: Any) -> Any:
            return self.cursor().executemany(*arguments)

    original = sqlite3.connect

    def connect(*arguments: Any, **options: Any) -> Any:
        return original(*arguments, **{**options, "factory": Connection})

    sqlite3.connect = sqlite3.dbapi2.connect = connect
    try:
        yield
    finally:
        sqlite3.connect = sqlite3.dbapi2.connect = original


@dataclass(slots=True)
class Meter:
    """Costs between two moments: ``begin()`` and ``end()``. ``roles``: which process belongs to what, by its id."""

    roles: dict[str, int]
    clock: Callable[[], float] = time.perf_counter
    begun: float = 0.0
    took: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    foreign: float = 0.0
    _before: dict[str, float] = field(default_factory=dict)
    _busy: float = 0.0

    def _now(self) -> dict[str, float]:
        return {name: cpu_of(pid) for name, pid in self.roles.items()}

    def begin(self) -> None:
        """Start the clock."""
        self._before, self._busy = self._now(), machine_cpu()
        self.begun = self.clock()

    def end(self) -> None:
        """Stop it. ``foreign`` is how many cores programs that are none of ours were using."""
        self.took = self.clock() - self.begun
        self.cpu = {name: value - self._before[name] for name, value in self._now().items()}
        busy = machine_cpu() - self._busy
        self.foreign = max(0.0, busy - sum(self.cpu.values())) / self.took


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value below which this share of sorted values lies (the nearest one); 0 of none."""
    if not sorted_values:
        return 0.0
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]
