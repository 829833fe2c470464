"""Control steps: when, merge, each and gather, nested too, decided and decided anew."""

from typing import Any

import pytest

from makegood import saga
from makegood.model.messages import TaskMessage
from makegood.model.plan import Condition, Ref, StepPlan, Template, inside
from makegood.model.states import Move
from makegood.saga import control
from makegood.saga.decision_builder import DecisionBuilder
from tests.unit.saga_case import Case, action, result_of, template

THEN, OTHERWISE = ((1, True),), ((1, False),)


def value(text: str) -> Template:
    return template(text)


def whole(ref: Ref) -> Template:
    return template("", ref, "")


# -- when and merge --------------------------------------------------------------------------------------------------------


def branching(**condition: Any) -> Case:
    """Return: s0; when it is 1 then s2, s3 else s4; merge; s6 with the merge's value."""
    return Case(
        action(0),
        StepPlan(
            1,
            "when",
            name="when",
            after=(0,),
            condition=Condition(
                **{"op": "eq", "left": whole(result_of(0)), "right": value("1"), **condition}
            ),
        ),
        action(2, 1, guards=THEN),
        action(3, 2, guards=THEN),
        action(4, 1, guards=OTHERWISE),
        StepPlan(
            5, "merge", name="merge", after=(3, 4), of=1, sides=(whole(result_of(3)), whole(result_of(4)))
        ),
        action(6, 5, args=template('{"m":', result_of(5), "}")),
    )


def test_the_side_that_holds_is_taken() -> None:
    """Steps of the other side are skipped, the merge has the value of the side that was taken."""
    case = branching()
    case.answer(0, value=b"1")
    assert case.asked == [(2, "do")]
    assert case.states == "done done running waiting skipped waiting waiting"
    case.done(2, 3)
    assert case.step(5).result == b'{"of":3}'
    assert case.request.args == b'{"m":{"of":3}}'


def test_the_other_side() -> None:
    """And the other way round."""
    case = branching()
    case.answer(0, value=b"2")
    assert case.asked == [(4, "do")]
    case.done(4)
    assert case.request.args == b'{"m":{"of":4}}'
    case.done(6)
    assert case.task.state == "processed"


def test_control_steps_move_lawfully_and_are_kept_in_an_undo() -> None:
    """Waiting, ready, done at once; kept, once what came after is settled; nobody is asked."""
    case = branching()
    case.answer(0, value=b"1")
    assert Move("when", "waiting", "ready", "preceded") in case.last.moves
    assert Move("when", "ready", "done", "decided") in case.last.moves
    case.answer(2, "permanent")
    assert case.states == "undoing kept failed waiting skipped waiting waiting"


def test_a_branch_is_decided_anew_by_a_resubmission() -> None:
    """The when was kept, so it is decided anew, and what it skipped waits again, round + 1."""
    case = branching()
    case.answer(0, value=b"1")
    case.answer(2, "permanent")
    case.answer(0)
    assert case.task.state == "undone"
    case.act("resubmit")
    assert case.states == " ".join(["waiting"] * 7)
    assert [s.round for s in case.held.steps] == [2, 2, 2, 1, 2, 1, 1]
    case.say(TaskMessage("claim"))
    case.answer(0, value=b"7")
    assert case.asked == [(4, "do")]


def test_without_otherwise_the_value_is_null() -> None:
    """A merge without a template for a side has the value null."""
    case = Case(
        StepPlan(0, "when", name="w", condition=Condition("true", value("false"))),
        action(1, 0, guards=((0, True),)),
        StepPlan(2, "merge", name="m", after=(1,), of=0, sides=(whole(result_of(1)),)),
    )
    assert case.states == "done skipped done"
    assert case.step(2).result == b"null"
    assert case.task.state == "processed"


def test_a_when_inside_a_branch_that_is_not_taken_is_skipped() -> None:
    """Skipping goes on inwards, and resubmitting goes on inwards."""
    case = Case(
        StepPlan(0, "when", name="outer", condition=Condition("true", value("false"))),
        StepPlan(1, "when", name="inner", guards=((0, True),), condition=Condition("true", value("true"))),
        action(2, 1, guards=((0, True), (1, True))),
        StepPlan(3, "merge", name="m1", after=(2,), of=1, guards=((0, True),)),
        StepPlan(4, "merge", name="m0", after=(3,), of=0),
    )
    assert case.states == "done skipped skipped skipped done"


