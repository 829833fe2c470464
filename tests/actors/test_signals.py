"""A message of an inbox becomes a signal in the transaction of its acknowledgement; a client sends them by handle, id and key."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import makegood as mg
from makegood.client.client import Client
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.signals import MOST_BACKLOG
from tests.actors.conftest import QUIET
from tests.actors.test_inbox import SOON, pause, send, until_empty
from tests.conformance.worlds import World


@dataclass
class Approval:
    """What the boss says."""

    id: str
    cents: int


shop = mg.App("shop")
approval = shop.signal("approval", int)


@shop.workflow
def travel(place: str) -> str:
    mg.wait_for(approval)
    mg.wait_for("nothing", Any)
    return place


@shop.workflow
def walk(place: str) -> str:
    return place


@mg.App("other").workflow
def elsewhere(place: str) -> str:
    return place


def app(*, blocking: bool, **options: Any) -> mg.App:
    """Return an app whose inbox signals the task of the key "trip"."""
    desk = mg.App("desk")

    def accept(answer: Approval, tx: mg.Transaction) -> mg.SignalByKey | None:
        return approval.of(travel, key="trip", value=answer.cents) if answer.cents else None

    async def accepting(answer: Approval, tx: mg.Transaction) -> mg.SignalByKey | None:
        await asyncio.sleep(0)
        return accept(answer, tx)

    desk.inbox("orders", **options)(accept if blocking else accepting)
    return desk


@pytest.mark.parametrize("blocking", [True, False], ids=["def", "async def"])
async def test_a_message_becomes_a_signal_of_its_id(store: Store, world: World, blocking: bool) -> None:
    async with Client(store) as client:
        task = await client.submit(travel, "Rome", key="trip")
        async with Node(app(blocking=blocking), store, roles=("inbox",), options=QUIET):
            for _ in range(3):
                await send(store, ("a-1", 5), ("none", 0))
                await until_empty(store)
        (view,) = (await task.status()).signals
        assert (view.name, view.id) == ("approval", "a-1")
    ((body,),) = await world.rows("select body from {inbox}")
    assert bytes(body) == b'{"kind":"signal","value":"NQ==","signal":["approval","a-1",""]}'


async def test_a_message_for_no_task_comes_again_and_is_a_dead_letter_in_the_end(
    store: Store, world: World
) -> None:
    options = Options(poll_every="10ms", alerts_every=None, leaderless_after=None)
    async with Node(app(blocking=True, retry=SOON), store, roles=("inbox",), options=options):
        await send(store, ("a-1", 5))
        await until_empty(store, world)
    (dead,) = await store.queues.messages("orders", dead=True)
    assert dead.message.tries == 3
    assert dead.message.error == (
        "TaskNotFoundError: no task of shop.travel has the key 'trip': submit it under this key first (you may submit and signal in one "
        "transaction)"
    )
    assert await world.rows("select 1 from {signal}") == []


async def test_another_value_under_a_known_id_is_a_dead_letter_at_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(store) as client:
        task = await client.submit(travel, "Rome", key="trip")
        await task.signal(approval, 4, id="a-1")
    await send(store, ("a-1", 5))
    async with Node(app(blocking=True), store, roles=("inbox",), options=QUIET), asyncio.timeout(60):
        while "goes to the dead letters" not in caplog.text:
            await pause(0.01)
    assert "delivery 1, goes to the dead letters: KeyConflict: task" in caplog.text
    assert "knows a signal 'approval' of the id 'a-1' with another value" in caplog.text


@pytest.mark.parametrize(
    ("state", "goal"), [("processed", "forward"), ("undone", "undo"), ("undoing", "undo")]
)
async def test_a_late_answer_is_a_dead_letter_at_once(
    store: Store, world: World, caplog: pytest.LogCaptureFixture, state: str, goal: str
) -> None:
    """One line of the log says it; nothing of the user's code failed, so there is no traceback."""
    async with Client(store) as client:
        await client.submit(travel, "Rome", key="trip")
    async with world.raw() as raw:
        await raw.run(f"update {{task}} set state = '{state}', goal = '{goal}'")
    async with Node(app(blocking=True), store, roles=("inbox",), options=QUIET):
        await send(store, ("a-1", 5))
        await until_empty(store)
    (dead,) = await store.queues.messages("orders", dead=True)
    assert dead.message.tries == 1
    assert "takes no signal 'approval': the task " in dead.message.error
    assert [r.exc_info for r in caplog.records if ", delivery 1, goes to the" in r.getMessage()] == [None]


