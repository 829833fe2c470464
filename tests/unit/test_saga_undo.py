"""Undo and hold, sentence by sentence."""

from typing import Any

import pytest
from msgspec.structs import replace

from makegood import saga
from makegood.model.messages import TaskMessage
from makegood.model.states import Move
from tests.unit.saga_case import Case, action, failing, result_of, template


def cancelled(*plans: Any, count: int = 0, **task: Any) -> Case:
    """Return a task that is cancelled after its first steps are done."""
    case = Case(*plans, **task)
    case.done(*range(count))
    case.say(TaskMessage("cancel"))
    return case


# -- before an undo starts -----------------------------------------------------------------------------------------------


def test_what_is_in_flight_is_withdrawn_or_awaited() -> None:
    """Untaken requests are withdrawn, taken ones awaited; no undo starts on a step with a request in flight."""
    case = cancelled(action(0), action(1))
    assert case.last.withdraw == [(0, 1), (1, 1)]
    assert case.asked == []
    case.say(TaskMessage("withdrawn", 0, "do", 1))
    assert case.states == "waiting running"
    assert case.task.state == "undoing"
    case.done(1)
    assert case.asked == [(1, "undo")]
    assert case.request.result == b'{"of":1}'


def test_what_was_withdrawn_stays_in_doubt_when_it_was() -> None:
    """The attempt did nothing, an earlier one may have."""
    case = Case(action(0))
    case.silence(0)
    case.due(0)
    case.say(TaskMessage("cancel"))
    case.say(TaskMessage("withdrawn", 0, "do", 2))
    assert case.asked == [(0, "undo")]
    assert case.request.in_doubt


def test_actions_in_flight_hear_of_an_undo_whatever_its_cause() -> None:
    assert cancelled(action(0), action(1)).last.cancels == [(0, 1), (1, 1)]
    case = Case(action(0), action(1), action(2))
    case.answer(0, "permanent", error="card refused")
    assert case.last.cancels == [(1, 1), (2, 1)]
    late = Case(action(0))
    late.say(TaskMessage("task_expired"))
    assert late.last.cancels == [(0, 1)]


def test_nothing_hears_of_a_hold_since_an_operator_may_need_it() -> None:
    case = Case(action(0), action(1), on_failure="hold")
    case.answer(0, "permanent", error="card refused")
    assert (case.task.goal, case.last.withdraw, case.last.cancels) == ("hold", [(1, 1)], [])
    case.say(TaskMessage("cancel"))
    assert case.last.cancels == [(1, 1)]


def test_probes_and_undos_never_hear() -> None:
    case = Case(action(0), action(1, probe=True))
    case.done(0)
    case.silence(1)
    assert case.asked == [(1, "probe")]
    case.say(TaskMessage("cancel"))
    assert (case.last.withdraw, case.last.cancels) == ([(1, 2)], [])
    undoing = failing(action(0), action(1, 0))
    assert undoing.asked == [(0, "undo")]
    undoing.say(TaskMessage("cancel"))
    assert undoing.last.cancels == []


def test_what_was_answered_in_the_same_batch_hears_nothing() -> None:
    case = Case(action(0), action(1))
    case.say(TaskMessage("cancel"), case.reply(0, "done"))
    assert case.last.cancels == [(1, 1)]


def test_an_attempt_that_heard_and_gave_up_is_in_doubt_undone_at_once_and_no_failure() -> None:
    case = cancelled(action(0))
    case.answer(0, "gave_up", error="nobody needs it", excused=True, since_cancel=0.412)
    assert case.asked == [(0, "undo")]
    assert case.request.in_doubt
    assert (case.step(0).failures, case.task.failure_count, case.last.failure_counts) == (0, 0, {})
    move = next(m for m in case.last.moves if m.after == "in_doubt")
    assert move.why == "gave up after its tries: heard the cancel, ended after 0.4 s"
    assert case.alerts == []


def test_an_attempt_that_heard_and_returned_is_done_and_undone() -> None:
    case = cancelled(action(0))
    case.answer(0, value=b"7", since_cancel=2.0)
    assert case.asked == [(0, "undo")]
    assert (case.request.in_doubt, case.request.result) == (False, b"7")
    assert "heard the cancel, ended after 2.0 s" in case.last.moves[0].why


