"""Signals: two rows of one commit, known by their id for as long as the task is, and refused with a remedy; on every store."""

import asyncio
import json
from typing import Any

import pytest

from makegood.base.ids import show
from makegood.errors import SignalRefused, TaskNotFoundError
from makegood.model.messages import Act, SignalRef, TaskMessage
from makegood.store.protocol import Store
from makegood.store.signals import MOST_BACKLOG, OutgoingSignal, Signalled, TaskKey
from tests.conformance.builders import WAITS, Hand, done, draft, running, steps, to_state
from tests.conformance.worlds import Counts, World

KEY = TaskKey("shop", "place_order", "k")


def approval(
    to: int | TaskKey = 1, id_: str = "click", value: bytes = b"true", **more: Any
) -> OutgoingSignal:
    """Return a signal to be sent."""
    return OutgoingSignal(to=to, name=more.pop("name", "approval"), id=id_, value=value, **more)


async def inbox_of(scheduler: Hand) -> list[TaskMessage]:
    """Return the messages in the inbox of the Scheduler's tasks."""
    messages = await scheduler.store.tasks.inbox(scheduler.node, 100)
    return [message for task in messages.messages.values() for message in task]


async def test_a_signal_is_a_message_to_its_task_and_is_remembered(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1, key="k", signals=WAITS)])
    assert await store.tasks.signal(approval(step="approval[3]")) == Signalled(
        "click", created=True, task=show(1)
    )
    ((task, kind, body),) = await world.rows("select task, kind, body from {inbox}")
    assert (task, kind) == (1, "signal")
    message = json.loads(bytes(body))
    assert message == {"kind": "signal", "value": "dHJ1ZQ==", "signal": ["approval", "click", "approval[3]"]}
    ((name, id_, who, kept, used),) = await world.rows("select name, id, who, body, used from {signal}")
    assert (name, id_, who, kept, used) == ("approval", "click", "", None, None)
    detail = await store.tasks.detail(1)
    assert detail is not None
    (view,) = detail.signals
    assert (view.name, view.id, view.used, view.step, view.kept) == (
        "approval",
        "click",
        None,
        "approval[3]",
        False,
    )
    assert view.at == pytest.approx(await store.now(), abs=60)


async def test_a_signal_is_found_by_the_key_of_its_task(store: Store) -> None:
    await store.tasks.submit(
        [
            draft(1, key="k", signals=WAITS),
            draft(2, key="k", workflow="travel", signals=WAITS),
            draft(3, key="k", app="other", signals=WAITS),
        ]
    )
    assert (await store.tasks.signal(approval(KEY))).task == show(1)
    assert (await store.tasks.signal(approval(TaskKey("shop", "travel", "k")))).task == show(2)
    with pytest.raises(TaskNotFoundError) as unknown:
        await store.tasks.signal(approval(TaskKey("shop", "place_order", "K")))
    assert str(unknown.value) == (
        "no task of shop.place_order has the key 'K': submit it under this key first (you may submit and signal in one transaction)"
    )
    with pytest.raises(TaskNotFoundError) as unknown:
        await store.tasks.signal(approval(9))
    assert str(unknown.value) == f"there is no task {show(9)} in this store: see `makegood task list`"


async def test_an_id_is_one_signal_whatever_became_of_the_task(store: Store, world: World) -> None:
    """Of its name and its task; another value, or another step, under it is a conflict, and the first one stays."""
    await store.tasks.submit([draft(1, signals=WAITS), draft(2, signals=WAITS)])
    for to, name in ((1, "approval"), (1, "payment"), (2, "approval")):
        assert (await store.tasks.signal(approval(to, name=name))).created
    again = await store.tasks.signal(approval())
    assert (again.created, again.conflict, again.task) == (False, False, show(1))
    for other in (approval(value=b"false"), approval(step="approval[1]")):
        answer = await store.tasks.signal(other)
        assert (answer.created, answer.conflict) == (False, True)
    async with world.raw() as raw:
        await raw.run("update {task} set state = 'undone', goal = 'undo' where id = 1")
        await raw.run("update {signal} set used = 0 where task = 1")
        await raw.run("delete from {inbox}")
    again = await store.tasks.signal(approval())
    assert (again.created, again.conflict) == (False, False)
    assert await world.rows("select task from {inbox}") == []
    assert len(await world.rows("select 1 from {signal}")) == 3


ANSWER = '{"type":"object","properties":{"yes":{"type":"boolean"},"by":{"type":"string","default":""}},"required":["yes"]}'
SPELLINGS = (b'{"yes":true,"by":""}', b'{"by":"","yes":true}', b'{"yes": true}')


@pytest.mark.parametrize("first", SPELLINGS)
async def test_a_value_is_the_same_however_it_is_spelled(store: Store, first: bytes) -> None:
    """By two programs, by hand, or after a deployment that added a member with a default; in an act on many too."""
    await store.tasks.submit(
        [draft(1, signals=(("approval", ANSWER),)), draft(2, signals=(("approval", ANSWER),))]
    )
    for n, value in enumerate((first, *SPELLINGS)):
        answers = await asyncio.gather(*(store.tasks.signal(approval(to, value=value)) for to in (1, 2)))
        assert [(answer.created, answer.conflict) for answer in answers] == [(n == 0, False)] * 2
    answer = await store.tasks.signal(approval(value=b'{"yes":true,"by":"ann"}'))
    assert (answer.created, answer.conflict) == (False, True)


