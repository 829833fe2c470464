"""Alerts: one for a cause while it stands; they end, are acknowledged, logged once and told at least once. And the audit."""

import asyncio

import pytest
from msgspec.structs import replace

from makegood.model.decision import OpenDecision
from makegood.model.messages import UNTIL_SEEN, Act, Alert, AlertKind, Answer
from makegood.store.oversight_records import Refusal
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing
from makegood.store.rows import MOST_TEXT
from makegood.store.views import AgentInfo, AlertView
from tests.conformance.builders import (
    PAYMENTS,
    agent,
    draft,
    info,
    offer,
    running,
    scheduler,
    term,
    to_state,
    unchanged,
)
from tests.conformance.worlds import World

ANN = Act("act-1", "ann", "I look into it")


async def one(store: Store) -> AlertView:
    """Return the only alert."""
    (alert,) = await store.alerts.views()
    return alert


# Raising


async def test_one_cause_is_one_alert_while_it_stands_and_says_the_latest(store: Store, other: Store) -> None:
    await store.alerts.alert(
        [Alert("no_leader", text="nobody leads"), Alert("no_leader", text="nobody leads")]
    )
    await other.alerts.alert([Alert("no_leader", text="nobody has led for long")])
    alert = await one(store)
    assert (alert.kind, alert.text, alert.open) == ("no_leader", "nobody has led for long", True)
    await store.alerts.alert(
        [Alert("circuit_open", step="shop/payments"), Alert("circuit_open", step="shop/stock")]
    )
    assert len(await store.alerts.views()) == 3


async def test_two_processes_that_raise_it_in_one_moment_make_one_alert(store: Store, other: Store) -> None:
    alerts = [s.alerts.alert([Alert("no_leader", text=f"{n}")]) for n in range(5) for s in (store, other)]
    await asyncio.gather(*alerts)
    assert (await one(store)).kind == "no_leader"


async def test_no_text_of_an_alert_fills_a_log(store: Store) -> None:
    """Whoever may raise an alert may write any text: what is read of it, for pages, logs and receivers, is bounded."""
    await store.alerts.alert([Alert("role_failing", step="inbox x", text="x" * 3_000_000)])
    alerts = [*(telling.alert for telling in await store.alerts.take_unlogged(10)), await one(store)]
    assert [len(alert.text) for alert in alerts] == [MOST_TEXT] * 2


async def test_no_text_of_a_history_a_message_or_a_refusal_fills_a_terminal(
    store: Store, world: World
) -> None:
    """An agent's role may write notes and refusals, an inbox's role errors of messages: of each so much is read."""
    await running(store, 1)
    await store.queues.send_messages([Outgoing(queue="orders", id="1", body=b"1")], 10)
    await store.oversight.refused([Refusal("term", "what", "who", step="step")])
    long = "x" * 3_000_000
    async with world.raw() as raw:
        await raw.run("update {event} set note = ?", long)
        await raw.run("update {message} set error = ?", long)
        await raw.run("update {refusal} set kind = ?, what = ?, who = ?, step = ?", long, long, long, long)
    texts = [event.note for event in await store.tasks.history(1)]
    texts += [view.message.error for view in await store.queues.messages(None)]
    texts += [
        text for one in await store.oversight.refusals() for text in (one.kind, one.what, one.who, one.step)
    ]
    assert [len(text) for text in texts] == [MOST_TEXT] * 6


async def test_that_a_task_is_in_error_is_one_cause(store: Store) -> None:
    """What put it there is said first, what stands of it later, by another process perhaps: one alert."""
    scheduler = await running(store, 1)
    kinds: tuple[AlertKind, ...] = ("poison", "held", "undo_incomplete")
    for kind in kinds:
        decision = unchanged(scheduler[1])
        decision.alerts = [Alert(kind, text=kind)]
        await scheduler.commit(decision)
    alert = await one(store)
    assert (alert.kind, alert.text, alert.task) == ("poison", "undo_incomplete", 1)


