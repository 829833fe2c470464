"""What the tests of replicas do with a store: submit under load, wait for ends, compare the books with the record."""

import asyncio
from collections.abc import Iterable

import makegood as mg
from makegood.errors import StoreUnavailableError
from makegood.model.states import AT_REST
from makegood.options import Options
from makegood.store.views import Filter, TaskView
from tests.replicas.remote_service import STEPS, Order, Service, Shop
from tests.waiting import until

BRISK = Options(
    supervise_every="200ms",
    lease="1s",
    late_after="200ms",
    heartbeat="200ms",
    dead_after="2s",
    poll_every="200ms",
    drain="2s",
    starved_after="1m",
)
PATIENCE = 120.0


class Load:
    """Orders submitted one after another, by a client with a store of its own, and what it was told about each.

    ``refuse``: every so many orders are refused at ship, 0 = none.
    """

    def __init__(self, client: mg.Client, shop: Shop, name: str, *, refuse: int = 5) -> None:
        self.client, self.shop, self.name, self.refuse = client, shop, name, refuse
        self.acknowledged: list[str] = []
        self.unwritten: list[str] = []
        self.back = asyncio.Event()
        self._stopping = False
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Submit until told to stop; when the store is away, go on once it is ``back``."""
        number = 0
        while not self._stopping:
            number += 1
            order = Order(
                f"{self.name}-{number}", "ship" if self.refuse and number % self.refuse == 0 else ""
            )
            self.back.clear()
            try:
                await self.one(order)
            except StoreUnavailableError:
                self.unwritten.append(order.id)
                await self.back.wait()

    async def one(self, order: Order) -> mg.TaskHandle[str]:
        """Submit one order."""
        handle = await self.client.submit(self.shop.place_order, order, key=order.id)
        assert handle.created
        self.acknowledged.append(order.id)
        self._news.set()
        return handle

    async def beyond(self, count: int) -> None:
        """Wait until ``count`` more were acknowledged."""
        goal = len(self.acknowledged) + count
        async with asyncio.timeout(PATIENCE):
            while len(self.acknowledged) < goal:
                self._news.clear()
                await self._news.wait()

    def stop(self) -> None:
        """Submit nothing more."""
        self._stopping = True
        self.back.set()


async def tasks(client: mg.Client) -> dict[str, TaskView]:
    """Return all tasks of the store by their key."""
    return {str(view.key): view for view in await client.store.tasks.find(Filter(limit=1_000_000))}


async def ended(client: mg.Client, keys: Iterable[str] | None = None) -> dict[str, TaskView]:
    """Wait until these tasks (default: all) are at rest; returns all tasks."""
    goal = None if keys is None else set(keys)
    last: dict[str, TaskView] = {}

    async def rest() -> bool:
        last.clear()
        try:
            last.update(await tasks(client))
        except StoreUnavailableError:
            return False
        return all(view.state in AT_REST for key, view in last.items() if goal is None or key in goal)

    await until(rest, "the tasks to end")
    return last


async def balanced(client: mg.Client, service: Service, views: dict[str, TaskView]) -> None:
    """Compare the record with the books: processed = every step done, each effect stands once; undone = none stands."""
    wrong = {}
    for key, view in views.items():
        detail = await client.store.tasks.detail(view.id)
        assert detail is not None
        states = {step.state for step in detail.steps}
        due = dict.fromkeys(STEPS, 1) if view.state == "processed" else {}
        whole = (
            states == {"done"} if view.state == "processed" else not states & {"running", "done", "in_doubt"}
        )
        if view.state not in ("processed", "undone") or service.standing(key) != due or not whole:
            wrong[key] = (view.state, view.cause, service.standing(key), states)
    assert not wrong, wrong


async def gather(*loads: Load) -> list["asyncio.Task[None]"]:
    """Start loads."""
    return [asyncio.create_task(load.run()) for load in loads]
