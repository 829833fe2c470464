"""Schedulers that claim and end tasks of a few lanes at the same time, submitters whose commits come late, and an operator."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg

import makegood as mg
from makegood import ActRefusedError, Client, Node, TaskHandle
from tests.waiting import moment

NAMES = ("ada", "bob", "cid")
TASKS, SCHEDULERS = 60, 4
DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


@dataclass
class Lanes:
    """How many tasks are under way in each lane, and which ones should not have been."""

    counts: Counter[str] = field(default_factory=Counter)
    crowds: list[str] = field(default_factory=list)
    app: mg.App = field(default_factory=lambda: mg.App("lanes"))

    def enter(self, names: list[str], at_once: int) -> None:
        """A task begins."""
        self.crowds += [name for name in names if self.counts[name] >= at_once]
        self.counts.update(names)

    def workflow(self, at_once: int) -> Any:
        """Return a workflow of two steps: the first enters its lanes, the other leaves them."""
        desk = self.app.agent(f"desk-{at_once}", concurrency=50)

        @desk.action(name="enter", complete_within="1m")
        async def enter(names: list[str]) -> None:
            self.enter(names, at_once)

        @enter.undo
        async def back(names: list[str], *, result: None) -> None:
            self.counts.subtract(names)

        @desk.action(name="leave", complete_within="1m")
        async def leave(names: list[str]) -> None:
            await moment()
            self.counts.subtract(names)

        @leave.undo
        async def again(names: list[str], *, result: None) -> None:
            self.counts.update(names)

        @self.app.workflow(name=f"pass-{at_once}", lane=lambda names: names, at_once=at_once)
        def passage(names: list[str]) -> None:
            enter(names)
            leave(names)

        return passage


async def submit_one(client: Client, url: str, workflow: Any, rng: random.Random) -> TaskHandle[Any]:
    """Submit a task of one to three lanes of its workflow, one in four in a transaction that commits later."""
    names = [f"{name} of {workflow.name}" for name in rng.sample(NAMES, rng.randint(1, 3))]
    if rng.random() < 0.75:
        task: TaskHandle[Any] = await client.submit(workflow, names)
        return task
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            task = await client.submit(workflow, names, connection=connection)
            for _ in range(rng.randint(0, 10)):
                await moment()
    finally:
        await connection.close()
    return task


async def value_of(url: str, query: str) -> Any:
    """Return the one value of a query."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_schedulers_that_race_for_lanes_let_in_no_more_than_may_go_forget_none_and_never_lock_each_other(
    url: str,
) -> None:
    """The lanes of one workflow let in one task at a time, those of the other two. Some tasks are cancelled while they wait."""
    rng, lanes = random.Random("lanes"), Lanes()
    workflows = [lanes.workflow(at_once) for at_once in (1, 2)]
    before = await value_of(url, DEADLOCKS)
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(Node(lanes.app, url, name=f"node-{n}")) for n in range(SCHEDULERS)
        ]

        async def one(number: int) -> str:
            client = nodes[number % SCHEDULERS].client
            for _ in range(rng.randint(0, 25)):
                await moment()
            task = await submit_one(client, url, rng.choice(workflows), rng)
            if number % 8 == 0:
                with suppress(ActRefusedError):  # it has ended
                    await task.cancel(who="operator", why="at random")
            return (await task.wait(timeout=60)).state

        ends = Counter(await asyncio.gather(*(one(number) for number in range(TASKS))))
    assert set(ends) <= {"processed", "undone"}
    assert ends["processed"] >= TASKS * 3 // 4
    assert lanes.crowds == []
    assert +lanes.counts == Counter()
    assert await value_of(url, DEADLOCKS) == before
