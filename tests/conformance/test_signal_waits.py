"""What becomes of signals in a Scheduler's commit, and how a task is read with those that it keeps; on every store."""

from typing import Any

import pytest
from msgspec.structs import replace

from makegood.model.decision import OpenDecision
from makegood.model.messages import SignalRef, TaskMessage
from makegood.model.plan import StepPlan
from makegood.model.shape import KeptSignal
from makegood.model.states import Move
from makegood.store import rows
from makegood.store.protocol import Store
from makegood.store.views import Filter, SignalWait
from tests.conformance.builders import Hand, Memory, done, hand, running, steps, to_state, unchanged
from tests.conformance.worlds import Counts, World

SIGNALS = (("approval", '{"type":"boolean"}'),)


async def send(world: World, task: int, id_: str, value: bytes = b"true", step: str = "") -> None:
    """Write a signal as its sender does: it is remembered, and lies in the inbox."""
    message = TaskMessage("signal", value=value, signal=SignalRef("approval", id_, step))
    async with world.raw() as raw:
        await raw.run(
            "insert into {signal} (task, name, id, step, at, digest) values (?, ?, ?, ?, 0, ?)",
            task,
            "approval",
            id_,
            step,
            b"digest",
        )
        await raw.run(
            "insert into {inbox} (task, kind, at, body) values (?, 'signal', 0, ?)",
            task,
            rows.message(message),
        )


def keeping(decision: OpenDecision, messages: list[TaskMessage]) -> OpenDecision:
    """Keep what signals bring."""
    for message in messages:
        assert message.signal is not None
        value = message.value or b"null"
        signal = KeptSignal(message.signal.name, message.signal.id, message.signal.step, value)
        decision.kept_signals.append(signal)
        decision.seqs.append(message.seq)
    return decision


async def read(scheduler: Hand, task: int = 1) -> Any:
    """Return a task as its Scheduler reads it again."""
    (load,) = await scheduler.store.tasks.load(scheduler.node, [task])
    return load


async def test_a_signal_lies_in_the_inbox_is_kept_and_is_used(store: Store, world: World) -> None:
    scheduler = await running(store, 1, signals=SIGNALS)
    await send(world, 1, "a")
    load = await read(scheduler)
    assert [m.signal for m in load.messages] == [SignalRef("approval", "a", "")]
    assert list(load.signals) == []
    assert load.task.signals == SIGNALS
    await scheduler.commit(keeping(unchanged(scheduler[1]), load.messages))
    load = await read(scheduler)
    assert load.messages == []
    assert list(load.signals) == [KeptSignal("approval", "a", "", b"true")]
    using = unchanged(scheduler[1])
    using.used_signals.append(("approval", "a", 1))
    await scheduler.commit(using)
    assert list((await read(scheduler)).signals) == []
    ((body, idx, is_dated),) = await world.rows("select body, used, used_at is not null from {signal}")
    assert (body, idx, bool(is_dated)) == (None, 1, True)


async def test_kept_ones_are_read_in_the_order_in_which_they_came_large_ones_too(
    store: Store, world: World
) -> None:
    scheduler = await running(store, 1, 2, signals=SIGNALS)
    large = b'"' + b"x" * 3 * rows.INLINE + b'"'
    values = {"b": b"1", "c": large, "a": b"null", "d": b"[]"}
    for id_, value in values.items():
        await send(world, 1, id_, value, "approval-2" if id_ == "d" else "")
    await send(world, 2, "a", b"2")
    await scheduler.commit(
        keeping(unchanged(scheduler[1]), (await read(scheduler)).messages),
        keeping(unchanged(scheduler[2]), (await read(scheduler, 2)).messages),
    )
    signals = [
        KeptSignal("approval", id_, "approval-2" if id_ == "d" else "", value)
        for id_, value in values.items()
    ]
    assert list((await read(scheduler)).signals) == signals
    assert list((await read(scheduler, 2)).signals) == [KeptSignal("approval", "a", "", b"2")]
    await scheduler.commit(to_state(scheduler[1], "pending"))
    other = await hand(store)
    assert await other.claim(5) == [1]
    assert list(other.seen[0].signals) == signals


async def test_many_decisions_write_their_signals_together(store: Store, world: World) -> None:
    tasks = range(1, 8)
    scheduler = await running(store, *tasks, signals=SIGNALS)
    decisions = []
    for task in tasks:
        await send(world, task, "a", b"%d" % task)
        await send(world, task, "b")
        messages = (await read(scheduler, task)).messages
        decision = keeping(unchanged(scheduler[task]), messages)
        decision.kept_signals.pop()
        decision.used_signals.append(("approval", "b", 2))
        decisions.append(decision)
    await scheduler.commit(*decisions)
    table = await world.rows("select task, id, body, used from {signal} order by task, id")
    rows_of_all: list[tuple[Any, ...]] = []
    for task in tasks:
        rows_of_all += [(task, "a", b"%d" % task, None), (task, "b", None, 2)]
    assert [(t, i, None if b is None else bytes(b), u) for t, i, b, u in table] == rows_of_all


