"""A user's workflow, in a module and a folder of its own, through ``makegood run`` and through separate processes, with kills.

Nothing of the test suite is imported by that module: it knows makegood as its author does, by what is public, and
has a service of its own, which honours keys and remembers what was undone.
"""

import contextlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from tests.processes.world import Child, World

MODULE = '''
"""A bakery: mix, bake, sell. Every fifth loaf is burnt."""

import os
import sqlite3
import time
from dataclasses import dataclass

import makegood as mg

bakery = mg.App("bakery")
kitchen, shop = bakery.agent("kitchen", concurrency=4), bakery.agent("shop")
AGAIN = mg.Recover(threshold=6, wait="100ms", extended="300ms")


@dataclass
class Loaf:
    number: int
    flour: str = "rye"


def ledger(statement: str, *values: object) -> None:
    connection = sqlite3.connect(os.environ["LEDGER"], timeout=30)
    with connection:
        connection.execute(statement, values)
    connection.close()


def enter(loaf: Loaf) -> None:
    """Once per key; a key that was struck out stays so."""
    call = mg.current_call()
    ledger("insert or ignore into ledger (key, loaf, step) values (?, ?, ?)", call.key, loaf.number, call.step)


def strike_out(loaf: Loaf) -> None:
    call = mg.current_call()
    ledger(
        "insert into ledger (key, loaf, step, struck) values (?, ?, ?, 1) on conflict (key) do update set struck = 1",
        call.undoes, loaf.number, call.step,
    )


@kitchen.action(complete_within="2s", recover=AGAIN)
def mix(loaf: Loaf) -> str:
    time.sleep(0.02)
    enter(loaf)
    return f"{loaf.flour} dough"


@mix.undo
def throw_away(loaf: Loaf, *, result: str | None) -> None:
    strike_out(loaf)


@kitchen.action(complete_within="2s", recover=AGAIN)
def bake(loaf: Loaf, dough: str) -> int:
    if loaf.number % 5 == 0:
        raise mg.Permanent("burnt")
    enter(loaf)
    time.sleep(0.02)
    return 700


@bake.undo
def feed_to_the_birds(loaf: Loaf, *, result: int | None) -> None:
    strike_out(loaf)


@shop.action(complete_within="2s", recover=AGAIN)
async def sell(loaf: Loaf, grams: int) -> str:
    enter(loaf)
    return f"{grams} g"


@sell.undo
async def take_back(loaf: Loaf, *, result: str | None) -> None:
    strike_out(loaf)


@bakery.workflow(complete_within="5m")
def daily_bread(loaf: Loaf) -> str:
    return sell(loaf, bake(loaf, mix(loaf)))
'''

CUSTOMER = '''
"""Orders bread, loaf by loaf: python customer.py STORE COUNT. Then waits for all of it and says how it went."""

import sys
import time

import makegood as mg
from bread import Loaf, daily_bread

with mg.SyncClient(sys.argv[1]) as client:
    tasks = []
    for n in range(int(sys.argv[2])):
        tasks.append(client.submit(daily_bread, Loaf(n), key=f"loaf-{n}"))
        time.sleep(0.05)
    print("ordered", flush=True)
    sold = burnt = 0
    for task in tasks:
        try:
            assert task.result(timeout="4m") == "700 g"
            sold += 1
        except mg.TaskUndone as undone:
            # Refused after an attempt that was never answered, it is in doubt, and undone as well.
            assert undone.undone in (("mix",), ("mix", "bake")), undone.undone
            assert "burnt" in undone.cause
            burnt += 1
    print(f"sold {sold}, burnt {burnt}", flush=True)
'''
LOAVES = 60
BURNT = len(range(0, LOAVES, 5))
SETTINGS = {
    "MAKEGOOD_SUPERVISE_EVERY": "0.5s",
    "MAKEGOOD_LEASE": "12s",
    "MAKEGOOD_LATE_AFTER": "0.3s",
    "MAKEGOOD_HEARTBEAT": "0.2s",
    "MAKEGOOD_DEAD_AFTER": "10m",
    "MAKEGOOD_POLL_EVERY": "0.5s",
}


