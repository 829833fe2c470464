"""Every alert is seen: as a row, as a line in a log, and by webhook; once each while its cause stands."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import get_args

import pytest

import makegood as mg
from makegood.actor.setbacks import IN_A_ROW, Setbacks
from makegood.base.clock import SystemClock
from makegood.base.webhook_signature import verified
from makegood.brokers import BrokerAddress
from makegood.messaging.alert_webhook import Webhook
from makegood.messaging.alerts import AT_ONCE, AlertSender
from makegood.messaging.leader_watch import LeaderWatch
from makegood.model.messages import Act, Alert, AlertKind
from makegood.model.plan import Template
from makegood.model.schedule import ScheduleDraft, SchedulePlan, spec_of
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.firing import Firing
from makegood.store.notice_records import Sending
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing, Returned
from makegood.store.views import AgentInfo, AlertView
from makegood.supervisor.supervisor import LEASE, Supervisor
from proofs.memory_broker import MemoryBroker, relay_of
from tests.actors.conftest import QUIET
from tests.actors.test_receivers import Sends, submit
from tests.actors.test_supervisor import CALM, supervisor, term_of
from tests.actors.webhook_receiver import listening
from tests.clocks import HandClock
from tests.conformance.builders import PAYMENTS, draft, hand, info, running, scheduler, term, to_state
from tests.conformance.worlds import World, eventually
from tests.waiting import moment, until

SECRET = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"


def teller(store: Store, url: str | None = None) -> AlertSender:
    """Return a AlertSender that is driven by hand."""
    webhook = None if url is None else Webhook(url, [SECRET], clock=SystemClock())
    return AlertSender(store, webhook, pause=1.0, rng=random.Random(1))


def clumsy() -> tuple[mg.App, dict[str, mg.Plan[None]]]:
    """Return an app, and plans that fail in different ways."""
    app = mg.App("shop")
    desk = app.agent("desk")
    once = mg.Recover(threshold=0, wait="1ms", extended="1ms")

    @desk.action(complete_within="1m", retry=mg.Retry(tries=1), recover=once)
    def silent(order: str) -> None:
        raise OSError("the line is dead")

    @silent.undo
    def unsay(order: str, *, result: None) -> None:
        """Nothing stands in its way."""

    @desk.action(complete_within="1m")
    def stuck(order: str) -> None:
        """Do it; it cannot be undone."""

    @stuck.undo
    def unstick(order: str, *, result: None) -> None:
        raise mg.Permanent("the door is locked")

    @desk.action(complete_within="1m")
    def slow(order: str) -> None:
        """Do it; its undo is asked to wait."""

    @slow.undo
    def slowly_back(order: str, *, result: None) -> None:
        raise mg.Later("1h")

    @app.workflow()
    def sticks_beside(order: str) -> None:
        mg.parallel(stuck(order), slow(order))
        silent(order)

    @app.workflow(on_failure="hold")
    def holds(order: str) -> None:
        silent(order)

    @app.workflow()
    def sticks(order: str) -> None:
        stuck(order)
        silent(order)

    @app.workflow()
    def undoes(order: str) -> None:
        silent(order)

    plans = {"held": holds, "stuck": sticks, "beside": sticks_beside, "undone": undoes}
    return app, {name: workflow.plan("o") for name, workflow in plans.items()}


async def play(store: Store, which: str) -> None:
    """Let a task of the clumsy app come to rest."""
    app, plans = clumsy()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        view = await (await node.client.submit(plans[which])).wait("60s")
        assert view.state == ("undone" if which == "undone" else "error")


async def stick_beside(store: Store, _: World) -> None:
    """Let an undo be stuck while another one continues."""
    app, plans = clumsy()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(plans["beside"])
        async for event in task.events():
            if any(move.after == "undo_failed" for move in event.moves):
                break


async def block_lane(store: Store, _: World) -> None:
    """Let a task in error hold a lane for which another one waits."""
    app, plans = clumsy()
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        plan = plans["held"].with_(lane="ada")
        await (await node.client.submit(plan)).wait("60s")
        await node.client.submit(plan)
        await supervisor(store, options=CALM).once(await term_of(store))


async def nearly_fill(store: Store, _: World) -> None:
    """Let a task come to more than four fifths of the steps that it may have."""
    app = mg.App("large", step_limit=10)
    desk = app.agent("desk")

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def names() -> list[str]:
        return ["a"] * 6

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def pack(name: str) -> str:
        return name

    @app.workflow
    def order() -> list[str]:
        return mg.each(names(), pack)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        assert (await (await node.client.submit(order)).wait("60s")).state == "processed"


async def starve(store: Store, world: World) -> None:
    """Leave a request untaken for long."""
    await running(store, 1)
    await world.elapse(100)
    await supervisor(store, options=CALM).once(await term_of(store))


async def leave_waiting(store: Store, world: World) -> None:
    """Let a task wait where no Scheduler runs."""
    await store.tasks.submit([draft(1)])
    await world.elapse(100, pending=True)
    await supervisor(store, options=CALM).once(await term_of(store))


async def undo_slowly(store: Store, world: World) -> None:
    """Let an undo take longer than it should."""
    scheduler = await running(store, 1, undo_within=5.0)
    await scheduler.commit(to_state(scheduler[1], "undoing", goal="undo"))
    await world.elapse(6)
    await supervisor(store, options=CALM).once(await term_of(store))


async def poison(store: Store, world: World) -> None:
    """Let a task lose its Scheduler three times."""
    await store.tasks.submit([draft(1)])
    grant = await store.leases.acquire(LEASE, "s", "n", 1e6)
    assert grant is not None
    for _ in range(3):
        from_hand = await running_again(store)
        await world.elapse(100)
        assert await store.supervision.release_dead(grant, 10) == [1]
        assert from_hand
    async with Node(None, store, roles=("scheduler",), options=QUIET) as node:
        await store.supervision.judge(grant, 0.0, 10)  # the attempts of the dead
        assert (await node.client.task(1).wait("60s")).state == "error"


async def running_again(store: Store) -> list[int]:
    """Claim all there is, by a Scheduler that will be silent."""
    return await (await hand(store, ttl=10.0)).claim(local=True)


async def unreadable(store: Store, world: World) -> None:
    """Let a task's row be damaged."""
    await store.tasks.submit([draft(1)])
    async with world.raw() as raw:
        await raw.run("update {step} set spec = ? where idx = 1", b"not JSON")
    async with Node(None, store, roles=("scheduler",), options=QUIET) as node:
        rest = await node.client.waiters.wait_for_rest(1, 120.0)
        assert rest is not None
        assert rest.view.state == "error"


