"""Whatever fails a turn: the task that causes it is found, and no other is put to error."""

import pytest

from makegood.scheduler.doubts import Doubts, rejection
from tests.unit.saga_case import Case, action

FAULT = ValueError("a defect")


def tried(doubts: Doubts, tasks: list[int], bad: int) -> None:
    """Let a turn of these tasks fail, then those of its parts that hold the bad one."""
    doubts.note_fault(tasks, FAULT, apart=False)
    while doubts:
        part = doubts.next()
        if bad in part:
            doubts.note_fault(part, FAULT, apart=True)
        else:
            doubts.well(with_claim=False, most=500)


@pytest.mark.parametrize("bad", [1, 4, 7])
def test_of_many_tasks_the_one_that_fails_alone_is_put_to_error(bad: int) -> None:
    doubts = Doubts()
    tried(doubts, [1, 2, 3, 4, 5, 6, 7], bad)
    assert [*doubts.unfit] == [bad]


def test_an_exception_that_meets_task_after_task_is_none_of_theirs() -> None:
    doubts = Doubts()
    for task in (1, 2, 3):
        doubts.condemn(task, FAULT)
    with pytest.raises(ValueError, match="a defect"):
        doubts.condemn(4, FAULT)
    doubts.well(with_claim=False, most=500)
    doubts.condemn(4, FAULT)
    assert [*doubts.unfit] == [1, 2, 3, 4]


def test_after_a_claim_that_failed_tasks_are_claimed_one_by_one_for_a_while() -> None:
    doubts = Doubts()
    doubts.note_failed_claim([1, 2, 3], FAULT)
    assert (doubts.most, doubts.fine, doubts.unclaimable) == (1, False, {})
    doubts.well(with_claim=False, most=5)
    assert not doubts.fine, "nothing was claimed yet"
    doubts.note_failed_claim([2], FAULT)
    assert [*doubts.unclaimable] == [2]
    for most in (2, 4, None):
        doubts.well(with_claim=True, most=5)
        assert (doubts.most, doubts.fine) == (most, True)


def test_a_task_that_cannot_be_decided_goes_to_error_with_an_alert() -> None:
    """What was wrong is in the alert, cut to what a row takes."""
    case = Case(action(0), claim=False)
    decision = rejection(case.held, [], ValueError("x" * 5000))
    assert (decision.task.state, decision.release) == ("error", True)
    (alert,) = decision.alerts
    assert alert.kind == "unreadable"
    assert alert.text.startswith("the rules could not decide: ValueError: xxx")
    assert len(alert.text) < 1100
