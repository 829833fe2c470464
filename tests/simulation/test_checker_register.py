"""Linearizability of one task's register: the search agrees with trying every order. (``tests/conformance/test_linearizability.py`` asks the real stores.)"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from proofs.linearizable import RecordedCall, Register, linearizable, step


def op(call: str, who: str, began: float, end: float | None, *answer: int | bool | None) -> RecordedCall:
    """Return a call; ``answer``: its answer and, but for a claim, its epoch."""
    return RecordedCall(call, who, began, end, *answer)  # type: ignore[arg-type] # a literal, from the test


def test_a_claim_and_its_completion() -> None:
    order = linearizable([op("claim", "a", 0, 1, 1), op("complete", "a", 2, 3, True, 1)])
    assert order is not None
    assert [one.call for one in order] == ["claim", "complete"]


def test_two_claims_at_once_one_wins() -> None:
    assert linearizable([op("claim", "a", 0, 2, 1), op("claim", "b", 1, 3, 0)])
    assert linearizable([op("claim", "a", 0, 2, 0), op("claim", "b", 1, 3, 1)])


def test_two_claims_that_both_win_are_refused() -> None:
    """However they overlap, and whatever epochs they got."""
    assert linearizable([op("claim", "a", 0, 2, 1), op("claim", "b", 1, 3, 1)]) is None
    assert linearizable([op("claim", "a", 0, 2, 1), op("claim", "b", 1, 3, 2)]) is None


def test_real_time_is_respected() -> None:
    """A claim that lost before the winner began cannot be explained."""
    assert linearizable([op("claim", "a", 0, 1, 0), op("claim", "b", 2, 3, 1)]) is None


def test_whoever_lost_the_task_cannot_complete_it() -> None:
    story = [op("claim", "a", 0, 1, 1), op("requeue", "v", 2, 3, True, 1), op("claim", "b", 4, 5, 2)]
    assert linearizable([*story, op("complete", "a", 6, 7, False, 1), op("complete", "b", 8, 9, True, 2)])
    assert linearizable([*story, op("complete", "a", 6, 7, True, 1)]) is None


def test_a_completed_task_is_neither_requeued_nor_claimed() -> None:
    story = [op("claim", "a", 0, 1, 1), op("complete", "a", 2, 3, True, 1)]
    assert linearizable([*story, op("requeue", "v", 4, 5, False, 1), op("claim", "b", 6, 7, 0)])
    assert linearizable([*story, op("requeue", "v", 4, 5, True, 1)]) is None
    assert linearizable([*story, op("claim", "b", 6, 7, 2)]) is None


def test_completed_and_requeued_cannot_both_be() -> None:
    """The race between a Scheduler and the Supervisor: one of them wins."""
    first = op("claim", "a", 0, 1, 1)
    assert linearizable([first, op("complete", "a", 2, 5, True, 1), op("requeue", "v", 3, 4, False, 1)])
    assert linearizable([first, op("complete", "a", 2, 5, False, 1), op("requeue", "v", 3, 4, True, 1)])
    assert (
        linearizable([first, op("complete", "a", 2, 5, True, 1), op("requeue", "v", 3, 4, True, 1)]) is None
    )


def test_a_call_whose_answer_was_lost_may_have_happened_or_not() -> None:
    claim = op("claim", "a", 0, None, None)
    assert linearizable([claim, op("claim", "b", 5, 6, 0)]), "it happened"
    assert linearizable([claim, op("claim", "b", 5, 6, 1)]), "it did not"
    assert linearizable([claim, op("claim", "b", 5, 6, 3)]) is None, "there is no such epoch"


def test_a_store_that_skips_what_is_being_written_may_find_nothing_meanwhile() -> None:
    """Strictly this cannot be: a's claim lost, so b had won by then, and yet v found nothing to take from b."""
    story = [op("claim", "b", 0, 9, 1), op("claim", "a", 1, 2, 0), op("requeue", "v", 3, 4, False)]
    assert linearizable(story) is None
    assert linearizable(story, skipping=True) is not None


def test_even_then_what_took_effect_must_be_explained() -> None:
    """Nor may a call find nothing when nobody was in its way."""
    both_win = [op("claim", "a", 0, 2, 1), op("claim", "b", 1, 3, 1)]
    assert linearizable(both_win, skipping=True) is None
    alone = [op("claim", "a", 0, 1, 0), op("claim", "b", 2, 3, 1)]
    assert linearizable(alone, skipping=True) is None
    calls = [op("claim", "a", 0, 1, 1), op("complete", "a", 2, 4, False, 1), op("claim", "b", 3, 5, 0)]
    assert linearizable(calls, skipping=True) is None


@st.composite
def histories(draw: st.DrawFn) -> list[RecordedCall]:
    """Up to six overlapping calls, answered as *some* order of them gives it."""
    calls: list[RecordedCall] = []
    for n in range(draw(st.integers(1, 6))):  # six factorial orders are quickly tried
        call = draw(st.sampled_from(["claim", "complete", "requeue"]))
        began = float(n) + draw(st.floats(-2, 0))
        end = float(n) + draw(st.floats(0.1, 3))
        calls.append(op(call, draw(st.sampled_from("ab")), began, end, None, draw(st.integers(0, 2))))
    state, answers = Register(), []
    for one in calls:  # each takes effect at the moment n, which lies within every one's time
        state, answer = step(state, one)
        answers.append(replace(one, answer=answer, returned=None if draw(st.booleans()) and draw(st.booleans()) else one.returned))  # fmt: skip
    return answers


def every_order(calls: Sequence[RecordedCall]) -> bool:
    """Try every order of every choice of calls whose answers were lost: slow, and plainly right."""
    complete = [one for one in calls if one.returned is not None]
    open_calls = [one for one in calls if one.returned is None]
    for count in range(len(open_calls) + 1):
        for some in itertools.combinations(open_calls, count):
            for order in itertools.permutations([*complete, *some]):
                if _explains(order):
                    return True
    return False


def _explains(order: Sequence[RecordedCall]) -> bool:
    state = Register()
    for n, one in enumerate(order):
        if any(later.until < one.began for later in order[n + 1 :]):
            return False
        state, answer = step(state, one)
        if one.returned is not None and answer != one.answer:
            return False
    return True


@given(histories())
def test_what_some_order_explains_is_linearizable(calls: list[RecordedCall]) -> None:
    assert linearizable(calls) is not None


@given(histories(), st.integers(0, 5), st.integers(0, 3))
def test_the_search_agrees_with_trying_every_order(
    calls: list[RecordedCall], place: int, answer: int
) -> None:
    """Also where one answer is falsified: then it is refused exactly when no order explains it."""
    at = place % len(calls)
    one = calls[at]
    false = replace(one, answer=answer if one.call == "claim" else answer % 2 == 0)
    mistake = [*calls[:at], false, *calls[at + 1 :]]
    assert (linearizable(mistake) is not None) is every_order(mistake)
