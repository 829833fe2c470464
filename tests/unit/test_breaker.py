"""The circuit breaker's rules: when it opens, its one trial call, the gradual release, and what does not count."""

import random

import pytest

from makegood.errors import ConfigError
from makegood.model.breaker import UNCOUNTED, Breaker, Circuit, Outcome


def circuit(failures: int = 3, size: int = 8, reset: float = 30.0) -> Circuit:
    """Return a closed circuit."""
    return Circuit(Breaker(failures=failures, reset=reset), size)


def call(breaker: Circuit, outcome: Outcome, now: float = 0.0) -> bool:
    """Let one call begin and end at once."""
    return breaker.record_end(breaker.began(now), outcome, now)


def opened(size: int = 8, now: float = 0.0) -> Circuit:
    """Return a circuit that has just opened."""
    breaker = circuit(size=size)
    for _ in range(3):
        assert call(breaker, "failed", now)
    assert breaker.state == "open"
    return breaker


def test_so_many_failures_in_a_row_open_it_and_an_answer_between_begins_anew() -> None:
    breaker = circuit()
    for outcome in ("failed", "failed", "answered", "failed", "failed"):
        call(breaker, outcome)
    assert breaker.is_closed
    assert breaker.room(0.0, 8) == 8
    call(breaker, "failed")
    assert breaker.state == "open"
    assert breaker.room(0.0, 8) == 0


@pytest.mark.parametrize("outcome", ["later", "neither"])
def test_what_is_neither_answer_nor_failure_changes_nothing(outcome: Outcome) -> None:
    breaker = circuit()
    for each in ("failed", "failed", outcome, outcome, outcome):
        call(breaker, each)
    assert breaker.is_closed
    call(breaker, "failed")
    assert breaker.state == "open"


def test_after_reset_exactly_one_call_is_let_through() -> None:
    breaker = opened()
    assert breaker.room(29.9, 8) == 0
    assert breaker.remaining(29.9) == pytest.approx(0.1)
    assert breaker.room(30.0, 8) == 1
    assert breaker.state == "half-open"
    breaker.began(30.0)
    assert breaker.room(31.0, 8) == 0
    assert breaker.remaining(31.0) == 0


def test_a_canary_that_fails_opens_it_again_for_the_whole_time() -> None:
    breaker = opened()
    assert breaker.room(30.0, 8) == 1
    assert not call(breaker, "failed", 35.0)  # for its step
    assert breaker.state == "open"
    assert breaker.remaining(35.0) == 30.0


def test_a_canary_to_which_the_service_says_later_gives_it_that_time() -> None:
    breaker = opened()
    breaker.room(30.0, 8)
    call(breaker, "later", 31.0)
    assert breaker.state == "open"


def test_a_canary_that_tells_nothing_is_followed_by_another() -> None:
    breaker = opened()
    breaker.room(30.0, 8)
    call(breaker, "neither", 31.0)
    assert breaker.state == "half-open"
    assert breaker.room(31.0, 8) == 1


def test_it_is_released_step_by_step_by_answers() -> None:
    breaker = opened(size=5)
    breaker.room(30.0, 5)
    call(breaker, "answered", 30.0)
    most = [breaker.most]
    while not breaker.is_closed:
        assert breaker.state == "release"
        tickets = [breaker.began(31.0) for _ in range(breaker.room(31.0, 5))]
        assert breaker.room(31.0, 5) == 0
        assert len(tickets) == breaker.most
        breaker.record_end(tickets[0], "answered", 31.0)
        for ticket in tickets[1:]:
            breaker.record_end(ticket, "neither", 31.0)
        most.append(breaker.most)
    assert most == [2, 3, 4, 5]


def test_a_failure_in_the_release_halves_it_and_the_last_one_opens_it() -> None:
    breaker = circuit(failures=10, size=16)
    for _ in range(10):
        call(breaker, "failed")
    breaker.room(30.0, 16)
    for _ in range(8):
        call(breaker, "answered", 30.0)
    assert breaker.most == 9
    for most in (4, 2, 1):
        call(breaker, "failed", 30.0)
        assert (breaker.state, breaker.most) == ("release", most)
    call(breaker, "failed", 30.0)
    assert breaker.state == "open"


def test_one_slot_is_released_by_the_canary_alone() -> None:
    breaker = opened(size=1)
    breaker.room(30.0, 1)
    call(breaker, "answered", 30.0)
    assert breaker.is_closed


