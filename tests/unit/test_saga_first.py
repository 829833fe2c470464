"""A first of several branches: who wins, what becomes of the others, and when the task ends."""

from typing import Any

import pytest
from msgspec.structs import replace

from makegood import saga
from makegood.model.messages import SignalRef, TaskMessage
from makegood.model.plan import Condition, Ref, StepPlan, inside
from makegood.model.states import Move
from tests.unit.saga_case import Case, action, first, result_of, template


def race(*more: StepPlan, **task: Any) -> Case:
    """Return: s0 beside s1 beside s2; the first of them; s4 with its result; then ``more``."""
    return Case(
        action(0), action(1), action(2), first(3, 0, 1, 2),
        action(4, 3, args=template('{"tracking":', result_of(3), "}")), *more, **task,
    )  # fmt: skip


def in_flight(case: Case) -> list[int]:
    """Return the steps with a request in flight."""
    return [step.idx for step in case.held.steps if step.doing is not None]


# -- who wins ----------------------------------------------------------------------------------------------------------


def test_the_first_that_is_done_wins_and_its_result_is_used_at_once() -> None:
    """The next step begins in the same Decision; the losers' requests are withdrawn in it."""
    case = race()
    case.done(1)
    assert case.asked == [(4, "do")]
    assert case.request.args == b'{"tracking":{"of":1}}'
    assert case.last.withdraw == [(0, 1), (2, 1)]
    assert Move("first", "ready", "done", "decided", "", "s1") in case.last.moves
    assert [step.loser for step in case.held.steps] == [True, False, True, False, False]


@pytest.mark.parametrize("order", [(2, 0), (0, 2)])
def test_of_two_in_one_batch_the_earlier_in_the_plan_wins(order: tuple[int, int]) -> None:
    """In whatever order their replies come; the other is undone."""
    case = race()
    case.say(*[case.reply(idx, "done", value=b'{"of":%d}' % idx) for idx in order])
    assert sorted(case.asked) == [(2, "undo"), (4, "do")]
    assert case.step(3).result == b'{"of":0}'


def test_a_branch_in_doubt_does_not_win_yet() -> None:
    """Its step is tried again, and may still win."""
    case = race()
    case.silence(0)
    assert case.step(0).state == "in_doubt"
    case.due(0)
    assert case.asked == [(0, "do")]
    case.done(0)
    assert case.asked == [(4, "do")]


def test_a_branch_of_several_steps_wins_when_all_are_done() -> None:
    """Branches are sequences: what comes after in a branch begins only there."""
    case = Case(action(0), action(1, 0), action(2), first(3, 0, 2, after=(1, 2)), action(4, 3))
    case.done(0)
    assert case.asked == [(1, "do")]
    case.done(1)
    assert case.asked == [(4, "do")]
    assert case.step(3).result == b'{"of":1}'


# -- what becomes of the losers ----------------------------------------------------------------------------------------


def test_what_a_loser_has_not_begun_is_skipped() -> None:
    """Steps that wait are skipped, and those that rest until a moment; their timers are dropped."""
    case = Case(
        action(0), action(1, 0), action(2), action(3), first(4, 0, 2, 3, after=(1, 2, 3)), action(5, 4)
    )
    case.answer(2, "later", wait=60.0)
    case.done(3)
    assert case.last.stale_timers == [2]
    assert case.states == "running skipped skipped done done running"
    assert Move("s2", "ready", "skipped", "branch_lost") in case.last.moves


def test_a_withdrawn_request_of_a_loser_is_skipped() -> None:
    """No agent had it, so nothing has happened."""
    case = race()
    case.done(1)
    case.say(TaskMessage("withdrawn", 0, "do", 1), TaskMessage("withdrawn", 2, "do", 1))
    assert case.states == "skipped done skipped done running"
    case.done(4)
    assert case.task.state == "processed"


