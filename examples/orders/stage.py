"""Puts the stage together: who directs, who watches, and the pages."""

import random
from pathlib import Path
from typing import Final

from makegood import Client, StoreUnavailableError
from makegood.store.views import TaskDetail

from .chaos import Chaos
from .customers import Customers
from .director import Director
from .processes import REPORT
from .scene import Watcher
from .stage_ladder import Ladder
from .stage_pages import Stage
from .waits import Waits
from .world import Services

NAMES: Final = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


class Show:
    """One show. ``director`` does what is pressed; there is one once it is staged."""

    director: Director

    def __init__(
        self,
        chaos: Chaos,
        customers: Customers,
        client: Client,
        services: Services,
        folder: Path,
        *,
        waits: Waits,
    ) -> None:
        self._chaos = chaos
        self.customers = customers
        self._client = client
        self.services = services
        self._folder = folder
        self._waits = waits

    def staged(self, *, seed: int, store: str, prefix: str, console: str) -> Stage:
        """Return the stage. ``prefix``: of the orders' ids; ``console``: where the console is, "" for nowhere."""
        rng = random.Random(f"{seed} stage")
        self.director = Director(
            self._chaos, self.customers, self.services, rng=rng, prefix=prefix, task=self._task
        )
        watcher = Watcher(
            self.director, self.services, self._waits, report=self._folder / REPORT, console=console,
            title=f"seed {seed} · {NAMES[store]}",
        )  # fmt: skip
        return Stage(
            self.director, watcher, Ladder(self._client, self._task, self._chaos.places.values(), console)
        )

    async def _task(self, order: str) -> TaskDetail | None:
        """Return the task of an order, None if there is none yet, or the store is away."""
        try:
            view = await self.customers.view(order)
            return await self._client.store.tasks.detail(view.id) if view else None
        except StoreUnavailableError:
            return None
