"""Alerts in the rules: one for a cause, and which of them end with a change."""

from makegood.model.messages import TaskMessage
from tests.unit.saga_case import Case, action, failing


def held() -> Case:
    """Return a task in error."""
    case = failing(action(0), action(1, 0), on_failure="hold")
    assert case.alerts == ["held"]
    return case


def stuck() -> Case:
    """Return a task of which two undos are stuck."""
    case = failing(action(0), action(1), action(2, 0, 1))
    case.answer(0, "permanent", error="gone")
    case.answer(1, "permanent", error="gone")
    assert case.alerts == ["undo_incomplete"]
    return case


def test_an_act_that_takes_a_task_out_of_error_ends_its_alerts() -> None:
    for kind in ("undo", "resubmit", "cancel"):
        case = held()
        assert case.act(kind)[0] == "applied"
        assert case.last.alert_ends == ["*"]


def test_an_act_that_is_refused_or_changes_nothing_ends_none() -> None:
    case = stuck()
    assert case.act("resubmit")[0] == "refused"
    assert case.last.alert_ends == []
    forward = Case(action(0))
    assert forward.act("cancel")[0] == "applied"
    assert forward.last.alert_ends == [], "it was not at rest: what is said of it is said by others"


def test_the_alert_of_an_incomplete_undo_is_the_only_one_and_names_what_stopped_it() -> None:
    """It says why the task was undone and which undos failed, and ends the alerts of the steps."""
    case = failing(action(0), action(1), action(2), action(3, 0, 1, 2))
    case.answer(0, "permanent", error="desk is closed\nsee https://example.org")
    assert (case.alerts, case.last.alert_ends) == (["undo_stuck"], [])
    case.answer(1, "permanent", error="desk is closed")
    case.answer(2, "permanent", error="no such booking")
    (alert,) = case.last.alerts
    assert alert.text == (
        f"undone because {case.task.cause}; the undo of s0, s1 failed: desk is closed; the undo of s2 failed: no such booking; "
        "in place: s0 (undo failed), s1 (undo failed), s2 (undo failed)"
    )
    assert case.last.alert_ends == ["s0", "s1", "s2", "s3"]


def test_a_step_settled_by_hand_ends_its_own_alerts_and_the_last_one_all() -> None:
    case = stuck()
    assert case.act("settle", 0, "undone")[0] == "applied"
    assert case.last.alert_ends == ["s0"]
    assert case.act("settle", 1, "undone")[0] == "applied"
    assert (case.task.state, case.last.alert_ends) == ("undone", ["*"])


def test_a_task_that_was_undone_has_no_alerts_any_more() -> None:
    case = Case(action(0, threshold=0), action(1, 0, threshold=0))
    case.done(0)
    case.silence(1)
    case.due(1)
    case.silence(1, failures=2)
    assert case.alerts == ["step_gave_up"]
    case.answer(1)
    assert case.last.alert_ends == []
    case.answer(0)
    assert (case.task.state, case.last.alert_ends) == ("undone", ["*"])


def test_poison_is_one_alert_that_lists_what_stands() -> None:
    """With something in flight the second one comes later: the store knows that it is the same cause."""
    case = Case(action(0), action(1, 0), lost=3)
    case.done(0)
    case.answer(1, "later", wait=5.0)
    case.say(TaskMessage("poison"))
    (alert,) = case.last.alerts
    assert (alert.kind, case.task.state) == ("poison", "error")
    assert "3 times in a row; in place: s0 (done)" in alert.text
