"""A signal that a Decision writes with what follows from it: a row like that of a signal that was sent before, or nothing of the Decision."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.model.decision import OpenDecision
from makegood.model.messages import TaskMessage
from makegood.model.shape import KeptSignal, NewSignal
from makegood.store.protocol import Store
from makegood.store.signals import OutgoingSignal, Signalled
from tests.conformance.builders import WAITS, Hand, done, running, unchanged
from tests.conformance.worlds import Counts, World

SIGNAL = OutgoingSignal(to=1, name="approval", id="a", value=b"true", step="approval-2")


def using(
    scheduler: Hand, task: int = 1, signal: OutgoingSignal = SIGNAL, idx: int | None = 1
) -> OpenDecision:
    """Return a Decision whose step ``idx`` uses a signal that no row has; None: the task keeps it."""
    decision = unchanged(scheduler[task])
    decision.new_signal = NewSignal(signal.name, signal.id, signal.step, signal.digest)
    if idx is None:
        decision.kept_signals.append(KeptSignal(signal.name, signal.id, signal.step, signal.value))
    else:
        decision.used_signals.append((signal.name, signal.id, idx))
    return decision


async def rows(world: World) -> list[tuple[Any, ...]]:
    """Return the signals."""
    signals = await world.rows(
        "select task, name, id, step, who, digest, body, used, used_at = at from {signal} order by task, id"
    )
    return [
        (*row[:5], bytes(row[5]), row[6] and bytes(row[6]), row[7], row[8] and bool(row[8]))
        for row in signals
    ]


async def test_its_row_is_that_of_a_signal_that_was_sent_and_used(store: Store, world: World) -> None:
    scheduler = await running(store, 1, 2, 3, signals=WAITS)
    await scheduler.commit(using(scheduler), using(scheduler, 2, idx=None), unchanged(scheduler[3]))
    assert await rows(world) == [
        (1, "approval", "a", "approval-2", "", SIGNAL.digest, None, 1, True),
        (2, "approval", "a", "approval-2", "", SIGNAL.digest, b"true", None, None),
    ]
    assert await world.rows("select 1 from {inbox}") == []
    (load,) = await store.tasks.load(scheduler.node, [2])
    assert list(load.signals) == [KeptSignal("approval", "a", "approval-2", b"true")]
    assert await store.tasks.signal(SIGNAL) == Signalled("a", created=False, task="0000000000001")


async def test_others_that_the_decision_uses_or_keeps_have_their_rows(store: Store, world: World) -> None:
    scheduler = await running(store, 1, signals=WAITS)
    for id_ in ("b", "c"):
        await store.tasks.signal(OutgoingSignal(to=1, name="approval", id=id_, value=b"true"))
    messages = (await store.tasks.inbox(scheduler.node, 10)).messages[1]
    keeping = unchanged(scheduler[1])
    keeping.seqs += [message.seq for message in messages]
    await scheduler.commit(keeping)
    decision = using(scheduler)
    decision.used_signals.append(("approval", "b", 2))
    decision.kept_signals.append(KeptSignal("approval", "c", "", b"7"))
    await scheduler.commit(decision)
    assert [(row[2], row[6], row[7]) for row in await rows(world)] == [
        ("a", None, 1),
        ("b", None, 2),
        ("c", b"7", None),
    ]


async def test_a_decision_whose_signal_is_known_or_not_the_first_message_is_lost_and_others_are_written(
    store: Store, world: World
) -> None:
    scheduler = await running(store, *range(1, 7), signals=WAITS)
    await store.tasks.signal(SIGNAL)
    messages = (await store.tasks.inbox(scheduler.node, 10)).messages[1]
    reading = unchanged(scheduler[1])
    reading.seqs += [message.seq for message in messages]
    await scheduler.commit(reading)
    for task in (2, 6):
        await store.tasks.post(task, TaskMessage("cancel"))
    before = await rows(world)
    stale = using(scheduler, 5)
    stale.before = replace(stale.before, epoch=stale.before.epoch + 1)  # somebody else has claimed it since
    reading = using(scheduler, 6)
    reading.seqs += [message.seq for message in (await store.tasks.inbox(scheduler.node, 10)).messages[6]]
    decisions = [
        using(scheduler),
        using(scheduler, 2),
        using(scheduler, 3),
        done(scheduler[4], 0),
        stale,
        reading,
    ]
    outcome = await scheduler.commit(*decisions)
    assert outcome.losses == {1, 2, 5, 6}
    assert [row[:3] for row in await rows(world)] == [row[:3] for row in before] + [(3, "approval", "a")]
    assert await world.rows("select state from {step} where task = 4 and idx = 0") == [("done",)]


@pytest.mark.parametrize("count", [1, 50])
async def test_it_costs_no_commit_and_no_statement_more(
    counting_store: Store, counts: Counts, count: int
) -> None:
    scheduler = await running(counting_store, *range(1, 2 * count + 1), signals=WAITS)
    await counting_store.now()
    await counts.reset()
    await scheduler.commit(*(using(scheduler, task) for task in range(1, count + 1)))
    assert await counts.commits() == 1
    assert counts.statements <= 12


async def test_of_a_decision_and_a_sender_with_one_id_one_writes(store: Store, world: World) -> None:
    tasks = range(1, 31)
    scheduler = await running(store, *tasks, signals=WAITS)

    async def send(task: int) -> bool:
        return (
            await store.tasks.signal(OutgoingSignal(to=task, name="approval", id="a", value=b"true"))
        ).created

    async def decide(task: int) -> bool:
        return task not in (await scheduler.commit(using(scheduler, task))).losses

    both = [each(task) for task in tasks for each in ((send, decide) if task % 2 else (decide, send))]
    answers = await asyncio.gather(*both)
    assert [sum(answers[n : n + 2]) for n in range(0, 60, 2)] == [1] * 30
    assert len(await rows(world)) == 30
