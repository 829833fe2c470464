"""Waits: steps that stay ready for a while, and the step that fails a task."""

from typing import Any

import pytest

from makegood.model.messages import TaskMessage
from makegood.model.plan import Condition, StepPlan, Template
from makegood.saga import waits
from tests.unit.saga_case import ADA, Case, action, result_of, template

WINTER = "2026-12-24T09:00:00+01:00[Europe/Berlin]"
WINTER_SECONDS = 1_798_099_200.0


def sleep(idx: int, *after: int, args: Template | str = "3", until: bool = False) -> StepPlan:
    """Return a sleep that comes after other steps."""
    args = template(args) if isinstance(args, str) else args
    return StepPlan(idx, "sleep", f"sleep{idx}", action="until" if until else "", args=args, after=after)


def between(args: Template | str = "3", *, until: bool = False, **task: Any) -> Case:
    """Return a task of an action, a sleep and an action whose sleep has just begun."""
    case = Case(action(0), sleep(1, 0, args=args, until=until), action(2, 1), **task)
    case.now = 1000.0
    case.done(0)
    return case


def test_a_sleep_begins_with_the_step_before_it_and_holds_a_timer() -> None:
    case = between()
    assert (case.states, dict(case.last.timers), case.asked) == ("done ready waiting", {1: 3.0}, [])
    assert case.step(1).waiting


def test_its_timer_ends_it_and_the_next_step_begins_in_the_same_decision() -> None:
    case = between()
    case.due(1)
    assert (case.states, case.asked, case.last.stale_timers) == ("done done running", [(2, "do")], [1])
    assert case.last.moves[0].why == "its moment has come"
    case.done(2)
    assert case.task.state == "processed"


def test_a_task_may_begin_with_a_sleep() -> None:
    case = Case(sleep(0), action(1, 0))
    assert (case.states, dict(case.last.timers)) == ("ready waiting", {0: 3.0})


@pytest.mark.parametrize("args", ["0", '"PT0S"'])
def test_no_length_is_no_wait(args: str) -> None:
    case = between(args)
    assert (case.states, dict(case.last.timers)) == ("done done running", {})


@pytest.mark.parametrize(
    "args", ["-1", '"-P1D"', "null", "true", '"3 days"', "1e9", "[3]", '"2026-12-24T09:00:00Z"']
)
def test_what_is_not_a_length_fails_the_step_for_certain(args: str) -> None:
    case = between(args)
    assert case.step(1).state == "failed"
    assert case.task.goal == "undo"
    assert "sleep1 cannot begin" in case.last.alerts[0].text


def test_a_length_may_be_a_result() -> None:
    case = between(Template(("", ""), (result_of(0, "of"),)))
    assert case.states == "done done running"  # {"of": 0}


def test_another_scheduler_leaves_its_moment_as_it_is() -> None:
    case = between()
    case.say(TaskMessage("dead"))
    assert (case.states, dict(case.last.timers)) == ("done ready waiting", {})
    case.say(TaskMessage("claim"))
    assert (case.states, dict(case.last.timers), [*case.last.stale_timers]) == ("done ready waiting", {}, [])


def test_a_claim_at_its_moment_ends_it() -> None:
    case = between()
    case.say(TaskMessage("dead"))
    case.say(TaskMessage("claim"), TaskMessage("retry", 1))
    assert (case.states, case.asked) == ("done done running", [(2, "do")])


def test_a_cancel_drops_it_and_undoes_what_was_done() -> None:
    case = between()
    case.act("cancel")
    assert case.states == "undoing waiting waiting"
    assert case.last.stale_timers == [1]
    case.answer(0)
    assert (case.task.state, case.states) == ("undone", "undone waiting waiting")


def test_one_that_is_over_is_kept_in_an_undo_and_never_in_place() -> None:
    case = between()
    case.due(1)
    case.answer(2, "permanent", error="closed")
    assert case.states == "undoing kept failed"
    case.answer(0)
    assert case.task.state == "undone"
    case.act("resubmit")
    case.say(TaskMessage("claim"))
    case.done(0)
    assert (case.states, case.step(1).round, dict(case.last.timers)) == ("done ready waiting", 2, {1: 3.0})


def test_a_deadline_ends_it_too() -> None:
    case = between()
    case.say(TaskMessage("task_expired"))
    assert case.states == "undoing waiting waiting"


def test_a_held_task_sleeps_anew_after_its_resubmission() -> None:
    case = Case(action(0), sleep(1), on_failure="hold")
    case.answer(0, "permanent", error="closed")
    assert (case.task.state, case.states) == ("error", "failed waiting")
    case.act("resubmit")
    case.say(TaskMessage("claim"))
    assert (case.states, dict(case.last.timers)) == ("running ready", {1: 3.0})


