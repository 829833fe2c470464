"""Signals in the rules: which signal ends which wait, what is kept, and what a timeout does."""

from collections.abc import Sequence
from typing import Any

import pytest

from makegood import saga
from makegood.model.messages import SignalRef, TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.shape import KeptSignal
from makegood.saga.first_decision import opening_decision
from tests.unit.saga_case import ADA, Case, action, result_of, template

YES = b'{"yes":true}'


def wait(idx: int, *after: int, timeout: float | None = None, otherwise: Template | None = None) -> StepPlan:
    """Return a wait for the signal "approval" that comes after other steps."""
    return StepPlan(
        idx,
        "wait_for",
        "approval" if idx == 1 else f"approval-{idx}",
        action="approval",
        args=None if timeout is None else template(repr(timeout)),
        sides=() if otherwise is None else (otherwise,),
        after=after,
    )


def signal(
    id_: str = "1", value: bytes | None = YES, *, name: str = "approval", step: str = ""
) -> TaskMessage:
    """Return a signal's message from an inbox."""
    return TaskMessage("signal", value=value, signal=SignalRef(name, id_, step), seq=int(id_))


def between(timeout: float | None = 60.0, otherwise: Template | None = None, **task: Any) -> Case:
    """Return a task of an action, a wait and an action whose wait has just begun."""
    case = Case(action(0), wait(1, 0, timeout=timeout, otherwise=otherwise), action(2, 1), **task)
    case.now = 1000.0
    case.done(0)
    return case


def ids(case: Case) -> Sequence[str]:
    """Return the ids of the signals that a task keeps."""
    return [each.id for each in case.held.signals]


def test_a_wait_holds_a_timer_only_if_it_has_a_timeout() -> None:
    case = between()
    assert (case.states, dict(case.last.timers)) == ("done ready waiting", {1: 60.0})
    case = between(None)
    assert (case.states, dict(case.last.timers), case.step(1).waiting) == ("done ready waiting", {}, False)


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_signal_ends_a_wait_with_its_value_and_the_next_step_begins_in_the_same_decision(
    timeout: float | None,
) -> None:
    case = between(timeout)
    case.say(signal())
    assert (case.states, case.asked, case.step(1).result) == ("done done running", [(2, "do")], YES)
    assert (case.last.used_signals, case.last.kept_signals) == ([("approval", "1", 1)], [])
    assert [*case.last.stale_timers] == ([] if timeout is None else [1])
    assert (case.last.moves[0].why, [*case.last.seqs]) == ("its signal has come: 1", [1])


@pytest.mark.parametrize("idx", [-1, 1])
def test_a_wake_names_the_signal_for_which_it_waits_and_ends_no_wait(idx: int) -> None:
    case = between()
    verdict, text = case.act("wake", idx)
    assert (verdict, case.states) == ("noop", "done ready waiting")
    assert text == "it waits for the signal approval, not for a moment: send it (`makegood task signal`)"


def test_a_signal_without_a_value_is_null() -> None:
    case = between()
    case.say(signal(value=None))
    assert case.step(1).result == b"null"


def test_an_early_signal_is_kept_and_ends_the_wait_at_once_without_a_timer() -> None:
    case = Case(action(0), wait(1, 0, timeout=60.0), action(2, 1))
    case.say(signal())
    assert (case.states, ids(case)) == ("running waiting waiting", ["1"])
    assert case.last.kept_signals == [KeptSignal("approval", "1", "", YES)]
    case.done(0)
    assert (case.states, ids(case), dict(case.last.timers)) == ("done done running", [], {})
    assert (case.last.used_signals, case.last.kept_signals) == ([("approval", "1", 1)], [])


def test_a_signal_in_the_batch_of_the_reply_before_it_is_never_kept() -> None:
    for order in (slice(None), slice(None, None, -1)):
        case = Case(action(0), wait(1, 0, timeout=60.0), action(2, 1))
        case.say(*[case.reply(0, "done"), signal()][order])
        assert (case.states, ids(case), case.last.kept_signals) == ("done done running", [], [])


