"""What a Scheduler holds: made from rows, kept up to date, mended after a crash."""

import pytest
from msgspec.structs import replace

from makegood import saga
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan
from makegood.model.policy import Policy
from makegood.model.shape import HeldTask
from makegood.model.states import Goal, TaskState
from makegood.model.task import Step, TaskRecord
from makegood.saga import rules
from makegood.saga.held import predecessors
from tests.unit.saga_case import Case, action

TASK = TaskRecord(7, "shop", "order", state="processing")


def test_followers_and_open_predecessors() -> None:
    """Who follows whom is read from after, guards, of and item_of, each edge once; open counts what has not passed."""
    plans = [
        action(0),
        StepPlan(1, "when", name="w", after=(0,)),
        action(2, 1, guards=((1, True),)),
        StepPlan(3, "merge", name="m", after=(2, 0), of=1),
    ]
    memory = saga.hold(TASK, [Step(p, "done" if p.idx == 0 else "waiting") for p in reversed(plans)])
    assert [s.idx for s in memory.steps] == [0, 1, 2, 3]
    assert memory.followers == [(1, 3), (2, 3), (3,), ()]
    assert (memory.open, memory.left) == ([0, 0, 1, 2], 3)
    assert sorted(predecessors(plans[3])) == [0, 1, 2]


def test_a_gather_waits_for_every_step_of_its_each() -> None:
    """The items' steps are before the gather, although its plan does not name them."""
    plans = [
        StepPlan(0, "each", name="e"),
        StepPlan(1, "gather", name="g", after=(0,), of=0),
        replace(action(2), of=0, nth=0),
        StepPlan(3, "when", name="w", of=0, nth=0),
        StepPlan(4, "merge", name="m", of=3, item_of=0, nth=0),
    ]
    memory = saga.hold(TASK, [Step(p) for p in plans])
    assert memory.followers == [(1, 2, 3, 4), (), (1,), (1, 4), (1,)]
    assert memory.open == [0, 4, 1, 1, 2]


def test_apply_does_what_loading_would() -> None:
    """Counters after a Decision are those of the rows it leaves (the property runs assert it after every commit)."""
    case = Case(action(0), action(1, 0), action(2, 0, 1))
    assert case.held.open == [0, 1, 2]
    case.done(0)
    assert (case.held.open, case.held.left) == ([0, 0, 1], 2)
    case.act("cancel")
    assert case.held.left == 2
    case.say(TaskMessage("withdrawn", 1, "do", 1))
    assert case.step(0).state == "undoing"
    assert (case.held.open, case.held.left) == ([0, 1, 2], 3)


def test_a_decision_that_is_not_applied_leaves_no_trace() -> None:
    """A lost Decision is simply forgotten."""
    case = Case(action(0), action(1, 0))
    reply = [case.reply(0, "done", value=b"1")]
    first = saga.decide(case.held, reply)
    assert saga.decide(case.held, reply) == first
    assert case.states == "running waiting"


# -- repair ----------------------------------------------------------------------------------------------------------------


def loaded(at: TaskState, goal: Goal, /, **step: object) -> HeldTask:
    """Return a task with one step as rows have it when its request row is gone: doing None."""
    plan = action(0, probe=True)
    return saga.hold(replace(TASK, state=at, goal=goal), [replace(Step(plan, attempt=3), **step)])


@pytest.mark.parametrize("goal", ["hold", "undo"])
def test_a_running_step_without_a_row_was_withdrawn(goal: Goal) -> None:
    """The goal is no longer forward: its request was taken back, so the attempt did nothing."""
    memory = loaded("pending", goal, state="running")
    assert saga.repair(memory, []) == [TaskMessage("withdrawn", 0, "do", 3)]
    assert memory.steps[0].doing == "do"
    decision = saga.decide(memory, [TaskMessage("claim"), TaskMessage("withdrawn", 0, "do", 3)])
    assert decision.steps[0].state == "waiting"
    assert decision.task.state == ("error" if goal == "hold" else "undone")


def test_a_doubt_whose_last_attempt_was_a_probe() -> None:
    """Undoing: the probe was taken back and is asked again; the action is never taken for withdrawn."""
    memory = loaded("pending", "undo", state="in_doubt", doubt=True, asked=3)
    repairs = saga.repair(memory, [])
    assert repairs == [TaskMessage("withdrawn", 0, "probe", 3)]
    decision = saga.decide(memory, [TaskMessage("claim"), *repairs])
    assert [(q.doing, q.attempt) for q in decision.requests] == [("probe", 4)]


