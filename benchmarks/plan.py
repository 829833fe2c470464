"""What is measured: the workloads with their sizes, and who takes part in which.

A *cell* is one workload at one size; an *entry* is one peer on one store. Each entry of a cell is measured in turn, round after
round, so that what else happens on the machine falls on all alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Store = Literal["sqlite", "postgres", "own"]

WORKLOADS = {
    "throughput": "no-op steps in sequence, so many tasks in flight",
    "remote": "the same, with the actions in another process",
    "undo": "the last step fails, those before are undone",
    "takeover": "the process that holds the tasks is killed; another goes on",
    "ended": "the same beside many ended tasks; slower_by compares with none",
    "waiting": "tasks that nobody begins: what each costs in memory",
}
PEERS: dict[str, tuple[Store, ...]] = {
    "floor": ("sqlite", "postgres"),
    "makegood": ("sqlite", "postgres"),
    "dbos": ("sqlite", "postgres"),
    "dbos-async": ("sqlite", "postgres"),
    "restate": ("own",),
    "absurd": ("postgres",),
    "celery": ("own",),
    "celery-durable": ("own",),
    "procrastinate": ("postgres",),
    "prefect": ("own",),
}
"""With the stores that each is measured on; ``own``: it brings or needs another kind of store."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything; the command line sets each."""

    seconds: float = 5.0
    rounds: int = 3
    steps: tuple[int, ...] = (1, 3, 10)
    flight: tuple[int, ...] = (1, 100, 500)
    ended: int = 1_000_000
    waiting: int = 100_000
    taken: int = 10_000
    counted: int = 200


QUICK = Sizes(
    seconds=0.5, rounds=1, steps=(3,), flight=(1, 100), ended=10_000, waiting=2_000, taken=200, counted=50
)


@dataclass(frozen=True, slots=True)
class Row:
    """A cell of the plan: what ``driving.Cell`` wants to know of it."""

    workload: str
    steps: int
    flight: int
    amount: int = 0

    @property
    def title(self) -> str:
        """What a person reads."""
        about = f"{self.steps} step{'s' if self.steps > 1 else ''}, {self.flight} in flight"
        if self.workload in {"takeover", "waiting"}:
            return f"{self.workload}: {self.amount:,} tasks"
        if self.workload == "ended":
            return f"ended: {about}, beside {self.amount:,} ended tasks"
        return f"{self.workload}: {about}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One peer on one store."""

    peer: str
    store: Store

    @property
    def title(self) -> str:
        """What a person reads."""
        return self.peer if self.store == "own" else f"{self.peer} {self.store}"


def rows(sizes: Sizes, only: Sequence[str]) -> Iterator[Row]:
    """Yield the cells: every number of steps at the usual flight (the largest), every flight at the usual steps (3)."""
    most = max(sizes.flight)
    usual = 3 if 3 in sizes.steps else sizes.steps[0]
    if "throughput" in only:
        for steps in sizes.steps:
            yield Row("throughput", steps, most)
        for flight in sizes.flight:
            if flight != most:
                yield Row("throughput", usual, flight)
    if "remote" in only:
        yield Row("remote", usual, most)
    if "undo" in only:
        yield Row("undo", max(2, usual), most)
    if "takeover" in only:
        yield Row("takeover", usual, 1, sizes.taken)
    if "ended" in only:
        yield Row("ended", usual, most, sizes.ended)
    if "waiting" in only:
        yield Row("waiting", usual, 1, sizes.waiting)


def entries(peers: Sequence[str], stores: Sequence[str]) -> list[Entry]:
    """Return who takes part."""
    return [Entry(p, s) for p in peers for s in PEERS[p] if s == "own" or s in stores]