def test_a_loser_that_is_done_late_is_undone_while_the_task_goes_forward() -> None:
    """The undo gets its result; the task is processed only after it."""
    case = race()
    case.done(1)
    case.done(0)
    assert case.asked == [(0, "undo")]
    assert case.request.result == b'{"of":0}'
    assert (case.task.state, case.task.goal) == ("processing", "forward")
    case.answer(2, "permanent", error="no such city")
    case.done(4)
    assert not case.last.release
    case.answer(0)
    assert case.task.state == "processed"
    assert case.states == "undone done failed done done"
    assert case.last.release


def test_a_loser_in_doubt_is_undone() -> None:
    """As in the undo of a task: in doubt is undone like done, without a result."""
    case = race()
    case.silence(0)
    case.done(1)
    assert sorted(case.asked) == [(0, "undo"), (4, "do")]
    assert case.last.requests[1].in_doubt


def test_the_undo_of_a_branch_goes_in_reverse_order() -> None:
    """The step that decides does not bar it, the steps of the branch do; what came before the branches stays."""
    case = Case(
        action(0), action(1, 0), action(2, 1), action(3, 2), action(4, 0), first(5, 1, 4, after=(3, 4)),
        action(6, 5),
    )  # fmt: skip
    case.done(0, 1, 2, 4)
    assert case.asked == [(6, "do")]
    case.done(3)
    for idx in (3, 2, 1):
        assert case.asked == [(idx, "undo")]
        case.answer(idx)
    assert case.states == "done undone undone undone done done running"


def test_a_harmless_effect_of_a_loser_is_kept_and_listed() -> None:
    """undo=mg.NOTHING: nobody is asked, and the task ends."""
    case = Case(action(0, undoable=False), action(1), first(2, 0, 1))
    case.done(1)
    case.done(0)
    assert case.states == "kept done done"
    assert case.task.state == "processed"


def test_an_undo_of_a_loser_has_its_retries() -> None:
    """Silence is asked again after the wait, up to the threshold of the undo."""
    case = Case(action(0, undo_threshold=1, undo_wait=7.0), action(1), first(2, 0, 1), action(3, 2))
    case.done(1, 0)
    case.silence(0)
    assert case.last.timers == {0: 7.0}
    case.due(0)
    assert case.asked == [(0, "undo")]


def test_a_loser_that_must_be_definite_is_driven_to_an_answer_first() -> None:
    """A service that remembers its answers is asked the action again, then its undo."""
    case = Case(action(0, remembers=True), action(1), first(2, 0, 1), action(3, 2))
    case.silence(0)
    case.done(1)
    assert (0, "do") in case.asked
    case.done(0)
    assert case.asked == [(0, "undo")]


def test_failures_of_a_request_sent_before_do_not_count_for_the_undo() -> None:
    """Counts start at 0 for the way back."""
    case = Case(action(0), action(1), first(2, 0, 1), action(3, 2))
    case.silence(0)
    case.due(0)
    case.done(1)
    case.silence(0)
    assert case.asked == [(0, "undo")]
    assert case.step(0).failures == 0


# -- stuck undos -------------------------------------------------------------------------------------------------------


def stuck(**task: Any) -> Case:
    """Return a task whose every step is done, but the undo of s0, which has lost, has failed."""
    case = Case(action(0), action(1), first(2, 0, 1), action(3, 2), **task)
    case.done(1, 0)
    case.answer(0, "permanent", error="no such parcel")
    assert case.alerts == ["undo_stuck"]
    assert case.task.state == "processing"
    case.done(3)
    return case


def test_a_task_with_a_stuck_loser_ends_in_error() -> None:
    """Every other step is done: an operator has the list of what is in place."""
    case = stuck()
    assert (case.task.state, case.task.goal) == ("error", "hold")
    assert case.alerts == ["held"]
    assert "the undo of s0 failed: no such parcel" in case.last.alerts[0].text
    assert "in place: s0 (undo failed), s1 (done), s3 (done)" in case.last.alerts[0].text


def test_the_stuck_undo_may_come_last() -> None:
    """The other way round: the last step was done before."""
    case = Case(action(0), action(1), first(2, 0, 1), action(3, 2))
    case.done(1, 0, 3)
    assert case.task.state == "processing"
    case.answer(0, "permanent", error="no such parcel")
    assert (case.task.state, case.alerts) == ("error", ["held"])


