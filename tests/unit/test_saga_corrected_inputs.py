"""Resubmission with corrected inputs: only for what begins a new round or has never been asked."""

import json

import msgspec
import pytest

from makegood.model.messages import TaskMessage
from makegood.model.plan import Condition, Ref, StepPlan, Template
from makegood.saga.corrected_inputs import Replanned, merge_members
from tests.unit.saga_case import ADA, Case, action, failing, result_of, template

INPUT = Ref("input", 0)


def resubmit(case: Case, value: object, idx: int = -1) -> tuple[str, str]:
    """Resubmit with corrected inputs; returns the verdict and its reason."""
    case.say(TaskMessage("resubmit", idx, value=msgspec.json.encode(value), act=ADA))
    (answer,) = case.last.answers
    return answer.verdict, answer.outcome


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
    case.say(TaskMessage("claim"))
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
    ("idx", "value", "hint"),
    [
        (0, {"order": 2}, "s0 is done with what it was given"),
        (1, {"crad": "new"}, "s1 has no argument 'crad'; it has hold, card"),
        (1, ["new"], "given by name"),
        (9, {}, "no such step"),
        (-1, [{"id": 2}], "s1 (card); name the code that plans again, --check APP"),
        (-1, [], "the task has 1 inputs, not 0"),
        (-1, {"id": 2}, "an array is expected"),
    ],
)
def test_what_is_refused_changes_nothing(idx: int, value: object, hint: str) -> None:
    case = held()
    before = case.task, list(case.held.steps)
    verdict, reason = resubmit(case, value, idx)
    assert verdict == "refused"
    assert hint in reason
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
    assert "is not an action" in resubmit(case, {}, 0)[1]


def test_an_undone_task_may_be_given_other_inputs() -> None:
    """Every step begins anew, so each takes them."""
    case = failing(
        action(0, args=template('{"order":', INPUT, "}")), action(1, 0), inputs=(b'{"id":1}', b"2")
    )
    case.answer(0)
    assert case.task.state == "undone"
    assert resubmit(case, [{"id": 5}, 2])[0] == "applied"
    assert (case.task.inputs, case.last.rewritten) == ((b'{"id":5}', b"2"), [])
    case.say(TaskMessage("claim"))
    assert json.loads(case.request.args) == {"order": {"id": 5}}
    assert (case.request.round, case.task.submission) == (2, 2)


def test_inputs_that_no_step_takes_as_they_are_cannot_be_corrected() -> None:
    """The workflow function computed with them, once; saying "applied" would be a lie."""
    case = failing(action(0, args=template('{"a":', INPUT, "}")), action(1, 0), inputs=(b"1", b"2"))
    case.answer(0)
    assert "is part of the plan; name the code that plans again, --check APP" in resubmit(case, [1, 3])[1]
    assert resubmit(case, [1, 2])[0] == "applied", "nothing else than before"


# -- planned again by the code -----------------------------------------------------------------------------------------


def replanned(inputs: list[object], *steps: StepPlan, returns: Template | None = None) -> object:
    """Return corrected inputs with the plan that the workflow function makes of them."""
    values = tuple(msgspec.Raw(msgspec.json.encode(value)) for value in inputs)
    return Replanned(values, steps, returns or Template(("null",)))


def change_of(case: Case) -> dict[str, object]:
    change: dict[str, object] = json.loads(case.last.answers[0].change or b"")
    return change


def two_steps(cents: int) -> tuple[StepPlan, StepPlan]:
    """s0 takes the input, s1 what the workflow function made of it."""
    return (
        action(0, args=template('{"order":', INPUT, "}")),
        action(1, 0, args=template(f'{{"cents":{cents},"hold":', result_of(0), "}")),
    )


def test_derived_arguments_are_planned_again_with_the_inputs() -> None:
    """The whole task is corrected, or nothing of it."""
    case = failing(*two_steps(100), action(2, 1), inputs=(b'{"cents":100}',))
    case.answer(1)
    case.answer(0)
    assert case.task.state == "undone"
    verdict, reason = resubmit(case, [{"cents": 250}])
    assert verdict == "refused"
    assert "may have made these of the inputs, and they would keep the old values: s1 (cents);" in reason
    assert resubmit(case, replanned([{"cents": 250}], *two_steps(250), action(2, 1)))[0] == "applied"
    assert change_of(case) == {
        "step": None, "was": [{"cents": 100}], "now": [{"cents": 250}],
        "steps": [
            {"step": "s0", "was": {"order": {"cents": 100}}, "now": {"order": {"cents": 250}}},
            {
                "step": "s1",
                "was": {"cents": 100, "hold": "the result of s0"},
                "now": {"cents": 250, "hold": "the result of s0"},
            },
        ],
    }  # fmt: skip
    assert case.last.rewritten == [1]
    case.say(TaskMessage("claim"))
    assert json.loads(case.request.args) == {"order": {"cents": 250}}
    case.done(0)
    assert json.loads(case.request.args)["cents"] == 250


def held_by_derived() -> Case:
    """s0 done with the input, s1 failed; the task is held."""
    case = Case(*two_steps(100), on_failure="hold", inputs=(b'{"cents":100}',))
    case.done(0)
    case.answer(1, "permanent", error="no")
    assert case.task.state == "error"
    return case