YES, NO = Condition("true", value("true")), Condition("true", value("false"))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (Condition("eq", value('{"a": [1, 2.0]}'), value('{"a":[1,2]}')), True),
        (Condition("eq", value('"1"'), value("1")), False),
        (Condition("ne", value('"x"'), value('"y"')), True),
        (Condition("ne", value("null"), value("null")), False),
        (Condition("true", value("1")), False),
        (Condition("all", parts=(YES, YES)), True),
        (Condition("all", parts=(YES, NO)), False),
        (Condition("any", parts=(NO, YES)), True),
        (Condition("any", parts=(NO, NO)), False),
        (Condition("not", parts=(NO,)), True),
        (Condition("not", parts=(YES,)), False),
    ],
)
def test_conditions(condition: Condition, *, holds: bool) -> None:
    """Every kind of condition, both ways; values are compared decoded."""
    case = Case(StepPlan(0, "when", name="w", condition=condition))
    assert case.step(0).result == (b"true" if holds else b"false")
    assert control.holds(DecisionBuilder(case.held), condition) is holds


@pytest.mark.parametrize(
    "condition",
    [
        None,
        Condition("eq", value("1")),
        Condition("true", whole(Ref("input", 0, ("missing",)))),
        Condition("true", value("nonsense")),
    ],
)
def test_a_condition_that_cannot_be_decided_fails_the_step(condition: Condition | None) -> None:
    """With an alert, and certain to have done nothing."""
    case = Case(StepPlan(0, "when", name="w", condition=condition), inputs=(b"{}",))
    assert (case.states, case.task.state) == ("failed", "undone")
    assert case.alerts == ["step_gave_up"]


# -- each and gather -------------------------------------------------------------------------------------------------------


def over(items: bytes, *body: StepPlan, sides: tuple[Template, ...] = (), **each: Any) -> Case:
    """Return a task: an each over its input with this body, its gather, and a step after it."""
    return Case(
        StepPlan(0, "each", name="each", args=whole(Ref("input", 0)), body=body, **each),
        StepPlan(1, "gather", name="gather", after=(0,), of=0, sides=sides),
        action(2, 1, args=template('{"all":', result_of(1), "}")),
        inputs=(items,),
    )


PACK = action(-1, args=template('{"sku":', Ref("item", 0, ("sku",)), "}"))
SHIP = action(-2, -1, args=template('{"parcel":', result_of(-1), ',"n":', Ref("item", 0, ("n",)), "}"))
ITEMS = b'[{"sku":"a","n":1},{"sku":"b","n":2}]'


def test_every_item_gets_its_own_steps() -> None:
    """Copies of the body, with fresh indices, names and refs of their own; items go on side by side."""
    case = over(ITEMS, PACK, SHIP, sides=(whole(result_of(-2)),))
    assert case.asked == [(3, "do"), (5, "do")]
    assert [q.args for q in case.last.requests] == [b'{"sku":"a"}', b'{"sku":"b"}']
    assert [s.name for s in case.held.steps[3:]] == ["s-1[0]", "s-2[0]", "s-1[1]", "s-2[1]"]
    assert [(s.plan.of, s.plan.nth, s.plan.after) for s in case.held.steps[3:]] == [
        (0, 0, ()),
        (0, 0, (3,)),
        (0, 1, ()),
        (0, 1, (5,)),
    ]
    assert [s.plan.idx for s in case.last.new_steps] == [3, 4, 5, 6]
    case.done(5)
    assert case.request.args == b'{"parcel":{"of":5},"n":2}'
    case.done(3, 4, 6)
    assert case.request.args == b'{"all":[{"of":4},{"of":6}]}'


def test_added_steps_are_not_among_the_changed() -> None:
    """A new row is written once, as it is at the end of the Decision."""
    case = over(ITEMS, PACK)
    assert all(idx < 3 for idx in case.last.steps)
    assert [s.state for s in case.last.new_steps] == ["running", "running"]


def test_an_empty_list_is_gathered_at_once() -> None:
    """No items, no steps, the empty list."""
    case = over(b"[]", PACK, sides=(whole(result_of(-1)),))
    assert case.request.args == b'{"all":[]}'


def test_a_body_without_steps_gathers_values_of_the_items() -> None:
    """A gather's value may be of the item alone."""
    case = over(ITEMS, sides=(template('{"was":', Ref("item", 0, ("sku",)), "}"),))
    assert case.request.args == b'{"all":[{"was":"a"},{"was":"b"}]}'