def test_an_operator_settles_a_stuck_loser_and_the_task_is_processed() -> None:
    """By hand: the effect was taken back, so the task has what it wanted."""
    case = stuck()
    assert case.act("settle", 0, "undone")[0] == "applied"
    assert case.task.state == "processed"


def test_a_resubmission_tries_a_stuck_undo_again() -> None:
    """The winner keeps its result, and nothing goes forward again."""
    case = stuck()
    assert case.act("resubmit")[0] == "applied"
    case.say(TaskMessage("claim"))
    assert case.asked == [(0, "undo")]
    case.answer(0)
    assert case.task.state == "processed"
    assert [step.round for step in case.held.steps] == [1, 1, 1, 1]


def test_an_operator_undoes_a_task_with_a_stuck_loser() -> None:
    """All of it: the stuck undo is tried again, too."""
    case = stuck()
    assert case.act("undo")[0] == "applied"
    assert sorted(case.asked) == [(0, "undo"), (3, "undo")]
    case.answer(0)
    case.answer(3)
    assert case.asked == [(1, "undo")]
    case.answer(1)
    assert case.task.state == "undone"


def test_nobody_can_tell_of_a_loser_without_keys() -> None:
    """retry=mg.NEVER and in doubt: it cannot be undone, so an operator must look."""
    case = Case(action(0, never=True), action(1), first(2, 0, 1))
    case.done(1)
    case.silence(0)
    assert (case.task.state, case.task.goal) == ("error", "hold")
    assert case.act("settle", 0, "failed")[0] == "applied"
    assert case.task.state == "processed"


# -- branches that fail ------------------------------------------------------------------------------------------------


def test_a_branch_that_fails_loses_and_the_others_go_on() -> None:
    """No alert: another branch may still be done. What the branch did is undone meanwhile."""
    case = Case(action(0), action(1, 0), action(2), first(3, 0, 2, after=(1, 2)), action(4, 3))
    case.done(0)
    case.answer(1, "permanent", error="no van")
    assert case.task.goal == "forward"
    assert case.alerts == []
    assert case.asked == [(0, "undo")]
    case.done(2)
    assert case.asked == [(4, "do")]


def test_if_all_fail_the_step_fails_with_all_causes() -> None:
    """And the task is undone."""
    case = race()
    case.answer(0, "permanent", error="no van\nmore")
    case.answer(2, "refused", error="strike")
    assert case.task.goal == "forward"
    case.answer(1, "permanent", error="no plane")
    assert case.task.state == "undone"
    assert case.task.cause == "first: s0: no van; s2: strike; s1: no plane"
    assert case.step(3).state == "failed"
    assert case.states == "failed failed failed failed waiting"


def test_a_step_that_gives_up_loses_and_is_undone() -> None:
    """Past its threshold it is in doubt, as everywhere; with the last branch there is an alert."""
    case = Case(action(0, threshold=0), action(1, threshold=0), first(2, 0, 1))
    for idx in (0, 1):
        case.silence(idx)
        case.due(idx)
    case.silence(0, failures=2)
    assert (case.asked, case.alerts) == ([(0, "undo")], [])
    case.silence(1, failures=2)
    assert case.alerts == ["step_gave_up"]
    assert (case.task.state, case.asked) == ("undoing", [(1, "undo")])


def test_a_task_that_holds_waits_for_the_undo_of_its_losers() -> None:
    """All have failed and the workflow says hold: what had lost before is undone, the last branch stays as it is."""
    case = Case(
        action(0), action(1, 0), action(2), action(3, 2), first(4, 0, 2, after=(1, 3)), on_failure="hold"
    )
    case.done(0, 2)
    case.answer(1, "permanent", error="no van")
    assert case.asked == [(0, "undo")]
    case.answer(3, "permanent", error="no plane")
    assert (case.task.state, case.task.goal) == ("processing", "hold")
    case.answer(0)
    assert (case.task.state, case.alerts) == ("error", ["held"])
    assert case.states == "undone failed done failed failed"
    assert case.act("resubmit")[0] == "applied"
    case.say(TaskMessage("claim"))
    assert sorted(case.asked) == [(0, "do"), (3, "do")]


