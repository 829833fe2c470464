"""Submitting and reading tasks."""

import asyncio
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.errors import PayloadError
from makegood.model.attempt_end import AttemptEnd
from makegood.model.decision import Decision, OpenDecision
from makegood.model.messages import TaskMessage
from makegood.model.plan import Template
from makegood.model.states import Move
from makegood.model.task import FailureTally, Step
from makegood.store.protocol import Store
from makegood.store.records import Submitted
from makegood.store.views import Filter
from tests.conformance.builders import (
    UNENCODABLE,
    Memory,
    agent,
    begin,
    draft,
    hand,
    offer,
    reply,
    running,
    steps,
    to_state,
)
from tests.conformance.worlds import World


async def test_a_submitted_task_is_pending_with_every_step_not_yet_started(store: Store) -> None:
    task_draft = draft(7, key="k", priority=3, correlation_id="c", inputs=(b"1", b'"two"'))
    assert await store.tasks.submit([task_draft]) == [Submitted(7, is_new=True)]
    detail = await store.tasks.detail(7)
    assert detail is not None
    assert detail.inputs == (b"1", b'"two"')
    view = detail.task
    assert (view.id, view.app, view.workflow, view.key) == (7, "shop", "place_order", "k")
    assert (view.state, view.goal, view.submission, view.priority) == ("pending", "forward", 1, 3)
    assert (view.locked_by, view.ended, view.complete_by, view.result) == (None, None, None, None)
    assert view.correlation_id == "c"
    assert view.created == pytest.approx(await store.now(), abs=60)
    assert [(s.idx, s.name, s.agent, s.action, s.state, s.attempt, s.round) for s in detail.steps] == [
        (n, f"s{n}", "payments", f"act{n}", "waiting", 0, 1) for n in range(3)
    ]
    assert all(s.doing is None and not s.waiting and s.undoable and s.due is None for s in detail.steps)
    assert [s.plan for s in detail.steps] == list(task_draft.steps)


async def test_many_tasks_of_one_shape_have_the_steps_that_each_alone_has(store: Store) -> None:
    plain = steps(3)
    shape = (replace(plain[0], name="it's\" $1 ?1", action="a'ct"), *plain[1:])
    scheduler = await hand(store)
    await store.tasks.submit([draft(n, steps=shape) for n in range(1, 21)])
    await store.tasks.submit([draft(21, steps=shape)])
    assert len(await scheduler.claim(30)) == 21
    assert all(memory.steps == scheduler[21].steps for memory in scheduler.tasks.values())
    detail = await store.tasks.detail(7)
    assert detail is not None
    assert [s.plan for s in detail.steps] == list(shape)
    assert detail.steps[0].name == "it's\" $1 ?1"


async def test_each_task_of_a_batch_keeps_its_own_texts_or_has_none(store: Store) -> None:
    """Key, correlation and trace, in every mix, of lengths and letters that could be taken for each other's."""
    texts = (None, "k", "\U0001f600é'\"$1?1", "0000000007", "x" * 2000)
    mixes = [*product(texts, texts, texts)]
    drafts = [
        draft(
            n,
            key=None if key is None else f"{n}{key}",
            correlation_id=correlation,
            trace=trace,
            inputs=(b"%d" % n,),
        )
        for n, (key, correlation, trace) in enumerate(mixes, 1)
    ]
    assert await store.tasks.submit(drafts) == [Submitted(d.id, is_new=True) for d in drafts]
    scheduler = await hand(store)
    assert len(await scheduler.claim(len(drafts))) == len(drafts)
    for d in drafts:
        task = scheduler[d.id].task
        assert (task.key, task.trace, task.inputs, task.returns) == (d.key, d.trace, d.inputs, d.returns)
    correlation_ids = {
        view.id: view.correlation_id for view in await store.tasks.find(Filter(limit=len(drafts)))
    }
    assert correlation_ids == {d.id: d.correlation_id for d in drafts}


async def test_of_many_submissions_with_keys_those_that_are_there_already_stay_as_they_are(
    store: Store,
) -> None:
    await store.tasks.submit([draft(n, key=f"k{n}") for n in range(1, 20, 2)])
    answers = await store.tasks.submit(
        [draft(100 + n, key=f"k{n % 20}", correlation_id="c") for n in range(1, 41)]
    )
    assert [a.is_new for a in answers] == [(n < 20 and n % 2 == 0) or n == 20 for n in range(1, 41)]
    assert [a.id for a in answers[:20]] == [n if n % 2 else 100 + n for n in range(1, 21)]
    assert [a.id for a in answers[20:]] == [a.id for a in answers[:20]]