def test_a_signal_that_comes_before_the_claim_is_used() -> None:
    case = Case(wait(0), action(1, 0), claim=False)
    case.say(TaskMessage("claim"), signal())
    assert (case.states, case.last.used_signals) == ("done running", [("approval", "1", 0)])


def test_a_signal_that_comes_between_two_schedulers_ends_the_wait_with_the_claim() -> None:
    for timeout in (None, 60.0):
        case = between(timeout)
        case.say(TaskMessage("dead"))
        case.say(TaskMessage("claim"), signal())
        assert (case.states, ids(case)) == ("done done running", [])


def test_one_signal_ends_one_wait_and_the_oldest_is_used_first() -> None:
    case = Case(wait(0), wait(1, 0), wait(2, 1))
    case.say(signal("1"), signal("2"))
    assert (case.states, case.last.used_signals) == (
        "done done ready",
        [("approval", "1", 0), ("approval", "2", 1)],
    )
    case.say(signal("3"))
    assert case.task.state == "processed"


def test_of_two_ready_waits_the_first_one_gets_it_and_a_step_may_be_named() -> None:
    case = Case(wait(0), wait(2 - 1), wait(2))
    case.say(signal("1"))
    assert case.states == "done ready ready"
    case.say(signal("2", step="approval-2"))
    assert case.states == "done ready done"
    case.say(signal("3", step="approval-2"), signal("4", name="refusal"))
    assert (case.states, ids(case)) == ("done ready done", ["3", "4"])


def test_a_timeout_without_otherwise_fails_the_task() -> None:
    case = between()
    case.due(1)
    assert (case.states, case.task.goal) == ("undoing failed waiting", "undo")
    assert case.task.cause == "approval: no signal approval within 1m"
    assert case.step(1).error == "no signal approval within 1m"
    case.answer(0)
    assert case.task.state == "undone"


def test_a_timeout_with_otherwise_gives_that_value() -> None:
    case = between(60.0, template('{"yes":false}'))
    case.due(1)
    assert (case.states, case.step(1).result) == ("done done running", b'{"yes":false}')
    assert case.last.moves[0].why == "no signal has come in time"
    case = between(60.0, Template(("", ""), (result_of(0, "of"),)))
    case.due(1)
    assert case.step(1).result == b"0"


def test_otherwise_that_cannot_be_put_together_fails_the_step() -> None:
    case = between(60.0, Template(("", ""), (result_of(0, "nothing"),)))
    case.due(1)
    assert case.states == "undoing failed waiting"


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_no_wait_times_out_over_a_signal_in_the_same_decision(order: slice) -> None:
    case = between()
    case.say(*[TaskMessage("retry", 1), signal()][order])
    assert (case.states, case.step(1).result) == ("done done running", YES)


def test_nor_beside_an_act_in_the_same_decision() -> None:
    case = between()
    case.say(TaskMessage("retry", 1), TaskMessage("extend", wait=-1.0, act=ADA), signal())
    assert case.step(1).result == YES


def test_a_timer_that_a_signal_has_overtaken_changes_nothing() -> None:
    case = between()
    case.say(signal())
    case.due(1)
    assert case.states == "done done running"


def test_another_scheduler_leaves_the_timeout_as_it_is_and_keeps_what_is_kept() -> None:
    case = between()
    case.say(signal("1", name="refusal"))
    case.say(TaskMessage("dead"))
    case.say(TaskMessage("claim"))
    assert (case.states, dict(case.last.timers), ids(case)) == ("done ready waiting", {}, ["1"])
    case.say(signal("2"))
    assert case.states == "done done running"


def test_a_claim_of_a_wait_without_a_timeout_dispatches_nothing() -> None:
    case = between(None)
    case.say(TaskMessage("dead"))
    case.say(TaskMessage("claim"))
    assert (case.states, case.asked, dict(case.last.timers)) == ("done ready waiting", [], {})