async def test_a_signal_to_a_task_with_too_many_is_redelivered(store: Store, world: World) -> None:
    """The task may use some meanwhile."""
    async with Client(store) as client:
        task = await client.submit(travel, "Rome", key="trip")
    async with world.raw() as raw:
        for n in range(MOST_BACKLOG):
            await raw.run(
                "insert into {signal} (task, name, id, at, digest, body) "
                f"values ({task.number}, 'approval', '{n}', 1, '', '')"
            )
    options = Options(poll_every="10ms", alerts_every=None, leaderless_after=None)
    async with Node(app(blocking=True, retry=SOON), store, roles=("inbox",), options=options):
        await send(store, ("a-1", 5))
        await until_empty(store, world)
    (dead,) = await store.queues.messages("orders", dead=True)
    assert dead.message.tries == 3
    assert "1,000 signals to it are unused" in dead.message.error


async def test_a_client_sends_by_handle_id_and_key(store: Store) -> None:
    async with Client(store) as client:
        task = await client.submit(travel, "Rome", key="trip")
        answers = [
            await client.signal(task, approval, 1),
            await client.signal(task.id, approval, 1),
            await client.signal(travel, approval, 1, key="trip"),
            await task.signal("approval", 2),
            await task.signal("nothing"),
        ]
        assert all(answer.created and answer.task == task.id for answer in answers)
        assert len({answer.id for answer in answers}) == 5, "an id is drawn for each"
        with pytest.raises(mg.TaskNotFoundError):
            await client.signal("0000000000009", approval, 1)


async def test_an_operators_signal_needs_a_name_or_a_reason(store: Store) -> None:
    async with Client(store) as client:
        task = await client.submit(travel, "Rome")
        answer = await task.signal(approval, 1, who="ann", why="by phone")
        await task.signal(approval, 2)
        (audit,) = await client.audit(task.id)
        assert (audit.kind, audit.who, audit.why, audit.act) == ("signal", "ann", "by phone", answer.id)
        assert [view.who for view in (await task.status()).signals] == ["", "ann"]


Wrong = tuple[Any, Any, Any, dict[str, Any], type[Exception], str]
"""Task, signal, value and options of a call; the error and its text."""
WRONG: list[Wrong] = [
    (travel, approval, 1, {}, mg.DefinitionError, "goes to the task that has a key: pass key="),
    ("7", approval, 1, {"key": "k"}, mg.DefinitionError, "takes a function decorated with @app.workflow"),
    (elsewhere, approval, 1, {"key": "k"}, mg.DefinitionError, "signal approval is one of app shop"),
    (1, 7, 1, {}, mg.DefinitionError, r"takes what app.signal\(...\) returned, or its name, not int"),
    (1, approval, "1", {}, mg.PayloadError, "the value of signal approval is str, its annotation says int"),
    (1, "approval", "x" * 2_000_000, {}, mg.PayloadError, "the value of signal approval"),
    (1, "approval", 1, {"id": ""}, mg.ConfigError, "id='': a text of 1 to 300 characters"),
    (1, "approval", 1, {"id": "x" * 301}, mg.ConfigError, "a text of 1 to 300 characters"),
    (1, "approval", 1, {"id": "\x00"}, mg.ConfigError, "texts must be Unicode without NUL"),
    (travel, "approval", 1, {"key": "\x00"}, mg.ConfigError, "texts must be Unicode without NUL"),
    (1, "approval", 1, {"stepp": "x"}, mg.ConfigError, "there is no option 'stepp'"),
]


@pytest.mark.parametrize("case", WRONG, ids=[case[-1] for case in WRONG])
async def test_what_is_wrong_is_refused_with_a_remedy(store: Store, world: World, case: Wrong) -> None:
    task, signal, value, options, error, text = case
    async with Client(store) as client:
        await client.submit(travel, "Rome", key="k")
        with pytest.raises(error, match=text):
            await client.signal(task, signal, value, **options)
    assert await world.rows("select 1 from {signal}") == []


@dataclass
class Verdict:
    """What the boss says, and who it was."""

    yes: bool
    by: str = "somebody"


