"""Agents: what an action's ending means, retries under one key, silence at complete-by, slots that stay accounted for."""

import asyncio
import sys
from typing import Any

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import Service
from tests.conformance.worlds import eventually

FAST = mg.Retry(tries=3, wait="1ms")
AT_ONCE = mg.Recover(threshold=1, wait="10ms", extended="10ms")


def shop(service: Service, *, concurrency: int = 10, **options: Any) -> tuple[mg.App, Any]:
    """Return an app with one undoable action that calls ``service``, and its workflow."""
    app = mg.App("shop")
    bank = app.agent("bank", concurrency=concurrency)
    options = {"complete_within": "20s", "retry": FAST, "recover": AT_ONCE, **options}

    @bank.action(**options)
    async def charge(order: str) -> str:
        service.called("charge")
        return f"paid {order}"

    if not options.get("no_return"):

        @charge.undo
        async def refund(order: str, *, result: str | None) -> None:
            service.called(f"refund {result}")

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    return app, buy


async def test_transient_errors_are_tried_again_under_the_same_key_within_one_attempt(store: Store) -> None:
    service = Service()
    service.fail = [ConnectionError("gone"), TimeoutError("slow")]
    app, buy = shop(service)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        assert await task.result(timeout="60s") == "paid o"
    assert service.names() == ["charge"] * 3
    assert len({key for _, key, _ in service.calls}) == 1
    assert {attempt for _, _, attempt in service.calls} == {1}


async def test_permanent_is_not_tried_again_and_nothing_is_undone(store: Store) -> None:
    service = Service()
    service.fail = [mg.Permanent("card refused")]
    app, buy = shop(service)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskUndone, match="card refused") as error:
            await task.result(timeout="60s")
    assert service.names() == ["charge"]
    assert error.value.undone == ()


async def test_tries_that_run_out_leave_the_step_in_doubt_so_it_is_undone_with_result_none(
    store: Store,
) -> None:
    service = Service()
    service.fail = [ConnectionError("gone")] * 9
    app, buy = shop(service)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskUndone, match="gone"):
            await task.result(timeout="60s")
    assert service.names() == ["charge"] * 9 + ["refund None"]
    assert [attempt for _, _, attempt in service.calls] == [1] * 3 + [2] * 3 + [3] * 3 + [4]
    keys = [key for _, key, _ in service.calls]
    assert len(set(keys[:9])) == 1
    assert keys[9] == keys[0].replace("/do", "/undo")


async def test_permanent_after_an_unanswered_try_is_in_doubt_and_undone(store: Store) -> None:
    service = Service()
    service.fail = [ConnectionError("gone"), mg.Permanent("no")]
    app, buy = shop(service)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskUndone):
            await task.result(timeout="60s")
    assert service.names() == ["charge", "charge", "refund None"]


async def test_later_waits_without_a_failure(store: Store) -> None:
    service = Service()
    service.fail = [mg.Later("20ms"), mg.Later("0")]
    app, buy = shop(service)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        assert await task.result(timeout="60s") == "paid o"
        detail = await task.status()
    assert detail.task.failure_count == 0
    assert service.names() == ["charge"] * 3


async def test_a_result_that_cannot_be_kept_is_not_tried_again_and_is_undone(store: Store) -> None:
    app, undos, calls = mg.App("shop"), [], []
    bank = app.agent("bank")

    @bank.action(complete_within="20s", recover=AT_ONCE)
    async def charge(order: str) -> object:
        calls.append(order)
        return object()

    @charge.undo
    async def refund(order: str, *, result: object) -> None:
        undos.append((result, mg.current_call().in_doubt))

    @app.workflow()
    def buy(order: str) -> object:
        return charge(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskUndone, match="result"):
            await task.result(timeout="60s")
    assert calls == ["o"]
    assert undos == [(None, True)]


