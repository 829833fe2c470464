"""A task with lanes: when the rules queue it, and what a claim and commands make of one that is queued."""

import pytest

from makegood.model.messages import TaskMessage
from tests.unit.saga_case import ADA, Case, action


def task_with_lanes(state: str = "queued", **task: object) -> Case:
    """Return a task of two steps with a lane, in this state."""
    return Case(action(0), action(1, 0), claim=False, state=state, lanes=("ada",), **task)


def ended(*, undone: bool = False) -> Case:
    """Return a task with a lane that was processed, or undone."""
    case = task_with_lanes()
    case.say(TaskMessage("claim"))
    case.done(0)
    if undone:
        case.act("cancel")
    case.answer(1, "refused" if undone else "done")
    if undone:
        case.answer(0)
    return case


def test_a_claim_with_its_lanes_begins_it() -> None:
    case = task_with_lanes()
    case.say(TaskMessage("claim"))
    assert (case.task.state, case.task.timed, case.states) == ("processing", True, "running waiting")
    assert case.last.moves[0][:3] == ("task", "queued", "processing")


@pytest.mark.parametrize("messages", [("claim",), ("claim", "wake"), ("wake",)])
def test_one_whose_start_has_come_waits_for_its_lanes(messages: tuple[str, ...]) -> None:
    """A wake beside the claim that finds it due does not begin it without its lanes."""
    case = task_with_lanes("sleeping")
    case.say(*(TaskMessage(kind, act=ADA if kind == "wake" else None) for kind in messages))  # type: ignore[arg-type]
    assert (case.task.state, case.task.timed, case.states) == ("queued", False, "waiting waiting")
    assert case.last.release
    assert not case.last.requests


def test_one_that_was_let_go_continues_with_the_lanes_that_it_has() -> None:
    case = task_with_lanes()
    case.say(TaskMessage("claim"))
    case.done(0)
    assert case.say(TaskMessage("dead")).task.state == "pending"
    case.say(TaskMessage("claim"))
    assert case.task.state == "processing"


def test_a_cancel_ends_one_that_nobody_has_begun() -> None:
    case = task_with_lanes()
    case.act("cancel")
    assert (case.task.state, case.last.release) == ("undone", True)


def test_one_that_does_not_wait_ends_untouched() -> None:
    case = task_with_lanes()
    case.say(TaskMessage("lane_taken"))
    assert (case.task.state, case.task.cause) == ("undone", "its lane is taken")


def test_one_with_effects_waits_though_its_workflow_says_refuse() -> None:
    case = ended()
    case.act("undo")
    case.say(TaskMessage("lane_taken"))
    assert (case.task.state, case.task.goal, case.last.moves) == ("queued", "undo", [])


def test_an_undo_after_the_end_waits_for_the_lanes_and_then_undoes() -> None:
    case = ended()
    assert case.task.state == "processed"
    case.act("undo")
    assert (case.task.state, case.task.goal, case.last.release, case.last.requests) == (
        "queued",
        "undo",
        True,
        [],
    )
    case.say(TaskMessage("claim"))
    assert (case.task.state, case.asked) == ("undoing", [(1, "undo")])


def test_a_cancel_of_one_that_is_queued_with_effects_undoes_it_once_it_has_its_lanes() -> None:
    case = ended(undone=True)
    assert case.task.state == "undone"
    case.act("resubmit")
    assert (case.task.state, case.task.submission) == ("queued", 2)
    case.act("cancel")
    assert case.task.state == "undone", "what was undone before is not there"


def test_its_lanes_are_given_up_in_error_alone() -> None:
    case = task_with_lanes()
    assert case.act("release_lane")[0] == "refused"
    case.say(TaskMessage("claim"), TaskMessage("poison"))
    assert case.act("release_lane") == (
        "applied",
        "ada: the next tasks go; if this one continues, it waits for its lanes again",
    )
    assert (case.task.state, case.last.frees_lanes, case.last.release) == ("error", True, True)
    case.act("resubmit")
    assert case.last.task.state == "queued"


def test_a_task_without_lanes_is_never_queued() -> None:
    case = Case(action(0))
    case.done(0)
    assert case.act("release_lane") == ("refused", "the task has no lane")
    case.act("undo")
    assert case.task.state == "undoing"