async def test_history_names_the_signals_that_are_kept(store: Store, world: World) -> None:
    scheduler = await running(store, 1, signals=SIGNALS)
    await send(world, 1, "a")
    await scheduler.commit(keeping(unchanged(scheduler[1]), (await read(scheduler)).messages))
    assert (await store.tasks.history(1))[-1].note == "signal approval [a] is kept: no step waits for it now"
    await send(world, 1, "b")
    end = keeping(to_state(scheduler[1], "processed"), (await read(scheduler)).messages)
    await scheduler.commit(replace(end, task=replace(end.task, result=b"1")))
    assert (await store.tasks.history(1))[-1].note == "signal approval [b] is kept: the task is processed"


async def test_a_signal_for_a_task_that_has_ended_is_read_with_a_claim_of_its_own(
    store: Store, world: World
) -> None:
    scheduler = await running(store, 1, signals=SIGNALS)
    await scheduler.commit(to_state(scheduler[1], "processed"))
    await send(world, 1, "a")
    inbox = await store.tasks.inbox(scheduler.node, 10)
    assert inbox.at_rest == [1]

    def keep(memory: Any) -> OpenDecision:
        return replace(keeping(unchanged(memory), memory.messages), release=True)

    assert await scheduler.claim(0, keep, at_rest=[1]) == [1]
    ((body, idx),) = await world.rows("select body, used from {signal}")
    assert (bytes(body), idx) == (b"true", None)
    assert await world.rows("select 1 from {inbox}") == []


def listening(memory: Memory) -> OpenDecision:
    """Let the second step, a wait, begin; with a timeout in tasks with an odd id."""
    decision = done(memory, 0)
    decision.steps[1] = replace(memory.steps[1], state="ready", waiting=memory.id % 2 == 1)
    decision.moves.append(Move("approval", "waiting", "ready", "preceded"))
    if memory.id % 2:
        decision.timers[1] = 60.0
    return decision


async def test_lists_find_the_tasks_that_wait_for_a_signal_now(store: Store) -> None:
    first, _, last = steps(3)
    plan = (first, StepPlan(1, "wait_for", "approval", action="approval", after=(0,)), last)
    scheduler = await running(store, 1, 2, 3, 4, steps=plan, signals=SIGNALS)
    await scheduler.commit(*[listening(scheduler[task]) for task in (1, 2, 3)])
    for condition in (Filter(waits="approval"), Filter(waits="approval", states=("processing",))):
        assert [view.id for view in (await store.tasks.search(condition)).tasks] == [3, 2, 1]
    for other in (Filter(waits="refusal"), Filter(waits="approval", states=("undone",))):
        assert (await store.tasks.search(other)).tasks == []


async def test_tasks_that_wait_for_a_signal_are_one_line_with_or_without_a_timeout(
    store: Store, world: World
) -> None:
    """Held, let go or pending; since the first of them moved last, or its timer began."""
    first, _, last = steps(3)
    plan = (first, StepPlan(1, "wait_for", "approval", action="approval", after=(0,)), last)
    scheduler = await running(store, 1, 2, 3, 4, steps=plan, signals=SIGNALS)
    await scheduler.commit(*[listening(scheduler[task]) for task in (1, 2, 3)])
    async with world.raw() as raw:
        await raw.run("update {request} set sent_at = 3000 where kind = 'timer'")
        await raw.run("update {event} set at = 2000 where task = 2")
        await raw.run("update {task} set state = 'sleeping', locked_by = null where id = 2")
        await raw.run("update {task} set state = 'pending', locked_by = null where id = 1")
    assert await store.tasks.signal_waits() == [SignalWait("approval", 3, 2000.0)]
    assert await store.tasks.signal_waits(0) == []
    assert await store.tasks.waits() == {}, "no service asked for it"


@pytest.mark.parametrize("signals", [(), SIGNALS])
async def test_tasks_that_wait_for_no_signal_cost_no_statement_more(
    counting_store: Store, counts: Counts, signals: Any
) -> None:
    scheduler = await running(counting_store, 1, signals=signals)
    other = await running(counting_store, 2)
    costs = []
    for hands, task in ((scheduler, 1), (other, 2)):
        await read(hands, task)  # the first time costs more
        await counts.reset()
        await read(hands, task)
        costs.append(counts.statements)
    extra = costs[0] - costs[1]
    assert extra == (1 if signals and counts.shares else 0)  # SQLite's; PostgreSQL reads all in one