async def test_signals_of_one_id_at_the_same_moment_are_one(store: Store, other: Store, world: World) -> None:
    await store.tasks.submit([draft(1, signals=WAITS)])
    answers = await asyncio.gather(*(each.tasks.signal(approval()) for each in (store, other) * 8))
    assert sum(answer.created for answer in answers) == 1
    assert not any(answer.conflict for answer in answers)
    assert len(await world.rows("select 1 from {inbox}")) == 1


ENDS = [
    ("processed", "forward", "the task had ended: processed; nothing in it waits any more"),
    ("undone", "undo", "the task had ended: undone; resubmit it first"),
    ("undoing", "undo", "the task is being undone; resubmit it once it is undone"),
    ("pending", "undo", "the task is being undone; resubmit it once it is undone"),
]


@pytest.mark.parametrize(("state", "goal", "end"), ENDS)
async def test_a_task_that_ended_or_is_being_undone_takes_no_signal(
    store: Store, world: World, state: str, goal: str, end: str
) -> None:
    await store.tasks.submit([draft(1, signals=WAITS)])
    async with world.raw() as raw:
        await raw.run(f"update {{task}} set state = '{state}', goal = '{goal}' where id = 1")
    with pytest.raises(SignalRefused) as refusal:
        await store.tasks.signal(approval())
    assert str(refusal.value) == f"task {show(1)} takes no signal 'approval': {end}"
    assert (refusal.value.task_id, refusal.value.signal, refusal.value.state) == (show(1), "approval", state)
    assert await world.rows("select 1 from {signal}") == []
    assert await world.rows("select 1 from {inbox}") == []


@pytest.mark.parametrize(
    ("state", "goal"), [("sleeping", "forward"), ("processing", "hold"), ("error", "hold"), ("error", "undo")]
)
async def test_a_task_that_sleeps_or_waits_for_an_operator_takes_signals(
    store: Store, world: World, state: str, goal: str
) -> None:
    await store.tasks.submit([draft(1, signals=WAITS)])
    async with world.raw() as raw:
        await raw.run(f"update {{task}} set state = '{state}', goal = '{goal}' where id = 1")
    assert (await store.tasks.signal(approval())).created


async def test_a_name_that_no_step_waits_for_is_refused_where_the_names_are_known(
    store: Store, world: World
) -> None:
    signals = (("approval", '{"type":"boolean"}'), ("payment", ""))
    await store.tasks.submit([draft(1, signals=signals), draft(2), draft(3)])
    async with world.raw() as raw:
        literal = "x'7b'" if world.dialect == "sqlite" else "decode('7b', 'hex')"
        await raw.run(f"update {{task}} set static = {literal} where id = 2")
    with pytest.raises(SignalRefused) as refusal:
        await store.tasks.signal(approval(3))
    assert str(refusal.value) == (
        f"task {show(3)} waits for no signal 'approval', now or later; no step of its workflow shop.place_order is an mg.wait_for: send the "
        "signal to the task that waits (`makegood task list waits:approval`), or add the wait to the workflow, which counts for tasks that "
        "are submitted after that"
    )
    assert not refusal.value.is_known
    assert await world.rows("select 1 from {signal}") == []
    assert await world.rows("select 1 from {inbox}") == []
    with pytest.raises(SignalRefused) as refusal:
        await store.tasks.signal(approval(name="aproval"))
    assert str(refusal.value) == (
        f"task {show(1)} waits for no signal 'aproval', now or later; it has approval, payment"
    )
    with pytest.raises(SignalRefused) as refusal:
        await store.tasks.signal(approval(value=b'"true"'))
    assert str(refusal.value) == (
        f"task {show(1)} takes no such value of the signal 'approval': the value is a text, and must be true or false"
    )
    assert (await store.tasks.signal(approval())).created
    assert (await store.tasks.signal(approval(id_="typed", value=b'"yes"', is_typed=True))).created
    assert (await store.tasks.signal(approval(name="payment", value=b'"any"'))).created, "of no known type"
    assert (await store.tasks.signal(approval(2, name="aproval"))).created, "its names are not known"
    detail = await store.tasks.detail(1)
    excerpt = await store.tasks.excerpt(1)
    assert detail is not None
    assert excerpt is not None
    assert (
        detail.signal_types
        == excerpt.detail.signal_types
        == {"approval": '{"type":"boolean"}', "payment": ""}
    )
    assert detail.signals == excerpt.detail.signals