async def test_answers_come_in_the_order_of_the_drafts(store: Store) -> None:
    await store.tasks.submit([draft(1, key="taken")])
    answers = await store.tasks.submit([draft(9), draft(2, key="taken"), draft(5), draft(9)])
    assert answers == [
        Submitted(9, is_new=True),
        Submitted(1, is_new=False),
        Submitted(5, is_new=True),
        Submitted(9, is_new=False, key_collision=True),
    ]


async def test_no_drafts_no_answers(store: Store) -> None:
    assert await store.tasks.submit([]) == []


async def test_a_taken_key_with_equal_inputs_gives_the_existing_task_and_writes_nothing(store: Store) -> None:
    await store.tasks.submit([draft(1, key="k")])
    assert await store.tasks.submit([draft(2, key="k")]) == [Submitted(1, is_new=False)]
    assert await store.tasks.detail(2) is None
    assert (await store.admin.schema()).rows["step"] == 3


async def test_a_taken_key_with_other_inputs_is_a_conflict(store: Store) -> None:
    await store.tasks.submit([draft(1, key="k")])
    answers = await store.tasks.submit([draft(2, key="k", fingerprint=b"other")])
    assert answers == [Submitted(1, is_new=False, conflict=True, inputs=draft(1).inputs)]


async def test_a_key_stands_for_one_workflow_of_one_app(store: Store) -> None:
    await store.tasks.submit([draft(1, key="k")])
    answers = await store.tasks.submit(
        [draft(2, key="k", workflow="refund"), draft(3, key="k", app="warehouse")]
    )
    assert answers == [Submitted(2, is_new=True), Submitted(3, is_new=True)]


async def test_one_submission_with_a_key_twice_creates_one_task(store: Store) -> None:
    answers = await store.tasks.submit([draft(1, key="k"), draft(2, key="k"), draft(3)])
    assert answers == [Submitted(1, is_new=True), Submitted(1, is_new=False), Submitted(3, is_new=True)]


async def test_an_id_that_is_taken_leaves_both_tasks_alone(store: Store) -> None:
    await store.tasks.submit([draft(1)])
    answers = await store.tasks.submit([draft(1, workflow="refund", steps=steps(9)), draft(2)])
    assert answers == [Submitted(1, is_new=False, key_collision=True), Submitted(2, is_new=True)]
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.task.workflow, len(detail.steps)) == ("place_order", 3)


async def test_a_taken_key_counts_before_a_taken_id(store: Store) -> None:
    await store.tasks.submit([draft(1, key="k")])
    assert await store.tasks.submit([draft(1, key="k")]) == [Submitted(1, is_new=False)]


async def test_two_processes_submit_one_key_and_one_task_comes_of_it(store: Store, other: Store) -> None:
    for n in range(10):
        drafts = [draft(100 * n + m, key=f"k{n}") for m in range(2)]
        answers = await asyncio.gather(store.tasks.submit(drafts[:1]), other.tasks.submit(drafts[1:]))
        new = [a for (a,) in answers if a.is_new]
        assert len(new) == 1
        assert {a.id for (a,) in answers} == {new[0].id}


async def test_tasks_of_concurrent_submissions_are_all_there(store: Store) -> None:
    answers = await asyncio.gather(*(store.tasks.submit([draft(n), draft(n + 1000)]) for n in range(1, 101)))
    assert [[a.id for a in each] for each in answers] == [[n, n + 1000] for n in range(1, 101)]
    assert len(await store.tasks.find(Filter(limit=500))) == 200


@pytest.mark.parametrize("bad", [{"key": UNENCODABLE}, {"correlation_id": UNENCODABLE}, {"priority": 2**70}])
async def test_a_submission_the_database_refuses_writes_nothing(store: Store, bad: dict[str, Any]) -> None:
    with pytest.raises(PayloadError, match="refuses"):
        await store.tasks.submit([draft(1), draft(2, **bad)])
    assert await store.tasks.find(Filter()) == []


async def test_a_refused_submission_leaves_others_of_the_same_moment_alone(store: Store) -> None:
    results = await asyncio.gather(
        *(store.tasks.submit([draft(n, key=UNENCODABLE if n == 3 else None)]) for n in range(1, 6)),
        return_exceptions=True,
    )
    assert isinstance(results[2], PayloadError)
    assert [r for n, r in enumerate(results, 1) if n != 3] == [
        [Submitted(n, is_new=True)] for n in (1, 2, 4, 5)
    ]
    assert (await store.admin.schema()).rows["step"] == 12
    assert [t.id for t in await store.tasks.find(Filter())] == [5, 4, 2, 1]


async def test_find_gives_the_newest_first_up_to_the_limit(store: Store) -> None:
    await store.tasks.submit([draft(n) for n in (3, 1, 2, 5, 4)])
    assert [t.id for t in await store.tasks.find(Filter(limit=3))] == [5, 4, 3]
    assert [t.id for t in await store.tasks.find(Filter(limit=3, before=3))] == [2, 1]