def test_a_cancel_drops_the_wait_and_leaves_what_comes_later_for_a_resubmission() -> None:
    case = between()
    case.act("cancel")
    assert (case.states, [*case.last.stale_timers]) == ("undoing waiting waiting", [1])
    case.say(signal())
    assert (case.states, ids(case)) == ("undoing waiting waiting", ["1"])
    case.answer(0)
    assert case.task.state == "undone"
    case.say(signal("2"))
    assert (case.task.state, ids(case), case.last.release) == ("undone", ["1", "2"], True)
    case.act("resubmit")
    case.say(TaskMessage("claim"))
    case.done(0)
    assert (case.states, ids(case), case.last.used_signals) == (
        "done done running",
        ["2"],
        [("approval", "1", 1)],
    )


def test_a_wait_that_is_over_is_kept_in_an_undo_and_begins_again_with_its_whole_time() -> None:
    case = between()
    case.say(signal())
    case.answer(2, "permanent", error="closed")
    assert case.states == "undoing kept failed"
    case.answer(0)
    case.act("resubmit")
    case.say(TaskMessage("claim"))
    case.done(0)
    assert (case.states, case.step(1).round, dict(case.last.timers)) == ("done ready waiting", 2, {1: 60.0})


def test_a_held_task_may_be_given_the_value_by_hand_and_no_other_control_step_may() -> None:
    case = between(on_failure="hold")
    case.due(1)
    assert (case.task.state, case.states) == ("error", "done failed waiting")
    assert case.act("settle", 1, "failed")[0] == "noop"
    assert case.act("settle", 1, "undone")[0] == "refused"
    assert case.act("settle", 1, "done", b'{"yes":1}')[0] == "applied"
    assert (case.step(1).state, case.step(1).result) == ("done", b'{"yes":1}')
    case.act("resubmit")
    case.say(TaskMessage("claim"))
    assert (case.states, case.asked) == ("done done running", [(2, "do")])
    assert [
        (m.kind, m.settled) for m in saga.possible_commands(between(on_failure="hold").held) if m.settled
    ] == []


def test_a_value_given_by_hand_is_of_the_signals_type_and_has_its_defaults() -> None:
    """A text for a yes counted as a no, and the task was undone."""
    schema = '{"type":"object","properties":{"yes":{"type":"boolean"},"by":{"type":"string","default":""}},"required":["yes"]}'
    case = between(on_failure="hold", signals=(("approval", schema),))
    case.due(1)
    refusal = ("refused", "approval takes no such value: yes is a text, and must be true or false")
    assert case.act("settle", 1, "done", b'{"yes":"oui"}') == refusal
    assert case.act("settle", 1, "done", YES)[0] == "applied"
    assert case.step(1).result == b'{"yes":true,"by":""}'


def test_what_is_failed_begins_again_with_a_signal_that_came_meanwhile() -> None:
    case = between(on_failure="hold")
    case.due(1)
    case.say(signal())
    assert (case.task.state, ids(case)) == ("error", ["1"])
    case.act("resubmit")
    case.say(TaskMessage("claim"))
    assert (case.states, case.step(1).result) == ("done done running", YES)


def test_signals_of_an_ended_task_are_kept() -> None:
    case = Case(action(0))
    case.done(0)
    assert case.task.state == "processed"
    case.say(signal())
    assert (case.task.state, ids(case), [*case.last.moves]) == ("processed", ["1"], [])


def test_a_task_with_waits_alone_is_not_begun_at_its_submission() -> None:
    assert opening_decision(Case(wait(0, timeout=3.0), action(1, 0), claim=False).held) is None
    assert opening_decision(Case(wait(0), action(1, 0), claim=False).held) is None
    assert opening_decision(Case(wait(1 - 1), action(1), claim=False).held) is None


def test_the_items_of_an_each_wait_one_by_one() -> None:
    body = (StepPlan(-1, "wait_for", "approval", action="approval"),)
    each = StepPlan(0, "each", "each", args=template("[1,2]"), body=body)
    gather = StepPlan(1, "gather", "gather", of=0, after=(0,))
    case = Case(each, gather)
    assert [s.name for s in case.held.steps] == ["each", "gather", "approval[0]", "approval[1]"]
    case.say(signal("1", b"1", step="approval[1]"))
    assert case.states == "done waiting ready done"
    case.say(signal("2", b"2"))
    assert case.task.state == "processed"
