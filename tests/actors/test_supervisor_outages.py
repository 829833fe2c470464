"""After an outage the Supervisor judges nobody who was cut off as well: first a full interval with the store within reach."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from makegood.actor.store_contact import StoreContact, longest_contact_gap
from makegood.election import Term
from makegood.election.protocol import Grant
from makegood.election.settings import settings
from makegood.errors import FencedOffError, StoreUnavailableError
from makegood.options import Options
from makegood.store.oversight_records import SupervisorDecision
from makegood.store.records import Judged
from makegood.supervisor import supervisor
from makegood.supervisor.supervisor import LEASE, Supervisor
from makegood.testing.simulator.doubles import Doubled
from tests.clocks import HandClock

EVERY = 0.01
GRANT = Grant(LEASE, "s-1", "nonce", 1, 60.0)


class ScriptedStore(Doubled):
    """Answers renewals as ``script`` says: "ok", "slow", "away" or "over"; notes in ``calls`` what it was asked for."""

    def __init__(self, clock: HandClock, script: list[str]) -> None:
        super().__init__(None)
        self.clock = clock
        self.script = script
        self.calls: list[str] = []

    async def renew(self, grant: Grant) -> bool:
        answer = self.script.pop(0) if self.script else "ok"
        self.calls.append(answer)
        if answer == "away":
            raise StoreUnavailableError("away")
        if answer == "slow":
            self.clock.seconds += 3 * EVERY
        return answer != "over"

    async def judge(self, *_: Any) -> Judged:
        self.calls.append("judge")
        return Judged([])

    async def judge_dead(self, *_: Any) -> Judged:
        return Judged([])

    async def horizon(self, *_: Any) -> float:
        return 0.0

    def double_of(self, name: str, result: Any) -> Any:
        async def nothing(*_: Any, **__: Any) -> list[int]:
            return []

        return nothing


async def led(script: list[str], passes: int) -> list[str]:
    """Return what a Supervisor asks of a store in so many passes."""
    clock, rng = HandClock(100.0), random.Random(1)
    store: Any = ScriptedStore(clock, script)
    watcher = Supervisor(store, Options(supervise_every=EVERY), me="s-1", clock=clock, rng=rng)
    await watcher.lead(
        Term(store.leases, GRANT, 100.0, settings=settings(60), clock=clock, rng=rng), passes=passes
    )
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


@pytest.mark.parametrize(
    ("gap", "is_cut_off"), [(0.9, False), (1.1, True)], ids=["shorter than that", "long enough"]
)
async def test_nothing_is_judged_when_another_actors_write_was_the_first_after_an_outage(
    gap: float, is_cut_off: bool
) -> None:
    """The Supervisor's own write takes no time then: it was resting while others' heartbeats ran out."""
    clock, rng = HandClock(100.0), random.Random(1)
    store: Any = ScriptedStore(clock, [])
    contact = StoreContact(clock, 1.0)
    options = Options(supervise_every=EVERY)
    watcher = Supervisor(store, options, me="s-1", clock=clock, rng=rng, contact=contact)
    healthy = store.renew

    async def renew(grant: Grant) -> bool:
        if store.calls.count("judge") == 1 and store.calls[-1] == "judge":
            clock.seconds += gap
            contact.note()  # the heartbeat
        answer: bool = await healthy(grant)
        return answer

    store.renew = renew
    term = Term(store.leases, GRANT, 100.0, settings=settings(60), clock=clock, rng=rng)
    await watcher.lead(term, passes=2)
    assert store.calls == ["ok", "ok", "judge", "ok", *(["ok"] if is_cut_off else []), "judge"]


@pytest.mark.parametrize(
    ("options", "longest"),
    [
        (Options(), 3.0),
        (Options(heartbeat="1s", dead_after="2s"), 1.2),
        (Options(heartbeat="1s", dead_after="1h"), 7.5),
        (Options(heartbeat="1m", dead_after="5m", supervise_every="1s"), 1.5),
    ],
    ids=["default", "a life of two heartbeats", "a long life", "fewer heartbeats than passes"],
)
def test_a_gap_is_shorter_than_a_life_and_longer_than_a_healthy_pause(
    options: Options, longest: float
) -> None:
    assert longest_contact_gap(options) == pytest.approx(longest)
    healthy = min(options.number("heartbeat"), 1.1 * options.number("supervise_every"))
    assert healthy < longest < options.number("dead_after")


async def test_a_term_that_is_over_judges_nothing() -> None:
    with pytest.raises(FencedOffError):
        await led(["ok", "over"], 1)


class DeadStore(ScriptedStore):
    """Has ``left`` tasks of dead Schedulers; ``full``: says that there is more to judge, whatever is done."""

    def __init__(self, clock: HandClock, left: int, *, full: bool = False) -> None:
        super().__init__(clock, [])
        self.left = left
        self.full = full
        self.oversight = self

    async def decided(self, decisions: Sequence[SupervisorDecision]) -> None:
        assert [decision.kind for decision in decisions] == ["freed"]

    async def judge(self, *_: Any) -> Judged:
        return Judged([], full=self.full)

    async def release_dead(self, _: Grant, limit: int, *, marks: bool = True) -> list[int]:
        if not marks:
            return []
        count = min(limit, self.left)
        self.left -= count
        return list(range(count))


@pytest.mark.parametrize(
    ("left", "full", "rests"),
    [
        (7, False, [1.0, 0.0, 0.0, 0.0, 0.05]),  # 2, 2, 2 and 1
        (0, False, [1.0, 0.05, 0.05, 0.05, 0.05]),
        (0, True, [1.0, 0.05, 0.05, 0.05, 0.05]),
    ],
    ids=["more than a pass frees", "nothing", "more, of which nothing can be done"],
)
async def test_between_full_passes_there_is_no_rest(
    monkeypatch: pytest.MonkeyPatch, left: int, full: bool, rests: list[float]
) -> None:
    """Ten thousand tasks of a dead Scheduler are twenty passes; what cannot be done is not looked for without a pause."""
    sleeps: list[float] = []

    async def sleep(_: asyncio.Event, seconds: float) -> bool:
        sleeps.append(seconds)
        return False

    monkeypatch.setattr(supervisor, "event_within", sleep)
    clock, rng = HandClock(100.0), random.Random(1)
    store: Any = DeadStore(clock, left, full=full)
    watcher = Supervisor(store, Options(supervise_every=1.0), me="s-1", clock=clock, rng=rng, limit=2)
    await watcher.lead(
        Term(store.leases, GRANT, 100.0, settings=settings(60), clock=clock, rng=rng), passes=5
    )
    assert sleeps == pytest.approx(rests, rel=0.1)


async def test_deaths_neither_shorten_nor_prolong_the_interval_that_is_watched_first() -> None:
    """A process that crashes again and again is dealt with meanwhile; the silent are judged when the interval is over."""
    clock, rng = HandClock(100.0), random.Random(1)
    store: Any = ScriptedStore(clock, [])
    watcher = Supervisor(store, Options(supervise_every=60.0), me="s-1", clock=clock, rng=rng)

    async def renew(_: Grant) -> bool:
        clock.seconds += 9.0
        store.calls.append("pass")
        watcher.hurry()
        return True

    store.renew = renew
    await watcher.lead(Term(store, GRANT, 100.0, settings=settings(600), clock=clock, rng=rng), passes=1)
    passes = store.calls.index("judge")
    assert 60.0 * 0.9 <= (passes - 1) * 9.0 <= 60.0 * 1.1 + 9.0
