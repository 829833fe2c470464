"""What a Scheduler makes of the tasks that it reads from the store."""

import pytest

from makegood.model.messages import Message
from makegood.model.task import Step, Task
from makegood.scheduler.review import Review
from makegood.scheduler.turn import LOST_MOST, guilty, restored
from makegood.store.records import Loaded
from tests.unit.saga_case import Case, action


@pytest.mark.parametrize("lost", [0, LOST_MOST - 1, LOST_MOST])
def test_a_pending_task_is_claimed_and_one_that_kills_its_schedulers_is_called_poison(lost: int) -> None:
    """The claim is the first message; what the store has for the task comes after it."""
    told = Message("cancel", seq=9)
    loaded = Loaded(Task(7, "shop", "order", lost=lost), [Step(action(0))], [told])
    held, messages = restored(loaded)
    assert held.task.id == 7
    assert [m.kind for m in messages] == ["claim", *(["poison"] if lost == LOST_MOST else []), "cancel"]


def test_a_timer_that_is_past_fires_at_once_and_another_waits() -> None:
    """Only of steps that wait for one."""
    steps = [Step(action(n), state="ready", waiting=n < 2) for n in range(3)]
    loaded = Loaded(Task(7, "shop", "order", state="processing"), steps, [], {0: 0.0, 1: 5.0, 2: 0.0})
    _, messages = restored(loaded)
    assert [(m.kind, m.idx) for m in messages] == [("retry", 0)]


def test_a_task_that_cannot_be_decided_goes_to_error_with_an_alert() -> None:
    """What was wrong is in the alert, cut to what a row takes."""
    case = Case(action(0), claim=False)
    decision = guilty(case.held, [], ValueError("x" * 5000))
    assert (decision.task.state, decision.release) == ("error", True)
    (alert,) = decision.alerts
    assert alert.kind == "guilty"
    assert alert.text.startswith("the rules could not decide: ValueError: xxx")
    assert len(alert.text) < 1100


def test_what_is_held_is_reviewed_in_turn_and_not_too_often() -> None:
    """A thousand every half minute, but for those that are busy anyway; then from the beginning again."""
    review, held = Review(100.0), dict.fromkeys(range(1, 1502))
    assert review.some(held, (), 129.9) == []
    assert review.some(held, (3,), 130.0) == [1, 2, *range(4, 1002)]
    assert review.some(held, (), 159.0) == []
    assert review.some(held, (), 161.0) == [*range(1002, 1502)]
    assert review.some(held, (), 200.0)[:3] == [1, 2, 3]
    assert Review(0.0).some({}, (), 99.0) == []
