"""Payloads that the engine cannot read: a task runs, fails, is undone and repaired, and no row has a value in plain."""

import logging
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.agent import sealed_calls
from makegood.client.client import Client
from makegood.model.messages import Alert
from makegood.node.node import Node
from makegood.payload.envelopes import decode
from makegood.store.protocol import Store
from makegood.store.views import Filter
from makegood.supervisor.chores import Chores
from tests.actors.conftest import QUIET
from tests.actors.encoded_shop import (
    CANARY,
    KEYS,
    EncodedShop,
    Hold,
    Line,
    Order,
    dump,
    envelopes,
    refuse_canary,
)
from tests.conformance.worlds import World
from tests.waiting import moment

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def logs(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """No log line at any level has the canary."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    refuse_canary(caplog.text, "a log")


def encrypted(**keys: bytes) -> mg.codecs.Encrypted:
    return mg.codecs.Encrypted(keys or KEYS)


async def test_a_task_of_every_kind_of_step_runs_and_leaves_nothing_in_plain(
    store: Store, world: World
) -> None:
    shop = EncodedShop(encrypted())
    async with Node(shop.app, store, options=QUIET) as node, Client(store) as client:
        task = await node.client.submit(shop.place, Order("o-1"), key="o-1", reply_to="queue:notices")
        await node.client.signal(task, shop.approval, Line("approved"))
        await node.client.signal(task, shop.verdict, "yes")
        result = await task.result(timeout="2m")
        assert result["sent"] == f"sent {CANARY}"
        assert result["note"] == CANARY
        assert result["first"]["line"] == {"sku": "x", "note": f"{CANARY} {CANARY}"}
        calls = dict(shop.calls)
        assert calls["send"][0] == [CANARY, f"hold {CANARY}"]
        assert calls["send"][2] == Line("approved")
        assert [pick["line"]["sku"] for pick in calls["send"][1]] == ["x", "y"]
        with pytest.raises(mg.CodecError, match="no codec"):
            await client.task(task.id).result()
        notes = [note.value async for event in task.events(follow=False) for note in event.notes]
        assert notes[0] == f"reserving {CANARY}"
        assert {"text": CANARY, "first": CANARY} in notes
        views = [note async for event in client.task(task.id).events(follow=False) for note in event.notes]
        assert all(note.value.startswith("mg1:") for note in views)
        text = await dump(world)
        refuse_canary(text, "a row")
        assert len(envelopes(text)) > 10


async def test_a_race_an_early_end_and_the_answer_to_a_signal_leave_nothing_in_plain(
    store: Store, world: World
) -> None:
    shop = EncodedShop(encrypted())
    async with Node(shop.app, store, options=QUIET) as node, Client(store) as stranger:
        task = await node.client.submit(shop.race, Order("o-2"))
        assert await task.result(timeout="2m") == f"{CANARY} {CANARY}"
        question = await node.client.submit(shop.ask, Order("o-3"))
        with pytest.raises(mg.CodecError, match="no codec that opens it"):
            await stranger.signal(question.id, shop.approval, Line("x"), id="s", until="weigh", timeout="2m")
        _, _, _, weigh, *_ = shop.actions
        line: str = await question.signal(shop.approval, Line("x"), id="s", until=weigh, timeout="2m")
        assert line == f"x: {CANARY}"
        refuse_canary(await dump(world), "a row")


async def ended(task: mg.TaskHandle[Any], state: str) -> None:
    assert (view := await task.wait("120s")).state == state, view.cause


async def test_errors_withhold_their_texts_and_an_undo_gets_what_was_done(store: Store, world: World) -> None:
    shop = EncodedShop(encrypted())
    shop.faults["pick"] = mg.Permanent(f"no {CANARY}")
    async with Node(shop.app, store, options=QUIET) as node:
        task = await node.client.submit(shop.place, Order("o-1"), reply_to="queue:notices")
        await ended(task, "undone")
        assert ("release", (Order("o-1"), Hold(f"hold {CANARY}", Order("o-1")))) in shop.calls
        view = await task.status()
        assert "Permanent (its text is withheld)" in view.task.cause
        ends = [end for event in (await store.tasks.recent(task.number)).events for end in event.attempts]
        (failure,) = [end for end in ends if end.kind == "permanent"]
        assert failure.frame is not None
        assert "encoded_shop.py" in failure.frame
        assert failure.traceback is not None
        assert failure.traceback.startswith("mg1:")
        text = await opened_error(
            shop, task, "pick[0]" if "pick[0]" in view.task.cause else "pick[1]", failure.traceback
        )
        assert f"no {CANARY}" in text
        assert "Traceback" in text
        ends = [end async for event in task.events(follow=False) for end in event.attempts]
        assert any(f"no {CANARY}" in (end.traceback or "") for end in ends), (
            "a client with the codec reads it"
        )
        refuse_canary(await dump(world), "a row")


def refusing_app() -> mg.App:
    """Return an app whose workflows fail with a reason that the function wrote, was given, or got from an action."""
    app = mg.App("shop", codec=encrypted())
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING, readable=True)
    def is_refused(text: str) -> bool:
        return True

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def reason(text: str) -> str:
        return text

    @app.workflow
    def written(text: str) -> None:
        mg.when(is_refused(text), then=lambda: mg.fail(f"no: {text}"))

    @app.workflow
    def given(text: str) -> None:
        mg.when(is_refused(text), then=lambda: mg.fail(text))

    @app.workflow
    def answered(text: str) -> None:
        mg.when(is_refused(text), then=lambda: mg.fail(reason(text)))

    @app.workflow
    def raced(text: str) -> None:
        mg.first(
            lambda: mg.when(is_refused(text), then=lambda: mg.fail(text)),
            lambda: mg.when(is_refused(text), then=lambda: mg.fail(f"no: {text}")),
        )

    app.schedule("hourly", given, CANARY, every="1h")
    return app


async def legible_cause(node: Node, task: mg.TaskHandle[Any]) -> str:
    """Return the cause of an undone task, which is the same wherever a client with the codec reads it."""
    with pytest.raises(mg.TaskUndone) as undone:
        await task.result("120s")
    cause = undone.value.cause
    with pytest.raises(mg.TaskUndone) as refusal:  # to the store, and not only to the Scheduler beside
        await node.client.task(task.id).result("120s")
    detail = await task.status()
    (view,) = await node.client.find(mg.Filter(ids=(task.number,)))
    causes = {cause, refusal.value.cause, (await task.wait("120s")).cause, detail.task.cause, view.cause}
    assert causes == {cause}
    assert "mg1:" not in " ".join(step.error or "" for step in detail.steps)
    moves = [move async for event in task.events(follow=False) for move in event.moves]
    assert any(move.detail and cause.endswith(move.detail) for move in moves if move.name == "task")
    assert "mg1:" not in " ".join(move.detail for move in moves)
    return cause


async def test_the_reason_of_a_fail_is_legible_to_its_submitter_wherever_it_comes_from(
    store: Store, world: World
) -> None:
    app = refusing_app()
    async with Node(app, store, options=QUIET) as node, Client(store) as stranger:
        task = await node.client.submit(app.workflows["written"], CANARY)
        assert await legible_cause(node, task) == f"no: {CANARY}"
        for name in ("given", "answered"):
            task = await node.client.submit(app.workflows[name], CANARY)
            assert await legible_cause(node, task) == CANARY
        schedule = await node.client.find_schedule("hourly")
        assert await legible_cause(node, await schedule.trigger()) == CANARY
        task = await node.client.submit(app.workflows["raced"], CANARY)
        cause = await legible_cause(node, task)
        assert cause.count(CANARY) == 2
        view = await stranger.task(task.id).wait()
        assert "mg1:" in view.cause
        refuse_canary(await dump(world), "a row")


async def test_errors_of_setups_withhold_their_texts(
    store: Store, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Their class and line are in the alert and in the log."""
    app = mg.App("shop", codec=encrypted())
    desk = app.agent("desk")
    failures, closings = iter(range(4)), list[str]()

    @app.setup
    def db() -> Iterator[str]:
        if next(failures, None) is not None:
            raise OSError(CANARY)
        yield "db"
        closings.append("db")
        raise OSError(CANARY)

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def ask(text: str, *, db: str = mg.SETUP) -> str:
        return db

    @app.workflow
    def order(text: str) -> str:
        return ask(text)

    async with Node(app, store, options=QUIET) as node:
        task = await node.client.submit(order, CANARY)
        assert await task.result("120s") == "db"
        (alert,) = await node.client.alerts(ended=True)
        refuse_canary(await dump(world), "a row")
    assert closings
    for text in (alert.text, caplog.text):
        assert "OSError (its text is withheld), test_encoded_payloads.py:" in text
    assert "could not be closed: OSError (its text is withheld)" in caplog.text


class Clumsy:
    """A codec whose errors quote what it works on."""

    def encode(self, data: bytes, context: mg.codecs.Context) -> bytes:
        if context.field == "result of ask":
            raise ValueError(data.decode())
        return data[::-1]

    def decode(self, data: bytes, context: mg.codecs.Context) -> bytes:
        if context.field == "input 0":
            raise ValueError(data[::-1].decode())
        return data[::-1]


async def test_errors_of_a_codec_withhold_their_texts(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    app = mg.App("shop", codec=Clumsy())
    desk = app.agent("desk")
    recover = mg.Recover(threshold=0, wait="10ms", extended="10ms")

    @desk.action(complete_within="20s", undo=mg.NOTHING, recover=recover)
    def ask(text: str) -> str:
        return text

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def name() -> str:
        return CANARY

    @app.workflow(name="asks")
    def asks() -> str:
        return ask(name())

    @app.workflow(name="passes")
    def passes(text: str) -> str:
        return ask(text)

    async with Node(app, store, options=QUIET) as node:
        await ended(await node.client.submit(asks), "undone")
        await node.client.submit(passes, CANARY)
        while not (alerts := await node.client.alerts()):
            await moment()
    assert "cannot be decoded: ValueError (its text is withheld)" in alerts[0].text
    refuse_canary(alerts[0].text, "an alert")
    assert "the result cannot be encoded: ValueError" in caplog.text


async def opened_error(shop: EncodedShop, task: mg.TaskHandle[Any], step: str, text: str) -> str:
    context = mg.codecs.Context(task.id, f"error of {step}")
    return (await decode(shop.app.codec, f'"{text}"'.encode(), context)).decode()


async def test_doubt_probes_stuck_undos_and_operators_leave_nothing_in_plain(
    store: Store, world: World
) -> None:
    shop = EncodedShop(encrypted())
    shop.faults |= {
        "reserve": RuntimeError(CANARY),
        "pick": mg.Permanent(CANARY),
        "release": mg.Permanent(CANARY),
    }
    async with Node(shop.app, store, options=QUIET) as node:
        task = await node.client.submit(shop.place, Order("o-1"))
        await ended(task, "error")
        assert ("reserved", (Order("o-1"), CANARY)) in shop.calls
        await task.settle("reserve", outcome="undone", why="seen")
        await ended(task, "undone")
        with pytest.raises(mg.ConfigError, match="workflow="):
            await task.resubmit(inputs=[Order("o-2")])
        with pytest.raises(mg.ConfigError, match="workflow="):
            await task.resubmit(step="reserve", inputs={"card": "another"})
        answer = await task.resubmit(
            inputs=[Order("cheap", card=f"other {CANARY}")], workflow=shop.place, why="new card"
        )
        assert answer.verdict == "applied", answer
        await node.client.signal(task, shop.verdict, "no")
        await ended(task, "undone")
        assert ("reserve", (Order("cheap", card=f"other {CANARY}"), f"other {CANARY}")) in shop.calls
        assert (await task.status()).task.cause == f"the boss says no to other {CANARY}"
        (view,) = await store.tasks.find(Filter(ids=(task.number,)))
        assert view.cause.startswith("mg1:"), "the reason of mg.fail"
        text = await dump(world)
        refuse_canary(text, "a row")
        refuse_canary("\n".join(alert.text for alert in await node.client.alerts()), "an alert")


async def test_an_operator_states_a_result_that_is_encoded(store: Store, world: World) -> None:
    shop = EncodedShop(encrypted())
    shop.faults["send"] = mg.Permanent(CANARY)
    async with Node(shop.app, store, options=QUIET) as node, Client(store) as stranger:
        holding = shop.app.workflow(on_failure="hold", name="held")(shop.place.fn)
        task = await node.client.submit(holding, Order("cheap"))
        await node.client.signal(task, shop.verdict, "yes")
        await ended(task, "error")
        with pytest.raises(mg.CodecError, match="--codec"):
            await stranger.task(task.id).settle("send", value=CANARY, why="seen")
        await task.settle("send", value=f"seen {CANARY}", why="seen")
        assert (await task.result("120s"))["sent"] == f"seen {CANARY}"
        refuse_canary(await dump(world), "a row")


async def test_messages_dead_letters_and_signals_by_key(store: Store, world: World) -> None:
    shop = EncodedShop(encrypted())
    async with Node(shop.app, store, options=QUIET) as node, Client(store, codec=shop.app.codec) as client:
        task = await node.client.submit(shop.place, Order("o-1"), key="o-1")
        await client.send("orders", Order("signal"), id="m-1")
        shop.faults["accept dead"] = mg.Permanent(CANARY)
        await client.send("orders", Order("dead"), id="m-2")
        while not await client.messages("orders", dead=True):
            await moment()
        refuse_canary(await dump(world), "a row")
        await client.replay_messages("orders", ["m-2"], value=Order("o-2"))
        while not (views := await client.find(mg.Filter(key=mg.Exact("o-2")))):
            await moment()
        assert await client.task(views[0].id).result("120s") == CANARY
        await node.client.signal(task, shop.verdict, "yes")
        assert (await task.result("120s"))["note"] == CANARY
        refuse_canary(await dump(world), "a row")


async def test_the_client_of_a_node_encodes_and_decodes_messages_as_its_app_does(
    store: Store, world: World
) -> None:
    shop = EncodedShop(encrypted())
    async with Node(shop.app, store, options=QUIET) as node:
        await node.client.send("other", {"card": CANARY}, id="m-1")
        shop.faults["accept dead"] = mg.Permanent(CANARY)
        await node.client.send("orders", Order("dead"), id="m-2")
        while not await node.client.messages("orders", dead=True):
            await moment()
        await node.client.replay_messages("orders", ["m-2"], value=Order("o-2"))
        while not (views := await node.client.find(mg.Filter(key=mg.Exact("o-2")))):
            await moment()
        assert await node.client.task(views[0].id).result("120s") == CANARY
        refuse_canary(await dump(world), "a row")
        (message,) = await node.client.queue("other").receive()
        assert message.value == {"card": CANARY}


async def test_keys_and_conflicts_are_decided_on_what_was_encoded(store: Store) -> None:
    shop, later_shop = EncodedShop(encrypted()), EncodedShop(encrypted(k2=b"2" * 32, **KEYS))
    async with Client(store) as client:
        first = await client.submit(shop.briefly, Order("o-1"), key="k")
        assert first.created
        assert not (await client.submit(shop.briefly, Order("o-1"), key="k")).created
        assert not (await client.submit(later_shop.briefly, Order("o-1"), key="k")).created
        with pytest.raises(mg.KeyConflict, match="another text"):
            await client.submit(later_shop.briefly, Order("o-2"), key="k")
        tasks = await client.submit_many([shop.briefly.plan(Order("o-1")).with_(key=key) for key in "kl"])
        assert [task.created for task in tasks] == [False, True]


async def test_a_signal_by_handle_by_key_and_from_an_inbox_is_one_signal_under_one_id(
    store: Store, world: World
) -> None:
    shop = EncodedShop(encrypted())
    async with Node(shop.app, store, options=QUIET) as node:
        client, line = node.client, Order("signal").lines[0]
        task = await client.submit(shop.place, Order("o-1"), key="o-1", delay="1h")
        numbered = partial(client.signal, task, shop.approval)
        keyed = partial(client.signal, shop.place, shop.approval, key="o-1")
        for n, ways in enumerate(([numbered, keyed, numbered], [keyed, numbered, keyed])):
            answers = [await send(line, id=f"click-{n}") for send in ways]
            assert [answer.created for answer in answers] == [True, False, False]
            assert not any(answer.conflict for answer in answers)
            assert all([(await send(Line("other"), id=f"click-{n}")).conflict for send in ways])
        await client.send("orders", Order("signal"), id="click-0")
        while not any(name == "accept signal" for name, _ in shop.calls) or await client.messages("orders"):
            await moment()
        assert not await client.messages("orders", dead=True)
        assert len((await task.status()).signals) == 2
        refuse_canary(await dump(world), "a row")


async def test_a_signal_to_many_is_the_same_one_now_and_by_the_leader(store: Store, world: World) -> None:
    """Under one id, whichever is first; so is the signal to one task under the id that it has there."""
    shop = EncodedShop(encrypted())
    everyone = mg.Filter(workflow="place")
    async with Node(shop.app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        client, line = node.client, Line("approved")
        tasks = [
            await client.submit(shop.place, Order(key), key=key, delay="1h") for key in ("o-1", "o-2", "o-3")
        ]

        async def send_now(id_: str) -> list[str]:
            acts = await client.signal_all(everyone, shop.approval, line, id=id_)
            return [act.verdict for act in acts]

        async def send_by_leader(id_: str) -> tuple[int, int, int]:
            await client.bulk("signal", everyone, signal=shop.approval, value=line, id=id_)
            leader = Chores(store, leads=lambda: True, rng=random.Random(1))
            while (view := await client.bulk_act(id_)).state == "running":
                await leader.once()
                await moment()
            return view.applied, view.noop, view.refused

        assert (await client.signal(tasks[0], shop.approval, line, id=f"n-1/{tasks[0].id}")).created
        assert sorted(await send_now("n-1")) == ["applied", "applied", "noop"]
        assert await send_by_leader("n-2") == (3, 0, 0)
        assert await send_now("n-2") == ["noop"] * 3
        assert await send_now("n-3") == ["applied"] * 3
        assert await send_by_leader("n-3") == (0, 3, 0)
        for id_ in ("n-2", "n-3"):
            again = await client.signal(tasks[0], shop.approval, line, id=f"{id_}/{tasks[0].id}")
            assert (again.created, again.conflict) == (False, False)
        refuse_canary(await dump(world), "a row")


async def test_schedules_are_encoded_and_the_same_app_writes_the_same_schedule(
    store: Store, world: World
) -> None:
    shop = EncodedShop(encrypted())
    shop.app.schedule("hourly", shop.at_moment, Order("o-1"), mg.MOMENT, every="1h")
    for outcome in ("new", "same"):
        draft = shop.app.schedules["hourly"].draft
        assert await store.schedules.apply([await draft.seal()]) == [outcome]
    async with Node(shop.app, store, options=QUIET) as node:
        schedule = await node.client.find_schedule("hourly")
        task = await schedule.trigger()
        assert await task.result("120s") == f"hold {CANARY}"
        assert (await task.status()).inputs[0].startswith(b'{"id":"o-1"')
        refuse_canary(await dump(world), "a row")


async def test_after_a_rotation_old_tasks_end_and_a_missing_key_costs_no_task(
    store: Store, world: World
) -> None:
    new = {"k2": b"2" * 32}
    old, later_shop, ahead = (
        EncodedShop(encrypted()),
        EncodedShop(encrypted(**new, **KEYS)),
        EncodedShop(encrypted(**new)),
    )
    async with Client(store) as client:
        task = await client.submit(old.briefly, Order("o-1"))
        async with Node(ahead.app, store, options=QUIET) as node:
            while not (alerts := await node.client.alerts()):
                await moment()
            assert alerts[0].kind == "role_failing"
            assert "key k1" in alerts[0].text
            detail = await node.client.task(task.id).status()
            assert detail.task.failure_count == 0
            assert detail.inputs[0].startswith(b'"mg1:')
        await world.elapse(sealed_calls.WAIT + 1)
        async with Node(later_shop.app, store, options=QUIET) as node:
            assert await node.client.task(task.id).result("120s") == CANARY
            assert await node.client.alerts() == [], "another process had raised it"
            (alert,) = await node.client.alerts(ended=True)
            assert alert.ended_why == "it works again"


@pytest.mark.parametrize("apart", [True, False], ids=["agents apart", "whole nodes"])
async def test_a_process_that_lacks_a_key_leaves_steps_to_one_that_has_it(
    store: Store, other: Store, apart: bool, logs: pytest.LogCaptureFixture
) -> None:
    """Each take of it costs a step a second, and after two in a row it takes nothing for a while."""
    old, ahead = EncodedShop(encrypted()), EncodedShop(encrypted(k2=b"2" * 32))
    roles = ("agent",) if apart else ("scheduler", "agent")
    async with (
        Node(ahead.app, store, roles=("scheduler", "agent"), options=QUIET),
        Client(store) as client,
    ):
        tasks = [await client.submit(old.briefly, Order(f"o-{n}")) for n in range(6)]
        while not await client.alerts():
            await moment()
        async with Node(old.app, other, roles=roles, options=QUIET):
            for task in tasks:
                assert await task.result("60s") == CANARY
    assert not ahead.calls
    assert "is asked for again in 1 s" in logs.text
    assert "is asked for again in 30 s" not in logs.text


async def test_a_process_that_still_lacks_a_key_raises_its_alert_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that starts beside it, and decodes, ends the alert."""
    monkeypatch.setattr(sealed_calls, "WAIT", 0.02)
    new = {"k2": b"2" * 32}
    old, ahead = EncodedShop(encrypted()), EncodedShop(encrypted(**new))
    async with Client(store) as client, Node(ahead.app, store, options=QUIET) as node:
        await client.submit(old.briefly, Order("o-1"))
        while not await client.alerts():
            await moment()
        await store.alerts.ease([Alert("role_failing", step=sealed_calls.ROLE)], "it works again")
        while not await node.client.alerts():
            await moment()


async def test_a_process_whose_app_has_no_codec_yet_costs_no_task(store: Store, world: World) -> None:
    shop, before = EncodedShop(encrypted()), EncodedShop(None)
    async with Client(store) as client:
        task = await client.submit(shop.briefly, Order("o-1"))
        async with Node(before.app, store, options=QUIET) as node:
            while not (alerts := await node.client.alerts()):
                await moment()
            assert "no codec" in alerts[0].text
            assert not before.calls
        await world.elapse(sealed_calls.WAIT + 1)
        async with Node(shop.app, store, options=QUIET):
            assert await task.result("120s") == CANARY


async def test_tasks_from_before_the_codec_end_as_they_began(store: Store) -> None:
    shop, before = EncodedShop(encrypted()), EncodedShop(None)
    async with Client(store) as client:
        task = await client.submit(before.briefly, Order("o-1"), key="k")
        assert not (await client.submit(shop.briefly, Order("o-1"), key="k")).created
        async with Node(shop.app, store, options=QUIET):
            assert await task.result("120s") == CANARY
        assert (await task.status()).inputs[0].startswith(b'{"id":"o-1"')


@pytest.mark.parametrize("source", ["of another task", "of another step"])
async def test_a_value_that_was_copied_elsewhere_is_refused(
    store: Store, world: World, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who may write the tables puts another value in the place of one; the step that would take it never begins."""
    monkeypatch.setattr(sealed_calls, "WAIT", 0.02)
    shop = EncodedShop(encrypted())
    async with Client(store) as client:
        task, other = [await client.submit(shop.place, Order(name)) for name in ("o-1", "o-2")]
        async with Node(shop.app, store, options=QUIET):
            while len([call for call in shop.calls if call[0] == "is_dear"]) < 2:
                await moment()
        async with world.raw() as raw:
            step = (
                "task = ? and name = 'reserve'"
                if source == "of another task"
                else "task = ? and name = 'pick[0]'"
            )
            number = other.number if source == "of another task" else task.number
            (value,) = (await raw.run(f"select result from {{step}} where {step}", number))[0]
            await raw.run(
                "update {step} set result = ? where task = ? and name = 'reserve'", value, task.number
            )
        async with Node(shop.app, store, options=QUIET) as node:
            await node.client.signal(task, shop.approval, Line("approved"))
            await node.client.signal(task, shop.verdict, "yes")
            while not (alerts := await node.client.alerts()):
                await moment()
            assert "copied there from another task or field" in alerts[0].text
            assert "result of reserve" in alerts[0].text
            assert not [call for call in shop.calls if call[0] == "send"]


def test_a_caller_whose_driver_blocks_submits_in_its_transaction(tmp_path: Path) -> None:
    shop = EncodedShop(mg.codecs.Chain(mg.codecs.Compressed(), encrypted()))
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with mg.SyncClient(url, migrate=True) as client:
        client.queues()  # it opens its store before the transaction begins
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
            connection.execute("pragma synchronous = full")
            connection.execute("begin immediate")
            task = client.submit(shop.briefly, Order("o-1"), key="k", connection=connection)
            again = client.submit(shop.briefly, Order("o-1"), key="k", connection=connection)
            connection.execute("commit")
        assert not again.created
        with mg.SyncNode(shop.app, url):
            assert client.task(task.id).result("60s") == CANARY
    for file in tmp_path.glob("shop.db*"):
        refuse_canary(file.read_bytes().decode("latin-1"), file.name)