def test_a_winner_whose_value_is_missing_loses() -> None:
    """Its result has not what the plan says: the branch has failed, and another one may win."""
    branches = first(2, 0, 1)
    side = template("", result_of(0, "no"), "")
    case = Case(
        action(0),
        action(1),
        StepPlan(2, "first", "first", after=(0, 1), branches=(0, 1), sides=(side, branches.sides[1])),
        action(3, 2),
    )
    case.say(case.reply(0, "done", value=b"{}"), case.reply(1, "done", value=b'"ok"'))
    assert sorted(case.asked) == [(0, "undo"), (3, "do")]
    assert case.step(2).result == b'"ok"'


# -- the task as a whole -----------------------------------------------------------------------------------------------


def test_the_undo_of_the_task_undoes_the_winner_too() -> None:
    """A later step fails: the winner after it, and losers as they come."""
    case = race()
    case.done(1)
    case.done(0)
    case.answer(4, "permanent", error="no such address")
    assert case.task.goal == "undo"
    assert case.asked == [(1, "undo")]
    case.answer(2)
    assert case.asked == [(2, "undo")]
    for idx in (0, 1, 2):
        case.answer(idx)
    assert case.states == "undone undone undone kept failed"
    assert case.task.state == "undone"


def test_a_resubmission_begins_a_new_race() -> None:
    """All branches have a new round, and any of them may win."""
    case = race()
    case.done(1)
    case.done(0)
    case.answer(2, "permanent")
    case.answer(0)
    case.answer(4, "permanent")
    case.answer(1)
    assert case.task.state == "undone"
    assert case.act("resubmit")[0] == "applied"
    assert not any(step.loser for step in case.held.steps)
    case.say(TaskMessage("claim"))
    assert sorted(case.asked) == [(0, "do"), (1, "do"), (2, "do")]
    case.done(2)
    assert case.step(3).result == b'{"of":2}'


def test_no_deadline_applies_to_the_undo_of_losers() -> None:
    """Nothing else is left: the winner's effect is not taken back as a carrier is slow to cancel."""
    case = race(within=5.0)
    case.done(1, 4, 0)
    case.say(TaskMessage("withdrawn", 2, "do", 1))
    case.say(TaskMessage("task_expired"))
    assert (case.task.state, case.task.goal) == ("processing", "forward")
    case.answer(0)
    assert case.task.state == "processed"


def test_the_deadline_applies_while_the_race_runs() -> None:
    """Then everything is undone."""
    case = race()
    case.done(1)
    case.say(TaskMessage("task_expired"))
    assert case.task.state == "undoing"


def test_a_cancel_while_a_loser_is_undone() -> None:
    """Its undo goes on, and is not asked a second time."""
    case = race()
    case.done(1)
    case.done(0)
    case.say(TaskMessage("cancel"))
    assert [idx for idx, _ in case.asked] == []
    case.say(TaskMessage("withdrawn", 4, "do", 1), TaskMessage("withdrawn", 2, "do", 1))
    assert case.asked == [(1, "undo")]
    case.answer(0)
    case.answer(1)
    assert case.task.state == "undone"


def test_a_wait_for_an_answer_may_win_over_a_sleep() -> None:
    """The first of a signal and a moment; the other is skipped."""
    listen = StepPlan(0, "wait_for", "approval", action="approval")
    nap = StepPlan(1, "sleep", "sleep", args=template("60.0"))
    case = Case(listen, nap, first(2, 0, 1), action(3, 2))
    case.due(1)
    assert case.states == "skipped done done running"
    case = Case(listen, nap, first(2, 0, 1), action(3, 2))
    case.say(TaskMessage("signal", value=b"true", signal=SignalRef("approval", "1")))
    assert case.states == "done skipped done running"
    assert case.last.stale_timers == [1]
    assert case.step(2).result == b"true"


# -- a Scheduler that dies ---------------------------------------------------------------------------------------------


