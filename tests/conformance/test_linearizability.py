"""Claim, complete and re-queue of one task, by several callers at once: what each was told is explained by some order."""

import asyncio
import random
from collections import Counter

from makegood.election.protocol import Grant
from makegood.errors import FencedOffError
from makegood.store.protocol import Store
from makegood.store.views import Filter
from proofs.linearizable import RecordedCall, linearizable
from tests.conformance.builders import Hand, draft, hand, term, to_state
from tests.conformance.worlds import World

ROUNDS, MOST_ROUNDS = 20, 500


async def declared_dead(scheduler: Hand) -> bool:
    """Whether a Supervisor has found that a Scheduler is dead."""
    return any(view.dead for view in await scheduler.store.nodes.views() if view.id == scheduler.node)


class Record(list[RecordedCall]):
    """The calls of a race. ``two``: set once there are two."""

    def __init__(self) -> None:
        self.two = asyncio.Event()

    def note(self, call: RecordedCall) -> None:
        """Add a call that has returned."""
        self.append(call)
        if len(self) == 2:
            self.two.set()


class Caller:
    """Somebody who calls the store and notes when each call began and returned, and what it was told."""

    def __init__(self, name: str, task: int, record: Record, supervision: asyncio.Event) -> None:
        self.name = name
        self.task = task
        self.record = record
        self.supervised = supervision
        self.clock = asyncio.get_running_loop().time

    async def schedule(self, scheduler: Hand, calls: list[str]) -> None:
        """Claim, and complete what was claimed last."""
        epoch = 0
        for call in calls:
            began = self.clock()
            if call == "claim":
                claims = await scheduler.claim(1)
                end = self.clock()
                epoch = scheduler[self.task].task.epoch if self.task in claims else 0
                if not epoch and await declared_dead(scheduler):
                    continue  # it gets nothing, whoever holds the task
                self.record.note(RecordedCall("claim", self.name, began, end, epoch))
            elif call == "wait":
                await self.supervised.wait()
            elif epoch:
                decision = to_state(scheduler[self.task], "processed")
                outcome = await scheduler.commit(decision)
                took = self.task not in outcome.losses
                self.record.note(RecordedCall("complete", self.name, began, self.clock(), took, epoch))
                if took:
                    return

    async def supervise(self, store: Store, grant: Grant, times: int) -> None:
        """Free the task of whoever holds it: every Scheduler here counts as dead."""
        for _ in range(times):
            began = self.clock()
            requeues = await store.supervision.release_dead(grant, 10)
            self.record.note(RecordedCall("requeue", self.name, began, self.clock(), self.task in requeues))
            if requeues:
                self.supervised.set()
        self.supervised.set()


async def race(store: Store, other: Store, task: int, rng: random.Random) -> list[RecordedCall]:
    """Let two Schedulers and a Supervisor at one task, all at once; returns what they were told."""
    record = Record()
    await store.tasks.submit([draft(task)])
    schedulers = [await hand(store, ttl=0.0), await hand(other, ttl=0.0)]
    grant = await store.leases.acquire("supervisor", "v", "nonce", 60.0)
    assert grant is not None
    plans = [["claim", *rng.choices(["claim", "wait", "complete", "complete"], k=3)] for _ in schedulers]
    supervision, is_late = asyncio.Event(), rng.random() < 0.5
    callers = [Caller(name, task, record, supervision) for name in ("a", "b", "v")]

    async def supervise() -> None:
        if is_late:  # a store that is fast would declare them dead before they claim
            await record.two.wait()
        await callers[2].supervise(rng.choice((store, other)), grant, rng.randint(1, 4))

    await asyncio.gather(
        *(c.schedule(s, plan) for c, s, plan in zip(callers, schedulers, plans, strict=False)), supervise()
    )
    return record


async def finish(store: Store, task: int) -> None:
    """End a task that a race has left."""
    while (await store.tasks.find(Filter(ids=(task,))))[0].state != "processed":
        await store.supervision.release_dead(await _again(store), 10)
        last = await hand(store)
        if await last.claim(1) == [task]:
            await last.commit(to_state(last[task], "processed"))


async def _again(store: Store) -> Grant:
    grant = await store.leases.acquire("supervisor", "v", "nonce", 60.0)
    if grant is None:
        raise FencedOffError("somebody else leads")
    return grant


async def test_a_task_is_a_linearizable_register(world: World, store: Store, other: Store) -> None:
    """Whatever two Schedulers and a Supervisor are told, there is an order of their calls that gives just these answers; and
    the races are real: claims are lost, completions refused, tasks freed. (PostgreSQL passes over what somebody else is
    just writing: there a claim that found nothing need not mean that the task was held.)
    """
    skipping = world.dialect == "postgres"
    rng = random.Random(5)
    answers: Counter[tuple[str, bool]] = Counter()
    outcomes = {(call, took) for call in ("claim", "complete", "requeue") for took in (True, False)}
    task = 0
    while task < ROUNDS or (task < MOST_ROUNDS and not outcomes <= answers.keys()):
        task += 1
        calls = await race(store, other, task, rng)
        assert linearizable(calls, skipping=skipping) is not None, "\n".join(map(str, calls))
        answers.update((one.call, bool(one.answer)) for one in calls)
        await finish(store, task)
    assert outcomes <= answers.keys(), f"too tame a race in {task} rounds: {answers}"


async def test_one_false_answer_is_enough_to_be_refused(store: Store, other: Store) -> None:
    """The twin: were a caller told that it completed what it had lost, no order would explain it."""
    old = await hand(store, ttl=0.0)
    await store.tasks.submit([draft(1)])
    await old.claim(1)
    assert await store.supervision.release_dead(await term(store), 10) == [1]
    new = await hand(other)
    assert await new.claim(1) == [1]
    outcome = await old.commit(to_state(old[1], "processed"))
    assert outcome.losses == {1}
    calls = [
        RecordedCall("claim", "old", 0, 1, 1),
        RecordedCall("requeue", "v", 2, 3, answer=True),
        RecordedCall("claim", "new", 4, 5, new[1].task.epoch),
        RecordedCall("complete", "old", 6, 7, answer=False, epoch=1),
    ]
    assert linearizable(calls) is not None
    assert linearizable([*calls[:3], RecordedCall("complete", "old", 6, 7, answer=True, epoch=1)]) is None
