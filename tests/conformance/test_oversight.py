"""What people look back on: attempts, error groups, refusals, figures per minute; and acts on many tasks and on the leader."""

import msgspec
import pytest
from msgspec.structs import replace

from makegood.base.ids import first_of, show
from makegood.model.attempt_end import AttemptEnd
from makegood.model.decision import Decision
from makegood.model.messages import MOST_EXTENSION, Act, Answer, TaskMessage
from makegood.model.states import Goal, StepState, TaskState
from makegood.store.bulk_acts import KEPT_REFUSALS, OUTSTANDING
from makegood.store.oversight_records import BulkView, Refusal, SupervisorDecision
from makegood.store.protocol import Store
from makegood.store.views import Filter, SchedulerTally
from tests.conformance.builders import (
    Hand,
    Memory,
    agent,
    begin,
    done,
    draft,
    hand,
    info,
    offer,
    reply,
    running,
    term,
    to_state,
    unchanged,
)
from tests.conformance.worlds import Counts, World

ANN = Act("act-1", "ann", "wrong price")


# Past attempts


async def test_how_attempts_ended_is_in_the_row_that_is_written_anyway(store: Store) -> None:
    scheduler = await running(store, 1)
    bank = await agent(store)
    await store.requests.take(bank, [offer()])
    decision = done(scheduler[1], 0)
    success = AttemptEnd(0, 1, "do", "done", bank, 1.25)
    failure = AttemptEnd(1, 1, "do", "gave_up", error="no", frame="a.py:1 in f", traceback='Traceback\n  "é"')
    decision.attempts = [success, failure]
    await scheduler.commit(decision)
    *_, last = await store.tasks.history(1)
    assert last.attempts == (success, failure)
    assert last.moves[0][0] == "s0"


async def test_a_commit_that_used_no_such_attempt_lists_none(store: Store) -> None:
    """An attempt in memory is not listed: the process of the row ran it."""
    scheduler = await running(store, 1, local=True)
    await scheduler.commit(done(scheduler[1], 0))
    assert [event.attempts for event in await store.tasks.history(1)][-1] == ()


async def test_attempts_that_cannot_be_read_are_named_and_hide_no_other_entry(
    store: Store, world: World
) -> None:
    await failed(store, 1, 2)
    async with world.raw() as raw:
        await raw.run("update {event} set attempts = ? where task = 1", b'[["a newer version"]]')
    *_, last = await store.tasks.history(1)
    assert last.attempts == ()
    assert "how its attempts ended is unreadable" in last.note
    (group,) = (await store.oversight.error_groups()).groups
    assert group.ids == (2,)


# Error groups


async def failed(
    store: Store, *ids: int, error: str = "HTTPError: 503 for order 'A-1'", frame: str | None = None
) -> Hand:
    """Tasks in error, each after one attempt that failed."""
    scheduler = await running(store, *ids, local=True)
    for id_ in ids:
        decision = to_state(scheduler[id_], "error", done(scheduler[id_], 0), cause="s0: it failed")
        decision.attempts = [
            AttemptEnd(0, 1, "do", "gave_up", error=error.replace("1", str(id_)), frame=frame)
        ]
        await scheduler.commit(decision)
    return scheduler


async def test_failures_with_one_cause_are_one_group(store: Store) -> None:
    await failed(store, 1, 2, frame="orders.py:42 in charge")
    await failed(store, 3, frame="orders.py:60 in refund")
    groups = await store.oversight.error_groups()
    assert (groups.read, groups.capped) == (3, False)
    by_frame = {group.frame: group for group in groups.groups}
    both = by_frame["orders.py:42 in charge"]
    assert (both.agent, both.action, both.doing) == ("shop/payments", "act0", "do")
    assert (both.attempts, both.tasks, both.ids, both.states) == (2, 2, (2, 1), {"error": 2})
    assert both.message == "HTTPError: N for order '…'"
    assert both.sample == "HTTPError: 503 for order 'A-2'"
    assert both.first <= both.last
    assert by_frame["orders.py:60 in refund"].ids == (3,)
    assert both.name != by_frame["orders.py:60 in refund"].name


