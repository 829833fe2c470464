"""Past the time for which a service keeps a key, no request is sent again under it: not by a retry, a timer, ``Later``, or an undo."""

from typing import Any

import pytest

from makegood import saga
from makegood.model.messages import Act, TaskMessage
from makegood.model.states import Move
from makegood.saga import rules
from tests.unit.saga_case import Case, action

SENT = 1_000_000.0
"""When the first request under a key was taken."""
DAY = 86_400.0
OLDER = "older than the 1d that the service keeps it"


def one(**policy: Any) -> Case:
    """Return a task with one step, whose request was sent."""
    task = policy.pop("task", {})
    case = Case(action(0, **{"keeps": DAY, **policy}), **task)
    case.now = SENT
    return case


def silent(case: Case, at: float, kind: str = "gave_up") -> Any:
    """Let the attempt in flight end without an answer, at a moment after the first request."""
    case.now = SENT + at
    failures = {"failures": case.step(0).failures + 1} if kind == "expired" else {}
    return case.answer(0, kind, error="no answer", first_sent=SENT, **failures)


def test_within_the_time_it_is_sent_again() -> None:
    case = one()
    silent(case, 30.0)
    case.now = SENT + DAY - 1
    case.due(0)
    assert case.asked == [(0, "do")]
    assert case.request.first_sent == SENT
    assert case.request.keeps == DAY


@pytest.mark.parametrize("kind", ["gave_up", "expired"])
def test_a_timer_that_is_due_too_late_sends_nothing(kind: str) -> None:
    case = one()
    silent(case, 30.0, kind)
    case.now = SENT + DAY
    case.due(0)
    assert case.asked == [(0, "undo")]  # its own key: it may begin
    assert case.request.first_sent == 0.0
    (alert,) = case.last.alerts
    assert alert.kind == "step_gave_up"
    assert f"its key is {OLDER}" in alert.text
    assert "it may have happened" in alert.text
    assert OLDER in case.task.cause


def test_nobody_waits_for_a_moment_at_which_nothing_may_be_sent() -> None:
    case = one(threshold=0, extended=300.0)
    silent(case, DAY - 200)
    assert case.asked == [(0, "undo")]
    assert f"its key would be {OLDER}" in case.task.cause
    assert not case.last.timers


@pytest.mark.parametrize(
    "terms", [{"then": "hold"}, {"task": {"on_failure": "hold"}}, {"no_return": True, "undoable": False}]
)
def test_where_the_verdict_is_hold_an_alert_says_why(terms: dict[str, Any]) -> None:
    case = one(**terms)
    silent(case, 30.0)
    case.now = SENT + DAY + 5
    case.due(0)
    assert not case.asked
    assert case.task.state == "error"
    assert case.step(0).state == "in_doubt"
    assert set(case.alerts) == {"step_gave_up", "held"}
    assert all(OLDER in alert.text for alert in case.last.alerts)


def test_a_step_without_a_time_is_sent_again_as_ever() -> None:
    case = one(keeps=0.0)
    silent(case, 30.0)
    case.now = SENT + 1000 * DAY
    case.due(0)
    assert case.asked == [(0, "do")]


# -- its probe ---------------------------------------------------------------------------------------------------------


def probed_late(**policy: Any) -> Case:
    """Return a task whose step is probed past the time of its key."""
    case = one(probe=True, **policy)
    silent(case, DAY + 5)
    assert case.asked == [(0, "probe")]
    return case


def test_past_it_a_probe_is_asked_and_what_happened_is_done() -> None:
    case = probed_late()
    case.answer(0, "happened", value=b'"pi_1"')
    assert case.states == "done"
    assert case.task.state == "processed"


def test_past_it_not_happened_is_a_verdict_and_no_reason_to_send_it_again() -> None:
    """A late effect may follow; and the key is a new one to the service."""
    case = probed_late()
    case.answer(0, "not_happened")
    assert case.task.state == "undoing"
    assert case.asked == [(0, "probe")]  # as before each undo in doubt
    case.answer(0, "not_happened")
    assert case.asked == [(0, "undo")]
    assert case.request.in_doubt
    assert OLDER in case.task.cause


def test_past_it_not_happened_of_a_fencing_probe_is_certain_and_the_key_is_not_sent_again() -> None:
    """To the service the key is a new one, and nothing is in place under it: only a round with a new key may begin."""
    case = probed_late(fences=True)
    case.answer(0, "not_happened")
    assert ("do" in {doing for _, doing in case.asked}) is False
    assert case.states == "failed"
    assert case.task.state == "undone"


def test_a_probe_without_an_answer_is_asked_again_up_to_the_threshold() -> None:
    case = probed_late(threshold=1)
    case.answer(0, "gave_up", error="search is down")
    assert not case.asked
    case.due(0)
    assert case.asked == [(0, "probe")]
    case.answer(0, "gave_up", error="search is down")
    assert case.task.state == "undoing"
    assert "(3 failures)" in case.task.cause