def test_what_began_before_it_opened_counts_neither_here_nor_for_the_step() -> None:
    breaker = circuit()
    early = [breaker.began(0.0) for _ in range(8)]
    assert [breaker.record_end(ticket, "failed", 1.0) for ticket in early] == [True] * 3 + [False] * 5
    assert breaker.remaining(1.0) == 30.0
    late = circuit()
    early = [late.began(0.0) for _ in range(5)]
    for ticket in early[:3]:
        late.record_end(ticket, "failed", 1.0)
    late.room(31.0, 8)
    assert not late.record_end(early[3], "answered", 31.0)
    assert late.state == "half-open"  # an answer from before it opened is no canary's
    assert late.room(31.0, 8) == 1


def test_a_repeated_attempt_counts_only_if_the_service_has_answered_since_its_step_failed() -> None:
    """Whatever process it failed in before, and however that one ended: nobody has to remember it."""
    breaker = circuit(failures=10)
    assert breaker.record_end(breaker.began(5.0), "failed", 5.0)  # a first attempt
    assert not breaker.record_end(breaker.began(10.0), "failed", 10.0, since=5.0)  # nobody was answered, ever
    call(breaker, "answered", 11.0)
    assert not breaker.record_end(breaker.began(16.0), "failed", 16.0, since=11.5)
    assert breaker.record_end(breaker.began(16.0), "failed", 16.0, since=10.5)
    assert breaker.is_closed


def test_failures_that_count_for_no_step_open_it_all_the_same() -> None:
    breaker = circuit()
    for _ in range(3):
        breaker.record_end(breaker.began(1.0), "failed", 1.0, since=0.0)
    assert breaker.state == "open"


def test_an_answer_elsewhere_releases_one_that_waits_for_a_canary() -> None:
    """Not one that is open, nor one whose canary is under way: that knows better how its own process fares."""
    breaker = opened(size=4)
    assert not breaker.record_answer_elsewhere(1.0)
    breaker.room(30.0, 4)
    canary = breaker.began(30.0)
    assert not breaker.record_answer_elsewhere(31.0)
    breaker.record_end(canary, "neither", 32.0)
    assert breaker.record_answer_elsewhere(33.0)
    assert (breaker.state, breaker.most, breaker.evidence.answer_at) == ("release", 2, None)
    call(breaker, "failed", 34.0)
    call(breaker, "failed", 34.0)
    assert breaker.state == "open"


def test_what_was_on_its_way_when_it_opened_is_let_begin_and_does_not_count() -> None:
    breaker = opened()
    ticket = breaker.began(1.0)
    assert ticket == UNCOUNTED
    assert not breaker.record_end(ticket, "failed", 2.0)
    assert breaker.remaining(2.0) == 28.0


def test_jitter_adds_up_to_a_half_so_that_processes_do_not_ask_together() -> None:
    waits = set()
    rng = random.Random(1)
    for _ in range(50):
        breaker = circuit(failures=1)
        breaker.record_end(breaker.began(0.0), "failed", 0.0, rng.random())
        waits.add(round(breaker.remaining(0.0), 1))
    assert min(waits) >= 30.0
    assert max(waits) <= 45.0
    assert len(waits) > 30


def test_whatever_happens_no_more_is_in_flight_than_its_state_allows() -> None:
    """Twenty thousand random events, with all that may overlap: open lets none begin, half-open one, release what it says."""
    rng = random.Random(7)
    breaker, now = circuit(failures=2, size=6), 0.0
    flying: list[int] = []
    states: set[str] = set()
    for _ in range(20_000):
        now += rng.random() * 3
        room = breaker.room(now, 6 - len(flying))
        assert 0 <= room <= 6 - len(flying)
        assert breaker.state != "open" or room == 0
        tickets = [ticket for ticket in flying if ticket == breaker._term]
        assert breaker.state in ("closed", "open") or len(tickets) + room <= max(breaker.most, len(tickets))
        flying += [breaker.began(now) for _ in range(min(room, rng.randrange(3)))]
        if flying and rng.random() < 0.6:
            ticket = flying.pop(rng.randrange(len(flying)))
            good = rng.random() < (0.1 if now % 400 < 100 else 0.9)
            breaker.record_end(
                ticket, "answered" if good else rng.choice(("failed", "failed", "later")), now, rng.random()
            )
        states.add(breaker.state)
    assert states == {"closed", "open", "half-open", "release"}


@pytest.mark.parametrize(
    "wrong", [{"failures": 0}, {"failures": 1.5}, {"failures": True}, {"reset": 0}, {"reset": "soon"}]
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="Breaker"):
        Breaker(**wrong)  # type: ignore[arg-type]
