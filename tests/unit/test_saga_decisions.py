"""Folding messages: what comes before what, claims, giving back, poison, and what the rules cannot decide."""

import pytest

from makegood import saga
from makegood.errors import IllegalTransitionError
from makegood.model.messages import Act, Alert, TaskMessage
from makegood.saga import decisions
from tests.unit.saga_case import ADA, Case, action, failing


def test_seqs_of_all_messages_are_used_up() -> None:
    """Whatever became of them; those handed over in memory have none."""
    case = Case(action(0))
    case.say(
        TaskMessage("late", 0, "do", 9, seq=4),
        TaskMessage("done", 0, "do", 1),
        TaskMessage("retry", 0, seq=6),
    )
    assert case.last.seqs == [4, 6]


@pytest.mark.parametrize(
    "message",
    [
        TaskMessage("done", 0, "do", 0),
        TaskMessage("done", 0, "do", 2),
        TaskMessage("done", 0, "undo", 1),
        TaskMessage("happened", 0, "do", 1),
        TaskMessage("done", 9, "do", 1),
        TaskMessage("withdrawn", 0, "probe", 1),
        TaskMessage("expired", 0, "do", 7),
        TaskMessage("retry", 0),
        TaskMessage("retry", 9),
        TaskMessage("late", 9, "do", 1, value=b"1"),
    ],
)
def test_what_is_late_superseded_or_unknown_changes_nothing(message: TaskMessage) -> None:
    """No move, no request, no count; replies are kept for the history."""
    case = Case(action(0))
    decision = case.say(message)
    assert not decision.steps
    assert not decision.moves
    assert not decision.used_requests
    assert any(end.late for end in decision.attempts) == (message.kind in ("done", "happened"))


def test_a_task_without_a_limit_is_never_overdue() -> None:
    """Nor is one whose time begins only now: what was left of an earlier submission does not count."""
    case = Case(action(0), within=None)
    case.say(TaskMessage("task_expired"))
    assert case.task.state == "processing"
    case = Case(action(0), claim=False)
    case.say(TaskMessage("claim"), TaskMessage("task_expired"))
    assert case.asked == [(0, "do")]


def test_a_reply_counts_once() -> None:
    """The same reply twice in a batch uses up one request row."""
    case = Case(action(0), action(1, 0))
    reply = case.reply(0, "done")
    decision = case.say(reply, reply)
    assert decision.used_requests == [(0, 1)]
    assert [(end.kind, end.late) for end in decision.attempts] == [(reply.kind, True)]


def test_a_verdict_makes_the_reply_in_the_same_batch_late() -> None:
    """The request was judged before the reply could be committed: judged wins, the value is kept for the undo."""
    case = Case(action(0))
    decision = case.say(case.reply(0, "done", value=b'"c-1"'), case.reply(0, "expired", failures=1))
    assert case.states == "in_doubt"
    assert case.step(0).late == b'"c-1"'
    assert decision.used_requests == []


def test_a_reply_before_a_cancel_is_decided_before_it() -> None:
    """In the order in which they came: the task has ended when the cancel comes."""
    case = Case(action(0))
    case.say(case.reply(0, "done"), TaskMessage("cancel", act=ADA))
    assert case.task.state == "processed"
    assert case.last.answers[0].outcome.startswith("the task had ended: processed; ")
    case = Case(action(0))
    case.say(TaskMessage("cancel", act=ADA), case.reply(0, "done"))
    assert case.asked == [(0, "undo")]
    assert case.last.withdraw == []


def test_a_cancel_of_a_pending_task_needs_no_claim() -> None:
    """Nothing was begun: it ends undone without having been processed."""
    case = Case(action(0), claim=False)
    case.say(TaskMessage("claim"), TaskMessage("cancel", act=ADA))
    assert [*case.last.moves[0]][:3] == ["task", "pending", "undone"]
    assert case.last.release


def test_complete_by_may_have_passed_before_the_claim() -> None:
    """A take-over finds the task overdue: claimed and turned in one Decision, nothing is sent."""
    case = Case(action(0), claim=False, timed=True)
    case.say(TaskMessage("claim"), TaskMessage("task_expired"))
    assert [tuple(move)[:3] for move in case.last.moves] == [
        ("task", "pending", "processing"),
        ("task", "processing", "undoing"),
        ("task", "undoing", "undone"),
    ]