async def test_an_async_action_is_halted_at_its_complete_by_and_nothing_is_said(store: Store) -> None:
    app, cancellation, attempts = mg.App("shop"), asyncio.Event(), list[int]()
    bank = app.agent("bank")

    @bank.action(complete_within="500ms", undo=mg.NOTHING)
    async def hang(order: str) -> None:
        attempts.append(mg.current_call().attempt)
        try:
            await asyncio.Event().wait()
        finally:
            cancellation.set()

    @app.workflow()
    def buy(order: str) -> None:
        hang(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        async with asyncio.timeout(60):
            await cancellation.wait()
        (step,) = (await task.status()).steps
        # An attempt that the machine begins only after its complete-by is not begun, and the next one hangs.
        assert (step.state, [step.attempt], step.failures) == ("running", attempts, 0), (
            "silence is the Supervisor's to judge"
        )
        assert node._agents is not None
        slots = node._agents.slots["shop/bank"]  # lent while the store is asked for requests
        await eventually(lambda: slots.free == 10, "all slots to be free")


async def test_extend_moves_complete_by_for_async_and_plain_actions_alike(store: Store) -> None:
    app, remainders = mg.App("shop"), []
    bank = app.agent("bank")

    @bank.action(complete_within="2m", undo=mg.NOTHING)
    async def first(order: str) -> None:
        await mg.current_call().extend("10m")
        remainders.append(mg.current_call().remaining())

    @bank.action(complete_within="2m", undo=mg.NOTHING)
    def second(order: str) -> None:
        mg.current_call().extend("10m")
        remainders.append(mg.current_call().remaining())

    @app.workflow()
    def buy(order: str) -> None:
        first(order)
        second(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        await (await node.client.submit(buy, "o")).result(timeout="60s")
    assert len(remainders) == 2
    assert all(400.0 < left <= 600.0 for left in remainders)


async def test_an_action_says_up_to_when_it_may_be_extended(store: Store) -> None:
    """More than ten times its complete-by, or less; past that the call is told to stop."""
    app, lefts = mg.App("shop"), []
    bank = app.agent("bank")

    @bank.action(complete_within="2m", extend_up_to="1h", undo=mg.NOTHING)
    async def long(order: str) -> None:
        await mg.current_call().extend("50m")
        lefts.append(mg.current_call().left)

    @bank.action(complete_within="2m", extend_up_to="3m", undo=mg.NOTHING)
    def short(order: str) -> None:
        mg.current_call().note("half of it")
        for _ in range(3):
            mg.current_call().extend("50m")
        lefts.append(mg.current_call().left)

    @bank.action(complete_within="2m", undo=mg.NOTHING)
    async def plain(order: str) -> None:
        await mg.current_call().extend("50m")

    @app.workflow()
    def buy(order: str) -> None:
        long(order)
        short(order)
        plain(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        await task.result(timeout="60s")
        notes = [note.text async for event in task.events(follow=False) for note in event.notes]
    assert 2700.0 < lefts[0] <= 3000.0
    assert 120.0 < lefts[-1] <= 180.0
    assert notes == [
        "half of it",
        "its deadline moves no further: an attempt takes at most 3m (extend_up_to)",
        "its deadline moves no further: an attempt takes at most 20m (10 times complete_within; extend_up_to= allows more)",
    ], "each attempt that comes to its limit says so in the history, once"


async def test_an_agent_runs_no_more_than_its_slots_and_takes_the_rest_as_they_become_free(
    store: Store,
) -> None:
    app, running, most = mg.App("shop"), [0], [0]
    bank = app.agent("bank", concurrency=3)

    @bank.action(complete_within="1m", undo=mg.NOTHING)
    async def work(order: str) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        for _ in range(5):
            await asyncio.sleep(0)
        running[0] -= 1

    @app.workflow()
    def flow(order: str) -> None:
        work(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        tasks = await asyncio.gather(*(node.client.submit(flow, str(n)) for n in range(40)))
        await asyncio.gather(*(task.result(timeout="2m") for task in tasks))
    assert most[0] == 3


async def test_agents_in_another_process_answer_through_the_store(store: Store, other: Store) -> None:
    service = Service()
    app, buy = shop(service)
    async with (
        Node(None, store, roles=("scheduler",), options=QUIET) as scheduler,
        Node(app, other, roles=("agent",), options=QUIET),
    ):
        task = await scheduler.client.submit(buy, "o")
        assert await task.result(timeout="60s") == "paid o"
    assert service.names() == ["charge"]


async def test_an_action_by_its_former_name_still_finds_its_code(store: Store) -> None:
    old, buy = shop(Service())
    service, app = Service(), mg.App("shop")
    bank = app.agent("bank")

    @bank.action(complete_within="20s", undo=mg.NOTHING, formerly=("charge",))
    async def take_money(order: str) -> str:
        service.called("take_money")
        return order

    async with mg.Client(store) as client:
        task = await client.submit(buy, "o")
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        assert await node.client.task(task.id).result(timeout="60s") == "o"
    assert service.names() == ["take_money"]
    assert old.name == "shop"


async def test_a_probe_that_says_happened_spares_the_second_call(store: Store) -> None:
    app, calls = mg.App("shop"), []
    bank = app.agent("bank")

    @bank.action(complete_within="20s", retry=mg.Retry(tries=1), recover=AT_ONCE)
    async def charge(order: str) -> str:
        calls.append("charge")
        raise ConnectionError("did it, then broke")

    @charge.probe
    async def find(order: str) -> mg.Happened[str] | mg.NotHappened:
        calls.append(f"probe {mg.current_call().undoes == mg.current_call().key}")
        return mg.Happened("p-1")

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None:
        calls.append("refund")

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        assert await (await node.client.submit(buy, "o")).result(timeout="60s") == "p-1"
    assert [name.split()[0] for name in calls] == ["charge", "probe"]


def test_a_node_with_agents_needs_an_app_and_knows_its_names() -> None:
    app, _ = shop(Service())
    with pytest.raises(mg.ConfigError, match="needs the app"):
        Node(None, "sqlite:///x.db")
    with pytest.raises(mg.ConfigError, match="roles="):
        Node(app, "sqlite:///x.db", roles=("worker",))
    with pytest.raises(mg.DefinitionError, match="it has bank"):
        Node(app, "sqlite:///x.db", agents=["payments"])
    assert Node(app, "sqlite:///x.db", options=Options(slots=3)).roles == ("scheduler", "agent", "supervisor")


# -- what user code may do to the process that runs it ---------------------------------------------------------------------


@pytest.mark.parametrize("ends", [SystemExit(0), SystemExit("bye"), asyncio.CancelledError()])
async def test_an_action_that_ends_the_program_or_cancels_is_tried_again_as_for_any_other_exception(
    store: Store, ends: BaseException
) -> None:
    service = Service()
    service.fail = [ends]
    app, buy = shop(service)
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        assert await task.result(timeout="60s") == "paid o"
    assert service.names() == ["charge"] * 2


async def test_a_def_action_that_calls_exit_is_tried_again_too(store: Store) -> None:
    app, calls = mg.App("shop"), [0]
    bank = app.agent("bank")

    @bank.action(complete_within="20s", retry=FAST, undo=mg.NOTHING)
    def charge(order: str) -> str:
        calls[0] += 1
        if calls[0] == 1:
            sys.exit(3)
        return f"paid {order}"

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        assert await task.result(timeout="60s") == "paid o"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (mg.Happened("paid"), r"charge returned mg\.Happened\(\.\.\.\), which is what a probe answers"),
        (mg.NOT_HAPPENED, "charge returned mg.NOT_HAPPENED, which is what a probe answers"),
        (17, r"the result of shop/bank/charge is int, its annotation says str"),
    ],
)
async def test_a_result_that_is_none_is_said_at_once_and_the_step_undone(
    store: Store, value: Any, text: str
) -> None:
    """It was done: so it is undone, with result None, and not tried again."""
    app, undos = mg.App("shop"), list[str | None]()
    bank = app.agent("bank")

    @bank.action(complete_within="20s", retry=FAST, recover=AT_ONCE)
    async def charge(order: str) -> str:
        return value  # type: ignore[no-any-return]  # not what it says

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None:
        undos.append(result)

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskUndone, match=text):
            await task.result(timeout="60s")
    assert undos == [None]


async def test_arguments_that_cannot_be_taken_mean_that_nothing_was_begun(store: Store) -> None:
    """A step before it returned what its annotation does not promise, as when code changes under a waiting step."""
    app, undos, ran = mg.App("shop"), list[str](), list[str]()
    bank = app.agent("bank")

    @bank.action(complete_within="20s", undo=mg.NOTHING)
    async def look(order: str) -> Any:
        return {"not": "a number"}

    @bank.action(complete_within="20s", retry=FAST, recover=AT_ONCE)
    async def charge(cents: int) -> str:
        ran.append("charge")
        return "paid"

    @charge.undo
    async def refund(cents: int, *, result: str | None) -> None:
        undos.append("refund")

    @app.workflow()
    def buy(order: str) -> str:
        return charge(look(order))

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(buy, "o")
        with pytest.raises(mg.TaskUndone, match="it was not begun, its arguments do not fit"):
            await task.result(timeout="60s")
        states = {step.name: step.state for step in (await task.status()).steps}
    assert (ran, undos) == ([], [])
    assert states["charge"] == "failed", "certain, and not in doubt"
