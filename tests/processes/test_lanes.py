"""Transfers with two lanes each, at a bank that loses money when two meet, while processes of each role are killed."""

import random
from functools import partial
from itertools import count, groupby

from makegood import TaskHandle
from makegood.model.states import ENDED
from makegood.store.views import TaskView
from tests.processes.bank import CLOSED, Bank, Transfer, move
from tests.processes.world import Child, World

APP = "tests.processes.bank:app"
ACCOUNTS = {"ada": 500, "bob": 300, "cid": 0, CLOSED: 0}
TRANSFERS = 48
KILLS = ("scheduler", "agent", "scheduler", "supervisor", "scheduler", "agent")


async def test_transfers_lose_no_money_while_every_role_is_killed(world: World) -> None:
    """Each account has one transfer at a time, in order of submission, also over a take-over and an undo."""
    rng, bank = random.Random("transfers"), Bank(world.folder / "bank.db")
    bank.open(ACCOUNTS)
    numbers = count(1)

    def begin(role: str) -> Child:
        return world.start(f"{role}-{next(numbers)}", role, app=APP)

    async with world:
        living = [begin(role) for role in ("scheduler", "scheduler", "agent", "agent", "supervisor")]
        await world.started(*living)
        transfers: list[Transfer] = []
        tasks: list[TaskHandle[None]] = []

        async def submit() -> None:
            source, target = rng.sample(sorted(ACCOUNTS), 2)
            transfers.append(Transfer(len(transfers), source, target, cents=rng.randrange(1, 200)))
            tasks.append(await world.client.submit(move, transfers[-1]))

        for _ in range(TRANSFERS):
            await submit()

        async def is_half_way(least: int) -> bool:
            rows = await world.rows("task")
            if all(row["state"] in ENDED for row in rows):  # a machine that is faster than the kills
                await submit()
            return sum(row["state"] in ENDED for row in rows) >= least and any(
                row["locked_by"] for row in rows
            )

        for n, role in enumerate(KILLS):
            least = n * TRANSFERS // len(KILLS)
            await world.until(partial(is_half_way, least), f"{least} transfers end, and one is under way")
            victims = [child for child in living if child.name.startswith(role)]
            if (
                role != "scheduler"
            ):  # all of these at once: then no task that one of them held goes on by itself
                victims = [rng.choice(victims)]
            for victim in victims:
                victim.kill()
                living.remove(victim)
                living.append(begin(role))

        async def ends() -> list[TaskView] | None:
            views = [await world.view(task) for task in tasks]
            return views if all(view.state in ENDED for view in views) else None

        views: list[TaskView] = await world.until(ends, "all transfers end")
        assert {view.state for view in views} == ENDED
        assert max(view.epoch for view in views) > 1, "no task was taken over"
        assert {row["state"] for row in await world.rows("lane")} == {"out"}
        assert await world.left_over() == []

    balances = bank.balances()
    due = dict(ACCOUNTS)
    for transfer, view in zip(transfers, views, strict=True):
        if view.state == "processed":
            due[transfer.source] -= transfer.cents
            due[transfer.target] += transfer.cents
    assert balances == due
    assert sum(balances.values()) == sum(ACCOUNTS.values())
    assert min(cents for *_, cents in bank.entries()) >= 0
    order = {task.id: number for number, task in enumerate(tasks)}
    for account in ACCOUNTS:
        visits = [task for task, _ in groupby(t for t, name, *_ in bank.entries() if name == account)]
        assert visits == sorted(set(visits), key=order.__getitem__), f"transfers met at {account}"
