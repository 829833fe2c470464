"""Letting go: when a task that only waits goes to sleep, and how it continues."""

import math

import pytest

from makegood import saga
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan
from tests.unit.saga_case import ADA, Case, action

LINGER = 10.0


def say(case: Case, *messages: TaskMessage, due: saga.Due = saga.NOTHING_DUE) -> Decision:
    """Decide and commit as a Scheduler that lets tasks go. ``due``: the timers that it knows."""
    case.last = decision = saga.decide(case.held, messages, saga.At(linger=LINGER), due)
    saga.apply(case.held, decision)
    return decision


def later(case: Case, idx: int, wait: float, due: saga.Due = saga.NOTHING_DUE) -> Decision:
    """Let a step's service ask to come back later."""
    return say(case, case.reply(idx, "later", wait=wait), due=due)


def test_a_task_that_only_waits_for_longer_is_let_go() -> None:
    case = Case(action(0))
    decision = later(case, 0, 60.0)
    assert (case.task.state, decision.wakes, decision.release) == ("sleeping", 60.0, True)
    assert decision.moves[-1][:] == ("task", "processing", "sleeping", "suspended, it only waits")
    assert decision.timers == {0: 60.0}


@pytest.mark.parametrize("wait", [0.0, 1.0, LINGER])
def test_a_short_wait_is_spent_in_memory(wait: float) -> None:
    case = Case(action(0))
    decision = later(case, 0, wait)
    assert (case.task.state, decision.wakes, decision.release) == ("processing", None, False)


def test_it_is_not_let_go_while_something_of_it_is_in_flight() -> None:
    case = Case(action(0), action(1))
    assert later(case, 0, 60.0).wakes is None
    decision = say(case, case.reply(1, "done"), due={0: 59.0})
    assert (case.task.state, decision.wakes) == ("sleeping", 59.0)


def test_the_last_reply_beside_a_wait_lets_it_go_by_the_short_way_too() -> None:
    """A plain reply takes the fast path, unless a timer of the task is known."""
    case = Case(action(0), action(1))
    later(case, 0, 60.0)
    assert saga.decide(case.held, [case.reply(1, "done")]).wakes is None
    assert saga.decide(case.held, [case.reply(1, "done")], saga.At(linger=LINGER), {0: 50.0}).wakes == 50.0


def test_the_last_reply_beside_a_wait_for_a_signal_lets_it_go() -> None:
    """Though the fast path would take the reply: what follows in the task is only known by the long way."""
    approval = StepPlan(1, "wait_for", "approval", action="approval")
    case = Case(action(0), approval, signals=(("approval", ""),))
    assert say(case, case.reply(0, "done")).wakes == math.inf
    assert case.task.state == "sleeping"


def test_it_wakes_with_the_first_of_its_timers() -> None:
    case = Case(action(0), action(1), action(2))
    later(case, 0, 300.0)
    later(case, 1, 60.0, {0: 290.0})
    assert later(case, 2, 200.0, {0: 280.0, 1: 50.0}).wakes == 50.0


def test_a_timer_that_nobody_knows_of_is_taken_for_due() -> None:
    """Its message is in memory then: letting the task go would leave it there."""
    case = Case(action(0), action(1))
    later(case, 0, 60.0)
    assert later(case, 1, 60.0).wakes is None


def test_it_is_not_let_go_to_dispatch_what_has_become_free() -> None:
    case = Case(action(0), action(1), action(2, 1))
    later(case, 0, 60.0)
    decision = say(case, case.reply(1, "done"), due={0: 50.0})
    assert ([r.idx for r in decision.requests], decision.wakes) == ([2], None)


def test_a_wait_after_silences_is_slept_through() -> None:
    case = Case(action(0, threshold=1, extended=600.0))
    decision = say(case, case.reply(0, "expired", failures=2))
    assert (case.states, case.task.state, decision.wakes) == ("in_doubt", "sleeping", 600.0)


def test_a_claim_continues_at_the_moment() -> None:
    case = Case(action(0), action(1, 0))
    later(case, 0, 60.0)
    decision = say(case, TaskMessage("claim"), TaskMessage("retry", 0))
    assert [move[:3] for move in decision.moves if move.of_task] == [("task", "sleeping", "processing")]
    assert (case.states, decision.stale_timers) == ("running waiting", [0])


def test_claimed_for_a_message_that_changes_nothing_it_sleeps_on() -> None:
    case = Case(action(0))
    later(case, 0, 60.0)
    decision = say(case, TaskMessage("claim"), TaskMessage("resubmit", act=ADA), due={0: 30.0})
    assert [answer.verdict for answer in decision.answers] == ["refused"]
    assert (case.task.state, decision.wakes, decision.release) == ("sleeping", 30.0, True)


def test_cancelled_with_nothing_in_place_it_ends_undone() -> None:
    case = Case(action(0))
    later(case, 0, 60.0)
    decision = say(case, TaskMessage("claim"), TaskMessage("cancel", act=ADA), due={0: 30.0})
    assert (case.task.state, decision.wakes, decision.stale_timers) == ("undone", None, [0])


def test_cancelled_it_turns() -> None:
    case = Case(action(0), action(1, 0))
    case.done(0)
    later(case, 1, 60.0)
    decision = say(case, TaskMessage("claim"), TaskMessage("cancel", act=ADA), due={1: 30.0})
    assert (case.task.state, case.states, [r.doing for r in decision.requests]) == (
        "undoing",
        "undoing waiting",
        ["undo"],
    )


def test_its_deadline_turns_it() -> None:
    case = Case(action(0), action(1, 0))
    case.done(0)
    later(case, 1, 60.0)
    say(case, TaskMessage("claim"), TaskMessage("task_expired"), due={1: 30.0})
    assert (case.task.state, case.task.cause, case.states) == (
        "undoing",
        "the deadline passed",
        "undoing waiting",
    )


def test_an_undo_that_waits_is_let_go_and_continues_as_an_undo() -> None:
    case = Case(action(0), action(1, 0))
    case.done(0)
    case.answer(1, "refused")
    decision = say(case, case.reply(0, "later", wait=60.0))
    assert (case.task.state, case.task.goal, decision.wakes) == ("sleeping", "undo", 60.0)
    decision = say(case, TaskMessage("claim"), TaskMessage("retry", 0))
    assert (case.task.state, [r.doing for r in decision.requests]) == ("undoing", ["undo"])


def test_a_scheduler_that_ends_lets_it_sleep_whatever_is_left() -> None:
    case = Case(action(0))
    later(case, 0, 5.0)
    decision = say(case, TaskMessage("dead"), due={0: 3.0})
    assert (case.task.state, decision.wakes, decision.release) == ("sleeping", 3.0, True)


def test_a_scheduler_that_ends_releases_what_does_more_than_wait() -> None:
    case = Case(action(0), action(1))
    later(case, 0, 60.0)
    decision = say(case, TaskMessage("dead"), due={0: 50.0})
    assert (case.task.state, decision.wakes, decision.release) == ("pending", None, True)


def test_a_wake_does_not_end_the_wait_of_a_task_that_has_begun() -> None:
    case = Case(action(0))
    later(case, 0, 60.0)
    decision = say(case, TaskMessage("claim"), TaskMessage("wake", act=ADA), due={0: 30.0})
    assert [answer.verdict for answer in decision.answers] == ["noop"]
    assert (case.task.state, decision.wakes) == ("sleeping", 30.0)


def test_without_a_linger_nothing_is_let_go() -> None:
    case = Case(action(0))
    decision = saga.decide(case.held, [case.reply(0, "later", wait=1e6)])
    assert decision.wakes is None