async def test_user_module_in_one_process_killed_again_and_again(world: World) -> None:
    """``makegood run`` is killed three times under way and started anew: every loaf is sold, or burnt and its dough gone."""
    async with world:
        settle_in(world)
        run = world.launch(
            "run-1", ["makegood", "run", "bread:bakery", "--store", world.url], settings=SETTINGS
        )
        await serving(world, run)
        customer = world.launch("customer", ["customer", world.url, str(LOAVES)])
        for n in (2, 3, 4):
            await goes_on(world, 10, run, customer)
            run.kill()
            run = world.launch(
                f"run-{n}", ["makegood", "run", "bread:bakery", "--store", world.url], settings=SETTINGS
            )
        await books_balance(world, customer)
        run.terminate()
        assert await world.ends(run) == 0


async def test_user_module_in_separate_processes_that_are_killed(world: World) -> None:
    """Two of each kind; one of each kind is killed under way and one more is started in its place."""
    async with world:
        settle_in(world)
        roles = {
            "scheduler": ["scheduler"],
            "agent": ["agent", "bread:bakery", "kitchen", "shop"],
            "supervisor": ["supervisor"],
        }
        crew = {f"{role}-{n}": start(world, f"{role}-{n}", roles[role]) for role in roles for n in (1, 2)}
        await serving(world, *crew.values())
        customer = world.launch("customer", ["customer", world.url, str(LOAVES)])
        for name in ("agent-1", "scheduler-1", "supervisor-1", "agent-2", "scheduler-2"):
            await goes_on(world, 8, customer)
            crew.pop(name).kill()
            crew[f"{name}b"] = start(world, f"{name}b", roles[name.partition("-")[0]])
        await books_balance(world, customer)
        for child in crew.values():
            child.terminate()
        assert [await world.ends(child) for child in crew.values()] == [0] * len(crew)


def settle_in(world: World) -> None:
    """Write the user's files and open its ledger."""
    (world.folder / "bread.py").write_text(MODULE, encoding="utf-8")
    (world.folder / "customer.py").write_text(CUSTOMER, encoding="utf-8")
    world.environment["LEDGER"] = str(ledger(world))
    with contextlib.closing(sqlite3.connect(ledger(world))) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute(
            "create table ledger (key text primary key, loaf integer, step text, struck integer not null default 0)"
        )


def ledger(world: World) -> Path:
    """Return the user's ledger."""
    return world.folder / "ledger.db"


def start(world: World, name: str, command: Sequence[str]) -> Child:
    """Start one of makegood's processes for the user."""
    return world.launch(name, ["makegood", *command, "--store", world.url], settings=SETTINGS)


async def serving(world: World, *children: Child) -> None:
    """Wait until these processes say that they run."""
    await world.until(
        lambda: all("drains and stops" in child.log() for child in children), "the processes run", *children
    )


async def goes_on(world: World, count: int, *living: Child) -> None:
    """Wait until there are so many entries more in the ledger."""
    start = entries(world)
    await world.until(lambda: entries(world) > start + count, "work is under way", *living)


def entries(world: World) -> int:
    """Return how much is in the ledger."""
    with contextlib.closing(sqlite3.connect(ledger(world), timeout=30)) as connection:
        return int(connection.execute("select count(*) from ledger").fetchone()[0])


async def books_balance(world: World, customer: Child) -> None:
    """See that the customer got what he should, and that the ledger says the same, without asking makegood."""
    began = time.monotonic()
    assert await world.ends(customer) == 0, customer.log()
    assert f"sold {LOAVES - BURNT}, burnt {BURNT}" in customer.log(), (
        f"after {time.monotonic() - began:.1f} s"
    )
    with contextlib.closing(sqlite3.connect(ledger(world), timeout=30)) as connection:
        rows = connection.execute(
            "select loaf, step, sum(1 - struck), count(*) from ledger group by loaf, step"
        ).fetchall()
    assert {keys for _, _, _, keys in rows} == {1}
    standing = {(loaf, step): stands for loaf, step, stands, _ in rows if stands}
    assert standing == {(n, step): 1 for n in range(LOAVES) if n % 5 for step in ("mix", "bake", "sell")}
    assert await world.left_over() == []
    states = [row["state"] for row in await world.rows("task")]
    assert (states.count("processed"), states.count("undone"), len(states)) == (LOAVES - BURNT, BURNT, LOAVES)