async def test_a_cause_that_has_gone_and_comes_again_is_a_new_alert(store: Store) -> None:
    await store.alerts.alert([Alert("circuit_open", step="shop/payments", text="5 failures")])
    await store.alerts.ease(
        [Alert("circuit_open", step="shop/payments"), Alert("no_leader")], "the canary lived"
    )
    alert = await one(store)
    assert (alert.open, alert.ended is not None, alert.ended_why) == (False, True, "the canary lived")
    await store.alerts.alert([Alert("circuit_open", step="shop/payments", text="5 failures")])
    assert [a.open for a in await store.alerts.views()] == [True, False]
    assert [a.id for a in await store.alerts.views(ended=True)] == [alert.id]
    assert [a.open for a in await store.alerts.views(ended=False)] == [True]


async def test_open_alerts_are_not_hidden_behind_newer_ones_that_somebody_has_acknowledged(
    store: Store,
) -> None:
    """However few are asked for: an operator looks at the first page only."""
    for n in range(5):
        await store.alerts.alert([Alert("circuit_open", step=f"shop/{n}")])
    newest_first = [a.id for a in await store.alerts.views()]
    await store.alerts.acknowledge(newest_first[:2], ANN)
    standing = await store.alerts.views(3, ended=False)
    assert [a.id for a in standing] == newest_first[2:]
    assert [a.id for a in await store.alerts.views(5, ended=False)] == newest_first[2:] + newest_first[:2]


# With the Decisions of a task


async def in_error(store: Store) -> tuple[object, OpenDecision]:
    """Return a Scheduler by hand and its next Decision about a task in error with two alerts."""
    scheduler = await running(store, 1)
    decision = to_state(scheduler[1], "error", goal="hold", release=False)
    decision.alerts = [Alert("step_gave_up", step="s0", text="silent"), Alert("held", text="held")]
    await scheduler.commit(decision)
    return scheduler, to_state(scheduler[1], "pending")


async def test_alerts_end_with_the_change_that_eases_them(store: Store) -> None:
    scheduler, decision = await in_error(store)
    decision.alert_ends = ["*"]
    await scheduler.commit(decision)  # type: ignore[attr-defined]  # a Hand
    alerts = await store.alerts.views(task=1)
    assert [(a.kind, a.open, a.ended_why) for a in alerts] == [
        ("held", False, "the task is pending"), ("step_gave_up", False, "the task is pending"),
    ]  # fmt: skip


async def test_only_the_alerts_of_a_step_end_when_that_is_eased(store: Store) -> None:
    scheduler, decision = await in_error(store)
    decision.alert_ends = ["s0"]
    await scheduler.commit(decision)  # type: ignore[attr-defined]  # a Hand
    assert {a.kind: a.open for a in await store.alerts.views()} == {"held": True, "step_gave_up": False}


async def test_what_is_raised_beside_what_ends_is_a_new_alert_of_the_same_cause(store: Store) -> None:
    """An operator's undo that is stuck at once: who acknowledged the old alert sees a new one."""
    scheduler, decision = await in_error(store)
    decision.alert_ends, decision.alerts = ["*"], [Alert("undo_incomplete", text="stuck again")]
    await scheduler.commit(decision)  # type: ignore[attr-defined]  # a Hand
    assert [(a.kind, a.open) for a in await store.alerts.views()] == [
        ("undo_incomplete", True), ("held", False), ("step_gave_up", False),
    ]  # fmt: skip


async def test_what_is_raised_by_a_task_that_ends_with_it_has_ended(store: Store) -> None:
    scheduler = await running(store, 1)
    decision = to_state(scheduler[1], "undone", goal="undo")
    decision.alerts, decision.alert_ends = [Alert("step_gave_up", step="s0", text="cannot begin")], ["*"]
    await scheduler.commit(decision)
    alert = await one(store)
    assert (alert.open, alert.ended_why, alert.ended) == (False, "the task is undone", alert.at)


# What the Supervisor finds


