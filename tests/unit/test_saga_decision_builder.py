"""A Decision in the making: it reads through to what is held, writes only its own copies, and makes only lawful moves."""

import pytest
from msgspec.structs import replace

from makegood.errors import IllegalTransitionError, MissingValueError
from makegood.model.messages import TaskMessage
from makegood.model.plan import Ref, StepPlan, Template
from makegood.saga.decision_builder import DecisionBuilder
from tests.unit.saga_case import Case, action, failing, result_of, template


def test_every_move_is_looked_up_in_the_table() -> None:
    """A move outside it raises and leaves no trace."""
    builder = DecisionBuilder(Case(action(0)).held)
    with pytest.raises(IllegalTransitionError, match="a step cannot go from running to undone"):
        builder.move(builder.step(0), "undone", "reply")
    with pytest.raises(IllegalTransitionError, match="a task cannot go from processing to undone"):
        builder.move_task("undone", "reverted")
    assert builder.out.moves == []
    assert builder.out.steps == {}


def test_control_steps_have_a_table_of_their_own() -> None:
    """Nobody is ever asked to do one."""
    builder = DecisionBuilder(Case(StepPlan(0, "merge", name="m", after=(1,)), action(1)).held)
    step = builder.move(builder.step(0), "ready", "preceded")
    with pytest.raises(IllegalTransitionError, match="a control step cannot go from ready to running"):
        builder.move(step, "running", "dispatched")


def test_a_row_is_added_only_at_the_end() -> None:
    """Rows of an each follow those there are, without gaps."""
    builder = DecisionBuilder(Case(action(0)).held)
    with pytest.raises(IllegalTransitionError, match="step 5 would be added as number 1"):
        builder.add(action(5), ())


@pytest.mark.parametrize("ref", [Ref("step", 9), Ref("step", -1), Ref("input", 3), Ref("item", 0)])
def test_a_ref_to_nothing_is_missing(ref: Ref) -> None:
    """Said in words, not raised as a defect."""
    with pytest.raises(MissingValueError, match="there is no"):
        DecisionBuilder(Case(action(0)).held).fill(Template(("", ""), (ref,)))


def test_a_long_list_is_read_once() -> None:
    """Many holes filled from one list cost one reading of it."""
    case = Case(action(0), action(1, 0))
    case.answer(0, value=b"[1,2,3]")
    builder = DecisionBuilder(case.held)
    values = [builder.fill(template("", result_of(0, n), "")) for n in (0, 1, 2, 2)]
    assert values == [b"1", b"2", b"3", b"3"]
    assert len(builder._lists) == 1


def test_a_timer_set_again_is_not_dropped() -> None:
    """Dropped and set in one Decision is set."""
    case = Case(action(0))
    case.answer(0, "later", wait=3.0)
    builder = DecisionBuilder(case.held)
    step = builder.timer(builder.drop_timer(builder.step(0)), 9.0)
    assert (builder.out.timers, builder.out.stale_timers) == ({0: 9.0}, [])
    builder.drop_timer(step)
    assert (builder.out.timers, builder.out.stale_timers) == ({}, [0])


def test_a_timer_set_and_dropped_in_one_decision_never_was() -> None:
    """There is no row to delete."""
    builder = DecisionBuilder(Case(action(0)).held)
    builder.drop_timer(builder.timer(builder.step(0), 9.0))
    assert (builder.out.timers, builder.out.stale_timers) == ({}, [])


# -- a doubt whose arguments are gone ------------------------------------------------------------------------------------


def doubtful(**policy: object) -> Case:
    """Return a task whose second step is in doubt, and can no longer be asked: its argument is gone."""
    case = Case(action(0), action(1, 0, args=template('{"h":', result_of(0, "id"), "}"), **policy))
    case.answer(0, value=b'{"id":1}')
    case.silence(1)
    case.held.steps[0] = replace(case.step(0), result=b"{}")
    return case


def test_going_forward_it_is_the_verdict() -> None:
    """It may have happened, so it stays in doubt and is undone, or stuck."""
    case = doubtful()
    case.due(1)
    assert case.alerts == ["undo_incomplete"], "one alert a task"
    assert case.task.goal == "undo"
    assert case.states == "done undo_failed"
    assert "no 'id'" in case.task.cause


@pytest.mark.parametrize("policy", [{"remembers": True}, {"probe": True}])
def test_going_back_it_is_stuck(policy: dict[str, bool]) -> None:
    """Nobody can be asked for a definite answer."""
    case = doubtful(**policy)
    if policy == {"probe": True}:
        case.answer(1, "not_happened")
    case.say(TaskMessage("cancel"))
    assert case.states == "done in_doubt"
    assert case.alerts == ["undo_incomplete"]
    assert case.last.release


# -- what is answered after the undo was stopped ---------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["later", "withdrawn", "gave_up", "expired"])
def test_a_stopped_undo_is_not_asked_again(answer: str) -> None:
    """Poison: what is in flight is awaited, whatever it says that is no success leaves the undo failed."""
    case = failing(action(0), action(1, 0))
    case.say(TaskMessage("dead"))
    case.say(TaskMessage("claim"), TaskMessage("poison"))
    assert case.task.state == "undoing"
    case.answer(0, answer)
    assert (case.states, case.task.state) == ("undo_failed failed", "error")


def test_giving_up_before_the_turn_counts_for_the_task_alone() -> None:
    """It was sent before the task turned to undo: the undo counts from 0."""
    case = Case(action(0))
    case.say(TaskMessage("cancel"))
    case.answer(0, "gave_up")
    assert case.last.failure_counts == {-1: (False, 1)}
    assert (case.step(0).failures, case.task.failure_count) == (0, 1)


def test_a_request_taken_back_under_a_forward_goal_is_asked_again() -> None:
    """Nobody withdraws then; but if somebody did, the attempt did nothing."""
    case = Case(action(0), action(1))
    case.say(TaskMessage("withdrawn", 0, "do", 1))
    assert case.asked == [(0, "do")]
    case.silence(1)
    case.due(1)
    case.say(TaskMessage("withdrawn", 1, "do", 2))
    assert case.last.timers == {1: 5.0}
