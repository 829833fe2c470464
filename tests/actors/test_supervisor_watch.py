"""After an outage the Supervisor judges nobody who was cut off as well: first a full interval with the store within reach."""

import random
from typing import Any

import pytest

from makegood.election import Term
from makegood.election.settings import settings
from makegood.errors import FencedOffError, StoreUnavailableError
from makegood.options import Options
from makegood.store.records import Grant, Judged
from makegood.supervisor import LEASE, Supervisor

EVERY = 0.01
GRANT = Grant(LEASE, "s-1", "nonce", 1, 60.0)


class HandClock:
    """A clock that moves only when a store takes its time."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    def boot_id(self) -> str:
        return "boot"


class ScriptedStore:
    """Answers renewals as ``script`` says: "ok", "slow", "away" or "over"; notes in ``calls`` what it was asked for."""

    def __init__(self, clock: HandClock, script: list[str]) -> None:
        self.clock = clock
        self.script = script
        self.calls: list[str] = []

    async def renew(self, grant: Grant) -> bool:
        said = self.script.pop(0) if self.script else "ok"
        self.calls.append(said)
        if said == "away":
            raise StoreUnavailableError("away")
        if said == "slow":
            self.clock.seconds += 2 * EVERY
        return said != "over"

    async def judge(self, *_: Any) -> Judged:
        self.calls.append("judge")
        return Judged([])

    async def horizon(self, *_: Any) -> float:
        return 0.0

    def __getattr__(self, name: str) -> Any:
        async def nothing(*_: Any) -> list[int]:
            return []

        return nothing


async def led(script: list[str], passes: int) -> list[str]:
    """Return what a Supervisor asks of a store in so many passes."""
    clock, rng = HandClock(), random.Random(1)
    store: Any = ScriptedStore(clock, script)
    watcher = Supervisor(store, Options(every=EVERY), me="s-1", clock=clock, rng=rng)
    await watcher.lead(Term(store, GRANT, 100.0, settings=settings(60), clock=clock, rng=rng), passes=passes)
    calls: list[str] = store.calls
    return calls


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        (["ok", "ok", "ok"], ["ok", "ok", "judge", "ok", "judge"]),
        (["ok", "ok", "away", "ok", "ok"], ["ok", "ok", "judge", "away", "ok", "ok", "judge"]),
        (["ok", "ok", "slow", "ok"], ["ok", "ok", "judge", "slow", "ok", "judge"]),
        (["away", "away", "ok", "ok"], ["away", "away", "ok", "ok", "judge", "ok", "judge"]),
    ],
    ids=[
        "at the beginning of a term",
        "after an outage",
        "after a write that was held up",
        "away from the start",
    ],
)
async def test_nothing_is_judged_before_an_interval_within_reach(script: list[str], calls: list[str]) -> None:
    """The store answers, an interval passes, it answers again: only then are the silent judged."""
    assert await led(script, 2) == calls


async def test_a_term_that_is_over_judges_nothing() -> None:
    with pytest.raises(FencedOffError):
        await led(["ok", "over"], 1)