@pytest.mark.parametrize(
    ("kind", "state"), [("refused", "failed"), ("permanent", "failed"), ("later", "waiting")]
)
def test_an_attempt_that_heard_and_says_that_nothing_happened_is_believed(kind: str, state: str) -> None:
    case = cancelled(action(0))
    case.answer(0, kind, error="no", since_cancel=0.1)
    assert (case.states, case.task.state) == (state, "undone")


def test_timers_are_dropped() -> None:
    """Nothing that waits for a retry is tried again."""
    case = Case(action(0), action(1))
    case.answer(0, "later", wait=9.0)
    case.silence(1)
    case.say(TaskMessage("cancel"))
    assert sorted(case.last.stale_timers) == [0, 1]
    assert case.states == "waiting undoing"
    assert not any(s.waiting for s in case.held.steps)


def test_a_cancel_finds_nothing_just_sent() -> None:
    """A reply and a cancel in one batch: the next step is not begun first."""
    case = Case(action(0), action(1, 0))
    case.say(case.reply(0, "done"), TaskMessage("cancel"))
    assert case.asked == [(0, "undo")]
    assert case.states == "undoing waiting"


# -- order -----------------------------------------------------------------------------------------------------------------


def test_undo_goes_in_reverse_order() -> None:
    """A step is undone when all that came after it is settled."""
    case = failing(action(0), action(1, 0), action(2, 1), action(3, 2))
    for idx in (2, 1, 0):
        assert case.asked == [(idx, "undo")]
        case.answer(idx)
    assert case.task.state == "undone"
    assert case.last.release
    assert case.states == "undone undone undone failed"


def test_independent_undos_go_on_when_one_is_stuck() -> None:
    """What came before the stuck one waits, others do not; then error, with what stands listed."""
    case = failing(action(0), action(1, 0), action(2), action(3, 1, 2))
    assert sorted(case.asked) == [(1, "undo"), (2, "undo")]
    case.answer(1, "permanent", error="no such charge")
    assert case.alerts == ["undo_stuck"]
    assert case.task.state == "undoing"
    case.answer(2)
    assert case.states == "done undo_failed undone failed"
    assert (case.task.state, case.alerts) == ("error", ["undo_incomplete"])
    assert "s0 (done), s1 (undo failed)" in case.last.alerts[0].text


def test_the_order_goes_through_skipped_steps() -> None:
    """A skipped step passes the question on: what came after it, came after what was before it too."""
    case = Case(action(0), action(1, 0), action(2, 1), claim=False, state="error", goal="hold")
    for idx, state in enumerate(("done", "skipped", "done")):
        case.held.steps[idx] = replace(case.step(idx), state=state)
    case.held = saga.hold(case.task, case.held.steps)
    case.act("undo")
    assert case.asked == [(2, "undo")]


# -- what is undone ----------------------------------------------------------------------------------------------------------


def test_harmless_effects_are_kept() -> None:
    """undo=mg.NOTHING: kept, done or in doubt, and no undo is asked."""
    case = failing(action(0, undoable=False), action(1, 0))
    assert case.states == "kept failed"
    assert case.task.state == "undone"
    case = Case(action(0, undoable=False), action(1))
    case.silence(0)
    case.answer(1, "permanent")
    assert case.states == "kept failed"


def test_in_doubt_is_undone_like_done_with_result_none() -> None:
    """Undo covers done *or in doubt*; a late result goes with it."""
    case = Case(action(0, threshold=0))
    case.silence(0)
    case.due(0)
    case.say(TaskMessage("late", 0, "do", 1, value=b'"c-1"'))
    assert not case.last.attempts  # the store has noted it when it came
    assert case.step(0).late == b'"c-1"'
    case.silence(0, failures=2)
    request = case.request
    assert (request.doing, request.in_doubt, request.result, request.late) == ("undo", True, None, b'"c-1"')
    assert request.within == 10.0


def test_a_late_result_of_another_round_is_not_offered() -> None:
    """A reply to an attempt of an earlier round names an effect that is gone; it must not be undone a second time."""
    case = Case(action(0))
    case.silence(0)
    case.say(TaskMessage("cancel"))
    case.answer(0)
    assert case.act("resubmit")[0] == "applied"
    case.say(TaskMessage("claim"))
    case.silence(0)
    case.say(TaskMessage("late", 0, "do", 1, value=b'"of round 1"'))
    assert case.step(0).late is None
    case.say(TaskMessage("late", 0, "do", 3, value=b'"of round 2"'))
    assert case.step(0).late == b'"of round 2"'


