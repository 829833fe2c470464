"""Schedules beside the leading Supervisor: the database may refuse one of them, and the others are fired."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.election import Term
from makegood.options import Options
from makegood.store.firing import Firing
from makegood.store.records import Submission
from makegood.store.schedule_records import DueSchedule, ScheduleWork
from makegood.store.sqlite import SQLiteStore
from makegood.supervisor import firings as supervisor_firings
from makegood.supervisor.firings import Firings
from tests.actors.test_supervisor import term_of
from tests.clocks import HandClock
from tests.waiting import moment, until

FAST = Options(lease="10s", supervise_every="500ms", poll_every="50ms", migrate=True)


def an_app() -> mg.App:
    """Return an app with two schedules."""
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def write(name: str) -> str:
        return name

    @app.workflow
    def report(name: str) -> str:
        return write(name)

    app.schedule("good", report, "good", every="1s", overlap="allow")
    app.schedule("bad", report, "bad", every="1s", overlap="allow")
    return app


async def test_what_the_database_refuses_is_fired_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    store = SQLiteStore(tmp_path / "store.db", clock=clock, poll=None)
    await store.open(migrate=True)
    await store.schedules.apply([each.draft for each in an_app().schedules.values()])
    clock.forward(1)
    work = Firing._work  # noqa: SLF001 - the database is made to refuse one

    def refused(self: Firing, due: DueSchedule, calendar: float) -> ScheduleWork:
        answer = work(self, due, calendar)
        drafts: Sequence[Submission] = answer.drafts
        return (
            replace(answer, drafts=tuple(replace(d, priority=2**70) for d in drafts))
            if due.name == "bad"
            else answer
        )

    firings = Firings(store, lambda: None, asyncio.Event(), clock=clock, rng=random.Random(1))
    with monkeypatch.context() as patch:
        patch.setattr(Firing, "_work", refused)
        await firings.once(await term_of(store))
    assert [task.key for task in await store.tasks.find(mg.Filter())] == ["good@2027-01-15T08:00:01Z"]
    bad, good = await store.schedules.views()
    assert (bad.firings, good.firings) == (0, 1)
    assert "refuses a value" in bad.trouble
    assert [alert.kind for alert in await store.alerts.views()] == ["schedule"]
    clock.forward(6)
    await firings.once(await term_of(store))
    bad, _ = await store.schedules.views()
    assert (bad.firings, bad.trouble) == (1, "")
    await store.close()


async def test_who_does_not_lead_does_nothing_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even when schedules change; it fires at once when its term begins, and rests again after the term."""
    for name in ("POLL", "BUFFER_POLL"):
        monkeypatch.setattr(supervisor_firings, name, 0.0)
    store = SQLiteStore(tmp_path / "store.db", clock=HandClock(), poll=None)
    await store.open(migrate=True)
    terms: list[Term] = []
    leads, looks, fires = asyncio.Event(), 0, asyncio.Event()

    def term() -> Term | None:
        nonlocal looks
        looks += 1
        return terms[-1] if terms else None

    async def once(_firings: Firings, _term: Term) -> float:
        fires.set()
        return 0.0

    monkeypatch.setattr(Firings, "once", once)
    firings = Firings(store, term, leads, clock=HandClock(), rng=random.Random(1))
    running = asyncio.create_task(firings.run())
    await store.schedules.apply([each.draft for each in an_app().schedules.values()])
    for _ in range(20):
        await moment()
    assert looks == 0
    terms.append(await term_of(store))
    leads.set()
    async with asyncio.timeout(60):
        await fires.wait()
    leads.clear()
    terms.clear()
    await moment()
    count = looks
    for _ in range(20):
        await moment()
    assert looks == count
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


async def test_a_process_with_the_app_writes_its_schedules_and_the_leader_fires_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    async with mg.Node(an_app(), url, options=FAST) as node:

        async def is_processed() -> bool:
            tasks = await node.client.find(mg.Filter(attributes={"makegood.schedule": "good"}))
            return any(task.state == "processed" for task in tasks)

        await until(is_processed)
        assert [handle.name for handle in await node.client.schedules()] == ["bad", "good"]


async def test_a_wall_clock_that_is_set_forward_is_noticed_without_a_read_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedule is due hours from now; no wake-up comes, and the rest would be an hour."""
    monkeypatch.setattr(supervisor_firings, "JUMP_LOOK", 0.01)
    clock = HandClock()
    store = SQLiteStore(tmp_path / "store.db", clock=clock, poll=None)
    await store.open(migrate=True)
    firings = Firings(store, lambda: None, asyncio.Event(), clock=clock, rng=random.Random(1), every=3600.0)
    rest = asyncio.ensure_future(firings._rest(asyncio.Event(), 3600.0))  # noqa: SLF001 - how long it rests
    for _ in range(5):
        await moment()
    assert not rest.done(), "time that passes is no jump"
    clock.wall_seconds += 5 * 3600.0
    await asyncio.wait_for(rest, 60.0)
    await store.close()
