"""Waits in the store: a control step that stays ready with a timer row, until whoever holds its task ends it."""

from collections.abc import Sequence

from makegood import saga
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.shape import HeldTask, Shape
from makegood.scheduler.store_reader import restore
from makegood.store.protocol import Store
from makegood.store.records import Batch, Claim, Loaded
from tests.conformance.builders import draft, scheduler, steps
from tests.conformance.worlds import World


def nap(length: str = "60.0") -> Shape:
    """Return a plan of a sleep and an action after it."""
    (action,) = steps(1)
    sleep = StepPlan(0, "sleep", "sleep", args=Template((length,)))
    return Shape(
        [sleep, StepPlan(1, "action", "act", action.agent, action.action, after=(0,), policy=action.policy)]
    )


async def claim(store: Store, node: int) -> list[tuple[HeldTask, Decision, Loaded]]:
    """Claim all there is, and let the rules decide on it."""
    claims: list[tuple[HeldTask, Decision, Loaded]] = []

    def decide(tasks: Sequence[Loaded]) -> list[tuple[HeldTask, Decision]]:
        claims.clear()
        for each in tasks:
            held_task, messages = restore(each)
            claims.append((held_task, saga.decide(held_task, messages), each))
        return [(held_task, decision) for held_task, decision, _ in claims]

    await store.tasks.commit(Batch(node, claim=Claim(10), decide=decide))
    for held_task, decision, _ in claims:
        saga.apply(held_task, decision)
    return claims


async def committed(store: Store, node: int, held_task: HeldTask, message: TaskMessage) -> Decision:
    """Let the rules decide on a message, and commit it."""
    decision = saga.decide(held_task, [message])
    outcome = await store.tasks.commit(Batch(node, [decision]))
    assert not outcome.losses
    saga.apply(held_task, decision)
    return decision


async def test_its_timer_row_says_when_it_ends_to_whoever_claims_its_task(store: Store, world: World) -> None:
    first, second = await scheduler(store), await scheduler(store)
    await store.tasks.submit([draft(1, steps=nap())])
    ((held_task, decision, _),) = await claim(store, first)
    assert (held_task.steps[0].state, dict(decision.timers)) == ("ready", {0: 60.0})
    await world.elapse(20, pending=True)
    await committed(store, first, held_task, TaskMessage("dead"))
    ((held_task, decision, loaded),) = await claim(store, second)
    assert held_task.steps[0].waiting
    assert not decision.timers
    assert 30 < loaded.due[0] <= 40
    await world.elapse(41, pending=True)
    await committed(store, second, held_task, TaskMessage("dead"))
    ((held_task, decision, _),) = await claim(store, second)
    assert [step.state for step in held_task.steps] == ["done", "running"]
    assert [request.idx for request in decision.requests] == [1]
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert [(step.kind, step.state, step.waiting) for step in detail.steps] == [
        ("sleep", "done", False), ("action", "running", False),
    ]  # fmt: skip


async def test_a_cancel_drops_its_timer_row(store: Store) -> None:
    node = await scheduler(store)
    await store.tasks.submit([draft(1, steps=nap())])
    ((held_task, _, _),) = await claim(store, node)
    await committed(store, node, held_task, TaskMessage("cancel"))
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.task.state, [(s.state, s.waiting) for s in detail.steps]) == (
        "undone", [("waiting", False), ("waiting", False)],
    )  # fmt: skip


async def test_a_task_that_sleeps_is_sound_and_no_orphan(store: Store) -> None:
    node = await scheduler(store)
    await store.tasks.submit([draft(1, steps=nap())])
    await claim(store, node)
    assert await store.admin.orphans(10) == []
    findings = await store.admin.examine()
    assert [finding for finding in findings if finding.severity == "error"] == []
    (brief,) = (await store.tasks.briefs([1]))[1][:1]
    assert (brief.kind, brief.state, brief.doing) == ("sleep", "ready", "timer")
    assert brief.due is not None