async def test_a_task_has_at_most_a_thousand_unused_signals(store: Store, world: World) -> None:
    """What a step has used does not count, nor does what is known already."""
    await store.tasks.submit([draft(1, signals=WAITS), draft(2, signals=WAITS)])
    assert (await store.tasks.signal(approval())).created
    async with world.raw() as raw:
        for n in range(1, MOST_BACKLOG):
            await raw.run(
                "insert into {signal} (task, name, id, at, digest, body) values (1, 'approval', '@', 1, '', '')".replace(
                    "@", str(n)
                )
            )
    with pytest.raises(SignalRefused) as refusal:
        await store.tasks.signal(approval(id_="more"))
    assert str(refusal.value) == (
        f"task {show(1)} takes no signal 'approval': 1,000 signals to it are unused, which is the most; send it again once its steps have "
        "used some, or the one that is meant under the same id"
    )
    assert not (await store.tasks.signal(approval())).created
    assert (await store.tasks.signal(approval(2))).created
    async with world.raw() as raw:
        await raw.run("update {signal} set used = 0 where id = '1'")
    assert (await store.tasks.signal(approval(id_="more"))).created


async def test_the_scheduler_of_a_task_hears_its_signals_in_order(store: Store) -> None:
    scheduler = await running(store, 1, signals=WAITS)
    for id_, value in (("a", b"1"), ("b", b"2")):
        await store.tasks.signal(approval(id_=id_, value=value))
    messages = await inbox_of(scheduler)
    assert [(m.kind, m.value, m.signal) for m in messages] == [
        ("signal", b"1", SignalRef("approval", "a")), ("signal", b"2", SignalRef("approval", "b"))
    ]  # fmt: skip


async def test_a_signal_wakes_whoever_looks_for_messages(store: Store) -> None:
    await store.tasks.submit([draft(1, signals=WAITS)])
    bell = asyncio.Event()
    stop = store.subscribe("inbox", bell.set)
    await store.tasks.signal(approval())
    async with asyncio.timeout(60):
        await bell.wait()
    stop()


@pytest.mark.parametrize("world", ["postgres"], indirect=True)  # a file has one writer
async def test_a_signal_waits_for_no_lock_on_its_task(store: Store, world: World) -> None:
    """The sender of a transaction that lasts holds up no Scheduler, and no Scheduler holds up a sender."""
    await store.tasks.submit([draft(1, signals=WAITS)])
    async with world.raw():  # locks all tasks for writing
        async with asyncio.timeout(120):
            assert (await store.tasks.signal(approval())).created


async def test_an_operators_signal_is_audited_once(store: Store) -> None:
    await store.tasks.submit([draft(1, signals=WAITS)])
    act = Act("act-1", "ann", "she said so on the phone")
    assert (await store.tasks.signal(approval(id_="act-1", step="approval[3]"), act)).created
    assert not (
        await store.tasks.signal(approval(id_="act-1", step="approval[3]"), Act("act-2", "bob"))
    ).created
    (audit,) = await store.admin.audit()
    assert (audit.act, audit.task, audit.kind, audit.who, audit.why) == ("act-1", 1, "signal", "ann", act.why)
    assert (audit.verdict, audit.outcome) == ("applied", "sent approval (act-1) for approval[3]")
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert [view.who for view in detail.signals] == ["ann"]


async def test_used_and_kept_signals_are_shown_as_such(store: Store, world: World) -> None:
    await store.tasks.submit([draft(1, steps=steps(2), signals=WAITS)])
    for id_ in ("a", "b", "c"):
        await store.tasks.signal(approval(id_=id_))
    async with world.raw() as raw:
        await raw.run("update {signal} set used = 1, used_at = 7 where id = 'a'")
        await raw.run("update {signal} set body = '' where id = 'b'")
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert [(v.id, v.used, v.used_at, v.kept) for v in detail.signals] == [
        ("c", None, None, False), ("b", None, None, True), ("a", "s1", 7.0, False)
    ]  # fmt: skip


async def test_signals_go_with_their_task(store: Store, world: World) -> None:
    scheduler = await running(store, 1, signals=WAITS)
    await store.tasks.signal(approval())
    (message,) = await inbox_of(scheduler)
    decision = to_state(scheduler[1], "processed", done(scheduler[1], 0))
    decision.seqs.append(message.seq)
    await scheduler.commit(decision)
    await world.elapse(100)
    await store.admin.prune(1.0, 0, 100)
    assert await world.rows("select 1 from {task}") == []
    assert await world.rows("select 1 from {signal}") == []


async def test_a_signal_is_one_commit_of_two_rows(
    counting_store: Store, counts: Counts, world: World
) -> None:
    """And on PostgreSQL of one statement, once the process has sent one to such a task; SQLite inserts into one table at a time."""
    await counting_store.tasks.submit([draft(1, key="k", signals=WAITS)])
    await counting_store.tasks.signal(approval(KEY, id_="first"))
    await counts.reset()
    await counting_store.tasks.signal(approval(KEY))
    assert await counts.commits() == 1
    mark = 1  # the writer's number
    assert counts.statements - mark <= (0 if world.dialect == "postgres" else 3)
    await counts.reset()
    assert not (await counting_store.tasks.signal(approval(KEY))).created
    assert counts.statements - mark <= 1