# -- until a moment ------------------------------------------------------------------------------------------


def test_a_moment_that_has_passed_is_no_wait() -> None:
    case = between('"1970-01-01T00:16:40Z"', until=True)
    assert case.states == "done done running"


def test_a_moment_is_waited_for_by_the_calendar() -> None:
    case = between('"1970-01-01T00:17:00Z"', until=True)
    assert dict(case.last.timers) == {1: 20.0}


def test_a_clock_that_was_corrected_lets_it_sleep_on() -> None:
    case = between('"1970-01-01T00:17:00Z"', until=True)
    case.now = 1015.0
    case.due(1)
    assert (case.states, dict(case.last.timers)) == ("done ready waiting", {1: 5.0})
    case.now = 1020.0
    case.due(1)
    assert case.states == "done done running"


def test_a_moment_with_a_zone_is_looked_at_early_and_by_its_present_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(action(0), sleep(1, 0, args=f'"{WINTER}"', until=True))
    case.now = WINTER_SECONDS - 10_000
    case.done(0)
    assert dict(case.last.timers) == {1: 2800.0}
    monkeypatch.setattr(waits, "by_present_rules", lambda seconds, _wall: seconds - 3600)
    case.now = WINTER_SECONDS - 7200
    case.due(1)
    assert dict(case.last.timers) == {1: 3600.0}


@pytest.mark.parametrize("args", ['"2026-12-24T09:00:00"', "null", "1798099200", '"soon"'])
def test_what_is_not_an_aware_datetime_fails_the_step(args: str) -> None:
    case = between(args, until=True)
    assert case.step(1).state == "failed"
    assert "time zone" in case.last.alerts[0].text


def test_no_moment_is_more_than_ten_years_away() -> None:
    case = between('"2026-12-24T09:00:00Z"', until=True)
    assert "more than ten years" in case.last.alerts[0].text


# -- wake ----------------------------------------------------------------------------------------------------


def test_a_wake_ends_all_sleeps_that_have_begun() -> None:
    case = Case(sleep(0), sleep(1), action(2, 0), sleep(3, 2))
    assert case.act("wake") == ("applied", "sleep0, sleep1 end now")
    assert case.states == "done done running waiting"
    assert case.last.stale_timers == [0, 1]
    assert case.last.moves[0].why == "woken before its moment by ada: wrong address"
    case.due(0)  # its timer was about to fire
    assert case.states == "done done running waiting"


def test_a_wake_of_one_step_leaves_the_others() -> None:
    case = Case(sleep(0), sleep(1), action(2, 0))
    assert case.act("wake", 1) == ("applied", "sleep1 ends now")
    assert case.states == "ready done waiting"
    assert case.act("wake", 1) == ("noop", "sleep1 does not sleep: it is done")
    assert case.act("wake", 2) == ("noop", "s2 does not sleep: it is waiting")
    assert case.act("wake", 9) == ("refused", "the task has no such step")


def test_a_wake_before_the_claim_ends_what_slept() -> None:
    """The task was released: its claim comes first, and what follows the sleep begins once."""
    case = between()
    case.say(TaskMessage("dead"))
    case.say(TaskMessage("claim"), TaskMessage("wake", act=ADA))
    assert (case.states, case.asked) == ("done done running", [(2, "do")])


# -- fail ----------------------------------------------------------------------------------------------------


def judged(yes: str, **task: Any) -> Case:
    """Return a task that fails if its first step says no."""
    case = Case(
        action(0),
        StepPlan(1, "when", "when", condition=Condition("true", template("", result_of(0), "")), after=(0,)),
        action(2, 1, guards=((1, True),)),
        StepPlan(3, "fail", "fail", args=template('"the boss said no"'), after=(1,), guards=((1, False),)),
        **task,
    )
    case.answer(0, value=yes.encode())
    return case


def test_a_fail_whose_side_is_not_taken_is_skipped() -> None:
    assert judged("true").states == "done done running skipped"


def test_a_fail_undoes_the_task_with_its_reason_as_the_cause_and_no_alert() -> None:
    case = judged("false")
    assert case.states == "undoing kept skipped failed"
    assert (case.task.cause, case.last.alerts) == ("the boss said no", [])
    case.answer(0)
    assert (case.task.state, case.states) == ("undone", "undone kept skipped failed")


def test_a_fail_of_a_workflow_that_holds_is_for_an_operator() -> None:
    case = judged("false", on_failure="hold")
    assert (case.task.state, case.alerts) == ("error", ["held"])
    case.act("resubmit")
    case.say(TaskMessage("claim"))
    assert (case.task.state, case.step(3).round) == ("error", 2)