@pytest.mark.parametrize(
    ("items", "each", "text"),
    [
        (b'{"not": "a list"}', {}, "a list was expected"),
        (b"null", {}, "a list was expected"),
    ],
)
def test_no_list_is_a_certain_failure(items: bytes, each: dict[str, Any], text: str) -> None:
    """The each fails, with an alert; nothing was begun."""
    case = over(items, PACK, **each)
    assert case.states == "failed waiting waiting"
    assert (case.task.state, case.alerts) == ("undone", ["step_gave_up"])
    assert text in case.task.cause


def test_at_once_makes_lanes() -> None:
    """Item n begins after item n - at_once has ended."""
    case = over(b'[{"sku":1,"n":1},{"sku":2,"n":2},{"sku":3,"n":3}]', PACK, SHIP, at_once=2)
    assert case.asked == [(3, "do"), (5, "do")]
    assert case.step(7).plan.after == (4,)
    case.done(3)
    assert case.asked == [(4, "do")]
    case.done(4)
    assert case.asked == [(7, "do")]


def test_an_each_is_decided_anew() -> None:
    """Items keep row and index with round + 1, surplus ones are skipped, new ones are added."""
    case = Case(
        action(0),
        StepPlan(1, "each", name="each", args=whole(result_of(0)), after=(0,), body=(action(-1, args=whole(Ref("item", 1))),)),
        StepPlan(2, "gather", name="gather", after=(1,), of=1, sides=(whole(result_of(-1)),)),
    )  # fmt: skip
    case.answer(0, value=b"[10,20]")
    case.answer(3, value=b"1")
    case.answer(4, "permanent")
    case.answer(3)
    case.answer(0)
    assert case.states == "undone kept waiting undone failed"
    case.act("resubmit")
    assert [s.round for s in case.held.steps] == [2, 2, 1, 2, 2]
    case.say(TaskMessage("claim"))
    case.answer(0, value=b"[30]")
    assert case.states == "done done waiting running skipped"
    assert case.request.args == b"30"
    case.answer(3, "permanent")
    case.answer(0)
    case.act("resubmit")
    case.say(TaskMessage("claim"))
    case.answer(0, value=b"[40,50,60]")
    assert case.states == "done done waiting running running running"
    assert [q.args for q in case.last.requests] == [b"40", b"50", b"60"]
    assert [s.round for s in case.held.steps] == [3, 3, 1, 3, 3, 1]
    for idx in (3, 4, 5):
        case.answer(idx, value=b"%d" % idx)
    assert case.step(2).result == b"[3,4,5]"
    assert case.task.state == "processed"


def test_an_undo_takes_items_back_before_what_was_before_the_each() -> None:
    """Items are undone, then the each is kept, then what came before it is undone."""
    case = Case(
        action(0),
        StepPlan(1, "each", name="each", args=whole(Ref("input", 0)), after=(0,), body=(action(-1),)),
        StepPlan(2, "gather", name="gather", after=(1,), of=1),
        action(3, 2),
        inputs=(b"[1,2]",),
    )
    case.done(0, 4, 5)
    case.answer(3, "permanent")
    assert sorted(case.asked) == [(4, "undo"), (5, "undo")]
    case.answer(4)
    assert case.asked == []
    case.answer(5)
    assert case.asked == [(0, "undo")]
    assert case.states == "undoing kept kept failed undone undone"


# -- nested ------------------------------------------------------------------------------------------------------------------


def test_a_when_inside_a_body() -> None:
    """Each item decides for itself; its merge and its guards are its own."""
    case = over(
        b"[true,false]",
        StepPlan(-1, "when", name="when", condition=Condition("true", whole(Ref("item", 0)))),
        action(-2, -1, guards=((-1, True),)),
        StepPlan(
            -3, "merge", name="merge", after=(-2,), of=-1, sides=(whole(result_of(-2)), value('"none"'))
        ),
        sides=(whole(result_of(-3)),),
    )
    assert case.states == "done waiting waiting done running waiting done skipped done"
    assert [(s.plan.of, s.plan.item_of) for s in case.held.steps[3:6]] == [(0, -1), (0, -1), (3, 0)]
    case.answer(4, value=b'"yes"')
    assert case.step(1).result == b'["yes","none"]'