async def test_an_action_that_nobody_takes_is_one_alert_until_it_is_taken(store: Store, world: World) -> None:
    await running(store, 1, 2, 3)
    grant = await term(store, ttl=1e6)
    await world.elapse(100)
    assert sorted(await store.supervision.alert_starved(grant, 60.0, 10)) == [1, 2, 3]
    assert (await one(store)).kind == "starved"
    node = await agent(store, ttl=1e6)
    await store.requests.take(node, [offer(2)])
    await store.supervision.alert_starved(grant, 60.0, 10)
    assert (await one(store)).open, "one request still waits"
    await store.requests.take(node, [offer(2)])
    await store.supervision.alert_starved(grant, 60.0, 10)
    assert (await one(store)).ended_why == "its requests are taken"


async def test_that_nobody_leads_ends_with_the_first_pass_of_a_leader(store: Store) -> None:
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    await store.supervision.alert_starved(await term(store), 60.0, 10)
    assert (await one(store)).ended_why == "a supervisor leads"


async def test_tasks_that_wait_for_a_scheduler_are_one_alert_until_one_runs(
    store: Store, world: World
) -> None:
    """Not while one lives or has just ended, not without tasks; and a task that has only just come does not count yet."""
    await scheduler(store, ttl=10.0)
    grant = await term(store, ttl=1e6)
    await world.elapse(100)
    await store.supervision.alert_starved(grant, 60.0, 10)
    await store.tasks.submit([draft(1), draft(2)])
    await store.supervision.alert_starved(grant, 60.0, 10)
    assert await store.alerts.views() == [], "they have only just come"
    await world.elapse(61, pending=True)
    await store.supervision.alert_starved(grant, 60.0, 10)
    await store.supervision.alert_starved(grant, 60.0, 10)
    alert = await one(store)
    assert (alert.kind, alert.task, alert.open) == ("no_scheduler", None, True)
    assert alert.text == "no scheduler has run for 60 s, and tasks wait for one: start `makegood scheduler`"
    await agent(store, ttl=1e6)
    await store.supervision.alert_starved(grant, 60.0, 10)
    assert (await one(store)).open, "an agent claims nothing"
    lives = await scheduler(store, ttl=1e6)
    await store.supervision.alert_starved(grant, 60.0, 10)
    assert (await one(store)).ended_why == "a scheduler runs, or no task waits for one"
    await store.nodes.unregister(lives)
    await world.elapse(30)
    await store.supervision.alert_starved(grant, 60.0, 10)
    assert len(await store.alerts.views()) == 1, "another may be starting in its place"
    await world.elapse(31)
    await store.supervision.alert_starved(grant, 60.0, 10)
    assert [alert.open for alert in await store.alerts.views()] == [True, False]


# Acknowledging


async def test_an_alert_is_acknowledged_by_the_first_with_an_audit(store: Store, other: Store) -> None:
    await running(store, 1)
    await store.alerts.alert([Alert("held", 1, text="held")])
    alert = await one(store)
    bob = Act("act-2", "bob", "me too")
    both = await asyncio.gather(
        store.alerts.acknowledge([alert.id, 99], ANN), other.alerts.acknowledge([alert.id], bob)
    )
    views = [views_[alert.id] for views_ in both]
    assert 99 not in both[0]
    assert len({view.acked_by for view in views}) == 1
    assert [(v.open, v.ended, v.acked is not None) for v in views] == [(False, None, True)] * 2
    (entry,) = await store.admin.audit()
    assert (entry.kind, entry.task, entry.who, entry.why) == (
        "acknowledge", 1, views[0].acked_by, views[0].acked_why,
    )  # fmt: skip
    assert str(alert.id) in entry.outcome


async def test_a_look_at_what_is_covered_is_in_the_audit(store: Store) -> None:
    """As an act of its own on the task, which changes nothing."""
    await running(store, 1)
    before = await store.tasks.history(1)
    await store.alerts.note_look(ANN, 1, "its payloads, uncovered")
    (entry,) = await store.admin.audit(10, 1)
    assert (entry.kind, entry.who, entry.why, entry.outcome) == (
        "look",
        ANN.who,
        ANN.why,
        "its payloads, uncovered",
    )
    assert await store.tasks.history(1) == before


