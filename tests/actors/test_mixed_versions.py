"""Mixed versions: no plan with newer kinds of steps is submitted while an older Scheduler could claim it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
import pytest

import makegood as mg
from makegood.client.scheduler_kinds import SchedulerKinds
from makegood.model.lane import LANE
from makegood.model.plan import FIRST_KINDS, KINDS
from makegood.model.shape import Shape
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.records import Submission
from makegood.store.views import NodeInfo
from tests.actors.conftest import QUIET
from tests.conformance.builders import draft
from tests.conformance.worlds import Counts, World

app = mg.App("mixed")
desk = app.agent("desk")


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def book(city: str) -> str:
    return city


@app.workflow
def plain(city: str) -> str:
    return book(city)


@app.workflow
def nap(city: str) -> str:
    mg.sleep(timedelta(milliseconds=1))
    return book(city)


@app.workflow
def naps(cities: list[str]) -> list[str]:
    return mg.each(cities, book_later)


def book_later(city: str) -> str:
    mg.sleep(timedelta(milliseconds=1))
    return book(city)


OLD = NodeInfo("old", ("scheduler",), "box", 7, 600.0, kinds=tuple(sorted(FIRST_KINDS)))
OLDEST = NodeInfo("oldest", ("scheduler", "agent"), "box", 8, 600.0)
"""As every version writes it that does not publish kinds."""


async def test_a_task_with_a_lane_waits_for_the_schedulers(store: Store) -> None:
    """One that does not know lanes would end the task, and keep its lane."""
    newer = msgspec.structs.replace(OLD, kinds=KINDS)
    number = await store.nodes.register(newer)
    async with mg.Client(store) as client:
        with pytest.raises(mg.SubmissionError, match=r"mixed\.plain has lanes, which the Scheduler of old"):
            await client.submit(plain, "Rome", lane="ada")
        await client.submit(nap, "Rome")
        await store.nodes.unregister(number)
        await client.submit(plain, "Rome", lane="ada")


@pytest.mark.parametrize("info", [OLD, OLDEST], ids=["old", "oldest"])
async def test_a_plan_of_newer_kinds_waits_for_the_schedulers(store: Store, info: NodeInfo) -> None:
    """Whichever way it is submitted, nothing is written; other plans go their way."""
    number = await store.nodes.register(info)
    async with mg.Client(store) as client:
        refusals: list[Callable[[], Awaitable[object]]] = [
            lambda: client.submit(nap, "Rome"),
            lambda: client.submit(naps, ["Rome"]),
            lambda: client.submit_many([plain.plan("Oslo"), nap.plan("Rome")]),
        ]
        for submit in refusals:
            with pytest.raises(mg.SubmissionError, match="update the Schedulers first") as refusal:
                await submit()
            assert f"the kind sleep, which the Scheduler of {info.name} (pid {info.pid} on box)" in str(
                refusal.value
            )
        assert await client.find(mg.Filter()) == []
        await client.submit(plain, "Rome")
        await store.nodes.unregister(number)
        await client.submit(nap, "Rome")
        assert len(await client.find(mg.Filter())) == 2


async def test_a_scheduler_publishes_what_it_knows(store: Store) -> None:
    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        (info,) = await store.nodes.living()
        assert info.kinds == (*KINDS, LANE)
        assert (await node.client.submit(nap, "Rome")).created
    async with Node(app, store, roles=("agent",), options=QUIET):
        (info,) = await store.nodes.living()
        assert info.kinds == ()


async def test_an_agent_of_an_older_version_keeps_nobody_waiting(store: Store) -> None:
    await store.nodes.register(msgspec.structs.replace(OLDEST, roles=("agent", "supervisor")))
    async with mg.Client(store) as client:
        await client.submit(nap, "Rome")


def sleeper(task: int) -> Submission:
    """A draft whose plan has a step that sleeps."""
    return msgspec.structs.replace(draft(task), steps=Shape(nap.plan("Rome").steps))


async def test_what_schedulers_know_is_read_once_a_minute_and_for_such_plans_only(
    counting_store: Store, counts: Counts, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, kinds, now = counting_store, SchedulerKinds(), [1000.0]
    async with world.raw() as raw:
        await raw.run("update {node} set stopped_at = 0")  # those of the fixture
    monkeypatch.setattr(store.tasks, "clock", lambda: now[0])
    reads: list[int] = []
    for drafts in ([draft(1)] * 9, [sleeper(2)], [sleeper(3), draft(4)], [sleeper(5)]):
        await counts.reset()
        await kinds.check(store, drafts)
        reads.append(counts.statements)
    now[0] += 61.0
    await counts.reset()
    await kinds.check(store, [sleeper(6)])
    reads.append(counts.statements)
    assert [bool(count) for count in reads] == [False, True, False, False, True]
    await store.nodes.register(OLD)
    await kinds.check(store, [sleeper(7)])  # within the minute
    now[0] += 61.0
    with pytest.raises(mg.SubmissionError):
        await kinds.check(store, [draft(8), sleeper(9)])