@pytest.mark.parametrize(
    ("goal", "step"),
    [
        ("hold", {"state": "in_doubt", "doubt": True, "asked": 3}),
        ("undo", {"state": "in_doubt", "doubt": True, "asked": 2}),
        ("undo", {"state": "in_doubt", "doubt": True, "asked": 3, "stuck": True}),
        ("undo", {"state": "in_doubt", "doubt": True, "asked": 3, "waiting": True}),
        ("undo", {"state": "running", "doing": "do"}),
        ("undo", {"state": "done"}),
        ("undo", {"state": "undo_failed"}),
        ("forward", {"state": "waiting"}),
        ("forward", {"state": "ready", "waiting": True}),
        ("forward", {"state": "in_doubt", "doubt": True, "asked": 3}),
    ],
)
def test_nothing_to_repair(goal: Goal, step: dict[str, object]) -> None:
    """Steps that rest, wait, or have their row are left alone."""
    memory = loaded("pending", goal, **step)
    before = memory.steps[0]
    assert saga.repair(memory, []) == []
    assert memory.steps[0] == before


@pytest.mark.parametrize(
    ("doing", "step"),
    [
        ("do", {"state": "running"}),
        ("probe", {"state": "in_doubt", "doubt": True, "asked": 3}),
        ("undo", {"state": "undoing"}),
    ],
)
@pytest.mark.parametrize("goal", ["forward", "undo"])
def test_a_judged_request_is_found_by_its_verdict(doing: str, step: dict[str, object], goal: Goal) -> None:
    """The Supervisor took the row and left ``expired``: that message finds its request again."""
    memory = loaded("pending", goal, **step)
    silence = TaskMessage("expired", 0, doing, 3, failures=1, seq=5)  # type: ignore[arg-type]
    assert saga.repair(memory, [silence]) == []
    assert memory.steps[0].doing == doing
    decision = saga.decide(memory, [TaskMessage("claim"), silence])
    assert decision.seqs == [5]
    assert decision.steps[0].error == "no answer by its deadline"


def test_a_verdict_on_an_earlier_attempt_is_none_on_this_one() -> None:
    """Only the attempt in flight counts."""
    memory = loaded("pending", "undo", state="running")
    assert saga.repair(memory, [TaskMessage("expired", 0, "do", 2)]) == [TaskMessage("withdrawn", 0, "do", 3)]


def test_an_unknown_loss_counts_as_silence() -> None:
    """Under a forward goal nothing is ever withdrawn: a row that is gone proves nothing."""
    memory = loaded("pending", "forward", state="running", failures=2)
    repairs = saga.repair(memory, [])
    assert repairs == [TaskMessage("expired", 0, "do", 3, failures=2)]
    decision = saga.decide(memory, [TaskMessage("claim"), *repairs])
    assert decision.steps[0].state == "in_doubt"
    assert decision.steps[0].failures == 2


@pytest.mark.parametrize(("state", "after"), [("running", "in_doubt"), ("undoing", "undo_failed")])
def test_a_task_in_error_with_something_in_flight_is_mended(state: str, after: str) -> None:
    """The rules never leave such a task; whoever did, an operator can go on with it."""
    memory = loaded("error", "undo", state=state)
    repairs = saga.repair(memory, [])
    assert [m.kind for m in repairs] == ["expired"]
    decision = saga.decide(memory, repairs)
    assert decision.steps[0].state == after
    assert decision.requests == []
    assert decision.timers == {}


def test_an_undo_without_a_row_is_asked_again() -> None:
    """Under its key, with the next attempt."""
    memory = loaded("pending", "undo", state="undoing")
    decision = saga.decide(memory, [TaskMessage("claim"), *saga.repair(memory, [])])
    assert [(q.doing, q.attempt) for q in decision.requests] == [("undo", 4)]


def test_a_plan_without_a_policy_still_has_one() -> None:
    """Rows of another version may lack it: the plain one stands in."""
    assert rules.policy(Step(StepPlan(0))) == Policy(within=60.0)