async def test_what_is_acknowledged_and_still_stands_is_not_raised_again(store: Store) -> None:
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    await store.alerts.acknowledge([(await one(store)).id], ANN)
    await store.alerts.alert([Alert("no_leader", text="still nobody leads")])
    alert = await one(store)
    assert (alert.open, alert.text, alert.acked_by) == (False, "still nobody leads", "ann")


@pytest.mark.parametrize("kind", sorted(UNTIL_SEEN))
async def test_what_has_only_happened_ends_when_it_is_acknowledged(store: Store, kind: AlertKind) -> None:
    """On PostgreSQL a function of the database does it: it must know each kind."""
    await store.alerts.alert([Alert(kind, step="2", text="restored")])
    await store.alerts.acknowledge([(await one(store)).id], ANN)
    assert (await one(store)).ended_why == "acknowledged"
    assert await store.alerts.acknowledge([], ANN) == {}


# Telling


async def test_an_alert_is_logged_by_one_process_and_its_end_as_well(store: Store, other: Store) -> None:
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    both = await asyncio.gather(store.alerts.take_unlogged(10), other.alerts.take_unlogged(10))
    assert [(t.is_start, t.alert.ended) for tellings in both for t in tellings] == [(True, None)]
    await store.alerts.ease([Alert("no_leader")], "a leader is back")
    (telling,) = await other.alerts.take_unlogged(10)
    assert (telling.is_start, telling.alert.ended_why) == (False, "a leader is back")
    assert await store.alerts.take_unlogged(10) == []


async def test_what_is_to_be_told_is_held_tried_again_and_told(
    store: Store, other: Store, world: World
) -> None:
    await store.alerts.alert(
        [Alert("no_leader", text="nobody leads"), Alert("circuit_open", step="shop/payments")]
    )
    first, second = await store.alerts.untold(30.0, 10)
    assert (first.alert.kind, first.is_start, first.tries) == ("no_leader", True, 0)
    assert await other.alerts.untold(30.0, 10) == [], "the first process has them"
    await store.alerts.told([first], {second.alert.id: 60.0})
    await world.elapse(31)
    assert await other.alerts.untold(30.0, 10) == []
    await world.elapse(30)
    (again,) = await other.alerts.untold(30.0, 10)
    assert (again.alert.kind, again.tries) == ("circuit_open", 1)
    await world.elapse(31)  # that process died
    assert [t.alert.kind for t in await store.alerts.untold(30.0, 10)] == ["circuit_open"]
    await store.alerts.ease([Alert("no_leader")], "a leader is back")
    (telling,) = await other.alerts.untold(30.0, 10)
    assert (telling.alert.kind, telling.is_start) == ("no_leader", False)
    await other.alerts.told([telling], {})
    await world.elapse(31)
    assert [t.alert.kind for t in await store.alerts.untold(30.0, 10)] == ["circuit_open"]


async def test_what_ended_while_it_was_told_is_told_to_have_ended(store: Store) -> None:
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    tellings = await store.alerts.untold(30.0, 10)
    await store.alerts.ease([Alert("no_leader")], "a leader is back")
    await store.alerts.told(tellings, {})
    (telling,) = await store.alerts.untold(30.0, 10)
    assert (telling.is_start, telling.alert.ended_why) == (False, "a leader is back")


async def test_old_alerts_are_not_told(store: Store, world: World) -> None:
    """A webhook that is set today does not tell of last year."""
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    await world.elapse(90_000)
    assert await store.alerts.untold(30.0, 10) == []


# The audit, and what an act changes


