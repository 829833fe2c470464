"""A process that died is missed at once: the next attempt begins under the same key, and an undo waits for the deadline all the same."""

from typing import Any

import pytest

from makegood.model.messages import TaskMessage
from tests.unit.saga_case import Case, action

NOW = 1_000_000.0
DEADLINE = NOW + 25.0
"""When the attempt of the dead process would have been judged as silent."""


def one(*more: Any, task: dict[str, Any] | None = None, **policy: Any) -> Case:
    """Return a task whose first step runs in a process that is about to die."""
    case = Case(action(0, resumes=True, **policy), *more, **(task or {}))
    case.now = NOW
    return case


def die(case: Case, until: float = DEADLINE) -> Any:
    """Let the Supervisor judge the attempt of step 0 before its deadline."""
    return case.silence(0, died=True, runs_until=until)


def test_the_next_attempt_begins_in_the_commit_that_learns_of_the_death() -> None:
    case = one()
    before = case.step(0)
    die(case)
    assert case.asked == [(0, "do")]
    assert (case.request.attempt, case.request.round) == (before.attempt + 1, before.round)
    assert not case.last.timers
    assert [move.reason for move in case.last.moves] == ["process_died", "retry"]
    assert (case.step(0).failures, case.step(0).deaths) == (1, 1)


def test_a_silence_that_was_judged_past_its_deadline_waits_as_before() -> None:
    case = one()
    case.silence(0, died=True)
    assert (case.asked, case.last.timers) == ([], {0: 5.0})
    assert case.step(0).runs_until == 0.0


def test_a_step_with_a_probe_is_probed_at_once() -> None:
    case = one(probe=True)
    die(case)
    assert case.asked == [(0, "probe")]


def test_past_the_threshold_the_longer_wait_applies_to_deaths_too() -> None:
    case = one(threshold=1)
    die(case)
    assert case.asked == [(0, "do")]
    die(case)
    assert (case.asked, case.last.timers) == ([], {0: 300.0})


def test_a_failure_that_is_no_death_waits_also_while_the_first_attempt_may_run() -> None:
    case = one()
    die(case)
    case.answer(0, "gave_up", error="HTTP 500")
    assert (case.asked, case.last.timers) == ([], {0: 5.0})


def test_the_undo_waits_for_the_deadline_of_the_attempt_whose_process_died() -> None:
    case = one(threshold=0)
    case.now = NOW + 1
    case.act("cancel")
    die(case)
    assert case.task.state == "undoing"
    assert (case.asked, case.last.timers) == ([], {0: 24.0})
    case.now = NOW + 24  # the timer of a clock that is fast
    case.due(0)
    assert (case.asked, case.last.timers) == ([], {0: 1.0})
    case.now = DEADLINE
    case.due(0)
    assert case.asked == [(0, "undo")]


def test_the_undo_of_a_step_that_is_done_waits_for_the_attempt_before_it() -> None:
    """The second attempt is answered; the first may run on in a process that is only slow."""
    case = one(action(1, 0))
    die(case)
    case.done(0)
    case.answer(1, "refused", error="no stock")
    assert case.states == "done failed"
    assert case.task.state == "undoing"
    assert (case.asked, case.last.timers) == ([], {0: 25.0})
    case.now = DEADLINE
    case.due(0)
    assert case.asked == [(0, "undo")]


def test_the_latest_deadline_counts() -> None:
    case = one()
    die(case, DEADLINE + 3600.0)  # an attempt that was extended
    die(case, DEADLINE)
    case.done(0)
    case.now = DEADLINE + 60.0
    case.act("undo")
    assert case.last.timers == {0: 3540.0}


def test_the_undo_of_a_processed_task_waits_too() -> None:
    case = one()
    die(case)
    case.done(0)
    assert case.task.state == "processed"
    assert case.act("undo")[0] == "applied"
    assert (case.asked, case.last.timers) == ([], {0: 25.0})


@pytest.mark.parametrize("terms", [{"undoable": False}, {"undoable": False, "no_return": True}])
def test_what_has_nothing_to_undo_is_kept_past_the_deadline_only(terms: dict[str, Any]) -> None:
    """A task is undone when nothing of it runs any more."""
    case = one(action(1, 0), **terms)
    die(case)
    case.done(0)
    case.answer(1, "refused", error="no")
    assert case.task.state in ("undoing", "processing")
    assert case.last.timers == {0: 25.0}
    case.now = DEADLINE
    case.due(0)
    assert case.task.state == ("error" if "no_return" in terms else "undone")


def test_a_task_is_held_for_an_operator_past_the_deadline_only() -> None:
    """In error nothing of a task runs, so an operator may settle a step as failed."""
    case = one(threshold=0, then="hold")
    die(case)
    case.due(0)
    die(case, DEADLINE + 10)
    assert (case.task.state, case.task.goal, case.last.timers) == ("processing", "hold", {0: 35.0})
    case.now = DEADLINE + 10
    case.due(0)
    assert case.task.state == "error"
    assert case.act("settle", 0, "failed")[0] == "applied"


def test_steps_before_it_wait_with_it_and_steps_beside_it_do_not() -> None:
    case = Case(action(0), action(1, 0, resumes=True), action(2), action(3, 1, 2))
    case.now = NOW
    case.done(0, 2)
    case.silence(1, died=True, runs_until=DEADLINE)
    case.done(1)
    case.answer(3, "refused", error="no")
    assert case.asked == [(2, "undo")]
    assert case.last.timers == {1: 25.0}
    case.now = DEADLINE
    case.due(1)
    assert case.asked == [(1, "undo")]


def test_the_answer_of_the_first_attempt_is_late() -> None:
    case = one(threshold=3)
    message = case.reply(0, "done", value=b'"first"')
    die(case)
    case.say(message)
    assert case.step(0).state == "running"
    assert case.step(0).late == b'"first"'
    case.done(0)
    assert case.step(0).result == b'{"of":0}'


def test_a_scheduler_that_takes_over_resumes_as_well() -> None:
    """The verdict lies in the inbox of a task whose Scheduler died with the agent."""
    case = Case(action(0, resumes=True), claim=False)
    case.now = NOW
    case.say(TaskMessage("claim"))
    case.say(TaskMessage("dead"))
    assert case.task.state == "pending"
    verdict = TaskMessage("expired", 0, "do", 1, failures=1, died=True, runs_until=DEADLINE)
    case.say(TaskMessage("claim"), verdict)
    assert case.asked == [(0, "do")]