async def test_what_a_sender_leaves_out_has_its_default_for_a_step_that_reads_it(store: Store) -> None:
    """However it is sent: by the signal, by its name, or to many. The step knows no class, so it found no ``by``."""
    office = mg.App("office")
    verdict = office.signal("verdict", Verdict)

    @office.agent("desk").action(complete_within="10s", undo=mg.NOTHING)
    async def note(by: str) -> str:
        return by

    @office.workflow
    def ask(seconds: float) -> str:
        return note(mg.wait_for(verdict, timeout=seconds).by)

    value: Any = {"yes": True}
    async with Node(office, store, options=QUIET) as node:
        client = node.client
        tasks = [await client.submit(ask, 60.0, key=f"k{n}") for n in range(3)]
        await client.signal(tasks[0], verdict, value)
        await client.signal(tasks[1], "verdict", value)
        (bulk,) = await client.signal_all(mg.Filter(key="k2"), "verdict", value, why="all of them")
        assert bulk.verdict == "applied"
        for task in tasks:
            assert await task.result(timeout="60s") == "somebody"


@pytest.mark.parametrize("step", ["verdct", "note", "verdict-", "verdict[x]"])
async def test_a_signal_for_a_step_that_cannot_wait_for_it_is_refused(store: Store, step: str) -> None:
    """It was kept, for ever."""
    office = mg.App("office")
    verdict = office.signal("verdict", Verdict)

    @office.workflow
    def ask(seconds: float) -> bool:
        return mg.wait_for(verdict, timeout=seconds).yes

    async with Client(store) as client:
        task = await client.submit(ask, 60.0)
        with pytest.raises(
            mg.SignalRefused, match=r"has no step .* that waits for 'verdict': leave the step out"
        ):
            await client.signal(task, verdict, Verdict(True), step=step)
        for right in ("verdict", "verdict-2", "verdict[3]", "verdict-2[3]"):
            await client.signal(task, verdict, Verdict(True), step=right)


async def test_a_member_that_no_signal_has_is_refused(store: Store) -> None:
    """A misspelling of what people type; it counted as left out."""
    office = mg.App("office")
    verdict = office.signal("verdict", Verdict)

    @office.workflow
    def ask(seconds: float) -> bool:
        return mg.wait_for(verdict, timeout=seconds).yes

    value: Any = {"yes": True, "bye": "ann"}
    async with Client(store) as client:
        task = await client.submit(ask, 60.0)
        with pytest.raises(mg.SignalRefused, match=r"bye is unknown; did you mean 'yes'|did you mean 'by'"):
            await client.signal(task, "verdict", value)
        with pytest.raises(mg.PayloadError, match=r"unknown field 'bye'; did you mean 'by'"):
            await client.signal(task, verdict, value)


@pytest.mark.parametrize("name", ["def", "async def"])
async def test_a_task_that_never_waits_takes_no_signal(store: Store, world: World, name: str) -> None:
    """By handle, by key, to many, and from an inbox, whose message is a dead letter at once."""
    desk = mg.App("desk")

    def accept(answer: Approval, tx: mg.Transaction) -> mg.SignalByKey:
        return approval.of(walk, key="walk", value=answer.cents)

    async def accepting(answer: Approval, tx: mg.Transaction) -> mg.SignalByKey:
        return accept(answer, tx)

    desk.inbox("orders", retry=SOON)(accept if name == "def" else accepting)
    async with Client(store) as client:
        task = await client.submit(walk, "Rome", key="walk")
        refusal = "waits for no signal 'approval', now or later; no step of its workflow shop.walk is an mg.wait_for"
        with pytest.raises(mg.SignalRefused, match=refusal):
            await client.signal(task, approval, 1)
        with pytest.raises(mg.SignalRefused, match=refusal):
            await client.signal(walk, approval, 1, key="walk")
        with pytest.raises(mg.SignalRefused, match=refusal):
            await task.signal("approval", 1, why="by phone")
        (answer,) = await client.signal_all(mg.Filter(workflow="walk"), approval, 1)
        assert (answer.verdict, refusal in answer.outcome) == ("refused", True)
    options = Options(poll_every="10ms", alerts_every=None, leaderless_after=None)
    async with Node(desk, store, roles=("inbox",), options=options):
        await send(store, ("a-1", 5))
        await until_empty(store, world)
    (dead,) = await store.queues.messages("orders", dead=True)
    assert dead.message.error is not None
    assert refusal in dead.message.error
    assert dead.message.tries == 1
    assert await world.rows("select 1 from {signal}") == []
    assert await world.rows("select 1 from {inbox}") == []