def test_undo_retries_by_its_own_threshold() -> None:
    """Silence and giving up wait, longer past the threshold, then undo_failed with an alert: attempt + 1 each time."""
    case = failing(action(0, undo_threshold=1, undo_wait=2.0, undo_extended=60.0), action(1, 0))
    assert case.step(0).failures == 0
    case.silence(0)
    assert case.last.timers == {0: 2.0}
    case.due(0)
    assert (case.asked, case.request.attempt) == ([(0, "undo")], 3)
    case.answer(0, "gave_up")
    assert case.last.timers == {0: 60.0}
    case.due(0)
    case.silence(0)
    assert case.states == "undo_failed failed"
    assert case.alerts == ["undo_incomplete"]


def test_refused_undo_means_undone() -> None:
    """Nothing stands: that is what was wanted."""
    case = failing(action(0), action(1, 0))
    case.answer(0, "refused")
    assert case.task.state == "undone"


def test_later_in_an_undo_waits_without_a_failure() -> None:
    """No failure is counted; the undo is asked again when the timer fires."""
    case = failing(action(0), action(1, 0))
    case.answer(0, "later", wait=7.0)
    assert case.last.timers == {0: 7.0}
    assert case.step(0).failures == 0
    case.due(0)
    assert case.last.moves == [Move("s0", "undoing", "undoing", "undo_again")]


def test_an_undo_whose_arguments_are_missing_fails_with_an_alert() -> None:
    """Even then no Scheduler dies."""
    case = Case(action(0), action(1, 0, args=template("", result_of(0, "of"), "")))
    case.done(0, 1)
    case.held.steps[0] = replace(case.step(0), result=b"[]")
    case.act("undo")
    assert case.states == "done undo_failed"
    assert case.task.state == "error"


# -- doubts before an undo -----------------------------------------------------------------------------------------------------


def test_a_doubt_is_probed_before_its_undo() -> None:
    """Happened: undone with the result. Not happened of a fencing probe: spared. Otherwise undone in doubt."""
    for answer, requests, states in (
        ("happened", [(0, "undo")], "undoing"),
        ("not_happened", [(0, "undo")], "undoing"),
    ):
        case = Case(action(0, probe=True))
        case.say(TaskMessage("cancel"))
        case.silence(0)
        assert case.asked == [(0, "probe")]
        case.answer(0, answer, value=b'"c-1"')
        assert (case.asked, case.states) == (requests, states)
        assert case.request.in_doubt is (answer == "not_happened")
    case = Case(action(0, probe=True, fences=True))
    case.say(TaskMessage("cancel"))
    case.silence(0)
    case.answer(0, "not_happened")
    assert (case.states, case.task.state) == ("failed", "undone")


def test_settle_drives_the_action_to_a_definite_answer() -> None:
    """remembers=True: the action is asked again under its key, and only then undone, with its result."""
    case = Case(action(0, remembers=True, wait=5.0))
    case.say(TaskMessage("cancel"))
    case.silence(0)
    assert (case.asked, case.request.round) == ([(0, "do")], 1)
    case.silence(0)
    assert case.last.timers == {0: 5.0}
    case.due(0)
    assert case.asked == [(0, "do")]
    case.answer(0, "done", value=b'"c-1"')
    assert (case.asked, case.request.result) == ([(0, "undo")], b'"c-1"')


def test_settle_without_an_answer_is_stuck() -> None:
    """No definite answer within the threshold: it stays in doubt and counts as stuck."""
    case = Case(action(0, remembers=True, threshold=0), action(1))
    case.say(TaskMessage("cancel"))
    case.silence(0)
    for _ in range(2):
        case.silence(0)
        if case.step(0).waiting:
            case.due(0)
    assert case.states == "in_doubt running"
    assert case.alerts == ["undo_stuck"]
    case.say(TaskMessage("withdrawn", 1, "do", 1))
    assert (case.task.state, case.task.goal) == ("error", "undo")


def test_settle_refused_needs_no_undo() -> None:
    """The definite answer may be that nothing happened."""
    case = Case(action(0, remembers=True))
    case.say(TaskMessage("cancel"))
    case.silence(0)
    case.answer(0, "permanent")
    assert (case.states, case.task.state) == ("failed", "undone")


def test_later_while_settling_waits() -> None:
    """Later is not a failure here either."""
    case = Case(action(0, remembers=True))
    case.say(TaskMessage("cancel"))
    case.silence(0)
    case.answer(0, "later", wait=4.0)
    assert (case.states, case.last.timers) == ("in_doubt", {0: 4.0})


