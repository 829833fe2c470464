"""A race in the store: who has lost is in the rows, so that whoever claims the task continues its undos."""

from makegood import saga
from makegood.model.messages import TaskMessage
from makegood.model.plan import Ref, StepPlan, Template
from makegood.model.shape import Shape
from makegood.store.protocol import Store
from makegood.store.records import Batch
from tests.conformance.builders import draft, scheduler, steps
from tests.conformance.test_waits import claim, committed


def race() -> Shape:
    """Return a plan of two actions side by side, the first of them, and an action after it."""
    (action,) = steps(1)

    def act(idx: int, *after: int) -> StepPlan:
        return StepPlan(
            idx, "action", f"act{idx}", action.agent, action.action, after=after, policy=action.policy
        )

    sides = tuple(Template(("", ""), (Ref("step", n),)) for n in (0, 1))
    first = StepPlan(2, "first", "first", after=(0, 1), branches=(0, 1), sides=sides)
    return Shape([act(0), act(1), first, act(3, 2)])


async def test_who_has_lost_is_in_the_rows(store: Store) -> None:
    """The winner is known to the next Scheduler, which continues the undo of the other branch."""
    one, other = await scheduler(store), await scheduler(store)
    await store.tasks.submit([draft(1, steps=race())])
    ((held_task, _, _),) = await claim(store, one)
    await committed(store, one, held_task, TaskMessage("done", 1, "do", 1, value=b'"b"'))
    assert [step.loser for step in held_task.steps] == [True, False, False, False]
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert [step.loser for step in detail.steps] == [True, False, False, False]
    await committed(store, one, held_task, TaskMessage("dead"))
    ((held_task, _, _),) = await claim(store, other)
    assert [step.state for step in held_task.steps] == ["skipped", "done", "done", "running"]
    assert [step.loser for step in held_task.steps] == [True, False, False, False]
    assert held_task.steps[2].result == b'"b"'


async def test_a_loser_is_undone_by_whoever_claims_its_task(store: Store) -> None:
    """Both were done in one batch, and the Scheduler went before it asked the undo."""
    one, other = await scheduler(store), await scheduler(store)
    await store.tasks.submit([draft(1, steps=race())])
    ((held_task, _, _),) = await claim(store, one)
    replies = [TaskMessage("done", n, "do", 1, value=b'"%d"' % n) for n in (0, 1)]
    decision = saga.decide(held_task, [*replies, TaskMessage("dead")])
    assert not (await store.tasks.commit(Batch(one, [decision]))).losses
    ((held_task, decision, _),) = await claim(store, other)
    assert [(request.idx, request.doing) for request in decision.requests] == [(3, "do"), (1, "undo")]
    assert decision.requests[1].result == b'"1"'
    await committed(store, other, held_task, TaskMessage("done", 1, "undo", 2))
    decision = await committed(store, other, held_task, TaskMessage("done", 3, "do", 1, value=b'"sent"'))
    assert decision.task.state == "processed"
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert [(step.state, step.loser) for step in detail.steps] == [
        ("done", False), ("undone", True), ("done", False), ("done", False),
    ]  # fmt: skip
