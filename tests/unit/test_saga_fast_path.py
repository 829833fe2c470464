"""The straight road and the remembered beginnings decide what the long way decides, in whatever world."""

import random
from typing import Any

import pytest

from makegood import saga
from makegood.declare.outcomes import NOTHING
from makegood.model.decision import Decision
from makegood.model.messages import SignalRef, TaskMessage
from makegood.model.plan import StepPlan
from makegood.model.shape import HeldTask, Shape
from makegood.model.task import Step, TaskRecord
from makegood.saga import decisions
from makegood.saga.decisions import fold
from makegood.saga.fast_path import straight
from makegood.saga.first_decision import opening_decision
from makegood.workflow.app import App
from makegood.workflow.verbs import each, when
from tests.unit.saga_case import Case, action, changes, result_of, template
from tests.unit.saga_rows import Record
from tests.unit.saga_world import World


def test_every_decision_of_many_worlds_is_the_same_by_either_road(monkeypatch: pytest.MonkeyPatch) -> None:
    roads = {"straight": 0, "long": 0, "ended": 0, "shared": 0}

    def both(memory: HeldTask, messages: list[TaskMessage], at: saga.At, due: saga.Due) -> Decision:
        long = fold(memory, messages, at, due)
        short = straight(memory, messages[0]) if len(messages) == 1 and not due else None
        roads["long" if short is None else "straight"] += 1
        if short is not None:
            assert changes(short) == changes(long)
            roads["shared"] += short.shape_step is not None
            roads["ended"] += short.release
        return long

    monkeypatch.setattr(saga, "decide", both)
    for seed in range(450):
        World(random.Random(seed), Record(), hostile=seed % 4 == 0).run()
    assert roads["straight"] > 250
    assert roads["ended"] > 20
    assert roads["shared"] > 60
    assert roads["long"] > roads["straight"]


@pytest.mark.parametrize(
    ("kind", "changes_"),
    [
        ("done", {"attempt": 2}),  # another attempt
        ("permanent", {}),
        ("gave_up", {}),
        ("later", {"wait": 1.0}),
        ("done", {"doing": "probe"}),
        ("done", {"idx": 7}),  # no such step
    ],
)
def test_what_is_not_plain_is_left_to_the_long_way(kind: str, changes_: dict[str, object]) -> None:
    case = Case(action(0), action(1, 0))
    message = TaskMessage(**{"kind": kind, "idx": 0, "doing": "do", "attempt": 1, **changes_})  # type: ignore[arg-type]
    assert straight(case.held, message) is None


def test_arguments_that_cannot_be_put_together_are_left_to_the_long_way() -> None:
    case = Case(action(0), action(1, 0, args=template('{"x":', result_of(0, "missing"), "}")))
    assert straight(case.held, TaskMessage("done", 0, "do", 1, b"{}")) is None
    assert case.say(TaskMessage("done", 0, "do", 1, b"{}")).task.cause.startswith("s1")


def test_decide_takes_the_straight_road(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or nothing of this file would matter."""
    case = Case(action(0), action(1, 0))
    monkeypatch.setattr(decisions, "fold", lambda *_: pytest.fail("the long way"))
    assert case.say(TaskMessage("done", 0, "do", 1, b"1")).requests[0].idx == 1


def test_a_task_whose_signals_have_come_takes_the_straight_road(monkeypatch: pytest.MonkeyPatch) -> None:
    approval = StepPlan(0, "wait_for", "approval", action="approval")
    case = Case(approval, action(1, 0), action(2, 1), signals=(("approval", ""),))
    case.say(TaskMessage("signal", value=b"true", signal=SignalRef("approval", "1", ""), seq=1))
    monkeypatch.setattr(decisions, "fold", lambda *_: pytest.fail("the long way"))
    assert case.answer(1).requests[0].idx == 2
    assert case.answer(2).task.state == "processed"


def _task(number: int, *, priority: int = 0) -> TaskRecord:
    return TaskRecord(
        number, "shop", "order", priority=priority, within=60.0, inputs=(b"%d" % number, b"{}"), epoch=1
    )


def test_a_remembered_beginning_is_that_of_the_rules() -> None:
    """Tasks with the same steps, and other inputs, priority, plans between them."""
    plans = [Case(action(0), action(1), action(2, 0, 1)).held.steps, Case(action(0), action(1, 0)).held.steps]
    shapes = [Shape(step.plan for step in steps) for steps in plans]
    for number in range(1, 9):
        shape = shapes[number % 2]
        task = _task(number, priority=number)
        memory, first = saga.begin(task, shape)
        true = saga.hold(task, map(Step, shape))
        assert (memory.task, memory.steps, memory.open, memory.left) == (
            true.task,
            true.steps,
            true.open,
            true.left,
        )
        assert memory.followers == true.followers
        beginning = opening_decision(true)
        assert first is not None
        assert beginning is not None
        assert changes(first) == changes(beginning)
        saga.apply_first(memory, first)
        saga.apply(true, beginning)
        assert (memory.task, memory.steps, memory.open, memory.left) == (
            true.task,
            true.steps,
            true.open,
            true.left,
        )
        assert [s.state for s in memory.steps].count("running") == len(first.requests)


def test_tasks_of_a_shape_with_items_begin_alike_and_go_on_apart() -> None:
    """What an ``each`` adds to one task, of three items or of none, the others do not have."""
    app = App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=NOTHING)
    def items(order: int) -> list[int]:
        return [order]

    @desk.action(complete_within="20s", undo=NOTHING)
    def pack(item: int) -> bool:
        return bool(item)

    @app.workflow(complete_within="1h")
    def order(number: int) -> Any:
        return when(pack(number), then=lambda: each(items(number), pack), otherwise=lambda: items(number))

    plan = order.plan(0)
    assert order.plan(1).steps is plan.steps, "tasks alike share their steps"
    tasks = [saga.begin(_task(n), Shape.of(plan.steps)) for n in range(4)]
    alone = [saga.hold(_task(n), map(Step, plan.steps)) for n in range(4)]
    for n, ((memory, first), true) in enumerate(zip(tasks, alone, strict=True)):
        assert first is not None
        for follows in (memory, true):
            decision = saga.decide(follows, [TaskMessage("claim")]) if follows is true else first
            saga.apply(follows, decision)
            for idx in range(len(plan.steps)):
                if follows.steps[idx].state == "running":
                    value = b"true" if plan.steps[idx].action == "pack" else (b"[1,2,3]" if n % 2 else b"[]")
                    saga.apply(follows, saga.decide(follows, [TaskMessage("done", idx, "do", 1, value)]))
        assert (memory.steps, memory.followers, memory.open, memory.left) == (
            true.steps,
            true.followers,
            true.open,
            true.left,
        )
    assert len({len(memory.steps) for memory, _ in tasks}) == 2