async def test_the_audit_says_who_did_what_when_and_why(store: Store, world: World) -> None:
    scheduler = await running(store, 1, 2)
    for n, verdict in ((1, "refused"), (2, "applied")):
        decision = unchanged(scheduler[n])
        act = Act(f"a-{n}", "ann", "customer called")
        answer = Answer(act, "cancel", "applied", "because", "undoing", b'{"step":null}')
        decision.answers = [replace(answer, verdict=verdict)]
        await scheduler.commit(decision)
        await world.elapse(1)
    latest, first = await store.admin.audit()
    assert (first.act, first.task, first.kind, first.who, first.why) == (
        "a-1", 1, "cancel", "ann", "customer called",
    )  # fmt: skip
    assert (first.verdict, first.outcome, first.state, first.change) == (
        "refused", "because", "undoing", b'{"step":null}',
    )  # fmt: skip
    assert [entry.task for entry in await store.admin.audit(task=2)] == [2]
    assert await store.admin.audit(1) == [latest]
    assert [e.act for e in await store.admin.audit(before=latest.at)] == ["a-1"]
    assert [e.act for e in await store.admin.audit(before=latest.at, beyond="a-1")] == ["a-2", "a-1"]
    for query, acts in (
        ({"who": "ann"}, ["a-2", "a-1"]), ({"who": "bob"}, []), ({"kind": "cancel", "act": "a-1"}, ["a-1"]), ({"act": "a"}, []),
        ({"kind": "undo"}, []), ({"who": "ann", "before": latest.at}, ["a-1"]),
    ):  # fmt: skip
        assert [e.act for e in await store.admin.audit(**query)] == acts
    (event,) = [e for e in await store.tasks.history(1) if e.note]
    assert event.note == "cancel by ann (customer called) refused: because"


async def test_an_act_may_change_what_a_step_and_a_task_were_given(store: Store, other: Store) -> None:
    """The rest of the step and the task are written as ever; the next owner reads the new values."""
    scheduler = await running(store, 1)
    memory = scheduler[1]
    decision = to_state(memory, "pending", inputs=(b'{"id":"o-2"}',))
    step = memory.steps[1]
    args = replace(step.plan.args, parts=('{"order":2}',))  # type: ignore[type-var]  # it has arguments
    decision.steps[1] = replace(step, plan=replace(step.plan, args=args), round=2, state="waiting")
    decision.rewritten, decision.answers = [1], [Answer(ANN, "resubmit", "applied")]
    await scheduler.commit(decision)
    detail = await other.tasks.detail(1)
    assert detail is not None
    assert detail.inputs == (b'{"id":"o-2"}',)
    assert (detail.steps[1].round, detail.steps[1].state) == (2, "waiting")
    assert [s.plan and s.plan.args and s.plan.args.parts for s in detail.steps][1] == ('{"order":2}',)
    assert detail.steps[0].plan == memory.steps[0].plan
    await store.tasks.submit([draft(2)])
    neighbour = await other.tasks.detail(2)
    assert neighbour is not None
    assert neighbour.inputs == (b'{"id":"o-1"}',)


@pytest.mark.parametrize(
    ("slots", "overdue", "text"),
    [
        (
            4,
            3,
            "the slots of shop/payments are all taken (8 in 2 processes), 3 of them by calls that run past",
        ),
        (4, 0, "the slots of shop/payments are all taken (8 in 2 processes); wait, or start more of them"),
        (3, 3, "start an agent that has it"),
    ],
)
async def test_that_nobody_takes_a_request_is_told_with_what_its_agents_processes_say(
    store: Store, world: World, slots: int, overdue: int, text: str
) -> None:
    """That no process has the action was told also when all that have it were busy. A dead process says nothing any more."""
    await running(store, 1)
    dead = AgentInfo(PAYMENTS, 100, used=0)
    await store.nodes.register(info("dead", ("agent",), 1.0, agents=(dead,)))
    for n, mine in enumerate(
        (AgentInfo(PAYMENTS, 4, used=slots, overdue=overdue), AgentInfo(PAYMENTS, 4, 4))
    ):
        await store.nodes.register(info(f"agent {n}", ("agent",), 1e6, agents=(mine,)))
    await world.elapse(61)
    assert await store.supervision.alert_starved(await term(store), 60.0, 10) == [1]
    (alert,) = await store.alerts.views()
    assert text in alert.text
