"""What tasks count of a Scheduler's memory."""

from msgspec.structs import replace

from makegood import saga
from makegood.base.sizes import KIB, MIB
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.shape import Shape
from makegood.model.task import Step, TaskRecord
from makegood.scheduler.task_memory import STEP, TASK, Weights, weigh, weigh_added

PLANS = tuple(StepPlan(n, name=f"s{n}", args=Template(("x" * 10, "y" * 5))) for n in range(3))
SMALL = TaskRecord(1, "shop", "sell", inputs=(b"12345", b"67"))


def test_a_task_counts_its_inputs_its_results_and_the_texts_of_its_steps() -> None:
    steps = [
        Step(PLANS[0], "done", result=b"r" * 100),
        Step(PLANS[1], "done", late=b"l" * 40),
        Step(PLANS[2]),
    ]
    memory = saga.hold(replace(SMALL, result=b"z" * 30), steps)
    assert weigh(memory) == TASK + 3 * STEP + 7 + 30 + 140 + 3 * 15
    assert weigh(memory, [TaskMessage("done", value=b"v" * 50), TaskMessage("dead")]) == weigh(memory) + 50
    memory.shape = Shape(PLANS)
    assert weigh(memory) == TASK + 3 * STEP + 7 + 30 + 140, "the texts are those of all tasks of its shape"
    assert weigh_added(steps) == 3 * STEP + 45


def test_10_000_ordinary_tasks_fit() -> None:
    """The default does not change what a Scheduler holds of tasks with ten steps and ten kilobytes."""
    plans = tuple(StepPlan(n, name=f"s{n}", args=Template(('{"order":', "}"))) for n in range(10))
    memory = saga.hold(replace(SMALL, inputs=(b"x" * 10 * KIB,)), map(Step, plans))
    assert weigh(memory) * 10_000 < 256 * MIB


def test_the_sum_is_that_of_what_is_known() -> None:
    weights = Weights(100 * KIB)
    weights.put(1, 10_000)
    weights.put(2, 20_000)
    weights.grow(1, 5000)
    weights.grow(3, 5000)  # not known, or no longer
    assert (weights.total, weights.mean, weights.of(1), weights.of(9)) == (35_000, 17_500, 15_000, 17_500)
    weights.put(1, 1000)
    weights.drop(2)
    weights.drop(2)
    assert (weights.total, weights.room) == (1000, 100 * KIB - 1000)
    weights.put(4, 150 * KIB)
    assert weights.room == 0
    weights.drop(4)
    weights.drop(1)
    assert (weights.total, weights.mean) == (0, TASK)


def test_what_is_read_in_one_go_is_a_part_of_the_limit() -> None:
    assert [Weights(most).portion for most in (KIB, 32 * MIB, 256 * MIB, 1024 * MIB)] == [
        MIB, 2 * MIB, 16 * MIB, 16 * MIB
    ]  # fmt: skip
    weights = Weights(32 * MIB)
    assert weights.room == 2 * MIB
    for task in range(5):
        weights.put(task, MIB)
    assert list(weights.first_portion([0, 1, 2, 3])) == [0, 1]
    assert list(weights.first_portion([9, 8])) == [9, 8], "one that is not known counts as the others do"
    weights.put(7, 9 * MIB)
    assert list(weights.first_portion([7, 0])) == [7]
    assert list(weights.first_portion([])) == []
