"""An early end of a workflow, ``done``: what is skipped, what is carried to its end, and the task's result."""

from makegood.model.messages import TaskMessage
from makegood.model.plan import Condition, StepPlan
from makegood.model.states import Move
from tests.unit.saga_case import Case, action, first, result_of, template

THEN = ((1, True),)


def ending(*more: StepPlan) -> Case:
    """Return: s0; when it is true then the workflow is done with s0's result; merge; s4 after it; then ``more``."""
    return Case(
        action(0),
        StepPlan(
            1, "when", "when", after=(0,), condition=Condition("true", template("", result_of(0, "b"), ""))
        ),
        StepPlan(2, "done", "done", after=(1,), guards=THEN, args=template("", result_of(0, "v"), "")),
        StepPlan(3, "merge", "merge", after=(2,), of=1),
        action(4, 3),
        *more,
        returns=template('"whole"'),
    )


def test_the_rest_is_skipped_and_the_task_has_that_result() -> None:
    """One Decision: what has not begun is skipped, and the task is processed."""
    case = ending()
    case.answer(0, value=b'{"b":true,"v":7}')
    assert case.states == "done done done skipped skipped"
    assert Move("s4", "waiting", "skipped", "ended_early") in case.last.moves
    assert (case.task.state, case.task.result) == ("processed", b"7")


def test_the_other_side_goes_on() -> None:
    """Its ``done`` is skipped, and the result is that of the workflow."""
    case = ending()
    case.answer(0, value=b'{"b":false,"v":7}')
    assert case.asked == [(4, "do")]
    case.done(4)
    assert (case.task.state, case.task.result) == ("processed", b'"whole"')


def test_what_has_begun_is_carried_to_its_end() -> None:
    """Beside it a step runs: the task ends after it, with the early result."""
    case = ending(action(5), action(6, 5))
    case.answer(0, value=b'{"b":true,"v":7}')
    assert case.task.state == "processing"
    case.done(5)
    assert case.states == "done done done skipped skipped done skipped"
    assert (case.task.state, case.task.result) == ("processed", b"7")


def test_what_has_begun_may_still_fail() -> None:
    """Then everything is undone; and a resubmission begins with what was skipped."""
    case = ending(action(5), action(6, 5))
    case.answer(0, value=b'{"b":true,"v":7}')
    case.answer(5, "permanent")
    assert case.asked == [(0, "undo")]
    case.answer(0)
    assert case.task.state == "undone"
    assert case.act("resubmit")[0] == "applied"
    assert case.states == " ".join(["waiting"] * 7)
    case.say(TaskMessage("claim"))
    case.answer(0, value=b'{"b":false,"v":7}')
    case.done(5)
    assert case.asked == [(6, "do")]


def test_a_wait_beside_it_is_skipped() -> None:
    """It has no effect, so nothing is lost, and its timer is dropped."""
    case = ending(StepPlan(5, "sleep", "sleep", args=template("60.0")))
    case.answer(0, value=b'{"b":true,"v":7}')
    assert case.last.stale_timers == [5]
    assert case.task.state == "processed"


def test_a_step_that_its_service_has_put_off_is_skipped() -> None:
    """It has certainly done nothing."""
    case = ending(action(5))
    case.answer(5, "later", wait=60.0)
    case.answer(0, value=b'{"b":true,"v":7}')
    assert case.last.stale_timers == [5]
    assert case.states == "done done done skipped skipped skipped"
    assert Move("s5", "ready", "skipped", "ended_early") in case.last.moves


def test_a_race_that_has_begun_is_run_to_its_end() -> None:
    """Else two branches of it would stay in place."""
    case = ending(action(5), action(6), first(7, 5, 6), action(8, 7))
    case.answer(0, value=b'{"b":true,"v":7}')
    assert case.states == "done done done skipped skipped running running waiting skipped"
    case.done(6)
    case.say(TaskMessage("withdrawn", 5, "do", 1))
    assert case.states == "done done done skipped skipped skipped done done skipped"
    assert (case.task.state, case.task.result) == ("processed", b"7")


def test_a_value_that_is_missing_fails_the_step() -> None:
    """As with every step whose arguments cannot be put together."""
    case = ending()
    case.answer(0, value=b'{"b":true}')
    assert case.task.state == "undoing"
    assert case.step(2).state == "failed"
