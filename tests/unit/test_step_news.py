"""Which commits wake those who wait for single steps: those that end one, in tasks that take signals alone."""

import pytest
from msgspec.structs import replace

from makegood.model.decision import Decision
from makegood.model.plan import StepPlan
from makegood.model.states import StepState
from makegood.model.task import Step, TaskRecord
from makegood.store.changes import tells_of_steps

PLAIN = TaskRecord(1, "shop", "order", state="processing")
TAKES_SIGNALS = replace(PLAIN, signals=(("word", ""),))


def decision(task: TaskRecord, state: StepState) -> Decision:
    """Return a Decision that moves one step to a state."""
    return Decision(task, task, steps={0: Step(StepPlan(0), state)})


@pytest.mark.parametrize("state", ["done", "failed", "skipped", "undoing", "undone", "undo_failed", "kept"])
def test_the_end_of_a_step_is_news_in_tasks_that_take_signals(state: StepState) -> None:
    assert tells_of_steps(decision(TAKES_SIGNALS, state))
    assert not tells_of_steps(decision(PLAIN, state)), "nobody can wait for it: no wake-up is paid for"


@pytest.mark.parametrize("state", ["waiting", "ready", "running", "in_doubt"])
def test_a_step_under_way_is_no_news_unless_the_task_turns(state: StepState) -> None:
    quiet = decision(TAKES_SIGNALS, state)
    assert not tells_of_steps(quiet)
    quiet.task = replace(TAKES_SIGNALS, goal="undo")
    assert tells_of_steps(quiet)