def test_a_take_over_goes_on_with_the_undo_of_losers() -> None:
    """Whatever the last Scheduler left: the next one asks what is to be asked."""
    case = Case(action(0), action(1, 0), action(2), first(3, 0, 2, after=(1, 2)), action(4, 3))
    case.done(0, 2)
    case.say(case.reply(1, "done"), TaskMessage("dead"))
    assert case.task.state == "pending"
    case.say(TaskMessage("claim"))
    assert case.asked == [(1, "undo")]


def test_a_lost_withdrawal_of_a_loser_is_known_to_have_done_nothing() -> None:
    """Its row is gone and nobody was told: only a request that nobody had taken is withdrawn."""
    case = race()
    case.done(1)
    rows = [replace(step, doing=None) if step.idx in (0, 2) else step for step in case.held.steps]
    case.held = saga.hold(case.task, rows)
    assert [m.kind for m in saga.repair(case.held, [])] == ["withdrawn", "withdrawn"]


def test_poison_stops_the_undo_of_losers_too() -> None:
    """Nothing new is asked; the task goes to error with all that is in place."""
    case = race()
    case.done(1)
    case.say(TaskMessage("poison"))
    case.done(0)
    case.say(TaskMessage("withdrawn", 2, "do", 1), TaskMessage("withdrawn", 4, "do", 1))
    assert (case.task.state, case.asked) == ("error", [])
    assert case.act("resubmit")[0] == "applied"
    case.say(TaskMessage("claim"))
    assert sorted(case.asked) == [(0, "undo"), (4, "do")]


# -- nested ------------------------------------------------------------------------------------------------------------


def nested() -> Case:
    """Return: the first of (the first of s0 and s1) and s3."""
    outer = StepPlan(
        4, "first", "outer", after=(2, 3), branches=(0, 3),
        sides=(template("", result_of(2), ""), template("", result_of(3), "")),
    )  # fmt: skip
    return Case(action(0), action(1), first(2, 0, 1), action(3), outer, action(5, 4))


def test_a_first_in_a_branch_may_win() -> None:
    """The inner one is decided, so its branch is done."""
    case = nested()
    case.done(1)
    assert case.asked == [(5, "do")]
    assert case.step(4).result == b'{"of":1}'
    assert [step.loser for step in case.held.steps] == [True, False, False, True, False, False]


def test_a_first_in_a_branch_may_lose_and_its_winner_is_undone() -> None:
    """The branch had a winner, and more to do."""
    outer = StepPlan(
        5, "first", "outer", after=(3, 4), branches=(0, 4),
        sides=(template("", result_of(3), ""), template("", result_of(4), "")),
    )  # fmt: skip
    case = Case(action(0), action(1), first(2, 0, 1), action(3, 2), action(4), outer)
    case.done(1)
    assert case.asked == [(3, "do")]
    case.done(4)
    case.say(TaskMessage("withdrawn", 3, "do", 1), TaskMessage("withdrawn", 0, "do", 1))
    assert case.asked == [(1, "undo")]
    case.answer(1)
    assert case.states == "skipped undone kept skipped done done"
    assert case.task.state == "processed"


def test_if_all_of_an_inner_one_fail_its_branch_loses() -> None:
    """And the outer one goes on; if that fails too, its causes have those of the inner one."""
    case = nested()
    case.answer(0, "permanent", error="a")
    case.answer(1, "permanent", error="b")
    assert case.task.goal == "forward"
    case.answer(3, "permanent", error="c")
    assert case.task.cause == "outer: first: s0: a; s1: b; s3: c"


# -- when and each -----------------------------------------------------------------------------------------------------