def test_a_claim_goes_on_where_the_last_scheduler_stopped() -> None:
    """Goal undo is claimed into undoing, goal hold drains, and everything that is due is found."""
    case = failing(action(0), action(1, 0))
    case.answer(0, "later", wait=1.0)
    case.say(TaskMessage("dead"))
    assert (case.task.state, case.task.goal, case.last.release) == ("pending", "undo", True)
    case.say(TaskMessage("claim"))
    assert case.task.state == "undoing"
    case.due(0)
    assert case.asked == [(0, "undo")]


def test_giving_back_dispatches_nothing_and_loses_nothing() -> None:
    """A reply and ``dead`` in one batch: the next Scheduler asks for the next step."""
    case = Case(action(0), action(1, 0))
    case.say(case.reply(0, "done"), TaskMessage("dead"))
    assert (case.asked, case.states, case.task.state) == ([], "done waiting", "pending")
    case.say(TaskMessage("claim"))
    assert case.asked == [(1, "do")]


def test_giving_back_a_timer_that_fired() -> None:
    """The timer's row is gone; what it was for is found again by the next claim."""
    case = Case(action(0), action(1))
    case.answer(0, "later", wait=1.0)
    case.silence(1)
    case.say(TaskMessage("retry", 0), TaskMessage("retry", 1), TaskMessage("dead"))
    case.say(TaskMessage("claim"))
    assert case.asked == [(0, "do")]
    assert case.last.timers == {1: 5.0}


def test_an_answered_probe_is_not_taken_for_a_withdrawn_one() -> None:
    """The answer and ``dead`` in one batch while undoing: the next Scheduler goes on from the answer."""
    case = Case(action(0, probe=True))
    case.say(TaskMessage("cancel"))
    case.silence(0)
    case.say(case.reply(0, "not_happened"), TaskMessage("dead"))
    assert case.last.timers == {0: 0.0}
    assert saga.repair(case.held, []) == []
    case.say(TaskMessage("claim"), TaskMessage("retry", 0))
    assert case.asked == [(0, "undo")]


def test_a_timer_of_before_does_not_fire_one_just_set() -> None:
    """A retry that came with the Later that sets a new timer is about an earlier one."""
    case = Case(action(0))
    case.say(case.reply(0, "later", wait=9.0), TaskMessage("retry", 0))
    assert (case.states, case.last.timers, case.asked) == ("ready", {0: 9.0}, [])


def test_a_task_that_ended_is_not_given_back() -> None:
    """Ended is ended."""
    case = Case(action(0))
    case.say(case.reply(0, "done"), TaskMessage("dead"))
    assert case.task.state == "processed"


def test_a_reply_for_a_task_that_nobody_claimed_is_a_defect() -> None:
    """Only a Scheduler that holds the task may advance it."""
    case = Case(action(0))
    reply = case.reply(0, "done")
    case.say(TaskMessage("dead"))
    with pytest.raises(IllegalTransitionError, match="nobody has claimed"):
        case.say(reply)


def test_a_resubmitted_task_is_claimed_in_a_decision_of_its_own() -> None:
    """It draws a new place in the queue."""
    case = failing(action(0))
    case.say(TaskMessage("claim"), TaskMessage("resubmit", act=ADA))
    assert (case.task.state, case.last.release) == ("pending", True)
    assert case.asked == []


def test_each_act_is_answered_with_the_state_after_all() -> None:
    """Several acts in one batch: one answer each, in order."""
    case = Case(action(0), claim=False)
    case.say(
        TaskMessage("claim"),
        TaskMessage("cancel", act=ADA),
        TaskMessage("undo", act=Act("2")),
        TaskMessage("cancel", act=Act("3")),
    )
    assert [(a.act.id, a.verdict, a.state) for a in case.last.answers] == [
        ("act-1", "applied", "undone"),
        ("2", "noop", "undone"),
        ("3", "refused", "undone"),
    ]


# -- poison ------------------------------------------------------------------------------------------------------------