@pytest.mark.parametrize(
    ("task", "step", "retries"),
    [
        ("processing", "in_doubt", 1),
        ("undoing", "failed", 0),
        ("undone", "failed", 0),
        ("error", "failed", 0),
        ("processing", "done", 0),
    ],
)
async def test_a_group_counts_the_tasks_in_which_it_is_tried_again(
    store: Store, task: TaskState, step: StepState, retries: int
) -> None:
    """A refusal for good is not tried again, while its task is undone; nor is what has succeeded since."""
    scheduler = await running(store, 1, local=True)
    decision = to_state(scheduler[1], task, done(scheduler[1], 0), cause="s0: card refused")
    decision.steps[0] = msgspec.structs.replace(decision.steps[0], state=step, result=None)
    decision.attempts = [
        AttemptEnd(0, 1, "do", "permanent", error="card refused", traceback="Traceback of it")
    ]
    await scheduler.commit(decision)
    (group,) = (await store.oversight.error_groups()).groups
    assert (group.retried, group.states, group.traceback) == (retries, {task: 1}, "Traceback of it")


@pytest.mark.parametrize(
    ("goal", "step", "blocking"),
    [
        ("undo", "undo_failed", {"the desk is closed": 1}),
        ("hold", "in_doubt", {"timed out": 1}),
        ("undo", "in_doubt", {"timed out": 1}),
        ("undo", "undone", {}),
    ],
)
async def test_a_group_blocks_only_the_tasks_that_stand_in_its_failure(
    store: Store, goal: Goal, step: StepState, blocking: dict[str, int]
) -> None:
    """A task in error has had other failures before, which are over; a silence after one with words is not what it stands in."""
    scheduler = await running(store, 1, local=True)
    decision = to_state(scheduler[1], "error", done(scheduler[1], 0), cause="s0: it failed", goal=goal)
    error = "the desk is closed (2 of 3; then the process died)" if step == "undo_failed" else "timed out"
    decision.steps[0] = msgspec.structs.replace(decision.steps[0], state=step, result=None, error=error)
    decision.attempts = [
        AttemptEnd(0, 1, "do", "gave_up", error="no connection"),
        AttemptEnd(0, 2, "do", "gave_up", error="timed out"),
        AttemptEnd(0, 3, "do", "expired", error="the process that ran it died"),
        AttemptEnd(0, 4, "undo", "gave_up", error="the desk is closed"),
        AttemptEnd(0, 5, "undo", "expired", error="the process that ran it died"),
    ]
    await scheduler.commit(decision)
    groups = (await store.oversight.error_groups()).groups
    assert len(groups) == 5
    assert {group.message: group.blocking for group in groups if group.blocking} == blocking


async def test_tasks_of_an_older_version_are_grouped_by_the_last_error_of_a_step(store: Store) -> None:
    scheduler = await running(store, 1, local=True)
    decision = to_state(scheduler[1], "error", done(scheduler[1], 0), cause="s0: it failed")
    decision.steps[0] = msgspec.structs.replace(decision.steps[0], error="card 17 refused")
    await scheduler.commit(decision)
    (group,) = (await store.oversight.error_groups()).groups
    assert (group.message, group.attempts, group.frame) == ("card N refused", 1, "")


async def test_grouping_costs_the_same_beside_many_ended_tasks(counting: tuple[Store, Counts]) -> None:
    store, counts = counting
    await failed(store, 1, 2)
    await store.oversight.error_groups()
    costs = []
    for many in (range(10, 12), range(100, 160)):
        await store.tasks.submit([draft(id_) for id_ in many])
        await counts.reset()
        await store.oversight.error_groups()
        costs.append((counts.statements, await counts.commits()))
    assert costs[0] == costs[1]
    assert costs[0][1] == 0


# Refusals


async def test_a_decision_under_an_old_epoch_leaves_a_refusal(store: Store) -> None:
    scheduler = await running(store, 1)
    await store.oversight.overtaken(scheduler.node, [(1, 0), (77, 3)])
    lost_decision, refusal = await store.oversight.refusals()
    assert (refusal.kind, refusal.who, refusal.node, refusal.task, refusal.epoch, refusal.against) == (
        "decision", "scheduler", scheduler.node, 1, 0, 1,
    )  # fmt: skip
    assert f"process {scheduler.node} holds the task under epoch 1" in refusal.what
    assert (lost_decision.task, lost_decision.against) == (77, None)
    assert await store.oversight.refusals(task=1) == [refusal]


