"""A signal to all tasks that match: sent once to each, however often the act is carried out; on every store."""

from collections.abc import Sequence

import pytest

from makegood.base.ids import show
from makegood.errors import ActRefusedError
from makegood.model.messages import Act
from makegood.store.oversight_records import BulkKind
from makegood.store.protocol import Store
from makegood.store.signals import OutgoingSignal
from makegood.store.views import Filter
from tests.conformance.builders import running, to_state
from tests.conformance.worlds import Counts, World

ANN = Act("act-1", "ann", "all of them")
SIGNALS = (("approval", '{"type":"boolean"}'),)


async def requested(store: Store, *ids: int, rate: float | None = None) -> None:
    """Tasks that may take the signal, and the act that sends it to them."""
    await running(store, *ids, signals=SIGNALS)
    content = ("approval", b"true")
    bulk = await store.oversight.bulk(ANN, "signal", Filter(ids=ids), rate=rate, signal=content)
    assert (bulk.kind, bulk.signal, bulk.counted) == ("signal", "approval", len(ids))


async def test_each_task_gets_the_signal_and_the_audit_says_who_sent_it(store: Store, world: World) -> None:
    await requested(store, 1, 2, 3)
    assert await store.oversight.advance_bulk("act-1", 2) == 2
    assert await store.oversight.advance_bulk("act-1", 2) is None
    bulk = await store.oversight.bulk_act("act-1")
    assert bulk is not None
    assert (bulk.state, bulk.sent, bulk.applied, bulk.noop, bulk.refused) == ("done", 3, 3, 0, 0)
    sent = await world.rows("select task, name, id, who from {signal} order by task")
    assert [tuple(row) for row in sent] == [(n, "approval", f"act-1/{show(n)}", "ann") for n in (1, 2, 3)]
    messages = await world.rows("select task, kind from {inbox} order by task")
    assert [tuple(row) for row in messages] == [(n, "signal") for n in (1, 2, 3)]
    (entry,) = await store.admin.audit(10, 1)
    assert (entry.act, entry.kind, entry.who, entry.why, entry.verdict) == (
        f"act-1/{show(1)}",
        "signal",
        "ann",
        "all of them",
        "applied",
    )
    assert await store.oversight.bulk_ends("act-1") == {"processing": 3}


async def test_an_act_that_is_carried_out_again_signals_nobody_twice(
    store: Store, other: Store, world: World
) -> None:
    """As if a leader had died before it moved the cursor, or the store had been restored to before."""
    await requested(store, 1, 2, 3)
    await store.oversight.advance_bulk("act-1", 2)
    async with world.raw() as raw:
        await raw.run("update {bulk_act} set cursor = 9, sent = 0, applied = 0")
        await raw.run("delete from {inbox}")  # the tasks have read theirs
    assert await other.oversight.advance_bulk("act-1", 100) is None
    bulk = await store.oversight.bulk_act("act-1")
    assert bulk is not None
    assert (bulk.sent, bulk.applied, bulk.noop, bulk.refused) == (3, 1, 2, 0)
    assert [task for (task,) in await world.rows("select task from {inbox}")] == [1]
    assert len(await world.rows("select 1 from {signal}")) == 3
    assert len(await store.admin.audit(10, 3)) == 1


async def test_tasks_that_take_no_such_signal_refuse_it_and_the_others_get_it(
    store: Store, world: World
) -> None:
    await requested(store, 1, 2, 3)
    scheduler = await running(store, 4, signals=(("payment", ""),))
    await scheduler.commit(to_state(scheduler[4], "processing"))
    async with world.raw() as raw:
        await raw.run("update {task} set state = 'undone', goal = 'undo' where id = 2")
    name = f"act-1/{show(3)}"
    await store.tasks.signal(OutgoingSignal(to=3, name="approval", id=name, value=b"false"))
    await store.oversight.bulk(Act("act-2", "ann"), "signal", Filter(ids=(4,)), signal=("approval", b"true"))
    for act in ("act-1", "act-2"):
        assert await store.oversight.advance_bulk(act, 100) is None
    bulk = await store.oversight.bulk_act("act-1")
    assert bulk is not None
    assert (bulk.sent, bulk.applied, bulk.noop, bulk.refused) == (3, 1, 0, 2)
    refusals = {refusal.task: refusal.outcome for refusal in await store.oversight.bulk_refusals("act-1")}
    assert refusals[3] == f"it knows {name} with another value"
    assert "the task had ended: undone" in refusals[2]
    (refusal,) = await store.oversight.bulk_refusals("act-2")
    assert "it has payment" in refusal.outcome


async def test_a_batch_costs_as_many_statements_whatever_its_size(
    counting_store: Store, counts: Counts
) -> None:
    await requested(counting_store, *range(1, 12))
    await counting_store.oversight.advance_bulk("act-1", 1)
    costs = []
    for most in (2, 6):
        await counts.reset()
        await counting_store.oversight.advance_bulk("act-1", most)
        assert await counts.commits() == 1
        costs.append(counts.statements)
    if not counts.shares:  # SQLite carries out a statement for each row
        assert costs[0] == costs[1]


async def test_a_request_that_comes_twice_under_one_id_is_one_act(
    store: Store, other: Store, world: World
) -> None:
    """A program repeats a request whose answer was lost, while the leader carries the first one out."""
    await requested(store, 1, 2, 3, rate=1.0)
    assert await store.oversight.advance_bulk("act-1", 1) == 1
    content = ("approval", b"true")
    again = await other.oversight.bulk(ANN, "signal", Filter(ids=(1, 2, 3)), rate=1.0, signal=content)
    assert (again.id, again.sent, again.state) == ("act-1", 1, "running")
    assert [act.id for act in await store.oversight.bulk_acts()] == ["act-1"]
    assert len(await world.rows("select 1 from {audit} where kind = 'bulk signal'")) == 1
    others: Sequence[tuple[BulkKind, Filter, float | None, tuple[str, bytes] | None]] = (
        ("signal", Filter(ids=(1, 2)), 1.0, content),
        ("signal", Filter(ids=(1, 2, 3)), None, content),
        ("signal", Filter(ids=(1, 2, 3)), 1.0, ("approval", b"false")),
        ("signal", Filter(ids=(1, 2, 3)), 1.0, ("payment", b"true")),
        ("undo", Filter(ids=(1, 2, 3)), 1.0, None),
    )
    for kind, condition, rate, signal in others:
        with pytest.raises(ActRefusedError, match="'act-1' was requested before"):
            await other.oversight.bulk(ANN, kind, condition, rate=rate, signal=signal)
    assert len(await world.rows("select 1 from {bulk_act}")) == 1