def test_past_it_a_probe_that_asks_to_wait_forever_ends_in_the_verdict_and_an_alert() -> None:
    """Each time counts as a failure, and the waits are those of ``Recover``, however long the probe asks for."""
    case = probed_late(threshold=1, wait=5.0, extended=300.0)
    case.answer(0, "later", wait=7 * DAY, error="search is rebuilt")
    assert case.last.timers[0] == 300.0
    case.due(0)
    assert case.asked == [(0, "probe")]
    case.answer(0, "later", wait=7 * DAY, error="search is rebuilt")
    assert case.task.state == "undoing"
    (alert,) = case.last.alerts
    assert alert.kind == "step_gave_up"
    assert "its probe asks to wait (search is rebuilt)" in alert.text
    assert OLDER in alert.text


def test_past_it_a_probe_before_the_undo_that_asks_to_wait_forever_leaves_it_stuck_with_an_alert() -> None:
    case = one(remembers=True, probe=True, threshold=0)
    silent(case, DAY + 1)
    case.act("cancel")
    case.answer(0, "later", wait=DAY, error="search is rebuilt")  # sent before the cancellation: not counted
    case.answer(0, "later", wait=DAY, error="search is rebuilt")
    assert case.last.timers[0] == 300.0
    case.due(0)
    case.answer(0, "later", wait=DAY, error="search is rebuilt")
    assert case.task.state == "error"
    assert "; s0 cannot be undone: nobody can tell whether it happened" in case.last.alerts[0].text


def test_a_mutant_that_lets_it_wait_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "probe_must_answer", lambda _step, _now: False)
    with pytest.raises((AssertionError, KeyError)):
        test_past_it_a_probe_that_asks_to_wait_forever_ends_in_the_verdict_and_an_alert()


def test_before_it_a_probe_that_asks_to_wait_is_not_left_alone_for_longer() -> None:
    case = one(probe=True)
    silent(case, 30.0)
    case.now = SENT + 100.0
    case.answer(0, "later", wait=3 * DAY, error="search is rebuilt")
    assert case.last.timers[0] == DAY - 100.0
    assert case.step(0).failures == 1  # that of the action


def test_without_a_time_a_probe_that_asks_to_wait_is_left_alone_as_long_as_it_asks() -> None:
    case = one(probe=True, keeps=0.0)
    silent(case, 30.0)
    case.answer(0, "later", wait=3 * DAY, error="search is rebuilt")
    assert case.last.timers[0] == 3 * DAY
    assert case.step(0).failures == 1


def test_a_probe_gets_the_longer_wait_although_nothing_may_be_sent_then() -> None:
    case = one(probe=True, threshold=0)
    silent(case, DAY - 100)
    case.answer(0, "not_happened")
    assert list(case.last.timers) == [0]
    case.now = SENT + DAY + 200
    case.due(0)
    assert case.asked == [(0, "probe")]


# -- Later -------------------------------------------------------------------------------------------------------------


def test_later_than_it_is_not_waited_for_and_the_step_is_in_doubt() -> None:
    case = one()
    case.now = SENT + 30
    case.answer(0, "later", wait=2 * DAY, error="asked to wait 2d", first_sent=SENT)
    assert case.asked == [(0, "undo")]
    assert case.request.in_doubt
    assert f"its key would be {OLDER}" in case.task.cause


def test_a_step_that_was_asked_to_wait_is_not_sent_when_its_timer_comes_too_late() -> None:
    case = one()
    case.now = SENT + 30
    case.answer(0, "later", wait=60.0, error="asked to wait", first_sent=SENT)
    assert case.states == "ready"
    case.now = SENT + DAY
    case.due(0)
    assert Move("s0", "ready", "in_doubt", "key_too_old") in case.last.moves
    assert case.asked == [(0, "undo")]


def test_an_agent_that_had_it_too_late_says_later_and_the_verdict_follows() -> None:
    """It waited in the queue: the agent does not send it, and no failure is counted."""
    case = one()
    silent(case, 30.0)
    case.due(0)
    case.now = SENT + DAY + 1
    case.answer(0, "later", wait=1.0, error="it was not sent", first_sent=SENT)
    assert case.asked == [(0, "undo")]
    assert [move.why for move in case.last.moves if move.reason == "later"] == [
        "later: it was not sent; its key is older than the 1d that the service keeps it, so it is not sent again"
    ]
    assert not case.last.failure_counts.get(0, (False, 0))[1]


# -- undo --------------------------------------------------------------------------------------------------------------


def undoing(**policy: Any) -> Case:
    """Return a task whose step was done and is being undone, the undo first sent at SENT."""
    case = Case(action(0, **{"keeps": DAY, **policy}), action(1, 0))
    case.now = SENT - 3 * DAY
    case.done(0)
    case.answer(1, "refused", error="sold out")
    assert case.asked == [(0, "undo")]
    case.now = SENT
    return case