def test_never_in_doubt_is_stuck_while_undoing() -> None:
    """Nobody can tell whether it happened: neither repeated nor undone."""
    case = Case(action(0, never=True))
    case.say(TaskMessage("cancel"))
    case.silence(0)
    assert (case.states, case.task.state) == ("in_doubt", "error")
    assert case.alerts == ["undo_incomplete"]


def test_never_with_a_fencing_probe_is_asked_again() -> None:
    """Only the probe is repeated; its definite answer lets the undo go on."""
    case = Case(action(0, never=True, probe=True, fences=True, wait=5.0))
    case.say(TaskMessage("cancel"))
    case.silence(0)
    case.silence(0)
    assert case.last.timers == {0: 5.0}
    case.due(0)
    assert case.asked == [(0, "probe")]
    case.answer(0, "happened", value=b"1")
    assert case.asked == [(0, "undo")]


def test_a_probe_in_flight_at_the_turn_is_withdrawn_and_asked_again() -> None:
    """Withdrawn: nobody has answered it, so it may be asked once more."""
    case = Case(action(0, probe=True))
    case.silence(0)
    case.say(TaskMessage("cancel"))
    assert case.last.withdraw == [(0, 2)]
    case.say(TaskMessage("withdrawn", 0, "probe", 2))
    assert case.asked == [(0, "probe")]


# -- counts ----------------------------------------------------------------------------------------------------------------------


def test_counts_start_at_0_for_the_undo() -> None:
    """Failures of the action do not count for its undo, in memory and in the store."""
    case = Case(action(0))
    case.silence(0)
    case.due(0)
    case.silence(0)
    case.say(TaskMessage("cancel"))
    assert case.step(0).failures == 0
    assert case.last.failure_counts == {0: (True, 0)}


def test_what_was_sent_before_the_turn_does_not_count_for_the_undo() -> None:
    """The silence of a request that was in flight when the task turned belongs to the direction that is over."""
    case = Case(action(0, remembers=True, threshold=0))
    case.say(TaskMessage("cancel"))
    case.silence(0, failures=5)
    assert case.step(0).failures == 0
    assert case.last.failure_counts == {0: (True, 0)}
    assert not case.step(0).again


def test_a_failure_that_turns_the_task_still_counts_for_the_task() -> None:
    """The step's count starts anew in the same Decision; the task's keeps the failure."""
    case = Case(action(0, threshold=0))
    case.silence(0, failures=1)
    case.due(0)
    case.answer(0, "gave_up")
    assert case.task.state == "undoing"
    assert case.last.failure_counts == {0: (True, 0), -1: (False, 1)}
    assert case.task.failure_count == 1


# -- hold ----------------------------------------------------------------------------------------------------------------------


def test_a_held_task_drains_and_is_handed_over() -> None:
    """Nothing new, what is in flight is withdrawn or awaited; error only with nothing in flight, with an alert."""
    case = Case(action(0), action(1), action(2, 0), on_failure="hold")
    case.answer(1, "permanent", error="no")
    assert (case.task.state, case.task.goal) == ("processing", "hold")
    assert case.last.withdraw == [(0, 1)]
    case.done(0)
    assert case.asked == []
    assert case.states == "done failed waiting"
    assert (case.task.state, case.alerts, case.last.release) == ("error", ["held"], True)
    assert "s1: no" in case.last.alerts[0].text
    assert "s0 (done)" in case.last.alerts[0].text


@pytest.mark.parametrize(
    ("answer", "state"), [("later", "waiting"), ("gave_up", "in_doubt"), ("permanent", "failed")]
)
def test_in_a_held_task_nothing_is_tried_again(answer: str, state: str) -> None:
    """No timer is set when the goal is no longer forward."""
    case = Case(action(0), action(1), on_failure="hold")
    case.answer(1, "permanent")
    case.answer(0, answer)
    assert case.step(0).state == state
    assert case.last.timers == {}
    assert case.task.state == "error"


def test_an_operator_may_undo_around_a_point_of_no_return() -> None:
    """In error only: the step past return is kept, what came before is undone."""
    case = Case(action(0), action(1, 0, no_return=True), action(2, 1))
    case.done(0, 1)
    case.answer(2, "permanent")
    assert case.task.goal == "hold"
    assert case.act("undo") == ("applied", "what was done is being undone")
    assert case.asked == [(0, "undo")]
    assert case.states == "undoing kept failed"
    case.answer(0)
    assert case.task.state == "undone"
    assert case.act("resubmit")[0] == "refused"