def test_what_is_done_keeps_what_it_did() -> None:
    """Its undo gets what it was given; when it was undone and runs again, it gets the corrected inputs."""
    case = held_by_derived()
    verdict, reason = resubmit(case, replanned([{"cents": 250}], *two_steps(250)))
    assert (verdict, reason) == (
        "applied", "the task goes forward again, with corrected inputs; s0 keeps what it did",
    )  # fmt: skip
    change = {"step": "s0", "was": {"order": {"cents": 100}}, "now": {"order": {"cents": 250}}}
    assert change_of(case)["kept"] == [change]
    case.say(TaskMessage("claim"))
    assert json.loads(case.request.args)["cents"] == 250
    case.answer(1, "permanent", error="no")
    case.say(TaskMessage("undo", act=ADA))
    assert (case.request.doing, json.loads(case.request.args)) == ("undo", {"order": {"cents": 100}})
    case.answer(0)
    assert case.task.state == "undone"
    case.say(TaskMessage("resubmit", act=ADA))
    assert case.last.rewritten == [0]
    case.say(TaskMessage("claim"))
    assert (case.request.doing, json.loads(case.request.args)) == ("do", {"order": {"cents": 250}})


def test_without_the_code_what_is_done_keeps_what_it_did_too() -> None:
    case = Case(
        action(0, args=template('{"order":', INPUT, "}")),
        action(1, 0, args=template('{"order":', INPUT, ',"hold":', result_of(0), "}")),
        on_failure="hold", inputs=(b'{"cents":100}',),
    )  # fmt: skip
    case.done(0)
    case.answer(1, "permanent", error="no")
    assert resubmit(case, [{"cents": 250}]) == (
        "applied", "the task goes forward again, with corrected inputs; s0 keeps what it did",
    )  # fmt: skip
    case.say(TaskMessage("claim"))
    assert json.loads(case.request.args)["order"] == {"cents": 250}
    case.answer(1, "permanent", error="no")
    case.say(TaskMessage("undo", act=ADA))
    assert json.loads(case.request.args) == {"order": {"cents": 100}}


def test_inputs_that_only_what_is_done_takes_are_refused() -> None:
    case = Case(
        action(0, args=template('{"order":', INPUT, "}")), action(1, 0), on_failure="hold", inputs=(b"1",)
    )
    case.done(0)
    case.answer(1, "permanent", error="no")
    assert "s0 is done with what it was given, and no other step takes those inputs" in resubmit(case, [2])[1]


def test_a_step_in_doubt_whose_arguments_would_change_is_settled_first() -> None:
    case = Case(action(0, threshold=0, args=template('{"a":1}')), on_failure="hold", inputs=(b"1",))
    case.silence(0)
    case.due(0)
    case.silence(0, failures=2)
    assert "settle it first" in resubmit(case, replanned([2], action(0, args=template('{"a":2}'))))[1]
    same = replanned([2], action(0, args=template('{"a":1}')), returns=Template(("5",)))
    assert resubmit(case, same)[0] == "applied", "its arguments stay"
    assert change_of(case)["result"] == {"was": None, "now": 5}


@pytest.mark.parametrize(
    ("steps", "hint"),
    [
        ((action(0),), "step 2 of the task, s1 (bank.charge), would not be there"),
        ((action(0), action(1, 0), action(2, 1)), "there would be a further step 3, s2 (bank.charge)"),
        ((action(0), StepPlan(1, name="x", agent="desk", action="x", after=(0,))), "step 2 would be x (desk.x) instead of s1 (bank.charge)"),
        ((action(0), action(1)), "step 2, s1 (bank.charge), would wait for other steps"),
    ],
)  # fmt: skip
def test_a_plan_with_other_steps_is_refused(steps: tuple[StepPlan, ...], hint: str) -> None:
    case = held_by_derived()
    verdict, reason = resubmit(case, replanned([{"cents": 250}], *steps))
    assert verdict == "refused"
    assert hint in reason
    assert reason.endswith("undo this one, then submit a new task under another key")


def test_the_items_of_an_each_are_planned_again() -> None:
    """Their steps are copies of its body, made while the task ran."""

    def plan(cents: int) -> tuple[StepPlan, ...]:
        body = action(-1, args=template('{"part":', Ref("item", 1), f',"cents":{cents}}}'))
        each = StepPlan(1, "each", "e", args=template("", result_of(0), ""), after=(0,), body=(body,))
        return (
            action(0),
            each,
            StepPlan(2, "gather", "g", after=(1,), of=1, sides=(template("", Ref("step", -1), ""),)),
        )

    case = Case(*plan(100), on_failure="hold", inputs=(b"100",))
    case.answer(0, value=b"[7,8]")
    case.answer(3, "permanent", error="no")
    case.done(4)
    assert case.task.state == "error"
    assert "(cents)" in resubmit(case, [250])[1]
    assert resubmit(case, replanned([250], *plan(250)))[0] == "applied"
    assert [one["step"] for one in change_of(case)["kept"]] == [case.step(4).name]  # type: ignore[attr-defined]
    case.say(TaskMessage("claim"))
    assert (case.request.idx, json.loads(case.request.args)) == (3, {"part": 7, "cents": 250})


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
    args_ = merge_members(args, {name: msgspec.Raw(raw) for name, raw in members.items()})
    assert args_.parts == parts
    assert len(args_.refs) == len(parts) - 1
