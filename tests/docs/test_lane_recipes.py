"""The recipes with lanes do what their pages say."""

import threading
from pathlib import Path
from typing import Any

import makegood as mg
from tests.docs.test_recipes_page import played, recipe
from tests.waiting import until


class Gate:
    """What a service does for whoever calls it: it answers once the gate is open, and counts who is in."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.calls: list[str] = []
        self.inside = self.most = 0
        self._lock = threading.Lock()

    async def holds(self, count: int) -> None:
        """Wait until so many calls are in."""

        async def seen() -> bool:
            return self.inside == count

        await until(seen)

    def __call__(self, path: str) -> str:
        with self._lock:
            self.calls.append(path)
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.is_open.wait(120)
        with self._lock:
            self.inside -= 1
        return f"PUT {path}"


async def ends(tasks: list[mg.TaskHandle[Any]]) -> list[str]:
    """Return the states in which tasks end."""
    return [(await task.wait("60s")).state for task in tasks]


async def are(tasks: list[mg.TaskHandle[Any]], states: list[str]) -> None:
    """Wait until tasks are in these states."""

    async def seen() -> bool:
        return [(await task.status()).task.state for task in tasks] == states

    await until(seen)


def test_of_two_orders_of_one_customer_the_second_sees_what_the_first_spent(tmp_path: Path) -> None:
    module = recipe(tmp_path, "one-at-a-time")

    async def play(client: mg.Client) -> None:
        tasks = [await client.submit(module.buy, name, 80) for name in ("ada", "ada", "bob")]
        assert await ends(tasks) == ["processed", "undone", "processed"]
        assert (await tasks[1].status()).task.cause == "spend: ada has 20 left"
        other = await client.submit(module.buy, "ada", 5, lane="household-7")
        assert await ends([other]) == ["processed"]
        assert [task.id for task in await client.find(mg.Filter(lane="ada"))] == [
            tasks[1].number,
            tasks[0].number,
        ]
        assert [task.id for task in await client.find(mg.Filter(lane=mg.Prefix("house")))] == [other.number]

    played(module.shop, tmp_path, play)
    assert module.LEFT == {"ada": 15, "bob": 20}


def test_transfers_in_opposite_directions_neither_lose_money_nor_wait_for_each_other(tmp_path: Path) -> None:
    module = recipe(tmp_path, "transfer-between-accounts")

    async def play(client: mg.Client) -> None:
        names = list(module.BALANCES)
        tasks = [
            await client.submit(module.transfer, names[n % 3], names[(n + 1 + n % 2) % 3], 30 + n)
            for n in range(24)
        ]
        states = await ends(tasks)
        assert {"processed", "undone"} == set(states), "some accounts had too little"

    played(module.bank, tmp_path, play)
    assert sum(module.BALANCES.values()) == 200
    assert min(module.BALANCES.values()) >= 0


def test_a_second_click_reports_the_export_that_is_under_way(tmp_path: Path) -> None:
    module, gate = recipe(tmp_path, "refuse-a-double-click"), Gate()
    module.http = gate

    async def play(client: mg.Client) -> None:
        first = await module.click(client, "ada")
        await gate.holds(1)
        task = first.removeprefix("export ").removesuffix(" begins")
        assert await module.click(client, "ada") == f"export {task} is under way"
        assert (await module.click(client, "bob")).endswith("begins")
        gate.is_open.set()
        assert await ends([client.task(task)]) == ["processed"]
        assert (await module.click(client, "ada")).endswith("begins")

    played(module.office, tmp_path, play)


def test_the_newest_publication_wins_and_the_others_are_undone(tmp_path: Path) -> None:
    module, gate = recipe(tmp_path, "newest-wins"), Gate()
    gate.is_open.set()
    module.http = gate

    async def play(client: mg.Client) -> None:
        first = await client.submit(module.publish, "home", 1)

        async def sleeps() -> bool:
            return [s.state for s in (await first.status()).steps if s.name == "sleep"] == ["ready"]

        await until(sleeps)
        others = [await client.submit(module.publish, "home", version) for version in (2, 3)]
        assert await ends([first]) == ["undone"]
        assert "/drafts/home/1?remove" in gate.calls
        assert "lane" in (await first.status()).task.cause
        await are(others, ["undone", "sleeping"])
        assert "/drafts/home/2" not in gate.calls, "it had not begun"
        await others[1].wake()
        assert await ends(others) == ["undone", "processed"]

    played(module.press, tmp_path, play)


def test_at_most_five_tasks_of_a_tenant_go_at_a_time(tmp_path: Path) -> None:
    module, gate = recipe(tmp_path, "limit-per-tenant"), Gate()
    module.http = gate

    async def play(client: mg.Client) -> None:
        tasks = [await client.submit(module.import_file, "red", f"f{n}") for n in range(12)]
        other = await client.submit(module.import_file, "blue", "f0")
        await gate.holds(6)
        await are(tasks, ["processing"] * 5 + ["queued"] * 7)
        assert (await other.status()).task.state == "processing"
        (lane,) = await client.lanes(name="red")
        assert (lane.held, lane.waiting) == (5, 7)
        gate.is_open.set()
        assert set(await ends([*tasks, other])) == {"processed"}
        assert gate.most <= 6

    played(module.cloud, tmp_path, play)