async def test_every_condition_of_find_must_hold(store: Store) -> None:
    scheduler = await running(store, 1, 2)
    await scheduler.commit(to_state(scheduler[2], "error", goal="hold", cause="no stock"))
    await store.tasks.submit(
        [draft(3, key="a"), draft(4, key="a", workflow="refund"), draft(5, key="b", app="depot")]
    )

    async def ids(**conditions: Any) -> list[int]:
        return [t.id for t in await store.tasks.find(Filter(**conditions))]

    assert await ids(states=("error",)) == [2]
    assert await ids(states=("processing", "error")) == [2, 1]
    assert await ids(states=("pending",)) == [5, 4, 3]
    assert await ids(key="a") == [4, 3]
    assert await ids(key="a", workflow="refund") == [4]
    assert await ids(app="depot") == [5]
    assert await ids(ids=(1, 4, 99)) == [4, 1]
    assert await ids(ids=(1, 4), states=("pending",)) == [4]
    assert await ids(states=("undone",)) == []


async def test_detail_of_an_unknown_task_is_none(store: Store) -> None:
    assert await store.tasks.detail(12345) is None


async def test_detail_tells_what_is_in_flight_and_when_it_is_due(store: Store) -> None:
    scheduler = await running(store, 1)
    detail = await store.tasks.detail(1)
    assert detail is not None
    first = detail.steps[0]
    assert (first.state, first.attempt, first.doing, first.taken_by, first.due) == (
        "running",
        1,
        "do",
        None,
        None,
    )
    payments = await agent(store)
    await store.requests.take(payments, [offer()])
    decision = begin(scheduler[1], 1, isolate=True)
    decision.timers[2] = 100.0
    await scheduler.commit(decision)
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert [(s.doing, s.waiting, s.taken_by) for s in detail.steps] == [
        ("do", False, payments),
        ("do", False, None),
        (None, True, None),
    ]
    assert detail.steps[0].due == pytest.approx(30, abs=20)
    assert detail.steps[2].due == pytest.approx(100, abs=40)


async def test_history_has_one_event_per_commit_with_its_moves(store: Store) -> None:
    scheduler = await running(store, 1, 2)
    decision = begin(scheduler[1], 1)
    decision.attempts.append(AttemptEnd(0, 9, "do", "done", late=True))
    await scheduler.commit(decision)
    first, second = await store.tasks.history(1)
    assert first.moves == [
        Move("s0", "waiting", "running", "asked"),
        Move("task", "pending", "processing", "claimed"),
    ]
    assert second.moves == [Move("s1", "waiting", "running", "asked")]
    assert (first.task, first.node, first.note) == (1, scheduler.node, "")
    assert second.seq > first.seq
    assert "attempt 9" in second.note
    assert await store.tasks.history(1, after=first.seq) == [second]
    assert await store.tasks.history(1, after=second.seq) == []


async def test_a_decision_without_moves_or_stale_replies_leaves_no_event(store: Store) -> None:
    scheduler = await running(store, 1)
    await scheduler.commit(Decision(scheduler[1].task, scheduler[1].task, timers={1: 5.0}))
    assert len(await store.tasks.history(1)) == 1


async def test_load_gives_only_what_the_node_still_holds(store: Store) -> None:
    first = await running(store, 1, 2)
    second = await running(store, 3)
    await first.commit(to_state(first[2], "processed", result=b"1"))
    assert [snapshot.task.id for snapshot in await store.tasks.load(first.node, [1, 2, 3, 99])] == [1]
    assert [snapshot.task.id for snapshot in await store.tasks.load(second.node, [1, 2, 3])] == [3]
    assert await store.tasks.load(first.node, []) == []


async def test_load_gives_the_inbox_the_requests_and_the_timers(store: Store, world: World) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store)
    (request,) = await store.requests.take(payments, [offer()])
    await store.requests.answer(payments, [reply(request)])
    await store.tasks.post(1, TaskMessage("cancel"))
    await scheduler.commit(Decision(scheduler[1].task, scheduler[1].task, timers={1: 50.0, 2: 3.0}))
    await world.elapse(10)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert [(m.kind, m.idx, m.attempt) for m in snapshot.messages] == [("done", 0, 1), ("cancel", -1, 0)]
    assert 0 < snapshot.messages[0].seq < snapshot.messages[1].seq
    assert [(s.doing, s.waiting) for s in snapshot.steps] == [("do", False), (None, True), (None, True)]
    assert snapshot.due == {1: pytest.approx(25, abs=15.1), 2: 0.0}