async def test_a_late_reply_leaves_a_refusal_and_one_in_time_leaves_none(store: Store, world: World) -> None:
    await running(store, 1, 2)
    bank = await agent(store)
    first, second = await store.requests.take(bank, [offer()])
    assert await store.requests.answer(bank, [reply(first)]) == [True]
    await world.elapse(31)
    assert await store.requests.answer(bank, [reply(second)]) == [False]
    (refusal,) = await store.oversight.refusals()
    assert (refusal.kind, refusal.who, refusal.task, refusal.step, refusal.attempt) == (
        "reply",
        "agent",
        second.task,
        "0",
        1,
    )


async def test_a_former_leader_s_write_leaves_a_refusal(store: Store) -> None:
    await store.oversight.refused([Refusal("term", "its term was over", "sup-1", epoch=3, against=4)])
    (refusal,) = await store.oversight.refusals()
    assert (refusal.kind, refusal.who, refusal.epoch, refusal.against) == ("term", "sup-1", 3, 4)


# What the leading Supervisor did


async def test_what_leaders_did_is_kept_newest_first_and_bounded(store: Store) -> None:
    """A row for each kind of a pass; beyond the latest thousand they go."""
    await store.oversight.decided(
        [SupervisorDecision("judged", 3, 17, epoch=4), SupervisorDecision("turned", 1, 18, epoch=4)]
    )
    turn, verdict = await store.oversight.decisions()
    assert (turn.kind, turn.tasks, turn.task, turn.epoch) == ("turned", 1, 18, 4)
    assert (verdict.kind, verdict.tasks, verdict.task) == ("judged", 3, 17)
    assert abs(verdict.at - await store.now()) < 60
    await store.oversight.decided([SupervisorDecision("freed", n, 19, epoch=5) for n in range(1, 1_005)])
    decisions = await store.oversight.decisions(2_000)
    assert (len(decisions), decisions[0].tasks, decisions[-1].tasks) == (1_000, 1_004, 5)
    assert await store.oversight.decisions(1) == decisions[:1]


# Figures per minute


