"""The life of a term: it ends by the local clock, its work stops before the lease is given back, and the next may begin."""

import asyncio
import contextlib
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry import context as otel

from makegood.election import Election, Grant, LeadershipLostError, Term
from makegood.election.settings import belief, settings
from makegood.election.stores.memory import MemoryLeases
from makegood.errors import ConfigError
from tests.election.virtual import Leases, clock, election, forever, now, virtual, wait


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ttl": 15, "renew": 10}, r"renew=10 s .* timeout=5 s, together 15 s, .* the 13\.95 s .* ttl=15 s"),
        ({"ttl": 15, "timeout": 10}, "together 15 s"),
        ({"ttl": 15, "wind_down": 5}, r"the 9\.70 s"),
        ({"ttl": 15, "drift": 0.4}, r"\(1 - 0\.4\) / \(1 \+ 0\.4\)"),
        ({"ttl": 15, "drift": 0.6}, "share of clock rate"),
        ({"ttl": 15, "stall": 5}, "not longer than renew=5 s"),
        ({"ttl": 15, "overrun": "exit", "wind_down": 0}, "say with wind_down="),
        ({"ttl": 15, "overrun": "panic"}, '"log" or "exit"'),
        ({"ttl": 0}, "at least 0.1 s"),
        ({"me": ""}, "needs a name"),
    ],
)
def test_settings_that_are_not_sound_are_refused_with_the_arithmetic(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Election("lead", MemoryLeases(), **options)


def test_the_look_at_health_has_its_place_in_the_arithmetic() -> None:
    assert settings(15, renew=5, timeout=5).health_timeout == 0
    with pytest.raises(ConfigError, match=r"\+ 3 s for the check of health"):
        settings(15, renew=5, timeout=6, health=lambda: True)


def test_a_candidate_that_has_no_name_gets_one_of_its_own() -> None:
    leases = MemoryLeases()
    assert Election("lead", leases).me != Election("lead", leases).me


@virtual
async def test_belief_is_counted_from_before_the_request() -> None:
    leases = Leases()
    leases.answers_after = 3.0
    async for term in election(leases).terms():
        assert term.remaining() == pytest.approx(belief(15) - 3.0)
        async with term:
            break


@virtual
async def test_an_answer_that_took_longer_than_belief_makes_no_leader() -> None:
    """The machine slept while the answer to the take was under way."""
    leases, mine = Leases(), clock()
    leases.answers_after = 1.0
    going = asyncio.ensure_future(anext(election(leases, clock=mine).terms()))
    await wait(0.5)
    mine.jump(0, 20)
    await wait(1.0)
    assert not going.done()
    assert leases.verbs() == ["a took 1", "a released 1"]
    term = await going
    assert term.epoch == 2
    async with term:
        pass


@virtual
async def test_a_black_hole_ends_the_work_before_the_lease_can_be_taken() -> None:
    leases, end = Leases(), 0.0
    start = now()
    async for term in election(leases).terms():
        async with term:
            leases.deaf = True
            try:
                await forever()
            finally:
                end = now() - start
                with pytest.raises(LeadershipLostError):
                    term.check()
                assert term.remaining() > 0, "the end of the deadline is for winding down"
        break
    assert end == pytest.approx(belief(15) - 15 / 20, abs=0.1)
    assert term.ending == "deadline"
    assert term.remaining() == 0


@virtual
async def test_the_lease_is_given_back_by_a_task_that_is_not_to_be_cancelled_any_more() -> None:
    """Up to Python 3.11.2 a timeout in a task that is still to be cancelled ends as a cancellation: nobody would contend again."""
    pending: list[int] = []

    class Watched(Leases):
        async def release(self, grant: Grant) -> None:
            task = asyncio.current_task()
            assert task is not None
            pending.append(task.cancelling())
            await super().release(grant)

    leases = Watched()
    async for term in election(leases).terms():
        async with term:
            leases.away = True
            await forever()
        if term.epoch == 2:
            break
        leases.away = False
    assert pending == [0, 0]


@virtual
async def test_a_renewal_answered_after_the_deadline_revives_nothing() -> None:
    """The machine slept while the answer was under way: timers stood still, the clock did not."""
    leases, mine = Leases(), clock()
    async for term in election(leases, clock=mine).terms():
        async with term:
            leases.answers_after = 1.0
            while not [e for e in leases.log if e[1] == "renewed"]:
                await wait(0.01)
            mine.jump(0, 20)
            await forever()
        break
    assert term.ending == "deadline"
    assert now() < 8


@virtual
async def test_after_a_suspend_the_work_goes_on_for_a_moment_at_most_and_the_clock_knows_at_once() -> None:
    leases, mine = Leases(), clock()
    async for term in election(leases, clock=mine).terms():
        async with term:
            await wait(1)
            mine.jump(0, 100)
            with pytest.raises(LeadershipLostError):
                term.check()
            before = now()
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
            assert now() - before <= 15 / 20 + 0.01
        break
    assert term.ending == "deadline"


@virtual
async def test_work_is_cancelled_awaited_and_only_then_is_the_lease_given_back() -> None:
    leases, stop = Leases(), 0.0
    candidate = election(leases)

    async def lead(term: Term) -> None:
        nonlocal stop
        try:
            await forever()
        finally:
            await asyncio.shield(asyncio.ensure_future(wait(8)))
            stop = now()

    going = asyncio.ensure_future(candidate.run(lead))
    await wait(20)
    await candidate.step_down(rest=0)
    releases = [at for at, verb, *_ in leases.log if verb == "released"]
    assert releases == [stop]
    assert [e for e in leases.log if e[1] == "renewed" and e[0] >= 20], (
        "it is renewed while the work winds down"
    )
    candidate.stop()
    await going


@virtual
async def test_what_check_raises_ends_the_term_and_not_the_election() -> None:
    leases, mine, epochs = Leases(), clock(), list[int]()
    candidate = election(leases, clock=mine)

    async def lead(term: Term) -> None:
        epochs.append(term.epoch)
        if term.epoch == 2:
            candidate.stop()
        mine.jump(0, 20)
        term.check()

    await candidate.run(lead)
    assert epochs == [1, 2]
    assert candidate.figures.endings == {"deadline": 1, "stepped down": 1}


@virtual
async def test_step_down_lets_another_win_and_the_first_sits_out() -> None:
    leases, leaders = Leases(), list[str]()
    first, second = election(leases, "a"), election(leases, "b")

    async def lead(term: Term) -> None:
        leaders.append(term.grant.holder)
        await forever()

    one = asyncio.ensure_future(first.run(lead))
    await wait(1)
    other = asyncio.ensure_future(second.run(lead))
    await wait(10)
    await first.step_down(rest="60s")
    assert first.term is None
    await wait(59)
    assert leaders == ["a", "b"]
    for candidate in (first, second):
        candidate.stop()
    await asyncio.gather(one, other)
    assert leases.verbs() == ["a took 1", "a released 1", "b took 2", "b released 2"]


@virtual
async def test_step_down_called_by_the_work_itself_ends_it() -> None:
    leases = Leases()
    candidate = election(leases)
    async for term in candidate.terms():
        async with term:
            await candidate.step_down(rest=0)
            raise AssertionError("it went on")
        break
    assert leases.verbs() == ["a took 1", "a released 1"]


@virtual
async def test_work_that_raises_gives_the_lease_back_raises_and_is_followed_by_a_rest_that_grows() -> None:
    leases = Leases()
    candidate = election(leases)

    async def lead(term: Term) -> None:
        raise ValueError("the work is broken")

    starts: list[float] = []
    for _ in range(5):
        with pytest.raises(ValueError, match="broken"):
            await candidate.run(lead)
        starts.append(now())
    rests = [later - earlier for earlier, later in pairwise(starts)]
    assert len([e for e in leases.log if e[1] == "released"]) == 5
    assert all(rest >= 5 * 2**n * 0.5 for n, rest in enumerate(rests, 1)), rests
    assert candidate.figures.endings == {"raised": 5}


@virtual
async def test_work_that_returns_is_led_again_by_whoever_comes_first() -> None:
    leases, times = Leases(), list[float]()
    candidate = election(leases)

    async def lead(term: Term) -> None:
        times.append(now())
        if len(times) == 3:
            candidate.stop()

    await candidate.run(lead)
    assert [e[3] for e in leases.log if e[1] == "took"] == [1, 2, 3]
    assert all(later - earlier >= 2.5 for earlier, later in pairwise(times))


@virtual
async def test_work_that_does_not_beat_loses_its_term_and_work_that_beats_keeps_it() -> None:
    leases, beats_until = Leases(), 0.0
    async for term in election(leases, stall=20).terms():
        async with term:
            for _ in range(30):
                await wait(2)
                term.beat()
            beats_until = now()
            await forever()
        break
    assert term.ending == "stalled"
    assert 20 < now() - beats_until < 26
    late = [e for e in leases.log if e[1] == "renewed" and e[0] > beats_until + 20]
    assert not late, "a stalled leader's lease was renewed"


@pytest.mark.parametrize("how", ["no", "raises", "hangs", "awaits no"])
def test_a_leader_that_is_not_healthy_steps_aside(how: str) -> None:
    @virtual
    async def prove() -> None:
        async def answer() -> bool:
            if how == "hangs":
                await forever()
            return False

        def health() -> Any:
            if now() < 30:
                return True
            if how == "raises":
                raise OSError("the disk is gone")
            return False if how == "no" else answer()

        leases = Leases()
        async for term in election(leases, health=health, timeout=4).terms():
            async with term:
                await forever()
            break
        assert term.ending == "unhealthy"
        assert 30 < now() < 40

    prove()


@virtual
async def test_an_election_is_not_over_after_a_lost_term() -> None:
    leases, epochs = Leases(), list[int]()
    candidate = election(leases)

    async def lead(term: Term) -> None:
        epochs.append(term.epoch)
        await forever()

    going = asyncio.ensure_future(candidate.run(lead))
    for _ in range(3):
        await wait(30)
        leases.away = True
        await wait(30)
        leases.away = False
    await wait(30)
    assert epochs == [1, 2, 3, 4]
    candidate.stop()
    await going


@virtual
async def test_a_take_whose_answer_is_lost_is_repeated_under_its_nonce() -> None:
    leases = Leases()
    leases.answers_after = 100
    going = asyncio.ensure_future(anext(election(leases).terms()))
    await wait(6)
    leases.answers_after = 0
    term = await going
    assert term.epoch == 1
    async with term:
        pass


@virtual
async def test_a_candidate_cancelled_in_the_midst_of_a_take_leaves_no_held_lease() -> None:
    leases = Leases()
    leases.answers_after = 100
    terms = election(leases).terms()
    going = asyncio.ensure_future(anext(terms))
    await wait(1)
    going.cancel()
    await asyncio.wait([going])
    view = await leases.read("lead")
    assert view is not None
    assert view.holder is None


@virtual
async def test_a_term_that_nobody_uses_is_given_back() -> None:
    leases = Leases()
    terms = election(leases).terms()
    await anext(terms)
    await terms.aclose()
    assert leases.verbs() == ["a took 1", "a released 1"]


@virtual
async def test_a_defect_of_the_store_ends_the_work_and_comes_out() -> None:
    class Broken(Leases):
        async def renew(self, grant: Grant) -> bool:
            raise ZeroDivisionError

    stops = list[float]()
    leases = Broken()

    async def lead(term: Term) -> None:
        try:
            await forever()
        finally:
            stops.append(now())

    with pytest.raises(ZeroDivisionError):
        await election(leases).run(lead)
    assert stops
    assert leases.verbs() == ["a took 1", "a released 1"]


@virtual
async def test_watchers_see_every_leader_and_nobody() -> None:
    leases, views = Leases(), list[tuple[str | None, int]]()
    candidate = election(leases)

    async def watch() -> None:
        async for view in election(leases, "watcher").watch(every=1):
            views.append((view.leader, view.epoch))

    async def lead(term: Term) -> None:
        await forever()

    watching = asyncio.ensure_future(watch())
    await wait(5)
    going = asyncio.ensure_future(candidate.run(lead))
    await wait(20)
    leases.away = True
    await wait(10)
    leases.away = False
    await candidate.step_down(rest=30)
    await wait(60)
    assert views == [(None, 0), ("a", 1), (None, 1), ("a", 2)]
    candidate.stop()
    watching.cancel()
    await asyncio.wait([going, watching])


@virtual
async def test_history_tells_terms_and_the_gaps_between_them() -> None:
    leases = Leases()
    candidate = election(leases)
    for _ in range(2):
        async for term in candidate.terms():
            async with term:
                await wait(100)
            break
        await wait(50)
    new, old = await candidate.history()
    assert (new.epoch, new.holder, old.epoch, old.gap) == (2, "a", 1, None)
    assert old.ended is not None
    assert old.ended - old.began == pytest.approx(100)
    assert new.gap == pytest.approx(50)


@virtual
async def test_figures_count_renewals_and_the_least_margin() -> None:
    leases = Leases()
    candidate = election(leases)
    async for term in candidate.terms():
        async with term:
            await wait(30)
            leases.answers_after = 4
            await wait(30)
        break
    figures = candidate.figures
    assert figures.endings == {"returned": 1}
    assert figures.renewals >= 10
    assert figures.slowest == pytest.approx(4)
    assert figures.margin == pytest.approx(belief(15) - 5 - 4, abs=0.5)


@virtual
async def test_a_preference_decides_who_tries_first_and_hears_of_terms() -> None:
    class Patience:
        def __init__(self, rank: int) -> None:
            self.mine, self.log = rank, list[str]()

        async def start(self, me: str) -> None:
            self.log.append(f"start {me}")

        async def stop(self) -> None:
            self.log.append("stop")

        def rank(self) -> int:
            return self.mine

        def seen(self, view: Any) -> None:
            self.log.append(f"{view.leader} {view.epoch}")

    leases = Leases()
    patient, eager = Patience(1), Patience(0)
    candidates = [election(leases, "b", preference=patient), election(leases, "a", preference=eager)]

    async def lead(term: Term) -> None:
        await forever()

    tasks = [asyncio.ensure_future(candidate.run(lead)) for candidate in candidates]
    await wait(60)
    await candidates[1].step_down(rest=300)
    await wait(100)
    for candidate in candidates:
        candidate.stop()
    await asyncio.gather(*tasks)
    assert leases.verbs()[:3] == ["a took 1", "a released 1", "b took 2"], "nobody waits for ever"
    assert eager.log[:3] == ["start a", "None 0", "a 1"]
    assert eager.log[-1] == "stop"
    assert patient.log[:3] == ["start b", "None 0", "a 1"]
    assert "b 2" in patient.log


TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


@virtual
async def test_each_call_of_lead_runs_in_a_fresh_copy_of_the_context_of_run() -> None:
    """What one term sets, the next does not see; and a look at health neither."""
    contexts: list[str] = []
    TENANT.set("program")
    otel.attach(baggage.set_baggage("started by", "deploy 7"))

    def healthy() -> bool:
        contexts.append(f"health {TENANT.get()}")
        TENANT.set("a look at health")
        return True

    candidate = election(Leases(), health=healthy)

    async def lead(term: Term) -> None:
        contexts.append(f"lead {TENANT.get()}")
        TENANT.set(f"term {term.epoch}")
        assert not baggage.get_all()
        await wait(12.0)
        assert TENANT.get() == f"term {term.epoch}"
        if term.epoch == 3:
            candidate.stop()

    await candidate.run(lead)
    assert TENANT.get() == "program"
    assert {*contexts} == {"lead program", "health program"}
    assert contexts.count("lead program") == 3
    assert contexts.count("health program") >= 6


@virtual
async def test_an_awaited_look_at_health_sees_what_it_set_itself() -> None:
    contexts: list[str] = []

    async def asked() -> bool:
        contexts.append(TENANT.get())
        TENANT.set("a look at health")
        await wait(0.01)
        return TENANT.get() == "a look at health"

    candidate = election(Leases(), health=asked)

    async def lead(term: Term) -> None:
        await wait(12.0)
        assert not term.ending
        candidate.stop()

    await candidate.run(lead)
    assert len(contexts) >= 2
    assert {*contexts} == {"nobody"}


@virtual
async def test_a_term_that_ends_cancels_lead_in_its_own_context() -> None:
    """It is still part of the task that called ``run``: its cancellation and its errors are those of before."""
    candidate, contexts = election(Leases()), []
    caller = asyncio.current_task()

    async def lead(term: Term) -> None:
        assert asyncio.current_task() is caller
        TENANT.set("inside")
        try:
            await forever()
        except asyncio.CancelledError:
            contexts.append(TENANT.get())
            raise

    async def stop() -> None:
        await wait(5.0)
        candidate.stop()

    stopping = asyncio.ensure_future(stop())
    await candidate.run(lead)
    await stopping
    assert contexts == ["inside"]

    async def fails(term: Term) -> None:
        raise LookupError("as it was raised")

    with pytest.raises(LookupError, match="as it was raised"):
        await election(Leases()).run(fails)
