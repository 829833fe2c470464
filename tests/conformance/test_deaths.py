"""Attempts of dead processes are judged before their deadlines, where the service honours keys and the task goes forward."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.model.plan import StepPlan, Template
from makegood.model.policy import Policy
from makegood.store.protocol import Store
from makegood.store.step_down import LEADER
from tests.conformance.builders import ARGS, Hand, agent, begin, info, offer, reply, running, term, unchanged
from tests.conformance.worlds import World

LIFE, WITHIN, GRACE = 10.0, 300.0, 2.0


def steps(*, resumes: bool = True) -> tuple[StepPlan, ...]:
    """Return one step, whose service honours keys; its arguments look like a policy that says so."""
    args = Template(('{"n":"\\"resumes\\":true"}',)) if not resumes else Template((ARGS.decode(),))
    policy = Policy(within=WITHIN, resumes=resumes)
    return (StepPlan(0, "action", "s0", "payments", "act0", args, policy=policy),)


async def dead_agent(store: Store, world: World, *ids: int, resumes: bool = True, **changes: Any) -> Hand:
    """Let an agent take the requests of tasks and miss its heartbeat; its row is marked."""
    scheduler = await running(store, *ids, steps=steps(resumes=resumes), **changes)
    assert len(await store.requests.take(await agent(store, ttl=LIFE), [offer(len(ids))])) == len(ids)
    await world.elapse(LIFE + 1)
    return scheduler


async def test_an_attempt_of_a_dead_process_is_judged_before_its_deadline(store: Store, world: World) -> None:
    scheduler = await dead_agent(store, world, 1)
    grant, now = await term(store, ttl=1e6), await store.now()
    assert (await store.supervision.judge_dead(grant, GRACE, 10)).requests == []  # it is not marked yet
    await store.supervision.release_dead(grant, 10)
    assert (await store.supervision.judge_dead(grant, GRACE, 10)).requests == [(1, 0, 1, 1)]
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    (message,) = snapshot.messages
    assert (message.kind, message.doing, message.attempt, message.failures) == ("expired", "do", 1, 1)
    assert message.died
    assert not message.excused
    assert message.runs_until == pytest.approx(now - LIFE - 1 + WITHIN + GRACE, abs=5.0)
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.steps[0].failures, detail.steps[0].doing, detail.task.failure_count) == (1, None, 1)
    assert (await store.supervision.judge_dead(grant, GRACE, 10)).requests == []


async def test_its_answer_is_late(store: Store, world: World) -> None:
    """The process was only slow: it answers in its time, under the number that counts as dead."""
    scheduler = await running(store, 1, steps=steps())
    node = await agent(store, ttl=LIFE)
    (request,) = await store.requests.take(node, [offer()])
    await world.elapse(LIFE + 1)
    grant = await term(store, ttl=1e6)
    await store.supervision.release_dead(grant, 10)
    await store.supervision.judge_dead(grant, GRACE, 10)
    assert await store.requests.answer(node, [reply(request)]) == [False]
    assert not await store.requests.extend(node, 1, 0, 1, 60.0)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert sorted(message.kind for message in snapshot.messages) == ["expired", "late"]


async def test_services_without_keys_and_processes_that_live_or_have_stopped_are_left_alone(
    store: Store, world: World
) -> None:
    await dead_agent(store, world, 1, resumes=False)
    await running(store, 2, 3, steps=steps())
    alive, stopping = await agent(store, ttl=1e6), await agent(store, ttl=1e6)
    for node in (alive, stopping):
        await store.requests.take(node, [offer(1)])
    await store.nodes.unregister(stopping)
    grant = await term(store, ttl=1e6)
    await store.supervision.release_dead(grant, 10)
    assert (await store.supervision.judge_dead(grant, GRACE, 10)).requests == []


async def test_a_task_that_no_longer_goes_forward_waits_for_the_deadline(store: Store, world: World) -> None:
    scheduler = await dead_agent(store, world, 1)
    decision = unchanged(scheduler[1])
    decision.task = replace(decision.task, goal="undo")
    await scheduler.commit(decision)
    grant = await term(store, ttl=1e6)
    await store.supervision.release_dead(grant, 10)
    assert (await store.supervision.judge_dead(grant, GRACE, 10)).requests == []
    await world.elapse(WITHIN)
    assert [r[0] for r in (await store.supervision.judge(grant, GRACE, 10)).requests] == [1]


async def test_undos_and_probes_wait_for_the_deadline(store: Store, world: World) -> None:
    scheduler = await running(store, 1, 2, steps=steps())
    first = await agent(store, ttl=1e6)
    for request in await store.requests.take(first, [offer(2)]):
        await store.requests.answer(first, [reply(request, "gave_up")])
    for task, doing in ((1, "undo"), (2, "probe")):
        decision = begin(scheduler[task], 0, doing=doing)
        decision.used_requests.append((0, 1))
        await scheduler.commit(decision)
    assert len(await store.requests.take(await agent(store, ttl=LIFE), [offer(2)])) == 2
    await world.elapse(LIFE + 1)
    grant = await term(store, ttl=1e6)
    await store.supervision.release_dead(grant, 10)
    assert (await store.supervision.judge_dead(grant, GRACE, 10)).requests == []


async def test_at_most_limit_are_judged_and_the_others_next(store: Store, world: World) -> None:
    await dead_agent(store, world, 1, 2, 3)
    grant = await term(store, ttl=1e6)
    await store.supervision.release_dead(grant, 10)
    first = await store.supervision.judge_dead(grant, GRACE, 2)
    assert (len(first.requests), first.full) == (2, True)
    second = await store.supervision.judge_dead(grant, GRACE, 2)
    assert (len(second.requests), second.full) == (1, False)


async def test_of_two_supervisors_one_counts_a_death(store: Store, other: Store, world: World) -> None:
    await dead_agent(store, world, *range(1, 11))
    grant = await term(store, ttl=1e6)
    await store.supervision.release_dead(grant, 100)
    verdicts = await asyncio.gather(
        store.supervision.judge_dead(grant, GRACE, 100), other.supervision.judge_dead(grant, GRACE, 100)
    )
    assert sorted(r[0] for each in verdicts for r in each.requests) == list(range(1, 11))


# Marks


async def test_a_process_that_is_marked_has_to_register_again_and_its_tasks_are_freed_at_once(
    store: Store,
) -> None:
    scheduler = await running(store, 1, local=True, steps=steps())
    others = [await agent(store), await agent(store)]
    await store.nodes.unregister(others[1])
    assert [number for number, _ in await store.nodes.processes()] == [scheduler.node, others[0]]
    assert await store.nodes.mark_dead([scheduler.node, others[1], 4711]) == [scheduler.node]
    assert await store.nodes.mark_dead([scheduler.node]) == []
    assert [number for number, _ in await store.nodes.processes()] == [others[0]]
    assert not await store.nodes.heartbeat(scheduler.node, info())
    grant = await term(store, ttl=1e6)
    assert await store.supervision.release_dead(grant, 10, marks=False) == [1]
    assert (await store.supervision.judge_dead(grant, GRACE, 10)).requests == [(1, 0, 1, 1)]


async def test_before_a_full_interval_only_marked_processes_lose_their_tasks(
    store: Store, world: World
) -> None:
    scheduler = await running(store, 1, steps=steps())
    await world.elapse(61)
    grant = await term(store, ttl=1e6)
    assert await store.supervision.release_dead(grant, 10, marks=False) == []
    assert await store.nodes.heartbeat(scheduler.node, info("scheduler")), "it was marked"


async def test_the_lease_of_a_marked_process_ends_and_no_other(store: Store) -> None:
    for name in ("leader", "another"):
        grant = await store.leases.acquire(LEADER, name, f"nonce of {name}", 60.0)
        assert grant is not None
        bystander = await store.nodes.register(info("bystander"))
        await store.nodes.mark_dead([bystander])
        assert await store.leases.renew(grant)
        number = await store.nodes.register(info(name))
        await store.nodes.mark_dead([number])
        assert not await store.leases.renew(grant)
    terms = await store.leases.past_terms(LEADER)
    assert [(past.holder, past.epoch) for past in terms] == [("another", 2), ("leader", 1)]


async def test_the_moment_until_which_an_attempt_may_run_is_kept_with_its_step(store: Store) -> None:
    at = 1_790_000_000.125
    scheduler = await running(store, 1, steps=steps())
    decision = unchanged(scheduler[1])
    decision.steps[0] = replace(scheduler[1].steps[0], state="in_doubt", doubt=True, runs_until=at)
    await scheduler.commit(decision)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert snapshot.steps[0].runs_until == at