def test_an_each_inside_an_each() -> None:
    """Refs reach the inner item, the outer item, a step of the outer body, and a step outside both."""
    inner = action(
        inside(0),
        args=template(
            "[",
            Ref("item", inside(1, 1)),
            ",",
            Ref("item", 1, ("name",)),
            ",",
            Ref("step", inside(0, 1)),
            ",",
            Ref("step", 0),
            "]",
        ),
    )
    body = (
        action(inside(0)),
        StepPlan(
            inside(1),
            "each",
            name="inner",
            args=whole(Ref("item", 1, ("of",))),
            after=(inside(0),),
            body=(inner,),
        ),
        StepPlan(
            inside(2),
            "gather",
            name="all",
            after=(inside(1),),
            of=inside(1),
            sides=(template('{"v":', Ref("step", inside(0)), ',"o":', Ref("step", inside(0, 1)), "}"),),
        ),
    )
    case = Case(
        action(0),
        StepPlan(1, "each", name="outer", args=whole(Ref("input", 0)), after=(0,), body=body),
        StepPlan(2, "gather", name="result", after=(1,), of=1, sides=(whole(Ref("step", inside(2))),)),
        inputs=(b'[{"name":"x","of":[7,8]},{"name":"y","of":[]}]',),
        returns=whole(result_of(2)),
    )
    case.answer(0, value=b'"s0"')
    assert case.asked == [(3, "do"), (6, "do")]
    case.answer(3, value=b'"first"')
    assert [(q.idx, q.args) for q in case.last.requests] == [
        (9, b'[7,"x","first","s0"]'),
        (10, b'[8,"x","first","s0"]'),
    ]
    assert [s.name for s in case.held.steps[9:]] == ["s-1[0][0]", "s-1[0][1]"]
    case.answer(6, value=b'"second"')
    case.answer(10, value=b"2")
    assert saga.hold(case.task, case.held.steps).open == case.held.open
    case.answer(9, value=b"1")
    assert case.task.result == b'[[{"v":1,"o":"first"},{"v":2,"o":"first"}],[]]'


def over_limit(**limits: Any) -> Case:
    """Return a task whose list has three items, after a step that is done."""
    each = StepPlan(
        1, "each", name="each", args=whole(result_of(0)), after=(0,), body=(action(-1),), **limits
    )
    case = Case(action(0), each, StepPlan(2, "gather", name="gather", after=(1,), of=1))
    case.answer(0, value=b"[1,2,3]")
    return case


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"limit": 2}, r"the list has 3 items, the limit is 2: raise mg.each(limit=...)"),
        ({"step_limit": 5}, r"with 3 items the task would have 6 steps, the limit is 5: raise App(step_limit=...)"),
    ],
)  # fmt: skip
def test_over_its_limit_an_each_holds_the_task(limits: dict[str, int], text: str) -> None:
    """What was done stays in place until an operator decides; nothing of the list has begun."""
    case = over_limit(**limits)
    assert case.states == "done failed waiting"
    assert (case.task.state, case.task.goal) == ("error", "hold")
    assert case.alerts == ["step_gave_up", "held"]
    assert text in case.task.cause
    assert case.act("undo")[0] == "applied"
    assert case.asked == [(0, "undo")]


@pytest.mark.parametrize(
    ("step_limit", "alerts"), [(7, ["near_limit"]), (8, []), (6, ["near_limit"]), (0, [])]
)
def test_near_the_limit_of_steps_there_is_an_alert(step_limit: int, alerts: list[str]) -> None:
    """Six steps: more than 80% of seven, and not of eight. The task goes on."""
    case = over_limit(step_limit=step_limit)
    assert case.asked == [(3, "do"), (4, "do"), (5, "do")]
    assert case.alerts == alerts


def test_there_is_one_alert_near_the_limit() -> None:
    """A second list of a task that was near already raises none."""
    more = StepPlan(
        3, "each", name="more", args=template("[1]"), after=(2,), body=(action(-1),), step_limit=10
    )
    case = Case(
        StepPlan(0, "each", name="each", args=template("[1,2,3,4]"), body=(action(-1),), step_limit=10),
        StepPlan(1, "gather", name="gather", after=(0,), of=0),
        action(2, 1),
        more,
        StepPlan(4, "gather", name="last", after=(3,), of=3),
    )  # fmt: skip
    assert case.alerts == ["near_limit"]
    case.done(5, 6, 7, 8, 2)
    assert case.asked == [(9, "do")]
    assert case.alerts == []