def test_items_of_a_branch_belong_to_it() -> None:
    """What an each has made is undone with its branch."""
    body = (action(inside(0)),)
    case = Case(
        StepPlan(0, "each", "each", args=template("[1,2]"), body=body),
        StepPlan(1, "gather", "gather", after=(0,), of=0),
        action(2),
        first(3, 0, 2, after=(1, 2)),
        action(4, 3),
    )
    assert sorted(case.asked) == [(2, "do"), (5, "do"), (6, "do")]
    case.done(5, 2)
    assert case.states == "kept skipped done done running undoing running" or case.asked
    assert (5, "undo") in case.asked
    assert case.step(6).loser
    case.say(TaskMessage("withdrawn", 6, "do", 1))
    case.answer(5)
    case.done(4)
    assert case.task.state == "processed"
    assert case.states == "kept skipped done done done undone skipped"


def test_a_first_in_an_item() -> None:
    """Each item has a winner of its own."""
    body = (
        action(inside(0)),
        action(inside(1)),
        StepPlan(
            inside(2), "first", "first", after=(inside(0), inside(1)), branches=(inside(0), inside(1)),
            sides=(template("", Ref("step", inside(0)), ""), template("", Ref("step", inside(1)), "")),
        ),
    )  # fmt: skip
    case = Case(
        StepPlan(0, "each", "each", args=template("[1,2]"), body=body),
        StepPlan(1, "gather", "gather", after=(0,), of=0, sides=(template("", Ref("step", inside(2)), ""),)),
    )
    assert [step.plan.branches for step in case.held.steps if step.plan.kind == "first"] == [(2, 3), (5, 6)]
    case.done(2, 6)
    case.say(TaskMessage("withdrawn", 3, "do", 1), TaskMessage("withdrawn", 5, "do", 1))
    assert case.task.state == "processed"
    assert case.step(1).result == b'[{"of":2},{"of":6}]'


def test_a_first_of_a_side_that_is_not_taken_is_skipped() -> None:
    """With its branches."""
    guards = ((0, True),)
    case = Case(
        StepPlan(0, "when", "when", condition=Condition("true", template("false"))),
        action(1, 0, guards=guards),
        action(2, 0, guards=guards),
        first(3, 1, 2, guards=guards),
        StepPlan(4, "merge", "merge", after=(3,), of=0),
    )
    assert case.states == "done skipped skipped skipped done"
    assert case.task.state == "processed"


def test_a_first_of_a_side_that_is_taken() -> None:
    """It waits for its branches, not for its guard alone."""
    guards = ((0, True),)
    case = Case(
        StepPlan(0, "when", "when", condition=Condition("true", template("true"))),
        action(1, 0, guards=guards),
        action(2, 0, guards=guards),
        first(3, 1, 2, guards=guards),
        StepPlan(4, "merge", "merge", after=(3,), of=0, sides=(template("", result_of(3), ""),)),
    )
    assert case.states == "done running running waiting waiting"
    case.done(2)
    assert case.step(4).result == b'{"of":2}'
    assert in_flight(case) == [1]


def test_a_branch_that_begins_with_a_loser_of_its_own_may_still_be_done() -> None:
    """What an inner race has decided against is no end of its branch."""
    outer = StepPlan(
        5, "first", "outer", after=(3, 4), branches=(0, 4),
        sides=(template("", result_of(3), ""), template("", result_of(4), "")),
    )  # fmt: skip
    case = Case(action(0), action(1), first(2, 0, 1), action(3, 2), action(4), outer)
    case.answer(0, "permanent", error="a")
    case.answer(4, "permanent", error="c")
    assert case.task.goal == "forward"
    case.done(1, 3)
    assert case.task.state == "processed"
    assert case.states == "failed done done done failed done"


def test_only_an_operator_has_a_stuck_undo_tried_again() -> None:
    """A deadline that passes turns the task, and leaves it stuck: its key may be too old by now."""
    case = race()
    case.done(1)
    case.done(0)
    case.answer(0, "permanent", error="no such parcel")
    case.say(TaskMessage("task_expired"))
    assert case.asked == []
    case.say(TaskMessage("withdrawn", 2, "do", 1), TaskMessage("withdrawn", 4, "do", 1))
    assert case.asked == [(1, "undo")]
    case.answer(1)
    assert (case.task.state, case.alerts) == ("error", ["undo_incomplete"])
    assert case.act("undo")[0] == "applied"
    assert case.asked == [(0, "undo")]