def test_poison_goes_to_error_once_drained() -> None:
    """Nothing is begun; what is in flight is awaited; then error, alerted. Acts wait until then."""
    case = Case(action(0), action(1, 0), action(2), lost=3)
    case.done(0)
    case.say(TaskMessage("dead"))
    case.say(TaskMessage("claim"), TaskMessage("poison"), TaskMessage("cancel", act=ADA))
    assert case.alerts == ["poison"]
    assert (case.task.state, case.task.goal) == ("processing", "hold")
    assert case.last.answers[0].verdict == "refused"
    assert "3 times in a row" in case.task.cause
    assert sorted(case.last.withdraw) == [(1, 1), (2, 1)]
    case.done(1)
    case.say(TaskMessage("withdrawn", 2, "do", 1))
    assert (case.task.state, case.alerts) == ("error", ["held"])
    case.act("resubmit")
    assert case.task.lost == 0


def test_poison_at_once() -> None:
    """With nothing in flight it is in error in the same Decision."""
    case = Case(action(0), claim=False, lost=3)
    case.say(TaskMessage("claim"), TaskMessage("poison"))
    assert (case.task.state, case.alerts, case.last.release) == ("error", ["poison"], True)
    assert "nothing is in place" in case.last.alerts[0].text


def test_poison_while_undoing() -> None:
    """No undo is begun, one in flight is awaited, one that waits has failed; an operator can undo again."""
    case = failing(action(0), action(1), action(2, 0), action(3, 1, 2))
    case.answer(1, "later", wait=5.0)
    case.say(TaskMessage("dead"))
    case.say(TaskMessage("claim"), TaskMessage("poison"))
    assert case.states == "done undo_failed undoing failed"
    assert case.last.stale_timers == [1]
    case.answer(2, "gave_up")
    assert case.states == "done undo_failed undo_failed failed"
    assert case.task.state == "error"
    case.act("undo")
    assert sorted(case.asked) == [(1, "undo"), (2, "undo")]


def test_a_scheduler_that_lives_has_lost_none_in_a_row() -> None:
    """The count of lost Schedulers begins anew when one has lived to decide on a reply."""
    case = Case(action(0), lost=2)
    assert saga.without_losses(case.task).lost == 0


# -- what the rules cannot decide ------------------------------------------------------------------------------------------


GUILTY = Alert("unreadable", text="the rules could not decide: a defect")


def test_put_to_error_uses_up_every_message_and_takes_it_for_silence() -> None:
    """The same messages never come again; what they were about is in doubt, the task drains to error."""
    case = Case(action(0), action(1), action(2, 0))
    messages = [
        case.reply(0, "done", seq=3),
        TaskMessage("cancel", act=ADA, seq=4),
        TaskMessage("late", 9, seq=5),
    ]
    decision = decisions.put_to_error(case.held, messages, GUILTY)
    saga.apply(case.held, decision)
    assert decision.seqs == [3, 4, 5]
    assert decision.used_requests == [(0, 1)]
    assert decision.withdraw == [(1, 1)]
    assert decision.answers[0].verdict == "refused"
    assert [a.kind for a in decision.alerts] == ["unreadable"]
    assert case.states == "in_doubt running waiting"
    assert (case.task.state, case.task.goal) == ("processing", "hold")
    case.done(1)
    assert case.task.state == "error"


def test_put_to_error_of_a_pending_task() -> None:
    """Claimed, stopped, in error: lawful moves all the way."""
    case = Case(action(0), claim=False)
    decision = saga.put_to_error(case.held, [TaskMessage("claim")], GUILTY)
    assert [move.after for move in decision.moves] == ["processing", "error"]
    assert decision.release
    assert decision.task.cause == GUILTY.text


def test_put_to_error_while_undoing() -> None:
    """The undo it was about has failed for now; an operator tries again."""
    case = failing(action(0), action(1, 0))
    decision = saga.put_to_error(case.held, [case.reply(0, "done")], GUILTY)
    assert decision.steps[0].state == "undo_failed"
    assert decision.task.state == "error"


def test_put_to_error_at_rest() -> None:
    """An act that cannot be decided is refused; the task stays as it is."""
    case = Case(action(0))
    case.done(0)
    decision = saga.put_to_error(case.held, [TaskMessage("undo", act=ADA, seq=1)], GUILTY)
    assert (decision.task.state, decision.moves, decision.release) == ("processed", [], True)
    assert decision.answers[0].verdict == "refused"