def test_an_undo_has_a_key_of_its_own_however_old_that_of_the_action_is() -> None:
    case = one()
    silent(case, 30.0)
    case.now = SENT + 5 * DAY
    case.act("cancel")
    assert case.asked == [(0, "undo")]
    assert case.request.first_sent == 0.0


def test_an_undo_past_its_own_time_is_stuck() -> None:
    case = undoing()
    silent(case, 30.0)
    case.now = SENT + DAY
    case.due(0)
    assert not case.asked
    assert case.step(0).state == "undo_failed"
    assert case.task.state == "error"
    assert case.alerts == ["undo_incomplete"]
    assert f"its key is {OLDER}" in case.last.alerts[0].text


@pytest.mark.parametrize("kind", ["gave_up", "expired"])
def test_an_undo_does_not_wait_past_its_time(kind: str) -> None:
    case = undoing(undo_threshold=0, undo_extended=300.0)
    silent(case, DAY - 100, kind)
    assert case.step(0).state == "undo_failed"
    assert f"its key would be {OLDER}" in case.last.alerts[0].text


def test_an_undo_that_is_to_come_back_after_its_time_is_stuck() -> None:
    case = undoing()
    case.now = SENT + 30
    case.answer(0, "later", wait=2 * DAY, error="on Monday", first_sent=SENT)
    assert case.step(0).state == "undo_failed"


def test_before_an_undo_the_action_is_not_driven_to_an_answer_past_its_time() -> None:
    """``remembers``: without a definite answer it stays in doubt, and is stuck."""
    case = one(remembers=True)
    silent(case, 30.0)
    case.now = SENT + DAY + 1
    case.act("cancel")
    assert not case.asked
    assert case.states == "in_doubt"
    assert case.task.state == "error"
    assert "; s0 cannot be undone: nobody can tell whether it happened" in case.last.alerts[0].text
    assert OLDER in case.last.alerts[0].text


def test_before_an_undo_a_probe_may_still_find_it() -> None:
    case = one(remembers=True, probe=True)
    silent(case, DAY + 1)
    case.act("cancel")
    case.answer(0, "happened", value=b'"pi_1"')
    assert case.asked == [(0, "undo")]
    assert not case.request.in_doubt


# -- operators ---------------------------------------------------------------------------------------------------------


def held(**policy: Any) -> Case:
    """Return a task that is held with a step in doubt whose key is too old."""
    case = one(then="hold", **policy)
    silent(case, 30.0)
    case.now = SENT + 2 * DAY
    case.due(0)
    assert case.task.state == "error"
    return case


def test_a_resubmission_warns_and_sends_it_as_a_first_request() -> None:
    case = held()
    dry = saga.try_command(case.held, TaskMessage("resubmit", act=Act("a")), case.now)
    verdict, outcome = case.act("resubmit")
    assert (dry.verdict, dry.outcome) == (verdict, outcome)
    assert verdict == "applied"
    assert "s0 is sent again, and may be done twice" in outcome
    assert OLDER in outcome
    case.say(TaskMessage("claim"))
    assert case.asked == [(0, "do")]
    assert case.request.first_sent == 0.0  # the service has it from now on
    assert case.request.round == 1


def test_a_resubmission_in_time_does_not_warn() -> None:
    case = one(then="hold", threshold=0, extended=1.0)
    silent(case, 30.0)
    case.due(0)
    silent(case, 60.0)
    assert case.task.state == "error"
    assert case.act("resubmit") == ("applied", "the task goes forward again")
    case.say(TaskMessage("claim"))
    assert case.request.first_sent == SENT


def test_an_undo_tried_again_warns_and_is_sent_as_a_first_request() -> None:
    case = undoing()
    silent(case, 30.0)
    case.now = SENT + DAY
    case.due(0)
    verdict, outcome = case.act("undo")
    assert verdict == "applied"
    assert "the undo of s0 is sent again, and may be done twice" in outcome
    assert case.asked == [(0, "undo")]
    assert case.request.first_sent == 0.0


def test_an_undo_in_time_is_tried_again_under_its_age() -> None:
    case = undoing()
    silent(case, 30.0)
    case.answer(0, "permanent", error="closed") if case.step(0).doing else case.due(0)
    case.answer(0, "permanent", error="closed", first_sent=SENT)
    assert case.act("undo")[0] == "applied"
    assert case.request.first_sent == SENT


def test_an_undo_warns_of_what_stays_in_doubt() -> None:
    case = one(remembers=True, task={"on_failure": "hold"})
    silent(case, 30.0)
    case.now = SENT + 2 * DAY
    case.due(0)
    _, outcome = case.act("undo")
    assert "s0 stays in doubt, unless its probe finds it: settle it" in outcome
    assert case.states == "in_doubt"