async def test_a_minute_adds_up_what_several_leaders_saw(store: Store, world: World) -> None:
    now = await store.now()
    minute = int(now // 60)
    await store.tasks.submit([draft(first_of(minute * 60) + n) for n in range(3)])
    await store.oversight.add_minute(minute, 20.0, SchedulerTally(5, 1, 1, 12, (0, 4, 1)))
    await store.oversight.add_minute(minute, 15.0, SchedulerTally(2, 0, 0, 3, (1,)))
    (row,) = await store.oversight.minutes()
    assert (row.minute, row.seen) == (minute * 60, 35.0)
    assert (row.submitted, row.processed, row.undone, row.errors, row.steps) == (3, 7, 1, 1, 15)
    assert row.p50 is not None
    assert row.p95 is not None
    assert 0.001 <= row.p50 <= row.p95 < 0.01


async def test_figures_are_kept_for_a_day(store: Store) -> None:
    now = int(await store.now() // 60)
    for minute in (now - 1500, now - 100, now):
        await store.oversight.add_minute(minute, 60.0, SchedulerTally(1))
    assert [round(m.minute) // 60 for m in await store.oversight.minutes(86_400 * 2)] == [now - 100, now]
    assert [round(m.minute) // 60 for m in await store.oversight.minutes()] == [now]


# Acts on many tasks


async def requested(store: Store, *ids: int, **options: object) -> BulkView:
    """An undo of tasks in error."""
    await failed(store, *ids)
    return await store.oversight.bulk(ANN, "undo", Filter(states=("error",)), **options)  # type: ignore[arg-type]


async def decide_all(store: Store, verdict: str = "applied") -> int:
    """Answer every operator command that waits, as a Scheduler would."""
    scheduler = await hand(store)
    resting = (await store.tasks.inbox(scheduler.node, 1000)).at_rest

    def answered(memory: object) -> object:
        decision = unchanged(memory)  # type: ignore[arg-type]
        for message in memory.messages:  # type: ignore[attr-defined]
            decision.answers.append(Answer(message.act, message.kind, verdict, "it was so", "error"))  # type: ignore[arg-type]
            decision.seqs.append(message.seq)
        decision.release = True
        return decision

    if resting:
        await scheduler.claim(0, answered, at_rest=resting)  # type: ignore[arg-type]
    return len(resting)


async def test_an_act_on_many_sends_each_task_one_ordinary_command(store: Store, other: Store) -> None:
    bulk = await requested(store, 1, 2, 3)
    assert (bulk.counted, bulk.state, bulk.who, bulk.why, bulk.sent) == (
        3,
        "running",
        "ann",
        "wrong price",
        0,
    )
    (audit,) = await store.admin.audit()
    assert (audit.kind, audit.who, audit.why, audit.verdict, audit.state) == (
        "bulk undo", "ann", "wrong price", "applied", "running",
    )  # fmt: skip
    assert "3 tasks match: state:error" in audit.outcome
    assert await store.oversight.open_bulk_acts(10) == ["act-1"]
    await failed(store, 9)  # submitted later: not meant
    assert await store.oversight.advance_bulk("act-1", 2) == 2
    assert await other.oversight.advance_bulk("act-1", 2) == 1  # another leader continues
    assert await other.oversight.advance_bulk("act-1", 2) == 0
    commands = {id_: (await store.tasks.detail(id_, with_asked=True)).asked for id_ in (1, 2, 3, 9)}  # type: ignore[union-attr]
    assert [[(a.kind, a.act.id, a.act.who, a.act.why) for a in commands[id_]] for id_ in (1, 2, 3)] == [
        [("undo", f"act-1/{show(id_)}", "ann", "wrong price")] for id_ in (1, 2, 3)
    ]
    assert commands[9] == ()
    view = await store.oversight.bulk_act("act-1")
    assert view is not None
    assert (view.sent, view.waiting, view.state, view.progress) == (3, 3, "running", 0.0)
    assert await decide_all(store) == 3
    assert await store.oversight.advance_bulk("act-1", 2) is None
    view = await store.oversight.bulk_act("act-1")
    assert view is not None
    assert (view.state, view.applied, view.waiting, view.progress) == ("done", 3, 0, 1.0)
    assert view.ended is not None
    assert await store.oversight.open_bulk_acts(10) == []
    assert await store.oversight.advance_bulk("act-1", 2) is None


async def test_the_tasks_that_accepted_an_act_are_counted_by_their_state(store: Store) -> None:
    """Also after the act: its commands are decided long before its tasks have ended. Another act's do not count."""
    await requested(store, 1, 2)
    await store.oversight.advance_bulk("act-1", 100)
    assert await store.oversight.bulk_ends("act-1") == {}
    await decide_all(store)
    assert await store.oversight.advance_bulk("act-1", 100) is None
    assert await store.oversight.bulk_ends("act-1") == {"error": 2}
    assert await store.oversight.bulk_ends("act-") == {}
    await failed(store, 3)
    await store.oversight.bulk(Act("act-12", "ann"), "undo", Filter(ids=(3,)))
    await store.oversight.advance_bulk("act-12", 100)
    await decide_all(store, "refused")
    assert await store.oversight.bulk_ends("act-12") == {}
    assert await store.oversight.bulk_ends("act-1") == {"error": 2}


async def test_refusals_of_an_act_are_kept_one_by_one(store: Store) -> None:
    await requested(store, 1, 2)
    await store.oversight.advance_bulk("act-1", 100)
    await decide_all(store, "refused")
    assert await store.oversight.advance_bulk("act-1", 100) is None
    view = await store.oversight.bulk_act("act-1")
    assert view is not None
    assert (view.refused, view.applied, view.noop) == (2, 0, 0)
    assert [(r.task, r.outcome) for r in await store.oversight.bulk_refusals("act-1")] == [
        (2, "it was so"), (1, "it was so"),
    ]  # fmt: skip
    assert KEPT_REFUSALS >= OUTSTANDING


async def test_a_stopped_act_sends_nothing_more_and_ends_when_all_is_decided(store: Store) -> None:
    await requested(store, 1, 2, 3)
    await store.oversight.advance_bulk("act-1", 1)
    bulk = await store.oversight.stop_bulk("act-1", Act("act-2", "bob", "enough"))
    assert bulk is not None
    assert (bulk.state, bulk.stopped_by, bulk.sent) == ("stopping", "bob", 1)
    assert await store.oversight.advance_bulk("act-1", 100) == 0
    await decide_all(store)
    assert await store.oversight.advance_bulk("act-1", 100) is None
    view = await store.oversight.bulk_act("act-1")
    assert view is not None
    assert (view.state, view.sent, view.applied) == ("stopped", 1, 1)
    assert {a.kind for a in await store.admin.audit()} >= {"bulk stop", "bulk undo"}
    again = await store.oversight.stop_bulk("act-1", Act("act-3", "bob"))
    assert again == view
    assert await store.oversight.stop_bulk("no such", ANN) is None


async def test_an_act_keeps_to_its_limit_and_its_rate(store: Store, world: World) -> None:
    bulk = await requested(store, 1, 2, 3, 4, most=3, rate=1.0)
    assert (bulk.counted, bulk.limit, bulk.rate) == (3, 3, 1.0)
    assert await store.oversight.advance_bulk("act-1", 100) == 2  # what a second allows, and the first
    assert await store.oversight.advance_bulk("act-1", 100) == 0
    await world.elapse(5)
    assert await store.oversight.advance_bulk("act-1", 100) == 1
    await decide_all(store)
    assert await store.oversight.advance_bulk("act-1", 100) is None


async def test_a_task_that_was_removed_does_not_hold_an_act_up(store: Store, world: World) -> None:
    await requested(store, 1)
    await store.oversight.advance_bulk("act-1", 100)
    async with world.raw() as raw:
        await raw.run("delete from {inbox}")
        await raw.run("delete from {task}")
    assert await store.oversight.advance_bulk("act-1", 100) is None
    assert [r.outcome for r in await store.oversight.bulk_refusals("act-1")] == ["the task was removed"]


@pytest.mark.parametrize(
    "field", ['"limit":-1', '"older":-5.0', '"states":["odd"]', '"ids":[true]', '"failures":[1]']
)
async def test_an_act_with_a_filter_that_cannot_be_is_shown_and_sends_nothing(
    world: World, store: Store, field: str
) -> None:
    """Manual SQL wrote what ``Filter`` refuses with makegood's own error: neither the list nor the leader stumbles."""
    await requested(store, 2)
    async with world.raw() as raw:
        await raw.run("update {bulk_act} set wanted = ?", f"{{{field}}}".encode())
    assert [view.wanted for view in await store.oversight.bulk_acts()] == [Filter(ids=(0,))]
    assert await store.oversight.advance_bulk("act-1", 100) == 0
    view = await store.oversight.bulk_act("act-1")
    assert view is not None
    assert (view.state, view.sent) == ("running", 0)


async def test_an_act_that_waits_for_answers_writes_nothing(counting: tuple[Store, Counts]) -> None:
    store, counts = counting
    await requested(store, 1)
    await store.oversight.advance_bulk("act-1", 100)
    await store.oversight.advance_bulk("act-1", 100)
    await counts.reset()
    assert await store.oversight.advance_bulk("act-1", 100) == 0
    assert await counts.commits() == 0


# The leader


async def test_the_leader_of_an_epoch_is_asked_to_step_down(store: Store) -> None:
    first = await store.leases.acquire("supervisor", "sup-1", "one", 60.0)
    assert first is not None
    assert await store.oversight.ask_step_down("supervisor", first.epoch + 1, ANN) is None
    assert not await store.oversight.asked_to_step_down("supervisor", first.epoch)
    assert await store.oversight.ask_step_down("supervisor", first.epoch, ANN) == "sup-1"
    assert await store.oversight.asked_to_step_down("supervisor", first.epoch)
    (audit,) = await store.admin.audit()
    assert (audit.kind, audit.who, audit.task) == ("step_down", "ann", None)
    await store.leases.release(first)
    second = await store.leases.acquire("supervisor", "sup-2", "two", 60.0)
    assert second is not None
    assert not await store.oversight.asked_to_step_down("supervisor", second.epoch)


async def test_a_process_publishes_what_its_scheduler_has_done(store: Store) -> None:
    await store.nodes.register(info("one", tally=SchedulerTally(3, 1, 0, 9, (1, 2))))
    (view,) = await store.nodes.views()
    assert view.info.tally == SchedulerTally(3, 1, 0, 9, (1, 2))


@pytest.mark.parametrize("kind", ["cancel", "resubmit"])
async def test_other_acts_send_their_own_command(store: Store, kind: str) -> None:
    await failed(store, 1)
    await store.oversight.bulk(ANN, kind, Filter(ids=(1,)))  # type: ignore[arg-type]
    await store.oversight.advance_bulk("act-1", 1)
    detail = await store.tasks.detail(1, with_asked=True)
    assert detail is not None
    assert [a.kind for a in detail.asked] == [kind]


async def test_a_step_that_begins_lists_no_attempt(store: Store) -> None:
    scheduler = await running(store, 1, local=True)
    await scheduler.commit(begin(scheduler[1], 1, done(scheduler[1], 0)))
    assert all(not event.attempts for event in await store.tasks.history(1))


# A later deadline


async def complete_by(store: Store, task: int) -> float:
    """Return how many seconds a task has left."""
    (view,) = await store.tasks.find(Filter(ids=(task,)))
    assert view.complete_by is not None
    return view.complete_by - await store.now()


async def test_an_operator_s_extension_moves_the_deadline_and_nothing_else(store: Store) -> None:
    scheduler = await running(store, 1, within=60.0)
    before = await complete_by(store, 1)
    decision = unchanged(scheduler[1])
    decision.extends = 100.0
    await scheduler.commit(decision)
    assert await complete_by(store, 1) == pytest.approx(before + 100.0, abs=5.0)
    await scheduler.commit(done(scheduler[1], 0))
    assert await complete_by(store, 1) == pytest.approx(before + 100.0, abs=5.0)
    (view,) = await store.tasks.find(Filter(ids=(1,)))
    assert (view.state, view.goal) == ("processing", "forward")


async def test_a_deadline_is_at_most_a_week_from_now_and_never_earlier(store: Store) -> None:
    scheduler = await running(store, 1, within=MOST_EXTENSION * 2)
    for _ in range(2):
        decision = unchanged(scheduler[1])
        decision.extends = MOST_EXTENSION
        await scheduler.commit(decision)
    assert await complete_by(store, 1) == pytest.approx(MOST_EXTENSION * 2, abs=5.0)
    other = await running(store, 2, within=60.0)
    for _ in range(2):
        decision = unchanged(other[2])
        decision.extends = MOST_EXTENSION
        await other.commit(decision)
    assert await complete_by(store, 2) == pytest.approx(MOST_EXTENSION, abs=5.0)


async def test_a_deadline_that_was_moved_can_pass_again(store: Store, world: World) -> None:
    scheduler = await running(store, 1, within=60.0)
    grant = await term(store, ttl=600.0)
    await world.elapse(61)
    assert await store.supervision.expire_tasks(grant, 10) == [1]
    decision = unchanged(scheduler[1])
    decision.extends = 100.0
    await scheduler.commit(decision)
    assert await store.supervision.expire_tasks(grant, 10) == []
    await world.elapse(101)
    assert await store.supervision.expire_tasks(grant, 10) == [1]


async def test_a_claim_and_an_extension_are_one_commit(store: Store) -> None:
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, within=60.0)])

    def claimed(memory: Memory) -> Decision:
        decision = begin(memory)
        decision.task = replace(decision.task, timed=True)
        decision.extends = 100.0
        return decision

    await scheduler.claim(1, claimed)
    assert await complete_by(store, 1) == pytest.approx(160.0, abs=5.0)


async def test_an_extension_reaches_the_scheduler_and_is_listed_until_then(store: Store) -> None:
    scheduler = await running(store, 1)
    await store.tasks.post(1, TaskMessage("extend", wait=60.0, act=ANN))
    detail = await store.tasks.detail(1, with_asked=True)
    assert detail is not None
    assert [(a.kind, a.act.who) for a in detail.asked] == [("extend", "ann")]
    (message,) = (await store.tasks.inbox(scheduler.node, 10)).messages[1]
    assert (message.kind, message.wait) == ("extend", 60.0)


@pytest.mark.parametrize("filter_text", [b'{"states":["error"],"of_a_newer_version":1}', b"[3]"])
async def test_a_filter_that_is_not_known_reaches_nobody_and_can_be_stopped(
    store: Store, world: World, filter_text: bytes
) -> None:
    """A leader of a newer version carries it out: without a condition, it would reach other tasks."""
    await requested(store, 1)
    async with world.raw() as raw:
        await raw.run("update {bulk_act} set wanted = ?", filter_text)
    assert await store.oversight.advance_bulk("act-1", 100) == 0
    (view,) = await store.oversight.bulk_acts()
    assert (view.state, view.sent) == ("running", 0)
    await store.oversight.stop_bulk("act-1", ANN)
    assert await store.oversight.advance_bulk("act-1", 100) is None
