"""Resubmission with corrected inputs: only for what begins a new round or has never been asked."""

import json

import msgspec
import pytest

from makegood.messages import Message
from makegood.saga.correcting import merged
from makegood.task import Condition, Ref, StepPlan, Template
from tests.unit.saga_case import ADA, Case, action, failing, result_of, template

INPUT = Ref("input", 0)


def resubmit(case: Case, value: object, idx: int = -1) -> tuple[str, str]:
    """Resubmit with corrected inputs; returns the verdict and its reason."""
    case.say(Message("resubmit", idx, value=msgspec.json.encode(value), act=ADA))
    (answer,) = case.last.answers
    return answer.verdict, answer.reason


def held() -> Case:
    """s0 done, s1 failed with the result of s0 and a card of its own, s2 waiting; the task is held."""
    case = Case(
        action(0, args=template('{"order":', INPUT, "}")),
        action(1, 0, args=template('{"hold":', result_of(0), ',"card":"old"}')),
        action(2, 1, args=template('{"order":', INPUT, "}")),
        on_failure="hold", inputs=(b'{"id":1}',),
    )  # fmt: skip
    case.done(0)
    case.answer(1, "permanent", error="the card has expired")
    assert case.task.state == "error"
    return case


def test_a_failed_step_begins_its_new_round_with_other_arguments() -> None:
    """Those that were not named stay, what comes from a step before too; the audit has what was and what is."""
    case = held()
    verdict, reason = resubmit(case, {"card": "new"}, 1)
    assert (verdict, reason) == ("applied", "the task goes forward again, with corrected inputs")
    assert case.last.rewritten == [1]
    assert json.loads(case.last.answers[0].change or b"") == {
        "step": "s1", "was": {"hold": {"of": 0}, "card": "old"}, "now": {"hold": {"of": 0}, "card": "new"},
    }  # fmt: skip
    case.say(Message("claim"))
    assert (case.request.round, json.loads(case.request.args)) == (2, {"hold": {"of": 0}, "card": "new"})


def test_a_step_that_was_never_asked_takes_them_in_its_first_round() -> None:
    case = held()
    assert resubmit(case, {"order": 7}, 2)[0] == "applied"
    assert (case.step(2).round, case.step(2).state) == (1, "waiting")


def test_a_step_that_was_asked_and_certainly_did_nothing_begins_a_new_round() -> None:
    """The service may remember the question under the old key."""
    case = Case(action(0, args=template('{"a":1}')), action(1), on_failure="hold")
    attempt = case.step(0).attempt
    case.answer(1, "permanent", error="no")
    case.answer(0, "later", wait=5.0)
    assert (case.step(0).state, case.task.state) == ("waiting", "error")
    assert resubmit(case, {"a": 2}, 0)[0] == "applied"
    assert (case.step(0).round, case.step(0).attempt) == (2, attempt)


@pytest.mark.parametrize(
    ("idx", "value", "told"),
    [
        (0, {"order": 2}, "s0 is done with what it was given"),
        (1, {"crad": "new"}, "s1 has no argument 'crad'; it has hold, card"),
        (1, ["new"], "given by name"),
        (9, {}, "no such step"),
        (-1, [{"id": 2}], "s0 is done with what it was given"),
        (-1, [], "the task has 1 inputs, not 0"),
        (-1, {"id": 2}, "an array is expected"),
    ],
)
def test_what_is_refused_changes_nothing(idx: int, value: object, told: str) -> None:
    case = held()
    before = case.task, list(case.held.steps)
    verdict, reason = resubmit(case, value, idx)
    assert verdict == "refused"
    assert told in reason
    assert (case.task, case.held.steps) == before
    assert (case.last.rewritten, case.last.answers[0].change) == ([], None)


def test_a_step_in_doubt_keeps_its_key_and_its_arguments() -> None:
    case = Case(action(0, threshold=0, args=template('{"a":1}')), on_failure="hold")
    case.silence(0)
    case.due(0)
    case.silence(0, failures=2)
    assert (case.step(0).state, case.task.state) == ("in_doubt", "error")
    assert "settle it first" in resubmit(case, {"a": 2}, 0)[1]
    assert resubmit(case, {"a": 1}, 0)[0] == "refused"


def test_a_control_step_takes_no_arguments() -> None:
    when = StepPlan(0, "when", "w", condition=Condition("true", template("true")))
    case = Case(when, action(1, guards=((0, True),)), on_failure="hold")
    case.answer(1, "permanent", error="no")
    assert "is no action" in resubmit(case, {}, 0)[1]


def test_an_undone_task_may_be_given_other_inputs() -> None:
    """Every step begins anew, so each takes them."""
    case = failing(
        action(0, args=template('{"order":', INPUT, "}")), action(1, 0), inputs=(b'{"id":1}', b"2")
    )
    case.answer(0)
    assert case.task.state == "undone"
    assert resubmit(case, [{"id": 5}, 2])[0] == "applied"
    assert (case.task.inputs, case.last.rewritten) == ((b'{"id":5}', b"2"), [])
    case.say(Message("claim"))
    assert json.loads(case.request.args) == {"order": {"id": 5}}
    assert (case.request.round, case.task.submission) == (2, 2)


def test_inputs_that_no_step_takes_as_they_are_cannot_be_corrected() -> None:
    """The workflow function computed with them, once; saying "applied" would be a lie."""
    case = failing(action(0, args=template('{"a":', INPUT, "}")), action(1, 0), inputs=(b"1", b"2"))
    case.answer(0)
    assert "is part of the plan" in resubmit(case, [1, 3])[1]
    assert resubmit(case, [1, 2])[0] == "applied", "nothing else than before"


@pytest.mark.parametrize(
    ("args", "members", "parts"),
    [
        (Template(('{"a":1}',)), {"a": b'{"hole 0":"hole 0"}'}, ('{"a":{"hole 0":"hole 0"}}',)),
        (Template(('{"a":"hole 0","b":', "}"), (INPUT,)), {}, ('{"a":"hole 0","b":', "}")),
        (Template(('{"a":', ',"b":[', "]}"), (INPUT, INPUT)), {"a": b"1"}, ('{"a":1,"b":[', "]}")),
        (Template(('{"a":', "}"), (INPUT,)), {"a": b"null"}, ('{"a":null}',)),
    ],
)
def test_holes_stay_where_they_are(args: Template, members: dict[str, bytes], parts: tuple[str, ...]) -> None:
    made = merged(args, {name: msgspec.Raw(raw) for name, raw in members.items()})
    assert made.parts == parts
    assert len(made.refs) == len(parts) - 1