async def test_every_field_of_a_task_comes_back_as_it_was_written(store: Store) -> None:
    plan = replace(
        draft(1, key="k", priority=4, within=50.0, undo_within=9.0, on_failure="hold", trace="00-a"),
        inputs=(b'{"a":1}', b"null"),
        returns=Template(("[", "]"), ()),
    )
    scheduler = await hand(store)
    await store.tasks.submit([plan])
    await scheduler.claim(1)
    before = scheduler[1].task
    assert before.inputs == (b'{"a":1}', b"null")
    assert before.returns == Template(("[", "]"), ())
    task = replace(before, goal="undo", state="undoing", submission=2, cause="why", lost=0, result=b"[1]")
    await scheduler.commit(Decision(before, task))
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert snapshot.task == task
    assert (task.key, task.priority, task.within, task.undo_within) == ("k", 4, 50.0, 9.0)
    assert (task.on_failure, task.trace, task.timed, task.epoch) == ("hold", "00-a", True, 1)


async def test_every_field_of_a_step_comes_back_as_it_was_written(store: Store) -> None:
    scheduler = await running(store, 1)
    plan = scheduler[1].steps[1].plan
    full = Step(
        plan,
        state="in_doubt",
        attempt=5,
        round=2,
        failures=3,
        asked=4,
        deaths=1,
        doubt=True,
        final=True,
        stuck=True,
        again=True,
        result=b'{"a":1}',
        late=b"2",
        error="it broke",
        stood=True,
        probe_answer=True,
        tally=FailureTally(2, 1, by_death=True),
    )
    decision = OpenDecision(
        scheduler[1].task, scheduler[1].task, steps={1: full}, failure_counts={1: (True, 3)}
    )
    await scheduler.commit(decision)
    (snapshot,) = await store.tasks.load(scheduler.node, [1])
    assert snapshot.steps[1] == full
    assert snapshot.steps[2] == scheduler[1].steps[2]
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert [step.stood for step in detail.steps] == [False, True, False]


async def test_a_task_can_have_hundreds_of_steps(store: Store) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, steps=steps(700))])
    await scheduler.claim(1)
    assert [s.idx for s in scheduler.seen[0].steps] == list(range(700))


async def test_a_whole_task_from_submission_to_its_end(store: Store) -> None:
    scheduler = await running(store, 1)
    payments = await agent(store)
    for n in range(3):
        (request,) = await store.requests.take(payments, [offer()])
        assert await store.requests.answer(payments, [reply(request, value=b"%d" % n)]) == [True]
        inbox = await store.tasks.inbox(scheduler.node, 10)
        (message,) = inbox.messages[1]
        memory: Memory = scheduler[1]
        decision = done(memory, n, message)
        if n < 2:
            begin(memory, n + 1, decision)
        else:
            to_state(memory, "processed", decision, result=b'"fine"')
        assert not (await scheduler.commit(decision)).losses
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.task.state, detail.task.result, detail.task.locked_by) == ("processed", b'"fine"', None)
    assert detail.task.ended is not None
    assert [(s.state, s.result) for s in detail.steps] == [("done", b"0"), ("done", b"1"), ("done", b"2")]
    rows = (await store.admin.schema()).rows
    assert (rows["request"], rows["inbox"]) == (0, 0)


def done(memory: Memory, idx: int, message: TaskMessage) -> OpenDecision:
    """Use up a reply that came through the store."""
    step = memory.steps[idx]
    changes = replace(step, state="done", doing=None, result=message.value)
    return OpenDecision(
        memory.task,
        memory.task,
        steps={idx: changes},
        used_requests=[(idx, message.attempt)],
        seqs=[message.seq],
        moves=[Move(step.name, "running", "done", "reply")],
    )


async def test_what_does_not_read_is_said_and_the_rest_is_shown(store: Store, world: World) -> None:
    await running(store, 1)
    async with world.raw() as raw:
        await raw.run("update {step} set spec = ? where idx = 1", b"not JSON")
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert [step.plan is None for step in detail.steps] == [False, True, False]
    assert detail.steps[1].undoable, "as far as anybody knows"
    (defect,) = detail.unreadable
    assert defect.startswith(
        "what step s1 declares (column spec of its row) is unreadable: JSON is malformed"
    )
    assert detail.inputs
    async with world.raw() as raw:
        await raw.run("update {task} set static = ?", b"{")
        await raw.run("update {event} set moves = ?", b"[3]")
    detail = await store.tasks.detail(1)
    assert detail is not None
    assert (detail.inputs, len(detail.unreadable)) == ((), 2)
    events = await store.tasks.history(1)
    assert events
    assert all(not event.moves and "this entry is unreadable" in event.note for event in events)
