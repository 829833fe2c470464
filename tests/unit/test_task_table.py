"""The tasks that a Scheduler holds: which are read again, and when their timers fire."""

import random

import pytest

from makegood import saga
from makegood.base.sizes import MIB
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.task import Step, TaskRecord
from makegood.scheduler.task_table import Review, TaskTable, Timers
from makegood.scheduler.wakeups import Wakeups
from makegood.testing.simulator.clocks import SimulatedClock
from tests.unit.test_eager_submission import Store


def test_what_is_held_is_reviewed_in_turn_and_not_too_often() -> None:
    """A thousand every half minute, but for those that are busy anyway; then from the beginning again."""
    review, tasks = Review(100.0), dict.fromkeys(range(1, 1502))
    assert review.some(tasks, (), 129.9) == []
    assert review.some(tasks, (3,), 130.0) == [1, 2, *range(4, 1002)]
    assert review.some(tasks, (), 159.0) == []
    assert review.some(tasks, (), 161.0) == [*range(1002, 1502)]
    assert review.some(tasks, (), 200.0)[:3] == [1, 2, 3]
    assert Review(0.0).some({}, (), 99.0) == []


def test_of_a_step_that_is_waited_for_twice_the_latest_word_counts() -> None:
    timers = Timers()
    timers.set(7, 0, 30.0)
    timers.set(7, 0, 20.0)
    timers.set(8, 1, 10.0)
    assert timers.first == pytest.approx(10.0)
    assert (timers.due(9.0), timers.due(10.0)) == (False, True)
    assert timers.pop(25.0) == [(8, 1), (7, 0)]
    assert timers.pop(31.0) == []
    assert timers.first is None


def test_a_task_that_is_let_go_has_no_timers_any_more() -> None:
    timers = Timers()
    timers.set(7, 0, 10.0)
    timers.set(8, 0, 10.0)
    timers.drop(7)
    assert timers.pop(10.0) == [(8, 0)]


def test_timers_of_tasks_that_are_forgotten_do_not_stay_until_they_are_due() -> None:
    """Tasks that are let go wait for months, and many of them."""
    timers = Timers()
    timers.set(0, 0, 5.0)
    for task in range(1, 10_000):
        timers.set(task, 0, 1e9 + task)
        timers.drop(task)
    assert len(timers._heap) < 3000
    assert timers.pop(6.0) == [(0, 0)]


def test_a_sleep_ends_by_the_stores_clock_however_fast_that_of_its_process_is() -> None:
    """Its own timer fires early, and is set again for what is left; a step that a service put off is not asked about."""
    own, store = [0.0], [100.0]
    clock = SimulatedClock(lambda: own[0])
    wakeups = Wakeups(Store(), clock, random.Random(1), None)
    table = TaskTable(clock, MIB, wakeups, lambda: store[0])
    sleep = StepPlan(0, "sleep", "sleep", args=Template(("10",)))
    steps = [Step(sleep, "ready", waiting=True), Step(StepPlan(1, name="s"), "ready", waiting=True)]
    table.hold(saga.hold(TaskRecord(1, "shop", "order"), steps), {0: 10.0, 1: 10.0})
    own[0], store[0] = 10.0, 106.0
    table.fire()
    assert table.messages.pop(1) == [TaskMessage("retry", 1)]
    own[0], store[0] = 13.9, 109.9
    table.fire()
    assert not table.messages
    own[0], store[0] = 14.1, 110.1
    table.fire()
    assert table.messages == {1: [TaskMessage("retry", 0)]}
