"""The store goes away, or will not have us: tasks in flight lose nothing, and people are told what to do."""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from makegood import TaskHandle
from proofs.private_server import PrivateServer
from tests.processes import fault_app
from tests.processes.node_process import UNUSABLE
from tests.processes.world import World

CARRIED = {"hold": ("done", 1, 1, 0), "haul": ("done", 1, 1, 0)}
TOLD = re.compile("replies wait for the store|requests cannot be taken now|is PostgreSQL running there")
USAGE, UNREACHABLE = 2, 8
WRONG = "a-secret-that-must-not-be-shown"


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_store_away_for_ten_seconds_with_tasks_in_flight(
    store: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    """PostgreSQL is stopped at once and started after ten seconds; a SQLite file is locked by another process for longer
    than a lock is waited for. Whoever worked goes on working; nothing failed, nothing ran twice, nobody is held for dead.
    """
    server: PrivateServer | None = request.getfixturevalue("server") if store == "postgres" else None
    url = server.url if server is not None else f"sqlite:///{folder}/store.db"
    async with World(folder, url) as world:
        crew = [  # lives end in the outage; the lease outlasts it: the same term must know that it has seen nothing meanwhile
            world.start(role, role, supervise_every=6.0, dead_after=8.0, lease=600.0)
            for role in ("scheduler", "agent", "supervisor")
        ]
        await world.started(*crew)
        slow = await world.submit(fault_app.carry, "slow", {"haul": ["hang after"]})
        await world.until((folder / "hangs").exists, "an action runs", *crew)
        tasks = [await world.submit(fault_app.carry, f"o{n}") for n in range(20)]
        await world.until(lambda: world.service.calls("hold"), "tasks are in flight", *crew)
        async with away(world, server):
            (folder / "free").touch()  # the action ends, and its reply finds no store
            await asyncio.sleep(10)
        supervisor = crew[2]
        count = len(supervisor.trace("pass"))
        await world.until(lambda: len(supervisor.trace("pass")) > count, "a pass after the outage", *crew)
        for task in [slow, *tasks]:
            view = await world.ended(task, "processed")
            assert (view.failure_count, view.epoch) == (0, 1)
            assert await world.steps(task) == CARRIED
        assert all(child.alive() for child in crew)
        assert TOLD.search(crew[1].log())
        assert [row["dead"] for row in await world.rows("node")] == [False] * 3
        assert (supervisor.trace("judged"), supervisor.trace("freed"), await world.epoch()) == ([], [], 1)
        assert (world.service.arrivals("hold"), world.service.arrivals("haul")) == (21, 21)
        assert await world.left_over() == []
        assert await world.alerts() == []
        world.audit({ref: {"hold": 1, "haul": 1} for ref in ["slow", *(f"o{n}" for n in range(20))]})


@asynccontextmanager
async def away(world: World, server: PrivateServer | None) -> AsyncIterator[None]:
    """Take the store away inside, and see that it is."""
    if server is not None:
        await asyncio.to_thread(server.stop, "immediate")
        began = time.monotonic()
        yield
        assert time.monotonic() - began >= 10
        await asyncio.to_thread(server.start)
        return
    holder = world.launch("holder", ["tests.processes.lock_holder", world.url.removeprefix("sqlite:///")])
    await world.until(lambda: "locked" in holder.log(), "the file is locked", holder)
    began = time.monotonic()
    yield
    agent = world.children["agent"]
    await world.until(lambda: TOLD.search(agent.log()), "the lock is waited for no longer", agent, holder)
    assert time.monotonic() - began >= 10
    holder.kill()


async def test_store_read_only_sqlite(folder: Path) -> None:
    """[sqlite] A process that may not write to the file says so, changes nothing, and ends; the task waits unharmed."""
    url = f"sqlite:///{folder}/store/store.db"
    (folder / "store").mkdir(mode=0o755)
    async with World(folder, url) as world:
        task = await world.submit(fault_app.carry, "a")
    file = folder / "store" / "store.db"
    before = digest(file)
    file.chmod(0o444)
    (folder / "store").chmod(0o555)
    world = World(folder, url)
    try:
        child = world.start("barred", "scheduler", "agent", plain_user=True)
        assert await world.ends(child) == UNUSABLE
        assert "StoreUnavailableError" in child.log()
        assert "give this user write access to the file and its folder" in child.log()
        plain = world.launch("told", ["makegood", "scheduler", "--store", url], plain_user=True)
        assert await world.ends(plain) == UNREACHABLE
        assert "write access" in plain.log()
        assert "Traceback" not in plain.log() + child.log()
        assert digest(file) == before
    finally:
        world.end()
        file.chmod(0o644)
        (folder / "store").chmod(0o755)
    async with World(folder, url) as world:
        world.start("crew", "scheduler", "agent", "supervisor")
        await goes_on(world, world.client.task(task.number))


async def test_store_read_only_postgres(folder: Path, server: PrivateServer) -> None:
    """[postgres] A server that becomes read-only with tasks in flight is an outage: everybody waits, nothing fails."""
    url = server.url
    async with World(folder, url) as world:
        crew = [world.start(role, role, supervise_every=2.0) for role in ("scheduler", "agent", "supervisor")]
        await world.started(*crew)
        task = await world.submit(fault_app.carry, "a", {"haul": ["hang after"]})
        await world.until((folder / "hangs").exists, "an action runs", *crew)
        server.run("alter system set default_transaction_read_only = on")
        server.run("select pg_reload_conf()")
        await world.until(lambda: all("read-only" in c.log() for c in crew), "everybody is told", *crew)
        (folder / "free").touch()
        await world.until(lambda: "replies wait for the store" in crew[1].log(), "the reply is kept", *crew)
        late = world.start("late", "scheduler")
        assert await world.ends(late) == UNUSABLE
        assert "read-only" in late.log()
        assert "Traceback" not in late.log()
        assert await world.rows("inbox") == []
        server.run("alter system reset default_transaction_read_only")
        server.run("select pg_reload_conf()")
        await goes_on(world, task)
        assert all(child.alive() for child in crew)


async def test_wrong_password_postgres(folder: Path, server: PrivateServer) -> None:
    """[postgres] It is refused at once, with the remedy and without showing any password; the right one gets in."""
    url = server.url
    password = urlsplit(url).password
    assert password
    wrong = url.replace(password, WRONG)
    async with World(folder, url) as world:
        task = await world.submit(fault_app.carry, "a")
        child = world.start("barred", "scheduler", "agent", url=wrong)
        assert await world.ends(child) == UNUSABLE
        plain = world.launch("told", ["makegood", "scheduler", "--store", wrong])
        assert await world.ends(plain) == USAGE
        for log in (child.log(), plain.log()):
            assert "refuses this user or password" in log
            assert "user postgres" in log
            assert WRONG not in log
            assert "Traceback" not in log
        assert await world.rows("node") == []
        assert (await world.view(task)).state == "pending"
        crew = world.start("crew", "scheduler", "agent", "supervisor")
        await goes_on(world, task)
        assert password not in crew.log()


async def test_no_access_sqlite(folder: Path) -> None:
    """[sqlite] The twin of the wrong password: a file that this user may not even read."""
    url = f"sqlite:///{folder}/store.db"
    async with World(folder, url) as world:
        task = await world.submit(fault_app.carry, "a")
    (folder / "store.db").chmod(0)
    world = World(folder, url)
    try:
        child = world.start("barred", "scheduler", "agent", plain_user=True)
        assert await world.ends(child) == UNUSABLE
        plain = world.launch("told", ["makegood", "scheduler", "--store", url], plain_user=True)
        assert await world.ends(plain) == UNREACHABLE
        for log in (child.log(), plain.log()):
            assert (
                "it belongs to root, and this user may not open it" in log
                or "read and write access to the file" in log
            )
            assert "Traceback" not in log
    finally:
        world.end()
        (folder / "store.db").chmod(0o644)
    async with World(folder, url) as world:
        world.start("crew", "scheduler", "agent", "supervisor")
        await goes_on(world, world.client.task(task.number))


async def goes_on(world: World, task: TaskHandle[Any]) -> None:
    """See that the task ends as if nothing had been."""
    view = await world.ended(task, "processed")
    assert (view.failure_count, view.epoch) == (0, 1)
    assert await world.steps(task) == CARRIED
    assert await world.left_over() == []
    world.audit({"a": {"hold": 1, "haul": 1}})


def digest(file: Path) -> str:
    """Return what tells whether a file was changed."""
    return f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.stat().st_mtime_ns}"