async def leaderless(store: Store, _world: World) -> None:
    """Watch for longer than one may be without a leader."""
    clock = HandClock()
    watch = LeaderWatch(store, LEASE, after=30.0, clock=clock, rng=random.Random(1))
    assert not await watch.once()
    clock.forward(31)
    assert await watch.once()
    assert await watch.once()


async def break_down(store: Store, _world: World) -> None:
    """Let a service fail until its agent's circuit opens."""
    app = mg.App("shop")
    desk = app.agent("desk", breaker=mg.Breaker(failures=2, reset="1h"))

    @desk.action(
        complete_within="1m",
        undo=mg.NOTHING,
        retry=mg.Retry(tries=9, wait="1ms"),
        recover=mg.Recover(wait="1ms"),
    )
    async def call(order: str) -> None:
        raise OSError("the line is dead")

    @app.workflow()
    def calls(order: str) -> None:
        call(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        await node.client.submit(calls, "o")

        async def stands() -> bool:
            return bool(await store.alerts.views())

        await until(stands)


async def last(store: Store, world: World) -> None:
    """Let a service fail until its circuit has been open for long, with a task that waits for it."""
    await running(store, 1)
    shut = AgentInfo(PAYMENTS, 1, circuit="open")
    await store.nodes.register(info("p", ("agent",), 3600.0, agents=(shut,)))
    await store.alerts.alert([Alert("circuit_open", step=PAYMENTS)])
    await world.elapse(301)
    await store.supervision.alert_starved(await term(store), 3600.0, 10, 300.0)


async def mislay(store: Store, _world: World) -> None:
    """Let messages die that nobody could handle, by his own word and by his silence, and a notice that nobody took."""
    await store.queues.send_messages(
        [Outgoing(queue="orders", id=id_, body=b"1") for id_ in ("said", "silent")], 10
    )
    message, _ = (await store.queues.receive_messages("orders", "me", 10, 0.0, 1)).messages
    assert await store.queues.return_messages(
        [Returned((message.seq, message.tries), error="no such article", dead=True)]
    )
    assert (await store.queues.receive_messages("orders", "me", 10, 0.0, 1)).dead == 1
    scheduler = await hand(store)
    await store.tasks.submit([draft(1, reply_to="https://shop.example/")])
    notices = await store.notices.take_notices(scheduler.node, [("shop.example", 1)], 60.0)
    assert await store.notices.settle_notices(
        scheduler.node, [Sending(d.task, d.sequence, "dead", error="410") for d in notices]
    )


async def bar(store: Store, _world: World) -> None:
    """Let a broker deliver what no queue can take, and then refuse the password."""
    broker = MemoryBroker()
    broker.put(b"{no json", "o-1")
    relay = relay_of(
        store, broker, BrokerAddress("amqp", "main", "orders"), "orders", most=10, rng=random.Random(1)
    )
    await relay.turn()
    broker.refuses_us = True
    await relay.turn()


async def silence(store: Store, _world: World) -> None:
    """Let a broker refuse the password to whoever sends notices."""
    sends = Sends(store, await scheduler(store), MemoryBroker(refuses_us=True))
    await submit(store, [1])
    await sends.turns()


async def restore(store: Store, _world: World) -> None:
    """Say that the store was restored."""
    await store.admin.begin_generation(Act("act", "ann", "the disk died"))


async def stumble(store: Store, _world: World) -> None:
    """Let a role meet an exception at each turn."""
    setbacks = Setbacks("scheduler", store.alerts, random.Random(1))
    for _ in range(IN_A_ROW):
        await setbacks.pause_after(ZeroDivisionError("each time"))


async def cannot_fire(store: Store, world: World) -> None:
    """Let a schedule's row be damaged."""
    month = "30d"
    spec = spec_of(
        "shop", "s", cron=None, every=month, timezone="UTC", overlap="skip", catch_up="1d", coalesce=True, jitter=0, start=None, end=None,
        is_declared=True,
    )  # fmt: skip
    await store.schedules.apply([ScheduleDraft(spec, SchedulePlan("w", (), (), (), Template(("null",))))])
    async with world.raw() as raw:
        await raw.run("update {schedule} set plan = ?, next_at = 0", b"{")
    await store.schedules.fire((await term_of(store)).grant, 10, Firing(lambda: 1))


PROVOKED: dict[str, tuple[Callable[[Store, World], Awaitable[None]], list[str]]] = {
    "held": (lambda store, _: play(store, "held"), ["step_gave_up", "held"]),
    "undo stuck": (stick_beside, ["step_gave_up", "undo_stuck"]),
    "undo incomplete": (lambda store, _: play(store, "stuck"), ["undo_incomplete"]),
    "lane held": (block_lane, ["step_gave_up", "held", "lane_held"]),
    "near the limit": (nearly_fill, ["near_limit"]),
    "starved": (starve, ["starved"]),
    "no scheduler": (leave_waiting, ["no_scheduler"]),
    "late undo": (undo_slowly, ["late_undo"]),
    "poison": (poison, ["poison"]),
    "unreadable": (unreadable, ["unreadable"]),
    "role failing": (stumble, ["role_failing"]),
    "schedule": (cannot_fire, ["schedule"]),
    "no leader": (leaderless, ["no_leader"]),
    "circuit": (break_down, ["circuit_open"]),
    "outage": (last, ["circuit_open", "outage"]),
    "dead letters": (mislay, ["dead_letter"] * 3),
    "generation": (restore, ["generation"]),
    "broker": (bar, ["source_away", "source_refused"]),
    "receiver": (silence, ["receiver_away"]),
}


def test_no_kind_is_left_out() -> None:
    assert {kind for _, kinds in PROVOKED.values() for kind in kinds} == set(get_args(AlertKind)) - {"test"}


@pytest.mark.parametrize("what", PROVOKED)
async def test_every_alert_is_a_row_a_line_and_a_message(
    store: Store, world: World, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    provoke, kinds = PROVOKED[what]
    await provoke(store, world)
    stand: list[AlertView] = await store.alerts.views(ended=False)
    assert sorted(alert.kind for alert in stand) == sorted(kinds), "each once"
    with listening() as receiver, caplog.at_level(logging.INFO, "makegood.alerts"):
        one = teller(store, receiver.url)
        while await one.once():
            continue
        await one.once()
        await teller(store, receiver.url).once()  # another process
    texts = tuple(alert.text for alert in stand)  # the log has those of steps that ended meanwhile, too
    lines = [r for r in caplog.records if r.name == "makegood.alerts" and r.getMessage().endswith(texts)]
    assert sorted(getattr(r, "alert_kind", "") for r in lines) == sorted(kinds)
    assert all(r.levelno >= logging.WARNING for r in lines)
    events = [event for event in receiver.events if event["data"]["text"].endswith(texts)]
    assert sorted(e["data"]["kind"] for e in events) == sorted(kinds)
    assert {e["type"] for e in events} == {"dev.makegood.alert.raised.v1"}
    assert {e["data"]["text"] for e in events} == {a.text for a in stand}
    assert all(verified(SECRET, headers, body, now=SystemClock().wall()) for headers, body in receiver.got)
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [e["id"] for e in receiver.events]


async def test_what_ended_by_itself_is_told_too(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A step failed for good, and its task was undone: both messages, and nothing is left to do."""
    await play(store, "undone")
    assert await store.alerts.views(ended=False) == []
    with listening() as receiver, caplog.at_level(logging.INFO, "makegood.alerts"):
        await teller(store, receiver.url).once()
    assert [(e["type"].split(".")[3], e["data"]["why"]) for e in receiver.events] == [
        ("raised", ""), ("ended", "the task is undone"),
    ]  # fmt: skip
    assert max(r.levelno for r in caplog.records if r.name == "makegood.alerts") == logging.WARNING
    assert [getattr(r, "event", "") for r in caplog.records if r.name == "makegood.alerts"] == [
        "alert.raised", "alert.ended",
    ]  # fmt: skip


async def test_a_message_that_is_not_taken_is_sent_again_under_its_id(store: Store, world: World) -> None:
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    with listening() as receiver:
        receiver.refuse = 1
        one = teller(store, receiver.url)
        await one.once()
        assert receiver.got == []
        await one.once()
        assert receiver.got == [], "it waits before it tries again"
        await world.elapse(12)
        await one.once()
        assert len(receiver.got) == 1
        await world.elapse(1000)
        await one.once()
    assert len(receiver.got) == 1


async def test_a_message_of_a_process_that_died_over_it_is_sent_by_another(
    store: Store, other: Store, world: World
) -> None:
    """At least once: what was held and not told is told by somebody else after a while."""
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    assert len(await store.alerts.untold(60.0, 5)) == 1
    with listening() as receiver:
        await teller(other, receiver.url).once()
        assert receiver.got == []
        await world.elapse(61)
        await teller(other, receiver.url).once()
    assert len(receiver.got) == 1


class Stuck:
    """A receiver that takes hold of whatever is posted to it, and never lets go."""

    def __init__(self) -> None:
        self.under_way = 0

    async def post(self, message_id: str, body: bytes, *, kind: str) -> None:
        """Wait without end."""
        self.under_way += 1
        await asyncio.Event().wait()


async def test_the_log_does_not_wait_for_a_receiver_that_hangs(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever comes of the sending: every alert is in the log, also those that came later, and at most so many are being sent."""
    hangs = Stuck()
    telling = asyncio.create_task(AlertSender(store, hangs, pause=0.01, rng=random.Random(1)).run())
    with caplog.at_level(logging.INFO, "makegood.alerts"):
        for n in range(8):
            await store.alerts.alert([Alert("circuit_open", step=f"shop/{n}", text=f"number {n}")])
            await eventually(lambda n=n: f"number {n}" in caplog.text, "the line in the log")
        await eventually(lambda: hangs.under_way, "it is being sent")
    assert hangs.under_way <= AT_ONCE
    telling.cancel()
    await asyncio.gather(telling, return_exceptions=True)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_receiver_that_drips_is_left_in_time_and_others_alerts_are_sent_again(
    store: Store, other: Store, world: World, tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its connection is closed; with a real server, which answers a byte now and then. Then another process, whose receiver is well."""
    close = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x16\x03\x03\x40\x00\x02" if tls else b"HTTP/1.1 200 OK\r\nX-A: ")
        with suppress(ConnectionError):
            while True:
                writer.write(b"a")
                await writer.drain()
                await moment()
        close.set()
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    await store.alerts.alert([Alert("no_leader", text="nobody leads")])
    dripping = Webhook(url, [SECRET], clock=SystemClock(), timeout=2.0)
    await AlertSender(store, dripping, pause=1.0, rng=random.Random(1)).once()
    async with asyncio.timeout(60):
        await close.wait()
    server.close()
    assert "did not answer within 2 s" in caplog.text
    (alert,) = await store.alerts.views()
    assert (alert.logged, alert.told, alert.tries) == (1, 0, 1)
    with listening() as receiver:
        await world.elapse(12)
        await teller(other, receiver.url).once()
    assert len(receiver.got) == 1


async def test_that_nobody_leads_is_raised_once_and_ends_with_the_next_leader(store: Store) -> None:
    clock = HandClock()
    watch = LeaderWatch(store, LEASE, after=30.0, clock=clock, rng=random.Random(1))
    second = LeaderWatch(store, LEASE, after=30.0, clock=clock, rng=random.Random(2))
    term = await term_of(store)
    assert not await watch.once()
    await store.leases.release(term.grant)
    for _ in range(4):
        await watch.once()
        await second.once()
        clock.forward(20)
    assert [a.kind for a in await store.alerts.views()] == ["no_leader"]
    again = await term_of(store, "s-2")
    other_supervisor = Supervisor(store, CALM, me="s-2", clock=SystemClock(), rng=random.Random(3))
    await other_supervisor.once(again)
    assert [a.ended_why for a in await store.alerts.views()] == ["a supervisor leads"]
    assert not await watch.once()
    await store.leases.release(again.grant)
    for _ in range(4):
        await watch.once()
        clock.forward(20)
    assert len(await store.alerts.views(ended=False)) == 1


async def test_a_node_tells_by_itself(store: Store) -> None:
    """With its settings alone."""
    with listening() as receiver:
        options = Options(
            alerts_every="20ms", leaderless_after="100ms", alert_webhook=receiver.url, alert_secret=SECRET
        )
        async with Node(None, store, roles=("scheduler",), options=options):
            await eventually(lambda: receiver.got, "the message")
    assert receiver.events[0]["data"]["kind"] == "no_leader"


async def test_a_refusal_in_a_group_is_definite_and_named_in_cause_history_and_alert(store: Store) -> None:
    """Asked once, failed and not in doubt; whatever the depth of the group."""
    app, calls = mg.App("shop"), 0
    desk = app.agent("desk")

    async def ask(depth: int) -> None:
        if depth == 0:
            raise mg.Permanent("card declined")
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(depth - 1))

    @desk.action(complete_within="1m", undo=mg.NOTHING)
    async def check(order: str) -> None:
        nonlocal calls
        calls += 1
        await ask(12)

    @app.workflow(on_failure="hold")
    def place(order: str) -> None:
        check(order)

    async with Node(app, store, options=QUIET) as node:
        task = await node.client.submit(place, "o-1")
        with pytest.raises(mg.TaskInError, match="card declined") as error:
            await task.result(timeout=120)
        assert "card declined" in error.value.cause
        assert calls == 1
        detail = await store.tasks.detail(task.number)
        assert detail is not None
        assert [step.state for step in detail.steps] == ["failed"]
        history = await store.tasks.history(task.number)
        assert "card declined" in repr(history)
        assert any("card declined" in alert.text for alert in await store.alerts.views())
