"""A task that sleeps: what a claim at its start, and messages before it, make of it."""

from makegood.model.messages import TaskMessage
from tests.unit.saga_case import ADA, Case, action


def asleep() -> Case:
    """Return a task of two steps that begins later."""
    return Case(action(0), action(1, 0), claim=False, state="sleeping")


def test_its_claim_begins_it_and_its_deadline() -> None:
    case = asleep()
    case.say(TaskMessage("claim"))
    assert (case.task.state, case.task.timed, case.states) == ("processing", True, "running waiting")
    assert case.last.moves[0][:] == ("task", "sleeping", "processing", "claimed")


def test_a_message_before_its_start_leaves_it_asleep_and_released() -> None:
    case = asleep()
    assert case.act("extend")[0] == "refused"
    assert (case.task.state, case.task.timed, case.states) == ("sleeping", False, "waiting waiting")
    assert case.last.release
    assert not case.last.moves


def test_a_wake_begins_it_and_its_deadline() -> None:
    case = asleep()
    case.act("wake")
    assert (case.task.state, case.task.timed, case.states) == ("processing", True, "running waiting")
    assert not case.last.release
    assert case.last.moves[0].why == "woken before its start by ada: wrong address"


def test_a_wake_beside_its_claim_is_applied_once() -> None:
    case = asleep()
    case.say(TaskMessage("claim"), TaskMessage("wake", act=ADA), TaskMessage("wake", act=ADA))
    assert [answer.verdict for answer in case.last.answers] == ["applied", "noop"]
    assert len([move for move in case.last.moves if move.of_task]) == 1
    assert case.states == "running waiting"


def test_a_cancel_beside_its_claim_ends_it_before_anything_is_sent() -> None:
    case = asleep()
    case.say(TaskMessage("claim"), TaskMessage("cancel", act=ADA))
    assert (case.task.state, case.last.requests) == ("undone", [])


def test_one_that_may_be_what_kills_its_schedulers_goes_to_error() -> None:
    case = asleep()
    case.say(TaskMessage("claim"), TaskMessage("poison"))
    assert case.task.state == "error"
