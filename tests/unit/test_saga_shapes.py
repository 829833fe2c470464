"""Shapes: what is worked out once for tasks of one shape decides for each of them what the long way decides."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from makegood import saga
from makegood.model.decision import Decision
from makegood.model.messages import SignalRef, TaskMessage
from makegood.model.plan import Kind, Ref, StepPlan, Template
from makegood.model.shape import HeldTask, Shape
from makegood.model.task import Step, TaskRecord
from makegood.saga.decisions import fold
from tests.unit.saga_case import action, changes, result_of, template

INPUT = Ref("input", 0)

SEQUENCE = Shape(
    (
        action(0, args=template('{"a":', INPUT, "}")),
        action(1, 0, args=template('{"b":', result_of(0), ',"a":', INPUT, "}")),
        action(2, 1, args=template('{"c":', result_of(0, "of"), "}")),
    )
)
FAN = Shape(
    (
        action(0),
        action(1, 0, args=template('{"x":', result_of(0), "}")),
        action(2, 0),
        action(3, 1, 2, args=template('{"x":', result_of(1), ',"y":', result_of(2), "}")),
        action(4, 3),
        action(5, 3),
    )
)


def task(number: int, **fields: Any) -> TaskRecord:
    returns = Template(('{"r":', "}"), (result_of(1),))
    values = {"inputs": (b"%d" % number,), "returns": returns, **fields}
    return TaskRecord(number, "shop", "order", within=60.0, epoch=1, **values)


def copy(memory: HeldTask) -> HeldTask:
    """A task as another process would hold it: nothing is known of others like it."""
    return saga.hold(memory.task, memory.steps)


class Shop:
    """Tasks of some shapes that begin here, advance in any order, and are decided both ways each time."""

    def __init__(self) -> None:
        self.shared = 0
        self.shapes: dict[int, Shape] = {}

    def begin(self, plans: Shape, number: int, **fields: Any) -> HeldTask:
        shape = self.shapes.setdefault(id(plans), Shape(plans))
        saga.begin(task(0), shape)  # nothing is kept of a shape that came once only
        memory, first = saga.begin(task(number, **fields), shape)
        assert first is not None
        saga.apply_first(memory, first)
        return memory

    def say(self, memory: HeldTask, *messages: TaskMessage) -> Decision:
        decision = saga.decide(memory, messages)
        assert changes(decision) == changes(fold(copy(memory), messages))
        self.shared += decision.shape_step is not None
        saga.apply(memory, decision)
        again = copy(memory)
        assert (again.steps, again.open, again.left) == (memory.steps, memory.open, memory.left)
        return decision

    def done(self, memory: HeldTask, idx: int, **fields: Any) -> Decision:
        step = memory.steps[idx]
        value = b'{"of":%d}' % (memory.task.id * 100 + idx)
        message = TaskMessage("done", idx, "do", step.attempt, value)
        return self.say(memory, replace(message, **fields))


@pytest.mark.parametrize("plans", [SEQUENCE, FAN], ids=["sequence", "fan"])
def test_tasks_of_a_shape_are_decided_alike_in_whatever_order_their_steps_end(
    plans: Shape,
) -> None:
    shop, r = Shop(), random.Random(7)
    for number in range(1, 40):
        trace = {"trace": f"00-{number}"} if number % 5 == 0 else {}
        memory = shop.begin(plans, number, priority=number % 10, **trace)
        while memory.task.state == "processing":
            shop.done(memory, r.choice([s.idx for s in memory.steps if s.state == "running"]))
        assert memory.task.result == b'{"r":{"of":%d}}' % (number * 100 + 1)
    assert shop.shared > 39 * 3 - 2


def test_what_is_the_same_in_all_tasks_is_one_object() -> None:
    """By this the stores find what is alike without comparing it."""
    shop = Shop()
    one, other = (shop.done(shop.begin(SEQUENCE, number), 0) for number in (1, 2))
    assert one.shape_step is other.shape_step is not None
    assert one.moves is other.moves
    assert one.steps[1] is other.steps[1]
    assert one.steps[0] != other.steps[0]
    assert one.requests[0].args != other.requests[0].args


def test_tasks_that_wait_share_what_follows_their_actions() -> None:
    """Their waits are decided one by one, and with the first task so are its steps."""
    kinds: tuple[tuple[Kind, str], ...] = (
        ("action", "do"),
        ("wait_for", "approval"),
        ("action", "do"),
        ("sleep", ""),
        ("action", "do"),
    )
    plans = Shape(
        StepPlan(n, kind, f"s{n}", "desk", name, template("60.0"), after=tuple(range(n))[-1:])
        for n, (kind, name) in enumerate(kinds)
    )  # fmt: skip
    shop = Shop()
    for number in range(1, 4):
        memory = shop.begin(plans, number, signals=(("approval", ""),))
        assert shop.done(memory, 0).timers == {1: 60.0}
        approval = TaskMessage("signal", value=b"true", signal=SignalRef("approval", "1", ""), seq=number)
        assert [r.idx for r in shop.say(memory, approval).requests] == [2]
        assert shop.done(memory, 2).timers == {3: 60.0}
        assert [r.idx for r in shop.say(memory, TaskMessage("retry", 3)).requests] == [4]
        last = shop.done(memory, 4)
        assert (last.shape_step is not None, last.release) == (True, True)


def test_a_join_takes_its_shape_step_with_the_last_step_only() -> None:
    shop = Shop()
    for number in (1, 2):
        memory = shop.begin(FAN, number)
        shop.done(memory, 0)
        first = shop.done(memory, 1 + number % 2)
        assert (first.requests, first.shape_step) == ([], None)  # the other one is still running
        assert [r.idx for r in shop.done(memory, 2 - number % 2).requests] == [3]
        assert [r.idx for r in shop.done(memory, 3).requests] == [4, 5]


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "gave_up"},
        {"kind": "permanent", "error": "no"},
        {"kind": "expired", "failures": 1},
        {"attempt": 2},
        {"doing": "undo"},
    ],
)
def test_what_is_no_plain_result_goes_the_long_way(fields: dict[str, Any]) -> None:
    shop = Shop()
    shop.done(shop.begin(SEQUENCE, 1), 0)
    memory = shop.begin(SEQUENCE, 2)
    assert shop.done(memory, 0, value=None, **fields).shape_step is None


def test_a_task_in_trouble_goes_alone_and_leaves_the_shape_step_of_the_others() -> None:
    shop = Shop()
    shop.done(shop.begin(SEQUENCE, 1), 0)
    memory = shop.begin(SEQUENCE, 2)
    shop.done(memory, 0, kind="gave_up", value=None)
    shop.say(memory, TaskMessage("retry", 0))
    assert memory.steps[0].attempt == 2
    assert shop.done(memory, 0).shape_step is None
    assert shop.done(memory, 1).shape_step is not None  # nothing was ever said about this step
    assert shop.done(shop.begin(SEQUENCE, 3), 0).shape_step is not None


def test_a_trouble_of_the_first_task_is_not_remembered() -> None:
    shop = Shop()
    memory = shop.begin(SEQUENCE, 1)
    shop.done(memory, 0, kind="gave_up", value=None)
    shop.say(memory, TaskMessage("retry", 0))
    shop.done(memory, 0)
    assert shop.done(shop.begin(SEQUENCE, 2), 0).shape_step is not None


def test_a_cancelled_task_takes_no_shape_step() -> None:
    shop = Shop()
    shop.done(shop.begin(SEQUENCE, 1), 0)
    memory = shop.begin(SEQUENCE, 2)
    shop.say(memory, TaskMessage("cancel"))
    assert shop.done(memory, 0).shape_step is None
    assert memory.task.state in ("undoing", "undone")


def test_several_messages_at_once_go_the_long_way_and_the_next_takes_the_short_way_again() -> None:
    shop = Shop()
    for number in (1, 2, 3):
        memory = shop.begin(FAN, number)
        shop.done(memory, 0)
        both = [TaskMessage("done", idx, "do", 1, b"%d" % idx) for idx in (1, 2)]
        assert shop.say(memory, *both).shape_step is None
        assert shop.done(memory, 3).shape_step is not None  # its record was made anew, and is equal


def test_a_part_of_a_result_that_is_not_there_is_left_to_the_long_way() -> None:
    shop = Shop()
    shop.done(shop.begin(SEQUENCE, 1), 0)
    memory = shop.begin(SEQUENCE, 2)
    shop.done(memory, 0, value=b"[]")
    decision = shop.done(memory, 1)
    assert decision.shape_step is None
    assert decision.task.cause.startswith("s2")


def test_an_input_that_a_task_lacks_is_left_to_the_long_way() -> None:
    """A workflow of *inputs may have the same steps with fewer of them."""
    shop = Shop()
    plans = Shape((action(0), action(1, 0, args=template('{"x":', Ref("input", 1), "}"))))
    shop.done(shop.begin(plans, 1, inputs=(b"1", b"2")), 0)
    memory = shop.begin(plans, 2, inputs=(b"1",))
    decision = shop.done(memory, 0)
    assert decision.shape_step is None
    assert decision.task.cause.startswith("s1")


def test_of_large_tasks_nothing_is_kept() -> None:
    """What follows each of ten thousand steps would be kept forever."""
    shop = Shop()
    plans = Shape(action(n, *((n - 1,) if n else ())) for n in range(101))
    memory = shop.begin(plans, 1)
    assert shop.done(memory, 0).shape_step is None
    assert memory.shape is None
    assert plans.following == {}


def test_claimed_tasks_share_what_follows_with_those_of_their_app_and_steps_only() -> None:
    shapes = saga.Shapes()
    memories = [saga.hold(task(n), map(Step, plans)) for n, plans in enumerate((SEQUENCE, SEQUENCE, FAN), 1)]
    memories.append(saga.hold(replace(task(4), app="other"), map(Step, SEQUENCE)))
    for each in [*memories, *memories]:
        shapes.share(each)
    shape = memories[0].shape
    assert shape is not None
    assert memories[1].shape is shape
    assert len({id(each.shape) for each in memories}) == 3
    shop = Shop()
    for each in memories[:2]:
        shop.say(each, TaskMessage("claim"))
        for idx in range(3):
            assert shop.done(each, idx).shape_step is shape.following[idx]
        assert each.task.state == "processed"


def test_of_tasks_with_control_steps_nothing_is_kept() -> None:
    memory = saga.hold(task(1), [Step(action(0)), Step(StepPlan(1, "when", "when", after=(0,)))])
    shapes = saga.Shapes()
    shapes.share(memory)
    shapes.share(memory)
    assert memory.shape is None


def test_of_a_shape_that_comes_once_nothing_is_worked_out() -> None:
    """Where something was calculated while it was planned, each task has its own."""
    shapes, shape = saga.Shapes(), Shape(SEQUENCE)
    late, (eager, _) = saga.hold(task(1), map(Step, SEQUENCE)), saga.begin(task(1), shape)
    shapes.share(late)
    assert (late.shape, eager.shape, shape.opening) == (None, None, None)
    shapes.share(late)
    eager, _ = saga.begin(task(2), shape)
    assert late.shape == eager.shape == shape
    assert shape.opening is not None


def test_of_steps_with_large_texts_nothing_is_worked_out() -> None:
    shape = Shape((action(0, args=template('{"x":"' + "x" * 65536 + '"}')),))
    for number in (1, 2, 3):
        memory, first = saga.begin(task(number), shape)
        assert first is not None
        assert memory.shape is None
    assert shape.opening is None


def test_only_so_many_shapes_of_claimed_tasks_are_kept() -> None:
    shapes = saga.Shapes()
    first = saga.hold(task(1), map(Step, SEQUENCE))
    shapes.share(first)
    shapes.share(first)
    assert first.shape == SEQUENCE
    plans = [action(0) for _ in range(100)]
    for n, plan in enumerate(plans):
        shapes.share(saga.hold(task(n), [Step(plan)]))
    again = saga.hold(task(1), map(Step, SEQUENCE))
    shapes.share(again)
    assert again.shape is None
